//! A node at a context: the paper's entry {handler, state, output queues} for each format that it reads
//! (data-compatibility 4.2), and the queues that lead to it.

use crate::elsewhere::Elsewhere;
use crate::graph::NodeId;
use crate::graph::bounds::{MOST_LONG, is_long};
use crate::graph::due::Due;
use crate::graph::edge::{Item, Publishers, Queued};
use crate::graph::gauges::{Loss, NodeGauges};
use crate::graph::slow::Slow;
use crate::graph::spill::Spill;
use crossdock_engine::Handler;
use crossdock_mailbox::Batch;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

/// The weight of a new measurement in the mean.
pub(super) const NEWER: f32 = 0.25;
/// How long a node may go on without a break when it has not used its limit before, in ns of the limit.
const BURST_NS: u64 = 10_000_000;
/// Time that one run may take on a g-core, by what its records took before, in ns: changes wait for its end.
const LONGEST_RUN_NS: f32 = 50_000_000.0;
/// A single run uses up no more than this, in ns: then a node at a limit of next to nothing goes on.
const MOST_USED_NS: u64 = 10_000_000_000;

/// How long one run of a handler may take, by what its records took before. One record may take longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunTime {
    /// A slice of a c-core, in ns: all else there waits for its end.
    Slice(u32),
    /// As on a g-core: handlers may take long there, so that to wait for one round of them is ordinary.
    Long,
}

impl RunTime {
    pub(super) fn ns(self) -> f32 {
        match self {
            RunTime::Slice(ns) => ns as f32,
            RunTime::Long => LONGEST_RUN_NS,
        }
    }
}

/// The entry for one format, of one stream or of any.
pub(crate) struct Instance {
    /// The stream whose records it takes, by number; `None`: those of any that the node reads.
    pub(crate) stream: Option<u32>,
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
        let Instance { stream, format, output, .. } = self;
        write!(f, "Instance {{ stream: {stream:?}, format: {format:x}, output: {output:x}, is_there: {is_there} }}")
    }
}

impl Instance {
    /// Whether it is for records of a format that come by a stream.
    #[inline]
    pub(crate) fn takes(&self, stream: u32, format: u64) -> bool {
        self.format == format && self.stream.is_none_or(|of| of == stream)
    }

    /// Whether both are for the same records.
    pub(crate) fn is_like(&self, other: &Instance) -> bool {
        (self.stream, self.format) == (other.stream, other.format)
    }
}

/// How a node is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SchedulingPolicy {
    /// Batches that it may take in a row while others wait.
    pub(crate) weight: u32,
    /// Time that it may take for a record, in ns.
    pub(crate) budget_ns: u64,
    /// How long it may be without progress from record to record, in ns; 0: as long as any.
    pub(crate) stuck_after_ns: u64,
    /// Time that it may take in all, in ns a second; it waits where it has had that.
    pub(crate) limit_ns_per_s: u64,
    /// While its context is behind, sampling may go down to one record in `max_sampling`.
    pub(crate) max_sampling: u32,
    /// Whether batches that find no room in its queue are dropped.
    pub(crate) drops: bool,
    /// Whether input after a fault waits for a new instance, rather than being dropped.
    pub(crate) restarts: bool,
}

impl Default for SchedulingPolicy {
    fn default() -> SchedulingPolicy {
        SchedulingPolicy {
            weight: 1,
            budget_ns: u64::MAX,
            stuck_after_ns: 0,
            limit_ns_per_s: u64::MAX,
            max_sampling: 1,
            drops: false,
            restarts: false,
        }
    }
}

/// Whether a node takes batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Condition {
    #[default]
    Running,
    /// It has failed: its input is dropped and counted until it is replaced.
    Failed,
    /// It has failed, and its input waits for new instances.
    Restarting,
    /// Its input waits: it comes from another context without its state yet, or a benchmark stops it.
    Waiting,
    /// It ends, and drops and counts its input until then.
    Ending,
}

