//! A daemon or two, their clients, the network between them, and time.

use super::clients::{App, ClientAccess, PublisherApp, Stage, SubscriberApp};
use super::model::{Model, Published, Query};
use super::socket::Wire;
use crate::config::{ContextConfig, ContextKind, ContextSpec, NodeAddress, SecurityConfig};
use crate::context::Context;
use crate::failpoint::simulated::{Crashed, Moment, crash_at};
use crate::managers::spec::HandlerSpec;
use crate::starting::simulated::SimulatedDaemon;
use crossdock_device::Device;
use crossdock_device::simulated::{self, Simulated};
use crossdock_nectarine::{NodeRoute, PrivateKey, SimulatedDevice};
use crossdock_sim::{Link, Network, Rng};
use crossdock_transport::secure::Authorized;
use crossdock_transport::{Header, PacketKind};
use std::cell::{Cell, RefCell};
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
/// The names of the daemons' nodes.
const NAMES: [&str; 2] = ["simulated", "gate"];
/// Packets with which sessions begin, and the longest that interfaces take, in bytes.
const PACKET_BYTES: (usize, usize) = (1472, 8952);

/// The keys of a secure world: the daemon's, that of all clients, that of another peer which the daemon knows, and the gate's.
#[derive(Clone)]
pub(super) struct Keys {
    pub(super) daemon: PrivateKey,
    client: PrivateKey,
    pub(super) other: PrivateKey,
    gate: PrivateKey,
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
    /// Whether there is a second daemon, the gate, by which some clients reach the first: by source routes.
    pub(super) is_routed: bool,
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
    /// The daemon that its packets go to.
    pub(super) over: SocketAddr,
    wire: Wire,
    clock: NodeClock,
}

/// A client's node before its application is there: its address, that of the daemon that its packets go to, and its socket.
type ClientNode = (SocketAddr, SocketAddr, Wire);

/// A daemon's node.
struct Site {
    address: SocketAddr,
    /// The daemon's sockets.
    wires: Vec<Wire>,
    clock: NodeClock,
}

/// All but the daemons: their clients, the network, and time.
pub(super) struct Outside {
    pub(super) network: Network,
    pub(super) rng: Rng,
    pub(super) plan: WorldPlan,
    /// The address of the daemon that has the streams.
    pub(super) address: SocketAddr,
    /// The daemons' nodes, that one's first.
    sites: Vec<Site>,
    /// The bytes that a daemon's socket takes before it is full.
    room_bytes: usize,
    pub(super) clients: BTreeMap<SocketAddr, Client>,
    pub(super) model: Model,
    pub(super) keys: Option<Keys>,
    /// The bound on what waits for one peer, in bytes.
    most_waiting_bytes: u64,
    /// The last packets of clients, as whoever is on the path sees them.
    pub(super) seen: VecDeque<(SocketAddr, Vec<u8>)>,
    /// The kinds of packets that daemons have sent, turn by turn, if a test wants them.
    pub(super) turns: Option<Vec<Vec<PacketKind>>>,
    subscribers: usize,
}

/// A daemon.
struct Running {
    config: ContextConfig,
    /// None between a crash and the next start.
    daemon: Option<SimulatedDaemon>,
    /// When it is started again, in ns.
    restarts_ns: u64,
    /// Handshakes that it has computed, and the work of its turns so far, in ns.
    handshakes: u64,
    worked_ns: u64,
}

/// Daemons, their clients, the network between them, and time.
pub(super) struct World {
    /// Elsewhere during a daemon's turn: there it goes on while a part of the daemon waits.
    outside: Option<Box<Outside>>,
    during_turn: Rc<RefCell<Option<Box<Outside>>>>,
    /// In the order of their nodes.
    daemons: Vec<Running>,
    /// How long a daemon is down after a crash, in ns.
    down_ns: u64,
    pub(super) crashes: u64,
    is_reported: Cell<bool>,
    /// The directory of what the daemon keeps.
    _state: Option<TempDir>,
    /// The last, so that time is simulated until all else is gone.
    _simulated: Simulated,
}

impl Deref for World {
    type Target = Outside;

    fn deref(&self) -> &Outside {
        self.outside.as_deref().expect("no daemon has a turn")
    }
}

