//! Calls of aggregates: their arguments over the rows of a group, and the columns that their results will be.

use crossdock_format::FieldType;
use sqlparser::ast;

use super::names::place;
use super::types::{number_for, scale_of};
use super::{Binder, Bound, BoundOver, Literal, build, not_possible};
use crate::decimal::MAX_SCALE;
use crate::error::{Position, QueryError};
use crate::expr::{Class, Constant, Expr, Node, is_decimal, is_float};
use crate::stateful::aggregates::{AggregateArgument, AggregateEntry, AggregateType};
use crate::stateful::program::AggregateFunction;

/// The least digits behind the point of the mean of exact numbers: those of a quotient.
const MEAN_SCALE: u8 = 16;

/// The aggregates of a query. In expressions the start and the end of the window and the aggregates are fields behind those of the
/// input: see [`Groups::base`].
pub(crate) struct Groups {
    /// The number of the input's columns. Field `base` is the window's start, the one behind it its end, further ones are aggregates.
    pub(crate) base: usize,
    /// Whether there are windows.
    pub(crate) has_window: bool,
    /// The aggregates, each once.
    pub(crate) aggregates: Vec<BoundAggregate>,
    /// The calls with OVER, each once. In expressions they stand at the fields of aggregates: a query has the one or the other.
    pub(crate) over: Vec<BoundOver>,
    /// Where the first of those is.
    pub(crate) over_at: Option<Position>,
    /// Whether an argument of an aggregate is being read, or a call with OVER.
    pub(super) is_inside: bool,
}

/// The number of fields behind those of the input that are the start and the end of the window.
pub(crate) const WINDOW_FIELDS: usize = 2;

/// An aggregate over expressions of the input.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct BoundAggregate {
    pub(crate) name: &'static str,
    pub(crate) function: AggregateFunction,
    pub(crate) arguments: Vec<Expr>,
    pub(crate) distinct: bool,
    pub(crate) filter: Option<Expr>,
    pub(crate) ty: FieldType,
    pub(crate) nullable: bool,
}

impl Groups {
    /// The groups of a query whose input has `base` columns.
    pub(crate) fn new(base: usize, has_window: bool) -> Groups {
        Groups { base, has_window, aggregates: Vec::new(), over: Vec::new(), over_at: None, is_inside: false }
    }

    /// The field that stands for an aggregate, which is there once.
    pub(crate) fn add(&mut self, aggregate: BoundAggregate) -> Expr {
        let (ty, nullable) = (aggregate.ty, aggregate.nullable);
        let index = self.aggregates.iter().position(|known| *known == aggregate).unwrap_or_else(|| {
            self.aggregates.push(aggregate);
            self.aggregates.len() - 1
        });
        Expr { node: Node::Field(self.base + WINDOW_FIELDS + index), ty, nullable }
    }

    /// The field that stands for a call with OVER, which is there once.
    pub(super) fn add_over(&mut self, call: BoundOver, at: Option<Position>) -> Expr {
        let (ty, nullable) = (call.ty, call.nullable);
        self.over_at = self.over_at.or(at);
        let index = self.over.iter().position(|known| *known == call).unwrap_or_else(|| {
            self.over.push(call);
            self.over.len() - 1
        });
        Expr { node: Node::Field(self.base + WINDOW_FIELDS + index), ty, nullable }
    }
}

impl BoundAggregate {
    /// The number of rows.
    pub(crate) fn of_rows() -> BoundAggregate {
        BoundAggregate {
            name: "count",
            function: AggregateFunction::Count,
            arguments: Vec::new(),
            distinct: false,
            filter: None,
            ty: FieldType::I64,
            nullable: false,
        }
    }
}

