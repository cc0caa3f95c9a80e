//! Round trips of two secure sessions through a daemon, with a flood of strangers' packets beside them and without.

use crate::cpu::Error;
use crate::daemon::Daemon;
use crate::process::{Process, say};
use crate::report::quantile;
use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder};
use crossdock_nectarine::{Event, PrivateKey, PublicKey, Publisher, Subscriber, Transport};
use crossdock_transport::handshake::Hello;
use crossdock_transport::secure::Initiator;
use serde_json::json;
use std::fs::OpenOptions;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Round trips before those that are timed.
const WARM_UP: u64 = 2000;
/// Packets of the flood in a second, and the addresses that they come from.
const FLOOD_PER_S: u32 = 20_000;
const FLOOD_ADDRESSES: usize = 64;
/// How often the flood sends a part of them.
const FLOOD_EVERY: Duration = Duration::from_millis(1);
/// How long a message may take to come back.
const PATIENCE: Duration = Duration::from_secs(10);

/// A file that goes when this is dropped.
struct KeyFile(PathBuf);

impl KeyFile {
    fn new(key: &PrivateKey) -> Result<KeyFile, Error> {
        let path =
            std::env::temp_dir().join(format!("crossdock-bench-{}-{:x}.key", std::process::id(), fastrand::u64(..)));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(key.to_file().as_bytes())?;
        Ok(KeyFile(path))
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.0);
    }
}

/// A daemon's address and key, and the key of its clients.
#[derive(Clone)]
struct Reach {
    addr: String,
    own: PrivateKey,
    daemon: PublicKey,
}

impl Reach {
    fn publisher(&self, stream: &str) -> Result<Publisher, Error> {
        let builder = Publisher::builder(&*self.addr).transport(Transport::Udp).keys(self.own.clone(), self.daemon);
        Ok(builder.stream(stream).format(&format()?).connect()?)
    }

    fn subscriber(&self, stream: &str) -> Result<Subscriber, Error> {
        let builder = Subscriber::builder(&*self.addr).transport(Transport::Udp).keys(self.own.clone(), self.daemon);
        Ok(builder.sql(format!("SELECT * FROM {stream}")).wait_for_stream(PATIENCE).connect()?)
    }
}

fn format() -> Result<Format, Error> {
    Ok(Format::natural([FieldSpec::new("number", FieldType::U64)])?)
}

fn key() -> PrivateKey {
    PrivateKey::from_random(std::array::from_fn(|_| fastrand::u8(..)))
}

/// The 99th percentile of `count` round trips publisher → daemon → subscriber and back, in us.
pub(super) fn rtt_us_p99(count: u64, is_flooded: bool) -> Result<f64, Error> {
    let (of_daemon, own) = (key(), key());
    let (file, daemon) = (KeyFile::new(&of_daemon)?, of_daemon.public());
    let (path, authorized) = (file.0.display(), own.public());
    let config = format!("[security]\nkey = \"{path}\"\nauthorized = [\"{authorized} bench\"]\ntrusted = []\n");
    let started = Daemon::start(&config)?;
    let reach = Reach { addr: started.addr.clone(), own, daemon };
    let (addr, daemon) = (started.addr.clone(), daemon.to_string());
    let args = ["transport".to_owned(), "flood".to_owned(), addr, daemon];
    let mut flood = is_flooded.then(|| Process::role(&args)).transpose()?;
    if let Some(flood) = &mut flood {
        flood.next_report()?;
    }
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| echo(&reach).map_err(|error| error.to_string()));
        let p99 = ping(&reach, count);
        let echoed = echo.join().map_err(|_| "the other end panicked")?;
        echoed?;
        p99
    })
}

/// Sends every message back until the stream ends.
fn echo(reach: &Reach) -> Result<(), Error> {
    let mut publisher = reach.publisher("pong")?;
    let mut subscriber = reach.subscriber("ping")?;
    loop {
        match subscriber.next_event(Some(PATIENCE))? {
            Some(Event::Records(records)) => {
                publisher.publish_all(records.bytes())?;
                publisher.flush()?;
            }
            Some(Event::StreamEnded { publishers_left: 0, .. }) => return Ok(()),
            Some(_) => {}
            None => return Err("no message came".into()),
        }
    }
}

