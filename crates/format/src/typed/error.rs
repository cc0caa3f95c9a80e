//! Why a Rust type and a record do not go together.

use std::fmt;

use crate::builder::ValueError;

/// Why a Rust type has no format, a value does not become a record, or a record does not become a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TypedError(Box<Flaw>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Flaw {
    path: String,
    message: String,
}

impl TypedError {
    pub(super) fn new(message: impl Into<String>) -> TypedError {
        TypedError::at(String::new(), message)
    }

    pub(super) fn at(path: impl Into<String>, message: impl Into<String>) -> TypedError {
        TypedError(Box::new(Flaw { path: path.into(), message: message.into() }))
    }

    /// The refusal of a builder, in the field that the caller names.
    pub(super) fn refused(error: &ValueError) -> TypedError {
        TypedError::new(error.problem.to_string())
    }

    /// The same, of something in the field of this name.
    pub(super) fn in_field(mut self, name: &str) -> TypedError {
        let path = &self.0.path;
        let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
        self.0.path = format!("{name}{dot}{path}");
        self
    }

    /// The same, of something in the element of this index.
    pub(super) fn in_element(self, index: usize) -> TypedError {
        self.in_field(&format!("[{index}]"))
    }

    /// The field's path, such as `legs[2].to`; `None` where it is the whole record.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        Some(self.0.path.as_str()).filter(|path| !path.is_empty())
    }

    /// The error, without the path.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Display for TypedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path() {
            Some(path) => write!(f, "field `{path}`: {}", self.0.message),
            None => f.write_str(&self.0.message),
        }
    }
}

impl std::error::Error for TypedError {}

impl serde::ser::Error for TypedError {
    fn custom<T: fmt::Display>(message: T) -> TypedError {
        TypedError::new(message.to_string())
    }
}

impl serde::de::Error for TypedError {
    fn custom<T: fmt::Display>(message: T) -> TypedError {
        TypedError::new(message.to_string())
    }

    fn missing_field(field: &'static str) -> TypedError {
        TypedError::at(field, "the record has no such field, and the type has no default for it")
    }
}
