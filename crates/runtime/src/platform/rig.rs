//! Execution contexts for a benchmark, in its own process and without a network: the same tables, rings, changes and
//! loops as the daemon's. Streams come in at the first context, and are delivered there.

use crate::clock::Clock;
use crate::graph::bounds::queued_buffers;
use crate::graph::build::Workspace;
use crate::graph::change::signal_queue;
use crate::graph::node::{self, Node};
use crate::graph::{ContextIndex, Graph, NodeId};
use crate::platform::context::{LoopSettings, Threads};
use crate::platform::overlay::{Changed, Edit, Overlay, Port, Waiting};
use crate::platform::start::pool;
use crossdock_device::Poller;
use crossdock_engine::Handler;
use crossdock_mailbox::Batch;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// The longest time that a context works before it looks for changes, in ns: the daemon's.
const SLICE_NS: u32 = 200_000;
/// The context where streams come in and are delivered.
const FIRST: ContextIndex = ContextIndex(0);
/// How long a thread looks for work before it sleeps, in us. Benchmarks keep contexts busy.
const SPIN_US: u32 = 200;

/// How a change waits for contexts: called repeatedly until they have taken it; returns `false` to end the wait.
pub type Wait<'a> = &'a mut dyn FnMut() -> bool;

/// The same as the overlay calls it.
struct Given<'a>(Wait<'a>);

impl Waiting for Given<'_> {
    fn begin(&mut self) {}

    fn wait(&mut self) -> bool {
        (self.0)()
    }
}

/// The source of a node's batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchSource {
    /// A stream that comes in at the first context, by the number that is offered.
    Stream(u32),
    /// A node, by its number.
    Node(u32),
}

/// A node's entry for one format.
pub struct Entry {
    /// The id of the format that comes in.
    pub format: u64,
    /// The handler.
    pub handler: Box<dyn Handler>,
    /// The id of the format that it makes.
    pub output: u64,
}

/// The counters of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records that came in.
    pub records_in: u64,
    /// Records that it made.
    pub records_out: u64,
    /// Records that it dropped, for any reason except its program's own.
    pub lost: u64,
}

/// A context did not take a change before it was no longer waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered;

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a context did not take a change: its thread has ended, or its steps were not called")
    }
}

impl std::error::Error for Unanswered {}

/// The contexts that run on the caller's thread, the first one among them.
pub struct Cores {
    graphs: Vec<(Graph, Workspace)>,
    is_blocked: bool,
    /// Kept, so that the other contexts' doorbells ring somewhere.
    _poller: Poller,
}

/// The handle by which all contexts are changed; it may be on another thread than they.
#[derive(Debug)]
pub struct Rig {
    overlay: Overlay,
    threads: Threads,
}

/// Makes contexts. Those without a CPU are on the caller's thread, as the first is in any case; the others on a thread
/// for each CPU, which is pinned to it. `queue_batches` bounds the ring between two contexts.
///
/// # Errors
/// The system refuses memory, descriptors or threads.
pub fn start(cpus: &[Option<usize>], queue_batches: usize) -> io::Result<(Cores, Rig)> {
    crossdock_device::keep_freed_memory();
    let mut pollers = BTreeMap::from([(None, Poller::new()?)]);
    let at_cpu = |at: usize| if at == 0 { None } else { cpus.get(at).copied().flatten() };
    for at in 0..cpus.len() {
        if let std::collections::btree_map::Entry::Vacant(entry) = pollers.entry(at_cpu(at)) {
            entry.insert(Poller::new()?);
        }
    }
    let doorbells: Vec<_> =
        (0..cpus.len().max(1)).filter_map(|at| Some(pollers.get(&at_cpu(at))?.doorbell())).collect();
    let mut ports = Vec::new();
    let mut groups: BTreeMap<Option<usize>, Vec<(Graph, Workspace)>> = BTreeMap::new();
    let mut large_buffers = 0;
    for (at, doorbell) in doorbells.iter().enumerate() {
        let (orders, control) = signal_queue();
        let graph = Graph::new(ContextIndex(at as u8), orders, doorbells.clone());
        let ws = Workspace::new(pool()?);
        large_buffers = ws.large_buffers;
        ports.push(Port::new(control, Some(doorbell.clone()), Arc::clone(graph.gauges())));
        groups.entry(at_cpu(at)).or_default().push((graph, ws));
    }
    let mut threads = Threads::default();
    let (mut here, clock) = (None, Clock::start());
    for (cpu, poller) in pollers {
        let graphs = groups.remove(&cpu).unwrap_or_default();
        if cpu.is_none() {
            here = Some(Cores { graphs, is_blocked: false, _poller: poller });
        } else {
            let settings = LoopSettings { cpu, spin_us: SPIN_US, slice_us: SLICE_NS / 1000, nice: None, clock };
            threads.start_c_cores("rig", graphs, poller, settings)?;
        }
    }
    let cores = here.ok_or_else(|| io::Error::other("no context on the caller's thread"))?;
    Ok((
        cores,
        Rig {
            overlay: Overlay::new(ports, vec![FIRST], queue_batches, queued_buffers(large_buffers, usize::MAX)),
            threads,
        },
    ))
}

impl Cores {
    /// A batch of a stream comes in. Whether more may: else [`Cores::turn`] until [`Cores::has_room`].
    #[inline]
    pub fn offer(&mut self, stream: u32, batch: &Batch) -> bool {
        if let Some((graph, ws)) = self.graphs.first_mut() {
            let copy = ws.spares.copy(batch);
            graph.offer(stream, copy, ws);
        }
        self.has_room()
    }

