//! The first message of a process that attaches: what it will use.
//!
//! A packet is the head of a greeting's, then flags (4 bytes, lowest byte first); bit 0 says that mailboxes are used and the
//! others are zero.

use super::greeting::{HEAD_BYTES, MAGIC, REQUEST, VERSION, head};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

const REQUEST_BYTES: usize = HEAD_BYTES + 4;
const USES_MAILBOXES: u32 = 1;

/// The resources that an attaching process will use, which say at which context of the daemon it has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachRequest {
    /// Whether it will use mailboxes, tasks, syncs, host conditions, calls or upcalls, which are at one context of the daemon. A client
    /// that only publishes and subscribes may be at any.
    pub uses_mailboxes: bool,
}

/// Why a process that connected has not made a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// It has gone again.
    #[error("the process hung up")]
    HungUp,
    /// The message of the process is no request; in words, for the process.
    #[error("{0}")]
    Malformed(String),
}

impl AttachRequest {
    /// Takes the request of the process at the other end of `socket`, without waiting: `None` if it has said nothing yet.
    /// Descriptors that it sent along are not taken.
    ///
    /// # Errors
    /// It hung up, or what it said is no request of this version.
    pub fn receive(socket: BorrowedFd<'_>) -> Result<Option<AttachRequest>, RequestError> {
        let mut packet = [0; REQUEST_BYTES];
        loop {
            // The length is the packet's own, however much of it there is room for.
            return match recv(socket, &mut packet, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
                Ok((_, 0)) => Err(RequestError::HungUp),
                Ok((taken, bytes)) => decode(&packet[..taken], bytes).map(Some).map_err(RequestError::Malformed),
                Err(Errno::AGAIN) => Ok(None),
                Err(Errno::INTR) => continue,
                Err(_) => Err(RequestError::HungUp),
            };
        }
    }

    /// Sends it. If that fails, the daemon's answer is there already, or it hung up: what is received next says which.
    pub(super) fn send(self, socket: BorrowedFd<'_>) {
        while send(socket, &self.encode(), SendFlags::NOSIGNAL) == Err(Errno::INTR) {}
    }

    fn encode(self) -> [u8; REQUEST_BYTES] {
        let mut packet = [0; REQUEST_BYTES];
        packet[..HEAD_BYTES].copy_from_slice(&head(REQUEST));
        let flags = if self.uses_mailboxes { USES_MAILBOXES } else { 0 };
        packet[HEAD_BYTES..].copy_from_slice(&flags.to_le_bytes());
        packet
    }
}

/// Reads what there was room for of a packet of `bytes` bytes; the error says what is wrong with it.
fn decode(packet: &[u8], bytes: usize) -> Result<AttachRequest, String> {
    let word = |at: usize| packet.get(at..)?.first_chunk().copied().map(u32::from_le_bytes);
    if packet.get(..MAGIC.len()) != Some(&MAGIC) {
        return Err("what this process sent is no request to attach".to_owned());
    }
    match word(8) {
        Some(VERSION) => {}
        Some(version) => {
            return Err(format!(
                "the daemon shares memory by version {VERSION} of the rules, this program by version {version}: use a program of the \
                 daemon's release"
            ));
        }
        None => return Err("the request to attach is cut short".to_owned()),
    }
    match (word(12), word(HEAD_BYTES)) {
        (Some(REQUEST), Some(flags @ 0..=USES_MAILBOXES)) if bytes == REQUEST_BYTES => {
            Ok(AttachRequest { uses_mailboxes: flags == USES_MAILBOXES })
        }
        (Some(REQUEST), Some(flags)) if bytes == REQUEST_BYTES => {
            Err(format!("the request to attach has flags {flags:#x}, which this daemon does not know"))
        }
        (Some(REQUEST), _) => Err(format!("a request to attach has {REQUEST_BYTES} bytes, this one {bytes}")),
        (Some(kind), _) => Err(format!("what this process sent is of kind {kind}, and no request to attach")),
        (None, _) => Err("the request to attach is cut short".to_owned()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that fails may panic
mod tests {
    use super::*;

    fn read(packet: &[u8]) -> Result<AttachRequest, String> {
        decode(&packet[..packet.len().min(REQUEST_BYTES)], packet.len())
    }

    #[test]
    fn a_request_reads_back_and_what_is_none_says_why() {
        for uses_mailboxes in [false, true] {
            let request = AttachRequest { uses_mailboxes };
            assert_eq!(read(&request.encode()), Ok(request));
            for len in 0..REQUEST_BYTES {
                assert!(read(&request.encode()[..len]).is_err(), "{len}");
            }
            let long = [&request.encode()[..], &[0]].concat();
            assert_eq!(read(&long).unwrap_err(), "a request to attach has 20 bytes, this one 21");
        }
        let with = |at: usize, byte: u8| {
            let mut packet = AttachRequest { uses_mailboxes: true }.encode();
            packet[at] = byte;
            read(&packet).unwrap_err()
        };
        assert!(with(0, b'X').contains("no request to attach"));
        assert!(with(8, 1).contains("version 1: use a program"));
        assert!(with(12, 0).contains("of kind 0"));
        assert!(with(16, 2).contains("flags 0x2"));
        assert!(with(19, 0x80).contains("flags 0x80000001"));
        assert!(read(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap_err().contains("no request to attach"));
    }

    #[test]
    #[cfg(not(miri))]
    fn a_request_is_awaited_without_waiting() {
        use rustix::fd::AsFd;
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let pair = || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let (daemon, client) = pair();
        assert_eq!(AttachRequest::receive(daemon.as_fd()), Ok(None));
        let request = AttachRequest { uses_mailboxes: true };
        request.send(client.as_fd());
        // The bytes behind it are another packet.
        send(&client, &[0; 100], SendFlags::NOSIGNAL).unwrap();
        assert_eq!(AttachRequest::receive(daemon.as_fd()), Ok(Some(request)));
        let error = AttachRequest::receive(daemon.as_fd()).unwrap_err();
        assert_eq!(error.to_string(), "what this process sent is no request to attach");
        assert_eq!(AttachRequest::receive(daemon.as_fd()), Ok(None));
        drop(client);
        assert_eq!(AttachRequest::receive(daemon.as_fd()), Err(RequestError::HungUp));
        // To one that is gone nothing is sent, and no signal comes of it.
        let (daemon, client) = pair();
        drop(daemon);
        request.send(client.as_fd());
    }
}
