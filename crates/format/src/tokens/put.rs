//! Tokens to the values of fields.

use std::borrow::Cow;

use super::{Number, Token, Tokens};
use crate::builder::{ByteRun, RecordBuilder, ValueProblem};
use crate::field::FieldType;
use crate::scan::{Digits, Integer, Target};
use crate::text::{self, Rounding, Unfit};

/// How items are read.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// Whether members that the format has no field for are passed over.
    pub(crate) ignore_unknown: bool,
    /// Whether text that is no UTF-8 is repaired.
    pub(crate) repairs_text: bool,
    pub(crate) rounding: Rounding,
    /// Texts that are null in a nullable field.
    pub(crate) null_words: Vec<String>,
}

/// Why a token is no value of a field.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Misfit {
    Unfit,
    /// It is text that is no UTF-8.
    NotText,
    /// The record has no room for it.
    Refused(ValueProblem),
}

impl From<Unfit> for Misfit {
    fn from(_: Unfit) -> Self {
        Self::Unfit
    }
}

/// The builder's error for a value of the field's own type: that it does not fit is put into words with the value.
impl From<ValueProblem> for Misfit {
    fn from(problem: ValueProblem) -> Self {
        match problem {
            ValueProblem::RecordTooLong { .. } => Self::Refused(problem),
            _ => Self::Unfit,
        }
    }
}

/// Holds if it is.
fn fits(is: bool) -> Result<(), Misfit> {
    if is { Ok(()) } else { Err(Misfit::Unfit) }
}

impl Rules {
    /// Gives a field of the innermost open record the value that a token is.
    #[inline(always)]
    pub(super) fn put<T: Tokens>(
        &self,
        builder: &mut RecordBuilder,
        scratch: &mut Vec<u8>,
        target: &Target,
        token: Token<'_>,
    ) -> Result<(), Misfit> {
        let place = target.place;
        match (token, place.ty()) {
            (Token::Text(run), _) => return self.put_text::<T>(builder, scratch, target, run),
            (Token::Digits(digits), _) => return self.put_digits(builder, scratch, target, digits),
            (Token::Untyped(run), _) => return self.put_untyped(builder, scratch, target, run),
            (Token::Null, _) => builder.put_null(place)?,
            (Token::Bool(value), FieldType::Bool) => builder.put(place, [u8::from(value)]),
            (Token::Bytes(run) | Token::BigInt { bytes: run, .. }, FieldType::Bytes) => builder.put_run(place, run)?,
            (Token::Decimal { unscaled, scale }, FieldType::Decimal { .. }) => {
                builder.put_decimal(place, unscaled, scale)?;
            }
            (Token::Time(time), FieldType::Timestamp) => put_time(builder, target, i64::try_from(time).ok())?,
            (Token::Seconds(number), FieldType::Timestamp) => put_time(builder, target, nanoseconds(number))?,
            (Token::Int(number) | Token::BigInt { value: number, .. } | Token::Seconds(Number::Int(number)), _) => {
                self.put_int(builder, target, number)?;
            }
            (Token::Float(value) | Token::Seconds(Number::Float(value)), FieldType::F32 | FieldType::F64) => {
                builder.put_float(place, value)?;
            }
            _ => return Err(Misfit::Unfit),
        }
        Ok(())
    }

    /// A text, also one for what the encoding has no type for.
    #[inline(always)]
    fn put_text<T: Tokens>(
        &self,
        builder: &mut RecordBuilder,
        scratch: &mut Vec<u8>,
        target: &Target,
        run: ByteRun<'_>,
    ) -> Result<(), Misfit> {
        let place = target.place;
        let is_null_word = self.null_words.iter().any(|word| word.as_bytes() == run.bytes);
        if is_null_word && builder.put_null(place).is_ok() {
            return Ok(());
        }
        match place.ty() {
            FieldType::String | FieldType::Char(_) if run.is_text() => return Ok(builder.put_run(place, run)?),
            FieldType::String | FieldType::Char(_) if self.repairs_text => {
                let repaired = String::from_utf8_lossy(run.bytes);
                return Ok(builder.put_run(place, ByteRun::alone(repaired.as_bytes()))?);
            }
            FieldType::String | FieldType::Char(_) => return Err(Misfit::NotText),
            FieldType::Timestamp | FieldType::Enum { .. } | FieldType::Decimal { .. } => {}
            FieldType::Bytes if T::LACKS_TYPES => {}
            // Those that are no digits.
            FieldType::F32 | FieldType::F64 if T::LACKS_TYPES && !run.bytes.iter().any(u8::is_ascii_digit) => {}
            _ => return Err(Misfit::Unfit),
        }
        Ok(text::put_any_from_text(builder, scratch, place, run.bytes, self.rounding)?)
    }

