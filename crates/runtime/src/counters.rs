//! Counters at every exit of the context.

use crate::graph::gauges::Histogram;
use crossdock_mailbox::host::ClientStatus;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Why something was dropped. Each reason has a counter in [`Counters`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum DropReason {
    /// Shorter than a header.
    PacketShort,
    /// Another version of the wire format.
    PacketVersion,
    /// A kind of packet this version does not know.
    PacketKind,
    /// A payload length that does not fit.
    PacketLength,
    /// A hello, ack or other fixed payload that does not parse.
    PacketPayload,
    /// A kind of packet that a daemon does not take.
    PacketUnexpected,
    /// No such session, or from another address.
    UnknownSession,
    /// An ack of something that was never sent.
    AckUnsent,
    /// It was there already.
    Duplicate,
    /// Beyond the credit that was given.
    BeyondCredit,
    /// No buffer was free; the sender sends it again.
    NoBuffer,
    /// The session table is full.
    SessionLimit,
    /// Data of a stream number that was not announced, or in another format.
    Unannounced,
    /// Records that are not what their format says.
    Malformed,
    /// Records of a stream without subscriptions.
    Unclaimed,
    /// Records a subscriber's query could not be applied to, because it does not fit their format, or because nothing
    /// converts that to one that the subscriber accepts.
    Unreadable,
    /// Records whose expressions failed.
    RowError,
    /// Records dropped by a subscriber's overflow policy.
    QueueFull,
    /// Results that are longer than a packet can be.
    TooLong,
    /// A send that the system refused.
    SendRefused,
    /// A control message that does not parse.
    BadControl,
    /// A piece of a message that is out of place, or of a message that is too long.
    BadPiece,
    /// A message for a mailbox that the session has not open for writing.
    NotOpen,
    /// Records that a conversion could not make: a value has no place in the next format.
    NotConvertible,
    /// Records that waited for a conversion, when too much did.
    HoldFull,
    /// Records for which no conversion came in time.
    HoldExpired,
    /// Records at which a subscription's query panicked, which is a flaw of the daemon.
    QueryFailed,
    /// Packets of another I/O context's session, which had not taken those that it was handed before.
    NotHandedOver,
    /// Records that a publisher sent before it began its present session, in which it sends them again.
    Superseded,
    /// In no envelope, from a network that is not trusted.
    PacketUnprotected,
    /// An envelope that is none, or none that a client sends.
    EnvelopeMalformed,
    /// An envelope, and this daemon has no keys.
    EnvelopeUnexpected,
    /// An envelope for keys that are not here.
    EnvelopeUnknown,
    /// An envelope that its keys do not open.
    EnvelopeUnauthentic,
    /// An envelope that has arrived before, or is too old to be sure.
    EnvelopeReplayed,
    /// A handshake with a cookie that is wrong or expired.
    HandshakeCookie,
    /// A handshake that was made for another daemon's key, or was changed.
    HandshakeInvalid,
    /// A handshake of a client whose key is not authorised.
    HandshakeUnknownKey,
    /// A handshake for which there is no place, or no time.
    HandshakeLimit,
    /// Datagrams for which there is no room: a subscriber of their stream holds publishers back, or a request of their session
    /// is not carried out yet.
    DatagramRefused,
    /// Packets in parts, some of whose parts did not come.
    PartsMissing,
    /// Routed packets without a route's header, or with nothing behind it.
    RouteMalformed,
    /// Routed packets with a node twice in their route.
    RouteLoop,
    /// Routed packets to a node that is no neighbour.
    RouteUnknownHop,
    /// Routed packets that the access rules do not let their hop send on.
    RouteForbidden,
    /// Routed packets for another node, or from another than the hop before.
    RouteMisplaced,
    /// Routed packets for a neighbour or a client with which there are no keys now.
    RouteUnreachable,
}

const NAMES: [&str; 47] = [
    "packet_short",
    "packet_version",
    "packet_kind",
    "packet_length",
    "packet_payload",
    "packet_unexpected",
    "unknown_session",
    "ack_of_unsent",
    "packet_duplicate",
    "packet_beyond_credit",
    "packet_no_buffer",
    "session_limit",
    "packet_unannounced_stream",
    "record_malformed",
    "record_unclaimed",
    "record_unreadable",
    "record_row_error",
    "record_queue_full",
    "record_too_long",
    "send_refused",
    "control_malformed",
    "packet_bad_piece",
    "message_not_open",
    "record_not_convertible",
    "record_hold_full",
    "record_hold_expired",
    "record_query_failed",
    "packet_not_handed_over",
    "record_superseded",
    "packet_unprotected",
    "envelope_malformed",
    "envelope_unexpected",
    "envelope_unknown_keys",
    "envelope_unauthentic",
    "envelope_replayed",
    "handshake_cookie",
    "handshake_invalid",
    "handshake_unknown_key",
    "handshake_limit",
    "packet_datagram_refused",
    "packet_parts_missing",
    "route_malformed",
    "route_loop",
    "route_unknown_hop",
    "route_forbidden",
    "route_misplaced",
    "route_unreachable",
];

/// The traffic of attached clients.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientTotals {
    pub(crate) messages_in: u64,
    pub(crate) messages_out: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) waits: u64,
}

