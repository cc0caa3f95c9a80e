//! The managers, on a thread of their own (c-core 3.1, data-compatibility 4.2): the *handler manager* compiles handlers
//! and knows their versions ([`deployed`]), the *resource monitor* measures what contexts and handlers take
//! ([`monitor`]), the *control manager* plans changes and carries them out ([`change`]). Nothing here runs on a core
//! that has traffic to see to. Handlers are compiled and measured on further threads: a request that needs it is answered later
//! ([`waiting`]), and others meanwhile.

mod balancing;
pub(crate) mod change;
mod checkpointing;
pub(crate) mod checkpoints;
mod connections;
pub(crate) mod cuts;
pub(crate) mod deployed;
pub(crate) mod estimated;
pub(crate) mod events;
pub(crate) mod handle;
pub(crate) mod keep;
mod lost;
mod measure;
pub(crate) mod monitor;
mod paths;
mod queries;
mod query_cuts;
mod query_estimate;
mod read;
mod reports;
pub(crate) mod request;
mod row_error_events;
mod rule;
mod rule_costs;
mod sampling_events;
pub(crate) mod spec;
pub(crate) mod state_spec;
mod states;
pub(crate) mod tables;
pub(crate) mod view;
mod waiting;
pub(crate) mod watch;
mod work;

use crate::catalog::thread::CatalogHandle;
use crate::config::PlatformConfig;
use crate::graph::{ContextIndex, NodeId};
use crate::inbox::Inbox;
use crate::info::{AppliedInfo, PlanInfo};
use crate::managers::change::NotMade;
use crate::managers::checkpoints::Checkpoints;
use crate::managers::deployed::{Deployed, HandlerCompiler, KnownStream};
use crate::managers::events::{About, Events};
use crate::managers::keep::Kept;
use crate::managers::measure::{CostModel, Measurements, Outcomes};
use crate::managers::monitor::Monitor;
use crate::managers::request::{ChangeRequest, Connection, ControlRequest, Flow, KeyDeclared, RequestQueue};
use crate::managers::spec::HandlerSpec;
use crate::managers::view::Views;
use crate::managers::watch::Watch;
use crate::platform::overlay::{NotOrdered, Overlay, Waiting};
use crossdock_control::balance::{Balance, Rules};
use crossdock_control::plan::scope::{Ledger, StreamIndex};
use crossdock_device::{exclude_cpus, nap, take_medium_turns};
use crossdock_engine::Natives;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the managers watch the platform, in ms, while there are no requests.
const TICK: Duration = Duration::from_millis(100);
/// The same while a caller waits for a context's report, which nothing wakes the managers for.
const REPORT_TICK: Duration = Duration::from_micros(200);

/// The way to an I/O context, and its number.
#[derive(Clone, Debug)]
pub(crate) struct IoHandle {
    pub(crate) inbox: Inbox,
    pub(crate) at: ContextIndex,
}

/// The parts of the managers.
pub(crate) struct Parts {
    /// The I/O contexts, in the order of their places.
    pub(crate) io: Vec<IoHandle>,
    /// The home context, one of them.
    pub(crate) home: ContextIndex,
    pub(crate) catalog: CatalogHandle,
    pub(crate) overlay: Overlay,
    pub(crate) watch: Watch,
    pub(crate) natives: Natives,
    pub(crate) config: PlatformConfig,
    pub(crate) kept: Kept,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) views: Views,
    pub(crate) requests: Arc<RequestQueue>,
}

