//! The keeper: one thread for all links of the process, which does what falls due while the application's threads are elsewhere.
//!
//! While the application drives a link, the keeper looks at it at most once a tick, takes acks, and finds little else to do. When the
//! application has been away for a while, the keeper watches the link's socket, so that the daemon's questions are answered and acks
//! are taken; while the application waits on the socket, the keeper leaves the link alone.
//!
//! **Tasks.** Where an asynchronous task, or an event loop with a descriptor, waits for a link, the keeper watches the link for it:
//! when the link is heard, or something is due, it drives the link and wakes the task, which looks for itself.
//!
//! **Schedule.** Links are ordered by when they are due, and a watched link's number is its key in the poller: a wake-up costs one
//! look at each link that is due or was heard, however many others there are.
//!
//! **Processes.** A child of `fork` has no keeper for the links of its parent, nor for its own: a process that needs links forks
//! before it makes the first, or executes another program.
//!
//! **Locks.** The keeper holds a link's slot while it serves that link, so an emptied slot means that it never touches the link
//! again; it only tries the link's own lock, since the link of an application thread that holds it is being driven already. The
//! schedule's lock is taken last, and held for nothing but its tables.

#[cfg(test)]
mod tests;

use crate::carrier::give_pools_back;
use crate::error::Error;
use crate::shared::{Inner, Shared};
use crate::watch::Watched;
use crossdock_device::{Doorbell, Poller};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// How often the keeper looks at a link while the application is active, in ns. The ticks of all links coincide.
const TICK_NS: u64 = 1_000_000;
/// For so long after it was last seen, the application counts as active, in ns.
const ACTIVE_NS: u64 = 20_000_000;
/// The longest time without a look at a link, in ns.
const LONGEST_NS: u64 = 10_000_000_000;
/// The same for a link on shared memory, where nothing else shows the daemon that this process runs.
const BEAT_NS: u64 = 1_000_000_000;
/// For so long the thread stays after the last link, in ns: a process that makes one link after another starts one thread, not one
/// for each.
const LINGER_NS: u64 = 100_000_000;

/// The process's links, and when the keeper looks at each.
static SCHEDULE: Mutex<Schedule> = Mutex::new(Schedule {
    bell: None,
    links: BTreeMap::new(),
    due: BTreeSet::new(),
    wakes_ns: 0,
    ends_ns: 0,
    numbers: 0,
});

/// A link in the keeper's care; none once that has ended.
type Slot = Mutex<Option<Kept>>;

/// One link's handle to the keeper; dropping it takes the link out of the keeper's care.
pub(crate) struct Keeper {
    number: u64,
    slot: Arc<Slot>,
}

impl Keeper {
    /// Gives a link into the keeper's care; starts the thread, if this is the first.
    ///
    /// # Errors
    /// The kernel's, when it has no more descriptors or threads.
    pub(crate) fn start(shared: Arc<Shared>) -> Result<Keeper, Error> {
        let due_ns = {
            let (mut inner, now_ns) = (shared.lock(), now_ns());
            // Its application drives it now. On shared memory nothing falls due by itself, so that a short-lived link costs no
            // wake-up.
            let pause_ns = if inner.link.is_polled() { ACTIVE_NS } else { TICK_NS };
            // At a tick, with the other links.
            let due_ns = now_ns.saturating_add(pause_ns).next_multiple_of(TICK_NS);
            inner.keeper_ns = inner.link.now_ns().saturating_add(due_ns - now_ns);
            due_ns
        };
        let mut schedule = schedule();
        if schedule.bell.is_none() {
            let poller = Poller::new().map_err(Error::system("cannot watch the connection to the daemon"))?;
            let bell = poller.doorbell();
            let thread = std::thread::Builder::new().name("nectarine-keeper".into());
            thread.spawn(move || run(poller)).map_err(Error::system("cannot start a thread"))?;
            schedule.bell = Some(bell);
        }
        let slot = Arc::new(Mutex::new(Some(Kept { shared, watched: Watched::default() })));
        let number = schedule.add(Arc::clone(&slot), due_ns);
        Ok(Keeper { number, slot })
    }

    /// Of a link that a simulation drives: one that looks at nothing.
    #[cfg(feature = "simulation")]
    pub(crate) fn absent() -> Keeper {
        // No link has this number.
        Keeper { number: 0, slot: Arc::default() }
    }

    /// Whether a simulation drives the link: then no call waits.
    pub(crate) fn is_absent(&self) -> bool {
        self.number == 0
    }

