//! The table of one context: its stages, the queues that lead to them, and how they are served.
//!
//! [`Table::serve`] takes batches from the stages' queues in turn, from each stage as many in a row as its weight, and
//! runs each batch through the stages of this context to the end before it takes the next. A stage with a full output
//! is not served until there is room again; the backpressure goes on upstream, to the publishers.

use crate::morph::chain::PIECE_BYTES;
use crate::platform::behind::LoadShedder;
use crate::platform::gauges::{ContextGauges, Loss};
use crate::platform::making::BatchBuilder;
use crate::platform::ops::Signals;
use crate::platform::stage::{Output, Stage, Work};
use crate::platform::{ContextIndex, END, MAX_CONTEXTS, Origin, StageId};
use crossdock_device::Doorbell;
use crossdock_mailbox::{Batch, Pool, Selection};
use std::collections::VecDeque;
use std::sync::Arc;

/// Batches from streams of this context that may wait for one stage before their publishers get no more credit.
const INBOX_BATCHES: usize = 64;

/// Batches that may wait for the subscriptions of their streams, beside the results of one more batch.
const DELIVERED_BATCHES: usize = 64;

/// Large buffers that must be free before a batch is begun: its results may be many times as long.
const SPARE_BUFFERS: usize = 16;

/// Results for subscriptions leave before work is begun that takes longer than this, in ns.
const DELIVER_NS: f32 = 20_000.0;

/// A stream that comes in at this context.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) outputs: Vec<Output>,
    /// Whether its publishers are to be held back.
    pub(super) is_blocked: bool,
}

/// The stages of a context and their queues.
pub(crate) struct Table {
    pub(crate) index: ContextIndex,
    pub(super) stages: Vec<Option<Box<Stage>>>,
    /// The stages that are here, in the order in which they came.
    pub(super) here: Vec<StageId>,
    /// Which of them is served next, and how many batches it may take still.
    pub(super) next: usize,
    left: u32,
    pub(super) sources: Vec<Source>,
    /// Batches on their way from stage to stage; empty between two turns.
    pub(super) ready: VecDeque<(StageId, Batch)>,
    /// Batches for the subscriptions of their streams, in order.
    pub(crate) delivered: VecDeque<Batch>,
    /// Whether deliveries pause now, since the context has no buffers for the results of subscriptions' queries.
    pub(crate) holds_deliveries: bool,
    pub(super) making: BatchBuilder,
    pub(super) pool: Pool,
    pub(super) selection: Selection,
    /// Removed outputs, until the batches that wait in them have gone.
    pub(super) leaving: Vec<Output>,
    /// Outputs that become direct calls once they are empty.
    pub(super) joining: Vec<(Origin, StageId)>,
    /// Origins with a full output.
    pub(super) full: Vec<Origin>,
    /// Streams that became blocked or unblocked since the last check.
    pub(crate) turned: Vec<(u32, bool)>,
    /// Contexts into whose rings batches were put since their doorbells were rung.
    pub(super) rung: u64,
    pub(super) doorbells: Vec<Doorbell>,
    pub(super) signals: Signals,
    pub(crate) gauges: Arc<ContextGauges>,
    buffers: u64,
    /// Large buffers of the pool.
    large_buffers: usize,
    /// Whether too few buffers are free to begin a batch.
    is_short: bool,
    /// When buffers were last short, in ns.
    short_ns: u64,
    /// The approximate time, in ns of the clock of all contexts.
    pub(super) now_ns: u64,
    pub(super) behind: LoadShedder,
    /// Batches that may wait in an inbox.
    pub(super) inbox_batches: usize,
}

impl Table {
    /// A table with nothing in it. The doorbells are those of all contexts, by their numbers.
    pub(crate) fn new(index: ContextIndex, pool: Pool, signals: Signals, doorbells: Vec<Doorbell>) -> Table {
        let classes = pool.stats().classes;
        let buffers = classes.iter().map(|class| class.count as u64).sum();
        let large_buffers = classes.last().map_or(0, |class| class.count);
        Table {
            index,
            stages: Vec::new(),
            here: Vec::new(),
            next: 0,
            left: 0,
            sources: Vec::new(),
            ready: VecDeque::new(),
            delivered: VecDeque::new(),
            holds_deliveries: false,
            making: BatchBuilder::default(),
            pool,
            selection: Selection::default(),
            leaving: Vec::new(),
            joining: Vec::new(),
            full: Vec::new(),
            turned: Vec::new(),
            rung: 0,
            doorbells,
            signals,
            gauges: Arc::default(),
            buffers,
            large_buffers,
            is_short: false,
            short_ns: 0,
            now_ns: 0,
            behind: LoadShedder::default(),
            inbox_batches: INBOX_BATCHES,
        }
    }

    /// Its large buffers.
    pub(crate) fn large_buffers(&self) -> usize {
        self.large_buffers
    }

    /// The bound on its buffers.
    pub(crate) fn buffers(&self) -> u64 {
        self.buffers
    }

