//! The network side of a context. [`Net`] owns the device, the pool, the peers with their queues and timers, and the pace of
//! the context's turns. Others see peers through its methods only, and what concerns another owner comes back as a result.
//!
//! [`carrier`] is the face that a session over packets ([`packets`]) and an attached client ([`memory`]) share, [`sink`] the
//! one way of a subscription's records to either, [`peers`] the table of both. Imports point from the table down to the
//! packets' memory; nothing here knows the context.

pub(crate) mod carrier;
pub(crate) mod circuits;
pub(crate) mod frames;
pub(crate) mod joining;
mod memory;
mod pace;
pub(crate) mod packets;
pub(crate) mod payload;
pub(crate) mod peers;
pub(crate) mod queues;
pub(crate) mod routes;
pub(crate) mod secure;
mod sessions;
pub(crate) mod sides;
pub(crate) mod sink;
mod space;
mod waiting;

#[cfg(test)]
mod tests;

use crate::clock::Clock;
use crate::config::ContextConfig;
use crate::counters::{Counters, DropReason};
use crate::graph::bounds::needed_buffers;
use crate::io::{HandOver, IoPlace, Received};
use carrier::{Carrier, Wire};
use circuits::Circuits;
use crossdock_device::{Device, DeviceCounters, Frame, Poller};
use crossdock_mailbox::host::{ClientKey, HostInterface};
use crossdock_mailbox::{ClassStats, Pool};
use crossdock_transport::handshake::Close;
use crossdock_transport::secure::PublicKey;
use crossdock_transport::{ControlMessage, MAX_SUPER_BYTES, TrafficClass};
use frames::Packets;
use memory::Attached;
use pace::Pace;
use payload::Payload;
use peers::{Peer, Peers};
use secure::SecureDevice;
use sessions::SessionLimits;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;

/// The socket's key in the poller.
const SOCKET: u64 = 0;

/// The parts of a context's [`Net`].
pub(crate) struct NetParts {
    /// Which of the I/O contexts it belongs to.
    pub(crate) place: IoPlace,
    /// The rings to the other I/O contexts.
    pub(crate) hand_over: HandOver,
    /// The clock of all contexts.
    pub(crate) clock: Clock,
    /// The socket.
    pub(crate) device: SecureDevice,
    /// Bytes of packets that the socket holds.
    pub(crate) held_bytes: u32,
    /// The buffers for what comes and what leaves.
    pub(crate) pool: Pool,
    /// The poller that the context sleeps in.
    pub(crate) poller: Poller,
}

/// The device of a context, its peers and what they are owed, and its pace.
pub(crate) struct Net {
    place: IoPlace,
    hand_over: HandOver,
    device: SecureDevice,
    pool: Pool,
    poller: Poller,
    peers: Peers,
    counters: Counters,
    pace: Pace,
    limits: SessionLimits,
    /// The reserved paths of sessions.
    circuits: Circuits,
    /// (deadline in ns, peer's key): one entry a session, at `armed_ns`; it may come up too early, never too late.
    timers: BTreeSet<(u64, usize)>,
    /// Attached peers that are served each turn until they have caught up.
    lagging: Vec<usize>,
    /// Whether what publishers send waits.
    holds_intake: bool,
    /// When peers with full queues are looked for next, in ns.
    holding_due_ns: u64,
    /// Whether there may be any whose queue is full without that having been noted.
    has_full: bool,
    /// Bound of a peer's queue now, in bytes: the configured one, or its share of the buffers if that is less.
    queue_bytes: u64,
    /// Buffers for super-packets, and how many of them must be free before data is taken in.
    large_buffers: usize,
    needed_buffers: usize,
    /// The longest record that is taken, in bytes.
    most_record_bytes: usize,
    /// Bytes of control and mailbox messages with pieces missing.
    joining_bytes: usize,
    /// Bytes by which windows of sessions have grown.
    grown_bytes: u64,
    /// A record found no memory since this was last asked.
    lacks_memory: bool,
    /// The device took no more packets; the remaining ones are sent in the next turn.
    is_device_full: bool,
    /// Answers to packets of unknown sessions in this turn.
    resets: u32,
    /// The client whose envelopes the frame in work was in; none if it was in none.
    client: Option<PublicKey>,
    /// ECN's bits of the frame in work.
    ecn: u8,
    scratch: Scratch,
}

