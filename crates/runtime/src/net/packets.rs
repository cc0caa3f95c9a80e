//! Sessions over packets as peers' carriers.

use crate::counters::DropReason;
use crate::graph::bounds::is_long;
use crate::graph::build::alone;
use crate::net::carrier::{Carrier, Recipient, Whole, Wire};
use crate::net::payload::{Arrived, Content, Deferred, Payload};
use crate::net::space::{OpenPacket, Space};
use crate::principal::Principal;
use crossdock_device::Sent;
use crossdock_mailbox::host::{
    HostError, HostInterface, MailboxKey, Message, MessageLoss, Opened, Owner, PortOptions, Side,
};
use crossdock_mailbox::{Batch, BufferMut, Fragments};
use crossdock_transport::handshake::Close;
use crossdock_transport::parts::Parts;
use crossdock_transport::secure::PublicKey;
use crossdock_transport::{MAX_SUPER_BYTES, Session, SuperPacket, TrafficClass};
use std::collections::VecDeque;
use std::fmt;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::sync::Arc;

/// Bytes from which on a batch that passes whole leaves in its own buffer. The records of smaller batches are copied
/// together with others, since a system call costs more than the copy.
const WHOLE_BYTES: usize = 16 << 10;

/// A session over packets.
pub(crate) struct Link {
    pub(crate) addr: SocketAddr,
    /// The key of the client, if its packets come in envelopes.
    pub(crate) client: Option<PublicKey>,
    /// The origin that its share of the tables is counted to.
    pub(crate) origin: Principal,
    pub(crate) nonce: u64,
    /// The number by which this side knows the session.
    pub(crate) number: u32,
    pub(crate) session: Session<Payload, Arrived>,
    /// The deadline that the timer heap holds for it, in ns.
    pub(crate) armed_ns: u64,
    /// The packets that it sent while a request of its was with the planner, in order.
    pub(crate) deferred: VecDeque<Deferred>,
    /// The packets that miss parts.
    pub(crate) parts: Parts<BufferMut>,
    /// Bytes of the packets with records, messages and datagrams that came, also of those that were dropped.
    pub(crate) bytes_in: u64,
    /// Bytes of control messages that it has not acknowledged.
    control_bytes: u64,
    /// Whether records go to it as datagrams.
    pub(crate) uses_datagrams: bool,
    /// Records of datagrams that were dropped before they left, by the subscription that they were for.
    dropped: VecDeque<(u32, u64)>,
}

impl Link {
    /// A session with the peer at `addr` that greeted with `nonce`.
    pub(crate) fn new(addr: SocketAddr, nonce: u64, number: u32, session: Session<Payload, Arrived>) -> Link {
        Link {
            addr,
            client: None,
            origin: Principal::of_address(addr),
            nonce,
            number,
            session,
            armed_ns: u64::MAX,
            deferred: VecDeque::new(),
            parts: Parts::default(),
            bytes_in: 0,
            control_bytes: 0,
            uses_datagrams: false,
            dropped: VecDeque::new(),
        }
    }

    /// Notes that a control message of `bytes` bytes was acknowledged.
    pub(crate) fn control_taken(&mut self, bytes: usize) {
        self.control_bytes = self.control_bytes.saturating_sub(bytes as u64);
    }

    /// Queues a mailbox's message for the side that the session has open under `number`, and gives it back, to be kept until
    /// the reader has ended it; `None` if it is dropped, as longer than any buffer.
    ///
    /// # Errors
    /// The message, while there is no buffer for it. `spare` large buffers stay free: a reader that takes nothing must
    /// not hold the memory that acks arrive in.
    pub(crate) fn send_message(
        &mut self,
        wire: &mut Wire<'_>,
        message: Message,
        (mailbox, number): (MailboxKey, u16),
        spare: usize,
    ) -> Result<Option<Message>, Message> {
        let len = message.len();
        if len > wire.pool.largest_bytes() {
            wire.host.lose(mailbox, message, MessageLoss::TooLong);
            return Ok(None);
        }
        let has_room = wire.pool.has_free(MAX_SUPER_BYTES, spare);
        // There is no buffer for it.
        let Some(mut buffer) = has_room.then(|| wire.pool.alloc(len)).flatten() else { return Err(message) };
        wire.host.read(&message, 0, &mut buffer[..len]);
        Content::Mailbox { buffer: buffer.freeze(), len, number: number.into() }.enqueue(&mut self.session);
        Ok(Some(message))
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.addr.fmt(f)
    }
}

impl Carrier for Link {
    #[inline]
    fn backlog_bytes(&self, _: &HostInterface) -> u64 {
        self.session.sender.backlog_bytes()
    }

    fn untaken_control_bytes(&self, _: &HostInterface) -> u64 {
        self.control_bytes
    }

    fn is_behind(&self) -> bool {
        false
    }

