//! From where each field comes to steps.

use super::path::{Path, Source};
use super::step::{Load, NullBit, Op, Range, Step};
use super::value::{NullRule, store};
use crate::field::{Field, FieldType};
use crate::format::{Format, LENGTH_BYTES};

/// Most records of a chunk.
pub(super) const CHUNK_RECORDS: usize = 128;
/// About how many bytes a chunk's records and rows have together: they are gone over once a step, so they are to stay in
/// the nearest cache, which has 32 KiB or more.
const CHUNK_BYTES: usize = 24 << 10;

/// A field of the variable part.
#[derive(Clone, Debug)]
pub(super) struct Variable {
    pub(super) text: Text,
    /// Place of its slot.
    pub(super) to: u32,
    pub(super) to_null: NullBit,
}

/// Where the bytes of a variable field come from.
#[derive(Clone, Debug)]
pub(super) enum Text {
    /// Behind the slot at this place, as they are.
    Slot { from: u32, null: NullBit },
    /// They are always these.
    Constant(Box<[u8]>),
    /// Whatever the path gives.
    Path(Box<Path>),
}

/// A plan's steps.
#[derive(Clone, Debug)]
pub(super) struct Code {
    /// The fixed part of a new record before anything is in it: constants, the null bits of what is always null, and its
    /// length where that is always the same.
    pub(super) blank: Box<[u8]>,
    /// The same as often as a chunk has rows, where all are of one length.
    pub(super) blanks: Box<[u8]>,
    /// Records of a chunk.
    pub(super) chunk_records: usize,
    pub(super) steps: Box<[Step]>,
    pub(super) variable: Box<[Variable]>,
    /// Whether some record may be refused.
    pub(super) may_refuse: bool,
    /// Whether a record of the source's format is one of the target's as it stands.
    pub(super) is_identity: bool,
}

/// A stretch of bytes that is copied as it is.
#[derive(Clone, Copy)]
struct Stretch {
    from: u32,
    to: u32,
    bytes: u32,
}

struct Compiler<'a> {
    from: &'a Format,
    blank: Vec<u8>,
    stretches: Vec<Stretch>,
    steps: Vec<Step>,
    /// Null bits that are copied: byte and mask of either side.
    bits: Vec<(NullBit, NullBit)>,
    variable: Vec<Variable>,
}

