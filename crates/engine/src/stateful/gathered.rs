//! Rows that have come and are not put in yet: the memory that they will need is on its way into the cache while others are put in.

use super::keys::Keys;

/// Rows of a group, and their bytes.
const MOST: usize = 32;
const MOST_BYTES: usize = 16 << 10;

/// Rows with their keys, and something that is known of each, in as many groups as there are steps of a prefetch. While the rows of the
/// last group are put in, the memory is asked for that the rows of each other group need next: first a key's place in the index, then
/// that to which it leads, and so on. None are left when the handler has run.
#[derive(Debug)]
pub(super) struct Gathered<T, const DEPTH: usize> {
    /// The newest first, which is not full.
    groups: [GatheredRows<T>; DEPTH],
    has_put: bool,
}

/// Some of them.
#[derive(Debug)]
pub(super) struct GatheredRows<T> {
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

impl<T, const DEPTH: usize> Default for Gathered<T, DEPTH> {
    fn default() -> Self {
        Gathered { groups: std::array::from_fn(|_| GatheredRows::default()), has_put: false }
    }
}

impl<T> Default for GatheredRows<T> {
    fn default() -> GatheredRows<T> {
        GatheredRows { bytes: Vec::new(), rows: Vec::new() }
    }
}

impl<T, const DEPTH: usize> Gathered<T, DEPTH> {
    /// Adds a row, and asks for its key's place in the index. Whether the groups are to move on.
    #[inline]
    pub(super) fn push(&mut self, row: &[u8], key: &[u8], keys: &Keys, with: T) -> bool {
        let hash = keys.hash(key);
        keys.prefetch(hash);
        let Some(GatheredRows { bytes, rows }) = self.groups.first_mut() else { return false };
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

    /// Notes that a row was put in that could not wait.
    #[inline]
    pub(super) fn note_put(&mut self) {
        self.has_put = true;
    }

    /// Whether rows were put in since this was last asked.
    #[inline]
    pub(super) fn has_put_since(&mut self) -> bool {
        std::mem::take(&mut self.has_put)
    }

    /// The group whose rows are to be put in, and the number of rows in the longest of all that move on.
    #[inline]
    pub(super) fn take_last(&mut self) -> (GatheredRows<T>, usize) {
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
    pub(super) fn move_on(&mut self, mut last: GatheredRows<T>) {
        self.has_put |= !last.rows.is_empty();
        last.rows.clear();
        last.bytes.clear();
        // The memory of a long row does not stay.
        last.bytes.shrink_to(2 * MOST_BYTES);
        self.groups.rotate_right(1);
        self.groups.first_mut().into_iter().for_each(|first| std::mem::swap(first, &mut last));
    }
}

impl<T> GatheredRows<T> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows, long ones among them; some are put in while others come.
    #[test]
    fn rows_leave_in_the_order_in_which_they_came() {
        let (mut gathered, keys) = (Gathered::<usize, 4>::default(), Keys::default());
        let (mut seen, mut rounds) = (0, 0);
        let mut put = |gathered: &mut Gathered<usize, 4>| {
            let (last, most) = gathered.take_last();
            for (row, key, hash, number) in last.iter() {
                assert_eq!((*number, row.len(), key), (seen, length(seen), &seen.to_le_bytes()[..]));
                assert_eq!(hash, keys.hash(key));
                seen += 1;
            }
            assert!(
                (0..most + 1).all(|place| gathered.find(place, &keys).is_none() && gathered.found(2, place).is_none())
            );
            gathered.move_on(last);
            rounds += 1;
        };
        for number in 0..300_usize {
            if gathered.push(&vec![7; length(number)], &number.to_le_bytes(), &keys, number) {
                put(&mut gathered);
            }
        }
        assert!(gathered.has_put_since() && !gathered.has_put_since() && !gathered.is_empty());
        while !gathered.is_empty() {
            put(&mut gathered);
        }
        assert!(seen == 300 && rounds > 300 / MOST + 4);
    }

    fn length(number: usize) -> usize {
        if number.is_multiple_of(50) { MOST_BYTES } else { number % 7 }
    }
}
