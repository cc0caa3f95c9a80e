//! Source routes: a packet carries the nodes that it takes, and each node hands it on as it is (the HUBs of the Nectar paper, section 2).
//!
//! A routed packet is a *route header* and a payload. It travels from node to node in the envelopes of each hop's own keys
//! ([`crate::secure`]), which seal the header; its payload is an envelope between the client and the last node, which no node between
//! them can open. So a node between them keeps nothing for a session and joins nothing: it reads the header, changes the place in it,
//! and seals the packet for the next hop.
//!
//! The header, little-endian, [`RouteHeader::bytes`] long, which is a multiple of 8:
//!
//! | bytes | field |
//! |---|---|
//! | 0 | 0x80, which is the version of no packet and the first byte of no envelope |
//! | 1 | the course ([`Course`]): 1 forward, 2 backward, 3 a refusal on its way back |
//! | 2 | number of nodes of the route, 2 to 8 |
//! | 3 | place: the node that the packet is sent to, or comes from when it goes to the client, counted from 0 |
//! | 4..8 | origin: the first node's number for the client; 0 from the client |
//! | 8.. | the nodes ([`NodeId`]), 8 bytes each, from the first that the client sends to, to the last |
//!
//! The nodes stay the same in both directions. A packet goes forward from place 0 on, an answer goes backward to place 0 and from there to
//! the client that the origin stands for. Each node checks that it is the one at its place, and that the packet came from the one before
//! ([`RouteHeader::step`]).

use ring::digest;
use std::fmt;

/// The first byte of a routed packet.
pub const ROUTED: u8 = 0x80;
/// Most nodes of a route.
pub const MAX_NODES: usize = 8;
/// Fewest nodes of a route: with one the packet goes there directly.
pub const LEAST_NODES: usize = 2;
/// Bytes of a header in front of the nodes.
const FIXED_BYTES: usize = 8;
/// Bytes of a node's id.
const ID_BYTES: usize = 8;
/// Bytes of the longest header.
pub const MAX_ROUTE_HEADER_BYTES: usize = FIXED_BYTES + MAX_NODES * ID_BYTES;
/// Bytes of a refusal's payload: the reason, the place of the node that refuses, and zeros.
const REFUSAL_BYTES: usize = 8;
/// Bytes of the longest refusal.
pub const MAX_REFUSAL_BYTES: usize = MAX_ROUTE_HEADER_BYTES + REFUSAL_BYTES;

/// A node, as packets name it: the first 8 bytes of the SHA-256 hash of its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeId([u8; ID_BYTES]);

impl NodeId {
    /// The id of the node with this name.
    #[must_use]
    pub fn of_name(name: &str) -> NodeId {
        let hash = digest::digest(&digest::SHA256, name.as_bytes());
        NodeId(hash.as_ref().first_chunk().copied().unwrap_or_default())
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; ID_BYTES] {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Why a list of nodes is no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// Too few or too many.
    #[error(
        "a route has {LEAST_NODES} to {MAX_NODES} nodes, from the first that this client sends to, to the last; this one has {0}"
    )]
    Length(usize),
    /// A node is in it twice.
    #[error("the route is a loop: node {} is in it twice", .0 + 1)]
    Loop(usize),
}

/// The nodes of a route, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SourceRoute {
    len: u8,
    nodes: [NodeId; MAX_NODES],
}

impl SourceRoute {
    /// The route over these nodes.
    ///
    /// # Errors
    /// See [`RouteError`].
    pub fn new(nodes: &[NodeId]) -> Result<SourceRoute, RouteError> {
        let route = SourceRoute::unchecked(nodes).ok_or(RouteError::Length(nodes.len()))?;
        match route.repeated() {
            Some(at) => Err(RouteError::Loop(at)),
            None => Ok(route),
        }
    }

    fn unchecked(nodes: &[NodeId]) -> Option<SourceRoute> {
        if !(LEAST_NODES..=MAX_NODES).contains(&nodes.len()) {
            return None;
        }
        let mut all = [NodeId::default(); MAX_NODES];
        all[..nodes.len()].copy_from_slice(nodes);
        Some(SourceRoute { len: nodes.len() as u8, nodes: all })
    }

    /// The nodes.
    #[inline]
    #[must_use]
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes[..usize::from(self.len)]
    }

    /// The place of the first node that is there before.
    fn repeated(&self) -> Option<usize> {
        let nodes = self.nodes();
        (1..nodes.len()).find(|at| nodes[..*at].contains(&nodes[*at]))
    }
}

