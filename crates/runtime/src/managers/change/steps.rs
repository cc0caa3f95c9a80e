//! Carries out the steps of a plan as one change of the graph, fits handlers to new formats, and restarts failed
//! handlers.

use super::{Carried, Failed, PlanStep, instance_of, instances, instances_of, parameters_text};
use crate::graph::bounds::TooManyQueues;
use crate::graph::change::NewValues;
use crate::graph::node::Node;
use crate::graph::node::StateLoss;
use crate::graph::{ContextIndex, NodeId};
use crate::managers::deployed::{
    Compiled, CompiledEntry, Decided, Deployed, Entry, KnownStream, Status, awaited, decided, program, with_margin,
};
use crate::managers::events::About;
use crate::managers::request::ControlRequest;
use crate::managers::spec::{HandlerSpec, OnFault};
use crate::managers::watch::GivenUp;
use crate::managers::work::{policy, probation_ns_per_s};
use crate::managers::{Briefly, Following, Managers};
use crate::platform::overlay::{Changed, Edit, NotChanged, Overlay, Waiting};
use crossdock_control::admission::Need;
use crossdock_control::figures::{Rate, Time};
use crossdock_control::load::{Contexts, Cost};
use crossdock_engine::HandlerProgram;
use crossdock_format::Format;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A handler that is restarted after faults is stopped after `MAX_FAULTS` faults within `FAULTS_WITHIN_S` seconds.
const FAULTS_WITHIN_S: u64 = 60;
const MAX_FAULTS: usize = 3;

/// The numbers of streams by handler: those that it reads from now on, and the one that it makes.
pub(super) type Reserved = BTreeMap<String, (Vec<u32>, u32)>;

/// That a step is about a handler that is not there.
fn unknown(name: &str) -> String {
    debug_assert!(false, "a step is about a handler that is there: {name}");
    format!("there is no handler `{name}`: this is a mistake of Crossdock's")
}

/// The streams that a handler has not read before.
fn new_reads(there: &Deployed, reads: &[String]) -> Vec<String> {
    reads.iter().filter(|name| !there.reads.iter().any(|(known, _)| known == *name)).cloned().collect()
}

/// The record of a handler once the graph has changed.
enum Done {
    Deployed {
        deployed: Box<Deployed>,
    },
    Swapped {
        spec: HandlerSpec,
        compiled: Compiled,
        need: Need,
        reads: Vec<(String, u32)>,
        gone: Vec<u32>,
        limit: u64,
        keeps_state: bool,
    },
    Parameters {
        spec: HandlerSpec,
        values: Vec<NewValues>,
        costs: Vec<Cost>,
        need: Need,
    },
    Respecified {
        spec: HandlerSpec,
        need: Need,
    },
    Moved {
        handler: String,
        spec: HandlerSpec,
        from: String,
        to: ContextIndex,
    },
    Removed {
        handler: String,
    },
}

impl Done {
    fn handler(&self) -> &str {
        match self {
            Done::Deployed { deployed } => &deployed.spec.name,
            Done::Swapped { spec, .. } | Done::Parameters { spec, .. } | Done::Respecified { spec, .. } => &spec.name,
            Done::Moved { handler, .. } | Done::Removed { handler } => handler,
        }
    }
}

/// The edits of a change, one for each node.
#[derive(Default)]
struct Edits {
    /// All contexts, with what handlers take before the change.
    contexts: Contexts,
    nodes: Vec<NodeId>,
    others: Vec<Edit>,
    /// Changes of nodes that are there.
    changes: BTreeMap<NodeId, Edit>,
}

impl Edits {
    /// The time that a handler may take on probation.
    fn probation_ns_per_s(&self, at: ContextIndex, need: &Need) -> u64 {
        probation_ns_per_s(&self.contexts, usize::from(at.0), need.load.time_ns_per_s)
    }

    /// The edit of a node that is there, in which others may be joined.
    fn of(&mut self, node: NodeId) -> &mut Edit {
        let none = || Edit::Change { id: node, instances: None, policy: None, reads: None, at: None };
        self.changes.entry(node).or_insert_with(none)
    }
}

