//! Creates subscriptions: a query is parsed on the planner, planned there for the formats that its stream has or that
//! it accepts, and put in between two turns, once it counts as a use of its stream. It goes to the
//! planner once more if its cost has to be measured, or if there are other formats by then. Further packets of its session
//! wait meanwhile. A query with state becomes a handler first ([`stateful`]).

mod changing;
mod snapshot;
mod stateful;

pub use changing::SetQueryError;

use crate::Overflow;
use crate::access::{Access, denied};
use crate::admission::{Admission, Facts, QueryCostModel};
use crate::catalog::{Catalog, Snapshot};
use crate::config::{ContextConfig, PlatformConfig};
use crate::context::Context;
use crate::elsewhere::Elsewhere;
use crate::graph::Graph;
use crate::graph::slow::Slow;
use crate::managers::request::{ControlRequest, EventKind, Query};
use crate::morph::Accept;
use crate::net::Net;
use crate::pending::Pending;
use crate::planner::Panicked;
use crate::principal::Bound;
use crate::refusal::refuse;
use crate::streams::{Stream, Streams};
use crate::subscriptions::{Planned, Subscription, Subscriptions};
use crossdock_format::Format;
use crossdock_query::{Program, Query as AnyQuery, QueryError, Select, SlowPolicy, Snapshot as SnapshotKind};
use crossdock_transport::control::{Refusal, RefusalCode, RowErrors};
use crossdock_transport::{FormatName, Unreadable};
use snapshot::OfState;
use stateful::Stateful;
use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;

/// Formats that one subscription accepts at most.
const MAX_ACCEPTED: usize = 16;

/// A subscriber's request.
pub(crate) struct SubscriptionRequest {
    /// The request's number.
    pub(crate) id: u32,
    /// The subscriber's number for it.
    pub(crate) number: u32,
    /// The query.
    pub(crate) sql: String,
    /// The policy when its queue is full, if the subscriber says so.
    pub(crate) overflow: Option<Overflow>,
    /// Whether it may wait for its stream.
    pub(crate) wait: bool,
    /// The formats that it accepts; any when empty.
    pub(crate) accept: Vec<FormatName>,
    /// The policy for records that cannot be had in these, if the subscriber says so.
    pub(crate) unreadable: Option<Unreadable>,
    /// The policy of its query for a record that it cannot compute.
    pub(crate) row_errors: RowErrors,
    /// Whether the subscriber is to be notified of how far its stream has come.
    pub(crate) positions: bool,
    /// Whether it would have all records in one format, if it does not say which ones it accepts.
    pub(crate) one_format: bool,
}

impl SubscriptionRequest {
    /// The request with a query that may have a view. Conversions are made of whole records, and could give a hidden field the name of
    /// one that is shown: so through a view records come in their own formats.
    fn seen_through(self, select: &Select) -> Result<SubscriptionRequest, Refusal> {
        if select.view().is_none() {
            return Ok(self);
        }
        if !self.accept.is_empty() {
            let message = format!(
                "the access rule for stream `{}` shows some of its rows and fields, and such records are not converted: leave out \
                 the accepted formats",
                select.stream()
            );
            return Err(refuse(RefusalCode::State, message));
        }
        Ok(SubscriptionRequest { one_format: false, ..self })
    }
}

/// The query that takes all of a handler's stream, and its use of that handler.
type Made = (Select, Elsewhere);

/// A subscription on its way.
struct Coming {
    /// The subscriber's request, which is to be answered.
    pending: Pending,
    request: SubscriptionRequest,
    /// When the request came, in ns of the context's clock.
    asked_ns: u64,
    select: Select,
    /// The formats that its query is planned for.
    planned: Vec<Planned>,
    /// Whether its query was measured on records of its stream.
    is_measured: bool,
    /// Where it takes the result of a query with state: its number, and its use of the handler that runs the query.
    placed: Option<(u64, Elsewhere)>,
}

