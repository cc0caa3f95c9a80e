//! Rows that have come and are not put in yet: the memory that they will need is on its way into the cache while others are put in.

use super::keys::Keys;

/// Rows of a group, and their bytes.
const MOST: usize = 32;
const MOST_BYTES: usize = 64 << 10;

/// Rows with their keys, and something that is known of each, in groups. While the rows of the last group are put in, what those of each
/// other one need next is asked for: first a key's place in the index, then what that leads to, and so on. None are left when the
/// handler has run.
#[derive(Debug)]
pub(super) struct Gathered<T, const GROUPS: usize> {
    /// The newest first, which is not full.
    groups: [Group<T>; GROUPS],
    has_put: bool,
}

/// Some of them.
#[derive(Debug)]
pub(super) struct Group<T> {
    bytes: Vec<u8>,
    rows: Vec<GatheredRow<T>>,
}

/// Behind a row stands its key.
#[derive(Debug)]
struct GatheredRow<T> {
    row_end: usize,
    key_end: usize,
    hash: u32,
    /// The number of the key that it may be, once that was looked for.
    found: Option<u32>,
    with: T,
}

impl<T, const GROUPS: usize> Default for Gathered<T, GROUPS> {
    fn default() -> Self {
        Gathered { groups: std::array::from_fn(|_| Group::default()), has_put: false }
    }
}

impl<T> Default for Group<T> {
    fn default() -> Group<T> {
        Group { bytes: Vec::new(), rows: Vec::new() }
    }
}

impl<T, const GROUPS: usize> Gathered<T, GROUPS> {
    /// Adds a row, and asks for its key's place in the index. Whether the groups are to move on.
    #[inline]
    pub(super) fn push(&mut self, row: &[u8], key: &[u8], keys: &Keys, with: T) -> bool {
        let hash = keys.hash(key);
        keys.prefetch(hash);
        let Some(Group { bytes, rows }) = self.groups.first_mut() else { return false };
        bytes.extend_from_slice(row);
        let row_end = bytes.len();
        bytes.extend_from_slice(key);
        rows.push(GatheredRow { row_end, key_end: bytes.len(), hash, found: None, with });
        rows.len() >= MOST || bytes.len() >= MOST_BYTES
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.groups.iter().all(|group| group.rows.is_empty())
    }

    /// Whether rows were put in since this was last asked.
    #[inline]
    pub(super) fn take_put(&mut self) -> bool {
        std::mem::take(&mut self.has_put)
    }

    /// The group whose rows are to be put in, and the number of rows in the longest of all that move on.
    #[inline]
    pub(super) fn take_last(&mut self) -> (Group<T>, usize) {
        let most = self.groups.iter().skip(1).map(|group| group.rows.len()).max().unwrap_or(0);
        (self.groups.last_mut().map(std::mem::take).unwrap_or_default(), most)
    }

    /// Looks for the number of the key of a row of the second group, whose place in the index has come.
    #[inline]
    pub(super) fn find(&mut self, place: usize, keys: &Keys) -> Option<u32> {
        let row = self.groups.get_mut(1)?.rows.get_mut(place)?;
        row.found = keys.glance(row.hash);
        row.found
    }

    /// The number of the key that a row of a later group may have, if it was found.
    #[inline]
    pub(super) fn found(&self, group: usize, place: usize) -> Option<u32> {
        self.groups.get(group)?.rows.get(place)?.found
    }

    /// All groups move on; the rows of this one have been put in.
    #[inline]
    pub(super) fn move_on(&mut self, mut last: Group<T>) {
        self.has_put |= !last.rows.is_empty();
        last.rows.clear();
        last.bytes.clear();
        // The memory of a long row does not stay.
        last.bytes.shrink_to(2 * MOST_BYTES);
        self.groups.rotate_right(1);
        self.groups.first_mut().into_iter().for_each(|first| std::mem::swap(first, &mut last));
    }
}

impl<T> Group<T> {
    /// Each row, its key, the key's hash, and what is known of it.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8], u32, &T)> {
        let mut from = 0;
        self.rows.iter().map(move |GatheredRow { row_end, key_end, hash, with, .. }| {
            let row = self.bytes.get(from..*row_end).unwrap_or_default();
            from = *key_end;
            (row, self.bytes.get(*row_end..*key_end).unwrap_or_default(), *hash, with)
        })
    }
}
