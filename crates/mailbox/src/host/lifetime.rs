//! Beginnings and ends: of clients, of mailboxes, of their sides.

use super::client::{
    CONTROL_SLOTS, Client, ClientKey, Hold, Open, Port, SESSION_IN, SESSION_OUT, SESSION_PORTS, Signals,
};
use super::direct::{DirectPort, Unread};
use super::losses::MessageLoss;
use super::mailbox::{
    CoreReader, Get, Implementation, Mailbox, MailboxCounters, MailboxKey, MailboxOptions, Owner, PortKey, Side,
};
use super::message::Home;
use super::prepared::Prepared;
use super::rings::{SessionReader, SignalReader, Taken, Up};
use super::slots::ProtocolViolation;
use super::slots::Slots;
use super::{Arrival, HostError, HostInterface, Message};
use crate::SESSION_GRANT_BYTES;
use crate::shared::{
    ARRIVAL_CONDITION, ArmedFlag, ControlLayout, CoreLane, Descriptor, Entry, HostCondition, PORT_ENTRIES, PORTS,
    Reason, RingReader, RingWriter, SIGNAL_ENTRIES, SLOTS, UPCALL_CONDITION,
};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Buffers of a session's writer granted ahead, and their size: super-packets.
const SESSION_AHEAD: (u32, u32) = (SESSION_GRANTS, SESSION_GRANT_BYTES as u32);
/// Buffers that a client's session may have ahead, at most: what it still puts once they are withheld.
pub const SESSION_GRANTS: u32 = 8;
/// The most that a reader has before it, in bytes (one message in any case): enough to keep it busy while more is brought.
pub(super) const DELIVER_BYTES: u64 = 4 << 20;
/// Grants ahead of a writer: the least and the most by default, and the most that may be asked for.
const AHEAD: (u32, u32, u32) = (4, 64, MOST_AHEAD);
/// The most that a writer may have.
pub(super) const MOST_AHEAD: u32 = 192;
/// Bytes of them by default: few enough to stay in the caches of the two cores.
const AHEAD_BYTES: u32 = 256 << 10;
/// Their size in bytes: the default, and the most.
const GRANT_BYTES: (u32, u32) = (4 << 10, 1 << 20);
/// Sides of mailboxes that one client may have open: more than its rings are for, since those over the signal queue need none.
const MAX_OPEN: usize = 1024;
/// Ports by which a client may write to one mailbox besides its first: each may hold messages beyond the mailbox's bound.
const MOST_MORE_WRITERS: usize = 16;
/// How far apart the generations of two lives of a port start. A slot is given back within few of its uses, if at all.
const GENERATIONS_APART: u16 = 1 << 10;
/// Upcalls into a client whose results may be awaited at a time.
const MAX_UPCALLS: usize = 64;

/// How a client opens one side of a mailbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortOptions {
    /// Size of the buffers granted ahead to a writer of a `rings` mailbox, in bytes; 4 KiB when absent.
    pub message_bytes: Option<u32>,
    /// How many of them; when absent as many as make 256 KiB, but 4 to 64.
    pub ahead: Option<u32>,
}

/// A side of a mailbox, opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The client's number for it.
    pub number: u16,
    /// The port whose rings it has; absent over the signal queue.
    pub port: Option<u16>,
    /// The mailbox's implementation.
    pub implementation: Implementation,
}

/// The descriptors to watch of a client: either one readable (or hung up) is the client's end, while the doorbell only wakes.
#[derive(Debug)]
pub struct Watched {
    /// Its socket.
    pub socket: Arc<OwnedFd>,
    /// Its process, where the system gives such a descriptor.
    pub process: Option<Arc<OwnedFd>>,
    /// To be watched edge-triggered, and never read.
    pub doorbell: Arc<OwnedFd>,
}

impl HostInterface {
    // --- clients ---

