//! Carries out the steps of a plan, fits handlers to new formats, and restarts failed handlers.

use super::{Step, dearest_ns, instances, parameters_text, terms};
use crate::managers::Managers;
use crate::managers::balancing::Thinning;
use crate::managers::deployed::{Compiled, CompiledEntry, Deployed, Entry, KnownStream, Status, program};
use crate::managers::events::About;
use crate::managers::measure::Care;
use crate::managers::spec::{HandlerSpec, OnFault};
use crate::platform::stage::{Instance, SchedulingPolicy, Work};
use crate::platform::{ContextIndex, Origin, StageId};
use crossdock_control::admission::Need;
use crossdock_control::figures::{Rate, Time};
use crossdock_engine::HandlerProgram;
use crossdock_format::Format;
use std::collections::{BTreeMap, BTreeSet};

/// A handler that is restarted after faults is stopped after `MAX_FAULTS` faults within `FAULTS_WITHIN_S` seconds.
const FAULTS_WITHIN_S: u64 = 60;
const MAX_FAULTS: usize = 3;

/// The numbers of streams by handler: those that it reads from now on, and the one that it makes.
pub(super) type Reserved = BTreeMap<String, (Vec<u32>, u32)>;

/// The streams that a handler has not read before.
fn new_reads(there: &Deployed, reads: &[String]) -> Vec<String> {
    reads.iter().filter(|name| !there.reads.iter().any(|(known, _)| known == *name)).cloned().collect()
}

impl Managers {
    pub(super) fn carry_out(&mut self, step: Step, reserved: &mut Reserved) -> Result<(), String> {
        match step {
            Step::Deploy { spec, reads, compiled, need, at } => {
                let numbers = reserved.remove(&spec.name).unwrap_or_default();
                self.deploy(spec, &reads, compiled, need, (at, numbers))
            }
            Step::Swap { spec, reads, compiled, need, keeps_state } => {
                let numbers = reserved.remove(&spec.name).unwrap_or_default();
                self.swap(spec, &reads, compiled, need, (keeps_state, numbers))
            }
            Step::SetParameters { spec, values, costs, need } => {
                let name = spec.name.clone();
                let Some(stage) = self.handlers.get(&spec.name).map(|there| there.stage) else { return Ok(()) };
                let refused = self.on_overlay(|overlay, wait| overlay.set_parameters(stage, values, wait));
                self.note(
                    "set_parameters",
                    &spec.name,
                    format!("parameters are {} now", parameters_text(&spec.parameters)),
                );
                self.record(spec, |there| {
                    there.need = need;
                    there.entries.iter_mut().zip(costs).for_each(|(entry, cost)| entry.cost = cost);
                });
                self.hold_if_degraded(&name);
                if refused > 0 {
                    Err(format!("{refused} of its instances did not take the parameters"))
                } else {
                    Ok(())
                }
            }
            Step::Respecify { spec, need } => {
                let name = spec.name.clone();
                let Some(there) = self.handlers.get(&spec.name) else { return Ok(()) };
                let dearest_ns = dearest_ns(&there.entries);
                let (stage, terms) = (there.stage, terms(&spec, dearest_ns, there.one_in, there.is_degraded));
                self.on_overlay(|overlay, wait| overlay.set_terms(stage, terms, None, wait));
                self.record(spec, |there| {
                    there.need = need;
                    there.one_in = terms.one_in;
                });
                self.hold_if_degraded(&name);
                Ok(())
            }
            Step::Move { handler, spec, to } => {
                self.move_handler(&handler, to, "as was wished")?;
                self.record(spec, |_| ());
                Ok(())
            }
            Step::Remove { handler } => self.remove(&handler),
        }
    }

    /// Notes an event of a handler.
    pub(crate) fn note(&mut self, kind: &str, handler: &str, text: impl Into<String>) {
        let at = self.handlers.get(handler).and_then(|there| self.overlay.stage(there.stage)).map(|stage| stage.at);
        let context = at.map(|at| self.watch.name(at).to_owned());
        self.events.note(kind, About { handler: Some(handler), context: context.as_deref() }, text);
    }

    /// A handler is as it is now specified.
    fn record(&mut self, spec: HandlerSpec, change: impl FnOnce(&mut Deployed)) {
        if let Some(there) = self.handlers.get_mut(&spec.name) {
            there.changes += 1;
            there.spec = spec;
            there.rule_costs = None;
            change(there);
        }
    }