impl Managers {
    /// Carries steps out: the graph changes as a whole, and what else they are about follows.
    pub(super) fn carry_out(&mut self, steps: Vec<PlanStep>, reserved: &mut Reserved) -> Result<Carried, Failed> {
        let mut edits = Edits { contexts: self.contexts(), ..Edits::default() };
        let done: Result<Vec<Done>, String> =
            steps.into_iter().map(|step| self.edit(step, reserved, &mut edits)).collect();
        let done = done.map_err(Failed::Refused)?;
        let Edits { mut others, changes, .. } = edits;
        others.extend(changes.into_values());
        let changed = if others.is_empty() { Ok(Changed::default()) } else { self.change_graph(others) };
        let changed = match changed {
            Ok(changed) => changed,
            Err(failed) => {
                done.into_iter().for_each(|done| self.reserve_again(done, reserved));
                return Err(failed);
            }
        };
        let mut carried = Carried { change: changed.unfinished, ..Carried::default() };
        let mut why = changed.failed.map(|at| self.failed_text(at));
        let removed = |done: &Done| match done {
            Done::Removed { handler } => self.handlers.get(handler).map(|there| there.makes),
            _ => None,
        };
        let no_longer_made: BTreeSet<u32> = done.iter().filter_map(removed).collect();
        for done in done {
            let handler = done.handler().to_owned();
            match self.settle(done, &changed) {
                Ok(order) => carried.orders.extend(order),
                Err(refused) => why = why.or(Some(refused)),
            }
            self.note_changed(&handler);
        }
        // Another handler may have been deployed to make it.
        match changed.unfinished.and_then(|change| self.following.get_mut(&change)) {
            Some(following) => following.ended.extend(no_longer_made),
            None => no_longer_made.into_iter().for_each(|number| self.end_derived(number)),
        }
        why.map_or(Ok(carried), |why| Err(Failed::Partly(why)))
    }

    /// The reservation for a step that was not carried out is to be given back.
    fn reserve_again(&self, done: Done, reserved: &mut Reserved) {
        let (name, reads, makes) = match done {
            Done::Deployed { deployed } => (deployed.spec.name, deployed.reads, deployed.makes),
            Done::Swapped { spec, mut reads, .. } => {
                let there = self.handlers.get(&spec.name);
                reads.retain(|read| there.is_none_or(|there| !there.reads.contains(read)));
                (spec.name, reads, there.map_or(0, |there| there.makes))
            }
            _ => return,
        };
        reserved.insert(name, (reads.into_iter().map(|(_, number)| number).collect(), makes));
    }

    /// The graph, and the wait for its contexts.
    fn wait_briefly(&mut self) -> (&mut Overlay, Briefly<'_>) {
        let Managers { overlay, watch, awaited_formats, progress, .. } = self;
        // Whatever comes of it, they are waited for once.
        let awaited_formats = std::mem::take(awaited_formats);
        let round_trips = &mut progress.round_trips;
        (overlay, Briefly { watch, since: crossdock_device::now(), awaited_formats, round_trips })
    }

    /// Changes the graph as a whole, or begins to.
    pub(in crate::managers) fn change_graph(&mut self, edits: Vec<Edit>) -> Result<Changed, Failed> {
        let (overlay, mut wait) = self.wait_briefly();
        let changed = match overlay.change(edits, &mut wait) {
            Ok(changed) => changed,
            Err(NotChanged::Unanswered { at }) => return Err(Failed::Hindered(at)),
            Err(NotChanged::NoBuffers(TooManyQueues { queues, buffers })) => {
                return Err(Failed::Refused(format!(
                    "there would be {queues} queues between handlers, which need a buffer each, and contexts have {buffers} \
                     buffers for them: remove a handler, use fewer contexts, or raise `buffer_bytes`"
                )));
            }
            Err(NotChanged::UnknownNode(node)) => {
                debug_assert!(false, "a deployed handler has a node");
                let why = format!("there is no node {}: this is a mistake of Crossdock's", node.0);
                return Err(Failed::Refused(why));
            }
        };
        if let Some(change) = changed.unfinished {
            self.following.insert(change, Following::default());
        }
        Ok(changed)
    }