    /// Takes a client in. The client's number goes into the welcome that the caller sends.
    ///
    /// # Errors
    /// The table is full, or its rings do not lie in its segment.
    pub fn admit(&mut self, prepared: Prepared, now_ns: u64) -> Result<ClientKey, HostError> {
        if self.attached >= self.config.max_clients {
            let bound = self.config.max_clients;
            return Err(HostError::Limit { what: "attached clients", bound, key: "max_clients" });
        }
        let index = self.clients.free_place();
        self.serial = (self.serial + 1) & (u32::MAX >> super::client::INDEX_BITS);
        let key = ClientKey::new(self.serial.max(1), index);
        let domain = self.domains.find_or_add(&prepared.domain);
        let control = prepared.control.clone();
        let rings = (|| {
            let up = SignalReader::new(&control)?;
            let down = RingWriter::new(&control, ControlLayout::signal_down(), SIGNAL_ENTRIES)?;
            let condition = |index: u16| HostCondition::new(&control, ControlLayout::condition(index.into()));
            let conditions = [condition(ARRIVAL_CONDITION)?, condition(UPCALL_CONDITION)?];
            Some((up, down, conditions, ArmedFlag::new(&control)?, CoreLane::new(&control)?))
        })();
        debug_assert!(rings.is_some(), "a control segment has room for all of its parts");
        let (up, down, [condition, upcalled], armed, lane) = rings.ok_or(HostError::Gone)?;
        let signals = Signals::new(down, MAX_UPCALLS);
        let client = Client {
            key,
            peer: prepared.peer,
            domain,
            attached_ns: now_ns,
            control,
            socket: prepared.socket,
            doorbell: prepared.doorbell,
            wake: prepared.wake,
            armed,
            condition,
            upcalled,
            ports: Vec::new(),
            next_generation: 0,
            signals,
            open: Vec::new(),
            quota_bytes: self.config.client_bytes,
            hold: Hold::Nothing,
            is_notified: false,
            is_woken: false,
            messages_in: 0,
            messages_out: 0,
            bytes_in: 0,
            bytes_out: 0,
            unlabelled_taken: 0,
            waits: 0,
            wakes: 0,
        };
        self.clients.insert(client);
        self.attached += 1;
        self.counters.attached += 1;
        if let Some(domain) = self.domains.of_mut(domain) {
            domain.clients += 1;
        }
        self.rings.add_client(index as u32, lane);
        self.rings.add(index as u32, crate::shared::SIGNALS, Up::Signals(up));
        self.open_session(key)?;
        Ok(key)
    }

    /// The session's two mailboxes, and the ports to them.
    fn open_session(&mut self, key: ClientKey) -> Result<(), HostError> {
        let session = CoreReader::Session(key);
        for (number, side, reader) in [(SESSION_OUT, Side::Write, session), (SESSION_IN, Side::Read, CoreReader::None)]
        {
            let options =
                MailboxOptions { bound_messages: Some(u32::MAX), bound_bytes: Some(u64::MAX), ..Default::default() };
            let mailbox = self.add_mailbox(String::new(), Owner::Client(key.0), options, reader);
            let options = PortOptions { ahead: Some(SESSION_AHEAD.0), message_bytes: Some(SESSION_AHEAD.1) };
            self.open_port(key, mailbox, side, number, options)?;
        }
        self.feed();
        Ok(())
    }

    /// The descriptors to watch of a client. The descriptors stay open while they are held.
    pub fn watched(&self, client: ClientKey) -> Option<Watched> {
        let client = self.client(client)?;
        Some(Watched {
            socket: client.socket.clone(),
            process: client.peer.pidfd.clone(),
            doorbell: client.doorbell.clone(),
        })
    }

    /// How often a client has shown that its process runs ([`Attachment::beat`](crate::client::Attachment::beat)); `None` if it has
    /// gone.
    pub fn client_beats(&self, client: ClientKey) -> Option<u64> {
        Some(self.client(client)?.armed.beats())
    }

