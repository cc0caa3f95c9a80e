//! Bytes that are read from their start on, as the binary encodings have them.

use crate::builder::ByteRun;

/// Why nothing could be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadFlaw {
    /// There are fewer bytes than asked for.
    Cut,
    /// A varint goes on for more than ten bytes.
    Varint,
}

/// Bytes, and how far they have been read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How many bytes are left.
    #[inline]
    pub(crate) fn left(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes that are left.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, ReadFlaw> {
        match self.bytes {
            [a, rest @ ..] if *a < 0x80 => {
                self.bytes = rest;
                Ok((*a).into())
            }
            [a, b, rest @ ..] if *b < 0x80 => {
                self.bytes = rest;
                Ok(u64::from(a & 0x7f) | u64::from(*b) << 7)
            }
            _ => self.long_varint(),
        }
    }

    /// A varint of three bytes or more.
    fn long_varint(&mut self) -> Result<u64, ReadFlaw> {
        if let Some(word) = self.bytes.first_chunk() {
            let word = u64::from_le_bytes(*word);
            let ends = !word & 0x8080_8080_8080_8080;
            if ends != 0 {
                // Of the bytes up to the one with no top bit, seven bits each, moved together in three steps.
                let bits = ends.trailing_zeros() + 1;
                let word = word & (u64::MAX >> (64 - bits)) & 0x7f7f_7f7f_7f7f_7f7f;
                let word = (word & 0x007f_007f_007f_007f) | (word & 0x7f00_7f00_7f00_7f00) >> 1;
                let word = (word & 0x0000_3fff_0000_3fff) | (word & 0x3fff_0000_3fff_0000) >> 2;
                let word = (word & 0x0000_0000_0fff_ffff) | (word & 0x0fff_ffff_0000_0000) >> 4;
                self.bytes = self.bytes.get(bits as usize / 8..).unwrap_or_default();
                return Ok(word);
            }
        }
        let mut value = 0;
        for (index, byte) in self.bytes.iter().take(10).enumerate() {
            // The bits of the tenth byte beyond 64 fall away, as it does in Protobuf's own libraries.
            value |= u64::from(byte & 0x7f) << (7 * index);
            if *byte < 0x80 {
                self.bytes = self.bytes.get(index + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        Err(if self.bytes.len() < 10 { ReadFlaw::Cut } else { ReadFlaw::Varint })
    }

    #[inline]
    pub(crate) fn fixed<const N: usize>(&mut self) -> Result<[u8; N], ReadFlaw> {
        let (value, rest) = self.bytes.split_first_chunk().ok_or(ReadFlaw::Cut)?;
        self.bytes = rest;
        Ok(*value)
    }

    /// Bytes behind their length.
    #[inline]
    pub(crate) fn length_delimited(&mut self) -> Result<&'a [u8], ReadFlaw> {
        let len = usize::try_from(self.varint()?).map_err(|_| ReadFlaw::Cut)?;
        let (value, rest) = self.bytes.split_at_checked(len).ok_or(ReadFlaw::Cut)?;
        self.bytes = rest;
        Ok(value)
    }

    /// Bytes behind their length, with those behind them.
    #[inline]
    pub(crate) fn run(&mut self) -> Result<ByteRun<'a>, ReadFlaw> {
        let len = self.varint()?;
        self.take(len)
    }

    /// Takes `len` bytes, with those after them.
    #[inline]
    pub(crate) fn take(&mut self, len: u64) -> Result<ByteRun<'a>, ReadFlaw> {
        let len = usize::try_from(len).map_err(|_| ReadFlaw::Cut)?;
        let ahead = self.bytes;
        let (bytes, rest) = ahead.split_at_checked(len).ok_or(ReadFlaw::Cut)?;
        self.bytes = rest;
        Ok(ByteRun { bytes, ahead })
    }
}

/// Appends a varint.
#[inline]
pub(crate) fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Zigzag: small numbers of either sign to small unsigned ones.
#[inline]
pub(crate) const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

#[inline]
pub(crate) const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_of_every_length() {
        for bits in 0..64 {
            for value in [1_u64 << bits, (1 << bits) - 1, (1 << bits) | 1] {
                let mut bytes = Vec::new();
                push_varint(&mut bytes, value);
                // Alone, and with more behind it: the two ways in which long ones are read.
                for behind in [0, 16] {
                    let mut bytes = bytes.clone();
                    bytes.extend(vec![0xff; behind]);
                    let mut reader = Reader::new(&bytes);
                    assert_eq!(reader.varint(), Ok(value));
                    assert_eq!(reader.left(), behind);
                }
                for short in 0..bytes.len() {
                    assert_eq!(Reader::new(&bytes[..short]).varint(), Err(ReadFlaw::Cut));
                }
                assert_eq!(unzigzag(zigzag(value as i64)), value as i64);
            }
        }
        assert_eq!(Reader::new(&[0xff; 11]).varint(), Err(ReadFlaw::Varint));
    }
}
