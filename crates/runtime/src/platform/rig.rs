//! Execution contexts for a benchmark, in its own process and without a network: the same tables, rings, changes and
//! loops as the daemon's. Streams come in at the first context, and are delivered there.

use crate::clock::Clock;
use crate::platform::context::{LoopSettings, Threads};
use crate::platform::overlay::{Overlay, Port, Waiting, signal_queue};
use crate::platform::stage::{self, SchedulingPolicy, Work};
use crate::platform::start::pool;
use crate::platform::table::Table;
use crate::platform::{ContextIndex, Origin, StageId};
pub use crossdock_control::load::HANDING_NS_PER_BATCH;
use crossdock_device::Poller;
use crossdock_engine::Handler;
use crossdock_mailbox::Batch;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// The longest time that a context works before it looks for changes, in ns: the daemon's.
const SLICE_NS: u32 = 200_000;
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

/// The source of a stage's batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A stream that comes in at the first context, by the number that is offered.
    Stream(u32),
    /// A stage, by its number.
    Stage(u32),
}

/// A stage's entry for one format.
pub struct Entry {
    /// The id of the format that comes in.
    pub format: u64,
    /// The handler.
    pub handler: Box<dyn Handler>,
    /// The id of the format that it makes.
    pub output: u64,
}

/// The counters of a stage.
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
    tables: Vec<Table>,
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
    let mut groups: BTreeMap<Option<usize>, Vec<Table>> = BTreeMap::new();
    let mut large_buffers = 0;
    for (at, doorbell) in doorbells.iter().enumerate() {
        let (signals, ends) = signal_queue();
        let table = Table::new(ContextIndex(at as u8), pool()?, signals, doorbells.clone());
        large_buffers = table.large_buffers();
        ports.push(Port::new(ends, Some(doorbell.clone()), Arc::clone(&table.gauges)));
        groups.entry(at_cpu(at)).or_default().push(table);
    }
    let mut threads = Threads::default();
    let (mut here, clock) = (None, Clock::start());
    for (cpu, poller) in pollers {
        let tables = groups.remove(&cpu).unwrap_or_default();
        if cpu.is_none() {
            here = Some(Cores { tables, is_blocked: false, _poller: poller });
        } else {
            let settings = LoopSettings { cpu, spin_us: SPIN_US, slice_us: SLICE_NS / 1000, nice: None, clock };
            threads.start_c_cores("rig", tables, poller, settings)?;
        }
    }
    let cores = here.ok_or_else(|| io::Error::other("no context on the caller's thread"))?;
    Ok((cores, Rig { overlay: Overlay::new(ports, queue_batches, large_buffers / 4 * 3), threads }))
}

impl Cores {
    /// A batch of a stream comes in. Whether more may: else [`Cores::turn`] until [`Cores::has_room`].
    #[inline]
    pub fn offer(&mut self, stream: u32, batch: &Batch) -> bool {
        if let Some(table) = self.tables.first_mut() {
            table.offer(stream, batch, 0);
        }
        self.has_room()
    }

    /// Whether publishers would have credit.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        if let Some(table) = self.tables.first_mut() {
            for (_, is_blocked) in table.turned.drain(..) {
                self.is_blocked = is_blocked;
            }
        }
        !self.is_blocked
    }

    /// A turn of each context, as in the daemon's loop: the changes that came, then work. Whether a change had come.
    #[inline]
    pub fn turn(&mut self) -> bool {
        let mut changed = false;
        for table in &mut self.tables {
            changed |= table.take_changes();
            table.serve(SLICE_NS, 0);
        }
        changed
    }

    /// The batches delivered since the last call, in order.
    #[inline]
    pub fn delivered(&mut self, mut take: impl FnMut(&Batch)) {
        let Some(table) = self.tables.first_mut() else { return };
        for batch in table.delivered.drain(..) {
            take(&batch);
            table.making.keep(batch);
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
        reads: Source,
        makes: u32,
        wait: Wait<'_>,
    ) -> Result<u32, Unanswered> {
        self.put_work(Work::Handler(entries.into_iter().map(instance).collect()), at, reads, makes, wait)
    }

    /// Delivers the batches of a source at the first context.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn deliver(&mut self, reads: Source, wait: Wait<'_>) -> Result<u32, Unanswered> {
        self.put_work(Work::Deliver, 0, reads, 0, wait)
    }

    fn put_work(
        &mut self,
        work: Work,
        at: usize,
        reads: Source,
        makes: u32,
        wait: Wait<'_>,
    ) -> Result<u32, Unanswered> {
        let stage = self.overlay.make_stage(work, makes, SchedulingPolicy::default());
        let id = stage.id;
        let from = match reads {
            Source::Stream(number) => Origin::Stream(number),
            Source::Stage(number) => Origin::Stage(StageId(number)),
        };
        let put = self.overlay.put(stage, ContextIndex(at as u8), &BTreeSet::from([from]), &mut Given(wait));
        put.map(|()| id.0).map_err(|_| Unanswered)
    }

    /// Hot-swap: replaces the entries between two batches, with their state; returns the number of states that were
    /// lost.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn swap(&mut self, stage: u32, entries: Vec<Entry>, wait: Wait<'_>) -> Result<u32, Unanswered> {
        let instances = entries.into_iter().map(instance).collect();
        self.overlay.swap(StageId(stage), instances, true, &mut Given(wait)).map_err(|_| Unanswered)
    }

    /// Stops a stage, or has it go on.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn hold(&mut self, stage: u32, is_held: bool, wait: Wait<'_>) -> Result<(), Unanswered> {
        self.overlay.hold(StageId(stage), is_held, &mut Given(wait)).map_err(|_| Unanswered)
    }

    /// The counters of a stage.
    pub fn counts(&self, stage: u32) -> Counts {
        self.overlay.stage(StageId(stage)).map_or_else(Counts::default, |placed| {
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

fn instance(entry: Entry) -> stage::Instance {
    stage::Instance { format: entry.format, handler: Some(entry.handler), output: entry.output }
}
