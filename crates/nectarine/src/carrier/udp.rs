//! The carrier by packets: a UDP socket towards the daemon, and the session over it. The socket stays from one session to the
//! next: so the daemon knows that its client has begun a new one, and ends the old.

use super::lent::LentPool;
use super::secure::SecureDevice;
use super::unit::Unit;
use super::{Carrier, DatagramCounts};
use crate::error::Error;
use crate::incoming::{Arrived, Bytes, Heard};
use crate::outgoing::{Outgoing, PacketBuffer, Unsent};
use crate::route::NodeRoute;
use crate::settings::{Clients, Keys, Settings, Transport};
use crate::trace::{SessionEvent, SessionTrace, Started};
use crossdock_device::{Device, Frame, Idler, Sent, UdpDevice, UdpOptions, is_too_long};
use crossdock_mailbox::{Buffer, BufferMut};
use crossdock_transport::credit::{MAX_WINDOW_BYTES, WINDOW_BYTES};
use crossdock_transport::ecn::{ECT_0, NOT_ECT};
use crossdock_transport::handshake::{Close, Hello, Welcome};
use crossdock_transport::header::{PayloadSpan, Run, walk};
use crossdock_transport::parts::{Parts, Put};
use crossdock_transport::pieces::Head;
use crossdock_transport::trace::TraceEvent;
use crossdock_transport::{
    Cut, Dialler, Header, Limits, MAX_PACKETS, MAX_SUPER_BYTES, PacketKind, Session, SuperPacket,
};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// The smallest window: of eight packets over loopback.
const LEAST_WINDOW_BYTES: u32 = 64 << 10;
/// A daemon that was silent for so long is asked whether it is there: one that was started again in the meantime does not know the
/// session, and says so.
const ASK_AFTER_NS: u64 = 400_000_000;
/// A daemon that was silent for so long, though asked, is gone.
const IDLE_TIMEOUT_NS: u64 = 5_000_000_000;
/// Bytes that may wait to be sent before no more records are packed; what is on the way is bounded by the daemon's credit.
const QUEUE_BYTES: u64 = 2 << 20;
/// Units that wait or are on the way before no more records are packed: each takes a buffer, however short it is, and the small ones
/// are about as many.
const MOST_UNITS: usize = 2048;
/// Frames taken from the socket in one go.
const FRAMES: usize = 8;
/// Large buffers: for what the daemon may send ahead over a path of 8 KiB packets, and some being filled or in flight.
/// Records that the application is slow to take or what is ahead of a hole must leave some to what comes next. Only
/// what is used is ever touched.
const LARGE_BUFFERS: usize = 320;
/// The classes of a pool: bytes of a buffer, and buffers. A window has more packets where they are shorter, and what arrives in a
/// short one is copied to a buffer of its length: those of 2 KiB are as many as the largest window has packets of an Ethernet path.
const CLASSES: [(usize, usize); 5] = [
    (512, 256),
    (2 << 10, MAX_WINDOW_BYTES as usize / 1400),
    (8 << 10, 512),
    (16 << 10, 64),
    (64 << 10, LARGE_BUFFERS),
];
const _: () =
    assert!(LARGE_BUFFERS >= WINDOW_BYTES as usize / (8 << 10) + SPARE_BUFFERS + 8, "8 are posted for what arrives");
const _: () = assert!(LARGE_BUFFERS >= MAX_WINDOW_BYTES as usize / (64 << 10) + SPARE_BUFFERS + 8, "in super-packets");
/// Large buffers that what goes out leaves to what comes in: an ack that finds no buffer is lost, and only acks free what went out.
const SPARE_BUFFERS: usize = 32;

/// Where the conversation stands.
enum Talk {
    /// Nothing is said.
    Silent,
    /// A peer without a daemon is waited for.
    Listening,
    /// Hellos go out.
    Dialling(Box<Dialler>),
    /// The session stands.
    Up(Box<Session<Unit, Arrived>>),
}

/// A socket, and the bytes of its receive buffer.
type Socket = (Box<dyn Device>, usize);

