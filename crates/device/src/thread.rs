//! The demands of a polled loop on its thread: short precise naps, a core of its own, and to go first there.

use crate::sys::{self, processor_time, set_share};
use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::{
    CpuSet, Timespec, gettid, nanosleep, sched_getaffinity, sched_setaffinity, set_current_timer_slack,
};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How late the kernel may end a nap. Its default of 50 us would more than double a nap of 30.
const TIMER_SLACK_NS: u64 = 1_000;

thread_local! {
    static SLACK_IS_SET: Cell<bool> = const { Cell::new(false) };
}

/// Makes this thread's timed waits precise to about 1 us; the first call on a thread costs a system call. Where the
/// kernel refuses, waits stay unchanged.
pub(crate) fn be_punctual() {
    if !SLACK_IS_SET.replace(true) {
        let _refused = set_current_timer_slack(NonZeroU64::new(TIMER_SLACK_NS));
    }
}

/// Sleeps for about `time`, a few us more rather than less; a signal may end it early.
pub fn nap(time: Duration) {
    #[cfg(feature = "simulation")]
    if crate::simulated::nap(time) {
        return;
    }
    be_punctual();
    let time =
        Timespec { tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(time.subsec_nanos()) };
    let _rest_after_signal = nanosleep(&time);
}

/// Has the process keep the memory that its threads free, some MiB for each arena, in place of giving it back to the system again and
/// again: for that the kernel interrupts each core that runs a thread of the process, so that it forgets where the memory was. Threads
/// that plan and compile free as much as they take, and contexts on other cores would be interrupted for it. To be called once, before
/// there are many threads. Only where the allocator is glibc's; else nothing happens.
pub fn keep_freed_memory() {
    sys::keep_freed_memory();
}

/// Ties this thread to one core, counted from 0.
///
/// # Errors
/// `InvalidInput` if the machine has no such core, or this process may not use it.
pub fn pin_to_cpu(cpu: usize) -> io::Result<()> {
    let refuse = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    if cpu >= CpuSet::MAX_CPU {
        return refuse(format!("there is no core {cpu}: cores are counted from 0"));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    match sched_setaffinity(None, &set) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::INVAL) => {
            refuse(format!("core {cpu} is not there, or this process may not use it (see `taskset -p $$`, `nproc`)"))
        }
        Err(error) => Err(error.into()),
    }
}

/// Keeps this thread, and those that it starts, off these cores, where it may use others.
///
/// # Errors
/// The system's; nothing has changed then.
pub fn exclude_cpus(cpus: impl IntoIterator<Item = usize>) -> io::Result<()> {
    let mut set = sched_getaffinity(None)?;
    cpus.into_iter().filter(|cpu| *cpu < CpuSet::MAX_CPU).for_each(|cpu| set.unset(cpu));
    match set.count() {
        0 => Ok(()),
        _ => Ok(sched_setaffinity(None, &set)?),
    }
}

/// The highest priority that a thread has among ordinary ones.
const HIGHEST: i32 = -20;

/// Has this thread go before all ordinary ones of its core, which get little while it works.
///
/// # Errors
/// `PermissionDenied` without CAP_SYS_NICE, or a limit that allows it (`ulimit -e`); nothing has changed then.
pub fn raise_priority() -> io::Result<()> {
    set_nice(HIGHEST)
}

/// Gives this thread a priority among ordinary ones, from -20, the highest, to 19: how large its share of a core is that others
/// want too.
///
/// # Errors
/// `PermissionDenied` for a higher one than it has without CAP_SYS_NICE, or a limit that allows it (`ulimit -e`); nothing has
/// changed then.
pub fn set_nice(nice: i32) -> io::Result<()> {
    // On Linux a priority is a thread's, and none named is this one.
    Ok(setpriority_process(None, nice)?)
}

/// Gives this thread a time slice of 0.1 ms, where an ordinary one has some ms; its share stays what it is. On Linux 6.12 and later
/// a thread that wakes goes before those of longer slices, if it has had no more than its share; and it goes on for no longer
/// while another waits that should go first.
///
/// # Errors
/// The system's; nothing has changed then.
pub fn take_short_turns() -> io::Result<()> {
    set_share(0, Some((getpriority_process(None)?, SHORT_SLICE_NS)))
}

/// The same with a slice of 0.5 ms: a thread that wakes goes before ordinary ones, and gives way at once to one of
/// [short turns](take_short_turns), which else would wait for the rest of its slice.
///
/// # Errors
/// The system's; nothing has changed then.
pub fn take_medium_turns() -> io::Result<()> {
    set_share(0, Some((getpriority_process(None)?, MEDIUM_SLICE_NS)))
}

/// The priority of a thread that gives way where others leave it nothing: it gets a tenth of what one of them gets.
const LOW: i32 = 10;
/// How long it goes on then while another waits, in ns. Ordinary ones go on for some ms, however low their priority.
const SHORT_SLICE_NS: u64 = 100_000;
/// The same of a thread that goes before ordinary ones and behind those; theirs is 0.7 ms on one CPU, and more on several.
const MEDIUM_SLICE_NS: u64 = 500_000;
/// How often it is seen whether others leave it anything.
const LOOK_EVERY: Duration = Duration::from_millis(3);
/// The part that is read of the system's report about a thread: its number, its name of at most 15 bytes, its state,
/// and some more.
const STAT_BYTES: usize = 64;

