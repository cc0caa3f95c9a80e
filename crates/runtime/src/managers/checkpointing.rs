//! When checkpoints of the deployed handlers' states are made.
//!
//! At an interval, and when the daemon stops, the context of each handler with state copies it between two batches
//! ([`SaveState`](crate::graph::save::SaveState)); a thread away from the cores writes the copy. The queries of subscriptions have none: they
//! go with their sessions.

use crate::managers::checkpoints::Checkpoints;
use crate::managers::deployed::{Deployed, Status};
use crate::managers::{Managers, REPORT_TICK};
use crossdock_device::nap;

impl Managers {
    /// A handler has begun; notes what became of its checkpoint.
    pub(super) fn note_begun(&mut self, name: &str) {
        let Some(there) = self.handlers.get(name).filter(|there| !there.entries.is_empty()) else { return };
        if self.is_query(name) || !there.keeps_state() {
            return;
        }
        if let Some((kind, text)) = self.checkpoints.begun(name, there) {
            self.note(kind, name, text);
        }
    }

    /// Has the states copied that are due, gives those that were to the thread that writes them, and notes what that has written.
    pub(super) fn tick_checkpoints(&mut self) {
        self.take_saved();
        for (handler, why) in self.checkpoints.take_written() {
            self.note("checkpoint_failed", &handler, why);
        }
        let is_due = self.checkpoints.tick();
        if self.checkpoints.cuts_mut().is_some() {
            self.tick_cuts(is_due);
        } else if is_due {
            self.order_checkpoints();
        }
    }

    /// Has the state of each handler copied that may be another one than in its checkpoint.
    fn order_checkpoints(&mut self) {
        let is_due = |(name, there): &(&String, &Deployed)| {
            let is_whole = there.status == Status::Running && !self.is_query(name) && there.keeps_state();
            is_whole && !self.overlay.is_changing(there.node)
        };
        let due: Vec<String> = self.handlers.iter().filter(is_due).map(|(name, _)| name.clone()).collect();
        for name in due {
            let Some(there) = self.handlers.get(&name) else { continue };
            let Some(order) = self.checkpoints.order_for(&name, there) else { continue };
            // A context that does not answer is asked again the next time.
            if let Ok(number) = self.overlay.save_state(there.node, order) {
                self.checkpoints.note_ordered(&name, there, number);
            }
        }
    }

    /// Gives the states that were copied to the thread that writes them.
    pub(super) fn take_saved(&mut self) {
        for (node, order) in self.overlay.take_saved() {
            let there = self.handlers.get(&order.handler);
            // The handler may be another one by now, or its state.
            let is_same = there.is_some_and(|there| (there.node, there.version) == (node, order.version));
            let handler = order.handler.clone();
            if let Some(why) = self.checkpoints.take_saved(order, is_same) {
                self.note("checkpoint_failed", &handler, why);
            }
        }
    }

    /// Makes the last checkpoints, before the contexts are stopped.
    pub(super) fn make_last_checkpoints(&mut self) {
        if !self.checkpoints.are_made() {
            return;
        }
        if self.checkpoints.cuts_mut().is_some() {
            self.make_last_cut();
            // The thread has written what it was given when this returns.
            self.checkpoints = Checkpoints::default();
            return;
        }
        let until = crossdock_device::now() + self.watch.patience();
        self.order_checkpoints();
        while self.checkpoints.is_under_way() && crossdock_device::now() < until {
            nap(REPORT_TICK);
            self.confirm();
            self.take_saved();
        }
        // The thread has written what it was given when this returns.
        self.checkpoints = Checkpoints::default();
    }
}
