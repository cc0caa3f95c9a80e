//! From where each field comes to steps.

mod same;

use super::body::{Body, ListPath, Presence};
use super::decimal;
use super::moves::{self, Stretch};
use super::path::{Path, Source};
use super::step::{Load, NullBit, Op, Range, Step, UnionBits};
use super::value::{Constant, Hop, NullRule, number_range, put, store};
use super::words;
use crate::element::Count;
use crate::field::{Field, FieldType};
use crate::format::Format;

/// Most records of a chunk.
pub(super) const CHUNK_RECORDS: usize = 128;
/// About how many bytes a chunk's records and rows have together: they are gone over once a step, so they are to stay in
/// the nearest cache, which has 32 KiB or more.
const CHUNK_BYTES: usize = 24 << 10;

/// A field of the variable part, or a list.
#[derive(Clone, Debug)]
pub(super) struct Variable {
    pub(super) content: Content,
    /// Place of its slot, or of a list's elements.
    pub(super) to: u32,
    pub(super) to_null: NullBit,
    /// The bit of the row that says whether the nested record which it lies in is null.
    pub(super) within: NullBit,
    /// Most bytes that the record may have once this is in it.
    pub(super) most: usize,
}

/// Where the bytes of a variable field come from.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// Behind the slot at this place, unchanged.
    Slot { from: u32, null: NullBit },
    /// They are always these.
    Constant(Box<[u8]>),
    /// Whatever the path gives.
    Path(Box<Path>),
    /// The elements of a list.
    List(Box<ListCode>),
}

/// The code that makes a list of another.
#[derive(Clone, Debug)]
pub(super) struct ListCode {
    /// Index of the source's field.
    pub(super) from: usize,
    pub(super) null: NullRule,
    /// How many elements the target has.
    pub(super) count: Count,
    /// The layout of the source's elements.
    pub(super) element: Format,
    /// The code that makes one of them.
    pub(super) code: Code,
    /// Whether the elements are the same bytes on both sides, with nothing elsewhere.
    pub(super) is_copied: bool,
    /// Whether a blank element is all zeros, as most are.
    pub(super) is_zero: bool,
}

/// The steps of a plan, or of what makes the elements of a list.
#[derive(Clone, Debug)]
pub(super) struct Code {
    /// The fixed part of a new record before anything is in it: constants, the null bits of what is always null, and its
    /// length where that is always the same.
    pub(super) blank: Box<[u8]>,
    /// The same as often as a chunk has rows, where nothing is behind them.
    pub(super) blanks: Box<[u8]>,
    /// Records of a chunk.
    pub(super) chunk_records: usize,
    /// The steps that say which nested records are there, where the variable part asks: it comes before that.
    pub(super) heads: Box<[Step]>,
    pub(super) variable: Box<[Variable]>,
    pub(super) steps: Box<[Step]>,
    /// Whether some record may be refused.
    pub(super) may_refuse: bool,
    /// Whether a record of the source's format is one of the target's as it stands.
    pub(super) is_identity: bool,
}

struct Compiler<'a> {
    body: &'a Body,
    blank: Vec<u8>,
    stretches: Vec<Stretch>,
    heads: Vec<Step>,
    steps: Vec<Step>,
    /// Null bits that are copied: byte and mask of either side.
    bits: Vec<(NullBit, NullBit)>,
    variable: Vec<Variable>,
    most: usize,
}