/// A thread that gives way to all others. It takes what they leave: who wakes finds its core as good as idle, and goes on
/// there at once. Where they leave it too little, it gets a small share ([`BackgroundThread::look`]).
#[derive(Debug)]
pub struct BackgroundThread {
    thread: i32,
    own: CpuTime,
    /// Whether it has a share.
    shares: bool,
}

impl BackgroundThread {
    /// Has this thread give way; what comes back is for one that waits for it. A thread that could not be given a share later,
    /// for want of CAP_SYS_NICE or of a limit that allows it (`ulimit -e`), has its share from the start.
    pub fn begin() -> BackgroundThread {
        static COMES_BACK: OnceLock<bool> = OnceLock::new();
        let try_it = || {
            let there_and_back = || set_share(0, None).and_then(|()| set_share(0, Some((LOW, SHORT_SLICE_NS))));
            std::thread::spawn(there_and_back).join().is_ok_and(|done| done.is_ok())
        };
        let takes_rest = *COMES_BACK.get_or_init(try_it) && set_share(0, None).is_ok();
        let own = CpuTime::of_this_thread();
        let thread = own.thread;
        if !takes_rest {
            // Where even that is refused it goes as all others do.
            let _ = set_share(thread, Some((LOW, SHORT_SLICE_NS)));
        }
        BackgroundThread { thread, own, shares: !takes_rest }
    }

    /// How long to wait until [`BackgroundThread::look`].
    pub fn look_every(&self) -> Duration {
        LOOK_EVERY
    }

    /// After [`BackgroundThread::look_every`]: gives it a share, if it had less than an eighth of the time. The time of its own that it has
    /// had since it was last looked at, as [`CpuTime::since_last`] says.
    pub fn look(&mut self) -> Duration {
        let own = self.own.since_last();
        if !self.shares && own < LOOK_EVERY / 8 {
            self.shares = true;
            // It may have ended.
            let _ = set_share(self.thread, Some((LOW, SHORT_SLICE_NS)));
        }
        own
    }
}

/// A thread's own time: in which it worked or slept, but not that in which it waited for a processor. A caller that
/// gives a thread a time to come back from something counts this, or one that others leave no processor is taken for
/// one that does not come back.
#[derive(Debug)]
pub struct CpuTime {
    thread: i32,
    looked: Instant,
    had: Duration,
}

impl CpuTime {
    /// From now on, of the thread that calls this.
    pub fn of_this_thread() -> CpuTime {
        CpuTime::of(ThreadNumber::of_this_thread())
    }

    /// From now on, of another thread of this process.
    pub fn of(ThreadNumber(thread): ThreadNumber) -> CpuTime {
        let had = Seen::of(thread).map_or(Duration::ZERO, |seen| seen.had);
        CpuTime { thread, looked: Instant::now(), had }
    }

    /// The time that it has had since this was last asked, or began; all of the time if the system does not say. The
    /// work that the thread is doing now stands for the whole time, so ask often.
    pub fn since_last(&mut self) -> Duration {
        let now = Instant::now();
        let all = now - std::mem::replace(&mut self.looked, now);
        let Some(seen) = Seen::of(self.thread) else { return all };
        let had = seen.had.saturating_sub(std::mem::replace(&mut self.had, seen.had));
        if seen.is_runnable { had.min(all) } else { all }
    }
}

/// The processor time that the calling thread has had, in ns: a system call of about 100 ns.
#[must_use]
pub fn thread_time_ns() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(now_ns) = crate::simulated::look_ns() {
        return now_ns;
    }
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// The number that the system gave a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadNumber(i32);

impl ThreadNumber {
    /// Of the thread that calls this.
    pub fn of_this_thread() -> ThreadNumber {
        ThreadNumber(gettid().as_raw_nonzero().get())
    }
}

impl From<ThreadNumber> for u64 {
    fn from(ThreadNumber(number): ThreadNumber) -> u64 {
        number.unsigned_abs().into()
    }
}

/// Any number; one that no thread has yields no measurements.
impl From<u64> for ThreadNumber {
    fn from(number: u64) -> ThreadNumber {
        ThreadNumber(i32::try_from(number).unwrap_or(0))
    }
}

/// The visible state of a thread.
struct Seen {
    /// Processor time that it has had.
    had: Duration,
    /// Whether it works, or waits for a processor.
    is_runnable: bool,
}

