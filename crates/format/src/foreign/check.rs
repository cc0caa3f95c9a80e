//! How long a foreign record is, whether all that it refers to lies in it, and whether its times are any.

use super::piece::{At, Flaw, MAX_PIECES, Piece, PieceLen, Spot, Starts, UNKNOWN, walk_to};
use super::place::fits;
use super::write::Put;
use super::{Access, Length, Number, Read, Tests, any_null, is_time, slot_of};
use crate::check::{ElementPath, RecordError, RecordProblem};
use crate::element::Element;
use crate::format::{Extent, Format, Layout};

/// The properties of a foreign layout beside those of every layout.
#[derive(Debug)]
pub(crate) struct ForeignLayout {
    pub(crate) rule: LengthRule,
    /// By field; `None` for those that are read by one load.
    pub(crate) access: Box<[Option<std::sync::Arc<Access>>]>,
    /// By field: how it is written.
    pub(crate) puts: Box<[Put]>,
    /// Whether some fields describe others, or share their bytes: what is written has to be looked at again.
    pub(crate) has_ties: bool,
    /// The natural layout of the same fields, in which records are made that are then written in this one; `None` for
    /// elements.
    pub(crate) natural_format: Option<Format>,
    /// The tests that make each nested record null that may be, by itself or as a variant.
    pub(crate) groups: Box<[Tests]>,
    pub(crate) variants: Box<[Variant]>,
    /// The tests that make each union null with the records that it lies in.
    pub(crate) unions: Box<[Tests]>,
    /// The parts without a constant length.
    pub(crate) pieces: Box<[Piece]>,
    /// Behind pieces that every record has, where the last field ends.
    pub(crate) tails: Box<[Spot]>,
    /// Whether there is more to check than the length.
    pub(crate) needs_walk: bool,
    /// How long records are, in the words of the notation.
    pub(crate) rule_text: String,
    /// The fields, each with all that is to be said of it.
    pub(crate) body: String,
}

/// A variant of a union.
#[derive(Debug)]
pub(crate) struct Variant {
    pub(crate) union: usize,
    pub(crate) tests: Tests,
    /// Where it ends, in bytes from the start of the record.
    pub(crate) end: u32,
    /// The same, for what lies in it behind pieces.
    pub(crate) tails: Box<[Spot]>,
}

/// How to see where a record ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LengthRule {
    /// All are as long.
    Fixed(u32),
    /// Field `of` says so, and so much is added to what it says.
    Field { of: usize, load: Number, add: i64 },
    /// It is as long as its variants, and its fields of variable length, need.
    Variant,
}

impl ForeignLayout {
    /// Whether a field says how long the record is, or a record in it, or how many elements a list has.
    pub(crate) fn determines_size(&self, field: usize) -> bool {
        let counts = |put: &Put| matches!(put.read, Read::Here { count: Length::Field { of, .. }, .. } if of == field);
        let blocks = |piece: &Piece| matches!(piece.len, PieceLen::Block { of, .. } if of == field);
        matches!(self.rule, LengthRule::Field { of, .. } if of == field)
            || self.puts.iter().any(counts)
            || self.pieces.iter().any(blocks)
    }

    /// The length of the record that `bytes` start with; `None` if it is unknown, or more than `bytes` has.
    pub(crate) fn record_len(&self, fixed: usize, bytes: &[u8]) -> Option<usize> {
        match self.extent(fixed, bytes) {
            Extent::Whole(len) => Some(len),
            _ => None,
        }
    }

    /// Where the record ends that `bytes` start with; more may come.
    pub(crate) fn extent(&self, fixed: usize, bytes: &[u8]) -> Extent {
        let len = match self.rule {
            LengthRule::Fixed(len) => Ok(len as usize),
            LengthRule::Field { load, add, .. } => {
                let place = At::of(bytes, 0, &self.pieces);
                let stated = load.read(&place).map(|_| usize::try_from(load.value(&place) + i128::from(add)));
                stated.and_then(|len| len.map_err(|_| Flaw::Unreadable))
            }
            LengthRule::Variant => self.needed(fixed, bytes).map_err(|(flaw, _)| flaw),
        };
        match len {
            Ok(0) => Extent::Unknown,
            Ok(len) if len > bytes.len() => Extent::Short { at_least: len },
            Ok(len) => Extent::Whole(len),
            Err(Flaw::Short { at_least }) => Extent::Short { at_least },
            Err(_) => Extent::Unknown,
        }
    }