/// A change of a node, after the marker in each of its inputs.
#[derive(Debug)]
pub(crate) enum Then {
    /// It goes on here.
    Stay {
        /// The next version, if it gets one: hot-swap.
        instances: Option<Vec<Instance>>,
        /// Whether the next version takes over the state of those before.
        keeps_state: bool,
        policy: SchedulingPolicy,
        /// The streams that it reads from then on.
        reads: Vec<u32>,
    },
    /// It goes to another context.
    Leave {
        /// The next version, if it gets one: it becomes that before it goes.
        instances: Option<Vec<Instance>>,
        /// Whether the next version takes over the state of those before.
        keeps_state: bool,
    },
    /// It ends.
    End,
}

impl Then {
    /// The next version, if the node gets one.
    pub(crate) fn instances(&self) -> Option<&[Instance]> {
        match self {
            Then::Stay { instances, .. } | Then::Leave { instances, .. } => instances.as_deref(),
            Then::End => None,
        }
    }

    pub(crate) fn instances_mut(&mut self) -> Option<&mut [Instance]> {
        match self {
            Then::Stay { instances, .. } | Then::Leave { instances, .. } => instances.as_deref_mut(),
            Then::End => None,
        }
    }
}

/// A change that a node has a part in.
#[derive(Debug)]
pub(crate) struct NodeChange {
    pub(super) change: u64,
    pub(super) then: Then,
}

/// The queue from one stream.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) stream: u32,
    pub(super) queue: VecDeque<Item>,
    /// Records of the first batch that were worked on already.
    pub(super) done: usize,
    /// Nothing is taken from it: its marker was reached, or the change that adds it has not come into effect.
    pub(super) is_held: bool,
    /// Whether the marker of the present change is in the queue or was taken out of it.
    pub(super) is_marked: bool,
    /// Whether its stream had begun at the context of its last marker, and no publisher was lost there: an end at the next context
    /// is then that of these publishers, also where that context has known none of them.
    pub(super) has_begun: bool,
    /// Whether a long record may be in the queue: one was put in since none was found.
    may_be_long: Cell<bool>,
}

impl Input {
    pub(crate) fn new(stream: u32) -> Input {
        let (queue, may_be_long) = (VecDeque::new(), Cell::new(false));
        Input { stream, queue, done: 0, is_held: false, is_marked: false, has_begun: false, may_be_long }
    }

    /// Items have joined the queue by another way, maybe long records.
    pub(super) fn note_joined(&self) {
        self.may_be_long.set(true);
    }

    /// A batch that others may have too joins the queue.
    #[inline]
    pub(super) fn put_shared(&mut self, batch: &Arc<Batch>) {
        if is_long(batch) {
            self.may_be_long.set(true);
        }
        self.queue.push_back(Item::Batch(Queued::Shared(Arc::clone(batch))));
    }

    /// Records in the queue that are longer than a packet.
    fn long_records(&self) -> usize {
        if !self.may_be_long.get() {
            return 0;
        }
        let found = self.queue.iter().filter(|item| matches!(item, Item::Batch(batch) if is_long(batch))).count();
        self.may_be_long.set(found > 0);
        found
    }

    /// Whether a batch finds no room in the queue of a node before sessions that drops, of `limit`: a long record finds none
    /// behind [`MOST_LONG`] others.
    #[inline]
    pub(super) fn is_full_for(&self, batch: &Batch, limit: usize) -> bool {
        self.queue.len() >= limit || is_long(batch) && self.long_records() >= MOST_LONG
    }

    /// For how many batches such a queue gives credit, of `limit`: for none while [`MOST_LONG`] long records are in it.
    #[inline]
    pub(super) fn room(&self, limit: usize) -> usize {
        if self.long_records() < MOST_LONG { limit.saturating_sub(self.queue.len()) } else { 0 }
    }

