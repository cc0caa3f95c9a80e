//! Chains that make only what is read: extraction before reformatting.

use crate::morph::compile::Part;
use crossdock_control::order::{Making, needed};
use crossdock_format::Format;

/// The parts of a chain, each making only those fields that a later part reads, or in the end somebody who reads these
/// fields of the last one: a flag a field. The records are the same but for what nobody reads, and so is which of them are
/// refused. Parts stay as they are where that is how they are read, or where they cannot make less.
pub(crate) fn narrow(parts: Vec<Part>, reads: &[bool]) -> Vec<Part> {
    let Some(last) = parts.last() else { return parts };
    let is_read = reads.iter().enumerate().filter(|(_, read)| **read).map(|(index, _)| index);
    let mut read = members(last.to(), is_read);
    if read.is_empty() {
        // Records are still to be counted.
        read.push(0);
    }
    let mut steps: Vec<Vec<Making>> = parts.iter().map(makings).collect();
    steps.push(vec![Making { reads: read, can_fail: true }]);
    // Each time around, one more part makes all that it can, or reads all that there is as well.
    for _ in 0..=2 * parts.len() {
        match narrowed(&parts, &needed(&steps)) {
            Ok(parts) => return parts,
            Err(whole) => {
                let (Some(step), Some(part)) = (steps.get_mut(whole), parts.get(whole)) else { return parts };
                if step.iter().all(|making| making.can_fail) {
                    step.push(Making { reads: (0..part.from().tree().len()).collect(), can_fail: true });
                }
                step.iter_mut().for_each(|making| making.can_fail = true);
            }
        }
    }
    parts
}

/// The parts making these members; or which of them cannot.
fn narrowed(parts: &[Part], needed: &[Vec<bool>]) -> Result<Vec<Part>, usize> {
    let mut narrowed: Vec<Part> = Vec::with_capacity(parts.len());
    for (index, (part, needed)) in parts.iter().zip(needed).enumerate() {
        let is_needed = |member: usize| needed.get(member).is_some_and(|needed| *needed);
        let makes: Vec<bool> = part.to().members().into_iter().map(is_needed).collect();
        let from = narrowed.last().map_or(part.from(), Part::to);
        let is_whole = from == part.from() && makes.iter().all(|makes| *makes);
        let less = if is_whole { Some(part.clone()) } else { part.narrowed(from, &makes) };
        narrowed.push(less.ok_or(index)?);
    }
    Ok(narrowed)
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
