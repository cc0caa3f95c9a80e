//! A change to what a context runs, carried out between two batches; and the queues between contexts, as they fill and
//! empty.

use crate::platform::ops::{Change, Op, Progress};
use crate::platform::stage::{Instance, Output, Stage, Work, retarget};
use crate::platform::table::{Source, Table};
use crate::platform::{Origin, StageId};
use crossdock_engine::ParameterValues;
use std::panic::{AssertUnwindSafe, catch_unwind};

impl Table {
    /// Wakes the contexts into whose rings batches were put.
    #[inline]
    pub(crate) fn ring(&mut self) {
        while self.rung != 0 {
            let at = self.rung.trailing_zeros() as usize;
            self.rung &= self.rung - 1;
            if at != usize::from(self.index.0)
                && let Some(doorbell) = self.doorbells.get(at)
            {
                doorbell.ring();
            }
        }
    }

    /// Puts into the rings the batches that they had no room for before.
    pub(super) fn flush(&mut self) {
        let mut full = std::mem::take(&mut self.full);
        full.retain(|origin| {
            let mut is_full = false;
            let mut flush = |output: &mut Output| {
                if let Output::Edge(sender) = output {
                    if sender.flush() {
                        self.rung |= 1 << sender.context.0;
                    }
                    is_full |= sender.is_full();
                }
            };
            match origin {
                Origin::Stage(id) => {
                    let stage = self.stages.get_mut(id.0 as usize).and_then(Option::as_mut);
                    stage.into_iter().flat_map(|stage| &mut stage.outputs).for_each(flush);
                }
                Origin::Stream(number) => {
                    let Some(source) = self.sources.get_mut(*number as usize) else { return false };
                    source.outputs.iter_mut().for_each(&mut flush);
                    let (stages, inbox_batches) = (&self.stages, self.inbox_batches);
                    let is_long = |output: &Output| match output {
                        Output::Local(to) => stages
                            .get(to.0 as usize)
                            .and_then(Option::as_ref)
                            .is_some_and(|stage| stage.inbox.len() > inbox_batches / 2),
                        Output::Edge(_) => false,
                    };
                    is_full |= source.outputs.iter().any(is_long);
                    if !is_full {
                        source.is_blocked = false;
                        self.turned.push((*number, false));
                    }
                }
            }
            is_full
        });
        self.full = full;
        self.leaving.retain_mut(|output| match output {
            Output::Edge(sender) => {
                if sender.flush() {
                    self.rung |= 1 << sender.context.0;
                }
                if sender.is_closed() {
                    sender.drop_waiting();
                }
                sender.is_full()
            }
            Output::Local(_) => false,
        });
    }

    /// Makes direct calls of queues within this context that have become empty.
    pub(super) fn join(&mut self) {
        let joining = std::mem::take(&mut self.joining);
        for (from, to) in joining {
            if !self.joined(from, to) {
                self.joining.push((from, to));
            }
        }
    }

    fn joined(&mut self, from: Origin, to: StageId) -> bool {
        let Some(output) = self.output_of(from, to) else { return true };
        let Output::Edge(sender) = &mut *output else { return true };
        if sender.is_full() || sender.waiting() > 0 {
            return false;
        }
        // Its sender goes, and with it the other end, which is then seen to be closed and empty.
        *output = Output::Local(to);
        if let Some(stage) = self.stage_mut(to) {
            stage.inputs.retain_mut(|receiver| !receiver.is_done());
        }
        true
    }

    /// Carries out one step of the pending changes, between two batches; returns whether there was one. A change is
    /// fetched, prefetched into the cache and carried out in separate steps. Each step takes over memory that another
    /// core wrote last, so no batch waits for all of it.
    #[inline]
    pub(crate) fn take_changes(&mut self) -> bool {
        // A batch that is under way is first brought to its end: the change may remove a stage that it is for.
        if !self.ready.is_empty() {
            return false;
        }
        let step = match std::mem::take(&mut self.signals.progress) {
            Progress::None => self.signals.changes.pop().map(Progress::Fetched),
            Progress::Fetched(change) => {
                change.warm();
                Some(Progress::Warmed(change))
            }
            Progress::Warmed(mut change) => {
                self.apply(&mut change);
                // No more changes are under way than the ring has places, so there is room.
                drop(self.signals.done.push(change));
                Some(Progress::None)
            }
        };
        let any = step.is_some();
        self.signals.progress = step.unwrap_or_default();
        any
    }

