//! The daemon's state of one attached client: its ports, what it has open, what it waits for.

use super::direct::DirectPort;
use super::mailbox::{MailboxKey, Side};
use super::message::{Home, Message};
use super::prepared::WakePipe;
use super::slots::{ProtocolViolation, Slots};
use crate::attach::Peer;
use crate::segment::Segment;
use crate::shared::{ArmedFlag, Descriptor, HostCondition, RingWriter, SIGNAL_SLOTS, Signal, up};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Blocking requests of one port that may wait at a time.
pub(crate) const MAX_REQUESTS: usize = 64;
/// Operations of one signal queue that may wait at a time.
pub(crate) const MAX_WAITING: usize = 256;
/// Unsolicited signals that a client may have asked for ahead.
pub(crate) const MAX_LISTENS: u32 = 64;
/// The session's two ports.
pub(crate) const SESSION_OUT: u16 = 0;
/// See [`SESSION_OUT`].
pub(crate) const SESSION_IN: u16 = 1;
/// Ports of a session: the first ones of each client.
pub(crate) const SESSION_PORTS: usize = 2;

/// Slots of what a client's session reads that records leave to control.
pub(crate) const CONTROL_SLOTS: usize = 64;

/// Names an attached client; never stands for another one later. Its number is the client's in addresses and lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct ClientKey(pub(crate) u32);

impl ClientKey {
    /// The client's number: as in [`crate::shared::SyncAddress`] and in lists.
    pub fn number(self) -> u32 {
        self.0
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        (self.0 & ((1 << INDEX_BITS) - 1)) as usize
    }

    pub(crate) fn new(serial: u32, index: usize) -> ClientKey {
        ClientKey(serial << INDEX_BITS | index as u32)
    }
}

/// Low bits of a client's number: its place, which bounds the number of clients.
pub(crate) const INDEX_BITS: u32 = 12;

/// The place to which a client moves a message that it holds.
#[derive(Clone, Copy)]
pub(crate) enum MoveTarget {
    /// A mailbox that it has open.
    Mailbox(Open),
    /// A stream that its session publishes, by the entry's `target`.
    Stream(u16),
}

/// One side of a mailbox, in rings.
pub(crate) struct Port {
    pub(crate) mailbox: MailboxKey,
    pub(crate) side: Side,
    pub(crate) slots: Slots,
    pub(crate) down: RingWriter<Descriptor>,
    /// Of the buffers that are granted ahead.
    pub(crate) home: Home,
    /// Grants that a writer is to have ahead.
    pub(crate) ahead: u32,
    /// Their size in bytes.
    pub(crate) grant_bytes: u32,
    /// Bytes that a reader may have before it at a time (one message in any case; of a mailbox also one behind up to a quarter of
    /// this, so that short ones that are kept do not hold back a long one).
    pub(crate) deliver_bytes: u64,
    /// Slots that records leave to control.
    pub(crate) control_slots: usize,
    /// Larger buffers that the writer waits for, in bytes.
    pub(crate) requests: VecDeque<u32>,
    /// Whether it is in a list of those to be fed.
    pub(crate) is_hungry: bool,
    /// Whether it is in the list of those that have fewer grants than they are to have ahead.
    pub(crate) is_below: bool,
    /// Whether it was granted buffers that its writer, if it sleeps, was not woken for.
    pub(crate) is_unreported: bool,
    /// Its writer's present wait was counted.
    pub(crate) is_wait_noted: bool,
    pub(crate) direct: DirectPort,
}

impl Port {
    /// Whether a message may be delivered to it now. A session's messages without a label are control, for which slots are
    /// kept.
    #[inline]
    pub(crate) fn has_room(&self, message: &Message) -> bool {
        let (delivered, vacant) = (self.slots.delivered_bytes(), self.slots.vacant());
        if self.control_slots > 0 && message.0.tag == 0 {
            return vacant > 0;
        }
        let starts = match self.control_slots {
            0 => delivered <= self.deliver_bytes / 4,
            _ => delivered == 0,
        };
        let fits = starts || delivered + u64::from(message.0.len) <= self.deliver_bytes;
        vacant > self.control_slots && fits
    }

