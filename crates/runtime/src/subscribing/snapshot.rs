//! Subscriptions with `SNAPSHOT`: they take what the state of their stream makes, from a walk over all that is there on.

use super::{Coming, SubscriptionRequest};
use crate::Overflow;
use crate::access::{Access, Caller};
use crate::catalog::Snapshot;
use crate::context::Context;
use crate::elsewhere::Elsewhere;
use crate::graph::Graph;
use crate::graph::node::StateLoss;
use crate::managers::request::{ControlRequest, RequestQueue, StateRead};
use crate::managers::state_spec::{WITHOUT, no_state, stream_of_state};
use crate::pending::Pending;
use crate::refusal::refuse;
use crate::streams::Streams;
use crate::subscriptions::{Subscription, Subscriptions};
use crossdock_query::{KeyedState, Select, SlowPolicy};
use crossdock_transport::Reply;
use crossdock_transport::control::{Notice, Refusal, RefusalCode};

/// A query of a state on its way.
pub(super) struct OfState {
    pending: Pending,
    request: SubscriptionRequest,
    asked_ns: u64,
    select: Select,
}

impl OfState {
    /// A subscriber's query of what it may read, checked against the stream's newest format.
    ///
    /// # Errors
    /// The stream has no records yet, and the subscription does not wait; the query does not fit; it asks for other formats.
    pub(super) fn found(
        (pending, request, asked_ns): (Pending, SubscriptionRequest, u64),
        select: Select,
        (access, caller, snapshot): (&Access, &Caller, &Snapshot),
    ) -> Result<OfState, Refusal> {
        if !request.accept.is_empty() {
            let why = "a query with SNAPSHOT gives the records of the stream's state, which are not converted";
            let error = select.snapshot_error(why, "leave out the accepted formats");
            return Err(refuse(RefusalCode::State, error.to_string()));
        }
        match snapshot.find(select.stream()).and_then(|entry| entry.formats().last()) {
            Some(format) => {
                let checked = select.plan(format).and_then(|_| select.check_order(format));
                checked.map_err(|why| refuse(RefusalCode::Query, why.to_string()))?;
            }
            None if request.wait => {}
            None => {
                let known: Vec<&str> = access.known_to(caller, snapshot).collect();
                return Err(refuse(RefusalCode::UnknownStream, select.unknown_stream(&known).to_string()));
            }
        }
        Ok(OfState { pending, request, asked_ns, select })
    }

    /// Whether changes are kept while its subscriber is slow.
    fn keeps_changes(&self) -> bool {
        let of_query = self.select.on_slow();
        of_query.is_some_and(|policy| !matches!(policy, SlowPolicy::Block))
            || self.request.overflow == Some(Overflow::Disconnect)
    }

    /// The subscription as one to the stream that the state's handler makes.
    fn coming(self, id: u64, (state, elsewhere): (KeyedState, Elsewhere)) -> Coming {
        let OfState { pending, request, asked_ns, select } = self;
        let reads = vec![select.stream().to_owned()];
        let select = select.of_state(elsewhere.handler(), state);
        let placed = Some((id, elsewhere.reading(reads)));
        Coming { pending, request, asked_ns, select, planned: Vec::new(), is_measured: false, placed }
    }
}

impl Context {
    /// Has the managers find the state of a query's stream.
    pub(super) fn find_state(&mut self, of: OfState) {
        let (subscription, stream, pending) =
            (self.subscriptions.take_id(), of.select.stream().to_owned(), of.pending.clone());
        let inbox = self.inbox.own().clone();
        let (top, keeps_changes) = (of.select.top_n(), of.keeps_changes());
        let then = Box::new(move |found: Result<(KeyedState, Elsewhere), String>| {
            // The context may have stopped.
            let _ = inbox.post(move |context| match found {
                Ok(found) => context.enter_stream(of.coming(subscription, found)),
                Err(why) => {
                    let error = of.select.snapshot_error(why, WITHOUT);
                    context.answer(&of.pending, Err(refuse(RefusalCode::Query, error.to_string())));
                }
            });
        });
        let sent =
            self.to_managers.send(ControlRequest::ReadState(Box::new(StateRead { stream, top, keeps_changes, then })));
        sent.unwrap_or_else(|why| self.answer(&pending, Err(refuse(RefusalCode::Limit, why.to_string()))));
    }

    /// The state that a subscription reads is gone, or its query has failed: its subscriber hears why, and that nothing more comes.
    #[cold]
    pub(crate) fn end_reading(&mut self, key: usize, loss: StateLoss) {
        self.sessions().0.flush(key);
        // It may have been disconnected for its queue.
        let Some(subscription) = self.subscriptions.get(key) else { return };
        let (peer, number) = (subscription.peer(), subscription.number());
        let message = self.graph.failure(key).unwrap_or_else(|| lost_text(subscription.select().stream(), loss));
        if let Some(id) = subscription.awaited() {
            self.send_control(peer, &Reply::Refused { id, refusal: refuse(RefusalCode::State, message) }.into());
            return self.remove_subscription(key);
        }
        self.send_control(peer, &Notice::Unreadable { subscription: number, message }.into());
        self.report_end(key, 0, 1);
    }
}

impl Subscriptions {
    /// A subscription to a state's stream is in its place: nothing that is made from now on passes it by.
    pub(super) fn begin_snapshot(&self, key: usize, graph: &mut Graph, managers: &RequestQueue) {
        let Some(subscription) = self.present(key) else { return };
        if subscription.select().snapshot().is_none() {
            return;
        }
        let (handler, of) = (subscription.select().stream().to_owned(), subscription.select().state_key().to_vec());
        graph.read_state(key);
        // The managers may have ended before.
        let _ = managers.send(ControlRequest::WalkState { handler, key: of });
    }

    /// The state of a stream has this key from now on: what was planned for another one would not hold.
    pub(crate) fn lose_readers_of_others(&self, handler: &str, key: &[String], streams: &Streams, graph: &mut Graph) {
        let stream = streams.find(handler).and_then(|stream| streams.get(stream));
        for reader in stream.map(|stream| stream.subscriptions().to_vec()).unwrap_or_default() {
            let select = self.present(reader).map(Subscription::select);
            if select.is_some_and(|select| select.snapshot().is_some() && select.state_key() != key) {
                graph.lose_state_of(reader, StateLoss::Anew);
            }
        }
    }
}

impl Streams {
    /// The state of a stream is gone, though its handler is not: those that read it hear so.
    pub(crate) fn lose_state(&self, handler: &str, loss: StateLoss, graph: &mut Graph) {
        if let Some(stream) = self.find(handler) {
            graph.lose_state(stream as u32, loss);
        }
    }
}

/// Why a state that a handler of this name has kept is gone.
fn lost_text(handler: &str, loss: StateLoss) -> String {
    let stream = stream_of_state(handler).unwrap_or(handler);
    match loss {
        StateLoss::Withdrawn => format!("the state of stream `{stream}` was withdrawn: {}", no_state(stream)),
        StateLoss::Failed => format!(
            "the state of stream `{stream}` has failed: `crossdock handlers \"{handler}\"` has the reason; declare the key again"
        ),
        StateLoss::Anew => format!(
            "the state of stream `{stream}` has begun anew, since another key was declared or its handler has failed: subscribe \
             again for the records that are there now"
        ),
    }
}