    /// Holds a stage back, or no longer.
    pub(crate) fn hold(&mut self, id: StageId, is_held: bool) {
        if let Some(stage) = self.stage_mut(id) {
            stage.is_held = is_held;
        }
    }

    /// Carries out all of a change; the objects that it took out are then in it.
    pub(crate) fn apply(&mut self, change: &mut Change) {
        change.ops.iter_mut().for_each(|op| self.carry_out(op));
    }

    fn carry_out(&mut self, op: &mut Op) {
        match op {
            Op::Put(stage) => {
                if let Some(stage) = stage.take() {
                    self.put(stage);
                }
            }
            Op::Take { stage: id, only_idle, taken } => {
                if *only_idle && !self.is_done(*id) {
                    return;
                }
                *taken = self.lift(*id);
                self.here.retain(|here| here != id);
                self.full.retain(|origin| *origin != Origin::Stage(*id));
                self.next = 0;
            }
            Op::Instances { stage, instances, keeps_state, lost } => {
                if let Some(stage) = self.stage_mut(*stage) {
                    *lost = exchange(stage, instances, *keeps_state);
                }
            }
            Op::Instance { stage, instance } => {
                if let (Some(stage), Some(new)) = (self.stage_mut(*stage), instance.take())
                    && let Work::Handler(instances) = &mut stage.work
                {
                    match instances.iter_mut().find(|known| known.format == new.format) {
                        Some(known) => *instance = Some(std::mem::replace(known, new)),
                        None => instances.push(new),
                    }
                }
            }
            Op::Parameters { stage, values, refused } => {
                let stage = self.stage_mut(*stage);
                *refused = stage.map_or(0, |stage| set_parameters(stage, values));
            }
            Op::SchedulingPolicy { stage, terms, reads } => {
                if let Some(stage) = self.stage_mut(*stage) {
                    stage.terms = *terms;
                    if let Some(reads) = reads {
                        std::mem::swap(&mut stage.reads, reads);
                        stage.ended.retain(|ended| stage.reads.contains(ended));
                    }
                }
            }
            Op::Limit(batches) => self.limit_queues(*batches),
            Op::Fail { stage } => {
                if let Some(stage) = self.stage_mut(*stage) {
                    (stage.has_failed, stage.is_held) = (true, false);
                }
            }
            #[cfg(feature = "bench")]
            Op::Hold { stage, is_held } => self.hold(*stage, *is_held),
            Op::Output { .. }
            | Op::NoOutput { .. }
            | Op::Part { .. }
            | Op::Target { .. }
            | Op::Drops { .. }
            | Op::Input { .. }
            | Op::Join { .. } => self.change_way(op),
        }
    }

