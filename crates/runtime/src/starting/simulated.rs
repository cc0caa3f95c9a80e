//! A daemon on one thread: its I/O contexts, catalog, planner and managers take turns when a simulation says so. Nothing
//! else runs: no process attaches, no task asks the host for anything, and no context is without sessions.

use super::{CONTEXTS, Common, HandOver, io_handle, observe, pool_config, secure, system};
use crate::catalog::Catalog;
use crate::catalog::thread::{CatalogHandle, Requests};
use crate::clock::{Clock, TurnClock};
use crate::config::ContextConfig;
use crate::context::{Context, Parts};
use crate::graph::Graph;
use crate::graph::build::Workspace;
use crate::handle::StartError;
use crate::host::services::Services;
use crate::inbox::{Commands, Inbox};
use crate::io::IoPlace;
use crate::managers::checkpoints::Checkpoints;
use crate::managers::handle::ManagerHandle;
use crate::managers::keep::Kept;
use crate::managers::request::RequestQueue;
use crate::managers::view::Views;
use crate::managers::watch::Watch;
use crate::managers::{IoHandle, Managers, Parts as ManagerParts};
use crate::net::NetParts;
use crate::net::secure::SecureDevice;
use crate::planner::PlannerWork;
use crate::platform::context::Threads;
use crate::platform::overlay::Overlay;
use crate::platform::start::{Seat, Started as Platform, start as start_platform};
use crate::tables;
use crossdock_device::{Device, Doorbell, Poller, simulated};
use crossdock_engine::{Natives, Tables};
use crossdock_mailbox::host::HostInterface;
use crossdock_mailbox::{DoorbellPage, Pool};
use crossdock_transport::MAX_SUPER_BYTES;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rounds without work after which nothing is left to do: one part's last piece of work is another one's first in the next round.
const QUIET_ROUNDS: usize = 3;
/// Requests that the managers take in a round.
const REQUESTS: usize = 4;

/// An I/O context, and whether its last turn ended in a sleep.
struct Turning {
    context: Context,
    clock: TurnClock,
    sleeps: bool,
}

/// The parts that go on while the managers wait for them.
struct Others {
    contexts: RefCell<Vec<Turning>>,
    catalog: RefCell<Catalog>,
    requests: Requests,
    planner: PlannerWork,
}

impl Others {
    /// Has each of them go on once. In how many ns one of them is due; 0 if they have worked.
    fn go_on(&self) -> u64 {
        // They may wait for one another, too: then the one that waits is passed over.
        let mut worked =
            self.catalog.try_borrow_mut().is_ok_and(|mut catalog| self.requests.take_waiting(&mut catalog));
        worked |= self.planner.take_next();
        let mut due_ns = u64::MAX;
        if let Ok(mut contexts) = self.contexts.try_borrow_mut() {
            for Turning { context, clock, sleeps } in contexts.iter_mut() {
                let busy_turns = context.net.counters().busy_turns;
                let sleep_ns = context.step(clock, *sleeps).expect("nobody stops it");
                *sleeps = sleep_ns > 0;
                due_ns = due_ns.min(sleep_ns);
                // A frame that it has taken may be for another context.
                worked |= context.net.counters().busy_turns != busy_turns;
            }
        }
        if worked { 0 } else { due_ns }
    }
}

/// The parts of a context that it shares with no other.
struct ContextEnds {
    name: String,
    hand_over: HandOver,
    commands: Commands,
    graph: (Graph, Workspace),
    pool: Pool,
    poller: Poller,
    device: Box<dyn Device>,
}