    /// Ends a client: entries that it ended or enqueued before are carried out, everything that it held is returned,
    /// its mailboxes are deleted, and the clients that wait for them are notified. False if it was gone already.
    pub fn detach(&mut self, key: ClientKey) -> bool {
        if self.client(key).is_some() {
            self.finish(key.index() as u32);
        }
        self.remove_client(key)
    }

    /// Carries out what a client has ended or enqueued, as [`HostInterface::detach`] does before all else, and gives what of it is for
    /// the context as packets of its session: for who detaches it next.
    pub fn last_packets(&mut self, key: ClientKey) -> Vec<Message> {
        if self.client(key).is_some() {
            self.finish(key.index() as u32);
        }
        self.take_finished(key)
    }

    /// Carries out what a client has ended or enqueued, but for the packets of its session, and gives the messages that it has sent to
    /// streams: they come before what its session has put after them.
    pub fn last_sent(&mut self, key: ClientKey) -> Vec<Message> {
        if self.client(key).is_some() {
            let client = key.index() as u32;
            let ports: Vec<u16> = self.rings.ports(client).filter(|port| *port != SESSION_OUT).collect();
            ports.into_iter().for_each(|port| self.finish_ring(client, port));
        }
        self.take_finished(key)
    }

    /// Of what was carried out, what is for the context as packets of a client's session.
    fn take_finished(&mut self, key: ClientKey) -> Vec<Message> {
        let mut packets = Vec::new();
        for arrival in std::mem::take(&mut self.finished) {
            match arrival {
                Arrival::Session { client, message } if client == key => packets.push(message),
                other => self.finished.push_back(other),
            }
        }
        packets
    }

    /// Carries out what lies in a client's rings: whoever ended a put and then left, or closed the mailbox over another ring, has
    /// put all the same. No more than the rings hold.
    fn finish(&mut self, client: u32) {
        let ports: Vec<u16> = self.rings.ports(client).collect();
        for port in ports {
            self.finish_ring(client, port);
        }
    }

    /// The same for one ring.
    pub(super) fn finish_ring(&mut self, client: u32, port: u16) {
        for _ in 0..SIGNAL_ENTRIES.max(PORT_ENTRIES) {
            if !self.finish_next(client, port) {
                break;
            }
        }
    }

    /// Carries out the next entry of one ring, if there is one; whether there was. An arrival for the context comes before all else.
    pub(super) fn finish_next(&mut self, client: u32, port: u16) -> bool {
        // Looked up anew each time: a violation ends the client, and with it its rings.
        let Some(taken) = self.rings.take_of(client, port) else { return false };
        self.taken += 1;
        let arrival = match taken {
            Taken::Descriptor(entry, _) => self.take_descriptor(client, port, &entry, None),
            Taken::Signal(entry) => self.take_signal(client, &entry),
            Taken::Calls(calls) => self.take_calls(client, calls),
            Taken::Astray => self.report_violation(client, ProtocolViolation::Astray),
        };
        self.finished.extend(arrival);
        true
    }

