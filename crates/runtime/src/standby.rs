//! The standby: a thread beside the context with the device, which does for its sessions what would take long on the core
//! (c-core 3.1, hot-swap through a standby context). It parses and plans the queries of subscriptions, and hands what came of it
//! back, to be put in between two turns. Before, it measures what they cost ([`crate::admission`]).
//!
//! A session has one request with the standby at most, since what it sends meanwhile waits ([`crate::parked`]); so no more jobs
//! wait than there are sessions. The managers have a thread of their own: a swap does not wait behind subscriptions.

use crate::admission::QueryScales;
use crate::context::Context;
use crate::handle::Command;
use crossdock_device::{Doorbell, keep_off, take_short_turns};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::thread::JoinHandle;

/// What the context does with the outcome.
type Then = Box<dyn FnOnce(&mut Context) + Send>;
/// Something to be done away from the core.
type Job = Box<dyn FnOnce(&mut QueryScales) -> Then + Send>;

/// The context's side.
pub(crate) struct Standby {
    jobs: Sender<Job>,
}

/// The thread's end, for who has to wait for it.
#[derive(Debug)]
pub(crate) struct StandbyThread(Option<JoinHandle<()>>);

/// What was to be done panicked, which is a flaw in it; the standby goes on.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("planning it failed, by a flaw of the daemon")]
pub(crate) struct Panicked;

impl Standby {
    /// Starts the thread, which ends with its side and keeps off the cores that contexts are tied to.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start(
        commands: SyncSender<Command>,
        doorbell: Doorbell,
        pinned: Vec<usize>,
    ) -> io::Result<(Standby, StandbyThread)> {
        let (jobs, given) = channel();
        let run = move || {
            // Contexts that have a core have it for themselves; where that is refused it goes as all others do.
            let _ = keep_off(pinned).and_then(|()| take_short_turns());
            run(&given, &commands, &doorbell);
        };
        let thread = std::thread::Builder::new().name("standby".into()).spawn(run)?;
        Ok((Standby { jobs }, StandbyThread(Some(thread))))
    }

    /// Has something done away from the core, and then what is to be done with the outcome on it.
    pub(crate) fn give<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut QueryScales) -> T + Send + 'static,
        then: impl FnOnce(&mut Context, Result<T, Panicked>) + Send + 'static,
    ) {
        let job: Job = Box::new(move |scales| {
            let outcome = catch_unwind(AssertUnwindSafe(|| work(scales))).map_err(|_| Panicked);
            Box::new(move |context| then(context, outcome))
        });
        // The thread ends with this side, not before.
        let _ = self.jobs.send(job);
    }
}

impl StandbyThread {
    /// Waits for its end; it ends with the context.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}

/// Does what is given until the context has gone.
fn run(given: &Receiver<Job>, commands: &SyncSender<Command>, doorbell: &Doorbell) {
    let mut scales = QueryScales::default();
    while let Ok(job) = given.recv() {
        if commands.send(Command::Run(job(&mut scales))).is_err() {
            return;
        }
        doorbell.ring();
    }
}
