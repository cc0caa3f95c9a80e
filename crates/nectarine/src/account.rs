//! What a subscriber has missed while its connection was lost.
//!
//! The daemon counts the records of each stream, and sends a subscriber the count where its subscription begins. The subscriber
//! counts those that it gets from there on, so it knows its own place in the stream. If it comes back to the same count, the
//! difference is what it has missed.
//!
//! A daemon that was started again counts anew. Then the subscriber has missed what has passed there before it was back, and what
//! the daemon before had taken and not delivered. Each publisher that comes back says how many of its records that daemon has
//! acknowledged: beyond what the publisher had brought at the last report, these were taken after the report.

use crossdock_transport::control::{Position, PublisherId};
use std::collections::HashMap;

/// What a subscriber has missed and the application does not know yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missed {
    /// How many records; none if that is not known.
    pub(crate) records: Option<u64>,
    /// Whether it may be fewer.
    pub(crate) at_most: bool,
}

/// A subscriber's place in its stream.
#[derive(Debug)]
struct Place {
    /// The records that had passed when the subscription began.
    began: u64,
    /// Those that came since, and those that the daemon has said it dropped.
    received: u64,
    /// The last report.
    last: Position,
}

impl Place {
    /// How many records of the stream have passed for the subscriber, in the daemon's count.
    fn passed(&self) -> u64 {
        self.began + self.received + self.last.left_out.unwrap_or(0)
    }
}

/// What was missed between two sessions, as far as it is known.
#[derive(Debug, Default)]
struct Gap {
    records: i128,
    /// How much of it the application knows.
    reported: u64,
    at_most: bool,
    /// The publishers that have not come back: where they were at the last report, and whether they had ended.
    expected: HashMap<PublisherId, (u64, bool)>,
    unlisted: u32,
}

impl Gap {
    /// Publishers that were there before and have not come back.
    fn uncounted(&self) -> u32 {
        let gone = self.expected.values().filter(|(_, ended)| !ended).count();
        u32::try_from(gone).unwrap_or(u32::MAX).saturating_add(self.unlisted)
    }

    /// Publishers have come back.
    fn resolve(&mut self, position: &Position) {
        for publisher in &position.publishers {
            if let Some((position, _)) = self.expected.remove(&publisher.publisher) {
                self.records += i128::from(publisher.began) - i128::from(position);
            }
        }
    }

    /// What is not known to the application yet. What comes twice, since its publisher had no acknowledgement, counts against what
    /// is missed.
    fn unreported(&mut self) -> Option<Missed> {
        let records = u64::try_from(self.records).unwrap_or(0).saturating_sub(self.reported);
        self.reported += records;
        (records > 0).then_some(Missed { records: Some(records), at_most: self.at_most })
    }
}

/// What a subscriber has got and missed, over all of its sessions.
#[derive(Debug, Default)]
pub(crate) struct Account {
    has_begun: bool,
    place: Option<Place>,
    gap: Gap,
    /// Publishers that were not listed when the connection was lost once more.
    given_up: u32,
}

impl Account {
    /// The subscription stands, for the first time or again. What was missed between, as far as it is known now.
    pub(crate) fn begin(&mut self, position: Option<Position>) -> Option<Missed> {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let before = self.place.take();
        let Some(position) = position else { return (!is_first).then_some(Missed { records: None, at_most: false }) };
        let at_most = position.left_out.is_some();
        let missed = match &before {
            None => (!is_first).then_some(Missed { records: None, at_most: false }),
            Some(before) => {
                if before.last.epoch != position.epoch {
                    let Position { publishers, unlisted, .. } = &before.last;
                    // Those that have not come back from an earlier loss may come yet.
                    let mut expected = std::mem::take(&mut self.gap.expected);
                    expected.extend(publishers.iter().map(|p| (p.publisher, (p.position, p.ended))));
                    self.given_up = self.given_up.saturating_add(self.gap.unlisted);
                    let records = i128::from(before.last.passed);
                    self.gap = Gap { records, expected, unlisted: *unlisted, ..Gap::default() };
                }
                self.gap.records += i128::from(position.passed) - i128::from(before.passed());
                self.gap.at_most |= at_most;
                self.gap.resolve(&position);
                self.gap.unreported()
            }
        };
        self.place = Some(Place { began: position.passed, received: 0, last: position });
        missed
    }

    /// Records have come, or were dropped.
    #[inline]
    pub(crate) fn note(&mut self, records: u64) {
        if let Some(place) = &mut self.place {
            place.received += records;
        }
    }

    /// The daemon says how far the stream has come. What was missed and not yet reported.
    pub(crate) fn report(&mut self, position: Position) -> Option<Missed> {
        let place = self.place.as_mut()?;
        self.gap.resolve(&position);
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
