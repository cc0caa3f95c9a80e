//! The keeper: a thread that does what falls due while the application's thread is elsewhere.
//!
//! While the application drives the link, the keeper wakes at most once a tick, takes acks, and finds little else to do. When the
//! application has been away for a while, the keeper watches the socket itself, so that the daemon's questions
//! are answered and acks are taken; when the application waits on the socket, it sleeps.

use crate::error::Error;
use crate::shared::{Inner, Shared};
use crate::watch::Watch;
use crossdock_device::Doorbell;
use std::sync::Arc;
use std::thread::JoinHandle;

/// How often the keeper looks while the application is active, in ns.
const TICK_NS: u64 = 1_000_000;
/// For so long after it was last seen, the application counts as active, in ns.
const ACTIVE_NS: u64 = 20_000_000;
/// The longest sleep, in ns.
const LONGEST_NS: u64 = 10_000_000_000;

/// The application's handle to its keeper; dropping it ends the thread.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    bell: Doorbell,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub(crate) fn start(shared: Arc<Shared>) -> Result<Keeper, Error> {
        let watch = Watch::new()?;
        let bell = watch.doorbell();
        let kept = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("nectarine-keeper".into())
            .spawn(move || keep(&kept, watch))
            .map_err(Error::system("cannot start a thread"))?;
        Ok(Keeper { shared, bell, thread: Some(thread) })
    }

    /// Wakes the keeper if it would sleep beyond what is due now.
    #[inline]
    pub(crate) fn tick(&self, inner: &Inner) {
        if inner.due_ns() < inner.keeper_ns {
            self.bell.ring();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.bell.ring();
        if let Some(thread) = self.thread.take() {
            // A keeper that panicked has nothing more to do; the application sees its link's state as it is.
            let _ = thread.join();
        }
    }
}

fn keep(shared: &Shared, mut watch: Watch) {
    loop {
        let pause_ns;
        {
            let mut inner = shared.lock();
            if inner.closing {
                return;
            }
            let now_ns = inner.link.now_ns();
            let active = now_ns < inner.driven_ns.saturating_add(ACTIVE_NS);
            if inner.is_waited_for() {
                // The application will do everything itself when it is due.
                watch.look_away();
                pause_ns = if active { TICK_NS } else { LONGEST_NS };
            } else if active {
                watch.look_away();
                // An ack that lay in the socket until it was looked for would pass for a long path.
                if now_ns >= inner.due_ns() || inner.link.backlog_units() > 0 {
                    inner.drive();
                }
                pause_ns = TICK_NS.min(inner.due_ns().saturating_sub(now_ns));
            } else {
                inner.drive();
                if inner.link.is_polled() {
                    // Nobody asks whether this process is there: shared memory has no time-outs. What is sent meanwhile
                    // waits in the rings; to be woken for it would cost the core a system call each time.
                    watch.look_away();
                } else {
                    watch.watch(&inner.link);
                }
                pause_ns = inner.due_ns().saturating_sub(inner.link.now_ns()).min(LONGEST_NS);
            }
            inner.keeper_ns = now_ns.saturating_add(pause_ns);
        }
        watch.sleep(pause_ns);
    }
}
