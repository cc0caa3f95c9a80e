//! What a reader of one format sees of records of another.

use std::fmt;

use crate::convert::{Plan, PlanProblem, Rules};
use crate::format::Format;

/// What a reader of one format (`to`) would see of records of another (`from`), converted by name: a line a field.
#[derive(Clone, PartialEq, Debug)]
pub struct Diff {
    /// The reader's fields in order, each with what it would see.
    pub fields: Vec<FieldDiff>,
    /// Fields of the records that the reader has none for, by name.
    pub lost: Vec<String>,
}

/// What a reader would see in one of its fields.
#[derive(Clone, PartialEq, Debug)]
pub struct FieldDiff {
    /// The field's name.
    pub name: String,
    /// What it would see.
    pub seen: Seen,
}

/// What a reader sees in a field.
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
    /// What a reader of `reader` would see of records of `written`.
    #[must_use]
    pub fn of(reader: &Format, written: &Format) -> Diff {
        let plan = Plan::by_name(written, reader, &Rules::none());
        let flaws = plan.as_ref().err().map(|error| error.flaws.as_slice()).unwrap_or_default();
        let fields = reader.fields().iter().map(|field| {
            let flaw = flaws.iter().find(|flaw| flaw.field == field.name);
            let source = written.field(&field.name).and_then(|index| written.fields().get(index));
            let seen = match (flaw, source) {
                (Some(flaw), _) => Seen::Unreadable(flaw.problem.clone()),
                (None, None) => Seen::Null,
                (None, Some(source)) if source.nullable && !field.nullable => Seen::NeverNull,
                (None, Some(source)) if source.ty == field.ty && source.detail == field.detail => Seen::Same,
                (None, Some(source)) => Seen::Converted {
                    from: source.ty.to_string(),
                    to: field.ty.to_string(),
                    may_refuse: Plan::field_may_refuse(source, field),
                },
            };
            FieldDiff { name: field.name.clone(), seen }
        });
        let fields = fields.collect();
        let lost = written.fields().iter().filter(|field| reader.field(&field.name).is_none());
        Diff { fields, lost: lost.map(|field| field.name.clone()).collect() }
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
