//! Nodes that convert records for sessions: for each format that they take, a chain of conversions as their handler, run
//! as any node's is ([`super::run`]), and the nodes of the sessions that get what they make.
//!
//! All sessions to which the formats of a stream take the same routes have the same node before them; it lets formats
//! pass that need no conversion, so that records stay in order. Records that nothing converts wait before it, in a node
//! of the session's own ([`super::hold`]). When there is a conversion, they go to a node that converts for
//! this session alone, until nothing waits there any more and it becomes one with that of the others. Where routes change
//! for some of several sessions, a node with the same in its queue is split off for these.

use crate::graph::NodeId;
use crate::graph::bounds::{PIECE_BYTES, spare_buffers};
use crate::graph::build::Workspace;
use crate::graph::edge::{Item, Publishers, Queued};
use crate::graph::gauges::Loss;
use crate::graph::node::{ConvertEnd, Destination, Event, Input, Instance, Node, RunTime, SessionEnd, Take, Turn};
use crate::graph::run::Outcome;
use crate::graph::serve::Graph;
use crate::graph::session::SessionStep;
use crossdock_engine::{Handler, HandlerCounters, RowErrorCounts, Sink, Verdict};
use crossdock_mailbox::{Batch, Selection};
use std::collections::VecDeque;
use std::sync::Arc;

/// Handlers that run chains of conversions, made away from the core: the numbers of their chains, and one for each node
/// that may need it.
#[derive(Debug, Default)]
pub(crate) struct Stock(Vec<(u64, Instance)>);

impl Stock {
    /// Adds a handler for a chain.
    pub(crate) fn put(&mut self, chain: u64, instance: Instance) {
        self.0.push((chain, instance));
    }

    fn take(&mut self, chain: u64) -> Option<Instance> {
        let at = self.0.iter().position(|(number, _)| *number == chain)?;
        Some(self.0.swap_remove(at).1)
    }
}

/// Lets records pass for which there is no conversion to be made.
struct Unchanged;

impl Handler for Unchanged {
    fn process(&mut self, _: &Batch, _: &mut Selection, _: &mut dyn Sink) -> Verdict {
        Verdict::Forward
    }

    fn counters(&self) -> HandlerCounters {
        HandlerCounters::default()
    }
}

impl ConvertEnd {
    /// Whether it lets all pass: only what has waited needs it.
    fn is_plain(&self) -> bool {
        self.takes.iter().all(|(_, take)| *take == Take::Direct)
    }
}

/// Routes: the nodes before a session.
impl Graph {
    /// Routes are about to be taken in.
    pub(crate) fn begin_routes(&mut self) {
        self.routings += 1;
    }

    /// How each format comes to a session from now on. Earlier records go first.
    pub(crate) fn route(&mut self, key: usize, takes: Vec<(u64, Take)>, stock: &mut Stock) {
        #[cfg(test)]
        self.panic_in_route_if_wanted();
        let reader = NodeId::of_subscription(key);
        let now = |(format, take): &(u64, Take)| match take {
            Take::Direct | Take::Convert(_) => Some((*format, *take)),
            Take::Hold | Take::Refuse => None,
        };
        let through: Vec<(u64, Take)> = takes.iter().filter_map(now).collect();
        let Some(session) = self.session_end(reader) else { return };
        session.takes = Some(takes);
        let leaving = self.take_leaving(reader, &through);
        let source = self.source(reader, true);
        if !leaving.is_empty() {
            let own = self.own(reader, source, through, stock);
            self.put_last(own, leaving);
            self.note_split(own, None);
            return;
        }
        match source {
            Some(id) if self.takes_of(id) == through => {}
            Some(id) if self.is_drained(id) => {
                self.part(id, reader);
                self.choose(reader, through, stock);
            }
            Some(id) => match self.split_off(id, &through) {
                Some(same) => {
                    self.join(same, reader);
                    self.part(id, reader);
                }
                None => drop(self.own(reader, source, through, stock)),
            },
            None => self.choose(reader, through, stock),
        }
    }

