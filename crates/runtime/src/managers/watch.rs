//! The threads of contexts, and the watch over them: who is in a handler that does not return is replaced.

use crate::platform::context::Threads;
use crate::platform::start::Seat;
use crate::platform::{ContextIndex, StageId};
use crossdock_device::nap;
use std::time::{Duration, Instant};

/// How long one look at whether contexts have answered waits.
const GLANCE: Duration = Duration::from_micros(20);
/// How long a context may take to answer, beside the time after which a handler counts as stuck.
const PATIENCE: Duration = Duration::from_secs(5);
/// Threads that may be left in handlers that do not return; a g-core that would be one more is not replaced.
const MAX_ABANDONED: usize = 16;

/// A handler that was given up.
#[derive(Clone, Debug)]
pub(crate) struct GivenUp {
    pub(crate) stage: StageId,
    pub(crate) context: ContextIndex,
    /// Whether the context goes on, on another thread.
    pub(crate) goes_on: bool,
}

/// The contexts' seats and threads.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) seats: Vec<Seat>,
    threads: Threads,
    stuck_after: Duration,
    /// Of each context: the turn that it was in, and since when.
    seen: Vec<(u64, Instant)>,
    /// Handlers that were given up since this was last looked at.
    pub(crate) given_up: Vec<GivenUp>,
    abandoned: usize,
}

impl Watch {
    pub(crate) fn new(seats: Vec<Seat>, threads: Threads, stuck_after: Duration) -> Watch {
        let seen = vec![(0, Instant::now()); seats.len()];
        Watch { seats, threads, stuck_after, seen, given_up: Vec::new(), abandoned: 0 }
    }

    /// Waits a moment for a context, from `since` on. `false`: it has had its time.
    pub(crate) fn wait(&mut self, since: Instant) -> bool {
        let waited = since.elapsed();
        // Most answer at once, and a nap is long beside that.
        if waited < Duration::from_micros(5) {
            std::hint::spin_loop();
            return true;
        }
        nap(GLANCE);
        if waited > Duration::from_millis(50) {
            self.look();
        }
        waited < self.stuck_after + PATIENCE
    }

    /// Looks whether a g-core is in a handler that does not return.
    pub(crate) fn look(&mut self) {
        for at in 0..self.seats.len() {
            let Some(core) = self.seats[at].g_core.clone() else { continue };
            let turns = core.gauges().turns.get();
            let is_away = core.gauges().running.get() == 0;
            if is_away || turns != self.seen[at].0 {
                self.seen[at] = (turns, Instant::now());
                continue;
            }
            if self.seen[at].1.elapsed() < self.stuck_after || self.abandoned > MAX_ABANDONED {
                continue;
            }
            let Some(stage) = core.take_over() else { continue };
            self.abandoned += 1;
            let goes_on = self.abandoned <= MAX_ABANDONED && self.threads.replace(&core).is_ok();
            self.given_up.push(GivenUp { stage, context: ContextIndex(at as u8), goes_on });
            self.seen[at] = (turns, Instant::now());
        }
    }

    /// Ends the contexts' threads.
    pub(crate) fn stop(&mut self) {
        self.threads.stop(self.abandoned);
    }

    /// The contexts with which one shares its thread, itself included.
    pub(crate) fn sharing(&self, at: usize) -> Vec<String> {
        let Some(seat) = self.seats.get(at) else { return Vec::new() };
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
        self.seats.get(usize::from(at.0)).map_or("", |seat| &seat.name)
    }
}
