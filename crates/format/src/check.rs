//! Whether bytes are a record: structural, and done once, where bytes come in.
//!
//! The checked parts: the length, the slots of `string` and `bytes` fields and of lists, at any depth, that no two of them
//! share bytes, `bool` bytes, and that a union has one variant. It does not look into text: UTF-8 is promised by those who write, and whoever
//! shows text to people handles what is not. Nor are numbers of enumerations looked at: unknown ones are let through.

use std::fmt;

use crate::element::{Count, Element};
use crate::field::FieldType;
use crate::format::{Format, Layout, RECORD_ALIGN};
use crate::record::{Record, load, record_len, slot};

impl Layout {
    /// The first record of `bytes`, if it is sound. Flaws are gathered without a branch each; [`Layout::error`] finds
    /// out later which it was.
    #[inline]
    pub(crate) fn check<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        if let Some(foreign) = &self.foreign {
            return foreign.check(self, bytes);
        }
        let record = bytes.get(..record_len(bytes)?)?;
        let fixed = self.blank.len();
        if record.len() < fixed {
            return None;
        }
        if self.is_deep {
            return Walk::of(record, fixed).part(self, 0).is_ok().then_some(record);
        }
        self.has_sound_slots(record, record.len()).then_some(record)
    }

    /// Whether a record of `len` bytes is sound, as far as its first bytes show: all of a layout without lists, or whose lists have
    /// elements that need no look or lie in these bytes.
    pub(crate) fn is_sound_by_front(&self, front: &[u8], len: usize) -> bool {
        let fixed = self.blank.len();
        let stated = front.first_chunk().map(|word| u32::from_le_bytes(*word) as usize);
        let has_length = stated == Some(len) && len >= front.len() && len.is_multiple_of(RECORD_ALIGN);
        if self.foreign.is_some() || !has_length || front.len() < fixed {
            return false;
        }
        if self.is_deep {
            return Walk { len, ..Walk::of(front, fixed) }.part(self, 0).is_ok();
        }
        self.has_sound_slots(front, len)
    }

    /// Whether the slots and `bool` bytes of a record of `len` bytes are sound, in a layout without lists. They lie in its fixed
    /// part, so its first bytes are enough.
    #[inline]
    fn has_sound_slots(&self, record: &[u8], len: usize) -> bool {
        let (end, fixed_end) = (len as u64, self.blank.len() as u64);
        // Negative where something is wrong. All terms are below 2^33 (and at most 4096 of them are added up), so the
        // difference of two has its top bit set exactly if the second is the greater.
        let mut flaws = 0;
        let mut variable_bytes = 0;
        for at in &self.slots {
            let (start, len) = slot(record, *at as usize);
            // It ends beyond the record; or it starts before the variable part, and is not empty.
            flaws |= end.wrapping_sub(start + len) | (start.wrapping_sub(fixed_end) & len.wrapping_neg());
            variable_bytes += len;
        }
        // Slots that share bytes would let a short record become a long one wherever its fields are copied.
        flaws |= (end - fixed_end).wrapping_sub(variable_bytes);
        for at in &self.bools {
            flaws |= 1_u64.wrapping_sub(load::<1>(record, *at as usize)[0].into());
        }
        flaws >> 63 == 0
    }

    /// Why [`Layout::check`] refused these bytes, which are those from `at` on.
    #[cold]
    pub(crate) fn error(&self, at: usize, bytes: &[u8]) -> RecordError {
        if let Some(foreign) = &self.foreign {
            return foreign.error(self, at, bytes);
        }
        let fixed = self.blank.len();
        let record = match record_len(bytes).and_then(|len| bytes.get(..len)) {
            Some(record) if record.len() >= fixed => record,
            _ => {
                let stated = bytes.first_chunk().map(|word| u32::from_le_bytes(*word));
                let problem = RecordProblem::Length { stated, available: bytes.len(), fixed };
                return RecordError { at, path: ElementPath::default(), problem };
            }
        };
        let mut walk = Walk::of(record, fixed);
        let problem = match walk.part(self, 0) {
            Err(problem) => problem,
            // It is the sum that is wrong.
            Ok(()) => RecordProblem::SharedBytes { claimed: walk.claimed, available: record.len() - fixed },
        };
        RecordError { at, path: walk.path, problem }
    }
}