    /// The edits of a step in the graph, and what follows once it has changed.
    ///
    /// # Errors
    /// It is about a handler that is not there, or for which nothing is reserved.
    fn edit(&mut self, step: PlanStep, reserved: &mut Reserved, edits: &mut Edits) -> Result<Done, String> {
        Ok(match step {
            PlanStep::Deploy { spec, reads, mut compiled, need, at } => {
                let (numbers, makes) = reserved.remove(&spec.name).ok_or_else(|| unknown(&spec.name))?;
                let id = self.overlay.next_id(&edits.nodes);
                edits.nodes.push(id);
                let reads: Vec<(String, u32)> = reads.into_iter().zip(numbers.iter().copied()).collect();
                let mut first = instances(&mut compiled, &reads);
                self.checkpoints.restore(&spec.name, &mut first);
                let mut node = Box::new(Node::new(id, first, makes, &numbers));
                node.reads_own = spec.replicas;
                let of_node = (id, Arc::clone(&node.gauges));
                let tables = self.compiler.natives.tables();
                let mut deployed = Box::new(Deployed::new(spec, of_node, makes, reads, (compiled, need), tables));
                deployed.begin_probation(edits.probation_ns_per_s(at, &need));
                node.policy = deployed.policy();
                edits.others.push(Edit::Add { node, at });
                edits.others.push(Edit::Observe { stream: makes, is_observed: true });
                Done::Deployed { deployed }
            }
            PlanStep::Swap { spec, reads, mut compiled, need, keeps_state } => {
                let (numbers, _) = reserved.remove(&spec.name).ok_or_else(|| unknown(&spec.name))?;
                let (there, at) = self.placed(&spec.name)?;
                let node = there.node;
                let new = new_reads(there, &reads);
                let of_new: BTreeMap<String, u32> = new.into_iter().zip(numbers).chain(there.reads.clone()).collect();
                let gone = there.reads.iter().filter(|(known, _)| !reads.contains(known)).map(|(_, number)| *number);
                let gone = gone.collect();
                let reads: Vec<(String, u32)> =
                    reads.iter().filter_map(|name| Some((name.clone(), *of_new.get(name)?))).collect();
                let limit = edits.probation_ns_per_s(at, &need);
                let new_policy = policy(&spec, (&compiled.entries, &with_margin(&compiled.entries)), limit);
                if let Edit::Change { instances: next, policy: set, reads: read, .. } = edits.of(node) {
                    *next = Some((instances(&mut compiled, &reads), keeps_state));
                    *set = Some(new_policy);
                    *read = Some(reads.iter().map(|(_, number)| *number).collect());
                }
                Done::Swapped { spec, compiled, need, reads, gone, limit, keeps_state }
            }
            PlanStep::SetParameters { spec, values, costs, need } => Done::Parameters { spec, values, costs, need },
            PlanStep::Respecify { spec, need } => Done::Respecified { spec, need },
            PlanStep::Move { handler, spec, to } => {
                let (there, from) = self.placed(&handler)?;
                let (node, from) = (there.node, self.watch.name(from).to_owned());
                if let Edit::Change { at, .. } = edits.of(node) {
                    *at = Some(to);
                }
                Done::Moved { handler, spec, from, to }
            }
            PlanStep::Remove { handler } => {
                let (there, _) = self.placed(&handler)?;
                edits.changes.remove(&there.node);
                edits.others.push(Edit::Remove { id: there.node });
                edits.others.push(Edit::Observe { stream: there.makes, is_observed: false });
                Done::Removed { handler }
            }
        })
    }

    /// A handler that is there, and its context.
    ///
    /// # Errors
    /// It is not there.
    fn placed(&self, name: &str) -> Result<(&Deployed, ContextIndex), String> {
        let there = self.handlers.get(name).ok_or_else(|| unknown(name))?;
        let placed = self.overlay.placed(there.node).ok_or_else(|| unknown(name))?;
        Ok((there, placed.at))
    }

