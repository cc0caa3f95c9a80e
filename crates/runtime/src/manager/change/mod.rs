//! The control manager: from what is wanted to a plan, and from a plan to what runs.
//!
//! A plan is made with everything slow done already: programs are compiled and measured for every format that their streams
//! have. Nothing has changed until then. What is wanted is then written down, and the steps are carried out, each of which
//! cannot but succeed, as long as the contexts answer.

use crate::docked::StreamFacts;
use crate::handle::Stopped;
use crate::info::{AppliedInfo, ChangeInfo, PlanInfo};
use crate::manager::Managers;
use crate::manager::deployed::{Compiled, Deployed, KnownStream, Status, compile, kind, need, outputs, reads};
use crate::manager::events::About;
use crate::manager::handle::Wish;
use crate::manager::spec::HandlerSpec;
use crate::platform::stage::{Instance, Terms, Work};
use crate::platform::{ContextIndex, Origin};
use crossdock_control::admission::{Need, Place, Tried, Wish as PlaceWish, admit};
use crossdock_control::load::{Capacity, Context as ControlContext, Contexts, Load, MAX_HANDLERS};
use crossdock_engine::ParameterValues;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// A handler's budget for a record where its specification says none: so many times what it was measured to take, and no less
/// than this, in ns.
const BUDGET_TIMES: f64 = 10.0;
const LEAST_BUDGET_NS: u64 = 1000;

/// One step from what runs to what is wanted.
enum Step {
    Deploy { spec: HandlerSpec, reads: Vec<String>, compiled: Compiled, need: Need, at: ContextIndex },
    Swap { spec: HandlerSpec, reads: Vec<String>, compiled: Compiled, need: Need, keeps_state: bool },
    SetParameters { spec: HandlerSpec, values: Vec<(u64, ParameterValues)> },
    Respecify { spec: HandlerSpec },
    Move { handler: String, spec: HandlerSpec, to: ContextIndex },
    Remove { handler: String },
}

/// A plan with all that it takes.
#[derive(Default)]
struct Prepared {
    steps: Vec<Step>,
    told: PlanInfo,
    /// All handlers, as they are to be.
    wanted: BTreeMap<String, HandlerSpec>,
}

impl Prepared {
    fn refuse(&mut self, why: impl Into<String>) {
        self.told.refusals.push(why.into());
    }

    fn step(&mut self, change: &str, handler: &str, what: String, step: Step) {
        self.told.changes.push(ChangeInfo { change: change.to_owned(), handler: handler.to_owned(), what });
        self.steps.push(step);
    }
}

impl Managers {
    /// What a change would do now.
    pub(crate) fn plan(&mut self, wish: &Wish, discard_state: bool) -> PlanInfo {
        self.prepare(wish, discard_state).told
    }

    /// Carries a change out, all of it, or nothing has changed.
    ///
    /// # Errors
    /// The plan with why it is refused.
    pub(crate) fn change(&mut self, wish: &Wish, discard_state: bool) -> Result<AppliedInfo, PlanInfo> {
        let since = Instant::now();
        let prepared = self.prepare(wish, discard_state);
        let mut told = prepared.told;
        if !told.refusals.is_empty() {
            let about = told.changes.first().map(|change| change.handler.clone());
            self.events.note("refused", About { handler: about.as_deref(), context: None }, told.refusals.join("; "));
            return Err(told);
        }
        let before: Vec<HandlerSpec> = self.handlers.values().map(|handler| handler.spec.clone()).collect();
        // Written down first: a daemon that dies from here on comes back with what was wanted.
        if !prepared.steps.is_empty()
            && let Err(why) = self.kept.write(prepared.wanted.into_values().collect())
        {
            told.refusals.push(format!("it could not be written down: {why}"));
            return Err(told);
        }
        for step in prepared.steps {
            if let Err(why) = self.carry_out(step) {
                told.refusals.push(why);
                break;
            }
        }
        if !told.refusals.is_empty() {
            // What was done stands; what is kept is what is there.
            let specs = self.handlers.values().map(|handler| handler.spec.clone()).collect();
            let _ = self.kept.write(if self.handlers.is_empty() { before } else { specs });
            return Err(told);
        }
        let took_us = since.elapsed().as_micros() as u64;
        Ok(AppliedInfo { plan: told, took_us })
    }