/// A subscriber's query that was read.
enum Asked {
    Plain(Box<Coming>),
    Stateful(Box<Stateful>),
    OfState(Box<OfState>),
}

impl Coming {
    /// Plans the query for some formats, and measures it there if there is something to measure it on.
    fn plan(&mut self, formats: &[Format], costs: &QueryCostModel, facts: Option<&Facts>) {
        let Coming { select, planned, .. } = self;
        planned.retain(|planned| !formats.iter().any(|format| planned.is_for(format)));
        planned.extend(formats.iter().map(|format| {
            let measure = |program: &Program| costs.measure(&cost_key(select), program, facts?);
            Planned::measured_with(select, format, measure)
        }));
        self.is_measured = facts.is_some();
    }

    /// Takes what was planned for a format.
    fn take(&mut self, format: &Format) -> Planned {
        match self.planned.iter().position(|planned| planned.is_for(format)) {
            Some(at) => self.planned.swap_remove(at),
            None => {
                debug_assert!(false, "the query is planned for format {}", format.id());
                Planned::new(&self.select, format)
            }
        }
    }
    /// A subscription with its query, which is planned for all these formats.
    fn make_subscription(
        &mut self,
        (peer, stream_key): (usize, usize),
        formats: Vec<Format>,
        (streams, config): (&Streams, &ContextConfig),
        now_ns: u64,
    ) -> Result<Subscription, Refusal> {
        let policy = self.slow_policy(config)?;
        let (number, select) = (self.request.number, self.select.clone());
        let notified = (policy, self.request.positions);
        let mut subscription = Subscription::new(peer, number, stream_key, select, notified);
        let peak = streams.arriving_msgs_per_s(stream_key, subscription.select(), now_ns);
        // Which of its formats comes how often is not known, so the dearest counts.
        subscription.count_load(self.planned.iter().map(|p| p.load_ns_per_s(peak)).max().unwrap_or(0));
        if !self.request.accept.is_empty() {
            self.take_accepted(&mut subscription, formats, (streams, config))?;
            return Ok(subscription);
        }
        let newest = formats.len();
        // The newest format must fit; older ones may not, their records are then counted as unreadable.
        for (index, format) in formats.iter().enumerate() {
            if let Err(error) = subscription.add_planned(self.take(format))
                && index + 1 == newest
            {
                return Err(refuse(RefusalCode::Query, error.to_string()));
            }
        }
        if formats.is_empty() {
            subscription.await_format(self.request.id);
        }
        let entry = streams.get(stream_key).map(Stream::entry);
        let has_conversions = entry.is_some_and(|entry| !entry.conversions().graph().conversions().is_empty());
        if self.request.one_format && has_conversions {
            subscription.accept_only(Accept::open(self.pending.clone()));
        }
        Ok(subscription)
    }

    /// The policy of a subscription while it is slow: that of its query, of its request beside it, or of the configuration.
    fn slow_policy(&self, config: &ContextConfig) -> Result<SlowPolicy, Refusal> {
        let asked = self.request.overflow.map(policy_of);
        let of_state = self.select.snapshot().is_some();
        match (self.select.on_slow(), asked) {
            (Some(of_query), Some(asked)) if of_query.to_string() != asked.to_string() => {
                let message = format!(
                    "the query says what a slow subscriber gets, `{of_query}`, and the request says `{asked}`: \
                     leave one of them out (the request's is --on-overflow)"
                );
                Err(refuse(RefusalCode::Query, message))
            }
            (of_query, asked) if of_state => slow_policy_of_state(&self.select, of_query.or(asked)),
            (of_query, asked) => Ok(of_query.or(asked).unwrap_or_else(|| policy_of(config.overflow))),
        }
    }

