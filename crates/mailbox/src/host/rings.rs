//! The rings that clients fill and the core polls, and in which order it looks at them.
//!
//! Those that brought something lately are *active* and stand first in the table: they are looked at each time. The others are
//! looked at a few at a time, so that a client that is silent costs nobody anything: a look costs as much with a thousand clients
//! as with ten. A ring that brought nothing but buffers given back is not active either, and is looked at less often still. Nobody
//! waits for those; and a line that the core does not have before it is the client's to write at once, where it would have to be
//! fetched from the core's cache first, and the client's next message would wait behind that.

use super::client::SESSION_OUT;
use crate::segment::Segment;
use crate::shared::{
    Calls, ControlLayout, CoreLane, Descriptor, PORT_ENTRIES, Passed, RingReader, SIGNAL_ENTRIES, SIGNALS, Signal,
    TakenCount, up,
};
use std::sync::Arc;

/// How far ahead of a message its bytes are asked for, in messages: about as many as are read while they come.
const AHEAD: usize = 3;
/// Looks in vain after which a ring is active no more.
const PATIENCE: u32 = 4096;
/// The inactive rings are looked at in one of this many looks.
const ASIDE_EVERY: u32 = 32;
/// And then this part of them, rounded up,
const ASIDE_PART: usize = 4;
/// but at most this many rings.
const MOST_ASIDE: usize = 16;
/// Rings that bring back buffers, in one of this many of these looks.
const BACK_EVERY: u32 = 16;
/// Entries taken from one ring before the next one's turn.
pub(super) const BURST: u32 = 32;
/// The same of a ring that brings back buffers: nobody waits for those, and the next message would wait behind them.
const BACK_BURST: u32 = 4;
/// Looks, and entries of other rings, for which a ring is left alone once all of many puts were taken from it: its writer goes on in the
/// same line, and would have to get it back for each put.
const REST: u64 = 16;
/// Entries after which some of the others are looked at, even if the active rings are never empty.
const MOST_BETWEEN: u32 = 64;

/// A ring that clients fill and the core polls.
pub(super) enum Up {
    Port(RingReader<Descriptor>),
    Session(SessionReader),
    Signals(SignalReader),
    /// The client's lane, which brings what is of the others.
    Lane,
}

/// A session's ring to the core, and the word by which the client knows what was taken of it: if the core dies, the rest is to
/// be sent again.
pub(super) struct SessionReader {
    ring: RingReader<Descriptor>,
    taken: TakenCount,
}

impl SessionReader {
    /// That of a client with this control segment; none if that is too short.
    pub(super) fn new(control: &Arc<Segment>) -> Option<SessionReader> {
        let ring = RingReader::new(control, ControlLayout::port_up(SESSION_OUT.into()), PORT_ENTRIES)?;
        Some(SessionReader { ring, taken: TakenCount::of_session(control)? })
    }

    /// The next entry. The count of taken entries is published before the entry is processed: a buffer that may come to
    /// hold other data must not be taken for a message that was left.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Descriptor> {
        let entry = self.ring.pop()?;
        self.taken.store(self.ring.position());
        Some(entry)
    }

    /// Whether there is one.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.ring.is_ready()
    }
}

/// A client's signal queue to the core, and how far the client knows that it was taken.
pub(super) struct SignalReader {
    ring: RingReader<Signal>,
    taken: TakenCount,
    reported: u64,
}

impl SignalReader {
    /// The signal queue of a client with this control segment; none if that is too short.
    pub(super) fn new(control: &Arc<Segment>) -> Option<SignalReader> {
        let ring = RingReader::new(control, ControlLayout::signal_up(), SIGNAL_ENTRIES)?;
        Some(SignalReader { ring, taken: TakenCount::new(control)?, reported: 0 })
    }

    /// The next entry. Publishes the count of taken entries often enough that the client can write on.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Signal> {
        let entry = self.ring.pop();
        if self.ring.position() - self.reported >= SIGNAL_ENTRIES as u64 / 4 {
            self.report_progress();
        }
        entry
    }

    /// Reports to the client how far it got: to be called when there is nothing more.
    #[inline]
    pub(super) fn report_progress(&mut self) {
        let taken = self.ring.position();
        if taken != self.reported {
            self.reported = taken;
            self.taken.store(taken);
        }
    }

    /// Whether there is one.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.ring.is_ready()
    }
}