/// The steps for fields that come from the body's sources, and for paths that are only followed for what they refuse. No
/// record becomes longer than `most` bytes.
pub(super) fn compile(body: &Body, is_record: bool, most: usize) -> Code {
    let (from, to) = (&body.from, &body.to);
    let mut compiler = Compiler {
        body,
        blank: vec![0; to.fixed_bytes()],
        stretches: Vec::new(),
        heads: Vec::new(),
        steps: Vec::new(),
        bits: Vec::new(),
        variable: Vec::new(),
        most,
    };
    compiler.groups();
    for (index, source) in body.sources.iter().enumerate() {
        compiler.field(index, source);
    }
    for path in &body.checks {
        // A place beyond every row: nothing is stored.
        let source = Source::Field(path.clone());
        compiler.value(&source, path.to, u32::MAX, (NullBit::default(), NullBit::default()));
    }
    compiler.finish_steps();
    let has_more = !compiler.variable.is_empty();
    if is_record && !has_more {
        let length = compiler.blank.len() as u32;
        put(&mut compiler.blank, 0, length.to_le_bytes());
    }
    if !has_more {
        compiler.steps.splice(0..0, std::mem::take(&mut compiler.heads));
    }
    let chunk_records = CHUNK_BYTES / (from.fixed_bytes() + to.fixed_bytes()).max(1);
    let chunk_records = chunk_records.clamp(1, CHUNK_RECORDS);
    let blanks = if is_record && !has_more { compiler.blank.repeat(chunk_records) } else { Vec::new() };
    // Elements of foreign layouts may be cut off: what they lack counts as zeros, step by step.
    let steps = match is_record || !from.is_foreign() {
        true => words::gather(compiler.steps, from.fixed_bytes(), to.fixed_bytes()),
        false => compiler.steps,
    };
    Code {
        blank: compiler.blank.into(),
        blanks: blanks.into(),
        chunk_records,
        heads: compiler.heads.into(),
        variable: compiler.variable.into(),
        steps: steps.into(),
        may_refuse: body.may_refuse(),
        is_identity: same::is_identity(body),
    }
}

impl Code {
    /// Whether all rows are of one length.
    pub(super) fn is_fixed(&self) -> bool {
        self.variable.iter().all(|field| match &field.content {
            Content::List(list) => list.count != Count::Slot && list.code.is_fixed(),
            _ => false,
        })
    }
}

/// The bit of a nested record that may be null.
fn group_bit(format: &Format, group: Option<usize>) -> NullBit {
    group.and_then(|group| format.layout().groups.get(group)).map_or(NullBit::default(), |cell| cell.null.into())
}

