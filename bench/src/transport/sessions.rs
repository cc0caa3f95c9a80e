//! The cost of a packet for a daemon that has few sessions or many: the same packets in the same order, over more or fewer of them.

use crate::cpu::Error;
use crate::daemon::Daemon;
use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder};
use crossdock_transport::handshake::{Hello, Welcome};
use crossdock_transport::{
    ControlMessage, Follows, HEADER_BYTES, Header, Limits, Origin, PacketKind, Request, Session,
};
use crossdock_transport::{TrafficClass, receiver::Arriving};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

/// Sessions that send at a time.
const BURST: usize = 10;
/// Bursts that are measured.
const BURSTS: usize = 10_000;
/// Nothing for so long means that a packet was lost, which would spoil the run.
const PATIENCE: Duration = Duration::from_secs(5);

/// The daemon's processor time for each packet that it takes or sends, with `sessions` sessions, in ns.
pub(super) fn ns_per_packet(sessions: usize) -> Result<f64, Error> {
    allow_sockets()?;
    let most = sessions + 1;
    // A thread that spins while there is nothing to do would be measured with few sessions, which leave it more time.
    let config = format!("[context]\nspin_us = 0\nmax_sessions = {most}\nmax_sessions_per_peer = {most}\n");
    let daemon = Daemon::start(&config)?;
    let format = Format::natural([FieldSpec::new("number", FieldType::U64)])?;
    let mut record = RecordBuilder::new(&format);
    record.set_u64(0, 7)?;
    let record = record.finish()?.to_vec();
    let mut clients = (0..sessions).map(|_| Client::connect(&daemon.addr, &format)).collect::<Result<Vec<_>, _>>()?;
    let mut order = (0..sessions).cycle();
    let mut bursts = |count: usize| -> Result<(), Error> {
        for _ in 0..count {
            let burst: Vec<usize> = order.by_ref().take(BURST).collect();
            burst.iter().try_for_each(|&client| clients[client].send(&record, format.id().0))?;
            burst.iter().try_for_each(|&client| clients[client].await_ack())?;
        }
        Ok(())
    };
    bursts(sessions.div_ceil(BURST).max(BURSTS / 10))?;
    let before_packets = packets(&daemon)?;
    let before_ns = daemon.cpu_ns()?;
    bursts(BURSTS)?;
    let passed_ns = daemon.cpu_ns()? - before_ns;
    match packets(&daemon)? - before_packets {
        0 => Err("the daemon counts no packets".into()),
        passed => Ok(passed_ns as f64 / passed as f64),
    }
}

/// Packets that the daemon has taken and sent so far.
fn packets(daemon: &Daemon) -> Result<u64, Error> {
    let of = |context: &Value| Some(context["packets_in"].as_u64()? + context["packets_out"].as_u64()?);
    Ok(daemon.list("contexts")?.iter().filter_map(of).sum())
}

/// As many descriptors as this process may have.
fn allow_sockets() -> Result<(), Error> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

/// A publisher with a session of its own.
struct Client {
    socket: UdpSocket,
    session: Session<(Header, Vec<u8>), ()>,
}

impl Client {
    fn connect(addr: &str, format: &Format) -> Result<Client, Error> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(addr)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let (packet_bytes, window_bytes) = (8192, 1 << 20);
        let nonce = u64::from(socket.local_addr()?.port());
        let hello = Hello { nonce, session: 1, packet_bytes, window_bytes, uses_mailboxes: false };
        socket.send(&hello.packet())?;
        let mut packet = [0; 2048];
        let len = socket.recv(&mut packet)?;
        let welcome = Welcome::decode(packet.get(HEADER_BYTES..len).unwrap_or_default())?;
        let limits = Limits::new(window_bytes, u64::MAX);
        let session = Session::new(welcome.session, welcome.packet_bytes, welcome.window_bytes, limits, 0);
        let mut client = Client { socket, session };
        let (name, description) = ("A".to_owned(), format.describe());
        let announce =
            Request::Announce { id: 1, stream: 1, name, format: description, publication: None, key: Vec::new() };
        let announce = ControlMessage::Request(announce).encode();
        let header = Header::new(PacketKind::Control, 0);
        client.enqueue(header, announce, TrafficClass::Exchange(Follows::Nothing))?;
        client.ask()?;
        client.await_ack()?;
        // The answer is a packet of its own, and comes before any record is sent.
        while client.session.receiver.next_seq() == 0 {
            client.take()?;
        }
        Ok(client)
    }

    fn enqueue(&mut self, header: Header, payload: Vec<u8>, class: TrafficClass) -> Result<(), Error> {
        let bytes = (HEADER_BYTES + payload.len()) as u64;
        self.session.sender.enqueue((header, payload), 1, bytes, class, false);
        let session = self.session.peer_session();
        while let Some(next) = self.session.sender.poll() {
            let (header, payload) = next.payload;
            self.socket.send(&Header { session, seq: next.first_seq, ..*header }.packet(payload)?)?;
            self.session.sender.transmitted(0);
        }
        Ok(())
    }

    /// Has what was sent acknowledged at once.
    fn ask(&self) -> Result<(), Error> {
        self.socket.send(&Header::new(PacketKind::Ping, self.session.peer_session()).to_bytes())?;
        Ok(())
    }

    fn send(&mut self, record: &[u8], format: u64) -> Result<(), Error> {
        let header = Header { stream: 1, format, records: 1, ..Header::new(PacketKind::Data, 0) };
        self.enqueue(header, record.to_vec(), TrafficClass::Data(Origin::Stream(1)))?;
        self.ask()
    }

    /// Waits until all is acknowledged.
    fn await_ack(&mut self) -> Result<(), Error> {
        while !self.session.sender.is_idle() {
            self.take()?;
        }
        Ok(())
    }

    /// Takes the next packet.
    fn take(&mut self) -> Result<(), Error> {
        let mut packet = [0; 9000];
        let len = self.socket.recv(&mut packet)?;
        let (header, payload) = (Header::read(&packet[..len])?, &packet[HEADER_BYTES..len]);
        match header.kind {
            PacketKind::Ack => self.session.on_ack(payload, 0, drop)?,
            PacketKind::Data | PacketKind::Control | PacketKind::Message => {
                let (traffic, first_seq) = (header.kind.traffic(), header.seq);
                let run = Arriving { traffic, first_seq, packets: 1, longest_bytes: len, last_bytes: len };
                self.session.receiver.arrive(run, (), 0, |(), _| {});
                self.session.receiver.control_consumed();
            }
            PacketKind::Ping => self.session.receiver.ack_soon(),
            other => return Err(format!("the daemon sent a {other:?}").into()),
        }
        while let Some(short) = self.session.poll_short(0) {
            self.socket.send(short.bytes())?;
        }
        Ok(())
    }
}
