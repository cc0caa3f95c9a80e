//! Source routes at a node ([`crossdock_transport::route`]): the neighbours that packets go to and come from, the packets that are
//! handed on, and the clients whose routes end here.
//!
//! The node dials each neighbour, with keys that it uses to send only; what comes from a neighbour, that one has sealed with keys of its
//! own handshake. A client whose route ends here is known to all other modules by an address that stands for its route.

use super::Net;
use crate::access::{Access, Action};
use crate::config::{ContextConfig, MAX_NEIGHBOURS, NodeAddress};
use crate::counters::DropReason;
use crate::io::Received;
use crate::principal::Principal;
use crossdock_device::random;
use crossdock_device::{Device, SealedSender, Sent};
use crossdock_transport::route::{
    Course, MAX_REFUSAL_BYTES, MAX_ROUTE_HEADER_BYTES, NodeId, ROUTED, RouteHeader, RouteRefusal, RouteStep, RoutedRun,
    behind_header, next_run, take_headers_off,
};
use crossdock_transport::secure::{Initiator, OVERHEAD_BYTES, PublicKey, Responder};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, IoSlice};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;

/// The longest packet that waits for keys, in bytes: one of the handshake between a route's ends.
const HELD_BYTES: usize = 512;
/// Keys whose rights are remembered.
const MAX_RIGHTS: usize = 4096;
/// ReturnRoutes of clients that are kept beside those of clients with keys.
const MORE_RETURNS: usize = 256;
/// Refusals, and events of them, come no closer together than this, in ns.
const REFUSE_EVERY_NS: u64 = 10_000_000;
/// The packets with which a session over a route begins are no longer than this on each hop, in bytes: an Ethernet's, since the later
/// hops' interfaces are not known here.
const FIRST_HOP_BYTES: usize = 1472;
/// The network of the addresses that stand for routes: 100::/64, from which no packet comes (RFC 6666).
const ROUTE_NETWORK: [u16; 4] = [0x0100, 0, 0, 0];

/// Whether an address stands for a route.
#[inline]
pub(super) fn is_route(addr: SocketAddr) -> bool {
    matches!(addr, SocketAddr::V6(addr) if addr.ip().segments()[..4] == ROUTE_NETWORK)
}

/// A neighbour.
struct Neighbour {
    id: NodeId,
    name: String,
    addr: SocketAddr,
    key: PublicKey,
    initiator: Initiator,
    /// The last short packet for it that found no keys; it goes once there are.
    held: Option<Vec<u8>>,
}

/// The route back to a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReturnRoute {
    answer: RouteHeader,
    /// The place of the neighbour that it leads over.
    neighbour: usize,
}

/// The node's part in source routes. Only the home context has one, and only if there are neighbours.
pub(crate) struct Routes {
    own: NodeId,
    neighbours: Vec<Neighbour>,
    access: Arc<Access>,
    /// The neighbours that each key may send to.
    rights: HashMap<PublicKey, u64>,
    /// The routes back to clients that have keys here.
    returns: HashMap<SocketAddr, ReturnRoute>,
    /// That of the frame in work.
    current: Option<(SocketAddr, ReturnRoute)>,
    /// Makes the addresses that stand for routes hard to foresee.
    secret: [u8; 16],
    sender: SealedSender,
    /// Envelopes between the ends of a route, before they are put into those of the hop.
    inner: Box<[u8]>,
    quiet_until_ns: u64,
    /// Names of nodes, for people.
    names: Vec<(NodeId, String)>,
}

/// The result of a step.
enum Next {
    /// The route ends here; the neighbour that it leads over.
    Arrived(usize),
    /// The neighbour, and its place in the route.
    Neighbour(usize, u8),
    Client(SocketAddr),
}

/// Why a packet stays here.
enum Stop {
    Refused(RouteRefusal),
    /// The client that it is for has no keys here any more.
    NoClient,
}

impl From<RouteRefusal> for Stop {
    fn from(why: RouteRefusal) -> Stop {
        Stop::Refused(why)
    }
}

