//! XML in and out: an element a record, its fields as elements in it.
//!
//! [`XmlDecoder`] reads documents from a reader, one record at a time. The records are the elements of the name that
//! [`EncodingOptions::xml_element`](super::EncodingOptions::xml_element) says, at any depth, or else the children of the
//! root. A field is a child element or an attribute of its name (its local name where that has a prefix). A nested record
//! is an element with its fields in it, and a union one with its one variant. A list is its elements one after the other,
//! each under the list's name with the same prefix; in a list of lists, the inner one's elements are called `item`.
//!
//! | value | as XML |
//! |---|---|
//! | null | nothing, or an element with `xsi:nil="true"` and nothing in it; an empty element or attribute too, but for text and bytes |
//! | a list without elements | nothing where the list may not be null, else one empty element with `xsi:nil="false"` |
//! | bool | `true`, `false`; `1` and `0` are read |
//! | float | digits, `NaN`, `INF`, `-INF` |
//! | timestamp | RFC 3339 |
//! | decimal | digits with a point |
//! | enumeration | the symbol, or the number where it has none; both are read |
//! | bytes | base64, in which blanks do not count |
//! | text | as it is; characters that XML has none of (controls) are refused, or U+FFFD with [`Loss::InvalidText`] |
//!
//! Numbers out of their range, and fields that are missing or there twice are wrong items; the next item is read. Text
//! that is no UTF-8 is no XML, and ends the reading. The five predefined entities and character references are read. A document type declaration is
//! refused, and with it every other entity: nothing outside of the input is ever fetched, and nothing expands.

mod decode;
mod encode;
mod tape;
mod tokens;

#[cfg(doc)]
use super::Loss;

pub use decode::XmlDecoder;
pub use encode::XmlEncoder;

/// The name of the elements of a list that lies in a list: the inner one has no name of its own.
const ITEM: &str = "item";

/// Whether a field can be an element of this name (one without a prefix).
fn is_name(name: &str) -> bool {
    let starts = |c: char| {
        matches!(c, 'A'..='Z' | 'a'..='z' | '_' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}'
            | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}' | '\u{200c}'..='\u{200d}' | '\u{2070}'..='\u{218f}'
            | '\u{2c00}'..='\u{2fef}' | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}'
            | '\u{10000}'..='\u{effff}')
    };
    let goes_on = |c: char| {
        starts(c) || matches!(c, '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
    };
    name.chars().next().is_some_and(starts) && name.chars().all(goes_on)
}

/// Whether XML 1.0 has this character.
fn is_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}
