//! The arrivals over the network: frames, their packets by runs, and the order of each session's packets.

use super::Net;
use crate::counters::DropReason;
use crate::io::{Handed, Received};
use crate::net::circuits::Circuit;
use crate::net::payload::{Arrived, Content, Payload};
use crossdock_device::{Device, Frame};
use crossdock_mailbox::{Batch, Buffer};
use crossdock_transport::header::{PayloadSpan, Run, walk};
use crossdock_transport::parts::Put;
use crossdock_transport::receiver::Arrival;
use crossdock_transport::session::SessionError;
use crossdock_transport::{Header, Hello, MAX_SUPER_BYTES, PacketError, PacketKind, Piece};
use std::net::SocketAddr;
use std::sync::Arc;

/// Answers to packets of unknown sessions in one turn at most: a flood of them is not to take the context's time.
const MAX_RESETS: u32 = 16;

/// The packets of a frame: where their payloads lie, and which of them belong together.
#[derive(Default)]
pub(crate) struct Packets {
    /// The payloads of the packets.
    pub(crate) spans: Vec<PayloadSpan>,
    /// Packets that belong together.
    pub(crate) runs: Vec<Run>,
}

/// A run of data packets, ready to be read.
pub(crate) struct Data<'a> {
    /// The buffer that holds them.
    pub(crate) buffer: Buffer,
    /// The first one's header.
    pub(crate) header: Header,
    /// Their payloads.
    pub(crate) spans: &'a [PayloadSpan],
    /// The distance from one to the next.
    pub(crate) stride: usize,
}

impl Net {
    /// The frames that have arrived, `most` at most, and how many; the caller gives the list back with
    /// [`Net::keep_frames`].
    pub(crate) fn receive(&mut self, most: usize) -> (Vec<Frame>, usize) {
        let mut frames = std::mem::take(&mut self.scratch.frames);
        self.resets = 0;
        // An error here is the network's word on an earlier send; the device counts it and stays usable.
        let count = self.device.receive(&mut self.pool, &mut frames, most).unwrap_or(0);
        (frames, count)
    }

    /// Keeps the memory of a list of frames for the next turn.
    pub(crate) fn keep_frames(&mut self, frames: Vec<Frame>) {
        self.scratch.frames = frames;
    }

    /// The next that another I/O context has handed over.
    #[inline]
    pub(crate) fn next_handed(&mut self) -> Option<Handed> {
        self.hand_over.pop()
    }

    /// The next address at which nobody receives any more. The report may come to another socket than the one that its
    /// session's packets come to, so the other I/O contexts get it too.
    pub(crate) fn next_refused(&mut self) -> Option<SocketAddr> {
        let addr = self.device.refused()?;
        self.hand_over.refused(addr);
        Some(addr)
    }

    /// The peer at an address of this machine.
    pub(crate) fn local_at(&self, addr: SocketAddr) -> Option<usize> {
        self.peers.at(addr).filter(|_| addr.ip().is_loopback())
    }

    /// The packets of a frame; those that are none are counted. The caller gives them back with [`Net::keep_packets`].
    pub(crate) fn walk(&mut self, frame: &Received) -> Packets {
        let Received { buffer, len, stride, from, ecn } = frame;
        self.ecn = *ecn;
        let mut packets = std::mem::take(&mut self.scratch.packets);
        let (counters, mut is_of_other_version) = (&mut self.counters, false);
        walk(&buffer[..*len], *stride, &mut packets.spans, &mut packets.runs, |error| {
            is_of_other_version |= matches!(error, PacketError::Version(_));
            counters.drop(reason(error), 1);
        });
        if is_of_other_version && let Some(close) = Hello::refuse_version(&buffer[..*len]) {
            self.send_now(*from, &close);
        }
        packets
    }

    /// Keeps the memory of a frame's packets for the next one.
    pub(crate) fn keep_packets(&mut self, packets: Packets) {
        self.scratch.packets = packets;
    }