impl ClientTotals {
    pub(crate) fn add(&mut self, client: &ClientStatus) {
        self.messages_in += client.messages_in;
        self.messages_out += client.messages_out;
        self.bytes_in += client.bytes_in;
        self.bytes_out += client.bytes_out;
        self.waits += client.waits;
    }
}

/// When the gauges of queues and buffers were last updated, which takes too long to be done each turn.
#[derive(Debug, Default)]
pub(crate) struct Levels {
    noted_ns: u64,
    /// Whether something has happened since.
    is_stale: bool,
}

impl Levels {
    /// Between two times that it is done, in ns.
    const PAUSE_NS: u64 = 10_000_000;

    /// Something has happened, if `has_worked`.
    #[inline]
    pub(crate) fn note_work(&mut self, has_worked: bool) {
        self.is_stale |= has_worked;
    }

    /// In how many ns they are to be updated; 0: now, which counts as done. Nothing if nothing has happened.
    #[inline]
    pub(crate) fn due_in_ns(&mut self, now_ns: u64) -> Option<u64> {
        if !self.is_stale {
            return None;
        }
        let left_ns = (self.noted_ns + Levels::PAUSE_NS).saturating_sub(now_ns);
        if left_ns == 0 {
            *self = Levels { noted_ns: now_ns, is_stale: false };
        }
        Some(left_ns)
    }
}

/// A count for each reason.
#[derive(Debug)]
struct ByReason([u64; NAMES.len()]);

impl Default for ByReason {
    fn default() -> ByReason {
        ByReason([0; NAMES.len()])
    }
}

/// Everything a context counts for itself.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) turns: u64,
    pub(crate) busy_turns: u64,
    pub(crate) sleeps: u64,
    /// Packets that were sent for the first time, and again.
    pub(crate) packets_out: u64,
    pub(crate) packets_resent: u64,
    /// Routed packets that were handed on.
    pub(crate) packets_routed: u64,
    /// Packets of datagrams that were taken, and those that are missing between them.
    pub(crate) datagrams_in: u64,
    pub(crate) datagrams_missing: u64,
    pub(crate) records_in: u64,
    /// Records that came in pieces and were joined, here or where a node read one.
    pub(crate) messages_joined: Arc<AtomicU64>,
    /// Records that joined the queues of subscribers, and those of them that were dropped from the queues.
    pub(crate) records_out: u64,
    pub(crate) records_unsent: u64,
    pub(crate) batches_whole: u64,
    /// Batches that came in this turn and were given to subscriptions.
    pub(crate) batches_given: u64,
    /// Time from requests for subscriptions until they stood.
    pub(crate) subscribe_time: Histogram,
    /// Attached clients that have gone.
    pub(crate) gone: ClientTotals,
    dropped: ByReason,
    /// Attached clients that left or were disconnected, by reason.
    detached: BTreeMap<&'static str, u64>,
}

impl Counters {
    #[inline]
    pub(crate) fn drop(&mut self, reason: DropReason, count: u64) {
        self.dropped.0[reason as usize] += count;
    }

    /// Counts an attached client that is gone.
    pub(crate) fn detach(&mut self, reason: &'static str) {
        *self.detached.entry(reason).or_default() += 1;
    }

    /// Why attached clients went, in name order.
    pub(crate) fn detached(&self) -> Vec<(String, u64)> {
        self.detached.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect()
    }

    /// The reasons that occurred.
    pub(crate) fn dropped(&self) -> Vec<(String, u64)> {
        let pairs = NAMES.iter().zip(self.dropped.0).filter(|(_, count)| *count > 0);
        pairs.map(|(name, count)| ((*name).to_owned(), count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_name() {
        let mut counters = Counters::default();
        counters.drop(DropReason::PacketShort, 1);
        counters.drop(DropReason::QueryFailed, 2);
        assert_eq!(DropReason::RouteUnreachable as usize, NAMES.len() - 1);
        assert_eq!(counters.dropped(), [("packet_short".to_owned(), 1), ("record_query_failed".to_owned(), 2)]);
    }
}
