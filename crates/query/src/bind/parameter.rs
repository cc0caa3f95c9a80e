//! Parameters: values that are given beside the text, as text, and take their types from where they stand.

use std::collections::BTreeMap;

use crossdock_format::FieldType;
use sqlparser::ast;

use super::literal::{TIMESTAMP_FORM, hexadecimal};
use super::names::{listed, nearest, place};
use super::{Binder, Bound, Literal, not_possible};
use crate::decimal::Decimal;
use crate::error::{Position, QueryError};
use crate::expr::{Constant, Expr, Node, Parameter};
use crate::interpret::{self, ends_in_escape, parse_timestamp};

impl<'a> Binder<'a> {
    /// `$name`, whose type [`Binder::settle_as`] or [`Binder::settle`] settles.
    pub(super) fn parameter(&self, source: &'a ast::Expr, text: &str) -> Result<Bound<'a>, QueryError> {
        let Some(values) = self.values else {
            let error = not_possible(&format!("a parameter ({text})"), source);
            return Err(error.hint("write the value itself"));
        };
        let name = text.trim_start_matches('$');
        let at = place(source);
        let value = values.get(name).ok_or_else(|| missing(name, at))?;
        if value.contains('\0') {
            return Err(QueryError::new(format!("the parameter ${name}: a text cannot hold NUL"), at));
        }
        let parameter = Parameter { name: name.to_owned(), value: Constant::Text(value.clone()), at };
        let node = Node::Parameter(Box::new(parameter));
        let expr = Expr { node, ty: FieldType::String, nullable: false };
        Ok(Bound { expr, literal: Literal::Parameter, source })
    }

    /// Settles a parameter's type where it stands; anything else stays as it is.
    pub(super) fn settle_as(&self, bound: &mut Bound<'_>, ty: FieldType) -> Result<(), QueryError> {
        if bound.literal == Literal::Parameter
            && let Node::Parameter(parameter) = &mut bound.expr.node
            && let Constant::Text(text) = &parameter.value
        {
            parameter.value = value(parameter, text, ty)?;
            bound.expr.ty = ty;
            bound.literal = Literal::None;
        }
        Ok(())
    }

    /// Settles a parameter's type where any will do: as that of a literal that looks like its value.
    pub(super) fn settle(&self, bound: &mut Bound<'_>) {
        let (Literal::Parameter, Some(Constant::Text(text))) = (bound.literal, bound.expr.as_known()) else { return };
        let looks_like = [FieldType::I64, FieldType::U64, FieldType::F64].into_iter().find(|ty| {
            // Words that a CAST takes for numbers are texts here.
            text.bytes().any(|byte| byte.is_ascii_digit()) && converted(text, *ty).is_some()
        });
        let is_truth = ["true", "false"].iter().any(|word| text.eq_ignore_ascii_case(word));
        let ty = looks_like.unwrap_or(if is_truth { FieldType::Bool } else { FieldType::String });
        let settled = self.settle_as(bound, ty);
        debug_assert!(settled.is_ok(), "a parameter is what its value looks like: {settled:?}");
    }
}

/// Gives the parameters in `exprs` other values, of the types that they have.
pub(crate) fn set<'e>(
    names: &[String],
    exprs: impl Iterator<Item = &'e mut Expr>,
    values: &BTreeMap<String, String>,
) -> Result<(), QueryError> {
    let names: Vec<(String, Option<Position>)> = names.iter().map(|name| (name.clone(), None)).collect();
    check_names(&names, values)?;
    for expr in exprs {
        set_in(expr, values)?;
    }
    Ok(())
}

