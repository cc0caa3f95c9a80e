//! The datagrams of a sender: they have its congestion window, and wait for no credit.

use super::{AckError, Sender, Transmit};
use crate::datagrams::DatagramStats;
use crate::receiver::Ack;
use std::ops::Range;

impl<P> Sender<P> {
    /// Queues datagrams that leave when the path has room: `packets` (1 to 64) packets and `bytes` bytes. Where that many wait
    /// already, the oldest go to `drop`, each with those of its packets that were never sent.
    pub fn enqueue_datagrams(&mut self, payload: P, packets: u32, bytes: u64, drop: impl FnMut(P, Range<u32>)) {
        debug_assert!((1..=64).contains(&packets));
        self.datagrams.push(payload, packets, bytes, drop);
    }

    /// The next datagrams to send, if the path has room for some. Call [`Sender::datagrams_transmitted`] once they were sent.
    pub fn poll_datagrams(&mut self) -> Option<Transmit<'_, P>> {
        self.datagrams.held_until_ns = None;
        let (packets, packet_bytes) = self.datagrams.next()?;
        let admitted = self.congestion.admit(packets.len() as u32, packet_bytes, self.moment());
        self.datagrams.held_until_ns = self.congestion.held_until_ns();
        if admitted == 0 {
            return None;
        }
        let (payload, first_seq) = self.datagrams.payload_mut()?;
        Some(Transmit { payload, first_seq, packets: packets.start..packets.start + admitted, resend: false })
    }

    /// Says that the next `packets` datagrams have left at `now_ns`; the payload, if nothing is left of it.
    pub fn datagrams_transmitted(&mut self, packets: u32, now_ns: u64) -> Option<P> {
        self.now_ns = self.now_ns.max(now_ns);
        let (bytes, payload) = self.datagrams.sent(packets, now_ns);
        self.stats.bytes += bytes;
        self.congestion.sent(bytes, self.moment());
        payload
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
        let expiry_ns = self.datagrams.oldest_ns().map(|sent_ns| sent_ns.saturating_add(self.rtt.pto_ns(0)));
        expiry_ns.into_iter().chain(self.datagrams.held_until_ns).min()
    }

    /// Datagrams that no ack has mentioned within the probe time-out are not on the way any more.
    pub(super) fn expire_datagrams(&mut self) {
        if let Some(before_ns) = self.now_ns.checked_sub(self.rtt.pto_ns(0)) {
            self.datagrams.expire(before_ns);
        }
        if self.datagrams.held_until_ns.is_some_and(|until_ns| until_ns <= self.now_ns) {
            self.datagrams.held_until_ns = None;
        }
    }
}
