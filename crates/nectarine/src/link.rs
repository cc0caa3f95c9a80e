//! One session with the daemon as a client sees it: connecting, driving, coming back.
//!
//! A link is a state machine around a [`Carrier`]: [`Link::receive`] takes what has arrived, [`Link::drive`] lets time pass and
//! sends what is due. It never blocks; who waits does so outside, on the carrier's descriptor, until [`Link::due_ns`].
//! Which carrier it is matters only to [`Link::connect`], which chooses it.

pub(crate) mod awaiting;
mod backlog;
mod datagrams;
mod kept;
#[cfg(test)]
mod tests;

use crate::carrier::memory::{Memory, NotAttached};
use crate::carrier::udp::Udp;
use crate::carrier::{Carrier, Closed, DatagramCounts};
use crate::error::Error;
use crate::incoming::{Answer, Arrived, Bytes, Heard, Incoming, Opened};
use crate::outgoing::{Message, Outgoing, PacketBuffer};
use crate::settings::{DaemonAddress, Settings, Transport};
use awaiting::Awaiting;
use backlog::Waiting;
use crossdock_device::Idler;
use crossdock_format::Format;
use crossdock_mailbox::attach::AttachRequest;
use crossdock_mailbox::client::Attachment;
use crossdock_transport::control::{Refusal, RefusalCode};
use crossdock_transport::handshake::Close;
use crossdock_transport::header::PayloadSpan;
use crossdock_transport::pieces::Joined;
use crossdock_transport::{
    ControlMessage, HEADER_BYTES, Header, Joiner, MAX_CONTROL_BYTES, MAX_MESSAGE_BYTES, MAX_SUPER_BYTES, Notice,
    PacketKind, Piece, PieceError, Reply, Request, SuperPacket, TrafficClass,
};
use kept::{KeptRecords, waiting_records};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// The first pause between two tries to come back, and the longest, in ns: a daemon that is started again has its clients back soon.
const BACKOFF_NS: (u64, u64) = (50_000_000, 200_000_000);
/// How long one try to come back dials before it counts as failed, in ns.
const DIAL_NS: u64 = 2_000_000_000;
/// How long each of a daemon's steps may take when this process tries to attach again.
const ATTACH_AGAIN: Duration = Duration::from_secs(1);
/// Arrivals that wait for the application before more are taken from a carrier where they wait as well. Of records there are
/// fewer, so this delays answers only where many notices wait.
const INBOX: usize = 512;
/// Notices that wait for the application before the daemon must wait with more.
const MAX_NOTICES: usize = 256;
/// Wanted conversions that wait for the application at most.
const MAX_WANTS: usize = 32;
/// For how long a waiting call polls before it sleeps, while messages come one by one at shorter intervals, in ns: less than a
/// sleep and a wake-up take.
const SPIN_NS: u64 = 30_000;
/// How often acks are looked for while some are awaited, in ns: one that lies in the socket until then seems to come by a longer path.
const LOOK_EVERY_NS: u64 = 1_000_000;
/// The longest record that fits a packet, and the longest message that is put into a mailbox over packets, in bytes.
pub(crate) const MAX_PAYLOAD_BYTES: usize = MAX_SUPER_BYTES - HEADER_BYTES;

/// The number of a request whose answer nobody waits for.
pub(crate) const NOBODY: u32 = 0;

/// Where the link stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Hellos go out.
    Dialling { until_ns: u64 },
    /// The session stands.
    Up,
    /// The daemon is gone; the next try is at `retry_ns`.
    Down { retry_ns: u64 },
    /// Over, for the reason in `fault`.
    Ended,
}

