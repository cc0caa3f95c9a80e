//! MessagePack in and out: a map a record, one after the other with nothing in between.
//!
//! The names of a map's members are those of the format's fields, in any order; a nested record is a map, a union is a
//! map of the one variant that is there, a list is an array.
//!
//! | field | written | read besides |
//! |---|---|---|
//! | integers | integers, in their shortest form | – |
//! | `f32`, `f64` | floats of that size | floats of either size, rounded to the nearest; integers that lose nothing |
//! | `timestamp` | the extension type -1 | RFC 3339 text, also without a zone (UTC) |
//! | `decimal` | text, where [`Loss::Decimal`](super::Loss::Decimal) is allowed | integers |
//! | enumerations | the symbol as text; the number, where it has none | any number that fits, also as text |
//! | `char[N]`, `string`; `bytes` | text; bytes | – |
//! | null | nil | a nullable field may be missing |
//!
//! A value that does not fit its field, a member twice, a name that the format does not have (unless
//! [`EncodingOptions::ignore_unknown`] is set), text that is no UTF-8 (unless
//! [`Loss::InvalidText`](super::Loss::InvalidText) is allowed, then it is repaired), an extension that is no time: an error
//! of that item, behind which reading goes on. The byte `c1`, which MessagePack does not have, ends it. NaN and the
//! infinities are kept, NaN to the bit where the sizes are the same.

use std::io::BufRead;

use super::items::{Dialect, Head, ItemDecoder, ItemEncoder};
use super::reader::Reader;
use super::{Decoder, Encoder, Encoding, EncodingError, EncodingOptions};
use crate::format::Format;
use crate::record::Record;
use crate::text;
use crate::tokens::Flaw;

/// The extension type of times, -1.
const TIME: u8 = 0xff;
const NANOSECONDS: i64 = 1_000_000_000;

/// MessagePack's bytes.
#[derive(Debug)]
struct MessagePack;

/// Reads MessagePack items into records of one format, without allocating once its buffers have grown to the items'
/// sizes.
#[derive(Debug)]
pub struct MessagePackDecoder {
    items: ItemDecoder<MessagePack>,
}

impl MessagePackDecoder {
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

impl Decoder for MessagePackDecoder {
    fn next_record(&mut self, input: &mut dyn BufRead) -> Result<Option<&[u8]>, EncodingError> {
        self.items.next_record(input)
    }

    fn restart(&mut self) {
        self.items.restart();
    }
}

/// Writes records of one format as MessagePack items.
#[derive(Debug)]
pub struct MessagePackEncoder {
    items: ItemEncoder<MessagePack>,
    records: u64,
}

impl MessagePackEncoder {
    /// An encoder for records of this format.
    ///
    /// # Errors
    /// A decimal would become text, and [`Loss::Decimal`](super::Loss::Decimal) is not allowed.
    pub fn new(format: &Format, options: &EncodingOptions) -> Result<Self, EncodingError> {
        Ok(Self { items: ItemEncoder::new(format, options)?, records: 0 })
    }
}

impl Encoder for MessagePackEncoder {
    fn record(&mut self, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        self.records += 1;
        self.items.record(record, out).map_err(|error| error.of_item(self.records))
    }
}

fn u8_of(reader: &mut Reader<'_>) -> Result<u64, Flaw> {
    Ok(u8::from_be_bytes(reader.fixed()?).into())
}

fn u16_of(reader: &mut Reader<'_>) -> Result<u64, Flaw> {
    Ok(u16::from_be_bytes(reader.fixed()?).into())
}

fn u32_of(reader: &mut Reader<'_>) -> Result<u64, Flaw> {
    Ok(u32::from_be_bytes(reader.fixed()?).into())
}

fn u64_of(reader: &mut Reader<'_>) -> Result<u64, Flaw> {
    Ok(u64::from_be_bytes(reader.fixed()?))
}

/// An extension whose data have `len` bytes.
fn extension<'a>(len: u64, reader: &mut Reader<'a>) -> Result<Head<'a>, Flaw> {
    let [kind] = reader.fixed()?;
    let mut data = Reader::new(reader.take(len)?.bytes);
    if kind != TIME {
        return Ok(Head::Other("an extension that is no time"));
    }
    let (seconds, nanoseconds) = match len {
        4 => (i64::from(u32::from_be_bytes(data.fixed()?)), 0),
        8 => {
            let word = u64::from_be_bytes(data.fixed()?);
            ((word & 0x3_ffff_ffff) as i64, word >> 34)
        }
        12 => {
            let nanoseconds = u32::from_be_bytes(data.fixed()?);
            (i64::from_be_bytes(data.fixed()?), u64::from(nanoseconds))
        }
        _ => return Ok(Head::Other("a time of another size than times have")),
    };
    if nanoseconds >= NANOSECONDS as u64 {
        return Ok(Head::Other("a time with more nanoseconds than a second has"));
    }
    Ok(Head::Time(i128::from(seconds) * i128::from(NANOSECONDS) + i128::from(nanoseconds)))
}