    /// Notes what a step has changed, and carries out what is not of the graph. Returns the order to wait for, if any.
    fn settle(&mut self, done: Done, changed: &Changed) -> Result<Option<u64>, String> {
        match done {
            Done::Deployed { deployed } => {
                let (name, need) = (deployed.spec.name.clone(), deployed.need);
                self.look_for_formats(&name, deployed.reads.iter().map(|(_, number)| *number));
                let is_empty = deployed.keeps_state() && !self.checkpoints.is_restored(&name);
                self.handlers.insert(name.clone(), *deployed);
                let state = if is_empty { "; its state is empty" } else { "" };
                self.note("deployed", &name, format!("version 1, {}{state}", self.load_text(&need)));
                self.note_begun(&name);
            }
            Done::Swapped { spec, compiled, need, reads, gone, limit, keeps_state } => {
                let name = spec.name.clone();
                if !keeps_state {
                    self.checkpoints.forget(&name, false);
                }
                self.end_reading(gone, changed);
                let known = self.handlers.get(&name).map_or(&[][..], |there| &there.reads);
                let new = reads.iter().filter(|read| !known.contains(read)).map(|(_, number)| *number);
                self.look_for_formats(&name, new);
                let before = self.handlers.get(&name).and_then(|there| there.spec.state.as_ref());
                if let (Some(before), Some(state)) = (before, &spec.state)
                    && before.key != state.key
                {
                    self.lose_readers_of_others(&name, &state.key);
                }
                let (mut version, tables) = (0, self.compiler.natives.tables().clone());
                self.record(spec, |there| {
                    there.version += 1;
                    version = there.version;
                    there.costs = with_margin(&compiled.entries);
                    there.entries = compiled.entries;
                    there.note_plan(&tables);
                    there.is_metered = compiled.is_metered;
                    (there.need, there.predicted) = (need, need.load);
                    there.begin_probation(limit);
                    there.reads = reads;
                    if !there.entries.is_empty() {
                        there.status = Status::Running;
                    }
                });
                self.hold_if_degraded(&name);
                self.set_policy(&name);
                let lost = changed.lost_states;
                let state = if lost > 0 { format!("; {lost} states were lost") } else { String::new() };
                self.note("swapped", &name, format!("version {version}, {}{state}", self.load_text(&need)));
            }
            Done::Parameters { spec, values, costs, need } => {
                return self.take_parameters(spec, values, costs, need).map(Some);
            }
            Done::Respecified { spec, need } => {
                let name = spec.name.clone();
                // Another budget is another chance.
                self.record(spec, |there| (there.need, there.limit_ns_per_s) = (need, None));
                self.set_policy(&name);
                self.hold_if_degraded(&name);
            }
            Done::Moved { handler, spec, from, to } => {
                self.note_moved(&handler, &from, to, "as requested");
                self.record(spec, |_| ());
            }
            Done::Removed { handler } => {
                self.checkpoints.forget(&handler, true);
                self.forget(&handler, changed);
            }
        }
        Ok(None)
    }

    /// Has a handler fitted to formats that these streams have and it was not compiled for. Contexts report the formats of streams
    /// that handlers read; of those that came after a plan knew the stream's formats, and before its handler read the stream, none
    /// did.
    fn look_for_formats(&self, reader: &str, streams: impl Iterator<Item = u32>) {
        for stream in streams {
            // It fails once the managers are to stop.
            let reader = Some(reader.to_owned());
            let _ = self.requests.send(ControlRequest::NewFormat { stream, reader });
        }
    }

    /// Gives the order to set a handler's parameters.
    fn take_parameters(
        &mut self,
        spec: HandlerSpec,
        values: Vec<NewValues>,
        costs: Vec<Cost>,
        need: Need,
    ) -> Result<u64, String> {
        let name = spec.name.clone();
        let node = self.placed(&name)?.0.node;
        let order = self.order(|overlay| overlay.set_parameters(node, values))?;
        self.note("set_parameters", &spec.name, format!("parameters are {} now", parameters_text(&spec.parameters)));
        self.record(spec, |there| {
            (there.need, there.predicted) = (need, need.load);
            there.entries.iter_mut().zip(costs).for_each(|(entry, cost)| entry.cost = cost);
            there.costs = with_margin(&there.entries);
            there.begin_probation(there.probation_ns_per_s);
        });
        self.set_policy(&name);
        self.hold_if_degraded(&name);
        Ok(order)
    }

    /// Notes an event of a handler.
    pub(crate) fn note(&mut self, kind: &str, handler: &str, text: impl Into<String>) {
        let at = self.handlers.get(handler).and_then(|there| self.overlay.placed(there.node)).map(|node| node.at);
        let context = at.map(|at| self.watch.name(at).to_owned());
        self.events.note(kind, About { handler: Some(handler), context: context.as_deref() }, text);
    }