    /// [`HostInterface::detach`], for one whose rings are of no interest any more.
    pub(super) fn remove_client(&mut self, key: ClientKey) -> bool {
        // Off the tables and mailboxes first, its session's among them, so that nothing of what is returned below is given to it.
        let Some(mut client) = self.clients.take(key) else { return false };
        let index = key.index() as u32;
        self.rings.remove(index, None);
        for (number, open) in (0..).zip(&client.open) {
            if let Some(open) = open {
                self.forget_side(index, number, open);
            }
        }
        for session in client.ports.iter().take(SESSION_PORTS).flatten() {
            if let Some(mailbox) = self.present_mailbox(session.mailbox) {
                (mailbox.writer, mailbox.reader) = (None, None);
            }
        }
        self.attached -= 1;
        self.counters.detached += 1;
        let domain = client.domain;
        self.below.retain(|key| key.client != index);
        for port in client.ports.iter_mut().flatten() {
            let unread = self.leave_direct(port).messages;
            self.put_unread(port.mailbox, unread);
        }
        // The bytes in its hands leave their mailboxes. It may be reading them still, which is no matter: it is gone.
        let slots = client.ports.iter_mut().flatten().map(|port| &mut port.slots).chain([&mut client.signals.slots]);
        for message in slots.flat_map(|slots| slots.drain().collect::<Vec<_>>()) {
            let (origin, len) = (message.0.origin, message.0.len);
            self.free(message);
            if origin != MailboxKey::NONE {
                self.lose_with_reader(origin, len);
            }
        }
        self.disown(Owner::Client(key.0));
        let awaited = client.signals.upcalls.iter().flatten();
        self.arrivals.extend(awaited.map(|&(_, ticket)| super::Arrival::Returned { ticket, value: None }));
        if let Some(domain) = self.domains.of_mut(domain) {
            domain.clients -= 1;
        }
        self.domains.release_unused(domain);
        self.freed = true;
        self.feed();
        true
    }

    /// A message that a reader was handed ahead and did not end is the first in its mailbox again.
    fn put_back(&mut self, message: Message) {
        let origin = message.0.origin;
        match self.mailbox_mut(origin) {
            Some(mailbox) => mailbox.queue.push_front(message),
            None if origin == MailboxKey::NONE => self.free(message),
            None => self.lose(origin, message, MessageLoss::Undeliverable),
        }
    }

    /// Puts messages back that the core got of a mailbox ([`HostInterface::get`]) and that nobody has ended: they are the first in it
    /// again, in their order. Freed if the mailbox was deleted.
    pub fn put_back_got<I>(&mut self, from: MailboxKey, messages: I)
    where
        I: IntoIterator<Item = Message, IntoIter: DoubleEndedIterator>,
    {
        let messages = messages.into_iter();
        match self.mailbox(from).map(|mailbox| mailbox.core_reader) {
            Some(CoreReader::None) => {
                for message in messages.rev() {
                    if let Some(mailbox) = self.present_mailbox(from) {
                        mailbox.returns(message.0.len);
                        mailbox.queue.push_front(message);
                    }
                }
                self.pump(from);
                self.note_change(from);
            }
            Some(CoreReader::Upcall(upcall)) => {
                let arrival = |message| Arrival::Upcall { mailbox: from, upcall, message };
                self.arrivals.extend(messages.map(arrival));
            }
            Some(CoreReader::Session(_)) | None => messages.for_each(|message| self.free(message)),
        }
    }

    /// A message that was with a reader who died is ended.
    fn lose_with_reader(&mut self, mailbox: MailboxKey, len: u32) {
        // With a mailbox that is gone, so is the claim on the message.
        if self.mailbox(mailbox).is_some() {
            self.count_loss(mailbox, MessageLoss::ReaderGone, 1);
        }
        self.left(mailbox, len);
    }

    /// A client's end, as seen by a mailbox that it had open: what the client waits for of it, unless the mailbox was deleted.
    fn forget_side(&mut self, client: u32, number: u16, open: &Open) -> VecDeque<Get> {
        let Some(mailbox) = self.mailbox_mut(open.mailbox) else { return VecDeque::new() };
        // Those of another number that the client has of the same mailbox stay.
        let (over, stay): (VecDeque<Get>, VecDeque<Get>) =
            mailbox.gets.drain(..).partition(|get| (get.client, get.number) == (client, number));
        mailbox.gets = stay;
        let key = open.port.map(|port| PortKey { client, port });
        match (open.side, key) {
            (Side::Write, Some(key)) => mailbox.remove_writer(key),
            (Side::Read, Some(key)) => drop(mailbox.reader.take_if(|port| *port == key)),
            (Side::Write, None) => mailbox.writers = mailbox.writers.saturating_sub(1),
            (Side::Read, None) => mailbox.readers = mailbox.readers.saturating_sub(1),
        }
        over
    }

