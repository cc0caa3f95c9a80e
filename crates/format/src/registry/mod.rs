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
mod policy;

pub use diff::{Diff, FieldDiff, Seen};
pub use log::{Entry, MAX_ENTRY_BYTES, Replayed, replay};
pub use policy::{Direction, Flaw, Obstacle, Policy, PolicyError};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::convert::{Conversion, MAX_CONVERSION_BYTES};
use crate::format::Format;
use crate::id::FormatId;

/// Most formats that a registry keeps.
pub const MAX_FORMATS: usize = 1 << 16;
/// Most streams that a registry keeps versions of.
pub const MAX_STREAMS: usize = 1 << 16;
/// Most versions of a stream.
pub const MAX_VERSIONS: usize = 1024;
/// Most conversions that a registry keeps.
pub const MAX_CONVERSIONS: usize = 4096;
/// Most bytes that a registry's fewest entries take, all in all. A log of them is read back whole, also one that has grown to
/// some times that.
pub const MAX_BYTES: usize = 64 << 20;
/// Most conversions that a record goes through, one after the other.
pub const MAX_STEPS: usize = 8;
/// Longest name of a stream, in bytes.
pub const MAX_STREAM_NAME_BYTES: usize = 255;

/// A stream's versions, and how they may change.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stream {
    versions: Vec<FormatId>,
    /// Their numbers, which rise.
    numbers: Vec<usize>,
    policy: Policy,
    guarded: BTreeSet<FormatId>,
}

impl Stream {
    /// The formats in order, the newest last.
    #[must_use]
    pub fn versions(&self) -> &[FormatId] {
        &self.versions
    }

    /// The number of a format among the versions. The first version of a stream is 1, the next has the newest one's number and 1
    /// more, and the numbers of removed ones are missing.
    #[must_use]
    pub fn version(&self, format: FormatId) -> Option<usize> {
        let index = self.versions.iter().position(|id| *id == format)?;
        self.numbers.get(index).copied()
    }

    /// The number that the next version gets.
    fn next_number(&self) -> usize {
        self.numbers.last().map_or(1, |newest| newest + 1)
    }

    /// How its format may change.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }
}

/// All streams, kept conversions, and the formats of both: one that is no stream's version and that no kept conversion
/// is from or to is forgotten.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Registry {
    formats: BTreeMap<FormatId, Known>,
    streams: BTreeMap<String, Stream>,
    conversions: BTreeMap<(String, FormatId, FormatId), Conversion>,
    /// The bytes of all of that that count against [`MAX_BYTES`].
    bytes: usize,
}

/// A format, and what it is known for.
#[derive(Clone, PartialEq, Debug)]
struct Known {
    format: Format,
    /// Versions that it is, and ends of kept conversions.
    uses: usize,
}

/// The result of an announcement.
#[derive(Clone, PartialEq, Debug)]
pub struct Announced {
    /// The number of the format among the stream's versions.
    pub version: usize,
    /// The changes; nothing if all was known.
    pub entries: Vec<Entry>,
}

impl Registry {
    /// The format of an id.
    #[must_use]
    pub fn format(&self, id: FormatId) -> Option<&Format> {
        self.formats.get(&id).map(|known| &known.format)
    }

