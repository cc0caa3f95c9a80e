//! The signal queues: operations on `signal_queue` mailboxes, syncs, conditions, and small remote calls both ways (Nectar paper,
//! sections 3.2 and 3.4).

use super::client::{ClientKey, MAX_LISTENS, MAX_WAITING, MoveTarget, Open};
use super::mailbox::{Get, MailboxKey, PortKey, Side};
use super::message::{Area, Message, Span};
use super::slots::ProtocolViolation;
use super::{Arrival, HostInterface};
use crate::shared::{
    ConditionAddress, ControlLayout, Descriptor, HostCondition, Passed, Reason, SIGNALS, Signal, SyncAddress, SyncCell,
    SyncPool, down, up,
};

impl HostInterface {
    /// Carries out one entry of a client's signal queue.
    pub(super) fn take_signal(&mut self, client: u32, entry: &Signal) -> Option<Arrival> {
        let head = &entry.head;
        let carried_out = match head.op {
            up::SIGNAL_PUT => return self.take_signal_put(client, head),
            up::SIGNAL_ENQUEUE => {
                let moved = Descriptor { op: up::ENQUEUE, ..*head };
                return self.take_signal_move(client, &moved);
            }
            up::SIGNAL_FREE => self.take_signal_free(client, head),
            up::ALLOC => self.take_alloc(client, entry),
            up::GET => self.take_get(client, entry),
            up::CANCEL => {
                self.take_cancel(client, entry.a);
                Ok(())
            }
            up::SYNC_WRITE => return self.take_sync_write(client, entry.a, entry.b),
            up::SIGNAL => match ConditionAddress::from_word(entry.a) {
                Some(condition) => {
                    if self.same_domain(client, condition.client) {
                        self.signal(condition);
                    }
                    Ok(())
                }
                None => Err(ProtocolViolation::NoSync(entry.a)),
            },
            up::CALL => {
                match (SyncAddress::from_word(entry.a), self.clients.present(client).map(|client| client.key)) {
                    // The result goes to the caller itself: no call can make the core write to another client.
                    (Some(result), Some(key)) if result.client == key.number() => {
                        let (procedure, argument) = (head.target, entry.b);
                        return Some(Arrival::Call { client: key, procedure, argument, result });
                    }
                    _ => Err(ProtocolViolation::NoSync(entry.a)),
                }
            }
            up::LISTEN => self.take_listen(client, entry.b),
            up::FREE_OF_PORT => {
                self.take_free_of_port(client, head);
                Ok(())
            }
            other => Err(ProtocolViolation::Operation(other)),
        };
        match carried_out {
            Ok(()) => None,
            Err(violation) => self.report_violation(client, violation),
        }
    }

    /// Whether a client's number stands for one of the same domain as the client at `index`; counted if not.
    fn same_domain(&mut self, index: u32, number: u32) -> bool {
        let own = self.clients.present(index).map(|client| client.domain);
        let same = self.client(ClientKey(number)).is_some_and(|other| Some(other.domain) == own);
        self.counters.foreign += u64::from(!same);
        same
    }

    /// A client gives credits for signals that answer nothing.
    fn take_listen(&mut self, client: u32, kinds: u64) -> Result<(), ProtocolViolation> {
        let Some(client) = self.clients.present(client) else { return Ok(()) };
        for (kind, credits) in [
            (up::LISTEN_ERRORS, &mut client.signals.error_credits),
            (up::LISTEN_UPCALLS, &mut client.signals.upcall_credits),
        ] {
            if kinds & kind != 0 {
                *credits += 1;
                if *credits > MAX_LISTENS {
                    return Err(ProtocolViolation::TooMany);
                }
            }
        }
        Ok(())
    }

    /// A slot of a port that was dropped by some thread of the client. It may have crossed the port's closing, which took all
    /// slots back; then there is nothing to do.
    fn take_free_of_port(&mut self, client: u32, head: &Descriptor) {
        let port = self.clients.port_at(PortKey { client, port: head.target });
        match port.map(|port| port.slots.take(head, false)) {
            Some(Ok(given)) => self.given_back(client, head.target, given),
            _ if self.free_of_peer(client, head) => {}
            _ => self.counters.late += 1,
        }
    }

