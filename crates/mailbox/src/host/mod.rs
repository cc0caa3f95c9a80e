//! The daemon's side of the host interface (Nectar paper, sections 3.2 to 3.4): attached clients, domains' heaps, mailboxes,
//! and what clients' rings ask for. One thread's own, without a lock; the context that owns it polls it.
//!
//! **Trust.** All that says who owns what is in private memory: heaps, slots, queues. A client writes descriptors
//! in rings of its own control segment; each is loaded once and checked against the client's slots, which are the
//! daemon's own record of what it was given. Whoever breaks the protocol is detached, with a reason. Message bytes in a domain's
//! shared segment may change at any moment, so the core copies what it reads ([`HostInterface::read`]), and never makes
//! a reference to them.
//!
//! **Bounds.** A mailbox's writers get no buffers while it holds its bound of messages not yet ended by a reader. The buffers that
//! they have been granted before come on top: of 17 ports of one client at most, 192 each, within the client's quota. The quota
//! bounds the buffers in which a client writes, its port what is handed to a reader, and the segments those of a domain. Rings hold
//! twice the slots of their port, and a slot has at most one descriptor under way each way, so no ring overflows.
//!
//! **A domain is a unit of trust.** Its processes share one segment, in which they could spoil one another's messages, but
//! never the daemon. A message from another domain, from the network or from the core is copied once into the
//! domain's inbox segment, which its processes map read-only.

mod changes;
mod client;
mod direct;
mod feed;
mod heap;
mod info;
mod lifetime;
mod losses;
mod mailbox;
mod message;
mod ports;
mod prepared;
#[doc(hidden)]
pub mod raw;
mod rings;
mod signals;
mod slots;
mod tables;

pub use client::{ClientKey, Hold};
pub use info::{ClientStatus, DomainStatus, HostCounters, MailboxStatus};
pub use lifetime::{Opened, PortOptions, SESSION_GRANTS, Watched};
pub use losses::{Losses, MessageLoss};
pub use mailbox::{Implementation, MailboxKey, MailboxOptions, Owner, Side};
pub use message::{Draft, Message};
pub use prepared::{AttachReply, DomainSegments, Prepared};

use crate::segment::HugePages;
use crate::shared::{DoorbellPage, SyncAddress};
use client::Client;
use direct::Direct;
use heap::Heap;
use info::LossTable;
use mailbox::{Mailbox, PortKey};
use message::{Area, Dropped, Span, Spares};
use rings::{Rings, Taken};
use slab::Slab;
use slots::ProtocolViolation;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, PoisonError};
use tables::{Clients, Domain, Domains};

/// Entries taken by one look at the rings at most, so that clients that write to one another without an end do not keep the core.
const LOOK: u64 = 256;
/// Entries after which writers are given the buffers that they are due, if the rings are not empty before.
const FEED_EVERY: u64 = 32;
/// Turns after which writers get all that they are to have ahead, though they have some: one may hold those that it has, and wait.
const REFILL_TURNS: u32 = 16;
/// The core's own domain: for mailboxes that no client of a domain owns or reads.
const CORE_DOMAIN: u16 = 0;

/// Every bound of the host interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// Attached clients (up to 4096).
    pub max_clients: u32,
    /// Mailboxes with a name.
    pub max_mailboxes: u32,
    /// A domain's segment for its own messages, in bytes; only what is used is ever touched.
    pub shared_bytes: u64,
    /// A domain's segment for what comes from elsewhere, in bytes; the same.
    pub inbox_bytes: u64,
    /// The most that one client may hold to write in, in bytes of buffers.
    pub client_bytes: u64,
    /// A mailbox's bound in messages, unless it was made with another.
    pub bound_messages: u32,
    /// A mailbox's bound in bytes, unless it was made with another.
    pub bound_bytes: u64,
    /// The longest message in bytes.
    pub max_message_bytes: u32,
    /// Whether messages pass without the core where one client writes and another one of its domain reads a mailbox of
    /// implementation `rings`.
    pub direct_rings: bool,
}

