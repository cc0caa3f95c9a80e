//! The platform as a whole: the context of each stage, the queues between stages, and how these are changed without a
//! message being lost, duplicated or reordered. It runs off the cores: it sends changes and waits until they are
//! carried out.
//!
//! Stages move with the ends of their queues. A stage that leaves a context is taken out of it with its state, its
//! receivers and its senders, and put in elsewhere; until then what comes for it waits in its rings, in order. Direct
//! calls become rings before it leaves, and rings that then lie within one context become direct calls once they are
//! empty.
//!
//! The overlay holds the state of stages after all steps are carried out. A context that does not answer in time leaves
//! a change unfinished: that step and all further ones are kept, in order, and carried out once it answers.

use crate::platform::edge::edge;
use crate::platform::gauges::{ContextGauges, StageGauges};
use crate::platform::ops::{Change, Op, Progress, Signals};
use crate::platform::stage::{Instance, Output, SchedulingPolicy, Stage, Work};
use crate::platform::{ContextIndex, Origin, StageId};
use crossdock_device::Doorbell;
use crossdock_engine::ParameterValues;
use crossdock_mailbox::ring::{Consumer, Producer, ring};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Changes that may be under way to one context.
const CHANGES: usize = 64;

/// A context did not answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unanswered(pub(crate) ContextIndex);

/// How the overlay waits until contexts have done what it sent them.
pub(crate) trait Waiting {
    /// A new wait begins.
    fn begin(&mut self);

    /// Waits a moment. `false`: the time for it is over.
    fn wait(&mut self) -> bool;
}

/// The wait of the overlay's caller.
pub(crate) type Wait<'a> = &'a mut dyn Waiting;

/// Polls of a stage that has to finish its input before it is taken out.
const LAST_LOOKS: u32 = 20_000;

/// A context as the overlay sees it.
#[derive(Debug)]
pub(crate) struct Port {
    changes: Producer<Change>,
    done: Consumer<Change>,
    doorbell: Option<Doorbell>,
    pub(crate) gauges: Arc<ContextGauges>,
    /// Batches that may wait in each of its queues: the limit that the context was last sent.
    limit: usize,
    is_lost: bool,
}

/// Both sides of a context's signal queue.
pub(crate) fn signal_queue() -> (Signals, (Producer<Change>, Consumer<Change>)) {
    let ((changes, taken), (done, returned)) = (ring(CHANGES), ring(CHANGES));
    (Signals { changes: taken, done, progress: Progress::None }, (changes, returned))
}

impl Port {
    /// The result of the steps of this number, if they were carried out.
    fn answer(&mut self, number: u64) -> Option<Vec<Op>> {
        while let Some(done) = self.done.pop() {
            // Results that were not waited for are dropped here, off the core.
            if done.number == number {
                return Some(done.ops);
            }
        }
        None
    }

    pub(crate) fn new(
        (changes, done): (Producer<Change>, Consumer<Change>),
        doorbell: Option<Doorbell>,
        gauges: Arc<ContextGauges>,
    ) -> Port {
        Port { changes, done, doorbell, gauges, limit: 0, is_lost: false }
    }
}

/// A stage as the overlay knows it.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) at: ContextIndex,
    pub(crate) reads: BTreeSet<Origin>,
    pub(crate) terms: SchedulingPolicy,
    pub(crate) gauges: Arc<StageGauges>,
}

/// How a batch comes from an origin to a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// By a direct call.
    Local,
    /// By a ring.
    Edge,
}

/// A step of a change that a context has not answered.
#[derive(Debug)]
struct Unfinished {
    at: ContextIndex,
    step: Step,
}

#[derive(Debug)]
enum Step {
    /// The context has it, under this number.
    Sent(u64),
    /// It is sent when the steps before it are done.
    Kept(Change),
}

/// The contexts, and the stages and queues at each.
#[derive(Debug)]
pub(crate) struct Overlay {
    pub(crate) ports: Vec<Port>,
    stages: BTreeMap<StageId, Placed>,
    links: BTreeMap<(Origin, StageId), Link>,
    queue_batches: usize,
    /// Buffers of one context that may be in queues.
    queued_buffers: usize,
    /// Batches that may wait in each queue now.
    limit: usize,
    changes: u64,
    /// Steps that were not answered, and those after them.
    unfinished: VecDeque<Unfinished>,
    /// The stage that such a step took out.
    taken: Option<Box<Stage>>,
}