impl DerefMut for World {
    fn deref_mut(&mut self) -> &mut Outside {
        self.outside.as_deref_mut().expect("no daemon has a turn")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() && self.outside.is_some() && !self.is_reported.get() {
            eprintln!("{}", self.report());
        }
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
        let sites: Vec<Site> = (0..1 + usize::from(plan.is_routed)).map(|_| Site::new(&mut network)).collect();
        if let [daemon, gate] = &sites[..] {
            network.link(daemon.address, gate.address, plan.link.clone());
        }
        let room_bytes = [64 << 10, 256 << 10, 16 << 20][rng.usize(..3)];
        let mut key = || PrivateKey::from_random(std::array::from_fn(|_| rng.u8(..)));
        let keys = plan.is_secure.then(|| Keys { daemon: key(), client: key(), other: key(), gate: key() });
        let state = plan.is_durable.then(state_directory);
        let directory = state.as_ref().map(TempDir::path);
        let daemons = (0..sites.len()).map(|at| Running::new(config(&plan, (at, &sites), (keys.as_ref(), directory))));
        let daemons = daemons.collect();
        let model = Model { is_durable: plan.is_durable, ..Model::default() };
        let outside = Outside {
            network,
            rng,
            plan,
            address: sites[0].address,
            sites,
            room_bytes,
            clients: BTreeMap::new(),
            model,
            keys,
            most_waiting_bytes: QUEUE_BYTES,
            seen: VecDeque::new(),
            turns: None,
            subscribers: 0,
        };
        let mut world = World {
            outside: Some(Box::new(outside)),
            during_turn: Rc::default(),
            daemons,
            down_ns: 0,
            crashes: 0,
            is_reported: Cell::default(),
            _state: state,
            _simulated: simulated,
        };
        (0..world.daemons.len()).for_each(|at| world.start(at));
        world
    }

    /// Starts a daemon, with what it has on disk and nothing else.
    fn start(&mut self, at: usize) {
        let Outside { plan, room_bytes, sites, network, .. } = &mut **self;
        let site = &mut sites[at];
        site.wires = (0..plan.contexts).map(|_| Wire::new(*room_bytes)).collect();
        let device = |wire: &Wire| Box::new(wire.device(site.address, PACKET_BYTES)) as Box<dyn Device>;
        let devices = site.wires.iter().map(device).collect();
        site.clock.enter(network.now_ns());
        let during_turn = Rc::clone(&self.during_turn);
        let waits = Rc::new(move || {
            if let Ok(mut during_turn) = during_turn.try_borrow_mut() {
                during_turn.iter_mut().for_each(|outside| outside.go_on_meanwhile(at));
            }
        });
        let config = self.daemons[at].config.clone();
        let started = self.turn(at, || SimulatedDaemon::start(&config, (devices, SOCKET_BYTES as u32), waits));
        let Some(started) = started else { return self.go_down(at) };
        let daemon = &mut self.daemons[at];
        daemon.daemon = Some(started.expect("a daemon starts"));
        daemon.worked_ns = HANDSHAKE_NS * daemon.handshakes;
        let Outside { network, sites, .. } = &mut **self;
        network.wake_at(sites[at].address, network.now_ns());
    }

    /// A turn of a daemon, during which the rest of the world goes on where a part of the daemon waits. None: it has crashed.
    fn turn<T>(&mut self, at: usize, turn: impl FnOnce() -> T) -> Option<T> {
        self.during_turn.replace(self.outside.take());
        let outcome = catch_unwind(AssertUnwindSafe(turn));
        self.outside = self.during_turn.take();
        self.sites[at].clock.leave();
        match outcome {
            Ok(outcome) => Some(outcome),
            Err(panic) if panic.is::<Crashed>() => None,
            Err(panic) => resume_unwind(panic),
        }
    }

    /// A daemon crashes now, and is down for this long.
    pub(super) fn crash(&mut self, at: usize, down_ns: u64) {
        self.down_ns = down_ns;
        if self.daemons[at].daemon.take().is_some() {
            self.go_down(at);
        }
    }

    /// A daemon crashes after this number of further moments of a kind.
    pub(super) fn crash_later(&mut self, moment: (Moment, u32), down_ns: u64) {
        self.down_ns = down_ns;
        crash_at(Some(moment));
    }

    /// A daemon has crashed: its memory and its sockets are gone, and so is what was to be written. The packets that it has sent are under way.
    fn go_down(&mut self, at: usize) {
        SimulatedDaemon::forget();
        self.send_of_daemon(at);
        self.crashes += 1;
        if at == 0 {
            self.model.crash();
        }
        let restarts_ns = self.network.now_ns() + self.down_ns;
        self.daemons[at].restarts_ns = restarts_ns;
        let address = self.sites[at].address;
        self.network.wake_at(address, restarts_ns);
    }

