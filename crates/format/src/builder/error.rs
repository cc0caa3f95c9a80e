//! Why a builder refuses a value.

use std::fmt;

use crate::MAX_RECORD_BYTES;
use crate::field::FieldType;
use crate::format::Format;

/// Why a builder refused a value. Making one does not allocate: rows that are refused may be many.
#[derive(Clone, PartialEq, Debug)]
pub struct ValueError {
    pub(crate) format: Format,
    /// The path of the element of a list that the field is in; allocated for those only.
    pub(crate) within: Option<Box<str>>,
    /// Whether the element is a single value, which its list's name names.
    pub(crate) is_value: bool,
    /// Index of the field.
    pub field: usize,
    /// The problem.
    pub problem: ValueProblem,
}

impl ValueError {
    pub(crate) fn new(format: &Format, field: usize, problem: ValueProblem) -> ValueError {
        ValueError { format: format.clone(), within: None, is_value: false, field, problem }
    }

    /// The same, of a field in an element of the list `list`; `is_value`: the element is a single value.
    pub(crate) fn in_element(mut self, list: &str, index: usize, is_value: bool) -> ValueError {
        self.within = Some(match self.within {
            Some(within) => format!("{list}[{index}].{within}").into(),
            None => {
                self.is_value = is_value;
                format!("{list}[{index}]").into()
            }
        });
        self
    }

    /// The field's path, with the lists and elements that it is in, if there is such a field.
    #[must_use]
    pub fn path(&self) -> Option<String> {
        if let Some(within) = self.within.as_ref().filter(|_| self.is_value) {
            return Some(within.to_string());
        }
        let name = self.name()?;
        Some(self.within.as_ref().map_or_else(|| name.to_owned(), |within| format!("{within}.{name}")))
    }

    /// The field's name, if there is such a field.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.format.fields().get(self.field).map(|field| field.name.as_str())
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path() {
            Some(path) => write!(f, "field `{path}`: {}", self.problem),
            None => write!(f, "field {}: {}", self.field + 1, self.problem),
        }
    }
}

impl std::error::Error for ValueError {}

