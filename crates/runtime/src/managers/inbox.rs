//! The managers' request channel. It is bounded: a caller waits for a place, while what contexts report is merged where
//! it is about the same, and refused otherwise. So a context never waits for the managers, who wait for contexts.

use crate::handle::Stopped;
use crate::managers::handle::ControlRequest;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Requests that may wait for the managers.
pub(crate) const MAX_REQUESTS: usize = 256;

/// What waits for the managers.
#[derive(Default)]
pub(crate) struct Inbox {
    waiting: Mutex<Waiting>,
    has_come: Condvar,
    has_place: Condvar,
}

#[derive(Default)]
struct Waiting {
    requests: VecDeque<ControlRequest>,
    /// Reports of contexts, merged.
    new_formats: BTreeSet<u32>,
    removed_queries: BTreeSet<String>,
    refused: Merged,
    failed: Merged,
    /// What was measured. There are as many as are measured at a time.
    measured: Vec<ControlRequest>,
    is_stopping: bool,
    /// Nothing is taken any more.
    is_closed: bool,
}

/// Reports of one kind: the latest, and how many came before it.
#[derive(Default)]
struct Merged {
    latest: Option<String>,
    others: u64,
}

impl Merged {
    fn add(&mut self, text: String) {
        self.others += u64::from(self.latest.replace(text).is_some());
    }

    fn take(&mut self) -> Option<String> {
        let text = self.latest.take()?;
        match std::mem::take(&mut self.others) {
            0 => Some(text),
            others => Some(format!("{text} (and {others} more before it)")),
        }
    }
}

impl Waiting {
    fn next(&mut self) -> Option<ControlRequest> {
        if self.is_stopping {
            return Some(ControlRequest::Stop);
        }
        let measured = self.measured.pop();
        let report = || {
            let format = self.new_formats.pop_first().map(|stream| ControlRequest::NewFormat { stream });
            let query = || self.removed_queries.pop_first().map(ControlRequest::RemoveQuery);
            let refused = || self.refused.take().map(ControlRequest::QueryRefused);
            let failed = || self.failed.take().map(ControlRequest::QueryFailed);
            format.or_else(query).or_else(refused).or_else(failed)
        };
        measured.or_else(report).or_else(|| self.requests.pop_front())
    }
}

