//! Items to records.

use std::io::BufRead;
use std::marker::PhantomData;

use super::scan::Scan;
use super::shape::{Element, Entry, Members, Target};
use super::{Dialect, NO_PIECE, Token, TokenFlaw};
use crate::builder::{RecordBuilder, ValueError};
use crate::encoding::reader::Reader;
use crate::encoding::window::{Attempt, Window};
use crate::encoding::{EncodingError, EncodingOptions, EncodingProblem, Loss};
use crate::field::{Field, FieldType};
use crate::format::Format;
use crate::record::Value;
use crate::text::{self, Rounding};

/// What CBOR says that a text is a time, that a number is seconds, that bytes are an integer (a positive one, a negative
/// one), that an array is a decimal.
const TAG_TIME_TEXT: u64 = 0;
const TAG_SECONDS: u64 = 1;
const TAG_POSITIVE: u64 = 2;
const TAG_NEGATIVE: u64 = 3;
const TAG_DECIMAL: u64 = 4;

/// Reads items, each a map whose names are the format's.
#[derive(Debug)]
pub(in crate::encoding) struct ItemDecoder<D> {
    window: Window,
    scan: Scan,
    members: Members,
    state: State,
    most: usize,
    dialect: PhantomData<fn() -> D>,
}

#[derive(Debug)]
struct State {
    builder: RecordBuilder,
    /// Of the maps that are open: one bit for each member that was there.
    seen: Vec<u64>,
    /// Maps and arrays that are open.
    depth: usize,
    ignore_unknown: bool,
    repairs_text: bool,
    rounding: Rounding,
}

/// Why an item is no record.
enum Stop {
    Flaw(TokenFlaw),
    /// It can be passed over.
    Wrong(Box<EncodingError>),
}

impl From<TokenFlaw> for Stop {
    fn from(flaw: TokenFlaw) -> Self {
        Self::Flaw(flaw)
    }
}

impl From<ValueError> for Stop {
    fn from(error: ValueError) -> Self {
        Self::Wrong(Box::new(error.into()))
    }
}

impl<D: Dialect> ItemDecoder<D> {
    pub(in crate::encoding) fn new(format: &Format, options: &EncodingOptions) -> Self {
        let state = State {
            builder: RecordBuilder::with_defaults(format),
            seen: Vec::new(),
            depth: 0,
            ignore_unknown: options.ignore_unknown,
            repairs_text: options.allows(Loss::InvalidText),
            rounding: Rounding::of(options.allows(Loss::Rounding)),
        };
        let (window, scan, members) = (Window::default(), Scan::default(), Members::of(format));
        Self { window, scan, members, state, most: options.max_item_bytes, dialect: PhantomData }
    }

    pub(in crate::encoding) fn restart(&mut self) {
        self.window = Window::default();
    }

    /// One item, with nothing behind it.
    pub(in crate::encoding) fn decode(&mut self, item: &[u8]) -> Result<&[u8], EncodingError> {
        let mut reader = Reader::new(item);
        let outcome = self.state.item::<D>(&self.members, &mut reader);
        match outcome {
            Err(Stop::Flaw(flaw)) => return Err(flaw.explain()),
            Err(Stop::Wrong(error)) => return Err(*error),
            Ok(()) => {}
        }
        if !reader.is_empty() {
            return Err(EncodingError::syntax(format!("found {} bytes behind the item", reader.left())));
        }
        Ok(self.state.builder.finish()?)
    }

    pub(in crate::encoding) fn next_record(&mut self, input: &mut dyn BufRead) -> Result<Option<&[u8]>, EncodingError> {
        let Self { window, scan, members, state, most, .. } = self;
        scan.clear();
        let outcome = window.next(input, *most, |bytes| attempt::<D>(bytes, scan, members, state))?;
        match outcome {
            None => Ok(None),
            Some(outcome) => {
                let finished = outcome.and_then(|()| Ok(state.builder.finish()?));
                finished.map(Some).map_err(|error| window.place(error))
            }
        }
    }
}

/// Reads the item that the bytes start with, if it is whole.
fn attempt<D: Dialect>(
    bytes: &[u8],
    scan: &mut Scan,
    members: &Members,
    state: &mut State,
) -> Result<Attempt<Result<(), EncodingError>>, EncodingError> {
    let short = Ok(Attempt::Short { at_least: 0 });
    if scan.is_begun() && scan.resume::<D>(bytes).map_err(TokenFlaw::explain)?.is_none() {
        return short;
    }
    let mut reader = Reader::new(bytes);
    match state.item::<D>(members, &mut reader) {
        Ok(()) => Ok(Attempt::Done { bytes: bytes.len() - reader.left(), value: Ok(()) }),
        Err(Stop::Flaw(TokenFlaw::Cut)) => {
            scan.resume::<D>(bytes).map_err(TokenFlaw::explain)?;
            short
        }
        Err(Stop::Flaw(flaw)) => Err(flaw.explain()),
        Err(Stop::Wrong(error)) => {
            scan.clear();
            match scan.resume::<D>(bytes).map_err(TokenFlaw::explain)? {
                Some(end) => Ok(Attempt::Done { bytes: end, value: Err(*error) }),
                None => short,
            }
        }
    }
}