/// A socket and what is said over it.
pub(crate) struct Udp {
    device: SecureDevice,
    peer: SocketAddr,
    /// Bytes that the socket holds of what comes.
    held_bytes: u32,
    window_bytes: u32,
    uses_mailboxes: bool,
    talk: Talk,
    /// The greeting of a peer without a daemon, whose session stands here.
    greeted: Option<Hello>,
    /// This side's number for the session.
    number: u32,
    /// Acks that have come.
    acks: u64,
    resent_before: u64,
    /// Those of the sessions before, and the records that were dropped in this one.
    datagrams_before: DatagramCounts,
    /// Frames taken in one go.
    frames_at_once: usize,
    frames: Vec<Frame>,
    spans: Vec<PayloadSpan>,
    runs: Vec<Run>,
    /// Packets that miss parts, and those whose parts have all come.
    parts: Parts<BufferMut>,
    whole: VecDeque<Frame>,
    /// ECN's bits of the frame in work.
    ecn: u8,
    /// Until then, in ns, there is nothing to do unless something arrives, is sent or is taken.
    quiet_until_ns: u64,
    /// The trace of the sessions, if one is written.
    trace: Option<SessionTrace>,
    /// The last, so that all that has buffers of it is gone before.
    pool: LentPool,
}

impl Udp {
    /// Opens a socket towards the daemon, and begins to dial; every session over it is for mailboxes, or none, and in envelopes if
    /// there are `keys`.
    ///
    /// # Errors
    /// The system refuses the socket or memory.
    pub(crate) fn open(peer: SocketAddr, uses_mailboxes: bool, keys: Option<&Keys>, now_ns: u64) -> Result<Udp, Error> {
        Udp::open_over(peer, uses_mailboxes, (keys, None), now_ns)
    }

    fn open_over(
        peer: SocketAddr,
        uses_mailboxes: bool,
        keys: (Option<&Keys>, Option<&NodeRoute>),
        now_ns: u64,
    ) -> Result<Udp, Error> {
        let device = UdpDevice::connect(peer, options()).map_err(Error::system("cannot open a UDP socket"))?;
        let holds = device.info().receive_buffer_bytes;
        Udp::dialling((Box::new(device), holds), (peer, uses_mailboxes), keys, now_ns)
    }

    /// The same over a socket.
    fn dialling(
        socket: Socket,
        to: (SocketAddr, bool),
        keys: (Option<&Keys>, Option<&NodeRoute>),
        now_ns: u64,
    ) -> Result<Udp, Error> {
        let ((device, holds), (peer, uses_mailboxes)) = (socket, to);
        let device = SecureDevice::new(device, peer, keys, uses_mailboxes);
        let mut udp = Udp::over((device, holds), peer, uses_mailboxes)?;
        udp.dial(now_ns);
        Ok(udp)
    }

    /// The same by the settings of a link: also over a source route, and with the trace, if there are any.
    ///
    /// # Errors
    /// Those of [`Udp::open`].
    pub(crate) fn of_settings(peer: SocketAddr, settings: &Settings, now_ns: u64) -> Result<Udp, Error> {
        let keys = (settings.keys.as_ref(), settings.route.as_ref());
        #[cfg(feature = "simulation")]
        if let Some(simulated) = &settings.simulated {
            return Udp::dialling(simulated.open(), (peer, settings.uses_mailboxes), keys, now_ns);
        }
        let mut udp = Udp::open_over(peer, settings.uses_mailboxes, keys, now_ns)?;
        udp.trace = settings.trace.as_ref().map(|trace| trace.session(now_ns));
        Ok(udp)
    }

    /// Opens a socket at an address for one session, with the first program that dials it: of these, in envelopes, or any.
    ///
    /// # Errors
    /// The system refuses the socket or memory, or has no random bytes.
    pub(crate) fn listen(addr: SocketAddr, clients: Option<&Clients>) -> Result<Udp, Error> {
        let device = UdpDevice::bind(addr, options()).map_err(Error::system("cannot open a UDP socket"))?;
        let holds = device.info().receive_buffer_bytes;
        let device = SecureDevice::listening(Box::new(device), clients).map_err(Error::system("cannot make keys"))?;
        let mut udp = Udp::over((device, holds), addr, false)?;
        udp.number = fastrand::u32(1..);
        udp.talk = Talk::Listening;
        Ok(udp)
    }

    /// The same for an owner that polls: to look whether another frame is there would cost as much as the next turn's look.
    pub(crate) fn polled(mut self) -> Udp {
        self.frames_at_once = 1;
        self
    }

