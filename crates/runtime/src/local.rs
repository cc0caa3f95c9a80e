//! Packets of attached clients' sessions: control messages are carried out, records go to their stream's subscribers.
//!
//! A packet lies in memory that its domain's processes can still write. Its header is copied and checked, and only that
//! copy is trusted. Where every subscriber takes the stream unchanged and is of the publisher's domain, the message is
//! handed on by reference, and its payload is neither read nor copied. For all other subscribers it is copied once,
//! into a buffer of the context's own, and is then processed like a packet from the network. A subscriber checks what it gets by
//! reference, and reports invalid records: the stream's packets are then checked here too, up to those of the faulty publisher.

use crate::access::Access;
use crate::config::ContextConfig;
use crate::context::{Context, InWork};
use crate::counters::DropReason;
use crate::egress::Sessions;
use crate::graph::Graph;
use crate::graph::gauges::ContextGauges;
use crate::host::Host;
use crate::net::Net;
use crate::net::frames::reason;
use crate::net::peers::Peer;
use crate::principal::Principal;
use crate::streams::Streams;
use crate::subscriptions::Subscriptions;
use crossdock_mailbox::host::{ClientKey, Message, Prepared};
use crossdock_transport::handshake::Close;
use crossdock_transport::header::PayloadSpan;
use crossdock_transport::{HEADER_BYTES, Header, PacketKind, Piece};

/// A data packet whose publisher is known.
struct Published {
    /// Key of the publisher.
    peer: usize,
    client: ClientKey,
    header: Header,
    /// Key of the stream.
    stream: usize,
    message: Message,
}

impl Context {
    /// A packet of a client's session.
    pub(crate) fn take_session(&mut self, client: ClientKey, message: Message) {
        // Its peer may have ended with an earlier packet.
        let Some(key) = self.net.of_client(client.number()) else { return self.host.interface_mut().free(message) };
        self.in_work = Some(InWork::Message(client));
        self.take_own(key, message);
        self.in_work = None;
    }

    #[inline]
    fn take_own(&mut self, key: usize, message: Message) {
        let is_paused = self.net.is_paused(key);
        // It waits behind others.
        let Some(message) = self.net.defer_behind(key, message) else { return };
        let left = if is_paused { Some(message) } else { self.take_packet(key, message) };
        if let Some(message) = left
            && self.net.defer(key, message).is_none()
        {
            self.grant_credit(key);
        }
    }

    /// Carries out what a packet says; gives it back if the context has no buffers for it now.
    fn take_packet(&mut self, key: usize, message: Message) -> Option<Message> {
        if let Some(number) = message.sent_to() {
            return self.take_sent(key, number, message, false);
        }
        let mut head = [0; HEADER_BYTES];
        // A message shorter than a header is not read, and refused by its length.
        self.host.interface().read(&message, 0, &mut head);
        let header = match Header::parse(&head, message.len()) {
            Ok(header) => header,
            Err(error) => {
                self.net.count_drop(reason(error), 1);
                self.host.interface_mut().free(message);
                let reason = format!("a packet of this session is invalid: {error}");
                self.remove_peer(key, "malformed_packet", Some(Close { again: false, reason }));
                return None;
            }
        };
        match header.kind {
            PacketKind::Data => return self.take_published(key, header, message),
            PacketKind::Control => {
                let payload = self.host.payload_of(&header, &message);
                self.take_message_packet(key, &header, &payload);
                self.grant_credit(key);
            }
            PacketKind::Close => self.remove_peer(key, "closed", None),
            _ => self.net.count_drop(DropReason::PacketUnexpected, 1),
        }
        self.host.interface_mut().free(message);
        None
    }

    /// Records of a stream; gives the message back if the context has no buffers for it now.
    fn take_published(&mut self, key: usize, header: Header, message: Message) -> Option<Message> {
        let announced = self.net.present_peer(key).and_then(|peer| peer.published(header.stream, header.format));
        let stream = announced.map(|p| p.stream);
        let Some((client, stream)) = self.net.client_of(key).zip(stream) else {
            self.net.count_drop(DropReason::Unannounced, 1);
            self.host.interface_mut().free(message);
            return None;
        };
        if self.net.is_beyond_grants(key) {
            self.net.count_drop(DropReason::BeyondCredit, 1);
            self.host.interface_mut().free(message);
            let reason = "records were put into buffers that were granted for control".to_owned();
            self.remove_peer(key, "beyond_credit", Some(Close { again: false, reason }));
            return None;
        }
        self.net.note_arrival(message.len());
        let left = if header.piece != Piece::Whole || self.net.has_begun_record(key) {
            self.take_piece(key, &header, message)
        } else {
            self.distribute(Published { peer: key, client, header, stream, message })
        };
        if left.is_none() {
            self.net.note_taken(key);
        }
        left
    }

