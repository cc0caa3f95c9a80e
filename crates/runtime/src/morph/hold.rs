//! The records that wait for a conversion: copies, in order, within a bound.
//!
//! They are copied because a pool buffer that waited for minutes would be unavailable to all other traffic.

use crate::graph::build::PIECE_BYTES;
use crossdock_mailbox::Batch;
use std::collections::VecDeque;

/// Bytes that count for an item beside its records.
const ITEM_BYTES: usize = 64;

/// Records of one format that came one after the other.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) format: u64,
    /// The records, back to back; no more than one batch holds.
    pub(crate) bytes: Vec<u8>,
    pub(crate) records: u64,
    /// When the first of them came, in ns.
    pub(crate) at_ns: u64,
}

/// The records that wait for one subscription, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    items: VecDeque<Held>,
    bytes: u64,
    /// The number of waiting records for each format; formats without any are absent.
    formats: Vec<(u64, u64)>,
}

impl Hold {
    /// Appends a batch. Records of one format that come within `merge_ns` of one another share an item.
    pub(crate) fn push(&mut self, batch: &Batch, now_ns: u64, merge_ns: u64) {
        for (index, slice) in batch.slices.iter().enumerate().filter(|(_, slice)| slice.records > 0) {
            let payload = batch.slice(index);
            let joins = |held: &&mut Held| {
                held.format == batch.format
                    && held.bytes.len() + payload.len() <= PIECE_BYTES
                    && now_ns.saturating_sub(held.at_ns) <= merge_ns
            };
            match self.items.back_mut().filter(joins) {
                Some(held) => {
                    held.bytes.extend_from_slice(payload);
                    held.records += u64::from(slice.records);
                }
                None => self.items.push_back(Held {
                    format: batch.format,
                    bytes: payload.to_vec(),
                    records: slice.records.into(),
                    at_ns: now_ns,
                }),
            }
            self.bytes += payload.len() as u64;
            let records = u64::from(slice.records);
            match self.formats.iter_mut().find(|(format, _)| *format == batch.format) {
                Some((_, waiting)) => *waiting += records,
                None => self.formats.push((batch.format, records)),
            }
        }
    }

    /// Takes out the oldest.
    pub(crate) fn pop(&mut self) -> Option<Held> {
        let held = self.items.pop_front()?;
        Some(self.without(held))
    }

    /// Takes out the oldest that came before `before_ns`.
    pub(crate) fn pop_older(&mut self, before_ns: u64) -> Option<Held> {
        if self.oldest_ns()? >= before_ns {
            return None;
        }
        self.pop()
    }

    /// Takes out the oldest of a format that can be read now.
    pub(crate) fn pop_readable(&mut self, readable: impl Fn(u64) -> bool) -> Option<Held> {
        let at = self.items.iter().position(|held| readable(held.format))?;
        let held = self.items.remove(at)?;
        Some(self.without(held))
    }

    fn without(&mut self, held: Held) -> Held {
        self.bytes -= held.bytes.len() as u64;
        self.formats.retain_mut(|(format, waiting)| {
            *waiting -= if *format == held.format { held.records } else { 0 };
            *waiting > 0
        });
        held
    }

    /// Whether records of this format wait.
    #[inline]
    pub(crate) fn has(&self, format: u64) -> bool {
        self.formats.iter().any(|(waiting, _)| *waiting == format)
    }

    /// The formats that wait.
    pub(crate) fn formats(&self) -> Vec<u64> {
        self.formats.iter().map(|(format, _)| *format).collect()
    }

    /// Records of this format that wait.
    pub(crate) fn records_of(&self, format: u64) -> u64 {
        self.formats.iter().filter(|(waiting, _)| *waiting == format).map(|(_, records)| *records).sum()
    }

    /// When the oldest came, in ns.
    pub(crate) fn oldest_ns(&self) -> Option<u64> {
        self.items.front().map(|held| held.at_ns)
    }

    /// Whether no records wait.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The size of the waiting records, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes + (self.items.len() * ITEM_BYTES) as u64
    }

    /// How many records wait.
    pub(crate) fn records(&self) -> u64 {
        self.formats.iter().map(|(_, records)| *records).sum()
    }
}
