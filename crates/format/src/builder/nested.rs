//! Lists and nested records, as a builder writes them.

use std::fmt::Write as _;

use super::{Place, RecordBuilder, ValueError, ValueProblem};
use crate::MAX_RECORD_BYTES;
use crate::element::{Count, Group, Member};
use crate::field::FieldType;
use crate::format::{Bit, Format, RECORD_ALIGN};
use crate::record::{Value, slot};

/// A list that is being written. Elements are gathered in a buffer of their own, since what they refer to goes behind the
/// record while more of them come.
#[derive(Clone, Debug)]
pub(super) struct Level {
    /// The elements so far.
    pub(super) bytes: Vec<u8>,
    /// The format of an element; while one is open, that of the record which the list is in.
    format: Format,
    /// As in the builder: of an element, or of the record which the list is in.
    missing: Vec<u64>,
    is_record: bool,
    stride: u32,
    count: Count,
    /// The list's field.
    field: usize,
    /// Where the record that the list is in starts.
    base: usize,
    len: u32,
}

impl RecordBuilder {
    /// Begins a list, which replaces what the field held. In a list of lists, field 0 is the next element.
    ///
    /// # Errors
    /// The field is no list, or there is none; a list is open that waits for a record.
    pub fn begin_list(&mut self, field: usize) -> Result<(), ValueError> {
        let is_implied = self.depth > self.target;
        if is_implied {
            if self.levels[self.depth - 1].is_record {
                return Err(self.refuse(field, ValueProblem::Open));
            }
            self.open_element()?;
        }
        let outcome = self.open_list(field);
        if outcome.is_err() && is_implied {
            self.drop_element();
        }
        outcome
    }

    /// Puts a value at the end of the open list, whose elements are single values.
    ///
    /// # Errors
    /// As [`RecordBuilder::set`]; no list of such elements is open; the list's count is fixed and reached.
    #[inline]
    pub fn push(&mut self, value: Value<'_>) -> Result<(), ValueError> {
        if self.depth == self.target || self.levels[self.depth - 1].is_record {
            return Err(self.refuse(0, ValueProblem::NotOpen));
        }
        self.open_element()?;
        match self.set(0, value) {
            Ok(()) => {
                self.end_value();
                Ok(())
            }
            Err(error) => {
                self.drop_element();
                Err(error)
            }
        }
    }

    /// Begins the next value of the open list, which is then field 0; for decoders whose values come in parts.
    #[inline]
    pub(crate) fn begin_value(&mut self) -> Result<(), ValueError> {
        if self.depth == self.target || self.levels[self.depth - 1].is_record {
            return Err(self.refuse(0, ValueProblem::NotOpen));
        }
        self.open_element()
    }

    /// Ends the value that [`RecordBuilder::begin_value`] began, which was set. One that is itself a list may have ended
    /// with that ([`RecordBuilder::end_list`]).
    #[inline]
    pub(crate) fn end_value(&mut self) {
        if self.target == self.depth && self.is_in_value() {
            self.close_element();
        }
    }

    /// Whether what is open is a single value of a list.
    pub(crate) fn is_in_value(&self) -> bool {
        self.target > 0 && !self.levels[self.target - 1].is_record
    }

    /// Begins the next record of the open list.
    ///
    /// # Errors
    /// No list of records is open; the list's count is fixed and reached; the record would be too long.
    #[inline]
    pub fn begin_element(&mut self) -> Result<(), ValueError> {
        if self.depth == self.target || !self.levels[self.depth - 1].is_record {
            return Err(self.refuse(0, ValueProblem::NotOpen));
        }
        self.open_element()
    }

    /// Ends the record that [`RecordBuilder::begin_element`] began.
    ///
    /// # Errors
    /// A field that is not nullable was not set; none is open, or a list in it is.
    #[inline]
    pub fn end_element(&mut self) -> Result<(), ValueError> {
        if self.depth != self.target || self.depth == 0 || !self.levels[self.depth - 1].is_record {
            return Err(self.refuse(0, ValueProblem::NotOpen));
        }
        self.check_complete()?;
        self.close_element();
        Ok(())
    }

