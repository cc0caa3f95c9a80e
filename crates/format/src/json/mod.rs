//! JSON in and out: one object a record, one member a field.
//!
//! [`JsonDecoder`] reads objects from any [`BufRead`](std::io::BufRead) into records, straight, with no tree in between:
//! an object a line, or, where the input starts with `[` or with a line in which an object is left open, the elements of an
//! array or objects over several lines. An object that is wrong is one error, with line and field, after which the next one can
//! be read. [`JsonEncoder`] writes records as lines that read back as the same records.
//!
//! The objects' tokens are read by code of ours, as values of the fields that they go to, a word at a time: through a library's
//! visitors, which look up each member's name and give each value by itself, a line takes two to three times as long (`cargo
//! xtask bench formats`, case `json_decode`). Tests hold it to what `serde_json` takes.
//!
//! Numbers are numbers; floats that JSON has no number for are the strings `"NaN"`, `"inf"` and `"-inf"`. Timestamps
//! are RFC 3339 strings; bytes are base64 strings; null is null. A nullable field may be missing. Decimals are numbers,
//! written and read digit by digit. A value of an enumeration is its symbol, or its number where it has no symbol. A
//! nested record is an object, a union is an object with the one variant as its member, a list is an array.

mod decode;
mod encode;
mod export;
mod infer;
mod numbers;
mod schema;
mod tokens;
mod values;

use std::{fmt, io};

use crate::builder::ValueProblem;

pub use decode::JsonDecoder;
pub(crate) use decode::JsonValueDecoder;
pub use encode::JsonEncoder;
pub(crate) use encode::JsonValue;
pub use export::export_json_schema;
pub use infer::{JsonInferOptions, infer_json_sample};
pub use schema::{JsonSchemaError, import_json_schema};

/// How JSON is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JsonOptions {
    /// Whether members that the format has no field for are passed over; by default they are an error.
    pub ignore_unknown_fields: bool,
    /// Strings that are null in a nullable field, such as `NA`; none by default.
    pub null_words: Vec<String>,
    /// Whether an integer becomes the nearest float where its field has none equal to it; by default it is an error.
    pub rounds_integers: bool,
    /// Whether text that is no UTF-8 is repaired; by default it is an error.
    pub repairs_text: bool,
    /// Longest line in bytes, 1 MiB by default.
    pub max_line_bytes: usize,
}

impl Default for JsonOptions {
    fn default() -> Self {
        Self {
            ignore_unknown_fields: false,
            null_words: Vec::new(),
            rounds_integers: false,
            repairs_text: false,
            max_line_bytes: 1 << 20,
        }
    }
}

/// The error of a line of JSON, and its place.
#[derive(Debug)]
pub struct JsonError {
    /// The line up to which it was read when that was found, counted from 1; where a member of the object itself is missing, its
    /// first line.
    pub line: u64,
    /// The field's name, where one is at fault.
    pub field: Option<String>,
    /// The problem.
    pub problem: JsonProblem,
}

impl JsonError {
    fn at(line: u64, problem: JsonProblem) -> Self {
        Self { line, field: None, problem }
    }

    /// Whether reading can go on with the next object. If not, the input cannot be read.
    #[must_use]
    pub fn is_row(&self) -> bool {
        !matches!(self.problem, JsonProblem::Io(_) | JsonProblem::Between { .. })
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "line {}, field `{field}`: {}", self.line, self.problem),
            None => write!(f, "line {}: {}", self.line, self.problem),
        }
    }
}

impl std::error::Error for JsonError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            JsonProblem::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// The problems of a line of JSON.
#[derive(Debug, thiserror::Error)]
pub enum JsonProblem {
    /// The line is not one JSON object.
    #[error("column {column}: {message}")]
    Syntax {
        /// Where in the line, in bytes from 1.
        column: usize,
        /// The found and the expected value.
        message: String,
    },
    /// A member is no value of its field's type.
    #[error("found {found}, expected {expected}")]
    Value {
        /// The member, cut short if it was long.
        found: String,
        /// The values that the field takes.
        expected: String,
    },
    /// A member is no field of the format.
    #[error("the format has no field of this name; it has: {known}")]
    UnknownField {
        /// The format's fields.
        known: String,
    },
    /// A member is there twice.
    #[error("the object has this member twice")]
    SameField,
    /// A member is missing.
    #[error("the object lacks this member, and its field is not nullable")]
    Missing,
    /// The record cannot be made of the members.
    #[error("{problem}")]
    Refused {
        /// Why not.
        problem: ValueProblem,
    },
    /// Arrays and objects nest deeper than [`MAX_NESTING`](crate::MAX_NESTING).
    #[error("found {}", crate::nesting::TOO_DEEP)]
    TooDeep,
    /// Between the elements of an array, or behind it, is what does not belong there.
    #[error("found {found}, expected {expected}")]
    Between {
        /// The found value.
        found: String,
        /// The possible tokens there.
        expected: &'static str,
    },
    /// The line, or the element of an array, is longer than allowed.
    #[error("found an object of {found} bytes, expected at most {most}")]
    LineTooLong {
        /// Its length, in bytes.
        found: u64,
        /// The bound, in bytes.
        most: usize,
    },
    /// The input could not be read.
    #[error("cannot read: {0}")]
    Io(io::Error),
}
