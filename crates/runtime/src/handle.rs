//! The rest of the daemon's handle to a context: start it, query it, stop it.

use crate::attach::{AttachParts, AttachThread};
use crate::catalog::thread::{CatalogHandle, CatalogThread};
use crate::catalog::{Between, Catalog};
use crate::clock::Clock;
use crate::config::{ContextConfig, PlatformConfig};
use crate::context::{Context, Parts};
use crate::inbox::{Command, Inbox};
use crate::info::{
    ClientInfo, ContextInfo, ConversionInfo, ExplainInfo, FormatInfo, MailboxInfo, PathInfo, StreamInfo,
    SubscriptionInfo,
};
use crate::managers::handle::ManagerHandle;
use crate::managers::keep::Kept;
use crate::managers::request::RequestQueue;
use crate::managers::view::Views;
use crate::managers::watch::Watch;
use crate::managers::{Managers, Parts as ManagerParts};
use crate::planner::{Planner, PlannerThreads};
use crate::platform::overlay::Overlay;
use crate::platform::start::{Started as Platform, start as start_platform};
use crate::refusal::Stopped;
use crate::services::{self, ServiceThread};
use crate::state::{self, Started, StateSide, StateThread};
use crate::subscriptions::reads;
use crate::tasks::TaskFactory;
use crossdock_control::conversions::Owner as ConversionOwner;
use crossdock_device::{Device, Poller, UdpDevice, UdpInfo, UdpOptions, pin_to_cpu, set_nice, take_short_turns};
use crossdock_engine::Natives;
use crossdock_format::Format;
use crossdock_format::registry::{Policy, Registry};
use crossdock_mailbox::attach::{AttachAddr, AttachListener};
use crossdock_mailbox::host::{HostInterface, MailboxOptions, Owner};
use crossdock_mailbox::{BellPage, Pool, PoolConfig};
use crossdock_query::QueryError;
use crossdock_transport::FormatName;
use crossdock_transport::control::Refusal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// A conversion that the daemon keeps: between which formats of which stream, and how it goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeptConversion {
    /// The stream's name.
    pub stream: String,
    /// The format that it reads.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::info::FormatNameSchema))]
    pub from: FormatName,
    /// The format that it makes.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::info::FormatNameSchema))]
    pub to: FormatName,
    /// The conversion's text, as [`crossdock_format::convert::Conversion`] reads it.
    #[serde(default)]
    pub conversion: String,
}

/// Why a query has no plan.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExplainError {
    /// What is wrong with it.
    #[error("{0}")]
    Query(#[from] QueryError),
    /// A format that is said to be accepted is not known, or its name is none.
    #[error("{0}")]
    Format(String),
}

/// Why a context could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address could not be had.
    #[error("{source}{hint}", hint = bind_hint(source))]
    Bind {
        /// The configured address.
        addr: SocketAddr,
        /// What the system says, with the address.
        source: io::Error,
    },
    /// The attach socket could not be had.
    #[error("processes could not attach at {address}: {source}{hint}", hint = attach_hint(source))]
    Attach {
        /// Its address, configured or made from the one that is received on.
        address: AttachAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The system refused memory, a thread or the like.
    #[error("cannot start the context: {what}: {source}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

fn bind_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => " (is another daemon running? choose another port with `listen`)",
        io::ErrorKind::AddrNotAvailable => " (the address must be one of this machine's)",
        io::ErrorKind::PermissionDenied => " (ports below 1024 need privileges; choose another with `listen`)",
        _ => "",
    }
}

fn attach_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => " (choose another `address` in [attach])",
        _ => " (choose another `address` in [attach], or let nobody attach with `enabled = false`)",
    }
}

/// Starts the thread of the context with the device.
fn run_context(parts: Parts) -> io::Result<JoinHandle<()>> {
    let run = move || {
        // Checked before; should the CPU have gone since, the context runs where the system puts it.
        let _ = parts.config.pin_cpu.map(pin_to_cpu);
        let _ = parts.config.nice.map(set_nice);
        // Where others want its processor too, a packet wakes it at once. Refused, it waits for its turn as they do.
        let _ = take_short_turns();
        Context::new(parts).run();
    };
    std::thread::Builder::new().name("c-core-0".into()).spawn(run)
}

