//! The resources that a client needs, made off the core: its domain's segments, its control segment, its doorbells.

use super::client::ClientKey;
use super::heap::{Heap, Heaps};
use crate::attach::{Handles, Peer, Welcome};
use crate::segment::{HugePages, Segment};
use crate::shared::{ControlLayout, DoorbellPage};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, OwnedFd};
use rustix::pipe::{PipeFlags, pipe_with};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// The two segments of a protection domain. They live as long as someone holds them: the daemon keeps them for the domain's
/// clients, and whoever attaches clients may keep a `Weak` to find them again.
pub struct DomainSegments {
    name: String,
    shared: Arc<Segment>,
    inbox: Arc<Segment>,
    /// The tables of their heaps, unless a host interface uses them: megabytes, so they are made here, off the core.
    heaps: Mutex<Option<Heaps>>,
}

impl fmt::Debug for DomainSegments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DomainSegments").field("name", &self.name).finish_non_exhaustive()
    }
}

impl DomainSegments {
    /// Makes a domain's segments: for its own messages, and for those that come from elsewhere, which only the daemon can write.
    /// `huge_pages` are used where they can be had.
    ///
    /// # Errors
    /// The system's; `InvalidInput` for a length over 4 GiB, which offsets could not reach.
    pub fn new(name: &str, shared_bytes: u64, inbox_bytes: u64, huge_pages: HugePages) -> io::Result<DomainSegments> {
        let length = |bytes: u64| match usize::try_from(bytes) {
            Ok(bytes) if u32::try_from(bytes).is_ok() => Ok(bytes),
            _ => {
                let what = format!("a segment of {bytes} bytes: less than 4 GiB can be shared");
                Err(io::Error::new(io::ErrorKind::InvalidInput, what))
            }
        };
        let shared = Arc::new(Segment::shared(length(shared_bytes)?, huge_pages)?);
        let inbox = Arc::new(Segment::shared_for_readers(length(inbox_bytes)?, huge_pages)?);
        let heaps = Mutex::new(Some(Heap::of_domain(&shared, &inbox)));
        Ok(DomainSegments { name: name.to_owned(), shared, inbox, heaps })
    }

    /// The domain's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Heaps over both that nothing is in use of.
    pub(crate) fn take_heaps(&self) -> Heaps {
        let kept = self.heaps.lock().unwrap_or_else(PoisonError::into_inner).take();
        kept.unwrap_or_else(|| Heap::of_domain(&self.shared, &self.inbox))
    }

    /// Keeps heaps that are no longer in use for the domain's next client.
    pub(crate) fn keep_heaps(&self, heaps: Heaps) {
        *self.heaps.lock().unwrap_or_else(PoisonError::into_inner) = Some(heaps);
    }

    pub(crate) fn shared(&self) -> &Arc<Segment> {
        &self.shared
    }

    pub(crate) fn inbox(&self) -> &Arc<Segment> {
        &self.inbox
    }
}

/// The pipe by which the core wakes a client with an event loop of its own. Both ends do not block, and each has flags of its own,
/// so the client cannot change that of the core's.
#[derive(Debug)]
pub(crate) struct WakePipe {
    write: OwnedFd,
    /// Also the core's, and never read: without any reader, a write would end a process that does not ignore SIGPIPE.
    read: Arc<OwnedFd>,
}

impl WakePipe {
    fn new() -> io::Result<WakePipe> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(WakePipe { write, read: Arc::new(read) })
    }

    /// Wakes the client. Into a full pipe nothing goes, and needs to: it has woken it already.
    pub(crate) fn wake(&self) {
        let _written = rustix::io::write(&self.write, &[0]);
    }
}

/// A client that may be admitted ([`super::HostInterface::admit`]).
#[derive(Debug)]
pub struct Prepared {
    pub(crate) peer: Peer,
    pub(crate) socket: Arc<OwnedFd>,
    pub(crate) domain: Arc<DomainSegments>,
    pub(crate) control: Arc<Segment>,
    pub(crate) doorbell: Arc<OwnedFd>,
    pub(crate) wake: WakePipe,
}

/// The reply to a client once it is admitted. The control segment's descriptor is only the client's from then on.
#[derive(Debug)]
pub struct AttachReply {
    socket: Arc<OwnedFd>,
    domain: Arc<DomainSegments>,
    control: OwnedFd,
    control_bytes: u64,
    bell: Arc<Segment>,
    doorbell: Arc<OwnedFd>,
    wake: Arc<OwnedFd>,
}

impl Prepared {
    /// The user of the client's process.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.peer.uid
    }

    /// Makes the resources of a client of `domain` that asked over `socket`; the core's bell is `bell`.
    ///
    /// # Errors
    /// The system's.
    pub fn new(
        peer: Peer,
        socket: impl Into<Arc<OwnedFd>>,
        domain: &Arc<DomainSegments>,
        bell: &DoorbellPage,
    ) -> io::Result<(Prepared, AttachReply)> {
        let (segment, control) = Segment::shared(ControlLayout::BYTES, HugePages::None)?.into_parts()?;
        let segment = Arc::new(segment);
        let doorbell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let wake = WakePipe::new()?;
        let socket = socket.into();
        let reply = AttachReply {
            socket: socket.clone(),
            domain: domain.clone(),
            control,
            control_bytes: segment.bytes() as u64,
            bell: bell.segment().clone(),
            doorbell: doorbell.clone(),
            wake: wake.read.clone(),
        };
        Ok((Prepared { peer, socket, domain: domain.clone(), control: segment, doorbell, wake }, reply))
    }
}

impl AttachReply {
    /// Notifies the client that it is admitted, and hands it its descriptors. Does not wait for it.
    ///
    /// # Errors
    /// The system's: the client is gone, or has too many descriptors on their way to it.
    pub fn send(self, client: ClientKey) -> io::Result<()> {
        let welcome = Welcome {
            client: client.number(),
            control_bytes: self.control_bytes,
            shared_bytes: self.domain.shared.bytes() as u64,
            inbox_bytes: self.domain.inbox.bytes() as u64,
        };
        let handles = Handles {
            control: self.control.as_fd(),
            shared: self.domain.shared.fd()?,
            inbox: self.domain.inbox.fd()?,
            bell: self.bell.fd()?,
            doorbell: self.doorbell.as_fd(),
            wake: self.wake.as_fd(),
        };
        welcome.send(self.socket.as_fd(), &handles)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that fails may panic
mod tests {
    use super::*;

    #[test]
    fn a_client_that_closes_its_end_of_the_pipe_breaks_no_write() {
        let pipe = WakePipe::new().unwrap();
        drop(pipe.read.try_clone().unwrap());
        // Full at last, which is no error either; broken it is never.
        let error = std::iter::repeat_with(|| rustix::io::write(&pipe.write, &[0; 512])).find_map(Result::err);
        assert_eq!(error, Some(rustix::io::Errno::AGAIN));
        pipe.wake();
    }
}