impl State {
    fn item<D: Dialect>(&mut self, members: &Members, reader: &mut Reader<'_>) -> Result<(), Stop> {
        self.builder.clear();
        self.seen.clear();
        self.depth = 0;
        match token::<D>(reader)?.1 {
            Token::Map(len) => self.map::<D>(members, len, reader),
            other => Err(wrong("", describe(other), "a map, one member a field")),
        }
    }

    fn map<D: Dialect>(&mut self, members: &Members, len: Option<u64>, reader: &mut Reader<'_>) -> Result<(), Stop> {
        let base = self.seen.len();
        self.depth += 1;
        self.seen.resize(base + members.entries.len().div_ceil(64), 0);
        let (mut left, mut likely) = (len, 0);
        while !is_end::<D>(&mut left, reader)? {
            let scratch;
            let name = match token::<D>(reader)?.1 {
                Token::Text(name) => name,
                Token::Pieces { is_text: true } => {
                    scratch = pieces::<D>(reader)?;
                    &scratch
                }
                other => return Err(wrong("", describe(other), "a name, as text")),
            };
            let Some(index) = members.find(name, likely) else {
                if !self.ignore_unknown {
                    let problem = EncodingProblem::Unknown { known: members.known() };
                    return Err(Stop::Wrong(Box::new(EncodingError::new(problem).in_field(text::shorten(name)))));
                }
                skip::<D>(self.depth, reader)?;
                continue;
            };
            likely = index + 1;
            let entry = &members.entries[index];
            let (word, bit) = (base + index / 64, 1 << (index % 64));
            if self.seen[word] & bit != 0 {
                let error = EncodingError::new(EncodingProblem::Twice).in_field(&entry.path);
                return Err(Stop::Wrong(Box::new(error)));
            }
            self.seen[word] |= bit;
            self.value::<D>(entry, false, reader)?;
        }
        self.seen.truncate(base);
        self.depth -= 1;
        Ok(())
    }

    fn value<D: Dialect>(&mut self, entry: &Entry, is_element: bool, reader: &mut Reader<'_>) -> Result<(), Stop> {
        let (tag, found) = token::<D>(reader)?;
        match (&entry.target, found) {
            (Target::Leaf(index, field), found) => {
                self.leaf::<D>(entry, (*index, field, is_element), (tag, found), reader)
            }
            (Target::Group(group, _), Token::Null) => Ok(self.builder.set_group_null(group)?),
            (Target::Group(group, members), Token::Map(len)) => {
                self.builder.set_group_present(group);
                self.map::<D>(members, len, reader)
            }
            (Target::Group(..), other) => Err(wrong(&entry.path, describe(other), "a map")),
            (Target::List(index, _), Token::Null) => Ok(self.builder.set_null(*index)?),
            (Target::List(index, element), Token::Array(len)) => {
                self.builder.begin_list(*index)?;
                let mut left = len;
                self.depth += 1;
                while !is_end::<D>(&mut left, reader)? {
                    self.element::<D>(element, &entry.path, reader)?;
                }
                self.depth -= 1;
                Ok(self.builder.end_list()?)
            }
            (Target::List(..), other) => Err(wrong(&entry.path, describe(other), "an array")),
        }
    }

    fn element<D: Dialect>(&mut self, element: &Element, path: &str, reader: &mut Reader<'_>) -> Result<(), Stop> {
        match element {
            Element::Scalar(entry) => self.value::<D>(entry, true, reader),
            Element::Record(members) => match token::<D>(reader)?.1 {
                Token::Map(len) => {
                    self.builder.begin_element()?;
                    self.map::<D>(members, len, reader)?;
                    Ok(self.builder.end_element()?)
                }
                other => Err(wrong(&format!("{path}[]"), describe(other), "a map")),
            },
            Element::Nullable(members) => {
                self.builder.begin_element()?;
                self.nullable::<D>(members, reader)?;
                Ok(self.builder.end_element()?)
            }
        }
    }

