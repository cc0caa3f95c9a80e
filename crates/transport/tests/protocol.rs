//! The page on the protocol against the code: its packets are those that the code makes and reads, its control messages are read, and
//! none is missing; and the dissector for Wireshark reads the packets of the page as the code does.

#![allow(clippy::print_stdout, reason = "a test that is skipped says so")]
#![allow(clippy::unwrap_used, reason = "a test may panic; the lint spares test functions only, not what they call")]

use crossdock_transport::handshake::Close;
use crossdock_transport::parts::Splitter;
use crossdock_transport::receiver::{Ack, MAX_ACK_BYTES};
use crossdock_transport::route::{
    MAX_REFUSAL_BYTES, MAX_ROUTE_HEADER_BYTES, NodeId, RouteHeader, RouteRefusal, SourceRoute,
};
use crossdock_transport::secure::{
    Arrival, Authorized, Initiator, KEY_BYTES, KeyLimits, PrivateKey, RANDOM_BYTES, Responder, ResponderConfig,
};
use crossdock_transport::{
    ControlMessage, Cut, DatagramReport, EcnCounts, HEADER_BYTES, Header, Hello, Notice, PacketKind, Reply, Request,
    VERSION, Welcome,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const PAGE: &str = include_str!("../../../docs/protocol.md");

/// The blocks of the page whose fence begins with this word, by the rest of it.
fn blocks(word: &str) -> Vec<(&'static str, &'static str)> {
    let fences = PAGE.split("\n```").skip(1).step_by(2);
    let blocks = fences.filter_map(|block| block.split_once('\n'));
    blocks.filter_map(|(fence, text)| Some((fence.strip_prefix(word)?.trim(), text))).collect()
}

/// The first part of a packet, of 16 bytes.
fn first_part(packet: &[u8]) -> Vec<u8> {
    let mut first = None;
    let sent = Splitter::default().split([packet], packet.len(), HEADER_BYTES + 16, |parts, stride| {
        first.get_or_insert_with(|| parts[..stride].to_vec());
        Ok::<_, ()>(true)
    });
    assert_eq!(sent, Ok(true));
    first.unwrap()
}

/// The packets of the page, as the code makes them.
fn packets() -> BTreeMap<&'static str, Vec<u8>> {
    let records =
        |kind, seq| Header { seq, format: 0x0102_0304_0506_0708, stream: 3, records: 1, ..Header::new(kind, 7) };
    let record = 8u64.to_le_bytes();
    let hello = Hello { nonce: 1, session: 7, packet_bytes: 1472, window_bytes: 2 << 20, uses_mailboxes: true };
    let welcome = Welcome { nonce: 1, session: 9, packet_bytes: 1472, window_bytes: 2 << 20 };
    let datagrams = DatagramReport { end: 10, arrived: 9 };
    let mut ack = Ack::new(5, 1424).with_ranges(std::iter::once(7..9));
    (ack.control_limit, ack.delay_us, ack.datagrams) = (69, 300, datagrams);
    ack.ecn = EcnCounts { ect_0: 14, ce: 2 };
    let mut payload = [0; MAX_ACK_BYTES];
    let len = ack.encode(&mut payload);
    let long: Vec<u8> = (0..20).collect();
    let cut = Cut::new(long.len(), 48);
    BTreeMap::from([
        ("data", records(PacketKind::Data, 258).packet(&record).unwrap()),
        ("hello", hello.packet()),
        ("welcome", welcome.packet(7)),
        ("close", Close { again: false, reason: "done".to_owned() }.packet(7)),
        ("ack", Header::new(PacketKind::Ack, 7).packet(&payload[..len]).unwrap()),
        ("first_piece", [&cut.head(0, &records(PacketKind::Data, 258), 258), &long[cut.range(0)]].concat()),
        ("datagram", records(PacketKind::Datagram, 4).packet(&record).unwrap()),
        ("probed", Header { seq: 3, ..Header::new(PacketKind::Probed, 7) }.to_bytes().to_vec()),
        (
            "part",
            first_part(&Header { records: 5, ..records(PacketKind::Data, 258) }.packet(&record.repeat(5)).unwrap()),
        ),
    ])
}