    /// Whether all daemons are there.
    pub(super) fn is_up(&self) -> bool {
        self.daemons.iter().all(|of| of.daemon.is_some())
    }

    /// Deploys these handlers.
    pub(super) fn deploy(&mut self, handlers: Vec<HandlerSpec>) {
        let mut daemon = self.daemons[0].daemon.take().expect("it is there");
        self.turn(0, || daemon.deploy(handlers)).expect("it does not crash");
        self.daemons[0].daemon = Some(daemon);
    }

    /// Lets time pass until `done`, or until `limit_ns`; whether it was done.
    pub(super) fn run(&mut self, limit_ns: u64, done: impl Fn(&World) -> bool) -> bool {
        while !done(self) {
            let Some(node) = self.network.step_until(limit_ns) else { return done(self) };
            assert!(self.network.steps() < MAX_STEPS, "a run that never ends: {}", self.report());
            match self.sites.iter().position(|site| site.address == node) {
                Some(at) => self.turn_daemon(at),
                None => self.turn_client(node),
            }
        }
        true
    }

    fn turn_daemon(&mut self, at: usize) {
        let Some(mut daemon) = self.daemons[at].daemon.take() else { return self.turn_down(at) };
        let outside = &mut **self;
        outside.arrive_at_daemon(at);
        outside.sites[at].clock.enter(outside.network.now_ns());
        let rounds = outside.rng.usize(1..=outside.plan.rounds);
        let draws = simulated::draws();
        let Some(due_ns) = self.turn(at, || daemon.go_on(rounds)) else {
            drop(daemon);
            return self.go_down(at);
        };
        let packets = daemon.at_contexts(|context| {
            let counters = context.net.device_counters();
            counters.packets_received + counters.packets_sent
        });
        let of = &mut self.daemons[at];
        of.daemon = Some(daemon);
        of.handshakes += simulated::draws() - draws;
        let worked_ns = HANDSHAKE_NS * of.handshakes + PACKET_NS * packets.iter().sum::<u64>();
        let took_ns = worked_ns - std::mem::replace(&mut of.worked_ns, worked_ns);
        self.check_bounds();
        let is_behind = self.send_of_daemon(at) || due_ns == 0;
        let Outside { network, sites, rng, .. } = &mut **self;
        let (now_ns, address) = (network.now_ns(), sites[at].address);
        network.pause(address, now_ns + took_ns);
        let pause_ns = if is_behind { rng.u64(1_000..100_000) } else { due_ns };
        network.wake_at(address, now_ns.saturating_add(pause_ns));
    }

    /// A turn of a node whose daemon is down: what comes is lost, and when it is time the daemon is started.
    fn turn_down(&mut self, at: usize) {
        let (address, restarts_ns) = (self.sites[at].address, self.daemons[at].restarts_ns);
        while self.network.receive(address).is_some() {}
        if self.network.now_ns() >= restarts_ns {
            return self.start(at);
        }
        self.network.wake_at(address, restarts_ns);
    }

    /// Looks at each context of the daemons that are up.
    pub(super) fn at_contexts<T>(&self, look: impl Fn(&Context) -> T) -> Vec<T> {
        self.daemons.iter().filter_map(|of| of.daemon.as_ref()).flat_map(|of| of.at_contexts(&look)).collect()
    }

    /// Sums up something over the contexts.
    pub(super) fn sum(&self, of: impl Fn(&Context) -> u64) -> u64 {
        self.at_contexts(of).into_iter().sum()
    }

