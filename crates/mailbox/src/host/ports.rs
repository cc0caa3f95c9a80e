//! Descriptors: what clients' ports ask for, and messages on their way to readers.

use super::client::{Hold, MoveTarget, Port, SESSION_IN, SESSION_OUT};
use super::direct::is_full;
use super::heap::is_rotated;
use super::losses::MessageLoss;
use super::mailbox::{CoreReader, Mailbox, MailboxKey, PortKey, Side};
use super::message::{Area, Home, Message, Span};
use super::slots::{Given, ProtocolViolation};
use super::tables::Domains;
use super::{Arrival, HostInterface};
use crate::shared::{Descriptor, Passed, Reason, Regrants, SIGNALS, Signal, down, up};

/// Whether a port has so few grants of those that it is to have ahead that it is given more at once. Most come back by themselves
/// when their messages are freed. Others are granted many together: the client then finds them in one look, and the rings' lines move
/// less often.
#[inline(always)]
fn is_low(granted: u32, ahead: u32) -> bool {
    4 * granted <= ahead
}

impl HostInterface {
    /// Carries out one descriptor of a port's up ring.
    #[inline(always)]
    pub(super) fn take_descriptor(
        &mut self,
        client: u32,
        number: u16,
        entry: &Descriptor,
        next: Option<&Descriptor>,
    ) -> Option<Arrival> {
        let holder = self.clients.present(client)?;
        if let Some(next) = next
            && let Some(domain) = self.domains.of(holder.domain)
        {
            // Its bytes come while this one is seen to. A wrong offset brings the wrong bytes, or none.
            domain.heaps[Area::Shared as usize].segment.prefetch(next.offset as usize);
        }
        let port = holder.present_port(number)?;
        if entry.op == up::PUT {
            let mailbox = port.mailbox;
            return match port.take_put(entry) {
                Ok(message) => {
                    holder.count_in(&message);
                    self.note_used(PortKey { client, port: number });
                    self.arrive(mailbox, message)
                }
                Err(violation) => self.take_uncommon(client, number, entry, violation),
            };
        }
        let carried_out = match entry.op {
            up::FREE => port.slots.take(entry, false).map(|given| self.given_back(client, number, given)),
            up::ENQUEUE => return self.take_enqueue(client, number, entry),
            up::REQUEST => self.take_request(client, number, entry),
            up::WITHDRAW => self.withdraw_request(client, number, entry),
            other => Err(ProtocolViolation::Operation(other)),
        };
        match carried_out {
            Ok(()) => None,
            Err(violation) => self.take_uncommon(client, number, entry, violation),
        }
    }

    /// Takes the puts that follow one to a task of the core, so that the task sees all of them at once.
    #[inline(always)]
    pub(super) fn gather(&mut self, key: PortKey, (mailbox, upcall): (MailboxKey, u32), first: Message) -> Arrival {
        let PortKey { client, port: number } = key;
        if !self.burst.is_empty() {
            // The last burst was not taken: its messages are for nobody else.
            debug_assert!(false, "a burst is taken before the next look at the rings");
            let left = std::mem::take(&mut self.burst);
            self.keep_burst(left);
        }
        let mut violation = None;
        self.burst.push(first);
        if let Some(holder) = self.clients.present(client)
            && let Some(domain) = self.domains.of(holder.domain)
            && let Some(port) = holder.port_mut(number)
        {
            let (burst, segment) = (&mut self.burst, &domain.heaps[Area::Shared as usize].segment);
            let mut bytes = 0;
            self.rings.take_puts(client, number, |entry| match port.take_put(entry) {
                Ok(message) => {
                    // Its bytes come while the others are seen to.
                    segment.prefetch(message.0.start as usize);
                    bytes += u64::from(message.0.len);
                    burst.push(message);
                    true
                }
                Err(found) => {
                    violation = Some((*entry, found));
                    false
                }
            });
            let more = burst.len() as u64 - 1;
            self.taken += more;
            holder.messages_in += more;
            holder.bytes_in += bytes;
            if let Some(entry) = self.mailbox_mut(mailbox) {
                entry.counters.puts += more;
                entry.counters.gets += more;
            }
        }
        self.note_used(key);
        let arrival = violation.and_then(|(entry, found)| self.take_uncommon(client, number, &entry, found));
        self.arrivals.extend(arrival);
        Arrival::Upcalls { mailbox, upcall }
    }

