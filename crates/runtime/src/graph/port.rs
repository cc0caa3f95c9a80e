//! A stream at a context: where its batches arrive and to whom they go from there.

use crate::graph::edge::{Item, Overflow, Publishers, Receiver, Sender};
use crate::graph::{ContextIndex, NodeId};
use crossdock_mailbox::Batch;
use std::collections::VecDeque;
use std::hint::black_box;

/// The end of an edge by which batches come from another context.
#[derive(Debug)]
pub(crate) struct Feed {
    pub(super) receiver: Receiver,
    /// The context at the other end.
    pub(super) from: ContextIndex,
    /// The marker that came by it: nothing more is taken from it until the port changes.
    pub(super) marker: Option<u64>,
    /// Publishers of the stream at the other end, behind the records that came; not known before the first item has come, or while
    /// it is not known there.
    pub(super) publishers: Option<u32>,
    /// Those among them that were lost so far, as far as that was said.
    pub(super) losses: Option<u32>,
}

impl Feed {
    pub(crate) fn new(receiver: Receiver, from: ContextIndex) -> Feed {
        Feed { receiver, from, marker: None, publishers: None, losses: None }
    }
}

/// A node that reads a stream at a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reader {
    pub(crate) id: NodeId,
    /// Whether it takes only what is published or made at this context.
    pub(crate) reads_own: bool,
}

/// A stream at a context.
#[derive(Debug, Default)]
pub(crate) struct Port {
    /// The stream's number.
    pub(super) stream: u32,
    /// The nodes here that read it.
    pub(super) readers: Vec<Reader>,
    /// The nodes of sessions that read it, in the order in which they came. Changes leave them alone.
    pub(super) sessions: Vec<NodeId>,
    /// The nodes that convert records of the stream for some of these.
    pub(super) converts: Vec<NodeId>,
    /// To the other contexts where it is read.
    pub(super) edges: Vec<Sender>,
    /// From the other contexts where it is made.
    pub(super) feeds: Vec<Feed>,
    /// Which feed is served next.
    pub(super) next_feed: usize,
    /// Whether what comes of it from elsewhere is for the sessions here too, also while none reads it.
    pub(super) is_delivered: bool,
    /// Whether nodes make it: of its ends only the last is reported, once.
    pub(super) is_made: bool,
    /// Whether its publishers are held back.
    pub(super) is_blocked: bool,
    /// Batches that sessions here published after the edges had changed and before the readers have: these are for the readers
    /// of afterwards.
    pub(super) held: VecDeque<Batch>,
    /// Publishers of the stream at all contexts, when that was last looked at; unknown while not all contexts have said it.
    pub(super) publishers: Option<u32>,
    /// Publishers that have gone without having finished since the port is there, as far as that has come here.
    pub(super) losses: u32,
    /// Those of them before the stream had no publisher last and got one. Until then all readers hear of the same losses with its end,
    /// those too that hear of it again since others have come or gone.
    pub(super) losses_before: u32,
    /// Whether it had no publisher when that was last known.
    had_none: bool,
    /// Whether nothing has changed since that could make it another number.
    pub(super) is_settled: bool,
    /// Publishers that have stopped and are not yet reported to sessions.
    pub(super) pending_ends: u32,
    /// Whether a stream that nodes make has had something to make it of since its last end.
    was_published: bool,
    /// Whether it has had a publisher since the port is there.
    pub(super) has_begun: bool,
    /// Whether the readers have the end in their queues: those that take all of it, and those that take only what is published or
    /// made here.
    have_ended: [bool; 2],
    /// Its next state when all markers of a change have come.
    pub(super) next: Option<Box<PortChange>>,
}

impl Port {
    /// Whether nobody takes it.
    pub(crate) fn is_unread(&self) -> bool {
        self.is_unplanned() && self.sessions.is_empty()
    }

