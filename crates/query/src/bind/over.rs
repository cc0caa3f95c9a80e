//! Calls with OVER: their window, and the columns that their results will be.

use crossdock_format::FieldType;
use sqlparser::ast;

use super::call::plain_arguments;
use super::names::place;
use super::{Binder, BoundAggregate, Literal, not_possible};
use crate::error::{Position, QueryError};
use crate::expr::Expr;
use crate::parse::NamedWindow;
use crate::stateful::aggregates::AggregateEntry;
use crate::stateful::program::{AggregateFunction, MAX_ROWS_BEFORE, RowFrame};

/// The function that numbers the rows of a partition.
pub(crate) const ROW_NUMBER: &str = "row_number";

/// The functions that are called with OVER only, and how.
const FUNCTIONS: [(&str, &str); 4] = [
    ("lag", "lag(column [, rows [, value in place of a missing row]]) OVER (PARTITION BY key)"),
    (ROW_NUMBER, "row_number() OVER (PARTITION BY key)"),
    ("first_value", "first_value(column) OVER (PARTITION BY key ROWS 9 PRECEDING)"),
    ("last_value", "last_value(column) OVER (PARTITION BY key ROWS 9 PRECEDING)"),
];

/// The frames that there are.
const FRAMES: &str = "ROWS 9 PRECEDING, ROWS BETWEEN 9 PRECEDING AND CURRENT ROW, or ROWS UNBOUNDED PRECEDING";

/// A call with OVER, over expressions of the input.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct BoundOver {
    pub(crate) name: String,
    pub(crate) partition: Vec<Expr>,
    pub(crate) function: BoundOverFunction,
    pub(crate) ty: FieldType,
    pub(crate) nullable: bool,
}

/// The function of such a call, with its arguments.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum BoundOverFunction {
    Aggregate(BoundAggregate, RowFrame),
    /// `from` is the first row of the frame of `last_value`.
    Lag {
        value: Expr,
        rows: u32,
        default: Option<Expr>,
        from: Option<u32>,
    },
    First {
        value: Expr,
        frame: RowFrame,
    },
}

/// How a function is called that needs OVER.
pub(super) fn form_of(name: &str) -> Option<&'static str> {
    FUNCTIONS.iter().find(|(known, _)| *known == name).map(|(_, form)| *form)
}