    /// A session gets the node that others with its routes have, if that has nothing left, or a new one; none where it
    /// takes all as it comes.
    fn choose(&mut self, reader: NodeId, takes: Vec<(u64, Take)>, stock: &mut Stock) {
        if takes.iter().all(|(_, take)| *take == Take::Direct) {
            return;
        }
        let Some(stream) = self.stream_of(reader) else { return };
        let id = self.drained_with(stream, &takes, None).unwrap_or_else(|| {
            let id = self.add_convert(stream);
            self.set_takes(id, takes, &[], stock);
            id
        });
        self.join(id, reader);
    }

    /// A node before one session only, with its routes, and with what waited for it in the node that it had.
    fn own(&mut self, reader: NodeId, source: Option<NodeId>, takes: Vec<(u64, Take)>, stock: &mut Stock) -> NodeId {
        let end = source.and_then(|id| self.present_node(id)).and_then(Node::convert);
        let before: Vec<(u64, Take)> = end.map(|end| [&*end.takes, &end.left].concat()).unwrap_or_default();
        let id = match source {
            Some(id) if self.readers_of(id).len() == 1 => id,
            Some(id) => self.split(id, reader),
            None => {
                let id = self.add_convert(self.stream_of(reader).unwrap_or_default());
                self.join(id, reader);
                id
            }
        };
        self.set_takes(id, takes, &before, stock);
        self.note_split(id, source.filter(|from| *from != id));
        self.list(id);
        id
    }

    /// A node that takes nothing.
    pub(super) fn add_convert(&mut self, stream: u32) -> NodeId {
        let at = self.converts.iter().position(Option::is_none).unwrap_or(self.converts.len());
        let id = NodeId::of_convert(at);
        self.set_node(Box::new(Node::with(id, Vec::new(), Destination::Convert(ConvertEnd::default()), &[stream])));
        id
    }

    /// A node takes these formats from now on. A waiting record of others goes the way that it would have gone
    /// `before`, as it came while there was one. Chains that the node has already go on.
    fn set_takes(&mut self, id: NodeId, takes: Vec<(u64, Take)>, before: &[(u64, Take)], stock: &mut Stock) {
        let Some(node) = self.present_node_mut(id) else { return };
        let waiting: Vec<u64> = node.waiting_formats().collect();
        let is_left =
            |(format, _): &&(u64, Take)| waiting.contains(format) && !takes.iter().any(|(of, _)| of == format);
        let left: Vec<(u64, Take)> = before.iter().filter(is_left).copied().collect();
        let mut instances = std::mem::take(&mut node.instances);
        for (format, take) in takes.iter().chain(&left) {
            let at = instances.iter().position(|instance| instance.format == *format);
            let known = at.filter(|_| before.contains(&(*format, *take))).map(|at| instances.swap_remove(at));
            let unchanged =
                || Instance { stream: None, format: *format, handler: Some(Box::new(Unchanged)), output: *format };
            let instance = known.or_else(|| match take {
                Take::Convert(chain) => stock.take(*chain),
                Take::Direct | Take::Hold | Take::Refuse => Some(unchanged()),
            });
            node.instances.extend(instance);
        }
        let has_all = takes.iter().all(|(format, _)| node.instances.iter().any(|instance| instance.format == *format));
        debug_assert!(has_all, "there is a handler for each route that is new");
        node.out_bytes_per_record = None;
        let is_fed = !takes.is_empty();
        let Some(end) = self.convert_end(id) else { return };
        let was_fed = !end.takes.is_empty();
        (end.takes, end.left) = (takes, left);
        if was_fed != is_fed {
            let port = self.stream_of(id).and_then(|stream| self.present_port_mut(stream));
            port.into_iter().for_each(|port| match is_fed {
                true => port.converts.push(id),
                false => port.converts.retain(|other| *other != id),
            });
        }
        self.drop_unknown(id);
        for other in self.alike(id) {
            self.convert_end(other).into_iter().for_each(|end| end.may_join = true);
        }
        self.share_sessions();
    }

