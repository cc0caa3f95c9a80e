//! A format as text: the canonical description that its id is the hash of, and people's shorter notation.
//!
//! The canonical description has a head line and one line a field:
//!
//! ```text
//! crossdock-format/1 natural 40
//! carrier char[2] at 5 size 2 little
//! dep_delay i32 at 8 size 4 little null 0
//! "tail number" string at 12 size 8 little
//! ```
//!
//! There is one text for a format and one format for a text, so the hash of the text names the format everywhere.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::field::{Field, FieldSpec, FieldType};
use crate::format::{Format, FormatError, FormatProblem};

/// The first word of every description: the notation and its version.
const HEAD: &str = "crossdock-format/1";

/// The name of a format that needs no server to give it out: the first 8 bytes of the SHA-256 of its canonical
/// description, read as a little-endian number. Its text form is that number as 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FormatId(
    /// The number.
    pub u64,
);

impl FormatId {
    /// The id of the format with this canonical description.
    pub(crate) fn of(description: &str) -> Self {
        let hash = Sha256::digest(description.as_bytes());
        Self(hash.iter().take(8).rev().fold(0, |id, byte| id << 8 | u64::from(*byte)))
    }
}

impl fmt::Display for FormatId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A word that is no format id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a format id is 16 hexadecimal digits, such as 00c0ffee00c0ffee")]
pub struct FormatIdError;

impl FromStr for FormatId {
    type Err = FormatIdError;

    fn from_str(text: &str) -> Result<Self, FormatIdError> {
        if text.len() != 16 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(FormatIdError);
        }
        u64::from_str_radix(text, 16).map(Self).map_err(|_| FormatIdError)
    }
}

/// A name as the notations write it: bare if it is a plain identifier, otherwise in double quotes.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let starts_plain = self.0.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if starts_plain && self.0.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return f.write_str(self.0);
        }
        f.write_char('"')?;
        for c in self.0.chars() {
            if matches!(c, '"' | '\\') {
                f.write_char('\\')?;
            }
            f.write_char(c)?;
        }
        f.write_char('"')
    }
}

/// The canonical description of fields that have their places.
pub(crate) fn describe(fields: &[Field], fixed_bytes: usize) -> String {
    // Writing to a string does not fail.
    let mut text = String::with_capacity(32 + fields.len() * 48);
    let _ = writeln!(text, "{HEAD} natural {fixed_bytes}");
    for Field { name, ty, offset, size, byte_order, null_bit, .. } in fields {
        let _ = write!(text, "{} {ty} at {offset} size {size} {byte_order}", Quoted(name));
        if let Some(bit) = null_bit {
            let _ = write!(text, " null {bit}");
        }
        text.push('\n');
    }
    text
}

/// The canonical text back to the format. The text must be canonical to the byte: places follow from the names and
/// types, and are compared with those of the text.
pub(crate) fn parse(description: &str) -> Result<Format, FormatError> {
    let mut lines = description.lines();
    let head = lines.next().unwrap_or_default();
    if !head.starts_with("crossdock-format/1 natural ") {
        let problem = FormatProblem::Syntax { found: shorten(head), expected: format!("`{HEAD} natural BYTES`") };
        return Err(FormatError { line: Some(1), problem });
    }
    let mut specs = Vec::new();
    for (line, text) in (2..).zip(lines) {
        if specs.len() == crate::MAX_FIELDS {
            return Err(FormatError { line: Some(line), problem: FormatProblem::TooManyFields });
        }
        let words = split_words(text).map_err(|problem| FormatError { line: Some(line), problem })?;
        let spec = spec_of(&words, text).map_err(|problem| FormatError { line: Some(line), problem })?;
        let nullable = words.get(7).is_some_and(|word| word == "null");
        specs.push(FieldSpec { nullable, ..spec });
    }
    let format = Format::natural(specs).map_err(|error| error.on_line(2))?;
    let canonical = format.describe();
    if canonical == description {
        return Ok(format);
    }
    let mut expected = canonical.split_inclusive('\n');
    let mut found = description.split_inclusive('\n');
    for line in 1.. {
        match (expected.next(), found.next()) {
            (Some(expected), Some(found)) if expected == found => {}
            (None, None) => break,
            (expected, found) => {
                let expected = expected.map_or_else(|| "the end".to_owned(), |text| format!("{text:?}"));
                let found = shorten(found.unwrap_or("the end"));
                let problem = FormatProblem::NotCanonical { found, expected };
                return Err(FormatError { line: Some(line), problem });
            }
        }
    }
    Ok(format)
}

