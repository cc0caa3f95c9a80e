//! Seeded virtual time, network and faults for tests.
//!
//! - [`Network`]: nodes with addresses, links between them, and a queue of events in virtual nanoseconds. Nothing
//!   happens but what [`Network::step`] makes happen, in an order that follows from the seed alone.
//! - [`Link`]: what a path does to datagrams: delay, jitter, bandwidth with a bounded queue, a longest datagram, loss,
//!   duplication, reordering, corruption, congestion marks.
//! - [`check()`]: runs a test under many seeds; when one fails it prints the seed and the command that repeats it.
//!
//! A dev-dependency only: it knows datagrams as bytes and nothing of what they mean.
//!
//! ```
//! use crossdock_sim::{Link, Network};
//!
//! let mut network = Network::new(7);
//! let (a, b) = (network.node(1 << 20), network.node(1 << 20));
//! network.link(a, b, Link::new(20_000_000));
//! network.send(a, b, b"hello");
//! assert_eq!(network.step(), Some(b));
//! assert_eq!(network.now_ns(), 20_000_000);
//! assert_eq!(network.receive(b).unwrap().bytes, b"hello");
//! ```

#![forbid(unsafe_code)]

mod check;
mod link;
mod network;

pub use check::check;
pub use link::{EcnPath, Link, LinkStats, flip_or_truncate};
pub use network::{Frame, Network};

/// The random numbers of a simulation.
pub use fastrand::Rng;
