//! Host conditions on the client's side (Nectar paper, 3.2): a poll value that every signal moves on.

use super::error::MailboxError;
use super::inner::Inner;
use super::wait::Wait;
use crate::failpoint::failpoint;
use crate::shared::{CONDITIONS, ConditionAddress, Descriptor, FREE_CONDITION, HostCondition, Signal, up};
use std::fmt;
use std::sync::{Arc, PoisonError};

/// A host condition of this process: it, other processes of the domain and the core signal it; threads of this process wait for it.
///
/// Dropping it frees it; who signals it afterwards disturbs at most the next user of its place.
pub struct Condition {
    inner: Arc<Inner>,
    index: u16,
}

impl Condition {
    pub(crate) fn alloc(inner: &Arc<Inner>) -> Result<Condition, MailboxError> {
        let most = CONDITIONS - usize::from(FREE_CONDITION);
        let index = inner.conditions.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Ok(Condition { inner: inner.clone(), index: index.ok_or(MailboxError::NoConditions { most })? })
    }

    /// The condition's name, by which the core or another process signals it ([`super::Attachment::signal`]).
    pub fn address(&self) -> ConditionAddress {
        ConditionAddress { client: self.inner.client, index: self.index }
    }

    /// The poll value: another one after each signal. It wraps, and starts anywhere.
    pub fn value(&self) -> u32 {
        self.shared().map_or(0, HostCondition::value)
    }

    /// Waits until the poll value is no longer `seen`, and says what it is then.
    ///
    /// # Errors
    /// `TimedOut`, `Gone`.
    pub fn wait(&self, seen: u32, wait: Wait) -> Result<u32, MailboxError> {
        let Some(shared) = self.shared() else { return Err(self.inner.watch.gone()) };
        self.inner.watch.wait_for(shared, wait, None, || {
            failpoint!("condition.wait.before_look");
            let value = shared.value();
            match value != seen {
                // The end of the attachment moves it on too.
                true if self.inner.watch.is_gone() => Err(self.inner.watch.gone()),
                true => Ok(Some(value)),
                false => Ok(None),
            }
        })
    }

    /// Signals it: moves the poll value on and wakes who waits.
    pub fn signal(&self) {
        if let Some(shared) = self.shared() {
            shared.signal();
        }
    }

    fn shared(&self) -> Option<&HostCondition> {
        let shared = self.inner.watch.condition(self.index.into());
        debug_assert!(shared.is_some(), "a client's free conditions are among those that it has");
        shared
    }
}

impl Drop for Condition {
    fn drop(&mut self) {
        self.inner.conditions.lock().unwrap_or_else(PoisonError::into_inner).push(self.index);
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condition").field("address", &self.address()).field("value", &self.value()).finish()
    }
}

impl Inner {
    /// Signals a condition: this process's own at once, another one's by the core.
    pub(crate) fn signal(&self, address: ConditionAddress) -> Result<(), MailboxError> {
        if address.client == self.client {
            if let Some(shared) = self.watch.condition(address.index.into()) {
                shared.signal();
            }
            return Ok(());
        }
        failpoint!("condition.signal.before_push");
        let head = Descriptor { op: up::SIGNAL, ..Descriptor::default() };
        let sent = self.send(Signal { head, a: address.to_word(), b: 0 });
        failpoint!("condition.signal.after_push");
        sent
    }
}
