//! Attached clients as peers' carriers: the output to their sessions, and the descriptors by which their end is noticed.

use crate::counters::DropReason;
use crate::net::carrier::{Carrier, Recipient, Whole, Wire};
use crate::net::space::{Memory, OpenPacket, SinglePacket, Space};
use crate::principal::Principal;
use crossdock_device::Poller;
use crossdock_mailbox::attach::Farewell;
use crossdock_mailbox::host::{
    ClientKey, Draft, Hold, HostError, HostInterface, Message, Opened, Owner, PortOptions, SESSION_GRANTS, Side,
    Watched,
};
use crossdock_mailbox::{Batch, Fragments};
use crossdock_transport::handshake::Close;
use crossdock_transport::{Cut, Follows, Header, MAX_SUPER_BYTES, Origin, PacketKind, TrafficClass};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::{fmt, io};

/// Set in the poller's keys of clients' descriptors; below it lies the client's number, and whether readiness is its
/// end.
const CLIENT: u64 = 1 << 40;
/// See [`CLIENT`].
const IS_END: u64 = 1;
/// Subscription numbers that fit into the descriptors of shared memory; 0 stands there for no subscription.
const SUBSCRIPTION_NUMBERS: RangeInclusive<u32> = 1..=(1 << 15) - 1;

/// The label of a message for a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Label {
    /// The subscription's number; 0 for control messages.
    subscription: u16,
    /// Records in it.
    records: u32,
    /// Whether it may be dropped when its reader is too slow.
    droppable: bool,
}

impl Label {
    fn new(to: Recipient, records: u16) -> Label {
        let Recipient { subscription, droppable } = to;
        // Of the numbers that such subscriptions may have, none is longer.
        Label { subscription: subscription as u16, records: records.into(), droppable }
    }
}

/// A message on its way to a session.
#[derive(Debug)]
enum Outgoing {
    /// In the publisher's memory, which the client shares.
    InPlace(Message, Label),
    /// In the inbox, where it was drafted.
    Drafted(Message, Label),
    /// In the daemon's own memory, since the inbox had no room for it when it was made.
    Own(Box<[u8]>, Label),
    /// A packet of control, in the daemon's own memory.
    Control(Box<[u8]>, TrafficClass),
}

impl Outgoing {
    fn label(&self) -> Label {
        match self {
            Outgoing::InPlace(_, label) | Outgoing::Drafted(_, label) | Outgoing::Own(_, label) => *label,
            Outgoing::Control(..) => Label::default(),
        }
    }

    fn class(&self) -> TrafficClass {
        match self {
            Outgoing::InPlace(_, label) | Outgoing::Drafted(_, label) | Outgoing::Own(_, label) => {
                TrafficClass::Data(Origin::Stream(label.subscription.into()))
            }
            Outgoing::Control(_, class) => *class,
        }
    }

    fn into_message(self) -> Option<Message> {
        match self {
            Outgoing::InPlace(message, _) | Outgoing::Drafted(message, _) => Some(message),
            Outgoing::Own(..) | Outgoing::Control(..) => None,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Outgoing::InPlace(message, _) | Outgoing::Drafted(message, _) => message.len() as u64,
            Outgoing::Own(bytes, _) | Outgoing::Control(bytes, _) => bytes.len() as u64,
        }
    }
}

/// An attached client as a peer.
pub(crate) struct Attached {
    pub(crate) client: ClientKey,
    /// Its user.
    uid: u32,
    /// Its name in lists: `client 3 (pid 123 name)`.
    name: String,
    /// Packets of its session that wait until the context has buffers to copy them into, in order.
    pub(crate) deferred: VecDeque<Message>,
    /// The reason that its session gets no new buffers now.
    hold: Hold,
    /// Packets of records taken since buffers for them are withheld: no more than were granted before.
    held_packets: u32,
    /// Whether it is gone, and is a peer only until its deferred packets are taken.
    has_left: bool,
    /// Whether it is in the list of peers that are served each turn.
    pub(crate) is_lagging: bool,
    /// How often it has shown that its process runs, and when that was last seen to have changed since it lags, in ns.
    beats: u64,
    beats_ns: u64,
    /// When that was last looked at, in ns.
    looked_ns: u64,
    /// Messages that could not be delivered yet, in order; the inbox had no room for the first.
    undelivered: VecDeque<Outgoing>,
    undelivered_bytes: u64,
    /// Bytes of control messages that it was ever sent.
    control_bytes: u64,
    /// Held so that they can be taken out of the poller after the client was detached.
    watched: Watched,
}