impl Default for HostConfig {
    /// 1024 clients; domains of 256 MiB and 128 MiB; 64 MiB a client, which is four of the longest messages (16 MiB);
    /// mailboxes of 1024 messages and 32 MiB.
    fn default() -> HostConfig {
        HostConfig {
            max_clients: 1024,
            max_mailboxes: 4096,
            shared_bytes: 256 << 20,
            inbox_bytes: 128 << 20,
            client_bytes: 64 << 20,
            bound_messages: 1024,
            bound_bytes: 32 << 20,
            max_message_bytes: 16 << 20,
            direct_rings: true,
        }
    }
}

/// Why something was refused: in words that say what would correct it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// A table is full.
    #[error("the daemon has all of its {bound} {what} in use (`{key}` in [host] of its configuration)")]
    Limit {
        /// The full resource.
        what: &'static str,
        /// How many there are.
        bound: u32,
        /// The key that sets the bound.
        key: &'static str,
    },
    /// There is no such mailbox.
    #[error("there is no mailbox `{0}`: create it first, or list what is there with `crossdock mailboxes`")]
    Unknown(String),
    /// The name is taken.
    #[error("there is a mailbox `{0}` already")]
    Exists(String),
    /// The name is none.
    #[error("a mailbox's name has 1 to 255 bytes, no `/` and no control characters")]
    Name,
    /// One side of a `rings` mailbox has one owner.
    #[error(
        "the {side} side of mailbox `{name}` is taken by another client: its implementation `rings` has one reader and one writer; create it as `signal_queue` for more"
    )]
    Busy {
        /// The mailbox.
        name: String,
        /// `read` or `write`.
        side: &'static str,
    },
    /// Somebody else's.
    #[error("mailbox `{0}` belongs to another client, who alone may delete it or give it a task")]
    NotOwner(String),
    /// No buffer of that size is free.
    #[error(
        "no memory for a message of {bytes} bytes: the domain's segment is in use (`{key}` in [host] of the daemon's configuration)"
    )]
    NoBuffers {
        /// The requested length.
        bytes: usize,
        /// The key that sets the segment's length.
        key: &'static str,
    },
    /// Longer than any message may be.
    #[error(
        "a message of {bytes} bytes is longer than the daemon takes ({most}; `max_message_bytes` in [host] of its configuration)"
    )]
    TooLong {
        /// The requested length.
        bytes: usize,
        /// The most, in bytes.
        most: usize,
    },
    /// The client has gone.
    #[error("the client is not attached any more")]
    Gone,
    /// The mailbox's messages go to an upcall or a reader already.
    #[error("a task or a reader reads mailbox `{0}` already")]
    HasReader(String),
}

/// An arrival for the context.
#[derive(Debug)]
pub enum Arrival {
    /// A message was put into a mailbox with an upcall: the context runs it, in place of waking a reader.
    Upcall {
        /// The mailbox.
        mailbox: MailboxKey,
        /// The upcall's number, as [`HostInterface::attach_upcall`] was given it.
        upcall: u32,
        /// The message, now the context's.
        message: Message,
    },
    /// Messages were put into such a mailbox, all by one client, one after the other: [`HostInterface::take_burst`] gives them.
    Upcalls {
        /// The mailbox.
        mailbox: MailboxKey,
        /// The upcall's number.
        upcall: u32,
    },
    /// A packet of a client's session.
    Session {
        /// Whose.
        client: ClientKey,
        /// The packet, now the context's.
        message: Message,
    },
    /// A small remote call: the result goes to the sync.
    Call {
        /// The caller.
        client: ClientKey,
        /// The procedure.
        procedure: u16,
        /// Its argument.
        argument: u64,
        /// Where its result goes ([`HostInterface::write_sync`]).
        result: SyncAddress,
    },
    /// The result of an upcall into a client.
    Returned {
        /// As [`HostInterface::upcall`] was given it.
        ticket: u64,
        /// The result; `None` when the client has gone.
        value: Option<u64>,
    },
    /// A client was detached because it broke the protocol. All it had has been returned; its session is over.
    Violation {
        /// Whose.
        client: ClientKey,
        /// How.
        reason: String,
    },
}