    /// Takes the plans for the formats that are accepted, as far as known. All of these must fit.
    fn take_accepted(
        &mut self,
        subscription: &mut Subscription,
        formats: Vec<Format>,
        (streams, config): (&Streams, &ContextConfig),
    ) -> Result<(), Refusal> {
        let policy = self.request.unreadable.unwrap_or(config.morph.unreadable);
        let mut accept = Accept::named(self.pending.clone(), self.request.accept.clone(), policy);
        for format in formats {
            subscription.add_planned(self.take(&format)).map_err(|error| {
                let message = format!("the query does not fit the accepted format {}: {error}", format.id());
                refuse(RefusalCode::Query, message)
            })?;
            accept.accept(format);
        }
        if let (true, Some(name)) = (accept.knows_none(), self.request.accept.first()) {
            if !self.request.wait {
                return Err(streams.snapshot().unknown_format(subscription.select().stream(), name));
            }
            subscription.await_format(self.request.id);
        }
        subscription.accept_only(accept);
        Ok(())
    }
}

/// The outcome of a subscription request.
enum Outcome {
    /// It stands.
    Stands,
    /// It is there, and is answered with its stream's first format, or with the first that it accepts.
    Waits,
    /// It is there, and is answered once it has routes.
    Unrouted,
    /// It has to be planned for these first.
    Unplanned(Vec<Format>),
    /// The core has no time for it; the figures.
    NoTime(String),
}

impl Context {
    /// A subscriber asks for a subscription. It is answered when that stands, or is refused.
    pub(crate) fn begin_subscribe(&mut self, key: usize, request: SubscriptionRequest) {
        let Some(pending) = self.pause(key, request.id) else { return };
        let asked_ns = self.net.now_ns();
        let limits = (&self.config, &*self.access);
        if let Err(refusal) = self.subscriptions.check_subscribing((&self.net, key), request.number, limits) {
            return self.answer(&pending, Err(refusal));
        }
        let (snapshot, asked) = (Arc::clone(self.streams.snapshot()), pending.clone());
        let (access, caller) = (Arc::clone(&self.access), self.access.caller_at(&self.net, key));
        let work = move |costs: &QueryCostModel| {
            let invalid = |why: QueryError| refuse(RefusalCode::Query, why.to_string());
            let mut select = match read_query(&request).map_err(invalid)? {
                AnyQuery::Select(select) => select,
                AnyQuery::Stateful(query) => {
                    let stateful = Stateful::found((asked, request, asked_ns), query, (&access, &caller, &snapshot))?;
                    return Ok(Asked::Stateful(Box::new(stateful)));
                }
            };
            access.find_stream(&caller, &mut select, &snapshot).map_err(invalid)?;
            let is_derived = snapshot.find(select.stream()).is_some_and(|entry| entry.made_by().is_some());
            let select = access.view(&caller, select, is_derived).map_err(denied)?;
            if select.snapshot().is_some() {
                let of = OfState::found((asked, request, asked_ns), select, (&access, &caller, &snapshot))?;
                return Ok(Asked::OfState(Box::new(of)));
            }
            let request = request.seen_through(&select)?;
            // An error of them is reported where the subscription is made.
            let formats = wanted_formats(&snapshot, select.stream(), &request).unwrap_or_default();
            let measure = |program: &Program| costs.remembered(&cost_key(&select), program);
            let planned = formats.iter().map(|format| Planned::measured_with(&select, format, measure)).collect();
            let (pending, is_measured, placed) = (asked, false, None);
            Ok(Asked::Plain(Box::new(Coming { pending, request, asked_ns, select, planned, is_measured, placed })))
        };
        self.plan(work, move |context, outcome: Result<Result<_, Refusal>, Panicked>| {
            let refusal = match outcome {
                Ok(Ok(Asked::Plain(coming))) => return context.enter_stream(*coming),
                Ok(Ok(Asked::OfState(of))) => return context.find_state(*of),
                Ok(Ok(Asked::Stateful(stateful))) => return context.place_stateful(*stateful),
                Ok(Err(refusal)) => refusal,
                Err(panicked) => refuse(RefusalCode::Query, panicked.to_string()),
            };
            context.answer(&pending, Err(refusal));
        });
    }

