//! Virtual time, nodes, and the datagrams between them.

use crate::link::{Link, LinkStats, Path};
use fastrand::Rng;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};

/// The unit that a node reads at once: one datagram, or several of one sender that arrived back to back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The sender.
    pub from: SocketAddr,
    /// Length of each datagram in bytes; the last may be shorter. The whole length when there is one.
    pub stride: usize,
    /// The datagrams, one behind the other.
    pub bytes: Vec<u8>,
    /// The two bits of ECN in their IP headers.
    pub ecn: u8,
}

/// An event at a moment.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A datagram reaches a node.
    Arrive { to: SocketAddr, from: SocketAddr, bytes: Vec<u8>, ecn: u8 },
    /// A node has its turn.
    Turn { node: SocketAddr },
}

/// A node: a socket's queue and a process that reads it.
#[derive(Debug)]
struct Node {
    inbox: VecDeque<(SocketAddr, Vec<u8>, u8)>,
    inbox_bytes: usize,
    capacity_bytes: usize,
    dropped: u64,
    /// When its next turn is; an event for another time is stale.
    turn_ns: Option<u64>,
    paused_until_ns: u64,
}

/// The most bytes that are joined into one [`Frame`], and the most datagrams: what Linux does (UDP GRO).
const FRAME_BYTES: usize = 65_507;
const FRAME_DATAGRAMS: usize = 64;

/// Nodes, links and virtual time. Everything random comes from one seed, so a run can be repeated exactly.
#[derive(Debug)]
pub struct Network {
    now_ns: u64,
    rng: Rng,
    nodes: BTreeMap<SocketAddr, Node>,
    paths: BTreeMap<(SocketAddr, SocketAddr), Path>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pushed: u64,
    steps: u64,
    fingerprint: u64,
    unroutable: u64,
}

impl Network {
    /// An empty network at time 0.
    #[must_use]
    pub fn new(seed: u64) -> Network {
        Network {
            now_ns: 0,
            rng: Rng::with_seed(seed),
            nodes: BTreeMap::new(),
            paths: BTreeMap::new(),
            events: BinaryHeap::new(),
            pushed: 0,
            steps: 0,
            fingerprint: 0xcbf2_9ce4_8422_2325,
            unroutable: 0,
        }
    }

    /// Adds a node whose socket queues at most `inbox_bytes`; what arrives on top is dropped. Returns its address.
    pub fn node(&mut self, inbox_bytes: usize) -> SocketAddr {
        let number = self.nodes.len() as u32 + 1;
        let address = SocketAddr::from((Ipv4Addr::from(0x0a00_0000 | number), 7440));
        let node = Node {
            inbox: VecDeque::new(),
            inbox_bytes: 0,
            capacity_bytes: inbox_bytes,
            dropped: 0,
            turn_ns: None,
            paused_until_ns: 0,
        };
        self.nodes.insert(address, node);
        address
    }

    /// Joins two nodes by the same kind of link in both directions.
    pub fn link(&mut self, a: SocketAddr, b: SocketAddr, link: Link) {
        self.link_one_way(a, b, link.clone());
        self.link_one_way(b, a, link);
    }

    /// Sets the link in one direction; counters and what is under way stay.
    pub fn link_one_way(&mut self, from: SocketAddr, to: SocketAddr, link: Link) {
        match self.paths.get_mut(&(from, to)) {
            Some(path) => path.link = link,
            None => drop(self.paths.insert((from, to), Path::new(link))),
        }
    }

    /// Cuts both directions between two nodes until `until_ns`; what is under way still arrives.
    pub fn cut(&mut self, a: SocketAddr, b: SocketAddr, until_ns: u64) {
        self.cut_one_way(a, b, until_ns);
        self.cut_one_way(b, a, until_ns);
    }

    /// Cuts one direction until `until_ns`.
    pub fn cut_one_way(&mut self, from: SocketAddr, to: SocketAddr, until_ns: u64) {
        if let Some(path) = self.paths.get_mut(&(from, to)) {
            path.cut_until_ns = until_ns;
        }
    }

    /// Keeps a node from having a turn until `until_ns` (a busy or stopped process); its socket goes on queueing.
    pub fn pause(&mut self, node: SocketAddr, until_ns: u64) {
        let Some(state) = self.nodes.get_mut(&node) else {
            return;
        };
        state.paused_until_ns = until_ns;
        if let Some(at) = state.turn_ns
            && at < until_ns
        {
            state.turn_ns = Some(until_ns);
            self.push(until_ns, Event::Turn { node });
        }
    }

    /// Sends one datagram, which is not capable of ECN.
    pub fn send(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        self.send_with(from, to, bytes, 0);
    }

