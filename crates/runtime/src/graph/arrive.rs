//! The batches of a stream at a context, from sessions, nodes and other contexts, and where they go from there: to the
//! nodes that read the stream here, to sessions, and by edges to other contexts.

use crate::graph::NodeId;
use crate::graph::bounds::{ARRIVED_BATCHES, QUEUE_BATCHES};
use crate::graph::build::Workspace;
use crate::graph::edge::{Item, Publishers, Queued, Sender};
use crate::graph::gauges::Loss;
use crate::graph::node::{Condition, Input, Node};
use crate::graph::port::{Port, Reader};
use crate::graph::serve::Graph;
use crossdock_mailbox::Batch;

/// Where a batch comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A session here.
    Session,
    /// A node here.
    Node,
    /// Another context.
    Context,
}

/// The nodes among a stream's readers that take what comes from there.
fn readers_of(readers: &[Reader], origin: Origin) -> impl Iterator<Item = NodeId> + Clone {
    let takes = move |reader: &&Reader| origin != Origin::Context || !reader.reads_own;
    readers.iter().filter(takes).map(|reader| reader.id)
}

impl Graph {
    /// A batch of a stream arrives from a session, for all that read it. It has waited since `since_ns` at most. The
    /// caller calls [`Graph::check_publishers`] when those that run at once have run.
    pub(crate) fn arrive(&mut self, stream: u32, mut batch: Batch, since_ns: u64, ws: &mut Workspace) {
        batch.select_all();
        batch.since_ns = since_ns;
        self.deliver(stream, batch, Origin::Session, ws);
    }

    /// A batch of a stream comes, as from a session; where the stream is delivered here, as from another context, so that it goes
    /// through the context's books.
    #[cfg(any(test, feature = "bench"))]
    pub(crate) fn offer(&mut self, stream: u32, mut batch: Batch, ws: &mut Workspace) {
        batch.select_all();
        batch.since_ns = 0;
        let is_delivered = self.port(stream).is_some_and(|port| port.is_delivered);
        self.deliver(stream, batch, if is_delivered { Origin::Context } else { Origin::Session }, ws);
        self.check_publishers(stream);
    }

    /// Whether all that came of a stream here has crossed to the other contexts that read it.
    pub(crate) fn has_crossed(&mut self, stream: u32) -> bool {
        // Which streams the edges that have ended were of is not known any more.
        let has_left = self.leaving.is_empty();
        let mut port = self.port_mut(stream);
        has_left && port.as_mut().is_none_or(|port| port.held.is_empty() && port.edges.iter_mut().all(Sender::is_empty))
    }

    /// A stream has more publishers here than before.
    pub(crate) fn note_publishers(&mut self, stream: u32, publishers: u32) {
        self.set_publishers(stream, Some(publishers));
        self.report_publishers(stream);
        self.look_again(stream);
    }

    /// A publisher of a stream has stopped, behind all that it published; the number of those that it still has here, and whether it
    /// has said that it is finished.
    pub(crate) fn arrive_end(&mut self, stream: u32, publishers: u32, is_finished: bool) {
        self.set_publishers(stream, Some(publishers));
        if !is_finished {
            self.note_losses_here(stream, 1);
        }
        let here = self.publishers_here(stream);
        self.push_to_edges(stream, || Item::End(here));
        self.note_end(stream);
    }

    fn set_publishers(&mut self, stream: u32, publishers: Option<u32>) {
        let at = stream as usize;
        if self.publishers.len() <= at {
            self.publishers.resize(at + 1, Some(0));
        }
        if let Some(here) = self.publishers.get_mut(at) {
            *here = publishers;
        }
    }

    /// Publishers of a stream have gone from here that had not finished.
    fn note_losses_here(&mut self, stream: u32, losses: u32) {
        let at = stream as usize;
        if self.losses.len() <= at {
            self.losses.resize(at + 1, 0);
        }
        if let Some(here) = self.losses.get_mut(at) {
            *here += losses;
        }
        self.note_losses(stream, losses, true);
    }

    /// Publishers of a stream have gone that had not finished, from here or from elsewhere: what nodes here make of it lacks
    /// something too.
    fn note_losses(&mut self, stream: u32, losses: u32, are_here: bool) {
        // Nothing reads it here, or all had finished.
        let Some(port) = self.port_mut(stream).filter(|_| losses > 0) else { return };
        port.losses += losses;
        let readers: Vec<NodeId> =
            port.readers.iter().filter(|reader| are_here || !reader.reads_own).map(|reader| reader.id).collect();
        for id in readers {
            let makes = self.present_node(id).and_then(Node::makes);
            makes.into_iter().for_each(|makes| self.note_losses_here(makes, losses));
        }
    }

