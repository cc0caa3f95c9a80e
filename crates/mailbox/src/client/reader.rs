//! Reading from a mailbox (Nectar paper, 3.3): `begin_get`, `end_get`, and `enqueue` of a message to another mailbox.

use super::claim::Interrupter;
use super::direct::{ReaderLink, is_of_peer};
use super::error::MailboxError;
use super::held::{Delivered, Held};
use super::port::Port;
use super::signal::SignalSide;
use super::wait::Wait;
use crate::failpoint::failpoint;
use crate::shared::{Descriptor, Reason, down, up};
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::Ordering;

/// Looks before a call settles down to wait: about as long as a core that is awake takes to answer.
const FIRST_LOOKS: u32 = 64;

/// The reading side of a mailbox.
///
/// A message is read in place: [`Reader::begin_get`] gives the next one, [`Reader::end_get`] releases its memory. Several may be
/// begun before one is ended. A message that is not ended counts towards the mailbox's bound, so a reader that keeps messages
/// blocks the writers.
pub struct Reader {
    side: Side,
    /// Kept for its memory.
    burst: Vec<Message>,
}

enum Side {
    Rings(RingsReader),
    Signals(SignalSide),
}

impl Reader {
    pub(crate) fn rings(port: Port) -> Reader {
        Reader { side: Side::Rings(RingsReader { port, link: None }), burst: Vec::new() }
    }

    pub(crate) fn signals(side: SignalSide) -> Reader {
        Reader { side: Side::Signals(side), burst: Vec::new() }
    }

    /// The next message. Waits as `wait` says while there is none.
    ///
    /// # Errors
    /// `Closed` and `Gone`, after the preceding messages; `TimedOut` and `Interrupted`, and then no message was taken; for a signal-queue
    /// mailbox `TooManyHeld`, if that was so until the time was up.
    #[inline(always)]
    pub fn begin_get(&mut self, wait: Wait) -> Result<Message, MailboxError> {
        match &mut self.side {
            Side::Rings(rings) => match rings.look()? {
                Some(held) => Ok(Message(held)),
                None => rings.begin_get(wait).map(Message),
            },
            Side::Signals(side) => side.begin_get(wait).map(Message),
        }
    }

    /// The next message, if there is one now. Of a signal-queue mailbox it waits for the daemon to say so.
    ///
    /// # Errors
    /// As [`Reader::begin_get`].
    #[inline(always)]
    pub fn try_begin_get(&mut self) -> Result<Option<Message>, MailboxError> {
        let held = match &mut self.side {
            Side::Rings(rings) => match rings.look()? {
                None => rings.port.check().map(|()| None)?,
                found => found,
            },
            Side::Signals(side) => side.try_begin_get()?,
        };
        Ok(held.map(Message))
    }

    /// The next messages, `most` at most: waits for the first as `wait` says, and takes those behind it that have come. They are
    /// given back together when the burst is dropped: quicker than one by one. Of a signal-queue mailbox, each of whose messages has to
    /// be asked for, it takes one.
    ///
    /// # Errors
    /// As [`Reader::begin_get`], and then no message was taken.
    #[inline]
    pub fn get_many(&mut self, most: usize, wait: Wait) -> Result<Burst<'_>, MailboxError> {
        let mut messages = std::mem::take(&mut self.burst);
        if most > 0 {
            match self.begin_get(wait) {
                Ok(first) => messages.push(first),
                Err(error) => {
                    self.burst = messages;
                    return Err(error);
                }
            }
        }
        if let Side::Rings(rings) = &mut self.side {
            // An error is met again by the next call, which begins with it.
            while messages.len() < most
                && let Ok(Some(delivered)) = rings.next()
            {
                messages.push(Message(delivered.unclaimed()));
            }
        }
        Ok(Burst { reader: self, messages })
    }

    /// Makes a call of this reader that waits return, from another thread.
    pub fn interrupter(&self) -> Interrupter {
        match &self.side {
            Side::Rings(rings) => Interrupter::new(&rings.port.claim),
            Side::Signals(side) => side.interrupter(),
        }
    }

    /// Ends a message: its memory is released. Never waits. The same as dropping the message, but quicker; a message of another
    /// reader is released too.
    #[inline(always)]
    pub fn end_get(&mut self, message: Message) {
        match &mut self.side {
            Side::Rings(rings) => rings.end_get(message.0),
            Side::Signals(side) => side.end_get(message.0),
        }
    }

    /// Sends a message, as it is now, to a stream that this client's session publishes as number `stream`, without copying it: the
    /// daemon takes the bytes from where they lie, and then releases them. Never waits. Later packets of the session may overtake it.
    ///
    /// # Errors
    /// As [`Reader::enqueue`]; `Closed` too if the number is none of a stream's, which are below 32,768.
    #[inline]
    pub fn send(&mut self, message: Message, stream: u16) -> Result<(), MailboxError> {
        if stream & up::TO_STREAM != 0 {
            return Err(MailboxError::Closed { reason: Reason::UnknownMailbox });
        }
        self.enqueue(message, stream | up::TO_STREAM)
    }

    /// Moves a message, as it is now, to another mailbox, one that this process has open for writing as number `to`, without
    /// copying it. Never waits: the bound of the other mailbox does not delay a message that is there already.
    ///
    /// # Errors
    /// `Closed`, `Gone`; `Foreign` if the message is of another reader. It is ended then.
    #[inline]
    pub fn enqueue(&mut self, message: Message, to: u16) -> Result<(), MailboxError> {
        match &mut self.side {
            Side::Rings(rings) => rings.enqueue(message.0, to),
            Side::Signals(side) => side.enqueue(message.0, to),
        }
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.side {
            Side::Rings(rings) => f.debug_struct("Reader").field("port", &rings.port.number).finish_non_exhaustive(),
            Side::Signals(side) => f.debug_struct("Reader").field("number", &side.number).finish_non_exhaustive(),
        }
    }
}

