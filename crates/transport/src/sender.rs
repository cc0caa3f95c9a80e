//! The sending half of a session: a queue, what is in flight, and when to send it again.
//!
//! The unit is what leaves with one system call: a super-packet of up to 64 packets. Packets get their sequence numbers
//! when they are first sent, in the order that [`crate::order`] states: where control precedes the rest of a unit that was sent in
//! part, the unit is divided. The bytes sent are bounded by the receiver's credit; data and control have their
//! own ([`crate::credit`]), and by a congestion window.
//!
//! Every transmission of a packet is numbered too, for this side only. A packet counts as lost when one was acknowledged
//! that was sent three transmissions later, or that was sent later at all and it is nine eighths of a round trip ago (RFC 9002, 6.1,
//! which holds for what was sent again as well; more of both on paths that mix packets up). A sender that hears nothing for the probe
//! time-out sends two packets again, whatever the congestion window says, so that an ack shows what else is lost (RFC 9002, 6.2).

mod datagrams;
mod observed;

use crate::congestion::{Acked, Congestion, Moment};
use crate::credit::{CONTROL_WINDOW_PACKETS, Credit, charge};
use crate::datagrams::{Outbox, Reported};
use crate::ecn::Validation;
use crate::mtu::{MtuStats, PathMtu, Probe};
use crate::order::{Traffic, TrafficClass};
use crate::queue::Queue;
use crate::receiver::Ack;
use crate::rtt::Rtt;
use crate::trace::{LossReason, Observed, PacketSet, SenderTimer, TraceEvent};
use crate::unit::{Lengths, Queued, Unit, covered, mask};
use std::collections::VecDeque;
use std::ops::Range;

/// How many transmissions further on an acknowledged one must be before a packet counts as lost, at first and at most: the
/// number doubles when one that counted as lost turns out to be late.
const REORDERING_PACKETS: Range<u64> = 3..256;

/// How many packets probe a path that is silent.
const PROBE_PACKETS: u32 = 2;

/// Probes without an answer, after which losses say that nothing came through meanwhile: the silence has lasted three time-outs then
/// (persistent congestion, RFC 9002, 7.6).
const SILENT_PROBES: u32 = 2;

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
    /// Packets that counted as lost, also those that turned out to be late.
    pub lost: u64,
    /// Probe time-outs.
    pub timeouts: u64,
    /// Bytes of all packets sent, also again, and of datagrams.
    pub bytes: u64,
}

/// The result of an ack.
#[derive(Default)]
struct AckOutcome {
    /// Whether anything was acknowledged for the first time, and how many packets.
    any: bool,
    packets: u64,
    /// How many packets of it the congestion control had counted as lost by mistake.
    late_packets: u64,
    /// Whether some of it was within the time-out.
    in_time: bool,
    /// How much of it, and of datagrams, was sent since the congestion window last shrank, in bytes.
    bytes: u64,
    /// The newest transmission among what was sent once, and among what was sent again.
    newest_tx: Option<u64>,
    newest_again_tx: Option<u64>,
    /// A round-trip time, the ack's delay included, in ns.
    sample_ns: Option<u64>,
    /// The same, where only the least that it can have been is known.
    least_ns: Option<u64>,
    datagrams: Reported,
}

/// A transmission that is to be made.
#[derive(Debug)]
enum Polled {
    /// These packets of the unit of that index.
    Unit(usize, Range<u32>),
    /// As many of the datagrams that are next.
    Datagrams(u32),
}

