//! The baseline: a relay that takes one message a datagram and sends it on, with plain `recv` and `send`. A window between
//! subscriber and publisher keeps it from losing anything.

use super::{Table, note, number, strings};
use crate::cpu::{self, Error};
use crate::flights::RECORD_BYTES;
use crate::process::{Process, say, wait_for_go};
use crate::report::quantile;
use clap::Subcommand;
use serde_json::json;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Messages a throughput run: about as long as one through the daemon.
const COUNT: u64 = 400_000;
/// Messages in flight at most: a third of what the sockets' default buffers hold (the kernel charges up to 1.3 KB for each,
/// and gives the room back in quarters).
const WINDOW: u64 = 64;
/// The subscriber acknowledges every n messages, straight to the publisher.
const ACK_EVERY: u64 = 16;
/// Nothing for so long means that a message was lost, which would spoil the run.
const PATIENCE: Duration = Duration::from_secs(5);
/// Round trips measured.
const ROUND_TRIPS: u64 = 20_000;

/// The task of a process of the baseline.
#[derive(Subcommand)]
pub(crate) enum Role {
    /// Sends what comes from `left` to `right` and the other way
    Forward { left: SocketAddr, right: SocketAddr },
    /// Sends messages through the relay, as the window allows
    Publish { relay: SocketAddr, bind: SocketAddr, count: u64 },
    /// Receives them
    Subscribe { bind: SocketAddr, publisher: SocketAddr, count: u64 },
    /// Sends one message at a time and waits for its echo
    Ping { relay: SocketAddr, bind: SocketAddr, count: u64 },
    /// Sends every message back
    Echo { relay: SocketAddr, bind: SocketAddr },
}

impl Role {
    pub(crate) fn run(self) -> Result<(), Error> {
        match self {
            Role::Forward { left, right } => forward(left, right),
            Role::Publish { relay, bind, count } => publish(relay, bind, count),
            Role::Subscribe { bind, publisher, count } => subscribe(bind, publisher, count),
            Role::Ping { relay, bind, count } => ping(relay, bind, count),
            Role::Echo { relay, bind } => echo(relay, bind),
        }
    }
}

fn forward(left: SocketAddr, right: SocketAddr) -> Result<(), Error> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    say(&json!({"listen": socket.local_addr()?.to_string()}));
    let mut message = [0; 2048];
    loop {
        let (len, from) = socket.recv_from(&mut message)?;
        socket.send_to(&message[..len], if from == left { right } else { left })?;
    }
}

fn publish(relay: SocketAddr, bind: SocketAddr, count: u64) -> Result<(), Error> {
    let socket = UdpSocket::bind(bind)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    say(&json!({"ready": true}));
    wait_for_go()?;
    let message = [b'x'; RECORD_BYTES];
    let mut ack = [0; 8];
    let mut acked = 0;
    for sent in 0..count {
        while sent - acked >= WINDOW {
            socket.recv_from(&mut ack)?;
            acked = u64::from_le_bytes(ack);
        }
        socket.send_to(&message, relay)?;
    }
    Ok(())
}

fn subscribe(bind: SocketAddr, publisher: SocketAddr, count: u64) -> Result<(), Error> {
    let socket = UdpSocket::bind(bind)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    say(&json!({"ready": true}));
    let mut message = [0; 2048];
    for received in 1..=count {
        socket.recv_from(&mut message)?;
        if received % ACK_EVERY == 0 {
            socket.send_to(&received.to_le_bytes(), publisher)?;
        }
    }
    say(&json!({"records": count}));
    Ok(())
}

fn ping(relay: SocketAddr, bind: SocketAddr, count: u64) -> Result<(), Error> {
    let socket = UdpSocket::bind(bind)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.connect(relay)?;
    let mut message = [0; RECORD_BYTES];
    let mut round_trips_ns = Vec::with_capacity(count as usize);
    for number in 0..count {
        message[..8].copy_from_slice(&number.to_le_bytes());
        let start = Instant::now();
        socket.send(&message)?;
        socket.recv(&mut message)?;
        round_trips_ns.push(start.elapsed().as_nanos() as u64);
    }
    let (p50, p99) = (quantile(&mut round_trips_ns, 0.5), quantile(&mut round_trips_ns, 0.99));
    say(&json!({"rtt_ns_p50": p50, "rtt_ns_p99": p99}));
    Ok(())
}

fn echo(relay: SocketAddr, bind: SocketAddr) -> Result<(), Error> {
    let socket = UdpSocket::bind(bind)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.connect(relay)?;
    say(&json!({"ready": true}));
    let mut message = [0; 2048];
    loop {
        let len = socket.recv(&mut message)?;
        socket.send(&message[..len])?;
    }
}

/// Two addresses that are free now, for the relay's two ends.
fn two_addresses() -> Result<(String, String), Error> {
    let (left, right) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    Ok((left.local_addr()?.to_string(), right.local_addr()?.to_string()))
}

/// The relay between two addresses.
fn start(left: &str, right: &str) -> Result<(Process, String), Error> {
    let mut relay = Process::role(&strings(["relay", "forward", left, right]))?;
    let report = relay.next_report()?;
    let addr = report["listen"].as_str().ok_or("the relay did not say where it listens")?.to_owned();
    Ok((relay, addr))
}

/// A throughput run of the baseline.
pub(super) fn throughput(table: &mut Table) -> Result<(), Error> {
    let (left, right) = two_addresses()?;
    let (relay, addr) = start(&left, &right)?;
    let count = COUNT.to_string();
    let mut subscriber = Process::role(&strings(["relay", "subscribe", &right, &left, &count]))?;
    subscriber.next_report()?;
    let mut publisher = Process::role(&strings(["relay", "publish", &addr, &left, &count]))?;
    publisher.next_report()?;
    let (relay_ns, machine_ns, start) = (cpu::process_ns(relay.pid())?, cpu::machine_ns()?, Instant::now());
    publisher.go()?;
    subscriber.next_report()?;
    let elapsed = start.elapsed().as_secs_f64();
    let relay_s = (cpu::process_ns(relay.pid())? - relay_ns) as f64 / 1e9;
    let machine_s = (cpu::machine_ns()? - machine_ns) as f64 / 1e9;
    note(table, "udp_relay", "msgs_per_daemon_cpu_s", COUNT as f64 / relay_s);
    note(table, "udp_relay", "msgs_per_machine_cpu_s", COUNT as f64 / machine_s);
    note(table, "udp_relay", "msgs_per_s", COUNT as f64 / elapsed);
    subscriber.end()?;
    publisher.end()
}

/// Round trips through the baseline.
pub(super) fn round_trips(table: &mut Table) -> Result<(), Error> {
    let (left, right) = two_addresses()?;
    let (_relay, addr) = start(&left, &right)?;
    let mut echo = Process::role(&strings(["relay", "echo", &addr, &right]))?;
    echo.next_report()?;
    let mut ping = Process::role(&strings(["relay", "ping", &addr, &left, &ROUND_TRIPS.to_string()]))?;
    let done = ping.next_report()?;
    note(table, "udp_relay_rtt", "rtt_us_p50", number(&done, "rtt_ns_p50")? as f64 / 1e3);
    note(table, "udp_relay_rtt", "rtt_us_p99", number(&done, "rtt_ns_p99")? as f64 / 1e3);
    ping.end()
}
