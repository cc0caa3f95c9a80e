//! One execution context on a communication core: all it owns, and its loop.
//!
//! A turn is: dock (take frames), transport and classification and handlers (in [`crate::dispatch`]), outputs (flush, send,
//! acks), timers, requests of the rest of the daemon. Between turns in which nothing came, it naps while traffic is
//! heavy, so that the next turn finds a fuller dock, and else sleeps in epoll over its socket and its doorbell.

use crate::clock::Clock;
use crate::config::ContextConfig;
use crate::counters::{Counters, Drop};
use crate::handle::Command;
use crate::output::{Arrived, Payload};
use crate::peers::Peers;
use crate::streams::Streams;
use crate::subscriptions::Subscription;
use crossdock_device::{Device, Frame, Idle, Idler, Poller, Sent, nap};
use crossdock_mailbox::{Batch, Pool, Selection};
use crossdock_transport::handshake::{Close, Hello, Welcome};
use crossdock_transport::header::{PayloadSpan, Run};
use crossdock_transport::session::SessionError;
use crossdock_transport::{ControlMessage, Header, Limits, MAX_SUPER_BYTES, Notice, Session};
use slab::Slab;
use std::collections::BTreeSet;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

/// Frames taken in one turn at most: enough to share a turn's costs, few enough to stay in the cache.
const FRAMES_A_TURN: usize = 8;
/// The socket's key in the poller.
pub(crate) const SOCKET: u64 = 0;
/// The longest sleep; requests ring the doorbell, so this only bounds the error of a forgotten timer.
const LONGEST_SLEEP_NS: u64 = 5_000_000_000;
/// A client that takes only smaller packets would have the daemon send one for each record. In bytes, header included.
const MIN_PACKET_BYTES: u32 = 512;
/// Control messages that may wait for a peer, in bytes: whoever asks on and on without taking the answers is sent away.
const MAX_CONTROL_BYTES: usize = 1 << 20;
/// Large buffers that must be free before data is taken in, besides two for each subscription; at
/// most a quarter of all.
const SPARE_BUFFERS: usize = 16;

/// What a turn uses and the next one uses again, so that turns allocate nothing.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) frames: Vec<Frame>,
    pub(crate) spans: Vec<PayloadSpan>,
    pub(crate) runs: Vec<Run>,
    pub(crate) ready: Vec<(Arrived, usize)>,
    pub(crate) dirty: Vec<usize>,
    pub(crate) whole: Vec<usize>,
    pub(crate) checked: Vec<usize>,
    pub(crate) selection: Selection,
    pub(crate) spare: Vec<Batch>,
    /// Keys of subscriptions with an open super-packet.
    pub(crate) opened: Vec<usize>,
    /// Batches that acks released, until they are taken apart.
    pub(crate) released: Vec<Payload>,
}

/// A context and everything it owns.
pub(crate) struct Context {
    pub(crate) config: ContextConfig,
    pub(crate) device: Box<dyn Device>,
    pub(crate) pool: Pool,
    pub(crate) peers: Peers,
    pub(crate) streams: Streams,
    pub(crate) subscriptions: Slab<Subscription>,
    pub(crate) next_subscription: u64,
    pub(crate) counters: Counters,
    pub(crate) scratch: Scratch,
    pub(crate) now_ns: u64,
    /// Bound of a peer's queue now, in bytes: the configured one, or its share of the buffers if that is less.
    pub(crate) queue_bytes: u64,
    clock: Clock,
    poller: Poller,
    commands: Receiver<Command>,
    /// (deadline in ns, peer's key): one entry a peer, at `armed_ns`; it may come up too early, never too late.
    timers: BTreeSet<(u64, usize)>,
    /// Buffers of the largest class.
    pub(crate) large_buffers: usize,
    idler: Idler,
    /// The device took nothing more; what is left goes with the next turn.
    held_up: bool,
}