    /// Ends the open list.
    ///
    /// # Errors
    /// None is open, or an element in it is; its count is fixed, and another; the record would be too long.
    pub fn end_list(&mut self) -> Result<(), ValueError> {
        if self.depth == self.target {
            return Err(self.refuse(0, ValueProblem::NotOpen));
        }
        let Level { field, len, count, .. } = self.levels[self.depth - 1];
        let place = self.place(field)?;
        let at = self.at(place);
        let bytes = std::mem::take(&mut self.levels[self.depth - 1].bytes);
        let outcome = match count {
            Count::Fixed(expected) if expected != len => {
                Err(self.refuse(field, ValueProblem::ListCount { found: len, expected }))
            }
            Count::Fixed(_) => {
                if let Some(elements) = self.buffer().get_mut(at..at + bytes.len()) {
                    elements.copy_from_slice(&bytes);
                }
                self.mark(place);
                Ok(())
            }
            Count::Slot => self.append(field, &bytes).map(|start| self.put_list_slot(place, start, len)),
        };
        self.levels[self.depth - 1].bytes = bytes;
        outcome?;
        self.depth -= 1;
        if self.target > 0 && self.target == self.depth && !self.levels[self.depth - 1].is_record {
            self.close_element();
        }
        Ok(())
    }

    /// Makes a nested record or union null, with all that is in it. `group` is of the innermost open record's format.
    ///
    /// # Errors
    /// It may not be null.
    pub fn set_group_null(&mut self, group: &Group) -> Result<(), ValueError> {
        if !group.nullable {
            return Err(self.refuse(group.leaves.start, ValueProblem::NotNullable));
        }
        for field in group.leaves.clone() {
            let place = self.place(field)?;
            self.forget(place);
            self.set_bit(place.cell.null_byte, place.cell.null_mask);
        }
        self.set_group_bits(group);
        let required = &self.format.layout().required;
        for field in group.leaves.clone() {
            if let (Some(missing), Some(required)) = (self.missing.get_mut(field / 64), required.get(field / 64)) {
                *missing |= required & (1 << (field % 64));
            }
        }
        Ok(())
    }

    fn set_group_bits(&mut self, group: &Group) {
        let null = group.optional.and_then(|optional| self.format.layout().groups.get(optional)).map(|cell| cell.null);
        if let Some(Bit { byte, mask }) = null {
            self.set_bit(byte, mask);
        }
        for member in &group.members {
            if let Member::Group(inner) = member {
                self.set_group_bits(inner);
            }
        }
    }

    /// Makes a nested record be there, though nothing in it may have a value. Setting a field in it does the same.
    pub fn set_group_present(&mut self, group: &Group) {
        if let Some(optional) = group.optional {
            self.mark_groups(optional as u16 + 1);
        }
    }

    /// Clears the null bits of this nested record (one more than its index) and of those that it lies in.
    pub(super) fn mark_groups(&mut self, group: u16) {
        let mut next = group;
        while let Some((null, outer)) =
            self.format.layout().groups.get(usize::from(next).wrapping_sub(1)).map(|group| (group.null, group.group))
        {
            let at = self.base + null.byte as usize;
            if let Some(byte) = self.buffer().get_mut(at) {
                *byte &= !null.mask;
            }
            next = outer;
        }
    }

    #[inline]
    pub(super) fn set_bit(&mut self, byte: u32, mask: u8) {
        let at = self.base + byte as usize;
        if let Some(byte) = self.buffer().get_mut(at) {
            *byte |= mask;
        }
    }

    /// Puts zeros where a value is.
    #[inline]
    pub(super) fn forget(&mut self, place: Place) {
        let at = self.at(place);
        let mut size = place.ty().size();
        if place.ty().is_variable() {
            self.has_dead |= slot(self.buffer(), at).1 > 0;
        } else if place.ty() == FieldType::List {
            size = self.format.fields().get(place.index()).map_or(0, |field| field.size as usize);
            self.has_dead = true;
        }
        if let Some(value) = self.buffer().get_mut(at..at + size) {
            value.fill(0);
        }
    }

    /// Checks that all is set that must be.
    #[inline]
    pub(super) fn check_complete(&mut self) -> Result<(), ValueError> {
        if self.missing.iter().any(|word| *word != 0) {
            self.check_missing()?;
        }
        if !self.format.layout().unions.is_empty() {
            self.check_unions()?;
        }
        Ok(())
    }

    /// A field that misses its value is fine where the nested record that it lies in is null.
    fn check_missing(&mut self) -> Result<(), ValueError> {
        for word in 0..self.missing.len() {
            let mut bits = self.missing[word];
            while bits != 0 {
                let field = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let cell = self.place(field)?.cell;
                let (null, base) = (Bit { byte: cell.null_byte, mask: cell.null_mask }, self.base);
                if !null.is_set(self.buffer(), base) && !self.take_default(field) {
                    return Err(self.refuse(field, ValueProblem::NotSet));
                }
            }
        }
        Ok(())
    }

