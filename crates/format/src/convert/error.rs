//! Why there is no plan, and why a plan refuses a record.

use std::fmt;

use super::rules::TimeUnit;
use crate::builder::{ValueError, ValueProblem};
use crate::element::Member;
use crate::field::FieldType;
use crate::format::Format;

/// Why records of one format are not converted to another: every field that is in the way, and what would correct it.
#[derive(Clone, PartialEq, Debug)]
pub struct PlanError {
    /// The flaws: those of nested records, then those of fields in the target's order, of unions, and of the rules. There is
    /// at least one.
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
    /// The problem.
    pub problem: PlanProblem,
}

/// The problems of a plan.
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
    NoConversion {
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
    /// A nested record, a union, a list and a single value do not become one another.
    #[error("it is {from} in the source and {to} in the target; write the conversion as SQL, with what is meant")]
    Kind {
        /// Its kind in the source.
        from: &'static str,
        /// Its kind in the target.
        to: &'static str,
    },
    /// Lists of two fixed counts.
    #[error("the source has always {from} elements, the target {to}")]
    Count {
        /// Elements in the source.
        from: u32,
        /// Elements in the target.
        to: u32,
    },
    /// No variant of a union is made from anything, and one must be there.
    #[error("no variant of it is in the source; add a `rename`, or make it nullable")]
    NoVariant,
    /// A `rename` rule names a field that is not in the list that this one's list is made from.
    #[error(
        "`{from}` is not in the list that this one is made from; a field of an element comes from the same element"
    )]
    Elsewhere {
        /// The source's field.
        from: String,
    },
    /// A unit was given where none counts.
    #[error("`unit` is for an integer on one side and a timestamp on the other; here {from} becomes {to}: take it out")]
    UselessUnit {
        /// Type in the source.
        from: FieldType,
        /// Type in the target.
        to: FieldType,
    },
    /// A rule speaks of a field that is not there.
    #[error("`{rule}` speaks of a field that the {side} does not have; take it out or correct the name")]
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
        /// The values that the field takes.
        expected: String,
    },
}

/// The objection of [`allowed`](super::value::allowed) to two types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TypeProblem {
    NoConversion,
    NoUnit,
    UselessUnit,
}

/// Why a plan refused a record. Making one allocates only for what is in lists: rows that are refused may be many.
#[derive(Clone, PartialEq, Debug)]
pub struct ConvertError {
    format: Format,
    /// The path of the element of a list that the field is in.
    within: Option<Box<str>>,
    /// Whether the element is a single value, which its list's name names.
    is_value: bool,
    place: RefusedPart,
    /// The problem.
    pub problem: ConvertProblem,
}

/// The refused part.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum RefusedPart {
    /// The record as a whole.
    Record,
    /// A field.
    Field(usize),
    /// A union: how many end before it does.
    Union(usize),
}

impl ConvertError {
    pub(super) fn new(format: &Format, place: RefusedPart, problem: ConvertProblem) -> ConvertError {
        ConvertError { format: format.clone(), within: None, is_value: false, place, problem }
    }

    /// The same in an element of a list of this name.
    pub(super) fn within(self, list: &str, index: usize, is_record: bool) -> ConvertError {
        let (within, is_value) = match self.within {
            Some(inner) if is_record => (format!("{list}[{index}].{inner}"), self.is_value),
            // An element that is a list has no name of its own.
            Some(inner) => (format!("{list}[{index}]{}", inner.strip_prefix(ELEMENT).unwrap_or(&inner)), self.is_value),
            None => (format!("{list}[{index}]"), !is_record),
        };
        ConvertError { within: Some(within.into()), is_value, ..self }
    }