    /// Drops what waits of formats that a node cannot make anything of any more: of a node that was split off when it was
    /// made for another, and whose routes have changed twice since.
    fn drop_unknown(&mut self, id: NodeId) {
        let Some(Node { instances, inputs, .. }) = self.present_node_mut(id) else { return };
        let Some(input) = inputs.first_mut() else { return debug_assert!(false, "it reads a stream") };
        let is_unknown =
            |item: &Item| item.format().is_some_and(|format| !instances.iter().any(|known| known.format == format));
        let lost = input.queue.iter().filter(|item| is_unknown(item)).map(Item::records).sum();
        if lost > 0 {
            input.done = if input.queue.front().is_some_and(is_unknown) { 0 } else { input.done };
            input.queue.retain(|item| !is_unknown(item));
            self.recount(id);
            self.lose(id, Loss::NotConvertible, lost);
        }
    }

    /// A node for one of several sessions, with the same in its queue.
    fn split(&mut self, id: NodeId, reader: NodeId) -> NodeId {
        let Some((node, input)) = self.present_node(id).and_then(|node| Some((node, node.inputs.first()?))) else {
            debug_assert!(false, "it reads a stream");
            return id;
        };
        let share = |item: &Item| match item {
            Item::Batch(batch) => Item::Batch(Queued::Shared(batch.shared())),
            Item::Held(held) => Item::Held(held.clone()),
            Item::End(publishers) => Item::End(*publishers),
            Item::Publishers(publishers) => Item::Publishers(*publishers),
            Item::Marker(change) => Item::Marker(*change),
        };
        let queue: VecDeque<Item> = input.queue.iter().map(share).collect();
        let (stream, done, spill) = (input.stream, input.done, node.spill.clone());
        let own = self.add_convert(stream);
        if let Some(node) = self.present_node_mut(own) {
            node.spill = spill;
        }
        if let Some(input) = self.input_of(own) {
            (input.queue, input.done) = (queue, done);
            input.note_joined();
        }
        // Not the other way round: an end that waits in both is not to be taken for one that has passed.
        self.join(own, reader);
        self.part(id, reader);
        own
    }

    /// Notes which node another one was split off, and has the same waiting as.
    fn note_split(&mut self, id: NodeId, from: Option<NodeId>) {
        let split = from.map(|from| (from, self.routings));
        if let Some(end) = self.convert_end(id) {
            end.split = split;
        }
    }

    /// The node that was split off another one for these routes, and has the same waiting still.
    fn split_off(&self, from: NodeId, takes: &[(u64, Take)]) -> Option<NodeId> {
        let is_it = |id: &NodeId| {
            let end = self.node(*id).and_then(Node::convert);
            end.is_some_and(|end| end.split == Some((from, self.routings)) && end.takes == takes)
        };
        (0..self.converts.len()).map(NodeId::of_convert).find(is_it)
    }

    /// A session gets what a node makes from now on.
    pub(super) fn join(&mut self, id: NodeId, reader: NodeId) {
        if let Some(end) = self.convert_end(id) {
            end.readers.push(reader);
        }
        if let Some(session) = self.session_end(reader) {
            session.sources.push(id);
        }
        self.set_policy(id);
    }

    /// A session gets nothing more of a node, which goes with the last one.
    pub(super) fn part(&mut self, id: NodeId, reader: NodeId) {
        if let Some(session) = self.session_end(reader) {
            session.sources.retain(|source| *source != id);
        }
        let Some(end) = self.convert_end(id) else { return };
        end.readers.retain(|other| *other != reader);
        if end.readers.is_empty() {
            self.remove_convert(id);
        } else {
            self.set_policy(id);
            self.wake(id);
        }
        self.release_ends(reader);
    }

