//! Names of columns, and how places and operands are called in messages.

use crossdock_format::{Field, FieldType, Format};
use sqlparser::ast;

use super::{Binder, Literal};
use crate::error::{Position, QueryError};
use crate::expr::{Expr, Node};

/// How many known names an error lists.
const NAMES_SHOWN: usize = 40;

/// Rows whose columns an expression may name: those of a stream, or of a query within the query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'a> {
    /// The stream, in messages.
    pub(crate) name: &'a str,
    /// How its columns may be qualified, and whether that was written in double quotes.
    pub(crate) called: (&'a str, bool),
    /// Its columns.
    pub(crate) format: &'a Format,
    /// The number of columns before its own.
    pub(crate) from: usize,
    /// Whether there may be no row of it, so that its columns are null.
    pub(crate) is_optional: bool,
}

impl Table<'_> {
    /// Whether `qualifier.column` means it.
    fn is_called(&self, qualifier: &ast::Ident) -> bool {
        let (name, quoted) = self.called;
        qualifier.value == name
            || (!quoted && qualifier.quote_style.is_none() && qualifier.value.to_lowercase() == name.to_lowercase())
    }

    /// Its columns that a name means: the one that has it, or, for a name without quotes, those that differ in case alone.
    fn alike(&self, name: &ast::Ident) -> (bool, Vec<usize>) {
        if let Some(index) = self.format.field(&name.value) {
            return (true, vec![index]);
        }
        if name.quote_style.is_some() {
            return (false, Vec::new());
        }
        let wanted = name.value.to_lowercase();
        let fields = self.format.fields().iter().enumerate();
        (false, fields.filter(|(_, field)| field.name.to_lowercase() == wanted).map(|(index, _)| index).collect())
    }

    fn column_name(&self, index: usize) -> &str {
        self.format.fields().get(index).map_or("", |field| &field.name)
    }
}

impl<'a> Binder<'a> {
    /// `column` or `stream.column`.
    pub(super) fn column(&mut self, qualifier: Option<&ast::Ident>, name: &ast::Ident) -> Result<Expr, QueryError> {
        let (index, expr) = match qualifier {
            Some(qualifier) => {
                let table = self.called(qualifier);
                let table = table.ok_or_else(|| self.wrong_qualifier(qualifier, Position::of(qualifier.span.start)))?;
                let index = self.index_among(&[table], name)?;
                (index, self.field(index))
            }
            None => match self.window_column(name) {
                Some(expr) => return Ok(expr),
                None => match (self.index_of(name), self.alias(name)) {
                    (Ok(index), _) => (index, self.unqualified(index)),
                    (Err(_), Some(expr)) => return Ok(expr),
                    (Err(error), None) => return Err(self.without_window(name, error)),
                },
            },
        };
        self.seen.push((index, Position::of(qualifier.unwrap_or(name).span.start)));
        Ok(expr)
    }

    /// A column by its names: of nested records, or of a stream.
    pub(super) fn compound(&mut self, parts: &[ast::Ident]) -> Result<Expr, QueryError> {
        match (self.path(parts), parts) {
            (Some(index), _) => Ok(self.field(index)),
            (None, [qualifier, name]) if !self.has_group(&qualifier.value) => self.column(Some(qualifier), name),
            (None, _) => Err(self.unknown_path(parts)),
        }
    }

    /// The declaration of the column with this number among all tables' columns, and its table.
    pub(super) fn declared(&self, index: usize) -> Option<(&'a Table<'a>, &'a Field)> {
        let table = self.tables.iter().rev().find(|table| table.from <= index)?;
        Some((table, table.format.fields().get(index - table.from)?))
    }

    /// The column with this number among all tables' columns.
    pub(super) fn field(&self, index: usize) -> Expr {
        let field = self.declared(index);
        debug_assert!(field.is_some(), "a name was found among the columns");
        // The types of expressions on values that SQL has no type for: see `Program`.
        let (ty, nullable) = match field {
            None => (FieldType::String, true),
            Some((_, field)) if matches!(field.ty, FieldType::Enum { .. }) => (FieldType::String, true),
            Some((table, field)) => (field.ty, field.nullable || table.is_optional),
        };
        Expr { node: Node::Field(index), ty, nullable }
    }

