//! Classification: a frame becomes batches, and each goes to the nodes that read its stream. The decoding of a message
//! is done once, however many subscribe.

use crate::context::{Context, wire};
use crate::counters::DropReason;
use crate::io::{Handed, IoPlace, Received};
use crate::net::payload::Arrived;
use crate::net::peers::{Peer, Publishing};
use crossdock_mailbox::{Batch, Buffer, Slice, Span};
use crossdock_transport::handshake::Close;
use crossdock_transport::header::{PayloadSpan, Run, walk};
use crossdock_transport::receiver::Arrival;
use crossdock_transport::{ControlMessage, Header, Hello, Kind, MAX_SUPER_BYTES, Notice, PacketError};
use std::net::SocketAddr;

/// Shortest interval between two reports of dropped records to a subscriber, in ns.
const TELL_INTERVAL_NS: u64 = 100_000_000;

/// A run of data packets, ready to be read.
pub(crate) struct Data<'a> {
    pub(crate) buffer: Buffer,
    pub(crate) header: Header,
    pub(crate) spans: &'a [PayloadSpan],
    pub(crate) stride: usize,
}

impl Context {
    /// Takes one frame: its packets by runs, each to its session. One whose session is at another I/O context is handed over.
    pub(crate) fn take_frame(&mut self, frame: Received) {
        let Received { ref buffer, len, stride, from } = frame;
        let mut spans = std::mem::take(&mut self.scratch.spans);
        let mut runs = std::mem::take(&mut self.scratch.runs);
        let (counters, mut is_of_other_version) = (&mut self.counters, false);
        walk(&buffer[..len], stride, &mut spans, &mut runs, |error| {
            is_of_other_version |= matches!(error, PacketError::Version(_));
            counters.drop(reason(error), 1);
        });
        if is_of_other_version && let Some(close) = Hello::refuse_version(&buffer[..len]) {
            self.send_now(from, &close);
        }
        self.counters.frames_in += 1;
        self.counters.packets_in += spans.len() as u64;
        for run in &runs {
            if let Some(place) = self.place_elsewhere(run, buffer, &spans) {
                // The packets of a frame are of one peer, which has one session.
                if self.hand_over.push(place, Handed::Frame(frame)).is_err() {
                    self.counters.drop(DropReason::NotHandedOver, spans.len() as u64);
                }
                break;
            }
            let payload = &buffer[spans[run.first].range()];
            match run.header.kind {
                Kind::Data | Kind::Control | Kind::Message => self.take_run(run, &spans, buffer, stride, from),
                Kind::Hello => self.take_hello(payload, from),
                Kind::Ack => self.take_ack(&run.header, payload, from),
                Kind::Ping => {
                    if let Some(key) = self.peer_of(&run.header, from)
                        && let Some(link) = self.peers.link_mut(key)
                    {
                        link.session.receiver.ack_soon();
                        self.peers.touch(key);
                    }
                }
                Kind::Close => {
                    if let Some(key) = self.peer_of(&run.header, from) {
                        self.end_session(key, "closed");
                    }
                }
                Kind::Welcome => self.counters.drop(DropReason::PacketUnexpected, 1),
            }
        }
        self.scratch.spans = spans;
        self.scratch.runs = runs;
    }

    /// The place of the I/O context that a run of packets is for, if that is another one: the one that has their session, or
    /// with a hello the one that is to have it.
    #[inline]
    fn place_elsewhere(&self, run: &Run, buffer: &Buffer, spans: &[PayloadSpan]) -> Option<usize> {
        if self.place.is_only() {
            return None;
        }
        let place = match run.header.kind {
            Kind::Hello => {
                let hello = Hello::decode(&buffer[spans[run.first].range()]).ok();
                let place = hello.filter(|hello| hello.uses_mailboxes).map(|_| IoPlace::home(self.place.of));
                place.unwrap_or(self.place).index
            }
            _ => self.peers.place_of(run.header.session),
        };
        (place != self.place.index && place < self.place.of).then_some(place)
    }

    /// The peer a packet belongs to, noted as heard.
    fn peer_of(&mut self, header: &Header, from: SocketAddr) -> Option<usize> {
        let found = self.peers.find(header.session, from);
        match found.and_then(|key| self.peers.link_mut(key)) {
            Some(link) => link.session.heard(self.now_ns),
            None => self.counters.drop(DropReason::UnknownSession, 1),
        }
        found
    }

