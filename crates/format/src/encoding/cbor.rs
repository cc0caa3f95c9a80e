//! CBOR (RFC 8949) in and out: a map a record, one after the other with nothing in between (RFC 8742).
//!
//! The names of a map's members are those of the format's fields, in any order; a nested record is a map, a union is a
//! map of the one variant that is there, a list is an array.
//!
//! | field | written | read besides |
//! |---|---|---|
//! | integers | integers, in their shortest form | big integers (tags 2 and 3) that fit |
//! | `f32`, `f64` | floats of that size | floats of any size, rounded to the nearest; integers that lose nothing |
//! | `timestamp` | RFC 3339 text with tag 0 | such text without the tag, also without a zone (UTC); seconds with tag 1 |
//! | `decimal` | decimal fractions, tag 4 | integers, and text |
//! | enumerations | the symbol as text; the number, where it has none | any number that fits, also as text |
//! | `char[N]`, `string`; `bytes` | text; bytes | in pieces, too; bytes of a big integer |
//! | null | null | `undefined`; a nullable field may be missing |
//!
//! Other tags are passed over. A value that does not fit its field, a member twice, a name that the format does not have
//! (unless [`EncodingOptions::ignore_unknown`] is set), text that is no UTF-8 (unless
//! [`Loss::InvalidText`](super::Loss::InvalidText) is allowed, then it is repaired): an error of that item, behind which
//! reading goes on. Bytes that are no CBOR end it. NaN and the infinities are kept, NaN to the bit where the sizes are
//! the same.

use std::io::BufRead;

use super::items::{Dialect, Head, ItemDecoder, ItemEncoder};
use super::reader::Reader;
use super::{Decoder, Encoder, Encoding, EncodingError, EncodingOptions};
use crate::format::Format;
use crate::record::Record;
use crate::text;
use crate::tokens::Flaw;

const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;
const OTHER: u8 = 7;
/// In place of a length: up to a break.
const INDEFINITE: u8 = 31;

/// CBOR's bytes.
#[derive(Debug)]
struct Cbor;

/// Reads CBOR items into records of one format, without allocating once its buffers have grown to the items' sizes.
#[derive(Debug)]
pub struct CborDecoder {
    items: ItemDecoder<Cbor>,
}

impl CborDecoder {
    /// A decoder for maps of this format.
    #[must_use]
    pub fn new(format: &Format, options: &EncodingOptions) -> Self {
        Self { items: ItemDecoder::new(format, options) }
    }

    /// One item as a record; there must be nothing behind it.
    ///
    /// # Errors
    /// It is no such map.
    pub fn decode(&mut self, item: &[u8]) -> Result<&[u8], EncodingError> {
        self.items.decode(item)
    }
}

impl Decoder for CborDecoder {
    fn next_record(&mut self, input: &mut dyn BufRead) -> Result<Option<&[u8]>, EncodingError> {
        self.items.next_record(input)
    }

    fn restart(&mut self) {
        self.items.restart();
    }
}

/// Writes records of one format as CBOR items.
#[derive(Debug)]
pub struct CborEncoder {
    items: ItemEncoder<Cbor>,
    records: u64,
}

impl CborEncoder {
    /// An encoder for records of this format.
    ///
    /// # Errors
    /// None so far: CBOR holds all that a format has.
    pub fn new(format: &Format, options: &EncodingOptions) -> Result<Self, EncodingError> {
        Ok(Self { items: ItemEncoder::new(format, options)?, records: 0 })
    }
}

impl Encoder for CborEncoder {
    fn record(&mut self, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        self.records += 1;
        self.items.record(record, out).map_err(|error| error.of_item(self.records))
    }
}

/// The number in an item's head, or behind it.
#[inline]
fn argument(info: u8, reader: &mut Reader<'_>) -> Result<u64, Flaw> {
    Ok(match info {
        0..=23 => info.into(),
        24 => u8::from_be_bytes(reader.fixed()?).into(),
        25 => u16::from_be_bytes(reader.fixed()?).into(),
        26 => u32::from_be_bytes(reader.fixed()?).into(),
        27 => u64::from_be_bytes(reader.fixed()?),
        _ => return Err(Flaw::Found("a head that CBOR does not have")),
    })
}

/// A float of 16 bits.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (bits >> 10 & 0x1f, f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2_f64.powi(i32::from(exponent) - 15),
    };
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

impl Dialect for Cbor {
    const ENCODING: Encoding = Encoding::Cbor;
    const HAS_DECIMALS: bool = true;