/// The sending half of a session; `P` is the handle of a unit's bytes.
#[derive(Debug)]
pub struct Sender<P> {
    queue: Queue<P>,
    backlog_bytes: u64,
    flight: VecDeque<Unit<P>>,
    /// Bytes that may still arrive.
    flight_bytes: u64,
    /// The transmission that was last polled.
    polled: Option<Polled>,
    next_seq: u64,
    /// The packet size with which the session begins, in bytes, in which credit is counted.
    unit_bytes: usize,
    /// The packet size now.
    mtu: PathMtu,
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
    /// When a packet that was overtaken counts as lost, in ns.
    loss_ns: Option<u64>,
    congestion: Congestion,
    ecn: Validation,
    rtt: Rtt,
    /// Probe time-outs since the last answer.
    backoff: u32,
    /// Packets that may be sent whatever the congestion window says.
    probes: u32,
    timer_ns: u64,
    /// When an ack last brought something new, in ns.
    heard_ns: u64,
    /// The latest time that a call passed in.
    now_ns: u64,
    datagrams: Outbox<P>,
    /// The bytes that datagrams are ahead of data by, since both wait.
    datagrams_ahead: i64,
    stats: SenderStats,
    pub(crate) observed: Observed,
}

impl<P> Sender<P> {
    /// A sender of packets of up to `packet_bytes` bytes, whose peer takes `window` units of data to begin with ([`crate::credit`]).
    #[must_use]
    pub fn new(packet_bytes: usize, window: u32) -> Sender<P> {
        Sender::with_limits((packet_bytes, 0), window, 0)
    }

    /// The same, which finds out whether the path takes packets of up to `most_bytes` bytes, unless that is 0 ([`crate::mtu`]), and
    /// sends at a rate in bytes a second whatever is lost, unless that is 0.
    #[must_use]
    pub fn with_limits((packet_bytes, most_bytes): (usize, usize), window: u32, bytes_per_s: u64) -> Sender<P> {
        Sender {
            queue: Queue::new(),
            flight: VecDeque::new(),
            backlog_bytes: 0,
            flight_bytes: 0,
            polled: None,
            next_seq: 0,
            unit_bytes: packet_bytes,
            mtu: PathMtu::new(packet_bytes, most_bytes),
            data: Credit::new(window),
            control: Credit::new(CONTROL_WINDOW_PACKETS),
            next_tx: 0,
            newest_tx: 0,
            reordering_packets: REORDERING_PACKETS.start,
            awaited: 0,
            lost_units: 0,
            loss_ns: None,
            congestion: Congestion::new(packet_bytes, bytes_per_s),
            ecn: Validation::new(),
            rtt: Rtt::default(),
            backoff: 0,
            probes: 0,
            timer_ns: 0,
            heard_ns: 0,
            now_ns: 0,
            datagrams: Outbox::new(),
            datagrams_ahead: 0,
            stats: SenderStats::default(),
            observed: Observed::default(),
        }
    }

    /// Queues a unit of `packets` (1 to 64) packets and `bytes` bytes, which are as long as each other. A `droppable` one may fall to
    /// [`Sender::drop_oldest`]; none of a message in several units is.
    pub fn enqueue(&mut self, payload: P, packets: u32, bytes: u64, class: TrafficClass, droppable: bool) {
        self.enqueue_super(payload, Lengths::even(packets, bytes), class, droppable);
    }

