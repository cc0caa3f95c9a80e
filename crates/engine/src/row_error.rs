//! Records that a handler could not compute, by why.

use crossdock_query::EvalError;

/// Why a record could not be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum RowError {
    /// `/` or `%` by zero.
    DivisionByZero,
    /// A number does not fit its type, or a function has no result for it.
    OutOfRange,
    /// A text does not say a value of the type that it is cast to, or is not the UTF-8 or JSON that a function takes.
    NotAValue,
    /// A LIKE pattern ends in its escape character.
    BadPattern,
    /// A text or a row that is made is too long.
    TooLong,
    /// Anything else: a message that cannot be decoded or encoded, a value that a conversion has no place for.
    Other,
}

impl RowError {
    /// All of them, in the order of [`RowErrorCounts`].
    pub const ALL: [RowError; 6] = [
        RowError::DivisionByZero,
        RowError::OutOfRange,
        RowError::NotAValue,
        RowError::BadPattern,
        RowError::TooLong,
        RowError::Other,
    ];
}

impl From<EvalError> for RowError {
    fn from(error: EvalError) -> RowError {
        match error {
            EvalError::DivisionByZero => RowError::DivisionByZero,
            EvalError::OutOfRange | EvalError::Domain(_) => RowError::OutOfRange,
            EvalError::NotAValue(_) | EvalError::NotText | EvalError::NotJson => RowError::NotAValue,
            EvalError::BadPattern => RowError::BadPattern,
            EvalError::TextTooLong | EvalError::RecordTooLong => RowError::TooLong,
            EvalError::IllTyped => RowError::Other,
        }
    }
}

/// How many records could not be computed, in the order of [`RowError::ALL`].
pub type RowErrorCounts = [u64; RowError::ALL.len()];
