//! Requests to the managers, by the rest of the daemon and by contexts.

use crate::info::{AppliedInfo, PlanInfo};
use crate::managers::spec::HandlerSpec;
use crossdock_engine::NativeKind;
use crossdock_query::Select;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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

/// What becomes of a query that is to run elsewhere: a query that takes all of its handler's stream, or the reason why
/// there is no handler.
pub(crate) type Placed = Box<dyn FnOnce(Result<Select, String>) + Send>;

/// A query that is to run elsewhere.
pub(crate) struct Query {
    /// Its subscription's id.
    pub(crate) subscription: u64,
    /// Its text.
    pub(crate) sql: String,
    /// Called with the outcome, on the managers' thread.
    pub(crate) then: Placed,
}

/// The name of the handler that runs a subscription's query, and of the stream that it makes.
pub(crate) fn handler_of(subscription: u64) -> String {
    format!("subscription-{subscription}")
}