    /// Publishers of a stream in all contexts, if that is known here: 1 at each context where nodes have something to make it of.
    pub(crate) fn publishers_in_all(&self, stream: u32) -> Option<u32> {
        self.port(stream)?.publishers
    }

    /// A stream's publishers here, as reported to other contexts.
    pub(super) fn publishers_here(&self, stream: u32) -> Publishers {
        let losses = self.losses.get(stream as usize).copied().unwrap_or_default();
        Publishers { count: self.publishers_of(stream), losses }
    }

    fn report_publishers(&mut self, stream: u32) {
        let here = self.publishers_here(stream);
        self.push_to_edges(stream, || Item::Publishers(here));
    }

    /// Sessions here that publish a stream; 1 for a stream that nodes here make, while they have something to make it of. Not
    /// known while a change is under way that decides it.
    pub(super) fn publishers_of(&self, stream: u32) -> Option<u32> {
        self.publishers.get(stream as usize).copied().unwrap_or(Some(0))
    }

    /// Finds out again whether the nodes here that make a stream have something to make it of. The other contexts hear of it
    /// behind the marker, if their edges are about to change: what is made up to the marker has its publisher until then.
    pub(super) fn settle_made(&mut self, makes: u32) {
        let publishers = self.makers_publish(makes);
        if publishers == self.publishers_of(makes) {
            return;
        }
        self.set_publishers(makes, publishers);
        let is_to_turn = |port: &Port| port.next.as_ref().is_some_and(|next| !next.has_turned);
        if !self.port(makes).is_some_and(is_to_turn) {
            self.report_publishers(makes);
        }
        self.look_again(makes);
    }

    /// 1 if a node here makes a stream of something: its inputs have publishers, or records wait in it.
    fn makers_publish(&self, makes: u32) -> Option<u32> {
        let nodes = self.here.iter().filter_map(|id| self.present_node(*id));
        let mut publishers = Some(0);
        for node in nodes.filter(|node| node.makes() == Some(makes)) {
            // The batches for one that comes from another context come with it.
            let is_coming = node.condition == Condition::Waiting && node.instances.is_empty();
            let mut inputs = node.inputs.iter().map(|input| self.has_more(node, input));
            match !node.spill.is_empty() || node.is_due_once() || inputs.clone().any(|has_more| has_more == Some(true))
            {
                true => return Some(1),
                false if is_coming || inputs.any(|has_more| has_more.is_none()) => publishers = None,
                false => {}
            }
        }
        publishers
    }

    /// Whether something waits in a node's input, or may still come.
    fn has_more(&self, node: &Node, input: &Input) -> Option<bool> {
        let port = self.port(input.stream)?;
        let waits = input.queue.iter().any(|item| matches!(item, Item::Batch(_)));
        let ends = input.queue.iter().any(|item| matches!(item, Item::End(_)));
        let publishers = if node.reads_own { self.publishers_of(input.stream) } else { port.publishers };
        let reads = port.readers.iter().any(|reader| reader.id == node.id);
        match publishers {
            _ if waits || !port.held.is_empty() => Some(true),
            // The streams that it is to read are known when the port has changed.
            _ if !reads => None,
            Some(0) if port.next.is_some() => None,
            // Its handler may make more of the end, behind which this is found out again.
            Some(0) if ends => self.publishers_of(node.makes()?).map(|publishers| publishers > 0),
            publishers => publishers.map(|publishers| publishers > 0),
        }
    }

    /// Holds publishers back where there is no room for more.
    pub(crate) fn check_publishers(&mut self, stream: u32) {
        // A port that is about to change says so in a moment.
        if self.room(stream) > 0 || self.port(stream).is_some_and(|port| port.next.is_some()) {
            return;
        }
        if let Some(port) = self.port_mut(stream)
            && !std::mem::replace(&mut port.is_blocked, true)
        {
            self.turned.push((stream, true));
            self.await_room(stream);
        }
    }

    pub(super) fn await_room(&mut self, stream: u32) {
        if !self.waiting.contains(&stream) {
            self.waiting.push(stream);
        }
    }

