//! Records that a durable daemon has taken and has in no checkpoint yet. They are kept, and go to the daemon that was started again, which
//! begins with its last checkpoint.

use super::Link;
use super::backlog::Waiting;
use crate::outgoing::{Message, Outgoing, Unsent, unsent_records};
use crossdock_format::Format;
use std::collections::VecDeque;

/// Bytes that are kept before the publisher takes no more records, as without credit.
const MOST_KEPT_BYTES: usize = 64 << 20;

/// Records that were handed over to be sent and are in no checkpoint, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct KeptRecords {
    /// The number of the first, over all sessions.
    first: u64,
    /// The units in which they were handed over, and how many each has.
    units: VecDeque<(Unsent, u64)>,
    bytes: usize,
}

impl KeptRecords {
    fn new(first: u64) -> KeptRecords {
        KeptRecords { first, ..KeptRecords::default() }
    }

    fn push(&mut self, unit: Unsent, records: u64) {
        self.bytes += unit.records.len();
        self.units.push_back((unit, records));
    }

    /// `durable` records of the publication are in a checkpoint: those units go that have no others.
    fn release(&mut self, durable: u64) {
        while let Some((unit, records)) = self.units.front()
            && self.first.saturating_add(*records) <= durable
        {
            self.bytes -= unit.records.len();
            self.first += records;
            self.units.pop_front();
        }
    }

    fn has_room(&self) -> bool {
        self.bytes < MOST_KEPT_BYTES
    }

    /// All of them, to be sent again.
    fn again(&self) -> impl Iterator<Item = Unsent> {
        self.units.iter().map(|(unit, _)| copy_of(unit))
    }
}

/// The part of it that is not packed yet.
fn copy_of(unit: &Unsent) -> Unsent {
    let records = unit.records.get(unit.done..).unwrap_or_default().to_vec();
    Unsent { stream: unit.stream, format: unit.format, records, done: 0 }
}

impl Link {
    /// The stream is announced to a daemon that has that many records of the publication in a checkpoint, if it is durable. Records that
    /// wait to be sent are kept from here on.
    pub(super) fn begin_keeping(&mut self, durable: Option<u64>) {
        self.changed = true;
        match (durable, &mut self.kept) {
            (None, kept) => *kept = None,
            (Some(durable), Some(kept)) => kept.release(durable),
            (Some(_), none) => {
                let format = self.published.as_ref();
                let waiting = self.backlog.iter().filter_map(|waiting| match waiting {
                    Waiting::Unsent(unsent) => Some((copy_of(unsent), unsent.count(format))),
                    Waiting::Unit(_) => None,
                });
                let units: Vec<(Unsent, u64)> = waiting.collect();
                let records: u64 = units.iter().map(|(_, records)| records).sum();
                let mut kept = KeptRecords::new(self.records.saturating_sub(records));
                units.into_iter().for_each(|(unit, records)| kept.push(unit, records));
                *none = Some(kept);
            }
        }
    }

    /// That many records of the publication are in a checkpoint.
    pub(super) fn release_kept(&mut self, durable: u64) {
        self.changed = true;
        self.kept.iter_mut().for_each(|kept| kept.release(durable));
    }

    /// The session is lost: all that is kept is to be sent again, as far as the daemon that comes does not have it.
    pub(super) fn send_kept_again(&mut self) {
        if let Some(kept) = &self.kept {
            self.backlog = kept.again().map(Waiting::Unsent).collect();
        }
    }

    /// Whether more may be kept.
    pub(super) fn has_room_to_keep(&self) -> bool {
        self.kept.as_ref().is_none_or(KeptRecords::has_room)
    }

    /// Whether no record is out of a checkpoint, if the daemon is durable.
    pub(super) fn is_durable(&self) -> bool {
        self.kept.as_ref().is_none_or(|kept| kept.units.is_empty())
    }

    /// Of the records that wait, those go that the daemon does not have: it has `taken` of all so far, if it says so.
    pub(super) fn resume(&mut self, taken: Option<u64>) {
        if !std::mem::take(&mut self.is_resuming) {
            return;
        }
        let format = self.published.as_ref();
        let unsent = waiting_records(&self.backlog, format);
        let mut known = taken.map_or(0, |taken| taken.saturating_sub(self.records.saturating_sub(unsent)));
        self.repeated_records += unsent.saturating_sub(known);
        for waiting in &mut self.backlog {
            if let Waiting::Unsent(unsent) = waiting {
                known -= unsent.skip(known, format);
            }
        }
        self.pump();
    }

    /// Takes a record that is longer than a packet, behind all else; `false` while there is no room for one.
    pub(crate) fn send_record(&mut self, record: &[u8], stream: u32, format: u64) -> bool {
        let has_room = self.is_up() && self.has_room();
        if has_room {
            self.records += 1;
            let unit = || Unsent { stream, format, records: record.to_vec(), done: 0 };
            self.kept.iter_mut().for_each(|kept| kept.push(unit(), 1));
            self.enqueue(Message::record(record.to_vec(), stream, format));
        }
        has_room
    }

    /// Puts a packet of records, which was begun in the session of that number, behind all else. Datagrams of a lost session are
    /// lost.
    pub(crate) fn end_packet(&mut self, unit: Outgoing, session: u64) {
        if let Outgoing::Records { packet, stream, format } = &unit {
            self.records += packet.records();
            if let Some(kept) = &mut self.kept {
                kept.push(unsent_records(packet, *stream, *format), packet.records());
            }
        }
        if self.is_up() && session == self.sessions {
            self.enqueue(unit);
        } else {
            self.dropped_records += unit.datagram_records();
            self.backlog.extend(unit.unsent().map(Waiting::Unsent));
            self.pump();
        }
    }
}

/// How many records of format `of` wait for the session that comes up.
pub(super) fn waiting_records<'a>(backlog: impl IntoIterator<Item = &'a Waiting>, of: Option<&Format>) -> u64 {
    backlog.into_iter().map(|waiting| waiting.records(of)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(bytes: usize) -> Unsent {
        Unsent { stream: 1, format: 2, records: vec![7; bytes], done: 0 }
    }

    #[test]
    fn units_go_when_all_of_their_records_are_in_a_checkpoint() {
        let mut kept = KeptRecords::new(10);
        for records in [3, 1, 4] {
            kept.push(unit(records), records as u64);
        }
        kept.release(12);
        assert_eq!((kept.first, kept.bytes), (10, 8));
        kept.release(13);
        assert_eq!((kept.first, kept.bytes), (13, 5));
        assert_eq!(kept.again().map(|unit| unit.records.len()).collect::<Vec<_>>(), [1, 4]);
        kept.release(u64::MAX);
        assert_eq!((kept.first, kept.bytes, kept.units.len()), (18, 0, 0));
    }

    #[test]
    fn room_ends_at_the_bound_and_comes_back_with_a_checkpoint() {
        let mut kept = KeptRecords::new(0);
        kept.push(unit(MOST_KEPT_BYTES), 5);
        assert!(!kept.has_room());
        kept.release(5);
        assert!(kept.has_room());
    }

    #[test]
    fn records_of_a_unit_that_are_packed_are_not_kept_once_more() {
        let half = Unsent { done: 3, ..unit(8) };
        assert_eq!(copy_of(&half), unit(5));
    }
}