    fn remove_convert(&mut self, id: NodeId) {
        if let Some(port) = self.stream_of(id).and_then(|stream| self.present_port_mut(stream)) {
            port.converts.retain(|other| *other != id);
        }
        let held = self.lift(id).and_then(|node| node.convert().map(|end| end.held.1));
        debug_assert!(held.is_some(), "it converts");
        self.holding.bytes -= held.unwrap_or(0);
        self.share_sessions();
    }

    /// A node withholds credit if one of its sessions does.
    fn set_policy(&mut self, id: NodeId) {
        let blocks = |reader: &NodeId| self.present_node(*reader).is_some_and(|node| !node.policy.drops);
        let drops = !self.readers_of(id).iter().any(blocks);
        if let Some(node) = self.present_node_mut(id) {
            node.policy.drops = drops;
        }
    }

    /// A node that has nothing left goes if it is not needed any longer, or becomes one with another.
    fn settle_drained(&mut self, id: NodeId) {
        let Some((node, end)) = self.present_node(id).and_then(|node| Some((node, node.convert()?))) else { return };
        let mut into = None;
        if node.converts() && !end.is_plain() {
            if !end.may_join {
                return;
            }
            let Some(stream) = self.stream_of(id) else { return };
            into = self.drained_with(stream, &end.takes, Some(id));
            if into.is_none() {
                let may_join = self.alike(id).len() > 1;
                return self.convert_end(id).into_iter().for_each(|end| end.may_join = may_join);
            }
        }
        for reader in self.readers_of(id).to_vec() {
            into.into_iter().for_each(|other| self.join(other, reader));
            self.part(id, reader);
        }
    }

    /// The nodes of a stream that take the same as one of them, this one included.
    fn alike(&self, id: NodeId) -> Vec<NodeId> {
        let port = self.stream_of(id).and_then(|stream| self.port(stream));
        let converts = port.into_iter().flat_map(|port| &port.converts).copied();
        converts.filter(|other| self.takes_of(*other) == self.takes_of(id)).collect()
    }

    /// A node of a stream that takes these and has nothing left, other than `but`; not where a chain has panicked.
    fn drained_with(&self, stream: u32, takes: &[(u64, Take)], but: Option<NodeId>) -> Option<NodeId> {
        let is_whole = |node: &Node| node.instances.iter().all(|instance| instance.handler.is_some());
        let is_it = |id: &NodeId| {
            let is_other = Some(*id) != but && self.takes_of(*id) == takes;
            is_other && self.is_drained(*id) && self.present_node(*id).is_some_and(is_whole)
        };
        self.port(stream)?.converts.iter().copied().find(is_it)
    }

