//! Subscriptions: a query, the formats that it is planned for, and the notices for its subscriber. A node of the
//! graph runs it.

mod changing;
mod of_state;

use crate::admission::may_stand_in;
use crate::elsewhere::{Elsewhere, HandlerAccount};
use crate::graph::gauges::{Loss, NodeGauges};
use crate::graph::node::{Instance, SchedulingPolicy};
use crate::graph::slow::Reducer;
use crate::io::IoPlace;
use crate::losses::{Known, Losses};
use crate::morph::Accept;
use crate::net::carrier::Recipient;
use crate::net::sink::Output;
use crate::planner::Panicked;
use crate::present::present;
use crossdock_control::load::Cost;
use crossdock_engine::SelectHandler;
use crossdock_format::{Format, FormatId};
use crossdock_query::{Program, Projection, QueryError, Select, SlowPolicy};
use slab::Slab;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The format that a query is planned for: one format of the stream, or one that is accepted. Its node has the handler.
pub(crate) struct Entry {
    /// The format of the records that come in, by id.
    pub(crate) format: u64,
    /// The format of the records that go out; absent when the query does not fit the other.
    output_format: Option<Format>,
    /// Whether the query has a condition.
    filters: bool,
    /// Whether every record leaves as it came: `SELECT *` without a condition.
    pub(crate) takes_all: bool,
    /// Which fields of the format the query needs, a flag a field.
    reads: Arc<[bool]>,
    /// For a format that has only the fields of an accepted one that the query reads; made by a chain, and not
    /// announced.
    is_narrowed: bool,
}

/// A query planned for one format, wherever that was done.
pub(crate) struct Planned {
    entry: Entry,
    instance: Instance,
    /// The part of its clauses for a slow subscriber, if they need one.
    reducer: Option<Reducer>,
    /// The format of the records that go out.
    outcome: Result<Format, QueryError>,
    /// Its cost, where it could be measured.
    cost: Option<Cost>,
}

impl Planned {
    /// Plans a query for a format.
    pub(crate) fn new(select: &Select, format: &Format) -> Planned {
        Planned::measured_with(select, format, |_| None)
    }

    /// The same; a query that cannot be planned because of a bug in the daemon fits no format.
    pub(crate) fn guarded(select: &Select, format: &Format) -> Planned {
        let planned = catch_unwind(AssertUnwindSafe(|| Planned::new(select, format)));
        planned.unwrap_or_else(|_| {
            let message = Panicked.to_string();
            let outcome = Err(QueryError { message, position: None, hint: None, excerpt: None });
            Planned {
                entry: Entry::new(format),
                instance: instance_of(format, None),
                reducer: None,
                outcome,
                cost: None,
            }
        })
    }

    /// The same, with what it costs as `measure` finds it.
    pub(crate) fn measured_with(
        select: &Select,
        format: &Format,
        measure: impl FnOnce(&Program) -> Option<Cost>,
    ) -> Planned {
        let (mut entry, mut instance, mut cost) = (Entry::new(format), instance_of(format, None), None);
        if select.snapshot().is_some() {
            return Planned::of_state(select, format, measure);
        }
        let planned = select.plan(format).and_then(|program| Ok((program, Clauses::of(select, format)?)));
        let mut reducer = None;
        let outcome = planned.map(|(program, clauses)| {
            let output = program.output.clone();
            // A batch that leaves unchanged costs the query nothing.
            let is_free = takes_all(&program) && clauses.reducer.is_none();
            cost = if is_free { Some(Cost::default()) } else { measure(&program) };
            entry.note(&program, &clauses.reads);
            reducer = clauses.reducer;
            instance = instance_of(format, Some(program));
            entry.output_format = Some(output.clone());
            output
        });
        Planned { entry, instance, reducer, outcome, cost }
    }

    /// Its measured load at a rate, in ns per s; 0 where it could not be measured.
    pub(crate) fn load_ns_per_s(&self, rate_msgs_per_s: u64) -> u64 {
        self.cost.map_or(0, |cost| cost.load(rate_msgs_per_s).time_ns_per_s)
    }

