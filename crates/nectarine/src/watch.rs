//! A thread's place to sleep until its link is heard, its doorbell rings, or time is over.

use crate::error::Error;
use crate::link::Link;
use crossdock_device::{Doorbell, Poller};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The link's key in the poller.
const LINK: u64 = 0;

/// A poller, and what of the link it watches.
pub(crate) struct Watch {
    poller: Poller,
    /// The descriptor's number and a duplicate of it: so it can be taken out of the poller also when the link has let go of its
    /// own.
    watched: Option<(u64, OwnedFd)>,
}

impl Watch {
    /// Watches nothing but its doorbell.
    ///
    /// # Errors
    /// The kernel's, when it has no more descriptors.
    pub(crate) fn new() -> Result<Watch, Error> {
        let poller = Poller::new().map_err(Error::system("cannot watch the connection to the daemon"))?;
        Ok(Watch { poller, watched: None })
    }

    pub(crate) fn doorbell(&self) -> Doorbell {
        self.poller.doorbell()
    }

    /// Watches what the link's session is heard on now.
    pub(crate) fn watch(&mut self, link: &Link) {
        let (number, fd) = link.descriptor();
        if fd.is_some() && self.watched.as_ref().is_some_and(|(watched, _)| *watched == number) {
            return;
        }
        self.look_away();
        // If the kernel refuses to watch, the session's deadlines still bound how late the thread is.
        if let Some(fd) = fd
            && let Ok(duplicate) = fd.try_clone_to_owned()
            && self.poller.add(&duplicate, LINK).is_ok()
        {
            self.watched = Some((number, duplicate));
        }
    }

    /// Watches the link no more.
    pub(crate) fn look_away(&mut self) {
        if let Some((_, watched)) = self.watched.take() {
            // What the kernel does not know any more is not watched either.
            let _ = self.poller.remove(&watched);
        }
    }

    /// Sleeps; whether it was the link that was heard. A failed wait (a signal) is a short one.
    pub(crate) fn sleep(&mut self, pause_ns: u64) -> bool {
        self.poller.wait(Some(Duration::from_nanos(pause_ns))).is_ok_and(|ready| ready.contains(&LINK))
    }
}