    /// The same with packets of other lengths, which they have on the way, padding included.
    pub fn enqueue_super(&mut self, payload: P, lengths: Lengths, class: TrafficClass, droppable: bool) {
        debug_assert!((1..=64).contains(&lengths.packets));
        self.backlog_bytes += lengths.bytes;
        let begun = self.begun().map(|unit| unit.class).filter(|class| class.traffic() == Traffic::Data);
        let (unit_bytes, window) = (self.unit_bytes, self.credit(class.traffic()).window());
        let queued =
            Queued::new(payload, lengths, class, droppable, |bytes| charge(bytes as usize, unit_bytes, window));
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
        let begun = self.begun().filter(|_| !self.queue.has_control()).map(|unit| (unit.class, unit.next_charge()));
        begun.or_else(|| self.queue.front().map(|queued| (queued.class, queued.next_charge())))
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

    /// The shortest round-trip time of the last while in ns, zero before it is known.
    #[must_use]
    pub fn shortest_rtt_ns(&self) -> u64 {
        self.rtt.minimum_ns()
    }

    /// Bytes that may be on the way at once, as congestion control has it; none where a rate is stated.
    #[must_use]
    pub fn congestion_window_bytes(&self) -> Option<u64> {
        self.congestion.window_bytes()
    }

    /// The longest packet that the path takes, as far as is known, header included, in bytes. A longer one goes in parts
    /// ([`crate::parts`]).
    #[must_use]
    pub fn packet_bytes(&self) -> usize {
        self.mtu.bytes()
    }

    /// The counts of the search for the packet size.
    #[must_use]
    pub fn mtu_stats(&self) -> MtuStats {
        self.mtu.stats()
    }

    /// The probe of the packet size to send now, if one is due. Call until there is none.
    pub fn poll_probe(&mut self, now_ns: u64) -> Option<Probe> {
        self.mtu.poll(now_ns, self.rtt.pto_ns(0))
    }

    /// The other side has got the probe of that number.
    pub fn probe_answered(&mut self, number: u64, now_ns: u64) {
        self.mtu.answered(number, now_ns);
        self.note_state(now_ns);
    }

    /// Whether what is sent should have the bits ECT(0) in its IP header ([`crate::ecn`]).
    #[must_use]
    pub fn marks_ecn(&self) -> bool {
        self.ecn.marks()
    }

    /// Packets that the network has marked on their way, as far as the receiver has reported.
    #[must_use]
    pub fn marked_packets(&self) -> u64 {
        self.ecn.marked()
    }

    /// Bytes on the way: sent, and neither acknowledged nor given up.
    #[must_use]
    pub fn flight_bytes(&self) -> u64 {
        self.flight_bytes + self.datagrams.flight_bytes()
    }

    /// The next transmission to make, if one is due and allowed. Call [`Sender::transmitted`] once it was made; polled
    /// again without that, the same comes again. Lost packets and control go first, then data and datagrams in turn.
    pub fn poll(&mut self) -> Option<Transmit<'_, P>> {
        self.congestion.clear_hold();
        if self.are_datagrams_next() { self.poll_datagrams() } else { self.poll_unit() }
    }

    fn poll_unit(&mut self) -> Option<Transmit<'_, P>> {
        let next = if self.lost_units > 0 { self.next_lost() } else { self.next_new() };
        let (index, packets) = next?;
        self.polled = Some(Polled::Unit(index, packets.clone()));
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

    /// The first run of lost packets, as far as the congestion window has room for it, or as it is to probe the path.
    fn next_lost(&mut self) -> Option<(usize, Range<u32>)> {
        let moment = self.moment();
        let index = self.flight.iter().position(|u| u.lost != 0)?;
        let unit = &self.flight[index];
        let start = unit.lost.trailing_zeros();
        let len = (unit.lost >> start).trailing_ones();
        let len = match self.probes {
            0 => self.congestion.admit(len, unit.packet_bytes, moment),
            probes => len.min(probes),
        };
        (len > 0).then(|| (index, start..start + len))
    }