    /// A handler is as it is now specified.
    fn record(&mut self, spec: HandlerSpec, change: impl FnOnce(&mut Deployed)) {
        if let Some(there) = self.there(&spec.name) {
            there.changes += 1;
            there.spec = spec;
            there.rule_costs = None;
            change(there);
        }
    }

    fn load_text(&self, need: &Need) -> String {
        let load = need.load;
        format!("predicted {} at {}, {}", Time(load.time_ns_per_s), Rate(need.rate_msgs_per_s), need.class)
    }

    /// Has the catalog make room for what the steps of a plan read and make: streams that handlers are
    /// to read, formats that they are to make, which subscribers then know before the first record. All of it, or
    /// nothing has changed.
    ///
    /// # Errors
    /// A stream that is to be made is published already, its policy refuses a format, or a table is full.
    pub(super) fn reserve(&mut self, steps: &[PlanStep]) -> Result<Reserved, String> {
        let mut reserved = Reserved::new();
        self.awaited_formats.clear();
        for step in steps {
            let (spec, reads, compiled) = match step {
                PlanStep::Deploy { spec, reads, compiled, .. } => (spec, reads.clone(), compiled),
                PlanStep::Swap { spec, reads, compiled, .. } => match self.handlers.get(&spec.name) {
                    Some(there) => (spec, new_reads(there, reads), compiled),
                    None => continue,
                },
                _ => continue,
            };
            match self.claim(spec, &reads, compiled) {
                Ok(numbers) => drop(reserved.insert(spec.name.clone(), numbers)),
                Err(why) => {
                    self.give_back(&reserved);
                    return Err(format!("handler `{}`: {why}", spec.asked_name()));
                }
            }
        }
        Ok(reserved)
    }

    /// Gives back what was reserved and is not needed.
    pub(super) fn give_back(&mut self, reserved: &Reserved) {
        self.awaited_formats.clear();
        for (reads, makes) in reserved.values() {
            let reads = reads.clone();
            self.end_derived(*makes);
            self.catalog.post(move |catalog| reads.iter().for_each(|number| catalog.disclaim(*number)));
        }
    }

    /// The numbers of a handler's streams: those that it reads, and the one that it makes. All of them, or nothing has
    /// changed.
    fn claim(&mut self, spec: &HandlerSpec, reads: &[String], compiled: &Compiled) -> Result<(Vec<u32>, u32), String> {
        let (names, handler, makes) = (reads.to_vec(), spec.asked_name().to_owned(), spec.derived().to_owned());
        let (formats, outputs) = (compiled.outputs(), compiled.outputs());
        let claimed = self.catalog.run(move |catalog| {
            let mut numbers = Vec::new();
            let mut claim = || {
                for name in &names {
                    numbers.push(catalog.claim(name)?);
                }
                catalog.derive(&makes, &handler, &formats)
            };
            match claim() {
                Ok(makes) => Ok((numbers, makes)),
                Err(refusal) => {
                    numbers.iter().for_each(|number| catalog.disclaim(*number));
                    Err(refusal.message)
                }
            }
        });
        let claimed = claimed.map_err(|stopped| stopped.to_string())??;
        // Its readers are planned for the formats before any record of these comes.
        self.request_formats(claimed.1, &outputs, None);
        Ok(claimed)
    }

    /// Ends a stream that no handler makes any more; one that another makes goes on.
    fn end_derived(&mut self, number: u32) {
        // One whose node has not gone yet ends once it has.
        let is_ending = self.following.values().any(|following| following.ended.contains(&number));
        if is_ending || self.overlay.is_made(number) {
            return;
        }
        self.end_at_contexts(number);
        self.catalog.post(move |catalog| catalog.underive(number));
    }

    /// Moves a handler to another context.
    pub(crate) fn move_handler(&mut self, name: &str, to: ContextIndex, why: &str) -> Result<(), String> {
        let (there, from) = self.placed(name)?;
        let (id, from) = (there.node, self.watch.name(from).to_owned());
        let edit = Edit::Change { id, instances: None, policy: None, reads: None, at: Some(to) };
        match self.change_graph(vec![edit]) {
            Ok(Changed { failed: Some(at), .. }) => return Err(self.failed_text(at)),
            Ok(_) => {}
            Err(Failed::Hindered(at)) => return Err(self.unfinished(at)),
            Err(Failed::Refused(why) | Failed::Partly(why)) => return Err(why),
        }
        self.note_moved(name, &from, to, why);
        self.note_changed(name);
        Ok(())
    }