    /// Notifies clients that wait for a message that none will come.
    fn refuse_gets(&mut self, gets: impl IntoIterator<Item = Get>, reason: Reason) {
        for Get { client, tag, .. } in gets {
            if let Some(holder) = self.clients.present(client) {
                holder.signals.end_get(tag);
            }
            self.refuse(client, tag, reason);
        }
    }

    // --- mailboxes ---

    /// Makes a mailbox.
    ///
    /// # Errors
    /// The name is none, or is taken; the table is full; the client that is to own it is gone, and nothing would end it.
    pub fn create(&mut self, owner: Owner, name: &str, options: MailboxOptions) -> Result<MailboxKey, HostError> {
        if let Owner::Client(number) = owner
            && self.client(ClientKey(number)).is_none()
        {
            return Err(HostError::Gone);
        }
        let is_name = !name.is_empty() && name.len() <= 255 && !name.contains(|c: char| c == '/' || c.is_control());
        if !is_name {
            return Err(HostError::Name);
        }
        if self.names.contains_key(name) {
            return Err(HostError::Exists(name.to_owned()));
        }
        if self.names.len() >= self.config.max_mailboxes as usize {
            let bound = self.config.max_mailboxes;
            return Err(HostError::Limit { what: "mailboxes", bound, key: "max_mailboxes" });
        }
        let key = self.add_mailbox(name.to_owned(), owner, options, CoreReader::None);
        self.names.insert(name.to_owned(), key);
        Ok(key)
    }

    fn add_mailbox(
        &mut self,
        name: String,
        owner: Owner,
        options: MailboxOptions,
        core_reader: CoreReader,
    ) -> MailboxKey {
        self.generation = self.generation.wrapping_add(1);
        let generation = self.generation;
        let index = self.mailboxes.insert(Mailbox {
            name,
            generation,
            owner,
            implementation: options.implementation,
            bound_messages: options.bound_messages.unwrap_or(self.config.bound_messages).max(1),
            bound_bytes: options.bound_bytes.unwrap_or(self.config.bound_bytes).max(1),
            queue: VecDeque::new(),
            depth: 0,
            bytes: 0,
            core_reader,
            direct: None,
            is_mixed: false,
            writer: None,
            more_writers: Vec::new(),
            reader: None,
            writers: 0,
            readers: 0,
            last_reader: None,
            gets: VecDeque::new(),
            counters: MailboxCounters::default(),
            is_watched: false,
            is_changed: false,
        });
        MailboxKey { index: index as u32, generation }
    }

    /// The mailbox of a name.
    ///
    /// # Errors
    /// There is none.
    pub fn find(&self, name: &str) -> Result<MailboxKey, HostError> {
        self.names.get(name).copied().ok_or_else(|| HostError::Unknown(name.to_owned()))
    }

    /// A mailbox's name, while it is there.
    pub fn name_of(&self, mailbox: MailboxKey) -> Option<&str> {
        self.mailbox(mailbox).map(|mailbox| mailbox.name.as_str())
    }

    /// How clients' operations on a mailbox are carried out.
    pub fn implementation_of(&self, mailbox: MailboxKey) -> Option<Implementation> {
        self.mailbox(mailbox).map(|mailbox| mailbox.implementation)
    }

    /// Deletes a mailbox: its messages are dropped and counted, and the clients that have it open are notified.
    ///
    /// # Errors
    /// There is none of that name, or it is somebody else's (the daemon's own may be deleted by all).
    pub fn delete(&mut self, by: Owner, name: &str) -> Result<(), HostError> {
        let key = self.find_owned(by, name)?;
        self.remove_mailbox(key, Reason::Closed);
        Ok(())
    }

