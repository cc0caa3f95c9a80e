//! The socket of a session over packets, whose packets are in envelopes if the session has keys.

use super::routed::Via;
use crate::route::NodeRoute;
use crate::settings::{Clients, Keys};
use crossdock_device::{Device, DeviceCounters, Frame, SealedSender, Sent, random};
use crossdock_mailbox::Pool;
use crossdock_transport::mtu::probe;
use crossdock_transport::parts::Splitter;
use crossdock_transport::secure::envelope::Envelope;
use crossdock_transport::secure::{
    Arrival, Code, Initiator, KeyLimits, KeyPhases, OVERHEAD_BYTES, PublicKey, Responder, ResponderConfig,
};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// The longest packet that waits for keys, in bytes: a hello is shorter.
const HELD_BYTES: usize = 512;
/// Programs that make a handshake with one that listens, at most: one of them gets its session.
const MAX_CLIENTS: usize = 16;
/// A program that has made a handshake and no session is forgotten after this time of silence, in ns.
const IDLE_NS: u64 = 10_000_000_000;

/// The socket towards the daemon, or of a program that waits for another one.
pub(super) struct SecureDevice {
    device: Box<dyn Device>,
    /// The other side of the session; of one that waits for it, none yet.
    peer: Option<SocketAddr>,
    keys: Option<Box<Secure>>,
    now_ns: u64,
    /// The daemon's refusal of a packet in no envelope.
    refused: Option<Code>,
    /// The longest packet that goes whole, in bytes.
    most_bytes: usize,
    splitter: Splitter,
}

struct Secure {
    end: End,
    sender: SealedSender,
}

/// The side of the handshake.
#[allow(clippy::large_enum_variant, reason = "a session has one, in a box")]
enum End {
    /// That dials.
    Dialling(Dialling),
    /// That is dialled.
    Listening(Listening),
}

struct Dialling {
    initiator: Initiator,
    /// The hop to the first node, if the session has a source route.
    via: Option<Box<Via>>,
    /// The last packet that was to be sent before there were keys; it goes once there are.
    held: Option<Vec<u8>>,
    /// This side's public key.
    own: String,
}

struct Listening {
    responder: Responder,
    /// The key of the session's other side.
    client: Option<PublicKey>,
}

impl SecureDevice {
    /// Towards `peer`, which is the first node of the route if there is one.
    pub(super) fn new(
        device: Box<dyn Device>,
        peer: SocketAddr,
        (keys, route): (Option<&Keys>, Option<&NodeRoute>),
        uses_mailboxes: bool,
    ) -> SecureDevice {
        let end = |keys: &Keys| {
            let daemon = route.map_or(keys.daemon, |route| route.destination);
            End::Dialling(Dialling {
                initiator: Initiator::new(keys.private.clone(), daemon, uses_mailboxes),
                via: route.map(|route| Box::new(Via::new(keys, route))),
                held: None,
                own: keys.private.public().to_string(),
            })
        };
        SecureDevice::over(device, Some(peer), keys.map(end))
    }

