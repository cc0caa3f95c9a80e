//! Reference tables in a query: which names mean them, and where they may stand.

use std::sync::Arc;

use crossdock_format::Format;

use super::program::JoinKind;
use super::read::{Joined, Rows, Tree, trees};
use crate::error::{Position, QueryError};
use crate::parse::{Named, Select};

/// A reference table as queries see it. Its rows are looked up by its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReferenceTable {
    /// Its name, which no stream has.
    pub name: String,
    /// The format of its rows, in the natural layout.
    pub format: Format,
    /// The columns of its key, by their indices in the format. Several rows may have the same one.
    pub key: Vec<usize>,
}

/// A reference table as a query names it.
#[derive(Clone, Debug)]
pub(super) struct NamedTable {
    pub(super) written: String,
    pub(super) is_quoted: bool,
    pub(super) table: ReferenceTable,
}

impl ReferenceTable {
    /// The names of the columns of its key.
    pub fn key_names(&self) -> impl Iterator<Item = &str> {
        self.key.iter().filter_map(|index| self.format.fields().get(*index)).map(|field| field.name.as_str())
    }

    /// Whether a stream's name could be taken for its own.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.name.to_lowercase() == name.to_lowercase()
    }

    /// The error for a place in FROM where the table has no rows to begin with.
    fn misplaced(&self, message: String, at: Option<Position>) -> QueryError {
        let key: Vec<String> = self.key_names().map(|key| format!("s.column = t.{key}")).collect();
        let hint = format!(
            "a reference table stands on the right of a join with a stream: FROM stream s [LEFT] JOIN {} t ON {}",
            self.name,
            key.join(" AND ")
        );
        QueryError::new(message, at).hint(hint)
    }

    /// Checks the place in FROM where it stands.
    fn check_place(&self, joined: &Joined, (is_first, is_alone): (bool, bool)) -> Result<(), QueryError> {
        let name = &self.name;
        let message = match &joined.join {
            _ if is_alone => format!("`{name}` is a reference table, and no stream: it has no records that come"),
            _ if is_first => format!("the reference table `{name}` stands on the left of a join"),
            Some(join) if join.is_mirrored || join.kind == JoinKind::Full => {
                let word = if join.is_mirrored { "RIGHT" } else { "FULL" };
                format!("{word} JOIN with the reference table `{name}` is not possible")
            }
            Some(join) if join.is_asof => format!("ASOF JOIN with the reference table `{name}` is not possible"),
            _ => return Ok(()),
        };
        Err(self.misplaced(message, joined.at))
    }
}

/// The table that a name in a query means.
pub(super) fn meant<'t>(tables: &'t [NamedTable], rows: &Rows) -> Option<&'t ReferenceTable> {
    let Rows::Stream { name, is_quoted } = rows else { return None };
    tables.iter().find(|known| known.written == *name && known.is_quoted == *is_quoted).map(|known| &known.table)
}

/// The table among these that a name means, by the rule of [`Select::find_stream`].
pub(super) fn found<'t>(
    named: &Named<'_>,
    tables: &[&'t ReferenceTable],
) -> Result<Option<&'t ReferenceTable>, QueryError> {
    let spelt = named.found(tables.iter().map(|table| table.name.as_str()))?.unwrap_or(named.name);
    Ok(tables.iter().find(|table| table.name == spelt).copied())
}

/// Checks the places where a query names tables.
pub(super) fn check_places(tree: &Arc<Tree>, tables: &[NamedTable]) -> Result<(), QueryError> {
    for tree in trees(tree) {
        for select in &tree.selects {
            for (number, joined) in select.from.iter().enumerate() {
                if let Some(table) = meant(tables, &joined.rows) {
                    table.check_place(joined, (number == 0, select.from.len() == 1))?;
                }
            }
        }
    }
    Ok(())
}

impl Select {
    /// Checks that FROM does not name one of these reference tables, which has no records of its own that come.
    ///
    /// # Errors
    /// It does; with its place in the text, and where a table may stand.
    pub fn check_no_table<'t>(&self, tables: impl IntoIterator<Item = &'t ReferenceTable>) -> Result<(), QueryError> {
        let tables: Vec<&ReferenceTable> = tables.into_iter().collect();
        let named = self.named();
        let table = found(&named, &tables).map_err(|error| error.over(self.sql()))?;
        table.map_or(Ok(()), |table| {
            let message = format!("`{}` is a reference table, and no stream: it has no records that come", table.name);
            Err(table.misplaced(message, named.at).over(self.sql()))
        })
    }
}
