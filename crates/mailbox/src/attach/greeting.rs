//! The daemon's answer to a process that attaches: welcome, with descriptors, or a refusal, with its reason.
//!
//! A packet is: magic (8 bytes), version (4), kind (4), then for a welcome client number (4), 4 zero bytes, and the
//! lengths of control, shared and inbox segment (8 each), zeros up to 64 bytes; for a refusal its text in UTF-8; for a
//! farewell one byte, 1 if it makes sense to come back, and its text. All numbers lowest byte first. A welcome carries
//! exactly six descriptors, in the order of [`Handles`].

use super::listener::new_socket;
use super::{AttachAddr, AttachRequest, Peer};
use crate::failpoint::failpoint;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, recvmsg, send, sendmsg,
};
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::time::Duration;

pub(super) const MAGIC: [u8; 8] = *b"xdockshm";
/// Of everything that daemon and client share: these packets, the control segment's layout, the operations.
pub(super) const VERSION: u32 = 6;
const WELCOME: u32 = 0;
const REFUSAL: u32 = 1;
const FAREWELL: u32 = 2;
/// The message of a client; the others are a daemon's.
pub(super) const REQUEST: u32 = 3;
pub(super) const HEAD_BYTES: usize = 16;
const WELCOME_BYTES: usize = 64;
/// Length of the longest packet, hence of the longest refusal.
const MOST_BYTES: usize = 512;
const HANDLES: usize = 6;

/// The content of a welcome besides its descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Welcome {
    /// The client's number, part of the addresses of its syncs and conditions.
    pub(crate) client: u32,
    /// Length of the control segment in bytes.
    pub(crate) control_bytes: u64,
    /// Length of the domain's shared segment in bytes.
    pub(crate) shared_bytes: u64,
    /// Length of the domain's inbox segment in bytes.
    pub(crate) inbox_bytes: u64,
}

/// The descriptors of a welcome.
#[derive(Debug)]
pub(crate) struct Handles<F> {
    /// The client's rings, syncs and conditions.
    pub(crate) control: F,
    /// The domain's message buffers.
    pub(crate) shared: F,
    /// The domain's message buffers that only the daemon writes.
    pub(crate) inbox: F,
    /// The page that says whether the core sleeps.
    pub(crate) bell: F,
    /// The eventfd by which this client wakes the core.
    pub(crate) doorbell: F,
    /// The end to read of the pipe by which the core wakes this client's event loop.
    pub(crate) wake: F,
}

/// Why a process could not attach.
#[derive(Debug)]
pub enum AttachError {
    /// No daemon listens there, or none that this process may ask.
    Absent {
        /// Where it was looked for.
        address: AttachAddr,
        /// The kernel's error.
        error: io::Error,
    },
    /// The daemon does not let this process in.
    Refused {
        /// Where it listens.
        address: AttachAddr,
        /// Its reason.
        reason: String,
    },
    /// The other end is no daemon, or one of another version.
    Foreign {
        /// Where it listens.
        address: AttachAddr,
        /// The fault of the answer.
        what: String,
    },
    /// The kernel would not give what attaching needs.
    System {
        /// The operation.
        doing: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::Absent { address, error } => {
                write!(f, "no daemon can be attached to at {address}: {error}; is it running, with attaching enabled?")
            }
            AttachError::Refused { address, reason } => write!(f, "the daemon at {address} refused: {reason}"),
            AttachError::Foreign { address, what } => {
                write!(f, "what answers at {address} cannot be attached to: {what}")
            }
            AttachError::System { doing, error } => write!(f, "attaching failed while {doing}: {error}"),
        }
    }
}

impl std::error::Error for AttachError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AttachError::Absent { error, .. } | AttachError::System { error, .. } => Some(error),
            AttachError::Refused { .. } | AttachError::Foreign { .. } => None,
        }
    }
}

pub(super) fn head(kind: u32) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    head[12..].copy_from_slice(&kind.to_le_bytes());
    head
}

/// The content of a packet.
#[derive(Debug, PartialEq, Eq)]
enum Greeting {
    Welcome(Welcome),
    Refusal(String),
}

