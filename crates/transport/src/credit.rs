//! Credit: how many bytes a receiver takes ahead of those consumed.
//!
//! A window is given in bytes, so that it means the same on every path, and counted in *units* of the session's packet size
//! ([`units`]): a packet takes as many as it is long ([`charge`]), and at least one, since it takes a buffer however short it is. So
//! a window bounds the memory of a receiver as well as the bytes on the way, also where records that are longer than a packet of
//! the path travel as one datagram each. Both sides know the packet size and a packet's length, so they count alike, and an ack
//! needs one number. A record that is longer than a window passes in several, as its receiver joins the pieces; what it holds of
//! them has a bound in bytes of its own ([`crate::pieces`]).
//!
//! A window of data grows while it is what holds the sender back, as TCP's does: where the owner consumes a whole window within two
//! round trips, it doubles, up to a stated bound. Charges are by the size that it had at first, which both sides know.
//!
//! Data and control share one sequence of packets, for acknowledgements and retransmission, but not one window: as in QUIC,
//! where flow control concerns streams and not the packets that carry control frames (RFC 9000, 4). A receiver that consumes no
//! data withholds the credit for data only, and control is sent all the same ([`crate::order`]). The window for control has a
//! fixed size, which bounds a receiver's memory against a peer that sends nothing but control; it is consumed as soon as the
//! messages are carried out.

/// The window of data with which a session begins, unless it is configured, in bytes.
pub const WINDOW_BYTES: u32 = 2 << 20;

/// The largest window of data, unless it is configured, in bytes: 100 MB/s over 150 ms.
pub const MAX_WINDOW_BYTES: u32 = 16 << 20;

/// Control packets that a receiver takes ahead of those carried out, if none is longer than the packet size with which the session
/// begins.
pub const CONTROL_WINDOW_PACKETS: u32 = 64;

/// The smallest window in units: with fewer packets on the way a sender waits for each ack.
pub const MIN_WINDOW_UNITS: u32 = 8;

/// The largest window in units: each packet ahead of a hole takes a place in a table, however large the window is in bytes.
pub const MAX_WINDOW_UNITS: u32 = 65_536;

/// A window of `window_bytes` bytes in units of a session's packet size, `packet_bytes`: [`MIN_WINDOW_UNITS`] at least.
#[must_use]
pub fn units(window_bytes: u32, packet_bytes: u32) -> u32 {
    (window_bytes / packet_bytes.max(1)).clamp(MIN_WINDOW_UNITS, MAX_WINDOW_UNITS)
}

/// The units that a packet of `bytes` bytes (header included) takes of a window of `window` units: one for each `packet_bytes`
/// begun. Never more than half of the window: a receiver announces new credit when half of it is used, so a sender that lacks more
/// than that would wait. A window is thus exceeded where it is smaller than two of the longest packets.
#[must_use]
pub fn charge(bytes: usize, packet_bytes: usize, window: u32) -> u32 {
    u32::try_from(bytes.div_ceil(packet_bytes.max(1))).unwrap_or(u32::MAX).min(window / 2).max(1)
}

/// The units that the packets of a unit or a run take: all of them are as long as each other, but for the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charge {
    /// A packet of it.
    pub(crate) each: u32,
    /// The last one.
    pub(crate) last: u32,
}

impl Charge {
    /// The last `packets` packets.
    pub(crate) fn of(self, packets: u64) -> u64 {
        packets.checked_sub(1).map_or(0, |others| others * u64::from(self.each) + u64::from(self.last))
    }
}

/// A receiver's window of one kind of traffic, in units.
#[derive(Debug)]
pub(crate) struct Window {
    size: u64,
    /// The size at first.
    first_size: u32,
    delivered: u64,
    consumed: u64,
    limit: u64,
    advertised: u64,
    /// When the last window was used up, in ns, and what was consumed by then.
    used_up: (u64, u64),
}

impl Window {
    pub(crate) fn new(units: u32) -> Window {
        let size = u64::from(units.max(1));
        Window {
            size,
            first_size: units.max(1),
            delivered: 0,
            consumed: 0,
            limit: size,
            advertised: size,
            used_up: (0, 0),
        }
    }

    /// The size by which charges are counted.
    pub(crate) fn first_size(&self) -> u32 {
        self.first_size
    }

    /// Doubles, to `most` units at most, if a window was used up within two round trips. By how many units it has grown.
    pub(crate) fn grow(&mut self, now_ns: u64, rtt_ns: u64, most: u64) -> u64 {
        let (since_ns, consumed) = self.used_up;
        if self.consumed - consumed < self.size {
            return 0;
        }
        self.used_up = (now_ns, self.consumed);
        if now_ns.saturating_sub(since_ns) >= 2 * rtt_ns {
            return 0;
        }
        let grown = (2 * self.size).min(most).saturating_sub(self.size);
        self.size += grown;
        self.limit = self.limit.max(self.consumed + self.size);
        grown
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Units delivered so far.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Units that the sender may still send.
    pub(crate) fn credit(&self) -> u64 {
        self.limit.saturating_sub(self.delivered)
    }

    pub(crate) fn deliver(&mut self, units: u64) {
        self.delivered += units;
    }

    /// The first `units` units were consumed: the credit reaches a window beyond them. It never shrinks. Whether the
    /// sender should be notified: before it runs dry, but not for every packet. No packet takes more than half a window, so a
    /// sender that waits for credit has less than that left.
    pub(crate) fn consumed_to(&mut self, units: u64) -> bool {
        self.consumed = self.consumed.max(units.min(self.delivered));
        self.limit = self.limit.max(self.consumed + self.size);
        self.limit - self.advertised >= (self.size / 4).max(1)
            && self.advertised.saturating_sub(self.delivered) <= self.size / 2
    }

    /// The number of units that will be taken in all, with which the sender is notified now.
    pub(crate) fn advertise(&mut self) -> u64 {
        self.advertised = self.limit;
        self.limit
    }
}

/// The credit that a sender has left of one kind of traffic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credit {
    window: u32,
    sent: u64,
    limit: u64,
}

impl Credit {
    pub(crate) fn new(window: u32) -> Credit {
        Credit { window, sent: 0, limit: window.into() }
    }

    /// The peer's window, in units.
    pub(crate) fn window(self) -> u32 {
        self.window
    }

    /// Packets of `charge` units each that may be sent now.
    pub(crate) fn packets(self, charge: u32) -> u32 {
        u32::try_from(self.limit.saturating_sub(self.sent) / u64::from(charge.max(1))).unwrap_or(u32::MAX)
    }

    /// Units sent so far.
    pub(crate) fn spent(self) -> u64 {
        self.sent
    }

    pub(crate) fn spend(&mut self, units: u64) {
        self.sent += units;
    }

    /// The receiver takes `limit` units in all. Acks may come out of order: it never shrinks.
    pub(crate) fn extend(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }
}
