//! A daemon, its clients, the network between them, and time.

use super::clients::{App, ClientAccess, PublisherApp, Stage, SubscriberApp};
use super::model::{Model, Query};
use super::socket::Wire;
use crate::config::{ContextConfig, ContextKind, ContextSpec, SecurityConfig};
use crate::context::Context;
use crate::failpoint::simulated::{Crashed, Moment, crash_at};
use crate::managers::spec::HandlerSpec;
use crate::starting::simulated::SimulatedDaemon;
use crossdock_device::Device;
use crossdock_device::simulated::{self, Simulated};
use crossdock_nectarine::{PrivateKey, SimulatedDevice};
use crossdock_sim::{Link, Network, Rng};
use crossdock_transport::secure::Authorized;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use tempfile::TempDir;

/// Milliseconds and seconds, in ns.
pub(super) const MS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000_000_000;

/// Turns of a run at most: far beyond what any takes, so that only what never ends meets it.
const MAX_STEPS: u64 = 2_000_000;
/// Bytes that a socket holds.
const SOCKET_BYTES: usize = 1 << 20;
/// A subscriber's queue in the daemon, and the windows of a session, in bytes.
const QUEUE_BYTES: u64 = 128 << 10;
const WINDOW_BYTES: (u32, u32) = (64 << 10, 256 << 10);
/// Sessions at most.
pub(super) const MAX_SESSIONS: u32 = 64;
/// The time that a packet takes the daemon, and a handshake, in ns: about what was measured.
const PACKET_NS: u64 = 2_000;
const HANDSHAKE_NS: u64 = 200_000;
/// The time between two whole checkpoints of a daemon that is `durable`, and how long it waits for subscribers after its start.
const CHECKPOINT_MS: u32 = 20;
const AWAIT_MS: u32 = 30_000;
/// Packets of clients that are remembered for whoever is on the path.
const SEEN: usize = 256;
/// Packets with which sessions begin, and the longest that interfaces take, in bytes.
const PACKET_BYTES: (usize, usize) = (1472, 8952);

/// The keys of a secure world: the daemon's, that of all clients, and that of another peer which the daemon knows.
#[derive(Clone)]
pub(super) struct Keys {
    pub(super) daemon: PrivateKey,
    client: PrivateKey,
    pub(super) other: PrivateKey,
}

/// The kind of a world.
#[derive(Clone, Debug)]
pub(super) struct WorldPlan {
    /// I/O contexts.
    pub(super) contexts: usize,
    /// Whether sessions are secure.
    pub(super) is_secure: bool,
    /// The network, where nothing is wrong with it.
    pub(super) link: Link,
    /// Rounds that the daemon's parts take at once, at most.
    pub(super) rounds: usize,
    /// Whether the daemon has a directory for its state and is `durable`.
    pub(super) is_durable: bool,
    /// One frame in this number comes to another context than its sender's others; 0: none.
    pub(super) strays: u32,
}

/// A node's own clock.
#[derive(Clone, Copy, Debug, Default)]
struct NodeClock {
    /// How far it is ahead of the network's time.
    ahead_ns: u64,
    /// When it was last looked at: it never goes back.
    last_ns: u64,
}

impl NodeClock {
    fn enter(&self, now_ns: u64) {
        simulated::set_now_ns((now_ns + self.ahead_ns).max(self.last_ns));
    }

    fn leave(&mut self) {
        self.last_ns = simulated::now_ns();
    }
}

/// A client.
pub(super) struct Client {
    pub(super) app: App,
    wire: Wire,
    clock: NodeClock,
}