impl Routes {
    /// The part of a node with neighbours and a key of its own.
    pub(crate) fn new(config: &ContextConfig, access: &Arc<Access>) -> Option<Routes> {
        let private = config.security.key.as_ref().filter(|_| !config.neighbours.is_empty())?;
        let neighbour = |node: &NodeAddress| {
            let key = node.key?;
            // So that the neighbour has the keys where its routes are.
            let initiator = Initiator::new(private.clone(), key, true).one_way();
            let (name, id) = (node.name.clone(), NodeId::of_name(&node.name));
            Some(Neighbour { id, name, addr: node.address, key, initiator, held: None })
        };
        let names = config.nodes.iter().map(|node| &node.name).chain([&config.node]);
        // The system had random bytes for the other secrets of this daemon.
        let secret = random().ok()?;
        Some(Routes {
            own: NodeId::of_name(&config.node),
            neighbours: config.neighbours.iter().filter_map(neighbour).take(MAX_NEIGHBOURS).collect(),
            access: Arc::clone(access),
            rights: HashMap::new(),
            returns: HashMap::new(),
            current: None,
            secret,
            sender: SealedSender::new(OVERHEAD_BYTES),
            inner: vec![0; crossdock_device::MAX_SUPER_BYTES].into(),
            quiet_until_ns: 0,
            names: names.map(|name| (NodeId::of_name(name), name.clone())).collect(),
        })
    }

    /// The neighbour with a key.
    fn of_key(&self, key: PublicKey) -> Option<usize> {
        self.neighbours.iter().position(|neighbour| neighbour.key == key)
    }

    /// The next step of packets that came in envelopes of `hop`.
    fn next(&mut self, header: &RouteHeader, hop: PublicKey, responder: &Responder) -> Result<Next, Stop> {
        let from = self.of_key(hop);
        let id = from.and_then(|at| self.neighbours.get(at)).map(|neighbour| neighbour.id);
        match (header.step(self.own, id)?, from) {
            (RouteStep::Arrived, Some(from)) => Ok(Next::Arrived(from)),
            (RouteStep::To(place), _) => {
                let id = header.route.nodes().get(usize::from(place));
                let found = self.neighbours.iter().enumerate().find(|(_, neighbour)| Some(&neighbour.id) == id);
                let (next, key) = found.map(|(at, found)| (at, found.key)).ok_or(RouteRefusal::UnknownHop)?;
                // Whoever may send to a hop may be answered by it.
                let (sender, receiver) = match (header.course, from) {
                    (Course::Forward, _) => (hop, next),
                    (_, Some(from)) => (key, from),
                    (_, None) => return Err(RouteRefusal::Misplaced.into()),
                };
                self.allow(sender, receiver)?;
                Ok(Next::Neighbour(next, place))
            }
            (RouteStep::ToClient, Some(from)) => {
                let (addr, key) = responder.client_of(header.origin).ok_or(Stop::NoClient)?;
                self.allow(key, from)?;
                Ok(Next::Client(addr))
            }
            (RouteStep::Arrived | RouteStep::ToClient, None) => Err(RouteRefusal::Misplaced.into()),
        }
    }

    /// Checks whether a key may send to a neighbour: by a look-up, once it has been asked for.
    fn allow(&mut self, key: PublicKey, neighbour: usize) -> Result<(), RouteRefusal> {
        if self.access.rules().is_none() {
            return Ok(());
        }
        let mask = match self.rights.get(&key) {
            Some(mask) => *mask,
            None => self.look_up(key),
        };
        if mask >> neighbour & 1 == 1 { Ok(()) } else { Err(RouteRefusal::Forbidden) }
    }

    #[cold]
    fn look_up(&mut self, key: PublicKey) -> u64 {
        let caller = self.access.caller(Principal::Key(key));
        let may = |neighbour: &Neighbour| self.access.decide(&caller, Action::Route(&neighbour.name)).is_ok();
        let bits = self.neighbours.iter().enumerate();
        let mask = bits.fold(0, |mask, (at, neighbour)| mask | u64::from(may(neighbour)) << at);
        if self.rights.len() >= MAX_RIGHTS {
            self.rights.clear();
        }
        self.rights.insert(key, mask);
        mask
    }

