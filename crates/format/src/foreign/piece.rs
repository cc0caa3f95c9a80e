//! Pieces: what has no constant length, and where the fields behind it are.
//!
//! A field's place is a [`Spot`]: bytes from an anchor on. Anchor 0 is the start of the record, and needs nothing; anchor
//! `n` is the end of piece `n`, which is found by walking over the pieces in front of it; each is one step: its
//! length stands in the record, but for a text that ends with NUL. A record has at most [`MAX_PIECES`], so a walk is
//! bounded, and its steps are kept in an array: no piece is walked over twice.

use super::{Number, Test, Tests};

/// Most pieces of a layout, those of all its variants together.
pub(crate) const MAX_PIECES: usize = 64;

/// A place: bytes from an anchor on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub(crate) struct Spot {
    /// 0 for the start of the record or element, otherwise one more than the index of the piece whose end it is.
    pub(crate) anchor: u8,
    pub(crate) offset: u32,
}

impl Spot {
    pub(crate) const fn fixed(offset: u32) -> Self {
        Self { anchor: 0, offset }
    }
}

/// A part without a constant length.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) start: Spot,
    /// The field, of a block its first one.
    pub(crate) field: usize,
    pub(crate) len: PieceLen,
}

/// How long a piece is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PieceLen {
    /// Text, and the NUL behind it.
    Nul,
    /// A number of seven bits a byte.
    Varint,
    /// `count` elements, or bytes, behind a head.
    Run { head: Head, count: Number, stride: Stride },
    /// A record that takes as many bytes as a number says and `add` more, at least `least`; its fields end with field `end`.
    Block { of: usize, len: Number, add: i64, least: u32, end: usize },
}

/// The number in front of elements or bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Head {
    Bytes(u32),
    Varint,
}

/// How far elements are apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Stride {
    Fixed(u32),
    /// As a number in the head says: at least `least` bytes.
    Stated {
        load: Number,
        least: u32,
    },
}

/// Why a place or a length could not be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    /// The bytes end in front of it; there must be `at_least`.
    Short { at_least: usize },
    /// A number of more than 64 bits, or a length that no record has.
    Unreadable,
    /// Elements, or a block, of too few bytes.
    Block { found: u64, least: u32 },
    /// A union has no variant.
    NoVariant,
}

/// Where the record's anchors are, as far as that is known.
pub(crate) type Starts = [usize; MAX_PIECES + 1];

/// Of an anchor: not known yet.
pub(crate) const UNKNOWN: usize = usize::MAX;

/// A record, or an element in it, with what it takes to find places in it.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) bytes: &'a [u8],
    /// Where it starts.
    pub(crate) base: usize,
    pub(crate) pieces: &'a [Piece],
    /// Anchors that were found before; none, or all of them.
    pub(crate) starts: &'a [usize],
}

impl<'a> At<'a> {
    #[inline]
    pub(crate) fn of(bytes: &'a [u8], base: usize, pieces: &'a [Piece]) -> Self {
        Self { bytes, base, pieces, starts: &[] }
    }

    /// Where a place is, from the first byte on; beyond the end if it cannot be found.
    #[inline]
    pub(crate) fn spot(&self, spot: Spot) -> usize {
        let start = if spot.anchor == 0 { self.base } else { self.anchor(spot.anchor) };
        start.saturating_add(spot.offset as usize)
    }

    #[inline(never)]
    fn anchor(&self, anchor: u8) -> usize {
        match self.starts.get(usize::from(anchor)) {
            Some(start) if *start != UNKNOWN => *start,
            _ => {
                let mut starts = [UNKNOWN; MAX_PIECES + 1];
                starts[0] = self.base;
                walk(self.bytes, self.pieces, anchor, &mut starts).unwrap_or(self.bytes.len())
            }
        }
    }
}

/// Finds an anchor, and on the way to it those in front of it.
///
/// # Errors
/// As [`walk_to`].
fn walk(bytes: &[u8], pieces: &[Piece], anchor: u8, starts: &mut Starts) -> Result<usize, Flaw> {
    walk_to(bytes, pieces, anchor, starts).map_err(|(flaw, _)| flaw)
}

/// Finds an anchor, and on the way to it those in front of it.
///
/// # Errors
/// Why a piece has no end, and the piece.
pub(crate) fn walk_to<'p>(
    bytes: &[u8],
    pieces: &'p [Piece],
    anchor: u8,
    starts: &mut Starts,
) -> Result<usize, (Flaw, Option<&'p Piece>)> {
    let mut way = [0; MAX_PIECES];
    let (mut steps, mut at) = (0, anchor);
    // A piece lies behind pieces of smaller numbers only, so this ends.
    while starts.get(usize::from(at)).is_some_and(|start| *start == UNKNOWN) {
        let Some((piece, step)) =
            usize::from(at).checked_sub(1).and_then(|index| pieces.get(index)).zip(way.get_mut(steps))
        else {
            return Err((Flaw::Unreadable, None));
        };
        *step = at;
        steps += 1;
        at = piece.start.anchor;
    }
    for step in way.iter().take(steps).rev() {
        let index = usize::from(*step);
        let Some(piece) = pieces.get(index - 1) else { return Err((Flaw::Unreadable, None)) };
        let end = piece.end(&At { bytes, base: starts[0], pieces, starts: &starts[..] });
        starts[index] = end.map_err(|flaw| (flaw, Some(piece)))?;
    }
    starts.get(usize::from(anchor)).copied().ok_or((Flaw::Unreadable, None))
}

