//! Names of columns, and how places and operands are called in messages.

use crossdock_format::FieldType;
use sqlparser::ast;

use super::{Binder, Literal};
use crate::error::{Position, QueryError};
use crate::expr::{Expr, Node};

/// How many known names an error lists.
const NAMES_SHOWN: usize = 40;

impl<'a> Binder<'a> {
    /// `column` or `stream.column`.
    pub(super) fn column(&self, qualifier: Option<&ast::Ident>, name: &ast::Ident) -> Result<Expr, QueryError> {
        if let Some(qualifier) = qualifier
            && !self.select.is_called(qualifier)
        {
            return Err(self.wrong_qualifier(qualifier, Position::of(qualifier.span.start)));
        }
        self.index_of(name).map(|index| self.field(index))
    }

    pub(super) fn field(&self, index: usize) -> Expr {
        let field = &self.format.fields()[index];
        // The types of expressions on values that SQL has no type for: see `Program`.
        let (ty, nullable) = match field.ty {
            FieldType::Enum { .. } => (FieldType::String, true),
            ty => (ty, field.nullable),
        };
        Expr { node: Node::Field(index), ty, nullable }
    }

    /// The field of a nested record that `record.field` or `stream.record.field` names; the stream comes first.
    pub(super) fn path(&self, parts: &[ast::Ident]) -> Option<usize> {
        let find = |parts: &[ast::Ident]| match parts {
            [] | [_] => None,
            parts => self.index_of(&joined(parts)).ok(),
        };
        match parts {
            [stream, name] if self.select.is_called(stream) && self.index_of(name).is_ok() => None,
            [stream, rest @ ..] if self.select.is_called(stream) => find(rest).or_else(|| find(parts)),
            parts => find(parts),
        }
    }

    pub(super) fn unknown_path(&self, parts: &[ast::Ident]) -> QueryError {
        let name = joined(parts);
        let at = Position::of(name.span.start);
        self.unknown_column(&name, at)
    }

    /// The field of this name: exactly, or, for a name without quotes, the only one that differs in case alone.
    pub(super) fn index_of(&self, name: &ast::Ident) -> Result<usize, QueryError> {
        if let Some(index) = self.format.field(&name.value) {
            return Ok(index);
        }
        let at = Position::of(name.span.start);
        let fields = self.format.fields().iter().enumerate();
        let mut alike = fields
            .filter(|(_, field)| name.quote_style.is_none() && field.name.to_lowercase() == name.value.to_lowercase());
        match (alike.next(), alike.next()) {
            (Some((index, _)), None) => Ok(index),
            (Some((_, first)), Some((_, second))) => {
                let message = format!("`{}` may be `{}` or `{}`", name.value, first.name, second.name);
                Err(QueryError::new(message, at).hint("write the name as it is, in double quotes"))
            }
            _ => Err(self.unknown_column(name, at)),
        }
    }

    fn unknown_column(&self, name: &ast::Ident, at: Option<Position>) -> QueryError {
        let names: Vec<&str> = self.format.fields().iter().map(|field| field.name.as_str()).collect();
        let mut hint = match nearest(&name.value, &names) {
            Some(near) => format!("did you mean `{near}`? "),
            None => format!("a text is written in single quotes: '{}'; ", name.value.replace('\'', "''")),
        };
        hint.push_str("known: ");
        hint.push_str(&listed(&names));
        QueryError::new(format!("stream {} has no column `{}`", self.select.stream(), name.value), at).hint(hint)
    }

    pub(super) fn wrong_qualifier(&self, qualifier: &ast::Ident, at: Option<Position>) -> QueryError {
        let (name, _) = self.select.called();
        let message = format!("the query reads no stream that is called `{}`", qualifier.value);
        QueryError::new(message, at).hint(format!("its columns may be qualified by `{name}`, or not at all"))
    }

    /// `` `dep_delay` is i64 ``, `'15' is a text`.
    pub(super) fn is_of_type(&self, source: &ast::Expr, ty: FieldType, literal: Literal) -> String {
        let kind = match literal {
            Literal::None => ty.to_string(),
            Literal::Null => "NULL".to_owned(),
            Literal::Text => "a text".to_owned(),
            Literal::Number => "a number".to_owned(),
            Literal::Interval => "an interval".to_owned(),
            Literal::Parameter => "a parameter".to_owned(),
        };
        format!("{} is {kind}", described(source))
    }
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
pub(super) fn place(source: &ast::Expr) -> Option<Position> {
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
            E::BinaryOp { left, .. } | E::IsDistinctFrom(left, _) | E::IsNotDistinctFrom(left, _) => left,
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
            _ => return None,
        };
    }
}
