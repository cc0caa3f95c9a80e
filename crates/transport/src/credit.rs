//! Credit: how many packets a receiver takes ahead of those consumed.
//!
//! Credit is counted in packets, since buffers are what a receiver runs out of: a packet takes one, however short it is. Packets have a
//! longest length, so a window bounds the bytes in flight too, to 2 MiB with the 256 packets of 8 KiB that a daemon gives over
//! loopback by default. A record that is longer than a window passes in several, as its receiver joins the pieces; what it holds of
//! them has a bound in bytes of its own ([`crate::pieces`]).
//!
//! Data and control share one sequence of packets, for acknowledgements and retransmission, but not one window: as in QUIC,
//! where flow control concerns streams and not the packets that carry control frames (RFC 9000, 4). A receiver that consumes no
//! data withholds the credit for data only, and control is sent all the same ([`crate::order`]). The window for control has a
//! fixed size, which bounds a receiver's memory against a peer that sends nothing but control; it is consumed as soon as the
//! messages are carried out.

/// Control packets that a receiver takes ahead of those carried out.
pub const CONTROL_WINDOW_PACKETS: u32 = 64;

/// A receiver's window of one kind of traffic, in packets.
#[derive(Debug)]
pub(crate) struct Window {
    size: u64,
    delivered: u64,
    limit: u64,
    advertised: u64,
}

impl Window {
    pub(crate) fn new(packets: u32) -> Window {
        let size = u64::from(packets.max(1));
        Window { size, delivered: 0, limit: size, advertised: size }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Packets delivered so far.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Packets that the sender may still send.
    pub(crate) fn credit(&self) -> u64 {
        self.limit.saturating_sub(self.delivered)
    }

    pub(crate) fn deliver(&mut self, packets: u64) {
        self.delivered += packets;
    }

    /// The first `packets` packets were consumed: the credit reaches a window beyond them. It never shrinks. Whether the
    /// sender should be notified: before it runs dry, but not for every packet.
    pub(crate) fn consumed_to(&mut self, packets: u64) -> bool {
        self.limit = self.limit.max(packets.min(self.delivered) + self.size);
        self.limit - self.advertised >= (self.size / 4).max(1)
            && self.advertised.saturating_sub(self.delivered) <= self.size / 2
    }

    /// The number of packets that will be taken in all, with which the sender is notified now.
    pub(crate) fn advertise(&mut self) -> u64 {
        self.advertised = self.limit;
        self.limit
    }
}

/// What a sender may still send of one kind of traffic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credit {
    sent: u64,
    limit: u64,
}

impl Credit {
    pub(crate) fn new(packets: u32) -> Credit {
        Credit { sent: 0, limit: packets.into() }
    }

    /// Packets that may be sent now.
    pub(crate) fn packets(self) -> u32 {
        u32::try_from(self.limit.saturating_sub(self.sent)).unwrap_or(u32::MAX)
    }

    pub(crate) fn spend(&mut self, packets: u64) {
        self.sent += packets;
    }

    /// The receiver takes `limit` packets in all. Acks may come out of order: it never shrinks.
    pub(crate) fn extend(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }
}
