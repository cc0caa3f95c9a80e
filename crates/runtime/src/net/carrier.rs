//! The face of what carries a peer's messages: a session over packets, or memory that is shared with an attached
//! client. Calls are for a packet or a control message, never for a record.

use crate::counters::{Counters, DropReason};
use crate::net::space::{OpenPacket, Space};
use crate::principal::Principal;
use crossdock_device::{Device, Poller};
use crossdock_mailbox::host::{HostError, HostInterface, Opened, Owner, PortOptions, Side};
use crossdock_mailbox::{Batch, Fragments, Pool};
use crossdock_transport::TrafficClass;
use crossdock_transport::handshake::Close;
use std::ops::RangeInclusive;

/// The parts of a context that a carrier needs for a call.
pub(crate) struct Wire<'a> {
    pub(crate) pool: &'a mut Pool,
    pub(crate) host: &'a mut HostInterface,
    pub(crate) poller: &'a mut Poller,
    pub(crate) device: &'a mut dyn Device,
    pub(crate) counters: &'a mut Counters,
    /// The context's time.
    pub(crate) now_ns: u64,
}

/// The subscription that records are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recipient {
    /// The peer's number for it.
    pub(crate) subscription: u32,
    /// Whether its records may be dropped when its queue is full.
    pub(crate) droppable: bool,
}

/// How a batch leaves when each of its records does, unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    /// In its own buffer, which the peer's queue shares.
    Shared,
    /// Copied packet by packet.
    Slices,
    /// Copied record by record.
    Records,
}

/// The carrier of a peer's messages. Its `Display` is the peer's name in lists.
pub(crate) trait Carrier: std::fmt::Display {
    /// Bytes queued for the peer, and on the way or held by it: what it takes of the memory.
    fn backlog_bytes(&self, host: &HostInterface) -> u64;

    /// Bytes of control messages that the peer has not taken yet.
    fn untaken_control_bytes(&self, host: &HostInterface) -> u64;

    /// Whether messages wait that the carrier has to be given again each turn.
    fn is_behind(&self) -> bool;

    /// Whether the peer has gone and only records that it had put before remain; nothing can be sent to it any more.
    fn leaves(&self) -> bool;

    /// Takes the oldest droppable unit out of the queue: the subscription's number and the records in it.
    fn drop_oldest(&mut self, wire: &mut Wire<'_>) -> Option<(u32, u64)>;

    /// Whether records of datagrams were dropped that [`Carrier::take_dropped`] has not given yet.
    fn has_dropped(&self) -> bool {
        false
    }

    /// Records of datagrams for which the path had no room: the subscription's number, and how many.
    fn take_dropped(&mut self) -> Option<(u32, u64)> {
        None
    }

    /// The bound of the queue is `bytes` from now on: of what waits, enough stays where it can be dropped.
    fn bound_queue(&mut self, wire: &mut Wire<'_>, bytes: u64);

    /// Queues an encoded control message, before what waits and need not precede it.
    fn send_control(&mut self, wire: &mut Wire<'_>, message: &[u8], class: TrafficClass);

    /// Whether packets for the peer take buffers of the context's pool.
    fn takes_buffers(&self) -> bool;

    /// How a batch that passes unchanged leaves.
    fn whole(&self, batch: &Batch) -> Whole;

    /// Queues a record that is longer than a packet, behind all that was queued before.
    ///
    /// # Errors
    /// The reason for which it cannot be: there is no buffer for it now, or never.
    fn send_long(
        &mut self,
        wire: &mut Wire<'_>,
        record: Fragments<'_>,
        format: u64,
        to: Recipient,
    ) -> Result<(), DropReason>;

    /// Memory for a packet of at least `needed` bytes, and of `wanted` bytes where the carrier has a choice.
    ///
    /// # Errors
    /// There is none; the reason for which the records are dropped.
    fn open(&mut self, wire: &mut Wire<'_>, needed: usize, wanted: usize) -> Result<Space, DropReason>;

    /// Queues a packet whose space this carrier opened.
    fn send(&mut self, wire: &mut Wire<'_>, open: OpenPacket, to: Recipient);

    /// Grants the peer credit. That for what it publishes is withheld while a stream of its is blocked; that for control
    /// too, while packets of the peer wait to be taken.
    fn grant_credit(&mut self, wire: &mut Wire<'_>, is_blocked: bool);

    /// The numbers that the peer's subscriptions may have.
    fn subscription_numbers(&self) -> RangeInclusive<u32>;

    /// The origin of the peer.
    fn principal(&self) -> Principal;

    /// The owner of mailboxes that the peer makes; `key` is the peer's.
    fn owner(&self, key: usize) -> Owner;

    /// Opens a side of a mailbox in rings that the peer shares; nothing if its messages travel as packets instead.
    fn open_port(
        &mut self,
        wire: &mut Wire<'_>,
        name: &str,
        side: Side,
        options: PortOptions,
    ) -> Option<Result<Opened, HostError>>;

    /// Closes a side that was opened so; whether it was open. Nothing if messages travel as packets instead.
    fn close_port(&mut self, wire: &mut Wire<'_>, number: u16) -> Option<bool>;

    /// Ends the session, `why` for the counters; the peer is sent the reason if there is one. Waiting packets are freed.
    fn end(&mut self, wire: &mut Wire<'_>, why: &'static str, close: Option<Close>);
}