/// Starts the managers' thread, which takes `requests`.
fn start_managers(
    (dock, overlay, watch): (Inbox, Overlay, Watch),
    catalog: &CatalogHandle,
    config: PlatformConfig,
    kept: Kept,
    requests: Arc<RequestQueue>,
) -> io::Result<(ManagerHandle, JoinHandle<()>)> {
    let (natives, views) = (Natives::built_in(), Views::new(config.history_s as usize));
    let handle = ManagerHandle::new(Arc::clone(&requests), views.clone());
    let catalog = catalog.clone();
    let parts = ManagerParts { dock, catalog, overlay, watch, natives, config, kept, views, requests };
    Ok((handle, Managers::start(parts)?))
}

/// Starts the thread of the catalog, which has what is kept and gives its snapshots to the context of `inbox`.
fn start_catalog(
    config: &ContextConfig,
    inbox: &Inbox,
    complaints: &mut Vec<String>,
) -> Result<(Option<StateThread>, CatalogThread, CatalogHandle), StartError> {
    let (handle, requests) = CatalogHandle::new();
    let Keeping { registry, thread, side, complaints: mut unread } = keep(config, &handle)?;
    complaints.append(&mut unread);
    let mut catalog = Catalog::new(config.max_streams as usize);
    let context = inbox.clone();
    catalog.watch(Box::new(move |snapshot, changed| {
        let (snapshot, changed) = (Arc::clone(snapshot), Arc::clone(changed));
        context.post(move |context| context.take_snapshot(snapshot, &changed)).is_ok()
    }));
    complaints.append(&mut catalog.restore(&registry, side));
    // What was restored is on its way before anybody can ask for it.
    catalog.publish_snapshot();
    let started = CatalogThread::start(catalog, &handle, requests);
    let started = started.map_err(|source| StartError::System { what: "a thread", source })?;
    Ok((thread, started, handle))
}

/// Sockets that were open before the daemon started, as a service manager opens them.
#[derive(Debug, Default)]
pub struct PassedSockets {
    /// Bound; the context receives on it.
    pub udp: Option<UdpSocket>,
    /// Listening; processes attach by it.
    pub attach: Option<AttachListener>,
}

/// A handle to a running context. Cheap to clone; the context stops with [`ContextHandle::stop`] or with its last
/// handle.
#[derive(Clone, Debug)]
pub struct ContextHandle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    local_addr: SocketAddr,
    udp: UdpInfo,
    inbox: Inbox,
    thread: Mutex<Option<JoinHandle<()>>>,
    attach_addr: Option<AttachAddr>,
    attach: Mutex<Option<AttachThread>>,
    services: Mutex<ServiceThread>,
    state: Mutex<Option<StateThread>>,
    planner: Mutex<PlannerThreads>,
    catalog: CatalogHandle,
    catalog_thread: Mutex<Option<CatalogThread>>,
    manager: ManagerHandle,
    manager_thread: Mutex<Option<JoinHandle<()>>>,
    complaints: Vec<String>,
}

impl ContextHandle {
    /// Opens the socket, makes the buffers and starts the context's thread; it takes packets when this returns.
    ///
    /// # Errors
    /// What could not be had, and what would mend it.
    pub fn start(config: ContextConfig) -> Result<ContextHandle, StartError> {
        let context = ContextHandle::prepare(config, PassedSockets::default())?;
        context.open()?;
        Ok(context)
    }