    /// The table that a qualifier names: exactly, or the first that differs in case alone.
    pub(super) fn called(&self, qualifier: &ast::Ident) -> Option<Table<'a>> {
        let exactly = self.tables.iter().find(|table| table.called.0 == qualifier.value);
        exactly.or_else(|| self.tables.iter().find(|table| table.is_called(qualifier))).copied()
    }

    /// The field of a nested record that `record.field` or `stream.record.field` names; the stream comes first.
    pub(super) fn path(&mut self, parts: &[ast::Ident]) -> Option<usize> {
        let first = parts.first()?;
        let find = |tables: &[Table<'_>], parts: &[ast::Ident]| match parts {
            [] | [_] => None,
            parts => self.index_among(tables, &joined(parts)).ok(),
        };
        let index = match (self.called(first), parts) {
            (Some(table), [_, name]) if self.index_among(&[table], name).is_ok() => None,
            (Some(table), [_, rest @ ..]) => find(&[table], rest).or_else(|| find(self.tables, parts)),
            (_, parts) => find(self.tables, parts),
        }?;
        self.seen.push((index, Position::of(first.span.start)));
        Some(index)
    }

    /// Whether one of the tables has a nested record of this name.
    pub(super) fn has_group(&self, name: &str) -> bool {
        self.tables.iter().any(|table| table.format.group(name).is_some())
    }

    pub(super) fn unknown_path(&self, parts: &[ast::Ident]) -> QueryError {
        let name = joined(parts);
        let at = Position::of(name.span.start);
        unknown_column(self.tables, &name, at)
    }

    /// The column of this name: exactly, or, for a name without quotes, the only one that differs in case alone.
    pub(super) fn index_of(&self, name: &ast::Ident) -> Result<usize, QueryError> {
        self.index_among(self.tables, name)
    }

    pub(super) fn column_name(&self, index: usize) -> String {
        let table = self.tables.iter().rev().find(|table| table.from <= index);
        table.map_or_else(String::new, |table| table.column_name(index - table.from).to_owned())
    }

    fn index_among(&self, tables: &[Table<'_>], name: &ast::Ident) -> Result<usize, QueryError> {
        let at = Position::of(name.span.start);
        let found: Vec<(Table<'_>, bool, Vec<usize>)> = tables
            .iter()
            .map(|table| {
                let (is_exact, alike) = table.alike(name);
                (*table, is_exact, alike)
            })
            .collect();
        let any_exact = found.iter().any(|(_, is_exact, _)| *is_exact);
        let fitting = found.iter().filter(|(_, is_exact, _)| *is_exact == any_exact);
        let mut fitting: Vec<(&Table<'_>, usize)> =
            fitting.flat_map(|(table, _, alike)| alike.iter().map(move |index| (table, *index))).collect();
        // Columns that USING has made one are one, but for those that are named with their stream.
        let first_of = |number: usize| if tables.len() > 1 { self.first_of(number) } else { number };
        let mut seen: Vec<usize> = Vec::with_capacity(fitting.len());
        fitting.retain(|(table, index)| {
            let first = first_of(table.from + index);
            let is_new = !seen.contains(&first);
            seen.push(first);
            is_new
        });
        match (fitting.first().copied(), fitting.get(1).copied()) {
            (Some((table, index)), None) => Ok(first_of(table.from + index)),
            (Some((first, a)), Some((second, b))) if first.from == second.from => {
                let message =
                    format!("`{}` may be `{}` or `{}`", name.value, first.column_name(a), first.column_name(b));
                Err(QueryError::new(message, at).hint("write the name as it is, in double quotes"))
            }
            (Some((first, a)), Some((second, b))) => {
                let [first, second] = [(first, a), (second, b)]
                    .map(|(table, at)| format!("{}.{}", table.called.0, table.column_name(at)));
                let message = format!("`{}` may be `{first}` or `{second}`", name.value);
                Err(QueryError::new(message, at).hint(format!("say which: {first} or {second}")))
            }
            _ => Err(unknown_column(tables, name, at)),
        }
    }

    pub(super) fn wrong_qualifier(&self, qualifier: &ast::Ident, at: Option<Position>) -> QueryError {
        let names: Vec<String> = self.tables.iter().map(|table| format!("`{}`", table.called.0)).collect();
        let message = format!("the query reads no stream that is called `{}`", qualifier.value);
        QueryError::new(message, at)
            .hint(format!("its columns may be qualified by {}, or not at all", names.join(" or ")))
    }

    /// `` `dep_delay` is i64 ``, `'15' is a text`.
    pub(super) fn is_of_type(&self, source: &ast::Expr, ty: FieldType, literal: Literal) -> String {
        let kind = match literal {
            Literal::None if ty == FieldType::List => "a list".to_owned(),
            Literal::None => ty.to_string(),
            Literal::Null => "NULL".to_owned(),
            Literal::Text => "a text".to_owned(),
            Literal::Number => "a number".to_owned(),
            Literal::Interval => "an interval".to_owned(),
            Literal::Parameter => "a parameter".to_owned(),
            Literal::Element => format!("a list of {ty}"),
        };
        format!("{} is {kind}", described(source))
    }
}

fn unknown_column(tables: &[Table<'_>], name: &ast::Ident, at: Option<Position>) -> QueryError {
    let names: Vec<&str> =
        tables.iter().flat_map(|table| table.format.fields()).map(|field| field.name.as_str()).collect();
    let mut hint = match nearest(&name.value, &names) {
        Some(near) => format!("did you mean `{near}`? "),
        None => format!("a text is written in single quotes: '{}'; ", name.value.replace('\'', "''")),
    };
    hint.push_str("known: ");
    hint.push_str(&listed(&names));
    let message = match tables {
        [table] => format!("stream {} has no column `{}`", table.name, name.value),
        tables => {
            let called: Vec<&str> = tables.iter().map(|table| table.called.0).collect();
            format!("none of {} has a column `{}`", called.join(", "), name.value)
        }
    };
    QueryError::new(message, at).hint(hint)
}

/// The names of nested records and of a field as one name; in quotes if one of them is.
fn joined(parts: &[ast::Ident]) -> ast::Ident {
    let names: Vec<&str> = parts.iter().map(|part| part.value.as_str()).collect();
    let mut name = ast::Ident::new(names.join("."));
    name.quote_style = parts.iter().find_map(|part| part.quote_style);
    if let Some(first) = parts.first() {
        name.span = first.span;
    }
    name
}

/// Names in a row; of many, the first ones and how many more there are.
pub(crate) fn listed(names: &[&str]) -> String {
    let shown = names[..names.len().min(NAMES_SHOWN)].join(", ");
    if names.len() > NAMES_SHOWN { format!("{shown} and {} more", names.len() - NAMES_SHOWN) } else { shown }
}

/// The known name that is nearest to a misspelt one, if it is near.
pub(crate) fn nearest<'n>(name: &str, known: &[&'n str]) -> Option<&'n str> {
    let name = name.to_lowercase();
    let distances = known.iter().map(|known| (strsim::damerau_levenshtein(&name, &known.to_lowercase()), *known));
    let (distance, near) = distances.min_by_key(|&(distance, _)| distance)?;
    (distance <= (name.chars().count() / 3).max(1)).then_some(near)
}