/// The course of a routed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Course {
    /// From the client to the last node.
    Forward = 1,
    /// From the last node to the client.
    Backward = 2,
    /// To the client, from a node that refuses to hand its packets on.
    Refusal = 3,
}

/// Why a node does not hand a packet on. A packet that goes backward is dropped without a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RouteRefusal {
    /// A node is in the route twice.
    Loop = 1,
    /// The node has no neighbour of the next node's name.
    UnknownHop = 2,
    /// The access rules do not let the hop before send to the next one.
    Forbidden = 3,
    /// The node is not the one at the packet's place, or the packet came from another than the node before.
    Misplaced = 4,
}

impl RouteRefusal {
    fn from_byte(byte: u8) -> Option<RouteRefusal> {
        [RouteRefusal::Loop, RouteRefusal::UnknownHop, RouteRefusal::Forbidden, RouteRefusal::Misplaced]
            .into_iter()
            .find(|refusal| *refusal as u8 == byte)
    }
}

/// The next step of a routed packet at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteStep {
    /// It has arrived at the last node.
    Arrived,
    /// It goes on to the node at this place of the route.
    To(u8),
    /// It goes to the client that the origin stands for.
    ToClient,
}

/// The header of a routed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteHeader {
    /// The way that it goes.
    pub course: Course,
    /// The place of the node that it is sent to, or that sends it to the client.
    pub place: u8,
    /// The first node's number for the client.
    pub origin: u32,
    /// The nodes.
    pub route: SourceRoute,
}

impl RouteHeader {
    /// The header with which a client sends.
    #[must_use]
    pub fn of_client(route: SourceRoute) -> RouteHeader {
        RouteHeader { course: Course::Forward, place: 0, origin: 0, route }
    }

    /// Reads the header at the start of a packet; `None` for a packet without one. Its route may be a loop.
    #[inline]
    #[must_use]
    pub fn read(packet: &[u8]) -> Option<RouteHeader> {
        let (fixed, rest) = packet.split_first_chunk::<FIXED_BYTES>()?;
        let course = match fixed[1] {
            1 => Course::Forward,
            2 => Course::Backward,
            3 => Course::Refusal,
            _ => return None,
        };
        let (count, place) = (usize::from(fixed[2]), fixed[3]);
        let is_one = fixed[0] == ROUTED && (LEAST_NODES..=MAX_NODES).contains(&count) && usize::from(place) < count;
        let ids = rest.get(..count * ID_BYTES).filter(|_| is_one)?;
        let mut nodes = [NodeId::default(); MAX_NODES];
        for (node, id) in nodes.iter_mut().zip(ids.chunks_exact(ID_BYTES)) {
            node.0.copy_from_slice(id);
        }
        let origin = u32::from_le_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
        Some(RouteHeader { course, place, origin, route: SourceRoute { len: fixed[2], nodes } })
    }

