//! Rows on their way to a stage: conditions and columns over the records of a stream, or over the rows that a stage makes.

use std::collections::HashSet;

use crossdock_format::{Field, FieldSpec, FieldType, Format, TypeSpec};

use super::program::Aggregate;
use crate::bind::{BoundAggregate, can_cast, cast, tidied};
use crate::error::QueryError;
use crate::expr::{Constant, Expr, Node};
use crate::program::{Output, Program, Projection, reads};
use crate::view::View;

/// The most operations of an expression once the columns of inner queries are in their places, and the most within each other.
const MAX_OPERATIONS: usize = 20_000;
const MAX_DEPTH: usize = 200;

/// Where rows come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    Stream(String),
    /// A reference table: the right side of a join, whose rows are looked up.
    Table(String),
    Stage(usize),
}

/// Rows of a stream or a stage, with conditions, and columns by number. A column that nobody reads may be missing.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    pub(super) origin: Origin,
    pub(super) input: Format,
    pub(super) filter: Vec<Expr>,
    pub(super) columns: Vec<Option<Expr>>,
    /// Whether a row may be taken back or replaced by another, as those of groups without a window.
    pub(super) is_corrected: bool,
    /// Whether a row of such groups is in them beside the one that has taken its place: a step took each as a row of its own.
    pub(super) has_replaced: bool,
}

impl Flow {
    /// All columns of what a stream or a stage gives.
    pub(super) fn all(origin: Origin, input: Format) -> Flow {
        let columns = (0..input.fields().len()).map(|index| Some(field(&input, index))).collect();
        Flow { origin, input, filter: Vec::new(), columns, is_corrected: false, has_replaced: false }
    }

    /// Whether a step that takes each row as one of its own has them beside those that have taken their places.
    pub(super) fn gives_replaced(&self) -> bool {
        self.is_corrected || self.has_replaced
    }

    /// An expression over the columns as one over the input.
    pub(super) fn placed(&self, expr: &Expr) -> Result<Expr, QueryError> {
        placed(expr, &self.columns)
    }

    /// Adds a condition over the columns.
    pub(super) fn filter_by(&mut self, condition: &Expr) -> Result<(), QueryError> {
        self.filter.push(self.placed(condition)?);
        Ok(())
    }
}

/// A field of a format as an expression.
pub(super) fn field(format: &Format, index: usize) -> Expr {
    let (ty, nullable) = match format.fields().get(index) {
        Some(field) if matches!(field.ty, FieldType::Enum { .. }) => (FieldType::String, true),
        Some(field) => (field.ty, field.nullable),
        None => (FieldType::String, true),
    };
    Expr { node: Node::Field(index), ty, nullable }
}

/// An expression with others in place of its fields.
pub(super) fn placed(expr: &Expr, columns: &[Option<Expr>]) -> Result<Expr, QueryError> {
    let (operations, depth) = extent(expr, columns)?;
    if operations > MAX_OPERATIONS || depth > MAX_DEPTH {
        let message = format!(
            "with the columns of inner queries in place an expression has more than {MAX_OPERATIONS} operations, or \
             {MAX_DEPTH} within each other"
        );
        return Err(QueryError::new(message, None).hint(
            "compute less in it, or in the queries within: one that GROUP BY or a join ends has its columns as values",
        ));
    }
    let mut expr = expr.clone();
    replace(&mut expr, columns);
    Ok(expr)
}

fn replace(expr: &mut Expr, columns: &[Option<Expr>]) {
    if let Node::Field(index) = expr.node {
        if let Some(Some(column)) = columns.get(index) {
            column.clone_into(expr);
        }
        return;
    }
    expr.operands_mut().into_iter().for_each(|operand| replace(operand, columns));
}

/// How many operations an expression has once the columns are in place, and how many stand within each other.
fn extent(expr: &Expr, columns: &[Option<Expr>]) -> Result<(usize, usize), QueryError> {
    if let Node::Field(index) = expr.node {
        let Some(Some(column)) = columns.get(index) else {
            debug_assert!(false, "a column that is read was not made");
            return Err(QueryError::new("a column of an inner query is missing", None));
        };
        return Ok(own_extent(column));
    }
    let mut whole = (weight(expr), 0);
    for operand in expr.operands() {
        let (operations, depth) = extent(operand, columns)?;
        whole = (whole.0.saturating_add(operations), whole.1.max(depth));
    }
    Ok((whole.0, whole.1 + 1))
}

fn own_extent(expr: &Expr) -> (usize, usize) {
    let operands = expr.operands().into_iter().map(own_extent);
    let (operations, depth) = operands.fold((weight(expr), 0), |whole, own| (whole.0 + own.0, whole.1.max(own.1)));
    (operations, depth + 1)
}