impl Context {
    pub(crate) fn new(
        config: ContextConfig,
        device: Box<dyn Device>,
        pool: Pool,
        poller: Poller,
        commands: Receiver<Command>,
    ) -> Context {
        let queue_bytes = config.queue_bytes;
        let large_buffers = pool.stats().classes.last().map_or(0, |class| class.count);
        let idler = Idler::new(u64::from(config.spin_us) * 1000);
        Context {
            config,
            device,
            pool,
            peers: Peers::default(),
            streams: Streams::default(),
            subscriptions: Slab::new(),
            next_subscription: 1,
            counters: Counters::default(),
            scratch: Scratch::default(),
            now_ns: 0,
            queue_bytes,
            clock: Clock::start(),
            poller,
            commands,
            timers: BTreeSet::new(),
            large_buffers,
            idler,
            held_up: false,
        }
    }

    /// The loop, until it is told to stop or its handles are gone.
    pub(crate) fn run(mut self) {
        loop {
            self.now_ns = self.clock.now_ns();
            let frames = self.dock();
            self.flush_opened(self.idler.is_heavy(self.now_ns));
            self.run_timers();
            self.service_peers();
            if !self.take_commands() {
                break;
            }
            self.counters.turns += 1;
            self.counters.busy_turns += u64::from(frames > 0);
            // A dock that was not full has nothing more now; should it have, the poller says so at once.
            if frames < FRAMES_A_TURN {
                self.idle();
            }
        }
        self.say_goodbye();
    }

    /// Takes what has arrived.
    fn dock(&mut self) -> usize {
        let mut frames = std::mem::take(&mut self.scratch.frames);
        // An error here is the network's word on an earlier send; the device counts it and stays usable.
        let count = self.device.receive(&mut self.pool, &mut frames, FRAMES_A_TURN).unwrap_or(0);
        for frame in frames.drain(..) {
            self.idler.arrived(self.now_ns, frame.len);
            self.take_frame(frame);
        }
        self.scratch.frames = frames;
        while let Some(addr) = self.device.refused() {
            if let Some(key) = self.peers.at(addr).filter(|_| addr.ip().is_loopback()) {
                // The process is gone, and its socket with it: its queue need not hold anybody up until its time-out.
                self.remove_peer(key, None);
            }
        }
        count
    }

    /// Nothing more is there: nap while traffic is heavy, spin while messages follow one another closely, else sleep until
    /// something comes or is due.
    fn idle(&mut self) {
        match if self.held_up { Idle::Nap } else { self.idler.choose(self.now_ns) } {
            Idle::Nap => nap(Idler::NAP),
            // Others may need this core to send what is waited for.
            Idle::Spin => std::thread::yield_now(),
            Idle::Sleep => {
                let due_ns = self.timers.first().map_or(u64::MAX, |(at, _)| *at);
                let sleep_ns = due_ns.saturating_sub(self.now_ns).min(LONGEST_SLEEP_NS);
                self.counters.sleeps += 1;
                // A failed wait (a signal) is a short one.
                let ready = self.poller.wait(Some(Duration::from_nanos(sleep_ns)));
                let by_arrival = ready.is_ok_and(|ready| ready.contains(&SOCKET));
                self.idler.slept(self.now_ns, self.clock.now_ns(), by_arrival);
            }
        }
    }

    /// Whether so few buffers are free that data is better sent again later.
    #[inline]
    pub(crate) fn is_short_of_buffers(&mut self) -> bool {
        let needed = (SPARE_BUFFERS + 2 * self.subscriptions.len()).min(self.large_buffers / 4);
        !self.pool.has_free(MAX_SUPER_BYTES, needed)
    }

