//! The step of most fields, several in one step.
//!
//! A step's own loop has more to do with going from record to record than with the field. A step that only moves bits from
//! eight bytes of a record to eight bytes of its row, where zeros are, is therefore gathered from the steps into a few that
//! do several at a time; the order among these does not matter, and they come before all other steps.

use super::step::{Bytes, Load, NullBit, Op, Over, Step};

/// Bytes that are looked at, and changed, at a time. In a row they are aligned, so that what is changed twice is found where
/// it was left: a load that takes parts of two stores waits for both.
const WORD: u32 = 8;
/// The longest copy that is split into words; a single call copies a longer one.
const MOST_BYTES: u32 = 32;
/// Copies of one loop, beside one turn and one integer; what is not used does nothing.
const COPIES: usize = 4;

/// Adds the bits of the mask to the row.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Copy {
    from: u32,
    to: u32,
    mask: u64,
}

/// As [`Copy`], of bits that are turned to the right first.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Turn {
    copy: Copy,
    by: u32,
}

/// As [`Copy`], of an integer that is moved to the top of the word and then, with its sign in front, back to its place.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Integer {
    copy: Copy,
    up: u32,
    down: u32,
}

/// An integer of four bytes that becomes one of eight, with its sign: nearly all that are widened.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Widened {
    from: u32,
    to: u32,
}

/// The work of one loop.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Words {
    copies: [Copy; COPIES],
    turn: Option<Turn>,
    widened: Option<Widened>,
    integer: Option<Integer>,
    /// How many bytes a record's fixed part and a row have.
    bytes: (usize, usize),
}

/// The words that steps come to, in words.
#[derive(Default)]
struct Collector {
    /// Where the last word of a record's fixed part is.
    from_last: u32,
    copies: Vec<Copy>,
    turns: Vec<Turn>,
    widened: Vec<Widened>,
    integers: Vec<Integer>,
}

/// Steps that do the same, with what can be done together in front.
pub(super) fn gather(mut steps: Vec<Step>, from_bytes: usize, to_bytes: usize) -> Vec<Step> {
    let from_last = u32::try_from(from_bytes).ok().and_then(|bytes| bytes.checked_sub(WORD));
    let Some(from_last) = from_last.filter(|_| to_bytes.is_multiple_of(WORD as usize)) else {
        return steps;
    };
    let mut collector = Collector { from_last, ..Collector::default() };
    steps.retain(|step| !collector.step(step));
    let Collector { copies, turns, widened, integers, .. } = collector;
    let (mut copies, mut turns) = (copies.into_iter(), turns.into_iter());
    let (mut widened, mut integers) = (widened.into_iter(), integers.into_iter());
    let mut gathered = Vec::new();
    while copies.len() + turns.len() + widened.len() + integers.len() > 0 {
        let widened = widened.next();
        let words = Words {
            copies: std::array::from_fn(|_| copies.next().unwrap_or_default()),
            turn: turns.next(),
            widened,
            // One of both kinds: either has its loop.
            integer: if widened.is_none() { integers.next() } else { None },
            bytes: (from_bytes, to_bytes),
        };
        gathered.push(Step { op: Op::Words(Box::new(words)), from: 0, to: 0, null: NullBit::default() });
    }
    gathered.append(&mut steps);
    gathered
}

impl Words {
    /// How many copies there are, and how many other changes.
    pub(super) fn count(&self) -> (usize, usize) {
        let copies = self.copies.iter().filter(|copy| copy.mask != 0).count();
        let others = [self.turn.is_some(), self.widened.is_some(), self.integer.is_some()];
        (copies, others.into_iter().filter(|is| *is).count())
    }

    /// One loop, which has no more in it than there is to do. A record that is shorter than its fixed part is left out: it is
    /// refused by whoever has it, and elements of natural layouts are never shorter.
    #[inline(always)]
    pub(super) fn run<'r>(&self, over: impl Over<'r>) {
        let Words { copies, turn, widened, integer, bytes } = *self;
        match (turn, widened, integer) {
            (None, None, None) => run(over, bytes, copies, [], [], []),
            (Some(turn), None, None) => run(over, bytes, copies, [turn], [], []),
            (None, Some(widened), _) => run(over, bytes, copies, [], [widened], []),
            (Some(turn), Some(widened), _) => run(over, bytes, copies, [turn], [widened], []),
            (None, None, Some(integer)) => run(over, bytes, copies, [], [], [integer]),
            (Some(turn), None, Some(integer)) => run(over, bytes, copies, [turn], [], [integer]),
        }
    }
}