    fn is_drained(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|node| node.waiting() == 0 && node.spill.is_empty())
    }

    /// The node before a session that converts, or the one where its records wait.
    pub(super) fn source(&self, reader: NodeId, converts: bool) -> Option<NodeId> {
        let sources = &self.present_node(reader)?.session()?.sources;
        let is_it = |id: &&NodeId| self.present_node(**id).is_some_and(|node| node.converts() == converts);
        sources.iter().find(is_it).copied()
    }

    fn takes_of(&self, id: NodeId) -> &[(u64, Take)] {
        self.present_node(id).and_then(Node::convert).map(|end| &*end.takes).unwrap_or_default()
    }

    fn readers_of(&self, id: NodeId) -> &[NodeId] {
        self.present_node(id).and_then(Node::convert).map(|end| &*end.readers).unwrap_or_default()
    }

    fn stream_of(&self, id: NodeId) -> Option<u32> {
        let stream = self.present_node(id).and_then(|node| node.inputs.first()).map(|input| input.stream);
        debug_assert!(stream.is_some(), "such a node reads a stream");
        stream
    }

    /// The only input of a session's node, or of one that converts for sessions.
    #[inline]
    #[track_caller]
    pub(super) fn input_of(&mut self, id: NodeId) -> Option<&mut Input> {
        let input = self.present_node_mut(id).and_then(|node| node.inputs.first_mut());
        debug_assert!(input.is_some(), "such a node reads a stream");
        input
    }

    /// The session part of a session's node.
    #[inline]
    #[track_caller]
    pub(super) fn session_end(&mut self, id: NodeId) -> Option<&mut SessionEnd> {
        let session = self.present_node_mut(id).and_then(Node::session_mut);
        debug_assert!(session.is_some(), "{id:?} ends in a session");
        session
    }

    /// The conversion part of a session's source.
    #[track_caller]
    fn convert_end(&mut self, id: NodeId) -> Option<&mut ConvertEnd> {
        let end = self.present_node_mut(id).and_then(Node::convert_mut);
        debug_assert!(end.is_some(), "{id:?} converts for sessions");
        end
    }

    /// Nodes that convert: what they make is as one stream more for sessions.
    pub(super) fn converting(&self) -> usize {
        self.converts.iter().flatten().filter(|node| node.converts()).count()
    }

    /// The formats of records that may have been made for a subscription already, or are made yet of what came before.
    pub(super) fn made_for(&self, key: usize) -> Vec<u64> {
        let session = self.present_node(NodeId::of_subscription(key)).and_then(Node::session);
        let nodes = session.into_iter().flat_map(|session| &session.sources).filter_map(|id| self.present_node(*id));
        let made =
            |node: &Node| [node.spill.format].into_iter().chain(node.instances.iter().map(|i| i.output)).collect();
        nodes.flat_map::<Vec<u64>, _>(made).collect()
    }
}

/// The passage of batches through these nodes.
impl Graph {
    /// Whether a batch of a stream is to go to a session that accepts certain formats only, unchanged and at once.
    pub(super) fn takes_now(&mut self, reader: NodeId, batch: &Batch) -> bool {
        let Some(node) = self.present_node(reader) else { return false };
        // It takes all formats.
        let Some(SessionEnd { key, takes: Some(takes), .. }) = node.session() else { return true };
        let (key, format) = (*key, batch.format);
        match takes.iter().find(|(known, _)| *known == format) {
            Some((_, Take::Direct)) => self.source(reader, true).is_none(),
            // The node that converts it has it, or it came before it was known how.
            Some((_, Take::Convert(_))) | None => false,
            Some((_, Take::Hold)) => {
                self.events.push_back(Event::Unroutable { key, format });
                self.hold_for(reader, batch);
                false
            }
            Some((_, Take::Refuse)) => {
                node.gauges.published.add(batch.len() as u64);
                node.gauges.lose(Loss::Unreadable, batch.len() as u64);
                self.events.extend([Event::Unroutable { key, format }, Event::Lost { key }]);
                false
            }
        }
    }

    /// Whether a subscription takes records of a format unchanged.
    pub(crate) fn takes_unchanged(&self, key: usize, format: u64) -> bool {
        let reader = NodeId::of_subscription(key);
        self.present_node(reader).and_then(Node::session).is_some_and(|session| match &session.takes {
            None => true,
            Some(takes) => takes.contains(&(format, Take::Direct)) && self.source(reader, true).is_none(),
        })
    }

    /// Gives a batch that came at a port to a node that converts, if it takes that format.
    pub(super) fn enqueue_convert(&mut self, id: NodeId, batch: &Arc<Batch>) {
        let limit = self.session_limit;
        let Some(node) = self.present_node_mut(id) else { return };
        let drops = node.policy.drops;
        let Node { inputs, destination: Destination::Convert(end), .. } = node else {
            return debug_assert!(false, "a port's nodes convert");
        };
        if !end.takes.iter().any(|(format, _)| *format == batch.format) {
            return;
        }
        let holds = end.held.0 > 0;
        let Some(input) = inputs.first_mut() else { return debug_assert!(false, "such a node reads a stream") };
        match () {
            // A batch that came before it waits as a copy.
            () if holds => self.hold(id, batch, 0),
            () if drops && input.is_full_for(batch, limit) => self.lose(id, Loss::QueueFull, batch.len() as u64),
            () => {
                input.put_shared(batch);
                self.list(id);
            }
        }
    }

