//! One session with the daemon as a client sees it: dialling, driving, coming back.
//!
//! A link is a state machine around a [`Session`]: [`Link::receive`] takes what has arrived, [`Link::drive`] lets time pass
//! and sends what is due. It never blocks; who waits does so outside, on the socket, until [`Link::due_ns`].

use crate::error::Error;
use crate::outgoing::Outgoing;
use crossdock_device::{Device, Frame, Idler, Sent, UdpDevice, UdpOptions};
use crossdock_mailbox::{Buffer, Pool, PoolConfig};
use crossdock_transport::handshake::{Close, Hello, Welcome};
use crossdock_transport::header::{PayloadSpan, Run, walk};
use crossdock_transport::{
    ControlMessage, Dialler, HEADER_BYTES, Header, Kind, Limits, MAX_SUPER_BYTES, Notice, Reply, Request, Session,
};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Credit that a client gives: packets that the daemon may send ahead of the application, if the socket's receive buffer
/// holds as many.
const WINDOW_PACKETS: u32 = 256;
/// Bytes of a receive buffer that one packet over loopback takes, about: twice its length.
const CHARGED_BYTES: usize = 16 << 10;
/// A daemon that was silent for so long, though asked, is gone.
const IDLE_TIMEOUT_NS: u64 = 5_000_000_000;
/// The first pause between two tries to come back, and the longest, in ns.
const BACKOFF_NS: (u64, u64) = (50_000_000, 2_000_000_000);
/// How long one try to come back dials before it counts as failed, in ns.
const DIAL_NS: u64 = 2_000_000_000;
/// Frames taken from the socket in one go.
const FRAMES: usize = 8;
/// For how long a waiting call polls before it sleeps, while messages come one by one at shorter intervals, in ns: less than a
/// sleep and a wake-up take.
const SPIN_NS: u64 = 30_000;

/// How a link is set up.
#[derive(Clone, Debug)]
pub(crate) struct LinkOptions {
    pub(crate) addr: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) reconnect: bool,
}

/// A run of packets that arrived.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) buffer: Buffer,
    pub(crate) header: Header,
    pub(crate) spans: Vec<PayloadSpan>,
}

/// What is there for the application, in order.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// Records; `end_seq` says up to where they reach, for the credit.
    Records { arrived: Arrived, end_seq: u64 },
    /// Something the daemon tells.
    Notice(Notice),
    /// A subscription stands (again), with this format description.
    Subscribed { format: String },
    /// The session is a new one; what was sent between may be missing.
    Reconnected,
}

/// Where the link stands.
enum State {
    /// Hellos go out.
    Dialling { dialler: Box<Dialler>, number: u32, until_ns: u64 },
    /// The session stands.
    Up(Box<Session<Outgoing, Arrived>>),
    /// The daemon is gone; the next try is at `retry_ns`.
    Down { retry_ns: u64 },
    /// Over, for the reason in `fault`.
    Ended,
}

/// One session with the daemon.
pub(crate) struct Link {
    options: LinkOptions,
    pub(crate) device: UdpDevice,
    pub(crate) pool: Pool,
    peer: SocketAddr,
    window_packets: u32,
    started: Instant,
    state: State,
    number: u32,
    backoff_ns: u64,
    was_up: bool,
    lost_because: String,
    fault: Option<Error>,
    /// Sent at the start of every session: announce or subscribe.
    opening: Vec<Request>,
    /// Sent behind what a lost session left over: finish.
    ending: Vec<Request>,
    /// Units of a lost session that go into the next one.
    kept: Vec<Outgoing>,
    next_id: u32,
    answers: Vec<(u32, Result<(), Error>)>,
    pub(crate) inbox: VecDeque<Incoming>,
    pub(crate) idler: Idler,
    frames: Vec<Frame>,
    spans: Vec<PayloadSpan>,
    runs: Vec<Run>,
    resent_before: u64,
}