    /// The place of the I/O context that a run of packets is for, if that is another one: the one that has their session, or
    /// with a hello the one that is to have it.
    #[inline]
    pub(crate) fn place_elsewhere(&self, run: &Run, buffer: &Buffer, spans: &[PayloadSpan]) -> Option<usize> {
        if self.place.is_only() {
            return None;
        }
        let place = match run.header.kind {
            PacketKind::Hello => {
                let hello = Hello::decode(&buffer[spans[run.first].range()]).ok();
                let home = hello.filter(|hello| hello.uses_mailboxes).map(|_| self.place.home);
                home.unwrap_or(self.place.index)
            }
            _ => self.peers.place_of(run.header.session),
        };
        (place != self.place.index && place < self.place.of).then_some(place)
    }

    /// Hands a frame of `packets` packets with this header over to the I/O context of a place, unless they were in envelopes: that
    /// context has no keys of their client, which has its sessions here since its last handshake.
    pub(crate) fn hand_over_packets(&mut self, place: usize, header: &Header, frame: Received, packets: usize) {
        match self.client {
            Some(_) => {
                self.counters.drop(DropReason::UnknownSession, packets as u64);
                self.reset(header, frame.from);
            }
            None => self.hand_over(place, frame, packets),
        }
    }

    /// Hands a frame of `packets` packets over to the I/O context of a place.
    pub(super) fn hand_over(&mut self, place: usize, frame: Received, packets: usize) {
        if self.hand_over.push(place, Handed::Frame(frame)).is_err() {
            self.counters.drop(DropReason::NotHandedOver, packets as u64);
        }
    }

    /// The peer a packet belongs to, noted as heard.
    pub(crate) fn heard(&mut self, header: &Header, from: SocketAddr) -> Option<usize> {
        let (found, now_ns) = (self.peers.find(header.session, from, self.client), self.now_ns());
        match found.and_then(|key| self.peers.link_mut(key)) {
            Some(link) => link.session.heard(now_ns),
            None => {
                self.counters.drop(DropReason::UnknownSession, 1);
                self.reset(header, from);
            }
        }
        found
    }

    /// Counts packets of the frame in work by ECN's bits.
    #[inline]
    fn note_ecn(&mut self, key: usize, packets: u32) {
        if let Some(link) = self.peers.link_mut(key) {
            link.session.receiver.note_ecn(self.ecn, packets);
        }
    }

    /// Notifies a client that its session is not here any more, so that it need not find out by its time-out. A packet
    /// that asks for no answer gets none, so that two sides never answer one another.
    #[cold]
    fn reset(&mut self, header: &Header, to: SocketAddr) {
        let asks = matches!(
            header.kind,
            PacketKind::Data
                | PacketKind::Datagram
                | PacketKind::Control
                | PacketKind::Message
                | PacketKind::Ping
                | PacketKind::Probe
                | PacketKind::Part
        );
        if asks && self.resets < MAX_RESETS {
            self.resets += 1;
            self.send_now(to, &Header::new(PacketKind::Reset, header.session).to_bytes());
        }
    }

    /// A peer asks whether it is heard.
    pub(crate) fn take_ping(&mut self, header: &Header, from: SocketAddr) {
        if let Some(key) = self.heard(header, from)
            && let Some(link) = self.peers.link_mut(key)
        {
            link.session.receiver.ack_soon();
            self.peers.touch(key);
        }
    }

    /// A peer asks whether the path takes packets of that length: this one has come.
    pub(crate) fn take_probe(&mut self, header: &Header, from: SocketAddr) {
        let answer = self.heard(header, from).and_then(|key| self.peers.link_mut(key));
        if let Some(answer) = answer.map(|link| link.session.answer_probe(header)) {
            self.send_now(from, &answer);
        }
    }

    /// A peer has got a probe.
    pub(crate) fn take_probed(&mut self, header: &Header, from: SocketAddr) {
        let (Some(key), now_ns) = (self.heard(header, from), self.now_ns()) else { return };
        if let Some(link) = self.peers.link_mut(key) {
            link.session.sender.probe_answered(header.seq, now_ns);
            self.peers.touch(key);
        }
    }

