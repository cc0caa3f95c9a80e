//! Expressions, node by node: what the text says → a checked node.

use crossdock_format::FieldType;
use sqlparser::ast::{self, BinaryOperator, UnaryOperator};

use super::names::place;
use super::types::{can_cast, number_for};
use super::{Binder, Bound, FUNCTIONS, Literal, build, literal, not_possible};
use crate::error::{Position, QueryError};
use crate::expr::{ArithmeticOp, Class, CompareOp, Constant, Expr, Like, is_float};
use crate::interpret::ends_in_escape;

type Operands<'a> = Vec<&'a ast::Expr>;

impl<'a> Binder<'a> {
    pub(super) fn node(&mut self, source: &'a ast::Expr) -> Result<Bound<'a>, QueryError> {
        use ast::Expr as E;
        let expr = match source {
            E::Nested(inner) => return Ok(Bound { source, ..self.bind(inner)? }),
            E::Value(value) => return self.value(source, &value.value),
            E::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => return self.signed(source, expr),
            E::Identifier(name) => self.column(None, name)?,
            E::CompoundIdentifier(parts) => match (self.path(parts), &parts[..]) {
                (Some(index), _) => self.field(index),
                (None, [qualifier, name]) if self.format.group(&qualifier.value).is_none() => {
                    self.column(Some(qualifier), name)?
                }
                (None, _) => return Err(self.unknown_path(parts)),
            },
            E::UnaryOp { op: UnaryOperator::Not, expr } => build::not(self.bind_condition(expr, "NOT")?),
            E::BinaryOp { left, op, right } => self.binary(source, left, op, right)?,
            E::IsNull(operand) => build::is_null(false, self.bind_any(operand)?.expr),
            E::IsNotNull(operand) => build::is_null(true, self.bind_any(operand)?.expr),
            E::IsTrue(operand) => build::is_truth(Some(true), false, self.bind_condition(operand, "IS TRUE")?),
            E::IsNotTrue(operand) => build::is_truth(Some(true), true, self.bind_condition(operand, "IS NOT TRUE")?),
            E::IsFalse(operand) => build::is_truth(Some(false), false, self.bind_condition(operand, "IS FALSE")?),
            E::IsNotFalse(operand) => build::is_truth(Some(false), true, self.bind_condition(operand, "IS NOT FALSE")?),
            E::IsUnknown(operand) => build::is_truth(None, false, self.bind_condition(operand, "IS UNKNOWN")?),
            E::IsNotUnknown(operand) => build::is_truth(None, true, self.bind_condition(operand, "IS NOT UNKNOWN")?),
            E::IsDistinctFrom(left, right) => self.distinct(false, left, right)?,
            E::IsNotDistinctFrom(left, right) => self.distinct(true, left, right)?,
            E::InList { expr, list, negated } => self.is_in(*negated, expr, list)?,
            E::Between { expr, negated, low, high } => self.between(*negated, expr, low, high)?,
            E::Like { negated, any: false, expr, pattern, escape_char } => {
                self.like(*negated, false, [expr, pattern], escape_char.as_deref())?
            }
            E::ILike { negated, any: false, expr, pattern, escape_char } => {
                self.like(*negated, true, [expr, pattern], escape_char.as_deref())?
            }
            E::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref())?
            }
            E::Cast { kind: ast::CastKind::Cast | ast::CastKind::DoubleColon, expr, data_type, format: None } => {
                let ty = self.type_named(source, data_type)?;
                self.cast(expr, ty)?
            }
            E::TypedString(typed) => self.typed_literal(source, typed)?,
            E::Function(function) => self.function(source, function)?,
            _ => return Err(refused(source)),
        };
        Ok(Bound { expr, literal: Literal::None, source })
    }

    fn bind_condition(&mut self, source: &'a ast::Expr, what: &str) -> Result<Expr, QueryError> {
        let bound = self.bind(source)?;
        self.condition(bound, what)
    }

    /// `-x`, `+x`. The sign belongs to a literal, or the least whole number could not be written.
    fn signed(&mut self, source: &'a ast::Expr, operand: &'a ast::Expr) -> Result<Bound<'a>, QueryError> {
        let is_minus = matches!(source, ast::Expr::UnaryOp { op: UnaryOperator::Minus, .. });
        if let ast::Expr::Value(value) = operand
            && let ast::Value::Number(digits, false) = &value.value
        {
            return Ok(Bound { source, ..literal::number(operand, digits, is_minus)? });
        }
        let mut bound = self.bind(operand)?;
        number_for(self, &mut bound, if is_minus { "unary -" } else { "unary +" })?;
        let literal = bound.literal;
        let expr = if is_minus { build::negate(bound.expr) } else { bound.expr };
        let literal = if expr.as_constant().is_some() { literal } else { Literal::None };
        Ok(Bound { expr, literal, source })
    }

    fn binary(
        &mut self,
        source: &'a ast::Expr,
        left: &'a ast::Expr,
        op: &BinaryOperator,
        right: &'a ast::Expr,
    ) -> Result<Expr, QueryError> {
        if let Some(op) = compare_op(op) {
            return self.compare(op, left, right);
        }
        match op {
            BinaryOperator::And | BinaryOperator::Or => self.junction(source, op),
            BinaryOperator::StringConcat => self.concat(source),
            BinaryOperator::Plus => self.arithmetic(ArithmeticOp::Add, left, right),
            BinaryOperator::Minus => self.arithmetic(ArithmeticOp::Subtract, left, right),
            BinaryOperator::Multiply => self.arithmetic(ArithmeticOp::Multiply, left, right),
            BinaryOperator::Divide => self.arithmetic(ArithmeticOp::Divide, left, right),
            BinaryOperator::Modulo => self.arithmetic(ArithmeticOp::Remainder, left, right),
            op => Err(not_possible(&format!("the operator {op}"), right)
                .hint("operators: + - * / % || = <> < <= > >= AND OR NOT IN BETWEEN LIKE ILIKE IS")),
        }
    }

    fn junction(&mut self, source: &'a ast::Expr, op: &BinaryOperator) -> Result<Expr, QueryError> {
        let what = if *op == BinaryOperator::And { "AND" } else { "OR" };
        let mut conditions = Vec::new();
        for source in chain(source, op) {
            conditions.push(self.bind_condition(source, what)?);
        }
        Ok(if *op == BinaryOperator::And { build::and(conditions) } else { build::or(conditions) })
    }

    fn compare(&mut self, op: CompareOp, left: &'a ast::Expr, right: &'a ast::Expr) -> Result<Expr, QueryError> {
        for operand in [left, right] {
            if matches!(operand, ast::Expr::BinaryOp { op, .. } if compare_op(op).is_some()) {
                let error = QueryError::new("comparisons do not chain", place(operand));
                return Err(error.hint("a < b AND b < c; or, for truth values, put one of them in parentheses"));
            }
        }
        let (left, right) = self.pair(left, right)?;
        Ok(build::compare(op, left, right))
    }

    /// Two operands that compare.
    fn pair(&mut self, left: &'a ast::Expr, right: &'a ast::Expr) -> Result<(Expr, Expr), QueryError> {
        let (mut left, mut right) = (self.bind(left)?, self.bind(right)?);
        self.reconcile(&mut left, &mut right)?;
        Ok((left.expr, right.expr))
    }

    fn distinct(&mut self, negated: bool, left: &'a ast::Expr, right: &'a ast::Expr) -> Result<Expr, QueryError> {
        let (left, right) = self.pair(left, right)?;
        Ok(build::distinct(negated, left, right))
    }

    fn is_in(&mut self, negated: bool, operand: &'a ast::Expr, list: &'a [ast::Expr]) -> Result<Expr, QueryError> {
        let mut operand = self.bind(operand)?;
        let mut items = Vec::with_capacity(list.len());
        for item in list {
            let mut item = self.bind(item)?;
            self.reconcile(&mut operand, &mut item)?;
            items.push(item.expr);
        }
        if items.is_empty() {
            return Err(QueryError::new("the list of IN is empty", place(operand.source)));
        }
        Ok(build::is_in(negated, operand.expr, items))
    }

    fn between(
        &mut self,
        negated: bool,
        operand: &'a ast::Expr,
        low: &'a ast::Expr,
        high: &'a ast::Expr,
    ) -> Result<Expr, QueryError> {
        let (mut operand, mut low, mut high) = (self.bind(operand)?, self.bind(low)?, self.bind(high)?);
        self.reconcile(&mut operand, &mut low)?;
        self.reconcile(&mut operand, &mut high)?;
        // A literal operand took its type from one bound; the other must go with that too.
        self.reconcile(&mut low, &mut high)?;
        Ok(build::between(negated, operand.expr, low.expr, high.expr))
    }

    fn like(
        &mut self,
        negated: bool,
        any_case: bool,
        operands: [&'a ast::Expr; 2],
        escape: Option<&'a ast::Expr>,
    ) -> Result<Expr, QueryError> {
        let [operand, pattern] = operands;
        let at = place(pattern);
        let (operand, pattern) = (self.like_operand(operand)?, self.like_operand(pattern)?);
        let escape = match escape {
            None => Some('\\'),
            Some(source) => escape_char(source)?,
        };
        if let Some(Constant::Text(text)) = pattern.as_known()
            && ends_in_escape(text.as_bytes(), escape)
        {
            let error = QueryError::new("the pattern ends in its escape character", at);
            return Err(error.hint("write it twice to mean the character itself"));
        }
        Ok(build::like(Like { negated, any_case, operand, pattern, escape }))
    }

    fn like_operand(&mut self, source: &'a ast::Expr) -> Result<Expr, QueryError> {
        let mut operand = self.bind(source)?;
        self.settle_as(&mut operand, FieldType::String)?;
        if Class::of(operand.expr.ty) == Class::Text {
            return Ok(operand.expr);
        }
        let is = self.is_of_type(source, operand.expr.ty, operand.literal);
        let error = QueryError::new(format!("LIKE compares texts, and {is}"), place(source));
        Err(error.hint("CAST(expression AS text) makes a text of it"))
    }

    fn arithmetic(&mut self, op: ArithmeticOp, left: &'a ast::Expr, right: &'a ast::Expr) -> Result<Expr, QueryError> {
        let (mut left, mut right) = (self.bind(left)?, self.bind(right)?);
        // NULL takes the type across from it, so that NULL + 1.5 is a float.
        if left.literal == Literal::Null && is_float(right.expr.ty) {
            left.expr.ty = right.expr.ty;
        } else if right.literal == Literal::Null && is_float(left.expr.ty) {
            right.expr.ty = left.expr.ty;
        }
        // With a float a parameter is one, even if it looks like a whole number now.
        if is_float(left.expr.ty) {
            self.settle_as(&mut right, FieldType::F64)?;
        } else if is_float(right.expr.ty) {
            self.settle_as(&mut left, FieldType::F64)?;
        }
        for operand in [&mut left, &mut right] {
            number_for(self, operand, op.sql())?;
        }
        Ok(build::arithmetic(op, left.expr, right.expr))
    }

    fn concat(&mut self, source: &'a ast::Expr) -> Result<Expr, QueryError> {
        let mut parts = Vec::new();
        for part in chain(source, &BinaryOperator::StringConcat) {
            parts.push(self.bind(part)?);
        }
        if !parts.iter().any(|part| Class::of(part.expr.ty) == Class::Text) {
            let first = &parts[0];
            let is = self.is_of_type(first.source, first.expr.ty, first.literal);
            let error = QueryError::new(format!("|| joins texts, and {is}"), place(source));
            return Err(error.hint("CAST(expression AS text) makes a text of it"));
        }
        let mut texts = Vec::with_capacity(parts.len());
        for part in parts {
            if !can_cast(part.expr.ty, FieldType::String) {
                let is = self.is_of_type(part.source, part.expr.ty, part.literal);
                return Err(QueryError::new(format!("|| joins texts, and {is}"), place(part.source)));
            }
            let is_text = Class::of(part.expr.ty) == Class::Text;
            texts.push(if is_text { part.expr } else { build::cast(part.expr, FieldType::String) });
        }
        Ok(build::concat(texts))
    }

    fn case(
        &mut self,
        operand: Option<&'a ast::Expr>,
        conditions: &'a [ast::CaseWhen],
        otherwise: Option<&'a ast::Expr>,
    ) -> Result<Expr, QueryError> {
        let mut operand = match operand {
            Some(operand) => Some(self.bind(operand)?),
            None => None,
        };
        let mut whens = Vec::with_capacity(conditions.len());
        let mut results = Vec::with_capacity(conditions.len() + 1);
        for ast::CaseWhen { condition, result } in conditions {
            whens.push(match &mut operand {
                Some(operand) => {
                    let mut value = self.bind(condition)?;
                    self.reconcile(operand, &mut value)?;
                    value.expr
                }
                None => self.bind_condition(condition, "WHEN")?,
            });
            results.push(self.bind(result)?);
        }
        if let Some(otherwise) = otherwise {
            results.push(self.bind(otherwise)?);
        }
        let ty = self.unify("CASE", &mut results)?;
        let mut results: Vec<Expr> = results.into_iter().map(|result| result.expr).collect();
        let otherwise = otherwise.and_then(|_| results.pop());
        let branches = whens.into_iter().zip(results).collect();
        Ok(build::case(operand.map(|operand| operand.expr), branches, otherwise, ty))
    }

    fn cast(&mut self, source: &'a ast::Expr, ty: FieldType) -> Result<Expr, QueryError> {
        let mut bound = self.bind(source)?;
        self.settle_as(&mut bound, ty)?;
        match bound.literal {
            Literal::Null => return Ok(Expr::constant(Constant::Null, ty)),
            Literal::Text if matches!(ty, FieldType::Bytes | FieldType::Timestamp) => {
                return literal::text_as(&bound, ty);
            }
            _ => {}
        }
        if !can_cast(bound.expr.ty, ty) {
            let is = self.is_of_type(source, bound.expr.ty, bound.literal);
            return Err(QueryError::new(format!("{is}, and cannot be cast to {ty}"), place(source)));
        }
        let expr = build::cast(bound.expr, ty);
        if bound.literal != Literal::None && expr.as_constant().is_none() {
            let error = QueryError::new(format!("{source} does not say a value of type {ty}"), place(source));
            return Err(error);
        }
        Ok(expr)
    }

    /// `TIMESTAMP '…'`, and the like for other types.
    fn typed_literal(&mut self, source: &'a ast::Expr, typed: &'a ast::TypedString) -> Result<Expr, QueryError> {
        let ty = match self.type_named(source, &typed.data_type) {
            Err(error) if matches!(typed.data_type, ast::DataType::Date) => {
                return Err(error.hint("there are no dates; midnight is written TIMESTAMP '2013-01-31'"));
            }
            ty => ty?,
        };
        let bound = self.value(source, &typed.value.value)?;
        let expr = match ty {
            FieldType::Bytes | FieldType::Timestamp => literal::text_as(&bound, ty)?,
            _ => build::cast(bound.expr, ty),
        };
        if bound.literal == Literal::Text && expr.as_constant().is_some() {
            return Ok(expr);
        }
        Err(QueryError::new(format!("{} does not say a value of type {ty}", typed.value), place(source)))
    }

    fn function(&mut self, source: &'a ast::Expr, function: &'a ast::Function) -> Result<Expr, QueryError> {
        let name = function.name.to_string().to_ascii_lowercase();
        if !matches!(name.as_str(), "coalesce" | "nullif" | "try") {
            return Err(unknown_function(source, function, &name));
        }
        let mut arguments = Vec::new();
        for argument in
            plain_arguments(function).ok_or_else(|| not_possible("this form of call", source).hint(FUNCTIONS))?
        {
            arguments.push(self.bind(argument)?);
        }
        if name == "coalesce" && !arguments.is_empty() {
            let ty = self.unify("COALESCE", &mut arguments)?;
            return Ok(build::coalesce(arguments.into_iter().map(|argument| argument.expr).collect(), ty));
        }
        if let ("nullif", [left, right]) = (name.as_str(), &mut arguments[..]) {
            self.reconcile(left, right)?;
            return Ok(build::null_if(left.expr.clone(), right.expr.clone()));
        }
        if let ("try", [operand]) = (name.as_str(), &mut arguments[..]) {
            self.settle(operand);
            return Ok(operand.expr.clone().or_null());
        }
        let count = match name.as_str() {
            "nullif" => "two arguments",
            "try" => "one argument",
            _ => "at least one argument",
        };
        Err(QueryError::new(format!("{} takes {count}", name.to_uppercase()), place(source)))
    }
}

