//! Output of a node that found no buffer.

use crate::graph::bounds::MAX_SPILL_BYTES;

/// Bytes of where a record ends.
const END_BYTES: usize = size_of::<usize>();

/// Output that found no buffer, in order: it leaves before the node runs again.
#[derive(Clone, Debug)]
pub(crate) struct Spill {
    pub(crate) bytes: Vec<u8>,
    pub(crate) ends: Vec<usize>,
    /// How many of the records have left.
    left: usize,
    /// The format of the records.
    pub(crate) format: u64,
    /// How many bytes it takes, those of the ends among them.
    pub(super) most: usize,
}

impl Default for Spill {
    fn default() -> Spill {
        Spill { bytes: Vec::new(), ends: Vec::new(), left: 0, format: 0, most: MAX_SPILL_BYTES }
    }
}

impl Spill {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.left >= self.ends.len()
    }

    /// Records that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.ends.len() - self.left
    }

    pub(crate) fn clear(&mut self) {
        // More is hardly ever needed again.
        self.bytes.clear();
        self.bytes.shrink_to(MAX_SPILL_BYTES);
        self.ends.clear();
        self.ends.shrink_to(MAX_SPILL_BYTES / END_BYTES);
        self.left = 0;
    }

    /// Records of that length, in bytes, for which there is room in an empty one: one at least, however long it is.
    pub(super) fn fitting(bytes: usize) -> usize {
        (MAX_SPILL_BYTES / (bytes + END_BYTES)).max(1)
    }

    /// Takes a record; false where it has no room for it. An empty one has room for any.
    pub(crate) fn push(&mut self, record: &[u8]) -> bool {
        let bytes = self.bytes.len() + record.len() + (self.ends.len() + 1) * END_BYTES;
        let has_room = self.ends.is_empty() || bytes <= self.most;
        if has_room {
            self.bytes.extend_from_slice(record);
            self.ends.push(self.bytes.len());
        }
        has_room
    }

    /// The record that leaves first.
    pub(super) fn first(&self) -> Option<&[u8]> {
        let start = self.left.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.bytes.get(start..*self.ends.get(self.left)?)
    }

    /// The record that leaves first has left.
    pub(super) fn note_left(&mut self) {
        self.left = (self.left + 1).min(self.ends.len());
        if self.is_empty() {
            self.clear();
        }
    }

    /// The length of the record that leaves first, in bytes; 0 if there is none.
    #[inline]
    pub(crate) fn first_bytes(&self) -> usize {
        self.first().map_or(0, <[u8]>::len)
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).skip(self.left).filter_map(|(start, end)| self.bytes.get(start..*end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_transport::MAX_MESSAGE_BYTES;

    #[test]
    fn short_records_take_no_more_than_its_bound_and_leave_little_behind() {
        let mut spill = Spill { most: 4 * MAX_SPILL_BYTES, ..Spill::default() };
        let mut records = 0;
        while spill.push(&[]) {
            records += 1;
        }
        assert_eq!(records, 4 * MAX_SPILL_BYTES / END_BYTES);
        spill.clear();
        assert!(spill.is_empty() && spill.ends.capacity() * END_BYTES <= MAX_SPILL_BYTES);
        assert!(spill.push(&[1; 100]) && spill.first_bytes() == 100);
    }

    #[test]
    fn as_many_records_as_fit_find_room_and_the_longest_does() {
        for bytes in [MAX_MESSAGE_BYTES, MAX_SPILL_BYTES / 2, 1 << 20, 65_000] {
            let (mut spill, record) = (Spill::default(), vec![0; bytes]);
            assert!((0..Spill::fitting(bytes)).all(|_| spill.push(&record)), "{bytes}");
            assert!(!spill.push(&record), "{bytes}: it is bounded");
        }
    }
}
