//! Direct rings between two clients of one domain, for a mailbox that one writes and the other reads: the core opens them, watches
//! them and cleans up, and no message passes it.
//!
//! **Their entries** name the slots of the writer's port: buffers that the core granted to it, and that stay the writer's in
//! the core's tables wherever they go between the two, until the writer itself gives them up or leaves. So a slot may be put over the
//! writer's ring to the core as well at any time. A slot that the reader drops goes back to the writer, who knows
//! whether it was lent; of what the reader enqueues, and of what is taken from the ring in its place, the core makes
//! messages with claims of their own on the buffers ([`Slots::share`]). Both name what anybody in the domain may have
//! written: no buffer is freed by it, or granted.
//!
//! **To the direct rings and back** without loss or reordering: the writer says on its ring to the core from which entry on, and
//! the core says it to the reader behind all that was put before. Once a message comes to the mailbox otherwise (a task's, or one
//! that is enqueued), the core wants the writer back, and says it to the reader in front of that message: what the writer put
//! before is visible to the reader then, and what it puts after comes behind.
//!
//! **Whoever leaves** is replaced by the core. Of a reader's it takes what that had not taken from the ring back into the mailbox,
//! in front of what came there behind it, before and after the writer has learnt of it: the writer looks, after each put, at the
//! word by which the core wants it back. A writer's slots are kept until the reader is done with them.

mod counts;

pub(super) use counts::passed_of;

use super::losses::MessageLoss;
use super::mailbox::{CoreReader, Mailbox, MailboxKey, PortKey, Side};
use super::message::{Area, Message, Span};
use super::slots::{ProtocolViolation, Slots};
use super::{Arrival, Client, HostInterface, client::Port};
use crate::shared::{
    Calls, DIRECT_ENTRIES, Descriptor, DirectBlock, DirectCounts, DirectLayout, PORTS, Reason, RingReader, RingWriter,
    SIGNALS, SLOTS, SleepFlag, down, up,
};
use counts::MOST_COUNTED;
use slab::Slab;

/// The part of a port in direct rings.
#[derive(Clone, Copy, Default)]
pub(crate) struct DirectPort {
    /// Those that it uses or may still use.
    pub(super) pair: Option<u32>,
    /// Whether it ever did: entries of its client may be about those that are over.
    was_used: bool,
    /// Its client was notified that the mailbox is spoilt.
    is_spoilt: bool,
    /// Bytes of memory that count to its client for them.
    pub(super) bytes: u64,
    /// Bytes of slots that its writer has only so that the mailbox holds its bound: they count to that, and not to the client, as
    /// if the core had the messages.
    pub(super) extra_bytes: u64,
    /// Its writer asked for more slots, and was not given any yet.
    pub(super) wants_more: bool,
}

/// How far the two are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The writer was notified.
    Offered,
    /// The writer uses them; the reader is notified once it has all that was put before.
    Joining,
    /// The reader was notified.
    On,
}

/// One pair of direct rings.
pub(super) struct Direct {
    mailbox: MailboxKey,
    block: Message,
    /// Bit 0: who publishes makes the fences itself.
    target: u16,
    /// Of the writer's ring: for the core in place of a reader that left.
    forward: RingReader<Descriptor>,
    /// To the writer: slots that the reader dropped.
    returned: RingWriter<Descriptor>,
    flag: SleepFlag,
    put: DirectCounts,
    got: DirectCounts,
    stage: Stage,
    writer: PortKey,
    reader: PortKey,
    /// Whether the writer's port is open.
    has_writer: bool,
    /// Whether the reader may have something to do with them.
    has_reader: bool,
    /// The writer uses them no more.
    is_ended: bool,
    /// The core wants the writer back.
    is_recalled: bool,
    /// Slots of a writer that left.
    orphans: Option<Slots>,
    /// Slots that the reader may have had when the writer ended.
    left: Vec<Descriptor>,
    /// Messages that the core has taken from between the two, and their bytes.
    taken: (u64, u64),
    /// Messages that the reader dropped, and their bytes.
    dropped: (u64, u64),
    /// Deliveries to the reader's port by the core that come before the messages here: those that were made when it was first
    /// notified that others come behind.
    noted: Option<u32>,
    /// The reader is done, or gone, and what it got is counted in the mailbox's own numbers.
    is_folded: bool,
    /// The writer's number of buffers ahead before.
    usual_ahead: u32,
}

