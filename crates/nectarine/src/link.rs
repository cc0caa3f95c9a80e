//! One session with the daemon as a client sees it: connecting, driving, coming back.
//!
//! A link is a state machine around a carrier, which is the way that its session goes: [`Link::receive`] takes what has
//! arrived, [`Link::drive`] lets time pass and sends what is due. It never blocks; who waits does so outside, on the
//! carrier's descriptor, until [`Link::due_ns`].

use crate::error::Error;
use crate::incoming::{Answer, Arrived, Heard, Incoming, Opened};
use crate::memory::Memory;
use crate::outgoing::{Outgoing, PacketBuffer};
use crate::settings::{Place, Settings, Transport};
use crate::udp::{IDLE_TIMEOUT_NS, Udp};
use crossdock_device::Idler;
use crossdock_format::Format;
use crossdock_mailbox::client::Attachment;
use crossdock_transport::handshake::Close;
use crossdock_transport::{ControlMessage, HEADER_BYTES, Kind, MAX_SUPER_BYTES, Notice, Reply, Request, SuperPacket};
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// The first pause between two tries to come back, and the longest, in ns.
const BACKOFF_NS: (u64, u64) = (50_000_000, 2_000_000_000);
/// How long one try to come back dials before it counts as failed, in ns.
const DIAL_NS: u64 = 2_000_000_000;
/// How long each of a daemon's steps may take when this process tries to attach again.
const ATTACH_AGAIN: Duration = Duration::from_secs(1);
/// Arrivals that wait for the application before more are taken from shared memory, where they wait as well.
const INBOX: usize = 64;
/// Wanted conversions that wait for the application at most.
const MAX_WANTS: usize = 32;
/// For how long a waiting call polls before it sleeps, while messages come one by one at shorter intervals, in ns: less than a
/// sleep and a wake-up take.
const SPIN_NS: u64 = 30_000;
/// Bytes that may wait to be sent and acknowledged before no more records are packed: not more than twice what the daemon's
/// credit lets go.
const BACKLOG_BYTES: u64 = 4 << 20;
/// The longest record, or mailbox message over packets, that fits a packet, in bytes.
pub(crate) const MAX_PAYLOAD_BYTES: usize = MAX_SUPER_BYTES - HEADER_BYTES;

/// The number of a request whose answer nobody waits for.
pub(crate) const NOBODY: u32 = 0;

/// Where the link stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Hellos go out.
    Dialling { until_ns: u64 },
    /// The session stands.
    Up,
    /// The daemon is gone; the next try is at `retry_ns`.
    Down { retry_ns: u64 },
    /// Over, for the reason in `fault`.
    Ended,
}

/// The way that the session goes.
enum Carrier {
    /// None yet.
    Nothing,
    /// Packets.
    Packets(Box<Udp>),
    /// Shared memory.
    Memory(Box<Memory>),
}

/// One session with the daemon.
pub(crate) struct Link {
    settings: Settings,
    place: Place,
    carrier: Carrier,
    /// Changes with the descriptor that is to be polled.
    descriptor: u64,
    started: Instant,
    state: State,
    /// Sessions so far.
    sessions: u64,
    backoff_ns: u64,
    lost_because: String,
    fault: Option<Error>,
    /// Sent at the start of every session: announce or subscribe.
    opening: Vec<Request>,
    /// Sent behind what a lost session left over: finish.
    ending: Vec<Request>,
    /// What waits to be handed to the carrier, in order. Between two sessions these are records only.
    backlog: VecDeque<Outgoing>,
    /// The format of the records that go out, if they do.
    pub(crate) published: Option<Format>,
    next_id: u32,
    answers: Vec<(u32, Result<Answer, Error>)>,
    pub(crate) inbox: VecDeque<Incoming>,
    /// Something has happened that a waiting thread may be waiting for.
    changed: bool,
    pub(crate) idler: Idler,
    heard: Vec<Heard>,
}