    /// A text for a value of any type. Nothing but blanks is null, but for text and bytes; in base64, blanks do not count.
    #[inline(never)]
    fn put_untyped(
        &self,
        builder: &mut RecordBuilder,
        scratch: &mut Vec<u8>,
        target: &Target,
        run: ByteRun<'_>,
    ) -> Result<(), Misfit> {
        let place = target.place;
        match place.ty() {
            FieldType::String | FieldType::Char(_) => Ok(builder.put_run(place, run)?),
            FieldType::Bytes => {
                let text = without_blanks(run.bytes);
                Ok(text::put_any_from_text(builder, scratch, place, &text, self.rounding)?)
            }
            _ if run.bytes.trim_ascii().is_empty() && builder.put_null(place).is_ok() => Ok(()),
            _ => Ok(text::put_from_text(builder, scratch, target, run, self.rounding)?),
        }
    }

    /// A number that comes from its digits. By way of `f64` an `f32` would be rounded twice, which makes 7.038531e-26 another
    /// number; a decimal would be rounded, and an integer beyond `u64` would be without anybody's notice.
    #[inline(always)]
    fn put_digits(
        &self,
        builder: &mut RecordBuilder,
        scratch: &mut Vec<u8>,
        target: &Target,
        digits: Digits<'_>,
    ) -> Result<(), Misfit> {
        match (target.place.ty(), digits.whole) {
            (FieldType::F32 | FieldType::F64 | FieldType::Decimal { .. }, _) => {
                Ok(text::put_from_text(builder, scratch, target, digits.text, self.rounding)?)
            }
            (_, Some(integer)) => fits(target.put_integer(builder, integer)),
            (_, None) => Err(Misfit::Unfit),
        }
    }

    #[inline(always)]
    fn put_int(&self, builder: &mut RecordBuilder, target: &Target, number: i128) -> Result<(), Misfit> {
        let place = target.place;
        match place.ty() {
            FieldType::Decimal { .. } => builder.put_decimal(place, number, 0)?,
            ty @ (FieldType::F32 | FieldType::F64) => {
                builder.put_float(place, self.rounding.float(number, ty).ok_or(Misfit::Unfit)?)?;
            }
            _ => {
                let magnitude = u64::try_from(number.unsigned_abs()).map_err(|_| Misfit::Unfit)?;
                fits(target.put_integer(builder, Integer { is_negative: number < 0, magnitude }))?;
            }
        }
        Ok(())
    }
}

fn without_blanks(text: &[u8]) -> Cow<'_, [u8]> {
    match text.iter().any(u8::is_ascii_whitespace) {
        true => text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect(),
        false => Cow::Borrowed(text),
    }
}

fn put_time(builder: &mut RecordBuilder, target: &Target, nanoseconds: Option<i64>) -> Result<(), Misfit> {
    let nanoseconds = nanoseconds.ok_or(Misfit::Unfit)?;
    builder.put(target.place, nanoseconds.to_le_bytes());
    Ok(())
}

/// Seconds as nanoseconds, if 64 bits have room for them.
fn nanoseconds(seconds: Number) -> Option<i64> {
    match seconds {
        Number::Int(seconds) => i64::try_from(seconds.checked_mul(1_000_000_000)?).ok(),
        Number::Float(seconds) => {
            let nanoseconds = (seconds * 1e9).round();
            (nanoseconds.abs() < 9.2e18).then_some(nanoseconds as i64)
        }
    }
}
