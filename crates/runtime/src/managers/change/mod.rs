//! The control manager: makes a plan of a change request, and carries the plan out.
//!
//! All slow work comes before a plan: programs are compiled for every format that their streams have, and measured, on further
//! threads. Where something of that is missing, the plan is made anew when it is there. Nothing has changed until then. The wanted
//! specifications are then written to disk, and the steps are carried out. A step cannot fail; if a context does not answer,
//! its steps are carried out when it does.

use crate::graph::ContextIndex;
use crate::graph::change::NewValues;
use crate::graph::node::Instance;
use crate::info::{AppliedInfo, ChangeInfo, PlanInfo};
use crate::managers::Managers;
use crate::managers::deployed::{
    self, Compiled, Deployed, Entry, KnownStream, Status, kind, leaving, need_of, outputs, with_margin,
};
use crate::managers::events::About;
use crate::managers::keep::Former;
use crate::managers::paths::{PathNode, reserves};
use crate::managers::request::ChangeRequest;
use crate::managers::rule;
use crate::managers::spec::HandlerSpec;
use crate::platform::start::Seat;
use crossdock_control::admission::{ContextChoice, Need};
use crossdock_control::load::{Capacity, Context as ControlContext, Contexts, ContextsError, Cost, Flow, Load};
use crossdock_control::plan::scope::Scope;
use crossdock_control::plan::{self as control, Action, Note, Refusal, State};
use crossdock_engine::Handler;
use crossdock_format::{Format, FormatId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// One step of a plan.
pub(super) enum PlanStep {
    Deploy { spec: HandlerSpec, reads: Vec<String>, compiled: Compiled, need: Need, at: ContextIndex },
    Swap { spec: HandlerSpec, reads: Vec<String>, compiled: Compiled, need: Need, keeps_state: bool },
    SetParameters { spec: HandlerSpec, values: Vec<NewValues>, costs: Vec<Cost>, need: Need },
    Respecify { spec: HandlerSpec, need: Need },
    Move { handler: String, spec: HandlerSpec, to: ContextIndex },
    Remove { handler: String },
}

impl PlanStep {
    /// The handler that it is about, what that is to read, and where it is to go, as far as the step says so.
    pub(super) fn about(&self) -> (&str, &[String], Option<ContextIndex>) {
        match self {
            PlanStep::Deploy { spec, reads, at, .. } => (&spec.name, reads, Some(*at)),
            PlanStep::Swap { spec, reads, .. } => (&spec.name, reads, None),
            PlanStep::SetParameters { spec, .. } | PlanStep::Respecify { spec, .. } => (&spec.name, &[], None),
            PlanStep::Move { handler, to, .. } => (handler, &[], Some(*to)),
            PlanStep::Remove { handler } => (handler, &[], None),
        }
    }
}

/// The result of a change.
pub(super) struct Applied {
    pub(super) info: AppliedInfo,
    /// The change of the graph, if contexts have not completed it yet.
    pub(super) change: Option<u64>,
    /// Small orders that contexts have not reported on yet.
    pub(super) orders: BTreeSet<u64>,
}

/// The work that the steps of a plan leave to wait for.
#[derive(Default)]
struct Carried {
    change: Option<u64>,
    orders: BTreeSet<u64>,
}

/// A handler has no room among those that were looked at.
struct NoRoom;

/// Why a change was not made.
pub(super) enum NotMade {
    /// Handlers are to be compiled or measured before it can be planned.
    Unmeasured,
    /// A context that takes part has not answered, or not completed another change.
    Hindered { at: ContextIndex, plan: PlanInfo },
    /// The plan with why it is refused.
    Refused(PlanInfo),
}

/// Why a plan's steps were not carried out.
pub(super) enum Failed {
    /// Nothing has changed.
    Refused(String),
    /// Nothing has changed, since a context has not answered, or not completed another change.
    Hindered(ContextIndex),
    /// They were carried out, but for this.
    Partly(String),
}

/// A plan with everything that is needed to carry it out.
#[derive(Default)]
struct Prepared {
    steps: Vec<PlanStep>,
    report: PlanInfo,
    /// The handlers that change, as asked for.
    wanted: WantedSpecs,
    /// How many handlers the change concerns.
    handlers_planned: u32,
}

impl Prepared {
    /// Replicas of a handler are refused for the same reason, which is given once.
    fn refuse(&mut self, why: impl Into<String>) {
        let why = why.into();
        if !self.report.refusals.contains(&why) {
            self.report.refusals.push(why);
        }
    }

    fn step(&mut self, change: &str, handler: &str, what: String, step: PlanStep) {
        self.report.changes.push(ChangeInfo { change: change.to_owned(), handler: handler.to_owned(), what });
        self.steps.push(step);
    }
}

impl Managers {
    /// The plan of a change, without carrying it out; nothing if handlers are to be measured before.
    pub(super) fn plan(&mut self, change: &ChangeRequest, discard_state: bool) -> Option<PlanInfo> {
        let prepared = self.prepare(change, discard_state);
        (!self.compiler.costs.is_missing()).then_some(prepared.report)
    }

    /// Carries a change out as a whole that was asked for at `since`. With `writes` the wanted specifications are written
    /// to disk first (restored ones are there already).
    ///
    /// # Errors
    /// Nothing has changed, unless the plan that comes back [is begun](PlanInfo::is_begun).
    pub(super) fn make(
        &mut self,
        change: &ChangeRequest,
        discard_state: bool,
        writes: bool,
        since: Instant,
    ) -> Result<Applied, NotMade> {
        self.resume();
        let mut prepared = self.prepare(change, discard_state);
        if self.compiler.costs.is_missing() {
            return Err(NotMade::Unmeasured);
        }
        let hindered = self.lost_for(&prepared.steps);
        prepared.report.refusals.extend(hindered);
        let (report, handlers_planned) = (prepared.report, prepared.handlers_planned);
        if !report.refusals.is_empty() {
            return Err(self.refused(report));
        }
        if let Some(at) = self.hindered_by(&prepared.steps) {
            return Err(NotMade::Hindered { at, plan: report });
        }
        let wanted = Some(&prepared.wanted).filter(|_| writes);
        let (Carried { change, orders }, report) = self.keep_and_carry_out(prepared.steps, wanted, report)?;
        let mut unrestored = std::mem::take(&mut self.unrestored);
        unrestored.retain(|lost| self.named(&lost.name).next().is_none());
        self.unrestored = unrestored;
        let took = crossdock_device::elapsed(since);
        self.views.change_time.note(took.as_nanos() as u64, 1);
        let took_us = took.as_micros() as u64;
        let round_trips = self.progress.round_trips;
        Ok(Applied { info: AppliedInfo { plan: report, took_us, round_trips, handlers_planned }, change, orders })
    }

    /// Reserves what steps need, writes to disk what is `wanted`, and carries the steps out. Returns the report with it.
    fn keep_and_carry_out(
        &mut self,
        steps: Vec<PlanStep>,
        wanted: Option<&WantedSpecs>,
        mut report: PlanInfo,
    ) -> Result<(Carried, PlanInfo), NotMade> {
        // Reservations that others may refuse, before anything is changed.
        let mut reserved = match self.reserve(&steps) {
            Ok(reserved) => reserved,
            Err(why) => {
                report.refusals.push(why);
                return Err(self.refused(report));
            }
        };
        // Written to disk before it is carried out: a daemon that dies from here on restarts with the wanted state.
        let mut former = Former::new();
        if let Some(wanted) = wanted.filter(|_| !steps.is_empty()) {
            match self.write_down(wanted) {
                Ok(kept_before) => former = kept_before,
                Err(why) => {
                    self.give_back(&reserved);
                    report.refusals.push(format!("it could not be written to disk: {why}"));
                    return Err(self.refused(report));
                }
            }
        }
        match self.carry_out(steps, &mut reserved) {
            Ok(carried) => Ok((carried, report)),
            Err(Failed::Partly(why)) => {
                report.refusals.push(why);
                report.is_begun = true;
                Err(NotMade::Refused(report))
            }
            Err(failed) => {
                self.give_back(&reserved);
                // The kept state equals the present one.
                if !former.is_empty()
                    && let Err(why) = self.kept.undo(former)
                {
                    report.refusals.push(format!("and the current state could not be written to disk: {why}"));
                }
                Err(match failed {
                    Failed::Hindered(at) => NotMade::Hindered { at, plan: report },
                    Failed::Refused(why) | Failed::Partly(why) => {
                        report.refusals.push(why);
                        self.refused(report)
                    }
                })
            }
        }
    }

    /// A plan is refused, since a context that takes part has not answered for long.
    pub(super) fn refuse_hindered(&mut self, at: ContextIndex, mut report: PlanInfo) -> PlanInfo {
        report.refusals.push(self.note_unanswered(at));
        self.note_refused(&report);
        report
    }

    /// Notes that a plan was refused, and nothing has changed.
    fn refused(&mut self, report: PlanInfo) -> NotMade {
        self.note_refused(&report);
        NotMade::Refused(report)
    }

    fn note_refused(&mut self, report: &PlanInfo) {
        let about = report.changes.first().map(|change| change.handler.clone());
        // A query's error has the query with it, on lines of its own.
        let short = |refusal: &String| refusal.lines().next().unwrap_or_default().to_owned();
        let text: Vec<String> = report.refusals.iter().map(short).collect();
        self.events.note("refused", About { handler: about.as_deref(), context: None }, text.join("; "));
    }

    /// Writes to disk what is to be of handlers from now on. Those that could not be restored stay there until they are deployed
    /// anew: a later start may restore them.
    fn write_down(&mut self, wanted: &WantedSpecs) -> Result<Former, String> {
        let Managers { kept, queries, .. } = self;
        kept.change(wanted.iter().filter(|(name, _)| !queries.contains_key(*name)))
    }

    /// All contexts with what system work takes, as measured.
    pub(crate) fn context_list(&self) -> Vec<ControlContext> {
        let share = (self.cpus as f64 / self.watch.seats.len().max(1) as f64).min(1.0);
        let context = |(at, seat): (usize, &Seat)| {
            let mut capacity = Capacity::of_cpu(kind(seat.kind), seat.cpu.map(|cpu| cpu as u32), seat.buffers);
            if seat.cpu.is_none() {
                // Where there are fewer CPUs than contexts, these take turns.
                capacity.most.time_ns_per_s = (capacity.most.time_ns_per_s as f64 * share) as u64;
            }
            capacity.most.bytes_per_s = seat.bandwidth_bytes_per_s.unwrap_or(u64::MAX);
            capacity.margin_percent = match self.watch.lost(ContextIndex(at as u8)) {
                Some(_) => 100,
                None => self.config.margin_percent as u8,
            };
            capacity.slice_ns = u64::from(self.config.slice_us) * 1000;
            let rates = self.monitor.context(at);
            let time_ns_per_s = rates.busy_ns_per_s.saturating_sub(rates.handler_ns_per_s);
            let system = Load { time_ns_per_s, bytes_per_s: rates.network_bytes_per_s, ..Load::default() };
            ControlContext { name: seat.name.clone(), capacity, system }
        };
        self.watch.seats.iter().enumerate().map(context).collect()
    }

    /// The same, with what handlers take committed.
    pub(crate) fn contexts(&self) -> Contexts {
        let others = self.ledger.others(&BTreeSet::new());
        checked(control::Current { contexts: self.context_list(), others, ..Default::default() }.committed())
    }

    /// Makes a plan, with everything that is needed to carry it out.
    fn prepare(&mut self, change: &ChangeRequest, discard_state: bool) -> Prepared {
        match self.prepare_in(change, discard_state, false) {
            Ok(prepared) => prepared,
            // A move that would make room is looked for among all handlers.
            Err(NoRoom) => self.prepare_in(change, discard_state, true).unwrap_or_default(),
        }
    }

    /// The same, with the handlers that the change concerns, or with all.
    ///
    /// # Errors
    /// There is no room, and not all handlers were looked at.
    fn prepare_in(&mut self, change: &ChangeRequest, discard_state: bool, is_whole: bool) -> Result<Prepared, NoRoom> {
        let mut prepared = Prepared::default();
        let Some(planning) = self.plan_in(change, (discard_state, is_whole), &mut prepared) else {
            return Ok(prepared);
        };
        match planning.plan {
            // Handlers are taken for steps once nothing is missing any more.
            Ok(plan) => self.take_plan(plan, planning.handlers, &mut prepared),
            Err(refusals) => {
                let has_no_room = |refusal: &Refusal| matches!(refusal, Refusal::NoPlace { room: None, .. });
                if !is_whole && refusals.iter().any(has_no_room) {
                    return Err(NoRoom);
                }
                refusals.iter().for_each(|refusal| prepared.refuse(refusal.to_string()));
            }
        }
        Ok(prepared)
    }

    /// Adds to handlers' needs the reservations of the paths that they will lie on.
    fn reserve_paths_of(&self, planned: &mut BTreeMap<String, PlannedHandler>, scope: &Scope) {
        if !scope.reserves {
            // The reservations of others' paths stay unchanged.
            let others = planned.iter_mut().filter(|(name, _)| !scope.affected.contains(*name));
            for (there, handler) in others.filter_map(|(name, handler)| Some((self.handlers.get(name)?, handler))) {
                handler.wanted.need.reserve = there.need.reserve;
            }
            return;
        }
        let mut path_nodes = BTreeMap::new();
        for (name, handler) in planned.iter() {
            let there = self.handlers.get(name).map_or(&[][..], |there| &there.entries);
            let entries = handler.compiled.as_ref().map_or(there, |compiled| &compiled.entries);
            let entries = entries.iter().enumerate();
            let path_node = PathNode {
                reads: handler.reads.iter().map(String::as_str).collect(),
                makes: handler.spec.derived(),
                entries: entries.map(|(at, entry)| (entry, handler.costs.get(at).unwrap_or(&entry.cost))).collect(),
                path_msgs_per_s: handler.spec.reserve_path_msgs_per_s,
            };
            path_nodes.insert(name.as_str(), path_node);
        }
        for (name, load) in reserves(&path_nodes) {
            if let Some(handler) = planned.get_mut(&name) {
                handler.wanted.need.reserve = handler.wanted.need.reserve.max(load);
            }
        }
    }

    /// Checks that a handler, or one of its replicas, that is there has the same output stream; and that there is room for what it keeps.
    fn check_output(&self, spec: &HandlerSpec) -> Result<(), String> {
        let namesakes = self.named(spec.asked_name());
        match namesakes.map(|(_, there)| there.spec.derived()).find(|made| *made != spec.derived()) {
            Some(made) => Err(format!(
                "its output stream is `{made}`, which a swap cannot change: remove the handler and deploy it again"
            )),
            // A state has to fit beside others.
            None => self.refused_state(spec).map_or(Ok(()), Err),
        }
    }

    /// The planned state of a handler, compiled and measured unless it is unchanged or some of that is missing. The stream that
    /// it will make is among the streams then.
    fn planned(
        &mut self,
        spec: &HandlerSpec,
        reads: Vec<String>,
        streams: &mut BTreeMap<String, KnownStream>,
        discard_state: bool,
    ) -> Result<PlannedHandler, String> {
        self.check_output(spec)?;
        // One that nobody knows yet has no format.
        let unknown = |name: &String| KnownStream { name: name.clone(), ..KnownStream::default() };
        let of_name = |name: &String| streams.get(name).cloned().unwrap_or_else(|| unknown(name));
        let known: Vec<KnownStream> = reads.iter().map(of_name).collect();
        let inputs: Vec<&KnownStream> = known.iter().collect();
        let there = self.handlers.get(&spec.name);
        let is_same = there.is_some_and(|there| is_same(there, spec, &inputs));
        let values = there.filter(|_| !is_same).and_then(|there| only_parameters(there, spec)).transpose()?;
        let compiled = match is_same || values.is_some() {
            true => None,
            false => Some(self.compiler.compile(spec, &inputs, self.kept_formats(spec, discard_state))?),
        };
        let there = self.handlers.get(&spec.name);
        let (entries, is_metered) = match (&compiled, there) {
            (Some(compiled), _) => (&compiled.entries, compiled.is_metered),
            (None, Some(there)) => (&there.entries, there.is_metered),
            (None, None) => return Err("its program was not compiled".to_owned()),
        };
        rule::check(spec, entries, &self.compiler.natives)?;
        let mut estimates = Vec::new();
        let costs = match (&compiled, there) {
            (None, Some(there)) if values.is_some() => {
                // Another value may cost more: it is measured like another program.
                estimates = self.compiler.measure_again(spec, &there.entries, streams)?;
                estimates.iter().map(|cost| cost.with_margin()).collect()
            }
            (None, Some(there)) => there.costs.clone(),
            _ => with_margin(entries),
        };
        let need = need_of(entries.iter().zip(&costs), spec, streams, is_metered);
        let formats = |formats: Vec<FormatId>| formats.into_iter().collect::<BTreeSet<FormatId>>();
        let takes = entries.iter().filter(|entry| entry.output.is_some()).map(|entry| entry.input.id()).collect();
        let version = there.map_or(1, |there| there.version + u32::from(compiled.is_some()));
        let takes_state = |kind: &&str| match (&compiled, there) {
            (Some(compiled), Some(there)) => {
                let takes = |after: &Entry| self.compiler.takes_state(spec, after, kind);
                lost_state(there, compiled, kind, takes).is_none()
            }
            _ => true,
        };
        let states = there.iter().flat_map(|there| &there.entries).filter_map(|entry| entry.state.as_deref());
        let wanted = control::WantedHandler {
            definition: control::Definition {
                version: version.into(),
                parameters: spec.parameters.clone(),
                peak_msgs_per_s: spec.peak_msgs_per_s,
                reads: reads.iter().cloned().collect(),
                makes: spec.derived().to_owned(),
                takes: (!entries.is_empty()).then(|| formats(takes)),
                gives: formats(outputs(entries).iter().map(Format::id).collect()),
                replica_of: spec.replicas.then(|| spec.asked_name().to_owned()),
            },
            place: spec.place.clone().map_or(ContextChoice::Auto, ContextChoice::Named),
            need,
            leaving: leaving(entries, &costs, &need),
            state: entries.iter().find_map(|entry| entry.state.clone()),
            takes_state: states.filter(takes_state).map(str::to_owned).collect(),
            discard_state,
        };
        streams.insert(spec.derived().to_owned(), derived(spec, (entries, &costs), &need, streams));
        Ok(PlannedHandler { spec: spec.clone(), reads, wanted, compiled, values, costs, estimates, is_done: false })
    }

    /// The present handlers that a change concerns, as planning sees them, and what the others take.
    fn current(&self, streams: &BTreeMap<String, KnownStream>, scope: &Scope) -> control::Current {
        let published = streams.values().filter(|stream| stream.made_by.is_none() && stream.publishers > 0);
        let published = published.map(|stream| {
            let batches_per_s = stream.peak_msgs_per_s as f64 / stream.records_per_batch.max(1.0);
            let flow = Flow {
                batches_per_s: batches_per_s as u64,
                messages_per_s: stream.peak_msgs_per_s,
                bytes_per_s: (stream.peak_msgs_per_s as f64 * stream.bytes_per_record) as u64,
            };
            let formats = stream.formats.iter().map(|(format, _)| format.id()).collect();
            let context = self.watch.name(stream.busiest.unwrap_or(self.home())).to_owned();
            let published = control::Published { context, flow, formats };
            (stream.name.clone(), published)
        });
        let present = scope.handlers.iter().filter_map(|name| self.handlers.get_key_value(name));
        let handlers = present.filter_map(|(name, there)| {
            let context = self.watch.name(self.overlay.placed(there.node)?.at).to_owned();
            let takes =
                there.entries.iter().filter(|entry| entry.output.is_some()).map(|entry| entry.input.id()).collect();
            let deployed = control::Deployed {
                definition: control::Definition {
                    version: there.version.into(),
                    parameters: there.spec.parameters.clone(),
                    peak_msgs_per_s: there.spec.peak_msgs_per_s,
                    reads: there.reads.iter().map(|(name, _)| name.clone()).collect(),
                    makes: there.spec.derived().to_owned(),
                    takes: (!there.entries.is_empty()).then_some(takes),
                    gives: outputs(&there.entries).iter().map(Format::id).collect(),
                    replica_of: there.spec.replicas.then(|| there.spec.asked_name().to_owned()),
                },
                context,
                load: self.load_of(name, there),
                reserve: there.need.reserve,
                leaving: leaving(&there.entries, &there.costs, &there.need),
                state: there.entries.iter().find_map(|entry| entry.state.clone()),
            };
            Some((name.clone(), deployed))
        });
        control::Current {
            contexts: self.context_list(),
            delivered_at: Some(self.home_name().to_owned()),
            published: published.collect(),
            handlers: handlers.collect(),
            others: self.ledger.others(&scope.handlers),
        }
    }

    /// The load of a handler: it may be more than it was predicted to.
    fn load_of(&self, name: &str, there: &Deployed) -> Load {
        let time_ns_per_s = there.need.load.time_ns_per_s.max(self.monitor.handler(name).busy_ns_per_s);
        Load { time_ns_per_s, ..there.need.load }
    }

    /// The steps of a plan, with what they take; and those changes that planning has no part in.
    fn take_plan(
        &mut self,
        plan: control::Plan,
        mut planned: BTreeMap<String, PlannedHandler>,
        prepared: &mut Prepared,
    ) {
        prepared.report.notes.extend(self.notes_of(&plan, &planned));
        for change in plan.changes {
            let name = change.handler;
            let at = change.after.as_ref().and_then(|after| self.watch.find(&after.context)).unwrap_or(self.home());
            let at_name = self.watch.name(at);
            if change.action == Action::Remove {
                prepared.step("remove", &name, change.why, PlanStep::Remove { handler: name.clone() });
                continue;
            }
            let becomes = planned.get_mut(&name);
            debug_assert!(becomes.is_some(), "a plan is about handlers that are wanted");
            let Some(becomes) = becomes else { continue };
            let PlannedHandler { spec, reads, wanted, .. } = becomes;
            let (spec, reads) = (spec.clone(), reads.clone());
            let need = Need { load: change.after.map_or(wanted.need.load, |after| after.load), ..wanted.need };
            let (compiled, values) = match &change.action {
                Action::Deploy | Action::Swap(_) => {
                    let mut compiled = becomes.compiled.take();
                    compiled.iter_mut().for_each(|compiled| self.compiler.take_handlers(&spec, compiled));
                    (compiled, None)
                }
                Action::SetParameters => (None, becomes.values.take()),
                _ => (None, None),
            };
            let (kind, what, step) = match (change.action, compiled, values) {
                (Action::Move { from }, ..) => {
                    let what = format!("from {from} to {at_name}: {}", change.why);
                    ("move", what, PlanStep::Move { handler: name.clone(), spec, to: at })
                }
                (Action::Deploy, Some(compiled), _) => {
                    let what = format!("at {at_name}: {}", change.why);
                    ("deploy", what, PlanStep::Deploy { spec, reads, compiled, need, at })
                }
                (Action::Swap(state), Some(compiled), _) => {
                    let version = becomes.wanted.definition.version;
                    let what = format!("to version {version} at {at_name}; {}; {}", state_text(state), change.why);
                    let keeps_state = state != State::Discarded;
                    ("swap", what, PlanStep::Swap { spec, reads, compiled, need, keeps_state })
                }
                (Action::SetParameters, _, Some(values)) => {
                    let what = format!("to {}", parameters_text(&spec.parameters));
                    let costs = std::mem::take(&mut becomes.estimates);
                    ("set_parameters", what, PlanStep::SetParameters { spec, values, costs, need })
                }
                // Any other change comes with the next version.
                _ if becomes.is_done => continue,
                _ => ("respecify", change.why, PlanStep::Respecify { spec, need }),
            };
            becomes.is_done |= kind != "move";
            prepared.step(kind, &name, what, step);
        }
        self.respecify_others(planned, prepared);
        note_provisional(prepared);
    }

    /// The notes on the handlers that a plan touches.
    fn notes_of(&self, plan: &control::Plan, planned: &BTreeMap<String, PlannedHandler>) -> BTreeSet<String> {
        let touched: BTreeSet<&str> = plan.changes.iter().map(|change| change.handler.as_str()).collect();
        let notes = plan.notes.iter().filter(|note| touched.contains(note_handler(note)));
        let asked_name = |name: &str| planned.get(name).map_or(name, |handler| handler.spec.asked_name()).to_owned();
        let catalog = self.catalog.snapshot().ok();
        let passed = |stream: &str| {
            let entry = catalog.as_ref().and_then(|catalog| catalog.find(stream));
            entry.filter(|entry| !entry.formats().is_empty()).map(|entry| entry.activity().records().0)
        };
        notes.map(|note| note_text(note, &asked_name(note_handler(note)), passed)).collect()
    }

    /// The changes of how handlers are served that the plan has no step for.
    fn respecify_others(&self, planned: BTreeMap<String, PlannedHandler>, prepared: &mut Prepared) {
        for (name, becomes) in planned {
            let there = self.handlers.get(&name);
            let is_reported = prepared.report.changes.iter().any(|change| change.handler == name);
            if there.is_some_and(|there| there.spec != becomes.spec) && !is_reported {
                let what = "its scheduling policy changes".to_owned();
                prepared.step(
                    "respecify",
                    &name,
                    what,
                    PlanStep::Respecify { spec: becomes.spec, need: becomes.wanted.need },
                );
            }
        }
    }
}

/// The treatment of a handler's state.
fn state_text(state: State) -> &'static str {
    match state {
        State::None => "it has no state",
        State::Kept => "its state is kept",
        State::Discarded => "its state is discarded",
    }
}