    /// Packets never sent, as far as credit and congestion window allow.
    fn next_new(&mut self) -> Option<(usize, Range<u32>)> {
        // Control that was polled before and not sent stays the next.
        let begun = self.begun().filter(|unit| unit.class.traffic() == Traffic::Control || !self.queue.has_control());
        let is_new = begun.is_none();
        let (sent, packets, packet_bytes, charge, class) = match (begun, self.queue.front()) {
            (Some(unit), _) => (unit.sent, unit.packets, unit.packet_bytes, unit.next_charge(), unit.class),
            (None, Some(queued)) => (0, queued.packets, queued.packet_bytes, queued.next_charge(), queued.class),
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
        let (now_ns, flight_bytes) = (self.now_ns, self.flight_bytes + self.datagrams.flight_bytes());
        let (rtt_ns, shortest_rtt_ns) = (self.rtt.smoothed_ns(), self.rtt.minimum_ns());
        Moment { now_ns, rtt_ns, shortest_rtt_ns, flight_bytes }
    }

    /// Says that the transmission last polled was made at `now_ns`.
    pub fn transmitted(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        match self.polled.take() {
            Some(Polled::Unit(index, packets)) => self.unit_transmitted(index, packets, now_ns),
            Some(Polled::Datagrams(packets)) => self.datagrams_transmitted(packets, now_ns),
            None => {}
        }
    }

    fn unit_transmitted(&mut self, index: usize, packets: Range<u32>, now_ns: u64) {
        if self.flight_bytes == 0 {
            self.timer_ns = now_ns;
        }
        let count = u64::from(packets.end - packets.start);
        let unit = &mut self.flight[index];
        let is_again = packets.start < unit.sent;
        unit.note_tx(packets.clone(), self.next_tx, now_ns);
        self.next_tx += count;
        let bytes = count * unit.packet_bytes;
        self.flight_bytes += bytes;
        self.stats.bytes += bytes;
        self.mtu.sent(unit.longest_bytes);
        if is_again {
            let again = mask(packets.end) & !mask(packets.start);
            unit.lost &= !again;
            unit.again |= again;
            self.lost_units -= usize::from(unit.lost == 0);
            self.probes = self.probes.saturating_sub(packets.end - packets.start);
            self.stats.resent += count;
        } else {
            unit.sent = packets.end;
            unit.fresh_from = packets.start;
            unit.sent_ns = now_ns;
            self.next_seq = unit.first_seq + u64::from(packets.end);
            self.stats.packets += count;
            let units = unit.charge_of(packets.clone());
            match unit.class.traffic() {
                Traffic::Data => {
                    self.data.spend(units);
                    self.datagrams_ahead -= bytes.cast_signed();
                }
                Traffic::Control => self.control.spend(units),
            }
        }
        self.congestion.sent(bytes, self.moment());
        self.note_sent(index, packets, is_again);
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
        self.check_datagrams(ack)?;
        self.polled = None;
        self.now_ns = self.now_ns.max(now_ns);
        self.data.extend(ack.data_limit);
        self.control.extend(ack.control_limit);
        let mut outcome = self.note_acked(ack, top, now_ns);
        self.note_datagrams(ack, &mut outcome);
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
            self.rtt.sample(measured_ns, ack.delay_ns(), self.now_ns);
        } else if let Some(least_ns) = outcome.least_ns {
            self.rtt.at_least(least_ns, ack.delay_ns());
        }
        // Which transmission of a packet has arrived is unknown where it has several: others that came with it say more.
        self.newest_tx =
            outcome.newest_tx.or(outcome.newest_again_tx).map_or(self.newest_tx, |tx| tx.max(self.newest_tx));
        let was_silent = self.backoff >= SILENT_PROBES;
        if outcome.late_packets > 0 && self.backoff == 0 {
            self.reordering_packets = (self.reordering_packets * 2).min(REORDERING_PACKETS.end);
            self.congestion.late(outcome.late_packets);
        }
        if outcome.in_time || outcome.sample_ns.is_some() {
            self.backoff = 0;
        }
        if outcome.any {
            self.timer_ns = now_ns;
            self.probes = 0;
        }
        if outcome.any || outcome.datagrams.any {
            self.heard_ns = self.now_ns;
            let sample_ns = outcome.sample_ns.map(|_| self.rtt.latest_ns());
            let (bytes, newest_tx, next_tx) = (outcome.bytes, self.newest_tx, self.next_tx);
            self.congestion.acked(Acked { bytes, newest_tx, next_tx, sample_ns }, self.moment());
        }
        let Reported { lost, lost_tx, arrived, .. } = outcome.datagrams;
        let newly = outcome.packets + arrived;
        if self.ecn.acked(newly, ack.ecn, (top, ack.datagrams.end), self.next_tx) > 0 {
            self.congestion.marked(self.newest_tx, self.next_tx);
        }
        if lost > 0 {
            self.congestion.lost(lost, lost_tx, self.next_tx);
            self.observed.note(self.now_ns, || TraceEvent::DatagramsLost { packets: lost });
        }
        if self.detect_loss() && was_silent {
            self.congestion.collapsed(self.next_tx);
        }
        self.note_state(self.now_ns);
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
            self.observed.note(now_ns, || TraceEvent::Acked(PacketSet { first_seq: unit.first_seq, set: fresh }));
            self.mtu.acked(unit.longest_bytes);
            self.flight_bytes -= u64::from((fresh & !unit.lost).count_ones()) * unit.packet_bytes;
            self.lost_units -= usize::from(unit.lost != 0 && unit.lost & !fresh == 0);
            let given_up = unit.lost & fresh;
            unit.lost &= !fresh;
            outcome.any = true;
            outcome.packets += u64::from(fresh.count_ones());
            let late = unit.late(fresh, now_ns, self.rtt.minimum_ns() / 4);
            outcome.late_packets += u64::from(((given_up | late) & unit.counted).count_ones());
            let old = recovery_tx.checked_sub(1).map_or(0, |tx| unit.sent_up_to(fresh, tx));
            outcome.bytes += u64::from((fresh & !old).count_ones()) * unit.packet_bytes;
            let again = fresh & unit.again;
            if fresh != again {
                outcome.newest_tx = outcome.newest_tx.max(Some(unit.newest_tx(fresh & !again)));
            }
            if again & !late != 0 {
                outcome.newest_again_tx = outcome.newest_again_tx.max(Some(unit.newest_tx(again & !late)));
            }
            // An answer within the time-out may be to what was sent again, and then the time-out was long enough. One that is
            // not shows that it is too short (Karn's rule would wait for the next packet, and send that again for nothing as
            // well); one that comes before there is an estimate shows nothing.
            let slow = again & !unit.late(again, now_ns, self.rtt.pto_ns(0));
            let known = self.rtt.is_known();
            outcome.in_time |= fresh & !again != 0 || (known && again & !late & !slow != 0);
            // Only the newest packet says how long its own round trip was.
            if let Ok(last @ 0..64) = u32::try_from(top - 1 - unit.first_seq)
                && fresh & 1 << last != 0
            {
                if last < unit.fresh_from {
                    // It left with an earlier part of the unit.
                    outcome.least_ns = (again & 1 << last == 0).then(|| now_ns.saturating_sub(unit.sent_ns));
                } else if (fresh & !again | late) & 1 << last != 0 {
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
            self.observed.lost(self.now_ns, unit.first_seq, packet, LossReason::NotTaken);
            self.lost_units += usize::from(unit.lost == 0);
            unit.acked &= !packet;
            unit.counted &= !packet;
            unit.lost |= packet;
        }
    }

    /// Marks packets as lost that later transmissions have overtaken: enough of them, or long enough ago. Whether there are any.
    fn detect_loss(&mut self) -> bool {
        let enough_tx = self.newest_tx.checked_sub(self.reordering_packets);
        let patience_ns = self.rtt.overtaken_ns(self.reordering_packets);
        self.loss_ns = None;
        let (mut newest_lost, mut lost_packets, mut shortest_bytes) = (None, 0, usize::MAX);
        for unit in &mut self.flight {
            if unit.first_tx >= self.newest_tx {
                break;
            }
            let overtaken = unit.sent_up_to(unit.outstanding(), self.newest_tx - 1);
            if overtaken == 0 {
                continue;
            }
            let by_others = enough_tx.map_or(0, |tx| unit.sent_up_to(overtaken, tx));
            let (by_time, next_ns) = unit.sent_before(overtaken & !by_others, self.now_ns.checked_sub(patience_ns));
            let next_ns = next_ns.map(|sent_ns| sent_ns.saturating_add(patience_ns));
            self.loss_ns = self.loss_ns.into_iter().chain(next_ns).min();
            let lost = by_others | by_time;
            if lost != 0 {
                self.observed.lost(self.now_ns, unit.first_seq, by_others, LossReason::Overtaken);
                self.observed.lost(self.now_ns, unit.first_seq, by_time, LossReason::Delayed);
                self.lost_units += usize::from(unit.lost == 0);
                unit.lost |= lost;
                unit.counted |= lost;
                self.flight_bytes -= u64::from(lost.count_ones()) * unit.packet_bytes;
                newest_lost = newest_lost.max(Some(unit.newest_tx(lost)));
                lost_packets += u64::from(lost.count_ones());
                shortest_bytes = shortest_bytes.min(unit.longest_bytes);
            }
        }
        self.stats.lost += lost_packets;
        if let Some(tx) = newest_lost {
            self.mtu.lost(shortest_bytes, self.now_ns);
            self.congestion.lost(lost_packets, tx, self.next_tx);
        }
        newest_lost.is_some()
    }

    /// When [`Sender::on_timer`] should be called, in ns, if something is in flight or held back by the pace of the path.
    #[must_use]
    pub fn deadline_ns(&self) -> Option<u64> {
        let timers = self.timeout_ns().into_iter().chain(self.loss_ns).chain(self.congestion.held_until_ns());
        timers.chain(self.datagrams_due_ns()).chain(self.mtu.due_ns()).min()
    }

    fn timeout_ns(&self) -> Option<u64> {
        (self.flight_bytes > 0).then(|| self.timer_ns.saturating_add(self.rtt.pto_ns(self.backoff)))
    }

    /// Lets time pass: what was overtaken counts as lost after a while, and after the probe time-out the path is probed.
    pub fn on_timer(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        if self.congestion.held_until_ns().is_some_and(|until_ns| until_ns <= now_ns) {
            self.congestion.clear_hold();
        }
        self.expire_datagrams();
        if self.loss_ns.is_some_and(|at| at <= now_ns) {
            self.polled = None;
            self.observed.note(now_ns, || TraceEvent::TimedOut(SenderTimer::Loss));
            self.detect_loss();
            self.note_state(now_ns);
        }
        if self.timeout_ns().is_some_and(|at| at <= now_ns) {
            self.observed.note(now_ns, || TraceEvent::TimedOut(SenderTimer::Probe));
            self.probe(now_ns);
            self.note_state(now_ns);
        }
    }

    /// Has the oldest packets sent again that no ack has come for, without a word about whether they are lost.
    fn probe(&mut self, now_ns: u64) {
        self.polled = None;
        let oldest = self.flight.iter_mut().find(|unit| unit.lost | unit.outstanding() != 0);
        if let Some(unit) = &oldest {
            self.mtu.lost(unit.longest_bytes, now_ns);
        }
        if let Some(unit) = oldest.filter(|unit| unit.lost == 0) {
            let outstanding = unit.outstanding();
            let start = outstanding.trailing_zeros();
            let again = outstanding & mask(start + PROBE_PACKETS) & !mask(start);
            self.observed.lost(now_ns, unit.first_seq, again, LossReason::Unanswered);
            unit.lost = again;
            unit.counted &= !again;
            self.lost_units += 1;
            self.flight_bytes -= u64::from(again.count_ones()) * unit.packet_bytes;
        }
        self.probes = PROBE_PACKETS;
        self.backoff += 1;
        self.ecn.timed_out(self.backoff);
        self.reordering_packets = REORDERING_PACKETS.start;
        self.timer_ns = now_ns;
        self.stats.timeouts += 1;
    }

    /// Everything that was not acknowledged whole, oldest first, for another session (a client that reconnects).
    pub fn take_unacknowledged(&mut self) -> impl Iterator<Item = P> + '_ {
        self.polled = None;
        (self.flight_bytes, self.backlog_bytes, self.lost_units, self.loss_ns) = (0, 0, 0, None);
        self.flight.drain(..).filter_map(|unit| unit.payload).chain(self.queue.drain())
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "an ack often has one range")]
mod tests;