    /// The value of a record that has no other: as the map's only member, without a map around it, or null.
    fn nullable<D: Dialect>(&mut self, members: &Members, reader: &mut Reader<'_>) -> Result<(), Stop> {
        let Some(entry) = members.entries.first() else { return Ok(()) };
        let mut ahead = *reader;
        let is_record = match (token::<D>(&mut ahead)?.1, &entry.target) {
            (Token::Null, _) => {
                *reader = ahead;
                return Ok(());
            }
            // A map of maps is the record if it looks like one, and else its value.
            (Token::Map(len), Target::Group(..)) => {
                len == Some(1)
                    && matches!(token::<D>(&mut ahead)?.1, Token::Text(name) if name == entry.name)
                    && matches!(token::<D>(&mut ahead)?.1, Token::Map(_) | Token::Null)
            }
            (Token::Map(_), _) => true,
            _ => false,
        };
        if !is_record {
            return self.value::<D>(entry, false, reader);
        }
        match token::<D>(reader)?.1 {
            Token::Map(len) => self.map::<D>(members, len, reader),
            _ => Ok(()),
        }
    }

    #[inline]
    fn leaf<D: Dialect>(
        &mut self,
        entry: &Entry,
        (index, field, is_element): (usize, &Field, bool),
        (tag, found): (Option<u64>, Token<'_>),
        reader: &mut Reader<'_>,
    ) -> Result<(), Stop> {
        let rounding = self.rounding;
        let builder = &mut self.builder;
        let mut put = |value: Value<'_>| match is_element {
            true => builder.push(value),
            false => builder.set(index, value),
        };
        let scratch;
        let found = match found {
            Token::Pieces { is_text } => {
                scratch = pieces::<D>(reader)?;
                if is_text { Token::Text(&scratch) } else { Token::Bytes(&scratch) }
            }
            found => found,
        };
        let value = match (found, field.ty) {
            (Token::Text(found), FieldType::String | FieldType::Char(_) | FieldType::Enum { .. }) => {
                if str::from_utf8(found).is_ok() {
                    Some(Value::Text(found))
                } else if self.repairs_text {
                    return Ok(put(Value::Text(String::from_utf8_lossy(found).as_bytes()))?);
                } else {
                    return Err(wrong(&entry.path, "text that is no UTF-8".to_owned(), &text::expected(field, TIMES)));
                }
            }
            (Token::Array(len), FieldType::Decimal { .. }) if tag == Some(TAG_DECIMAL) => {
                decimal::<D>(len, reader)?.map(|(unscaled, scale)| Value::Decimal { unscaled, scale })
            }
            (Token::Bytes(found), FieldType::Bytes) => Some(Value::Bytes(found)),
            (Token::Null, _) => Some(Value::Null),
            (Token::Bool(value), FieldType::Bool) => Some(Value::Bool(value)),
            (found, FieldType::Timestamp) => time(found, tag).map(Value::Timestamp),
            (found, ty) => number(found, ty, tag, rounding),
        };
        match value {
            Some(value) => Ok(put(value)?),
            None => {
                let found = describe(found);
                let expected = text::expected_not(found.as_bytes(), field, TIMES);
                Err(wrong(&entry.path, found, &expected))
            }
        }
    }
}

/// The nanoseconds since 1970 of a time, if 64 bits have room for them.
fn time(found: Token<'_>, tag: Option<u64>) -> Option<i64> {
    match found {
        Token::Time(value) => i64::try_from(value).ok(),
        Token::Int(seconds) if tag == Some(TAG_SECONDS) => i64::try_from(seconds.checked_mul(1_000_000_000)?).ok(),
        Token::Float(seconds) if tag == Some(TAG_SECONDS) => {
            let nanoseconds = (seconds * 1e9).round();
            (nanoseconds.abs() < 9.2e18).then_some(nanoseconds as i64)
        }
        Token::Text(found) if matches!(tag, None | Some(TAG_TIME_TEXT)) => text::parse_timestamp(found),
        _ => None,
    }
}

/// A value for a field of numbers.
fn number<'a>(found: Token<'a>, ty: FieldType, tag: Option<u64>, rounding: Rounding) -> Option<Value<'a>> {
    let found = match found {
        Token::Bytes(bytes) if matches!(tag, Some(TAG_POSITIVE | TAG_NEGATIVE)) => {
            Token::Int(big(bytes, tag == Some(TAG_NEGATIVE))?)
        }
        found => found,
    };
    let is_whole = ty.is_integer() || matches!(ty, FieldType::Enum { .. });
    match (found, ty) {
        (Token::Int(unscaled), FieldType::Decimal { .. }) => Some(Value::Decimal { unscaled, scale: 0 }),
        (Token::Text(found), FieldType::Decimal { .. }) => {
            text::parse_decimal(found).map(|(unscaled, scale)| Value::Decimal { unscaled, scale })
        }
        (Token::Int(number), FieldType::F32 | FieldType::F64) => rounding.float(number, ty).map(Value::Float),
        (Token::Float(value), FieldType::F32 | FieldType::F64) => Some(Value::Float(value)),
        (Token::Int(number), _) if is_whole => match (i64::try_from(number), u64::try_from(number)) {
            (Ok(number), _) => Some(Value::Int(number)),
            (_, Ok(number)) => Some(Value::Uint(number)),
            _ => None,
        },
        _ => None,
    }
}

