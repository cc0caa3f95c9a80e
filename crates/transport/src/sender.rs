//! The sending half of a session: a queue, what is in flight, and when to send it again.
//!
//! The unit is what leaves with one system call: a super-packet of up to 64 packets. Packets get their sequence numbers
//! when they are first sent, in the order that [`crate::order`] states: where control precedes the rest of a unit that was sent in
//! part, the unit is divided. The bytes sent are bounded by the receiver's credit; data and control have their
//! own ([`crate::credit`]), and by a congestion window.
//!
//! Every transmission of a packet is numbered too, for this side only. A packet counts as lost when one was acknowledged
//! that was sent three transmissions later (RFC 9002, 6.1.1, which holds for what was sent again as well; more on paths that
//! mix packets up), or when the time-out passes.

use crate::congestion::{Congestion, Moment};
use crate::credit::{CONTROL_WINDOW_PACKETS, Credit, charge};
use crate::order::{Traffic, TrafficClass};
use crate::queue::Queue;
use crate::receiver::Ack;
use crate::rtt::Rtt;
use crate::unit::{Queued, Unit, covered, mask};
use std::collections::VecDeque;
use std::ops::Range;

/// How many transmissions further on an acknowledged one must be before a packet counts as lost, at first and at most: the
/// number doubles when one that counted as lost turns out to be late.
const REORDERING_PACKETS: Range<u64> = 3..256;

/// One transmission to make: these packets of the unit, with sequence numbers from `first_seq` for packet 0.
#[derive(Debug)]
pub struct Transmit<'a, P> {
    /// The payload to send.
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
    /// The acknowledged number.
    pub acked: u64,
    /// The sent number.
    pub sent: u64,
}

/// The counts of the sending half so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// Packets sent for the first time.
    pub packets: u64,
    /// Packets sent again.
    pub resent: u64,
    /// Time-outs.
    pub timeouts: u64,
}

/// The result of an ack.
#[derive(Default)]
struct AckOutcome {
    /// Whether anything was acknowledged for the first time.
    any: bool,
    /// Whether some of it had counted as lost by mistake.
    late: bool,
    /// Whether some of it was within the time-out.
    in_time: bool,
    /// How much of it was sent since the congestion window last shrank, in bytes.
    bytes: u64,
    /// A round-trip time, the ack's delay included, in ns.
    sample_ns: Option<u64>,
}

/// The sending half of a session; `P` is the handle of a unit's bytes.
#[derive(Debug)]
pub struct Sender<P> {
    queue: Queue<P>,
    backlog_bytes: u64,
    flight: VecDeque<Unit<P>>,
    /// Bytes that may still arrive.
    flight_bytes: u64,
    /// Unit index and packets of the transmission that was last polled.
    polled: Option<(usize, Range<u32>)>,
    next_seq: u64,
    /// The session's packet size in bytes, in which credit is counted.
    packet_bytes: usize,
    data: Credit,
    control: Credit,
    /// The number of the next transmission of a packet.
    next_tx: u64,
    /// The newest transmission that was acknowledged.
    newest_tx: u64,
    reordering_packets: u64,
    /// The packet that the receiver awaits, by the newest ack.
    awaited: u64,
    lost_units: usize,
    congestion: Congestion,
    rtt: Rtt,
    backoff: u32,
    timer_ns: u64,
    /// The latest time that a call passed in.
    now_ns: u64,
    stats: SenderStats,
}

impl<P> Sender<P> {
    /// A sender of packets of up to `packet_bytes` bytes, whose peer takes `window` units of data to begin with ([`crate::credit`]).
    #[must_use]
    pub fn new(packet_bytes: usize, window: u32) -> Sender<P> {
        Sender {
            queue: Queue::new(),
            flight: VecDeque::new(),
            backlog_bytes: 0,
            flight_bytes: 0,
            polled: None,
            next_seq: 0,
            packet_bytes,
            data: Credit::new(window),
            control: Credit::new(CONTROL_WINDOW_PACKETS),
            next_tx: 0,
            newest_tx: 0,
            reordering_packets: REORDERING_PACKETS.start,
            awaited: 0,
            lost_units: 0,
            congestion: Congestion::new(),
            rtt: Rtt::default(),
            backoff: 0,
            timer_ns: 0,
            now_ns: 0,
            stats: SenderStats::default(),
        }
    }

