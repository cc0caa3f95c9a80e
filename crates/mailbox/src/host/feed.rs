//! Giving clients what they are due: buffers to writers, messages that had to wait to readers, and wake-ups.

use super::HostInterface;
use super::client::Hold;
use super::mailbox::PortKey;
use crate::shared::{Descriptor, Reason, SIGNALS, down};
use crate::sync::{Ordering, fence};

/// How many ports that wait for something to be freed are retried at a time.
const RETRIED: usize = 8;

impl HostInterface {
    /// Gives hungry ports what they are due, and if something was freed, tries again those that could not be given it.
    #[inline]
    pub(super) fn feed(&mut self) {
        let has_waiting = !(self.waiting.is_empty() && self.stuck.is_empty());
        if !self.hungry.is_empty() || (has_waiting && (self.freed || self.to_retry > 0)) {
            self.feed_hungry();
        }
    }

    fn feed_hungry(&mut self) {
        self.retry();
        while let Some(key) = self.hungry.pop() {
            let fed = match key.port {
                // Its mailboxes may have room, or not: taken for the worse.
                SIGNALS => self.feed_signals(key.client).then_some(()).ok_or(Reason::NoBuffers),
                _ => self.feed_port(key),
            };
            if let Err(reason) = fed {
                self.is_short |= reason != Reason::Full;
                self.waiting.push_back(key);
            }
        }
    }

    /// Gives every writer all that it is to have ahead: nothing is gained by keeping it back from a core at rest.
    pub(super) fn top_up(&mut self) {
        self.refill_below();
        self.feed();
        while self.to_retry > 0 {
            self.feed_hungry();
        }
        self.end_turn();
    }

    /// Has the ports that have few grants, or were not notified of the last ones, looked at.
    pub(super) fn refill_below(&mut self) {
        self.until_refill = super::REFILL_TURNS;
        for key in std::mem::take(&mut self.below) {
            let Some(port) = self.clients.port_at(key) else { continue };
            port.is_below = false;
            if std::mem::take(&mut port.is_unreported) {
                self.notify(key.client);
            }
            self.make_hungry(key);
        }
    }

    /// After something was freed: has those that wait looked at again, a few at a time, so that others' messages do not pay for
    /// all of them.
    fn retry(&mut self) {
        if std::mem::take(&mut self.freed) {
            self.is_short = false;
            self.to_retry = self.waiting.len();
            for mailbox in std::mem::take(&mut self.stuck) {
                self.pump(mailbox);
            }
        }
        let some = self.to_retry.min(RETRIED).min(self.waiting.len());
        self.to_retry = if some < RETRIED { 0 } else { self.to_retry - some };
        self.hungry.extend(self.waiting.drain(..some));
    }

    /// Grants a writer's port what it waits for, and what it is to have ahead.
    ///
    /// # Errors
    /// Why it is not given all that it is due; it stays hungry then.
    fn feed_port(&mut self, key: PortKey) -> Result<(), Reason> {
        loop {
            let Some(port) = self.clients.port_at(key) else { return Ok(()) };
            let request = port.requests.front().copied();
            let (bytes, count) = match request {
                Some(bytes) => (bytes, 1),
                None => (port.grant_bytes, port.ahead.saturating_sub(port.slots.granted())),
            };
            if count == 0 && port.direct.wants_more && self.grow_direct(key)? {
                continue;
            }
            let Some(port) = self.clients.port_at(key) else { return Ok(()) };
            if count == 0 {
                port.is_hungry = false;
                return Ok(());
            }
            if let Err(reason) = self.grant(key, bytes, count) {
                self.note_wait(key, reason);
                return if reason == Reason::Closed { Ok(()) } else { Err(reason) };
            }
            if request.is_some()
                && let Some(port) = self.clients.present_port(key)
            {
                port.requests.pop_front();
            }
        }
    }

    /// Counts that a writer is left without a buffer, if it has none.
    fn note_wait(&mut self, key: PortKey, reason: Reason) {
        let Some(client) = self.clients.present(key.client) else { return };
        let Some(port) = client.present_port(key.port) else { return };
        if port.slots.granted() > 0 && port.requests.is_empty() {
            return;
        }
        let mailbox = port.mailbox;
        if std::mem::replace(&mut port.is_wait_noted, true) {
            return;
        }
        client.waits += 1;
        if reason == Reason::Full
            && let Some(mailbox) = self.mailbox_mut(mailbox)
        {
            mailbox.counters.waits += 1;
        }
    }

    /// Withholds new buffers from a client's session, or gives them again: backpressure on a publisher.
    pub fn hold(&mut self, client: super::ClientKey, hold: Hold) {
        let Some(entry) = self.client_mut(client) else { return };
        if std::mem::replace(&mut entry.hold, hold) != hold && hold != Hold::All {
            self.freed = true;
        }
    }

    /// Bounds what a client's session has before it at a time, in bytes (one message in any case): what waits beyond that can still
    /// be dropped for it.
    pub fn limit_session(&mut self, client: super::ClientKey, bytes: u64) {
        let Some(client) = self.client_mut(client) else { return };
        if let Some(port) = client.present_port(super::client::SESSION_IN) {
            port.deliver_bytes = bytes.min(super::lifetime::DELIVER_BYTES);
        }
    }

    /// Wakes those that sleep and were given something.
    pub(super) fn wake_notified(&mut self) {
        let mut notified = std::mem::take(&mut self.notified);
        // All that was published for them comes before the looks below; one fence for all.
        fence(Ordering::SeqCst);
        for index in notified.drain(..) {
            if let Some(client) = self.clients.at_mut(index) {
                (client.is_notified, client.is_woken) = (false, false);
                client.wake_if_asleep();
            }
        }
        self.notified = notified;
        self.has_given = false;
    }

    /// The same without the fence, and without forgetting which ports were given something. Whether any client was woken since that.
    #[inline]
    pub(super) fn wake_sleepers(&mut self) -> bool {
        let mut is_any_woken = false;
        for &index in &self.notified {
            if let Some(client) = self.clients.at_mut(index) {
                // Once: it takes a while until it runs, or it may only say that it sleeps.
                if !client.is_woken {
                    client.is_woken = client.wake_if_asleep();
                }
                is_any_woken |= client.is_woken;
            }
        }
        is_any_woken
    }

    /// Notifies a port's client that its mailbox is gone, unless that is because the client has left.
    pub(super) fn notify_closed(&mut self, key: PortKey, reason: Reason) {
        let Some(port) = self.clients.port_at(key) else { return };
        port.down.push(Descriptor { op: down::CLOSED, target: reason as u16, ..Descriptor::default() });
        self.notify(key.client);
    }
}