/// One session with the daemon.
pub(crate) struct Link {
    settings: Settings,
    place: DaemonAddress,
    /// Changes with the descriptor that is to be polled.
    descriptor: u64,
    started: Instant,
    state: State,
    /// Sessions so far.
    sessions: u64,
    backoff_ns: u64,
    lost_because: String,
    /// Why the session goes by packets, where shared memory was tried first.
    not_attached: Option<String>,
    fault: Option<Error>,
    /// Sent at the start of every session: announce or subscribe.
    opening: Vec<Request>,
    /// Sent behind what a lost session left over: finish.
    ending: Vec<Request>,
    /// In the order in which it is to be sent. Between two sessions these are records only.
    backlog: VecDeque<Waiting>,
    /// The format of the records that go out, if they do.
    pub(crate) published: Option<Format>,
    /// Records that were handed over to be sent, in all sessions.
    records: u64,
    /// Records of datagrams that a lost session left over.
    dropped_records: u64,
    /// Records that went into another session, since the daemon did not have them from the one before.
    repeated_records: u64,
    /// The records that a durable daemon has in no checkpoint.
    kept: Option<KeptRecords>,
    /// Whether records wait until the daemon has said which it has from earlier sessions.
    is_resuming: bool,
    /// Of a publisher that waits for subscribers.
    pub(crate) awaiting: Option<Awaiting>,
    /// The longest record that the daemon takes, in bytes.
    pub(crate) most_record_bytes: usize,
    next_id: u32,
    answers: Vec<(u32, Result<Answer, Error>)>,
    /// The threads that wait for an answer, and take nothing out meanwhile: notices in front of it do not hold it back then.
    asking: u32,
    /// A control message, and a record or mailbox message, with pieces that have arrived.
    joining_control: Joiner<Vec<u8>>,
    joining_data: Joiner<Vec<u8>>,
    pub(crate) inbox: VecDeque<Incoming>,
    /// Something has happened that a waiting thread may be waiting for.
    changed: bool,
    /// When it last looked at what has arrived, in ns.
    looked_ns: u64,
    pub(crate) idler: Idler,
    heard: Vec<Heard>,
    /// The last, so that what has arrived by it is gone before.
    carrier: Box<dyn Carrier>,
}

impl Link {
    /// Begins to connect.
    ///
    /// # Errors
    /// The address is none, or the system refuses the socket or memory.
    pub(crate) fn new(settings: Settings) -> Result<Link, Error> {
        let place = DaemonAddress::of(&settings)?;
        let timeout_ns = u64::try_from(settings.connect_timeout.as_nanos()).unwrap_or(u64::MAX);
        let mut link = Link::unconnected(settings, place);
        link.begin_class();
        match link.connect(0, timeout_ns) {
            Err(error) if link.waits_for_first() && error.is_no_daemon() => link.lose(error.to_string()),
            connected => connected?,
        }
        Ok(link)
    }

    /// Whether it waits for a daemon that is not there yet.
    fn waits_for_first(&self) -> bool {
        self.sessions == 0 && self.settings.wait_for_daemon
    }

    fn unconnected(settings: Settings, place: DaemonAddress) -> Link {
        Link {
            carrier: Box::new(Closed(settings.transport)),
            settings,
            place,
            descriptor: 0,
            started: crossdock_device::now(),
            state: State::Ended,
            sessions: 0,
            backoff_ns: BACKOFF_NS.0,
            lost_because: String::new(),
            not_attached: None,
            fault: None,
            opening: Vec::new(),
            ending: Vec::new(),
            backlog: VecDeque::new(),
            published: None,
            records: 0,
            dropped_records: 0,
            repeated_records: 0,
            kept: None,
            is_resuming: false,
            awaiting: None,
            most_record_bytes: MAX_MESSAGE_BYTES,
            next_id: 1,
            answers: Vec::new(),
            asking: 0,
            joining_control: Joiner::default(),
            joining_data: Joiner::default(),
            inbox: VecDeque::new(),
            changed: false,
            looked_ns: 0,
            idler: Idler::new(SPIN_NS),
            heard: Vec::new(),
        }
    }

    /// Now, in ns since the link was made.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(crossdock_device::elapsed(self.started).as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether the session stands.
    pub(crate) fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Nothing, if a session stands.
    ///
    /// # Errors
    /// The link has ended, or its session is lost.
    pub(crate) fn check_up(&self) -> Result<(), Error> {
        match self.fault() {
            Some(fault) => Err(fault),
            None if !self.is_up() => Err(self.lost()),
            None => Ok(()),
        }
    }

    /// Which session stands, or stood last: they are counted from 1.
    pub(crate) fn session(&self) -> u64 {
        self.sessions
    }

    /// The error that ended the link, if it has ended.
    pub(crate) fn fault(&self) -> Option<Error> {
        self.fault.as_ref().map(Error::again)
    }

    /// The error of what belonged to a session that is lost.
    pub(crate) fn lost(&self) -> Error {
        Error::Lost { addr: self.settings.addr.clone(), reason: self.lost_because.clone() }
    }

