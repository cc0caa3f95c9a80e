//! The policy, the domains, the contexts that clients are given to, and processes that say nothing, too much or something else.

use super::*;
use crate::inbox::Commands;
use crossdock_mailbox::client::Attachment;
use crossdock_mailbox::host::HostInterface;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send, socket_with,
    socketpair,
};
use std::sync::Mutex;

/// Only a broken build waits so long.
const PATIENCE: Duration = Duration::from_secs(20);
/// A request, as another program would make it: of a client that only publishes and subscribes.
const REQUEST: &[u8; 20] = b"xdockshm\x06\0\0\0\x03\0\0\0\0\0\0\0";
/// How a welcome begins.
const WELCOME: &[u8] = b"xdockshm\x06\0\0\0\0\0\0\0";

fn target() -> (AttachTarget, Commands, Poller) {
    let poller = Poller::new().unwrap();
    let (inbox, commands) = Inbox::new("c-core-0", poller.doorbell());
    (AttachTarget { inbox, gauges: Arc::default(), bell: Arc::new(DoorbellPage::new().unwrap()) }, commands, poller)
}

/// Calls to contexts: the index of the context that took a client in, or was to detach it.
#[derive(Default)]
struct Heard {
    attached: Mutex<Vec<usize>>,
    detached: Mutex<Vec<usize>>,
}

impl Heard {
    fn attached(&self) -> Vec<usize> {
        self.attached.lock().unwrap().clone()
    }
}

fn small_host() -> HostConfig {
    HostConfig { shared_bytes: 1 << 20, inbox_bytes: 1 << 20, ..HostConfig::default() }
}

/// Contexts that take in whoever comes.
fn contexts<const N: usize>() -> (Vec<AttachTarget>, Arc<Heard>) {
    let heard = Arc::new(Heard::default());
    let start = |at| {
        let ((target, mut commands, mut poller), heard) = (target(), Arc::clone(&heard));
        let mut host = HostInterface::new(small_host(), Arc::clone(&target.bell)).unwrap();
        // It ends with the tests.
        std::thread::spawn(move || {
            loop {
                let Some(command) = commands.next() else {
                    poller.wait(None).unwrap();
                    continue;
                };
                match command {
                    Command::Attach(prepared, to) => {
                        heard.attached.lock().unwrap().push(at);
                        to.send(host.admit(*prepared, 0).map_err(|refused| refused.to_string())).unwrap();
                    }
                    Command::Detach(client) => {
                        assert!(host.detach(client));
                        heard.detached.lock().unwrap().push(at);
                    }
                    Command::Run(_) | Command::Snapshot(..) | Command::Stop => panic!("not from the attach thread"),
                }
            }
        });
        target
    };
    let targets = (0..N).map(start).collect();
    (targets, heard)
}

/// The thread, with contexts that take in whoever comes.
fn thread<const N: usize>(home: usize) -> (AttachThread, Arc<Heard>) {
    let (contexts, heard) = contexts::<N>();
    let (address, host) = (own_address(), small_host());
    let parts =
        AttachParts { config: any_user(), host, address, passed: None, contexts, home, events: Events::default() };
    (AttachThread::start(parts).unwrap(), heard)
}

/// An address of this test's own.
fn own_address() -> AttachAddr {
    AttachAddr::Abstract(format!("crossdock-attach-test-{}-{:?}", std::process::id(), std::thread::current().id()))
}

fn any_user() -> AttachConfig {
    AttachConfig { uids: Allowed::Any, ..AttachConfig::default() }
}

fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

/// A process that connects, and speaks by hand.
fn caller(address: &AttachAddr) -> OwnedFd {
    let AttachAddr::Abstract(name) = address else { panic!("{address}") };
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).unwrap();
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
    socket
}

/// The next packet that the daemon sends; empty if it hung up.
fn answer(socket: &OwnedFd) -> Vec<u8> {
    let mut packet = vec![0; 1000];
    let (_, bytes) = recv(socket, &mut packet[..], RecvFlags::empty()).unwrap();
    packet.truncate(bytes);
    packet
}

/// Is refused, and the daemon has hung up; why.
fn refusal(socket: &OwnedFd) -> String {
    let packet = answer(socket);
    assert!(packet.len() > 16 && !packet.starts_with(WELCOME), "{packet:?}");
    assert!(answer(socket).is_empty());
    String::from_utf8_lossy(&packet[16..]).into_owned()
}

fn attaching_to(contexts: Vec<AttachTarget>, home: usize, config: AttachConfig) -> Attaching {
    let listener = AttachListener::bind(&own_address(), false).unwrap();
    let mut poller = Poller::new().unwrap();
    poller.add(&listener, LISTENER).unwrap();
    Attaching::new(
        (listener, poller),
        (config, small_host()),
        (contexts, home),
        (100, 200),
        Failures::new(Events::default()),
    )
}

fn attaching(config: AttachConfig) -> Attaching {
    attaching_to(vec![target().0], 0, config)
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
    let one = attaching.domain_of(1, 0).unwrap();
    assert!(Arc::ptr_eq(&one, &attaching.domain_of(2, 0).unwrap()));
    assert_eq!(one.name(), "trusted");
    let three = attaching.domain_of(3, 0).unwrap();
    assert!(Arc::ptr_eq(&three, &attaching.domain_of(3, 0).unwrap()));
    // The same name, but not the same domain.
    assert_eq!(three.name(), attaching.domain_of(4, 0).unwrap().name());
    assert!(!Arc::ptr_eq(&three, &attaching.domain_of(4, 0).unwrap()));
    // Another context has segments of its own for it.
    let elsewhere = attaching.domain_of(1, 1).unwrap();
    assert!(elsewhere.name() == "trusted" && !Arc::ptr_eq(&one, &elsewhere));
    assert!(Arc::ptr_eq(&elsewhere, &attaching.domain_of(2, 1).unwrap()));
    // No client uses it any more: it is freed, and created again.
    let first = Arc::downgrade(&one);
    drop(one);
    assert!(first.upgrade().is_none());
    assert_eq!(attaching.domain_of(1, 0).unwrap().name(), "trusted");
    assert!(Arc::ptr_eq(&elsewhere, &attaching.domain_of(1, 1).unwrap()));
}

