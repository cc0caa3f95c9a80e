//! Places where a process can be made to die, for tests of what its death leaves behind. Compiled in with feature
//! `failpoints` only; else they are nothing at all.
//!
//! `CROSSDOCK_FAILPOINT=NAME` makes the process kill itself with SIGKILL the first time it passes place NAME,
//! `CROSSDOCK_FAILPOINT=NAME:N` the N-th time.

/// Every failpoint there is, in the order of the operations. `failpoint!` does not compile with another name.
pub const FAILPOINTS: &[&str] = &[];

/// Whether `name` stands in [`FAILPOINTS`].
#[cfg(feature = "failpoints")]
pub(crate) const fn is_listed(name: &str) -> bool {
    let mut at = 0;
    while at < FAILPOINTS.len() {
        if is_same(FAILPOINTS[at].as_bytes(), name.as_bytes()) {
            return true;
        }
        at += 1;
    }
    false
}

/// `==`, which cannot be used at compile time yet.
#[cfg(feature = "failpoints")]
const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// Ends the process if it is `name` that `CROSSDOCK_FAILPOINT` says, and it was passed often enough.
#[cfg(feature = "failpoints")]
pub(crate) fn pass(name: &str) {
    use std::sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    };
    static WANTED: LazyLock<Option<(String, AtomicU64)>> = LazyLock::new(|| {
        let said = std::env::var("CROSSDOCK_FAILPOINT").ok()?;
        let (name, times) = said.split_once(':').unwrap_or((&said, "1"));
        Some((name.to_owned(), AtomicU64::new(times.parse().ok()?)))
    });
    if let Some((wanted, left)) = &*WANTED
        && wanted == name
        && left.fetch_sub(1, Ordering::Relaxed) == 1
    {
        let _killed = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        std::process::abort();
    }
}

/// A place where the process can be made to die: `failpoint!("writer.end_put.before_push")`.
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        {
            const _: () = assert!($crate::failpoint::is_listed($name), "list the failpoint in FAILPOINTS");
            $crate::failpoint::pass($name);
        }
    };
}
pub(crate) use failpoint;