impl Direct {
    /// Whether messages pass here rather than through the core.
    pub(super) fn is_on(&self) -> bool {
        self.stage != Stage::Offered && !self.is_ended && !self.is_recalled
    }

    /// The other end's client.
    fn peer_of(&self, key: PortKey) -> Option<u32> {
        match key {
            key if key == self.writer => self.has_reader.then_some(self.reader.client),
            _ => self.has_writer.then_some(self.writer.client),
        }
    }
}

/// Whether a mailbox holds its bound, with what is in its direct rings.
#[inline(always)]
pub(super) fn is_full(directs: &Slab<Direct>, mailbox: &Mailbox) -> bool {
    mailbox.is_full() || (mailbox.direct.is_some() && is_full_directly(directs, mailbox))
}

#[cold]
fn is_full_directly(directs: &Slab<Direct>, mailbox: &Mailbox) -> bool {
    let direct = mailbox.direct.and_then(|pair| directs.get(pair as usize));
    // Others that wait for room would not learn of it: nothing more comes over these, and the rest in them is soon gone.
    let Some(direct) = direct.filter(|direct| !direct.is_recalled && !direct.is_ended) else { return false };
    let passed = direct.passed();
    mailbox.depth.saturating_add(passed.depth) >= mailbox.bound_messages
        || mailbox.bytes.saturating_add(passed.bytes) >= mailbox.bound_bytes
}

/// The messages that a leaving reader had not taken from its direct ring.
pub(super) struct Unread {
    /// How many of the messages that its port was handed come before these.
    pub(super) before: usize,
    pub(super) messages: Vec<Message>,
}

impl Unread {
    const NOTHING: Unread = Unread { before: usize::MAX, messages: Vec::new() };
}

/// Slots that a writer may come to have, so that the mailbox holds its bound.
fn most_slots(usual: u32, mailbox: &Mailbox) -> u32 {
    usual.max(mailbox.bound_messages.min(super::lifetime::MOST_AHEAD))
}

impl HostInterface {
    // --- beginning ---

    /// Offers the writer of a mailbox direct rings to its reader, if the two are such that they may have them.
    pub(super) fn try_direct(&mut self, key: MailboxKey) {
        if let Some((writer, reader)) = self.direct_sides(key) {
            // Without memory for them the mailbox goes on without.
            let _begun = self.offer_direct(key, writer, reader);
        }
    }

    /// A side of a mailbox was opened: it is used directly by one writer, and by more than one over the core.
    pub(super) fn settle_direct(&mut self, key: MailboxKey) {
        let Some(mailbox) = self.present_mailbox(key) else { return };
        if !mailbox.more_writers.is_empty() {
            return self.recall_direct(key);
        }
        mailbox.is_mixed = false;
        self.try_direct(key);
    }

    fn direct_sides(&self, key: MailboxKey) -> Option<(PortKey, PortKey)> {
        let mailbox = self.mailbox(key)?;
        let (writer, reader) = (mailbox.writer?, mailbox.reader?);
        let is_plain = mailbox.direct.is_none()
            && !mailbox.is_watched
            && !mailbox.is_mixed
            && mailbox.more_writers.is_empty()
            && mailbox.core_reader == CoreReader::None;
        if !self.config.direct_rings || !is_plain || writer.client == reader.client {
            return None;
        }
        let (writes, reads) = (self.clients.at(writer.client)?, self.clients.at(reader.client)?);
        let is_free = |client: &Client, number: u16| {
            let port = client.ports.get(usize::from(number)).and_then(Option::as_deref);
            port.is_some_and(|port| port.direct.pair.is_none() && !port.direct.is_spoilt)
        };
        let is_within = writes.quota_used() + DirectLayout::BYTES as u64 <= self.config.client_bytes;
        let may = is_within && writes.domain == reads.domain;
        (may && is_free(writes, writer.port) && is_free(reads, reader.port)).then_some((writer, reader))
    }

