//! The receiving half of a session: order, duplicates, acknowledgements, credit ([`crate::credit`]).

use crate::credit::{CONTROL_WINDOW_PACKETS, Charge, Window, charge};
use crate::datagrams::{DatagramReport, Recent};
use crate::ecn::{CE, EcnCounts};
use crate::header::Run;
use crate::order::Traffic;
use std::collections::BTreeMap;

pub use crate::ack::{Ack, MAX_ACK_BYTES, MAX_RANGES};

/// How long an ack may be delayed, in ns. Part of the sender's estimate (the ack carries its delay).
pub const MAX_ACK_DELAY_NS: u64 = 2_000_000;

/// How many units may arrive without an ack: a super-packet of packets. It is what clocks the sender on paths that are shorter than
/// [`MAX_ACK_DELAY_NS`].
const ACK_UNITS: u64 = 64;

/// How many of the ranges are the lowest ones, when there are more; the others are the highest. An ack reports new
/// arrivals at once, and repeats the ranges that the sender needs first in case an earlier ack was lost.
const LOWEST_RANGES: usize = 16;

/// Packets that arrived together: of one kind of traffic, with consecutive sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arriving {
    /// Their kind.
    pub traffic: Traffic,
    /// The first one's sequence number.
    pub first_seq: u64,
    /// How many they are.
    pub packets: u32,
    /// Bytes of the longest, header included.
    pub longest_bytes: usize,
    /// Bytes of the last: it may be shorter than the others, which are as long as each other (UDP GRO).
    pub last_bytes: usize,
}

impl From<&Run> for Arriving {
    fn from(run: &Run) -> Arriving {
        let Run { header, packets, longest_bytes, last_bytes, .. } = *run;
        Arriving { traffic: header.kind.traffic(), first_seq: header.seq, packets, longest_bytes, last_bytes }
    }
}

/// The result for packets that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// They (and what they made whole) were delivered.
    Delivered,
    /// They are ahead of a hole and were kept.
    Held,
    /// They were there already.
    Duplicate,
    /// They are beyond the credit that was given, or kept ones are at their bound: dropped.
    Beyond,
}

/// A run that is kept ahead of a hole.
#[derive(Debug)]
struct Held<R> {
    traffic: Traffic,
    packets: u32,
    charge: Charge,
    handle: R,
}

/// The receiving half of a session; `R` is the handle of a run of packets.
#[derive(Debug)]
pub struct Receiver<R> {
    next_seq: u64,
    /// The session's packet size in bytes, in which credit is counted.
    packet_bytes: usize,
    data: Window,
    control: Window,
    /// Packets beyond the credit that only delivery showed to be.
    refused: u64,
    /// Units delivered by the last ack.
    acked_units: u64,
    held: BTreeMap<u64, Held<R>>,
    /// Units of what is held.
    held_units: u64,
    /// The held packets, joined where they touch: first sequence number to the one behind the last.
    ranges: BTreeMap<u64, u64>,
    ack_due_ns: Option<u64>,
    ack_now: bool,
    /// Behind the highest packet that has arrived, and when that one came, or the highest datagram after it.
    highest_seq: u64,
    highest_ns: u64,
    datagrams: Recent,
    /// Datagrams that have come since the last ack.
    unacked_datagrams: u64,
    ecn: EcnCounts,
}

impl<R> Receiver<R> {
    /// A receiver that takes `window` units of `packet_bytes` bytes ahead of what was consumed, of data ([`crate::credit`]).
    #[must_use]
    pub fn new(packet_bytes: usize, window: u32) -> Receiver<R> {
        Receiver {
            next_seq: 0,
            packet_bytes,
            data: Window::new(window),
            control: Window::new(CONTROL_WINDOW_PACKETS),
            refused: 0,
            acked_units: 0,
            held: BTreeMap::new(),
            held_units: 0,
            ranges: BTreeMap::new(),
            ack_due_ns: None,
            ack_now: false,
            highest_seq: 0,
            highest_ns: 0,
            datagrams: Recent::default(),
            unacked_datagrams: 0,
            ecn: EcnCounts::default(),
        }
    }

