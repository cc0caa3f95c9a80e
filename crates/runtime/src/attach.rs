//! Attaching processes: the policy, the protection domains, and the thread that prepares clients off the core.
//!
//! The thread takes processes from the attach socket, holds them against the policy, waits until they have said what they will use,
//! chooses a context for each, makes what it needs (segments, doorbells) and hands that over to the context, which only enters it
//! into its tables. A domain has segments at each context that has clients of it: they are made for the first client there and freed
//! after the last.

mod placement;
#[cfg(test)]
mod tests;

use crate::config::{Allowed, AttachConfig};
use crate::graph::gauges::ContextGauges;
use crate::inbox::{Command, Inbox};
use crate::managers::events::{About, Events};
use crate::refusal::Stopped;
use crossdock_device::{Doorbell, Poller, nap};
use crossdock_mailbox::DoorbellPage;
use crossdock_mailbox::attach::{AttachAddr, AttachListener, AttachRequest, Peer, RequestError, refuse};
use crossdock_mailbox::host::{ClientKey, DomainSegments, HostConfig, Prepared};
use placement::Placement;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The attach socket's key in the thread's poller. Processes that have connected have the following ones.
const LISTENER: u64 = 0;
/// How long to wait after the system refused to take a process, so as not to ask it again and again.
const PAUSE: Duration = Duration::from_millis(100);
/// Failures are noted once within this time.
const NOTE_AGAIN: Duration = Duration::from_secs(10);
/// Processes that have connected and said nothing yet; of more, the oldest is refused. An honest one says what it wants at once.
const MAX_PENDING: usize = 64;

/// A process that has connected and said nothing yet.
struct Pending {
    /// In the thread's poller.
    key: u64,
    peer: Peer,
    socket: Arc<OwnedFd>,
}

/// A protection domain, for finding its segments again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Domain {
    /// The configured one of that index.
    Configured(usize),
    /// A user's own.
    User(u32),
}

/// The state of the thread.
struct Attaching {
    listener: AttachListener,
    config: AttachConfig,
    host: HostConfig,
    poller: Poller,
    contexts: Vec<AttachTarget>,
    placement: Placement,
    /// By domain and index of the context: each has a heap of its own over the segments.
    domains: HashMap<(Domain, usize), Weak<DomainSegments>>,
    /// The oldest first.
    pending: VecDeque<Pending>,
    /// The key of the last process that connected.
    last_key: u64,
    /// The daemon's own user and group.
    own: (u32, u32),
    failures: Failures,
}

/// The refusals of the system, and the means to say so.
struct Failures {
    events: Events,
    /// When the last one was noted.
    noted: Option<Instant>,
    /// A descriptor that is given up for a moment when no other is left, so that a process can be taken and refused.
    reserve: Option<OwnedFd>,
}

impl Failures {
    fn new(events: Events) -> Failures {
        Failures { events, noted: None, reserve: reserve() }
    }

    /// The reason for the process; it is noted among the daemon's events too, unless one was a moment ago.
    fn note(&mut self, error: &io::Error) -> String {
        let mut reason = format!("the daemon could not set up the client: {error}");
        if is_out_of_files(error) {
            reason.push_str("; raise its limit of open files (`ulimit -n`, or LimitNOFILE of its service)");
        }
        if self.noted.is_none_or(|at| at.elapsed() >= NOTE_AGAIN) {
            self.noted = Some(Instant::now());
            self.events.note("attach_failed", About::default(), reason.clone());
        }
        reason
    }
}

/// A descriptor of no use of its own.
fn reserve() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC).ok()
}

