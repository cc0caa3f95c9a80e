//! The sample of a stream's records: some of the latest of each format, and how many came at most.

use crossdock_mailbox::Batch;
use std::cell::OnceCell;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of a stream's latest records that are kept, so that costs are measured on real ones.
const SAMPLE_BYTES: usize = 48 << 10;
/// The sample takes a few records of each batch (`PIECE_BYTES`), from batches that came at least `PIECE_INTERVAL_NS`
/// apart: records that come at once are often alike.
const PIECE_BYTES: usize = 1 << 10;
const PIECE_INTERVAL_NS: u64 = 10_000_000;

/// Some of the latest records of one format: what cost estimates rest on.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// The oldest first.
    pieces: VecDeque<Vec<u8>>,
    bytes: usize,
    taken_ns: Option<u64>,
    /// Batches that were taken in part.
    taken: usize,
    /// The records in one piece, once somebody has asked for them since the last change.
    records: OnceCell<Arc<[u8]>>,
}

impl Sample {
    /// Whether it is old enough for a new piece.
    #[inline]
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        self.taken_ns.is_none_or(|at| now_ns >= at + PIECE_INTERVAL_NS)
    }

    /// Takes a copy of some of a batch's records, if it is time to.
    #[inline]
    pub(crate) fn offer(&mut self, now_ns: u64, batch: &Batch) {
        if self.is_due(now_ns) && !batch.is_empty() {
            self.taken_ns = Some(now_ns);
            self.take(batch);
        }
    }

    #[cold]
    fn take(&mut self, batch: &Batch) {
        let mut piece = Vec::new();
        while self.bytes > SAMPLE_BYTES - PIECE_BYTES
            && let Some(oldest) = self.pieces.pop_front()
        {
            self.bytes -= oldest.len();
            piece = oldest;
        }
        piece.clear();
        // From another place in each, with one record at least.
        let first = self.taken * 7 % batch.len();
        for record in (first..batch.len()).map(|index| batch.fragments(index)) {
            if !piece.is_empty() && piece.len() + record.len() > PIECE_BYTES {
                break;
            }
            record.range(0..record.len()).for_each(|bytes| piece.extend_from_slice(bytes));
        }
        self.taken += 1;
        self.records.take();
        self.bytes += piece.len();
        self.pieces.push_back(piece);
    }

    /// Takes records over that came elsewhere, if it has none of its own.
    pub(super) fn learn(&mut self, records: &[u8]) {
        if self.pieces.is_empty() && !records.is_empty() {
            self.records.take();
            self.bytes = records.len();
            self.pieces.push_back(records.to_vec());
        }
    }

    /// The records, one behind the other. They are copied once for all requests between two changes.
    pub(crate) fn records(&self) -> Arc<[u8]> {
        let copy = || self.pieces.iter().map(Vec::as_slice).collect::<Vec<_>>().concat().into();
        Arc::clone(self.records.get_or_init(copy))
    }
}

/// The highest rate of the last minute, over windows of 100 ms: what handlers have to keep up with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peak {
    began_ns: u64,
    records: u64,
    /// The most records of a window, for each twelfth of a minute, and which one that was since the start.
    most: [(u64, u64); Peak::PARTS as usize],
}

impl Peak {
    /// The length of a window, in ns.
    const WINDOW_NS: u64 = 100_000_000;
    /// A rate counts for this long, in ns: more than 11 and at most 12 parts.
    const DECAY_NS: u64 = 60_000_000_000;
    const PARTS: u64 = 12;

    #[inline]
    pub(crate) fn note(&mut self, records: u64, now_ns: u64) {
        if now_ns >= self.began_ns + Self::WINDOW_NS {
            self.end_window(now_ns);
        }
        self.records += records;
    }

    /// The rate was this at least, in records a second, as another context has counted it.
    pub(super) fn at_least(&mut self, msgs_per_s: u64, now_ns: u64) {
        let (part, records) = (Self::part(now_ns), msgs_per_s * Self::WINDOW_NS / 1_000_000_000);
        if let Some((of, most)) = self.most.get_mut((part % Self::PARTS) as usize) {
            *most = if *of == part { records.max(*most) } else { records };
            *of = part;
        }
    }