    /// Keys have other names from now on.
    pub(super) fn forget_rights(&mut self) {
        self.rights.clear();
    }

    /// The address that stands for a route. Nobody can foresee it.
    fn address_of(&self, back: &ReturnRoute) -> SocketAddr {
        let hash_of = |of: &dyn Fn(&mut DefaultHasher)| {
            let mut hasher = DefaultHasher::new();
            self.secret.hash(&mut hasher);
            of(&mut hasher);
            hasher.finish()
        };
        let hash = hash_of(&|hasher| (back.answer.origin, back.answer.route, back.neighbour).hash(hasher));
        let [a, b, c, d] = [48, 32, 16, 0].map(|shift| (hash >> shift) as u16);
        let [n0, n1, n2, n3] = ROUTE_NETWORK;
        let port = hash_of(&|hasher| hash.hash(hasher)) as u16 | 1;
        SocketAddrV6::new(Ipv6Addr::new(n0, n1, n2, n3, a, b, c, d), port, 0, 0).into()
    }

    fn return_route(&self, addr: SocketAddr) -> Option<ReturnRoute> {
        let current = self.current.filter(|(of, _)| *of == addr).map(|(_, back)| back);
        current.or_else(|| self.returns.get(&addr).copied())
    }

    /// The client at the end of the route has keys here.
    pub(super) fn keep_route(&mut self, addr: SocketAddr, responder: &Responder) {
        let Some((_, back)) = self.current.filter(|(of, _)| *of == addr) else { return };
        if self.returns.contains_key(&addr) {
            return;
        }
        if self.returns.len() >= responder.clients() + MORE_RETURNS {
            self.returns.retain(|addr, _| responder.client_at(*addr).is_some());
        }
        self.returns.insert(addr, back);
    }

    /// Whether envelopes wait that the device had no room for.
    pub(super) fn is_waiting(&self) -> bool {
        self.sender.is_waiting()
    }

    /// Sends the envelopes that the device had no room for.
    pub(super) fn flush(&mut self, device: &mut dyn Device) -> Sent {
        self.sender.flush(device)
    }

    /// Bytes of the packets to the end of a route that a packet of `bytes(ADDRESS)` bytes to its neighbour has room for.
    pub(super) fn packet_bytes(&self, to: SocketAddr, bytes: impl Fn(SocketAddr) -> usize) -> usize {
        let back = self.return_route(to).and_then(|back| Some((back, self.neighbours.get(back.neighbour)?)));
        back.map_or(0, |(back, neighbour)| {
            bytes(neighbour.addr).saturating_sub(2 * OVERHEAD_BYTES + back.answer.bytes()) & !7
        })
    }

    /// The same of the packets with which a session begins.
    pub(super) fn first_packet_bytes(&self, to: SocketAddr, bytes: impl Fn(SocketAddr) -> usize) -> usize {
        self.packet_bytes(to, |addr| bytes(addr).min(FIRST_HOP_BYTES))
    }

