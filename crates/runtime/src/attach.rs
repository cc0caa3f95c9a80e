//! Attaching processes: the policy, the protection domains, and the thread that prepares clients off the core.
//!
//! The thread takes processes from the attach socket, holds them against the policy, makes what each needs (segments,
//! doorbells) and hands that over to the context, which only enters it into its tables. A domain's segments are made
//! for its first client and freed after its last.

use crate::config::{Allowed, AttachConfig};
use crate::inbox::{Command, Inbox};
use crossdock_device::{Doorbell, Poller, nap};
use crossdock_mailbox::BellPage;
use crossdock_mailbox::attach::{AttachAddr, AttachListener, Peer, refuse};
use crossdock_mailbox::host::{ClientKey, DomainSegments, HostConfig, Prepared};
use rustix::process::{getegid, geteuid};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// The attach socket's key in the thread's poller.
const LISTENER: u64 = 0;
/// How long to wait after the system refused to take a process, so as not to ask it again and again.
const PAUSE: Duration = Duration::from_millis(100);

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
    bell: Arc<BellPage>,
    inbox: Inbox,
    domains: HashMap<Domain, Weak<DomainSegments>>,
    /// The daemon's own user and group.
    own: (u32, u32),
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
    pub(crate) bell: Arc<BellPage>,
    /// The context that takes clients in.
    pub(crate) inbox: Inbox,
}