    /// Ends the link.
    pub(crate) fn fail(&mut self, error: Error) {
        self.fault.get_or_insert(error);
        self.state = State::Ended;
        self.changed = true;
    }

    /// Whether something has happened, since this was last asked, that a waiting thread may be waiting for.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Packets sent again so far, over all sessions.
    pub(crate) fn resent(&self) -> u64 {
        self.carrier.resent()
    }

    /// Records that went into another session, since the daemon did not have them from the one before.
    pub(crate) fn repeated_records(&self) -> u64 {
        self.repeated_records
    }

    /// Units of datagrams that wait until the path has room for them.
    pub(crate) fn queued_datagrams(&self) -> usize {
        self.carrier.queued_datagrams()
    }

    /// The counts of datagrams so far, over all sessions.
    pub(crate) fn datagrams(&self) -> DatagramCounts {
        let counts = self.carrier.datagrams();
        DatagramCounts { dropped_records: counts.dropped_records + self.dropped_records, ..counts }
    }

    /// The descriptor to poll for readability, and its number, which changes when the descriptor does; none while no
    /// session stands or is begun, since that of one that is over may stay readable indefinitely.
    pub(crate) fn descriptor(&self) -> (u64, Option<BorrowedFd<'_>>) {
        (self.descriptor, if self.is_heard() { self.carrier.descriptor() } else { None })
    }

    /// How the session goes, or the last one went: not [`Transport::Auto`], once there was one.
    pub(crate) fn transport(&self) -> Transport {
        self.carrier.transport()
    }

    /// Why it does not go by shared memory, where that was tried; in words.
    pub(crate) fn not_attached(&self) -> Option<&str> {
        self.not_attached.as_deref()
    }

    /// The attachment, where the session goes by shared memory.
    pub(crate) fn attachment(&self) -> Option<&Attachment> {
        self.carrier.attachment()
    }

    /// Before a thread sleeps on the descriptor: whether it must look once more at what has come, since that wakes nobody.
    pub(crate) fn arm(&self) -> bool {
        self.carrier.arm()
    }

    /// Shows the daemon that this process runs; to be called about once a second.
    pub(crate) fn beat(&self) {
        self.carrier.beat();
    }

    /// Whether to look at what has come costs no system call.
    #[inline]
    pub(crate) fn is_polled(&self) -> bool {
        self.carrier.is_polled()
    }

    /// Whether something may arrive.
    fn is_heard(&self) -> bool {
        matches!(self.state, State::Up | State::Dialling { .. })
    }

    /// Begins to connect, by the best way there is: shared memory, if a daemon lets this process attach.
    ///
    /// # Errors
    /// There is no way, or the system refuses what it needs.
    fn connect(&mut self, now_ns: u64, timeout_ns: u64) -> Result<(), Error> {
        let timeout = if self.sessions == 0 { Duration::from_nanos(timeout_ns) } else { ATTACH_AGAIN };
        match (self.attach(timeout), self.place.packets) {
            (Ok(()), _) => self.come_up(),
            (Err(NotAttached { reason, .. }), Some(peer)) => {
                // Without any address there is nothing that was tried.
                self.not_attached = (!self.place.shared.is_empty()).then_some(reason);
                if !self.carrier.reopen(now_ns) {
                    self.carrier = Box::new(Udp::of_settings(peer, &self.settings, now_ns)?);
                    self.descriptor += 1;
                }
                self.state = State::Dialling { until_ns: now_ns.saturating_add(timeout_ns) };
            }
            (Err(NotAttached { reason, is_absent }), None) => {
                return Err(Error::NotAttached { addr: self.settings.addr.clone(), reason, is_absent });
            }
        }
        Ok(())
    }

    /// Changes to shared memory, if a daemon lets this process attach; notifies the daemon if a session stood.
    ///
    /// # Errors
    /// Why none does.
    fn attach(&mut self, timeout: Duration) -> Result<(), NotAttached> {
        let request = AttachRequest { uses_mailboxes: self.settings.uses_mailboxes };
        // No time at all would mean without an end.
        let memory =
            Memory::attach(&self.place.shared, self.place.port, request, timeout.max(Duration::from_millis(1)))?;
        self.not_attached = None;
        self.carrier.close();
        self.carrier = Box::new(memory);
        self.descriptor += 1;
        Ok(())
    }