    /// Goes on with a subscription once its stream stays for it.
    fn enter_stream(&mut self, coming: Coming) {
        // That of a handler has its formats when the handler has.
        let (name, waits) = (coming.select.stream().to_owned(), coming.request.wait || coming.placed.is_some());
        self.use_stream(name, waits, move |context, entered| {
            let refusal = match entered {
                Ok(Some(stream)) => return context.go_on(stream, coming),
                Ok(None) => {
                    // One that has gone is not answered.
                    let Some(key) = context.net.still_there(coming.pending.peer()) else { return };
                    let (asked_by, snapshot) = ((&context.net, key), context.streams.snapshot());
                    context.access.unknown_stream(asked_by, snapshot, &coming.select)
                }
                Err(refusal) => refusal,
            };
            context.answer(&coming.pending, Err(refusal));
        });
    }

    /// Has a stream stay for one more use here, and goes on with its key; nothing if it is not known, and need be. Only the first
    /// use here takes a trip to the catalog.
    pub(crate) fn use_stream(
        &mut self,
        name: String,
        waits: bool,
        then: impl FnOnce(&mut Context, Result<Option<usize>, Refusal>) + Send + 'static,
    ) {
        if let Some(key) = self.streams.use_again(&name, waits) {
            return then(self, Ok(Some(key)));
        }
        let request = move |catalog: &mut Catalog| catalog.enter(&name, waits);
        self.inbox.own().ask(self.streams.catalog(), request, move |context, entered| {
            let key = entered.map(|number| number.map(|number| number as usize));
            if let Ok(Some(key)) = key {
                context.streams.note_use(key);
            }
            then(context, key);
        });
    }

    /// Puts a subscription in that counts as a use of its stream, or has it planned for what it is not planned
    /// for yet.
    fn go_on(&mut self, stream: usize, mut coming: Coming) {
        let pending = coming.pending.clone();
        let Some(key) = self.net.still_there(pending.peer()) else { return self.streams.leave(stream) };
        if self.net.leaves(key) {
            self.streams.leave(stream);
            return self.go_on_unanswered(&pending);
        }
        if !self.streams.is_delivered(stream, self.place) {
            return self.when_delivered(stream, move |context, delivered| match delivered {
                Ok(()) => context.go_on(stream, coming),
                Err(refusal) => {
                    context.streams.leave(stream);
                    context.answer(&pending, Err(refusal));
                }
            });
        }
        match self.subscribe(key, stream, &mut coming) {
            Ok(Outcome::Stands) => {
                let (mut sessions, streams, graph) = self.sessions();
                sessions.confirm((key, pending.id(), coming.request.number), streams, graph);
                self.go_on_unanswered(&pending);
            }
            Ok(Outcome::Waits) => self.go_on_unanswered(&pending),
            // The subscription has it, until there are routes or they cannot be planned.
            Ok(Outcome::Unrouted) => {}
            Ok(Outcome::Unplanned(formats)) => {
                let of = self.streams.get(stream);
                let now_ns = self.net.now_ns();
                let facts = of.and_then(|of| self.admission.query_facts(of, now_ns, &self.config.platform));
                let work = move |costs: &QueryCostModel| {
                    coming.plan(&formats, costs, facts.as_ref());
                    coming
                };
                let then = move |context: &mut Context, planned: Result<Coming, Panicked>| match planned {
                    Ok(coming) => context.go_on(stream, coming),
                    Err(panicked) => {
                        context.streams.leave(stream);
                        context.answer(&pending, Err(refuse(RefusalCode::Query, panicked.to_string())));
                    }
                };
                self.plan(work, then);
            }
            Ok(Outcome::NoTime(figures)) => {
                self.streams.leave(stream);
                self.go_elsewhere(coming, figures);
            }
            Err(refusal) => {
                self.streams.leave(stream);
                self.answer(&pending, Err(refusal));
            }
        }
    }

