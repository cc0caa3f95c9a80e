//! The side of the host interface that lives in an application's process (Nectar paper, sections 3.2 to 3.5): attaching, and
//! all operations on mailboxes, syncs and host conditions, in memory shared with the daemon.
//!
//! **The two implementations.** A [`Writer`] or [`Reader`] of a `rings` mailbox owns a port, a pair of rings that nobody
//! else touches: `begin_put` takes a buffer that was granted ahead, `end_put` writes one descriptor of 16 bytes, `begin_get`
//! reads one. No lock, no allocation and no system call while traffic flows. Of a `signal_queue` mailbox each operation is
//! asked of the core through the attachment's one pair of signal queues, under a lock of this process: slower, and any
//! number of threads and processes may read and write.
//!
//! **Waiting.** See [`Wait`]. A caller polls the word that it waits for itself; a thread that finds an entry for
//! another thread wakes that thread. Nothing is presumed from time: callers wait for a daemon that is stopped, and the
//! hang-up of the socket, which a thread of the attachment watches, reports a daemon that is gone at once.
//!
//! **Trust.** A [`Put`] and a [`Message`] of a mailbox are bytes of the protection domain's shared segment, in place. The
//! processes of a domain are declared to trust one another: one that breaks the rules can change bytes that another one is
//! reading, and a program that parses them while they change is in the same danger as one whose own thread did it. Over
//! direct rings such a process can also name bytes as a message that this one is writing in a [`Put`]. A
//! message from another domain or from the network lies in a segment that no client can write. The daemon trusts nobody.
//!
//! **The return of a slot.** Ending a put or a get gives the slot back through its port. Dropping a [`Put`] or
//! [`Message`] does the same from any thread, through the signal queue. A process that dies gives all back: the daemon sees
//! its socket hang up.

mod attachment;
mod claim;
mod condition;
mod direct;
mod error;
mod held;
mod inner;
mod port;
#[cfg(feature = "failpoints")]
pub mod raw;
mod reader;
mod signal;
mod sync;
mod upcall;
mod wait;
mod watcher;
mod writer;

pub use attachment::Attachment;
pub use claim::Interrupter;
pub use condition::Condition;
pub use error::MailboxError;
pub use reader::{Burst, Message, Reader};
pub use signal::ErrorSignal;
pub use sync::SyncWord;
pub use wait::Wait;
pub use writer::{Put, Writer};

#[cfg(test)]
mod tests;