    /// A daemon has granted a session. One that came back has begun to let processes attach since that was last tried, perhaps:
    /// then that session is of no use.
    fn welcomed(&mut self) {
        if self.sessions > 0 || self.waits_for_first() {
            // If it does not, the session that it has granted will do.
            let _ = self.attach(ATTACH_AGAIN);
        }
        self.come_up();
    }

    /// A request's number; never [`NOBODY`].
    pub(crate) fn request_id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    /// Sends a request in the session that stands, if one does.
    pub(crate) fn ask(&mut self, request: Request) {
        if !self.is_up() {
            return;
        }
        let (id, message) = (request.id(), ControlMessage::Request(request));
        let (class, message) = (message.class(), message.encode());
        if message.len() <= MAX_CONTROL_BYTES {
            self.enqueue(Message::control(message, class));
        } else if let Some(id) = id {
            let bytes = message.len();
            let message = format!(
                "the request has {bytes} bytes, and the daemon takes at most {MAX_CONTROL_BYTES}: shorten its query or names, or \
                 leave out fields"
            );
            self.take_reply(Reply::Refused { id, refusal: Refusal { code: RefusalCode::Limit, message } });
        }
    }

    /// Sends a request in this session, and `again` in every one that may follow it.
    pub(crate) fn open_with(&mut self, request: Request, again: Request) {
        self.opening.push(again);
        self.ask(request);
    }

    /// Has a request sent in every session that may follow.
    pub(crate) fn again(&mut self, request: Request) {
        self.opening.push(request);
    }

    /// Changes the requests that are sent in sessions that follow.
    pub(crate) fn change_again(&mut self, change: impl FnMut(&mut Request)) {
        self.opening.iter_mut().for_each(change);
    }

    /// Has requests no longer sent in sessions that follow.
    pub(crate) fn not_again(&mut self, which: impl Fn(&Request) -> bool) {
        self.opening.retain(|request| !which(request));
    }

    /// Sends a request behind everything sent so far, in this session and, should this one be lost, in the next.
    pub(crate) fn finish_with(&mut self, request: Request) {
        self.ending.push(request.clone());
        self.ask(request);
    }

    /// Has sessions that may follow not finish.
    pub(crate) fn unfinish(&mut self) {
        self.ending.clear();
    }

    /// Has a request answered so.
    #[cfg(all(test, feature = "futures"))]
    pub(crate) fn put_answer(&mut self, id: u32, answer: Result<Answer, Error>) {
        self.answers.push((id, answer));
    }

    /// The answer to a request, once it is there.
    pub(crate) fn answer(&mut self, id: u32) -> Option<Result<Answer, Error>> {
        let at = self.answers.iter().position(|(answered, _)| *answered == id)?;
        Some(self.answers.swap_remove(at).1)
    }

    /// A thread waits for an answer from now on, or no longer: that may be behind notices, however many wait.
    pub(crate) fn set_asking(&mut self, is_asking: bool) {
        if is_asking {
            self.asking += 1;
            self.carrier.control_consumed();
        } else {
            self.asking = self.asking.saturating_sub(1);
        }
    }

    /// Sends a unit in the session that stands, before what waits and need not precede it.
    pub(crate) fn enqueue(&mut self, unit: Outgoing) {
        let position = unit.class().position(self.backlog.iter().map(Waiting::class));
        self.backlog.insert(position, Waiting::Unit(unit));
        self.pump();
    }

    /// Hands to the carrier what it takes.
    fn pump(&mut self) {
        if !self.is_up() {
            return;
        }
        while let Some(waiting) = self.backlog.pop_front() {
            if self.is_resuming && matches!(waiting.class(), TrafficClass::Data(_)) {
                return self.backlog.push_front(waiting);
            }
            let sent = match waiting {
                Waiting::Unit(unit) => self.carrier.send(unit).map_err(Waiting::Unit),
                Waiting::Unsent(unsent) => self.send_again(unsent),
            };
            if let Err(waiting) = sent {
                self.backlog.push_front(waiting);
                return;
            }
        }
    }

    /// Units queued and unacknowledged.
    pub(crate) fn backlog_units(&self) -> usize {
        self.backlog.len() + self.carrier.unacknowledged()
    }

    /// Whether more may be sent before what waits has gone.
    pub(crate) fn has_room(&self) -> bool {
        self.backlog.is_empty() && !self.is_resuming && self.has_room_to_keep() && self.carrier.has_room()
    }

