//! The rest of the daemon's handle to a context: start it, query it, stop it.

use crate::access::{Access, Caller, Denial};
use crate::attach::AttachThread;
use crate::catalog::thread::{CatalogHandle, CatalogThread};
use crate::catalog::{Between, Catalog};
use crate::checkpoints::RecordCounts;
use crate::config::ContextConfig;
use crate::context::Context;
use crate::host::services::ServiceThread;
use crate::inbox::Inbox;
use crate::info::{
    ClientInfo, ContextInfo, ConversionInfo, ExplainInfo, FormatInfo, PathInfo, SessionInfo, StreamInfo,
    SubscriptionInfo, TableInfo, sum,
};
use crate::managers::handle::ManagerHandle;
use crate::planner::PlannerThreads;
use crate::refusal::Stopped;
use crate::starting;
use crate::subscribing::SetQueryError;
use crate::subscriptions::reads;
use crate::tables::{self, TableThread};
use crate::worker::WorkerThread;
use crossdock_control::conversions::Owner as ConversionOwner;
use crossdock_device::{UdpDevice, UdpInfo};
use crossdock_format::Format;
use crossdock_format::registry::{Policy, RegistryError};
use crossdock_mailbox::attach::{AttachAddr, AttachListener};
use crossdock_query::{Query, QueryError};
use crossdock_transport::FormatName;
use crossdock_transport::control::{Refusal, RefusalCode};
use crossdock_transport::secure::AuthorizedKeys;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A conversion that the daemon keeps: between which formats, for which stream, and how it goes.
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
    /// The error.
    #[error("{0}")]
    Query(#[from] QueryError),
    /// A format that is said to be accepted is not known, or its name is none.
    #[error("{0}")]
    Format(String),
    /// The access rules refuse it to the caller.
    #[error("{0}")]
    Denied(#[from] Denial),
}

/// Why a context could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address could not be had.
    #[error("{source}{hint}", hint = bind_hint(source))]
    Bind {
        /// The configured address.
        addr: SocketAddr,
        /// The system's error, with the address.
        source: io::Error,
    },
    /// It would be reached from beyond this machine without keys.
    #[error(
        "the daemon would listen at {addr}, beyond this machine, and has no key. Either give it one (`crossdock keygen --output \
         daemon.key`, `key = \"daemon.key\"` in [security] of the configuration) and authorise its clients (`crossdock keys add`), \
         or list the networks whose hosts all may publish and subscribe as `trusted` in [security]"
    )]
    Unprotected {
        /// The address.
        addr: SocketAddr,
    },
    /// The attach socket could not be had.
    #[error("cannot open the attach socket {address}: {source}{hint}", hint = attach_hint(source))]
    Attach {
        /// Its address, configured or made from the one that is received on.
        address: AttachAddr,
        /// The system's error.
        source: io::Error,
    },
    /// A reference table could not be read.
    #[error("{0}")]
    Table(String),
    /// The system refused memory, a thread or the like.
    #[error("cannot start the context: {what}: {source}")]
    System {
        /// The request.
        what: &'static str,
        /// The system's error.
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
        _ => " (choose another `address` in [attach], or disable attaching with `enabled = false`)",
    }
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
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) local_addr: SocketAddr,
    pub(crate) udp: UdpInfo,
    /// Of the I/O contexts, in the order of their places.
    pub(crate) inboxes: Arc<[Inbox]>,
    /// The home context's among them.
    pub(crate) home: Inbox,
    /// Whether a context without sessions is without a thread.
    pub(crate) ended: Arc<AtomicBool>,
    /// Of the I/O contexts, as long as they run.
    pub(crate) threads: Mutex<Vec<(Inbox, JoinHandle<()>)>>,
    pub(crate) attach_addr: Option<AttachAddr>,
    pub(crate) attach: Mutex<Option<AttachThread>>,
    pub(crate) services: Mutex<ServiceThread>,
    pub(crate) state: Mutex<Option<WorkerThread>>,
    pub(crate) tables: Mutex<Option<TableThread>>,
    pub(crate) planner: Mutex<PlannerThreads>,
    pub(crate) catalog: CatalogHandle,
    pub(crate) catalog_thread: Mutex<Option<CatalogThread>>,
    pub(crate) manager: ManagerHandle,
    pub(crate) manager_thread: Mutex<Option<JoinHandle<()>>>,
    pub(crate) counts: RecordCounts,
    pub(crate) complaints: Vec<String>,
    pub(crate) access: Arc<Access>,
}

