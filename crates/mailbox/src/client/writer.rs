//! Writing to a mailbox (Nectar paper, 3.3): `begin_put`, `end_put`, and `enqueue` of a message that was begun.

use super::claim::Interrupter;
use super::direct::WriterLink;
use super::error::MailboxError;
use super::held::{Granted, HeldMut};
use super::port::Port;
use super::signal::SignalSide;
use super::wait::Wait;
use crate::failpoint::failpoint;
use crate::shared::{Descriptor, PORT_ENTRIES, Reason, Regrants, TakenCount, down, up};
use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// The writing side of a mailbox.
///
/// A message is written in place: [`Writer::begin_put`] gives a buffer in shared memory, [`Writer::end_put`] makes what it then
/// holds available to readers. Several may be begun before one is ended, and they may be ended in any order: that is the order
/// in which they are read.
///
/// While the mailbox holds its bound of messages, while the process has its quota of bytes in use, or while the domain's heap is
/// used up, no buffers are granted, and `begin_put` waits: that is the backpressure of a slow reader.
pub struct Writer(Side);

enum Side {
    Rings(RingsWriter),
    Signals(SignalSide),
}

impl Writer {
    pub(crate) fn rings(port: Port) -> Writer {
        Writer(Side::Rings(RingsWriter::new(port, None)))
    }

    /// Of a session: it remembers what the daemon has not taken yet.
    pub(crate) fn session(port: Port) -> Option<Writer> {
        let taken = TakenCount::of_session(&port.claim.inner.control)?;
        Some(Writer(Side::Rings(RingsWriter::new(port, Some(Box::new(Sent { taken, puts: VecDeque::new() }))))))
    }

    pub(crate) fn signals(side: SignalSide) -> Writer {
        Writer(Side::Signals(side))
    }

    /// Begins a message of `bytes` bytes: a buffer of exactly that length, which holds what was last in that memory. Waits as
    /// `wait` says while no buffer is to be had.
    ///
    /// Up to the size that is granted ahead (4 KiB, unless the mailbox was opened with another) the buffer is at hand and nobody
    /// is asked; a longer one is asked of the daemon.
    ///
    /// # Errors
    /// `Closed`, `Gone`; `TooLong`; `Interrupted`, `TimedOut` (what was asked for may still be granted, and is then used by a later call);
    /// for a signal-queue mailbox `TooManyHeld`, if that was so until the time was up.
    #[inline(always)]
    pub fn begin_put(&mut self, bytes: usize, wait: Wait) -> Result<Put, MailboxError> {
        match &mut self.0 {
            Side::Rings(rings) => match rings.take_cached(bytes) {
                Some(held) => Ok(Put(held)),
                None => rings.begin_put(bytes, wait).map(Put),
            },
            Side::Signals(side) => side.begin_put(bytes, wait).map(Put),
        }
    }

    /// [`Writer::begin_put`] without waiting for anyone but the daemon's own answer: none if the mailbox is full.
    ///
    /// # Errors
    /// As there; `NoBuffers` and `Quota` if that is what a longer message than those granted ahead is refused for.
    #[inline(always)]
    pub fn try_begin_put(&mut self, bytes: usize) -> Result<Option<Put>, MailboxError> {
        let held = match &mut self.0 {
            Side::Rings(rings) => match rings.take_cached(bytes) {
                Some(held) => Some(held),
                None => rings.try_begin_put(bytes)?,
            },
            Side::Signals(side) => side.try_begin_put(bytes)?,
        };
        Ok(held.map(Put))
    }

    /// [`Writer::begin_put`] without waiting for anyone. If none of those granted ahead is left, one of `longer` bytes, which are
    /// more than those have, is asked for; a later call finds it.
    ///
    /// # Errors
    /// As there.
    pub fn poll_begin_put(&mut self, bytes: usize, longer: usize) -> Result<Option<Put>, MailboxError> {
        let held = match &mut self.0 {
            Side::Rings(rings) => {
                // Not by a look for `bytes`, which would give the longer one back.
                while rings.refill()?.is_some() {}
                match rings.take_cached(bytes) {
                    Some(held) => Some(held),
                    None => rings.look(longer, false)?,
                }
            }
            Side::Signals(side) => side.try_begin_put(bytes)?,
        };
        Ok(held.map(Put))
    }

