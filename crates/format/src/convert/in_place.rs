//! Records converted where they lie.

use super::Plan;
use super::compile::Content;
use super::error::{ConvertError, ConvertProblem, RefusedPart};
use super::step::{Bytes as _, NullBit, One, set_null};
use super::value::put;
use crate::element::Count;
use crate::field::Field;
use crate::format::Format;

/// Longest fixed part of a record that is made in place, in bytes: it is made beside the record first.
const MOST_BYTES: usize = 512;

/// A plan whose new records have room where the old ones lie: see [`Plan::in_place`].
#[derive(Clone, Debug)]
pub struct InPlace {
    plan: Plan,
    /// Texts and bytes, which stay where they are.
    kept: Box<[Kept]>,
}

/// A slot that goes to another place and speaks of the same bytes.
#[derive(Clone, Copy, Debug)]
struct Kept {
    from: u32,
    to: u32,
    null: NullBit,
    to_null: NullBit,
}

impl Plan {
    /// The plan as one that needs no other memory than that of the records: `None` if the layouts do not allow that. They
    /// do where the new fixed part is not longer than the old one, nor than 512 bytes, and of the variable part either all
    /// is kept as it is or nothing; lists of any length, and foreign targets, are made anew.
    ///
    /// It is for those who own a record's bytes. A record in buffers that others read too takes [`Plan::run`].
    #[must_use]
    pub fn in_place(&self) -> Option<InPlace> {
        let (from, to, code) = (self.from(), self.to(), &self.inner.code);
        if self.inner.foreign.is_some() || to.fixed_bytes() > from.fixed_bytes().min(MOST_BYTES) {
            return None;
        }
        let mut kept: Vec<Kept> = Vec::with_capacity(code.variable.len());
        for field in &code.variable {
            match field.content {
                Content::Slot { from, null } if field.within.mask == 0 => {
                    kept.push(Kept { from, to: field.to, null, to_null: field.to_null });
                }
                _ => return None,
            }
        }
        // Bytes that two fields spoke of, or none, would be no record, or more than it should have.
        let slots: Vec<u32> = from.fields().iter().filter(|field| has_slots(field)).map(|field| field.offset).collect();
        let mut found: Vec<u32> = kept.iter().map(|kept| kept.from).collect();
        found.sort_unstable();
        let are_all = found == slots && from.fields().iter().all(|field| !has_slots(field) || field.ty.is_variable());
        (kept.is_empty() || are_all).then(|| InPlace { plan: self.clone(), kept: kept.into() })
    }
}

/// Whether a field has anything in the variable part.
fn has_slots(field: &Field) -> bool {
    field
        .element()
        .map_or(field.ty.is_variable(), |element| element.count == Count::Slot || element.format.layout().has_slots)
}

impl InPlace {
    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Makes the new record of one of format [`Plan::from`] in its own bytes, which are just the record's and were checked
    /// where they came in. Gives its length in bytes: that of the old one, or less. The part of the old one that the new one
    /// has not is zero, or behind its end.
    ///
    /// # Errors
    /// Something in the record has no place in the new one; it is then as it was.
    pub fn run(&self, record: &mut [u8]) -> Result<usize, ConvertError> {
        let inner = &*self.plan.inner;
        let (from, fixed) = (&inner.body.from, inner.code.blank.len());
        let mut row = [0; MOST_BYTES];
        let too_short = || ConvertProblem::Length { found: record.len(), expected: from.fixed_bytes() };
        let is_whole = record.len() >= from.fixed_bytes();
        let row = row.get_mut(..fixed).filter(|_| is_whole);
        let row = row.ok_or_else(|| ConvertError::new(from, RefusedPart::Record, too_short()))?;
        if inner.code.is_identity {
            return Ok(record.len());
        }
        row.copy_from_slice(&inner.code.blank);
        if !self.make(from, record, row) {
            return Err(inner.why(record));
        }
        let length = if self.kept.is_empty() { fixed } else { record.len() };
        // No record is longer than 32 bits can express.
        put(row, 0, (length as u32).to_le_bytes());
        if let Some((new, rest)) = record.split_at_mut_checked(fixed) {
            new.copy_from_slice(row);
            rest.iter_mut().take(from.fixed_bytes() - fixed).for_each(|byte| *byte = 0);
        }
        Ok(length)
    }

    /// Makes the fixed part; whether it could.
    fn make(&self, from: &Format, record: &[u8], row: &mut [u8]) -> bool {
        let code = &self.plan.inner.code;
        let mut refused = false;
        // The same order as elsewhere: unions look at all their variants.
        for step in &code.heads {
            step.run(from, One { record, row, refused: &mut refused });
        }
        for kept in &self.kept {
            match kept.null.is_set(record) {
                true => set_null(row, kept.to_null),
                false => put(row, kept.to as usize, record.load::<8>(kept.from)),
            }
        }
        for step in &code.steps {
            step.run(from, One { record, row, refused: &mut refused });
        }
        !refused
    }
}
