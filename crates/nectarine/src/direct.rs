//! A session between two programs over packets, without a daemon between them.
//!
//! It is the session of [`crate::carrier::udp`] with nothing above it: no streams, queries or mailboxes. Both sides send records
//! and call one another. A message that is no record belongs to a protocol ([`crate::protocol`]): [`calls`] is one, and programs add others.

mod calls;
mod plugged;
mod records;

use crate::carrier::Carrier;
use crate::carrier::udp::Udp;
use crate::error::Error;
use crate::incoming::{Arrived, Heard};
use crate::link::MAX_PAYLOAD_BYTES;
use crate::node::rpc::header::{Header as CallHeader, MessageKind};
use crate::outgoing::{Message, Outgoing, PacketBuffer};
use crate::protocol::Protocols;
use crate::settings::{Clients, DeliveryClass, Keys};
use calls::{CALLS, Calls};
use crossdock_device::Idler;
use crossdock_transport::secure::{Authorized, PrivateKey, PublicKey};
use crossdock_transport::{MAX_MESSAGE_BYTES, PacketKind, Piece, PieceError, SuperPacket};
pub use records::DirectRecords;
use records::Unfinished;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Frames of datagrams that wait to be taken, at most; the oldest are dropped. They have no credit, and each holds a buffer.
const MOST_DATAGRAMS: usize = 64;

/// A session with another program over UDP packets, without a daemon: reliable records in order, datagrams, and calls. Nothing happens
/// between two calls of [`Direct::turn`], which never blocks: it is for a loop that polls.
///
/// Only the first program that dials a listening one gets a session. The packets are neither encrypted nor authenticated, unless both
/// programs have keys ([`Direct::listen_secure`]).
///
/// # Examples
/// ```no_run
/// use crossdock_nectarine::Direct;
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // One program:
/// let mut here = Direct::listen("127.0.0.1:7450".parse()?)?;
/// loop {
///     here.turn()?;
///     here.serve(|request, reply| {
///         reply.extend(request.iter().rev());
///         Ok(())
///     })?;
/// #   break;
/// }
/// // Another:
/// let mut there = Direct::connect("127.0.0.1:7450".parse()?, Duration::from_secs(5))?;
/// assert_eq!(there.call(b"desserts", Duration::from_secs(1))?, b"stressed");
/// # Ok(())
/// # }
/// ```
pub struct Direct {
    started: Instant,
    udp: Udp,
    idler: Idler,
    heard: Vec<Heard>,
    is_up: bool,
    fault: Option<Error>,
    /// Records that are packed until the next turn, their format and class.
    open: Option<(SuperPacket<PacketBuffer>, u64, DeliveryClass)>,
    unfinished: Unfinished,
    arrived: VecDeque<DirectRecords>,
    /// The owners of what is not records: calls, and what the program has added.
    protocols: Protocols,
    /// How many of `arrived` are datagrams.
    datagrams: usize,
}

impl Direct {
    /// Waits at an address for a program that dials it: [`Direct::turn`] takes it in.
    ///
    /// # Errors
    /// The system refuses the socket or memory.
    pub fn listen(addr: SocketAddr) -> Result<Direct, Error> {
        Ok(Direct::over(Udp::listen(addr, None)?.polled(), Instant::now()))
    }

    /// The same with a program that has one of the keys of `clients`, in a secure session; `private` is this program's key.
    ///
    /// # Errors
    /// The system refuses the socket or memory, or has no random bytes.
    pub fn listen_secure(addr: SocketAddr, private: PrivateKey, clients: &[PublicKey]) -> Result<Direct, Error> {
        let authorized = clients.iter().map(|key| Authorized { key: *key, name: "".into() });
        let clients = Clients { private, authorized: Arc::new(authorized.collect()) };
        Ok(Direct::over(Udp::listen(addr, Some(&clients))?.polled(), Instant::now()))
    }