    fn check_unions(&mut self) -> Result<(), ValueError> {
        let (format, base) = (self.format.clone(), self.base);
        let layout = format.layout();
        for union in &layout.unions {
            let found = union.variants.iter().filter(|bit| !bit.is_set(self.buffer(), base)).count();
            let within = layout.groups.get(usize::from(union.group).wrapping_sub(1));
            let may_be_none = union.nullable || within.is_some_and(|group| group.null.is_set(self.buffer(), base));
            if found > 1 || (found == 0 && !may_be_none) {
                return Err(self.refuse(union.first, ValueProblem::Variants { found }));
            }
        }
        Ok(())
    }

    fn open_list(&mut self, field: usize) -> Result<(), ValueError> {
        let place = self.place(field)?;
        let Some(element) = self.format.layout().element(field) else {
            return Err(self.wrong_type(field, "list"));
        };
        let (format, is_record) = (element.format.clone(), element.is_record);
        let (stride, count, base) = (element.stride, element.count, self.base);
        let at = self.at(place);
        if place.ty() == FieldType::List && (count != Count::Slot || slot(self.buffer(), at).1 > 0) {
            // Taken out when the record is finished.
            self.has_dead = true;
        }
        if self.levels.len() == self.depth {
            let (bytes, missing) = (Vec::new(), Vec::new());
            let len = 0;
            self.levels.push(Level { bytes, format, missing, is_record, stride, count, field, base, len });
        } else {
            let level = &mut self.levels[self.depth];
            level.bytes.clear();
            (level.format, level.is_record, level.stride, level.count) = (format, is_record, stride, count);
            (level.field, level.base, level.len) = (field, base, 0);
        }
        self.depth += 1;
        Ok(())
    }

    fn open_element(&mut self) -> Result<(), ValueError> {
        let level = &mut self.levels[self.depth - 1];
        let start = level.bytes.len();
        let found = self.bytes.len() + start + level.stride as usize;
        if found > MAX_RECORD_BYTES - RECORD_ALIGN {
            let field = level.field;
            return Err(self.refuse(field, ValueProblem::RecordTooLong { found }));
        }
        if level.count == Count::Fixed(level.len) {
            let (field, expected) = (level.field, level.len);
            return Err(self.refuse(field, ValueProblem::ListCount { found: expected + 1, expected }));
        }
        let layout = level.format.layout();
        level.bytes.extend_from_slice(&layout.blank);
        level.missing.clear();
        level.missing.extend_from_slice(&layout.required);
        std::mem::swap(&mut self.format, &mut level.format);
        std::mem::swap(&mut self.missing, &mut level.missing);
        self.base = start;
        self.target = self.depth;
        Ok(())
    }

    /// The open element is whole.
    fn close_element(&mut self) {
        let level = &mut self.levels[self.target - 1];
        level.len += 1;
        std::mem::swap(&mut self.format, &mut level.format);
        std::mem::swap(&mut self.missing, &mut level.missing);
        self.base = level.base;
        self.target -= 1;
    }

    /// The open element is given up.
    fn drop_element(&mut self) {
        let start = self.base;
        self.close_element();
        let level = &mut self.levels[self.target];
        level.bytes.truncate(start);
        level.len -= 1;
        self.has_dead = true;
    }

    /// Gives up all that is open.
    pub(super) fn close_all(&mut self) {
        while self.target > 0 {
            self.close_element();
        }
        self.depth = 0;
    }

    /// Puts bytes behind the record, where elements may start.
    pub(super) fn append(&mut self, field: usize, bytes: &[u8]) -> Result<usize, ValueError> {
        let start = self.bytes.len().next_multiple_of(RECORD_ALIGN);
        let found = start + bytes.len();
        if found > MAX_RECORD_BYTES - RECORD_ALIGN {
            return Err(self.refuse(field, ValueProblem::RecordTooLong { found }));
        }
        self.bytes.resize(start, 0);
        self.bytes.extend_from_slice(bytes);
        Ok(start)
    }

    pub(super) fn put_list_slot(&mut self, place: Place, start: usize, len: u32) {
        // Where nothing is, nothing is said of a place.
        let start = if len == 0 { 0 } else { start as u64 };
        self.put(place, (start | u64::from(len) << 32).to_le_bytes());
    }

    /// The lists and elements that the innermost open record is in; `None` for the record itself.
    pub(crate) fn path(&self) -> Option<Box<str>> {
        let mut path = String::new();
        let mut is_named = true;
        for level in self.levels.iter().take(self.target) {
            // While an element is open, the level has the format of the record around the list.
            let name = level.format.fields().get(level.field).map_or("", |field| &field.name);
            let dot = if path.is_empty() { "" } else { "." };
            let _ = match is_named {
                true => write!(path, "{dot}{name}[{}]", level.len),
                false => write!(path, "[{}]", level.len),
            };
            is_named = level.is_record;
        }
        (self.target > 0).then(|| path.into())
    }
}
