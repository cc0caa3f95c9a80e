//! The tokens of an item.

use std::marker::PhantomData;

use super::{Dialect, Head, NO_PIECE};
use crate::builder::ByteRun;
use crate::encoding::reader::Reader;
use crate::scan::Needle;
use crate::tokens::{Flaw, Number, Open, Token, Tokens};

/// The tags of CBOR: that a number is seconds, that bytes are an integer (a positive one, a negative one), that an array is a
/// decimal.
const TAG_SECONDS: u64 = 1;
const TAG_POSITIVE: u64 = 2;
const TAG_NEGATIVE: u64 = 3;
const TAG_DECIMAL: u64 = 4;

/// The tokens of one item, and what is behind it.
pub(super) struct ItemTokens<'a, 's, D> {
    reader: Reader<'a>,
    /// The last text or bytes that came in pieces.
    pieces: &'s mut Vec<u8>,
    dialect: PhantomData<fn() -> D>,
}

impl<'a, 's, D: Dialect> ItemTokens<'a, 's, D> {
    pub(super) fn new(bytes: &'a [u8], pieces: &'s mut Vec<u8>) -> Self {
        Self { reader: Reader::new(bytes), pieces, dialect: PhantomData }
    }

    /// How a name is written, in its shortest form.
    pub(super) fn written(name: &str) -> Vec<u8> {
        let mut written = Vec::new();
        D::push_text(&mut written, name.as_bytes());
        written
    }

    /// How many bytes are left.
    pub(super) fn left(&self) -> usize {
        self.reader.left()
    }
}

/// The head of the next value, and the last tag in front of it.
#[inline]
fn tagged<'a, D: Dialect>(reader: &mut Reader<'a>) -> Result<(Option<u64>, Head<'a>), Flaw> {
    let mut tag = None;
    loop {
        match D::head(reader)? {
            Head::Tag(number) => tag = Some(number),
            head => return Ok((tag, head)),
        }
    }
}

/// Text or bytes that come in pieces.
#[cold]
fn gather<D: Dialect>(reader: &mut Reader<'_>, pieces: &mut Vec<u8>) -> Result<(), Flaw> {
    pieces.clear();
    loop {
        match D::head(reader)? {
            Head::Break => return Ok(()),
            Head::Text(piece) | Head::Bytes(piece) => pieces.extend_from_slice(piece.bytes),
            _ => return Err(NO_PIECE),
        }
    }
}

