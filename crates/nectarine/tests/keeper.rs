//! The cost of the keeper to a process: one thread while there are links, and nothing without them. The only test of
//! its process, since it counts threads and descriptors.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crossdock_nectarine::{Node, Transport};
use crossdock_transport::handshake::{Close, Hello, Welcome};
use crossdock_transport::{HEADER_BYTES, Header, PacketKind};
use std::fs;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
/// The part of the thread's name that the kernel keeps.
const NAME: &str = "nectarine-keepe";

/// A daemon that welcomes everybody, and ends the session at the first request; its address.
fn daemon() -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut packet = [0; 4096];
        loop {
            let (len, from) = socket.recv_from(&mut packet).unwrap();
            let header = Header::read(&packet[..len]).unwrap();
            let answer = match header.kind {
                PacketKind::Hello => {
                    let Hello { nonce, session, packet_bytes, .. } = Hello::decode(&packet[HEADER_BYTES..len]).unwrap();
                    // The same number for both sides.
                    Welcome { nonce, session, packet_bytes, window_bytes: 1 << 19 }.packet(session)
                }
                PacketKind::Control => Close { again: false, reason: "done".to_owned() }.packet(header.session),
                _ => continue,
            };
            // It may be gone.
            let _ = socket.send_to(&answer, from);
        }
    });
    addr
}

fn connect(addr: &str) -> Node {
    Node::builder(addr).transport(Transport::Udp).connect().unwrap()
}

/// The numbers of the keeper's threads.
fn keepers() -> Vec<String> {
    let is_keeper = |task: &fs::DirEntry| {
        // A thread that has ended meanwhile has no name.
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim_end() == NAME)
    };
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(Result::unwrap).filter(is_keeper);
    tasks.map(|task| task.file_name().into_string().unwrap()).collect()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}: not within 20 s; {} descriptors", descriptors());
        std::thread::yield_now();
    }
}

#[test]
fn all_links_of_a_process_have_one_keeper_and_none_is_left_without_links() {
    let addr = daemon();
    let before = descriptors();
    assert!(keepers().is_empty());
    for _ in 0..2 {
        let first = connect(&addr);
        eventually("a keeper", || keepers().len() == 1);
        let keeper = keepers();
        // Those that come and those that go leave the one that serves the first.
        for count in [1, 30, 3] {
            let more: Vec<Node> = (0..count).map(|_| connect(&addr)).collect();
            assert_eq!(keepers(), keeper);
            drop(more);
            assert_eq!(keepers(), keeper);
        }
        drop(first);
        eventually("no keeper, and its descriptors closed", || keepers().is_empty() && descriptors() == before);
    }
}
