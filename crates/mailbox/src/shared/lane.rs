//! The lane of a client and its core: one cache line that goes to and fro between them, with one entry at a time.
//!
//! Two cores that write to one another over two lines, one each way, wait for four moves of a line for a round trip: each writes
//! to a line that the other is looking at, and so has to have it back first. Over one line it is two, since who reads the entry has
//! the line that the answer goes into. So whoever was passed the last entry may pass the next one: the client at first.
//! A side that may not, or has more to say, uses the rings, which take everything at any time; and nobody waits for the lane.
//!
//! An entry is of one port (or of the signal queue) and says how many entries of that port's ring came before it, so the order of
//! the two is that in which they were written.
//!
//! Word 0 is the entry's first, whose lowest byte counts the passes of the lane, odd ones to the core. Word 1 is its second; word 2
//! holds the port and, in its upper half, the entries before; words 3 and 4 are those of a signal.
//!
//! Words 5 and 6 are no part of an entry: by them the client calls the core to direct rings ([`Call`]), a bit for each port. That needs
//! no room that the core would have to make first, so nobody waits for a core that is stopped; and the core looks at this line anyway.

use super::layout::PORTS;
use super::ring::{Descriptor, Entry, RingReader, Signal};
use super::sync::SyncAddress;
use super::words::Words;
use crate::failpoint::failpoint;
use crate::sync::{AtomicU64, Ordering, fence};
#[cfg(not(loom))]
use {super::layout::ControlLayout, crate::segment::Segment, crate::sync::Arc};

/// Words of the line.
pub(crate) const LANE_WORDS: usize = 8;
/// The port of an entry that is void: its port was closed before it was taken.
const VOID: u16 = u16::MAX - 1;

/// The reason for calling the core, at a port with direct rings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    /// The client at the other end sleeps, and has something to see.
    Wake = 5,
    /// This end, a reader's, uses nothing any more of direct rings that the core said were over.
    Done = 6,
}

/// The ports that the core was called to, a bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Calls {
    pub(crate) wakes: u64,
    pub(crate) dones: u64,
}

/// An entry on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Passed {
    /// The entry; of a port's, `a` and `b` mean nothing.
    pub signal: Signal,
    /// Its port; `u16::MAX` for the signal queue.
    pub port: u16,
    /// Entries of that ring before it, modulo 2^32.
    pub after: u32,
}

/// A port's, of the words of [`Call`].
fn bit_of(port: u16) -> u64 {
    1 << (port % PORTS as u16)
}

/// Whether word 0 is that of pass number `pass`.
#[inline(always)]
fn is_pass(words: &Words, pass: u8) -> Option<u64> {
    // Acquire: with it come the other words, what was done to the slot's buffer, and the ring's entries before.
    let head = words.word(0).load(Ordering::Acquire);
    (head as u8 == pass).then_some(head)
}

#[inline(always)]
fn load(words: &Words, head: u64) -> Passed {
    let rest = |at: usize| words.word(at).load(Ordering::Relaxed);
    let place = rest(2);
    let signal = Signal::decode([head, rest(1), rest(3), rest(4)]);
    Passed { signal, port: place as u16, after: (place >> 32) as u32 }
}

#[inline(always)]
fn store(words: &Words, pass: u8, passed: &Passed) {
    let [head, span, a, b] = passed.signal.encode();
    // A side that sees a word of this entry sees all that came before it, a thread that still loads the one before too:
    // see `peek`.
    fence(Ordering::Release);
    let put = |at: usize, word: u64| words.word(at).store(word, Ordering::Relaxed);
    put(1, span);
    put(2, u64::from(passed.port) | u64::from(passed.after) << 32);
    put(3, a);
    put(4, b);
    // Release: see `is_pass`.
    words.word(0).store(head & !0xff | u64::from(pass), Ordering::Release);
}

/// The core's side.
pub(crate) struct CoreLane {
    words: Words,
    /// Number of the last pass, modulo 256.
    pass: u8,
    /// Whether the next pass is the core's.
    is_ours: bool,
    /// The port of the core's last pass.
    port: u16,
}

