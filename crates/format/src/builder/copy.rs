//! Copies of lists and of whole records, and the values of enumerations and decimals.

use super::{Place, RecordBuilder, ValueError, ValueProblem};
use crate::MAX_RECORD_BYTES;
use crate::element::{Count, Element, Member};
use crate::field::{FieldType, enum_range};
use crate::format::{Layout, RECORD_ALIGN};
use crate::record::{List, Record, Value, slot};

impl RecordBuilder {
    /// Gives a list field the elements of another list. Where both lay their elements out alike these are copied
    /// unchanged; else one by one, which takes elements with the same fields in the same order.
    ///
    /// # Errors
    /// As [`RecordBuilder::set`]; the elements are of other types, or not as many as are fixed. Unless the types are at
    /// fault at once, the record is then of no use: [`RecordBuilder::clear`] it.
    pub fn set_list(&mut self, field: usize, list: List<'_>) -> Result<(), ValueError> {
        let place = self.place(field)?;
        let Some(own) = self.format.layout().element(field) else {
            return Err(self.wrong_type(field, "list"));
        };
        let other = list.element();
        if own.format != other.format || own.is_record != other.is_record {
            return self.set_each(field, list);
        }
        let (count, has_slots) = (own.count, own.format.layout().has_slots);
        let len = list.iter().len();
        match count {
            Count::Fixed(expected) if expected as usize != len => {
                Err(self.refuse(field, ValueProblem::ListCount { found: len as u32, expected }))
            }
            Count::Fixed(_) if !has_slots => {
                let at = self.at(place);
                let bytes = elements(other, list.bytes(), list.at(), len);
                if let Some(own) = self.buffer().get_mut(at..at + bytes.len()) {
                    own.copy_from_slice(bytes);
                }
                self.mark(place);
                Ok(())
            }
            _ => self.set_with_slots(place, count, list),
        }
    }

    /// The elements go behind the record with all that they refer to, and from there into their place if that is fixed.
    fn set_with_slots(&mut self, place: Place, count: Count, list: List<'_>) -> Result<(), ValueError> {
        let at = self.at(place);
        let len = list.iter().len();
        self.has_dead |= count != Count::Slot || slot(self.buffer(), at).1 > 0;
        let before = self.bytes.len();
        let Some(start) = append_list(list.element(), list.bytes(), list.at(), len, &mut self.bytes) else {
            let found = self.bytes.len();
            self.bytes.truncate(before);
            return Err(self.refuse(place.index(), ValueProblem::RecordTooLong { found }));
        };
        if count == Count::Slot {
            self.put_list_slot(place, start, len as u32);
            return Ok(());
        }
        let size = len * list.element().stride as usize;
        for offset in 0..size {
            let byte = self.bytes.get(start + offset).copied().unwrap_or(0);
            if let Some(own) = self.buffer().get_mut(at + offset) {
                *own = byte;
            }
        }
        self.mark(place);
        Ok(())
    }

    fn set_each(&mut self, field: usize, list: List<'_>) -> Result<(), ValueError> {
        let own = self.format.layout().element(field);
        if own.is_none_or(|own| own.is_record != list.element().is_record) {
            return Err(self.wrong_type(field, "list of other elements"));
        }
        self.begin_list(field)?;
        for value in list.iter() {
            match value {
                Value::Record(record) => {
                    self.begin_element()?;
                    self.copy(&record)?;
                    self.end_element()?;
                }
                value => self.push(value)?,
            }
        }
        self.end_list()
    }

    /// Gives every field of the innermost open record the value that the field of the same index has in `record`, whose
    /// fields lie in each other in the same way.
    ///
    /// # Errors
    /// As [`RecordBuilder::set`]; the record has another number of fields.
    pub fn copy(&mut self, record: &Record<'_>) -> Result<(), ValueError> {
        let (own, other) = (self.format.clone(), record.format());
        if own.fields().len() != other.fields().len() {
            let problem = ValueProblem::NoSuchField { fields: own.fields().len() };
            return Err(self.refuse(other.fields().len(), problem));
        }
        self.copy_members(own.tree(), other.tree(), record)
    }

    /// Gives some members of the format's [tree](crate::Format::tree) the values of members of a record, whose types are the
    /// same: each by the index of the member here and the index there.
    ///
    /// # Errors
    /// As [`RecordBuilder::set`].
    pub fn copy_some(&mut self, record: &Record<'_>, members: &[(usize, usize)]) -> Result<(), ValueError> {
        let (own, other) = (self.format.clone(), record.format());
        for (to, from) in members {
            if let (Some(to), Some(from)) = (own.tree().get(*to), other.tree().get(*from)) {
                self.copy_members(std::slice::from_ref(to), std::slice::from_ref(from), record)?;
            }
        }
        Ok(())
    }

