//! The planner: a thread beside the contexts, for work that would take long on a core (c-core 3.1, hot-swap through a
//! standby context). It parses and plans the queries of subscriptions, measures their cost ([`crate::admission`]),
//! compiles conversions, and hands the results back.
//!
//! A session has one request with the planner at most, since its further packets wait ([`crate::parked`]); so the
//! number of jobs is bounded by the number of sessions. The managers have a thread of their own: a swap does not wait
//! for subscriptions.

use crate::admission::QueryCostModel;
use crossdock_device::{exclude_cpus, take_short_turns};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Something to be done away from the cores.
type Job = Box<dyn FnOnce(&mut QueryCostModel) + Send>;

/// The side of those who have something planned.
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
    pub(crate) fn start(pinned: Vec<usize>) -> io::Result<(Planner, PlannerThread)> {
        let (jobs, given) = channel();
        let run = move || {
            // Contexts that have a core have it for themselves; where that is refused it goes as all others do.
            let _ = exclude_cpus(pinned).and_then(|()| take_short_turns());
            run(&given);
        };
        let thread = std::thread::Builder::new().name("planner".into()).spawn(run)?;
        Ok((Planner { jobs }, PlannerThread(Some(thread))))
    }

    /// Does some work on the planner's thread, and gives the outcome to `then` there.
    pub(crate) fn give<T>(
        &self,
        work: impl FnOnce(&mut QueryCostModel) -> T + Send + 'static,
        then: impl FnOnce(Result<T, Panicked>) + Send + 'static,
    ) {
        let job = move |costs: &mut QueryCostModel| {
            then(catch_unwind(AssertUnwindSafe(|| work(costs))).map_err(|_| Panicked));
        };
        // The thread ends with this side, not before.
        let _ = self.jobs.send(Box::new(job));
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

/// Does what is given until the other side has gone.
fn run(given: &Receiver<Job>) {
    let mut costs = QueryCostModel::default();
    while let Ok(job) = given.recv() {
        job(&mut costs);
    }
}