fn compare_op(op: &BinaryOperator) -> Option<CompareOp> {
    Some(match op {
        BinaryOperator::Eq => CompareOp::Eq,
        BinaryOperator::NotEq => CompareOp::Ne,
        BinaryOperator::Lt => CompareOp::Lt,
        BinaryOperator::LtEq => CompareOp::Le,
        BinaryOperator::Gt => CompareOp::Gt,
        BinaryOperator::GtEq => CompareOp::Ge,
        _ => return None,
    })
}

/// The operands of a chain of one associative operator, from left to right. Not recursive: chains may be long.
fn chain<'a>(source: &'a ast::Expr, op: &BinaryOperator) -> Operands<'a> {
    let mut operands = Vec::new();
    let mut waiting = vec![source];
    while let Some(source) = waiting.pop() {
        match source {
            ast::Expr::BinaryOp { left, op: inner, right } if inner == op => waiting.extend([&**right, &**left]),
            operand => operands.push(operand),
        }
    }
    operands
}

fn escape_char(source: &ast::Expr) -> Result<Option<char>, QueryError> {
    if let ast::Expr::Value(value) = source
        && let ast::Value::SingleQuotedString(text) = &value.value
    {
        let mut chars = text.chars();
        if let (escape, None) = (chars.next(), chars.next()) {
            return Ok(escape);
        }
    }
    Err(QueryError::new("ESCAPE takes one character", place(source)).hint("ESCAPE '!', or ESCAPE '' for none"))
}