impl Piece {
    /// Where it ends: within the bytes.
    pub(crate) fn end(&self, at: &At<'_>) -> Result<usize, Flaw> {
        let start = at.spot(self.start);
        let end = match self.len {
            PieceLen::Varint => varint(at.bytes, start)?.1 as u64,
            PieceLen::Nul => {
                let text = at.bytes.get(start..).unwrap_or_default();
                let nul = text.iter().position(|byte| *byte == 0);
                let end = nul.and_then(|nul| start.checked_add(nul + 1));
                return end.ok_or(Flaw::Short { at_least: at.bytes.len().max(start).saturating_add(1) });
            }
            PieceLen::Run { head, count, stride } => {
                let count = count.read(at)?;
                let stride = match stride {
                    Stride::Fixed(stride) => stride.into(),
                    Stride::Stated { load, least } => match load.read(at)? {
                        found if found < least.into() && count > 0 => return Err(Flaw::Block { found, least }),
                        found => found,
                    },
                };
                let body = start.saturating_add(head.len(at, start)?) as u64;
                count.checked_mul(stride).and_then(|len| body.checked_add(len)).ok_or(Flaw::Unreadable)?
            }
            PieceLen::Block { len, add, least, .. } => {
                let found = i128::from(len.read(at)?) + i128::from(add);
                let found = u64::try_from(found).map_err(|_| Flaw::Block { found: 0, least })?;
                if found < least.into() {
                    return Err(Flaw::Block { found, least });
                }
                (start as u64).checked_add(found).ok_or(Flaw::Unreadable)?
            }
        };
        match usize::try_from(end) {
            Ok(end) if end <= at.bytes.len() => Ok(end),
            Ok(at_least) => Err(Flaw::Short { at_least }),
            Err(_) => Err(Flaw::Unreadable),
        }
    }
}

impl Head {
    /// Its length, if it starts at `start`.
    #[inline]
    pub(crate) fn len(self, at: &At<'_>, start: usize) -> Result<usize, Flaw> {
        match self {
            Self::Bytes(bytes) => Ok(bytes as usize),
            Self::Varint => varint(at.bytes, start).map(|(_, end)| end - start),
        }
    }
}

impl Stride {
    #[inline]
    pub(crate) fn value(self, at: &At<'_>) -> u32 {
        match self {
            Self::Fixed(stride) => stride,
            Self::Stated { load, .. } => u32::try_from(load.raw(at)).unwrap_or(u32::MAX),
        }
    }
}

/// A number of seven bits a byte, the lowest first, and where it ends: after at most ten bytes.
pub(crate) fn varint(bytes: &[u8], at: usize) -> Result<(u64, usize), Flaw> {
    let mut value = 0;
    for index in 0..10 {
        let place = at.saturating_add(index);
        let Some(byte) = bytes.get(place) else { return Err(Flaw::Short { at_least: place.saturating_add(1) }) };
        let bits = u64::from(byte & 0x7f);
        if index == 9 && bits > 1 {
            break;
        }
        value |= bits << (7 * index);
        if *byte < 0x80 {
            return Ok((value, place + 1));
        }
    }
    Err(Flaw::Unreadable)
}

/// The bytes of [`varint`], the last ones unused, and how many they are.
pub(crate) fn varint_bytes(mut value: u64) -> ([u8; 10], usize) {
    let mut bytes = [0; 10];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = value as u8 & 0x7f;
        value >>= 7;
        if value == 0 {
            return (bytes, index + 1);
        }
        *byte |= 0x80;
    }
    (bytes, 10)
}

/// A signed number as the one that zigzag makes of it: small ones stay small.
pub(crate) const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// The inverse of [`zigzag`].
pub(crate) const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

impl Test {
    /// Whether it looks at what has no constant place.
    pub(crate) fn walks(&self) -> bool {
        let spot = match self {
            Self::OneOf { load, .. }
            | Self::Bit { load, .. }
            | Self::Sentinel { load, .. }
            | Self::Float { load, .. } => load.at,
            Self::Text { at, .. } => *at,
        };
        spot.anchor != 0
    }
}

/// Whether some test looks at what has no constant place.
pub(crate) fn any_walks(tests: &Tests) -> bool {
    tests.iter().any(Test::walks)
}

/// By anchor, where the last field ends.
pub(super) type Ends = std::collections::BTreeMap<u8, u32>;

/// Notes that a field ends here.
pub(super) fn reach(ends: &mut Ends, end: Spot) {
    let known = ends.entry(end.anchor).or_default();
    *known = (*known).max(end.offset);
}

/// Where the last field ends that has a constant place.
pub(super) fn fixed_end(ends: &Ends) -> u32 {
    ends.get(&0).copied().unwrap_or(0)
}

/// The parts behind pieces: anchors, and where the last field ends from there on.
pub(super) fn tails(ends: &Ends) -> Box<[Spot]> {
    ends.iter()
        .filter(|(anchor, _)| **anchor != 0)
        .map(|(anchor, end)| Spot { anchor: *anchor, offset: *end })
        .collect()
}
