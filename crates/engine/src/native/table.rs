//! A bounded table of what is kept for each value of some fields: past its bound, what was not asked for the longest goes.

use std::any::Any;
use std::sync::Arc;

use crossdock_format::Record;

use super::tally::MAX_KEYS;
use crate::handler::HandlerState;
use crate::identity::{Key, KeyHasher};
use crate::warm::WarmPiece;

/// Surplus entries that go, and entries that are moved up, with each that is asked for: a bound that was made lower and a table
/// that was made larger are made good step by step, so that taking a table over moves a pointer and nothing else.
const STEPS: usize = 2;

/// A table as a handler's state.
pub(super) struct Kept<V> {
    /// Not there from the time when it was handed over to the next batch, if there is one.
    table: Option<Box<Table<V>>>,
    /// Tables that are needed no more, such as what the handler was made with, if it then took over another's: they are freed with
    /// the handler, off the core.
    #[expect(clippy::vec_box, reason = "unboxing one would free its box on the core")]
    retired: Vec<Box<Table<V>>>,
    max_keys: usize,
    kind: Arc<str>,
}

impl<V: Any + Send + Default> Kept<V> {
    /// An empty table of this kind of state, for `max_keys` keys, with all its memory.
    pub(super) fn new(kind: &str, max_keys: usize) -> Kept<V> {
        let retired = Vec::with_capacity(MAX_LAYERS);
        Kept { table: Some(Box::new(Table::new(max_keys))), retired, max_keys, kind: kind.into() }
    }

    /// The kind of its state.
    pub(super) fn kind(&self) -> &str {
        &self.kind
    }

    /// Reads what is compared when a table is taken over.
    pub(super) fn warm(&self, piece: &mut WarmPiece) {
        piece.touch(self.kind.as_bytes());
    }

    /// The table; a new one if it was handed over.
    pub(super) fn table(&mut self) -> &mut Table<V> {
        self.table.get_or_insert_with(|| Box::new(Table::new(self.max_keys)))
    }

    pub(super) fn hand_over(&mut self) -> Option<HandlerState> {
        Some(HandlerState::new(self.kind.clone(), self.table.take()?))
    }

    /// Takes a table: as it is, if it has room for as many keys, or else with the new one before it.
    pub(super) fn take_over(&mut self, state: HandlerState) -> Result<(), HandlerState> {
        let mut taken: Box<Table<V>> = state.of_kind(&self.kind)?;
        taken.strip(&mut self.retired);
        let mut own = self.table.take().unwrap_or_else(|| Box::new(Table::new(self.max_keys)));
        self.table = Some(if taken.entries.capacity() >= capacity(self.max_keys) {
            taken.max_keys = self.max_keys;
            self.retired.push(own);
            taken
        } else {
            if own.len() > 0 {
                self.retired.push(std::mem::replace(&mut own, Box::new(Table::new(self.max_keys))));
            }
            own.put_before(taken);
            own
        });
        Ok(())
    }
}

/// Entries by key.
pub(super) struct Table<V> {
    hasher: KeyHasher,
    /// Where each key's entry is, or [`NONE`]: at the place that the key's hash says or behind it. At most half full.
    index: Box<[u32]>,
    entries: Vec<Entry<V>>,
    max_keys: usize,
    /// Entries that are there, those of older tables not counted.
    there: usize,
    /// The first of the entries whose keys are gone; `newer` leads to the next one.
    vacant: u32,
    /// The entry that was asked for last, and the one that was not asked for the longest.
    newest: u32,
    oldest: u32,
    /// The number of evicted entries that was not reported yet.
    forgotten: u64,
    /// A smaller table that was taken over; none of its entries was asked for since, and they move up bit by bit.
    older: Option<Box<Table<V>>>,
}

struct Entry<V> {
    key: Key,
    /// The entry that was asked for next before this one, and next after it.
    older: u32,
    newer: u32,
    value: V,
}

const NONE: u32 = u32::MAX;

/// Tables one before the other, at most: each has twice the room of the next, or more.
const MAX_LAYERS: usize = 4 + MAX_KEYS.ilog2() as usize;

/// The room that a table for `max_keys` keys is made with: a power of two, so that few are too small for another bound.
fn capacity(max_keys: usize) -> usize {
    max_keys.next_power_of_two()
}

impl<V: Default> Table<V> {
    /// A table for `max_keys` keys, 1 to [`MAX_KEYS`], with all its memory.
    pub(super) fn new(max_keys: usize) -> Table<V> {
        Table {
            hasher: KeyHasher::default(),
            index: vec![NONE; 2 * capacity(max_keys)].into(),
            entries: Vec::with_capacity(capacity(max_keys)),
            max_keys,
            there: 0,
            vacant: NONE,
            newest: NONE,
            oldest: NONE,
            forgotten: 0,
            older: None,
        }
    }

    /// How many entries had to go since it was asked last.
    pub(super) fn take_forgotten(&mut self) -> u64 {
        std::mem::take(&mut self.forgotten)
    }