impl Dialect for MessagePack {
    const ENCODING: Encoding = Encoding::MessagePack;
    const HAS_DECIMALS: bool = false;

    #[inline]
    fn head<'a>(reader: &mut Reader<'a>) -> Result<Head<'a>, Flaw> {
        let [head] = reader.fixed()?;
        let text = |len: u64, reader: &mut Reader<'a>| Ok(Head::Text(reader.take(len)?));
        let bytes = |len: u64, reader: &mut Reader<'a>| Ok(Head::Bytes(reader.take(len)?));
        Ok(match head {
            0x00..=0x7f => Head::Int(head.into()),
            0x80..=0x8f => Head::Map(Some((head & 0xf).into())),
            0x90..=0x9f => Head::Array(Some((head & 0xf).into())),
            0xa0..=0xbf => return text((head & 0x1f).into(), reader),
            0xc0 => Head::Null,
            0xc1 => return Err(Flaw::Found("the byte c1, which MessagePack does not have")),
            0xc2 | 0xc3 => Head::Bool(head == 0xc3),
            0xc4 => return bytes(u8_of(reader)?, reader),
            0xc5 => return bytes(u16_of(reader)?, reader),
            0xc6 => return bytes(u32_of(reader)?, reader),
            0xc7 => return extension(u8_of(reader)?, reader),
            0xc8 => return extension(u16_of(reader)?, reader),
            0xc9 => return extension(u32_of(reader)?, reader),
            0xca => Head::Float(f32::from_be_bytes(reader.fixed()?).into()),
            0xcb => Head::Float(f64::from_be_bytes(reader.fixed()?)),
            0xcc => Head::Int(u8_of(reader)?.into()),
            0xcd => Head::Int(u16_of(reader)?.into()),
            0xce => Head::Int(u32_of(reader)?.into()),
            0xcf => Head::Int(u64_of(reader)?.into()),
            0xd0 => Head::Int(i8::from_be_bytes(reader.fixed()?).into()),
            0xd1 => Head::Int(i16::from_be_bytes(reader.fixed()?).into()),
            0xd2 => Head::Int(i32::from_be_bytes(reader.fixed()?).into()),
            0xd3 => Head::Int(i64::from_be_bytes(reader.fixed()?).into()),
            0xd4..=0xd8 => return extension(1 << (head - 0xd4), reader),
            0xd9 => return text(u8_of(reader)?, reader),
            0xda => return text(u16_of(reader)?, reader),
            0xdb => return text(u32_of(reader)?, reader),
            0xdc => Head::Array(Some(u16_of(reader)?)),
            0xdd => Head::Array(Some(u32_of(reader)?)),
            0xde => Head::Map(Some(u16_of(reader)?)),
            0xdf => Head::Map(Some(u32_of(reader)?)),
            0xe0..=0xff => Head::Int((head as i8).into()),
        })
    }

    fn push_null(out: &mut Vec<u8>) {
        out.push(0xc0);
    }

    fn push_bool(out: &mut Vec<u8>, value: bool) {
        out.push(0xc2 + u8::from(value));
    }

    fn push_int(out: &mut Vec<u8>, value: i64) {
        match value {
            0.. => Self::push_uint(out, value as u64),
            -32..0 => out.push(value as u8),
            -0x80..-32 => out.extend_from_slice(&[0xd0, value as u8]),
            -0x8000..-0x80 => push_with(out, 0xd1, (value as i16).to_be_bytes()),
            -0x8000_0000..-0x8000 => push_with(out, 0xd2, (value as i32).to_be_bytes()),
            _ => push_with(out, 0xd3, value.to_be_bytes()),
        }
    }

    fn push_uint(out: &mut Vec<u8>, value: u64) {
        match value {
            0..=0x7f => out.push(value as u8),
            0x80..=0xff => out.extend_from_slice(&[0xcc, value as u8]),
            0x100..=0xffff => push_with(out, 0xcd, (value as u16).to_be_bytes()),
            0x1_0000..=0xffff_ffff => push_with(out, 0xce, (value as u32).to_be_bytes()),
            _ => push_with(out, 0xcf, value.to_be_bytes()),
        }
    }

    fn push_f32(out: &mut Vec<u8>, value: f32) {
        push_with(out, 0xca, value.to_be_bytes());
    }

    fn push_f64(out: &mut Vec<u8>, value: f64) {
        push_with(out, 0xcb, value.to_be_bytes());
    }

    fn push_text(out: &mut Vec<u8>, text: &[u8]) {
        match text.len() {
            len @ 0..=31 => out.push(0xa0 | len as u8),
            len @ 32..=0xff => out.extend_from_slice(&[0xd9, len as u8]),
            len @ 0x100..=0xffff => push_with(out, 0xda, (len as u16).to_be_bytes()),
            // No record is longer than 64 MiB.
            len => push_with(out, 0xdb, (len as u32).to_be_bytes()),
        }
        out.extend_from_slice(text);
    }

    fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
        match bytes.len() {
            len @ 0..=0xff => out.extend_from_slice(&[0xc4, len as u8]),
            len @ 0x100..=0xffff => push_with(out, 0xc5, (len as u16).to_be_bytes()),
            len => push_with(out, 0xc6, (len as u32).to_be_bytes()),
        }
        out.extend_from_slice(bytes);
    }

    fn push_array(out: &mut Vec<u8>, len: usize) {
        match len {
            0..=15 => out.push(0x90 | len as u8),
            16..=0xffff => push_with(out, 0xdc, (len as u16).to_be_bytes()),
            _ => push_with(out, 0xdd, (len as u32).to_be_bytes()),
        }
    }

    fn push_map(out: &mut Vec<u8>, len: usize) {
        match len {
            0..=15 => out.push(0x80 | len as u8),
            16..=0xffff => push_with(out, 0xde, (len as u16).to_be_bytes()),
            _ => push_with(out, 0xdf, (len as u32).to_be_bytes()),
        }
    }

    fn push_time(out: &mut Vec<u8>, nanoseconds: i64) {
        let (seconds, rest) = (nanoseconds.div_euclid(NANOSECONDS), nanoseconds.rem_euclid(NANOSECONDS));
        match (u32::try_from(seconds), u64::try_from(seconds)) {
            (Ok(seconds), _) if rest == 0 => {
                out.extend_from_slice(&[0xd6, TIME]);
                out.extend_from_slice(&seconds.to_be_bytes());
            }
            (_, Ok(seconds)) if seconds >> 34 == 0 => {
                out.extend_from_slice(&[0xd7, TIME]);
                out.extend_from_slice(&((rest as u64) << 34 | seconds).to_be_bytes());
            }
            _ => {
                out.extend_from_slice(&[0xc7, 12, TIME]);
                out.extend_from_slice(&(rest as u32).to_be_bytes());
                out.extend_from_slice(&seconds.to_be_bytes());
            }
        }
    }

    fn push_decimal(out: &mut Vec<u8>, unscaled: i128, scale: u8) {
        let start = out.len();
        // A sign, 39 digits, a point, and zeros in front of it: more than 31 bytes at times, never 256.
        out.extend_from_slice(&[0xd9, 0]);
        text::push_decimal(out, unscaled, scale);
        let len = out.len() - start - 2;
        if let Some(place) = out.get_mut(start + 1) {
            *place = len as u8;
        }
    }
}

#[inline]
fn push_with<const N: usize>(out: &mut Vec<u8>, head: u8, number: [u8; N]) {
    out.push(head);
    out.extend_from_slice(&number);
}
