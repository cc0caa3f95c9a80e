//! The managers, on a thread of their own (c-core 3.1, data-compatibility 4.2): the *handler manager* compiles handlers
//! and knows their versions ([`deployed`]), the *resource monitor* measures what contexts and handlers take
//! ([`monitor`]), the *control manager* plans changes and carries them out ([`change`]). Nothing here runs on a core
//! that has traffic to see to.

mod balancing;
pub(crate) mod change;
pub(crate) mod deployed;
pub(crate) mod events;
pub(crate) mod handle;
pub(crate) mod keep;
mod lost;
mod measure;
pub(crate) mod monitor;
mod paths;
mod queries;
mod read;
pub(crate) mod request;
mod rule;
mod rule_costs;
pub(crate) mod spec;
mod tell;
mod thinning;
pub(crate) mod view;
pub(crate) mod watch;
mod work;

use crate::catalog::thread::CatalogHandle;
use crate::config::PlatformConfig;
use crate::inbox::Inbox;
use crate::managers::deployed::{Deployed, HandlerCompiler};
use crate::managers::events::{About, Events};
use crate::managers::keep::Kept;
use crate::managers::measure::CostModel;
use crate::managers::monitor::Monitor;
use crate::managers::request::{ChangeRequest, ControlRequest};
use crate::managers::spec::HandlerSpec;
use crate::managers::view::Views;
use crate::managers::watch::Watch;
use crate::platform::overlay::{Overlay, Unanswered, Wait, Waiting};
use crossdock_control::balance::{Balance, Rules};
use crossdock_device::{exclude_cpus, take_short_turns};
use crossdock_engine::Natives;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the managers watch the platform, in ms, while there are no requests.
const TICK: Duration = Duration::from_millis(100);

/// The parts of the managers.
pub(crate) struct Parts {
    pub(crate) dock: Inbox,
    pub(crate) catalog: CatalogHandle,
    pub(crate) overlay: Overlay,
    pub(crate) watch: Watch,
    pub(crate) natives: Natives,
    pub(crate) config: PlatformConfig,
    pub(crate) kept: Kept,
    pub(crate) views: Views,
}

/// The managers.
pub(crate) struct Managers {
    dock: Inbox,
    catalog: CatalogHandle,
    overlay: Overlay,
    watch: Watch,
    workshop: HandlerCompiler,
    config: PlatformConfig,
    /// CPUs that this thread may use, as at its start: asking takes a tenth of what a change does.
    cpus: usize,
    kept: Kept,
    handlers: BTreeMap<String, Deployed>,
    /// The handlers among them that are subscriptions' own queries, which no change request named.
    queries: BTreeSet<String>,
    /// Kept handlers that could not be deployed at the start.
    unrestored: Vec<HandlerSpec>,
    monitor: Monitor,
    balance: Balance,
    /// The admitted load of subscriptions' queries a second ago, in ns per s.
    admitted_before: u64,
    /// For each context the number of batches that had waited too long for it, a second ago.
    late_before: Vec<u64>,
    /// The last second that was evaluated as a whole.
    last_s: u64,
    events: Events,
    views: Views,
    /// The latest event when a snapshot was last published.
    viewed: u64,
    started: Instant,
    /// Streams that got a format while a context did not answer.
    late_formats: BTreeSet<u32>,
}