    /// Makes room for a batch that finds none: the oldest one gives way, for a long record the oldest long one if there are too
    /// many. Returns how many records that cost; `None` if nothing can give way.
    pub(super) fn make_room(&mut self, batch: &Batch) -> Option<u64> {
        let is_too_long = is_long(batch) && self.long_records() >= MOST_LONG;
        let gives_way = |item: &Item| matches!(item, Item::Batch(batch) if !is_too_long || is_long(batch));
        let at = self.queue.iter().position(gives_way)?;
        let done = if at == 0 { std::mem::take(&mut self.done) } else { 0 };
        self.queue.remove(at).map(|oldest| oldest.records() - done as u64)
    }

    /// The marker of a change comes, behind what waits. With nothing before it, it is reached.
    pub(crate) fn mark(&mut self, change: u64) {
        self.is_marked = true;
        if self.queue.is_empty() {
            self.is_held = true;
        } else {
            self.queue.push_back(Item::Marker(change));
        }
    }

    /// The marker of a change is behind it, or is no longer waited for.
    pub(crate) fn pass_marker(&mut self, change: u64) {
        self.queue.retain(|item| !matches!(item, Item::Marker(marker) if *marker == change));
        (self.is_held, self.is_marked) = (false, false);
    }

    fn drain(&mut self) -> u64 {
        let done = std::mem::take(&mut self.done) as u64;
        self.queue.drain(..).map(|item| item.records()).sum::<u64>().saturating_sub(done)
    }
}

/// Whether the node of a session, or one that converts for sessions, has its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing waits for it.
    #[default]
    None,
    /// It is in the list of those that have something to do.
    Listed,
    /// It waits for room in its session, or in the queue of a session's node.
    Awaited,
}

/// How records of a format come to a session that says which formats it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    /// Unchanged.
    Direct,
    /// Through a chain of conversions, by its number.
    Convert(u64),
    /// Not now: they wait for a conversion.
    Hold,
    /// Not now: they are dropped and counted.
    Refuse,
}

/// A report for a subscriber, by the subscription's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Records of this format came, which does not come to it now.
    Unroutable { key: usize, format: u64 },
    /// Records were lost that have not come to its node.
    Lost { key: usize },
}

/// Why the state of a stream is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StateLoss {
    /// The stream has no key any more.
    Withdrawn,
    /// Its handler has failed, and is not restarted.
    Failed,
    /// Another one has begun in its place.
    #[default]
    Anew,
}

/// The part of a node in its session.
#[derive(Debug, Default)]
pub(crate) struct SessionEnd {
    /// The subscription's key.
    pub(super) key: usize,
    /// How each format comes to it, where it says which it accepts; of formats that are not here, nothing comes.
    pub(super) takes: Option<Vec<(u64, Take)>>,
    /// The nodes before it: one that converts, and one where records wait for a conversion, if it has them.
    pub(super) sources: Vec<NodeId>,
    /// Ends of publishers that wait for what came to its sources before, in order: the publishers that were left.
    pub(super) ends: VecDeque<Publishers>,
    /// Publishers that the stream had lost when it came.
    pub(super) losses_before: u32,
    /// Whether it has the next batch of its stream already.
    pub(super) skips: bool,
    /// Whether its query reads the state of a stream, so that the stream's end may have to wait and its own may come before.
    pub(super) reads_state: bool,
    /// The end of its stream that waits, and whether its own was reported.
    pub(super) held_end: Option<Publishers>,
    pub(super) has_ended: bool,
    /// Why that state is gone, where it is.
    pub(super) loss: StateLoss,
    /// The use of that state by the query before, while the difference to the present one is not given: it counts for the rows in order.
    pub(super) former_use: Option<Elsewhere>,
    /// The part for a subscriber that is slow, or gets a limited number of records a second.
    pub(super) slow: Option<Box<Slow>>,
}

