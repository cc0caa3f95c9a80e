//! Calls of functions and operators of the table: which entry is meant, and its arguments as it takes them.

use crossdock_format::FieldType;
use sqlparser::ast;

use super::literal::text_as;
use super::names::place;
use super::over::form_of;
use super::types::can_cast;
use super::{Binder, Bound, Literal, build, not_possible};
use crate::error::{Position, QueryError};
use crate::expr::{Call, Class, Constant, Expr, is_decimal, is_float};
use crate::function::{Body, Form, Function, Gives, Kind, MAX_ARGUMENTS, Prepared};
use crate::stateful::aggregates::AggregateEntry;

/// Where the functions are listed; ends messages about one that is not.
const LISTED: &str = "docs/sql.md lists all functions";

impl<'a> Binder<'a> {
    /// `name(arguments)`.
    pub(super) fn function(&mut self, source: &'a ast::Expr, function: &'a ast::Function) -> Result<Expr, QueryError> {
        let name = function.name.to_string().to_ascii_lowercase();
        if let Some(expr) = self.over(source, function, &name)? {
            return Ok(expr);
        }
        if let Some(expr) = self.aggregate(source, function, &name)? {
            return Ok(expr);
        }
        if Function::named(&name).all(Function::is_operator) {
            return Err(unknown_function(source, function, &name));
        }
        let arguments = plain_arguments(function).filter(|_| function.over.is_none());
        let arguments = arguments.ok_or_else(|| not_possible("this form of call", source).hint(LISTED))?;
        self.call(source, &name, &arguments)
    }

