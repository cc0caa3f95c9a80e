//! Values at places that are known: what every value comes to, whoever sets it.

use super::place::BLOCK;
use super::{ByteRun, Place, RecordBuilder, ValueProblem};
use crate::MAX_RECORD_BYTES;
use crate::element::{Group, Member};
use crate::field::FieldType;
use crate::format::{Cell, RECORD_ALIGN};
use crate::record::slot;

impl RecordBuilder {
    /// Has every record hold zero, or nothing, in a field of the record itself, where it holds no other value: for encodings
    /// that leave zeros out.
    pub(crate) fn start_from_zero(&mut self, place: Place) {
        if self.has_default(place.index()) {
            self.clear();
            if self.put_zero(place).is_ok() {
                self.keep_as_blank();
            }
        }
        if let Some(byte) = self.blank.get_mut(place.cell.null_byte as usize) {
            *byte &= !place.cell.null_mask;
        }
        self.promise(place.promised());
    }

    /// Takes a promise that was made of a field of the record itself.
    pub(crate) fn promise(&mut self, place: Place) {
        if let (false, Some(word)) = (place.is_noted, self.required.get_mut(place.index() / 64)) {
            *word &= !(1 << (place.index() % 64));
        }
    }

    /// Stores a value of the field's size, given as it lies in a record.
    #[inline]
    pub(crate) fn put<const N: usize>(&mut self, place: Place, value: [u8; N]) {
        let record = self.record();
        store(record, place.cell, value);
        clear_null(record, place.cell);
        self.note(place);
    }

    /// Stores an integer of as many bytes as the field has: the low ones of `value`.
    #[inline]
    pub(crate) fn put_integer(&mut self, place: Place, value: u64) {
        let record = self.record();
        // Two's complement: the low bytes are the value, for signed and unsigned types alike.
        match place.ty() {
            FieldType::I32 | FieldType::U32 | FieldType::F32 => store(record, place.cell, (value as u32).to_le_bytes()),
            FieldType::I16 | FieldType::U16 => store(record, place.cell, (value as u16).to_le_bytes()),
            FieldType::I8 | FieldType::U8 | FieldType::Bool => store(record, place.cell, (value as u8).to_le_bytes()),
            FieldType::Enum { bytes, .. } | FieldType::Decimal { bytes, .. } => match bytes {
                1 => store(record, place.cell, (value as u8).to_le_bytes()),
                2 => store(record, place.cell, (value as u16).to_le_bytes()),
                4 => store(record, place.cell, (value as u32).to_le_bytes()),
                _ => store(record, place.cell, value.to_le_bytes()),
            },
            _ => store(record, place.cell, value.to_le_bytes()),
        }
        clear_null(record, place.cell);
        self.note(place);
    }

    /// Stores a float in an `f64` field, or the nearest that it can hold in an `f32` field.
    ///
    /// # Errors
    /// It is finite, and would be infinite as `f32`; the field has another type.
    #[inline]
    pub(crate) fn put_float(&mut self, place: Place, value: f64) -> Result<(), ValueProblem> {
        match place.ty() {
            FieldType::F64 => self.put(place, value.to_le_bytes()),
            FieldType::F32 => {
                let narrow = value as f32;
                if narrow.is_infinite() && value.is_finite() {
                    return Err(ValueProblem::FloatRange { found: value });
                }
                self.put(place, narrow.to_le_bytes());
            }
            ty => return Err(ValueProblem::WrongType { found: "float", ty }),
        }
        Ok(())
    }

    /// Stores an integer in an integer field that has room for it; false, and nothing done, for any other field or
    /// integer.
    #[inline]
    pub(crate) fn put_i64(&mut self, place: Place, value: i64) -> bool {
        let fits = store_integer(self.record(), place.cell, value);
        if fits {
            self.mark(place);
        }
        fits
    }

    /// Stores a value of the record itself as `store` does, if it does, and if no nested record has to know of it: what most
    /// values are, with as little as it takes. A record within is none of this.
    #[inline(always)]
    pub(super) fn quick(&mut self, field: usize, store: impl FnOnce(&mut Vec<u8>, Cell) -> bool) -> bool {
        let Some(cell) = self.format.layout().cells.get(field).copied() else { return false };
        if self.target != 0 || cell.group != 0 || !store(&mut self.bytes, cell) {
            return false;
        }
        match cell.null_mask {
            0 => self.note_there(field),
            _ => clear_null(&mut self.bytes, cell),
        }
        true
    }

