//! A format as text for machines: the canonical description that its id is the hash of.
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
//! Nested records and unions stand around the lines of their fields, as in people's [`notation`](crate::notation).
//!
//! There is one text for a format and one format for a text, so the hash of the text names the format everywhere.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::element::Member;
use crate::field::Field;
use crate::format::{Format, FormatError, FormatProblem, Frame, Layout};
use crate::notation::{self, Dialect, Quoted, shorten};

/// The first word of every description: the notation and its version.
const HEAD: &str = "crossdock-format/1";

/// The name of a format that needs no server to give it out: the first 8 bytes of the SHA-256 of its canonical
/// description, read as a little-endian number. Its text form is that number as 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FormatId(
    /// The number.
    pub u64,
);

/// The SHA-256 of a canonical description: what tells two formats apart whose ids are the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FormatDigest([u8; 32]);

impl FormatDigest {
    /// The digest of the format with this canonical description.
    pub(crate) fn of(description: &str) -> Self {
        Self(Sha256::digest(description.as_bytes()).into())
    }

    /// Its first 8 bytes, the id.
    pub(crate) fn id(self) -> FormatId {
        FormatId(self.0.first_chunk().copied().map_or(0, u64::from_le_bytes))
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

/// The canonical description of fields that have their places.
pub(crate) fn describe(frame: Frame, fields: &[Field], tree: &[Member], layout: &Layout) -> String {
    let mut text = String::with_capacity(32 + fields.len() * 48);
    let kind = match frame {
        Frame::Record => "natural",
        Frame::Element => "element",
        Frame::Foreign => "foreign",
        Frame::ForeignElement => "foreign-element",
    };
    if let Some(foreign) = &layout.foreign {
        let rule = if frame == Frame::Foreign { foreign.rule_text.clone() } else { layout.blank.len().to_string() };
        return format!("{HEAD} {kind} {rule}\n{}", foreign.body);
    }
    // Writing to a string does not fail.
    let _ = writeln!(text, "{HEAD} {kind} {}", layout.blank.len());
    describe_members(tree, fields, layout, 0, &mut text);
    text
}

/// `prefix` is the length of the path that members' names have in front of their own.
fn describe_members(members: &[Member], fields: &[Field], layout: &Layout, prefix: usize, text: &mut String) {
    for member in members {
        match member {
            Member::Leaf(index) => {
                let (Some(field), Some(cell)) = (fields.get(*index), layout.cells.get(*index)) else { continue };
                let Field { name, offset, size, byte_order, null_bit, .. } = field;
                let name = Quoted(name.get(prefix..).unwrap_or(name));
                let ty = notation::one_line(&field.type_spec());
                let _ = write!(text, "{name} {ty} at {offset} size {size} {byte_order}");
                if let Some(bit) = null_bit.filter(|_| !cell.is_shared()) {
                    let _ = write!(text, " null {bit}");
                }
                text.push('\n');
            }
            Member::Group(group) => {
                let word = if group.union.is_some() { "union" } else { "record" };
                let _ = writeln!(text, "{} {word} {{", Quoted(&group.name));
                describe_members(&group.members, fields, layout, group.path.len() + 1, text);
                let _ = writeln!(text, "}}{}", if group.nullable { " null" } else { "" });
            }
        }
    }
}

/// The canonical text back to the format. The text must be canonical to the byte: places follow from the names and
/// types, and are compared with those of the text.
pub(crate) fn parse(description: &str) -> Result<Format, FormatError> {
    let (head, body) = description.split_once('\n').unwrap_or((description, ""));
    let foreign = head.strip_prefix("crossdock-format/1 foreign ");
    if foreign.is_none() && !head.starts_with("crossdock-format/1 natural ") {
        let problem = FormatProblem::Syntax { found: shorten(head), expected: format!("`{HEAD} natural BYTES`") };
        return Err(FormatError { line: Some(1), problem });
    }
    let format = match foreign {
        Some(head) => crate::foreign::parse(1, head, body, true)?,
        None => notation::parse_fields(body, 2, Dialect::Canonical)?,
    };
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