    /// Sends one datagram with these two bits of ECN in its IP header.
    fn send_with(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8], ecn: u8) {
        let (events, pushed, now_ns) = (&mut self.events, &mut self.pushed, self.now_ns);
        let Some(path) = self.paths.get_mut(&(from, to)) else {
            self.unroutable += 1;
            return;
        };
        path.carry(&mut self.rng, now_ns, (bytes.to_vec(), ecn), |at_ns, bytes, ecn| {
            *pushed += 1;
            events.push(Reverse((at_ns, *pushed, Event::Arrive { to, from, bytes, ecn })));
        });
    }

    /// Sends a super-packet: datagrams of `stride` bytes (the last may be shorter), each with its own delay, loss or copies.
    pub fn send_super(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8], stride: usize) {
        self.send_super_with(from, to, (bytes, stride), 0);
    }

    /// The same with these two bits of ECN in the IP headers.
    pub fn send_super_with(&mut self, from: SocketAddr, to: SocketAddr, (bytes, stride): (&[u8], usize), ecn: u8) {
        for datagram in bytes.chunks(stride.max(1)) {
            self.send_with(from, to, datagram, ecn);
        }
    }

    /// Gives a node a turn at `at_ns` even if nothing arrives; an earlier turn that stands already is kept.
    pub fn wake_at(&mut self, node: SocketAddr, at_ns: u64) {
        let Some(state) = self.nodes.get_mut(&node) else {
            return;
        };
        let at_ns = at_ns.max(state.paused_until_ns).max(self.now_ns);
        if state.turn_ns.is_none_or(|turn| at_ns < turn) {
            state.turn_ns = Some(at_ns);
            self.push(at_ns, Event::Turn { node });
        }
    }

    /// Lets time pass until a node has a turn: something arrived for it, or it asked to be woken. `None`: nothing will
    /// ever happen again. The node should read all that came ([`Network::receive`]) and ask for its next turn.
    pub fn step(&mut self) -> Option<SocketAddr> {
        while let Some(&Reverse((at_ns, ..))) = self.events.peek() {
            if let Some(node) = self.step_until(at_ns) {
                return Some(node);
            }
        }
        None
    }

    /// The same, but only up to `until_ns`: that is the time when no node has a turn before.
    pub fn step_until(&mut self, until_ns: u64) -> Option<SocketAddr> {
        while self.events.peek().is_some_and(|Reverse((at_ns, ..))| *at_ns <= until_ns) {
            let Some(Reverse((at_ns, _, event))) = self.events.pop() else {
                break;
            };
            debug_assert!(at_ns >= self.now_ns);
            match event {
                Event::Arrive { to, from, bytes, ecn } => {
                    self.now_ns = at_ns;
                    self.note(at_ns, &bytes);
                    self.arrive(to, from, bytes, ecn);
                }
                Event::Turn { node } => {
                    let Some(state) = self.nodes.get_mut(&node) else {
                        continue;
                    };
                    if state.turn_ns == Some(at_ns) {
                        state.turn_ns = None;
                        self.now_ns = at_ns;
                        self.steps += 1;
                        self.note(at_ns, &[]);
                        return Some(node);
                    }
                }
            }
        }
        self.now_ns = self.now_ns.max(until_ns);
        None
    }

    /// The next datagram in the node's socket, joined with those that lie behind it as the kernel would (UDP GRO):
    /// of the same sender, length and ECN bits, the last perhaps shorter.
    pub fn receive(&mut self, node: SocketAddr) -> Option<Frame> {
        let state = self.nodes.get_mut(&node)?;
        let (from, bytes, ecn) = state.inbox.pop_front()?;
        let mut frame = Frame { from, stride: bytes.len(), bytes, ecn };
        for _ in 1..FRAME_DATAGRAMS {
            let fits = state.inbox.front().is_some_and(|(sender, next, bits)| {
                (*sender, *bits) == (from, ecn)
                    && !next.is_empty()
                    && next.len() <= frame.stride
                    && frame.bytes.len() + next.len() <= FRAME_BYTES
            });
            if !fits {
                break;
            }
            let Some((_, next, _)) = state.inbox.pop_front() else {
                break;
            };
            frame.bytes.extend_from_slice(&next);
            if next.len() < frame.stride {
                break;
            }
        }
        state.inbox_bytes -= frame.bytes.len();
        Some(frame)
    }

    /// The time in ns.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Turns so far: what bounds a run that never ends.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The counts of the link in one direction.
    #[must_use]
    pub fn stats(&self, from: SocketAddr, to: SocketAddr) -> LinkStats {
        self.paths.get(&(from, to)).map_or_else(LinkStats::default, |path| path.stats)
    }

    /// Datagrams that the node's full socket dropped.
    #[must_use]
    pub fn dropped(&self, node: SocketAddr) -> u64 {
        self.nodes.get(&node).map_or(0, |state| state.dropped)
    }

    /// Datagrams that were sent where no link leads.
    #[must_use]
    pub fn unroutable(&self) -> u64 {
        self.unroutable
    }

    /// A digest of everything that happened: the same for the same run.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn push(&mut self, at_ns: u64, event: Event) {
        self.pushed += 1;
        self.events.push(Reverse((at_ns, self.pushed, event)));
    }

    fn arrive(&mut self, to: SocketAddr, from: SocketAddr, bytes: Vec<u8>, ecn: u8) {
        let Some(state) = self.nodes.get_mut(&to) else {
            return;
        };
        if state.inbox_bytes + bytes.len() > state.capacity_bytes {
            state.dropped += 1;
            return;
        }
        state.inbox_bytes += bytes.len();
        state.inbox.push_back((from, bytes, ecn));
        self.wake_at(to, self.now_ns);
    }

    /// FNV-1a, eight bytes at a time: it has to be cheap, not strong.
    fn note(&mut self, at_ns: u64, bytes: &[u8]) {
        let words = bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        for word in [at_ns, bytes.len() as u64].into_iter().chain(words) {
            self.fingerprint = (self.fingerprint ^ word).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes that send each other what they get, a little longer each time.
    fn echo(seed: u64) -> (u64, u64) {
        let mut network = Network::new(seed);
        let (a, b) = (network.node(4000), network.node(4000));
        let link = Link {
            jitter_ns: 100_000,
            loss: 0.02,
            duplication: 0.05,
            reordering: 0.1,
            reordering_ns: 1_000_000,
            corruption: 0.1,
            ..Link::new(1_000_000).with_bandwidth(1_000_000, 3000)
        };
        network.link(a, b, link);
        network.send_super(a, b, &[7; 1000], 300);
        while network.now_ns() < 200_000_000 {
            let Some(node) = network.step() else { break };
            let peer = if node == a { b } else { a };
            while let Some(frame) = network.receive(node) {
                assert_eq!(frame.from, peer);
                network.send_super(node, peer, &frame.bytes, frame.stride);
            }
            network.pause(node, network.now_ns() + 50_000);
        }
        assert!(network.steps() > 20);
        (network.fingerprint(), network.now_ns())
    }

    #[test]
    fn the_same_seed_makes_the_same_run() {
        assert_eq!(echo(42), echo(42));
        assert_ne!(echo(42), echo(43));
    }

    #[test]
    fn a_cut_drops_what_is_sent_meanwhile_and_heals() {
        let mut network = Network::new(0);
        let (a, b) = (network.node(1000), network.node(1000));
        network.link(a, b, Link::new(10));
        network.send(a, b, b"before");
        network.cut(a, b, 100);
        network.send(a, b, b"meanwhile");
        assert_eq!(network.step(), Some(b));
        assert_eq!(network.receive(b).unwrap().bytes, b"before");
        network.wake_at(a, 100);
        assert_eq!((network.step(), network.now_ns()), (Some(a), 100));
        network.send(a, b, b"after");
        assert_eq!(network.step(), Some(b));
        assert_eq!(network.receive(b).unwrap().bytes, b"after");
        assert_eq!(network.stats(a, b).cut, 1);
        assert_eq!(network.step(), None);
    }

    #[test]
    fn a_paused_node_finds_what_came_meanwhile_joined_up_to_its_socket_s_bound() {
        let mut network = Network::new(0);
        let (a, b) = (network.node(1000), network.node(1000));
        network.link(a, b, Link::new(10));
        network.pause(b, 5000);
        network.wake_at(b, 1);
        network.send_super(a, b, &[1; 900], 200);
        network.send(a, b, &[2; 100]);
        network.send(a, b, &[3; 1]);
        assert_eq!((network.step(), network.now_ns()), (Some(b), 5000));
        let frame = network.receive(b).unwrap();
        assert_eq!((frame.bytes.len(), frame.stride), (900, 200));
        assert_eq!(network.receive(b).unwrap().bytes, [2; 100]);
        assert_eq!(network.receive(b), None);
        assert_eq!(network.dropped(b), 1);
        assert_eq!(network.step(), None);
    }

    #[test]
    fn a_wake_up_moves_forward_but_not_back() {
        let mut network = Network::new(0);
        let a = network.node(1000);
        network.wake_at(a, 50);
        network.wake_at(a, 20);
        network.wake_at(a, 90);
        assert_eq!((network.step_until(19), network.now_ns()), (None, 19));
        assert_eq!((network.step(), network.now_ns()), (Some(a), 20));
        assert_eq!((network.step_until(40), network.now_ns()), (None, 40));
        assert_eq!(network.step(), None);
        network.send(a, a, b"no link leads here");
        assert_eq!(network.unroutable(), 1);
    }
}
