//! Ctrl-C: the first one asks a command to end cleanly, the second ends the process at once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{Failure, Outcome};

/// Whether the command is to end, and ways to be notified of that.
#[derive(Clone)]
pub(crate) struct Interrupt {
    shared: Arc<Shared>,
}

/// How long a signal waits for [`Interrupt::arm`]: a daemon has begun to serve a client before the client knows of it, and whoever
/// sees it there may end it.
const ARMING: Duration = Duration::from_millis(300);

struct Shared {
    /// Whether there is something to end cleanly; until then the first signal ends the process.
    armed: Mutex<bool>,
    arming: Condvar,
    /// The signal that came; 0 before.
    signal: AtomicI32,
    /// Readable from then on, for what sleeps in `poll`.
    event: OwnedFd,
    /// The other waiters to be woken.
    hooks: Mutex<Vec<Box<dyn Fn() + Send>>>,
}

impl Interrupt {
    /// Takes over SIGINT and SIGTERM, for the whole process. Until [`Interrupt::arm`] is called they still end it, within
    /// [`ARMING`].
    pub(crate) fn install() -> Outcome<Interrupt> {
        let refused = |error: io::Error| Failure::failed(format!("cannot set up for Ctrl-C: {error}"));
        let event = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| refused(error.into()))?;
        let shared = Arc::new(Shared {
            armed: Mutex::default(),
            arming: Condvar::new(),
            signal: AtomicI32::new(0),
            event,
            hooks: Mutex::default(),
        });
        let interrupt = Interrupt { shared };
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(refused)?;
        let raiser = interrupt.clone();
        let wait = move || {
            for signal in signals.forever() {
                if raiser.caught().is_some() || !raiser.is_armed() {
                    signal_hook::low_level::exit(128 + signal);
                }
                raiser.raise(signal);
            }
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map_err(refused)?;
        Ok(interrupt)
    }

    /// From here on there is something to end cleanly.
    pub(crate) fn arm(&self) {
        *self.shared.armed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.arming.notify_all();
    }

    /// Whether there is something to end cleanly, now or soon.
    fn is_armed(&self) -> bool {
        let armed = self.shared.armed.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.shared.arming.wait_timeout_while(armed, ARMING, |armed| !*armed);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sleeps so long, or until a signal comes.
    pub(crate) fn sleep(&self, time: Duration) {
        // The longest sleep is a year, by what is taken on the command line; the conversion cannot fail.
        if let Ok(time) = Timespec::try_from(time) {
            let mut fds = [PollFd::new(&self.shared.event, PollFlags::IN)];
            // When it fails it has not slept long enough, which whoever sleeps in a loop does not mind.
            let _ = poll(&mut fds, Some(&time));
        }
    }

    /// The signal that asked the command to end.
    pub(crate) fn caught(&self) -> Option<i32> {
        Some(self.shared.signal.load(Ordering::Acquire)).filter(|signal| *signal != 0)
    }

    /// Becomes readable, and stays so, when a signal has come.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }

    /// Calls `hook` when a signal comes; at once if one has come. It runs in the thread that waits for signals.
    pub(crate) fn on_raise(&self, hook: impl Fn() + Send + 'static) {
        let mut hooks = self.shared.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        if self.caught().is_some() {
            hook();
        }
        hooks.push(Box::new(hook));
    }

    /// Returns when all hooks have run for the signal that was caught.
    pub(crate) fn settle(&self) {
        // The signal is stored under this lock, so whoever has seen it waits for the one who holds it.
        drop(self.shared.hooks.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn raise(&self, signal: i32) {
        let hooks = self.shared.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.signal.store(signal, Ordering::Release);
        // A counter that is at its end is readable, which is all that is wanted of it.
        let _ = rustix::io::write(&self.shared.event, &1_u64.to_ne_bytes());
        hooks.iter().for_each(|hook| hook());
    }
}