/// People's notation: `name type [null]` a line; `#` starts a comment, blank lines count for nothing.
pub(crate) fn parse_schema(text: &str) -> Result<Format, FormatError> {
    let mut specs: Vec<FieldSpec> = Vec::new();
    let mut lines = Vec::new();
    for (line, text) in (1..).zip(text.strip_prefix('\u{feff}').unwrap_or(text).lines()) {
        let at_line = |problem| FormatError { line: Some(line), problem };
        let words = split_words(text).map_err(at_line)?;
        if words.is_empty() {
            continue;
        }
        if specs.len() == crate::MAX_FIELDS {
            return Err(at_line(FormatProblem::TooManyFields));
        }
        let mut spec = spec_of(&words, text).map_err(at_line)?;
        let rest: Vec<&str> = words.iter().skip(2).map(String::as_str).collect();
        spec.nullable = match rest.as_slice() {
            [] | ["not", "null"] => false,
            ["null"] => true,
            _ => {
                let expected = "`name type`, and `null` behind it if the field may be null".to_owned();
                return Err(at_line(FormatProblem::Syntax { found: shorten(text), expected }));
            }
        };
        specs.push(spec);
        lines.push(line);
    }
    Format::natural(specs).map_err(|error| {
        let line = error.problem.field().and_then(|field| lines.get(field).copied());
        FormatError { line, ..error }
    })
}

/// People's notation of a format: what [`parse_schema`] reads.
pub(crate) fn schema(fields: &[Field]) -> String {
    let mut text = String::new();
    for field in fields {
        let null = if field.nullable { " null" } else { "" };
        let _ = writeln!(text, "{} {}{null}", Quoted(&field.name), field.ty);
    }
    text
}

/// Name and type, the first two words of a line in either notation.
fn spec_of(words: &[String], text: &str) -> Result<FieldSpec, FormatProblem> {
    let [name, ty, ..] = words else {
        return Err(FormatProblem::Syntax { found: shorten(text), expected: "a name and a type".to_owned() });
    };
    let ty: FieldType = ty.parse().map_err(FormatProblem::Type)?;
    Ok(FieldSpec::new(name.as_str(), ty))
}

/// The words of a line up to a comment; a word in double quotes may hold anything, with `\"` and `\\` in it.
fn split_words(line: &str) -> Result<Vec<String>, FormatProblem> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() && !rest.starts_with('#') {
        let (word, after) = match rest.strip_prefix('"') {
            Some(inside) => split_quoted(inside).ok_or_else(|| FormatProblem::Syntax {
                found: shorten(rest),
                expected: "a closing double quote, and a space behind it".to_owned(),
            })?,
            None => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        words.push(word);
        rest = after.trim_start();
    }
    Ok(words)
}

/// What stands before the closing quote, unescaped, and what follows it.
fn split_quoted(inside: &str) -> Option<(String, &str)> {
    let mut word = String::new();
    let mut chars = inside.chars();
    loop {
        match chars.next()? {
            '"' => break,
            '\\' => match chars.next()? {
                c @ ('"' | '\\') => word.push(c),
                _ => return None,
            },
            c => word.push(c),
        }
    }
    let after = chars.as_str();
    (after.is_empty() || after.starts_with(char::is_whitespace)).then_some((word, after))
}

/// Enough of a text to find it again, for error messages.
fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(80).flat_map(char::escape_debug).collect();
    if text.chars().nth(80).is_some() {
        short.push('…');
    }
    short
}
