//! The attributes behind a type in a foreign layout, and how they are written back.

use crate::MAX_FIXED_BYTES;
use crate::notation::{Node, character, shorten};
use crate::problem::{FormatError, FormatProblem};

/// The attributes behind a type.
#[derive(Clone, Default)]
pub(super) struct Attributes {
    pub(super) at: Option<u32>,
    /// Whether the first byte is the most significant.
    pub(super) is_big: Option<bool>,
    /// The lowest bit, and the one behind the highest.
    pub(super) bits: Option<(u8, u8)>,
    pub(super) null: Option<Null>,
    pub(super) pads_space: bool,
    /// Nanoseconds a unit.
    pub(super) unit: Option<i64>,
    /// Bytes of a timestamp.
    pub(super) size: Option<u8>,
    pub(super) count: Option<String>,
    /// Bytes of a slot's offset and length.
    pub(super) slot: Option<(u8, u8)>,
    pub(super) base: Option<u32>,
    pub(super) stride: Option<u32>,
    pub(super) overlay: bool,
    /// The field of variable length behind which its place counts.
    pub(super) after: Option<String>,
    /// A number of seven bits a byte; true for one whose sign is the lowest bit.
    pub(super) varint: Option<bool>,
    /// Text up to a NUL.
    pub(super) until_nul: bool,
    /// The width of a length or count in front.
    pub(super) inline: Option<Width>,
    /// The widths in the head of a group: bytes of an element's length, bytes of the count, and bytes of both and what lies
    /// between them.
    pub(super) group: Option<(u8, u8, u32)>,
    /// Of a record: which field says how many bytes it has, and how many more there are.
    pub(super) length: Option<(String, i64)>,
}

/// How a length is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Width {
    Bytes(u8),
    Varint,
}

/// When a field is null.
#[derive(Clone)]
pub(super) enum Null {
    /// Where it has this value.
    Value(String),
    /// Where a bit of another field is as said.
    Bit { bit: u8, of: String, when: bool },
}

/// Units of timestamps, in nanoseconds.
pub(super) const UNITS: [(&str, i64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

const KNOWN: &str = "known: at N, be, le, bits A..B, null if = VALUE, null [unless] bit B of FIELD, pad space, unit s|ms|us|ns, \
                     size N, count FIELD, slot uN uN, base N, stride N, overlay, after FIELD, varint, zigzag, until nul, \
                     inline uN|varint, group uN uN [head N], length FIELD [+N]";

impl Attributes {
    pub(super) fn of(node: &Node<'_>) -> Result<Self, FormatError> {
        let mut words = node.words.iter().map(String::as_str).peekable();
        let mut found = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        while let Some(word) = words.next() {
            let wrong = || {
                let problem = FormatProblem::Syntax {
                    found: shorten(node.text.trim()),
                    expected: format!("`{word}` otherwise; {KNOWN}"),
                };
                FormatError { line: Some(node.line), problem }
            };
            let kind = match word {
                "le" => "be",
                "zigzag" => "varint",
                word => word,
            };
            if seen.contains(&kind) {
                return Err(wrong());
            }
            seen.push(kind);
            match word {
                "at" => {
                    let at = next_number(&mut words).filter(|at| *at as usize <= MAX_FIXED_BYTES);
                    found.at = Some(at.ok_or_else(wrong)?);
                }
                "base" => found.base = Some(next_number(&mut words).ok_or_else(wrong)?),
                "stride" => found.stride = Some(next_number(&mut words).ok_or_else(wrong)?),
                "size" => found.size = Some(next_number(&mut words).ok_or_else(wrong)?),
                "be" => found.is_big = Some(true),
                "le" => found.is_big = Some(false),
                "overlay" => found.overlay = true,
                "after" => found.after = Some(words.next().ok_or_else(wrong)?.to_owned()),
                "varint" => found.varint = Some(false),
                "zigzag" => found.varint = Some(true),
                "until" if words.next() == Some("nul") => found.until_nul = true,
                "inline" => {
                    found.inline = Some(match words.next().ok_or_else(wrong)? {
                        "varint" => Width::Varint,
                        word => Width::Bytes(width(word).ok_or_else(wrong)?),
                    });
                }
                "group" => found.group = Some(group(&mut words).ok_or_else(wrong)?),
                "length" => {
                    let of = words.next().ok_or_else(wrong)?.to_owned();
                    let add = words.next_if(|word| word.starts_with(['+', '-'])).map_or(Ok(0), str::parse);
                    found.length = Some((of, add.map_err(|_| wrong())?));
                }
                "pad" if words.next() == Some("space") => found.pads_space = true,
                "count" => found.count = Some(words.next().ok_or_else(wrong)?.to_owned()),
                "bits" => found.bits = Some(words.next().and_then(bits).ok_or_else(wrong)?),
                "unit" => {
                    let unit = words.next().ok_or_else(wrong)?;
                    let known = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
                    found.unit = Some(known.1);
                }
                "slot" => {
                    let widths = (words.next().and_then(width), words.next().and_then(width));
                    let (Some(start), Some(len)) = widths else { return Err(wrong()) };
                    found.slot = Some((start, len));
                }
                "null" => found.null = Some(null(&mut words).ok_or_else(wrong)?),
                _ => return Err(wrong()),
            }
        }
        Ok(found)
    }
}

fn next_number<'w, N: std::str::FromStr>(words: &mut impl Iterator<Item = &'w str>) -> Option<N> {
    words.next().filter(|word| word.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

/// `A..B`.
fn bits(word: &str) -> Option<(u8, u8)> {
    let (low, high) = word.split_once("..")?;
    let (low, high): (u8, u8) = (low.parse().ok()?, high.parse().ok()?);
    (low < high && high <= 64).then_some((low, high))
}

/// Bytes of `u8` … `u64`.
fn width(word: &str) -> Option<u8> {
    match word {
        "u8" => Some(1),
        "u16" => Some(2),
        "u24" => Some(3),
        "u32" => Some(4),
        "u40" => Some(5),
        "u48" => Some(6),
        "u56" => Some(7),
        "u64" => Some(8),
        _ => None,
    }
}

/// `uN uN`, and `head N` if there is more between them.
fn group<'w>(words: &mut std::iter::Peekable<impl Iterator<Item = &'w str>>) -> Option<(u8, u8, u32)> {
    let (stride, count) = (width(words.next()?)?, width(words.next()?)?);
    let least = u32::from(stride) + u32::from(count);
    let head = match words.next_if_eq(&"head") {
        Some(_) => next_number(words)?,
        None => least,
    };
    (least..=64).contains(&head).then_some((stride, count, head))
}

/// `if = VALUE`, `bit B of FIELD`, `unless bit B of FIELD`.
fn null<'w>(words: &mut impl Iterator<Item = &'w str>) -> Option<Null> {
    let (word, when) = match words.next()? {
        "if" => return (words.next()? == "=").then(|| words.next().map(|value| Null::Value(value.to_owned())))?,
        "unless" => (words.next()?, false),
        word => (word, true),
    };
    let bit = (word == "bit").then(|| next_number(words))??;
    let of = (words.next()? == "of").then(|| words.next())??;
    (bit < 64).then(|| Null::Bit { bit, of: of.to_owned(), when })
}

/// A whole number, or the byte of a character in single quotes.
pub(super) fn whole(word: &str) -> Option<i128> {
    character(word).map(i128::from).or_else(|| word.parse().ok())
}
