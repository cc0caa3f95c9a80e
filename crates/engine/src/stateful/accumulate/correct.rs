//! Aggregates of rows that are taken out again: what is left is as if they had not been there, but for the last bits of sums of floats.

use std::cmp::Ordering;

use crossdock_format::{Format, Record, Value};
use crossdock_query::{Aggregate, EvalError};

use super::super::multiset::Multiset;
use crate::saved::{SavedBytes, put_flag};

use super::{AccumulatorKind, Slot, Slots, Stores, compare_exactly, count, float, load, plain, store};

impl Slots {
    /// The slots for aggregates of rows of this format, which may be taken out again.
    ///
    /// # Errors
    /// In words: an aggregate does not fit its column, or is one that no row can be taken out of.
    pub(in super::super) fn correcting(aggregates: &[Aggregate], input: &Format) -> Result<Slots, String> {
        Slots::of_kind(aggregates, input, (true, true))
    }

    /// The values that have to be kept for that.
    pub(in super::super) fn values(&self, input: &Format) -> Result<Multiset, String> {
        let column = |slot: &Slot| {
            let is_kept = self.corrects && slot.keeps_values();
            slot.arguments[0].filter(|_| is_kept)
        };
        Multiset::of(input, self.slots.iter().map(column))
    }

    /// Adds a row, or takes one out. `owner` is the group, by a number of its own.
    pub(in super::super) fn correct(
        &self,
        group: &mut [u8],
        stores: &mut Stores,
        owner: u32,
        row: &Record<'_>,
        adds: bool,
    ) {
        for (number, slot) in self.slots.iter().enumerate() {
            if slot.filter.is_some_and(|filter| row.get(filter) != Value::Bool(true)) {
                continue;
            }
            let value = slot.arguments[0].map(|first| plain(row.get(first)));
            if value.as_ref().is_some_and(Value::is_null) {
                continue;
            }
            if let (true, Some(value)) = (slot.keeps_values(), &value) {
                let place = (owner, number as u16);
                let is_edge = match adds {
                    true => Some(stores.values.add(place, value)),
                    false => stores.values.take(place, value),
                };
                slot.set_owner(group, owner);
                if is_edge.is_none_or(|is_edge| slot.distinct.is_some() && !is_edge) {
                    continue;
                }
            }
            match (&value, adds) {
                (Some(value), true) => slot.add(group, stores, value, &Value::Null, 0, true),
                (None, true) => store(group, slot.at, (count(group, slot.at) + 1).to_le_bytes()),
                (_, false) => self.take_out(number, group, value),
            }
        }
    }

    fn take_out(&self, number: usize, group: &mut [u8], value: Option<Value<'_>>) {
        let Some(slot) = self.slots.get(number) else { return };
        if count(group, slot.at) == 0 {
            return;
        }
        let at = slot.at + 8;
        match (slot.kind, &value) {
            (AccumulatorKind::Truth { .. }, Some(Value::Bool(true))) => {
                store(group, at, count(group, at).saturating_sub(1).to_le_bytes());
            }
            (AccumulatorKind::FloatBag { .. }, Some(value)) => slot.take_from_bag(group, super::number(value)),
            (AccumulatorKind::MomentBag { .. }, Some(value)) => slot.take_from_moments(group, super::number(value)),
            _ => {}
        }
        self.retract(number, group, &[value, None]);
        if count(group, slot.at) == 0 && matches!(slot.kind, AccumulatorKind::FloatBag { .. }) {
            // The rest that rounding has left goes with the last value.
            group.iter_mut().skip(at).take(40).for_each(|byte| *byte = 0);
        }
    }

    /// Whether no result changes with a row: one that is not better than the best.
    #[inline]
    pub(in super::super) fn keeps_results(&self, group: &[u8], stores: &Stores, row: &Record<'_>) -> bool {
        self.slots.iter().all(|slot| {
            if slot.filter.is_some_and(|filter| row.get(filter) != Value::Bool(true)) {
                return true;
            }
            let Some(first) = slot.arguments[0] else { return false };
            let value = plain(row.get(first));
            if value.is_null() {
                return true;
            }
            let AccumulatorKind::Extreme { cell, wanted } = slot.kind else { return false };
            let known = cell.value(group, slot.at + 8, &stores.arena);
            count(group, slot.at) > 0 && compare_exactly(&value, &known) != wanted
        })
    }
}

impl AccumulatorKind {
    /// The same for values that are taken out again; `number` is that of the aggregate.
    pub(super) fn correcting(self, number: usize) -> Result<AccumulatorKind, String> {
        let number = u16::try_from(number).map_err(|_| "there are too many aggregates".to_owned())?;
        Ok(match self {
            AccumulatorKind::Extreme { wanted, .. } => AccumulatorKind::Ordered { wanted, number },
            AccumulatorKind::Float { is_mean } => AccumulatorKind::FloatBag { is_mean },
            AccumulatorKind::Moments { is_sample, is_root } => AccumulatorKind::MomentBag { is_sample, is_root },
            AccumulatorKind::Count | AccumulatorKind::Whole { .. } | AccumulatorKind::Truth { .. } => self,
            _ => return Err("a row cannot be taken out of an aggregate of a group".to_owned()),
        })
    }
}