impl Overlay {
    /// Contexts with nothing in them; the first is the one at which streams come in. A queue holds `queue_batches`
    /// batches at most, and all queues together `queued_buffers` buffers of one context, so that enough are left to
    /// work with.
    pub(crate) fn new(mut ports: Vec<Port>, queue_batches: usize, queued_buffers: usize) -> Overlay {
        ports.iter_mut().for_each(|port| port.limit = queue_batches);
        let (stages, links) = (BTreeMap::new(), BTreeMap::new());
        Overlay {
            ports,
            stages,
            links,
            queue_batches,
            queued_buffers,
            limit: queue_batches,
            changes: 0,
            unfinished: VecDeque::new(),
            taken: None,
        }
    }

    /// Shares the buffers out anew among the queues: a batch that is handed on holds buffers of the context where it
    /// was made in whatever queue it is, so each queue may hold as much as all together may have of one context, by
    /// their number. It is done for twice as many queues each time, so that it is rare.
    fn share_buffers(&mut self, wait: Wait<'_>) {
        let edges = self.links.values().filter(|link| **link == Link::Edge).count();
        self.limit = (self.queued_buffers / edges.next_power_of_two().max(4)).clamp(1, self.queue_batches);
        for at in 0..self.ports.len() {
            let (limit, port) = (self.limit, &mut self.ports[at]);
            if !port.is_lost && std::mem::replace(&mut port.limit, limit) != limit {
                self.carry_out(ContextIndex(at as u8), vec![Op::Limit(limit)], wait);
            }
        }
    }

    /// A context does not answer, or answers again. While it is lost, it is not sent changes that others need not wait
    /// for.
    pub(crate) fn set_lost(&mut self, at: ContextIndex, is_lost: bool) {
        if let Some(port) = self.ports.get_mut(usize::from(at.0)) {
            port.is_lost = is_lost;
        }
    }

    /// A number for a new stage.
    pub(crate) fn next_id(&self) -> StageId {
        let taken = self.stages.keys().zip(0..).find(|(id, number)| id.0 != *number);
        StageId(taken.map_or(self.stages.len() as u32, |(_, number)| number))
    }

    /// A stage, if it is there.
    pub(crate) fn stage(&self, id: StageId) -> Option<&Placed> {
        self.stages.get(&id)
    }

    /// Where batches of an origin come from.
    fn home(&self, origin: Origin) -> ContextIndex {
        match origin {
            Origin::Stream(_) => ContextIndex(0),
            Origin::Stage(id) => self.stages.get(&id).map_or(ContextIndex(0), |stage| stage.at),
        }
    }

    /// The stages that read an origin.
    fn readers(&self, origin: Origin) -> impl Iterator<Item = (StageId, Link)> {
        let range = (origin, StageId(0))..=(origin, StageId(u32::MAX));
        self.links.range(range).map(|((_, to), link)| (*to, *link))
    }

    /// Sends some steps to a context, and waits until it has carried them out. If it does not answer in time, these and
    /// all further steps are unfinished, and no result is returned.
    fn carry_out(&mut self, at: ContextIndex, ops: Vec<Op>, wait: Wait<'_>) -> Vec<Op> {
        self.changes += 1;
        let change = Change { number: self.changes, ops };
        if self.unfinished.is_empty() {
            match self.ask(at, change, wait) {
                Ok(ops) => return ops,
                Err(step) => self.unfinished.push_back(step),
            }
        } else {
            self.unfinished.push_back(Unfinished { at, step: Step::Kept(change) });
        }
        Vec::new()
    }

    /// Sends a context some steps, and waits for them.
    fn ask(&mut self, at: ContextIndex, change: Change, wait: Wait<'_>) -> Result<Vec<Op>, Unfinished> {
        let kept = |change| Unfinished { at, step: Step::Kept(change) };
        let Some(port) = self.ports.get_mut(usize::from(at.0)) else { return Err(kept(change)) };
        let number = change.number;
        let mut change = change;
        wait.begin();
        while let Err(refused) = port.changes.push(change) {
            change = refused;
            if !wait.wait() {
                return Err(kept(change));
            }
        }
        port.doorbell.iter().for_each(Doorbell::ring);
        let mut in_time = true;
        loop {
            if let Some(ops) = port.answer(number) {
                return Ok(ops);
            }
            if !in_time {
                return Err(Unfinished { at, step: Step::Sent(number) });
            }
            in_time = wait.wait();
        }
    }

    /// The context for which an unfinished change waits, if there is one.
    pub(crate) fn unanswered(&self) -> Option<ContextIndex> {
        self.unfinished.front().map(|step| step.at)
    }

