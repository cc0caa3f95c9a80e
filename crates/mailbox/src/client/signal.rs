//! The signal queues (Nectar paper, 3.2): one ring to the core, one from it, for all that has no port of its own; and the
//! `signal_queue` implementation of mailboxes on top of them.
//!
//! Any thread may ask, under one lock. Whoever waits looks into the queue from the core, and files what is for others by its
//! tag, so nobody depends on a certain thread to run.

use super::claim::{Claim, Interrupter};
use super::error::MailboxError;
use super::held::{Held, HeldMut};
use super::inner::Inner;
use super::wait::Wait;
use crate::failpoint::failpoint;
use crate::segment::Segment;
use crate::shared::{
    ControlLayout, Descriptor, Passed, Reason, RingReader, RingWriter, SIGNAL_ENTRIES, SIGNAL_SLOTS, SIGNALS, Signal,
    TakenCount, down, up,
};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Errors that are kept until they are asked for; also the credits for them that the core is given.
pub(crate) const MAX_ERRORS: usize = 16;
/// Upcalls that the core may have under way.
pub(crate) const MAX_UPCALLS: usize = 16;
/// Entries that answer unsolicited signals, or belong to a caller that is gone, and wait for room in the ring. An
/// honest daemon has credits for this number: an upcall has an answer and a credit for the next one, and all credits
/// are given once at first.
const MAX_OWED: usize = MAX_ERRORS + 3 * MAX_UPCALLS + SIGNAL_SLOTS;
/// How long a call that has run out of time waits for the core to say what became of its request. A core that is awake says
/// it within microseconds; of one that is stopped the answer is left for a later call.
const SETTLE: Duration = Duration::from_millis(50);
/// Tags: the place among the asks, and above it which of its uses.
const TAG_BITS: u32 = 16;

/// An error that answers no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorSignal {
    /// The reason; none if this library does not know it.
    pub reason: Option<Reason>,
    /// The detail, as the reason says.
    pub detail: u64,
}

/// The state of a request.
enum State {
    /// Not in use.
    Free,
    /// The core has not answered yet.
    Waits,
    /// The answer, filed for the caller.
    Answered(Signal),
    /// The caller is gone; the answer is to be given back. The side of the mailbox stays open until then.
    Abandoned(Arc<Claim>),
}

struct Request {
    /// Which use of the place this is.
    turn: u64,
    state: State,
}

/// Both queues, and what is known of requests under way.
pub(crate) struct Signals {
    up: RingWriter<Signal>,
    down: RingReader<Signal>,
    /// How many entries the core has taken, as it says.
    taken: TakenCount,
    /// The same, as last seen.
    taken_seen: u64,
    /// The last of the core's sleeps that was rung in from here.
    rung: u64,
    asks: Vec<Request>,
    free: Vec<u16>,
    /// Slots in this process's hands.
    held: usize,
    pub(crate) upcalls: VecDeque<Signal>,
    /// Upcalls are served: credits for them were given.
    pub(crate) serves: bool,
    errors: VecDeque<ErrorSignal>,
    /// Entries that are sent once there is room: who takes in what has come must not wait for the core to take.
    owed: VecDeque<Signal>,
    /// Claims to be let go once the lock is released: their drop calls the application.
    settled: Vec<Arc<Claim>>,
}

impl Signals {
    /// The queues of an attachment's control segment; none if that is too short.
    pub(crate) fn new(control: &Arc<Segment>) -> Option<Signals> {
        Some(Signals {
            up: RingWriter::new(control, ControlLayout::signal_up(), SIGNAL_ENTRIES)?,
            down: RingReader::new(control, ControlLayout::signal_down(), SIGNAL_ENTRIES)?,
            taken: TakenCount::new(control)?,
            taken_seen: 0,
            rung: 0,
            asks: (0..SIGNAL_SLOTS).map(|_| Request { turn: 0, state: State::Free }).collect(),
            free: (0..SIGNAL_SLOTS as u16).rev().collect(),
            held: 0,
            upcalls: VecDeque::new(),
            serves: false,
            errors: VecDeque::new(),
            owed: VecDeque::new(),
            settled: Vec::new(),
        })
    }