    /// Whether its cost is known, and is so low that it fits even if it is that of a query that it only resembles.
    pub(crate) fn surely_fits(&self, rate_msgs_per_s: u64, has_ns_per_s: u64) -> bool {
        self.outcome.is_err() || self.cost.is_some_and(|cost| may_stand_in(&cost, rate_msgs_per_s, has_ns_per_s))
    }

    /// Plans a query for a format that has only the fields of an accepted one that the query reads.
    pub(crate) fn narrowed(select: &Select, accepted: &Format, narrowed: &Format) -> Planned {
        let mut entry = Entry { is_narrowed: true, ..Entry::new(narrowed) };
        let planned = select.plan(accepted).and_then(|program| {
            let message = "the query reads a field that is not made".to_owned();
            let none = QueryError { message, position: None, hint: None, excerpt: None };
            Ok((narrowed_to(&program, narrowed).ok_or(none)?, Clauses::of(select, narrowed)?))
        });
        planned.iter().for_each(|(program, clauses)| entry.note(program, &clauses.reads));
        let outcome = planned.as_ref().map(|(program, _)| program.output.clone()).map_err(Clone::clone);
        let (program, reducer) = planned.map_or((None, None), |(program, clauses)| (Some(program), clauses.reducer));
        Planned { entry, instance: instance_of(narrowed, program), reducer, outcome, cost: None }
    }

    /// Whether the query fits the format.
    pub(crate) fn fits(&self) -> bool {
        self.outcome.is_ok()
    }

    /// Which fields of the format the query needs, a flag a field.
    pub(crate) fn reads(&self) -> Arc<[bool]> {
        Arc::clone(&self.entry.reads)
    }

    /// Whether this is the format that it was planned for.
    pub(crate) fn is_for(&self, format: &Format) -> bool {
        self.entry.format == format.id().0
    }
}

/// The parts of a query's clauses for a slow subscriber, planned for a format.
struct Clauses {
    reducer: Option<Reducer>,
    /// The fields that they read, a flag a field; none if they read none.
    reads: Vec<bool>,
}

impl Clauses {
    fn of(select: &Select, format: &Format) -> Result<Clauses, QueryError> {
        let reducer = Reducer::of(select, format)?;
        let reads = if reducer.is_some() { Reducer::reads(select, format)? } else { Vec::new() };
        Ok(Clauses { reducer, reads })
    }
}

/// One subscription.
pub(crate) struct Subscription {
    id: u64,
    /// Key of its peer.
    peer: usize,
    /// The peer's number for it.
    number: u32,
    /// Key of its stream.
    stream: usize,
    select: Arc<Select>,
    /// The query as it was asked for, where a handler of its own runs it; the other then takes all of what that makes.
    asked: Option<Box<Select>>,
    policy: SlowPolicy,
    /// The load for which its query was admitted, in ns per s.
    load_ns_per_s: u64,
    /// The request to answer once its stream is announced.
    awaiting: Option<u32>,
    entries: Vec<Entry>,
    /// Handlers that its node has not taken over yet.
    instances: Vec<Instance>,
    /// The parts for a slow subscriber that its node has not taken over yet.
    reducers: Vec<Reducer>,
    /// The gauges of its node.
    gauges: Arc<NodeGauges>,
    /// The handler that runs its query, where one does.
    elsewhere: Option<Elsewhere>,
    /// The formats that it accepts, where it says so; there are entries for these only.
    accept: Option<Box<Accept>>,
    /// The packet that is being filled for it, which is `net`'s.
    output: Output,
    /// Records that were dropped from its session's queue, after its query had put them there.
    dropped_unsent: u64,
    /// How far it is known what it has lost.
    losses: Known,
    /// Whether its subscriber is to be notified of how far its stream has come, and as of when it was.
    positions: bool,
    reported: Option<(u64, u64)>,
}