    /// Batches made of a stream here for which all that withhold credit have room.
    pub(super) fn room(&mut self, stream: u32) -> usize {
        let mut room = self.room_here(stream, Origin::Session);
        // Nothing reads it here.
        let Some(mut port) = self.lift_port(stream) else { return room };
        for edge in port.edges.iter_mut().filter(|edge| edge.overflow.blocks()) {
            room = room.min(edge.room());
        }
        if port.next.as_ref().is_some_and(|next| !self.awaits_maker(next) && port.awaits_change(next)) {
            // A batch that is made here from now on comes after the marker.
            room = 0;
        }
        self.put_port_back(stream, port);
        room
    }

    /// The same for a node that makes the stream: none before the node whose place it takes has become what it is to be.
    pub(super) fn room_to_make(&mut self, id: NodeId, stream: u32) -> usize {
        let next = self.port(stream).and_then(|port| port.next.as_deref());
        match next.is_some_and(|next| next.after != Some(id) && self.awaits_maker(next)) {
            true => 0,
            false => self.room(stream),
        }
    }

    /// Batches of a stream from there for which all at this context that withhold credit have room.
    fn room_here(&mut self, stream: u32, origin: Origin) -> usize {
        let (limit, arrived) = (self.limit, self.arrived.len());
        // Nothing reads it here.
        let Some(port) = self.lift_port(stream) else { return usize::MAX };
        let mut room = self.room_of_sessions(&port);
        for id in readers_of(&port.readers, origin) {
            let Some(node) = self.present_node_mut(id) else { continue };
            if !node.policy.drops {
                let queued = node.input(stream).map_or(0, |input| input.queue.len());
                room = room.min(limit.saturating_sub(queued));
            }
        }
        if port.is_delivered {
            room = room.min(ARRIVED_BATCHES.saturating_sub(arrived));
        }
        self.put_port_back(stream, port);
        room
    }

    /// Gives a batch to all that take a stream here; the last one gets it, the others get references to its buffers. One that
    /// a node here has made goes to the nodes that read it straight away, any other when it is their turn. One that came
    /// from another context goes to no third. Whether anybody takes it.
    pub(super) fn deliver(&mut self, stream: u32, mut batch: Batch, origin: Origin, ws: &mut Workspace) -> bool {
        if !self.takes(stream) {
            ws.spares.keep(batch);
            return false;
        }
        let Some(mut port) = self.lift_present_port(stream) else { return false };
        batch.stream = stream;
        let is_noted = port.is_delivered && origin != Origin::Session;
        let is_shared = is_noted || !port.sessions.is_empty();
        let holds = origin == Origin::Session && port.holds();
        let edges = if origin == Origin::Context { &mut [] } else { &mut port.edges[..] };
        let readers = readers_of(if holds { &[][..] } else { &port.readers[..] }, origin);
        let mut left = readers.clone().count() + edges.len() + usize::from(is_shared) + usize::from(holds);
        let takes = left > 0;
        let mut batch = Some(batch);
        let mut next = |ws: &mut Workspace, spare: Option<Batch>| {
            left -= 1;
            if left == 0 {
                spare.into_iter().for_each(|spare| ws.spares.keep(spare));
                return batch.take().unwrap_or_default();
            }
            let mut copy = spare.unwrap_or_else(|| ws.spares.take());
            batch.iter().for_each(|batch| copy.clone_from(batch));
            copy
        };
        for edge in edges {
            let spare = edge.spare();
            let mut copy = next(ws, spare);
            if origin == Origin::Node {
                copy.since_ns = self.now_ns;
            }
            if let Some(spare) = edge.push(copy) {
                ws.spares.keep(spare);
            }
            self.rung |= 1 << edge.to.0;
            if edge.is_pending() && !self.waiting.contains(&stream) {
                self.waiting.push(stream);
            }
        }
        for id in readers {
            let copy = next(ws, None);
            match origin {
                Origin::Node => self.ready.push_back((id, copy)),
                Origin::Session | Origin::Context => self.enqueue(id, copy, ws),
            }
        }
        if holds {
            let copy = next(ws, None);
            port.held.push_back(copy);
            if !self.fed.contains(&stream) {
                self.fed.push(stream);
            }
        }
        if is_shared {
            let batch = next(ws, None);
            self.share(&port, batch, is_noted, ws);
        }
        self.put_port_back(stream, port);
        batch.into_iter().for_each(|batch| ws.spares.keep(batch));
        takes
    }

