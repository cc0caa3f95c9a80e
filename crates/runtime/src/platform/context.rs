//! The loops of contexts that have no device: c-cores, which are polled, several on one thread if they share a CPU; and
//! g-cores, each with a thread that can be replaced.

use crate::clock::{Clock, TurnClock};
use crate::graph::build::Workspace;
use crate::graph::gauges::ContextGauges;
use crate::graph::node::RunTime;
use crate::graph::{Graph, NodeId};
use crate::platform::start::{self, pool};
use crossdock_device::{Doorbell, Idle, Idler, Poller, ThreadNumber, pin_to_cpu, set_nice, take_short_turns};
use crossdock_mailbox::Progress;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest sleep: a doorbell ends it, so this only bounds the error of a forgotten one.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);
/// The longest sleep while batches wait for room in a ring, since no doorbell is rung when there is room.
const FULL_SLEEP: Duration = Duration::from_micros(50);
/// How often the gauges of queues are written, in turns; they are also written before each sleep.
const NOTED_TURNS: u64 = 1024;
/// How often a thread that has ended may be followed by another one within [`RESTARTS_WITHIN`].
const MAX_RESTARTS: usize = 3;
/// As long it is tried at most to start that one.
const RESTARTS_WITHIN: Duration = Duration::from_secs(60);

/// The threads of contexts; they end when this is stopped or dropped.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    stop: Arc<AtomicBool>,
    doorbells: Vec<Doorbell>,
    running: Vec<Running>,
    /// Threads that were replaced because their handler did not return.
    left: Vec<JoinHandle<()>>,
}

/// A thread, and the contexts that it serves, by their numbers.
#[derive(Debug)]
struct Running {
    /// None while the system refuses one in place of a thread that was replaced.
    thread: Option<JoinHandle<()>>,
    contexts: Vec<usize>,
    served: Served,
    /// When other threads were started in place of ones that had ended.
    restarts: VecDeque<Instant>,
    /// Since when it has ended, while no other thread has its place.
    ended: Option<Instant>,
    /// Whether none will.
    is_over: bool,
}

/// How it goes on with the contexts of a thread that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Another thread goes on with them.
    Restarted,
    /// The system has refused another one; it is asked again.
    Waits,
    /// No other goes on with them: there were too many, there is none to be had, or their graphs are not whole.
    Over,
}

/// The work of a thread. It outlives the thread, so that another one can go on with it.
#[derive(Debug)]
enum Served {
    CCores(Arc<CCores>),
    GCore(Arc<GCore>),
}

impl Served {
    fn start(&self, stop: &Arc<AtomicBool>) -> io::Result<JoinHandle<()>> {
        match self {
            Served::CCores(cores) => cores.start(Arc::clone(stop)),
            Served::GCore(core) => core.start(Arc::clone(stop)),
        }
    }

    /// Whether another thread can go on with what one that has ended has left.
    fn is_whole(&self) -> bool {
        match self {
            Served::CCores(cores) => cores.state().graphs.iter().all(|(graph, _)| graph.is_whole()),
            Served::GCore(core) => core.seat().graph.is_whole(),
        }
    }
}