    /// Whether enough large buffers are free that records may stay in theirs.
    pub(crate) fn has_many_buffers(&mut self) -> bool {
        self.pool.has_free(MAX_SUPER_BYTES, LARGE_BUFFERS / 2)
    }

    /// Where the socket is bound.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.device.local_addr()
    }

    /// The other side of the session, or of the one that is wanted.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Over a socket whose receive buffer has `buffer_bytes` bytes.
    fn over(
        (device, buffer_bytes): (SecureDevice, usize),
        peer: SocketAddr,
        uses_mailboxes: bool,
    ) -> Result<Udp, Error> {
        // The kernel charges a packet up to twice its length.
        let holds = u32::try_from(buffer_bytes / 2).unwrap_or(u32::MAX);
        let held_bytes = holds.max(LEAST_WINDOW_BYTES);
        Ok(Udp {
            device,
            peer,
            held_bytes,
            window_bytes: WINDOW_BYTES.min(held_bytes),
            uses_mailboxes,
            talk: Talk::Silent,
            greeted: None,
            number: 0,
            acks: 0,
            resent_before: 0,
            datagrams_before: DatagramCounts::default(),
            frames_at_once: FRAMES,
            frames: Vec::new(),
            spans: Vec::new(),
            runs: Vec::new(),
            parts: Parts::default(),
            whole: VecDeque::new(),
            ecn: 0,
            quiet_until_ns: 0,
            trace: None,
            pool: LentPool::new(&CLASSES).map_err(Error::system("cannot allocate buffers"))?,
        })
    }

    /// Acks that have come, over all sessions.
    pub(crate) fn acks(&self) -> u64 {
        self.acks
    }

    /// Asks for an ack at once.
    ///
    /// # Errors
    /// The network's.
    pub(crate) fn ping(&mut self) -> io::Result<()> {
        let Some(session) = self.session() else { return Ok(()) };
        let packet = Header::new(PacketKind::Ping, session.peer_session()).to_bytes();
        if let Some(trace) = &self.trace {
            trace.note_sent(trace.now_ns(), PacketKind::Ping, 0, packet.len());
        }
        // A full device loses it.
        self.device.send(self.peer, &[IoSlice::new(&packet)], packet.len()).map(drop)
    }

    fn dial(&mut self, now_ns: u64) {
        self.number = fastrand::u32(1..);
        let hello = Hello {
            nonce: fastrand::u64(..),
            session: self.number,
            packet_bytes: self.device.packet_bytes(self.peer) as u32,
            window_bytes: self.window_bytes,
            uses_mailboxes: self.uses_mailboxes,
        };
        self.talk = Talk::Dialling(Box::new(Dialler::new(hello, now_ns)));
    }

    fn session(&self) -> Option<&Session<Unit, Arrived>> {
        match &self.talk {
            Talk::Up(session) => Some(session),
            Talk::Silent | Talk::Listening | Talk::Dialling(_) => None,
        }
    }

    /// The session, with which something may be done that makes something due.
    fn session_mut(&mut self) -> Option<&mut Session<Unit, Arrived>> {
        self.quiet_until_ns = 0;
        match &mut self.talk {
            Talk::Up(session) => Some(session),
            Talk::Silent | Talk::Listening | Talk::Dialling(_) => None,
        }
    }

    /// A few records move to a small buffer, so that they do not hold a large one until they are acknowledged.
    fn shrink(&mut self, packet: SuperPacket<PacketBuffer>) -> SuperPacket<PacketBuffer> {
        let len = packet.len();
        let small = if len <= MAX_SUPER_BYTES / 4 { self.pool.alloc(len) } else { None };
        match small {
            Some(small) => packet.copied_to(PacketBuffer::Own(small)),
            None => packet,
        }
    }

    /// Takes some of what the socket has; how many frames.
    fn take_frames(&mut self, now_ns: u64, mut arrived: impl FnMut(usize), heard: &mut Vec<Heard>) -> usize {
        let mut frames = std::mem::take(&mut self.frames);
        self.device.set_now(now_ns);
        let received = self.device.receive(&mut self.pool, &mut frames, self.frames_at_once);
        let count = received.as_ref().map_or(frames.len(), |count| *count);
        if count > 0 || received.is_err() {
            self.quiet_until_ns = 0;
        }
        for frame in frames.drain(..) {
            arrived(frame.len);
            self.take_frame(frame, now_ns, heard);
            while let Some(whole) = self.whole.pop_front() {
                self.take_frame(whole, now_ns, heard);
            }
        }
        self.frames = frames;
        report(received.map(drop), heard);
        count
    }

    fn take_frame(&mut self, frame: Frame, now_ns: u64, heard: &mut Vec<Heard>) {
        let Frame { buffer, len, stride, from, ecn } = frame;
        self.ecn = ecn;
        let (mut spans, mut runs) = (std::mem::take(&mut self.spans), std::mem::take(&mut self.runs));
        // A datagram that is not a packet of ours is dropped; the daemon sends again what got lost that way.
        walk(&buffer[..len], stride, &mut spans, &mut runs, |_| {});
        let buffer = buffer.freeze();
        for run in &runs {
            let payload = &buffer[spans[run.first].range()];
            if run.header.kind == PacketKind::Hello {
                self.take_hello(payload, from, now_ns, heard);
                continue;
            }
            if run.header.kind == PacketKind::Part {
                self.take_part(&run.header, payload, from, now_ns);
                continue;
            }
            self.take_run(run, payload, &spans, &buffer, now_ns, heard);
        }
        (self.spans, self.runs) = (spans, runs);
    }

    /// A part of a packet, which is taken once the last of them is there. One that finds no memory comes again.
    fn take_part(&mut self, header: &Header, payload: &[u8], from: SocketAddr, now_ns: u64) {
        let Talk::Up(session) = &mut self.talk else { return };
        if header.session != self.number {
            return;
        }
        session.heard(now_ns);
        let pool = &mut self.pool;
        let put = self.parts.put(header, payload, (self.ecn, now_ns), |bytes| {
            pool.has_free(MAX_SUPER_BYTES, SPARE_BUFFERS).then(|| pool.alloc(bytes)).flatten()
        });
        if let Put::Whole(buffer, len, ecn) = put {
            self.whole.push_back(Frame { buffer, len, stride: len, from, ecn });
        }
    }

    fn take_run(
        &mut self,
        run: &Run,
        payload: &[u8],
        spans: &[PayloadSpan],
        buffer: &Buffer,
        now_ns: u64,
        heard: &mut Vec<Heard>,
    ) {
        if let (PacketKind::Reset, Some(session)) = (run.header.kind, self.session()) {
            // Only the daemon knows the number; a reset of an earlier session has another.
            if run.header.session == session.peer_session() {
                let reason = "the daemon does not know the session: it was started again, or has ended it".to_owned();
                heard.push(Heard::Close(Close { again: true, reason }));
            }
            return;
        }
        if run.header.session != self.number {
            return;
        }
        match &mut self.talk {
            Talk::Dialling(_) => self.take_answer(run, payload, now_ns, heard),
            Talk::Up(session) => {
                session.arrived(run, self.ecn, now_ns);
                match run.header.kind {
                    PacketKind::Data | PacketKind::Control | PacketKind::Message => {
                        session.receiver.note_ecn(self.ecn, run.packets);
                        let spans = run.spans(spans).to_vec();
                        let bytes = Bytes::Own(buffer.clone());
                        let arrived = Arrived { bytes, header: run.header, spans, data_end: 0 };
                        let mut ready = Vec::new();
                        session.receiver.arrive(run, arrived, now_ns, |arrived, skip| ready.push((arrived, skip)));
                        let data_end = session.receiver.data_delivered();
                        for (mut arrived, skip) in ready {
                            arrived.spans.drain(..arrived.spans.len().min(skip as usize));
                            heard.push(Heard::Packets(Arrived { data_end, ..arrived }));
                        }
                    }
                    PacketKind::Datagram => {
                        session.receiver.note_ecn(self.ecn, run.packets);
                        heard.extend(fresh_datagrams(session, run, spans, buffer, now_ns).map(Heard::Packets));
                    }
                    // A malformed ack is dropped; the next one says the same.
                    PacketKind::Ack => {
                        self.acks += 1;
                        let _ = session.on_ack(payload, now_ns, drop);
                    }
                    PacketKind::Ping => session.receiver.ack_soon(),
                    PacketKind::Probe => {
                        let answer = session.answer_probe(&run.header);
                        if let Some(trace) = &self.trace {
                            trace.note_sent(now_ns, PacketKind::Probed, run.header.seq, answer.len());
                        }
                        // A full device loses it; the probe is repeated.
                        report(self.device.send(self.peer, &[IoSlice::new(&answer)], answer.len()).map(drop), heard);
                    }
                    PacketKind::Probed => session.sender.probe_answered(run.header.seq, now_ns),
                    PacketKind::Close => heard.push(Heard::Close(Close::decode(payload))),
                    PacketKind::Hello | PacketKind::Welcome | PacketKind::Reset | PacketKind::Part => {}
                }
            }
            Talk::Silent | Talk::Listening => {}
        }
    }

    /// A packet that comes before the session stands.
    fn take_answer(&mut self, run: &Run, payload: &[u8], now_ns: u64, heard: &mut Vec<Heard>) {
        let Talk::Dialling(dialler) = &self.talk else { return };
        if let Some(trace) = &self.trace {
            let received = TraceEvent::Received { packets: run.into(), ecn: self.ecn };
            trace.note(now_ns, SessionEvent::Transport(received));
        }
        if let Some(welcome) = dialler.answered(&run.header, payload) {
            self.come_up(&welcome, now_ns);
            heard.push(Heard::Welcome);
        } else if run.header.kind == PacketKind::Close {
            heard.push(Heard::Close(Close::decode(payload)));
        }
    }

    /// A program dials this one. The first that does gets a session; its hello may come again, and is answered again.
    fn take_hello(&mut self, payload: &[u8], from: SocketAddr, now_ns: u64, heard: &mut Vec<Heard>) {
        let Ok(hello) = Hello::decode(payload) else { return };
        let is_first = matches!(self.talk, Talk::Listening);
        if !is_first && (self.greeted.map(|hello| hello.nonce), self.peer) != (Some(hello.nonce), from) {
            return;
        }
        let packet_bytes = hello.packet_bytes.min(self.device.packet_bytes(from) as u32) & !7;
        if is_first {
            (self.peer, self.greeted) = (from, Some(hello));
            self.device.take_peer(from);
            let Hello { nonce, session, window_bytes, .. } = hello;
            self.come_up(&Welcome { nonce, session, packet_bytes, window_bytes }, now_ns);
            heard.push(Heard::Welcome);
        }
        let (session, window_bytes) = (self.number, self.window_bytes);
        let packet = Welcome { nonce: hello.nonce, session, packet_bytes, window_bytes }.packet(hello.session);
        // If it is lost, the hello comes again.
        let _ = self.device.send(from, &[IoSlice::new(&packet)], packet.len());
    }

    fn come_up(&mut self, welcome: &Welcome, now_ns: u64) {
        let limits = Limits {
            ask_after_ns: ASK_AFTER_NS,
            max_packet_bytes: self.device.most_packet_bytes(self.peer).min(MAX_SUPER_BYTES) as u32,
            max_window_bytes: MAX_WINDOW_BYTES.min(socket_bound(self.peer, self.held_bytes)),
            ..Limits::new(self.window_bytes, IDLE_TIMEOUT_NS)
        };
        let mut session = Session::new(welcome.session, welcome.packet_bytes, welcome.window_bytes, limits, now_ns);
        if let Some(trace) = &self.trace {
            let started = Started {
                local: self.device.local_addr(),
                remote: self.peer,
                numbers: (self.number, welcome.session),
                packet_bytes: welcome.packet_bytes,
                windows_bytes: (self.window_bytes, welcome.window_bytes),
            };
            trace.note(now_ns, SessionEvent::Started(started));
            session.observe(Box::new(trace.clone()), now_ns);
        }
        self.parts = Parts::default();
        self.talk = Talk::Up(Box::new(session));
    }

    /// Sends what is due: hellos, units, acks and pings.
    ///
    /// # Errors
    /// The network's.
    fn send_due(&mut self, now_ns: u64) -> io::Result<()> {
        let mut is_full = false;
        match &mut self.talk {
            Talk::Silent | Talk::Listening => {}
            Talk::Dialling(dialler) => {
                if let Some(packet) = dialler.poll(now_ns) {
                    if let Some(trace) = &self.trace {
                        trace.note_sent(now_ns, PacketKind::Hello, 0, packet.len());
                    }
                    // A full device loses it; it is repeated.
                    let _ = self.device.send(self.peer, &[IoSlice::new(&packet)], packet.len())?;
                }
            }
            Talk::Up(session) => {
                let to = session.peer_session();
                let mut sent = Ok(());
                self.device.set_most_bytes(session.packet_bytes());
                self.device.set_ecn(if session.sender.marks_ecn() { ECT_0 } else { NOT_ECT });
                while let Some(next) = session.sender.poll() {
                    match transmit(next.payload, &mut self.device, self.peer, to, next.first_seq, next.packets) {
                        Ok(Sent::Done) => session.sender.transmitted(now_ns),
                        Ok(Sent::Full) => {
                            is_full = true;
                            break;
                        }
                        // The interface takes less than it did: as good as lost on the way, so that the packet size falls.
                        Err(error) if is_too_long(&error) => session.sender.transmitted(now_ns),
                        Err(error) => {
                            sent = Err(error);
                            let dropped = &mut self.datagrams_before.dropped_records;
                            // Packets behind datagrams that the network refuses are tried all the same.
                            if !session.sender.transmission_failed(|unit, unsent| *dropped += unit.records(unsent)) {
                                break;
                            }
                        }
                    }
                }
                self.device.set_most_bytes(usize::MAX);
                while let Some((header, bytes)) = session.poll_probe(now_ns) {
                    match self.device.send_probe(self.peer, &header, bytes) {
                        // One that the interface refuses is as good as lost on the way.
                        Err(error) if !is_too_long(&error) => sent = sent.and(Err(error)),
                        _ => {}
                    }
                }
                session.grow_window(now_ns, u64::MAX);
                while let Some(short) = session.poll_short(now_ns) {
                    let bytes = short.bytes();
                    // A full device loses it; acks and pings are repeated when they must be.
                    sent = sent.and(self.device.send(self.peer, &[IoSlice::new(bytes)], bytes.len()).map(drop));
                }
                self.device.set_ecn(NOT_ECT);
                if sent.is_ok() && !is_full && !self.device.is_waiting() {
                    self.quiet_until_ns = session.deadline_ns().min(self.device.due_ns());
                }
                return sent;
            }
        }
        Ok(())
    }

    /// Reports to the trace, if there is one, that the keys have changed, and that the session has ended.
    fn note_changes(&mut self, now_ns: u64, heard: &[Heard]) {
        let Some(trace) = &mut self.trace else { return };
        trace.set_now(now_ns);
        trace.note_keys(now_ns, self.device.key_phases());
        for heard in heard {
            match heard {
                Heard::Close(close) => trace.note_closed(now_ns, false, &close.reason),
                Heard::Refused => trace.note_closed(now_ns, false, "connection refused"),
                Heard::Silent { .. } => trace.note_closed(now_ns, true, "no packet has arrived for too long"),
                Heard::Welcome | Heard::Packets(_) => {}
            }
        }
    }
}