    /// Takes a part of a packet. One that is whole now is the next of [`Net::next_whole`].
    pub(crate) fn take_part(&mut self, header: &Header, payload: &[u8], from: SocketAddr) {
        let (Some(key), now_ns) = (self.heard(header, from), self.now_ns()) else { return };
        let Net { peers, pool, needed_buffers, .. } = self;
        let Some(link) = peers.link_mut(key) else { return };
        let put = link.parts.put(header, payload, (self.ecn, now_ns), |bytes| {
            // Those that miss nothing must find buffers.
            pool.has_free(MAX_SUPER_BYTES, 2 * *needed_buffers).then(|| pool.alloc(bytes)).flatten()
        });
        self.counters.drop(DropReason::PartsMissing, link.parts.take_forgotten());
        match put {
            Put::Whole(buffer, len, ecn) => {
                self.scratch.whole.push_back(Received { buffer: buffer.freeze(), len, stride: len, from, ecn });
            }
            Put::Partial => {}
            Put::Duplicate => self.counters.drop(DropReason::Duplicate, 1),
            Put::Malformed => self.counters.drop(DropReason::PacketPayload, 1),
            Put::NoMemory => self.counters.drop(DropReason::NoBuffer, 1),
        }
    }

    /// The next packet whose parts have all come, since the last frame.
    pub(crate) fn next_whole(&mut self) -> Option<Received> {
        self.scratch.whole.pop_front()
    }

    /// Takes datagrams: their peer, and a bit for each that is to be delivered; none of them where there are no buffers for what
    /// comes of them.
    pub(crate) fn take_datagrams(&mut self, run: &Run, from: SocketAddr) -> Option<(usize, u64)> {
        let key = self.heard(&run.header, from)?;
        self.note_ecn(key, run.packets);
        if self.is_short_of_buffers() {
            self.counters.drop(DropReason::NoBuffer, run.packets.into());
            return None;
        }
        let now_ns = self.now_ns();
        let link = self.peers.link_mut(key)?;
        link.bytes_in += run.bytes();
        let receiver = &mut link.session.receiver;
        let before = receiver.datagrams().missing();
        let fresh = receiver.take_datagrams(run.header.seq, run.packets, now_ns);
        let missing = receiver.datagrams().missing().wrapping_sub(before);
        self.counters.datagrams_missing = self.counters.datagrams_missing.wrapping_add(missing);
        self.counters.datagrams_in += u64::from(fresh.count_ones());
        self.counters.drop(DropReason::Duplicate, u64::from(run.packets - fresh.count_ones()));
        self.peers.touch(key);
        Some((key, fresh))
    }

