//! Classification and the service path: a frame becomes batches, a batch goes through the handlers of its stream's
//! subscriptions to their outputs. The decoding of a message is done once, however many subscribe.

use crate::context::{Context, wire};
use crate::counters::DropReason;
use crate::graph::run::{Outcome, process};
use crate::managers::request::ControlRequest;
use crate::morph::Route;
use crate::net::payload::{Arrived, Payload};
use crate::net::peers::{Peer, Publishing};
use crate::net::sink::SessionSink;
use crate::streams::Stream;
use crossdock_device::Frame;
use crossdock_mailbox::{Batch, Buffer, Slice, Span};
use crossdock_transport::handshake::Close;
use crossdock_transport::header::{PayloadSpan, Run, walk};
use crossdock_transport::receiver::Arrival;
use crossdock_transport::{ControlMessage, Header, Kind, MAX_SUPER_BYTES, Notice, PacketError};
use std::net::SocketAddr;
use std::rc::Rc;

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
    /// Takes one frame from the device: its packets by runs, each to its session.
    pub(crate) fn take_frame(&mut self, frame: Frame) {
        let Frame { buffer, len, stride, from } = frame;
        let mut spans = std::mem::take(&mut self.scratch.spans);
        let mut runs = std::mem::take(&mut self.scratch.runs);
        let counters = &mut self.counters;
        walk(&buffer[..len], stride, &mut spans, &mut runs, |error| counters.drop(reason(error), 1));
        let buffer = buffer.freeze();
        self.counters.frames_in += 1;
        self.counters.packets_in += spans.len() as u64;
        for run in &runs {
            let payload = &buffer[spans[run.first].range()];
            match run.header.kind {
                Kind::Data | Kind::Control | Kind::Message => self.take_run(run, &spans, &buffer, stride, from),
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
        let arrival = receiver.arrive_alone(run.header.seq, run.packets, handle, self.now_ns, |_, skip| {
            first_skip = Some(skip as usize);
        });
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
        let mut batch = self.scratch.spare.pop().unwrap_or_default();
        (batch.stream, batch.format) = (stream as u32, format.id().0);
        let flaw = fill(&mut batch, data.buffer, spans, &format);
        self.dispatch(batch, stream, data.stride);
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
        let reason = format!("a packet holds what is not a record of its format: {flaw}");
        self.remove_peer(key, "malformed_records", Some(Close { again: false, reason }));
    }

    /// A batch goes through the handlers of all subscriptions to its stream.
    pub(crate) fn dispatch(&mut self, batch: Batch, stream_key: usize, stride: usize) {
        let Some(stream) = self.streams.get_mut(stream_key) else { return };
        let mut subscribers = std::mem::take(&mut self.scratch.checked);
        subscribers.clone_from(&stream.subscriptions);
        if subscribers.is_empty() && stream.made_by.is_none() && !self.graph.takes(stream_key as u32) {
            let records = batch.len() as u64;
            stream.unclaimed += records;
            self.counters.drop(DropReason::Unclaimed, records);
        }
        self.dispatch_to(batch, stream_key, stride, &subscribers);
        // From here on subscriptions may end.
        for &key in &subscribers {
            self.check_queue(key);
        }
        self.scratch.checked = subscribers;
    }

    /// A batch goes through the handlers of some of its stream's subscriptions.
    pub(crate) fn dispatch_to(&mut self, mut batch: Batch, stream: usize, stride: usize, subscribers: &[usize]) {
        self.counters.records_in += batch.len() as u64;
        let mut is_published = true;
        if let Some(stream) = self.streams.get_mut(stream) {
            note_arrival(stream, &batch, self.now_ns);
            is_published = stream.made_by.is_none();
        }
        // What a handler makes was given to the nodes that read it when it was made.
        if is_published {
            self.counters.batches_given += u64::from(!subscribers.is_empty());
            self.graph.arrive(stream as u32, &batch, self.since_ns, &mut self.workspace);
        }
        let mut whole = std::mem::take(&mut self.scratch.whole);
        let mut converted = std::mem::take(&mut self.scratch.converted);
        let mut late = std::mem::take(&mut self.scratch.late);
        for &key in subscribers {
            match self.subscriptions.get(key).map(|subscription| subscription.way(batch.format)) {
                Some(Route::Direct | Route::Chain(_)) if self.must_wait(key) => late.push(key),
                Some(Route::Direct) if self.serve(key, &batch, stride) => whole.push(key),
                Some(Route::Chain(chain)) => converted.push((chain, key)),
                Some(Route::None) => self.put_aside(key, &batch),
                Some(Route::Direct) | None => {}
            }
        }
        if !late.is_empty() {
            self.make_late(&batch, stream, &late);
            late.clear();
        }
        self.scratch.late = late;
        // Once for all that take the same chain.
        converted.sort_unstable();
        for group in converted.chunk_by(|one, other| one.0 == other.0) {
            self.convert(stream, group[0].0, &batch, group);
        }
        converted.clear();
        self.scratch.converted = converted;
        if whole.is_empty() {
            self.recycle(batch);
        } else {
            batch.selection.select_all(batch.records.len());
            let batch = Rc::new(batch);
            for key in whole.drain(..) {
                self.pass_whole(key, &batch, stride);
            }
        }
        self.scratch.whole = whole;
    }

    /// One subscription's handler on a batch; whether the batch should leave whole for it.
    pub(crate) fn serve(&mut self, key: usize, batch: &Batch, stride: usize) -> bool {
        let Some(subscription) = self.subscriptions.get_mut(key) else { return false };
        let Some(peer) = self.peers.get_mut(subscription.peer) else { return false };
        let (records, to) = (batch.len() as u64, subscription.recipient());
        subscription.records_in += records;
        let was_open = subscription.output.opened_ns().is_some();
        let entry = subscription.entries.iter_mut().find(|e| e.format == batch.format);
        let Some((handler, format)) = entry.and_then(|e| e.handler.as_mut().map(|h| (h, e.output))) else {
            self.counters.drop(DropReason::Unreadable, records);
            subscription.lose(records);
            return false;
        };
        let before = handler.counters().row_errors;
        let mut sink = SessionSink::new(&mut subscription.output, peer.carrier_mut(), wire!(self), to, format);
        self.scratch.selection.select_all(batch.len());
        let whole = match process(&mut **handler, batch, &mut self.scratch.selection, &mut sink) {
            Outcome::Whole => Some(sink.take_whole(batch, stride)),
            Outcome::Made => Some(false),
            Outcome::Panicked => None,
        };
        let (taken, lost) = (sink.taken, sink.lost);
        let errors = if whole.is_some() { handler.counters().row_errors - before } else { 0 };
        if !was_open && subscription.output.opened_ns().is_some() {
            self.scratch.opened.push(key);
        }
        self.note_served(key, taken, lost, errors);
        whole.unwrap_or_else(|| {
            self.fail_query(key, batch.format, records.saturating_sub(taken));
            false
        })
    }

    /// Counts what a subscription's query made of a batch.
    #[inline]
    fn note_served(&mut self, key: usize, taken: u64, lost: u64, errors: u64) {
        let Some(subscription) = self.subscriptions.get_mut(key) else { return };
        subscription.records_out += taken;
        subscription.lose(lost);
        subscription.row_errors += errors;
        self.counters.drop(DropReason::RowError, errors);
        self.counters.records_out += taken;
        if taken > 0 {
            self.peers.touch(subscription.peer);
        }
    }

    /// A subscription's query has panicked, which is a flaw of the daemon: it sees no more records of this format, and
    /// nobody else notices.
    #[cold]
    fn fail_query(&mut self, key: usize, format: u64, records: u64) {
        self.counters.drop(DropReason::QueryFailed, records);
        let Some(subscription) = self.subscriptions.get_mut(key) else { return };
        subscription.lose(records);
        if let Some(entry) = subscription.entries.iter_mut().find(|entry| entry.format == format) {
            entry.handler = None;
        }
        let (peer, number) = (subscription.peer, subscription.number);
        let message =
            "the query failed at a record, by a flaw of the daemon: records of this format are dropped".to_owned();
        let text = format!("the query `{}`: {message}", subscription.select.sql());
        self.tell(peer, &Notice::Unreadable { subscription: number, message }.into());
        // The managers may have ended before.
        let _ = self.news.send(ControlRequest::QueryFailed(text));
    }

    /// A whole batch joins the queue of a subscription over packets by reference.
    fn pass_whole(&mut self, key: usize, batch: &Rc<Batch>, stride: usize) {
        let Some(subscription) = self.subscriptions.get_mut(key) else { return };
        let Some(link) = self.peers.link_mut(subscription.peer) else { return };
        subscription.records_out += batch.len() as u64;
        self.counters.records_out += batch.len() as u64;
        self.counters.batches_whole += 1;
        Payload::Whole { batch: Rc::clone(batch), stride, to: subscription.recipient() }.enqueue(&mut link.session);
        self.peers.touch(subscription.peer);
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
        let reason = "the queue was full, a record too long, its format not what the query or the subscriber takes and not \
                      converted to it in time, or a value without a place in the accepted format (`crossdock paths` says which)"
            .to_owned();
        let notice = Notice::Dropped { subscription: subscription.number, records, reason };
        let peer = subscription.peer;
        self.tell(peer, &notice.into());
    }

    /// Keeps a batch's lists for the next one.
    pub(crate) fn recycle(&mut self, mut batch: Batch) {
        if self.scratch.spare.len() < 64 {
            batch.clear();
            self.scratch.spare.push(batch);
        } else {
            // Handlers took one for what is delivered.
            self.workspace.spares.keep(batch);
        }
    }
}

/// Counts a stream's records, and keeps a sample of them.
fn note_arrival(stream: &mut Stream, batch: &Batch, now_ns: u64) {
    stream.peak.note(batch.len() as u64, now_ns);
    stream.batches_in += 1;
    stream.records_in += batch.len() as u64;
    stream.bytes_in += batch.payload_bytes() as u64;
    if let Some(known) = stream.formats.iter_mut().find(|f| f.format.id().0 == batch.format) {
        known.sample.offer(now_ns, batch);
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
            Ok(found) => format!("{found} records where the header claims {}", span.records),
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
