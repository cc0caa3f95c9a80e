//! The behaviour of a link over every carrier, and from one to another.

use super::*;
use crate::carrier::conformance::{Daemon, Local, Packet, Remote, eventually};
use crossdock_format::{FieldSpec, FieldType, RecordBuilder, Value};
use crossdock_mailbox::attach::{AttachAddr, AttachListener};
use crossdock_transport::Header;
use crossdock_transport::control::{Publication, PublisherId};
use crossdock_transport::handshake::{Hello, Welcome};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;

/// A link without a session.
fn down() -> Link {
    let settings = Settings::new("127.0.0.1:1");
    let place = DaemonAddress { shared: Vec::new(), port: None, packets: None };
    Link::unconnected(settings, place)
}

impl Link {
    /// A link over that carrier, whose session stands.
    pub(crate) fn over(carrier: Box<dyn Carrier>) -> Link {
        let mut link = down();
        link.carrier = carrier;
        link.come_up();
        link
    }
}

fn record(format: &Format, number: u64) -> Vec<u8> {
    let mut row = RecordBuilder::new(format);
    row.set(0, Value::Uint(number)).unwrap();
    row.finish().unwrap().to_vec()
}

/// Begins a session.
fn come_up<D: Daemon>(link: &mut Link) -> D {
    let (carrier, daemon) = D::connect();
    link.carrier = carrier;
    link.come_up();
    daemon
}

/// Drives the link until its daemon has taken that many packets.
fn taken<D: Daemon>(link: &mut Link, daemon: &mut D, count: usize) -> Vec<Packet> {
    let mut taken = Vec::new();
    eventually("the packets are taken", || {
        link.receive();
        link.drive();
        daemon.take(link.now_ns(), &mut taken);
        daemon.transmit(link.now_ns());
        taken.len() >= count
    });
    taken
}

fn too_long_a_request_is_refused_and_the_session_goes_on<D: Daemon>() {
    let mut link = down();
    let mut daemon: D = come_up(&mut link);
    let id = link.request_id();
    link.ask(Request::FindNode { id, name: "n".repeat(MAX_CONTROL_BYTES) });
    let refused = link.answer(id).unwrap().map(drop).unwrap_err();
    assert!(refused.to_string().contains("the daemon takes at most 8388608"), "{refused}");
    let id = link.request_id();
    link.ask(Request::FindNode { id, name: "near".to_owned() });
    let taken = taken(&mut link, &mut daemon, 1);
    assert!(matches!(ControlMessage::decode(&taken[0].1), Ok(ControlMessage::Request(Request::FindNode { .. }))));
    assert!(link.is_up());
}

fn an_opening_that_is_too_long_ends_the_link<D: Daemon>() {
    let mut link = down();
    let _daemon: D = come_up(&mut link);
    let id = link.request_id();
    let find = Request::FindNode { id, name: "n".repeat(MAX_CONTROL_BYTES) };
    link.open_with(find.clone(), find);
    assert!(matches!(link.fault(), Some(Error::Refused(_))));
}

fn records_of_a_lost_session_go_into_the_next_by_another_carrier<From: Daemon, To: Daemon>() {
    let mut link = down();
    let _lost: From = come_up(&mut link);
    let id = link.request_id();
    let find = |name: &str| Request::FindNode { id, name: name.to_owned() };
    link.open_with(find("first"), find("again"));
    let format = Format::natural([FieldSpec::new("a", FieldType::U64)]).unwrap();
    let packet_of = |link: &mut Link, number: u64| {
        let (mut packet, record) = (link.begin_packet().unwrap(), record(&format, number));
        (0..1000).for_each(|_| assert!(packet.push(&record)));
        packet
    };
    let (session, id) = (link.session(), format.id().0);
    link.published = Some(format.clone());
    let sent = packet_of(&mut link, 1);
    link.end_packet(Outgoing::Records { packet: sent, stream: 7, format: id }, session);
    let ended_between = packet_of(&mut link, 2);
    let ended_after = packet_of(&mut link, 3);
    link.lose("a test".to_owned());
    assert!(link.begin_packet().is_none());
    link.end_packet(Outgoing::Records { packet: ended_between, stream: 7, format: id }, session);

    let mut daemon: To = come_up(&mut link);
    link.end_packet(Outgoing::Records { packet: ended_after, stream: 7, format: id }, session);
    let packet = packet_of(&mut link, 4);
    let session = link.session();
    link.end_packet(Outgoing::Records { packet, stream: 7, format: id }, session);
    let mut records = Vec::new();
    let mut opened = Vec::new();
    eventually("all is taken", || {
        for (header, payload) in taken(&mut link, &mut daemon, 0) {
            match header.kind {
                PacketKind::Data => {
                    assert_eq!((header.stream, header.format), (7, id));
                    records.extend(payload);
                }
                _ => {
                    assert!(records.is_empty(), "requests come first");
                    opened.push(ControlMessage::decode(&payload).unwrap());
                }
            }
        }
        records.len() >= 4000 * record(&format, 1).len() && link.is_settled()
    });
    assert_eq!(opened, [ControlMessage::Request(find("again"))]);
    assert_eq!(records, [1, 2, 3, 4].map(|number| record(&format, number).repeat(1000)).concat());
    assert!(matches!(link.inbox.pop_front(), Some(Incoming::Reconnected)));
}

