//! JSON to records.

use std::io::BufRead;

use super::tokens::JsonTokens;
use super::values::{Start, ValueReader};
use super::{JsonError, JsonOptions, JsonProblem};
use crate::builder::{ValueError, ValueProblem};
use crate::format::Format;
use crate::text::Rounding;
use crate::tokens::{Flaw, Rules, Stop, TokenDecoder, WrongItem};

/// Reads objects into records of one format, without allocating once its buffers have grown to the objects' sizes: an
/// object a line, or the elements of an array over any number of lines, which is read element by element.
#[derive(Debug)]
pub struct JsonDecoder {
    values: ValueReader,
    convert: Convert,
    max_line_bytes: usize,
}

/// The converter that makes a record of an object.
#[derive(Debug)]
struct Convert {
    decoder: TokenDecoder,
    unescaped: Vec<u8>,
}

impl JsonDecoder {
    /// A decoder for objects of this format.
    #[must_use]
    pub fn new(format: &Format, options: &JsonOptions) -> Self {
        let convert = Convert::new(format, options);
        Self { values: ValueReader::default(), convert, max_line_bytes: options.max_line_bytes }
    }

    /// The next object as a record; blank lines are skipped; `None` at the end of the input. Always give it the same
    /// input.
    ///
    /// # Errors
    /// The object is wrong, and the next call goes on with what follows it ([`JsonError::is_row`]); or the input cannot
    /// be read.
    #[inline]
    pub fn next_record<R: BufRead + ?Sized>(&mut self, input: &mut R) -> Result<Option<&[u8]>, JsonError> {
        let Self { values, convert, max_line_bytes } = self;
        loop {
            match values.read(input, *max_line_bytes, |start, bytes| {
                convert.line(start, bytes).map(|there| (start.line, there))
            })? {
                None => return Ok(None),
                Some(Ok((_, false))) => {}
                Some(Ok((line, true))) => return convert.finish(line).map(Some),
                Some(Err(error)) => return Err(error),
            }
        }
    }

    /// Forgets the input: the next call is given the start of another.
    pub fn restart(&mut self) {
        self.values = ValueReader::default();
    }

    /// One object as a record, without an input around it; errors are of line 1.
    ///
    /// # Errors
    /// It is wrong, or there is none.
    pub fn decode(&mut self, object: &[u8]) -> Result<&[u8], JsonError> {
        if object.len() > self.max_line_bytes {
            let problem = JsonProblem::LineTooLong { found: object.len() as u64, most: self.max_line_bytes };
            return Err(JsonError::at(1, problem));
        }
        if !self.convert.line(ALONE, object)? {
            let problem = JsonProblem::Syntax { column: 1, message: "found nothing, expected an object".to_owned() };
            return Err(JsonError::at(1, problem));
        }
        self.convert.finish(1)
    }
}

/// Reads values of one field, each into a record of that field alone.
#[derive(Debug)]
pub(crate) struct JsonValueDecoder {
    convert: Convert,
}

impl JsonValueDecoder {
    /// A decoder for the field of a format that has no other.
    pub(crate) fn new(format: &Format, options: &JsonOptions) -> Self {
        Self { convert: Convert::new(format, options) }
    }

    /// A value as a record.
    ///
    /// # Errors
    /// It is none; the path is that of the field.
    pub(crate) fn decode(&mut self, value: &[u8]) -> Result<&[u8], JsonError> {
        self.convert.only_value(value)?;
        self.convert.finish(1)
    }
}

impl Convert {
    fn new(format: &Format, options: &JsonOptions) -> Self {
        let rules = Rules {
            ignore_unknown: options.ignore_unknown_fields,
            repairs_text: options.repairs_text,
            rounding: Rounding::of(options.rounds_integers),
            null_words: options.null_words.clone(),
        };
        Self { decoder: TokenDecoder::new(format, rules, JsonTokens::written), unescaped: Vec::new() }
    }

    /// Makes the members of an object a record, for [`Convert::finish`]; false for a blank line.
    #[inline]
    fn line(&mut self, start: Start, bytes: &[u8]) -> Result<bool, JsonError> {
        let mut tokens = JsonTokens::new(bytes, &mut self.unescaped);
        if tokens.is_empty() {
            return Ok(false);
        }
        let outcome = self.decoder.item(&mut tokens).and_then(|()| Ok(tokens.end()?));
        match outcome {
            Ok(()) => Ok(true),
            Err(stop) => {
                let left = tokens.left();
                Err(explain(stop, start, bytes, left))
            }
        }
    }

    /// As [`Convert::line`], of a value that is the record's only field; there must be one.
    fn only_value(&mut self, bytes: &[u8]) -> Result<(), JsonError> {
        let mut tokens = JsonTokens::new(bytes, &mut self.unescaped);
        let outcome = self.decoder.first_value(&mut tokens).and_then(|()| Ok(tokens.end()?));
        outcome.map_err(|stop| {
            let left = tokens.left();
            explain(stop, ALONE, bytes, left)
        })
    }

    #[inline]
    fn finish(&mut self, line: u64) -> Result<&[u8], JsonError> {
        self.decoder.finish().map_err(|error| refused(line, &error))
    }
}

/// Where a value starts that is given by itself.
const ALONE: Start = Start { line: 1, column: 0 };

/// The error of a value whose last `left` bytes have not been read.
#[cold]
fn explain(stop: Stop, start: Start, bytes: &[u8], left: usize) -> JsonError {
    let (before, rest) = bytes.split_at(bytes.len().saturating_sub(left));
    let line = start.line + memchr::memchr_iter(b'\n', before).count() as u64;
    let expected = match stop {
        Stop::Refused(error) => return refused(line, &error),
        Stop::Wrong(wrong) => {
            let problem = match wrong.problem {
                WrongItem::Value { found, expected } => JsonProblem::Value { found, expected },
                WrongItem::Unknown { known } => JsonProblem::UnknownField { known },
                WrongItem::Twice => JsonProblem::SameField,
            };
            return JsonError { line, field: wrong.field, problem };
        }
        Stop::Flaw(Flaw::TooDeep) => return JsonError::at(line, JsonProblem::TooDeep),
        Stop::Flaw(Flaw::Expected(expected)) => expected,
        Stop::Flaw(Flaw::Cut | Flaw::Found(_)) => "JSON",
    };
    let column = memchr::memrchr(b'\n', before).map_or(start.column + before.len(), |end| before.len() - end - 1) + 1;
    let next = String::from_utf8_lossy(rest.get(..4).unwrap_or(rest)).chars().next();
    let found = match next {
        Some(next @ ('"' | '\'' | '\\')) => format!("`{next}`"),
        Some(next) => format!("`{}`", next.escape_debug()),
        None => "the end of the text".to_owned(),
    };
    JsonError::at(line, JsonProblem::Syntax { column, message: format!("found {found}, expected {expected}") })
}

/// The error of a record that the builder refused.
#[cold]
fn refused(line: u64, error: &ValueError) -> JsonError {
    let problem = match error.problem {
        ValueProblem::NotSet => JsonProblem::Missing,
        problem => JsonProblem::Refused { problem },
    };
    JsonError { line, field: error.path(), problem }
}