    /// Whether the mailbox is there still, as far as the daemon has said by now; waits for nobody. Of a signal-queue mailbox this is
    /// known once a message is put.
    ///
    /// # Errors
    /// `Closed`, `Gone`.
    #[inline]
    pub fn check(&mut self) -> Result<(), MailboxError> {
        match &mut self.0 {
            Side::Rings(rings) => {
                // A refusal is that of a call that gave up waiting.
                while rings.refill()?.is_some() {}
                Ok(())
            }
            Side::Signals(_) => Ok(()),
        }
    }

    /// Gives up a buffer longer than those granted ahead that a call which gave up waiting has asked for: it is not waited for any more,
    /// and given back if it has come. Without this it is kept for a later call, and no other buffer is granted before it.
    pub fn withdraw(&mut self) {
        match &mut self.0 {
            Side::Rings(rings) => rings.withdraw(),
            // A call that gives up has the answer to what it asked for given back.
            Side::Signals(_) => {}
        }
    }

    /// Makes a call of this writer that waits return, from another thread.
    pub fn interrupter(&self) -> Interrupter {
        match &self.0 {
            Side::Rings(rings) => Interrupter::new(&rings.port.claim),
            Side::Signals(side) => side.interrupter(),
        }
    }

    /// Ends a message: it is the mailbox's now, in the place of the order that this call has among others. Never waits.
    ///
    /// # Errors
    /// `Closed` or `Gone`: nobody will read it (a session's writer says neither: see [`Writer::untaken`]); `Foreign` if it was
    /// begun by another writer. Its buffer is given back then.
    #[inline(always)]
    pub fn end_put(&mut self, put: Put) -> Result<(), MailboxError> {
        match &mut self.0 {
            Side::Rings(rings) => rings.end_put(put.0),
            Side::Signals(side) => side.end_put(put.0),
        }
    }

    /// Puts a copy of each of `messages`, in their order: quicker than one by one, because what they have in common is done once, and
    /// the reader can take them together. Waits as `wait` says whenever no buffer is to be had. Returns how many there were.
    ///
    /// # Errors
    /// As [`Writer::begin_put`]. The messages before the one that met the error are put; that one has been taken from the iterator.
    #[inline]
    pub fn put_many<M: AsRef<[u8]>>(
        &mut self,
        messages: impl IntoIterator<Item = M>,
        wait: Wait,
    ) -> Result<usize, MailboxError> {
        let mut messages = messages.into_iter();
        self.put_each(wait, |burst| {
            let Some(message) = messages.next() else { return Ok(false) };
            let bytes = message.as_ref();
            burst.put(bytes.len(), |place| place.copy_from_slice(bytes)).map(|()| true)
        })
    }