    /// All formats, in the order of their ids.
    pub fn formats(&self) -> impl Iterator<Item = &Format> {
        self.formats.values().map(|known| &known.format)
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

    /// The conversions that are kept: stream, from, to, and how.
    pub fn conversions(&self) -> impl Iterator<Item = (&str, FormatId, FormatId, &Conversion)> {
        self.conversions.iter().map(|((stream, from, to), conversion)| (stream.as_str(), *from, *to, conversion))
    }

    /// Whether the id of a format identifies it among all others.
    ///
    /// # Errors
    /// Another format has the same id: the digests of their descriptions differ.
    pub fn check_id(&self, format: &Format) -> Result<(), RegistryError> {
        match self.format(format.id()) {
            Some(known) if known != format => Err(RegistryError::Collision { id: format.id() }),
            _ => Ok(()),
        }
    }

    /// The refusals of [`Registry::announce`], with nothing changed.
    ///
    /// # Errors
    /// As [`Registry::announce`].
    pub fn check(&self, stream: &str, format: &Format) -> Result<(), RegistryError> {
        check_name(stream)?;
        self.check_id(format)?;
        let Some(known) = self.streams.get(stream) else { return Ok(()) };
        if known.version(format.id()).is_some() {
            return Ok(());
        }
        let flaws = self.flaws(stream, known, format);
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
        let version = self.streams.get(stream).map_or(1, Stream::next_number);
        let last = Entry::Version { stream: stream.to_owned(), format: format.id(), number: None };
        let entries = self.apply_with([format], last)?;
        Ok(Announced { version, entries })
    }

    /// Sets how a stream's format may change from now on; the stream need not have any yet.
    ///
    /// # Errors
    /// The name is no name, or there is no room for one stream more.
    pub fn set_policy(&mut self, stream: &str, policy: Policy) -> Result<Entry, RegistryError> {
        let entry = Entry::Policy { stream: stream.to_owned(), policy };
        self.apply(&entry).map(|()| entry)
    }

    /// Keeps a conversion for a stream, in the place of the one that was kept before between the two formats; what changed,
    /// entry by entry. Whether it can be done is for who compiles it.
    ///
    /// # Errors
    /// The stream's name is no name, another format has the id of one of these, the conversion's text is over
    /// [`MAX_CONVERSION_BYTES`], or there is no room; nothing changed.
    pub fn keep(
        &mut self,
        stream: &str,
        from: &Format,
        to: &Format,
        conversion: &Conversion,
    ) -> Result<Vec<Entry>, RegistryError> {
        let last = Entry::Conversion {
            stream: stream.to_owned(),
            from: from.id(),
            to: to.id(),
            conversion: conversion.clone(),
        };
        self.apply_with([from, to], last)
    }

    /// Keeps a conversion no longer; `None` if it was not kept.
    pub fn forget(&mut self, stream: &str, from: FormatId, to: FormatId) -> Option<Entry> {
        let (key, conversion) = self.conversions.remove_entry(&(stream.to_owned(), from, to))?;
        self.bytes -= conversion_entry(&key, &conversion).bytes();
        self.release(from);
        self.release(to);
        Some(Entry::NoConversion { stream: key.0, from, to })
    }

    /// Removes a version of a stream; the others keep their numbers. `None` if the stream has no such version.
    pub fn remove_version(&mut self, stream: &str, format: FormatId) -> Option<Entry> {
        let known = self.streams.get_mut(stream)?;
        let at = known.versions.iter().position(|id| *id == format)?;
        known.versions.remove(at);
        known.numbers.remove(at);
        let was_guarded = known.guarded.remove(&format);
        let name = || stream.to_owned();
        self.bytes -= version_bytes(stream, format);
        if was_guarded {
            self.bytes -= Entry::Guarded { stream: name(), format }.bytes();
        }
        self.release(format);
        Some(Entry::NoVersion { stream: name(), format })
    }

    /// Removes a stream: its versions, its policy, and the conversions that are kept for it. `None` if nothing is known of it.
    pub fn remove_stream(&mut self, stream: &str) -> Option<Entry> {
        let of_stream = self.conversions.keys().filter(|(of, ..)| of == stream);
        let conversions: Vec<_> = of_stream.map(|(_, from, to)| (*from, *to)).collect();
        if conversions.is_empty() && !self.streams.contains_key(stream) {
            return None;
        }
        for (from, to) in conversions {
            self.forget(stream, from, to);
        }
        let versions = self.streams.get(stream).map(|known| known.versions.clone());
        for format in versions.into_iter().flatten() {
            self.remove_version(stream, format);
        }
        if self.streams.remove(stream).is_some() {
            self.bytes -= stream_bytes(stream);
        }
        Some(Entry::NoStream { stream: stream.to_owned() })
    }

    /// Guards a version of a stream from now on: its records are converted only as somebody registered, never by name
    /// alone, since a registered conversion may have left something out on purpose. `None` if it was guarded.
    ///
    /// # Errors
    /// The stream has no such version, or there is no room.
    pub fn guard(&mut self, stream: &str, format: FormatId) -> Result<Option<Entry>, RegistryError> {
        if self.guarded(stream).any(|guarded| guarded == format) {
            return Ok(None);
        }
        let entry = Entry::Guarded { stream: stream.to_owned(), format };
        self.apply(&entry).map(|()| Some(entry))
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
            Entry::Format(format) => self.take_up(format),
            Entry::Version { stream, format, number } => self.add_version(stream, *format, *number),
            Entry::Policy { stream, policy } => {
                self.stream_with_room(stream, 0)?.policy = *policy;
                Ok(())
            }
            Entry::Guarded { stream, format } => {
                let known = self.streams.get(stream).filter(|known| known.version(*format).is_some());
                let known = known.ok_or(RegistryError::UnknownFormat { id: *format })?;
                if !known.guarded.contains(format) {
                    self.stream_with_room(stream, entry.bytes())?.guarded.insert(*format);
                }
                Ok(())
            }
            Entry::Conversion { stream, from, to, conversion } => {
                self.add_conversion((stream.clone(), *from, *to), conversion)
            }
            Entry::NoConversion { stream, from, to } => {
                self.forget(stream, *from, *to);
                Ok(())
            }
            Entry::NoVersion { stream, format } => {
                self.remove_version(stream, *format);
                Ok(())
            }
            Entry::NoStream { stream } => {
                self.remove_stream(stream);
                Ok(())
            }
        }
    }