    fn note_moved(&mut self, name: &str, from: &str, to: ContextIndex, why: &str) {
        self.there(name).into_iter().for_each(|there| there.changes += 1);
        let text = format!("from {from} to {}: {why}", self.watch.name(to));
        self.note("moved", name, text);
    }

    /// A handler's node has gone, or goes when its change is complete.
    fn forget(&mut self, name: &str, changed: &Changed) {
        let there = self.handlers.remove(name);
        debug_assert!(there.is_some(), "handler `{name}` was there");
        if let Some(Deployed { reads, .. }) = there {
            self.end_reading(reads.into_iter().map(|(_, number)| number).collect(), changed);
        }
        let text = match (changed.unfinished, changed.dropped) {
            (Some(_), _) => "it ends when it has processed its current batch".to_owned(),
            (None, 0) => "all queued records were processed".to_owned(),
            (None, left) => format!("{left} records that waited for it were dropped"),
        };
        self.events.note("removed", About { handler: Some(name), context: None }, text);
    }

    /// Streams are not read any more once a change is complete.
    fn end_reading(&mut self, streams: Vec<u32>, changed: &Changed) {
        match changed.unfinished.and_then(|change| self.following.get_mut(&change)) {
            Some(following) => following.unread.extend(streams),
            None => self.disclaim(streams),
        }
    }

    /// Reports to the catalog that a handler does not read some streams any more.
    fn disclaim(&self, streams: Vec<u32>) {
        if !streams.is_empty() {
            self.catalog.post(move |catalog| streams.iter().for_each(|number| catalog.disclaim(*number)));
        }
    }

    /// A change of the graph is complete: what had to wait for it follows.
    pub(in crate::managers) fn follow(&mut self, following: Following) {
        following.ended.into_iter().for_each(|makes| self.end_derived(makes));
        self.disclaim(following.unread);
    }

    /// A published stream that handlers read has a format more: they are compiled for it, or the one `reader` is, and what they
    /// then make as well.
    pub(crate) fn take_new_format(&mut self, number: u32, reader: Option<&str>) {
        // A stream may have gone since.
        let Ok(Some(name)) = self.name_of(number) else { return };
        // Else the context has stopped, and the managers stop next.
        let Ok(mut known) = self.known_streams(&BTreeSet::from([name.clone()])) else { return };
        // It may have gone since its name was found.
        let Some(stream) = known.remove(&name) else { return };
        let is_meant = |name: &&str| reader.is_none_or(|reader| reader == *name);
        let readers: Vec<String> = self.joined.readers(&stream.name).filter(is_meant).map(str::to_owned).collect();
        for name in readers {
            if let Err(why) = self.fit(&name, &stream) {
                self.note("failed", &name, why);
            }
        }
    }

    /// Compiles a handler for those formats of a stream that it has no entry for.
    fn fit(&mut self, name: &str, stream: &KnownStream) -> Result<(), String> {
        let (there, at) = self.placed(name)?;
        if self.watch.lost(at).is_some() {
            // Once it answers again.
            self.formats_to_retry.insert(stream.number);
            return Ok(());
        }
        let (program, node, there_spec, reads) =
            (program(&there.spec)?, there.node, there.spec.clone(), there.reads.clone());
        let Some((streams, decided)) = self.streams_to_fit(name, &program, stream)? else { return Ok(()) };
        let (there, _) = self.placed(name)?;
        let is_new =
            |stream: &KnownStream, format: &Format| !there.entries.iter().any(|e| e.is_for(&stream.name, format));
        let formats = streams.iter().flat_map(|stream| stream.formats.iter().map(move |of| (stream, of)));
        let new: Vec<_> = formats.filter(|(stream, (format, _))| is_new(stream, format)).collect();
        let is_unchanged = new.is_empty();
        for (stream, (format, sample)) in new {
            let fitted = self.fitted((&program, &there_spec, decided.as_ref()), stream, (format, sample))?;
            // It is measured before.
            let Some(CompiledEntry { entry, is_metered }) = fitted else { continue };
            if let Some(why) = &entry.why {
                self.note("unreadable", name, format!("format {} of stream `{}`: {why}", format.id(), stream.name));
            }
            let handler = self.compiler.take_handler(&there_spec, &entry);
            let mut instance = instance_of(&entry, &reads, handler);
            self.checkpoints.restore(name, std::slice::from_mut(&mut instance));
            if self.order(|overlay| overlay.add_instance(node, instance)).is_err() {
                // Once its context takes orders again.
                self.formats_to_retry.insert(stream.number);
                continue;
            }
            let tables = self.compiler.natives.tables().clone();
            if let Some(there) = self.there(name) {
                there.entries.push(entry);
                there.is_metered &= is_metered;
                if there.plan.is_none() {
                    there.note_plan(&tables);
                }
                there.status = Status::Running;
            }
            self.note_begun(name);
        }
        if !is_unchanged {
            self.hold_if_degraded(name);
            self.recost();
            self.note_changed(name);
        }
        // Its output format may be new to its readers.
        let (there, _) = self.placed(name)?;
        let derived = super::derived(&there.spec, (&there.entries, &there.costs), &there.need, &BTreeMap::new());
        let made = KnownStream { number: there.makes, ..derived };
        let readers: Vec<String> = self.joined.readers(&made.name).map(str::to_owned).collect();
        readers.iter().try_for_each(|reader| self.fit(reader, &made))
    }

