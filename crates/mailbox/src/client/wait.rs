//! How long to wait, and how: by looking again, or asleep.

use super::error::MailboxError;
use super::watcher::Watch;
use crate::failpoint::failpoint;
use crate::shared::{HostCondition, Woken};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How a call waits for what is not there yet (Nectar paper, 3.2: "using either polling or blocking").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Looks again and again, and never sleeps: the least delay, for a whole core.
    Poll,
    /// Looks for a few microseconds, lets others run a few times, and then sleeps until woken: costs nothing while nothing
    /// comes.
    Block,
    /// As [`Wait::Block`], and gives up at that time. One that has passed already means one look.
    Until(Instant),
}

impl Wait {
    /// [`Wait::Until`] that much later than now; [`Wait::Block`] if that is later than can be said.
    pub fn at_most(timeout: Duration) -> Wait {
        Instant::now().checked_add(timeout).map_or(Wait::Block, Wait::Until)
    }
}

/// Looks between two of the checks that cost more than a look. A look pauses only while an answer is to come over the lane
/// ([`crate::shared::ClientLane::pause`]): on many processors a pause takes as long as a message is under way.
const LOOKS: u32 = 64;
/// How long to look before letting others run: a few times what a round trip to a core that is awake takes.
const SPIN: Duration = Duration::from_micros(5);
/// How often to let others run before sleeping: on a machine with few cores the other side may need this one.
const YIELDS: u32 = 4;

/// The ports that a wait is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitsAt {
    /// None: for what comes over the signal queue.
    NoPort,
    /// This one.
    Port(u16),
    /// Those that the calling thread looks at: others are other threads' to wait at, who would be woken by each message there.
    OwnPorts,
    /// Any of the attachment's.
    AllPorts,
}

/// Whether a wait is to end before its time.
#[derive(Debug)]
pub(crate) struct Interrupt {
    is_set: AtomicBool,
    at: WaitsAt,
}

impl Interrupt {
    /// That of the waits at these ports.
    pub(crate) fn of(at: WaitsAt) -> Interrupt {
        Interrupt { is_set: AtomicBool::new(false), at }
    }

    /// Ends the wait that is, or the next one; who sleeps must be woken after this.
    pub(crate) fn set(&self) {
        self.is_set.store(true, Ordering::SeqCst);
    }

    /// No wait is to end.
    pub(crate) fn clear(&self) {
        self.is_set.store(false, Ordering::SeqCst);
    }

    /// Whether it is set.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::SeqCst)
    }

    /// The error of a call that gave up waiting: it is asked for once for each time that it was set.
    #[cold]
    pub(crate) fn name(&self, error: MailboxError) -> MailboxError {
        if error == MailboxError::TimedOut && self.is_set.swap(false, Ordering::SeqCst) {
            return MailboxError::Interrupted;
        }
        error
    }
}

impl Watch {
    /// Calls `look` until it gives something, as `wait` says, asleep on `condition`.
    ///
    /// # Errors
    /// Those of `look`; `TimedOut`, also when it is interrupted; `Gone`, but only after a last look, so that what came before the
    /// end is still had.
    #[inline]
    pub(crate) fn wait_for<T>(
        &self,
        condition: &HostCondition,
        wait: Wait,
        interrupt: Option<&Interrupt>,
        mut look: impl FnMut() -> Result<Option<T>, MailboxError>,
    ) -> Result<T, MailboxError> {
        match look()? {
            Some(found) => Ok(found),
            None => self.wait_longer(condition, wait, interrupt, &mut look),
        }
    }

    fn wait_longer<T>(
        &self,
        condition: &HostCondition,
        wait: Wait,
        interrupt: Option<&Interrupt>,
        look: &mut impl FnMut() -> Result<Option<T>, MailboxError>,
    ) -> Result<T, MailboxError> {
        let mut since = None;
        loop {
            for _ in 0..LOOKS {
                if let Some(found) = look()? {
                    return Ok(found);
                }
            }
            if self.is_gone() {
                return look()?.ok_or_else(|| self.gone());
            }
            if interrupt.is_some_and(Interrupt::is_set) {
                return Err(MailboxError::TimedOut);
            }
            if wait == Wait::Poll {
                continue;
            }
            let now = Instant::now();
            if matches!(wait, Wait::Until(end) if end <= now) {
                return look()?.ok_or(MailboxError::TimedOut);
            }
            if now.duration_since(*since.get_or_insert(now)) >= SPIN {
                break;
            }
        }
        for _ in 0..YIELDS {
            std::thread::yield_now();
            if let Some(found) = look()? {
                return Ok(found);
            }
        }
        self.sleep_until(condition, wait, interrupt, look)
    }

    fn sleep_until<T>(
        &self,
        condition: &HostCondition,
        wait: Wait,
        interrupt: Option<&Interrupt>,
        look: &mut impl FnMut() -> Result<Option<T>, MailboxError>,
    ) -> Result<T, MailboxError> {
        let at = interrupt.map_or(WaitsAt::NoPort, |interrupt| interrupt.at);
        loop {
            let seen = condition.value();
            let timeout = match wait {
                Wait::Until(end) => Some(end.saturating_duration_since(Instant::now())),
                Wait::Poll | Wait::Block => None,
            };
            let mut looked = Ok(None);
            self.fall_asleep(at);
            failpoint!("wait.before_sleep");
            let woken = condition.wait_unless(seen, timeout, || {
                looked = look();
                let is_over = !matches!(looked, Ok(None)) || self.is_gone() || interrupt.is_some_and(Interrupt::is_set);
                is_over || self.is_called(at)
            });
            self.wake_up(at);
            failpoint!("wait.after_sleep");
            if let Some(found) = looked? {
                return Ok(found);
            }
            if let Some(found) = look()? {
                return Ok(found);
            }
            if self.is_gone() {
                return look()?.ok_or_else(|| self.gone());
            }
            if woken == Woken::TimedOut || interrupt.is_some_and(Interrupt::is_set) {
                return Err(MailboxError::TimedOut);
            }
        }
    }
}