#[test]
fn the_packets_of_the_page_are_those_of_the_code() {
    let mut made = packets();
    for (name, text) in blocks("hex") {
        let on_page: Vec<u8> = text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        let packet = made.remove(name).unwrap_or_else(|| panic!("no packet `{name}`"));
        let hex: Vec<String> =
            packet.chunks(16).map(|line| line.iter().map(|byte| format!("{byte:02x} ")).collect()).collect();
        assert_eq!(on_page, packet, "the code's {name}:\n{}", hex.join("\n"));
        let header = Header::read(&on_page).unwrap();
        assert_eq!(usize::from(header.payload_bytes), on_page.len() - HEADER_BYTES, "{name}");
    }
    assert!(made.is_empty(), "not on the page: {made:?}");
    assert!(PAGE.contains(&format!("describes version {VERSION} of")));
}

/// The words that a tag may have, from the error of one that it may not.
fn words_of<T: serde::de::DeserializeOwned>(tag: &str) -> BTreeSet<String> {
    let error = serde_json::from_str::<T>(&format!("{{\"{tag}\":\"?\"}}")).err().unwrap().to_string();
    let (_, expected) = error.split_once("expected").unwrap();
    expected.split('`').skip(1).step_by(2).map(|word| format!("{tag} {word}")).collect()
}

#[test]
fn the_control_messages_of_the_page_are_read_and_all_are_there() {
    let mut missing = words_of::<Request>("request");
    missing.extend(words_of::<Reply>("reply"));
    missing.extend(words_of::<Notice>("notice"));
    assert!(missing.len() > 35, "{missing:?}");
    for line in blocks("json control").into_iter().flat_map(|(_, text)| text.lines()).filter(|line| !line.is_empty()) {
        let message = ControlMessage::decode(line.as_bytes()).unwrap_or_else(|error| panic!("{line}: {error}"));
        let on_page: serde_json::Value = serde_json::from_str(line).unwrap();
        let again: serde_json::Value = serde_json::from_slice(&message.encode()).unwrap();
        assert_eq!(again, on_page, "every key of it is known, and those that are left out may be");
        let tag = ["request", "reply", "notice"].into_iter().find(|tag| on_page[tag].is_string()).unwrap();
        missing.remove(&format!("{tag} {}", on_page[tag].as_str().unwrap()));
    }
    assert!(missing.is_empty(), "not on the page: {missing:?}");
}

/// The envelopes of the page, as the code makes them.
fn envelopes() -> Vec<(&'static str, Vec<u8>)> {
    let private = |first: u8| PrivateKey::from_random([first; KEY_BYTES]);
    let authorized = Authorized { key: private(2).public(), name: "".into() };
    let mut daemon = Responder::new(ResponderConfig {
        private: private(1),
        authorized: Arc::new([authorized].into_iter().collect()),
        cookie_secret: [9; KEY_BYTES],
        max_clients: 1,
        max_clients_per_key: 1,
        idle_ns: 1,
        place: (0, 0),
        limits: KeyLimits::default(),
    });
    let mut answer = |packet: &[u8]| {
        let mut frame = packet.to_vec();
        let mut arrival = Arrival {
            from: SocketAddr::from(([192, 0, 2, 1], 7)),
            now_ns: 0,
            is_taken: &|_| false,
            random: &mut || Some([4; RANDOM_BYTES]),
            refuse: &mut |why| panic!("{why:?}"),
        };
        let opened = daemon.open_frame(&mut frame, packet.len(), &mut arrival);
        opened.reply.map_or_else(|| frame[..opened.len].to_vec(), |reply| reply.bytes().to_vec())
    };
    let mut client = Initiator::new(private(2), private(1).public(), false);
    client.begin(0, [3; RANDOM_BYTES]);
    let initial = client.poll(0).unwrap().to_vec();
    let cookie = answer(&initial);
    client.open_frame(&mut cookie.clone(), 0, 0);
    client.begin(0, [5; RANDOM_BYTES]);
    let with_cookie = client.poll(0).unwrap().to_vec();
    let response = answer(&with_cookie);
    client.open_frame(&mut response.clone(), 0, 0);
    let mut data = vec![0; 37];
    client.seal(std::iter::once(&b"hello"[..]), 5, &mut data, 0).unwrap();
    assert_eq!(answer(&data), b"hello");
    let names = ["initial", "cookie", "initial_with_cookie", "response", "data"];
    names.into_iter().zip([initial, cookie, with_cookie, response, data]).collect()
}

