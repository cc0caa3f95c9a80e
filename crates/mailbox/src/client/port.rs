//! A port: a pair of rings of this attachment that one writer or reader owns.

use super::claim::Claim;
use super::error::MailboxError;
use super::held::{Delivered, Granted};
use super::inner::Inner;
use crate::failpoint::failpoint;
use crate::shared::{
    Call, ControlLayout, Descriptor, PORT_ENTRIES, PORTS, Passed, Reason, RingReader, RingWriter, SLOTS, Signal,
};
use std::sync::Arc;

/// A port in use: its two rings, and what its owner needs for each message.
pub(crate) struct Port {
    pub(crate) number: u16,
    pub(crate) claim: Arc<Claim>,
    up: RingWriter<Descriptor>,
    down: RingReader<Descriptor>,
    /// The last of the core's sleeps that this port rang in.
    rung: u64,
    /// References to the claim that messages in the application's hands take with them and bring back: so no count is touched
    /// for a message. As many as there were ever out at a time.
    spare: Vec<Arc<Claim>>,
    /// Why the mailbox is gone, if it is.
    closed: Option<Reason>,
}

impl Port {
    /// Takes port `number`, whose rings the daemon has cleared when it opened the mailbox (or made, for a session).
    ///
    /// # Errors
    /// There is no such port, or it is taken.
    pub(crate) fn take(inner: &Arc<Inner>, mailbox: Option<u16>, number: u16) -> Result<Port, MailboxError> {
        if !inner.ports.claim(number) {
            return Err(MailboxError::PortTaken { port: number });
        }
        failpoint!("port.taken");
        let (up_at, down_at) = (ControlLayout::port_up(number.into()), ControlLayout::port_down(number.into()));
        let up = RingWriter::new(&inner.control, up_at, PORT_ENTRIES);
        let down = RingReader::new(&inner.control, down_at, PORT_ENTRIES);
        let (Some(up), Some(down)) = (up, down) else {
            return Err(inner.broken("its control segment is too short for the rings"));
        };
        inner.tidy_lane();
        let claim = Claim::new(inner, mailbox, Some(number));
        Ok(Port { number, claim, up, down, rung: 0, spare: Vec::with_capacity(SLOTS), closed: None })
    }

    /// Sends one entry to the core.
    #[inline(always)]
    pub(crate) fn push(&mut self, entry: Descriptor) {
        self.up.push(entry);
        self.ring();
    }

    /// Sends one of many entries, which the core may take at once; the last of them is followed by [`Port::ring`].
    #[inline(always)]
    pub(crate) fn push_one_of_many(&mut self, entry: Descriptor) {
        self.up.push(entry);
    }

    /// Rings the core, if it sleeps.
    #[inline(always)]
    pub(crate) fn ring(&mut self) {
        self.claim.inner.bell.ring_if_asleep(&mut self.rung);
    }

    /// Sends what goes to a mailbox: over the lane, if that is this process's to use now. Whether it is.
    #[inline(always)]
    pub(crate) fn pass(&mut self, entry: Descriptor) -> bool {
        let signal = Signal { head: entry, ..Signal::default() };
        let passed = Passed { signal, port: self.number, after: self.up.position() as u32 };
        let is_passed = self.claim.inner.lane.pass(&passed);
        if !is_passed {
            self.up.push(entry);
        }
        self.claim.inner.bell.ring_if_asleep(&mut self.rung);
        is_passed
    }

    /// Entries sent to the core so far.
    #[inline]
    pub(crate) fn pushed(&self) -> u64 {
        self.up.position()
    }

