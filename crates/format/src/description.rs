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
//! The field's statement on other versions stands behind that: ` default "??" alias carrier_code`.
//!
//! Nested records and unions stand around the lines of their fields, as in people's [`notation`](crate::notation).
//!
//! There is one text for a format and one format for a text, so the hash of the text names the format everywhere.

use std::fmt::Write as _;

use crate::element::Member;
use crate::field::Field;
use crate::format::{Format, FormatError, FormatProblem, Frame, Layout};
use crate::notation::{self, Dialect, Quoted, shorten};

/// The first word of every description: the notation and its version.
const HEAD: &str = "crossdock-format/1";

impl Format {
    /// The canonical description: one text for a format, which its id is the hash of.
    #[must_use]
    pub fn describe(&self) -> String {
        describe(self.frame(), self.fields(), self.tree(), self.layout())
    }

    /// Reads a canonical description back.
    ///
    /// # Errors
    /// Any text that [`Format::describe`] does not write, with the line that differs and what it should be.
    pub fn parse(description: &str) -> Result<Format, FormatError> {
        parse(description)
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
                let Field { name, offset, size, byte_order, null_bit, evolution, .. } = field;
                let name = Quoted(name.get(prefix..).unwrap_or(name));
                let ty = notation::one_line(&field.type_spec());
                let _ = write!(text, "{name} {ty} at {offset} size {size} {byte_order}");
                if let Some(bit) = null_bit.filter(|_| !cell.is_shared()) {
                    let _ = write!(text, " null {bit}");
                }
                if let Some(evolution) = evolution {
                    let _ = write!(text, "{evolution}");
                }
                text.push('\n');
            }
            Member::Group(group) => {
                let word = if group.union.is_some() { "union" } else { "record" };
                let _ = writeln!(text, "{} {word} {{", Quoted(&group.name));
                describe_members(&group.members, fields, layout, group.path.len() + 1, text);
                text.push_str(if group.nullable { "} null" } else { "}" });
                if let Some(evolution) = &group.evolution {
                    let _ = write!(text, "{evolution}");
                }
                text.push('\n');
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