/// The part of a node that converts records for sessions.
#[derive(Debug, Default)]
pub(crate) struct ConvertEnd {
    /// The formats that it takes from its stream's port, by id, each [`Take::Direct`] or [`Take::Convert`]; none where its
    /// records wait for a conversion.
    pub(super) takes: Vec<(u64, Take)>,
    /// Formats that it takes no more, while some of their records wait.
    pub(super) left: Vec<(u64, Take)>,
    /// The nodes of the sessions that get what it makes.
    pub(super) readers: Vec<NodeId>,
    /// Records in its queue that wait as copies, and the bytes that they count for. There is one reader then.
    pub(super) held: (u64, u64),
    /// Whether it is where records wait for a conversion.
    pub(super) holds: bool,
    /// Whether another node may take the same: they become one when neither has anything left.
    pub(super) may_join: bool,
    /// The node that it was split off, and at which taking in of routes: what waits is the same until the next.
    pub(super) split: Option<(NodeId, u64)>,
}

/// Where a node's records go.
#[derive(Debug)]
pub(crate) enum Destination {
    /// Into the stream of this number, which the node makes.
    Stream(u32),
    /// To the session of a subscription.
    Session(SessionEnd),
    /// To nodes of sessions, converted.
    Convert(ConvertEnd),
}

/// A node at a context.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    /// Its handler, once for each format, or for each of a stream.
    pub(super) instances: Vec<Instance>,
    /// Which instance has the state, where they share one.
    pub(super) holder: Option<usize>,
    /// When it is to run though nothing comes, and when its context looks for that, in ns of the contexts' clock.
    pub(super) due: Due,
    /// When the next step of a walk over its state may be done, in ns of the contexts' clock; the greatest time without a walk.
    pub(super) walk_ns: u64,
    pub(super) destination: Destination,
    pub(crate) inputs: Vec<Input>,
    /// Whether it takes only what is published or made at its own context: it is a replica, and others are at other contexts.
    pub(crate) reads_own: bool,
    pub(crate) policy: SchedulingPolicy,
    pub(crate) condition: Condition,
    pub(super) turn: Turn,
    /// The change that it waits for the markers of.
    pub(super) change: Option<NodeChange>,
    pub(super) spill: Spill,
    /// Position in the sampling pattern, so that the pattern goes on from batch to batch.
    pub(super) sampled_from: u32,
    /// When it was last found that it could not be served for a reason other than its context's other work, in ns.
    pub(super) stalled_ns: u64,
    pub(crate) gauges: Arc<NodeGauges>,
    /// Its time for a record, as last measured, in ns.
    pub(super) ns_per_record: f32,
    /// Records of the longest run that was measured; 0: what a record takes is not known.
    pub(super) measured_records: u64,
    /// Until when its limit is used up, in ns of the contexts' clock.
    pub(super) used_until_ns: u64,
    /// Bytes that it makes of a record, as last seen; more counts at once, less only by and by. Not known before it has
    /// run.
    pub(super) out_bytes_per_record: Option<f32>,
    /// Batches until the next timed one.
    pub(super) until_timed: u32,
    /// Whether the next may take long, since the last measured batch took longer than expected, or none was measured.
    pub(super) may_be_long: bool,
    /// Which input is served next.
    next_input: usize,
}

impl Node {
    /// A node that makes a stream.
    pub(crate) fn new(id: NodeId, instances: Vec<Instance>, makes: u32, reads: &[u32]) -> Node {
        Node::with(id, instances, Destination::Stream(makes), reads)
    }

    /// A node with this destination.
    pub(crate) fn with(id: NodeId, instances: Vec<Instance>, destination: Destination, reads: &[u32]) -> Node {
        Node {
            id,
            instances,
            holder: None,
            due: Due::default(),
            walk_ns: u64::MAX,
            destination,
            inputs: reads.iter().map(|stream| Input::new(*stream)).collect(),
            reads_own: false,
            policy: SchedulingPolicy::default(),
            condition: Condition::Running,
            turn: Turn::None,
            change: None,
            spill: Spill::default(),
            sampled_from: 0,
            stalled_ns: 0,
            gauges: Arc::default(),
            ns_per_record: 0.0,
            measured_records: 0,
            used_until_ns: 0,
            out_bytes_per_record: None,
            until_timed: 0,
            may_be_long: true,
            next_input: 0,
        }
    }