impl Link {
    /// Begins to connect.
    ///
    /// # Errors
    /// The address is none, or the system refuses the socket or memory.
    pub(crate) fn new(settings: Settings) -> Result<Link, Error> {
        let place = Place::of(&settings)?;
        let timeout_ns = u64::try_from(settings.connect_timeout.as_nanos()).unwrap_or(u64::MAX);
        let mut link = Link {
            settings,
            place,
            carrier: Carrier::Nothing,
            descriptor: 0,
            started: Instant::now(),
            state: State::Ended,
            sessions: 0,
            backoff_ns: BACKOFF_NS.0,
            lost_because: String::new(),
            fault: None,
            opening: Vec::new(),
            ending: Vec::new(),
            backlog: VecDeque::new(),
            published: None,
            next_id: 1,
            answers: Vec::new(),
            inbox: VecDeque::new(),
            changed: false,
            idler: Idler::new(SPIN_NS),
            heard: Vec::new(),
        };
        link.connect(0, timeout_ns)?;
        Ok(link)
    }

    /// Now, in ns since the link was made.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether the session stands.
    pub(crate) fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Which session stands, or stood last: they are counted from 1.
    pub(crate) fn session(&self) -> u64 {
        self.sessions
    }

    /// The error that ended the link, if it has ended.
    pub(crate) fn fault(&self) -> Option<Error> {
        self.fault.as_ref().map(Error::again)
    }

    /// The error of what belonged to a session that is lost.
    pub(crate) fn lost(&self) -> Error {
        Error::Lost { addr: self.settings.addr.clone(), reason: self.lost_because.clone() }
    }

    /// Ends the link.
    pub(crate) fn fail(&mut self, error: Error) {
        self.fault.get_or_insert(error);
        self.state = State::Ended;
        self.changed = true;
    }

    /// Whether something has happened, since this was last asked, that a waiting thread may be waiting for.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Packets sent again so far, over all sessions.
    pub(crate) fn resent(&self) -> u64 {
        match &self.carrier {
            Carrier::Packets(udp) => udp.resent(),
            Carrier::Memory(_) | Carrier::Nothing => 0,
        }
    }

    /// What to poll for readability, and its number, which changes when the descriptor does.
    pub(crate) fn descriptor(&self) -> (u64, Option<BorrowedFd<'_>>) {
        let fd = match &self.carrier {
            Carrier::Packets(udp) => udp.as_fd(),
            // The descriptor of a session that is over stays readable indefinitely.
            Carrier::Memory(memory) if self.is_up() => Some(memory.as_fd()),
            Carrier::Memory(_) | Carrier::Nothing => None,
        };
        (self.descriptor, fd)
    }

    /// The way that the session goes, or the last one went: not [`Transport::Auto`], once there was one.
    pub(crate) fn transport(&self) -> Transport {
        match &self.carrier {
            Carrier::Packets(_) => Transport::Udp,
            Carrier::Memory(_) => Transport::Shm,
            Carrier::Nothing => self.settings.transport,
        }
    }

    /// The attachment, where the session goes by shared memory.
    pub(crate) fn attachment(&self) -> Option<&Attachment> {
        match &self.carrier {
            Carrier::Memory(memory) => Some(memory.attachment()),
            Carrier::Packets(_) | Carrier::Nothing => None,
        }
    }

    /// Before a thread sleeps on the descriptor: whether it must look once more at what has come, since that wakes nobody.
    pub(crate) fn arm(&self) -> bool {
        match &self.carrier {
            Carrier::Memory(memory) => {
                memory.arm();
                true
            }
            Carrier::Packets(_) | Carrier::Nothing => false,
        }
    }

    /// Whether to look at what has come costs no system call.
    #[inline]
    pub(crate) fn hears_freely(&self) -> bool {
        matches!(self.carrier, Carrier::Memory(_))
    }