/// All but the daemon: its clients, the network, and time.
pub(super) struct Outside {
    pub(super) network: Network,
    pub(super) rng: Rng,
    pub(super) plan: WorldPlan,
    pub(super) address: SocketAddr,
    /// The daemon's sockets, and the bytes that each of them takes before it is full.
    wires: Vec<Wire>,
    room_bytes: usize,
    /// The daemon's clock.
    clock: NodeClock,
    pub(super) clients: BTreeMap<SocketAddr, Client>,
    pub(super) model: Model,
    pub(super) keys: Option<Keys>,
    /// The bound on what waits for one peer, in bytes.
    most_waiting_bytes: u64,
    /// The last packets of clients, as whoever is on the path sees them.
    pub(super) seen: VecDeque<(SocketAddr, Vec<u8>)>,
    subscribers: usize,
}

/// A daemon, its clients, the network between them, and time.
pub(super) struct World {
    /// Elsewhere during the daemon's turn: there it goes on while a part of the daemon waits.
    outside: Option<Box<Outside>>,
    during_turn: Rc<RefCell<Option<Box<Outside>>>>,
    /// None between a crash and the next start.
    daemon: Option<SimulatedDaemon>,
    config: ContextConfig,
    /// How long it is down after a crash, and when it is started again, in ns.
    pub(super) down_ns: u64,
    restarts_ns: u64,
    pub(super) crashes: u64,
    /// Handshakes that the daemon has computed, and the work of its turns so far, in ns.
    pub(super) handshakes: u64,
    worked_ns: u64,
    /// What the daemon has on disk.
    _state: Option<TempDir>,
    /// The last, so that time is simulated until all else is gone.
    _simulated: Simulated,
}

impl Deref for World {
    type Target = Outside;

    fn deref(&self) -> &Outside {
        self.outside.as_deref().expect("the daemon has no turn")
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Outside {
        self.outside.as_deref_mut().expect("the daemon has no turn")
    }
}

/// A directory for what a daemon keeps: in memory if the machine has such a place, since it is written often.
fn state_directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.expect("a directory")
}

impl World {
    pub(super) fn new(seed: u64, plan: WorldPlan) -> World {
        let simulated = Simulated::begin(seed);
        // The numbers of sessions, nonces and the like.
        fastrand::seed(seed);
        crash_at(None);
        let mut rng = Rng::with_seed(!seed);
        let mut network = Network::new(seed);
        let address = network.node(SOCKET_BYTES);
        let room_bytes = [64 << 10, 256 << 10, 16 << 20][rng.usize(..3)];
        let mut key = || PrivateKey::from_random(std::array::from_fn(|_| rng.u8(..)));
        let keys = plan.is_secure.then(|| Keys { daemon: key(), client: key(), other: key() });
        let state = plan.is_durable.then(state_directory);
        let config = config(&plan, address, (keys.as_ref(), state.as_ref().map(TempDir::path)));
        let outside = Outside {
            network,
            rng,
            plan,
            address,
            wires: Vec::new(),
            room_bytes,
            clock: NodeClock { ahead_ns: 0, last_ns: simulated::now_ns() },
            clients: BTreeMap::new(),
            model: Model::default(),
            keys,
            most_waiting_bytes: QUEUE_BYTES,
            seen: VecDeque::new(),
            subscribers: 0,
        };
        let mut world = World {
            outside: Some(Box::new(outside)),
            during_turn: Rc::default(),
            daemon: None,
            config,
            down_ns: 0,
            restarts_ns: 0,
            crashes: 0,
            handshakes: 0,
            worked_ns: 0,
            _state: state,
            _simulated: simulated,
        };
        world.model.is_durable = world.plan.is_durable;
        world.start();
        world
    }

