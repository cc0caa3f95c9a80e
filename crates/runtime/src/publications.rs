//! How many records of each publisher were taken, over all of its sessions, so that those which come again after a lost
//! session are not taken twice: a publisher gets the number in reply when it announces its stream, and sends from there on.
//!
//! The table is the catalog's. A session has the count of what it publishes, and adds to it without a lock. A publisher that
//! announces its stream again, wherever that is, ends the count of its session before: what of that is still on its way is
//! refused, since the publisher sends it again.

use crossdock_transport::control::{Publication, PublisherId};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Publications that are remembered at most, those of sessions that stand included; each about 100 bytes and its
/// stream's name. If all of them have sessions, further ones are not remembered.
const MAX_PUBLICATIONS: usize = 16_384;
/// For how long one is remembered that no session has: a publisher comes back at the latest 1 s after its daemon can be reached.
const REMEMBERED: Duration = Duration::from_secs(900);

/// The bit of a count that is closed; the others are the number.
const CLOSED: u64 = 1 << 63;

/// How many records were taken of a publication.
#[derive(Debug)]
pub(crate) struct TakenCount {
    taken: AtomicU64,
    /// Those of them that are in a checkpoint on disk, and what the publisher was last notified of.
    durable: AtomicU64,
    notified: AtomicU64,
}

impl TakenCount {
    fn new(taken: u64, durable: u64) -> TakenCount {
        let (durable, notified) = (AtomicU64::new(durable), AtomicU64::new(durable));
        TakenCount { taken: AtomicU64::new(taken & !CLOSED), durable, notified }
    }

    /// How many are in a checkpoint on disk.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Relaxed)
    }

    /// The same, if its publisher was not notified of that.
    pub(crate) fn durable_change(&self) -> Option<u64> {
        let durable = self.durable();
        (self.notified.swap(durable, Ordering::Relaxed) != durable).then_some(durable)
    }

    /// Counts records that are about to be taken; `false` if the publisher has a later session, and they may not be.
    #[inline]
    #[must_use]
    pub(crate) fn add(&self, records: u64) -> bool {
        // The one word orders this and `close`: either that has counted these, or they are refused.
        self.taken.fetch_add(records, Ordering::Release) & CLOSED == 0
    }

    /// The count so far.
    pub(crate) fn get(&self) -> u64 {
        self.taken.load(Ordering::Acquire) & !CLOSED
    }

    /// Whether the publisher has a later session, in which the publication goes on.
    pub(crate) fn is_closed(&self) -> bool {
        self.taken.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Ends the count: nothing is added from here on.
    fn close(&self) -> u64 {
        self.taken.fetch_or(CLOSED, Ordering::Relaxed) & !CLOSED
    }
}

/// The count of a publication, as its session has it.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    /// Whose records they are.
    pub(crate) publisher: PublisherId,
    /// How many were taken before this daemon took any.
    pub(crate) began: u64,
    /// How many were taken.
    pub(crate) count: Arc<TakenCount>,
}

/// How far a publication has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PublicationPosition {
    /// Whose records they are.
    pub(crate) publisher: PublisherId,
    /// The stream's name.
    pub(crate) stream: String,
    /// How many were taken, over all sessions and daemons.
    pub(crate) records: u64,
}

/// One publisher's records on one stream.
#[derive(Debug)]
struct Remembered {
    began: u64,
    count: Arc<TakenCount>,
    /// Since when no session is known to have it.
    idle_since: Option<Instant>,
}

impl Remembered {
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.count) == 1
    }
}

/// All publications, bounded by number and age.
#[derive(Debug, Default)]
pub(crate) struct Publications {
    /// By publisher and stream name.
    known: HashMap<(PublisherId, Box<str>), Remembered>,
    /// When those without a session were last looked for.
    swept: Option<Instant>,
}

impl Publications {
    /// A session brings records of a publication from now on, and none before it does.
    pub(crate) fn resume(&mut self, stream: &str, of: Publication, now: Instant) -> Taken {
        self.sweep(now);
        let key = (of.publisher, stream.into());
        let before = self.known.remove(&key).map(|known| (known.began, known.count.close(), known.count.durable()));
        // An acknowledged record of the publisher was taken, also if that is forgotten here.
        let taken = before.map_or(0, |(_, taken, _)| taken).max(of.first);
        let durable = before.map_or(0, |(_, _, durable)| durable).max(of.first);
        let (began, count) = (before.map_or(taken, |(began, ..)| began), Arc::new(TakenCount::new(taken, durable)));
        if self.known.len() < MAX_PUBLICATIONS || self.forget_oldest() {
            self.known.insert(key, Remembered { began, count: Arc::clone(&count), idle_since: None });
        }
        Taken { publisher: of.publisher, began, count }
    }

    /// How far all have come. Exact while no context takes records in.
    pub(crate) fn positions(&self) -> Vec<PublicationPosition> {
        let position = |((publisher, stream), known): (&(PublisherId, Box<str>), &Remembered)| PublicationPosition {
            publisher: *publisher,
            stream: stream.to_string(),
            records: known.count.get(),
        };
        let mut positions: Vec<PublicationPosition> = self.known.iter().map(position).collect();
        positions.sort_by(|a, b| (a.publisher, &a.stream).cmp(&(b.publisher, &b.stream)));
        positions
    }

    /// Publications go on where they were in a checkpoint that the daemon begins with.
    pub(crate) fn restore(&mut self, positions: Vec<PublicationPosition>) {
        for PublicationPosition { publisher, stream, records } in positions.into_iter().take(MAX_PUBLICATIONS) {
            let count = Arc::new(TakenCount::new(records, records));
            let known = Remembered { began: records, count, idle_since: None };
            self.known.insert((publisher, stream.into()), known);
        }
    }

