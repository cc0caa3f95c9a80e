//! Records that arrive in pieces: what only forwards them never joins them, and a node that reads beyond the first piece does once for
//! all. They come whole and in order, or not at all.

use crate::hostile::raw::Raw;
use crate::hostile::{announced, await_that, format};
use crossdock_format::{Format, RecordBuilder, Value};
use crossdock_nectarine::{Event, Overflow, Publisher, Subscriber, Transport};
use crossdock_runtime::{ChangeRequest, ContextConfig, ContextHandle, HandlerSpec};
use crossdock_transport::{PacketKind, Piece};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

const MIB: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon with one I/O context: pieces that another one hands over are in its buffers, and are joined.
fn start() -> (ContextHandle, String) {
    start_with(|_| {})
}

fn start_with(change: impl FnOnce(&mut ContextConfig)) -> (ContextHandle, String) {
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    change(&mut config);
    let handle = ContextHandle::start(config).unwrap();
    let addr = handle.local_addr().to_string();
    (handle, addr)
}

fn joined(context: &ContextHandle) -> u64 {
    context.context().unwrap().messages_joined
}

fn text(number: u64, bytes: usize) -> String {
    (0..bytes).map(|at| char::from(b'a' + ((at as u64 * 7 + number) % 26) as u8)).collect()
}

/// A record with a text of that many bytes.
fn record(number: u64, bytes: usize) -> Vec<u8> {
    let mut row = RecordBuilder::new(&format());
    row.set(0, Value::Uint(number)).unwrap();
    row.set(1, Value::Text(text(number, bytes).as_bytes())).unwrap();
    row.finish().unwrap().to_vec()
}

fn publisher(addr: &str, stream: &str) -> Publisher {
    Publisher::builder(addr).transport(Transport::Udp).stream(stream).format(&format()).connect().unwrap()
}

fn reader(addr: &str, way: Transport, sql: &str) -> Subscriber {
    Subscriber::builder(addr).transport(way).sql(sql).overflow(Overflow::Block).connect().unwrap()
}

