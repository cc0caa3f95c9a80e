//! The threads of contexts, and the watch over them: a thread in a handler that does not return is replaced.

use crate::graph::gauges::ContextGauges;
use crate::graph::{ContextIndex, NodeId};
use crate::platform::context::{Ended, Threads};
use crate::platform::start::Seat;
use crossdock_device::{CpuTime, nap};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The pause between two checks whether contexts have answered.
const GLANCE: Duration = Duration::from_micros(20);
/// How often the contexts are looked at while an answer of one is waited for for longer.
const LOOK: Duration = Duration::from_millis(50);
/// How long the managers wait for a context to answer, and for others meanwhile. Most answer within some us.
const BRIEF: Duration = Duration::from_millis(20);
/// How long a context may take to answer, beside the time after which a handler counts as stuck.
const PATIENCE: Duration = Duration::from_secs(5);
/// Threads that may be in handlers that do not return; a g-core that would be one more is not replaced. As many may be
/// in handlers that are measured.
pub(super) const MAX_ABANDONED: usize = 16;

/// A handler that was given up.
#[derive(Clone, Debug)]
pub(crate) struct GivenUp {
    pub(crate) node: NodeId,
    pub(crate) context: ContextIndex,
    /// How long it may be without progress.
    pub(crate) stuck_after: Duration,
    /// Records of its batch that are lost.
    pub(crate) records: u64,
}

/// Why a context does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Its thread has not come back from a step for a while; from this node's handler, where it is in one.
    Stuck(Option<NodeId>),
    /// Its thread has ended, and the system refuses another one; the daemon asks again for a minute.
    Waits,
    /// Its thread has ended, and no other goes on with its graph.
    Ended,
}

/// The last observation of a context.
#[derive(Debug, Default)]
struct Seen {
    /// The turn that it was in.
    turns: u64,
    /// Records that its handlers had gone on to.
    records: u64,
    /// The time that its thread has had in it since it was first seen there.
    own: Option<CpuTime>,
    had: Duration,
    lost: Option<Lost>,
}

impl Seen {
    /// How much time its thread has had without progress: others may leave it no processor for a while.
    fn look(&mut self, gauges: &ContextGauges) -> Duration {
        match &mut self.own {
            Some(own) => self.had += own.since_last(),
            // Its thread may not have begun yet.
            None if gauges.thread.get() == 0 => {}
            None => self.own = Some(CpuTime::of(gauges.thread.get().into())),
        }
        self.had
    }
}

/// Waits a moment for a context, from `since` on. `false`: what takes so long is to be gone on with later.
pub(crate) fn wait_briefly(since: Instant) -> bool {
    let waited = crossdock_device::elapsed(since);
    // Most answer at once, and a nap is long beside that.
    if waited < Duration::from_micros(5) {
        std::hint::spin_loop();
    } else {
        nap(GLANCE);
    }
    waited < BRIEF
}

/// The contexts' seats and threads.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) seats: Vec<Seat>,
    threads: Threads,
    /// Of the I/O contexts, whose threads are not among these: whether the thread has ended.
    io_ended: BTreeMap<ContextIndex, Arc<AtomicBool>>,
    /// How long a handler may be without progress that has no setting of its own.
    stuck_after: Duration,
    seen: Vec<Seen>,
    /// Handlers that were given up since the last check.
    pub(crate) given_up: Vec<GivenUp>,
    /// Contexts that were lost or came back since the last check.
    pub(crate) turned: Vec<ContextIndex>,
    /// Panics of each context that were seen, and contexts that have had others since the last check.
    panics: Vec<u64>,
    pub(crate) panicked: Vec<ContextIndex>,
    /// Contexts whose threads were started anew since the last check.
    pub(crate) restarted: Vec<ContextIndex>,
    /// Whether a context is without a thread.
    ended: Arc<AtomicBool>,
}

impl Watch {
    pub(crate) fn new(
        seats: Vec<Seat>,
        threads: Threads,
        io_ended: impl IntoIterator<Item = (ContextIndex, Arc<AtomicBool>)>,
        stuck_after: Duration,
    ) -> Watch {
        let seen = seats.iter().map(|_| Seen::default()).collect();
        let (io_ended, panics) = (io_ended.into_iter().collect(), vec![0; seats.len()]);
        let (given_up, turned, panicked, restarted) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Watch {
            seats,
            threads,
            io_ended,
            stuck_after,
            seen,
            given_up,
            turned,
            panics,
            panicked,
            restarted,
            ended: Arc::default(),
        }
    }

