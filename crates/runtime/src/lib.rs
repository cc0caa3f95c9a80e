//! Execution contexts: the loop on a communication core, and the handle by which the rest of the daemon controls it.
//!
//! [`ContextHandle::start`] pins a thread and runs one visible loop (module `context`) on it: ingress, transport,
//! classification, service path, outputs, once a turn. Processes of this machine may attach by shared memory (module
//! `attach`); [`tasks`] run in the context for the messages of mailboxes. A context owns all it touches (device, pool,
//! sessions, streams, subscriptions), so its data path takes no lock; the handle's requests wait in a queue that is
//! polled between two turns.

#![forbid(unsafe_code)]

pub mod access;
mod admission;
mod analyze;
mod announcing;
mod attach;
mod catalog;
mod checkpoints;
mod circuits;
mod clock;
mod config;
mod connecting;
mod context;
mod counters;
mod cuts;
mod declaring;
mod deferred;
mod departures;
mod dispatch;
mod durability;
mod durable;
mod egress;
mod elsewhere;
mod estimate;
mod explain;
pub mod failpoint;
mod graph;
mod handle;
mod handling;
mod host;
mod inbox;
pub mod info;
mod io;
mod leaving;
mod ledger;
mod local;
mod losses;
mod mailboxes;
mod managers;
mod morph;
mod names;
mod net;
mod pending;
mod planner;
mod platform;
mod positions;
mod present;
mod principal;
mod publications;
mod refusal;
mod reporting;
mod requests;
mod rings;
mod sending;
#[cfg(test)]
mod simulation;
mod starting;
mod state;
mod streams;
mod subscribing;
mod subscriptions;
mod tables;
mod worker;

pub use config::values as settings;
pub use config::{
    Allowed, AttachConfig, ByName, ContextConfig, ContextKind, ContextSpec, MAX_NEIGHBOURS, MorphConfig, Network,
    NodeAddress, PlatformConfig, QueryCuts, SecurityConfig, ServicesConfig,
};
#[cfg(feature = "bench")]
pub use crossdock_control::load::ESTIMATE_MARGIN_PERCENT;
pub use crossdock_mailbox::host::HostConfig;
pub use crossdock_transport::control::{FormatName, Overflow, RowErrors, Unreadable};
pub use crossdock_transport::secure::{Authorized, AuthorizedKeys};

pub use cuts::{reads_cut_manifest, seal_cut_manifest};
pub use handle::{ContextHandle, ExplainError, KeptConversion, PassedSockets, StartError, probe_udp};
pub use host::services::Service;
pub use host::tasks;
pub use managers::handle::ManagerHandle;
pub use managers::keep::{read_kept, write_kept};
pub use managers::request::ChangeRequest;
pub use managers::spec::{HandlerSpec, OnFault, OnRowError, OverBudget, WhenFull};
pub use managers::state_spec::{StateSpec, state_name, stream_of_state};
#[cfg(any(test, feature = "bench"))]
pub use platform::rig;
pub use refusal::Stopped;
pub use subscribing::SetQueryError;
pub use tables::{FileState, MAX_TABLE_BYTES, TableSpec};
