//! Reports on handlers and contexts that need no answer of the managers, which may be busy with a change. The managers
//! publish a snapshot whenever handlers or contexts have changed, before the request that changed them is answered.
//! Gauges are read at the time of the report.

use crate::access::refusals::Refusals;
use crate::graph::gauges::{ContextGauges, Histogram, NodeGauges};
use crate::info::{ControlInfo, HandlerContextInfo, HandlerInfo, HistoryInfo};
use crate::managers::cuts::CutCounts;
use crate::managers::events::{Events, now_ms};
use crate::managers::monitor::Monitor;
use crate::managers::read::{read_context, read_handler};
use crate::managers::spec::HandlerSpec;
use crate::refusal::Stopped;
use crossdock_format::Format;
use crossdock_query::PlanOperator;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The latest snapshot of handlers and contexts.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) handlers: BTreeMap<String, Arc<ShownHandler>>,
    /// Without their handlers.
    pub(crate) contexts: Vec<(HandlerContextInfo, Arc<ContextGauges>)>,
}

/// A handler in a snapshot.
#[derive(Debug)]
pub(crate) struct ShownHandler {
    pub(crate) info: HandlerInfo,
    pub(crate) gauges: Arc<NodeGauges>,
    /// The operators of its query, where that keeps state.
    pub(crate) operators: Arc<[PlanOperator]>,
    /// The formats that it reads.
    pub(crate) inputs: Vec<(String, Format)>,
    /// As it was asked for; none for a subscription's own query.
    pub(crate) spec: Option<HandlerSpec>,
}

impl View {
    /// The contexts, with their handlers.
    fn contexts(&self) -> Vec<(HandlerContextInfo, &ContextGauges)> {
        let mut contexts: Vec<(HandlerContextInfo, &ContextGauges)> =
            self.contexts.iter().map(|(info, gauges)| (info.clone(), &**gauges)).collect();
        for HandlerInfo { name, context, queue_bound, .. } in self.handlers.values().map(|shown| &shown.info) {
            let here = contexts.iter_mut().find(|(info, _)| Some(&info.name) == context.as_ref());
            if let Some((info, _)) = here {
                info.handlers.push(name.clone());
                info.queue_bound += queue_bound;
            }
        }
        contexts
    }
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
    /// The counts of what the access rules refused.
    pub(crate) refusals: Arc<Refusals>,
    /// Whether events leave out values of records: access rules say who may read them.
    pub(crate) hides_values: bool,
    /// Time from the request for a change until it was made; the managers write it.
    pub(crate) change_time: Arc<Histogram>,
    /// The counts of whole checkpoints; the managers write them.
    pub(crate) cuts: Arc<CutCounts>,
    /// When the daemon started, in ms since 1970.
    started_at_ms: u64,
}

impl Views {
    /// Keeps a history of `history` seconds; `hides_values`: without values of records in events.
    pub(crate) fn new(history: usize, hides_values: bool) -> Views {
        Views { monitor: Monitor::new(history), hides_values, started_at_ms: now_ms(), ..Views::default() }
    }

    /// Publishes a snapshot; `None`: the managers have stopped.
    pub(crate) fn leave(&self, view: Option<View>) {
        let (latest, has_come) = &*self.latest;
        *latest.lock().unwrap_or_else(PoisonError::into_inner) =
            view.map_or(State::Stopped, |view| State::There(Arc::new(view)));
        has_come.notify_all();
    }

    /// Publishes that some handlers have changed, or are gone, and the contexts. A report that is being made of the latest
    /// snapshot keeps that.
    pub(crate) fn update(
        &self,
        changed: Vec<(String, Option<Arc<ShownHandler>>)>,
        contexts: Vec<(HandlerContextInfo, Arc<ContextGauges>)>,
    ) {
        let mut latest = self.latest.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The first is published as a whole.
        let State::There(view) = &mut *latest else { return };
        let view = Arc::make_mut(view);
        view.contexts = contexts;
        for (name, shown) in changed {
            match shown {
                Some(shown) => view.handlers.insert(name, shown),
                None => view.handlers.remove(&name),
            };
        }
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
                State::Stopped => return Err(Stopped::default()),
                State::Starting => latest = has_come.wait(latest).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// All handlers, with their current figures.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(crate) fn handlers(&self) -> Result<Vec<HandlerInfo>, Stopped> {
        let read = |shown: &Arc<ShownHandler>| {
            let mut info = shown.info.clone();
            let rates = self.monitor.handler(&info.name);
            read_handler(&mut info, &shown.gauges, rates);
            info
        };
        Ok(self.latest()?.handlers.values().map(read).collect())
    }

    /// The specifications of all handlers, as they were asked for, by name.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(crate) fn specs(&self) -> Result<Vec<HandlerSpec>, Stopped> {
        let view = self.latest()?;
        let specs = view.handlers.values().filter_map(|shown| shown.spec.as_ref());
        // Replicas are asked for as one.
        let specs: BTreeMap<&str, &HandlerSpec> = specs.map(|spec| (spec.name.as_str(), spec)).collect();
        Ok(specs.into_values().cloned().collect())
    }

    /// All contexts, likewise.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(crate) fn contexts(&self) -> Result<Vec<HandlerContextInfo>, Stopped> {
        let read = |(at, (mut info, gauges)): (usize, (HandlerContextInfo, &ContextGauges))| {
            read_context(&mut info, gauges, self.monitor.context(at));
            info
        };
        Ok(self.latest()?.contexts().into_iter().enumerate().map(read).collect())
    }

    /// The changes since the start.
    pub(crate) fn control(&self) -> ControlInfo {
        ControlInfo {
            started_at_ms: self.started_at_ms,
            change_time: self.change_time.info(),
            events: self.events.counts(),
            access_refused: self.refusals.by_reason(),
            tls_failures: self.refusals.tls_failures(),
            cuts: self.cuts.made.get(),
            cuts_put_off: self.cuts.put_off.get(),
            cuts_failed: self.cuts.failed.get(),
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