const TIMES: &str = "a time";

/// The next token, and the tag in front of it.
#[inline]
fn token<'a, D: Dialect>(reader: &mut Reader<'a>) -> Result<(Option<u64>, Token<'a>), TokenFlaw> {
    let mut tag = None;
    loop {
        match D::token(reader)? {
            Token::Tag(number) => tag = Some(number),
            token => return Ok((tag, token)),
        }
    }
}

/// Whether an array or map has no more values: counts them, or looks for the break.
#[inline]
fn is_end<D: Dialect>(left: &mut Option<u64>, reader: &mut Reader<'_>) -> Result<bool, TokenFlaw> {
    match left {
        Some(0) => Ok(true),
        Some(left) => {
            *left -= 1;
            Ok(false)
        }
        None => {
            let mut ahead = *reader;
            let is_break = D::token(&mut ahead)? == Token::Break;
            if is_break {
                *reader = ahead;
            }
            Ok(is_break)
        }
    }
}

/// Text or bytes that come in pieces.
#[cold]
fn pieces<D: Dialect>(reader: &mut Reader<'_>) -> Result<Vec<u8>, TokenFlaw> {
    let mut whole = Vec::new();
    loop {
        match D::token(reader)? {
            Token::Break => return Ok(whole),
            Token::Text(piece) | Token::Bytes(piece) => whole.extend_from_slice(piece),
            _ => return Err(NO_PIECE),
        }
    }
}

/// Passes over a value.
fn skip<D: Dialect>(depth: usize, reader: &mut Reader<'_>) -> Result<(), TokenFlaw> {
    let bytes = reader.rest();
    match Scan::within(depth).resume::<D>(bytes)? {
        Some(end) => Ok(reader.take(end as u64).map(|_| ())?),
        None => Err(TokenFlaw::Cut),
    }
}

/// An integer from bytes, the first byte first; `None` beyond 127 bits.
fn big(bytes: &[u8], is_negative: bool) -> Option<i128> {
    let start = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    let bytes = bytes.get(start..).filter(|bytes| bytes.len() <= 16)?;
    let value = bytes.iter().fold(0_u128, |value, byte| value << 8 | u128::from(*byte));
    let value = i128::try_from(value).ok()?;
    Some(if is_negative { -1 - value } else { value })
}

/// The exponent and the digits of a decimal, behind the head of their array of `len` values; `None` if it has not just these
/// two.
fn decimal<D: Dialect>(len: Option<u64>, reader: &mut Reader<'_>) -> Result<Option<(i128, u8)>, TokenFlaw> {
    if len.is_some_and(|len| len != 2) {
        return Ok(None);
    }
    let Token::Int(exponent) = D::token(reader)? else {
        return Ok(None);
    };
    let digits = match token::<D>(reader)? {
        (_, Token::Int(digits)) => Some(digits),
        (Some(tag @ (TAG_POSITIVE | TAG_NEGATIVE)), Token::Bytes(bytes)) => big(bytes, tag == TAG_NEGATIVE),
        _ => None,
    };
    let Some(digits) = digits else {
        return Ok(None);
    };
    if len.is_none() && D::token(reader)? != Token::Break {
        return Ok(None);
    }
    Ok(match (u8::try_from(-exponent), u32::try_from(exponent)) {
        (Ok(scale), _) => Some((digits, scale)),
        (_, Ok(exponent)) => {
            10_i128.checked_pow(exponent).and_then(|ten| digits.checked_mul(ten)).map(|whole| (whole, 0))
        }
        _ => None,
    })
}

#[cold]
fn wrong(path: &str, found: String, expected: &str) -> Stop {
    let error = EncodingError::value(found, expected);
    Stop::Wrong(Box::new(if path.is_empty() { error } else { error.in_field(path) }))
}

fn describe(token: Token<'_>) -> String {
    match token {
        Token::Null => "null".to_owned(),
        Token::Bool(value) => value.to_string(),
        Token::Int(value) => value.to_string(),
        Token::Float(value) => value.to_string(),
        Token::Text(text) => format!("\"{}\"", text::shorten(text)),
        Token::Bytes(bytes) => format!("{} bytes", bytes.len()),
        Token::Array(_) => "an array".to_owned(),
        Token::Map(_) => "a map".to_owned(),
        Token::Break => "an end".to_owned(),
        Token::Tag(_) => "a tag".to_owned(),
        Token::Pieces { .. } => "text or bytes".to_owned(),
        Token::Time(_) => "a time".to_owned(),
        Token::Other(what) => what.to_owned(),
    }
}