    /// A mailbox by name, for who may change what becomes of it: its owner; anyone, if it is the daemon's; and the daemon.
    ///
    /// # Errors
    /// There is none of that name, or it is somebody else's.
    pub fn find_owned(&self, by: Owner, name: &str) -> Result<MailboxKey, HostError> {
        let key = self.find(name)?;
        match self.mailbox(key).map(|mailbox| mailbox.owner) {
            Some(owner) if owner != by && owner != Owner::Daemon && by != Owner::Daemon => {
                Err(HostError::NotOwner(name.to_owned()))
            }
            _ => Ok(key),
        }
    }

    /// Deletes all mailboxes of an owner that has gone.
    pub fn disown(&mut self, owner: Owner) {
        for mailbox in self.owned_by(owner) {
            self.remove_mailbox(mailbox, Reason::Closed);
        }
    }

    fn owned_by(&self, owner: Owner) -> Vec<MailboxKey> {
        let key =
            |(index, mailbox): (usize, &Mailbox)| MailboxKey { index: index as u32, generation: mailbox.generation };
        self.mailboxes.iter().filter(|(_, mailbox)| mailbox.owner == owner).map(key).collect()
    }

    fn remove_mailbox(&mut self, key: MailboxKey, reason: Reason) {
        if self.mailbox(key).is_none() {
            return;
        }
        let undelivered = self.mailbox(key).map_or(0, |mailbox| mailbox.queue.len()) as u64;
        self.count_loss(key, MessageLoss::Undeliverable, undelivered);
        self.note_change(key);
        let mut mailbox = self.mailboxes.remove(key.index as usize);
        if self.names.remove(&mailbox.name).is_some() {
            self.losses.bury(key, std::mem::take(&mut mailbox.name), mailbox.counters.losses);
        }
        for message in mailbox.queue.drain(..) {
            self.free(message);
        }
        for port in mailbox.writer.into_iter().chain(mailbox.more_writers).chain(mailbox.reader) {
            self.notify_closed(port, reason);
        }
        self.refuse_gets(mailbox.gets, reason);
        // Allocations that wait for it are refused when they are next looked at.
        self.freed = true;
    }

    /// From now on messages put into the mailbox go to the core's upcall of that number, those that are in it first.
    ///
    /// # Errors
    /// There is no such mailbox, or it has a reader.
    pub fn attach_upcall(&mut self, key: MailboxKey, upcall: u32) -> Result<(), HostError> {
        let mailbox = self.mailbox_mut(key).ok_or_else(|| HostError::Unknown(String::new()))?;
        if mailbox.core_reader != CoreReader::None || mailbox.reader.is_some() || mailbox.readers > 0 {
            return Err(HostError::HasReader(mailbox.name.clone()));
        }
        mailbox.core_reader = CoreReader::Upcall(upcall);
        while let Some(message) = self.get(key) {
            self.arrivals.push_back(super::Arrival::Upcall { mailbox: key, upcall, message });
        }
        Ok(())
    }

    /// Messages wait for readers again. The upcall's number, if there was one.
    pub fn detach_upcall(&mut self, key: MailboxKey) -> Option<u32> {
        match std::mem::replace(&mut self.mailbox_mut(key)?.core_reader, CoreReader::None) {
            CoreReader::Upcall(upcall) => Some(upcall),
            _ => None,
        }
    }

    // --- sides ---