    /// Whether no change has led it anywhere.
    fn is_unplanned(&self) -> bool {
        self.readers.is_empty() && self.edges.is_empty() && !self.is_delivered
    }

    /// Whether a node here that makes the stream has to wait until the port has changed: it waits for markers, or nothing
    /// made the stream here before.
    pub(crate) fn awaits_change(&self, next: &PortChange) -> bool {
        !next.is_due(self) || !self.feeds.is_empty() || self.is_unplanned()
    }

    /// Whether nothing waits here or in the edges from other contexts, and nothing in front of those to them.
    pub(super) fn is_dry(&mut self) -> bool {
        let has_left = self.held.is_empty() && self.next.is_none() && self.edges.iter().all(|edge| !edge.is_pending());
        has_left && self.feeds.iter_mut().all(|feed| feed.receiver.is_drained())
    }

    /// Whether nothing leads to it or from it.
    pub(crate) fn is_unused(&self) -> bool {
        self.is_unread() && self.feeds.is_empty() && self.held.is_empty() && self.next.is_none()
    }

    /// Whether batches that sessions here publish are for the readers of afterwards, which are not in place yet.
    pub(crate) fn holds(&self) -> bool {
        !self.held.is_empty() || self.next.as_ref().is_some_and(|next| next.has_turned)
    }

    /// Finds out how many publishers the stream has in all, with those `here`. A publisher that came before another one stopped may
    /// be in a feed that has more to bring, or in one that a change puts in.
    pub(crate) fn settle(&mut self, here: Option<u32>) {
        let elsewhere: u32 = self.feeds.iter().filter_map(|feed| feed.publishers).sum();
        let publishers = here.unwrap_or_default() + elsewhere;
        let mut are_known = self.feeds.iter_mut().map(|feed| feed.publishers.is_some() && feed.receiver.is_drained());
        let is_known = here.is_some() && self.next.is_none() && are_known.all(|is_known| is_known);
        self.is_settled = publishers > 0 || is_known;
        self.has_begun |= publishers > 0;
        self.publishers = self.is_settled.then_some(publishers);
        match self.publishers {
            Some(0) => self.had_none = true,
            Some(_) if std::mem::take(&mut self.had_none) => self.losses_before = self.losses,
            Some(_) | None => {}
        }
    }

    /// Exchanges its readers and feeds for those of its change, which is taken out then: a panic before leaves it here.
    pub(crate) fn turn(&mut self) -> Option<Box<PortChange>> {
        let next = self.next.as_deref_mut()?;
        self.feeds.retain(|feed| !next.ended_feeds.contains(&feed.from));
        self.feeds.append(&mut next.feeds);
        let is_mine = |feed: &&mut Feed| feed.marker == Some(next.change);
        // Behind each marker it says how many publishers there are from then on.
        self.feeds.iter_mut().filter(is_mine).for_each(|feed| (feed.marker, feed.publishers) = (None, None));
        std::mem::swap(&mut self.readers, &mut next.readers);
        (self.is_delivered, self.is_made) = (next.is_delivered, next.is_made);
        // A new reader has not heard of an end before.
        (self.is_settled, self.have_ended) = (false, [false; 2]);
        self.was_published &= self.is_made;
        self.next.take()
    }

    /// How many ends are to be reported to sessions: each that a publisher came to, or the last that nodes did.
    pub(crate) fn take_ends(&mut self) -> u32 {
        // During a change the number may be unknown.
        let Some(publishers) = self.publishers else { return 0 };
        let ends = std::mem::take(&mut self.pending_ends);
        if !self.is_made {
            return ends;
        }
        u32::from(std::mem::replace(&mut self.was_published, publishers > 0) && publishers == 0)
    }

    /// Whether the stream has begun, and no publisher was lost since; nothing while it is not known here to have begun.
    pub(crate) fn begins_whole(&self) -> Option<bool> {
        self.has_begun.then_some(self.losses == self.losses_before)
    }