/// A long text counts as several operations.
fn weight(expr: &Expr) -> usize {
    match expr.as_known() {
        Some(Constant::Text(text)) => 1 + text.len() / 64,
        Some(Constant::Bytes(bytes)) => 1 + bytes.len() / 64,
        _ => 1,
    }
}

/// The columns of a row, each expression once.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) outputs: Vec<Output>,
}

impl Row {
    /// The number of the column that has this expression's value.
    pub(super) fn add(&mut self, name: &str, expr: Expr) -> usize {
        let known = self.outputs.iter().position(|output| output.expr == expr);
        known.unwrap_or_else(|| {
            self.outputs.push(Output { name: name.to_owned(), expr });
            self.outputs.len() - 1
        })
    }

    /// The same for a column that is read by its place alone: a field of the input keeps its name.
    pub(super) fn add_unnamed(&mut self, name: &str, expr: Expr, input: &Format) -> usize {
        let field = match expr.node {
            Node::Field(index) => input.fields().get(index),
            _ => None,
        };
        let name = field.map_or(name, |field| &field.name);
        self.add(name, expr)
    }

    /// An aggregate over the columns that have its arguments.
    pub(super) fn add_aggregate(&mut self, aggregate: &BoundAggregate, flow: &Flow) -> Result<Aggregate, QueryError> {
        let mut arguments = Vec::with_capacity(aggregate.arguments.len());
        for argument in &aggregate.arguments {
            arguments.push(self.add_unnamed(aggregate.name, flow.placed(argument)?, &flow.input));
        }
        let filter = match &aggregate.filter {
            Some(filter) => Some(self.add_unnamed("filter", flow.placed(filter)?, &flow.input)),
            None => None,
        };
        let BoundAggregate { function, distinct, ty, .. } = *aggregate;
        Ok(Aggregate { function, arguments, distinct, filter, ty })
    }

    /// Rows have a column, even if nobody reads one.
    pub(super) fn or_something(mut self) -> Row {
        if self.outputs.is_empty() {
            self.add("row", Expr::constant(Constant::Bool(true), FieldType::Bool));
        }
        self
    }
}

