//! The class *datagram*: packets with records that are sent once, and neither kept in order nor sent again.
//!
//! Datagrams have a sequence of their own numbers and no credit, but the congestion window and the pace of their session. The
//! sender keeps a short queue of those for which the path has no room at the moment, and drops the oldest when it is full. The
//! receiver delivers each number once at most ([`Recent`]), and reports with its acks up to where it has seen numbers, and how many
//! of them: so both sides know how many are missing, the sender with a delay. These reports are acks to the sender's congestion
//! control: they measure the round trip, and what is missing slows it down.

use std::collections::VecDeque;
use std::ops::Range;

/// Bytes of datagrams that wait for room on the path at most: four super-packets.
pub const DATAGRAM_QUEUE_BYTES: u64 = 256 << 10;

/// Numbers below the highest that are distinguished: one that comes later than this number of others is dropped, since it may have
/// come before.
pub const RECENT_DATAGRAMS: u64 = 1024;

/// Numbers by which a datagram may be ahead of all that have arrived: no session outlives the loss of this number in a row, and
/// one that is forged would end the class.
const MOST_AHEAD: u64 = 1 << 20;

/// The words of [`Recent`].
const WORDS: usize = RECENT_DATAGRAMS as usize / 64;

/// The datagrams of a receiver, in the sequence of their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramReport {
    /// Behind the highest number that has arrived.
    pub end: u64,
    /// How many have arrived of those below it, each counted once.
    pub arrived: u64,
}

impl DatagramReport {
    /// How many have not arrived: they are lost, or late.
    #[must_use]
    pub fn missing(self) -> u64 {
        self.end.saturating_sub(self.arrived)
    }
}

/// The numbers that have arrived lately.
#[derive(Debug)]
pub struct Recent {
    report: DatagramReport,
    /// Bit n % [`RECENT_DATAGRAMS`]: number n has arrived, of the last ones below the end.
    seen: [u64; WORDS],
}

impl Default for Recent {
    fn default() -> Recent {
        Recent { report: DatagramReport::default(), seen: [0; WORDS] }
    }
}

impl Recent {
    /// The numbers so far.
    #[must_use]
    pub fn report(&self) -> DatagramReport {
        self.report
    }

    /// Packets of consecutive numbers have arrived, at most 64: bit i says whether packet i is to be delivered. The others were
    /// delivered before, are so late that this is not known, or are further ahead than any sender's.
    pub fn arrive(&mut self, first: u64, packets: u32) -> u64 {
        let packets = u64::from(packets.min(64));
        let Some(end) = first.checked_add(packets) else { return 0 };
        if first > self.report.end.saturating_add(MOST_AHEAD) {
            return 0;
        }
        if end > self.report.end {
            self.advance(end);
        }
        let oldest = self.report.end.saturating_sub(RECENT_DATAGRAMS);
        let mut fresh = 0u64;
        for index in 0..packets {
            let number = first + index;
            let (word, bit) = (number as usize / 64 % WORDS, 1 << (number % 64));
            if number >= oldest && self.seen[word] & bit == 0 {
                self.seen[word] |= bit;
                fresh |= 1 << index;
            }
        }
        self.report.arrived += u64::from(fresh.count_ones());
        fresh
    }

    /// The end moves: the numbers up to it have not arrived.
    fn advance(&mut self, end: u64) {
        let from = self.report.end;
        if end - from >= RECENT_DATAGRAMS {
            self.seen = [0; WORDS];
        } else {
            for number in from..end {
                self.seen[number as usize / 64 % WORDS] &= !(1 << (number % 64));
            }
        }
        self.report.end = end;
    }
}

/// The counts of a sender's datagrams so far, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramStats {
    /// Packets sent.
    pub sent: u64,
    /// Packets dropped before they were sent: the path had no room for them.
    pub dropped: u64,
    /// Packets that the receiver misses, by its last ack.
    pub missing: u64,
}

/// A unit that waits, or was sent in part.
#[derive(Debug)]
struct Waiting<P> {
    payload: P,
    packets: u32,
    sent: u32,
    packet_bytes: u64,
}

