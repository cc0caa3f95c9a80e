//! The values that counted once in their group.

use crossdock_format::{Format, Value};

use super::arena::Arena;
use super::cell::{load, store};
use super::keys::{ENTRY_BYTES, KeyColumns, Keys, NONE};
use crate::saved::{SavedBytes, put_bytes, put_flag};

/// For aggregates of different values: which each group has. A group's slot leads to its first one, and each to the next.
#[derive(Debug, Default)]
pub(super) struct Distinct {
    /// The columns of each aggregate's set, if it has one.
    columns: Vec<Option<KeyColumns>>,
    keys: Keys,
    arena: Arena,
    next: Vec<u32>,
    bytes: Vec<u8>,
}

/// Behind the value: the aggregate and its owner.
const OWNER_BYTES: usize = 6;

impl Distinct {
    /// The sets for values of these columns.
    ///
    /// # Errors
    /// In words: a column is a list.
    pub(super) fn of(input: &Format, columns: impl Iterator<Item = Option<usize>>) -> Result<Distinct, String> {
        let columns = columns.map(|column| column.map(|column| KeyColumns::of(input, &[column], true)).transpose());
        Ok(Distinct { columns: columns.collect::<Result<_, String>>()?, ..Distinct::default() })
    }

    /// How many bytes are in use.
    pub(super) fn used(&self) -> usize {
        self.arena.used() + self.keys.len() * (ENTRY_BYTES + size_of::<u32>())
    }

    /// The column of a set.
    pub(super) fn columns(&self, aggregate: usize) -> Option<&KeyColumns> {
        self.columns.get(aggregate)?.as_ref()
    }

    /// The columns of all sets, which are to be [put back](Distinct::put_columns).
    pub(super) fn take_columns(&mut self) -> Vec<Option<KeyColumns>> {
        std::mem::take(&mut self.columns)
    }

    /// Puts the columns back.
    pub(super) fn put_columns(&mut self, columns: Vec<Option<KeyColumns>>) {
        self.columns = columns;
    }

    /// Adds a value to the set of an owner whose head is at a place of its slots; returns whether it is new.
    pub(super) fn enter(
        &mut self,
        group: &mut [u8],
        at: usize,
        aggregate: usize,
        owner: u32,
        value: &Value<'_>,
    ) -> bool {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        if let Some(columns) = self.columns(aggregate) {
            columns.read_value(value, &mut bytes);
        }
        let is_new = self.enter_own(group, at, aggregate, owner, &mut bytes);
        self.bytes = bytes;
        is_new
    }

    /// The same for a value that is in bytes.
    pub(super) fn enter_bytes(
        &mut self,
        group: &mut [u8],
        at: usize,
        aggregate: usize,
        owner: u32,
        value: &[u8],
    ) -> bool {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        bytes.extend_from_slice(value);
        let is_new = self.enter_own(group, at, aggregate, owner, &mut bytes);
        self.bytes = bytes;
        is_new
    }

    fn enter_own(&mut self, group: &mut [u8], at: usize, aggregate: usize, owner: u32, bytes: &mut Vec<u8>) -> bool {
        bytes.extend_from_slice(&(aggregate as u16).to_le_bytes());
        bytes.extend_from_slice(&owner.to_le_bytes());
        let (number, is_new) = self.keys.enter(bytes, &mut self.arena);
        if is_new {
            if self.next.len() <= number as usize {
                self.next.resize(number as usize + 1, NONE);
            }
            let head = u64::from_le_bytes(load(group, at));
            self.next[number as usize] = (head as u32).wrapping_sub(1);
            store(group, at, (u64::from(number) + 1).to_le_bytes());
        }
        is_new
    }

    /// The first value of a set.
    pub(super) fn first(&self, group: &[u8], at: usize) -> Option<u32> {
        Some((u64::from_le_bytes(load(group, at)) as u32).wrapping_sub(1)).filter(|number| *number != NONE)
    }

    /// Copies a value; returns the next one.
    pub(super) fn copy(&self, number: u32, bytes: &mut Vec<u8>) -> Option<u32> {
        let key = self.keys.key(number, &self.arena);
        bytes.clear();
        bytes.extend_from_slice(key.get(..key.len().saturating_sub(OWNER_BYTES)).unwrap_or_default());
        self.next.get(number as usize).copied().filter(|number| *number != NONE)
    }

    /// Writes the values of a set.
    pub(super) fn save(&self, group: &[u8], at: usize, out: &mut Vec<u8>) {
        let mut next = self.first(group, at);
        while let Some(number) = next {
            let key = self.keys.key(number, &self.arena);
            put_flag(out, true);
            put_bytes(out, key.get(..key.len().saturating_sub(OWNER_BYTES)).unwrap_or_default());
            next = self.next.get(number as usize).copied().filter(|number| *number != NONE);
        }
        put_flag(out, false);
    }

    /// Adds the values that were written to the empty set of an owner, in the order in which they came first.
    pub(super) fn restore(
        &mut self,
        (group, at): (&mut [u8], usize),
        (aggregate, owner): (usize, u32),
        from: &mut SavedBytes<'_>,
    ) -> Result<(), &'static str> {
        let mut values = Vec::new();
        while from.flag()? {
            values.push(from.bytes()?);
        }
        for value in values.iter().rev() {
            self.enter_bytes(group, at, aggregate, owner, value);
        }
        Ok(())
    }

    /// Forgets a set.
    pub(super) fn clear(&mut self, group: &mut [u8], at: usize) {
        let mut next = self.first(group, at);
        while let Some(number) = next {
            next = self.next.get(number as usize).copied().filter(|number| *number != NONE);
            self.keys.remove(number, &mut self.arena);
        }
        store(group, at, [0; 8]);
    }
}
