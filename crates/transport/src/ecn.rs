//! Explicit congestion notification (RFC 3168), as QUIC has it (RFC 9000, 13.4).
//!
//! The packets of a session's sequence and its datagrams leave as ECT(0). A queue that grows marks them instead of dropping them; the
//! receiver counts the marks and reports the counts with its acks, and the sender slows down as after a loss, with nothing to send
//! again. Paths may clear the bits, set them on everything, or drop what has them: a sender whose counts do not fit what was
//! acknowledged marks nothing any more.

/// Not capable of ECN: the two lowest bits of the traffic class in an IP header.
pub const NOT_ECT: u8 = 0b00;
/// Capable of it.
pub const ECT_0: u8 = 0b10;
/// Congestion was experienced.
pub const CE: u8 = 0b11;

/// Packets after which a path is known to carry the bits; if it has marked all of these, it marks whatever it carries.
const TEST_PACKETS: u64 = 10;
/// Probe time-outs before the first acknowledgement, after which the path is taken to drop what has the bits.
const FIRST_TIMEOUTS: u32 = 2;
/// The same later on, in a row: another route may drop what the first one carried.
const LATER_TIMEOUTS: u32 = 4;

/// The packets of a session that arrived with these bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EcnCounts {
    /// As they were sent: ECT(0).
    pub ect_0: u64,
    /// Marked: CE.
    pub ce: u64,
}

impl EcnCounts {
    /// Counts `packets` packets with these bits. ECT(1) is not sent, and counts as neither.
    #[inline]
    pub fn note(&mut self, bits: u8, packets: u64) {
        match bits {
            ECT_0 => self.ect_0 += packets,
            CE => self.ce += packets,
            _ => {}
        }
    }

    fn sum(self) -> u64 {
        self.ect_0.saturating_add(self.ce)
    }
}

/// The bits of a packet whose parts have come with these: it is marked if one of them is.
#[must_use]
pub fn joined(one: u8, other: u8) -> u8 {
    match (one, other) {
        (CE, _) | (_, CE) => CE,
        (one, other) if one == other => one,
        _ => NOT_ECT,
    }
}

/// Whether a path is known to carry the bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnState {
    /// It is being found out.
    Testing,
    /// It carries them.
    Capable,
    /// It does not: packets leave without them.
    Failed,
}

/// Whether the path of a sender carries the bits.
#[derive(Debug)]
pub(crate) struct Validation {
    state: EcnState,
    /// The newest report.
    counts: EcnCounts,
    /// Packets that were acknowledged, each as often as that.
    acked: u64,
    /// Behind the highest packet and the highest datagram of the newest report.
    top: (u64, u64),
}

impl Validation {
    pub(crate) fn new() -> Validation {
        Validation { state: EcnState::Testing, counts: EcnCounts::default(), acked: 0, top: (0, 0) }
    }

    /// Whether packets are to leave as ECT(0).
    pub(crate) fn marks(&self) -> bool {
        self.state != EcnState::Failed
    }

    /// The state of the path.
    pub(crate) fn state(&self) -> EcnState {
        self.state
    }

    /// The packets that were reported as marked.
    pub(crate) fn marked(&self) -> u64 {
        self.counts.ce
    }

    /// Takes an ack that acknowledges `packets` packets for the first time and reaches up to `top`, after `sent` transmissions. The
    /// number of packets that are reported as marked for the first time.
    pub(crate) fn acked(&mut self, packets: u64, report: EcnCounts, top: (u64, u64), sent: u64) -> u64 {
        self.acked += packets;
        // An ack that was overtaken has older counts.
        let is_newest = top.0 > self.top.0 || top.1 > self.top.1;
        if self.state == EcnState::Failed || !is_newest {
            return 0;
        }
        self.top = top;
        // A path may double packets, but not all of them for long.
        let fits = (self.acked..=sent.saturating_mul(2)).contains(&report.sum())
            && report.ect_0 >= self.counts.ect_0
            && report.ce >= self.counts.ce;
        let is_tested = report.sum() >= TEST_PACKETS;
        if !fits || (self.state == EcnState::Testing && is_tested && report.ect_0 == 0) {
            self.state = EcnState::Failed;
            return 0;
        }
        if is_tested {
            self.state = EcnState::Capable;
        }
        let before = std::mem::replace(&mut self.counts, report);
        report.ce - before.ce
    }

    /// Nothing was heard for the probe time-out, so often in a row.
    pub(crate) fn timed_out(&mut self, times: u32) {
        let most = if self.acked == 0 { FIRST_TIMEOUTS } else { LATER_TIMEOUTS };
        if times >= most {
            self.state = EcnState::Failed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(ect_0: u64, ce: u64) -> EcnCounts {
        EcnCounts { ect_0, ce }
    }

    #[test]
    fn marks_are_reported_once() {
        let mut path = Validation::new();
        assert_eq!(path.acked(5, counts(5, 0), (5, 0), 20), 0);
        assert_eq!(path.acked(5, counts(8, 2), (10, 0), 20), 2);
        assert_eq!(path.acked(0, counts(5, 0), (5, 0), 20), 0, "it was overtaken");
        assert_eq!(path.acked(6, counts(10, 6), (10, 6), 20), 4);
        assert!(path.marks());
        assert_eq!(path.marked(), 6);
    }

    #[test]
    fn a_path_that_spoils_the_bits_is_not_marked_on() {
        let fails = |reports: &[(u64, EcnCounts)]| {
            let (mut path, mut top) = (Validation::new(), 0);
            let marked: u64 = reports
                .iter()
                .map(|(packets, counts)| {
                    top += packets;
                    path.acked(*packets, *counts, (top, 0), 100)
                })
                .sum();
            (path.marks(), marked)
        };
        assert_eq!(fails(&[(5, counts(0, 0))]), (false, 0), "it clears them");
        assert_eq!(fails(&[(5, counts(5, 0)), (5, counts(7, 0))]), (false, 0), "it clears some");
        assert_eq!(fails(&[(10, counts(0, 10))]), (false, 0), "it marks all");
        assert_eq!(fails(&[(10, counts(201, 0))]), (false, 0), "more have come than were sent");
        assert_eq!(fails(&[(10, counts(u64::MAX, u64::MAX))]), (false, 0));
        assert_eq!(fails(&[(5, counts(1, 4)), (5, counts(10, 3))]), (false, 4), "a mark was withdrawn");
        assert_eq!(fails(&[(5, counts(20, 0)), (5, counts(20, 1))]), (true, 1), "some came twice");
    }

    #[test]
    fn a_path_that_drops_what_has_the_bits_gets_packets_without() {
        let mut path = Validation::new();
        path.timed_out(1);
        assert!(path.marks());
        path.timed_out(2);
        assert!(!path.marks());
        let mut path = Validation::new();
        path.acked(1, counts(1, 0), (1, 0), 1);
        (0..10).for_each(|_| path.timed_out(LATER_TIMEOUTS - 1));
        assert!(path.marks(), "it has carried some, and answers come between");
        path.timed_out(LATER_TIMEOUTS);
        assert!(!path.marks(), "it carries none any more");
    }

    #[test]
    fn a_packet_is_marked_if_a_part_is() {
        assert_eq!(joined(ECT_0, ECT_0), ECT_0);
        assert_eq!((joined(ECT_0, CE), joined(CE, NOT_ECT)), (CE, CE));
        assert_eq!(joined(ECT_0, NOT_ECT), NOT_ECT);
    }
}