    /// Begins to connect, by the best way there is: shared memory, if a daemon lets this process attach.
    ///
    /// # Errors
    /// There is no way, or the system refuses what it needs.
    fn connect(&mut self, now_ns: u64, timeout_ns: u64) -> Result<(), Error> {
        let timeout = if self.sessions == 0 { Duration::from_nanos(timeout_ns) } else { ATTACH_AGAIN };
        match (self.attach(timeout), self.place.packets) {
            (Ok(()), _) => self.come_up(),
            (Err(_), Some(peer)) => {
                if !matches!(self.carrier, Carrier::Packets(_)) {
                    self.carry(Carrier::Packets(Box::new(Udp::open(peer)?)));
                }
                if let Carrier::Packets(udp) = &mut self.carrier {
                    udp.dial(now_ns);
                }
                self.state = State::Dialling { until_ns: now_ns.saturating_add(timeout_ns) };
            }
            (Err(reason), None) => {
                return Err(Error::NotAttached { addr: self.settings.addr.clone(), reason });
            }
        }
        Ok(())
    }

    /// Takes the way by shared memory, if a daemon lets this process attach.
    ///
    /// # Errors
    /// Why none does, in words.
    fn attach(&mut self, timeout: Duration) -> Result<(), String> {
        // No time at all would mean without an end.
        let timeout = timeout.max(Duration::from_millis(1));
        let memory = Memory::attach(&self.place.shared, self.sessions + 1, timeout)?;
        self.carry(Carrier::Memory(Box::new(memory)));
        Ok(())
    }

    /// A daemon has granted a session over packets. One that came back has begun to let processes attach since that was last
    /// tried, perhaps: then the session over packets is of no use.
    fn welcomed(&mut self) {
        if self.sessions > 0 {
            let old = std::mem::replace(&mut self.carrier, Carrier::Nothing);
            match (self.attach(ATTACH_AGAIN), old) {
                (Ok(()), Carrier::Packets(mut udp)) => udp.say_close(),
                (Ok(()), _) => {}
                (Err(_), old) => self.carrier = old,
            }
        }
        self.come_up();
    }

    fn carry(&mut self, carrier: Carrier) {
        self.carrier = carrier;
        self.descriptor += 1;
    }

    /// A request's number; never [`NOBODY`].
    pub(crate) fn request_id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    /// Sends a request in the session that stands, if one does.
    pub(crate) fn ask(&mut self, request: Request) {
        if self.is_up() {
            self.enqueue(Outgoing::Control(ControlMessage::Request(request).encode()));
        }
    }

    /// Sends a request in this session, and `again` in every one that may follow it.
    pub(crate) fn open_with(&mut self, request: Request, again: Request) {
        self.opening.push(again);
        self.ask(request);
    }

    /// Has a request sent in every session that may follow.
    pub(crate) fn again(&mut self, request: Request) {
        self.opening.push(request);
    }

    /// Has requests no longer sent in sessions that follow.
    pub(crate) fn not_again(&mut self, which: impl Fn(&Request) -> bool) {
        self.opening.retain(|request| !which(request));
    }

    /// Sends a request behind everything sent so far, in this session and, should this one be lost, in the next.
    pub(crate) fn finish_with(&mut self, request: Request) {
        self.ending.push(request.clone());
        self.ask(request);
    }

    /// The answer to a request, once it is there.
    pub(crate) fn answer(&mut self, id: u32) -> Option<Result<Answer, Error>> {
        let at = self.answers.iter().position(|(answered, _)| *answered == id)?;
        Some(self.answers.swap_remove(at).1)
    }

    /// Puts a unit behind all others.
    pub(crate) fn enqueue(&mut self, unit: Outgoing) {
        self.backlog.push_back(unit);
        self.pump();
    }

    /// Hands to the carrier what it takes.
    fn pump(&mut self) {
        if !self.is_up() {
            return;
        }
        while let Some(unit) = self.backlog.pop_front() {
            let handed = match &mut self.carrier {
                Carrier::Packets(udp) => udp.enqueue(unit, self.published.as_ref()),
                Carrier::Memory(memory) => memory.enqueue(unit, self.published.as_ref()),
                Carrier::Nothing => Err(unit),
            };
            if let Err(unit) = handed {
                self.backlog.push_front(unit);
                return;
            }
        }
    }

