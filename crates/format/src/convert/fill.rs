//! The variable part of a row: texts, bytes, and lists with all that lies in their elements.

use super::compile::{Code, Content, ListCode, Variable};
use super::step::Bytes as _;
use super::step::{Elements, One, Part, set_null, slot_bytes};
use super::value::{NullRule, put};
use crate::element::Count;
use crate::format::{Format, RECORD_ALIGN};
use crate::record::{List, Value};

impl Code {
    /// Says which nested records of a part are there, and appends what is in its variable part; whether it could. The row
    /// starts at `start` of `out`, and the part `at` bytes further on, where it is blank. `format` is the source's.
    pub(super) fn fill(&self, format: &Format, source: Part<'_>, out: &mut Vec<u8>, start: usize, at: usize) -> bool {
        let mut refused = false;
        for step in &self.heads {
            let row = out.get_mut(start + at..).unwrap_or_default();
            step.run(format, One { record: source, row, refused: &mut refused });
        }
        !refused && self.variable.iter().all(|field| field.fill(format, source, out, start, at).is_some())
    }
}

impl Variable {
    /// Appends what the field holds; `None` if the record is refused.
    fn fill(&self, format: &Format, source: Part<'_>, out: &mut Vec<u8>, start: usize, at: usize) -> Option<()> {
        let row = out.get_mut(start + at..)?;
        if self.within.is_set(&*row) {
            set_null(row, self.to_null);
            return Some(());
        }
        let bytes = match &self.content {
            Content::Slot { null, .. } if null.is_set(source) => None,
            Content::Slot { from, .. } => Some(slot_bytes(source.bytes, source.base, *from)),
            Content::Constant(bytes) => Some(&**bytes),
            Content::Path(path) => match path.eval(&source.view(format)).ok()? {
                Value::Text(bytes) | Value::Bytes(bytes) => Some(bytes),
                _ => None,
            },
            Content::List(list) => return self.fill_list(list, format, source, out, start, at),
        };
        match bytes {
            None => set_null(row, self.to_null),
            Some(bytes) => {
                let place = self.room(out, start, bytes.len())?;
                out.extend_from_slice(bytes);
                self.put_slot(out, start + at, place, bytes.len());
            }
        }
        Some(())
    }

    /// Where bytes that are appended to a row lie in it; `None` if it would be longer than it may be.
    fn room(&self, out: &[u8], start: usize, bytes: usize) -> Option<usize> {
        let end = out.len() - start;
        (end + bytes <= self.most - RECORD_ALIGN).then_some(end)
    }

    /// Both fit 32 bits: see [`Variable::room`].
    fn put_slot(&self, out: &mut [u8], part: usize, place: usize, len: usize) {
        put(out, part + self.to as usize, (place as u64 | (len as u64) << 32).to_le_bytes());
    }

    fn fill_list(
        &self,
        list: &ListCode,
        format: &Format,
        source: Part<'_>,
        out: &mut Vec<u8>,
        start: usize,
        at: usize,
    ) -> Option<()> {
        let found = match (source.view(format).get(list.from), &list.null) {
            (Value::List(found), _) => found,
            (Value::Null, NullRule::Keep) => {
                set_null(out.get_mut(start + at..)?, self.to_null);
                return Some(());
            }
            // A default has no elements.
            (Value::Null, NullRule::Default(_)) => return Some(()),
            _ => return None,
        };
        // Of a list that was not checked, no more than there are bytes for.
        let count = found.iter().len();
        let place = match list.count {
            Count::Fixed(expected) if expected as usize != count => return None,
            Count::Fixed(_) => {
                let place = at + self.to as usize;
                list.blank(count, out.get_mut(start + place..)?);
                place
            }
            Count::Slot if count == 0 => return Some(()),
            Count::Slot => {
                let aligned = (out.len() - start).next_multiple_of(RECORD_ALIGN);
                self.room(out, start, RECORD_ALIGN + count.checked_mul(list.code.blank.len())?)?;
                out.resize(start + aligned, 0);
                list.append_blanks(count, out);
                self.put_slot(out, start + at, aligned, count);
                aligned
            }
        };
        list.fill(&found, count, out, start, place)
    }
}

impl ListCode {
    fn blank(&self, count: usize, rows: &mut [u8]) {
        let blank = &self.code.blank;
        if self.is_zero {
            return;
        }
        rows.chunks_exact_mut(blank.len().max(1)).take(count).for_each(|row| row.copy_from_slice(blank));
    }

    fn append_blanks(&self, count: usize, out: &mut Vec<u8>) {
        if self.is_zero {
            out.resize(out.len() + count * self.code.blank.len(), 0);
            return;
        }
        (0..count).for_each(|_| out.extend_from_slice(&self.code.blank));
    }

    /// Makes the elements, whose rows lie `place` bytes into the record.
    fn fill(&self, found: &List<'_>, count: usize, out: &mut Vec<u8>, start: usize, place: usize) -> Option<()> {
        let (stride, row_bytes) = (found.stride(), self.code.blank.len());
        let bytes = found.bytes();
        if self.is_copied {
            let source = bytes.get(found.at()..)?.get(..count * stride)?;
            out.get_mut(start + place..)?.get_mut(..source.len())?.copy_from_slice(source);
            return Some(());
        }
        if !self.code.heads.is_empty() || !self.code.variable.is_empty() {
            for index in 0..count {
                let part = Part { bytes, base: found.at() + index * stride };
                if !self.code.fill(&self.element, part, out, start, place + index * row_bytes) {
                    return None;
                }
            }
        }
        let mut refused = false;
        for step in &self.code.steps {
            let rows = out.get_mut(start + place..)?.get_mut(..count * row_bytes)?;
            let at = found.at();
            step.run(&self.element, Elements { bytes, at, stride, rows, row_bytes, refused: &mut refused });
        }
        (!refused).then_some(())
    }
}