    /// Puts a batch into a node's queue.
    pub(super) fn enqueue(&mut self, id: NodeId, batch: Batch, ws: &mut Workspace) {
        if let Some(batch) = self.join_queue(id, batch) {
            ws.spares.keep(batch);
        }
    }

    /// The same; returns the batch where the queue does not take it.
    fn join_queue(&mut self, id: NodeId, batch: Batch) -> Option<Batch> {
        let limit = self.limit;
        let Some(node) = self.present_node_mut(id) else { return Some(batch) };
        let drops = node.policy.drops;
        let Some(input) = node.input(batch.stream) else {
            debug_assert!(false, "a port's readers read its stream");
            return Some(batch);
        };
        if drops && input.queue.len() >= limit {
            node.gauges.lose(Loss::QueueFull, batch.len() as u64);
            return Some(batch);
        }
        input.queue.push_back(Item::Batch(Queued::Own(batch)));
        None
    }

    /// Puts what is on its way to the readers of a stream into their queues, so that it stays before its end or a marker.
    pub(super) fn queue_ready(&mut self, stream: u32) {
        let mut ready = std::mem::take(&mut self.ready);
        ready.retain_mut(|(id, batch)| {
            let is_other = batch.stream != stream;
            if !is_other {
                batch.since_ns = self.now_ns;
                drop(self.join_queue(*id, std::mem::take(batch)));
            }
            is_other
        });
        self.ready = ready;
    }

    /// A publisher of a stream has stopped, here or elsewhere. Each is reported to sessions.
    fn note_end(&mut self, stream: u32) {
        if let Some(port) = self.port_mut(stream) {
            port.pending_ends += 1;
        }
        self.look_again(stream);
    }

    /// Something has changed that decides how many publishers a stream has.
    pub(super) fn look_again(&mut self, stream: u32) {
        if let Some(port) = self.port_mut(stream) {
            port.is_settled = false;
        }
        self.settle_publishers(stream);
    }

    /// Finds out how many publishers a stream has, once all feeds have said what they had to say until now. Sessions hear of those
    /// that have stopped, readers when there are none left, and what is made of the stream has a publisher again with the first.
    pub(super) fn settle_publishers(&mut self, stream: u32) {
        if self.port(stream).is_none_or(|port| port.is_settled) {
            return;
        }
        let here = self.publishers_of(stream);
        let Some(mut port) = self.lift_present_port(stream) else { return };
        port.settle(here);
        let ends = port.take_ends();
        (0..ends).for_each(|_| self.end_at_sessions(&port, port.publishers.unwrap_or_default()));
        // The end follows what is held, and what changes.
        let may_end = port.held.is_empty() && port.next.is_none();
        for (publishers, of_own) in [(port.publishers, false), (here, true)] {
            let has_ended = may_end && publishers == Some(0);
            if has_ended && !port.have_ended(of_own) {
                self.end_for_readers(&port, stream, of_own);
            }
            port.set_ended(of_own, has_ended);
        }
        let has_ended = port.publishers == Some(0);
        self.put_port_back(stream, port);
        if has_ended {
            // The output of it follows with the end in the readers' queues.
            return;
        }
        let mut at = 0;
        while let Some(reader) = self.port(stream).and_then(|port| port.readers.get(at)).copied() {
            let makes = self.present_node(reader.id).and_then(Node::makes);
            makes.into_iter().for_each(|makes| self.settle_made(makes));
            at += 1;
        }
    }

    /// Gives the end of a stream to nodes that read it here: to those that take only what is published here, or to the others; with how
    /// many publishers were lost since it had none before.
    fn end_for_readers(&mut self, port: &Port, stream: u32, of_own: bool) {
        self.queue_ready(stream);
        let losses = port.losses - port.losses_before;
        // One that nobody has published yet is about to begin.
        let count = port.has_begun.then_some(0);
        for reader in port.readers.iter().filter(|reader| reader.reads_own == of_own) {
            let input = self.present_node_mut(reader.id).and_then(|node| node.input(stream));
            debug_assert!(input.is_some(), "a port's readers read its stream");
            input.into_iter().for_each(|input| input.queue.push_back(Item::End(Publishers { count, losses })));
        }
    }