impl CoreLane {
    /// That of the client with this control segment; none if that is too short.
    #[cfg(not(loom))]
    pub(crate) fn new(control: &Arc<Segment>) -> Option<CoreLane> {
        Some(CoreLane::over(Words::new(control, ControlLayout::lane(), LANE_WORDS)?))
    }

    /// That in these words, which are zero.
    pub(crate) fn over(words: Words) -> CoreLane {
        CoreLane { words, pass: 0, is_ours: false, port: VOID }
    }

    /// The entry that the client passed, if it did. Each word is loaded once.
    #[inline(always)]
    pub(crate) fn peek(&self) -> Option<Passed> {
        if self.is_ours {
            return None;
        }
        is_pass(&self.words, self.pass.wrapping_add(1)).map(|head| load(&self.words, head))
    }

    /// How many entries of a port's ring, `most` at most, can be taken one after the other: those that were written, up to the one
    /// that was passed over the lane, and none behind it.
    #[inline(always)]
    pub(crate) fn ready_before(&self, port: u16, entries: &RingReader<Descriptor>, most: usize) -> usize {
        let ready = entries.ready(most);
        // After the entries were seen: what was passed over the lane before one of them was written is seen now.
        match self.peek().filter(|passed| passed.port == port) {
            Some(passed) => ready.min(passed.after.wrapping_sub(entries.position() as u32) as usize),
            None => ready,
        }
    }

    /// Takes what was peeked at: the next pass is the core's.
    #[inline(always)]
    pub(crate) fn accept(&mut self) {
        // The answer goes into the same line, which the client has a copy of: it is got back while the entry is seen to.
        self.words.prefetch(0);
        self.pass = self.pass.wrapping_add(1);
        self.is_ours = true;
    }

    /// Whether it was called to a port.
    #[inline(always)]
    pub(crate) fn is_called(&self) -> bool {
        let called = |call: Call| self.words.word(call as usize).load(Ordering::Relaxed);
        called(Call::Wake) | called(Call::Done) != 0
    }

    /// The ports that it was called to since.
    #[inline(always)]
    pub(crate) fn take_calls(&mut self) -> Option<Calls> {
        if !self.is_called() {
            return None;
        }
        // Acquire: what the client did before it called is seen.
        let take = |call: Call| self.words.word(call as usize).swap(0, Ordering::Acquire);
        Some(Calls { wakes: take(Call::Wake), dones: take(Call::Done) })
    }

    /// Whether the next pass is the core's.
    #[inline(always)]
    pub(crate) fn is_ours(&self) -> bool {
        self.is_ours
    }

    /// Passes an entry, if it is the core's to pass one; else false.
    #[inline(always)]
    pub(crate) fn pass(&mut self, passed: &Passed) -> bool {
        if !std::mem::take(&mut self.is_ours) {
            return false;
        }
        self.pass = self.pass.wrapping_add(1);
        self.port = passed.port;
        store(&self.words, self.pass, passed);
        true
    }

    /// An entry that was passed for a port that is closed is for nobody, if it was not taken; whoever sees it lets it
    /// go. Nor is what the client called for there.
    pub(crate) fn void(&mut self, port: u16) {
        for call in [Call::Wake, Call::Done] {
            self.words.word(call as usize).fetch_and(!bit_of(port), Ordering::Relaxed);
        }
        let place = self.words.word(2);
        let passed = place.load(Ordering::Relaxed);
        if !self.is_ours && (self.port, passed as u16) == (port, port) {
            // Unless it was taken, and another thread of the client writes the next entry right now: that is for another port, since
            // nothing more comes of one that the client asked to close.
            let _voided = place.compare_exchange(passed, VOID.into(), Ordering::Release, Ordering::Relaxed);
        }
    }
}

/// The client's side, for all its threads.
///
/// Without an atomic exchange, which would cost half of what the lane saves: what the core passed is taken by the one
/// thread that it is for (the owner of the port, or of the sync), and only the thread that took the last entry passes the next
/// one. To the others the lane is not there; they have the rings.
pub(crate) struct ClientLane {
    words: Words,
    /// How often the lane was passed, as far as this side took part in it: twice that, and one more if the next pass is the client's.
    /// Number of bits, large enough that no thread can be away until a number comes again.
    state: AtomicU64,
    /// Which thread passes next, if it is the client's turn; 0 before the first pass.
    holder: AtomicU64,
}

