//! The sending half of a session: a queue, what is in flight, and when to send it again.
//!
//! The unit is what leaves with one system call: a super-packet of up to 64 packets. Packets get their sequence numbers
//! when they are first sent. What is sent is bounded by the receiver's credit (a sequence number it will take packets up to)
//! and by a congestion window (slow start, then additive increase and multiplicative decrease, in bytes).
//! A packet counts as lost when three later ones were acknowledged (RFC 9002, 6.1.1), or when the time-out passes.

use crate::receiver::Ack;
use crate::rtt::Rtt;
use std::collections::VecDeque;
use std::ops::Range;

/// How many later packets must be acknowledged before an older one counts as lost.
const REORDERING_PACKETS: u64 = 3;
/// The congestion window at the start and its floor after a time-out, in bytes: one super-packet.
const INITIAL_WINDOW_BYTES: u64 = 65_536;
/// Its floor after a loss, in bytes.
const MIN_WINDOW_BYTES: u64 = 16_384;
/// Its ceiling, in bytes; the receiver's credit is the tighter bound everywhere but on long fat paths.
const MAX_WINDOW_BYTES: u64 = 64 << 20;

/// What waits for its first transmission.
#[derive(Debug)]
struct Queued<P> {
    payload: P,
    packets: u32,
    bytes: u64,
    droppable: bool,
}

/// What was sent, whole or in part, and is not yet acknowledged whole.
#[derive(Debug)]
struct Unit<P> {
    payload: P,
    first_seq: u64,
    packets: u32,
    bytes: u64,
    packet_bytes: u64,
    /// Packets sent at least once: the first so many.
    sent: u32,
    /// Bit i: packet i is acknowledged.
    acked: u64,
    /// Bit i: packet i counts as lost and waits to be sent again.
    lost: u64,
    sent_ns: u64,
    resent: bool,
}

impl<P> Unit<P> {
    fn end(&self) -> u64 {
        self.first_seq + u64::from(self.packets)
    }

    fn sent_mask(&self) -> u64 {
        mask(self.sent)
    }

    /// Packets that may still arrive: sent, not acknowledged, not given up.
    fn outstanding(&self) -> u64 {
        self.sent_mask() & !self.acked & !self.lost
    }
}

/// The lowest `packets` bits.
fn mask(packets: u32) -> u64 {
    if packets >= 64 { u64::MAX } else { (1 << packets) - 1 }
}

/// One transmission to make: these packets of the unit, with sequence numbers from `first_seq` for packet 0.
#[derive(Debug)]
pub struct Transmit<'a, P> {
    /// What to send.
    pub payload: &'a mut P,
    /// Sequence number of the unit's packet 0.
    pub first_seq: u64,
    /// Which of its packets.
    pub packets: Range<u32>,
    /// Whether they were sent before.
    pub resend: bool,
}

/// An ack that acknowledges what was never sent: the peer is broken or hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the peer acknowledged packet {acked}, only {sent} were sent")]
pub struct AckError {
    /// What the ack says.
    pub acked: u64,
    /// What was sent.
    pub sent: u64,
}

/// What the sending half has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// Packets sent for the first time.
    pub packets: u64,
    /// Packets sent again.
    pub resent: u64,
    /// Time-outs.
    pub timeouts: u64,
}

/// The sending half of a session; `P` is the handle of a unit's bytes.
#[derive(Debug)]
pub struct Sender<P> {
    queued: VecDeque<Queued<P>>,
    queued_bytes: u64,
    backlog_bytes: u64,
    flight: VecDeque<Unit<P>>,
    flight_bytes: u64,
    /// Unit index and packets of the transmission that was last polled.
    polled: Option<(usize, Range<u32>)>,
    next_seq: u64,
    limit_seq: u64,
    largest_acked: u64,
    lost_units: usize,
    window_bytes: u64,
    threshold_bytes: u64,
    recovery_seq: u64,
    rtt: Rtt,
    backoff: u32,
    timer_ns: u64,
    stats: SenderStats,
}

