//! [`Select`] + format → [`Program`]: names become indices, every expression gets its type, constants are folded.

mod build;
mod call;
mod literal;
mod names;
mod ops;
mod parameter;
mod types;

use std::collections::{BTreeMap, HashSet};

use crossdock_format::{FieldSpec, FieldType, Format, MAX_FIELDS};
use sqlparser::ast;

use crate::error::{Position, QueryError};
use crate::expr::{Constant, Expr, Node};
use crate::parse::{Item, POSSIBLE, Select};
use crate::program::{Output, Program, Projection, reads};

use names::place;
pub(crate) use names::{listed, nearest};
pub(crate) use parameter::{check_names, set};

/// The most operations that may stand within each other in one expression; AND, OR and `||` chains count once.
const MAX_DEPTH: usize = 200;

/// Plans a query; of one with parameters, with these values, by name.
pub(crate) fn plan(
    select: &Select,
    format: &Format,
    values: Option<&BTreeMap<String, String>>,
) -> Result<Program, QueryError> {
    let mut binder = Binder { select, format, values, depth: 0 };
    let filter = binder.filter()?;
    let outputs = binder.outputs()?;
    let (projection, output) = match outputs {
        Some(outputs) => projection(outputs, format)?,
        None => (Projection::All, format.clone()),
    };
    let reads = reads(format, &filter, &projection);
    Ok(Program {
        stream: select.stream().to_owned(),
        sql: select.sql().to_owned(),
        input: format.clone(),
        filter,
        projection,
        output,
        reads,
        parameters: select.parameters().iter().map(|(name, _)| name.clone()).collect(),
    })
}

/// Plans a query as if its stream had the records that another makes of it, which lets records pass and selects columns. A format
/// that the other does not fit is refused without a word on its fields.
pub(crate) fn plan_over(
    first: &Select,
    select: &Select,
    format: &Format,
    values: Option<&BTreeMap<String, String>>,
) -> Result<Program, QueryError> {
    let misfit = || {
        let message =
            format!("the fields of stream {} that may be read are not in format {}", first.stream(), format.id());
        QueryError::new(message, None)
    };
    let first = plan(first, format, None).map_err(|_| misfit())?;
    let program = plan(select, &first.output, values)?;
    program.behind(&first).ok_or_else(misfit)
}

/// A select list that says no more than `*` does leaves the records unchanged.
fn projection(outputs: Vec<Output>, format: &Format) -> Result<(Projection, Format), QueryError> {
    let fields = outputs.iter().map(|output| {
        let name = output.name.clone();
        match output.plain_field().and_then(|index| format.fields().get(index)) {
            // A field that is only copied stays what it is.
            Some(field) if field.name == name => field.spec(),
            // Under another name its aliases may be those of others.
            Some(field) => FieldSpec { name, evolution: None, ..field.spec() },
            None => FieldSpec { nullable: output.expr.nullable, ..FieldSpec::new(name, output.expr.ty) },
        }
    });
    let output = Format::natural(fields)
        .map_err(|error| QueryError::new(format!("the select list makes no format: {error}"), None))?;
    let unchanged = outputs.iter().enumerate().all(|(index, output)| output.expr.node == Node::Field(index));
    if unchanged && output.id() == format.id() {
        return Ok((Projection::All, output));
    }
    Ok((Projection::Fields(outputs), output))
}

/// The result of binding an expression in the text.
#[derive(Debug)]
struct Bound<'a> {
    expr: Expr,
    /// The kind of literal, if it is one: a literal takes the type that stands across from it.
    literal: Literal,
    source: &'a ast::Expr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Literal {
    None,
    Null,
    Text,
    Number,
    /// `INTERVAL '…'`: its text, which only functions take.
    Interval,
    /// A parameter whose type is not settled: its value is a text yet.
    Parameter,
}

struct Binder<'a> {
    select: &'a Select,
    format: &'a Format,
    values: Option<&'a BTreeMap<String, String>>,
    depth: usize,
}

impl<'a> Binder<'a> {
    /// WHERE as the conditions that must all be TRUE, from left to right.
    fn filter(&mut self) -> Result<Vec<Expr>, QueryError> {
        let Some(source) = self.select.condition() else { return Ok(Vec::new()) };
        let condition = self.bind(&source.expr).map_err(|error| or_at(error, source.at))?;
        let condition = self.condition(condition, "WHERE")?;
        let mut conditions = match condition.node {
            Node::And(all) => all,
            node => vec![Expr { node, ..condition }],
        };
        if self.select.is_null_for_errors() {
            conditions = conditions.into_iter().map(Expr::or_null).collect();
        }
        conditions.retain(|condition| condition.as_constant() != Some(&Constant::Bool(true)));
        let never = conditions
            .iter()
            .position(|condition| matches!(condition.as_constant(), Some(Constant::Bool(false) | Constant::Null)));
        if let Some(never) = never {
            // A later condition is never asked; what comes before only matters for its row errors.
            conditions.truncate(never + 1);
            if !conditions.iter().any(Expr::is_fallible) {
                conditions.drain(..never);
            }
        }
        Ok(conditions)
    }