    /// Sends one entry, once there is room for it.
    #[inline]
    pub(crate) fn push(&mut self, inner: &Inner, entry: Signal) -> Result<(), MailboxError> {
        if !self.has_room() {
            self.make_room(inner)?;
        }
        if inner.watch.is_gone() {
            return Err(inner.watch.gone());
        }
        self.up.push(entry);
        inner.signalled.store(self.up.position(), Ordering::Release);
        inner.bell.ring_if_asleep(&mut self.rung);
        if self.owed.is_empty() { Ok(()) } else { self.push_owed(inner) }
    }

    /// Sends one entry now if there is room, else later.
    pub(crate) fn push_or_owe(&mut self, inner: &Inner, entry: Signal) -> Result<(), MailboxError> {
        if self.owed.len() >= MAX_OWED {
            return Err(inner.broken("it sent more signals than it was given credits for"));
        }
        self.owed.push_back(entry);
        self.push_owed(inner)
    }

    /// Sends what is owed, as far as there is room.
    fn push_owed(&mut self, inner: &Inner) -> Result<(), MailboxError> {
        while let Some(&entry) = self.owed.front() {
            if !self.has_room() {
                self.see_taken(inner)?;
            }
            if !self.has_room() {
                return Ok(());
            }
            if inner.watch.is_gone() {
                return Err(inner.watch.gone());
            }
            self.owed.pop_front();
            self.up.push(entry);
            inner.signalled.store(self.up.position(), Ordering::Release);
            inner.bell.ring_if_asleep(&mut self.rung);
        }
        Ok(())
    }

    /// Whether the next entry overwrites none that the core has not taken.
    #[inline]
    fn has_room(&self) -> bool {
        self.up.position() - self.taken_seen < SIGNAL_ENTRIES as u64
    }

    /// Looks how many entries the core has taken. The count never goes back, and never beyond what was sent.
    fn see_taken(&mut self, inner: &Inner) -> Result<(), MailboxError> {
        let taken = self.taken.load();
        if taken > self.up.position() {
            return Err(inner.broken("it took signals that were never sent"));
        }
        self.taken_seen = self.taken_seen.max(taken);
        Ok(())
    }