impl<P> Waiting<P> {
    fn unsent_bytes(&self) -> u64 {
        u64::from(self.packets - self.sent) * self.packet_bytes
    }
}

/// Packets that left together.
#[derive(Clone, Copy, Debug)]
struct OnTheWay {
    end: u64,
    packets: u64,
    bytes: u64,
    sent_ns: u64,
    /// The transmission of the first of them.
    first_tx: u64,
}

impl OnTheWay {
    /// The number of the first of them.
    fn first(&self) -> u64 {
        self.end - self.packets
    }

    /// Bytes of each.
    fn packet_bytes(&self) -> u64 {
        self.bytes / self.packets.max(1)
    }
}

/// The content of an ack for the datagrams of a sender.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reported {
    /// Whether it brought something new.
    pub(crate) any: bool,
    /// Packets that have arrived since the report before.
    pub(crate) arrived: u64,
    /// Bytes that have arrived, of those that were sent since the congestion window last shrank.
    pub(crate) bytes: u64,
    /// The newest transmission that has arrived, and when it was made, in ns; if it is newer than those reported before.
    pub(crate) newest: Option<(u64, u64)>,
    /// The length of that packet, in bytes.
    pub(crate) newest_bytes: u64,
    /// Packets that count as lost from now on, and the newest transmission that can be one of them.
    pub(crate) lost: u64,
    pub(crate) lost_tx: u64,
    /// The longest that can be one of them, in bytes.
    pub(crate) lost_bytes: u64,
}

/// Packets that are missing, and may be late.
#[derive(Clone, Copy, Debug)]
struct Suspected {
    since_ns: u64,
    /// How many are missing in all, at least since then.
    least: u64,
    /// The newest transmission that was reported by then.
    newest_tx: u64,
}

/// The datagrams of a sender: what waits for room on the path, and what is on the way.
#[derive(Debug)]
pub(crate) struct Outbox<P> {
    queue: VecDeque<Waiting<P>>,
    queued_bytes: u64,
    next_seq: u64,
    flight: VecDeque<OnTheWay>,
    flight_bytes: u64,
    /// The receiver's newest report.
    report: DatagramReport,
    /// Packets that count as lost with the congestion control.
    lost: u64,
    /// More are missing than that.
    suspected: Option<Suspected>,
    /// How many were missing when bytes were last counted as arrived.
    discounted: u64,
    /// The newest transmission that was reported.
    newest_tx: u64,
    /// Behind the last number of those that were given up without a word from the receiver.
    expired_end: u64,
    /// The longest packet that a report has covered since some counted as lost, in bytes.
    longest_bytes: u64,
    stats: DatagramStats,
}

impl<P> Outbox<P> {
    pub(crate) fn new() -> Outbox<P> {
        Outbox {
            queue: VecDeque::new(),
            queued_bytes: 0,
            next_seq: 0,
            flight: VecDeque::new(),
            flight_bytes: 0,
            report: DatagramReport::default(),
            lost: 0,
            suspected: None,
            discounted: 0,
            newest_tx: 0,
            expired_end: 0,
            longest_bytes: 0,
            stats: DatagramStats::default(),
        }
    }

    /// Queues a unit; what has to go for it goes to `drop`, with the packets of it that were never sent.
    pub(crate) fn push(&mut self, payload: P, packets: u32, bytes: u64, mut drop: impl FnMut(P, Range<u32>)) {
        let packet_bytes = bytes.div_ceil(packets.max(1).into()).max(1);
        let unit = Waiting { payload, packets, sent: 0, packet_bytes };
        self.queued_bytes += unit.unsent_bytes();
        self.queue.push_back(unit);
        while self.queued_bytes > DATAGRAM_QUEUE_BYTES && self.queue.len() > 1 {
            self.drop_next(&mut drop);
        }
    }

    /// The unit that is next goes to `drop`, with the packets of it that were never sent.
    pub(crate) fn drop_next(&mut self, drop: impl FnOnce(P, Range<u32>)) {
        let Some(unit) = self.queue.pop_front() else { return };
        self.queued_bytes -= unit.unsent_bytes();
        self.stats.dropped += u64::from(unit.packets - unit.sent);
        drop(unit.payload, unit.sent..unit.packets);
    }

