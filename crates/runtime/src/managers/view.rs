//! Reports on handlers and contexts that need no answer of the managers, which may be busy with a change. The managers
//! publish a snapshot whenever handlers or contexts have changed, before the request that changed them is answered.
//! Gauges are read at the time of the report.

use crate::graph::gauges::{ContextGauges, Histogram, NodeGauges};
use crate::info::{ControlInfo, HandlerContextInfo, HandlerInfo, HistoryInfo};
use crate::managers::events::{Events, now_ms};
use crate::managers::monitor::Monitor;
use crate::managers::read::{read_context, read_handler};
use crate::managers::spec::HandlerSpec;
use crate::refusal::Stopped;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The latest snapshot of handlers and contexts.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) handlers: Vec<(HandlerInfo, Arc<NodeGauges>)>,
    pub(crate) contexts: Vec<(HandlerContextInfo, Arc<ContextGauges>)>,
    pub(crate) specs: Vec<HandlerSpec>,
}

/// The state of the managers.
#[derive(Debug, Default)]
enum State {
    /// The kept specifications are not restored yet.
    #[default]
    Starting,
    There(Arc<View>),
    Stopped,
}

/// The place where the managers publish snapshots and others read them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Views {
    latest: Arc<(Mutex<State>, Condvar)>,
    pub(crate) monitor: Monitor,
    pub(crate) events: Events,
    /// Time from the request for a change until it was made; the managers write it.
    pub(crate) change_time: Arc<Histogram>,
    /// When the daemon started, in ms since 1970.
    started_at_ms: u64,
}

impl Views {
    /// Keeps a history of `history` seconds.
    pub(crate) fn new(history: usize) -> Views {
        Views { monitor: Monitor::new(history), started_at_ms: now_ms(), ..Views::default() }
    }

    /// Publishes a snapshot; `None`: the managers have stopped.
    pub(crate) fn leave(&self, view: Option<View>) {
        let (latest, has_come) = &*self.latest;
        *latest.lock().unwrap_or_else(PoisonError::into_inner) =
            view.map_or(State::Stopped, |view| State::There(Arc::new(view)));
        has_come.notify_all();
    }

    /// The latest snapshot; waits for the first.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(crate) fn latest(&self) -> Result<Arc<View>, Stopped> {
        let (latest, has_come) = &*self.latest;
        let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &*latest {
                State::There(view) => return Ok(Arc::clone(view)),
                State::Stopped => return Err(Stopped),
                State::Starting => latest = has_come.wait(latest).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// All handlers, with their figures as they are.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(crate) fn handlers(&self) -> Result<Vec<HandlerInfo>, Stopped> {
        let read = |(info, gauges): &(HandlerInfo, Arc<NodeGauges>)| {
            let mut info = info.clone();
            let rates = self.monitor.handler(&info.name);
            read_handler(&mut info, gauges, rates);
            info
        };
        Ok(self.latest()?.handlers.iter().map(read).collect())
    }

    /// All contexts, likewise.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(crate) fn contexts(&self) -> Result<Vec<HandlerContextInfo>, Stopped> {
        let read = |(at, (info, gauges)): (usize, &(HandlerContextInfo, Arc<ContextGauges>))| {
            let mut info = info.clone();
            read_context(&mut info, gauges, self.monitor.context(at));
            info
        };
        Ok(self.latest()?.contexts.iter().enumerate().map(read).collect())
    }

    /// What changed since the start.
    pub(crate) fn control(&self) -> ControlInfo {
        ControlInfo {
            started_at_ms: self.started_at_ms,
            change_time: self.change_time.info(),
            events: self.events.counts(),
        }
    }

    /// The last minutes of all.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(crate) fn histories(&self) -> Result<Vec<HistoryInfo>, Stopped> {
        let view = self.latest()?;
        let names = view.contexts.iter().map(|(info, _)| info.name.as_str());
        Ok(self.monitor.histories(names))
    }
}