    /// All contexts with what they have to do: system work as measured, handlers as predicted.
    pub(crate) fn contexts(&self) -> Contexts {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let share = (cpus as f64 / self.watch.seats.len().max(1) as f64).min(1.0);
        let list = self.watch.seats.iter().enumerate().map(|(at, seat)| {
            let mut capacity = Capacity::of_cpu(kind(seat.kind), seat.cpu.map(|cpu| cpu as u32), seat.buffers);
            if seat.cpu.is_none() {
                // Where there are fewer CPUs than contexts, these take turns.
                capacity.most.time_ns_per_s = (capacity.most.time_ns_per_s as f64 * share) as u64;
            }
            capacity.margin_percent = self.config.margin_percent as u8;
            capacity.slice_ns = u64::from(self.config.slice_us) * 1000;
            let rates = self.monitor.context(at);
            let time_ns_per_s = rates.busy_ns_per_s.saturating_sub(rates.handler_ns_per_s);
            ControlContext { name: seat.name.clone(), capacity, system: Load { time_ns_per_s, ..Load::default() } }
        });
        // Their names differ, and they are few enough: that was seen to at the start.
        let mut contexts = Contexts::new(list.collect()).unwrap_or_default();
        for handler in self.handlers.values() {
            if let Some(stage) = self.overlay.stage(handler.stage)
                && usize::from(stage.at.0) < contexts.list().len()
            {
                contexts.commit(stage.at.0.into(), handler.need.committed(Load::default()));
            }
        }
        contexts
    }

    /// Makes a plan, with all that it takes.
    fn prepare(&mut self, wish: &Wish, discard_state: bool) -> Prepared {
        let mut prepared = Prepared::default();
        if let Err(why) = self.want(wish, &mut prepared) {
            prepared.refuse(why);
            return prepared;
        }
        let order = match self.order(&prepared.wanted) {
            Ok(order) => order,
            Err(refusals) => {
                prepared.told.refusals.extend(refusals);
                return prepared;
            }
        };
        self.plan_removals(&mut prepared);
        let mut streams = match self.published(&order) {
            Ok(streams) => streams,
            Err(Stopped) => {
                prepared.refuse(Stopped.to_string());
                return prepared;
            }
        };
        let mut contexts = self.contexts();
        for handler in &prepared.steps {
            if let Step::Remove { handler } = handler
                && let Some(deployed) = self.handlers.get(handler)
                && let Some(stage) = self.overlay.stage(deployed.stage)
            {
                contexts.release(stage.at.0.into(), deployed.need.committed(Load::default()));
            }
        }
        for (name, reads) in order {
            let Some(spec) = prepared.wanted.get(&name).cloned() else { continue };
            let planned = self.plan_handler(&spec, &reads, &mut streams, &mut contexts, discard_state, &mut prepared);
            if let Err(why) = planned {
                prepared.refuse(format!("handler `{name}`: {why}"));
            }
        }
        prepared
    }

    /// All handlers as they are to be.
    fn want(&self, wish: &Wish, prepared: &mut Prepared) -> Result<(), String> {
        let mut wanted: BTreeMap<String, HandlerSpec> =
            self.handlers.iter().map(|(name, handler)| (name.clone(), handler.spec.clone())).collect();
        let known = |name: &str| {
            if self.handlers.contains_key(name) {
                return Ok(());
            }
            let names: Vec<&str> = self.handlers.keys().map(String::as_str).collect();
            let there =
                if names.is_empty() { "there are none".to_owned() } else { format!("there are: {}", names.join(", ")) };
            Err(format!("there is no handler `{name}`; {there}"))
        };
        match wish {
            Wish::Deploy(spec) if self.handlers.get(&spec.name).is_some_and(|there| there.spec != *spec) => {
                return Err(format!(
                    "handler `{}` is there already: swap it, or give this one another name",
                    spec.name
                ));
            }
            Wish::Deploy(spec) => drop(wanted.insert(spec.name.clone(), spec.clone())),
            Wish::Swap(spec) => {
                known(&spec.name)?;
                wanted.insert(spec.name.clone(), spec.clone());
            }
            Wish::SetParameters { handler, parameters } => {
                known(handler)?;
                if let Some(spec) = wanted.get_mut(handler) {
                    spec.parameters.extend(parameters.clone());
                }
            }
            Wish::Move { handler, place } => {
                known(handler)?;
                if let Some(spec) = wanted.get_mut(handler) {
                    spec.place.clone_from(place);
                }
            }
            Wish::Remove { handler } => {
                known(handler)?;
                wanted.remove(handler);
            }
            Wish::All(specs) => {
                wanted = specs.iter().map(|spec| (spec.name.clone(), spec.clone())).collect();
                if wanted.len() < specs.len() {
                    return Err("two handlers have the same name".to_owned());
                }
            }
        }
        if wanted.len() > MAX_HANDLERS {
            return Err(format!("{} handlers; {MAX_HANDLERS} is the bound", wanted.len()));
        }
        prepared.wanted = wanted;
        Ok(())
    }