    /// Takes packets that the caller has as `handle`. A packet that is now in order goes to `deliver`: a handle, and
    /// how many packets at its front were delivered before and must be left out.
    pub fn arrive(
        &mut self,
        run: impl Into<Arriving>,
        handle: R,
        now_ns: u64,
        mut deliver: impl FnMut(R, u32),
    ) -> Arrival {
        let arrival = self.arrive_alone(run, handle, now_ns, &mut deliver);
        while let Some((handle, skip)) = self.next_kept() {
            deliver(handle, skip);
        }
        arrival
    }

    /// The next run that was kept and is in order by now, with how many packets at its front must be left out. A packet
    /// that is not taken counts as not arrived: the sender sends it again, and so asks again.
    pub fn next_kept(&mut self) -> Option<(R, u32)> {
        loop {
            let entry = self.held.first_entry()?;
            let (&first, packets) = (entry.key(), entry.get().packets);
            if first > self.next_seq {
                return None;
            }
            let Held { traffic, charge, handle, .. } = entry.remove();
            self.held_units -= charge.of(packets.into());
            self.ack_now = true;
            let end = first + u64::from(packets);
            if end <= self.next_seq {
                continue;
            }
            let new = end - self.next_seq;
            if charge.of(new) > self.window(traffic).credit() {
                self.refused += new;
                self.forget_ranges();
                continue;
            }
            let skip = (self.next_seq - first) as u32;
            self.advance(traffic, charge, end);
            return Some((handle, skip));
        }
    }

    /// Packets beyond the credit that were kept ahead of a hole, until it was filled and showed it; counted since the last call.
    pub fn take_refused(&mut self) -> u64 {
        std::mem::take(&mut self.refused)
    }

    /// The same as [`Receiver::arrive`], but what was kept stays until [`Receiver::next_kept`] takes it.
    pub fn arrive_alone(
        &mut self,
        run: impl Into<Arriving>,
        handle: R,
        now_ns: u64,
        mut deliver: impl FnMut(R, u32),
    ) -> Arrival {
        let Arriving { traffic, first_seq, packets, longest_bytes, last_bytes } = run.into();
        let Some(end) = first_seq.checked_add(packets.into()) else {
            return Arrival::Beyond;
        };
        if end <= self.next_seq || packets == 0 {
            self.ack_now = true;
            return Arrival::Duplicate;
        }
        // The packets missing before it may be of either kind, and each packet of it takes a unit at least.
        let (window, packet_bytes) = (self.window(traffic).first_size(), self.packet_bytes);
        let charge = |bytes| charge(bytes, packet_bytes, window);
        let charge = Charge { each: charge(longest_bytes), last: charge(last_bytes) };
        let new = end - first_seq.max(self.next_seq);
        let missing = first_seq.saturating_sub(self.next_seq);
        let both = self.data.credit() + self.control.credit();
        let wanted = charge.of(new);
        if wanted > self.window(traffic).credit() || missing > both || wanted > both - missing {
            self.ack_now = true;
            return Arrival::Beyond;
        }
        if first_seq > self.next_seq {
            return self.hold(first_seq, Held { traffic, packets, charge, handle }, now_ns);
        }
        self.note_highest(end, now_ns);
        deliver(handle, (self.next_seq - first_seq) as u32);
        let fills_a_hole = !self.held.is_empty();
        self.advance(traffic, charge, end);
        if self.delivered() - self.acked_units >= (self.data.size() / 4).min(ACK_UNITS) || fills_a_hole {
            self.ack_now = true;
        }
        self.ack_due_ns.get_or_insert(now_ns.saturating_add(MAX_ACK_DELAY_NS));
        Arrival::Delivered
    }

    fn window(&mut self, traffic: Traffic) -> &mut Window {
        match traffic {
            Traffic::Data => &mut self.data,
            Traffic::Control => &mut self.control,
        }
    }

