//! The carrier of a session with the daemon: UDP packets, or memory shared with it.
//!
//! A [`Carrier`] sends and receives packets in order and exactly once while its session stands, bounds what is under way in both
//! directions, and returns what the daemon may not have when the session is lost. It knows nothing of requests, streams and
//! reconnecting: the link does, once for all carriers. A link calls its carrier once per super-packet or per look at what has
//! arrived, never per record, so the calls are dynamic.

mod lent;
pub(crate) mod memory;
mod routed;
mod secure;
pub(crate) mod udp;
mod unit;

#[cfg(test)]
pub(crate) mod conformance;

pub(crate) use lent::give_pools_back;

use crate::incoming::Heard;
use crate::outgoing::{Outgoing, PacketBuffer, Unsent};
use crate::settings::Transport;
use crossdock_device::Idler;
use crossdock_mailbox::client::Attachment;
use crossdock_transport::SuperPacket;
use std::os::fd::BorrowedFd;

/// The carrier of a session. The methods with a body describe a carrier that loses nothing and needs no time: what is
/// handed over has arrived.
pub(crate) trait Carrier: Send {
    /// [`Transport::Shm`] or [`Transport::Udp`].
    fn transport(&self) -> Transport;

    /// Begins another session where the last one was; `false` if that takes another carrier.
    fn reopen(&mut self, _now_ns: u64) -> bool {
        false
    }

    /// An empty packet to fill with records; `None` while there is no memory for one.
    fn begin_packet(&mut self) -> Option<SuperPacket<PacketBuffer>>;

    /// Sends a unit: data behind all that was sent before, control before the data that waits and need not precede it.
    ///
    /// # Errors
    /// The unit, when there is no memory for it now.
    fn send(&mut self, unit: Outgoing) -> Result<(), Outgoing>;

    /// Units sent that the daemon may not have yet.
    fn unacknowledged(&self) -> usize {
        0
    }

    /// Whether more should be sent before some of that is acknowledged.
    fn has_room(&self) -> bool {
        true
    }

    /// Takes what has arrived: what it means is appended to `heard`, in order.
    fn receive(&mut self, now_ns: u64, idler: &mut Idler, heard: &mut Vec<Heard>);

    /// Returns the credit for the first `data_end` units of data ([`crossdock_transport::credit`]).
    fn consumed_to(&mut self, _data_end: u64) {}

    /// Returns the credit for all control that has arrived.
    fn control_consumed(&mut self) {}

    /// Lets time pass: what it means is appended to `heard`.
    fn on_timer(&mut self, _now_ns: u64, _heard: &mut Vec<Heard>) {}

    /// Transmits what is due: what fails is appended to `heard`.
    fn transmit(&mut self, _now_ns: u64, _heard: &mut Vec<Heard>) {}

    /// When something is due by itself, in ns.
    fn due_ns(&self) -> u64 {
        u64::MAX
    }

    /// The descriptor that becomes readable when something arrives.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Whether what arrives lies in memory until it is received: looking for it needs no system call, and nobody need hurry.
    fn is_polled(&self) -> bool {
        false
    }

    /// Shows the daemon that this process runs, where nothing else does; to be called about once a second.
    fn beat(&self) {}

    /// To be called before a thread sleeps on the descriptor. `true`: what has arrived before made nothing readable and must be
    /// looked for once more.
    fn arm(&self) -> bool {
        false
    }

    /// The session is lost: the records that the daemon may not have, in order.
    fn lose(&mut self) -> Vec<Unsent>;

    /// Notifies the daemon that the session is over, unless dropping the carrier does. Nothing goes over it after this.
    fn close(&mut self) {}

    /// Packets sent again so far, over all sessions.
    fn resent(&self) -> u64 {
        0
    }

    /// Why there is no session, as far as it is a matter of keys; and whether the daemon has said so.
    fn refusal(&self) -> Option<(String, bool)> {
        None
    }

    /// Units of datagrams that wait until the path has room for them.
    fn queued_datagrams(&self) -> usize {
        0
    }

    /// The counts of datagrams so far, over all sessions.
    fn datagrams(&self) -> DatagramCounts {
        DatagramCounts::default()
    }

    /// The memory shared with the daemon, if there is any.
    fn attachment(&self) -> Option<&Attachment> {
        None
    }
}

/// The datagrams that did not arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DatagramCounts {
    /// Records that were dropped before they left, as the path had no room for them.
    pub(crate) dropped_records: u64,
    /// Packets that the other side misses, by its last ack.
    pub(crate) missing_packets: u64,
}

/// No carrier: none yet, or none any more.
pub(crate) struct Closed(pub(crate) Transport);

impl Carrier for Closed {
    fn transport(&self) -> Transport {
        self.0
    }

    fn begin_packet(&mut self) -> Option<SuperPacket<PacketBuffer>> {
        None
    }

    fn send(&mut self, unit: Outgoing) -> Result<(), Outgoing> {
        Err(unit)
    }

    fn receive(&mut self, _: u64, _: &mut Idler, _: &mut Vec<Heard>) {}

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn lose(&mut self) -> Vec<Unsent> {
        Vec::new()
    }
}