    /// Dials a program, again and again until it answers.
    ///
    /// # Errors
    /// None answers within `timeout`; the system refuses the socket or memory.
    pub fn connect(addr: SocketAddr, timeout: Duration) -> Result<Direct, Error> {
        Direct::dial(addr, None, timeout)
    }

    /// The same in a secure session; `private` is this program's key, and `peer` the other one's.
    ///
    /// # Errors
    /// As [`Direct::connect`]: also where the other program has another key, or has not been given this one's.
    pub fn connect_secure(
        addr: SocketAddr,
        private: PrivateKey,
        peer: PublicKey,
        timeout: Duration,
    ) -> Result<Direct, Error> {
        Direct::dial(addr, Some(&Keys { private, daemon: peer }), timeout)
    }

    fn dial(addr: SocketAddr, keys: Option<&Keys>, timeout: Duration) -> Result<Direct, Error> {
        let started = Instant::now();
        let mut direct = Direct::over(Udp::open(addr, false, keys, 0)?.polled(), started);
        while !direct.is_up {
            match direct.turn() {
                Err(Error::Lost { .. }) if started.elapsed() < timeout => {
                    direct.fault = None;
                    crossdock_device::nap(Duration::from_millis(1));
                }
                turned => turned?,
            }
            if started.elapsed() >= timeout {
                let reason = direct.udp.refusal().map_or_else(|| "no answer".to_owned(), |(why, _)| why);
                return Err(Error::Lost { addr: addr.to_string(), reason });
            }
        }
        Ok(direct)
    }

    fn over(udp: Udp, started: Instant) -> Direct {
        let mut protocols = Protocols::default();
        let registered = protocols.register(CALLS, Box::<Calls>::default());
        debug_assert!(registered.is_ok(), "the table is empty");
        Direct {
            started,
            udp,
            idler: Idler::new(0),
            heard: Vec::new(),
            is_up: false,
            fault: None,
            open: None,
            unfinished: Unfinished::default(),
            arrived: VecDeque::new(),
            protocols,
            datagrams: 0,
        }
    }

