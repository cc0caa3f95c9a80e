//! Joins with reference tables: a row that comes, with the rows of a table that have its key.

use crossdock_format::{Format, Record};
use crossdock_query::{JoinKind, TableLookup};

use super::keys::KeyColumns;
use super::moment::Emit;
use super::pair::{PairCondition, Sides, emit_alone};
use super::table::TableRows;

/// The work of such a join. It keeps no rows: the table's are those of the handler.
#[derive(Debug)]
pub(super) struct Lookup {
    is_left: bool,
    format: Format,
    columns: KeyColumns,
    condition: PairCondition,
    key: Vec<u8>,
}

impl Lookup {
    /// The join of rows of a format.
    ///
    /// # Errors
    /// In words: the columns do not fit.
    pub(super) fn of(lookup: &TableLookup, input: &Format, rows: &Format) -> Result<Lookup, String> {
        let sides = Sides::new([input, &lookup.format], lookup.columns.clone(), rows)?;
        Ok(Lookup {
            is_left: lookup.kind != JoinKind::Inner,
            format: input.clone(),
            columns: KeyColumns::of(input, &lookup.keys, true)?,
            condition: PairCondition::of(lookup.condition.as_ref(), &sides),
            key: Vec::new(),
        })
    }

    /// Takes a row.
    #[inline]
    pub(super) fn take(&mut self, bytes: &[u8], table: Option<&TableRows>, emit: Emit<'_>) {
        let Lookup { is_left, format, columns, condition, key } = self;
        let has_null = columns.read(&Record::assume_checked(format, bytes), key);
        let mut is_matched = false;
        if let Some(table) = table.filter(|_| !has_null) {
            for row in table.of_key(key) {
                is_matched |= condition.emit([Some(bytes), Some(row)], true, emit);
            }
        }
        if *is_left && !is_matched {
            emit_alone(0, bytes, emit);
        }
    }
}
