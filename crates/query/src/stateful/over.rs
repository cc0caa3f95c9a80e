//! OVER: the stage that makes values over the rows before, behind the columns that pass.

use crossdock_format::{Field, FieldSpec, Format};

use super::program::{OverFunction, OverRows, OverValue};
use super::rows::{self, Flow, Row};
use crate::bind::{BoundOver, BoundOverFunction, Groups, ROW_NUMBER, WINDOW_FIELDS};
use crate::error::{Position, QueryError};
use crate::expr::Expr;
use crate::program::Output;

/// The calls with OVER of a select list.
pub(super) struct OverCalls {
    calls: Vec<BoundOver>,
    /// The number of columns of FROM.
    base: usize,
    /// QUALIFY, over the columns of FROM and the calls.
    pub(super) qualify: Vec<Expr>,
    at: Option<Position>,
}

impl OverCalls {
    /// Those that were met, if there are some. `is_grouped` where the rows of the select list are not those of FROM.
    ///
    /// # Errors
    /// There are some in a query with groups.
    pub(super) fn of(
        groups: Option<&Groups>,
        is_grouped: bool,
        qualify: Vec<Expr>,
    ) -> Result<Option<OverCalls>, QueryError> {
        let Some(groups) = groups.filter(|groups| !groups.over.is_empty()) else { return Ok(None) };
        if is_grouped {
            let message = "OVER beside groups, aggregates or DISTINCT is not possible";
            return Err(QueryError::new(message, groups.over_at).hint(
                "put the groups in a query: SELECT k, n, lag(n) OVER (PARTITION BY k) FROM (SELECT … GROUP BY …) q",
            ));
        }
        Ok(Some(OverCalls { calls: groups.over.clone(), base: groups.base, qualify, at: groups.over_at }))
    }

    /// How many rows before its own the longest frame begins, if all calls are of frames that begin with a row at a distance: those of
    /// rows that are replaced.
    pub(super) fn reach(&self) -> Option<u32> {
        let from = |call: &BoundOver| match &call.function {
            BoundOverFunction::Aggregate(_, frame) | BoundOverFunction::First { frame, .. } => frame.from,
            BoundOverFunction::Lag { from, .. } => *from,
        };
        self.calls.iter().map(from).try_fold(0, |most, from| Some(most.max(from?)))
    }

    /// Refuses aggregates of rows of groups that change, where each would count beside the one that has taken its place.
    pub(super) fn check_replaced(&self) -> Result<(), QueryError> {
        let counts =
            |call: &&BoundOver| matches!(call.function, BoundOverFunction::Aggregate(..)) && call.name != ROW_NUMBER;
        let Some(call) = self.calls.iter().find(counts) else { return Ok(()) };
        let message =
            format!("{} with OVER of groups that change would count a group once for each of its changes", call.name);
        Err(QueryError::new(message, self.at).hint(
            "groups are corrected in frames that begin at a distance (ROWS 9 PRECEDING), where all calls have one \
             PARTITION BY and FROM is the query with the groups alone; lag and row_number take each row that a group gives as one of its own",
        ))
    }

    /// The columns of FROM that a select list with these calls, and QUALIFY, read themselves.
    fn read_by(&self, columns: &[Output]) -> Vec<bool> {
        let mut read = vec![false; self.base + WINDOW_FIELDS + self.calls.len()];
        let exprs = columns.iter().map(|column| &column.expr).chain(&self.qualify);
        exprs.for_each(|expr| expr.mark_fields(&mut read));
        read.truncate(self.base);
        read
    }

    /// Marks the columns of FROM that such a list and the calls read.
    pub(super) fn mark(&self, columns: &[Output], wanted: &mut [bool]) {
        wanted.iter_mut().zip(self.read_by(columns)).for_each(|(wanted, read)| *wanted |= read);
        self.calls.iter().flat_map(exprs).for_each(|expr| expr.mark_fields(wanted));
    }
}

/// The expressions over FROM that a call needs.
fn exprs(call: &BoundOver) -> Vec<&Expr> {
    let mut exprs: Vec<&Expr> = call.partition.iter().collect();
    match &call.function {
        BoundOverFunction::Aggregate(aggregate, _) => exprs.extend(aggregate.arguments.iter().chain(&aggregate.filter)),
        BoundOverFunction::Lag { value, default, .. } => exprs.extend(std::iter::once(value).chain(default)),
        BoundOverFunction::First { value, .. } => exprs.push(value),
    }
    exprs
}