impl Welcome {
    pub(crate) fn encode(&self) -> [u8; WELCOME_BYTES] {
        let mut packet = [0; WELCOME_BYTES];
        packet[..HEAD_BYTES].copy_from_slice(&head(WELCOME));
        packet[16..20].copy_from_slice(&self.client.to_le_bytes());
        packet[24..32].copy_from_slice(&self.control_bytes.to_le_bytes());
        packet[32..40].copy_from_slice(&self.shared_bytes.to_le_bytes());
        packet[40..48].copy_from_slice(&self.inbox_bytes.to_le_bytes());
        packet
    }

    /// Sends this and `handles` to the process at the other end of `socket`, without waiting.
    ///
    /// # Errors
    /// The kernel's: a process that is gone, or one that already has too many descriptors on their way to it.
    pub(crate) fn send(&self, socket: BorrowedFd<'_>, handles: &Handles<BorrowedFd<'_>>) -> io::Result<()> {
        let packet = self.encode();
        let Handles { control, shared, inbox, bell, doorbell, wake } = *handles;
        let fds: [BorrowedFd<'_>; HANDLES] = [control, shared, inbox, bell, doorbell, wake];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDLES))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(io::Error::other("no room for the descriptors"));
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(socket, &[IoSlice::new(&packet)], &mut ancillary, flags)?;
        Ok(())
    }
}

fn encode_refusal(reason: &str) -> Vec<u8> {
    with_text(head(REFUSAL).to_vec(), reason)
}

/// As much of a text behind what a packet has as a packet may hold.
fn with_text(mut packet: Vec<u8>, text: &str) -> Vec<u8> {
    let most = text.len().min(MOST_BYTES - packet.len());
    let end = (0..=most).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    packet.extend_from_slice(&text.as_bytes()[..end]);
    packet
}

/// Why a daemon ends an attachment: the last that it says, before it hangs up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Farewell {
    /// Whether it makes sense to come back: the daemon ends or restarts, rather than that it does not want this
    /// process.
    pub again: bool,
    /// In words.
    pub reason: String,
}