    /// Units delivered so far, of either kind.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.data.delivered() + self.control.delivered()
    }

    /// Everything below `end` is delivered; what is new of it is of one kind, and the end of a run.
    fn advance(&mut self, traffic: Traffic, charge: Charge, end: u64) {
        let new = end - self.next_seq;
        self.window(traffic).deliver(charge.of(new));
        self.next_seq = end;
        self.forget_ranges();
        // The kept runs that came again meanwhile.
        while let Some(kept) = self.held.first_entry()
            && *kept.key() + u64::from(kept.get().packets) <= end
        {
            let Held { packets, charge, .. } = kept.remove();
            self.held_units -= charge.of(packets.into());
        }
    }

    /// Keeps what is ahead of a hole. A run must bring a packet that was not there, so there are at most as many as the windows
    /// have units; a peer that overlaps runs on purpose keeps no more than twice the windows waiting.
    fn hold(&mut self, first_seq: u64, run: Held<R>, now_ns: u64) -> Arrival {
        self.ack_now = true;
        let packets = u64::from(run.packets);
        let (mut start, mut end) = (first_seq, first_seq + packets);
        let before = self.ranges.range(..=start).next_back().map(|(&s, &e)| (s, e));
        if before.is_some_and(|(_, e)| e >= end) {
            return Arrival::Duplicate;
        }
        let replaced = self.held.get(&first_seq).map_or(0, |kept| kept.charge.of(kept.packets.into()));
        let held_units = self.held_units - replaced + run.charge.of(packets);
        if held_units > 2 * (self.data.size() + self.control.size()) {
            return Arrival::Beyond;
        }
        self.held_units = held_units;
        self.held.insert(first_seq, run);
        self.note_highest(end, now_ns);
        if let Some((s, e)) = before
            && e >= start
        {
            (start, end) = (s, end.max(e));
        }
        while let Some((&s, &e)) = self.ranges.range(start..=end).next() {
            end = end.max(e);
            self.ranges.remove(&s);
        }
        self.ranges.insert(start, end);
        Arrival::Held
    }

    /// A packet in order is not ahead of a hole.
    fn forget_ranges(&mut self) {
        while let Some((&start, &end)) = self.ranges.first_key_value()
            && start <= self.next_seq
        {
            self.ranges.pop_first();
            if end > self.next_seq {
                // Kept still: one packet of it is missed, so that the sender asks again with that.
                if end > self.next_seq + 1 {
                    self.ranges.insert(self.next_seq + 1, end);
                }
                break;
            }
        }
    }

    fn note_highest(&mut self, end: u64, now_ns: u64) {
        if end > self.highest_seq {
            (self.highest_seq, self.highest_ns) = (end, now_ns);
        }
    }

    /// Says that the first `units` units of data were consumed: credit reaches a window beyond them. It never shrinks.
    pub fn consumed_to(&mut self, units: u64) {
        self.ack_now |= self.data.consumed_to(units);
    }

    /// Says that all control that was delivered is carried out.
    pub fn control_consumed(&mut self) {
        self.ack_now |= self.control.consumed_to(u64::MAX);
    }

    /// Takes datagrams of consecutive numbers, at most 64: bit i of the result says whether packet i is to be delivered; the others
    /// were before. They are reported with an ack, soon or with many others.
    pub fn take_datagrams(&mut self, first: u64, packets: u32, now_ns: u64) -> u64 {
        let end = self.datagrams.report().end;
        let fresh = self.datagrams.arrive(first, packets);
        if self.datagrams.report().end > end {
            self.highest_ns = now_ns;
        }
        self.unacked_datagrams += u64::from(packets);
        self.ack_now |= self.unacked_datagrams >= ACK_UNITS;
        self.ack_due_ns.get_or_insert(now_ns.saturating_add(MAX_ACK_DELAY_NS));
        fresh
    }

    /// Counts packets of the sequence, or datagrams, by the two bits that ECN has in their IP headers ([`crate::ecn`]); to be called for
    /// all that come. Marks are reported at once.
    #[inline]
    pub fn note_ecn(&mut self, bits: u8, packets: u32) {
        self.ecn.note(bits, packets.into());
        self.ack_now |= bits == CE;
    }

    /// The datagrams that have arrived.
    #[must_use]
    pub fn datagrams(&self) -> DatagramReport {
        self.datagrams.report()
    }

    /// Doubles the window of data, to `most` units at most, if it was used up within two round trips of `rtt_ns`. By how many units
    /// it has grown; the sender is notified at once.
    pub fn grow_window(&mut self, now_ns: u64, rtt_ns: u64, most: u64) -> u64 {
        let grown = self.data.grow(now_ns, rtt_ns, most);
        self.ack_now |= grown > 0;
        grown
    }

    /// The window of data in units.
    #[must_use]
    pub fn window_units(&self) -> u64 {
        self.data.size()
    }

    /// Units of data delivered so far.
    #[must_use]
    pub fn data_delivered(&self) -> u64 {
        self.data.delivered()
    }

    /// The next sequence number expected: everything below was delivered.
    #[must_use]
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Credit for data that the sender has left, in units.
    #[must_use]
    pub fn credit(&self) -> u64 {
        self.data.credit()
    }

    /// Runs of packets that are kept ahead of a hole.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Asks for an ack at the next occasion (a ping came).
    pub fn ack_soon(&mut self) {
        self.ack_now = true;
    }

    /// The ack to send, when one is due.
    pub fn poll_ack(&mut self, now_ns: u64) -> Option<Ack> {
        if !self.ack_now && self.ack_due_ns.is_none_or(|at| now_ns < at) {
            return None;
        }
        let delay_us = u32::try_from(now_ns.saturating_sub(self.highest_ns) / 1000).unwrap_or(u32::MAX);
        self.ack_now = false;
        self.ack_due_ns = None;
        self.acked_units = self.delivered();
        self.unacked_datagrams = 0;
        let mut ack = Ack::new(self.next_seq, self.data.advertise());
        ack.control_limit = self.control.advertise();
        ack = ack.with_ranges(self.ranges.iter().map(|(&s, &e)| s..e));
        if self.ranges.len() > MAX_RANGES {
            let highest = ack.ranges[LOWEST_RANGES..].iter_mut().rev();
            for (range, (&start, &end)) in highest.zip(self.ranges.iter().rev()) {
                *range = start..end;
            }
        }
        Some(Ack { delay_us, datagrams: self.datagrams.report(), ecn: self.ecn, ..ack })
    }

    /// When [`Receiver::poll_ack`] has something next, in ns: zero for at once.
    #[must_use]
    pub fn deadline_ns(&self) -> Option<u64> {
        if self.ack_now { Some(0) } else { self.ack_due_ns }
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "an ack often has one range")]
mod tests {
    use super::*;
    use crate::ack::FIXED_ACK_BYTES;
    use proptest::prelude::*;
    use std::ops::Range;