    fn leaves(&self) -> bool {
        false
    }

    fn drop_oldest(&mut self, _: &mut Wire<'_>) -> Option<(u32, u64)> {
        self.session.sender.drop_oldest().map(|dropped| dropped.records().unwrap_or((0, 0)))
    }

    #[inline]
    fn has_dropped(&self) -> bool {
        !self.dropped.is_empty()
    }

    fn take_dropped(&mut self) -> Option<(u32, u64)> {
        self.dropped.pop_front()
    }

    fn bound_queue(&mut self, _: &mut Wire<'_>, _: u64) {
        // All that was not transmitted can be dropped.
    }

    fn send_control(&mut self, _: &mut Wire<'_>, message: &[u8], class: TrafficClass) {
        self.control_bytes += message.len() as u64;
        Content::Control(Rc::from(message), class).enqueue(&mut self.session);
    }

    fn takes_buffers(&self) -> bool {
        true
    }

    fn whole(&self, batch: &Batch) -> Whole {
        if self.uses_datagrams {
            return Whole::Records;
        }
        let are_packets = (1..=self.session.packet_bytes()).contains(&batch.stride);
        let fits = batch.payload_bytes() >= WHOLE_BYTES && are_packets;
        if fits || is_long(batch) { Whole::Shared } else { Whole::Records }
    }

    fn send_long(
        &mut self,
        wire: &mut Wire<'_>,
        record: Fragments<'_>,
        format: u64,
        to: Recipient,
    ) -> Result<(), DropReason> {
        // No datagram is longer than a packet.
        if self.uses_datagrams || record.len() > wire.pool.largest_bytes() {
            return Err(DropReason::TooLong);
        }
        let mut buffer = wire.pool.alloc(record.len()).ok_or(DropReason::NoBuffer)?;
        record.copy_range(0..record.len(), &mut buffer);
        let batch = Arc::new(alone(buffer.freeze(), record.len(), format));
        Content::Record { batch, to }.enqueue(&mut self.session);
        Ok(())
    }

    fn open(&mut self, wire: &mut Wire<'_>, needed: usize, _: usize) -> Result<Space, DropReason> {
        // When the large buffers are used up, no new data is let in; what was let in is finished in smaller ones.
        let mut sizes = [MAX_SUPER_BYTES, 16 << 10, 8 << 10].into_iter().filter(|bytes| needed <= *bytes);
        let buffer = sizes.find_map(|bytes| wire.pool.alloc(bytes)).ok_or(DropReason::NoBuffer)?;
        Ok(Space::Super(SuperPacket::new(buffer, self.session.packet_bytes())))
    }

    /// A few records move to a small buffer first, so that they do not hold a large one until they are acknowledged.
    fn send(&mut self, wire: &mut Wire<'_>, open: OpenPacket, to: Recipient) {
        let OpenPacket { space: Space::Super(packet), format, .. } = open else {
            return debug_assert!(false, "the space of another carrier");
        };
        let len = packet.len();
        let small = if len <= MAX_SUPER_BYTES / 4 { wire.pool.alloc(len) } else { None };
        let packet = match small {
            Some(small) => packet.copied_to(small),
            None => packet,
        };
        if self.uses_datagrams {
            let dropped = &mut self.dropped;
            return Payload::enqueue_datagrams(packet, format, to, &mut self.session, |lost| dropped.push_back(lost));
        }
        Payload::enqueue_packed(packet, format, to, &mut self.session);
    }

    fn grant_credit(&mut self, _: &mut Wire<'_>, is_blocked: bool) {
        if !self.deferred.is_empty() {
            return;
        }
        self.session.receiver.control_consumed();
        if !is_blocked {
            self.session.receiver.consumed_to(u64::MAX);
        }
    }

    fn subscription_numbers(&self) -> RangeInclusive<u32> {
        0..=u32::MAX
    }

    fn principal(&self) -> Principal {
        self.origin
    }

    fn owner(&self, key: usize) -> Owner {
        Owner::Session(key as u32)
    }

    fn open_port(&mut self, _: &mut Wire<'_>, _: &str, _: Side, _: PortOptions) -> Option<Result<Opened, HostError>> {
        None
    }

    fn close_port(&mut self, _: &mut Wire<'_>, _: u16) -> Option<bool> {
        None
    }

    fn end(&mut self, wire: &mut Wire<'_>, _: &'static str, close: Option<Close>) {
        // The client has ended it.
        let Some(close) = close else { return };
        let packet = close.packet(self.session.peer_session());
        // If the device is full, the packet is as good as lost.
        match wire.device.send(self.addr, &[IoSlice::new(&packet)], packet.len()) {
            Ok(Sent::Done) => wire.counters.packets_out += 1,
            _ => wire.counters.drop(DropReason::SendRefused, 1),
        }
    }
}
