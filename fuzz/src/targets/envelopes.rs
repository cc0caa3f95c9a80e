//! A frame from the network to a daemon and to a client that have keys for one another: nothing opens but what the other sealed, no
//! answer is longer than its cause, and no table grows. Keys and random bytes are always the same, so seeds have genuine envelopes.
//! The first byte says where the frame goes and from which port, the second is the stride; bit 7 of the first one: the text of a file
//! of keys instead.
use crossdock_transport::secure::{
    Arrival, Authorized, AuthorizedKeys, Initiator, KEY_BYTES, KeyLimits, PrivateKey, RANDOM_BYTES, Responder,
    ResponderConfig,
};
use std::net::SocketAddr;
use std::sync::Arc;

/// All that either side ever seals.
const PACKET: [u8; 32] = *b"all that is ever sealed in here.";
const NOW_NS: u64 = 1_000_000_000;

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    let [flags, stride, frame @ ..] = input else { return };
    if flags & 0x80 != 0 {
        return key_files(&String::from_utf8_lossy(frame));
    }
    let (mut client, mut daemon) = pair();
    let from = SocketAddr::from(([192, 0, 2, 1], 7 + u16::from(flags >> 1 & 1)));
    let (mut bytes, stride) = (frame.to_vec(), usize::from(*stride));
    let content = if flags & 1 == 0 {
        let opened = take(&mut daemon, &mut bytes, stride, from);
        assert!(opened.reply.is_none_or(|reply| reply.bytes().len() <= frame.len()));
        assert!(daemon.clients() <= 2, "the client, and one handshake of it");
        assert_eq!(opened.client.is_some(), opened.len > 0);
        &bytes[..opened.len]
    } else {
        let heard = client.open_frame(&mut bytes, stride, NOW_NS);
        assert!(client.has_keys());
        &bytes[..heard.len]
    };
    assert!(content.chunks(PACKET.len()).all(|packet| packet == PACKET), "made up: {content:?}");
}

fn key_files(text: &str) {
    if let Ok(keys) = AuthorizedKeys::of_file(text) {
        let lines: Vec<String> = keys.clone().into_iter().map(|key| key.to_string()).collect();
        assert_eq!(AuthorizedKeys::of_file(&lines.join("\n")), Ok(keys));
    }
    if let Ok(key) = PrivateKey::of_file(text) {
        assert_eq!(PrivateKey::of_file(&key.to_file()), Ok(key));
    }
}

fn take(
    daemon: &mut Responder,
    frame: &mut [u8],
    stride: usize,
    from: SocketAddr,
) -> crossdock_transport::secure::Opened {
    let mut arrival = Arrival {
        from,
        now_ns: NOW_NS,
        is_taken: &|_| false,
        random: &mut || Some([6; RANDOM_BYTES]),
        refuse: &mut |_| {},
    };
    daemon.open_frame(frame, stride, &mut arrival)
}

/// A client and a daemon with keys for one another; each has sealed one packet.
fn pair() -> (Initiator, Responder) {
    let private = |first: u8| PrivateKey::from_random([first; KEY_BYTES]);
    let authorized = Authorized { key: private(2).public(), name: "client".into() };
    let mut daemon = Responder::new(ResponderConfig {
        private: private(1),
        authorized: Arc::new([authorized].into_iter().collect()),
        cookie_secret: [9; KEY_BYTES],
        max_clients: 2,
        max_clients_per_key: 2,
        idle_ns: NOW_NS,
        place: (0, 0),
        limits: KeyLimits::default(),
    });
    let (mut client, addr) =
        (Initiator::new(private(2), private(1).public(), false), SocketAddr::from(([192, 0, 2, 1], 7)));
    client.begin(NOW_NS, [5; RANDOM_BYTES]);
    for _ in 0..2 {
        let mut initial = client.poll(NOW_NS).expect("a handshake has begun").to_vec();
        let (len, mut reply) = (initial.len(), Vec::new());
        reply.extend_from_slice(take(&mut daemon, &mut initial, len, addr).reply.expect("it is answered").bytes());
        let len = reply.len();
        client.open_frame(&mut reply, len, NOW_NS);
        client.begin(NOW_NS, [7; RANDOM_BYTES]);
    }
    let mut out = [0; 128];
    let sealed = client.seal(std::iter::once(&PACKET[..]), PACKET.len(), &mut out, NOW_NS).expect("there are keys");
    let opened = take(&mut daemon, &mut out[..sealed.bytes], sealed.stride, addr);
    assert!(opened.is_confirmed);
    (client, daemon)
}
