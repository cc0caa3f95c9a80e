//! The baselines `udp_socket` and `tcp_socket`: plain sockets, polled.

use super::sends::{RTT_BYTES, Sends, number};
use crate::cpu::Error;
use crate::process::say;
use serde_json::json;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};

/// The most that the receiver of a one-way run takes with one call.
const RECEIVE_BYTES: usize = 1 << 18;
/// A first byte of a stream: messages are sent back, or counted.
const ECHOED: u8 = 1;
const COUNTED: u8 = 2;
/// Ends the other side of a datagram socket.
const END: &[u8] = b"end";

/// Does something until it need not wait.
fn polled<T>(mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match act() {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            done => return done,
        }
    }
}

/// Datagrams.
pub(super) struct Udp(UdpSocket);

impl Udp {
    pub(super) fn connect(addr: SocketAddr) -> Result<Udp, Error> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(addr)?;
        socket.set_nonblocking(true)?;
        Ok(Udp(socket))
    }

    pub(super) fn answer() -> Result<(), Error> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        say(&json!({"listen": socket.local_addr()?.to_string()}));
        let mut message = [0; 2 * RTT_BYTES];
        let (_, from) = socket.peek_from(&mut message)?;
        socket.connect(from)?;
        socket.set_nonblocking(true)?;
        loop {
            let len = polled(|| socket.recv(&mut message))?;
            if message[..len] == *END {
                return Ok(());
            }
            polled(|| socket.send(&message[..len]))?;
        }
    }
}

impl Drop for Udp {
    fn drop(&mut self) {
        // If it is lost, the other side ends with the benchmark.
        let _ = self.0.send(END);
    }
}

impl Sends for Udp {
    fn round_trip(&mut self, message: &mut [u8]) -> Result<(), Error> {
        polled(|| self.0.send(message))?;
        polled(|| self.0.recv(message))?;
        Ok(())
    }

    fn send(&mut self, _: usize, _: u64) -> Result<(), Error> {
        Err("datagrams of a plain socket are measured by their round trips".into())
    }

    fn arrived(self: Box<Self>) -> Result<u64, Error> {
        Err("datagrams of a plain socket are measured by their round trips".into())
    }
}

/// A stream, and the message that is sent.
pub(super) struct Tcp(TcpStream, Vec<u8>);

impl Tcp {
    pub(super) fn connect(addr: SocketAddr, is_echoed: bool) -> Result<Tcp, Error> {
        let mut stream = TcpStream::connect(addr)?;
        // One way, the kernel may join small messages, which is what a stream is good at.
        stream.set_nodelay(is_echoed)?;
        stream.write_all(&[if is_echoed { ECHOED } else { COUNTED }])?;
        stream.set_nonblocking(true)?;
        Ok(Tcp(stream, Vec::new()))
    }

    pub(super) fn answer() -> Result<(), Error> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        say(&json!({"listen": listener.local_addr()?.to_string()}));
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut job = [0];
        stream.read_exact(&mut job)?;
        stream.set_nonblocking(true)?;
        if job == [ECHOED] { Tcp::echo(&mut stream) } else { Tcp::count(&mut stream) }
    }

    fn echo(stream: &mut TcpStream) -> Result<(), Error> {
        let mut message = [0; RTT_BYTES];
        while read_whole(stream, &mut message)? {
            write_whole(stream, &message)?;
        }
        Ok(())
    }

    fn count(stream: &mut TcpStream) -> Result<(), Error> {
        let (mut arrived, mut bytes) = (0u64, vec![0; RECEIVE_BYTES]);
        loop {
            match polled(|| stream.read(&mut bytes))? {
                0 => break,
                len => arrived += len as u64,
            }
        }
        write_whole(stream, &arrived.to_le_bytes())
    }
}

impl Sends for Tcp {
    fn round_trip(&mut self, message: &mut [u8]) -> Result<(), Error> {
        write_whole(&mut self.0, message)?;
        if read_whole(&mut self.0, message)? { Ok(()) } else { Err("the other side has ended".into()) }
    }

    fn send(&mut self, bytes: usize, of: u64) -> Result<(), Error> {
        self.1.resize(bytes, 7);
        number(&mut self.1, of);
        write_whole(&mut self.0, &self.1)
    }

    fn arrived(mut self: Box<Self>) -> Result<u64, Error> {
        self.0.shutdown(Shutdown::Write)?;
        let mut arrived = [0; 8];
        if read_whole(&mut self.0, &mut arrived)? {
            Ok(u64::from_le_bytes(arrived))
        } else {
            Err("the other side has ended".into())
        }
    }
}

/// Fills `message` from the socket; `false` where it ended before the first byte.
fn read_whole(stream: &mut TcpStream, message: &mut [u8]) -> Result<bool, Error> {
    let mut have = 0;
    while have < message.len() {
        match polled(|| stream.read(&mut message[have..]))? {
            0 if have == 0 => return Ok(false),
            0 => return Err("the socket ended within a message".into()),
            len => have += len,
        }
    }
    Ok(true)
}

fn write_whole(stream: &mut TcpStream, message: &[u8]) -> Result<(), Error> {
    let mut gone = 0;
    while gone < message.len() {
        gone += polled(|| stream.write(&message[gone..]))?;
    }
    Ok(())
}