    /// Makes a change, with the formats that it speaks of taken up before it where they are new: all of it, or nothing.
    /// The parts that changed, entry by entry.
    fn apply_with<const N: usize>(&mut self, formats: [&Format; N], last: Entry) -> Result<Vec<Entry>, RegistryError> {
        let mut entries = Vec::new();
        let mut outcome = Ok(());
        for format in formats {
            outcome = outcome.and_then(|()| self.check_id(format));
            if outcome.is_ok() && self.format(format.id()).is_none() {
                outcome = self.take_up(format);
                entries.push(Entry::Format(format.clone()));
            }
        }
        let outcome = outcome.and_then(|()| self.apply(&last));
        entries.push(last);
        if outcome.is_err() {
            formats.into_iter().for_each(|format| self.forget_if_unused(format.id()));
        }
        outcome.map(|()| entries)
    }

    fn take_up(&mut self, format: &Format) -> Result<(), RegistryError> {
        self.check_id(format)?;
        if self.format(format.id()).is_some() {
            return Ok(());
        }
        if self.formats.len() >= MAX_FORMATS {
            return Err(RegistryError::Full { what: "formats", most: MAX_FORMATS });
        }
        self.charge(Entry::Format(format.clone()).bytes())?;
        self.formats.insert(format.id(), Known { format: format.clone(), uses: 0 });
        Ok(())
    }

    fn add_version(&mut self, stream: &str, format: FormatId, number: Option<usize>) -> Result<(), RegistryError> {
        let known = self.streams.get(stream);
        if known.is_some_and(|known| known.version(format).is_some()) {
            return Ok(());
        }
        if known.is_some_and(|known| known.versions.len() >= MAX_VERSIONS) {
            return Err(RegistryError::Full { what: "versions of a stream", most: MAX_VERSIONS });
        }
        self.check_known(format)?;
        let known = self.stream_with_room(stream, version_bytes(stream, format))?;
        // One that another version has is not to be: it is the next.
        let number = number.filter(|number| *number > 0 && !known.numbers.contains(number));
        let number = number.unwrap_or_else(|| known.next_number());
        let at = known.numbers.partition_point(|before| *before < number);
        known.versions.insert(at, format);
        known.numbers.insert(at, number);
        self.hold(format);
        Ok(())
    }

    fn add_conversion(
        &mut self,
        key: (String, FormatId, FormatId),
        conversion: &Conversion,
    ) -> Result<(), RegistryError> {
        check_name(&key.0)?;
        let (_, from, to) = key;
        self.check_known(from)?;
        self.check_known(to)?;
        let found = conversion.to_string().len();
        if found > MAX_CONVERSION_BYTES {
            return Err(RegistryError::LongConversion { found });
        }
        let before = self.conversions.get(&key);
        if before.is_none() && self.conversions.len() >= MAX_CONVERSIONS {
            return Err(RegistryError::Full { what: "conversions", most: MAX_CONVERSIONS });
        }
        let freed = before.map_or(0, |before| conversion_entry(&key, before).bytes());
        let taken = conversion_entry(&key, conversion).bytes();
        self.charge(taken.saturating_sub(freed))?;
        self.bytes -= freed.saturating_sub(taken);
        if self.conversions.insert(key, conversion.clone()).is_none() {
            self.hold(from);
            self.hold(to);
        }
        Ok(())
    }

    /// The stream of this name, made if it is new, with `bytes` bytes charged for what it is to get.
    fn stream_with_room(&mut self, name: &str, bytes: usize) -> Result<&mut Stream, RegistryError> {
        check_name(name)?;
        let is_new = !self.streams.contains_key(name);
        if is_new && self.streams.len() >= MAX_STREAMS {
            return Err(RegistryError::Full { what: "streams", most: MAX_STREAMS });
        }
        self.charge(bytes + if is_new { stream_bytes(name) } else { 0 })?;
        Ok(self.streams.entry(name.to_owned()).or_default())
    }