    /// An empty packet to fill with records; `None` while there is no room for one.
    pub(crate) fn begin_packet(&mut self) -> Option<SuperPacket<PacketBuffer>> {
        if self.is_up() && self.has_room() { self.carrier.begin_packet() } else { None }
    }

    /// Returns the credit for the first `data_end` units of data.
    pub(crate) fn consumed_to(&mut self, data_end: u64) {
        self.carrier.consumed_to(data_end);
    }

    /// Lets time pass, sends what is due.
    pub(crate) fn drive(&mut self) {
        // With nothing left for the application, all that came is consumed; what it still holds in its hands is one event at
        // most.
        if self.inbox.is_empty() {
            self.carrier.consumed_to(u64::MAX);
            self.carrier.control_consumed();
        }
        self.run_timers();
        self.transmit();
    }

    /// Takes what has arrived.
    pub(crate) fn receive(&mut self) {
        let waits_there = self.is_polled() && self.inbox.len() >= INBOX && self.asking == 0;
        if self.is_heard() && !waits_there {
            let now_ns = self.now_ns();
            self.looked_ns = now_ns;
            self.carry(|carrier, idler, heard| carrier.receive(now_ns, idler, heard));
        }
    }

    /// Whether an ack may have waited to be taken for so long that it would pass for one of a long path.
    pub(crate) fn awaits_look(&self, now_ns: u64) -> bool {
        now_ns >= self.looked_ns.saturating_add(LOOK_EVERY_NS) && !self.is_settled()
    }

    /// Has the carrier do something, and acts on what it has heard.
    fn carry(&mut self, act: impl FnOnce(&mut dyn Carrier, &mut Idler, &mut Vec<Heard>)) {
        let mut heard = std::mem::take(&mut self.heard);
        act(&mut *self.carrier, &mut self.idler, &mut heard);
        for heard in heard.drain(..) {
            match heard {
                Heard::Welcome => self.welcomed(),
                Heard::Packets(arrived) => self.deliver(arrived),
                Heard::Close(close) => self.close(&close),
                Heard::Refused => self.refused(),
                Heard::Silent { ns } => self.lose(format!("no packet arrived for {} s", ns / 1_000_000_000)),
            }
        }
        self.heard = heard;
    }

    /// The session stands: it begins with the opening, then with what the last session left over.
    fn come_up(&mut self) {
        self.state = State::Up;
        self.changed = true;
        self.backoff_ns = BACKOFF_NS.0;
        self.sessions += 1;
        self.joining_control.clear();
        self.joining_data.clear();
        // An application that does not look at its arrivals has one of these at most.
        if self.sessions > 1 && !matches!(self.inbox.back(), Some(Incoming::Reconnected)) {
            self.inbox.push_back(Incoming::Reconnected);
        }
        let kept = std::mem::take(&mut self.backlog);
        let unsent = waiting_records(&kept, self.published.as_ref());
        debug_assert!(unsent <= self.records, "what waits was handed over before");
        self.is_resuming = false;
        for mut request in self.opening.clone() {
            if let Request::Announce { publication: Some(publication), .. } = &mut request {
                publication.first = self.records.saturating_sub(unsent);
                // Also new ones: what the daemon acknowledges before it answers could be lost with this session.
                self.is_resuming = self.sessions > 1;
            }
            self.ask(request);
        }
        self.backlog.extend(kept);
        for request in self.ending.clone() {
            self.ask(request);
        }
        self.pump();
    }

    /// In-order packets: answers to requests are kept for their callers, the rest is for the application.
    fn deliver(&mut self, arrived: Arrived) {
        self.changed = true;
        let Header { kind, piece, .. } = arrived.header;
        let taken = match kind {
            PacketKind::Datagram => self.take_datagrams(arrived),
            PacketKind::Data if piece == Piece::Whole && !self.joining_data.has_begun() => {
                self.inbox.push_back(Incoming::Records(arrived));
                Ok(())
            }
            PacketKind::Data | PacketKind::Message => self.take_data(&arrived),
            _ => self.take_controls(&arrived),
        };
        if let Err(error) = taken {
            self.say_close();
            self.fail(Error::Malformed(error.to_string()));
        }
    }

