//! A change between its commit and its end: contexts report that their part is in effect, and nodes that left one are passed
//! on to another.

use super::{Changed, Overlay, Wait};
use crate::graph::change::{Order, Report};
use crate::graph::gauges::Loss;
use crate::graph::{ContextIndex, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Polls of a change after which nodes that end no longer work on all of their input.
pub(super) const PATIENT_POLLS: u32 = 20_000;

/// A change that contexts carry out.
#[derive(Debug)]
pub(super) struct Committing {
    pub(super) change: u64,
    /// The streams and nodes that it is about.
    pub(super) streams: BTreeSet<u32>,
    pub(super) nodes: BTreeSet<NodeId>,
    /// The orders that are not reported on yet.
    pub(super) awaited: Vec<(ContextIndex, u64)>,
    /// Nodes that are passed on, and where to.
    pub(super) moves: BTreeMap<NodeId, ContextIndex>,
    /// Orders for which there was no place yet.
    pub(super) unsent: Vec<(ContextIndex, Order)>,
    pub(super) changed: Changed,
    pub(super) polls: u32,
    pub(super) since: Instant,
    /// Whether nodes that end no longer work on all of their input.
    pub(super) is_forced: bool,
}

impl Overlay {
    /// Waits until a change is complete, or the time for it is over.
    pub(super) fn complete(&mut self, mut committing: Committing, wait: Wait<'_>) -> Changed {
        wait.begin();
        while !self.step(&mut committing) {
            if !wait.wait() {
                let unfinished = Some(committing.change);
                self.unfinished.push(committing);
                return Changed { unfinished, ..Changed::default() };
            }
        }
        committing.changed
    }

    /// Takes what contexts have reported on a change, and passes nodes on. Whether it is complete.
    pub(super) fn step(&mut self, committing: &mut Committing) -> bool {
        for (at, number) in std::mem::take(&mut committing.awaited) {
            match self.report(at, number) {
                Some(report) => committing.take(at, report),
                None => committing.awaited.push((at, number)),
            }
        }
        committing.polls = committing.polls.saturating_add(1);
        let is_late = committing.polls >= PATIENT_POLLS;
        if is_late && !std::mem::replace(&mut committing.is_forced, true) {
            let contexts: BTreeSet<ContextIndex> = committing.awaited.iter().map(|(at, _)| *at).collect();
            let change = committing.change;
            committing.unsent.extend(contexts.into_iter().map(|at| (at, Order::Force(change))));
        }
        for (at, order) in std::mem::take(&mut committing.unsent) {
            self.numbers += 1;
            let number = self.numbers;
            match self.port_mut(at).send(number, order) {
                Ok(()) => committing.awaited.push((at, number)),
                Err(order) => committing.unsent.push((at, order)),
            }
        }
        committing.awaited.is_empty() && committing.unsent.is_empty()
    }
}

impl Committing {
    /// A context that has not done its part. There is one as long as the change is not complete.
    pub(super) fn awaits(&self) -> Option<ContextIndex> {
        let unsent = self.unsent.first().map(|(at, _)| *at);
        self.awaited.first().map(|(at, _)| *at).or(unsent)
    }

    /// Takes a report: nodes that left a context go on at another, or are dropped.
    fn take(&mut self, at: ContextIndex, report: Report) {
        match report {
            Report::Committed(part) => {
                self.changed.lost_states += part.lost_states;
                self.changed.failed = self.changed.failed.or((part.failed > 0).then_some(at));
                for mut node in part.gone {
                    match self.moves.remove(&node.id) {
                        Some(to) => self.unsent.push((to, Order::Arrive(vec![node]))),
                        None => {
                            node.drop_waiting();
                            self.changed.dropped += node.gauges.lost(Loss::Removed);
                        }
                    }
                }
            }
            // Of an end that was forced, or a node that was passed on.
            Report::Prepared | Report::Arrived { .. } => {}
            Report::Cancelled { .. } | Report::Done(..) | Report::Panicked => {
                debug_assert!(false, "{report:?} on a committed change");
            }
        }
    }
}
