//! OVER: the stage that makes values over the rows before, behind the columns that pass.

use crossdock_format::{Field, FieldSpec};

use super::plan::Planner;
use super::program::{Operator, OverFunction, OverRows, OverValue, Port, StageInput};
use super::rows::{self, Flow, Row};
use crate::bind::{BoundOver, BoundOverFunction, Groups, WINDOW_FIELDS};
use crate::error::QueryError;
use crate::expr::Expr;
use crate::program::Output;

/// The calls with OVER of a select list.
pub(super) struct OverCalls {
    calls: Vec<BoundOver>,
    /// The number of columns of FROM.
    base: usize,
}

impl OverCalls {
    /// Those that were met, if there are some. `is_grouped` where the rows of the select list are not those of FROM.
    ///
    /// # Errors
    /// There are some in a query with groups.
    pub(super) fn of(groups: Option<&Groups>, is_grouped: bool) -> Result<Option<OverCalls>, QueryError> {
        let Some(groups) = groups.filter(|groups| !groups.over.is_empty()) else { return Ok(None) };
        if is_grouped {
            let message = "OVER beside groups, aggregates or DISTINCT is not possible";
            return Err(QueryError::new(message, groups.over_at).hint(
                "put the groups in a query: SELECT k, n, lag(n) OVER (PARTITION BY k) FROM (SELECT … GROUP BY …) q",
            ));
        }
        Ok(Some(OverCalls { calls: groups.over.clone(), base: groups.base }))
    }

    /// The columns of FROM that a select list with these calls reads itself.
    fn read_by(&self, columns: &[Output]) -> Vec<bool> {
        let mut read = vec![false; self.base + WINDOW_FIELDS + self.calls.len()];
        columns.iter().for_each(|column| column.expr.mark_fields(&mut read));
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

impl Planner<'_> {
    /// A stage for the calls with OVER; its rows have the columns of FROM that the select list reads, and the calls' results.
    pub(super) fn over(&mut self, flow: &Flow, over: &OverCalls, columns: &[Output]) -> Result<Flow, QueryError> {
        let port = Port { stage: self.stages.len(), input: 0 };
        let mut row = Row::default();
        let mut places: Vec<Option<usize>> = Vec::with_capacity(over.base);
        for (column, read) in flow.columns.iter().zip(over.read_by(columns)) {
            let column = column.clone().filter(|_| read);
            places.push(column.map(|column| row.add_unnamed("column", column, &flow.input)));
        }
        let mut stage = OverRows { passed: row.outputs.len(), partitions: Vec::new(), values: Vec::new() };
        for call in &over.calls {
            let value = value(call, &mut stage.partitions, &mut row, flow)?;
            stage.values.push(value);
        }
        let row = self.connect(flow, row, port)?;
        let mut specs: Vec<FieldSpec> = row.fields().iter().take(stage.passed).map(Field::spec).collect();
        specs.extend(
            over.calls
                .iter()
                .map(|call| FieldSpec { nullable: call.nullable, ..FieldSpec::new(call.name.clone(), call.ty) }),
        );
        let names = rows::unique(specs.iter().map(|spec| spec.name.as_str()));
        specs.iter_mut().zip(names).for_each(|(spec, name)| spec.name = name);
        let rows = rows::format_of(specs)?;
        let mut made: Vec<Option<Expr>> =
            places.into_iter().map(|place| place.map(|place| rows::field(&rows, place))).collect();
        made.extend([const { None }; WINDOW_FIELDS]);
        made.extend((stage.passed..rows.fields().len()).map(|place| Some(rows::field(&rows, place))));
        let input = StageInput { row, time: None, lateness_ns: 0, derived: None };
        Ok(Flow { columns: made, ..self.stage(vec![input], Operator::Over(stage), rows) })
    }
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
        BoundOverFunction::Lag { value, rows, default } => {
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
