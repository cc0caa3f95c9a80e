//! Where everything lies in a control segment: one client's rings, syncs and conditions, which only the daemon and that
//! client's process map.

use super::lane::LANE_WORDS;
use super::ring::{Descriptor, Entry, Signal};

/// Host conditions of a client.
pub(crate) const CONDITIONS: usize = 32;
/// Syncs that a client allocates and reads; and as many that the core does, which lie in no shared memory.
pub(crate) const SYNCS: usize = 256;
/// Ports of a client: 0 and 1 are its session, the others belong to mailboxes with rings.
pub(crate) const PORTS: usize = 64;
/// Slots of a port: buffers that the client may hold through it.
pub(crate) const SLOTS: usize = 256;
/// Entries of each ring of a port. Twice the slots: a slot has one entry under way in each direction at most, and the other
/// half is for answers that belong to no slot; so no ring can overflow.
pub(crate) const PORT_ENTRIES: usize = 2 * SLOTS;
/// The port number that stands for a client's signal queue, on both sides of the lane.
pub(crate) const SIGNALS: u16 = u16::MAX;
/// Buffers that a client may hold through its signal queues.
pub(crate) const SIGNAL_SLOTS: usize = 256;
/// Entries of each signal queue: more than twice its slots, since most signals belong to no slot.
pub(crate) const SIGNAL_ENTRIES: usize = 1024;

/// The host condition that is signalled when the core has sent something.
pub(crate) const ARRIVAL_CONDITION: u16 = 0;
/// The host condition that is signalled besides when the core has made an upcall.
pub(crate) const UPCALL_CONDITION: u16 = 1;
/// The first of the host conditions that a client hands out as it likes.
pub(crate) const FREE_CONDITION: u16 = 2;

/// Areas start on two cache lines: x86 fetches them in pairs.
const PADDING_BYTES: usize = 128;
/// Conditions and syncs have a cache line each: different threads wait on them.
const CELL_BYTES: usize = 64;
const PAGE_BYTES: usize = 4096;

const SIGNAL_RING_BYTES: usize = SIGNAL_ENTRIES * Signal::WORDS * 8;
const PORT_RING_BYTES: usize = PORT_ENTRIES * Descriptor::WORDS * 8;
/// From one port's ring to the next. Not a power of two: else the entries that a core looks at, port by port, would all
/// compete for the same few places of its cache.
const PORT_RING_STRIDE: usize = PORT_RING_BYTES + PADDING_BYTES;

const ARMED_AT: usize = 0;
/// One cache line, and the one that is fetched beside it.
const LANE_BYTES: usize = PADDING_BYTES;
const _: () = assert!(LANE_WORDS * 8 <= CELL_BYTES, "the lane is one line");
const LANE_AT: usize = ARMED_AT + PADDING_BYTES;
const CONDITIONS_AT: usize = LANE_AT + LANE_BYTES;
const CLIENT_SYNCS_AT: usize = CONDITIONS_AT + CONDITIONS * CELL_BYTES;
const SIGNAL_UP_AT: usize = CLIENT_SYNCS_AT + SYNCS * CELL_BYTES;
const SIGNAL_DOWN_AT: usize = SIGNAL_UP_AT + SIGNAL_RING_BYTES + PADDING_BYTES;
const PORTS_UP_AT: usize = SIGNAL_DOWN_AT + SIGNAL_RING_BYTES + PADDING_BYTES;
const PORTS_DOWN_AT: usize = PORTS_UP_AT + PORTS * PORT_RING_STRIDE;
const END: usize = PORTS_DOWN_AT + PORTS * PORT_RING_STRIDE;

/// Places in a control segment, in bytes from its start. Indices are taken modulo the number of places, so every place
/// lies inside; the receiver of an index checks whether it was valid.
pub(crate) struct ControlLayout;

impl ControlLayout {
    /// Length of a control segment.
    pub(crate) const BYTES: usize = END.next_multiple_of(PAGE_BYTES);