/// Whether this process, or the machine, has no more descriptors.
fn is_out_of_files(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// A context that takes clients in.
pub(crate) struct AttachTarget {
    pub(crate) inbox: Inbox,
    /// They say how busy it is.
    pub(crate) gauges: Arc<ContextGauges>,
    /// The bell of its host interface.
    pub(crate) bell: Arc<DoorbellPage>,
}

/// The thread that lets processes attach; stopped by dropping this.
#[derive(Debug)]
pub(crate) struct AttachThread {
    address: AttachAddr,
    stop: Arc<AtomicBool>,
    doorbell: Doorbell,
    thread: Option<JoinHandle<()>>,
}

/// The thread's connections to the rest.
pub(crate) struct AttachParts {
    pub(crate) config: AttachConfig,
    pub(crate) host: HostConfig,
    pub(crate) address: AttachAddr,
    /// A socket that listens there already.
    pub(crate) passed: Option<AttachListener>,
    /// The contexts that take clients in; at least one.
    pub(crate) contexts: Vec<AttachTarget>,
    /// Of these, the index of the one with the mailboxes, tasks, syncs and host conditions.
    pub(crate) home: usize,
    /// Where failures are noted.
    pub(crate) events: Events,
}

impl AttachThread {
    /// Listens, and starts the thread.
    ///
    /// # Errors
    /// The system's: the address is taken, or may not be had.
    pub(crate) fn start(parts: AttachParts) -> io::Result<AttachThread> {
        let AttachParts { config, host, address, passed, contexts, home, events } = parts;
        let own = (geteuid().as_raw(), getegid().as_raw());
        // A file that only the daemon's user may write needs no more protection than the policy; with more users it
        // must be open.
        let open_to_others = config.uids != Allowed::Own;
        let listener = passed.map_or_else(|| AttachListener::bind(&address, open_to_others), Ok)?;
        let mut poller = Poller::new()?;
        poller.add(&listener, LISTENER)?;
        let doorbell = poller.doorbell();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let failures = Failures::new(events);
        let mut attaching = Attaching::new((listener, poller), (config, host), (contexts, home), own, failures);
        let run = move || {
            while !stopped.load(Ordering::Acquire) {
                attaching.turn();
            }
        };
        let thread = std::thread::Builder::new().name("attach".into()).spawn(run)?;
        Ok(AttachThread { address, stop, doorbell, thread: Some(thread) })
    }

    /// The address on which it listens.
    pub(crate) fn address(&self) -> &AttachAddr {
        &self.address
    }
}

impl Drop for AttachThread {
    /// Refuses further attachments, and waits for the thread's end. The context must answer or be gone meanwhile.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.doorbell.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Attaching {
    fn new(
        (listener, poller): (AttachListener, Poller),
        (config, host): (AttachConfig, HostConfig),
        (contexts, home): (Vec<AttachTarget>, usize),
        own: (u32, u32),
        failures: Failures,
    ) -> Attaching {
        let gauges = contexts.iter().map(|to| Arc::clone(&to.gauges));
        let placement = Placement::new(gauges, (home, host.max_clients), Instant::now());
        let (domains, pending) = (HashMap::new(), VecDeque::new());
        let last_key = LISTENER;
        Attaching { listener, config, host, poller, contexts, placement, domains, pending, last_key, own, failures }
    }

    /// Waits until something comes, and sees to it.
    fn turn(&mut self) {
        // A failed wait (a signal) is a short one.
        let ready = self.poller.wait(None).map(<[u64]>::to_vec).unwrap_or_default();
        for key in ready {
            match key {
                Poller::DOORBELL => {}
                LISTENER => self.take_all(),
                key => {
                    let at = self.pending.iter().position(|pending| pending.key == key);
                    if let Some(pending) = at.and_then(|at| self.pending.remove(at))
                        && let Some(silent) = self.hear_watched(pending)
                    {
                        self.wait_for(silent);
                    }
                }
            }
        }
    }

    /// Takes those that ask now.
    fn take_all(&mut self) {
        loop {
            match self.listener.accept() {
                Ok(None) => return,
                Ok(Some((peer, socket))) => self.take(peer, socket),
                // Whether anybody asks or not.
                Err(error) if is_out_of_files(&error) => match self.refuse_next(&error) {
                    Some(true) => {}
                    Some(false) => return,
                    None => return nap(PAUSE),
                },
                Err(error) => {
                    self.failures.note(&error);
                    return nap(PAUSE);
                }
            }
        }
    }

    /// Takes a process for which there is no descriptor, and refuses it. False if none asks; nothing if there is no descriptor to
    /// ask the system with.
    fn refuse_next(&mut self, error: &io::Error) -> Option<bool> {
        let had_one = self.failures.reserve.take().is_some();
        let taken = had_one.then(|| self.listener.accept());
        if let Some(Ok(Some((_, socket)))) = &taken {
            refuse(socket.as_fd(), &self.failures.note(error));
        }
        let outcome = match &taken {
            Some(Ok(process)) => Some(process.is_some()),
            Some(Err(_)) | None => None,
        };
        drop(taken);
        self.failures.reserve = reserve();
        outcome
    }

    /// Takes one process, if the policy lets it attach.
    fn take(&mut self, peer: Peer, socket: OwnedFd) {
        if let Err(reason) = self.check(&peer) {
            return refuse(socket.as_fd(), &reason);
        }
        self.last_key += 1;
        // Most have said what they want before they are taken.
        let Some(silent) = self.hear(Pending { key: self.last_key, peer, socket: Arc::new(socket) }) else { return };
        if self.pending.len() >= MAX_PENDING
            && let Some(oldest) = self.pending.pop_front()
            && let Some(oldest) = self.hear_watched(oldest)
        {
            let reason = format!(
                "this process connected and sent no attach request, and {MAX_PENDING} newer connections wait to send \
                 theirs"
            );
            refuse(oldest.socket.as_fd(), &reason);
        }
        self.wait_for(silent);
    }

    /// Waits for a process's request, in the poller.
    fn wait_for(&mut self, silent: Pending) {
        match self.poller.add(&silent.socket, silent.key) {
            Ok(()) => self.pending.push_back(silent),
            Err(error) => refuse(silent.socket.as_fd(), &self.failures.note(&error)),
        }
    }

    /// [`Attaching::hear`], for a process that the poller watches: no more, since a context may have the socket next.
    fn hear_watched(&mut self, pending: Pending) -> Option<Pending> {
        let _ = self.poller.remove(&pending.socket);
        self.hear(pending)
    }

    /// Admits a process that has made its request, or refuses it; gives it back if it has said nothing.
    fn hear(&mut self, pending: Pending) -> Option<Pending> {
        match AttachRequest::receive(pending.socket.as_fd()) {
            Ok(None) => return Some(pending),
            Ok(Some(request)) => {
                // The context has the socket too.
                let socket = pending.socket.clone();
                if let Err(reason) = self.admit(pending.peer, pending.socket, request) {
                    refuse(socket.as_fd(), &reason);
                }
            }
            Err(RequestError::Malformed(reason)) => refuse(pending.socket.as_fd(), &reason),
            Err(RequestError::HungUp) => {}
        }
        None
    }

    /// Hands a process over to the context that is for it.
    fn admit(&mut self, peer: Peer, socket: Arc<OwnedFd>, request: AttachRequest) -> Result<(), String> {
        let at = self.placement.choose(request.uses_mailboxes, Instant::now());
        let domain = self.domain_of(peer.uid, at).map_err(|error| self.failures.note(&error))?;
        let AttachTarget { inbox, bell, .. } = &self.contexts[at];
        let prepared = Prepared::new(peer, socket, &domain, bell);
        let (prepared, reply) = prepared.map_err(|error| self.failures.note(&error))?;
        let client = hand_over(inbox, prepared).inspect_err(|_| self.placement.note_unanswered(at))?;
        self.placement.note_placed(at);
        if reply.send(client).is_err() {
            // The process is gone, or cannot be notified: the context would wait for its hang-up, which may never come.
            let _ = inbox.send(Command::Detach(client));
        }
        Ok(())
    }

    /// The policy.
    fn check(&self, peer: &Peer) -> Result<(), String> {
        let (own_uid, own_gid) = self.own;
        let uid_allowed = match &self.config.uids {
            Allowed::Own => peer.uid == own_uid,
            Allowed::Any => true,
            Allowed::List(uids) => uids.contains(&peer.uid),
        };
        if !uid_allowed {
            return Err(format!(
                "user id {} may not attach here (`uids` in [attach] of the daemon's configuration)",
                peer.uid
            ));
        }
        let gid_allowed = match &self.config.gids {
            Allowed::Own => peer.is_in_group(own_gid),
            Allowed::Any => true,
            Allowed::List(gids) => gids.iter().any(|&gid| peer.is_in_group(gid)),
        };
        if !gid_allowed {
            return Err(format!(
                "group id {} may not attach here (`gids` in [attach] of the daemon's configuration)",
                peer.gid
            ));
        }
        Ok(())
    }

    /// The segments of a user's domain at a context, created if no client uses them now.
    fn domain_of(&mut self, uid: u32, context: usize) -> io::Result<Arc<DomainSegments>> {
        let configured = self.config.domains.iter().position(|(_, uids)| uids.contains(&uid));
        let (domain, name) = match configured {
            Some(index) => (Domain::Configured(index), self.config.domains[index].0.clone()),
            None => (Domain::User(uid), format!("uid {uid}")),
        };
        if let Some(segments) = self.domains.get(&(domain, context)).and_then(Weak::upgrade) {
            return Ok(segments);
        }
        let HostConfig { shared_bytes, inbox_bytes, .. } = self.host;
        let segments = Arc::new(DomainSegments::new(&name, shared_bytes, inbox_bytes, self.config.huge_pages)?);
        self.domains.retain(|_, known| known.strong_count() > 0);
        self.domains.insert((domain, context), Arc::downgrade(&segments));
        Ok(segments)
    }
}

/// Hands a client over to a context, which takes it in or says why not.
fn hand_over(inbox: &Inbox, prepared: Prepared) -> Result<ClientKey, String> {
    let gone = |why: Stopped| match why == Stopped::default() {
        true => "the daemon is shutting down".to_owned(),
        false => why.to_string(),
    };
    let (answer, wait) = oneshot::channel();
    inbox.send(Command::Attach(Box::new(prepared), answer)).map_err(gone)?;
    inbox.wait(&wait).map_err(gone)?
}