    fn copy_members(&mut self, own: &[Member], other: &[Member], record: &Record<'_>) -> Result<(), ValueError> {
        for (own, other) in own.iter().zip(other) {
            match (own, other) {
                (Member::Group(own), Member::Group(other)) if record.group_is_null(other) => {
                    self.set_group_null(own)?;
                }
                (Member::Group(own), Member::Group(other)) => {
                    self.set_group_present(own);
                    self.copy_members(&own.members, &other.members, record)?;
                }
                (Member::Leaf(own), Member::Leaf(other)) => self.set(*own, record.get(*other))?,
                (Member::Leaf(field), _) | (_, Member::Leaf(field)) => {
                    return Err(self.wrong_type(*field, "record"));
                }
            }
        }
        Ok(())
    }

    /// Gives an enumeration its value. A symbol that the field's enumeration has counts for more than the number.
    ///
    /// # Errors
    /// As [`RecordBuilder::set`]; the symbol is unknown; there is none, and the number does not fit.
    pub fn set_enum(&mut self, field: usize, number: i64, symbol: Option<&str>) -> Result<(), ValueError> {
        let place = self.place(field)?;
        if !matches!(place.ty(), FieldType::Enum { .. }) {
            // Where there are no symbols, the text or the number is what is left.
            return match symbol {
                Some(symbol) if place.ty().is_text() => self.set_text(field, symbol),
                _ if place.ty().is_integer() => self.set_i64(field, number),
                _ => Err(self.wrong_type(field, "enum")),
            };
        }
        let own = self.format.layout().enumeration(field);
        match symbol {
            Some(symbol) if own.is_some_and(|own| own.symbol(number) != Some(symbol)) => {
                self.put_symbol(place, symbol.as_bytes())
            }
            _ => self.put_number(place, number),
        }
        .map_err(|problem| self.refuse(field, problem))
    }

    /// Stores the number of a symbol in a field that is an enumeration.
    ///
    /// # Errors
    /// The symbol is unknown.
    pub(crate) fn put_symbol(&mut self, place: Place, symbol: &[u8]) -> Result<(), ValueProblem> {
        let own = self.format.layout().enumeration(place.index());
        match own.and_then(|own| own.number(str::from_utf8(symbol).ok()?)) {
            Some(number) => self.put_number(place, number),
            None => match self.unknown_number(place, symbol) {
                Some(number) => self.put_number(place, number),
                None => Err(ValueProblem::UnknownSymbol),
            },
        }
    }

    /// Stores a number in a field that is an enumeration.
    ///
    /// # Errors
    /// It does not fit.
    pub(crate) fn put_number(&mut self, place: Place, number: i64) -> Result<(), ValueProblem> {
        if let FieldType::Enum { bytes: bytes @ ..8, signed } = place.ty() {
            let (least, most) = enum_range(bytes, signed);
            if !(least..=most).contains(&number.into()) {
                return Err(ValueProblem::EnumRange { found: number, ty: place.ty() });
            }
        }
        self.put_integer(place, number as u64);
        Ok(())
    }

    /// Gives a decimal its value: `unscaled` units of 10 to the power of minus `scale`.
    ///
    /// # Errors
    /// As [`RecordBuilder::set`]; the field does not hold it exactly.
    pub fn set_decimal(&mut self, field: usize, unscaled: i128, scale: u8) -> Result<(), ValueError> {
        let place = self.place(field)?;
        match place.ty() {
            FieldType::Decimal { .. } => {
                self.put_decimal(place, unscaled, scale).map_err(|problem| self.refuse(field, problem))
            }
            _ => Err(self.wrong_type(field, "decimal")),
        }
    }

    /// Stores a decimal, whose scale need not be the field's, in a field of decimals.
    ///
    /// # Errors
    /// The field does not hold it exactly.
    pub(crate) fn put_decimal(&mut self, place: Place, unscaled: i128, scale: u8) -> Result<(), ValueProblem> {
        let FieldType::Decimal { bytes, scale: own } = place.ty() else {
            return Err(ValueProblem::WrongType { found: "decimal", ty: place.ty() });
        };
        let fitted = rescale(unscaled, scale, own).filter(|value| match bytes {
            4 => i32::try_from(*value).is_ok(),
            8 => i64::try_from(*value).is_ok(),
            _ => true,
        });
        match (fitted, bytes) {
            (None, _) => return Err(ValueProblem::DecimalRange { unscaled, scale, ty: place.ty() }),
            (Some(value), 4) => self.put(place, (value as i32).to_le_bytes()),
            (Some(value), 8) => self.put(place, (value as i64).to_le_bytes()),
            (Some(value), _) => self.put(place, value.to_le_bytes()),
        }
        Ok(())
    }