impl Running {
    fn new(thread: JoinHandle<()>, contexts: Vec<usize>, served: Served) -> Running {
        Running { thread: Some(thread), contexts, served, restarts: VecDeque::new(), ended: None, is_over: false }
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Starts another thread in its place, since it has ended; what becomes of its contexts.
    fn go_on(&mut self, stop: &Arc<AtomicBool>, seats: &[start::Seat]) -> Ended {
        let now = Instant::now();
        let ended = *self.ended.get_or_insert(now);
        self.restarts.retain(|then| now.duration_since(*then) < RESTARTS_WITHIN);
        let has_tried = now.duration_since(ended) >= RESTARTS_WITHIN;
        if self.is_over || has_tried || self.restarts.len() >= MAX_RESTARTS || !self.served.is_whole() {
            self.is_over = true;
            return Ended::Over;
        }
        // That of the thread that has ended says nothing about the next.
        self.contexts.iter().for_each(|at| seats[*at].gauges.thread.set(0));
        #[cfg(test)]
        if self.contexts.iter().any(|at| seats[*at].gauges.wanted_refusals.takes_one()) {
            return Ended::Waits;
        }
        // The system has no thread for it now.
        let Ok(new) = self.served.start(stop) else { return Ended::Waits };
        if let Some(ended) = self.thread.replace(new) {
            // A panic was already printed by its thread.
            drop(ended.join());
        }
        self.restarts.push_back(now);
        self.ended = None;
        Ended::Restarted
    }
}

impl Threads {
    /// Starts a thread for c-cores that share it. It is pinned if they have a CPU.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start_c_cores(
        &mut self,
        name: &str,
        graphs: Vec<(Graph, Workspace)>,
        poller: Poller,
        settings: LoopSettings,
    ) -> io::Result<()> {
        self.doorbells.push(poller.doorbell());
        let contexts = graphs.iter().map(|(graph, _)| usize::from(graph.index().0)).collect();
        let cores = CCores { name: name.to_owned(), settings, state: Mutex::new(Polled { graphs, poller }) };
        self.run(Served::CCores(Arc::new(cores)), contexts)
    }

    fn run(&mut self, served: Served, contexts: Vec<usize>) -> io::Result<()> {
        let thread = served.start(&self.stop)?;
        self.running.push(Running::new(thread, contexts, served));
        Ok(())
    }

    /// Starts a g-core's thread.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start_g_core(&mut self, core: &Arc<GCore>) -> io::Result<()> {
        self.doorbells.push(core.doorbell.clone());
        self.run(Served::GCore(Arc::clone(core)), vec![core.index])
    }

    /// Replaces a thread whose handler does not return by a new one.
    ///
    /// # Errors
    /// The system's: [`Threads::go_on`] asks it again.
    pub(crate) fn replace(&mut self, core: &Arc<GCore>) -> io::Result<()> {
        let Some(running) = self.running.iter_mut().find(|running| running.contexts == [core.index]) else {
            return self.run(Served::GCore(Arc::clone(core)), vec![core.index]);
        };
        self.left.extend(running.thread.take());
        #[cfg(test)]
        if core.gauges().wanted_refusals.takes_one() {
            return Err(io::Error::other("as the test wants"));
        }
        running.thread = Some(core.start(Arc::clone(&self.stop))?);
        Ok(())
    }

    /// The contexts whose threads have ended without a stop request, and what becomes of them: all contexts of a thread go on in one
    /// other thread, or none of them does. `seats` are all contexts, by their numbers.
    pub(crate) fn go_on(&mut self, seats: &[start::Seat]) -> Vec<(usize, Ended)> {
        let mut ended = Vec::new();
        for running in self.running.iter_mut().filter(|running| running.has_ended()) {
            let becomes = running.go_on(&self.stop, seats);
            ended.extend(running.contexts.iter().map(|at| (*at, becomes)));
        }
        ended
    }

    /// Replaced threads that are still in their handlers.
    pub(crate) fn in_handlers(&mut self) -> usize {
        self.left.retain(|thread| !thread.is_finished());
        self.left.len()
    }

    /// Ends all threads but those that are in a handler that does not return, which are left to it.
    pub(crate) fn stop(&mut self) {
        if self.running.is_empty() {
            return;
        }
        self.stop.store(true, Ordering::Release);
        self.doorbells.iter().for_each(Doorbell::ring);
        let mut tries = 0;
        while !self.running.is_empty() && tries < 10_000 {
            for ended in self.running.extract_if(.., |running| running.has_ended()) {
                // A panic was already printed by its thread.
                ended.thread.into_iter().for_each(|thread| drop(thread.join()));
            }
            crossdock_device::nap(Duration::from_micros(100));
            tries += 1;
        }
        // Those that are left end with the process, or with their handler.
        self.running.clear();
        self.left.clear();
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The settings of a loop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoopSettings {
    pub(crate) cpu: Option<usize>,
    pub(crate) nice: Option<i32>,
    pub(crate) spin_us: u32,
    pub(crate) slice_us: u32,
    /// The same for all contexts.
    pub(crate) clock: Clock,
}

impl LoopSettings {
    /// Sets this thread's CPU and priority.
    fn settle(self) {
        // Both were tried when the contexts were made. If the CPU has gone since, the thread runs where the system puts
        // it.
        let _ = self.cpu.map(pin_to_cpu);
        let _ = self.nice.map(set_nice);
    }
}

/// C-cores that share a thread. It has their graphs as long as it runs.
struct CCores {
    name: String,
    settings: LoopSettings,
    state: Mutex<Polled>,
}

struct Polled {
    graphs: Vec<(Graph, Workspace)>,
    poller: Poller,
}

impl std::fmt::Debug for CCores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CCores").field("name", &self.name).finish_non_exhaustive()
    }
}

