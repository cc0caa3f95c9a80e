//! The rest of the daemon's handle to the managers: change requests, reports and events.

use crate::info::{AppliedInfo, ControlInfo, EventInfo, HandlerContextInfo, HandlerInfo, HistoryInfo, PlanInfo};
use crate::managers::estimated::QueryEstimate;
use crate::managers::request::{ChangeRequest, ControlRequest, RequestQueue, SharedQuery};
use crate::managers::spec::HandlerSpec;
use crate::managers::view::{View, Views};
use crate::refusal::Stopped;
use crossdock_engine::NativeKind;
use std::sync::Arc;

/// A handle to the managers of a daemon. Cheap to clone. Reports on handlers and contexts are answered at once, also
/// during a change; a caller sees its own change from its next call on.
#[derive(Clone, Debug)]
pub struct ManagerHandle {
    requests: Arc<RequestQueue>,
    views: Views,
}

impl ManagerHandle {
    pub(crate) fn new(requests: Arc<RequestQueue>, views: Views) -> ManagerHandle {
        ManagerHandle { requests, views }
    }

    fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> ControlRequest) -> Result<T, Stopped> {
        let (answer, wait) = oneshot::channel();
        self.requests.ask(ask(answer))?;
        wait.recv().map_err(|_| Stopped::default())
    }

    /// Brings the platform to what is wanted: all of it, or nothing has changed, unless a context
    /// fails meanwhile ([`PlanInfo::is_begun`]). When this returns every context has taken
    /// the change, and it is kept where the daemon keeps anything. `discard_state` says that a handler's state may be
    /// lost where its next version cannot take it.
    ///
    /// # Errors
    /// [`Stopped`]; within, the plan with why it is refused.
    pub fn change(&self, change: ChangeRequest, discard_state: bool) -> Result<Result<AppliedInfo, PlanInfo>, Stopped> {
        self.ask(|to| ControlRequest::Change { change, discard_state, to })
    }

    /// The plan that [`ManagerHandle::change`] would carry out now.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn plan(&self, change: ChangeRequest, discard_state: bool) -> Result<PlanInfo, Stopped> {
        self.ask(|to| ControlRequest::Plan { change, discard_state, to })
    }

    /// The place and cost that a query with state would have.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(crate) fn estimate(&self, query: SharedQuery) -> Result<QueryEstimate, Stopped> {
        self.ask(|to| ControlRequest::EstimateQuery { query: Box::new(query), to })
    }

    /// All handlers, by name.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn handlers(&self) -> Result<Vec<HandlerInfo>, Stopped> {
        self.views.handlers()
    }

    /// The latest snapshot of handlers and contexts.
    pub(crate) fn view(&self) -> Result<Arc<View>, Stopped> {
        self.views.latest()
    }

    /// The wanted state: all handlers' specifications, by name.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn specs(&self) -> Result<Vec<HandlerSpec>, Stopped> {
        self.views.specs()
    }

    /// All contexts, the home context first.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn contexts(&self) -> Result<Vec<HandlerContextInfo>, Stopped> {
        self.views.contexts()
    }

    /// The gauges of a context, by its number.
    #[cfg(test)]
    pub(crate) fn gauges(&self, at: usize) -> Arc<crate::graph::gauges::ContextGauges> {
        let view = self.views.latest();
        view.map(|view| Arc::clone(&view.contexts[at].1)).unwrap_or_default()
    }

    /// The changes on the platform since the daemon's start.
    #[must_use]
    pub fn control(&self) -> ControlInfo {
        self.views.control()
    }

    /// Passes the platform's events to `sink` as well, first those that are kept. `sink` runs on the managers' thread,
    /// which waits for it.
    pub fn log_events_to(&self, sink: impl FnMut(&EventInfo) + Send + 'static) {
        self.views.events.log_to(Box::new(sink));
    }

    /// The events after the event of this number, oldest first; the last thousand events are kept.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn events(&self, after: u64) -> Result<Vec<EventInfo>, Stopped> {
        self.views.latest().map(|_| self.views.events.after(after))
    }

    /// The last minutes of every context and handler.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn history(&self) -> Result<Vec<HistoryInfo>, Stopped> {
        self.views.histories()
    }

    /// Registers a kind of native handler, in the place of one of the same name. Running handlers are unchanged.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn add_native(&self, kind: NativeKind) -> Result<(), Stopped> {
        self.ask(|to| ControlRequest::AddNative { kind: Box::new(kind), to })
    }

    /// Waits until the kept handlers are restored, as far as they can be.
    ///
    /// # Errors
    /// [`Stopped`].
    pub(crate) fn wait_restored(&self) -> Result<(), Stopped> {
        self.ask(ControlRequest::Restored)
    }

    /// Stops the managers.
    pub(crate) fn stop(&self) {
        self.requests.stop();
    }
}
