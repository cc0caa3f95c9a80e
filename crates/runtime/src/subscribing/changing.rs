//! Changes of a subscription's query while it runs. The query is parsed and planned on the planner, as that of a new subscription is,
//! and takes the place of the one before between two batches: each record is seen by exactly one of them, and the counters go on. A
//! query of a state gives the difference with one more walk over that ([`crossdock_engine::SnapshotHandler`]).

use super::cost_key;
use crate::access::denied;
use crate::admission::{Admission, Facts, QueryCostModel};
use crate::catalog::{Snapshot, StreamEntry};
use crate::context::Context;
use crate::egress::Sessions;
use crate::elsewhere::Elsewhere;
use crate::graph::Graph;
use crate::inbox::Then;
use crate::managers::request::{ControlRequest, StateRead};
use crate::managers::state_spec::WITHOUT;
use crate::planner::Panicked;
use crate::refusal::refuse;
use crate::subscriptions::{Planned, Subscription, Subscriptions};
use crossdock_format::{Format, FormatId};
use crossdock_query::{KeyedState, Program, Query as AnyQuery, QueryError, Select, Snapshot as Snapshots};
use crossdock_transport::Notice;
use crossdock_transport::control::{Refusal, RefusalCode};
use std::sync::Arc;

/// Why a subscription keeps its query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetQueryError {
    /// There is no such subscription.
    #[error("there is no such subscription")]
    UnknownSubscription,
    /// The query does not parse or does not fit; where and what is possible.
    #[error("{0}")]
    Query(String),
    /// The subscription cannot get another query now, or its subscriber may not have that one.
    #[error("{0}")]
    Refused(String),
}

/// A change of a subscription's query on its way.
struct QueryChange {
    /// The subscription's key, and its number in the daemon.
    key: usize,
    id: u64,
    /// The query before.
    before: Arc<Select>,
    select: Select,
    /// The formats that it is planned for.
    planned: Vec<Planned>,
    /// Whether it was measured on records of its stream.
    is_measured: bool,
    /// The use of the handler whose state it reads, if it reads one.
    elsewhere: Option<Elsewhere>,
    /// The number of the change.
    change: u64,
    then: Then,
}

impl QueryChange {
    /// Plans the query for some formats, and measures it there if there is something to measure it on.
    fn plan(&mut self, formats: &[Format], costs: &QueryCostModel, facts: Option<&Facts>) {
        let QueryChange { select, before, planned, change, .. } = self;
        planned.retain(|planned| !formats.iter().any(|format| planned.is_for(format)));
        planned.extend(formats.iter().map(|format| {
            let measure = |program: &Program| costs.measure(&cost_key(select), program, facts?);
            match select.snapshot() {
                Some(_) => Planned::of_change((select, before), format, *change, measure),
                None => Planned::measured_with(select, format, measure),
            }
        }));
        self.is_measured = facts.is_some();
    }

    /// The change with a use of the state of its own.
    fn with_state(self, state: KeyedState, elsewhere: Elsewhere) -> QueryChange {
        let reads = vec![self.select.stream().to_owned()];
        let select = self.select.of_state(elsewhere.handler(), state);
        let elsewhere = Some(elsewhere.reading(reads));
        QueryChange { select, elsewhere, planned: Vec::new(), ..self }
    }

    /// It is refused.
    fn refuse(self, context: &mut Context, refusal: Refusal) {
        (self.then)(context, Err(refusal));
    }
}

/// Why a query does not parse or fit.
fn invalid(why: &QueryError) -> Refusal {
    refuse(RefusalCode::Query, why.to_string())
}

impl Context {
    /// A session gives one of its subscriptions another query.
    pub(crate) fn begin_set_query(&mut self, key: usize, id: u32, number: u32, sql: String) {
        let Some(pending) = self.pause(key, id) else { return };
        let found = self.subscriptions.of_peer((&self.net, key), number);
        let then = Box::new(move |context: &mut Context, outcome| context.answer(&pending, outcome));
        match found {
            Ok(subscription) => self.set_query(subscription, sql, then),
            Err(refusal) => then(self, Err(refusal)),
        }
    }