impl AttachThread {
    /// Listens, and starts the thread.
    ///
    /// # Errors
    /// The system's: the address is taken, or may not be had.
    pub(crate) fn start(parts: AttachParts) -> io::Result<AttachThread> {
        let AttachParts { config, host, address, passed, bell, inbox } = parts;
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
        let mut attaching = Attaching { listener, config, host, bell, inbox, domains: HashMap::new(), own };
        let run = move || {
            while !stopped.load(Ordering::Acquire) {
                // A failed wait (a signal) is a short one.
                if poller.wait(None).is_ok_and(|ready| ready.contains(&LISTENER)) {
                    attaching.take_all();
                }
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
    /// Takes those that ask now.
    fn take_all(&mut self) {
        loop {
            match self.listener.accept() {
                Ok(None) => return,
                Ok(Some((peer, socket))) => self.take(peer, socket),
                Err(_) => return nap(PAUSE), // for example too many open files; the process waits
            }
        }
    }

    /// Admits one process, or sends it the reason for the refusal.
    fn take(&mut self, peer: Peer, socket: OwnedFd) {
        // The socket itself goes to the context; what is to be said is said over this one.
        let Ok(to) = socket.try_clone() else { return };
        if let Err(reason) = self.admit(peer, socket) {
            refuse(to.as_fd(), &reason);
        }
    }

    fn admit(&mut self, peer: Peer, socket: OwnedFd) -> Result<(), String> {
        self.check(&peer)?;
        let system = |error: io::Error| format!("the daemon could not make what a client needs: {error}");
        let domain = self.domain_of(peer.uid).map_err(system)?;
        let (prepared, parcel) = Prepared::new(peer, socket, &domain, &self.bell).map_err(system)?;
        let client = self.hand_over(prepared)?;
        if parcel.send(client).is_err() {
            // The process is gone, or cannot be notified: the context would wait for its hang-up, which may never come.
            let _ = self.inbox.send(Command::Detach(client));
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

    /// The segments of a user's domain, created if no client uses them now.
    fn domain_of(&mut self, uid: u32) -> io::Result<Arc<DomainSegments>> {
        let configured = self.config.domains.iter().position(|(_, uids)| uids.contains(&uid));
        let (domain, name) = match configured {
            Some(index) => (Domain::Configured(index), self.config.domains[index].0.clone()),
            None => (Domain::User(uid), format!("uid {uid}")),
        };
        if let Some(segments) = self.domains.get(&domain).and_then(Weak::upgrade) {
            return Ok(segments);
        }
        let HostConfig { shared_bytes, inbox_bytes, .. } = self.host;
        let segments = Arc::new(DomainSegments::new(&name, shared_bytes, inbox_bytes, self.config.huge_pages)?);
        self.domains.retain(|_, known| known.strong_count() > 0);
        self.domains.insert(domain, Arc::downgrade(&segments));
        Ok(segments)
    }

    /// Hands a client over to the context, which takes it in or says why not.
    fn hand_over(&self, prepared: Prepared) -> Result<ClientKey, String> {
        let gone = || "the daemon is shutting down".to_owned();
        let (answer, wait) = oneshot::channel();
        self.inbox.send(Command::Attach(Box::new(prepared), answer)).map_err(|_| gone())?;
        wait.recv().map_err(|_| gone())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attaching(config: AttachConfig) -> Attaching {
        let name = format!("crossdock-attach-test-{}-{:?}", std::process::id(), std::thread::current().id());
        Attaching {
            listener: AttachListener::bind(&AttachAddr::Abstract(name), false).unwrap(),
            config,
            host: HostConfig { shared_bytes: 1 << 20, inbox_bytes: 1 << 20, ..HostConfig::default() },
            bell: Arc::new(BellPage::new().unwrap()),
            inbox: Inbox::new(Poller::new().unwrap().doorbell()).0,
            domains: HashMap::new(),
            own: (100, 200),
        }
    }

    fn peer(uid: u32, gid: u32, groups: &[u32]) -> Peer {
        Peer { pid: 1, uid, gid, groups: groups.to_vec(), process: "x".into(), pidfd: None }
    }

    #[test]
    fn user_and_group_must_both_be_allowed() {
        let policy = |uids: &Allowed, gids: &Allowed| AttachConfig {
            uids: uids.clone(),
            gids: gids.clone(),
            ..AttachConfig::default()
        };
        let some = Allowed::List(vec![7, 8]);
        for (uids, gids, uid, gid, groups, right) in [
            (&Allowed::Own, &Allowed::Any, 100, 9, &[][..], true),
            (&Allowed::Own, &Allowed::Any, 0, 9, &[], false),
            (&Allowed::Any, &Allowed::Any, 5, 9, &[], true),
            (&some, &Allowed::Any, 8, 9, &[], true),
            (&some, &Allowed::Any, 9, 7, &[7], false),
            (&Allowed::Any, &Allowed::Own, 5, 200, &[], true),
            (&Allowed::Any, &Allowed::Own, 5, 9, &[200], true),
            (&Allowed::Any, &Allowed::Own, 200, 9, &[], false),
            (&Allowed::Any, &some, 5, 9, &[1, 8], true),
            (&Allowed::Any, &some, 8, 9, &[], false),
            (&Allowed::List(Vec::new()), &Allowed::Any, 100, 200, &[], false),
        ] {
            let checked = attaching(policy(uids, gids)).check(&peer(uid, gid, groups));
            assert_eq!(checked.is_ok(), right, "{uids:?} {gids:?} {uid} {gid} {groups:?}");
        }
    }

    #[test]
    fn users_of_a_configured_domain_share_it_and_others_have_their_own() {
        let domains = vec![("trusted".to_owned(), vec![1, 2]), ("uid 3".to_owned(), vec![4])];
        let mut attaching = attaching(AttachConfig { domains, ..AttachConfig::default() });
        let one = attaching.domain_of(1).unwrap();
        assert!(Arc::ptr_eq(&one, &attaching.domain_of(2).unwrap()));
        assert_eq!(one.name(), "trusted");
        let three = attaching.domain_of(3).unwrap();
        assert!(Arc::ptr_eq(&three, &attaching.domain_of(3).unwrap()));
        // The same name, but not the same domain.
        assert_eq!(three.name(), attaching.domain_of(4).unwrap().name());
        assert!(!Arc::ptr_eq(&three, &attaching.domain_of(4).unwrap()));
        // No client uses it any more: it is freed, and created again.
        let first = Arc::downgrade(&one);
        drop(one);
        assert!(first.upgrade().is_none());
        assert_eq!(attaching.domain_of(1).unwrap().name(), "trusted");
    }

    #[test]
    fn a_context_that_is_gone_is_no_place_to_attach_to() {
        let mut attaching = attaching(AttachConfig { uids: Allowed::Any, ..AttachConfig::default() });
        let (socket, _other) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        assert!(attaching.admit(peer(1, 1, &[]), socket).unwrap_err().contains("shutting down"));
    }
}