    /// A client greets: a new session, or the same answer as before.
    pub(crate) fn take_hello(&mut self, payload: &[u8], from: SocketAddr) {
        let Some(hello) = Hello::decode(payload).ok().filter(|h| h.packet_bytes >= MIN_PACKET_BYTES) else {
            self.counters.drop(Drop::PacketPayload, 1);
            return;
        };
        let window_packets = self.config.window_packets;
        if let Some(known) = self.peers.greeted(from, hello.nonce) {
            let (session, packet_bytes) = (known.number, known.session.packet_bytes() as u32);
            let welcome = Welcome { nonce: hello.nonce, session, packet_bytes, window_packets };
            self.send_now(from, &welcome.packet(hello.session));
            return;
        }
        if let Some(old) = self.peers.at(from) {
            // One socket has one session: its client has begun anew, and will never speak in the old one.
            self.remove_peer(old, None);
        }
        if self.peers.len() >= self.config.max_sessions as usize {
            self.counters.drop(Drop::SessionLimit, 1);
            let reason = format!(
                "the daemon has all of its {} sessions (`max_sessions` in [context] of its configuration) in use",
                self.config.max_sessions
            );
            self.send_now(from, &Close { again: false, reason }.packet(hello.session));
            return;
        }
        let path = self.config.packet_bytes.unwrap_or(u32::MAX).min(self.device.packet_bytes(from) as u32);
        let packet_bytes = hello.packet_bytes.min(path) & !7;
        let limits = Limits { window_packets, idle_timeout_ns: u64::from(self.config.idle_timeout_ms) * 1_000_000 };
        let session = Session::new(hello.session, packet_bytes, hello.window_packets, limits, self.now_ns);
        let key = self.peers.insert(from, hello.nonce, session);
        self.peers.touch(key);
        let session = self.peers.get(key).map_or(0, |p| p.number);
        let welcome = Welcome { nonce: hello.nonce, session, packet_bytes, window_packets };
        self.send_now(from, &welcome.packet(hello.session));
    }

    /// An ack: what it releases makes room.
    pub(crate) fn take_ack(&mut self, header: &Header, payload: &[u8], from: SocketAddr) {
        let Some(key) = self.peers.find(header.session, from) else {
            self.counters.drop(Drop::UnknownSession, 1);
            return;
        };
        let Some(peer) = self.peers.get_mut(key) else { return };
        peer.session.heard(self.now_ns);
        let mut released = std::mem::take(&mut self.scratch.released);
        match peer.session.on_ack(payload, self.now_ns, |payload| released.push(payload)) {
            Ok(()) => {}
            Err(SessionError::Packet(_)) => self.counters.drop(Drop::PacketPayload, 1),
            Err(SessionError::Ack(_)) => self.counters.drop(Drop::AckUnsent, 1),
        }
        for payload in released.drain(..) {
            match payload {
                Payload::Whole { batch, .. } => {
                    if let Some(batch) = std::rc::Rc::into_inner(batch) {
                        self.recycle(batch);
                    }
                }
                Payload::Control(message) => self.peers.taken(key, message.len()),
                Payload::Packed { .. } => {}
            }
        }
        self.scratch.released = released;
        self.peers.touch(key);
        self.check_peer_queue(key);
    }

    /// Sends, acknowledges and re-arms the timer of every peer that was touched this turn.
    fn service_peers(&mut self) {
        self.held_up = false;
        let mut dirty = std::mem::take(&mut self.scratch.dirty);
        self.peers.take_dirty(&mut dirty);
        for &key in &dirty {
            if self.peers.get(key).is_some_and(|p| p.control_bytes > MAX_CONTROL_BYTES) {
                let reason = format!("{MAX_CONTROL_BYTES} bytes of answers wait for you, and you take none");
                self.remove_peer(key, Some(Close { again: false, reason }));
            } else if !self.service_peer(key) {
                self.held_up = true;
                self.peers.touch(key);
            }
        }
        self.scratch.dirty = dirty;
    }

    /// Sends what one peer is owed; whether the device took it all.
    fn service_peer(&mut self, key: usize) -> bool {
        let Some(peer) = self.peers.get_mut(key) else { return true };
        let (addr, to, now_ns) = (peer.addr, peer.session.peer_session(), self.now_ns);
        let mut all = true;
        while let Some(transmit) = peer.session.sender.poll() {
            let count = u64::from(transmit.packets.end - transmit.packets.start);
            let resend = transmit.resend;
            match transmit.payload.transmit(&mut *self.device, addr, to, transmit.first_seq, transmit.packets) {
                Ok(Sent::Done) => {}
                Ok(Sent::Full) => {
                    all = false;
                    break;
                }
                // Refused by the network: as good as lost on the way, so the time-out sends it again.
                Err(_) => self.counters.drop(Drop::SendRefused, 1),
            }
            peer.session.sender.transmitted(now_ns);
            self.counters.packets_out += if resend { 0 } else { count };
            self.counters.packets_resent += if resend { count } else { 0 };
        }
        while let Some(short) = peer.session.poll_short(now_ns) {
            let bytes = short.bytes();
            if !matches!(self.device.send(addr, &[IoSlice::new(bytes)], bytes.len()), Ok(Sent::Done)) {
                self.counters.drop(Drop::SendRefused, 1);
            }
        }
        let deadline = peer.session.deadline_ns();
        if deadline < peer.armed_ns {
            self.timers.remove(&(peer.armed_ns, key));
            self.timers.insert((deadline, key));
            peer.armed_ns = deadline;
        }
        all
    }