fn set_in(expr: &mut Expr, values: &BTreeMap<String, String>) -> Result<(), QueryError> {
    if let Node::Parameter(parameter) = &mut expr.node {
        let text = values.get(&parameter.name).ok_or_else(|| missing(&parameter.name, parameter.at))?;
        parameter.value = value(parameter, text, expr.ty)?;
    }
    for operand in expr.operands_mut() {
        set_in(operand, values)?;
    }
    if let Node::Like(like) = &expr.node
        && let (Node::Parameter(parameter), Some(Constant::Text(text))) = (&like.pattern.node, like.pattern.as_known())
        && ends_in_escape(text.as_bytes(), like.escape)
    {
        return Err(QueryError::new(
            format!("the pattern of ${} ends in its escape character", parameter.name),
            parameter.at,
        )
        .hint("write it twice to mean the character itself"));
    }
    if let Node::Call(call) = &mut expr.node {
        call.prepare().map_err(|(index, problem)| {
            let at = match call.arguments.get(index).map(|argument| &argument.node) {
                Some(Node::Parameter(parameter)) => parameter.at,
                _ => None,
            };
            QueryError::new(problem, at)
        })?;
    }
    Ok(())
}

/// Whether there is a value for each name, and no other.
pub(crate) fn check_names(
    names: &[(String, Option<Position>)],
    values: &BTreeMap<String, String>,
) -> Result<(), QueryError> {
    if let Some((name, at)) = names.iter().find(|(name, _)| !values.contains_key(name)) {
        return Err(missing(name, *at));
    }
    // Each name stands there once, so there are more values only if one has no name.
    if values.len() == names.len() {
        return Ok(());
    }
    let unknown = values.keys().find(|name| !names.iter().any(|(known, _)| known == *name));
    let Some(unknown) = unknown else { return Ok(()) };
    let known: Vec<&str> = names.iter().map(|(name, _)| name.as_str()).collect();
    let error = QueryError::new(format!("the query has no parameter `{unknown}`"), None);
    Err(match (&known[..], nearest(unknown, &known)) {
        ([], _) => error.hint("a parameter is written $name in the query"),
        (known, Some(near)) => error.hint(format!("did you mean `{near}`? it has: {}", listed(known))),
        (known, None) => error.hint(format!("it has: {}", listed(known))),
    })
}

fn missing(name: &str, at: Option<Position>) -> QueryError {
    QueryError::new(format!("the parameter ${name} has no value"), at).hint("give it one beside the query")
}

/// A parameter's value of this type.
fn value(parameter: &Parameter, text: &str, ty: FieldType) -> Result<Constant, QueryError> {
    converted(text, ty).ok_or_else(|| {
        let shown: String = text.chars().take(40).collect();
        let message = format!("the parameter ${} is {ty} here, and `{shown}` is none", parameter.name);
        let error = QueryError::new(message, parameter.at);
        match ty {
            FieldType::Timestamp => error.hint(TIMESTAMP_FORM),
            FieldType::Bytes => error.hint("bytes are written in hexadecimal: \\x00ff"),
            ty => match ty.integer_range() {
                Some((least, most)) => error.hint(format!("whole numbers go from {least} to {most} here")),
                None => error,
            },
        }
    })
}

/// The value of this type that a text says.
fn converted(text: &str, ty: FieldType) -> Option<Constant> {
    match ty {
        _ if text.contains('\0') => None,
        FieldType::String => Some(Constant::Text(text.to_owned())),
        FieldType::Char(most) => (text.len() <= most.into()).then(|| Constant::Text(text.to_owned())),
        FieldType::Timestamp => parse_timestamp(text).map(Constant::Timestamp),
        FieldType::Bytes => hexadecimal(text).map(Constant::Bytes),
        // A parameter is not rounded.
        FieldType::Decimal { scale, .. } => {
            let value = Decimal::parse(text.trim(), None).ok()?;
            value.rescaled_exactly(scale).map(Constant::Decimal)
        }
        _ => {
            let text = Expr::constant(Constant::Text(text.to_owned()), FieldType::String);
            let cast = Expr { node: Node::Cast(Box::new(text)), ty, nullable: false };
            // No literal is infinite.
            interpret::constant(&cast).filter(|value| !matches!(value, Constant::Float(value) if value.is_infinite()))
        }
    }
}
