//! The planner: a thread beside the context with the device, for work of its sessions that would take long on the core
//! (c-core 3.1, hot-swap through a standby context). It parses and plans the queries of subscriptions, measures their
//! cost ([`crate::admission`]), and hands the results back, to be put in between two turns.
//!
//! A session has one request with the planner at most, since its further packets wait ([`crate::parked`]); so the
//! number of jobs is bounded by the number of sessions. The managers have a thread of their own: a swap does not wait
//! for subscriptions.

use crate::admission::QueryCostModel;
use crate::context::Context;
use crate::handle::Command;
use crossdock_device::{Doorbell, exclude_cpus, take_short_turns};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::thread::JoinHandle;

/// The context's function for the outcome.
type Then = Box<dyn FnOnce(&mut Context) + Send>;
/// Something to be done away from the core.
type Job = Box<dyn FnOnce(&mut QueryCostModel) -> Then + Send>;

/// The context's side.
pub(crate) struct Planner {
    jobs: Sender<Job>,
}

/// The handle to wait for the thread's end.
#[derive(Debug)]
pub(crate) struct PlannerThread(Option<JoinHandle<()>>);

/// A job panicked, which is a flaw in it; the planner goes on.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("planning it failed, by a flaw of the daemon")]
pub(crate) struct Panicked;

impl Planner {
    /// Starts the thread, which ends with its side and keeps off the cores that contexts are tied to.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start(
        commands: SyncSender<Command>,
        doorbell: Doorbell,
        pinned: Vec<usize>,
    ) -> io::Result<(Planner, PlannerThread)> {
        let (jobs, given) = channel();
        let run = move || {
            // Contexts that have a core have it for themselves; where that is refused it goes as all others do.
            let _ = exclude_cpus(pinned).and_then(|()| take_short_turns());
            run(&given, &commands, &doorbell);
        };
        let thread = std::thread::Builder::new().name("planner".into()).spawn(run)?;
        Ok((Planner { jobs }, PlannerThread(Some(thread))))
    }

    /// Runs a job off the core, and then a function on the core with its outcome.
    pub(crate) fn give<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut QueryCostModel) -> T + Send + 'static,
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

impl PlannerThread {
    /// Waits for its end; it ends with the context.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}

/// Does what is given until the context has gone.
fn run(given: &Receiver<Job>, commands: &SyncSender<Command>, doorbell: &Doorbell) {
    let mut scales = QueryCostModel::default();
    while let Ok(job) = given.recv() {
        if commands.send(Command::Run(job(&mut scales))).is_err() {
            return;
        }
        doorbell.ring();
    }
}