    /// Puts `count` messages of `bytes` bytes, which `fill` writes in place, each by its number from 0 on; else as
    /// [`Writer::put_many`]. The content of a message's bytes before they are written is not said.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn put_many_with(
        &mut self,
        count: usize,
        bytes: usize,
        wait: Wait,
        mut fill: impl FnMut(usize, &mut [u8]),
    ) -> Result<usize, MailboxError> {
        let mut at = 0;
        self.put_each(wait, |burst| {
            if at == count {
                return Ok(false);
            }
            at += 1;
            burst.put(bytes, |place| fill(at - 1, place)).map(|()| true)
        })
    }

    /// Calls `next` until it says that there is nothing more to put; how often it put something.
    #[inline(always)]
    fn put_each(
        &mut self,
        wait: Wait,
        mut next: impl FnMut(&mut PutBurst<'_>) -> Result<bool, MailboxError>,
    ) -> Result<usize, MailboxError> {
        let mut burst = PutBurst { writer: self, wait };
        let mut put = 0;
        while next(&mut burst)? {
            put += 1;
        }
        if let Side::Rings(rings) = &mut self.0 {
            // The last puts went into buffers that were at hand, and nobody looked whether the mailbox is.
            rings.port.check()?;
        }
        Ok(put)
    }

    /// Of a session: how many messages were put, and how many of them the daemon has taken, as far as it has said. Of other
    /// writers: nothing.
    pub fn put_and_taken(&self) -> (u64, u64) {
        match &self.0 {
            Side::Rings(RingsWriter { sent: Some(sent), port, .. }) => (port.pushed(), sent.taken.load()),
            Side::Rings(_) | Side::Signals(_) => (0, 0),
        }
    }

    /// Of a session whose daemon is gone: copies of what was put and never taken, in order, to be sent again elsewhere.
    /// A message that was taken is not among them, even if the daemon died over it: its memory may hold something else
    /// by now. Of other writers: nothing.
    pub fn untaken(&mut self) -> Vec<Vec<u8>> {
        match &mut self.0 {
            Side::Rings(rings) => rings.untaken(),
            Side::Signals(_) => Vec::new(),
        }
    }

    /// Ends a message in another mailbox, one that this process has open for writing as number `to`, without copying it.
    ///
    /// # Errors
    /// As [`Writer::end_put`].
    #[inline]
    pub fn enqueue(&mut self, put: Put, to: u16) -> Result<(), MailboxError> {
        match &mut self.0 {
            Side::Rings(rings) => rings.enqueue(put.0, to),
            Side::Signals(side) => side.enqueue_put(put.0, to),
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Side::Rings(rings) => f.debug_struct("Writer").field("port", &rings.port.number).finish_non_exhaustive(),
            Side::Signals(side) => f.debug_struct("Writer").field("number", &side.number).finish_non_exhaustive(),
        }
    }
}

/// A writer in the middle of [`Writer::put_many`].
struct PutBurst<'a> {
    writer: &'a mut Writer,
    wait: Wait,
}

impl PutBurst<'_> {
    /// Puts one more message of `bytes` bytes.
    #[inline(always)]
    fn put(&mut self, bytes: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), MailboxError> {
        match &mut self.writer.0 {
            Side::Rings(rings) if rings.has_cached(bytes) => {
                rings.put_cached(bytes as u32, fill);
                Ok(())
            }
            _ => self.put_slowly(bytes, fill),
        }
    }

    /// The same where no buffer that was granted ahead is at hand, or the core has to be asked.
    #[inline(never)]
    fn put_slowly(&mut self, bytes: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), MailboxError> {
        let mut put = self.writer.begin_put(bytes, self.wait)?;
        fill(&mut put);
        self.writer.end_put(put)
    }
}

/// A message being written: exactly as many bytes as were asked for, in place, less what [`Put::adjust`] left out.
///
/// Dropping it gives the buffer back unused, from any thread.
pub struct Put(HeldMut);

impl Put {
    /// Leaves out `prefix` bytes at the start and `suffix` bytes at the end, without copying.
    ///
    /// # Errors
    /// `TooShort`, and nothing changes, if that is more than there is.
    #[inline]
    pub fn adjust(&mut self, prefix: usize, suffix: usize) -> Result<(), MailboxError> {
        self.0.adjust(prefix, suffix)
    }
}

impl Deref for Put {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl DerefMut for Put {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }
}

impl fmt::Debug for Put {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Put").field("bytes", &self.len()).finish_non_exhaustive()
    }
}

/// How many of the buffers that have been granted meanwhile are taken in after a put: the next message does not wait for all of them.
const REFILLED: usize = 8;
/// How many messages ahead memory is asked for, out of the cache of the core that read what was in it last.
const WRITTEN_AHEAD: usize = 8;

/// A buffer larger than those granted ahead that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Request {
    /// None is asked for.
    None,
    /// This number of bytes is requested, and will be granted once they are to be had.
    Waits(u32),
    /// This number of bytes is requested, to be had now or refused.
    Tries(u32),
    /// This number of bytes is requested, and nobody wants them any more: a grant or a refusal is on its way.
    Withdrawn(u32),
}

impl Request {
    /// The request of a call for `bytes` bytes; none if the number does not fit a request.
    fn of(bytes: usize, is_try: bool) -> Request {
        match u32::try_from(bytes) {
            Ok(len) if is_try => Request::Tries(len),
            Ok(len) => Request::Waits(len),
            Err(_) => Request::None,
        }
    }
}