/// The managers.
pub(crate) struct Managers {
    io: Vec<IoHandle>,
    home: ContextIndex,
    /// The flows that need not be led anywhere any more, perhaps.
    disconnected: BTreeSet<Flow>,
    catalog: CatalogHandle,
    overlay: Overlay,
    watch: Watch,
    compiler: HandlerCompiler,
    config: PlatformConfig,
    /// CPUs that this thread may use, as at its start: asking takes a tenth of what a change does.
    cpus: usize,
    kept: Kept,
    checkpoints: Checkpoints,
    handlers: BTreeMap<String, Deployed>,
    /// The makers and readers of each stream among them, and what they take of contexts: they follow each change.
    joined: StreamIndex,
    ledger: Ledger,
    /// Handlers that have changed since they were last published.
    unpublished: BTreeSet<String>,
    /// The handlers among them that are subscriptions' own queries, which no change request named.
    queries: BTreeMap<String, queries::Placement>,
    /// The subscriptions that read the states of streams, by the states' handlers.
    states: BTreeMap<String, states::StateReaders>,
    /// The bytes that those of them may take which keep rows in order.
    ordered_bytes: Arc<AtomicU64>,
    /// Kept handlers that could not be deployed at the start.
    unrestored: Vec<HandlerSpec>,
    monitor: Monitor,
    balance: Balance,
    /// For each context the number of batches that had waited too long for it, a second ago.
    delayed_before: Vec<u64>,
    /// The last second that was evaluated as a whole.
    last_s: u64,
    events: Events,
    views: Views,
    /// The latest event when a snapshot was last published.
    viewed: u64,
    started: Instant,
    /// Streams with a format for which a handler's context took no orders.
    formats_to_retry: BTreeSet<u32>,
    requests: Arc<RequestQueue>,
    /// Requests whose handlers are being measured.
    measuring: Measuring,
    /// Requests that wait for a context in which they take part.
    hindered: Vec<Asked>,
    /// Changes that were made, but for what contexts have not reported yet.
    unconfirmed: Vec<Unconfirmed>,
    /// The continuations once changes of the graph are complete, by their numbers.
    following: BTreeMap<u64, Following>,
    /// I/O contexts that are taking in formats for the next change of the graph.
    awaited_formats: Vec<(ContextIndex, oneshot::Receiver<()>)>,
    /// Of the request that is being answered.
    progress: Progress,
}

