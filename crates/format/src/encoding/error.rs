//! The possible errors, in all encodings.

use std::{fmt, io};

use super::{Encoding, Loss};
use crate::builder::{ValueError, ValueProblem};
use crate::check::RecordProblem;
use crate::csv::{CsvError, CsvProblem};
use crate::json::{JsonError, JsonProblem};
use crate::nesting::TOO_DEEP;
use crate::tokens::{Flaw, Stop, WrongItem};

/// The error of an encoded input or a record to be encoded, and its place.
#[derive(Debug)]
pub struct EncodingError {
    /// Which item (row, message, record) it was, counted from 1; 0 where there is none to name.
    pub item: u64,
    /// Where in the input, in bytes from its start, as far as that is known.
    pub at: Option<u64>,
    /// The path of the field, where one is at fault.
    pub field: Option<String>,
    /// The problem.
    pub problem: EncodingProblem,
}

impl EncodingError {
    /// An error that no place is known of.
    #[must_use]
    pub fn new(problem: EncodingProblem) -> Self {
        Self { item: 0, at: None, field: None, problem }
    }

    /// The same error with the path of the field; with an empty one, which is that of the whole record, nothing changes.
    #[must_use]
    pub fn in_field(self, field: impl Into<String>) -> Self {
        let field = field.into();
        Self { field: if field.is_empty() { self.field } else { Some(field) }, ..self }
    }

    /// The same error with the item's number, counted from 1, if it has none.
    #[must_use]
    pub fn of_item(self, item: u64) -> Self {
        Self { item: if self.item == 0 { item } else { self.item }, ..self }
    }

    /// A value that does not fit, or that the encoding has none like.
    #[must_use]
    pub fn value(found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::new(EncodingProblem::Value { found: found.into(), expected: expected.into() })
    }

    /// Bytes that are not in the encoding.
    #[must_use]
    pub fn syntax(message: impl Into<String>) -> Self {
        Self::new(EncodingProblem::Syntax { message: message.into() })
    }

    /// A part that the encoding cannot hold, or schemas that do not go together.
    #[must_use]
    pub fn schema(message: impl Into<String>) -> Self {
        Self::new(EncodingProblem::Schema { message: message.into() })
    }

    /// Whether reading can go on with the next item. If not, the input cannot be read.
    #[must_use]
    pub fn is_item(&self) -> bool {
        match &self.problem {
            EncodingProblem::Json(error) => error.is_row(),
            EncodingProblem::Csv(error) => error.is_row(),
            problem => matches!(
                problem,
                EncodingProblem::Value { .. }
                    | EncodingProblem::Missing
                    | EncodingProblem::Unknown { .. }
                    | EncodingProblem::Twice
                    | EncodingProblem::Record { .. }
            ),
        }
    }
}

impl fmt::Display for EncodingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let EncodingProblem::Json(_) | EncodingProblem::Csv(_) = self.problem {
            // They report lines and columns.
            return write!(f, "{}", self.problem);
        }
        let mut place = Vec::new();
        if self.item > 0 {
            place.push(format!("item {}", self.item));
        }
        if let Some(at) = self.at {
            place.push(format!("byte {at}"));
        }
        if let Some(field) = &self.field {
            place.push(format!("field `{field}`"));
        }
        match place.is_empty() {
            true => write!(f, "{}", self.problem),
            false => write!(f, "{}: {}", place.join(", "), self.problem),
        }
    }
}

impl std::error::Error for EncodingError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            EncodingProblem::Io(error) => Some(error),
            EncodingProblem::Json(error) => Some(&**error),
            EncodingProblem::Csv(error) => Some(&**error),
            _ => None,
        }
    }
}

impl From<io::Error> for EncodingError {
    fn from(error: io::Error) -> Self {
        Self::new(EncodingProblem::Io(error))
    }
}

/// The refusal of a builder.
impl From<ValueError> for EncodingError {
    fn from(error: ValueError) -> Self {
        let field = error.path();
        let problem = match error.problem {
            ValueProblem::NotSet => EncodingProblem::Missing,
            ValueProblem::NotNullable => {
                let expected = "a value; the field is not nullable".to_owned();
                EncodingProblem::Value { found: "null".to_owned(), expected }
            }
            problem => {
                let text = problem.to_string();
                let text = text.strip_prefix("found ").unwrap_or(&text);
                let (found, expected) = text.split_once(", expected ").unwrap_or((text, "what fits the field"));
                EncodingProblem::Value { found: found.to_owned(), expected: expected.to_owned() }
            }
        };
        Self { field, ..Self::new(problem) }
    }
}

