//! The memory that the daemon and a client process both see: the layout of a control segment, rings whose entries say
//! themselves that they are new, syncs, host conditions (Nectar 1990, 3.1 to 3.4), and the bell of a core that sleeps.
//!
//! Everything in shared memory is a little-endian word that is accessed as an atomic only. A word that the other side
//! can write is loaded once; what was loaded is checked and used. Nothing here trusts, panics at, or waits for the
//! other side.

mod bell;
mod condition;
mod direct;
mod futex;
#[cfg(all(test, loom))]
mod interleavings;
mod lane;
mod layout;
mod op;
#[cfg(all(test, not(any(loom, miri))))]
mod processes;
mod regrants;
mod ring;
mod sync;
mod words;

pub use bell::DoorbellPage;
pub(crate) use bell::{ArmedFlag, CoreBell, DOORBELL_PAGE_BYTES};
pub(crate) use condition::{HostCondition, Woken};
pub(crate) use direct::SleepFlag;
#[cfg(not(loom))]
pub(crate) use direct::{DIRECT_ENTRIES, DirectBlock, DirectCounts, DirectLayout};
#[cfg(not(loom))]
pub(crate) use lane::this_thread;
pub(crate) use lane::{Call, Calls, ClientLane, CoreLane, Passed};
pub(crate) use layout::{
    ARRIVAL_CONDITION, CONDITIONS, ControlLayout, FREE_CONDITION, PORT_ENTRIES, PORTS, SIGNAL_ENTRIES, SIGNAL_SLOTS,
    SIGNALS, SLOTS, SYNCS, UPCALL_CONDITION,
};
pub use op::Reason;
pub(crate) use op::{down, up};
pub(crate) use regrants::Regrants;
pub(crate) use ring::{Descriptor, Entry, RingReader, RingWriter, Signal, TakenCount};
pub(crate) use sync::SyncCell;
pub use sync::{ConditionAddress, SyncAddress, SyncPool};