    /// Has the keeper look at the link earlier, if it would look later than something is due now.
    #[inline]
    pub(crate) fn tick(&self, inner: &mut Inner) {
        if inner.due_ns() < inner.keeper_ns {
            self.plan(inner);
        }
    }

    /// Has the keeper look at the link at once, and watch it for the task that waits.
    pub(crate) fn watch_for_task(&self, inner: &mut Inner) {
        inner.keeper_ns = inner.link.now_ns();
        schedule().plan(self.number, now_ns());
    }

    fn plan(&self, inner: &mut Inner) {
        let (now_ns, link_ns) = (now_ns(), inner.link.now_ns());
        let at_ns = inner.due_ns().min(link_ns.saturating_add(to_tick_ns(now_ns)));
        inner.keeper_ns = at_ns;
        schedule().plan(self.number, now_ns.saturating_add(at_ns.saturating_sub(link_ns)));
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        schedule().remove(self.number);
        // Waits for the keeper only while it serves this very link.
        let kept = lock(&self.slot).take();
        drop(kept);
    }
}

/// When the keeper looks at which link. Times are ns on the clock of [`now_ns`].
struct Schedule {
    /// The thread's doorbell, while it runs.
    bell: Option<Doorbell>,
    /// By number: a link's slot, and when it is looked at next; `u64::MAX` while it is looked at.
    links: BTreeMap<u64, (Arc<Slot>, u64)>,
    /// The same times in order, with the links' numbers.
    due: BTreeSet<(u64, u64)>,
    /// When the thread wakes by itself; 0 while it is awake, since it then looks at the schedule before it sleeps.
    wakes_ns: u64,
    /// When the thread ends, while there are no links.
    ends_ns: u64,
    /// Links so far.
    numbers: u64,
}

impl Schedule {
    /// Adds a link; returns its number, which no other link ever has.
    fn add(&mut self, slot: Arc<Slot>, due_ns: u64) -> u64 {
        self.numbers += 1;
        self.links.insert(self.numbers, (slot, u64::MAX));
        self.plan(self.numbers, due_ns);
        self.numbers
    }

    fn remove(&mut self, link: u64) {
        let Some((_, planned_ns)) = self.links.remove(&link) else { return };
        self.due.remove(&(planned_ns, link));
        if self.links.is_empty() {
            self.ends_ns = now_ns().saturating_add(LINGER_NS);
            self.wake_by(self.ends_ns);
        }
    }

    /// Has a link looked at no later than that. Earlier plans stand, so that those of keeper and application need no order.
    fn plan(&mut self, link: u64, due_ns: u64) {
        let Some((_, planned_ns)) = self.links.get_mut(&link) else { return };
        if due_ns < *planned_ns {
            self.due.remove(&(*planned_ns, link));
            *planned_ns = due_ns;
            self.due.insert((due_ns, link));
            self.wake_by(due_ns);
        }
    }

    /// Wakes the thread, if it would sleep longer than that.
    fn wake_by(&mut self, ns: u64) {
        if ns < self.wakes_ns {
            self.wakes_ns = ns;
            self.bell.iter().for_each(Doorbell::ring);
        }
    }

    /// A link that is to be looked at now, without a plan for it.
    fn take(&mut self, link: u64) -> Option<(u64, Arc<Slot>)> {
        let (slot, planned_ns) = self.links.get_mut(&link)?;
        self.due.remove(&(*planned_ns, link));
        *planned_ns = u64::MAX;
        Some((link, Arc::clone(slot)))
    }

    /// Before the thread sleeps: for how long, in ns; `None` when it ends.
    fn sleep_ns(&mut self, now_ns: u64) -> Option<u64> {
        if self.links.is_empty() && self.ends_ns <= now_ns {
            self.bell = None;
            return None;
        }
        self.wakes_ns = self.due.first().map_or(self.ends_ns, |(due_ns, _)| *due_ns);
        Some(self.wakes_ns.saturating_sub(now_ns))
    }

    /// After it has slept: the links that were heard, by the poller's keys, and those that are due.
    fn wake(&mut self, heard: &[u64], now_ns: u64, round: &mut Vec<(u64, Arc<Slot>)>) {
        self.wakes_ns = 0;
        round.extend(heard.iter().filter_map(|&key| self.take(key)));
        while let Some(&(due_ns, link)) = self.due.first()
            && due_ns <= now_ns
        {
            round.extend(self.take(link));
        }
    }
}

/// Has the next link start another thread, should this one end by a panic.
struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        if std::thread::panicking() {
            schedule().bell = None;
        }
    }
}

