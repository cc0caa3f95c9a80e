//! A bounded table of what is kept for each value of some fields: past its bound, what was not asked for the longest goes.

use std::any::Any;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use crossdock_format::{FieldType, Format, Record, Value};

use crate::handler::HandlerState;
use crate::project::touch;

/// What a key is known by: 128 bits of a keyed hash of its values. Two keys share one with a probability of 2^-128, and
/// nobody can look for such keys without the table's secret. So an entry has one size, however long the values are.
pub(super) type Key = u128;

/// A table as a handler's state.
pub(super) struct Kept<V> {
    /// Not there from the time when it was handed over to the next batch, if there is one.
    table: Option<Box<Table<V>>>,
    /// What the handler was made with, if it then took over another's: it is freed with the handler, off the core.
    retired: Option<Box<Table<V>>>,
    max_keys: usize,
    kind: Arc<str>,
}

impl<V: Any + Send + Default> Kept<V> {
    /// An empty table of this kind of state, for so many keys, with all its memory.
    pub(super) fn new(kind: &str, max_keys: usize) -> Kept<V> {
        Kept { table: Some(Box::new(Table::new(max_keys))), retired: None, max_keys, kind: kind.into() }
    }

    /// What kind of state it is.
    pub(super) fn kind(&self) -> &str {
        &self.kind
    }

    /// Reads what is compared when a table is taken over.
    pub(super) fn warm(&self) {
        touch(self.kind.as_bytes());
    }

    /// The table; a new one if it was handed over.
    pub(super) fn table(&mut self) -> &mut Table<V> {
        self.table.get_or_insert_with(|| Box::new(Table::new(self.max_keys)))
    }

    pub(super) fn hand_over(&mut self) -> Option<HandlerState> {
        Some(HandlerState::new(self.kind.clone(), self.table.take()?))
    }

    /// Takes a table: as it is, or, if it has room for another number of keys, its newest entries one by one.
    pub(super) fn take_over(&mut self, state: HandlerState) -> Result<(), HandlerState> {
        let mut taken: Box<Table<V>> = state.of_kind(&self.kind)?;
        if taken.max_keys == self.max_keys {
            self.retired = self.table.replace(taken);
        } else {
            self.table().fill(&mut taken);
            self.retired = Some(taken);
        }
        Ok(())
    }
}

/// Entries by key.
pub(super) struct Table<V> {
    secrets: [RandomState; 2],
    /// The values of the key that is asked for.
    values: Vec<u8>,
    /// Where each key's entry is, or [`NONE`]: at the place that the key's hash says or behind it. At most half full.
    index: Box<[u32]>,
    entries: Vec<Entry<V>>,
    max_keys: usize,
    /// The entry that was asked for last, and the one that was not asked for the longest.
    newest: u32,
    oldest: u32,
    /// How many entries had to go, and were not told of.
    forgotten: u64,
}

struct Entry<V> {
    key: Key,
    /// The entry that was asked for next before this one, and next after it.
    older: u32,
    newer: u32,
    value: V,
}

const NONE: u32 = u32::MAX;

impl<V: Default> Table<V> {
    /// A table for so many keys, 1 to [`MAX_KEYS`](super::MAX_KEYS), with all its memory.
    pub(super) fn new(max_keys: usize) -> Table<V> {
        Table {
            secrets: [RandomState::new(), RandomState::new()],
            values: Vec::with_capacity(256),
            index: vec![NONE; (2 * max_keys).next_power_of_two()].into(),
            entries: Vec::with_capacity(max_keys),
            max_keys,
            newest: NONE,
            oldest: NONE,
            forgotten: 0,
        }
    }

    /// How many entries had to go since it was asked last.
    pub(super) fn take_forgotten(&mut self) -> u64 {
        std::mem::take(&mut self.forgotten)
    }

    /// The key of the values of these fields.
    pub(super) fn key_of(&mut self, record: &Record<'_>, fields: &[usize]) -> Key {
        self.values.clear();
        for &field in fields {
            append(&record.get(field), &mut self.values);
        }
        // In one piece: a hasher takes long for small ones.
        let [high, low] = [&self.secrets[0], &self.secrets[1]].map(|secret| {
            let mut hasher = secret.build_hasher();
            hasher.write(&self.values);
            u128::from(hasher.finish())
        });
        high << 64 | low
    }

    /// What is kept for a key, and whether that is new.
    pub(super) fn entry(&mut self, key: Key) -> (&mut V, bool) {
        let found = self.index[self.place_of(key)];
        let is_new = found == NONE;
        let at = if is_new { self.make_room(key) } else { found };
        if !is_new {
            self.unlink(at);
        }
        self.link(at);
        (&mut self.entries[at as usize].value, is_new)
    }