    /// Starts the daemon, with what it has on disk and nothing else.
    fn start(&mut self) {
        let outside = &mut **self;
        outside.wires = (0..outside.plan.contexts).map(|_| Wire::new(outside.room_bytes)).collect();
        let device = |wire: &Wire| Box::new(wire.device(outside.address, PACKET_BYTES)) as Box<dyn Device>;
        let devices = outside.wires.iter().map(device).collect();
        outside.clock.enter(outside.network.now_ns());
        let during_turn = Rc::clone(&self.during_turn);
        let waits = Rc::new(move || {
            if let Ok(mut during_turn) = during_turn.try_borrow_mut() {
                during_turn.iter_mut().for_each(|outside| outside.go_on_meanwhile());
            }
        });
        let config = self.config.clone();
        let started = self.turn(|| SimulatedDaemon::start(&config, (devices, SOCKET_BYTES as u32), waits));
        let Some(started) = started else { return self.go_down() };
        self.daemon = Some(started.expect("a daemon starts"));
        self.worked_ns = HANDSHAKE_NS * self.handshakes;
        let outside = &mut **self;
        outside.network.wake_at(outside.address, outside.network.now_ns());
    }

    /// A turn of the daemon, during which the rest of the world goes on where a part of the daemon waits. None: it has crashed.
    fn turn<T>(&mut self, turn: impl FnOnce() -> T) -> Option<T> {
        self.during_turn.replace(self.outside.take());
        let outcome = catch_unwind(AssertUnwindSafe(turn));
        self.outside = self.during_turn.take();
        self.clock.leave();
        match outcome {
            Ok(outcome) => Some(outcome),
            Err(panic) if panic.is::<Crashed>() => None,
            Err(panic) => resume_unwind(panic),
        }
    }

    /// The daemon crashes now, or at a later moment.
    pub(super) fn crash(&mut self, moment: Option<(Moment, u32)>, down_ns: u64) {
        self.down_ns = down_ns;
        crash_at(moment);
        if moment.is_none() && self.daemon.take().is_some() {
            self.go_down();
        }
    }

    /// The daemon has crashed: its memory and its sockets are gone, and so is what was to be written. What it has sent is under way.
    fn go_down(&mut self) {
        SimulatedDaemon::forget();
        self.send_of_daemon();
        self.crashes += 1;
        self.model.crash();
        self.restarts_ns = self.network.now_ns() + self.down_ns;
        let (address, restarts_ns) = (self.address, self.restarts_ns);
        self.network.wake_at(address, restarts_ns);
    }

    /// Whether the daemon is there.
    pub(super) fn is_up(&self) -> bool {
        self.daemon.is_some()
    }

    /// Deploys these handlers.
    pub(super) fn deploy(&mut self, handlers: Vec<HandlerSpec>) {
        let mut daemon = self.daemon.take().expect("it is there");
        self.turn(|| daemon.deploy(handlers)).expect("it does not crash");
        self.daemon = Some(daemon);
    }

    /// Whole checkpoints that the daemon has made since its start.
    pub(super) fn cuts(&self) -> u64 {
        self.daemon.as_ref().map_or(0, |daemon| daemon.managers().control().cuts)
    }

    /// Lets time pass until `done`, or until `limit_ns`; whether it was done.
    pub(super) fn run(&mut self, limit_ns: u64, done: impl Fn(&World) -> bool) -> bool {
        while !done(self) {
            let Some(node) = self.network.step_until(limit_ns) else { return done(self) };
            assert!(self.network.steps() < MAX_STEPS, "a run that never ends: {}", self.report());
            match node == self.address {
                true => self.turn_daemon(),
                false => self.turn_client(node),
            }
        }
        true
    }

    fn turn_daemon(&mut self) {
        let Some(mut daemon) = self.daemon.take() else { return self.turn_down() };
        let outside = &mut **self;
        outside.arrive_at_daemon();
        outside.clock.enter(outside.network.now_ns());
        let rounds = outside.rng.usize(1..=outside.plan.rounds);
        let draws = simulated::draws();
        let Some(due_ns) = self.turn(|| daemon.go_on(rounds)) else {
            drop(daemon);
            return self.go_down();
        };
        self.daemon = Some(daemon);
        self.handshakes += simulated::draws() - draws;
        self.check_bounds();
        let is_behind = self.send_of_daemon() || due_ns == 0;
        let worked_ns = HANDSHAKE_NS * self.handshakes
            + PACKET_NS
                * self.sum(|context| {
                    let counters = context.net.device_counters();
                    counters.packets_received + counters.packets_sent
                });
        let took_ns = worked_ns - std::mem::replace(&mut self.worked_ns, worked_ns);
        let outside = &mut **self;
        let now_ns = outside.network.now_ns();
        outside.network.pause(outside.address, now_ns + took_ns);
        let pause_ns = if is_behind { outside.rng.u64(1_000..100_000) } else { due_ns };
        outside.network.wake_at(outside.address, now_ns.saturating_add(pause_ns));
    }