    /// Whether nothing runs here.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.here.is_empty()
    }

    /// Whether a handler anywhere takes a stream that comes in here.
    #[inline]
    pub(crate) fn has_sources(&self) -> bool {
        !self.sources.is_empty()
    }

    /// Whether a handler takes this stream.
    #[inline]
    pub(crate) fn takes(&self, stream: u32) -> bool {
        self.sources.get(stream as usize).is_some_and(|source| !source.outputs.is_empty())
    }

    /// A batch of a stream that comes in here, for all stages that take it. It has waited since `since_ns` at most.
    pub(crate) fn offer(&mut self, stream: u32, batch: &Batch, since_ns: u64) {
        let Some(source) = self.sources.get_mut(stream as usize) else { return };
        let mut full = false;
        for output in &mut source.outputs {
            match output {
                Output::Local(to) => {
                    let mut copy = self.making.spare();
                    copy.clone_from(batch);
                    copy.select_all();
                    copy.since_ns = since_ns;
                    let Some(stage) = self.stages.get_mut(to.0 as usize).and_then(Option::as_mut) else { continue };
                    let is_full = stage.inbox.len() >= self.inbox_batches;
                    if is_full && stage.terms.drops && batch.format != END {
                        stage.gauges.lose(Loss::QueueFull, batch.len() as u64);
                        self.making.keep(copy);
                        continue;
                    }
                    stage.inbox.push_back(copy);
                    full |= is_full && !stage.terms.drops;
                }
                Output::Edge(sender) => {
                    let mut copy = sender.spare().unwrap_or_else(|| self.making.spare());
                    copy.clone_from(batch);
                    copy.select_all();
                    copy.since_ns = since_ns;
                    if let Some(spare) = sender.push(copy) {
                        self.making.keep(spare);
                    }
                    self.rung |= 1 << sender.context.0;
                    full |= sender.is_full();
                }
            }
        }
        if full && !source.is_blocked {
            source.is_blocked = true;
            self.full.push(Origin::Stream(stream));
            self.turned.push((stream, true));
        }
    }

    /// Takes batches from the queues and runs them, for about `slice_ns`. Whether there is more to do at once. Now it
    /// is `now_ns`.
    pub(crate) fn serve(&mut self, slice_ns: u32, now_ns: u64) -> bool {
        self.tidy_queues();
        self.now_ns = now_ns;
        let (mut spent, slice) = (0.0, slice_ns as f32);
        let is_slice_over = |spent: f32, delivers: bool| spent >= slice || (delivers && spent >= DELIVER_NS);
        while !is_slice_over(spent, !self.delivered.is_empty()) {
            let Some((id, batch, input)) = self.next_waiting() else { break };
            self.now_ns = now_ns + spent as u64;
            let stalled_ns = self.stage(id).map_or(0, |stage| stage.stalled_ns).max(self.short_ns);
            self.behind.takes(self.now_ns, batch.since_ns, stalled_ns);
            spent += self.run(id, batch, input);
            while let Some((id, batch)) = self.ready.pop_front() {
                spent += self.run(id, batch, None);
            }
        }
        self.ring();
        is_slice_over(spent, !self.delivered.is_empty())
    }

    /// Sets how many batches may wait in each of the queues that lead away, and in an inbox.
    pub(super) fn limit_queues(&mut self, batches: usize) {
        self.inbox_batches = batches.clamp(1, INBOX_BATCHES);
        let of_stages = self.stages.iter_mut().flatten().flat_map(|stage| &mut stage.outputs);
        let of_sources = self.sources.iter_mut().flat_map(|source| &mut source.outputs);
        for output in of_stages.chain(of_sources) {
            if let Output::Edge(sender) = output {
                sender.set_limit(batches);
            }
        }
    }

    /// Moves on batches that waited for room, and turns empty local queues into direct calls.
    #[inline]
    pub(super) fn tidy_queues(&mut self) {
        if !self.full.is_empty() || !self.leaving.is_empty() {
            self.flush();
        }
        if !self.joining.is_empty() {
            self.join();
        }
    }

    /// The next batch that waits, of the stage whose turn it is.
    pub(super) fn next_waiting(&mut self) -> Option<(StageId, Batch, Option<usize>)> {
        // Batches that wait elsewhere hold a part of the buffers at most, so the others come back soon.
        self.is_short =
            !self.here.is_empty() && !self.pool.has_free(PIECE_BYTES, SPARE_BUFFERS.min(self.large_buffers / 8));
        if self.is_short {
            self.short_ns = self.now_ns;
            return None;
        }
        for _ in 0..=self.here.len() {
            let id = *self.here.get(self.next)?;
            if self.left > 0
                && let Some((batch, input)) = self.take_from(id)
            {
                self.left -= 1;
                return Some((id, batch, input));
            }
            self.turn_to(self.next + 1);
        }
        // The next round begins with the first again: how long what comes waits for its stage does not depend on where
        // this one ended.
        self.turn_to(0);
        None
    }

    fn turn_to(&mut self, next: usize) {
        self.next = next % self.here.len().max(1);
        let next = self.here.get(self.next).copied();
        self.left = next.and_then(|id| self.stage(id)).map_or(1, |stage| stage.terms.weight.max(1));
    }

    #[inline]
    fn stage(&self, id: StageId) -> Option<&Stage> {
        self.stages.get(id.0 as usize)?.as_deref()
    }

    #[inline]
    pub(super) fn stage_mut(&mut self, id: StageId) -> Option<&mut Stage> {
        self.stages.get_mut(id.0 as usize)?.as_deref_mut()
    }

    /// The next batch of a stage that may be served.
    #[inline]
    fn take_from(&mut self, id: StageId) -> Option<(Batch, Option<usize>)> {
        if self.is_stalled(id) {
            let now_ns = self.now_ns;
            self.stage_mut(id)?.stalled_ns = now_ns;
            return None;
        }
        let stage = self.stage_mut(id)?;
        let (batch, input) = stage.take_next()?;
        if stage.knows(batch.format) {
            return Some((batch, input));
        }
        stage.parked = Some(batch);
        None
    }

    /// Whether an output of a stage, or of a stage that it leads to here, is full; or the stage is waiting itself.
    fn is_stalled(&self, id: StageId) -> bool {
        let Some(stage) = self.stage(id) else { return false };
        let on = |output: &Output| match output {
            // Batches that it got before it was ready go first.
            Output::Local(to) => self.is_stalled(*to) || self.stage(*to).is_some_and(Stage::has_called),
            Output::Edge(sender) => sender.is_full(),
        };
        stage.is_held
            || matches!(stage.work, Work::Deliver) && self.delivers_no_more()
            || stage.parked.as_ref().is_some_and(|batch| !stage.knows(batch.format))
            || stage.outputs.iter().any(on)
    }

    /// Whether deliveries wait with their stage; the stages that make them then wait too.
    fn delivers_no_more(&self) -> bool {
        self.holds_deliveries || self.delivered.len() >= DELIVERED_BATCHES
    }

    /// A stage, taken out to be worked with.
    #[inline]
    pub(super) fn lift(&mut self, id: StageId) -> Option<Box<Stage>> {
        self.stages.get_mut(id.0 as usize)?.take()
    }

    #[inline]
    pub(super) fn put_back(&mut self, stage: Box<Stage>) {
        if let Some(place) = self.stages.get_mut(stage.id.0 as usize) {
            *place = Some(stage);
        }
    }

    /// Gives a batch to all outputs of its stage; the last one gets it, the others get references to its buffers.
    pub(super) fn hand_on(&mut self, stage: &mut Stage, batch: Batch) {
        let (records, bytes) = (batch.len() as u64, batch.payload_bytes() as u64);
        stage.gauges.records_out.add(records);
        stage.gauges.bytes_out.add(bytes);
        self.gauges.bytes_out.add(bytes);
        let Some((last, others)) = stage.outputs.split_last_mut() else {
            stage.gauges.lose(Loss::Unclaimed, records);
            return self.making.keep(batch);
        };
        let mut is_full = false;
        for output in others {
            let mut copy = match output {
                Output::Edge(sender) => sender.spare().unwrap_or_else(|| self.making.spare()),
                Output::Local(_) => self.making.spare(),
            };
            copy.clone_from(&batch);
            is_full |= self.give(output, copy);
        }
        is_full |= self.give(last, batch);
        if is_full && !self.full.contains(&Origin::Stage(stage.id)) {
            self.full.push(Origin::Stage(stage.id));
        }
    }

    /// Gives a batch to one output; returns whether that is full now.
    #[inline]
    fn give(&mut self, output: &mut Output, mut batch: Batch) -> bool {
        match output {
            Output::Local(to) => {
                self.ready.push_back((*to, batch));
                false
            }
            Output::Edge(sender) => {
                batch.since_ns = self.now_ns;
                if let Some(spare) = sender.push(batch) {
                    self.making.keep(spare);
                }
                self.rung |= 1 << sender.context.0;
                sender.is_full()
            }
        }
    }

    /// Keeps an empty descriptor for later.
    pub(crate) fn keep(&mut self, batch: Batch) {
        self.making.keep(batch);
    }

    /// Whether batches wait for room elsewhere, so that the context should check again soon without a doorbell.
    pub(crate) fn is_full(&self) -> bool {
        !self.full.is_empty() || !self.leaving.is_empty() || self.is_short || self.holds_deliveries
    }

    /// Updates the gauges of waiting batches.
    pub(crate) fn note_queues(&mut self) {
        let mut all = 0;
        for id in &self.here {
            if let Some(stage) = self.stages.get_mut(id.0 as usize).and_then(Option::as_mut) {
                let waiting = stage.waiting() as u64;
                stage.gauges.queued.set(waiting);
                all += waiting;
            }
        }
        self.gauges.queued.set(all);
        let in_use = self.pool.stats().classes.iter().map(|class| class.in_use() as u64).sum();
        self.gauges.buffers_in_use.set(in_use);
    }
}

const _: () = assert!(MAX_CONTEXTS <= u64::BITS as usize, "contexts that were rung for are bits of a word");