    /// The daemon's handle gives a subscription another query, by its number in the daemon.
    pub(crate) fn set_query_of(&mut self, id: u64, sql: String, then: Then) {
        let found = self.subscriptions.iter().find(|(_, subscription)| subscription.id() == id).map(|(key, _)| key);
        match found {
            Some(key) => self.set_query(key, sql, then),
            None => then(self, Err(gone(id))),
        }
    }

    /// Has a query parsed and planned for a subscription.
    fn set_query(&mut self, key: usize, sql: String, then: Then) {
        if let Err(refusal) = self.subscriptions.check_changeable(key, &self.graph) {
            return then(self, Err(refusal));
        }
        let Some(subscription) = self.subscriptions.present(key) else { return };
        let (id, before) = (subscription.id(), Arc::clone(subscription.select()));
        let stream = subscription.streams().next().unwrap_or_default().to_owned();
        let (access, caller) = (Arc::clone(&self.access), self.access.caller_at(&self.net, subscription.peer()));
        let snapshot = Arc::clone(self.streams.snapshot());
        let change = self.subscriptions.take_id();
        let work = move |costs: &QueryCostModel| {
            let select = match crossdock_query::parse_query(&sql).map_err(|why| invalid(&why)) {
                Ok(AnyQuery::Select(select)) if before.is_null_for_errors() => Ok(select.with_null_for_errors()),
                Ok(AnyQuery::Select(select)) => Ok(select),
                Ok(AnyQuery::Stateful(_)) => Err(refuse(RefusalCode::State, KEEPS_STATE.to_owned())),
                Err(refusal) => Err(refusal),
            };
            let read = select.and_then(|mut select| {
                access.find_stream(&caller, &mut select, &snapshot).map_err(|why| invalid(&why))?;
                select.check_change(&before, &stream).map_err(|why| invalid(&why))?;
                let is_derived = snapshot.find(&stream).is_some_and(|entry| entry.made_by().is_some());
                let select = access.view(&caller, select, is_derived).map_err(denied)?;
                let planned = planned_for(&select, &snapshot, costs).map_err(|why| invalid(&why))?;
                Ok((select, planned))
            });
            match read {
                Ok((select, planned)) => {
                    let (is_measured, elsewhere) = (false, None);
                    Ok(QueryChange { key, id, before, select, planned, is_measured, elsewhere, change, then })
                }
                Err(refusal) => Err((then, refusal)),
            }
        };
        self.plan(work, |context, outcome| match outcome {
            Ok(Ok(change)) if change.select.snapshot().is_some() => context.find_state_again(change),
            Ok(Ok(change)) => context.go_on_exchanging(change),
            Ok(Err((then, refusal))) => then(context, Err(refusal)),
            // With what was to answer it, the caller learns that it is refused.
            Err(_) => {}
        });
    }

    /// Has the managers find the state once more: the next query has a use of it of its own.
    fn find_state_again(&mut self, change: QueryChange) {
        let subscription = self.subscriptions.get(change.key);
        let keeps_changes = subscription.is_some_and(|subscription| !subscription.blocks());
        let handler = subscription.and_then(Subscription::handler).map(str::to_owned);
        let Some(handler) = handler else { return change.refuse(self, gone(0)) };
        let (stream, top) = (change.select.stream().to_owned(), change.select.top_n());
        let inbox = self.inbox.own().clone();
        let then = Box::new(move |found: Result<(KeyedState, Elsewhere), String>| {
            // The context may have stopped.
            let _ = inbox.post(move |context| match found {
                Ok((state, elsewhere)) if elsewhere.handler() == handler && state.key == change.before.state_key() => {
                    context.go_on_exchanging(change.with_state(state, elsewhere));
                }
                Ok(_) => change.refuse(context, refuse(RefusalCode::State, BEGUN_ANEW.to_owned())),
                Err(why) => {
                    let error = change.select.snapshot_error(why, WITHOUT);
                    change.refuse(context, invalid(&error));
                }
            });
        });
        // If there is no place for it, what answers the caller goes with it.
        let _ =
            self.to_managers.send(ControlRequest::ReadState(Box::new(StateRead { stream, top, keeps_changes, then })));
    }