    /// Waits until the core has taken something. It takes all there is in each of its turns, and is awake, since it was rung.
    #[cold]
    fn make_room(&mut self, inner: &Inner) -> Result<(), MailboxError> {
        let mut looks = 0u32;
        loop {
            self.see_taken(inner)?;
            if self.has_room() {
                return Ok(());
            }
            if inner.watch.is_gone() {
                return Err(inner.watch.gone());
            }
            looks += 1;
            match looks {
                0..100 => std::hint::spin_loop(),
                100..200 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(100)),
            }
        }
    }

    /// Gives a slot of the signal queue back, or on.
    fn push_slot(&mut self, inner: &Inner, head: Descriptor) -> Result<(), MailboxError> {
        debug_assert!(self.held > 0, "a slot is counted from when it is handed out until it is given back");
        self.held = self.held.saturating_sub(1);
        self.push(inner, Signal { head, a: 0, b: 0 })?;
        self.say_room(inner);
        Ok(())
    }

    /// Slots that this process holds, or has asked for.
    fn in_use(&self) -> usize {
        self.asks.len() - self.free.len() + self.held
    }

    /// Wakes those that wait to be allowed to ask, if one more is allowed now.
    fn say_room(&self, inner: &Inner) {
        if self.in_use() + 1 == SIGNAL_SLOTS {
            inner.arrivals.signal_if_asleep();
        }
    }

    /// Takes all that has come, once around the ring at most. `own` is the tag of who looks, who need not be woken for it.
    pub(crate) fn drain(&mut self, inner: &Inner, own: Option<u64>) -> Result<(), MailboxError> {
        let (mut for_others, mut upcalls) = (false, false);
        self.push_owed(inner)?;
        for _ in 0..SIGNAL_ENTRIES {
            let Some(entry) = self.down.pop() else { break };
            match entry.head.op {
                down::GRANT | down::MESSAGE | down::REFUSED => {
                    self.file(inner, entry)?;
                    for_others |= own != Some(entry.a);
                }
                down::UPCALL if self.serves && self.upcalls.len() < MAX_UPCALLS => {
                    self.upcalls.push_back(entry);
                    upcalls = true;
                }
                down::UPCALL => {
                    // Nobody serves it; its caller must not wait indefinitely.
                    let head = Descriptor { op: up::SYNC_WRITE, ..Descriptor::default() };
                    self.push_or_owe(inner, Signal { head, a: entry.b, b: u64::MAX })?;
                }
                down::ERROR => {
                    if self.errors.len() == MAX_ERRORS {
                        self.errors.pop_front();
                    }
                    let reason = Reason::from_code(entry.head.target);
                    self.errors.push_back(ErrorSignal { reason, detail: entry.a });
                    self.push_or_owe(inner, listen(up::LISTEN_ERRORS))?;
                }
                _ => return Err(inner.broken(&format!("the signal queue had {entry:?}"))),
            }
        }
        if for_others {
            inner.arrivals.signal_if_asleep();
        }
        if upcalls {
            inner.upcalled.signal_if_asleep();
        }
        Ok(())
    }

    /// Files an answer by its tag.
    fn file(&mut self, inner: &Inner, entry: Signal) -> Result<(), MailboxError> {
        let unknown = || Err(inner.broken(&format!("the signal queue answered what was not asked: {entry:?}")));
        let Some(ask) = self.asks.get_mut(place(entry.a)).filter(|ask| tag(ask.turn, place(entry.a)) == entry.a) else {
            return unknown();
        };
        match std::mem::replace(&mut ask.state, State::Free) {
            State::Waits => {
                ask.state = State::Answered(entry);
                if entry.head.op != down::REFUSED {
                    self.held += 1;
                }
                Ok(())
            }
            State::Abandoned(claim) => {
                self.free.push(place(entry.a) as u16);
                let head = match (entry.head.op, claim.number()) {
                    (down::GRANT, _) => Some(Descriptor { op: up::SIGNAL_FREE, target: 0, ..entry.head }),
                    // Nobody has read it: back it goes.
                    (down::MESSAGE, Some(to)) => Some(Descriptor { op: up::SIGNAL_ENQUEUE, target: to, ..entry.head }),
                    _ => None,
                };
                let sent = head.map_or(Ok(()), |head| self.push_or_owe(inner, Signal { head, a: 0, b: 0 }));
                self.settled.push(claim);
                sent
            }
            State::Free | State::Answered(_) => unknown(),
        }
    }

    /// Sends a request that will be answered. Returns its tag.
    fn ask(&mut self, inner: &Inner, head: Descriptor, is_try: bool) -> Result<u64, MailboxError> {
        let too_many = MailboxError::TooManyHeld { most: SIGNAL_SLOTS };
        if self.in_use() >= SIGNAL_SLOTS {
            return Err(too_many);
        }
        let free = self.free.pop();
        debug_assert!(free.is_some(), "there is a place for each slot, and some slot is not in use");
        let at = free.ok_or(too_many)?;
        let ask = &mut self.asks[usize::from(at)];
        ask.turn += 1;
        ask.state = State::Waits;
        let tag = tag(ask.turn, at.into());
        self.push(inner, Signal { head, a: tag, b: is_try.into() })?;
        Ok(tag)
    }

    /// The request of a tag that [`Signals::ask`] returned.
    fn own(&mut self, tag: u64) -> &mut Request {
        &mut self.asks[place(tag)]
    }

    /// The answer to a request, if it has come.
    fn answer(&mut self, inner: &Inner, tag: u64) -> Result<Option<Signal>, MailboxError> {
        self.drain(inner, Some(tag))?;
        let ask = self.own(tag);
        match std::mem::replace(&mut ask.state, State::Free) {
            State::Answered(entry) => {
                self.free.push(place(tag) as u16);
                self.say_room(inner);
                Ok(Some(entry))
            }
            state => {
                ask.state = state;
                Ok(None)
            }
        }
    }

    /// Leaves a request to be settled when its answer comes.
    fn abandon(&mut self, inner: &Inner, tag: u64, claim: Arc<Claim>) -> Result<(), MailboxError> {
        let ask = self.own(tag);
        if let State::Answered(entry) = std::mem::replace(&mut ask.state, State::Abandoned(claim)) {
            // It is there already.
            self.held -= usize::from(entry.head.op != down::REFUSED);
            return self.file(inner, entry);
        }
        Ok(())
    }

    /// The errors that have come since they were last asked for, the oldest first.
    fn take_errors(&mut self) -> Vec<ErrorSignal> {
        self.errors.drain(..).collect()
    }
}