#[test]
fn the_envelopes_of_the_page_are_those_of_the_code() {
    let hex = |packet: &[u8]| {
        let line = |line: &[u8]| line.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
        packet.chunks(16).map(line).collect::<Vec<_>>().join("\n")
    };
    let made: Vec<(&str, String)> = envelopes().into_iter().map(|(name, packet)| (name, hex(&packet))).collect();
    let on_page: Vec<(&str, String)> =
        blocks("envelope").into_iter().map(|(name, text)| (name, text.trim_end().to_owned())).collect();
    let all: Vec<String> = made.iter().map(|(name, text)| format!("{name}\n{text}\n")).collect();
    assert_eq!(on_page, made, "the code's envelopes:\n{}", all.join("\n"));
}

#[test]
fn the_routed_packets_of_the_page_are_those_of_the_code() {
    let nodes = ["west", "middle", "east"].map(NodeId::of_name);
    let client = RouteHeader { origin: 7, ..RouteHeader::of_client(SourceRoute::new(&nodes).unwrap()) };
    let (header, mut room, mut refusal) =
        (RouteHeader { place: 1, ..client }, [0; MAX_ROUTE_HEADER_BYTES], [0; MAX_REFUSAL_BYTES]);
    let forward = [&*header.write(&mut room), b"envelope"].concat();
    let refusal = header.refuse(RouteRefusal::UnknownHop, &mut refusal).unwrap();
    assert_eq!(bytes_of("route"), [("forward", forward), ("refusal", refusal.to_vec())]);
}

/// The bytes of the page's blocks of hexadecimal digits whose fence begins with this word.
fn bytes_of(word: &str) -> Vec<(&'static str, Vec<u8>)> {
    let bytes = |text: &str| text.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    blocks(word).into_iter().map(|(name, text)| (name, bytes(text))).collect()
}

/// A capture of UDP datagrams to port 7440, as libpcap has it: over IPv4, without a link's header.
fn capture(datagrams: &[Vec<u8>]) -> Vec<u8> {
    let words = |words: [u32; 4]| words.map(u32::to_le_bytes).concat();
    let mut file = [words([0xa1b2_c3d4, 0x0004_0002, 0, 0]), vec![0xff, 0xff, 0, 0, 101, 0, 0, 0]].concat();
    for datagram in datagrams {
        let (udp, ip) = ((8 + datagram.len()) as u16, (28 + datagram.len()) as u16);
        file.extend(words([0, 0, ip.into(), ip.into()]));
        file.extend([0x45, 0]);
        file.extend(ip.to_be_bytes());
        file.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        file.extend([40_000, 7440, udp, 0].map(u16::to_be_bytes).concat());
        file.extend(datagram);
    }
    file
}

/// The fields of the dissector, packet by packet; `None` if tshark is not installed.
fn dissect(datagrams: &[Vec<u8>], fields: &[&str]) -> Option<Vec<Vec<String>>> {
    static CAPTURES: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), CAPTURES.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(format!("crossdock-page-{process}-{number}.pcap"));
    std::fs::write(&path, capture(datagrams)).unwrap();
    let script = concat!("lua_script:", env!("CARGO_MANIFEST_DIR"), "/../../docs/wireshark/crossdock.lua");
    let mut tshark = std::process::Command::new("tshark");
    tshark.args(["-X", script, "-T", "fields", "-E", "separator=|", "-r"]).arg(&path);
    tshark.args(fields.iter().flat_map(|field| ["-e", field]));
    let output = tshark.output();
    std::fs::remove_file(&path).unwrap();
    let output = output.ok()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !errors.contains("Lua:"), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect())
}

