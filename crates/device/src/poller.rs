//! The one place to sleep: epoll over descriptors and one eventfd, the doorbell, which other threads ring.

use crate::sys;
use crossdock_mailbox::bell::Bell;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Events taken by one wait; more stay for the next.
const MAX_EVENTS: usize = 64;

/// The events that a descriptor is watched for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    /// Something can be read.
    Read,
    /// Something can be written.
    Write,
    /// Either.
    ReadWrite,
}

/// Sleeps until one of its descriptors is ready, its doorbell rings, or time is over. Readiness is a state, not an
/// event: what is not dealt with is reported again.
pub struct Poller {
    epoll: Arc<OwnedFd>,
    bell: Arc<Rung>,
    timer: OwnedFd,
    /// When the timer goes off, if it is set.
    alarm: Option<Instant>,
    events: Box<[libc::epoll_event; MAX_EVENTS]>,
    ready: Vec<u64>,
}

/// A duplicate of a descriptor, which a [`Poller`] watches until this is dropped, on whichever thread. The original may be closed
/// before.
pub struct WatchedCopy {
    epoll: Arc<OwnedFd>,
    fd: OwnedFd,
}

impl Drop for WatchedCopy {
    fn drop(&mut self) {
        // A descriptor that the kernel does not know any more is not watched either.
        let _ = epoll::delete(&self.epoll, &self.fd);
    }
}

impl std::fmt::Debug for WatchedCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchedCopy").field("fd", &self.fd).finish_non_exhaustive()
    }
}

struct Rung {
    bell: Bell,
    eventfd: OwnedFd,
}

/// Rings a [`Poller`] from another thread. Cheap to clone; costs a system call only when the poller is asleep.
#[derive(Clone)]
pub struct Doorbell(Arc<Rung>);

impl Doorbell {
    /// Wakes the poller, or keeps it from its next sleep. Whatever was published before is seen by what the poller's
    /// thread looks at after its `wait` returns.
    pub fn ring(&self) {
        if self.0.bell.ring() {
            // Nonblocking and at most one write a sleep: the count cannot overflow, and nothing else can fail.
            let _written = rustix::io::write(&self.0.eventfd, &1u64.to_ne_bytes());
        }
    }
}

impl std::fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Doorbell").field("bell", &self.0.bell).finish()
    }
}

impl Poller {
    /// The key under which `wait` reports the doorbell; no descriptor may have it.
    pub const DOORBELL: u64 = u64::MAX;
    /// The timer's; never reported.
    const TIMER: u64 = u64::MAX - 1;