impl<'a> Binder<'a> {
    /// The same binder, for expressions that may have aggregates.
    pub(crate) fn with_groups(mut self, groups: Groups) -> Binder<'a> {
        self.groups = Some(groups);
        self
    }

    /// The same binder, for a clause that has no aggregates.
    pub(crate) fn without_aggregates(self, clause: &'static str) -> Binder<'a> {
        Binder { refuses_aggregates_in: Some(clause), ..self }
    }

    /// The aggregates that were met.
    pub(crate) fn groups(&self) -> Option<&Groups> {
        self.groups.as_ref()
    }

    /// `window_start` and `window_end`, where there are windows.
    pub(super) fn window_column(&self, name: &ast::Ident) -> Option<Expr> {
        let groups = self.groups.as_ref().filter(|groups| groups.has_window && !groups.is_inside)?;
        let is = |wanted: &str| match name.quote_style {
            Some(_) => name.value == wanted,
            None => name.value.eq_ignore_ascii_case(wanted),
        };
        let behind = if is("window_start") {
            0
        } else if is("window_end") {
            1
        } else {
            return None;
        };
        Some(Expr { node: Node::Field(groups.base + behind), ty: FieldType::Timestamp, nullable: false })
    }

    /// The error for a name that is not there, if it is one of the window's columns and there is no window.
    pub(super) fn without_window(&self, name: &ast::Ident, error: QueryError) -> QueryError {
        let is_of_window = ["window_start", "window_end"].iter().any(|of| name.value.eq_ignore_ascii_case(of));
        match &self.groups {
            Some(groups) if is_of_window && !groups.has_window => {
                let message = format!("`{}` is a column of windows, and the query has none", name.value);
                QueryError::new(message, error.position).hint("GROUP BY …, TUMBLE(time, INTERVAL '1 hour')")
            }
            _ => error,
        }
    }

    /// A call of an aggregate; `None` if it is another call, or if the query has no groups at all.
    pub(super) fn aggregate(
        &mut self,
        source: &'a ast::Expr,
        function: &'a ast::Function,
        name: &str,
    ) -> Result<Option<Expr>, QueryError> {
        if AggregateEntry::named(name).next().is_none() {
            return Ok(None);
        }
        let Some(groups) = &mut self.groups else {
            return match self.refuses_aggregates_in {
                None => Ok(None),
                Some(clause) => {
                    let message = format!("{name}() is not possible in {clause}, which looks at single rows");
                    Err(QueryError::new(message, place(source)).hint("HAVING has the conditions on groups"))
                }
            };
        };
        if groups.is_inside {
            let error = QueryError::new("an aggregate within an aggregate is not possible", place(source));
            return Err(error.hint("aggregate the rows of a query that aggregates: FROM (SELECT … GROUP BY …) x"));
        }
        groups.is_inside = true;
        let bound = self.aggregate_call(source, function, name);
        let groups = self.groups.as_mut();
        let Some(groups) = groups else { return Ok(None) };
        groups.is_inside = false;
        bound.map(|aggregate| Some(groups.add(aggregate)))
    }

    pub(super) fn aggregate_call(
        &mut self,
        source: &'a ast::Expr,
        call: &'a ast::Function,
        name: &str,
    ) -> Result<BoundAggregate, QueryError> {
        let signatures: Vec<String> = AggregateEntry::named(name).map(AggregateEntry::signature).collect();
        let Some((operands, distinct)) = operands(call) else {
            return Err(not_possible("this form of an aggregate", source).hint(signatures.join("; ")));
        };
        let Some(entry) = AggregateEntry::named(name).find(|entry| entry.arguments.len() == operands.len()) else {
            let message = format!("`{name}` does not take {} arguments", operands.len());
            return Err(QueryError::new(message, place(source)).hint(signatures.join("; ")));
        };
        if distinct && operands.is_empty() {
            return Err(QueryError::new("DISTINCT needs an argument", place(source)).hint("count(DISTINCT column)"));
        }
        let mut aggregate = BoundAggregate {
            name: entry.name,
            function: entry.function,
            arguments: Vec::with_capacity(operands.len()),
            distinct,
            filter: None,
            ty: FieldType::I64,
            nullable: !matches!(entry.gives, AggregateType::Count | AggregateType::List),
        };
        for (operand, kind) in operands.into_iter().zip(entry.arguments) {
            let bound = self.bind(operand)?;
            if *kind == AggregateArgument::Fraction {
                aggregate.function = AggregateFunction::ApproxQuantile(fraction(&bound)?);
                continue;
            }
            let source = bound.source;
            let expr = self.aggregate_argument(bound, *kind, name)?;
            if *kind == AggregateArgument::Separator && expr.as_known().is_none() {
                let error = QueryError::new(format!("the separator of {name} is the same for all rows"), place(source));
                return Err(error.hint(format!("{name}(column, ', '), or a parameter")));
            }
            aggregate.arguments.push(if self.null_for_errors { expr.or_null() } else { expr });
        }
        if let Some(filter) = &call.filter {
            let bound = self.bind(filter)?;
            let filter = self.condition(bound, "FILTER")?;
            aggregate.filter = Some(if self.null_for_errors { filter.or_null() } else { filter });
        }
        aggregate.ty = result_type(entry.gives, aggregate.arguments.first().map_or(FieldType::I64, |first| first.ty));
        Ok(aggregate)
    }

    fn aggregate_argument(
        &self,
        mut bound: Bound<'a>,
        kind: AggregateArgument,
        name: &str,
    ) -> Result<Expr, QueryError> {
        let source = bound.source;
        match kind {
            AggregateArgument::Condition => return self.condition(bound, name),
            AggregateArgument::Number | AggregateArgument::Float => number_for(self, &mut bound, name)?,
            AggregateArgument::Text | AggregateArgument::Separator => self.settle_as(&mut bound, FieldType::String)?,
            _ => self.settle(&mut bound),
        }
        let class = Class::of(bound.expr.ty);
        let is = || self.is_of_type(source, bound.expr.ty, bound.literal);
        match kind {
            AggregateArgument::Float => Ok(build::cast(bound.expr, FieldType::F64)),
            AggregateArgument::Text | AggregateArgument::Separator if class != Class::Text => {
                let error = QueryError::new(format!("{name} joins texts, and {}", is()), place(source));
                Err(error.hint("CAST(expression AS text) makes a text of it"))
            }
            AggregateArgument::Ordered if class == Class::Bool => {
                let error = QueryError::new(format!("{name} takes values with an order, and {}", is()), place(source));
                Err(error.hint("bool_and and bool_or take conditions"))
            }
            _ => Ok(bound.expr),
        }
    }
}