    fn take_signal_put(&mut self, client: u32, head: &Descriptor) -> Option<Arrival> {
        let holder = self.clients.present(client)?;
        let mailbox = match holder.opened(head.target) {
            Ok(open) if open.side == Side::Write => open.mailbox,
            Ok(_) => return self.report_violation(client, ProtocolViolation::NotOpen(head.target)),
            Err(violation) => return self.report_violation(client, violation),
        };
        match holder.signals.slots.take_granted(head) {
            Ok(message) => {
                holder.count_in(&message);
                self.feed_waiting_allocs(client);
                self.arrive_otherwise(mailbox, message)
            }
            Err(violation) => self.report_violation(client, violation),
        }
    }

    fn take_signal_move(&mut self, client: u32, head: &Descriptor) -> Option<Arrival> {
        let holder = self.clients.present(client)?;
        let target = match holder.move_target(head.target) {
            Ok(target) => target,
            Err(violation) => return self.report_violation(client, violation),
        };
        let is_other = |open: Open, message: &Message| open.side == Side::Read && message.0.origin != open.mailbox;
        match holder.signals.slots.take(head, true) {
            // A reader of a mailbox may put back messages of it, and no more.
            Ok(given) if matches!(target, MoveTarget::Mailbox(open) if is_other(open, &given.message)) => {
                self.free(given.message);
                self.report_violation(client, ProtocolViolation::NotOpen(head.target))
            }
            Ok(given) => {
                holder.count_in(&given.message);
                if let Some(len) = given.delivered {
                    self.left(given.message.0.origin, len);
                }
                self.feed_waiting_allocs(client);
                self.arrive_moved(client, target, given.message)
            }
            Err(violation) => self.report_violation(client, violation),
        }
    }

    fn take_signal_free(&mut self, client: u32, head: &Descriptor) -> Result<(), ProtocolViolation> {
        let Some(holder) = self.clients.present(client) else { return Ok(()) };
        let given = holder.signals.slots.take(head, false)?;
        let origin = given.message.0.origin;
        self.free(given.message);
        if let Some(len) = given.delivered {
            self.left(origin, len);
        }
        self.feed_waiting_allocs(client);
        Ok(())
    }

    /// A client asks for a buffer to put into a mailbox.
    fn take_alloc(&mut self, client: u32, entry: &Signal) -> Result<(), ProtocolViolation> {
        let (tag, number, bytes) = (entry.a, entry.head.target, entry.head.len);
        let (most, quota) = (self.config.max_message_bytes, self.config.client_bytes);
        let Some(holder) = self.clients.present(client) else { return Ok(()) };
        let open = holder.opened(number)?;
        let refusal = if open.side != Side::Write {
            return Err(ProtocolViolation::NotOpen(number));
        } else if bytes > most {
            Reason::TooLong
        } else if u64::from(bytes) > quota {
            Reason::Quota
        } else if !holder.signals.allocs.is_empty() && entry.b & 1 == 0 {
            // After the ports that wait already, unless they wait for other mailboxes.
            self.wait_alloc(client, (tag, number, bytes))?;
            self.feed_signals(client);
            return Ok(());
        } else {
            match self.grant_signal(client, tag, open.mailbox, bytes) {
                Ok(()) => return Ok(()),
                Err(reason) if entry.b & 1 == 1 || reason == Reason::Closed => reason,
                Err(reason) => {
                    self.note_signal_wait(client, open.mailbox, reason);
                    return self.wait_alloc(client, (tag, number, bytes));
                }
            }
        };
        self.refuse(client, tag, refusal);
        Ok(())
    }

    fn note_signal_wait(&mut self, client: u32, mailbox: MailboxKey, reason: Reason) {
        if let Some(client) = self.clients.present(client) {
            client.waits += 1;
        }
        if let Some(mailbox) = self.mailbox_mut(mailbox).filter(|_| reason == Reason::Full) {
            mailbox.counters.waits += 1;
        }
    }

