//! An attacker against a daemon with secure sessions. All of this happens at once:
//!
//! - *injection off the path*: packets with the addresses of others, and guesses in place of what it does not see;
//! - *replay*: packets of the clients, as it has seen them, from their addresses and from its own;
//! - *floods of first packets*: handshakes and hellos, from many addresses, with and without cookies;
//! - *stolen addresses*: handshakes, hellos and closes in the names of clients, and answers in the name of the daemon;
//! - *a known peer that misbehaves*: with an authorised key it makes one handshake after the other, opens sessions, and sends
//!   anything at all in them.
//!
//! The daemon's memory stays within its bounds, its work leaves the others their time, and no session of theirs ends.

use super::model::Query;
use super::world::{MAX_SESSIONS, MS, SECOND, World, WorldPlan};
use crate::net::secure::MORE_CLIENTS;
use crossdock_device::random;
use crossdock_nectarine::PublicKey;
use crossdock_sim::{Link, Rng, check};
use crossdock_transport::handshake::{Close, Hello, Welcome};
use crossdock_transport::secure::{Initiator, PrivateKey};
use crossdock_transport::{HEADER_BYTES, Header, PacketKind};
use std::net::SocketAddr;

/// Addresses of the attacker, and peers of its that are known to the daemon.
const ADDRESSES: usize = 24;
const PEERS: usize = 8;
/// How long it attacks, in ns, and how often it acts.
const ATTACK_NS: u64 = SECOND;
const STEP_NS: u64 = MS;
/// Packets that it sends each time: first packets, injections, replays, packets in others' names, and packets of each known peer.
const FIRSTS: usize = 10;
const INJECTED: usize = 3;
const REPLAYED: usize = 3;
const STOLEN: usize = 2;
const GARBAGE: usize = 2;
/// Steps after which a known peer begins anew.
const CHURN_STEPS: u64 = 20;

/// A peer with an authorised key that misbehaves.
struct KnownPeer {
    address: SocketAddr,
    initiator: Initiator,
    session: Option<u32>,
}

/// The attacker.
struct Attacker {
    rng: Rng,
    addresses: Vec<SocketAddr>,
    peers: Vec<KnownPeer>,
    daemon: PublicKey,
    steps: u64,
}

fn key(rng: &mut Rng) -> PrivateKey {
    PrivateKey::from_random(std::array::from_fn(|_| rng.u8(..)))
}

fn noise(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| rng.u8(..)).collect()
}

fn hello(rng: &mut Rng) -> Vec<u8> {
    let (nonce, session) = (rng.u64(..), rng.u32(1..));
    Hello { nonce, session, packet_bytes: 1400, window_bytes: 1 << 20, uses_mailboxes: false }.packet()
}

impl Attacker {
    fn new(world: &mut World, rng: Rng) -> Attacker {
        let keys = world.keys.clone().expect("the world is secure");
        let mut node = || {
            let address = world.network.node(1 << 16);
            let (daemon, link) = (world.address, world.plan.link.clone());
            world.network.link(address, daemon, link);
            address
        };
        let addresses = (0..ADDRESSES).map(|_| node()).collect();
        let peer = |address| {
            let initiator = Initiator::new(keys.other.clone(), keys.daemon.public(), false);
            KnownPeer { address, initiator, session: None }
        };
        let peers = (0..PEERS).map(|_| peer(node())).collect();
        Attacker { rng, addresses, peers, daemon: keys.daemon.public(), steps: 0 }
    }

    fn any(&mut self, addresses: &[SocketAddr]) -> SocketAddr {
        addresses[self.rng.usize(..addresses.len())]
    }

    /// The first packet of a handshake with a key that the daemon does not know; perhaps with a cookie, which is a guess.
    fn initial(&mut self, now_ns: u64) -> Vec<u8> {
        let mut initiator = Initiator::new(key(&mut self.rng), self.daemon, self.rng.bool());
        initiator.begin(now_ns, std::array::from_fn(|_| self.rng.u8(..)));
        let mut packet = initiator.poll(now_ns).map(<[u8]>::to_vec).unwrap_or_default();
        if self.rng.bool() {
            packet[16..32].fill_with(|| self.rng.u8(..));
        }
        packet
    }