/// The steps for fields that come from `sources`, and for paths that are only followed for what they refuse.
pub(super) fn compile(from: &Format, to: &Format, sources: &[Source], checks: &[Path]) -> Code {
    let mut compiler = Compiler {
        from,
        blank: vec![0; to.fixed_bytes()],
        stretches: Vec::new(),
        steps: Vec::new(),
        bits: Vec::new(),
        variable: Vec::new(),
    };
    for (field, source) in to.fields().iter().zip(sources) {
        compiler.field(field, source);
    }
    for path in checks {
        // A place beyond every row: nothing is stored.
        compiler.value(path, u32::MAX, NullBit::default());
    }
    compiler.add_bits();
    compiler.add_moves();
    if compiler.variable.is_empty() {
        let length = compiler.blank.len() as u32;
        compiler.blank[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    }
    let chunk_records = CHUNK_BYTES / (from.fixed_bytes() + to.fixed_bytes());
    let chunk_records = chunk_records.clamp(1, CHUNK_RECORDS);
    let blanks = if compiler.variable.is_empty() { compiler.blank.repeat(chunk_records) } else { Vec::new() };
    let paths = sources.iter().filter_map(|source| match source {
        Source::Field(path) => Some(path),
        Source::Null | Source::Constant(_) => None,
    });
    Code {
        blank: compiler.blank.into(),
        blanks: blanks.into(),
        chunk_records,
        steps: compiler.steps.into(),
        variable: compiler.variable.into(),
        may_refuse: paths.chain(checks).any(Path::may_refuse),
        is_identity: checks.is_empty() && is_identity(from, to, sources),
    }
}

/// Whether both formats lay the same values at the same places, whatever they call them.
fn is_identity(from: &Format, to: &Format, sources: &[Source]) -> bool {
    let same = |(index, (source, to)): (usize, (&Source, &Field))| match source {
        Source::Field(path) if path.from == index && path.hops.is_empty() => {
            let from = &from.fields()[index];
            (from.offset, from.null_bit) == (to.offset, to.null_bit)
        }
        _ => false,
    };
    from.fields().len() == to.fields().len()
        && from.fixed_bytes() == to.fixed_bytes()
        && sources.iter().zip(to.fields()).enumerate().all(same)
}

pub(super) fn null_bit(field: &Field) -> NullBit {
    field.null_bit.map_or_else(NullBit::default, |bit| NullBit {
        byte: LENGTH_BYTES as u32 + u32::from(bit) / 8,
        mask: 1 << (bit % 8),
    })
}

impl Compiler<'_> {
    fn field(&mut self, field: &Field, source: &Source) {
        let to_null = null_bit(field);
        match source {
            Source::Null => self.blank[to_null.byte as usize] |= to_null.mask,
            Source::Constant(constant) if field.ty.is_variable() => {
                let bytes = match constant.value() {
                    crate::Value::Text(bytes) | crate::Value::Bytes(bytes) => bytes,
                    _ => &[],
                };
                let text = Text::Constant(bytes.into());
                self.variable.push(Variable { text, to: field.offset, to_null });
            }
            Source::Constant(constant) => store(&mut self.blank, field.offset as usize, field.ty, constant.value()),
            Source::Field(path) if field.ty.is_variable() => {
                let as_it_is = path.ty.is_variable() && !path.may_refuse() && path.null == NullRule::Keep;
                let source = &self.from.fields()[path.from];
                let text = match as_it_is {
                    true => Text::Slot { from: source.offset, null: null_bit(source) },
                    false => Text::Path(Box::new(path.clone())),
                };
                self.variable.push(Variable { text, to: field.offset, to_null });
            }
            Source::Field(path) => self.fixed(field, path, to_null),
        }
    }

    fn fixed(&mut self, field: &Field, path: &Path, to_null: NullBit) {
        let source = &self.from.fields()[path.from];
        let null = null_bit(source);
        let step = |op| Step { op, from: source.offset, to: field.offset, null };
        let ops = match &path.null {
            NullRule::Default(_) if path.nullable => None,
            _ => self.ops(path, source),
        };
        let Some((stretch, op)) = ops else {
            return self.value(path, field.offset, to_null);
        };
        if stretch > 0 {
            self.stretches.push(Stretch { from: source.offset, to: field.offset, bytes: stretch });
        }
        if let Some((op, load_at)) = op {
            self.steps.push(Step { from: load_at, ..step(op) });
        }
        match path.null {
            _ if !path.nullable => {}
            NullRule::Refuse => self.steps.push(step(Op::RefuseNull)),
            _ => self.bits.push((null, to_null)),
        }
    }

    /// The stretch that is copied, and the step with the place that it reads; `None` if a path is none of the kinds that
    /// have steps of their own.
    fn ops(&self, path: &Path, source: &Field) -> Option<(u32, Option<(Op, u32)>)> {
        use FieldType as T;
        let at = source.offset;
        Some(match (path.ty, path.to, &path.hops[..]) {
            (_, _, []) => (source.size, None),
            (T::Char(from), T::Char(to), [_]) if from <= to => (from.into(), None),
            (T::Char(from), T::Char(to), [_]) => {
                (to.into(), Some((Op::RefuseText((from - to).into()), at + u32::from(to))))
            }
            (T::F32, T::F64, [_]) => (0, Some((Op::Widen, at))),
            (T::F64, T::F32, [_]) => (0, Some((Op::Narrow, at))),
            (from, T::Timestamp, [(_, unit)]) if from.is_integer() => {
                let (load, word) = self.load(source);
                (0, Some((Op::Times { load, factor: unit.nanoseconds() }, word)))
            }
            (from, T::F64, [_]) if from.is_integer() => {
                let (load, word) = self.load(source);
                (0, Some((Op::IntegerToF64(load), word)))
            }
            (from, _, hops) => {
                // All bounds on the way at once.
                let start = from.integer_range()?;
                let (least, greatest) = hops.iter().try_fold(start, |(least, greatest), (ty, _)| {
                    let (low, high) = ty.integer_range()?;
                    Some((low.max(least), high.min(greatest)))
                })?;
                let check = ((least, greatest) != start)
                    .then_some(Range { low: least as i64, span: (greatest - least) as u64 });
                let (load, word) = self.load(source);
                (0, Some((Op::Integer { load, bytes: path.to.size() as u8, check }, word)))
            }
        })
    }

    /// How an integer field is loaded as part of eight bytes that all lie in the fixed part.
    fn load(&self, field: &Field) -> (Load, u32) {
        let word = field.offset.min(self.from.fixed_bytes() as u32 - 8);
        let below = 8 * (field.offset - word);
        let bits = 8 * field.size;
        let signed = field.ty.integer_range().is_some_and(|(least, _)| least < 0);
        (Load { up: (64 - bits - below) as u8, down: (64 - bits) as u8, signed }, word)
    }

    fn value(&mut self, path: &Path, to: u32, to_null: NullBit) {
        let op = Op::Value { path: Box::new(path.clone()), to_null };
        self.steps.push(Step { op, from: 0, to, null: NullBit::default() });
    }

    /// Null bits that go from one byte to one byte by the same turn go together.
    fn add_bits(&mut self) {
        let mut moves: Vec<(u32, u32, u8, u8)> = Vec::new();
        for (from, to) in std::mem::take(&mut self.bits) {
            let turn = (to.mask.trailing_zeros() + 8 - from.mask.trailing_zeros()) as u8 % 8;
            match moves.iter_mut().find(|known| (known.0, known.1, known.3) == (from.byte, to.byte, turn)) {
                Some(known) => known.2 |= from.mask,
                None => moves.push((from.byte, to.byte, from.mask, turn)),
            }
        }
        let steps = moves.into_iter().map(|(from, to, mask, turn)| Step {
            op: Op::Bits { mask, turn },
            from,
            to,
            null: NullBit::default(),
        });
        self.steps.extend(steps);
    }

    /// Stretches that are side by side in both records become one, and are cut into moves.
    fn add_moves(&mut self) {
        self.stretches.sort_unstable_by_key(|stretch| stretch.to);
        let mut whole: Vec<Stretch> = Vec::new();
        for next in std::mem::take(&mut self.stretches) {
            match whole.last_mut() {
                Some(last) if (last.from + last.bytes, last.to + last.bytes) == (next.from, next.to) => {
                    last.bytes += next.bytes;
                }
                _ => whole.push(next),
            }
        }
        let mut moves = Vec::new();
        for stretch in whole {
            if let Some(part) = self.part(stretch) {
                moves.push(part);
                continue;
            }
            cut(stretch, |stretch| {
                let Stretch { from, to, bytes } = stretch;
                moves.push(Step { op: Op::Move(bytes), from, to, null: NullBit::default() });
            });
        }
        self.steps.splice(0..0, moves);
    }
}

impl Compiler<'_> {
    /// One step for a stretch of a length that no load has: as part of eight bytes that lie in both fixed parts. What
    /// else they hold in the row is left as it is, and where the stretch goes are zeros.
    fn part(&self, stretch: Stretch) -> Option<Step> {
        let Stretch { from, to, bytes } = stretch;
        if !matches!(bytes, 3 | 5..=7) {
            return None;
        }
        let last = |fixed: usize| fixed as u32 - 8;
        // So far the stretch starts behind the eight bytes.
        let back = from.saturating_sub(last(self.from.fixed_bytes())).max(to.saturating_sub(last(self.blank.len())));
        if back > from.min(to) || back + bytes > 8 {
            return None;
        }
        let mask = (u64::MAX >> (64 - 8 * bytes)) << (8 * back);
        Some(Step { op: Op::Part(mask), from: from - back, to: to - back, null: NullBit::default() })
    }
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