/// A stage for calls with OVER: the row that it reads, and its work.
pub(super) struct OverStage {
    pub(super) row: Row,
    pub(super) rows: OverRows,
    /// For each column of FROM its place in the row, if the select list reads it.
    pub(super) places: Vec<Option<usize>>,
}

impl OverCalls {
    /// The stage: the columns of FROM that the select list reads pass.
    pub(super) fn stage(&self, flow: &Flow, columns: &[Output]) -> Result<OverStage, QueryError> {
        let mut row = Row::default();
        let mut places: Vec<Option<usize>> = Vec::with_capacity(self.base);
        for (column, read) in flow.columns.iter().zip(self.read_by(columns)) {
            let column = column.clone().filter(|_| read);
            places.push(column.map(|column| row.add_unnamed("column", column, &flow.input)));
        }
        let mut rows = OverRows {
            passed: row.outputs.len(),
            partitions: Vec::new(),
            values: Vec::new(),
            identity: None,
            reach: 0,
            gives_changes: false,
        };
        for call in &self.calls {
            let value = value(call, &mut rows.partitions, &mut row, flow)?;
            rows.values.push(value);
        }
        Ok(OverStage { row, rows, places })
    }

    /// The columns of the stage's rows: those of its input that pass, and the calls' results.
    pub(super) fn specs(&self, row: &Format, work: &OverRows) -> Vec<FieldSpec> {
        let mut specs: Vec<FieldSpec> = row.fields().iter().take(work.passed).map(Field::spec).collect();
        for (call, value) in self.calls.iter().zip(&work.values) {
            let ty = match &value.function {
                OverFunction::Aggregate(aggregate, _) => rows::type_of(aggregate, row),
                OverFunction::Lag { .. } | OverFunction::First { .. } => call.ty.into(),
            };
            specs.push(FieldSpec { nullable: call.nullable, ..FieldSpec::new(call.name.clone(), ty) });
        }
        let names = rows::unique(specs.iter().map(|spec| spec.name.as_str()));
        specs.iter_mut().zip(names).for_each(|(spec, name)| spec.name = name);
        specs
    }
}

/// The columns that a select list with calls reads, over the rows of their stage.
pub(super) fn columns_over(places: Vec<Option<usize>>, passed: usize, rows: &Format) -> Vec<Option<Expr>> {
    let places = places.into_iter().map(|place| place.map(|place| rows::field(rows, place)));
    let results = (passed..rows.fields().len()).map(|place| Some(rows::field(rows, place)));
    places.chain([const { None }; WINDOW_FIELDS]).chain(results).collect()
}

/// A call over the columns of the row that the stage reads.
fn value(
    call: &BoundOver,
    partitions: &mut Vec<Vec<usize>>,
    row: &mut Row,
    flow: &Flow,
) -> Result<OverValue, QueryError> {
    let mut keys = Vec::with_capacity(call.partition.len());
    for key in &call.partition {
        keys.push(row.add_unnamed("key", flow.placed(key)?, &flow.input));
    }
    let partition = partitions.iter().position(|known| *known == keys).unwrap_or_else(|| {
        partitions.push(keys);
        partitions.len() - 1
    });
    let mut column = |name: &str, expr: &Expr| -> Result<usize, QueryError> {
        Ok(row.add_unnamed(name, flow.placed(expr)?, &flow.input))
    };
    let function = match &call.function {
        BoundOverFunction::Lag { value, rows, default, .. } => {
            let default = default.as_ref().map(|default| column("default", default)).transpose()?;
            OverFunction::Lag { column: column(&call.name, value)?, rows: *rows, default }
        }
        BoundOverFunction::First { value, frame } => {
            OverFunction::First { column: column(&call.name, value)?, frame: *frame }
        }
        BoundOverFunction::Aggregate(aggregate, frame) => {
            OverFunction::Aggregate(row.add_aggregate(aggregate, flow)?, *frame)
        }
    };
    Ok(OverValue { partition, function })
}