/// Contexts whose names were found to differ when they were started.
pub(super) fn checked(contexts: Result<Contexts, ContextsError>) -> Contexts {
    debug_assert!(contexts.is_ok(), "contexts were checked at the start: {:?}", contexts.as_ref().err());
    contexts.unwrap_or_default()
}

/// Says which handlers were measured on records that are not their streams'.
fn note_provisional(prepared: &mut Prepared) {
    let waiting = prepared.steps.iter().filter_map(|step| match step {
        PlanStep::Deploy { spec, need, compiled, .. } if need.is_provisional && !compiled.entries.is_empty() => {
            Some(spec.asked_name())
        }
        _ => None,
    });
    let notes = waiting.map(|name| {
        format!("handler `{name}` was measured on made-up records: at least one of its formats has had no record")
    });
    let notes: BTreeSet<String> = notes.collect();
    prepared.report.notes.extend(notes);
}

/// The planned state of a handler, and its load.
struct PlannedHandler {
    spec: HandlerSpec,
    reads: Vec<String>,
    wanted: control::WantedHandler,
    /// Present if its program changes, or it is new.
    compiled: Option<Compiled>,
    /// Present if only its parameters' values change.
    values: Option<Vec<NewValues>>,
    /// The costs of its entries.
    costs: Vec<Cost>,
    /// The estimates of its entries with these values.
    estimates: Vec<Cost>,
    /// Whether a step has what it becomes, but for its place.
    is_done: bool,
}