    /// Where the last thing ends that is in the record: fields, what has no constant length, the variants that are there.
    ///
    /// # Errors
    /// That it is not in `bytes`, or that it cannot be found, with the piece that has no end.
    pub(super) fn needed(&self, fixed: usize, bytes: &[u8]) -> Result<usize, (Flaw, Option<&Piece>)> {
        let has_room = |end: usize| match end <= bytes.len() {
            true => Ok(end),
            false => Err((Flaw::Short { at_least: end }, None)),
        };
        let mut end = has_room(fixed)?;
        let mut starts = [UNKNOWN; MAX_PIECES + 1];
        starts[0] = 0;
        let tail = |spot: &Spot, starts: &mut Starts| {
            let start = walk_to(bytes, &self.pieces, spot.anchor, starts)?;
            has_room(start.saturating_add(spot.offset as usize))
        };
        for spot in &self.tails {
            end = end.max(tail(spot, &mut starts)?);
        }
        // Unions come before those that lie in their variants, so what describes a variant was found to be there.
        for (index, within) in self.unions.iter().enumerate() {
            let place = At { bytes, base: 0, pieces: &self.pieces, starts: &starts };
            if any_null(within, &place) {
                continue;
            }
            let mut variants = self.variants.iter().filter(|variant| variant.union == index);
            let Some(there) = variants.find(|variant| !any_null(&variant.tests, &place)) else {
                // Where the length is known otherwise, no variant need be.
                if self.rule == LengthRule::Variant {
                    return Err((Flaw::NoVariant, None));
                }
                continue;
            };
            end = end.max(has_room(there.end as usize)?);
            for spot in &there.tails {
                end = end.max(tail(spot, &mut starts)?);
            }
        }
        Ok(end)
    }

    /// The first record of `bytes`, if it is sound.
    pub(crate) fn check<'a>(&self, layout: &Layout, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let fixed = layout.blank.len();
        let record = bytes.get(..self.record_len(fixed, bytes)?)?;
        if record.len() < fixed || !self.has_room(fixed, record) {
            return None;
        }
        (!self.needs_walk || Walk::of(record, self).part(layout, 0).is_ok()).then_some(record)
    }

    /// Whether all that is there lies in the record.
    fn has_room(&self, fixed: usize, record: &[u8]) -> bool {
        match self.rule {
            // Its length is what they need.
            LengthRule::Variant => true,
            // A field with a constant place lies in it.
            LengthRule::Fixed(_) if self.pieces.is_empty() => true,
            _ => self.needed(fixed, record).is_ok(),
        }
    }

    /// Why [`ForeignLayout::check`] refused these bytes, which are those from `at` on.
    #[cold]
    pub(crate) fn error(&self, layout: &Layout, at: usize, bytes: &[u8]) -> RecordError {
        let fixed = layout.blank.len();
        let refuse = |problem| RecordError { at, path: ElementPath::default(), problem };
        let len = self.record_len(fixed, bytes).filter(|len| *len >= fixed);
        let found = len.and_then(|len| bytes.get(..len));
        // Of a record whose length is what its fields need, these say why it has none.
        let whole = if self.rule == LengthRule::Variant { Some(bytes) } else { found };
        match whole.map(|record| (record, self.needed(fixed, record))) {
            Some((record, Err((flaw, Some(piece))))) => return refuse(self.piece_problem(piece, flaw, record)),
            Some((record, Err((Flaw::Short { .. }, None)))) => {
                if let Some(problem) = self.cut_field(layout, record) {
                    return refuse(problem);
                }
            }
            _ => {}
        }
        let Some(record) = found.filter(|record| self.has_room(fixed, record)) else {
            let stated = match self.rule {
                LengthRule::Fixed(len) => Some(len),
                LengthRule::Field { load, .. } => u32::try_from(load.raw(&At::of(bytes, 0, &self.pieces))).ok(),
                LengthRule::Variant => None,
            };
            return refuse(RecordProblem::ForeignLength { stated, available: bytes.len(), fixed });
        };
        let mut walk = Walk::of(record, self);
        let problem = match walk.part(layout, 0) {
            Err(problem) => problem,
            Ok(()) => RecordProblem::SharedBytes { claimed: walk.claimed, available: record.len() },
        };
        RecordError { at, path: walk.path, problem }
    }

    /// The first field behind a piece that the record's end cuts off.
    fn cut_field(&self, layout: &Layout, record: &[u8]) -> Option<RecordProblem> {
        let place = At::of(record, 0, &self.pieces);
        self.access.iter().zip(&self.puts).enumerate().find_map(|(field, (access, put))| {
            let access = access.as_ref().filter(|_| put.anchor != 0)?;
            let size = layout.cells.get(field)?.offset + put.size;
            let end = place.spot(Spot { anchor: put.anchor, offset: size });
            let is_cut = end > record.len() && !any_null(&access.tests, &place);
            let start = end.saturating_sub(put.size as usize);
            is_cut.then_some(RecordProblem::NoEnd { field, start, available: record.len() })
        })
    }

    fn piece_problem(&self, piece: &Piece, flaw: Flaw, record: &[u8]) -> RecordProblem {
        let (field, available) = (piece.field, record.len());
        match flaw {
            Flaw::Block { found, least } => RecordProblem::Block { field, found, least },
            _ => {
                let start = At::of(record, 0, &self.pieces).spot(piece.start);
                RecordProblem::NoEnd { field, start, available }
            }
        }
    }
}

