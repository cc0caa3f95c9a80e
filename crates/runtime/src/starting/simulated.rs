//! A daemon on one thread: its I/O contexts, catalog, planner and managers take turns when a simulation says so. Nothing
//! else runs: no process attaches, no task asks the host for anything, and no context is without sessions.

use super::{
    CONTEXTS, Common, HandOver, Keeping, STORED_STATE, check_durable, io_handle, keep, observe, pool_config, secure,
    system,
};
use crate::catalog::Catalog;
use crate::catalog::thread::{CatalogHandle, Requests};
use crate::clock::{Clock, TurnClock};
use crate::config::ContextConfig;
use crate::context::{Context, Parts};
use crate::failpoint::simulated::{Moment, crash_at, pass};
use crate::graph::Graph;
use crate::graph::build::Workspace;
use crate::handle::StartError;
use crate::host::services::Services;
use crate::inbox::{Commands, Inbox};
use crate::io::IoPlace;
use crate::managers::checkpoints::Checkpoints;
use crate::managers::handle::ManagerHandle;
use crate::managers::keep::Kept;
use crate::managers::request::{ChangeRequest, ControlRequest, RequestQueue};
use crate::managers::spec::HandlerSpec;
use crate::managers::view::Views;
use crate::managers::watch::Watch;
use crate::managers::{IoHandle, Managers, Parts as ManagerParts};
use crate::net::NetParts;
use crate::net::routes::Routes;
use crate::net::secure::SecureDevice;
use crate::planner::PlannerWork;
use crate::platform::context::Threads;
use crate::platform::overlay::Overlay;
use crate::platform::start::{Seat, Started as Platform, start as start_platform};
use crate::tables;
use crate::worker::WorkerThread;
use crate::worker::simulated::{NextPiece, take_enlisted};
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
/// The time that passes while an answer of the managers is awaited.
const STEP: Duration = Duration::from_micros(100);
/// Requests that the managers take in a round.
const REQUESTS: usize = 4;

/// Turns of the others until a thread has written what it was given, on average.
const WRITER_TURNS: u8 = 4;
/// The time until they are asked again, in ns.
const DISK_NS: u64 = 5_000_000;

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
    /// The work of the threads that write to the disk.
    writers: RefCell<Vec<NextPiece>>,
    _state: Option<WorkerThread>,
}

