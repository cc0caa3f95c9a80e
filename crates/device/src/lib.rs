//! Packet I/O behind one small trait, [`Device`]: UDP sockets that move super-packets with GSO and GRO
//! ([`UdpDevice`]), in-memory pairs ([`MemoryDevice`]), and what a polled loop needs beside them: a [`Poller`] with a
//! [`Doorbell`], precise naps, a core of its own.
//!
//! A *super-packet* is one buffer with many packets of one size (`stride`, the last may be shorter) from one sender. It
//! costs one pass through the kernel, so it is what devices take and give.

#![deny(unsafe_code)]

mod clock;
mod idler;
mod memory;
mod path;
mod poller;
mod sealed;
mod sys;
mod thread;
mod udp;

use crossdock_mailbox::{BufferMut, Pool};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

#[cfg(feature = "simulation")]
pub use clock::simulated;
pub use clock::{before_wait, elapsed, now, random, system_now};
pub use idler::{Idle, Idler};
pub use memory::{MemoryDevice, MemoryOptions};
pub use poller::{Doorbell, Interest, Poller, WatchedCopy};
pub use sealed::{Part, SealedSender};
pub use thread::{
    BackgroundThread, CpuTime, ThreadNumber, exclude_cpus, keep_freed_memory, nap, pin_to_cpu, raise_priority,
    set_nice, take_medium_turns, take_short_turns, thread_time_ns,
};
pub use udp::{UdpDevice, UdpInfo, UdpOptions};

/// Longest super-packet (also longest packet) in bytes: what a UDP datagram over IPv4 carries (65,507), rounded down to
/// a multiple of 8.
pub const MAX_SUPER_BYTES: usize = 65_504;
/// Most packets in a super-packet: the kernel's UDP_MAX_SEGMENTS before Linux 6.9.
pub const MAX_SEGMENTS: usize = 64;
/// Most slices that one super-packet may be joined from.
pub const MAX_SLICES: usize = 512;

/// Whether a packet was refused because the interface takes none of its length: it will not go later either.
#[must_use]
pub fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

/// One arrival: a packet, or a super-packet of `stride` bytes a packet.
#[derive(Debug)]
pub struct Frame {
    /// Holds it from its first byte on.
    pub buffer: BufferMut,
    /// Length in bytes, at least 1.
    pub len: usize,
    /// Bytes from one packet to the next; `len` when there is one packet. The last packet may be shorter.
    pub stride: usize,
    /// The sender.
    pub from: SocketAddr,
    /// The two bits of explicit congestion notification in its IP headers (RFC 3168); 0 where the system does not say.
    pub ecn: u8,
}

impl Frame {
    /// The packets in it, in order.
    pub fn packets(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.buffer[..self.len].chunks(self.stride.max(1))
    }
}

/// The result of sending a super-packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a full device has taken nothing"]
pub enum Sent {
    /// The device has it.
    Done,
    /// The device is full and took nothing: try again when it is writable, or on the next turn.
    Full,
}

/// A way for packets to come and go.
pub trait Device: Send {
    /// The address that others reach it at.
    fn local_addr(&self) -> SocketAddr;

    /// Appends what has arrived to `frames`, at most `max` arrivals, and says how many; never blocks. 0 means nothing
    /// is there now. Small arrivals are copied to small buffers, so that a large buffer never holds a hundred bytes.
    /// A packet that no buffer is left for is dropped and counted.
    ///
    /// # Errors
    /// The network's: for a connected device `ConnectionRefused` when nobody listens at its peer's address. The device
    /// stays usable.
    fn receive(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>, max: usize) -> io::Result<usize>;

