//! One execution context on a communication core: all it owns, and its loop.
//!
//! A turn is: dock (take frames), transport and classification and handlers (in [`crate::dispatch`]), outputs (flush, send,
//! acks), timers, requests of the rest of the daemon. Between turns in which nothing came, it naps while traffic is
//! heavy, so that the next turn finds a fuller dock, and else sleeps in epoll over its socket and its doorbell.

use crate::clock::Clock;
use crate::config::ContextConfig;
use crate::counters::Counters;
use crate::handle::Command;
use crate::output::{Arrived, Payload};
use crate::peers::{Carrier, Peers};
use crate::streams::Streams;
use crate::subscriptions::Subscription;
use crossdock_device::{Device, Frame, Idle, Idler, Poller, nap};
use crossdock_mailbox::{Batch, Pool, Selection};
use crossdock_transport::handshake::Close;
use crossdock_transport::header::{PayloadSpan, Run};
use crossdock_transport::{ControlMessage, MAX_SUPER_BYTES, Notice};
use slab::Slab;
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

/// Frames taken in one turn at most: enough to share a turn's costs, few enough to stay in the cache.
const FRAMES_A_TURN: usize = 8;
/// The socket's key in the poller.
pub(crate) const SOCKET: u64 = 0;
/// The longest sleep; requests ring the doorbell, so this only bounds the error of a forgotten timer.
const LONGEST_SLEEP_NS: u64 = 5_000_000_000;
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
    /// (deadline in ns, peer's key): one entry a session, at `armed_ns`; it may come up too early, never too late.
    pub(crate) timers: BTreeSet<(u64, usize)>,
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

    /// Sends, acknowledges and re-arms the timer of every peer that was touched this turn.
    fn service_peers(&mut self) {
        self.held_up = false;
        let mut dirty = std::mem::take(&mut self.scratch.dirty);
        self.peers.take_dirty(&mut dirty);
        for &key in &dirty {
            if self.peers.get(key).is_some_and(|p| p.control_bytes > MAX_CONTROL_BYTES) {
                let reason = format!("{MAX_CONTROL_BYTES} bytes of answers wait for you, and you take none");
                self.remove_peer(key, Some(Close { again: false, reason }));
            } else if !self.service_link(key) {
                self.held_up = true;
                self.peers.touch(key);
            }
        }
        self.scratch.dirty = dirty;
    }

    /// A publisher gets new credit unless a stream of its is held back by a full queue.
    pub(crate) fn grant_credit(&mut self, key: usize) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        let streams = &self.streams;
        let blocked = |p: &crate::peers::Publishing| streams.get(p.stream).is_some_and(|s| s.blocked_by > 0);
        if peer.publishing.iter().any(blocked) {
            return;
        }
        match &mut peer.carrier {
            Carrier::Packets(link) => link.session.receiver.consumed_to(link.session.receiver.next_seq()),
        }
    }

    /// Ends a session: its subscriptions, its publishing, and with a reason, a word to the peer.
    pub(crate) fn remove_peer(&mut self, key: usize, close: Option<Close>) {
        let Some(peer) = self.peers.get(key) else { return };
        for subscription in peer.subscriptions.clone() {
            self.remove_subscription(subscription);
        }
        let Some(peer) = self.peers.remove(key) else { return };
        for publishing in &peer.publishing {
            self.end_publishing(key, publishing.stream);
        }
        match peer.carrier {
            Carrier::Packets(link) => self.end_link(key, &link, close),
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
