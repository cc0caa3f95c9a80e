//! Which types go together: comparisons, common types of alternatives, casts.

use crossdock_format::FieldType;
use sqlparser::ast;

use super::build::cast;
use super::literal::text_as;
use super::names::place;
use super::{Binder, Bound, Literal};
use crate::decimal::{Decimal, MAX_SCALE};
use crate::error::QueryError;
use crate::expr::{Class, Constant, Expr, is_decimal, is_float};

impl<'a> Binder<'a> {
    /// Makes two operands comparable: a literal takes the type across from it; else their classes must be the same.
    pub(super) fn reconcile(&self, left: &mut Bound<'a>, right: &mut Bound<'a>) -> Result<(), QueryError> {
        match (left.literal, right.literal) {
            (Literal::Parameter, Literal::Parameter | Literal::Null) => self.settle(left),
            (Literal::Parameter, _) => self.settle_as(left, across_from(right.expr.ty))?,
            _ => {}
        }
        match (left.literal, right.literal) {
            (Literal::Null, Literal::Parameter) => self.settle(right),
            (_, Literal::Parameter) => self.settle_as(right, across_from(left.expr.ty))?,
            _ => {}
        }
        match (left.literal, right.literal) {
            (Literal::Null, _) => left.expr.ty = right.expr.ty,
            (_, Literal::Null) => right.expr.ty = left.expr.ty,
            (Literal::Text, _) => left.expr = text_as(left, right.expr.ty)?,
            (_, Literal::Text) => right.expr = text_as(right, left.expr.ty)?,
            _ => {}
        }
        if Class::of(left.expr.ty) == Class::of(right.expr.ty) { Ok(()) } else { Err(self.not_comparable(left, right)) }
    }

    fn not_comparable(&self, left: &Bound<'_>, right: &Bound<'_>) -> QueryError {
        let (literal, other) = if right.literal == Literal::None { (left, right) } else { (right, left) };
        let [left_is, right_is] =
            [left, right].map(|bound| self.is_of_type(bound.source, bound.expr.ty, bound.literal));
        let at = if literal.literal == Literal::None { place(left.source) } else { place(literal.source) };
        let error = QueryError::new(format!("{left_is} and {right_is}: these do not compare"), at);
        let classes = (Class::of(literal.expr.ty), Class::of(other.expr.ty));
        match (literal.literal, classes) {
            (Literal::Text, (_, Class::Number)) => match literal.expr.as_constant() {
                Some(Constant::Text(text)) if text.trim().parse::<f64>().is_ok() => {
                    error.hint(format!("a number is written without quotes: {}", text.trim()))
                }
                _ => error.hint("a number is written without quotes"),
            },
            (Literal::Text, (_, Class::Bool)) => error.hint("truth values are written TRUE and FALSE, without quotes"),
            (Literal::Number, (_, Class::Text)) => {
                error.hint(format!("a text is written in single quotes: '{}'", literal.source))
            }
            (_, (Class::Bool, _) | (_, Class::Bool)) => {
                error.hint("a bool is a condition by itself: `column`, or NOT `column`")
            }
            (_, (Class::Timestamp, Class::Number) | (Class::Number, Class::Timestamp)) => {
                error.hint("CAST(column AS bigint) makes a timestamp the nanoseconds since 1970-01-01T00:00:00Z")
            }
            (_, (Class::Bytes, _) | (_, Class::Bytes)) => {
                error.hint("bytes compare with bytes, which are written '\\x00ff'")
            }
            _ => error.hint("CAST(expression AS type) changes the type of one of them"),
        }
    }