/// The announcement that comes first in a session, before any record.
fn announced<D: Daemon>(link: &mut Link, daemon: &mut D) -> Publication {
    let (header, payload) = taken(link, daemon, 1).remove(0);
    assert_eq!(header.kind, PacketKind::Control, "the daemon is asked before records come again");
    let message = ControlMessage::decode(&payload).unwrap();
    let ControlMessage::Request(Request::Announce { publication, .. }) = message else { panic!("{message:?}") };
    publication.unwrap()
}

fn answer<D: Daemon>(link: &mut Link, daemon: &mut D, taken: Option<u64>) {
    let reply = ControlMessage::Reply(Reply::Announced {
        id: 9,
        most_record_bytes: 1 << 20,
        taken,
        subscriptions: None,
        durable: None,
    });
    assert!(daemon.send(&(Header::new(PacketKind::Control, 0), reply.encode())));
    daemon.transmit(link.now_ns());
}

fn records_that_the_daemon_has_taken_do_not_go_into_the_next_session<From: Daemon, To: Daemon>() {
    let mut link = down();
    let format = Format::natural([FieldSpec::new("a", FieldType::U64)]).unwrap();
    let id = format.id().0;
    let publication = Publication { publisher: PublisherId(7), first: 0 };
    let (name, described) = ("A".to_owned(), format.describe());
    let announce = Request::Announce {
        id: 9,
        stream: 7,
        name,
        format: described,
        publication: Some(publication),
        key: Vec::new(),
    };
    let mut lost: From = come_up(&mut link);
    link.open_with(announce.clone(), announce);
    link.published = Some(format.clone());
    assert_eq!(announced(&mut link, &mut lost), publication);
    answer(&mut link, &mut lost, Some(0));
    let publish = |link: &mut Link, numbers: std::ops::Range<u64>| {
        let (session, mut packet) = (link.session(), link.begin_packet().unwrap());
        numbers.for_each(|number| assert!(packet.push(&record(&format, number))));
        link.end_packet(Outgoing::Records { packet, stream: 7, format: id }, session);
    };
    (0..3).for_each(|packet| publish(&mut link, packet * 1000..(packet + 1) * 1000));
    link.lose("a test".to_owned());

    let mut daemon: To = come_up(&mut link);
    assert_eq!(announced(&mut link, &mut daemon), publication);
    assert_eq!(taken(&mut link, &mut daemon, 0).len(), 0);
    answer(&mut link, &mut daemon, Some(1500));
    let (mut came, wanted) = (Vec::new(), (1500..3000).flat_map(|number| record(&format, number)).collect::<Vec<_>>());
    eventually("the rest is taken", || {
        came.extend(taken(&mut link, &mut daemon, 0).into_iter().flat_map(|(_, payload)| payload));
        came.len() >= wanted.len() && link.is_settled()
    });
    assert_eq!(came, wanted);

    link.lose("a test".to_owned());
    let mut daemon: To = come_up(&mut link);
    assert_eq!(announced(&mut link, &mut daemon).first, 3000);
    assert!(link.begin_packet().is_none(), "new records wait as well");
    answer(&mut link, &mut daemon, Some(3000));
    eventually("the answer is there", || {
        link.receive();
        link.drive();
        link.has_room()
    });
    publish(&mut link, 3000..3001);
    assert_eq!(taken(&mut link, &mut daemon, 1).remove(0).1, record(&format, 3000));
    assert!(link.fault().is_none());
}

/// Drives the link until a hello has come to that socket.
fn hello(link: &mut Link, socket: &UdpSocket) -> (Hello, SocketAddr) {
    let mut came = None;
    eventually("a hello comes", || {
        link.receive();
        link.drive();
        let mut packet = [0; 4096];
        came = socket.recv_from(&mut packet).ok().and_then(|(len, from)| {
            let header = Header::read(&packet[..len]).ok().filter(|header| header.kind == PacketKind::Hello);
            header.and_then(|_| Some((Hello::decode(&packet[HEADER_BYTES..len]).ok()?, from)))
        });
        came.is_some()
    });
    came.unwrap()
}

fn welcome(link: &mut Link, socket: &UdpSocket, (hello, from): (Hello, SocketAddr)) {
    let Hello { nonce, session, packet_bytes, window_bytes, .. } = hello;
    let sessions = link.session();
    socket.send_to(&Welcome { nonce, session: 1, packet_bytes, window_bytes }.packet(session), from).unwrap();
    eventually("the session stands", || {
        link.receive();
        link.drive();
        link.session() > sessions
    });
}