fn tag(turn: u64, at: usize) -> u64 {
    turn << TAG_BITS | at as u64
}

fn place(tag: u64) -> usize {
    (tag & ((1 << TAG_BITS) - 1)) as usize
}

/// A credit for one unasked signal, of the kinds that `kinds` says.
pub(crate) fn listen(kinds: u64) -> Signal {
    Signal { head: Descriptor { op: up::LISTEN, ..Descriptor::default() }, a: 0, b: kinds }
}

impl Inner {
    /// Does `work` on the signal queues.
    #[inline]
    pub(crate) fn with_signals<R>(&self, work: impl FnOnce(&mut Signals) -> R) -> R {
        let mut signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
        let done = work(&mut signals);
        let settled = std::mem::take(&mut signals.settled);
        drop(signals);
        drop(settled);
        done
    }

    /// Sends a signal that is not answered.
    #[inline]
    pub(crate) fn send(&self, entry: Signal) -> Result<(), MailboxError> {
        self.with_signals(|signals| signals.push(self, entry))
    }

    /// Sends a signal that somebody waits for: over the lane, if that is this thread's to use now.
    #[inline]
    pub(crate) fn pass(&self, entry: Signal) -> Result<(), MailboxError> {
        // Others may send meanwhile: then it comes behind at least those signals that this thread knows of.
        let after = self.signalled.load(Ordering::Acquire) as u32;
        if self.watch.is_gone() || !self.lane.pass(&Passed { signal: entry, port: SIGNALS, after }) {
            return self.send(entry);
        }
        self.bell.ring_if_asleep(&mut 0);
        Ok(())
    }

    /// Gives a slot back from wherever it was dropped. If the daemon is gone, so is the slot.
    pub(crate) fn give_back(&self, port: u16, head: Descriptor) {
        failpoint!("held.drop.before_push");
        let _sent = self.with_signals(|signals| match port {
            SIGNALS => signals.push_slot(self, Descriptor { op: up::SIGNAL_FREE, ..head }),
            _ => {
                let head = Descriptor { op: up::FREE_OF_PORT, target: port, ..head };
                signals.push(self, Signal { head, a: 0, b: 0 })
            }
        });
        failpoint!("held.drop.after_push");
    }

    /// Takes what has come over the signal queue: the errors in it.
    pub(crate) fn errors(&self) -> Vec<ErrorSignal> {
        self.with_signals(|signals| {
            // A fault of the queue itself is said by the next call that waits.
            let _drained = signals.drain(self, None);
            signals.take_errors()
        })
    }
}

/// One side of a `signal_queue` mailbox.
pub(crate) struct SignalSide {
    claim: Arc<Claim>,
    /// The client's number for it.
    pub(crate) number: u16,
    /// A request that ran out of time before the core said what became of it.
    unsettled: Option<u64>,
}

impl SignalSide {
    pub(crate) fn new(inner: &Arc<Inner>, number: u16) -> SignalSide {
        SignalSide { claim: Claim::new(inner, Some(number), None), number, unsettled: None }
    }

    pub(crate) fn interrupter(&self) -> Interrupter {
        Interrupter::new(&self.claim)
    }

    fn inner(&self) -> &Inner {
        &self.claim.inner
    }

    /// Asks for a buffer of `len` bytes, or a message. Returns the tag.
    fn ask(&self, op: u8, len: u32, is_try: bool) -> Result<u64, MailboxError> {
        let head = Descriptor { op, target: self.number, len, ..Descriptor::default() };
        failpoint!("signal.ask.before_push");
        let asked = self.inner().with_signals(|signals| signals.ask(self.inner(), head, is_try));
        failpoint!("signal.ask.after_push");
        asked
    }

