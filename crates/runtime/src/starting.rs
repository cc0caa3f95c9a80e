//! Starts a daemon's contexts: opens the sockets, makes the buffers and the threads, and joins them.

#[cfg(test)]
pub(crate) mod simulated;

use crate::access::Access;
use crate::attach::{AttachParts, AttachTarget, AttachThread};
use crate::catalog::Catalog;
use crate::catalog::thread::{CatalogHandle, CatalogThread};
use crate::checkpoints::RecordCounts;
use crate::clock::Clock;
use crate::config::{ContextConfig, ContextSpec, MorphConfig, PlatformConfig};
use crate::context::{Context, Parts};
use crate::graph::build::Workspace;
use crate::graph::{ContextIndex, Graph};
use crate::handle::{PassedSockets, Shared, StartError};
use crate::host::services::{self, ServiceThread, Services};
use crate::inbox::{Commands, Inbox};
use crate::io::{HandOver, IoPlace};
use crate::managers::checkpoints::Checkpoints;
use crate::managers::events::{About, Events};
use crate::managers::handle::ManagerHandle;
use crate::managers::keep::Kept;
use crate::managers::request::RequestQueue;
use crate::managers::view::Views;
use crate::managers::watch::Watch;
use crate::managers::{IoHandle, Managers, Parts as ManagerParts};
use crate::net::NetParts;
use crate::net::routes::Routes;
use crate::net::secure::{SecureDevice, Security};
use crate::planner::Planner;
use crate::platform::overlay::Overlay;
use crate::platform::start::{Seat, Started as Platform, start as start_platform};
use crate::state::{self, Started, StateSide};
use crate::tables::{self, TableThread};
use crate::worker::WorkerThread;
use crossdock_device::{
    Device, Doorbell, Poller, UdpDevice, UdpInfo, UdpOptions, pin_to_cpu, set_nice, take_short_turns,
};
use crossdock_engine::{Natives, Tables};
use crossdock_format::registry::Registry;
use crossdock_mailbox::attach::{AttachAddr, AttachListener};
use crossdock_mailbox::host::HostInterface;
use crossdock_mailbox::{DoorbellPage, Pool, PoolConfig};
use crossdock_transport::MAX_SUPER_BYTES;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The setting that is refused where contexts cannot be had.
const CONTEXTS: &str = "the contexts (`[[platform.context]]`)";

/// The setting that is refused where what is kept cannot be read.
const STORED_STATE: &str = "the stored state (`state_dir` in [morph])";

/// A system's refusal.
fn system(what: &'static str) -> impl Fn(io::Error) -> StartError {
    move |source| StartError::System { what, source }
}

/// An I/O context before it is joined to the rest.
struct Opened {
    name: String,
    config: ContextConfig,
    device: Box<UdpDevice>,
    pool: Pool,
    poller: Poller,
    inbox: Inbox,
    commands: Commands,
    host: HostInterface,
    bell: Arc<DoorbellPage>,
    /// Of the home context.
    services: Option<Services>,
}

/// The state that the I/O contexts share.
struct Common {
    clock: Clock,
    inboxes: Arc<[Inbox]>,
    requests: Arc<RequestQueue>,
    planner: Planner,
    catalog: CatalogHandle,
    security: Security,
    access: Arc<Access>,
}