    /// The output's fields; `None` for `SELECT *`.
    fn outputs(&mut self) -> Result<Option<Vec<Output>>, QueryError> {
        let select = self.select;
        if let [Item::All { qualifier, at }] = select.items() {
            self.check_qualifier(qualifier.as_ref(), *at)?;
            return Ok(None);
        }
        let mut columns: Vec<Column> = Vec::new();
        for item in select.items() {
            match item {
                Item::All { qualifier, at } => {
                    self.check_qualifier(qualifier.as_ref(), *at)?;
                    for (index, field) in self.format.fields().iter().enumerate() {
                        columns.push(Column { name: field.name.clone(), is_given: false, expr: self.field(index) });
                    }
                }
                Item::Expr { expr: source, alias, at } => {
                    let mut bound = self.bind_any(source).map_err(|error| or_at(error, *at))?;
                    self.settle(&mut bound);
                    let expr = if select.is_null_for_errors() { bound.expr.or_null() } else { bound.expr };
                    let (name, is_given) = match alias {
                        Some(alias) => (alias.value.clone(), true),
                        None => (self.implied_name(source), false),
                    };
                    if is_given && columns.iter().any(|column| column.is_given && column.name == name) {
                        let message = format!("two columns of the output are called `{name}`");
                        let at = alias.as_ref().and_then(|alias| Position::of(alias.span.start)).or(*at);
                        return Err(QueryError::new(message, at).hint("give one of them another name"));
                    }
                    columns.push(Column { name, is_given, expr });
                }
            }
            if columns.len() > MAX_FIELDS {
                return Err(QueryError::new(format!("the output has more than {MAX_FIELDS} columns"), None));
            }
        }
        Ok(Some(with_unique_names(columns)))
    }

    /// The name of a column without an alias, as PostgreSQL gives it.
    fn implied_name(&self, source: &ast::Expr) -> String {
        match source {
            ast::Expr::Identifier(name) => self.field_name(name),
            ast::Expr::CompoundIdentifier(parts) => parts.last().map_or_else(unnamed, |name| self.field_name(name)),
            ast::Expr::Nested(inner) | ast::Expr::Cast { expr: inner, .. } => self.implied_name(inner),
            ast::Expr::Case { .. } => "case".to_owned(),
            ast::Expr::Function(function) => function.name.to_string().to_ascii_lowercase(),
            ast::Expr::Extract { .. } => "extract".to_owned(),
            ast::Expr::Substring { .. } => "substring".to_owned(),
            ast::Expr::Position { .. } => "position".to_owned(),
            ast::Expr::Ceil { .. } => "ceil".to_owned(),
            ast::Expr::Floor { .. } => "floor".to_owned(),
            ast::Expr::Trim { trim_where, .. } => match trim_where {
                Some(ast::TrimWhereField::Leading) => "ltrim".to_owned(),
                Some(ast::TrimWhereField::Trailing) => "rtrim".to_owned(),
                _ => "btrim".to_owned(),
            },
            _ => unnamed(),
        }
    }

    fn field_name(&self, name: &ast::Ident) -> String {
        self.index_of(name).map_or_else(|_| name.value.clone(), |index| self.format.fields()[index].name.clone())
    }

    /// An operand: any expression but a list, since nothing can be computed from a list.
    fn bind(&mut self, source: &'a ast::Expr) -> Result<Bound<'a>, QueryError> {
        let bound = self.bind_any(source)?;
        if bound.expr.ty == FieldType::List {
            let message = self.is_of_type(source, bound.expr.ty, Literal::None);
            let hint = "a list can be selected as it is, and asked whether it IS NULL";
            return Err(QueryError::new(message, place(source)).hint(hint));
        }
        Ok(bound)
    }

    /// Checks the depth and binds; on the way out a place is added to an error that has none.
    fn bind_any(&mut self, source: &'a ast::Expr) -> Result<Bound<'a>, QueryError> {
        if self.depth >= MAX_DEPTH {
            let message = format!("more than {MAX_DEPTH} operations within each other");
            return Err(QueryError::new(message, place(source)));
        }
        self.depth += 1;
        let bound = self.node(source).map_err(|error| or_at(error, place(source)));
        self.depth -= 1;
        bound
    }

    /// The expression as a condition, which `what` needs.
    fn condition(&self, mut bound: Bound<'_>, what: &str) -> Result<Expr, QueryError> {
        self.settle_as(&mut bound, FieldType::Bool)?;
        let mut expr = bound.expr;
        if bound.literal == Literal::Null {
            expr.ty = FieldType::Bool;
        }
        if expr.ty == FieldType::Bool {
            return Ok(expr);
        }
        let message =
            format!("{what} needs a condition, and {}", self.is_of_type(bound.source, expr.ty, bound.literal));
        let hint = "a condition is a comparison, such as: column = value";
        Err(QueryError::new(message, place(bound.source)).hint(hint))
    }

    fn check_qualifier(&self, qualifier: Option<&ast::Ident>, at: Option<Position>) -> Result<(), QueryError> {
        match qualifier {
            Some(qualifier) if !self.select.is_called(qualifier) => Err(self.wrong_qualifier(qualifier, at)),
            _ => Ok(()),
        }
    }
}

fn or_at(mut error: QueryError, at: Option<Position>) -> QueryError {
    error.position = error.position.or(at);
    error
}

fn unnamed() -> String {
    "?column?".to_owned()
}

struct Column {
    name: String,
    /// Whether the query gave the name, with AS.
    is_given: bool,
    expr: Expr,
}

/// Names that were not given, and that another column has, get `_2`, `_3` … behind them.
fn with_unique_names(columns: Vec<Column>) -> Vec<Output> {
    let given = columns.iter().filter(|column| column.is_given);
    let mut taken: HashSet<String> = given.map(|column| column.name.clone()).collect();
    let outputs = columns.into_iter().map(|Column { mut name, is_given, expr }| {
        if !is_given && taken.contains(&name) {
            let mut number = 2;
            while taken.contains(&format!("{name}_{number}")) {
                number += 1;
            }
            name = format!("{name}_{number}");
        }
        taken.insert(name.clone());
        Output { name, expr }
    });
    outputs.collect()
}

/// The refusal of an expression that SQL has and this dialect has not.
fn not_possible(what: &str, source: &ast::Expr) -> QueryError {
    QueryError::new(format!("{what} is not possible"), place(source)).hint(POSSIBLE)
}