impl Farewell {
    /// Notifies the process at the other end of `socket`, without waiting. If the send fails, it sees the socket close.
    pub fn say(&self, socket: BorrowedFd<'_>) {
        let _sent = send(socket, &self.encode(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    fn encode(&self) -> Vec<u8> {
        let mut packet = head(FAREWELL).to_vec();
        packet.push(u8::from(self.again));
        with_text(packet, &self.reason)
    }

    /// Reads a packet; none if it is no farewell.
    pub(crate) fn decode(packet: &[u8]) -> Option<Farewell> {
        let (again, reason) = packet.strip_prefix(&head(FAREWELL))?.split_first()?;
        Some(Farewell { again: *again == 1, reason: String::from_utf8_lossy(reason).into_owned() })
    }
}

/// Sends the process at the other end of `socket` the reason it may not attach, without waiting. If the send fails, it
/// sees the socket close.
pub fn refuse(socket: BorrowedFd<'_>, reason: &str) {
    let _sent = send(socket, &encode_refusal(reason), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Reads a packet; the error says what is wrong with it.
fn decode(packet: &[u8]) -> Result<Greeting, String> {
    fn number<const N: usize>(packet: &[u8], at: usize) -> Option<[u8; N]> {
        packet.get(at..)?.first_chunk().copied()
    }
    let u32_at = |at| number(packet, at).map(u32::from_le_bytes);
    let u64_at = |at| number(packet, at).map(u64::from_le_bytes);
    if number(packet, 0) != Some(MAGIC) {
        return Err("it is not a crossdock daemon".to_owned());
    }
    let truncated = || "its answer is cut short".to_owned();
    let version = u32_at(8).ok_or_else(truncated)?;
    if version != VERSION {
        return Err(format!("it shares memory by version {version} of the rules, this program by version {VERSION}"));
    }
    match u32_at(12).ok_or_else(truncated)? {
        WELCOME if packet.len() == WELCOME_BYTES => {
            let welcome = Welcome {
                client: u32_at(16).ok_or_else(truncated)?,
                control_bytes: u64_at(24).ok_or_else(truncated)?,
                shared_bytes: u64_at(32).ok_or_else(truncated)?,
                inbox_bytes: u64_at(40).ok_or_else(truncated)?,
            };
            Ok(Greeting::Welcome(welcome))
        }
        WELCOME => Err(truncated()),
        // The first word of a daemon that ended the attachment before it had begun.
        FAREWELL => Ok(Greeting::Refusal(Farewell::decode(packet).ok_or_else(truncated)?.reason)),
        REFUSAL => Ok(Greeting::Refusal(String::from_utf8_lossy(&packet[HEAD_BYTES..]).into_owned())),
        kind => Err(format!("its answer is of kind {kind}, which this program does not know")),
    }
}

/// The resources of a client that was let in.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) welcome: Welcome,
    pub(crate) handles: Handles<OwnedFd>,
    /// Hangs up when the daemon is gone.
    pub(crate) socket: OwnedFd,
    /// The daemon's process.
    pub(crate) daemon: Peer,
}

/// Asks the daemon at `address` to be let in, waiting `timeout` at most for each of its steps.
pub(crate) fn connect(
    address: &AttachAddr,
    request: AttachRequest,
    timeout: Duration,
) -> Result<Admitted, AttachError> {
    let system = |doing| move |error: io::Error| AttachError::System { doing, error };
    let absent = |error: io::Error| AttachError::Absent { address: address.clone(), error };
    let socket = new_socket(SocketFlags::empty()).map_err(system("making a socket"))?;
    for direction in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, direction, Some(timeout))
            .map_err(|errno| system("limiting waits")(errno.into()))?;
    }
    let named = address.to_socket_addr().map_err(absent)?;
    while let Err(errno) = rustix::net::connect(&socket, &named) {
        if errno != Errno::INTR {
            return Err(absent(errno.into()));
        }
    }
    failpoint!("attach.before_request");
    request.send(socket.as_fd());
    greeted(socket, address, timeout)
}

/// Takes the answer of the daemon at the other end of `socket`, which has `timeout` for it.
pub(crate) fn greeted(socket: OwnedFd, address: &AttachAddr, timeout: Duration) -> Result<Admitted, AttachError> {
    let system = |doing| move |error: io::Error| AttachError::System { doing, error };
    let daemon = Peer::of(socket.as_fd()).map_err(system("asking who the daemon is"))?;
    let foreign = |what: String| AttachError::Foreign { address: address.clone(), what };
    let mut packet = [0; MOST_BYTES];
    let (bytes, fds) = match receive(socket.as_fd(), &mut packet) {
        Ok((0, _)) => return Err(foreign("it hung up without a word".to_owned())),
        Ok(received) => received,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(foreign(format!("it said nothing within {timeout:?}")));
        }
        Err(error) => return Err(system("receiving the daemon's answer")(error)),
    };
    let welcome = match decode(&packet[..bytes]).map_err(foreign)? {
        Greeting::Welcome(welcome) => welcome,
        Greeting::Refusal(reason) => return Err(AttachError::Refused { address: address.clone(), reason }),
    };
    let Ok([control, shared, inbox, bell, doorbell, wake]) = <[OwnedFd; HANDLES]>::try_from(fds) else {
        return Err(foreign(
            "its answer came without all of its descriptors; may this process open more files?".into(),
        ));
    };
    let handles = Handles { control, shared, inbox, bell, doorbell, wake };
    Ok(Admitted { welcome, handles, socket, daemon })
}

/// Takes one packet with the descriptors that came with it.
fn receive(socket: BorrowedFd<'_>, packet: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDLES))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [IoSliceMut::new(packet)];
        match recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            // A daemon that hung up before it had taken the request may have answered all the same: that comes next, or the end.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            other => break other?,
        }
    };
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        fds.clear(); // some are missing, and nobody can say which
    }
    Ok((received.bytes, fds))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that fails may panic
mod tests {
    use super::*;
    use crate::attach::AttachListener;
    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::fstat;

    const TIMEOUT: Duration = Duration::from_secs(60);
    #[cfg(not(miri))]
    const REQUEST: AttachRequest = AttachRequest { uses_mailboxes: true };