    /// Mailbox messages, and pieces of a record.
    fn take_data(&mut self, arrived: &Arrived) -> Result<(), PieceError> {
        let Arrived { header, data_end, .. } = arrived;
        for payload in arrived.payloads() {
            let joined = self.joining_data.take(header.piece, payload, MAX_MESSAGE_BYTES)?;
            let Some(bytes) = joined.map(Joined::into_vec) else { continue };
            self.inbox.push_back(match header.kind {
                PacketKind::Message => Incoming::Message { number: header.stream, bytes },
                _ => {
                    let span = PayloadSpan { start: 0, len: bytes.len() as u32, records: header.records };
                    let (bytes, header) = (Bytes::Joined(bytes), *header);
                    Incoming::Records(Arrived { bytes, header, spans: vec![span], data_end: *data_end })
                }
            });
        }
        Ok(())
    }

    /// Packets of control messages.
    fn take_controls(&mut self, arrived: &Arrived) -> Result<(), PieceError> {
        for payload in arrived.payloads() {
            let mut joining = std::mem::take(&mut self.joining_control);
            let joined = joining.take(arrived.header.piece, payload, MAX_CONTROL_BYTES)?;
            if let Some(message) = joined {
                self.take_control(&message);
            }
            self.joining_control = joining;
        }
        // An answer is taken at once, however much waits for the application.
        if self.asking > 0 || self.inbox.iter().filter(|incoming| !incoming.is_data()).count() < MAX_NOTICES {
            self.carrier.control_consumed();
        }
        Ok(())
    }

    fn take_control(&mut self, payload: &[u8]) {
        match ControlMessage::decode(payload) {
            Ok(ControlMessage::Reply(reply)) => self.take_reply(reply),
            // Whoever listens without ever looking does not have it pile up.
            Ok(ControlMessage::Notice(Notice::ConverterWanted { .. })) if self.wants() >= MAX_WANTS => {}
            Ok(ControlMessage::Notice(Notice::Durable { records, .. })) => self.release_kept(records),
            Ok(ControlMessage::Notice(notice)) => self.inbox.push_back(Incoming::Notice(notice)),
            // A newer daemon may say more than this version understands.
            Ok(ControlMessage::Request(_)) | Err(_) => {}
        }
    }

    /// Wanted conversions that were not reported to the application yet.
    fn wants(&self) -> usize {
        let is_want = |incoming: &&Incoming| matches!(incoming, Incoming::Notice(Notice::ConverterWanted { .. }));
        self.inbox.iter().filter(is_want).count()
    }

    fn take_reply(&mut self, reply: Reply) {
        let (id, result) = match reply {
            Reply::Done { id } => (id, Ok(Answer::Done)),
            Reply::Announced { id, most_record_bytes, taken, subscriptions, durable } => {
                self.begin_keeping(durable);
                self.most_record_bytes =
                    usize::try_from(most_record_bytes).unwrap_or(usize::MAX).min(MAX_MESSAGE_BYTES);
                if !self.begin_awaiting(subscriptions, taken) {
                    self.resume(taken);
                }
                (id, Ok(Answer::Done))
            }
            Reply::Subscriptions { id, subscriptions } if self.take_subscriptions(id, subscriptions) => return,
            // The answer to an earlier question.
            Reply::Subscriptions { .. } => return,
            Reply::Subscribed { id, format, activity, position, number, .. } => {
                let position = position.map(Box::new);
                self.inbox.push_back(Incoming::Subscribed { format, activity, position, number });
                (id, Ok(Answer::Done))
            }
            Reply::MailboxOpened { id, number, port, implementation, ahead } => {
                let opened = Opened { id, number, port, implementation, ahead };
                self.inbox.push_back(Incoming::Opened(opened));
                (id, Ok(Answer::Opened(opened)))
            }
            Reply::Node { id, address, name, key } => (id, Ok(Answer::Node { address, name, key })),
            Reply::Refused { id, refusal } => (id, Err(Error::from(refusal))),
        };
        match result {
            _ if id == NOBODY => {}
            // A request that cannot even begin is over; who waits for the answer finds the fault.
            Err(error) if self.opening.iter().any(|request| request.id() == Some(id)) => {
                self.say_close();
                self.fail(error);
            }
            result => {
                // One answer waits for each thread that asked; the bound is against a daemon that invents them.
                if self.answers.len() >= 1024 {
                    drop(self.answers.remove(0));
                }
                self.answers.push((id, result));
            }
        }
    }

