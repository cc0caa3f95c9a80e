//! Rows of a join: the columns of a left row, then those of a right one.

use crossdock_format::convert::Moves;
use crossdock_format::{Field, FieldType, Format, Record, RecordBuilder};
use crossdock_query::EvalError;

use super::moment::refused;
use crate::kernel::{FieldPosition, is_null, slot_text};
use crate::project::{append, set_null};

/// Makes the rows in a buffer that is used again.
#[derive(Debug)]
pub(super) struct Pairs {
    sides: [Side; 2],
    blank: Box<[u8]>,
    row: Vec<u8>,
    /// Set where a column is no plain load or slot: then all are set by value.
    by_value: Option<Box<RecordBuilder>>,
}

#[derive(Debug)]
struct Side {
    format: Format,
    /// The columns of the side's rows that are in the row.
    columns: Vec<usize>,
    /// Those of the fixed part.
    moves: Moves,
    /// Those of the variable part.
    texts: Vec<(FieldPosition, FieldPosition)>,
    /// Where all of them are in the row.
    places: Vec<FieldPosition>,
}

impl Pairs {
    /// Rows of the format `rows`, from rows of two formats.
    ///
    /// # Errors
    /// In words: the columns do not fit.
    pub(super) fn of(formats: [&Format; 2], rows: &Format) -> Result<Pairs, String> {
        let all = formats.map(|format| (format, (0..format.fields().len()).collect()));
        Pairs::of_columns(&all, rows)
    }

    /// Rows of the format `rows`, from these columns of two formats.
    ///
    /// # Errors
    /// In words: the columns do not fit.
    pub(super) fn of_columns(sides: &[(&Format, Vec<usize>); 2], rows: &Format) -> Result<Pairs, String> {
        let left = sides[0].1.len();
        let all = || sides.iter().flat_map(|(format, columns)| columns.iter().map(|of| format.fields().get(*of)));
        if left + sides[1].1.len() != rows.fields().len() || all().any(|field| field.is_none()) {
            return Err("the rows of a join have the columns of both inputs".to_owned());
        }
        let plain = |from: &Field, to: &Field| {
            from.is_plain()
                && to.is_plain()
                && (from.ty, from.size, &from.detail) == (to.ty, to.size, &to.detail)
                && (to.nullable || !from.nullable)
                && from.ty != FieldType::List
        };
        let by_value = !all().flatten().zip(rows.fields()).all(|(from, to)| plain(from, to)) || rows.is_foreign();
        let side = |(format, read): &(&Format, Vec<usize>), first: usize| {
            let from = || read.iter().filter_map(|index| Some((*index, format.fields().get(*index)?)));
            let columns = || from().zip(rows.fields().iter().skip(first));
            let fixed = columns().enumerate().filter(|(_, ((_, from), _))| !from.ty.is_variable() && !by_value);
            let moves = Moves::new(format, rows, fixed.map(|(place, ((column, _), _))| (column, first + place)));
            let texts = columns().filter(|((_, from), _)| from.ty.is_variable());
            let texts = texts.map(|((_, from), to)| (FieldPosition::of(from), FieldPosition::of(to))).collect();
            let places = columns().map(|(_, to)| FieldPosition::of(to)).collect();
            Side { format: Format::clone(format), columns: read.clone(), moves, texts, places }
        };
        Ok(Pairs {
            sides: [side(&sides[0], 0), side(&sides[1], left)],
            blank: vec![0; rows.fixed_bytes()].into(),
            row: Vec::new(),
            by_value: by_value.then(|| Box::new(RecordBuilder::new(rows))),
        })
    }

    /// The row of two rows; nulls in place of one that is not there.
    #[inline]
    pub(super) fn make(&mut self, rows: [Option<&[u8]>; 2]) -> Result<&[u8], EvalError> {
        let Pairs { sides, blank, row, by_value } = self;
        if let Some(builder) = by_value {
            return set_all(sides, builder, rows);
        }
        row.clear();
        row.extend_from_slice(blank);
        for (side, of_side) in sides.iter().zip(rows) {
            match of_side {
                Some(bytes) => side.moves.run(bytes, row),
                None => side.places.iter().for_each(|place| set_null(row, *place)),
            }
        }
        for (side, of_side) in sides.iter().zip(rows) {
            let Some(bytes) = of_side else { continue };
            for &(from, to) in &side.texts {
                if is_null(bytes, from) {
                    set_null(row, to);
                } else {
                    append(row, to, slot_text(bytes, from.at))?;
                }
            }
        }
        let length = row.len().next_multiple_of(8);
        row.resize(length, 0);
        if let Some(word) = row.first_chunk_mut() {
            *word = (length as u32).to_le_bytes();
        }
        Ok(row)
    }
}

fn set_all<'r>(
    sides: &[Side; 2],
    builder: &'r mut RecordBuilder,
    rows: [Option<&[u8]>; 2],
) -> Result<&'r [u8], EvalError> {
    builder.clear();
    let mut first = 0;
    for (side, row) in sides.iter().zip(rows) {
        let record = row.map(|row| Record::assume_checked(&side.format, row));
        for (place, column) in side.columns.iter().enumerate() {
            let set = match &record {
                Some(record) => builder.set(first + place, record.get(*column)),
                None => builder.set_null(first + place),
            };
            set.map_err(|error| refused(&error))?;
        }
        first += side.places.len();
    }
    builder.finish().map_err(|_| EvalError::RecordTooLong)
}