impl Link {
    /// Opens a socket towards the daemon and begins to dial.
    ///
    /// # Errors
    /// The address is none, or the system refuses the socket or memory.
    pub(crate) fn new(options: LinkOptions) -> Result<Link, Error> {
        let peer = resolve(&options.addr)?;
        let device =
            UdpDevice::connect(peer, UdpOptions { loopback_packet_bytes: MAX_SUPER_BYTES, ..UdpOptions::default() });
        let device = device.map_err(Error::system("cannot open a UDP socket"))?;
        let holds = u32::try_from(device.info().receive_buffer_bytes / CHARGED_BYTES).unwrap_or(u32::MAX);
        let window_packets = WINDOW_PACKETS.min(holds).max(8);
        // 32 super-packets each way in flight, some being filled and some in the application's hands; the rest for acks.
        let classes = vec![(512, 256), (2 << 10, 256), (8 << 10, 512), (16 << 10, 64), (64 << 10, 160)];
        let pool = Pool::new(PoolConfig { classes }).map_err(Error::system("cannot allocate buffers"))?;
        let mut link = Link {
            options,
            device,
            pool,
            peer,
            window_packets,
            started: Instant::now(),
            state: State::Ended,
            number: 0,
            backoff_ns: BACKOFF_NS.0,
            was_up: false,
            lost_because: String::new(),
            fault: None,
            opening: Vec::new(),
            ending: Vec::new(),
            kept: Vec::new(),
            next_id: 1,
            answers: Vec::new(),
            inbox: VecDeque::new(),
            idler: Idler::new(SPIN_NS),
            frames: Vec::new(),
            spans: Vec::new(),
            runs: Vec::new(),
            resent_before: 0,
        };
        let timeout_ns = u64::try_from(link.options.connect_timeout.as_nanos()).unwrap_or(u64::MAX);
        link.dial(0, timeout_ns);
        Ok(link)
    }

    /// Now, in ns since the link was made.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether the session stands.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    /// The session, while it stands.
    pub(crate) fn session(&mut self) -> Option<&mut Session<Outgoing, Arrived>> {
        match &mut self.state {
            State::Up(session) => Some(session),
            _ => None,
        }
    }

    /// The error that ended the link, if it has ended.
    pub(crate) fn fault(&self) -> Option<Error> {
        self.fault.as_ref().map(Error::again)
    }

    /// Ends the link.
    pub(crate) fn fail(&mut self, error: Error) {
        self.fault.get_or_insert(error);
        self.state = State::Ended;
    }

    /// Packets sent again so far, over all sessions.
    pub(crate) fn resent(&self) -> u64 {
        self.resent_before + if let State::Up(session) = &self.state { session.sender.stats().resent } else { 0 }
    }

    fn dial(&mut self, now_ns: u64, timeout_ns: u64) {
        let number = fastrand::u32(1..);
        let hello = Hello {
            nonce: fastrand::u64(..),
            session: number,
            packet_bytes: self.device.packet_bytes(self.peer) as u32,
            window_packets: self.window_packets,
        };
        let dialler = Box::new(Dialler::new(hello, now_ns));
        self.state = State::Dialling { dialler, number, until_ns: now_ns.saturating_add(timeout_ns) };
    }

    /// A request's number.
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

    /// Sends a request behind everything sent so far, in this session and, should this one be lost, in the next.
    pub(crate) fn finish_with(&mut self, request: Request) {
        self.ending.push(request.clone());
        self.ask(request);
    }

    /// The answer to a request, once it is there.
    pub(crate) fn answer(&mut self, id: u32) -> Option<Result<(), Error>> {
        let at = self.answers.iter().position(|(answered, _)| *answered == id)?;
        Some(self.answers.swap_remove(at).1)
    }

    /// Puts a unit into the session's queue, or keeps it for the next session.
    pub(crate) fn enqueue(&mut self, unit: Outgoing) {
        match &mut self.state {
            State::Up(session) => {
                let (packets, bytes) = unit.size();
                session.sender.enqueue(unit, packets, bytes, false);
            }
            _ => self.kept.push(unit),
        }
    }

    /// Bytes queued and unacknowledged.
    pub(crate) fn backlog_bytes(&self) -> u64 {
        let kept: u64 = self.kept.iter().map(|unit| unit.size().1).sum();
        kept + if let State::Up(session) = &self.state { session.sender.backlog_bytes() } else { 0 }
    }

    /// Lets time pass, sends what is due.
    pub(crate) fn drive(&mut self) {
        // Replies and notices take credit too. With nothing left for the application, all that came is consumed; what
        // it still holds in its hands is one event at most.
        if self.inbox.is_empty()
            && let Some(session) = self.session()
        {
            session.receiver.consumed_to(session.receiver.next_seq());
        }
        self.run_timers();
        self.transmit();
    }

    /// Takes what has arrived.
    pub(crate) fn receive(&mut self) {
        let mut frames = std::mem::take(&mut self.frames);
        if let Err(error) = self.device.receive(&mut self.pool, &mut frames, FRAMES) {
            self.refused(&error);
        }
        let now_ns = self.now_ns();
        for frame in frames.drain(..) {
            self.idler.arrived(now_ns, frame.len);
            self.take_frame(frame, now_ns);
        }
        self.frames = frames;
    }

    fn take_frame(&mut self, frame: Frame, now_ns: u64) {
        let Frame { buffer, len, stride, .. } = frame;
        let (mut spans, mut runs) = (std::mem::take(&mut self.spans), std::mem::take(&mut self.runs));
        // What is not a packet of ours is dropped; the daemon sends again what got lost that way.
        walk(&buffer[..len], stride, &mut spans, &mut runs, |_| {});
        let buffer = buffer.freeze();
        for run in &runs {
            let payload = &buffer[spans[run.first].range()];
            self.take_run(run, payload, &spans, &buffer, now_ns);
        }
        (self.spans, self.runs) = (spans, runs);
    }