/// The longest time between two looks at whether a client runs that counts as seen, in ns: more than twice that after which it is
/// looked at.
const LONGEST_PAUSE_NS: u64 = 2_500_000_000;

impl Attached {
    /// The client as a peer, watched by `poller` from now on.
    ///
    /// # Errors
    /// The system's, and `NotConnected` if the client has gone.
    pub(crate) fn new(host: &HostInterface, client: ClientKey, poller: &mut Poller) -> io::Result<Attached> {
        let (Some(watched), Some(status)) = (host.watched(client), host.client_info(client)) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let attached = Attached {
            client,
            uid: status.uid,
            name: format!("client {} (pid {} {})", client.number(), status.pid, status.process),
            deferred: VecDeque::new(),
            hold: Hold::Nothing,
            held_packets: 0,
            has_left: false,
            is_lagging: false,
            beats: 0,
            beats_ns: 0,
            looked_ns: 0,
            undelivered: VecDeque::new(),
            undelivered_bytes: 0,
            control_bytes: 0,
            watched,
        };
        let key = CLIENT | u64::from(client.number()) << 1;
        let watched = attached.watch(poller, key);
        if watched.is_err() {
            attached.unwatch(poller);
        }
        watched.map(|()| attached)
    }

    fn watch(&self, poller: &mut Poller, key: u64) -> io::Result<()> {
        let Watched { socket, process, doorbell } = &self.watched;
        poller.add_edge(doorbell, key)?;
        poller.add(socket, key | IS_END)?;
        process.iter().try_for_each(|process| poller.add(process, key | IS_END))
    }

    fn unwatch(&self, poller: &mut Poller) {
        let Watched { socket, process, doorbell } = &self.watched;
        for fd in [doorbell, socket].into_iter().chain(process) {
            // One that was never added is none to remove.
            let _removed = poller.remove(fd);
        }
    }

    /// Hands a publisher's packet of `records` records on in place, to a client of its domain.
    #[inline]
    pub(crate) fn pass(&mut self, host: &mut HostInterface, message: &mut Message, to: Recipient, records: u16) {
        let shared = host.share(message);
        self.put(host, Outgoing::InPlace(shared, Label::new(to, records)));
    }

    /// Gives a message to the session, behind those that could not be given to it yet.
    #[inline]
    fn put(&mut self, host: &mut HostInterface, outgoing: Outgoing) {
        if self.undelivered.is_empty() {
            match deliver(self.client, host, outgoing) {
                Ok(()) => return,
                Err(outgoing) => return self.put_off(host, outgoing),
            }
        }
        self.put_off(host, outgoing);
    }

    /// It is behind from now on, if it was not. Whether it was not.
    pub(crate) fn begin_lagging(&mut self, now_ns: u64) -> bool {
        let is_new = !std::mem::replace(&mut self.is_lagging, true);
        if is_new {
            self.forget_beats(now_ns);
        }
        is_new
    }

    /// For how long its process has not shown that it runs since it is behind, in ns.
    pub(crate) fn stopped_ns(&mut self, host: &HostInterface, now_ns: u64) -> u64 {
        let beats = host.client_beats(self.client).unwrap_or(self.beats);
        let looked_ns = std::mem::replace(&mut self.looked_ns, now_ns);
        // A daemon that did not run itself for long has seen nothing of the time between.
        let was_away = now_ns.saturating_sub(looked_ns) > LONGEST_PAUSE_NS;
        if std::mem::replace(&mut self.beats, beats) != beats || was_away {
            self.beats_ns = now_ns;
        }
        now_ns.saturating_sub(self.beats_ns)
    }

    /// Nobody waits for it now.
    pub(crate) fn forget_beats(&mut self, now_ns: u64) {
        (self.beats_ns, self.looked_ns) = (now_ns, now_ns);
    }