    /// Makes a subscription, once its query is planned for all that it has to be.
    fn subscribe(&mut self, key: usize, stream_key: usize, coming: &mut Coming) -> Result<Outcome, Refusal> {
        let limits = (&self.config, &*self.access);
        self.subscriptions.check_subscribing((&self.net, key), coming.request.number, limits)?;
        let check = |stream: &str| self.access.check_reader((&self.net, key), self.streams.snapshot(), stream);
        match &coming.placed {
            Some((_, elsewhere)) => elsewhere.reads().iter().try_for_each(|stream| check(stream))?,
            None => check(coming.select.stream())?,
        }
        let formats = wanted_formats(self.streams.snapshot(), coming.select.stream(), &coming.request)?;
        // A plan for a stream of this name that has gone meanwhile does not count.
        coming.planned.retain(|planned| formats.iter().any(|format| planned.is_for(format)));
        let (now_ns, platform) = (self.net.now_ns(), &self.config.platform);
        let rate = self.streams.arriving_msgs_per_s(stream_key, &coming.select, now_ns);
        let planned = (&coming.planned[..], coming.is_measured);
        let unplanned = self.admission.formats_to_plan(rate, planned, &formats, platform);
        if !unplanned.is_empty() {
            return Ok(Outcome::Unplanned(unplanned));
        }
        let of = (&self.streams, &self.config);
        let mut made = coming.make_subscription((key, stream_key), formats, of, now_ns)?;
        let (stands, needs, accepts) = (!made.awaits_format(), made.load_ns_per_s(), made.accept().is_some());
        if let Err(figures) = self.admission.admit(needs, rate, &self.name) {
            return Ok(Outcome::NoTime(figures));
        }
        coming.placed.take().into_iter().for_each(|(id, elsewhere)| made.run_elsewhere(id, None, elsewhere));
        self.put_in(key, stream_key, made, coming.asked_ns);
        Ok(match () {
            () if accepts => Outcome::Unrouted,
            () if stands => Outcome::Stands,
            () => Outcome::Waits,
        })
    }

    /// Runs a query for which the core has no time as a handler of its own, where there is room for it.
    fn go_elsewhere(&mut self, coming: Coming, figures: String) {
        let (pending, stream) = (coming.pending.clone(), coming.select.stream().to_owned());
        let select = &coming.select;
        let has_clause = select.on_slow().is_some() || select.max_rate().is_some() || select.snapshot().is_some();
        if !coming.request.accept.is_empty() || select.view().is_some() || has_clause || coming.placed.is_some() {
            // A converted stream is converted here, and what a slow subscriber gets is selected from it here. A handler's stream
            // may be read by others, and its text has no view.
            return self.refuse_query(&pending, &stream, figures);
        }
        let (subscription, sql) = (self.subscriptions.take_id(), coming.select.sql().to_owned());
        let row_errors = coming.request.row_errors;
        let refused = move |context: &mut Context, why: &dyn Display| {
            context.refuse_query(&pending, &stream, format!("{figures}; elsewhere: {why}"));
        };
        let (inbox, refused_there) = (self.inbox.own().clone(), refused.clone());
        let streams = vec![coming.select.stream().to_owned()];
        let then = Box::new(move |placed: Result<Made, String>| {
            // The context may have stopped.
            let _ = inbox.post(move |context| match placed {
                Ok(made) => context.enter_placed(coming, subscription, made),
                Err(why) => refused_there(context, &why),
            });
        });
        // Refused at once, not by the inbox: the context would wait for itself if that is full.
        let query = Box::new(Query { subscription, sql, row_errors, streams, shared: None, then });
        let sent = self.to_managers.send(ControlRequest::PlaceQuery(query));
        sent.unwrap_or_else(|why| refused(self, &why));
    }