    fn offer_direct(&mut self, mailbox: MailboxKey, writer: PortKey, reader: PortKey) -> Option<()> {
        let (writes, reads) = (self.clients.at(writer.client)?, self.clients.at(reader.client)?);
        let (domain, fences) = (writes.domain, !(writes.armed.shares_fences() && reads.armed.shares_fences()));
        let heap = self.domains.heap_mut(domain, Area::Shared)?;
        let (buffer, segment) = (heap.alloc(DirectLayout::BYTES as u32)?, heap.segment.clone());
        let range = heap.range(buffer);
        let block = self.spares.message(Span::of(domain, Area::Shared, buffer, range));
        let parts = (|| {
            // The earlier content of this memory must not be taken for entries.
            segment.write_from(range.0 as usize, &[0; DirectLayout::BYTES]).then_some(())?;
            let block = DirectBlock::new(&segment, range.0, fences)?;
            Some((block.for_reader()?.0, block.for_returns()?, block.flags()?, block.counts()?))
        })();
        debug_assert!(parts.is_some(), "a buffer lies in its segment");
        let Some((forward, returned, [flag, _], [put, got])) = parts else {
            self.free(block);
            return None;
        };
        let usual_ahead = self.clients.port_at(writer)?.ahead;
        let target = u16::from(fences);
        let pair = self.directs.insert(Direct {
            mailbox,
            block,
            target,
            forward,
            returned,
            flag,
            put,
            got,
            stage: Stage::Offered,
            writer,
            reader,
            has_writer: true,
            has_reader: true,
            is_ended: false,
            is_recalled: false,
            orphans: None,
            left: Vec::new(),
            taken: (0, 0),
            dropped: (0, 0),
            noted: None,
            is_folded: false,
            usual_ahead,
        }) as u32;
        for (key, bytes) in [(writer, u64::from(range.1)), (reader, 0)] {
            if let Some(port) = self.clients.port_at(key) {
                port.direct = DirectPort { pair: Some(pair), was_used: true, bytes, ..DirectPort::default() };
            }
        }
        let mailbox = self.present_mailbox(mailbox)?;
        mailbox.direct = Some(pair);
        let len = most_slots(usual_ahead, mailbox);
        let slot = usual_ahead as u16;
        let entry = Descriptor { op: down::DIRECT, slot, target, offset: range.0, len, ..Descriptor::default() };
        self.report_to(writer, entry);
        Some(())
    }

    /// Writes an entry to a port's ring, if it is open.
    fn report_to(&mut self, to: PortKey, entry: Descriptor) {
        if let Some(port) = self.clients.port_at(to) {
            port.down.push(entry);
            self.notify(to.client);
        }
    }

    /// The writer uses them from here on.
    fn take_direct(&mut self, key: PortKey, pair: u32) -> Result<(), ProtocolViolation> {
        let has_reader = match self.directs.get_mut(pair as usize) {
            Some(direct) if direct.writer == key && direct.stage == Stage::Offered && !direct.is_ended => {
                direct.stage = Stage::Joining;
                direct.has_reader &= !direct.is_recalled;
                direct.has_reader
            }
            _ => return Err(ProtocolViolation::Operation(up::DIRECT)),
        };
        if !has_reader {
            // It left meanwhile, or is not to be notified.
            self.salvage(pair);
        }
        // Nothing is put over its ring any more that would have the core look whether it is due something.
        self.make_hungry(key);
        self.join_direct(pair);
        Ok(())
    }

