//! Records that wait for a conversion, in the queue of the node that will take them: copies, in order, within bounds.

use crate::graph::NodeId;
use crate::graph::bounds::{HoldLimits, PIECE_BYTES};
use crate::graph::build::Workspace;
use crate::graph::edge::{Held, Item, Queued};
use crate::graph::gauges::Loss;
use crate::graph::node::{Destination, Node, Take};
use crate::graph::serve::Graph;
use crossdock_mailbox::Batch;
use std::collections::VecDeque;

impl Graph {
    /// Sets the bounds of what waits for conversions.
    pub(crate) fn limit_holding(&mut self, limits: HoldLimits) {
        self.holding.limits = limits;
    }

    /// Records of a subscription that wait for conversions, and the bytes that they count for.
    pub(crate) fn held(&self, key: usize) -> (u64, u64) {
        let session = self.present_node(NodeId::of_subscription(key)).and_then(Node::session);
        let sources = session.into_iter().flat_map(|session| &session.sources);
        let ends = sources.filter_map(|id| self.present_node(*id)?.convert());
        ends.fold((0, 0), |sum, end| (sum.0 + end.held.0, sum.1 + end.held.1))
    }

    /// Those of this format among them.
    pub(crate) fn held_records(&self, key: usize, format: u64) -> u64 {
        let session = self.present_node(NodeId::of_subscription(key)).and_then(Node::session);
        let sources = session.into_iter().flat_map(|session| &session.sources).filter_map(|id| self.present_node(*id));
        let items = sources.filter_map(|node| node.inputs.first()).flat_map(|input| &input.queue);
        let held = items.filter_map(|item| if let Item::Held(held) = item { Some(held) } else { None });
        held.filter(|held| held.format == format).map(Held::records).sum()
    }

    /// When what waits may have to be dropped, in ns.
    pub(crate) fn hold_expires_ns(&self) -> u64 {
        self.holding.expires_ns
    }

    /// Records have come to a session that nothing converts: they wait in a node of the session's own.
    pub(super) fn hold_for(&mut self, reader: NodeId, batch: &Batch) {
        let id = self.waiting_node(reader, batch.stream);
        self.hold(id, batch, 0);
    }

    /// The node where the records of a session wait.
    fn waiting_node(&mut self, reader: NodeId, stream: u32) -> NodeId {
        self.source(reader, false).unwrap_or_else(|| {
            let id = self.add_convert(stream);
            self.present_node_mut(id).and_then(Node::convert_mut).into_iter().for_each(|end| end.holds = true);
            self.join(id, reader);
            id
        })
    }

    /// Copies the records of a batch, from one of them on, to the end of a node's queue.
    pub(super) fn hold(&mut self, id: NodeId, batch: &Batch, from: usize) {
        let (now_ns, limits) = (self.now_ns, self.holding.limits);
        let Some((queue, held)) = self.queue_of(id) else { return };
        let before = held.1;
        copy(queue, held, (batch, from), (now_ns, limits.merge_ns()));
        let more = held.1 - before;
        self.holding.bytes += more;
        self.holding.expires_ns = self.holding.expires_ns.min(now_ns.saturating_add(limits.longest_ns));
        self.bound_held(id);
    }

    /// Takes out what waits for a conversion before a session, and can come to it by what it takes now.
    pub(super) fn take_leaving(&mut self, reader: NodeId, takes: &[(u64, Take)]) -> VecDeque<Item> {
        // Nothing waits before it.
        let Some(id) = self.source(reader, false) else { return VecDeque::new() };
        let Some((queue, _)) = self.queue_of(id) else { return VecDeque::new() };
        let (leaving, stays) = part_items(std::mem::take(queue), takes);
        *queue = stays;
        self.recount(id);
        // An end may be next.
        self.list(id);
        if leaving.iter().all(|item| matches!(item, Item::End(_))) { VecDeque::new() } else { leaving }
    }