    /// The key of the values of these fields.
    pub(super) fn key_of(&mut self, record: &Record<'_>, fields: &[usize]) -> Key {
        self.hasher.key_of(record, fields)
    }

    /// The value that is kept for a key, and whether that is new.
    pub(super) fn entry(&mut self, key: Key) -> (&mut V, bool) {
        if self.older.is_some() || self.there > self.max_keys {
            self.make_good();
        }
        let found = self.index[self.place_of(key)];
        if found != NONE {
            self.unlink(found);
            self.link(found);
            return (&mut self.entries[found as usize].value, false);
        }
        let before = self.older.as_mut().and_then(|older| older.take(key));
        let is_new = before.is_none();
        if is_new && self.len() >= self.max_keys {
            self.forget_oldest();
        }
        let at = self.insert(key, before.unwrap_or_default());
        self.link(at);
        (&mut self.entries[at as usize].value, is_new)
    }

    /// All entries that there are.
    fn len(&self) -> usize {
        self.there + self.older.as_ref().map_or(0, |older| older.len())
    }

    /// Comes before a table that has less room, which has what was kept so far.
    fn put_before(&mut self, mut older: Box<Table<V>>) {
        std::mem::swap(&mut self.hasher, &mut older.hasher);
        self.forgotten += older.take_forgotten();
        self.older = Some(older);
    }

    /// Takes out the older tables that have nothing left.
    #[expect(clippy::vec_box, reason = "unboxing one would free its box on the core")]
    fn strip(&mut self, stripped: &mut Vec<Box<Table<V>>>) {
        while let Some(mut older) = self.older.take() {
            if older.there > 0 {
                older.strip(stripped);
                self.older = Some(older);
                return;
            }
            self.older = older.older.take();
            stripped.push(older);
        }
    }

    /// A step towards one table within its bound.
    #[cold]
    fn make_good(&mut self) {
        for _ in 0..STEPS {
            if self.len() > self.max_keys {
                self.forget_oldest();
            }
        }
        for _ in 0..STEPS {
            let Some((key, value)) = self.older.as_mut().and_then(|older| older.take_newest()) else { return };
            let at = self.insert(key, value);
            self.link_oldest(at);
        }
    }

    /// The entry that was not asked for the longest goes.
    fn forget_oldest(&mut self) {
        self.forgotten += 1;
        self.drop_oldest();
    }

    fn drop_oldest(&mut self) {
        match &mut self.older {
            Some(older) if older.len() > 0 => older.drop_oldest(),
            _ => drop(self.remove(self.oldest)),
        }
    }

    /// Takes out what is kept for a key, here or in an older table.
    fn take(&mut self, key: Key) -> Option<V> {
        match self.index[self.place_of(key)] {
            NONE => self.older.as_mut().and_then(|older| older.take(key)),
            at => self.remove(at).map(|(_, value)| value),
        }
    }

    /// Takes out the entry that was asked for last.
    fn take_newest(&mut self) -> Option<(Key, V)> {
        if self.there > 0 {
            self.remove(self.newest)
        } else {
            self.older.as_mut().and_then(|older| older.take_newest())
        }
    }

    /// Takes an entry out, if there is one at this place.
    fn remove(&mut self, at: u32) -> Option<(Key, V)> {
        let key = self.entries.get(at as usize)?.key;
        self.unlink(at);
        self.take_out(key);
        let entry = &mut self.entries[at as usize];
        let value = std::mem::take(&mut entry.value);
        entry.newer = std::mem::replace(&mut self.vacant, at);
        self.there -= 1;
        Some((key, value))
    }

    /// Where in the index a key is, or would be.
    fn place_of(&self, key: Key) -> usize {
        let mut place = self.first_place(key);
        loop {
            match self.entries.get(self.index[place] as usize) {
                Some(entry) if entry.key != key => place = self.behind(place),
                _ => return place,
            }
        }
    }

    fn first_place(&self, key: Key) -> usize {
        key as usize & (self.index.len() - 1)
    }

    fn behind(&self, place: usize) -> usize {
        (place + 1) & (self.index.len() - 1)
    }

