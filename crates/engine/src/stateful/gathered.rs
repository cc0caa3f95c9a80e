//! Rows that have come and are not put in yet: the memory that each needs comes into the cache while that of the others does.

use super::keys::Keys;

/// Rows that are gathered before they are put in, and their bytes.
pub(super) const MOST: usize = 32;
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
    /// Adds a row. Whether they are enough to be put in.
    #[inline]
    pub(super) fn push(&mut self, row: &[u8], key: &[u8], keys: &Keys, with: T) -> bool {
        let hash = keys.hash(key);
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

    /// Looks for the numbers of all rows' keys.
    #[inline]
    pub(super) fn find(&mut self, keys: &Keys) {
        let touched = self.rows.iter().fold(0, |sum: u64, row| sum.wrapping_add(keys.touch(row.hash)));
        std::hint::black_box(touched);
        self.rows.iter_mut().for_each(|row| row.found = keys.glance(row.hash));
    }

    /// The numbers of the keys that the rows may have, as far as they were found.
    #[inline]
    pub(super) fn known(&self) -> impl Iterator<Item = u32> + Clone {
        self.rows.iter().filter_map(|row| row.found)
    }

    /// Hands over each row, its key, the key's hash, and what is known of it; none is left.
    #[inline]
    pub(super) fn drain(&mut self, mut each: impl FnMut(&[u8], &[u8], u32, T)) {
        let mut from = 0;
        for GatheredRow { row_end, key_end, hash, with, .. } in self.rows.drain(..) {
            if let (Some(row), Some(key)) = (self.bytes.get(from..row_end), self.bytes.get(row_end..key_end)) {
                each(row, key, hash, with);
            }
            from = key_end;
        }
        self.bytes.clear();
        // The memory of a long row does not stay.
        self.bytes.shrink_to(2 * MOST_BYTES);
    }
}
