//! A select list of plain fields: a plan of copies from places in the record to places in the new one.

use crossdock_format::{Format, MAX_RECORD_BYTES};
use crossdock_query::{Node, Output};

use crate::kernel::{Place, is_null, slot_text};

/// Copies of fields from records of one format into new records of another. The new record is built in a buffer of its
/// own, which is used again.
#[derive(Debug)]
pub(crate) struct CopyPlan {
    /// The fixed part of a new record before anything is copied: zeros.
    blank: Box<[u8]>,
    /// Fields that are never null, cut into pieces of a width that one load and one store move.
    pieces: Pieces,
    /// Fixed fields that can be null.
    nullable: Vec<Nullable>,
    /// Fields of the variable part.
    variable: Vec<Variable>,
    row: Vec<u8>,
}

/// Pieces by width; from and to are in bytes from the start of the records.
#[derive(Debug, Default)]
struct Pieces {
    of_8: Vec<(u32, u32)>,
    of_4: Vec<(u32, u32)>,
    of_2: Vec<(u32, u32)>,
    of_1: Vec<(u32, u32)>,
    /// Longer stretches, with their lengths.
    long: Vec<(u32, u32, u32)>,
}

#[derive(Debug)]
struct Nullable {
    from: Place,
    to: Place,
    pieces: Pieces,
}

#[derive(Debug)]
struct Variable {
    from: Place,
    to: Place,
}

/// The longest stretch that is cut into pieces; a longer one is worth a call of `memcpy`.
const LONGEST_CUT: u32 = 32;

impl Pieces {
    fn add(&mut self, mut from: u32, mut to: u32, mut length: u32) {
        if length > LONGEST_CUT {
            self.long.push((from, to, length));
            return;
        }
        for (width, pieces) in [(8, &mut self.of_8), (4, &mut self.of_4), (2, &mut self.of_2), (1, &mut self.of_1)] {
            while length >= width {
                pieces.push((from, to));
                (from, to, length) = (from + width, to + width, length - width);
            }
        }
    }

    #[inline]
    fn copy(&self, record: &[u8], row: &mut [u8]) {
        copy_each::<8>(&self.of_8, record, row);
        copy_each::<4>(&self.of_4, record, row);
        copy_each::<2>(&self.of_2, record, row);
        copy_each::<1>(&self.of_1, record, row);
        for &(from, to, length) in &self.long {
            let (from, to, length) = (from as usize, to as usize, length as usize);
            if let (Some(source), Some(place)) = (record.get(from..from + length), row.get_mut(to..to + length)) {
                place.copy_from_slice(source);
            }
        }
    }
}

#[inline]
fn copy_each<const N: usize>(pieces: &[(u32, u32)], record: &[u8], row: &mut [u8]) {
    for &(from, to) in pieces {
        let source = record.get(from as usize..).and_then(|rest| rest.first_chunk::<N>());
        let place = row.get_mut(to as usize..).and_then(|rest| rest.first_chunk_mut::<N>());
        if let (Some(source), Some(place)) = (source, place) {
            *place = *source;
        }
    }
}

impl CopyPlan {
    /// The plan for a select list; `None` if it has more than plain fields.
    pub(crate) fn of(outputs: &[Output], input: &Format, output: &Format) -> Option<CopyPlan> {
        let mut plan = CopyPlan {
            blank: vec![0; output.fixed_bytes()].into(),
            pieces: Pieces::default(),
            nullable: Vec::new(),
            variable: Vec::new(),
            row: Vec::new(),
        };
        // A stretch of fields that are side by side in both formats: from, to, length.
        let mut stretch = (0, 0, 0);
        for (selected, to) in outputs.iter().zip(output.fields()) {
            let Node::Field(index) = selected.expr.node else { return None };
            let from = input.fields().get(index)?;
            if from.ty != to.ty || from.nullable != to.nullable || from.byte_order != to.byte_order {
                return None;
            }
            if to.ty.is_variable() {
                plan.variable.push(Variable { from: Place::of(from), to: Place::of(to) });
            } else if to.nullable {
                let mut pieces = Pieces::default();
                pieces.add(from.offset, to.offset, to.size);
                plan.nullable.push(Nullable { from: Place::of(from), to: Place::of(to), pieces });
            } else if (from.offset, to.offset) == (stretch.0 + stretch.2, stretch.1 + stretch.2) {
                stretch.2 += to.size;
            } else {
                plan.pieces.add(stretch.0, stretch.1, stretch.2);
                stretch = (from.offset, to.offset, to.size);
            }
        }
        plan.pieces.add(stretch.0, stretch.1, stretch.2);
        Some(plan)
    }

    /// The new record for one; `None` if it would be longer than records may be.
    #[inline]
    pub(crate) fn copy(&mut self, record: &[u8]) -> Option<&[u8]> {
        let row = &mut self.row;
        row.clear();
        row.extend_from_slice(&self.blank);
        self.pieces.copy(record, row);
        for field in &self.nullable {
            if is_null(record, field.from) {
                set_null(row, field.to);
            } else {
                field.pieces.copy(record, row);
            }
        }
        for field in &self.variable {
            if is_null(record, field.from) {
                set_null(row, field.to);
                continue;
            }
            let text = slot_text(record, field.from.at);
            if row.len() + text.len() > MAX_RECORD_BYTES - 8 {
                return None;
            }
            // Both fit 32 bits: see the bound above.
            let slot = row.len() as u64 | (text.len() as u64) << 32;
            row.extend_from_slice(text);
            if let Some(place) = row.get_mut(field.to.at..).and_then(|rest| rest.first_chunk_mut()) {
                *place = slot.to_le_bytes();
            }
        }
        let length = row.len().next_multiple_of(8);
        row.resize(length, 0);
        if let Some(word) = row.first_chunk_mut() {
            *word = (length as u32).to_le_bytes();
        }
        Some(row)
    }
}

#[inline]
fn set_null(row: &mut [u8], place: Place) {
    if let Some(byte) = row.get_mut(place.null_byte) {
        *byte |= place.null_mask;
    }
}