    fn welcome() -> Welcome {
        Welcome { client: 7, control_bytes: 1 << 40, shared_bytes: 2, inbox_bytes: u64::MAX }
    }

    #[test]
    fn a_farewell_reads_back_and_nothing_else_is_one() {
        let farewell = Farewell { again: true, reason: "the daemon is shutting down".to_owned() };
        assert_eq!(Farewell::decode(&farewell.encode()), Some(farewell));
        let long = Farewell { again: false, reason: "é".repeat(400) };
        assert_eq!(long.encode().len(), MOST_BYTES - 1, "cut at a character");
        assert!(Farewell::decode(&long.encode()).is_some_and(|cut| long.reason.starts_with(&cut.reason) && !cut.again));
        for other in [&b"bye"[..], b"", &encode_refusal("no"), &head(FAREWELL)] {
            assert_eq!(Farewell::decode(other), None);
        }
    }

    #[test]
    fn packets_read_back_and_what_is_none_says_why() {
        assert_eq!(decode(&welcome().encode()), Ok(Greeting::Welcome(welcome())));
        assert_eq!(decode(&encode_refusal("no room")), Ok(Greeting::Refusal("no room".to_owned())));
        assert_eq!(decode(&encode_refusal("")), Ok(Greeting::Refusal(String::new())));
        let long = encode_refusal(&"ü".repeat(1000));
        assert_eq!(long.len(), MOST_BYTES);
        assert_eq!(decode(&long), Ok(Greeting::Refusal("ü".repeat((MOST_BYTES - HEAD_BYTES) / 2))));
        let bye = Farewell { again: true, reason: "restarting".to_owned() };
        assert_eq!(decode(&bye.encode()), Ok(Greeting::Refusal(bye.reason)));

        let with = |at: usize, byte: u8| {
            let mut packet = welcome().encode();
            packet[at] = byte;
            decode(&packet).unwrap_err()
        };
        assert_eq!(with(0, b'X'), "it is not a crossdock daemon");
        assert_eq!(
            with(8, 9),
            format!("it shares memory by version 9 of the rules, this program by version {VERSION}")
        );
        assert!(with(12, 9).contains("kind 9"));
        for len in 0..WELCOME_BYTES {
            assert!(decode(&welcome().encode()[..len]).is_err(), "{len}");
        }
        assert!(decode(&head(FAREWELL)).is_err());
    }

    /// The answer to a caller that asks a daemon that does `answer` with its socket; what that returns is kept until then.
    #[cfg(not(miri))]
    fn asked<K>(name: &str, timeout: Duration, answer: impl FnOnce(OwnedFd) -> K) -> Result<Admitted, AttachError> {
        let address = AttachAddr::Abstract(format!("crossdock-test-{name}-{}", std::process::id()));
        let listener = AttachListener::bind(&address, false).unwrap();
        std::thread::scope(|scope| {
            let client = scope.spawn(|| connect(&address, REQUEST, timeout));
            let (_peer, socket) = loop {
                match listener.accept().unwrap() {
                    Some(came) => break came,
                    None => std::thread::yield_now(),
                }
            };
            let _kept = answer(socket);
            client.join().unwrap()
        })
    }

    #[cfg(not(miri))]
    fn files() -> [OwnedFd; HANDLES] {
        std::array::from_fn(|_| eventfd(0, EventfdFlags::CLOEXEC).unwrap())
    }