impl Carrier for Udp {
    fn transport(&self) -> Transport {
        Transport::Udp
    }

    fn reopen(&mut self, now_ns: u64) -> bool {
        self.device.forget();
        self.quiet_until_ns = 0;
        self.dial(now_ns);
        if let Some(trace) = &mut self.trace {
            trace.begin();
        }
        true
    }

    fn begin_packet(&mut self) -> Option<SuperPacket<PacketBuffer>> {
        let packet_bytes = self.session()?.packet_bytes();
        if !self.pool.has_free(MAX_SUPER_BYTES, SPARE_BUFFERS) {
            return None;
        }
        Some(SuperPacket::new(PacketBuffer::Own(self.pool.alloc(MAX_SUPER_BYTES)?), packet_bytes))
    }

    fn send(&mut self, unit: Outgoing) -> Result<(), Outgoing> {
        let class = unit.class();
        let unit = match unit {
            Outgoing::Records { packet, stream, format } => {
                Outgoing::Records { packet: self.shrink(packet), stream, format }
            }
            Outgoing::Datagrams { packet, stream, format } => {
                Outgoing::Datagrams { packet: self.shrink(packet), stream, format }
            }
            unit => unit,
        };
        let Some(session) = self.session_mut() else { return Err(unit) };
        match unit {
            Outgoing::Records { packet, stream, format } => {
                let lengths = packet.lengths();
                session.sender.enqueue_super(Unit::Records { packet, stream, format }, lengths, class, false);
            }
            Outgoing::Datagrams { packet, stream, format } => {
                let (packets, bytes) = (packet.packets().len() as u32, packet.len() as u64);
                let unit = Unit::Datagrams { packet, stream, format };
                let mut dropped_records = 0;
                session.sender.enqueue_datagrams(unit, packets, bytes, |unit, unsent| {
                    dropped_records += unit.records(unsent);
                });
                self.datagrams_before.dropped_records += dropped_records;
            }
            Outgoing::Message(message) => {
                let cut = Cut::new(message.bytes.len(), session.packet_bytes());
                for packets in cut.units() {
                    let unit = Unit::Message { message: message.clone(), cut, from: packets.start };
                    session.sender.enqueue_super(unit, cut.lengths(packets), class, false);
                }
            }
        }
        Ok(())
    }