    /// The next entry from the core.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<Descriptor> {
        self.down.pop()
    }

    /// The next entry from the core, for a port whose messages may come over the lane.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<Descriptor> {
        // Before the lane: what was passed before this entry was written is seen there then.
        let is_ready = self.down.is_ready();
        let Some(offer) = self.claim.inner.lane.peek() else {
            if is_ready {
                return self.down.pop();
            }
            self.claim.inner.lane.pause();
            return None;
        };
        let Passed { signal, port, after } = offer.passed;
        if port != self.number {
            if usize::from(port) >= PORTS {
                self.claim.inner.tidy_lane();
            }
            return if is_ready { self.down.pop() } else { None };
        }
        if after != self.down.position() as u32 {
            return self.down.pop();
        }
        self.claim.inner.lane.accept(&offer);
        Some(signal.head)
    }

    /// A reference for a message to take with it.
    #[inline(always)]
    pub(crate) fn reference(&mut self) -> Arc<Claim> {
        match self.spare.pop() {
            Some(reference) => reference,
            None => self.claim.clone(),
        }
    }

    /// A reference that a message brings back.
    #[inline(always)]
    pub(crate) fn keep(&mut self, reference: Option<Arc<Claim>>) {
        if let Some(reference) = reference
            && self.spare.len() < self.spare.capacity()
        {
            self.spare.push(reference);
        }
    }

    /// Takes in what a GRANT names.
    #[inline(always)]
    pub(crate) fn granted(&self, entry: Descriptor) -> Option<Granted> {
        if usize::from(entry.slot) >= SLOTS {
            return None;
        }
        self.claim.records.granted(&self.claim.inner.memory, entry)
    }

    /// Takes in what a MESSAGE of the core's names.
    #[inline(always)]
    pub(crate) fn delivered(&self, entry: Descriptor) -> Option<Delivered> {
        if usize::from(entry.slot) >= SLOTS {
            return None;
        }
        self.delivered_directly(entry)
    }

    /// Takes in what a MESSAGE names, of the core's or of the other end of direct rings.
    #[inline(always)]
    pub(crate) fn delivered_directly(&self, entry: Descriptor) -> Option<Delivered> {
        self.claim.records.delivered(&self.claim.inner.memory, entry)
    }

    /// An error if the mailbox or the daemon is known to be gone.
    #[inline(always)]
    pub(crate) fn check(&self) -> Result<(), MailboxError> {
        if self.closed.is_none() && !self.claim.inner.watch.is_gone() {
            return Ok(());
        }
        match self.closed {
            Some(reason) => Err(MailboxError::Closed { reason }),
            None => Err(self.claim.inner.watch.gone()),
        }
    }

    /// Notes a CLOSED.
    #[cold]
    pub(crate) fn close(&mut self, entry: Descriptor) -> MailboxError {
        let reason = Reason::from_code(entry.target).unwrap_or(Reason::Closed);
        self.closed = Some(reason);
        MailboxError::Closed { reason }
    }

    /// Takes in a slot again that the other end of direct rings gave back.
    #[inline(always)]
    pub(crate) fn granted_again(&self, slot: u16, generation: u16) -> Option<Granted> {
        self.claim.records.granted_again(&self.claim.inner.memory, slot, generation)
    }

    /// Has the core wake the other end of this port's direct rings.
    #[cold]
    pub(crate) fn wake_peer(&mut self) {
        failpoint!("direct.wake.before_call");
        self.call(Call::Wake);
    }

    /// Reports to the core that the direct rings, which are over, are not used here any more.
    #[cold]
    pub(crate) fn report_done(&mut self) {
        failpoint!("direct.done.before_call");
        self.call(Call::Done);
    }

    /// Waits for nobody. If the daemon is gone, nobody sleeps on.
    fn call(&mut self, call: Call) {
        self.claim.inner.lane.call(call, self.number);
        self.ring();
    }

    /// Takes in what one of the slots of a REGRANT is.
    #[inline(always)]
    pub(crate) fn regranted(&self, slot: u16) -> Option<Granted> {
        self.claim.records.regranted(&self.claim.inner.memory, slot)
    }

    /// Notes that the other end of direct rings wrote there what cannot be.
    #[cold]
    pub(crate) fn spoil(&mut self) -> MailboxError {
        self.closed = Some(Reason::Violation);
        MailboxError::Closed { reason: Reason::Violation }
    }

    /// Notes an entry that no daemon sends.
    #[cold]
    pub(crate) fn broken(&self, entry: Descriptor) -> MailboxError {
        self.claim.inner.broken(&format!("port {} had {entry:?}", self.number))
    }
}