#[test]
fn a_context_that_is_gone_is_no_place_to_attach_to() {
    let mut attaching = attaching(any_user());
    let (socket, _other) = pair();
    let request = AttachRequest { uses_mailboxes: true };
    assert!(attaching.admit(peer(1, 1, &[]), socket.into(), request).unwrap_err().contains("shutting down"));
}

#[test]
fn a_client_that_uses_mailboxes_is_given_to_the_home_and_others_to_the_least_loaded() {
    let (thread, heard) = thread::<3>(1);
    let attach = |uses_mailboxes| {
        Attachment::connect_within(thread.address(), AttachRequest { uses_mailboxes }, PATIENCE).unwrap()
    };
    let _at_home = [attach(true), attach(true)];
    assert_eq!(heard.attached(), [1, 1]);
    // Whenever load is sampled in between.
    let _others = [attach(false), attach(false)];
    assert_eq!(heard.attached(), [1, 1, 0, 2]);
    let _at_home = attach(true);
    assert_eq!(heard.attached(), [1, 1, 0, 2, 1]);
}

#[test]
fn a_client_that_is_gone_when_it_is_admitted_is_detached_where_it_was_attached() {
    let (contexts, heard) = contexts::<3>();
    let mut attaching = attaching_to(contexts, 2, any_user());
    let (socket, other) = pair();
    drop(other);
    attaching.admit(peer(1, 1, &[]), socket.into(), AttachRequest { uses_mailboxes: true }).unwrap();
    let until = Instant::now() + PATIENCE;
    while heard.detached.lock().unwrap().is_empty() {
        assert!(Instant::now() < until, "it is not detached");
        std::thread::yield_now();
    }
    assert_eq!((heard.attached(), heard.detached.lock().unwrap().clone()), (vec![2], vec![2]));
}

#[test]
fn silent_processes_are_waited_for_and_dropped_when_they_hang_up() {
    let (contexts, heard) = contexts::<1>();
    let mut attaching = attaching_to(contexts, 0, any_user());
    let address = own_address();
    let (first, second) = (caller(&address), caller(&address));
    attaching.turn();
    assert_eq!(attaching.pending.len(), 2);
    drop(first);
    attaching.turn();
    assert_eq!(attaching.pending.len(), 1);
    send(&second, REQUEST, SendFlags::NOSIGNAL).unwrap();
    attaching.turn();
    assert!(answer(&second).starts_with(WELCOME));
    assert_eq!((attaching.pending.len(), heard.attached()), (0, vec![0]));
    // It is the context's from here on: what becomes of its socket is not looked at.
    drop(second);
    let at_once = Some(Duration::ZERO);
    assert!(attaching.poller.wait(at_once).unwrap().is_empty());
}

#[test]
fn of_too_many_silent_processes_the_oldest_are_refused_and_others_are_let_in() {
    let (thread, heard) = thread::<1>(0);
    let silent: Vec<OwnedFd> = (0..MAX_PENDING + 3).map(|_| caller(thread.address())).collect();
    for refused in &silent[..3] {
        let reason = refusal(refused);
        assert!(reason.contains("sent no attach request"), "{reason}");
    }
    // Late is not too late, for the youngest and for the oldest that is left.
    for late in [&silent[MAX_PENDING + 2], &silent[3]] {
        send(late, REQUEST, SendFlags::NOSIGNAL).unwrap();
        assert!(answer(late).starts_with(WELCOME));
    }
    let _attachment = Attachment::connect(thread.address()).unwrap();
    assert_eq!(heard.attached().len(), 3);
}

#[test]
fn a_message_that_is_no_request_is_refused_with_a_reason() {
    let (thread, heard) = thread::<1>(0);
    let with = |at: usize, byte: u8| {
        let mut packet = REQUEST.to_vec();
        packet[at] = byte;
        packet
    };
    for (said, reason) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "is no request"),
        (vec![0; 100_000], "is no request"),
        ([&REQUEST[..], &[0; 60_000]].concat(), "has 20 bytes, this one 60020"),
        (REQUEST[..19].to_vec(), "has 20 bytes, this one 19"),
        (with(8, 1), "this program by version 1"),
        (with(17, 1), "flags 0x100"),
    ] {
        let socket = caller(thread.address());
        send(&socket, &said, SendFlags::NOSIGNAL).unwrap();
        let refused = refusal(&socket);
        assert!(refused.contains(reason), "{refused}");
    }
    // An empty packet is as good as a hang-up.
    let socket = caller(thread.address());
    send(&socket, b"", SendFlags::NOSIGNAL).unwrap();
    assert!(answer(&socket).is_empty());
    let _attachment = Attachment::connect(thread.address()).unwrap();
    assert_eq!(heard.attached(), [0]);
}

#[test]
fn a_process_that_may_not_attach_is_refused_before_its_request() {
    let mut attaching = attaching(AttachConfig { uids: Allowed::List(Vec::new()), ..AttachConfig::default() });
    let socket = caller(&own_address());
    attaching.turn();
    assert!(refusal(&socket).contains("`uids`"));
    assert!(attaching.pending.is_empty());
}