    /// A writer has used some of the buffers that it was granted ahead.
    #[inline(always)]
    fn note_used(&mut self, key: PortKey) {
        let Some(port) = self.clients.present_port(key) else { return };
        let is_due = is_low(port.slots.granted(), port.ahead);
        if is_due && !std::mem::replace(&mut port.is_hungry, true) {
            self.hungry.push(key);
        } else if !is_due {
            if !std::mem::replace(&mut port.is_below, true) {
                self.below.push(key);
            }
        } else if port.slots.granted() == 0 {
            self.freed = true; // its writer is without a buffer from now on: looked at once more, and counted
        }
    }

    /// A slot that a client gave back: a message it has read, or a grant it did not use.
    pub(super) fn given_back(&mut self, client: u32, number: u16, given: Given) {
        let origin = given.message.0.origin;
        let was_delivered = given.delivered;
        if number == SESSION_IN
            && given.message.0.tag == 0
            && let Some(client) = self.clients.present(client)
        {
            client.unlabelled_taken += u64::from(was_delivered.unwrap_or(0));
        }
        self.free(given.message);
        match was_delivered {
            Some(len) => self.left(origin, len),
            None => self.make_hungry(PortKey { client, port: number }),
        }
    }

    /// A reader has ended a message of `len` bytes: the next one may come, and writers may be due buffers.
    #[inline]
    pub(super) fn left(&mut self, mailbox: MailboxKey, len: u32) {
        self.freed = true;
        if let Some(entry) = self.mailbox_mut(mailbox) {
            entry.leaves(len);
            let is_watched = entry.is_watched;
            if !entry.queue.is_empty() {
                self.pump(mailbox);
            }
            if is_watched {
                self.note_change(mailbox);
            }
        }
    }

    /// A client moves a message that it holds to another mailbox, where it is not copied within the domain.
    #[inline(always)]
    fn take_enqueue(&mut self, client: u32, number: u16, entry: &Descriptor) -> Option<Arrival> {
        let holder = self.clients.present(client)?;
        let target = match holder.move_target(entry.target) {
            Ok(MoveTarget::Mailbox(open)) if open.side == Side::Read => {
                return self.report_violation(client, ProtocolViolation::NotOpen(entry.target));
            }
            Ok(target) => target,
            Err(violation) => return self.report_violation(client, violation),
        };
        match holder.present_port(number)?.slots.take(entry, true) {
            Ok(Given { message, delivered }) => {
                holder.count_in(&message);
                match delivered {
                    Some(len) => self.left(message.0.origin, len),
                    None => self.make_hungry(PortKey { client, port: number }),
                }
                self.arrive_moved(client, target, message)
            }
            Err(violation) => self.take_uncommon(client, number, entry, violation),
        }
    }

    /// A message that a client has moved comes to a mailbox, or to the context if it is sent to a stream.
    #[inline]
    pub(super) fn arrive_moved(&mut self, client: u32, target: MoveTarget, mut message: Message) -> Option<Arrival> {
        match target {
            MoveTarget::Mailbox(open) => self.arrive_otherwise(open.mailbox, message),
            MoveTarget::Stream(stream) => {
                let Some(client) = self.clients.present(client).map(|client| client.key) else {
                    self.free(message);
                    return None;
                };
                message.set_mark(stream);
                Some(Arrival::Session { client, message })
            }
        }
    }

    /// A message comes to a mailbox: to the core if that reads it, else to its reader or queue.
    #[inline(always)]
    pub(super) fn arrive(&mut self, to: MailboxKey, message: Message) -> Option<Arrival> {
        let Some(mailbox) = self.mailbox_mut(to) else {
            // It was deleted while the message was under way; a descriptor of its own notifies the writer.
            self.lose(to, message, MessageLoss::Undeliverable);
            return None;
        };
        match mailbox.core_reader {
            CoreReader::Upcall(upcall) => {
                mailbox.counters.puts += 1;
                mailbox.counters.gets += 1;
                Some(Arrival::Upcall { mailbox: to, upcall, message })
            }
            CoreReader::Session(client) => {
                mailbox.counters.puts += 1;
                mailbox.counters.gets += 1;
                Some(Arrival::Session { client, message })
            }
            CoreReader::None => {
                mailbox.enters(message.0.len);
                let (empty, is_watched) = (mailbox.queue.is_empty(), mailbox.is_watched);
                if let (true, Some(reader)) = (empty, mailbox.reader) {
                    // The usual way of a message to a reader: no queue.
                    if let Err(message) = self.deliver(to, reader, message) {
                        self.queue(to, message);
                    }
                } else {
                    mailbox.queue.push_back(message);
                    self.pump(to);
                }
                if is_watched {
                    self.note_change(to);
                }
                None
            }
        }
    }