// A loop of its own, which has all registers to itself.
#[inline(never)]
fn run<'r, const C: usize, const T: usize, const W: usize, const I: usize>(
    over: impl Over<'r>,
    (from_bytes, to_bytes): (usize, usize),
    copies: [Copy; C],
    turns: [Turn; T],
    widened: [Widened; W],
    integers: [Integer; I],
) {
    // Asked here, so that the loop need not ask.
    let fits = |from: u32, to: u32| from as usize + 8 <= from_bytes && to as usize + 8 <= to_bytes;
    let copy_fits = |copy: &Copy| fits(copy.from, copy.to);
    if from_bytes < WORD as usize
        || !copies.iter().all(copy_fits)
        || !turns.iter().all(|turn| copy_fits(&turn.copy))
        || !widened.iter().all(|widened| fits(widened.from, widened.to))
        || !integers.iter().all(|integer| copy_fits(&integer.copy))
    {
        return;
    }
    over.each(
        #[inline(always)]
        |record, row| {
            let (Some(record), Some(row)) = (record.fixed(from_bytes), row.get_mut(..to_bytes)) else { return };
            for copy in &copies {
                add(row, copy.to, load(record, copy.from) & copy.mask);
            }
            for Turn { copy, by } in &turns {
                add(row, copy.to, load(record, copy.from).rotate_right(*by) & copy.mask);
            }
            for Widened { from, to } in &widened {
                add(row, *to, load(record, *from) as i32 as u64);
            }
            for Integer { copy, up, down } in &integers {
                let word = (load(record, copy.from) << (up & 63)) as i64 >> (down & 63);
                add(row, copy.to, word as u64 & copy.mask);
            }
        },
    );
}

#[inline(always)]
fn load(record: &[u8], at: u32) -> u64 {
    let at = at as usize;
    record.get(at..at + 8).and_then(|bytes| bytes.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}

#[inline(always)]
fn add(row: &mut [u8], at: u32, bits: u64) {
    let at = at as usize;
    if let Some(word) = row.get_mut(at..at + 8).and_then(|bytes| bytes.first_chunk_mut()) {
        *word = (u64::from_le_bytes(*word) | bits).to_le_bytes();
    }
}

impl Collector {
    /// Takes a step; false if it is none of those that are taken.
    fn step(&mut self, step: &Step) -> bool {
        let Step { from, to, .. } = *step;
        match step.op {
            Op::Move(bytes) if bytes <= MOST_BYTES => self.bytes(from, to, bytes),
            Op::Bits { mask, turn } => {
                for bit in (0..8).filter(|bit| mask >> bit & 1 != 0) {
                    self.bits(8 * from + bit, 8 * to + (bit + u32::from(turn)) % 8, 1);
                }
            }
            Op::Integer { load, bytes, check: None } => return self.integer(from, to, load, 8 * u32::from(bytes)),
            _ => return false,
        }
        true
    }

    /// A stretch of bytes, word of the row by word.
    fn bytes(&mut self, from: u32, to: u32, bytes: u32) {
        let mut done = 0;
        while done < bytes {
            let here = (bytes - done).min(WORD - (to + done) % WORD);
            self.bits(8 * (from + done), 8 * (to + done), 8 * here);
            done += here;
        }
    }

    /// An integer that always fits.
    fn integer(&mut self, from: u32, to: u32, load: Load, bits: u32) -> bool {
        let (up, down) = (u32::from(load.up), u32::from(load.down));
        let own_bits = 64 - down;
        if !load.signed || bits <= own_bits {
            self.bits(8 * from + down - up, 8 * to, bits.min(own_bits));
            return true;
        }
        let left = 8 * (to % WORD);
        let at = from + (down - up) / 8;
        if (own_bits, bits, left) == (32, 64, 0) && at <= self.from_last {
            self.widened.push(Widened { from: at, to });
            return true;
        }
        if left > down {
            return false;
        }
        // The bits that are shifted in behind it are zero.
        let copy = Copy { from, to: to - to % WORD, mask: ones(bits) << left };
        self.integers.push(Integer { copy, up, down: down - left });
        true
    }

    /// Bits that go to one word of the row; places are in bits.
    fn bits(&mut self, from: u32, to: u32, bits: u32) {
        let left = to % (8 * WORD);
        let (to, mask) = (to / 8 - left / 8, ones(bits) << left);
        match from.checked_sub(left) {
            Some(start) if start % 8 == 0 && start / 8 <= self.from_last => {
                let from = start / 8;
                match self.copies.iter_mut().find(|copy| (copy.from, copy.to) == (from, to)) {
                    Some(copy) => copy.mask |= mask,
                    None => self.copies.push(Copy { from, to, mask }),
                }
            }
            _ => {
                let word = (from / 8).min(self.from_last);
                let at = from - 8 * word;
                let by = at.wrapping_sub(left) % (8 * WORD);
                let same = |turn: &&mut Turn| (turn.copy.from, turn.copy.to, turn.by) == (word, to, by);
                match self.turns.iter_mut().find(same) {
                    Some(turn) => turn.copy.mask |= mask,
                    None => self.turns.push(Turn { copy: Copy { from: word, to, mask }, by }),
                }
            }
        }
    }
}

/// A mask of the lowest `bits` bits.
fn ones(bits: u32) -> u64 {
    u64::MAX.checked_shr(64 - bits).unwrap_or_default()
}
