//! Classification: a frame becomes batches, and each goes to the nodes that read its stream. The decoding of a message
//! is done once, however many subscribe.

use crate::context::{Context, InWork};
use crate::counters::DropReason;
use crate::io::Received;
use crate::net::Net;
use crate::net::frames::Data;
use crate::net::joining::{PiecePlace, Refused};
use crate::net::payload::Arrived;
use crate::net::peers::Publishing;
use crate::net::secure::Unsealed;
use crate::streams::{Stream, Streams};
use crossdock_format::Format;
use crossdock_mailbox::{Batch, Buffer, Slice, Span};
use crossdock_transport::handshake::Close;
use crossdock_transport::header::{PayloadSpan, Run};
use crossdock_transport::{ControlMessage, Header, PacketKind, Piece};
use std::net::SocketAddr;

impl Context {
    /// Takes one frame: its packets by runs, each to its session. One whose session is at another I/O context is handed over.
    pub(crate) fn take_frame(&mut self, frame: Received) {
        let Some(frame) = self.unseal(frame) else { return };
        if !self.net.is_routed(&frame) {
            return self.take_all_packets(frame);
        }
        self.net.take_routed(frame);
        while let Some(arrived) = self.net.next_arrived() {
            self.in_work = Some(InWork::Frame(arrived.from));
            if let Some(frame) = self.unseal(arrived) {
                self.take_all_packets(frame);
            }
        }
    }

    /// Takes a frame out of its envelopes, if there is more to do with it.
    fn unseal(&mut self, frame: Received) -> Option<Received> {
        let Unsealed { frame, ends } = self.net.unseal(frame);
        if let Some(other) = ends {
            self.remove_peer(other, "replaced", None);
        }
        frame
    }

    fn take_all_packets(&mut self, frame: Received) {
        self.take_packets(frame);
        while let Some(whole) = self.net.next_whole() {
            self.take_packets(whole);
        }
    }

    fn take_packets(&mut self, frame: Received) {
        let packets = self.net.walk(&frame);
        let Received { ref buffer, stride, from, .. } = frame;
        for run in &packets.runs {
            let spans = &packets.spans;
            if let Some(place) = self.net.place_elsewhere(run, buffer, spans) {
                // The packets of a frame are of one peer, which has one session.
                self.net.hand_over_packets(place, &run.header, frame, spans.len());
                break;
            }
            let payload = &buffer[spans[run.first].range()];
            match run.header.kind {
                PacketKind::Data | PacketKind::Control | PacketKind::Message => {
                    self.take_run(run, spans, (buffer, stride), from);
                }
                PacketKind::Datagram => self.take_datagrams(run, spans, (buffer, stride), from),
                PacketKind::Hello => {
                    // It is none, or was answered before.
                    let Some(hello) = self.net.take_hello(payload, from) else { continue };
                    if let Some(old) = self.net.session_at(from) {
                        self.remove_peer(old, "replaced", None);
                    }
                    let bound = self.access.most_sessions(self.net.origin(from), &self.config);
                    self.net.open_session(&hello, from, bound);
                }
                PacketKind::Ack => {
                    // The packets that it releases make room.
                    let spares = &mut self.workspace.spares;
                    let released = self.net.take_ack(&run.header, payload, from, |batch| spares.keep_shared(batch));
                    released.into_iter().for_each(|key| self.check_peer_queue(key));
                }
                PacketKind::Ping => self.net.take_ping(&run.header, from),
                PacketKind::Probe => self.net.take_probe(&run.header, from),
                PacketKind::Probed => self.net.take_probed(&run.header, from),
                PacketKind::Part => self.net.take_part(&run.header, payload, from),
                PacketKind::Close => {
                    if let Some(key) = self.net.heard(&run.header, from) {
                        self.end_session(key, "closed");
                    }
                }
                PacketKind::Welcome | PacketKind::Reset => self.net.count_drop(DropReason::PacketUnexpected, 1),
            }
        }
        self.net.keep_packets(packets);
    }

