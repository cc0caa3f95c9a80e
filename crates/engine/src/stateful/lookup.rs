//! Joins with reference tables: a row that comes, with the rows of a table that have its key.

use crossdock_format::{Format, Record};
use crossdock_query::{Interpreter, JoinKind, Program, TableLookup};

use super::join::holds;
use super::keys::KeyColumns;
use super::moment::{Change, Emit};
use super::pair::Pairs;
use super::table::TableRows;

/// The work of such a join. It keeps nothing but what it makes rows with: the table's rows are those of the handler.
#[derive(Debug)]
pub(super) struct Lookup {
    is_left: bool,
    format: Format,
    columns: KeyColumns,
    pairs: Pairs,
    condition: Option<Program>,
    interpreter: Interpreter,
    key: Vec<u8>,
}

impl Lookup {
    /// The join of rows of a format.
    ///
    /// # Errors
    /// In words: the columns do not fit.
    pub(super) fn of(lookup: &TableLookup, input: &Format, rows: &Format) -> Result<Lookup, String> {
        let of_input = (input, (0..input.fields().len()).collect());
        Ok(Lookup {
            is_left: lookup.kind != JoinKind::Inner,
            format: input.clone(),
            columns: KeyColumns::of(input, &lookup.keys, true)?,
            pairs: Pairs::of_columns(&[of_input, (&lookup.format, lookup.columns.clone())], rows)?,
            condition: lookup.condition.clone(),
            interpreter: Interpreter::new(),
            key: Vec::new(),
        })
    }

    /// Takes a row.
    #[inline]
    pub(super) fn take(&mut self, bytes: &[u8], table: Option<&TableRows>, emit: Emit<'_>) {
        let Lookup { is_left, format, columns, pairs, condition, interpreter, key } = self;
        let has_null = columns.read(&Record::assume_checked(format, bytes), key);
        let mut is_matched = false;
        if let Some(table) = table.filter(|_| !has_null) {
            for row in table.of_key(key) {
                let pair = pairs.make([Some(bytes), Some(row)]);
                match pair.and_then(|pair| Ok(holds(condition.as_ref(), pair, interpreter)?.then_some(pair))) {
                    Ok(Some(pair)) => {
                        emit(Ok(Change::row(pair)));
                        is_matched = true;
                    }
                    Ok(None) => {}
                    Err(error) => emit(Err(error)),
                }
            }
        }
        if *is_left && !is_matched {
            emit(pairs.make([Some(bytes), None]).map(Change::row));
        }
    }
}