    /// The result of a change, if it is finished.
    fn finished<T>(&self, of_it: T) -> Result<T, Unanswered> {
        self.unanswered().map_or(Ok(of_it), |at| Err(Unanswered(at)))
    }

    /// Goes on with an unfinished change, as far as contexts answer by now. Whether it is finished.
    pub(crate) fn resume(&mut self, wait: Wait<'_>) -> bool {
        while let Some(Unfinished { at, step }) = self.unfinished.pop_front() {
            let done = match step {
                Step::Sent(number) => {
                    let port = self.ports.get_mut(usize::from(at.0));
                    port.and_then(|port| port.answer(number)).ok_or(Unfinished { at, step: Step::Sent(number) })
                }
                Step::Kept(mut change) => {
                    // A stage that was taken out goes where it was to go.
                    if let Some(Op::Put(stage @ None)) = change.ops.first_mut() {
                        *stage = self.taken.take();
                    }
                    self.ask(at, change, wait)
                }
            };
            match done {
                Ok(ops) => {
                    let taken =
                        ops.into_iter().find_map(|op| if let Op::Take { taken, .. } = op { taken } else { None });
                    // No caller waits any more for a stage that was to be removed.
                    if let Some(mut gone) = std::mem::replace(&mut self.taken, taken) {
                        gone.drop_waiting();
                    }
                }
                Err(step) => {
                    self.unfinished.push_front(step);
                    return false;
                }
            }
        }
        if let Some(mut gone) = self.taken.take() {
            gone.drop_waiting();
        }
        true
    }

    /// The route from an origin to a stage: the ends for the origin's context and for the stage, unless it is called
    /// directly.
    fn way(
        &mut self,
        from: Origin,
        to: StageId,
        at: ContextIndex,
        terms: SchedulingPolicy,
        gauges: &Arc<StageGauges>,
    ) -> OutputEnds {
        if self.home(from) == at {
            self.links.insert((from, to), Link::Local);
            return OutputEnds { output: Output::Local(to), receiver: None };
        }
        self.links.insert((from, to), Link::Edge);
        let (sender, receiver) = edge((self.queue_batches, self.limit), to, at, terms.drops, Arc::clone(gauges));
        OutputEnds { output: Output::Edge(sender), receiver: Some(receiver) }
    }

    /// Puts a stage in at a context, and connects it to some origins.
    ///
    /// # Errors
    /// A context did not answer.
    pub(crate) fn put(
        &mut self,
        mut stage: Box<Stage>,
        at: ContextIndex,
        reads: &BTreeSet<Origin>,
        wait: Wait<'_>,
    ) -> Result<(), Unanswered> {
        let (id, terms, gauges) = (stage.id, stage.terms, Arc::clone(&stage.gauges));
        let placed = Placed { at, reads: reads.clone(), terms, gauges: Arc::clone(&gauges) };
        self.stages.insert(id, placed);
        let mut outputs: BTreeMap<ContextIndex, Vec<Op>> = BTreeMap::new();
        for &from in reads {
            let OutputEnds { output, receiver } = self.way(from, id, at, terms, &gauges);
            stage.inputs.extend(receiver);
            outputs.entry(self.home(from)).or_default().push(Op::Output { from, output: Some(output) });
        }
        // The stage is there before it gets input.
        let mut ops = vec![Op::Put(Some(stage))];
        ops.extend(outputs.remove(&at).unwrap_or_default());
        self.carry_out(at, ops, wait);
        for (home, ops) in outputs {
            self.carry_out(home, ops, wait);
        }
        self.share_buffers(wait);
        self.finished(())
    }

