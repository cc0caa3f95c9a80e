//! Direct rings between two clients of one domain, for a mailbox that one writes and the other reads: the core opens them, watches
//! them and cleans up, and no message passes it.
//!
//! **Their entries** name the slots of the writer's port: buffers that the core granted to it, and that stay the writer's in
//! the core's tables wherever they go between the two. So a slot may be put over the writer's ring to the core as well at any time,
//! the reader may enqueue or drop what it got of them, and nothing that either writes can cost more than messages of this mailbox.
//!
//! **To the direct rings and back** without loss or reordering: the writer says on its ring to the core from which entry on, and
//! the core says it to the reader behind all that was put before. Once a message comes to the mailbox otherwise (a task's, or one
//! that is enqueued), the core wants the writer back, and says it to the reader in front of that message: what the writer put
//! before is visible to the reader then, and what it puts after comes behind.
//!
//! **Whoever leaves** is replaced by the core. Of a reader's it takes what that had not taken from the ring back into the mailbox,
//! before and after the writer has learnt of it: the writer looks, after each put, at the word by which the core wants it back. A
//! writer's slots are kept until the reader is done with them.

use super::losses::MessageLoss;
use super::mailbox::{CoreReader, Mailbox, MailboxKey, PortKey, Side};
use super::message::{Area, Message, Span};
use super::slots::{ProtocolViolation, Slots};
use super::{Arrival, Client, HostInterface, client::Port};
use crate::shared::{
    DIRECT_ENTRIES, Descriptor, DirectBlock, DirectCounts, DirectLayout, Reason, RingReader, SLOTS, SleepFlag, down, up,
};
use slab::Slab;

/// The most that one pair of rings adds to the numbers of its mailbox, whatever its clients say.
const MOST_COUNTED: u64 = 1 << 40;

/// The part of a port in direct rings.
#[derive(Clone, Copy, Default)]
pub(crate) struct DirectPort {
    /// Those that it uses or may still use.
    pub(super) pair: Option<u32>,
    /// Whether it ever did: then another client may be the cause of what looks like a violation.
    was_used: bool,
    /// Its client was notified that the mailbox is spoilt.
    is_spoilt: bool,
    /// Bytes of memory that count to its client for them.
    pub(super) bytes: u32,
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
    /// The writer's number of buffers ahead before.
    usual_ahead: u32,
}

/// The counts of direct rings so far, as their clients say.
#[derive(Clone, Copy, Default)]
pub(super) struct Passed {
    pub(super) puts: u64,
    pub(super) put_bytes: u64,
    pub(super) gets: u64,
    pub(super) got_bytes: u64,
    pub(super) waits: u64,
    /// Messages that the reader was handed.
    pub(super) handed: u64,
    /// Messages in them, and their bytes.
    pub(super) depth: u32,
    pub(super) bytes: u64,
}

impl Direct {
    /// Whether messages pass here rather than through the core.
    pub(super) fn is_on(&self) -> bool {
        self.stage != Stage::Offered && !self.is_ended && !self.is_recalled
    }