    /// Notifies the reader once all that was put before is on its ring.
    pub(super) fn join_direct(&mut self, pair: u32) {
        let Some(direct) = self.directs.get_mut(pair as usize) else { return };
        let (mailbox, reader, target, offset) = (direct.mailbox, direct.reader, direct.target, direct.block.0.first);
        if direct.stage != Stage::Joining || !direct.has_reader {
            return;
        }
        let is_empty = |mailbox: &Mailbox| mailbox.generation == direct.mailbox.generation && mailbox.queue.is_empty();
        if !self.mailboxes.get(mailbox.index as usize).is_some_and(is_empty) {
            return;
        }
        direct.stage = Stage::On;
        self.report_to(reader, Descriptor { op: down::DIRECT, target, offset, ..Descriptor::default() });
    }

    /// Notifies the reader that others come behind what is in the direct rings, by `op`.
    fn note_behind(&mut self, pair: u32, op: u8) {
        let Some(direct) = self.directs.get_mut(pair as usize) else { return };
        let reader = direct.reader;
        if let Some(port) = self.clients.port_at(reader) {
            direct.noted.get_or_insert(port.slots.deliveries());
        }
        self.report_to(reader, Descriptor { op, ..Descriptor::default() });
    }

    // --- what is not usual in a port's ring ---

    /// Sees to an entry of a port that is not carried out the usual way, because of `violation`.
    #[cold]
    pub(super) fn take_uncommon(
        &mut self,
        client: u32,
        number: u16,
        entry: &Descriptor,
        violation: ProtocolViolation,
    ) -> Option<Arrival> {
        let key = PortKey { client, port: number };
        let direct = self.clients.present_port(key)?.direct;
        let carried_out = match (violation, direct.pair) {
            (ProtocolViolation::Operation(up::DIRECT), Some(pair)) => self.take_direct(key, pair).map(|()| None),
            (ProtocolViolation::Operation(up::DIRECT_END), Some(pair)) => self.take_end(key, pair).map(|()| None),
            (ProtocolViolation::Operation(up::LEFT), _) if direct.was_used => self.take_left(key, entry).map(|()| None),
            (ProtocolViolation::Operation(up::MORE), _) if direct.was_used => self.take_more(key).map(|()| None),
            (ProtocolViolation::NoSlot(_), Some(pair)) if entry.op == up::ENQUEUE => {
                return self.take_of_peer(key, pair, entry);
            }
            _ => Err(violation),
        };
        carried_out.unwrap_or_else(|violation| self.report_violation(client, violation))
    }

    /// Ends a mailbox for one side: what it says of its slots cannot be.
    fn spoil(&mut self, key: PortKey) {
        let Some(port) = self.clients.port_at(key) else { return };
        if !std::mem::replace(&mut port.direct.is_spoilt, true) {
            self.notify_closed(key, Reason::Violation);
        }
    }

    /// The reader moves on what it got over the direct rings. Its mailbox goes back to the core, so that the writer gives up the
    /// slot.
    fn take_of_peer(&mut self, key: PortKey, pair: u32, entry: &Descriptor) -> Option<Arrival> {
        let target = self.clients.present(key.client)?.move_target(entry.target).ok()?;
        let slot = entry.slot.checked_sub(SLOTS as u16);
        let is_reader = |direct: &&Direct| direct.reader == key && direct.has_reader && direct.stage == Stage::On;
        let mailbox = self.directs.get(pair as usize).filter(is_reader).map(|direct| direct.mailbox);
        let message = slot.zip(mailbox).and_then(|(slot, _)| self.share_slot(pair, &Descriptor { slot, ..*entry }));
        let (Some(message), Some(mailbox)) = (message, mailbox) else {
            // It may be the other end that broke the rules.
            self.spoil(key);
            return None;
        };
        if let Some(holder) = self.clients.present(key.client) {
            holder.count_in(&message);
        }
        self.note_mixed(mailbox);
        self.arrive_moved(key.client, target, message)
    }