    /// Opens one side of a mailbox for a client.
    ///
    /// # Errors
    /// There is no such mailbox, the side is taken, or the client has all of its ports or numbers in use.
    pub fn open(
        &mut self,
        client: ClientKey,
        name: &str,
        side: Side,
        options: PortOptions,
    ) -> Result<Opened, HostError> {
        let key = self.find(name)?;
        let mailbox = self.present_mailbox(key).ok_or_else(|| HostError::Unknown(name.to_owned()))?;
        let implementation = mailbox.implementation;
        if side == Side::Read && mailbox.core_reader != CoreReader::None {
            return Err(HostError::HasReader(name.to_owned()));
        }
        let port = match implementation {
            Implementation::Rings => {
                let (taken, side_name) = match side {
                    // Each thread of a client may have a writer of its own.
                    Side::Write => (mailbox.writer.is_some_and(|port| port.client != client.index() as u32), "write"),
                    Side::Read => (mailbox.reader.is_some(), "read"),
                };
                if taken {
                    return Err(HostError::Busy { name: name.to_owned(), side: side_name });
                }
                if side == Side::Write && mailbox.more_writers.len() >= MOST_MORE_WRITERS {
                    let (bound, key) = (MOST_MORE_WRITERS as u32 + 1, "no key: use signal_queue mailboxes");
                    return Err(HostError::Limit { what: "writers of a `rings` mailbox", bound, key });
                }
                let ports = &self.client(client).ok_or(HostError::Gone)?.ports;
                let free = (0..PORTS).find(|&port| ports.get(port).is_none_or(Option::is_none));
                let bound = PORTS as u32;
                let limit =
                    HostError::Limit { what: "ports of this client", bound, key: "no key: use signal_queue mailboxes" };
                Some(free.ok_or(limit)? as u16)
            }
            Implementation::SignalQueue => None,
        };
        let holder = self.client_mut(client).ok_or(HostError::Gone)?;
        let number = holder.open.iter().position(Option::is_none).unwrap_or(holder.open.len());
        if number >= MAX_OPEN {
            let bound = MAX_OPEN as u32;
            return Err(HostError::Limit { what: "open mailboxes of this client", bound, key: "no key: close some" });
        }
        if number == holder.open.len() {
            holder.open.push(None);
        }
        holder.open[number] = Some(Open { mailbox: key, side, port });
        match port {
            Some(port) => {
                self.open_port(client, key, side, port, options)?;
                self.settle_direct(key);
            }
            None => {
                if let Some(mailbox) = self.present_mailbox(key) {
                    match side {
                        Side::Write => mailbox.writers += 1,
                        Side::Read => (mailbox.readers, mailbox.last_reader) = (mailbox.readers + 1, Some(client)),
                    }
                }
            }
        }
        self.feed();
        Ok(Opened { number: number as u16, port, implementation })
    }

    fn open_port(
        &mut self,
        client: ClientKey,
        mailbox: MailboxKey,
        side: Side,
        number: u16,
        options: PortOptions,
    ) -> Result<(), HostError> {
        let holder = self.client_mut(client).ok_or(HostError::Gone)?;
        let (up_at, down_at) = (ControlLayout::port_up(number.into()), ControlLayout::port_down(number.into()));
        // Words that an earlier owner of the rings left there must not be taken for entries.
        let cleared = [up_at, down_at]
            .iter()
            .all(|&at| holder.control.write_from(at, &[0; PORT_ENTRIES * Descriptor::WORDS * 8]));
        debug_assert!(cleared, "the rings of all ports lie in a control segment");
        let up = if number == SESSION_OUT {
            SessionReader::new(&holder.control).map(Up::Session)
        } else {
            RingReader::new(&holder.control, up_at, PORT_ENTRIES).map(Up::Port)
        };
        let down = RingWriter::new(&holder.control, down_at, PORT_ENTRIES);
        debug_assert!(up.is_some() && down.is_some(), "the rings of all ports lie in a control segment");
        let (up, down) = up.zip(down).ok_or(HostError::Gone)?;
        let is_writer = side == Side::Write;
        let grant_bytes = options.message_bytes.unwrap_or(GRANT_BYTES.0).clamp(64, GRANT_BYTES.1);
        let ahead = options.ahead.unwrap_or((AHEAD_BYTES / grant_bytes).clamp(AHEAD.0, AHEAD.1)).clamp(1, AHEAD.2);
        self.lives = self.lives.wrapping_add(1);
        let home = Home { client: client.index() as u16, port: number, life: self.lives };
        let holder = self.client_mut(client).ok_or(HostError::Gone)?;
        let port = Port {
            mailbox,
            side,
            home,
            slots: Slots::new(SLOTS as u16, holder.next_generation),
            down,
            ahead: if is_writer { ahead } else { 0 },
            grant_bytes,
            deliver_bytes: DELIVER_BYTES,
            control_slots: if number == SESSION_IN { CONTROL_SLOTS } else { 0 },
            requests: VecDeque::new(),
            is_hungry: false,
            is_below: false,
            is_unreported: false,
            is_wait_noted: false,
            direct: DirectPort::default(),
        };
        holder.next_generation = holder.next_generation.wrapping_add(GENERATIONS_APART);
        let at = number as usize;
        if holder.ports.len() <= at {
            holder.ports.resize_with(at + 1, || None);
        }
        holder.ports[at] = Some(Box::new(port));
        let key = PortKey { client: client.index() as u32, port: number };
        self.rings.add(key.client, number, up);
        if let Some(mailbox) = self.present_mailbox(mailbox) {
            match side {
                Side::Write => mailbox.add_writer(key),
                Side::Read => mailbox.reader = Some(key),
            }
        }
        match side {
            Side::Write => self.make_hungry(key),
            Side::Read => self.pump(mailbox),
        }
        Ok(())
    }

