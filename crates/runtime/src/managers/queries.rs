//! Queries of subscriptions for which the context with the subscription has no time: each is deployed as a handler of its own
//! where it fits, and its subscription takes the handler's stream. The handler is removed with the subscription; it is
//! not part of the wanted specifications, and not kept across restarts.

use crate::graph::ContextIndex;
use crate::managers::Managers;
use crate::managers::change::NotMade;
use crate::managers::events::About;
use crate::managers::request::{ChangeRequest, ControlRequest, EventKind, Query, handler_of};
use crate::managers::spec::HandlerSpec;
use crate::managers::waiting::Answered;
use crossdock_query::{QueryError, Select};
use std::sync::Arc;
use std::time::Instant;

impl Managers {
    /// Deploys a subscription's query where it fits.
    pub(super) fn place_query(&mut self, query: Box<Query>) -> Answered {
        let name = handler_of(query.subscription);
        let (sql, input_streams) = (Some(query.sql.clone()), vec![query.stream.clone()]);
        let on_row_error = query.row_errors.into();
        let spec = HandlerSpec { name: name.clone(), sql, input_streams, on_row_error, ..HandlerSpec::default() };
        if self.handlers.contains_key(&name) {
            // A user deployed a handler of that name.
            (query.then)(Err(format!("handler `{name}` exists already: remove it")));
            return Answered::Now;
        }
        // From now on, so that it is never written down.
        self.queries.insert(name.clone());
        let made = match self.make(&ChangeRequest::Deploy(spec), false, false, Instant::now()) {
            Err(NotMade::Unmeasured) => {
                self.queries.remove(&name);
                return Answered::Unmeasured(ControlRequest::PlaceQuery(query));
            }
            Err(NotMade::Hindered { at, plan }) => {
                self.queries.remove(&name);
                return Answered::Hindered { at, plan, request: ControlRequest::PlaceQuery(query) };
            }
            Err(NotMade::Refused(plan)) => Err(plan.refusals.join("; ")),
            Ok(_) => match (all_of(&name), self.handlers.get(&name)) {
                (Ok(all), Some(handler)) => Ok((all, Arc::clone(&handler.gauges))),
                (Err(error), _) => Err(error.to_string()),
                (Ok(_), None) => Err("its handler is gone".to_owned()),
            },
        };
        if made.is_err() {
            self.remove_query(&name);
        }
        self.report_room(false);
        // The subscription's answer comes after the snapshot that shows the result.
        self.publish_changed();
        (query.then)(made);
        Answered::Now
    }

    /// A query's subscription has gone; its handler stays where another is to be measured before. The context that hinders it, if
    /// one does.
    pub(crate) fn remove_query(&mut self, name: &str) -> Option<ContextIndex> {
        if !self.queries.contains(name) || !self.handlers.contains_key(name) {
            self.queries.remove(name);
            return None;
        }
        // If a user's handler reads its stream, the removal is refused: it stays, to be removed by hand.
        let change = ChangeRequest::Remove { handler: name.to_owned() };
        match self.make(&change, true, false, Instant::now()) {
            Ok(_) => drop(self.queries.remove(name)),
            Err(NotMade::Hindered { at, .. }) => return Some(at),
            Err(NotMade::Unmeasured | NotMade::Refused(_)) => {}
        }
        None
    }

    /// Notes an event that an I/O context reports.
    pub(super) fn note_event(&mut self, kind: EventKind, at: ContextIndex, text: String) {
        self.events.note(kind.word(), About { handler: None, context: Some(self.watch.name(at)) }, text);
    }

    /// Whether a handler is a subscription's own query.
    pub(crate) fn is_query(&self, name: &str) -> bool {
        self.queries.contains(name)
    }
}

/// The query that takes all of a stream.
fn all_of(stream: &str) -> Result<Select, QueryError> {
    crossdock_query::parse(&format!("SELECT * FROM \"{stream}\""))
}