    /// Notes that a packet of records was taken.
    pub(crate) fn note_taken(&mut self) {
        self.held_packets += u32::from(self.hold != Hold::Nothing);
    }

    /// Whether the client puts more records than it can have had buffers for when those were withheld: twice as many as
    /// are granted ahead, since those that wait here count too.
    pub(crate) fn is_beyond_grants(&self) -> bool {
        self.hold != Hold::Nothing && self.held_packets >= 2 * SESSION_GRANTS
    }

    /// Gives a packet of control to the session, before what waits for it and need not precede it.
    fn put_control(&mut self, host: &mut HostInterface, packet: Box<[u8]>, class: TrafficClass) {
        let position = class.position(self.undelivered.iter().map(Outgoing::class));
        let control = Outgoing::Control(packet, class);
        let left = if position == 0 { deliver(self.client, host, control) } else { Err(control) };
        if let Err(control) = left {
            self.undelivered_bytes += control.bytes();
            self.undelivered.insert(position, control);
        }
    }

    /// Keeps a message for later. One that was drafted moves out of the inbox: those before it wait for that very room.
    #[cold]
    fn put_off(&mut self, host: &mut HostInterface, outgoing: Outgoing) {
        let outgoing = match outgoing {
            Outgoing::Drafted(message, label) => {
                let mut own = vec![0; message.len()].into_boxed_slice();
                host.read(&message, 0, &mut own);
                host.free(message);
                Outgoing::Own(own, label)
            }
            other => other,
        };
        self.undelivered_bytes += outgoing.bytes();
        self.undelivered.push_back(outgoing);
    }

    /// Gives what could not be given before; whether nothing is left of it.
    pub(crate) fn retry(&mut self, host: &mut HostInterface) -> bool {
        while let Some(outgoing) = self.undelivered.pop_front() {
            let bytes = outgoing.bytes();
            if let Err(outgoing) = deliver(self.client, host, outgoing) {
                self.undelivered.push_front(outgoing);
                return false;
            }
            self.undelivered_bytes -= bytes;
        }
        true
    }

    /// The client is gone: what it held is returned, and it is watched no more. Its deferred packets stay.
    pub(crate) fn leave(&mut self, host: &mut HostInterface, poller: &mut Poller) {
        self.unwatch(poller);
        host.detach(self.client);
        self.has_left = true;
        // An answer that it did not take is no longer held against it.
        self.control_bytes = 0;
    }
}

impl fmt::Display for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

impl Carrier for Attached {
    #[inline]
    fn backlog_bytes(&self, host: &HostInterface) -> u64 {
        host.backlog_bytes(self.client) + self.undelivered_bytes
    }

    fn untaken_control_bytes(&self, host: &HostInterface) -> u64 {
        self.control_bytes.saturating_sub(host.unlabelled_taken(self.client))
    }

    #[inline]
    fn is_behind(&self) -> bool {
        !self.undelivered.is_empty()
    }

    fn leaves(&self) -> bool {
        self.has_left
    }

    fn drop_oldest(&mut self, wire: &mut Wire<'_>) -> Option<(u32, u64)> {
        if let Some((subscription, records)) = wire.host.drop_oldest(self.client) {
            return Some((subscription.into(), records.into()));
        }
        let at = self.undelivered.iter().position(|outgoing| outgoing.label().droppable)?;
        let outgoing = self.undelivered.remove(at)?;
        self.undelivered_bytes -= outgoing.bytes();
        let label = outgoing.label();
        if let Some(message) = outgoing.into_message() {
            wire.host.free(message);
        }
        Some((label.subscription.into(), label.records.into()))
    }

    fn bound_queue(&mut self, wire: &mut Wire<'_>, bytes: u64) {
        wire.host.limit_session(self.client, bytes / 2);
    }

    fn send_control(&mut self, wire: &mut Wire<'_>, message: &[u8], class: TrafficClass) {
        if self.has_left {
            return;
        }
        let cut = Cut::new(message.len(), MAX_SUPER_BYTES);
        for index in 0..cut.packets() {
            let head = cut.head(index, &Header::new(PacketKind::Control, 0), 0);
            let packet = [&head, &message[cut.range(index)]].concat().into_boxed_slice();
            self.control_bytes += packet.len() as u64;
            self.put_control(wire.host, packet, class);
        }
    }