    /// Gives what sessions published while a change was under way to those that read it from then on.
    fn release_held(&mut self, stream: u32, ws: &mut Workspace) {
        if self.port(stream).is_none_or(|port| port.held.is_empty() || port.next.is_some()) {
            return;
        }
        let Some(mut port) = self.lift_present_port(stream) else { return };
        for batch in std::mem::take(&mut port.held) {
            for id in readers_of(&port.readers, Origin::Session) {
                let copy = ws.spares.copy(&batch);
                self.enqueue(id, copy, ws);
            }
            ws.spares.keep(batch);
        }
        if port.feeds.is_empty() {
            self.fed.retain(|fed| *fed != stream);
        }
        let is_unused = port.is_unused();
        self.put_port_back(stream, port);
        self.look_again(stream);
        if is_unused {
            self.close_port(stream);
        }
    }

    /// Puts something other than a batch into all edges of a stream.
    fn push_to_edges(&mut self, stream: u32, item: impl Fn() -> Item) {
        // Nothing reads it anywhere.
        let Some(mut port) = self.lift_port(stream) else { return };
        for edge in &mut port.edges {
            edge.push_control(item());
            self.rung |= 1 << edge.to.0;
            if edge.is_pending() && !self.waiting.contains(&stream) {
                self.waiting.push(stream);
            }
        }
        self.put_port_back(stream, port);
    }

    /// A context has said how many publishers of a stream it has now, and how many it has lost.
    fn take_publishers(&mut self, stream: u32, feed: usize, said: Publishers) {
        let feed = self.present_port_mut(stream).and_then(|port| port.feeds.get_mut(feed));
        debug_assert!(feed.is_some(), "what came by a feed is worked on before the port changes");
        let Some(feed) = feed else { return };
        feed.publishers = said.count;
        // A loss before the feed has reported for the first time is none of those who read here.
        let before = feed.losses.replace(said.losses).unwrap_or(said.losses);
        self.note_losses(stream, said.losses.saturating_sub(before), false);
    }

    /// Takes what came by the edges of a stream, as far as there is room for it.
    pub(super) fn pull(&mut self, stream: u32, ws: &mut Workspace) {
        self.release_held(stream, ws);
        for _ in 0..QUEUE_BATCHES {
            // Nothing more has come, or there is no room for it.
            let Some((feed, item)) = self.pop_feed(stream, ws) else { return self.settle_publishers(stream) };
            match item {
                Item::Batch(batch) => {
                    let batch = ws.spares.own(batch);
                    if !self.deliver(stream, batch, Origin::Context, ws) {
                        // Its readers have gone, and the edge ends with the marker that follows.
                        continue;
                    }
                }
                Item::End(publishers) => {
                    self.take_publishers(stream, feed, publishers);
                    self.note_end(stream);
                }
                Item::Publishers(publishers) => {
                    self.take_publishers(stream, feed, publishers);
                    self.look_again(stream);
                }
                Item::Marker(_) => {
                    self.check_port(stream);
                    self.release_held(stream, ws);
                }
                Item::Held(_) => debug_assert!(false, "nothing held crosses an edge"),
            }
        }
    }

    /// The next item that came by an edge, and the position of its feed.
    fn pop_feed(&mut self, stream: u32, ws: &mut Workspace) -> Option<(usize, Item)> {
        let port = self.port(stream)?;
        // A batch before an awaited marker is taken in, room or not: it holds the same buffers here as in the ring.
        let awaits_marker = port.next.as_ref().is_some_and(|next| !next.marked_feeds.is_empty());
        let is_ready = port.feeds.iter().any(|feed| feed.marker.is_none());
        if !is_ready || !(awaits_marker || self.room_here(stream, Origin::Context) > 0) {
            return None;
        }
        let port = self.port_mut(stream)?;
        for _ in 0..port.feeds.len() {
            let at = port.next_feed % port.feeds.len();
            port.next_feed = port.next_feed.wrapping_add(1);
            // Those that have brought their markers wait for the others.
            let Some(feed) = port.feeds.get_mut(at).filter(|feed| feed.marker.is_none()) else { continue };
            let item = feed.receiver.pop();
            match &item {
                Some(Item::Batch(_)) => feed.receiver.give_back(ws.spares.take()),
                Some(Item::Marker(change)) => feed.marker = Some(*change),
                Some(Item::End(_) | Item::Publishers(_) | Item::Held(_)) => {}
                None => continue,
            }
            return item.map(|item| (at, item));
        }
        None
    }
}