    /// Bytes queued and unacknowledged.
    pub(crate) fn backlog_bytes(&self) -> u64 {
        let waiting: u64 = self.backlog.iter().map(|unit| unit.size().1).sum();
        waiting
            + match &self.carrier {
                Carrier::Packets(udp) => udp.backlog_bytes(),
                Carrier::Memory(_) | Carrier::Nothing => 0,
            }
    }

    /// Units queued and unacknowledged.
    pub(crate) fn backlog_units(&self) -> usize {
        self.backlog.len()
            + match &self.carrier {
                Carrier::Packets(udp) => udp.backlog_units(),
                Carrier::Memory(_) | Carrier::Nothing => 0,
            }
    }

    /// Whether more may be sent before what waits has gone.
    pub(crate) fn has_room(&self) -> bool {
        match &self.carrier {
            // What waits, waits for memory.
            Carrier::Memory(_) => self.backlog.is_empty(),
            Carrier::Packets(_) | Carrier::Nothing => self.backlog_bytes() < BACKLOG_BYTES,
        }
    }

    /// An empty packet to fill with records; `None` while there is no room for one.
    pub(crate) fn begin_packet(&mut self) -> Option<SuperPacket<PacketBuffer>> {
        if !self.is_up() || !self.has_room() {
            return None;
        }
        match &mut self.carrier {
            Carrier::Packets(udp) => udp.begin_packet(),
            Carrier::Memory(memory) => memory.begin_packet(),
            Carrier::Nothing => None,
        }
    }

    /// Puts a packet of records behind all else.
    pub(crate) fn end_packet(&mut self, packet: SuperPacket<PacketBuffer>, stream: u32, format: u64) {
        let packet = match &mut self.carrier {
            Carrier::Packets(udp) => udp.shrink(packet),
            Carrier::Memory(_) | Carrier::Nothing => packet,
        };
        self.enqueue(Outgoing::Records { packet, stream, format });
    }

    /// Returns the credit for what came up to `end_seq`.
    pub(crate) fn consumed_to(&mut self, end_seq: u64) {
        if let Carrier::Packets(udp) = &mut self.carrier
            && let Some(session) = udp.session()
        {
            session.receiver.consumed_to(end_seq);
        }
    }

    /// Lets time pass, sends what is due.
    pub(crate) fn drive(&mut self) {
        // Replies and notices take credit too. With nothing left for the application, all that came is consumed; what
        // it still holds in its hands is one event at most.
        if self.inbox.is_empty()
            && let Carrier::Packets(udp) = &mut self.carrier
            && let Some(session) = udp.session()
        {
            session.receiver.consumed_to(session.receiver.next_seq());
        }
        self.run_timers();
        self.transmit();
    }

    /// Takes what has arrived.
    pub(crate) fn receive(&mut self) {
        let now_ns = self.now_ns();
        let mut heard = std::mem::take(&mut self.heard);
        let received = match &mut self.carrier {
            Carrier::Packets(udp) => udp.receive(now_ns, &mut self.idler, &mut heard),
            Carrier::Memory(memory) => {
                if self.inbox.len() < INBOX && self.state == State::Up {
                    memory.receive(now_ns, &mut self.idler, &mut heard);
                }
                Ok(())
            }
            Carrier::Nothing => Ok(()),
        };
        if let Err(error) = received {
            self.refused(&error);
        }
        for heard in heard.drain(..) {
            match heard {
                Heard::Welcome => self.welcomed(),
                Heard::Packets { arrived, end_seq } => self.deliver(arrived, end_seq),
                Heard::Close(close) => self.close(&close),
            }
        }
        self.heard = heard;
    }