/// A walk over all that a record holds, at any depth. As no two slots may share bytes, it takes no more steps than the
/// record has bytes, but for those of one list that is too long.
struct Walk<'a> {
    /// The record, or its first bytes.
    record: &'a [u8],
    /// Its length in bytes.
    len: usize,
    fixed: usize,
    /// Bytes that slots have claimed so far.
    claimed: u64,
    path: ElementPath,
}

impl<'a> Walk<'a> {
    fn of(record: &'a [u8], fixed: usize) -> Self {
        Self { record, len: record.len(), fixed, claimed: 0, path: ElementPath::default() }
    }

    /// The record, or the element that starts at `base`.
    fn part(&mut self, layout: &Layout, base: usize) -> Result<(), RecordProblem> {
        for (field, cell) in layout.cells.iter().enumerate() {
            let at = base + cell.offset as usize;
            match cell.ty {
                FieldType::String | FieldType::Bytes => {
                    self.claim(field, at, 1)?;
                }
                FieldType::Bool => {
                    let [found] = load(self.record, at);
                    if found > 1 {
                        return Err(RecordProblem::Bool { field, found });
                    }
                }
                FieldType::List => {
                    let is_null = load::<1>(self.record, base + cell.null_byte as usize)[0] & cell.null_mask != 0;
                    if let Some(element) = layout.element(field) {
                        self.list(field, element, at, is_null)?;
                    }
                }
                _ => {}
            }
        }
        for union in &layout.unions {
            let found = union.variants.iter().filter(|bit| !bit.is_set(self.record, base)).count();
            let within = layout.groups.get(usize::from(union.group).wrapping_sub(1));
            let may_be_none = union.nullable || within.is_some_and(|group| group.null.is_set(self.record, base));
            if found > 1 || (found == 0 && !may_be_none) {
                return Err(RecordProblem::Union { field: union.first, found });
            }
        }
        Ok(())
    }

    /// Start and number of what a slot speaks of, once it is known to lie in the variable part.
    fn claim(&mut self, field: usize, at: usize, stride: u64) -> Result<(usize, usize), RecordProblem> {
        let (start, len) = slot(self.record, at);
        let bytes = len * stride;
        if start + bytes > self.len as u64 || (start < self.fixed as u64 && bytes > 0) {
            return Err(RecordProblem::Slot { field, start: start as u32, len: len as u32 });
        }
        self.claimed += bytes;
        let available = self.len - self.fixed;
        if self.claimed > available as u64 {
            return Err(RecordProblem::SharedBytes { claimed: self.claimed, available });
        }
        Ok((start as usize, len as usize))
    }

    fn list(&mut self, field: usize, element: &Element, at: usize, is_null: bool) -> Result<(), RecordProblem> {
        let layout = element.format.layout();
        let (start, count) = match element.count {
            // Bytes under a null are not looked at.
            Count::Fixed(_) if is_null => return Ok(()),
            Count::Fixed(count) => (at, count as usize),
            Count::Slot => self.claim(field, at, element.stride.into())?,
        };
        if is_null || (!layout.is_deep && layout.slots.is_empty() && layout.bools.is_empty()) {
            return Ok(());
        }
        if count > 0 && start + count * element.stride as usize > self.record.len() {
            // Of the first bytes of a record, which do not show that.
            return Err(RecordProblem::Slot { field, start: start as u32, len: count as u32 });
        }
        for index in 0..count {
            self.path.push(field, index);
            self.part(layout, start + index * element.stride as usize)?;
            self.path.pop();
        }
        Ok(())
    }
}

impl<'a> Record<'a> {
    /// Checks the record that `bytes` start with; what follows it is left alone.
    ///
    /// # Errors
    /// The length, a slot, a `bool` or a union is wrong.
    #[inline]
    pub fn check(format: &'a Format, bytes: &'a [u8]) -> Result<Record<'a>, RecordError> {
        let layout = format.layout();
        match layout.check(bytes) {
            Some(record) => Ok(Record::assume_checked(format, record)),
            None => Err(layout.error(0, bytes)),
        }
    }
}

impl Format {
    /// Whether a record of `len` bytes that begins with `front` is known to be sound. Its fixed part shows that, and the elements of its
    /// lists where they have slots, `bool` bytes or unions; false where the rest of the record is needed to say so, or it is wrong:
    /// then [`Format::check_records`] says which.
    #[must_use]
    pub fn is_sound_by_front(&self, front: &[u8], len: usize) -> bool {
        self.layout().is_sound_by_front(front, len)
    }