    fn deploy(
        &mut self,
        spec: HandlerSpec,
        reads: &[String],
        mut compiled: Compiled,
        need: Need,
        (at, (numbers, makes)): (ContextIndex, (Vec<u32>, u32)),
    ) -> Result<(), String> {
        let name = spec.name.clone();
        let terms = terms(&spec, dearest_ns(&compiled.entries), 1, false);
        let instances = instances(&mut compiled);
        let mut handler_stage = self.overlay.make_stage(Work::Handler(instances), makes, terms);
        handler_stage.reads.clone_from(&numbers);
        let stage = handler_stage.id;
        self.on_overlay(|overlay, wait| overlay.put(handler_stage, at, &BTreeSet::new(), wait));
        let delivery_stage = self.overlay.make_stage(Work::Deliver, makes, SchedulingPolicy::default());
        let delivery = delivery_stage.id;
        let from = BTreeSet::from([Origin::Stage(stage)]);
        self.on_overlay(|overlay, wait| overlay.put(delivery_stage, ContextIndex(0), &from, wait));
        let _ = self.dock.run(move |context| context.deliver_by(makes, Some(delivery)));
        let status = match compiled.entries.is_empty() {
            true => Status::Waiting(format!("for stream `{}`", reads.join("`, `"))),
            false => Status::Running,
        };
        let deployed = Deployed {
            version: 1,
            stage,
            delivery,
            makes,
            reads: reads.iter().cloned().zip(numbers).collect(),
            entries: compiled.entries,
            is_metered: compiled.is_metered,
            need,
            status,
            changes: 0,
            faults_seen: 0,
            overruns_seen: 0,
            timed_seen: 0,
            fault_times_s: Vec::new(),
            one_in: 1,
            thinning: Thinning::default(),
            is_degraded: false,
            rule_costs: None,
            spec,
        };
        self.handlers.insert(name.clone(), deployed);
        // The ways on are there before anything comes.
        self.rewire()?;
        self.note("deployed", &name, format!("version 1, {}", self.load_text(&need)));
        Ok(())
    }

    fn load_text(&self, need: &Need) -> String {
        let load = need.load;
        format!("predicted {} at {}, {}", Time(load.time_ns_per_s), Rate(need.rate_msgs_per_s), need.class)
    }

    /// Has the context with the device make room for what the steps of a plan read and make: streams that handlers are
    /// to read, formats that they are to make, which subscribers then know before the first record. All of it, or
    /// nothing has changed.
    ///
    /// # Errors
    /// A stream that is to be made is published already, its policy refuses a format, or a table is full.
    pub(super) fn reserve(&mut self, steps: &[Step]) -> Result<Reserved, String> {
        let mut reserved = Reserved::new();
        for step in steps {
            let (spec, reads, compiled) = match step {
                Step::Deploy { spec, reads, compiled, .. } => (spec, reads.clone(), compiled),
                Step::Swap { spec, reads, compiled, .. } => match self.handlers.get(&spec.name) {
                    Some(there) => (spec, new_reads(there, reads), compiled),
                    None => continue,
                },
                _ => continue,
            };
            match self.claim(spec, &reads, compiled) {
                Ok(numbers) => drop(reserved.insert(spec.name.clone(), numbers)),
                Err(why) => {
                    self.give_back(&reserved);
                    return Err(format!("handler `{}`: {why}", spec.name));
                }
            }
        }
        Ok(reserved)
    }

    /// Gives back what was reserved and is not needed.
    pub(super) fn give_back(&mut self, reserved: &Reserved) {
        for (name, (reads, makes)) in reserved {
            let (reads, makes, is_new) = (reads.clone(), *makes, !self.handlers.contains_key(name));
            let _ = self.dock.run(move |context| {
                reads.iter().for_each(|number| context.disclaim(*number));
                if is_new {
                    context.underive(makes);
                }
            });
        }
    }