    fn queue(&mut self, to: MailboxKey, message: Message) {
        if let Some(mailbox) = self.present_mailbox(to) {
            mailbox.queue.push_back(message);
        }
    }

    /// Gives a mailbox's readers what they can take of its queue.
    pub(super) fn pump(&mut self, key: MailboxKey) {
        while let Some(mailbox) = self.mailbox_mut(key) {
            let reader = mailbox.reader;
            if reader.is_none() && mailbox.gets.is_empty() {
                return;
            }
            let Some(message) = mailbox.queue.pop_front() else {
                if let Some(direct) = mailbox.direct {
                    self.join_direct(direct);
                }
                return;
            };
            let left = match reader {
                Some(reader) => self.deliver(key, reader, message),
                None => self.answer_get(key, message),
            };
            if let Err(message) = left {
                if let Some(mailbox) = self.present_mailbox(key) {
                    mailbox.queue.push_front(message);
                }
                return;
            }
        }
    }

    /// Hands a message to the reader's port; gives it back if it has no room, or no memory for a copy.
    #[inline(always)]
    pub(super) fn deliver(&mut self, from: MailboxKey, to: PortKey, message: Message) -> Result<(), Message> {
        match self.clients.present(to.client).map(|client| client.domain) {
            Some(domain) if message.0.domain == domain => self.hand_over(from, to, message),
            Some(domain) => self.deliver_across(from, to, message, domain),
            None => Err(message),
        }
    }

    /// The same for a message from elsewhere than the reader's domain.
    #[inline(never)]
    fn deliver_across(&mut self, from: MailboxKey, to: PortKey, message: Message, domain: u16) -> Result<(), Message> {
        if !self.clients.present_port(to).is_some_and(|port| port.has_room(&message)) {
            return Err(message);
        }
        let copy = self.cross(message, domain, from)?;
        self.hand_over(from, to, copy)
    }

    /// Hands a message in the memory of its reader's domain to the reader's port; gives it back if that has no room.
    #[inline(always)]
    fn hand_over(&mut self, from: MailboxKey, to: PortKey, mut message: Message) -> Result<(), Message> {
        let Some(client) = self.clients.present(to.client) else { return Err(message) };
        let Some(port) = client.present_port(to.port).filter(|port| port.has_room(&message)) else {
            return Err(message);
        };
        message.0.origin = from;
        let (target, bytes) = (message.0.area as u16 | message.0.tag << 1, message.0.len);
        let entry = port.slots.deliver(message)?;
        let entry = Descriptor { op: down::MESSAGE, target, ..entry };
        match self.rings.lane(to.client) {
            Some(lane) if to.port > SESSION_IN && lane.is_ours() => {
                let signal = Signal { head: entry, ..Signal::default() };
                lane.pass(&Passed { signal, port: to.port, after: port.down.position() as u32 });
            }
            _ => port.down.push(entry),
        }
        client.count_out(bytes);
        self.has_given = true;
        if !std::mem::replace(&mut client.is_notified, true) {
            self.notified.push(to.client);
        }
        Ok(())
    }

    /// Copies a message into a domain's inbox: it comes from elsewhere.
    ///
    /// # Errors
    /// The message, if the inbox is full; it is tried again when something was freed.
    pub(super) fn cross(&mut self, message: Message, domain: u16, from: MailboxKey) -> Result<Message, Message> {
        let Ok(mut copy) = self.inbox_message(domain, message.len()) else {
            self.counters.inbox_full += 1;
            if !self.stuck.contains(&from) {
                self.stuck.push(from);
            }
            return Err(message);
        };
        self.domains.copy(&message, &copy);
        copy.label(message.0.tag, message.0.records, message.0.droppable);
        copy.set_mark(message.0.mark);
        self.counters.crossed += 1;
        self.free(message);
        Ok(copy)
    }