    /// Queues a unit of `packets` (1 to 64) packets and `bytes` bytes. A packet that is longer than the packet size is
    /// the only one of its unit. A `droppable` one may fall to [`Sender::drop_oldest`]; none of
    /// a message in several units is.
    pub fn enqueue(&mut self, payload: P, packets: u32, bytes: u64, class: TrafficClass, droppable: bool) {
        debug_assert!((1..=64).contains(&packets));
        self.backlog_bytes += bytes;
        let begun = self.begun().map(|unit| unit.class).filter(|class| class.traffic() == Traffic::Data);
        let mut queued = Queued::new(payload, packets, bytes, class, droppable);
        queued.charge = charge(queued.packet_bytes as usize, self.packet_bytes, self.credit(class.traffic()).window());
        self.queue.push(queued, begun);
    }

    /// The unit whose packets are sent next: begun, and not sent whole.
    fn begun(&self) -> Option<&Unit<P>> {
        self.flight.back().filter(|unit| unit.is_unfinished())
    }

    /// Takes the oldest droppable unit that was never sent out of the queue.
    pub fn drop_oldest(&mut self) -> Option<P> {
        let dropped = self.queue.drop_oldest()?;
        self.backlog_bytes -= dropped.bytes;
        Some(dropped.payload)
    }

    /// Bytes queued and in flight: what this peer holds of the memory.
    #[must_use]
    pub fn backlog_bytes(&self) -> u64 {
        self.backlog_bytes
    }

    /// Units queued and in flight.
    #[must_use]
    pub fn backlog_units(&self) -> usize {
        self.queue.len() + self.flight.len()
    }

    /// Bytes of the units that wait for their first transmission, and of those that control has divided.
    #[must_use]
    pub fn queued_bytes(&self) -> u64 {
        self.queue.bytes()
    }

