//! What a polled loop asks of its thread: short precise naps, a core of its own, and to go first there.

use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, Timespec, nanosleep, sched_setaffinity, set_current_timer_slack};
use std::cell::Cell;
use std::io;
use std::num::NonZeroU64;
use std::time::Duration;

/// How late the kernel may end a nap. Its default of 50 us would more than double a nap of 30.
const TIMER_SLACK_NS: u64 = 1_000;

thread_local! {
    static SLACK_IS_SET: Cell<bool> = const { Cell::new(false) };
}

/// Makes this thread's timed waits precise to about 1 us; the first call on a thread costs a system call. Where the
/// kernel refuses, waits stay as they are.
pub(crate) fn be_punctual() {
    if !SLACK_IS_SET.replace(true) {
        let _refused = set_current_timer_slack(NonZeroU64::new(TIMER_SLACK_NS));
    }
}

/// Sleeps for about `time`, a few us more rather than less; a signal may end it early.
pub fn nap(time: Duration) {
    be_punctual();
    let time =
        Timespec { tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(time.subsec_nanos()) };
    let _rest_after_signal = nanosleep(&time);
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

/// The highest priority that a thread has among ordinary ones.
const HIGHEST: i32 = -20;

/// Has this thread go before all ordinary ones of its core, which get little while it works.
///
/// # Errors
/// `PermissionDenied` without CAP_SYS_NICE, or a limit that allows it (`ulimit -e`); nothing has changed then.
pub fn go_first() -> io::Result<()> {
    // On Linux a priority is a thread's, and none named is this one.
    Ok(setpriority_process(None, HIGHEST)?)
}

/// The niceness of a thread that [gives way](give_way): a tenth of an ordinary one's share.
const GIVING_WAY: i32 = 10;

/// Has this thread, and those that it starts, give way to ordinary ones: they go first wherever both have work. Cannot be taken
/// back without privileges.
///
/// # Errors
/// The system's; nothing has changed then.
pub fn give_way() -> io::Result<()> {
    Ok(setpriority_process(None, GIVING_WAY)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_is_not_there_is_refused() {
        assert_eq!(pin_to_cpu(CpuSet::MAX_CPU).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(pin_to_cpu(CpuSet::MAX_CPU - 1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_nap_lasts_at_least_its_time() {
        let start = std::time::Instant::now();
        nap(Duration::from_micros(30));
        assert!(start.elapsed() >= Duration::from_micros(30));
        assert_eq!(rustix::thread::current_timer_slack().unwrap(), TIMER_SLACK_NS);
    }
}