    /// The handlers in an order in which each comes behind those whose streams it reads, with what it reads.
    fn order(&self, wanted: &BTreeMap<String, HandlerSpec>) -> Result<Vec<(String, Vec<String>)>, Vec<String>> {
        let (mut refusals, mut all) = (Vec::new(), BTreeMap::new());
        let mut makers: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, spec) in wanted {
            if name.is_empty() || name.len() > 255 || name.chars().any(char::is_control) {
                refusals.push("a handler's name has 1 to 255 bytes and no control characters".to_owned());
            }
            if let Some(other) = makers.insert(spec.derived(), name) {
                refusals.push(format!(
                    "handlers `{other}` and `{name}` both make stream `{}`: give one another",
                    spec.derived()
                ));
            }
            match reads(spec, &self.natives) {
                Ok(reads) => drop(all.insert(name.clone(), reads)),
                Err(why) => refusals.push(format!("handler `{name}`: {why}")),
            }
        }
        if !refusals.is_empty() {
            return Err(refusals);
        }
        let mut order: Vec<(String, Vec<String>)> = Vec::new();
        let mut placed: BTreeSet<String> = BTreeSet::new();
        while placed.len() < all.len() {
            let is_next = |(name, reads): &(&String, &Vec<String>)| {
                let behind = |stream: &String| makers.get(stream.as_str()).is_none_or(|maker| placed.contains(*maker));
                !placed.contains(*name) && reads.iter().all(behind)
            };
            let next: Vec<(String, Vec<String>)> =
                all.iter().filter(is_next).map(|(name, reads)| (name.clone(), reads.clone())).collect();
            if next.is_empty() {
                let left: Vec<&str> = all.keys().filter(|name| !placed.contains(*name)).map(String::as_str).collect();
                return Err(vec![format!("handlers {} read each other's streams in a circle", left.join(", "))]);
            }
            placed.extend(next.iter().map(|(name, _)| name.clone()));
            order.extend(next);
        }
        Ok(order)
    }

    fn plan_removals(&self, prepared: &mut Prepared) {
        let gone: Vec<String> =
            self.handlers.keys().filter(|name| !prepared.wanted.contains_key(*name)).cloned().collect();
        for name in gone {
            let Some(handler) = self.handlers.get(&name) else { continue };
            let makes = handler.spec.derived();
            let reads = |other: &&String| {
                prepared.wanted.contains_key(*other)
                    && self
                        .handlers
                        .get(*other)
                        .is_some_and(|other| other.reads.iter().any(|(stream, _)| stream == makes))
            };
            let readers: Vec<&str> = self.handlers.keys().filter(reads).map(String::as_str).collect();
            if !readers.is_empty() {
                let readers = readers.join(", ");
                prepared.refuse(format!(
                    "handler `{name}` makes stream `{makes}`, which {readers} read: remove them first"
                ));
            }
            let what = format!("with stream `{makes}`");
            prepared.step("remove", &name, what, Step::Remove { handler: name.clone() });
        }
    }

    /// What is known of the streams that handlers read and nobody of them makes.
    fn published(&self, order: &[(String, Vec<String>)]) -> Result<BTreeMap<String, KnownStream>, Stopped> {
        let names: BTreeSet<String> = order.iter().flat_map(|(_, reads)| reads.iter().cloned()).collect();
        let facts = self.dock.run(move |context| {
            let facts = |name: &String| context.streams.find(name).and_then(|key| context.facts(key));
            names.iter().filter_map(facts).collect::<Vec<StreamFacts>>()
        })?;
        let known = |facts: StreamFacts| {
            let records_per_batch = facts.records_in as f64 / facts.batches_in.max(1) as f64;
            let stream = KnownStream {
                number: facts.number,
                name: facts.name.clone(),
                formats: facts.formats,
                peak_msgs_per_s: facts.peak_msgs_per_s,
                records_per_batch: records_per_batch.max(1.0),
                made_by: facts.made_by,
                publishers: facts.publishers,
            };
            (facts.name, stream)
        };
        Ok(facts.into_iter().map(known).collect())
    }

    /// Plans one handler's way to what it is to be. What it then makes is among the streams.
    fn plan_handler(
        &self,
        spec: &HandlerSpec,
        reads: &[String],
        streams: &mut BTreeMap<String, KnownStream>,
        contexts: &mut Contexts,
        discard_state: bool,
        prepared: &mut Prepared,
    ) -> Result<(), String> {
        let makes = spec.derived();
        if let Some(published) = streams.get(makes).filter(|stream| stream.made_by.is_none() && stream.publishers > 0) {
            return Err(format!(
                "stream `{}` is published by {} sessions: make another one",
                makes, published.publishers
            ));
        }
        let inputs: Vec<&KnownStream> = reads.iter().filter_map(|name| streams.get(name)).collect();
        let there = self.handlers.get(&spec.name);
        if let Some(there) = there.filter(|there| self.is_same(there, spec, &inputs)) {
            self.plan_same(there, spec, contexts, prepared)?;
            let made = derived(spec, &there.entries, &there.need, streams);
            streams.insert(makes.to_owned(), made);
            return Ok(());
        }
        if let Some(values) = there.and_then(|there| self.only_parameters(there, spec)) {
            let values = values?;
            let step = Step::SetParameters { spec: spec.clone(), values };
            prepared.step("set_parameters", &spec.name, format!("to {:?}", spec.parameters), step);
            if let Some(there) = there {
                streams.insert(makes.to_owned(), derived(spec, &there.entries, &there.need, streams));
            }
            return Ok(());
        }
        let compiled = compile(spec, &self.natives, &inputs)?;
        let missing: Vec<&str> = reads
            .iter()
            .filter(|name| streams.get(*name).is_none_or(|s| s.formats.is_empty()))
            .map(String::as_str)
            .collect();
        if !missing.is_empty() {
            let missing = missing.join("`, `");
            prepared
                .told
                .notes
                .push(format!("handler `{}` waits: nobody has published stream `{missing}` yet", spec.name));
        }
        let need = compiled.need(spec, streams);
        if need.is_provisional && missing.is_empty() {
            let name = &spec.name;
            prepared
                .told
                .notes
                .push(format!("handler `{name}` was measured on made-up records: its streams brought none yet"));
        }
        streams.insert(makes.to_owned(), derived(spec, &compiled.entries, &need, streams));
        let reads = reads.to_vec();
        match there {
            None => {
                let (at, why) = self.place(spec, &need, &reads, streams, contexts, prepared)?;
                contexts.commit(at.0.into(), need.committed(Load::default()));
                let step = Step::Deploy { spec: spec.clone(), reads, compiled, need, at };
                prepared.step("deploy", &spec.name, format!("at {}: {why}", self.watch.name(at)), step);
            }
            Some(there) => self.plan_swap(there, spec, reads, compiled, need, discard_state, contexts, prepared)?,
        }
        Ok(())
    }

    /// Whether a handler that is there need not be compiled anew.
    fn is_same(&self, there: &Deployed, spec: &HandlerSpec, inputs: &[&KnownStream]) -> bool {
        let program =
            |spec: &HandlerSpec| (spec.sql.clone(), spec.native.clone(), spec.parameters.clone(), spec.on.clone());
        let known = |stream: &&KnownStream| {
            stream.formats.iter().all(|(format, _)| there.entries.iter().any(|entry| entry.input == *format))
        };
        program(&there.spec) == program(spec) && there.spec.makes == spec.makes && inputs.iter().all(known)
    }

    /// A handler whose program stays: at most its place or its terms change.
    fn plan_same(
        &self,
        there: &Deployed,
        spec: &HandlerSpec,
        contexts: &mut Contexts,
        prepared: &mut Prepared,
    ) -> Result<(), String> {
        if there.spec == *spec {
            return Ok(());
        }
        let at = self.overlay.stage(there.stage).map_or(ContextIndex(0), |stage| stage.at);
        let wanted = spec.place.as_deref().filter(|place| *place != self.watch.name(at));
        if let Some(place) = wanted {
            contexts.release(at.0.into(), there.need.committed(Load::default()));
            let wish = PlaceWish { place: Place::Named(place.to_owned()), inputs: Vec::new() };
            let admitted = admit(&there.need, contexts, &wish).map_err(|refused| refused.to_string())?;
            contexts.commit(admitted.context, admitted.committed);
            let to = ContextIndex(admitted.context as u8);
            let what = format!("from {} to {}: {}", self.watch.name(at), self.watch.name(to), admitted.why);
            prepared.step("move", &spec.name, what, Step::Move { handler: spec.name.clone(), spec: spec.clone(), to });
        } else {
            let what = "its terms change".to_owned();
            prepared.step("respecify", &spec.name, what, Step::Respecify { spec: spec.clone() });
        }
        Ok(())
    }

    /// The values that it takes to change a handler's parameters, if nothing else changes.
    #[expect(clippy::type_complexity, reason = "a list of what each instance takes, or why one does not")]
    fn only_parameters(
        &self,
        there: &Deployed,
        spec: &HandlerSpec,
    ) -> Option<Result<Vec<(u64, ParameterValues)>, String>> {
        let same = HandlerSpec { parameters: there.spec.parameters.clone(), ..spec.clone() };
        if same != there.spec || there.spec.parameters == spec.parameters || there.entries.is_empty() {
            return None;
        }
        let mut values = Vec::new();
        for entry in &there.entries {
            let Some(parameters) = &entry.parameters else { continue };
            match parameters.prepare(&spec.parameters) {
                Ok(prepared) => values.push((entry.input.id().0, prepared)),
                // One that takes another handler.
                Err(crossdock_engine::MakeError::Fixed { .. }) => return None,
                Err(error) => return Some(Err(error.to_string())),
            }
        }
        Some(Ok(values))
    }

    #[expect(clippy::too_many_arguments, reason = "what a swap is planned from")]
    fn plan_swap(
        &self,
        there: &Deployed,
        spec: &HandlerSpec,
        reads: Vec<String>,
        compiled: Compiled,
        need: Need,
        discard_state: bool,
        contexts: &mut Contexts,
        prepared: &mut Prepared,
    ) -> Result<(), String> {
        if there.spec.derived() != spec.derived() {
            return Err(format!(
                "it makes stream `{}`, and a swap cannot change that to `{}`: deploy another handler",
                there.spec.derived(),
                spec.derived()
            ));
        }
        let lost = lost_state(there, &compiled);
        if let (Some(lost), false) = (&lost, discard_state) {
            return Err(format!("{lost}: it would be lost; --discard-state says that it may be"));
        }
        let at = self.overlay.stage(there.stage).map_or(ContextIndex(0), |stage| stage.at);
        contexts.release(at.0.into(), there.need.committed(Load::default()));
        crossdock_control::admission::fit(&need, Load::default(), contexts, at.0.into()).map_err(|obstacle| {
            let tried = Tried { context: self.watch.name(at).to_owned(), obstacle };
            format!("version {} does not fit where version {} is: {tried}", there.version + 1, there.version)
        })?;
        contexts.commit(at.0.into(), need.committed(Load::default()));
        let state = match (lost, there.entries.iter().find_map(|entry| entry.state.as_deref())) {
            (Some(_), _) => "its state is discarded".to_owned(),
            (None, Some(kind)) => format!("its state `{kind}` is kept"),
            (None, None) => "it has no state".to_owned(),
        };
        let what = format!("to version {} at {}; {state}", there.version + 1, self.watch.name(at));
        let step = Step::Swap { spec: spec.clone(), reads, compiled, need, keeps_state: !discard_state };
        prepared.step("swap", &spec.name, what, step);
        Ok(())
    }

    /// Where a new handler goes.
    fn place(
        &self,
        spec: &HandlerSpec,
        need: &Need,
        reads: &[String],
        streams: &BTreeMap<String, KnownStream>,
        contexts: &Contexts,
        prepared: &Prepared,
    ) -> Result<(ContextIndex, String), String> {
        let from = |name: &String| {
            let maker = streams.get(name).and_then(|stream| stream.made_by.as_deref());
            let planned = prepared.steps.iter().find_map(|step| match step {
                Step::Deploy { spec, at, .. } if Some(spec.name.as_str()) == maker => Some(*at),
                _ => None,
            });
            let there =
                maker.and_then(|maker| self.handlers.get(maker)).and_then(|maker| self.overlay.stage(maker.stage));
            planned.or(there.map(|stage| stage.at)).unwrap_or(ContextIndex(0))
        };
        let inputs = reads.iter().map(|name| (usize::from(from(name).0), Default::default())).collect();
        let place = spec.place.clone().map_or(Place::Auto, Place::Named);
        let admitted = admit(need, contexts, &PlaceWish { place, inputs }).map_err(|refused| refused.to_string())?;
        Ok((ContextIndex(admitted.context as u8), admitted.why))
    }
}