    fn wait_alloc(&mut self, client: u32, alloc: (u64, u16, u32)) -> Result<(), ProtocolViolation> {
        let Some(holder) = self.clients.present(client) else { return Ok(()) };
        if holder.signals.waiting() >= MAX_WAITING {
            return Err(ProtocolViolation::TooMany);
        }
        holder.signals.allocs.push_back(alloc);
        self.make_hungry(PortKey { client, port: SIGNALS });
        Ok(())
    }

    #[inline]
    fn feed_waiting_allocs(&mut self, client: u32) {
        if self.clients.present(client).is_some_and(|client| !client.signals.allocs.is_empty()) {
            self.make_hungry(PortKey { client, port: SIGNALS });
        }
    }

    /// Grants the allocations that a client waits for, in order; false if one has to go on waiting. Those for a full mailbox keep
    /// no others waiting: what these are for may be what empties it. A client that has left waits for none.
    pub(super) fn feed_signals(&mut self, client: u32) -> bool {
        let mut waiting = 0;
        while let Some(holder) = self.clients.at_mut(client) {
            let Some(&(tag, number, bytes)) = holder.signals.allocs.get(waiting) else {
                holder.signals.is_hungry = waiting > 0;
                return waiting == 0;
            };
            let open = holder.opened(number);
            let outcome = match open {
                Ok(open) => self.grant_signal(client, tag, open.mailbox, bytes),
                Err(_) => Err(Reason::Closed),
            };
            match outcome {
                Ok(()) => {}
                Err(Reason::Closed) => self.refuse(client, tag, Reason::Closed),
                Err(Reason::Full) => {
                    waiting += 1;
                    continue;
                }
                // Whoever came later would take what this one lacks.
                Err(_) => return false,
            }
            if let Some(holder) = self.clients.present(client) {
                holder.signals.allocs.remove(waiting);
            }
        }
        true
    }

    fn grant_signal(&mut self, client: u32, tag: u64, mailbox: MailboxKey, bytes: u32) -> Result<(), Reason> {
        let quota = self.config.client_bytes;
        match self.mailbox(mailbox) {
            None => return Err(Reason::Closed),
            Some(mailbox) if mailbox.is_full() => return Err(Reason::Full),
            Some(_) => {}
        }
        let Some(holder) = self.clients.present(client) else { return Err(Reason::Closed) };
        if holder.signals.slots.vacant() == 0 || holder.quota_used() + u64::from(bytes) > quota {
            return Err(Reason::Quota);
        }
        let Some(heap) = self.domains.heap_mut(holder.domain, Area::Shared) else { return Err(Reason::Closed) };
        let Some(buffer) = heap.alloc(bytes) else { return Err(Reason::NoBuffers) };
        let range = heap.range(buffer);
        let message = self.spares.message(Span::of(holder.domain, Area::Shared, buffer, range));
        match holder.signals.slots.grant(message) {
            Ok(head) => holder.signals.down.push(Signal { head: Descriptor { op: down::GRANT, ..head }, a: tag, b: 0 }),
            Err(message) => {
                debug_assert!(false, "a slot was vacant");
                heap.free(buffer);
                self.spares.keep(message);
                return Err(Reason::Quota);
            }
        }
        self.notify(client);
        Ok(())
    }