/// Starts all contexts of a daemon; they take no packets and no clients yet.
///
/// # Errors
/// The resource that could not be had, and the remedy.
pub(crate) fn start(mut config: ContextConfig, passed: PassedSockets) -> Result<Shared, StartError> {
    check_cpus(&config).and_then(|()| check_durable(&config))?;
    let all = config.contexts().map_err(|why| system(CONTEXTS)(io::Error::new(io::ErrorKind::InvalidInput, why)))?;
    // The thread is declared before the services that it waits for: if anything below fails, these are dropped first.
    let (service_thread, opened) = open_all(&mut config, &all, passed.udp)?;
    let first = opened.first().map(|home| (home.device.info(), home.device.local_addr()));
    let (udp, local_addr) = first.ok_or_else(|| system(CONTEXTS)(io::Error::other("none has sessions")))?;
    let security = secure(&config, local_addr)?;
    let inboxes: Arc<[Inbox]> = opened.iter().map(|context| context.inbox.clone()).collect();
    let mut complaints = refused_priorities(&all);
    let (views, access) = observe(&config);
    let (tables, table_thread) = start_tables(&mut config, &views.events)?;
    // The state thread ends once the catalog's has ended.
    let (state_thread, catalog_thread, catalog) = start_catalog((&config, &tables), &inboxes, &views, &mut complaints)?;
    let clock = Clock::start();
    let large = |context: &Opened| context.pool.buffers_for(MAX_SUPER_BYTES);
    let doorbells: Vec<Doorbell> = opened.iter().map(|context| context.poller.doorbell()).collect();
    let ends = (&all[..], &doorbells[..], opened.iter().map(large).min().unwrap_or_default());
    let Platform { io: graphs, overlay, mut seats, threads } =
        start_platform(&config.platform, ends, config.spin_us, clock).map_err(system(CONTEXTS))?;
    for (seat, context) in seats.iter_mut().filter(|seat| seat.is_io).zip(&opened) {
        seat.network_buffers = context.pool.stats().classes.iter().map(|class| class.count as u64).sum();
    }
    let io_seats: Vec<(usize, &Seat)> = seats.iter().enumerate().filter(|(_, seat)| seat.is_io).collect();
    let targets = opened.iter().zip(&io_seats).map(|(context, (_, seat))| AttachTarget {
        inbox: context.inbox.clone(),
        gauges: Arc::clone(&seat.gauges),
        bell: Arc::clone(&context.bell),
    });
    // Where the services are.
    let home = opened.iter().position(|context| context.services.is_some());
    let home = home.ok_or_else(|| system(CONTEXTS)(io::Error::other("none has services")))?;
    let attach = attach(&config, passed.attach, local_addr, (targets.collect(), home, views.events.clone()))?;
    let handles = inboxes.iter().zip(&io_seats).map(|(inbox, (at, _))| io_handle(inbox, *at));
    let handles: Vec<IoHandle> = handles.collect();
    let pinned: Vec<usize> = seats.iter().filter_map(|seat| seat.cpu).collect();
    let (planner, planner_threads) = Planner::start(&pinned).map_err(system("a thread"))?;
    let requests = Arc::new(RequestQueue::default());
    let (all, to_managers, catalog_of) = (Arc::clone(&inboxes), Arc::clone(&requests), catalog.clone());
    let common = Common { clock, inboxes: all, requests: to_managers, planner, catalog: catalog_of, security, access };
    let io_threads = run_contexts((opened, home), graphs, HandOver::between(&doorbells), &common)?;
    let running = handles.iter().map(|io| io.inbox.clone()).zip(io_threads).collect();
    let watched = handles.iter().map(|io| (io.at, io.inbox.ended()));
    let watch = Watch::new(seats, threads, watched, Duration::from_millis(config.platform.stuck_after_ms.into()));
    let ended = watch.ended();
    let home = handles.get(home).cloned().ok_or_else(|| system(CONTEXTS)(io::Error::other("none has services")))?;
    let of = ((handles, home.at), (overlay, watch), (&catalog, tables));
    let (manager, counts, manager_thread) = start_managers(of, (&config.morph, config.platform), views, requests)?;
    Ok(Shared {
        local_addr,
        udp,
        inboxes,
        home: home.inbox,
        ended,
        threads: Mutex::new(running),
        attach_addr: attach.as_ref().map(|attach| attach.address().clone()),
        attach: Mutex::new(attach),
        services: Mutex::new(service_thread),
        state: Mutex::new(state_thread),
        tables: Mutex::new(table_thread),
        planner: Mutex::new(planner_threads),
        catalog,
        catalog_thread: Mutex::new(Some(catalog_thread)),
        manager,
        manager_thread: Mutex::new(Some(manager_thread)),
        counts,
        complaints,
        access: common.access,
    })
}