    /// Walks the payload of a packet: records back to back, each checked, then shown to `visit` with its start in the
    /// payload and its length in bytes. Returns how many there were.
    ///
    /// # Errors
    /// The first record that is wrong, after those before it were visited; what follows it is not looked at.
    #[inline]
    pub fn check_records(&self, payload: &[u8], mut visit: impl FnMut(u32, u32)) -> Result<usize, RecordError> {
        let layout = self.layout();
        if payload.len() > u32::MAX as usize {
            let problem = RecordProblem::PayloadTooLong { found: payload.len() };
            return Err(RecordError { at: 0, path: ElementPath::default(), problem });
        }
        let mut rest = payload;
        let mut records = 0;
        while !rest.is_empty() {
            let at = payload.len() - rest.len();
            let Some(record) = layout.check(rest) else {
                return Err(layout.error(at, rest));
            };
            visit(at as u32, record.len() as u32);
            rest = rest.get(record.len()..).unwrap_or_default();
            records += 1;
        }
        Ok(records)
    }
}

/// Why bytes are no record of a format. Small and without allocation: it is counted by reason where packets come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordError {
    /// Where the record starts, in bytes from the start of what was checked.
    pub at: usize,
    /// The element of a list in which it is wrong; empty for a field of the record itself.
    pub path: ElementPath,
    /// The problem.
    pub problem: RecordProblem,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record at byte {}: {}{}", self.at, self.path, self.problem)
    }
}

impl std::error::Error for RecordError {}

impl RecordError {
    /// The path of the field that is wrong, with the names of `format`, such as `legs[2].stops`; `None` where it is not
    /// one field that is wrong.
    #[must_use]
    pub fn field_path(&self, format: &Format) -> Option<String> {
        let last = self.problem.field()?;
        let is_whole = usize::from(self.path.len) <= MOST_STEPS;
        let mut path = String::new();
        let mut format = format.clone();
        for (field, index) in self.path.steps() {
            let of = format.fields().get(field)?;
            path.push_str(&format!("{}{}[{index}]", if path.is_empty() { "" } else { "." }, of.name));
            let element = of.element()?.clone();
            if !element.is_record {
                // A single value: its list's name says it all.
                match element.format.fields().first()?.element() {
                    Some(_) => {}
                    None => return Some(path),
                }
            }
            format = element.format.clone();
        }
        let name = if is_whole { &format.fields().get(last)?.name } else { "…" };
        path.push_str(&format!("{}{name}", if path.is_empty() { "" } else { "." }));
        Some(path)
    }
}

/// The way to an element of a list: for each list on it, the index of its field and that of the element. Of
/// a way through more than four lists, the first four.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ElementPath {
    steps: [(u16, u32); MOST_STEPS],
    len: u8,
}

/// Steps that a path shows: enough to find the place, few enough that an error stays small.
const MOST_STEPS: usize = 4;

impl ElementPath {
    pub(crate) fn push(&mut self, field: usize, index: usize) {
        if let Some(step) = self.steps.get_mut(usize::from(self.len)) {
            // Fields are at most 4096; elements, no more than a record has bytes.
            *step = (field as u16, index as u32);
        }
        self.len += 1;
    }

    pub(crate) fn pop(&mut self) {
        self.len = self.len.saturating_sub(1);
    }

    /// Indices of fields and of elements, from the record on.
    pub fn steps(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let steps = self.steps.iter().take(self.len.into());
        steps.map(|(field, index)| (usize::from(*field), *index as usize))
    }
}

impl fmt::Display for ElementPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps().try_for_each(|(field, index)| write!(f, "field {}, element {}, ", field + 1, index + 1))
    }
}

