//! The catalog's part of a checkpoint of the whole graph: how far publications and streams have come, and how many subscriptions there are.

use super::Catalog;
use crate::publications::PublicationPosition;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Streams that have not come back whose numbers are remembered.
const MAX_FORMER: usize = 16_384;

/// How far all has come that comes from outside, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Positions {
    /// Of each publisher on each stream.
    pub(crate) publications: Vec<PublicationPosition>,
    /// The number of each stream's next record.
    pub(crate) numbers: BTreeMap<String, u64>,
    /// The streams with subscriptions, and how many.
    pub(crate) subscriptions: BTreeMap<String, u32>,
}

impl Catalog {
    /// The present positions; those of one moment while no context takes records in.
    pub(crate) fn positions(&self) -> Positions {
        // Streams that have not come back since the start keep their numbers.
        let mut numbers = self.former_numbers.clone();
        let mut subscriptions = BTreeMap::new();
        for entry in self.now.iter() {
            let activity = entry.activity();
            numbers.insert(entry.name().to_owned(), activity.next_number());
            if activity.subscriptions() > 0 {
                subscriptions.insert(entry.name().to_owned(), activity.subscriptions());
            }
        }
        numbers.retain(|_, number| *number > 0);
        Positions { publications: self.publications.positions(), numbers, subscriptions }
    }

    /// The daemon begins with a checkpoint of these positions. Called before the first publisher comes.
    pub(crate) fn restore_positions(&mut self, positions: Positions) {
        self.publications.restore(positions.publications);
        self.former_numbers = positions.numbers.into_iter().take(MAX_FORMER).collect();
        for entry in self.now.iter() {
            if let Some(number) = self.former_numbers.remove(entry.name()) {
                entry.activity().begin_at(number);
            }
        }
    }

    /// A stream is new: it goes on with the number that it had at an earlier daemon.
    pub(super) fn restore_number(&mut self, stream: u32) {
        if let Some(entry) = self.now.get(stream)
            && let Some(number) = self.former_numbers.remove(entry.name())
        {
            entry.activity().begin_at(number);
        }
    }

    /// A checkpoint of these positions is on disk.
    pub(crate) fn note_durable(&self, positions: &[PublicationPosition]) {
        self.publications.note_durable(positions);
    }
}