    /// The ack of a receiver that has had no control yet.
    const CONTROL: u64 = CONTROL_WINDOW_PACKETS as u64;
    const PACKET_BYTES: usize = 1472;

    fn run(traffic: Traffic, first_seq: u64, packets: u32) -> Arriving {
        Arriving { traffic, first_seq, packets, longest_bytes: 100, last_bytes: 100 }
    }

    fn data(first_seq: u64, packets: u32) -> Arriving {
        run(Traffic::Data, first_seq, packets)
    }

    fn control(first_seq: u64, packets: u32) -> Arriving {
        run(Traffic::Control, first_seq, packets)
    }

    #[test]
    fn a_packet_in_order_that_is_not_taken_is_requested_again() {
        let mut receiver = Receiver::new(PACKET_BYTES, 100);
        let mut out = Vec::new();
        for (first, packets, c) in [(2, 3, 'b'), (5, 1, 'c'), (8, 2, 'd')] {
            assert_eq!(receiver.arrive_alone(data(first, packets), c, 0, |_, _| ()), Arrival::Held);
        }
        receiver.arrive_alone(data(0, 2), 'a', 0, |c, skip| out.push((c, skip)));
        assert_eq!((receiver.next_seq(), receiver.held()), (2, 3));
        // As if packet 2 were missing: the rest of what is kept need not come again.
        assert_eq!(
            receiver.poll_ack(0),
            Some(Ack { control_limit: CONTROL, ..Ack::new(2, 100).with_ranges([3..6, 8..10]) })
        );
        assert_eq!(receiver.arrive_alone(data(5, 1), 'x', 0, |_, _| ()), Arrival::Duplicate);
        receiver.arrive_alone(data(2, 1), 'e', 0, |c, skip| out.push((c, skip)));
        out.extend(receiver.next_kept());
        assert_eq!(receiver.poll_ack(0), Some(Ack { control_limit: CONTROL, ..Ack::new(5, 100).with_ranges([8..10]) }));
        receiver.arrive(data(5, 3), 'f', 0, |c, skip| out.push((c, skip)));
        assert_eq!(out, [('a', 0), ('e', 0), ('b', 1), ('f', 0), ('d', 0)]);
        assert_eq!((receiver.next_seq(), receiver.held()), (10, 0));
        assert_eq!(receiver.poll_ack(0), Some(Ack { control_limit: CONTROL, ..Ack::new(10, 100) }));
    }