#[test]
fn whether_mailboxes_are_used_is_said_at_every_beginning() {
    for uses_mailboxes in [false, true] {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let addr = socket.local_addr().unwrap();
        let mut link = Link::new(Settings { uses_mailboxes, ..Settings::new(addr.to_string()) }).unwrap();
        for _ in 0..2 {
            let said = hello(&mut link, &socket);
            assert_eq!(said.0.uses_mailboxes, uses_mailboxes);
            welcome(&mut link, &socket, said);
            link.lose("a test".to_owned());
        }
        let said = hello(&mut link, &socket);
        // The daemon that is back lets processes attach, and then does not want this one.
        let listener = AttachListener::bind(&AttachAddr::for_listen(addr), false).unwrap();
        let attached = std::thread::spawn(move || {
            let (_, socket) = std::iter::repeat_with(|| listener.accept().unwrap()).find_map(|came| came).unwrap();
            std::iter::repeat_with(|| AttachRequest::receive(socket.as_fd()).unwrap()).find_map(|said| said)
        });
        welcome(&mut link, &socket, said);
        assert_eq!(attached.join().unwrap(), Some(AttachRequest { uses_mailboxes }));
        assert_eq!(link.transport(), Transport::Udp);
    }
}

#[test]
fn datagrams_of_a_lost_session_are_dropped_or_missing() {
    let mut link = down();
    let lost: Remote = come_up(&mut link);
    let format = Format::natural([FieldSpec::new("a", FieldType::U64)]).unwrap();
    let begin = |link: &mut Link| {
        let (mut packet, record) = (link.begin_packet().unwrap(), record(&format, 1));
        (0..1000).for_each(|_| assert!(packet.push(&record)));
        packet
    };
    let (session, id) = (link.session(), format.id().0);
    let (queued, ended_between) = (begin(&mut link), begin(&mut link));
    link.end_packet(Outgoing::Datagrams { packet: queued, stream: 7, format: id }, session);
    link.lose("a test".to_owned());
    assert_eq!(link.datagrams(), DatagramCounts { dropped_records: 1000, missing_packets: 0 });
    link.end_packet(Outgoing::Datagrams { packet: ended_between, stream: 7, format: id }, session);
    assert_eq!(link.datagrams(), DatagramCounts { dropped_records: 2000, missing_packets: 0 });
    drop(lost);

    let mut link = down();
    let _silent: Remote = come_up(&mut link);
    let (session, packet) = (link.session(), begin(&mut link));
    let sent = packet.packets().len() as u64;
    link.end_packet(Outgoing::Datagrams { packet, stream: 7, format: id }, session);
    link.drive();
    assert_eq!(link.queued_datagrams(), 0);
    link.lose("a test".to_owned());
    assert_eq!(link.datagrams(), DatagramCounts { dropped_records: 0, missing_packets: sent });
}

#[test]
fn acks_are_looked_for_now_and_then_while_some_are_awaited() {
    let mut link = down();
    let _daemon: Remote = come_up(&mut link);
    link.receive();
    let looked_ns = link.looked_ns;
    assert!(!link.awaits_look(looked_ns + LOOK_EVERY_NS), "nothing was sent");
    let id = link.request_id();
    link.ask(Request::Unsubscribe { id, subscription: 0 });
    assert!(!link.awaits_look(looked_ns + LOOK_EVERY_NS - 1), "it has just looked");
    assert!(link.awaits_look(looked_ns + LOOK_EVERY_NS));
    link.receive();
    assert!(!link.awaits_look(link.looked_ns + LOOK_EVERY_NS - 1));
}

#[test]
fn pauses_between_two_tries_stay_short() {
    let mut link = down();
    link.sessions = 1;
    for _ in 0..20 {
        link.lose("a test".to_owned());
        let pause_ns = link.due_ns().saturating_sub(link.now_ns());
        assert!(pause_ns <= 200_000_000, "{pause_ns} ns");
    }
}

macro_rules! over_both {
    ($($check:ident),*) => { $(
        mod $check {
            #[test] fn by_packets() { super::$check::<super::Remote>() }
            #[test] fn by_memory() { super::$check::<super::Local>() }
        }
    )* };
}

over_both!(too_long_a_request_is_refused_and_the_session_goes_on, an_opening_that_is_too_long_ends_the_link);

#[test]
fn records_of_a_lost_session_go_into_the_next() {
    records_of_a_lost_session_go_into_the_next_by_another_carrier::<Remote, Remote>();
    records_of_a_lost_session_go_into_the_next_by_another_carrier::<Remote, Local>();
    records_of_a_lost_session_go_into_the_next_by_another_carrier::<Local, Remote>();
    records_of_a_lost_session_go_into_the_next_by_another_carrier::<Local, Local>();
}

#[test]
fn records_that_the_daemon_has_taken_are_not_sent_again() {
    records_that_the_daemon_has_taken_do_not_go_into_the_next_session::<Remote, Remote>();
    records_that_the_daemon_has_taken_do_not_go_into_the_next_session::<Remote, Local>();
    records_that_the_daemon_has_taken_do_not_go_into_the_next_session::<Local, Remote>();
    records_that_the_daemon_has_taken_do_not_go_into_the_next_session::<Local, Local>();
}
