//! One execution context on a communication core: its state and its loop.
//!
//! A turn takes frames from the device, runs transport, classification and handlers (in [`crate::dispatch`]), takes
//! messages from attached clients' rings (in [`crate::rings`]), sends outputs (flush, send, acks), and serves timers
//! and requests of the rest of the daemon. After a turn without input the context naps while traffic is heavy, so that
//! the next turn finds more frames, and otherwise sleeps in epoll on its socket, its doorbell and those of its clients.

use crate::admission::{Admission, QueryCostModel};
use crate::catalog::thread::CatalogHandle;
use crate::catalog::{Catalog, Snapshot};
use crate::clock::{Clock, TurnClock};
use crate::config::{ContextConfig, MorphConfig};
use crate::counters::Counters;
use crate::graph::Graph;
use crate::graph::bounds::{HoldLimits, session_batches};
use crate::graph::build::Workspace;
use crate::inbox::{Command, Inbox};
use crate::io::{HandOver, Handed, IoPlace};
use crate::managers::request::RequestQueue;
use crate::morph::Morph;
use crate::net::carrier::{Carrier, Wire};
use crate::net::memory::Attached;
use crate::net::payload::Payload;
use crate::net::peers::{PeerRef, Peers, Publishing};
use crate::net::sides::Remote;
use crate::planner::{Panicked, Planner};
use crate::services::Services;
use crate::streams::Streams;
use crate::subscriptions::Subscription;
use crate::tasks::Tasks;
use crossdock_device::{Device, Frame, Idle, Idler, Poller, nap};
use crossdock_format::FormatId;
use crossdock_mailbox::Pool;
use crossdock_mailbox::host::{HostInterface, Owner};
use crossdock_transport::control::Refusal;
use crossdock_transport::handshake::Close;
use crossdock_transport::header::{PayloadSpan, Run};
use crossdock_transport::{ControlMessage, MAX_SUPER_BYTES, TrafficClass};
use slab::Slab;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex};

/// Frames taken in one turn at most: enough to share a turn's costs, few enough to stay in the cache.
const FRAMES_A_TURN: usize = 8;
/// The socket's key in the poller.
pub(crate) const SOCKET: u64 = 0;
/// The longest sleep; requests ring the doorbell, so this only bounds the error of a forgotten timer.
const LONGEST_SLEEP_NS: u64 = 5_000_000_000;
/// The longest sleep while batches wait for room in a queue to another context.
const FULL_SLEEP_NS: u64 = 50_000;
/// Control messages that may wait for a peer, in bytes: a peer that sends requests without taking the answers is
/// disconnected.
const MAX_CONTROL_BYTES: u64 = 1 << 20;
/// Large buffers that must be free before data is taken in, besides two for each subscription; at
/// most a quarter of all.
pub(crate) const SPARE_BUFFERS: usize = 16;

/// Scratch memory that each turn reuses, so that turns allocate nothing.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) frames: Vec<Frame>,
    pub(crate) spans: Vec<PayloadSpan>,
    pub(crate) runs: Vec<Run>,
    pub(crate) dirty: Vec<usize>,
    /// Keys of subscriptions with an open super-packet.
    pub(crate) opened: Vec<usize>,
    /// Batches that acks released, until they are taken apart.
    pub(crate) released: Vec<Payload>,
    /// Subscriptions that take an attached publisher's packet by reference.
    pub(crate) in_place: Vec<usize>,
    /// Numbers of clients that are gone.
    pub(crate) ended: Vec<u32>,
}

/// The parts of a context, all made before its thread.
pub(crate) struct Parts {
    pub(crate) config: ContextConfig,
    /// Its name.
    pub(crate) name: String,
    /// Which of the I/O contexts it is, and the inboxes of all of them.
    pub(crate) place: IoPlace,
    pub(crate) inboxes: Arc<[Inbox]>,
    pub(crate) hand_over: HandOver,
    /// The same for all contexts.
    pub(crate) clock: Clock,
    pub(crate) device: Box<dyn Device>,
    pub(crate) pool: Pool,
    /// Buffers between the parts of conversion chains.
    pub(crate) morph_pool: Pool,
    pub(crate) poller: Poller,
    pub(crate) inbox: Inbox,
    pub(crate) commands: Receiver<Command>,
    pub(crate) host: HostInterface,
    pub(crate) services: Services,
    /// The nodes that run here, and the memory in which they run.
    pub(crate) graph: Graph,
    pub(crate) workspace: Workspace,
    /// For reports to the managers.
    pub(crate) news: Arc<RequestQueue>,
    pub(crate) planner: Planner,
    pub(crate) catalog: CatalogHandle,
}

