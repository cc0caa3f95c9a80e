//! CSV in and out.
//!
//! [`CsvDecoder`] reads rows from any [`BufRead`](std::io::BufRead) into records; a row that is wrong is one error,
//! with line and column, after which the next row can be read. [`CsvEncoder`] writes records as rows that read back as
//! the same records. [`infer_csv`] finds a format for a file from its header and some rows.
//!
//! The accepted input: RFC 4180, with any one-byte delimiter, rows ended by LF, CRLF or CR, a byte order mark, blank lines
//! (skipped). Numbers and `true`/`false` (any case, also `t`/`f`, `1`/`0`) may have blanks around them; timestamps are
//! RFC 3339, and where they lack a zone they are of UTC; bytes are base64. In a nullable field a *null word* is null: by
//! default nothing, and `NA` where the field holds numbers, `bool` or times. A quoted null word is that word where the
//! field is text or bytes, so that the two stay distinct; an option makes it null too. A list is a JSON array.

mod decode;
mod encode;
mod infer;
mod rows;

use std::{fmt, io};

use crate::builder::ValueProblem;
use crate::field::FieldType;
use crate::format::FormatError;

pub use decode::CsvDecoder;
pub use encode::CsvEncoder;
pub use infer::{InferOptions, infer_csv, infer_csv_sample};

/// How CSV is written down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CsvOptions {
    /// The byte between two fields: any byte but a double quote, CR or LF. A comma by default.
    pub delimiter: u8,
    /// Words that are null in a nullable field of any type: by default nothing at all. The first is what an encoder writes.
    /// None has a delimiter, quote or line end in it.
    pub null_words: Vec<String>,
    /// Words that are null as well in a nullable field of numbers, `bool` or times, where they can be nothing else: by
    /// default `NA`, which as a text may be Namibia.
    pub value_null_words: Vec<String>,
    /// Whether a null word in quotes is null in text and bytes fields too: for files whose writer quotes everything.
    pub quoted_nulls: bool,
    /// Whether columns that the format has no field for are passed over; by default they are an error.
    pub ignore_extra_columns: bool,
    /// Whether an integer becomes the nearest float where its field has none equal to it; by default it is an error.
    pub rounds_integers: bool,
    /// Longest row in bytes, 1 MiB by default: how far a quote that is never closed can reach.
    pub max_row_bytes: usize,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self {
            delimiter: b',',
            null_words: vec![String::new()],
            value_null_words: vec!["NA".to_owned()],
            quoted_nulls: false,
            ignore_extra_columns: false,
            rounds_integers: false,
            max_row_bytes: 1 << 20,
        }
    }
}

impl CsvOptions {
    /// The defaults for a file of this name: tabs between the fields where it ends in `.tsv`, behind which there may be a
    /// `.gz`.
    #[must_use]
    pub fn of_name(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        let is_tsv = name.strip_suffix(".gz").unwrap_or(&name).ends_with(".tsv");
        Self { delimiter: if is_tsv { b'\t' } else { b',' }, ..Self::default() }
    }

    fn check(&self) -> Result<(), CsvError> {
        if matches!(self.delimiter, b'"' | b'\r' | b'\n') {
            return Err(CsvError::at_header(CsvProblem::Delimiter { found: self.delimiter }));
        }
        let is_special = |byte| byte == self.delimiter || matches!(byte, b'"' | b'\r' | b'\n');
        match self.all_null_words().find(|word| word.bytes().any(is_special)) {
            Some(word) => Err(CsvError::at_header(CsvProblem::NullWord { found: word.clone() })),
            None => Ok(()),
        }
    }

    fn all_null_words(&self) -> impl Iterator<Item = &String> {
        self.null_words.iter().chain(&self.value_null_words)
    }

    /// Whether a word is null in a nullable column of this type.
    #[inline]
    fn is_null_word(&self, field: &[u8], ty: FieldType) -> bool {
        // Byte by byte: words are shorter than a call takes.
        let is_same = |word: &String| word.len() == field.len() && word.bytes().eq(field.iter().copied());
        let is = |words: &[String]| words.iter().any(is_same);
        is(&self.null_words) || (!is_words(ty) && is(&self.value_null_words))
    }

    /// The words that are null in a column of this type, for error messages; `None` if there are none.
    fn null_words_text(&self, ty: FieldType) -> Option<String> {
        let words = self.all_null_words().filter(|word| self.is_null_word(word.as_bytes(), ty));
        let mut words: Vec<&str> = words.map(|word| if word.is_empty() { "nothing" } else { word }).collect();
        words.dedup();
        (!words.is_empty()).then(|| words.join(" or "))
    }
}