/// A writer of a `rings` mailbox.
struct RingsWriter {
    /// Buffers granted ahead and not used yet; the one granted last is used first.
    cached: Vec<Granted>,
    /// A larger one that was asked for, by a call that has not used it yet.
    large: Option<Granted>,
    /// Size of those granted ahead, in bytes; 0 before the first.
    usual: u32,
    request: Request,
    /// Of a session: what was put and not taken yet.
    sent: Option<Box<Sent>>,
    /// Its end of direct rings to the reader, if there are some.
    link: Option<Box<WriterLink>>,
    /// The core's entry for others that it may use.
    offer: Option<Descriptor>,
    /// Whether the last message was in a buffer larger than those granted ahead.
    was_long: bool,
    port: Port,
}

/// The messages that a session's writer has put and the daemon has not taken, as far as it has said.
struct Sent {
    taken: TakenCount,
    /// Which of the ring's entries each is, counted from 1, and the entry.
    puts: VecDeque<(u64, Descriptor)>,
}

impl Sent {
    /// Notes a put; forgets those that were taken. False if there are more than the ring holds: the daemon has
    /// granted buffers for them without taking what was put in them.
    #[inline]
    fn note(&mut self, number: u64, entry: Descriptor) -> bool {
        let taken = self.taken.load();
        while self.puts.front().is_some_and(|(number, _)| *number <= taken) {
            self.puts.pop_front();
        }
        self.puts.push_back((number, entry));
        self.puts.len() <= PORT_ENTRIES
    }
}

impl RingsWriter {
    fn new(port: Port, sent: Option<Box<Sent>>) -> RingsWriter {
        let cached = Vec::with_capacity(crate::shared::SLOTS);
        let request = Request::None;
        RingsWriter { cached, large: None, usual: 0, request, sent, link: None, offer: None, was_long: false, port }
    }

    fn untaken(&mut self) -> Vec<Vec<u8>> {
        let Some(sent) = self.sent.take() else { return Vec::new() };
        let (taken, memory) = (sent.taken.load(), &self.port.claim.inner.memory);
        let left = sent.puts.iter().filter(|(number, _)| *number > taken);
        left.map(|(_, entry)| memory.copy(entry)).collect()
    }

    /// A cached buffer, if there is one and it is large enough.
    #[inline(always)]
    fn take_cached(&mut self, bytes: usize) -> Option<HeldMut> {
        let granted = self.cached.pop()?;
        if bytes > granted.capacity() as usize {
            self.cached.push(granted);
            return None;
        }
        failpoint!("writer.begin_put.granted");
        Some(granted.hold(bytes as u32, self.port.reference()))
    }

    /// Whether a cached buffer of `bytes` bytes is at hand for one of many messages. A session's are noted one by one.
    #[inline(always)]
    fn has_cached(&self, bytes: usize) -> bool {
        self.sent.is_none() && self.cached.last().is_some_and(|granted| bytes <= granted.capacity() as usize)
    }

    /// Puts one of many messages in the cached buffer that [`RingsWriter::has_cached`] found.
    #[inline(always)]
    fn put_cached(&mut self, len: u32, fill: impl FnOnce(&mut [u8])) {
        let Some(granted) = self.cached.last_mut() else { return debug_assert!(false, "a buffer was found") };
        // Before it is taken: `fill` is the application's, and may panic.
        fill(granted.bytes_mut(len));
        failpoint!("writer.put_many.before_push");
        let Some(granted) = self.cached.pop() else { return };
        let entry = granted.into_put(len);
        match &self.link {
            Some(_) => self.put_directly(entry),
            // The core is rung for each, if it sleeps: `fill`, or the iterator behind it, may take its time for the next one.
            None => self.port.push(entry),
        }
        failpoint!("writer.put_many.after_push");
        if let Some(at) = self.cached.len().checked_sub(WRITTEN_AHEAD) {
            self.cached[at].prefetch(len);
        }
    }

    #[inline(never)]
    fn begin_put(&mut self, bytes: usize, wait: Wait) -> Result<HeldMut, MailboxError> {
        let claim = self.port.claim.clone();
        let inner = &claim.inner;
        let interrupt = &claim.interrupt;
        let held = inner.watch.wait_for(&inner.arrivals, wait, Some(interrupt), || self.look(bytes, false));
        held.map_err(|error| interrupt.name(error))
    }

