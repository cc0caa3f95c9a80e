//! A small daemon for tests: a thread that owns a host interface as a context does, lets clients attach to its domains, sleeps
//! when there is nothing to do until a doorbell, a hang-up or a process's end wakes it, and never on a timer.

#![allow(dead_code)] // each test binary has this module to itself, and uses its own part of it
#![allow(clippy::unwrap_used)] // a test that fails may panic

pub(crate) mod agent;
pub(crate) mod client;

use crossdock_mailbox::attach::{AttachAddr, AttachListener, AttachRequest, RequestError, refuse};
use crossdock_mailbox::host::{
    Arrival, ClientKey, DomainSegments, HostConfig, HostInterface, Implementation, MailboxKey, MailboxOptions,
    MailboxStatus, Message, Owner, PortOptions, Prepared, Side,
};
use crossdock_mailbox::{DoorbellPage, HugePages, SyncAddress};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::HashMap;
use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a test waits for what must come: only one that fails waits so long.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// Buffers that each writer of a `rings` mailbox is granted ahead.
pub(crate) const AHEAD: u32 = 4;
/// The core's procedure that gives back its argument and one.
pub(crate) const ADD_ONE: u16 = 1;
/// The core's procedure that calls the caller's process with its argument, and gives back what that gives.
pub(crate) const CALL_BACK: u16 = 2;

/// The core's treatment of the messages of a mailbox.
#[derive(Clone, Copy)]
pub(crate) enum Upcall {
    /// Enqueues them to another one.
    Echo(MailboxKey),
    /// Puts a copy into another one.
    Copy(MailboxKey),
    Discard,
}

/// How the core learnt that a client is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum How {
    HungUp,
    ProcessEnded,
    ProtocolViolation(String),
}

/// A client that is gone.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) pid: u32,
    pub(crate) how: How,
}

type Work = Box<dyn FnOnce(&mut Core) + Send>;

/// The daemon, for the test's thread.
pub(crate) struct Daemon {
    work: Option<Sender<Work>>,
    called: Arc<OwnedFd>,
    addresses: Vec<AttachAddr>,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    /// With this number of domains, each with an address of its own.
    pub(crate) fn new(config: HostConfig, domains: usize) -> Daemon {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("crossdock-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let addresses: Vec<_> = (0..domains).map(|domain| AttachAddr::Abstract(format!("{name}-{domain}"))).collect();
        let called = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap());
        let (work, todo) = channel();
        let core = Core::new(config, &addresses, called.clone());
        let thread = std::thread::Builder::new().name("core".to_owned()).spawn(move || core.run(&todo)).unwrap();
        Daemon { work: Some(work), called, addresses, thread: Some(thread) }
    }

    /// Where clients of a domain attach.
    pub(crate) fn address(&self, domain: usize) -> &AttachAddr {
        &self.addresses[domain]
    }

    fn order(&self, work: Work) {
        assert!(self.work.as_ref().unwrap().send(work).is_ok(), "the core is gone");
        rustix::io::write(&self.called, &1u64.to_ne_bytes()).unwrap();
    }