    /// Has the catalog count the subscription as a use of the stream that its query makes elsewhere.
    fn enter_placed(&mut self, coming: Coming, id: u64, made: Made) {
        let name = made.0.stream().to_owned();
        self.use_stream(name, true, move |context, entered| match entered {
            Ok(Some(stream)) => {
                context.when_delivered(stream, move |context, delivered| match delivered {
                    Ok(()) => context.take_placed(&coming, id, made, Some(stream)),
                    Err(refusal) => {
                        context.streams.leave(stream);
                        context.answer(&coming.pending, Err(refusal));
                    }
                });
            }
            Ok(None) => context.take_placed(&coming, id, made, None),
            Err(refusal) => context.answer(&coming.pending, Err(refusal)),
        });
    }

    /// A subscription takes all of what its query makes elsewhere.
    fn take_placed(&mut self, coming: &Coming, id: u64, (made, elsewhere): Made, entered: Option<usize>) {
        let Coming { pending, request, select, .. } = coming;
        let there = self.net.still_there(pending.peer()).filter(|key| !self.net.leaves(*key));
        let checked = there.map(|key| {
            let limits = (&self.config, &*self.access);
            self.subscriptions.check_subscribing((&self.net, key), request.number, limits)?;
            let snapshot = self.streams.snapshot();
            self.access.check_reader((&self.net, key), snapshot, select.stream()).map(|()| key)
        });
        let (Some(Ok(key)), Some(stream)) = (&checked, entered) else {
            entered.into_iter().for_each(|stream| self.streams.leave(stream));
            return match checked {
                Some(Err(refusal)) => self.answer(pending, Err(refusal)),
                _ => self.go_on_unanswered(pending),
            };
        };
        let policy = policy_of(request.overflow.unwrap_or(self.config.overflow));
        let mut subscription = Subscription::new(*key, request.number, stream, made, (policy, request.positions));
        subscription.run_elsewhere(id, Some(select.clone()), elsewhere);
        let formats = self.streams.get(stream).map(|stream| stream.entry().formats().iter());
        // Taking all of it fits any format.
        formats.into_iter().flatten().for_each(|format| drop(subscription.add_format(format)));
        self.put_in(*key, stream, subscription, coming.asked_ns);
        let (mut sessions, streams, graph) = self.sessions();
        sessions.confirm((*key, request.id, request.number), streams, graph);
        self.go_on_unanswered(pending);
    }

    /// A query fits nowhere.
    fn refuse_query(&mut self, pending: &Pending, stream: &str, figures: String) {
        self.admission.refused += 1;
        let text = format!("a subscription to stream `{stream}`: {figures}");
        // The managers may have ended before.
        let _ = self.to_managers.send(ControlRequest::Event(EventKind::Refused, self.graph.index(), text));
        self.answer(pending, Err(refuse(RefusalCode::Limit, figures)));
    }

    /// A subscription that was asked for at `asked_ns` is there from now on.
    fn put_in(&mut self, key: usize, stream_key: usize, mut subscription: Subscription, asked_ns: u64) {
        let took_ns = self.net.now_ns().saturating_sub(asked_ns);
        self.net.counters_mut().subscribe_time.note(took_ns, 1);
        if subscription.wants_positions() {
            self.subscriptions.note_positions(self.net.now_ns());
        }
        let accepts = subscription.accept().is_some();
        let (policy, gauges) = (subscription.policy(), Arc::clone(subscription.gauges()));
        let instances = std::mem::take(subscription.new_instances().0);
        let slow = match subscription.select().snapshot() {
            Some(_) => Slow::of_changes(subscription.select(), subscription.slow_policy()),
            None => Slow::of(subscription.select()),
        };
        let runs_elsewhere = subscription.is_elsewhere();
        let subscription_key = self.subscriptions.insert(subscription);
        if runs_elsewhere {
            self.subscriptions.look_again(subscription_key, 0);
        }
        self.graph.add_session(subscription_key, stream_key as u32, instances, (policy, accepts), gauges);
        self.graph.set_slow(subscription_key, slow);
        self.subscriptions.begin_snapshot(subscription_key, &mut self.graph, &self.to_managers);
        self.subscriptions.update_reducers(subscription_key, &mut self.graph);
        if let Some(stream) = self.streams.present_mut(stream_key) {
            stream.begin_subscription(subscription_key, accepts);
        }
        if let Some(peer) = self.net.present_peer_mut(key) {
            peer.begin_subscription(subscription_key);
        }
        self.net.share_queues(self.subscriptions.len(), self.host.interface_mut());
        if accepts {
            self.replan(stream_key);
        }
    }
}

