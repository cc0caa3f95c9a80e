//! The state of a query as bytes, and those bytes read as something from outside.
//!
//! A saved state has the keys, rows and aggregates, and nothing of their places in memory: what is read is entered as it was entered
//! first. So bytes of any kind make a sound state, or are refused.
//!
//! The bytes begin with a head: [`MAGIC`], the [`VERSION`] of the layout, a checksum of what follows it, the length of what follows that,
//! and the kind of the state, which says to which plan it belongs.

use std::fmt;

use crossdock_format::{Format, Record};

const MAGIC: [u8; 8] = *b"cdstate\0";
/// The version of the layout.
const VERSION: u32 = 1;
/// Where the checksum is, and where the bytes begin that it is of.
const CHECKSUM_AT: usize = 12;
const CHECKED_AT: usize = 16;
/// Where what follows the length begins.
const CONTENT_AT: usize = 24;

/// The most rows that a saved count may say: those of ten years at 10 million a second. Sums of thousands of such counts are still numbers.
const MOST_ROWS: u64 = 1 << 52;

/// The reason in [`SavedStateError::Damaged`] for a count of more rows than a state can have seen.
pub const TOO_MANY_ROWS: &str = "a count is too great";

/// Why a state could not be made of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SavedStateError {
    /// They are no saved state, or one of another release.
    Unknown,
    /// Bytes are missing or changed.
    Damaged(&'static str),
    /// It is the state of another query, or of other formats.
    OtherKind,
}

impl fmt::Display for SavedStateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SavedStateError::Unknown => f.write_str("it is no saved state that this release reads"),
            SavedStateError::Damaged(why) => write!(f, "it is damaged: {why}"),
            SavedStateError::OtherKind => {
                f.write_str("it belongs to another query, or to other formats of its streams")
            }
        }
    }
}

impl std::error::Error for SavedStateError {}

impl From<&'static str> for SavedStateError {
    fn from(why: &'static str) -> SavedStateError {
        SavedStateError::Damaged(why)
    }
}

/// Begins a saved state of this kind at the end of `out`.
pub(crate) fn begin(kind: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[0; CONTENT_AT - CHECKSUM_AT]);
    put_bytes(out, kind.as_bytes());
}

/// Completes the head of a saved state, whose first byte is the first of these: its length and its checksum. A core only writes the state;
/// this goes through all of it.
pub fn seal_state(saved: &mut [u8]) {
    let length = saved.len().saturating_sub(CONTENT_AT) as u64;
    set(saved, CHECKED_AT, &length.to_le_bytes());
    let checksum = crc32fast::hash(saved.get(CHECKED_AT..).unwrap_or_default());
    set(saved, CHECKSUM_AT, &checksum.to_le_bytes());
}

/// Writes bytes from a place on. Bytes that are too short for a head are left alone: they are no state.
fn set(saved: &mut [u8], at: usize, bytes: &[u8]) {
    let place = saved.get_mut(at..at + bytes.len());
    place.into_iter().for_each(|place| place.copy_from_slice(bytes));
}

/// The bytes behind the head of a saved state of this kind.
///
/// # Errors
/// It is none, or that of another kind.
pub(crate) fn open<'b>(saved: &'b [u8], kind: &str) -> Result<SavedBytes<'b>, SavedStateError> {
    let mut head = SavedBytes(saved);
    if head.array().ok() != Some(MAGIC) || head.array().ok() != Some(VERSION.to_le_bytes()) {
        return Err(SavedStateError::Unknown);
    }
    let checksum = u32::from_le_bytes(head.array()?);
    if crc32fast::hash(head.0) != checksum {
        return Err(SavedStateError::Damaged("its checksum is another one"));
    }
    if head.u64()? != head.0.len() as u64 {
        return Err(SavedStateError::Damaged("it has another length"));
    }
    match head.bytes()? == kind.as_bytes() {
        true => Ok(head),
        false => Err(SavedStateError::OtherKind),
    }
}

/// Writes bytes with their length.
#[inline]
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Writes a truth value. In front of each item of a list stands TRUE, and behind the last one FALSE.
#[inline]
pub(crate) fn put_flag(out: &mut Vec<u8>, flag: bool) {
    out.push(u8::from(flag));
}

/// Writes a number.
#[inline]
pub(crate) fn put_i64(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// A number of rows, unless no state can have as many.
pub(crate) fn counted(rows: u64) -> Result<u64, &'static str> {
    if rows <= MOST_ROWS { Ok(rows) } else { Err(TOO_MANY_ROWS) }
}

/// The rest of a saved state.
pub(crate) struct SavedBytes<'b>(&'b [u8]);

impl<'b> SavedBytes<'b> {
    /// How many bytes are left.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The next bytes, of this number.
    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Result<&'b [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("it ends too early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        self.take(N)?.first_chunk().copied().ok_or("it ends too early")
    }

    pub(crate) fn u64(&mut self) -> Result<u64, &'static str> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, &'static str> {
        self.array().map(i64::from_le_bytes)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, &'static str> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err("a truth value is none"),
        }
    }

    /// Bytes that stand behind their length.
    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<&'b [u8], &'static str> {
        let length = u32::from_le_bytes(self.array()?);
        self.take(length as usize)
    }

    /// A row of a format.
    pub(crate) fn row(&mut self, format: &Format) -> Result<&'b [u8], &'static str> {
        let bytes = self.bytes()?;
        match Record::check(format, bytes) {
            Ok(record) if record.bytes().len() == bytes.len() => Ok(bytes),
            _ => Err("a row is no record of its format"),
        }
    }

    /// # Errors
    /// Something follows.
    pub(crate) fn end(&self) -> Result<(), &'static str> {
        if self.0.is_empty() { Ok(()) } else { Err("something follows its end") }
    }
}