    pub(super) fn passed(&self) -> Passed {
        let said = |counts: &DirectCounts, which| counts.get(which).min(MOST_COUNTED);
        let (put, got) = (&self.put, &self.got);
        let (all, all_bytes) = (said(put, DirectCounts::MESSAGES), said(put, DirectCounts::BYTES));
        let (gets, got_bytes) = (said(got, DirectCounts::MESSAGES), said(got, DirectCounts::BYTES));
        // A message that the core took is counted where it went.
        let (puts, put_bytes) = (all.saturating_sub(self.taken.0), all_bytes.saturating_sub(self.taken.1));
        Passed {
            puts,
            put_bytes,
            gets,
            got_bytes,
            waits: said(put, DirectCounts::THIRD),
            handed: said(got, DirectCounts::THIRD),
            depth: puts.saturating_sub(gets).min(SLOTS as u64) as u32,
            bytes: put_bytes.saturating_sub(got_bytes),
        }
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
    // Others that wait for room would not learn of it. The rest in them is soon gone.
    let Some(direct) = direct.filter(|direct| !direct.is_recalled) else { return false };
    let passed = direct.passed();
    mailbox.depth.saturating_add(passed.depth) >= mailbox.bound_messages
        || mailbox.bytes.saturating_add(passed.bytes) >= mailbox.bound_bytes
}

/// The counts of a mailbox's direct rings, if it has any now.
pub(super) fn passed_of(directs: &Slab<Direct>, mailbox: &Mailbox) -> Passed {
    let direct = mailbox.direct.and_then(|pair| directs.get(pair as usize));
    direct.map(Direct::passed).unwrap_or_default()
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

    fn direct_sides(&self, key: MailboxKey) -> Option<(PortKey, PortKey)> {
        let mailbox = self.mailbox(key)?;
        let (writer, reader) = (mailbox.writer?, mailbox.reader?);
        let is_plain = mailbox.direct.is_none()
            && !mailbox.is_watched
            && !mailbox.is_mixed
            && mailbox.core_reader == CoreReader::None;
        if !self.config.direct_rings || !is_plain || writer.client == reader.client {
            return None;
        }
        let (writes, reads) = (self.clients.at(writer.client)?, self.clients.at(reader.client)?);
        let is_free = |client: &Client, number: u16| {
            let port = client.ports.get(usize::from(number)).and_then(Option::as_deref);
            port.is_some_and(|port| port.direct.pair.is_none() && !port.direct.is_spoilt)
        };
        let is_within = writes.held_bytes() + DirectLayout::BYTES as u64 <= self.config.client_bytes;
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
            Some((block.for_reader()?.0, block.flags()?, block.counts()?))
        })();
        debug_assert!(parts.is_some(), "a buffer lies in its segment");
        let Some((forward, [flag, _], [put, got])) = parts else {
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
            usual_ahead,
        }) as u32;
        for (key, bytes) in [(writer, range.1), (reader, 0)] {
            if let Some(port) = self.clients.port_at(key) {
                port.direct = DirectPort { pair: Some(pair), was_used: true, is_spoilt: false, bytes };
            }
        }
        let mailbox = self.present_mailbox(mailbox)?;
        mailbox.direct = Some(pair);
        let len = most_slots(usual_ahead, mailbox);
        self.report_to(writer, Descriptor { op: down::DIRECT, target, offset: range.0, len, ..Descriptor::default() });
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
        let is_ended = direct.is_ended;
        if direct.stage != Stage::Joining || !direct.has_reader {
            return;
        }
        let is_empty = |mailbox: &Mailbox| mailbox.generation == direct.mailbox.generation && mailbox.queue.is_empty();
        if !self.mailboxes.get(mailbox.index as usize).is_some_and(is_empty) {
            return;
        }
        direct.stage = Stage::On;
        self.report_to(reader, Descriptor { op: down::DIRECT, target, offset, ..Descriptor::default() });
        if is_ended {
            self.report_to(reader, Descriptor { op: down::DIRECT_END, ..Descriptor::default() });
        }
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
            (ProtocolViolation::NoSlot(_), Some(pair)) => self.take_of_peer(key, pair, entry),
            _ => Err(violation),
        };
        match carried_out {
            Ok(arrival) => arrival,
            // It may be the other end that broke the rules.
            Err(ProtocolViolation::NoSlot(_) | ProtocolViolation::NotHeld(_) | ProtocolViolation::Outside { .. })
                if direct.was_used =>
            {
                self.spoil(key);
                None
            }
            Err(violation) => self.report_violation(client, violation),
        }
    }

    /// Ends a mailbox for one side: what it says of its slots cannot be.
    fn spoil(&mut self, key: PortKey) {
        let Some(port) = self.clients.port_at(key) else { return };
        if !std::mem::replace(&mut port.direct.is_spoilt, true) {
            self.notify_closed(key, Reason::Violation);
        }
    }

    /// The reader gives up, or moves on, what it got over the direct rings.
    fn take_of_peer(
        &mut self,
        key: PortKey,
        pair: u32,
        entry: &Descriptor,
    ) -> Result<Option<Arrival>, ProtocolViolation> {
        if entry.op != up::ENQUEUE {
            self.take_slot_of_peer(key, pair, entry, false).map(|message| self.free(message))?;
            return Ok(None);
        }
        let Some(holder) = self.clients.present(key.client) else { return Ok(None) };
        let target = holder.opened(entry.target)?.mailbox;
        let message = self.take_slot_of_peer(key, pair, entry, true)?;
        if let Some(holder) = self.clients.present(key.client) {
            holder.count_in(&message);
        }
        Ok(self.arrive_otherwise(target, message))
    }

    /// Takes a slot of the writer's that its reader names.
    fn take_slot_of_peer(
        &mut self,
        key: PortKey,
        pair: u32,
        entry: &Descriptor,
        range: bool,
    ) -> Result<Message, ProtocolViolation> {
        let not_held = ProtocolViolation::NotHeld(entry.slot);
        let slot = entry.slot.checked_sub(SLOTS as u16).ok_or(not_held)?;
        let direct = self.directs.get_mut(pair as usize);
        let direct = direct.filter(|direct| direct.reader == key && direct.has_reader).ok_or(not_held)?;
        let (writer, has_writer) = (direct.writer, direct.has_writer);
        let slots = match &mut direct.orphans {
            Some(orphans) => orphans,
            None => &mut self.clients.port_at(writer).ok_or(not_held)?.slots,
        };
        let given = slots.take(&Descriptor { slot, ..*entry }, range)?;
        if has_writer {
            self.make_hungry(writer);
        }
        Ok(given.message)
    }

    /// A slot that the reader's process dropped, by whatever thread. False if there is none.
    pub(super) fn free_of_peer(&mut self, client: u32, head: &Descriptor) -> bool {
        let key = PortKey { client, port: head.target };
        let Some(pair) = self.clients.port_at(key).and_then(|port| port.direct.pair) else { return false };
        let Ok(message) = self.take_slot_of_peer(key, pair, head, false) else { return false };
        let Some(direct) = self.directs.get_mut(pair as usize) else { return false };
        direct.taken.0 += 1;
        direct.taken.1 += u64::from(head.len.min(message.0.len));
        let mailbox = direct.mailbox;
        self.free(message);
        if let Some(entry) = self.mailbox_mut(mailbox) {
            entry.counters.puts += 1;
            entry.counters.gets += 1;
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
        let direct = port.direct.pair.and_then(|pair| self.directs.get(pair as usize));
        let mailbox = self.mailboxes.get(port.mailbox.index as usize);
        if let (Some(direct), Some(mailbox)) = (direct, mailbox)
            && direct.is_on()
            && mailbox.generation == port.mailbox.generation
            && port.slots.granted() == port.ahead
            && direct.passed().depth >= port.ahead
            && !is_full(&self.directs, mailbox)
        {
            port.ahead = (2 * port.ahead).min(most_slots(direct.usual_ahead, mailbox));
        }
        self.make_hungry(key);
        self.report_to(key, Descriptor { op: down::DIRECT_MORE, ..Descriptor::default() });
        Ok(())
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
        let (reader, writer, usual_ahead) = (direct.reader, direct.writer, direct.usual_ahead);
        if direct.has_writer
            && let Some(port) = self.clients.port_at(writer)
        {
            port.ahead = usual_ahead;
        }
        if !direct.has_reader {
            self.salvage(pair);
            self.finish_direct(pair);
        } else if direct.stage == Stage::On {
            self.report_to(reader, Descriptor { op: down::DIRECT_END, ..Descriptor::default() });
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
            // It was moved on or dropped, or taken back into the mailbox.
            _ => self.counters.late += 1,
        }
    }

    /// The reader has ended all that it got over direct rings that are over.
    pub(super) fn take_done(&mut self, client: u32, port: u16) {
        let key = PortKey { client, port };
        // An entry that it moved on before lies in its ring to the core.
        self.finish_ring(client, port);
        let Some(pair) = self.clients.port_at(key).and_then(|port| port.direct.pair) else { return };
        let is_over = |direct: &Direct| direct.reader == key && direct.is_ended && direct.stage == Stage::On;
        if self.directs.get(pair as usize).is_some_and(is_over) {
            self.count_side(pair, Side::Read);
            self.finish_direct(pair);
        }
    }

    /// Wants the writer of a mailbox back on its ring to the core, with the reader still there: from here on messages come to the
    /// mailbox otherwise too, behind all that was put before.
    pub(super) fn recall_direct(&mut self, mailbox: MailboxKey) {
        let Some(pair) = self.mailbox(mailbox).and_then(|mailbox| mailbox.direct) else { return };
        let Some(direct) = self.directs.get(pair as usize).filter(|direct| !direct.is_recalled && !direct.is_ended)
        else {
            return;
        };
        let (reader, stage, has_reader) = (direct.reader, direct.stage, direct.has_reader);
        self.recall(pair);
        if !has_reader {
            return;
        }
        match stage {
            Stage::Offered => {}
            Stage::On => self.report_to(reader, Descriptor { op: down::DIRECT_PAUSE, ..Descriptor::default() }),
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

    /// A port is closed, or its client is gone: takes its slots, if they may be in use elsewhere.
    pub(super) fn leave_direct(&mut self, port: &mut Port) {
        let Some(pair) = port.direct.pair.take() else { return };
        // Unless the client is gone.
        self.count_side(pair, port.side);
        let Some(direct) = self.directs.get_mut(pair as usize) else { return };
        if port.side == Side::Write {
            direct.has_writer = false;
            direct.orphans = Some(std::mem::replace(&mut port.slots, Slots::new(0, 0)));
            if !direct.is_ended {
                self.end_writing(pair);
            }
            return;
        }
        direct.has_reader = false;
        let is_ended = direct.is_ended;
        // It goes on where the reader stopped.
        direct.forward.skip_to(direct.got.get(DirectCounts::THIRD).min(MOST_COUNTED));
        self.recall(pair);
        self.salvage(pair);
        if is_ended {
            self.finish_direct(pair);
        }
    }

    /// Takes what the writer put and the reader, which is gone, had not taken back into the mailbox, in order.
    fn salvage(&mut self, pair: u32) {
        if self.directs.get(pair as usize).is_none_or(|direct| direct.stage == Stage::Offered) {
            // An entry that the writer put before it began lies in its ring to the core still.
            return;
        }
        for _ in 0..DIRECT_ENTRIES {
            let Some(direct) = self.directs.get_mut(pair as usize) else { return };
            let Some(entry) = direct.forward.pop() else { break };
            let slots = match &mut direct.orphans {
                Some(orphans) => Some(orphans),
                None => self.clients.port_at(direct.writer).map(|port| &mut port.slots),
            };
            // One that cannot be is the writer's own fault, or the reader's.
            let Some(Ok(message)) = slots.map(|slots| slots.take_granted(&entry)) else { continue };
            direct.taken.0 += 1;
            direct.taken.1 += u64::from(entry.len);
            let mailbox = direct.mailbox;
            let arrival = self.arrive(mailbox, message);
            self.arrivals.extend(arrival);
        }
        if let Some(direct) = self.directs.get(pair as usize)
            && direct.has_writer
        {
            self.make_hungry(direct.writer);
        }
    }

    /// Nobody uses them any more.
    fn finish_direct(&mut self, pair: u32) {
        if self.directs.get(pair as usize).is_some_and(|direct| direct.has_writer) {
            self.count_side(pair, Side::Write);
        }
        let Some(mut direct) = self.directs.try_remove(pair as usize) else { return };
        let passed = direct.passed();
        self.fold_direct(&direct, &passed);
        for key in [direct.writer, direct.reader] {
            if let Some(port) = self.clients.port_at(key).filter(|port| port.direct.pair == Some(pair)) {
                (port.direct.pair, port.direct.bytes) = (None, 0);
            }
        }
        if direct.has_writer {
            for entry in std::mem::take(&mut direct.left) {
                self.free_left(direct.writer, &entry);
            }
        }
        let orphans: Vec<Message> = direct.orphans.iter_mut().flat_map(Slots::drain).collect();
        for message in orphans.into_iter().chain([direct.block]) {
            self.free(message);
        }
        if let Some(mailbox) = self.mailbox_mut(direct.mailbox) {
            mailbox.direct = None;
            self.note_change(direct.mailbox);
            self.try_direct(direct.mailbox);
        }
    }

    /// Counts what went over direct rings that are no more. The rest in them was with a reader that is gone.
    fn fold_direct(&mut self, direct: &Direct, passed: &Passed) {
        let lost = u64::from(passed.depth);
        let reason = match self.mailbox_mut(direct.mailbox) {
            Some(mailbox) => {
                mailbox.counters.puts = mailbox.counters.puts.wrapping_add(passed.puts);
                mailbox.counters.gets = mailbox.counters.gets.wrapping_add(passed.puts);
                mailbox.counters.waits = mailbox.counters.waits.wrapping_add(passed.waits);
                MessageLoss::ReaderGone
            }
            None => MessageLoss::Undeliverable,
        };
        self.count_loss(direct.mailbox, reason, lost);
    }

    /// The counts of a side over direct rings are its client's from here on: it uses them no more.
    fn count_side(&mut self, pair: u32, side: Side) {
        let Some(direct) = self.directs.get(pair as usize) else { return };
        let passed = direct.passed();
        match side {
            Side::Write => {
                let Some(client) = self.clients.at_mut(direct.writer.client) else { return };
                client.messages_in = client.messages_in.wrapping_add(passed.puts + direct.taken.0);
                client.bytes_in = client.bytes_in.wrapping_add(passed.put_bytes + direct.taken.1);
                client.waits = client.waits.wrapping_add(passed.waits);
            }
            Side::Read => {
                let Some(client) = self.clients.at_mut(direct.reader.client) else { return };
                client.messages_out = client.messages_out.wrapping_add(passed.handed);
                client.bytes_out = client.bytes_out.wrapping_add(passed.got_bytes);
            }
        }
    }

    /// Has the core wake the client at the other end of a port's direct rings.
    pub(super) fn wake_peer(&mut self, client: u32, port: u16) {
        let key = PortKey { client, port };
        let pair = self.clients.port_at(key).and_then(|port| port.direct.pair);
        let direct = pair.and_then(|pair| self.directs.get(pair as usize));
        if let Some(peer) = direct.and_then(|direct| direct.peer_of(key)) {
            self.notify(peer);
        }
    }

    /// The counts of a client's direct rings so far: as their writer, and as their reader.
    pub(super) fn passed_by(&self, client: &Client) -> [Passed; 2] {
        let mut sums = [Passed::default(); 2];
        for port in client.ports.iter().flatten() {
            let Some(direct) = port.direct.pair.and_then(|pair| self.directs.get(pair as usize)) else { continue };
            let passed = direct.passed();
            let sum = &mut sums[usize::from(port.side == Side::Read)];
            sum.puts += passed.puts + direct.taken.0;
            sum.put_bytes += passed.put_bytes + direct.taken.1;
            sum.waits += passed.waits;
            sum.handed += passed.handed;
            sum.got_bytes += passed.got_bytes;
        }
        sums
    }

    /// Whether two clients' messages of a mailbox pass without the core now.
    #[must_use]
    pub fn is_direct(&self, mailbox: MailboxKey) -> bool {
        let pair = self.mailbox(mailbox).and_then(|mailbox| mailbox.direct);
        pair.and_then(|pair| self.directs.get(pair as usize)).is_some_and(Direct::is_on)
    }
}