    fn unacknowledged(&self) -> usize {
        self.session().map_or(0, |session| session.sender.backlog_units())
    }

    fn has_room(&self) -> bool {
        let has_room = |session: &Session<Unit, Arrived>| {
            session.sender.queued_bytes() < QUEUE_BYTES && session.sender.backlog_units() < MOST_UNITS
        };
        self.session().is_some_and(has_room)
    }

    fn receive(&mut self, now_ns: u64, idler: &mut Idler, heard: &mut Vec<Heard>) {
        self.take_frames(now_ns, |len| idler.arrived(now_ns, len), heard);
        self.note_changes(now_ns, heard);
    }

    fn consumed_to(&mut self, data_end: u64) {
        if let Some(session) = self.session_mut() {
            session.receiver.consumed_to(data_end);
        }
    }

    fn control_consumed(&mut self) {
        if let Some(session) = self.session_mut() {
            session.receiver.control_consumed();
        }
    }

    fn on_timer(&mut self, now_ns: u64, heard: &mut Vec<Heard>) {
        self.parts.expire(now_ns);
        if now_ns < self.quiet_until_ns || self.session_mut().is_none_or(|session| session.on_timer(now_ns)) {
            return;
        }
        // If it is the process that did not run, what came meanwhile is in the socket, perhaps with the reason of the session's end.
        while self.take_frames(now_ns, |_| {}, heard) > 0 {}
        let is_over = heard.iter().any(|heard| matches!(heard, Heard::Close(_) | Heard::Refused));
        if !is_over && self.session_mut().is_some_and(|session| !session.on_timer(now_ns)) {
            heard.push(Heard::Silent { ns: IDLE_TIMEOUT_NS });
        }
        self.note_changes(now_ns, heard);
    }

