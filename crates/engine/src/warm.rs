//! Brings memory that another core wrote last to this one, before it is needed: a few cache lines at a time, so that no batch waits
//! for all of them.

use crossdock_format::Format;
use std::hint::black_box;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// Cache lines of a piece. A line comes from another core in about 0.1 µs, several at once in little more.
const PIECE_LINES: usize = 8;

/// A piece of a handler's memory: of all the cache lines that are touched with it, in their order, those of the piece.
#[derive(Debug)]
pub struct WarmPiece {
    first: usize,
    /// Lines that were touched, or are of other pieces.
    passed: usize,
}

impl WarmPiece {
    /// The piece of this number, counted from 0.
    #[must_use]
    pub fn new(number: usize) -> WarmPiece {
        WarmPiece { first: number.saturating_mul(PIECE_LINES), passed: 0 }
    }

    /// Whether there are lines behind it, once all were touched with it.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.passed > self.first.saturating_add(PIECE_LINES)
    }

    /// Touches the lines of the piece, of `count` that come next.
    pub(crate) fn lines(&mut self, count: usize, touch: impl FnMut(usize)) {
        let before = |line: usize| line.saturating_sub(self.passed).min(count);
        let lines = before(self.first)..before(self.first.saturating_add(PIECE_LINES));
        self.passed = self.passed.saturating_add(count);
        lines.for_each(touch);
    }

    /// Reads some memory, a word of each cache line, so that this core has it.
    pub fn touch<T: Copy>(&mut self, items: &[T]) {
        let step = per_line::<T>();
        self.lines(items.len().div_ceil(step), |line| _ = black_box(items.get(line * step).copied()));
    }

    /// Writes some memory as it is, a word of each cache line, so that this core has it for itself.
    pub fn own<T: Copy>(&mut self, items: &mut [T]) {
        let step = per_line::<T>();
        let count = items.len().div_ceil(step);
        self.lines(count, |line| items.get_mut(line * step).into_iter().for_each(|item| *item = black_box(*item)));
    }

    /// Reads where a format's fields are.
    pub(crate) fn touch_fields(&mut self, format: &Format) {
        let fields = format.fields();
        self.lines(fields.len(), |at| _ = black_box(fields.get(at).map(|field| (field.offset, field.size))));
    }
}

/// The number of items in a cache line, or 1.
fn per_line<T>() -> usize {
    (LINE_BYTES / size_of::<T>().max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_have_all_lines_once_and_few_each() {
        for counts in [&[0][..], &[PIECE_LINES], &[3, 30, 0, 1, 7], &[100]] {
            let (mut touched, mut number) = (Vec::new(), 0);
            loop {
                let mut piece = WarmPiece::new(number);
                let before = touched.len();
                for (region, count) in counts.iter().enumerate() {
                    piece.lines(*count, |line| touched.push((region, line)));
                }
                assert!(touched.len() - before <= PIECE_LINES, "{counts:?}");
                if !piece.has_more() {
                    break;
                }
                number += 1;
            }
            let all = counts.iter().enumerate().flat_map(|(region, count)| (0..*count).map(move |line| (region, line)));
            assert!(touched.iter().copied().eq(all), "{counts:?}: {touched:?}");
        }
    }

    #[test]
    fn a_line_has_a_word_of_its_own() {
        let (mut piece, words) = (WarmPiece::new(0), [7u64; 20]);
        piece.touch(&words);
        assert_eq!(piece.passed, 3, "8 words are a line");
        piece.own(&mut [[0u8; 80]; 4]);
        assert_eq!(piece.passed, 7, "each of these has a line of its own");
    }
}