    #[inline(never)]
    fn try_begin_put(&mut self, bytes: usize) -> Result<Option<HeldMut>, MailboxError> {
        let looked = self.look(bytes, true);
        let asked = matches!(self.request, Request::Tries(_));
        let outcome = match looked {
            Ok(None) if asked => {
                let claim = self.port.claim.clone();
                let inner = &claim.inner;
                // The daemon answers in its next turn, with a grant or a refusal.
                let interrupt = Some(&claim.interrupt);
                let held = inner.watch.wait_for(&inner.arrivals, Wait::Block, interrupt, || self.look(bytes, true));
                held.map(Some).map_err(|error| claim.interrupt.name(error))
            }
            other => other,
        };
        match outcome {
            Err(MailboxError::Full) => Ok(None),
            Ok(None) => self.port.check().map(|()| None),
            outcome => outcome,
        }
    }

    /// Takes what has been granted; a buffer of at least `bytes`, if there is one. Asks for one if those granted ahead are smaller.
    fn look(&mut self, bytes: usize, is_try: bool) -> Result<Option<HeldMut>, MailboxError> {
        while let Some((asked, refused)) = self.refill()? {
            // That of a call that gave up waiting says nothing about this one.
            if asked == Request::of(bytes, is_try) {
                return Err(MailboxError::refused(Reason::from_code(refused.target), bytes, refused.len));
            }
        }
        if let Some(held) = self.take_cached(bytes) {
            return Ok(Some(held));
        }
        if let Some(large) = self.large.take() {
            if bytes > self.usual as usize && bytes <= large.capacity() as usize {
                failpoint!("writer.begin_put.request_answered");
                return Ok(Some(large.hold(bytes as u32, self.port.reference())));
            }
            // Of a call that gave up waiting, and not what is wanted now.
            self.port.push(large.into_entry(up::FREE));
        }
        // The answer to one that was withdrawn is awaited first. Whether it is more than what is granted ahead is known once something was.
        if self.request == Request::None && self.usual != 0 && bytes > self.usual as usize {
            self.ask(bytes, is_try)?;
        } else if bytes <= self.usual as usize
            && let Some(link) = &mut self.link
            && link.note_dry()
            && link.ask()
        {
            self.port.push(Descriptor { op: up::MORE, ..Descriptor::default() });
        }
        Ok(None)
    }

    fn ask(&mut self, bytes: usize, is_try: bool) -> Result<(), MailboxError> {
        let Ok(len) = u32::try_from(bytes) else {
            return Err(MailboxError::refused(Some(Reason::TooLong), bytes, 0));
        };
        failpoint!("writer.begin_put.before_request");
        self.request = Request::of(bytes, is_try);
        self.port.push(Descriptor { op: up::REQUEST, target: u16::from(is_try), len, ..Descriptor::default() });
        failpoint!("writer.begin_put.after_request");
        Ok(())
    }

    fn withdraw(&mut self) {
        if let Some(large) = self.large.take() {
            self.port.push(large.into_entry(up::FREE));
        }
        match self.request {
            Request::Waits(asked) => {
                self.request = Request::Withdrawn(asked);
                self.port.push(Descriptor { op: up::WITHDRAW, ..Descriptor::default() });
            }
            // That is answered in the core's next turn.
            Request::Tries(asked) => self.request = Request::Withdrawn(asked),
            Request::None | Request::Withdrawn(_) => {}
        }
    }

    /// Takes all entries that have come. A refusal of what was asked for ends it; what that was.
    fn refill(&mut self) -> Result<Option<(Request, Descriptor)>, MailboxError> {
        self.refill_some(usize::MAX)
    }