    fn transmit(&mut self, now_ns: u64, heard: &mut Vec<Heard>) {
        if now_ns < self.quiet_until_ns {
            return;
        }
        self.device.set_now(now_ns);
        let sent = self.send_due(now_ns).and_then(|()| self.device.tick());
        report(sent, heard);
        self.note_changes(now_ns, heard);
    }

    fn due_ns(&self) -> u64 {
        let due_ns = match &self.talk {
            Talk::Silent | Talk::Listening => return u64::MAX,
            Talk::Dialling(dialler) => dialler.next_ns(),
            Talk::Up(session) => session.deadline_ns(),
        };
        due_ns.min(self.device.due_ns())
    }

    fn refusal(&self) -> Option<(String, bool)> {
        self.device.refusal()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.device.as_fd()
    }

    fn lose(&mut self) -> Vec<Unsent> {
        self.resent_before = self.resent();
        let Talk::Up(mut session) = std::mem::replace(&mut self.talk, Talk::Silent) else { return Vec::new() };
        let before = &mut self.datagrams_before;
        session.sender.lose_datagrams(|unit, unsent| before.dropped_records += unit.records(unsent));
        before.missing_packets += session.sender.datagram_stats().missing;
        let mut last = None;
        session.sender.take_unacknowledged().filter_map(|unit| unit.unsent(&mut last)).collect()
    }