/// Whether a present handler need not be recompiled.
fn is_same(there: &Deployed, spec: &HandlerSpec, inputs: &[&KnownStream]) -> bool {
    let program = |spec: &HandlerSpec| {
        (
            spec.sql.clone(),
            spec.native.clone(),
            spec.state.clone(),
            spec.parameters.clone(),
            spec.input_streams.clone(),
            spec.output_stream.clone(),
            spec.on_row_error,
            spec.subscription_views.clone(),
            spec.part.clone(),
        )
    };
    let known = |stream: &&KnownStream| {
        let has_entry = |format: &Format| there.entries.iter().any(|entry| entry.is_for(&stream.name, format));
        stream.formats.iter().all(|(format, _)| has_entry(format))
    };
    // A query with state waits for the first format of each of its streams.
    let waits = there.entries.is_empty()
        && inputs.iter().any(|stream| stream.formats.is_empty())
        && deployed::program(spec).is_ok_and(|program| program.is_stateful());
    program(&there.spec) == program(spec) && (waits || inputs.iter().all(known))
}

/// The values that it takes to change a handler's parameters, if nothing else of its program changes.
fn only_parameters(there: &Deployed, spec: &HandlerSpec) -> Option<Result<Vec<NewValues>, String>> {
    let same = HandlerSpec { parameters: there.spec.parameters.clone(), ..spec.clone() };
    // One that was given up has no instance that could take them.
    let has_failed = matches!(there.status, Status::Failed(_));
    if same != there.spec || there.spec.parameters == spec.parameters || there.entries.is_empty() || has_failed {
        return None;
    }
    let mut values = Vec::new();
    for entry in &there.entries {
        // It has none, as it does not fit the format.
        let Some(parameters) = &entry.parameters else { continue };
        match parameters.prepare(&spec.parameters) {
            Ok(prepared) => values.push((entry.place(&there.reads), prepared)),
            // One that takes another handler.
            Err(crossdock_engine::MakeError::Fixed { .. }) => return None,
            Err(error) => return Some(Err(error.to_string())),
        }
    }
    Some(Ok(values))
}