impl<P> Sender<P> {
    /// A sender whose peer takes `window_packets` packets to begin with.
    #[must_use]
    pub fn new(window_packets: u32) -> Sender<P> {
        Sender {
            queued: VecDeque::new(),
            queued_bytes: 0,
            backlog_bytes: 0,
            flight: VecDeque::new(),
            flight_bytes: 0,
            polled: None,
            next_seq: 0,
            limit_seq: window_packets.into(),
            largest_acked: 0,
            lost_units: 0,
            window_bytes: INITIAL_WINDOW_BYTES,
            threshold_bytes: MAX_WINDOW_BYTES,
            recovery_seq: 0,
            rtt: Rtt::default(),
            backoff: 0,
            timer_ns: 0,
            stats: SenderStats::default(),
        }
    }

    /// Queues a unit of `packets` (1 to 64) packets and `bytes` bytes. A `droppable` one may fall to [`Sender::drop_oldest`].
    pub fn enqueue(&mut self, payload: P, packets: u32, bytes: u64, droppable: bool) {
        debug_assert!((1..=64).contains(&packets));
        self.queued_bytes += bytes;
        self.backlog_bytes += bytes;
        self.queued.push_back(Queued { payload, packets, bytes, droppable });
    }

    /// Takes the oldest droppable unit that was never sent out of the queue.
    pub fn drop_oldest(&mut self) -> Option<P> {
        let index = self.queued.iter().position(|q| q.droppable)?;
        let dropped = self.queued.remove(index)?;
        self.queued_bytes -= dropped.bytes;
        self.backlog_bytes -= dropped.bytes;
        Some(dropped.payload)
    }

    /// Bytes queued and in flight: what this peer holds of the memory.
    #[must_use]
    pub fn backlog_bytes(&self) -> u64 {
        self.queued_bytes + self.flight.iter().map(|u| u64::from(u.packets) * u.packet_bytes).sum::<u64>()
    }