    /// In packets, in the daemon's own memory where the inbox has no room: nothing of what was let in is lost, and the queue's bound
    /// counts these bytes too.
    fn send_long(
        &mut self,
        wire: &mut Wire<'_>,
        record: Fragments<'_>,
        format: u64,
        to: Recipient,
    ) -> Result<(), DropReason> {
        let cut = Cut::new(record.len(), MAX_SUPER_BYTES);
        let template = Header { stream: to.subscription, format, records: 1, ..Header::new(PacketKind::Data, 0) };
        for index in 0..cut.packets() {
            let (head, range) = (cut.head(index, &template, 0), cut.range(index));
            let label = Label { droppable: false, ..Label::new(to, u16::from(index == 0)) };
            let bytes = head.len() + range.len();
            let draft = if self.undelivered.is_empty() { wire.host.begin_send(self.client, bytes).ok() } else { None };
            let outgoing = match draft {
                Some(mut draft) => {
                    draft[..head.len()].copy_from_slice(&head);
                    record.copy_range(range, &mut draft[head.len()..bytes]);
                    Outgoing::Drafted(draft.finish(bytes), label)
                }
                None => {
                    let mut own = vec![0; bytes].into_boxed_slice();
                    own[..head.len()].copy_from_slice(&head);
                    record.copy_range(range, &mut own[head.len()..]);
                    Outgoing::Own(own, label)
                }
            };
            self.put(wire.host, outgoing);
        }
        Ok(())
    }

    fn takes_buffers(&self) -> bool {
        false
    }

    fn whole(&self, _: &Batch) -> Whole {
        Whole::Slices
    }

    /// Nothing of what was let in is lost because the inbox is full; the queue's bound counts these bytes too.
    fn open(&mut self, wire: &mut Wire<'_>, needed: usize, wanted: usize) -> Result<Space, DropReason> {
        let bytes = needed.max(wanted);
        let inbox = if self.is_behind() { None } else { wire.host.begin_send(self.client, bytes).ok() };
        let memory = inbox.map_or_else(|| Memory::Own(vec![0; bytes].into_boxed_slice()), Memory::Inbox);
        Ok(Space::Single(SinglePacket::new(memory)))
    }

    fn send(&mut self, wire: &mut Wire<'_>, open: OpenPacket, to: Recipient) {
        let OpenPacket { space: Space::Single(packet), format, .. } = open else {
            return debug_assert!(false, "the space of another carrier");
        };
        let label = Label::new(to, packet.records());
        let outgoing = match packet.finish(to.subscription, format) {
            (Memory::Inbox(draft), used) => Outgoing::Drafted(draft.finish(used), label),
            (Memory::Own(own), used) => {
                let mut own = own.into_vec();
                own.truncate(used);
                Outgoing::Own(own.into_boxed_slice(), label)
            }
        };
        self.put(wire.host, outgoing);
    }

    fn grant_credit(&mut self, wire: &mut Wire<'_>, is_blocked: bool) {
        let hold = match (self.deferred.is_empty(), is_blocked) {
            (false, _) => Hold::All,
            (true, true) => Hold::Records,
            (true, false) => Hold::Nothing,
        };
        if std::mem::replace(&mut self.hold, hold) != hold {
            wire.host.hold(self.client, hold);
        }
        if hold == Hold::Nothing {
            self.held_packets = 0;
        }
    }

    fn subscription_numbers(&self) -> RangeInclusive<u32> {
        SUBSCRIPTION_NUMBERS
    }

    fn principal(&self) -> Principal {
        Principal::User(self.uid)
    }

    fn owner(&self, _: usize) -> Owner {
        Owner::Client(self.client.number())
    }

    fn open_port(
        &mut self,
        wire: &mut Wire<'_>,
        name: &str,
        side: Side,
        options: PortOptions,
    ) -> Option<Result<Opened, HostError>> {
        Some(wire.host.open(self.client, name, side, options))
    }

    fn close_port(&mut self, wire: &mut Wire<'_>, number: u16) -> Option<bool> {
        Some(wire.host.close(self.client, number).is_ok())
    }