/// Memory that each turn reuses, so that turns allocate nothing.
#[derive(Default)]
struct Scratch {
    frames: Vec<Frame>,
    packets: Packets,
    /// Packets whose parts have all come.
    whole: VecDeque<Received>,
    /// Frames of clients whose routes end here, with the routes back to them.
    arrived: VecDeque<(routes::ReturnRoute, Received)>,
    dirty: Vec<usize>,
    /// Units that an ack released, until they are taken apart.
    released: Vec<Payload>,
    /// Numbers of clients that are gone.
    ended: Vec<u32>,
}

impl Net {
    /// A network side without peers.
    pub(crate) fn new(parts: NetParts, config: &ContextConfig) -> Net {
        let NetParts { place, hand_over, clock, device, held_bytes, pool, poller } = parts;
        let large_buffers = pool.buffers_for(MAX_SUPER_BYTES);
        Net {
            place,
            hand_over,
            device,
            pool,
            poller,
            peers: Peers::new(place),
            counters: Counters::default(),
            pace: Pace::new(clock, config.spin_us),
            limits: SessionLimits::new(config, held_bytes),
            circuits: Circuits::new(config.max_circuit_bytes),
            timers: BTreeSet::new(),
            lagging: Vec::new(),
            holds_intake: false,
            holding_due_ns: 0,
            has_full: false,
            queue_bytes: config.queue_bytes,
            large_buffers,
            needed_buffers: needed_buffers(0, large_buffers),
            most_record_bytes: config.most_record_bytes(),
            joining_bytes: 0,
            grown_bytes: 0,
            lacks_memory: false,
            is_device_full: false,
            resets: 0,
            client: None,
            ecn: 0,
            scratch: Scratch::default(),
        }
    }

    /// Watches the socket from now on.
    ///
    /// # Errors
    /// The kernel's: the socket cannot be watched.
    pub(crate) fn open(&mut self) -> io::Result<()> {
        self.device.as_fd().map_or(Ok(()), |fd| self.poller.add(fd, SOCKET))
    }

    /// The address of the device.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.device.local_addr()
    }

    /// The counts of the device.
    pub(crate) fn device_counters(&self) -> DeviceCounters {
        self.device.counters()
    }

    /// The counters of the context.
    #[inline]
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The same, to count.
    #[inline]
    pub(crate) fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Counts what is dropped.
    #[inline]
    pub(crate) fn count_drop(&mut self, reason: DropReason, count: u64) {
        self.counters.drop(reason, count);
    }

    /// Buffers for super-packets.
    pub(crate) fn large_buffers(&self) -> usize {
        self.large_buffers
    }

    /// Buffers of the pool that are in use, and all of them.
    pub(crate) fn buffers(&self) -> (u64, u64) {
        let sum =
            |(in_use, all): (u64, u64), class: &ClassStats| (in_use + class.in_use() as u64, all + class.count as u64);
        self.pool.stats().classes.iter().fold((0, 0), sum)
    }

    /// The pool's size, in bytes.
    pub(crate) fn pool_bytes(&self) -> usize {
        self.pool.memory_bytes()
    }

    /// The pool, for a task that runs.
    #[inline]
    pub(crate) fn pool_mut(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Whether so few buffers are free that data is better sent again later.
    #[inline]
    pub(crate) fn is_short_of_buffers(&mut self) -> bool {
        let needed = self.needed_buffers + self.circuits.spare(self.large_buffers);
        !self.pool.has_free(MAX_SUPER_BYTES, needed)
    }
}

/// The table of peers.
impl Net {
    /// A peer by its key.
    #[inline]
    pub(crate) fn peer(&self, key: usize) -> Option<&Peer> {
        self.peers.get(key)
    }

    /// See [`Peers::present`].
    #[inline]
    #[track_caller]
    pub(crate) fn present_peer(&self, key: usize) -> Option<&Peer> {
        self.peers.present(key)
    }

    /// See [`Peers::present`].
    #[inline]
    #[track_caller]
    pub(crate) fn present_peer_mut(&mut self, key: usize) -> Option<&mut Peer> {
        self.peers.present_mut(key)
    }

    /// All peers, with their keys.
    pub(crate) fn peers(&self) -> impl Iterator<Item = (usize, &Peer)> {
        self.peers.iter()
    }

    /// Sessions over packets.
    pub(crate) fn sessions(&self) -> usize {
        self.peers.sessions()
    }

    /// The attached client that a peer is, if it is one.
    #[inline]
    pub(crate) fn client_of(&self, key: usize) -> Option<ClientKey> {
        self.peers.attached(key).map(|attached| attached.client)
    }