    /// A piece of a record; comes back if the context has no buffer for the record now.
    fn take_piece(&mut self, key: usize, header: &Header, message: Message) -> Option<Message> {
        if self.net.is_short_of_buffers() {
            return Some(message);
        }
        // It may not stay in memory that the client can write to.
        let payload = self.host.payload_of(header, &message);
        if !self.take_record_piece(key, header, &payload, None) {
            return Some(message);
        }
        self.host.interface_mut().free(message);
        None
    }

    /// A packet goes to its stream's subscribers, by reference or in part; comes back if the context has no buffers for
    /// it now.
    fn distribute(&mut self, published: Published) -> Option<Message> {
        let Published { peer, client, header, stream: stream_key, mut message } = published;
        let Some(stream) = self.streams.present(stream_key) else {
            self.host.interface_mut().free(message);
            return None;
        };
        let mut whole = self.subscriptions.take_list();
        let (of, place) = ((client, header.format), (&self.net, &self.host));
        let passes = |key: &usize| self.subscriptions.passes_in_place(*key, of, place, &self.graph);
        whole.extend(stream.subscriptions().iter().copied().filter(passes));
        let is_handled = self.graph.has_readers(stream_key as u32) || whole.len() < stream.subscriptions().len();
        let is_unclaimed = !self.graph.takes(stream_key as u32);
        let copies = is_handled || stream.is_suspect() || stream.wants_sample(header.format, self.net.now_ns());
        let left = if copies && self.net.lacks_buffers(peer) {
            Some(message)
        } else if let Some(is_first) = self.count_taken(peer, &header, header.records.into()) {
            let sound = !copies || self.distribute_copy((peer, is_first), &header, stream_key, &message, &whole);
            if !copies {
                if is_first && header.records > 0 {
                    self.streams.keep_format_of(&mut self.net, peer, &header);
                }
                self.streams.note_passed(stream_key, &header, is_unclaimed, &mut self.net);
            }
            if sound {
                for &subscription in &whole {
                    self.sessions().0.pass_in_place(subscription, &header, &mut message);
                }
            }
            self.host.interface_mut().free(message);
            None
        } else {
            whole.clear();
            self.host.interface_mut().free(message);
            None
        };
        if left.is_none() {
            // From here on subscriptions may end.
            for &subscription in &whole {
                self.check_queue(subscription);
            }
        }
        self.subscriptions.keep_list(whole);
        left
    }

    /// Copies a packet once into a buffer of the context's own, checks the copy, and gives it to all that read its stream
    /// but the subscriptions in `passed`. `is_first` is what
    /// [`Context::count_taken`] said. False if it is not what its header says; its publisher is disconnected then.
    fn distribute_copy(
        &mut self,
        (peer, is_first): (usize, bool),
        header: &Header,
        stream: usize,
        message: &Message,
        passed: &[usize],
    ) -> bool {
        let bytes = HEADER_BYTES + usize::from(header.payload_bytes);
        let format = self.net.present_peer(peer).and_then(|peer| peer.published(header.stream, header.format));
        debug_assert!(format.is_some(), "the packet was found to be of an announced format");
        let Some(format) = format.map(|p| p.format.clone()) else { return false };
        let Some(mut copy) = self.net.alloc_for(peer, bytes) else {
            // Large buffers are free, as was just asked; what is lost is counted all the same.
            self.net.count_drop(DropReason::NoBuffer, header.records.into());
            return false;
        };
        self.host.interface().read(message, 0, &mut copy[..bytes]);
        let payload =
            PayloadSpan { start: HEADER_BYTES as u32, len: header.payload_bytes.into(), records: header.records };
        let mut batch = self.workspace.spares.take();
        (batch.stream, batch.format, batch.stride) = (stream as u32, header.format, bytes);
        match crate::dispatch::fill(&mut batch, copy.freeze(), &[payload], &format) {
            None => {
                if is_first && !batch.is_empty() {
                    self.streams.keep_format_of(&mut self.net, peer, header);
                }
                self.dispatch(batch, stream, passed);
                true
            }
            Some((records, flaw)) => {
                self.workspace.spares.keep(batch);
                self.streams.untake(stream, header.records.into());
                let close = self.streams.malformed(stream, records, &flaw, &mut self.net);
                self.remove_peer(peer, "malformed_records", Some(close));
                false
            }
        }
    }