/// The problems of a record's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordProblem {
    /// The first word is no length that this record can have.
    #[error(
        "its length is {}, expected a multiple of 8 from {fixed} to {available}",
        stated.map_or("cut off".to_owned(), |bytes| bytes.to_string())
    )]
    Length {
        /// The length as stated, in bytes; `None` if there are not even four bytes.
        stated: Option<u32>,
        /// Bytes that there are.
        available: usize,
        /// Bytes of the format's fixed part.
        fixed: usize,
    },
    /// A record of a foreign layout is cut off, or its length is unknown.
    #[error(
        "its length is {}, expected {fixed} to {available}, and room for its variants",
        stated.map_or("unknown".to_owned(), |bytes| bytes.to_string())
    )]
    ForeignLength {
        /// The length as the layout or a field has it, in bytes, without what is added to a field; `None` if no variant
        /// says.
        stated: Option<u32>,
        /// Bytes that there are.
        available: usize,
        /// The least that a record takes.
        fixed: usize,
    },
    /// A `string`, `bytes` or list field lies outside of the variable part.
    #[error("field {}: its {len} bytes or elements from {start} on are not in the variable part", field + 1)]
    Slot {
        /// Index of the field.
        field: usize,
        /// Stated start, in bytes from the start of the record.
        start: u32,
        /// Stated length in bytes; of a list, in elements.
        len: u32,
    },
    /// The `string` and `bytes` fields claim more bytes than the variable part has, so some share theirs.
    #[error("its fields claim {claimed} bytes of a variable part of {available}")]
    SharedBytes {
        /// Bytes that the fields claim together.
        claimed: u64,
        /// Bytes of the variable part.
        available: usize,
    },
    /// A `bool` byte is neither 0 nor 1.
    #[error("field {}: a bool byte is {found}, expected 0 or 1", field + 1)]
    Bool {
        /// Index of the field.
        field: usize,
        /// The byte.
        found: u8,
    },
    /// A time of a foreign layout that 64 bits of nanoseconds do not hold.
    #[error("field {}: {found} times {unit_ns} ns is no timestamp: they go from the year 1677 to 2262", field + 1)]
    Timestamp {
        /// Index of the field.
        field: usize,
        /// The number in the field.
        found: i64,
        /// The unit, in nanoseconds.
        unit_ns: i64,
    },
    /// A part that has no constant length does not end within the record of a foreign layout.
    #[error("field {}: it starts at byte {start}, and has no end within the record's {available} bytes", field + 1)]
    NoEnd {
        /// Index of the field; of a record, its first one.
        field: usize,
        /// Where it starts, in bytes from the start of the record.
        start: usize,
        /// The record's bytes.
        available: usize,
    },
    /// A number in a foreign layout's record takes more bits than its type has.
    #[error("field {}: its number is beyond {bits} bits (found {found}, as it stands there)", field + 1)]
    Varint {
        /// Index of the field.
        field: usize,
        /// The number, with the sign where `zigzag` puts it.
        found: u64,
        /// Bits of the field's type.
        bits: u8,
    },
    /// A group's elements, or a record with a length, have fewer bytes than their fields.
    #[error("field {}: blocks of {found} bytes, expected at least {least}, which its fields take", field + 1)]
    Block {
        /// Index of the field; of a record, its first one.
        field: usize,
        /// The length as stated, in bytes.
        found: u64,
        /// Bytes of the fields.
        least: u32,
    },
    /// A union has more than one variant, or none.
    #[error("field {}: its union has {found} variants, expected 1", field + 1)]
    Union {
        /// Index of the first field of the union.
        field: usize,
        /// How many variants it has.
        found: usize,
    },
    /// More payload than offsets of 32 bits can express.
    #[error("a payload of {found} bytes, expected at most 4294967295")]
    PayloadTooLong {
        /// Its length in bytes.
        found: usize,
    },
}

impl RecordProblem {
    /// The problem's kind in a word or two: the name of its counter.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Length { .. } | Self::ForeignLength { .. } => "record_length",
            Self::Slot { .. } => "record_slot",
            Self::SharedBytes { .. } => "record_shared_bytes",
            Self::Bool { .. } => "record_bool",
            Self::Timestamp { .. } => "record_timestamp",
            Self::NoEnd { .. } => "record_no_end",
            Self::Varint { .. } => "record_varint",
            Self::Block { .. } => "record_block",
            Self::Union { .. } => "record_union",
            Self::PayloadTooLong { .. } => "payload_too_long",
        }
    }

    /// Index of the field that is wrong, in the innermost element.
    #[must_use]
    pub const fn field(&self) -> Option<usize> {
        match self {
            Self::Slot { field, .. }
            | Self::Bool { field, .. }
            | Self::Timestamp { field, .. }
            | Self::NoEnd { field, .. }
            | Self::Varint { field, .. }
            | Self::Block { field, .. }
            | Self::Union { field, .. } => Some(*field),
            _ => None,
        }
    }
}
