//! The activity of a stream, in all contexts. Any of them may change and read it.

use crate::graph::{ContextIndex, MAX_CONTEXTS};
use crate::publications::{Taken, TakenCount};
use crossdock_transport::control::{MAX_LISTED, Position, PublisherId, PublisherPosition};
use sha2::{Digest, Sha256};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Publishers that are known to be there at most; a stream with more has subscribers that count less of what they miss.
const MAX_PUBLISHERS: usize = 1024;
/// Publishers that have ended and are remembered: a subscriber may not have heard of them yet.
const MAX_ENDED: usize = 16;
/// How often a position is read until no record is counted meanwhile. Counting takes a few instructions.
const MAX_READINGS: u32 = 20;

/// The activity of a stream.
#[derive(Debug)]
pub(crate) struct Activity {
    /// Identifies the count of records.
    epoch: u64,
    publishers: AtomicU32,
    /// I/O contexts with subscriptions, or with sessions that listen for wanted conversions.
    readers: AtomicU32,
    subscriptions: AtomicU32,
    /// Those among them that accept certain formats only.
    accepting: AtomicU32,
    /// The I/O contexts that have counted records of the stream, a bit each.
    counted_at: AtomicU64,
    records: AtomicU64,
    /// The number of the first of them, where an earlier daemon's checkpoint says how many came before.
    first_number: AtomicU64,
    /// The same with those that are just being counted, in `records` and for their publisher.
    begun: AtomicU64,
    /// When the latest records came, in ns of the daemon's clock.
    latest_ns: AtomicU64,
    /// How often a publisher has come or gone.
    changes: AtomicU64,
    /// The publishers that say who they are. Locked when one comes or goes, and about once a second for a subscription.
    known: Mutex<Vec<Known>>,
}

const _: () = assert!(MAX_CONTEXTS <= u64::BITS as usize, "contexts are bits of a word");

/// The id under which a publisher is listed for subscribers: the same at each daemon, and not the publisher's own, since whoever
/// knows that can go on in the publisher's place.
fn listed(publisher: PublisherId) -> PublisherId {
    let digest: [u8; 32] = Sha256::digest(publisher.0.to_le_bytes()).into();
    PublisherId(digest.first_chunk().map_or(0, |bytes| u128::from_le_bytes(*bytes)))
}

/// A publisher that says who it is.
#[derive(Debug)]
struct Known {
    /// As it is listed.
    publisher: PublisherId,
    began: u64,
    count: Arc<TakenCount>,
    ended: bool,
}

impl Known {
    fn position(&self) -> PublisherPosition {
        let Known { publisher, began, ended, .. } = *self;
        PublisherPosition { publisher, began, position: self.count.get(), ended }
    }
}

impl Default for Activity {
    fn default() -> Activity {
        Activity {
            epoch: fastrand::u64(..),
            publishers: AtomicU32::new(0),
            readers: AtomicU32::new(0),
            subscriptions: AtomicU32::new(0),
            accepting: AtomicU32::new(0),
            counted_at: AtomicU64::new(0),
            records: AtomicU64::new(0),
            first_number: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            latest_ns: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            known: Mutex::default(),
        }
    }
}

impl Activity {
    /// A session publishes the stream from now on.
    pub(super) fn begin_publishing(&self) {
        self.publishers.fetch_add(1, Ordering::Relaxed);
    }

    /// A session that published the stream does so no longer.
    pub(crate) fn end_publishing(&self) {
        self.publishers.fetch_sub(1, Ordering::Relaxed);
    }

    /// This number of I/O contexts use the stream now.
    pub(super) fn set_readers(&self, readers: u32) {
        self.readers.store(readers, Ordering::Relaxed);
    }

    /// Whether an I/O context uses the stream.
    pub(super) fn is_used(&self) -> bool {
        self.readers.load(Ordering::Relaxed) > 0
    }

    /// A subscription to the stream stands from now on, which may accept certain formats only.
    pub(crate) fn begin_subscription(&self, accepts: bool) {
        self.subscriptions.fetch_add(1, Ordering::Relaxed);
        self.accepting.fetch_add(accepts.into(), Ordering::Relaxed);
    }

    /// A subscription to the stream has ended.
    pub(crate) fn end_subscription(&self, accepts: bool) {
        self.subscriptions.fetch_sub(1, Ordering::Relaxed);
        self.accepting.fetch_sub(accepts.into(), Ordering::Relaxed);
    }

