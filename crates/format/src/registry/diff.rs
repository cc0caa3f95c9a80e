//! A reader's view by one format of records of another.

use std::fmt;

use crate::convert::{CompatReport, FieldCompat, PlanProblem};
use crate::field::Field;
use crate::format::Format;
use crate::notation;

/// The view of a reader of one format (`to`) would see of records of another (`from`), converted by name: a line a
/// field. A union that not all records have a variant for, and what is wrong in lists' elements, have lines of their own.
#[derive(Clone, PartialEq, Debug)]
pub struct Diff {
    /// The reader's fields in order, each with what it would see.
    pub fields: Vec<FieldDiff>,
    /// Fields of the records that the reader has none for, by path; those of lists' elements as `legs[].km`.
    pub lost: Vec<String>,
}

/// A reader's view of one of its fields.
#[derive(Clone, PartialEq, Debug)]
pub struct FieldDiff {
    /// The field's name.
    pub name: String,
    /// The seen value.
    pub seen: Seen,
}

/// A reader's view of a field.
#[derive(Clone, PartialEq, Debug)]
pub enum Seen {
    /// The value as it was written.
    Same,
    /// The value, converted; the types in a word each.
    Converted {
        /// As it was written.
        from: String,
        /// As it is read.
        to: String,
        /// Whether there are values that have no place in the reader's type: such records are refused.
        may_refuse: bool,
    },
    /// The value, but records with null here are refused: the reader's field is never null.
    NeverNull,
    /// Null, always: the records have no such field.
    Null,
    /// Nothing: no record can be read, and why.
    Unreadable(PlanProblem),
}

impl Seen {
    /// Whether every record can be read, as far as this field goes.
    #[must_use]
    pub fn is_compatible(&self) -> bool {
        matches!(self, Self::Same | Self::Null | Self::Converted { may_refuse: false, .. })
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same => f.write_str("same"),
            Self::Converted { from, to, may_refuse } => {
                write!(f, "converted, {from} to {to}")?;
                f.write_str(if *may_refuse { "; values with no room there are refused" } else { "" })
            }
            Self::NeverNull => f.write_str("same; null is refused"),
            Self::Null => f.write_str("null: there is no such field"),
            Self::Unreadable(problem) => write!(f, "unreadable: {problem}"),
        }
    }
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for FieldDiff { name, seen } in &self.fields {
            writeln!(f, "{name}: {seen}")?;
        }
        self.lost.iter().try_for_each(|name| writeln!(f, "{name}: lost"))
    }
}

impl Diff {
    /// The view of a reader of `reader` on records of `written`.
    #[must_use]
    pub fn of(reader: &Format, written: &Format) -> Diff {
        let CompatReport { fields, sources, flaws, unions } = CompatReport::of(written, reader);
        let words = |field: &Field| notation::one_line(&field.type_spec());
        let seen = |(field, compat): (&Field, FieldCompat)| {
            let seen = match compat {
                FieldCompat::Same => Seen::Same,
                FieldCompat::Null => Seen::Null,
                FieldCompat::NeverNull => Seen::NeverNull,
                FieldCompat::None(problem) => Seen::Unreadable(problem),
                FieldCompat::Converted { from, may_refuse } => {
                    let from = written.fields().get(from).map(words).unwrap_or_default();
                    Seen::Converted { from, to: words(field), may_refuse }
                }
            };
            FieldDiff { name: field.name.clone(), seen }
        };
        let fields = reader.fields().iter().zip(fields).map(seen);
        let unions = unions.into_iter().map(|name| {
            let (from, to) = ("union".to_owned(), "union".to_owned());
            FieldDiff { name, seen: Seen::Converted { from, to, may_refuse: true } }
        });
        let flaws = flaws.into_iter().map(|flaw| FieldDiff { name: flaw.field, seen: Seen::Unreadable(flaw.problem) });
        let fields = fields.chain(unions).chain(flaws).collect();
        let mut lost = Vec::new();
        find_lost(written, reader, &sources, "", &mut lost);
        Diff { fields, lost }
    }

    /// Whether every record can be read.
    #[must_use]
    pub fn is_compatible(&self) -> bool {
        self.fields.iter().all(|field| field.seen.is_compatible())
    }

    /// Whether there is a plan at all, be it one that refuses some records.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        !self.fields.iter().any(|field| matches!(field.seen, Seen::Unreadable(_)))
    }
}

/// The paths of what `reader` has no field for, neither by its name nor by an alias, the elements of lists looked into. The reader's
/// fields are made from `sources`.
fn find_lost(written: &Format, reader: &Format, sources: &[Option<usize>], within: &str, lost: &mut Vec<String>) {
    for (index, field) in written.fields().iter().enumerate() {
        let path = format!("{within}{}", field.name);
        let by_alias = || sources.iter().position(|source| *source == Some(index));
        match reader.field(&field.name).or_else(by_alias).and_then(|at| reader.fields().get(at)) {
            None => lost.push(path),
            Some(read) => {
                if let (Some(written), Some(read)) = (field.element(), read.element())
                    && written.is_record
                    && read.is_record
                {
                    let CompatReport { sources, .. } = CompatReport::of(&written.format, &read.format);
                    find_lost(&written.format, &read.format, &sources, &format!("{path}[]."), lost);
                }
            }
        }
    }
}