    /// The same without taking packets and clients before [`ContextHandle::open`]: they wait in their sockets while
    /// handlers, streams and mailboxes are declared. A socket that is passed is used in place of the configured
    /// address.
    ///
    /// # Errors
    /// What could not be had, and what would mend it.
    pub fn prepare(mut config: ContextConfig, passed: PassedSockets) -> Result<ContextHandle, StartError> {
        let system = |what| move |source| StartError::System { what, source };
        let (device, poller) = open(&config, passed.udp)?;
        let udp = device.info();
        complete(&mut config, udp);
        let pool = Pool::new(pool_config(config.buffer_bytes)).map_err(system("buffers"))?;
        let morph_pool = crate::morph::chain::pool().map_err(system("buffers"))?;
        let (doorbell, local_addr) = (poller.doorbell(), device.local_addr());
        let (inbox, receiver) = Inbox::new(doorbell.clone());
        let clock = Clock::start();
        check_cpus(&config)?;
        let bell = Arc::new(BellPage::new().map_err(system("shared memory"))?);
        let host = HostInterface::new(config.host.clone(), bell.clone()).map_err(system("shared memory"))?;
        // The thread is declared before its work: if anything below fails, it is stopped before its end is waited for.
        let (service_thread, services) = services::start(&config.services, doorbell.clone())
            .map_err(system("the services of tasks ([services])"))?;
        let mut complaints = refused_priorities(&config);
        // As above: the state thread ends once the catalog's has ended.
        let (state_thread, catalog_thread, catalog) = start_catalog(&config, &inbox, &mut complaints)?;
        let attach = attach(&config, passed.attach, local_addr, bell, &inbox)?;
        let large_buffers = pool.stats().classes.last().map_or(0, |class| class.count);
        let io = (doorbell.clone(), config.pin_cpu, large_buffers);
        let Platform { io: (graph, workspace), overlay, seats, threads } =
            start_platform(&config.platform, io, config.spin_us, clock)
                .map_err(system("the contexts (`[[platform.context]]`)"))?;
        let requests = Arc::new(RequestQueue::default());
        let kept = Kept::new(config.morph.state_dir.clone());
        let (news, platform_config) = (Arc::clone(&requests), config.platform.clone());
        let pinned: Vec<usize> = seats.iter().filter_map(|seat| seat.cpu).collect();
        let (planner, planner_threads) = Planner::start(&pinned).map_err(system("a thread"))?;
        let watch = Watch::new(seats, threads, Duration::from_millis(config.platform.stuck_after_ms.into()));
        let parts = Parts {
            config,
            clock,
            device,
            pool,
            morph_pool,
            poller,
            inbox: inbox.clone(),
            commands: receiver,
            host,
            services,
            graph,
            workspace,
            news,
            planner,
            catalog: catalog.clone(),
        };
        let thread = run_context(parts).map_err(system("a thread"))?;
        let contexts = (inbox.clone(), overlay, watch);
        let (manager, manager_thread) =
            start_managers(contexts, &catalog, platform_config, kept, requests).map_err(system("a thread"))?;
        let shared = Shared {
            local_addr,
            udp,
            inbox,
            thread: Mutex::new(Some(thread)),
            attach_addr: attach.as_ref().map(|attach| attach.address().clone()),
            attach: Mutex::new(attach),
            services: Mutex::new(service_thread),
            state: Mutex::new(state_thread),
            planner: Mutex::new(planner_threads),
            catalog,
            catalog_thread: Mutex::new(Some(catalog_thread)),
            manager,
            manager_thread: Mutex::new(Some(manager_thread)),
            complaints,
        };
        Ok(ContextHandle { shared: Arc::new(shared) })
    }

    /// Waits until the kept handlers are restored, then takes packets and clients: every record that is acknowledged
    /// reaches the handlers of its stream.
    ///
    /// # Errors
    /// The system's, or the context has stopped.
    pub fn open(&self) -> Result<(), StartError> {
        let system = |source| StartError::System { what: "the socket cannot be watched", source };
        let opened = self.shared.manager.wait_restored().and_then(|()| self.ask(Context::open));
        opened.map_err(|stopped| system(io::Error::other(stopped)))?.map_err(system)
    }