/// One polled ring, and whose it is.
pub(super) struct Polled {
    up: Up,
    /// Index of the client.
    client: u32,
    port: u16,
    /// Looks in vain since the last entry.
    idle: u32,
    /// Whether the last entry gave a buffer back.
    brought_back: bool,
    /// The moment until which it is left alone.
    rests_until: u64,
    is_active: bool,
}

/// The port number that stands for a client's lane.
const LANE: u16 = u16::MAX - 1;

/// The client state that is found without a search.
struct OfClient {
    lane: CoreLane,
    /// Places of its rings, by port.
    ports: Vec<Option<u32>>,
    signals: Option<u32>,
}

impl OfClient {
    fn place(&self, port: u16) -> Option<usize> {
        let place = if port == SIGNALS { self.signals } else { self.ports.get(usize::from(port)).copied().flatten() };
        place.map(|place| place as usize)
    }
}

/// The state of a client with polled rings.
#[inline(always)]
#[track_caller]
fn polled(clients: &mut [Option<OfClient>], client: u32) -> Option<&mut OfClient> {
    let of = clients.get_mut(client as usize).and_then(Option::as_mut);
    debug_assert!(of.is_some(), "client {client} has polled rings, and a lane");
    of
}

/// An entry of a polled ring.
pub(super) enum Taken {
    /// With one a little behind it, if that is there: its bytes can be on their way meanwhile.
    Descriptor(Descriptor, Option<Descriptor>),
    Signal(Signal),
    /// Where it called the core to direct rings.
    Calls(Calls),
    /// An entry that no client passes over its lane.
    Astray,
}

impl Polled {
    /// Takes the next entry.
    #[inline]
    fn pop(&mut self) -> Option<Taken> {
        match &mut self.up {
            Up::Port(ring) => {
                let entry = ring.pop()?;
                (self.idle, self.brought_back) = (0, entry.op == up::FREE);
                let next = if entry.op == up::PUT { ring.peek(AHEAD) } else { None };
                Some(Taken::Descriptor(entry, next))
            }
            Up::Session(ring) => {
                let entry = ring.pop()?;
                self.idle = 0;
                Some(Taken::Descriptor(entry, None))
            }
            Up::Signals(ring) => {
                let entry = ring.pop()?;
                self.idle = 0;
                Some(Taken::Signal(entry))
            }
            Up::Lane => None,
        }
    }

    /// Entries taken so far.
    #[inline]
    fn position(&self) -> u64 {
        match &self.up {
            Up::Port(ring) => ring.position(),
            Up::Session(reader) => reader.ring.position(),
            Up::Signals(reader) => reader.ring.position(),
            Up::Lane => 0,
        }
    }

    #[inline]
    fn is_ready(&self) -> bool {
        match &self.up {
            Up::Port(ring) => ring.is_ready(),
            Up::Session(ring) => ring.is_ready(),
            Up::Signals(ring) => ring.is_ready(),
            Up::Lane => false,
        }
    }
}

/// All polled rings.
#[derive(Default)]
pub(super) struct Rings {
    rings: Vec<Polled>,
    /// By the client's index.
    clients: Vec<Option<OfClient>>,
    /// Their places, those of the active ones first.
    order: Vec<u32>,
    active: usize,
    /// The active ring that is looked at next.
    cursor: usize,
    /// Entries taken from that one in a row.
    burst: u32,
    /// The other ring that is looked at next.
    aside: usize,
    /// Entries taken since others were looked at.
    since_aside: u32,
    /// Looks until others are looked at.
    until_aside: u32,
    /// Looks at others until those that bring back buffers are looked at too.
    until_back: u32,
    /// Looks, and entries taken beyond the first in each.
    moment: u64,
}

impl Rings {
    /// One more client, by its lane.
    pub(super) fn add_client(&mut self, client: u32, lane: CoreLane) {
        let at = client as usize;
        if self.clients.len() <= at {
            self.clients.resize_with(at + 1, || None);
        }
        self.clients[at] = Some(OfClient { lane, ports: Vec::new(), signals: None });
        self.add(client, LANE, Up::Lane);
    }

    /// One more ring: of the client at this index, to this port.
    pub(super) fn add(&mut self, client: u32, port: u16, up: Up) {
        self.order.push(self.rings.len() as u32);
        self.rings.push(Polled { up, client, port, idle: 0, brought_back: false, rests_until: 0, is_active: false });
        self.note_place(self.rings.len() - 1);
    }

