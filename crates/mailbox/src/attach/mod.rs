//! Attaching: the Unix socket by which a process on this machine becomes a client with shared memory.
//!
//! The socket is of type `SOCK_SEQPACKET`. The daemon speaks first, and last: a welcome with the descriptors of
//! everything that the two share, or a refusal with its reason. After that the socket only tells each side that the
//! other is gone, and a daemon that ends an attachment says why. So the daemon never waits for a client, and a client's
//! word is never needed to let it in: the kernel says who it is.

mod address;
mod greeting;
mod listener;
mod peer;

pub use address::{AttachAddr, candidates};
#[cfg(feature = "failpoints")]
pub(crate) use greeting::greeted;
pub(crate) use greeting::{Admitted, Handles, Welcome, connect};
pub use greeting::{AttachError, Farewell, refuse};
pub use listener::AttachListener;
pub use peer::Peer;