impl Managers {
    /// Starts the managers on a thread of their own, which answers requests.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start(parts: Parts) -> io::Result<JoinHandle<()>> {
        let managers = Managers::new(parts);
        std::thread::Builder::new().name("managers".into()).spawn(move || managers.run())
    }

    pub(crate) fn new(parts: Parts) -> Managers {
        let Parts { io, home, catalog, overlay, watch, natives, config, kept, checkpoints, views, requests } = parts;
        let (monitor, events) = (views.monitor.clone(), views.events.clone());
        let costs = CostModel::new(Duration::from_millis(config.stuck_after_ms.into()));
        Managers {
            io,
            home,
            disconnected: BTreeSet::new(),
            catalog,
            overlay,
            watch,
            compiler: HandlerCompiler { natives, costs },
            config,
            cpus: 1,
            kept,
            checkpoints,
            handlers: BTreeMap::new(),
            joined: StreamIndex::default(),
            ledger: Ledger::default(),
            unpublished: BTreeSet::new(),
            queries: BTreeMap::new(),
            states: BTreeMap::new(),
            ordered_bytes: Arc::default(),
            unrestored: Vec::new(),
            monitor,
            balance: Balance::new(Rules::default()),
            delayed_before: Vec::new(),
            last_s: 0,
            events,
            views,
            viewed: 0,
            started: crossdock_device::now(),
            formats_to_retry: BTreeSet::new(),
            requests,
            measuring: Measuring::default(),
            hindered: Vec::new(),
            unconfirmed: Vec::new(),
            following: BTreeMap::new(),
            awaited_formats: Vec::new(),
            progress: Progress::default(),
        }
    }

    /// Answers requests and watches the deployed handlers and their contexts, until it is to stop.
    fn run(mut self) {
        // A context that has a core has it for itself. If the system refuses that, this thread runs as any other does.
        let _ = exclude_cpus(self.watch.seats.iter().filter_map(|seat| seat.cpu)).and_then(|()| take_medium_turns());
        self.cpus = std::thread::available_parallelism().map_or(1, usize::from);
        self.begin();
        let mut next = crossdock_device::now() + TICK;
        loop {
            let is_awaited = !self.unconfirmed.is_empty() || self.overlay.is_finishing();
            let longest = if is_awaited { REPORT_TICK } else { TICK };
            let longest = next.saturating_duration_since(crossdock_device::now()).min(longest);
            if !self.step(longest, &mut next) {
                break;
            }
        }
        self.make_last_checkpoints();
        self.watch.stop();
    }

    /// Restores what was deployed, and says how much room there is.
    pub(crate) fn begin(&mut self) {
        self.restore();
        self.report_room(true);
        self.publish_snapshot();
    }

    /// Answers the next request that comes within `longest`, and watches the platform when that is due. `false` when the managers are to
    /// stop.
    pub(crate) fn step(&mut self, longest: Duration, next: &mut Instant) -> bool {
        match self.requests.take(longest) {
            Some(ControlRequest::Stop) => return false,
            Some(request) => self.answer(request),
            None => {}
        }
        self.confirm();
        if crossdock_device::now() >= *next {
            *next = crossdock_device::now() + TICK;
            self.tick();
            self.try_hindered();
        }
        true
    }

    /// Reads the platform's counters, restarts failed handlers, and balances once a second.
    fn tick(&mut self) {
        self.watch.look();
        self.resume();
        self.monitor.take(&self.overlay, &self.handlers, crossdock_device::elapsed(self.started));
        self.recount();
        self.restart_failed();
        self.tick_checkpoints();
        let now_s = crossdock_device::elapsed(self.started).as_secs();
        if now_s > self.last_s {
            self.last_s = now_s;
            let contexts = self.contexts();
            self.monitor.keep_second(now_s, |at| contexts.headroom(at).time_ns_per_s);
            self.measure_rules();
            self.note_work();
            self.balance();
            self.note_sampled();
            self.report_room(true);
            self.end_flows();
            self.remove_unused();
            self.order_states();
            self.order_tables();
            self.publish_snapshot();
        } else if self.events.last() > self.viewed {
            // Every change of state since the last snapshot was noted as an event.
            self.publish_snapshot();
        }
    }

    /// Restores the handlers that were deployed when the daemon last ran.
    fn restore(&mut self) {
        let (specs, complaint) = self.kept.read();
        match complaint {
            Some(complaint) => self.events.note("not_restored", About::default(), complaint),
            None => self.checkpoints.expect(&specs),
        }
        self.begin_with_cut();
        if specs.is_empty() {
            return;
        }
        // It is written down already, and stays so whatever comes of it.
        if self.restore_as(&ChangeRequest::All(specs.clone())).is_ok() {
            return;
        }
        // One that no longer fits must not keep the others away.
        for spec in specs {
            if let Err(plan) = self.restore_as(&ChangeRequest::Deploy(spec.clone())) {
                let about = About { handler: Some(&spec.name), context: None };
                self.events.note("not_restored", about, plan.refusals.join("; "));
                self.unrestored.push(spec);
            }
        }
    }

    /// Makes a change at the start, when nobody waits for another: what it needs is measured at once.
    fn restore_as(&mut self, change: &ChangeRequest) -> Result<(), PlanInfo> {
        let (mut outcomes, since) = (Outcomes::default(), crossdock_device::now());
        self.progress = Progress::default();
        loop {
            self.compiler.costs.begin(outcomes);
            match self.make(change, true, false, crossdock_device::now()) {
                Ok(applied) => {
                    // Its nodes are in place before the first packet is taken.
                    let is_there = |managers: &Managers| {
                        applied.change.is_none_or(|change| managers.overlay.change_awaits(change).is_none())
                    };
                    while !is_there(self) && crossdock_device::elapsed(since) < self.watch.patience() {
                        nap(REPORT_TICK);
                        self.resume();
                    }
                    return Ok(());
                }
                Err(NotMade::Refused(plan)) => return Err(plan),
                Err(NotMade::Hindered { at, plan }) if crossdock_device::elapsed(since) >= self.watch.patience() => {
                    return Err(self.refuse_hindered(at, plan));
                }
                Err(NotMade::Hindered { .. }) => {
                    nap(TICK);
                    outcomes = Outcomes::default();
                }
                Err(NotMade::Unmeasured) => {
                    let (known, missing) = self.compiler.costs.end();
                    outcomes = known;
                    self.compiler.costs.take(missing.run(), &mut outcomes);
                }
            }
        }
    }

    /// A handler that is there.
    fn there(&mut self, name: &str) -> Option<&mut Deployed> {
        let there = self.handlers.get_mut(name);
        debug_assert!(there.is_some(), "handler `{name}` is there");
        there
    }

    /// Gives a context a small order, without a wait. That it cannot be given is an event.
    ///
    /// # Errors
    /// Why not, in words.
    fn order(&mut self, order: impl FnOnce(&mut Overlay) -> Result<u64, NotOrdered>) -> Result<u64, String> {
        let (at, why) = match order(&mut self.overlay) {
            Ok(number) => return Ok(number),
            Err(NotOrdered::UnknownNode(node)) => {
                debug_assert!(false, "a deployed handler has a node");
                (None, format!("there is no node {}: this is a mistake of Crossdock's", node.0))
            }
            Err(NotOrdered::NoPlace(at)) => {
                let name = self.watch.name(at);
                let why = format!("context {name} does not answer: it has not carried out its earlier orders");
                (Some(name.to_owned()), why)
            }
        };
        self.events.note("unanswered", About { handler: None, context: at.as_deref() }, why.clone());
        Err(why)
    }
}