    /// A poller with nothing to watch but its doorbell.
    ///
    /// # Errors
    /// The kernel's, when it has no more descriptors.
    pub fn new() -> io::Result<Poller> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &eventfd, epoll::EventData::new_u64(Self::DOORBELL), epoll::EventFlags::IN)?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(Self::TIMER), epoll::EventFlags::IN)?;
        Ok(Poller {
            epoll,
            timer,
            alarm: None,
            bell: Arc::new(Rung { bell: Bell::new(), eventfd }),
            events: Box::new([libc::epoll_event { events: 0, u64: 0 }; MAX_EVENTS]),
            ready: Vec::with_capacity(MAX_EVENTS + 1),
        })
    }

    /// Watches `fd` for something to read, and reports it as `key`. A descriptor that is closed is watched no more.
    ///
    /// # Errors
    /// `InvalidInput` for the two highest keys, which are the poller's own; the kernel's if `fd` is watched already or cannot be.
    pub fn add(&mut self, fd: impl AsFd, key: u64) -> io::Result<()> {
        self.add_with(fd, key, flags(Interest::Read))
    }

    /// As [`Poller::add`], but reports `fd` only when something more was written since it was last reported (edge-triggered):
    /// for a doorbell that is never read. One that others hold too may not be read, since they could make the read wait.
    ///
    /// # Errors
    /// As for [`Poller::add`].
    pub fn add_edge(&mut self, fd: impl AsFd, key: u64) -> io::Result<()> {
        self.add_with(fd, key, flags(Interest::Read) | epoll::EventFlags::ET)
    }

    /// As [`Poller::add`], with a duplicate of `fd`, for as long as that is kept. An event that was reported before it
    /// is dropped may still be given by a `wait` on another thread.
    ///
    /// # Errors
    /// As for [`Poller::add`]; and the kernel's, when it has no more descriptors.
    pub fn add_copy(&self, fd: impl AsFd, key: u64) -> io::Result<WatchedCopy> {
        let fd = fd.as_fd().try_clone_to_owned()?;
        self.add_with(&fd, key, flags(Interest::Read))?;
        Ok(WatchedCopy { epoll: Arc::clone(&self.epoll), fd })
    }

    fn add_with(&self, fd: impl AsFd, key: u64, flags: epoll::EventFlags) -> io::Result<()> {
        if key >= Self::TIMER {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the two highest keys are the poller's own"));
        }
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(key), flags)?)
    }

    /// Watches `fd`, added before, for something else, and reports it as `key`.
    ///
    /// # Errors
    /// The kernel's if `fd` is not watched.
    pub fn watch(&mut self, fd: impl AsFd, key: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(key), flags(interest))?)
    }

    /// Watches `fd` no more. Needed before closing a descriptor whose file others hold too: closing does not end the watch then.
    ///
    /// # Errors
    /// The kernel's if it was not watched.
    pub fn remove(&mut self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// The doorbell that others ring to wake this poller.
    pub fn doorbell(&self) -> Doorbell {
        Doorbell(self.bell.clone())
    }

    /// Waits until something is ready or `timeout` is over (`None`: no timeout; zero: looks only), and gives the keys
    /// of what is ready, [`Poller::DOORBELL`] for the doorbell. A signal ends it early with none.
    ///
    /// A look leaves a ring for the next sleep, which it keeps from beginning: who looks now and then, between other work, may
    /// sleep next without looking again at what is rung for.
    ///
    /// # Errors
    /// The kernel's; none is expected.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<&[u64]> {
        self.ready.clear();
        let looks_only = timeout == Some(Duration::ZERO);
        let sleeps = !looks_only && self.bell.bell.try_sleep();
        let polled = if sleeps { self.sleep(timeout) } else { self.poll(false).map(drop) };
        // Rung meanwhile, or so lately that sleeping was refused.
        let rung = !looks_only && (self.bell.bell.woken() || !sleeps);
        polled?;
        if rung {
            self.ready.push(Self::DOORBELL);
        }
        Ok(&self.ready)
    }

    /// Sleeps until something is ready or the time is over.
    ///
    /// The limit is a timer in the epoll, not a time-out of the call: it is set only when it must go off sooner than it is
    /// set to, so that a loop that is woken before its time again and again (acks are due in 2 ms, messages come every
    /// 10 us) does not set and cancel a timer of the CPU for each message, which costs several us on a virtual machine.
    fn sleep(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(until) = until
                && self.alarm.is_none_or(|alarm| until < alarm)
            {
                self.set_alarm(until)?;
            }
            let only_alarm = self.poll(true)?;
            // An alarm left over from an earlier sleep is not the end of this one.
            if !only_alarm || until.is_some_and(|until| Instant::now() >= until) {
                return Ok(());
            }
        }
    }

    fn set_alarm(&mut self, at: Instant) -> io::Result<()> {
        // All zeros would switch it off.
        let time = at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        let it_value = Timespec { tv_sec: seconds, tv_nsec: i64::from(time.subsec_nanos()) };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: zero, it_value })?;
        self.alarm = Some(at);
        Ok(())
    }

    /// Takes what is ready; whether that was the alarm and nothing else.
    fn poll(&mut self, sleeps: bool) -> io::Result<bool> {
        let got = sys::epoll_wait(self.epoll.as_fd(), &mut self.events[..], sleeps)?;
        for at in 0..got {
            match self.events[at].u64 {
                Self::DOORBELL => {
                    let _drained = rustix::io::read(&self.bell.eventfd, &mut [0; 8]);
                }
                Self::TIMER => {
                    let _drained = rustix::io::read(&self.timer, &mut [0; 8]);
                    self.alarm = None;
                }
                key => self.ready.push(key),
            }
        }
        Ok(got == 1 && self.events[0].u64 == Self::TIMER)
    }
}

fn flags(interest: Interest) -> epoll::EventFlags {
    match interest {
        Interest::Read => epoll::EventFlags::IN,
        Interest::Write => epoll::EventFlags::OUT,
        Interest::ReadWrite => epoll::EventFlags::IN | epoll::EventFlags::OUT,
    }
}

impl std::fmt::Debug for Poller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Poller").field("bell", &self.bell.bell).field("ready", &self.ready).finish_non_exhaustive()
    }
}
