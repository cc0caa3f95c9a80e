//! Sleeping on a word and waking who sleeps on it: the kernel's futex, shared between processes, and what stands in for
//! it under loom.

use crate::sync::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` is `seen`, until woken, interrupted, or `timeout` is over. True only in the last case.
#[cfg(not(loom))]
pub(super) fn wait(word: &AtomicU32, seen: u32, timeout: Option<Duration>) -> bool {
    use rustix::thread::futex;
    // More seconds than the kernel counts: waits without a timeout.
    let timeout = timeout.and_then(|timeout| futex::Timespec::try_from(timeout).ok());
    futex::wait(word, futex::Flags::empty(), seen, timeout.as_ref()) == Err(rustix::io::Errno::TIMEDOUT)
}

/// Wakes everyone who sleeps on `word`.
#[cfg(not(loom))]
pub(super) fn wake_all(word: &AtomicU32) {
    use rustix::thread::futex;
    let _woken = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

#[cfg(loom)]
loom::lazy_static! {
    /// The kernel looks at the word and joins the sleepers under one lock; here all words share one.
    static ref SLEEPERS: (loom::sync::Mutex<()>, loom::sync::Condvar) =
        (loom::sync::Mutex::new(()), loom::sync::Condvar::new());
}

#[cfg(loom)]
pub(super) fn wait(word: &AtomicU32, seen: u32, _timeout: Option<Duration>) -> bool {
    let guard = SLEEPERS.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if word.load(crate::sync::Ordering::Relaxed) == seen {
        drop(SLEEPERS.1.wait(guard));
    }
    false
}

#[cfg(loom)]
pub(super) fn wake_all(_word: &AtomicU32) {
    drop(SLEEPERS.0.lock());
    SLEEPERS.1.notify_all();
}