/// The first format whose state of this kind is not taken over, where `takes` says which of the compiled entries do that.
fn lost_state(there: &Deployed, compiled: &Compiled, kind: &str, takes: impl Fn(&Entry) -> bool) -> Option<FormatId> {
    let mut of_kind = there.entries.iter().filter(|before| before.state.as_deref() == Some(kind));
    let is_lost = |before: &&Entry| {
        let mut after = compiled.entries.iter().filter(|after| after.is_for(&before.stream, &before.input));
        !after.next().is_some_and(&takes)
    };
    of_kind.find(is_lost).map(|before| before.input.id())
}

fn note_handler(note: &Note) -> &str {
    match note {
        Note::NoProducer { handler, .. } | Note::TakesNone { handler, .. } => handler,
    }
}

/// A note in words; `passed` says how many records of a stream have been published or made since the daemon's start, if the stream
/// has a format.
fn note_text(note: &Note, handler: &str, passed: impl Fn(&str) -> Option<u64>) -> String {
    match note {
        Note::NoProducer { stream, .. } => match passed(stream) {
            None => format!("handler `{handler}` waits: nobody has published stream `{stream}` yet"),
            Some(records) => format!(
                "handler `{handler}` waits: stream `{stream}`, which has had {records} records since the daemon's start, \
                 has no publisher now"
            ),
        },
        Note::TakesNone { stream, .. } => format!("handler `{handler}` fits no format of stream `{stream}`"),
    }
}