/// A walk over all that a record refers to, and its times. No two slots may share bytes, so it takes no more steps than there are.
struct Walk<'a> {
    record: &'a [u8],
    /// Where the record's anchors are; elements have none.
    pieces: &'a [Piece],
    starts: Starts,
    claimed: u64,
    path: ElementPath,
}

impl<'a> Walk<'a> {
    fn of(record: &'a [u8], foreign: &'a ForeignLayout) -> Self {
        let mut starts = [UNKNOWN; MAX_PIECES + 1];
        starts[0] = 0;
        Self { record, pieces: &foreign.pieces, starts, claimed: 0, path: ElementPath::default() }
    }

    /// Finds the place that a field counts from.
    fn find(&mut self, anchor: u8) -> bool {
        anchor == 0 || walk_to(self.record, self.pieces, anchor, &mut self.starts).is_ok()
    }

    fn part(&mut self, layout: &Layout, base: usize) -> Result<(), RecordProblem> {
        let Some(foreign) = &layout.foreign else { return Ok(()) };
        for (field, access) in foreign.access.iter().enumerate() {
            let Some(access) = access else { continue };
            let anchor = foreign.puts.get(field).map_or(0, |put| put.anchor);
            if anchor != 0 && any_null(&access.tests, &self.at(base)) {
                continue;
            }
            if !self.find(anchor) {
                return Err(RecordProblem::NoEnd { field, start: base, available: self.record.len() });
            }
            self.field(layout, field, access, base)?;
        }
        Ok(())
    }

    /// A part of the record, with the anchors that were found.
    fn at(&self, base: usize) -> At<'_> {
        At { bytes: self.record, base, pieces: self.pieces, starts: &self.starts }
    }

    fn field(&mut self, layout: &Layout, field: usize, access: &Access, base: usize) -> Result<(), RecordProblem> {
        let place = self.at(base);
        let (start, len, stride) = match &access.read {
            Read::Number { load, unit } if *unit > 1 || load.form.is_varint() => {
                let found = load.value(&place);
                let is_there = !any_null(&access.tests, &place);
                if load.form.is_varint() && is_there && (load.read(&place).is_err() || !fits(*load, found)) {
                    return Err(RecordProblem::Varint { field, found: load.raw(&place), bits: load.bits });
                }
                if !is_time(found, *unit) && *unit > 1 && is_there {
                    return Err(RecordProblem::Timestamp { field, found: found as i64, unit_ns: *unit });
                }
                return Ok(());
            }
            Read::Slot { start, len, base: from } => {
                let (start, len) = slot_of(start, len, *from, &place);
                (start, len, layout.element(field).map_or(1, |element| element.stride))
            }
            Read::Here { at, head, count, stride } => {
                let start = place.spot(*at);
                let start = start.saturating_add(head.len(&place, start).unwrap_or(0)) as u64;
                (start, count.value(&place), stride.value(&place))
            }
            _ => return Ok(()),
        };
        if any_null(&access.tests, &place) {
            return Ok(());
        }
        let bytes = len.saturating_mul(stride.into());
        if start.saturating_add(bytes) > self.record.len() as u64 {
            let (start, len) = (start.min(u32::MAX.into()) as u32, len.min(u32::MAX.into()) as u32);
            return Err(RecordProblem::Slot { field, start, len });
        }
        // Elements of a fixed number lie in what was claimed before: the record, or the element that they are in.
        let is_own = !matches!(access.read, Read::Here { count: Length::Fixed(_), .. });
        self.claimed += if is_own { bytes } else { 0 };
        if self.claimed > self.record.len() as u64 {
            return Err(RecordProblem::SharedBytes { claimed: self.claimed, available: self.record.len() });
        }
        match layout.element(field) {
            Some(element) => self.elements(field, element, start as usize, len as usize, stride as usize),
            None => Ok(()),
        }
    }

    fn elements(
        &mut self,
        field: usize,
        element: &Element,
        start: usize,
        count: usize,
        stride: usize,
    ) -> Result<(), RecordProblem> {
        let layout = element.format.layout();
        if !layout.foreign.as_ref().is_some_and(|foreign| foreign.needs_walk) {
            return Ok(());
        }
        for index in 0..count {
            self.path.push(field, index);
            self.part(layout, start + index * stride)?;
            self.path.pop();
        }
        Ok(())
    }
}
