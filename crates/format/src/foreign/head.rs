//! The first line of a foreign layout.

use crate::notation::shorten;
use crate::problem::{FormatError, FormatProblem};

/// The first line's properties of all fields.
pub(super) struct Head<'t> {
    pub(super) is_big: bool,
    pub(super) mode: Mode,
    pub(super) length: Length<'t>,
}

/// Where a field goes that does not say so.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Right behind the one before it.
    Packed,
    /// As C compilers do: at a multiple of its size.
    Aligned,
    /// It must say so.
    Explicit,
}

/// How long a record is.
pub(super) enum Length<'t> {
    /// As long as its fields need, always.
    Needed,
    Fixed(u32),
    Variant,
    Field {
        of: &'t str,
        add: i64,
    },
}

impl<'t> Head<'t> {
    /// The words behind `layout foreign`, or behind `foreign` in a canonical description, whose fields say all themselves.
    pub(super) fn of(line: usize, text: &'t str, is_canonical: bool) -> Result<Self, FormatError> {
        let wrong = || {
            let expected = match is_canonical {
                true => "`size N`, `size variant` or `length FIELD +N`",
                false => {
                    "`layout foreign little|big packed|aligned|explicit`, and `size N`, `size variant` or \
                     `length FIELD +N` behind it if need be"
                }
            };
            let problem = FormatProblem::Syntax { found: shorten(text), expected: expected.to_owned() };
            FormatError { line: Some(line), problem }
        };
        let text = text.split_once('#').map_or(text, |(text, _)| text);
        let mut words = text.split_whitespace();
        let (mut is_big, mut mode) = (false, Mode::Explicit);
        if !is_canonical {
            is_big = match words.next() {
                Some("little") => false,
                Some("big") => true,
                _ => return Err(wrong()),
            };
            mode = match words.next() {
                Some("packed") => Mode::Packed,
                Some("aligned") => Mode::Aligned,
                Some("explicit") => Mode::Explicit,
                _ => return Err(wrong()),
            };
        }
        let length = match (words.next(), words.next()) {
            (None, _) if !is_canonical => Length::Needed,
            (Some("size"), Some("variant")) => Length::Variant,
            (Some("size"), Some(bytes)) => Length::Fixed(bytes.parse().map_err(|_| wrong())?),
            (Some("length"), Some(of)) => {
                let add = words.next().map_or(Ok(0), str::parse).map_err(|_| wrong())?;
                Length::Field { of: of.trim_matches('"'), add }
            }
            _ => return Err(wrong()),
        };
        if words.next().is_some() { Err(wrong()) } else { Ok(Self { is_big, mode, length }) }
    }
}