impl Seen {
    fn of(thread: i32) -> Option<Seen> {
        // A caller looks every few ms: no more than the beginning is read, and no metadata.
        let mut stat = [0; STAT_BYTES];
        let read =
            File::open(format!("/proc/self/task/{thread}/stat")).and_then(|mut file| file.read(&mut stat)).ok()?;
        // The name before the state may have anything in it, binary data too.
        let state = stat[..read].windows(2).rposition(|two| two == b") ")? + 2;
        Some(Seen { had: processor_time(thread)?, is_runnable: stat[..read].get(state) == Some(&b'R') })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::TryRecvError;

    #[test]
    fn a_core_that_is_not_there_is_refused() {
        assert_eq!(pin_to_cpu(CpuSet::MAX_CPU).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(pin_to_cpu(CpuSet::MAX_CPU - 1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_thread_excludes_cores_where_there_are_others() {
        let run = || {
            let before = sched_getaffinity(None).unwrap();
            let first = (0..CpuSet::MAX_CPU).find(|cpu| before.is_set(*cpu)).unwrap();
            exclude_cpus([first, usize::MAX]).unwrap();
            let after = sched_getaffinity(None).unwrap();
            assert_eq!(after.count(), (before.count() - 1).max(1));
            assert!(before.count() == 1 || !after.is_set(first));
            // All of them are none.
            exclude_cpus(0..CpuSet::MAX_CPU).unwrap();
            assert_eq!(sched_getaffinity(None).unwrap(), after);
        };
        std::thread::spawn(run).join().unwrap();
    }

    #[test]
    fn a_background_thread_gets_a_share_where_others_leave_it_too_little() {
        let (sender, comes) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let first = || {
            let cpus = sched_getaffinity(None).unwrap();
            pin_to_cpu((0..CpuSet::MAX_CPU).find(|cpu| cpus.is_set(*cpu)).unwrap()).unwrap();
        };
        let giving = std::thread::spawn(move || {
            first();
            sender.send(BackgroundThread::begin()).unwrap();
            while ends.try_recv() == Err(TryRecvError::Empty) {}
        });
        let mut background = comes.recv().unwrap();
        let policy = |thread: i32| {
            let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
            let fields: Vec<&str> = text.rsplit_once(") ").unwrap().1.split(' ').collect();
            (fields[38].parse::<i32>().unwrap(), fields[16].parse::<i32>().unwrap())
        };
        if background.shares {
            println!("this process may not give a thread its share back, so it has it from the start");
        } else {
            assert_eq!(policy(background.thread).0, libc::SCHED_IDLE);
        }
        // Another takes all of the time.
        let taking = std::thread::spawn(move || {
            first();
            while !background.shares {
                let began = Instant::now();
                while began.elapsed() < background.look_every() {}
                background.look();
            }
            background
        });
        let mut background = taking.join().unwrap();
        assert_eq!(policy(background.thread), (libc::SCHED_OTHER, LOW));
        drop(end);
        giving.join().unwrap();
        // It has ended.
        background.look();
    }

    #[test]
    fn a_threads_own_time_is_what_it_works_or_sleeps() {
        let (sender, comes) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            sender.send(ThreadNumber::of_this_thread()).unwrap();
            ends.recv().unwrap_err();
        });
        let thread = comes.recv().unwrap();
        let mut sleeps = CpuTime::of(thread);
        let this = ThreadNumber::of_this_thread().0;
        let had = processor_time(this).unwrap();
        let (mut works, began) = (CpuTime::of_this_thread(), Instant::now());
        while began.elapsed() < Duration::from_millis(20) {}
        let own = works.since_last();
        let had = processor_time(this).unwrap() - had;
        assert!(own <= had, "{own:?} of {had:?}: not that in which others worked");
        while Seen::of(thread.0).is_none_or(|seen| seen.is_runnable) {
            std::thread::yield_now();
        }
        assert!(sleeps.since_last() >= Duration::from_millis(20));
        drop(end);
        other.join().unwrap();
        while Seen::of(thread.0).is_some() {
            std::thread::yield_now();
        }
        assert!(sleeps.since_last() > Duration::ZERO, "a thread that has ended has no figures");
    }

    #[test]
    fn a_thread_has_a_priority_of_its_own() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let before = nice();
        let set = move || (set_nice(nice().max(7)), nice());
        let (done, of_thread) = std::thread::spawn(set).join().unwrap();
        done.unwrap();
        assert_eq!((of_thread, nice()), (before.max(7), before));
    }

    /// Page faults of this thread that needed no disk.
    #[cfg(target_env = "gnu")]
    fn faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        stat.rsplit_once(") ").unwrap().1.split(' ').nth(7).unwrap().parse().unwrap()
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn memory_that_a_thread_frees_is_there_when_it_takes_as_much_again() {
        // As the threads that plan: much, in small pieces.
        let plan = || drop((0..1000).map(|at| vec![at as u8; 1000]).collect::<Vec<Vec<u8>>>());
        let again = move || {
            plan();
            let before = faults();
            (0..10).for_each(|_| plan());
            faults() - before
        };
        keep_freed_memory();
        let after = std::thread::spawn(again).join().unwrap();
        assert!(after < 100, "{after} faults for 2500 pages that were there before");
    }

    #[test]
    fn a_nap_lasts_at_least_its_time() {
        let start = std::time::Instant::now();
        nap(Duration::from_micros(30));
        assert!(start.elapsed() >= Duration::from_micros(30));
        assert_eq!(rustix::thread::current_timer_slack().unwrap(), TIMER_SLACK_NS);
    }
}