/// # Errors
/// Checkpoints have no place, or no time.
fn check_durable(config: &ContextConfig) -> Result<(), StartError> {
    let refused = |why| system("durable checkpoints")(io::Error::new(io::ErrorKind::InvalidInput, why));
    config.morph.check_durable().map_err(refused)
}

/// The handle to the I/O context at this place.
fn io_handle(inbox: &Inbox, at: usize) -> IoHandle {
    IoHandle { inbox: inbox.clone(), at: ContextIndex(at as u8) }
}

/// Reads the reference tables, and has their files looked at.
fn start_tables(config: &mut ContextConfig, events: &Events) -> Result<(Tables, Option<TableThread>), StartError> {
    let (tables, watched) = tables::read_all(std::mem::take(&mut config.tables)).map_err(StartError::Table)?;
    let thread = TableThread::start(watched, tables.clone(), events.clone()).map_err(system("a thread"))?;
    Ok((tables, thread))
}

/// The reports and events of a daemon, and its access rules, whose refusals are among them.
fn observe(config: &ContextConfig) -> (Views, Arc<Access>) {
    let views = Views::new(config.platform.history_s as usize, config.access.is_some());
    let noted = (Arc::clone(&views.refusals), views.events.clone());
    (views, Arc::new(Access::new(config, noted)))
}

/// The settings of secure sessions at this address.
///
/// # Errors
/// It would be open to a network that nobody has said to be trusted.
fn secure(config: &ContextConfig, addr: SocketAddr) -> Result<Security, StartError> {
    if config.security.is_open(addr) {
        return Err(StartError::Unprotected { addr });
    }
    let bounds = (config.max_sessions, config.max_sessions_per_peer);
    Security::new(config.security.clone(), bounds, config.idle_timeout_ms).map_err(system("random bytes"))
}

/// Opens the sockets of the I/O contexts among `all` and makes their memory; completes the configuration. The first of them is
/// the home context: only it has services, since only it has tasks.
fn open_all(
    config: &mut ContextConfig,
    all: &[(String, ContextSpec)],
    passed: Option<UdpSocket>,
) -> Result<(ServiceThread, Vec<Opened>), StartError> {
    let specs: Vec<&(String, ContextSpec)> = all.iter().filter(|(_, spec)| spec.io).collect();
    let devices = open_devices(config, passed, specs.len())?;
    if let Some(home) = devices.first() {
        complete(config, home.info());
    }
    let home = Poller::new().map_err(system("epoll"))?;
    // Declared before its work: if anything below fails, it is stopped before its end is waited for.
    let (thread, services) =
        services::start(&config.services, home.doorbell()).map_err(system("the services of tasks ([services])"))?;
    let mut home = Some((home, Some(services)));
    let mut opened = Vec::new();
    for ((name, spec), device) in specs.into_iter().zip(devices) {
        let (poller, services) = match home.take() {
            Some(home) => home,
            None => (Poller::new().map_err(system("epoll"))?, None),
        };
        let own = ContextConfig { pin_cpu: spec.cpu, nice: spec.nice, ..config.clone() };
        opened.push(open(name.clone(), own, device, poller, services)?);
    }
    Ok((thread, opened))
}