    /// Sends one super-packet: the slices joined, cut into packets of `stride` bytes each but the last.
    ///
    /// # Errors
    /// `InvalidInput`, before anything is sent, for what cannot be one (see [`MAX_SUPER_BYTES`], [`MAX_SEGMENTS`],
    /// [`MAX_SLICES`]); else the network's. The device stays usable.
    fn send(&mut self, to: SocketAddr, slices: &[IoSlice<'_>], stride: usize) -> io::Result<Sent>;

    /// From now on packets go to this peer only, and what others send may be dropped: sending may cost less then.
    fn keep_to(&mut self, _peer: SocketAddr) {}

    /// Gives the packets that are sent from now on these two bits of explicit congestion notification (RFC 3168), as far as the device
    /// can; 0, as at first, for none.
    fn set_ecn(&mut self, _bits: u8) {}

    /// These bits, as they were set last.
    fn ecn(&self) -> u8 {
        0
    }

    /// An address at which nobody listens any more, as the network has said since the last call; `None` when it has said
    /// nothing more. Only for a device that speaks with anyone. Whoever can forge packets can forge this: believe it of this
    /// machine's own addresses, and take it for a hint of others.
    fn refused(&mut self) -> Option<SocketAddr> {
        None
    }

    /// Length in bytes of the packets with which a conversation with `to` should begin, a multiple of 8: they fit the interface, and
    /// nothing is fragmented on the way, so that a path that takes less drops them.
    fn packet_bytes(&self, to: SocketAddr) -> usize;

    /// Length in bytes of the largest packet that the interface takes towards `to`, a multiple of 8.
    fn most_packet_bytes(&self, to: SocketAddr) -> usize {
        self.packet_bytes(to)
    }

    /// To poll for readability; `None` if there is nothing to poll.
    fn as_fd(&self) -> Option<BorrowedFd<'_>>;

    /// The counts so far.
    fn counters(&self) -> DeviceCounters;
}

/// The counts of a device since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceCounters {
    /// Packets handed over by `receive`, those within super-packets counted singly.
    pub packets_received: u64,
    /// Arrivals handed over by `receive`: packets and super-packets.
    pub supers_received: u64,
    /// Bytes handed over by `receive`.
    pub bytes_received: u64,
    /// System calls made to receive.
    pub receive_calls: u64,
    /// Packets taken by `send`, those within super-packets counted singly.
    pub packets_sent: u64,
    /// Super-packets (and lone packets) taken by `send`.
    pub supers_sent: u64,
    /// Bytes taken by `send`.
    pub bytes_sent: u64,
    /// System calls made to send.
    pub send_calls: u64,
    /// Packets dropped on arrival because the pool had no buffer for them.
    pub dropped_no_buffer: u64,
    /// Arrivals dropped because they were longer than the buffer posted for them.
    pub dropped_truncated: u64,
    /// Arrivals dropped because they were empty.
    pub dropped_empty: u64,
    /// Packets that the kernel dropped because the socket's receive buffer was full, as far as it has said yet.
    pub dropped_kernel: u64,
    /// Packets of a super-packet sent one by one that were lost because the device filled up in its middle.
    pub dropped_partial: u64,
    /// Times that `send` said [`Sent::Full`].
    pub full: u64,
    /// Errors that the network reported, by `receive` or `send`.
    pub errors: u64,
    /// Super-packets that were sent packet by packet: offload is off, or the path is too narrow for their stride.
    pub supers_split: u64,
    /// 1 once the kernel or path refused segmentation offload and the device stopped using it.
    pub fallbacks: u64,
}

/// Says why something cannot be a super-packet, or gives its length in bytes and number of packets.
pub(crate) fn check_super(slices: &[IoSlice<'_>], stride: usize) -> io::Result<(usize, usize)> {
    let refuse = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    if slices.len() > MAX_SLICES {
        return refuse(format!("a super-packet of {} slices: join them to at most {MAX_SLICES}", slices.len()));
    }
    let bytes = slices.iter().fold(0usize, |sum, slice| sum.saturating_add(slice.len()));
    if bytes == 0 || stride == 0 {
        return refuse(format!("a super-packet of {bytes} bytes in packets of {stride}: both must be 1 or more"));
    }
    if bytes > MAX_SUPER_BYTES {
        return refuse(format!("a super-packet of {bytes} bytes: send at most {MAX_SUPER_BYTES} at once"));
    }
    let packets = bytes.div_ceil(stride);
    if packets > MAX_SEGMENTS {
        return refuse(format!("a super-packet of {packets} packets: send at most {MAX_SEGMENTS} at once"));
    }
    Ok((bytes, packets))
}

/// The longest arrival in bytes that is copied into a small buffer; a longer one takes the posted buffer along.
pub(crate) const COPY_BYTES: usize = 16 << 10;
/// Capacity in bytes of a buffer posted for arrivals: no UDP datagram is longer.
pub(crate) const POSTED_BYTES: usize = 64 << 10;

/// Counts an arrival of `len` bytes that is handed over, and makes its frame.
pub(crate) fn hand_over(
    counters: &mut DeviceCounters,
    buffer: BufferMut,
    len: usize,
    stride: usize,
    (from, ecn): (SocketAddr, u8),
) -> Frame {
    counters.supers_received += 1;
    counters.packets_received += len.div_ceil(stride.max(1)) as u64;
    counters.bytes_received += len as u64;
    Frame { buffer, len, stride, from, ecn }
}
