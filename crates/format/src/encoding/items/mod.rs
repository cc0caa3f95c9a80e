//! Encodings that say of each value in its first byte what it is: CBOR and MessagePack.
//!
//! Both are the same once their bytes are [`Head`]s, the source of the tokens that records are read from; a [`Dialect`] is
//! what makes them so, and back.
//!
//! The heads are read by code of ours: a byte that says what comes, and a length. The libraries for it read on while all is well;
//! here the end of an item has to be found whatever is wrong in it, before its values are looked at, with lengths held against
//! bounds and without memory, so that the next item is read all the same. Tests hold both against a library, both ways.

mod decode;
mod encode;
mod scan;
mod shape;
mod tokens;

pub(super) use decode::ItemDecoder;
pub(super) use encode::ItemEncoder;

use super::Encoding;
use super::reader::Reader;
use crate::builder::ByteRun;
use crate::tokens::Flaw;

/// Something else where a piece of text or bytes was due.
const NO_PIECE: Flaw = Flaw::Found("pieces that are neither text nor bytes");

/// The meaning of the first bytes of a value, with those that they count.
#[derive(Clone, Copy, Debug)]
pub(super) enum Head<'a> {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    /// UTF-8, if the writer kept its promise.
    Text(ByteRun<'a>),
    Bytes(ByteRun<'a>),
    /// This number of values; without a number, those up to a [`Head::Break`].
    Array(Option<u64>),
    /// This number of names and values, as above.
    Map(Option<u64>),
    Break,
    /// Says what the next value stands for.
    Tag(u64),
    /// Text or bytes in pieces, up to a [`Head::Break`].
    Pieces {
        is_text: bool,
    },
    /// A time in nanoseconds since 1970.
    Time(i128),
    /// A value that no field can hold.
    Other(&'static str),
}

/// One of the encodings.
pub(super) trait Dialect {
    const ENCODING: Encoding;
    /// Whether it has decimals; otherwise they are text.
    const HAS_DECIMALS: bool;

    fn head<'a>(reader: &mut Reader<'a>) -> Result<Head<'a>, Flaw>;

    fn push_null(out: &mut Vec<u8>);
    fn push_bool(out: &mut Vec<u8>, value: bool);
    fn push_int(out: &mut Vec<u8>, value: i64);
    fn push_uint(out: &mut Vec<u8>, value: u64);
    fn push_f32(out: &mut Vec<u8>, value: f32);
    fn push_f64(out: &mut Vec<u8>, value: f64);
    fn push_text(out: &mut Vec<u8>, text: &[u8]);
    fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]);
    fn push_array(out: &mut Vec<u8>, len: usize);
    fn push_map(out: &mut Vec<u8>, len: usize);
    fn push_time(out: &mut Vec<u8>, nanoseconds: i64);
    fn push_decimal(out: &mut Vec<u8>, unscaled: i128, scale: u8);
}