    /// Bytes of the header: 24 to 72.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        FIXED_BYTES + ID_BYTES * usize::from(self.route.len)
    }

    /// The place of the last node.
    fn last(&self) -> u8 {
        self.route.len - 1
    }

    /// The header of the last node's answers to packets with this one, for the hop before it.
    #[must_use]
    pub fn answer(&self) -> RouteHeader {
        RouteHeader { course: Course::Backward, place: self.last() - 1, ..*self }
    }

    /// The header as bytes, of `out` the first [`RouteHeader::bytes`].
    pub fn write<'a>(&self, out: &'a mut [u8; MAX_ROUTE_HEADER_BYTES]) -> &'a mut [u8] {
        out[..4].copy_from_slice(&[ROUTED, self.course as u8, self.route.len, self.place]);
        out[4..FIXED_BYTES].copy_from_slice(&self.origin.to_le_bytes());
        for (room, node) in out[FIXED_BYTES..].chunks_exact_mut(ID_BYTES).zip(&self.route.nodes) {
            room.copy_from_slice(&node.0);
        }
        &mut out[..self.bytes()]
    }

    /// Changes the place and the origin in the header of a packet, which begins with one.
    pub fn redirect(packet: &mut [u8], place: u8, origin: u32) {
        if let Some(fixed) = packet.first_chunk_mut::<FIXED_BYTES>() {
            fixed[3] = place;
            fixed[4..].copy_from_slice(&origin.to_le_bytes());
        }
    }

    /// The next step of a packet at the node `own`, to which the neighbour `from` has sent it; none: a client.
    ///
    /// # Errors
    /// It goes no further, and why.
    pub fn step(&self, own: NodeId, from: Option<NodeId>) -> Result<RouteStep, RouteRefusal> {
        let (nodes, place) = (self.route.nodes(), usize::from(self.place));
        let at = |place: Option<usize>| place.and_then(|place| nodes.get(place)).copied();
        if at(Some(place)) != Some(own) {
            return Err(RouteRefusal::Misplaced);
        }
        if self.route.repeated().is_some() {
            return Err(RouteRefusal::Loop);
        }
        match self.course {
            Course::Forward => {
                // The first one hears whoever has keys with it, a neighbour too.
                if place > 0 && from != at(place.checked_sub(1)) {
                    return Err(RouteRefusal::Misplaced);
                }
                Ok(if self.place == self.last() { RouteStep::Arrived } else { RouteStep::To(self.place + 1) })
            }
            Course::Backward | Course::Refusal => {
                if self.place == self.last() || from != at(Some(place + 1)) {
                    return Err(RouteRefusal::Misplaced);
                }
                Ok(self.place.checked_sub(1).map_or(RouteStep::ToClient, RouteStep::To))
            }
        }
    }

    /// The refusal of a packet with this header, for the hop that it came from: of `out` the first bytes. `None` for a packet on its way
    /// back, which nobody refuses.
    pub fn refuse<'a>(&self, why: RouteRefusal, out: &'a mut [u8; MAX_REFUSAL_BYTES]) -> Option<&'a [u8]> {
        if self.course != Course::Forward {
            return None;
        }
        let header = RouteHeader { course: Course::Refusal, place: self.place.saturating_sub(1), ..*self };
        let len = header.write(out.first_chunk_mut()?).len();
        out[len..len + REFUSAL_BYTES].copy_from_slice(&[why as u8, self.place, 0, 0, 0, 0, 0, 0]);
        Some(&out[..len + REFUSAL_BYTES])
    }

    /// The reason of a refusal and the place of the node that refuses, from the packet.
    #[must_use]
    pub fn refusal_in(packet: &[u8]) -> Option<(RouteRefusal, u8)> {
        let header = RouteHeader::read(packet).filter(|header| header.course == Course::Refusal)?;
        let payload = packet.get(header.bytes()..)?.first_chunk::<REFUSAL_BYTES>()?;
        let place = Some(payload[1]).filter(|place| usize::from(*place) < header.route.nodes().len())?;
        Some((RouteRefusal::from_byte(payload[0])?, place))
    }
}

/// The slices of packets of `stride` bytes each but the last, with a header in front of each.
pub fn behind_header<'a>(header: &'a [u8], packets: &'a [u8], stride: usize) -> impl Iterator<Item = &'a [u8]> {
    packets.chunks(stride.max(1)).flat_map(move |packet| [header, packet])
}

/// A part of a frame: routed packets with equal headers, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutedRun {
    /// Their header.
    pub header: RouteHeader,
    /// The first byte of the first one, in the frame.
    pub start: usize,
    /// The byte behind the last one.
    pub end: usize,
}

/// The first run of routed packets in a frame of packets of `stride` bytes each but the last, from byte `at` on, which is where a packet
/// begins. `None` at the frame's end.
///
/// # Errors
/// The byte behind a packet that has no such header.
pub fn next_run(frame: &[u8], stride: usize, at: usize) -> Option<Result<RoutedRun, usize>> {
    let rest = frame.get(at..).filter(|rest| !rest.is_empty())?;
    let stride = stride.max(1);
    let mut packets = rest.chunks(stride);
    let first = packets.next()?;
    let Some(header) = RouteHeader::read(first) else { return Some(Err(at + first.len())) };
    let head = first.get(..header.bytes())?;
    let more = packets.take_while(|packet| packet.starts_with(head)).map(<[u8]>::len).sum::<usize>();
    Some(Ok(RoutedRun { header, start: at, end: at + first.len() + more }))
}

/// Takes the headers of `header_bytes` bytes off a run of packets of `stride` bytes each but the last: the payloads lie one behind the
/// other at its begin then, `stride - header_bytes` apart. Their bytes.
pub fn take_headers_off(run: &mut [u8], stride: usize, header_bytes: usize) -> usize {
    let (mut from, mut to) = (0, 0);
    while from < run.len() {
        let end = from.saturating_add(stride.max(1)).min(run.len());
        let payload = (from + header_bytes).min(end)..end;
        let len = payload.len();
        run.copy_within(payload, to);
        (from, to) = (end, to + len);
    }
    to
}

#[cfg(test)]
mod tests;