    /// A turn of a node whose daemon is down: what comes is lost, and when it is time the daemon is started.
    fn turn_down(&mut self) {
        let outside = &mut **self;
        while outside.network.receive(outside.address).is_some() {}
        if self.network.now_ns() >= self.restarts_ns {
            return self.start();
        }
        let (address, restarts_ns) = (self.address, self.restarts_ns);
        self.network.wake_at(address, restarts_ns);
    }

    /// Looks at each of the daemon's contexts.
    pub(super) fn at_contexts<T>(&self, look: impl Fn(&Context) -> T) -> Vec<T> {
        self.daemon.as_ref().map_or_else(Vec::new, |daemon| daemon.at_contexts(look))
    }

    /// Sums up something over the contexts.
    pub(super) fn sum(&self, of: impl Fn(&Context) -> u64) -> u64 {
        self.at_contexts(of).into_iter().sum()
    }

    /// The bounds that hold at any time.
    fn check_bounds(&self) {
        let sessions = self.sum(|context| context.net.sessions() as u64);
        assert!(sessions <= u64::from(MAX_SESSIONS), "{sessions} sessions: {}", self.report());
        let waiting = self.at_contexts(|context| {
            let peers = context.net.peers();
            peers.map(|(_, peer)| peer.carrier().backlog_bytes(context.host.interface())).max().unwrap_or(0)
        });
        let waiting = waiting.into_iter().max().unwrap_or(0);
        assert!(waiting <= self.most_waiting_bytes, "{waiting} bytes wait for a peer: {}", self.report());
    }

    /// The state of everything, for a failing test's message.
    pub(super) fn report(&self) -> String {
        let (ms, turns, crashes) = (self.network.now_ns() / MS, self.network.steps(), self.crashes);
        let mut text = format!("at {ms} ms after {turns} turns and {crashes} crashes\n");
        for (id, of) in self.model.publishers.iter().enumerate() {
            text += &format!("  publisher {id}: {of:?}\n");
        }
        for (address, client) in &self.clients {
            text += &match &client.app {
                App::Publisher(publisher) => {
                    format!("  {address}: publisher {} is {:?}\n", publisher.id, publisher.stage)
                }
                App::Subscriber(of) => {
                    let missing = of.judge.missing(&self.model, false);
                    format!(
                        "  {address}: subscriber {} {:?} to s{}: {} came; {missing:?}\n",
                        of.id, of.query, of.stream, of.judge.delivered
                    )
                }
            };
        }
        for dropped in self.at_contexts(|context| format!("  {:?}\n", context.net.counters().dropped())) {
            text += &dropped;
        }
        if let Some(Ok(events)) = self.daemon.as_ref().map(|daemon| daemon.managers().events(0)) {
            events.iter().for_each(|event| text += &format!("  {}: {}\n", event.kind, event.text));
        }
        text
    }
}

impl Outside {
    /// Adds a node whose link is as the plan says, and how a client there reaches the daemon.
    fn client_node(&mut self) -> (SocketAddr, Wire, ClientAccess) {
        let address = self.network.node(SOCKET_BYTES);
        self.network.link(address, self.address, self.plan.link.clone());
        self.network.wake_at(address, self.network.now_ns() + 1);
        let wire = Wire::new(SOCKET_BYTES);
        let at_node = wire.clone();
        let device = SimulatedDevice::new(SOCKET_BYTES, move || Box::new(at_node.device(address, PACKET_BYTES)));
        let keys = self.keys.as_ref().map(|keys| (keys.client.clone(), keys.daemon.public()));
        (address, wire, ClientAccess { daemon: self.address.to_string(), device, keys })
    }