    /// For the first of these clients that dials, if there are any.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub(super) fn listening(device: Box<dyn Device>, clients: Option<&Clients>) -> io::Result<SecureDevice> {
        let end = |clients: &Clients| {
            let responder = Responder::new(ResponderConfig {
                private: clients.private.clone(),
                authorized: clients.authorized.clone(),
                cookie_secret: random()?,
                max_clients: MAX_CLIENTS,
                max_clients_per_key: MAX_CLIENTS,
                idle_ns: IDLE_NS,
                place: (0, 0),
                limits: KeyLimits::default(),
            });
            Ok::<_, io::Error>(End::Listening(Listening { responder, client: None }))
        };
        Ok(SecureDevice::over(device, None, clients.map(end).transpose()?))
    }

    fn over(device: Box<dyn Device>, peer: Option<SocketAddr>, end: Option<End>) -> SecureDevice {
        SecureDevice {
            device,
            peer,
            keys: end.map(|end| Box::new(Secure { end, sender: SealedSender::new(OVERHEAD_BYTES) })),
            now_ns: 0,
            refused: None,
            most_bytes: usize::MAX,
            splitter: Splitter::default(),
        }
    }

    /// The program at this address gets the session of the one that listens: whoever has another key is not heard from then on.
    pub(super) fn take_peer(&mut self, peer: SocketAddr) {
        self.peer = Some(peer);
        self.device.keep_to(peer);
        if let Some(Secure { end: End::Listening(listening), .. }) = self.keys.as_deref_mut() {
            listening.client = listening.responder.client_at(peer);
        }
    }

    /// Another session begins, with keys of its own.
    pub(super) fn forget(&mut self) {
        self.refused = None;
        if let Some(Secure { end: End::Dialling(dialling), .. }) = self.keys.as_deref_mut() {
            dialling.initiator.forget();
            dialling.via.iter_mut().for_each(|via| via.forget());
            dialling.held = None;
        }
    }

    /// The time for all that follows.
    pub(super) fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Packets that are longer than this go in parts, until another length is set. In bytes.
    pub(super) fn set_most_bytes(&mut self, most_bytes: usize) {
        self.most_bytes = most_bytes;
    }

    /// Sends a probe of `bytes` bytes, with that header.
    ///
    /// # Errors
    /// The network's: the interface takes no packet of that length.
    pub(super) fn send_probe(&mut self, to: SocketAddr, header: &[u8], bytes: usize) -> io::Result<Sent> {
        let (slices, count) = probe(header, bytes);
        self.send(to, &slices[..count], bytes)
    }

    #[cold]
    fn send_parts(&mut self, to: SocketAddr, slices: &[IoSlice<'_>], stride: usize) -> io::Result<Sent> {
        let (mut splitter, most_bytes) = (std::mem::take(&mut self.splitter), self.most_bytes);
        let sent = splitter.split(slices.iter().map(|slice| &**slice), stride, most_bytes, |parts, stride| {
            self.send_whole(to, &[IoSlice::new(parts)], stride).map(|sent| sent == Sent::Done)
        });
        self.splitter = splitter;
        Ok(if sent? { Sent::Done } else { Sent::Full })
    }

    fn send_whole(&mut self, to: SocketAddr, slices: &[IoSlice<'_>], stride: usize) -> io::Result<Sent> {
        let SecureDevice { device, keys, now_ns, .. } = self;
        let Some(Secure { end, sender }) = keys.as_deref_mut() else { return device.send(to, slices, stride) };
        let device = &mut **device;
        match end {
            End::Dialling(Dialling { initiator, via, held, .. }) => {
                if !initiator.has_keys() {
                    // Only hellos are sent before there is a session.
                    let packet = slices.iter().flat_map(|slice| slice.iter().copied());
                    *held = Some(packet.take(HELD_BYTES).collect());
                    self.tick()?;
                    return Ok(Sent::Done);
                }
                if let Some(via) = via {
                    return via.send((device, sender), initiator, to, (slices, stride), *now_ns);
                }
                sender.send(device, to, (slices, stride), |part, stride, out| {
                    initiator.seal(part, stride, out, *now_ns).map(|sealed| sealed.bytes)
                })
            }
            // Nothing is sent to one that has no keys but by the handshake.
            End::Listening(Listening { responder, .. }) => {
                sender.send(device, to, (slices, stride), |part, stride, out| {
                    responder.seal(to, part, stride, out, *now_ns).map(|sealed| sealed.bytes)
                })
            }
        }
    }

    /// Sends what the handshake has to send now.
    ///
    /// # Errors
    /// The network's, or the system has no random bytes.
    pub(super) fn tick(&mut self) -> io::Result<()> {
        let SecureDevice { device, peer, keys, now_ns, .. } = self;
        let Some(Secure { end, sender }) = keys.as_deref_mut() else { return Ok(()) };
        // If it is still full, the next packet or the next turn sends it.
        let device = &mut **device;
        let _ = sender.flush(device);
        let (End::Dialling(Dialling { initiator, via, .. }), Some(peer)) = (end, peer) else { return Ok(()) };
        if let Some(via) = via {
            dial(&mut via.hop, device, *peer, *now_ns)?;
            // It goes over the hop.
            if via.hop.has_keys() {
                if initiator.should_begin(*now_ns) {
                    initiator.begin(*now_ns, random()?);
                }
                if let Some(packet) = initiator.poll(*now_ns) {
                    // A full device loses it; it is repeated.
                    let _ = via.send_initial((device, sender), *peer, packet, *now_ns)?;
                }
            }
            return Ok(());
        }
        dial(initiator, device, *peer, *now_ns)
    }

    /// The phases of the keys in use, if the side that dials has keys.
    pub(super) fn key_phases(&self) -> Option<KeyPhases> {
        match self.keys.as_deref() {
            Some(Secure { end: End::Dialling(Dialling { initiator, .. }), .. }) => initiator.key_phases(),
            _ => None,
        }
    }

    /// Whether something waits that the device had no room for.
    pub(super) fn is_waiting(&self) -> bool {
        self.keys.as_deref().is_some_and(|keys| keys.sender.is_waiting())
    }

    /// When [`SecureDevice::tick`] has something to do by itself, in ns.
    pub(super) fn due_ns(&self) -> u64 {
        match self.keys.as_deref() {
            Some(Secure { end: End::Dialling(Dialling { initiator, via: Some(via), .. }), .. }) => {
                let is_up = via.hop.has_keys();
                via.hop.next_ns().min(if is_up { initiator.next_ns() } else { u64::MAX })
            }
            Some(Secure { end: End::Dialling(Dialling { initiator, .. }), .. }) => initiator.next_ns(),
            _ => u64::MAX,
        }
    }

    /// Why there is no session, as far as it is a matter of keys; and whether the daemon has said so.
    pub(super) fn refusal(&self) -> Option<(String, bool)> {
        let (initiator, own) = match self.keys.as_deref() {
            Some(Secure { end: End::Dialling(Dialling { initiator, own, via: Some(via), .. }), .. }) => {
                if let Some(refusal) = via.refusal() {
                    return Some((refusal, true));
                }
                if via.hop.has_keys() { (initiator, own) } else { (&via.hop, own) }
            }
            Some(Secure { end: End::Dialling(Dialling { initiator, own, .. }), .. }) => (initiator, own),
            Some(_) => return None,
            None => {
                let why = "it takes packets from this network only in secure sessions: give this client a key of its own \
                           (`crossdock keygen`) and the daemon's public key";
                return self.refused.map(|_| (why.to_owned(), true));
            }
        };
        Some(match initiator.refused() {
            Some(Code::UnknownKey) => {
                (format!("it has not authorised this client's key {own} (`crossdock keys add`)"), true)
            }
            Some(Code::Limit) => ("it has as many clients with keys as it takes".to_owned(), true),
            _ if initiator.has_keys() => return None,
            _ => (
                "no answer to the secure handshake (has it a key, and is its public key the one given here?)"
                    .to_owned(),
                false,
            ),
        })
    }

    fn via(&self) -> Option<&Via> {
        match self.keys.as_deref() {
            Some(Secure { end: End::Dialling(Dialling { via, .. }), .. }) => via.as_deref(),
            _ => None,
        }
    }

    /// The longest packet that fits into its envelopes, which are `bytes` bytes long.
    fn content_bytes(&self, bytes: usize) -> usize {
        let overhead_bytes = self.via().map_or(OVERHEAD_BYTES, Via::overhead_bytes);
        if self.keys.is_some() { bytes.saturating_sub(overhead_bytes) & !7 } else { bytes }
    }

    /// Opens the envelopes of frames that have arrived; what is in none is left out.
    fn open(&mut self, frames: &mut Vec<Frame>, from: usize) -> io::Result<()> {
        let SecureDevice { device, peer, keys, now_ns, refused, .. } = self;
        let Some(Secure { end, sender }) = keys.as_deref_mut() else {
            for frame in &frames[from..] {
                if let Some(Envelope::Refusal { code, .. }) = frame.packets().next().and_then(Envelope::read) {
                    *refused = Some(code);
                }
            }
            return Ok(());
        };
        for frame in &mut frames[from..] {
            match end {
                End::Dialling(dialling) => dialling.open(frame, (&mut **device, sender), *now_ns)?,
                End::Listening(listening) => listening.open(frame, &mut **device, *peer, *now_ns),
            }
        }
        frames.retain(|frame| frame.len > 0);
        self.tick()
    }
}

impl Dialling {
    fn open(
        &mut self,
        frame: &mut Frame,
        (device, sender): (&mut dyn Device, &mut SealedSender),
        now_ns: u64,
    ) -> io::Result<()> {
        let Dialling { initiator, via, held, .. } = self;
        if let Some(via) = via {
            (frame.len, frame.stride) = via.open(&mut frame.buffer[..frame.len], frame.stride, now_ns);
        }
        let heard = initiator.open_frame(&mut frame.buffer[..frame.len], frame.stride, now_ns);
        (frame.len, frame.stride) = (heard.len, heard.stride.min(heard.len.max(1)));
        if let Some(packet) = held.take_if(|_| heard.has_keys) {
            let (slices, stride) = ([IoSlice::new(&packet)], packet.len());
            let sealed = match via {
                Some(via) => via.send((device, sender), initiator, frame.from, (&slices, stride), now_ns),
                None => sender.send(device, frame.from, (&slices, stride), |part, stride, out| {
                    initiator.seal(part, stride, out, now_ns).map(|sealed| sealed.bytes)
                }),
            };
            // A full device loses it; it is repeated.
            let _ = sealed?;
        }
        Ok(())
    }
}

impl Listening {
    /// Packets that are not from the session's other side, once there is one, are left out.
    fn open(&mut self, frame: &mut Frame, device: &mut dyn Device, peer: Option<SocketAddr>, now_ns: u64) {
        let from = frame.from;
        let mut arrival = Arrival {
            from,
            now_ns,
            is_taken: &|addr| peer == Some(addr),
            random: &mut || random().ok(),
            // The sender gets the reason in the reply; nobody counts here.
            refuse: &mut |_| {},
        };
        let opened = self.responder.open_frame(&mut frame.buffer[..frame.len], frame.stride, &mut arrival);
        if let Some(reply) = opened.reply {
            // A full device loses it; what it answers is repeated.
            let _ = device.send(from, &[IoSlice::new(reply.bytes())], reply.bytes().len());
        }
        let is_heard = peer.is_none_or(|peer| peer == from && opened.client == self.client);
        let len = if is_heard { opened.len } else { 0 };
        (frame.len, frame.stride) = (len, opened.stride.min(len.max(1)));
    }
}

/// Goes on with a handshake, or begins one, if that is due.
fn dial(initiator: &mut Initiator, device: &mut dyn Device, to: SocketAddr, now_ns: u64) -> io::Result<()> {
    if initiator.should_begin(now_ns) {
        initiator.begin(now_ns, random()?);
    }
    if let Some(packet) = initiator.poll(now_ns) {
        // A full device loses it; it is repeated.
        let _ = device.send(to, &[IoSlice::new(packet)], packet.len())?;
    }
    Ok(())
}

impl Device for SecureDevice {
    fn local_addr(&self) -> SocketAddr {
        self.device.local_addr()
    }

    fn receive(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>, max: usize) -> io::Result<usize> {
        let before = frames.len();
        let received = self.device.receive(pool, frames, max);
        let opened = self.open(frames, before);
        // An empty frame was something too: more may be there.
        received.and_then(|count| opened.map(|()| count))
    }

    fn send(&mut self, to: SocketAddr, slices: &[IoSlice<'_>], stride: usize) -> io::Result<Sent> {
        let is_long =
            stride > self.most_bytes && slices.iter().map(|slice| slice.len()).sum::<usize>() > self.most_bytes;
        if is_long { self.send_parts(to, slices, stride) } else { self.send_whole(to, slices, stride) }
    }

    fn set_ecn(&mut self, bits: u8) {
        self.device.set_ecn(bits);
    }

    fn ecn(&self) -> u8 {
        self.device.ecn()
    }

    fn packet_bytes(&self, to: SocketAddr) -> usize {
        let bytes = self.device.packet_bytes(to);
        self.content_bytes(if self.via().is_some() { Via::first_bytes(bytes) } else { bytes })
    }

    fn most_packet_bytes(&self, to: SocketAddr) -> usize {
        self.content_bytes(self.device.most_packet_bytes(to))
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.device.as_fd()
    }

    fn counters(&self) -> DeviceCounters {
        self.device.counters()
    }
}