    /// Puts items behind what waits in a node.
    pub(super) fn put_last(&mut self, id: NodeId, last: VecDeque<Item>) {
        let Some(input) = self.input_of(id) else { return };
        // Ends that only the others are before must not come before what has been begun.
        let begun = if input.done > 0 { input.queue.pop_front() } else { None };
        input.queue = merge(std::mem::take(&mut input.queue), last);
        begun.into_iter().for_each(|begun| input.queue.push_front(begun));
        input.note_joined();
        self.recount(id);
        self.list(id);
    }

    /// The queue of a node that converts or holds, and what it holds.
    fn queue_of(&mut self, id: NodeId) -> Option<(&mut VecDeque<Item>, &mut (u64, u64))> {
        let found = match self.present_node_mut(id)? {
            Node { inputs, destination: Destination::Convert(end), .. } => {
                inputs.first_mut().map(|input| (&mut input.queue, &mut end.held))
            }
            _ => None,
        };
        debug_assert!(found.is_some(), "{id:?} converts or holds what comes of a stream");
        found
    }

    /// Counts what a node holds.
    pub(super) fn recount(&mut self, id: NodeId) {
        let Some((queue, held)) = self.queue_of(id) else { return };
        let holds = |item: &Item| if let Item::Held(held) = item { (held.records(), held.size()) } else { (0, 0) };
        let now = queue.iter().map(holds).fold((0, 0), |sum, item| (sum.0 + item.0, sum.1 + item.1));
        let before = std::mem::replace(held, now);
        self.holding.bytes = self.holding.bytes + now.1 - before.1;
    }

    /// The next records that have waited become a batch; false if there is no buffer for them.
    pub(super) fn load_held(&mut self, id: NodeId, ws: &mut Workspace) -> bool {
        let Some((queue, count)) = self.queue_of(id) else { return false };
        // Something else is next.
        let Some(Item::Held(held)) = queue.front() else { return true };
        let mut batch = ws.spares.take();
        if !held.fill(&mut batch, &mut ws.pool) {
            ws.spares.keep(batch);
            return false;
        }
        let (records, size) = (held.records(), held.size());
        *count = (count.0 - records, count.1 - size);
        queue.pop_front();
        queue.push_front(Item::Batch(Queued::Own(batch)));
        self.holding.bytes -= size;
        true
    }

    /// Drops the oldest of what a node holds, for this reason, if that came before `before_ns`; whether there was any.
    fn drop_held(&mut self, id: NodeId, before_ns: u64, why: Loss) -> bool {
        let Some((queue, count)) = self.queue_of(id) else { return false };
        let held = queue.iter().enumerate().find_map(|(at, item)| match item {
            Item::Held(held) => Some((at, held)),
            Item::Batch(_) | Item::End(_) | Item::Publishers(_) | Item::Marker(_) => None,
        });
        // Nothing waits, or not that long.
        let Some((at, held)) = held.filter(|(_, held)| held.at_ns < before_ns) else { return false };
        let (records, size) = (held.records(), held.size());
        queue.remove(at);
        *count = (count.0 - records, count.1 - size);
        self.holding.bytes -= size;
        self.lose(id, why, records);
        // An end may be next.
        self.list(id);
        true
    }

    /// Holds what waits to its bounds, after some has joined it in a node: over the bound of all, the node with the most
    /// loses some. A record that can leave, and for a session that withholds credit, has no other bound than that credit.
    fn bound_held(&mut self, pushed: NodeId) {
        let HoldLimits { bytes, total_bytes, .. } = self.holding.limits;
        loop {
            let reader = self.present_node(pushed).and_then(Node::convert).and_then(|end| end.readers.first()).copied();
            let session = reader.and_then(|reader| self.present_node(reader)).and_then(Node::session);
            let victim = if session.is_some_and(|session| self.held(session.key).1 > bytes) {
                let sources = session.into_iter().flat_map(|session| &session.sources).copied();
                sources.filter(|id| self.may_drop(*id)).min_by_key(|id| self.oldest_ns(*id))
            } else if self.holding.bytes > total_bytes {
                let ids = (0..self.converts.len()).map(NodeId::of_convert).filter(|id| self.may_drop(*id));
                ids.max_by_key(|id| self.node(*id).and_then(Node::convert).map(|end| end.held.1))
            } else {
                None
            };
            if !victim.is_some_and(|victim| self.drop_held(victim, u64::MAX, Loss::HoldFull)) {
                return;
            }
        }
    }

