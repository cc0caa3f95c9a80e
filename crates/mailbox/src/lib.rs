//! What the data path allocates from and hands on: segments, size-classed refcounted buffers, the batch descriptor,
//! bounded rings, and the three-state bell that wakes a sleeper.
//!
//! * [`Pool`]: one core's heap over a sealed memfd segment. Only its holder allocates; any thread may drop a buffer,
//!   which then goes home through a return path that cannot be full.
//! * [`Batch`]: the messages of one stream and format that arrived together.
//! * [`ring`]: bounded single-producer, single-consumer rings of descriptors.
//! * [`bell`]: the sleep/wake protocol that a doorbell is built on.
//!
//! Every table that says who owns what (free lists, reference counts, generations, classes) is private memory of the
//! daemon. A segment holds bytes of messages and nothing else, so a process that maps it can at worst spoil messages.

#![deny(unsafe_code)]

mod batch;
pub mod bell;
mod buffer;
mod heap;
mod pool;
pub mod ring;
mod segment;
mod selection;
mod sync;

pub use batch::{Batch, BatchFull, Slice, Span};
pub use buffer::{Buffer, BufferId, BufferMut};
pub use pool::{ClassStats, Pool, PoolConfig, PoolStats};
pub use selection::Selection;