impl CCores {
    fn state(&self) -> MutexGuard<'_, Polled> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(self: &Arc<CCores>, stop: Arc<AtomicBool>) -> io::Result<JoinHandle<()>> {
        let cores = Arc::clone(self);
        let run = move || {
            cores.settings.settle();
            // Where others want its processor too, a message wakes it at once. Refused, it waits for its turn as they do.
            let _ = take_short_turns();
            // A thread that had it before has ended.
            let mut state = cores.state();
            run_c_cores(&mut state, cores.settings, &stop);
            state.graphs.clear();
        };
        std::thread::Builder::new().name(self.name.clone()).spawn(run)
    }
}

/// The one visible loop of c-cores without a device: changes, then work, for each context in turn.
fn run_c_cores(Polled { graphs, poller }: &mut Polled, settings: LoopSettings, stop: &AtomicBool) {
    let clock = settings.clock;
    let thread = ThreadNumber::of_this_thread();
    graphs.iter().for_each(|(graph, _)| graph.gauges().thread.set(thread.into()));
    let slice_ns = settings.slice_us.saturating_mul(1000);
    let mut idler = Idler::new(u64::from(settings.spin_us) * 1000);
    let mut turns = 0u64;
    let mut turn_clock = TurnClock::start(clock.now_ns());
    let mut now_ns = clock.now_ns();
    while !stop.load(Ordering::Acquire) {
        let (mut worked, before_ns) = (false, turn_clock.begin(now_ns));
        graphs.iter_mut().for_each(|(graph, _)| graph.note_away(now_ns, before_ns));
        let mut away = 0;
        for (graph, ws) in &mut *graphs {
            let turn = |graph: &mut Graph, ws: &mut Workspace| graph.take_turn(now_ns, slice_ns, ws);
            let has_worked = graph.guarded(ws, turn).unwrap_or(true);
            now_ns = clock.now_ns();
            let (busy_ns, away_ns) = turn_clock.end(now_ns);
            if has_worked {
                graph.gauges().busy_ns.add(busy_ns);
            }
            worked |= has_worked;
            away += away_ns;
        }
        graphs.iter_mut().for_each(|(graph, _)| graph.note_away(now_ns, away));
        turns += 1;
        if turns.is_multiple_of(NOTED_TURNS) {
            graphs.iter_mut().for_each(|(graph, ws)| graph.note_queues(ws.buffers_in_use()));
        }
        if worked {
            // Close enough for a spin; no nap, since the context that feeds this one has napped already.
            idler.arrived(now_ns, 0);
            now_ns = clock.now_ns();
            continue;
        }
        match idler.choose(now_ns) {
            Idle::Spin | Idle::Nap => idler.spin(now_ns),
            Idle::Sleep => {
                let is_full = graphs.iter_mut().any(|(graph, _)| graph.is_full());
                let due_ns = graphs.iter().map(|(graph, _)| graph.due_ns()).min().unwrap_or(u64::MAX);
                for (graph, ws) in &mut *graphs {
                    graph.note_queues(ws.buffers_in_use());
                    graph.gauges().sleeps.add(1);
                    graph.gauges().asleep.set(1);
                }
                // A failed wait (a signal) is a short one.
                let by_arrival = poller.wait(Some(sleep_time(is_full, due_ns, clock))).is_ok_and(|r| !r.is_empty());
                graphs.iter().for_each(|(graph, _)| graph.gauges().asleep.set(0));
                idler.slept(now_ns, clock.now_ns(), by_arrival);
            }
        }
        now_ns = clock.now_ns();
    }
}

