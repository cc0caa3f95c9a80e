//! The descriptor that a poller watches of a link, and an application thread's place to sleep until its link is heard,
//! its doorbell rings, or time is over.

use crate::error::Error;
use crate::link::Link;
use crossdock_device::{Doorbell, Poller, WatchedCopy};
use std::time::Duration;

/// The link's key in its application thread's poller.
const LINK: u64 = 0;

/// The descriptor that a poller watches of a link: the descriptor's number and a duplicate of it, so that it can be
/// taken out of the poller also when the link has let go of its own.
#[derive(Default)]
pub(crate) struct Watched(Option<(u64, WatchedCopy)>);

impl Watched {
    /// Watches what the link's session is heard on now, and has the poller report it as `key`.
    pub(crate) fn watch(&mut self, link: &Link, poller: &Poller, key: u64) {
        let (number, fd) = link.descriptor();
        if fd.is_some() && self.0.as_ref().is_some_and(|(watched, _)| *watched == number) {
            return;
        }
        self.look_away();
        // If the kernel refuses to watch, the session's deadlines still bound how late the thread is.
        self.0 = fd.and_then(|fd| Some((number, poller.add_copy(fd, key).ok()?)));
    }

    /// Watches the link no more.
    pub(crate) fn look_away(&mut self) {
        self.0 = None;
    }
}

/// A poller, and what of the link it watches.
pub(crate) struct Watch {
    poller: Poller,
    watched: Watched,
}

impl Watch {
    /// Watches nothing but its doorbell.
    ///
    /// # Errors
    /// The kernel's, when it has no more descriptors.
    pub(crate) fn new() -> Result<Watch, Error> {
        let poller = Poller::new().map_err(Error::system("cannot watch the connection to the daemon"))?;
        Ok(Watch { poller, watched: Watched::default() })
    }

    pub(crate) fn doorbell(&self) -> Doorbell {
        self.poller.doorbell()
    }

    /// Watches what the link's session is heard on now.
    pub(crate) fn watch(&mut self, link: &Link) {
        self.watched.watch(link, &self.poller, LINK);
    }

    /// Sleeps; whether it was the link that was heard. A failed wait (a signal) is a short one.
    pub(crate) fn sleep(&mut self, pause_ns: u64) -> bool {
        self.poller.wait(Some(Duration::from_nanos(pause_ns))).is_ok_and(|ready| ready.contains(&LINK))
    }
}