    fn note_place(&mut self, at: usize) {
        let Polled { client, port, .. } = self.rings[at];
        let Some(of) = polled(&mut self.clients, client) else { return };
        match port {
            LANE => {}
            SIGNALS => of.signals = Some(at as u32),
            port => {
                let port = usize::from(port);
                if of.ports.len() <= port {
                    of.ports.resize(port + 1, None);
                }
                of.ports[port] = Some(at as u32);
            }
        }
    }

    /// Those of a client are polled no more: all, or that of one port.
    pub(super) fn remove(&mut self, client: u32, port: Option<u16>) {
        self.rings.retain(|ring| ring.client != client || port.is_some_and(|port| ring.port != port));
        if let Some(of) = self.clients.get_mut(client as usize) {
            match (of.as_mut(), port) {
                (Some(of), Some(port)) => of.lane.void(port),
                _ => *of = None,
            }
        }
        for of in self.clients.iter_mut().flatten() {
            of.ports.clear();
        }
        (0..self.rings.len()).for_each(|at| self.note_place(at));
        // Those that were active stay so.
        let (active, others): (Vec<u32>, Vec<u32>) =
            (0..self.rings.len() as u32).partition(|&at| self.rings[at as usize].is_active);
        self.active = active.len();
        self.order = active;
        self.order.extend(others);
        (self.cursor, self.burst, self.aside) = (0, 0, 0);
    }

    /// A client's lane.
    #[inline]
    pub(super) fn lane(&mut self, client: u32) -> Option<&mut CoreLane> {
        Some(&mut polled(&mut self.clients, client)?.lane)
    }

