//! The managers, on a thread of their own: handler manager, resource monitor, control manager.

pub(crate) mod events;
pub(crate) mod handle;
pub(crate) mod spec;

use crate::info::PlanInfo;
use crate::manager::events::Events;
use crate::manager::handle::Ask;
use std::sync::mpsc::Receiver;

/// What the managers know and do.
#[derive(Debug, Default)]
pub(crate) struct Managers {
    events: Events,
}

impl Managers {
    /// Answers what is asked, until it is told to stop or nobody can ask any more.
    pub(crate) fn run(mut self, asks: &Receiver<Ask>) {
        self.events.note("started", events::About::default(), "the managers have started");
        while let Ok(ask) = asks.recv() {
            match ask {
                Ask::Change { to, .. } => drop(to.send(Err(PlanInfo::default()))),
                Ask::Plan { to, .. } => drop(to.send(PlanInfo::default())),
                Ask::Handlers(to) => drop(to.send(Vec::new())),
                Ask::Specs(to) => drop(to.send(Vec::new())),
                Ask::Contexts(to) => drop(to.send(Vec::new())),
                Ask::Events { after, to } => drop(to.send(self.events.after(after))),
                Ask::History(to) => drop(to.send(Vec::new())),
                Ask::NewFormat { .. } => {}
                Ask::Stop => return,
            }
        }
    }
}