    /// A packet in an envelope of guesses.
    fn envelope(&mut self) -> Vec<u8> {
        let bytes = self.rng.usize(33..1400);
        let mut packet = noise(&mut self.rng, bytes);
        // Data, a response, a refusal, a cookie.
        (packet[0], packet[1]) = ([0xc4, 0xc4, 0xc3, 0xc5, 0xc2][self.rng.usize(..5)], self.rng.u8(..2));
        // Places of the table are in the low bits, so some of them meet one.
        if self.rng.bool() {
            packet[4..8].copy_from_slice(&self.rng.u32(..8).to_le_bytes());
        }
        packet
    }

    /// Does all of it once, against a daemon with these clients.
    fn act(&mut self, world: &mut World, clients: &[SocketAddr]) {
        let (now_ns, daemon) = (world.network.now_ns(), world.address);
        let own = self.addresses.clone();
        self.steps += 1;
        for _ in 0..FIRSTS {
            let from = self.any(&own);
            let packet = if self.rng.u8(..4) == 0 { hello(&mut self.rng) } else { self.initial(now_ns) };
            world.network.send(from, daemon, &packet);
        }
        for _ in 0..INJECTED {
            let (victim, packet) = (self.any(clients), self.envelope());
            let (from, to) = if self.rng.bool() { (victim, daemon) } else { (daemon, victim) };
            world.network.send(from, to, &packet);
        }
        for _ in 0..REPLAYED.min(world.seen.len()) {
            let (from, packet) = world.seen[self.rng.usize(..world.seen.len())].clone();
            let from = if self.rng.bool() { from } else { self.any(&own) };
            world.network.send(from, daemon, &packet);
        }
        for _ in 0..STOLEN {
            let victim = self.any(clients);
            let session = self.rng.u32(..);
            let close = || Close { again: false, reason: "it is over".to_owned() }.packet(session);
            match self.rng.u8(..5) {
                0 => world.network.send(victim, daemon, &self.initial(now_ns)),
                1 => world.network.send(victim, daemon, &hello(&mut self.rng)),
                2 => world.network.send(victim, daemon, &close()),
                3 => world.network.send(daemon, victim, &close()),
                _ => world.network.send(daemon, victim, &Header::new(PacketKind::Reset, session).to_bytes()),
            }
        }
        for (at, peer) in self.peers.iter_mut().enumerate() {
            peer.act(world, &mut self.rng, self.steps % CHURN_STEPS == at as u64);
        }
    }
}

impl KnownPeer {
    /// Takes what has come, and sends what it should not; `anew`: after it has begun anew.
    fn act(&mut self, world: &mut World, rng: &mut Rng, anew: bool) {
        let now_ns = world.network.now_ns();
        while let Some(mut frame) = world.network.receive(self.address) {
            let heard = self.initiator.open_frame(&mut frame.bytes, frame.stride, now_ns);
            let packet = &frame.bytes[..heard.len.min(heard.stride)];
            if let Some(welcome) = packet.get(HEADER_BYTES..).and_then(|payload| Welcome::decode(payload).ok())
                && Header::read(packet).is_ok_and(|header| header.kind == PacketKind::Welcome)
            {
                self.session = Some(welcome.session);
            }
        }
        if anew {
            self.session = None;
            self.initiator.forget();
        }
        if self.initiator.should_begin(now_ns) {
            self.initiator.begin(now_ns, random().expect("simulated"));
        }
        if let Some(packet) = self.initiator.poll(now_ns).map(<[u8]>::to_vec) {
            let daemon = world.address;
            world.network.send(self.address, daemon, &packet);
        }
        if !self.initiator.has_keys() {
            return;
        }
        match self.session {
            None => self.seal(world, &hello(rng)),
            Some(session) => (0..GARBAGE).for_each(|_| self.seal(world, &garbage(rng, session))),
        }
    }

    fn seal(&mut self, world: &mut World, packet: &[u8]) {
        let mut out = vec![0; packet.len() + 64];
        let sealed = self.initiator.seal([packet].into_iter(), packet.len(), &mut out, world.network.now_ns());
        let bytes = sealed.map_or(0, |sealed| sealed.bytes);
        let daemon = world.address;
        world.network.send(self.address, daemon, &out[..bytes]);
    }
}