    /// Sequenced packets: put in order, then delivered.
    fn take_run(&mut self, run: &Run, spans: &[PayloadSpan], (buffer, stride): (&Buffer, usize), from: SocketAddr) {
        let taken = self.net.take_run(run, spans, (buffer, stride), from);
        if self.net.take_lacks_memory() {
            self.make_memory();
        }
        // They are of no session here, or there is no memory for them.
        let Some((key, skip)) = taken else { return };
        if let Some(skip) = skip {
            let spans = run.spans(spans);
            let end = spans.last().map_or(0, |span| span.range().end);
            let buffer = match run.header.kind {
                PacketKind::Data => self.net.in_circuit(key, buffer, end),
                _ => buffer.clone(),
            };
            let data = Data { buffer, header: run.header, spans, stride };
            self.deliver(key, data, skip);
            self.deliver_kept(key);
        }
        self.grant_credit(key);
        self.net.touch(key);
    }

    /// Datagrams: those that have not come before go to all that read their stream, unless there is no room for them.
    fn take_datagrams(
        &mut self,
        run: &Run,
        spans: &[PayloadSpan],
        (buffer, stride): (&Buffer, usize),
        from: SocketAddr,
    ) {
        let Some((key, fresh)) = self.net.take_datagrams(run, from) else { return };
        let (mut left, spans) = (fresh, run.spans(spans));
        while left != 0 {
            let first = left.trailing_zeros();
            let count = (left >> first).trailing_ones();
            left &= u64::MAX.checked_shl(first + count).unwrap_or(0);
            let found = spans.get(first as usize..(first + count) as usize);
            debug_assert!(found.is_some(), "the datagrams that are new are some of the run's");
            let Some(spans) = found else { return };
            let packets = spans.len() as u64;
            let Some(publishing) = self.net.peer(key).and_then(|p| p.published(run.header.stream, run.header.format))
            else {
                self.net.count_drop(DropReason::Unannounced, packets);
                continue;
            };
            // Records of a publication are counted, so that none is taken twice: they cannot be lost on the way. A datagram has whole
            // records.
            let is_countable = publishing.taken.is_none() && run.header.piece == Piece::Whole;
            if !is_countable || self.net.is_paused(key) || self.graph.is_blocked(publishing.stream as u32) {
                self.net.count_drop(DropReason::DatagramRefused, packets);
                continue;
            }
            self.deliver_records(key, Data { buffer: buffer.clone(), header: run.header, spans, stride });
        }
    }

    /// The packets that were kept ahead of a hole that is filled now, as far as there are buffers for what comes of it;
    /// the rest is asked for again.
    fn deliver_kept(&mut self, key: usize) {
        while let Some((kept, skip)) = self.net.next_kept(key) {
            let Arrived::Kept { buffer, header, spans, stride } = kept else {
                debug_assert!(false, "what is ahead of a hole does not lie in the frame that is taken");
                continue;
            };
            self.deliver(key, Data { buffer, header, spans: &spans, stride }, skip);
        }
        self.net.count_refused(key);
    }

    /// In-order packets of a peer: control messages are carried out, records become a batch.
    pub(crate) fn deliver(&mut self, key: usize, data: Data<'_>, skip: usize) {
        let spans = data.spans.get(skip..).unwrap_or_default();
        if self.net.is_paused(key) {
            return self.net.defer_packets(key, &data, spans);
        }
        if data.header.kind != PacketKind::Data {
            // One only: these do not run on ([`walk`]).
            for span in spans {
                self.take_message_packet(key, &data.header, &data.buffer[span.range()]);
            }
            return;
        }
        if data.header.piece != Piece::Whole || self.net.has_begun_record(key) {
            for span in spans {
                let payload = &data.buffer[span.range()];
                let place = PiecePlace { buffer: &data.buffer, start: span.start as usize };
                if !self.take_record_piece(key, &data.header, payload, Some(place)) {
                    // There was, when the packet was let in.
                    return self.refuse_piece(key, Refused::NoMemory);
                }
            }
            return;
        }
        self.deliver_records(key, Data { spans, ..data });
    }

    /// Packets of whole records become a batch, which goes to all that read their stream.
    pub(crate) fn deliver_records(&mut self, key: usize, data: Data<'_>) {
        let spans = data.spans;
        let Some((stream, format)) = self.net.announced(key, &data.header, spans.len() as u64) else { return };
        let mut batch = self.workspace.spares.take();
        (batch.stream, batch.format, batch.stride) = (stream as u32, format.id().0, data.stride);
        let flaw = fill(&mut batch, data.buffer, spans, &format);
        let Some(is_first) = self.count_taken(key, &data.header, batch.len() as u64) else {
            return self.workspace.spares.keep(batch);
        };
        if is_first && !batch.is_empty() {
            self.streams.keep_format_of(&mut self.net, key, &data.header);
        }
        self.dispatch(batch, stream, &[]);
        if let Some((records, flaw)) = flaw {
            let close = self.streams.malformed(stream, records, &flaw, &mut self.net);
            self.remove_peer(key, "malformed_records", Some(close));
        }
    }