/// Whether a column of this type may have any word in it.
fn is_words(ty: FieldType) -> bool {
    ty.is_text() || matches!(ty, FieldType::Bytes | FieldType::List | FieldType::Enum { .. })
}

/// The error of CSV, and its place.
#[derive(Debug)]
pub struct CsvError {
    /// The line on which the row starts, counted from 1; 0 where there is no line to name.
    pub line: u64,
    /// The column's name, where one is at fault.
    pub column: Option<String>,
    /// The problem.
    pub problem: CsvProblem,
}

impl CsvError {
    fn at_header(problem: CsvProblem) -> Self {
        Self { line: 0, column: None, problem }
    }

    /// Whether reading can go on with the next row. If not, the input or the header is at fault.
    #[must_use]
    pub fn is_row(&self) -> bool {
        use CsvProblem::{ColumnCount, Refused, RowTooLong, UnclosedQuote, Value};
        matches!(
            self.problem,
            ColumnCount { .. } | Value { .. } | Refused { .. } | UnclosedQuote { .. } | RowTooLong { .. }
        )
    }
}

impl fmt::Display for CsvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}", self.line)?;
        }
        match &self.column {
            Some(column) if self.line > 0 => write!(f, ", column `{column}`: ")?,
            Some(column) => write!(f, "column `{column}`: ")?,
            None if self.line > 0 => write!(f, ": ")?,
            None => {}
        }
        write!(f, "{}", self.problem)
    }
}

impl std::error::Error for CsvError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            CsvProblem::Io(error) => Some(error),
            CsvProblem::Format(error) => Some(error),
            _ => None,
        }
    }
}

/// The problems of CSV.
#[derive(Debug, thiserror::Error)]
pub enum CsvProblem {
    /// A row has more or fewer columns than the header, or than the caller named.
    #[error("found {found} column{}, expected {expected}{}", if *found == 1 { "" } else { "s" },
        if *found == 1 { ": does another delimiter separate them?" } else { "" })]
    ColumnCount {
        /// Columns of the row.
        found: usize,
        /// Columns of the header, or the number that the caller named.
        expected: usize,
    },
    /// A field is no value of its column's type.
    #[error("found `{found}`, expected {expected}")]
    Value {
        /// The field, cut short if it was long.
        found: String,
        /// The values that the column takes.
        expected: String,
    },
    /// The record cannot be made of the row's fields.
    #[error("{problem}")]
    Refused {
        /// Why not.
        problem: ValueProblem,
    },
    /// A quote was opened, and the end of the input or of what a row may be came first.
    #[error("found a double quote that is not closed within {searched} bytes")]
    UnclosedQuote {
        /// How far the row reached, in bytes.
        searched: usize,
    },
    /// A row is longer than allowed.
    #[error("found a row of {found} bytes, expected at most {most}")]
    RowTooLong {
        /// The length of its line, in bytes; of a row of several lines, how far it was read.
        found: u64,
        /// The bound, in bytes.
        most: usize,
    },
    /// The input ends before a header.
    #[error("found nothing, expected a header row with the names of the columns")]
    NoHeader,
    /// The header is not UTF-8.
    #[error("found `{found}` in the header, which is not UTF-8")]
    HeaderNotText {
        /// The name, with what is not text replaced.
        found: String,
    },
    /// The header names a column that the format has no field for.
    #[error("the format has no field of this name; it has: {known}")]
    ExtraColumn {
        /// The format's fields.
        known: String,
    },
    /// The header lacks a column that the format cannot do without.
    #[error("the header lacks this column, and its field is not nullable")]
    MissingColumn,
    /// The header has a column twice.
    #[error("the header has this column twice")]
    SameColumn,
    /// The delimiter cannot be one.
    #[error("found {found:#04x} as the delimiter, expected a byte that is no double quote, CR or LF")]
    Delimiter {
        /// The byte.
        found: u8,
    },
    /// A null word could not stand in a row without quotes.
    #[error("found {found:?} as a null word, expected one without delimiter, double quote, CR or LF")]
    NullWord {
        /// The word.
        found: String,
    },
    /// No format could be made of the header.
    #[error("the header makes no format: {0}")]
    Format(FormatError),
    /// The input could not be read.
    #[error("cannot read: {0}")]
    Io(io::Error),
}
