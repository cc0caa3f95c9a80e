//! The end of an attachment, noticed: a thread that sleeps on the socket until it hangs up.

use super::error::MailboxError;
use crate::attach::Farewell;
use crate::shared::{HostCondition, SleepFlag};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The longest farewell of a daemon, in bytes.
const MOST_FAREWELL_BYTES: usize = 512;

/// Whether an attachment still is, and all that sleep in it.
pub(crate) struct Watch {
    socket: OwnedFd,
    conditions: Vec<HostCondition>,
    gone: AtomicBool,
    end: OnceLock<(Arc<str>, bool)>,
    /// By which the other ends of direct rings know that this one sleeps, with their ports.
    sleeps: Mutex<Vec<(u16, SleepFlag)>>,
}

impl Watch {
    pub(crate) fn new(socket: OwnedFd, conditions: Vec<HostCondition>) -> Watch {
        Watch { socket, conditions, gone: AtomicBool::new(false), end: OnceLock::new(), sleeps: Mutex::default() }
    }

    /// Whether the attachment is over.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Why it is over, as an error.
    #[cold]
    pub(crate) fn gone(&self) -> MailboxError {
        let (reason, again) = self.end.get().cloned().unwrap_or_else(|| (Arc::from("it never began"), false));
        MailboxError::Gone { reason, again }
    }

    /// Notes a port's direct rings, for as long as the value lives. A caller that waits at it may be about to sleep: it says so at
    /// once.
    pub(crate) fn note_sleeper(self: &Arc<Watch>, port: u16, flag: SleepFlag) -> Sleeper {
        SleepFlag::fall_asleep([&flag].into_iter());
        let mut sleeps = self.sleeps.lock().unwrap_or_else(PoisonError::into_inner);
        sleeps.retain(|(other, _)| *other != port);
        sleeps.push((port, flag));
        Sleeper { watch: self.clone(), port }
    }

    /// A call that waits at the port that `is_meant` is about to sleep: it looks once more after this.
    #[cold]
    pub(crate) fn fall_asleep(&self, is_meant: impl Fn(u16) -> bool) {
        let sleeps = self.sleeps.lock().unwrap_or_else(PoisonError::into_inner);
        SleepFlag::fall_asleep(sleeps.iter().filter(|(port, _)| is_meant(*port)).map(|(_, flag)| flag));
    }

    /// Whether it is to be woken already.
    #[cold]
    pub(crate) fn is_called(&self, is_meant: impl Fn(u16) -> bool) -> bool {
        let sleeps = self.sleeps.lock().unwrap_or_else(PoisonError::into_inner);
        sleeps.iter().any(|(port, flag)| is_meant(*port) && flag.is_called())
    }

    /// It looks by itself again.
    #[cold]
    pub(crate) fn wake_up(&self, is_meant: impl Fn(u16) -> bool) {
        let sleeps = self.sleeps.lock().unwrap_or_else(PoisonError::into_inner);
        sleeps.iter().filter(|(port, _)| is_meant(*port)).for_each(|(_, flag)| flag.wake_up());
    }

    /// Host condition `index`.
    #[inline]
    pub(crate) fn condition(&self, index: usize) -> Option<&HostCondition> {
        self.conditions.get(index)
    }

    /// Ends it: says why, and whether it makes sense to attach again, if nothing was said yet; and wakes all who sleep.
    #[cold]
    pub(crate) fn end(&self, reason: &str, again: bool) {
        self.end.get_or_init(|| (Arc::from(reason), again));
        self.gone.store(true, Ordering::Release);
        for condition in &self.conditions {
            condition.signal();
        }
    }

    /// Notifies the daemon that nothing of its memory is in use here any more. Not before: a daemon that lives on hands it to others.
    pub(crate) fn hang_up(&self) {
        let _closed = shutdown(&self.socket, Shutdown::Both);
    }

    /// Sleeps until the daemon says farewell or hangs up, or [`Watch::hang_up`] was called.
    pub(crate) fn run(&self) {
        loop {
            let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
            match poll(&mut polled, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return self.end(&format!("its socket cannot be watched: {error}"), true),
            }
            let mut packet = [0; MOST_FAREWELL_BYTES];
            match recv(&self.socket, &mut packet, RecvFlags::DONTWAIT) {
                Ok((_, bytes)) if bytes > 0 => {
                    if let Some(said) = packet.get(..bytes).and_then(Farewell::decode) {
                        return self.end(&said.reason, said.again);
                    }
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Ok(_) | Err(_) => return self.end("the daemon ended without a word", true),
            }
        }
    }
}

/// A port's direct rings, noted. Once it is dropped nothing is written to their block any more by calls that sleep.
pub(crate) struct Sleeper {
    watch: Arc<Watch>,
    port: u16,
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let mut sleeps = self.watch.sleeps.lock().unwrap_or_else(PoisonError::into_inner);
        sleeps.retain(|(port, _)| *port != self.port);
    }
}
