//! The longest packet that the path of a session takes, found by probes (DPLPMTUD, RFC 8899).
//!
//! A session begins with the size that both sides agree on in the handshake. While a sender fills packets of that size, it sends
//! probes: packets of padding, which the other side answers. The longest one that it may try comes first, since most paths take
//! either that or less than a few bytes more; then the search halves what lies between. A lost probe says nothing about congestion.
//!
//! A path may also become narrower. Where packets are lost several times in a row and none of that length arrives between, the path
//! is a black hole for them (RFC 8899, 4.3): the size falls to one that nearly every path takes, and the search begins anew. Packets
//! that were numbered before go in parts from then on ([`crate::parts`]).

use std::io::IoSlice;

/// The size to which a search falls back, in bytes: what RFC 8899, 5.1.2, and RFC 9000, 14 presume of every path.
pub const BASE_BYTES: usize = 1200;
/// A search ends where what is left of it is so short, in bytes.
const GRAIN_BYTES: usize = 32;
/// Probes of one size that are lost before the path does not take it (MAX_PROBES).
const MAX_PROBES: u32 = 3;
/// Losses in a row that make a black hole.
const BLACK_HOLE_LOSSES: u32 = 3;
/// After how long a path is tried again with more, in ns (PMTU_RAISE_TIMER). The RFC has ten minutes; a search costs a few packets.
const RAISE_NS: u64 = 60_000_000_000;

/// The zeros of a probe.
static ZEROS: [u8; 4096] = [0; 4096];
/// Slices of padding that a probe has at most.
const MAX_PADDING: usize = (crate::packer::MAX_SUPER_BYTES - crate::header::HEADER_BYTES).div_ceil(ZEROS.len());

/// `bytes` bytes of padding, slice by slice.
fn padding(bytes: usize) -> impl Iterator<Item = &'static [u8]> {
    (0..bytes).step_by(ZEROS.len()).map(move |from| &ZEROS[..(bytes - from).min(ZEROS.len())])
}

/// The slices of a probe of `bytes` bytes in all behind its header, and how many of them it has.
pub fn probe(header: &[u8], bytes: usize) -> ([IoSlice<'_>; 1 + MAX_PADDING], usize) {
    let mut slices = [IoSlice::new(&[]); 1 + MAX_PADDING];
    slices[0] = IoSlice::new(header);
    let mut count = 1;
    for (slice, zeros) in slices[1..].iter_mut().zip(padding(bytes.saturating_sub(header.len()))) {
        *slice = IoSlice::new(zeros);
        count += 1;
    }
    (slices, count)
}

/// A probe to send: a packet of this length, with that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Its number, which the answer repeats.
    pub number: u64,
    /// Its length in bytes, header included.
    pub bytes: usize,
}

/// The counts of a search so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MtuStats {
    /// Probes sent.
    pub probes: u64,
    /// Times that the path had become a black hole.
    pub black_holes: u64,
}

#[derive(Clone, Copy, Debug)]
enum Search {
    /// Over until then, in ns, and until a packet of the size that was found leaves.
    Over { until_ns: u64 },
    /// A probe of that length is to be sent, after `lost` probes that were lost.
    Due { bytes: usize, lost: u32 },
    /// It was sent, after `lost` probes that were lost; it counts as lost at `until_ns`.
    Sent { bytes: usize, lost: u32, until_ns: u64 },
}

/// The packet size of a sender.
#[derive(Debug)]
pub(crate) struct PathMtu {
    /// The path takes it, in bytes.
    bytes: usize,
    least: usize,
    most: usize,
    /// The shortest that the path does not take, as far as this search knows.
    refused: Option<usize>,
    search: Search,
    /// A packet of the size has left since the last search.
    is_filled: bool,
    /// The number of the last probe, and of the first one of its length.
    number: u64,
    first_number: u64,
    /// Losses since a packet of the shortest lost length was acknowledged.
    losses: u32,
    shortest_lost: usize,
    stats: MtuStats,
}

