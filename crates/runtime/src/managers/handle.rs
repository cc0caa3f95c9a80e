//! The rest of the daemon's side of the managers: what is wanted, what is there, what happened.

use crate::handle::Stopped;
use crate::info::{AppliedInfo, EventInfo, HandlerContextInfo, HandlerInfo, HistoryInfo, PlanInfo};
use crate::managers::queries::Query;
use crate::managers::spec::HandlerSpec;
use crate::managers::view::Views;
use crossdock_engine::NativeKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::mpsc::Sender;

/// A change of what is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Wish {
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

/// What the managers are asked.
pub(crate) enum Ask {
    Change {
        wish: Wish,
        discard_state: bool,
        to: oneshot::Sender<Result<AppliedInfo, PlanInfo>>,
    },
    Plan {
        wish: Wish,
        discard_state: bool,
        to: oneshot::Sender<PlanInfo>,
    },
    /// From the context: a stream that handlers read has a format more.
    NewFormat {
        stream: u32,
    },
    /// From the context: a subscription's query that it has no time for is to run elsewhere.
    PlaceQuery(Box<Query>),
    /// From the context: a subscription whose query runs elsewhere has gone; the handler's name.
    RemoveQuery(String),
    /// From the context: a subscription's query fits nowhere; the stream and the figures.
    QueryRefused(String),
    /// A kind of native handler more.
    AddNative {
        kind: Box<NativeKind>,
        to: oneshot::Sender<()>,
    },
    Stop,
}

/// A handle to the managers of a daemon. Cheap to clone. What there is is told at once, also while a change is being made; who
/// changed something sees it with the next question.
#[derive(Clone, Debug)]
pub struct ManagerHandle {
    asks: Sender<Ask>,
    views: Views,
}

impl ManagerHandle {
    pub(crate) fn new(asks: Sender<Ask>, views: Views) -> ManagerHandle {
        ManagerHandle { asks, views }
    }

    fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<T>) -> Ask) -> Result<T, Stopped> {
        let (answer, wait) = oneshot::channel();
        self.asks.send(ask(answer)).map_err(|_| Stopped)?;
        wait.recv().map_err(|_| Stopped)
    }

    /// Brings the platform to what is wanted: all of it, or nothing has changed, unless a context
    /// fails meanwhile ([`PlanInfo::is_begun`]). When this returns every context has taken
    /// the change, and it is kept where the daemon keeps anything. `discard_state` says that a handler's state may be lost
    /// where its next version cannot take it.
    ///
    /// # Errors
    /// [`Stopped`]; within, the plan with why it is refused.
    pub fn change(&self, wish: Wish, discard_state: bool) -> Result<Result<AppliedInfo, PlanInfo>, Stopped> {
        self.ask(|to| Ask::Change { wish, discard_state, to })
    }

    /// What [`ManagerHandle::change`] would do now.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn plan(&self, wish: Wish, discard_state: bool) -> Result<PlanInfo, Stopped> {
        self.ask(|to| Ask::Plan { wish, discard_state, to })
    }

    /// All handlers, by name.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn handlers(&self) -> Result<Vec<HandlerInfo>, Stopped> {
        self.views.handlers()
    }

    /// What is wanted now: all handlers' specifications, by name.
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

    /// Has what happens on the platform taken by `sink` as well, first what has happened: on the managers' thread, which waits for it.
    pub fn log_events_to(&self, sink: impl FnMut(&EventInfo) + Send + 'static) {
        self.views.events.log_to(Box::new(sink));
    }

    /// What happened after the event of this number, oldest first; the last thousand events are kept.
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

    /// Makes a kind of native handler known, in the place of one of the same name. Handlers that run go on as they are.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn add_native(&self, kind: NativeKind) -> Result<(), Stopped> {
        self.ask(|to| Ask::AddNative { kind: Box::new(kind), to })
    }

    /// Has the managers end.
    pub(crate) fn stop(&self) {
        // They may have ended already.
        let _ = self.asks.send(Ask::Stop);
    }
}