    /// Puts the next query in, or has it planned for what it is not planned for yet.
    fn go_on_exchanging(&mut self, mut change: QueryChange) {
        match self.exchange(&mut change) {
            Ok(formats) if formats.is_empty() => (change.then)(self, Ok(())),
            Ok(formats) => {
                let stream = self.subscriptions.present(change.key).map(Subscription::stream);
                let stream = stream.and_then(|stream| self.streams.get(stream));
                let (now_ns, platform) = (self.net.now_ns(), &self.config.platform);
                let facts = stream.and_then(|stream| self.admission.query_facts(stream, now_ns, platform));
                let work = move |costs: &QueryCostModel| {
                    change.plan(&formats, costs, facts.as_ref());
                    change
                };
                let then = |context: &mut Context, planned: Result<QueryChange, Panicked>| {
                    // If it has panicked, what answers the caller went with it.
                    planned.into_iter().for_each(|change| context.go_on_exchanging(change));
                };
                self.plan(work, then);
            }
            Err(refusal) => change.refuse(self, refusal),
        }
    }

    /// Puts the next query in once it is planned for all that it has to be; otherwise the formats for which it is to be.
    fn exchange(&mut self, change: &mut QueryChange) -> Result<Vec<Format>, Refusal> {
        let key = change.key;
        let found = self.subscriptions.get(key).filter(|subscription| subscription.id() == change.id);
        let Some(subscription) = found else { return Err(gone(change.id)) };
        if !Arc::ptr_eq(subscription.select(), &change.before) {
            let why = "the query of the subscription was changed by another request meanwhile: try again";
            return Err(refuse(RefusalCode::State, why.to_owned()));
        }
        self.subscriptions.check_changeable(key, &self.graph)?;
        let (peer, stream) = (subscription.peer(), subscription.stream());
        let (reader, snapshot) = ((&self.net, peer), self.streams.snapshot());
        subscription.streams().try_for_each(|stream| self.access.check_reader(reader, snapshot, stream))?;
        let formats = self.streams.snapshot().find(change.select.stream()).map(|entry| entry.formats().to_vec());
        let formats = formats.unwrap_or_default();
        change.planned.retain(|planned| formats.iter().any(|format| planned.is_for(format)));
        let rate = self.streams.arriving_msgs_per_s(stream, &change.select, self.net.now_ns());
        let planned = (&change.planned[..], change.is_measured);
        let unplanned = self.admission.formats_to_plan(rate, planned, &formats, &self.config.platform);
        if !unplanned.is_empty() {
            return Ok(unplanned);
        }
        // The newest format must fit; older ones may not, their records are then counted as unreadable.
        let newest = formats.last().and_then(|newest| change.planned.iter().find(|planned| planned.is_for(newest)));
        if let Some(why) = newest.and_then(Planned::misfit) {
            return Err(invalid(why));
        }
        let needs = change.planned.iter().map(|planned| planned.load_ns_per_s(rate)).max().unwrap_or(0);
        let before = subscription.load_ns_per_s();
        self.admission.admit_exchange((before, needs), rate, &self.name)?;
        let (mut sessions, _, graph) = self.sessions();
        sessions.put_exchanged(change, (formats, needs), graph);
        self.subscriptions.begin_snapshot(key, &mut self.graph, &self.to_managers);
        Ok(Vec::new())
    }
}