/// The daemon's side of the host interface.
pub struct HostInterface {
    config: HostConfig,
    bell: Arc<DoorbellPage>,
    clients: Clients,
    attached: u32,
    serial: u32,
    domains: Domains,
    mailboxes: Slab<Mailbox>,
    directs: Slab<Direct>,
    /// Those with a name.
    names: HashMap<String, MailboxKey>,
    /// Watched ones that have changed.
    changed: Vec<MailboxKey>,
    generation: u32,
    /// Ports that were ever opened.
    lives: u32,
    rings: Rings,
    /// Entries taken from rings so far.
    taken: u64,
    /// Messages of the last [`Arrival::Upcalls`].
    burst: Vec<Message>,
    /// The arrivals for the context besides those that the rings hold.
    arrivals: VecDeque<Arrival>,
    /// The entries of rings whose client left or closed something: before all that came later.
    finished: VecDeque<Arrival>,
    /// Whether the rings are looked at next, though there are arrivals.
    is_rings_turn: bool,
    /// Clients that were given something since [`HostInterface::end_turn`].
    notified: Vec<u32>,
    /// Whether any was since [`HostInterface::end_look`].
    has_given: bool,
    /// Ports that may be due something.
    hungry: Vec<PortKey>,
    /// Ports with fewer grants than they are to have ahead, but not so few that they are given some at once; and those whose writers
    /// were not woken for the last ones.
    below: Vec<PortKey>,
    /// Calls of [`HostInterface::end_turn`] until these are looked at.
    until_refill: u32,
    /// Ports that could not be given what they are due; tried again when something was freed, a few at a time.
    waiting: VecDeque<PortKey>,
    /// Number of them that are still to be tried again.
    to_retry: usize,
    /// Mailboxes whose next message could not be copied for its reader; the same.
    stuck: Vec<MailboxKey>,
    freed: bool,
    /// Whether any of those that wait lacks memory, rather than room in its mailbox: then what is freed is for all.
    is_short: bool,
    dropped: Dropped,
    losses: LossTable,
    spares: Spares,
    counters: HostCounters,
}

impl std::fmt::Debug for HostInterface {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostInterface")
            .field("clients", &self.attached)
            .field("mailboxes", &self.names.len())
            .finish_non_exhaustive()
    }
}

impl HostInterface {
    /// A host interface without clients. `bell` is what clients look at to know whether the core sleeps.
    ///
    /// # Errors
    /// The system's, for the core's own segment.
    pub fn new(mut config: HostConfig, bell: impl Into<Arc<DoorbellPage>>) -> std::io::Result<HostInterface> {
        config.max_clients = config.max_clients.min(1 << client::INDEX_BITS);
        let mut host = HostInterface {
            bell: bell.into(),
            clients: Clients::default(),
            attached: 0,
            serial: 0,
            domains: Domains::default(),
            mailboxes: Slab::new(),
            directs: Slab::new(),
            names: HashMap::new(),
            changed: Vec::new(),
            generation: 0,
            lives: 0,
            rings: Rings::default(),
            taken: 0,
            burst: Vec::new(),
            arrivals: VecDeque::new(),
            finished: VecDeque::new(),
            is_rings_turn: false,
            notified: Vec::new(),
            has_given: false,
            hungry: Vec::new(),
            below: Vec::new(),
            until_refill: REFILL_TURNS,
            waiting: VecDeque::new(),
            to_retry: 0,
            stuck: Vec::new(),
            freed: false,
            is_short: false,
            dropped: Dropped::default(),
            losses: LossTable::default(),
            spares: Spares::default(),
            counters: HostCounters::default(),
            config,
        };
        let own = DomainSegments::new("the core", 4096, host.config.inbox_bytes, HugePages::None)?;
        let own = host.domains.find_or_add(&Arc::new(own));
        debug_assert_eq!(own, CORE_DOMAIN);
        host.domains.of_mut(own).into_iter().for_each(|own| own.clients = 1);
        Ok(host)
    }

    /// The bounds.
    pub fn config(&self) -> &HostConfig {
        &self.config
    }

    /// The next thing that is for the context; `None` when the rings are empty, or when so much came for others that the context
    /// should see to everything else. Buffers that writers are due are granted before it says so.
    #[inline]
    pub fn poll(&mut self) -> Option<Arrival> {
        self.look(true)
    }

