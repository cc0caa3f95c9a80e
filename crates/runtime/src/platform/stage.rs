//! A deployed handler at a context: the paper's entry {handler, state, output queues} for each format that it reads
//! (data-compatibility 4.2), and the queues that lead to it.

use crate::platform::edge::{Receiver, Sender};
use crate::platform::gauges::{Loss, StageGauges};
use crate::platform::{ContextIndex, END, StageId};
use crossdock_engine::Handler;
use crossdock_mailbox::Batch;
use std::collections::VecDeque;
use std::sync::Arc;

/// The entry for one format.
pub(crate) struct Instance {
    /// The format of the records that come in, by id.
    pub(crate) format: u64,
    /// The handler with its state; absent where the program does not fit the format, while it runs, and after a fault.
    pub(crate) handler: Option<Box<dyn Handler>>,
    /// The format of the records that it makes, by id.
    pub(crate) output: u64,
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_there = self.handler.is_some();
        write!(f, "Instance {{ format: {:x}, output: {:x}, is_there: {is_there} }}", self.format, self.output)
    }
}

/// The work of a stage on a batch.
#[derive(Debug)]
pub(crate) enum Work {
    /// A handler's instances make batches of a derived stream.
    Handler(Vec<Instance>),
    /// The context delivers it to the subscriptions of its stream.
    Deliver,
}

/// The destination of a stage's batches.
#[derive(Debug)]
pub(crate) enum Output {
    /// To a stage of the same context.
    Local(StageId),
    /// To a stage of another one.
    Edge(Sender),
}

impl Output {
    /// The stage that it leads to.
    pub(crate) fn to(&self) -> StageId {
        match self {
            Output::Local(to) => *to,
            Output::Edge(sender) => sender.to,
        }
    }

    /// Whether batches wait in it for room.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Output::Edge(sender) if sender.is_full())
    }
}

/// The scheduling policy of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SchedulingPolicy {
    /// Batches that it may take in a row while others wait.
    pub(crate) weight: u32,
    /// Time that it may take for a record, in ns.
    pub(crate) budget_ns: u64,
    /// One record in `one_in` is let through.
    pub(crate) one_in: u32,
    /// While its context is behind, sampling may go down to one record in `max_sampling`.
    pub(crate) max_sampling: u32,
    /// Whether batches that find no room in its queue are dropped.
    pub(crate) drops: bool,
    /// Whether input after a fault waits for a new instance, rather than being dropped.
    pub(crate) restarts: bool,
}

impl Default for SchedulingPolicy {
    fn default() -> SchedulingPolicy {
        SchedulingPolicy { weight: 1, budget_ns: u64::MAX, one_in: 1, max_sampling: 1, drops: false, restarts: false }
    }
}

/// A handler at a context.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) id: StageId,
    pub(crate) work: Work,
    /// The number of the derived stream that it makes; of a delivery, that of the stream.
    pub(crate) makes: u32,
    /// From other contexts.
    pub(crate) inputs: Vec<Receiver>,
    /// From streams that come in at this context.
    pub(crate) inbox: VecDeque<Batch>,
    /// From stages of this context, without an instance for its format yet; these stages wait meanwhile.
    pub(crate) calls: VecDeque<Batch>,
    /// A batch that was taken out of a queue before there was an instance for its format.
    pub(crate) parked: Option<Batch>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) terms: SchedulingPolicy,
    /// Position in the sampling pattern, so that the pattern goes on from batch to batch.
    pub(crate) chosen_from: u32,
    /// Records of the present batch that sampling left out.
    pub(crate) left_out: u32,
    /// Whether a handler panicked or did not return: input is dropped and counted until it is replaced.
    pub(crate) has_failed: bool,
    /// Whether it may not be served now.
    pub(crate) is_held: bool,
    /// When it was last found that it could not be served for a reason other than its context's other work, in ns.
    pub(crate) stalled_ns: u64,
    pub(crate) gauges: Arc<StageGauges>,
    /// Its handler's time for a record, as last measured, in ns.
    pub(crate) ns_per_record: f32,
    /// Batches until the next timed one.
    pub(crate) until_timed: u32,
    /// The numbers of the streams that it reads, where it reads several: its own stream ends when all of them have
    /// ended.
    pub(crate) reads: Vec<u32>,
    /// Streams among them that have ended and brought no records since.
    pub(crate) ended: Vec<u32>,
    /// Which input is served next.
    next_input: usize,
}