    /// The word by which a client asks for a byte in its wake pipe, and the one that it counts up while it runs.
    pub(crate) const fn armed() -> usize {
        ARMED_AT
    }

    /// The lane between the client and the core.
    pub(crate) const fn lane() -> usize {
        LANE_AT
    }

    /// Host condition `index`.
    pub(crate) const fn condition(index: usize) -> usize {
        CONDITIONS_AT + index % CONDITIONS * CELL_BYTES
    }

    /// Sync `index` of those that the client allocates and reads.
    pub(crate) const fn client_sync(index: usize) -> usize {
        CLIENT_SYNCS_AT + index % SYNCS * CELL_BYTES
    }

    /// The signal queue from the client to the core (the paper's CAB signal queue).
    pub(crate) const fn signal_up() -> usize {
        SIGNAL_UP_AT
    }

    /// The word by which the core says how many entries it has taken from [`ControlLayout::signal_up`]: behind that ring,
    /// where nothing else is.
    pub(crate) const fn signal_taken() -> usize {
        SIGNAL_UP_AT + SIGNAL_RING_BYTES
    }

    /// The signal queue from the core to the client (the paper's host signal queue).
    pub(crate) const fn signal_down() -> usize {
        SIGNAL_DOWN_AT
    }

    /// The ring from the client to the core of port `port`.
    pub(crate) const fn port_up(port: usize) -> usize {
        PORTS_UP_AT + port % PORTS * PORT_RING_STRIDE
    }

    /// The word by which the core says how many entries it has taken from the ring of the session's port to the core: behind that
    /// ring, where nothing else is.
    pub(crate) const fn session_taken() -> usize {
        PORTS_UP_AT + PORT_RING_BYTES
    }

    /// The ring from the core to the client of port `port`.
    pub(crate) const fn port_down(port: usize) -> usize {
        PORTS_DOWN_AT + port % PORTS * PORT_RING_STRIDE
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn areas_lie_apart_on_their_boundaries() {
        let mut areas = vec![(ControlLayout::armed(), 32), (ControlLayout::lane(), LANE_BYTES)];
        areas.extend((0..CONDITIONS).map(|at| (ControlLayout::condition(at), CELL_BYTES)));
        areas.extend((0..SYNCS).map(|at| (ControlLayout::client_sync(at), CELL_BYTES)));
        areas.push((ControlLayout::signal_up(), SIGNAL_RING_BYTES));
        areas.push((ControlLayout::signal_taken(), 8));
        areas.push((ControlLayout::signal_down(), SIGNAL_RING_BYTES));
        areas.push((ControlLayout::port_up(0), PORT_RING_BYTES));
        areas.push((ControlLayout::session_taken(), 8));
        areas.extend((1..PORTS).map(|port| (ControlLayout::port_up(port), PORT_RING_BYTES)));
        areas.extend((0..PORTS).map(|port| (ControlLayout::port_down(port), PORT_RING_BYTES)));
        for pair in areas.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?} overlap");
        }
        for &(at, bytes) in &areas {
            assert_eq!(at % if bytes == CELL_BYTES { CELL_BYTES } else { PADDING_BYTES }, 0, "{at}");
            assert!(at + bytes <= ControlLayout::BYTES);
        }
        for start in [ControlLayout::condition(0), ControlLayout::client_sync(0)] {
            assert_eq!(start % PADDING_BYTES, 0);
        }
        assert_eq!(ControlLayout::BYTES % PAGE_BYTES, 0);
    }

    #[test]
    fn every_index_there_could_be_lies_inside() {
        for index in [CONDITIONS, SYNCS, PORTS, usize::MAX] {
            assert!(ControlLayout::condition(index) < CLIENT_SYNCS_AT);
            assert!(ControlLayout::client_sync(index) < SIGNAL_UP_AT);
            assert!(ControlLayout::port_up(index) < PORTS_DOWN_AT);
            assert!(ControlLayout::port_down(index) + PORT_RING_BYTES <= ControlLayout::BYTES);
        }
    }
}
