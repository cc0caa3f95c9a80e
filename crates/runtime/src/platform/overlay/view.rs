//! A stream as a change begins or ends with it: where it is made and read, and the edges by which its batches cross.

use crate::graph::port::Reader;
use crate::graph::{ContextIndex, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// A stream as a change begins or ends with it.
pub(super) struct View {
    /// Where its batches come from.
    pub(super) producers: BTreeSet<ContextIndex>,
    /// The nodes that make it, and where.
    pub(super) makers: BTreeMap<NodeId, ContextIndex>,
    pub(super) readers: Vec<(Reader, ContextIndex)>,
    /// The contexts whose sessions take it, and the one where its records are counted.
    pub(super) delivered: BTreeSet<ContextIndex>,
    pub(super) observed_at: Option<ContextIndex>,
}

/// An edge of a stream: from which context to which.
pub(super) type EdgeEnds = (ContextIndex, ContextIndex);

impl View {
    /// The contexts to which all of it goes: where it is read as a whole, or delivered.
    fn consumers(&self) -> BTreeSet<ContextIndex> {
        let readers = self.readers.iter().filter(|(reader, _)| !reader.reads_own);
        readers.map(|(_, at)| *at).chain(self.delivered.iter().copied()).collect()
    }

    /// The edges by which its batches cross.
    pub(super) fn edges(&self) -> BTreeSet<EdgeEnds> {
        let consumers = self.consumers();
        let to_all = |from: &ContextIndex| {
            let from = *from;
            consumers.iter().filter(move |to| **to != from).map(move |to| (from, *to))
        };
        self.producers.iter().flat_map(to_all).collect()
    }

    /// How many of them are queues of handlers, and how many lead to sessions only.
    pub(super) fn queues(&self) -> (usize, usize) {
        let edges = self.edges();
        let is_crossing = |(_, to): &&EdgeEnds| self.observed_at != Some(*to) && self.takers_at(*to).next().is_none();
        let crossings = edges.iter().filter(is_crossing).count();
        (edges.len() - crossings, crossings)
    }

    /// Whether nodes make it.
    pub(super) fn is_made(&self) -> bool {
        !self.makers.is_empty()
    }

    /// The nodes that make it at a context.
    pub(super) fn makers_at(&self, at: ContextIndex) -> impl Iterator<Item = NodeId> {
        self.makers.iter().filter(move |(_, place)| **place == at).map(|(id, _)| *id)
    }

    /// The nodes that read it at a context.
    pub(super) fn readers_at(&self, at: ContextIndex) -> Vec<Reader> {
        self.readers.iter().filter(|(_, place)| *place == at).map(|(reader, _)| *reader).collect()
    }

    /// Those among them that take all of it, wherever it comes from.
    pub(super) fn takers_at(&self, at: ContextIndex) -> impl Iterator<Item = NodeId> {
        let is_here = move |(reader, place): &&(Reader, ContextIndex)| *place == at && !reader.reads_own;
        self.readers.iter().filter(is_here).map(|(reader, _)| reader.id)
    }

    /// The contexts where it has a port.
    pub(super) fn contexts(&self) -> BTreeSet<ContextIndex> {
        let readers = self.readers.iter().map(|(_, at)| *at);
        readers.chain(self.delivered.iter().copied()).chain(self.producers.iter().copied()).collect()
    }
}