    /// A checkpoint with these positions is on disk.
    pub(crate) fn note_durable(&self, positions: &[PublicationPosition]) {
        for PublicationPosition { publisher, stream, records } in positions {
            // It may have been forgotten meanwhile.
            if let Some(known) = self.known.get(&(*publisher, stream.as_str().into())) {
                known.count.durable.fetch_max(*records, Ordering::Relaxed);
            }
        }
    }

    /// Notes which publications have no session, and forgets those that have had none for long; now and then.
    fn sweep(&mut self, now: Instant) {
        let is_due = self.swept.is_none_or(|swept| now.saturating_duration_since(swept) >= REMEMBERED / 16);
        if !is_due && self.known.len() < MAX_PUBLICATIONS {
            return;
        }
        self.swept = Some(now);
        self.known.retain(|_, known| {
            known.idle_since = known.is_idle().then(|| known.idle_since.unwrap_or(now));
            known.idle_since.is_none_or(|since| now.saturating_duration_since(since) < REMEMBERED)
        });
    }

    /// Makes room for one more: forgets the one that has been without a session for the longest. False if all have one.
    fn forget_oldest(&mut self) -> bool {
        let idle = self.known.iter().filter_map(|(key, known)| known.idle_since.map(|since| (since, key)));
        let Some(oldest) = idle.min_by_key(|(since, _)| *since).map(|(_, key)| key.clone()) else { return false };
        self.known.remove(&oldest).is_some()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    fn publication(publisher: u128, first: u64) -> Publication {
        Publication { publisher: PublisherId(publisher), first }
    }

    #[test]
    fn a_later_session_goes_on_where_the_earlier_one_was_and_ends_it() {
        let (mut publications, now) = (Publications::default(), Instant::now());
        let first = publications.resume("A", publication(1, 0), now);
        assert!(first.count.add(10) && first.count.add(5));
        let second = publications.resume("A", publication(1, 8), now);
        assert_eq!(second.count.get(), 15);
        assert!(!first.count.add(7) && second.count.add(1));
        assert_eq!((first.count.get() >= 15, second.count.get()), (true, 16));
        // Others' are their own, and so are those on another stream.
        assert_eq!(publications.resume("A", publication(2, 0), now).count.get(), 0);
        assert_eq!(publications.resume("B", publication(1, 3), now).count.get(), 3);
    }

    #[test]
    fn acknowledged_records_count_though_they_were_forgotten() {
        let (mut publications, now) = (Publications::default(), Instant::now());
        assert_eq!(publications.resume("A", publication(1, 1000), now).count.get(), 1000);
        assert_eq!(publications.resume("A", publication(1, 999), now).count.get(), 1000);
        let absurd = publications.resume("A", publication(1, u64::MAX), now);
        assert!(absurd.count.add(1));
    }

    #[test]
    fn those_without_a_session_are_forgotten_by_age_and_the_oldest_by_number() {
        let (mut publications, now) = (Publications::default(), Instant::now());
        let stays = publications.resume("A", publication(0, 0), now);
        assert!(stays.count.add(3));
        for publisher in 1..MAX_PUBLICATIONS as u128 {
            drop(publications.resume("A", publication(publisher, 7), now));
        }
        // They are seen to have no session.
        let later = now + REMEMBERED / 2;
        assert_eq!(publications.resume("A", publication(1, 0), later).count.get(), 7);
        let more = publications.resume("A", publication(u128::MAX, 0), later);
        assert_eq!(publications.known.len(), MAX_PUBLICATIONS);
        assert!(publications.known.values().filter(|known| !known.is_idle()).count() == 2);
        let last = later + REMEMBERED;
        assert_eq!(publications.resume("A", publication(0, 0), last).count.get(), 3);
        assert!(publications.known.len() < 4, "{}", publications.known.len());
        assert!(more.count.add(1) && !stays.count.add(1));
    }

    #[test]
    fn a_publication_goes_on_behind_the_position_of_a_checkpoint() {
        let (mut before, now) = (Publications::default(), Instant::now());
        let taken = before.resume("A", publication(1, 0), now);
        assert!(taken.count.add(30));
        let positions = before.positions();
        assert!(taken.count.add(12));
        assert_eq!((taken.count.durable(), taken.count.durable_change()), (0, None));
        before.note_durable(&positions);
        assert_eq!((taken.count.durable_change(), taken.count.durable_change()), (Some(30), None));
        // A later session of the publisher, while the daemon goes on.
        let again = before.resume("A", publication(1, 30), now);
        assert_eq!((again.count.get(), again.count.durable()), (42, 30));
        // The daemon that begins with the checkpoint wants the records behind it.
        let mut after = Publications::default();
        after.restore(positions);
        let resumed = after.resume("A", publication(1, 24), now);
        assert_eq!((resumed.count.get(), resumed.count.durable(), resumed.began), (30, 30, 30));
        // One that it has not heard of goes on where it was acknowledged.
        assert_eq!(after.resume("A", publication(2, 7), now).count.durable(), 7);
    }

    #[test]
    fn a_record_is_counted_for_the_next_session_or_refused() {
        for _ in 0..200 {
            let mut publications = Publications::default();
            let first = publications.resume("A", publication(1, 0), Instant::now());
            let taking = std::thread::spawn(move || (0..1000).take_while(|_| first.count.add(1)).count() as u64);
            let second = publications.resume("A", publication(1, 0), Instant::now());
            assert_eq!(taking.join().unwrap(), second.count.get());
        }
    }
}