    /// The streams for whose formats a handler is to be compiled now that one has another format; for a query with state all of them, with
    /// the formats that decide its rows. Those are settled once each of its streams has a format, and anew while it fits none: nothing
    /// until then. The formats of its other streams may have come meanwhile, or not have been measured then.
    #[expect(clippy::type_complexity, reason = "two lists, once")]
    fn streams_to_fit(
        &mut self,
        name: &str,
        program: &HandlerProgram,
        stream: &KnownStream,
    ) -> Result<Option<(Vec<KnownStream>, Option<Decided>)>, String> {
        let (there, _) = self.placed(name)?;
        if !program.is_stateful() {
            return Ok(Some((vec![stream.clone()], None)));
        }
        let names = there.read_names();
        let known = self.known_streams(&names.iter().cloned().collect()).map_err(|stopped| stopped.to_string())?;
        let of_name = |name: &String| match known.get(name) {
            _ if *name == stream.name => stream.clone(),
            Some(known) => known.clone(),
            None => KnownStream { name: name.clone(), ..KnownStream::default() },
        };
        let streams: Vec<KnownStream> = names.iter().map(of_name).collect();
        let fitting =
            self.handlers.get(name).and_then(|there| there.entries.iter().find(|entry| entry.output.is_some()));
        if let Some(fitting) = fitting {
            return Ok(Some((streams, fitting.decided.clone())));
        }
        let decided = decided(streams.iter());
        let Some(there) = self.there(name) else { return Ok(None) };
        (there.entries, there.plan) = (Vec::new(), None);
        if decided.is_none() {
            there.status = Status::waiting(&names, &awaited(streams.iter()));
            self.note_changed(name);
            return Ok(None);
        }
        Ok(Some((streams, decided)))
    }

    /// The entry for a format that has come; one without a handler where it cannot be had, so that its records are
    /// counted and nobody waits for them. Nothing if it is to be measured before.
    fn fitted(
        &mut self,
        (program, spec, decided): (&HandlerProgram, &HandlerSpec, Option<&Decided>),
        stream: &KnownStream,
        (format, sample): (&Format, &[u8]),
    ) -> Result<Option<CompiledEntry>, String> {
        let unfit = |why: String| {
            let entry = Entry { decided: decided.cloned(), ..Entry::unfit(stream, format, why) };
            CompiledEntry { entry, is_metered: true }
        };
        let compiled = match self.compiler.compile_entry((program, spec, decided), stream, (format, sample)) {
            Ok(compiled) => compiled,
            Err(_) if self.compiler.costs.is_missing() => return Ok(None),
            Err(why) => return Ok(Some(unfit(why))),
        };
        // It may not fit the format.
        let Some(output) = compiled.entry.output.clone() else { return Ok(Some(compiled)) };
        let (makes, name) = (spec.derived().to_owned(), spec.asked_name().to_owned());
        let outputs = [output.clone()];
        let derived = self.catalog.run(move |catalog| catalog.derive(&makes, &name, &outputs));
        match derived.map_err(|stopped| stopped.to_string())? {
            Ok(number) => {
                self.request_formats(number, &[output], None);
                let taken_in = self.wait_briefly().1.prerequisites();
                taken_in.map_err(|at| self.note_unanswered(at))?;
                Ok(Some(compiled))
            }
            Err(refusal) => Ok(Some(unfit(refusal.message))),
        }
    }

