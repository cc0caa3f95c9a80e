//! How many buffers and places in queues the graph needs: all sums, each with its reasons.
//!
//! A batch holds buffers of the context that made it in whichever queue it waits, also at other contexts. If all queues
//! together could hold all large buffers of a context, two contexts could wait for each other's buffers indefinitely.
//! Therefore queues may hold a part of a context's large buffers, each queue the same share of it; the rest is for what is
//! being made and delivered, and comes back as soon as a run ends.

use crossdock_mailbox::{Batch, PoolConfig};
use crossdock_transport::{HEADER_BYTES, MAX_MESSAGE_BYTES, MAX_SUPER_BYTES};

/// Most bytes of records in one batch that a node makes: the capacity of a packet. A longer record is a batch alone.
pub(crate) const PIECE_BYTES: usize = MAX_SUPER_BYTES - HEADER_BYTES;
/// Batches that may wait in a node's queue from one stream, at most.
pub(crate) const QUEUE_BATCHES: usize = 64;
/// Batches made for sessions that the context has yet to count, beside the results of one more batch.
pub(crate) const ARRIVED_BATCHES: usize = 64;
/// Batches that may wait for all sessions, where nothing else is set.
pub(crate) const SESSION_BATCHES: usize = 256;
/// Records longer than a packet that may wait at one node for sessions: there are few buffers for them, so a reader that stops
/// holds few of them.
pub(crate) const MOST_LONG: usize = 2;
/// Fewest batches that may wait for a session from one stream.
const LEAST_SESSION_QUEUE: usize = 2;
/// Large buffers that must be free before a batch is begun: its results may be many times as long. At most an eighth of
/// all are kept for that.
const SPARE_BUFFERS: usize = 16;
/// Batches that one run may make at most, so that its output does not take all buffers.
pub(crate) const MOST_MADE: usize = 16;
/// Most bytes of output that wait in a node for buffers: a handler whose output does not end must not take all memory. Of one with
/// state as many as the state may take, where these are more.
pub(crate) const MAX_SPILL_BYTES: usize = 16 << 20;
/// Queues are counted as at least this number, and as a power of two, so that their shares change rarely.
const LEAST_QUEUES: usize = 4;

/// Records that may be kept for one slow subscriber, and keys whose rates are remembered.
pub(crate) const SLOW_RECORDS: usize = 1 << 16;
/// Bytes of the records that may be kept for one slow subscriber, and for all at a context: as much as waits in a session's
/// queue where nothing else is set, for 32 of them.
pub(crate) const SLOW_BYTES: usize = 8 << 20;
const SLOW_TOTAL_BYTES: usize = 32 * SLOW_BYTES;

/// Bytes of the records that may be kept for each of `subscriptions`: an even share of those for all.
pub(crate) fn slow_bytes(subscriptions: usize) -> usize {
    SLOW_BYTES.min(SLOW_TOTAL_BYTES / subscriptions.max(1))
}

/// Whether a batch is one record that is longer than a packet.
#[inline]
pub(crate) fn is_long(batch: &Batch) -> bool {
    batch.len() == 1 && batch.stride == 0 && batch.payload_bytes() > PIECE_BYTES
}

/// How much may wait for conversions, as copies outside of all pools.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldLimits {
    /// For one session, in bytes. The oldest records are dropped beyond.
    pub(crate) bytes: u64,
    /// For all sessions, in bytes.
    pub(crate) total_bytes: u64,
    /// How long a record waits at most, in ns.
    pub(crate) longest_ns: u64,
}

impl HoldLimits {
    /// The part of a record's longest wait within which others may join it in one item.
    const MERGE_PART: u64 = 16;

    /// How much later than an item's first record others may join it, in ns.
    pub(crate) fn merge_ns(&self) -> u64 {
        self.longest_ns / Self::MERGE_PART
    }
}

/// The batches that wait for conversions in all nodes.
#[derive(Debug)]
pub(crate) struct Holding {
    pub(crate) limits: HoldLimits,
    pub(crate) bytes: u64,
    /// When the oldest of it may have to be dropped, in ns.
    pub(crate) expires_ns: u64,
}