impl Slot {
    pub(super) fn keeps_values(&self) -> bool {
        self.distinct.is_some() || matches!(self.kind, AccumulatorKind::Ordered { .. })
    }

    /// The place of the owner of the values that are kept: its number and one.
    fn owner_at(&self) -> usize {
        if self.distinct.is_some() { self.at - 8 } else { self.at + 8 }
    }

    fn set_owner(&self, group: &mut [u8], owner: u32) {
        store(group, self.owner_at(), (u64::from(owner) + 1).to_le_bytes());
    }

    fn owner(&self, group: &[u8]) -> Option<u32> {
        u32::try_from(count(group, self.owner_at()).checked_sub(1)?).ok()
    }

    /// Writes the values that are kept.
    pub(super) fn save_values(&self, number: usize, group: &[u8], values: &Multiset, out: &mut Vec<u8>) {
        match self.owner(group) {
            Some(owner) => values.save((owner, number as u16), out),
            None => put_flag(out, false),
        }
    }

    /// Takes those that were written into the empty group of an owner.
    ///
    /// # Errors
    /// They are none of its column's.
    pub(super) fn restore_values(
        &self,
        (number, owner): (usize, u32),
        group: &mut [u8],
        values: &mut Multiset,
        from: &mut SavedBytes<'_>,
    ) -> Result<(), &'static str> {
        if values.restore((owner, number as u16), from)? {
            self.set_owner(group, owner);
        }
        Ok(())
    }

    /// Lets go of the values that are kept.
    pub(super) fn let_values_go(&self, number: usize, group: &[u8], stores: &mut Stores) {
        if self.keeps_values()
            && let Some(owner) = self.owner(group)
        {
            stores.values.clear((owner, number as u16));
        }
    }

    /// The least or the greatest value.
    pub(super) fn of_ordered<'v>(&self, group: &[u8], values: &'v Multiset) -> Value<'v> {
        match (self.kind, self.owner(group)) {
            (AccumulatorKind::Ordered { wanted: Ordering::Less, number }, Some(owner)) => values.least((owner, number)),
            (AccumulatorKind::Ordered { number, .. }, Some(owner)) => values.greatest((owner, number)),
            _ => Value::Null,
        }
    }

    /// The place of the count of values that are not finite, by their kind.
    fn count_of(&self, value: f64) -> usize {
        let kind = if value.is_nan() { 0 } else { 1 + usize::from(value < 0.0) };
        self.at + 24 + 8 * kind
    }

    pub(super) fn put_into_bag(&self, group: &mut [u8], value: f64) {
        if value.is_finite() {
            return self.add_float(group, value, 0.0, 1);
        }
        let at = self.count_of(value);
        store(group, at, (count(group, at) + 1).to_le_bytes());
        store(group, self.at, (count(group, self.at) + 1).to_le_bytes());
    }

    fn take_from_bag(&self, group: &mut [u8], value: f64) {
        if value.is_finite() {
            return self.add_float(group, -value, 0.0, 0);
        }
        let at = self.count_of(value);
        store(group, at, count(group, at).saturating_sub(1).to_le_bytes());
    }

    /// The sum or the mean of a bag that is not empty.
    pub(super) fn of_bag(&self, group: &[u8], rows: u64, is_mean: bool) -> Result<Value<'static>, EvalError> {
        let counts = [0, 8, 16].map(|behind| count(group, self.at + 24 + behind) > 0);
        let sum = match counts {
            [true, ..] | [_, true, true] => f64::NAN,
            [_, true, _] => f64::INFINITY,
            [_, _, true] => f64::NEG_INFINITY,
            _ => {
                let sum = float(group, self.at + 8) + float(group, self.at + 16);
                if !sum.is_finite() {
                    return Err(EvalError::OutOfRange);
                }
                sum
            }
        };
        Ok(Value::Float(if is_mean { sum / rows as f64 } else { sum }))
    }

    pub(super) fn put_into_moments(&self, group: &mut [u8], value: f64) {
        let (rows, at) = (count(group, self.at), self.at + 8);
        let specials = count(group, at + 16);
        if value.is_finite() {
            let (mean, squares) = (float(group, at), float(group, at + 8));
            let distance = value - mean;
            let mean = mean + distance / (rows - specials + 1) as f64;
            store(group, at, mean.to_le_bytes());
            store(group, at + 8, (squares + distance * (value - mean)).to_le_bytes());
        } else {
            store(group, at + 16, (specials + 1).to_le_bytes());
        }
        store(group, self.at, (rows + 1).to_le_bytes());
    }

    fn take_from_moments(&self, group: &mut [u8], value: f64) {
        let (rows, at) = (count(group, self.at), self.at + 8);
        let specials = u64::from_le_bytes(load(group, at + 16));
        if !value.is_finite() {
            return store(group, at + 16, specials.saturating_sub(1).to_le_bytes());
        }
        let left = rows.saturating_sub(specials).saturating_sub(1);
        let (mean, squares) = (float(group, at), float(group, at + 8));
        let (mean, squares) = match left {
            0 => (0.0, 0.0),
            1 => (mean - (value - mean), 0.0),
            left => {
                let before = mean - (value - mean) / left as f64;
                (before, (squares - (value - mean) * (value - before)).max(0.0))
            }
        };
        store(group, at, mean.to_le_bytes());
        store(group, at + 8, squares.to_le_bytes());
    }
}