/// How long to sleep at most: until a node is due, and shortly where batches wait for room in a ring.
fn sleep_time(is_full: bool, due_ns: u64, clock: Clock) -> Duration {
    let until_due = Duration::from_nanos(due_ns.saturating_sub(clock.now_ns()));
    until_due.min(if is_full { FULL_SLEEP } else { LONGEST_SLEEP })
}

impl Graph {
    /// One turn, from `now_ns` on: the changes that came, then work for a slice. Whether there was any.
    pub(crate) fn take_turn(&mut self, now_ns: u64, slice_ns: u32, ws: &mut Workspace) -> bool {
        let changed = self.take_orders(ws);
        let before = self.gauges().records_in.get();
        let more = self.serve(slice_ns, now_ns, ws);
        self.gauges().turns.add(1);
        more || changed || self.is_changing() || self.gauges().records_in.get() != before
    }
}

/// A context for handlers that may take long. Its thread has the graph but while a handler runs, so that another thread
/// can take the graph over from one that is in a handler that does not return.
#[derive(Debug)]
pub(crate) struct GCore {
    name: String,
    /// Its context's number.
    index: usize,
    settings: LoopSettings,
    doorbell: Doorbell,
    /// The number of the thread that has it, in the order in which its threads were started.
    generation: AtomicU64,
    gauges: Arc<ContextGauges>,
    /// The records that the handlers of that thread go on to.
    progress: Mutex<Progress>,
    seat: Mutex<Seat>,
}

struct Seat {
    graph: Graph,
    poller: Poller,
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat").finish_non_exhaustive()
    }
}

impl GCore {
    pub(crate) fn new(name: String, graph: Graph, poller: Poller, settings: LoopSettings) -> Arc<GCore> {
        let doorbell = poller.doorbell();
        let (gauges, index) = (Arc::clone(graph.gauges()), usize::from(graph.index().0));
        let seat = Mutex::new(Seat { graph, poller });
        Arc::new(GCore {
            name,
            index,
            settings,
            doorbell,
            generation: AtomicU64::new(0),
            gauges,
            progress: Mutex::default(),
            seat,
        })
    }

    /// Its gauges.
    pub(crate) fn gauges(&self) -> &ContextGauges {
        &self.gauges
    }