    /// Sends packets of a session to the client at the end of a route.
    pub(super) fn send_answer(
        &mut self,
        (device, responder, now_ns): (&mut dyn Device, &mut Responder, u64),
        to: SocketAddr,
        slices: &[IoSlice<'_>],
        stride: usize,
    ) -> io::Result<Sent> {
        let back = self.return_route(to).ok_or(io::ErrorKind::NotConnected)?;
        let (mut room, Routes { neighbours, sender, inner, .. }) = ([0; MAX_ROUTE_HEADER_BYTES], self);
        let header: &[u8] = back.answer.write(&mut room);
        let Neighbour { initiator, addr, .. } =
            neighbours.get_mut(back.neighbour).ok_or(io::ErrorKind::NotConnected)?;
        dial(initiator, *addr, device, now_ns);
        sender.set_overhead(2 * OVERHEAD_BYTES + header.len());
        sender.send(device, *addr, (slices, stride), |part, stride, out| {
            let sealed = responder.seal(to, part, stride, inner, now_ns)?;
            let routed = behind_header(header, inner.get(..sealed.bytes)?, sealed.stride);
            initiator.seal(routed, sealed.stride + header.len(), out, now_ns).map(|sealed| sealed.bytes)
        })
    }

    /// Sends a packet of the handshake to a client whose route is that of the frame in work.
    pub(super) fn send_reply(
        &mut self,
        device: &mut dyn Device,
        to: SocketAddr,
        reply: &[u8],
        now_ns: u64,
    ) -> io::Result<Sent> {
        let back = self.return_route(to).ok_or(io::ErrorKind::NotConnected)?;
        let mut room = [0; MAX_ROUTE_HEADER_BYTES];
        let header: &[u8] = back.answer.write(&mut room);
        let slices = [IoSlice::new(header), IoSlice::new(reply)];
        self.send_to(back.neighbour, (device, now_ns), &slices, header.len() + reply.len())
    }

    /// Sends routed packets to a neighbour; one for which there are no keys yet waits for them.
    pub(super) fn send_to(
        &mut self,
        neighbour: usize,
        (device, now_ns): (&mut dyn Device, u64),
        slices: &[IoSlice<'_>],
        stride: usize,
    ) -> io::Result<Sent> {
        let Routes { neighbours, sender, .. } = self;
        let Neighbour { initiator, addr, held, .. } =
            neighbours.get_mut(neighbour).ok_or(io::ErrorKind::NotConnected)?;
        dial(initiator, *addr, device, now_ns);
        if !initiator.has_keys() {
            let is_short = slices.iter().map(|slice| slice.len()).sum::<usize>() <= HELD_BYTES;
            if !is_short {
                return Err(io::ErrorKind::NotConnected.into());
            }
            *held = Some(slices.iter().flat_map(|slice| slice.iter().copied()).collect());
            return Ok(Sent::Done);
        }
        sender.set_overhead(OVERHEAD_BYTES);
        sender.send(device, *addr, (slices, stride), |part, stride, out| {
            initiator.seal(part, stride, out, now_ns).map(|sealed| sealed.bytes)
        })
    }

    /// Takes a frame with an answer to this node's own handshake; whether it is one of a neighbour.
    pub(super) fn hear(
        &mut self,
        (frame, stride, from): (&mut [u8], usize, SocketAddr),
        device: &mut dyn Device,
        now_ns: u64,
    ) -> bool {
        let is_at =
            |addr: SocketAddr| addr.ip().to_canonical() == from.ip().to_canonical() && addr.port() == from.port();
        let Some(at) = self.neighbours.iter().position(|neighbour| is_at(neighbour.addr)) else { return false };
        let neighbour = self.neighbours.get_mut(at);
        debug_assert!(neighbour.is_some(), "neighbour {at} was found");
        let Some(Neighbour { initiator, addr, held, .. }) = neighbour else { return false };
        let heard = initiator.open_frame(frame, stride, now_ns);
        dial(initiator, *addr, device, now_ns);
        if let Some(packet) = held.take_if(|_| heard.has_keys) {
            // If the device is full, it is as good as lost.
            let _ = self.send_to(at, (device, now_ns), &[IoSlice::new(&packet)], packet.len());
        }
        true
    }

    /// The nodes of a client's route, in words.
    fn words(&self, header: &RouteHeader) -> String {
        let name = |node: &NodeId| {
            let known = self.names.iter().find(|(id, _)| id == node);
            known.map_or_else(|| node.to_string(), |(_, name)| name.clone())
        };
        header.route.nodes().iter().map(name).collect::<Vec<_>>().join(",")
    }

    /// The event of a refusal.
    #[cold]
    fn report(&self, header: &RouteHeader, hop: PublicKey, why: RouteRefusal) {
        let caller = self.access.caller(Principal::Key(hop));
        let next = usize::from(header.place) + 1;
        let next = header.route.nodes().get(next).and_then(|id| self.neighbours.iter().find(|node| node.id == *id));
        let why = match (why, next) {
            (RouteRefusal::Forbidden, Some(next)) => match self.access.decide(&caller, Action::Route(&next.name)) {
                Err(denial) => denial.to_string(),
                Ok(_) => return,
            },
            (RouteRefusal::Forbidden, None) => format!("{caller} may not send over this node"),
            (RouteRefusal::Loop, _) => format!("{caller} sent a packet whose route is a loop"),
            (RouteRefusal::UnknownHop, _) => format!(
                "{caller} sent a packet to a node that is no neighbour here (`route = true` in a [[node.peer]] section)"
            ),
            (RouteRefusal::Misplaced, _) => {
                format!("{caller} sent a packet whose route has another node, or another hop before, at this place")
            }
        };
        self.access.refuse_route(Some(&format!("{why}; the route is {}", self.words(header))));
    }
}

/// Goes on with the handshake with a neighbour, or begins one, if that is due. It is driven by the packets that are to be sent, which
/// their senders repeat, so it needs no timer.
fn dial(initiator: &mut Initiator, addr: SocketAddr, device: &mut dyn Device, now_ns: u64) {
    if initiator.should_begin(now_ns)
        && let Ok(random) = random()
    {
        initiator.begin(now_ns, random);
    }
    if let Some(packet) = initiator.poll(now_ns) {
        // If the device is full, it is repeated.
        let _ = device.send(addr, &[IoSlice::new(packet)], packet.len());
    }
}

/// The counter of packets that a node does not hand on.
fn reason(why: RouteRefusal) -> DropReason {
    match why {
        RouteRefusal::Loop => DropReason::RouteLoop,
        RouteRefusal::UnknownHop => DropReason::RouteUnknownHop,
        RouteRefusal::Forbidden => DropReason::RouteForbidden,
        RouteRefusal::Misplaced => DropReason::RouteMisplaced,
    }
}

/// Routed packets, which have come in the envelopes of a hop.
impl Net {
    /// Whether the packets of a frame are routed, as the first of them is. They are only in envelopes.
    #[inline]
    pub(crate) fn is_routed(&self, frame: &Received) -> bool {
        frame.buffer.first() == Some(&ROUTED) && self.client.is_some() && !is_route(frame.from)
    }

    /// Hands routed packets on. Those whose route ends here are the next of [`Net::next_arrived`].
    pub(crate) fn take_routed(&mut self, frame: Received) {
        let Received { buffer, len, stride, from, ecn } = frame;
        // Nobody else has it yet.
        let (Some(hop), Ok(mut bytes)) = (self.client, buffer.try_mut()) else { return };
        let (mut at, stride) = (0, stride.max(1));
        while let Some(run) = next_run(&bytes[..len], stride, at) {
            at = match run {
                Ok(run) => {
                    self.take_routed_run(&mut bytes[run.start..run.end], &run, (hop, from, stride, ecn));
                    run.end
                }
                Err(end) => {
                    self.counters.drop(DropReason::RouteMalformed, 1);
                    end
                }
            };
        }
    }

    fn take_routed_run(
        &mut self,
        packets: &mut [u8],
        run: &RoutedRun,
        (hop, from, stride, ecn): (PublicKey, SocketAddr, usize, u8),
    ) {
        let (count, header) = (packets.len().div_ceil(stride) as u64, &run.header);
        let device = &mut self.device;
        let (Some(routes), Some(keys)) = (&mut device.routes, &device.keys) else {
            // This node has no neighbours.
            return self.counters.drop(DropReason::RouteUnknownHop, count);
        };
        let (neighbour, place) = match routes.next(header, hop, &keys.responder) {
            Ok(Next::Arrived(neighbour)) => return self.arrive(packets, header, (neighbour, stride, ecn)),
            Ok(Next::Neighbour(neighbour, place)) => (Ok(neighbour), place),
            Ok(Next::Client(addr)) => (Err(addr), 0),
            Err(Stop::NoClient) => return self.counters.drop(DropReason::RouteUnreachable, count),
            Err(Stop::Refused(why)) => return self.refuse_routed(header, why, (hop, from, count)),
        };
        let is_first = header.course == Course::Forward && header.place == 0;
        let origin = if is_first { keys.responder.index_at(from).unwrap_or_default() } else { header.origin };
        packets.chunks_mut(stride).for_each(|packet| RouteHeader::redirect(packet, place, origin));
        device.device.set_ecn(ecn);
        let sent = match neighbour {
            Ok(neighbour) => device.send_to_neighbour(neighbour, packets, stride),
            Err(client) => device.send_to_client(client, packets, stride),
        };
        device.device.set_ecn(0);
        match sent {
            Ok(Sent::Done) => self.counters.packets_routed += count,
            // Its sender sends it again.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                self.counters.drop(DropReason::RouteUnreachable, count);
            }
            Ok(Sent::Full) | Err(_) => self.counters.drop(DropReason::SendRefused, count),
        }
    }

    /// Packets whose route ends here: their payloads wait to be taken as a frame of the client.
    fn arrive(&mut self, packets: &[u8], header: &RouteHeader, (neighbour, stride, ecn): (usize, usize, u8)) {
        let Some(mut buffer) = self.pool.alloc(packets.len()) else {
            return self.counters.drop(DropReason::NoBuffer, packets.len().div_ceil(stride) as u64);
        };
        let run = &mut buffer[..packets.len()];
        run.copy_from_slice(packets);
        let len = take_headers_off(run, stride, header.bytes());
        let Some(routes) = self.device.routes.as_ref().filter(|_| len > 0) else {
            return self.counters.drop(DropReason::RouteMalformed, 1);
        };
        let back = ReturnRoute { answer: header.answer(), neighbour };
        let from = routes.address_of(&back);
        let stride = stride.saturating_sub(header.bytes()).clamp(1, len);
        self.scratch.arrived.push_back((back, Received { buffer: buffer.freeze(), len, stride, from, ecn }));
    }

    /// The next frame of a client whose route ends here, since the last call of [`Net::take_routed`].
    pub(crate) fn next_arrived(&mut self) -> Option<Received> {
        let next = self.scratch.arrived.pop_front();
        let routes = self.device.routes.as_mut()?;
        routes.current = next.as_ref().map(|(back, frame)| (frame.from, *back));
        next.map(|(_, frame)| frame)
    }

    #[cold]
    fn refuse_routed(
        &mut self,
        header: &RouteHeader,
        why: RouteRefusal,
        (hop, from, count): (PublicKey, SocketAddr, u64),
    ) {
        self.counters.drop(reason(why), count);
        let device = &mut self.device;
        let now_ns = device.now_ns;
        let Some(routes) = &mut device.routes else { return };
        if now_ns < routes.quiet_until_ns {
            return routes.access.refuse_route(None);
        }
        routes.quiet_until_ns = now_ns + REFUSE_EVERY_NS;
        routes.report(header, hop, why);
        let neighbour = routes.of_key(hop).filter(|_| header.place > 0);
        let mut room = [0; MAX_REFUSAL_BYTES];
        let Some(refusal) = header.refuse(why, &mut room) else { return };
        let sent = match neighbour {
            Some(neighbour) => device.send_to_neighbour(neighbour, refusal, refusal.len()),
            None => device.send_to_client(from, refusal, refusal.len()),
        };
        // It is as good as lost where the device is full.
        self.counters.packets_out += u64::from(matches!(sent, Ok(Sent::Done)));
    }

    /// The route of the client at an address that stands for one, in words.
    pub(crate) fn route_of(&self, addr: SocketAddr) -> Option<String> {
        let routes = self.device.routes.as_ref().filter(|_| is_route(addr))?;
        routes.return_route(addr).map(|back| routes.words(&back.answer))
    }
}