/// Makes a context, which takes packets from its first turn on.
fn turning(
    config: &ContextConfig,
    ends: ContextEnds,
    (place, held_bytes): (IoPlace, u32),
    common: &Common,
) -> Result<Turning, StartError> {
    let ContextEnds { name, hand_over, commands, graph: (graph, workspace), pool, poller, device } = ends;
    let device = SecureDevice::new(device, &common.security, place);
    let page = DoorbellPage::new().map_err(system("shared memory"))?;
    let parts = Parts {
        name,
        inboxes: Arc::clone(&common.inboxes),
        net: NetParts { place, hand_over, clock: common.clock, device, held_bytes, pool, poller },
        morph_pool: crate::morph::chain::pool().map_err(system("buffers"))?,
        inbox: common.inboxes[place.index].clone(),
        commands,
        host: HostInterface::new(config.host.clone(), page).map_err(system("shared memory"))?,
        services: Services::absent(),
        graph,
        workspace,
        to_managers: Arc::clone(&common.requests),
        planner: common.planner.clone(),
        catalog: common.catalog.clone(),
        access: Arc::clone(&common.access),
        config: config.clone(),
    };
    let mut context = Context::new(parts);
    context.open().map_err(system("epoll"))?;
    Ok(Turning { context, clock: TurnClock::start(0), sleeps: false })
}

/// Makes the managers, and the handle by which they are asked.
fn managers(
    config: &ContextConfig,
    (overlay, seats, threads): (Overlay, Vec<Seat>, Threads),
    (views, tables): (Views, Tables),
    common: &Common,
) -> Result<(Managers, ManagerHandle), StartError> {
    let handle = ManagerHandle::new(Arc::clone(&common.requests), views.clone());
    let io: Vec<IoHandle> = common.inboxes.iter().enumerate().map(|(at, inbox)| io_handle(inbox, at)).collect();
    let watched: Vec<_> = io.iter().map(|io| (io.at, io.inbox.ended())).collect();
    let stuck_after = Duration::from_millis(config.platform.stuck_after_ms.into());
    let managers = Managers::new(ManagerParts {
        home: io[0].at,
        io,
        catalog: common.catalog.clone(),
        overlay,
        watch: Watch::new(seats, threads, watched, stuck_after),
        natives: Natives::built_in().with_tables(tables),
        config: config.platform.clone(),
        kept: Kept::new(None),
        checkpoints: Checkpoints::open(&config.morph).map_err(system("the stored state"))?,
        views,
        requests: Arc::clone(&common.requests),
    });
    Ok((managers, handle))
}

/// A daemon whose parts take turns.
pub(crate) struct SimulatedDaemon {
    others: Rc<Others>,
    managers: Managers,
    next_tick: Instant,
    handle: ManagerHandle,
}