/// Bytes, behind a tag that may say that they are an integer.
fn of_bytes(tag: Option<u64>, bytes: ByteRun<'_>) -> Token<'_> {
    let value = match tag {
        Some(tag @ (TAG_POSITIVE | TAG_NEGATIVE)) => big(bytes.bytes, tag == TAG_NEGATIVE),
        _ => None,
    };
    value.map_or(Token::Bytes(bytes), |value| Token::BigInt { bytes, value })
}

/// An integer from bytes, the first byte first; `None` beyond 127 bits.
fn big(bytes: &[u8], is_negative: bool) -> Option<i128> {
    let start = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    let bytes = bytes.get(start..).filter(|bytes| bytes.len() <= 16)?;
    let value = bytes.iter().fold(0_u128, |value, byte| value << 8 | u128::from(*byte));
    let value = i128::try_from(value).ok()?;
    Some(if is_negative { -1 - value } else { value })
}

/// A decimal behind the head of its array of `len` values, its exponent and its digits; `None`, and nothing is read, if it has
/// not just these two.
fn decimal<D: Dialect>(len: Option<u64>, reader: &mut Reader<'_>) -> Result<Option<(i128, u8)>, Flaw> {
    let mut ahead = *reader;
    if len.is_some_and(|len| len != 2) {
        return Ok(None);
    }
    let (_, Head::Int(exponent)) = tagged::<D>(&mut ahead)? else { return Ok(None) };
    let digits = match tagged::<D>(&mut ahead)? {
        (_, Head::Int(digits)) => Some(digits),
        (Some(tag @ (TAG_POSITIVE | TAG_NEGATIVE)), Head::Bytes(run)) => big(run.bytes, tag == TAG_NEGATIVE),
        _ => None,
    };
    let Some(digits) = digits else { return Ok(None) };
    if len.is_none() && !matches!(D::head(&mut ahead)?, Head::Break) {
        return Ok(None);
    }
    let found = match (u8::try_from(-exponent), u32::try_from(exponent)) {
        (Ok(scale), _) => Some((digits, scale)),
        (_, Ok(exponent)) => {
            10_i128.checked_pow(exponent).and_then(|ten| digits.checked_mul(ten)).map(|whole| (whole, 0))
        }
        _ => None,
    };
    if found.is_some() {
        *reader = ahead;
    }
    Ok(found)
}

impl<'a, D: Dialect> Tokens for ItemTokens<'a, '_, D> {
    const MAP: &'static str = "a map";
    const ARRAY: &'static str = "an array";
    const TIMES: &'static str = "a time";
    const LACKS_TYPES: bool = false;
    const NAMES_ARE_VALUES: bool = true;

    type Mark = Reader<'a>;

    fn mark(&self) -> Reader<'a> {
        self.reader
    }

    fn go_to(&mut self, mark: Reader<'a>) {
        self.reader = mark;
    }

    #[inline]
    fn value(&mut self) -> Result<Token<'_>, Flaw> {
        let Self { reader, pieces, .. } = self;
        let (tag, head) = tagged::<D>(reader)?;
        Ok(match head {
            Head::Null => Token::Null,
            Head::Bool(value) => Token::Bool(value),
            Head::Int(value) if tag == Some(TAG_SECONDS) => Token::Seconds(Number::Int(value)),
            Head::Int(value) => Token::Int(value),
            Head::Float(value) if tag == Some(TAG_SECONDS) => Token::Seconds(Number::Float(value)),
            Head::Float(value) => Token::Float(value),
            Head::Text(run) => Token::Text(run),
            Head::Bytes(bytes) => of_bytes(tag, bytes),
            Head::Array(len) => {
                let decimal = if tag == Some(TAG_DECIMAL) { decimal::<D>(len, reader)? } else { None };
                decimal.map_or(Token::Array(Open::array(len)), |(unscaled, scale)| Token::Decimal { unscaled, scale })
            }
            Head::Map(len) => Token::Map(Open::map(len)),
            Head::Break => return Err(Flaw::Found("an end of nothing")),
            Head::Pieces { is_text } => {
                gather::<D>(reader, pieces)?;
                let run = ByteRun::alone(pieces);
                if is_text { Token::Text(run) } else { of_bytes(tag, run) }
            }
            Head::Time(nanoseconds) => Token::Time(nanoseconds),
            Head::Other(what) => Token::Other(what),
            Head::Tag(_) => Token::Other("a tag"),
        })
    }

    #[inline]
    fn more(&mut self, open: &mut Open) -> Result<bool, Flaw> {
        match &mut open.left {
            Some(0) => Ok(false),
            Some(left) => {
                *left -= 1;
                Ok(true)
            }
            None => {
                let mut ahead = self.reader;
                let is_break = matches!(D::head(&mut ahead)?, Head::Break);
                if is_break {
                    self.reader = ahead;
                }
                Ok(!is_break)
            }
        }
    }

    #[inline]
    fn take_name(&mut self, expected: &Needle) -> Result<bool, Flaw> {
        let behind = expected.behind(self.reader.rest());
        if let Some(rest) = behind {
            self.reader = Reader::new(rest);
        }
        Ok(behind.is_some())
    }

    fn name(&mut self) -> Result<Result<&[u8], Token<'_>>, Flaw> {
        Ok(match self.value()? {
            Token::Text(run) => Ok(run.bytes),
            other => Err(other),
        })
    }
}
