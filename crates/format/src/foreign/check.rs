//! How long a foreign record is, whether all that it refers to lies in it, and whether its times are any.

use super::write::Put;
use super::{Access, Length, Number, Read, Tests, any_null, is_time, slot_of};
use crate::check::{ElementPath, RecordError, RecordProblem};
use crate::element::Element;
use crate::format::{Extent, Format, Layout};

/// What a foreign layout has beside what every layout has.
#[derive(Debug)]
pub(crate) struct ForeignLayout {
    pub(crate) rule: LengthRule,
    /// By field; `None` for those that are read by one load.
    pub(crate) access: Box<[Option<std::sync::Arc<Access>>]>,
    /// By field: how it is written.
    pub(crate) puts: Box<[Put]>,
    /// Whether some fields tell of others, or share their bytes: what is written has to be looked at again.
    pub(crate) has_ties: bool,
    /// The natural layout of the same fields, in which records are made that are then written in this one; `None` for
    /// elements.
    pub(crate) natural_format: Option<Format>,
    /// What makes each nested record null that may be, by itself or as a variant.
    pub(crate) groups: Box<[Tests]>,
    pub(crate) variants: Box<[Variant]>,
    /// What makes each union null with the records that it lies in.
    pub(crate) unions: Box<[Tests]>,
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
}

/// How to see where a record ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LengthRule {
    /// All are as long.
    Fixed(u32),
    /// Field `of` says so, and so much is added to what it says.
    Field { of: usize, load: Number, add: i64 },
    /// It is as long as its variants need.
    Variant,
}

impl ForeignLayout {
    /// Whether a field says how long the record is, or how many elements a list has.
    pub(crate) fn determines_size(&self, field: usize) -> bool {
        let counts = |put: &Put| matches!(put.read, Read::Here { count: Length::Field { of, .. }, .. } if of == field);
        matches!(self.rule, LengthRule::Field { of, .. } if of == field) || self.puts.iter().any(counts)
    }

    /// The length of the record that `bytes` start with; `None` if it is unknown, or more than `bytes` has.
    pub(crate) fn record_len(&self, fixed: usize, bytes: &[u8]) -> Option<usize> {
        match self.extent(fixed, bytes) {
            Extent::Whole(len) => Some(len),
            _ => None,
        }
    }

    /// Where the record ends that `bytes` start with, of which more may come.
    pub(crate) fn extent(&self, fixed: usize, bytes: &[u8]) -> Extent {
        let short = |at_least| Extent::Short { at_least };
        let len = match self.rule {
            LengthRule::Fixed(len) => Some(len as usize),
            LengthRule::Field { load, add, .. } => {
                let end = load.offset as usize + usize::from(load.bytes);
                if bytes.len() < end {
                    return short(end);
                }
                usize::try_from(load.value(bytes, 0) + i128::from(add)).ok()
            }
            LengthRule::Variant if bytes.len() < fixed => return short(fixed),
            // The field that tells of one variant may lie in another, which may not have come yet.
            LengthRule::Variant => match self.variants_end(fixed, bytes) {
                None if self.variants.iter().any(|variant| variant.end as usize > bytes.len()) => {
                    return short(bytes.len() + 1);
                }
                end => end,
            },
        };
        match len {
            None | Some(0) => Extent::Unknown,
            Some(len) if len > bytes.len() => short(len),
            Some(len) => Extent::Whole(len),
        }
    }

    /// Where the last variant that is there ends; `None` if a union has none.
    pub(super) fn variants_end(&self, fixed: usize, bytes: &[u8]) -> Option<usize> {
        let mut end = fixed;
        for (index, within) in self.unions.iter().enumerate() {
            if any_null(within, bytes, 0) {
                continue;
            }
            let mut variants = self.variants.iter().filter(|variant| variant.union == index);
            let there = variants.find(|variant| !any_null(&variant.tests, bytes, 0))?;
            end = end.max(there.end as usize);
        }
        Some(end)
    }

