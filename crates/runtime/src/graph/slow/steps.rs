//! The steps of a node with a part for slow subscribers: its records leave by the same run as those of any node.

use crate::graph::NodeId;
use crate::graph::at_work::AtWork;
use crate::graph::bounds::slow_bytes;
use crate::graph::build::Workspace;
use crate::graph::edge::{Item, Queued};
use crate::graph::gauges::Loss;
use crate::graph::node::{Condition, Destination, Input, Node, Turn};
use crate::graph::run::{Outcome, process};
use crate::graph::serve::Graph;
use crate::graph::session::{Egress, Room, SessionStep};
use crate::graph::slow::{Reducer, Slow};
use crossdock_engine::Handler;
use crossdock_mailbox::{Batch, Selection};

/// Whether a condition ran to its end. It makes no records.
fn narrow(condition: &mut dyn Handler, batch: &Batch, selection: &mut Selection) -> bool {
    process(condition, batch, selection, &mut Vec::new()) != Outcome::Panicked
}

/// The next step of a node.
enum Next {
    /// Nothing now.
    Nothing,
    /// Records that had found no buffer.
    Spill,
    /// Kept records.
    Kept,
    /// A batch of its queue.
    Batch,
    /// Something else in its queue, with nothing before it.
    Other,
}

impl Node {
    #[inline]
    pub(in crate::graph) fn slow(&self) -> Option<&Slow> {
        self.session().and_then(|session| session.slow.as_deref())
    }

    #[inline]
    pub(in crate::graph) fn slow_mut(&mut self) -> Option<&mut Slow> {
        self.session_mut().and_then(|session| session.slow.as_deref_mut())
    }

    fn next_of_slow(&self, now_ns: u64) -> Next {
        // Its query says nothing of slow subscribers.
        let Some(slow) = self.slow() else { return Next::Nothing };
        match self.inputs.first().and_then(|input| input.queue.front()) {
            _ if !self.spill.is_empty() => Next::Spill,
            _ if slow.may_leave(now_ns) => Next::Kept,
            Some(Item::Batch(_)) => Next::Batch,
            Some(_) if slow.len() == 0 => Next::Other,
            Some(_) | None => Next::Nothing,
        }
    }
}

/// The nodes of slow subscribers.
impl Graph {
    /// Gives the node of a subscription, which has just been put in, its part.
    pub(crate) fn set_slow(&mut self, key: usize, slow: Option<Box<Slow>>) {
        if let Some(session) = slow.is_some().then(|| self.session_end(NodeId::of_subscription(key))).flatten() {
            session.slow = slow;
            self.share_slow();
        }
    }

    /// Gives it what selects records of more formats. Those that it has and that are not `wanted` go, except where records
    /// wait for them.
    pub(crate) fn add_reducers(&mut self, key: usize, new: &mut Vec<Reducer>, wanted: impl Fn(u64) -> bool) {
        let mut waiting = self.made_for(key);
        let Some(node) = self.present_node_mut(NodeId::of_subscription(key)) else { return };
        waiting.extend(node.waiting_formats());
        // Its query says nothing of slow subscribers.
        let Some(slow) = node.slow_mut() else { return };
        let is_new = |format: u64| new.iter().any(|new| new.format == format);
        slow.reducers.retain(|of| !is_new(of.format) && (wanted(of.format) || waiting.contains(&of.format)));
        slow.reducers.append(new);
    }

    /// All that are slow share a bound.
    pub(in crate::graph) fn share_slow(&mut self) {
        // Changes kept of a state have room of its own.
        let shares = |slow: &Slow| !slow.keeps_changes();
        let all = self.sessions.iter().flatten().filter_map(|node| node.slow()).filter(|slow| shares(slow));
        let most_bytes = slow_bytes(all.count());
        let nodes = self.sessions.iter_mut().flatten().filter_map(|node| node.slow_mut());
        nodes.filter(|slow| shares(slow)).for_each(|slow| slow.most_bytes = most_bytes);
    }

    /// Records that a subscription's node has and that have neither joined its session's queue nor gone.
    pub(crate) fn in_flight(&self, key: usize) -> u64 {
        let Some(node) = self.present_node(NodeId::of_subscription(key)) else { return 0 };
        let queued = |input: &Input| {
            let records: u64 = input.queue.iter().map(Item::records).sum();
            records.saturating_sub(input.done as u64)
        };
        let queued: u64 = node.inputs.iter().map(queued).sum();
        queued + node.spill.waiting() as u64 + node.slow().map_or(0, Slow::len)
    }

    /// When records that wait for their rate are to be looked at, in ns.
    #[inline]
    pub(crate) fn slow_due_ns(&self) -> u64 {
        self.slow_due_ns
    }

    /// Looks at them, if it is time to.
    pub(crate) fn wake_slow(&mut self, now_ns: u64) {
        if now_ns < self.slow_due_ns {
            return;
        }
        self.slow_due_ns = u64::MAX;
        for at in 0..self.sessions.len() {
            let node = self.sessions.get(at).and_then(Option::as_ref);
            if node.and_then(|node| node.slow()).is_some_and(|slow| slow.is_limited() && slow.len() > 0) {
                self.list(NodeId::of_subscription(at));
            }
        }
    }

