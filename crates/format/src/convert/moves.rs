//! Moves: what goes from record to row as it is, bytes and null bits, as steps.
//!
//! Conversions and the select lists of queries copy fields by the same steps.

use super::step::{Many, NullBit, One, Op, Step};
use super::words;
use crate::format::Format;

/// A stretch of bytes that is copied as it is.
#[derive(Clone, Copy)]
pub(super) struct Stretch {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) bytes: u32,
}

/// Fields of records that are copied unchanged to the fixed part of rows of another format.
///
/// ```
/// use crossdock_format::convert::Moves;
/// use crossdock_format::{Format, Record, RecordBuilder, Value};
///
/// let from = Format::parse_schema("carrier char[2]\nflight u16\ndelay f32 null")?;
/// let to = Format::parse_schema("delay f32 null\nflight u16")?;
/// let moves = Moves::new(&from, &to, [(2, 0), (1, 1)]);
/// let mut builder = RecordBuilder::new(&from);
/// builder.set(0, Value::Text(b"UA"))?;
/// builder.set_u64(1, 1545)?;
/// let record = builder.finish()?;
/// // A row begins with its length, and is zero elsewhere.
/// let mut blank = vec![0; to.fixed_bytes()];
/// blank[..4].copy_from_slice(&(to.fixed_bytes() as u32).to_le_bytes());
/// let (mut row, mut rows) = (blank.clone(), blank.repeat(2));
/// moves.run(record, &mut row);
/// moves.run_all(&[record, record], &mut rows);
/// let made = Record::check(&to, &row)?;
/// assert_eq!((made.get(0), made.get(1)), (Value::Null, Value::Uint(1545)));
/// assert_eq!(rows, row.repeat(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Moves {
    steps: Box<[Step]>,
    /// Length of a row's fixed part in bytes.
    row_bytes: usize,
}

impl Moves {
    /// Those of fields that one load reads ([`Field::is_plain`](crate::Field::is_plain)), given by their indices in `from` and
    /// `to`, and that are of the same type and size there. A field that may be null is one in `to` too.
    #[must_use]
    pub fn new(from: &Format, to: &Format, fields: impl IntoIterator<Item = (usize, usize)>) -> Moves {
        let (mut stretches, mut bits) = (Vec::new(), Vec::new());
        for (source, target) in fields {
            let (Some(field), Some(place)) = (from.fields().get(source), to.fields().get(target)) else { continue };
            debug_assert_eq!((field.ty, field.size), (place.ty, place.size), "it is copied as it is");
            stretches.push(Stretch { from: field.offset, to: place.offset, bytes: field.size.min(place.size) });
            let null = (NullBit::of(from, source), NullBit::of(to, target));
            bits.extend((null.0.mask != 0 && null.1.mask != 0).then_some(null));
        }
        let steps = of_stretches(stretches).into_iter().chain(of_bits(bits)).collect();
        let steps = words::gather(steps, from.fixed_bytes(), to.fixed_bytes());
        Moves { steps: steps.into(), row_bytes: to.fixed_bytes() }
    }

    /// Moves the fields of one record to its row, which is zero where they go.
    #[inline]
    pub fn run(&self, record: &[u8], row: &mut [u8]) {
        for step in &self.steps {
            step.run_move(One { record, row, refused: &mut false });
        }
    }

    /// Moves the fields of many records to their rows, which lie one behind the other and are zero where they go. With few records
    /// and rows at a time they stay in the nearest cache.
    pub fn run_all(&self, records: &[&[u8]], rows: &mut [u8]) {
        for step in &self.steps {
            let rows = rows.chunks_exact_mut(self.row_bytes.max(1));
            step.run_move(Many { records: records.iter().copied(), rows, flaws: &mut [] });
        }
    }

    /// Reads through what is moved by, so that it is near when the first record comes.
    pub fn warm(&self) {
        self.run(&[], &mut []);
    }
}

/// Stretches that are side by side in both records become one, and are cut into moves.
pub(super) fn of_stretches(mut stretches: Vec<Stretch>) -> Vec<Step> {
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

/// Null bits that go from one byte to one byte by the same turn go together.
pub(super) fn of_bits(bits: Vec<(NullBit, NullBit)>) -> Vec<Step> {
    let mut moves: Vec<(u32, u32, u8, u8)> = Vec::new();
    for (from, to) in bits {
        let turn = (to.mask.trailing_zeros() + 8 - from.mask.trailing_zeros()) as u8 % 8;
        match moves.iter_mut().find(|known| (known.0, known.1, known.3) == (from.byte, to.byte, turn)) {
            Some(known) => known.2 |= from.mask,
            None => moves.push((from.byte, to.byte, from.mask, turn)),
        }
    }
    let step = |(from, to, mask, turn)| Step { op: Op::Bits { mask, turn }, from, to, null: NullBit::default() };
    moves.into_iter().map(step).collect()
}
