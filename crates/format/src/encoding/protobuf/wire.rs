//! Protobuf's wire format: varints, tags, and passing over what nobody asked for.

use crate::encoding::reader::{ReadFlaw, Reader};
use crate::nesting::{MAX_NESTING, TOO_DEEP};

/// How a value stands on the wire: the low three bits of a tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wire {
    Varint = 0,
    Fixed64 = 1,
    Length = 2,
    Start = 3,
    End = 4,
    Fixed32 = 5,
}

/// The greatest field number.
pub(super) const MAX_NUMBER: u32 = (1 << 29) - 1;
const WIRE_BITS: u32 = 3;

impl Wire {
    pub(super) fn of(tag: u32) -> Option<Self> {
        Some(match tag & 7 {
            0 => Self::Varint,
            1 => Self::Fixed64,
            2 => Self::Length,
            3 => Self::Start,
            4 => Self::End,
            5 => Self::Fixed32,
            _ => return None,
        })
    }

    /// Its name in the words of Protobuf's documentation.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Varint => "VARINT",
            Self::Fixed64 => "I64",
            Self::Length => "LEN",
            Self::Start => "SGROUP",
            Self::End => "EGROUP",
            Self::Fixed32 => "I32",
        }
    }
}

/// The tag of a field.
pub(super) const fn tag(number: u32, wire: Wire) -> u32 {
    number << WIRE_BITS | wire as u32
}

/// The field number in a tag.
pub(super) const fn number(tag: u32) -> u32 {
    tag >> WIRE_BITS
}

/// The errors of a message's bytes; put into words where somebody asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flaw {
    /// The message ends within a value, or a varint goes on and on.
    Bytes(ReadFlaw),
    /// A tag is beyond 32 bits, has field number 0, or no wire type.
    Tag,
    /// A group ends that did not begin, or never ends.
    Group,
    /// Groups lie in each other too deep.
    Depth,
}

impl Flaw {
    pub(super) fn found(self) -> &'static str {
        match self {
            Self::Bytes(ReadFlaw::Cut) => "a message that ends in the middle of a value",
            Self::Bytes(ReadFlaw::Varint) => "a varint of more than ten bytes",
            Self::Tag => "a tag that is none",
            Self::Group => "a group whose end is not its own",
            Self::Depth => TOO_DEEP,
        }
    }
}

impl From<ReadFlaw> for Flaw {
    fn from(flaw: ReadFlaw) -> Self {
        Self::Bytes(flaw)
    }
}

impl<'a> Reader<'a> {
    /// A tag with a field number and a wire type that there are.
    #[inline]
    pub(super) fn tag(&mut self) -> Result<u32, Flaw> {
        let tag = u32::try_from(self.varint()?).map_err(|_| Flaw::Tag)?;
        match number(tag) {
            1..=MAX_NUMBER if tag & 7 <= 5 => Ok(tag),
            _ => Err(Flaw::Tag),
        }
    }

    /// Passes over the value behind this tag.
    pub(super) fn skip(&mut self, tag: u32) -> Result<(), Flaw> {
        self.skip_at(tag, MAX_NESTING)
    }

    fn skip_at(&mut self, tag: u32, depth: usize) -> Result<(), Flaw> {
        match Wire::of(tag).ok_or(Flaw::Tag)? {
            Wire::Varint => Ok(self.varint().map(|_| ())?),
            Wire::Fixed64 => Ok(self.fixed::<8>().map(|_| ())?),
            Wire::Fixed32 => Ok(self.fixed::<4>().map(|_| ())?),
            Wire::Length => Ok(self.length_delimited().map(|_| ())?),
            Wire::End => Err(Flaw::Group),
            Wire::Start => {
                let depth = depth.checked_sub(1).ok_or(Flaw::Depth)?;
                loop {
                    let inner = self.tag()?;
                    if inner & 7 == Wire::End as u32 {
                        return if number(inner) == number(tag) { Ok(()) } else { Err(Flaw::Group) };
                    }
                    self.skip_at(inner, depth)?;
                }
            }
        }
    }

    /// The bytes of a group up to its end, which are passed over together with the end's tag.
    pub(super) fn group(&mut self, tag: u32) -> Result<&'a [u8], Flaw> {
        let start = self.rest();
        loop {
            let before = self.left();
            let inner = self.tag()?;
            if inner & 7 == Wire::End as u32 {
                let len = start.len() - before;
                return match number(inner) == number(tag) {
                    true => Ok(start.get(..len).unwrap_or_default()),
                    false => Err(Flaw::Group),
                };
            }
            self.skip_at(inner, MAX_NESTING)?;
        }
    }
}

/// Appends what `write` appends, behind its length as a varint.
#[inline]
pub(super) fn length_delimited<T, E>(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<T, E>,
) -> Result<T, E> {
    let start = out.len();
    // Most are shorter than 128 bytes: one byte is kept free, and what is longer is moved up.
    out.push(0);
    let outcome = write(out)?;
    let len = out.len() - start - 1;
    match u8::try_from(len) {
        Ok(byte) if byte < 0x80 => out[start] = byte,
        _ => {
            let mut prefix = [0_u8; 10];
            let mut size = 0;
            let mut rest = len as u64;
            while rest >= 0x80 {
                prefix[size] = rest as u8 | 0x80;
                rest >>= 7;
                size += 1;
            }
            prefix[size] = rest as u8;
            out.splice(start..=start, prefix[..=size].iter().copied());
        }
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::reader::push_varint;

    #[test]
    fn lengths_of_one_byte_and_more() {
        for len in [0, 1, 127, 128, 16_383, 16_384] {
            let mut out = vec![7];
            let written: Result<(), ()> = length_delimited(&mut out, |out| {
                out.resize(out.len() + len, 1);
                Ok(())
            });
            assert_eq!(written, Ok(()));
            assert_eq!(Reader::new(&out[1..]).length_delimited(), Ok(&vec![1; len][..]));
        }
    }

    #[test]
    fn groups_are_passed_over() {
        let start = tag(3, Wire::Start);
        let mut bytes = Vec::new();
        for part in [tag(1, Wire::Varint), 5, tag(4, Wire::Start), tag(4, Wire::End), tag(3, Wire::End), 9] {
            push_varint(&mut bytes, part.into());
        }
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.skip(start), Ok(()));
        assert_eq!(reader.left(), 1);
        assert_eq!(Reader::new(&bytes).skip(tag(2, Wire::Start)), Err(Flaw::Group));
        assert_eq!(Reader::new(&bytes[..3]).skip(start), Err(Flaw::Bytes(ReadFlaw::Cut)));
        let deep = vec![start as u8; 100];
        assert_eq!(Reader::new(&deep).skip(start), Err(Flaw::Depth));
    }
}