    fn take_run(&mut self, run: &Run, payload: &[u8], spans: &[PayloadSpan], buffer: &Buffer, now_ns: u64) {
        match &mut self.state {
            State::Dialling { dialler, number, .. } => {
                let number = *number;
                if let Some(welcome) = dialler.answered(&run.header, payload) {
                    self.come_up(number, &welcome, now_ns);
                } else if run.header.kind == Kind::Close && run.header.session == number {
                    self.close(&Close::decode(payload));
                }
            }
            State::Up(session) if run.header.session == self.number => {
                session.heard(now_ns);
                match run.header.kind {
                    Kind::Data | Kind::Control => {
                        let arrived =
                            Arrived { buffer: buffer.clone(), header: run.header, spans: run.spans(spans).to_vec() };
                        let mut ready = Vec::new();
                        let first = run.header.seq;
                        session.receiver.arrive(first, run.packets, arrived, now_ns, |a, skip| ready.push((a, skip)));
                        for (arrived, skip) in ready {
                            self.deliver(arrived, skip as usize);
                        }
                    }
                    // A malformed ack is dropped; the next one tells the same.
                    Kind::Ack => drop(session.on_ack(payload, now_ns, drop)),
                    Kind::Ping => session.receiver.ack_soon(),
                    Kind::Close => self.close(&Close::decode(payload)),
                    Kind::Hello | Kind::Welcome | Kind::Message => {}
                }
            }
            _ => {}
        }
    }

    /// The daemon granted a session: it begins with the opening, then with what the last session left over.
    fn come_up(&mut self, number: u32, welcome: &Welcome, now_ns: u64) {
        let limits = Limits { window_packets: self.window_packets, idle_timeout_ns: IDLE_TIMEOUT_NS };
        let session = Session::new(welcome.session, welcome.packet_bytes, welcome.window_packets, limits, now_ns);
        self.state = State::Up(Box::new(session));
        self.number = number;
        self.backoff_ns = BACKOFF_NS.0;
        if std::mem::replace(&mut self.was_up, true) {
            self.inbox.push_back(Incoming::Reconnected);
        }
        let kept = std::mem::take(&mut self.kept);
        for request in self.opening.clone() {
            self.ask(request);
        }
        for unit in kept {
            self.enqueue(unit);
        }
        for request in self.ending.clone() {
            self.ask(request);
        }
    }

    /// In-order packets: requests' answers are kept for who asked, the rest is for the application.
    fn deliver(&mut self, mut arrived: Arrived, skip: usize) {
        arrived.spans.drain(..skip.min(arrived.spans.len()));
        if arrived.header.kind == Kind::Data {
            let end_seq = self.session().map_or(0, |s| s.receiver.next_seq());
            self.inbox.push_back(Incoming::Records { arrived, end_seq });
            return;
        }
        for span in &arrived.spans {
            match ControlMessage::decode(&arrived.buffer[span.range()]) {
                Ok(ControlMessage::Reply(reply)) => self.take_reply(reply),
                Ok(ControlMessage::Notice(notice)) => self.inbox.push_back(Incoming::Notice(notice)),
                // A newer daemon may say more than this version understands.
                Ok(ControlMessage::Request(_)) | Err(_) => {}
            }
        }
    }

    fn take_reply(&mut self, reply: Reply) {
        let (id, result) = match reply {
            Reply::Done { id } | Reply::MailboxOpened { id, .. } | Reply::Node { id, .. } => (id, Ok(())),
            Reply::Subscribed { id, format, .. } => {
                self.inbox.push_back(Incoming::Subscribed { format });
                (id, Ok(()))
            }
            Reply::Refused { id, refusal } => (id, Err(Error::from(refusal))),
        };
        match result {
            // What cannot even begin is over; who waits for the answer finds the fault.
            Err(error) if self.opening.iter().any(|request| request.id() == Some(id)) => {
                self.say_close();
                self.fail(error);
            }
            result => {
                // Nobody waits for more than one answer at a time; the bound is against a daemon that invents them.
                self.answers.truncate(16);
                self.answers.push((id, result));
            }
        }
    }