    /// A client asks for a buffer larger than those it is granted ahead.
    fn take_request(&mut self, client: u32, number: u16, entry: &Descriptor) -> Result<(), ProtocolViolation> {
        let (most, quota) = (self.config.max_message_bytes, self.config.client_bytes);
        let key = PortKey { client, port: number };
        let Some(port) = self.clients.present_port(key) else { return Ok(()) };
        if port.side == Side::Read {
            return Err(ProtocolViolation::Operation(entry.op));
        }
        let refusal = if entry.len > most {
            Some(Reason::TooLong)
        } else if u64::from(entry.len) > quota {
            Some(Reason::Quota)
        } else if entry.target & 1 == 0 {
            if port.requests.len() >= super::client::MAX_REQUESTS {
                return Err(ProtocolViolation::TooMany);
            }
            port.requests.push_back(entry.len);
            self.make_hungry(key);
            // It may wait already, for those that are granted ahead.
            self.freed = true;
            self.feed();
            None
        } else {
            self.grant(key, entry.len, 1).err()
        };
        if let Some(reason) = refusal {
            self.refuse_request(key, reason);
        }
        Ok(())
    }

    fn refuse_request(&mut self, key: PortKey, reason: Reason) {
        let len = self.said_with(reason);
        if let Some(port) = self.clients.present_port(key) {
            let target = reason as u16;
            port.down.push(Descriptor { op: down::REFUSED, target, len, ..Descriptor::default() });
            self.notify(key.client);
        }
    }

    /// A client gives up the buffer that it waits for, and may be due those that are granted ahead again.
    fn withdraw_request(&mut self, client: u32, number: u16, entry: &Descriptor) -> Result<(), ProtocolViolation> {
        let key = PortKey { client, port: number };
        let Some(port) = self.clients.present_port(key) else { return Ok(()) };
        if port.side == Side::Read {
            return Err(ProtocolViolation::Operation(entry.op));
        }
        if port.requests.pop_front().is_some() {
            self.refuse_request(key, Reason::Cancelled);
            self.make_hungry(key);
            // It waits already.
            self.freed = true;
        }
        Ok(())
    }

    /// Hands out `count` buffers to be written.
    ///
    /// # Errors
    /// Why not all of them can be now.
    pub(super) fn grant(&mut self, key: PortKey, bytes: u32, count: u32) -> Result<(), Reason> {
        let Some(client) = self.clients.present(key.client) else { return Err(Reason::Closed) };
        let (domain, hold, used) = (client.domain, client.hold, client.quota_used());
        let Some(port) = client.present_port(key.port) else { return Err(Reason::Closed) };
        let is_held = hold == Hold::All || hold == Hold::Records && bytes <= port.grant_bytes;
        if is_held && key.port == SESSION_OUT {
            return Err(Reason::Full);
        }
        match self.mailboxes.get(port.mailbox.index as usize) {
            Some(mailbox) if mailbox.generation == port.mailbox.generation => {
                if is_full(&self.directs, mailbox) {
                    return Err(Reason::Full);
                }
            }
            _ => return Err(Reason::Closed),
        }
        // Longer ones that were asked for are not what the port is to have.
        let home = if bytes == port.grant_bytes { port.home } else { Home::HEAP };
        let Some(heap) = self.domains.heap_mut(domain, Area::Shared) else { return Err(Reason::Closed) };
        let mut room = self.config.client_bytes.saturating_sub(used);
        let mut outcome = Ok(());
        for _ in 0..count {
            if room < u64::from(bytes) || port.slots.vacant() == 0 {
                outcome = Err(Reason::Quota);
                break;
            }
            let Some(buffer) = heap.alloc(bytes) else {
                outcome = Err(Reason::NoBuffers);
                break;
            };
            let range = heap.range(buffer);
            let Some(rest) = room.checked_sub(range.1.into()) else {
                heap.free(buffer);
                outcome = Err(Reason::Quota);
                break;
            };
            room = rest;
            let message = self.spares.message(Span { home, ..Span::of(domain, Area::Shared, buffer, range) });
            match port.slots.grant(message) {
                Ok(entry) => port.down.push(Descriptor { op: down::GRANT, ..entry }),
                Err(message) => {
                    debug_assert!(false, "a slot was vacant");
                    heap.free(buffer);
                    self.spares.keep(message);
                }
            }
            port.is_wait_noted = false;
        }
        self.notify(key.client);
        outcome
    }