    /// Set once a context is without a thread, and only a new start of the daemon gives it another one.
    pub(crate) fn ended(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.ended)
    }

    /// How long a context may take to answer.
    pub(crate) fn patience(&self) -> Duration {
        self.stuck_after + PATIENCE
    }

    /// Whether a context is in a handler that may take long, and goes on with its orders when it has come back from it, or its
    /// thread is replaced.
    pub(crate) fn is_at_work(&self, at: ContextIndex) -> bool {
        let seat = &self.seats[usize::from(at.0)];
        seat.g_core.is_some() && seat.gauges.running.get() > 0 && self.lost(at).is_none()
    }

    /// How long the handler that runs in a context may be without progress.
    fn limit(&self, gauges: &ContextGauges) -> Duration {
        match gauges.stuck_after_ns.get() {
            own if own > 0 && gauges.running.get() > 0 => Duration::from_nanos(own),
            _ => self.stuck_after,
        }
    }

    /// Finds the contexts that do not come back from a step, or on a g-core from a record. A g-core that is in a handler
    /// is given another thread; any other context is lost until it comes back.
    pub(crate) fn look(&mut self) {
        let ended = self.threads.go_on(&self.seats);
        for at in 0..self.seats.len() {
            let gauges = Arc::clone(&self.seats[at].gauges);
            let (turns, limit) = (gauges.turns.get(), self.limit(&gauges));
            let records = self.seats[at].g_core.as_ref().map_or(0, |core| core.records_begun());
            let panics = gauges.panics.get();
            if std::mem::replace(&mut self.panics[at], panics) != panics {
                self.panicked.push(ContextIndex(at as u8));
            }
            let ended = self.io_ended(at).or_else(|| ended.iter().find(|(of, _)| *of == at).map(|(_, ended)| *ended));
            let seen = &mut self.seen[at];
            if ended == Some(Ended::Over) {
                self.set_lost(at, Some(Lost::Ended));
                self.ended.store(true, Ordering::Release);
            } else if ended == Some(Ended::Waits) {
                self.set_lost(at, Some(Lost::Waits));
            } else if ended.is_some() || (turns, records) != (seen.turns, seen.records) || gauges.asleep.get() > 0 {
                *seen = Seen { turns, records, lost: seen.lost, ..Seen::default() };
                self.restarted.extend(ended.map(|_| ContextIndex(at as u8)));
                self.set_lost(at, None);
            } else if seen.look(&gauges) >= limit && !self.replace(at, limit) {
                let node = (gauges.running.get() as u32).checked_sub(1).map(NodeId);
                self.set_lost(at, Some(Lost::Stuck(node)));
            }
        }
    }

    /// An I/O context whose thread has ended has lost its sessions with it.
    fn io_ended(&self, at: usize) -> Option<Ended> {
        let has_ended = self.io_ended.get(&ContextIndex(at as u8))?;
        has_ended.load(Ordering::Acquire).then_some(Ended::Over)
    }

    /// Gives a g-core that is in a handler another thread, if it may be; whether it need not be looked at for a while.
    fn replace(&mut self, at: usize, stuck_after: Duration) -> bool {
        // A c-core's thread is not replaced.
        let Some(core) = self.seats[at].g_core.clone() else { return false };
        if core.gauges().running.get() == 0 || self.threads.in_handlers() >= MAX_ABANDONED {
            return false;
        }
        // Its handler has just returned.
        let Some((node, records)) = core.take_over() else { return false };
        self.given_up.push(GivenUp { node, context: ContextIndex(at as u8), stuck_after, records });
        (self.seen[at].own, self.seen[at].had) = (None, Duration::ZERO);
        // That of the one that is left behind does not count against the one that takes its place.
        self.seats[at].gauges.thread.set(0);
        // Without a thread it is lost, until there is one to be had.
        self.threads.replace(&core).is_ok()
    }

    fn set_lost(&mut self, at: usize, lost: Option<Lost>) {
        let was = std::mem::replace(&mut self.seen[at].lost, lost);
        if was.is_some() != lost.is_some() {
            self.turned.push(ContextIndex(at as u8));
        }
    }

    /// Waits for an answer of a context, until then at most and while the context is not lost. Nothing if it does not come.
    pub(crate) fn wait_for<T>(&mut self, at: ContextIndex, answer: &oneshot::Receiver<T>, until: Instant) -> Option<T> {
        loop {
            let left = until.saturating_duration_since(crossdock_device::now());
            // One that is lost has answered, or will not.
            let longest = if self.lost(at).is_some() { Duration::ZERO } else { left.min(LOOK) };
            crossdock_device::before_wait();
            match answer.recv_timeout(longest) {
                Ok(answer) => return Some(answer),
                Err(oneshot::RecvTimeoutError::Disconnected) => return None,
                Err(oneshot::RecvTimeoutError::Timeout) if longest.is_zero() => return None,
                Err(oneshot::RecvTimeoutError::Timeout) => self.look(),
            }
        }
    }

    /// Why a context does not answer, if it does not.
    pub(crate) fn lost(&self, at: ContextIndex) -> Option<Lost> {
        self.seen[usize::from(at.0)].lost
    }

    /// Ends the contexts' threads.
    pub(crate) fn stop(&mut self) {
        self.threads.stop();
    }

    /// The contexts with which one shares its thread, itself included.
    pub(crate) fn sharing(&self, seat: &Seat) -> Vec<String> {
        let shares = |other: &&Seat| {
            other.name == seat.name
                || (other.kind == seat.kind && other.cpu.is_some() && other.cpu == seat.cpu && seat.g_core.is_none())
        };
        self.seats.iter().filter(shares).map(|other| other.name.clone()).collect()
    }

    /// A context's number by its name.
    pub(crate) fn find(&self, name: &str) -> Option<ContextIndex> {
        self.seats.iter().position(|seat| seat.name == name).map(|at| ContextIndex(at as u8))
    }

    /// A context's name.
    pub(crate) fn name(&self, at: ContextIndex) -> &str {
        &self.seats[usize::from(at.0)].name
    }
}