    /// The same for who looks again and again, and at nothing else: it looks at the rings that brought something lately, and at
    /// a few of the others.
    #[inline]
    pub fn poll_active(&mut self) -> Option<Arrival> {
        self.look(false)
    }

    #[inline(always)]
    fn look(&mut self, all: bool) -> Option<Arrival> {
        if !self.finished.is_empty() {
            return self.finished.pop_front();
        }
        // In turns with the rings: upcalls that put to one another without an end must not keep the core from them.
        self.is_rings_turn = !self.is_rings_turn && !self.arrivals.is_empty();
        if self.is_rings_turn {
            return self.arrivals.pop_front();
        }
        let until = self.taken + LOOK;
        while let Some((client, port, taken)) = self.rings.take(all) {
            let fed = self.taken / FEED_EVERY;
            self.taken += 1;
            let arrival = match taken {
                Taken::Descriptor(entry, next) => match self.take_descriptor(client, port, &entry, next.as_ref()) {
                    Some(Arrival::Upcall { mailbox, upcall, message }) if next.is_some() => {
                        Some(self.gather(PortKey { client, port }, (mailbox, upcall), message))
                    }
                    other => other,
                },
                Taken::Signal(entry) => self.take_signal(client, &entry),
                Taken::Calls(calls) => self.take_calls(client, calls),
                Taken::Astray => self.report_violation(client, ProtocolViolation::Astray),
            };
            if self.taken / FEED_EVERY != fed {
                self.feed();
            }
            if arrival.is_some() {
                return arrival;
            }
            if self.taken >= until {
                break;
            }
        }
        self.feed();
        self.arrivals.pop_front()
    }

