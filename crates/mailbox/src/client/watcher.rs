//! The end of an attachment, noticed: a thread that sleeps on the socket until it hangs up.

use super::error::MailboxError;
use super::wait::WaitsAt;
use crate::attach::Farewell;
use crate::shared::{HostCondition, SleepFlag, this_thread};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The longest farewell of a daemon, in bytes.
const MOST_FAREWELL_BYTES: usize = 512;

/// Whether an attachment still is, and all that sleep in it.
pub(crate) struct Watch {
    socket: OwnedFd,
    conditions: Vec<HostCondition>,
    gone: AtomicBool,
    end: OnceLock<(Arc<str>, bool)>,
    /// By which the other ends of direct rings know that this one sleeps.
    sleeps: Mutex<Vec<Sleep>>,
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
        let looker = Arc::new(AtomicU64::new(0));
        let mut sleeps = self.sleeps.lock().unwrap_or_else(PoisonError::into_inner);
        sleeps.retain(|sleep| sleep.port != port);
        sleeps.push(Sleep { port, looker: looker.clone(), flag });
        Sleeper { watch: self.clone(), port, looker }
    }

    /// A call that waits at these places is about to sleep: it looks once more after this.
    #[cold]
    pub(crate) fn fall_asleep(&self, at: WaitsAt) {
        let sleeps = self.sleeps.lock().unwrap_or_else(PoisonError::into_inner);
        SleepFlag::fall_asleep(sleeps.iter().filter(|sleep| sleep.is_at(at)).map(|sleep| &sleep.flag));
    }

    /// Whether it is to be woken already, or has looked for the first time at one of them.
    #[cold]
    pub(crate) fn is_called(&self, at: WaitsAt) -> bool {
        let sleeps = self.sleeps.lock().unwrap_or_else(PoisonError::into_inner);
        sleeps.iter().any(|sleep| sleep.is_at(at) && sleep.flag.is_called())
    }

    /// It looks by itself again.
    #[cold]
    pub(crate) fn wake_up(&self, at: WaitsAt) {
        let sleeps = self.sleeps.lock().unwrap_or_else(PoisonError::into_inner);
        sleeps.iter().filter(|sleep| sleep.is_at(at)).for_each(|sleep| sleep.flag.wake_up());
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

/// One end of direct rings, where it says that it sleeps.
struct Sleep {
    port: u16,
    /// The thread that last looked there in vain.
    looker: Arc<AtomicU64>,
    flag: SleepFlag,
}

impl Sleep {
    /// Whether the calling thread waits here.
    fn is_at(&self, at: WaitsAt) -> bool {
        match at {
            WaitsAt::NoPort => false,
            WaitsAt::Port(port) => port == self.port,
            WaitsAt::OwnPorts => self.looker.load(Ordering::Relaxed) == this_thread(),
            WaitsAt::AllPorts => true,
        }
    }
}

/// A port's direct rings, noted. Once it is dropped nothing is written to their block any more by calls that sleep.
pub(crate) struct Sleeper {
    watch: Arc<Watch>,
    port: u16,
    looker: Arc<AtomicU64>,
}

impl Sleeper {
    /// The calling thread has found nothing there: if it waits for several ports at once, this is one of them.
    #[inline(always)]
    pub(crate) fn note_look(&self) {
        self.looker.store(this_thread(), Ordering::Relaxed);
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let mut sleeps = self.watch.sleeps.lock().unwrap_or_else(PoisonError::into_inner);
        sleeps.retain(|sleep| sleep.port != self.port);
    }
}