    /// All that waits goes to `drop`, and what was not reported is missing.
    pub(crate) fn lose(&mut self, mut drop: impl FnMut(P, Range<u32>)) {
        while !self.queue.is_empty() {
            self.drop_next(&mut drop);
        }
        self.stats.missing = self.next_seq - self.report.arrived;
    }

    /// The packets of the next unit that were not sent, and the bytes of each.
    pub(crate) fn next(&self) -> Option<(Range<u32>, u64)> {
        self.queue.front().map(|unit| (unit.sent..unit.packets, unit.packet_bytes))
    }

    /// Its payload, and the number of its packet 0.
    pub(crate) fn payload_mut(&mut self) -> Option<(&mut P, u64)> {
        let next_seq = self.next_seq;
        self.queue.front_mut().map(|unit| (&mut unit.payload, next_seq.wrapping_sub(unit.sent.into())))
    }

    /// The next `packets` packets have left, at `now_ns`, as transmission `first_tx` and those that follow; how many bytes they were, and the payload if nothing is left of it.
    pub(crate) fn sent(&mut self, packets: u32, now_ns: u64, first_tx: u64) -> (u64, Option<P>) {
        let Some(unit) = self.queue.front_mut() else { return (0, None) };
        let bytes = u64::from(packets) * unit.packet_bytes;
        unit.sent += packets;
        self.queued_bytes -= bytes;
        self.next_seq += u64::from(packets);
        self.stats.sent += u64::from(packets);
        self.flight_bytes += bytes;
        let (end, packets) = (self.next_seq, packets.into());
        self.flight.push_back(OnTheWay { end, packets, bytes, sent_ns: now_ns, first_tx });
        let is_over = unit.sent >= unit.packets;
        (bytes, if is_over { self.queue.pop_front().map(|unit| unit.payload) } else { None })
    }

    pub(crate) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    pub(crate) fn flight_bytes(&self) -> u64 {
        self.flight_bytes
    }

