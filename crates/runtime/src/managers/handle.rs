//! The rest of the daemon's handle to the managers: change requests, reports and events.

use crate::handle::Stopped;
use crate::info::{AppliedInfo, ControlInfo, EventInfo, HandlerContextInfo, HandlerInfo, HistoryInfo, PlanInfo};
use crate::managers::queries::Query;
use crate::managers::spec::HandlerSpec;
use crate::managers::view::Views;
use crossdock_engine::NativeKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::mpsc::Sender;

/// A change of the wanted handlers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChangeRequest {
    /// A new handler.
    Deploy(HandlerSpec),
    /// Another version of a handler that is there.
    Swap(HandlerSpec),
    /// Other values of some of a handler's parameters.
    SetParameters {
        /// Its name.
        handler: String,
        /// By name; the others stay.
        parameters: BTreeMap<String, String>,
    },
    /// Another place for a handler; any that it fits when absent.
    Move {
        /// Its name.
        handler: String,
        /// A context's name.
        place: Option<String>,
    },
    /// One handler less.
    Remove {
        /// Its name.
        handler: String,
    },
    /// These handlers and no others.
    All(Vec<HandlerSpec>),
}

/// A request to the managers.
pub(crate) enum ControlRequest {
    Change {
        wish: ChangeRequest,
        discard_state: bool,
        to: oneshot::Sender<Result<AppliedInfo, PlanInfo>>,
    },
    Plan {
        wish: ChangeRequest,
        discard_state: bool,
        to: oneshot::Sender<PlanInfo>,
    },
    /// From the context: a stream that handlers read has one more format.
    NewFormat {
        stream: u32,
    },
    /// From the context: a subscription's query is to run elsewhere, since the context has no time for it.
    PlaceQuery(Box<Query>),
    /// From the context: a subscription whose query runs elsewhere has gone; the handler's name.
    RemoveQuery(String),
    /// From the context: a subscription's query fits nowhere; the stream and the figures.
    QueryRefused(String),
    /// From the context: a subscription's query has panicked.
    QueryFailed(String),
    /// One more kind of native handler.
    AddNative {
        kind: Box<NativeKind>,
        to: oneshot::Sender<()>,
    },
    /// Answered once the kept handlers are restored.
    Restored(oneshot::Sender<()>),
    Stop,
}

/// A handle to the managers of a daemon. Cheap to clone. Reports on handlers and contexts are answered at once, also
/// during a change; a caller sees its own change from its next call on.
#[derive(Clone, Debug)]
pub struct ManagerHandle {
    asks: Sender<ControlRequest>,
    views: Views,
}

impl ManagerHandle {
    pub(crate) fn new(asks: Sender<ControlRequest>, views: Views) -> ManagerHandle {
        ManagerHandle { asks, views }
    }

    fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> ControlRequest) -> Result<T, Stopped> {
        let (answer, wait) = oneshot::channel();
        self.asks.send(ask(answer)).map_err(|_| Stopped)?;
        wait.recv().map_err(|_| Stopped)
    }

    /// Brings the platform to what is wanted: all of it, or nothing has changed, unless a context
    /// fails meanwhile ([`PlanInfo::is_begun`]). When this returns every context has taken
    /// the change, and it is kept where the daemon keeps anything. `discard_state` says that a handler's state may be
    /// lost where its next version cannot take it.
    ///
    /// # Errors
    /// [`Stopped`]; within, the plan with why it is refused.
    pub fn change(&self, wish: ChangeRequest, discard_state: bool) -> Result<Result<AppliedInfo, PlanInfo>, Stopped> {
        self.ask(|to| ControlRequest::Change { wish, discard_state, to })
    }

    /// The plan that [`ManagerHandle::change`] would carry out now.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn plan(&self, wish: ChangeRequest, discard_state: bool) -> Result<PlanInfo, Stopped> {
        self.ask(|to| ControlRequest::Plan { wish, discard_state, to })
    }

    /// All handlers, by name.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn handlers(&self) -> Result<Vec<HandlerInfo>, Stopped> {
        self.views.handlers()
    }

    /// The wanted state: all handlers' specifications, by name.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn specs(&self) -> Result<Vec<HandlerSpec>, Stopped> {
        self.views.latest().map(|view| view.specs.clone())
    }

    /// All contexts, the one with the device first.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn contexts(&self) -> Result<Vec<HandlerContextInfo>, Stopped> {
        self.views.contexts()
    }

    /// What changed on the platform since the daemon's start.
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
        // They may have ended already.
        let _ = self.asks.send(ControlRequest::Stop);
    }
}
