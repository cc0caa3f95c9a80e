//! The rest of the daemon's handle to a context: start it, query it, stop it.

use crate::announcing::{Plans, Unplanned};
use crate::attach::{AttachParts, AttachThread};
use crate::clock::Clock;
use crate::config::{ContextConfig, PlatformConfig};
use crate::context::{Context, Parts};
use crate::explain::Explained;
use crate::info::{
    ClientInfo, ContextInfo, ConversionInfo, ExplainInfo, FormatInfo, MailboxInfo, PathInfo, StreamInfo,
    SubscriptionInfo,
};
use crate::managers::dock::IoContext;
use crate::managers::handle::ManagerHandle;
use crate::managers::keep::Kept;
use crate::managers::view::Views;
use crate::managers::watch::Watch;
use crate::managers::{Managers, Parts as ManagerParts};
use crate::morph::lists::Planned as PlannedPath;
use crate::planner::{Planner, PlannerThread};
use crate::platform::start::{Started as Platform, start as start_platform};
use crate::services::{self, ServiceThread};
use crate::state::{self, Started, StateSide, StateThread};
use crate::subscriptions::reads;
use crate::tasks::TaskFactory;
use crossdock_device::{
    Device, Doorbell, Poller, UdpDevice, UdpInfo, UdpOptions, pin_to_cpu, set_nice, take_short_turns,
};
use crossdock_engine::Natives;
use crossdock_format::registry::{Policy, Registry};
use crossdock_format::{Format, FormatId};
use crossdock_mailbox::attach::{AttachAddr, AttachListener};
use crossdock_mailbox::host::{ClientKey, HostInterface, MailboxOptions, Prepared};
use crossdock_mailbox::{BellPage, Pool, PoolConfig};
use crossdock_query::{QueryError, Select};
use crossdock_transport::FormatName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most requests that wait for the context; further callers block.
const COMMANDS: usize = 64;

/// A request to the context, with the place for its answer.
pub(crate) enum Command {
    Streams(oneshot::Sender<Vec<StreamInfo>>),
    Subscriptions(oneshot::Sender<Vec<SubscriptionInfo>>),
    Formats(oneshot::Sender<Vec<FormatInfo>>),
    Context(oneshot::Sender<ContextInfo>),
    Explain(Box<Select>, Vec<FormatName>, oneshot::Sender<Result<Explained, ExplainError>>),
    /// How the formats of a stream would come to accepted ones, of which these fields are read.
    ExplainPaths {
        stream: String,
        targets: Vec<Format>,
        reads: BTreeMap<FormatId, Vec<bool>>,
        answer: oneshot::Sender<Vec<PlannedPath>>,
    },
    Conversions(oneshot::Sender<Vec<ConversionInfo>>),
    Paths(oneshot::Sender<Vec<PathInfo>>),
    Keep(Box<KeptConversion>, oneshot::Sender<Result<(), String>>),
    Discard(Box<KeptConversion>, oneshot::Sender<Result<(), String>>),
    SetPolicy(String, Policy, oneshot::Sender<Result<(), String>>),
    CheckFormat(String, Format, oneshot::Sender<Result<(), String>>),
    /// The queries to be planned before a stream gets one more format.
    Unplanned(String, Format, oneshot::Sender<Vec<Unplanned>>),
    Declare(String, Format, Box<Plans>, oneshot::Sender<Result<(), String>>),
    Clients(oneshot::Sender<Vec<ClientInfo>>),
    Mailboxes(oneshot::Sender<Vec<MailboxInfo>>),
    CreateMailbox(String, MailboxOptions, oneshot::Sender<Result<(), String>>),
    RegisterTask(String, TaskFactory, oneshot::Sender<()>),
    CreateTask {
        task: String,
        mailbox: String,
        arguments: BTreeMap<String, String>,
        answer: oneshot::Sender<Result<(), String>>,
    },
    /// From the attach thread: a process that may attach.
    Attach(Box<Prepared>, oneshot::Sender<Result<ClientKey, String>>),
    /// From the attach thread: a client that was taken in and could not be notified.
    Detach(ClientKey),
    /// From the managers: something short to be done between two batches.
    Run(Box<dyn FnOnce(&mut Context) + Send>),
    /// Takes packets and clients from now on.
    Open(oneshot::Sender<io::Result<()>>),
    Stop,
}

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

/// Starts the thread of the context with the device, and waits until it has what its registry keeps; what of that it
/// refused is a complaint.
fn run_context(
    parts: Parts,
    complaints: &mut Vec<String>,
    registry: Registry,
    side: Option<StateSide>,
) -> io::Result<JoinHandle<()>> {
    let (restored, refused) = oneshot::channel();
    let run = move || {
        // Checked before; should the CPU have gone since, the context runs where the system puts it.
        let _ = parts.config.pin_cpu.map(pin_to_cpu);
        let _ = parts.config.nice.map(set_nice);
        // Where others want its processor too, a packet wakes it at once. Refused, it waits for its turn as they do.
        let _ = take_short_turns();
        let mut context = Context::new(parts);
        // The receiver has gone if the start failed elsewhere.
        let _ = restored.send(context.restore(&registry));
        context.morph.state = side;
        context.run();
    };
    let thread = std::thread::Builder::new().name("c-core-0".into()).spawn(run)?;
    complaints.append(&mut refused.recv().unwrap_or_default());
    Ok(thread)
}

