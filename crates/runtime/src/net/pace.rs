//! The pace of a context's turns: its time, and when it polls on, naps or sleeps.

use super::memory::watched;
use super::{Net, SOCKET};
use crate::clock::Clock;
use crossdock_device::{Idle, Idler, nap};
use std::time::Duration;

/// For how long after the last entry the rings are looked at before anything else is, in ns.
const QUIET_NS: u64 = 5_000;
/// How often a context that never sleeps looks for clients that are gone, in ns.
const ENDS_EVERY_NS: u64 = 1_000_000;

/// When things happened, in ns of the context's clock.
pub(super) struct Pace {
    clock: Clock,
    idler: Idler,
    now_ns: u64,
    /// When the context last checked for input, or woke: input that it finds now arrived after that.
    looked_ns: u64,
    /// The same for the input that it is working on.
    since_ns: u64,
    /// When the rings last brought something, and when the ends of clients were last looked for.
    rings_ns: u64,
    ends_ns: u64,
    /// Whether the context polls the rings without a pause while messages come.
    spins_on_rings: bool,
}

impl Pace {
    /// The pace of a context that polls for `spin_us` after something has come.
    pub(super) fn new(clock: Clock, spin_us: u32) -> Pace {
        Pace {
            clock,
            idler: Idler::new(u64::from(spin_us) * 1000),
            now_ns: 0,
            looked_ns: 0,
            since_ns: 0,
            rings_ns: 0,
            ends_ns: 0,
            spins_on_rings: spin_us > 0,
        }
    }
}

impl Net {
    /// The time, as it was last read.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.pace.now_ns
    }

    /// Since when what the context works on has waited at most.
    #[inline]
    pub(crate) fn since_ns(&self) -> u64 {
        self.pace.since_ns
    }

    /// Reads the clock; what is going on has the time from before still.
    #[inline]
    pub(crate) fn clock_ns(&self) -> u64 {
        self.pace.clock.now_ns()
    }

    /// Reads the clock for all that follows.
    #[inline]
    pub(crate) fn update_time(&mut self) {
        self.pace.now_ns = self.pace.clock.now_ns();
        self.device.set_now(self.pace.now_ns);
    }

    /// A turn begins: what it finds has come since the one before looked.
    pub(crate) fn begin_turn(&mut self) {
        self.update_time();
        let pace = &mut self.pace;
        pace.since_ns = std::mem::replace(&mut pace.looked_ns, pace.now_ns);
    }

    /// Something of `bytes` bytes has come.
    #[inline]
    pub(crate) fn note_arrival(&mut self, bytes: usize) {
        self.pace.idler.arrived(self.pace.now_ns, bytes);
    }

    /// Whether so much comes that it is worth to wait for more.
    #[inline]
    pub(crate) fn is_heavy(&self) -> bool {
        self.pace.idler.is_heavy(self.pace.now_ns)
    }

    /// Something has come by the rings.
    #[inline]
    pub(crate) fn note_rings(&mut self) {
        self.pace.rings_ns = self.pace.now_ns;
    }

    /// Whether the rings have brought nothing for a while.
    #[inline]
    pub(crate) fn are_rings_quiet(&self) -> bool {
        self.pace.now_ns >= self.pace.rings_ns + QUIET_NS
    }

    /// Whether the rings are polled without a pause now. Under heavy traffic it is the nap that fills them: looking at them
    /// meanwhile would bring nothing sooner.
    #[inline]
    pub(crate) fn spins_on_rings(&self) -> bool {
        self.pace.spins_on_rings && !self.is_heavy()
    }

    /// The rings are left after they were polled for a while.
    #[inline]
    pub(crate) fn leave_rings(&mut self) {
        self.pace.idler.arrived(self.pace.rings_ns, 0);
    }

    /// Nothing more is there: naps while traffic is heavy, or spins while messages follow one another closely. Whether the
    /// context is to sleep instead.
    pub(crate) fn pause_turns(&mut self) -> bool {
        let pace = &mut self.pace;
        match if self.is_device_full { Idle::Nap } else { pace.idler.choose(pace.now_ns) } {
            Idle::Nap => nap(Idler::NAP),
            // Others may need this core to send what is waited for.
            Idle::Spin => pace.idler.spin(pace.now_ns),
            Idle::Sleep => return true,
        }
        false
    }

    /// When the next timer is due, in ns.
    pub(crate) fn due_ns(&self) -> u64 {
        self.timers.first().map_or(u64::MAX, |(at, _)| *at)
    }

    /// The context has slept since the time that was last read, until traffic came or for another reason.
    pub(crate) fn note_slept(&mut self, by_arrival: bool) {
        let pace = &mut self.pace;
        pace.looked_ns = pace.clock.now_ns();
        pace.idler.slept(pace.now_ns, pace.looked_ns, by_arrival);
    }

    /// Whether the ends of clients are to be looked for, in a context that is too busy to sleep.
    #[inline]
    pub(crate) fn is_look_due(&self) -> bool {
        self.peers.has_attached() && self.pace.now_ns >= self.pace.ends_ns + ENDS_EVERY_NS
    }

    /// Waits in the poller for `timeout` at most. Whether traffic ended the wait, and the numbers of the clients that have
    /// gone, which the caller gives back with [`Net::keep_ended`].
    pub(crate) fn wait(&mut self, timeout: Duration) -> (bool, Vec<u32>) {
        self.pace.ends_ns = self.pace.now_ns;
        let mut by_arrival = false;
        let mut ended = std::mem::take(&mut self.scratch.ended);
        // A failed wait (a signal) is a short one.
        for &key in self.poller.wait(Some(timeout)).unwrap_or_default() {
            match watched(key) {
                Some((number, true)) => ended.push(number),
                Some((_, false)) => by_arrival = true,
                None => by_arrival |= key == SOCKET,
            }
        }
        (by_arrival, ended)
    }

    /// Keeps the memory of a list of clients for the next wait.
    pub(crate) fn keep_ended(&mut self, mut ended: Vec<u32>) {
        ended.clear();
        self.scratch.ended = ended;
    }
}