/// Parameters for people.
pub(crate) fn parameters_text(parameters: &BTreeMap<String, String>) -> String {
    let each: Vec<String> = parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    each.join(", ")
}

/// A derived stream, as its readers see it.
fn derived(
    spec: &HandlerSpec,
    (entries, costs): (&[Entry], &[Cost]),
    need: &Need,
    streams: &BTreeMap<String, KnownStream>,
) -> KnownStream {
    let known = streams.get(spec.derived());
    let mut formats: Vec<(Format, Arc<[u8]>)> = Vec::new();
    for (entry, output) in entries.iter().filter_map(|entry| Some((entry, entry.output.as_ref()?))) {
        if formats.iter().all(|(known, _)| known != output) {
            formats.push((output.clone(), entry.made.as_slice().into()));
        }
    }
    let most = costs.iter().map(|cost| cost.messages_out_per_message).fold(0.0, f64::max);
    let made_msgs_per_s = (need.rate_msgs_per_s as f64 * most) as u64;
    // Together with what other replicas make.
    let mut peaks = known.map(|stream| stream.peaks.clone()).filter(|_| spec.replicas).unwrap_or_default();
    peaks.extend(spec.place.clone().map(|place| (place, made_msgs_per_s)));
    let batch = costs.iter().map(|cost| cost.messages_per_batch).fold(1.0, f64::max);
    KnownStream {
        number: known.map_or(0, |stream| stream.number),
        name: spec.derived().to_owned(),
        formats,
        peak_msgs_per_s: if spec.replicas { peaks.values().sum() } else { made_msgs_per_s },
        peaks,
        records_per_batch: (batch * most).max(1.0),
        bytes_per_record: costs.iter().map(|cost| cost.bytes_out_per_message).fold(0.0, f64::max),
        made_by: Some(spec.asked_name().to_owned()),
        publishers: 0,
        busiest: None,
    }
}

/// The instances of what was compiled.
fn instances(compiled: &mut Compiled, reads: &[(String, u32)]) -> Vec<Instance> {
    let handlers = std::mem::take(&mut compiled.handlers);
    debug_assert_eq!(handlers.len(), compiled.entries.len(), "handlers are taken when the plan is made");
    instances_of(&compiled.entries, reads, handlers)
}

/// The instances of entries of a handler that reads these streams, with their handlers in the same order.
fn instances_of(entries: &[Entry], reads: &[(String, u32)], handlers: Vec<Option<Box<dyn Handler>>>) -> Vec<Instance> {
    entries.iter().zip(handlers).map(|(entry, handler)| instance_of(entry, reads, handler)).collect()
}

/// The instance of an entry of a handler that reads these streams.
fn instance_of(entry: &Entry, reads: &[(String, u32)], handler: Option<Box<dyn Handler>>) -> Instance {
    let (stream, format) = entry.place(reads);
    Instance { stream, format, handler, output: entry.output.as_ref().map_or(0, |format| format.id().0) }
}

mod estimate;
mod scope;
mod steps;
mod wanted;

pub(super) use estimate::{Estimate, EstimatedHandler, EstimatedInput};
use wanted::WantedSpecs;