    /// Takes a stage out, once it has worked on all of its input; or, when the wait for that is over, with its waiting
    /// batches. The stages that read it then lack its output. Returns it, to be dropped.
    ///
    /// # Errors
    /// A context did not answer.
    pub(crate) fn take(&mut self, id: StageId, wait: Wait<'_>) -> Result<Option<Box<Stage>>, Unanswered> {
        let Some(placed) = self.stages.get(&id) else { return Ok(None) };
        let (at, reads) = (placed.at, placed.reads.clone());
        for from in reads {
            self.carry_out(self.home(from), vec![Op::NoOutput { from, to: id }], wait);
            self.links.remove(&(from, id));
        }
        let (mut only_idle, mut looks) = (true, 0);
        let taken = loop {
            if self.unanswered().is_some() {
                // There is no further wait: it is taken out with its waiting batches, which are counted.
                self.carry_out(at, vec![Op::Take { stage: id, only_idle: false, taken: None }], wait);
                break None;
            }
            let ops = self.carry_out(at, vec![Op::Take { stage: id, only_idle, taken: None }], wait);
            if let Some(Op::Take { taken: Some(taken), .. }) = ops.into_iter().next() {
                break Some(taken);
            }
            if !only_idle && self.unanswered().is_none() {
                break None;
            }
            looks += 1;
            only_idle = wait.wait() && looks < LAST_LOOKS;
        };
        self.stages.remove(&id);
        let readers: Vec<StageId> = self.readers(Origin::Stage(id)).map(|(to, _)| to).collect();
        for to in readers {
            self.links.remove(&(Origin::Stage(id), to));
            if let Some(reader) = self.stages.get_mut(&to) {
                reader.reads.remove(&Origin::Stage(id));
            }
        }
        self.finished(taken)
    }

    /// Moves a stage to another context, with its state and its waiting batches.
    ///
    /// # Errors
    /// A context did not answer.
    pub(crate) fn move_to(&mut self, id: StageId, to: ContextIndex, wait: Wait<'_>) -> Result<(), Unanswered> {
        let Some(placed) = self.stages.get(&id) else { return Ok(()) };
        let (at, reads, terms, gauges) = (placed.at, placed.reads.clone(), placed.terms, Arc::clone(&placed.gauges));
        if at == to {
            return Ok(());
        }
        // Here: what was called directly becomes a ring, before and behind it.
        let mut ops = Vec::new();
        let mut there = Vec::new();
        for &from in &reads {
            let home = self.home(from);
            if self.links.get(&(from, id)) == Some(&Link::Local) {
                let (sender, receiver) =
                    edge((self.queue_batches, self.limit), id, to, terms.drops, Arc::clone(&gauges));
                ops.push(Op::Part { from, to: id, context: to, ends: Some((Output::Edge(sender), receiver)) });
                self.links.insert((from, id), Link::Edge);
            } else {
                // Its origins ring the doorbell of its new context from now on: at worst a little too early.
                self.carry_out(home, vec![Op::Target { from, to: id, context: to }], wait);
            }
            if home == to {
                there.push(Op::Join { from, to: id });
                self.links.insert((from, id), Link::Local);
            }
        }
        let origin = Origin::Stage(id);
        for (reader, link) in self.readers(origin).collect::<Vec<_>>() {
            let Some(known) = self.stages.get(&reader) else { continue };
            let (reader_at, reader_terms, reader_gauges) = (known.at, known.terms, Arc::clone(&known.gauges));
            if link == Link::Local {
                let (sender, receiver) =
                    edge((self.queue_batches, self.limit), reader, reader_at, reader_terms.drops, reader_gauges);
                let ends = Some((Output::Edge(sender), receiver));
                ops.push(Op::Part { from: origin, to: reader, context: reader_at, ends });
                self.links.insert((origin, reader), Link::Edge);
            } else if reader_at == to {
                there.push(Op::Join { from: origin, to: reader });
                self.links.insert((origin, reader), Link::Local);
            }
        }
        ops.push(Op::Take { stage: id, only_idle: false, taken: None });
        let done = self.carry_out(at, ops, wait);
        let taken = done.into_iter().find_map(|op| if let Op::Take { taken, .. } = op { taken } else { None });
        there.insert(0, Op::Put(taken));
        if let Some(placed) = self.stages.get_mut(&id) {
            placed.at = to;
        }
        self.carry_out(to, there, wait);
        self.share_buffers(wait);
        self.finished(())
    }

    /// Replaces a stage's instances between two batches: hot-swap. Returns the number of states that could not be taken
    /// over.
    ///
    /// # Errors
    /// The context did not answer.
    pub(crate) fn swap(
        &mut self,
        id: StageId,
        instances: Vec<Instance>,
        keeps_state: bool,
        wait: Wait<'_>,
    ) -> Result<u32, Unanswered> {
        let Some(placed) = self.stages.get(&id) else { return Ok(0) };
        let op = Op::Instances { stage: id, instances, keeps_state, lost: 0 };
        let done = self.carry_out(placed.at, vec![op], wait);
        self.finished(done.iter().map(|op| if let Op::Instances { lost, .. } = op { *lost } else { 0 }).sum())
    }