impl Subscription {
    /// A subscription without entries yet; whether its subscriber is to be notified of how far its stream has come.
    pub(crate) fn new(
        peer: usize,
        number: u32,
        stream: usize,
        select: Select,
        (policy, positions): (SlowPolicy, bool),
    ) -> Subscription {
        Subscription {
            // It gets its number when it is put in.
            id: 0,
            peer,
            number,
            stream,
            select: Arc::new(select),
            asked: None,
            policy,
            load_ns_per_s: 0,
            awaiting: None,
            entries: Vec::new(),
            instances: Vec::new(),
            reducers: Vec::new(),
            gauges: Arc::default(),
            elsewhere: None,
            accept: None,
            output: Output::default(),
            dropped_unsent: 0,
            losses: Known::default(),
            positions,
            reported: None,
        }
    }

    /// A handler runs its query, as it was asked for under this number; it takes all of what that makes.
    pub(crate) fn run_elsewhere(&mut self, id: u64, asked: Option<Select>, mut elsewhere: Elsewhere) {
        // The records of the handler's earlier subscribers are none of this one.
        elsewhere.begin();
        (self.id, self.asked, self.elsewhere) = (id, asked.map(Box::new), Some(elsewhere));
    }

    /// Its request is answered once its query is planned for a format.
    pub(crate) fn await_format(&mut self, request: u32) {
        self.awaiting = Some(request);
    }

    /// It takes certain formats only.
    pub(crate) fn accept_only(&mut self, accept: Accept) {
        self.accept = Some(Box::new(accept));
    }

    /// Its number in the daemon.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The key of its peer.
    #[inline]
    pub(crate) fn peer(&self) -> usize {
        self.peer
    }

    /// Its peer's number for it.
    #[inline]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The key of its stream.
    #[inline]
    pub(crate) fn stream(&self) -> usize {
        self.stream
    }

    /// Its query as it runs here.
    pub(crate) fn select(&self) -> &Arc<Select> {
        &self.select
    }

    /// Its query as it was asked for.
    pub(crate) fn asked(&self) -> &Select {
        self.asked.as_deref().unwrap_or(&self.select)
    }