/// An operand in a message: a name or a literal as it was written, else what it is.
fn described(source: &ast::Expr) -> String {
    match source {
        ast::Expr::Nested(inner) => described(inner),
        ast::Expr::Identifier(name) => format!("`{}`", name.value),
        ast::Expr::CompoundIdentifier(parts) => {
            let parts: Vec<&str> = parts.iter().map(|part| part.value.as_str()).collect();
            format!("`{}`", parts.join("."))
        }
        ast::Expr::Value(value) => {
            let text = value.to_string();
            if text.chars().count() <= 40 { text } else { text.chars().take(40).chain("...".chars()).collect() }
        }
        ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } if matches!(**expr, ast::Expr::Value(_)) => {
            format!("-{}", described(expr))
        }
        ast::Expr::Case { .. } => "this CASE".to_owned(),
        ast::Expr::Cast { .. } => "this CAST".to_owned(),
        ast::Expr::Function(function) => format!("this {}", function.name),
        _ => "this expression".to_owned(),
    }
}

/// Where an expression begins in the text. Not recursive: chains may be long.
pub(crate) fn place(source: &ast::Expr) -> Option<Position> {
    use ast::Expr as E;
    let mut source = source;
    loop {
        source = match source {
            E::Identifier(name) => return Position::of(name.span.start),
            E::CompoundIdentifier(parts) => return Position::of(parts.first()?.span.start),
            E::Value(value) => return Position::of(value.span.start),
            E::TypedString(typed) => return Position::of(typed.value.span.start),
            E::Case { case_token, .. } => return Position::of(case_token.0.span.start),
            E::Function(function) => match function.name.0.first()? {
                ast::ObjectNamePart::Identifier(name) => return Position::of(name.span.start),
                ast::ObjectNamePart::Function(_) => return None,
            },
            E::BinaryOp { left, .. }
            | E::AnyOp { left, .. }
            | E::AllOp { left, .. }
            | E::IsDistinctFrom(left, _)
            | E::IsNotDistinctFrom(left, _) => left,
            E::Nested(inner)
            | E::UnaryOp { expr: inner, .. }
            | E::Cast { expr: inner, .. }
            | E::IsNull(inner)
            | E::IsNotNull(inner)
            | E::IsTrue(inner)
            | E::IsNotTrue(inner)
            | E::IsFalse(inner)
            | E::IsNotFalse(inner)
            | E::IsUnknown(inner)
            | E::IsNotUnknown(inner)
            | E::InList { expr: inner, .. }
            | E::Between { expr: inner, .. }
            | E::Like { expr: inner, .. }
            | E::ILike { expr: inner, .. }
            | E::SimilarTo { expr: inner, .. }
            | E::AtTimeZone { timestamp: inner, .. }
            | E::Extract { expr: inner, .. }
            | E::Substring { expr: inner, .. }
            | E::Trim { expr: inner, .. }
            | E::Ceil { expr: inner, .. }
            | E::Floor { expr: inner, .. }
            | E::Collate { expr: inner, .. }
            | E::CompoundFieldAccess { root: inner, .. } => inner,
            E::Interval(interval) => &interval.value,
            E::Tuple(all) => all.first()?,
            E::Array(array) => array.elem.first()?,
            _ => return None,
        };
    }
}
