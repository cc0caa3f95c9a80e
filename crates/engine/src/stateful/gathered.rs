//! Rows that have come and are not put in yet: the memory that each needs comes into the cache while that of the others does.

use super::keys::Keys;

/// Rows that are gathered before they are put in, and their bytes.
const MOST: usize = 32;
const MOST_BYTES: usize = 64 << 10;

/// Rows with their keys, and something that is known of each. None are left when the handler has run.
#[derive(Debug)]
pub(super) struct Gathered<T> {
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

impl<T> Default for Gathered<T> {
    fn default() -> Gathered<T> {
        Gathered { bytes: Vec::new(), rows: Vec::new() }
    }
}

impl<T> Gathered<T> {
    /// Adds a row, and asks for its key's place in the index. Whether they are enough to be put in.
    #[inline]
    pub(super) fn push(&mut self, row: &[u8], key: &[u8], keys: &Keys, with: T) -> bool {
        let hash = keys.hash(key);
        keys.prefetch(hash);
        self.bytes.extend_from_slice(row);
        let row_end = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.rows.push(GatheredRow { row_end, key_end: self.bytes.len(), hash, found: None, with });
        self.rows.len() >= MOST || self.bytes.len() >= MOST_BYTES
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many rows there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Looks for the numbers of all rows' keys.
    #[inline]
    pub(super) fn find(&mut self, keys: &Keys) {
        self.rows.iter_mut().for_each(|row| row.found = keys.glance(row.hash));
    }

    /// Looks for the number of the key of a row, if there is such a row.
    #[inline]
    pub(super) fn find_one(&mut self, place: usize, keys: &Keys) -> Option<u32> {
        let row = self.rows.get_mut(place)?;
        row.found = keys.glance(row.hash);
        row.found
    }

    /// The number of the key that a row may have, if it was found.
    #[inline]
    pub(super) fn found(&self, place: usize) -> Option<u32> {
        self.rows.get(place)?.found
    }

    /// The numbers of the keys that the rows may have, as far as they were found.
    #[inline]
    pub(super) fn known(&self) -> impl Iterator<Item = u32> + Clone {
        self.rows.iter().filter_map(|row| row.found)
    }

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

    /// Lets go of the rows.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.bytes.clear();
        // The memory of a long row does not stay.
        self.bytes.shrink_to(2 * MOST_BYTES);
    }
}
