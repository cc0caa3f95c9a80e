//! The page on the protocol against the code: its packets are those that the code makes and reads, its control messages are read, and
//! none is missing.

#![allow(clippy::unwrap_used, reason = "a test may panic; the lint spares test functions only, not what they call")]

use crossdock_transport::handshake::Close;
use crossdock_transport::receiver::{Ack, MAX_ACK_BYTES};
use crossdock_transport::secure::{
    Arrival, Authorized, Initiator, KEY_BYTES, KeyLimits, PrivateKey, RANDOM_BYTES, Responder, ResponderConfig,
};
use crossdock_transport::{
    ControlMessage, Cut, DatagramReport, HEADER_BYTES, Header, Hello, Notice, PacketKind, Reply, Request, VERSION,
    Welcome,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

const PAGE: &str = include_str!("../../../docs/protocol.md");

/// The blocks of the page whose fence begins with this word, by the rest of it.
fn blocks(word: &str) -> Vec<(&'static str, &'static str)> {
    let fences = PAGE.split("\n```").skip(1).step_by(2);
    let blocks = fences.filter_map(|block| block.split_once('\n'));
    blocks.filter_map(|(fence, text)| Some((fence.strip_prefix(word)?.trim(), text))).collect()
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