    /// Where it listens, or dials from.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.udp.local_addr()
    }

    /// Whether the session stands.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// Whether the other program has acknowledged all that was sent.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.open.is_none() && self.udp.unacknowledged() == 0
    }

    /// Packets sent again so far.
    #[must_use]
    pub fn resent(&self) -> u64 {
        self.udp.resent()
    }

    /// Sends what is due, and takes what has arrived; the next turn, or [`Direct::send`], acknowledges that. Never blocks.
    ///
    /// # Errors
    /// The session is over: [`Error::Lost`], [`Error::Closed`], [`Error::Malformed`].
    pub fn turn(&mut self) -> Result<(), Error> {
        let now_ns = self.now_ns();
        let mut heard = std::mem::take(&mut self.heard);
        self.flush();
        self.udp.transmit(now_ns, &mut heard);
        // The acks of what arrives leave with the next turn, or behind what the program sends in answer, which is waited for.
        self.udp.receive(now_ns, &mut self.idler, &mut heard);
        // Behind the acks that were in the socket: nothing that they name is sent again.
        self.udp.on_timer(now_ns, &mut heard);
        self.end_turn(heard, now_ns)
    }

    /// Sends what is due, and looks for nothing: for an answer that is to leave before the next turn.
    ///
    /// # Errors
    /// As [`Direct::turn`].
    pub fn send(&mut self) -> Result<(), Error> {
        let now_ns = self.now_ns();
        let mut heard = std::mem::take(&mut self.heard);
        self.flush();
        self.udp.transmit(now_ns, &mut heard);
        self.end_turn(heard, now_ns)
    }

    /// Packs a record of the format of this id; it leaves with the next turn, or sooner. `false` while there is no room for it
    /// before the other side takes some of what was sent: turn, and try again.
    ///
    /// # Errors
    /// The record is longer than a message may be.
    pub fn publish(&mut self, record: &[u8], format: u64) -> Result<bool, Error> {
        self.pack(record, None, format, DeliveryClass::Reliable)
    }

    /// The same for a record that the program shares: one that is longer than a packet is sent from where it is, and kept until the other
    /// side has it. [`Direct::publish`] copies it.
    ///
    /// # Errors
    /// The record is longer than a message may be.
    pub fn publish_shared(&mut self, record: &Arc<Vec<u8>>, format: u64) -> Result<bool, Error> {
        self.pack(record, Some(record), format, DeliveryClass::Reliable)
    }

    /// The same as a datagram: it is dropped when the path has no room for it.
    ///
    /// # Errors
    /// The record is longer than a packet.
    pub fn publish_datagram(&mut self, record: &[u8], format: u64) -> Result<bool, Error> {
        if record.len() > MAX_PAYLOAD_BYTES {
            return Err(Error::DatagramTooLong { bytes: record.len(), most: MAX_PAYLOAD_BYTES });
        }
        self.pack(record, None, format, DeliveryClass::Datagram)
    }

    /// Packs a record, which is also there as `shared`, if that is given.
    fn pack(
        &mut self,
        record: &[u8],
        shared: Option<&Arc<Vec<u8>>>,
        format: u64,
        class: DeliveryClass,
    ) -> Result<bool, Error> {
        if let Some((open, of, open_class)) = &mut self.open
            && (*of, *open_class) == (format, class)
            && open.push(record)
        {
            return Ok(true);
        }
        self.flush();
        if record.len() > MAX_MESSAGE_BYTES {
            return Err(Error::TooLong { bytes: record.len(), most: MAX_MESSAGE_BYTES });
        }
        if !self.udp.has_room() {
            return Ok(false);
        }
        if record.len() > MAX_PAYLOAD_BYTES {
            let bytes = shared.cloned().unwrap_or_else(|| Arc::new(record.to_vec()));
            return Ok(self.udp.send(Message::record(bytes, 0, format)).is_ok());
        }
        let Some(mut packet) = self.udp.begin_packet() else { return Ok(false) };
        let fits = packet.push(record);
        debug_assert!(fits, "an empty packet has room for a record of that length");
        self.open = Some((packet, format, class));
        Ok(fits)
    }

    /// The next records that have arrived, in order.
    pub fn next_records(&mut self) -> Option<DirectRecords> {
        let records = self.arrived.pop_front()?;
        self.datagrams -= usize::from(records.is_datagrams());
        self.udp.consumed_to(records.data_end());
        Some(records)
    }

    /// Carries out the calls that have arrived, each once: `procedure` gets the request, and an empty vector for the reply. Those for
    /// whose replies there is no room wait until the other side takes some of what was sent.
    ///
    /// # Errors
    /// There is no session.
    pub fn serve(&mut self, mut procedure: impl FnMut(&[u8], &mut Vec<u8>) -> Result<(), String>) -> Result<(), Error> {
        while self.udp.has_room()
            && let Some(request) = self.calls().and_then(Calls::take_request)
        {
            // Its caller does not wait any more.
            if request.until_ns <= self.now_ns() {
                continue;
            }
            let (number, mut reply) = (request.number, Vec::new());
            match procedure(&request.body, &mut reply) {
                Ok(()) => self.send_call(CallHeader::new(MessageKind::Reply, number), &reply)?,
                Err(text) => self.send_call(CallHeader::new(MessageKind::Failed, number), text.as_bytes())?,
            }
        }
        Ok(())
    }

    /// Calls the other program, which serves each call once at most. The number of the call, for [`Direct::take_reply`].
    ///
    /// # Errors
    /// There is no session.
    pub fn begin_call(&mut self, request: &[u8], deadline: Duration) -> Result<u64, Error> {
        let number = self.calls().map_or(0, Calls::next_number);
        let deadline_us = u64::try_from(deadline.as_micros()).unwrap_or(u64::MAX);
        let header = CallHeader { kind: MessageKind::Request, number, deadline_us };
        self.send_call(header, request)?;
        Ok(number)
    }

    /// The next reply that has arrived, with the number of its call: its bytes, or the procedure's error in words.
    pub fn take_reply(&mut self) -> Option<(u64, Result<Vec<u8>, String>)> {
        self.calls().and_then(Calls::take_reply)
    }

    /// Calls the other program and waits for the reply, polling. Replies to earlier calls are dropped.
    ///
    /// # Errors
    /// [`Error::Refused`] with the procedure's own error, or as the deadline has passed; the session is over.
    pub fn call(&mut self, request: &[u8], deadline: Duration) -> Result<Vec<u8>, Error> {
        let until_ns = self.now_ns().saturating_add(u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX));
        let number = self.begin_call(request, deadline)?;
        self.send()?;
        loop {
            self.turn()?;
            while let Some((answered, reply)) = self.take_reply() {
                if answered == number {
                    return reply.map_err(Error::Refused);
                }
            }
            if self.now_ns() >= until_ns {
                return Err(Error::Refused("the deadline passed before the reply came".to_owned()));
            }
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Request-response, which every session has.
    fn calls(&mut self) -> Option<&mut Calls> {
        let calls = self.protocols.get_mut(CALLS);
        debug_assert!(calls.is_some(), "it is registered first");
        calls
    }

    fn send_call(&mut self, header: CallHeader, body: &[u8]) -> Result<(), Error> {
        if let Some(calls) = self.calls() {
            calls.outgoing = Some(header);
        }
        self.send_message(CALLS, body)
    }

    /// Sends a message of a protocol of the reliable class.
    fn send_message(&mut self, number: u16, data: &[u8]) -> Result<(), Error> {
        // Records that were published before it come before it.
        self.flush();
        let message = Message::mailbox(number, self.protocols.message(number, data));
        self.udp.send(message).map_err(|_| self.no_session())
    }

    fn no_session(&self) -> Error {
        Error::Lost { addr: self.udp.peer().to_string(), reason: "no session stands".to_owned() }
    }

    /// Records that are packed join the session's queue.
    fn flush(&mut self) {
        if let Some((packet, format, class)) = self.open.take() {
            let sent = self.udp.send(match class {
                DeliveryClass::Reliable => Outgoing::Records { packet, stream: 0, format },
                DeliveryClass::Datagram => Outgoing::Datagrams { packet, stream: 0, format },
            });
            debug_assert!(sent.is_ok(), "a packet was begun in the session");
        }
    }

    fn end_turn(&mut self, mut heard: Vec<Heard>, now_ns: u64) -> Result<(), Error> {
        heard.drain(..).for_each(|heard| self.take(heard, now_ns));
        self.heard = heard;
        self.fault.as_ref().map_or(Ok(()), |fault| Err(fault.again()))
    }

    fn take(&mut self, heard: Heard, now_ns: u64) {
        match heard {
            Heard::Welcome => self.is_up = true,
            Heard::Packets(arrived) => {
                if let Err(error) = self.deliver(arrived, now_ns) {
                    self.udp.close();
                    self.fault = Some(Error::Malformed(error.to_string()));
                }
            }
            Heard::Close(close) => self.fault = Some(Error::Closed(close.reason)),
            Heard::Refused => self.lose("connection refused".to_owned()),
            Heard::Silent { ns } => self.lose(format!("no packet arrived for {} s", ns / 1_000_000_000)),
        }
    }

    fn lose(&mut self, reason: String) {
        self.fault = Some(Error::Lost { addr: self.udp.peer().to_string(), reason });
    }

    fn deliver(&mut self, arrived: Arrived, now_ns: u64) -> Result<(), PieceError> {
        let (kind, piece, data_end) = (arrived.header.kind, arrived.header.piece, arrived.data_end);
        let has_begun = self.unfinished.is_there() || self.protocols.has_begun();
        let is_whole = kind == PacketKind::Data && piece == Piece::Whole && !has_begun;
        if kind == PacketKind::Datagram && arrived.header.stream != 0 {
            arrived.payloads().for_each(|payload| self.protocols.take_whole(arrived.header.stream, payload, now_ns));
            return Ok(());
        }
        if is_whole || kind == PacketKind::Datagram {
            self.arrived.push_back(arrived.into());
            self.datagrams += usize::from(!is_whole);
            self.drop_old_datagrams();
            return Ok(());
        }
        if kind == PacketKind::Control {
            // No request is known between two programs.
            self.udp.control_consumed();
            return Ok(());
        }
        if kind == PacketKind::Message {
            if self.unfinished.is_there() {
                return Err(PieceError::OutOfPlace);
            }
            for payload in arrived.payloads() {
                self.protocols.take(arrived.header.stream, piece, payload, now_ns)?;
            }
        } else if self.protocols.has_begun() {
            return Err(PieceError::OutOfPlace);
        } else {
            let may_stay = self.udp.has_many_buffers();
            self.arrived.extend(self.unfinished.take(arrived, may_stay)?);
        }
        // Records that wait keep their credit, and all that came after them.
        if self.arrived.is_empty() {
            self.udp.consumed_to(data_end);
        }
        Ok(())
    }

    fn drop_old_datagrams(&mut self) {
        while self.datagrams > MOST_DATAGRAMS
            && let Some(oldest) = self.arrived.iter().position(DirectRecords::is_datagrams)
        {
            self.arrived.remove(oldest);
            self.datagrams -= 1;
        }
    }
}