    /// Whether a subscription accepts certain formats only: then it has a route from each version.
    pub(super) fn has_routes(&self) -> bool {
        self.accepting.load(Ordering::Relaxed) > 0
    }

    /// Subscriptions to the stream.
    pub(crate) fn subscriptions(&self) -> u32 {
        self.subscriptions.load(Ordering::Relaxed)
    }

    /// An I/O context counts records of the stream from now on.
    pub(crate) fn begin_counting(&self, at: ContextIndex) {
        self.counted_at.fetch_or(1 << at.0, Ordering::Relaxed);
    }

    /// Whether an I/O context has counted records of the stream: it knows their rate and some of them.
    pub(crate) fn is_counted_at(&self, at: ContextIndex) -> bool {
        self.counted_at.load(Ordering::Relaxed) & 1 << at.0 != 0
    }

    /// Counts records that are about to be given to the stream's readers, also in the count of their publication; `false` if the
    /// publisher has a later session, and they may not be.
    #[inline]
    #[must_use]
    pub(crate) fn take(&self, records: u64, publication: Option<&TakenCount>, now_ns: u64) -> bool {
        // A reader that sees one of the later changes sees those before it, too: `position` rests on that.
        self.begun.fetch_add(records, Ordering::Relaxed);
        if publication.is_some_and(|count| !count.add(records)) {
            self.begun.fetch_sub(records, Ordering::Relaxed);
            return false;
        }
        self.records.fetch_add(records, Ordering::Release);
        self.latest_ns.store(now_ns, Ordering::Relaxed);
        true
    }

    /// Counts records that handlers made.
    pub(crate) fn note(&self, records: u64, now_ns: u64) {
        let is_counted = self.take(records, None, now_ns);
        debug_assert!(is_counted, "no publication refuses them");
    }

    /// Records that were counted were found to be none, and are given to nobody.
    pub(crate) fn untake(&self, records: u64) {
        self.records.fetch_sub(records, Ordering::Relaxed);
        self.begun.fetch_sub(records, Ordering::Relaxed);
    }

    /// Sessions that publish the stream.
    pub(crate) fn publishers(&self) -> u32 {
        self.publishers.load(Ordering::Relaxed)
    }

    /// Records that were published since the daemon's start, and when the latest came, in ns of its clock.
    pub(crate) fn records(&self) -> (u64, u64) {
        (self.records.load(Ordering::Relaxed), self.latest_ns.load(Ordering::Relaxed))
    }

    /// The number of the next record, over all daemons that began with a checkpoint of the one before.
    pub(crate) fn next_number(&self) -> u64 {
        self.first_number().saturating_add(self.records.load(Ordering::Relaxed))
    }

    /// The number of the first record of this daemon.
    pub(crate) fn first_number(&self) -> u64 {
        self.first_number.load(Ordering::Relaxed)
    }

    /// The daemon begins with a checkpoint, before which that many records had come.
    pub(super) fn begin_at(&self, number: u64) {
        self.first_number.store(number, Ordering::Relaxed);
    }

