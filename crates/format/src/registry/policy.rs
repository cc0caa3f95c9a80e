//! How a stream's format may change.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::{Diff, FieldDiff, MAX_STEPS, Registry, Stream};
use crate::format::Format;
use crate::id::FormatId;

/// How a stream's format may change: what its next version is compared with, and which of the two reads the other's records.
/// One reads the other's if they can be converted by field names with none refused, or by conversions that are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Policy {
    /// In any way.
    #[default]
    None,
    /// Readers of the new version can read all records of the newest one before it.
    Backward,
    /// Readers of the newest version can read all records of the new one.
    Forward,
    /// Both.
    Full,
    /// Readers of the new version can read all records of all earlier versions.
    BackwardTransitive,
    /// Readers of all earlier versions can read all records of the new one.
    ForwardTransitive,
    /// Both.
    FullTransitive,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 7] = [
        Self::None,
        Self::Backward,
        Self::Forward,
        Self::Full,
        Self::BackwardTransitive,
        Self::ForwardTransitive,
        Self::FullTransitive,
    ];

    /// The name that the command line and the log use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Backward => "backward",
            Self::Forward => "forward",
            Self::Full => "full",
            Self::BackwardTransitive => "backward_transitive",
            Self::ForwardTransitive => "forward_transitive",
            Self::FullTransitive => "full_transitive",
        }
    }

    /// Whether readers of one version are to read records of another: `written` and `reader` are the versions' numbers.
    #[must_use]
    pub const fn has_read(self, written: usize, reader: usize) -> bool {
        match self {
            Self::None => false,
            Self::Backward | Self::BackwardTransitive => written < reader,
            Self::Forward | Self::ForwardTransitive => written > reader,
            Self::Full | Self::FullTransitive => written != reader,
        }
    }

    /// Whether all earlier versions count, or the newest alone.
    const fn is_transitive(self) -> bool {
        matches!(self, Self::BackwardTransitive | Self::ForwardTransitive | Self::FullTransitive)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that is no policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a policy is none, backward (new readers read old records), forward (old readers read new ones) or full (both), which \
     look at the newest version; backward_transitive, forward_transitive and full_transitive look at all versions"
)]
pub struct PolicyError;

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(word: &str) -> Result<Policy, PolicyError> {
        Self::ALL.into_iter().find(|policy| policy.name() == word).ok_or(PolicyError)
    }
}

/// Which way a policy looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// A reader of the new version, and a record of an earlier one.
    NewReadsOld,
    /// A reader of an earlier version, and a record of the new one.
    OldReadsNew,
}

/// An obstacle of a policy to a new version.
#[derive(Clone, PartialEq, Debug)]
pub struct Flaw {
    /// The earlier version, counted from 1.
    pub version: usize,
    /// Which of the two is the reader's.
    pub direction: Direction,
    /// The obstacle.
    pub obstacle: Obstacle,
}

/// Why records of one version are not all read as another.
#[derive(Clone, PartialEq, Debug)]
pub enum Obstacle {
    /// A field.
    Field(FieldDiff),
    /// A conversion was registered from the records' format, so that they are not converted by field names alone.
    Guarded,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self.version;
        match self.direction {
            Direction::NewReadsOld => write!(f, "records of v{version}, as readers of the new format would see them, "),
            Direction::OldReadsNew => write!(f, "new records, as readers of v{version} would see them, "),
        }?;
        match &self.obstacle {
            Obstacle::Field(FieldDiff { name, seen }) => write!(f, "field `{name}`: {seen}"),
            Obstacle::Guarded => f.write_str(
                "cannot be converted by field names: a conversion was registered from their format; keep one to this format",
            ),
        }
    }
}

impl Registry {
    /// The obstacles of a stream's policy to a format as its next version.
    pub(super) fn flaws(&self, stream: &str, known: &Stream, new: &Format) -> Vec<Flaw> {
        let newest = known.versions.len();
        let first = if known.policy.is_transitive() { 0 } else { newest.saturating_sub(1) };
        let mut flaws = Vec::new();
        let earlier = known.versions.iter().enumerate().skip(first);
        for (at, id) in earlier {
            let (Some(version), Some(old)) = (known.version(*id), self.format(*id)) else { continue };
            let mut hold = |direction, written, reader| {
                let obstacles = self.obstacles(stream, known, written, reader);
                flaws.extend(obstacles.into_iter().map(|obstacle| Flaw { version, direction, obstacle }));
            };
            if known.policy.has_read(at, newest) {
                hold(Direction::NewReadsOld, old, new);
            }
            if known.policy.has_read(newest, at) {
                hold(Direction::OldReadsNew, new, old);
            }
        }
        flaws
    }

    /// Why records of `written` are not all read as `reader`; nothing if they are. As in the daemon, a conversion by field
    /// names is the last step after conversions that are kept, and not from a format that is guarded.
    fn obstacles(&self, stream: &str, known: &Stream, written: &Format, reader: &Format) -> Vec<Obstacle> {
        let is_by_name = |from: &Format| !known.guarded.contains(&from.id()) && Diff::of(reader, from).is_compatible();
        let (mut seen, mut reached) = (BTreeSet::new(), BTreeSet::from([written.id()]));
        for step in 0..=MAX_STEPS {
            let format = |id: &FormatId| if *id == written.id() { Some(written) } else { self.format(*id) };
            let by_name = step < MAX_STEPS && reached.iter().filter_map(format).any(is_by_name);
            if by_name || reached.contains(&reader.id()) {
                return Vec::new();
            }
            seen.extend(reached.iter().copied());
            let steps = self.conversions().filter(|(of, from, ..)| *of == stream && reached.contains(from));
            reached = steps.map(|(_, _, to, _)| to).filter(|to| !seen.contains(to)).collect();
        }
        let fields = Diff::of(reader, written).fields.into_iter().filter(|field| !field.seen.is_compatible());
        let mut obstacles: Vec<Obstacle> = fields.map(Obstacle::Field).collect();
        if obstacles.is_empty() {
            obstacles.push(Obstacle::Guarded);
        }
        obstacles
    }
}