/// What a turn has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Nothing,
    Something,
    /// Something, and more may be there already.
    More,
}

/// Something to be done once a stream has formats at this context.
pub(crate) struct AwaitedFormats {
    /// The stream's key.
    pub(crate) stream: usize,
    pub(crate) formats: Vec<FormatId>,
    /// Whether its routes are to be planned, too.
    pub(crate) routes: bool,
    pub(crate) then: Box<dyn FnOnce(&mut Context)>,
}

/// What goes on with the outcome of a request.
pub(crate) type Then = Box<dyn FnOnce(&mut Context, Result<(), Refusal>) + Send>;

/// Something to be done once all that is published of a stream comes to this context, or is refused.
pub(crate) struct AwaitedDelivery {
    /// The stream's key.
    pub(crate) stream: usize,
    pub(crate) then: Then,
}

/// The parts of a context that a peer's carrier needs, beside all others.
macro_rules! wire {
    ($context:expr) => {
        crate::net::carrier::Wire {
            pool: &mut $context.pool,
            host: &mut $context.host,
            poller: &mut $context.poller,
            device: &mut *$context.device,
            counters: &mut $context.counters,
            now_ns: $context.now_ns,
        }
    };
}
pub(crate) use wire;

/// A context and everything it owns.
pub(crate) struct Context {
    pub(crate) config: ContextConfig,
    pub(crate) name: String,
    pub(crate) place: IoPlace,
    pub(crate) inboxes: Arc<[Inbox]>,
    pub(crate) hand_over: HandOver,
    pub(crate) device: Box<dyn Device>,
    pub(crate) pool: Pool,
    pub(crate) peers: Peers,
    pub(crate) streams: Streams,
    pub(crate) subscriptions: Slab<Subscription>,
    pub(crate) next_subscription: u64,
    pub(crate) counters: Counters,
    pub(crate) scratch: Scratch,
    pub(crate) now_ns: u64,
    /// When the context last checked for input, or woke: input that it finds now arrived after that.
    looked_ns: u64,
    /// The same for the input that it is working on.
    pub(crate) since_ns: u64,
    /// Bound of a peer's queue now, in bytes: the configured one, or its share of the buffers if that is less.
    pub(crate) queue_bytes: u64,
    pub(crate) host: HostInterface,
    pub(crate) tasks: Tasks,
    pub(crate) services: Services,
    pub(crate) remote: Remote,
    pub(crate) morph: Morph,
    pub(crate) graph: Graph,
    pub(crate) workspace: Workspace,
    pub(crate) news: Arc<RequestQueue>,
    pub(crate) planner: Planner,
    pub(crate) catalog: CatalogHandle,
    /// The catalog, as far as its changes are taken in here.
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) awaited: Vec<AwaitedFormats>,
    pub(crate) awaited_deliveries: Vec<AwaitedDelivery>,
    pub(crate) admission: Admission,
    /// Attached peers that are served each turn until they have caught up.
    pub(crate) stragglers: Vec<usize>,
    /// When the rings last brought something, and when the ends of clients were last looked for.
    pub(crate) rings_ns: u64,
    pub(crate) ends_ns: u64,
    /// Whether the context polls the rings without a pause while messages come.
    pub(crate) spins_on_rings: bool,
    pub(crate) clock: Clock,
    pub(crate) poller: Poller,
    pub(crate) inbox: Inbox,
    commands: Receiver<Command>,
    /// Whether it takes packets and clients: not before the kept handlers are restored.
    is_open: bool,
    /// Clients that came before that.
    early: Vec<Command>,
    /// (deadline in ns, peer's key): one entry a session, at `armed_ns`; it may come up too early, never too late.
    pub(crate) timers: BTreeSet<(u64, usize)>,
    /// Buffers of the largest class.
    pub(crate) large_buffers: usize,
    pub(crate) idler: Idler,
    /// The device took no more packets; the remaining ones are sent in the next turn.
    held_up: bool,
}