    /// The daemon ended the session.
    fn close(&mut self, close: &Close) {
        if close.again && (self.sessions > 0 || self.waits_for_first()) {
            self.lose(close.reason.clone());
        } else {
            self.fail(Error::Closed(close.reason.clone()));
        }
    }

    /// The network says that nobody listens there.
    fn refused(&mut self) {
        if self.sessions > 0 {
            if self.is_up() {
                self.lose("connection refused".to_owned());
            }
        } else if self.waits_for_first() {
            self.lose("connection refused".to_owned());
        } else {
            let addr = self.settings.addr.clone();
            self.fail(Error::NoDaemon { addr, reason: "connection refused".to_owned() });
        }
    }

    /// The session is lost: the records that the daemon does not have for sure are kept for the next one, which is tried soon.
    fn lose(&mut self, reason: String) {
        self.dropped_records += self.backlog.iter().map(Waiting::datagram_records).sum::<u64>();
        let waiting = self.backlog.drain(..).filter_map(Waiting::unsent);
        let kept = self.carrier.lose().into_iter().chain(waiting);
        self.backlog = kept.map(Waiting::Unsent).collect();
        self.send_kept_again();
        // Without a publication the daemon does not know which of them it has: those of the class datagram arrive once at most.
        if self.opening.iter().any(|request| matches!(request, Request::Announce { publication: None, .. })) {
            self.backlog.clear();
        }
        self.changed = true;
        if self.settings.reconnect || self.waits_for_first() {
            self.lost_because = reason;
            let retry_ns = self.now_ns().saturating_add(self.backoff_ns);
            self.backoff_ns = (self.backoff_ns * 2).min(BACKOFF_NS.1);
            self.state = State::Down { retry_ns };
        } else {
            let addr = self.settings.addr.clone();
            self.fail(Error::Lost { addr, reason });
        }
    }

    /// Deadlines that have passed.
    fn run_timers(&mut self) {
        let now_ns = self.now_ns();
        match self.state {
            State::Up => {
                self.carry(|carrier, _, heard| carrier.on_timer(now_ns, heard));
                self.tick_awaiting(now_ns);
            }
            State::Down { retry_ns } if now_ns >= retry_ns => {
                if let Err(error) = self.connect(now_ns, DIAL_NS) {
                    self.lose(error.to_string()); // no memory, or no more descriptors: later perhaps
                }
            }
            State::Dialling { until_ns } if now_ns >= until_ns => {
                if self.sessions > 0 || self.waits_for_first() {
                    let reason = self.lost_because.clone();
                    self.lose(reason);
                } else {
                    // Nothing proves that a refusal is the daemon's: it says why there is no session, and ends nothing.
                    let addr = self.settings.addr.clone();
                    self.fail(match self.carrier.refusal() {
                        Some((why, true)) => Error::Refused(why),
                        Some((reason, false)) => Error::NoDaemon { addr, reason },
                        None => Error::NoDaemon { addr, reason: "no answer".to_owned() },
                    });
                }
            }
            State::Down { .. } | State::Dialling { .. } | State::Ended => {}
        }
    }

    /// Sends what is due.
    pub(crate) fn transmit(&mut self) {
        self.pump();
        if self.is_heard() {
            let now_ns = self.now_ns();
            self.carry(|carrier, _, heard| carrier.transmit(now_ns, heard));
        }
    }

    /// When [`Link::drive`] has something to do by itself, in ns.
    pub(crate) fn due_ns(&self) -> u64 {
        match self.state {
            State::Dialling { until_ns } => self.carrier.due_ns().min(until_ns),
            State::Up => self.carrier.due_ns().min(self.awaiting.as_ref().map_or(u64::MAX, Awaiting::due_ns)),
            State::Down { retry_ns } => retry_ns,
            State::Ended => u64::MAX,
        }
    }

    /// Whether nothing more needs to be sent or acknowledged.
    pub(crate) fn is_settled(&self) -> bool {
        match self.state {
            State::Up => self.backlog_units() == 0 && self.is_durable(),
            State::Ended => true,
            State::Dialling { .. } | State::Down { .. } => false,
        }
    }

    /// Ends the link, and notifies the daemon. Over shared memory, releasing the memory is the notification, once the
    /// application has released everything that it still holds of it.
    pub(crate) fn say_close(&mut self) {
        if self.is_up() {
            self.carrier.close();
        }
        self.carrier = Box::new(Closed(self.carrier.transport()));
        self.state = State::Ended;
    }
}