    /// The daemon ended the session.
    fn close(&mut self, close: &Close) {
        if close.again && self.was_up {
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
        if self.was_up {
            if self.is_up() {
                self.lose("connection refused".to_owned());
            }
        } else {
            let addr = self.options.addr.clone();
            self.fail(Error::NoDaemon { addr, reason: "connection refused".to_owned() });
        }
    }

    /// The session is lost: what was not acknowledged is kept for the next one, which is tried soon.
    fn lose(&mut self, reason: String) {
        self.resent_before = self.resent();
        if let State::Up(session) = &mut self.state {
            let left = session.sender.take_unacknowledged();
            // Control messages belonged to the old session: the opening is sent anew, the rest has nobody to answer it.
            self.kept.extend(left.filter(|unit| matches!(unit, Outgoing::Records { .. })));
        }
        if self.options.reconnect {
            self.lost_because = reason;
            let retry_ns = self.now_ns().saturating_add(self.backoff_ns);
            self.backoff_ns = (self.backoff_ns * 2).min(BACKOFF_NS.1);
            self.state = State::Down { retry_ns };
        } else {
            let addr = self.options.addr.clone();
            self.fail(Error::Lost { addr, reason });
        }
    }

    /// Deadlines that have passed.
    fn run_timers(&mut self) {
        let now_ns = self.now_ns();
        match &mut self.state {
            State::Up(session) => {
                if !session.on_timer(now_ns) {
                    self.lose(format!("nothing was heard for {} s", IDLE_TIMEOUT_NS / 1_000_000_000));
                }
            }
            State::Down { retry_ns } if now_ns >= *retry_ns => self.dial(now_ns, DIAL_NS),
            State::Dialling { until_ns, .. } if now_ns >= *until_ns => {
                if self.was_up {
                    let reason = self.lost_because.clone();
                    self.lose(reason);
                } else {
                    let addr = self.options.addr.clone();
                    self.fail(Error::NoDaemon { addr, reason: "no answer".to_owned() });
                }
            }
            State::Down { .. } | State::Dialling { .. } | State::Ended => {}
        }
    }

    /// Sends what is due: hellos, records and requests, acks and pings.
    pub(crate) fn transmit(&mut self) {
        let now_ns = self.now_ns();
        let mut network = Ok(());
        match &mut self.state {
            State::Dialling { dialler, .. } => {
                if let Some(packet) = dialler.poll(now_ns) {
                    network = self.device.send(self.peer, &[IoSlice::new(&packet)], packet.len()).map(drop);
                }
            }
            State::Up(session) => {
                let to = session.peer_session();
                while let Some(next) = session.sender.poll() {
                    match next.payload.transmit(&mut self.device, self.peer, to, next.first_seq, next.packets) {
                        Ok(Sent::Done) => {}
                        Ok(Sent::Full) => break,
                        Err(error) => {
                            network = Err(error);
                            break;
                        }
                    }
                    session.sender.transmitted(now_ns);
                }
                while let Some(short) = session.poll_short(now_ns) {
                    let bytes = short.bytes();
                    // A full device loses it; acks and pings are repeated when they must be.
                    if let Err(error) = self.device.send(self.peer, &[IoSlice::new(bytes)], bytes.len()) {
                        network = Err(error);
                        break;
                    }
                }
            }
            State::Down { .. } | State::Ended => {}
        }
        if let Err(error) = network {
            self.refused(&error);
        }
    }

    /// When [`Link::drive`] has something to do by itself, in ns.
    pub(crate) fn due_ns(&self) -> u64 {
        match &self.state {
            State::Dialling { dialler, until_ns, .. } => dialler.next_ns().min(*until_ns),
            State::Up(session) => session.deadline_ns(),
            State::Down { retry_ns } => *retry_ns,
            State::Ended => u64::MAX,
        }
    }

    /// Whether nothing more needs to be sent or acknowledged.
    pub(crate) fn is_settled(&self) -> bool {
        match &self.state {
            State::Up(session) => session.sender.is_idle(),
            State::Ended => true,
            State::Dialling { .. } | State::Down { .. } => false,
        }
    }

    /// Tells the daemon that the session is over; not repeated, its idle time-out is the safety net.
    pub(crate) fn say_close(&mut self) {
        if let State::Up(session) = &self.state {
            let packet = Close { again: false, reason: "done".to_owned() }.packet(session.peer_session());
            // If this is lost, the daemon finds out by its time-out.
            let _ = self.device.send(self.peer, &[IoSlice::new(&packet)], packet.len());
        }
        self.state = State::Ended;
    }
}

/// The first address that the name stands for.
fn resolve(addr: &str) -> Result<SocketAddr, Error> {
    let wrong = |reason: String| Error::Address { addr: addr.to_owned(), reason };
    let plain = addr.strip_prefix("udp://").unwrap_or(addr);
    if plain.contains("://") {
        return Err(wrong("only udp:// is known".to_owned()));
    }
    let mut found = plain.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    found.next().ok_or_else(|| wrong("the name stands for no address".to_owned()))
}

/// The longest record that fits a packet, in bytes.
pub(crate) const MAX_RECORD_BYTES: usize = MAX_SUPER_BYTES - HEADER_BYTES;
