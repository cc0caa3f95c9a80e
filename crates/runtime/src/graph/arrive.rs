//! What comes of a stream to a context, from sessions, nodes and other contexts, and where it goes from there: to the nodes that
//! read the stream here, to sessions, and by edges to other contexts.

use crate::graph::NodeId;
use crate::graph::bounds::{ARRIVED_BATCHES, QUEUE_BATCHES};
use crate::graph::build::Workspace;
use crate::graph::edge::{Item, Queued, Sender};
use crate::graph::gauges::Loss;
use crate::graph::node::{Input, Node};
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
        self.port_mut(stream).is_none_or(|port| port.held.is_empty() && port.edges.iter_mut().all(Sender::is_empty))
    }

    /// A stream has more publishers here than before.
    pub(crate) fn note_publishers(&mut self, stream: u32, publishers: u32) {
        self.set_publishers(stream, publishers);
        self.push_to_edges(stream, || Item::Publishers(publishers));
        for at in 0..self.here.len() {
            let replica = self.here.get(at).and_then(|id| self.present_node(*id)).filter(|node| node.reads_own);
            let reads = replica.filter(|node| node.inputs.iter().any(|input| input.stream == stream));
            if let Some(makes) = reads.and_then(Node::makes) {
                self.settle_made(makes);
            }
        }
    }

    /// A publisher of a stream has stopped; the number of those that it still has here.
    pub(crate) fn arrive_end(&mut self, stream: u32, publishers: u32) {
        self.set_publishers(stream, publishers);
        self.deliver_end(stream);
    }

    fn set_publishers(&mut self, stream: u32, publishers: u32) {
        let at = stream as usize;
        if self.publishers.len() <= at {
            self.publishers.resize(at + 1, 0);
        }
        if let Some(here) = self.publishers.get_mut(at) {
            *here = publishers;
        }
    }

    /// Sessions here that publish a stream; 1 for a stream that replicas make, while the one here has something to make it of.
    pub(super) fn publishers_of(&self, stream: u32) -> u32 {
        self.publishers.get(stream as usize).copied().unwrap_or_default()
    }

    /// A stream that replicas make has a publisher here as long as one of the streams that the replica here reads has, or
    /// records of those wait.
    pub(super) fn settle_made(&mut self, makes: u32) {
        let goes_on = |input: &Input| {
            let is_held = self.port(input.stream).is_some_and(|port| !port.held.is_empty());
            let waits = input.queue.iter().any(|item| matches!(item, Item::Batch(_)));
            is_held || waits || self.publishers_of(input.stream) > 0
        };
        let goes_on = self.replicas(makes).any(|node| !node.spill.is_empty() || node.inputs.iter().any(goes_on));
        match (self.publishers_of(makes) > 0, goes_on) {
            (false, true) => self.note_publishers(makes, 1),
            (true, false) => self.arrive_end(makes, 0),
            (true, true) | (false, false) => {}
        }
    }

    /// A replica has gone, without an end of the stream that it made: another node may go on with it.
    pub(super) fn forget_made(&mut self, makes: u32) {
        if self.replicas(makes).next().is_none() {
            self.set_publishers(makes, 0);
        }
    }

    /// The nodes here that make a stream of what is published here.
    fn replicas(&self, makes: u32) -> impl Iterator<Item = &Node> {
        let nodes = self.here.iter().filter_map(|id| self.present_node(*id));
        nodes.filter(move |node| node.reads_own && node.makes() == Some(makes))
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
            // What is made here from now on comes after the marker.
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
        let limit = self.limit;
        let Some(node) = self.present_node_mut(id) else { return ws.spares.keep(batch) };
        let drops = node.policy.drops;
        let Some(input) = node.input(batch.stream) else {
            debug_assert!(false, "a port's readers read its stream");
            return ws.spares.keep(batch);
        };
        if drops && input.queue.len() >= limit {
            node.gauges.lose(Loss::QueueFull, batch.len() as u64);
            return ws.spares.keep(batch);
        }
        input.queue.push_back(Item::Batch(Queued::Own(batch)));
    }

    /// A publisher of a stream has stopped at this context: this is reported to the other contexts, and to the
    /// stream's readers here.
    pub(super) fn deliver_end(&mut self, stream: u32) {
        let publishers = self.publishers_of(stream);
        self.push_to_edges(stream, || Item::End(publishers));
        self.end_own(stream);
        self.end_here(stream);
    }

    /// Notifies the nodes that take only what is published here, behind what came, where nobody here publishes a stream now.
    pub(super) fn end_own(&mut self, stream: u32) {
        if self.publishers_of(stream) > 0 {
            return;
        }
        // Nothing reads it here.
        let Some(port) = self.lift_port(stream) else { return };
        // It follows what is held.
        if port.held.is_empty() {
            self.end_for_readers(&port, stream, true);
        }
        self.put_port_back(stream, port);
    }

    /// A publisher of a stream has stopped, here or elsewhere: the stream ends with the last. Each is reported to
    /// sessions. Whether
    /// it was the last is known once all feeds have said what they had to say until now.
    fn end_here(&mut self, stream: u32) {
        if let Some(port) = self.port_mut(stream) {
            port.pending_ends += 1;
        }
        self.settle_ends(stream);
    }

    /// Notifies sessions and readers of the publishers that have stopped, if it is known how many there are still.
    pub(super) fn settle_ends(&mut self, stream: u32) {
        if self.port(stream).is_none_or(|port| port.pending_ends == 0) {
            return;
        }
        let here = self.publishers_of(stream);
        let Some(mut port) = self.lift_present_port(stream) else { return };
        let (elsewhere, is_known) = port.publishers_elsewhere();
        let publishers = here + elsewhere;
        if publishers > 0 || is_known {
            let ends = std::mem::take(&mut port.pending_ends);
            for _ in 0..if port.is_made { u32::from(publishers == 0) } else { ends } {
                self.end_at_sessions(&port, publishers);
                // It follows what is held.
                if publishers == 0 && port.held.is_empty() {
                    self.end_for_readers(&port, stream, false);
                }
            }
        }
        self.put_port_back(stream, port);
    }

    /// Gives the end of a stream to nodes that read it here: to those that take only what is published here, or to the others.
    fn end_for_readers(&mut self, port: &Port, stream: u32, of_own: bool) {
        for reader in port.readers.iter().filter(|reader| reader.reads_own == of_own) {
            let input = self.present_node_mut(reader.id).and_then(|node| node.input(stream));
            debug_assert!(input.is_some(), "a port's readers read its stream");
            input.into_iter().for_each(|input| input.queue.push_back(Item::End(0)));
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
        if self.publishers_of(stream) == 0 && port.publishers_elsewhere() == (0, true) {
            self.end_for_readers(&port, stream, false);
        }
        if port.feeds.is_empty() {
            self.fed.retain(|fed| *fed != stream);
        }
        let is_unused = port.is_unused();
        self.put_port_back(stream, port);
        self.end_own(stream);
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

    /// A context has said how many publishers of a stream it has now.
    fn take_publishers(&mut self, stream: u32, feed: usize, publishers: u32) {
        let feed = self.present_port_mut(stream).and_then(|port| port.feeds.get_mut(feed));
        debug_assert!(feed.is_some(), "what came by a feed is worked on before the port changes");
        feed.into_iter().for_each(|feed| feed.publishers = Some(publishers));
    }

    /// Takes what came by the edges of a stream, as far as there is room for it.
    pub(super) fn pull(&mut self, stream: u32, ws: &mut Workspace) {
        self.release_held(stream, ws);
        for _ in 0..QUEUE_BATCHES {
            // Nothing more has come, or there is no room for it.
            let Some((feed, item)) = self.pop_feed(stream, ws) else { return self.settle_ends(stream) };
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
                    self.end_here(stream);
                }
                Item::Publishers(publishers) => {
                    self.take_publishers(stream, feed, publishers);
                    self.settle_ends(stream);
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
        // What is before an awaited marker is taken in, room or not: it holds the same buffers here as in the ring.
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