    /// The next step of a node with such a part: what it keeps goes before what comes.
    pub(in crate::graph) fn step_slow(
        &mut self,
        id: NodeId,
        egress: &mut impl Egress,
        ws: &mut Workspace,
    ) -> Option<SessionStep> {
        let now_ns = self.now_ns;
        let node = self.node_mut(id)?;
        let (key, spilled_bytes) = (node.session()?.key, node.spill.first_bytes());
        let next = node.next_of_slow(now_ns);
        let waits = matches!(node.inputs.first().and_then(|input| input.queue.front()), Some(Item::Batch(_)));
        let slow = node.slow()?;
        let (selects, is_limited, is_behind) = (slow.selects(), slow.is_limited(), slow.keeps_changes());
        if matches!(next, Next::Nothing) {
            return self.rest(id, Turn::None);
        }
        let room = if matches!(next, Next::Other) { Room::Packets(1) } else { egress.room(key, spilled_bytes) };
        let step = match (room, next) {
            (Room::Full, _) if is_behind && waits => self.keep_next(id, ws),
            (Room::Full, _) if selects && waits => self.reduce(id, true, ws),
            (Room::Full, _) => return self.rest(id, Turn::Awaited),
            (Room::NoBuffers, _) => {
                self.listed.push_back(id);
                return self.rest(id, Turn::Listed);
            }
            (Room::Packets(room), Next::Kept) if is_behind => self.send_kept(id, (key, room), egress, ws),
            (Room::Packets(_), Next::Batch) if is_behind && is_limited => self.keep_next(id, ws),
            (Room::Packets(room), Next::Kept) => self.run_kept(id, (key, room), egress, ws),
            (Room::Packets(_), Next::Batch) if is_limited => self.reduce(id, false, ws),
            (Room::Packets(room), _) => self.run_session(id, (key, room), egress, ws),
        };
        self.rest(id, Turn::None);
        self.wake_sources(id);
        if self.present_node(id).is_some_and(|node| !matches!(node.next_of_slow(now_ns), Next::Nothing)) {
            self.list(id);
        }
        step
    }

    /// A node has nothing to do; it is looked at when its rate lets more pass.
    fn rest(&mut self, id: NodeId, turn: Turn) -> Option<SessionStep> {
        let node = self.present_node_mut(id)?;
        node.turn = turn;
        let due_ns = node.slow().filter(|slow| slow.len() > 0).map_or(u64::MAX, |slow| slow.due_ns);
        if due_ns > self.now_ns {
            self.slow_due_ns = self.slow_due_ns.min(due_ns);
        }
        None
    }

    /// Selects and keeps records of the next batch.
    fn reduce(&mut self, id: NodeId, is_full: bool, ws: &mut Workspace) -> Option<SessionStep> {
        let now_ns = self.now_ns;
        let mut node = self.lift(id)?;
        let Node { inputs, destination: Destination::Session(session), gauges, .. } = &mut *node else {
            debug_assert!(false, "{id:?} ends in a session");
            self.set_node(node);
            return None;
        };
        let (key, mut is_sound) = (session.key, true);
        if let (Some(input), Some(slow)) = (inputs.first_mut(), session.slow.as_deref_mut())
            && let Some(Item::Batch(batch)) = input.queue.pop_front()
        {
            let done = std::mem::take(&mut input.done);
            self.at_work = Some(AtWork { node: id, records: (batch.len() - done) as u64, after: 0 });
            let (came, before) = (if done == 0 { batch.payload_bytes() } else { 0 }, slow.kept_bytes());
            is_sound = slow.reduce((&batch, done), &mut ws.selection, (is_full, now_ns), (gauges, narrow));
            gauges.batches_in.add(u64::from(done == 0));
            // Those of a record that is kept count when it leaves.
            gauges.bytes_in.add((came + before).saturating_sub(slow.kept_bytes()) as u64);
            ws.spares.keep_queued(batch);
        }
        self.at_work = None;
        if !is_sound {
            node.fail();
        }
        self.set_node(node);
        Some(if is_sound { SessionStep::Ran(key) } else { SessionStep::Failed(key) })
    }

    /// Lets kept records leave through the query, as far as its session has room.
    fn run_kept(
        &mut self,
        id: NodeId,
        (key, room): (usize, usize),
        egress: &mut impl Egress,
        ws: &mut Workspace,
    ) -> Option<SessionStep> {
        let now_ns = self.now_ns;
        let node = self.present_node_mut(id)?;
        let stream = node.inputs.first()?.stream;
        let slow = node.slow_mut()?;
        let mut empty = ws.spares.take();
        empty.stream = stream;
        if let Some(empty) = slow.load(empty, now_ns, &mut ws.pool) {
            ws.spares.keep(empty);
        }
        let (batch, done) = slow.leaving.take()?;
        let step = self.run_batch(id, (0, Queued::Own(batch), done), (key, room), egress, ws);
        // The rest of it was put back in front of all that waits.
        let node = self.present_node_mut(id)?;
        let input = node.inputs.first_mut()?;
        let done = std::mem::take(&mut input.done);
        if done > 0
            && let Some(Item::Batch(Queued::Own(batch))) = input.queue.pop_front()
        {
            node.slow_mut()?.leaving = Some((batch, done));
        }
        step
    }

    /// The query of a node has failed: what it keeps is lost, as what comes.
    pub(in crate::graph) fn give_up_kept(&mut self, id: NodeId, ws: &mut Workspace) {
        let Some(node) = self.present_node_mut(id).filter(|node| node.condition == Condition::Failed) else { return };
        let (lost, leaving) = node.slow_mut().map_or((0, None), Slow::clear);
        leaving.into_iter().for_each(|batch| ws.spares.keep(batch));
        if lost > 0 {
            node.gauges.records_in.add(lost);
            node.gauges.lose(Loss::Failed, lost);
        }
    }
}