/// The problem of an item that can be passed over.
impl From<Stop> for EncodingError {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Flaw(flaw) => flaw.into(),
            Stop::Refused(error) => (*error).into(),
            Stop::Wrong(wrong) => {
                let problem = match wrong.problem {
                    WrongItem::Value { found, expected } => EncodingProblem::Value { found, expected },
                    WrongItem::Unknown { known } => EncodingProblem::Unknown { known },
                    WrongItem::Twice => EncodingProblem::Twice,
                };
                Self { field: wrong.field, ..Self::new(problem) }
            }
        }
    }
}

/// Why an item cannot be read.
impl From<Flaw> for EncodingError {
    fn from(flaw: Flaw) -> Self {
        match flaw {
            Flaw::Cut => Self::new(EncodingProblem::Cut),
            Flaw::TooDeep => Self::syntax(format!("found {TOO_DEEP}")),
            Flaw::Found(found) => Self::syntax(format!("found {found}")),
            Flaw::Expected(expected) => Self::syntax(format!("expected {expected}")),
        }
    }
}

impl From<JsonError> for EncodingError {
    fn from(error: JsonError) -> Self {
        match error.problem {
            JsonProblem::Io(error) => error.into(),
            _ => Self { field: error.field.clone(), ..Self::new(EncodingProblem::Json(error.into())) },
        }
    }
}

impl From<CsvError> for EncodingError {
    fn from(error: CsvError) -> Self {
        match error.problem {
            CsvProblem::Io(error) => error.into(),
            _ => Self { field: error.column.clone(), ..Self::new(EncodingProblem::Csv(error.into())) },
        }
    }
}

/// The problems of an encoded input, or with a record to be encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodingProblem {
    /// The bytes are not in the encoding; what follows cannot be found.
    #[error("{message}")]
    Syntax {
        /// The found and the expected value.
        message: String,
    },
    /// A value does not fit its field, or the encoding has none like it.
    #[error("found {found}, expected {expected}")]
    Value {
        /// The value, cut short if it was long.
        found: String,
        /// The fitting values.
        expected: String,
    },
    /// A field that must have a value has none.
    #[error("it is missing, and the field is not nullable")]
    Missing,
    /// The item has something that the format has no field for.
    #[error("the format has no such field; it has: {known}")]
    Unknown {
        /// The format's fields.
        known: String,
    },
    /// The item has the field twice.
    #[error("it is there twice")]
    Twice,
    /// The bytes are no sound record.
    #[error("{problem}")]
    Record {
        /// The problem.
        problem: RecordProblem,
    },
    /// The encoding has no type that takes the field's values without loss.
    #[error("{encoding} {why}; --allow {loss} has it written all the same")]
    Lossy {
        /// The encoding.
        encoding: Encoding,
        /// The part that it cannot hold.
        why: String,
        /// The name of the loss.
        loss: Loss,
    },
    /// The encoding cannot hold the field at all, or the schemas do not go together.
    #[error("{message}")]
    Schema {
        /// The problem, and its remedy.
        message: String,
    },
    /// An item is longer than allowed.
    #[error("found an item of {found} bytes, expected at most {most}")]
    TooLong {
        /// Its length in bytes.
        found: u64,
        /// The bound.
        most: usize,
    },
    /// The input ends within an item.
    #[error("the input ends in the middle of it")]
    Cut,
    /// The error of a line of JSON; its text says the place.
    #[error("{0}")]
    Json(Box<JsonError>),
    /// The error of a row of CSV; its text says the place.
    #[error("{0}")]
    Csv(Box<CsvError>),
    /// The input could not be read.
    #[error("cannot read: {0}")]
    Io(io::Error),
}

/// The problem of a value that was refused, for messages.
pub(crate) fn refused(problem: ValueProblem, expected: String) -> EncodingProblem {
    match problem {
        ValueProblem::NotSet => EncodingProblem::Missing,
        ValueProblem::NotNullable => EncodingProblem::Value { found: "null".to_owned(), expected },
        problem => {
            let text = problem.to_string();
            let text = text.strip_prefix("found ").unwrap_or(&text);
            let (found, expected) = text.split_once(", expected ").unwrap_or((text, &expected));
            EncodingProblem::Value { found: found.to_owned(), expected: expected.to_owned() }
        }
    }
}
