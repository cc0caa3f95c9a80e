//! Why there is no plan, and why a plan refuses a record.

use std::fmt;

use super::rules::TimeUnit;
use crate::field::FieldType;
use crate::format::Format;

/// Why records of one format are not converted to another: every field that is in the way, and what would mend it.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanError {
    /// The flaws, in the order of the target's fields, those of the rules last. There is at least one.
    pub flaws: Vec<PlanFlaw>,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, flaw) in self.flaws.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{flaw}")?;
        }
        Ok(())
    }
}

impl std::error::Error for PlanError {}

/// One field that is in the way.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("field `{field}`: {problem}")]
pub struct PlanFlaw {
    /// The field's name: in the target, or what a rule calls it.
    pub field: String,
    /// What is wrong with it.
    pub problem: PlanProblem,
}

/// What can be in the way of a plan.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum PlanProblem {
    /// The source has no such field, and the target needs a value.
    #[error("the source has no such field; add `default {field} VALUE`, or `rename OLD {field}`, or make it nullable")]
    Missing {
        /// Its name.
        field: String,
    },
    /// No conversion by name leads from one type to the other.
    #[error("{from} does not become {to} by name; write the conversion as SQL, with what is meant")]
    NoWay {
        /// Type in the source.
        from: FieldType,
        /// Type in the target.
        to: FieldType,
    },
    /// Nobody said what an integer counts.
    #[error("{from} becomes {to} only in a unit; add `unit {field} ns`, or `us`, `ms`, `s`")]
    NoUnit {
        /// Its name.
        field: String,
        /// Type in the source.
        from: FieldType,
        /// Type in the target.
        to: FieldType,
    },
    /// A nested record of the target may be null, or is a union.
    #[error(
        "a nested record that may be null, and a union, are not made by name; write the conversion as SQL, or declare it never null"
    )]
    OptionalGroup,
    /// The target's layout is foreign.
    #[error("records of a foreign layout are read, not made; convert to a natural format")]
    Foreign,
    /// A unit was given where none counts.
    #[error("`unit` is for an integer on one side and a timestamp on the other; here {from} becomes {to}: take it out")]
    UselessUnit {
        /// Type in the source.
        from: FieldType,
        /// Type in the target.
        to: FieldType,
    },
    /// A rule speaks of a field that is not there.
    #[error("`{rule}` speaks of a field that the {side} does not have; take it out or mend the name")]
    NoSuchField {
        /// The rule.
        rule: String,
        /// `source` or `target`.
        side: &'static str,
    },
    /// A default is no value of the field's type.
    #[error("the default `{found}` is no value of it; expected {expected}")]
    Default {
        /// The default.
        found: String,
        /// What the field takes.
        expected: String,
    },
}

/// What [`allowed`](super::value::allowed) has against two types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TypeProblem {
    NoWay,
    NoUnit,
    UselessUnit,
}

/// Why a plan refused a record. Making one does not allocate: rows that are refused may be many.
#[derive(Clone, PartialEq, Debug)]
pub struct ConvertError {
    format: Format,
    field: Option<usize>,
    /// What is wrong.
    pub problem: ConvertProblem,
}

impl ConvertError {
    pub(super) fn new(format: &Format, field: Option<usize>, problem: ConvertProblem) -> ConvertError {
        ConvertError { format: format.clone(), field, problem }
    }

    /// The name of the field that was refused; `None` if it is the record as a whole.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.format.fields().get(self.field?).map(|field| field.name.as_str())
    }
}

impl fmt::Display for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "field `{name}`: {}", self.problem),
            None => write!(f, "{}", self.problem),
        }
    }
}

impl std::error::Error for ConvertError {}

/// What can be wrong with a record, for a plan.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum ConvertProblem {
    /// Null for a field that is never null.
    #[error("found null, and the target's field is not nullable; a `default` rule would fill it")]
    Null,
    /// An integer beyond the target's range.
    #[error("found {found}, which {ty} has no room for")]
    IntegerRange {
        /// The integer.
        found: i128,
        /// The target's type.
        ty: FieldType,
    },
    /// A float beyond the target's range, or NaN for an integer.
    #[error("found {found:e}, which {ty} has no room for")]
    FloatRange {
        /// The float.
        found: f64,
        /// The target's type.
        ty: FieldType,
    },
    /// An integer that is neither true nor false.
    #[error("found {found}, expected 0 or 1 for bool")]
    NotBool {
        /// The integer.
        found: i128,
    },
    /// A time beyond what a timestamp holds.
    #[error("found {found} {unit}, which is not in the years 1678 to 2261")]
    TimeRange {
        /// The integer.
        found: i128,
        /// What it counts.
        unit: TimeUnit,
    },
    /// A text with more bytes than the target has.
    #[error("found a text of {found} bytes, expected at most {room} for char[{room}]")]
    TextTooLong {
        /// Its length in bytes.
        found: usize,
        /// The target's room in bytes.
        room: u16,
    },
    /// A text that could not be told from its padding.
    #[error("found a text that ends in NUL, which char[N] cannot tell from padding")]
    EndsInNul,
    /// Bytes that are no text.
    #[error("found bytes that are not UTF-8, expected text")]
    NotUtf8,
    /// A value of a type that no plan puts here: the record is not of the plan's source format.
    #[error("found a value that is never {ty}; is the record of the plan's source format?")]
    WrongType {
        /// The target's type.
        ty: FieldType,
    },
    /// Fewer bytes than the source's fixed part.
    #[error("a record of {found} bytes, expected at least {expected}")]
    Length {
        /// Bytes that there are.
        found: usize,
        /// Bytes of the source's fixed part.
        expected: usize,
    },
    /// The new record would be longer than any may be.
    #[error("the new record would be longer than {} bytes", crate::MAX_RECORD_BYTES)]
    RecordTooLong,
}

impl ConvertProblem {
    /// The problem's kind in a word or two: the name of its counter.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Null => "convert_null",
            Self::IntegerRange { .. } | Self::FloatRange { .. } | Self::TimeRange { .. } => "convert_range",
            Self::NotBool { .. } => "convert_bool",
            Self::TextTooLong { .. } => "convert_text_length",
            Self::EndsInNul => "convert_text_nul",
            Self::NotUtf8 => "convert_text_utf8",
            Self::WrongType { .. } => "convert_type",
            Self::Length { .. } => "convert_length",
            Self::RecordTooLong => "convert_record_too_long",
        }
    }
}
