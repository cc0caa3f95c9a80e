//! The one place to sleep: epoll over descriptors and one eventfd, the doorbell, which other threads ring.

use crate::sys;
use crossdock_mailbox::bell::Bell;
use rustix::event::{EventfdFlags, epoll, eventfd};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Events taken by one wait; more stay for the next.
const MAX_EVENTS: usize = 64;

/// What a descriptor is watched for.
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
    epoll: OwnedFd,
    bell: Arc<Rung>,
    events: Box<[libc::epoll_event; MAX_EVENTS]>,
    ready: Vec<u64>,
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

    /// A poller with nothing to watch but its doorbell.
    ///
    /// # Errors
    /// The kernel's, when it has no more descriptors.
    pub fn new() -> io::Result<Poller> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &eventfd, epoll::EventData::new_u64(Self::DOORBELL), epoll::EventFlags::IN)?;
        Ok(Poller {
            epoll,
            bell: Arc::new(Rung { bell: Bell::new(), eventfd }),
            events: Box::new([libc::epoll_event { events: 0, u64: 0 }; MAX_EVENTS]),
            ready: Vec::with_capacity(MAX_EVENTS + 1),
        })
    }

    /// Watches `fd` for something to read, and reports it as `key`. A descriptor that is closed is watched no more.
    ///
    /// # Errors
    /// `InvalidInput` for the doorbell's key; the kernel's if `fd` is watched already or cannot be.
    pub fn add(&mut self, fd: impl AsFd, key: u64) -> io::Result<()> {
        if key == Self::DOORBELL {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "this key is the doorbell's: take another"));
        }
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(key), flags(Interest::Read))?)
    }

    /// Watches `fd`, added before, for something else, and reports it as `key`.
    ///
    /// # Errors
    /// The kernel's if `fd` is not watched.
    pub fn watch(&mut self, fd: impl AsFd, key: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(key), flags(interest))?)
    }

    /// Watches `fd` no more.
    ///
    /// # Errors
    /// The kernel's if it was not watched.
    pub fn remove(&mut self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// What others ring to wake this poller.
    pub fn doorbell(&self) -> Doorbell {
        Doorbell(self.bell.clone())
    }

    /// Waits until something is ready or `timeout` is over (`None`: for ever; zero: looks only), and gives the keys of
    /// what is ready, [`Poller::DOORBELL`] for the doorbell. A signal ends it early with none.
    ///
    /// # Errors
    /// The kernel's; none is expected.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<&[u64]> {
        self.ready.clear();
        let looks_only = timeout == Some(Duration::ZERO);
        let sleeps = !looks_only && self.bell.bell.try_sleep();
        let polled = if sleeps {
            crate::thread::be_punctual();
            self.poll(timeout)
        } else {
            self.poll(Some(Duration::ZERO))
        };
        // Rung meanwhile, or so lately that sleeping was refused.
        let rung = self.bell.bell.woken() || !(looks_only || sleeps);
        polled?;
        if rung {
            self.ready.push(Self::DOORBELL);
        }
        Ok(&self.ready)
    }

    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let got = sys::epoll_wait(self.epoll.as_fd(), &mut self.events[..], timeout)?;
        for at in 0..got {
            let key = self.events[at].u64;
            if key == Self::DOORBELL {
                let _drained = rustix::io::read(&self.bell.eventfd, &mut [0; 8]);
            } else {
                self.ready.push(key);
            }
        }
        Ok(())
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
