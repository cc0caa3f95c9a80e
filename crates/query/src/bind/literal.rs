//! Literals: numbers, texts, timestamps, bytes.

use crossdock_format::FieldType;
use sqlparser::ast;

use super::names::place;
use super::{Binder, Bound, Literal, not_possible};
use crate::decimal::Decimal;
use crate::error::QueryError;
use crate::expr::{Constant, Expr};
use crate::interpret::parse_timestamp;

/// How a timestamp is written; ends every message about a text that is none.
pub(super) const TIMESTAMP_FORM: &str =
    "a timestamp is written as in '2013-01-31T17:05:00Z'; without an offset it is UTC";

impl<'a> Binder<'a> {
    pub(super) fn value(&self, source: &'a ast::Expr, value: &ast::Value) -> Result<Bound<'a>, QueryError> {
        let (constant, ty, literal) = match value {
            ast::Value::Number(digits, false) => return number(source, digits, false),
            ast::Value::SingleQuotedString(text) | ast::Value::EscapedStringLiteral(text) => {
                if text.contains('\0') {
                    return Err(QueryError::new("a text cannot hold NUL", place(source)));
                }
                (Constant::Text(text.clone()), FieldType::String, Literal::Text)
            }
            ast::Value::Boolean(value) => (Constant::Bool(*value), FieldType::Bool, Literal::None),
            ast::Value::Null => (Constant::Null, FieldType::String, Literal::Null),
            ast::Value::Placeholder(name) => return self.parameter(source, name),
            ast::Value::HexStringLiteral(_) => {
                return Err(not_possible("a hexadecimal literal", source).hint("bytes are written '\\x00ff'"));
            }
            _ => return Err(not_possible("this kind of literal", source).hint("a text is written 'text'")),
        };
        Ok(Bound { expr: Expr::constant(constant, ty), literal, source })
    }
}

/// A number with its sign, which decides whether the least whole number is in range. A number with a point or an exponent, or
/// of more than 64 bits, is a decimal; one that no decimal holds is a float.
pub(super) fn number<'a>(source: &'a ast::Expr, digits: &str, is_negative: bool) -> Result<Bound<'a>, QueryError> {
    let out_of_range = || QueryError::new("the number is out of range", place(source));
    let digits = digits.replace('_', "");
    let whole = digits.parse::<i128>().ok().map(|value| if is_negative { -value } else { value });
    let (constant, ty) = match (whole, Decimal::parse(&digits, None)) {
        (Some(value), _) if i64::try_from(value).is_ok() => (Constant::Int(value), FieldType::I64),
        (Some(value), _) if u64::try_from(value).is_ok() => (Constant::Int(value), FieldType::U64),
        (_, Ok(Decimal { unscaled, scale })) => {
            let value = Decimal::new(if is_negative { -unscaled } else { unscaled }, scale);
            (Constant::Decimal(value), FieldType::Decimal { bytes: 16, scale })
        }
        (_, Err(_)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            return Err(out_of_range().hint("whole numbers and decimals have up to 38 digits"));
        }
        (_, Err(_)) => {
            let value: f64 = digits.parse().map_err(|_| QueryError::new("this is not a number", place(source)))?;
            if value.is_infinite() {
                return Err(out_of_range());
            }
            (Constant::Float(if is_negative { -value } else { value }), FieldType::F64)
        }
    };
    Ok(Bound { expr: Expr::constant(constant, ty), literal: Literal::Number, source })
}

/// A text literal as a constant of the type that stands across from it.
pub(super) fn text_as(bound: &Bound<'_>, ty: FieldType) -> Result<Expr, QueryError> {
    let Some(Constant::Text(text)) = bound.expr.as_constant() else { return Ok(bound.expr.clone()) };
    match ty {
        FieldType::Timestamp => match parse_timestamp(text) {
            Some(time) => Ok(Expr::constant(Constant::Timestamp(time), FieldType::Timestamp)),
            None => {
                let message = format!("'{text}' is not a timestamp");
                Err(QueryError::new(message, place(bound.source)).hint(TIMESTAMP_FORM))
            }
        },
        FieldType::Bytes => match hexadecimal(text) {
            Some(bytes) => Ok(Expr::constant(Constant::Bytes(bytes), FieldType::Bytes)),
            None => {
                let message = format!("'{text}' does not say bytes");
                Err(QueryError::new(message, place(bound.source)).hint("bytes are written in hexadecimal: '\\x00ff'"))
            }
        },
        _ => Ok(bound.expr.clone()),
    }
}

/// The bytes that `\x00ff` says.
pub(super) fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("\\x")?.as_bytes();
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    pairs.iter().map(|&[high, low]| u8::try_from(digit(high)? * 16 + digit(low)?).ok()).collect()
}