    #[cfg(not(miri))]
    fn send_with(socket: BorrowedFd<'_>, packet: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(10))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(fds.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(fds)));
        sendmsg(socket, &[IoSlice::new(packet)], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
    }

    #[test]
    #[cfg(not(miri))]
    fn a_welcome_brings_its_descriptors_in_order() {
        let pipe = rustix::pipe::pipe().unwrap();
        let [control, shared, inbox, bell, doorbell, _] = files();
        let ours = [&control, &shared, &inbox, &bell, &doorbell, &pipe.0];
        // Eventfds share an inode; what is written to one is read from its copy.
        for (value, file) in (1u64..).zip(&ours[..5]) {
            rustix::io::write(file, &value.to_ne_bytes()).unwrap();
        }
        let admitted = asked("welcome", TIMEOUT, |socket| {
            let [control, shared, inbox, bell, doorbell, wake] = ours.map(|file| file.as_fd());
            welcome().send(socket.as_fd(), &Handles { control, shared, inbox, bell, doorbell, wake }).unwrap();
        })
        .unwrap();
        assert_eq!(admitted.welcome, welcome());
        assert_eq!(admitted.daemon.pid, std::process::id());
        let Handles { control, shared, inbox, bell, doorbell, wake } = admitted.handles;
        for (value, file) in (1u64..).zip([control, shared, inbox, bell, doorbell]) {
            let mut bytes = [0; 8];
            rustix::io::read(&file, &mut bytes).unwrap();
            assert_eq!(u64::from_ne_bytes(bytes), value);
            assert!(rustix::io::fcntl_getfd(&file).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        }
        assert_eq!(fstat(&wake).unwrap().st_ino, fstat(&pipe.0).unwrap().st_ino);
    }

    #[test]
    #[cfg(not(miri))]
    fn a_refusal_brings_its_reason() {
        let reason = "user 1000 may not attach";
        // Whether it hangs up with the request in its hands, or has not looked at it.
        let heard = |socket: OwnedFd| {
            while AttachRequest::receive(socket.as_fd()) == Ok(None) {}
            refuse(socket.as_fd(), reason);
        };
        let unheard = |socket: OwnedFd| refuse(socket.as_fd(), reason);
        for error in [asked("heard", TIMEOUT, heard), asked("unheard", TIMEOUT, unheard)].map(Result::unwrap_err) {
            assert!(matches!(&error, AttachError::Refused { reason: said, .. } if said == reason), "{error}");
            assert!(error.to_string().ends_with("refused: user 1000 may not attach"), "{error}");
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn a_process_that_is_no_daemon_is_recognised() {
        let files = files();
        let fds: Vec<_> = files.iter().map(OwnedFd::as_fd).collect();
        let more: Vec<_> = fds.iter().chain(&fds[..2]).copied().collect();
        let packet = welcome().encode();
        let says = |name, packet: &[u8], fds: &[BorrowedFd<'_>]| {
            let error = asked(name, TIMEOUT, |socket| send_with(socket.as_fd(), packet, fds)).unwrap_err();
            assert!(matches!(error, AttachError::Foreign { .. }), "{error:?}");
            error.to_string()
        };
        assert!(says("few", &packet, &fds[..5]).contains("without all of its descriptors"));
        assert!(says("none", &packet, &[]).contains("without all of its descriptors"));
        assert!(says("many", &packet, &more).contains("without all of its descriptors"));
        assert!(says("garbage", b"HTTP/1.1 400 Bad Request", &fds).contains("not a crossdock daemon"));
        assert!(says("long", &[b'x'; 4000], &[]).contains("not a crossdock daemon"));
        let error = asked("mute", TIMEOUT, drop).unwrap_err();
        assert!(error.to_string().contains("hung up without a word"), "{error}");
        let error = asked("silent", Duration::from_millis(1), |socket| socket).unwrap_err();
        assert!(error.to_string().contains("said nothing within 1ms"), "{error}");
    }

    #[test]
    #[cfg(not(miri))]
    fn nobody_there_is_its_own_error() {
        let address = AttachAddr::Abstract(format!("crossdock-test-nobody-{}", std::process::id()));
        let error = connect(&address, REQUEST, TIMEOUT).unwrap_err();
        assert!(matches!(&error, AttachError::Absent { .. }));
        assert!(error.to_string().contains("is it running"), "{error}");
        assert!(std::error::Error::source(&error).is_some());
    }

    #[test]
    #[cfg(not(miri))]
    fn a_client_that_is_gone_is_an_error_and_no_signal() {
        use rustix::net::{AddressFamily, SocketType, socketpair};
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        drop(theirs);
        let files = files();
        let [control, shared, inbox, bell, doorbell, wake] = files.each_ref().map(OwnedFd::as_fd);
        assert!(welcome().send(ours.as_fd(), &Handles { control, shared, inbox, bell, doorbell, wake }).is_err());
        refuse(ours.as_fd(), "too late");
        Farewell { again: false, reason: String::new() }.say(ours.as_fd());
    }
}
