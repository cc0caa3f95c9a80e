//! The processes of the transport benchmark, two of each case: one answers, the other pings or sends. Each prints a line of JSON.

use super::attack;
use super::crossdock::{Called, Records};
use super::sends::{RTT_BYTES, Sends, number};
use super::sockets::{Tcp, Udp};
use crate::cpu::Error;
use crate::process::{end_with_parent, say};
use crate::report::quantile;
use clap::{Subcommand, ValueEnum};
use crossdock_device::pin_to_cpu;
use crossdock_nectarine::{DeliveryClass, PublicKey};
use serde_json::json;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Round trips before those that are timed.
const WARM_UP: u64 = 2000;

/// The carrier of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Carrier {
    /// Datagrams of a plain socket
    UdpSocket,
    /// A stream of a plain socket, one write a message
    TcpSocket,
    /// Datagrams of a session
    Datagram,
    /// Reliable records of a session
    Reliable,
    /// Calls of a session
    RequestResponse,
    /// Datagrams of a secure session
    SecureDatagram,
    /// Reliable records of a secure session
    SecureReliable,
}

/// The task of a process of the benchmark.
#[derive(Subcommand)]
pub(crate) enum Role {
    /// Sends every message back, or counts those of one way, until the other side ends
    Answer { carrier: Carrier, cpu: usize },
    /// Sends one message at a time and waits for its echo
    Ping { carrier: Carrier, addr: SocketAddr, count: u64, cpu: usize },
    /// Sends messages of that length for a while, and waits until all have arrived
    Send { carrier: Carrier, addr: SocketAddr, bytes: usize, milliseconds: u64, cpu: usize },
    /// Sends a daemon of that public key what strangers may send
    Flood { addr: SocketAddr, key: PublicKey },
}

impl Role {
    pub(crate) fn run(self) -> Result<(), Error> {
        end_with_parent()?;
        match self {
            Role::Answer { carrier, cpu } => {
                pin_to_cpu(cpu)?;
                match carrier {
                    Carrier::UdpSocket => Udp::answer(),
                    Carrier::TcpSocket => Tcp::answer(),
                    Carrier::Datagram | Carrier::Reliable | Carrier::RequestResponse => Records::answer(false),
                    Carrier::SecureDatagram | Carrier::SecureReliable => Records::answer(true),
                }
            }
            Role::Ping { carrier, addr, count, cpu } => {
                pin_to_cpu(cpu)?;
                ping(&mut *connect(carrier, addr, true)?, count)
            }
            Role::Send { carrier, addr, bytes, milliseconds, cpu } => {
                pin_to_cpu(cpu)?;
                send(connect(carrier, addr, false)?, bytes, Duration::from_millis(milliseconds))
            }
            Role::Flood { addr, key } => attack::flood(addr, key),
        }
    }
}

fn connect(carrier: Carrier, addr: SocketAddr, is_echoed: bool) -> Result<Box<dyn Sends>, Error> {
    Ok(match carrier {
        Carrier::UdpSocket => Box::new(Udp::connect(addr)?),
        Carrier::TcpSocket => Box::new(Tcp::connect(addr, is_echoed)?),
        Carrier::Datagram => Box::new(Records::connect(addr, is_echoed, DeliveryClass::Datagram)?),
        Carrier::Reliable => Box::new(Records::connect(addr, is_echoed, DeliveryClass::Reliable)?),
        Carrier::SecureDatagram => Box::new(Records::connect_secure(addr, is_echoed, DeliveryClass::Datagram)?),
        Carrier::SecureReliable => Box::new(Records::connect_secure(addr, is_echoed, DeliveryClass::Reliable)?),
        Carrier::RequestResponse => Box::new(Called(Records::connect(addr, is_echoed, DeliveryClass::Reliable)?)),
    })
}

fn ping(to: &mut dyn Sends, count: u64) -> Result<(), Error> {
    let mut message = [0; RTT_BYTES];
    let mut round_trips_ns = Vec::with_capacity(count as usize);
    for sent in 0..WARM_UP + count {
        number(&mut message, sent);
        let start = Instant::now();
        to.round_trip(&mut message)?;
        let ns = start.elapsed().as_nanos() as u64;
        if message[8..16] != sent.to_le_bytes() {
            return Err(format!("message {sent} came back as another").into());
        }
        if sent >= WARM_UP {
            round_trips_ns.push(ns);
        }
    }
    let us = |ns: u64| ns as f64 / 1e3;
    let (p50, p99) = (us(quantile(&mut round_trips_ns, 0.5)), us(quantile(&mut round_trips_ns, 0.99)));
    say(&json!({"rtt_us_p50": p50, "rtt_us_p99": p99}));
    Ok(())
}

fn send(mut to: Box<dyn Sends>, bytes: usize, time: Duration) -> Result<(), Error> {
    /// Bytes between two looks at the clock.
    const BURST_BYTES: usize = 1 << 20;
    let (mut sent, start) = (0, Instant::now());
    while start.elapsed() < time {
        for _ in 0..(BURST_BYTES / bytes).max(1) {
            to.send(bytes, sent)?;
            sent += 1;
        }
    }
    let arrived = to.arrived()?;
    let elapsed = start.elapsed().as_secs_f64();
    if arrived != sent * bytes as u64 {
        return Err(format!("{} bytes were sent and {arrived} arrived", sent * bytes as u64).into());
    }
    say(&json!({"mbit_per_s": arrived as f64 * 8.0 / 1e6 / elapsed}));
    Ok(())
}