impl ContextHandle {
    /// Opens the socket, makes the buffers and starts the context's thread; it takes packets when this returns.
    ///
    /// # Errors
    /// The resource that could not be had, and the remedy.
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
    /// The resource that could not be had, and the remedy.
    pub fn prepare(config: ContextConfig, passed: PassedSockets) -> Result<ContextHandle, StartError> {
        Ok(ContextHandle { shared: Arc::new(starting::start(config, passed)?) })
    }

    /// Waits until the kept handlers are restored, then takes packets and clients: every record that is acknowledged
    /// reaches the handlers of its stream.
    ///
    /// # Errors
    /// The system's, or the context has stopped.
    pub fn open(&self) -> Result<(), StartError> {
        let system = |source| StartError::System { what: "the socket cannot be watched", source };
        let opened = self.shared.manager.wait_restored().and_then(|()| self.ask_all(Context::open));
        let opened = opened.map_err(|stopped| system(io::Error::other(stopped)))?;
        opened.into_iter().collect::<io::Result<()>>().map_err(system)
    }

    /// Whether the thread of a context has ended and no other has taken its place, which should not be before
    /// [`ContextHandle::stop`].
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Acquire) || self.shared.inboxes.iter().any(Inbox::is_closed)
    }

    /// The address it receives on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.local_addr
    }

    /// The features that the kernel granted its socket.
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

    /// The state of an earlier daemon that could not be restored, which priorities the system refuses, and why; in
    /// words.
    #[must_use]
    pub fn not_restored(&self) -> &[String] {
        &self.shared.complaints
    }

    /// Has the home context run something short, once it has taken in what has changed in the catalog before.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Context) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        self.shared.catalog.run(|_| ())?;
        self.shared.home.run(work)
    }

    /// Has all I/O contexts run something short, in the order of their places.
    pub(crate) fn ask_all<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Context) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, Stopped> {
        self.shared.catalog.run(|_| ())?;
        Inbox::run_at_all(self.shared.inboxes.iter(), work)
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
        wait.recv().map_err(|_| Stopped::default())
    }

    /// All streams, in the order in which they were first announced.
    ///
    /// # Errors
    /// [`Stopped`]; so for all questions.
    pub fn streams(&self) -> Result<Vec<StreamInfo>, Stopped> {
        let infos = |context: &mut Context| {
            let of = (&context.subscriptions, &context.graph);
            context.streams.infos((&context.net, &context.host), of)
        };
        self.ask_all(infos).map(sum::streams)
    }

    /// All reference tables, in the order of the configuration.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn tables(&self) -> Result<Vec<TableInfo>, Stopped> {
        Ok(tables::infos(self.shared.catalog.snapshot()?.tables()))
    }

    /// All subscriptions, oldest first.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn subscriptions(&self) -> Result<Vec<SubscriptionInfo>, Stopped> {
        let mut all = self
            .ask_all(|context| {
                let (place, of) = ((&context.net, &context.host), (&context.graph, &*context.access));
                context.subscriptions.infos(&context.name, place, of)
            })?
            .concat();
        all.sort_by_key(|subscription| subscription.id);
        Ok(all)
    }

    /// Gives a subscription another query, over the same stream, under traffic: each record is seen by the one before or by this one. The
    /// access rules hold for its subscriber, as for a new subscription.
    ///
    /// # Errors
    /// [`Stopped`]; within, why it keeps its query.
    pub fn set_subscription_query(&self, id: u64, sql: &str) -> Result<Result<(), SetQueryError>, Stopped> {
        self.shared.catalog.run(|_| ())?;
        // Contexts take turns with the numbers.
        let inboxes = &self.shared.inboxes;
        let at = (id.wrapping_sub(1) % inboxes.len().max(1) as u64) as usize;
        let Some(inbox) = inboxes.get(at) else { return Err(Stopped::default()) };
        if !inbox.run(move |context| context.subscriptions.iter().any(|(_, subscription)| subscription.id() == id))? {
            return Ok(Err(SetQueryError::UnknownSubscription));
        }
        let (answer, wait) = oneshot::channel();
        let sql = sql.to_owned();
        // The caller may have gone.
        let then = Box::new(move |_: &mut Context, outcome| drop(answer.send(outcome)));
        inbox.post(move |context| context.set_query_of(id, sql, then))?;
        Ok(inbox.wait(&wait)?.map_err(|Refusal { code, message }| match code {
            RefusalCode::Query | RefusalCode::UnknownStream => SetQueryError::Query(message),
            _ => SetQueryError::Refused(message),
        }))
    }

    /// All formats announced on any stream.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn formats(&self) -> Result<Vec<FormatInfo>, Stopped> {
        self.ask(|context| context.streams.format_infos())
    }

    /// The I/O contexts' counters so far, by exit, summed.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn context(&self) -> Result<ContextInfo, Stopped> {
        let mut contexts = self.io_contexts()?.into_iter();
        let mut all = contexts.next().ok_or(Stopped::default())?;
        contexts.for_each(|other| all.add(other));
        Ok(all)
    }

    /// The counters of each I/O context so far, by exit, in the order of their places.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn io_contexts(&self) -> Result<Vec<ContextInfo>, Stopped> {
        self.ask_all(|context| {
            let of = (&*context.name, context.place, &context.config);
            context.net.context_info(of, &context.host, context.admission.refused)
        })
    }

    /// Sessions over packets, by I/O context and in the order of their places there.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn sessions(&self) -> Result<Vec<SessionInfo>, Stopped> {
        self.ask_all(|context| context.net.session_infos(&context.name, &context.streams)).map(|all| all.concat())
    }

    /// Clients that are attached by shared memory, by I/O context and in the order of their places there.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn clients(&self) -> Result<Vec<ClientInfo>, Stopped> {
        let infos = |context: &mut Context| context.net.client_infos(&context.name, &context.streams, &context.host);
        self.ask_all(infos).map(|all| all.concat())
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
        self.explain_as(None, sql, accept)
    }

    /// The same of a query as a caller would have it, with the rows and fields that the access rules leave it.
    ///
    /// # Errors
    /// [`Stopped`]; within, what is wrong with the query or the formats, or that the caller may not subscribe to it.
    pub fn explain_for(
        &self,
        caller: &Caller,
        sql: &str,
        accept: &[FormatName],
    ) -> Result<Result<ExplainInfo, ExplainError>, Stopped> {
        self.explain_as(Some(caller), sql, accept)
    }

    fn explain_as(
        &self,
        caller: Option<&Caller>,
        sql: &str,
        accept: &[FormatName],
    ) -> Result<Result<ExplainInfo, ExplainError>, Stopped> {
        // Slow work is done here, on the caller's thread: the context has traffic to serve.
        let query = match crossdock_query::parse_query(sql) {
            Ok(query) => query,
            Err(error) => return Ok(Err(error.into())),
        };
        let snapshot = self.ask(|context| Arc::clone(context.streams.snapshot()))?;
        let mut select = match query {
            Query::Select(select) => select,
            Query::Stateful(query) => {
                return match self.shared.access.explain_stateful(caller, query, &snapshot) {
                    Ok(planned) => Ok(Ok(self.manager().estimate(planned.query.clone())?.explain(planned))),
                    Err(error) => Ok(Err(error)),
                };
            }
        };
        let found = match caller {
            Some(caller) => self.shared.access.explained(caller, select, (&*snapshot, !accept.is_empty())),
            None => snapshot.find_stream(&mut select).map(|()| select).map_err(ExplainError::from),
        };
        let select = match found {
            Ok(select) => select,
            Err(error) => return Ok(Err(error)),
        };
        let state = match select.snapshot().map(|_| self.explain_state(&select)).transpose()? {
            Some(Err(error)) => return Ok(Err(error.into())),
            state => state.and_then(Result::ok).unwrap_or_default(),
        };
        let accept = accept.to_vec();
        let inbox = self.where_known(select.stream())?;
        let explained = match inbox.run(move |context| {
            let (has, admits) = (context.admission.has_ns_per_s(), context.config.platform.admit_subscriptions);
            let of = (&*context.name, (admits && has < u64::MAX).then_some(has));
            context.streams.explain(select, &accept, of, context.net.now_ns())
        })? {
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
                inbox.run(move |context| {
                    let by_name = context.config.morph.by_name;
                    context.streams.explain_paths(&stream, by_name, &targets, &reads)
                })?
            }
        };
        let info = explained.measured(program, paths);
        Ok(Ok(ExplainInfo { plan: info.plan + &state, ..info }))
    }

    /// The I/O context that has seen most records of a stream.
    fn where_known(&self, stream: &str) -> Result<&Inbox, Stopped> {
        let stream = stream.to_owned();
        let seen = self.ask_all(move |context| context.streams.records_seen(&stream))?;
        let most = seen.into_iter().zip(self.shared.inboxes.iter()).rev().max_by_key(|(records, _)| *records);
        most.map(|(_, inbox)| inbox).ok_or(Stopped::default())
    }

    /// All conversions, by stream.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn conversions(&self) -> Result<Vec<ConversionInfo>, Stopped> {
        self.ask_all(|context| context.streams.conversion_infos(&context.net)).map(sum::conversions)
    }

    /// Replaces the list of clients that may connect over the network. The sessions of those that are on it no more end.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn authorize(&self, authorized: AuthorizedKeys) -> Result<(), Stopped> {
        let authorized = Arc::new(authorized);
        self.shared.access.authorize(Arc::clone(&authorized));
        let authorize = move |context: &mut Context| {
            for key in context.net.authorize(authorized) {
                // There are no keys any more that could say why.
                context.remove_peer(key, "unauthorised", None);
            }
        };
        self.ask_all(authorize).map(drop)
    }

    /// How formats come to subscriptions that do not accept them unchanged, and where nothing leads there.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn paths(&self) -> Result<Vec<PathInfo>, Stopped> {
        let infos = |context: &mut Context| context.streams.path_infos(&context.subscriptions, &context.graph);
        self.ask_all(infos).map(sum::paths)
    }

    /// Takes in a conversion that is kept, in place of the one that is kept between the same formats.
    ///
    /// # Errors
    /// [`Stopped`]; within, why it is refused, and then nothing has changed.
    pub fn keep_conversion(&self, conversion: &KeptConversion) -> Result<Result<(), String>, Stopped> {
        // Compiled here, on the caller's thread: the control thread has others to see to.
        let KeptConversion { stream, from, to, conversion } = conversion.clone();
        let snapshot = self.shared.catalog.snapshot()?;
        let stream = match snapshot.meant(&stream) {
            Ok(stream) => stream,
            Err(refusal) => return Ok(Err(refusal.message)),
        };
        let between = Between { stream: &stream, from: &from, to: &to };
        let compiled = snapshot.compile(&between, &conversion);
        match compiled {
            Ok(compiled) => self.change_conversions(&stream.clone(), move |catalog| {
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
        let stream = match self.shared.catalog.snapshot()?.meant(&stream) {
            Ok(stream) => stream,
            Err(refusal) => return Ok(Err(refusal.message)),
        };
        self.change_conversions(&stream.clone(), move |catalog| {
            let known = catalog.snapshot();
            let (from, to) = (known.format_known(&stream, &from)?.id(), known.format_known(&stream, &to)?.id());
            catalog.unregister(ConversionOwner::Kept, &stream, from, to)
        })
    }

    /// Has the catalog change the conversions of a stream, and waits until it is on disk and routes are planned by it.
    fn change_conversions(
        &self,
        stream: &str,
        change: impl FnOnce(&mut Catalog) -> Result<(), Refusal> + Send + 'static,
    ) -> Result<Result<(), String>, Stopped> {
        let changed = self.change_kept(change)?;
        self.shared.inboxes.iter().try_for_each(|inbox| inbox.wait_for_routes(stream.to_owned()))?;
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

    /// Removes an unused stream, with its versions, its policy and the conversions that are kept for it.
    ///
    /// # Errors
    /// [`Stopped`]; within, why it is not removed, and then nothing has changed.
    pub fn remove_stream(&self, stream: &str) -> Result<Result<(), String>, Stopped> {
        let stream = stream.to_owned();
        self.change_kept(move |catalog| catalog.remove_stream(&catalog.snapshot().meant(&stream)?))
    }

    /// Removes the newest version of an unused stream.
    ///
    /// # Errors
    /// [`Stopped`]; within, why it is not removed, and then nothing has changed.
    pub fn remove_version(&self, stream: &str, version: u32) -> Result<Result<(), String>, Stopped> {
        let stream = stream.to_owned();
        self.change_kept(move |catalog| catalog.remove_version(&catalog.snapshot().meant(&stream)?, version))
    }

    /// Whether a format could be the next version of a stream, by the stream's policy.
    ///
    /// # Errors
    /// [`Stopped`]; within, what is in the way.
    pub fn check_format(&self, stream: &str, format: &Format) -> Result<Result<(), RegistryError>, Stopped> {
        let (stream, format) = (stream.to_owned(), format.clone());
        self.shared.catalog.run(move |catalog| {
            // Of several it may be, none is meant: a new stream has no policy.
            let stream = catalog.snapshot().meant(&stream).unwrap_or(stream);
            catalog.check_format(&stream, &format)
        })
    }

    /// The number of a stream's versions; `None` if nothing is known of the stream, not even a policy.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn version_count(&self, stream: &str) -> Result<Option<usize>, Stopped> {
        let stream = stream.to_owned();
        self.shared.catalog.run(move |catalog| {
            let stream = catalog.snapshot().meant(&stream).unwrap_or(stream);
            catalog.version_count(&stream)
        })
    }

    /// Makes a stream known before anybody publishes it.
    ///
    /// # Errors
    /// [`Stopped`]; within, why the stream is refused.
    pub fn declare_stream(&self, name: &str, format: &Format) -> Result<Result<(), String>, Stopped> {
        let (name, declared) = (name.to_owned(), format.clone());
        let declare = move |catalog: &mut Catalog| {
            catalog.snapshot().check_new_name(&name)?;
            catalog.declare(&name, &declared)
        };
        match self.shared.catalog.run(declare)? {
            Ok(number) => {
                let mut contexts = self.shared.inboxes.iter();
                contexts
                    .try_for_each(|inbox| {
                        let taken_in = inbox.when_known(number, std::slice::from_ref(format))?;
                        inbox.wait(&taken_in)
                    })
                    .map(Ok)
            }
            Err(refusal) => Ok(Err(refusal.message)),
        }
    }

    /// The inboxes of the I/O contexts, and the catalog.
    #[cfg(test)]
    pub(crate) fn inside(&self) -> (&[Inbox], &CatalogHandle) {
        (&self.shared.inboxes, &self.shared.catalog)
    }

    /// Says goodbye to all sessions and waits for the contexts' end. Once is enough, unless it fails; more does nothing.
    ///
    /// # Errors
    /// An I/O context has not come back from a step for 5 s: its thread goes on until it does, and all else has ended. A later call
    /// waits for it again.
    pub fn stop(&self) -> Result<(), Stopped> {
        self.shared.stop()
    }
}

impl Shared {
    fn stop(&self) -> Result<(), Stopped> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if threads.is_empty() {
            return Ok(());
        }
        // Before the contexts that they speak to.
        self.manager.stop();
        if let Some(managers) = self.manager_thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = managers.join();
        }
        self.inboxes.iter().for_each(Inbox::stop);
        let mut stopped = Ok(());
        for (inbox, thread) in std::mem::take(&mut *threads) {
            match inbox.wait_for_end() {
                Ok(()) => drop(thread.join()),
                stuck => {
                    stopped = stopped.and(stuck);
                    threads.push((inbox, thread));
                }
            }
        }
        drop(self.attach.lock().unwrap_or_else(PoisonError::into_inner).take());
        drop(self.tables.lock().unwrap_or_else(PoisonError::into_inner).take());
        // Records may have come since the last checkpoints.
        self.counts.note();
        // The contexts that they wait for have ended.
        if stopped.is_ok() {
            self.services.lock().unwrap_or_else(PoisonError::into_inner).join();
            self.planner.lock().unwrap_or_else(PoisonError::into_inner).join();
        }
        // With it the side of the thread that keeps its changes.
        drop(self.catalog_thread.lock().unwrap_or_else(PoisonError::into_inner).take());
        drop(self.state.lock().unwrap_or_else(PoisonError::into_inner).take());
        stopped
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // A stop that was tried has ended what it could.
        if self.manager_thread.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            // Nobody is left to hear that a context is stuck.
            let _ = self.stop();
        }
    }
}