    /// Not repeated: the daemon's idle time-out is the safety net.
    fn close(&mut self) {
        if let Talk::Up(session) = &self.talk {
            let packet = Close { again: false, reason: "done".to_owned() }.packet(session.peer_session());
            if let Some(trace) = &mut self.trace {
                let now_ns = trace.now_ns();
                trace.note_sent(now_ns, PacketKind::Close, 0, packet.len());
                trace.note_closed(now_ns, true, "done");
            }
            // If this is lost, the daemon finds out by its time-out.
            let _ = self.device.send(self.peer, &[IoSlice::new(&packet)], packet.len());
        }
        self.talk = Talk::Silent;
    }

    fn queued_datagrams(&self) -> usize {
        self.session().map_or(0, |session| session.sender.queued_datagrams())
    }

    fn datagrams(&self) -> DatagramCounts {
        let missing = self.session().map_or(0, |session| session.sender.datagram_stats().missing);
        let before = self.datagrams_before;
        DatagramCounts { missing_packets: before.missing_packets + missing, ..before }
    }

    fn resent(&self) -> u64 {
        self.resent_before + self.session().map_or(0, |session| session.sender.stats().resent)
    }
}

/// How sockets are opened: over loopback, packets are as long as a daemon takes them.
fn options() -> UdpOptions {
    UdpOptions { loopback_packet_bytes: MAX_SUPER_BYTES, ..UdpOptions::default() }
}