#[test]
fn the_dissector_reads_the_packets_of_the_page_as_the_code_does() {
    let (packets, envelopes) = (bytes_of("hex"), bytes_of("envelope"));
    let mut datagrams: Vec<Vec<u8>> = packets.iter().chain(&envelopes).map(|(_, bytes)| bytes.clone()).collect();
    // A length that is longer than the packet.
    let mut spoilt = packets[0].1.clone();
    spoilt[2] += 1;
    datagrams.push(spoilt);
    let common = ["version", "kind", "length", "session", "seq", "piece", "envelope", "malformed"];
    let fields: Vec<String> = common.iter().map(|field| format!("crossdock.{field}")).collect();
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    let Some(lines) = dissect(&datagrams, &fields) else {
        return println!("skipped: tshark is not installed");
    };
    let mut expected: Vec<Vec<String>> = Vec::new();
    for (_, packet) in &packets {
        let Header { kind, payload_bytes, session, seq, piece, .. } = Header::read(packet).unwrap();
        let (kind, piece) = (kind as u64, piece as u64);
        let words = [VERSION.into(), kind, payload_bytes.into(), session.into(), seq, piece];
        expected.push(words.iter().map(u64::to_string).chain(["".to_owned(), "".to_owned()]).collect());
    }
    for (_, envelope) in &envelopes {
        let mut words = vec![String::new(); common.len()];
        words[6] = format!("0x{:02x}", envelope[0]);
        expected.push(words);
    }
    assert_eq!(lines[..expected.len()], expected);
    let spoilt = lines.last().unwrap();
    assert!(!spoilt.last().unwrap().is_empty(), "it is marked as malformed: {spoilt:?}");
}

#[test]
fn the_dissector_reads_payloads() {
    let packets: BTreeMap<_, _> = bytes_of("hex").into_iter().collect();
    let read = |name: &str, fields: &[&str]| {
        let fields: Vec<String> = fields.iter().map(|field| format!("crossdock.{field}")).collect();
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        dissect(std::slice::from_ref(&packets[name]), &fields).map(|mut lines| lines.remove(0).join(" "))
    };
    let ack =
        ["next_seq", "data_limit", "control_limit", "delay_us", "range.from", "range.to", "datagrams", "ect_0", "ce"];
    let ack: Vec<String> = ack.iter().map(|field| format!("ack.{field}")).collect();
    let ack: Vec<&str> = ack.iter().map(String::as_str).collect();
    let Some(read_ack) = read("ack", &ack) else { return println!("skipped: tshark is not installed") };
    assert_eq!(read_ack, "5 1424 69 300 7 9 9 14 2");
    let hello = read("hello", &["own_session", "packet_bytes", "window_bytes", "flags"]).unwrap();
    assert_eq!(hello, "7 1472 2097152 0x00000001");
    assert_eq!(read("close", &["close.reason"]).unwrap(), "done");
    assert_eq!(read("first_piece", &["message_bytes"]).unwrap(), "20");
    assert_eq!(read("part", &["part.offset", "part.total", "part.kind", "part.bytes"]).unwrap(), "0 72 3 16");
    assert_eq!(read("data", &["format", "stream", "records"]).unwrap(), "0x0102030405060708 3 1");
}

#[test]
fn the_dissector_reads_routed_packets() {
    let packets = bytes_of("route");
    let fields = ["course", "place", "origin", "node", "refusal", "refused_at"];
    let fields: Vec<String> = fields.iter().map(|field| format!("crossdock.route.{field}")).collect();
    let mut fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    fields.push("crossdock.malformed");
    let mut datagrams: Vec<Vec<u8>> = packets.into_iter().map(|(_, bytes)| bytes).collect();
    // A place that is none, and a header that ends early.
    let spoilt = [datagrams[0].iter().enumerate().map(|(at, byte)| if at == 3 { 3 } else { *byte }).collect()];
    datagrams.extend(spoilt);
    datagrams.push(datagrams[0][..24].to_vec());
    let Some(lines) = dissect(&datagrams, &fields) else {
        return println!("skipped: tshark is not installed");
    };
    let ids = ["west", "middle", "east"].map(|name| format!("0x{}", NodeId::of_name(name))).join(",");
    assert_eq!(lines[0], ["1", "1", "7", ids.as_str(), "", "", ""]);
    assert_eq!(lines[1], ["3", "0", "7", ids.as_str(), "2", "1", ""]);
    assert!(lines[2..].iter().all(|line| line.last().is_some_and(|malformed| !malformed.is_empty())), "{lines:?}");
}