impl Others {
    /// Has each of them go on once. In how many ns one of them is due; 0 if they have worked.
    fn go_on(&self) -> u64 {
        pass(Moment::Turn);
        // They may wait for one another, too: then the one that waits is passed over.
        let mut worked =
            self.catalog.try_borrow_mut().is_ok_and(|mut catalog| self.requests.take_waiting(&mut catalog));
        worked |= self.planner.take_next();
        if let Ok(mut writers) = self.writers.try_borrow_mut() {
            for writer in writers.iter_mut() {
                // A disk takes a while.
                worked |= fastrand::u8(..WRITER_TURNS) == 0 && writer();
            }
        }
        let mut due_ns = if self.writers.borrow().is_empty() { u64::MAX } else { DISK_NS };
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
    let routes = if place.is_home() { Routes::new(config, &common.access) } else { None };
    let device = SecureDevice::new(device, &common.security, place).with_routes(routes);
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
    (views, tables, checkpoints): (Views, Tables, Checkpoints),
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
        kept: Kept::new(config.morph.state_dir.clone()),
        checkpoints,
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
    asked: Arc<RequestQueue>,
    /// The rest of the world, which goes on while a part of the daemon waits.
    outside: Rc<dyn Fn()>,
}

/// An empty catalog whose snapshots go to all contexts.
fn watched_catalog(config: &ContextConfig, tables: &Tables, inboxes: &[Inbox]) -> Catalog {
    let mut catalog =
        Catalog::new(config.max_streams as usize, config.max_streams_per_peer).with_tables(tables.clone());
    for context in inboxes {
        let context = context.clone();
        catalog.watch(Box::new(move |snapshot, changed| context.post_snapshot(snapshot, changed).is_ok()));
    }
    catalog
}

impl SimulatedDaemon {
    /// Makes a daemon with an I/O context for each of these devices, whose sockets hold `held_bytes` bytes each, and opens it once what was
    /// deployed is restored. `outside` lets the rest of the world go on up to the daemon's time, while a part of the daemon waits.
    ///
    /// # Errors
    /// As [`super::start`].
    pub(crate) fn start(
        config: &ContextConfig,
        (devices, held_bytes): (Vec<Box<dyn Device>>, u32),
        outside: Rc<dyn Fn()>,
    ) -> Result<SimulatedDaemon, StartError> {
        check_durable(config)?;
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
        drop(take_enlisted());
        let Keeping { registry, side, thread, .. } = keep(config, &handle)?;
        let mut catalog = watched_catalog(config, &tables, &inboxes);
        assert_eq!(catalog.restore(&registry, side), Vec::<String>::new(), "what is on disk is whole");
        let mut checkpoints = Checkpoints::open(&config.morph).map_err(system(STORED_STATE))?;
        if let Some(last) = checkpoints.cuts_mut().and_then(|cuts| cuts.last()) {
            catalog.restore_positions(last.positions.clone());
        }
        let pools = devices.iter().map(|_| Pool::new(pool_config(config))).collect::<Result<Vec<Pool>, _>>();
        let pools = pools.map_err(system("buffers"))?;
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
        let security = secure(config, devices.first().map_or(config.listen, |device| device.local_addr()))?;
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
        let (managers, handle) = managers(config, of_platform, (views, tables, checkpoints), &common)?;
        let (catalog, contexts) = (RefCell::new(catalog), RefCell::new(contexts));
        let writers = RefCell::new(take_enlisted());
        let others = Rc::new(Others { contexts, catalog, requests, planner: work, writers, _state: thread });
        let (next_tick, asked) = (crossdock_device::now(), Arc::clone(&common.requests));
        let daemon = SimulatedDaemon { others, managers, next_tick, handle, asked, outside };
        Ok(daemon.begun())
    }

    /// The same, once its managers have begun with what was deployed.
    fn begun(mut self) -> SimulatedDaemon {
        self.waits_for_others();
        self.managers.begin();
        self.ask(ControlRequest::Restored);
        self
    }

    /// Wherever the managers wait, the other parts go on, and so does the rest of the world.
    fn waits_for_others(&self) {
        let (others, outside) = (Rc::clone(&self.others), Rc::clone(&self.outside));
        simulated::on_wait(move || {
            outside();
            for _ in 0..QUIET_ROUNDS {
                others.go_on();
            }
        });
    }

    /// Asks the managers for something, and has all parts go on until it is answered.
    fn ask<T>(&mut self, request: impl FnOnce(oneshot::Sender<T>) -> ControlRequest) -> T {
        let (to, answer) = oneshot::channel();
        self.asked.ask(request(to)).expect("the managers are there");
        loop {
            self.go_on(1);
            match answer.try_recv() {
                Ok(answer) => return answer,
                Err(oneshot::TryRecvError::Empty) => crossdock_device::nap(STEP),
                Err(oneshot::TryRecvError::Disconnected) => panic!("the managers answer"),
            }
        }
    }

    /// Deploys these handlers and no others.
    pub(crate) fn deploy(&mut self, handlers: Vec<HandlerSpec>) {
        let change = ChangeRequest::All(handlers);
        let outcome = self.ask(|to| ControlRequest::Change { change, discard_state: false, to });
        outcome.unwrap_or_else(|plan| panic!("it is refused: {plan:?}"));
    }

    /// A daemon has crashed: nothing of it is left, and nothing more is written.
    pub(crate) fn forget() {
        crash_at(None);
        simulated::on_wait(|| ());
        drop(take_enlisted());
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