impl Context {
    pub(crate) fn new(parts: Parts) -> Context {
        let config = parts.config;
        let large_buffers = parts.pool.stats().classes.last().map_or(0, |class| class.count);
        let mut graph = parts.graph;
        graph.limit_sessions(session_batches(large_buffers, parts.workspace.large_buffers));
        let MorphConfig { hold_bytes, hold_total_bytes, hold_ms, .. } = &config.morph;
        let longest_ns = u64::from(*hold_ms) * 1_000_000;
        graph.limit_holding(HoldLimits { bytes: *hold_bytes, total_bytes: *hold_total_bytes, longest_ns });
        Context {
            name: parts.name,
            place: parts.place,
            inboxes: parts.inboxes,
            hand_over: parts.hand_over,
            device: parts.device,
            pool: parts.pool,
            peers: Peers::new(parts.place),
            streams: Streams::default(),
            subscriptions: Slab::new(),
            next_subscription: 1 + parts.place.index as u64,
            counters: Counters::default(),
            scratch: Scratch::default(),
            now_ns: 0,
            looked_ns: 0,
            since_ns: 0,
            queue_bytes: config.queue_bytes,
            host: parts.host,
            tasks: Tasks::new(),
            services: parts.services,
            remote: Remote::default(),
            morph: Morph { between: Arc::new(Mutex::new(parts.morph_pool)), stale: BTreeSet::new() },
            graph,
            workspace: parts.workspace,
            news: parts.news,
            planner: parts.planner,
            catalog: parts.catalog,
            snapshot: Arc::default(),
            awaited: Vec::new(),
            awaited_deliveries: Vec::new(),
            admission: Admission::default(),
            stragglers: Vec::new(),
            rings_ns: 0,
            ends_ns: 0,
            spins_on_rings: config.spin_us > 0,
            clock: parts.clock,
            poller: parts.poller,
            inbox: parts.inbox,
            commands: parts.commands,
            is_open: false,
            early: Vec::new(),
            timers: BTreeSet::new(),
            large_buffers,
            idler: Idler::new(u64::from(config.spin_us) * 1000),
            held_up: false,
            config,
        }
    }

    /// The loop, until a stop command or until its handles are gone: four steps a turn, each of them bounded.
    pub(crate) fn run(mut self) {
        let mut turn_clock = TurnClock::start(self.clock.now_ns());
        while self.maintain(&mut turn_clock) {
            let came = self.ingress();
            // All that keeps the network going is done before handlers work.
            self.egress();
            let more = self.work();
            self.note_turn(came != Came::Nothing || more, &mut turn_clock);
            if came != Came::More && !more && self.morph.stale.is_empty() {
                self.idle();
            }
        }
        self.say_goodbye();
    }

    /// Begins a turn: the time, the timers, the commands of the rest of the daemon, clients that have gone. `false` when the
    /// context should stop.
    fn maintain(&mut self, turn_clock: &mut TurnClock) -> bool {
        self.now_ns = self.clock.now_ns();
        self.graph.note_away(self.now_ns, turn_clock.begin(self.now_ns));
        self.since_ns = std::mem::replace(&mut self.looked_ns, self.now_ns);
        self.run_timers();
        let goes_on = self.take_commands();
        self.notice_ends();
        goes_on
    }

    /// Takes what has come: frames, messages of attached clients, answers of services; and gives it to the nodes that read it.
    fn ingress(&mut self) -> Came {
        let (frames, taken) = (self.take_frames(), self.host.taken());
        let is_full = self.take_rings();
        self.look_after_stragglers();
        self.services.take_answers(&mut wire!(self));
        self.serve_remote();
        self.look_after_waiting();
        self.serve_sessions();
        // A socket that was not full has nothing more now; should it have, the poller says so at once.
        match frames {
            FRAMES_A_TURN.. => Came::More,
            _ if is_full => Came::More,
            0 if self.host.taken() == taken => Came::Nothing,
            _ => Came::Something,
        }
    }

