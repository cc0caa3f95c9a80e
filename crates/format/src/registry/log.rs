//! The registry as a log of entries: what a durable store appends, and reads back after a crash.
//!
//! An entry is a frame: its length in bytes and a checksum, 32 bits each, little-endian, and then its text. The text's
//! first word says what it is. A frame that was not written out whole is the log's end.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::{MAX_STREAM_NAME_BYTES, Policy, Registry, RegistryError};
use crate::convert::{Conversion, MAX_CONVERSION_BYTES};
use crate::format::Format;
use crate::id::FormatId;

/// Bytes in front of an entry's text.
const HEAD_BYTES: usize = 8;
/// Longest text of an entry, in bytes: a description of the largest format there can be, and a conversion, are far shorter.
pub const MAX_ENTRY_BYTES: usize = 4 << 20;
const _: () = assert!(crate::MAX_DESCRIPTION_BYTES + MAX_CONVERSION_BYTES + MAX_STREAM_NAME_BYTES < MAX_ENTRY_BYTES);

/// One change of a registry.
#[derive(Clone, PartialEq, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "entries are written and taken one after the other, and few are there at once"
)]
pub enum Entry {
    /// A format became known.
    Format(Format),
    /// A format became a stream's newest version.
    Version {
        /// The stream's name.
        stream: String,
        /// The format.
        format: FormatId,
        /// Its number, where it is not the next after the newest one's: versions between them were removed, or may follow.
        number: Option<usize>,
    },
    /// A stream got a policy.
    Policy {
        /// The stream's name.
        stream: String,
        /// The policy.
        policy: Policy,
    },
    /// A format of a stream is converted only as somebody registered.
    Guarded {
        /// The stream's name.
        stream: String,
        /// The format.
        format: FormatId,
    },
    /// A conversion is kept.
    Conversion {
        /// The stream's name.
        stream: String,
        /// The format of the records that come in.
        from: FormatId,
        /// The format of the records that go out.
        to: FormatId,
        /// How.
        conversion: Conversion,
    },
    /// A conversion is kept no longer.
    NoConversion {
        /// The stream's name.
        stream: String,
        /// The format of the records that came in.
        from: FormatId,
        /// The format of the records that went out.
        to: FormatId,
    },
    /// A stream's version was removed.
    NoVersion {
        /// The stream's name.
        stream: String,
        /// The format.
        format: FormatId,
    },
    /// A stream was removed, with its versions, its policy and the conversions that were kept for it.
    NoStream {
        /// The stream's name.
        stream: String,
    },
}

impl Entry {
    /// The entry as a frame, appended to `log`.
    pub fn write(&self, log: &mut Vec<u8>) {
        let text = self.text();
        // Far below 32 bits: see MAX_ENTRY_BYTES.
        log.extend_from_slice(&(text.len() as u32).to_le_bytes());
        log.extend_from_slice(&checksum(text.as_bytes()));
        log.extend_from_slice(text.as_bytes());
    }

    /// Length of its frame, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        HEAD_BYTES + self.text().len()
    }

    fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = match self {
            Self::Format(format) => write!(text, "format\n{}", format.describe()),
            Self::Version { stream, format, number: None } => write!(text, "version {format}\n{stream}"),
            Self::Version { stream, format, number: Some(number) } => {
                write!(text, "version {format} {number}\n{stream}")
            }
            Self::Policy { stream, policy } => write!(text, "policy {policy}\n{stream}"),
            Self::Guarded { stream, format } => write!(text, "guarded {format}\n{stream}"),
            // A stream's name has no line end in it, a conversion may have many.
            Self::Conversion { stream, from, to, conversion } => {
                write!(text, "conversion {from} {to}\n{stream}\n{conversion}")
            }
            Self::NoConversion { stream, from, to } => write!(text, "no-conversion {from} {to}\n{stream}"),
            Self::NoVersion { stream, format } => write!(text, "no-version {format}\n{stream}"),
            Self::NoStream { stream } => write!(text, "no-stream\n{stream}"),
        };
        text
    }

    /// The entry of a frame's text.
    fn read(text: &str) -> Option<Entry> {
        let (head, rest) = text.split_once('\n')?;
        let words: Vec<&str> = head.split(' ').collect();
        Some(match words[..] {
            ["format"] => Self::Format(Format::parse(rest).ok()?),
            ["version", format] => {
                Self::Version { format: format.parse().ok()?, number: None, stream: rest.to_owned() }
            }
            ["version", format, number] => {
                // A number of 32 bits, so that there is always a next one.
                let number = Some(number.parse::<u32>().ok()? as usize);
                Self::Version { format: format.parse().ok()?, number, stream: rest.to_owned() }
            }
            ["policy", policy] => Self::Policy { policy: policy.parse().ok()?, stream: rest.to_owned() },
            ["guarded", format] => Self::Guarded { format: format.parse().ok()?, stream: rest.to_owned() },
            ["conversion", from, to] => {
                let (stream, conversion) = rest.split_once('\n')?;
                let [from, to] = [from.parse().ok()?, to.parse().ok()?];
                Self::Conversion { stream: stream.to_owned(), from, to, conversion: conversion.parse().ok()? }
            }
            ["no-conversion", from, to] => {
                Self::NoConversion { from: from.parse().ok()?, to: to.parse().ok()?, stream: rest.to_owned() }
            }
            ["no-version", format] => Self::NoVersion { format: format.parse().ok()?, stream: rest.to_owned() },
            ["no-stream"] => Self::NoStream { stream: rest.to_owned() },
            _ => return None,
        })
    }
}

/// The first bytes of a hash: enough to see a torn or rotten frame.
fn checksum(text: &[u8]) -> [u8; 4] {
    let hash = Sha256::digest(text);
    hash.first_chunk().copied().unwrap_or_default()
}

/// The result of reading a log.
#[derive(Debug)]
pub struct Replayed {
    /// The registry as the log leaves it.
    pub registry: Registry,
    /// Length in bytes of the frames that are whole: what comes behind them is torn, and to be cut off before anything
    /// is appended.
    pub whole_bytes: usize,
    /// Entries that are whole and could not be applied, by their place in the log in bytes: of a later release, or
    /// contradicting those before them. They are passed over.
    pub passed_over: Vec<(usize, Option<RegistryError>)>,
}

/// Reads a log back. Whatever the bytes, this neither fails nor panics: what is torn is left out, and said. A format whose
/// version or conversion is gone is forgotten.
#[must_use]
pub fn replay(log: &[u8]) -> Replayed {
    let mut replayed = Replayed { registry: Registry::default(), whole_bytes: 0, passed_over: Vec::new() };
    while let Some(text) = frame(&log[replayed.whole_bytes..]) {
        let at = replayed.whole_bytes;
        replayed.whole_bytes += HEAD_BYTES + text.len();
        match str::from_utf8(text).ok().and_then(Entry::read) {
            None => replayed.passed_over.push((at, None)),
            Some(entry) => {
                if let Err(error) = replayed.registry.apply(&entry) {
                    replayed.passed_over.push((at, Some(error)));
                }
            }
        }
    }
    replayed.registry.forget_unused();
    replayed
}

/// The text of the frame that these bytes begin with, if it is whole.
fn frame(bytes: &[u8]) -> Option<&[u8]> {
    let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    if length > MAX_ENTRY_BYTES {
        return None;
    }
    let text = bytes.get(HEAD_BYTES..HEAD_BYTES + length)?;
    (bytes.get(4..HEAD_BYTES)? == checksum(text)).then_some(text)
}