    /// A message of a part of a slot of the writer's, which keeps the slot.
    fn share_slot(&mut self, pair: u32, entry: &Descriptor) -> Option<Message> {
        let direct = self.directs.get_mut(pair as usize)?;
        let slots = match &mut direct.orphans {
            Some(orphans) => orphans,
            None => &mut self.clients.port_at(direct.writer)?.slots,
        };
        let span = slots.share(entry).ok()?;
        self.domains.heap_mut(span.domain, span.area)?.share(span.buffer);
        Some(self.spares.message(span))
    }

    /// A slot that the reader's process dropped, by whatever thread, goes back to the writer. False if there is none.
    pub(super) fn free_of_peer(&mut self, client: u32, head: &Descriptor) -> bool {
        let key = PortKey { client, port: head.target };
        let Some(slot) = head.slot.checked_sub(SLOTS as u16) else { return false };
        let pair = self.clients.port_at(key).and_then(|port| port.direct.pair);
        let direct = pair.and_then(|pair| self.directs.get_mut(pair as usize));
        let Some(direct) = direct.filter(|direct| direct.reader == key && direct.has_reader) else { return false };
        direct.dropped.0 += 1;
        direct.dropped.1 += u64::from(head.len);
        // The writer checks whether it lent that. Of more than it has lent, which only the reader can make up, some are lost.
        direct.returned.push(Descriptor { op: up::FREE, slot, generation: head.generation, ..Descriptor::default() });
        let (writer, has_writer) = (direct.writer, direct.has_writer);
        if has_writer {
            self.notify(writer.client);
        }
        true
    }

    /// The writer is without a buffer: it gets more, up to the bound, if all that it had are in the mailbox.
    fn take_more(&mut self, key: PortKey) -> Result<(), ProtocolViolation> {
        // The buffer that it waits for may be due to it by now.
        self.freed = true;
        let Some(port) = self.clients.present_port(key) else { return Ok(()) };
        if port.side != Side::Write {
            return Err(ProtocolViolation::Operation(up::MORE));
        }
        port.direct.wants_more = true;
        let mailbox = port.mailbox;
        // Of what the core had brought before, the reader may have given back some.
        self.has_room(mailbox);
        self.make_hungry(key);
        self.report_to(key, Descriptor { op: down::DIRECT_MORE, ..Descriptor::default() });
        Ok(())
    }

    /// Has a writer that asked for it have more slots, if its mailbox has room. False if it needs none.
    ///
    /// # Errors
    /// The mailbox is full.
    #[cold]
    pub(super) fn grow_direct(&mut self, key: PortKey) -> Result<bool, Reason> {
        let Some(port) = self.clients.port_at(key) else { return Ok(false) };
        let direct = port.direct.pair.and_then(|pair| self.directs.get(pair as usize)).filter(|direct| direct.is_on());
        let mailbox = self.mailboxes.get(port.mailbox.index as usize);
        let mailbox = mailbox.filter(|mailbox| mailbox.generation == port.mailbox.generation);
        port.direct.wants_more = false;
        let Some((direct, mailbox)) = direct.zip(mailbox) else { return Ok(false) };
        let by_bytes = u32::try_from(mailbox.bound_bytes / u64::from(port.grant_bytes)).unwrap_or(u32::MAX);
        let most = most_slots(direct.usual_ahead, mailbox).min(by_bytes.max(direct.usual_ahead));
        if direct.passed().depth < port.ahead || port.ahead >= most {
            return Ok(false);
        }
        if is_full(&self.directs, mailbox) {
            port.direct.wants_more = true;
            return Err(Reason::Full);
        }
        port.ahead = (2 * port.ahead).min(most);
        port.direct.extra_bytes = u64::from(port.ahead - direct.usual_ahead) * u64::from(port.grant_bytes);
        Ok(true)
    }

    // --- the end ---

    /// The writer uses them no more; what it puts from here on comes behind.
    fn take_end(&mut self, key: PortKey, pair: u32) -> Result<(), ProtocolViolation> {
        match self.directs.get_mut(pair as usize) {
            Some(direct) if direct.writer == key && direct.stage != Stage::Offered && !direct.is_ended => {}
            _ => return Err(ProtocolViolation::Operation(up::DIRECT_END)),
        }
        self.end_writing(pair);
        Ok(())
    }