    /// A call by name, with these arguments.
    pub(super) fn call(
        &mut self,
        source: &'a ast::Expr,
        name: &str,
        arguments: &[&'a ast::Expr],
    ) -> Result<Expr, QueryError> {
        let arguments: Result<Vec<_>, _> = arguments.iter().map(|argument| self.argument(argument)).collect();
        self.call_of(source, name, arguments?)
    }

    /// An argument, which may be an interval or a list: [`Kind::cost`] refuses those that are not taken.
    pub(super) fn argument(&mut self, source: &'a ast::Expr) -> Result<Bound<'a>, QueryError> {
        match as_interval(source) {
            Some(interval) => self.interval(source, interval),
            None => self.bind_any(source),
        }
    }

    /// A field that the grammar has as a word, as in `EXTRACT(hour FROM …)`.
    pub(super) fn word(source: &'a ast::Expr, word: &str) -> Bound<'a> {
        let expr = Expr::constant(Constant::Text(word.to_owned()), FieldType::String);
        Bound { expr, literal: Literal::Text, source }
    }

    /// `INTERVAL '5' SECOND` or `INTERVAL '5 seconds'`.
    fn interval(&self, source: &'a ast::Expr, interval: &ast::Interval) -> Result<Bound<'a>, QueryError> {
        let text = interval_text(source, interval)?;
        Ok(Bound { literal: Literal::Interval, ..Self::word(source, &text) })
    }

    /// A call with arguments that are bound.
    pub(super) fn call_of(
        &mut self,
        source: &'a ast::Expr,
        name: &str,
        mut arguments: Vec<Bound<'a>>,
    ) -> Result<Expr, QueryError> {
        let takes_count = |function: &&Function| {
            let least = function.arguments.len() - function.optional;
            let most = match function.body {
                _ if !function.is_variadic => function.arguments.len(),
                Body::Form(_) => usize::MAX,
                _ => MAX_ARGUMENTS,
            };
            (least..=most).contains(&arguments.len())
        };
        let fitting: Vec<&'static Function> = Function::named(name).filter(takes_count).collect();
        for (index, argument) in
            arguments.iter_mut().enumerate().filter(|(_, given)| given.literal == Literal::Parameter)
        {
            let mut kinds = fitting.iter().map(|function| kind_at(function, index));
            match (kinds.next(), kinds.next()) {
                // Beside other values it takes their type.
                (Some(Kind::Any | Kind::Same | Kind::Element), None) => {}
                (Some(kind), None) => match kind.settled() {
                    Some(ty) => self.settle_as(argument, ty)?,
                    None => self.settle(argument),
                },
                _ => self.settle(argument),
            }
        }
        let costs = fitting.iter().filter_map(|function| {
            let costs = arguments.iter().enumerate().map(|(index, given)| kind_at(function, index).cost(given));
            Some((costs.sum::<Option<u32>>()?, *function))
        });
        let Some((_, function)) = costs.min_by_key(|(cost, _)| *cost) else {
            return Err(self.no_such_call(source, name, &arguments));
        };
        match function.body {
            Body::Form(form) => self.form(form, arguments),
            _ => self.call_to(source, function, arguments),
        }
    }

    fn form(&self, form: Form, mut arguments: Vec<Bound<'a>>) -> Result<Expr, QueryError> {
        Ok(match (form, &mut arguments[..]) {
            (Form::NullIf, [left, right]) => {
                self.reconcile(left, right)?;
                build::null_if(left.expr.clone(), right.expr.clone())
            }
            (Form::Try, [operand]) => {
                self.settle(operand);
                operand.expr.clone().or_null()
            }
            (_, arguments) => {
                let ty = self.unify("COALESCE", arguments)?;
                build::coalesce(arguments.iter().map(|argument| argument.expr.clone()).collect(), ty)
            }
        })
    }

    fn call_to(
        &self,
        source: &'a ast::Expr,
        function: &'static Function,
        mut arguments: Vec<Bound<'a>>,
    ) -> Result<Expr, QueryError> {
        let mut common = None;
        if function.arguments.contains(&Kind::Same) {
            common = Some(self.unify(function.name, &mut arguments)?);
        }
        if let ([Kind::Values, ..], [list, others @ ..]) = (function.arguments, &mut arguments[..]) {
            let mut element = self.element(list)?;
            let elements = others.iter_mut().zip(&function.arguments[1..]).filter(|(_, kind)| **kind == Kind::Element);
            for (other, _) in elements {
                self.reconcile(&mut element, other)?;
            }
            common = Some(element.expr.ty).filter(|_| matches!(function.result, Gives::Element));
        }
        let mut exprs = Vec::with_capacity(arguments.len());
        for (index, argument) in arguments.iter().enumerate() {
            exprs.push(converted(argument, kind_at(function, index))?);
        }
        let ty = common.unwrap_or_else(|| function.result_type(&exprs));
        let mut call = Call { function, arguments: exprs, prepared: Prepared::None };
        call.prepare().map_err(|(index, problem)| {
            QueryError::new(problem, arguments.get(index).map_or_else(|| place(source), |given| place(given.source)))
        })?;
        Ok(build::call(call, ty))
    }

    /// The error for arguments that no entry of this name takes.
    fn no_such_call(&self, source: &ast::Expr, name: &str, arguments: &[Bound<'_>]) -> QueryError {
        let types: Vec<String> = arguments
            .iter()
            .map(|given| match given.literal {
                Literal::Null => "NULL".to_owned(),
                Literal::Text => "a text".to_owned(),
                Literal::Interval => "an interval".to_owned(),
                _ if given.expr.ty == FieldType::List => "a list".to_owned(),
                _ => given.expr.ty.to_string(),
            })
            .collect();
        let what = if types.is_empty() { "no arguments".to_owned() } else { types.join(", ") };
        let at = arguments.first().filter(|_| Function::named(name).any(Function::is_operator));
        let at = at.map_or_else(|| place(source), |first| place(first.source));
        let signatures: Vec<String> = Function::named(name).map(Function::signature).collect();
        QueryError::new(format!("`{name}` cannot be called with {what}"), at).hint(signatures.join("; "))
    }
}

/// `INTERVAL '…'`, in parentheses perhaps.
pub(crate) fn as_interval(source: &ast::Expr) -> Option<&ast::Interval> {
    match source {
        ast::Expr::Interval(interval) => Some(interval),
        ast::Expr::Nested(inner) => as_interval(inner),
        _ => None,
    }
}

/// The text of an interval, its unit in it.
pub(crate) fn interval_text(source: &ast::Expr, interval: &ast::Interval) -> Result<String, QueryError> {
    let ast::Interval {
        value,
        leading_field,
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    } = interval
    else {
        return Err(not_possible("this form of an interval", source).hint("write INTERVAL '1 day 2 hours'"));
    };
    let text = match &**value {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::SingleQuotedString(text) | ast::Value::Number(text, _) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    };
    let mut text = text
        .ok_or_else(|| not_possible("an interval that is computed", source).hint("write INTERVAL '1 day 2 hours'"))?;
    if let Some(unit) = leading_field {
        text.push(' ');
        text.push_str(&unit.to_string().to_ascii_lowercase());
    }
    Ok(text)
}

/// The kind of a function's argument; further ones are of the last kind.
fn kind_at(function: &Function, index: usize) -> Kind {
    function.arguments.get(index).or(function.arguments.last()).copied().unwrap_or(Kind::Any)
}

impl Kind {
    /// The type that a parameter takes here; `None` if any will do.
    fn settled(self) -> Option<FieldType> {
        match self {
            Kind::Text | Kind::Word | Kind::Interval => Some(FieldType::String),
            Kind::Integer | Kind::Digits => Some(FieldType::I64),
            Kind::Float => Some(FieldType::F64),
            Kind::Timestamp => Some(FieldType::Timestamp),
            Kind::Bytes => Some(FieldType::Bytes),
            Kind::Decimal | Kind::Any | Kind::Same | Kind::Printed | Kind::List | Kind::Values | Kind::Element => None,
        }
    }

    /// 0 for a value of this kind, more for one that becomes one; `None` for others.
    fn cost(self, given: &Bound<'_>) -> Option<u32> {
        let ty = given.expr.ty;
        if matches!(self, Kind::List | Kind::Values) || ty == FieldType::List {
            return (matches!(self, Kind::List | Kind::Values) && ty == FieldType::List).then_some(0);
        }
        match (self, given.literal) {
            (Kind::Interval, literal) => return (literal == Literal::Interval).then_some(0),
            (_, Literal::Interval) => return None,
            (_, Literal::Null) => return Some(0),
            (Kind::Timestamp | Kind::Bytes, Literal::Text) => return Some(1),
            _ => {}
        }
        match self {
            Kind::Text => (Class::of(ty) == Class::Text).then_some(0),
            // A text that is not known is refused by name: see `Call::prepare`.
            Kind::Word => (Class::of(ty) == Class::Text).then_some(0),
            Kind::Integer | Kind::Digits => ty.is_integer().then_some(0),
            Kind::Decimal if ty.is_integer() => Some(1),
            Kind::Decimal => is_decimal(ty).then_some(0),
            Kind::Float if ty.is_integer() || is_decimal(ty) => Some(1),
            Kind::Float => is_float(ty).then_some(0),
            Kind::Timestamp => (ty == FieldType::Timestamp).then_some(0),
            Kind::Bytes => (ty == FieldType::Bytes).then_some(0),
            Kind::Printed => can_cast(ty, FieldType::String).then_some(0),
            Kind::Interval | Kind::List | Kind::Values | Kind::Any | Kind::Same | Kind::Element => Some(0),
        }
    }
}

/// An argument as the function takes it.
fn converted(given: &Bound<'_>, kind: Kind) -> Result<Expr, QueryError> {
    if given.literal == Literal::Null && kind != Kind::Same {
        let ty = match kind {
            Kind::Decimal => FieldType::Decimal { bytes: 16, scale: 0 },
            kind => kind.settled().unwrap_or(FieldType::String),
        };
        return Ok(Expr::constant(Constant::Null, ty));
    }
    let expr = given.expr.clone();
    match kind {
        Kind::Decimal if expr.ty.is_integer() => Ok(build::cast(expr, FieldType::Decimal { bytes: 16, scale: 0 })),
        Kind::Float if !is_float(expr.ty) => Ok(build::cast(expr, FieldType::F64)),
        Kind::Timestamp if given.literal == Literal::Text => text_as(given, FieldType::Timestamp),
        Kind::Bytes if given.literal == Literal::Text => text_as(given, FieldType::Bytes),
        Kind::Printed if !expr.ty.is_text() => Ok(build::cast(expr, FieldType::String)),
        _ => Ok(expr),
    }
}

/// The arguments of a call that is nothing but a name and arguments, and perhaps OVER.
pub(super) fn plain_arguments(function: &ast::Function) -> Option<Vec<&ast::Expr>> {
    let ast::Function {
        name: _,
        uses_odbc_syntax: false,
        parameters: ast::FunctionArguments::None,
        args: ast::FunctionArguments::List(ast::FunctionArgumentList { duplicate_treatment: None, args, clauses }),
        within_group,
        filter: None,
        null_treatment: None,
        over: _,
    } = function
    else {
        return None;
    };
    if !clauses.is_empty() || !within_group.is_empty() {
        return None;
    }
    let plain = args.iter().map(|argument| match argument {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    plain.collect()
}

/// Names in other databases, and what serves here.
const ELSEWHERE: &[(&str, &str)] = &[
    ("ifnull", "coalesce"),
    ("isnull", "coalesce"),
    ("nvl", "coalesce"),
    ("len", "length"),
    ("ucase", "upper"),
    ("lcase", "lower"),
    ("instr", "strpos"),
    ("array_contains", "= ANY"),
    ("list_contains", "= ANY"),
    ("list_position", "array_position"),
    ("array_size", "cardinality"),
    ("pow", "power"),
    ("regexp_extract", "regexp_substr"),
    ("regexp_match", "regexp_substr"),
    ("json_extract", "->"),
    ("json_extract_path_text", "#>>"),
    ("datetrunc", "date_trunc"),
    ("strftime", "to_char"),
    ("if", "CASE WHEN … THEN … ELSE … END"),
    ("iif", "CASE WHEN … THEN … ELSE … END"),
];
const CLOCKS: [&str; 6] =
    ["now", "current_timestamp", "clock_timestamp", "statement_timestamp", "random", "gen_random_uuid"];

fn unknown_function(source: &ast::Expr, function: &ast::Function, name: &str) -> QueryError {
    let at = function.name.0.first().and_then(|part| match part {
        ast::ObjectNamePart::Identifier(name) => Position::of(name.span.start),
        ast::ObjectNamePart::Function(_) => None,
    });
    let at = at.or_else(|| place(source));
    if function.over.is_some() {
        return QueryError::new("windows are not possible: records pass one by one", at).hint(LISTED);
    }
    if let Some(form) = form_of(name) {
        return QueryError::new(format!("`{name}` is called with OVER, in a query of a subscription or a handler"), at)
            .hint(form);
    }
    if name == "array_agg" {
        let message = "array_agg() is not possible: expressions make no lists";
        return QueryError::new(message, at).hint("string_agg joins texts");
    }
    if AggregateEntry::named(name).next().is_some() {
        let message = format!("{name}() is not possible: records pass one by one and are not aggregated");
        return QueryError::new(message, at).hint(LISTED);
    }
    if CLOCKS.contains(&name) {
        let message = format!("{name}() is not possible: what a query gives depends on the record alone");
        return QueryError::new(message, at).hint("a value of the moment can be given as a parameter: $name");
    }
    let near = near_names(name);
    let hint = if near.is_empty() { LISTED.to_owned() } else { format!("did you mean {near}? {LISTED}") };
    QueryError::new(format!("there is no function `{name}`"), at).hint(hint)
}

/// Up to three names that are near to this one, the nearest first, as text.
fn near_names(name: &str) -> String {
    if let Some((_, here)) = ELSEWHERE.iter().find(|(elsewhere, _)| *elsewhere == name) {
        return format!("`{here}`");
    }
    let most = (name.chars().count() / 3).max(1);
    let mut near: Vec<(usize, &str)> = Function::names()
        .into_iter()
        .map(|known| (strsim::damerau_levenshtein(name, known), known))
        .filter(|(distance, known)| *distance <= most || (name.len() >= 3 && known.starts_with(name)))
        .collect();
    near.sort_unstable();
    near.dedup();
    let near: Vec<String> = near.iter().take(3).map(|(_, known)| format!("`{known}`")).collect();
    near.join(" or ")
}