    /// Bytes that wait for their first transmission.
    #[must_use]
    pub fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Whether everything queued was sent and acknowledged.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queued.is_empty() && self.flight.is_empty()
    }

    /// Whether something waits for credit that only the peer can give, with nothing in flight that would bring an ack.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        let partly = self.flight.back().is_some_and(|u| u.sent < u.packets);
        (partly || !self.queued.is_empty()) && self.next_seq >= self.limit_seq && self.flight_bytes == 0
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        self.stats
    }

    /// The smoothed round-trip time in ns, zero before it is known.
    #[must_use]
    pub fn rtt_ns(&self) -> u64 {
        self.rtt.smoothed_ns()
    }

    /// The next transmission to make, if one is due and allowed. Call [`Sender::transmitted`] once it was made; polled
    /// again without that, the same comes again.
    pub fn poll(&mut self) -> Option<Transmit<'_, P>> {
        let (index, packets) = self.next_lost().or_else(|| self.next_new())?;
        self.polled = Some((index, packets.clone()));
        let unit = &mut self.flight[index];
        let resend = packets.start < unit.sent;
        Some(Transmit { payload: &mut unit.payload, first_seq: unit.first_seq, packets, resend })
    }

    /// The first run of lost packets, when the congestion window has room for it.
    fn next_lost(&self) -> Option<(usize, Range<u32>)> {
        if self.lost_units == 0 || self.flight_bytes >= self.window_bytes {
            return None;
        }
        let index = self.flight.iter().position(|u| u.lost != 0)?;
        let lost = self.flight[index].lost;
        let start = lost.trailing_zeros();
        let len = (lost >> start).trailing_ones();
        Some((index, start..start + len))
    }

    /// Packets never sent, as far as credit and congestion window allow.
    fn next_new(&mut self) -> Option<(usize, Range<u32>)> {
        if self.flight_bytes >= self.window_bytes || self.next_seq >= self.limit_seq {
            return None;
        }
        if self.flight.back().is_none_or(|u| u.sent == u.packets) {
            let queued = self.queued.pop_front()?;
            self.queued_bytes -= queued.bytes;
            self.flight.push_back(Unit {
                payload: queued.payload,
                first_seq: self.next_seq,
                packets: queued.packets,
                bytes: queued.bytes,
                packet_bytes: queued.bytes / u64::from(queued.packets.max(1)),
                sent: 0,
                acked: 0,
                lost: 0,
                sent_ns: 0,
                resent: false,
            });
        }
        let unit = self.flight.back()?;
        let credit = u32::try_from(self.limit_seq - self.next_seq).unwrap_or(u32::MAX);
        let end = unit.packets.min(unit.sent.saturating_add(credit));
        (end > unit.sent).then(|| (self.flight.len() - 1, unit.sent..end))
    }

    /// Says that the transmission last polled was made at `now_ns`.
    pub fn transmitted(&mut self, now_ns: u64) {
        let Some((index, packets)) = self.polled.take() else {
            return;
        };
        if self.flight_bytes == 0 {
            self.timer_ns = now_ns;
        }
        let count = u64::from(packets.end - packets.start);
        let unit = &mut self.flight[index];
        self.flight_bytes += count * unit.packet_bytes;
        unit.sent_ns = now_ns;
        if packets.start < unit.sent {
            unit.lost &= !(mask(packets.end) & !mask(packets.start));
            unit.resent = true;
            self.lost_units -= usize::from(unit.lost == 0);
            self.stats.resent += count;
        } else {
            unit.sent = packets.end;
            self.next_seq = unit.first_seq + u64::from(packets.end);
            self.stats.packets += count;
        }
    }

    /// Takes an ack; every unit that is now acknowledged whole goes to `release`.
    ///
    /// # Errors
    /// When it acknowledges what was never sent; nothing has changed then.
    pub fn on_ack(&mut self, ack: &Ack, now_ns: u64, mut release: impl FnMut(P)) -> Result<(), AckError> {
        let top = ack.ranges().last().map_or(ack.next_seq, |r| r.end.max(ack.next_seq));
        if top > self.next_seq || ack.ranges().iter().any(|r| r.end > self.next_seq) {
            return Err(AckError { acked: top, sent: self.next_seq });
        }
        self.polled = None;
        self.limit_seq = self.limit_seq.max(ack.limit_seq);
        self.largest_acked = self.largest_acked.max(top);
        let was_full = self.flight_bytes + INITIAL_WINDOW_BYTES / 2 >= self.window_bytes;
        let mut newly_bytes = 0;
        let mut sample = None;
        for unit in &mut self.flight {
            let before = unit.acked;
            unit.acked |= covered(unit, 0..ack.next_seq);
            for range in ack.ranges() {
                unit.acked |= covered(unit, range.clone());
            }
            let fresh = unit.acked & !before;
            if fresh == 0 {
                if unit.first_seq >= top {
                    break;
                }
                continue;
            }
            self.flight_bytes -= u64::from((fresh & !unit.lost).count_ones()) * unit.packet_bytes;
            newly_bytes += u64::from(fresh.count_ones()) * unit.packet_bytes;
            let had_lost = unit.lost != 0;
            unit.lost &= !unit.acked;
            self.lost_units -= usize::from(had_lost && unit.lost == 0);
            if !unit.resent {
                sample = Some(now_ns.saturating_sub(unit.sent_ns));
            }
        }
        while self.flight.front().is_some_and(|u| u.end() <= ack.next_seq) {
            if let Some(unit) = self.flight.pop_front() {
                self.backlog_bytes -= unit.bytes;
                release(unit.payload);
            }
        }
        if let Some(measured) = sample {
            self.rtt.sample(measured, ack.delay_ns());
        }
        if newly_bytes > 0 {
            self.backoff = 0;
            self.timer_ns = now_ns;
            if was_full {
                self.grow_window(newly_bytes);
            }
        }
        self.detect_loss(now_ns);
        Ok(())
    }

    /// Marks packets as lost that three later ones have overtaken.
    fn detect_loss(&mut self, now_ns: u64) {
        let Some(below) = self.largest_acked.checked_sub(REORDERING_PACKETS) else {
            return;
        };
        let patience_ns = self.rtt.smoothed_ns() + self.rtt.smoothed_ns() / 8;
        let mut newest_lost = None;
        for unit in &mut self.flight {
            if unit.first_seq >= below {
                break;
            }
            // What was already sent again needs the time of a round trip before it can be judged by the same acks.
            if unit.resent && now_ns.saturating_sub(unit.sent_ns) < patience_ns {
                continue;
            }
            let lost = unit.outstanding() & covered(unit, 0..below);
            if lost != 0 {
                self.lost_units += usize::from(unit.lost == 0);
                unit.lost |= lost;
                self.flight_bytes -= u64::from(lost.count_ones()) * unit.packet_bytes;
                newest_lost = Some(unit.end());
            }
        }
        if newest_lost.is_some_and(|seq| seq > self.recovery_seq) {
            self.recovery_seq = self.next_seq;
            self.threshold_bytes = (self.window_bytes * 7 / 10).max(MIN_WINDOW_BYTES);
            self.window_bytes = self.threshold_bytes;
        }
    }

    fn grow_window(&mut self, acked_bytes: u64) {
        let grown = if self.window_bytes < self.threshold_bytes {
            acked_bytes
        } else {
            // One super-packet a round trip.
            INITIAL_WINDOW_BYTES * acked_bytes / self.window_bytes.max(1)
        };
        self.window_bytes = (self.window_bytes + grown).min(MAX_WINDOW_BYTES);
    }

    /// When [`Sender::on_timer`] should be called, in ns, if something is in flight.
    #[must_use]
    pub fn deadline_ns(&self) -> Option<u64> {
        (self.flight_bytes > 0).then(|| self.timer_ns.saturating_add(self.rtt.rto_ns(self.backoff)))
    }

    /// Retransmission time-out: everything in flight counts as lost and is sent again from the smallest window.
    pub fn on_timer(&mut self, now_ns: u64) {
        if self.deadline_ns().is_none_or(|at| now_ns < at) {
            return;
        }
        self.polled = None;
        self.lost_units = 0;
        for unit in &mut self.flight {
            unit.lost = unit.sent_mask() & !unit.acked;
            self.lost_units += usize::from(unit.lost != 0);
        }
        self.flight_bytes = 0;
        self.threshold_bytes = (self.window_bytes / 2).max(MIN_WINDOW_BYTES);
        self.window_bytes = MIN_WINDOW_BYTES;
        self.recovery_seq = self.next_seq;
        self.backoff += 1;
        self.timer_ns = now_ns;
        self.stats.timeouts += 1;
    }

    /// Everything that was not acknowledged whole, oldest first, for another session (a client that reconnects).
    pub fn take_unacknowledged(&mut self) -> impl Iterator<Item = P> + '_ {
        self.polled = None;
        (self.flight_bytes, self.queued_bytes, self.backlog_bytes, self.lost_units) = (0, 0, 0, 0);
        self.flight.drain(..).map(|u| u.payload).chain(self.queued.drain(..).map(|q| q.payload))
    }
}