    /// The number of the stream that it makes, if it makes one.
    #[inline]
    pub(crate) fn makes(&self) -> Option<u32> {
        match self.destination {
            Destination::Stream(makes) => Some(makes),
            Destination::Session(_) | Destination::Convert(_) => None,
        }
    }

    /// Its part in its session, if it ends in one.
    #[inline]
    pub(crate) fn session(&self) -> Option<&SessionEnd> {
        if let Destination::Session(session) = &self.destination { Some(session) } else { None }
    }

    /// The same, to change.
    #[inline]
    pub(crate) fn session_mut(&mut self) -> Option<&mut SessionEnd> {
        if let Destination::Session(session) = &mut self.destination { Some(session) } else { None }
    }

    /// Its part as one that converts for sessions, if it does.
    #[inline]
    pub(super) fn convert(&self) -> Option<&ConvertEnd> {
        if let Destination::Convert(end) = &self.destination { Some(end) } else { None }
    }

    /// Whether it converts, rather than holding records that wait for a conversion.
    pub(super) fn converts(&self) -> bool {
        self.convert().is_none_or(|end| !end.holds)
    }

    /// The same, to change.
    #[inline]
    pub(super) fn convert_mut(&mut self) -> Option<&mut ConvertEnd> {
        if let Destination::Convert(end) = &mut self.destination { Some(end) } else { None }
    }

    /// The instance for exactly this stream, or for any, and this format, if there is one.
    #[inline]
    pub(crate) fn instance(&mut self, stream: Option<u32>, format: u64) -> Option<&mut Instance> {
        self.instances.iter_mut().find(|instance| (instance.stream, instance.format) == (stream, format))
    }

    /// The place of the instance for records of a format that come by a stream.
    #[inline]
    pub(super) fn place_for(&self, stream: u32, format: u64) -> Option<usize> {
        self.instances.iter().position(|instance| instance.takes(stream, format))
    }

    /// Whether a batch of this stream and format can be worked on; otherwise it waits until an instance for it was added.
    #[inline]
    pub(crate) fn knows(&self, stream: u32, format: u64) -> bool {
        self.instances.iter().any(|instance| instance.takes(stream, format))
    }

    /// The input from a stream.
    #[inline]
    pub(crate) fn input(&mut self, stream: u32) -> Option<&mut Input> {
        self.inputs.iter_mut().find(|input| input.stream == stream)
    }

    /// The input at a position from which an item was taken: inputs go only while nothing of them is worked on.
    #[inline]
    #[track_caller]
    pub(super) fn present_input(&mut self, at: usize) -> Option<&mut Input> {
        debug_assert!(at < self.inputs.len(), "node {:?} has no input {at}", self.id);
        self.inputs.get_mut(at)
    }

    /// The next item that can be worked on, the inputs in turn: the input's position, and records of a batch that were
    /// worked on before.
    #[inline]
    pub(crate) fn take_next(&mut self) -> Option<(usize, Item, usize)> {
        // A session's query is planned for a format before any record of it comes.
        let is_session = matches!(self.destination, Destination::Session(_));
        let drops = is_session || matches!(self.condition, Condition::Failed | Condition::Ending);
        for _ in 0..self.inputs.len() {
            let at = self.next_input % self.inputs.len();
            self.next_input = self.next_input.wrapping_add(1);
            // An item behind a marker waits.
            let Some(input) = self.inputs.get_mut(at).filter(|input| !input.is_held) else { continue };
            let is_known = match input.queue.front() {
                None => continue,
                Some(Item::Batch(batch)) => {
                    drops || self.instances.iter().any(|instance| instance.takes(input.stream, batch.format))
                }
                // A held record becomes a batch before it is its turn.
                Some(Item::Held(_)) => false,
                Some(Item::End(_) | Item::Publishers(_) | Item::Marker(_)) => true,
            };
            if is_known && let Some(item) = input.queue.pop_front() {
                return Some((at, item, std::mem::take(&mut input.done)));
            }
        }
        None
    }

