//! A descriptor that becomes readable when a task would be woken: for event loops.

use crate::error::Error;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Wake, Waker};

/// An eventfd, and the waker that makes it readable.
pub(crate) struct Signal {
    raised: Arc<Raised>,
    pub(crate) waker: Waker,
}

struct Raised(OwnedFd);

impl Wake for Raised {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Nonblocking, and cleared at each look: the count cannot overflow, and nothing else can fail.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

impl Signal {
    /// A descriptor that is readable, so that whoever waits for it looks first.
    ///
    /// # Errors
    /// The kernel has no more descriptors.
    pub(crate) fn new() -> Result<Signal, Error> {
        let failed = Error::system("cannot make a descriptor");
        let fd = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| failed(error.into()))?;
        let raised = Arc::new(Raised(fd));
        Ok(Signal { waker: Waker::from(Arc::clone(&raised)), raised })
    }

    /// A duplicate of the descriptor.
    ///
    /// # Errors
    /// The kernel has no more descriptors.
    pub(crate) fn duplicate(&self) -> Result<OwnedFd, Error> {
        self.raised.0.try_clone().map_err(Error::system("cannot duplicate a descriptor"))
    }

    /// Makes it unreadable.
    pub(crate) fn clear(&self) {
        // Nothing is to be read where it was not raised.
        let _ = rustix::io::read(&self.raised.0, &mut [0; 8]);
    }
}