    /// Puts sequenced packets in order, unless they are dropped. Their peer, and if they are to be delivered now, how many of
    /// them were before.
    pub(crate) fn take_run(
        &mut self,
        run: &Run,
        spans: &[PayloadSpan],
        (buffer, stride): (&Buffer, usize),
        from: SocketAddr,
    ) -> Option<(usize, Option<usize>)> {
        let key = self.heard(&run.header, from)?;
        self.note_ecn(key, run.packets);
        let is_data = run.header.kind == PacketKind::Data;
        if is_data && self.lacks_buffers(key) {
            self.counters.drop(DropReason::NoBuffer, run.packets.into());
            return None;
        }
        let now_ns = self.now_ns();
        let link = self.peers.link_mut(key)?;
        link.bytes_in += run.bytes();
        let is_ahead = run.header.seq > link.session.receiver.next_seq();
        // The packets that fill the hole must find buffers, and so must a record when its first piece is taken.
        let has_memory = match run.header.piece {
            Piece::First if is_data => !is_ahead && self.has_memory_for(&buffer[spans[run.first].range()]),
            // It goes into the circuit's own buffers.
            _ if is_data && self.circuits.of(key).is_some() => true,
            _ => !is_ahead || self.pool.has_free(MAX_SUPER_BYTES, 2 * self.needed_buffers),
        };
        if !has_memory {
            self.counters.drop(DropReason::NoBuffer, run.packets.into());
            return None;
        }
        let handle = if is_ahead {
            let spans = run.spans(spans).to_vec();
            let end = spans.last().map_or(0, |span| span.range().end);
            // One that came by another context is of its pool, whose buffers this one does not count: those must not run out.
            let pool = self.circuits.of(key).filter(|_| is_data).map_or(&mut self.pool, Circuit::pool_mut);
            let Some(buffer) = pool.own(buffer, end) else {
                self.counters.drop(DropReason::NoBuffer, run.packets.into());
                return None;
            };
            Arrived::Kept { buffer, header: run.header, spans, stride }
        } else {
            Arrived::Here
        };
        let receiver = &mut self.peers.link_mut(key)?.session.receiver;
        let mut first_skip = None;
        match receiver.arrive_alone(run, handle, now_ns, |_, skip| first_skip = Some(skip as usize)) {
            Arrival::Delivered | Arrival::Held => {}
            Arrival::Duplicate => self.counters.drop(DropReason::Duplicate, run.packets.into()),
            Arrival::Beyond => self.counters.drop(DropReason::BeyondCredit, run.packets.into()),
        }
        Some((key, first_skip))
    }

    /// The next packets that were kept ahead of a hole which is filled now, and how many of them were delivered before;
    /// nothing while there are no buffers for what comes of them: they are asked for again.
    pub(crate) fn next_kept(&mut self, key: usize) -> Option<(Arrived, usize)> {
        if self.lacks_buffers(key) {
            return None;
        }
        let (kept, skip) = self.peers.link_mut(key)?.session.receiver.next_kept()?;
        Some((kept, skip as usize))
    }

    /// Counts the packets of a session that were kept and are refused.
    pub(crate) fn count_refused(&mut self, key: usize) {
        if let Some(link) = self.peers.link_mut(key) {
            self.counters.drop(DropReason::BeyondCredit, link.session.receiver.take_refused());
        }
    }

    /// An ack: `keep` gets the batches that it releases. The peer whose queue has more room now.
    pub(crate) fn take_ack(
        &mut self,
        header: &Header,
        payload: &[u8],
        from: SocketAddr,
        mut keep: impl FnMut(Arc<Batch>),
    ) -> Option<usize> {
        let key = self.heard(header, from)?;
        let now_ns = self.now_ns();
        let link = self.peers.link_mut(key)?;
        let released = &mut self.scratch.released;
        match link.session.on_ack(payload, now_ns, |payload| released.push(payload)) {
            Ok(()) => {}
            Err(SessionError::Packet(_)) => self.counters.drop(DropReason::PacketPayload, 1),
            Err(SessionError::Ack(_)) => self.counters.drop(DropReason::AckUnsent, 1),
        }
        for payload in released.drain(..) {
            match payload {
                Payload::Whole { batch, .. } | Payload::Message { content: Content::Record { batch, .. }, .. } => {
                    keep(batch);
                }
                // Its first packets stand for all.
                Payload::Message { content: Content::Control(message, _), from: 0, .. } => {
                    link.control_taken(message.len());
                }
                Payload::Packed { .. } | Payload::Datagrams { .. } | Payload::Message { .. } => {}
            }
        }
        self.peers.touch(key);
        Some(key)
    }
}

/// The drop reason of a malformed packet.
pub(crate) fn reason(error: PacketError) -> DropReason {
    match error {
        PacketError::Short => DropReason::PacketShort,
        PacketError::Version(_) => DropReason::PacketVersion,
        PacketError::Kind(_) => DropReason::PacketKind,
        PacketError::Length { .. } => DropReason::PacketLength,
        PacketError::Payload(_) | PacketError::Piece(_) => DropReason::PacketPayload,
    }
}