impl Stage {
    pub(crate) fn new(id: StageId, work: Work, makes: u32, gauges: Arc<StageGauges>) -> Stage {
        Stage {
            id,
            work,
            makes,
            inputs: Vec::new(),
            inbox: VecDeque::new(),
            calls: VecDeque::new(),
            parked: None,
            outputs: Vec::new(),
            terms: SchedulingPolicy::default(),
            chosen_from: 0,
            left_out: 0,
            has_failed: false,
            is_held: false,
            stalled_ns: 0,
            gauges,
            ns_per_record: 0.0,
            until_timed: 0,
            reads: Vec::new(),
            ended: Vec::new(),
            next_input: 0,
        }
    }

    /// The instance for a format, if there is one.
    #[inline]
    pub(crate) fn instance(&mut self, format: u64) -> Option<&mut Instance> {
        match &mut self.work {
            Work::Handler(instances) => instances.iter_mut().find(|instance| instance.format == format),
            Work::Deliver => None,
        }
    }

    /// Whether a batch of this format can be worked on; otherwise it waits until the managers have added an instance
    /// for it.
    #[inline]
    pub(crate) fn knows(&self, format: u64) -> bool {
        match &self.work {
            Work::Handler(instances) => format == END || instances.iter().any(|instance| instance.format == format),
            Work::Deliver => true,
        }
    }

    /// A handler panicked or did not return. Further input waits if the handler is to be restarted, otherwise it is
    /// dropped.
    #[cold]
    pub(crate) fn note_fault(&mut self) {
        self.has_failed = true;
        self.is_held |= self.terms.restarts;
        self.gauges.faults.add(1);
    }

    /// A stream that it reads has ended; returns whether its own stream has ended with it.
    #[cold]
    pub(crate) fn note_end(&mut self, stream: u32) -> bool {
        if !self.ended.contains(&stream) && self.reads.contains(&stream) {
            self.ended.push(stream);
        }
        self.reads.iter().all(|read| self.ended.contains(read))
    }

    /// Whether batches from stages of this context may still wait here.
    #[inline]
    pub(crate) fn has_called(&self) -> bool {
        !self.calls.is_empty() || self.parked.is_some()
    }

    /// The next batch that waits for it, in the order of arrival for each of its queues.
    #[inline]
    pub(crate) fn take_next(&mut self) -> Option<(Batch, Option<usize>)> {
        if let Some(parked) = self.parked.take() {
            return Some((parked, None));
        }
        if let Some(batch) = self.calls.pop_front().or_else(|| self.inbox.pop_front()) {
            return Some((batch, None));
        }
        // A queue whose sender is gone comes before the queue that took its place.
        if let Some(at) = self.inputs.iter_mut().position(|input| input.is_closed() && input.waiting() > 0) {
            return self.inputs[at].pop().map(|batch| (batch, Some(at)));
        }
        for _ in 0..self.inputs.len() {
            let at = self.next_input % self.inputs.len();
            self.next_input = self.next_input.wrapping_add(1);
            if let Some(batch) = self.inputs[at].pop() {
                return Some((batch, Some(at)));
            }
        }
        None
    }

    /// Batches that wait for it.
    pub(crate) fn waiting(&mut self) -> usize {
        let in_rings: usize = self.inputs.iter_mut().map(Receiver::waiting).sum();
        in_rings + self.calls.len() + self.inbox.len() + usize::from(self.parked.is_some())
    }

    /// Whether it has received all of its input, and none of it waits here or in its outputs.
    pub(crate) fn is_done(&mut self) -> bool {
        self.inbox.is_empty()
            && self.calls.is_empty()
            && self.parked.is_none()
            && self.inputs.iter_mut().all(Receiver::is_done)
            && !self.outputs.iter().any(Output::is_full)
    }

    /// Drops and counts its waiting batches; returns the number of records.
    pub(crate) fn drop_waiting(&mut self) -> u64 {
        let mut records = 0;
        while let Some((batch, _)) = self.take_next() {
            records += batch.len() as u64;
        }
        self.gauges.lose(Loss::Removed, records);
        records
    }
}

/// Notes that the stage of an output is at another context from now on.
pub(crate) fn retarget(output: &mut Output, context: ContextIndex) {
    if let Output::Edge(sender) = output {
        sender.context = context;
    }
}