    /// The common type of alternatives (of a CASE, of COALESCE); whole numbers are cast where it is a float. Parameters
    /// take the type of the others.
    pub(super) fn unify(&self, what: &str, items: &mut [Bound<'a>]) -> Result<FieldType, QueryError> {
        if items.iter().all(|item| matches!(item.literal, Literal::Parameter | Literal::Null)) {
            items.iter_mut().for_each(|item| self.settle(item));
        }
        let mut common: Option<FieldType> = None;
        // First those whose type is given, then numbers, then texts, which take the type of the others.
        for round in [Literal::None, Literal::Number, Literal::Text] {
            for item in items.iter().filter(|item| item.literal == round) {
                let joined = match common {
                    None => Some(item.expr.ty),
                    Some(common) => join(common, item),
                };
                let Some(joined) = joined else {
                    let is = self.is_of_type(item.source, item.expr.ty, item.literal);
                    let others = common.map_or_else(String::new, |common| common.to_string());
                    let message = format!("{is}, but another alternative of this {what} is {others}");
                    return Err(QueryError::new(message, place(item.source))
                        .hint("alternatives have one type; CAST(expression AS type) changes that of one"));
                };
                common = Some(joined);
            }
        }
        let common = common.unwrap_or(FieldType::String);
        for item in items {
            match item.literal {
                Literal::Null => item.expr.ty = common,
                Literal::Parameter => self.settle_as(item, common)?,
                Literal::Text => item.expr = text_as(item, common)?,
                _ if is_float(common) && !is_float(item.expr.ty) => item.expr = cast(item.expr.clone(), common),
                _ if is_decimal(common) => item.expr = cast(item.expr.clone(), common),
                _ => {}
            }
        }
        Ok(common)
    }

    /// The type that CAST, `::` or a typed literal names, for this operand.
    pub(super) fn type_for(
        &self,
        source: &ast::Expr,
        named: &ast::DataType,
        operand: &Bound<'_>,
    ) -> Result<FieldType, QueryError> {
        let word = named.to_string().to_ascii_lowercase();
        match word.as_str() {
            "numeric" | "decimal" | "dec" => numeric_of(operand),
            _ => self.type_named(source, &word),
        }
    }

    fn type_named(&self, source: &ast::Expr, word: &str) -> Result<FieldType, QueryError> {
        let unknown = || {
            let shown: String = word.chars().take(40).collect();
            let known = "known: boolean, smallint, integer, bigint, numeric(PRECISION, SCALE), real, double precision, text, \
                         char(N), timestamp, bytea, and the types of formats: bool, i8 to i64, u8 to u64, f32, f64, char[N], string, bytes";
            QueryError::new(format!("a CAST to {shown} is not possible"), place(source)).hint(known)
        };
        Ok(match word {
            "bool" | "boolean" => FieldType::Bool,
            "tinyint" | "i8" => FieldType::I8,
            "smallint" | "int2" | "i16" => FieldType::I16,
            "int" | "integer" | "int4" | "i32" => FieldType::I32,
            "bigint" | "int8" | "i64" => FieldType::I64,
            "u8" => FieldType::U8,
            "u16" => FieldType::U16,
            "u32" => FieldType::U32,
            "u64" => FieldType::U64,
            "real" | "float4" | "f32" => FieldType::F32,
            "double precision" | "double" | "float" | "float8" | "f64" => FieldType::F64,
            "text" | "string" | "varchar" | "character varying" => FieldType::String,
            "bytea" | "bytes" => FieldType::Bytes,
            "char" | "character" => FieldType::Char(1),
            "timestamp" | "timestamptz" | "timestamp with time zone" | "timestamp without time zone" => {
                FieldType::Timestamp
            }
            _ if let Some(ty) = numeric_named(word) => ty,
            _ => {
                let length = word.strip_prefix("character").or_else(|| word.strip_prefix("char"));
                let length = length.and_then(|rest| {
                    let inner = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
                    inner.or_else(|| rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')))
                });
                match length.and_then(|length| length.parse().ok()) {
                    Some(length) if length > 0 => FieldType::Char(length),
                    _ => return Err(unknown()),
                }
            }
        })
    }
}

/// Digits behind the point of a parameter that is compared with a decimal: those of other values than it has now too.
const PARAMETER_SCALE: u8 = 18;

/// Digits behind the point of a decimal; none of another number.
pub(super) fn scale_of(ty: FieldType) -> u8 {
    match ty {
        FieldType::Decimal { scale, .. } => scale,
        _ => 0,
    }
}

/// A decimal type for a parameter beside a decimal, which holds the value that it has now.
pub(super) fn widened(ty: FieldType, parameter: &Bound<'_>) -> FieldType {
    let value = match parameter.expr.as_known() {
        Some(Constant::Text(text)) => Decimal::parse(text.trim(), None).ok(),
        _ => None,
    };
    FieldType::Decimal { bytes: 16, scale: scale_of(ty).max(value.map_or(0, |value| value.scale)) }
}

/// `numeric(10, 2)`, or its other names: as many bytes as the digits take.
fn numeric_named(word: &str) -> Option<FieldType> {
    let rest = ["numeric", "decimal", "dec"].iter().find_map(|name| word.strip_prefix(name))?;
    let inner = rest.trim().strip_prefix('(')?.strip_suffix(')')?;
    let (precision, scale) = inner.split_once(',').unwrap_or((inner, "0"));
    let (precision, scale): (u8, u8) = (precision.trim().parse().ok()?, scale.trim().parse().ok()?);
    let bytes = match precision {
        1..=9 => 4,
        10..=18 => 8,
        19..=MAX_SCALE => 16,
        _ => return None,
    };
    (scale <= precision).then_some(FieldType::Decimal { bytes, scale })
}

/// `numeric` without a scale: the operand's own.
fn numeric_of(operand: &Bound<'_>) -> Result<FieldType, QueryError> {
    let ty = operand.expr.ty;
    let scale = match (operand.literal, operand.expr.as_constant()) {
        (Literal::Null, _) => Some(0),
        (Literal::Text, Some(Constant::Text(text))) => Decimal::parse(text.trim(), None).ok().map(|value| value.scale),
        _ if ty.is_integer() || is_decimal(ty) => Some(scale_of(ty)),
        _ => None,
    };
    let Some(scale) = scale else {
        let message = "a column of decimals has one scale, which does not follow from this value";
        let error = QueryError::new(message, place(operand.source));
        return Err(error.hint("name it: CAST(expression AS numeric(38, 6))"));
    };
    Ok(FieldType::Decimal { bytes: 16, scale })
}

/// The type that a parameter takes that is compared with a value of this one: the widest of its kind.
fn across_from(ty: FieldType) -> FieldType {
    match ty {
        FieldType::U64 => FieldType::U64,
        ty if ty.is_integer() => FieldType::I64,
        ty if is_float(ty) => FieldType::F64,
        FieldType::Decimal { scale, .. } => FieldType::Decimal { bytes: 16, scale: scale.max(PARAMETER_SCALE) },
        ty if ty.is_text() => FieldType::String,
        ty => ty,
    }
}

/// The type that holds both what `common` holds and the item; `None` if there is none.
fn join(common: FieldType, item: &Bound<'_>) -> Option<FieldType> {
    let ty = item.expr.ty;
    match (item.literal, item.expr.as_constant()) {
        (Literal::Number, Some(Constant::Int(value))) => match common.integer_range() {
            Some((least, most)) if (least..=most).contains(value) => return Some(common),
            _ if is_float(common) || fits(Decimal::new(*value, 0), common) => return Some(common),
            _ => {}
        },
        (Literal::Number, Some(Constant::Decimal(value))) if fits(*value, common) => return Some(common),
        (Literal::Number, _) if is_float(common) => return Some(FieldType::F64),
        (Literal::Text, Some(Constant::Text(text))) => match common {
            FieldType::Char(most) => {
                let Ok(length) = u16::try_from(text.len()) else { return Some(FieldType::String) };
                return Some(FieldType::Char(most.max(length)));
            }
            FieldType::String | FieldType::Timestamp | FieldType::Bytes => return Some(common),
            _ => return None,
        },
        _ => {}
    }
    joined(common, ty)
}

/// The type that holds the values of both; `None` if there is none.
pub(crate) fn common_type(left: FieldType, right: FieldType) -> Option<FieldType> {
    let exact = FieldType::Decimal { bytes: 16, scale: 0 };
    joined(left, right).or((left.is_integer() && right.is_integer()).then_some(exact))
}

fn joined(left: FieldType, right: FieldType) -> Option<FieldType> {
    match (left, right) {
        (left, right) if left == right => Some(left),
        (FieldType::Char(left), FieldType::Char(right)) => Some(FieldType::Char(left.max(right))),
        (left, right) if left.is_text() && right.is_text() => Some(FieldType::String),
        (left, right) if left.is_integer() && right.is_integer() => join_integers(left, right),
        (left, right) if !is_number(left) || !is_number(right) => None,
        (left, right) if is_float(left) || is_float(right) => Some(FieldType::F64),
        (left, right) => Some(FieldType::Decimal { bytes: 16, scale: scale_of(left).max(scale_of(right)) }),
    }
}

/// Whether a decimal type holds a number exactly.
fn fits(value: Decimal, ty: FieldType) -> bool {
    let FieldType::Decimal { bytes, scale } = ty else { return false };
    let most = match bytes {
        4 => i32::MAX.into(),
        8 => i64::MAX.into(),
        _ => i128::MAX,
    };
    value.rescaled_exactly(scale).is_some_and(|value| (-most..=most).contains(&value.unscaled))
}

fn is_number(ty: FieldType) -> bool {
    ty.is_integer() || is_float(ty) || is_decimal(ty)
}

/// The narrowest type of whole numbers that holds both; of an unsigned and a signed one, a signed one.
fn join_integers(left: FieldType, right: FieldType) -> Option<FieldType> {
    use FieldType::{I8, I16, I32, I64, U8, U16, U32, U64};
    let (left, right) = (left.integer_range()?, right.integer_range()?);
    let (least, most) = (left.0.min(right.0), left.1.max(right.1));
    let fitting = [U8, I8, U16, I16, U32, I32, U64, I64].into_iter();
    fitting
        .filter_map(|ty| ty.integer_range().map(|range| (ty, range)))
        .find(|(_, range)| range.0 <= least && most <= range.1)
        .map(|(ty, _)| ty)
}

/// Whether there is a CAST from one type to another.
pub(crate) fn can_cast(from: FieldType, to: FieldType) -> bool {
    match (Class::of(from), Class::of(to)) {
        (Class::Number, Class::Number) => true,
        (Class::Number, Class::Bool) => from.is_integer(),
        (Class::Bool, Class::Number) => to.is_integer(),
        (Class::Number, Class::Timestamp) => from.is_integer(),
        (Class::Timestamp, Class::Number) => to.is_integer(),
        (Class::Bytes, _) | (_, Class::Bytes) => from == to,
        (Class::Timestamp, Class::Bool) | (Class::Bool, Class::Timestamp) => false,
        _ => true,
    }
}

/// An operand that must be a number, for `what`.
pub(super) fn number_for(binder: &Binder<'_>, bound: &mut Bound<'_>, what: &str) -> Result<(), QueryError> {
    binder.settle(bound);
    if bound.literal == Literal::Null && !is_float(bound.expr.ty) && !is_decimal(bound.expr.ty) {
        bound.expr = Expr::constant(Constant::Null, FieldType::I64);
    }
    if Class::of(bound.expr.ty) == Class::Number {
        return Ok(());
    }
    let is = binder.is_of_type(bound.source, bound.expr.ty, bound.literal);
    let error = QueryError::new(format!("{what} takes numbers, and {is}"), place(bound.source));
    Err(match Class::of(bound.expr.ty) {
        Class::Text => error.hint("texts are joined by ||; CAST(expression AS bigint) reads a number from a text"),
        Class::Timestamp => error.hint(
            "time + INTERVAL '1 hour' moves a time; CAST(column AS bigint) gives the nanoseconds since 1970-01-01T00:00:00Z",
        ),
        _ => error,
    })
}
