//! Stretches of bytes that are copied unchanged, cut into widths that have loops of their own.

use crate::convert::step::{NullBit, Op, Step};

/// A stretch of bytes that is copied as it is.
#[derive(Clone, Copy)]
pub(super) struct Stretch {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) bytes: u32,
}

/// Stretches that are side by side in both records become one, and are cut into moves.
pub(super) fn moves(mut stretches: Vec<Stretch>) -> Vec<Step> {
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
        cut(stretch, |stretch| {
            let Stretch { from, to, bytes } = stretch;
            moves.push(Step { op: Op::Move(bytes), from, to, null: NullBit::default() });
        });
    }
    moves
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