    /// The client is detached unless it is already.
    fn end(&mut self, wire: &mut Wire<'_>, why: &'static str, close: Option<Close>) {
        wire.counters.detach(why);
        self.unwatch(wire.poller);
        if let Some(Close { again, reason }) = close {
            Farewell { again, reason }.say(self.watched.socket.as_fd());
        }
        wire.host.client_info(self.client).iter().for_each(|client| wire.counters.gone.add(client));
        wire.host.detach(self.client);
        let undelivered = std::mem::take(&mut self.undelivered);
        self.undelivered_bytes = 0;
        for message in undelivered.into_iter().filter_map(Outgoing::into_message).chain(self.deferred.drain(..)) {
            wire.host.free(message);
        }
    }
}

/// Hands a message over; gives it back if the inbox has no room for it.
#[inline]
fn deliver(client: ClientKey, host: &mut HostInterface, outgoing: Outgoing) -> Result<(), Outgoing> {
    let (mut message, label) = match outgoing {
        Outgoing::InPlace(message, label) | Outgoing::Drafted(message, label) => (message, label),
        Outgoing::Own(ref bytes, label) => match draft(client, host, bytes) {
            Some(message) => (message, label),
            None => return Err(outgoing),
        },
        Outgoing::Control(ref bytes, class) => {
            // The inbox has no room for it.
            let Some(mut message) = draft(client, host, bytes) else { return Err(outgoing) };
            message.set_mark(mark_of(class));
            let position = class.position(host.waiting(client).map(class_of));
            host.send_at(client, position, message);
            return Ok(());
        }
    };
    message.label(label.subscription, label.records, label.droppable);
    host.send(client, message);
    Ok(())
}

/// Set in the mark of a packet of control that is not a notice; below it lies the subscription that the packet follows.
const IS_EXCHANGE: u16 = 1 << 15;

/// The mark of a packet of control: what [`class_of`] needs.
fn mark_of(class: TrafficClass) -> u16 {
    let (flag, follows) = match class {
        TrafficClass::Exchange(follows) => (IS_EXCHANGE, follows),
        TrafficClass::Notice(follows) => (0, follows),
        TrafficClass::Data(_) => return 0,
    };
    match follows {
        Follows::Origin(Origin::Stream(subscription)) if SUBSCRIPTION_NUMBERS.contains(&subscription) => {
            flag | subscription as u16
        }
        _ => flag,
    }
}

/// The class of a packet that waits for a client, as far as others may follow it.
fn class_of(waiting: &Message) -> TrafficClass {
    let (subscription, _) = waiting.labelled();
    if subscription > 0 {
        return TrafficClass::Data(Origin::Stream(subscription.into()));
    }
    let follows = match waiting.mark() & !IS_EXCHANGE {
        0 => Follows::Nothing,
        subscription => Follows::Origin(Origin::Stream(subscription.into())),
    };
    if waiting.mark() & IS_EXCHANGE == 0 { TrafficClass::Notice(follows) } else { TrafficClass::Exchange(follows) }
}

/// A message of these bytes in the inbox, if that has room.
fn draft(client: ClientKey, host: &mut HostInterface, bytes: &[u8]) -> Option<Message> {
    let mut draft = host.begin_send(client, bytes.len()).ok()?;
    draft.copy_from_slice(bytes);
    Some(Draft::finish(draft, bytes.len()))
}

/// Decodes a key of the poller: the client's number, and whether this is the descriptor of its end.
pub(crate) fn watched(key: u64) -> Option<(u32, bool)> {
    if key & CLIENT == 0 || key >= CLIENT << 1 {
        return None;
    }
    let number = u32::try_from((key & !CLIENT) >> 1).ok()?;
    Some((number, key & IS_END != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_distinguish_clients_from_everything_else() {
        assert_eq!(watched(crate::net::SOCKET), None);
        assert_eq!(watched(Poller::DOORBELL), None);
        for number in [0, 1, u32::MAX] {
            let key = CLIENT | u64::from(number) << 1;
            assert_eq!(watched(key), Some((number, false)));
            assert_eq!(watched(key | IS_END), Some((number, true)));
        }
    }
}