    /// The names of the streams that its query reads.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &str> {
        let of_state = self.elsewhere.as_ref().map_or(&[][..], Elsewhere::reads);
        let single = of_state.is_empty().then(|| self.asked().stream());
        of_state.iter().map(String::as_str).chain(single)
    }

    /// Whether a handler runs its query.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.elsewhere.is_some()
    }

    /// The handler that runs its query, where one does.
    pub(crate) fn handler(&self) -> Option<&str> {
        self.elsewhere.as_ref().map(Elsewhere::handler)
    }

    /// Its policy while it is slow.
    #[inline]
    pub(crate) fn slow_policy(&self) -> &SlowPolicy {
        &self.policy
    }

    /// Whether its stream's publishers wait while it is slow.
    #[inline]
    pub(crate) fn blocks(&self) -> bool {
        matches!(self.policy, SlowPolicy::Block)
    }

    /// Whether its session is ended when it is slow.
    #[inline]
    pub(crate) fn is_disconnected_when_slow(&self) -> bool {
        matches!(self.policy, SlowPolicy::Disconnect)
    }

    /// Whether what comes for it waits before its session's queue while that is full, or is selected there.
    #[inline]
    pub(crate) fn waits_for_room(&self) -> bool {
        self.blocks() || self.policy.selects() || self.select.snapshot().is_some()
    }

    /// The load for which its query was admitted, in ns per s.
    pub(crate) fn load_ns_per_s(&self) -> u64 {
        self.load_ns_per_s
    }

    /// The request that is answered with what is planned for a format, if one is.
    pub(crate) fn awaited(&self) -> Option<u32> {
        self.awaiting
    }

    /// That request was answered.
    pub(crate) fn note_answered(&mut self) {
        self.awaiting = None;
    }

    /// Whether its request waits for its stream.
    pub(crate) fn awaits_format(&self) -> bool {
        self.awaiting.is_some()
    }

    /// The gauges of its node.
    #[inline]
    pub(crate) fn gauges(&self) -> &Arc<NodeGauges> {
        &self.gauges
    }

    /// The formats that it accepts, where it says so.
    #[inline]
    pub(crate) fn accept(&self) -> Option<&Accept> {
        self.accept.as_deref()
    }

    /// The same, to change.
    #[inline]
    pub(crate) fn accept_mut(&mut self) -> Option<&mut Accept> {
        self.accept.as_deref_mut()
    }

    /// The ids of the formats that its query is planned for, or does not fit.
    pub(crate) fn formats(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().map(|entry| entry.format)
    }

    /// Whether records of a format leave as they come.
    #[inline]
    pub(crate) fn takes_all(&self, format: u64) -> bool {
        self.entries.iter().any(|entry| entry.format == format && entry.takes_all)
    }

    /// Parts for a slow subscriber that its node has not taken over yet, and whether a format is one of its own.
    pub(crate) fn new_reducers(&mut self) -> (&mut Vec<Reducer>, impl Fn(u64) -> bool) {
        let Subscription { entries, reducers, .. } = self;
        (reducers, |format| entries.iter().any(|entry| entry.format == format))
    }

    /// Handlers that its node has not taken over yet, and whether a format is one of its own.
    pub(crate) fn new_instances(&mut self) -> (&mut Vec<Instance>, impl Fn(u64) -> bool) {
        let Subscription { entries, instances, .. } = self;
        (instances, |format| entries.iter().any(|entry| entry.format == format))
    }

    /// Whether its subscriber is to be notified of how far its stream has come.
    pub(crate) fn wants_positions(&self) -> bool {
        self.positions
    }

    /// Its subscriber is notified now of how far its stream has come; whether that is further than before.
    pub(crate) fn note_position(&mut self, version: Option<(u64, u64)>) -> bool {
        std::mem::replace(&mut self.reported, version) != version
    }

    /// Whether its subscriber knows how far its stream has come.
    pub(crate) fn knows_position(&self, version: (u64, u64)) -> bool {
        self.reported == Some(version)
    }

    /// Whether it has lost more than when this was last asked.
    #[inline]
    pub(crate) fn has_lost(&mut self) -> bool {
        let there = self.elsewhere.as_ref().map_or(0, Elsewhere::lost);
        let sum = self.gauges.lost_in_all() + self.gauges.row_errors.get() + there;
        self.losses.has_grown(sum)
    }

    /// The losses at its node that its context has not counted yet. Those at handlers are counted there, once for all that share one.
    pub(crate) fn take_uncounted(&mut self) -> Losses {
        let own = Losses::of(&self.gauges);
        let mut all = own;
        all.add(&self.handler_account().losses);
        self.losses.take_uncounted(&own, &all)
    }

    /// How far its losses are known.
    pub(crate) fn losses(&self) -> &Known {
        &self.losses
    }

    /// The same, to note what is reported.
    pub(crate) fn losses_mut(&mut self) -> &mut Known {
        &mut self.losses
    }

    /// Takes in what was planned for a format, as [`Subscription::add_planned`]; also the request that is answered with it.
    pub(crate) fn take_planned(&mut self, planned: Planned) -> (Result<Format, QueryError>, Option<u32>) {
        (self.add_planned(planned), self.awaiting.take())
    }

    /// How its node is served: its queue withholds credit, or drops what it has no room for.
    pub(crate) fn policy(&self) -> SchedulingPolicy {
        // A record of a state is never dropped before its query has seen it.
        let drops = !self.blocks() && self.select.snapshot().is_none();
        SchedulingPolicy { drops, ..SchedulingPolicy::default() }
    }

    /// The account of the handlers that run its query, where some do.
    pub(crate) fn handler_account(&self) -> HandlerAccount {
        self.elsewhere.as_ref().map(Elsewhere::account).unwrap_or_default()
    }

    /// Records for which its query's condition did not hold, if it has one or had one.
    pub(crate) fn left_out(&self) -> Option<u64> {
        let filtered = self.gauges.filtered.get();
        (filtered > 0 || self.entries.iter().any(|entry| entry.filters)).then_some(filtered)
    }

    /// The first of them, in words.
    pub(crate) fn first_row_error(&self) -> Option<&str> {
        let elsewhere = || self.elsewhere.as_ref().and_then(Elsewhere::first_row_error);
        self.gauges.first_row_error().or_else(elsewhere)
    }

    /// Records that were sent to it, or wait in its session's queue.
    pub(crate) fn records_sent(&self) -> u64 {
        self.gauges.records_out.get().saturating_sub(self.dropped_unsent)
    }

    /// Whether its records may be dropped when its queue is full.
    fn is_droppable(&self) -> bool {
        matches!(self.policy, SlowPolicy::DropOldest)
    }

    /// The recipient of its records, as its peer's carrier knows it.
    #[inline]
    pub(crate) fn recipient(&self) -> Recipient {
        Recipient { subscription: self.number, droppable: self.is_droppable() }
    }

    /// When the packet was opened that is being filled for it, if one is.
    #[inline]
    pub(crate) fn opened_ns(&self) -> Option<u64> {
        self.output.opened_ns()
    }

    /// The packet that is being filled for it, for `net`.
    #[inline]
    pub(crate) fn packet(&mut self) -> &mut Output {
        &mut self.output
    }

    /// The formats of the records that may leave, the newest last.
    pub(crate) fn output_formats(&self) -> impl Iterator<Item = &Format> {
        self.entries.iter().filter_map(|e| e.output_format.as_ref())
    }

    /// Plans the query for a format that it has no entry for. Returns the output format.
    ///
    /// # Errors
    /// The query does not fit the format; there is an entry then too, without a handler.
    pub(crate) fn add_format(&mut self, format: &Format) -> Result<Format, QueryError> {
        self.add_planned(Planned::new(&self.select, format))
    }

    /// Takes in what was planned for a format that it has no entry for. Returns the output format.
    ///
    /// # Errors
    /// The query does not fit the format; there is an entry then too, without a handler.
    pub(crate) fn add_planned(&mut self, planned: Planned) -> Result<Format, QueryError> {
        self.entries.push(planned.entry);
        self.instances.push(planned.instance);
        self.reducers.extend(planned.reducer);
        planned.outcome
    }

    /// Forgets what was planned for these formats. The handlers go with them, as soon as no record waits for one.
    pub(crate) fn forget_formats(&mut self, gone: &[FormatId]) {
        self.entries.retain(|entry| gone.iter().all(|id| id.0 != entry.format));
        self.instances.retain(|instance| gone.iter().all(|id| id.0 != instance.format));
        self.reducers.retain(|reducer| gone.iter().all(|id| id.0 != reducer.format()));
    }

    /// Whether the query is planned for a format, or found not to fit it.
    pub(crate) fn has_entry(&self, format: &Format) -> bool {
        self.entries.iter().any(|entry| entry.format == format.id().0)
    }

    /// The formats of its stream that the query fits, by their ids, each with a flag for each field that it reads.
    pub(crate) fn fitting(&self) -> impl Iterator<Item = (u64, Arc<[bool]>)> {
        let fits = |entry: &&Entry| entry.output_format.is_some() && !entry.is_narrowed;
        self.entries.iter().filter(fits).map(|entry| (entry.format, Arc::clone(&entry.reads)))
    }

    /// Which fields of a format the query needs, a flag a field.
    pub(crate) fn reads(&self, format: &Format) -> Arc<[bool]> {
        let entry = self.entries.iter().find(|entry| entry.format == format.id().0);
        entry.map(|entry| Arc::clone(&entry.reads)).unwrap_or_default()
    }

    /// The formats for which the query is planned and that have only some fields of accepted ones, by their ids.
    pub(crate) fn narrowed(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().filter(|entry| entry.is_narrowed).map(|entry| entry.format)
    }

    /// Takes in what was planned for these, in place of what was before.
    pub(crate) fn set_narrowed(&mut self, narrowed: Vec<Planned>) {
        self.entries.retain(|entry| !entry.is_narrowed);
        for Planned { entry, instance, reducer, .. } in narrowed {
            self.entries.push(entry);
            self.instances.push(instance);
            self.reducers.extend(reducer);
        }
    }
}