    /// A batch whose first `done` records were worked on goes back to the front of its input.
    pub(crate) fn put_back(&mut self, input: usize, batch: Queued, done: usize) {
        if let Some(input) = self.present_input(input) {
            if is_long(&batch) {
                input.note_joined();
            }
            input.queue.push_front(Item::Batch(batch));
            input.done = done;
        }
    }

    /// Items that wait for it.
    pub(crate) fn waiting(&self) -> usize {
        self.inputs.iter().map(|input| input.queue.len()).sum()
    }

    /// Batches for which a node before sessions has room, of `limit`.
    pub(super) fn room(&self, limit: usize) -> usize {
        self.inputs.iter().map(|input| input.room(limit)).min().unwrap_or(limit)
    }

    /// Notes how many bytes it has made of a record.
    #[inline]
    pub(crate) fn note_output(&mut self, bytes_per_record: f32) {
        self.out_bytes_per_record = Some(match self.out_bytes_per_record {
            Some(before) if before > bytes_per_record => before + NEWER * (bytes_per_record - before),
            _ => bytes_per_record,
        });
    }

    /// Has taken this much time of its context: of its limit that is a longer time, from `now_ns` on or from when the limit
    /// is used up; up to [`BURST_NS`] that it did not use before count.
    #[inline]
    pub(crate) fn use_up(&mut self, took_ns: u64, now_ns: u64) {
        let limit = self.policy.limit_ns_per_s.max(1);
        let ns = (u128::from(took_ns) * 1_000_000_000 / u128::from(limit)).min(u128::from(MOST_USED_NS));
        self.used_until_ns = self.used_until_ns.max(now_ns.saturating_sub(BURST_NS)) + ns as u64;
    }

    /// Whether it has used up what its limit allows it.
    #[inline]
    pub(crate) fn is_over_limit(&self, now_ns: u64) -> bool {
        self.policy.limit_ns_per_s < u64::MAX && self.used_until_ns > now_ns
    }

    /// Whether a batch waits for the instance of its format.
    pub(crate) fn awaits_instance(&self) -> bool {
        let is_unknown = |input: &Input| match input.queue.front() {
            Some(Item::Batch(batch)) => !self.knows(input.stream, batch.format),
            _ => false,
        };
        self.inputs.iter().any(|input| !input.is_held && is_unknown(input))
    }

    /// The formats of the batches that wait for it, and of the records that it keeps for a slow subscriber.
    pub(crate) fn waiting_formats(&self) -> impl Iterator<Item = u64> {
        let items = self.inputs.iter().flat_map(|input| &input.queue);
        items.filter_map(Item::format).chain(self.slow().into_iter().flat_map(Slow::formats))
    }

    /// Whether each batch that waits for it can be worked on by its next version, if it can now.
    pub(crate) fn may_leave_waiting_to(&self, next: &[Instance]) -> bool {
        let fits = |stream: u32, format: u64| {
            next.iter().any(|instance| instance.takes(stream, format)) || !self.knows(stream, format)
        };
        let formats =
            |input: &Input| input.queue.iter().filter_map(Item::format).all(|format| fits(input.stream, format));
        self.inputs.iter().all(formats)
    }

    /// Whether each input that had to bring a marker has brought it.
    pub(crate) fn is_marked(&self) -> bool {
        self.inputs.iter().all(|input| input.is_marked)
    }