    /// Sends what is ready for the peers.
    fn egress(&mut self) {
        self.flush_opened(self.idler.is_heavy(self.now_ns));
        self.service_peers();
    }

    /// Lets handlers work for a slice, and sends what came of it. Whether there is more to do at once.
    fn work(&mut self) -> bool {
        let more = self.serve_handlers();
        self.host.collect_dropped();
        self.host.end_turn();
        more
    }

    /// Takes packets and clients from now on.
    ///
    /// # Errors
    /// The kernel's: the socket cannot be watched.
    pub(crate) fn open(&mut self) -> std::io::Result<()> {
        if std::mem::replace(&mut self.is_open, true) {
            return Ok(());
        }
        // Not before: packets that nobody takes would keep the context from sleeping.
        self.device.as_fd().map_or(Ok(()), |fd| self.poller.add(fd, SOCKET))?;
        std::mem::take(&mut self.early).into_iter().for_each(|command| self.carry_out_command(command));
        Ok(())
    }

    /// Makes a request to the catalog, and then runs a function here with the answer. What the request changed is taken
    /// in here before.
    pub(crate) fn ask_catalog<T: Send + 'static>(
        &self,
        request: impl FnOnce(&mut Catalog) -> T + Send + 'static,
        then: impl FnOnce(&mut Context, T) + Send + 'static,
    ) {
        let inbox = self.inbox.clone();
        self.catalog.post(move |catalog| {
            let answer = request(catalog);
            catalog.publish_snapshot();
            // The context may have stopped.
            let _ = inbox.post(move |context| then(context, answer));
        });
    }

    /// Has all other I/O contexts do something. It goes through the control thread, since contexts do not wait for each other.
    pub(crate) fn at_others(&self, work: impl Fn(&mut Context) + Clone + Send + 'static) {
        let (inboxes, own) = (Arc::clone(&self.inboxes), self.place.index);
        self.catalog.post(move |_| {
            for (_, inbox) in inboxes.iter().enumerate().filter(|(at, _)| *at != own) {
                let work = work.clone();
                // It may have stopped.
                let _ = inbox.post(move |context| work(context));
            }
        });
    }

    /// Has some work done on one of the planner's threads, and then runs a function here with its outcome.
    pub(crate) fn plan<T: Send + 'static>(
        &self,
        work: impl FnOnce(&QueryCostModel) -> T + Send + 'static,
        then: impl FnOnce(&mut Context, Result<T, Panicked>) + Send + 'static,
    ) {
        let inbox = self.inbox.clone();
        self.planner.give(work, move |outcome| {
            // The context may have stopped.
            let _ = inbox.post(move |context| then(context, outcome));
        });
    }

    /// Carries out one command. The answer is discarded if the caller has gone.
    fn carry_out_command(&mut self, command: Command) {
        match command {
            Command::Run(work) => work(self),
            Command::Attach(prepared, to) => drop(to.send(self.admit(*prepared))),
            Command::Detach(client) => {
                if let Some(key) = self.peers.of_client(client.number()) {
                    self.remove_peer(key, "gone", None);
                }
            }
            Command::Stop => {}
        }
    }

    /// Takes the frames that have arrived, and those that other I/O contexts have handed over.
    fn take_frames(&mut self) -> usize {
        if !self.is_open {
            return 0;
        }
        let mut frames = std::mem::take(&mut self.scratch.frames);
        // An error here is the network's word on an earlier send; the device counts it and stays usable.
        let count = self.device.receive(&mut self.pool, &mut frames, FRAMES_A_TURN).unwrap_or(0);
        for frame in frames.drain(..) {
            self.idler.arrived(self.now_ns, frame.len);
            self.take_frame(frame.into());
        }
        self.scratch.frames = frames;
        let mut handed = 0;
        while handed < FRAMES_A_TURN
            && let Some(next) = self.hand_over.pop()
        {
            match next {
                Handed::Frame(frame) => {
                    self.idler.arrived(self.now_ns, frame.len);
                    self.take_frame(frame);
                }
                Handed::Refused(addr) => self.end_refused(addr),
            }
            handed += 1;
        }
        while let Some(addr) = self.device.refused() {
            // The report may come to another socket than the one that its session's packets come to.
            self.hand_over.refused(addr);
            self.end_refused(addr);
        }
        count.max(handed)
    }

    /// Nobody receives at an address any more. On this machine the process is gone, and its socket with it: its queue need not
    /// block publishers until its timeout.
    fn end_refused(&mut self, addr: SocketAddr) {
        if let Some(key) = self.peers.at(addr).filter(|_| addr.ip().is_loopback()) {
            self.end_session(key, "closed");
        }
    }

    /// Nothing more is there: nap while traffic is heavy, spin while messages follow one another closely, else sleep
    /// until something comes or is due.
    fn idle(&mut self) {
        match if self.held_up { Idle::Nap } else { self.idler.choose(self.now_ns) } {
            Idle::Nap => nap(Idler::NAP),
            // Others may need this core to send what is waited for.
            Idle::Spin => self.idler.spin(self.now_ns),
            Idle::Sleep => {
                let due_ns = self.timers.first().map_or(u64::MAX, |(at, _)| *at).min(self.graph.hold_expires_ns());
                // No doorbell is rung when the queue to another context has room again, or a buffer is free.
                let longest_ns = if self.graph.is_full() { FULL_SLEEP_NS } else { LONGEST_SLEEP_NS };
                let sleep_ns = due_ns.saturating_sub(self.now_ns).min(longest_ns);
                self.counters.sleeps += 1;
                let by_arrival = self.sleep(sleep_ns);
                self.looked_ns = self.clock.now_ns();
                self.idler.slept(self.now_ns, self.looked_ns, by_arrival);
            }
        }
    }

    /// Large buffers that must be free before data is taken in. What is ahead of a hole is kept only while twice as
    /// many are, so that it leaves some to what fills the hole.
    #[inline]
    pub(crate) fn buffers_needed(&self) -> usize {
        (SPARE_BUFFERS + 2 * self.subscriptions.len()).min(self.large_buffers / 4)
    }

    /// Whether so few buffers are free that data is better sent again later.
    #[inline]
    pub(crate) fn is_short_of_buffers(&mut self) -> bool {
        let needed = self.buffers_needed();
        !self.pool.has_free(MAX_SUPER_BYTES, needed)
    }

    /// Sends, acknowledges and re-arms the timer of every peer that was touched this turn.
    pub(crate) fn service_peers(&mut self) {
        self.held_up = false;
        let mut dirty = std::mem::take(&mut self.scratch.dirty);
        self.peers.take_dirty(&mut dirty);
        for &key in &dirty {
            if self.peers.get(key).is_some_and(|p| p.carrier().untaken_control_bytes(&self.host) > MAX_CONTROL_BYTES) {
                let reason = format!("{MAX_CONTROL_BYTES} bytes of replies are unread");
                self.remove_peer(key, "answers_not_taken", Some(Close { again: false, reason }));
            } else if !self.service_link(key) {
                self.held_up = true;
                self.peers.touch(key);
            }
        }
        self.scratch.dirty = dirty;
    }

    /// A publisher gets new credit unless a stream of its is held back by a full queue; an attached one loses it then. The
    /// credit for control depends on no stream.
    pub(crate) fn grant_credit(&mut self, key: usize) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        let graph = &self.graph;
        let is_blocked = |p: &Publishing| graph.is_blocked(p.stream as u32);
        let is_blocked = peer.publishing.iter().any(is_blocked);
        peer.carrier_mut().grant_credit(&mut wire!(self), is_blocked);
    }

    /// Ends a session with its subscriptions and its publishing. If `close` is given, the peer is sent the reason.
    pub(crate) fn remove_peer(&mut self, key: usize, why: &'static str, close: Option<Close>) {
        let Some(peer) = self.peers.get(key) else { return };
        for subscription in peer.subscriptions.clone() {
            self.remove_subscription(subscription);
        }
        self.disarm(key);
        let Some(mut peer) = self.peers.remove(key) else { return };
        self.close_all_remote(key);
        for publishing in &peer.publishing {
            self.end_publishing(key, publishing.stream);
        }
        self.end_conversions(PeerRef { key, serial: peer.serial });
        peer.carrier_mut().end(&mut wire!(self), why, close);
        self.host.disown(Owner::Session(key as u32));
        self.tasks.prune(&self.host);
        self.tell_closed_sides();
    }

    /// A client is gone. It goes on as a publisher, and as nothing else, until the context has had the buffers for what
    /// it put before.
    pub(crate) fn end_gone(&mut self, key: usize) {
        let waits = |attached: &mut Attached| !attached.deferred.is_empty();
        let is_paused = self.peers.get(key).is_some_and(|peer| peer.is_paused);
        if !is_paused && !self.peers.attached_mut(key).is_some_and(waits) {
            return self.remove_peer(key, "gone", None);
        }
        let mut waits_for_routes = false;
        for subscription in self.peers.get(key).map(|peer| peer.subscriptions.clone()).unwrap_or_default() {
            waits_for_routes |= self.accept(subscription).is_some_and(|accept| accept.unrouted.is_some());
            self.remove_subscription(subscription);
        }
        if let Some(attached) = self.peers.attached_mut(key) {
            self.host.client_info(attached.client).iter().for_each(|client| self.counters.gone.add(client));
            attached.leave(&mut self.host, &mut self.poller);
        }
        if waits_for_routes {
            // No answer comes any more.
            self.resume(key);
        }
        self.tasks.prune(&self.host);
        self.tell_closed_sides();
    }

    /// A peer no longer publishes a stream: notifies the subscribers, after the records that it sent.
    pub(crate) fn end_publishing(&mut self, peer: usize, stream_key: usize) {
        let Some(stream) = self.streams.get_mut(stream_key) else { return };
        let before = stream.publishers.len();
        stream.publishers.retain(|&key| key != peer);
        if stream.publishers.len() == before {
            return;
        }
        let (number, publishers) = (stream_key as u32, stream.publishers.len() as u32);
        self.catalog.post(move |catalog| catalog.end_publishing(number));
        // With the last, after all records of the stream, to the subscriptions of the streams derived from it.
        self.graph.arrive_end(number, publishers);
        self.end_published(stream_key);
    }

    /// The carrier of a peer's messages, with what it needs of the context.
    pub(crate) fn carrier(&mut self, key: usize) -> Option<(&mut dyn Carrier, Wire<'_>)> {
        Some((self.peers.get_mut(key)?.carrier_mut(), wire!(self)))
    }

    /// Queues a control message for a peer.
    pub(crate) fn tell(&mut self, key: usize, message: &ControlMessage) {
        self.tell_as(key, message, message.class());
    }

    /// The same for a message of the class given.
    pub(crate) fn tell_as(&mut self, key: usize, message: &ControlMessage, class: TrafficClass) {
        let Some((carrier, mut wire)) = self.carrier(key) else { return };
        carrier.send_control(&mut wire, &message.encode(), class);
        if carrier.is_behind() {
            self.straggle(key);
        }
        self.peers.touch(key);
    }

    /// Carries out the commands of the handles; `false` when the context should stop.
    fn take_commands(&mut self) -> bool {
        let mut taken = false;
        loop {
            match self.commands.try_recv() {
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return false,
                // There is one at most: the thread by which processes attach waits for the answer.
                Ok(command @ Command::Attach(..)) if !self.is_open => self.early.push(command),
                Ok(command) => self.carry_out_command(command),
                Err(TryRecvError::Empty) => break,
            }
            taken = true;
        }
        if taken && (self.peers.is_dirty() || self.has_opened()) {
            // What came of it leaves now: nothing else may come that would take it along.
            self.flush_opened(self.idler.is_heavy(self.now_ns));
            self.service_peers();
        }
        true
    }

    /// Notifies every peer that the daemon stops, so that no peer has to wait for a timeout.
    fn say_goodbye(&mut self) {
        let keys: Vec<usize> = self.peers.iter().map(|(key, _)| key).collect();
        self.flush_opened(false);
        self.service_peers();
        for key in keys {
            let reason = "the daemon is shutting down".to_owned();
            self.remove_peer(key, "shutdown", Some(Close { again: true, reason }));
        }
    }
}