/// Anything that a session should not bring.
fn garbage(rng: &mut Rng, session: u32) -> Vec<u8> {
    let kinds = [
        PacketKind::Data,
        PacketKind::Control,
        PacketKind::Message,
        PacketKind::Datagram,
        PacketKind::Ack,
        PacketKind::Ping,
        PacketKind::Part,
        PacketKind::Probe,
        PacketKind::Probed,
        PacketKind::Welcome,
    ];
    let kind = kinds[rng.usize(..kinds.len())];
    let seq = [rng.u64(..50), rng.u64(..), u64::MAX][rng.usize(..3)];
    let header =
        Header { seq, stream: rng.u32(..4), format: rng.u64(..), records: rng.u16(..), ..Header::new(kind, session) };
    let bytes = rng.usize(..1200);
    let payload = noise(rng, bytes);
    header.packet(&payload).expect("short")
}

/// How long the records of all subscriptions were on their way, in ns, in order, for one second with an attacker or without; also the
/// handshakes that the daemon computed meanwhile.
fn delays(seed: u64, is_attacked: bool) -> (Vec<u64>, u64) {
    let mut rng = Rng::with_seed(seed);
    let link = Link { jitter_ns: 200_000, ..Link::new(2 * MS) };
    let plan = WorldPlan {
        contexts: rng.usize(1..=2),
        is_secure: true,
        link,
        rounds: 8,
        is_durable: false,
        is_routed: false,
        strays: 0,
    };
    let mut world = World::new(seed, plan);
    let mut clients = vec![world.publish(0, (5, 5 * MS)), world.publish(1, (5, 5 * MS))];
    for (stream, query) in [(0, Query::All), (1, Query::AtLeast(300)), (0, Query::EvenBelow(800))] {
        clients.push(world.subscribe(stream, query, (1000, MS)));
    }
    let is_there = |world: &World| world.subscribers().all(|of| of.judge.delivered > 100);
    assert!(world.run(20 * SECOND, is_there), "{}", world.report());
    let before: Vec<usize> = world.subscribers().map(|of| of.judge.delays_ns.len()).collect();
    let (until_ns, handshakes) = (world.network.now_ns() + ATTACK_NS, world.handshakes());
    let mut attacker = Attacker::new(&mut world, rng.fork());
    while world.network.now_ns() < until_ns {
        if is_attacked {
            attacker.act(&mut world, &clients);
        }
        world.run(world.network.now_ns() + STEP_NS, |_| false);
        check_memory(&world);
    }
    let reports = world.report();
    assert!(world.subscribers().all(|of| !of.judge.was_lost()), "a session was lost: {reports}");
    let mut delays: Vec<u64> =
        world.subscribers().zip(before).flat_map(|(of, before)| of.judge.delays_ns[before..].to_vec()).collect();
    delays.sort_unstable();
    (delays, world.handshakes() - handshakes)
}

/// The memory that an attacker could fill is bounded.
fn check_memory(world: &World) {
    for (clients, (in_use, all)) in world.at_contexts(|of| (of.net.clients_with_keys(), of.net.buffers())) {
        assert!(clients <= MAX_SESSIONS as usize + MORE_CLIENTS, "keys of {clients} clients");
        assert!(in_use <= all / 2, "{in_use} of {all} buffers are in use: {}", world.report());
    }
}

#[test]
fn an_attacker_neither_delays_nor_ends_the_sessions_of_others() {
    check("an_attacker_neither_delays_nor_ends_the_sessions_of_others", 8, |seed| {
        let ((calm, _), (attacked, handshakes)) = (delays(seed, false), delays(seed, true));
        let p99 = |delays: &[u64]| delays[delays.len() * 99 / 100];
        assert!(
            attacked.len() * 10 > calm.len() * 8,
            "{} records came, and {} without the attacker",
            attacked.len(),
            calm.len()
        );
        let (calm, attacked) = (p99(&calm), p99(&attacked));
        assert!(attacked <= 2 * calm, "p99 {attacked} ns, and {calm} ns without the attacker");
        // A fifth of its time at most, by the bound on handshakes.
        assert!(handshakes <= 1000, "{handshakes} handshakes in a second");
    });
}
