//! Creates and starts the contexts of a platform from their configuration.

use crate::clock::Clock;
use crate::config::{ContextKind, ContextSpec, PlatformConfig};
use crate::graph::bounds;
use crate::graph::build::Workspace;
use crate::graph::change::signal_queue;
use crate::graph::gauges::ContextGauges;
use crate::graph::{ContextIndex, Graph};
use crate::platform::context::{GCore, LoopSettings, Threads};
use crate::platform::overlay::{Overlay, Port};
use crossdock_device::{Doorbell, Poller};
use crossdock_mailbox::Pool;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// A context, as it was configured.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    pub(crate) name: String,
    pub(crate) kind: ContextKind,
    /// Whether it has sessions: its own loop serves it.
    pub(crate) is_io: bool,
    pub(crate) cpu: Option<usize>,
    /// Buffers for what its handlers make.
    pub(crate) buffers: u64,
    /// Buffers that an I/O context receives into and sends from.
    pub(crate) network_buffers: u64,
    /// Bound on its bandwidth, in bytes a second, if there is one.
    pub(crate) bandwidth_bytes_per_s: Option<u64>,
    /// Its gauges.
    pub(crate) gauges: Arc<ContextGauges>,
    /// The g-core, whose thread can be replaced.
    pub(crate) g_core: Option<Arc<GCore>>,
}

/// A platform that runs.
pub(crate) struct Started {
    /// Of the I/O contexts, in the order of their places.
    pub(crate) io: Vec<(Graph, Workspace)>,
    pub(crate) overlay: Overlay,
    /// In the order of their numbers.
    pub(crate) seats: Vec<Seat>,
    pub(crate) threads: Threads,
}

/// Buffers of one context for what its handlers make.
pub(crate) fn pool() -> io::Result<Pool> {
    Pool::new(bounds::pool())
}

/// Makes `all` contexts, with their names, and starts the threads of those that have no sessions. `io` are the doorbells of the
/// I/O contexts, in the order of their places, and `incoming_buffers` how many large buffers each of them has for what comes in.
///
/// # Errors
/// The system refuses memory, descriptors or threads.
pub(crate) fn start(
    config: &PlatformConfig,
    (all, io, incoming_buffers): (&[(String, ContextSpec)], &[Doorbell], usize),
    spin_us: u32,
    clock: Clock,
) -> io::Result<Started> {
    let mut seats: Vec<Seat> = all.iter().map(|(name, spec)| seat(config, name, spec)).collect();

    // Contexts of one thread have one poller.
    let mut pollers: BTreeMap<Group, (Poller, Vec<usize>)> = BTreeMap::new();
    for (at, seat) in seats.iter().enumerate().filter(|(_, seat)| !seat.is_io) {
        let (_, members) = match pollers.entry(group(seat, at)) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => entry.insert((Poller::new()?, Vec::new())),
        };
        members.push(at);
    }
    let places: Vec<usize> = (0..seats.len()).filter(|at| seats[*at].is_io).collect();
    debug_assert_eq!(places.len(), io.len(), "each I/O context has a doorbell");
    let Some(first) = io.first() else { return Err(io::Error::other("there is no I/O context")) };
    let mut doorbells = vec![first.clone(); seats.len()];
    places.iter().zip(io).for_each(|(at, doorbell)| doorbells[*at] = doorbell.clone());
    for (poller, members) in pollers.values() {
        members.iter().for_each(|at| doorbells[*at] = poller.doorbell());
    }

    // One for all: a node that moves sees no other time.
    let epoch_ns = clock.epoch_ns();
    let (mut graphs, mut ports, mut own) = (Vec::new(), Vec::new(), usize::MAX);
    for (at, seat) in seats.iter_mut().enumerate() {
        let (orders, control) = signal_queue();
        let mut graph = Graph::new(ContextIndex(at as u8), orders, doorbells.clone());
        graph.shed_after(u64::from(config.shed_after_us) * 1000);
        graph.set_epoch(epoch_ns);
        let ws = Workspace::new(pool()?);
        own = own.min(ws.large_buffers);
        (seat.buffers, seat.gauges) = (ws.buffers(), Arc::clone(graph.gauges()));
        ports.push(Port::new(control, doorbells.get(at).cloned(), Arc::clone(graph.gauges())));
        graphs.push(Some((graph, ws)));
    }

    let mut threads = Threads::default();
    for (group, (poller, members)) in pollers {
        let nice = members.iter().filter_map(|at| all[*at].1.nice).min();
        let settings = LoopSettings { cpu: group.cpu(), nice, spin_us, slice_us: config.slice_us, clock };
        let mut of_group: Vec<(Graph, Workspace)> =
            members.iter().filter_map(|at| graphs.get_mut(*at)?.take()).collect();
        let name = members.first().map_or_else(String::new, |at| seats[*at].name.clone());
        match group {
            Group::CCores(_) | Group::CCore(_) => threads.start_c_cores(&name, of_group, poller, settings)?,
            Group::GCore(at, _) => {
                debug_assert_eq!(of_group.len(), 1, "a g-core has a thread of its own");
                // Which makes a workspace of its own.
                if let Some((graph, _)) = of_group.pop() {
                    let core = GCore::new(name, graph, poller, settings);
                    threads.start_g_core(&core)?;
                    seats[at].g_core = Some(core);
                }
            }
        }
    }
    let queued = bounds::queued_buffers(own, incoming_buffers);
    let io = places.iter().filter_map(|at| graphs.get_mut(*at)?.take()).collect();
    let places = places.into_iter().map(|at| ContextIndex(at as u8)).collect();
    let overlay = Overlay::new(ports, places, config.queue_batches as usize, queued);
    Ok(Started { io, overlay, seats, threads })
}

fn seat(config: &PlatformConfig, name: &str, spec: &ContextSpec) -> Seat {
    Seat {
        name: name.to_owned(),
        kind: spec.kind,
        is_io: spec.io,
        cpu: spec.cpu,
        buffers: 0,
        network_buffers: 0,
        bandwidth_bytes_per_s: config.bandwidth_bytes_per_s(spec),
        gauges: Arc::default(),
        g_core: None,
    }
}

/// The contexts of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// All c-cores of a CPU.
    CCores(usize),
    /// A c-core that is not pinned to a CPU.
    CCore(usize),
    /// A g-core, and its CPU.
    GCore(usize, Option<usize>),
}

impl Group {
    fn cpu(self) -> Option<usize> {
        match self {
            Group::CCores(cpu) => Some(cpu),
            Group::CCore(_) => None,
            Group::GCore(_, cpu) => cpu,
        }
    }
}

fn group(seat: &Seat, at: usize) -> Group {
    match (seat.kind, seat.cpu) {
        (ContextKind::CCore, Some(cpu)) => Group::CCores(cpu),
        (ContextKind::CCore, None) => Group::CCore(at),
        (ContextKind::GCore, cpu) => Group::GCore(at, cpu),
    }
}