    /// How many records the handlers of its thread have gone on to.
    pub(crate) fn records_begun(&self) -> u64 {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).records()
    }

    fn start(self: &Arc<GCore>, stop: Arc<AtomicBool>) -> io::Result<JoinHandle<()>> {
        // A thread that is left behind may still come to its next record.
        let progress = Progress::default();
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = progress.clone();
        let generation = self.generation.fetch_add(1, Ordering::AcqRel) + 1;
        let core = Arc::clone(self);
        let mut ws = Workspace::new(pool()?);
        let run = move || {
            core.settings.settle();
            core.run(generation, &stop, &progress, &mut ws);
        };
        std::thread::Builder::new().name(self.name.clone()).spawn(run)
    }

    /// The one visible loop of a g-core: changes, then batch after batch.
    fn run(&self, generation: u64, stop: &AtomicBool, progress: &Progress, ws: &mut Workspace) {
        let clock = self.settings.clock;
        self.gauges.thread.set(ThreadNumber::of_this_thread().into());
        let mut turn_clock = TurnClock::start(clock.now_ns());
        while !stop.load(Ordering::Acquire) {
            let turn = || self.turn(generation, progress, &mut turn_clock, ws);
            match catch_unwind(AssertUnwindSafe(turn)) {
                Ok(goes_on) if goes_on => {}
                Ok(_) => return,
                Err(panic) => match self.seat_of(generation) {
                    Some(mut seat) => drop(seat.graph.recover(panic, ws)),
                    None => return,
                },
            }
        }
    }

    fn seat(&self) -> MutexGuard<'_, Seat> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The graph, if it belongs to the thread of this number still.
    fn seat_of(&self, generation: u64) -> Option<MutexGuard<'_, Seat>> {
        let seat = self.seat();
        (self.generation.load(Ordering::Acquire) == generation).then_some(seat)
    }

    /// One turn: the changes that came, then a batch. `false`: another thread has the graph, and the batch was given up.
    fn turn(&self, generation: u64, progress: &Progress, turn_clock: &mut TurnClock, ws: &mut Workspace) -> bool {
        let clock = self.settings.clock;
        // Another thread has taken its place.
        let Some(mut guard) = self.seat_of(generation) else { return false };
        let seat = &mut *guard;
        let start_ns = clock.now_ns();
        seat.graph.note_away(start_ns, turn_clock.begin(start_ns));
        // A batch may take long here, so none comes between a change's steps.
        let mut changed = false;
        while seat.graph.take_orders(ws) {
            changed = true;
        }
        seat.graph.begin_turn(start_ns, ws);
        // Handlers may take long here, and to wait for one of each is ordinary.
        let Some(mut job) = seat.graph.next_job(RunTime::Long, ws) else {
            seat.graph.ring();
            seat.graph.gauges().turns.add(1);
            turn_clock.end(clock.now_ns());
            if !changed && !seat.graph.is_changing() {
                seat.sleep(clock, ws);
            }
            return true;
        };
        drop(guard);
        ws.selection.watch(progress);
        let ran = job.run(ws);
        // Another thread has taken its place.
        let Some(mut guard) = self.seat_of(generation) else { return false };
        let seat = &mut *guard;
        seat.graph.finish(job, ran, ws);
        seat.graph.ring();
        let end_ns = clock.now_ns();
        let (busy_ns, away_ns) = turn_clock.end(end_ns);
        seat.graph.gauges().busy_ns.add(busy_ns);
        seat.graph.note_away(end_ns, away_ns);
        seat.graph.gauges().turns.add(1);
        if seat.graph.gauges().turns.get().is_multiple_of(64) {
            seat.graph.note_queues(ws.buffers_in_use());
        }
        true
    }

    /// Takes the graph from a thread that is in a handler, which is given up with its batch: the node, and the records
    /// that are lost. `None` if it has just come back. The next thread is to be started then.
    pub(crate) fn take_over(&self) -> Option<(NodeId, u64)> {
        // The thread has it only between two batches.
        let mut seat = match self.seat.try_lock() {
            Ok(seat) => seat,
            // It has gone on after a panic.
            Err(TryLockError::Poisoned(seat)) => seat.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let given_up = seat.graph.give_up()?;
        self.generation.fetch_add(1, Ordering::AcqRel);
        seat.graph.gauges().replaced.add(1);
        Some(given_up)
    }
}

impl Seat {
    fn sleep(&mut self, clock: Clock, ws: &Workspace) {
        self.graph.note_queues(ws.buffers_in_use());
        self.graph.gauges().sleeps.add(1);
        let time = sleep_time(self.graph.is_full(), self.graph.due_ns(), clock);
        self.graph.gauges().asleep.set(1);
        // A failed wait (a signal) is a short one.
        let _ = self.poller.wait(Some(time));
        self.graph.gauges().asleep.set(0);
    }
}