    fn add(&mut self, (address, wire): (SocketAddr, Wire), app: impl FnOnce(&mut Outside) -> App) -> SocketAddr {
        let clock = NodeClock { ahead_ns: self.rng.u64(..SECOND), last_ns: 0 };
        clock.enter(self.network.now_ns());
        let app = app(self);
        self.clients.insert(address, Client { app, wire, clock });
        address
    }

    /// Adds a publisher of a stream, which sends bursts of records.
    pub(super) fn publish(&mut self, stream: usize, burst: (usize, u64)) -> SocketAddr {
        let (address, wire, access) = self.client_node();
        // The records that its window lets come are on top of all queues.
        self.most_waiting_bytes += 2 * u64::from(WINDOW_BYTES.1);
        self.add((address, wire), |world| {
            App::Publisher(Box::new(PublisherApp::begin(&access, stream, burst, &mut world.model)))
        })
    }

    /// Adds a subscriber to a stream, which takes some events at a time.
    pub(super) fn subscribe(&mut self, stream: usize, query: Query, pace: (usize, u64)) -> SocketAddr {
        let (address, wire, access) = self.client_node();
        self.subscribers += 1;
        let id = self.subscribers;
        self.add((address, wire), |_| {
            App::Subscriber(Box::new(SubscriberApp::begin(&access, (id, stream, query), pace)))
        })
    }

    /// A client is gone; `says_so`: what it sends to say so leaves.
    pub(super) fn remove(&mut self, address: SocketAddr, says_so: bool) {
        let Some(Client { app, wire, clock }) = self.clients.remove(&address) else { return };
        if let App::Publisher(publisher) = &app
            && publisher.stage != Stage::Finished
        {
            self.model.publishers[publisher.id].is_sound = false;
        }
        clock.enter(self.network.now_ns());
        drop(app);
        if says_so {
            self.send(address, &wire);
        }
    }

    /// Has a node's clock jump ahead.
    pub(super) fn jump(&mut self, node: SocketAddr, ns: u64) {
        let clock = match self.clients.get_mut(&node) {
            Some(client) => &mut client.clock,
            None => &mut self.clock,
        };
        clock.ahead_ns += ns;
        self.network.wake_at(node, self.network.now_ns());
    }

    /// The context that gets what a sender sends.
    fn context_of(&mut self, from: SocketAddr) -> usize {
        let strays = self.plan.strays > 0 && self.rng.u32(..self.plan.strays) == 0;
        let IpAddr::V4(ip) = from.ip() else { return 0 };
        (ip.to_bits() as usize + usize::from(strays)) % self.wires.len()
    }

    /// What has come for the daemon is in its sockets.
    fn arrive_at_daemon(&mut self) {
        while let Some(arrival) = self.network.receive(self.address) {
            let at = self.context_of(arrival.from);
            self.wires[at].arrive(arrival);
        }
    }

    /// What the daemon has sent is under way. Whether more is to come of what it was to send, or of what has arrived.
    fn send_of_daemon(&mut self) -> bool {
        let wires = self.wires.clone();
        let mut is_behind = false;
        for wire in &wires {
            self.send(self.address, wire);
            is_behind |= wire.is_behind();
        }
        is_behind
    }

    /// Goes on up to the daemon's time, while a part of the daemon waits.
    fn go_on_meanwhile(&mut self) {
        let daemon_ns = simulated::now_ns();
        let until_ns = daemon_ns.saturating_sub(self.clock.ahead_ns).max(self.network.now_ns());
        self.wires.clone().iter().for_each(|wire| self.send(self.address, wire));
        while let Some(node) = self.network.step_until(until_ns) {
            if node != self.address {
                self.turn_client(node);
            }
        }
        self.arrive_at_daemon();
        simulated::set_now_ns(daemon_ns);
    }