    /// Stores a text or bytes in a `char[N]`, `string` or `bytes` field.
    ///
    /// # Errors
    /// There is no room for it, or a `char[N]` could not distinguish it from its padding.
    #[inline]
    pub(crate) fn put_run(&mut self, place: Place, run: ByteRun<'_>) -> Result<(), ValueProblem> {
        if let FieldType::Char(room) = place.ty() {
            return self.put_char(place, room, run.bytes);
        }
        if slot(self.record(), place.cell.offset as usize).1 > 0 {
            // Taken out when the record is finished.
            self.has_dead = true;
        }
        let len = run.bytes.len();
        if self.bytes.len() + len > MAX_RECORD_BYTES - RECORD_ALIGN {
            self.make_room(place, len)?;
        }
        let slot = append(&mut self.bytes, run);
        self.put(place, slot);
        Ok(())
    }

    #[inline]
    fn put_char(&mut self, place: Place, room: u16, text: &[u8]) -> Result<(), ValueProblem> {
        match store_char(self.record(), place.cell, room, text) {
            true => self.mark(place),
            false if text.len() > usize::from(room) => {
                return Err(ValueProblem::TextTooLong { found: text.len(), room });
            }
            false => return Err(ValueProblem::EndsInNul),
        }
        Ok(())
    }

    /// Makes a field null; one that is never null has its default instead.
    ///
    /// # Errors
    /// It is never null, and has no default here.
    #[inline]
    pub(crate) fn put_null(&mut self, place: Place) -> Result<(), ValueProblem> {
        let byte = self.record().get(place.cell.null_byte as usize);
        let is_null = byte.is_some_and(|byte| byte & place.cell.null_mask != 0);
        if is_null { Ok(()) } else { self.make_null(place) }
    }

    /// As [`RecordBuilder::put_null`], of a field that is not.
    #[inline(never)]
    fn make_null(&mut self, place: Place) -> Result<(), ValueProblem> {
        if place.cell.null_mask == 0 || place.cell.is_shared() {
            return if self.take_default(place.index()) { Ok(()) } else { Err(ValueProblem::NotNullable) };
        }
        self.forget(place);
        self.set_bit(place.cell.null_byte, place.cell.null_mask);
        Ok(())
    }

    /// Makes a nested record null, or be there.
    ///
    /// # Errors
    /// It may not be null.
    pub(crate) fn put_group(&mut self, group: &Group, is_null: bool) -> Result<(), ValueProblem> {
        if is_null {
            return self.set_group_null(group).map_err(|error| error.problem);
        }
        self.set_group_present(group);
        Ok(())
    }

    /// Makes all variants of a union null; one is to come.
    ///
    /// # Errors
    /// The format has no such field.
    pub(crate) fn put_variants_null(&mut self, union: &Group) -> Result<(), ValueProblem> {
        for variant in &union.members {
            match variant {
                Member::Leaf(field) => self.set_null(*field),
                Member::Group(group) => self.set_group_null(group),
            }
            .map_err(|error| error.problem)?;
        }
        Ok(())
    }

    /// Makes a field zero, or empty.
    ///
    /// # Errors
    /// The record would be too long, or the list has a fixed count.
    pub(crate) fn put_zero(&mut self, place: Place) -> Result<(), ValueProblem> {
        match place.ty() {
            FieldType::Char(_) | FieldType::String | FieldType::Bytes => {
                return self.put_run(place, ByteRun::alone(&[]));
            }
            FieldType::Decimal { bytes: 16, .. } => self.put(place, [0; 16]),
            FieldType::List => {
                let outcome = self.begin_list(place.index()).and_then(|()| self.end_list());
                return outcome.map_err(|error| error.problem);
            }
            _ => self.put_integer(place, 0),
        }
        Ok(())
    }

    /// Where a field's bytes are in the buffer of the innermost open record.
    #[inline]
    pub(super) fn at(&self, place: Place) -> usize {
        self.base + place.cell.offset as usize
    }

    /// The innermost open record, and what is behind it.
    #[inline]
    fn record(&mut self) -> &mut [u8] {
        if self.target == 0 { &mut self.bytes } else { self.element() }
    }

    #[inline(never)]
    fn element(&mut self) -> &mut [u8] {
        let level = self.levels.get_mut(self.target.wrapping_sub(1));
        level.and_then(|level| level.bytes.get_mut(self.base..)).unwrap_or_default()
    }

    /// Notes that a field has a value.
    #[inline]
    pub(super) fn mark(&mut self, place: Place) {
        clear_null(self.record(), place.cell);
        self.note(place);
    }

    /// Notes that a field has a value, beside its own null bit.
    #[inline]
    fn note(&mut self, place: Place) {
        if place.is_noted {
            match place.cell.null_mask {
                0 => self.note_there(place.index()),
                _ => self.note_in_group(place.index(), place.cell.group),
            }
        }
    }