    /// Whether everything queued was sent and acknowledged.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.backlog_units() == 0
    }

    /// Whether something waits for what only the peer can give, with nothing in flight that would bring an ack: for credit, or for
    /// packets to be taken that have all arrived.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        let lacks_credit =
            || self.next().is_some_and(|(class, charge)| self.credit(class.traffic()).packets(charge) == 0);
        let is_not_taken = || self.lost_units == 0 && !self.flight.is_empty();
        self.flight_bytes == 0 && (is_not_taken() || lacks_credit())
    }

    /// The class of the next packet that was never sent, and its charge.
    fn next(&self) -> Option<(TrafficClass, u32)> {
        let begun = self.begun().filter(|_| !self.queue.has_control()).map(|unit| (unit.class, unit.charge));
        begun.or_else(|| self.queue.front().map(|queued| (queued.class, queued.charge)))
    }

    fn credit(&self, traffic: Traffic) -> Credit {
        match traffic {
            Traffic::Data => self.data,
            Traffic::Control => self.control,
        }
    }

    /// Units of credit spent so far, of either kind.
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.data.spent() + self.control.spent()
    }

    /// The counts so far.
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
        self.congestion.clear_hold();
        let next = if self.lost_units > 0 { self.next_lost() } else { self.next_new() };
        let (index, packets) = next?;
        self.polled = Some((index, packets.clone()));
        let unit = &self.flight[index];
        let resend = packets.start < unit.sent;
        let first_seq = unit.first_seq - u64::from(unit.from);
        let packets = unit.from + packets.start..unit.from + packets.end;
        Some(Transmit { payload: self.payload_mut(index)?, first_seq, packets, resend })
    }

    /// The payload of a unit in flight. If it was divided, only control lies between it and its rest.
    fn payload_mut(&mut self, index: usize) -> Option<&mut P> {
        let traffic = self.flight[index].class.traffic();
        let mut units = self.flight.range_mut(index..).filter(|unit| unit.class.traffic() == traffic);
        units.find_map(|unit| unit.payload.as_mut()).or_else(|| self.queue.rest_mut())
    }

    /// The first run of lost packets, as far as the congestion window has room for it.
    fn next_lost(&mut self) -> Option<(usize, Range<u32>)> {
        let moment = self.moment();
        let index = self.flight.iter().position(|u| u.lost != 0)?;
        let unit = &self.flight[index];
        let start = unit.lost.trailing_zeros();
        let len = (unit.lost >> start).trailing_ones();
        let len = self.congestion.admit(len, unit.packet_bytes, moment);
        (len > 0).then(|| (index, start..start + len))
    }

    /// Packets never sent, as far as credit and congestion window allow.
    fn next_new(&mut self) -> Option<(usize, Range<u32>)> {
        // Control that was polled before and not sent stays the next.
        let begun = self.begun().filter(|unit| unit.class.traffic() == Traffic::Control || !self.queue.has_control());
        let is_new = begun.is_none();
        let (sent, packets, packet_bytes, charge, class) = match (begun, self.queue.front()) {
            (Some(unit), _) => (unit.sent, unit.packets, unit.packet_bytes, unit.charge, unit.class),
            (None, Some(queued)) => (0, queued.packets, queued.packet_bytes, queued.charge, queued.class),
            (None, None) => return None,
        };
        let wanted = (packets - sent).min(self.credit(class.traffic()).packets(charge));
        if wanted == 0 {
            return None;
        }
        let len = self.congestion.admit(wanted, packet_bytes, self.moment());
        if len == 0 {
            return None;
        }
        if is_new {
            let next = self.queue.pop_front()?;
            self.divide_last();
            self.flight.push_back(next.into_unit(self.next_seq));
        }
        Some((self.flight.len() - 1, sent..sent + len))
    }

    /// Puts what was not sent of the last unit back into the queue, so that control can be sent before it.
    fn divide_last(&mut self) {
        let Some(rest) = self.flight.back_mut().filter(|unit| unit.is_unfinished()).and_then(Unit::divide) else {
            return;
        };
        self.queue.put_back(rest);
        if self.flight.back().is_some_and(|unit| unit.packets == 0) {
            self.flight.pop_back();
        }
    }

    fn moment(&self) -> Moment {
        Moment { now_ns: self.now_ns, rtt_ns: self.rtt.smoothed_ns(), flight_bytes: self.flight_bytes }
    }

    /// Says that the transmission last polled was made at `now_ns`.
    pub fn transmitted(&mut self, now_ns: u64) {
        let Some((index, packets)) = self.polled.take() else {
            return;
        };
        self.now_ns = self.now_ns.max(now_ns);
        if self.flight_bytes == 0 {
            self.timer_ns = now_ns;
        }
        let count = u64::from(packets.end - packets.start);
        let unit = &mut self.flight[index];
        unit.note_tx(packets.clone(), self.next_tx, now_ns);
        self.next_tx += count;
        let bytes = count * unit.packet_bytes;
        self.flight_bytes += bytes;
        if packets.start < unit.sent {
            let again = mask(packets.end) & !mask(packets.start);
            unit.lost &= !again;
            unit.again |= again;
            self.lost_units -= usize::from(unit.lost == 0);
            self.stats.resent += count;
        } else {
            unit.sent = packets.end;
            unit.fresh_from = packets.start;
            unit.sent_ns = now_ns;
            self.next_seq = unit.first_seq + u64::from(packets.end);
            self.stats.packets += count;
            let units = count * u64::from(unit.charge);
            match unit.class.traffic() {
                Traffic::Data => self.data.spend(units),
                Traffic::Control => self.control.spend(units),
            }
        }
        self.congestion.sent(bytes, self.moment());
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
        self.now_ns = self.now_ns.max(now_ns);
        self.data.extend(ack.data_limit);
        self.control.extend(ack.control_limit);
        let outcome = self.note_acked(ack, top, now_ns);
        while self.flight.front().is_some_and(|u| u.end() <= ack.next_seq) {
            if let Some(unit) = self.flight.pop_front() {
                self.backlog_bytes -= unit.bytes;
                unit.payload.into_iter().for_each(&mut release);
            }
        }
        if ack.next_seq >= self.awaited {
            self.awaited = ack.next_seq;
            self.note_not_taken();
        }
        if let Some(measured_ns) = outcome.sample_ns {
            self.rtt.sample(measured_ns, ack.delay_ns());
        }
        if outcome.late && self.backoff == 0 {
            self.reordering_packets = (self.reordering_packets * 2).min(REORDERING_PACKETS.end);
        }
        if outcome.in_time || outcome.sample_ns.is_some() {
            self.backoff = 0;
        }
        if outcome.any {
            self.timer_ns = now_ns;
            self.congestion.acked(outcome.bytes);
        }
        self.detect_loss();
        Ok(())
    }

    /// Marks what the ack covers, which reaches up to `top`.
    fn note_acked(&mut self, ack: &Ack, top: u64, now_ns: u64) -> AckOutcome {
        let mut outcome = AckOutcome::default();
        let (mut ranges, recovery_tx) = (ack.ranges(), self.congestion.recovery_tx());
        for unit in &mut self.flight {
            if unit.first_seq >= top {
                break;
            }
            let mut covers = covered(unit, 0..ack.next_seq);
            while let [range, rest @ ..] = ranges {
                covers |= covered(unit, range.clone());
                if range.end > unit.end() {
                    break;
                }
                ranges = rest;
            }
            if ack.next_seq < self.awaited {
                // It is older than the one that takes this packet back.
                covers &= !covered(unit, self.awaited..self.awaited + 1);
            }
            let fresh = covers & !unit.acked;
            if fresh == 0 {
                continue;
            }
            unit.acked |= fresh;
            self.flight_bytes -= u64::from((fresh & !unit.lost).count_ones()) * unit.packet_bytes;
            self.lost_units -= usize::from(unit.lost != 0 && unit.lost & !fresh == 0);
            outcome.late |= unit.lost & fresh != 0;
            unit.lost &= !fresh;
            outcome.any = true;
            let late = unit.late(fresh, now_ns, self.rtt.minimum_ns() / 4);
            outcome.late |= late != 0;
            if fresh != late {
                self.newest_tx = self.newest_tx.max(unit.newest_tx(fresh & !late));
            }
            let old = recovery_tx.checked_sub(1).map_or(0, |tx| unit.sent_up_to(fresh, tx));
            outcome.bytes += u64::from((fresh & !old).count_ones()) * unit.packet_bytes;
            // An answer within the time-out may be to what was sent again, and then the time-out was long enough. One that is
            // not shows that it is too short (Karn's rule would wait for the next packet, and send that again for nothing as
            // well); one that comes before there is an estimate shows nothing.
            let again = fresh & unit.again;
            let slow = again & !unit.late(again, now_ns, self.rtt.rto_ns(0));
            let known = self.rtt.is_known();
            outcome.in_time |= fresh & !again != 0 || (known && again & !late & !slow != 0);
            // Only the newest packet says how long its own round trip was.
            if let Ok(last @ 0..64) = u32::try_from(top - 1 - unit.first_seq)
                && fresh & 1 << last != 0
                && last >= unit.fresh_from
            {
                if (fresh & !again | late) & 1 << last != 0 {
                    outcome.sample_ns = Some(now_ns.saturating_sub(unit.sent_ns));
                } else if known && slow & 1 << last != 0 {
                    outcome.sample_ns = Some(now_ns.saturating_sub(unit.resends[last as usize].1));
                }
            }
        }
        outcome
    }

    /// A packet that was acknowledged ahead of a hole, and is awaited all the same, has found no room at the receiver, which may
    /// revoke what it said (RFC 2018, 8): it is sent again.
    fn note_not_taken(&mut self) {
        let Some(unit) = self.flight.front_mut() else { return };
        let Some(at) = self.awaited.checked_sub(unit.first_seq) else { return };
        let packet = unit.acked & 1_u64.checked_shl(at as u32).unwrap_or_default();
        if packet != 0 {
            self.lost_units += usize::from(unit.lost == 0);
            unit.acked &= !packet;
            unit.lost |= packet;
        }
    }

    /// Marks packets as lost that later transmissions have overtaken.
    fn detect_loss(&mut self) {
        let Some(overtaken_tx) = self.newest_tx.checked_sub(self.reordering_packets) else {
            return;
        };
        let mut newest_lost = None;
        for unit in &mut self.flight {
            if unit.first_tx > overtaken_tx {
                break;
            }
            let lost = unit.sent_up_to(unit.outstanding(), overtaken_tx);
            if lost != 0 {
                self.lost_units += usize::from(unit.lost == 0);
                unit.lost |= lost;
                self.flight_bytes -= u64::from(lost.count_ones()) * unit.packet_bytes;
                newest_lost = newest_lost.max(Some(unit.newest_tx(lost)));
            }
        }
        if let Some(tx) = newest_lost {
            self.congestion.lost(tx, self.next_tx);
        }
    }

    /// When [`Sender::on_timer`] should be called, in ns, if something is in flight or held back by the pace of the path.
    #[must_use]
    pub fn deadline_ns(&self) -> Option<u64> {
        self.timeout_ns().into_iter().chain(self.congestion.held_until_ns()).min()
    }

    fn timeout_ns(&self) -> Option<u64> {
        (self.flight_bytes > 0).then(|| self.timer_ns.saturating_add(self.rtt.rto_ns(self.backoff)))
    }

    /// Lets time pass. After the retransmission time-out everything in flight counts as lost and is sent again from the
    /// smallest window.
    pub fn on_timer(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        if self.congestion.held_until_ns().is_some_and(|until_ns| until_ns <= now_ns) {
            self.congestion.clear_hold();
        }
        if self.timeout_ns().is_none_or(|at| now_ns < at) {
            return;
        }
        self.polled = None;
        self.lost_units = 0;
        for unit in &mut self.flight {
            unit.lost = unit.sent_mask() & !unit.acked;
            self.lost_units += usize::from(unit.lost != 0);
        }
        self.flight_bytes = 0;
        self.congestion.timed_out(self.next_tx);
        self.backoff += 1;
        self.reordering_packets = REORDERING_PACKETS.start;
        self.timer_ns = now_ns;
        self.stats.timeouts += 1;
    }

    /// Everything that was not acknowledged whole, oldest first, for another session (a client that reconnects).
    pub fn take_unacknowledged(&mut self) -> impl Iterator<Item = P> + '_ {
        self.polled = None;
        (self.flight_bytes, self.backlog_bytes, self.lost_units) = (0, 0, 0);
        self.flight.drain(..).filter_map(|unit| unit.payload).chain(self.queue.drain())
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "an ack often has one range")]
mod tests {
    use super::*;
    use crate::order::{Follows, Origin};

