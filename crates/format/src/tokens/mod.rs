//! Encodings whose members have names: JSON, XML, CBOR, MessagePack.
//!
//! A decoder of one of them gives [`Tokens`]; [`TokenDecoder`] makes records of these by the format's fields, the same for all.
//! Most of them have values that say what they are. Those of XML do not: there an element is what the decoder asks for.

mod decode;
mod members;
mod put;

use crate::builder::ByteRun;
use crate::encoding::reader::ReadFlaw;
use crate::scan::{Digits, Needle};

pub(crate) use decode::{Stop, TokenDecoder, WrongItem};
pub(crate) use put::Rules;

/// A value, or what it starts with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Token<'a> {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    /// A number of seconds since 1970.
    Seconds(Number),
    /// A time in nanoseconds since 1970.
    Time(i128),
    Decimal {
        unscaled: i128,
        scale: u8,
    },
    /// A number as it is written.
    Digits(Digits<'a>),
    /// UTF-8, if the writer kept its promise.
    Text(ByteRun<'a>),
    Bytes(ByteRun<'a>),
    /// An integer as bytes: the first byte first, as the encoding has it.
    BigInt {
        bytes: ByteRun<'a>,
        value: i128,
    },
    /// A value of whatever type, as it is written.
    Untyped(ByteRun<'a>),
    /// Values follow: see [`Tokens::more`].
    Array(Open),
    /// Names with values follow: see [`Tokens::more`].
    Map(Open),
    /// A member that has no place here, and its name or text.
    Stray {
        what: &'static str,
        text: &'a [u8],
    },
    /// A value that no field can hold.
    Other(&'static str),
}

/// A number without a unit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Int(i128),
    Float(f64),
}

/// An array or map that is being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    /// Values, or names with values, that are to come; `None` where their end is marked, or is found by where they began.
    pub(crate) left: Option<u64>,
    /// How many bytes were left where they began, for an encoding that asks.
    pub(crate) from: Option<usize>,
    pub(crate) is_map: bool,
    /// Whether none has been read.
    pub(crate) is_first: bool,
    /// Of a map that is passed over and whose names are values: whether the last name has no value yet.
    pub(crate) lacks_value: bool,
}

impl Open {
    pub(crate) fn array(left: Option<u64>) -> Self {
        Self { left, from: None, is_map: false, is_first: true, lacks_value: false }
    }

    pub(crate) fn map(left: Option<u64>) -> Self {
        Self { left, from: None, is_map: true, is_first: true, lacks_value: false }
    }

    /// The same with each name as one more value, where their number is known.
    fn of_values(self) -> Result<Self, Flaw> {
        let twice = |left: u64| left.checked_mul(2).ok_or(Flaw::Found("a map of too many values"));
        Ok(match self.left {
            Some(left) => Self::array(Some(twice(left)?)),
            None => self,
        })
    }
}

/// Why there is no token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    /// There are not enough bytes.
    Cut,
    /// The bytes are none of the encoding's: what was found.
    Found(&'static str),
    /// The byte that is next is not what it has to be: what was expected.
    Expected(&'static str),
    /// Values nest deeper than [`MAX_NESTING`](crate::MAX_NESTING).
    TooDeep,
}

impl From<ReadFlaw> for Flaw {
    fn from(_: ReadFlaw) -> Self {
        // No encoding with tokens has varints, whose other flaw is.
        Self::Cut
    }
}

/// The values of one item of an encoding, one after the other.
pub(crate) trait Tokens {
    /// The encoding's names for its maps and arrays, and has for times.
    const MAP: &'static str;
    const ARRAY: &'static str;
    /// The start of a member.
    const NAME: &'static str = "a name, as text";
    const TIMES: &'static str;
    /// Whether it has neither bytes nor infinities, for which it has texts.
    const LACKS_TYPES: bool;
    /// Whether a name may be any value, where nobody looks at it.
    const NAMES_ARE_VALUES: bool;
    /// Whether values say what they are. Where they do not, a list without elements is not there at all, and a record of one
    /// nullable value is always there around it.
    const IS_TYPED: bool = true;

    /// Where the next token is.
    type Mark: Copy;

    fn mark(&self) -> Self::Mark;

    /// Goes back.
    fn go_to(&mut self, mark: Self::Mark);

    /// The next value, where a single one is wanted.
    fn value(&mut self) -> Result<Token<'_>, Flaw>;

    /// The next value, where a map is wanted.
    #[inline(always)]
    fn map(&mut self) -> Result<Token<'_>, Flaw> {
        self.value()
    }

    /// The next value, where an array is wanted; `is_element`: it is an element of another.
    #[inline(always)]
    fn array(&mut self, is_element: bool) -> Result<Token<'_>, Flaw> {
        let _ = is_element;
        self.value()
    }

    /// The next value, where nothing is wanted of it.
    #[inline(always)]
    fn any(&mut self) -> Result<Token<'_>, Flaw> {
        self.value()
    }

    /// Goes on to the next value, or name with a value, of the innermost array or map, behind all of the last one; false
    /// behind its end.
    fn more(&mut self, open: &mut Open) -> Result<bool, Flaw>;

    /// Passes over the name that comes next, if it is the one that is expected.
    fn take_name(&mut self, expected: &Needle) -> Result<bool, Flaw>;

    /// The name that comes next; an error is a token that is no name.
    fn name(&mut self) -> Result<Result<&[u8], Token<'_>>, Flaw>;

    /// The meaning of a name where the format has none like it, if for another.
    fn short_name(_name: &[u8]) -> Option<&[u8]> {
        None
    }
}