    /// The name of the field or union that was refused, in the innermost element; `None` if it is the record as a whole.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self.place {
            RefusedPart::Record => None,
            RefusedPart::Field(field) => self.format.fields().get(field).map(|field| field.name.as_str()),
            RefusedPart::Union(union) => nth_union(self.format.tree(), &mut { union }),
        }
    }

    /// The path of what was refused, with the lists and elements that it is in, such as `legs[2].stops`; `None` if it is
    /// the record as a whole.
    #[must_use]
    pub fn path(&self) -> Option<String> {
        let name = self.name()?;
        Some(match &self.within {
            None => name.to_owned(),
            Some(within) if self.is_value => within.to_string(),
            Some(within) => format!("{within}.{name}"),
        })
    }
}

impl From<ValueError> for ConvertError {
    fn from(error: ValueError) -> ConvertError {
        let ValueError { format, within, is_value, field, problem } = error;
        ConvertError {
            format,
            within,
            is_value,
            place: RefusedPart::Field(field),
            problem: ConvertProblem::Layout(problem),
        }
    }
}

/// The name of the single value of an element.
const ELEMENT: &str = "element";

/// The path of the union that ends after `left` other unions.
fn nth_union<'t>(members: &'t [Member], left: &mut usize) -> Option<&'t str> {
    members.iter().find_map(|member| {
        let Member::Group(group) = member else { return None };
        if let Some(found) = nth_union(&group.members, left) {
            return Some(found);
        }
        group.union?;
        match left.checked_sub(1) {
            None => Some(group.path.as_str()),
            Some(rest) => {
                *left = rest;
                None
            }
        }
    })
}

impl fmt::Display for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path() {
            Some(path) => write!(f, "field `{path}`: {}", self.problem),
            None => write!(f, "{}", self.problem),
        }
    }
}

impl std::error::Error for ConvertError {}

/// The problems of a record, for a plan.
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
        /// The unit.
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
    /// A text that is ambiguous with its padding.
    #[error("found a text that ends in NUL, which char[N] cannot distinguish from padding")]
    EndsInNul,
    /// Binary data.
    #[error("found bytes that are not UTF-8, expected text")]
    NotUtf8,
    /// A number that the decimal, or the integer, does not hold exactly.
    #[error("found {unscaled} at scale {scale}, which {ty} does not hold exactly")]
    DecimalRange {
        /// The number's units.
        unscaled: i128,
        /// Their scale.
        scale: u8,
        /// The target's type.
        ty: FieldType,
    },
    /// A number without a symbol, where the symbol is what counts.
    #[error("found the number {found}, which has no symbol in the source's enumeration")]
    NoSymbol {
        /// The number.
        found: i64,
    },
    /// A symbol that the target's enumeration does not have.
    #[error("found the symbol of number {found}, which the target's enumeration does not have")]
    UnknownSymbol {
        /// The symbol's number in the source.
        found: i64,
    },
    /// A text that is no symbol of the target's enumeration.
    #[error("found a text that is no symbol of the target's enumeration")]
    NotSymbol,
    /// A list of another number of elements than the target has.
    #[error("found {found} elements, expected {expected}")]
    ListCount {
        /// Elements that there are.
        found: usize,
        /// Elements of the target.
        expected: u32,
    },
    /// A union with more than one variant, or with none.
    #[error("found {found} variants of its union, expected 1")]
    Variants {
        /// How many there would be.
        found: usize,
    },
    /// A variant that the target does not have.
    #[error("found a variant that the target's union does not have")]
    UnknownVariant,
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
    /// The target's foreign layout has no way to hold a value, or the values together.
    #[error("{0}")]
    Layout(ValueProblem),
    /// The new record would be longer than any may be.
    #[error("the new record would be longer than a record may be")]
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
            Self::DecimalRange { .. } => "convert_decimal",
            Self::NoSymbol { .. } | Self::UnknownSymbol { .. } | Self::NotSymbol => "convert_symbol",
            Self::ListCount { .. } => "convert_list_count",
            Self::Variants { .. } | Self::UnknownVariant => "convert_variant",
            Self::WrongType { .. } => "convert_type",
            Self::Length { .. } => "convert_length",
            Self::Layout(_) => "convert_layout",
            Self::RecordTooLong => "convert_record_too_long",
        }
    }
}