    /// The peer that an attached client is, by its number.
    #[inline]
    pub(crate) fn of_client(&self, number: u32) -> Option<usize> {
        self.peers.of_client(number)
    }

    /// Notes that a peer has something to send this turn.
    #[inline]
    pub(crate) fn touch(&mut self, key: usize) {
        self.peers.touch(key);
    }

    /// Whether something is to be sent to a peer.
    #[inline]
    pub(crate) fn is_dirty(&self) -> bool {
        self.peers.is_dirty() || self.device.is_waiting()
    }

    /// Takes in an attached client as a peer, watched from now on.
    ///
    /// # Errors
    /// The system's, and `NotConnected` if the client has gone.
    pub(crate) fn insert_attached(&mut self, client: ClientKey, host: &mut HostInterface) -> io::Result<()> {
        let key = self.peers.insert_attached(Attached::new(host, client, &mut self.poller)?);
        let queue_bytes = self.queue_bytes;
        if let Some((carrier, mut wire)) = self.carrier(key, host) {
            carrier.bound_queue(&mut wire, queue_bytes);
        }
        Ok(())
    }

    /// An attached client has gone, and is a peer only until its deferred packets are taken.
    pub(crate) fn leave(&mut self, key: usize, host: &mut HostInterface) {
        let Some(attached) = self.peers.present_attached_mut(key) else { return };
        host.client_info(attached.client).iter().for_each(|client| self.counters.gone.add(client));
        attached.leave(host, &mut self.poller);
    }

    /// Takes a peer out of the table; nothing is sent to it any more but by [`Net::end`].
    pub(crate) fn remove(&mut self, key: usize) -> Option<Peer> {
        self.disarm(key);
        let within_circuit = self.circuits.close(key);
        let grown_bytes = self.peers.link_mut(key).map_or(0, |link| link.session.grown_bytes());
        self.grown_bytes -= grown_bytes.saturating_sub(within_circuit);
        let peer = self.peers.remove(key)?;
        self.forget_joining(&peer.joining);
        Some(peer)
    }

    /// Ends the session of a peer that was taken out, `why` for the counters; it is sent the reason if there is one.
    pub(crate) fn end(&mut self, mut peer: Peer, host: &mut HostInterface, why: &'static str, close: Option<Close>) {
        let (_, mut wire) = self.split(host);
        peer.carrier_mut().end(&mut wire, why, close);
    }
}

/// The carriers of peers' messages.
impl Net {
    /// The peers, and the parts that their carriers need for a call.
    #[inline]
    fn split<'a>(&'a mut self, host: &'a mut HostInterface) -> (&'a mut Peers, Wire<'a>) {
        let now_ns = self.now_ns();
        let Net { pool, poller, device, counters, peers, .. } = self;
        (peers, Wire { pool, host, poller, device, counters, now_ns })
    }

    /// The carrier of a peer's messages, with what it needs for a call.
    #[inline]
    pub(crate) fn carrier<'a>(
        &'a mut self,
        key: usize,
        host: &'a mut HostInterface,
    ) -> Option<(&'a mut dyn Carrier, Wire<'a>)> {
        let (peers, wire) = self.split(host);
        Some((peers.get_mut(key)?.carrier_mut(), wire))
    }

    /// Queues a control message for a peer.
    pub(crate) fn send(&mut self, key: usize, message: &ControlMessage, host: &mut HostInterface) {
        self.send_control(key, message, message.class(), host);
    }

    /// The same for a message of the class given.
    pub(crate) fn send_control(
        &mut self,
        key: usize,
        message: &ControlMessage,
        class: TrafficClass,
        host: &mut HostInterface,
    ) {
        // It may have gone with what was carried out before, as a subscriber that is over its bound.
        let Some((carrier, mut wire)) = self.carrier(key, host) else { return };
        carrier.send_control(&mut wire, &message.encode(), class);
        if carrier.is_behind() {
            self.note_lagging(key);
        }
        self.touch(key);
    }

    /// A publisher gets new credit unless a stream of its `is_blocked`; an attached one loses it then. The credit for
    /// control depends on no stream.
    #[inline]
    pub(crate) fn grant_credit(&mut self, key: usize, host: &mut HostInterface, is_blocked: impl Fn(usize) -> bool) {
        let (peers, mut wire) = self.split(host);
        // It may have gone with the packet that was taken.
        let Some(peer) = peers.get_mut(key) else { return };
        let is_blocked = peer.publishing().iter().any(|publishing| is_blocked(publishing.stream));
        peer.carrier_mut().grant_credit(&mut wire, is_blocked);
    }
}