/// Names that are different, and that fields may have in one format: those that are taken get `_2`, `_3` … behind them.
pub(super) fn unique<'n>(names: impl IntoIterator<Item = &'n str>) -> Vec<String> {
    let mut taken: HashSet<String> = HashSet::new();
    let name = |name: &str| {
        // A point would say that the field lies in a nested record.
        let name = name.replace('.', "_");
        let numbered = (2..).map(|number| format!("{name}_{number}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| !taken.contains(name));
        let free = free.unwrap_or(name);
        taken.insert(free.clone());
        free
    };
    names.into_iter().map(name).collect()
}

/// The declaration of the column that an expression over `input` makes.
pub(super) fn spec_of(name: &str, expr: &Expr, input: &Format) -> FieldSpec {
    let plain = match expr.node {
        Node::Field(index) => input.fields().get(index),
        _ => None,
    };
    match plain {
        Some(field) => FieldSpec { name: name.to_owned(), evolution: None, ..field.spec() },
        None => FieldSpec { nullable: expr.nullable, ..FieldSpec::new(name, expr.ty) },
    }
}

/// The type of an aggregate's result over rows of this format: of a list with that of its elements.
pub(super) fn type_of(aggregate: &Aggregate, row: &Format) -> TypeSpec {
    let first = aggregate.arguments.first().and_then(|first| row.fields().get(*first));
    match first {
        Some(field) if aggregate.ty == FieldType::List => TypeSpec::list(spec_type(field)),
        _ => aggregate.ty.into(),
    }
}

/// A format of these columns.
pub(super) fn format_of(specs: Vec<FieldSpec>) -> Result<Format, QueryError> {
    Format::natural(specs).map_err(|error| QueryError::new(format!("the columns make no format: {error}"), None))
}

/// The expression as rows have it: an enumeration as text.
pub(super) fn without_symbols(expr: Expr, input: &Format) -> Expr {
    match expr.node {
        Node::Field(index) if input.fields().get(index).is_some_and(is_enumeration) => as_text(expr),
        _ => expr,
    }
}

fn is_enumeration(field: &Field) -> bool {
    matches!(field.ty, FieldType::Enum { .. })
}

fn as_text(expr: Expr) -> Expr {
    Expr { node: Node::Cast(Box::new(expr)), ty: FieldType::String, nullable: true }
}

/// The same value in a column that may be null, computed rather than copied.
pub(super) fn computed(expr: Expr) -> Expr {
    let ty = expr.ty;
    Expr { node: Node::Try(Box::new(expr)), ty, nullable: true }
}

/// A program that has not more than these parts.
pub(super) fn program_of(
    (stream, sql, parameters): (&str, &str, &[String]),
    (input, filter): (&Format, Vec<Expr>),
    (outputs, output): (Vec<Output>, Format),
) -> Program {
    let filter = tidied(filter);
    let unchanged = outputs.len() == input.fields().len()
        && outputs.iter().enumerate().all(|(index, output)| output.expr.node == Node::Field(index))
        && output.id() == input.id();
    let projection = if unchanged { Projection::All } else { Projection::Fields(outputs) };
    let reads = reads(input, &filter, &projection);
    Program {
        stream: stream.to_owned(),
        sql: sql.to_owned(),
        input: input.clone(),
        filter,
        projection,
        output,
        reads,
        parameters: parameters.to_vec(),
    }
}

/// The program of a source for records of a format that may be another than that of its input.
pub(super) fn reader(source: &Program, view: Option<&View>, format: &Format) -> Result<Program, QueryError> {
    let misfit = || {
        let message =
            format!("the fields of stream {} that may be read are not in format {}", source.stream, format.id());
        QueryError::new(message, None)
    };
    let through = match view {
        Some(view) => Some(view.plan(format).map_err(|_| misfit())?),
        None => None,
    };
    let seen = through.as_ref().map_or(format, |program| &program.output);
    let outputs: Vec<Output> = match &source.projection {
        Projection::Fields(outputs) => outputs.clone(),
        Projection::All => (source.input.fields().iter().enumerate())
            .map(|(index, of)| Output { name: of.name.clone(), expr: field(&source.input, index) })
            .collect(),
    };
    let mut read = vec![false; source.input.fields().len()];
    let exprs = source.filter.iter().chain(outputs.iter().map(|output| &output.expr));
    exprs.for_each(|expr| expr.mark_fields(&mut read));
    let mut columns = Vec::with_capacity(read.len());
    for (index, read) in read.into_iter().enumerate() {
        columns.push(if read { Some(version_of(source, index, seen)?) } else { None });
    }
    if let Some(through) = &through {
        let fields: Vec<Option<Expr>> = match &through.projection {
            Projection::All => (0..format.fields().len()).map(|index| Some(field(format, index))).collect(),
            Projection::Fields(outputs) => outputs.iter().map(|output| Some(output.expr.clone())).collect(),
        };
        for column in columns.iter_mut().flatten() {
            *column = placed(column, &fields)?;
        }
    }
    let mut filter = through.map(|through| through.filter).unwrap_or_default();
    for condition in &source.filter {
        filter.push(placed(condition, &columns)?);
    }
    let mut made = Vec::with_capacity(outputs.len());
    for (output, wanted) in outputs.into_iter().zip(source.output.fields()) {
        let expr = fitting(placed(&output.expr, &columns)?, format, wanted);
        made.push(Output { name: output.name, expr });
    }
    let names = (source.stream.as_str(), source.sql.as_str(), source.parameters.as_slice());
    Ok(program_of(names, (format, filter), (made, source.output.clone())))
}

/// A column of the source's input in another version of the format.
fn version_of(source: &Program, index: usize, seen: &Format) -> Result<Expr, QueryError> {
    let Some(wanted) = source.input.fields().get(index) else {
        debug_assert!(false, "a program reads fields of its input");
        return Err(QueryError::new("a column is missing", None));
    };
    let misfit = |why: &str| {
        let message = format!("column `{}` of stream {} {why} in format {}", wanted.name, source.stream, seen.id());
        QueryError::new(message, None)
    };
    let aliases = wanted.evolution.iter().flat_map(|evolution| &evolution.aliases);
    let found = std::iter::once(&wanted.name).chain(aliases).find_map(|name| seen.field(name));
    let was = field(&source.input, index);
    let Some(found) = found else {
        return match was.nullable {
            true => Ok(Expr::constant(Constant::Null, was.ty)),
            false => Err(misfit("is missing")),
        };
    };
    let now = field(seen, found);
    let same = seen.fields().get(found).is_some_and(|field| same_type(field, wanted));
    if same || now.ty == was.ty && now.ty != FieldType::List {
        return Ok(now);
    }
    match now.ty != FieldType::List && was.ty != FieldType::List && can_cast(now.ty, was.ty) {
        true => Ok(cast(now, was.ty)),
        false => Err(misfit("has a type that cannot be cast")),
    }
}

fn same_type(left: &Field, right: &Field) -> bool {
    spec_type(left) == spec_type(right)
}

fn spec_type(field: &Field) -> TypeSpec {
    field.spec().ty
}

/// A value as a column of a row takes it that is of its type: what is copied is declared alike.
fn fitting(expr: Expr, input: &Format, wanted: &Field) -> Expr {
    let Node::Field(index) = expr.node else { return expr };
    match input.fields().get(index) {
        Some(field) if is_enumeration(field) => as_text(expr),
        Some(field)
            if field.ty != FieldType::List && (field.nullable != wanted.nullable || !same_type(field, wanted)) =>
        {
            computed(expr)
        }
        _ => expr,
    }
}
