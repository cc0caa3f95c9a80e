//! The datagrams of a sender: they have its congestion window, and wait for no credit.

use super::{AckError, Polled, Sender, Transmit};
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
    /// credit leaves in turn with them, as many bytes of either. One that the path holds back is not overtaken by the other, of
    /// which less would fit.
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
        let (bytes, _) = self.datagrams.sent(packets, now_ns);
        self.stats.bytes += bytes;
        self.datagrams_ahead += bytes.cast_signed();
        self.congestion.sent(bytes, self.moment());
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

    /// Takes what an ack says of datagrams; how many bytes of them are not on the way any more.
    pub(super) fn note_datagrams(&mut self, ack: &Ack) -> u64 {
        let patience_ns = self.rtt.overtaken_ns(self.reordering_packets);
        let reported = self.datagrams.reported(ack.datagrams, self.now_ns, patience_ns);
        if reported.lost > 0 {
            self.congestion.lost(reported.lost, self.next_tx, self.next_tx);
        }
        reported.bytes
    }

    /// When [`Sender::on_timer`] is to be called for datagrams, in ns.
    pub(super) fn datagrams_due_ns(&self) -> Option<u64> {
        self.datagrams.oldest_ns().map(|sent_ns| sent_ns.saturating_add(self.rtt.pto_ns(0)))
    }

    /// Datagrams that no ack has mentioned within the probe time-out are not on the way any more.
    pub(super) fn expire_datagrams(&mut self) {
        if let Some(before_ns) = self.now_ns.checked_sub(self.rtt.pto_ns(0)) {
            self.datagrams.expire(before_ns);
        }
    }
}