/// The unit's sent packets that lie in the sequence range.
fn covered<P>(unit: &Unit<P>, range: Range<u64>) -> u64 {
    let from = range.start.saturating_sub(unit.first_seq).min(64) as u32;
    let to = range.end.saturating_sub(unit.first_seq).min(64) as u32;
    mask(to) & !mask(from) & unit.sent_mask()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send_all(sender: &mut Sender<u32>, now_ns: u64) -> Vec<(u64, bool)> {
        let mut sent = Vec::new();
        while let Some(t) = sender.poll() {
            sent.extend(t.packets.clone().map(|p| (t.first_seq + u64::from(p), t.resend)));
            sender.transmitted(now_ns);
        }
        sent
    }

    #[test]
    fn credit_bounds_what_is_sent_even_within_a_unit() {
        let mut sender = Sender::new(5);
        sender.enqueue(0, 3, 3000, true);
        sender.enqueue(1, 8, 8000, true);
        assert_eq!(send_all(&mut sender, 0).len(), 5);
        sender.on_ack(&Ack::new(5, 6), 10, |p| assert_eq!(p, 0)).unwrap();
        assert_eq!(send_all(&mut sender, 10), [(5, false)]);
        sender.on_ack(&Ack::new(6, 6), 20, |_| panic!()).unwrap();
        assert!(sender.is_starved() && !sender.is_idle());
        sender.on_ack(&Ack::new(6, 100), 30, |_| panic!()).unwrap();
        assert_eq!(send_all(&mut sender, 30).len(), 5);
        let mut released = Vec::new();
        sender.on_ack(&Ack::new(11, 100), 40, |p| released.push(p)).unwrap();
        assert_eq!((released, sender.is_idle(), sender.backlog_bytes()), (vec![1], true, 0));
    }

    #[test]
    fn a_hole_is_sent_again_once() {
        let mut sender = Sender::new(100);
        sender.enqueue(0, 10, 1000, true);
        send_all(&mut sender, 0);
        let ack = Ack::new(2, 100).with_ranges([4..10]);
        sender.on_ack(&ack, 1000, |_| panic!()).unwrap();
        assert_eq!(send_all(&mut sender, 1000), [(2, true), (3, true)]);
        sender.on_ack(&ack, 1001, |_| panic!()).unwrap();
        assert_eq!(send_all(&mut sender, 1001), []);
        assert_eq!(sender.stats(), SenderStats { packets: 10, resent: 2, timeouts: 0 });
    }

    #[test]
    fn a_time_out_sends_everything_again_but_what_is_known_to_be_there() {
        let mut sender = Sender::new(100);
        sender.enqueue(0, 4, 400, true);
        send_all(&mut sender, 0);
        sender.on_ack(&Ack::new(0, 100).with_ranges([3..4]), 1, |_| panic!()).unwrap();
        let at = sender.deadline_ns().unwrap();
        sender.on_timer(at - 1);
        assert!(sender.poll().is_none_or(|t| t.resend));
        sender.on_timer(at);
        assert_eq!(send_all(&mut sender, at), [(0, true), (1, true), (2, true)]);
        assert!(sender.deadline_ns().unwrap() > at);
    }

    #[test]
    fn an_ack_of_the_unsent_changes_nothing() {
        let mut sender = Sender::new(100);
        sender.enqueue(0, 4, 400, true);
        send_all(&mut sender, 0);
        assert!(sender.on_ack(&Ack::new(5, 100), 1, |_| panic!()).is_err());
        assert!(sender.on_ack(&Ack::new(1, 100).with_ranges([2..9]), 1, |_| panic!()).is_err());
        assert!(!sender.is_idle());
    }

    #[test]
    fn the_oldest_unsent_data_can_be_dropped_but_nothing_else() {
        let mut sender = Sender::new(1);
        sender.enqueue(0, 1, 100, true);
        send_all(&mut sender, 0);
        sender.enqueue(1, 1, 100, false);
        sender.enqueue(2, 1, 100, true);
        assert_eq!(sender.drop_oldest(), Some(2));
        assert_eq!(sender.drop_oldest(), None);
        assert_eq!(sender.take_unacknowledged().collect::<Vec<_>>(), [0, 1]);
    }
}
