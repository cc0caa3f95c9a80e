//! USING: the columns of FROM behind each of its joins.

use super::read::Joined;
use crate::bind::{Table, UsingColumns};
use crate::error::QueryError;
use crate::expr::Expr;

/// The columns of FROM up to a join, and the conditions of its USING.
pub(super) struct UsingStep {
    pub(super) columns: UsingColumns,
    pub(super) conditions: Vec<Expr>,
}

/// One step for each stream of FROM; the first has no join.
pub(super) fn steps(from: &[Joined], tables: &[Table<'_>]) -> Result<Vec<UsingStep>, QueryError> {
    let mut steps: Vec<UsingStep> = Vec::with_capacity(from.len());
    for (number, (joined, table)) in from.iter().zip(tables).enumerate() {
        let step = match (steps.last(), &joined.join) {
            (Some(before), Some(join)) => {
                let seen = tables.get(..=number).unwrap_or_default();
                let kind = (join.kind, join.is_mirrored);
                let (columns, conditions) = before.columns.with_join(seen, &join.using, kind)?;
                UsingStep { columns, conditions }
            }
            _ => UsingStep { columns: UsingColumns::of(table), conditions: Vec::new() },
        };
        steps.push(step);
    }
    Ok(steps)
}