impl Streams {
    /// The rate that a query is admitted with: that of its stream, and none if it ends with what the state of its stream has now.
    fn arriving_msgs_per_s(&self, stream: usize, select: &Select, now_ns: u64) -> u64 {
        let stream = self.get(stream).filter(|_| select.snapshot() != Some(SnapshotKind::Once));
        stream.map_or(0, |stream| stream.rate_here_msgs_per_s(now_ns))
    }
}

impl Admission {
    /// Those of some formats that a query, which is admitted with this rate, has to be planned for, or measured with.
    fn formats_to_plan(
        &self,
        rate_msgs_per_s: u64,
        (planned, is_measured): (&[Planned], bool),
        formats: &[Format],
        config: &PlatformConfig,
    ) -> Vec<Format> {
        let rate_msgs_per_s = if config.admit_subscriptions && !is_measured { rate_msgs_per_s } else { 0 };
        let has_ns_per_s = self.has_ns_per_s();
        let is_there = |planned: &Planned| rate_msgs_per_s == 0 || planned.surely_fits(rate_msgs_per_s, has_ns_per_s);
        let is_planned = |format: &&Format| planned.iter().any(|p| p.is_for(format) && is_there(p));
        formats.iter().filter(|format| !is_planned(format)).cloned().collect()
    }

    /// The facts that a query of a stream is measured on; nothing if it need not be, or cannot.
    fn query_facts(&self, stream: &Stream, now_ns: u64, config: &PlatformConfig) -> Option<Facts> {
        let peak_msgs_per_s = stream.rate_here_msgs_per_s(now_ns);
        if !config.admit_subscriptions || peak_msgs_per_s == 0 {
            return None;
        }
        Some(Facts {
            samples: stream.formats().iter().map(|f| (f.format.id().0, f.sample.records())).collect(),
            peak_msgs_per_s,
            records_per_batch: stream.records_per_batch(),
            has_ns_per_s: self.has_ns_per_s(),
        })
    }
}

impl Subscriptions {
    /// Whether a peer may have one subscription more, under this number.
    fn check_subscribing(
        &self,
        (net, key): (&Net, usize),
        number: u32,
        (config, access): (&ContextConfig, &Access),
    ) -> Result<(), Refusal> {
        if self.len() >= config.max_subscriptions as usize {
            let message = format!("the daemon has {} subscriptions, the bound", config.max_subscriptions);
            return Err(refuse(RefusalCode::Limit, message));
        }
        let Some(peer) = net.present_peer(key) else { return Ok(()) };
        let origin = peer.carrier().principal();
        let bound = Bound::new(config.max_subscriptions_per_peer, "max_subscriptions_per_peer");
        let bound = access.bound(origin, |quotas| quotas.subscriptions, bound);
        let most = bound.most as usize;
        // Only where all there are could be of one origin, its own are counted.
        let of_origin = || net.peers_of(origin).map(|peer| peer.subscriptions().len()).sum::<usize>();
        if self.len() >= most && of_origin() >= most {
            return Err(origin.refuse_more("subscriptions", bound));
        }
        let numbers = peer.carrier().subscription_numbers();
        if !numbers.contains(&number) {
            let (first, last) = numbers.into_inner();
            let message =
                format!("subscription number {number} is out of range: this session's numbers are {first} to {last}");
            return Err(refuse(RefusalCode::State, message));
        }
        if peer.subscriptions().iter().any(|&s| self.get(s).is_some_and(|s| s.number() == number)) {
            let message = format!("subscription number {number} is in use in this session");
            return Err(refuse(RefusalCode::State, message));
        }
        Ok(())
    }