    /// Restarts or stops handlers that panicked or did not return.
    pub(crate) fn restart_failed(&mut self) {
        let given_up = std::mem::take(&mut self.watch.given_up);
        for one in given_up {
            let context = self.watch.name(one.context).to_owned();
            let handler = self.handlers.iter().find(|(_, there)| there.node == one.node).map(|(name, _)| name.clone());
            let GivenUp { stuck_after, records, .. } = one;
            let text = format!(
                "it did not go on to its next record within {stuck_after:?} (`stuck_after`) and is abandoned with the \
                 {records} records of its batch; another thread serves the context and its queues"
            );
            self.events.note("replaced", About { handler: handler.as_deref(), context: Some(&context) }, text);
        }
        self.note_turned();
        let failed: Vec<(String, u64)> = self
            .handlers
            .iter()
            .filter_map(|(name, there)| {
                let placed = self.overlay.placed(there.node)?;
                let faults = placed.gauges.faults.get();
                (self.watch.lost(placed.at).is_none() && faults > there.faults_seen).then(|| (name.clone(), faults))
            })
            .collect();
        for (name, faults) in failed {
            self.restart_failed_handler(&name, faults);
        }
    }

    fn restart_failed_handler(&mut self, name: &str, faults: u64) {
        let now_s = crossdock_device::elapsed(self.started).as_secs();
        let Some(there) = self.there(name) else { return };
        there.faults_seen = faults;
        there.fault_times_s.retain(|at| now_s < at + FAULTS_WITHIN_S);
        there.fault_times_s.push(now_s);
        let is_over = there.fault_times_s.len() >= MAX_FAULTS;
        let restarts = there.spec.on_fault == OnFault::Restart && !is_over;
        if !restarts {
            let why = match is_over {
                true => format!("it panicked or did not return {MAX_FAULTS} times within {FAULTS_WITHIN_S} s"),
                false => "it panicked or did not return, and `on_fault` is `stop`".to_owned(),
            };
            return self.give_up(name, &why);
        }
        let (handler, node, version) = (name.to_owned(), there.node, there.version);
        self.answer(ControlRequest::Restart { handler, node, version });
    }

    /// Restarts a version of a handler that panicked or did not return, unless it is to be compiled before.
    pub(crate) fn restart(&mut self, name: &str, node: NodeId, version: u32) {
        // It may have gone, or been swapped, while it was compiled.
        let is_it = |there: &&Deployed| (there.node, there.version) == (node, version);
        let Some(there) = self.handlers.get(name).filter(is_it) else { return };
        let spec = there.spec.clone();
        let handlers = self.compiler.compile_again(&spec, &there.entries);
        if self.compiler.costs.is_missing() {
            return;
        }
        match handlers.map(|handlers| instances_of(&there.entries, &there.reads, handlers)) {
            Ok(instances) => {
                if self.order(|overlay| overlay.restart(node, instances)).is_ok() {
                    self.hold_if_degraded(name);
                    self.order_restarted(name);
                    self.note("restarted", name, "it panicked or did not return: it is restarted with new state");
                } else if let Some(there) = self.there(name) {
                    // Once its context takes orders again.
                    there.faults_seen -= 1;
                    there.fault_times_s.pop();
                }
            }
            Err(why) => self.give_up(name, &why),
        }
    }

    /// A handler that panicked or did not return is not restarted.
    fn give_up(&mut self, name: &str, why: &str) {
        let Some(there) = self.there(name) else { return };
        there.status = Status::Failed(why.to_owned());
        let node = there.node;
        // Its context holds input for a handler that might go on; no handler would take it. If the order cannot be
        // given, that is an event.
        let _ = self.order(|overlay| overlay.fail(node));
        self.lose_state(name, StateLoss::Failed);
        self.note("failed", name, format!("{why}: its input is dropped and counted until it is swapped"));
    }
}
