//! The aggregates of a group as bytes.

use super::{AccumulatorKind, SPECIAL, Slots, Stores, count};
use crate::saved::{SavedBytes, counted, put_i64};
use crate::stateful::arena::Arena;
use crate::stateful::cell::{load, store};
use crate::stateful::sketch::{Quantiles, Registers};
use crate::stateful::texts::Texts;

impl Slots {
    /// Writes a group.
    pub(in crate::stateful) fn save(&self, group: &[u8], stores: &Stores, out: &mut Vec<u8>) {
        for (number, slot) in self.slots.iter().enumerate() {
            if self.corrects && slot.keeps_values() {
                slot.save_values(number, group, &stores.values, out);
            } else if slot.distinct.is_some() {
                stores.distinct.save(group, slot.at - 8, out);
            }
            out.extend_from_slice(&count(group, slot.at).to_le_bytes());
            slot.kind.save(group, slot.at + 8, &stores.arena, out);
        }
    }

    /// Takes what was written into an empty group of this owner.
    ///
    /// # Errors
    /// It was not written by these slots. Some of it may be in the group then.
    pub(in crate::stateful) fn restore(
        &self,
        group: &mut [u8],
        owner: u32,
        stores: &mut Stores,
        from: &mut SavedBytes<'_>,
    ) -> Result<(), &'static str> {
        for (number, slot) in self.slots.iter().enumerate() {
            if self.corrects && slot.keeps_values() {
                slot.restore_values((number, owner), group, &mut stores.values, from)?;
            } else if slot.distinct.is_some() {
                stores.distinct.restore((group, slot.at - 8), (number, owner), from)?;
            }
            let word = from.u64()?;
            let rows = counted(word & !SPECIAL)?;
            store(group, slot.at, word.to_le_bytes());
            // Texts that were too long together have gone.
            let rows = if word & SPECIAL == 0 { rows } else { 0 };
            slot.kind.restore(group, slot.at + 8, (&mut stores.arena, rows), from)?;
        }
        Ok(())
    }
}

impl AccumulatorKind {
    fn save(self, group: &[u8], at: usize, arena: &Arena, out: &mut Vec<u8>) {
        match self {
            // The values that are kept in order are written before.
            AccumulatorKind::Count | AccumulatorKind::Ordered { .. } => {}
            AccumulatorKind::FloatBag { .. } => out.extend_from_slice(&load::<40>(group, at)),
            AccumulatorKind::MomentBag { .. } => out.extend_from_slice(&load::<24>(group, at)),
            AccumulatorKind::Whole { is_wide: true, .. } => out.extend_from_slice(&load::<24>(group, at)),
            AccumulatorKind::Whole { .. } => {
                out.extend_from_slice(&load::<16>(group, at));
                put_i64(out, 0);
            }
            AccumulatorKind::Float { .. } | AccumulatorKind::Moments { .. } => {
                out.extend_from_slice(&load::<16>(group, at));
            }
            AccumulatorKind::Truth { .. } => out.extend_from_slice(&load::<8>(group, at)),
            AccumulatorKind::Extreme { cell, .. } => cell.save(group, at, arena, out),
            AccumulatorKind::Edge { cell, .. } => {
                out.extend_from_slice(&load::<8>(group, at));
                cell.save(group, at + 8, arena, out);
            }
            AccumulatorKind::Arg { cell, by, .. } => {
                out.extend_from_slice(&load::<8>(group, at));
                by.save(group, at + 8, arena, out);
                cell.save(group, at + 8 + by.size(), arena, out);
            }
            AccumulatorKind::Registers => Registers::save(group, at, arena, out),
            AccumulatorKind::Quantile(_) => Quantiles::save(group, at, arena, out),
            AccumulatorKind::Texts | AccumulatorKind::Values { .. } => Texts::save(group, at, arena, out),
        }
    }

    fn restore(
        self,
        group: &mut [u8],
        at: usize,
        (arena, rows): (&mut Arena, u64),
        from: &mut SavedBytes<'_>,
    ) -> Result<(), &'static str> {
        match self {
            AccumulatorKind::Count | AccumulatorKind::Ordered { .. } => {}
            AccumulatorKind::FloatBag { .. } => {
                copy(group, at, 16, from)?;
                for count in 0..3 {
                    store(group, at + 16 + 8 * count, counted(from.u64()?)?.to_le_bytes());
                }
            }
            AccumulatorKind::MomentBag { .. } => {
                copy(group, at, 16, from)?;
                let specials = from.u64()?;
                if specials > rows {
                    return Err("more values are not finite than there are");
                }
                store(group, at + 16, specials.to_le_bytes());
            }
            AccumulatorKind::Whole { is_wide, .. } => {
                copy(group, at, 16, from)?;
                let turns = from.i64()?;
                counted(turns.unsigned_abs())?;
                if is_wide {
                    store(group, at + 16, turns.to_le_bytes());
                } else if turns != 0 {
                    return Err("a sum of whole numbers has left its range");
                }
            }
            AccumulatorKind::Float { .. } | AccumulatorKind::Moments { .. } => copy(group, at, 16, from)?,
            AccumulatorKind::Truth { .. } => store(group, at, counted(from.u64()?)?.to_le_bytes()),
            AccumulatorKind::Extreme { cell, .. } => cell.restore(group, at, arena, from)?,
            AccumulatorKind::Edge { cell, .. } => {
                copy(group, at, 8, from)?;
                cell.restore(group, at + 8, arena, from)?;
            }
            AccumulatorKind::Arg { cell, by, .. } => {
                copy(group, at, 8, from)?;
                by.restore(group, at + 8, arena, from)?;
                cell.restore(group, at + 8 + by.size(), arena, from)?;
            }
            AccumulatorKind::Registers => Registers::restore(group, at, arena, from)?,
            AccumulatorKind::Quantile(_) => Quantiles::restore(group, at, arena, from)?,
            AccumulatorKind::Texts => Texts::restore(group, at, arena, (rows, None), from)?,
            AccumulatorKind::Values { cell } => Texts::restore(group, at, arena, (rows, cell.raw_bytes()), from)?,
        }
        Ok(())
    }
}

/// Copies bytes that may be anything.
fn copy(group: &mut [u8], at: usize, bytes: usize, from: &mut SavedBytes<'_>) -> Result<(), &'static str> {
    let place = group.get_mut(at..at + bytes).ok_or("a value has no place")?;
    place.copy_from_slice(from.take(bytes)?);
    Ok(())
}