    /// The same for the next `most` entries at most.
    fn refill_some(&mut self, most: usize) -> Result<Option<(Request, Descriptor)>, MailboxError> {
        self.port.check()?;
        if self.link.is_some() {
            self.reclaim()?;
        }
        for _ in 0..most {
            let Some(entry) = self.port.pop() else { break };
            match entry.op {
                down::DIRECT if self.sent.is_none() && self.link.is_none() && self.offer.is_none() => {
                    self.offer = Some(entry);
                }
                down::DIRECT_MORE if self.sent.is_none() => {
                    if self.link.as_mut().is_some_and(|link| link.asked()) {
                        self.port.push(Descriptor { op: up::MORE, ..Descriptor::default() });
                    }
                }
                down::GRANT => self.granted(entry)?,
                down::REGRANT => self.regranted(entry)?,
                down::REFUSED if self.request != Request::None => {
                    let asked = std::mem::replace(&mut self.request, Request::None);
                    return Ok(Some((asked, entry)));
                }
                down::CLOSED => {
                    // A granted buffer is void: closing takes it back.
                    self.cached.clear();
                    self.large = None;
                    return Err(self.port.close(entry));
                }
                _ => return Err(self.port.broken(entry)),
            }
        }
        // While long messages are put, the core is on the path.
        match self.offer.take_if(|_| !self.was_long) {
            Some(entry) => self.begin_direct(entry).map(|()| None),
            None => Ok(None),
        }
    }

    /// Later puts go over direct rings.
    #[cold]
    fn begin_direct(&mut self, entry: Descriptor) -> Result<(), MailboxError> {
        let inner = &self.port.claim.inner;
        let link = WriterLink::new(&inner.memory.shared, &inner.watch, self.port.number, &entry);
        self.link = Some(Box::new(link.ok_or_else(|| self.port.broken(entry))?));
        failpoint!("direct.writer.begun");
        self.port.push(Descriptor { op: up::DIRECT, ..Descriptor::default() });
        Ok(())
    }

    /// Takes what the reader has given back over direct rings.
    fn reclaim(&mut self) -> Result<(), MailboxError> {
        let (mut is_any, mut is_spoilt) = (false, false);
        while let Some(link) = &mut self.link {
            let again = match link.reclaim() {
                Ok(None) => break,
                Ok(Some((slot, generation))) => self.port.granted_again(slot, generation),
                Err(()) => None,
            };
            let Some(granted) = again else {
                is_spoilt = true;
                break;
            };
            is_any = true;
            self.cached.push(granted);
        }
        if is_spoilt {
            (self.link, self.large) = (None, None);
            self.cached.clear();
            return Err(self.port.spoil());
        }
        if is_any
            && matches!(self.request, Request::Waits(_))
            && let Some(link) = &mut self.link
            && link.ask()
        {
            // There may be room for what is waited for.
            self.port.push(Descriptor { op: up::MORE, ..Descriptor::default() });
        }
        if self.link.as_ref().is_some_and(|link| link.is_recalled()) {
            self.end_direct();
        }
        Ok(())
    }

    /// Puts a message over direct rings, unless the core wants this writer back.
    #[inline(always)]
    fn put_directly(&mut self, entry: Descriptor) {
        let Some(link) = &mut self.link else { return debug_assert!(false, "there are direct rings") };
        if link.is_recalled() {
            // Messages that were put otherwise before, by this process too, are in front of this then.
            self.end_direct();
            self.port.push(entry);
        } else if link.put(entry) {
            self.see_to_peer();
        }
    }

    #[cold]
    fn see_to_peer(&mut self) {
        let Some(link) = &self.link else { return };
        let (calls, is_recalled) = (link.calls(), link.is_recalled());
        if calls {
            self.port.wake_peer();
        }
        if is_recalled {
            self.end_direct();
        }
    }

    /// Later puts go over the ring to the core.
    #[cold]
    fn end_direct(&mut self) {
        // The reader may be gone: what it gave back is back.
        if let Some(link) = &mut self.link {
            while let Ok(Some((slot, generation))) = link.reclaim() {
                self.cached.extend(self.port.granted_again(slot, generation));
            }
        }
        let Some(link) = self.link.take() else { return };
        let left: Vec<Descriptor> = link.left().collect();
        let usual_ahead = link.usual_ahead();
        // Before the core knows: the block may be another's then.
        drop(link);
        failpoint!("direct.writer.before_end");
        self.port.push(Descriptor { op: up::DIRECT_END, ..Descriptor::default() });
        failpoint!("direct.writer.after_end");
        left.into_iter().for_each(|entry| self.port.push(entry));
        // Slots that were granted so that the mailbox holds its bound.
        let extra = self.cached.len().saturating_sub(usual_ahead);
        for granted in self.cached.drain(..extra) {
            self.port.push(granted.into_entry(up::FREE));
        }
    }

