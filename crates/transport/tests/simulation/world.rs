//! A client and a server, the network between them, and time.

use crate::host::{Host, HostPlan, Peer};
use crossdock_sim::{Link, LinkStats, Network, Rng};

/// The most turns of a run: far beyond what any takes, so that only what never ends meets it.
const MAX_STEPS: u64 = 3_000_000;

/// A client that dials a server, and time.
pub(crate) struct World {
    pub(crate) network: Network,
    pub(crate) client: Host,
    pub(crate) server: Host,
}

impl World {
    /// The client at one end of `up` (towards the server) and `down` (back).
    pub(crate) fn new(seed: u64, client: HostPlan, server: HostPlan, up: Link, down: Link) -> World {
        let mut network = Network::new(seed);
        let (near, far) = (network.node(8 << 20), network.node(8 << 20));
        network.link_one_way(near, far, up);
        network.link_one_way(far, near, down);
        network.wake_at(near, 0);
        let mut rng = Rng::with_seed(!seed);
        World {
            client: Host::client(near, far, client, rng.fork()),
            server: Host::server(far, server, rng.fork()),
            network,
        }
    }

    /// Lets time pass until `done`, or to `limit_ns` exactly; returns whether it was done.
    pub(crate) fn run(&mut self, limit_ns: u64, done: impl Fn(&World) -> bool) -> bool {
        while !done(self) {
            let Some(node) = self.network.step_until(limit_ns) else {
                return false;
            };
            assert!(self.network.steps() < MAX_STEPS, "a run that never ends: {}", self.report());
            if node == self.client.address {
                self.client.turn(&mut self.network);
            } else {
                self.server.turn(&mut self.network);
            }
        }
        true
    }

    /// Runs until both sides have everything.
    pub(crate) fn finish(&mut self, limit_ns: u64) {
        let finished = self.run(limit_ns, World::is_finished);
        assert!(finished, "not finished: {}", self.report());
    }

    /// Whether both sides have sent and received everything.
    pub(crate) fn is_finished(&self) -> bool {
        let (client, server) = (self.client.peers.values().next(), self.server.peers.values().next());
        let (Some(client), Some(server)) = (client, server) else {
            return false;
        };
        let arrived =
            |to: &Peer, from: &Peer| to.sink.messages + from.source.dropped.len() as u64 == from.source.plan.messages;
        let (client_waits, server_waits) = (client.sink.waiting_units > 0, server.sink.waiting_units > 0);
        !client_waits
            && !server_waits
            && client.is_done()
            && server.is_done()
            && arrived(server, client)
            && arrived(client, server)
    }

    /// Lets the path heal and everything that is under way arrive.
    pub(crate) fn settle(&mut self) {
        self.network.link(self.client.address, self.server.address, Link::new(1_000_000));
        let until_ns = self.network.now_ns() + 2_000_000_000;
        self.run(until_ns, |_| false);
    }

    /// The counts of the links towards the server and back.
    pub(crate) fn links(&self) -> (LinkStats, LinkStats) {
        let (client, server) = (self.client.address, self.server.address);
        (self.network.stats(client, server), self.network.stats(server, client))
    }

    /// The events, for a failing test's message.
    pub(crate) fn report(&self) -> String {
        let (up, down) = self.links();
        let mut text = format!(
            "at {} ms after {} turns\nup {up:?}\ndown {down:?}\n",
            self.network.now_ns() / 1_000_000,
            self.network.steps()
        );
        for (name, host) in [("client", &self.client), ("server", &self.server)] {
            text += &format!("{name}: {:?}\n", host.counters);
            for peer in host.peers.values() {
                let sender = &peer.session.sender;
                text += &format!(
                    "  sent {}/{} taken {} stats {:?} rtt {} µs backlog {} credit given {} held {} dead {:?}\n",
                    peer.source.is_done(),
                    peer.source.plan.messages,
                    peer.sink.messages,
                    sender.stats(),
                    sender.rtt_ns() / 1000,
                    sender.backlog_bytes(),
                    peer.session.receiver.credit(),
                    peer.session.receiver.held(),
                    peer.dead_ns,
                );
            }
        }
        text
    }
}