    /// Fills this table with the newest entries of another. What it had is gone: nothing, if it is new.
    fn fill(&mut self, other: &mut Table<V>) {
        if !self.entries.is_empty() {
            *self = Table::new(self.max_keys);
        }
        std::mem::swap(&mut self.secrets, &mut other.secrets);
        let mut at = other.oldest;
        while let Some(entry) = other.entries.get_mut(at as usize) {
            let (key, value) = (entry.key, std::mem::take(&mut entry.value));
            at = entry.newer;
            *self.entry(key).0 = value;
        }
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

    /// A place among the entries for a key that has none.
    fn make_room(&mut self, key: Key) -> u32 {
        let fresh = Entry { key, older: NONE, newer: NONE, value: V::default() };
        let at = if self.entries.len() < self.max_keys {
            self.entries.push(fresh);
            self.entries.len() as u32 - 1
        } else {
            let at = self.oldest;
            self.forgotten += 1;
            self.unlink(at);
            self.take_out(self.entries[at as usize].key);
            self.entries[at as usize] = fresh;
            at
        };
        // The new entry is not in the index yet, so it is not found there.
        let place = self.free_place(key);
        self.index[place] = at;
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
}

/// Whether the values of a field make keys.
///
/// # Errors
/// Why not, in words.
pub(super) fn compared(format: &Format, field: usize) -> Result<(), String> {
    match &format.fields()[field] {
        field if field.ty == FieldType::List => Err(format!("`{}` is a list, and lists are not compared", field.name)),
        _ => Ok(()),
    }
}

/// Appends a value, so that equal values of fields of one kind give the same bytes, and others do not: numbers whatever
/// their width, texts whether they are padded or not.
fn append(value: &Value<'_>, bytes: &mut Vec<u8>) {
    let mut tagged = |tag: u8, value: &[u8]| {
        bytes.push(tag);
        bytes.extend_from_slice(value);
    };
    match value {
        Value::Int(value) | Value::Timestamp(value) => tagged(1, &i128::from(*value).to_le_bytes()),
        Value::Uint(value) => tagged(1, &i128::from(*value).to_le_bytes()),
        Value::Bool(value) => tagged(1, &i128::from(*value).to_le_bytes()),
        Value::Enum { number, .. } => tagged(1, &i128::from(*number).to_le_bytes()),
        Value::Decimal { unscaled, .. } => tagged(1, &unscaled.to_le_bytes()),
        Value::Float(value) => {
            // One zero, one NaN.
            let value = if value.is_nan() { f64::NAN } else { value + 0.0 };
            tagged(2, &value.to_le_bytes());
        }
        Value::Text(text) | Value::Bytes(text) => {
            tagged(3, &(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text);
        }
        Value::Null | Value::List(_) | Value::Record(_) => tagged(0, &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Held to a list in the order of asking, with keys that get into each other's way, round the index's end too.
        #[test]
        fn entries_are_found_and_the_oldest_goes(
            asked in prop::collection::vec((0..6u128, 0..8u128), 0..300),
            max_keys in 1..20usize,
            other_max_keys in 1..20usize,
        ) {
            let mut table: Table<u64> = Table::new(max_keys);
            let mut kept: Vec<(Key, u64)> = Vec::new();
            let mut forgotten = 0;
            for (number, (high, low)) in asked.into_iter().enumerate() {
                let key = high << 100 | (2 * table.index.len() as u128 - 3 + low);
                let was = kept.iter().position(|(other, _)| *other == key).map(|at| kept.remove(at));
                kept.push((key, was.map_or(0, |(_, value)| value) + number as u64));
                if kept.len() > max_keys {
                    kept.remove(0);
                    forgotten += 1;
                }
                let (value, is_new) = table.entry(key);
                *value += number as u64;
                prop_assert_eq!((*value, is_new), (kept.last().unwrap().1, was.is_none()));
                for (key, _) in &kept {
                    prop_assert!(table.entries.get(table.index[table.place_of(*key)] as usize).is_some());
                }
                prop_assert_eq!(table.index.iter().filter(|at| **at != NONE).count(), kept.len());
            }
            prop_assert_eq!(table.take_forgotten(), forgotten);

            let mut other: Table<u64> = Table::new(other_max_keys);
            other.fill(&mut table);
            let newest = &kept[kept.len().saturating_sub(other_max_keys)..];
            prop_assert_eq!(other.take_forgotten(), (kept.len() - newest.len()) as u64);
            for (key, value) in newest {
                let (found, is_new) = other.entry(*key);
                prop_assert_eq!((*found, is_new), (*value, false));
            }
        }
    }
}
