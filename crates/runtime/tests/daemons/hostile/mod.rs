//! Packets that are none, sessions that are nobody's, publishers that break their word: each is counted by reason and
//! dropped, and nobody else notices.

mod handed;
mod joining;
pub(crate) mod raw;
mod shares;

use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
use crossdock_nectarine::{Error, Event, MailboxOptions, Node, Publisher, Subscriber, Transport};
use crossdock_runtime::{ContextConfig, ContextHandle, ContextKind, ContextSpec};
use crossdock_transport::control::Side;
use crossdock_transport::handshake::Close;
use crossdock_transport::receiver::{Ack, MAX_ACK_BYTES};
use crossdock_transport::{
    ControlMessage, HEADER_BYTES, Header, Hello, PacketKind, Piece, Reply, Request, VERSION, Welcome,
};
use raw::{Raw, subscribe};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) fn start() -> (ContextHandle, String) {
    start_with(|_| {})
}

pub(crate) fn start_with(change: impl FnOnce(&mut ContextConfig)) -> (ContextHandle, String) {
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    change(&mut config);
    config.platform.contexts.extend(crate::contexts::further());
    let handle = ContextHandle::start(config).unwrap();
    let addr = handle.local_addr().to_string();
    (handle, addr)
}

pub(crate) fn format() -> Format {
    Format::natural([FieldSpec::new("n", FieldType::U64), FieldSpec::new("text", FieldType::String)]).unwrap()
}

/// The context's count of `reason`.
pub(crate) fn dropped(context: &ContextHandle, reason: &str) -> u64 {
    let info = context.context().unwrap();
    info.dropped.iter().find(|(name, _)| name == reason).map_or(0, |(_, count)| *count)
}

/// Looks until something is so.
pub(crate) fn await_that(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < until, "{what}: not within 20 s");
        std::thread::yield_now();
    }
}

/// Waits until the context has counted `count` of `reason`.
pub(crate) fn await_dropped(context: &ContextHandle, reason: &str, count: u64) {
    await_that(reason, || dropped(context, reason) >= count);
}

