//! The memory that the data path allocates from and hands on: segments, size-classed refcounted buffers, the batch
//! descriptor, bounded rings, and the three-state bell that wakes a sleeper.
//!
//! * [`Pool`]: one core's heap over a sealed memfd segment. Only its holder allocates; any thread may drop a buffer,
//!   which then goes home through a return path that cannot be full.
//! * [`Batch`]: the messages of one stream and format that arrived together.
//! * [`MappedVec`]: a vector for large tables, on huge pages.
//! * [`ring`]: bounded single-producer, single-consumer rings of descriptors.
//! * [`bell`]: the sleep/wake protocol that a doorbell is built on.
//! * `shared`: what the daemon and attached processes both see: rings, syncs, host conditions, bells.
//! * [`attach`]: the Unix socket by which a process gets at all that.
//! * [`host`]: the daemon's side of it, with every table.
//! * [`client`]: an attached process's side of it.
//!
//! Every table that says who owns what (free lists, reference counts, generations, classes) is private memory of the
//! daemon. A segment holds bytes of messages, or one client's rings and words to wait on; each word is loaded once
//! and checked; so a process that maps it can at worst spoil its own domain's messages.

#![deny(unsafe_code)]
// The model checkers' builds lack both sides that `shared` serves.
#![cfg_attr(any(loom, miri), allow(dead_code, unused_imports, unused_macros))]

#[cfg(not(loom))]
pub mod attach;
mod batch;
pub mod bell;
mod buffer;
#[cfg(not(any(loom, miri)))]
pub mod client;
pub mod failpoint;
mod heap;
#[cfg(not(any(loom, miri)))]
pub mod host;
mod mapped;
mod pieces;
mod pool;
mod racy;
pub mod ring;
mod segment;
mod selection;
mod shared;
mod sync;

/// Size of the buffers that a client's session is granted ahead, in bytes: super-packets.
pub const SESSION_GRANT_BYTES: usize = 64 << 10;

pub use batch::{Batch, BatchFull, Slice, Span};
pub use buffer::{Buffer, BufferId, BufferMut};
pub use mapped::MappedVec;
pub use pieces::Fragments;
pub use pool::{ClassStats, Pool, PoolConfig, PoolStats};
pub use segment::HugePages;
pub use selection::{Progress, Selection};
pub use shared::{ConditionAddress, DoorbellPage, Reason, SyncAddress, SyncPool};