    const STREAM: TrafficClass = TrafficClass::Data(Origin::Stream(1));
    /// Control that waits for nothing.
    const FREE: TrafficClass = TrafficClass::Exchange(Follows::Nothing);

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
        let mut sender = Sender::new(1472, 5);
        sender.enqueue(0, 3, 3000, STREAM, true);
        sender.enqueue(1, 8, 8000, STREAM, true);
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

    /// The units that leave, as payloads with the numbers of their packets.
    fn sent_payloads(sender: &mut Sender<u32>) -> Vec<(u32, Range<u32>, u64)> {
        let mut sent = Vec::new();
        while let Some(t) = sender.poll() {
            sent.push((*t.payload, t.packets.clone(), t.first_seq + u64::from(t.packets.start)));
            sender.transmitted(0);
        }
        sent
    }

    #[test]
    fn control_divides_a_unit_that_waits_for_credit() {
        let mut sender = Sender::new(1472, 3);
        sender.enqueue(0, 8, 800, STREAM, true);
        assert_eq!(sent_payloads(&mut sender), [(0, 0..3, 0)]);
        sender.enqueue(1, 1, 10, FREE, false);
        assert_eq!(sent_payloads(&mut sender), [(1, 0..1, 3)]);
        sender.on_ack(&Ack::new(4, 5).with_ranges([]), 1, |p| assert_eq!(p, 1)).unwrap();
        assert_eq!(sent_payloads(&mut sender), [(0, 3..5, 4)]);
        sender.enqueue(2, 1, 10, FREE, false);
        assert_eq!(sent_payloads(&mut sender), [(2, 0..1, 6)]);
        // All is lost that was not acknowledged.
        sender.on_timer(sender.deadline_ns().unwrap());
        assert_eq!(sent_payloads(&mut sender), [(0, 3..5, 4), (2, 0..1, 6)]);
        assert!(!sender.is_starved() && sender.drop_oldest().is_none());
        let mut released = Vec::new();
        sender.on_ack(&Ack::new(7, 100), 2, |p| released.push(p)).unwrap();
        assert_eq!(sent_payloads(&mut sender), [(0, 5..8, 7)]);
        sender.on_ack(&Ack::new(10, 100), 3, |p| released.push(p)).unwrap();
        assert_eq!((released, sender.is_idle(), sender.backlog_bytes()), (vec![2, 0], true, 0));
        assert_eq!(sender.queued_bytes(), 0);
    }

