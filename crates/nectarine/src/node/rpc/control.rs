//! The state that a service's threads and its handle share.

use super::caller::Caller;
use super::counts::{Counts, ServiceCounts};
use super::waiting::Wakener;
use crate::client::Interrupter;
use crate::error::Error;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The state that a service's threads and its handle share.
pub(super) struct Control {
    pub(super) counts: Counts,
    /// The numbers of the callers that were admitted and are not gone.
    callers: Mutex<HashSet<u64>>,
    /// Those that the serving thread does not know of yet.
    admitted: Mutex<Vec<Caller>>,
    /// Whether the serving thread has anything to look at here.
    has_changed: AtomicBool,
    has_ended: AtomicBool,
    /// Why it ended, unless it was stopped.
    fault: Mutex<Option<Error>>,
    hellos: Interrupter,
    serving: Wakener,
}

/// Half-done after a panic is nothing: a value is there or is not.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    /// `hellos` interrupts the thread that admits callers, `serving` wakes the one that carries out calls.
    pub(super) fn new(hellos: Interrupter, serving: Wakener) -> Control {
        Control {
            counts: Counts::default(),
            callers: Mutex::default(),
            admitted: Mutex::default(),
            has_changed: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            fault: Mutex::default(),
            hellos,
            serving,
        }
    }

    /// Whether the serving thread has anything to look at here, without having looked.
    pub(super) fn has_changed(&self) -> bool {
        self.has_changed.load(Ordering::SeqCst)
    }

    /// The same, and the callers that were admitted since this was last asked join the others.
    #[inline]
    pub(super) fn take_admitted(&self, callers: &mut Vec<Caller>) -> bool {
        let has_changed = self.has_changed() && self.has_changed.swap(false, Ordering::SeqCst);
        if has_changed {
            callers.append(&mut lock(&self.admitted));
        }
        has_changed
    }

    /// Why it ended; nothing if it was stopped.
    pub(super) fn take_fault(&self) -> Option<Error> {
        lock(&self.fault).take()
    }

    pub(super) fn counts(&self) -> ServiceCounts {
        let counts = &self.counts;
        ServiceCounts {
            callers: self.callers(),
            calls: counts.calls.get(),
            failed: counts.failed.get(),
            skipped: counts.skipped.get(),
            repeated: counts.repeated.get(),
            malformed: counts.malformed.get(),
            refused: counts.refused.get(),
            lost_replies: counts.lost_replies.get(),
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Hands a caller to the serving thread.
    pub(super) fn admit(&self, caller: Caller) {
        lock(&self.callers).insert(caller.number());
        lock(&self.admitted).push(caller);
        self.change();
    }

    /// Callers that it has now.
    pub(super) fn callers(&self) -> usize {
        lock(&self.callers).len()
    }

    /// Whether a caller of this number was admitted and is not gone.
    pub(super) fn has_caller(&self, number: u64) -> bool {
        lock(&self.callers).contains(&number)
    }

    /// A caller is gone.
    pub(super) fn forget(&self, caller: &Caller) {
        lock(&self.callers).remove(&caller.number());
    }

    fn change(&self) {
        self.has_changed.store(true, Ordering::SeqCst);
        self.serving.wake();
    }

    /// Ends both threads.
    pub(super) fn end(&self, fault: Option<Error>) {
        if !self.has_ended.swap(true, Ordering::AcqRel) {
            *lock(&self.fault) = fault;
        }
        self.hellos.interrupt();
        self.change();
    }
}