    /// Does `work` on the core's thread, between two of its turns.
    pub(crate) fn ask<R: Send + 'static>(&self, work: impl FnOnce(&mut Core) -> R + Send + 'static) -> R {
        let (answer, answered) = channel();
        self.order(Box::new(move |core| drop(answer.send(work(core)))));
        answered.recv_timeout(LONG).expect("the core answers")
    }

    /// Waits until `is_so`, which the core looks at after each of its turns.
    pub(crate) fn until(&self, what: &str, is_so: impl FnMut(&Core) -> bool + Send + 'static) {
        let (answer, answered) = channel();
        self.order(Box::new(move |core| core.waiters.push((Box::new(is_so), answer))));
        if answered.recv_timeout(LONG).is_err() {
            panic!("it did not come about that {what}:\n{}", self.ask(|core| core.story()));
        }
    }

    /// Does `work` while the core is busy with something else: it looks for clients that are gone next, and only then at what
    /// they had written before.
    pub(crate) fn paused<R>(&self, work: impl FnOnce() -> R) -> R {
        let ((is_held, held), (release, released)) = (channel(), channel::<()>());
        self.order(Box::new(move |_| {
            let _reported = is_held.send(());
            let _released = released.recv();
        }));
        held.recv_timeout(LONG).unwrap();
        let done = work();
        drop(release);
        done
    }

    pub(crate) fn create(&self, name: &str, implementation: Implementation, bound_messages: u32) {
        let name = name.to_owned();
        let options = MailboxOptions { implementation, bound_messages: Some(bound_messages), bound_bytes: None };
        self.ask(move |core| core.host.create(Owner::Daemon, &name, options)).unwrap();
    }

    pub(crate) fn delete(&self, name: &str) {
        let name = name.to_owned();
        self.ask(move |core| core.host.delete(Owner::Daemon, &name)).unwrap();
    }

    /// Makes the core the reader of a mailbox: `does` is what it does, with the second mailbox.
    pub(crate) fn attach_upcall(&self, name: &str, does: fn(MailboxKey) -> Upcall, to: &str) {
        let (name, to) = (name.to_owned(), to.to_owned());
        self.ask(move |core| {
            core.upcalls.push(does(core.host.find(&to).unwrap()));
            let key = core.host.find(&name).unwrap();
            core.host.attach_upcall(key, core.upcalls.len() as u32 - 1)
        })
        .unwrap();
    }

    pub(crate) fn mailbox(&self, name: &str) -> MailboxStatus {
        let name = name.to_owned();
        self.ask(move |core| core.mailbox(&name)).unwrap()
    }

    /// Buffers in use in all domains.
    pub(crate) fn in_use(&self) -> InUse {
        self.ask(|core| core.in_use())
    }

    /// Messages that were copied from one domain to another so far.
    pub(crate) fn crossed(&self) -> u64 {
        self.ask(|core| core.host.counters().crossed)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.work.take());
        let _written = rustix::io::write(&self.called, &1u64.to_ne_bytes());
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking(), "the core panicked");
    }
}

/// Buffers in use, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InUse {
    pub(crate) buffers: u32,
    pub(crate) bytes: u64,
}

/// The subject of an event of the poller, in the low bits of its key; above them a client's number, or which door.
const CALLED: u64 = 0;
const DOOR: u64 = 1;
const DOORBELL: u64 = 2;
const SOCKET: u64 = 3;
const PROCESS: u64 = 4;
const DEATH: u64 = 5;
const KIND_BITS: u32 = 3;

/// The condition that the core looks at after each turn, and who waits for it to be so.
type Waiter = (Box<dyn FnMut(&Core) -> bool + Send>, Sender<()>);

/// The daemon, for its core's thread.
pub(crate) struct Core {
    pub(crate) host: HostInterface,
    /// All clients that are gone, in order.
    pub(crate) ended: Vec<Ended>,
    /// Processes that were to be watched, and are gone; see [`Core::watch_process`].
    pub(crate) dead: Vec<u32>,
    watched: HashMap<u32, OwnedFd>,
    /// How often it slept.
    pub(crate) sleeps: u64,
    clients: HashMap<u32, (ClientKey, u32)>,
    bell: Arc<DoorbellPage>,
    doors: Vec<(AttachListener, Arc<DomainSegments>)>,
    poller: OwnedFd,
    called: Arc<OwnedFd>,
    upcalls: Vec<Upcall>,
    /// Where the results of calls into clients go, by ticket.
    returns: HashMap<u64, SyncAddress>,
    waiters: Vec<Waiter>,
    turns: u64,
    is_over: bool,
}

impl Core {
    fn new(config: HostConfig, addresses: &[AttachAddr], called: Arc<OwnedFd>) -> Core {
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let bell = Arc::new(DoorbellPage::new().unwrap());
        let mut doors = Vec::new();
        for (at, address) in addresses.iter().enumerate() {
            let (shared, inbox) = (config.shared_bytes, config.inbox_bytes);
            let segments = DomainSegments::new(&format!("domain {at}"), shared, inbox, HugePages::None).unwrap();
            let listener = AttachListener::bind(address, true).unwrap();
            watch(&poller, listener.as_fd(), (at as u64) << KIND_BITS | DOOR, EventFlags::IN);
            doors.push((listener, Arc::new(segments)));
        }
        watch(&poller, called.as_fd(), CALLED, EventFlags::IN);
        let host = HostInterface::new(config, bell.clone()).unwrap();
        Core {
            host,
            ended: Vec::new(),
            dead: Vec::new(),
            watched: HashMap::new(),
            sleeps: 0,
            clients: HashMap::new(),
            bell,
            doors,
            poller,
            called,
            upcalls: Vec::new(),
            returns: HashMap::new(),
            waiters: Vec::new(),
            turns: 0,
            is_over: false,
        }
    }