    /// The session stands: it begins with the opening, then with what the last session left over.
    fn come_up(&mut self) {
        self.state = State::Up;
        self.changed = true;
        self.backoff_ns = BACKOFF_NS.0;
        self.sessions += 1;
        if self.sessions > 1 {
            self.inbox.push_back(Incoming::Reconnected);
        }
        let kept = std::mem::take(&mut self.backlog);
        for request in self.opening.clone() {
            self.ask(request);
        }
        self.backlog.extend(kept);
        for request in self.ending.clone() {
            self.ask(request);
        }
        self.pump();
    }

    /// In-order packets: answers to requests are kept for their callers, the rest is for the application.
    fn deliver(&mut self, arrived: Arrived, end_seq: u64) {
        self.changed = true;
        match arrived.header.kind {
            Kind::Data => self.inbox.push_back(Incoming::Records { arrived, end_seq }),
            Kind::Message => {
                let number = arrived.header.stream;
                let messages = arrived.payloads().map(|payload| Incoming::Message { number, bytes: payload.to_vec() });
                self.inbox.extend(messages);
            }
            _ => arrived.payloads().for_each(|payload| self.take_control(payload)),
        }
    }

    fn take_control(&mut self, payload: &[u8]) {
        match ControlMessage::decode(payload) {
            Ok(ControlMessage::Reply(reply)) => self.take_reply(reply),
            // Whoever listens without ever looking does not have it pile up.
            Ok(ControlMessage::Notice(Notice::ConverterWanted { .. })) if self.wants() >= MAX_WANTS => {}
            Ok(ControlMessage::Notice(notice)) => self.inbox.push_back(Incoming::Notice(notice)),
            // A newer daemon may say more than this version understands.
            Ok(ControlMessage::Request(_)) | Err(_) => {}
        }
    }

    /// Wanted conversions that were not reported to the application yet.
    fn wants(&self) -> usize {
        let is_want = |incoming: &&Incoming| matches!(incoming, Incoming::Notice(Notice::ConverterWanted { .. }));
        self.inbox.iter().filter(is_want).count()
    }

    fn take_reply(&mut self, reply: Reply) {
        let (id, result) = match reply {
            Reply::Done { id } => (id, Ok(Answer::Done)),
            Reply::Subscribed { id, format, .. } => {
                self.inbox.push_back(Incoming::Subscribed { format });
                (id, Ok(Answer::Done))
            }
            Reply::MailboxOpened { id, number, port, implementation, ahead } => {
                let opened = Opened { id, number, port, implementation, ahead };
                self.inbox.push_back(Incoming::Opened(opened));
                (id, Ok(Answer::Opened(opened)))
            }
            Reply::Node { id, address, name } => (id, Ok(Answer::Node { address, name })),
            Reply::Refused { id, refusal } => (id, Err(Error::from(refusal))),
        };
        match result {
            _ if id == NOBODY => {}
            // What cannot even begin is over; who waits for the answer finds the fault.
            Err(error) if self.opening.iter().any(|request| request.id() == Some(id)) => {
                self.say_close();
                self.fail(error);
            }
            result => {
                // One answer waits for each thread that asked; the bound is against a daemon that invents them.
                if self.answers.len() >= 1024 {
                    drop(self.answers.remove(0));
                }
                self.answers.push((id, result));
            }
        }
    }

    /// The daemon ended the session.
    fn close(&mut self, close: &Close) {
        if close.again && self.sessions > 0 {
            self.lose(close.reason.clone());
        } else {
            self.fail(Error::Closed(close.reason.clone()));
        }
    }

    /// The network says that nobody listens there.
    fn refused(&mut self, error: &io::Error) {
        if error.kind() != io::ErrorKind::ConnectionRefused {
            return; // other errors are as good as loss on the way
        }
        if self.sessions > 0 {
            if self.is_up() {
                self.lose("connection refused".to_owned());
            }
        } else {
            let addr = self.settings.addr.clone();
            self.fail(Error::NoDaemon { addr, reason: "connection refused".to_owned() });
        }
    }