/// Starts the threads of the I/O contexts.
fn run_contexts(
    (opened, home): (Vec<Opened>, usize),
    graphs: Vec<(Graph, Workspace)>,
    hand_overs: Vec<HandOver>,
    common: &Common,
) -> Result<Vec<JoinHandle<()>>, StartError> {
    let of = opened.len();
    let parts = opened.into_iter().zip(graphs).zip(hand_overs).enumerate();
    let run = |(index, ((context, (graph, workspace)), hand_over))| {
        let Opened { name, config, device, pool, poller, inbox, commands, host, services, .. } = context;
        let morph_pool = crate::morph::chain::pool().map_err(system("buffers"))?;
        let place = IoPlace { index, of, home };
        let held_bytes = held_bytes(device.info());
        let routes = if place.is_home() { Routes::new(&config, &common.access) } else { None };
        let device = SecureDevice::new(device, &common.security, place).with_routes(routes);
        let parts = Parts {
            config,
            name,
            inboxes: Arc::clone(&common.inboxes),
            net: NetParts { place, hand_over, clock: common.clock, device, held_bytes, pool, poller },
            morph_pool,
            inbox,
            commands,
            host,
            services: services.unwrap_or_else(Services::absent),
            graph,
            workspace,
            to_managers: Arc::clone(&common.requests),
            planner: common.planner.clone(),
            catalog: common.catalog.clone(),
            access: Arc::clone(&common.access),
        };
        run_context(parts).map_err(system("a thread"))
    };
    parts.map(run).collect()
}

/// Makes the memory of an I/O context.
fn open(
    name: String,
    config: ContextConfig,
    device: UdpDevice,
    poller: Poller,
    services: Option<Services>,
) -> Result<Opened, StartError> {
    let pool = Pool::new(pool_config(&config)).map_err(system("buffers"))?;
    let (inbox, commands) = Inbox::new(&name, poller.doorbell());
    let bell = Arc::new(DoorbellPage::new().map_err(system("shared memory"))?);
    let host = HostInterface::new(config.host.clone(), bell.clone()).map_err(system("shared memory"))?;
    let device = Box::new(device);
    Ok(Opened { name, config, device, pool, poller, inbox, commands, host, bell, services })
}

/// The sockets of all I/O contexts, at one address. Of a socket that was passed each has a duplicate.
fn open_devices(config: &ContextConfig, passed: Option<UdpSocket>, count: usize) -> Result<Vec<UdpDevice>, StartError> {
    let addr = passed.as_ref().and_then(|passed| passed.local_addr().ok()).unwrap_or(config.listen);
    let devices = match passed {
        None => UdpDevice::bind_shared(addr, count, &udp_options(config)),
        Some(passed) => UdpDevice::over(passed, udp_options(config)).and_then(|first| {
            let further: io::Result<Vec<UdpDevice>> = (1..count).map(|_| first.try_clone()).collect();
            further.map(|further| std::iter::once(first).chain(further).collect())
        }),
    };
    devices.map_err(|source| StartError::Bind { addr, source })
}

/// Starts an I/O context's thread.
fn run_context(parts: Parts) -> io::Result<JoinHandle<()>> {
    let name = parts.name.clone();
    let run = move || {
        // Checked before; should the CPU have gone since, the context runs where the system puts it.
        let _ = parts.config.pin_cpu.map(pin_to_cpu);
        let _ = parts.config.nice.map(set_nice);
        // Where others want its processor too, a packet wakes it at once. Refused, it waits for its turn as they do.
        let _ = take_short_turns();
        Context::new(parts).run();
    };
    std::thread::Builder::new().name(name).spawn(run)
}

/// The parts that managers work with: the I/O contexts and the home one, the graphs of all contexts, and the names that queries may have.
type OfManagers<'a> = ((Vec<IoHandle>, ContextIndex), (Overlay, Watch), (&'a CatalogHandle, Tables));

