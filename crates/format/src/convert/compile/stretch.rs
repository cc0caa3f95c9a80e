//! Stretches of bytes that are copied as they are, cut into widths that have loops of their own.

use crate::convert::step::{NullBit, Op, Step};

/// A stretch of bytes that is copied as it is.
#[derive(Clone, Copy)]
pub(super) struct Stretch {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) bytes: u32,
}

/// Stretches that are side by side in both records become one, and are cut into moves. `fixed` are the bytes of the fixed
/// parts of either side.
pub(super) fn moves(mut stretches: Vec<Stretch>, from_fixed: usize, to_fixed: usize) -> Vec<Step> {
    stretches.sort_unstable_by_key(|stretch| stretch.to);
    let mut whole: Vec<Stretch> = Vec::new();
    for next in stretches {
        match whole.last_mut() {
            Some(last) if (last.from + last.bytes, last.to + last.bytes) == (next.from, next.to) => {
                last.bytes += next.bytes;
            }
            _ => whole.push(next),
        }
    }
    let mut moves = Vec::new();
    for stretch in whole {
        if let Some(part) = part(stretch, from_fixed, to_fixed) {
            moves.push(part);
            continue;
        }
        cut(stretch, |stretch| {
            let Stretch { from, to, bytes } = stretch;
            moves.push(Step { op: Op::Move(bytes), from, to, null: NullBit::default() });
        });
    }
    moves
}

/// One step for a stretch of a length that no load has: as part of eight bytes that lie in both fixed parts. What else they
/// hold in the row is left as it is, and where the stretch goes are zeros.
fn part(stretch: Stretch, from_fixed: usize, to_fixed: usize) -> Option<Step> {
    let Stretch { from, to, bytes } = stretch;
    if !matches!(bytes, 3 | 5..=7) {
        return None;
    }
    // Elements of lists may be shorter than eight bytes.
    let last = |fixed: usize| fixed.checked_sub(8).map(|last| last as u32);
    // So far the stretch starts behind the eight bytes.
    let back = from.saturating_sub(last(from_fixed)?).max(to.saturating_sub(last(to_fixed)?));
    if back > from.min(to) || back + bytes > 8 {
        return None;
    }
    let mask = (u64::MAX >> (64 - 8 * bytes)) << (8 * back);
    Some(Step { op: Op::Part(mask), from: from - back, to: to - back, null: NullBit::default() })
}

/// The longest stretch that is cut into pieces; a longer one is worth a call of `memcpy`.
const LONGEST_CUT: u32 = 64;

/// Cuts a stretch into widths that have loops of their own. The last piece may overlap the one before it: what is written
/// twice is the same.
fn cut(stretch: Stretch, mut piece: impl FnMut(Stretch)) {
    let Stretch { mut from, mut to, mut bytes } = stretch;
    if bytes > LONGEST_CUT {
        return piece(stretch);
    }
    while bytes > 0 {
        let width = [16, 8, 4, 2, 1].into_iter().find(|width| *width <= bytes).unwrap_or(1);
        piece(Stretch { from, to, bytes: width });
        (from, to, bytes) = (from + width, to + width, bytes - width);
        if bytes > 0 && bytes < width && !bytes.is_power_of_two() {
            // One more of the same width, ending where the stretch ends.
            let back = width - bytes;
            return piece(Stretch { from: from - back, to: to - back, bytes: width });
        }
    }
}
