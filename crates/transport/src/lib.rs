//! Packets, sessions and reliable delivery, sans-io: bytes and `now` go in, actions come out.
//!
//! - [`header`]: the 32-byte packet header and the walk over a super-packet.
//! - [`packer`]: many records of one stream and format in a packet, many packets in a super-packet.
//! - [`pieces`]: messages that are longer than a packet, cut and joined.
//! - [`control`]: the requests, replies and notices of a session (announce a format, subscribe, open a mailbox, terminate …).
//! - [`handshake`]: Hello and Welcome, and the dialler that repeats the first until it has the second.
//! - [`session`]: one peer's reliable, ordered, credit-controlled exchange in both directions, made of a
//!   [`sender`] and a [`receiver`].
//! - [`secure`]: envelopes around packets, sealed with keys that a handshake makes, where the network is not trusted.
//! - [`route`]: packets that carry the nodes that they take.
//! - [`datagrams`]: records that are sent once, in no order.
//! - [`mtu`]: the longest packet that the path takes, found by probes; [`parts`]: what is longer.
//! - [`ecn`]: the congestion marks of the network.
//! - [`credit`]: the windows of data and of control.
//! - [`order`]: what control overtakes, and what it waits for.
//! - [`trace`]: the events of a session, for an observer.
//!
//! Nothing here reads a clock, a socket or a file. Times are nanoseconds since any fixed moment, as `u64`.

#![forbid(unsafe_code)]

mod ack;
mod congestion;
pub mod control;
pub mod credit;
pub mod datagrams;
pub mod ecn;
pub mod handshake;
pub mod header;
pub mod mtu;
pub mod order;
pub mod packer;
pub mod parts;
pub mod pieces;
mod queue;
pub mod receiver;
pub mod route;
mod rtt;
pub mod secure;
pub mod sender;
pub mod session;
pub mod trace;
mod unit;

pub use control::{ControlMessage, FormatName, Implementation, Notice, Reply, Request, Side, Unreadable};
pub use datagrams::{DatagramReport, DatagramStats};
pub use ecn::EcnCounts;
pub use handshake::{Dialler, Hello, Welcome};
pub use header::{HEADER_BYTES, Header, PacketError, PacketKind, Piece, VERSION};
pub use order::{Follows, Origin, Traffic, TrafficClass};
pub use packer::{MAX_PACKETS, MAX_SUPER_BYTES, SuperPacket};
pub use pieces::{Cut, Filling, Joiner, MAX_CONTROL_BYTES, MAX_MESSAGE_BYTES, PieceError};
pub use session::{Limits, Session};
pub use unit::Lengths;
