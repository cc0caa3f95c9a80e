//! Round trips to a daemon over packets, in a session that does nothing else.

use crate::carrier::Carrier;
use crate::carrier::udp::Udp;
use crate::error::Error;
use crate::incoming::Heard;
use crate::route::NodeRoute;
use crate::settings::{DaemonAddress, Keys, Settings, Transport};
use crate::trace::Trace;
use crossdock_device::{Idler, Poller};
use crossdock_transport::secure::{PrivateKey, PublicKey};
use std::time::{Duration, Instant};

/// The socket's key in the poller.
const SOCKET: u64 = 0;
/// How long one wait lasts at most: a session has timers of its own.
const LOOK: Duration = Duration::from_millis(50);

/// How long after a ping an answer that is late may come.
const LATE: Duration = Duration::from_millis(500);

/// Measures round trips to a daemon over packets. Its session publishes and subscribes to nothing.
///
/// # Examples
/// ```no_run
/// use crossdock_nectarine::Pinger;
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut pinger = Pinger::connect("127.0.0.1:7440", None, Duration::from_secs(3))?;
/// match pinger.ping(Duration::from_secs(1))? {
///     Some(time) => println!("{time:?}"),
///     None => println!("lost"),
/// }
/// # Ok(())
/// # }
/// ```
pub struct Pinger {
    addr: String,
    started: Instant,
    udp: Udp,
    idler: Idler,
    heard: Vec<Heard>,
    is_up: bool,
    /// Until when the answer to the last ping, which did not come in time, may still come, and the acks before it.
    late: Option<(Instant, u64)>,
    poller: Poller,
}

impl Pinger {
    /// Begins a session with the daemon at an address, `host:port`: a secure one if this client's key and the daemon's are given.
    ///
    /// # Errors
    /// It is no address; no daemon answers there within `timeout`, or it refuses; the system refuses the socket or memory.
    pub fn connect(
        addr: impl Into<String>,
        keys: Option<(PrivateKey, PublicKey)>,
        timeout: Duration,
    ) -> Result<Pinger, Error> {
        Pinger::connect_traced(addr, keys, timeout, None)
    }

    /// The same, with a trace that gets the session's events, if there is one.
    ///
    /// # Errors
    /// Those of [`Pinger::connect`].
    pub fn connect_traced(
        addr: impl Into<String>,
        keys: Option<(PrivateKey, PublicKey)>,
        timeout: Duration,
        trace: Option<&Trace>,
    ) -> Result<Pinger, Error> {
        Pinger::connect_over(addr, (keys, None), timeout, trace)
    }

    /// The same, over a source route, if there is one: then the keys are those with the daemon of its first node.
    ///
    /// # Errors
    /// Those of [`Pinger::connect`], and a node of the route refuses.
    pub fn connect_over(
        addr: impl Into<String>,
        (keys, route): (Option<(PrivateKey, PublicKey)>, Option<NodeRoute>),
        timeout: Duration,
        trace: Option<&Trace>,
    ) -> Result<Pinger, Error> {
        let (addr, started) = (addr.into(), Instant::now());
        let keys = keys.map(|(private, daemon)| Keys { private, daemon });
        let trace = trace.cloned();
        let settings = Settings { transport: Transport::Udp, keys, route, trace, ..Settings::new(addr.clone()) };
        let Some(peer) = DaemonAddress::of(&settings)?.packets else {
            return Err(Error::Address { addr, reason: "a daemon's address for packets is host:port".to_owned() });
        };
        let udp = Udp::of_settings(peer, &settings, 0)?;
        let mut poller = Poller::new().map_err(Error::system("cannot wait for packets"))?;
        if let Some(descriptor) = udp.descriptor() {
            poller.add(descriptor, SOCKET).map_err(Error::system("cannot wait for packets"))?;
        }
        let mut pinger =
            Pinger { addr, started, udp, idler: Idler::new(0), heard: Vec::new(), is_up: false, late: None, poller };
        match pinger.go_on(started + timeout, |pinger| pinger.is_up)? {
            true => Ok(pinger),
            false => {
                let reason = pinger.udp.refusal().map_or_else(|| "no answer".to_owned(), |(reason, _)| reason);
                Err(Error::NoDaemon { addr: pinger.addr.clone(), reason })
            }
        }
    }

    /// Sends a packet that asks for an answer, and waits for that: how long it took, or nothing if none came within `timeout`.
    ///
    /// # Errors
    /// The session is over.
    pub fn ping(&mut self, timeout: Duration) -> Result<Option<Duration>, Error> {
        // An answer that comes late is none to the next one: answers do not say what they answer.
        match self.late.take() {
            Some((until, acks)) => self.go_on(until, |pinger| pinger.udp.acks() > acks)?,
            None => self.go_on(Instant::now(), |_| false)?,
        };
        let (acks, sent) = (self.udp.acks(), Instant::now());
        self.udp.ping().map_err(Error::system("cannot send a packet"))?;
        let is_answered = self.go_on(sent + timeout, |pinger| pinger.udp.acks() > acks)?;
        if !is_answered {
            self.late = Some((sent + timeout.max(LATE), acks));
        }
        Ok(is_answered.then(|| sent.elapsed()))
    }