impl Drop for Direct {
    /// The other program learns what has arrived here, and that the session is over.
    fn drop(&mut self) {
        // If it is over already, there is nobody to learn it.
        drop(self.send());
        self.udp.close();
    }
}

#[cfg(test)]
mod tests {
    use super::calls::MOST_CALL_BYTES;
    use super::*;
    use crate::carrier::conformance::eventually;
    use std::net::Ipv4Addr;

    fn pair() -> (Direct, Direct) {
        let mut here = Direct::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let addr = here.local_addr();
        let dialling = std::thread::spawn(move || Direct::connect(addr, Duration::from_secs(20)).unwrap());
        eventually("the session stands", || {
            here.turn().unwrap();
            here.is_up()
        });
        (here, dialling.join().unwrap())
    }

    fn key(first: u8) -> PrivateKey {
        PrivateKey::from_random([first; 32])
    }

    #[test]
    fn programs_with_keys_speak_with_one_another_and_with_nobody_else() {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut here = Direct::listen_secure(local, key(1), &[key(2).public()]).unwrap();
        let (addr, patience) = (here.local_addr(), Duration::from_millis(500));
        let refused = |dial: fn(SocketAddr, Duration) -> Result<Direct, Error>, here: &mut Direct| {
            let dialling = std::thread::spawn(move || dial(addr, patience).err().map(|error| error.to_string()));
            while !dialling.is_finished() {
                here.turn().unwrap();
            }
            assert!(!here.is_up());
            dialling.join().unwrap().unwrap()
        };
        refused(Direct::connect, &mut here);
        let unknown = refused(|addr, time| Direct::connect_secure(addr, key(3), key(1).public(), time), &mut here);
        assert!(unknown.contains("has not authorised"), "{unknown}");
        refused(|addr, time| Direct::connect_secure(addr, key(2), key(4).public(), time), &mut here);
        let dialling = std::thread::spawn(move || {
            Direct::connect_secure(addr, key(2), key(1).public(), Duration::from_secs(20)).unwrap()
        });
        eventually("the session stands", || {
            here.turn().unwrap();
            here.is_up()
        });
        let mut there = dialling.join().unwrap();
        let sent = [record(1, 64), record(2, 4096), record(3, 65_304), record(4, 1 << 20)];
        let came = pass(&mut there, &mut here, &sent);
        let came: Vec<_> = came.iter().flat_map(|records| records.bytes().map(<[u8]>::to_vec)).collect();
        assert!(came == sent);
    }