    /// Asks, once this process holds so little that it may.
    fn wait_to_ask(&self, op: u8, len: u32, wait: Wait) -> Result<u64, MailboxError> {
        let inner = self.inner();
        let too_many = MailboxError::TooManyHeld { most: SIGNAL_SLOTS };
        let interrupt = &self.claim.interrupt;
        let asked = inner.watch.wait_for(&inner.arrivals, wait, Some(interrupt), || match self.ask(op, len, false) {
            Err(error) if error == too_many => Ok(None),
            asked => asked.map(Some),
        });
        asked.map_err(|error| match interrupt.name(error) {
            MailboxError::TimedOut => too_many.clone(),
            error => error,
        })
    }

    /// Waits for an answer. One that comes after the time is over, but before the core has heard that nobody waits for it
    /// any more, counts.
    fn wait(&mut self, tag: u64, wait: Wait, is_given_up: bool) -> Result<Signal, MailboxError> {
        let claim = self.claim.clone();
        let inner = &claim.inner;
        let look = || inner.with_signals(|signals| signals.answer(inner, tag));
        match inner.watch.wait_for(&inner.arrivals, wait, Some(&claim.interrupt), look) {
            Err(MailboxError::TimedOut) => {}
            outcome => return outcome,
        }
        if !is_given_up {
            failpoint!("signal.cancel.before_push");
            let head = Descriptor { op: up::CANCEL, ..Descriptor::default() };
            inner.send(Signal { head, a: tag, b: 0 })?;
            failpoint!("signal.cancel.after_push");
        }
        let settled = inner.watch.wait_for(&inner.arrivals, Wait::at_most(SETTLE), None, look);
        failpoint!("signal.cancel.settled");
        if settled == Err(MailboxError::TimedOut) {
            self.unsettled = Some(tag);
        }
        settled
    }

    /// Asks and waits; goes on with a request that an earlier call left open.
    fn request(&mut self, op: u8, len: u32, wait: Wait) -> Result<Signal, MailboxError> {
        loop {
            let left = self.unsettled.take();
            let tag = match left {
                Some(tag) => tag,
                None => self.wait_to_ask(op, len, wait)?,
            };
            let answer = self.wait(tag, wait, left.is_some())?;
            if left.is_some() && !self.serves(&answer, len) {
                continue;
            }
            return Ok(answer);
        }
    }

    /// Asks for what is to be had now, and waits for the core to say whether it is.
    fn try_request(&mut self, op: u8, len: u32) -> Result<Option<Signal>, MailboxError> {
        if let Some(tag) = self.unsettled.take() {
            match self.inner().with_signals(|signals| signals.answer(self.inner(), tag))? {
                Some(answer) if self.serves(&answer, len) => return Ok(Some(answer)),
                Some(_) => {}
                None => {
                    self.unsettled = Some(tag);
                    return Ok(None);
                }
            }
        }
        let tag = self.ask(op, len, true)?;
        self.wait(tag, Wait::Block, false).map(Some)
    }

    /// Whether the answer to an earlier call's request serves this one; if not it is done with.
    fn serves(&self, answer: &Signal, len: u32) -> bool {
        match answer.head.op {
            down::MESSAGE => true,
            down::GRANT if answer.head.len >= len => true,
            down::GRANT => {
                self.inner().give_back(SIGNALS, answer.head);
                false
            }
            // A buffer that was refused to the earlier call may be had by this one, unless the mailbox is gone.
            _ => matches!(Reason::from_code(answer.head.target), Some(Reason::Closed | Reason::Shutdown)),
        }
    }

    pub(crate) fn begin_put(&mut self, bytes: usize, wait: Wait) -> Result<HeldMut, MailboxError> {
        let len = length(bytes)?;
        let answer = self.request(up::ALLOC, len, wait);
        failpoint!("signal.alloc.answered");
        answer.and_then(|answer| self.granted(&answer, bytes)).map_err(|error| self.claim.interrupt.name(error))
    }

