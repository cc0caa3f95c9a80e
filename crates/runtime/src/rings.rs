//! The loop's turn over shared memory: it takes messages from clients' rings, and waits for them.
//!
//! While messages come, the context polls only the rings: no system call, no other queue, and the clock only now and
//! then. Everything else (socket, timers, requests, the ends of clients) has its turn at least every
//! [`FULL_TURN_NS`].

use crate::context::Context;
use crate::host::tasks::answer_call;
use crossdock_mailbox::host::Arrival;
use crossdock_transport::handshake::Close;
use std::time::Duration;

/// How long the rings may have the core to themselves, in ns.
const FULL_TURN_NS: u64 = 50_000;
/// Looks at the rings before the first look at the clock.
const LOOKS: u32 = 128;
/// Things that came for the context before the first look at the clock.
const ARRIVALS: u32 = 32;
/// The clock is looked at, and clients that fell asleep unnoticed are woken, about this often, in ns: the fence and the clock take as
/// long as half a message.
const STRIDE_NS: u64 = 20_000;
const HALF_STRIDE_NS: u64 = STRIDE_NS / 2;
/// How often [`LOOKS`] and [`ARRIVALS`] are doubled for that, at most: what comes next may take longer than what came last.
const MOST_DOUBLINGS: u32 = 3;

/// Messages taken from the rings at the beginning of a turn, at most.
const DRAIN: u32 = 64;
impl Context {
    /// Takes what the rings hold, and stays with them while more comes. Whether more may be there already.
    pub(crate) fn take_rings(&mut self) -> bool {
        let before = self.host.interface().taken();
        let all = self.drain_rings();
        if self.host.interface().taken() != before {
            self.net.note_arrival(0);
            self.net.note_rings();
        } else if self.net.are_rings_quiet() {
            return false;
        }
        if !self.net.spins_on_rings() {
            return !all;
        }
        self.spin_on_rings()
    }

    /// Takes what the rings hold now, up to a bound; whether that was all.
    #[inline]
    fn drain_rings(&mut self) -> bool {
        let mut taken = 0;
        while taken < DRAIN {
            match self.host.interface_mut().poll() {
                Some(arrival) => taken += self.take_arrival(arrival),
                None => {
                    self.host.interface_mut().end_turn();
                    return true;
                }
            }
        }
        self.host.interface_mut().end_turn();
        false
    }

    /// Looks at the rings until nothing came for a while, something has to leave by another way, or all else is due a
    /// turn. Whether more may be there.
    fn spin_on_rings(&mut self) -> bool {
        let start_ns = self.net.now_ns();
        let mut seen = self.host.interface().taken();
        let mut doublings = 0;
        loop {
            doublings = self.look_at_rings(doublings);
            self.host.interface_mut().end_turn();
            let before_ns = self.net.now_ns();
            self.net.update_time();
            match self.net.now_ns().saturating_sub(before_ns) {
                0..=HALF_STRIDE_NS => doublings = MOST_DOUBLINGS.min(doublings + 1),
                STRIDE_NS.. => doublings = doublings.saturating_sub(1),
                _ => {}
            }
            if self.host.interface().taken() != seen {
                seen = self.host.interface().taken();
                self.net.note_rings();
            } else if self.net.are_rings_quiet() {
                self.net.leave_rings();
                return false;
            }
            if self.net.now_ns() >= start_ns + FULL_TURN_NS || self.net.is_dirty() || self.subscriptions.has_opened() {
                self.net.leave_rings();
                return true;
            }
        }
    }

    /// Looks at the rings, and takes what comes, as often as `doublings` says. How often those are to be the next time: not at all after
    /// the packet of a session, which may have to leave by another way, or if a client was woken, which may sleep again by now.
    #[inline]
    fn look_at_rings(&mut self, mut doublings: u32) -> u32 {
        let (mut looks, mut arrivals) = (0, 0);
        while looks < LOOKS << doublings && arrivals < ARRIVALS << doublings {
            looks += 1;
            match self.host.interface_mut().poll_active() {
                Some(arrival) => {
                    if matches!(arrival, Arrival::Session { .. }) {
                        doublings = 0;
                    }
                    arrivals += self.take_arrival(arrival);
                }
                // No pause between two looks: on many processors that takes as long as a message is under way.
                None => {
                    if self.host.interface_mut().end_look() {
                        doublings = 0;
                    }
                }
            }
        }
        doublings
    }

    /// Takes what came for the context: how many things that was.
    #[inline]
    fn take_arrival(&mut self, arrival: Arrival) -> u32 {
        match arrival {
            Arrival::Upcall { mailbox, upcall, message } => {
                self.host.run_task(self.net.pool_mut(), mailbox, upcall, message);
            }
            Arrival::Upcalls { mailbox, upcall } => {
                return self.host.run_task_for_burst(self.net.pool_mut(), mailbox, upcall);
            }
            Arrival::Session { client, message } => self.take_session(client, message),
            Arrival::Call { client, procedure, argument, result } => {
                let value = answer_call(client, procedure, argument, self.net.now_ns());
                self.host.interface_mut().write_sync(result, value);
            }
            Arrival::Returned { ticket, value } => {
                self.host.take_returned(ticket, value);
            }
            // It broke the protocol of its rings: the host interface has detached it, its peer ends.
            Arrival::Violation { client, reason } => {
                if let Some(key) = self.net.of_client(client.number()) {
                    self.remove_peer(key, "violation", Some(Close { again: false, reason }));
                }
            }
        }
        1
    }

    /// Sleeps at most `sleep_ns`, until something comes; whether that was traffic. Clients ring from here on.
    pub(crate) fn sleep(&mut self, sleep_ns: u64) -> bool {
        self.host.interface_mut().before_sleep();
        self.graph.gauges().asleep.set(1);
        let by_arrival =
            if self.host.interface().is_quiet() { self.look_around(Duration::from_nanos(sleep_ns)) } else { true };
        self.graph.gauges().asleep.set(0);
        self.host.interface_mut().after_sleep();
        by_arrival
    }

    /// Waits in the poller, and ends clients that are gone. Whether traffic ended the wait.
    pub(crate) fn look_around(&mut self, timeout: Duration) -> bool {
        let (by_arrival, mut ended) = self.net.wait(timeout);
        for number in ended.drain(..) {
            // Its peer may have ended before the client did.
            if let Some(client) = self.net.of_client(number).and_then(|key| self.net.client_of(key)) {
                // The packets that its session had put before its end, which may be noticed sooner than they are.
                for message in self.host.interface_mut().last_packets(client) {
                    self.take_session(client, message);
                }
            }
            if let Some(key) = self.net.of_client(number) {
                self.end_gone(key);
            }
        }
        self.net.keep_ended(ended);
        by_arrival
    }
}
