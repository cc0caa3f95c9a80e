//! The registry: every format that was announced, streams' versions, how they may change, and the conversions that are
//! kept.
//!
//! It is a value: changes come back as [`Entry`]s, which a durable store appends to a log ([`Entry::write`]) and reads back
//! ([`replay`]). There is no file in here.
//!
//! ```
//! use crossdock_format::Format;
//! use crossdock_format::registry::{Policy, Registry, replay};
//!
//! let mut registry = Registry::default();
//! let mut log = Vec::new();
//! let first = Format::parse_schema("flight u16\ndelay f64")?;
//! for entry in registry.announce("delays", &first)?.entries {
//!     entry.write(&mut log);
//! }
//! registry.set_policy("delays", Policy::Backward)?.write(&mut log);
//! // A reader of the new format could not read old records: they have no gate.
//! let second = Format::parse_schema("flight u32\ndelay f64\ngate string")?;
//! assert!(registry.announce("delays", &second).is_err());
//! let second = Format::parse_schema("flight u32\ndelay f64\ngate string null")?;
//! for entry in registry.announce("delays", &second)?.entries {
//!     entry.write(&mut log);
//! }
//! // A crash in the middle of a write:
//! log.extend_from_slice(&[7, 0, 0]);
//! let replayed = replay(&log);
//! assert_eq!((replayed.whole_bytes, replayed.registry), (log.len() - 3, registry));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod diff;
mod log;

pub use diff::{Diff, FieldDiff, Seen};
pub use log::{Entry, MAX_ENTRY_BYTES, Replayed, replay};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use crate::convert::Conversion;
use crate::description::FormatId;
use crate::format::Format;

/// Most formats that a registry keeps.
pub const MAX_FORMATS: usize = 1 << 16;
/// Most streams that a registry keeps versions of.
pub const MAX_STREAMS: usize = 1 << 16;
/// Most versions of a stream.
pub const MAX_VERSIONS: usize = 1024;
/// Most conversions that a registry keeps.
pub const MAX_CONVERSIONS: usize = 4096;
/// Longest name of a stream, in bytes.
pub const MAX_STREAM_NAME_BYTES: usize = 255;

/// How a stream's format may change: what its next version is held against the newest one for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Policy {
    /// In any way.
    #[default]
    None,
    /// Readers of the new version can read all records of the old one.
    Backward,
    /// Readers of the old version can read all records of the new one.
    Forward,
    /// Both.
    Full,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 4] = [Self::None, Self::Backward, Self::Forward, Self::Full];

    /// What is in the way of `new` as the version after `old`; the flaws by field, none if it is allowed.
    fn flaws(self, old: &Format, new: &Format) -> Vec<(Direction, FieldDiff)> {
        let mut flaws = Vec::new();
        let mut hold = |direction, reader, written| {
            let fields = Diff::of(reader, written).fields.into_iter();
            flaws.extend(fields.filter(|field| !field.seen.is_compatible()).map(|field| (direction, field)));
        };
        if matches!(self, Self::Backward | Self::Full) {
            hold(Direction::NewReadsOld, new, old);
        }
        if matches!(self, Self::Forward | Self::Full) {
            hold(Direction::OldReadsNew, old, new);
        }
        flaws
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Backward => "backward",
            Self::Forward => "forward",
            Self::Full => "full",
        })
    }
}

/// A word that is no policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a policy is none, backward (new readers read old records), forward (old readers read new ones) or full (both)"
)]
pub struct PolicyError;

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(word: &str) -> Result<Policy, PolicyError> {
        Self::ALL.into_iter().find(|policy| policy.to_string() == word).ok_or(PolicyError)
    }
}

/// A stream's versions, and how they may change.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stream {
    versions: Vec<FormatId>,
    policy: Policy,
    guarded: BTreeSet<FormatId>,
}

impl Stream {
    /// The formats in order; the first is version 1.
    #[must_use]
    pub fn versions(&self) -> &[FormatId] {
        &self.versions
    }