impl Managers {
    /// Starts the managers on a thread of their own, which answers requests.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start(parts: Parts, asked: Receiver<ControlRequest>) -> io::Result<JoinHandle<()>> {
        let managers = Managers::new(parts);
        std::thread::Builder::new().name("managers".into()).spawn(move || managers.run(&asked))
    }

    fn new(parts: Parts) -> Managers {
        let Parts { dock, catalog, overlay, watch, natives, config, kept, views } = parts;
        let (monitor, events) = (views.monitor.clone(), views.events.clone());
        let scales = CostModel::new(Duration::from_millis(config.stuck_after_ms.into()));
        Managers {
            dock,
            catalog,
            overlay,
            watch,
            workshop: HandlerCompiler { natives, scales },
            config,
            cpus: 1,
            kept,
            handlers: BTreeMap::new(),
            queries: BTreeSet::new(),
            unrestored: Vec::new(),
            monitor,
            balance: Balance::new(Rules::default()),
            admitted_before: 0,
            late_before: Vec::new(),
            last_s: 0,
            events,
            views,
            viewed: 0,
            started: Instant::now(),
            late_formats: BTreeSet::new(),
        }
    }

    /// Answers requests and watches the deployed handlers and their contexts. Returns on a stop request, or when all
    /// request senders are gone.
    fn run(mut self, asks: &Receiver<ControlRequest>) {
        // A context that has a core has it for itself. If the system refuses that, this thread runs as any other does.
        let _ = exclude_cpus(self.watch.seats.iter().filter_map(|seat| seat.cpu)).and_then(|()| take_short_turns());
        self.cpus = std::thread::available_parallelism().map_or(1, usize::from);
        self.restore();
        self.tell_room();
        self.publish_snapshot();
        let mut next = Instant::now() + TICK;
        loop {
            match asks.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(ControlRequest::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(ask) => self.answer(ask),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if Instant::now() >= next {
                next = Instant::now() + TICK;
                self.tick();
            }
        }
        self.watch.stop();
    }

    /// Answers one request. The answer is discarded if the caller has gone.
    fn answer(&mut self, ask: ControlRequest) {
        match ask {
            ControlRequest::Change { wish, discard_state, to } => {
                let answer = self.change(&wish, discard_state);
                self.tell_room();
                // The caller sees the result as soon as it is answered.
                self.publish_snapshot();
                let _ = to.send(answer);
            }
            ControlRequest::Plan { wish, discard_state, to } => drop(to.send(self.plan(&wish, discard_state))),
            ControlRequest::AddNative { kind, to } => {
                self.workshop.natives.add(*kind);
                let _ = to.send(());
            }
            ControlRequest::NewFormat { stream } => {
                self.take_new_format(stream);
                self.publish_snapshot();
            }
            ControlRequest::PlaceQuery(query) => self.place_query(*query),
            ControlRequest::RemoveQuery(name) => {
                self.remove_query(&name);
                self.publish_snapshot();
            }
            ControlRequest::QueryRefused(text) => {
                self.events.note("refused", About { handler: None, context: Some(PlatformConfig::IO_CONTEXT) }, text);
            }
            ControlRequest::QueryFailed(text) => {
                self.events.note("failed", About { handler: None, context: Some(PlatformConfig::IO_CONTEXT) }, text);
            }
            // Requests are taken once that is done.
            ControlRequest::Restored(to) => drop(to.send(())),
            ControlRequest::Stop => {}
        }
    }

    /// Reads the platform's counters, restarts failed handlers, and balances once a second.
    fn tick(&mut self) {
        self.watch.look();
        self.resume();
        self.monitor.take(&self.overlay, &self.handlers, self.started.elapsed());
        self.mend();
        let now_s = self.started.elapsed().as_secs();
        if now_s > self.last_s {
            self.last_s = now_s;
            let contexts = self.contexts();
            self.monitor.keep_second(now_s, |at| contexts.headroom(at).time_ns_per_s);
            self.measure_rules();
            self.note_work();
            self.balance();
            self.note_thinned();
            self.admitted_before = self.tell_room();
            self.publish_snapshot();
        } else if self.events.last() > self.viewed {
            // Every change of state since the last snapshot was noted as an event.
            self.publish_snapshot();
        }
    }

    /// Restores the handlers that were deployed when the daemon last ran.
    fn restore(&mut self) {
        let (specs, complaint) = self.kept.read();
        if let Some(complaint) = complaint {
            self.events.note("not_restored", About::default(), complaint);
        }
        if specs.is_empty() {
            return;
        }
        // It is written down already, and stays so whatever comes of it.
        if self.make(&ChangeRequest::All(specs.clone()), true, false).is_ok() {
            return;
        }
        // One that no longer fits must not keep the others away.
        for spec in specs {
            if let Err(plan) = self.make(&ChangeRequest::Deploy(spec.clone()), true, false) {
                let about = About { handler: Some(&spec.name), context: None };
                self.events.note("not_restored", about, plan.refusals.join("; "));
                self.unrestored.push(spec);
            }
        }
    }

    /// Runs something on the overlay that waits for contexts; a handler that does not return meanwhile is given up.
    /// If a context does not answer, the change is finished when it does, and no result is returned now.
    fn on_overlay<T: Default>(&mut self, work: impl FnOnce(&mut Overlay, Wait<'_>) -> Result<T, Unanswered>) -> T {
        let Managers { overlay, watch, .. } = self;
        let done = work(overlay, &mut Patience { watch, since: Instant::now() });
        if let Err(Unanswered(at)) = &done {
            let (name, text) = (self.watch.name(*at).to_owned(), self.unfinished(*at));
            self.events.note("unanswered", About { handler: None, context: Some(&name) }, text);
        }
        done.unwrap_or_default()
    }
}

impl Drop for Managers {
    fn drop(&mut self) {
        self.views.leave(None);
    }
}

/// Waits for contexts, and replaces g-core threads that are in a handler that does not return.
struct Patience<'a> {
    watch: &'a mut Watch,
    since: Instant,
}

impl Waiting for Patience<'_> {
    fn begin(&mut self) {
        self.since = Instant::now();
    }

    fn wait(&mut self) -> bool {
        self.watch.wait(self.since)
    }
}
