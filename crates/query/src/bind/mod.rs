//! [`Select`] + format → [`Program`]: names become indices, every expression gets its type, constants are folded.

mod aggregate;
mod build;
mod call;
mod lists;
mod literal;
mod names;
mod ops;
mod over;
mod parameter;
mod types;
mod using;

use std::collections::{BTreeMap, HashSet};

use crossdock_format::{FieldSpec, FieldType, Format, MAX_FIELDS};
use sqlparser::ast;

use crate::error::{Position, QueryError};
use crate::expr::{Constant, Expr, Node};
use crate::parse::{Item, NamedWindow, POSSIBLE, Select};
use crate::program::{Output, Program, Projection, reads};

pub(crate) use aggregate::{BoundAggregate, Groups, WINDOW_FIELDS};
pub(crate) use build::{arithmetic, cast, compare, is_null};
pub(crate) use call::{as_interval, interval_text};
pub(crate) use names::{Table, listed, nearest, place};
pub(crate) use over::{BoundOver, BoundOverFunction, ROW_NUMBER};
pub(crate) use parameter::{check_names, set};
pub(crate) use types::{can_cast, common_type};
pub(crate) use using::UsingColumns;

/// The most operations that may stand within each other in one expression; AND, OR and `||` chains count once.
const MAX_DEPTH: usize = 200;

/// Plans a query; of one with parameters, with these values, by name.
pub(crate) fn plan(
    select: &Select,
    format: &Format,
    values: Option<&BTreeMap<String, String>>,
) -> Result<Program, QueryError> {
    let called = select.called();
    let tables = [Table { name: select.stream(), called, format, from: 0, is_optional: false }];
    let mut binder = Binder::new(&tables, values, select.is_null_for_errors());
    let filter = match select.condition() {
        Some(source) => tidied(binder.conditions(&source.expr, source.at, "WHERE")?),
        None => Vec::new(),
    };
    let outputs = binder.outputs(select.items())?;
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
    /// None: a list, in the place of a value that its elements may have.
    Element,
}

/// Makes a column of a bound expression, at the place of its entry in the select list.
type Finish<'f, 'a> = &'f mut dyn FnMut(&mut Binder<'a>, Expr, Option<Position>) -> Result<Expr, QueryError>;

/// Makes checked expressions over the columns of tables.
pub(crate) struct Binder<'a> {
    tables: &'a [Table<'a>],
    values: Option<&'a BTreeMap<String, String>>,
    null_for_errors: bool,
    depth: usize,
    /// Where aggregates go; `None` where there may be none.
    groups: Option<Groups>,
    /// The clause that has no aggregates, in a query that may have some elsewhere.
    refuses_aggregates_in: Option<&'static str>,
    /// The windows of the clause WINDOW.
    windows: &'a [NamedWindow],
    /// The columns of the select list that a name means which is no column of a stream.
    aliases: Vec<(String, Expr)>,
    /// Columns that were named, and where.
    seen: Vec<(usize, Option<Position>)>,
    /// The columns as USING makes them, where there are joins.
    using: Option<&'a UsingColumns>,
}