fn result_type(gives: AggregateType, first: FieldType) -> FieldType {
    match gives {
        AggregateType::Count => FieldType::I64,
        AggregateType::Sum if is_float(first) => FieldType::F64,
        AggregateType::Sum if is_decimal(first) => FieldType::Decimal { bytes: 16, scale: scale_of(first) },
        AggregateType::Sum => FieldType::I64,
        AggregateType::Mean if is_float(first) => FieldType::F64,
        AggregateType::Mean => FieldType::Decimal { bytes: 16, scale: scale_of(first).clamp(MEAN_SCALE, MAX_SCALE) },
        AggregateType::First => first,
        AggregateType::Float => FieldType::F64,
        AggregateType::Condition => FieldType::Bool,
        AggregateType::Text => FieldType::String,
        AggregateType::List => FieldType::List,
    }
}

/// The literal of a part, 0 to 1.
fn fraction(bound: &Bound<'_>) -> Result<f64, QueryError> {
    let value = match bound.expr.as_constant() {
        Some(Constant::Int(value)) => Some(*value as f64),
        Some(Constant::Float(value)) => Some(*value),
        Some(Constant::Decimal(value)) => Some(value.to_f64()),
        _ => None,
    };
    let value = value.filter(|value| bound.literal == Literal::Number && (0.0..=1.0).contains(value));
    value.ok_or_else(|| {
        let message = "the second argument is the part of the values, a literal from 0 to 1";
        QueryError::new(message, place(bound.source)).hint("approx_quantile(column, 0.99)")
    })
}

/// The arguments of an aggregate, and whether equal values count once.
fn operands(call: &ast::Function) -> Option<(Vec<&ast::Expr>, bool)> {
    let ast::Function {
        name: _,
        uses_odbc_syntax: false,
        parameters: ast::FunctionArguments::None,
        args: ast::FunctionArguments::List(ast::FunctionArgumentList { duplicate_treatment, args, clauses }),
        within_group,
        filter: _,
        null_treatment: None,
        over: _,
    } = call
    else {
        return None;
    };
    if !clauses.is_empty() || !within_group.is_empty() {
        return None;
    }
    let distinct = matches!(duplicate_treatment, Some(ast::DuplicateTreatment::Distinct));
    if let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Wildcard)] = &args[..] {
        let is_count = call.name.to_string().eq_ignore_ascii_case("count");
        return is_count.then_some((Vec::new(), distinct));
    }
    let plain = args.iter().map(|argument| match argument {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    let operands: Option<Vec<&ast::Expr>> = plain.collect();
    operands.filter(|operands| !operands.is_empty()).map(|operands| (operands, distinct))
}