    #[test]
    fn runs_come_out_in_order_once() {
        let mut receiver = Receiver::new(PACKET_BYTES, 100);
        let mut out = Vec::new();
        let mut arrive = |receiver: &mut Receiver<char>, first, packets, c| {
            receiver.arrive(data(first, packets), c, 0, |c, skip| out.push((c, skip)))
        };
        assert_eq!(arrive(&mut receiver, 4, 4, 'c'), Arrival::Held);
        assert_eq!(arrive(&mut receiver, 4, 4, 'x'), Arrival::Duplicate);
        assert_eq!(arrive(&mut receiver, 9, 1, 'd'), Arrival::Held);
        assert_eq!(
            receiver.poll_ack(0),
            Some(Ack { control_limit: CONTROL, ..Ack::new(0, 100).with_ranges([4..8, 9..10]) })
        );
        assert_eq!(arrive(&mut receiver, 0, 2, 'a'), Arrival::Delivered);
        assert_eq!(arrive(&mut receiver, 1, 4, 'b'), Arrival::Delivered);
        assert_eq!(arrive(&mut receiver, 0, 2, 'x'), Arrival::Duplicate);
        // 92 packets of data may come, and 64 of control.
        assert_eq!(arrive(&mut receiver, 163, 2, 'x'), Arrival::Beyond);
        assert_eq!(arrive(&mut receiver, u64::MAX, 2, 'x'), Arrival::Beyond);
        assert_eq!(out, [('a', 0), ('b', 1), ('c', 1)]);
        assert_eq!(receiver.poll_ack(0), Some(Ack { control_limit: CONTROL, ..Ack::new(8, 100).with_ranges([9..10]) }));
    }

    #[test]
    fn credit_follows_consumption_and_is_announced_in_time() {
        let mut receiver = Receiver::new(PACKET_BYTES, 16);
        receiver.arrive(data(0, 16), (), 0, |(), _| {});
        assert_eq!(receiver.poll_ack(0).unwrap().data_limit, 16);
        assert_eq!(receiver.credit(), 0);
        receiver.consumed_to(3);
        assert_eq!(receiver.poll_ack(1), None);
        receiver.consumed_to(4);
        assert_eq!(receiver.poll_ack(1).unwrap().data_limit, 20);
        receiver.consumed_to(u64::MAX);
        assert_eq!(receiver.poll_ack(1).unwrap().data_limit, 32);
    }

    #[test]
    fn more_holes_than_an_ack_holds_are_reported_from_both_ends() {
        let mut receiver = Receiver::new(PACKET_BYTES, 1000);
        for seq in (1..400).step_by(2) {
            receiver.arrive(data(seq, 1), (), 0, |(), _| panic!());
        }
        let ack = receiver.poll_ack(0).unwrap();
        assert_eq!(ack.ranges().len(), MAX_RANGES);
        assert_eq!(ack.ranges()[LOWEST_RANGES - 1], 31..32);
        assert_eq!(ack.ranges()[LOWEST_RANGES], 305..306);
        assert_eq!(ack.ranges()[MAX_RANGES - 1], 399..400);
        let mut bytes = [0; MAX_ACK_BYTES];
        assert_eq!(ack.encode(&mut bytes), FIXED_ACK_BYTES + 8 * MAX_RANGES);
        assert_eq!(Ack::decode(&bytes[..FIXED_ACK_BYTES + 8 * MAX_RANGES]), Ok(ack));
    }

    #[test]
    fn overlapping_runs_do_not_fill_the_memory() {
        let mut receiver = Receiver::new(PACKET_BYTES, 100);
        let held = |arrival| matches!(arrival, Arrival::Held);
        let kept = (1..60).filter(|&first| held(receiver.arrive(data(first, 40), (), 0, |(), _| panic!()))).count();
        assert_eq!((kept, receiver.held()), (8, 8));
        assert_eq!(receiver.arrive(data(2, 43), (), 0, |(), _| panic!()), Arrival::Duplicate);
        let mut delivered = 0;
        receiver.arrive(data(0, 1), (), 0, |(), _| delivered += 1);
        assert_eq!((delivered, receiver.next_seq(), receiver.held()), (9, 48, 0));
    }