    /// Carries out a step that concerns the routes between stages.
    fn change_way(&mut self, op: &mut Op) {
        match op {
            Op::Output { from, output } => {
                if let (Some(outputs), Some(output)) = (self.outputs_of(*from), output.take()) {
                    outputs.push(output);
                }
            }
            Op::NoOutput { from, to } => {
                if let Some(outputs) = self.outputs_of(*from)
                    && let Some(at) = outputs.iter().position(|output| output.to() == *to)
                {
                    let output = outputs.remove(at);
                    self.leaving.push(output);
                }
            }
            Op::Part { from, to, context, ends } => {
                self.joining.retain(|(origin, stage)| (origin, stage) != (from, to));
                match self.output_of(*from, *to) {
                    Some(output @ Output::Local(_)) => {
                        let Some((sender, receiver)) = ends.take() else { return };
                        *output = sender;
                        if let Some(stage) = self.stage_mut(*to) {
                            stage.inputs.push(receiver);
                        }
                    }
                    Some(output) => retarget(output, *context),
                    None => {}
                }
            }
            Op::Target { from, to, context } => {
                if let Some(output) = self.output_of(*from, *to) {
                    retarget(output, *context);
                }
            }
            Op::Drops { from, to, drops } => {
                if let Some(Output::Edge(sender)) = self.output_of(*from, *to) {
                    sender.drops = *drops;
                }
            }
            Op::Input { stage, receiver } => {
                if let (Some(stage), Some(receiver)) = (self.stage_mut(*stage), receiver.take()) {
                    stage.inputs.retain_mut(|receiver| !receiver.is_done());
                    stage.inputs.push(receiver);
                }
            }
            Op::Join { from, to } => self.joining.push((*from, *to)),
            _ => {}
        }
    }

    /// Whether a stage has received all of its input, and none of it waits here.
    fn is_done(&mut self, id: StageId) -> bool {
        let Some(stage) = self.stages.get_mut(id.0 as usize).and_then(Option::as_mut) else { return true };
        let delivers = matches!(stage.work, Work::Deliver);
        stage.is_done() && !(delivers && self.delivered.iter().any(|batch| batch.stream == stage.makes))
    }

    fn put(&mut self, stage: Box<Stage>) {
        let (id, at) = (stage.id, stage.id.0 as usize);
        if self.stages.len() <= at {
            self.stages.resize_with(at + 1, || None);
        }
        if stage.outputs.iter().any(|output| matches!(output, Output::Edge(sender) if sender.is_full())) {
            self.full.push(Origin::Stage(id));
        }
        self.stages[at] = Some(stage);
        self.here.retain(|here| *here != id);
        self.here.push(id);
    }

    /// The outputs of an origin; those of a stream are created if there are none yet. A stage that is not here has
    /// none.
    fn outputs_of(&mut self, from: Origin) -> Option<&mut Vec<Output>> {
        match from {
            Origin::Stream(number) => {
                let at = number as usize;
                if self.sources.len() <= at {
                    self.sources.resize_with(at + 1, Source::default);
                }
                self.sources.get_mut(at).map(|source| &mut source.outputs)
            }
            Origin::Stage(id) => self.stage_mut(id).map(|stage| &mut stage.outputs),
        }
    }

    fn output_of(&mut self, from: Origin, to: StageId) -> Option<&mut Output> {
        self.outputs_of(from)?.iter_mut().find(|output| output.to() == to)
    }
}

/// Exchanges a stage's instances for new ones; the old ones are in `instances` then. Returns the number of states that
/// were lost.
fn exchange(stage: &mut Stage, instances: &mut Vec<Instance>, keeps_state: bool) -> u32 {
    let Work::Handler(old) = &mut stage.work else { return 0 };
    std::mem::swap(old, instances);
    let mut lost = 0;
    for before in instances {
        let after = old.iter_mut().find(|instance| instance.format == before.format);
        let handlers = before.handler.as_mut().zip(after.and_then(|after| after.handler.as_mut()));
        let Some((before, after)) = handlers.filter(|_| keeps_state) else { continue };
        // A panic of a user's handler while it hands its state over must not end the context.
        let handed = catch_unwind(AssertUnwindSafe(|| before.hand_over().map(|state| after.take_over(state).is_ok())));
        lost += u32::from(!matches!(handed, Ok(None | Some(true))));
    }
    (stage.has_failed, stage.is_held) = (false, false);
    lost
}

/// Exchanges the values of a stage's parameters for `values`; returns the number of instances that did not take them.
fn set_parameters(stage: &mut Stage, values: &mut [(u64, ParameterValues)]) -> u32 {
    let mut refused = 0;
    for (format, values) in values {
        let handler = stage.instance(*format).and_then(|instance| instance.handler.as_mut());
        refused += u32::from(!handler.is_some_and(|handler| handler.set_parameters(values)));
    }
    refused
}