    /// Adds the instance for one more format.
    ///
    /// # Errors
    /// The context did not answer.
    pub(crate) fn add_instance(&mut self, id: StageId, instance: Instance, wait: Wait<'_>) -> Result<(), Unanswered> {
        let Some(placed) = self.stages.get(&id) else { return Ok(()) };
        let op = Op::Instance { stage: id, instance: Some(instance) };
        self.carry_out(placed.at, vec![op], wait);
        self.finished(())
    }

    /// Exchanges parameters' values; returns the number of instances that did not take theirs.
    ///
    /// # Errors
    /// The context did not answer.
    pub(crate) fn set_parameters(
        &mut self,
        id: StageId,
        values: Vec<(u64, ParameterValues)>,
        wait: Wait<'_>,
    ) -> Result<u32, Unanswered> {
        let Some(placed) = self.stages.get(&id) else { return Ok(0) };
        let op = Op::Parameters { stage: id, values, refused: 0 };
        let done = self.carry_out(placed.at, vec![op], wait);
        self.finished(done.iter().map(|op| if let Op::Parameters { refused, .. } = op { *refused } else { 0 }).sum())
    }

    /// Sets a stage's scheduling policy, and, if they change, the numbers of the streams that it reads.
    ///
    /// # Errors
    /// The context did not answer.
    pub(crate) fn set_terms(
        &mut self,
        id: StageId,
        terms: SchedulingPolicy,
        reads: Option<Vec<u32>>,
        wait: Wait<'_>,
    ) -> Result<(), Unanswered> {
        let Some(placed) = self.stages.get_mut(&id) else { return Ok(()) };
        let (before, at, origins) = (std::mem::replace(&mut placed.terms, terms), placed.at, placed.reads.clone());
        self.carry_out(at, vec![Op::SchedulingPolicy { stage: id, terms, reads }], wait);
        if before.drops != terms.drops {
            // The policy applies also to queues that were made before.
            for from in origins {
                self.carry_out(self.home(from), vec![Op::Drops { from, to: id, drops: terms.drops }], wait);
            }
        }
        self.finished(())
    }

    /// Makes a stage drop and count its input, until it is swapped.
    ///
    /// # Errors
    /// The context did not answer.
    pub(crate) fn fail(&mut self, id: StageId, wait: Wait<'_>) -> Result<(), Unanswered> {
        let Some(placed) = self.stages.get(&id) else { return Ok(()) };
        self.carry_out(placed.at, vec![Op::Fail { stage: id }], wait);
        self.finished(())
    }

    /// Holds a stage back, or no longer; without a planner, a context does that while it loads the next handler.
    ///
    /// # Errors
    /// The context did not answer.
    #[cfg(feature = "bench")]
    pub(crate) fn hold(&mut self, id: StageId, is_held: bool, wait: Wait<'_>) -> Result<(), Unanswered> {
        let Some(placed) = self.stages.get(&id) else { return Ok(()) };
        self.carry_out(placed.at, vec![Op::Hold { stage: id, is_held }], wait);
        self.finished(())
    }

    /// Connects a stage to other origins than before.
    ///
    /// # Errors
    /// A context did not answer.
    pub(crate) fn rewire(&mut self, id: StageId, reads: &BTreeSet<Origin>, wait: Wait<'_>) -> Result<(), Unanswered> {
        let Some(placed) = self.stages.get_mut(&id) else { return Ok(()) };
        let before = std::mem::replace(&mut placed.reads, reads.clone());
        let (at, terms, gauges) = (placed.at, placed.terms, Arc::clone(&placed.gauges));
        for &from in before.difference(reads) {
            self.carry_out(self.home(from), vec![Op::NoOutput { from, to: id }], wait);
            self.links.remove(&(from, id));
        }
        for &from in reads.difference(&before) {
            let OutputEnds { output, receiver } = self.way(from, id, at, terms, &gauges);
            if receiver.is_some() {
                self.carry_out(at, vec![Op::Input { stage: id, receiver }], wait);
            }
            self.carry_out(self.home(from), vec![Op::Output { from, output: Some(output) }], wait);
        }
        self.share_buffers(wait);
        self.finished(())
    }

    /// A stage with nothing leading to it or from it yet.
    pub(crate) fn make_stage(&self, work: Work, makes: u32, terms: SchedulingPolicy) -> Box<Stage> {
        let mut stage = Box::new(Stage::new(self.next_id(), work, makes, Arc::default()));
        stage.terms = terms;
        stage
    }
}

/// The two ends of a route.
struct OutputEnds {
    output: Output,
    receiver: Option<crate::platform::edge::Receiver>,
}