    /// Sequenced packets: put in order, then delivered.
    fn take_run(&mut self, run: &Run, spans: &[PayloadSpan], buffer: &Buffer, stride: usize, from: SocketAddr) {
        let Some(key) = self.peer_of(&run.header, from) else { return };
        if run.header.kind == Kind::Data && self.is_short_of_buffers() {
            self.counters.drop(DropReason::NoBuffer, run.packets.into());
            return;
        }
        let needed = self.buffers_needed();
        let Some(link) = self.peers.link_mut(key) else { return };
        let receiver = &mut link.session.receiver;
        let is_ahead = run.header.seq > receiver.next_seq();
        if is_ahead && run.header.kind == Kind::Data && !self.pool.has_free(MAX_SUPER_BYTES, 2 * needed) {
            // The packets that fill the hole must find buffers.
            self.counters.drop(DropReason::NoBuffer, run.packets.into());
            return;
        }
        let handle = if is_ahead {
            Arrived::Kept { buffer: buffer.clone(), header: run.header, spans: run.spans(spans).to_vec(), stride }
        } else {
            Arrived::Here
        };
        let mut first_skip = None;
        let (traffic, deliver) = (run.header.kind.traffic(), |_, skip| first_skip = Some(skip as usize));
        let arrival = receiver.arrive_alone(traffic, run.header.seq, run.packets, handle, self.now_ns, deliver);
        match arrival {
            Arrival::Delivered | Arrival::Held => {}
            Arrival::Duplicate => self.counters.drop(DropReason::Duplicate, run.packets.into()),
            Arrival::Beyond => self.counters.drop(DropReason::BeyondCredit, run.packets.into()),
        }
        if let Some(skip) = first_skip {
            let data = Data { buffer: buffer.clone(), header: run.header, spans: run.spans(spans), stride };
            self.deliver(key, data, skip);
            self.deliver_kept(key);
        }
        self.grant_credit(key);
        self.peers.touch(key);
    }

    /// What was kept ahead of a hole that is filled now, as far as there are buffers for what comes of it; the rest is
    /// asked for again.
    fn deliver_kept(&mut self, key: usize) {
        while !self.is_short_of_buffers()
            && let Some((kept, skip)) = self.peers.link_mut(key).and_then(|link| link.session.receiver.next_kept())
        {
            let Arrived::Kept { buffer, header, spans, stride } = kept else { continue };
            self.deliver(key, Data { buffer, header, spans: &spans, stride }, skip as usize);
        }
        if let Some(link) = self.peers.link_mut(key) {
            self.counters.drop(DropReason::BeyondCredit, link.session.receiver.take_refused());
        }
    }

    /// In-order packets of a peer: control messages are carried out, records become a batch.
    pub(crate) fn deliver(&mut self, key: usize, data: Data<'_>, skip: usize) {
        let spans = data.spans.get(skip..).unwrap_or_default();
        if self.peers.get(key).is_some_and(|peer| peer.is_paused) {
            return self.park(key, &data, spans);
        }
        if data.header.kind == Kind::Control {
            // One only: these do not run on ([`walk`]).
            for span in spans {
                match ControlMessage::decode(&data.buffer[span.range()]) {
                    Ok(ControlMessage::Request(request)) => self.carry_out(key, request),
                    _ => self.counters.drop(DropReason::BadControl, 1),
                }
            }
            return;
        }
        if data.header.kind == Kind::Message {
            for span in spans {
                self.take_message(key, data.header.stream, &data.buffer[span.range()]);
            }
            return;
        }
        let Some(peer) = self.peers.get(key) else { return };
        let (number, format) = (data.header.stream, data.header.format);
        let found = peer.publishing.iter().find(|p| p.number == number && p.format.id().0 == format);
        let Some(Publishing { stream, format, .. }) = found else {
            self.counters.drop(DropReason::Unannounced, spans.len() as u64);
            return;
        };
        let (stream, format) = (*stream, format.clone());
        let mut batch = self.workspace.spares.take();
        (batch.stream, batch.format, batch.stride) = (stream as u32, format.id().0, data.stride);
        let flaw = fill(&mut batch, data.buffer, spans, &format);
        self.dispatch(batch, stream, &[]);
        if let Some((records, flaw)) = flaw {
            self.disconnect_malformed(key, stream, records, &flaw);
        }
    }

    /// Disconnects a publisher whose packet holds bytes that are not a record of its format.
    pub(crate) fn disconnect_malformed(&mut self, key: usize, stream: usize, records: u64, flaw: &str) {
        if let Some(stream) = self.streams.get_mut(stream) {
            stream.malformed += records;
        }
        self.counters.drop(DropReason::Malformed, records);
        let reason = format!("a packet contains an invalid record: {flaw}");
        self.remove_peer(key, "malformed_records", Some(Close { again: false, reason }));
    }

    /// A batch that sessions published goes to all that read its stream, but for the subscriptions in `passed`, which
    /// have it already. Queries run on it at once, handlers after the network was served.
    pub(crate) fn dispatch(&mut self, batch: Batch, stream_key: usize, passed: &[usize]) {
        let number = stream_key as u32;
        self.note_arrival(stream_key, &batch, true);
        if !self.graph.takes(number)
            && let Some(stream) = self.streams.get_mut(stream_key)
        {
            let records = batch.len() as u64;
            stream.unclaimed += records;
            self.counters.drop(DropReason::Unclaimed, records);
        }
        self.counters.batches_given += u64::from(self.graph.has_sessions(number));
        passed.iter().for_each(|key| self.graph.skip_next(*key));
        self.graph.arrive(number, batch, self.since_ns, &mut self.workspace);
        self.serve_sessions();
        self.graph.check_publishers(number);
    }