    /// Reclaims what a descriptor of a put names.
    #[inline]
    pub(crate) fn take_put(&mut self, entry: &Descriptor) -> Result<Message, ProtocolViolation> {
        if self.side == Side::Read {
            return Err(ProtocolViolation::Operation(entry.op));
        }
        self.slots.take_granted(entry)
    }
}

/// A client's signal queues, and what it waits for over them.
pub(crate) struct Signals {
    pub(crate) down: RingWriter<Signal>,
    pub(crate) slots: Slots,
    /// Allocations that wait: tag, the client's number of the mailbox, bytes.
    pub(crate) allocs: VecDeque<(u64, u16, u32)>,
    /// Gets that wait: tag, and the mailbox.
    pub(crate) gets: Vec<(u64, MailboxKey)>,
    /// ERRORs that the client has given credits for.
    pub(crate) error_credits: u32,
    /// UPCALLs that the client has given credits for.
    pub(crate) upcall_credits: u32,
    /// Upcalls whose results are awaited, by index: {generation, ticket of the core}.
    pub(crate) upcalls: Vec<Option<(u16, u64)>>,
    pub(crate) upcall_serial: u16,
    pub(crate) is_hungry: bool,
}

impl Signals {
    /// Queues of a client that waits for nothing yet; at most `upcalls` results of its upcalls may be awaited at a
    /// time.
    pub(crate) fn new(down: RingWriter<Signal>, upcalls: usize) -> Signals {
        Signals {
            down,
            slots: Slots::new(SIGNAL_SLOTS as u16, 0),
            allocs: VecDeque::new(),
            gets: Vec::new(),
            error_credits: 0,
            upcall_credits: 0,
            upcalls: vec![None; upcalls],
            upcall_serial: 0,
            is_hungry: false,
        }
    }
}

/// A side of a mailbox that a client has open.
#[derive(Clone, Copy)]
pub(crate) struct Open {
    pub(crate) mailbox: MailboxKey,
    pub(crate) side: Side,
    /// Absent over the signal queue.
    pub(crate) port: Option<u16>,
}

/// The reason that a client's session gets no new buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    /// It gets all that it is to have.
    #[default]
    Nothing,
    /// Records: none are granted ahead, but one longer than those ([`crate::SESSION_GRANT_BYTES`]) that it asks for, for
    /// control, is.
    Records,
    /// Anything.
    All,
}

/// One attached client.
pub(crate) struct Client {
    pub(crate) key: ClientKey,
    pub(crate) peer: Peer,
    pub(crate) domain: u16,
    pub(crate) attached_ns: u64,
    pub(crate) control: Arc<Segment>,
    /// Its hang-up is the client's end.
    pub(crate) socket: Arc<OwnedFd>,
    /// The client writes it to wake the core. Never read: see the module's page.
    pub(crate) doorbell: Arc<OwnedFd>,
    pub(crate) wake: WakePipe,
    /// Whether such a client wants a byte in that pipe.
    pub(crate) armed: ArmedFlag,
    pub(crate) condition: HostCondition,
    /// Signalled besides for an upcall.
    pub(crate) upcalled: HostCondition,
    pub(crate) ports: Vec<Option<Box<Port>>>,
    /// Where the generations of the next port's slots start: not where those of an earlier life of the port did, so that what
    /// a client says of that does not fit this one.
    pub(crate) next_generation: u16,
    pub(crate) signals: Signals,
    /// By the client's number for it.
    pub(crate) open: Vec<Option<Open>>,
    /// Bytes of buffers in its slots.
    pub(crate) quota_bytes: u64,
    /// The reason that its session's writer gets no buffers.
    pub(crate) hold: Hold,
    /// Whether it is in the list of those that were given something this turn.
    pub(crate) is_notified: bool,
    /// Whether it was woken since then.
    pub(crate) is_woken: bool,
    pub(crate) messages_in: u64,
    pub(crate) messages_out: u64,
    /// The bytes of these messages.
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    /// Bytes of its session's messages without a label that it has given back.
    pub(crate) unlabelled_taken: u64,
    pub(crate) waits: u64,
    pub(crate) wakes: u64,
}