    /// From here on nobody writes to the reader's direct ring.
    fn end_writing(&mut self, pair: u32) {
        let Some(direct) = self.directs.get_mut(pair as usize) else { return };
        direct.is_ended = true;
        // No reader was notified: a writer that never began has nothing on its way, and what another one put comes before what
        // others put from now on.
        direct.has_reader &= direct.stage == Stage::On;
        let (has_reader, writer, usual_ahead) = (direct.has_reader, direct.writer, direct.usual_ahead);
        if direct.has_writer
            && let Some(port) = self.clients.port_at(writer)
        {
            port.ahead = usual_ahead;
        }
        if has_reader {
            self.note_behind(pair, down::DIRECT_END);
        } else {
            self.salvage(pair);
            self.finish_direct(pair);
        }
    }

    /// A slot that went over the direct rings and had not come back when the writer ended.
    fn take_left(&mut self, key: PortKey, entry: &Descriptor) -> Result<(), ProtocolViolation> {
        let Some(port) = self.clients.present_port(key) else { return Ok(()) };
        if port.side != Side::Write {
            return Err(ProtocolViolation::Operation(up::LEFT));
        }
        let direct = port.direct.pair.and_then(|pair| self.directs.get_mut(pair as usize));
        // Without a reader they are over at once, and others may be offered by now.
        if let Some(direct) = direct.filter(|direct| direct.is_ended) {
            if direct.left.len() >= SLOTS {
                return Err(ProtocolViolation::TooMany);
            }
            direct.left.push(*entry);
            return Ok(());
        }
        self.free_left(key, entry);
        Ok(())
    }

    fn free_left(&mut self, key: PortKey, entry: &Descriptor) {
        let given = self.clients.port_at(key).map(|port| port.slots.take(entry, false));
        match given {
            Some(Ok(given)) => {
                self.make_hungry(key);
                self.free(given.message);
            }
            // The writer gave it up in another way too.
            _ => self.counters.late += 1,
        }
    }

    /// The reader has ended all that it got over direct rings that are over.
    fn take_done(&mut self, client: u32, port: u16) {
        let key = PortKey { client, port };
        // Not for a call that has no reason: what follows may take all that the rings hold.
        if self.over_for(key).is_none() {
            return;
        }
        // A message that it moved on or dropped before lies in its rings to the core.
        self.finish_ring(client, port);
        self.finish_ring(client, SIGNALS);
        if let Some(pair) = self.over_for(key) {
            self.count_side(pair, Side::Read);
            self.finish_direct(pair);
        }
    }

    /// The direct rings of a reader's port that are over, and that it has not called done.
    fn over_for(&self, key: PortKey) -> Option<u32> {
        let pair = self.clients.at(key.client)?.ports.get(usize::from(key.port))?.as_deref()?.direct.pair?;
        let is_over = |direct: &&Direct| direct.reader == key && direct.is_ended && direct.stage == Stage::On;
        self.directs.get(pair as usize).filter(is_over).map(|_| pair)
    }

    /// Wants the writer of a mailbox back on its ring to the core, with the reader still there: from here on messages come to the
    /// mailbox otherwise too, behind all that was put before.
    pub(super) fn recall_direct(&mut self, mailbox: MailboxKey) {
        let Some(pair) = self.mailbox(mailbox).and_then(|mailbox| mailbox.direct) else { return };
        let Some(direct) = self.directs.get(pair as usize).filter(|direct| !direct.is_recalled && !direct.is_ended)
        else {
            return;
        };
        let (stage, has_reader) = (direct.stage, direct.has_reader);
        self.recall(pair);
        if !has_reader {
            return;
        }
        match stage {
            Stage::Offered => {}
            Stage::On => self.note_behind(pair, down::DIRECT_PAUSE),
            Stage::Joining => {
                // It is not notified of them at all: the core reads in its place.
                if let Some(direct) = self.directs.get_mut(pair as usize) {
                    direct.has_reader = false;
                }
                self.salvage(pair);
            }
        }
    }