    /// The number of a format among the versions, counted from 1.
    #[must_use]
    pub fn version(&self, format: FormatId) -> Option<usize> {
        self.versions.iter().position(|id| *id == format).map(|index| index + 1)
    }

    /// How its format may change.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }
}

/// All formats, streams and kept conversions.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Registry {
    formats: BTreeMap<FormatId, Format>,
    streams: BTreeMap<String, Stream>,
    conversions: BTreeMap<(String, FormatId, FormatId), Conversion>,
}

/// What an announcement came to.
#[derive(Clone, PartialEq, Debug)]
pub struct Announced {
    /// The number of the format among the stream's versions, counted from 1.
    pub version: usize,
    /// What changed; nothing if all was known.
    pub entries: Vec<Entry>,
}

impl Registry {
    /// The format of an id.
    #[must_use]
    pub fn format(&self, id: FormatId) -> Option<&Format> {
        self.formats.get(&id)
    }

    /// All formats, in the order of their ids.
    pub fn formats(&self) -> impl Iterator<Item = &Format> {
        self.formats.values()
    }

    /// A stream's versions and policy.
    #[must_use]
    pub fn stream(&self, name: &str) -> Option<&Stream> {
        self.streams.get(name)
    }

    /// All streams by name.
    pub fn streams(&self) -> impl Iterator<Item = (&str, &Stream)> {
        self.streams.iter().map(|(name, stream)| (name.as_str(), stream))
    }

    /// The conversions that are kept: of which stream, from, to, and how.
    pub fn conversions(&self) -> impl Iterator<Item = (&str, FormatId, FormatId, &Conversion)> {
        self.conversions.iter().map(|((stream, from, to), conversion)| (stream.as_str(), *from, *to, conversion))
    }

    /// Takes up a format, known or not.
    ///
    /// # Errors
    /// Another format has the same id, or there are [`MAX_FORMATS`].
    pub fn register(&mut self, format: &Format) -> Result<Option<Entry>, RegistryError> {
        match self.formats.get(&format.id()) {
            Some(known) if known.describe() == format.describe() => Ok(None),
            Some(_) => Err(RegistryError::Collision { id: format.id() }),
            None if self.formats.len() >= MAX_FORMATS => {
                Err(RegistryError::Full { what: "formats", most: MAX_FORMATS })
            }
            None => {
                self.formats.insert(format.id(), format.clone());
                Ok(Some(Entry::Format(format.clone())))
            }
        }
    }

    /// What [`Registry::announce`] would refuse, with nothing changed.
    ///
    /// # Errors
    /// As [`Registry::announce`].
    pub fn check(&self, stream: &str, format: &Format) -> Result<(), RegistryError> {
        check_name(stream)?;
        let Some(known) = self.streams.get(stream) else { return Ok(()) };
        if known.version(format.id()).is_some() {
            return Ok(());
        }
        let newest = known.versions.last().and_then(|id| self.formats.get(id));
        let flaws = newest.map(|newest| known.policy.flaws(newest, format)).unwrap_or_default();
        match flaws.is_empty() {
            true => Ok(()),
            false => Err(RegistryError::Incompatible { stream: stream.to_owned(), policy: known.policy, flaws }),
        }
    }

    /// Takes up a format as one that a stream has: its newest version, if it was none before.
    ///
    /// # Errors
    /// The stream's policy does not allow it as the version after the newest one, its name is no name, another format has
    /// the same id, or there is no room; nothing changed.
    pub fn announce(&mut self, stream: &str, format: &Format) -> Result<Announced, RegistryError> {
        self.check(stream, format)?;
        if let Some(version) = self.streams.get(stream).and_then(|stream| stream.version(format.id())) {
            return Ok(Announced { version, entries: Vec::new() });
        }
        self.check_room(stream)?;
        let mut entries: Vec<Entry> = self.register(format)?.into_iter().collect();
        let known = self.streams.entry(stream.to_owned()).or_default();
        known.versions.push(format.id());
        let version = known.versions.len();
        entries.push(Entry::Version { stream: stream.to_owned(), format: format.id() });
        Ok(Announced { version, entries })
    }