    /// Closes what a client has open under a number: what it held of it is returned. The messages that a reader was handed ahead
    /// and has not ended stay in the mailbox, in their order and in front of the others, for the next reader: a correct client has
    /// ended all that it began before it closes.
    ///
    /// # Errors
    /// The client has gone, or nothing is open under that number.
    pub fn close(&mut self, client: ClientKey, number: u16) -> Result<(), HostError> {
        // The client's puts and messages before it closed lie in rings that may not have been looked at since: any of
        // them, for an enqueue names a mailbox that another port is of.
        self.client(client).ok_or(HostError::Gone)?;
        self.finish(client.index() as u32);
        let holder = self.client_mut(client).ok_or(HostError::Gone)?;
        let open = holder.open.get_mut(number as usize).and_then(Option::take);
        let open = open.ok_or_else(|| HostError::Unknown(format!("number {number}")))?;
        let index = client.index() as u32;
        // Side first: what is returned below must not be delivered to it again.
        let gets = self.forget_side(index, number, &open);
        self.refuse_gets(gets, Reason::Closed);
        if let Some(port) = open.port {
            self.rings.remove(index, Some(port));
            self.below.retain(|key| (key.client, key.port) != (index, port));
            let taken = self.clients.present(index).and_then(|holder| holder.ports.get_mut(port as usize)?.take());
            debug_assert!(taken.is_some(), "what is open over a port has it");
            if let Some(port) = taken {
                self.leave_port(port);
            }
            if open.side == Side::Write {
                // One writer may be left.
                self.try_direct(open.mailbox);
            }
        }
        self.freed = true;
        self.feed();
        Ok(())
    }

    /// Returns what is in the slots of a port that is closed.
    fn leave_port(&mut self, mut port: Box<Port>) {
        let Unread { before, messages } = self.leave_direct(&mut port);
        let (mut delivered, granted) = port.slots.drain_in_order();
        granted.into_iter().for_each(|buffer| self.free(buffer));
        let behind = delivered.split_off(before.min(delivered.len()));
        behind.into_iter().rev().for_each(|message| self.put_back(message));
        self.put_unread(port.mailbox, messages);
        delivered.into_iter().rev().for_each(|message| self.put_back(message));
    }

    /// The mailbox that a client has open under a number, for one side.
    pub fn opened(&self, client: ClientKey, number: u16) -> Option<(MailboxKey, Side)> {
        let open = self.client(client)?.opened(number).ok()?;
        Some((open.mailbox, open.side))
    }
}