    /// A message comes to a mailbox otherwise than from its writer's port.
    #[inline(always)]
    pub(super) fn arrive_otherwise(&mut self, to: MailboxKey, message: Message) -> Option<Arrival> {
        if self.mailbox(to).is_some_and(|mailbox| mailbox.direct.is_some()) {
            self.note_mixed(to);
        }
        self.arrive(to, message)
    }

    /// A mailbox that gets messages from others than its writer stays with the core until one of its sides is opened anew.
    #[cold]
    fn note_mixed(&mut self, mailbox: MailboxKey) {
        if let Some(mailbox) = self.mailbox_mut(mailbox) {
            mailbox.is_mixed = true;
        }
        self.recall_direct(mailbox);
    }

    fn recall(&mut self, pair: u32) {
        let Some(direct) = self.directs.get_mut(pair as usize) else { return };
        if !std::mem::replace(&mut direct.is_recalled, true) {
            direct.flag.recall();
            // An entry that the writer puts and does not see this after was there before; see `salvage`.
            self.bell.fence();
        }
        if direct.has_writer && !direct.is_ended {
            let writer = direct.writer.client;
            self.notify(writer);
        }
    }

    /// A port is closed, or its client is gone: takes its slots, if they may be in use elsewhere. Each message that a
    /// reader had not taken of the direct rings is in the mailbox no more, and is put there ([`HostInterface::put_unread`]).
    pub(super) fn leave_direct(&mut self, port: &mut Port) -> Unread {
        let Some(pair) = port.direct.pair.take() else { return Unread::NOTHING };
        // Unless the client is gone.
        self.count_side(pair, port.side);
        match port.side {
            Side::Write => {
                self.leave_writing(pair, port);
                Unread::NOTHING
            }
            Side::Read => self.leave_reading(pair, port),
        }
    }

    fn leave_writing(&mut self, pair: u32, port: &mut Port) {
        let Some(direct) = self.directs.get_mut(pair as usize) else { return };
        direct.has_writer = false;
        let bytes = port.slots.bytes() + port.direct.bytes;
        direct.orphans = Some(std::mem::replace(&mut port.slots, Slots::new(0, 0)));
        let (reader, is_ended) = (direct.reader, direct.is_ended);
        if !is_ended {
            self.end_writing(pair);
        }
        // They are kept for the reader: it counts them from here on.
        if let Some(port) = self.clients.port_at(reader).filter(|port| port.direct.pair == Some(pair)) {
            port.direct.bytes = bytes;
        }
    }

    fn leave_reading(&mut self, pair: u32, port: &Port) -> Unread {
        let Some(direct) = self.directs.get_mut(pair as usize) else { return Unread::NOTHING };
        if std::mem::replace(&mut direct.has_reader, false) {
            // The core goes on where the reader stopped.
            direct.forward.skip_to(direct.got.get(DirectCounts::THIRD).min(MOST_COUNTED));
        }
        let before = direct.noted.map_or(usize::MAX, |noted| port.slots.delivered_before(noted));
        let (is_ended, is_on) = (direct.is_ended, direct.stage == Stage::On);
        self.recall(pair);
        let unread = match is_on {
            true => Unread { before, messages: self.take_unread(pair) },
            // All that came over the core is in front.
            false => {
                self.salvage(pair);
                Unread::NOTHING
            }
        };
        self.fold_direct(pair);
        if is_ended {
            self.finish_direct(pair);
        }
        unread
    }

    /// Puts what a reader that left had not taken in front of what came behind it.
    pub(super) fn put_unread(&mut self, to: MailboxKey, messages: Vec<Message>) {
        for message in messages.into_iter().rev() {
            match self.mailbox_mut(to) {
                Some(mailbox) => {
                    mailbox.enters(message.0.len);
                    mailbox.queue.push_front(message);
                }
                None => self.lose(to, message, MessageLoss::Undeliverable),
            }
        }
        self.note_change(to);
    }