/// Starts the managers' thread, which takes `requests`.
fn start_managers(
    ((io, home), (overlay, watch), (catalog, tables)): OfManagers<'_>,
    (morph, config): (&MorphConfig, PlatformConfig),
    views: Views,
    requests: Arc<RequestQueue>,
) -> Result<(ManagerHandle, RecordCounts, JoinHandle<()>), StartError> {
    let kept = Kept::new(morph.state_dir.clone());
    let mut checkpoints = Checkpoints::open(morph).map_err(system(STORED_STATE))?;
    if let Some(positions) = checkpoints.cuts_mut().and_then(|cuts| cuts.last()).map(|last| last.positions.clone()) {
        // Before the first publisher comes.
        let restored = catalog.run(move |catalog| catalog.restore_positions(positions));
        restored.map_err(|stopped| system(STORED_STATE)(io::Error::other(stopped)))?;
    }
    let counts = checkpoints.counts();
    let natives = Natives::built_in().with_tables(tables);
    let handle = ManagerHandle::new(Arc::clone(&requests), views.clone());
    let catalog = catalog.clone();
    let parts = ManagerParts { io, home, catalog, overlay, watch, natives, config, kept, checkpoints, views, requests };
    Ok((handle, counts, Managers::start(parts).map_err(system("a thread"))?))
}

/// Starts the thread of the catalog, which has what is kept and gives its snapshots to the I/O contexts.
fn start_catalog(
    (config, tables): (&ContextConfig, &Tables),
    inboxes: &[Inbox],
    views: &Views,
    complaints: &mut Vec<String>,
) -> Result<(Option<WorkerThread>, CatalogThread, CatalogHandle), StartError> {
    let (handle, requests) = CatalogHandle::new();
    let Keeping { registry, thread, side, complaints: mut unread } = keep(config, &handle)?;
    complaints.append(&mut unread);
    let catalog = Catalog::new(config.max_streams as usize, config.max_streams_per_peer);
    let mut catalog = catalog.with_tables(tables.clone());
    for context in inboxes {
        let context = context.clone();
        catalog.watch(Box::new(move |snapshot, changed| context.post_snapshot(snapshot, changed).is_ok()));
    }
    complaints.append(&mut catalog.restore(&registry, side));
    if let Some(after_s) = NonZero::new(config.unused_stream_expiry_s) {
        let events = views.events.clone();
        let report = move |stream: &str, version: Option<u32>| {
            let (kind, of) = match version {
                None => ("stream-removed", String::new()),
                Some(version) => ("version-removed", format!("v{version} of ")),
            };
            let text = format!("{of}stream `{stream}` was unused for {after_s} s (`unused_stream_expiry_s`)");
            events.note(kind, About::default(), text);
        };
        catalog.expire_unused(Duration::from_secs(after_s.get().into()), Instant::now(), report);
    }
    // The restored state is on its way before anybody can ask for it.
    catalog.publish_snapshot();
    let started = CatalogThread::start(catalog, &handle, requests);
    let started = started.map_err(|source| StartError::System { what: "a thread", source })?;
    Ok((thread, started, handle))
}

/// Starts the thread by which processes attach, if any may.
fn attach(
    config: &ContextConfig,
    passed: Option<AttachListener>,
    local_addr: SocketAddr,
    (contexts, home, events): (Vec<AttachTarget>, usize, Events),
) -> Result<Option<AttachThread>, StartError> {
    if !config.attach.enabled {
        return Ok(None);
    }
    let configured = || config.attach.address.clone().unwrap_or_else(|| AttachAddr::for_listen(local_addr));
    let address = passed.as_ref().map_or_else(configured, |passed| passed.address().clone());
    let (config, host, of) = (config.attach.clone(), config.host.clone(), address.clone());
    let parts = AttachParts { config, host, address: of, passed, contexts, home, events };
    AttachThread::start(parts).map(Some).map_err(|source| StartError::Attach { address, source })
}

/// Bytes of packets that a socket holds, at least.
fn held_bytes(udp: UdpInfo) -> u32 {
    // The kernel charges a packet up to twice its length.
    u32::try_from(udp.receive_buffer_bytes / 2).unwrap_or(u32::MAX).max(64 << 10)
}

/// The values that the configuration leaves to the machine.
fn complete(config: &mut ContextConfig, udp: UdpInfo) {
    config.window_bytes = config.window_bytes.min(held_bytes(udp));
    if config.node.is_empty() {
        config.node = host_name();
    }
}