    pub(crate) fn try_begin_put(&mut self, bytes: usize) -> Result<Option<HeldMut>, MailboxError> {
        let Some(answer) = self.try_request(up::ALLOC, length(bytes)?)? else { return Ok(None) };
        match self.granted(&answer, bytes) {
            Err(MailboxError::Full) => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    fn granted(&self, answer: &Signal, bytes: usize) -> Result<HeldMut, MailboxError> {
        let head = &answer.head;
        match head.op {
            down::GRANT if head.len as usize >= bytes => {
                let inner = self.inner();
                let granted = inner.with_signals(|_| inner.records.granted(&inner.memory, *head));
                let granted = granted.ok_or_else(|| self.broken(answer))?;
                Ok(granted.hold(bytes as u32, self.claim.clone()))
            }
            down::REFUSED => Err(MailboxError::refused(Reason::from_code(head.target), bytes, head.len)),
            _ => Err(self.broken(answer)),
        }
    }

    pub(crate) fn begin_get(&mut self, wait: Wait) -> Result<Held, MailboxError> {
        let answer = self.request(up::GET, 0, wait);
        failpoint!("signal.get.answered");
        answer.and_then(|answer| self.delivered(&answer)).map_err(|error| self.claim.interrupt.name(error))
    }

    pub(crate) fn try_begin_get(&mut self) -> Result<Option<Held>, MailboxError> {
        let Some(answer) = self.try_request(up::GET, 0)? else { return Ok(None) };
        match self.delivered(&answer) {
            Err(MailboxError::Refused { reason: Reason::Empty }) => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    fn delivered(&self, answer: &Signal) -> Result<Held, MailboxError> {
        let head = &answer.head;
        match head.op {
            down::MESSAGE => {
                let inner = self.inner();
                let delivered = inner.with_signals(|_| inner.records.delivered(&inner.memory, *head));
                let held = delivered.map(|delivered| delivered.claimed(self.claim.clone()));
                held.ok_or_else(|| self.broken(answer))
            }
            down::REFUSED => Err(MailboxError::refused(Reason::from_code(head.target), 0, 0)),
            _ => Err(self.broken(answer)),
        }
    }

    pub(crate) fn end_put(&mut self, held: HeldMut) -> Result<(), MailboxError> {
        if !held.is_of(&self.claim) {
            return Err(MailboxError::Foreign);
        }
        failpoint!("signal.put.before_push");
        let (head, _claim) = held.into_entry(up::SIGNAL_PUT, self.number);
        let sent = self.inner().with_signals(|signals| signals.push_slot(self.inner(), head));
        failpoint!("signal.put.after_push");
        sent
    }

    pub(crate) fn enqueue_put(&mut self, held: HeldMut, to: u16) -> Result<(), MailboxError> {
        if !held.is_of(&self.claim) {
            return Err(MailboxError::Foreign);
        }
        failpoint!("signal.enqueue_put.before_push");
        let (head, _claim) = held.into_entry(up::SIGNAL_ENQUEUE, to);
        let sent = self.inner().with_signals(|signals| signals.push_slot(self.inner(), head));
        failpoint!("signal.enqueue_put.after_push");
        sent
    }

    pub(crate) fn enqueue(&mut self, held: Held, to: u16) -> Result<(), MailboxError> {
        if !held.is_of(&self.claim) {
            return Err(MailboxError::Foreign);
        }
        failpoint!("signal.enqueue.before_push");
        let (head, _claim) = held.into_entry(up::SIGNAL_ENQUEUE, to);
        let sent = self.inner().with_signals(|signals| signals.push_slot(self.inner(), head));
        failpoint!("signal.enqueue.after_push");
        sent
    }

    pub(crate) fn end_get(&mut self, held: Held) {
        failpoint!("signal.free.before_push");
        drop(held);
        failpoint!("signal.free.after_push");
    }

    #[cold]
    fn broken(&self, answer: &Signal) -> MailboxError {
        self.inner().broken(&format!("mailbox {} was answered {answer:?}", self.number))
    }
}

impl Drop for SignalSide {
    fn drop(&mut self) {
        if let Some(tag) = self.unsettled.take() {
            let (inner, claim) = (&self.claim.inner, self.claim.clone());
            // The answer may be there.
            let _left = inner.with_signals(|signals| {
                signals.abandon(inner, tag, claim)?;
                signals.drain(inner, None)
            });
        }
    }
}

fn length(bytes: usize) -> Result<u32, MailboxError> {
    u32::try_from(bytes).map_err(|_| MailboxError::refused(Some(Reason::TooLong), bytes, 0))
}
