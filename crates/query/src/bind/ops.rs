//! Expressions, node by node: what the text says → a checked node.

use crossdock_format::FieldType;
use sqlparser::ast::{self, BinaryOperator, UnaryOperator};

use super::call::as_interval;
use super::names::place;
use super::types::{can_cast, number_for, scale_of, widened};
use super::{Binder, Bound, Literal, MAX_DEPTH, build, literal, not_possible};
use crate::decimal::MAX_SCALE;
use crate::error::QueryError;
use crate::expr::{ArithmeticOp, Class, CompareOp, Constant, Expr, Like, is_decimal, is_float};
use crate::interpret::{ends_in_escape, result_scale};

type Operands<'a> = Vec<&'a ast::Expr>;

impl<'a> Binder<'a> {
    pub(super) fn node(&mut self, source: &'a ast::Expr) -> Result<Bound<'a>, QueryError> {
        use ast::Expr as E;
        let expr = match source {
            E::Nested(inner) => return Ok(Bound { source, ..self.bind_any(inner)? }),
            E::Value(value) => return self.value(source, &value.value),
            E::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => return self.signed(source, expr),
            E::Identifier(name) => self.column(None, name)?,
            E::CompoundIdentifier(parts) => self.compound(parts)?,
            E::CompoundFieldAccess { root, access_chain } => self.access(source, root, access_chain)?,
            E::UnaryOp { op: UnaryOperator::Not, expr } => build::not(self.bind_condition(expr, "NOT")?),
            E::BinaryOp { left, op, right } => self.binary(source, left, op, right)?,
            E::AnyOp { left, compare_op, right, .. } => self.quantified((compare_op, false), left, right)?,
            E::AllOp { left, compare_op, right } => self.quantified((compare_op, true), left, right)?,
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
                match data_type {
                    ast::DataType::JSON | ast::DataType::JSONB => self.call(source, "json", &[expr])?,
                    data_type => self.cast(source, expr, data_type)?,
                }
            }
            E::TypedString(typed) => self.typed_literal(source, typed)?,
            E::Function(function) => self.function(source, function)?,
            E::Extract { .. }
            | E::Substring { .. }
            | E::Trim { .. }
            | E::Position { .. }
            | E::Ceil { .. }
            | E::Floor { .. } => self.spelt(source)?,
            _ => return Err(refused(source)),
        };
        Ok(Bound { expr, literal: Literal::None, source })
    }

