//! The records that a subscriber has missed while its connection was lost.
//!
//! The daemon counts the records of each stream, and sends a subscriber the count where its subscription begins. The subscriber
//! counts those that it gets from there on, so it knows its own place in the stream. If it comes back to the same count, the
//! difference is what it has missed.
//!
//! A daemon that was started again counts anew. Then the subscriber has missed what has passed there before it was back, and what
//! the daemon before had taken and not delivered. Each publisher that comes back says how many of its records that daemon has
//! acknowledged: beyond what the publisher had brought at the last report, these were taken after the report. Short of that,
//! the publisher repeats records that had been taken, since it had no acknowledgement.
//!
//! So there is a sum for each publisher, and what one repeats makes up for nothing that another has lost. Whose records came
//! after the last report, or were left in the daemon at the last report, is not known: of these the sums assume what makes
//! the smallest total. The missed records that are reported are missed, and with one publisher it is all.

use crossdock_transport::control::{Position, PublisherId};
use std::collections::HashMap;

/// The missed records that the application does not know yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missed {
    /// How many records; none if that is not known.
    pub(crate) records: Option<u64>,
    /// Whether it may be fewer.
    pub(crate) at_most: bool,
}

/// A subscriber's place in its stream.
#[derive(Debug)]
struct StreamPosition {
    /// The records that had passed when the subscription began.
    began: u64,
    /// The number of the next record then, if the daemon numbers them over restarts.
    number: Option<u64>,
    /// Those that came since, and those that the daemon has said it dropped.
    received: u64,
    /// The last report.
    last: Position,
}

impl StreamPosition {
    /// The number of the next record, if they are numbered.
    fn next_number(&self) -> Option<u64> {
        Some(self.number? + self.received)
    }

    /// How many records of the stream have passed for the subscriber, in the daemon's count.
    fn passed(&self) -> u64 {
        self.began + self.received + self.last.left_out.unwrap_or(0)
    }
}

/// The numbers of records that arrived together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordNumbers {
    /// That of the first, if the daemon numbers them over restarts.
    pub(crate) first: Option<u64>,
    /// How many of the first had come before, from this daemon or an earlier one.
    pub(crate) repeated: usize,
}

impl RecordNumbers {
    /// The first of the records was taken out.
    #[inline]
    pub(crate) fn pass_one(&mut self) {
        self.first.iter_mut().for_each(|first| *first += 1);
        self.repeated = self.repeated.saturating_sub(1);
    }
}

/// The records missed between two sessions, as far as it is known.
#[derive(Debug, Default)]
struct Gap {
    /// The records that publishers new to the subscriber brought to the next daemon while it was away; or what it
    /// missed in the count of one daemon.
    certain: i128,
    /// The records that earlier publishers brought after the last report and before the subscriber was back; with the
    /// records at the next daemon of publishers that are not listed.
    brought: i128,
    /// The records that they have brought and bring once more.
    repeated: i128,
    /// The records that the daemon before had counted at its last report and did not deliver; or else, below 0, what it
    /// delivered after the report. Its records of all publishers are in one queue, so it is not both.
    undelivered: i128,
    /// How much of it the application knows.
    reported: u64,
    at_most: bool,
    /// The publishers that have not come back: where they were at the last report, and whether they had ended.
    expected: HashMap<PublisherId, (u64, bool)>,
    unlisted: u32,
}

impl Gap {
    /// The records missed between two daemons: the subscriber was at `before` with the one, and comes to the other at
    /// `position`.
    fn between(before: &StreamPosition, position: &Position, expected: HashMap<PublisherId, (u64, bool)>) -> Gap {
        let unlisted = before.last.unlisted;
        let undelivered = i128::from(before.last.passed) - i128::from(before.passed());
        let mut gap = Gap { undelivered, expected, unlisted, ..Gap::default() };
        let mut others = i128::from(position.passed);
        for publisher in &position.publishers {
            let here = publisher.position.saturating_sub(publisher.began);
            others -= i128::from(here);
            if !gap.resolve(publisher.publisher, publisher.position) {
                match unlisted {
                    0 => gap.certain += i128::from(here),
                    // It may have been one of these.
                    _ => gap.brought += i128::from(here),
                }
            }
        }
        gap.brought += others;
        gap
    }

    /// Publishers that were there before and have not come back.
    fn uncounted(&self) -> u32 {
        let gone = self.expected.values().filter(|(_, ended)| !ended).count();
        u32::try_from(gone).unwrap_or(u32::MAX).saturating_add(self.unlisted)
    }

    /// A publisher has come back, and the subscriber gets its records from this one on. False if it is not expected.
    fn resolve(&mut self, publisher: PublisherId, next: u64) -> bool {
        let Some((position, _)) = self.expected.remove(&publisher) else { return false };
        self.brought += i128::from(next.saturating_sub(position));
        self.repeated += i128::from(position.saturating_sub(next));
        true
    }

