//! Attaching: the Unix socket by which a process on this machine becomes a client with shared memory.
//!
//! The socket is of type `SOCK_SEQPACKET`. The client says in one packet what it will use ([`AttachRequest`]), and the daemon
//! answers: a welcome with the descriptors of everything that the two share, or a refusal with its reason. After that the socket
//! only notifies each side that the other is gone, and a daemon that ends an attachment says why. The daemon waits for a request in
//! its poller, never for one client, and who a client is the kernel says.

mod address;
mod greeting;
mod listener;
mod peer;
mod request;

pub use address::{AttachAddr, candidates};
#[cfg(feature = "failpoints")]
pub(crate) use greeting::greeted;
pub(crate) use greeting::{Admitted, Handles, Welcome, connect};
pub use greeting::{AttachError, Farewell, refuse};
pub use listener::AttachListener;
pub use peer::Peer;
pub use request::{AttachRequest, RequestError};