    #[test]
    fn a_divided_unit_that_is_lost_is_sent_again_from_the_queue() {
        let mut sender = Sender::new(1472, 2);
        sender.enqueue(0, 4, 400, STREAM, true);
        sender.enqueue(1, 1, 100, STREAM, true);
        send_all(&mut sender, 0);
        sender.enqueue(2, 1, 10, FREE, false);
        send_all(&mut sender, 0);
        sender.on_timer(sender.deadline_ns().unwrap());
        assert_eq!(sent_payloads(&mut sender), [(0, 0..2, 0), (2, 0..1, 2)]);
        assert_eq!(sender.take_unacknowledged().collect::<Vec<_>>(), [2, 0, 1]);
    }

    #[test]
    fn control_waits_for_the_data_that_it_follows_and_for_no_credit_after_that() {
        let other = Origin::Stream(2);
        let notice = |follows| TrafficClass::Notice(follows);
        let mut sender = Sender::new(1472, 1);
        sender.enqueue(0, 2, 200, STREAM, true);
        send_all(&mut sender, 0);
        sender.enqueue(1, 1, 10, notice(Follows::Origin(Origin::Stream(1))), false);
        sender.enqueue(2, 1, 10, notice(Follows::Origin(other)), false);
        sender.enqueue(3, 1, 10, notice(Follows::Mailboxes), false);
        sender.enqueue(4, 1, 100, TrafficClass::Data(other), true);
        sender.enqueue(5, 1, 10, notice(Follows::Everything), false);
        // After what follows the same, but before the data that does not concern it.
        sender.enqueue(6, 1, 10, notice(Follows::Origin(Origin::Stream(1))), false);
        let payloads = |sent: Vec<(u32, Range<u32>, u64)>| sent.into_iter().map(|sent| sent.0).collect::<Vec<_>>();
        assert_eq!(payloads(sent_payloads(&mut sender)), [2, 3]);
        sender.on_ack(&Ack::new(3, 2), 1, |_| {}).unwrap();
        assert_eq!(payloads(sent_payloads(&mut sender)), [0, 1, 6]);
        sender.on_ack(&Ack::new(6, 3), 1, |_| {}).unwrap();
        assert_eq!(payloads(sent_payloads(&mut sender)), [4, 5]);
    }

