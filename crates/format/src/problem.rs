//! Why a format was refused.

use std::fmt;

/// Why a format was refused, and on which line where it came as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FormatError {
    /// The line of the text, counted from 1; `None` where there was no text.
    pub line: Option<usize>,
    /// The problem.
    pub problem: FormatProblem,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.problem),
            None => write!(f, "{}", self.problem),
        }
    }
}

impl std::error::Error for FormatError {}

/// The problems of a format.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FormatProblem {
    /// There is no field.
    #[error("a format has at least one field")]
    NoFields,
    /// There are too many fields.
    #[error("a format has at most 4096 fields")]
    TooManyFields,
    /// A name is not fit to be one.
    #[error("the name of field {} {flaw}", field + 1)]
    Name {
        /// Index of the field.
        field: usize,
        /// The flaw of the name.
        flaw: &'static str,
    },
    /// Two fields have one name.
    #[error("there are two fields of the name `{name}`")]
    SameName {
        /// Index of the second.
        field: usize,
        /// The name.
        name: String,
    },
    /// A `char[0]` could hold nothing.
    #[error("field `{name}`: char[N] holds 1 to 65535 bytes")]
    EmptyChar {
        /// Index of the field.
        field: usize,
        /// Its name.
        name: String,
    },
    /// A type cannot be as it is declared.
    #[error("field `{name}`: {flaw}")]
    Type {
        /// Which of the declared fields it is, counted from 0 through all that lie in each other.
        field: usize,
        /// Its path.
        name: String,
        /// The flaw.
        flaw: &'static str,
    },
    /// A field of a foreign layout cannot be as it is declared.
    #[error("field `{name}`: {flaw}")]
    Foreign {
        /// Its path.
        name: String,
        /// The flaw, and its remedy.
        flaw: String,
    },
    /// A nested record or union has nothing in it.
    #[error("`{name}` has no fields")]
    EmptyRecord {
        /// Which of the declared fields it is.
        field: usize,
        /// Its path.
        name: String,
    },
    /// A variant of a union is a union itself.
    #[error("a variant of the union `{name}` is a union itself; put it into a record")]
    UnionVariant {
        /// Which of the declared fields it is.
        field: usize,
        /// The union's path.
        name: String,
    },
    /// Records and lists lie in each other too deep.
    #[error("`{name}`: records and lists lie in each other more than 16 deep")]
    TooDeep {
        /// Where.
        name: String,
    },
    /// The fixed part would be longer than allowed.
    #[error("field `{name}` makes the fixed part longer than 1 MiB; use `string` for long text")]
    FixedPartTooLong {
        /// The field that does not fit.
        name: String,
    },
    /// The canonical description would be longer than allowed.
    #[error(
        "the format's description takes {bytes} bytes, of 3 MiB at most; use shorter names, or fewer symbols in enumerations"
    )]
    DescriptionTooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// A type is not known.
    #[error(transparent)]
    UnknownType(FieldTypeError),
    /// A line is not in the notation.
    #[error("found `{found}`, expected {expected}")]
    Syntax {
        /// The text.
        found: String,
        /// The right value.
        expected: String,
    },
    /// A description differs from the canonical one of the same fields.
    #[error("not the canonical description of these fields: found `{found}`, expected {expected}")]
    NotCanonical {
        /// The line as it is.
        found: String,
        /// The line as it should be.
        expected: String,
    },
}

/// A word that is no field type.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{found}` is no field type; known: bool, i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, timestamp, char[N] with \
     N from 1 to 65535, string, bytes, decimal(BYTES, scale N) with BYTES 4, 8 or 16, enum, record, union"
)]
pub struct FieldTypeError {
    /// The word that was found, cut short if it was long.
    pub found: String,
}

impl FormatProblem {
    /// Index of the field that is at fault, where it is one.
    pub(crate) fn field(&self) -> Option<usize> {
        match self {
            Self::Name { field, .. }
            | Self::SameName { field, .. }
            | Self::EmptyChar { field, .. }
            | Self::Type { field, .. }
            | Self::EmptyRecord { field, .. }
            | Self::UnionVariant { field, .. } => Some(*field),
            _ => None,
        }
    }
}