    /// The first record of `bytes`, if it is sound.
    pub(crate) fn check<'a>(&self, layout: &Layout, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let fixed = layout.blank.len();
        let record = bytes.get(..self.record_len(fixed, bytes)?)?;
        if record.len() < fixed || !self.has_room(record) {
            return None;
        }
        (!self.needs_walk || Walk::of(record).part(layout, 0).is_ok()).then_some(record)
    }

    /// Whether the variants that are there lie in the record.
    fn has_room(&self, record: &[u8]) -> bool {
        let fits = |end: u32| end as usize <= record.len();
        // Those that lie in another variant are behind it, and are there only if it is.
        self.variants.iter().all(|variant| fits(variant.end) || any_null(&variant.tests, record, 0))
    }

    /// Why [`ForeignLayout::check`] refused these bytes, which are those from `at` on.
    #[cold]
    pub(crate) fn error(&self, layout: &Layout, at: usize, bytes: &[u8]) -> RecordError {
        let fixed = layout.blank.len();
        let len = self.record_len(fixed, bytes).filter(|len| *len >= fixed);
        let record = len.and_then(|len| bytes.get(..len)).filter(|record| self.has_room(record));
        let Some(record) = record else {
            let stated = match self.rule {
                LengthRule::Fixed(len) => Some(len),
                LengthRule::Field { load, .. } => u32::try_from(load.raw(bytes, 0)).ok(),
                LengthRule::Variant => None,
            };
            let problem = RecordProblem::ForeignLength { stated, available: bytes.len(), fixed };
            return RecordError { at, path: ElementPath::default(), problem };
        };
        let mut walk = Walk::of(record);
        let problem = match walk.part(layout, 0) {
            Err(problem) => problem,
            Ok(()) => RecordProblem::SharedBytes { claimed: walk.claimed, available: record.len() },
        };
        RecordError { at, path: walk.path, problem }
    }
}

/// A walk over all that a record refers to, and its times. No two slots may share bytes, so it takes no more steps than there are.
struct Walk<'a> {
    record: &'a [u8],
    claimed: u64,
    path: ElementPath,
}

impl<'a> Walk<'a> {
    fn of(record: &'a [u8]) -> Self {
        Self { record, claimed: 0, path: ElementPath::default() }
    }

    fn part(&mut self, layout: &Layout, base: usize) -> Result<(), RecordProblem> {
        let Some(foreign) = &layout.foreign else { return Ok(()) };
        for (field, access) in foreign.access.iter().enumerate() {
            let Some(access) = access else { continue };
            let (start, len) = match &access.read {
                Read::Number { load, unit } => {
                    let found = load.value(self.record, base);
                    if !is_time(found, *unit) && *unit > 1 && !any_null(&access.tests, self.record, base) {
                        let found = found as i64;
                        return Err(RecordProblem::Timestamp { field, found, unit_ns: *unit });
                    }
                    continue;
                }
                Read::Slot { start, len, base: from } => slot_of(start, len, *from, self.record, base),
                Read::Here { offset, count: Length::Fixed(count) } => {
                    (base as u64 + u64::from(*offset), u64::from(*count))
                }
                Read::Here { offset, count: Length::Field { load, .. } } => {
                    (base as u64 + u64::from(*offset), load.raw(self.record, base))
                }
                _ => continue,
            };
            if any_null(&access.tests, self.record, base) {
                continue;
            }
            let element = layout.element(field);
            let stride = element.map_or(1, |element| u64::from(element.stride));
            let bytes = len.saturating_mul(stride);
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
            if let Some(element) = element {
                self.elements(field, element, start as usize, len as usize)?;
            }
        }
        Ok(())
    }

    fn elements(&mut self, field: usize, element: &Element, start: usize, count: usize) -> Result<(), RecordProblem> {
        let layout = element.format.layout();
        if !layout.foreign.as_ref().is_some_and(|foreign| foreign.needs_walk) {
            return Ok(());
        }
        for index in 0..count {
            self.path.push(field, index);
            self.part(layout, start + index * element.stride as usize)?;
            self.path.pop();
        }
        Ok(())
    }
}