/// The subscriptions of a context.
pub(crate) struct Subscriptions {
    all: Slab<Subscription>,
    /// The next one's number, and the distance to the one after it: contexts take turns.
    next_id: u64,
    contexts: u64,
    /// Keys of those with an open packet.
    opened: Vec<usize>,
    /// Keys of those that take one packet by reference: memory that packets reuse.
    in_place: Vec<usize>,
    /// Keys of those whose losses are to be looked at again, and when, in ns.
    listed: Vec<usize>,
    listed_due_ns: u64,
    /// When subscribers are notified of how far their streams have come, in ns.
    positions_due_ns: u64,
}

impl Subscriptions {
    /// No subscriptions, at the context of a place.
    pub(crate) fn new(place: IoPlace) -> Subscriptions {
        Subscriptions {
            all: Slab::new(),
            next_id: 1 + place.index as u64,
            contexts: place.of as u64,
            opened: Vec::new(),
            in_place: Vec::new(),
            listed: Vec::new(),
            listed_due_ns: 0,
            positions_due_ns: u64::MAX,
        }
    }

    /// A subscription by its key, unless it has ended.
    #[inline]
    pub(crate) fn get(&self, key: usize) -> Option<&Subscription> {
        self.all.get(key)
    }

    /// The same, to change.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: usize) -> Option<&mut Subscription> {
        self.all.get_mut(key)
    }

    /// A subscription that is there: its node has run, or its stream or its peer has it.
    #[inline]
    #[track_caller]
    pub(crate) fn present(&self, key: usize) -> Option<&Subscription> {
        present(self.get(key), "subscription", key)
    }

    /// See [`Subscriptions::present`].
    #[inline]
    #[track_caller]
    pub(crate) fn present_mut(&mut self, key: usize) -> Option<&mut Subscription> {
        present(self.get_mut(key), "subscription", key)
    }

    /// All of them, with their keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Subscription)> {
        self.all.iter()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Takes one in, with a number unless it has one; its key.
    pub(crate) fn insert(&mut self, mut subscription: Subscription) -> usize {
        if subscription.id == 0 {
            subscription.id = self.take_id();
        }
        self.all.insert(subscription)
    }

    /// Takes out one that is there.
    #[track_caller]
    pub(crate) fn remove(&mut self, key: usize) -> Option<Subscription> {
        let subscription = self.all.try_remove(key);
        debug_assert!(subscription.is_some(), "subscription {key} is unknown");
        subscription
    }

    /// A number for a subscription that no other of the daemon's has or had.
    pub(crate) fn take_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += self.contexts;
        id
    }

    /// The formats that a subscription accepts, if it names any.
    #[inline]
    pub(crate) fn accept(&self, key: usize) -> Option<&Accept> {
        self.get(key)?.accept.as_deref()
    }

    /// The same, to change.
    #[inline]
    pub(crate) fn accept_mut(&mut self, key: usize) -> Option<&mut Accept> {
        self.get_mut(key)?.accept.as_deref_mut()
    }

    /// Has the losses of a subscription looked at again at that time, or before.
    #[cold]
    pub(crate) fn look_again(&mut self, key: usize, due_ns: u64) {
        let Some(subscription) = present(self.all.get_mut(key), "subscription", key) else { return };
        if subscription.losses.list() {
            self.listed_due_ns = if self.listed.is_empty() { due_ns } else { self.listed_due_ns.min(due_ns) };
            self.listed.push(key);
        }
    }

    /// When that is due, in ns.
    #[inline]
    pub(crate) fn looks_again_ns(&self) -> u64 {
        if self.listed.is_empty() { u64::MAX } else { self.listed_due_ns }
    }

    /// When subscribers are to be notified of how far their streams have come, in ns.
    #[inline]
    pub(crate) fn positions_due_ns(&self) -> u64 {
        self.positions_due_ns
    }

    pub(crate) fn set_positions_due(&mut self, due_ns: u64) {
        self.positions_due_ns = due_ns;
    }

    /// A subscriber is to be notified from now on.
    pub(crate) fn note_positions(&mut self, now_ns: u64) {
        self.positions_due_ns = self.positions_due_ns.min(now_ns);
    }

    /// Those that are to be looked at; each is put in again by the caller if it is to be looked at once more.
    pub(crate) fn take_listed(&mut self) -> Vec<usize> {
        let listed = std::mem::take(&mut self.listed);
        for key in &listed {
            self.all.get_mut(*key).into_iter().for_each(|subscription| subscription.losses.unlist());
        }
        listed
    }

    /// Counts records that left the queue of a peer with these subscriptions, for the one with this number.
    pub(crate) fn lose(&mut self, of_peer: &[usize], number: u32, records: u64) {
        let hit = |key: &usize| self.get(*key).is_some_and(|s| s.number == number);
        // It may have ended while the records waited.
        let Some(key) = of_peer.iter().copied().find(hit) else { return };
        if let Some(subscription) = self.present_mut(key) {
            subscription.gauges.lose(Loss::QueueFull, records);
            subscription.dropped_unsent += records;
            // Its turn to be counted need not come soon.
            self.look_again(key, 0);
        }
    }

    /// Notes that a subscription has an open packet.
    #[inline]
    pub(crate) fn note_opened(&mut self, key: usize) {
        self.opened.push(key);
    }

    /// After a panic: finds those with an open packet again.
    #[cold]
    pub(crate) fn recover(&mut self) {
        self.opened = self.iter().filter(|(_, of)| of.opened_ns().is_some()).map(|(key, _)| key).collect();
    }

    /// Whether a packet was filled in part and has not left.
    #[inline]
    pub(crate) fn has_opened(&self) -> bool {
        !self.opened.is_empty()
    }

    /// Keys of the subscriptions with an open packet; the caller gives those whose packet stays open back with
    /// [`Subscriptions::keep_opened`].
    #[inline]
    pub(crate) fn take_opened(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.opened)
    }

    /// Puts back the subscriptions whose packet stays open.
    #[inline]
    pub(crate) fn keep_opened(&mut self, opened: Vec<usize>) {
        self.opened = opened;
    }

    /// An empty list of keys; the caller gives it back with [`Subscriptions::keep_list`].
    #[inline]
    pub(crate) fn take_list(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.in_place)
    }

    /// Keeps the memory of a list for the next packet.
    #[inline]
    pub(crate) fn keep_list(&mut self, mut list: Vec<usize>) {
        list.clear();
        self.in_place = list;
    }
}

