//! Thrift's compact protocol, as far as it takes to find some values and to pass over all others. Input that the
//! library would take otherwise is refused.

use std::io::{self, Read};

/// How deep structs and lists nest where they are passed over: those of pages and of schemas go 4 deep.
const MAX_DEPTH: u32 = 8;

/// The types of fields.
pub(super) const I8: u8 = 3;
pub(super) const I32: u8 = 5;
pub(super) const BINARY: u8 = 8;
pub(super) const LIST: u8 = 9;
pub(super) const STRUCT: u8 = 12;

pub(super) fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a page header or the schema is damaged")
}

/// A reader of no more than `most` bytes.
pub(super) struct Thrift<R> {
    input: R,
    read: u64,
    most: u64,
}

impl<R: Read> Thrift<R> {
    pub(super) fn new(input: R, most: u64) -> Self {
        Self { input, read: 0, most }
    }

    /// Bytes read.
    pub(super) fn read(&self) -> u64 {
        self.read
    }

    pub(super) fn byte(&mut self) -> io::Result<u8> {
        if self.read >= self.most {
            return Err(broken());
        }
        let mut byte = [0];
        self.input.read_exact(&mut byte)?;
        self.read += 1;
        Ok(byte[0])
    }

    pub(super) fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(broken())
    }

    /// A zigzag varint.
    pub(super) fn integer(&mut self) -> io::Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// The next field's type and id; `None` at the struct's end.
    pub(super) fn field(&mut self, last: i64) -> io::Result<Option<(u8, i64)>> {
        let byte = self.byte()?;
        let (delta, ty) = (byte >> 4, byte & 0x0f);
        let id = match (delta, ty) {
            (_, 0) => return Ok(None),
            (0, _) => self.integer()?,
            _ => last.saturating_add(delta.into()),
        };
        // The library takes the low 16 bits.
        if i16::try_from(id).is_ok() { Ok(Some((ty, id))) } else { Err(broken()) }
    }

    /// The length of a list of structs.
    pub(super) fn structs(&mut self) -> io::Result<u64> {
        match self.byte()? {
            // An empty list may have any type.
            0 => Ok(0),
            head if head & 0x0f != STRUCT => Err(broken()),
            head if head >> 4 == 15 => self.varint(),
            head => Ok(u64::from(head >> 4)),
        }
    }

    /// Passes over a value of this type.
    pub(super) fn pass(&mut self, ty: u8) -> io::Result<()> {
        self.pass_at(ty, MAX_DEPTH)
    }

    fn pass_at(&mut self, ty: u8, depth: u32) -> io::Result<()> {
        let depth = depth.checked_sub(1).ok_or_else(broken)?;
        match ty {
            // Booleans are in the field's type.
            1 | 2 => {}
            3 => {
                self.byte()?;
            }
            4..=6 => {
                self.varint()?;
            }
            7 => self.pass_bytes(8)?,
            8 => {
                let length = self.varint()?;
                self.pass_bytes(length)?;
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                // A boolean takes a byte here, and nothing takes less.
                let element = if matches!(head & 0x0f, 1 | 2) { 3 } else { head & 0x0f };
                if count > self.most {
                    return Err(broken());
                }
                for _ in 0..count {
                    self.pass_at(element, depth)?;
                }
            }
            12 => {
                let mut id = 0;
                while let Some((ty, next)) = self.field(id)? {
                    id = next;
                    self.pass_at(ty, depth)?;
                }
            }
            _ => return Err(broken()),
        }
        Ok(())
    }

    fn pass_bytes(&mut self, bytes: u64) -> io::Result<()> {
        if bytes > self.most - self.read {
            return Err(broken());
        }
        let passed = io::copy(&mut (&mut self.input).take(bytes), &mut io::sink())?;
        self.read += passed;
        if passed == bytes { Ok(()) } else { Err(broken()) }
    }
}