    /// Whether records that a node holds may be dropped, rather than that its publishers are held back.
    fn may_drop(&self, id: NodeId) -> bool {
        let end = self.node(id).filter(|node| node.policy.drops || !node.converts()).and_then(Node::convert);
        end.is_some_and(|end| end.held.0 > 0)
    }

    /// When the oldest of what a node holds came, in ns.
    fn oldest_ns(&self, id: NodeId) -> u64 {
        let items = self.node(id).and_then(|node| node.inputs.first()).map(|input| input.queue.iter());
        let held = |item: &Item| if let Item::Held(held) = item { Some(held.at_ns) } else { None };
        items.into_iter().flatten().find_map(held).unwrap_or(u64::MAX)
    }

    /// Drops what has waited for a conversion too long, if it is time to.
    pub(crate) fn expire_held(&mut self, now_ns: u64) {
        if now_ns < self.holding.expires_ns {
            return;
        }
        let longest_ns = self.holding.limits.longest_ns;
        let before_ns = (now_ns + 1).saturating_sub(longest_ns);
        let mut next_ns = u64::MAX;
        for id in (0..self.converts.len()).map(NodeId::of_convert) {
            // A record that can leave is not dropped any more.
            if self.node(id).is_none_or(Node::converts) {
                continue;
            }
            while self.drop_held(id, before_ns, Loss::HoldExpired) {}
            next_ns = next_ns.min(self.oldest_ns(id).saturating_add(longest_ns));
        }
        self.holding.expires_ns = next_ns;
    }
}

/// Copies records of a batch, from one of them on, to the end of a queue, and counts them. It is `now_ns`; records join
/// others that came no more than `merge_ns` before.
fn copy(
    queue: &mut VecDeque<Item>,
    count: &mut (u64, u64),
    (batch, from): (&Batch, usize),
    (now_ns, merge_ns): (u64, u64),
) {
    for record in (from..batch.len()).map(|index| batch.record(index)) {
        let joins = |held: &&mut Held| {
            held.format == batch.format
                && held.payload_bytes() + record.len() <= PIECE_BYTES
                && now_ns.saturating_sub(held.at_ns) <= merge_ns
        };
        let back = if let Some(Item::Held(held)) = queue.back_mut() { Some(held) } else { None };
        match back.filter(joins) {
            Some(held) => {
                held.push(record);
                count.1 += record.len() as u64;
            }
            None => {
                let mut held = Held::new(batch.format, now_ns);
                held.push(record);
                count.1 += held.size();
                queue.push_back(Item::Held(held));
            }
        }
        count.0 += 1;
    }
}

/// Those items of a queue whose format is taken, and the others; the ends of publishers are in both.
fn part_items(queue: VecDeque<Item>, takes: &[(u64, Take)]) -> (VecDeque<Item>, VecDeque<Item>) {
    let (mut taken, mut others) = (VecDeque::new(), VecDeque::new());
    for item in queue {
        match item.format() {
            Some(format) if takes.iter().any(|(known, _)| *known == format) => taken.push_back(item),
            _ => {
                if let Item::End(publishers) = item {
                    taken.push_back(Item::End(publishers));
                }
                others.push_back(item);
            }
        }
    }
    (taken, others)
}

/// One queue of two: between any two ends of publishers, the items of the first go first. The last ends of both are the
/// same, as those that either does not have are behind it.
fn merge(mut first: VecDeque<Item>, mut second: VecDeque<Item>) -> VecDeque<Item> {
    let mut merged = VecDeque::with_capacity(first.len() + second.len());
    loop {
        for queue in [&mut second, &mut first] {
            while queue.back().is_some_and(|item| !matches!(item, Item::End(_))) {
                queue.pop_back().into_iter().for_each(|item| merged.push_front(item));
            }
        }
        let ends = [first.pop_back(), second.pop_back()];
        // Both are empty.
        let Some(end) = ends.into_iter().flatten().next() else { return merged };
        merged.push_front(end);
    }
}