    /// A packet outside any session's sequence; if the device is full, it is as good as lost.
    fn send_now(&mut self, to: SocketAddr, packet: &[u8]) {
        if !matches!(self.device.send(to, &[IoSlice::new(packet)], packet.len()), Ok(Sent::Done)) {
            self.counters.drop(Drop::SendRefused, 1);
        }
    }

    /// Deadlines that have passed: retransmissions, acks, pings, peers that are gone.
    fn run_timers(&mut self) {
        while let Some((_, key)) = self.timers.first().copied().filter(|(at, _)| *at <= self.now_ns) {
            self.timers.pop_first();
            let Some(peer) = self.peers.get_mut(key) else { continue };
            peer.armed_ns = u64::MAX;
            if peer.session.on_timer(self.now_ns) {
                self.peers.touch(key);
            } else {
                let reason = format!("nothing was heard of you for {} ms", self.config.idle_timeout_ms);
                self.remove_peer(key, Some(Close { again: true, reason }));
            }
        }
    }

    /// A publisher gets new credit unless a stream of its is held back by a full queue.
    pub(crate) fn grant_credit(&mut self, key: usize) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        let streams = &self.streams;
        let blocked = |p: &crate::peers::Publishing| streams.get(p.stream).is_some_and(|s| s.blocked_by > 0);
        if !peer.publishing.iter().any(blocked) {
            let receiver = &mut peer.session.receiver;
            receiver.consumed_to(receiver.next_seq());
        }
    }

    /// Ends a session: its subscriptions, its publishing, and with a reason, a word to the peer.
    pub(crate) fn remove_peer(&mut self, key: usize, close: Option<Close>) {
        let Some(peer) = self.peers.get(key) else { return };
        let (addr, to) = (peer.addr, peer.session.peer_session());
        for subscription in peer.subscriptions.clone() {
            self.remove_subscription(subscription);
        }
        let Some(peer) = self.peers.remove(key) else { return };
        self.timers.remove(&(peer.armed_ns, key));
        for publishing in &peer.publishing {
            self.end_publishing(key, publishing.stream);
        }
        if let Some(close) = close {
            self.send_now(addr, &close.packet(to));
        }
    }

    /// A peer no longer publishes a stream: its subscribers are told, after the records that it sent.
    pub(crate) fn end_publishing(&mut self, peer: usize, stream: usize) {
        let Some(stream) = self.streams.get_mut(stream) else { return };
        let before = stream.publishers.len();
        stream.publishers.retain(|&key| key != peer);
        if stream.publishers.len() == before {
            return;
        }
        let publishers = stream.publishers.len() as u32;
        for key in stream.subscriptions.clone() {
            self.flush_subscription(key);
            self.tell_dropped(key, true);
            let Some(subscription) = self.subscriptions.get(key) else { continue };
            let notice = Notice::StreamEnded { subscription: subscription.number, publishers };
            let peer = subscription.peer;
            self.peers.tell(peer, &ControlMessage::Notice(notice));
        }
    }

    /// Carries out what the handles asked; `false` when the context should stop.
    fn take_commands(&mut self) -> bool {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return false,
                Ok(command) => self.answer(command),
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    /// Tells every peer that the daemon goes, so that none has to find out by waiting.
    fn say_goodbye(&mut self) {
        let keys: Vec<usize> = self.peers.iter().map(|(key, _)| key).collect();
        self.flush_opened(false);
        self.service_peers();
        for key in keys {
            self.remove_peer(key, Some(Close { again: true, reason: "the daemon is shutting down".to_owned() }));
        }
    }
}