/// What would be lost of a handler's state, if something would.
fn lost_state(there: &Deployed, compiled: &Compiled) -> Option<String> {
    let version = there.version;
    there.entries.iter().find_map(|before| {
        let kind = before.state.as_deref()?;
        let at = compiled.entries.iter().position(|after| after.input == before.input);
        let after = at.and_then(|at| compiled.handlers.get(at)?.as_ref());
        let takes = after.is_some_and(|after| after.takes_state(kind));
        (!takes).then(|| format!("version {} cannot take the state `{kind}` of version {version}", version + 1))
    })
}

/// A derived stream, as its readers see it.
fn derived(
    spec: &HandlerSpec,
    entries: &[crate::manager::deployed::Entry],
    need: &Need,
    streams: &BTreeMap<String, KnownStream>,
) -> KnownStream {
    let known = streams.get(spec.derived());
    let of_format = |format: &crossdock_format::Format| {
        let made = entries.iter().find(|entry| entry.output.as_ref() == Some(format));
        made.map(|entry| entry.made.clone()).unwrap_or_default()
    };
    let formats = outputs(entries).into_iter().map(|format| (format.clone(), of_format(&format))).collect();
    let most = entries.iter().map(|entry| entry.cost.messages_out_per_message).fold(0.0, f64::max);
    let batch = entries.iter().map(|entry| entry.cost.messages_per_batch).fold(1.0, f64::max);
    KnownStream {
        number: known.map_or(0, |stream| stream.number),
        name: spec.derived().to_owned(),
        formats,
        peak_msgs_per_s: (need.rate_msgs_per_s as f64 * most) as u64,
        records_per_batch: (batch * most).max(1.0),
        made_by: Some(spec.name.clone()),
        publishers: 0,
    }
}