impl SimulatedDaemon {
    /// Makes a daemon with an I/O context for each of these devices, whose sockets hold `held_bytes` bytes each, and opens it.
    ///
    /// # Errors
    /// As [`super::start`].
    pub(crate) fn start(
        config: &ContextConfig,
        devices: Vec<Box<dyn Device>>,
        held_bytes: u32,
    ) -> Result<SimulatedDaemon, StartError> {
        let all =
            config.contexts().map_err(|why| system(CONTEXTS)(io::Error::new(io::ErrorKind::InvalidInput, why)))?;
        assert!(all.iter().all(|(_, spec)| spec.io) && all.len() == devices.len(), "each context has a device");
        let pollers: Vec<Poller> =
            devices.iter().map(|_| Poller::new()).collect::<Result<_, _>>().map_err(system("epoll"))?;
        let doorbells: Vec<Doorbell> = pollers.iter().map(Poller::doorbell).collect();
        let inboxes = all.iter().zip(&doorbells).map(|((name, _), doorbell)| Inbox::new(name, doorbell.clone()));
        let (inboxes, commands): (Vec<Inbox>, Vec<Commands>) = inboxes.unzip();
        let inboxes: Arc<[Inbox]> = inboxes.into();
        let (views, access) = observe(config);
        let (tables, _) = tables::read_all(Vec::new()).map_err(StartError::Table)?;
        let (handle, requests) = CatalogHandle::new();
        let mut catalog =
            Catalog::new(config.max_streams as usize, config.max_streams_per_peer).with_tables(tables.clone());
        for context in &*inboxes {
            let context = context.clone();
            catalog.watch(Box::new(move |snapshot, changed| context.post_snapshot(snapshot, changed).is_ok()));
        }
        let pools: Vec<Pool> = devices
            .iter()
            .map(|_| Pool::new(pool_config(config)))
            .collect::<Result<_, _>>()
            .map_err(system("buffers"))?;
        let clock = Clock::start();
        let large = pools.iter().map(|pool| pool.buffers_for(MAX_SUPER_BYTES)).min().unwrap_or_default();
        let platform =
            start_platform(&config.platform, (&all[..], &doorbells[..], large), 0, clock).map_err(system(CONTEXTS))?;
        let Platform { io: graphs, overlay, mut seats, threads } = platform;
        for (seat, pool) in seats.iter_mut().zip(&pools) {
            seat.network_buffers = pool.stats().classes.iter().map(|class| class.count as u64).sum();
        }
        let (planner, work) = PlannerWork::new();
        let managed = Arc::new(RequestQueue::default());
        let address = devices.first().map(|device| device.local_addr());
        let security = secure(config, address.unwrap_or(config.listen))?;
        let common = Common { clock, inboxes, requests: managed, planner, catalog: handle, security, access };
        let ends = HandOver::between(&doorbells).into_iter().zip(commands).zip(graphs).zip(pools).zip(pollers);
        let ends = ends.zip(devices).zip(&all).map(
            |((((((hand_over, commands), graph), pool), poller), device), (name, _))| ContextEnds {
                name: name.clone(),
                hand_over,
                commands,
                graph,
                pool,
                poller,
                device,
            },
        );
        let config = &ContextConfig { window_bytes: config.window_bytes.min(held_bytes), ..config.clone() };
        let contexts = ends.enumerate().map(|(index, ends)| {
            let place = IoPlace { index, of: all.len(), home: 0 };
            turning(config, ends, (place, held_bytes), &common)
        });
        let contexts = contexts.collect::<Result<_, _>>()?;
        catalog.publish_snapshot();
        let of_platform = (overlay, seats, threads);
        let (managers, handle) = managers(config, of_platform, (views, tables), &common)?;
        let (catalog, contexts) = (RefCell::new(catalog), RefCell::new(contexts));
        let others = Rc::new(Others { contexts, catalog, requests, planner: work });
        let mut daemon = SimulatedDaemon { others, managers, next_tick: crossdock_device::now(), handle };
        daemon.waits_for_others();
        daemon.managers.begin();
        Ok(daemon)
    }

    /// Wherever the managers wait, the other parts go on.
    fn waits_for_others(&self) {
        let others = Rc::clone(&self.others);
        simulated::on_wait(move || {
            for _ in 0..QUIET_ROUNDS {
                others.go_on();
            }
        });
    }

    /// Has all parts go on, until nothing is left to do, or for a number of rounds. In how many ns one of them is due; 0 if more is left.
    pub(crate) fn go_on(&mut self, rounds: usize) -> u64 {
        self.waits_for_others();
        let mut quiet = 0;
        for _ in 0..rounds {
            for _ in 0..REQUESTS {
                assert!(self.managers.step(Duration::ZERO, &mut self.next_tick), "nobody stops them");
            }
            match self.others.go_on() {
                0 => quiet = 0,
                due_ns if quiet + 1 == QUIET_ROUNDS => {
                    let tick = self.next_tick.saturating_duration_since(crossdock_device::now());
                    return due_ns.min(tick.as_nanos() as u64).max(1);
                }
                _ => quiet += 1,
            }
        }
        0
    }

    /// Looks at each context.
    pub(crate) fn at_contexts<T>(&self, look: impl Fn(&Context) -> T) -> Vec<T> {
        self.others.contexts.borrow().iter().map(|turning| look(&turning.context)).collect()
    }

    /// The handle to the managers, for their events.
    pub(crate) fn managers(&self) -> &ManagerHandle {
        &self.handle
    }
}