/// The keeper's thread.
fn run(mut poller: Poller) {
    let _ends = Ends;
    let mut round = Vec::new();
    loop {
        let Some(pause_ns) = schedule().sleep_ns(now_ns()) else { return give_pools_back() };
        // A failed wait (a signal) is a short one. Links beyond what the poller reports at once are reported by the next.
        let heard = poller.wait(Some(Duration::from_nanos(pause_ns))).unwrap_or_default();
        schedule().wake(heard, now_ns(), &mut round);
        round.drain(..).for_each(|(link, slot)| serve(link, &slot, &poller));
    }
}

/// Looks at one link, and plans the next look.
fn serve(link: u64, slot: &Slot, poller: &Poller) {
    let mut slot = lock(slot);
    let Some(kept) = &mut *slot else { return };
    match catch_unwind(AssertUnwindSafe(|| kept.keep(link, poller))) {
        Ok((due_ns, woken)) => {
            schedule().plan(link, due_ns);
            // The task may end with its waker, and its link with the task.
            drop(slot);
            // A panic of the task's executor is no reason to keep no link any more.
            let _ = catch_unwind(AssertUnwindSafe(|| woken.map(Waker::wake)));
        }
        // This link is kept no more; its application sees its state as it is.
        Err(_) => {
            schedule().remove(link);
            *slot = None;
        }
    }
}

/// The keeper's entry of a link.
struct Kept {
    shared: Arc<Shared>,
    watched: Watched,
}

impl Kept {
    /// Does what is due; returns when to look at the link again, in ns, and the task that is to be woken.
    fn keep(&mut self, link: u64, poller: &Poller) -> (u64, Option<Waker>) {
        let now_ns = now_ns();
        let to_tick_ns = to_tick_ns(now_ns);
        let Some(mut inner) = self.shared.try_lock() else {
            // A packet that an application thread has not read yet would wake the keeper again at once.
            self.watched.look_away();
            return (now_ns.saturating_add(to_tick_ns), None);
        };
        inner.link.beat();
        // The link has a clock of its own.
        let link_ns = inner.link.now_ns();
        let longest_ns = if inner.link.is_polled() { BEAT_NS } else { LONGEST_NS };
        let (tick_ns, longest_ns) = (link_ns.saturating_add(to_tick_ns), link_ns.saturating_add(longest_ns));
        let active = link_ns < inner.driven_ns.saturating_add(ACTIVE_NS);
        let mut woken = None;
        let at_ns = if inner.is_waited_for() {
            // The application will do everything itself when it is due.
            self.watched.look_away();
            if active { tick_ns } else { longest_ns }
        } else if let Some(task) = inner.task.as_mut().filter(|task| !task.is_watched) {
            // It has looked at what came before, and armed the link: what comes from then on makes the descriptor readable.
            task.is_watched = true;
            self.watched.watch(&inner.link, poller, link);
            inner.due_ns().min(longest_ns)
        } else if let Some(task) = inner.task.take() {
            // The link was heard, or something is due: the task looks at it itself.
            self.watched.look_away();
            inner.drive();
            woken = Some(task.waker);
            inner.due_ns().min(tick_ns)
        } else if active {
            self.watched.look_away();
            // An ack that lay in the socket until it was looked for would pass for a long path. Of records that are in no checkpoint the end
            // of the session has to be noticed. An application that sends looks itself.
            if link_ns >= inner.due_ns() || inner.link.awaits_look(link_ns) {
                inner.drive();
            }
            inner.due_ns().min(tick_ns)
        } else {
            inner.drive();
            if inner.link.is_polled() {
                // Nobody asks whether this process is there: shared memory has no time-outs. A packet that is sent meanwhile
                // waits in the rings; to be woken for it would cost the core a system call each time.
                self.watched.look_away();
            } else {
                self.watched.watch(&inner.link, poller, link);
            }
            inner.due_ns().min(longest_ns)
        };
        inner.keeper_ns = at_ns;
        (now_ns.saturating_add(at_ns.saturating_sub(link_ns)), woken)
    }
}

/// Now, in ns on the keeper's clock: since it was first asked.
fn now_ns() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// How long it is to the next tick, in ns.
fn to_tick_ns(now_ns: u64) -> u64 {
    TICK_NS - now_ns % TICK_NS
}

fn schedule() -> MutexGuard<'static, Schedule> {
    lock(&SCHEDULE)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is left half-done where these are held: a panic of a link is caught while its slot is.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