    /// Keeps the session for so long.
    ///
    /// # Errors
    /// The session is over.
    pub fn pause(&mut self, time: Duration) -> Result<(), Error> {
        self.go_on(Instant::now() + time, |_| false).map(drop)
    }

    /// Drives the session until something is so, or until that time; whether it is so. Looks once at least.
    fn go_on(&mut self, until: Instant, is_so: impl Fn(&Pinger) -> bool) -> Result<bool, Error> {
        loop {
            let now_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let mut heard = std::mem::take(&mut self.heard);
            self.udp.receive(now_ns, &mut self.idler, &mut heard);
            self.udp.consumed_to(u64::MAX);
            self.udp.control_consumed();
            self.udp.on_timer(now_ns, &mut heard);
            self.udp.transmit(now_ns, &mut heard);
            let taken = heard.drain(..).try_for_each(|heard| self.take(heard));
            self.heard = heard;
            taken?;
            let left = until.saturating_duration_since(Instant::now());
            if is_so(self) {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
            let due = Duration::from_nanos(self.udp.due_ns().saturating_sub(now_ns));
            self.poller.wait(Some(left.min(due).min(LOOK))).map_err(Error::system("cannot wait for packets"))?;
        }
    }

    fn take(&mut self, heard: Heard) -> Result<(), Error> {
        let addr = self.addr.clone();
        match heard {
            Heard::Welcome => self.is_up = true,
            // A notice of the daemon's; it is nothing to this session.
            Heard::Packets(_) => {}
            Heard::Close(close) => return Err(Error::Closed(close.reason)),
            Heard::Refused => return Err(Error::NoDaemon { addr, reason: "connection refused".to_owned() }),
            Heard::Silent { ns } => {
                return Err(Error::Lost { addr, reason: format!("no packet arrived for {} s", ns / 1_000_000_000) });
            }
        }
        Ok(())
    }
}

impl Drop for Pinger {
    fn drop(&mut self) {
        self.udp.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_transport::handshake::{Hello, Welcome};
    use crossdock_transport::receiver::{Ack, MAX_ACK_BYTES};
    use crossdock_transport::{HEADER_BYTES, Header, PacketKind};
    use std::net::UdpSocket;

    #[test]
    fn a_ping_is_answered_or_lost() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let addr = socket.local_addr().unwrap().to_string();
        let daemon = std::thread::spawn(move || {
            let (mut packet, mut client, mut pings) = ([0; 4096], 0, 0);
            loop {
                let (len, from) = socket.recv_from(&mut packet).unwrap();
                let header = Header::read(&packet[..len]).unwrap();
                match header.kind {
                    PacketKind::Hello => {
                        let hello = Hello::decode(&packet[HEADER_BYTES..len]).unwrap();
                        let Hello { nonce, session, packet_bytes, window_bytes, .. } = hello;
                        client = session;
                        let welcome = Welcome { nonce, session: 5, packet_bytes, window_bytes };
                        socket.send_to(&welcome.packet(client), from).unwrap();
                    }
                    PacketKind::Ping => {
                        pings += 1;
                        // The second one is lost.
                        if pings != 2 {
                            let mut ack = [0; MAX_ACK_BYTES];
                            let len = Ack::new(0, 1000).encode(&mut ack);
                            let header = Header::new(PacketKind::Ack, client);
                            socket.send_to(&header.packet(&ack[..len]).unwrap(), from).unwrap();
                        }
                    }
                    PacketKind::Close => return pings,
                    other => panic!("{other:?}"),
                }
            }
        });
        let mut pinger = Pinger::connect(addr, None, Duration::from_secs(20)).unwrap();
        assert!(pinger.ping(Duration::from_secs(20)).unwrap().is_some());
        assert_eq!(pinger.ping(Duration::from_millis(20)).unwrap(), None);
        assert!(pinger.ping(Duration::from_secs(20)).unwrap().is_some());
        drop(pinger);
        // And perhaps one with which the session kept itself alive meanwhile.
        assert!(daemon.join().unwrap() >= 3);
    }

    #[test]
    fn where_no_daemon_is_that_is_said() {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        assert!(matches!(Pinger::connect(free, None, Duration::from_secs(20)), Err(Error::NoDaemon { .. })));
        assert!(matches!(Pinger::connect("unix:@here", None, Duration::ZERO), Err(Error::Address { .. })));
    }
}