    /// Records have not come to the sessions of a node.
    pub(super) fn lose(&mut self, id: NodeId, why: Loss, records: u64) {
        for reader in self.readers_of(id).to_vec() {
            let Some(node) = self.present_node(reader) else { continue };
            node.gauges.published.add(records);
            node.gauges.lose(why, records);
            let event = node.session().map(|session| Event::Lost { key: session.key });
            self.events.extend(event);
        }
    }

    /// Counts for the sessions of a node why it could not make records for them.
    #[cold]
    fn note_conversion_errors(&self, id: NodeId, counts: &RowErrorCounts) {
        let Some(node) = self.present_node(id) else { return };
        for reader in self.readers_of(id).iter().filter_map(|reader| self.present_node(*reader)) {
            reader.gauges.note_conversion_errors(counts, node.gauges.first_row_error());
        }
    }

    /// The output of a node goes to its sessions.
    pub(super) fn hand_to_sessions(&mut self, readers: &[NodeId], batch: Batch, ws: &mut Workspace) {
        let batch = ws.spares.share(batch);
        readers.iter().for_each(|reader| self.enqueue_shared(*reader, &batch));
        ws.spares.keep_shared(batch);
    }

    /// Batches for which all sessions have room that a node converts for, and that withhold credit.
    pub(super) fn room_of_readers(&self, end: &ConvertEnd) -> usize {
        let blocking = end.readers.iter().filter_map(|id| self.present_node(*id)).filter(|node| !node.policy.drops);
        blocking.map(|node| node.room(self.session_limit)).min().unwrap_or(usize::MAX)
    }

    /// Batches for which a node that converts has room, if it withholds credit: none before the records have gone that
    /// have waited for a conversion.
    pub(super) fn room_of_convert(&self, id: NodeId) -> Option<usize> {
        let node = self.present_node(id).filter(|node| !node.policy.drops)?;
        let holds = node.convert()?.held.0 > 0;
        Some(if holds { 0 } else { node.room(self.session_limit) })
    }

    /// Lets a node convert the next of what waits, as far as its sessions have room and there are buffers.
    pub(super) fn step_convert(&mut self, id: NodeId, ws: &mut Workspace) -> Option<SessionStep> {
        // It may have gone since it was listed.
        let node = self.node_mut(id)?;
        node.turn = Turn::None;
        let (is_waiting, spilled_bytes) = (!node.converts(), node.spill.first_bytes());
        let needs_room = match node.inputs.first()?.queue.front() {
            _ if !node.spill.is_empty() => true,
            None => {
                self.settle_drained(id);
                return None;
            }
            Some(Item::End(_)) => false,
            // It waits for a conversion.
            Some(_) if is_waiting => return None,
            Some(_) => true,
        };
        if needs_room && self.room_of(id) == 0 {
            self.present_node_mut(id)?.turn = Turn::Awaited;
            return None;
        }
        let spare = spare_buffers(ws.large_buffers).max(1);
        // A record that has spilled may be longer than a large buffer.
        if needs_room && !(ws.pool.has_free(PIECE_BYTES, spare) && ws.pool.has_free(spilled_bytes, 1)) {
            self.list(id);
            return None;
        }
        let step = self.run_convert(id, ws);
        match self.is_drained(id) {
            true => self.settle_drained(id),
            false => self.list(id),
        }
        step
    }

