//! Peers' queues: how much may wait for each, what joins them, and what leaves when one is over its bound.

use super::Net;
use crate::graph::bounds::{ack_buffers, message_buffers, needed_buffers};
use crate::graph::session::Room;
use crate::graph::spill::Spill;
use crate::net::carrier::Recipient;
use crate::net::payload::Payload;
use crate::net::peers::Peer;
use crate::net::sides::{RemoteSide, Waiting};
use crate::net::sink::{Output, SessionSink};
use crossdock_mailbox::Batch;
use crossdock_mailbox::host::{HostInterface, Message};
use crossdock_transport::MAX_SUPER_BYTES;
use std::sync::Arc;

/// Most packets that a session is said to have room for.
pub(crate) const MOST_PACKETS: usize = 16;

/// The packets that wait for a peer, in bytes, packets' headers included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Backlog {
    pub(crate) bytes: u64,
    pub(crate) bound: u64,
}

/// The change of a peer's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueChange {
    /// It is as full as before.
    Unchanged,
    /// It is over its bound now, both in bytes.
    Full { backlog: u64, bound: u64 },
    /// It has room again.
    HasRoom,
}

impl Net {
    /// Bytes that wait for a peer, and on the way or held by it, and the bound on them. No records join a queue that is over its
    /// bound. The last batch, control messages, and a bound that has fallen since may lead over it.
    pub(crate) fn backlog(&self, key: usize, host: &HostInterface) -> Backlog {
        let bytes = self.peers.get(key).map_or(0, |peer| peer.carrier().backlog_bytes(host));
        Backlog { bytes, bound: self.queue_bytes }
    }

    /// The backlog of a stream without subscriptions, and the bound that a subscription's queue would have.
    pub(crate) fn no_backlog(&self) -> Backlog {
        Backlog { bytes: 0, bound: self.queue_bytes }
    }

    /// The context has `subscriptions` subscriptions now. The bound of each queue: the configured one, or an even share of a
    /// quarter of the large buffers. A quarter, since a unit of 16 KiB may hold one of 64 KiB until it is acknowledged. Of an
    /// inbox, no more either: what waits for attached subscribers lies there.
    pub(crate) fn share_queues(&mut self, subscriptions: usize, host: &mut HostInterface) {
        self.needed_buffers = needed_buffers(subscriptions, self.large_buffers);
        let large_bytes = ((self.large_buffers * MAX_SUPER_BYTES) as u64).min(self.limits.inbox_bytes);
        let share = large_bytes / 4 / (subscriptions.max(1) as u64);
        let queue_bytes = self.limits.queue_bytes.min(share);
        if queue_bytes != std::mem::replace(&mut self.queue_bytes, queue_bytes) {
            let (peers, mut wire) = self.split(host);
            for (_, peer) in peers.iter_mut() {
                peer.carrier_mut().bound_queue(&mut wire, queue_bytes);
            }
        }
    }

    /// The room for a subscription of a peer to a stream, whose policy may be to block, and whose next record has `bytes` bytes, or 0
    /// if that is not known.
    #[inline]
    pub(crate) fn room(
        &mut self,
        (key, stream): (usize, usize),
        blocks: bool,
        bytes: usize,
        host: &HostInterface,
    ) -> Option<Room> {
        let peer = self.peers.present(key)?;
        let carrier = peer.carrier();
        let packets = match blocks {
            // Where records may be dropped, but none that waits: it was begun, or is longer than a packet.
            _ if peer.full => return Some(Room::Full),
            true => {
                let backlog = carrier.backlog_bytes(host);
                let left = self.queue_bytes.saturating_sub(backlog) as usize / MAX_SUPER_BYTES;
                // At least one, so that a queue with room for less than a packet does not stall.
                (left + usize::from(backlog == 0)).clamp(1, MOST_PACKETS)
            }
            false => MOST_PACKETS,
        };
        if !carrier.takes_buffers() {
            return Some(Room::Packets(packets));
        }
        if bytes > MAX_SUPER_BYTES && !self.pool.has_free(bytes, 1) {
            return Some(Room::NoBuffers);
        }
        // One more is that of the packet that is open.
        let for_circuits = if self.has_circuit(stream) { 0 } else { self.circuits.spare(self.large_buffers) };
        let spare = ack_buffers(self.large_buffers) + for_circuits;
        let mut has_free = |packets: usize| self.pool.has_free(MAX_SUPER_BYTES, spare + packets + 1);
        Some(match () {
            () if has_free(packets) => Room::Packets(packets),
            () if has_free(0) => Room::Packets(1),
            () => Room::NoBuffers,
        })
    }

    /// Records go to a peer as datagrams from now on, if they go in packets.
    pub(crate) fn use_datagrams(&mut self, key: usize) {
        if let Some(link) = self.peers.link_mut(key) {
            link.uses_datagrams = true;
        }
    }

