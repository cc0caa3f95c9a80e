//! Places where a process can be made to die, for tests of what its death leaves behind. Compiled in with feature
//! `failpoints` only; else they are nothing at all.
//!
//! `CROSSDOCK_FAILPOINT=NAME` makes the process kill itself with SIGKILL the first time it passes place NAME,
//! `CROSSDOCK_FAILPOINT=NAME:N` the N-th time.

/// Every failpoint there is, in the order of the operations. `failpoint!` does not compile with another name.
pub const FAILPOINTS: &[&str] = &[
    "attach.before_connect",
    "attach.before_request",
    "attach.after_connect",
    "attach.after_watcher",
    "session.taken",
    "port.taken",
    "writer.begin_put.granted",
    "writer.begin_put.before_request",
    "writer.begin_put.after_request",
    "writer.begin_put.request_answered",
    "lane.pass.before_store",
    "lane.pass.after_store",
    "writer.end_put.before_push",
    "writer.put_many.before_push",
    "writer.put_many.after_push",
    "writer.end_put.after_push",
    "writer.enqueue.before_push",
    "writer.enqueue.after_push",
    "reader.begin_get.after_pop",
    "reader.end_get.before_push",
    "reader.end_get.after_push",
    "reader.enqueue.before_push",
    "reader.enqueue.after_push",
    "direct.writer.begun",
    "direct.reader.begun",
    "direct.put.before_push",
    "direct.put.after_push",
    "direct.get.after_pop",
    "direct.end_get.before_push",
    "direct.end_get.after_push",
    "direct.wake.before_call",
    "direct.writer.before_end",
    "direct.writer.after_end",
    "direct.done.before_call",
    "held.drop.before_push",
    "held.drop.after_push",
    "claim.dropped",
    "signal.ask.before_push",
    "signal.ask.after_push",
    "signal.alloc.answered",
    "signal.put.before_push",
    "signal.put.after_push",
    "signal.get.answered",
    "signal.free.before_push",
    "signal.free.after_push",
    "signal.enqueue_put.before_push",
    "signal.enqueue_put.after_push",
    "signal.enqueue.before_push",
    "signal.enqueue.after_push",
    "signal.cancel.before_push",
    "signal.cancel.after_push",
    "signal.cancel.settled",
    "sync.alloc",
    "sync.write.before_push",
    "sync.write.after_push",
    "sync.read.after_read",
    "sync.cancel.after_cancel",
    "condition.wait.before_look",
    "condition.signal.before_push",
    "condition.signal.after_push",
    "call.before_push",
    "call.after_push",
    "call.answered",
    "upcall.before_serving",
    "upcall.before_answer",
    "upcall.after_answer",
    "wait.before_sleep",
    "wait.after_sleep",
    "arm.armed",
];

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

#[cfg(feature = "failpoints")]
type Observer = Box<dyn FnMut(&'static str)>;

#[cfg(feature = "failpoints")]
std::thread_local! {
    static OBSERVER: std::cell::RefCell<Option<Observer>> = const { std::cell::RefCell::new(None) };
}

/// Has `observer` called with the name of each place that the calling thread passes from now on; with none, nobody. For
/// tests that do something in the middle of an operation.
#[cfg(feature = "failpoints")]
pub fn observe(observer: Option<Box<dyn FnMut(&'static str)>>) {
    OBSERVER.set(observer);
}

/// Notifies the observer, which is not called for what it does itself and may set another.
#[cfg(feature = "failpoints")]
fn notify_observer(name: &'static str) {
    // A thread that ends has none.
    if let Ok(Some(mut observer)) = OBSERVER.try_with(std::cell::RefCell::take) {
        observer(name);
        OBSERVER.with_borrow_mut(|next| {
            next.get_or_insert(observer);
        });
    }
}

/// Ends the process if it is `name` that `CROSSDOCK_FAILPOINT` says, and it was passed often enough. Other crates have lists of their own.
#[cfg(feature = "failpoints")]
pub fn pass(name: &'static str) {
    use std::sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    };
    notify_observer(name);
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

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::FAILPOINTS;
    use std::collections::BTreeSet;

    /// A name that stands in the list and nowhere else would never be passed.
    #[test]
    fn the_list_names_every_place_and_no_other() {
        let mut found = BTreeSet::new();
        let rooms =
            ["/src/attach", "/src/client", "/src/shared"].map(|room| format!("{}{room}", env!("CARGO_MANIFEST_DIR")));
        for file in rooms.iter().flat_map(|room| std::fs::read_dir(room).unwrap()) {
            let Ok(text) = std::fs::read_to_string(file.unwrap().path()) else { continue };
            found.extend(text.split("failpoint!(\"").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()));
        }
        let listed: BTreeSet<String> = FAILPOINTS.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(listed.len(), FAILPOINTS.len(), "a name stands twice in the list");
        assert_eq!(found, listed);
    }
}

#[cfg(all(test, feature = "failpoints", not(any(loom, miri))))]
#[allow(clippy::unwrap_used)] // a test that fails may panic
mod process_tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    /// Has the test that is run again as a process of its own pass failpoints.
    const PASSING: &str = "CROSSDOCK_TEST_PASSING";

    #[test]
    fn passing_process() {
        if std::env::var(PASSING).is_ok() {
            for _ in 0..3 {
                pass("one");
                pass("other");
            }
        }
    }

    fn dies_by(failpoint: &str) -> Option<i32> {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "failpoint::process_tests::passing_process"]).stdout(Stdio::null());
        command.env(PASSING, "").env("CROSSDOCK_FAILPOINT", failpoint).status().unwrap().signal()
    }

    #[test]
    fn a_process_dies_at_its_failpoint_and_nowhere_else() {
        for failpoint in ["one", "other", "other:1", "one:3"] {
            assert_eq!(dies_by(failpoint), Some(9), "{failpoint}");
        }
        for failpoint in ["third", "one:4", "one:0", "one:x", "", "on"] {
            assert_eq!(dies_by(failpoint), None, "{failpoint}");
        }
    }

    #[test]
    fn the_observer_of_a_thread_sees_what_it_passes() {
        let passed = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let noted = passed.clone();
        observe(Some(Box::new(move |name| {
            noted.borrow_mut().push(name);
            pass("within");
        })));
        pass("first");
        std::thread::spawn(|| pass("elsewhere")).join().unwrap();
        pass("second");
        observe(None);
        pass("third");
        assert_eq!(*passed.borrow(), ["first", "second"]);
    }

    #[test]
    fn listed_is_what_stands_in_the_list() {
        assert!(FAILPOINTS.iter().all(|name| is_listed(name)));
        assert!(!is_listed("") && !is_listed("attach") && !is_listed("arm.armed.not"));
    }
}