    /// Sets how a stream's format may change from now on; the stream need not have any yet.
    ///
    /// # Errors
    /// The name is no name, or there are [`MAX_STREAMS`].
    pub fn set_policy(&mut self, stream: &str, policy: Policy) -> Result<Entry, RegistryError> {
        check_name(stream)?;
        self.check_room(stream)?;
        self.streams.entry(stream.to_owned()).or_default().policy = policy;
        Ok(Entry::Policy { stream: stream.to_owned(), policy })
    }

    /// Keeps a conversion between two known formats for a stream, in the place of the one that was kept before. Whether it
    /// can be done is for who compiles it.
    ///
    /// # Errors
    /// The stream's name is no name, one of the formats is not known, or there are [`MAX_CONVERSIONS`].
    pub fn keep(
        &mut self,
        stream: &str,
        from: FormatId,
        to: FormatId,
        conversion: &Conversion,
    ) -> Result<Entry, RegistryError> {
        check_name(stream)?;
        if let Some(id) = [from, to].into_iter().find(|id| !self.formats.contains_key(id)) {
            return Err(RegistryError::UnknownFormat { id });
        }
        let key = (stream.to_owned(), from, to);
        if self.conversions.len() >= MAX_CONVERSIONS && !self.conversions.contains_key(&key) {
            return Err(RegistryError::Full { what: "conversions", most: MAX_CONVERSIONS });
        }
        self.conversions.insert(key, conversion.clone());
        Ok(Entry::Conversion { stream: stream.to_owned(), from, to, conversion: conversion.clone() })
    }

    /// Keeps a conversion no longer; `None` if it was not kept.
    pub fn forget(&mut self, stream: &str, from: FormatId, to: FormatId) -> Option<Entry> {
        let removed = self.conversions.remove(&(stream.to_owned(), from, to));
        removed.map(|_| Entry::NoConversion { stream: stream.to_owned(), from, to })
    }

    /// Guards a known format of a stream from now on: its records are converted only as somebody registered, never by name
    /// alone, since a registered conversion may have left something out on purpose. `None` if it was guarded.
    ///
    /// # Errors
    /// The stream's name is no name, the format is not known, or there is no room.
    pub fn guard(&mut self, stream: &str, format: FormatId) -> Result<Option<Entry>, RegistryError> {
        check_name(stream)?;
        if !self.formats.contains_key(&format) {
            return Err(RegistryError::UnknownFormat { id: format });
        }
        self.check_room(stream)?;
        let known = self.streams.entry(stream.to_owned()).or_default();
        if known.guarded.len() >= MAX_VERSIONS && !known.guarded.contains(&format) {
            return Err(RegistryError::Full { what: "guarded formats of a stream", most: MAX_VERSIONS });
        }
        let is_new = known.guarded.insert(format);
        Ok(is_new.then(|| Entry::Guarded { stream: stream.to_owned(), format }))
    }

    /// The formats of a stream that are guarded.
    pub fn guarded(&self, stream: &str) -> impl Iterator<Item = FormatId> {
        self.streams.get(stream).into_iter().flat_map(|stream| stream.guarded.iter().copied())
    }

    /// Makes a change again that was made before. Policies are not asked: they were when it was made.
    ///
    /// # Errors
    /// It contradicts what is known, or there is no room; nothing changed.
    pub fn apply(&mut self, entry: &Entry) -> Result<(), RegistryError> {
        match entry {
            Entry::Format(format) => self.register(format).map(|_| ()),
            Entry::Version { stream, format } => {
                check_name(stream)?;
                self.check_room(stream)?;
                if !self.formats.contains_key(format) {
                    return Err(RegistryError::UnknownFormat { id: *format });
                }
                let known = self.streams.entry(stream.clone()).or_default();
                if known.version(*format).is_none() {
                    known.versions.push(*format);
                }
                Ok(())
            }
            Entry::Policy { stream, policy } => self.set_policy(stream, *policy).map(|_| ()),
            Entry::Guarded { stream, format } => self.guard(stream, *format).map(|_| ()),
            Entry::Conversion { stream, from, to, conversion } => self.keep(stream, *from, *to, conversion).map(|_| ()),
            Entry::NoConversion { stream, from, to } => {
                self.forget(stream, *from, *to);
                Ok(())
            }
        }
    }

