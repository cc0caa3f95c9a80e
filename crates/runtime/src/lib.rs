//! Execution contexts: what runs on a communication core, and the handle by which the rest of the daemon speaks to it.
//!
//! [`ContextHandle::start`] pins a thread and runs one visible loop (module `context`) on it: dock, transport, classification, service
//! path, outputs, once a turn. A context owns all it touches (device, pool, sessions, streams, subscriptions), so its data
//! path takes no lock; the handle's requests wait in a queue that is looked at between two turns.

#![forbid(unsafe_code)]

mod clock;
mod config;
mod context;
mod counters;
mod dispatch;
mod explain;
mod handle;
pub mod info;
mod output;
mod peers;
mod requests;
mod sessions;
mod streams;
mod subscriptions;

pub use config::{Allowed, AttachConfig, ContextConfig};
pub use crossdock_transport::control::Overflow;
pub use handle::{ContextHandle, StartError, Stopped};
