//! The rings that clients fill and the core polls, and in which order it looks at them.
//!
//! Those that brought something lately are *active* and stand first in the table: they are looked at each time. The others are
//! looked at a few at a time, so that a client that is silent costs nobody anything: a look costs as much with a thousand clients
//! as with ten. A ring that brought nothing but buffers given back is not active either. Nobody waits for those; and a line that
//! the core does not have before it is the client's to write at once, where it would have to be fetched from the core's cache
//! first, and the client's next message would wait behind that.

use super::client::SESSION_OUT;
use crate::segment::Segment;
use crate::shared::{ControlLayout, Descriptor, PORT_ENTRIES, RingReader, SIGNAL_ENTRIES, Signal, TakenCount, up};
use std::sync::Arc;

/// Looks in vain after which a ring is active no more.
const PATIENCE: u32 = 4096;
/// The others are looked at in one of so many looks.
const ASIDE_EVERY: u32 = 4;
/// And then so many of them, rounded up: each has its turn within the product of the two.
const ASIDE_PART: usize = 32;
/// Entries taken from one ring before the next one's turn.
const BURST: u32 = 32;

/// A ring that clients fill and the core polls.
pub(super) enum Up {
    Port(RingReader<Descriptor>),
    Session(SessionReader),
    Signals(SignalReader),
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

    /// The next entry. The client is told before anything is done with it: a buffer that may come to hold something else must
    /// not be taken for a message that was left.
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
    told: u64,
}

impl SignalReader {
    /// The signal queue of a client with this control segment; none if that is too short.
    pub(super) fn new(control: &Arc<Segment>) -> Option<SignalReader> {
        let ring = RingReader::new(control, ControlLayout::signal_up(), SIGNAL_ENTRIES)?;
        Some(SignalReader { ring, taken: TakenCount::new(control)?, told: 0 })
    }

    /// The next entry. The client is told how far it got when there is none, and often enough that it can write on.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Signal> {
        let entry = self.ring.pop();
        let taken = self.ring.position();
        if taken - self.told >= SIGNAL_ENTRIES as u64 / 4 || (entry.is_none() && taken != self.told) {
            self.told = taken;
            self.taken.store(taken);
        }
        entry
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
}

/// An entry of a polled ring.
pub(super) enum Taken {
    /// With the one behind it, if that is there and about a message too: its bytes can be on their way meanwhile.
    Descriptor(Descriptor, Option<Descriptor>),
    Signal(Signal),
}

impl Polled {
    /// Takes the next entry.
    #[inline]
    fn pop(&mut self) -> Option<Taken> {
        match &mut self.up {
            Up::Port(ring) => {
                let entry = ring.pop()?;
                (self.idle, self.brought_back) = (0, entry.op == up::FREE);
                let next = if entry.op == up::PUT { ring.peek() } else { None };
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
        }
    }

    #[inline]
    fn is_ready(&self) -> bool {
        match &self.up {
            Up::Port(ring) => ring.is_ready(),
            Up::Session(ring) => ring.is_ready(),
            Up::Signals(ring) => ring.is_ready(),
        }
    }
}

/// All polled rings.
#[derive(Default)]
pub(super) struct Rings {
    rings: Vec<Polled>,
    /// Their places, those of the active ones first.
    order: Vec<u32>,
    active: usize,
    /// The active ring that is looked at next.
    cursor: usize,
    /// Entries taken from that one in a row.
    burst: u32,
    /// The other ring that is looked at next.
    aside: usize,
    /// Looks until others are looked at.
    until_aside: u32,
}

impl Rings {
    /// One more ring: of the client at this index, to this port.
    pub(super) fn add(&mut self, client: u32, port: u16, up: Up) {
        self.order.push(self.rings.len() as u32);
        self.rings.push(Polled { up, client, port, idle: 0, brought_back: false });
    }

    /// Those of a client are polled no more: all, or that of one port.
    pub(super) fn remove(&mut self, client: u32, port: Option<u16>) {
        self.rings.retain(|ring| ring.client != client || port.is_some_and(|port| ring.port != port));
        self.order = (0..self.rings.len() as u32).collect();
        // Which ones are active will show.
        (self.active, self.cursor, self.burst, self.aside) = (0, 0, 0, 0);
    }

    /// The ports of a client whose rings are polled.
    pub(super) fn ports(&self, client: u32) -> impl Iterator<Item = u16> + '_ {
        self.rings.iter().filter(move |ring| ring.client == client).map(|ring| ring.port)
    }

    /// Takes the next entry of one ring.
    pub(super) fn take_of(&mut self, client: u32, port: u16) -> Option<Taken> {
        self.rings.iter_mut().find(|ring| (ring.client, ring.port) == (client, port))?.pop()
    }

    /// Whether no ring holds anything.
    pub(super) fn is_quiet(&self) -> bool {
        !self.rings.iter().any(Polled::is_ready)
    }

    /// The next entry, and the client and port it is of: of the active rings, and now and then of some of the others, or of `all`.
    /// None once each of these was looked at and was empty.
    #[inline]
    pub(super) fn take(&mut self, all: bool) -> Option<(u32, u16, Taken)> {
        if self.burst >= BURST {
            (self.burst, self.cursor) = (0, self.cursor + 1);
            self.look_aside(self.others().div_ceil(ASIDE_PART));
        }
        loop {
            let mut quiet = 0;
            while quiet < self.active {
                if self.cursor >= self.active {
                    self.cursor = 0;
                }
                let ring = &mut self.rings[self.order[self.cursor] as usize];
                if let Some(taken) = ring.pop() {
                    self.burst += 1;
                    return Some((ring.client, ring.port, taken));
                }
                ring.idle += 1;
                self.burst = 0;
                if ring.brought_back || ring.idle > PATIENCE {
                    self.active -= 1;
                    self.order.swap(self.cursor, self.active);
                } else {
                    self.cursor += 1;
                    quiet += 1;
                }
            }
            let others = match (all, self.until_aside) {
                (true, _) => self.others(),
                (false, 0) => self.others().div_ceil(ASIDE_PART),
                (false, _) => 0,
            };
            self.until_aside = self.until_aside.checked_sub(1).unwrap_or(ASIDE_EVERY - 1);
            if others == 0 || !self.look_aside(others) {
                return None;
            }
        }
    }

    /// Rings that are not active.
    #[inline]
    fn others(&self) -> usize {
        self.rings.len() - self.active
    }

    /// Makes those active that hold something, of the next so many that are not. Whether any does.
    fn look_aside(&mut self, count: usize) -> bool {
        let before = self.active;
        for _ in 0..count {
            if self.aside < self.active || self.aside >= self.order.len() {
                self.aside = self.active;
            }
            let Some(&at) = self.order.get(self.aside) else { break };
            let ring = &mut self.rings[at as usize];
            if ring.is_ready() {
                ring.idle = 0;
                self.order.swap(self.aside, self.active);
                self.active += 1;
            }
            self.aside += 1;
        }
        if self.active > before {
            // What was found is taken first: it waited longest.
            (self.cursor, self.burst) = (before, 0);
        }
        self.active > before
    }
}