    /// A function that the grammar has a form of its own for.
    fn spelt(&mut self, source: &'a ast::Expr) -> Result<Expr, QueryError> {
        use ast::{CeilFloorKind, DateTimeField, Expr as E, TrimWhereField};
        match source {
            E::Extract { field, expr, .. } => {
                let field = field.to_string().to_ascii_lowercase();
                let field = Self::word(source, field.trim_matches('\''));
                let time = self.argument(expr)?;
                self.call_of(source, "extract", vec![field, time])
            }
            E::Substring { expr, substring_from: Some(from), substring_for, .. } => {
                let arguments = [Some(expr), Some(from), substring_for.as_ref()];
                let arguments: Operands<'a> = arguments.into_iter().flatten().map(|argument| &**argument).collect();
                self.call(source, "substring", &arguments)
            }
            E::Trim { trim_where, trim_what, expr, trim_characters } => {
                let name = match trim_where {
                    None | Some(TrimWhereField::Both) => "btrim",
                    Some(TrimWhereField::Leading) => "ltrim",
                    Some(TrimWhereField::Trailing) => "rtrim",
                };
                let unwanted = trim_what.as_deref().or_else(|| trim_characters.iter().flatten().next());
                let arguments: Operands<'a> = std::iter::once(&**expr).chain(unwanted).collect();
                self.call(source, name, &arguments)
            }
            E::Position { expr, r#in } => self.call(source, "strpos", &[r#in, expr]),
            E::Ceil { expr, field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) } => {
                self.call(source, "ceil", &[expr])
            }
            E::Floor { expr, field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) } => {
                self.call(source, "floor", &[expr])
            }
            _ => Err(not_possible("this form of call", source)),
        }
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
        if matches!(operand, ast::Expr::BinaryOp { op: BinaryOperator::PGExp, .. }) {
            return self.signed_power(source, operand);
        }
        let mut bound = self.bind(operand)?;
        number_for(self, &mut bound, if is_minus { "unary -" } else { "unary +" })?;
        let literal = bound.literal;
        let expr = if is_minus { build::negate(bound.expr) } else { bound.expr };
        let literal = if expr.as_constant().is_some() { literal } else { Literal::None };
        Ok(Bound { expr, literal, source })
    }

    /// `-2 ^ 2`, which the grammar reads as `-(2 ^ 2)`: the sign belongs to the first base.
    fn signed_power(&mut self, source: &'a ast::Expr, operand: &'a ast::Expr) -> Result<Bound<'a>, QueryError> {
        let (mut base, mut powers) = (operand, Vec::new());
        while let ast::Expr::BinaryOp { left, op: BinaryOperator::PGExp, right } = base {
            powers.push((base, &**right));
            base = &**left;
        }
        if self.depth + powers.len() >= MAX_DEPTH {
            let message = format!("more than {MAX_DEPTH} operations within each other");
            return Err(QueryError::new(message, place(operand)));
        }
        let mut bound = self.signed(source, base)?;
        for (power, exponent) in powers.into_iter().rev() {
            let exponent = self.argument(exponent)?;
            let expr = self.call_of(power, "power", vec![bound, exponent])?;
            bound = Bound { expr, literal: Literal::None, source };
        }
        Ok(bound)
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
            BinaryOperator::Plus if as_interval(left).is_some() => self.call(source, "+", &[right, left]),
            BinaryOperator::Plus | BinaryOperator::Minus if as_interval(right).is_some() => {
                self.call(source, &op.to_string(), &[left, right])
            }
            BinaryOperator::PGRegexMatch
            | BinaryOperator::PGRegexIMatch
            | BinaryOperator::PGRegexNotMatch
            | BinaryOperator::PGRegexNotIMatch
            | BinaryOperator::Arrow
            | BinaryOperator::LongArrow
            | BinaryOperator::HashArrow
            | BinaryOperator::HashLongArrow => self.call(source, &op.to_string(), &[left, right]),
            BinaryOperator::AtArrow | BinaryOperator::ArrowAt | BinaryOperator::PGOverlap => {
                self.contains(op, left, right)
            }
            BinaryOperator::PGExp => self.call(source, "power", &[left, right]),
            BinaryOperator::Plus => self.arithmetic(ArithmeticOp::Add, left, right),
            BinaryOperator::Minus => self.arithmetic(ArithmeticOp::Subtract, left, right),
            BinaryOperator::Multiply => self.arithmetic(ArithmeticOp::Multiply, left, right),
            BinaryOperator::Divide => self.arithmetic(ArithmeticOp::Divide, left, right),
            BinaryOperator::Modulo => self.arithmetic(ArithmeticOp::Remainder, left, right),
            op => Err(not_possible(&format!("the operator {op}"), right)
                .hint("operators: + - * / % ^ || = <> < <= > >= ~ ~* !~ !~* -> ->> #> #>> @> <@ && AND OR NOT IN BETWEEN LIKE ILIKE IS")),
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

    pub(super) fn is_in(
        &mut self,
        negated: bool,
        operand: &'a ast::Expr,
        list: &'a [ast::Expr],
    ) -> Result<Expr, QueryError> {
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
        self.settle_beside(&mut left, right.expr.ty)?;
        self.settle_beside(&mut right, left.expr.ty)?;
        for operand in [&mut left, &mut right] {
            number_for(self, operand, op.sql())?;
        }
        let is_exact = [&left, &right].iter().any(|operand| is_decimal(operand.expr.ty))
            && ![&left, &right].iter().any(|operand| is_float(operand.expr.ty));
        let scale = result_scale(op, scale_of(left.expr.ty), scale_of(right.expr.ty));
        if is_exact && scale > MAX_SCALE {
            let message = format!("the product has {scale} digits behind the point, and a decimal at most {MAX_SCALE}");
            let error = QueryError::new(message, place(right.source));
            return Err(error.hint("round(expression, 10) or CAST(expression AS numeric(38, 10)) takes digits away"));
        }
        Ok(build::arithmetic(op, left.expr, right.expr))
    }

    /// With a float or a decimal beside it NULL is one, so that NULL + 1.5 is a number with a fraction; and so is a parameter,
    /// even if it looks like a whole number now.
    fn settle_beside(&self, operand: &mut Bound<'a>, other: FieldType) -> Result<(), QueryError> {
        if is_float(other) {
            self.settle_as(operand, FieldType::F64)?;
        } else if is_decimal(other) {
            let ty = widened(other, operand);
            self.settle_as(operand, ty)?;
        } else {
            return Ok(());
        }
        if operand.literal == Literal::Null {
            operand.expr.ty = other;
        }
        Ok(())
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

    fn cast(&mut self, cast: &'a ast::Expr, source: &'a ast::Expr, named: &ast::DataType) -> Result<Expr, QueryError> {
        let mut bound = self.bind(source)?;
        let ty = self.type_for(cast, named, &bound)?;
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
        let bound = self.value(source, &typed.value.value)?;
        let ty = match self.type_for(source, &typed.data_type, &bound) {
            Err(error) if matches!(typed.data_type, ast::DataType::Date) => {
                return Err(error.hint("there are no dates; midnight is written TIMESTAMP '2013-01-31'"));
            }
            ty => ty?,
        };
        let expr = match ty {
            FieldType::Bytes | FieldType::Timestamp => literal::text_as(&bound, ty)?,
            _ => build::cast(bound.expr, ty),
        };
        if bound.literal == Literal::Text && expr.as_constant().is_some() {
            return Ok(expr);
        }
        Err(QueryError::new(format!("{} does not say a value of type {ty}", typed.value), place(source)))
    }
}