    /// Handshakes that daemons have computed.
    pub(super) fn handshakes(&self) -> u64 {
        self.daemons.iter().map(|of| of.handshakes).sum()
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
        self.is_reported.set(true);
        let (ms, turns, crashes) = (self.network.now_ns() / MS, self.network.steps(), self.crashes);
        let mut text = format!("at {ms} ms after {turns} turns and {crashes} crashes\n");
        for (id, of) in self.model.publishers.iter().enumerate() {
            let Published { stream, handed, settled, is_sound, .. } = of;
            text += &format!("  publisher {id} of s{stream}: {settled} of {handed} settled, sound: {is_sound}\n");
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
        for daemon in self.daemons.iter().filter_map(|of| of.daemon.as_ref()) {
            let events = daemon.managers().events(0).unwrap_or_default();
            events.iter().for_each(|event| text += &format!("  {}: {}\n", event.kind, event.text));
        }
        text
    }
}

impl Site {
    fn new(network: &mut Network) -> Site {
        let address = network.node(SOCKET_BYTES);
        Site { address, wires: Vec::new(), clock: NodeClock { ahead_ns: 0, last_ns: simulated::now_ns() } }
    }
}

impl Running {
    fn new(config: ContextConfig) -> Running {
        Running { config, daemon: None, restarts_ns: 0, handshakes: 0, worked_ns: 0 }
    }
}

impl Outside {
    /// Adds a node whose link is as the plan says, and how a client there reaches the daemon.
    fn client_node(&mut self) -> (ClientNode, ClientAccess) {
        let is_routed = self.plan.is_routed && self.rng.u8(..4) > 0;
        let over = self.sites[usize::from(is_routed)].address;
        let address = self.network.node(SOCKET_BYTES);
        self.network.link(address, over, self.plan.link.clone());
        self.network.wake_at(address, self.network.now_ns() + 1);
        let wire = Wire::new(SOCKET_BYTES);
        let at_node = wire.clone();
        let device = SimulatedDevice::new(SOCKET_BYTES, move || Box::new(at_node.device(address, PACKET_BYTES)));
        let first = |keys: &Keys| if is_routed { keys.gate.public() } else { keys.daemon.public() };
        let to = self.keys.as_ref().filter(|_| is_routed).map(|keys| keys.daemon.public());
        let route = to.map(|to| NodeRoute::new([NAMES[1], NAMES[0]], to).expect("two nodes"));
        let keys = self.keys.as_ref().map(|keys| (keys.client.clone(), first(keys)));
        ((address, over, wire), ClientAccess { daemon: over.to_string(), device, keys, route })
    }

    fn add(&mut self, (address, over, wire): ClientNode, app: impl FnOnce(&mut Outside) -> App) -> SocketAddr {
        let clock = NodeClock { ahead_ns: self.rng.u64(..SECOND), last_ns: 0 };
        clock.enter(self.network.now_ns());
        let app = app(self);
        self.clients.insert(address, Client { app, over, wire, clock });
        address
    }

    /// The daemons' nodes.
    pub(super) fn nodes(&self) -> Vec<SocketAddr> {
        self.sites.iter().map(|site| site.address).collect()
    }

    /// Whether clients reach the daemon by the gate.
    pub(super) fn has_routed_clients(&self) -> bool {
        self.clients.values().any(|client| client.over != self.address)
    }

    /// Nothing is wrong with the network any more.
    pub(super) fn repair(&mut self) {
        let between = self.sites.get(1).map(|gate| (gate.address, self.address));
        let ways = self.clients.iter().map(|(address, client)| (*address, client.over)).chain(between);
        for (from, to) in ways {
            self.network.link(from, to, self.plan.link.clone());
            self.network.cut(from, to, 0);
            // Its application looks at once.
            self.network.wake_at(from, self.network.now_ns());
        }
    }

    /// Adds a publisher of a stream, which sends bursts of records.
    pub(super) fn publish(&mut self, stream: usize, burst: (usize, u64)) -> SocketAddr {
        let (node, access) = self.client_node();
        // The records that its window lets come are on top of all queues.
        self.most_waiting_bytes += 2 * u64::from(WINDOW_BYTES.1);
        self.add(node, |world| App::Publisher(Box::new(PublisherApp::begin(&access, stream, burst, &mut world.model))))
    }

    /// Adds a subscriber to a stream, which takes some events at a time.
    pub(super) fn subscribe(&mut self, stream: usize, query: Query, pace: (usize, u64)) -> SocketAddr {
        let (node, access) = self.client_node();
        self.subscribers += 1;
        let id = self.subscribers;
        self.add(node, |_| App::Subscriber(Box::new(SubscriberApp::begin(&access, (id, stream, query), pace))))
    }

    /// A client is gone; `says_so`: what it sends to say so leaves.
    pub(super) fn remove(&mut self, address: SocketAddr, says_so: bool) {
        let Some(Client { app, wire, clock, .. }) = self.clients.remove(&address) else { return };
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
            None => match self.sites.iter_mut().find(|site| site.address == node) {
                Some(site) => &mut site.clock,
                None => return,
            },
        };
        clock.ahead_ns += ns;
        self.network.wake_at(node, self.network.now_ns());
    }

    /// The context that gets what a sender sends.
    fn context_of(&mut self, from: SocketAddr) -> usize {
        let strays = self.plan.strays > 0 && self.rng.u32(..self.plan.strays) == 0;
        let IpAddr::V4(ip) = from.ip() else { return 0 };
        (ip.to_bits() as usize + usize::from(strays)) % self.plan.contexts
    }