#[test]
fn datagrams_that_are_no_packet_are_counted_by_reason_and_dropped() {
    let (context, addr) = start();
    let mut publisher =
        Publisher::builder(&addr).transport(Transport::Udp).stream("A").format(&format()).connect().unwrap();
    let mut subscriber = Subscriber::builder(&addr).transport(Transport::Udp).sql("SELECT * FROM A").connect().unwrap();

    let mut raw = Raw::connect(&addr);
    raw.greet().unwrap();
    let good = Header::new(PacketKind::Ping, raw.session).packet(b"12345678").unwrap();
    raw.socket.send(&good[..31]).unwrap();
    await_dropped(&context, "packet_short", 1);
    let changed = |at: usize, to: u8| {
        let mut packet = good.clone();
        packet[at] = to;
        packet
    };
    raw.socket.send(&changed(0, 9)).unwrap();
    await_dropped(&context, "packet_version", 1);
    raw.socket.send(&changed(1, 200)).unwrap();
    await_dropped(&context, "packet_kind", 1);
    raw.socket.send(&changed(2, 200)).unwrap();
    await_dropped(&context, "packet_length", 1);
    raw.socket.send(&changed(4, good[4] ^ 1)).unwrap();
    await_dropped(&context, "unknown_session", 1);
    raw.send(PacketKind::Hello, 0, 0, 0, b"short");
    await_dropped(&context, "packet_payload", 1);
    raw.send(PacketKind::Welcome, 0, 0, 0, b"");
    await_dropped(&context, "packet_unexpected", 1);
    raw.send(PacketKind::Control, 0, 0, 0, b"{\"request\":\"dance\"}");
    await_dropped(&context, "control_malformed", 1);
    raw.send(PacketKind::Data, 5, 6, 1, b"12345678");
    await_dropped(&context, "packet_unannounced_stream", 1);
    let mut ack = [0; MAX_ACK_BYTES];
    let len = Ack::new(1_000_000, 2_000_000).encode(&mut ack);
    raw.send(PacketKind::Ack, 0, 0, 0, &ack[..len]);
    await_dropped(&context, "ack_of_unsent", 1);
    raw.seq = 1 << 40;
    raw.send(PacketKind::Data, 5, 6, 1, b"12345678");
    await_dropped(&context, "packet_beyond_credit", 1);
    raw.seq = 0;
    raw.send(PacketKind::Data, 5, 6, 1, b"12345678");
    await_dropped(&context, "packet_duplicate", 1);

    // A session's number from another address is not that session.
    let other = Raw::connect(&addr);
    other.socket.send(&good).unwrap();
    await_dropped(&context, "unknown_session", 2);

    // The others never noticed.
    let mut row = RecordBuilder::new(&format());
    row.set(0, Value::Uint(7)).unwrap();
    row.set(1, Value::Text(b"fine")).unwrap();
    publisher.publish(row.finish().unwrap()).unwrap();
    publisher.finish().unwrap();
    match subscriber.next_event(Some(Duration::from_secs(20))).unwrap() {
        Some(Event::Records(records)) => assert_eq!(records.len(), 1),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_of_another_wire_version_is_refused_in_that_version_with_both_named() {
    let (context, addr) = start();
    let raw = Raw::connect(&addr);
    let mut hello =
        Hello { nonce: 1, session: 77, packet_bytes: 1472, window_bytes: 16 * 1472, uses_mailboxes: true }.packet();
    hello[0] = VERSION + 1;
    raw.socket.send(&hello).unwrap();
    let mut packet = [0; 2000];
    let len = raw.socket.recv(&mut packet).unwrap();
    assert_eq!(std::mem::replace(&mut packet[0], VERSION), VERSION + 1);
    let header = Header::read(&packet[..len]).unwrap();
    assert_eq!((header.kind, header.session), (PacketKind::Close, 77));
    let reason = Close::decode(&packet[HEADER_BYTES..len]).reason;
    assert!(reason.contains(&format!("version {VERSION} of the wire format")), "{reason}");
    assert!(reason.contains(&format!("version {}", VERSION + 1)), "{reason}");
    await_dropped(&context, "packet_version", 1);
    assert_eq!(context.context().unwrap().sessions, 0);
}

/// Announces a stream under a number of the session's own.
fn announce(raw: &mut Raw, stream: u32, name: &str, format: &Format) {
    let request = Request::Announce {
        id: stream,
        stream,
        name: name.into(),
        format: format.describe(),
        publication: None,
        key: Vec::new(),
    };
    let reply = raw.ask(request);
    assert!(matches!(reply, Reply::Announced { id, .. } if id == stream), "{reply:?}");
}

#[test]
fn requests_are_carried_out_while_a_stopped_subscriber_withholds_all_credit() {
    let (context, addr) = start_with(|config| config.queue_bytes = 1);
    let mut raw = Raw::connect(&addr);
    raw.greet().unwrap();
    let format = format();
    announce(&mut raw, 1, "A", &format);
    let _stopped = Subscriber::builder(&addr).transport(Transport::Udp).sql("SELECT * FROM A").connect().unwrap();
    let mut row = RecordBuilder::new(&format);
    row.set(0, Value::Uint(7)).unwrap();
    row.set(1, Value::Text(&[b'x'; 1000])).unwrap();
    let record = row.finish().unwrap();
    // The credit, once all that was sent is taken: asked often enough that none is lost on the way.
    let credit = |raw: &mut Raw| {
        raw.send(PacketKind::Ping, 0, 0, 0, b"");
        loop {
            let ack = Ack::decode(&raw.receive(|kind| kind == PacketKind::Ack).1).unwrap();
            if ack.next_seq == raw.seq {
                return ack.data_limit;
            }
        }
    };
    let (mut sent, mut limit) = (0, 1);
    while sent < limit {
        raw.send(PacketKind::Data, 1, format.id().0, 1, record);
        sent += 1;
        if sent % 16 == 0 || sent == limit {
            // Where none is left, the subscriber may still have taken some.
            limit = (0..50).map(|_| credit(&mut raw)).find(|limit| *limit > sent).unwrap_or(sent);
            assert!(sent < 100_000, "the publisher is not held back");
        }
    }
    announce(&mut raw, 2, "B", &format);
    let reply = raw.ask(Request::Subscribe {
        id: 9,
        subscription: 1,
        sql: "SELECT n FROM B".into(),
        overflow: None,
        wait: false,
        accept: Vec::new(),
        unreadable: None,
        row_errors: Default::default(),
        positions: false,
        one_format: false,
    });
    assert!(matches!(reply, Reply::Subscribed { id: 9, .. }), "{reply:?}");
    announce(&mut raw, 3, "C", &format);
    assert_eq!(raw.ask(Request::Finish { id: 10, stream: 3 }), Reply::Done { id: 10 });
    // Records are not; the subscriber may have acknowledged some since.
    let taken = || context.streams().unwrap().iter().map(|stream| stream.records_in).sum::<u64>();
    let refused = || dropped(&context, "packet_beyond_credit");
    while refused() == 0 {
        assert!(sent < 100_000, "the publisher is not held back");
        raw.send(PacketKind::Data, 1, format.id().0, 1, record);
        sent += 1;
        await_that("the record is taken or refused", || taken() + refused() >= sent);
    }
    assert_eq!((taken(), refused()), (sent - 1, 1));
}

#[test]
fn a_publisher_whose_records_are_none_is_disconnected_with_the_reason() {
    let (context, addr) = start();
    let mut raw = Raw::connect(&addr);
    raw.greet().unwrap();
    let format = format();
    let announce = Request::Announce {
        id: 1,
        stream: 1,
        name: "A".into(),
        format: format.describe(),
        publication: None,
        key: Vec::new(),
    };
    assert!(matches!(raw.ask(announce), Reply::Announced { id: 1, .. }));
    let mut subscriber = Subscriber::builder(&addr).transport(Transport::Udp).sql("SELECT * FROM A").connect().unwrap();
    raw.send(PacketKind::Data, 1, format.id().0, 1, &[0xff; 64]);
    let (_, payload) = raw.receive(|kind| kind == PacketKind::Close);
    let close = Close::decode(&payload);
    assert!(!close.again && close.reason.contains("an invalid record"), "{close:?}");
    await_dropped(&context, "record_malformed", 1);
    match subscriber.next_event(Some(Duration::from_secs(20))).unwrap() {
        Some(Event::StreamEnded { publishers_left: 0, .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_long_record_that_is_none_leaves_no_format() {
    let (context, addr) = start();
    let mut raw = announced(&addr);
    raw.send_piece(PacketKind::Data, Piece::First, &[&128_u64.to_le_bytes()[..], &[0xff; 64]].concat());
    raw.send_piece(PacketKind::Data, Piece::Last, &[0xff; 64]);
    let close = raw.close();
    assert!(close.contains("an invalid record"), "{close}");
    await_that("the stream is forgotten with its only format", || context.streams().unwrap().is_empty());
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let (_context, addr) = start();
    let mut raw = Raw::connect(&addr);
    raw.greet().unwrap();
    let description = format().describe();
    let announce = |id, stream, name: &str, format: &str| Request::Announce {
        id,
        stream,
        name: name.into(),
        format: format.into(),
        publication: None,
        key: Vec::new(),
    };
    let refused = |reply: Reply| match reply {
        Reply::Refused { refusal, .. } => refusal.message,
        other => panic!("{other:?}"),
    };
    assert!(refused(raw.ask(announce(1, 1, "", &description))).contains("name"));
    assert!(refused(raw.ask(announce(2, 1, "A\n", &description))).contains("name"));
    assert!(refused(raw.ask(announce(3, 1, "A", "garbage"))).contains("format"));
    assert!(matches!(raw.ask(announce(4, 1, "A", &description)), Reply::Announced { id: 4, .. }));
    assert!(refused(raw.ask(announce(5, 1, "B", &description))).contains("another stream"));
    assert!(refused(raw.ask(Request::Finish { id: 6, stream: 9 })).contains("not announced"));
    assert!(refused(raw.ask(Request::Unsubscribe { id: 7, subscription: 9 })).contains("no subscription"));
    let subscribe = |id| Request::Subscribe {
        id,
        subscription: 1,
        sql: "SELECT n FROM A".into(),
        overflow: None,
        wait: false,
        accept: Vec::new(),
        unreadable: None,
        row_errors: Default::default(),
        positions: false,
        one_format: false,
    };
    assert!(matches!(raw.ask(subscribe(8)), Reply::Subscribed { id: 8, .. }));
    assert!(refused(raw.ask(subscribe(9))).contains("in use"));
    assert_eq!(raw.ask(Request::Unsubscribe { id: 10, subscription: 1 }), Reply::Done { id: 10 });
}

#[test]
fn tables_that_are_full_say_so() {
    let (context, addr) = start_with(|c| {
        (c.max_sessions, c.max_streams, c.max_subscriptions) = (2, 1, 1);
    });
    let _publisher =
        Publisher::builder(&addr).transport(Transport::Udp).stream("A").format(&format()).connect().unwrap();
    let error = Publisher::builder(&addr)
        .transport(Transport::Udp)
        .stream("B")
        .format(&format())
        .connect()
        .map(drop)
        .unwrap_err();
    assert!(matches!(&error, Error::Refused(why) if why.contains("1 streams")), "{error}");
    let mut raw = Raw::connect(&addr);
    raw.greet().unwrap();
    assert!(matches!(raw.ask(subscribe(1, "SELECT * FROM A")), Reply::Subscribed { .. }));
    match raw.ask(subscribe(2, "SELECT * FROM A")) {
        Reply::Refused { refusal, .. } => assert!(refusal.message.contains("1 subscriptions"), "{refusal:?}"),
        other => panic!("{other:?}"),
    }
    // Each I/O context has a table of sessions. The kernel chooses the context of a session.
    let io_contexts = 1 + crate::contexts::further().count();
    let mut sessions = 2;
    let mut more = Vec::new();
    let error = loop {
        match Publisher::builder(&addr).transport(Transport::Udp).stream("A").format(&format()).connect() {
            Ok(publisher) => more.push(publisher),
            Err(error) => break error,
        }
        sessions += 1;
    };
    assert!(matches!(&error, Error::Closed(why) if why.contains("2 sessions")), "{error}");
    assert!((2..=2 * io_contexts).contains(&sessions), "{sessions}");
    await_dropped(&context, "session_limit", 1);
    let info = context.context().unwrap();
    assert_eq!((info.sessions as usize, info.max_sessions as usize), (sessions, 2 * io_contexts));
}

/// A first piece of a message of `bytes` bytes.
fn first(bytes: u64) -> Vec<u8> {
    [&bytes.to_le_bytes()[..], &[0; 64]].concat()
}

pub(crate) fn announced(addr: &str) -> Raw {
    let mut raw = Raw::connect(addr);
    raw.greet().unwrap();
    let announce = Request::Announce {
        id: 1,
        stream: 1,
        name: "A".into(),
        format: format().describe(),
        publication: None,
        key: Vec::new(),
    };
    assert!(matches!(raw.ask(announce), Reply::Announced { .. }));
    raw
}

#[test]
fn pieces_that_are_none_end_their_session_with_the_reason() {
    let (context, addr) = start();
    let other = Publisher::builder(&addr).transport(Transport::Udp).stream("A").format(&format()).connect().unwrap();
    let pieces = [
        (vec![(Piece::Middle, vec![0; 64])], "out of place"),
        (vec![(Piece::Last, vec![0; 64])], "out of place"),
        (vec![(Piece::First, vec![0; 4])], "not as long"),
        (vec![(Piece::First, first(1000)), (Piece::First, first(1000))], "out of place"),
        (vec![(Piece::First, first(1000)), (Piece::Last, vec![0; 64])], "not as long"),
        (vec![(Piece::First, first(1 << 40))], "1099511627776 bytes, and at most"),
    ];
    let mut count = 0;
    for kind in [PacketKind::Control, PacketKind::Data, PacketKind::Message] {
        for (sent, reason) in &pieces {
            let mut raw = announced(&addr);
            sent.iter().for_each(|(piece, payload)| raw.send_piece(kind, *piece, payload));
            let close = raw.close();
            assert!(close.contains(reason), "{kind:?} {sent:?}: {close}");
            count += 1;
            await_dropped(&context, "packet_bad_piece", count);
        }
    }
    other.finish().unwrap();
    await_that("all sessions have ended", || context.context().unwrap().sessions == 0);
}

/// A daemon that was started again does not know its clients' sessions. A packet that asks for no answer gets none, so
/// that two sides never answer one another.
#[test]
fn packets_of_an_unknown_session_get_a_reset_if_they_ask_for_an_answer() {
    let (context, addr) = start_with(|_| {});
    let raw = Raw::connect(&addr);
    for (session, kind) in
        (1..).zip([PacketKind::Ack, PacketKind::Close, PacketKind::Reset, PacketKind::Welcome, PacketKind::Ping])
    {
        raw.socket.send(&Header::new(kind, session).packet(&[]).unwrap()).unwrap();
    }
    for session in [5, 6] {
        let (header, payload) = raw.receive(|_| true);
        assert_eq!((header.kind, header.session, payload.len()), (PacketKind::Reset, session, 0));
        raw.socket.send(&Header::new(PacketKind::Ping, 6).packet(&[]).unwrap()).unwrap();
    }
    context.stop().unwrap();
}

#[test]
fn a_record_that_is_begun_and_not_ended_holds_memory_only_for_a_while() {
    let (context, addr) = start_with(|c| {
        // A record may have 4 MiB, and there are few buffers of that size.
        (c.buffer_bytes, c.idle_timeout_ms) = (16 << 20, 300);
    });
    let mut begun: Vec<Raw> = (0..8).map(|_| announced(&addr)).collect();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for raw in &mut begun {
                raw.send_piece(PacketKind::Data, Piece::First, &first(4 << 20));
            }
            // They are there, and say so.
            while !is_over.load(Ordering::Relaxed) {
                for raw in &mut begun {
                    // One that was disconnected has nobody to speak to.
                    let ping = Header::new(PacketKind::Ping, raw.session).packet(&[]).unwrap();
                    let _ = raw.socket.send(&ping);
                }
                std::thread::yield_now();
            }
        });
        for way in [Transport::Udp, Transport::Shm] {
            let publisher = Publisher::builder(&addr).transport(way).stream("B").format(&format());
            let mut publisher = publisher.connect().unwrap();
            let mut row = RecordBuilder::new(&format());
            row.set(0, Value::Uint(7)).unwrap();
            row.set(1, Value::Text(&vec![b'x'; 4_000_000])).unwrap();
            publisher.publish(row.finish().unwrap()).unwrap();
            publisher.finish().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(dropped(&context, "packet_no_buffer") > 0);
}

#[test]
fn packets_of_any_kind_ahead_of_a_hole_leave_buffers_to_others() {
    let (context, addr) = start_with(|c| (c.buffer_bytes, c.idle_timeout_ms) = (8 << 20, 600_000));
    let mut sessions: Vec<(PacketKind, Raw)> = Vec::new();
    for kind in [PacketKind::Control, PacketKind::Message].repeat(8) {
        let mut raw = Raw::connect(&addr);
        raw.greet().unwrap();
        sessions.push((kind, raw));
    }
    // Again and again, since the socket may be full as well.
    await_that("buffers are short", || {
        for (kind, raw) in &sessions {
            // The first is missing.
            for seq in 1..64 {
                let header = Header { seq, ..Header::new(*kind, raw.session) };
                raw.socket.send(&header.packet(&[0; 60_000]).unwrap()).unwrap();
            }
        }
        dropped(&context, "packet_no_buffer") > 0
    });
    let mut publisher =
        Publisher::builder(&addr).transport(Transport::Udp).stream("A").format(&format()).connect().unwrap();
    let mut reader = Subscriber::builder(&addr).transport(Transport::Udp).sql("SELECT * FROM A").connect().unwrap();
    let mut row = RecordBuilder::new(&format());
    row.set(0, Value::Uint(7)).unwrap();
    row.set(1, Value::Text(&[b'x'; 60_000])).unwrap();
    (0..10).for_each(|_| publisher.publish(row.finish().unwrap()).unwrap());
    publisher.finish().unwrap();
    let mut count = 0;
    while count < 10 {
        if let Event::Records(records) = reader.next_event(Some(Duration::from_secs(20))).unwrap().unwrap() {
            count += records.len();
        }
    }
}

#[test]
fn a_repeated_hello_finds_its_session_and_a_new_one_replaces_it() {
    let (context, addr) = start();
    let mut raw = Raw::connect(&addr);
    raw.greet().unwrap();
    let first = raw.session;
    raw.greet().unwrap();
    assert_eq!((raw.session, context.context().unwrap().sessions), (first, 1));
    let hello = Hello { nonce: 2, session: 78, packet_bytes: 1472, window_bytes: 16 * 1472, uses_mailboxes: true };
    raw.socket.send(&hello.packet()).unwrap();
    let (_, payload) = raw.receive(|kind| kind == PacketKind::Welcome);
    assert_ne!(Welcome::decode(&payload).unwrap().session, first);
    assert_eq!(context.context().unwrap().sessions, 1);
}

#[test]
fn a_subscriber_that_died_blocks_no_publisher() {
    // The time-out would come after ten minutes: the network's word has to do.
    let (context, addr) = start_with(|c| {
        (c.queue_bytes, c.idle_timeout_ms) = (1 << 20, 600_000);
    });
    let mut publisher =
        Publisher::builder(&addr).transport(Transport::Udp).stream("A").format(&format()).connect().unwrap();
    let mut raw = Raw::connect(&addr);
    raw.greet().unwrap();
    assert!(matches!(raw.ask(subscribe(1, "SELECT * FROM A")), Reply::Subscribed { .. }));
    drop(raw);
    let mut row = RecordBuilder::new(&format());
    row.set(0, Value::Uint(7)).unwrap();
    row.set(1, Value::Text(&[b'x'; 200])).unwrap();
    let record = row.finish().unwrap();
    for _ in 0..50_000 {
        publisher.publish(record).unwrap();
    }
    publisher.finish().unwrap();
    assert!(context.subscriptions().unwrap().is_empty());
}

#[test]
fn records_put_before_an_attached_publishers_end_wait_for_buffers_and_are_delivered() {
    let blocked = blocked_before_the_publishers_end(true);
    assert_eq!(blocked, 0, "the records wait for buffers");
}

/// Between two contexts there is less room than there are buffers: the publisher is held back.
#[test]
fn records_put_before_an_attached_publishers_end_wait_for_another_context_and_are_delivered() {
    let blocked = blocked_before_the_publishers_end(false);
    assert_eq!(blocked, 1, "the records wait for room between the contexts");
}

/// An attached publisher, at the home context or at another, publishes until the daemon takes no more or blocks it, for a subscriber
/// at the home context that takes nothing. The publisher ends, and then the subscriber: the daemon takes all records and forgets
/// both. The result is the number of blocked publishers before.
fn blocked_before_the_publishers_end(is_at_home: bool) -> u32 {
    let (context, addr) = start_with(|c| {
        (c.buffer_bytes, c.idle_timeout_ms) = (4 << 20, 600_000);
        if !is_at_home && crate::contexts::further().next().is_none() {
            c.platform.contexts.push(ContextSpec { io: true, ..ContextSpec::new(ContextKind::CCore) });
        }
    });
    let clients_at_home = || context.clients().unwrap().iter().filter(|client| client.context == "c-core-0").count();
    // Clients are placed where the load is least: of several, each context gets one.
    let mut others = Vec::new();
    let mut publisher = loop {
        let before = clients_at_home();
        let stream = Publisher::builder(&addr).transport(Transport::Shm).stream("A").format(&format());
        let publisher = stream.connect().unwrap();
        if (clients_at_home() > before) == is_at_home {
            break publisher;
        }
        others.push(publisher);
        assert!(others.len() < 100, "{:?}", context.clients().unwrap());
    };
    for other in others {
        other.finish().unwrap();
    }
    await_that("the others' ends", || context.clients().unwrap().len() == 1);
    let detached = || context.context().unwrap().detached.iter().map(|(_, count)| count).sum::<u64>();
    let detached_before = detached();
    // It uses mailboxes, so its session is at the home context.
    let mut raw = Raw::connect(&addr);
    raw.greet().unwrap();
    assert!(matches!(raw.ask(subscribe(1, "SELECT * FROM A WHERE n >= 0")), Reply::Subscribed { .. }));
    // It takes nothing. Each of these holds four times its bytes: the buffers are used up before the queue is full.
    let mut row = RecordBuilder::new(&format());
    row.set(0, Value::Uint(7)).unwrap();
    row.set(1, Value::Text(&[b'x'; 17_000])).unwrap();
    let record = row.finish().unwrap();
    let mut published = 0;
    let taken = || context.streams().unwrap()[0].records_in;
    let blocked = || context.streams().unwrap()[0].blocked;
    while taken() == published && blocked() == 0 {
        publisher.publish(record).unwrap();
        published += 1;
        let until = Instant::now() + Duration::from_millis(500);
        while taken() < published && Instant::now() < until {
            std::thread::yield_now();
        }
    }
    let blocked = blocked();
    // It says that it goes, and does not wait for long whether that was heard.
    drop(publisher);
    while !context.clients().unwrap().is_empty() {
        std::thread::yield_now();
    }
    drop(raw);
    while taken() < published {
        std::thread::yield_now();
    }
    while detached() == detached_before {
        std::thread::yield_now();
    }
    assert_eq!(context.streams().unwrap()[0].publishers, 0);
    blocked
}

#[test]
fn a_client_that_never_reads_replies_is_disconnected() {
    let (_context, addr) = start();
    // The one packet that says so may find no room in the asker's own socket; then once more.
    assert!((0..5).any(|_| is_disconnected_for_asking(&addr)));
}

/// Sends requests and reads no replies; whether it was disconnected for that.
fn is_disconnected_for_asking(addr: &str) -> bool {
    let mut raw = Raw::connect(addr);
    raw.greet().unwrap();
    raw.socket.set_nonblocking(true).unwrap();
    let message = ControlMessage::Request(Request::Unsubscribe { id: 1, subscription: 9 }).encode();
    let mut packet = [0; 2048];
    // As fast as the daemon gives credit for it, and never an ack for what it answers.
    for _ in 0..20_000 {
        for _ in 0..16 {
            raw.send(PacketKind::Control, 0, 0, 0, &message);
        }
        while let Ok(len) = raw.socket.recv(&mut packet) {
            let header = Header::read(&packet[..len]).unwrap();
            match header.kind {
                PacketKind::Ack => raw.seq = Ack::decode(&packet[HEADER_BYTES..len]).unwrap().next_seq,
                PacketKind::Close => {
                    let close = Close::decode(&packet[HEADER_BYTES..len]);
                    return close.reason.contains("bytes of replies are unread");
                }
                _ => {}
            }
        }
    }
    false
}

#[test]
fn few_buffers_and_many_subscriptions_still_let_data_in() {
    let (_context, addr) = start_with(|c| c.buffer_bytes = 4 << 20);
    let mut publisher =
        Publisher::builder(&addr).transport(Transport::Udp).stream("A").format(&format()).connect().unwrap();
    let connect = || Subscriber::builder(&addr).transport(Transport::Udp).sql("SELECT * FROM A").connect().unwrap();
    let mut subscribers: Vec<Subscriber> = (0..40).map(|_| connect()).collect();
    let mut row = RecordBuilder::new(&format());
    row.set(0, Value::Uint(7)).unwrap();
    row.set(1, Value::Text(b"fine")).unwrap();
    publisher.publish(row.finish().unwrap()).unwrap();
    publisher.finish().unwrap();
    for subscriber in &mut subscribers {
        match subscriber.next_event(Some(Duration::from_secs(20))).unwrap() {
            Some(Event::Records(records)) => assert_eq!(records.len(), 1),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_reader_that_takes_nothing_leaves_buffers_to_others() {
    let (_context, addr) = start_with(|c| (c.buffer_bytes, c.idle_timeout_ms) = (4 << 20, 600_000));
    let connect = || Node::builder(&addr).transport(Transport::Udp).connect().unwrap();
    let node = connect();
    node.create_mailbox("M", MailboxOptions { bound_messages: Some(8), ..MailboxOptions::default() }).unwrap();
    let mut raw = Raw::connect(&addr);
    raw.greet().unwrap();
    let (id, name, side, ahead) = (1, "M".to_owned(), Side::Read, Some(u32::MAX));
    let reply = raw.ask(Request::OpenMailbox { id, name, side, message_bytes: None, ahead });
    assert!(matches!(reply, Reply::MailboxOpened { .. }), "{reply:?}");
    let mut writer = node.writer("M").unwrap();
    let mut put = 0;
    while writer.begin_put_timeout(8, Duration::from_millis(200)).unwrap().is_some_and(|m| writer.end_put(m).is_ok()) {
        put += 1;
        assert!(put < 100_000, "no bound holds");
    }
    connect().create_mailbox("another", MailboxOptions::default()).unwrap();
}