/// Whether all contexts can be pinned as requested.
fn check_cpus(config: &ContextConfig) -> Result<(), StartError> {
    let refused = |what| move |source| StartError::System { what, source };
    if let Some(cpu) = config.pin_cpu {
        check_cpu(cpu).map_err(refused("the CPU to pin to (`pin_cpu`)"))?;
    }
    let mut cpus = config.platform.contexts.iter().filter_map(|context| context.cpu);
    cpus.try_for_each(|cpu| check_cpu(cpu).map_err(refused("the CPU of a context (`cpu` in [[platform.context]])")))
}

/// The contexts that cannot have the priority that they are to have, in words: they have the daemon's. Tried on threads
/// of their own.
fn refused_priorities(all: &[(String, ContextSpec)]) -> Vec<String> {
    let refused = |(name, spec): &(String, ContextSpec)| {
        let nice = spec.nice?;
        let tried = std::thread::spawn(move || set_nice(nice)).join();
        let why = tried.unwrap_or_else(|_| Err(io::Error::other("the try failed"))).err()?;
        Some(format!(
            "context {name} has the daemon's own priority, because nice = {nice} is refused: {why}; it needs \
             CAP_SYS_NICE, or a \
             limit that allows it (`ulimit -e`)"
        ))
    };
    all.iter().filter_map(refused).collect()
}

/// How the socket is to be.
pub(crate) fn udp_options(config: &ContextConfig) -> UdpOptions {
    let socket_buffer_bytes = config.socket_buffer_bytes as usize;
    UdpOptions {
        receive_buffer_bytes: socket_buffer_bytes,
        send_buffer_bytes: socket_buffer_bytes,
        loopback_packet_bytes: config.loopback_packet_bytes as usize,
        offload: config.gso,
        ..UdpOptions::default()
    }
}

/// The restored state, and the thread that keeps it from here on. The side is dropped before the thread, which ends
/// with it.
#[derive(Default)]
struct Keeping {
    registry: Registry,
    side: Option<StateSide>,
    thread: Option<WorkerThread>,
    complaints: Vec<String>,
}

/// Reads what is kept, if anything is to be.
fn keep(config: &ContextConfig, catalog: &CatalogHandle) -> Result<Keeping, StartError> {
    // Nothing is to be kept.
    let Some(directory) = &config.morph.state_dir else { return Ok(Keeping::default()) };
    let catalog = catalog.clone();
    let Started { registry, side, thread, complaints } =
        state::start(directory, move || catalog.post(Catalog::take_kept)).map_err(system(STORED_STATE))?;
    Ok(Keeping { registry, side: Some(side), thread: Some(thread), complaints })
}

/// This machine's name, for want of a configured one.
fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

/// Whether a CPU can be pinned to, tried on a thread of its own.
fn check_cpu(cpu: usize) -> io::Result<()> {
    std::thread::spawn(move || pin_to_cpu(cpu)).join().unwrap_or_else(|_| Err(io::Error::other("the try failed")))
}

/// Buffers of each class for records that are longer than a packet, at least.
const LEAST_LONG: usize = 3;

/// The default classes of buffers, their number scaled to the configured memory; and for records that are longer than a packet
/// larger ones, each class with as many as an eighth of that memory, or [`LEAST_LONG`].
fn pool_config(config: &ContextConfig) -> PoolConfig {
    let (bytes, most) = (config.buffer_bytes, config.most_record_bytes());
    let classes = PoolConfig::default().classes;
    let default: u64 = classes.iter().map(|(size, count)| (size * count) as u64).sum();
    let scaled = classes.into_iter().map(|(size, count)| {
        let count = (count as u128 * u128::from(bytes) / u128::from(default)) as usize;
        (size, count.max(64))
    });
    let sizes = [256 << 10, 1 << 20, 4 << 20].into_iter().filter(|size| *size < most).chain([most]);
    let long = sizes.map(|size| (size, ((bytes / 8) as usize / size).max(LEAST_LONG)));
    PoolConfig { classes: scaled.chain(long).collect() }
}