    /// Counts a stream's records, and keeps a sample of them. Each record counts at one context, where `is_first`; at others
    /// it belongs to the rate of what the queries there see.
    pub(crate) fn note_arrival(&mut self, stream: usize, batch: &Batch, is_first: bool) {
        let records = batch.len() as u64;
        let Some(stream) = self.streams.get_mut(stream) else { return };
        if is_first {
            self.counters.records_in += records;
            stream.peak.note(records, self.now_ns);
            stream.batches_in += 1;
            stream.records_in += records;
            stream.bytes_in += batch.payload_bytes() as u64;
        } else {
            stream.peak_elsewhere.note(records, self.now_ns);
        }
        if let Some(known) = stream.formats.iter_mut().find(|f| f.format.id().0 == batch.format) {
            known.sample.offer(self.now_ns, batch);
        }
    }

    /// Super-packets that were filled in part leave: at once in quiet times, when their linger has passed in busy ones.
    pub(crate) fn flush_opened(&mut self, busy: bool) {
        let linger_ns = if busy { u64::from(self.config.linger_us) * 1000 } else { 0 };
        let mut opened = std::mem::take(&mut self.scratch.opened);
        opened.retain(|&key| {
            let Some(subscription) = self.subscriptions.get(key) else { return false };
            let Some(opened_ns) = subscription.output.opened_ns() else { return false };
            if self.now_ns < opened_ns.saturating_add(linger_ns) {
                return true;
            }
            self.flush_subscription(key);
            false
        });
        self.scratch.opened = opened;
    }

    /// Whether a super-packet was filled in part and has not left.
    pub(crate) fn has_opened(&self) -> bool {
        !self.scratch.opened.is_empty()
    }

    /// The open packet of a subscription joins its queue.
    pub(crate) fn flush_subscription(&mut self, key: usize) {
        let Some(subscription) = self.subscriptions.get_mut(key) else { return };
        let (peer, to) = (subscription.peer, subscription.recipient());
        let Some(carrier) = self.peers.get_mut(peer).map(Peer::carrier_mut) else { return };
        if !subscription.output.flush(carrier, &mut wire!(self), to) {
            return;
        }
        if carrier.is_behind() {
            self.straggle(peer);
        }
        self.peers.touch(peer);
    }

    /// Reports to a subscriber the records that it has lost since the last report.
    pub(crate) fn tell_dropped(&mut self, key: usize, now: bool) {
        let Some(subscription) = self.subscriptions.get_mut(key) else { return };
        // A subscriber that has not yet taken the last report gets the sum later, at the latest with the stream's end.
        let waits = self.now_ns < subscription.told_ns + TELL_INTERVAL_NS
            || self.peers.get(subscription.peer).is_none_or(|p| p.carrier().untaken_control_bytes(&self.host) > 0);
        if subscription.untold == 0 || (waits && !now) {
            return;
        }
        let records = std::mem::take(&mut subscription.untold);
        subscription.told_ns = self.now_ns;
        let reason = "the queue was full, a record was too long, a format was not accepted and not converted in time, \
                      or a value does not fit the accepted format (`crossdock paths` shows which)"
            .to_owned();
        let notice = Notice::Dropped { subscription: subscription.number, records, reason };
        let peer = subscription.peer;
        self.tell(peer, &notice.into());
    }
}

/// Writes the packets' payloads and records down in the batch, each record checked. What is wrong ends it: how many
/// records were claimed from there on, and the flaw.
pub(crate) fn fill(
    batch: &mut Batch,
    buffer: Buffer,
    spans: &[PayloadSpan],
    format: &crossdock_format::Format,
) -> Option<(u64, String)> {
    let frame = buffer.clone();
    if batch.push_buffer(buffer).is_err() {
        return Some((0, "too many buffers".to_owned()));
    }
    for (index, span) in spans.iter().enumerate() {
        let claimed = || spans[index..].iter().map(|s| u64::from(s.records)).sum();
        let before = batch.records.len();
        let slice = Slice { buffer: 0, start: span.start, len: span.len.into(), records: span.records.into() };
        if batch.push_slice(slice).is_err() {
            return Some((claimed(), "too many packets".to_owned()));
        }
        let records = &mut batch.records;
        let checked = format.check_records(&frame[span.range()], |start, len| {
            records.push(Span { slice: index as u16, start: span.start + start, len });
        });
        let flaw = match checked {
            Ok(found) if found == usize::from(span.records) => continue,
            Ok(found) => format!("{found} records, and the header states {}", span.records),
            Err(error) => error.to_string(),
        };
        batch.records.truncate(before);
        batch.slices.pop();
        return Some((claimed(), flaw));
    }
    None
}

/// The drop reason of a malformed packet.
pub(crate) fn reason(error: PacketError) -> DropReason {
    match error {
        PacketError::Short => DropReason::PacketShort,
        PacketError::Version(_) => DropReason::PacketVersion,
        PacketError::Kind(_) => DropReason::PacketKind,
        PacketError::Length { .. } => DropReason::PacketLength,
        PacketError::Payload(_) => DropReason::PacketPayload,
    }
}