    /// Takes what the writer put and no reader took: in order, behind what is in the mailbox.
    fn salvage(&mut self, pair: u32) {
        let Some(mailbox) = self.directs.get(pair as usize).map(|direct| direct.mailbox) else { return };
        for message in self.take_unread(pair) {
            let arrival = self.arrive(mailbox, message);
            self.arrivals.extend(arrival);
        }
    }

    /// The messages that the writer put and no reader took, in order. The slots are the writer's until it names them as left.
    fn take_unread(&mut self, pair: u32) -> Vec<Message> {
        let mut messages = Vec::new();
        for _ in 0..DIRECT_ENTRIES {
            let direct = self.directs.get_mut(pair as usize);
            // An entry that the writer put before it began lies in its ring to the core still.
            let Some(direct) = direct.filter(|direct| direct.stage != Stage::Offered) else { break };
            let Some(entry) = direct.forward.pop() else { break };
            // One that cannot be is the writer's own fault, or the reader's.
            let Some(message) = self.share_slot(pair, &entry) else { continue };
            if let Some(direct) = self.directs.get_mut(pair as usize) {
                direct.taken.0 += 1;
                direct.taken.1 += u64::from(entry.len);
            }
            messages.push(message);
        }
        messages
    }

    /// Nobody uses them any more.
    fn finish_direct(&mut self, pair: u32) {
        if self.directs.get(pair as usize).is_some_and(|direct| direct.has_writer) {
            self.count_side(pair, Side::Write);
        }
        self.fold_direct(pair);
        let Some(mut direct) = self.directs.try_remove(pair as usize) else { return };
        for key in [direct.writer, direct.reader] {
            if let Some(port) = self.clients.port_at(key).filter(|port| port.direct.pair == Some(pair)) {
                (port.direct.pair, port.direct.bytes, port.direct.extra_bytes) = (None, 0, 0);
            }
        }
        if direct.has_writer {
            for entry in std::mem::take(&mut direct.left) {
                self.free_left(direct.writer, &entry);
            }
        }
        let waits = direct.written().waits;
        let orphans: Vec<Message> = direct.orphans.iter_mut().flat_map(Slots::drain).collect();
        for message in orphans.into_iter().chain([direct.block]) {
            self.free(message);
        }
        if let Some(mailbox) = self.mailbox_mut(direct.mailbox) {
            mailbox.counters.waits = mailbox.counters.waits.wrapping_add(waits);
            mailbox.direct = None;
            self.note_change(direct.mailbox);
            self.try_direct(direct.mailbox);
        }
    }

    /// A client has called the core to some of its ports.
    #[cold]
    pub(super) fn take_calls(&mut self, client: u32, calls: Calls) -> Option<Arrival> {
        for port in 0..PORTS as u16 {
            if calls.wakes >> port & 1 == 1 {
                self.wake_peer(client, port);
            }
            if calls.dones >> port & 1 == 1 {
                self.take_done(client, port);
            }
        }
        None
    }

    /// Has the core wake the client at the other end of a port's direct rings.
    fn wake_peer(&mut self, client: u32, port: u16) {
        let key = PortKey { client, port };
        let pair = self.clients.port_at(key).and_then(|port| port.direct.pair);
        let direct = pair.and_then(|pair| self.directs.get(pair as usize));
        if let Some(peer) = direct.and_then(|direct| direct.peer_of(key)) {
            self.notify(peer);
        }
    }

    /// Whether two clients' messages of a mailbox pass without the core now.
    #[must_use]
    pub fn is_direct(&self, mailbox: MailboxKey) -> bool {
        let pair = self.mailbox(mailbox).and_then(|mailbox| mailbox.direct);
        pair.and_then(|pair| self.directs.get(pair as usize)).is_some_and(Direct::is_on)
    }
}