    /// Grants buffers of freed messages to the port that they came from, as long as that is due some and nobody lacks memory; `next`
    /// gives the messages that are of that home, and whose buffers nobody else has a claim on. One that goes back into its slot takes a
    /// byte of an entry ([`Regrants`]), the others an entry each. Buffers of a size that is used in turn
    /// go back to the heap, unless they are a session's.
    #[inline(always)]
    pub(super) fn grant_again(&mut self, home: Home, mut next: impl FnMut(&Domains) -> Option<Message>) {
        if home == Home::HEAP || self.is_short {
            return;
        }
        let Some(client) = self.clients.at_mut(home.client.into()) else { return };
        let (hold, used) = (client.hold, client.quota_used());
        let Some(port) = client.port_mut(home.port).filter(|port| port.home == home) else { return };
        let has_room =
            |mailbox: &Mailbox| mailbox.generation == port.mailbox.generation && !is_full(&self.directs, mailbox);
        let may_again = match home.port {
            SESSION_OUT => hold == Hold::Nothing,
            _ => !is_rotated(port.grant_bytes),
        };
        let is_due = port.requests.is_empty() && may_again;
        if !is_due || !self.mailboxes.get(port.mailbox.index as usize).is_some_and(has_room) {
            return;
        }
        let before = port.slots.granted();
        let (mut regrants, mut left) = (Regrants::default(), None);
        let mut room = self.config.client_bytes.saturating_sub(used);
        let buffer_bytes = u64::from(port.grant_bytes.next_power_of_two());
        while port.slots.granted() < port.ahead
            && let Some(rest) = room.checked_sub(buffer_bytes)
            && let Some(mut message) = next(&self.domains)
        {
            message.0.renew();
            match port.slots.grant_again(message) {
                Ok(slot) => regrants.add(slot),
                Err(message) => match port.slots.grant(message) {
                    Ok(entry) => port.down.push(Descriptor { op: down::GRANT, ..entry }),
                    Err(message) => {
                        left = Some(message);
                        break;
                    }
                },
            }
            room = rest;
            if regrants.count() == Regrants::MOST {
                port.down.push(std::mem::take(&mut regrants).entry(down::REGRANT));
            }
        }
        if regrants.count() > 0 {
            port.down.push(regrants.entry(down::REGRANT));
        }
        if let Some(message) = left {
            return self.release(message);
        }
        if port.slots.granted() == before {
            return;
        }
        port.is_wait_noted = false;
        if is_low(before, port.ahead) {
            return self.notify(home.client.into());
        }
        // Its writer hardly waits. If it does, because it holds all that it has, it is woken a few turns later.
        port.is_unreported = true;
        if !std::mem::replace(&mut port.is_below, true) {
            self.below.push(PortKey { client: home.client.into(), port: home.port });
        }
    }

    /// Notes that a client was given something.
    #[inline(always)]
    pub(super) fn notify(&mut self, client: u32) {
        self.has_given = true;
        if let Some(entry) = self.clients.present(client)
            && !std::mem::replace(&mut entry.is_notified, true)
        {
            self.notified.push(client);
        }
    }

    /// Notes that a port may be due something.
    #[inline]
    pub(super) fn make_hungry(&mut self, key: PortKey) {
        let Some(client) = self.clients.present(key.client) else { return };
        let is_hungry = match key.port {
            SIGNALS => &mut client.signals.is_hungry,
            number => match client.present_port(number) {
                Some(Port { side: Side::Write, is_hungry, .. }) => is_hungry,
                _ => return debug_assert!(false, "buffers are granted to writers"),
            },
        };
        if !std::mem::replace(is_hungry, true) {
            self.hungry.push(key);
        }
    }

    /// Ends a client that broke the protocol.
    #[cold]
    pub(super) fn report_violation(&mut self, client: u32, violation: ProtocolViolation) -> Option<Arrival> {
        let key = self.clients.present(client)?.key;
        self.counters.violations += 1;
        self.remove_client(key);
        Some(Arrival::Violation { client: key, reason: violation.to_string() })
    }
}