    /// Units that wait.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn stats(&self) -> DatagramStats {
        self.stats
    }

    /// Takes a receiver's report. A packet that is missing from reports for longer than `patience_ns` is lost; until then it may be
    /// late. An older report that comes after a newer one says nothing, nor does the arrival of what left before transmission
    /// `recovery_tx` let the congestion window grow.
    pub(crate) fn reported(
        &mut self,
        report: DatagramReport,
        now_ns: u64,
        patience_ns: u64,
        recovery_tx: u64,
    ) -> Reported {
        let mut reported = Reported::default();
        if report.end < self.report.end || report.arrived < self.report.arrived {
            return reported;
        }
        let before = std::mem::replace(&mut self.report, report);
        reported.any = report != before;
        reported.arrived = report.arrived - before.arrived;
        if report.end > before.end {
            let newest = self.newest(report.end);
            reported.newest_bytes = newest.map_or(0, OnTheWay::packet_bytes);
            reported.newest = newest.map(|sent| (sent.first_tx + (report.end - 1 - sent.first()), sent.sent_ns));
            self.newest_tx = reported.newest.map_or(self.newest_tx, |(tx, _)| tx);
        }
        // With those that were given up the window has shrunk already.
        let given_up = self.expired_end.min(report.end).saturating_sub(before.end);
        let given_up = given_up.min(report.missing().saturating_sub(before.missing()));
        self.lost += given_up;
        self.discounted += given_up;
        reported.bytes = self.land(report, recovery_tx);
        self.stats.missing = report.missing();
        (reported.lost, reported.lost_tx) = self.suspect(report.missing(), now_ns, patience_ns);
        if reported.lost > 0 {
            reported.lost_bytes = std::mem::take(&mut self.longest_bytes);
        }
        reported
    }

    /// The packets with the one below `end`.
    fn newest(&self, end: u64) -> Option<&OnTheWay> {
        let at = self.flight.partition_point(|sent| sent.end < end);
        self.flight.get(at).filter(|sent| sent.first() < end)
    }

    /// Those up to the end are not on the way any more; the bytes that have arrived of them, from transmission `recovery_tx` on.
    fn land(&mut self, report: DatagramReport, recovery_tx: u64) -> u64 {
        let (mut packets, mut bytes, mut new_bytes) = (0, 0, 0);
        while let Some(sent) = self.flight.front().filter(|sent| sent.end <= report.end).copied() {
            self.flight.pop_front();
            self.flight_bytes -= sent.bytes;
            self.longest_bytes = self.longest_bytes.max(sent.packet_bytes());
            packets += sent.packets;
            bytes += sent.bytes;
            new_bytes += if sent.first_tx >= recovery_tx { sent.bytes } else { 0 };
        }
        if packets == 0 {
            return 0;
        }
        let missing = report.missing().saturating_sub(self.discounted).min(packets);
        self.discounted = report.missing();
        new_bytes.saturating_sub(missing * bytes.div_ceil(packets))
    }

    /// `missing` packets are missing: how many of them count as lost from now on, and the newest transmission that can be one of them.
    fn suspect(&mut self, missing: u64, now_ns: u64, patience_ns: u64) -> (u64, u64) {
        if missing <= self.lost {
            // Some came late.
            (self.lost, self.suspected) = (missing, None);
            return (0, 0);
        }
        let anew = Suspected { since_ns: now_ns, least: missing, newest_tx: self.newest_tx };
        let Some(suspected) = &mut self.suspected else {
            self.suspected = Some(anew);
            return (0, 0);
        };
        suspected.least = suspected.least.min(missing);
        if now_ns < suspected.since_ns.saturating_add(patience_ns) {
            return (0, 0);
        }
        let Suspected { least, newest_tx, .. } = *suspected;
        self.suspected = (missing > least).then_some(anew);
        let lost = least.saturating_sub(self.lost);
        self.lost = self.lost.max(least);
        (lost, newest_tx)
    }

    /// Gives up what was sent at `before_ns` or earlier: it is not on the way any more. When the last of it was sent, in ns, and the
    /// bytes of its longest packet.
    pub(crate) fn expire(&mut self, before_ns: u64) -> Option<(u64, u64)> {
        let (mut last_ns, mut longest_bytes) = (None, 0);
        while let Some(sent) = self.flight.front().filter(|sent| sent.sent_ns <= before_ns).copied() {
            self.flight.pop_front();
            self.flight_bytes -= sent.bytes;
            self.expired_end = sent.end;
            longest_bytes = longest_bytes.max(sent.packet_bytes());
            last_ns = Some(sent.sent_ns);
        }
        last_ns.map(|last_ns| (last_ns, longest_bytes))
    }

    /// When the oldest that is on the way was sent, in ns.
    pub(crate) fn oldest_ns(&self) -> Option<u64> {
        self.flight.front().map(|sent| sent.sent_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_number_is_delivered_once() {
        let mut recent = Recent::default();
        assert_eq!(recent.arrive(3, 2), 0b11);
        assert_eq!(recent.arrive(2, 4), 0b1001);
        assert_eq!(recent.arrive(2, 4), 0);
        assert_eq!(recent.report(), DatagramReport { end: 6, arrived: 4 });
        assert_eq!(recent.report().missing(), 2);
        assert_eq!(recent.arrive(0, 2), 0b11);
        assert_eq!(recent.report().missing(), 0);
        assert_eq!(recent.arrive(u64::MAX - 1, 2), 0);
    }

    #[test]
    fn one_that_is_too_far_ahead_is_dropped_and_ends_nothing() {
        let mut recent = Recent::default();
        assert_eq!(recent.arrive(u64::MAX - 2, 1), 0);
        assert_eq!(recent.arrive(MOST_AHEAD + 1, 1), 0);
        assert_eq!(recent.report(), DatagramReport::default());
        assert_eq!(recent.arrive(MOST_AHEAD, 1), 1);
        assert_eq!(recent.arrive(0, 1), 0, "it is late by then");
    }

    #[test]
    fn one_that_is_too_late_is_dropped() {
        let mut recent = Recent::default();
        recent.arrive(RECENT_DATAGRAMS, 1);
        assert_eq!(recent.arrive(0, 2), 0b10);
        assert_eq!(recent.arrive(5 * RECENT_DATAGRAMS, 1), 1);
        assert_eq!(recent.arrive(RECENT_DATAGRAMS, 1), 0);
        assert_eq!(recent.report().missing(), 5 * RECENT_DATAGRAMS + 1 - 3);
    }

    proptest! {
        #[test]
        fn any_arrivals_are_delivered_as_a_set_would(arrivals in proptest::collection::vec((0u64..3000, 1u32..65), 0..200)) {
            let (mut recent, mut set) = (Recent::default(), BTreeSet::new());
            for (first, packets) in arrivals {
                let fresh = recent.arrive(first, packets);
                let end = set.last().map_or(0, |last| last + 1).max(first + u64::from(packets));
                for index in 0..packets {
                    let number = first + u64::from(index);
                    let is_new = number + RECENT_DATAGRAMS >= end && set.insert(number);
                    prop_assert_eq!(fresh >> index & 1 == 1, is_new);
                    // The end is that of all that was numbered, delivered or not.
                    prop_assert!(recent.report().end >= number);
                }
                prop_assert_eq!(recent.report().arrived, set.len() as u64);
            }
        }
    }

    #[test]
    fn a_full_queue_drops_the_oldest() {
        let (mut outbox, mut dropped) = (Outbox::new(), Vec::new());
        for unit in 0..6 {
            outbox.push(unit, 64, 65_536, |unit, packets| dropped.push((unit, packets)));
            if unit == 0 {
                outbox.sent(10, 0, 0);
            }
        }
        assert_eq!(dropped, [(0, 10..64), (1, 0..64)]);
        assert_eq!((outbox.stats().dropped, outbox.len(), outbox.next()), (118, 4, Some((0..64, 1024))));
        // The numbers of what was dropped go to what follows: a gap is a loss on the way.
        assert_eq!(outbox.payload_mut(), Some((&mut 2, 10)));
    }

    #[test]
    fn an_older_report_that_comes_late_says_nothing() {
        let mut outbox = Outbox::new();
        outbox.push((), 10, 10_000, |(), _| panic!());
        outbox.sent(10, 5, 0);
        for (end, arrived) in [(9, 5), (9, 7), (9, 6), (6, 6)] {
            outbox.reported(DatagramReport { end, arrived }, 50, 100, 0);
        }
        assert_eq!(outbox.stats().missing, 2);
    }

    #[test]
    fn a_session_leaves_datagrams_behind_as_dropped_or_missing() {
        let (mut outbox, mut dropped) = (Outbox::new(), Vec::new());
        outbox.push(1, 10, 10_000, |_, _| panic!());
        outbox.push(2, 3, 3000, |_, _| panic!());
        outbox.sent(8, 5, 0);
        outbox.reported(DatagramReport { end: 4, arrived: 3 }, 50, 100, 0);
        outbox.lose(|unit, packets| dropped.push((unit, packets)));
        assert_eq!(dropped, [(1, 8..10), (2, 0..3)]);
        assert_eq!(outbox.stats(), DatagramStats { sent: 8, dropped: 5, missing: 5 });
    }

    #[test]
    fn packets_that_are_missing_for_long_are_lost_once() {
        let mut outbox = Outbox::new();
        outbox.push((), 10, 10_000, |(), _| panic!());
        assert_eq!(outbox.sent(10, 5, 0), (10_000, Some(())));
        let mut report = |arrived, now_ns| {
            let Reported { bytes, lost, .. } = outbox.reported(DatagramReport { end: 10, arrived }, now_ns, 100, 0);
            (bytes, lost)
        };
        assert_eq!(report(7, 50), (7000, 0));
        assert_eq!(report(8, 149), (0, 0));
        assert_eq!(report(8, 150), (0, 2));
        assert_eq!(report(8, 1000), (0, 0));
        assert_eq!(report(10, 1001), (0, 0));
    }
}