    #[test]
    fn replies_keep_their_order_while_one_waits_for_records() {
        let mut sender = Sender::new(1472, 1);
        sender.enqueue(0, 2, 200, STREAM, true);
        send_all(&mut sender, 0);
        sender.enqueue(1, 1, 10, TrafficClass::Exchange(Follows::Origin(Origin::Stream(1))), false);
        sender.enqueue(2, 1, 10, FREE, false);
        sender.enqueue(3, 1, 10, TrafficClass::Notice(Follows::Nothing), false);
        assert_eq!(sent_payloads(&mut sender), [(3, 0..1, 1)]);
        sender.on_ack(&Ack::new(2, 2), 1, |_| {}).unwrap();
        assert_eq!(sent_payloads(&mut sender), [(0, 1..2, 2), (1, 0..1, 3), (2, 0..1, 4)]);
    }

    #[test]
    fn nothing_overtakes_control_that_waits_for_credit_of_its_own() {
        let mut sender = Sender::new(1472, 100);
        (0..=CONTROL_WINDOW_PACKETS).for_each(|n| sender.enqueue(n, 1, 10, FREE, false));
        sender.enqueue(999, 1, 100, STREAM, true);
        assert_eq!(send_all(&mut sender, 0).len(), CONTROL_WINDOW_PACKETS as usize);
        sender.on_ack(&Ack::new(64, 100), 1, |_| {}).unwrap();
        assert!(sender.is_starved());
        let mut ack = Ack::new(64, 100);
        ack.control_limit = 65;
        sender.on_ack(&ack, 1, |_| {}).unwrap();
        assert_eq!(sent_payloads(&mut sender).iter().map(|sent| sent.0).collect::<Vec<_>>(), [64, 999]);
    }

