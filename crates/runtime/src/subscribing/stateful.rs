//! Subscriptions to the result of a query with state, which may read several streams: it becomes a handler, which subscribers with the
//! same query share, and the subscription takes that one's stream with the query's clauses.

use super::{Coming, Made, SubscriptionRequest};
use crate::access::{Access, Caller, denied};
use crate::catalog::Snapshot;
use crate::context::Context;
use crate::handle::ExplainError;
use crate::managers::request::{ControlRequest, Query, SharedQuery};
use crate::pending::Pending;
use crate::refusal::refuse;
use crossdock_query::StatefulQuery;
use crossdock_transport::control::{Refusal, RefusalCode, RowErrors};
use std::collections::BTreeMap;

/// A query with state on its way to its handler.
pub(super) struct Stateful {
    pending: Pending,
    request: SubscriptionRequest,
    asked_ns: u64,
    query: StatefulQuery,
    /// The streams that it reads, in the spelling of the catalog.
    streams: Vec<String>,
}

impl Stateful {
    /// A subscriber's query, checked against the streams that there are and that the subscriber may read.
    ///
    /// # Errors
    /// It may not read one of them; one has no records yet, and the subscription does not wait; the query does not fit their formats.
    pub(super) fn found(
        (pending, request, asked_ns): (Pending, SubscriptionRequest, u64),
        query: StatefulQuery,
        (access, caller, snapshot): (&Access, &Caller, &Snapshot),
    ) -> Result<Stateful, Refusal> {
        let query = access.found_for(caller, query, snapshot).map_err(|why| match why {
            ExplainError::Denied(denial) => denied(denial),
            ExplainError::Query(_) | ExplainError::Format(_) => refuse(RefusalCode::Query, why.to_string()),
        })?;
        let streams: Vec<String> = query.streams().into_iter().map(str::to_owned).collect();
        let has_none = |stream: &&String| snapshot.find(stream).is_none_or(|entry| entry.formats().is_empty());
        if let Some(stream) = streams.iter().find(has_none).filter(|_| !request.wait) {
            let known: Vec<&str> = access.known_to(caller, snapshot).collect();
            return Err(refuse(RefusalCode::UnknownStream, query.unknown_stream(stream, &known).to_string()));
        }
        if let Some(formats) = snapshot.newest_formats(&streams) {
            query.plan(&formats, &BTreeMap::new()).map_err(|why| refuse(RefusalCode::Query, why.to_string()))?;
        }
        Ok(Stateful { pending, request, asked_ns, query, streams })
    }

    /// A handler runs the query: the subscription as one to that one's stream.
    fn coming(self, id: u64, (_, elsewhere): Made) -> Coming {
        let Stateful { pending, request, asked_ns, query, streams } = self;
        let select = query.result_select(elsewhere.handler());
        let placed = Some((id, elsewhere.reading(streams)));
        Coming { pending, request, asked_ns, select, planned: Vec::new(), is_measured: false, placed }
    }

    /// The part of the query that subscribers with the same one share.
    fn shared(&self) -> SharedQuery {
        SharedQuery::of(&self.query, &self.streams, self.request.row_errors == RowErrors::Null)
    }
}

impl Context {
    /// Has a query with state run as a handler.
    pub(super) fn place_stateful(&mut self, stateful: Stateful) {
        let (subscription, sql) = (self.subscriptions.take_id(), stateful.query.own_sql().into_owned());
        let (row_errors, streams) = (stateful.request.row_errors, stateful.streams.clone());
        let (shared, pending) = (Some(stateful.shared()), stateful.pending.clone());
        let of = streams.join("`, `");
        let (inbox, of_refused) = (self.inbox.own().clone(), of.clone());
        let then = Box::new(move |placed: Result<Made, String>| {
            // The context may have stopped.
            let _ = inbox.post(move |context| match placed {
                Ok(made) => context.enter_stream(stateful.coming(subscription, made)),
                Err(why) => context.refuse_query(&stateful.pending, &of_refused, why),
            });
        });
        let query = Box::new(Query { subscription, sql, row_errors, streams, shared, then });
        let sent = self.to_managers.send(ControlRequest::PlaceQuery(query));
        sent.unwrap_or_else(|why| self.refuse_query(&pending, &of, why.to_string()));
    }
}