    fn turn_client(&mut self, node: SocketAddr) {
        // Of one that is gone nobody takes what comes.
        let Some(client) = self.clients.get_mut(&node) else { return };
        while let Some(arrival) = self.network.receive(node) {
            client.wire.arrive(arrival);
        }
        let now_ns = self.network.now_ns();
        client.clock.enter(now_ns);
        self.model.now_ns = now_ns;
        let due_ns = client.app.turn(now_ns, &mut self.rng, &mut self.model);
        client.clock.leave();
        let wire = client.wire.clone();
        let pause_ns = if wire.is_behind() { self.rng.u64(1_000..100_000) } else { due_ns.max(1_000) };
        self.send(node, &wire);
        self.network.wake_at(node, now_ns.saturating_add(pause_ns));
    }

    fn send(&mut self, from: SocketAddr, wire: &Wire) {
        for (to, bytes, stride, ecn) in wire.take_sent() {
            if from != self.address {
                self.seen.extend(bytes.chunks(stride.max(1)).map(|packet| (from, packet.to_vec())));
                self.seen.drain(..self.seen.len().saturating_sub(SEEN));
            }
            self.network.send_super_with(from, to, (&bytes, stride), ecn);
        }
    }

    /// The publishers, and the subscribers.
    pub(super) fn publishers(&self) -> impl Iterator<Item = &PublisherApp> {
        self.clients.values().filter_map(|client| match &client.app {
            App::Publisher(publisher) => Some(&**publisher),
            App::Subscriber(_) => None,
        })
    }

    pub(super) fn publishers_mut(&mut self) -> impl Iterator<Item = &mut PublisherApp> {
        self.clients.values_mut().filter_map(|client| match &mut client.app {
            App::Publisher(publisher) => Some(&mut **publisher),
            App::Subscriber(_) => None,
        })
    }

    pub(super) fn subscribers(&self) -> impl Iterator<Item = &SubscriberApp> {
        self.clients.values().filter_map(|client| match &client.app {
            App::Publisher(_) => None,
            App::Subscriber(subscriber) => Some(&**subscriber),
        })
    }
}

fn config(plan: &WorldPlan, listen: SocketAddr, (keys, state): (Option<&Keys>, Option<&Path>)) -> ContextConfig {
    let mut config = ContextConfig {
        listen,
        queue_bytes: QUEUE_BYTES,
        window_bytes: WINDOW_BYTES.0,
        max_window_bytes: WINDOW_BYTES.1,
        max_sessions: MAX_SESSIONS,
        max_sessions_per_peer: MAX_SESSIONS / 2,
        idle_timeout_ms: 3000,
        spin_us: 0,
        buffer_bytes: 32 << 20,
        node: "simulated".to_owned(),
        ..ContextConfig::default()
    };
    config.attach.enabled = false;
    config.morph.state_dir = state.map(Path::to_owned);
    config.morph.durable = plan.is_durable;
    config.morph.checkpoint_interval_ms = CHECKPOINT_MS;
    config.morph.await_subscribers_ms = AWAIT_MS;
    let io = ContextSpec { io: true, ..ContextSpec::new(ContextKind::CCore) };
    config.platform.contexts = vec![io; plan.contexts - 1];
    config.security = match keys {
        Some(Keys { daemon, client, other }) => SecurityConfig {
            key: Some(daemon.clone()),
            authorized: Arc::new(
                [client, other]
                    .map(|key| Authorized { key: key.public(), name: "client".into() })
                    .into_iter()
                    .collect(),
            ),
            ..SecurityConfig::default()
        },
        None => SecurityConfig { trusted: vec!["10.0.0.0/8".parse().expect("a network")], ..SecurityConfig::default() },
    };
    config
}