impl Compiler<'_> {
    /// The steps that say which nested records are there, and how many variants unions have. Bits of nested records
    /// come first, an outer one before those in it: what follows looks at them in the row.
    fn groups(&mut self) {
        let (body, layout) = (self.body, self.body.to.layout());
        let mut bits = Vec::new();
        for (group, presence) in body.groups.iter().enumerate() {
            let to = group_bit(&body.to, Some(group));
            let outer = body.nesting.1.out_of(group).nth(1);
            let within = group_bit(&body.to, outer);
            match presence {
                Presence::Never => self.blank[to.byte as usize] |= to.mask,
                Presence::Always if body.is_sure(Some(group)) => {}
                Presence::Group(there) if !body.from.is_foreign() && body.follows_out(outer, Some(*there)) => {
                    bits.push((group_bit(&body.from, Some(*there)), to));
                }
                _ => {
                    let op = Op::Group { there: Box::new(presence.clone()), to_null: to, within };
                    self.heads.push(Step { op, from: 0, to: 0, null: NullBit::default() });
                }
            }
        }
        self.heads.splice(0..0, moves::of_bits(bits));
        for (union, cell) in body.unions.iter().zip(&layout.unions) {
            if !union.may_refuse && union.lost.is_empty() {
                continue;
            }
            let bits = UnionBits {
                variants: cell.variants.iter().map(|bit| NullBit::from(*bit)).collect(),
                nullable: cell.nullable,
                within: group_bit(&body.to, usize::from(cell.group).checked_sub(1)),
                lost: union.lost.clone().into(),
            };
            self.steps.push(Step { op: Op::Union(Box::new(bits)), from: 0, to: 0, null: NullBit::default() });
        }
    }

    fn field(&mut self, index: usize, source: &Source) {
        let body = self.body;
        let Some(field) = body.to.fields().get(index) else { return };
        let group = body.nesting.1.innermost(index);
        let own = body.to.layout().cells.get(index).is_some_and(|cell| !cell.is_shared());
        let to_null = if own { NullBit::of(&body.to, index) } else { NullBit::default() };
        // Where nothing but the source's null says that a nested record is not there, no step has to look.
        let is_guarded = |from: Option<usize>| match from {
            Some(from) => !body.follows(index, from),
            None => !body.is_sure(group),
        };
        let within = |from| if is_guarded(from) { group_bit(&body.to, group) } else { NullBit::default() };
        let to = field.offset;
        match source {
            Source::Null => self.blank[to_null.byte as usize] |= to_null.mask,
            Source::Constant(Constant::NoElements) if within(None).mask == 0 => {}
            Source::Constant(constant) if field.ty.is_variable() || field.ty == FieldType::List => {
                let bytes = match constant.value() {
                    crate::Value::Text(bytes) | crate::Value::Bytes(bytes) => bytes,
                    _ => &[],
                };
                let content = Content::Constant(bytes.into());
                self.variable.push(Variable { content, to, to_null, within: within(None), most: self.most });
            }
            Source::Constant(constant) if within(None).mask == 0 => {
                store(&mut self.blank, to as usize, field.ty, constant.value());
            }
            Source::Constant(_) => self.value(source, field.ty, to, (to_null, within(None))),
            Source::List(list) => self.list(index, list, (to_null, within(Some(list.from)))),
            Source::Field(path) if field.ty.is_variable() => {
                let as_it_is = path.ty.is_variable() && !path.may_refuse() && path.null == NullRule::Keep;
                let content = match body.from.fields().get(path.from) {
                    Some(source) if as_it_is && source.is_plain() => {
                        Content::Slot { from: source.offset, null: NullBit::of(&body.from, path.from) }
                    }
                    _ => Content::Path(Box::new(path.clone())),
                };
                let changes_null = path.nullable && path.null != NullRule::Keep;
                let within = self.guard(index, changes_null, within(Some(path.from)));
                self.variable.push(Variable { content, to, to_null, within, most: self.most });
            }
            Source::Field(path) => {
                let changes_null = path.nullable && path.null != NullRule::Keep;
                let within = self.guard(index, changes_null, within(Some(path.from)));
                self.fixed(field, source, path, (to_null, within));
            }
        }
    }

    /// A step that refuses null, or puts something in its place, looks first whether the nested record is there.
    fn guard(&self, index: usize, is_null_changed: bool, within: NullBit) -> NullBit {
        let group = self.body.nesting.1.innermost(index);
        if is_null_changed { group_bit(&self.body.to, group) } else { within }
    }

    fn list(&mut self, index: usize, list: &ListPath, (to_null, within): (NullBit, NullBit)) {
        let body = self.body;
        let (Some(source), Some(field)) = (body.from.fields().get(list.from), body.to.fields().get(index)) else {
            return;
        };
        let code = compile(&list.body, false, self.most);
        let has_slots = list.body.from.layout().has_slots || list.body.to.layout().has_slots;
        let is_copied = code.is_identity && !has_slots && !body.from.is_foreign();
        let is_in_place = is_copied && list.counts.0 == list.counts.1 && list.counts.0 != Count::Slot;
        if is_in_place && list.null == NullRule::Keep && within.mask == 0 {
            self.stretches.push(Stretch { from: source.offset, to: field.offset, bytes: field.size });
            self.copy_null(list.nullable, NullBit::of(&body.from, list.from), to_null);
            return;
        }
        let within = self.guard(index, list.null != NullRule::Keep, within);
        let element = list.body.from.clone();
        let (null, count) = (list.null.clone(), list.counts.1);
        let is_zero = code.blank.iter().all(|byte| *byte == 0);
        let list = ListCode { from: list.from, null, count, element, code, is_copied, is_zero };
        let content = Content::List(Box::new(list));
        self.variable.push(Variable { content, to: field.offset, to_null, within, most: self.most });
    }

    fn copy_null(&mut self, nullable: bool, null: NullBit, to_null: NullBit) {
        if nullable && to_null.mask != 0 {
            self.bits.push((null, to_null));
        }
    }

    fn fixed(&mut self, field: &Field, source: &Source, path: &Path, (to_null, within): (NullBit, NullBit)) {
        let body = self.body;
        let Some(from) = body.from.fields().get(path.from) else { return };
        let null = NullBit::of(&body.from, path.from);
        let step = |op| Step { op, from: from.offset, to: field.offset, null };
        // Eight bytes are loaded at a time, which a short record of a foreign layout may not have.
        let is_loaded = from.is_plain() && (body.from.fixed_bytes() >= 8 || !body.from.is_foreign());
        let ops = match &path.null {
            _ if !is_loaded || within.mask != 0 => None,
            NullRule::Default(_) if path.nullable => None,
            _ => self.ops(path, from),
        };
        let Some((stretch, op)) = ops else {
            return self.value(source, field.ty, field.offset, (to_null, within));
        };
        if stretch > 0 {
            self.stretches.push(Stretch { from: from.offset, to: field.offset, bytes: stretch });
        }
        if let Some((op, load_at)) = op {
            self.steps.push(Step { from: load_at, ..step(op) });
        }
        match path.null {
            NullRule::Refuse if path.nullable => self.steps.push(step(Op::RefuseNull)),
            _ => self.copy_null(path.nullable, null, to_null),
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
            (from, T::Timestamp, [hop]) if from.is_integer() => {
                let (load, word) = self.load(source);
                (0, Some((Op::Times { load, factor: hop.unit.nanoseconds() }, word)))
            }
            (from, T::Decimal { bytes: 8, .. }, [_]) if decimal::factor(from, path.to).is_some() => {
                let (load, word) = self.load(source);
                (0, Some((Op::Times { load, factor: decimal::factor(from, path.to)? }, word)))
            }
            (T::Enum { .. }, T::Enum { bytes, .. }, [hop]) if !hop.by_number && hop.unknown.is_none() => {
                let (load, word) = self.load(source);
                (0, Some((Op::Renumber { load, bytes, numbers: renumbered(source, hop) }, word)))
            }
            (from, T::F64, [_]) if from.is_integer() => {
                let (load, word) = self.load(source);
                (0, Some((Op::IntegerToF64(load), word)))
            }
            (from, _, hops) => {
                // All bounds on the way at once.
                let start = number_range(from)?;
                let mut at = from;
                let (least, greatest) = hops.iter().try_fold(start, |(least, greatest), hop| {
                    let (low, high) = number_range(hop.to)?;
                    let between = std::mem::replace(&mut at, hop.to);
                    // From one enumeration to another it is the symbol that counts.
                    (between.is_integer() || hop.to.is_integer() || hop.by_number)
                        .then_some((low.max(least), high.min(greatest)))
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
        // An element may be shorter, and then lies in one of these eight bytes itself.
        let word = field.offset.min((self.body.from.fixed_bytes() as u32).saturating_sub(8));
        let below = 8 * (field.offset - word);
        let bits = 8 * field.size;
        let is_decimal = matches!(field.ty, FieldType::Decimal { .. });
        let signed = is_decimal || number_range(field.ty).is_some_and(|(least, _)| least < 0);
        (Load { up: (64 - bits - below) as u8, down: (64 - bits) as u8, signed }, word)
    }

    /// A field made value by value; the null bits are its own, and that of the nested record that it lies in.
    fn value(&mut self, source: &Source, ty: FieldType, to: u32, (to_null, within): (NullBit, NullBit)) {
        let op = Op::Value { source: Box::new(source.clone()), ty, to_null, within };
        self.steps.push(Step { op, from: 0, to, null: NullBit::default() });
    }

    /// Puts the steps into order: what is copied comes first, and unions are looked at once all their variants are there.
    fn finish_steps(&mut self) {
        let is_union = |step: &Step| matches!(step.op, Op::Union(_));
        let (unions, others): (Vec<Step>, _) = std::mem::take(&mut self.steps).into_iter().partition(is_union);
        self.steps = others;
        self.steps.extend(moves::of_bits(std::mem::take(&mut self.bits)));
        let stretches = std::mem::take(&mut self.stretches);
        self.steps.splice(0..0, moves::of_stretches(stretches));
        self.steps.extend(unions);
    }
}

/// The numbers of an enumeration's symbols, which rise, each with the number that the symbol has where it goes; without those
/// that it does not have there.
fn renumbered(source: &Field, hop: &Hop) -> Box<[(i64, i64)]> {
    let Some(symbols) = source.enumeration() else { return Box::default() };
    let mut numbers: Vec<i64> = symbols.symbols().iter().map(|(_, number)| *number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let there = |number: i64| Some((number, hop.symbols.as_ref()?.number(symbols.symbol(number)?)?));
    numbers.into_iter().filter_map(there).collect()
}