    /// Makes room for a value of `needed` bytes, if there is some.
    #[cold]
    pub(super) fn make_room(&mut self, place: Place, needed: usize) -> Result<(), ValueProblem> {
        if self.depth == 0 && self.has_dead {
            self.compact();
        }
        let at = self.at(place);
        let old = if self.depth == 0 { slot(self.buffer(), at).1 as usize } else { 0 };
        let found = self.bytes.len() - old + needed;
        if found > MAX_RECORD_BYTES - RECORD_ALIGN {
            return Err(ValueProblem::RecordTooLong { found });
        }
        // The value that goes leaves its room only now that the one that comes is known to fit.
        self.forget(place);
        self.compact();
        Ok(())
    }

    /// Leaves out the bytes that no slot speaks of any more.
    #[cold]
    pub(super) fn compact(&mut self) {
        let layout = self.format.layout();
        let fixed = layout.blank.len();
        self.spare.clear();
        self.spare.extend_from_slice(self.bytes.get(..fixed).unwrap_or_default());
        if relocate(layout, &self.bytes, 0, &mut self.spare, 0).is_some() {
            std::mem::swap(&mut self.bytes, &mut self.spare);
        }
        self.has_dead = false;
    }
}

/// The same number at another scale; `None` if digits would be lost.
pub(crate) fn rescale(unscaled: i128, from: u8, to: u8) -> Option<i128> {
    if unscaled == 0 {
        return Some(0);
    }
    if to >= from {
        return 10_i128.checked_pow((to - from).into())?.checked_mul(unscaled);
    }
    let divisor = 10_i128.checked_pow((from - to).into())?;
    (unscaled % divisor == 0).then_some(unscaled / divisor)
}

/// The fixed bytes of a list's elements.
fn elements<'a>(element: &Element, bytes: &'a [u8], at: usize, len: usize) -> &'a [u8] {
    bytes.get(at..).and_then(|rest| rest.get(..len * element.stride as usize)).unwrap_or_default()
}

/// Puts the elements behind `out`, and behind them all that they refer to; gives where they start. `None` if a record
/// would be too long.
fn append_list(element: &Element, source: &[u8], at: usize, len: usize, out: &mut Vec<u8>) -> Option<usize> {
    let bytes = elements(element, source, at, len);
    let start = out.len().next_multiple_of(RECORD_ALIGN);
    if start + bytes.len() > MAX_RECORD_BYTES - RECORD_ALIGN {
        return None;
    }
    out.resize(start, 0);
    out.extend_from_slice(bytes);
    let layout = element.format.layout();
    if layout.has_slots {
        let stride = element.stride as usize;
        for index in 0..bytes.len() / stride.max(1) {
            relocate(layout, source, at + index * stride, out, start + index * stride)?;
        }
    }
    Some(start)
}

/// A record or element lies at `base` of `source`, and its fixed part has been copied to `to` of `out`: copies what its
/// slots speak of, and has them speak of the copies. `None` if a record would be too long.
fn relocate(layout: &Layout, source: &[u8], base: usize, out: &mut Vec<u8>, to: usize) -> Option<()> {
    for (field, cell) in layout.cells.iter().enumerate() {
        let offset = cell.offset as usize;
        match (layout.element(field), cell.ty.is_variable()) {
            (None, false) => {}
            (None, true) => {
                let (start, len) = slot(source, base + offset);
                let bytes = source.get(start as usize..(start + len) as usize).unwrap_or_default();
                if out.len() + bytes.len() > MAX_RECORD_BYTES - RECORD_ALIGN {
                    return None;
                }
                let moved = out.len() as u64 | (bytes.len() as u64) << 32;
                // A field that is null has no place.
                put(out, to + offset, if start + len == 0 { 0 } else { moved });
                out.extend_from_slice(bytes);
            }
            (Some(element), _) => match element.count {
                Count::Slot => {
                    let (start, len) = slot(source, base + offset);
                    let start = start as usize;
                    let found = elements(element, source, start, len as usize).len() / element.stride.max(1) as usize;
                    let moved = if found == 0 { 0 } else { append_list(element, source, start, found, out)? };
                    put(out, to + offset, moved as u64 | (found as u64) << 32);
                }
                Count::Fixed(count) if element.format.layout().has_slots => {
                    for index in 0..count as usize {
                        let at = offset + index * element.stride as usize;
                        relocate(element.format.layout(), source, base + at, out, to + at)?;
                    }
                }
                Count::Fixed(_) => {}
            },
        }
    }
    Some(())
}

fn put(out: &mut [u8], at: usize, slot: u64) {
    if let Some(place) = out.get_mut(at..at + 8) {
        place.copy_from_slice(&slot.to_le_bytes());
    }
}