    /// The session is lost: the records that the daemon does not have for sure are kept for the next one, which is tried soon.
    fn lose(&mut self, reason: String) {
        let left = match &mut self.carrier {
            Carrier::Packets(udp) => udp.lose(),
            Carrier::Memory(memory) => memory.lose(),
            Carrier::Nothing => Vec::new(),
        };
        let left = left.into_iter().chain(self.backlog.drain(..));
        let kept: VecDeque<Outgoing> = left.filter_map(Outgoing::again).map(Outgoing::Again).collect();
        self.backlog = kept;
        self.descriptor += 1;
        self.changed = true;
        if self.settings.reconnect {
            self.lost_because = reason;
            let retry_ns = self.now_ns().saturating_add(self.backoff_ns);
            self.backoff_ns = (self.backoff_ns * 2).min(BACKOFF_NS.1);
            self.state = State::Down { retry_ns };
        } else {
            let addr = self.settings.addr.clone();
            self.fail(Error::Lost { addr, reason });
        }
    }

    /// Deadlines that have passed.
    fn run_timers(&mut self) {
        let now_ns = self.now_ns();
        match self.state {
            State::Up => {
                let there = match &mut self.carrier {
                    Carrier::Packets(udp) => udp.on_timer(now_ns),
                    // Nothing is presumed from time: the socket reports the daemon's end.
                    Carrier::Memory(_) | Carrier::Nothing => true,
                };
                if !there {
                    self.lose(format!("nothing was heard for {} s", IDLE_TIMEOUT_NS / 1_000_000_000));
                }
            }
            State::Down { retry_ns } if now_ns >= retry_ns => {
                if let Err(error) = self.connect(now_ns, DIAL_NS) {
                    self.lose(error.to_string()); // no memory, or no more descriptors: later perhaps
                }
            }
            State::Dialling { until_ns } if now_ns >= until_ns => {
                if self.sessions > 0 {
                    let reason = self.lost_because.clone();
                    self.lose(reason);
                } else {
                    let addr = self.settings.addr.clone();
                    self.fail(Error::NoDaemon { addr, reason: "no answer".to_owned() });
                }
            }
            State::Down { .. } | State::Dialling { .. } | State::Ended => {}
        }
    }

    /// Sends what is due.
    pub(crate) fn transmit(&mut self) {
        self.pump();
        let now_ns = self.now_ns();
        let sent = match (&self.state, &mut self.carrier) {
            (State::Up | State::Dialling { .. }, Carrier::Packets(udp)) => udp.transmit(now_ns),
            _ => Ok(()),
        };
        if let Err(error) = sent {
            self.refused(&error);
        }
    }

    /// When [`Link::drive`] has something to do by itself, in ns.
    pub(crate) fn due_ns(&self) -> u64 {
        let carrier_ns = match &self.carrier {
            Carrier::Packets(udp) => udp.due_ns(),
            Carrier::Memory(_) | Carrier::Nothing => u64::MAX,
        };
        match self.state {
            State::Dialling { until_ns } => carrier_ns.min(until_ns),
            State::Up => carrier_ns,
            State::Down { retry_ns } => retry_ns,
            State::Ended => u64::MAX,
        }
    }

    /// Whether nothing more needs to be sent or acknowledged.
    pub(crate) fn is_settled(&self) -> bool {
        match self.state {
            State::Up => {
                self.backlog.is_empty()
                    && match &self.carrier {
                        Carrier::Packets(udp) => udp.is_settled(),
                        // A daemon takes what was put also from a process that has gone.
                        Carrier::Memory(_) | Carrier::Nothing => true,
                    }
            }
            State::Ended => true,
            State::Dialling { .. } | State::Down { .. } => false,
        }
    }

    /// Ends the link, and notifies the daemon. Over shared memory, releasing the memory is the notification, once the
    /// application has released everything that it still holds of it.
    pub(crate) fn say_close(&mut self) {
        match &mut self.carrier {
            Carrier::Packets(udp) if self.state == State::Up => udp.say_close(),
            Carrier::Memory(_) => self.carry(Carrier::Nothing),
            Carrier::Packets(_) | Carrier::Nothing => {}
        }
        self.state = State::Ended;
    }
}