impl Signals {
    /// Allocations and gets that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.allocs.len() + self.gets.len()
    }

    /// A get does not wait any more. A client that gives two gets one tag may have ended this one already.
    pub(crate) fn end_get(&mut self, tag: u64) {
        if let Some(at) = self.gets.iter().position(|(waiting, _)| *waiting == tag) {
            self.gets.swap_remove(at);
        }
    }
}

impl Client {
    /// Counts a message that it has put.
    #[inline]
    pub(crate) fn count_in(&mut self, message: &Message) {
        self.messages_in += 1;
        self.bytes_in += u64::from(message.0.len);
    }

    /// Counts a message of this length that is delivered to it.
    #[inline]
    pub(crate) fn count_out(&mut self, bytes: u32) {
        self.messages_out += 1;
        self.bytes_out += u64::from(bytes);
    }

    /// Bytes of the buffers that count to its quota: those in which it writes, and what it took over the signal queue. Messages for a
    /// reader's port have a bound of their own there, and come from others, who must not keep this client from writing.
    pub(crate) fn quota_used(&self) -> u64 {
        let of = |port: &Port| match port.side {
            Side::Write => port.slots.bytes().saturating_sub(port.direct.extra_bytes) + port.direct.bytes,
            Side::Read => 0,
        };
        self.ports.iter().flatten().map(|port| of(port)).sum::<u64>() + self.signals.slots.bytes()
    }

    /// Bytes of the buffers that it has now, but for those of a writer that count to its mailbox.
    pub(crate) fn held_bytes(&self) -> u64 {
        let of = |port: &Port| port.slots.bytes().saturating_sub(port.direct.extra_bytes) + port.direct.bytes;
        self.ports.iter().flatten().map(|port| of(port)).sum::<u64>() + self.signals.slots.bytes()
    }

    /// Buffers that it has now.
    pub(crate) fn held_buffers(&self) -> u32 {
        let of = |slots: &Slots| slots.granted() + slots.delivered();
        self.ports.iter().flatten().map(|port| of(&port.slots)).sum::<u32>() + of(&self.signals.slots)
    }

    /// Wakes it if it sleeps, after something was published for it. Whether it did.
    #[inline]
    pub(crate) fn wake_if_asleep(&mut self) -> bool {
        let (is_asleep, is_armed) = (self.condition.has_sleepers(), self.armed.take());
        if is_asleep {
            self.condition.wake();
            self.wakes += 1;
        }
        if is_armed {
            self.wake.wake();
            self.wakes += 1;
        }
        is_asleep || is_armed
    }

    /// The place to which an entry moves a message, as its `target` says.
    #[inline]
    pub(crate) fn move_target(&self, target: u16) -> Result<MoveTarget, ProtocolViolation> {
        match target & up::TO_STREAM {
            0 => self.opened(target).map(MoveTarget::Mailbox),
            _ => Ok(MoveTarget::Stream(target)),
        }
    }

    /// The mailbox that it has open under a number.
    #[inline]
    pub(crate) fn opened(&self, number: u16) -> Result<Open, ProtocolViolation> {
        self.open.get(number as usize).copied().flatten().ok_or(ProtocolViolation::NotOpen(number))
    }

    /// A port, unless it is closed.
    #[inline]
    pub(crate) fn port_mut(&mut self, port: u16) -> Option<&mut Port> {
        self.ports.get_mut(port as usize)?.as_deref_mut()
    }

    /// A port that is open: its rings are polled, it was found before, or it is the session's.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn present_port(&mut self, number: u16) -> Option<&mut Port> {
        let port = self.port_mut(number);
        debug_assert!(port.is_some(), "port {number} is worked on and open");
        port
    }
}