/// Messages that were taken together ([`Reader::get_many`]), in their order. Dropping it ends them all.
pub struct Burst<'a> {
    reader: &'a mut Reader,
    messages: Vec<Message>,
}

impl Deref for Burst<'_> {
    type Target = [Message];
    #[inline]
    fn deref(&self) -> &[Message] {
        &self.messages
    }
}

impl Drop for Burst<'_> {
    #[inline]
    fn drop(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        match &mut self.reader.side {
            Side::Rings(rings) => {
                for message in messages.drain(..) {
                    rings.end_own(message.0, false);
                }
                rings.end_burst();
            }
            Side::Signals(side) => messages.drain(..).for_each(|message| side.end_get(message.0)),
        }
        self.reader.burst = messages;
    }
}

impl fmt::Debug for Burst<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Burst").field("messages", &self.len()).finish_non_exhaustive()
    }
}

/// A message being read, in place, less what [`Message::adjust`] left out.
///
/// Dropping it ends it, from any thread. [`Reader::end_get`] does the same quicker.
pub struct Message(Held);

impl Message {
    /// Leaves out `prefix` bytes at the start and `suffix` bytes at the end, without copying: for this reader, and for who gets
    /// it next if it is enqueued.
    ///
    /// # Errors
    /// `TooShort`, and nothing changes, if that is more than there is.
    #[inline]
    pub fn adjust(&mut self, prefix: usize, suffix: usize) -> Result<(), MailboxError> {
        self.0.adjust(prefix, suffix)
    }

    /// The daemon's label beside the bytes: in a session, the number of the subscription that the packet is for; 0 if it says
    /// nothing.
    #[inline]
    pub fn label(&self) -> u16 {
        self.0.label()
    }
}

impl Deref for Message {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("bytes", &self.len()).finish_non_exhaustive()
    }
}

/// A reader of a `rings` mailbox.
struct RingsReader {
    /// Its end of direct rings to the writer, if there are some.
    link: Option<Box<ReaderLink>>,
    port: Port,
}

impl RingsReader {
    /// The next message, if it is there.
    #[inline(always)]
    fn look(&mut self) -> Result<Option<Held>, MailboxError> {
        Ok(self.next()?.map(|delivered| delivered.claimed(self.port.reference())))
    }

    /// The same before the application has it.
    #[inline(always)]
    fn next(&mut self) -> Result<Option<Delivered>, MailboxError> {
        loop {
            if self.link.is_some()
                && let Some(delivered) = self.look_at_link()?
            {
                return Ok(Some(delivered));
            }
            let Some(entry) = self.port.next() else { return Ok(None) };
            if entry.op == down::MESSAGE {
                let Some(delivered) = self.port.delivered(entry) else { return Err(self.port.broken(entry)) };
                failpoint!("reader.begin_get.after_pop");
                return Ok(Some(delivered));
            }
            self.other(entry)?;
        }
    }