    /// A client asks for a mailbox's next message.
    fn take_get(&mut self, client: u32, entry: &Signal) -> Result<(), ProtocolViolation> {
        let (tag, number) = (entry.a, entry.head.target);
        let Some(holder) = self.clients.present(client) else { return Ok(()) };
        let open = holder.opened(number)?;
        if open.side != Side::Read {
            return Err(ProtocolViolation::NotOpen(number));
        }
        let waiting = holder.signals.waiting();
        let Some(mailbox) = self.mailbox_mut(open.mailbox) else {
            self.refuse(client, tag, Reason::Closed);
            return Ok(());
        };
        if mailbox.queue.is_empty() && entry.b & 1 == 1 {
            self.refuse(client, tag, Reason::Empty);
            return Ok(());
        }
        if waiting >= MAX_WAITING {
            return Err(ProtocolViolation::TooMany);
        }
        mailbox.gets.push_back(Get { client, number, tag });
        if let Some(holder) = self.clients.present(client) {
            holder.signals.gets.push((tag, open.mailbox));
        }
        self.pump(open.mailbox);
        let Some(mailbox) = self.mailbox_mut(open.mailbox).filter(|_| entry.b & 1 == 1) else { return Ok(()) };
        if let Some(at) = mailbox.gets.iter().rposition(|get| (get.client, get.tag) == (client, tag)) {
            // There is a message, but no memory yet for a copy in the reader's domain.
            mailbox.gets.remove(at);
            if let Some(holder) = self.clients.present(client) {
                holder.signals.end_get(tag);
            }
            self.refuse(client, tag, Reason::Empty);
        }
        Ok(())
    }

    /// Answers a waiting get of the mailbox with a message, which comes back if none can take it.
    pub(super) fn answer_get(&mut self, from: MailboxKey, mut message: Message) -> Result<(), Message> {
        // Those that hold as much as they may are passed over: who waits behind them is next.
        while let Some(get) = self.mailbox_mut(from).and_then(|mailbox| mailbox.gets.pop_front()) {
            let Get { client, tag, .. } = get;
            let Some(domain) = self.clients.present(client).map(|client| client.domain) else { continue };
            if message.0.domain != domain {
                message = match self.cross(message, domain, from) {
                    Ok(copy) => copy,
                    Err(message) => {
                        if let Some(mailbox) = self.present_mailbox(from) {
                            mailbox.gets.push_front(get);
                        }
                        return Err(message);
                    }
                };
            }
            let Some(holder) = self.clients.present(client) else { continue };
            holder.signals.end_get(tag);
            let (area, bytes) = (message.0.area as u16, message.0.len);
            message.0.origin = from;
            match holder.signals.slots.deliver(message) {
                Ok(head) => {
                    holder.count_out(bytes);
                    let head = Descriptor { op: down::MESSAGE, target: area, ..head };
                    holder.signals.down.push(Signal { head, a: tag, b: 0 });
                    self.notify(client);
                    return Ok(());
                }
                Err(back) => {
                    message = back;
                    self.refuse(client, tag, Reason::Quota);
                }
            }
        }
        Err(message)
    }

    /// A client no longer waits for an allocation or a get. If it was answered meanwhile, the answer stands.
    fn take_cancel(&mut self, client: u32, tag: u64) {
        let Some(holder) = self.clients.present(client) else { return };
        let before = holder.signals.allocs.len();
        holder.signals.allocs.retain(|(waiting, ..)| *waiting != tag);
        let cancelled = before - holder.signals.allocs.len();
        let get = holder.signals.gets.iter().find(|(waiting, _)| *waiting == tag).copied();
        if let Some((_, mailbox)) = get {
            holder.signals.end_get(tag);
            if let Some(mailbox) = self.mailbox_mut(mailbox) {
                mailbox.gets.retain(|get| (get.client, get.tag) != (client, tag));
            }
        }
        if cancelled > 0 || get.is_some() {
            self.refuse(client, tag, Reason::Cancelled);
        }
    }

    /// The meaning of a refusal's `len`: the length that there may be, where that was exceeded.
    pub(super) fn said_with(&self, reason: Reason) -> u32 {
        if reason == Reason::TooLong { self.config.max_message_bytes } else { 0 }
    }

    /// Answers a request with a refusal.
    pub(super) fn refuse(&mut self, client: u32, tag: u64, reason: Reason) {
        let len = self.said_with(reason);
        let Some(holder) = self.clients.present(client) else { return };
        let head = Descriptor { op: down::REFUSED, target: reason as u16, len, ..Descriptor::default() };
        holder.signals.down.push(Signal { head, a: tag, b: 0 });
        self.notify(client);
    }