/// How a handler's stage is served.
fn terms(spec: &HandlerSpec, need_ns: f64, one_in: u32, reads: usize) -> Terms {
    let reads = reads.max(1) as u32;
    let budget_ns = spec.budget_ns.unwrap_or(((need_ns * BUDGET_TIMES) as u64).max(LEAST_BUDGET_NS));
    let drops = spec.when_full == crate::manager::spec::WhenFull::Drop;
    Terms { weight: spec.weight.unwrap_or(1).max(1), budget_ns, one_in, drops, reads }
}

/// The instances of what was compiled.
fn instances(compiled: &mut Compiled) -> Vec<Instance> {
    let handlers = std::mem::take(&mut compiled.handlers);
    let instance = |(entry, handler): (&crate::manager::deployed::Entry, _)| Instance {
        format: entry.input.id().0,
        handler,
        output: entry.output.as_ref().map_or(0, |format| format.id().0),
    };
    compiled.entries.iter().zip(handlers).map(instance).collect()
}

/// What the dearest of a handler's entries takes for a record, in ns.
fn dearest_ns(entries: &[crate::manager::deployed::Entry]) -> f64 {
    entries.iter().map(|entry| entry.cost.ns_per_message.max(entry.cost.tail_ns_per_message)).fold(0.0, f64::max)
}

mod steps;