    /// The next message that came over the direct rings.
    #[inline(always)]
    fn look_at_link(&mut self) -> Result<Option<Delivered>, MailboxError> {
        let Some(link) = &mut self.link else { return Ok(None) };
        match link.next() {
            Ok(Some(entry)) => match self.port.delivered_directly(entry) {
                Some(delivered) => Ok(Some(delivered)),
                None => Err(self.spoil()),
            },
            Ok(None) => {
                if link.is_over() {
                    self.end_link();
                }
                Ok(None)
            }
            Err(()) => Err(self.spoil()),
        }
    }

    /// Lets go of direct rings that are over, once nothing that came over them is in hand.
    #[cold]
    fn end_link(&mut self) {
        let dropped = self.port.claim.dropped.load(Ordering::Acquire);
        if self.link.take_if(|link| link.is_done(dropped)).is_some() {
            self.port.report_done();
        }
    }

    #[cold]
    fn spoil(&mut self) -> MailboxError {
        self.link = None;
        self.port.spoil()
    }

    #[cold]
    fn other(&mut self, entry: Descriptor) -> Result<(), MailboxError> {
        match (entry.op, &mut self.link) {
            (down::CLOSED, _) => return Err(self.port.close(entry)),
            (down::DIRECT, None) if self.port.claim.number().is_some() => {
                let (claim, number) = (&self.port.claim, self.port.number);
                let (inner, dropped) = (&claim.inner, claim.dropped.load(Ordering::Acquire));
                let link = ReaderLink::new(&inner.memory.shared, &inner.watch, number, &entry, dropped);
                self.link = Some(Box::new(link.ok_or_else(|| self.port.broken(entry))?));
                failpoint!("direct.reader.begun");
            }
            (down::DIRECT_END, Some(link)) => link.note_over(),
            (down::DIRECT_PAUSE, Some(link)) => link.note_pause(),
            _ => {
                // After what the writer spoilt, what the core still says of the direct rings means nothing.
                self.port.check()?;
                return Err(self.port.broken(entry));
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn begin_get(&mut self, wait: Wait) -> Result<Held, MailboxError> {
        self.port.check()?;
        // The usual answer is there before a count of references would be.
        for _ in 0..FIRST_LOOKS {
            if let Some(held) = self.look()? {
                return Ok(held);
            }
        }
        let claim = self.port.claim.clone();
        let inner = &claim.inner;
        let interrupt = &claim.interrupt;
        let held = inner.watch.wait_for(&inner.arrivals, wait, Some(interrupt), || self.look());
        held.map_err(|error| interrupt.name(error))
    }

    #[inline(always)]
    fn end_get(&mut self, held: Held) {
        if held.is_of(&self.port.claim) {
            self.end_own(held, true);
            self.port.ring();
        }
        // The drop of another reader's knows where it belongs.
    }

    /// Gives back what [`RingsReader::end_own`] has kept of several messages, and rings the core.
    #[inline(always)]
    fn end_burst(&mut self) {
        if let Some(link) = &mut self.link {
            if link.end_burst() {
                self.port.wake_peer();
            }
            if link.is_over() {
                self.end_link();
            }
        }
        self.port.ring();
    }

    /// Ends a message of this reader, alone or together with others. A ring follows, after the last of those.
    #[inline(always)]
    fn end_own(&mut self, held: Held, is_alone: bool) {
        failpoint!("reader.end_get.before_push");
        let whole_len = held.whole_len();
        let (entry, claim) = held.into_entry(up::FREE, 0);
        match &mut self.link {
            Some(link) if is_of_peer(entry.slot) => {
                let wakes = match is_alone {
                    true => link.end(entry, whole_len),
                    false => link.end_one_of_many(entry.slot, whole_len),
                };
                if wakes {
                    self.port.wake_peer();
                }
                if is_alone && link.is_over() {
                    self.end_link();
                }
            }
            // The direct rings were spoilt, and what came over them is the writer's.
            None if is_of_peer(entry.slot) => {}
            _ => self.port.push_one_of_many(entry),
        }
        failpoint!("reader.end_get.after_push");
        self.port.keep(claim);
    }

    #[inline(always)]
    fn enqueue(&mut self, held: Held, to: u16) -> Result<(), MailboxError> {
        if !held.is_of(&self.port.claim) {
            return Err(MailboxError::Foreign);
        }
        self.port.check()?;
        failpoint!("reader.enqueue.before_push");
        let whole_len = held.whole_len();
        let (entry, claim) = held.into_entry(up::ENQUEUE, to);
        if let Some(link) = &mut self.link
            && is_of_peer(entry.slot)
        {
            link.count(whole_len);
        }
        self.port.pass(entry);
        failpoint!("reader.enqueue.after_push");
        self.port.keep(claim);
        Ok(())
    }
}