    #[test]
    fn control_has_its_own_window() {
        let mut receiver = Receiver::new(PACKET_BYTES, 2);
        let mut taken = 0;
        assert_eq!(receiver.arrive(data(0, 2), (), 0, |(), _| {}), Arrival::Delivered);
        assert_eq!(receiver.arrive(data(2, 1), (), 0, |(), _| panic!()), Arrival::Beyond);
        for seq in 2..CONTROL + 2 {
            assert_eq!(receiver.arrive(control(seq, 1), (), 0, |(), _| taken += 1), Arrival::Delivered);
        }
        assert_eq!(receiver.arrive(control(CONTROL + 2, 1), (), 0, |(), _| panic!()), Arrival::Beyond);
        assert_eq!(taken, CONTROL);
        receiver.control_consumed();
        assert_eq!(receiver.poll_ack(0), Some(Ack { control_limit: 2 * CONTROL, ..Ack::new(CONTROL + 2, 2) }));
        assert_eq!(receiver.arrive(control(CONTROL + 2, 1), (), 0, |(), _| {}), Arrival::Delivered);
    }

    #[test]
    fn packets_kept_beyond_the_credit_are_refused_when_their_turn_comes() {
        let mut receiver = Receiver::new(PACKET_BYTES, 2);
        // Ahead of a hole it might be that only control is missing.
        assert_eq!(receiver.arrive(data(2, 1), (), 0, |(), _| panic!()), Arrival::Held);
        let mut taken = 0;
        receiver.arrive(data(0, 2), (), 0, |(), _| taken += 1);
        assert_eq!((taken, receiver.next_seq(), receiver.take_refused(), receiver.take_refused()), (1, 2, 1, 0));
        receiver.consumed_to(1);
        assert_eq!(receiver.arrive(data(2, 1), (), 0, |(), _| {}), Arrival::Delivered);
    }

    #[test]
    fn a_packet_takes_as_many_units_as_it_is_long_and_half_a_window_at_most() {
        let long = |first_seq, bytes| Arriving { longest_bytes: bytes, last_bytes: bytes, ..data(first_seq, 1) };
        let mut receiver = Receiver::new(PACKET_BYTES, 16);
        receiver.arrive(long(0, 3 * PACKET_BYTES), (), 0, |(), _| {});
        receiver.arrive(long(1, 3 * PACKET_BYTES + 1), (), 0, |(), _| {});
        assert_eq!((receiver.data_delivered(), receiver.credit()), (7, 9));
        receiver.arrive(long(2, 60_000), (), 0, |(), _| {});
        assert_eq!((receiver.data_delivered(), receiver.credit()), (15, 1));
        assert_eq!(receiver.arrive(long(3, 2 * PACKET_BYTES), (), 0, |(), _| panic!()), Arrival::Beyond);
        // One that is kept takes its own when its turn comes.
        receiver.consumed_to(u64::MAX);
        assert_eq!(receiver.arrive(long(4, 4 * PACKET_BYTES), (), 0, |(), _| panic!()), Arrival::Held);
        receiver.arrive(long(3, 0), (), 0, |(), _| {});
        assert_eq!((receiver.data_delivered(), receiver.next_seq()), (20, 5));
        // Long ones that came together, the last one shorter; the first was there before.
        receiver.consumed_to(u64::MAX);
        let run = Arriving { longest_bytes: 3 * PACKET_BYTES, last_bytes: 100, ..data(4, 3) };
        receiver.arrive(run, (), 0, |(), skip| assert_eq!(skip, 1));
        assert_eq!((receiver.data_delivered(), receiver.next_seq()), (24, 7));
    }

    #[test]
    fn a_long_packet_at_the_end_of_all_numbers_is_refused() {
        let mut receiver = Receiver::new(PACKET_BYTES, 64);
        for first_seq in [u64::MAX - 1, u64::MAX - 14, 1 << 63] {
            let run = Arriving { longest_bytes: 20_000, last_bytes: 20_000, ..data(first_seq, 1) };
            assert_eq!(receiver.arrive(run, (), 0, |(), _| panic!()), Arrival::Beyond);
        }
        assert_eq!((receiver.held(), receiver.poll_ack(0).unwrap().delay_us), (0, 0));
    }