impl Sessions<'_> {
    /// The next query is at work from now on. Its subscriber learns of formats that are new to it before their first record.
    fn put_exchanged(&mut self, change: &mut QueryChange, (formats, needs): (Vec<Format>, u64), graph: &mut Graph) {
        let QueryChange { key, select, elsewhere, .. } = change;
        let (key, select, elsewhere) = (*key, select.clone(), elsewhere.take());
        let mut planned = std::mem::take(&mut change.planned);
        // The newest last, as for a new subscription.
        planned.sort_by_key(|planned| formats.iter().position(|format| planned.is_for(format)));
        let Some(subscription) = self.subscriptions.present_mut(key) else { return };
        let known: Vec<FormatId> = subscription.output_formats().map(Format::id).collect();
        subscription.count_load(needs);
        let former = subscription.exchange_query(select, planned, elsewhere);
        let (peer, number) = (subscription.peer(), subscription.number());
        let outputs: Vec<Format> = subscription.output_formats().cloned().collect();
        let (instances, wanted) = subscription.new_instances();
        graph.exchange_query(key, instances, wanted);
        graph.keep_former_use(key, former);
        self.subscriptions.update_reducers(key, graph);
        // The last one that is sent is the format of records to come: the newest, if any is sent.
        let last = outputs.len().saturating_sub(1);
        let is_any_new = outputs.iter().any(|output| !known.contains(&output.id()));
        for (place, output) in outputs.iter().enumerate() {
            let is_newest = place == last && (is_any_new || known.last() != Some(&output.id()));
            if is_newest || !known.contains(&output.id()) {
                let notice = Notice::Format { subscription: number, format: output.describe() };
                self.net.send(peer, &notice.into(), self.host);
            }
        }
    }
}

impl Subscriptions {
    /// Whether a subscription may get another query now.
    ///
    /// # Errors
    /// It waits for its stream, or for what its query before gives; or its query runs where it cannot be exchanged.
    fn check_changeable(&self, key: usize, graph: &Graph) -> Result<(), Refusal> {
        let Some(subscription) = self.get(key) else { return Err(gone(0)) };
        let reads_state = subscription.select().snapshot().is_some();
        let why = match () {
            () if subscription.awaits_format() => "it waits for the first format of its stream: try again behind that",
            () if subscription.accept().is_some() => {
                "its records are converted to the formats that it accepts, for which its query was planned: subscribe anew"
            }
            () if subscription.is_elsewhere() && !reads_state => {
                "a handler runs its query, since that keeps state or its context has no time for it: subscribe anew"
            }
            () if subscription.select().snapshot() == Some(Snapshots::Once) => {
                "a query with SNAPSHOT alone ends by itself: wait for its end"
            }
            () => match graph.hinders_exchange(key) {
                Some(why) => why,
                None => return Ok(()),
            },
        };
        Err(refuse(RefusalCode::State, format!("the query of the subscription cannot be changed: {why}")))
    }
}

impl Admission {
    /// Admits the load of the next query beside that of the one before.
    fn admit_exchange(&mut self, (before, needs): (u64, u64), rate: u64, context: &str) -> Result<(), Refusal> {
        if needs <= before {
            self.release(before - needs);
            return Ok(());
        }
        let more = self.admit(needs - before, rate, context);
        more.map_err(|figures| {
            self.refused += 1;
            refuse(RefusalCode::Limit, format!("beside what the query before takes, {figures}"))
        })
    }
}

/// Plans a query as far as it can be before a context goes on with it; one of a state is checked against its stream's newest format.
fn planned_for(select: &Select, snapshot: &Snapshot, costs: &QueryCostModel) -> Result<Vec<Planned>, QueryError> {
    let formats = snapshot.find(select.stream()).map(StreamEntry::formats).unwrap_or_default();
    if select.snapshot().is_some() {
        let check = |format: &Format| select.plan(format).and_then(|_| select.check_order(format));
        return formats.last().map_or(Ok(Vec::new()), |format| check(format).map(|()| Vec::new()));
    }
    let measure = |program: &Program| costs.remembered(&cost_key(select), program);
    Ok(formats.iter().map(|format| Planned::measured_with(select, format, measure)).collect())
}

/// The refusal for a subscription that is not there, or no longer.
fn gone(id: u64) -> Refusal {
    let message = match id {
        0 => "the subscription has ended".to_owned(),
        id => format!("there is no subscription {id}: `crossdock subscriptions` lists them"),
    };
    refuse(RefusalCode::State, message)
}

const KEEPS_STATE: &str = "the query has joins, groups or windows, which a handler keeps from its beginning: it cannot take the place of another one, \
     subscribe anew";
const BEGUN_ANEW: &str = "the state of the stream has begun anew, since another key was declared: subscribe again for the records that are there now";
