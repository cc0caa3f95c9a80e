//! The way by packets: a UDP socket towards the daemon, and the session over it.

use crate::error::Error;
use crate::incoming::{Arrived, Bytes, Heard};
use crate::outgoing::{Again, Outgoing, PacketBuffer};
use crossdock_device::{Device, Frame, Idler, Sent, UdpDevice, UdpOptions};
use crossdock_format::Format;
use crossdock_mailbox::{Buffer, Pool, PoolConfig};
use crossdock_transport::handshake::{Close, Hello, Welcome};
use crossdock_transport::header::{PayloadSpan, Run, walk};
use crossdock_transport::{Dialler, Kind, Limits, MAX_SUPER_BYTES, Session, SuperPacket};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// Credit that a client gives: packets that the daemon may send ahead of the application, if the socket's receive buffer
/// holds as many.
const WINDOW_PACKETS: u32 = 256;
/// Bytes of a receive buffer that one packet over loopback takes, about: twice its length.
const CHARGED_BYTES: usize = 16 << 10;
const _: () = assert!(LARGE_BUFFERS >= WINDOW_PACKETS as usize + SPARE_BUFFERS + 8, "8 are posted for what arrives");
/// A daemon that was silent for so long, though asked, is gone.
pub(crate) const IDLE_TIMEOUT_NS: u64 = 5_000_000_000;
/// Frames taken from the socket in one go.
const FRAMES: usize = 8;
/// Large buffers: one for each packet that the daemon may send ahead, since a record may be as long as that, and what the
/// application is slow to take or what is ahead of a hole must leave some to what comes next; and some being filled or in flight.
/// Only what is used is ever touched.
const LARGE_BUFFERS: usize = WINDOW_PACKETS as usize + 64;
/// Large buffers that what goes out leaves to what comes in: an ack that finds no buffer is lost, and only acks free what went out.
const SPARE_BUFFERS: usize = 32;

/// Where the conversation stands.
enum Talk {
    /// Nothing is said.
    Silent,
    /// Hellos go out.
    Dialling(Box<Dialler>),
    /// The session stands.
    Up(Box<Session<Outgoing, Arrived>>),
}

/// A socket and what is said over it.
pub(crate) struct Udp {
    device: UdpDevice,
    pool: Pool,
    peer: SocketAddr,
    window_packets: u32,
    talk: Talk,
    /// This side's number for the session.
    number: u32,
    resent_before: u64,
    frames: Vec<Frame>,
    spans: Vec<PayloadSpan>,
    runs: Vec<Run>,
}

impl Udp {
    /// Opens a socket towards the daemon.
    ///
    /// # Errors
    /// The system refuses the socket or memory.
    pub(crate) fn open(peer: SocketAddr) -> Result<Udp, Error> {
        let device =
            UdpDevice::connect(peer, UdpOptions { loopback_packet_bytes: MAX_SUPER_BYTES, ..UdpOptions::default() });
        let device = device.map_err(Error::system("cannot open a UDP socket"))?;
        let holds = u32::try_from(device.info().receive_buffer_bytes / CHARGED_BYTES).unwrap_or(u32::MAX);
        let window_packets = WINDOW_PACKETS.min(holds).max(8);
        let classes = vec![(512, 256), (2 << 10, 256), (8 << 10, 512), (16 << 10, 64), (64 << 10, LARGE_BUFFERS)];
        let pool = Pool::new(PoolConfig { classes }).map_err(Error::system("cannot allocate buffers"))?;
        Ok(Udp {
            device,
            pool,
            peer,
            window_packets,
            talk: Talk::Silent,
            number: 0,
            resent_before: 0,
            frames: Vec::new(),
            spans: Vec::new(),
            runs: Vec::new(),
        })
    }

    /// Begins to dial.
    pub(crate) fn dial(&mut self, now_ns: u64) {
        self.number = fastrand::u32(1..);
        let hello = Hello {
            nonce: fastrand::u64(..),
            session: self.number,
            packet_bytes: self.device.packet_bytes(self.peer) as u32,
            window_packets: self.window_packets,
        };
        self.talk = Talk::Dialling(Box::new(Dialler::new(hello, now_ns)));
    }

    /// The session, while it stands.
    pub(crate) fn session(&mut self) -> Option<&mut Session<Outgoing, Arrived>> {
        match &mut self.talk {
            Talk::Up(session) => Some(session),
            Talk::Silent | Talk::Dialling(_) => None,
        }
    }