/// The records up to the stream's end; none is dropped.
fn collect(mut reader: Subscriber) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    loop {
        match reader.next_event(Some(PATIENCE)).unwrap().expect("something within 60 s") {
            Event::Records(records) => found.extend(records.bytes().map(<[u8]>::to_vec)),
            Event::StreamEnded { publishers_left: 0, .. } => return found,
            Event::StreamEnded { .. } | Event::Format(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Lengths of texts: long and short records in turn.
fn mixed() -> impl Iterator<Item = (u64, usize)> {
    (0..).zip([MIB, 10, 200_000, 0, 3000, 70_000, MIB, MIB, 100, 3 * MIB, 20_000, 5])
}

#[test]
fn a_record_that_is_only_forwarded_is_never_joined() {
    let (context, addr) = start();
    let mut publisher = publisher(&addr, "N");
    let sql = Some("SELECT * FROM N WHERE n < 1000".to_owned());
    let spec = HandlerSpec { name: "passed".to_owned(), sql, peak_msgs_per_s: Some(100), ..HandlerSpec::default() };
    context.manager().change(ChangeRequest::Deploy(spec), false).unwrap().unwrap();
    let queries = ["SELECT * FROM N", "SELECT * FROM N WHERE n > 3", "SELECT n FROM N", "SELECT * FROM passed"];
    let ways = [Transport::Udp, Transport::Shm];
    let readers = ways.map(|way| {
        queries.map(|sql| {
            let reader = reader(&addr, way, sql);
            std::thread::spawn(move || collect(reader))
        })
    });
    // Those between a packet and a super-packet are joined, since they leave as one packet.
    let lengths = || (0..).zip([MIB, 10, 200_000, 0, 3000, 70_000, 100, 300_000, 5]);
    let sent: Vec<Vec<u8>> = lengths().map(|(number, bytes)| record(number, bytes)).collect();
    sent.iter().for_each(|record| publisher.publish(record).unwrap());
    publisher.finish().unwrap();
    for readers in readers {
        let [all, later, numbers, passed] = readers.map(|reader| reader.join().unwrap());
        assert!(all == sent && passed == sent);
        assert!(
            later.iter().eq(sent.iter().zip(lengths()).filter(|(_, (number, _))| *number > 3).map(|(sent, _)| sent))
        );
        assert_eq!(numbers.len(), sent.len());
    }
    assert_eq!(joined(&context), 0);
    context.stop().unwrap();
}

#[test]
fn a_record_is_joined_once_for_all_that_read_its_end() {
    let (context, addr) = start();
    let mut publisher = publisher(&addr, "N");
    let end = text(5, MIB).split_off(MIB - 3);
    let reads_end = format!("SELECT * FROM N WHERE text LIKE '%{end}'");
    let queries = ["SELECT * FROM N", &reads_end, "SELECT * FROM N WHERE n = 5", &reads_end, "SELECT * FROM N"];
    let readers = queries.map(|sql| {
        let reader = reader(&addr, Transport::Udp, sql);
        std::thread::spawn(move || collect(reader))
    });
    let sent = [record(5, MIB)];
    publisher.publish(&sent[0]).unwrap();
    publisher.finish().unwrap();
    readers.into_iter().for_each(|reader| assert!(reader.join().unwrap() == sent));
    assert_eq!(joined(&context), 1);
    context.stop().unwrap();
}

#[test]
fn long_and_short_records_keep_their_order_whatever_reads_them() {
    let (context, addr) = start();
    let mut publisher = publisher(&addr, "N");
    let reads_all = "SELECT n, text FROM N WHERE text >= ''";
    let queries = ["SELECT * FROM N", reads_all, "SELECT * FROM N WHERE text LIKE '%'"];
    let readers = [Transport::Udp, Transport::Shm].map(|way| {
        queries.map(|sql| {
            let reader = reader(&addr, way, sql);
            std::thread::spawn(move || collect(reader))
        })
    });
    let sent: Vec<Vec<u8>> = mixed().chain(mixed()).map(|(number, bytes)| record(number, bytes)).collect();
    sent.iter().for_each(|record| publisher.publish(record).unwrap());
    publisher.finish().unwrap();
    readers.into_iter().flatten().for_each(|reader| assert!(reader.join().unwrap() == sent));
    assert!(joined(&context) > 0);
    context.stop().unwrap();
}

/// A subscriber that stops reading withholds credit, and what it holds of records in pieces leaves buffers to others.
#[test]
fn a_slow_subscriber_holds_its_publisher_back_and_nobody_else() {
    const COUNT: u64 = 64;
    // The memory that is reserved for as many of these as wait leaves some for the other stream's.
    const BYTES: usize = 900_000;
    let (context, addr) = start_with(|config| config.queue_bytes = 1 << 20);
    let (mut slow, mut fast) = (publisher(&addr, "S"), publisher(&addr, "F"));
    let (stopped, passing) =
        (reader(&addr, Transport::Udp, "SELECT * FROM S"), reader(&addr, Transport::Udp, "SELECT * FROM F"));
    let publishing = std::thread::spawn(move || {
        (0..COUNT).for_each(|number| slow.publish(&record(number, BYTES)).unwrap());
        slow.finish().unwrap();
    });
    await_that("the publisher is held back", || {
        context.streams().unwrap().iter().any(|stream| stream.name == "S" && stream.blocked > 0)
    });
    let passing = std::thread::spawn(move || collect(passing));
    let sent: Vec<Vec<u8>> = mixed().chain(mixed()).map(|(number, bytes)| record(number, bytes)).collect();
    sent.iter().for_each(|record| fast.publish(record).unwrap());
    fast.finish().unwrap();
    assert!(passing.join().unwrap() == sent);
    let streams = context.streams().unwrap();
    let of_slow = streams.iter().find(|stream| stream.name == "S").unwrap();
    assert!(of_slow.blocked > 0 && of_slow.records_in < COUNT, "{of_slow:?}");
    assert!(collect(stopped).into_iter().eq((0..COUNT).map(|number| record(number, BYTES))));
    publishing.join().unwrap();
    context.stop().unwrap();
}

/// The pieces of a record, of 8,000 bytes each.
fn pieces(record: &[u8]) -> Vec<(Piece, Vec<u8>)> {
    let message = [&(record.len() as u64).to_le_bytes()[..], record].concat();
    let count = message.len().div_ceil(8000);
    let piece = |(at, bytes): (usize, &[u8])| match at {
        0 => (Piece::First, bytes.to_vec()),
        at if at + 1 == count => (Piece::Last, bytes.to_vec()),
        _ => (Piece::Middle, bytes.to_vec()),
    };
    message.chunks(8000).enumerate().map(piece).collect()
}

/// Sends the pieces in this order, and has all of them confirmed.
fn send(raw: &mut Raw, pieces: &[(Piece, Vec<u8>)], order: impl IntoIterator<Item = usize>) {
    let first = raw.seq;
    for at in order {
        raw.seq = first + at as u64;
        raw.send_piece(PacketKind::Data, pieces[at].0, &pieces[at].1);
    }
    raw.seq = first + pieces.len() as u64;
    raw.confirm();
}

#[test]
fn a_lost_piece_comes_again_and_the_record_whole_and_once() {
    let (context, addr) = start();
    let mut raw = announced(&addr);
    let mut all = reader(&addr, Transport::Udp, "SELECT * FROM A");
    let sent: Vec<Vec<u8>> = (0..3).map(|number| record(number, 100_000)).collect();
    let of = sent.iter().map(|record| pieces(record)).collect::<Vec<_>>();
    let count = of[0].len();
    // Its second piece is lost, and comes last, twice; then all but the first overtake that; then some come twice.
    send(&mut raw, &of[0], [0].into_iter().chain(2..count).chain([1, 1]));
    send(&mut raw, &of[1], (0..count).rev());
    send(&mut raw, &of[2], (0..count).flat_map(|at| [at, at.saturating_sub(1)]));
    let mut found: Vec<Vec<u8>> = Vec::new();
    while found.len() < sent.len() {
        match all.next_event(Some(PATIENCE)).unwrap().expect("something within 60 s") {
            Event::Records(records) => found.extend(records.bytes().map(<[u8]>::to_vec)),
            Event::Format(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(found == sent);
    assert_eq!(joined(&context), 0);
    context.stop().unwrap();
}

#[test]
fn a_record_in_pieces_that_is_none_reaches_nobody() {
    let (context, addr) = start();
    let slot = format().fields()[1].offset as usize;
    let broken = |change: fn(&mut [u8], usize)| {
        let mut bytes = record(1, 100_000);
        change(&mut bytes, slot);
        bytes
    };
    let records = [
        broken(|bytes, slot| bytes[slot + 4..slot + 8].copy_from_slice(&100_100u32.to_le_bytes())),
        broken(|bytes, slot| bytes[slot..slot + 4].copy_from_slice(&8u32.to_le_bytes())),
        broken(|bytes, _| bytes[..4].copy_from_slice(&64u32.to_le_bytes())),
    ];
    let mut last = publisher(&addr, "A");
    let reader = reader(&addr, Transport::Udp, "SELECT * FROM A");
    let reader = std::thread::spawn(move || collect(reader));
    for (count, bytes) in (1..).zip(&records) {
        let mut raw = announced(&addr);
        pieces(bytes).iter().for_each(|(piece, payload)| raw.send_piece(PacketKind::Data, *piece, payload));
        let reason = raw.close();
        assert!(reason.contains("a packet contains an invalid record"), "{reason}");
        assert_eq!(crate::hostile::dropped(&context, "record_malformed"), count);
    }
    let sound = record(9, 100_000);
    last.publish(&sound).unwrap();
    last.finish().unwrap();
    assert!(reader.join().unwrap() == [sound]);
    context.stop().unwrap();
}

/// Lists of records are looked at element by element, so all of the record is, and it is joined for that.
#[test]
fn a_record_whose_check_needs_all_of_it_is_joined() {
    let (context, addr) = start();
    let listed = Format::parse_schema("n u64\nnames string[]\nnumbers u64[]").unwrap();
    let row = |names: usize, numbers: u64| {
        let mut row = RecordBuilder::new(&listed);
        row.set(0, Value::Uint(1)).unwrap();
        row.begin_list(1).unwrap();
        (0..names).for_each(|_| row.push(Value::Text(b"name")).unwrap());
        row.end_list().unwrap();
        row.begin_list(2).unwrap();
        (0..numbers).for_each(|number| row.push(Value::Uint(number)).unwrap());
        row.end_list().unwrap();
        row.finish().unwrap().to_vec()
    };
    let mut publisher =
        Publisher::builder(&addr).transport(Transport::Udp).stream("L").format(&listed).connect().unwrap();
    let mut all = reader(&addr, Transport::Udp, "SELECT * FROM L");
    for (sent, before) in [(row(0, 50_000), 0), (row(20_000, 50_000), 1)] {
        publisher.publish(&sent).unwrap();
        publisher.flush().unwrap();
        let found = loop {
            match all.next_event(Some(PATIENCE)).unwrap().expect("something within 60 s") {
                Event::Records(records) => break records.bytes().map(<[u8]>::to_vec).collect::<Vec<_>>(),
                Event::Format(_) => {}
                other => panic!("{other:?}"),
            }
        };
        assert!(found == [sent]);
        assert_eq!(joined(&context), before);
    }
    publisher.finish().unwrap();
    context.stop().unwrap();
}