    /// Publishes all of `sent`, and keeps what comes until all of it has.
    fn pass(from: &mut Direct, to: &mut Direct, sent: &[Vec<u8>]) -> Vec<DirectRecords> {
        let (mut next, mut came) = (0, Vec::new());
        eventually("all records come", || {
            while next < sent.len() && from.publish(&sent[next], 7).unwrap() {
                next += 1;
            }
            from.turn().unwrap();
            to.turn().unwrap();
            came.extend(std::iter::from_fn(|| to.next_records()));
            next == sent.len() && from.is_settled()
        });
        came
    }

    /// A record of that length, as far as the session looks into it.
    fn record(number: u64, len: usize) -> Vec<u8> {
        let mut record = vec![number as u8; len];
        record[..4].copy_from_slice(&(len as u32).to_le_bytes());
        record
    }

    #[test]
    fn records_of_all_lengths_pass_both_ways_in_order() {
        let (mut here, mut there) = pair();
        let lengths = [16, 64, 4096, 65_400, 65_536, 1 << 20, 3 << 20, 24];
        let sent: Vec<_> = (0..70).map(|number| Arc::new(record(number, lengths[number as usize % 8]))).collect();
        for turned in [false, true] {
            let (from, to) = if turned { (&mut there, &mut here) } else { (&mut here, &mut there) };
            let (mut next, mut came) = (0, Vec::new());
            eventually("all records come", || {
                while next < sent.len()
                    && match next % 2 {
                        0 => from.publish(&sent[next], 7).unwrap(),
                        _ => from.publish_shared(&sent[next], 7).unwrap(),
                    }
                {
                    next += 1;
                }
                from.turn().unwrap();
                to.turn().unwrap();
                while let Some(records) = to.next_records() {
                    assert_eq!(records.format(), 7);
                    came.extend(records.bytes().map(|record| Arc::new(record.to_vec())));
                }
                came.len() == sent.len() && from.is_settled()
            });
            assert!(came == sent);
        }
    }