    /// Puts an entry in for a key that has none; nothing leads to it yet. There is room for as many as the bound, and for those that
    /// were there before it was made lower.
    fn insert(&mut self, key: Key, value: V) -> u32 {
        let entry = Entry { key, older: NONE, newer: NONE, value };
        let at = match self.entries.get_mut(self.vacant as usize) {
            Some(vacant) => {
                let next = vacant.newer;
                *vacant = entry;
                std::mem::replace(&mut self.vacant, next)
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        // The new entry is not in the index yet, so it is not found there.
        let place = self.free_place(key);
        self.index[place] = at;
        self.there += 1;
        at
    }

    fn free_place(&self, key: Key) -> usize {
        let mut place = self.first_place(key);
        while self.index[place] != NONE {
            place = self.behind(place);
        }
        place
    }

    /// Takes a key out of the index, and moves those behind it up, so that no key is separated from its first place.
    fn take_out(&mut self, key: Key) {
        let mut gap = self.place_of(key);
        let mut place = self.behind(gap);
        while let Some(entry) = self.entries.get(self.index[place] as usize) {
            let first = self.first_place(entry.key);
            let mask = self.index.len() - 1;
            // Whether its first place is the gap or before it, going round.
            if place.wrapping_sub(first) & mask >= place.wrapping_sub(gap) & mask {
                self.index[gap] = self.index[place];
                gap = place;
            }
            place = self.behind(place);
        }
        self.index[gap] = NONE;
    }

    fn unlink(&mut self, at: u32) {
        let Entry { older, newer, .. } = self.entries[at as usize];
        match self.entries.get_mut(older as usize) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
        match self.entries.get_mut(newer as usize) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
    }

    fn link(&mut self, at: u32) {
        let before = std::mem::replace(&mut self.newest, at);
        match self.entries.get_mut(before as usize) {
            Some(entry) => entry.newer = at,
            None => self.oldest = at,
        }
        let entry = &mut self.entries[at as usize];
        (entry.older, entry.newer) = (before, NONE);
    }

    fn link_oldest(&mut self, at: u32) {
        let after = std::mem::replace(&mut self.oldest, at);
        match self.entries.get_mut(after as usize) {
            Some(entry) => entry.older = at,
            None => self.newest = at,
        }
        let entry = &mut self.entries[at as usize];
        (entry.older, entry.newer) = (NONE, after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The model of the table: keys in the order of asking.
    #[derive(Default)]
    struct Model {
        kept: Vec<(Key, u64)>,
        max_keys: usize,
        forgotten: u64,
    }

    impl Model {
        fn forget_oldest(&mut self) {
            self.kept.remove(0);
            self.forgotten += 1;
        }

        fn ask(&mut self, key: Key, more: u64) -> (u64, bool) {
            (0..STEPS).for_each(|_| {
                if self.kept.len() > self.max_keys {
                    self.forget_oldest();
                }
            });
            let was = self.kept.iter().position(|(other, _)| *other == key).map(|at| self.kept.remove(at));
            if was.is_none() && self.kept.len() >= self.max_keys {
                self.forget_oldest();
            }
            let value = was.map_or(0, |(_, value)| value) + more;
            self.kept.push((key, value));
            (value, was.is_none())
        }
    }

    proptest! {
        /// Held to a list in the order of asking, with keys that get into each other's way, round the index's end too; taken over
        /// again and again with other bounds.
        #[test]
        fn entries_are_found_and_the_oldest_goes(
            asked in prop::collection::vec((0..6u128, 0..40u128, 0..30u8), 0..300),
            bounds in prop::collection::vec(1..40usize, 1..8),
        ) {
            let mut bounds = bounds.into_iter().cycle();
            let mut next = || bounds.next().unwrap_or(1);
            let mut model = Model { max_keys: next(), ..Model::default() };
            let mut kept: Kept<u64> = Kept::new("test", model.max_keys);
            for (number, (high, low, take_over)) in asked.into_iter().enumerate() {
                if take_over == 0 {
                    model.max_keys = next();
                    let mut after = Kept::new("test", model.max_keys);
                    prop_assert!(after.take_over(kept.hand_over().unwrap()).is_ok());
                    kept = after;
                }
                let table = kept.table();
                let key = high << 100 | (2 * table.index.len() as u128 - 3 + low);
                let (value, is_new) = table.entry(key);
                *value += number as u64;
                prop_assert_eq!((*value, is_new), model.ask(key, number as u64));
                prop_assert_eq!(table.len(), model.kept.len());
                prop_assert_eq!(table.index.iter().filter(|at| **at != NONE).count(), table.there);
                prop_assert!(table.entries.len() <= capacity(table.max_keys).max(table.entries.capacity()));
            }
            prop_assert_eq!(kept.table().take_forgotten(), model.forgotten);
            for (key, value) in model.kept.clone() {
                let (found, is_new) = kept.table().entry(key);
                prop_assert!(is_new == model.ask(key, 0).1 && (is_new || *found == value));
            }
        }
    }

    /// Whatever the bounds: nothing is asked for one by one, and nothing is allocated.
    #[test]
    fn taking_over_moves_no_entry() {
        let mut kept: Kept<u64> = Kept::new("test", 1000);
        (0..1000).for_each(|key| *kept.table().entry(key).0 = key as u64);
        for (max_keys, there) in [(10, 1000), (4000, 0), (5, 0)] {
            let mut after: Kept<u64> = Kept::new("test", max_keys);
            after.take_over(kept.hand_over().unwrap()).unwrap();
            assert_eq!((after.table().there, after.table().len()), (there, 1000), "{max_keys}");
            kept = after;
        }
        // Once there is only one table again, the others are let go of.
        (0..600).for_each(|_| assert!(!kept.table().entry(999).1));
        let mut after: Kept<u64> = Kept::new("test", 5);
        after.take_over(kept.hand_over().unwrap()).unwrap();
        assert!(after.table().older.is_none() && after.retired.len() == 2);
        assert_eq!(after.table().len(), 5);
    }
}