    fn run(mut self, todo: &Receiver<Work>) {
        let mut events = Vec::with_capacity(64);
        while !self.is_over {
            self.turns += 1;
            // Now and then it stays awake for a while: clients that find it so do not ring.
            for _ in 0..=self.turns % 2 * 8 {
                self.take_all();
                std::thread::yield_now();
            }
            self.answer_waiters();
            self.host.before_sleep();
            let quiet = self.host.is_quiet();
            self.sleeps += u64::from(quiet);
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            let mut timeout = if quiet { None } else { Some(&at_once) };
            // To the last event, before the rings are looked at again: a client's end may be known before its last message.
            loop {
                // One that a signal ends is a short one.
                let _waited = epoll::wait(&self.poller, rustix::buffer::spare_capacity(&mut events), timeout);
                self.host.after_sleep();
                if events.is_empty() {
                    break;
                }
                events.drain(..).for_each(|event| self.take_event(event.data.u64(), todo));
                timeout = Some(&at_once);
            }
        }
    }

    fn take_event(&mut self, key: u64, todo: &Receiver<Work>) {
        let number = (key >> KIND_BITS) as u32;
        match key & ((1 << KIND_BITS) - 1) {
            DOOR => self.let_in(number as usize),
            DOORBELL => {} // the rings are looked at in any case
            SOCKET => self.end(number, How::HungUp),
            PROCESS => self.end(number, How::ProcessEnded),
            DEATH => {
                self.dead.push(number);
                self.watched.remove(&number);
            }
            _ => {
                let _counted = rustix::io::read(&self.called, &mut [0; 8]);
                loop {
                    match todo.try_recv() {
                        Ok(work) => {
                            // All that clients wrote before they reported it to the test comes first.
                            self.take_all();
                            work(self);
                        }
                        Err(TryRecvError::Empty) => return,
                        Err(TryRecvError::Disconnected) => {
                            self.is_over = true;
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Takes what lies in the rings.
    fn take_all(&mut self) {
        while let Some(arrival) = self.host.poll() {
            self.take(arrival);
        }
        self.host.end_turn();
    }

    fn answer_waiters(&mut self) {
        let mut waiters = std::mem::take(&mut self.waiters);
        waiters.retain_mut(|(is_so, answer)| !(is_so(self) && answer.send(()).is_ok()));
        self.waiters = waiters;
    }

    fn let_in(&mut self, door: usize) {
        while let Some((peer, socket)) = self.doors[door].0.accept().unwrap() {
            // No test stops a client before its request, or has it say something else.
            let request =
                std::iter::repeat_with(|| AttachRequest::receive(socket.as_fd())).find(|said| *said != Ok(None));
            match request.unwrap() {
                Ok(_) => {}
                Err(RequestError::HungUp) => continue,
                Err(malformed) => panic!("{malformed}"),
            }
            let (pid, to) = (peer.pid, socket.try_clone().unwrap());
            let (prepared, reply) = Prepared::new(peer, socket, &self.doors[door].1, &self.bell).unwrap();
            let key = match self.host.admit(prepared, 0) {
                Ok(key) => key,
                Err(refused) => {
                    refuse(to.as_fd(), &refused.to_string());
                    continue;
                }
            };
            self.clients.insert(key.number(), (key, pid));
            let watched = self.host.watched(key).unwrap();
            let number = u64::from(key.number()) << KIND_BITS;
            watch(&self.poller, watched.doorbell.as_fd(), number | DOORBELL, EventFlags::IN | EventFlags::ET);
            watch(&self.poller, watched.socket.as_fd(), number | SOCKET, EventFlags::IN | EventFlags::RDHUP);
            if let Some(process) = watched.process {
                watch(&self.poller, process.as_fd(), number | PROCESS, EventFlags::IN);
            }
            // One that is gone already is found out by its socket.
            if let Err(error) = reply.send(key) {
                assert!(matches!(error.kind(), BrokenPipe | ConnectionReset), "{error}");
            }
        }
    }

    /// Notes when that child of this process has ended, client or not.
    pub(crate) fn watch_process(&mut self, pid: u32) {
        let process = pidfd_open(Pid::from_raw(pid.cast_signed()).unwrap(), PidfdFlags::empty()).unwrap();
        watch(&self.poller, process.as_fd(), u64::from(pid) << KIND_BITS | DEATH, EventFlags::IN);
        self.watched.insert(pid, process);
    }

    /// A client is gone.
    fn end(&mut self, number: u32, how: How) {
        let Some((key, pid)) = self.clients.remove(&number) else { return };
        self.host.detach(key);
        self.ended.push(Ended { pid, how });
    }

    fn take(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Upcall { upcall, message, .. } => self.run_upcall(self.upcalls[upcall as usize], message),
            Arrival::Upcalls { upcall, .. } => {
                let mut burst = self.host.take_burst();
                burst.drain(..).for_each(|message| self.run_upcall(self.upcalls[upcall as usize], message));
                self.host.keep_burst(burst);
            }
            Arrival::Session { client, message } => {
                let mut text = vec![0; message.len()];
                assert!(self.host.read(&message, 0, &mut text));
                self.host.free(message);
                let answer = self.obey(client, &String::from_utf8(text).unwrap());
                // It may be gone since it asked.
                let Ok(mut draft) = self.host.begin_send(client, answer.len()) else { return };
                draft.copy_from_slice(answer.as_bytes());
                self.host.send(client, draft.finish(answer.len()));
            }
            Arrival::Call { client, procedure: CALL_BACK, argument, result } => {
                let ticket = self.turns << 16 | self.returns.len() as u64;
                if self.host.upcall(client, CALL_BACK, argument, ticket) {
                    self.returns.insert(ticket, result);
                } else {
                    self.host.write_sync(result, u64::MAX);
                }
            }
            Arrival::Call { argument, result, .. } => self.host.write_sync(result, argument + 1),
            Arrival::Returned { ticket, value } => {
                let result = self.returns.remove(&ticket).unwrap();
                self.host.write_sync(result, value.unwrap_or(u64::MAX));
            }
            Arrival::Violation { client, reason } => {
                let (_, pid) = self.clients.remove(&client.number()).unwrap();
                self.ended.push(Ended { pid, how: How::ProtocolViolation(reason) });
            }
        }
    }

    fn run_upcall(&mut self, upcall: Upcall, message: Message) {
        match upcall {
            Upcall::Echo(to) => self.host.put(to, message),
            Upcall::Copy(to) => {
                let len = message.len();
                let mut draft = self.host.begin_put(to, len).unwrap();
                assert!(self.host.read(&message, 0, &mut draft));
                self.host.free(message);
                self.host.put(to, draft.finish(len));
            }
            Upcall::Discard => self.host.free(message),
        }
    }

    /// Carries out what a client asks for over its session; the answer. See [`client::Client`].
    fn obey(&mut self, client: ClientKey, request: &str) -> String {
        let words: Vec<&str> = request.split(' ').collect();
        let done = match words[..] {
            ["create", name, implementation, bound] => {
                let implementation =
                    if implementation == "rings" { Implementation::Rings } else { Implementation::SignalQueue };
                let options = MailboxOptions { implementation, bound_messages: bound.parse().ok(), bound_bytes: None };
                self.host.create(Owner::Client(client.number()), name, options).map(|_| String::new())
            }
            ["delete", name] => self.host.delete(Owner::Client(client.number()), name).map(|()| String::new()),
            ["write" | "read", name] => {
                let side = if words[0] == "write" { Side::Write } else { Side::Read };
                let options = PortOptions { message_bytes: None, ahead: Some(AHEAD) };
                let opened = self.host.open(client, name, side, options);
                opened.map(|opened| format!("{} {}", opened.number, opened.port.map_or(-1, i32::from)))
            }
            ["close", number] => self.host.close(client, number.parse().unwrap()).map(|()| String::new()),
            _ => panic!("a client asks `{request}`"),
        };
        done.map_or_else(|refused| format!("no {refused}"), |said| format!("ok {said}"))
    }

    pub(crate) fn mailbox(&self, name: &str) -> Option<MailboxStatus> {
        self.host.mailboxes().into_iter().find(|mailbox| mailbox.name == name)
    }

    pub(crate) fn in_use(&self) -> InUse {
        let mut sum = InUse::default();
        for domain in self.host.domains() {
            sum.buffers += domain.shared.0 + domain.inbox.0;
            sum.bytes += domain.shared.1 + domain.inbox.1;
        }
        sum
    }

    /// Whether a client in that process is attached.
    pub(crate) fn has_client_of(&self, pid: u32) -> bool {
        self.clients.values().any(|&(_, of)| of == pid)
    }

    /// All that is to be known of it, for who finds it wanting.
    fn story(&self) -> String {
        let (clients, mailboxes) = (self.host.clients(), self.host.mailboxes());
        format!("{clients:#?}\n{mailboxes:#?}\n{:#?}\n{:?}", self.host.domains(), self.ended)
    }
}

fn watch(poller: &OwnedFd, fd: BorrowedFd<'_>, key: u64, events: EventFlags) {
    epoll::add(poller, fd, EventData::new_u64(key), events).unwrap();
}