    /// To poll for readability.
    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.device.as_fd()
    }

    /// Packets sent again so far, over all sessions.
    pub(crate) fn resent(&self) -> u64 {
        self.resent_before + if let Talk::Up(session) = &self.talk { session.sender.stats().resent } else { 0 }
    }

    /// An empty super-packet to fill; `None` while no session stands, or when buffers are short.
    pub(crate) fn begin_packet(&mut self) -> Option<SuperPacket<PacketBuffer>> {
        let packet_bytes = self.session()?.packet_bytes();
        if !self.pool.has_free(MAX_SUPER_BYTES, SPARE_BUFFERS) {
            return None;
        }
        Some(SuperPacket::new(PacketBuffer::Own(self.pool.alloc(MAX_SUPER_BYTES)?), packet_bytes))
    }

    /// A few records move to a small buffer, so that they do not hold a large one until they are acknowledged.
    pub(crate) fn shrink(&mut self, packet: SuperPacket<PacketBuffer>) -> SuperPacket<PacketBuffer> {
        let len = packet.len();
        let small = if len <= MAX_SUPER_BYTES / 4 { self.pool.alloc(len) } else { None };
        match small {
            Some(small) => packet.copied_to(PacketBuffer::Own(small)),
            None => packet,
        }
    }

    /// Puts a unit into the session's queue.
    ///
    /// # Errors
    /// The unit, when no session stands or buffers are short.
    pub(crate) fn enqueue(&mut self, unit: Outgoing, of: Option<&Format>) -> Result<(), Outgoing> {
        let Talk::Up(session) = &mut self.talk else { return Err(unit) };
        let fits = |packet: &SuperPacket<PacketBuffer>| {
            let short = packet.stride() <= session.packet_bytes() || packet.packets().len() == 1;
            short && matches!(packet.buffer(), PacketBuffer::Own(_))
        };
        let unit = match unit {
            Outgoing::Again(again) => return self.enqueue_again(again, of),
            // Of a session by shared memory, or of one with longer packets.
            Outgoing::Records { ref packet, .. } if !fits(packet) => {
                return unit.again().map_or(Ok(()), |again| self.enqueue_again(again, of));
            }
            unit => unit,
        };
        let (packets, bytes) = unit.size();
        session.sender.enqueue(unit, packets, bytes, false);
        Ok(())
    }

    /// Packs records anew, for this session's packet size.
    fn enqueue_again(&mut self, mut again: Again, of: Option<&Format>) -> Result<(), Outgoing> {
        while !again.is_done() {
            let Some(mut packet) = self.begin_packet() else { return Err(Outgoing::Again(again)) };
            again.pack(&mut packet, of);
            if packet.is_empty() {
                return Ok(()); // not a record, which cannot be: they were checked before they were packed
            }
            let packet = self.shrink(packet);
            self.enqueue(Outgoing::Records { packet, stream: again.stream, format: again.format }, of)?;
        }
        Ok(())
    }

    /// Bytes queued and unacknowledged.
    pub(crate) fn backlog_bytes(&self) -> u64 {
        if let Talk::Up(session) = &self.talk { session.sender.backlog_bytes() } else { 0 }
    }

    /// Units queued and unacknowledged.
    pub(crate) fn backlog_units(&self) -> usize {
        if let Talk::Up(session) = &self.talk { session.sender.backlog_units() } else { 0 }
    }

    /// Whether everything was acknowledged.
    pub(crate) fn is_settled(&self) -> bool {
        if let Talk::Up(session) = &self.talk { session.sender.is_idle() } else { false }
    }

    /// Takes what has arrived: what it means goes to `heard`, in order.
    ///
    /// # Errors
    /// The network's.
    pub(crate) fn receive(&mut self, now_ns: u64, idler: &mut Idler, heard: &mut Vec<Heard>) -> io::Result<()> {
        let mut frames = std::mem::take(&mut self.frames);
        let received = self.device.receive(&mut self.pool, &mut frames, FRAMES);
        for frame in frames.drain(..) {
            idler.arrived(now_ns, frame.len);
            self.take_frame(frame, now_ns, heard);
        }
        self.frames = frames;
        received.map(drop)
    }

    fn take_frame(&mut self, frame: Frame, now_ns: u64, heard: &mut Vec<Heard>) {
        let Frame { buffer, len, stride, .. } = frame;
        let (mut spans, mut runs) = (std::mem::take(&mut self.spans), std::mem::take(&mut self.runs));
        // What is not a packet of ours is dropped; the daemon sends again what got lost that way.
        walk(&buffer[..len], stride, &mut spans, &mut runs, |_| {});
        let buffer = buffer.freeze();
        for run in &runs {
            let payload = &buffer[spans[run.first].range()];
            self.take_run(run, payload, &spans, &buffer, now_ns, heard);
        }
        (self.spans, self.runs) = (spans, runs);
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
        if run.header.session != self.number {
            return;
        }
        match &mut self.talk {
            Talk::Dialling(dialler) => {
                if let Some(welcome) = dialler.answered(&run.header, payload) {
                    self.come_up(&welcome, now_ns);
                    heard.push(Heard::Welcome);
                } else if run.header.kind == Kind::Close {
                    heard.push(Heard::Close(Close::decode(payload)));
                }
            }
            Talk::Up(session) => {
                session.heard(now_ns);
                match run.header.kind {
                    Kind::Data | Kind::Control | Kind::Message => {
                        let spans = run.spans(spans).to_vec();
                        let arrived = Arrived { bytes: Bytes::Own(buffer.clone()), header: run.header, spans };
                        let mut ready = Vec::new();
                        let first = run.header.seq;
                        session.receiver.arrive(first, run.packets, arrived, now_ns, |a, skip| ready.push((a, skip)));
                        let end_seq = session.receiver.next_seq();
                        for (mut arrived, skip) in ready {
                            arrived.spans.drain(..arrived.spans.len().min(skip as usize));
                            heard.push(Heard::Packets { arrived, end_seq });
                        }
                    }
                    // A malformed ack is dropped; the next one tells the same.
                    Kind::Ack => drop(session.on_ack(payload, now_ns, drop)),
                    Kind::Ping => session.receiver.ack_soon(),
                    Kind::Close => heard.push(Heard::Close(Close::decode(payload))),
                    Kind::Hello | Kind::Welcome => {}
                }
            }
            Talk::Silent => {}
        }
    }

    fn come_up(&mut self, welcome: &Welcome, now_ns: u64) {
        let limits = Limits { window_packets: self.window_packets, idle_timeout_ns: IDLE_TIMEOUT_NS };
        let session = Session::new(welcome.session, welcome.packet_bytes, welcome.window_packets, limits, now_ns);
        self.talk = Talk::Up(Box::new(session));
    }

    /// Lets time pass. Returns whether the daemon is still believed to be there.
    pub(crate) fn on_timer(&mut self, now_ns: u64) -> bool {
        self.session().is_none_or(|session| session.on_timer(now_ns))
    }

    /// Sends what is due: hellos, units, acks and pings.
    ///
    /// # Errors
    /// The network's.
    pub(crate) fn transmit(&mut self, now_ns: u64) -> io::Result<()> {
        match &mut self.talk {
            Talk::Silent => {}
            Talk::Dialling(dialler) => {
                if let Some(packet) = dialler.poll(now_ns) {
                    // A full device loses it; it is repeated.
                    let _ = self.device.send(self.peer, &[IoSlice::new(&packet)], packet.len())?;
                }
            }
            Talk::Up(session) => {
                let to = session.peer_session();
                while let Some(next) = session.sender.poll() {
                    match next.payload.transmit(&mut self.device, self.peer, to, next.first_seq, next.packets)? {
                        Sent::Done => session.sender.transmitted(now_ns),
                        Sent::Full => break,
                    }
                }
                while let Some(short) = session.poll_short(now_ns) {
                    let bytes = short.bytes();
                    // A full device loses it; acks and pings are repeated when they must be.
                    let _ = self.device.send(self.peer, &[IoSlice::new(bytes)], bytes.len())?;
                }
            }
        }
        Ok(())
    }

    /// When something is due by itself, in ns.
    pub(crate) fn due_ns(&self) -> u64 {
        match &self.talk {
            Talk::Silent => u64::MAX,
            Talk::Dialling(dialler) => dialler.next_ns(),
            Talk::Up(session) => session.deadline_ns(),
        }
    }

    /// The session is lost: what was not acknowledged.
    pub(crate) fn lose(&mut self) -> Vec<Outgoing> {
        self.resent_before = self.resent();
        let mut left = Vec::new();
        if let Talk::Up(session) = &mut self.talk {
            left.extend(session.sender.take_unacknowledged());
        }
        self.talk = Talk::Silent;
        left
    }

    /// Tells the daemon that the session is over; not repeated, its idle time-out is the safety net.
    pub(crate) fn say_close(&mut self) {
        if let Talk::Up(session) = &self.talk {
            let packet = Close { again: false, reason: "done".to_owned() }.packet(session.peer_session());
            // If this is lost, the daemon finds out by its time-out.
            let _ = self.device.send(self.peer, &[IoSlice::new(&packet)], packet.len());
        }
        self.talk = Talk::Silent;
    }
}