    fn end_window(&mut self, now_ns: u64) {
        let part = Self::part(self.began_ns);
        if let Some((of, most)) = self.most.get_mut((part % Self::PARTS) as usize) {
            *most = if *of == part { self.records.max(*most) } else { self.records };
            *of = part;
        }
        (self.began_ns, self.records) = (now_ns, 0);
    }

    /// In records a second.
    pub(crate) fn msgs_per_s(&self, now_ns: u64) -> u64 {
        let now = Self::part(now_ns);
        let counts = |of: u64| now.saturating_sub(of) < Self::PARTS;
        let ended = self.most.iter().filter(|(of, _)| counts(*of)).map(|(_, most)| *most);
        let present = if counts(Self::part(self.began_ns)) { self.records } else { 0 };
        ended.fold(present, u64::max) * (1_000_000_000 / Self::WINDOW_NS)
    }

    fn part(ns: u64) -> u64 {
        ns / (Self::DECAY_NS / Self::PARTS)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;
    use crossdock_mailbox::{Pool, PoolConfig, Slice, Span};

    #[test]
    fn a_peak_is_the_highest_rate_of_the_last_minute() {
        const MS: u64 = 1_000_000;
        let mut peak = Peak::default();
        assert_eq!(peak.msgs_per_s(0), 0);
        // A burst of 50 ms, then a tenth of it for two minutes.
        (0..50).for_each(|ms| peak.note(100, ms * MS));
        assert_eq!(peak.msgs_per_s(49 * MS), 50_000);
        let mut seen = Vec::new();
        for ms in 100..120_000 {
            peak.note(5, ms * MS);
            seen.push(peak.msgs_per_s(ms * MS));
        }
        let lasted_ms = seen.iter().filter(|rate| **rate == 50_000).count() + 100;
        assert!((55_000..=60_000).contains(&lasted_ms), "{lasted_ms}");
        assert!(seen.iter().skip(60_000).all(|rate| (5000..=5050).contains(rate)));
        // It goes with the records, also where none come any more.
        assert_eq!(peak.msgs_per_s(181_000 * MS), 0);
        peak.note(7, 200_000 * MS);
        assert_eq!(peak.msgs_per_s(200_000 * MS), 70);
        // A count of another context is no addition to the count here.
        peak.at_least(60, 200_000 * MS);
        assert_eq!(peak.msgs_per_s(200_000 * MS), 70);
        peak.at_least(90, 200_000 * MS);
        assert_eq!((peak.msgs_per_s(200_000 * MS), peak.msgs_per_s(281_000 * MS)), (90, 0));
    }

    #[test]
    fn a_sample_is_some_records_each_of_the_latest_batches() {
        let mut pool = Pool::new(PoolConfig { classes: vec![(64 << 10, 4)] }).unwrap();
        let mut batch_of = |records: usize, len: usize, fill: u8| {
            let mut buffer = pool.alloc(64 << 10).unwrap();
            buffer.get_mut(..records * len).unwrap().fill(fill);
            let mut batch = Batch::new();
            let span = |at| Span { slice: 0, start: (at * len) as u32, len: len as u32 };
            batch.records.extend((0..records).map(span));
            batch.push_buffer(buffer.freeze()).unwrap();
            let slice = Slice { buffer: 0, start: 0, len: (records * len) as u32, records: records as u32 };
            batch.push_slice(slice).unwrap();
            batch
        };
        let mut sample = Sample::default();
        for number in 0..200u64 {
            sample.offer(number * PIECE_INTERVAL_NS / 2, &batch_of(20, 100, number as u8));
        }
        let records = sample.records();
        assert!(records.len() <= SAMPLE_BYTES && records.len().is_multiple_of(100));
        let from: Vec<u8> = records.chunk_by(|a, b| a == b).map(|piece| piece[0]).collect();
        assert!(from.windows(2).all(|pair| pair[1] == pair[0] + 2), "every other batch came too soon: {from:?}");
        assert_eq!(from.last(), Some(&198));
        assert!(from.len() > 40, "{from:?}");
        // A record that is longer than a piece is one.
        for number in 1000..1004 {
            sample.offer(number * PIECE_INTERVAL_NS, &batch_of(1, 60_000, 7));
        }
        assert_eq!(*sample.records(), [7; 60_000]);
        sample.offer(2000 * PIECE_INTERVAL_NS, &Batch::new());
        assert_eq!(sample.records().len(), 60_000);
    }
}