    /// Gives clients that are behind what can be given now: packets that wait for the context's buffers, messages that
    /// wait for room in an inbox, and credit to the publishers that a full queue held back.
    pub(crate) fn tick_lagging(&mut self) {
        // Nobody is behind.
        let Some(mut lagging) = self.net.take_lagging() else { return };
        lagging.retain(|&key| self.tick(key));
        self.net.keep_lagging(lagging);
    }

    /// Whether the peer is still behind.
    fn tick(&mut self, key: usize) -> bool {
        self.net.retry(key, self.host.interface_mut());
        while let Some(message) = self.net.next_deferred(key) {
            self.in_work = Some(InWork::Deferred(key));
            let left = self.take_packet(key, message);
            self.in_work = None;
            // It was taken.
            let Some(left) = left else { continue };
            if let Some(left) = self.net.defer_again(key, left) {
                self.host.interface_mut().free(left);
            }
            break;
        }
        if self.net.has_left(key) {
            self.remove_peer(key, "gone", None);
            return false;
        }
        if let Some(close) = self.net.is_stopped(key, self.host.interface()) {
            self.remove_peer(key, "silent", Some(close));
            return false;
        }
        self.grant_credit(key);
        self.check_peer_queue(key);
        self.net.is_still_behind(key)
    }
}

impl Net {
    /// Takes in a client that may attach: as a peer, watched from now on.
    ///
    /// # Errors
    /// In words, for the client: a table is full, or the system's.
    pub(crate) fn admit(
        &mut self,
        prepared: Prepared,
        host: &mut Host,
        (config, access): (&ContextConfig, &Access),
        gauges: &ContextGauges,
    ) -> Result<ClientKey, String> {
        let attached = host.interface().attached() as usize;
        let origin = Principal::User(prepared.uid());
        let bound = access.most_sessions(origin, config);
        self.bound_sessions(origin, bound, attached).map_err(|refusal| refusal.message)?;
        let client = host.interface_mut().admit(prepared, self.now_ns()).map_err(|error| error.to_string())?;
        match self.insert_attached(client, host.interface_mut()) {
            Ok(()) => {
                // Before the answer: the next client is placed by it.
                gauges.clients.set(host.interface().attached().into());
                Ok(client)
            }
            Err(error) => {
                host.interface_mut().detach(client);
                Err(format!("the daemon cannot watch the client: {error}"))
            }
        }
    }
}

impl Host {
    /// A copy of a packet's payload.
    fn payload_of(&self, header: &Header, message: &Message) -> Vec<u8> {
        let mut payload = vec![0; header.payload_bytes.into()];
        self.interface().read(message, HEADER_BYTES, &mut payload);
        payload
    }
}

impl Streams {
    /// Counts a packet that no handler sees.
    fn note_passed(&mut self, stream: usize, header: &Header, is_unclaimed: bool, net: &mut Net) {
        let records = u64::from(header.records);
        let Some(stream) = self.present_mut(stream) else { return };
        stream.count(records, header.payload_bytes.into(), net.now_ns());
        net.counters_mut().records_in += records;
        if is_unclaimed {
            stream.note_unclaimed(records);
            net.count_drop(DropReason::Unclaimed, records);
        }
    }
}

impl Subscriptions {
    /// Whether a subscription takes a publisher's packets of a format unchanged, and may have them in place: behind
    /// all that came before, and as far as its queue has room.
    fn passes_in_place(
        &self,
        key: usize,
        (publisher, format): (ClientKey, u64),
        (net, host): (&Net, &Host),
        graph: &Graph,
    ) -> bool {
        let Some(subscription) = self.present(key) else { return false };
        let takes_all = subscription.takes_all(format);
        if !takes_all || !graph.takes_unchanged(key, format) || !graph.is_session_idle(key) {
            return false;
        }
        let is_full = |peer: &Peer| subscription.waits_for_room() && peer.is_full();
        let subscriber = net.client_of(subscription.peer());
        !net.peer(subscription.peer()).is_some_and(is_full)
            && subscriber.is_some_and(|client| host.interface().share_domain(client, publisher))
    }
}

impl Sessions<'_> {
    /// Hands a message on by reference.
    fn pass_in_place(&mut self, key: usize, header: &Header, message: &mut Message) {
        // It may have ended while the copy was given to the others.
        let Some(subscription) = self.subscriptions.get_mut(key) else { return };
        let (peer, to, host) = (subscription.peer(), subscription.recipient(), &mut *self.host);
        self.net.flush(peer, subscription.packet(), to, host);
        self.net.pass_in_place(peer, message, to, header.records, host);
        let records = u64::from(header.records);
        subscription.gauges().published.add(records);
        subscription.gauges().records_in.add(records);
        subscription.gauges().records_out.add(records);
    }
}