/// The arguments of a call that is nothing but a name and arguments.
fn plain_arguments(function: &ast::Function) -> Option<Operands<'_>> {
    let ast::Function {
        name: _,
        uses_odbc_syntax: false,
        parameters: ast::FunctionArguments::None,
        args: ast::FunctionArguments::List(ast::FunctionArgumentList { duplicate_treatment: None, args, clauses }),
        within_group,
        filter: None,
        null_treatment: None,
        over: None,
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

fn unknown_function(source: &ast::Expr, function: &ast::Function, name: &str) -> QueryError {
    const AGGREGATES: [&str; 8] = ["count", "sum", "avg", "min", "max", "array_agg", "string_agg", "stddev"];
    let at = function.name.0.first().and_then(|part| match part {
        ast::ObjectNamePart::Identifier(name) => Position::of(name.span.start),
        ast::ObjectNamePart::Function(_) => None,
    });
    let at = at.or_else(|| place(source));
    if function.over.is_some() {
        return QueryError::new("windows are not possible: records pass one by one", at).hint(FUNCTIONS);
    }
    if AGGREGATES.contains(&name) {
        let message = format!("{name}() is not possible: records pass one by one and are not aggregated");
        return QueryError::new(message, at).hint(FUNCTIONS);
    }
    let near = ["coalesce", "nullif", "try"].into_iter().find(|known| strsim::damerau_levenshtein(known, name) <= 2);
    let hint =
        near.map_or_else(|| FUNCTIONS.to_owned(), |near| format!("did you mean {}? {FUNCTIONS}", near.to_uppercase()));
    QueryError::new(format!("there is no function `{name}`"), at).hint(hint)
}

/// The refusal of what the grammar knows and this dialect does not have.
fn refused(source: &ast::Expr) -> QueryError {
    use ast::Expr as E;
    let what = match source {
        E::Cast { kind: ast::CastKind::TryCast | ast::CastKind::SafeCast, .. } => "TRY_CAST",
        E::Cast { .. } => "a CAST with a format",
        E::Like { .. } | E::ILike { .. } => "LIKE ANY",
        E::SimilarTo { .. } => "SIMILAR TO",
        E::RLike { .. } => "a regular expression",
        E::Interval(_) => "an interval",
        E::Extract { .. } => "EXTRACT",
        E::Substring { .. } => "SUBSTRING",
        E::Trim { .. } => "TRIM",
        E::Position { .. } => "POSITION",
        E::Overlay { .. } => "OVERLAY",
        E::Ceil { .. } => "CEIL",
        E::Floor { .. } => "FLOOR",
        E::AtTimeZone { .. } => "AT TIME ZONE",
        E::Collate { .. } => "COLLATE",
        E::Tuple(_) => "a list of values outside of IN",
        E::Array(_) => "an array",
        E::AnyOp { .. } | E::AllOp { .. } => "ANY or ALL",
        E::Exists { .. } | E::Subquery(_) | E::InSubquery { .. } => "a query within a query",
        E::Wildcard(_) | E::QualifiedWildcard(..) => "`*` within an expression",
        E::CompoundFieldAccess { .. } | E::JsonAccess { .. } => "access to a part of a value",
        E::UnaryOp { op, .. } => return not_possible(&format!("the operator {op}"), source),
        _ => "this kind of expression",
    };
    not_possible(what, source)
}