/// Which fields of its format a query needs, a flag a field.
pub(crate) fn reads(program: &Program) -> Vec<bool> {
    let all = matches!(program.projection, Projection::All);
    (0..program.input.fields().len()).map(|index| all || program.reads.contains(&index)).collect()
}

/// Whether every record leaves as it came.
fn takes_all(program: &Program) -> bool {
    program.filter.is_empty() && matches!(program.projection, Projection::All)
}

/// The same query over a format that has what it needs.
pub(crate) fn narrowed_to(program: &Program, format: &Format) -> Option<Program> {
    program.narrowed(format, &vec![true; program.output.fields().len()])
}

impl Entry {
    fn new(format: &Format) -> Entry {
        Entry {
            format: format.id().0,
            output_format: None,
            filters: false,
            takes_all: false,
            reads: Arc::default(),
            is_narrowed: false,
        }
    }

    /// Takes note of its program, and of the fields that its clauses read beside it.
    fn note(&mut self, program: &Program, more: &[bool]) {
        self.filters = !program.filter.is_empty();
        self.takes_all = takes_all(program);
        let mut reads = reads(program);
        reads.iter_mut().zip(more).for_each(|(read, more)| *read |= more);
        self.reads = reads.into();
    }
}

/// The handler of a query for one format; without a program there is none, and the records are counted as unreadable.
fn instance_of(format: &Format, program: Option<Program>) -> Instance {
    let output = program.as_ref().map_or(0, |program| program.output.id().0);
    let handler = program.map(|program| Box::new(SelectHandler::new(program)) as Box<dyn crossdock_engine::Handler>);
    Instance { stream: None, format: format.id().0, handler, output }
}