    #[inline]
    fn head<'a>(reader: &mut Reader<'a>) -> Result<Head<'a>, Flaw> {
        let [head] = reader.fixed()?;
        let (major, info) = (head >> 5, head & 0x1f);
        if major == OTHER {
            return Ok(match info {
                20 | 21 => Head::Bool(info == 21),
                22 | 23 => Head::Null,
                25 => Head::Float(half(u16::from_be_bytes(reader.fixed()?))),
                26 => Head::Float(f32::from_be_bytes(reader.fixed()?).into()),
                27 => Head::Float(f64::from_be_bytes(reader.fixed()?)),
                INDEFINITE => Head::Break,
                _ => {
                    argument(info, reader)?;
                    Head::Other("a simple value that nobody has given a meaning")
                }
            });
        }
        if info == INDEFINITE {
            return match major {
                BYTES | TEXT => Ok(Head::Pieces { is_text: major == TEXT }),
                ARRAY => Ok(Head::Array(None)),
                MAP => Ok(Head::Map(None)),
                _ => Err(Flaw::Found("a head that CBOR does not have")),
            };
        }
        let number = argument(info, reader)?;
        Ok(match major {
            UNSIGNED => Head::Int(number.into()),
            NEGATIVE => Head::Int(-1 - i128::from(number)),
            BYTES => Head::Bytes(reader.take(number)?),
            TEXT => Head::Text(reader.take(number)?),
            ARRAY => Head::Array(Some(number)),
            MAP => Head::Map(Some(number)),
            _ => Head::Tag(number),
        })
    }

    fn push_null(out: &mut Vec<u8>) {
        out.push(OTHER << 5 | 22);
    }

    fn push_bool(out: &mut Vec<u8>, value: bool) {
        out.push(OTHER << 5 | (20 + u8::from(value)));
    }

    fn push_int(out: &mut Vec<u8>, value: i64) {
        match u64::try_from(value) {
            Ok(value) => push_head(out, UNSIGNED, value),
            // -1 - value, which has no sign.
            Err(_) => push_head(out, NEGATIVE, !value as u64),
        }
    }

    fn push_uint(out: &mut Vec<u8>, value: u64) {
        push_head(out, UNSIGNED, value);
    }

    fn push_f32(out: &mut Vec<u8>, value: f32) {
        out.push(OTHER << 5 | 26);
        out.extend_from_slice(&value.to_be_bytes());
    }

    fn push_f64(out: &mut Vec<u8>, value: f64) {
        out.push(OTHER << 5 | 27);
        out.extend_from_slice(&value.to_be_bytes());
    }

    fn push_text(out: &mut Vec<u8>, text: &[u8]) {
        push_head(out, TEXT, text.len() as u64);
        out.extend_from_slice(text);
    }

    fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
        push_head(out, BYTES, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }

    fn push_array(out: &mut Vec<u8>, len: usize) {
        push_head(out, ARRAY, len as u64);
    }

    fn push_map(out: &mut Vec<u8>, len: usize) {
        push_head(out, MAP, len as u64);
    }

    fn push_time(out: &mut Vec<u8>, nanoseconds: i64) {
        push_head(out, TAG, 0);
        let start = out.len();
        // Times of the years that there are have 20 to 35 bytes: a head of two.
        out.extend_from_slice(&[TEXT << 5 | 24, 0]);
        text::push_timestamp(out, nanoseconds);
        let len = out.len() - start - 2;
        if let Some(place) = out.get_mut(start + 1) {
            *place = len as u8;
        }
        if len < 24 {
            out[start] = TEXT << 5 | len as u8;
            out.remove(start + 1);
        }
    }

    fn push_decimal(out: &mut Vec<u8>, unscaled: i128, scale: u8) {
        push_head(out, TAG, 4);
        push_head(out, ARRAY, 2);
        Self::push_int(out, -i64::from(scale));
        // -1 - value, which has no sign, for those below zero.
        let (major, tag, number) = match u128::try_from(unscaled) {
            Ok(number) => (UNSIGNED, 2, number),
            Err(_) => (NEGATIVE, 3, !unscaled as u128),
        };
        match u64::try_from(number) {
            Ok(number) => push_head(out, major, number),
            Err(_) => push_big(out, tag, number),
        }
    }
}

/// The head of an item, in its shortest form.
#[inline]
fn push_head(out: &mut Vec<u8>, major: u8, number: u64) {
    let major = major << 5;
    match number {
        0..=23 => out.push(major | number as u8),
        24..=0xff => out.extend_from_slice(&[major | 24, number as u8]),
        0x100..=0xffff => {
            out.push(major | 25);
            out.extend_from_slice(&(number as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(major | 26);
            out.extend_from_slice(&(number as u32).to_be_bytes());
        }
        _ => {
            out.push(major | 27);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

fn push_big(out: &mut Vec<u8>, tag: u64, number: u128) {
    let bytes = number.to_be_bytes();
    let zeros = number.leading_zeros() as usize / 8;
    push_head(out, TAG, tag);
    Cbor::push_bytes(out, &bytes[zeros..]);
}