/// The entry that was passed to the client, until it is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) passed: Passed,
    /// The state that it was seen in.
    state: u64,
}

/// A number of the calling thread's own, as long as it runs; not 0.
#[cfg(loom)]
fn this_thread() -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    loom::thread::current().id().hash(&mut hasher);
    hasher.finish() | 1
}

/// A number of the calling thread's own, as long as it runs; not 0.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) fn this_thread() -> u64 {
    std::thread_local!(static PLACE: u8 = const { 0 });
    PLACE.with(|place| std::ptr::from_ref(place).addr() as u64)
}

impl ClientLane {
    /// That of this control segment; none if that is too short.
    #[cfg(not(loom))]
    pub(crate) fn new(control: &Arc<Segment>) -> Option<ClientLane> {
        Some(ClientLane::over(Words::new(control, ControlLayout::lane(), LANE_WORDS)?))
    }

    /// That in these words, which are zero.
    pub(crate) fn over(words: Words) -> ClientLane {
        ClientLane { words, state: AtomicU64::new(1), holder: AtomicU64::new(0) }
    }

    /// The entry that the core passed, if it did and nobody has taken it.
    #[inline(always)]
    pub(crate) fn peek(&self) -> Option<Offer> {
        let state = self.state.load(Ordering::Acquire);
        if state & 1 == 1 {
            return None;
        }
        let head = is_pass(&self.words, ((state >> 1) as u8).wrapping_add(1))?;
        let passed = load(&self.words, head);
        // Another thread, for which it was, may have taken it and gone on while this one loaded: then the state is another.
        fence(Ordering::Acquire);
        (self.state.load(Ordering::Relaxed) == state).then_some(Offer { passed, state })
    }

    /// Takes what was offered: for the one thread that it is for.
    #[inline(always)]
    pub(crate) fn accept(&self, offer: &Offer) {
        self.holder.store(this_thread(), Ordering::Relaxed);
        // Release: whoever sees the state sees the holder, and what was passed before has been loaded.
        self.state.store(offer.state + 3, Ordering::Release);
    }

    /// Passes an entry, if it is the calling thread's to pass one; else false.
    #[inline(always)]
    pub(crate) fn pass(&self, passed: &Passed) -> bool {
        let state = self.state.load(Ordering::Acquire);
        if state & 1 == 0 || (self.holder.load(Ordering::Relaxed) != this_thread() && !self.begin(state)) {
            return false;
        }
        self.state.store(state + 1, Ordering::Relaxed);
        failpoint!("lane.pass.before_store");
        store(&self.words, ((state >> 1) as u8).wrapping_add(1), passed);
        failpoint!("lane.pass.after_store");
        true
    }

    /// Between two looks: while the core is to pass the next entry, the line is left to it for a moment. A client that looked without a
    /// pause would take it away between the core's look and its answer.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn pause(&self) {
        if self.state.load(Ordering::Relaxed) & 1 == 0 {
            std::hint::spin_loop();
        }
    }

    /// Calls the core to a port. It is to be rung then, if it sleeps.
    pub(crate) fn call(&self, call: Call, port: u16) {
        self.words.word(call as usize).fetch_or(bit_of(port), Ordering::Release);
    }

    /// Whether the calling thread is the first to use the lane.
    #[cold]
    fn begin(&self, state: u64) -> bool {
        state == 1 && self.holder.compare_exchange(0, this_thread(), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl Offer {
    /// Whether it is for nobody any more: see [`CoreLane::void`].
    pub(crate) fn is_void(&self) -> bool {
        self.passed.port == VOID
    }

    /// The sync that it writes, and the value, if it is of that kind.
    #[inline]
    pub(crate) fn sync(&self) -> Option<(SyncAddress, u64)> {
        let Signal { head, a, b } = self.passed.signal;
        let is_sync = self.passed.port == u16::MAX && head.op == super::down::SYNC;
        Some((SyncAddress::from_word(a).filter(|_| is_sync)?, b))
    }
}