    /// The numbers of a handler's streams: those that it reads, and the one that it makes. All of them, or nothing has
    /// changed.
    fn claim(&mut self, spec: &HandlerSpec, reads: &[String], compiled: &Compiled) -> Result<(Vec<u32>, u32), String> {
        let (names, handler, makes) = (reads.to_vec(), spec.name.clone(), spec.derived().to_owned());
        let formats = compiled.outputs();
        let mut plans = self.dock.plans(&makes, &formats).map_err(|stopped| stopped.to_string())?;
        let claimed = self.dock.run(move |context| {
            let mut numbers = Vec::new();
            let mut claim = || {
                for name in &names {
                    numbers.push(context.claim(name)?.number);
                }
                context.derive(&makes, &handler, &formats, &mut plans).map(|facts| facts.number)
            };
            match claim() {
                Ok(makes) => Ok((numbers, makes)),
                Err(refusal) => {
                    numbers.iter().for_each(|number| context.disclaim(*number));
                    Err(refusal.message)
                }
            }
        });
        claimed.map_err(|stopped| stopped.to_string())?
    }

    fn swap(
        &mut self,
        spec: HandlerSpec,
        reads: &[String],
        mut compiled: Compiled,
        need: Need,
        (keeps_state, (numbers, _)): (bool, (Vec<u32>, u32)),
    ) -> Result<(), String> {
        let name = spec.name.clone();
        let Some(there) = self.handlers.get(&name) else { return Ok(()) };
        let (stage, version, one_in) = (there.stage, there.version + 1, there.one_in);
        let new = new_reads(there, reads);
        let gone: Vec<u32> =
            there.reads.iter().filter(|(known, _)| !reads.contains(known)).map(|(_, number)| *number).collect();
        let kept = there.reads.clone();
        let of_new: BTreeMap<String, u32> = new.into_iter().zip(numbers).chain(kept).collect();
        let terms = terms(&spec, dearest_ns(&compiled.entries), one_in, there.is_degraded);
        let instances = instances(&mut compiled);
        let lost = self.on_overlay(|overlay, wait| overlay.swap(stage, instances, keeps_state, wait));
        let reads: Vec<(String, u32)> =
            reads.iter().filter_map(|name| Some((name.clone(), *of_new.get(name)?))).collect();
        let read = reads.iter().map(|(_, number)| *number).collect();
        self.on_overlay(|overlay, wait| overlay.set_terms(stage, terms, Some(read), wait));
        if !gone.is_empty() {
            let _ = self.dock.run(move |context| gone.iter().for_each(|number| context.disclaim(*number)));
        }
        self.record(spec, |there| {
            there.version = version;
            there.entries = compiled.entries;
            there.is_metered = compiled.is_metered;
            there.need = need;
            there.reads = reads;
            if !there.entries.is_empty() {
                there.status = Status::Running;
            }
        });
        self.hold_if_degraded(&name);
        self.rewire()?;
        let state = if lost > 0 { format!("; {lost} states were lost") } else { String::new() };
        self.note("swapped", &name, format!("version {version}, {}{state}", self.load_text(&need)));
        Ok(())
    }