/// Sockets that were open before the daemon started, as a service manager opens them.
#[derive(Debug, Default)]
pub struct PassedSockets {
    /// Bound; the context receives on it.
    pub udp: Option<UdpSocket>,
    /// Listening; processes attach by it.
    pub attach: Option<AttachListener>,
}

/// The context has stopped, so it cannot answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the context has stopped")]
pub struct Stopped;

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
    commands: SyncSender<Command>,
    doorbell: Doorbell,
    thread: Mutex<Option<JoinHandle<()>>>,
    attach_addr: Option<AttachAddr>,
    attach: Mutex<Option<AttachThread>>,
    services: Mutex<ServiceThread>,
    state: Mutex<Option<StateThread>>,
    planner: Mutex<PlannerThread>,
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
        let (commands, receiver) = sync_channel(COMMANDS);
        let clock = Clock::start();
        check_cpus(&config)?;
        let bell = Arc::new(BellPage::new().map_err(system("shared memory"))?);
        let host = HostInterface::new(config.host.clone(), bell.clone()).map_err(system("shared memory"))?;
        // The thread is declared before its work: if anything below fails, it is stopped before its end is waited for.
        let (service_thread, services) = services::start(&config.services, doorbell.clone())
            .map_err(system("the services of tasks ([services])"))?;
        // As above: the thread ends with its side.
        let Keeping { registry, thread: state_thread, side, mut complaints } = keep(&config, &doorbell)?;
        complaints.append(&mut refused_priorities(&config));
        let attach = attach(&config, passed.attach, local_addr, bell, &commands, &doorbell)?;
        let large_buffers = pool.stats().classes.last().map_or(0, |class| class.count);
        let io = (doorbell.clone(), config.pin_cpu, large_buffers);
        let started = start_platform(&config.platform, io, config.spin_us, clock);
        let Platform { io: (graph, workspace), overlay, seats, threads } =
            started.map_err(system("the contexts (`[[platform.context]]`)"))?;
        let (asks, asked) = channel();
        let state_dir = config.morph.state_dir.clone();
        let (news, kept, platform_config) = (asks.clone(), Kept::new(state_dir), config.platform.clone());
        let pinned = seats.iter().filter_map(|seat| seat.cpu).collect();
        let (planner, standby_thread) =
            Planner::start(commands.clone(), doorbell.clone(), pinned).map_err(system("a thread"))?;
        let watch = Watch::new(seats, threads, Duration::from_millis(config.platform.stuck_after_ms.into()));
        let parts = Parts {
            config,
            clock,
            device,
            pool,
            morph_pool,
            poller,
            commands: receiver,
            host,
            services,
            graph,
            workspace,
            news,
            planner,
        };
        let thread = run_context(parts, &mut complaints, registry, side).map_err(system("a thread"))?;
        let dock = IoContext::new(commands.clone(), doorbell.clone());
        let (natives, views) = (Natives::built_in(), Views::new(platform_config.history_s as usize));
        let manager = ManagerHandle::new(asks, views.clone());
        let parts = ManagerParts { dock, overlay, watch, natives, config: platform_config, kept, views };
        let manager_thread = Managers::start(parts, asked).map_err(system("a thread"))?;
        let shared = Shared {
            local_addr,
            udp,
            commands,
            doorbell,
            thread: Mutex::new(Some(thread)),
            attach_addr: attach.as_ref().map(|attach| attach.address().clone()),
            attach: Mutex::new(attach),
            services: Mutex::new(service_thread),
            state: Mutex::new(state_thread),
            planner: Mutex::new(standby_thread),
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
        let opened = self.shared.manager.wait_restored().and_then(|()| self.ask(Command::Open));
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

    fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, Stopped> {
        let (answer, wait) = oneshot::channel();
        self.shared.commands.send(command(answer)).map_err(|_| Stopped)?;
        self.shared.doorbell.ring();
        wait.recv().map_err(|_| Stopped)
    }

    /// All streams, in the order in which they were first announced.
    ///
    /// # Errors
    /// [`Stopped`]; so for all questions.
    pub fn streams(&self) -> Result<Vec<StreamInfo>, Stopped> {
        self.ask(Command::Streams)
    }

    /// All subscriptions, oldest first.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn subscriptions(&self) -> Result<Vec<SubscriptionInfo>, Stopped> {
        self.ask(Command::Subscriptions)
    }

    /// All formats announced on any stream.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn formats(&self) -> Result<Vec<FormatInfo>, Stopped> {
        self.ask(Command::Formats)
    }

    /// The context's counters so far, by exit.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn context(&self) -> Result<ContextInfo, Stopped> {
        self.ask(Command::Context)
    }

    /// Clients that are attached by shared memory, in the order of their places.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn clients(&self) -> Result<Vec<ClientInfo>, Stopped> {
        self.ask(Command::Clients)
    }

    /// All mailboxes, in the order of their names.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn mailboxes(&self) -> Result<Vec<MailboxInfo>, Stopped> {
        self.ask(Command::Mailboxes)
    }

    /// Makes a mailbox of the daemon's own, which stays until it is deleted.
    ///
    /// # Errors
    /// [`Stopped`]; within, why the mailbox is refused.
    pub fn create_mailbox(&self, name: &str, options: MailboxOptions) -> Result<Result<(), String>, Stopped> {
        self.ask(|answer| Command::CreateMailbox(name.to_owned(), options, answer))
    }

    /// Makes a kind of task known: from now on sessions can have it read mailboxes, under this name. A kind of the same
    /// name is replaced; tasks that run go on as they are.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn register_task(&self, name: &str, factory: TaskFactory) -> Result<(), Stopped> {
        self.ask(|answer| Command::RegisterTask(name.to_owned(), factory, answer))
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
        self.ask(|answer| Command::CreateTask { task, mailbox, arguments, answer })
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
            Ok(select) => Box::new(select),
            Err(error) => return Ok(Err(error.into())),
        };
        let explained = match self.ask(|answer| Command::Explain(select, accept.to_vec(), answer))? {
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
                self.ask(|answer| Command::ExplainPaths { stream, targets, reads, answer })?
            }
        };
        Ok(Ok(explained.measured(program, paths)))
    }

    /// All conversions, by stream.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn conversions(&self) -> Result<Vec<ConversionInfo>, Stopped> {
        self.ask(Command::Conversions)
    }

    /// How formats come to subscriptions that do not accept them as they are, and where nothing leads there.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn paths(&self) -> Result<Vec<PathInfo>, Stopped> {
        self.ask(Command::Paths)
    }

    /// Takes in a conversion that is kept, in place of the one that is kept between the same formats.
    ///
    /// # Errors
    /// [`Stopped`]; within, why it is refused, and then nothing has changed.
    pub fn keep_conversion(&self, conversion: &KeptConversion) -> Result<Result<(), String>, Stopped> {
        self.ask(|answer| Command::Keep(Box::new(conversion.clone()), answer))
    }

    /// Takes out a conversion that is kept, whatever its text.
    ///
    /// # Errors
    /// [`Stopped`]; within, that there is none.
    pub fn discard_conversion(&self, conversion: &KeptConversion) -> Result<Result<(), String>, Stopped> {
        self.ask(|answer| Command::Discard(Box::new(conversion.clone()), answer))
    }

    /// Sets how a stream's format may change from its next version on; the stream need not be there yet.
    ///
    /// # Errors
    /// [`Stopped`]; within, why it is refused.
    pub fn set_policy(&self, stream: &str, policy: Policy) -> Result<Result<(), String>, Stopped> {
        self.ask(|answer| Command::SetPolicy(stream.to_owned(), policy, answer))
    }

    /// Whether a format could be the next version of a stream, by the stream's policy.
    ///
    /// # Errors
    /// [`Stopped`]; within, what is in the way.
    pub fn check_format(&self, stream: &str, format: &Format) -> Result<Result<(), String>, Stopped> {
        self.ask(|answer| Command::CheckFormat(stream.to_owned(), format.clone(), answer))
    }

    /// Makes a stream known before anybody publishes it.
    ///
    /// # Errors
    /// [`Stopped`]; within, why the stream is refused.
    pub fn declare_stream(&self, name: &str, format: &Format) -> Result<Result<(), String>, Stopped> {
        let mut plans = Box::new(Plans::default());
        // Planned here, on the caller's thread: the context has traffic to see to.
        plans.add(self.ask(|answer| Command::Unplanned(name.to_owned(), format.clone(), answer))?);
        self.ask(|answer| Command::Declare(name.to_owned(), format.clone(), plans, answer))
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
            let _ = self.commands.send(Command::Stop);
            self.doorbell.ring();
            let _ = thread.join();
            // What they wait for ended with the context.
            drop(self.attach.lock().unwrap_or_else(PoisonError::into_inner).take());
            self.services.lock().unwrap_or_else(PoisonError::into_inner).join();
            self.planner.lock().unwrap_or_else(PoisonError::into_inner).join();
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
    commands: &SyncSender<Command>,
    context: &Doorbell,
) -> Result<Option<AttachThread>, StartError> {
    if !config.attach.enabled {
        return Ok(None);
    }
    let configured = || config.attach.address.clone().unwrap_or_else(|| AttachAddr::for_listen(local_addr));
    let address = passed.as_ref().map_or_else(configured, |passed| passed.address().clone());
    let (config, host) = (config.attach.clone(), config.host.clone());
    let (commands, context) = (commands.clone(), context.clone());
    let parts = AttachParts { config, host, address: address.clone(), passed, bell, commands, context };
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
fn keep(config: &ContextConfig, doorbell: &Doorbell) -> Result<Keeping, StartError> {
    let Some(directory) = &config.morph.state_dir else { return Ok(Keeping::default()) };
    let what = "what is kept (`state_dir` in [morph])";
    let Started { registry, side, thread, complaints } =
        state::start(directory, doorbell.clone()).map_err(|source| StartError::System { what, source })?;
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
