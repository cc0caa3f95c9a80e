//! Why records did not reach a subscriber, and what its query does with a record that it cannot compute.

use serde::{Deserialize, Serialize};

/// Why records did not reach a subscriber.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DropCause {
    /// Its queue was full, and its policy is not to let the publishers wait.
    QueueFull,
    /// The input queue of a handler that works for its query was full.
    HandlerFull,
    /// The daemon had no buffer for them.
    NoBuffer,
    /// The result of its query is longer than a record can be.
    TooLong,
    /// The query does not fit their format, or nothing converts that to one that the subscriber accepts.
    Unreadable,
    /// A conversion could not make them: a value has no place in the accepted format.
    NotConvertible,
    /// Too many records waited for a conversion.
    HoldFull,
    /// No conversion came in time.
    HoldExpired,
    /// The query failed because of a bug in the daemon.
    QueryFailed,
    /// Row error: `/` or `%` by zero.
    DivisionByZero,
    /// Row error: a number does not fit its type.
    OutOfRange,
    /// Row error: a text does not say a value of the type that it is cast to.
    NotAValue,
    /// Row error: a LIKE pattern ends in its escape character.
    BadPattern,
    /// Row error: a text or a row that the query makes is too long.
    RowTooLong,
    /// A publisher's packet contains records that are none of their format.
    Malformed,
    /// The subscriber was slow, and a later record of the same key took their place (`ON SLOW CONFLATE`).
    Conflated,
    /// The subscriber was slow, and got one in some number of its records (`ON SLOW SAMPLE`).
    Sampled,
    /// The subscriber was slow, and they do not meet the condition of those that it gets then (`ON SLOW KEEP WHERE`).
    NotKept,
    /// They are above the rate of the subscription (`MAX RATE`).
    OverRate,
    /// Anything else.
    #[default]
    #[serde(other)]
    Other,
}

impl DropCause {
    /// Whether the query could not compute the records.
    #[must_use]
    pub fn is_row_error(self) -> bool {
        use DropCause as C;
        matches!(self, C::DivisionByZero | C::OutOfRange | C::NotAValue | C::BadPattern | C::RowTooLong)
    }

    /// Whether a subscription's query says that it does not get the records: by `ON SLOW` or `MAX RATE`.
    #[must_use]
    pub fn is_asked_for(self) -> bool {
        use DropCause as C;
        matches!(self, C::Conflated | C::Sampled | C::NotKept | C::OverRate)
    }

    /// Its word on the wire and in lists.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            DropCause::QueueFull => "queue_full",
            DropCause::HandlerFull => "handler_full",
            DropCause::NoBuffer => "no_buffer",
            DropCause::TooLong => "too_long",
            DropCause::Unreadable => "unreadable",
            DropCause::NotConvertible => "not_convertible",
            DropCause::HoldFull => "hold_full",
            DropCause::HoldExpired => "hold_expired",
            DropCause::QueryFailed => "query_failed",
            DropCause::DivisionByZero => "division_by_zero",
            DropCause::OutOfRange => "out_of_range",
            DropCause::NotAValue => "not_a_value",
            DropCause::BadPattern => "bad_pattern",
            DropCause::RowTooLong => "row_too_long",
            DropCause::Malformed => "malformed",
            DropCause::Conflated => "conflated",
            DropCause::Sampled => "sampled",
            DropCause::NotKept => "not_kept",
            DropCause::OverRate => "over_rate",
            DropCause::Other => "other",
        }
    }
}

/// In words: `division by zero`.
impl std::fmt::Display for DropCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            DropCause::QueueFull => "the subscriber's queue was full",
            DropCause::HandlerFull => "the queue of a handler that works for the query was full",
            DropCause::NoBuffer => "the daemon had no free buffer",
            DropCause::TooLong => "the result is longer than a record can be",
            DropCause::Unreadable => "the query does not fit their format, or no conversion leads to an accepted one",
            DropCause::NotConvertible => "a value does not fit the accepted format",
            DropCause::HoldFull => "too many records waited for a conversion",
            DropCause::HoldExpired => "no conversion came in time",
            DropCause::QueryFailed => "the query failed because of a bug in the daemon",
            DropCause::DivisionByZero => "division by zero",
            DropCause::OutOfRange => "a number is out of the range of its type",
            DropCause::NotAValue => "a text does not say a value of its type",
            DropCause::BadPattern => "a LIKE pattern ends in its escape character",
            DropCause::RowTooLong => "a text or row is too long",
            DropCause::Malformed => "a publisher's packet contains an invalid record",
            DropCause::Conflated => "the subscriber was slow, and a later record of the same key took their place",
            DropCause::Sampled => "the subscriber was slow, and its query says SAMPLE",
            DropCause::NotKept => "the subscriber was slow, and they do not meet the condition of KEEP WHERE",
            DropCause::OverRate => "they are above the subscription's MAX RATE",
            DropCause::Other => "another cause",
        })
    }
}

/// The policy of a query for a record that it cannot compute: one with a division by zero, an overflow, a CAST that
/// cannot be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowErrors {
    /// The record is dropped, counted and reported.
    #[default]
    Skip,
    /// The expression is null; a condition that is null does not hold.
    Null,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_wire_and_unknown_ones_are_other() {
        use DropCause as C;
        let all = [
            C::QueueFull,
            C::HandlerFull,
            C::NoBuffer,
            C::TooLong,
            C::Unreadable,
            C::NotConvertible,
            C::HoldFull,
            C::HoldExpired,
            C::QueryFailed,
            C::DivisionByZero,
            C::OutOfRange,
            C::NotAValue,
            C::BadPattern,
            C::RowTooLong,
            C::Malformed,
            C::Other,
        ];
        for cause in all {
            assert_eq!(serde_json::to_string(&cause).unwrap(), format!("\"{}\"", cause.word()));
            assert_eq!(serde_json::from_str::<C>(&format!("\"{}\"", cause.word())).unwrap(), cause);
        }
        assert_eq!(serde_json::from_str::<C>("\"of a later version\"").unwrap(), C::Other);
    }
}