    /// Whether the readers that take only what comes of here, or the others, have the end in their queues.
    pub(crate) fn have_ended(&self, of_own: bool) -> bool {
        self.have_ended[usize::from(of_own)]
    }

    pub(crate) fn set_ended(&mut self, of_own: bool, have_ended: bool) {
        self.have_ended[usize::from(of_own)] = have_ended;
    }
}

/// How a stream's port at one context changes. Its edges change first, at once or with the node here that makes the stream; its
/// readers and feeds when the markers of all feeds have come. So two contexts that publish a stream to each other do not wait
/// for each other's markers.
#[derive(Debug, Default)]
pub(crate) struct PortChange {
    pub(crate) change: u64,
    pub(crate) stream: u32,
    /// The node here that makes the stream and takes part in the change: the port changes with it.
    pub(crate) after: Option<NodeId>,
    /// The readers from then on.
    pub(crate) readers: Vec<Reader>,
    /// Readers of before that take part: they get a marker.
    pub(crate) marked_readers: Vec<NodeId>,
    /// New edges.
    pub(crate) edges: Vec<Sender>,
    /// The new policies at edges that stay, where they have no room.
    pub(crate) overflows: Vec<(ContextIndex, Overflow)>,
    /// Contexts whose edge gets a marker, and those among them whose edge ends with it.
    pub(crate) marked_edges: Vec<ContextIndex>,
    pub(crate) ended_edges: Vec<ContextIndex>,
    /// New feeds.
    pub(crate) feeds: Vec<Feed>,
    /// Contexts whose feed brings a marker, and those among them whose feed ends with it.
    pub(crate) marked_feeds: Vec<ContextIndex>,
    pub(crate) ended_feeds: Vec<ContextIndex>,
    /// Whether what comes from elsewhere is for the sessions here too, from then on.
    pub(crate) is_delivered: bool,
    /// Whether nodes make it from then on.
    pub(crate) is_made: bool,
    /// Whether the edges have changed.
    pub(crate) has_turned: bool,
}

impl PortChange {
    /// Reads through it, and writes as it is what will be written, so that this core has both at hand.
    pub(crate) fn warm(&mut self) {
        self.change = black_box(self.change);
        (self.is_delivered, self.is_made) = black_box((self.is_delivered, self.is_made));
        self.readers.iter_mut().for_each(|reader| *reader = black_box(*reader));
        black_box((self.stream, self.after, self.marked_readers.first().copied(), self.edges.len(), self.feeds.len()));
        black_box((self.marked_edges.first().copied(), self.ended_edges.first().copied(), self.overflows.len()));
        black_box((self.marked_feeds.first().copied(), self.ended_feeds.first().copied()));
    }

    /// Whether all feeds have brought their markers.
    pub(crate) fn is_due(&self, port: &Port) -> bool {
        let has_come =
            |from: &ContextIndex| port.feeds.iter().any(|feed| feed.from == *from && feed.marker == Some(self.change));
        self.marked_feeds.iter().all(has_come)
    }

    /// Exchanges the edges of a port, which say behind their markers that it has `publishers`; returns those that end, with their
    /// marker in them.
    pub(crate) fn turn_edges(&mut self, edges: &mut Vec<Sender>, publishers: Publishers) -> Vec<Sender> {
        self.has_turned = true;
        for edge in edges.iter_mut().filter(|edge| self.marked_edges.contains(&edge.to)) {
            edge.push_control(Item::Marker(self.change));
        }
        for (to, overflow) in self.overflows.drain(..) {
            edges.iter_mut().filter(|edge| edge.to == to).for_each(|edge| edge.overflow = overflow.clone());
        }
        let ended = edges.extract_if(.., |edge| self.ended_edges.contains(&edge.to)).collect();
        edges.append(&mut self.edges);
        edges.iter_mut().for_each(|edge| edge.push_control(Item::Publishers(publishers)));
        ended
    }
}