    /// The fewest entries that make this registry: what a store writes in place of a log that has grown long.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        let formats = self.formats.values().cloned().map(Entry::Format);
        let streams = self.streams.iter().flat_map(|(name, stream)| {
            let versions = stream.versions.iter().map(|id| Entry::Version { stream: name.clone(), format: *id });
            let guarded = stream.guarded.iter().map(|id| Entry::Guarded { stream: name.clone(), format: *id });
            // A stream with nothing else is there for its policy.
            let is_bare = stream.versions.is_empty() && stream.guarded.is_empty();
            let policy = (stream.policy != Policy::None || is_bare)
                .then(|| Entry::Policy { stream: name.clone(), policy: stream.policy });
            versions.chain(guarded).chain(policy)
        });
        let conversions = self.conversions.iter().map(|((stream, from, to), conversion)| Entry::Conversion {
            stream: stream.clone(),
            from: *from,
            to: *to,
            conversion: conversion.clone(),
        });
        formats.chain(streams).chain(conversions)
    }

    /// Whether a stream can have one more version.
    fn check_room(&self, stream: &str) -> Result<(), RegistryError> {
        match self.streams.get(stream) {
            Some(known) if known.versions.len() >= MAX_VERSIONS => {
                Err(RegistryError::Full { what: "versions of a stream", most: MAX_VERSIONS })
            }
            None if self.streams.len() >= MAX_STREAMS => {
                Err(RegistryError::Full { what: "streams", most: MAX_STREAMS })
            }
            _ => Ok(()),
        }
    }
}

fn check_name(stream: &str) -> Result<(), RegistryError> {
    match stream.len() {
        1..=MAX_STREAM_NAME_BYTES if !stream.chars().any(char::is_control) => Ok(()),
        _ => Err(RegistryError::Name { found: stream.chars().take(80).flat_map(char::escape_debug).collect() }),
    }
}

/// Which way a policy looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// A reader of the new version, and a record of the old one.
    NewReadsOld,
    /// A reader of the old version, and a record of the new one.
    OldReadsNew,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NewReadsOld => "who reads the new format would see of old records",
            Self::OldReadsNew => "who reads the old format would see of new records",
        })
    }
}

/// Why a registry refuses a change.
#[derive(Clone, PartialEq, Debug)]
pub enum RegistryError {
    /// Two formats have one id.
    Collision {
        /// The id.
        id: FormatId,
    },
    /// A format is not known.
    UnknownFormat {
        /// Its id.
        id: FormatId,
    },
    /// A stream's policy does not allow a format as its next version.
    Incompatible {
        /// The stream's name.
        stream: String,
        /// Its policy.
        policy: Policy,
        /// The fields that are in the way, each with who would read what.
        flaws: Vec<(Direction, FieldDiff)>,
    },
    /// A stream's name is none.
    Name {
        /// The name.
        found: String,
    },
    /// There is no room.
    Full {
        /// What there are too many of.
        what: &'static str,
        /// How many there may be.
        most: usize,
    },
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collision { id } => {
                write!(f, "another format has the id {id}; change a field's name or order, and it gets one of its own")
            }
            Self::UnknownFormat { id } => write!(f, "no format has the id {id}; announce it first"),
            Self::Incompatible { stream, policy, flaws } => {
                write!(f, "the policy of stream `{stream}` is {policy}")?;
                for (direction, FieldDiff { name, seen }) in flaws {
                    write!(f, "\n{direction}, field `{name}`: {seen}")?;
                }
                write!(f, "\nmend the format, or set another policy")
            }
            Self::Name { found } => {
                write!(f, "`{found}` is no stream's name: 1 to {MAX_STREAM_NAME_BYTES} bytes, no control characters")
            }
            Self::Full { what, most } => write!(f, "there are {most} {what} already, as many as are kept"),
        }
    }
}

impl std::error::Error for RegistryError {}
