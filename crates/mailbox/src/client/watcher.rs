//! The end of an attachment, noticed: a thread that sleeps on the socket until it hangs up.

use super::error::MailboxError;
use crate::shared::HostCondition;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The longest reason that a daemon gives, in bytes.
const MOST_REASON_BYTES: usize = 512;

/// Whether an attachment still is, and all that sleep in it.
pub(crate) struct Watch {
    socket: OwnedFd,
    conditions: Vec<HostCondition>,
    gone: AtomicBool,
    reason: OnceLock<Arc<str>>,
}

impl Watch {
    pub(crate) fn new(socket: OwnedFd, conditions: Vec<HostCondition>) -> Watch {
        Watch { socket, conditions, gone: AtomicBool::new(false), reason: OnceLock::new() }
    }

    /// Whether the attachment is over.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Why it is over, as an error.
    #[cold]
    pub(crate) fn gone(&self) -> MailboxError {
        MailboxError::Gone { reason: self.reason.get().cloned().unwrap_or_else(|| Arc::from("it is not attached")) }
    }

    /// Host condition `index`.
    #[inline]
    pub(crate) fn condition(&self, index: usize) -> Option<&HostCondition> {
        self.conditions.get(index)
    }

    /// Ends it: says why, if nothing was said yet, and wakes all who sleep.
    #[cold]
    pub(crate) fn end(&self, reason: &str) {
        self.reason.get_or_init(|| Arc::from(reason));
        self.gone.store(true, Ordering::Release);
        // The daemon sees it at once, and takes back what this process had.
        let _closed = shutdown(&self.socket, Shutdown::Both);
        for condition in &self.conditions {
            condition.signal();
        }
    }

    /// Sleeps until the daemon hangs up, or [`Watch::end`] was called. What the daemon says last is its reason.
    pub(crate) fn run(&self) {
        let mut said = None;
        loop {
            let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut polled, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return self.end(&format!("its socket cannot be watched: {error}")),
            }
            let mut text = [0; MOST_REASON_BYTES];
            match recv(&self.socket, &mut text, RecvFlags::DONTWAIT) {
                Ok((_, bytes)) if bytes > 0 => {
                    let text = text.get(..bytes.min(MOST_REASON_BYTES)).unwrap_or_default();
                    said = Some(String::from_utf8_lossy(text).into_owned());
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Ok(_) | Err(_) => {
                    return self.end(said.as_deref().unwrap_or("the daemon ended, or ended the attachment"));
                }
            }
        }
    }
}