    /// The address it receives on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.local_addr
    }

    /// What the kernel granted its socket.
    #[must_use]
    pub fn udp_info(&self) -> UdpInfo {
        self.shared.udp
    }

    /// Where processes of this machine attach; `None` if they may not.
    #[must_use]
    pub fn attach_addr(&self) -> Option<&AttachAddr> {
        self.shared.attach_addr.as_ref()
    }

    /// The managers: what handlers are wanted, which are there, where they run.
    #[must_use]
    pub fn manager(&self) -> &ManagerHandle {
        &self.shared.manager
    }

    /// Whether what is kept outlives the daemon.
    #[must_use]
    pub fn keeps_state(&self) -> bool {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// What was kept by an earlier daemon and could not be restored, which priorities the system refuses, and why; in
    /// words.
    #[must_use]
    pub fn not_restored(&self) -> &[String] {
        &self.shared.complaints
    }

    /// Has the context run something short, once it has taken in what has changed in the catalog before.
    fn ask<T: Send + 'static>(&self, work: impl FnOnce(&mut Context) -> T + Send + 'static) -> Result<T, Stopped> {
        self.shared.catalog.run(|_| ())?;
        self.shared.inbox.run(work)
    }

    /// Has the catalog make a change, and waits until it is on disk.
    fn change_kept(
        &self,
        change: impl FnOnce(&mut Catalog) -> Result<(), Refusal> + Send + 'static,
    ) -> Result<Result<(), String>, Stopped> {
        let (answer, wait) = oneshot::channel();
        self.shared.catalog.post(move |catalog| {
            let changed = change(catalog);
            catalog.publish_snapshot();
            // The caller may have gone.
            let answer =
                move |outcome: Result<(), Refusal>| drop(answer.send(outcome.map_err(|refusal| refusal.message)));
            catalog.answer_when_kept(changed, Box::new(answer));
        });
        wait.recv().map_err(|_| Stopped)
    }

    /// All streams, in the order in which they were first announced.
    ///
    /// # Errors
    /// [`Stopped`]; so for all questions.
    pub fn streams(&self) -> Result<Vec<StreamInfo>, Stopped> {
        self.ask(|context| context.stream_infos())
    }

    /// All subscriptions, oldest first.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn subscriptions(&self) -> Result<Vec<SubscriptionInfo>, Stopped> {
        self.ask(|context| context.subscription_infos())
    }

    /// All formats announced on any stream.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn formats(&self) -> Result<Vec<FormatInfo>, Stopped> {
        self.ask(|context| context.format_infos())
    }

    /// The context's counters so far, by exit.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn context(&self) -> Result<ContextInfo, Stopped> {
        self.ask(|context| context.context_info())
    }

    /// Clients that are attached by shared memory, in the order of their places.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn clients(&self) -> Result<Vec<ClientInfo>, Stopped> {
        self.ask(|context| context.client_infos())
    }

    /// All mailboxes, in the order of their names.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn mailboxes(&self) -> Result<Vec<MailboxInfo>, Stopped> {
        self.ask(|context| context.mailbox_infos())
    }

    /// Makes a mailbox of the daemon's own, which stays until it is deleted.
    ///
    /// # Errors
    /// [`Stopped`]; within, why the mailbox is refused.
    pub fn create_mailbox(&self, name: &str, options: MailboxOptions) -> Result<Result<(), String>, Stopped> {
        let name = name.to_owned();
        self.ask(move |context| context.create_own_mailbox(&name, options))
    }

    /// Makes a kind of task known: from now on sessions can have it read mailboxes, under this name. A kind of the same
    /// name is replaced; tasks that run go on as they are.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn register_task(&self, name: &str, factory: TaskFactory) -> Result<(), Stopped> {
        let name = name.to_owned();
        self.ask(move |context| context.tasks.register(&name, factory))
    }

    /// Starts a task that reads a mailbox.
    ///
    /// # Errors
    /// [`Stopped`]; within, why the task is refused.
    pub fn create_task(
        &self,
        task: &str,
        mailbox: &str,
        arguments: &BTreeMap<String, String>,
    ) -> Result<Result<(), String>, Stopped> {
        let (task, mailbox, arguments) = (task.to_owned(), mailbox.to_owned(), arguments.clone());
        self.ask(move |context| {
            let made = context.create_task(Owner::Daemon, &task, &mailbox, &arguments);
            made.map_err(|refusal| refusal.message)
        })
    }

    /// Passes the lines that tasks log to `sink`, on a thread of its own, instead of writing them to standard error.
    pub fn log_to(&self, sink: impl FnMut(&str) + Send + 'static) {
        let services = self.shared.services.lock().unwrap_or_else(PoisonError::into_inner);
        services.log_to(Box::new(sink));
    }

    /// The plan of a query, where it would run, and what it costs on the stream's latest records. With accepted
    /// formats, also how each format of the stream would come to one of them.
    ///
    /// # Errors
    /// [`Stopped`]; within, what is wrong with the query or the formats.
    pub fn explain(&self, sql: &str, accept: &[FormatName]) -> Result<Result<ExplainInfo, ExplainError>, Stopped> {
        // Slow work is done here, on the caller's thread: the context has traffic to serve.
        let select = match crossdock_query::parse(sql) {
            Ok(select) => select,
            Err(error) => return Ok(Err(error.into())),
        };
        let accept = accept.to_vec();
        let explained = match self.ask(move |context| context.explain(select, &accept))? {
            Ok(explained) => explained,
            Err(error) => return Ok(Err(error)),
        };
        let program = match explained.plan() {
            Ok(program) => program,
            Err(error) => return Ok(Err(error.into())),
        };
        let paths = match explained.targets.is_empty() {
            true => Vec::new(),
            false => {
                let (stream, targets) = (explained.stream.clone(), explained.targets.clone());
                let reads = BTreeMap::from([(explained.format.id(), reads(&program))]);
                self.ask(move |context| context.explain_paths(&stream, &targets, &reads))?
            }
        };
        Ok(Ok(explained.measured(program, paths)))
    }

    /// All conversions, by stream.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn conversions(&self) -> Result<Vec<ConversionInfo>, Stopped> {
        self.ask(|context| context.conversion_infos())
    }

    /// How formats come to subscriptions that do not accept them as they are, and where nothing leads there.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn paths(&self) -> Result<Vec<PathInfo>, Stopped> {
        self.ask(|context| context.path_infos())
    }

    /// Takes in a conversion that is kept, in place of the one that is kept between the same formats.
    ///
    /// # Errors
    /// [`Stopped`]; within, why it is refused, and then nothing has changed.
    pub fn keep_conversion(&self, conversion: &KeptConversion) -> Result<Result<(), String>, Stopped> {
        // Compiled here, on the caller's thread: the control thread has others to see to.
        let KeptConversion { stream, from, to, conversion } = conversion.clone();
        let between = Between { stream: &stream, from: &from, to: &to };
        let compiled = self.shared.catalog.snapshot()?.compile(&between, &conversion);
        match compiled {
            Ok(compiled) => self.change_conversions(stream.clone(), move |catalog| {
                catalog.register(ConversionOwner::Kept, &stream, compiled)
            }),
            Err(refusal) => Ok(Err(refusal.message)),
        }
    }

    /// Takes out a conversion that is kept, whatever its text.
    ///
    /// # Errors
    /// [`Stopped`]; within, that there is none.
    pub fn discard_conversion(&self, conversion: &KeptConversion) -> Result<Result<(), String>, Stopped> {
        let KeptConversion { stream, from, to, .. } = conversion.clone();
        self.change_conversions(stream.clone(), move |catalog| {
            let known = catalog.snapshot();
            let (from, to) = (known.format_known(&stream, &from)?.id(), known.format_known(&stream, &to)?.id());
            catalog.unregister(ConversionOwner::Kept, &stream, from, to)
        })
    }

    /// Has the catalog change the conversions of a stream, and waits until it is on disk and routes are planned by it.
    fn change_conversions(
        &self,
        stream: String,
        change: impl FnOnce(&mut Catalog) -> Result<(), Refusal> + Send + 'static,
    ) -> Result<Result<(), String>, Stopped> {
        let changed = self.change_kept(change)?;
        self.shared.inbox.wait_for_routes(stream)?;
        Ok(changed)
    }

    /// Sets how a stream's format may change from its next version on; the stream need not be there yet.
    ///
    /// # Errors
    /// [`Stopped`]; within, why it is refused.
    pub fn set_policy(&self, stream: &str, policy: Policy) -> Result<Result<(), String>, Stopped> {
        let stream = stream.to_owned();
        self.change_kept(move |catalog| catalog.set_policy(&stream, policy))
    }

    /// Whether a format could be the next version of a stream, by the stream's policy.
    ///
    /// # Errors
    /// [`Stopped`]; within, what is in the way.
    pub fn check_format(&self, stream: &str, format: &Format) -> Result<Result<(), String>, Stopped> {
        let (stream, format) = (stream.to_owned(), format.clone());
        self.shared.catalog.run(move |catalog| catalog.check_format(&stream, &format))
    }

    /// Makes a stream known before anybody publishes it.
    ///
    /// # Errors
    /// [`Stopped`]; within, why the stream is refused.
    pub fn declare_stream(&self, name: &str, format: &Format) -> Result<Result<(), String>, Stopped> {
        let (name, declared) = (name.to_owned(), format.clone());
        match self.shared.catalog.run(move |catalog| catalog.declare(&name, &declared))? {
            Ok(number) => self.shared.inbox.wait_for_formats(number, std::slice::from_ref(format)).map(Ok),
            Err(refusal) => Ok(Err(refusal.message)),
        }
    }

    /// Says goodbye to all sessions and waits for the context's end. Once is enough; more does nothing.
    pub fn stop(&self) {
        self.shared.stop();
    }
}

