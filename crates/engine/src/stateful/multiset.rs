//! The values of groups, in order, with how often each is there: for aggregates from which values are taken out again.

use crossdock_format::{Format, Value};

use super::keys::KeyColumns;
use super::ranked::Ranked;
use crate::saved::{SavedBytes, counted, put_bytes, put_flag};

/// The values of one aggregate of one group: the group by a number of its own, and the number of the aggregate.
pub(super) type Owner = (u32, u16);

/// The bytes of an owner, in front of a value.
const OWNER_BYTES: usize = 6;

/// The values. A value takes a place in one order of all owners, so that the least and the greatest of an owner are found in a few steps.
#[derive(Debug, Default)]
pub(super) struct Multiset {
    /// The column of each aggregate, if its values are kept.
    columns: Vec<Option<KeyColumns>>,
    ranked: Ranked,
    key: Vec<u8>,
    count: Vec<u8>,
}

impl Multiset {
    /// Without values, for aggregates of these columns.
    ///
    /// # Errors
    /// In words: a column is a list.
    pub(super) fn of(input: &Format, columns: impl Iterator<Item = Option<usize>>) -> Result<Multiset, String> {
        let columns = columns.map(|column| column.map(|column| KeyColumns::of(input, &[column], true)).transpose());
        Ok(Multiset { columns: columns.collect::<Result<_, String>>()?, ..Multiset::default() })
    }

    /// How many bytes are in use.
    pub(super) fn used(&self) -> usize {
        self.ranked.used()
    }

    /// Adds a value; returns whether it was not there.
    pub(super) fn add(&mut self, owner: Owner, value: &Value<'_>) -> bool {
        self.set_key(owner, value);
        match self.ranked.row_mut(&self.key).and_then(|row| row.first_chunk_mut()) {
            Some(count) => {
                *count = u64::from_le_bytes(*count).saturating_add(1).to_le_bytes();
                false
            }
            None => {
                self.ranked.insert(&self.key, &1u64.to_le_bytes(), 1);
                true
            }
        }
    }

    /// Takes a value out: whether it was the last of its kind; nothing if there is none.
    pub(super) fn take(&mut self, owner: Owner, value: &Value<'_>) -> Option<bool> {
        self.set_key(owner, value);
        let count = self.ranked.row_mut(&self.key)?.first_chunk_mut()?;
        let left = u64::from_le_bytes(*count).saturating_sub(1);
        *count = left.to_le_bytes();
        if left == 0 {
            self.ranked.remove(&self.key, &mut self.count, 1);
        }
        Some(left == 0)
    }

    /// The least value of an owner.
    pub(super) fn least(&self, owner: Owner) -> Value<'_> {
        let prefix = prefix(owner, 0);
        self.value(owner, self.ranked.first_from(&prefix))
    }

    /// The greatest value of an owner.
    pub(super) fn greatest(&self, owner: Owner) -> Value<'_> {
        self.value(owner, self.ranked.last_before(&prefix(owner, 1)))
    }

    /// Lets all values of an owner go.
    pub(super) fn clear(&mut self, owner: Owner) {
        let prefix = prefix(owner, 0);
        while let Some(key) = self.ranked.first_from(&prefix).filter(|key| key.starts_with(&prefix)) {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.ranked.remove(&self.key, &mut self.count, 1);
        }
    }

    /// Writes the values of an owner.
    pub(super) fn save(&self, owner: Owner, out: &mut Vec<u8>) {
        let prefix = prefix(owner, 0);
        let mut from = prefix.to_vec();
        while let Some((key, count)) = self.ranked.entry_from(&from).filter(|(key, _)| key.starts_with(&prefix)) {
            put_flag(out, true);
            put_bytes(out, key.get(OWNER_BYTES..).unwrap_or_default());
            out.extend_from_slice(count);
            from.clear();
            from.extend_from_slice(key);
            // The next key is not less than this.
            from.push(0);
        }
        put_flag(out, false);
    }

    /// Adds the values that were written to an owner without any; whether there are some.
    ///
    /// # Errors
    /// They are none of its column's, or one is there twice.
    pub(super) fn restore(&mut self, owner: Owner, from: &mut SavedBytes<'_>) -> Result<bool, &'static str> {
        let mut any = false;
        while from.flag()? {
            let (value, count) = (from.bytes()?, counted(from.u64()?)?);
            self.key.clear();
            self.key.extend_from_slice(&prefix(owner, 0));
            if let Some(Some(columns)) = self.columns.get(usize::from(owner.1)) {
                columns.append_single(&columns.single(value), &mut self.key);
            }
            let is_same = self.key.get(OWNER_BYTES..) == Some(value);
            if count == 0 || !is_same || self.ranked.row_mut(&self.key).is_some() {
                return Err("a value of a group is none of its column's");
            }
            self.ranked.insert(&self.key, &count.to_le_bytes(), 1).ok_or("a value of a group has no room")?;
            any = true;
        }
        Ok(any)
    }

    fn set_key(&mut self, owner: Owner, value: &Value<'_>) {
        self.key.clear();
        self.key.extend_from_slice(&prefix(owner, 0));
        if let Some(Some(columns)) = self.columns.get(usize::from(owner.1)) {
            columns.append_single(value, &mut self.key);
        }
    }

    fn value<'v>(&'v self, owner: Owner, key: Option<&'v [u8]>) -> Value<'v> {
        let of_owner = key.filter(|key| key.starts_with(&prefix(owner, 0)));
        match (of_owner.and_then(|key| key.get(OWNER_BYTES..)), self.columns.get(usize::from(owner.1))) {
            (Some(bytes), Some(Some(columns))) => columns.single(bytes),
            _ => Value::Null,
        }
    }
}

/// The bytes in front of an owner's values, or of those of an owner behind it.
fn prefix((group, aggregate): Owner, behind: u64) -> [u8; OWNER_BYTES] {
    let number = (u64::from(group) << 16 | u64::from(aggregate)) + behind;
    let [_, _, rest @ ..] = number.to_be_bytes();
    rest
}