impl<'a> Binder<'a> {
    /// The same binder, which knows the windows of the clause WINDOW.
    pub(crate) fn with_windows(self, windows: &'a [NamedWindow]) -> Binder<'a> {
        Binder { windows, ..self }
    }

    /// A call with OVER; `None` if it has none, or if the query keeps no state.
    pub(super) fn over(
        &mut self,
        source: &'a ast::Expr,
        call: &'a ast::Function,
        name: &str,
    ) -> Result<Option<Expr>, QueryError> {
        let Some(over) = &call.over else { return Ok(None) };
        let at = place(source);
        let Some(groups) = &mut self.groups else {
            let Some(clause) = self.refuses_aggregates_in else { return Ok(None) };
            let error = QueryError::new(format!("OVER is not possible in {clause}"), at);
            return Err(error.hint(
                "a query around this one has conditions on its columns: SELECT … FROM (SELECT …, lag(x) OVER (…) AS y FROM …) q WHERE y …",
            ));
        };
        if groups.is_inside {
            let error =
                QueryError::new("a call with OVER within an aggregate or another such call is not possible", at);
            return Err(error.hint("put the inner one in a query: FROM (SELECT …, lag(x) OVER (…) AS y FROM …) q"));
        }
        groups.is_inside = true;
        let bound = self.over_call(source, call, over, name);
        let Some(groups) = &mut self.groups else { return Ok(None) };
        groups.is_inside = false;
        bound.map(|call| Some(groups.add_over(call, at)))
    }

    fn over_call(
        &mut self,
        source: &'a ast::Expr,
        call: &'a ast::Function,
        over: &'a ast::WindowType,
        name: &str,
    ) -> Result<BoundOver, QueryError> {
        let spec = self.window_of(over)?;
        if let Some(first) = spec.order_by.first() {
            let message = "ORDER BY in OVER is not possible: rows count in the order in which they come";
            return Err(QueryError::new(message, place(&first.expr))
                .hint("leave it out: OVER (PARTITION BY key ROWS 9 PRECEDING)"));
        }
        let mut partition = Vec::with_capacity(spec.partition_by.len());
        for key in &spec.partition_by {
            let mut bound = self.bind(key)?;
            self.settle(&mut bound);
            partition.push(if self.null_for_errors { bound.expr.or_null() } else { bound.expr });
        }
        let (function, ty, nullable) = match form_of(name) {
            Some(form) => self.over_function(source, call, (name, form), spec)?,
            None => self.over_aggregate(source, call, name, spec)?,
        };
        Ok(BoundOver { name: name.to_owned(), partition, function, ty, nullable })
    }

    /// The window of a call: its own, or one of the clause WINDOW.
    fn window_of(&self, over: &'a ast::WindowType) -> Result<&'a ast::WindowSpec, QueryError> {
        let name = match over {
            ast::WindowType::NamedWindow(name) => name,
            ast::WindowType::WindowSpec(spec) => match &spec.window_name {
                None => return Ok(spec),
                Some(name) => {
                    let message = "a window that changes another is not possible";
                    return Err(QueryError::new(message, Position::of(name.span.start))
                        .hint("OVER name has the window of the clause WINDOW as it stands there"));
                }
            },
        };
        let found = self.windows.iter().find(|window| window.is_called(name));
        found.map(|window| &window.spec).ok_or_else(|| {
            let known: Vec<&str> = self.windows.iter().map(|window| window.name.text.as_str()).collect();
            let error = QueryError::new(format!("there is no window `{}`", name.value), Position::of(name.span.start));
            match known.is_empty() {
                true => {
                    error.hint(format!("WINDOW {} AS (PARTITION BY key ROWS 9 PRECEDING), behind WHERE", name.value))
                }
                false => error.hint(format!("known: {}", known.join(", "))),
            }
        })
    }

    fn over_aggregate(
        &mut self,
        source: &'a ast::Expr,
        call: &'a ast::Function,
        name: &str,
        spec: &'a ast::WindowSpec,
    ) -> Result<(BoundOverFunction, FieldType, bool), QueryError> {
        if AggregateEntry::named(name).next().is_none() {
            let known: Vec<&str> = FUNCTIONS.iter().map(|(known, _)| *known).collect();
            let message = match name {
                "lead" => "`lead` is not possible: it is of rows that are yet to come".to_owned(),
                _ => format!("`{name}` is not called with OVER"),
            };
            let error = QueryError::new(message, place(source));
            return Err(error.hint(format!("possible are aggregates, {}", known.join(", "))));
        }
        let aggregate = self.aggregate_call(source, call, name)?;
        if aggregate.distinct {
            return Err(QueryError::new("DISTINCT is not possible in a call with OVER", place(source)));
        }
        let frame = frame(source, spec, name)?;
        if aggregate.function == AggregateFunction::StringAgg && frame.from.is_none() {
            let message = "texts of all rows before would be kept indefinitely";
            return Err(QueryError::new(message, place(source)).hint("ROWS 9 PRECEDING bounds them"));
        }
        let (ty, nullable) = (aggregate.ty, aggregate.nullable);
        Ok((BoundOverFunction::Aggregate(aggregate, frame), ty, nullable))
    }

    fn over_function(
        &mut self,
        source: &'a ast::Expr,
        call: &'a ast::Function,
        (name, form): (&str, &'static str),
        spec: &'a ast::WindowSpec,
    ) -> Result<(BoundOverFunction, FieldType, bool), QueryError> {
        let arguments = plain_arguments(call);
        let arguments = arguments.ok_or_else(|| not_possible("this form of call", source).hint(form))?;
        match (name, &arguments[..]) {
            (ROW_NUMBER, []) => {
                let aggregate = BoundAggregate::of_rows();
                let ty = aggregate.ty;
                Ok((BoundOverFunction::Aggregate(aggregate, RowFrame { from: None, until: 0 }), ty, false))
            }
            ("lag", [value, rest @ ..]) if rest.len() <= 2 => self.lag(value, rest, form),
            ("first_value" | "last_value", [value]) => {
                let frame = frame(source, spec, name)?;
                let mut bound = self.bind(value)?;
                self.settle(&mut bound);
                let value = if self.null_for_errors { bound.expr.or_null() } else { bound.expr };
                let (ty, nullable) = (value.ty, value.nullable || frame.until > 0);
                let function = match name {
                    "first_value" => BoundOverFunction::First { value, frame },
                    _ => BoundOverFunction::Lag { value, rows: frame.until, default: None, from: frame.from },
                };
                Ok((function, ty, nullable))
            }
            (_, arguments) => {
                let message = format!("`{name}` does not take {} arguments", arguments.len());
                Err(QueryError::new(message, place(source)).hint(form))
            }
        }
    }

    /// `lag(value, rows, default)`.
    fn lag(
        &mut self,
        value: &'a ast::Expr,
        rest: &[&'a ast::Expr],
        form: &'static str,
    ) -> Result<(BoundOverFunction, FieldType, bool), QueryError> {
        let rows = rest.first().map_or(Ok(1), |rows| rows_before(rows).map_err(|error| error.hint(form)))?;
        let mut all = vec![self.bind(value)?];
        if let Some(default) = rest.get(1) {
            all.push(self.bind(default)?);
        }
        let ty = self.unify("lag", &mut all)?;
        let has_default = all.get(1).is_some_and(|default| default.literal != Literal::Null);
        let nullable = rows > 0 && !has_default || all.iter().any(|bound| bound.expr.nullable);
        let mut exprs =
            all.into_iter().map(|bound| if self.null_for_errors { bound.expr.or_null() } else { bound.expr });
        let value = exprs.next().unwrap_or_else(|| Expr::constant(crate::expr::Constant::Null, ty));
        let default = exprs.next().filter(|_| has_default);
        let nullable = nullable || value.nullable || default.as_ref().is_some_and(|default| default.nullable);
        Ok((BoundOverFunction::Lag { value, rows, default, from: None }, ty, nullable))
    }
}

/// The frame of a window.
fn frame(source: &ast::Expr, spec: &ast::WindowSpec, name: &str) -> Result<RowFrame, QueryError> {
    let Some(frame) = &spec.window_frame else {
        let message = format!("{name} with OVER needs a frame, which says how many of the rows before count");
        return Err(QueryError::new(message, place(source)).hint(FRAMES));
    };
    if frame.units != ast::WindowFrameUnits::Rows {
        let message = format!("a frame of {} is not possible: rows are counted", frame.units);
        return Err(QueryError::new(message, place(source)).hint(FRAMES));
    }
    let from = distance(source, &frame.start_bound)?;
    let until = frame.end_bound.as_ref().map_or(Ok(Some(0)), |bound| distance(source, bound))?;
    match until {
        Some(until) if from.is_none_or(|from| from >= until) => Ok(RowFrame { from, until }),
        _ => Err(QueryError::new("the frame ends before it begins", place(source)).hint(FRAMES)),
    }
}

/// How many rows before the present one a bound of a frame is; `None` for all of them.
fn distance(source: &ast::Expr, bound: &ast::WindowFrameBound) -> Result<Option<u32>, QueryError> {
    match bound {
        ast::WindowFrameBound::CurrentRow => Ok(Some(0)),
        ast::WindowFrameBound::Preceding(None) => Ok(None),
        ast::WindowFrameBound::Preceding(Some(rows)) => rows_before(rows).map(Some).map_err(|error| error.hint(FRAMES)),
        ast::WindowFrameBound::Following(rows) => {
            let at = rows.as_ref().and_then(|rows| place(rows)).or_else(|| place(source));
            let message = "FOLLOWING is not possible: each row leaves when it comes, before those behind it";
            Err(QueryError::new(message, at).hint(FRAMES))
        }
    }
}

/// A number of rows.
fn rows_before(source: &ast::Expr) -> Result<u32, QueryError> {
    let number = match source {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Number(number, false) => number.parse().ok(),
            _ => None,
        },
        _ => None,
    };
    number.filter(|number| *number <= MAX_ROWS_BEFORE).ok_or_else(|| {
        let message = format!("the number of rows is a literal from 0 to {MAX_ROWS_BEFORE}");
        QueryError::new(message, place(source))
    })
}
