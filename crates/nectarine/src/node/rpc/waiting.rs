//! One thread that waits for several mailboxes of its node at once, by shared memory or packets.

use super::super::carried::Carried;
use super::super::session::NodeSession;
use crate::client::{Client, Interrupter};
use crate::error::Error;
use crate::shared::Inner;
use crossdock_mailbox::client::{Attachment, MailboxError, Wait};
use std::sync::Arc;
use std::time::Instant;

/// The condition that a thread waits for.
pub(super) trait Awaited {
    /// Takes what has come, and waits for nobody; whether there is anything to do now.
    fn take_in(&mut self) -> bool;

    /// Over packets: whether there is anything for [`Awaited::take_in`], for a thread that has the link.
    fn is_due(&self, inner: &mut Inner) -> bool;
}

/// How a thread waits.
pub(super) struct Waiting(Carried<Attachment, Client>);

impl Waiting {
    /// # Errors
    /// The connection is gone, or the kernel has no more descriptors.
    pub(super) fn new(session: &Arc<NodeSession>) -> Result<Waiting, Error> {
        match session.attachment("") {
            Ok(attachment) => Ok(Waiting(Carried::Memory(attachment))),
            Err(Error::NotLocal { .. }) => Ok(Waiting(Carried::Packets(session.client().join()?))),
            Err(error) => Err(error),
        }
    }

    /// The handle that makes this thread look again.
    pub(super) fn wakener(&self) -> Wakener {
        Wakener(match &self.0 {
            Carried::Memory(attachment) => Carried::Memory(attachment.clone()),
            Carried::Packets(client) => Carried::Packets(client.interrupter()),
        })
    }

    /// Waits until there is anything to do; asleep, once it has looked for a few microseconds. `false` when it is `until`.
    ///
    /// # Errors
    /// The connection is gone.
    #[inline]
    pub(super) fn wait(&mut self, until: Option<Instant>, awaited: &mut impl Awaited) -> Result<bool, Error> {
        match &mut self.0 {
            Carried::Memory(attachment) => {
                let wait = until.map_or(Wait::Block, Wait::Until);
                match attachment.wait_until(wait, || awaited.take_in().then_some(())) {
                    Ok(()) => Ok(true),
                    Err(MailboxError::TimedOut) => Ok(false),
                    Err(error) => Err(error.into()),
                }
            }
            Carried::Packets(client) => loop {
                if awaited.take_in() {
                    return Ok(true);
                }
                let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
                match client.wait(timeout, |inner| awaited.is_due(inner).then_some(())) {
                    Ok(Some(())) | Err(Error::Interrupted) => {}
                    Ok(None) => return Ok(false),
                    Err(error) => return Err(error),
                }
            },
        }
    }
}

/// Makes a thread that waits look again, from another thread.
pub(super) struct Wakener(Carried<Attachment, Interrupter>);

impl Wakener {
    pub(super) fn wake(&self) {
        match &self.0 {
            Carried::Memory(attachment) => attachment.wake(),
            Carried::Packets(interrupter) => interrupter.interrupt(),
        }
    }
}