    /// Publishers have come back whose first records at this daemon come now.
    fn resolve_all(&mut self, position: &Position) {
        for publisher in &position.publishers {
            self.resolve(publisher.publisher, publisher.began);
        }
    }

    /// The least that can have been missed.
    fn records(&self) -> u64 {
        let of_publishers = match self.undelivered {
            // The publishers that have brought the most have brought these.
            delivered if delivered < 0 => self.brought + delivered,
            // Those that repeat records repeat these.
            undelivered => self.brought + (undelivered - self.repeated).max(0),
        };
        u64::try_from(self.certain + of_publishers.max(0)).unwrap_or(0)
    }

    /// The missed records that the application does not know yet.
    fn unreported(&mut self) -> Option<Missed> {
        let records = self.records().saturating_sub(self.reported);
        self.reported += records;
        (records > 0).then_some(Missed { records: Some(records), at_most: self.at_most })
    }
}

/// The records that a subscriber has got and missed, over all of its sessions.
#[derive(Debug, Default)]
pub(crate) struct Account {
    has_begun: bool,
    place: Option<StreamPosition>,
    gap: Gap,
    /// The number behind all records that have come, where they are numbered.
    next_new: Option<u64>,
    /// Records that came once more.
    repeated: u64,
    /// Publishers that were not listed when the connection was lost once more.
    given_up: u32,
}

impl Account {
    /// The subscription stands, for the first time or again. Gives the records missed between, as far as it is known now.
    pub(crate) fn begin(&mut self, position: Option<Position>) -> Option<Missed> {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let before = self.place.take();
        let Some(position) = position else { return (!is_first).then_some(Missed { records: None, at_most: false }) };
        let at_most = position.left_out.is_some();
        let missed = match &before {
            None => (!is_first).then_some(Missed { records: None, at_most: false }),
            Some(before) => {
                if let (Some(next), Some(own)) = (position.number, before.next_number()) {
                    // Each record has the same number at all daemons.
                    let new = own.max(self.next_new.unwrap_or(0));
                    self.gap.certain += i128::from(next.saturating_sub(new));
                } else if before.last.epoch == position.epoch {
                    self.gap.certain += i128::from(position.passed) - i128::from(before.passed());
                    self.gap.resolve_all(&position);
                } else {
                    // Those that have not come back from an earlier loss may come yet.
                    let mut expected = std::mem::take(&mut self.gap.expected);
                    expected.extend(before.last.publishers.iter().map(|p| (p.publisher, (p.position, p.ended))));
                    self.given_up = self.given_up.saturating_add(self.gap.unlisted);
                    self.gap = Gap::between(before, &position, expected);
                }
                self.gap.at_most |= at_most;
                self.gap.unreported()
            }
        };
        let number = position.number;
        self.next_new = number.map(|number| number.max(self.next_new.unwrap_or(0)));
        self.place = Some(StreamPosition { began: position.passed, number, received: 0, last: position });
        missed
    }

    /// Records have come, or were dropped.
    #[inline]
    pub(crate) fn note(&mut self, records: u64) {
        if let Some(place) = &mut self.place {
            place.received += records;
        }
    }

    /// Records have come: their numbers.
    #[inline]
    pub(crate) fn number(&mut self, records: usize) -> RecordNumbers {
        let first = self.place.as_ref().and_then(StreamPosition::next_number);
        self.note(records as u64);
        let (Some(number), Some(next_new)) = (first, &mut self.next_new) else { return RecordNumbers::default() };
        let repeated = next_new.saturating_sub(number).min(records as u64);
        *next_new = (*next_new).max(number + records as u64);
        self.repeated += repeated;
        RecordNumbers { first, repeated: repeated as usize }
    }

    /// The records that come are not counted by their numbers any more.
    pub(crate) fn forget_numbers(&mut self) {
        self.place.iter_mut().for_each(|place| place.number = None);
        self.next_new = None;
    }

    /// Records that came once more, from a daemon that was started again.
    pub(crate) fn repeated(&self) -> u64 {
        self.repeated
    }

    /// The daemon says how far the stream has come. Gives the missed records that are not yet reported.
    pub(crate) fn report(&mut self, position: Position) -> Option<Missed> {
        // Another daemon's, whose answer to the subscription comes after it, counts from there on.
        let place = self.place.as_mut().filter(|place| place.last.epoch == position.epoch)?;
        self.gap.resolve_all(&position);
        place.last = position;
        self.gap.unreported()
    }

    /// Publishers that were there before the connection was lost and have not come back: what they published meanwhile is not
    /// counted.
    pub(crate) fn uncounted_publishers(&self) -> u32 {
        self.given_up.saturating_add(self.gap.uncounted())
    }
}

#[cfg(test)]
mod tests;