    /// Moves a handler to another context.
    pub(crate) fn move_handler(&mut self, name: &str, to: ContextIndex, why: &str) -> Result<(), String> {
        let Some(there) = self.handlers.get(name) else { return Ok(()) };
        let stage = there.stage;
        let from = self.overlay.stage(stage).map(|stage| self.watch.name(stage.at).to_owned()).unwrap_or_default();
        self.on_overlay(|overlay, wait| overlay.move_to(stage, to, wait));
        if let Some(there) = self.handlers.get_mut(name) {
            there.changes += 1;
        }
        let text = format!("from {from} to {}: {why}", self.watch.name(to));
        self.note("moved", name, text);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<(), String> {
        let Some(there) = self.handlers.get(name) else { return Ok(()) };
        let (stage, delivery, makes) = (there.stage, there.delivery, there.makes);
        let reads: Vec<u32> = there.reads.iter().map(|(_, number)| *number).collect();
        let taken = self.on_overlay(|overlay, wait| overlay.take(stage, wait));
        let left = taken.map_or(0, |mut stage| stage.drop_waiting());
        self.on_overlay(|overlay, wait| overlay.take(delivery, wait));
        let _ = self.dock.run(move |context| {
            context.underive(makes);
            reads.iter().for_each(|number| context.disclaim(*number));
        });
        self.handlers.remove(name);
        self.rewire()?;
        let text = if left > 0 {
            format!("{left} records that waited for it were dropped")
        } else {
            "all that had come was worked on".to_owned()
        };
        self.events.note("removed", About { handler: Some(name), context: None }, text);
        Ok(())
    }

    /// Connects every handler's stage to the present origins of its streams.
    fn rewire(&mut self) -> Result<(), String> {
        let makers: BTreeMap<&str, StageId> =
            self.handlers.values().map(|handler| (handler.spec.derived(), handler.stage)).collect();
        let origin = |(name, number): &(String, u32)| {
            makers.get(name.as_str()).map_or(Origin::Stream(*number), |maker| Origin::Stage(*maker))
        };
        let mut wanted: Vec<(StageId, BTreeSet<Origin>)> = self
            .handlers
            .values()
            .map(|handler| (handler.stage, handler.reads.iter().map(origin).collect()))
            .filter(|(stage, reads)| self.overlay.stage(*stage).is_some_and(|placed| placed.reads != *reads))
            .collect();
        // Handlers that read other handlers' streams come first, before those handlers begin to make them.
        wanted.sort_by_key(|(_, reads)| !reads.iter().any(|origin| matches!(origin, Origin::Stage(_))));
        for (stage, reads) in wanted {
            self.on_overlay(|overlay, wait| overlay.rewire(stage, &reads, wait));
        }
        Ok(())
    }

    /// A published stream that handlers read has a format more: they are compiled for it, and what they then make as
    /// well.
    pub(crate) fn take_new_format(&mut self, number: u32) {
        self.workshop.scales.care = Care::Usual;
        let Ok(Some(facts)) = self.dock.run(move |context| context.facts(number as usize)) else { return };
        if self.is_anything_lost() {
            // Once all contexts answer again.
            self.late_formats.insert(number);
            return;
        }
        let stream = KnownStream::from(facts);
        let readers: Vec<String> = self
            .handlers
            .iter()
            .filter(|(_, handler)| handler.reads.iter().any(|(name, _)| *name == stream.name))
            .map(|(name, _)| name.clone())
            .collect();
        for name in readers {
            if let Err(why) = self.fit(&name, &stream) {
                self.note("failed", &name, why);
            }
        }
    }

    /// Compiles a handler for those formats of a stream that it has no entry for.
    fn fit(&mut self, name: &str, stream: &KnownStream) -> Result<(), String> {
        let Some(there) = self.handlers.get(name) else { return Ok(()) };
        let (program, stage, there_spec) = (program(&there.spec)?, there.stage, there.spec.clone());
        let is_new =
            |(format, _): &&(crossdock_format::Format, Vec<u8>)| !there.entries.iter().any(|e| e.input == *format);
        let new: Vec<_> = stream.formats.iter().filter(is_new).cloned().collect();
        for (format, sample) in new {
            let CompiledEntry { entry, handler, is_metered } =
                self.fitted(&program, &there_spec, stream, (&format, &sample))?;
            if let Some(why) = &entry.why {
                self.note("unreadable", name, format!("format {} of stream `{}`: {why}", format.id(), stream.name));
            }
            let output = entry.output.as_ref().map_or(0, |format| format.id().0);
            let instance = Instance { format: format.id().0, handler, output };
            self.on_overlay(|overlay, wait| overlay.add_instance(stage, instance, wait));
            if let Some(there) = self.handlers.get_mut(name) {
                there.entries.push(entry);
                there.is_metered &= is_metered;
                there.status = Status::Running;
            }
        }
        self.hold_if_degraded(name);
        self.recompute();
        // Its output format may be new to its readers.
        let Some(there) = self.handlers.get(name) else { return Ok(()) };
        let made = super::derived(&there.spec, &there.entries, &there.need, &BTreeMap::new());
        let readers: Vec<String> = self
            .handlers
            .iter()
            .filter(|(_, handler)| handler.reads.iter().any(|(name, _)| *name == made.name))
            .map(|(name, _)| name.clone())
            .collect();
        readers.iter().try_for_each(|reader| self.fit(reader, &made))
    }

    /// The entry for a format that has come; one without a handler where it cannot be had, so that its records are
    /// counted and nobody waits for them.
    fn fitted(
        &mut self,
        program: &HandlerProgram,
        spec: &HandlerSpec,
        stream: &KnownStream,
        (format, sample): (&Format, &[u8]),
    ) -> Result<CompiledEntry, String> {
        let unfit = |why: String| {
            let entry = Entry::unfit(stream, format, why);
            CompiledEntry { entry, handler: None, is_metered: true }
        };
        let compiled = match self.workshop.compile_entry(program, stream, format, sample) {
            Ok(compiled) => compiled,
            Err(why) => return Ok(unfit(why)),
        };
        let Some(output) = compiled.entry.output.clone() else { return Ok(compiled) };
        let (makes, name) = (spec.derived().to_owned(), spec.name.clone());
        let outputs = [output];
        let mut plans = self.dock.plans(&makes, &outputs).map_err(|stopped| stopped.to_string())?;
        let declared = self.dock.run(move |context| context.derive(&makes, &name, &outputs, &mut plans).map(drop));
        match declared.map_err(|stopped| stopped.to_string())? {
            Ok(()) => Ok(compiled),
            Err(refusal) => Ok(unfit(refusal.message)),
        }
    }

    /// Looks after handlers that panicked or did not return.
    pub(crate) fn mend(&mut self) {
        let given_up = std::mem::take(&mut self.watch.given_up);
        for one in given_up {
            let context = self.watch.name(one.context).to_owned();
            let handler =
                self.handlers.iter().find(|(_, there)| there.stage == one.stage).map(|(name, _)| name.clone());
            let text = "a handler did not return: the context goes on with another thread, and with what waited for it";
            self.events.note("replaced", About { handler: handler.as_deref(), context: Some(&context) }, text);
        }
        self.note_turned();
        if self.overlay.unanswered().is_some() {
            return;
        }
        let failed: Vec<(String, u64)> = self
            .handlers
            .iter()
            .filter_map(|(name, there)| {
                let placed = self.overlay.stage(there.stage)?;
                let faults = placed.gauges.faults.get();
                (self.watch.lost(placed.at).is_none() && faults > there.faults_seen).then(|| (name.clone(), faults))
            })
            .collect();
        for (name, faults) in failed {
            self.mend_handler(&name, faults);
        }
    }

    fn mend_handler(&mut self, name: &str, faults: u64) {
        let now_s = self.started.elapsed().as_secs();
        let Some(there) = self.handlers.get_mut(name) else { return };
        there.faults_seen = faults;
        there.fault_times_s.retain(|at| now_s < at + FAULTS_WITHIN_S);
        there.fault_times_s.push(now_s);
        let is_over = there.fault_times_s.len() >= MAX_FAULTS;
        let restarts = there.spec.on_fault == OnFault::Restart && !is_over;
        if !restarts {
            let why = match is_over {
                true => format!("it panicked or did not return {MAX_FAULTS} times within {FAULTS_WITHIN_S} s"),
                false => "it panicked or did not return, and `on_fault` is to stop".to_owned(),
            };
            return self.give_up(name, &why);
        }
        let (spec, stage) = (there.spec.clone(), there.stage);
        match self.again(&spec) {
            Ok(instances) => {
                self.on_overlay(|overlay, wait| overlay.swap(stage, instances, false, wait));
                self.hold_if_degraded(name);
                self.note("restarted", name, "it panicked or did not return: it goes on with new state");
            }
            Err(why) => self.give_up(name, &why),
        }
    }

    /// A handler that panicked or did not return is not restarted.
    fn give_up(&mut self, name: &str, why: &str) {
        let Some(there) = self.handlers.get_mut(name) else { return };
        there.status = Status::Failed(why.to_owned());
        let stage = there.stage;
        // Its context holds input for a handler that might go on; no handler would take it.
        self.on_overlay(|overlay, wait| overlay.fail(stage, wait));
        self.note("failed", name, format!("{why}: what comes for it is dropped and counted until it is swapped"));
    }

    /// New instances of a handler that is there.
    fn again(&self, spec: &HandlerSpec) -> Result<Vec<Instance>, String> {
        let program = program(spec)?;
        let Some(there) = self.handlers.get(&spec.name) else { return Ok(Vec::new()) };
        let instance = |entry: &Entry| {
            let made = program.make(&self.workshop.natives, &entry.input).ok();
            let output = entry.output.as_ref().map_or(0, |format| format.id().0);
            Instance { format: entry.input.id().0, handler: made.map(|made| made.handler), output }
        };
        Ok(there.entries.iter().map(instance).collect())
    }
}