    /// A client writes a sync: another client's, or the result of an upcall that the core made into it.
    fn take_sync_write(&mut self, client: u32, word: u64, value: u64) -> Option<Arrival> {
        let Some(sync) = SyncAddress::from_word(word) else {
            return self.report_violation(client, ProtocolViolation::NoSync(word));
        };
        if sync.pool == SyncPool::Client {
            if self.same_domain(client, sync.client) {
                self.write_sync(sync, value);
            }
            return None;
        }
        let holder = self.clients.present(client)?;
        let awaited = holder.signals.upcalls.get_mut(sync.index as usize)?;
        let (_, ticket) = awaited.take_if(|(generation, _)| *generation == sync.generation)?;
        Some(Arrival::Returned { ticket, value: Some(value) })
    }

    /// Writes a client's sync (paper, section 3.4). A sync that is not awaited any more takes no harm.
    #[inline]
    pub fn write_sync(&mut self, sync: SyncAddress, value: u64) {
        let Some(client) = self.clients.get(ClientKey(sync.client)).filter(|_| sync.pool == SyncPool::Client) else {
            return;
        };
        let index = client.key.index() as u32;
        if let Some(lane) = self.rings.lane(index).filter(|lane| lane.is_ours()) {
            let head = Descriptor { op: down::SYNC, ..Descriptor::default() };
            lane.pass(&Passed { signal: Signal { head, a: sync.to_word(), b: value }, port: SIGNALS, after: 0 });
            return self.notify(index);
        }
        if let Some(cell) = SyncCell::new(&client.control, ControlLayout::client_sync(sync.index as usize)) {
            cell.write(sync.generation, value);
            self.notify(index);
        }
    }

    /// Signals a client's condition (paper, section 3.2): its poll value goes up, and who waits for that wakes.
    pub fn signal(&mut self, condition: ConditionAddress) {
        let Some(client) = self.client(ClientKey(condition.client)) else { return };
        let at = ControlLayout::condition(condition.index as usize);
        if let Some(condition) = HostCondition::new(&client.control, at) {
            condition.signal();
        }
    }

    /// Asks a client to run a procedure of its own (an upcall into the host); its result arrives as [`Arrival::Returned`] with `ticket`.
    /// False if the client has gone or asked for no more upcalls ahead.
    pub fn upcall(&mut self, client: ClientKey, procedure: u16, argument: u64, ticket: u64) -> bool {
        let Some(holder) = self.client_mut(client) else { return false };
        let signals = &mut holder.signals;
        let Some(index) = signals.upcalls.iter().position(Option::is_none) else { return false };
        if signals.upcall_credits == 0 {
            return false;
        }
        signals.upcall_credits -= 1;
        signals.upcall_serial = signals.upcall_serial.wrapping_add(1);
        signals.upcalls[index] = Some((signals.upcall_serial, ticket));
        let generation = signals.upcall_serial;
        let result = SyncAddress { client: client.number(), pool: SyncPool::Core, index: index as u16, generation };
        let head = Descriptor { op: down::UPCALL, target: procedure, ..Descriptor::default() };
        signals.down.push(Signal { head, a: argument, b: result.to_word() });
        // A condition of its own: the thread that serves upcalls must not be woken by everything else that comes.
        holder.upcalled.signal_if_asleep();
        self.notify(client.index() as u32);
        true
    }

    /// Reports to a client an error that no call of its own would find; dropped (and counted) if it asked for none ahead.
    pub fn report_error(&mut self, client: ClientKey, reason: Reason, detail: u64) {
        let Some(holder) = self.client_mut(client) else { return };
        if holder.signals.error_credits == 0 {
            self.counters.unreported += 1;
            return;
        }
        holder.signals.error_credits -= 1;
        let head = Descriptor { op: down::ERROR, target: reason as u16, ..Descriptor::default() };
        holder.signals.down.push(Signal { head, a: detail, b: 0 });
        self.notify(client.index() as u32);
    }
}
