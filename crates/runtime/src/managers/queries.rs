//! Queries of subscriptions for which the context with the device has no time: each is deployed as a handler of its own
//! where it fits, and its subscription takes the handler's stream. The handler is removed with the subscription; it is
//! not part of the wanted specifications, and not kept across restarts.

use crate::managers::Managers;
use crate::managers::request::{ChangeRequest, Query, handler_of};
use crate::managers::spec::HandlerSpec;
use crossdock_query::{QueryError, Select};

impl Managers {
    /// Deploys a subscription's query where it fits.
    pub(crate) fn place_query(&mut self, query: Query) {
        let Query { subscription, sql, then } = query;
        let name = handler_of(subscription);
        let spec = HandlerSpec { name: name.clone(), sql: Some(sql), ..HandlerSpec::default() };
        let known = self.handlers.contains_key(&name);
        let placed = match known {
            // A user deployed a handler of that name.
            true => Err(format!("there is a handler `{name}` already: remove it")),
            false => {
                // From now on, so that it is never written down.
                self.queries.insert(name.clone());
                let made = self.make(&ChangeRequest::Deploy(spec), false, false);
                made.map_err(|plan| plan.refusals.join("; "))
                    .and_then(|_| all_of(&name).map_err(|error: QueryError| error.to_string()))
            }
        };
        if placed.is_err() && !known {
            self.remove_query(&name);
        }
        self.tell_room();
        // The subscription's answer comes after the snapshot that shows the result.
        self.publish_snapshot();
        then(placed);
    }

    /// A query's subscription has gone.
    pub(crate) fn remove_query(&mut self, name: &str) {
        if self.queries.remove(name) && self.handlers.contains_key(name) {
            // If a user's handler reads its stream, the removal is refused: it stays, to be removed by hand.
            let removed = self.make(&ChangeRequest::Remove { handler: name.to_owned() }, true, false);
            if removed.is_err() {
                self.queries.insert(name.to_owned());
            }
        }
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
