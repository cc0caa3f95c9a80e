//! Formats as parts of an input.

use crossdock_format::Format;

/// Fixed parts longer than this, of records or of elements, would make an input of a few bytes records of many MiB.
const MOST_FIXED_BYTES: usize = 4096;

/// A part of an input as text.
pub fn text(part: Option<&[u8]>) -> Option<&str> {
    std::str::from_utf8(part?).ok()
}

/// The format of a schema.
pub fn schema(part: Option<&[u8]>) -> Option<Format> {
    Format::parse_schema(text(part)?).ok().filter(is_small)
}

fn is_small(format: &Format) -> bool {
    let elements = format.fields().iter().filter_map(|field| field.element());
    format.fixed_bytes() <= MOST_FIXED_BYTES && elements.map(|element| element.format()).all(is_small)
}