    /// The sink of one format's records of a longest length for a subscription of a peer.
    #[inline]
    pub(crate) fn sink<'a>(
        &'a mut self,
        key: usize,
        to: Recipient,
        output: &'a mut Output,
        of: (u64, usize),
        spill: &'a mut Spill,
        host: &'a mut HostInterface,
    ) -> Option<SessionSink<'a>> {
        let (peers, wire) = self.split(host);
        Some(SessionSink::new(output, peers.present_mut(key)?.carrier_mut(), wire, to, of, spill))
    }

    /// Counts records that joined a peer's queue.
    #[inline]
    pub(crate) fn note_sent(&mut self, key: usize, records: u64) {
        self.counters.records_out += records;
        if records > 0 {
            self.peers.touch(key);
        }
    }

    /// A whole batch joins the queue of a peer over packets by reference; its records.
    pub(crate) fn pass_whole(&mut self, key: usize, batch: Arc<Batch>, to: Recipient) -> u64 {
        let Some(link) = self.peers.present_link_mut(key) else { return 0 };
        let records = batch.len() as u64;
        Payload::enqueue_whole(batch, to, &mut link.session);
        self.counters.records_out += records;
        self.counters.batches_whole += 1;
        self.peers.touch(key);
        records
    }

    /// A publisher's packet of `records` records joins the queue of an attached client of its domain by reference.
    #[inline]
    pub(crate) fn pass_in_place(
        &mut self,
        key: usize,
        message: &mut Message,
        to: Recipient,
        records: u16,
        host: &mut HostInterface,
    ) {
        let Some(attached) = self.peers.present_attached_mut(key) else { return };
        self.counters.records_out += u64::from(records);
        self.counters.batches_whole += 1;
        attached.pass(host, message, to, records);
    }

    /// The open packet of a subscription joins its peer's queue.
    pub(crate) fn flush(&mut self, key: usize, output: &mut Output, to: Recipient, host: &mut HostInterface) {
        let (peers, mut wire) = self.split(host);
        let Some(carrier) = peers.present_mut(key).map(Peer::carrier_mut) else { return };
        if !output.flush(carrier, &mut wire, to) {
            return;
        }
        if carrier.is_behind() {
            self.note_lagging(key);
        }
        self.peers.touch(key);
    }

    /// Whether the queue of a peer is over its bound, or was. An attached one that is behind is looked at each turn.
    #[inline]
    pub(crate) fn check_backlog(&mut self, key: usize, host: &HostInterface) -> bool {
        let Some(peer) = self.peers.present(key) else { return false };
        let carrier = peer.carrier();
        let is_over = peer.full || carrier.has_dropped() || carrier.backlog_bytes(host) > self.queue_bytes;
        if carrier.is_behind() {
            self.note_lagging(key);
        }
        is_over
    }

    /// Drops what a peer's queue may lose and has over its bound, when `more` bytes are to join it. `lost` is called for what
    /// is dropped, with the peer's subscriptions, the subscription's number and the records.
    pub(crate) fn bound_queue(
        &mut self,
        key: usize,
        more: u64,
        host: &mut HostInterface,
        mut lost: impl FnMut(&[usize], u32, u64),
    ) -> QueueChange {
        let bound = self.queue_bytes.saturating_sub(more);
        let (peers, mut wire) = self.split(host);
        // An attached client may have gone with a packet of its that was taken.
        let Some(peer) = peers.get_mut(key) else { return QueueChange::Unchanged };
        while let Some((number, records)) = peer.carrier_mut().take_dropped() {
            wire.counters.records_unsent += records;
            lost(&peer.subscriptions, number, records);
        }
        while peer.carrier().backlog_bytes(wire.host) > bound {
            // Nothing of the rest may be dropped.
            let Some((number, records)) = peer.carrier_mut().drop_oldest(&mut wire) else { break };
            wire.counters.records_unsent += records;
            lost(&peer.subscriptions, number, records);
        }
        let backlog = peer.carrier().backlog_bytes(wire.host);
        let full = if peer.full { backlog > bound / 2 } else { backlog > bound };
        if full == std::mem::replace(&mut peer.full, full) {
            return QueueChange::Unchanged;
        }
        peer.full_since_ns = full.then_some(wire.now_ns);
        if !full {
            return QueueChange::HasRoom;
        }
        self.has_full = true;
        // An attached client does not report that it has taken something, so its inbox is polled.
        self.note_lagging(key);
        QueueChange::Full { backlog, bound }
    }

    /// Sends the reader of a mailbox what waits in that, as far as it takes it and its session's queue has room.
    pub(crate) fn send_messages(&mut self, side: &mut RemoteSide, host: &mut HostInterface) {
        let (spare, queue_bytes) = (message_buffers(self.large_buffers), self.limits.queue_bytes);
        let (peers, mut wire) = self.split(host);
        let Some(link) = peers.present_link_mut(side.peer) else { return };
        let mut sent = false;
        while side.takes_messages() && link.session.sender.backlog_bytes() < queue_bytes {
            let message = match side.waiting.pop_front() {
                Some(Waiting::Got(message)) => message,
                _ => match wire.host.get(side.mailbox) {
                    Some(message) => message,
                    None => break,
                },
            };
            match link.send_message(&mut wire, message, (side.mailbox, side.number), spare) {
                Ok(Some(message)) => {
                    side.sent(message);
                    sent = true;
                }
                Ok(None) => {}
                Err(message) => {
                    side.waiting.push_front(Waiting::Got(message));
                    break;
                }
            }
        }
        if sent {
            self.peers.touch(side.peer);
        }
    }
}