    #[test]
    fn records_that_the_program_keeps_do_not_stop_the_session() {
        let (mut here, mut there) = pair();
        let sent: Vec<_> = (0..40).map(|number| record(number, 1 << 20)).collect();
        let kept = pass(&mut there, &mut here, &sent);
        let pieces: Vec<_> = kept.iter().map(|records| records.fragments().count()).collect();
        assert!(pieces[0] > 1 && pieces[39] == 1, "the last ones are joined, as few buffers are left: {pieces:?}");
        assert!(kept.iter().zip(&sent).all(|(records, sent)| records.fragments().flatten().eq(sent)));
    }

    #[test]
    fn acks_that_a_slow_program_finds_keep_it_from_sending_again() {
        let (mut here, mut there) = pair();
        there.publish(&record(1, 64), 7).unwrap();
        there.send().unwrap();
        eventually("the record comes", || {
            here.turn().unwrap();
            here.next_records().is_some()
        });
        // So much later its ack is due, and then the other side's probe.
        here.started -= Duration::from_millis(5);
        here.turn().unwrap();
        there.started -= Duration::from_millis(300);
        eventually("the record is acknowledged", || {
            there.turn().unwrap();
            there.is_settled()
        });
        assert_eq!(there.resent(), 0);
    }

    #[test]
    fn calls_are_answered_once_with_a_result_or_an_error() {
        let (mut here, mut there) = pair();
        let calls: Vec<_> =
            (0..100u8).map(|number| there.begin_call(&[number], Duration::from_secs(60)).unwrap()).collect();
        let (mut served, mut replies) = (Vec::new(), Vec::new());
        eventually("all replies come", || {
            there.turn().unwrap();
            here.turn().unwrap();
            here.serve(|request, reply| {
                served.push(request[0]);
                reply.extend([request[0], 7]);
                if request[0] % 10 == 3 { Err("a three".to_owned()) } else { Ok(()) }
            })
            .unwrap();
            replies.extend(std::iter::from_fn(|| there.take_reply()));
            replies.len() == calls.len()
        });
        assert_eq!(served, (0..100).collect::<Vec<u8>>());
        for ((number, reply), (call, request)) in replies.into_iter().zip(calls.into_iter().zip(0..)) {
            assert_eq!(number, call);
            assert_eq!(reply, if request % 10 == 3 { Err("a three".to_owned()) } else { Ok(vec![request, 7]) });
        }
    }

