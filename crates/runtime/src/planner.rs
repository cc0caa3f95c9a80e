//! The planner: threads beside the contexts, for work that would take long on a core (c-core 3.1, hot-swap through a
//! planner context). They parse and plan the queries of subscriptions, measure their cost ([`crate::admission`]),
//! compile conversions, and hand the results back. There are several, so that a request need not wait for what another
//! one has measured or compiled.
//!
//! A session has one request with the planner at most, since its further packets wait ([`crate::deferred`]); so the
//! number of jobs is bounded by the number of sessions. The managers have a thread of their own: a swap does not wait
//! for subscriptions.

use crate::admission::QueryCostModel;
use crossbeam_channel::{Receiver, Sender, unbounded};
use crossdock_device::{exclude_cpus, keep_freed_memory, take_medium_turns};
use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Threads of the planner. They sleep but for single requests, and a request of some ms rarely meets another one.
const THREADS: usize = 4;

thread_local! {
    /// Whether this thread runs an I/O context.
    static IS_CONTEXT: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as one that runs an I/O context.
pub(crate) fn enter_context() {
    IS_CONTEXT.set(true);
}

/// Asserts, in debug builds, that this thread runs no I/O context: what takes long has no place there.
#[track_caller]
pub(crate) fn assert_off_contexts() {
    debug_assert!(!IS_CONTEXT.get(), "it is done by an I/O context, and is for the planner");
}

/// Something to be done away from the cores.
type Job = Box<dyn FnOnce(&QueryCostModel) + Send>;

/// The side of those who have something planned. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Planner {
    jobs: Sender<Job>,
}

/// The handle to wait for the threads' end.
#[derive(Debug, Default)]
pub(crate) struct PlannerThreads(Vec<JoinHandle<()>>);

/// A job panicked, which is a flaw in it; the planner goes on.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("planning failed because of a bug in the daemon")]
pub(crate) struct Panicked;

impl Planner {
    /// Starts the threads, which end with their side and exclude the cores that contexts are tied to.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start(pinned: &[usize]) -> io::Result<(Planner, PlannerThreads)> {
        let (jobs, given) = unbounded();
        let costs = Arc::new(QueryCostModel::default());
        // The memory that they free must not interrupt contexts.
        keep_freed_memory();
        let mut threads = PlannerThreads::default();
        for _ in 0..THREADS {
            let (given, costs, pinned) = (given.clone(), Arc::clone(&costs), pinned.to_vec());
            let run = move || {
                // Contexts that have a core have it for themselves, and go first where they share one; where that is refused
                // these threads run as all others do.
                let _ = exclude_cpus(pinned).and_then(|()| take_medium_turns());
                run(&given, &costs);
            };
            threads.0.push(std::thread::Builder::new().name("planner".into()).spawn(run)?);
        }
        Ok((Planner { jobs }, threads))
    }

    /// Does some work on one of the planner's threads, and gives the outcome to `then` there.
    pub(crate) fn give<T>(
        &self,
        work: impl FnOnce(&QueryCostModel) -> T + Send + 'static,
        then: impl FnOnce(Result<T, Panicked>) + Send + 'static,
    ) {
        let job = move |costs: &QueryCostModel| {
            then(catch_unwind(AssertUnwindSafe(|| work(costs))).map_err(|_| Panicked));
        };
        // The threads end with this side, not before.
        let _ = self.jobs.send(Box::new(job));
    }
}

/// The planner of a test that does its work itself, on its own thread.
#[cfg(test)]
pub(crate) struct PlannerWork {
    given: Receiver<Job>,
    costs: QueryCostModel,
}

#[cfg(test)]
impl PlannerWork {
    /// A planner without threads.
    pub(crate) fn new() -> (Planner, PlannerWork) {
        let (jobs, given) = unbounded();
        (Planner { jobs }, PlannerWork { given, costs: QueryCostModel::default() })
    }

    /// Does the next job, if there is one; whether there was.
    pub(crate) fn take_next(&self) -> bool {
        self.given.try_recv().map(|job| job(&self.costs)).is_ok()
    }
}

impl PlannerThreads {
    /// Waits for their end; they end with the context.
    pub(crate) fn join(&mut self) {
        for thread in self.0.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Does what is given until the other side has gone.
fn run(given: &Receiver<Job>, costs: &QueryCostModel) {
    for job in given {
        // A bug in what follows a job costs its request, not a thread.
        let _ = catch_unwind(AssertUnwindSafe(|| job(costs)));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_request_does_not_wait_for_what_others_have_measured() {
        let (planner, mut threads) = Planner::start(&[]).unwrap();
        let (end, wait) = channel::<()>();
        // It goes on once a later one is done.
        planner.give(move |_| wait.recv(), |waited| waited.unwrap().unwrap());
        planner.give(move |_| end, |end| end.unwrap().send(()).unwrap());
        // One that panics takes nothing else along.
        let (failed, seen) = channel();
        planner.give(|_| [0u8][std::hint::black_box(1)], move |outcome| failed.send(outcome.is_err()).unwrap());
        assert!(seen.recv().unwrap());
        drop(planner);
        threads.join();
    }
}