    /// A packet of a control or mailbox message: the message is carried out when it is whole.
    pub(crate) fn take_message_packet(&mut self, key: usize, header: &Header, payload: &[u8]) {
        let joined = match self.net.join(key, header, payload) {
            Ok(Some(joined)) => joined,
            Ok(None) => return,
            Err(refused) => return self.refuse_piece(key, refused),
        };
        if header.kind == PacketKind::Message {
            if let Err(close) = self.net.put_message(key, header.stream, &joined, &mut self.host) {
                self.remove_peer(key, "beyond_credit", Some(close));
            }
            return;
        }
        match ControlMessage::decode(&joined) {
            Ok(ControlMessage::Request(request)) => self.carry_out(key, request),
            _ => self.net.count_drop(DropReason::BadControl, 1),
        }
    }

    /// A piece of a record that a peer publishes, which may stay in its `place`: the record goes to all that read its stream when it is
    /// whole. False if there is no memory for it now, and nothing has changed.
    pub(crate) fn take_record_piece(
        &mut self,
        key: usize,
        header: &Header,
        payload: &[u8],
        place: Option<PiecePlace<'_>>,
    ) -> bool {
        if header.piece == Piece::First && self.net.announced(key, header, 1).is_none() {
            return true;
        }
        let record = match self.net.join_record(key, header.piece, payload, place) {
            Ok(None) => return true,
            Ok(Some(record)) => record,
            Err(Refused::NoMemory) => {
                self.make_memory();
                return false;
            }
            Err(refused) => {
                self.refuse_piece(key, refused);
                return true;
            }
        };
        if let Some((stream, format)) = self.net.announced(key, header, 1) {
            self.take_record(key, header, record, (stream, &format));
        }
        true
    }

    /// A record that is a batch alone goes to all that read its stream, if it is one. Of one in pieces the first is looked at, and all of
    /// it, joined, where that does not say that it is sound.
    pub(crate) fn take_record(
        &mut self,
        key: usize,
        header: &Header,
        mut batch: Batch,
        (stream, format): (usize, &Format),
    ) {
        let Some(is_first) = self.count_taken(key, header, 1) else { return };
        (batch.stream, batch.format) = (stream as u32, format.id().0);
        let is_sound = format.is_sound_by_front(batch.front(0), batch.payload_bytes());
        let checked = if is_sound { Ok(1) } else { format.check_records(batch.record(0), |_, _| ()) };
        let flaw = match checked {
            Ok(1) => {
                if is_first {
                    self.streams.keep_format_of(&mut self.net, key, header);
                }
                return self.dispatch(batch, stream, &[]);
            }
            Ok(found) => format!("{found} records where there may be one"),
            Err(error) => error.to_string(),
        };
        self.streams.untake(stream, 1);
        let close = self.streams.malformed(stream, 1, &flaw, &mut self.net);
        self.remove_peer(key, "malformed_records", Some(close));
    }

    /// Counts records of a publication, which are to be given to all that read its stream, and says whether its format has had no
    /// record from this session before. `None` if its publisher has begun another session and sends them there again: this session
    /// ends then.
    pub(crate) fn count_taken(&mut self, key: usize, header: &Header, records: u64) -> Option<bool> {
        let publishing = self.net.present_peer(key).and_then(|peer| peer.published(header.stream, header.format));
        let taken = publishing.as_ref().and_then(|publishing| publishing.taken.as_ref());
        let stream = publishing.as_ref().and_then(|publishing| self.streams.present(publishing.stream));
        let take = |stream: &Stream| {
            stream.entry().activity().take(records, taken.map(|taken| &*taken.count), self.net.now_ns())
        };
        if stream.is_none_or(take) {
            return Some(publishing.is_some_and(|publishing| !publishing.has_records));
        }
        self.net.count_drop(DropReason::Superseded, records);
        let reason = "the publisher has begun another session".to_owned();
        // Should it be the one that the publisher has, it begins another, and goes on from the right record.
        self.remove_peer(key, "superseded", Some(Close { again: true, reason }));
        None
    }