    #[inline]
    fn note_there(&mut self, field: usize) {
        if let Some(word) = self.missing.get_mut(field / 64) {
            *word &= !(1 << (field % 64));
        }
    }

    #[inline(never)]
    fn note_in_group(&mut self, field: usize, group: u16) {
        self.mark_groups(group);
        self.note_there(field);
    }
}

/// Stores a value's bytes.
#[inline]
pub(super) fn store<const N: usize>(record: &mut [u8], cell: Cell, value: [u8; N]) {
    let at = cell.offset as usize;
    if let Some(slot) = record.get_mut(at..at + N) {
        slot.copy_from_slice(&value);
    }
}

/// Stores an integer in an integer field that has room for it; false, and nothing done, for any other field or integer.
#[inline(always)]
pub(super) fn store_integer(record: &mut [u8], cell: Cell, value: i64) -> bool {
    // A conversion that fails gives a value that differs, whatever the type: one rule for all of them.
    match cell.ty {
        FieldType::I8 => store_if(record, cell, (value as i8).to_le_bytes(), i64::from(value as i8) == value),
        FieldType::I16 => store_if(record, cell, (value as i16).to_le_bytes(), i64::from(value as i16) == value),
        FieldType::I32 => store_if(record, cell, (value as i32).to_le_bytes(), i64::from(value as i32) == value),
        FieldType::I64 => store_if(record, cell, value.to_le_bytes(), true),
        FieldType::U8 => store_if(record, cell, (value as u8).to_le_bytes(), i64::from(value as u8) == value),
        FieldType::U16 => store_if(record, cell, (value as u16).to_le_bytes(), i64::from(value as u16) == value),
        FieldType::U32 => store_if(record, cell, (value as u32).to_le_bytes(), i64::from(value as u32) == value),
        FieldType::U64 => store_if(record, cell, value.to_le_bytes(), value >= 0),
        _ => false,
    }
}

/// Stores a value if it is the one that was given.
#[inline]
fn store_if<const N: usize>(record: &mut [u8], cell: Cell, value: [u8; N], is_same: bool) -> bool {
    if is_same {
        store(record, cell, value);
    }
    is_same
}

/// Stores the text of a `char[N]`, if it has room for it and can distinguish it from its padding.
#[inline]
pub(super) fn store_char(record: &mut [u8], cell: Cell, room: u16, text: &[u8]) -> bool {
    let (at, room) = (cell.offset as usize, usize::from(room));
    if text.len() > room || text.last() == Some(&0) {
        return false;
    }
    if let Some((head, padding)) = record.get_mut(at..at + room).and_then(|slot| slot.split_at_mut_checked(text.len()))
    {
        copy_short(head, text);
        if !padding.is_empty() {
            padding.fill(0);
        }
    }
    true
}

/// Appends a text or bytes to a record, if it has no other value there and room for this one.
#[inline]
pub(super) fn store_run(record: &mut Vec<u8>, cell: Cell, run: ByteRun<'_>) -> bool {
    if record.len() + run.bytes.len() > MAX_RECORD_BYTES - RECORD_ALIGN || slot(record, cell.offset as usize).1 > 0 {
        return false;
    }
    let slot = append(record, run);
    store(record, cell, slot);
    true
}

/// Appends a text or bytes; gives what a field says of their place.
#[inline]
fn append(bytes: &mut Vec<u8>, run: ByteRun<'_>) -> [u8; 8] {
    let (start, len) = (bytes.len(), run.bytes.len());
    match run.ahead.first_chunk::<BLOCK>() {
        Some(block) if len <= BLOCK => {
            bytes.extend_from_slice(block);
            bytes.truncate(start + len);
        }
        _ => bytes.extend_from_slice(run.bytes),
    }
    (start as u64 | (len as u64) << 32).to_le_bytes()
}

/// A field is not null. No branch: in a decoder's loop there is no foreseeing which field may be.
#[inline]
fn clear_null(record: &mut [u8], cell: Cell) {
    if let Some(byte) = record.get_mut(cell.null_byte as usize) {
        *byte &= !cell.null_mask;
    }
}

/// Copies what is mostly so short that a call would take longer; both have the same length.
#[inline]
fn copy_short(to: &mut [u8], from: &[u8]) {
    match (&mut *to, from) {
        ([], []) => {}
        ([a], [x]) => *a = *x,
        ([a, b], [x, y]) => (*a, *b) = (*x, *y),
        ([a, b, c], [x, y, z]) => (*a, *b, *c) = (*x, *y, *z),
        _ => to.copy_from_slice(from),
    }
}