    /// The ports of a client whose rings are polled.
    pub(super) fn ports(&self, client: u32) -> impl Iterator<Item = u16> + '_ {
        self.rings.iter().filter(move |ring| ring.client == client && ring.port != LANE).map(|ring| ring.port)
    }

    /// After a put of a port was taken: takes the puts that follow it in the port's ring, so that what they have in common is looked
    /// up once for all. `take` says whether it wants more.
    #[inline(always)]
    pub(super) fn take_puts(&mut self, client: u32, port: u16, mut take: impl FnMut(&Descriptor) -> bool) {
        let Some(of) = polled(&mut self.clients, client) else { return };
        let Some(ring) = of.place(port).map(|at| &mut self.rings[at]) else { return };
        let Up::Port(entries) = &mut ring.up else { return };
        let most = BURST.saturating_sub(self.burst) as usize;
        let ready = of.lane.ready_before(port, entries, most);
        for _ in 0..ready {
            let Some(entry) = entries.pop_if(|entry| entry.op == up::PUT) else { break };
            (self.burst, self.since_aside) = (self.burst + 1, self.since_aside + 1);
            self.moment += 1;
            if !take(&entry) {
                break;
            }
        }
        if ready < most {
            ring.rests_until = self.moment + REST;
        }
    }

    /// Takes the next entry of one port.
    pub(super) fn take_of(&mut self, client: u32, port: u16) -> Option<Taken> {
        let of = self.clients.get(client as usize)?.as_ref()?;
        let at = of.place(port)?;
        let taken = match of.lane.peek().filter(|passed| passed.port == port) {
            Some(passed) => self.next_in_order(at, &passed),
            None => self.next(at),
        };
        taken.map(|(_, taken)| taken)
    }

    /// Whether no ring and no lane holds anything.
    pub(super) fn is_quiet(&self) -> bool {
        !self.rings.iter().any(|ring| self.is_ready(ring))
    }

    #[inline]
    fn is_ready(&self, ring: &Polled) -> bool {
        match &ring.up {
            Up::Lane => self.clients[ring.client as usize]
                .as_ref()
                .is_some_and(|of| of.lane.peek().is_some() || of.lane.is_called()),
            _ => ring.is_ready(),
        }
    }

    /// The next entry of a ring or lane, and its port.
    #[inline(always)]
    fn next(&mut self, at: usize) -> Option<(u16, Taken)> {
        let ring = &mut self.rings[at];
        // Before the lane is looked at: what was passed before this entry was written is seen then.
        let is_ready = ring.is_ready();
        let is_lane = matches!(ring.up, Up::Lane);
        if !is_ready && !is_lane {
            if let Up::Signals(ring) = &mut ring.up {
                ring.report_progress();
            }
            return None;
        }
        let of = polled(&mut self.clients, ring.client)?;
        let Some(passed) = of.lane.peek() else {
            if is_lane {
                return of.lane.take_calls().map(|calls| (LANE, Taken::Calls(calls)));
            }
            return if is_ready { ring.pop().map(|taken| (ring.port, taken)) } else { None };
        };
        if is_lane {
            ring.idle = 0;
            if let Some(at) = of.place(passed.port) {
                return self.next_in_order(at, &passed);
            }
            of.lane.accept();
            return Some((passed.port, Taken::Astray));
        }
        if passed.port != ring.port {
            return ring.pop().map(|taken| (ring.port, taken));
        }
        self.next_in_order(at, &passed)
    }

    /// The next entry of a ring for whose port something was passed over the lane: that, once it is its turn.
    #[inline(always)]
    fn next_in_order(&mut self, at: usize, passed: &Passed) -> Option<(u16, Taken)> {
        let ring = &mut self.rings[at];
        let port = ring.port;
        let ahead = (ring.position() as u32).wrapping_sub(passed.after);
        // Threads of a client share its signal queue: what others sent meanwhile may have been taken before.
        let is_next = ahead == 0 || (port == SIGNALS && (ahead as i32) > 0);
        if !is_next {
            return Some((port, ring.pop().unwrap_or(Taken::Astray)));
        }
        polled(&mut self.clients, ring.client)?.lane.accept();
        let taken = match port {
            SIGNALS => Taken::Signal(passed.signal),
            _ => Taken::Descriptor(passed.signal.head, None),
        };
        Some((port, taken))
    }

    /// The next entry, and the client and port it is of: of the active rings, and now and then of some of the others, or of `all`.
    /// None once each of these was looked at and was empty.
    #[inline]
    pub(super) fn take(&mut self, all: bool) -> Option<(u32, u16, Taken)> {
        self.moment += 1;
        let brings_back = self.order.get(self.cursor).is_some_and(|&at| self.rings[at as usize].brought_back);
        if self.burst >= if brings_back { BACK_BURST } else { BURST } {
            (self.burst, self.cursor) = (0, self.cursor + 1);
        }
        if self.since_aside >= MOST_BETWEEN {
            self.look_aside(self.part_of_others(), true);
        }
        loop {
            let mut quiet = 0;
            while quiet < self.active {
                if self.cursor >= self.active {
                    self.cursor = 0;
                }
                let at = self.order[self.cursor] as usize;
                let rests = !all && self.moment < self.rings[at].rests_until;
                if !rests && let Some((port, taken)) = self.next(at) {
                    self.burst += 1;
                    self.since_aside += 1;
                    return Some((self.rings[at].client, port, taken));
                }
                let ring = &mut self.rings[at];
                ring.idle += 1;
                self.burst = 0;
                if ring.brought_back || ring.idle > PATIENCE {
                    ring.is_active = false;
                    self.active -= 1;
                    self.order.swap(self.cursor, self.active);
                } else {
                    self.cursor += 1;
                    quiet += 1;
                }
            }
            let others = match (all, self.until_aside) {
                (true, _) => self.others(),
                (false, 0) => self.part_of_others(),
                (false, _) => 0,
            };
            self.until_aside = self.until_aside.checked_sub(1).unwrap_or(ASIDE_EVERY - 1);
            if others == 0 {
                return None;
            }
            let with_back = all || self.until_back == 0;
            self.until_back = self.until_back.checked_sub(1).unwrap_or(BACK_EVERY - 1);
            if !self.look_aside(others, with_back) {
                return None;
            }
        }
    }

    /// Rings that are not active.
    #[inline]
    fn others(&self) -> usize {
        self.rings.len() - self.active
    }

    #[inline]
    fn part_of_others(&self) -> usize {
        self.others().div_ceil(ASIDE_PART).min(MOST_ASIDE)
    }

    /// Of the next `count` inactive rings, activates those that hold an entry; `with_back` includes those that last
    /// brought back buffers. Whether any was activated.
    fn look_aside(&mut self, count: usize, with_back: bool) -> bool {
        let before = self.active;
        self.since_aside = 0;
        for _ in 0..count {
            if self.aside < self.active || self.aside >= self.order.len() {
                self.aside = self.active;
            }
            // Each round activates one at most, so some of the inactive ones are left.
            let at = self.order[self.aside];
            let ring = &self.rings[at as usize];
            if (with_back || !ring.brought_back) && self.is_ready(ring) {
                let ring = &mut self.rings[at as usize];
                (ring.idle, ring.is_active) = (0, true);
                self.order.swap(self.aside, self.active);
                self.active += 1;
            }
            self.aside += 1;
        }
        if self.active > before {
            // The entry that was found is taken first: it waited longest.
            (self.cursor, self.burst) = (before, 0);
        }
        self.active > before
    }
}