    /// The messages of an [`Arrival::Upcalls`], in their order. [`HostInterface::keep_burst`] reclaims their memory.
    #[inline]
    pub fn take_burst(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.burst)
    }

    /// Reclaims what [`HostInterface::take_burst`] gave; messages that are left in it are freed.
    #[inline]
    pub fn keep_burst(&mut self, mut burst: Vec<Message>) {
        self.free_all(&mut burst);
        self.burst = burst;
    }

    /// Entries taken from clients' rings so far: that it grew shows that something came, also where none of it was for the context.
    #[inline]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether no ring holds anything: asked between [`HostInterface::before_sleep`] and sleeping.
    pub fn is_quiet(&self) -> bool {
        self.finished.is_empty() && self.arrivals.is_empty() && self.rings.is_quiet()
    }

    /// Notifies clients that the core is about to sleep: from here on whoever puts something rings its doorbell. The rings must be
    /// looked at once more before sleeping.
    pub fn before_sleep(&mut self) {
        self.top_up();
        // Nobody rings where nobody is.
        if self.attached > 0 {
            self.bell.before_sleep();
        }
    }

    /// Notifies clients that the core is awake.
    pub fn after_sleep(&mut self) {
        self.bell.after_sleep();
    }

    /// Gives clients what became theirs since the last look at the rings, and wakes those that sleep and were given something; to be
    /// called once the rings are empty, and before the core sleeps.
    #[inline]
    pub fn end_turn(&mut self) {
        self.until_refill = self.until_refill.saturating_sub(1);
        if self.until_refill == 0 {
            self.refill_below();
        }
        self.feed();
        if !self.notified.is_empty() {
            self.wake_notified();
        }
    }

    /// The same between two looks of who looks again and again: it wakes those that are seen to sleep. A client that
    /// falls asleep meanwhile may be seen by [`HostInterface::end_turn`] only, whose fence would take longer than a
    /// message does; so that has to follow soon. Sooner if any client was woken, which this returns: it is not woken again until then.
    #[inline]
    pub fn end_look(&mut self) -> bool {
        self.feed();
        std::mem::take(&mut self.has_given) && self.wake_sleepers()
    }

    // --- messages in the core's hands ---

    /// Copies the bytes from `offset` on into `into`; false if the message is not that long. Each call reads what is there
    /// then: check what was copied, not what may be copied again.
    #[inline]
    pub fn read(&self, message: &Message, offset: usize, into: &mut [u8]) -> bool {
        let Some(heap) = self.domains.heap(message) else { return false };
        offset.checked_add(into.len()).is_some_and(|end| end <= message.len())
            && heap.segment.read_into(message.0.start as usize + offset, into)
    }

    /// Gives up the claim on a message.
    #[inline(always)]
    pub fn free(&mut self, message: Message) {
        let (home, mut message) = (message.0.home, Some(message));
        self.grant_again(home, |domains| message.take_if(|message| domains.is_sole(message)));
        if let Some(message) = message {
            self.release(message);
        }
    }

    /// Gives up the claims on all of these messages, which are none then: quicker than one by one.
    pub fn free_all(&mut self, messages: &mut Vec<Message>) {
        while let Some(last) = messages.last() {
            let home = last.0.home;
            let is_next = |domains: &Domains, message: &Message| message.0.home == home && domains.is_sole(message);
            self.grant_again(home, |domains| messages.pop_if(|message| is_next(domains, message)));
            // One that is not granted again, or the first of another home.
            if let Some(message) = messages.pop_if(|message| message.0.home == home) {
                self.release(message);
            }
        }
    }

    /// Gives a message's buffer back to the heap.
    #[inline(always)]
    fn release(&mut self, message: Message) {
        self.freed = true;
        let Span { domain: at, area, buffer, .. } = *message.0;
        self.spares.keep(message);
        if let Some(domain) = self.domains.of_mut(at) {
            domain.heaps[area as usize].free(buffer);
            if domain.clients == 0 {
                self.domains.release_unused(at);
            }
        }
    }

    /// Another claim on the same bytes.
    pub fn share(&mut self, message: &mut Message) -> Message {
        message.0.is_shared = true;
        let span = *message.0;
        if let Some(heap) = self.domains.heap_mut(span.domain, span.area) {
            heap.share(span.buffer);
        }
        self.spares.message(span)
    }

    /// A buffer of `bytes` for a message to a mailbox, in the memory of the domain where it will be read.
    ///
    /// # Errors
    /// Too long, or no memory.
    pub fn begin_put(&mut self, to: MailboxKey, bytes: usize) -> Result<Draft, HostError> {
        let domain = self.home_of(to);
        self.draft(domain, bytes)
    }

    /// The same for a message to a client's session.
    ///
    /// # Errors
    /// Too long, no memory, or the client has gone.
    pub fn begin_send(&mut self, client: ClientKey, bytes: usize) -> Result<Draft, HostError> {
        let domain = self.client(client).ok_or(HostError::Gone)?.domain;
        self.draft(domain, bytes)
    }

    fn draft(&mut self, domain: u16, bytes: usize) -> Result<Draft, HostError> {
        let message = self.inbox_message(domain, bytes)?;
        let draft = self.domains.heap(&message).and_then(|heap| message.draft(&heap.segment, &self.dropped));
        debug_assert!(draft.is_some(), "a message lies in its heap's segment");
        draft.ok_or(HostError::Gone)
    }

    /// A fresh message of that length, in a domain's inbox.
    #[inline(always)]
    fn inbox_message(&mut self, domain: u16, bytes: usize) -> Result<Message, HostError> {
        let most = self.config.max_message_bytes as usize;
        if bytes > most {
            return Err(HostError::TooLong { bytes, most });
        }
        let inbox = |domains: &mut Domains| -> Option<(u32, (u32, u32))> {
            let heap = domains.heap_mut(domain, Area::Inbox)?;
            let buffer = heap.alloc(bytes as u32)?;
            Some((buffer, heap.range(buffer)))
        };
        let found = inbox(&mut self.domains).or_else(|| {
            self.collect_dropped();
            inbox(&mut self.domains)
        });
        let (buffer, range) = found.ok_or(HostError::NoBuffers { bytes, key: "inbox_bytes" })?;
        let span = Span { len: bytes as u32, ..Span::of(domain, Area::Inbox, buffer, range) };
        Ok(self.spares.message(span))
    }

    /// Puts a new message of these bytes into a mailbox: quicker than a draft.
    ///
    /// # Errors
    /// Too long, or no memory.
    #[inline(always)]
    pub fn put_bytes(&mut self, to: MailboxKey, bytes: &[u8]) -> Result<(), HostError> {
        let message = self.inbox_message(self.home_of(to), bytes.len())?;
        let at = message.0.start as usize;
        let is_written = self.domains.heap(&message).is_some_and(|heap| heap.segment.write_from(at, bytes));
        debug_assert!(is_written, "a message lies in its heap's segment");
        self.put(to, message);
        Ok(())
    }

    /// Puts a new message of another's bytes, each read once, into a mailbox.
    ///
    /// # Errors
    /// Too long, or no memory.
    #[inline(always)]
    pub fn put_copy(&mut self, to: MailboxKey, message: &Message) -> Result<(), HostError> {
        let copy = self.inbox_message(self.home_of(to), message.len())?;
        self.domains.copy(message, &copy);
        self.put(to, copy);
        Ok(())
    }

    /// Puts a message into a mailbox: the end of a put, or an enqueue. It is taken in any case; see [`HostInterface::is_full`].
    #[inline(always)]
    pub fn put(&mut self, to: MailboxKey, message: Message) {
        if let Some(arrival) = self.arrive_otherwise(to, message) {
            self.arrivals.push_back(arrival);
        }
    }

    /// Whether a mailbox holds its bound, or there is none: who puts from outside should wait then.
    pub fn is_full(&self, mailbox: MailboxKey) -> bool {
        self.mailbox(mailbox).is_none_or(|mailbox| direct::is_full(&self.directs, mailbox))
    }

    /// Whether there is room in a mailbox now: before it says no, it takes what the reader has given back and was not looked at yet,
    /// until there is room. Entries of the reader by which nothing leaves the mailbox are taken too, as many as of all rings in one look.
    #[inline]
    pub fn has_room(&mut self, mailbox: MailboxKey) -> bool {
        if !self.is_full(mailbox) {
            return true;
        }
        let Some(entry) = self.mailbox(mailbox) else { return false };
        let by_signals = entry.last_reader.map(|client| (client.index() as u32, crate::shared::SIGNALS));
        let reader = entry.reader.map(|port| (port.client, port.port)).or(by_signals);
        let Some((client, port)) = reader else { return false };
        // The reader holds no more messages than its slots, so those that leave have a bound too.
        let (mut useless, mut depth) = (0, entry.depth);
        while useless < LOOK && self.finish_next(client, port) {
            if !self.is_full(mailbox) {
                return true;
            }
            let Some(now) = self.mailbox(mailbox).map(|entry| entry.depth) else { return false };
            useless += u64::from(now >= depth);
            depth = now;
        }
        false
    }

    /// The next message of a mailbox, with the core as its reader.
    pub fn get(&mut self, from: MailboxKey) -> Option<Message> {
        let mailbox = self.mailbox_mut(from)?;
        let message = mailbox.queue.pop_front()?;
        mailbox.leaves(message.0.len);
        self.freed = true;
        self.note_change(from);
        Some(message)
    }

    /// Sends a packet to a client's session; freed if the client has gone.
    #[inline]
    pub fn send(&mut self, client: ClientKey, message: Message) {
        match self.session_in(client) {
            Some(mailbox) => self.put(mailbox, message),
            None => self.free(message),
        }
    }

    /// The same, but before all that waits for the client from the index `position` of [`HostInterface::waiting`] on.
    pub fn send_at(&mut self, client: ClientKey, position: usize, message: Message) {
        let Some(key) = self.session_in(client) else { return self.free(message) };
        let Some(mailbox) = self.present_mailbox(key) else { return self.free(message) };
        mailbox.enters(message.0.len);
        mailbox.queue.insert(position.min(mailbox.queue.len()), message);
        self.pump(key);
    }

    /// The messages that wait for a client's session and were not delivered yet, in order.
    pub fn waiting(&self, client: ClientKey) -> impl Iterator<Item = &Message> {
        let mailbox = self.session_in(client).and_then(|key| self.mailbox(key));
        mailbox.into_iter().flat_map(|mailbox| &mailbox.queue)
    }

    /// Bytes that wait for a client's session, or are in its hands.
    #[inline]
    pub fn backlog_bytes(&self, client: ClientKey) -> u64 {
        self.session_in(client).and_then(|key| self.mailbox(key)).map_or(0, |mailbox| mailbox.bytes)
    }

    /// Bytes of messages without a subscription in their label that a client's session has taken and ended, since it was admitted.
    #[inline]
    pub fn unlabelled_taken(&self, client: ClientKey) -> u64 {
        self.client(client).map_or(0, |client| client.unlabelled_taken)
    }

    /// Whether two are of one protection domain: then a message passes between them in place.
    pub fn share_domain(&self, a: ClientKey, b: ClientKey) -> bool {
        match (self.client(a), self.client(b)) {
            (Some(a), Some(b)) => a.domain == b.domain,
            _ => false,
        }
    }

    /// Drops the oldest message labelled droppable that waits for a client's session and was not delivered yet: what its label says.
    pub fn drop_oldest(&mut self, client: ClientKey) -> Option<(u16, u32)> {
        let key = self.session_in(client)?;
        let mailbox = self.mailbox_mut(key)?;
        let at = mailbox.queue.iter().position(|message| message.0.droppable)?;
        let message = mailbox.queue.remove(at)?;
        mailbox.leaves(message.0.len);
        let label = message.labelled();
        self.free(message);
        Some(label)
    }

    // --- tables ---

    #[inline(always)]
    fn client(&self, key: ClientKey) -> Option<&Client> {
        self.clients.get(key)
    }

    #[inline(always)]
    fn client_mut(&mut self, key: ClientKey) -> Option<&mut Client> {
        self.clients.get_mut(key)
    }

    /// A mailbox, unless it was deleted: a client may have it open still, or hold messages of it.
    #[inline(always)]
    fn mailbox(&self, key: MailboxKey) -> Option<&Mailbox> {
        self.mailboxes.get(key.index as usize).filter(|mailbox| mailbox.generation == key.generation)
    }

    /// See `mailbox`.
    #[inline(always)]
    fn mailbox_mut(&mut self, key: MailboxKey) -> Option<&mut Mailbox> {
        self.mailboxes.get_mut(key.index as usize).filter(|mailbox| mailbox.generation == key.generation)
    }

    /// A mailbox that is there: it has this name, is an attached client's session, or was found before.
    #[inline(always)]
    #[track_caller]
    fn present_mailbox(&mut self, key: MailboxKey) -> Option<&mut Mailbox> {
        let mailbox = self.mailbox_mut(key);
        debug_assert!(mailbox.is_some(), "{key:?} is not deleted while it is worked on");
        mailbox
    }

    /// The mailbox that a client's session reads, unless the client has left.
    #[inline]
    fn session_in(&self, client: ClientKey) -> Option<MailboxKey> {
        let port = self.client(client)?.ports.get(client::SESSION_IN as usize).and_then(Option::as_deref);
        debug_assert!(port.is_some(), "an attached client has its session's ports");
        Some(port?.mailbox)
    }

    /// The domain where a mailbox's messages will be read, as far as that is known: its reader's, else that of the client that
    /// opened it last to read it, else its owner's.
    fn home_of(&self, mailbox: MailboxKey) -> u16 {
        let Some(mailbox) = self.mailbox(mailbox) else { return CORE_DOMAIN };
        let reader = mailbox.reader.and_then(|port| self.clients.at(port.client));
        let reader = reader.or_else(|| self.client(mailbox.last_reader?));
        let owner = match mailbox.owner {
            Owner::Client(number) => self.client(ClientKey(number)),
            Owner::Daemon | Owner::Session(_) => None,
        };
        reader.or(owner).map_or(CORE_DOMAIN, |client| client.domain)
    }

    /// Reclaims the buffers of drafts that were dropped unfinished; to be called now and then.
    pub fn collect_dropped(&mut self) {
        let dropped = std::mem::take(&mut *self.dropped.lock().unwrap_or_else(PoisonError::into_inner));
        for message in dropped {
            self.free(message);
        }
    }
}