    fn granted(&mut self, entry: Descriptor) -> Result<(), MailboxError> {
        let Some(granted) = self.port.granted(entry) else { return Err(self.port.broken(entry)) };
        if let Some(link) = &mut self.link {
            link.note_grant();
        }
        match self.request {
            Request::Waits(asked) | Request::Tries(asked) if granted.capacity() >= asked => {
                self.request = Request::None;
                if let Some(former) = self.large.replace(granted) {
                    self.port.push(former.into_entry(up::FREE));
                }
            }
            Request::Withdrawn(asked) if granted.capacity() >= asked => {
                self.request = Request::None;
                self.port.push(granted.into_entry(up::FREE));
            }
            _ => {
                self.usual = granted.capacity();
                self.cached.push(granted);
            }
        }
        Ok(())
    }

    /// Takes in slots that have the buffers again that are granted ahead.
    #[inline(always)]
    fn regranted(&mut self, entry: Descriptor) -> Result<(), MailboxError> {
        let Some(mut slots) = Regrants::of(entry) else { return Err(self.port.broken(entry)) };
        while let Some(slot) = slots.pop() {
            let Some(granted) = self.port.regranted(slot) else { return Err(self.port.broken(entry)) };
            self.cached.push(granted);
        }
        if let Some(link) = &mut self.link {
            link.note_grant();
        }
        Ok(())
    }

    #[inline(always)]
    fn end_put(&mut self, held: HeldMut) -> Result<(), MailboxError> {
        if self.sent.is_none() {
            self.check_own(&held)?;
        } else if !held.is_of(&self.port.claim) {
            return Err(MailboxError::Foreign);
        }
        failpoint!("writer.end_put.before_push");
        self.was_long = held.whole_len() > self.usual;
        let (entry, claim) = held.into_entry(up::PUT, 0);
        let mut went_by_lane = false;
        match (&self.link, &self.sent) {
            (Some(_), _) if self.was_long => {
                // The core, which was asked for the buffer, gets it: it would come back only when this writer looks.
                self.end_direct();
                self.port.push(entry);
            }
            (Some(_), _) => self.put_directly(entry),
            (None, None) => went_by_lane = self.port.pass(entry),
            (None, Some(_)) => self.port.push(entry),
        }
        let is_low = self.cached.len() <= 1;
        if (is_low || went_by_lane) && self.request == Request::None {
            // A buffer that has been granted meanwhile is at hand for the next one: where an answer is waited for, the one that the
            // core had last. If the mailbox is gone, the next call says so.
            let _closed = self.refill_some(REFILLED);
            let next = self.cached.iter().rev().take(if is_low { WRITTEN_AHEAD } else { 1 });
            next.for_each(|granted| granted.prefetch(entry.len));
        } else if let Some(at) = self.cached.len().checked_sub(WRITTEN_AHEAD) {
            // While messages are under way, their successors' memory comes here.
            self.cached[at].prefetch(entry.len);
        }
        if let Some(sent) = &mut self.sent
            && !sent.note(self.port.pushed(), entry)
        {
            // A message that was put is still there for `untaken`.
            let _gone = self.port.claim.inner.broken("it granted buffers and took nothing of what was put");
        }
        failpoint!("writer.end_put.after_push");
        self.port.keep(claim);
        Ok(())
    }

    #[inline(always)]
    fn enqueue(&mut self, held: HeldMut, to: u16) -> Result<(), MailboxError> {
        if self.link.is_some() && self.port.claim.number() == Some(to) {
            // In its order with the others.
            return self.end_put(held);
        }
        self.check_own(&held)?;
        failpoint!("writer.enqueue.before_push");
        let (entry, claim) = held.into_entry(up::ENQUEUE, to);
        self.port.pass(entry);
        failpoint!("writer.enqueue.after_push");
        self.port.keep(claim);
        Ok(())
    }

    #[inline(always)]
    fn check_own(&self, held: &HeldMut) -> Result<(), MailboxError> {
        if held.is_of(&self.port.claim) { self.port.check() } else { Err(MailboxError::Foreign) }
    }
}