    /// Hands the handlers that were made for a subscription to its node.
    pub(crate) fn update_node(&mut self, key: usize, graph: &mut Graph) {
        let Some(subscription) = self.present_mut(key) else { return };
        let (instances, wanted) = subscription.new_instances();
        graph.update_session(key, instances, wanted);
        self.update_reducers(key, graph);
    }

    /// Hands its node what was made for a slow subscriber.
    pub(crate) fn update_reducers(&mut self, key: usize, graph: &mut Graph) {
        let Some(subscription) = self.present_mut(key) else { return };
        let (reducers, wanted) = subscription.new_reducers();
        graph.add_reducers(key, reducers, wanted);
    }
}

/// The policy of a subscription that reads a state, with that of its query or its request: none that leaves out records, or its
/// subscriber's table would be wrong.
fn slow_policy_of_state(select: &Select, asked: Option<SlowPolicy>) -> Result<SlowPolicy, Refusal> {
    match asked {
        None => Ok(SlowPolicy::Block),
        Some(asked @ (SlowPolicy::Block | SlowPolicy::Disconnect | SlowPolicy::Conflate(_))) => Ok(asked),
        // The clauses are refused where the query is read.
        Some(asked @ (SlowPolicy::DropOldest | SlowPolicy::Sample(_) | SlowPolicy::Keep(_))) => {
            let why =
                format!("SNAPSHOT gives every record, and the request's policy for a slow subscriber is `{asked}`");
            let hint = "leave out --on-overflow, set it to block or disconnect, or write ON SLOW CONFLATE BY (the stream's key)";
            let error = select.snapshot_error(why, hint);
            Err(refuse(RefusalCode::Query, error.to_string()))
        }
    }
}

/// A policy that needs no query, as one of a query.
fn policy_of(overflow: Overflow) -> SlowPolicy {
    match overflow {
        Overflow::Block => SlowPolicy::Block,
        Overflow::DropOldest => SlowPolicy::DropOldest,
        Overflow::Disconnect => SlowPolicy::Disconnect,
    }
}

/// The query of a request.
fn read_query(request: &SubscriptionRequest) -> Result<AnyQuery, QueryError> {
    let is_null = request.row_errors == RowErrors::Null;
    Ok(match crossdock_query::parse_query(&request.sql)? {
        AnyQuery::Select(select) if is_null => AnyQuery::Select(select.with_null_for_errors()),
        AnyQuery::Stateful(query) if is_null => AnyQuery::Stateful(query.with_null_for_errors()),
        query => query,
    })
}

/// The text under which the cost of a query is remembered: through another view it is another.
fn cost_key(select: &Select) -> Cow<'_, str> {
    match select.view() {
        Some(view) => format!("{} through {}", select.sql(), view.sql()).into(),
        None => select.sql().into(),
    }
}

/// The formats that a subscription's query has to be planned for, as far as known: those of its stream, or those
/// that it accepts.
fn wanted_formats(snapshot: &Snapshot, stream: &str, request: &SubscriptionRequest) -> Result<Vec<Format>, Refusal> {
    if request.accept.is_empty() {
        return Ok(snapshot.find(stream).map(|entry| entry.formats().to_vec()).unwrap_or_default());
    }
    if request.accept.len() > MAX_ACCEPTED {
        let message = format!("a subscription accepts {MAX_ACCEPTED} formats at most");
        return Err(refuse(RefusalCode::Limit, message));
    }
    let mut formats: Vec<Format> = Vec::new();
    for name in &request.accept {
        if let Some(format) = snapshot.format_named(stream, name)?
            && !formats.contains(&format)
        {
            formats.push(format);
        }
    }
    Ok(formats)
}