/// Opens the socket of a context with these settings and closes it again: what the kernel grants it.
///
/// # Errors
/// As [`ContextHandle::start`] has for it: the address is taken, is none of this machine's, or needs privileges.
pub fn probe_udp(config: &ContextConfig) -> io::Result<UdpInfo> {
    UdpDevice::bind(config.listen, starting::udp_options(config)).map(|device| device.info())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ContextKind, ContextSpec};
    use crossdock_nectarine::{Error, Publisher, Subscriber, Transport};
    use std::net::Ipv4Addr;
    use std::time::Duration;

    /// The contexts of a daemon stop one after the other. A subscriber at the last one is disconnected by the daemon; its stream does
    /// not end before, as if its publisher had been lost.
    #[test]
    fn a_daemon_that_stops_ends_no_stream_at_the_contexts_that_stop_last() {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut config = ContextConfig { listen, ..ContextConfig::default() };
        config.platform.contexts = vec![ContextSpec { io: true, ..ContextSpec::new(ContextKind::CCore) }];
        let daemon = ContextHandle::start(config).unwrap();
        let addr = daemon.local_addr().to_string();
        let format = Format::parse_schema("n i64").unwrap();
        // Attached clients go to the context that has fewer.
        let way = Transport::Shm;
        let publisher = Publisher::builder(&addr).transport(way).stream("N").format(&format).reconnect(false);
        let _publisher = publisher.connect().unwrap();
        let subscriber = Subscriber::builder(&addr).transport(way).sql("SELECT * FROM N").reconnect(false);
        let mut subscriber = subscriber.connect().unwrap();
        let (inboxes, _) = daemon.inside();
        let publishes = |inbox: &Inbox| {
            let publishing = |context: &mut Context| context.net.peers().any(|(_, peer)| !peer.publishing().is_empty());
            inbox.run(publishing).unwrap()
        };
        let [first, last] = if publishes(&inboxes[0]) { [0, 1] } else { [1, 0] };
        assert!(!publishes(&inboxes[last]));
        // They would start the context again.
        daemon.shared.manager.stop();
        inboxes[first].stop();
        inboxes[first].wait_for_end().unwrap();
        let turns = || inboxes[last].run(|context| context.graph.gauges().turns.get()).unwrap();
        let before = turns();
        while turns() < before + 10 {}
        daemon.stop().unwrap();
        let end = subscriber.next_event(Some(Duration::from_secs(20)));
        assert!(matches!(end, Err(Error::Lost { .. })), "{end:?}");
    }
}