    #[test]
    fn a_hole_is_sent_again_once() {
        let mut sender = Sender::new(1472, 100);
        sender.enqueue(0, 10, 1000, STREAM, true);
        send_all(&mut sender, 0);
        let ack = Ack::new(2, 100).with_ranges([4..10]);
        sender.on_ack(&ack, 1000, |_| panic!()).unwrap();
        assert_eq!(send_all(&mut sender, 1000), [(2, true), (3, true)]);
        sender.on_ack(&ack, 1001, |_| panic!()).unwrap();
        assert_eq!(send_all(&mut sender, 1001), []);
        assert_eq!(sender.stats(), SenderStats { packets: 10, resent: 2, timeouts: 0 });
    }

    #[test]
    fn withdrawn_packets_are_sent_again() {
        let mut sender = Sender::new(1472, 6);
        sender.enqueue(0, 6, 600, STREAM, true);
        send_all(&mut sender, 0);
        sender.on_ack(&Ack::new(1, 6).with_ranges([2..6]), 1000, |_| panic!()).unwrap();
        assert_eq!(send_all(&mut sender, 1000), [(1, true)]);
        // Packet 1 fills the hole, and there is no room for those behind it.
        let ack = Ack::new(2, 6).with_ranges([3..6]);
        sender.on_ack(&ack, 2000, |_| panic!()).unwrap();
        assert_eq!((send_all(&mut sender, 2000), sender.is_starved()), (vec![(2, true)], false));
        sender.on_ack(&ack, 2001, |_| panic!()).unwrap();
        assert_eq!(send_all(&mut sender, 2001), [], "once");
        // An older ack, which comes late, does not say that it has arrived.
        sender.on_ack(&Ack::new(1, 6).with_ranges([2..6]), 2002, |_| panic!()).unwrap();
        assert!(sender.deadline_ns().is_some(), "it is in flight still");
        sender.on_timer(sender.deadline_ns().unwrap());
        assert_eq!(send_all(&mut sender, 900_000_000), [(2, true)]);
        let mut released = Vec::new();
        sender.on_ack(&Ack::new(6, 6), 900_001_000, |p| released.push(p)).unwrap();
        assert_eq!((released, sender.is_idle()), (vec![0], true));
    }

    #[test]
    fn a_time_out_sends_everything_again_but_what_is_known_to_be_there() {
        let mut sender = Sender::new(1472, 100);
        sender.enqueue(0, 4, 400, STREAM, true);
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
        let mut sender = Sender::new(1472, 100);
        sender.enqueue(0, 4, 400, STREAM, true);
        send_all(&mut sender, 0);
        assert!(sender.on_ack(&Ack::new(5, 100), 1, |_| panic!()).is_err());
        assert!(sender.on_ack(&Ack::new(1, 100).with_ranges([2..9]), 1, |_| panic!()).is_err());
        assert!(!sender.is_idle());
    }