    fn run_convert(&mut self, id: NodeId, ws: &mut Workspace) -> Option<SessionStep> {
        let node = self.present_node(id)?;
        let lost = |node: &Node| {
            let lost = node.gauges.lost(Loss::Failed) + node.gauges.lost(Loss::Unreadable);
            (node.gauges.row_errors.get(), lost, node.gauges.row_errors_by())
        };
        let (stream, before) = (node.inputs.first()?.stream, lost(node));
        let (mut chain, mut has_failed) = (None, false);
        if !node.spill.is_empty() {
            self.unspill(id, ws);
        } else {
            if !self.load_held(id, ws) {
                return None;
            }
            match self.present_node_mut(id)?.take_next()? {
                (input, Item::Batch(batch), done) => {
                    chain = self.takes_of(id).iter().find(|(format, _)| *format == batch.format).map(|(_, take)| *take);
                    let room = self.room_of(id);
                    if let Some(mut job) = self.begin(id, (input, batch, done), (room, RunTime::Long), ws) {
                        let ran = job.run(ws);
                        has_failed = ran.0 == Outcome::Panicked;
                        self.finish(job, ran, ws);
                    }
                }
                (_, item, _) => {
                    debug_assert!(matches!(item, Item::End(_)), "nothing else waits here");
                    self.readers_of(id).to_vec().into_iter().for_each(|reader| self.release_ends(reader));
                }
            }
        }
        let after = lost(self.present_node(id)?);
        let (errors, lost) = (after.0 - before.0, after.1 - before.1);
        if errors + lost > 0 {
            self.note_conversion_errors(id, &std::array::from_fn(|at| after.2[at] - before.2[at]));
            self.lose(id, Loss::NotConvertible, errors + lost);
        }
        let chain = if let Some(Take::Convert(chain)) = chain { Some(chain) } else { None };
        Some(SessionStep::Converted { stream, chain, lost, has_failed })
    }

    /// Room in a session's node: nodes that convert for it may go on.
    pub(super) fn wake_sources(&mut self, id: NodeId) {
        for at in 0.. {
            let session = self.present_node(id).and_then(Node::session);
            // Those were all.
            let Some(source) = session.and_then(|session| session.sources.get(at)).copied() else { return };
            self.wake(source);
        }
    }

    /// A publisher has stopped: a node that has something left comes to its end behind that.
    pub(super) fn end_at_convert(&mut self, id: NodeId, publishers: Publishers) {
        if self.is_drained(id) {
            return;
        }
        if let Some(input) = self.input_of(id) {
            input.queue.push_back(Item::End(publishers));
        }
        self.list(id);
    }

    /// The same for a session, before which there may be nodes.
    pub(super) fn end_for_session(&mut self, id: NodeId, publishers: Publishers) {
        let Some(session) = self.session_end(id) else { return };
        if session.sources.is_empty() {
            return self.enqueue_end(id, publishers);
        }
        session.ends.push_back(publishers);
        // Others are at the port.
        for source in session.sources.clone() {
            if self.takes_of(source).is_empty() {
                self.end_at_convert(source, publishers);
            }
        }
        self.release_ends(id);
    }

    /// Gives a session's node the ends of publishers that its sources have come to.
    pub(super) fn release_ends(&mut self, id: NodeId) {
        let is_end = |item: &&Item| matches!(item, Item::End(_));
        let ends_in = |id: &NodeId| {
            let queue = self.present_node(*id).and_then(|node| node.inputs.first()).map(|input| input.queue.iter());
            queue.into_iter().flatten().filter(is_end).count()
        };
        let session = self.present_node(id).and_then(Node::session);
        let behind = session.and_then(|session| session.sources.iter().map(ends_in).max()).unwrap_or(0);
        while let Some(session) = self.session_end(id)
            && session.ends.len() > behind
            && let Some(publishers) = session.ends.pop_front()
        {
            self.enqueue_end(id, publishers);
        }
    }
}