impl<'a> Binder<'a> {
    /// A binder over these tables, whose columns are numbered through; for a query with these values of its parameters. With
    /// `null_for_errors` row errors become null.
    pub(crate) fn new(
        tables: &'a [Table<'a>],
        values: Option<&'a BTreeMap<String, String>>,
        null_for_errors: bool,
    ) -> Binder<'a> {
        Binder {
            tables,
            values,
            null_for_errors,
            depth: 0,
            groups: None,
            refuses_aggregates_in: None,
            windows: &[],
            aliases: Vec::new(),
            seen: Vec::new(),
            using: None,
        }
    }

    /// From now on, names that are no columns of a stream mean these of the select list.
    pub(crate) fn know(&mut self, columns: &[Output]) {
        self.aliases = columns.iter().map(|column| (column.name.clone(), column.expr.clone())).collect();
    }

    /// The column of the select list that a name means: exactly, or the first that differs in case alone.
    fn alias(&self, name: &ast::Ident) -> Option<Expr> {
        let exactly = self.aliases.iter().find(|(known, _)| *known == name.value);
        let is_alike = |(known, _): &&(String, Expr)| known.to_lowercase() == name.value.to_lowercase();
        let found = exactly.or_else(|| self.aliases.iter().filter(|_| name.quote_style.is_none()).find(is_alike));
        found.map(|(_, expr)| expr.clone())
    }

    /// A condition as those that must all be TRUE, from left to right.
    pub(crate) fn conditions(
        &mut self,
        source: &'a ast::Expr,
        at: Option<Position>,
        what: &str,
    ) -> Result<Vec<Expr>, QueryError> {
        let condition = self.bind(source).map_err(|error| or_at(error, at))?;
        let condition = self.condition(condition, what)?;
        let conditions = conjuncts(condition);
        Ok(match self.null_for_errors {
            true => conditions.into_iter().map(Expr::or_null).collect(),
            false => conditions,
        })
    }

    /// The conditions of ON. Unlike in [`conditions`](Binder::conditions), one that is never TRUE leaves the others: a join needs its keys
    /// and bounds all the same.
    pub(crate) fn conditions_of_join(
        &mut self,
        source: &'a ast::Expr,
        at: Option<Position>,
    ) -> Result<Vec<Expr>, QueryError> {
        let parts = ops::chain(source, &ast::BinaryOperator::And);
        let what = if parts.len() == 1 { "ON" } else { "AND" };
        let mut conditions = Vec::new();
        for part in parts {
            conditions.append(&mut self.conditions(part, at, what)?);
        }
        conditions.retain(|condition| condition.as_constant() != Some(&Constant::Bool(true)));
        Ok(conditions)
    }

    /// One expression, of whatever type.
    pub(crate) fn value_of(&mut self, source: &'a ast::Expr, at: Option<Position>) -> Result<Expr, QueryError> {
        let mut bound = self.bind_any(source).map_err(|error| or_at(error, at))?;
        self.settle(&mut bound);
        Ok(if self.null_for_errors { bound.expr.or_null() } else { bound.expr })
    }

    /// The output's fields; `None` for `SELECT *`.
    fn outputs(&mut self, items: &'a [Item]) -> Result<Option<Vec<Output>>, QueryError> {
        if let [Item::All { qualifier, at }] = items {
            self.check_qualifier(qualifier.as_ref(), *at)?;
            return Ok(None);
        }
        self.columns(items, &mut |_, expr, _| Ok(expr)).map(Some)
    }

    /// The columns of a select list, each made by `finish` of the binder, the bound expression and the place of its entry.
    pub(crate) fn columns(&mut self, items: &'a [Item], finish: Finish<'_, 'a>) -> Result<Vec<Output>, QueryError> {
        let mut columns: Vec<Column> = Vec::new();
        for item in items {
            match item {
                Item::All { qualifier, at } => {
                    for index in self.all_of(qualifier.as_ref(), *at)? {
                        let name = self.column_name(index);
                        self.seen.push((index, *at));
                        let expr = if qualifier.is_none() { self.unqualified(index) } else { self.field(index) };
                        columns.push(Column { name, is_given: false, expr: finish(self, expr, *at)? });
                    }
                }
                Item::Expr { expr: source, alias, at } => {
                    let expr = self.value_of(source, *at)?;
                    let expr = finish(self, expr, *at)?;
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
        Ok(with_unique_names(columns))
    }

    /// The numbers of all columns, or of those of one table.
    fn all_of(&self, qualifier: Option<&ast::Ident>, at: Option<Position>) -> Result<Vec<usize>, QueryError> {
        self.check_qualifier(qualifier, at)?;
        let one = qualifier.and_then(|qualifier| self.called(qualifier));
        if let (None, Some(ordered)) = (one, self.ordered()) {
            return Ok(ordered.to_vec());
        }
        let tables = self.tables.iter().filter(|table| one.is_none_or(|one| one.from == table.from));
        Ok(tables.flat_map(|table| table.from..table.from + table.format.fields().len()).collect())
    }

    /// The same binder, which leaves row errors what they are.
    pub(crate) fn with_errors(self) -> Binder<'a> {
        Binder { null_for_errors: false, ..self }
    }

    /// Whether a name without a qualifier is one of a column.
    pub(crate) fn knows(&self, name: &ast::Ident) -> bool {
        self.index_of(name).is_ok()
    }

    /// Where a column was named last.
    pub(crate) fn seen_at(&self, index: usize) -> Option<Position> {
        self.seen.iter().rev().find(|(seen, _)| *seen == index).and_then(|(_, at)| *at)
    }

    /// The name that messages have for a column: qualified if there are several tables.
    pub(crate) fn shown_name(&self, index: usize) -> String {
        let table = self.tables.iter().rev().find(|table| table.from <= index);
        match table {
            Some(table) if self.tables.len() > 1 => format!("{}.{}", table.called.0, self.column_name(index)),
            _ => self.column_name(index),
        }
    }

    /// The name of a column without an alias, as PostgreSQL gives it.
    pub(crate) fn implied_name(&self, source: &ast::Expr) -> String {
        match source {
            ast::Expr::Identifier(name) => self.field_name(name),
            ast::Expr::CompoundIdentifier(parts) => parts.last().map_or_else(unnamed, |name| self.field_name(name)),
            ast::Expr::Nested(inner) | ast::Expr::Cast { expr: inner, .. } => self.implied_name(inner),
            ast::Expr::CompoundFieldAccess { root, access_chain } => {
                let named = access_chain.iter().rev().find_map(|access| match access {
                    ast::AccessExpr::Dot(name) => Some(name),
                    ast::AccessExpr::Subscript(_) => None,
                });
                self.implied_name(named.unwrap_or(root))
            }
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
        self.index_of(name).map_or_else(|_| name.value.clone(), |index| self.column_name(index))
    }

    /// An operand that is no list.
    fn bind(&mut self, source: &'a ast::Expr) -> Result<Bound<'a>, QueryError> {
        let bound = self.bind_any(source)?;
        if bound.expr.ty == FieldType::List {
            let message = self.is_of_type(source, bound.expr.ty, Literal::None);
            return Err(QueryError::new(message, place(source)).hint(lists::LIST_FORMS));
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
            Some(qualifier) if self.called(qualifier).is_none() => Err(self.wrong_qualifier(qualifier, at)),
            _ => Ok(()),
        }
    }
}

/// The conditions that AND joins, from left to right: those in parentheses too, as a condition passes only where it is TRUE.
fn conjuncts(condition: Expr) -> Vec<Expr> {
    match condition.node {
        Node::And(all) => all.into_iter().flat_map(conjuncts).collect(),
        node => vec![Expr { node, ..condition }],
    }
}

/// Conditions that must all be TRUE, without those that always are, and without those behind one that never is.
pub(crate) fn tidied(mut conditions: Vec<Expr>) -> Vec<Expr> {
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
    conditions
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