/// The requests whose handlers are being measured. Each is answered anew when they are, with what is there then.
#[derive(Default)]
struct Measuring {
    requests: Vec<Unmeasured>,
    numbers: u64,
}

/// A request that was taken, and is answered later.
struct Asked {
    request: ControlRequest,
    /// When it was taken first.
    since: Instant,
    /// When it was first found that a context hinders it.
    hindered: Option<Instant>,
    progress: Progress,
}

/// The findings for a request, and is not asked for again when it is answered anew.
#[derive(Default)]
struct Progress {
    /// Some streams, by the names that were asked for.
    known: Option<(BTreeSet<String>, BTreeMap<String, KnownStream>)>,
    /// How often contexts were waited for.
    round_trips: u32,
}

struct Unmeasured {
    number: u64,
    asked: Asked,
    /// The earlier measurements for it.
    outcomes: Outcomes,
    /// The missing measurements; not present while a thread measures it.
    left: Option<Measurements>,
}

/// A change that was made, but for contexts' reports: that the graph has changed there, and on the parameters that they were to
/// set.
struct Unconfirmed {
    /// The change of the graph, if it is not complete.
    change: Option<u64>,
    /// The orders that are not reported on.
    orders: BTreeSet<u64>,
    /// Instances that did not take their parameters.
    refused: u32,
    /// The node of an order, which was not there any more.
    unknown: Option<NodeId>,
    /// A context that has not changed all that it was to.
    failed: Option<ContextIndex>,
    since: Instant,
    caller: Caller,
}

/// The caller that waits until a change is complete.
enum Caller {
    Change { info: AppliedInfo, to: oneshot::Sender<Result<AppliedInfo, PlanInfo>> },
    Connection(Connection),
    Key(KeyDeclared),
}

/// The continuation once a change of the graph is complete.
#[derive(Default)]
struct Following {
    /// Streams that no handler makes any more, once the node has gone that did.
    ended: Vec<u32>,
    /// Streams that a handler does not read any more.
    unread: Vec<u32>,
    /// Whether it was reported that a context does not answer.
    is_reported: bool,
}

impl Measuring {
    /// Whether a request waits.
    fn has(&self, is_it: impl Fn(&ControlRequest) -> bool) -> bool {
        self.requests.iter().any(|waiting| is_it(&waiting.asked.request))
    }
}

impl Drop for Managers {
    fn drop(&mut self) {
        self.requests.close();
        self.views.leave(None);
    }
}

/// Waits for contexts as long as most take to answer: what takes longer is gone on with later, and other requests meanwhile.
struct Briefly<'a> {
    watch: &'a mut Watch,
    since: Instant,
    awaited_formats: Vec<(ContextIndex, oneshot::Receiver<()>)>,
    round_trips: &'a mut u32,
}

impl Waiting for Briefly<'_> {
    fn begin(&mut self) {
        self.since = crossdock_device::now();
        *self.round_trips += 1;
    }

    fn wait(&mut self) -> bool {
        watch::wait_briefly(self.since)
    }

    /// Many queries may have to be planned for a format: it is waited for until its context counts as lost.
    fn prerequisites(&mut self) -> Result<(), ContextIndex> {
        let until = crossdock_device::now() + self.watch.patience();
        for (at, taken_in) in self.awaited_formats.drain(..) {
            let is_taken_in = self.watch.wait_for(at, &taken_in, until).is_some();
            // One that has just stopped takes nothing in; nor can it prepare, if it takes part.
            if !is_taken_in && (self.watch.lost(at).is_some() || crossdock_device::now() >= until) {
                return Err(at);
            }
        }
        Ok(())
    }

    fn is_at_work(&self, at: ContextIndex) -> bool {
        self.watch.is_at_work(at)
    }
}