    /// Whether publishers would have credit.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        if let Some((graph, _)) = self.graphs.first_mut() {
            for (_, is_blocked) in graph.take_turned() {
                self.is_blocked = is_blocked;
            }
        }
        !self.is_blocked
    }

    /// A turn of each context, as in the daemon's loop: the changes that came, then work. Whether a change had come.
    #[inline]
    pub fn turn(&mut self) -> bool {
        let mut changed = false;
        for (graph, ws) in &mut self.graphs {
            changed |= graph.take_orders(ws);
            graph.serve(SLICE_NS, 0, ws);
        }
        changed
    }

    /// The batches delivered since the last call, in order.
    #[inline]
    pub fn delivered(&mut self, mut take: impl FnMut(&Batch)) {
        let first = self.graphs.first_mut();
        debug_assert!(first.is_some(), "there is one context at least");
        let Some((graph, ws)) = first else { return };
        for batch in graph.take_arrived() {
            take(&batch);
            ws.spares.keep_shared(batch);
        }
    }
}

impl Rig {
    /// Puts a handler in at a context, with an entry for each format; its number.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn put(
        &mut self,
        entries: Vec<Entry>,
        at: usize,
        reads: BatchSource,
        makes: u32,
        wait: Wait<'_>,
    ) -> Result<u32, Unanswered> {
        let id = self.overlay.next_id(&[]);
        let instances = entries.into_iter().map(instance).collect();
        let node = Box::new(Node::new(id, instances, makes, &[self.stream(reads)]));
        self.change(Edit::Add { node, at: ContextIndex(at as u8) }, wait)?;
        Ok(id.0)
    }

    /// Delivers the batches of a source at the first context.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn deliver(&mut self, reads: BatchSource, wait: Wait<'_>) -> Result<(), Unanswered> {
        let stream = self.stream(reads);
        self.change(Edit::Deliver { stream, at: FIRST, is_delivered: true }, wait).map(drop)
    }

    fn stream(&self, of: BatchSource) -> u32 {
        match of {
            BatchSource::Stream(number) => number,
            BatchSource::Node(number) => self.overlay.node(NodeId(number)).map_or(0, |node| node.makes),
        }
    }

    fn change(&mut self, edit: Edit, wait: Wait<'_>) -> Result<Changed, Unanswered> {
        self.overlay.change(vec![edit], &mut Given(wait)).map_err(|_| Unanswered)
    }

    /// Hot-swap: replaces the entries between two batches, with their state; returns the number of states that were
    /// lost.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn swap(&mut self, node: u32, entries: Vec<Entry>, wait: Wait<'_>) -> Result<u32, Unanswered> {
        let instances = Some((entries.into_iter().map(instance).collect(), true));
        let edit = Edit::Change { id: NodeId(node), instances, policy: None, reads: None, at: None };
        self.change(edit, wait).map(|changed| changed.lost_states)
    }

    /// Stops a node, or has it go on.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn hold(&mut self, node: u32, is_held: bool, wait: Wait<'_>) -> Result<(), Unanswered> {
        let order = self.overlay.hold(NodeId(node), is_held).map_err(|_| Unanswered)?;
        while !self.overlay.done().iter().any(|(done, outcome)| *done == order && outcome.is_ok()) {
            if !wait() {
                return Err(Unanswered);
            }
        }
        Ok(())
    }

    /// The counters of a node.
    pub fn counts(&self, node: u32) -> Counts {
        self.overlay.node(NodeId(node)).map_or_else(Counts::default, |placed| {
            let gauges = &placed.gauges;
            Counts {
                records_in: gauges.records_in.get(),
                records_out: gauges.records_out.get(),
                lost: gauges.losses().iter().map(|(_, records)| records).sum(),
            }
        })
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.threads.stop();
    }
}

fn instance(entry: Entry) -> node::Instance {
    node::Instance { stream: None, format: entry.format, handler: Some(entry.handler), output: entry.output }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;
    use crossdock_engine::{HandlerProgram, Natives};
    use crossdock_format::Format;
    use crossdock_mailbox::{Pool, PoolConfig, Slice, Span};

    /// A batch that comes in is delivered, by way of any number of nodes.
    #[test]
    fn offered_batches_are_delivered() {
        let format = Format::parse_schema("n i64").unwrap();
        let mut pool = Pool::new(PoolConfig { classes: vec![(64, 1)] }).unwrap();
        let mut batch = Batch::new();
        batch.format = format.id().0;
        batch.push_buffer(pool.alloc(16).unwrap().freeze()).unwrap();
        batch.push_slice(Slice { buffer: 0, start: 0, len: 16, records: 1 }).unwrap();
        batch.records.push(Span { slice: 0, start: 0, len: 16 });
        batch.select_all();
        for nodes in 0..3 {
            let (mut cores, mut rig) = start(&[None, None], 4).unwrap();
            let mut from = BatchSource::Stream(0);
            let wait = &mut || {
                cores.turn();
                true
            };
            for at in 0..nodes {
                let program = HandlerProgram::native("pass");
                let handler = program.make(&Natives::built_in(), &format).unwrap().handler;
                let id = format.id().0;
                let entry = Entry { format: id, handler, output: id };
                from = BatchSource::Node(rig.put(vec![entry], at % 2, from, at as u32 + 1, wait).unwrap());
            }
            rig.deliver(from, wait).unwrap();
            let (mut sent, mut delivered) = (0, 0);
            while delivered < 100 {
                if sent < 100 && cores.has_room() {
                    sent += 1;
                    cores.offer(0, &batch);
                }
                cores.turn();
                cores.delivered(|batch| delivered += batch.len());
            }
        }
    }
}