    #[test]
    fn datagrams_pass_without_an_ack_of_each() {
        let (mut here, mut there) = pair();
        let sent: Vec<_> = (0..50).map(|number| record(number, 64)).collect();
        let mut came = Vec::new();
        for record in &sent {
            assert!(there.publish_datagram(record, 9).unwrap());
            eventually("the datagram comes", || {
                there.turn().unwrap();
                here.turn().unwrap();
                while let Some(records) = here.next_records() {
                    assert_eq!(records.class(), DeliveryClass::Datagram);
                    came.extend(records.bytes().map(<[u8]>::to_vec));
                }
                came.last() == Some(record)
            });
        }
        assert!(came == sent && there.is_settled());
        assert!(matches!(there.publish_datagram(&record(1, 65_504), 9), Err(Error::DatagramTooLong { .. })));
    }

    #[test]
    fn a_call_follows_the_records_before_it() {
        let (mut here, mut there) = pair();
        assert!(there.publish(&record(1, 16), 7).unwrap());
        there.begin_call(b"how many?", Duration::from_secs(60)).unwrap();
        eventually("the call is served", || {
            there.turn().unwrap();
            here.turn().unwrap();
            let mut is_served = false;
            let count = here.arrived.len();
            here.serve(|_, _| {
                assert_eq!(count, 1);
                is_served = true;
                Ok(())
            })
            .unwrap();
            is_served
        });
    }

    #[test]
    fn a_call_whose_deadline_has_passed_is_not_carried_out() {
        let (mut here, mut there) = pair();
        assert!(there.call(b"late", Duration::ZERO).is_err());
        there.begin_call(b"in time", Duration::from_secs(60)).unwrap();
        let mut served = Vec::new();
        eventually("the other call is served", || {
            there.turn().unwrap();
            here.turn().unwrap();
            here.serve(|request, _| {
                served.push(request.to_vec());
                Ok(())
            })
            .unwrap();
            !served.is_empty()
        });
        assert_eq!(served, [b"in time".to_vec()]);
    }

    #[test]
    fn the_other_side_learns_of_the_end() {
        let (mut here, there) = pair();
        drop(there);
        let mut end = None;
        eventually("the end is known", || {
            end = here.turn().err();
            end.is_some()
        });
        assert!(matches!(end, Some(Error::Closed(reason)) if reason == "done"));
    }

    #[test]
    fn waiting_calls_and_datagrams_have_bounds() {
        let (mut here, mut there) = pair();
        let request = vec![7; 1 << 20];
        let mut sent = 0;
        eventually("more than fits was sent", || {
            here.turn().unwrap();
            there.turn().unwrap();
            if sent < 48 && there.udp.has_room() {
                there.begin_call(&request, Duration::from_secs(60)).unwrap();
                sent += 1;
            }
            sent == 48 && there.is_settled()
        });
        let (bytes, requests) = here.calls().map(|calls| (calls.bytes, calls.requests.len())).unwrap();
        assert!(bytes <= MOST_CALL_BYTES && requests == 31, "{requests}");
        let mut served = 0;
        eventually("all that wait are served", || {
            here.serve(|_, _| {
                served += 1;
                Ok(())
            })
            .unwrap();
            here.turn().unwrap();
            there.turn().unwrap();
            there.calls().unwrap().replies() == 31
        });
        assert_eq!((served, here.calls().unwrap().bytes), (31, 0));
        for number in 0..10 * MOST_DATAGRAMS as u64 {
            there.publish_datagram(&record(number, 64), 1).unwrap();
            there.turn().unwrap();
            here.turn().unwrap();
        }
        assert!(here.arrived.len() <= MOST_DATAGRAMS && here.datagrams == here.arrived.len());
        while here.next_records().is_some() {}
        assert_eq!(here.datagrams, 0);
    }
}