    #[test]
    fn the_oldest_unsent_data_can_be_dropped_but_nothing_else() {
        let mut sender = Sender::new(1472, 1);
        sender.enqueue(0, 1, 100, STREAM, true);
        send_all(&mut sender, 0);
        sender.enqueue(1, 1, 100, STREAM, false);
        sender.enqueue(2, 1, 100, STREAM, true);
        assert_eq!(sender.drop_oldest(), Some(2));
        assert_eq!(sender.drop_oldest(), None);
        assert_eq!(sender.take_unacknowledged().collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn only_the_newest_packet_measures_the_round_trip() {
        const MS: u64 = 1_000_000;
        let mut sender = Sender::new(1472, 100);
        sender.enqueue(0, 10, 1000, STREAM, true);
        send_all(&mut sender, 0);
        sender.on_ack(&Ack::new(0, 100).with_ranges([5..6]), MS, |_| panic!()).unwrap();
        assert_eq!(sender.rtt_ns(), MS);
        // A packet that arrived long ago and is acknowledged only now was not on its way for so long.
        sender.on_ack(&Ack::new(3, 100).with_ranges([5..6]), 6000 * MS, |_| panic!()).unwrap();
        assert_eq!(sender.rtt_ns(), MS);
        // Nor does the second part of a unit say when its first part left.
        let mut sender = Sender::new(1472, 2);
        sender.enqueue(0, 4, 400, STREAM, true);
        send_all(&mut sender, 0);
        sender.on_ack(&Ack::new(0, 4), 99 * MS, |_| panic!()).unwrap();
        send_all(&mut sender, 99 * MS);
        sender.on_ack(&Ack::new(2, 4), 100 * MS, |_| panic!()).unwrap();
        assert_eq!(sender.rtt_ns(), 0);
    }

    #[test]
    fn packets_lost_again_are_noticed_without_a_time_out() {
        let mut sender = Sender::new(1472, 100);
        sender.enqueue(0, 5, 500, STREAM, true);
        send_all(&mut sender, 0);
        let ack = Ack::new(0, 100).with_ranges([1..5]);
        sender.on_ack(&ack, 1_000_000, |_| panic!()).unwrap();
        sender.enqueue(1, 4, 400, STREAM, true);
        let sent = [(0, true), (5, false), (6, false), (7, false), (8, false)];
        assert_eq!(send_all(&mut sender, 1_000_000), sent);
        // Three transmissions after the second of packet 0.
        let ack = Ack::new(0, 100).with_ranges([1..7]);
        sender.on_ack(&ack, 2_000_000, |_| panic!()).unwrap();
        assert_eq!(send_all(&mut sender, 2_000_000), []);
        let ack = Ack::new(0, 100).with_ranges([1..8]);
        sender.on_ack(&ack, 2_000_000, |_| panic!()).unwrap();
        assert_eq!(send_all(&mut sender, 2_000_000), [(0, true)]);
        assert_eq!(sender.stats().timeouts, 0);
    }

    #[test]
    fn a_path_that_mixes_packets_up_gets_more_patience() {
        let mut sender = Sender::new(1472, 100);
        sender.enqueue(0, 20, 2000, STREAM, true);
        send_all(&mut sender, 0);
        sender.on_ack(&Ack::new(0, 100).with_ranges([3..4]), 1_000_000, |_| panic!()).unwrap();
        sender.on_ack(&Ack::new(4, 100), 1_100_000, |_| panic!()).unwrap();
        sender.on_ack(&Ack::new(4, 100).with_ranges([5..10]), 1_200_000, |_| panic!()).unwrap();
        assert_eq!(send_all(&mut sender, 1_200_000), []);
        sender.on_ack(&Ack::new(4, 100).with_ranges([5..11]), 1_300_000, |_| panic!()).unwrap();
        assert_eq!(send_all(&mut sender, 1_300_000), [(4, true)]);
    }

    #[test]
    fn a_long_path_is_sent_to_at_a_pace() {
        let mut sender = Sender::new(1472, 1000);
        sender.enqueue(0, 1, 1000, STREAM, true);
        send_all(&mut sender, 0);
        sender.on_ack(&Ack::new(1, 1000), 20_000_000, |p| assert_eq!(p, 0)).unwrap();
        for unit in 1..=4 {
            sender.enqueue(unit, 10, 10_000, STREAM, true);
        }
        let (mut now_ns, mut sent) = (20_000_000, 0);
        loop {
            let burst = send_all(&mut sender, now_ns).len();
            assert!((1..=20).contains(&burst), "{burst} packets at once");
            sent += burst;
            if sent == 40 {
                break;
            }
            let due_ns = sender.deadline_ns().unwrap();
            assert!(due_ns > now_ns);
            now_ns = due_ns;
            sender.on_timer(now_ns);
        }
        assert_eq!(sender.stats().timeouts, 0);
        assert!(now_ns < 40_000_000, "a window takes no longer than a round trip: {now_ns}");
    }
}