    fn charge(&mut self, bytes: usize) -> Result<(), RegistryError> {
        if bytes > MAX_BYTES - self.bytes {
            return Err(RegistryError::Full { what: "bytes of formats, versions and conversions", most: MAX_BYTES });
        }
        self.bytes += bytes;
        Ok(())
    }

    fn check_known(&self, format: FormatId) -> Result<(), RegistryError> {
        self.format(format).map(|_| ()).ok_or(RegistryError::UnknownFormat { id: format })
    }

    fn hold(&mut self, format: FormatId) {
        if let Some(known) = self.formats.get_mut(&format) {
            known.uses += 1;
        }
    }

    fn release(&mut self, format: FormatId) {
        if let Some(known) = self.formats.get_mut(&format) {
            known.uses -= 1;
            self.forget_if_unused(format);
        }
    }

    fn forget_if_unused(&mut self, format: FormatId) {
        if let Some(known) = self.formats.get(&format).filter(|known| known.uses == 0) {
            self.bytes -= Entry::Format(known.format.clone()).bytes();
            self.formats.remove(&format);
        }
    }

    /// Forgets all formats that were taken up for what then did not come.
    fn forget_unused(&mut self) {
        let unused: Vec<FormatId> = self.formats().map(Format::id).collect();
        unused.into_iter().for_each(|format| self.forget_if_unused(format));
    }

    /// The fewest entries that make this registry: what a store writes in place of a log that has grown long.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        let formats = self.formats().cloned().map(Entry::Format);
        let streams = self.streams.iter().flat_map(|(name, stream)| {
            let mut next = 1;
            let versions = stream.versions.iter().zip(&stream.numbers).map(move |(id, number)| {
                let is_next = *number == std::mem::replace(&mut next, number + 1);
                let number = (!is_next).then_some(*number);
                Entry::Version { stream: name.clone(), format: *id, number }
            });
            let guarded = stream.guarded.iter().map(|id| Entry::Guarded { stream: name.clone(), format: *id });
            // A stream with nothing else is there for its policy.
            let policy = (stream.policy != Policy::None || stream.versions.is_empty())
                .then(|| Entry::Policy { stream: name.clone(), policy: stream.policy });
            versions.chain(guarded).chain(policy)
        });
        let conversions = self.conversions.iter().map(|(key, conversion)| conversion_entry(key, conversion));
        formats.chain(streams).chain(conversions)
    }
}

/// The bytes of a stream beside its versions: as its longest policy does, whichever it has.
fn stream_bytes(name: &str) -> usize {
    Entry::Policy { stream: name.to_owned(), policy: Policy::BackwardTransitive }.bytes()
}

/// The bytes of a version, whichever its number is.
fn version_bytes(stream: &str, format: FormatId) -> usize {
    Entry::Version { stream: stream.to_owned(), format, number: Some(u32::MAX as usize) }.bytes()
}

fn conversion_entry((stream, from, to): &(String, FormatId, FormatId), conversion: &Conversion) -> Entry {
    Entry::Conversion { stream: stream.clone(), from: *from, to: *to, conversion: conversion.clone() }
}

fn check_name(stream: &str) -> Result<(), RegistryError> {
    match stream.len() {
        1..=MAX_STREAM_NAME_BYTES if !stream.chars().any(char::is_control) => Ok(()),
        _ => Err(RegistryError::Name { found: stream.chars().take(80).flat_map(char::escape_debug).collect() }),
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
        /// The flaws.
        flaws: Vec<Flaw>,
    },
    /// A stream's name is none.
    Name {
        /// The name.
        found: String,
    },
    /// A conversion's text is too long to be read back.
    LongConversion {
        /// Its length in bytes.
        found: usize,
    },
    /// There is no room.
    Full {
        /// The items that there are too many of.
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
                for flaw in flaws {
                    write!(f, "\n{flaw}")?;
                }
                write!(f, "\nchange the format, keep a conversion between the two, or set another policy")
            }
            Self::Name { found } => {
                write!(f, "`{found}` is no stream's name: 1 to {MAX_STREAM_NAME_BYTES} bytes, no control characters")
            }
            Self::LongConversion { found } => {
                write!(f, "the conversion takes {found} bytes as text, expected at most {MAX_CONVERSION_BYTES}")
            }
            Self::Full { what, most } => {
                write!(f, "there is no room: at most {most} {what} are kept")
            }
        }
    }
}

impl std::error::Error for RegistryError {}