    #[test]
    fn a_window_of_one_packet_does_not_chatter() {
        let mut receiver = Receiver::new(PACKET_BYTES, 1);
        receiver.arrive(data(0, 1), (), 0, |(), _| {});
        assert!(receiver.poll_ack(0).is_some());
        for _ in 0..3 {
            receiver.consumed_to(0);
            assert_eq!(receiver.poll_ack(1), None);
        }
        receiver.consumed_to(1);
        assert_eq!(receiver.poll_ack(1).unwrap().data_limit, 2);
        receiver.consumed_to(1);
        assert_eq!(receiver.poll_ack(1), None);
    }

    #[test]
    fn the_delay_of_an_ack_is_that_of_the_highest_packet() {
        let mut receiver = Receiver::new(PACKET_BYTES, 64);
        receiver.arrive(data(5, 1), (), 1_000_000, |(), _| {});
        receiver.arrive(data(2, 1), (), 5_000_000, |(), _| {});
        assert_eq!(receiver.poll_ack(6_000_000).unwrap().delay_us, 5000);
    }

    #[test]
    fn a_lone_packet_is_acknowledged_after_the_delay() {
        let mut receiver = Receiver::new(PACKET_BYTES, 64);
        receiver.arrive(data(0, 1), (), 10, |(), _| {});
        receiver.consumed_to(1);
        assert_eq!(receiver.poll_ack(11), None);
        let ack = receiver.poll_ack(10 + MAX_ACK_DELAY_NS).unwrap();
        assert_eq!((ack.next_seq, ack.delay_us), (1, 2000));
    }

    proptest! {
        #[test]
        fn acks_read_back(
            next in 0u64..1 << 60,
            limits: (u64, u64),
            delay: u32,
            gaps in proptest::collection::vec((1u64..50, 1u64..50), 0..=MAX_RANGES),
            (arrived, missing) in (0u64..1 << 60, 0u64..1 << 60),
        ) {
            let (limit, control_limit) = limits;
            let mut at = next;
            let ranges: Vec<Range<u64>> = gaps.iter().map(|(gap, len)| { at += gap; let r = at..at + len; at += len; r }).collect();
            let datagrams = DatagramReport { end: arrived + missing, arrived };
            let ack = Ack { delay_us: delay, control_limit, datagrams, ..Ack::new(next, limit).with_ranges(ranges) };
            let mut bytes = [0; MAX_ACK_BYTES];
            let len = ack.encode(&mut bytes);
            prop_assert_eq!(Ack::decode(&bytes[..len]), Ok(ack));
            prop_assert!(Ack::decode(&bytes[..len - 1]).is_err());
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Ack::decode(&bytes);
        }

        #[test]
        fn nothing_beyond_the_windows_is_taken(
            window in 1u32..50,
            arrivals in proptest::collection::vec((any::<bool>(), 0u64..200, 1u32..6, 32usize..6000), 0..400),
        ) {
            let mut receiver = Receiver::new(PACKET_BYTES, window);
            let (mut data, mut control) = (0, 0);
            for (is_data, first, packets, longest_bytes) in arrivals {
                let traffic = if is_data { Traffic::Data } else { Traffic::Control };
                let run = Arriving { longest_bytes, ..run(traffic, first, packets) };
                receiver.arrive(run, (traffic, packets), 0, |(traffic, packets), skip| {
                    *(if traffic == Traffic::Data { &mut data } else { &mut control }) += u64::from(packets - skip);
                });
                prop_assert!(receiver.data_delivered() <= u64::from(window));
                prop_assert!(data <= receiver.data_delivered() && control <= CONTROL, "{} and {} taken", data, control);
                prop_assert!(receiver.held_units <= 2 * (u64::from(window) + CONTROL));
                prop_assert_eq!(receiver.next_seq(), data + control);
            }
        }

        #[test]
        fn every_packet_comes_out_exactly_once(arrivals in proptest::collection::vec((0u64..40, 1u32..6), 0..120)) {
            let mut receiver = Receiver::new(PACKET_BYTES, 64);
            let mut out = Vec::new();
            for (first, packets) in arrivals.into_iter().chain((0..45).map(|s| (s, 1))) {
                receiver.arrive(data(first, packets), (first, packets), 0, |(first, packets), skip| {
                    out.extend(first + u64::from(skip)..first + u64::from(packets));
                });
            }
            prop_assert_eq!(out.len() as u64, receiver.next_seq());
            prop_assert!(out.iter().enumerate().all(|(i, &seq)| i as u64 == seq));
        }
    }
}