/// Sends the packets in `range` of a unit, numbered from `first_seq` for packet 0.
fn transmit(
    unit: &mut Unit,
    device: &mut dyn Device,
    addr: SocketAddr,
    to: u32,
    first_seq: u64,
    range: Range<u32>,
) -> io::Result<Sent> {
    let kind = if matches!(unit, Unit::Datagrams { .. }) { PacketKind::Datagram } else { PacketKind::Data };
    match unit {
        Unit::Records { packet, stream, format } | Unit::Datagrams { packet, stream, format } => {
            let template = Header { stream: *stream, format: *format, ..Header::new(kind, to) };
            packet.write_headers(range.clone(), &template, first_seq);
            device.send(addr, &[IoSlice::new(packet.bytes(range))], packet.stride())
        }
        Unit::Message { message, cut, from } => {
            let template = Header { session: to, ..message.header };
            let packets = range.start + *from..range.end + *from;
            // Packet 0 of the message, which may be before the unit's.
            let first_seq = first_seq.wrapping_sub(u64::from(*from));
            let mut heads = [Head::EMPTY; MAX_PACKETS];
            let mut slices = [IoSlice::new(&[]); 2 * MAX_PACKETS];
            for (head, index) in heads.iter_mut().zip(packets.clone()) {
                *head = cut.head(index, &template, first_seq);
            }
            let count = packets.len();
            for ((two, head), index) in slices.chunks_exact_mut(2).zip(&heads).zip(packets) {
                two.copy_from_slice(&[IoSlice::new(head), IoSlice::new(&message.bytes[cut.range(index)])]);
            }
            device.send(addr, &slices[..2 * count], cut.stride())
        }
    }
}

/// The largest window towards a peer, over a socket that holds `held_bytes` bytes. Over loopback no path holds anything: all that the window
/// allows waits in the socket. Over another path most of it is on the way.
fn socket_bound(peer: SocketAddr, held_bytes: u32) -> u32 {
    if peer.ip().to_canonical().is_loopback() { held_bytes } else { u32::MAX }
}

/// The datagrams of a run that have not come before, if there are any.
fn fresh_datagrams(
    session: &mut Session<Unit, Arrived>,
    run: &Run,
    spans: &[PayloadSpan],
    buffer: &Buffer,
    now_ns: u64,
) -> Option<Arrived> {
    let fresh = session.receiver.take_datagrams(run.header.seq, run.packets, now_ns);
    let spans = run.spans(spans).iter().enumerate().filter(|(at, _)| fresh >> at & 1 == 1);
    let spans: Vec<_> = spans.map(|(_, span)| *span).collect();
    let data_end = session.receiver.data_delivered();
    (!spans.is_empty()).then(|| Arrived { bytes: Bytes::Own(buffer.clone()), header: run.header, spans, data_end })
}

/// The meaning of the network's error; most are as good as loss on the way.
fn report(result: io::Result<()>, heard: &mut Vec<Heard>) {
    if result.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        heard.push(Heard::Refused);
    }
}

#[cfg(test)]
mod tests;