impl Holding {
    pub(crate) fn new(limits: HoldLimits) -> Holding {
        Holding { limits, bytes: 0, expires_ns: u64::MAX }
    }
}

/// There are more queues than buffers for them: each needs one at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyQueues {
    pub(crate) queues: usize,
    pub(crate) buffers: usize,
}

/// Buffers of one context for what its handlers make. 130 MiB of address space; only what is used is ever touched.
///
/// | class | count | for |
/// |---|---|---|
/// | 512 B | 4096 | single records on their way, through queues of 256 batches to a few contexts |
/// | 4 KiB | 1024 | small batches |
/// | 64 KiB | 1024 | full ones: three quarters of them in queues, the rest being made and delivered |
/// | 256 KiB, 1, 4, 16 MiB | 16, 8, 4, 2 | records that are longer than a packet, each alone |
pub(crate) fn pool() -> PoolConfig {
    let long = [(256 << 10, 16), (1 << 20, 8), (4 << 20, 4), (MAX_MESSAGE_BYTES, 2)];
    PoolConfig { classes: [(512, 4096), (4 << 10, 1024), (64 << 10, 1024)].into_iter().chain(long).collect() }
}

/// Large buffers of one context that may be in queues, of `own` that each context has, and `incoming` that an
/// I/O context has for published streams: these are also for what waits for subscribers.
pub(crate) fn queued_buffers(own: usize, incoming: usize) -> usize {
    (own / 4 * 3).min(incoming / 4)
}

/// Batches that may wait for all sessions, of `incoming` large buffers that an I/O context has, and `own` that it has for
/// what its nodes make.
pub(crate) fn session_batches(incoming: usize, own: usize) -> usize {
    incoming.min(own) / 4
}

/// Batches that may wait for a session from one of `streams` streams, `most` at most, where `batches` may wait for all
/// sessions: an even share, as sessions that read one stream wait for the same batches. The output of a node that
/// converts for sessions is a stream of its own here.
pub(crate) fn session_limit(batches: usize, streams: usize, most: usize) -> usize {
    (batches / streams.max(1)).min(most).max(LEAST_SESSION_QUEUE)
}

/// Large buffers that must be free before data of sessions is taken in, of `large` that an I/O context has. A packet ahead of
/// a hole is kept only while twice as many are, so that it leaves some to the packets that fill the hole.
pub(crate) fn needed_buffers(subscriptions: usize, large: usize) -> usize {
    (SPARE_BUFFERS + 2 * subscriptions).min(large / 4)
}

/// Large buffers, of `large` that an I/O context has, that packets to sessions leave free: acks arrive in them.
pub(crate) fn ack_buffers(large: usize) -> usize {
    (SPARE_BUFFERS / 2).min(large / 16)
}

/// The same for messages of mailboxes to their readers in sessions.
pub(crate) fn message_buffers(large: usize) -> usize {
    SPARE_BUFFERS.min(large / 4)
}

/// Large buffers, of `large` that a context has, that must be free before a batch is begun.
pub(crate) fn spare_buffers(large: usize) -> usize {
    SPARE_BUFFERS.min(large / 8)
}

/// Batches that may wait in each of `queues` queues of handlers, and in each of `crossings` edges by which published streams
/// cross to sessions only, `most` at most, where all queues together may hold `buffers` buffers of one context.
///
/// Crossings are as many as streams, so they are not refused: with more of them than buffers, each holds two batches, as a
/// session's queue does. Sessions take from them whatever else waits, so no two contexts wait for each other's buffers.
///
/// # Errors
/// There are fewer buffers than queues.
pub(crate) fn queue_limit(
    (queues, crossings): (usize, usize),
    buffers: usize,
    most: usize,
) -> Result<usize, TooManyQueues> {
    let share = |of: usize| buffers / of.next_power_of_two().max(LEAST_QUEUES);
    if buffers < queues {
        return Err(TooManyQueues { queues, buffers });
    }
    let limit = share(queues).clamp(1, most.max(1));
    Ok(limit.min(share(crossings).max(LEAST_SESSION_QUEUE)))
}