fn ping(reach: &Reach, count: u64) -> Result<f64, Error> {
    let mut publisher = reach.publisher("ping")?;
    let mut subscriber = reach.subscriber("pong")?;
    let mut row = RecordBuilder::new(publisher.format());
    let mut round_trips_ns = Vec::with_capacity(count as usize);
    for number in 0..WARM_UP + count {
        let start = Instant::now();
        loop {
            row.clear();
            row.set_u64(0, number)?;
            publisher.publish(row.finish()?)?;
            publisher.flush()?;
            // The other end may not have subscribed when the first message comes: then it is sent again.
            let wait = if number == 0 { Duration::from_millis(50) } else { PATIENCE };
            if comes_back(&mut subscriber, number, wait)? {
                break;
            }
        }
        if number >= WARM_UP {
            round_trips_ns.push(start.elapsed().as_nanos() as u64);
        }
    }
    publisher.finish()?;
    Ok(quantile(&mut round_trips_ns, 0.99) as f64 / 1e3)
}

/// Whether a message comes back in time; echoes of earlier ones are let pass.
fn comes_back(subscriber: &mut Subscriber, number: u64, wait: Duration) -> Result<bool, Error> {
    loop {
        match subscriber.next_event(Some(wait))? {
            Some(Event::Records(records)) => {
                if records.bytes().any(|record| record.get(8..16) == Some(&number.to_le_bytes())) {
                    return Ok(true);
                }
            }
            Some(_) => {}
            None if number == 0 => return Ok(false),
            None => return Err(format!("message {number} did not come back").into()),
        }
    }
}

/// Sends what strangers may send, until this process is ended: handshakes without a cookie and with a wrong one, hellos and noise in
/// no envelope, envelopes of keys that nobody has, and all of it once more.
pub(super) fn flood(addr: SocketAddr, daemon: PublicKey) -> Result<(), Error> {
    let sockets = (0..FLOOD_ADDRESSES).map(|_| {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(addr)?;
        Ok::<_, Error>(socket)
    });
    let sockets = sockets.collect::<Result<Vec<UdpSocket>, Error>>()?;
    let (start, mut sent, mut last) = (Instant::now(), 0, Vec::new());
    say(&json!({"flooding": FLOOD_PER_S}));
    loop {
        let due = start.elapsed().as_millis() * u128::from(FLOOD_PER_S) / 1000;
        while sent < due {
            if fastrand::u8(..4) > 0 {
                last = strange(daemon);
            }
            // The daemon's host may refuse one; the flood goes on.
            let _ = sockets[fastrand::usize(..sockets.len())].send(&last);
            sent += 1;
        }
        std::thread::sleep(FLOOD_EVERY);
    }
}

/// A packet that a daemon does not expect.
fn strange(daemon: PublicKey) -> Vec<u8> {
    let noise = |bytes: usize| (0..bytes).map(|_| fastrand::u8(..)).collect::<Vec<u8>>();
    match fastrand::u8(..8) {
        0 => {
            let (nonce, session) = (fastrand::u64(..), fastrand::u32(1..));
            Hello { nonce, session, packet_bytes: 1400, window_bytes: 1 << 20, uses_mailboxes: false }.packet()
        }
        1 => noise(fastrand::usize(1..1400)),
        2 => [&[0xc4, 0][..], &noise(fastrand::usize(40..1400))].concat(),
        kind => {
            let mut initiator = Initiator::new(key(), daemon, false);
            initiator.begin(0, std::array::from_fn(|_| fastrand::u8(..)));
            let mut packet = initiator.poll(0).unwrap_or_default().to_vec();
            if kind == 3 {
                // The cookie, behind a head of 16 bytes.
                packet.get_mut(16..32).into_iter().flatten().for_each(|byte| *byte = fastrand::u8(..));
            }
            packet
        }
    }
}
