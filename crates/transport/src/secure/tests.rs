//! Both endpoints against one another, in virtual time, and against those who change, repeat, delay and make up packets.

use super::channel::KeyLimits;
use super::cookie::PERIOD_NS;
use super::envelope::{COOKIE_REPLY_BYTES, HEAD_BYTES, INITIAL_BYTES};
use super::*;
use proptest::prelude::*;
use std::net::SocketAddr;
use std::sync::Arc;

const SECOND_NS: u64 = 1_000_000_000;

fn private(first: u8) -> PrivateKey {
    PrivateKey::from_random([first; KEY_BYTES])
}

fn addr(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

/// A daemon, and what it did with the last frame.
struct Daemon {
    responder: Responder,
    rejected: Vec<Rejection>,
    taken: Vec<SocketAddr>,
    random: u8,
    now_ns: u64,
}

const DAEMON: u8 = 1;
/// The first bytes of the authorised clients' keys.
const CLIENTS: [u8; 2] = [2, 3];

impl Daemon {
    fn with(change: impl FnOnce(&mut ResponderConfig)) -> Daemon {
        let authorized = CLIENTS.map(|first| Authorized { key: private(first).public(), name: "client".into() });
        let mut config = ResponderConfig {
            private: private(DAEMON),
            authorized: Arc::new(authorized.into_iter().collect()),
            cookie_secret: [9; KEY_BYTES],
            max_clients: 8,
            max_clients_per_key: 6,
            idle_ns: 20 * SECOND_NS,
            place: (2, 2),
            limits: KeyLimits::default(),
        };
        change(&mut config);
        Daemon {
            responder: Responder::new(config),
            rejected: Vec::new(),
            taken: Vec::new(),
            random: 0,
            now_ns: SECOND_NS,
        }
    }

    fn new() -> Daemon {
        Daemon::with(|_| {})
    }

    /// Takes a frame: what was opened, and the answer.
    fn take(&mut self, frame: &[u8], stride: usize, from: SocketAddr) -> (Opened, Vec<u8>) {
        self.rejected.clear();
        let (mut frame, rejected, taken, random) = (frame.to_vec(), &mut self.rejected, &self.taken, &mut self.random);
        let mut arrival = Arrival {
            from,
            now_ns: self.now_ns,
            is_taken: &|addr| taken.contains(&addr),
            random: &mut || {
                *random = random.wrapping_add(1);
                Some([*random; RANDOM_BYTES])
            },
            refuse: &mut |rejection| rejected.push(rejection),
        };
        let opened = self.responder.open_frame(&mut frame, stride, &mut arrival);
        let longest = frame.len();
        assert!(
            opened.reply.is_none_or(|reply| reply.bytes().len() <= longest),
            "an answer is no longer than its cause"
        );
        frame.truncate(opened.len);
        (opened, frame)
    }

    fn reply(&mut self, frame: &[u8], from: SocketAddr) -> Vec<u8> {
        self.take(frame, frame.len(), from).0.reply.map(|reply| reply.bytes().to_vec()).unwrap_or_default()
    }

    fn seal(&mut self, to: SocketAddr, packet: &[u8]) -> Option<Vec<u8>> {
        let mut out = [0; 2048];
        let now_ns = self.now_ns;
        let sealed = self.responder.seal(to, std::iter::once(packet), packet.len(), &mut out, now_ns)?;
        Some(out[..sealed.bytes].to_vec())
    }
}

/// A client at an address.
struct Client {
    initiator: Initiator,
    addr: SocketAddr,
}

impl Client {
    fn new(first: u8, port: u16) -> Client {
        let initiator = Initiator::new(private(first), private(DAEMON).public(), false);
        Client { initiator, addr: addr(port) }
    }

    fn begin(&mut self, now_ns: u64, random: u8) {
        self.initiator.begin(now_ns, [random; RANDOM_BYTES]);
    }

    fn hear(&mut self, frame: &[u8], now_ns: u64) -> (Heard, Vec<u8>) {
        let mut frame = frame.to_vec();
        let stride = frame.len();
        let heard = self.initiator.open_frame(&mut frame, stride, now_ns);
        frame.truncate(heard.len);
        (heard, frame)
    }

    /// Its initial with a cookie that it gets.
    fn go_on(&mut self, cookie: &[u8], now_ns: u64) -> Vec<u8> {
        self.hear(cookie, now_ns);
        assert!(self.initiator.should_begin(now_ns));
        self.begin(now_ns, cookie[20]);
        self.initiator.poll(now_ns).unwrap().to_vec()
    }

    /// Its initial with the right cookie.
    fn initial(&mut self, daemon: &mut Daemon) -> Vec<u8> {
        let first = self.initiator.poll(daemon.now_ns).unwrap().to_vec();
        let cookie = daemon.reply(&first, self.addr);
        self.go_on(&cookie, daemon.now_ns)
    }

    /// Both have keys then, and the daemon has heard of it.
    fn connect(&mut self, daemon: &mut Daemon, random: u8) {
        self.begin(daemon.now_ns, random);
        let initial = self.initial(daemon);
        let response = daemon.reply(&initial, self.addr);
        assert!(self.hear(&response, daemon.now_ns).0.has_keys);
        let first = self.seal(b"hello", daemon.now_ns);
        assert_eq!(daemon.take(&first, first.len(), self.addr).1, b"hello");
    }

    fn seal(&mut self, packet: &[u8], now_ns: u64) -> Vec<u8> {
        let mut out = [0; 2048];
        let sealed = self.initiator.seal(std::iter::once(packet), packet.len(), &mut out, now_ns).unwrap();
        out[..sealed.bytes].to_vec()
    }
}

fn connected() -> (Client, Daemon) {
    let (mut client, mut daemon) = (Client::new(CLIENTS[0], 7), Daemon::new());
    client.connect(&mut daemon, 100);
    (client, daemon)
}

#[test]
fn a_client_and_its_daemon_exchange_packets_after_a_cookie_and_a_handshake() {
    let (mut client, mut daemon) = (Client::new(CLIENTS[0], 7), Daemon::new());
    assert!(client.initiator.should_begin(daemon.now_ns) && client.initiator.poll(daemon.now_ns).is_none());
    client.begin(daemon.now_ns, 100);
    let first = client.initiator.poll(daemon.now_ns).unwrap().to_vec();
    assert_eq!(client.initiator.poll(daemon.now_ns), None, "it is repeated later");
    let (opened, _) = daemon.take(&first, first.len(), client.addr);
    let cookie = opened.reply.unwrap().bytes().to_vec();
    assert_eq!((cookie.len(), daemon.responder.clients(), opened.client), (COOKIE_REPLY_BYTES, 0, None));
    let second = client.go_on(&cookie, daemon.now_ns);
    assert_eq!((first.len(), second.len()), (INITIAL_BYTES, INITIAL_BYTES));
    let response = daemon.reply(&second, client.addr);
    assert_eq!((daemon.responder.clients(), daemon.responder.client_at(client.addr)), (1, None), "not confirmed");
    assert_eq!(daemon.seal(client.addr, b"early"), None);
    assert!(client.hear(&response, daemon.now_ns).0.has_keys);
    let packet = client.seal(b"a packet", daemon.now_ns);
    assert!(!packet.windows(8).any(|part| part == b"a packet"), "it is sealed");
    let (opened, content) = daemon.take(&packet, packet.len(), client.addr);
    assert_eq!((content.as_slice(), opened.client), (&b"a packet"[..], Some(private(CLIENTS[0]).public())));
    assert!(opened.is_confirmed && daemon.rejected.is_empty());
    assert_eq!(daemon.responder.client_at(client.addr), opened.client);
    let answer = daemon.seal(client.addr, b"its answer").unwrap();
    assert_eq!(client.hear(&answer, daemon.now_ns).1, b"its answer");
    assert_eq!(daemon.seal(addr(8), b"to nobody"), None);
    // The index names the endpoint of the daemon that has the keys, and the client says where it has to be.
    assert_eq!(daemon.responder.place_of(&packet, 0), None);
    let elsewhere = Daemon::with(|config| config.place = (1, 2));
    assert_eq!(elsewhere.responder.place_of(&packet, 0), Some(2));
    assert_eq!(elsewhere.responder.place_of(&first, 0), None);
    let mut mailboxes = Initiator::new(private(2), private(DAEMON).public(), true);
    mailboxes.begin(0, [0; RANDOM_BYTES]);
    assert_eq!(elsewhere.responder.place_of(mailboxes.poll(0).unwrap(), 3), Some(3));
}

#[test]
fn a_super_packet_is_sealed_from_slices_and_opened_to_the_begin_of_its_frame() {
    let (mut client, mut daemon) = connected();
    let content: Vec<u8> = (0..200u8).collect();
    for (stride, cuts) in [(48, vec![0, 1, 47, 48, 130, 200]), (200, vec![0, 200]), (64, vec![0, 64, 64, 199, 200])] {
        let slices = cuts.windows(2).map(|two| &content[two[0]..two[1]]);
        let mut out = [0; 1024];
        let sealed = client.initiator.seal(slices, stride, &mut out, daemon.now_ns).unwrap();
        let packets = content.len().div_ceil(stride);
        assert_eq!(sealed, Sealed { bytes: 200 + packets * OVERHEAD_BYTES, stride: stride + OVERHEAD_BYTES });
        let (opened, found) = daemon.take(&out[..sealed.bytes], sealed.stride, client.addr);
        assert_eq!((found, opened.stride), (content.clone(), stride));
        let short = client.initiator.seal(std::iter::once(&content[..]), stride, &mut [0; 64], daemon.now_ns);
        assert_eq!(short, None, "no room for it");
    }
    // One that is damaged on the way is left out, and the others close up.
    let mut out = [0; 1024];
    let sealed = client.initiator.seal(std::iter::once(&content[..]), 48, &mut out, daemon.now_ns).unwrap();
    out[sealed.stride + HEAD_BYTES] ^= 1;
    let (_, found) = daemon.take(&out[..sealed.bytes], sealed.stride, client.addr);
    assert_eq!(found, [&content[..48], &content[96..]].concat());
    assert_eq!(daemon.rejected, [Rejection::Unauthentic]);
}

#[test]
fn a_packet_that_is_changed_in_any_byte_is_refused() {
    let (mut client, mut daemon) = connected();
    let packet = client.seal(b"content", daemon.now_ns);
    let sealed = daemon.seal(client.addr, b"content").unwrap();
    for at in 0..packet.len() {
        let (mut to_daemon, mut to_client) = (packet.clone(), sealed.clone());
        to_daemon[at] ^= 0x10;
        to_client[at] ^= 0x10;
        let opened = daemon.take(&to_daemon, to_daemon.len(), client.addr).0.len;
        let heard = client.hear(&to_client, daemon.now_ns).1.len();
        assert!(opened == 0 && daemon.rejected.len() == 1 && heard == 0, "byte {at}");
    }
    for len in 0..packet.len() {
        assert_eq!(daemon.take(&packet[..len], len.max(1), client.addr).0.len, 0, "cut to {len}");
    }
    let (mut other, mut daemon) = (Client::new(CLIENTS[1], 9), Daemon::new());
    other.begin(daemon.now_ns, 7);
    let initial = other.initial(&mut daemon);
    for at in 0..initial.len() {
        let mut changed = initial.clone();
        changed[at] ^= 1;
        daemon.now_ns += SECOND_NS / 100;
        daemon.reply(&changed, other.addr);
        assert_eq!(daemon.responder.clients(), 0, "byte {at} of the first message: {:?}", daemon.rejected);
    }
    let response = daemon.reply(&initial, other.addr);
    for at in 0..response.len() {
        let mut changed = response.clone();
        changed[at] ^= 1;
        let is_ignored = matches!(at, 1..4 | 8..16);
        assert!(is_ignored || !other.hear(&changed, daemon.now_ns).0.has_keys, "byte {at} of the second message");
    }
}

#[test]
fn a_repeated_first_message_gets_the_same_answer_and_no_other_place() {
    let (mut client, mut daemon) = (Client::new(CLIENTS[0], 7), Daemon::new());
    client.begin(daemon.now_ns, 1);
    let initial = client.initial(&mut daemon);
    let response = daemon.reply(&initial, client.addr);
    for _ in 0..100 {
        assert_eq!(daemon.reply(&initial, client.addr), response);
    }
    assert_eq!(daemon.responder.clients(), 1);
    // Nobody else uses the message with another cookie.
    daemon.now_ns += PERIOD_NS;
    let first = [&initial[..HEAD_BYTES], &[0; INITIAL_BYTES - HEAD_BYTES]].concat();
    let cookie = daemon.reply(&first, client.addr);
    let changed = [&initial[..HEAD_BYTES], &cookie[HEAD_BYTES..], &initial[COOKIE_REPLY_BYTES..]].concat();
    let mut other = Daemon::new();
    other.now_ns = daemon.now_ns;
    assert!(other.reply(&changed, client.addr).is_empty());
    assert_eq!(other.rejected, [Rejection::Handshake]);
    // The client makes its message for that cookie, in the same place.
    let again = client.go_on(&cookie, daemon.now_ns);
    let response = daemon.reply(&again, client.addr);
    assert_eq!(daemon.responder.clients(), 1);
    assert!(client.hear(&response, daemon.now_ns).0.has_keys);
    let first = client.seal(b"hello", daemon.now_ns);
    assert!(daemon.take(&first, first.len(), client.addr).0.is_confirmed);
    assert!(daemon.reply(&again, client.addr).is_empty());
    assert_eq!((daemon.rejected.as_slice(), daemon.responder.clients()), (&[Rejection::Replayed][..], 1));
}

#[test]
fn a_forged_response_does_not_spoil_the_handshake() {
    let (mut client, mut daemon) = (Client::new(CLIENTS[0], 7), Daemon::new());
    client.begin(daemon.now_ns, 1);
    let initial = client.initial(&mut daemon);
    let response = daemon.reply(&initial, client.addr);
    let mut forged = response.clone();
    *forged.last_mut().unwrap() ^= 1;
    assert!(!client.hear(&forged, daemon.now_ns).0.has_keys);
    assert!(client.hear(&response, daemon.now_ns).0.has_keys);
}

#[test]
fn a_packet_is_opened_once_in_whatever_order_packets_arrive() {
    let (mut client, mut daemon) = connected();
    let packets: Vec<Vec<u8>> = (0..100u8).map(|at| client.seal(&[at; 9], daemon.now_ns)).collect();
    for at in (0..100usize).rev() {
        assert_eq!(daemon.take(&packets[at], packets[at].len(), client.addr).1, [at as u8; 9]);
        assert_eq!(daemon.take(&packets[at], packets[at].len(), client.addr).0.len, 0, "again");
        assert_eq!(daemon.rejected, [Rejection::Replayed]);
    }
}

#[test]
fn keys_are_replaced_after_packets_and_after_a_time_and_late_packets_still_open() {
    let limits = KeyLimits { packets: 4, ns: 10 * SECOND_NS };
    let mut daemon = Daemon::with(|config| config.limits = limits);
    let mut client = Client::new(CLIENTS[0], 7);
    client.initiator = client.initiator.with_limits(limits);
    client.connect(&mut daemon, 5);
    let phase = |packet: &[u8]| packet[1];
    // The hello was the first.
    let packets: Vec<Vec<u8>> = (0..11u8).map(|at| client.seal(&[at; 3], daemon.now_ns)).collect();
    assert_eq!(packets.iter().map(|packet| phase(packet)).collect::<Vec<_>>(), [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
    // Each phase's packets behind those of the next; those of two phases ago are lost.
    for at in [3, 0, 4, 1, 7, 5, 8, 6] {
        assert_eq!(daemon.take(&packets[at], packets[at].len(), client.addr).1, [at as u8; 3], "packet {at}");
    }
    assert_eq!(daemon.take(&packets[2], packets[2].len(), client.addr).0.len, 0);
    assert_eq!(daemon.rejected, [Rejection::Unauthentic]);
    // A forged phase moves nothing on.
    let mut forged = packets[9].clone();
    forged[1] = 3;
    daemon.take(&forged, forged.len(), client.addr);
    assert_eq!(daemon.take(&packets[9], packets[9].len(), client.addr).1, [9; 3]);
    daemon.now_ns += 10 * SECOND_NS;
    let later = client.seal(b"later", daemon.now_ns);
    assert_eq!((phase(&later), daemon.take(&later, later.len(), client.addr).1), (3, b"later".to_vec()));
    // The other direction has phases of its own, more than a byte counts.
    for at in 0..1200u32 {
        let packet = daemon.seal(client.addr, &at.to_le_bytes()).unwrap();
        assert_eq!(client.hear(&packet, daemon.now_ns).1, at.to_le_bytes());
    }
}

#[test]
fn a_cookie_of_another_address_or_time_is_no_cookie() {
    let (mut client, mut daemon) = (Client::new(CLIENTS[0], 7), Daemon::new());
    client.begin(daemon.now_ns, 1);
    let initial = client.initial(&mut daemon);
    for (from, later_ns) in [(addr(8), 0), (client.addr, 2 * PERIOD_NS)] {
        daemon.now_ns += later_ns;
        let reply = daemon.reply(&initial, from);
        assert_eq!((reply.len(), daemon.rejected.as_slice()), (COOKIE_REPLY_BYTES, &[Rejection::Cookie][..]));
        assert_eq!(daemon.responder.clients(), 0);
    }
    // The client goes on with the cookie that it gets instead.
    let cookie = daemon.reply(&initial, client.addr);
    let again = client.go_on(&cookie, daemon.now_ns);
    daemon.reply(&again, client.addr);
    assert_eq!(daemon.responder.clients(), 1);
}

#[test]
fn an_unknown_key_gets_a_cookie_and_a_refusal_that_say_nothing_of_the_daemon() {
    let (mut stranger, mut daemon) = (Client::new(77, 7), Daemon::new());
    stranger.begin(daemon.now_ns, 1);
    let initial = stranger.initial(&mut daemon);
    let refusal = daemon.reply(&initial, stranger.addr);
    assert_eq!(daemon.rejected, [Rejection::UnknownKey]);
    assert_eq!(daemon.responder.clients(), 0);
    let index = &initial[4..8];
    assert_eq!(refusal, [&[0xc5, 0, Code::UnknownKey as u8, 0], index, &[0; 8]].concat());
    stranger.hear(&refusal, daemon.now_ns);
    assert_eq!((stranger.initiator.refused(), stranger.initiator.has_keys()), (Some(Code::UnknownKey), false));
    // A handshake that was made for another daemon's key gets nothing.
    let mut lost = Client::new(CLIENTS[0], 7);
    lost.initiator = Initiator::new(private(CLIENTS[0]), private(88).public(), false);
    lost.begin(daemon.now_ns, 1);
    let initial = lost.initial(&mut daemon);
    assert!(daemon.reply(&initial, lost.addr).is_empty());
    assert_eq!(daemon.rejected, [Rejection::Handshake]);
    // So does one of another version.
    let mut newer = initial;
    newer[1] += 1;
    assert!(daemon.reply(&newer, lost.addr).is_empty());
    // A packet in no envelope gets a refusal that is as short.
    let refusal = daemon.responder.refuse_unprotected(40, daemon.now_ns).unwrap();
    assert_eq!(refusal.bytes(), [&[0xc5, 0, Code::Unprotected as u8, 0][..], &[0; 12]].concat());
    assert!(daemon.responder.refuse_unprotected(HEAD_BYTES - 1, daemon.now_ns).is_none(), "shorter than its answer");
}

#[test]
fn the_settings_never_show_the_secret_of_the_cookies() {
    Daemon::with(|config| {
        config.cookie_secret = [0xab; KEY_BYTES];
        assert!(!format!("{config:?}").contains("171"), "{config:?}");
    });
}

#[test]
fn keys_hold_at_one_address_and_a_client_that_has_another_makes_others() {
    let (mut client, mut daemon) = connected();
    let packet = client.seal(b"a packet", daemon.now_ns);
    // Somebody sends a copy of it, first, from an address that is free, or claims to have that address.
    let refusal = daemon.reply(&packet, addr(8));
    assert_eq!(daemon.rejected, [Rejection::UnknownIndex]);
    assert_eq!((refusal[0], refusal[2], refusal.len()), (0xc5, Code::UnknownIndex as u8, HEAD_BYTES));
    assert!(daemon.seal(addr(8), b"to nobody").is_none(), "no packets go there");
    assert_eq!(daemon.take(&packet, packet.len(), client.addr).1, b"a packet", "it stays fresh");
    // The client itself is there: it hears so, and makes other keys.
    daemon.now_ns += 2 * SECOND_NS;
    client.hear(&refusal, daemon.now_ns);
    assert!(client.initiator.should_begin(daemon.now_ns));
    client.addr = addr(8);
    client.connect(&mut daemon, 101);
    assert_eq!(daemon.responder.client_at(addr(8)), Some(private(CLIENTS[0]).public()));
    // Keys that no packet was opened with are bound to their address too.
    let mut other = Client::new(CLIENTS[1], 9);
    other.begin(daemon.now_ns, 50);
    let initial = other.initial(&mut daemon);
    let response = daemon.reply(&initial, other.addr);
    other.hear(&response, daemon.now_ns);
    let first = other.seal(b"hello", daemon.now_ns);
    assert_eq!(daemon.take(&first, first.len(), addr(10)).0.len, 0);
    assert_eq!((daemon.responder.client_at(addr(9)), daemon.responder.client_at(addr(10))), (None, None));
    assert!(daemon.take(&first, first.len(), addr(9)).0.is_confirmed);
}

#[test]
fn a_client_that_has_shown_to_be_at_an_address_takes_the_place_of_the_one_that_was_there() {
    let (mut client, mut daemon) = connected();
    daemon.taken.push(client.addr);
    let mut other = Client::new(CLIENTS[1], 7);
    other.begin(daemon.now_ns, 60);
    let initial = other.initial(&mut daemon);
    let response = daemon.reply(&initial, other.addr);
    other.hear(&response, daemon.now_ns);
    assert_eq!(daemon.responder.client_at(client.addr), Some(private(CLIENTS[0]).public()), "until it has its keys");
    let hello = other.seal(b"hello", daemon.now_ns);
    let (opened, _) = daemon.take(&hello, hello.len(), other.addr);
    assert!(opened.is_confirmed && opened.client == Some(private(CLIENTS[1]).public()));
    assert_eq!(daemon.responder.clients(), 1);
    let packet = client.seal(b"late", daemon.now_ns);
    assert_eq!(daemon.take(&packet, packet.len(), client.addr).0.len, 0);
    assert_eq!(daemon.rejected, [Rejection::UnknownIndex]);
}

#[test]
fn a_client_of_a_daemon_that_was_restarted_makes_new_keys() {
    let (mut client, _) = connected();
    let mut daemon = Daemon::new();
    daemon.now_ns += 2 * SECOND_NS;
    let packet = client.seal(b"lost", daemon.now_ns);
    let refusal = daemon.reply(&packet, client.addr);
    let mut of_another = refusal.clone();
    of_another[4] ^= 1;
    client.hear(&of_another, daemon.now_ns);
    assert!(!client.initiator.should_begin(daemon.now_ns), "it is about other keys");
    client.hear(&refusal, daemon.now_ns);
    assert!(client.initiator.should_begin(daemon.now_ns) && client.initiator.has_keys());
    client.connect(&mut daemon, 9);
    assert!(!client.initiator.should_begin(daemon.now_ns));
    // Forged refusals do not keep it busy.
    let packet = client.seal(b"x", daemon.now_ns);
    let forged = [&[0xc5, 0, Code::UnknownIndex as u8, 0][..], &packet[4..8], &[0; 8]].concat();
    client.hear(&forged, daemon.now_ns);
    client.begin(daemon.now_ns, 10);
    assert_eq!(client.initiator.poll(daemon.now_ns), None, "the last handshake was a moment ago");
    client.begin(daemon.now_ns + SECOND_NS, 10);
    assert!(client.initiator.poll(daemon.now_ns + SECOND_NS).is_some());
}

#[test]
fn a_client_that_hears_nothing_makes_new_keys() {
    let (mut client, daemon) = connected();
    client.seal(b"is anybody there", daemon.now_ns + SECOND_NS);
    assert!(!client.initiator.should_begin(daemon.now_ns + 2 * SECOND_NS));
    assert!(client.initiator.should_begin(daemon.now_ns + 4 * SECOND_NS));
}

#[test]
fn clients_are_bounded_in_all_and_for_each_key() {
    let mut daemon = Daemon::new();
    let begin = |daemon: &mut Daemon, first: u8, port: u16| {
        let mut client = Client::new(first, port);
        client.begin(daemon.now_ns, port as u8);
        let initial = client.initial(daemon);
        let reply = daemon.reply(&initial, client.addr);
        (client, reply)
    };
    for port in 1..=6 {
        Client::new(CLIENTS[0], port).connect(&mut daemon, port as u8);
    }
    daemon.taken.extend((1..=6).map(addr));
    let (mut client, refusal) = begin(&mut daemon, CLIENTS[0], 7);
    client.hear(&refusal, daemon.now_ns);
    assert_eq!((daemon.rejected.as_slice(), client.initiator.refused()), (&[Rejection::Limit][..], Some(Code::Limit)));
    // Of those that never used their keys, the oldest gives way.
    let kept: Vec<(Client, Vec<u8>)> = (11..=13)
        .map(|port| {
            daemon.now_ns += 1;
            begin(&mut daemon, CLIENTS[1], port)
        })
        .collect();
    assert_eq!(daemon.responder.clients(), 8);
    for (at, (mut client, response)) in kept.into_iter().enumerate() {
        assert!(client.hear(&response, daemon.now_ns).0.has_keys);
        let packet = client.seal(b"x", daemon.now_ns);
        assert_eq!(daemon.take(&packet, packet.len(), client.addr).0.len, usize::from(at > 0), "client {at}");
    }
    // Whoever has no session any more is forgotten in time.
    daemon.taken.truncate(2);
    daemon.now_ns += 21 * SECOND_NS;
    begin(&mut daemon, CLIENTS[1], 14);
    assert_eq!(daemon.responder.clients(), 3);
    assert!(daemon.responder.client_at(addr(2)).is_some() && daemon.responder.client_at(addr(3)).is_none());
}

#[test]
fn a_flood_of_first_packets_takes_bounded_time() {
    let mut daemon = Daemon::new();
    let (mut client, mut stranger) = (Client::new(CLIENTS[0], 7), Client::new(77, 8));
    client.begin(daemon.now_ns, 1);
    stranger.begin(daemon.now_ns, 2);
    let (first, initial) = (client.initiator.poll(daemon.now_ns).unwrap().to_vec(), stranger.initial(&mut daemon));
    let answered = (0..1000).filter(|_| !daemon.reply(&first, client.addr).is_empty()).count();
    assert!((200..=256).contains(&answered), "{answered} cookies at once");
    let tried = (0..1000).filter(|_| {
        daemon.reply(&initial, stranger.addr);
        daemon.rejected == [Rejection::UnknownKey]
    });
    assert_eq!(tried.count(), 32, "handshakes of one source at once");
    // Neither these nor a flood of packets that are refused take anything from others.
    while daemon.responder.refuse_unprotected(40, daemon.now_ns).is_some() {}
    let mut other = Client::new(CLIENTS[1], 9);
    other.addr.set_ip([198, 51, 100, 7].into());
    daemon.now_ns += SECOND_NS / 1000;
    other.connect(&mut daemon, 3);

    daemon.now_ns += SECOND_NS / 10;
    let tried = (0..1000).filter(|_| {
        daemon.reply(&initial, stranger.addr);
        daemon.rejected == [Rejection::UnknownKey]
    });
    assert_eq!(tried.count(), 10, "handshakes of one source in 100 ms");
}

#[test]
fn a_key_that_is_not_authorised_any_more_loses_its_keys() {
    let (mut client, mut daemon) = connected();
    let mut other = Client::new(CLIENTS[1], 9);
    other.connect(&mut daemon, 4);
    let rest = Authorized { key: private(CLIENTS[1]).public(), name: "".into() };
    assert_eq!(daemon.responder.authorize(Arc::new([rest].into_iter().collect())), [client.addr]);
    let (gone, stays) = (client.seal(b"x", daemon.now_ns), other.seal(b"y", daemon.now_ns));
    assert_eq!(daemon.take(&gone, gone.len(), client.addr).0.len, 0);
    assert_eq!(daemon.take(&stays, stays.len(), other.addr).0.len, 1);
}

proptest! {
    #[test]
    fn any_bytes_are_taken_without_panic_and_answered_with_no_more(
        mut frame in proptest::collection::vec(any::<u8>(), 0..400),
        first in 0xbfu8..0xc7,
        stride in 0usize..200,
    ) {
        if let Some(byte) = frame.first_mut() {
            *byte = first;
        }
        let (mut client, mut daemon) = connected();
        let (opened, _) = daemon.take(&frame, stride, addr(9));
        prop_assert_eq!((opened.len, opened.client), (0, None));
        let mut own = frame.clone();
        let heard = client.initiator.open_frame(&mut own, stride, daemon.now_ns);
        prop_assert!(heard.len == 0 && !heard.has_keys);
    }

    #[test]
    fn a_mutated_packet_never_opens(at in 0usize..64, bit in 0u8..8, stride in 33usize..200) {
        let (mut client, mut daemon) = connected();
        let mut packet = client.seal(&[5; 32], daemon.now_ns);
        let at = at % packet.len();
        packet[at] ^= 1 << bit;
        let (opened, found) = daemon.take(&packet, stride, client.addr);
        prop_assert_eq!((opened.len, found.len()), (0, 0));
    }

    #[test]
    fn each_packet_opens_once_under_loss_reordering_and_doubling(
        order in proptest::collection::vec(0usize..60, 1..200),
        packets in 3u64..20,
    ) {
        let limits = KeyLimits { packets, ..KeyLimits::default() };
        let (mut client, mut daemon) = (Client::new(CLIENTS[0], 7), Daemon::new());
        client.initiator = client.initiator.with_limits(limits);
        client.connect(&mut daemon, 1);
        let sent: Vec<Vec<u8>> = (0..60u8).map(|at| client.seal(&[at], daemon.now_ns)).collect();
        let mut seen = std::collections::BTreeSet::new();
        for at in order {
            let (opened, found) = daemon.take(&sent[at], sent[at].len(), client.addr);
            prop_assert!(opened.len == 0 || found == [at as u8] && seen.insert(at));
            prop_assert!(opened.len == 1 || seen.contains(&at) || daemon.rejected == [Rejection::Unauthentic]);
        }
    }
}
