//! USING: columns of several streams that are one in what follows, and the conditions of the join.

use std::slice;

use crossdock_format::FieldType;
use sqlparser::ast;

use super::names::Table;
use super::{Binder, build, cast, common_type, compare};
use crate::error::{Position, QueryError};
use crate::expr::{CompareOp, Expr};
use crate::stateful::JoinKind;

/// A column that USING makes of several.
#[derive(Clone, Debug)]
struct MergedColumn {
    /// Their numbers. The first one gives the name, and stands for all of them.
    columns: Vec<usize>,
    /// Its value.
    expr: Expr,
}

/// The columns of FROM up to one of its joins.
#[derive(Clone, Debug)]
pub(crate) struct UsingColumns {
    merged: Vec<MergedColumn>,
    /// Those of `*`, in PostgreSQL's order: the ones of USING first, each once.
    order: Vec<usize>,
}

fn numbers(table: &Table<'_>) -> std::ops::Range<usize> {
    table.from..table.from + table.format.fields().len()
}

impl UsingColumns {
    /// The columns of the first stream.
    pub(crate) fn of(first: &Table<'_>) -> UsingColumns {
        UsingColumns { merged: Vec::new(), order: numbers(first).collect() }
    }

    /// With the last one of these streams, whose join has these columns in USING, and the conditions of that.
    ///
    /// # Errors
    /// A column that one of the sides does not have, or has twice, or that does not compare; with its place in the text.
    pub(crate) fn with_join(
        &self,
        tables: &[Table<'_>],
        names: &[ast::Ident],
        (kind, is_mirrored): (JoinKind, bool),
    ) -> Result<(UsingColumns, Vec<Expr>), QueryError> {
        let (mut all, mut conditions) = (self.clone(), Vec::with_capacity(names.len()));
        let Some((own, before)) = tables.split_last() else { return Ok((all, conditions)) };
        let left = Binder::new(before, None, false).with_using(self);
        let right = Binder::new(slice::from_ref(own), None, false);
        let (mut firsts, mut others) = (Vec::new(), Vec::new());
        for name in names {
            let (first, other) = (left.index_of(name)?, right.index_of(name)?);
            let (one, two) = (left.unqualified(first), right.field(other));
            let Some(ty) = common_type(one.ty, two.ty).filter(|ty| *ty != FieldType::List) else {
                let message =
                    format!("`{}` is {} on the left of the join and {} on its right", name.value, one.ty, two.ty);
                let error = QueryError::new(message, Position::of(name.span.start));
                return Err(error.hint("USING takes columns that can be compared; ON says how others are equal"));
            };
            conditions.push(compare(CompareOp::Eq, one.clone(), two.clone()));
            let expr = match kind {
                JoinKind::Full => build::coalesce(vec![cast(one, ty), cast(two, ty)], ty),
                _ => cast(if is_mirrored { two } else { one }, ty),
            };
            match all.merged.iter_mut().find(|merged| merged.columns.first() == Some(&first)) {
                Some(merged) => {
                    merged.columns.push(other);
                    merged.expr = expr;
                }
                None => all.merged.push(MergedColumn { columns: vec![first, other], expr }),
            }
            firsts.push(first);
            others.push(other);
        }
        let rest = self.order.iter().copied().filter(|index| !firsts.contains(index)).collect::<Vec<_>>();
        let own = numbers(own).filter(|index| !others.contains(index));
        all.order = firsts.iter().copied().chain(rest).chain(own).collect();
        Ok((all, conditions))
    }
}

impl<'a> Binder<'a> {
    /// The same binder, for columns where USING has made one of two.
    pub(crate) fn with_using(self, using: &'a UsingColumns) -> Binder<'a> {
        Binder { using: Some(using), ..self }
    }

    /// The columns of `*`.
    pub(super) fn ordered(&self) -> Option<&'a [usize]> {
        self.using.map(|using| using.order.as_slice())
    }

    /// The number of the column that stands for this one.
    pub(super) fn first_of(&self, index: usize) -> usize {
        let merged = self.using.and_then(|using| using.merged.iter().find(|merged| merged.columns.contains(&index)));
        merged.and_then(|merged| merged.columns.first()).map_or(index, |first| *first)
    }

    /// The value of a column that is named without its stream.
    pub(super) fn unqualified(&self, index: usize) -> Expr {
        let merged = self.using.and_then(|using| using.merged.iter().find(|of| of.columns.first() == Some(&index)));
        merged.map_or_else(|| self.field(index), |merged| merged.expr.clone())
    }
}