    /// There is no memory for a message: a peer that has begun one long ago and not ended it is disconnected.
    pub(crate) fn make_memory(&mut self) {
        let patience_ns = u64::from(self.config.idle_timeout_ms) * 1_000_000;
        if let Some(slow) = self.net.slowest_joining(patience_ns) {
            let reason = "a message was begun and not ended, and others need the memory".to_owned();
            self.remove_peer(slow, "slow_message", Some(Close { again: true, reason }));
        }
    }

    /// A peer whose message cannot be taken is disconnected; for good, if that is its own fault.
    #[cold]
    fn refuse_piece(&mut self, key: usize, refused: Refused) {
        let (why, close) = match refused {
            Refused::Piece(error) => {
                self.net.count_drop(DropReason::BadPiece, 1);
                ("malformed_packet", Close { again: false, reason: error.to_string() })
            }
            Refused::NoMemory => {
                self.net.count_drop(DropReason::NoBuffer, 1);
                self.make_memory();
                ("no_buffer", Close { again: true, reason: "the daemon has no memory for a message now".to_owned() })
            }
        };
        self.remove_peer(key, why, Some(close));
    }

    /// A batch that sessions published goes to all that read its stream, but for the subscriptions in `passed`, which
    /// have it already. Queries run on it at once, handlers after the network was served.
    pub(crate) fn dispatch(&mut self, batch: Batch, stream_key: usize, passed: &[usize]) {
        let number = stream_key as u32;
        if let Some(stream) = self.streams.present_mut(stream_key) {
            let records = batch.len() as u64;
            stream.note_batch(&batch, true, self.net.now_ns());
            self.net.counters_mut().records_in += records;
            if !self.graph.takes(number) {
                stream.note_unclaimed(records);
                self.net.count_drop(DropReason::Unclaimed, records);
            }
        }
        self.net.counters_mut().batches_given += u64::from(self.graph.has_sessions(number));
        passed.iter().for_each(|key| self.graph.skip_next(*key));
        self.graph.arrive(number, batch, self.net.since_ns(), &mut self.workspace);
        self.serve_sessions();
        self.graph.check_publishers(number);
    }
}

impl Net {
    /// The stream and format of `packets` packets of records, as their peer announced them; what was not announced is counted.
    fn announced(&mut self, key: usize, header: &Header, packets: u64) -> Option<(usize, Format)> {
        let (number, format) = (header.stream, header.format);
        let found = self.present_peer(key)?.published(number, format);
        let found = found.map(|Publishing { stream, format, .. }| (*stream, format.clone()));
        if found.is_none() {
            self.count_drop(DropReason::Unannounced, packets);
        }
        found
    }
}

impl Streams {
    /// A publisher's packet holds bytes that are not a record of its format: with this reason its session is to end.
    pub(crate) fn malformed(&mut self, stream: usize, records: u64, flaw: &str, net: &mut Net) -> Close {
        if let Some(stream) = self.present_mut(stream) {
            stream.note_malformed(records);
        }
        net.count_drop(DropReason::Malformed, records);
        let reason = format!("a packet contains an invalid record: {flaw}");
        Close { again: false, reason }
    }

    /// Records that [`Context::count_taken`] has counted are none, and nobody gets them.
    pub(crate) fn untake(&self, stream: usize, records: u64) {
        self.present(stream).into_iter().for_each(|stream| stream.entry().activity().untake(records));
    }

    /// The first record of a session's in this format is sound: the stream keeps the format.
    #[cold]
    pub(crate) fn keep_format_of(&self, net: &mut Net, key: usize, header: &Header) {
        let peer = net.present_peer_mut(key);
        if let Some((stream, format)) = peer.and_then(|peer| peer.note_records(header.stream, header.format)) {
            self.keep_format(stream, format);
        }
    }
}

/// Writes the packets' payloads and records down in the batch, each record checked. A wrong record ends it: how many
/// records were claimed from there on, and the flaw.
pub(crate) fn fill(batch: &mut Batch, buffer: Buffer, spans: &[PayloadSpan], format: &Format) -> Option<(u64, String)> {
    let frame = buffer.clone();
    if batch.push_buffer(buffer).is_err() {
        return Some((0, "too many buffers".to_owned()));
    }
    for (index, span) in spans.iter().enumerate() {
        let claimed = || spans[index..].iter().map(|s| u64::from(s.records)).sum();
        let before = batch.records.len();
        let slice = Slice { buffer: 0, start: span.start, len: span.len, records: span.records.into() };
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