/// The problems of a value.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum ValueProblem {
    /// The index is beyond the format's fields.
    #[error("the format has {fields} fields")]
    NoSuchField {
        /// How many it has.
        fields: usize,
    },
    /// Null for a field that is never null.
    #[error("found null, and the field is not nullable")]
    NotNullable,
    /// The field needs a value and got none.
    #[error("has no value, and is not nullable")]
    NotSet,
    /// A value of another type.
    #[error("found {found}, expected {ty}")]
    WrongType {
        /// The kind of the value.
        found: &'static str,
        /// The field's type.
        ty: FieldType,
    },
    /// An integer beyond the field's range.
    #[error("found {found}, expected {ty} {}", range_words(*ty))]
    IntegerRange {
        /// The integer.
        found: i128,
        /// The field's type.
        ty: FieldType,
    },
    /// A float beyond the range of `f32`.
    #[error("found {found:e}, expected f32, at most 3.4028235e38 either way")]
    FloatRange {
        /// The float.
        found: f64,
    },
    /// A text with more bytes than the field has.
    #[error("found a text of {found} bytes, expected at most {room} for char[{room}]")]
    TextTooLong {
        /// Its length in bytes.
        found: usize,
        /// The field's room in bytes.
        room: u16,
    },
    /// A text that is ambiguous with its padding.
    #[error("found a text that ends in NUL, which char[N] cannot distinguish from padding; use string")]
    EndsInNul,
    /// A text that is no symbol of the enumeration.
    #[error("found a text that is no symbol of the enumeration")]
    UnknownSymbol,
    /// A number that the enumeration's bytes do not hold.
    #[error("found {found}, expected a number that fits {ty}")]
    EnumRange {
        /// The number.
        found: i64,
        /// The field's type.
        ty: FieldType,
    },
    /// A number that the decimal does not hold exactly.
    #[error("found {unscaled} at scale {scale}, which {ty} does not hold exactly")]
    DecimalRange {
        /// The number's units.
        unscaled: i128,
        /// Their scale.
        scale: u8,
        /// The field's type.
        ty: FieldType,
    },
    /// A list of another number of elements than is fixed.
    #[error("found {found} elements, expected {expected}")]
    ListCount {
        /// How many there were.
        found: u32,
        /// How many there must be.
        expected: u32,
    },
    /// Something was begun that must be ended first.
    #[error("a list or an element is open; end it first")]
    Open,
    /// There is no list to put an element into, or no element to end.
    #[error("no list, or no element, is open")]
    NotOpen,
    /// A union with more than one variant, or with none.
    #[error("found {found} variants of its union, expected 1")]
    Variants {
        /// How many were set.
        found: usize,
    },
    /// A builder that writes natural records only was given a foreign layout.
    #[error("records of a foreign layout are made by a RecordBuilder")]
    Foreign,
    /// A number that has more bits than its place.
    #[error("found {found}, expected a number of {bits} bits {} a sign", if *signed { "with" } else { "without" })]
    BitRange {
        /// The number.
        found: i128,
        /// Bits of its place.
        bits: u8,
        /// Whether the place has a sign.
        signed: bool,
    },
    /// A timestamp between two that the layout's unit can express.
    #[error("found a timestamp of {found} ns, expected a multiple of {unit} ns")]
    Unit {
        /// The timestamp, in nanoseconds.
        found: i64,
        /// The unit, in nanoseconds.
        unit: i64,
    },
    /// A text that is ambiguous with its padding.
    #[error("found a text that ends in a blank, expected none: `pad space` cannot distinguish it from padding")]
    EndsInBlank,
    /// A text with a NUL where NUL ends it.
    #[error("found a text with a NUL in it, expected none: `until nul` reads it up to there")]
    HoldsNul,
    /// A varint that follows from what lies behind it, whose length is not known before.
    #[error(
        "found a varint that is left out, expected a number: it is not worked out from the fields that it speaks of"
    )]
    DerivedVarint,
    /// A value that reads as null.
    #[error("found the value that stands for null, expected another")]
    StandsForNull,
    /// A place or a number that a slot has no room for.
    #[error("found an offset or count of {found}, expected one of {bits} bits: the slot holds no greater one")]
    SlotRange {
        /// The offset or count.
        found: usize,
        /// Bits that the slot has for it.
        bits: u8,
    },
    /// The part that the layout gives no more room for.
    #[error("found what would end at byte {found}, expected at most byte {room}: the layout gives it no more room")]
    NoRoom {
        /// Where it would end, in bytes from the start of the record or element.
        found: usize,
        /// Where it may end.
        room: usize,
    },
    /// A length field that says less than the record takes.
    #[error(
        "found a length that ends the record at byte {found}, expected at least byte {expected}; left out, it is worked \
         out"
    )]
    StatedLength {
        /// The length that it gives the record, in bytes.
        found: i128,
        /// The length that the record needs.
        expected: usize,
    },
    /// A count that is not that of the list.
    #[error("found {found}, expected {expected}, as many elements as there are; left out, it is worked out")]
    StatedCount {
        /// The number that the field has.
        found: i128,
        /// How many there are.
        expected: usize,
    },
    /// A discriminator that speaks of another variant.
    #[error("found a value that speaks of another variant, expected one for what is there; left out, it is worked out")]
    Discriminator,
    /// A record that must have a variant has none.
    #[error("found no variant, expected one: the layout has no way to say that there is none")]
    NoVariant,
    /// The bit that says whether the field is null says otherwise.
    #[error(
        "found a null bit that says otherwise, expected one that goes with the value; left out, the field that has it is \
         worked out"
    )]
    NullBit,
    /// Values that cannot all be there.
    #[error(
        "found a value that would read back otherwise, expected what the fields say that share its bytes or say whether \
         it is there"
    )]
    Contradiction,
    /// The record would be longer than any may be.
    #[error("the record would take {found} bytes, expected at most {MAX_RECORD_BYTES}")]
    RecordTooLong {
        /// Its length in bytes.
        found: usize,
    },
}

/// The range of an integer type, for messages.
fn range_words(ty: FieldType) -> String {
    ty.integer_range().map(|(least, greatest)| format!("({least} to {greatest})")).unwrap_or_default()
}