pub(super) fn compare_op(op: &BinaryOperator) -> Option<CompareOp> {
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
pub(super) fn chain<'a>(source: &'a ast::Expr, op: &BinaryOperator) -> Operands<'a> {
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

/// The refusal of what the grammar knows and this dialect does not have.
fn refused(source: &ast::Expr) -> QueryError {
    use ast::Expr as E;
    let what = match source {
        E::Cast { kind: ast::CastKind::TryCast | ast::CastKind::SafeCast, .. } => "TRY_CAST",
        E::Cast { .. } => "a CAST with a format",
        E::Like { .. } | E::ILike { .. } => "LIKE ANY",
        E::SimilarTo { .. } => "SIMILAR TO",
        E::RLike { .. } => "a regular expression",
        E::Interval(_) => {
            let hint = "an interval is added to a time or taken from it: time + INTERVAL '1 hour'";
            return not_possible("an interval by itself", source).hint(hint);
        }
        E::Overlay { .. } => "OVERLAY",
        E::AtTimeZone { .. } => "AT TIME ZONE",
        E::Collate { .. } => "COLLATE",
        E::Tuple(_) => "a list of values outside of IN",
        E::Array(_) => return not_possible("an array by itself", source).hint("carrier = ANY(ARRAY['UA', 'DL'])"),
        E::Exists { .. } | E::Subquery(_) | E::InSubquery { .. } => "a query within a query",
        E::Wildcard(_) | E::QualifiedWildcard(..) => "`*` within an expression",
        E::JsonAccess { .. } => "access to a part of a value",
        E::UnaryOp { op, .. } => return not_possible(&format!("the operator {op}"), source),
        _ => "this kind of expression",
    };
    not_possible(what, source)
}