    /// Puts into a daemon's sockets what has come for it.
    fn arrive_at_daemon(&mut self, at: usize) {
        while let Some(arrival) = self.network.receive(self.sites[at].address) {
            let context = self.context_of(arrival.from);
            self.sites[at].wires[context].arrive(arrival);
        }
    }

    /// Puts what a daemon has sent under way. Whether more is to come of what it was to send, or of what has arrived.
    fn send_of_daemon(&mut self, at: usize) -> bool {
        let Site { wires, address, .. } = &self.sites[at];
        let (wires, address, mut is_behind) = (wires.clone(), *address, false);
        for wire in &wires {
            self.send(address, wire);
            is_behind |= wire.is_behind();
        }
        is_behind
    }

    /// Clients go on up to a daemon's time, while a part of the daemon waits; other daemons have their turns later.
    fn go_on_meanwhile(&mut self, at: usize) {
        let daemon_ns = simulated::now_ns();
        let Site { address, wires, clock } = &self.sites[at];
        let until_ns = daemon_ns.saturating_sub(clock.ahead_ns).max(self.network.now_ns());
        let (address, wires) = (*address, wires.clone());
        wires.iter().for_each(|wire| self.send(address, wire));
        let mut later = Vec::new();
        while let Some(node) = self.network.step_until(until_ns) {
            match self.clients.contains_key(&node) {
                true => self.turn_client(node),
                false => later.extend((node != address).then_some(node)),
            }
        }
        later.into_iter().for_each(|node| self.network.wake_at(node, until_ns));
        self.arrive_at_daemon(at);
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
        let sent = wire.take_sent();
        if let Some(turns) = self.turns.as_mut().filter(|_| !self.clients.contains_key(&from) && !sent.is_empty()) {
            let packets = sent.iter().flat_map(|(_, bytes, stride, _)| bytes.chunks((*stride).max(1)));
            turns.push(packets.filter_map(|packet| Some(Header::read(packet).ok()?.kind)).collect());
        }
        for (to, bytes, stride, ecn) in sent {
            if self.clients.contains_key(&from) {
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

    pub(super) fn subscribers_mut(&mut self) -> impl Iterator<Item = &mut SubscriberApp> {
        self.clients.values_mut().filter_map(|client| match &mut client.app {
            App::Publisher(_) => None,
            App::Subscriber(subscriber) => Some(&mut **subscriber),
        })
    }

    pub(super) fn subscribers(&self) -> impl Iterator<Item = &SubscriberApp> {
        self.clients.values().filter_map(|client| match &client.app {
            App::Publisher(_) => None,
            App::Subscriber(subscriber) => Some(&**subscriber),
        })
    }
}

/// The configuration of the daemon at this place.
fn config(
    plan: &WorldPlan,
    (at, sites): (usize, &[Site]),
    (keys, state): (Option<&Keys>, Option<&Path>),
) -> ContextConfig {
    let mut config = ContextConfig {
        listen: sites[at].address,
        queue_bytes: QUEUE_BYTES,
        window_bytes: WINDOW_BYTES.0,
        max_window_bytes: WINDOW_BYTES.1,
        max_sessions: MAX_SESSIONS,
        max_sessions_per_peer: MAX_SESSIONS / 2,
        idle_timeout_ms: 3000,
        spin_us: 0,
        buffer_bytes: 32 << 20,
        node: NAMES[at].to_owned(),
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
        Some(Keys { daemon, client, other, gate }) => {
            let own = [daemon, gate];
            let node = |at: usize| NodeAddress {
                name: NAMES[at].to_owned(),
                address: sites[at].address,
                key: Some(own[at].public()),
            };
            config.neighbours = (0..sites.len()).filter(|other| *other != at).map(node).collect();
            let named = |key: &PrivateKey, name: &str| Authorized { key: key.public(), name: name.into() };
            let clients = [client, other].into_iter().map(|key| named(key, "client"));
            let nodes = (0..sites.len()).filter(|other| *other != at).map(|other| named(own[other], NAMES[other]));
            let authorized = Arc::new(clients.chain(nodes).collect());
            SecurityConfig { key: Some(own[at].clone()), authorized, ..SecurityConfig::default() }
        }
        None => SecurityConfig { trusted: vec!["10.0.0.0/8".parse().expect("a network")], ..SecurityConfig::default() },
    };
    config
}
