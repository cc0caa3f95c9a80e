//! The near side of a source route ([`crossdock_transport::route`]): packets in envelopes for the last node travel in further ones for
//! the first.

use crate::route::NodeRoute;
use crate::settings::Keys;
use crossdock_device::{Device, MAX_SUPER_BYTES, SealedSender, Sent};
use crossdock_transport::route::{
    Course, MAX_ROUTE_HEADER_BYTES, RouteHeader, RouteRefusal, behind_header, next_run, take_headers_off,
};
use crossdock_transport::secure::{Initiator, OVERHEAD_BYTES};
use std::io::{self, IoSlice};
use std::net::SocketAddr;

/// The packets with which a session begins are no longer than this on the way to the first node, in bytes: an Ethernet's, since the
/// interfaces of the later hops are not known here.
const FIRST_HOP_BYTES: usize = 1472;

/// The hop to the first node, and the header of what goes over it.
pub(super) struct Via {
    /// The keys with the first node.
    pub(super) hop: Initiator,
    route: NodeRoute,
    header: [u8; MAX_ROUTE_HEADER_BYTES],
    header_bytes: usize,
    /// Envelopes for the last node, before they are put into those for the first.
    inner: Box<[u8]>,
    /// The refusal of a node, and its place.
    refused: Option<(RouteRefusal, u8)>,
}

impl Via {
    /// The hop with these keys; the daemon's key among them is that of the first node.
    pub(super) fn new(keys: &Keys, route: &NodeRoute) -> Via {
        let mut header = [0; MAX_ROUTE_HEADER_BYTES];
        let header_bytes = RouteHeader::of_client(route.source).write(&mut header).len();
        // So that the first node has the keys where its routes are. Its silence is that of the last node.
        let hop = Initiator::new(keys.private.clone(), keys.daemon, true).one_way();
        let inner = vec![0; MAX_SUPER_BYTES].into();
        Via { hop, route: route.clone(), header, header_bytes, inner, refused: None }
    }

    /// Another session begins; the keys of the hop stay.
    pub(super) fn forget(&mut self) {
        self.refused = None;
    }

    /// A node's refusal, in words.
    pub(super) fn refusal(&self) -> Option<String> {
        self.refused.map(|(why, place)| self.route.refusal(why, place))
    }

    /// Bytes that a packet becomes longer in all its envelopes.
    pub(super) fn overhead_bytes(&self) -> usize {
        2 * OVERHEAD_BYTES + self.header_bytes
    }

    /// The longest packet that begins a session, of those that the interface takes.
    pub(super) fn first_bytes(interface_bytes: usize) -> usize {
        interface_bytes.min(FIRST_HOP_BYTES)
    }

    /// Sends packets that `initiator` seals for the last node.
    ///
    /// # Errors
    /// The network's.
    pub(super) fn send(
        &mut self,
        (device, sender): (&mut dyn Device, &mut SealedSender),
        initiator: &mut Initiator,
        to: SocketAddr,
        (slices, stride): (&[IoSlice<'_>], usize),
        now_ns: u64,
    ) -> io::Result<Sent> {
        sender.set_overhead(self.overhead_bytes());
        let Via { hop, header, header_bytes, inner, .. } = self;
        let header = &header[..*header_bytes];
        sender.send(device, to, (slices, stride), |part, stride, out| {
            let sealed = initiator.seal(part, stride, inner, now_ns)?;
            let routed = behind_header(header, inner.get(..sealed.bytes)?, sealed.stride);
            hop.seal(routed, sealed.stride + header.len(), out, now_ns).map(|sealed| sealed.bytes)
        })
    }

    /// Sends a packet of the handshake with the last node.
    ///
    /// # Errors
    /// The network's.
    pub(super) fn send_initial(
        &mut self,
        (device, sender): (&mut dyn Device, &mut SealedSender),
        to: SocketAddr,
        packet: &[u8],
        now_ns: u64,
    ) -> io::Result<Sent> {
        sender.set_overhead(OVERHEAD_BYTES);
        let Via { hop, header, header_bytes, .. } = self;
        let slices = [IoSlice::new(&header[..*header_bytes]), IoSlice::new(packet)];
        sender.send(device, to, (&slices, *header_bytes + packet.len()), |part, stride, out| {
            hop.seal(part, stride, out, now_ns).map(|sealed| sealed.bytes)
        })
    }

    /// Takes a frame of the first node out of its envelopes and headers: the envelopes of the last node lie at its begin then. Their bytes,
    /// and those from one to the next.
    pub(super) fn open(&mut self, frame: &mut [u8], stride: usize, now_ns: u64) -> (usize, usize) {
        let heard = self.hop.open_frame(frame, stride, now_ns);
        let (mut at, mut len) = (0, 0);
        while let Some(run) = next_run(&frame[..heard.len], heard.stride, at) {
            let run = match run {
                Ok(run) => run,
                Err(end) => {
                    at = end;
                    continue;
                }
            };
            at = run.end;
            if run.header.route != self.route.source {
                continue;
            }
            match run.header.course {
                Course::Backward => {
                    let payloads = take_headers_off(&mut frame[run.start..run.end], heard.stride, self.header_bytes);
                    frame.copy_within(run.start..run.start + payloads, len);
                    len += payloads;
                    self.refused = None;
                }
                Course::Refusal => self.refused = RouteHeader::refusal_in(&frame[run.start..run.end]),
                Course::Forward => {}
            }
        }
        (len, heard.stride.saturating_sub(self.header_bytes).max(1))
    }
}