    /// A session brings the records of a publisher from now on.
    pub(crate) fn begin_publication(&self, taken: &Taken) {
        let publisher = listed(taken.publisher);
        let mut known = self.known();
        known.retain(|known| known.publisher != publisher);
        if known.iter().filter(|known| !known.ended).count() < MAX_PUBLISHERS {
            let (began, count) = (taken.began, Arc::clone(&taken.count));
            known.push(Known { publisher, began, count, ended: false });
        }
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// The session that brought these has ended.
    pub(crate) fn end_publication(&self, taken: &Taken) {
        let mut known = self.known();
        // The publisher may have begun another session.
        let found = known.iter().position(|known| Arc::ptr_eq(&known.count, &taken.count) && !known.ended);
        let Some(mut ended) = found.map(|at| known.remove(at)) else { return };
        ended.ended = true;
        known.push(ended);
        if known.iter().filter(|known| known.ended).count() > MAX_ENDED
            && let Some(oldest) = known.iter().position(|known| known.ended)
        {
            known.remove(oldest);
        }
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// The version that changes whenever [`Activity::position`] does.
    pub(crate) fn version(&self) -> (u64, u64) {
        (self.records.load(Ordering::Relaxed), self.changes.load(Ordering::Relaxed))
    }

    /// How far the stream has come, and whether the counts of the stream and of its publishers are of one moment: a context that counts
    /// records may have been interrupted there. The records that a query has left out are for its subscription to add.
    pub(crate) fn position(&self) -> (Position, bool) {
        let known = self.known();
        let (there, ended): (Vec<&Known>, Vec<&Known>) = known.iter().partition(|known| !known.ended);
        // With those that do not say who they are.
        let unlisted = self.publishers().saturating_sub(there.len().min(MAX_LISTED) as u32);
        let listed: Vec<&Known> = there.into_iter().chain(ended).take(MAX_LISTED).collect();
        let mut position = Position {
            epoch: self.epoch,
            passed: 0,
            number: None,
            left_out: None,
            publishers: Vec::with_capacity(listed.len()),
            unlisted,
        };
        let is_exact = (0..MAX_READINGS).any(|_| {
            position.passed = self.records.load(Ordering::Acquire);
            position.publishers.clear();
            position.publishers.extend(listed.iter().map(|known| known.position()));
            // All that had been begun by now was in the first count already.
            self.begun.load(Ordering::Relaxed) == position.passed
        });
        (position, is_exact)
    }

    fn known(&self) -> MutexGuard<'_, Vec<Known>> {
        // Nothing that is done under the lock can be half-done.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publications::Publications;
    use crossdock_transport::control::Publication;
    use std::time::Instant;

    #[test]
    fn a_position_lists_publishers_that_are_there_before_those_that_have_gone() {
        let (activity, mut publications) = (Activity::default(), Publications::default());
        let id = |number| listed(PublisherId(number)).0;
        assert_ne!(id(1), 1, "a subscriber could go on in its place");
        let mut begin = |number: u128, first| {
            let of = Publication { publisher: PublisherId(number), first };
            let taken = publications.resume("A", of, Instant::now());
            activity.begin_publishing();
            activity.begin_publication(&taken);
            taken
        };
        let (one, two) = (begin(1, 0), begin(2, 40));
        assert!(activity.take(5, Some(&one.count), 1) && activity.take(2, Some(&two.count), 1));
        activity.end_publication(&one);
        let position = activity.position().0;
        let listed: Vec<_> =
            position.publishers.iter().map(|p| (p.publisher.0, p.began, p.position, p.ended)).collect();
        assert_eq!((position.passed, listed), (7, vec![(id(2), 40, 42, false), (id(1), 0, 5, true)]));
        // It comes back: where it began at this daemon stays, and its session before ends nothing any more.
        let again = begin(1, 5);
        activity.end_publication(&one);
        assert!(activity.take(1, Some(&again.count), 1) && !activity.take(1, Some(&one.count), 1));
        let listed = activity.position().0.publishers;
        assert!(
            listed.iter().any(|p| (p.publisher.0, p.began, p.position, p.ended) == (id(1), 0, 6, false)),
            "{listed:?}"
        );
        // The lists are bounded.
        let many: Vec<Taken> = (10..10 + 2 * MAX_PUBLISHERS as u128).map(|number| begin(number, 0)).collect();
        let position = activity.position().0;
        assert_eq!(
            (position.publishers.len(), position.unlisted as usize),
            (MAX_LISTED, 3 + 2 * MAX_PUBLISHERS - MAX_LISTED)
        );
        many.iter().for_each(|taken| activity.end_publication(taken));
        assert_eq!(activity.position().0.publishers.len(), 2 + MAX_ENDED);
        assert_ne!(Activity::default().epoch, activity.epoch);
    }

    #[test]
    fn a_position_has_the_counts_of_one_moment() {
        const TAKEN: u64 = 200_000;
        let (activity, mut publications) = (Activity::default(), Publications::default());
        let mut begin = |number| {
            let of = Publication { publisher: PublisherId(number), first: 0 };
            let taken = publications.resume("A", of, Instant::now());
            activity.begin_publication(&taken);
            taken
        };
        let publishers = [begin(1), begin(2)];
        let passed = std::thread::scope(|scope| {
            for publisher in &publishers {
                let take = || (0..TAKEN).all(|_| activity.take(3, Some(&publisher.count), 1));
                scope.spawn(move || assert!(take()));
            }
            let mut passed = 0;
            while passed < 2 * 3 * TAKEN {
                let (position, true) = activity.position() else { continue };
                let of_publishers: u64 = position.publishers.iter().map(|publisher| publisher.position).sum();
                assert_eq!(of_publishers, position.passed);
                passed = position.passed;
            }
            passed
        });
        activity.untake(3);
        assert_eq!((passed, activity.records().0), (2 * 3 * TAKEN, passed - 3));
        assert_eq!(activity.position().0.passed, passed - 3);
    }
}