impl Shared {
    fn stop(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // Before the contexts that they speak to.
            self.manager.stop();
            if let Some(managers) = self.manager_thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
                let _ = managers.join();
            }
            // The context may have stopped by itself: then the command is not received, and the join returns at once.
            let _ = self.inbox.send(Command::Stop);
            let _ = thread.join();
            // What they wait for ended with the context.
            drop(self.attach.lock().unwrap_or_else(PoisonError::into_inner).take());
            self.services.lock().unwrap_or_else(PoisonError::into_inner).join();
            self.planner.lock().unwrap_or_else(PoisonError::into_inner).join();
            // With it the side of the thread that keeps its changes.
            drop(self.catalog_thread.lock().unwrap_or_else(PoisonError::into_inner).take());
            drop(self.state.lock().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Starts the thread by which processes attach, if any may.
fn attach(
    config: &ContextConfig,
    passed: Option<AttachListener>,
    local_addr: SocketAddr,
    bell: Arc<BellPage>,
    inbox: &Inbox,
) -> Result<Option<AttachThread>, StartError> {
    if !config.attach.enabled {
        return Ok(None);
    }
    let configured = || config.attach.address.clone().unwrap_or_else(|| AttachAddr::for_listen(local_addr));
    let address = passed.as_ref().map_or_else(configured, |passed| passed.address().clone());
    let (config, host) = (config.attach.clone(), config.host.clone());
    let parts = AttachParts { config, host, address: address.clone(), passed, bell, inbox: inbox.clone() };
    AttachThread::start(parts).map(Some).map_err(|source| StartError::Attach { address, source })
}

/// The socket, and the poller that watches it once the context takes packets.
fn open(config: &ContextConfig, passed: Option<UdpSocket>) -> Result<(Box<UdpDevice>, Poller), StartError> {
    let addr = passed.as_ref().and_then(|passed| passed.local_addr().ok()).unwrap_or(config.listen);
    let device = match passed {
        Some(passed) => UdpDevice::over(passed, udp_options(config)),
        None => UdpDevice::bind(addr, udp_options(config)),
    };
    let device = device.map_err(|source| StartError::Bind { addr, source })?;
    let poller = Poller::new().map_err(|source| StartError::System { what: "epoll", source })?;
    Ok((Box::new(device), poller))
}

/// Opens the socket of a context with these settings and closes it again: what the kernel grants it.
///
/// # Errors
/// As [`ContextHandle::start`] has for it: the address is taken, is none of this machine's, or needs privileges.
pub fn probe_udp(config: &ContextConfig) -> io::Result<UdpInfo> {
    UdpDevice::bind(config.listen, udp_options(config)).map(|device| device.info())
}

/// What the configuration leaves to the machine.
fn complete(config: &mut ContextConfig, udp: UdpInfo) {
    config.window_packets = config.window_packets.min(window_of(udp.receive_buffer_bytes, config));
    if config.node.is_empty() {
        config.node = host_name();
    }
}

/// Whether all contexts can be pinned as they are to be.
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
fn refused_priorities(config: &ContextConfig) -> Vec<String> {
    let names = config.platform.names().unwrap_or_default();
    let further = names.into_iter().zip(&config.platform.contexts).map(|(name, context)| (name, context.nice));
    let wanted = std::iter::once((PlatformConfig::IO_CONTEXT.to_owned(), config.nice)).chain(further);
    let refused = |(name, nice): (String, Option<i32>)| {
        let nice = nice?;
        let tried = std::thread::spawn(move || set_nice(nice)).join();
        let why = tried.unwrap_or_else(|_| Err(io::Error::other("the try failed"))).err()?;
        Some(format!(
            "context {name} has the daemon's own priority, since nice = {nice} is refused: {why}; it takes CAP_SYS_NICE, or a \
             limit that allows it (`ulimit -e`)"
        ))
    };
    wanted.filter_map(refused).collect()
}

/// How the socket is to be.
fn udp_options(config: &ContextConfig) -> UdpOptions {
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
    thread: Option<StateThread>,
    complaints: Vec<String>,
}

/// Reads what is kept, if anything is to be.
fn keep(config: &ContextConfig, catalog: &CatalogHandle) -> Result<Keeping, StartError> {
    let Some(directory) = &config.morph.state_dir else { return Ok(Keeping::default()) };
    let what = "what is kept (`state_dir` in [morph])";
    let catalog = catalog.clone();
    let Started { registry, side, thread, complaints } =
        state::start(directory, move || catalog.post(Catalog::look_after_kept))
            .map_err(|source| StartError::System { what, source })?;
    Ok(Keeping { registry, side: Some(side), thread: Some(thread), complaints })
}

/// This machine's name, for want of a configured one.
fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

/// The credit that the socket's receive buffer can hold, in packets: more would be lost and sent again. The kernel
/// charges about twice a packet's length for it.
fn window_of(receive_buffer_bytes: usize, config: &ContextConfig) -> u32 {
    let packet_bytes = config.packet_bytes.unwrap_or(config.loopback_packet_bytes).max(1) as usize;
    u32::try_from(receive_buffer_bytes / 2 / packet_bytes).unwrap_or(u32::MAX).max(8)
}

/// Whether a CPU can be pinned to, tried on a thread of its own.
fn check_cpu(cpu: usize) -> io::Result<()> {
    std::thread::spawn(move || pin_to_cpu(cpu)).join().unwrap_or_else(|_| Err(io::Error::other("the try failed")))
}

/// The default classes of buffers, their number scaled to the configured memory.
fn pool_config(bytes: u64) -> PoolConfig {
    let classes = PoolConfig::default().classes;
    let default: u64 = classes.iter().map(|(size, count)| (size * count) as u64).sum();
    let scaled = classes.into_iter().map(|(size, count)| {
        let count = (count as u128 * u128::from(bytes) / u128::from(default)) as usize;
        (size, count.max(64))
    });
    PoolConfig { classes: scaled.collect() }
}