impl Inbox {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts in a caller's request; waits for a place.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(crate) fn ask(&self, request: ControlRequest) -> Result<(), Stopped> {
        let is_full = |waiting: &mut Waiting| !waiting.is_closed && waiting.requests.len() >= MAX_REQUESTS;
        let mut waiting = self.has_place.wait_while(self.waiting(), is_full).unwrap_or_else(PoisonError::into_inner);
        if waiting.is_closed {
            return Err(Stopped);
        }
        waiting.requests.push_back(request);
        self.has_come.notify_one();
        Ok(())
    }

    /// Puts in what a context reports or wants, without a wait.
    ///
    /// # Errors
    /// There is no place for it, or the managers have stopped: it comes back.
    pub(crate) fn send(&self, request: ControlRequest) -> Result<(), Box<ControlRequest>> {
        let mut waiting = self.waiting();
        if waiting.is_closed {
            return Err(Box::new(request));
        }
        match request {
            ControlRequest::NewFormat { stream } => drop(waiting.new_formats.insert(stream)),
            ControlRequest::RemoveQuery(handler) => drop(waiting.removed_queries.insert(handler)),
            ControlRequest::QueryRefused(text) => waiting.refused.add(text),
            ControlRequest::QueryFailed(text) => waiting.failed.add(text),
            ControlRequest::Measured { .. } => waiting.measured.push(request),
            other if waiting.requests.len() >= MAX_REQUESTS => return Err(Box::new(other)),
            other => waiting.requests.push_back(other),
        }
        self.has_come.notify_one();
        Ok(())
    }

    /// Has the managers stop, before what waits.
    pub(crate) fn stop(&self) {
        self.waiting().is_stopping = true;
        self.has_come.notify_one();
    }

    /// Takes what comes next, within a time.
    pub(crate) fn take(&self, within: Duration) -> Option<ControlRequest> {
        let until = Instant::now() + within;
        let mut waiting = self.waiting();
        loop {
            let was_full = waiting.requests.len() >= MAX_REQUESTS;
            if let Some(next) = waiting.next() {
                if was_full {
                    self.has_place.notify_one();
                }
                return Some(next);
            }
            let left = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            waiting = self.has_come.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Nothing is taken any more; callers are told so.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting();
        let left = std::mem::take(&mut *waiting);
        waiting.is_closed = true;
        drop(waiting);
        drop(left);
        self.has_place.notify_all();
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;
    use crate::managers::queries::Query;
    use std::sync::Arc;

    fn restored() -> (ControlRequest, oneshot::Receiver<()>) {
        let (to, wait) = oneshot::channel();
        (ControlRequest::Restored(to), wait)
    }

    fn query(subscription: u64) -> ControlRequest {
        ControlRequest::PlaceQuery(Box::new(Query { subscription, sql: String::new(), then: Box::new(|_, _| ()) }))
    }

    fn now(inbox: &Inbox) -> Option<ControlRequest> {
        inbox.take(Duration::ZERO)
    }

    #[test]
    fn what_contexts_report_is_merged_however_much_comes() {
        let inbox = Inbox::default();
        for number in 0..100_000 {
            assert!(inbox.send(ControlRequest::NewFormat { stream: number % 3 }).is_ok());
            assert!(inbox.send(ControlRequest::QueryRefused(format!("the {number}th"))).is_ok());
            assert!(inbox.send(ControlRequest::QueryFailed("a flaw".to_owned())).is_ok());
            assert!(inbox.send(ControlRequest::RemoveQuery(format!("q{}", number % 2))).is_ok());
        }
        for stream in 0..3 {
            assert!(matches!(now(&inbox), Some(ControlRequest::NewFormat { stream: found }) if found == stream));
        }
        for name in ["q0", "q1"] {
            assert!(matches!(now(&inbox), Some(ControlRequest::RemoveQuery(found)) if found == name));
        }
        let wanted = "the 99999th (and 99999 more before it)";
        assert!(matches!(now(&inbox), Some(ControlRequest::QueryRefused(found)) if found == wanted));
        assert!(matches!(now(&inbox), Some(ControlRequest::QueryFailed(_))));
        assert!(now(&inbox).is_none());
    }

    #[test]
    fn a_full_inbox_refuses_a_context_and_has_a_caller_wait() {
        let inbox = Arc::new(Inbox::default());
        for subscription in 0..MAX_REQUESTS as u64 {
            assert!(inbox.send(query(subscription)).is_ok());
        }
        let back = inbox.send(query(7777)).unwrap_err();
        assert!(matches!(*back, ControlRequest::PlaceQuery(query) if query.subscription == 7777));
        let (request, _wait) = restored();
        let asking = {
            let inbox = Arc::clone(&inbox);
            std::thread::spawn(move || inbox.ask(request))
        };
        // What can be merged always has a place.
        assert!(inbox.send(ControlRequest::NewFormat { stream: 1 }).is_ok());
        assert!(matches!(now(&inbox), Some(ControlRequest::NewFormat { stream: 1 })));
        for subscription in 0..MAX_REQUESTS as u64 {
            let Some(ControlRequest::PlaceQuery(query)) = now(&inbox) else { panic!("a query is next") };
            assert_eq!(query.subscription, subscription);
        }
        assert!(matches!(inbox.take(Duration::from_secs(600)), Some(ControlRequest::Restored(_))));
        assert!(asking.join().unwrap().is_ok());
    }

    #[test]
    fn all_callers_hear_that_the_managers_have_stopped() {
        let inbox = Arc::new(Inbox::default());
        (0..MAX_REQUESTS as u64).for_each(|number| assert!(inbox.send(query(number)).is_ok()));
        let callers: Vec<_> = (0..3)
            .map(|_| {
                let inbox = Arc::clone(&inbox);
                std::thread::spawn(move || inbox.ask(restored().0))
            })
            .collect();
        inbox.stop();
        assert!(matches!(now(&inbox), Some(ControlRequest::Stop)));
        inbox.close();
        callers.into_iter().for_each(|caller| assert!(caller.join().unwrap().is_err()));
        assert!(inbox.send(query(1)).is_err());
    }
}