impl PathMtu {
    /// A size of `bytes` at first, and of `most` at most; a `most` of 0 leaves it as it is.
    pub(crate) fn new(bytes: usize, most: usize) -> PathMtu {
        let least = if most == 0 { bytes } else { bytes.min(BASE_BYTES) };
        PathMtu {
            bytes,
            least,
            most: most & !7,
            refused: None,
            search: Search::Over { until_ns: 0 },
            is_filled: false,
            number: 0,
            first_number: 0,
            losses: 0,
            shortest_lost: usize::MAX,
            stats: MtuStats::default(),
        }
    }

    /// The size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn stats(&self) -> MtuStats {
        self.stats
    }

    /// A packet of `bytes` left. One that is nearly as long as it may be shows that longer ones are of use.
    #[inline]
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.is_filled |= bytes >= self.bytes / 4 * 3;
    }

    /// The probe to send now, if one is due; it counts as lost after `timeout_ns`.
    pub(crate) fn poll(&mut self, now_ns: u64, timeout_ns: u64) -> Option<Probe> {
        match self.search {
            Search::Over { until_ns } if now_ns >= until_ns && self.is_wanted() => {
                self.refused = None;
                self.search = Search::Due { bytes: self.most, lost: 0 };
            }
            Search::Sent { bytes, lost, until_ns } if now_ns >= until_ns => {
                let lost = lost + 1;
                self.search = Search::Due { bytes, lost };
                if lost >= MAX_PROBES {
                    self.refused = Some(bytes);
                    self.go_on(now_ns);
                }
            }
            _ => {}
        }
        let Search::Due { bytes, lost } = self.search else { return None };
        self.search = Search::Sent { bytes, lost, until_ns: now_ns.saturating_add(timeout_ns) };
        self.number += 1;
        if lost == 0 {
            self.first_number = self.number;
        }
        self.stats.probes += 1;
        Some(Probe { number: self.number, bytes })
    }

    /// When [`PathMtu::poll`] has something to do, in ns.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        match self.search {
            Search::Over { until_ns } => self.is_wanted().then_some(until_ns),
            Search::Due { .. } => Some(0),
            Search::Sent { until_ns, .. } => Some(until_ns),
        }
    }

    fn is_wanted(&self) -> bool {
        self.is_filled && self.bytes < self.most
    }

    /// The other side has got the probe of that number. Whether the size has grown.
    pub(crate) fn answered(&mut self, number: u64, now_ns: u64) -> bool {
        let Search::Sent { bytes, .. } = self.search else { return false };
        if !(self.first_number..=self.number).contains(&number) {
            return false;
        }
        self.bytes = bytes;
        self.go_on(now_ns);
        true
    }

    /// Tries what lies in the middle, or ends the search.
    fn go_on(&mut self, now_ns: u64) {
        let refused = self.refused.unwrap_or(self.bytes);
        let middle = ((self.bytes + refused) / 2) & !7;
        self.search = if refused <= self.bytes + GRAIN_BYTES || middle <= self.bytes {
            self.is_filled = false;
            Search::Over { until_ns: now_ns.saturating_add(RAISE_NS) }
        } else {
            Search::Due { bytes: middle, lost: 0 }
        };
    }

    /// A packet of `bytes` was acknowledged.
    #[inline]
    pub(crate) fn acked(&mut self, bytes: usize) {
        if bytes.min(self.bytes) >= self.shortest_lost {
            (self.losses, self.shortest_lost) = (0, usize::MAX);
        }
    }

    /// Packets were lost together, or nothing was heard of them for the probe time-out; the shortest of them had `bytes`. Whether
    /// the size has fallen.
    pub(crate) fn lost(&mut self, bytes: usize, now_ns: u64) -> bool {
        // A longer packet went in parts.
        let bytes = bytes.min(self.bytes);
        if bytes <= self.least {
            return false;
        }
        self.losses += 1;
        self.shortest_lost = self.shortest_lost.min(bytes);
        if self.losses < BLACK_HOLE_LOSSES {
            return false;
        }
        self.bytes = self.least;
        self.refused = Some(self.shortest_lost);
        (self.losses, self.shortest_lost) = (0, usize::MAX);
        self.stats.black_holes += 1;
        self.go_on(now_ns);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Searches over a path that takes `path` bytes, from `now_ns` on; the size, the probes, and the time at the end.
    fn search(mtu: &mut PathMtu, path: usize, mut now_ns: u64) -> (usize, u64, u64) {
        let before = mtu.stats().probes;
        while let Some(due_ns) = mtu.due_ns().filter(|due_ns| *due_ns < now_ns + 10 * SECOND) {
            now_ns = now_ns.max(due_ns);
            let Some(probe) = mtu.poll(now_ns, SECOND) else { continue };
            if probe.bytes <= path {
                now_ns += 1000;
                assert!(mtu.answered(probe.number, now_ns));
            }
        }
        (mtu.bytes(), mtu.stats().probes - before, now_ns)
    }

    #[test]
    fn a_size_is_raised_to_what_the_path_takes_once_packets_fill_it() {
        let mut mtu = PathMtu::new(1472, 65_472);
        assert_eq!(search(&mut mtu, 65_472, 0), (1472, 0, 0), "no packet has that length");
        mtu.sent(1000);
        assert_eq!(mtu.due_ns(), None);
        mtu.sent(1400);
        assert_eq!(search(&mut mtu, 65_472, 0), (65_472, 1, 1000), "the longest comes first");
        mtu.sent(65_472);
        assert_eq!(search(&mut mtu, 65_472, 100 * SECOND).1, 0, "there is nothing more to find");
    }

    #[test]
    fn the_search_halves_the_rest() {
        let mut mtu = PathMtu::new(1472, 65_472);
        mtu.sent(1472);
        let (bytes, probes, now_ns) = search(&mut mtu, 8972, 0);
        assert!((8972 - GRAIN_BYTES..=8972).contains(&bytes), "{bytes}");
        assert!(probes < 40, "{probes}");
        // The path takes more a minute later.
        mtu.sent(bytes);
        assert_eq!(mtu.poll(now_ns + RAISE_NS - 1, SECOND), None);
        assert_eq!(search(&mut mtu, 65_472, now_ns + RAISE_NS).0, 65_472);
    }

    #[test]
    fn a_black_hole_is_left_and_searched() {
        let mut mtu = PathMtu::new(1472, 1472);
        assert!(!mtu.lost(1472, 0) && !mtu.lost(1400, 0));
        mtu.acked(1300);
        assert!(!mtu.lost(900, 0), "short packets are lost for other reasons");
        assert!(mtu.lost(1472, 0));
        assert_eq!((mtu.bytes(), mtu.stats().black_holes), (BASE_BYTES, 1));
        let (bytes, _, now_ns) = search(&mut mtu, 1390, 0);
        assert!((1390 - GRAIN_BYTES..=1390).contains(&bytes), "{bytes}");
        mtu.sent(bytes);
        assert_eq!(search(&mut mtu, 1472, now_ns + RAISE_NS).0, 1472);
    }

    #[test]
    fn losses_between_arrivals_make_no_black_hole() {
        let mut mtu = PathMtu::new(1472, 1472);
        for _ in 0..100 {
            assert!(!mtu.lost(1472, 0) && !mtu.lost(1472, 0));
            mtu.acked(1472);
        }
        let mut fixed = PathMtu::new(1472, 0);
        fixed.sent(1472);
        assert!((0..100).all(|_| !fixed.lost(1472, 0)) && fixed.due_ns().is_none(), "a size that is stated stays");
    }

    #[test]
    fn padding_is_as_long_as_a_probe_wants_it() {
        for bytes in [0, 1, 4096, 4097, crate::packer::MAX_SUPER_BYTES - crate::header::HEADER_BYTES] {
            assert_eq!(padding(bytes).map(<[u8]>::len).sum::<usize>(), bytes);
            assert!(padding(bytes).count() <= MAX_PADDING);
        }
    }

    #[test]
    fn an_answer_to_another_probe_says_nothing() {
        let mut mtu = PathMtu::new(1472, 9000);
        mtu.sent(1472);
        let first = mtu.poll(0, SECOND).unwrap();
        assert!(!mtu.answered(first.number + 1, 1) && !mtu.answered(0, 1));
        let again = mtu.poll(SECOND, SECOND).unwrap();
        assert_eq!((again.bytes, again.number), (first.bytes, first.number + 1));
        assert!(mtu.answered(first.number, SECOND + 1), "it was late");
        assert!(!mtu.answered(again.number, SECOND + 2), "the search is over");
        assert_eq!(mtu.bytes(), 9000);
    }
}