    /// A handler panicked or did not return. Further input waits if the handler is to be restarted, otherwise it is
    /// dropped.
    #[cold]
    pub(crate) fn note_fault(&mut self) {
        let ends = self.change.as_ref().is_some_and(|change| matches!(change.then, Then::End));
        self.condition = if self.policy.restarts && !ends { Condition::Restarting } else { Condition::Failed };
        self.gauges.faults.add(1);
    }

    /// Its handler has panicked, or it did not return. One that converts goes on with other formats.
    #[cold]
    pub(super) fn fail(&mut self) {
        match self.convert().is_some() {
            true => self.gauges.faults.add(1),
            false => self.note_fault(),
        }
        self.note_state();
    }

    /// It changes when it has come to the markers of a change.
    pub(crate) fn plan(&mut self, change: u64, then: Then) {
        if matches!(then, Then::End) && self.condition == Condition::Restarting {
            // Nobody restarts what ends.
            self.condition = Condition::Failed;
        }
        self.change = Some(NodeChange { change, then });
    }

    /// Exchanges its instances for new ones; the old ones are in `instances` then. Returns the number of states that were
    /// lost.
    pub(crate) fn exchange(&mut self, instances: &mut Vec<Instance>, keeps_state: bool) -> u32 {
        let holder = self.state_holder();
        std::mem::swap(&mut self.instances, instances);
        // The next version may make more.
        self.out_bytes_per_record = None;
        self.forget_cost();
        (self.holder, self.due.at_ns) = (None, u64::MAX);
        // Where the state is not kept, the next version begins anew.
        let lost = if keeps_state { self.take_states(instances, holder) } else { 0 };
        if matches!(self.condition, Condition::Failed | Condition::Restarting) {
            self.condition = Condition::Running;
        }
        self.note_state();
        lost
    }

    /// The time of a record is not known from now on: its handlers are others, or work otherwise.
    pub(crate) fn forget_cost(&mut self) {
        // A swap stops the stream for no system call: if the next run takes long, the one after it is timed in processor time.
        (self.measured_records, self.may_be_long) = (0, false);
    }

    /// Whether output of its instances that waits for buffers may leave after its change: that of the next version, or in
    /// a format that the next version makes as well. Readers need not know any other behind the marker.
    pub(crate) fn may_take_spill_along(&self, then: &Then) -> bool {
        let is_made = |instance: &Instance| instance.output == self.spill.format;
        match then {
            Then::End => self.spill.is_empty() || self.condition == Condition::Ending,
            then => self.spill.is_empty() || then.instances().is_none_or(|next| next.iter().any(is_made)),
        }
    }

    /// Takes over from the node that it was at another context: its handlers, and what waited for it. Anything left there
    /// is to be dropped.
    pub(crate) fn arrive(&mut self, before: &mut Node) {
        debug_assert!(self.instances.is_empty(), "its instances come with it");
        std::mem::swap(&mut self.instances, &mut before.instances);
        self.holder = before.holder;
        for old in &mut before.inputs {
            // A stream that it no longer reads has brought nothing behind its marker.
            let Some(input) = self.inputs.iter_mut().find(|input| input.stream == old.stream) else { continue };
            old.queue.append(&mut input.queue);
            std::mem::swap(&mut input.queue, &mut old.queue);
            (input.done, input.has_begun) = (old.done, old.has_begun);
        }
        self.spill = std::mem::take(&mut before.spill);
        self.condition = if before.condition == Condition::Waiting { Condition::Running } else { before.condition };
        self.sampled_from = before.sampled_from;
        (self.ns_per_record, self.measured_records) = (before.ns_per_record, before.measured_records);
        self.out_bytes_per_record = before.out_bytes_per_record;
    }

    /// Drops and counts what waits for it; returns the number of records.
    pub(crate) fn drop_waiting(&mut self) -> u64 {
        let spilled = self.spill.waiting() as u64;
        self.spill.clear();
        let records = spilled + self.inputs.iter_mut().map(Input::drain).sum::<u64>();
        self.gauges.lose(Loss::Removed, records);
        records
    }
}
