//! The id of a format: the hash of its description.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// The name of a format that needs no server to give it out: the first 8 bytes of the SHA-256 of its canonical
/// description, read as a little-endian number. Its text form is that number as 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FormatId(
    /// The number.
    pub u64,
);

/// The SHA-256 of a canonical description: what distinguishes two formats whose ids are the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FormatDigest([u8; 32]);

impl FormatDigest {
    /// The digest of the format with this canonical description.
    pub(crate) fn of(description: &str) -> Self {
        Self(Sha256::digest(description.as_bytes()).into())
    }

    /// Its first 8 bytes, the id.
    pub(crate) fn id(self) -> FormatId {
        FormatId(self.0.first_chunk().copied().map_or(0, u64::from_le_bytes))
    }
}

impl fmt::Display for FormatId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A word that is no format id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a format id is 16 hexadecimal digits, such as 00c0ffee00c0ffee")]
pub struct FormatIdError;

impl FromStr for FormatId {
    type Err = FormatIdError;

    fn from_str(text: &str) -> Result<Self, FormatIdError> {
        if text.len() != 16 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(FormatIdError);
        }
        u64::from_str_radix(text, 16).map(Self).map_err(|_| FormatIdError)
    }
}
