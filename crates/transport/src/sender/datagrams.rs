//! The datagrams of a sender: they have its congestion window, and wait for no credit.

use super::{AckError, AckOutcome, Polled, Sender, Transmit};
use crate::datagrams::DatagramStats;
use crate::order::Traffic;
use crate::receiver::Ack;
use std::ops::Range;

impl<P> Sender<P> {
    /// Queues datagrams that leave when the path has room: `packets` (1 to 64) packets and `bytes` bytes. Where that many wait
    /// already, the oldest go to `drop`, each with those of its packets that were never sent.
    pub fn enqueue_datagrams(&mut self, payload: P, packets: u32, bytes: u64, drop: impl FnMut(P, Range<u32>)) {
        debug_assert!((1..=64).contains(&packets));
        self.polled.take_if(|polled| matches!(polled, Polled::Datagrams(_)));
        self.datagrams.push(payload, packets, bytes, drop);
    }

    /// Whether it is for datagrams to leave, or to wait for the path: no packet was lost, and no control waits; data that has
    /// credit leaves in turn with them, as many bytes of either. One that the path holds back is not overtaken by the other,
    /// whose packets may be shorter.
    pub(super) fn are_datagrams_next(&mut self) -> bool {
        if self.datagrams.len() == 0 {
            self.datagrams_ahead = 0;
            return false;
        }
        if self.lost_units > 0 {
            return false;
        }
        let next = self.next().map(|(class, charge)| (class.traffic(), charge));
        match next.filter(|&(traffic, charge)| self.credit(traffic).packets(charge) > 0) {
            Some((Traffic::Control, _)) => false,
            Some((Traffic::Data, _)) => self.datagrams_ahead <= 0,
            None => {
                self.datagrams_ahead = 0;
                true
            }
        }
    }

    /// The next datagrams to send, if the path has room for some.
    pub(super) fn poll_datagrams(&mut self) -> Option<Transmit<'_, P>> {
        let (packets, packet_bytes) = self.datagrams.next()?;
        let admitted = self.congestion.admit(packets.len() as u32, packet_bytes, self.moment());
        if admitted == 0 {
            return None;
        }
        self.polled = Some(Polled::Datagrams(admitted));
        let (payload, first_seq) = self.datagrams.payload_mut()?;
        Some(Transmit { payload, first_seq, packets: packets.start..packets.start + admitted, resend: false })
    }

    /// The next `packets` datagrams have left at `now_ns`.
    pub(super) fn datagrams_transmitted(&mut self, packets: u32, now_ns: u64) {
        // The numbers of a unit's transmissions follow each other.
        self.divide_last();
        let first_seq = self.datagrams.next_seq();
        let (bytes, _) = self.datagrams.sent(packets, now_ns, self.next_tx);
        self.next_tx += u64::from(packets);
        self.stats.bytes += bytes;
        self.datagrams_ahead += bytes.cast_signed();
        self.mtu.sent((bytes / u64::from(packets.max(1))) as usize);
        self.congestion.sent(bytes, self.moment());
        self.note_datagrams_sent(first_seq, packets, bytes);
    }

    /// Says that the transmission last polled could not be made. Datagrams of it are not tried again: they go to `drop`, with the
    /// packets of their unit that were never sent. Whether it was of datagrams.
    pub fn transmission_failed(&mut self, drop: impl FnOnce(P, Range<u32>)) -> bool {
        let is_of_datagrams = matches!(self.polled.take(), Some(Polled::Datagrams(_)));
        if is_of_datagrams {
            self.datagrams.drop_next(drop);
        }
        is_of_datagrams
    }

    /// The session is over: what waits goes to `drop` and counts as dropped, and all that the receiver has not reported as missing.
    pub fn lose_datagrams(&mut self, drop: impl FnMut(P, Range<u32>)) {
        self.polled.take_if(|polled| matches!(polled, Polled::Datagrams(_)));
        self.datagrams.lose(drop);
    }

    /// Units of datagrams that wait for room on the path.
    #[must_use]
    pub fn queued_datagrams(&self) -> usize {
        self.datagrams.len()
    }

    /// The counts of datagrams so far.
    #[must_use]
    pub fn datagram_stats(&self) -> DatagramStats {
        self.datagrams.stats()
    }

    pub(super) fn check_datagrams(&self, ack: &Ack) -> Result<(), AckError> {
        let (acked, sent) = (ack.datagrams.end, self.datagrams.next_seq());
        if acked > sent { Err(AckError { acked, sent }) } else { Ok(()) }
    }

    /// Takes what an ack says of datagrams. A packet that was sent after all others that it acknowledges says how long its round
    /// trip was.
    pub(super) fn note_datagrams(&mut self, ack: &Ack, outcome: &mut AckOutcome) {
        let (patience_ns, recovery_tx) =
            (self.rtt.overtaken_ns(self.reordering_packets), self.congestion.recovery_tx());
        let reported = self.datagrams.reported(ack.datagrams, self.now_ns, patience_ns, recovery_tx);
        if let Some((tx, sent_ns)) = reported.newest
            && Some(tx) > outcome.newest_tx.max(outcome.newest_again_tx)
        {
            (outcome.newest_tx, outcome.sample_ns) = (Some(tx), Some(self.now_ns.saturating_sub(sent_ns)));
        }
        if reported.newest.is_some() {
            self.mtu.acked(reported.newest_bytes as usize);
        }
        if reported.lost > 0 {
            self.mtu.lost(reported.lost_bytes as usize, self.now_ns);
        }
        outcome.bytes += reported.bytes;
        outcome.datagrams = reported;
    }

    /// When [`Sender::on_timer`] is to be called for datagrams, in ns.
    pub(super) fn datagrams_due_ns(&self) -> Option<u64> {
        self.datagrams.oldest_ns().map(|sent_ns| sent_ns.saturating_add(self.rtt.pto_ns(self.backoff)))
    }

    /// Datagrams that no ack has mentioned within the probe time-out are not on the way any more. If nothing was heard since they
    /// left, nothing comes through; where something else is on the way as well, that probes the path.
    pub(super) fn expire_datagrams(&mut self) {
        let before_ns = self.now_ns.checked_sub(self.rtt.pto_ns(self.backoff));
        let expired = before_ns.and_then(|before_ns| self.datagrams.expire(before_ns));
        let Some((sent_ns, longest_bytes)) = expired else { return };
        if sent_ns >= self.heard_ns && self.flight_bytes == 0 {
            self.mtu.lost(longest_bytes as usize, self.now_ns);
            self.backoff += 1;
            self.ecn.timed_out(self.backoff);
            self.congestion.collapsed(self.next_tx);
        }
        self.note_state(self.now_ns);
    }
}
