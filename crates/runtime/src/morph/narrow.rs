//! Chains that make only what is read: extraction before reformatting.

use crate::morph::compile::Part;
use crossdock_control::order::{Making, needed};
use crossdock_format::Format;

/// The parts of a chain, each making only those fields that a later part reads, or in the end somebody who reads these
/// fields of the last one: a flag a field. The records are the same but for what nobody reads, and so is which of them are
/// refused. Parts stay as they are where that is how they are read.
pub(crate) fn narrow(parts: Vec<Part>, reads: &[bool]) -> Vec<Part> {
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return parts };
    let is_read = reads.iter().enumerate().filter(|(_, read)| **read).map(|(index, _)| index);
    let reader = Making { reads: members(last.to(), is_read), can_fail: true };
    let mut steps: Vec<Vec<Making>> = parts.iter().map(makings).collect();
    steps.push(vec![reader]);
    let mut at = first.from().clone();
    let mut narrowed = Vec::with_capacity(parts.len());
    for (part, needed) in parts.iter().zip(needed(&steps)) {
        let makes: Vec<bool> =
            part.to().members().into_iter().map(|member| needed.get(member).is_some_and(|needed| *needed)).collect();
        let is_whole = at == *part.from() && makes.iter().all(|makes| *makes);
        // Where nothing at all is read, records are still to be counted.
        let Some(part) = (if is_whole { Some(part.clone()) } else { part.narrowed(&at, &makes) }) else { return parts };
        at = part.to().clone();
        narrowed.push(part);
    }
    narrowed
}

/// What each member of a part's format is made of; behind these what is only followed for what it refuses.
fn makings(part: &Part) -> Vec<Making> {
    let of = part.to().members();
    let mut members_made = vec![Making::default(); part.to().tree().len()];
    for (index, (reads, can_fail)) in part.makings().into_iter().enumerate() {
        let reads = members(part.from(), reads.into_iter());
        match of.get(index).and_then(|member| members_made.get_mut(*member)) {
            Some(making) => {
                making.reads.extend(reads);
                making.can_fail |= can_fail;
            }
            None => members_made.push(Making { reads, can_fail }),
        }
    }
    members_made
}

/// The members that fields of these indices are or lie in.
fn members(format: &Format, fields: impl Iterator<Item = usize>) -> Vec<usize> {
    let of = format.members();
    fields.filter_map(|index| of.get(index).copied()).collect()
}
