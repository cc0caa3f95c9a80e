//! Every interleaving of what the two sides do with the words that they share, by loom: nothing is lost, nothing is
//! seen twice or too early, and nobody sleeps on.

use super::sync::WriteOutcome;
use super::words::{Atomic, Words};
use super::{
    ArmedFlag, Call, Calls, ClientLane, CoreBell, CoreLane, Descriptor, DoorbellPage, HostCondition, Passed,
    RingReader, RingWriter, Signal, SleepFlag, SyncCell, TakenCount,
};
use crate::sync::{Arc, AtomicU32, AtomicU64, Ordering, UnsafeCell, fence};
use loom::sync::{Condvar, Mutex};
use loom::thread;

/// Runs `model` twice: in the interleavings that loom finds worth trying, with up to `preemptions` switches that nobody
/// waited for (none: as many as there are), and in every order of every use of a word, with up to `strict_preemptions`.
fn check(
    preemptions: Option<usize>,
    strict_preemptions: Option<usize>,
    model: impl Fn(Order) + Copy + Sync + Send + 'static,
) {
    for (order, bound) in [(Order::Loom, preemptions), (Order::Every, strict_preemptions)] {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = bound;
        builder.check(move || model(order));
    }
}

/// Which orders are tried; see [`Words::in_every_order`].
#[derive(Clone, Copy)]
enum Order {
    Loom,
    Every,
}

impl Order {
    fn words<A: Atomic>(self, count: usize) -> Words<A> {
        match self {
            Order::Loom => Words::zeroed(count),
            Order::Every => Words::in_every_order(count),
        }
    }
}

/// Both sides of a ring over fresh words.
fn ring(order: Order, entries: usize) -> (RingWriter<Descriptor>, RingReader<Descriptor>) {
    let words = order.words(entries * 2);
    (RingWriter::over(words.clone()).unwrap(), RingReader::over(words).unwrap())
}

fn next(reader: &mut RingReader<Descriptor>) -> Descriptor {
    loop {
        if let Some(entry) = reader.pop() {
            return entry;
        }
        thread::yield_now();
    }
}

/// A buffer that belongs to one side at a time, which loom checks.
struct Buffer(UnsafeCell<u32>);

// SAFETY: who pops the entry that names a buffer owns it; loom finds it if that is not so.
#[allow(unsafe_code)]
unsafe impl Sync for Buffer {}

impl Buffer {
    #[allow(unsafe_code)]
    fn set(&self, value: u32) {
        // SAFETY: as for `Sync`.
        self.0.with_mut(|place| unsafe { *place = value });
    }

    #[allow(unsafe_code)]
    fn get(&self) -> u32 {
        // SAFETY: as for `Sync`.
        self.0.with(|place| unsafe { *place })
    }
}

/// Messages through `slots` buffers and rings of twice as many entries, there and back, often enough to overwrite
/// entries.
fn pass_messages(order: Order, slots: u16, messages: u32) {
    let (mut up, mut up_end) = ring(order, 2 * usize::from(slots));
    let (mut down, mut down_end) = ring(order, 2 * usize::from(slots));
    let buffers: Arc<Vec<Buffer>> = Arc::new((0..slots).map(|_| Buffer(UnsafeCell::new(0))).collect());
    let theirs = buffers.clone();
    let client = thread::spawn(move || {
        for number in 0..messages {
            let slot = match u16::try_from(number) {
                Ok(first) if first < slots => first,
                _ => next(&mut down_end).slot,
            };
            theirs[usize::from(slot)].set(number);
            up.push(Descriptor { slot, offset: number, len: number + 7, ..Descriptor::default() });
        }
        assert_eq!(up.position(), u64::from(messages));
    });
    for number in 0..messages {
        let entry = next(&mut up_end);
        assert_eq!((entry.offset, entry.len), (number, number + 7), "in order, whole");
        assert_eq!(buffers[usize::from(entry.slot)].get(), number);
        down.push(Descriptor { slot: entry.slot, ..Descriptor::default() });
    }
    assert!(!up_end.is_ready());
    client.join().unwrap();
    assert!(up_end.pop().is_none());
}

#[test]
fn a_ring_of_one_slot_hands_over_message_and_buffer() {
    check(None, Some(4), |order| pass_messages(order, 1, 3));
}

#[test]
fn a_ring_of_two_slots_hands_over_message_and_buffer() {
    check(Some(3), Some(3), |order| pass_messages(order, 2, 5));
}

#[test]
fn a_write_and_a_cancel_free_the_sync_once() {
    check(None, None, |order| {
        let words = order.words(2);
        let (ours, theirs) = (SyncCell::over(words.clone()), SyncCell::over(words));
        assert!(ours.alloc(1));
        let writer = thread::spawn(move || theirs.write(1, 77));
        let freed_by_cancel = ours.cancel(1);
        // A cell that is free already may live again before the writer is done with the first life.
        let again = freed_by_cancel && ours.alloc(2);
        assert_eq!(again, freed_by_cancel);
        let outcome = writer.join().unwrap();
        assert_eq!(outcome, if freed_by_cancel { WriteOutcome::Written } else { WriteOutcome::Cancelled });
        assert_eq!(ours.poll(1), None);
        assert_eq!(ours.is_free(), !again);
        assert!(again || ours.alloc(2));
    });
}

#[test]
fn a_value_is_seen_whole_or_not_yet() {
    check(None, None, |order| {
        let words = order.words(2);
        let (ours, theirs) = (SyncCell::over(words.clone()), SyncCell::over(words));
        assert!(ours.alloc(1));
        let writer = thread::spawn(move || theirs.write(1, 10));
        assert!(ours.poll(1).is_none_or(|value| value == 10));
        assert_eq!(writer.join().unwrap(), WriteOutcome::Written);
    });
}

#[test]
fn a_sync_gives_each_life_its_own_value() {
    check(None, Some(4), |order| {
        let words = order.words(2);
        let (ours, theirs) = (SyncCell::over(words.clone()), SyncCell::over(words));
        assert!(ours.alloc(1));
        let writer = thread::spawn(move || {
            assert_eq!(theirs.write(1, 10), WriteOutcome::Written);
            assert_eq!(theirs.write(1, 11), WriteOutcome::Stale, "a second write of one life");
            while theirs.write(2, 20) == WriteOutcome::Stale {
                thread::yield_now();
            }
        });
        for generation in [1, 2] {
            let value = loop {
                match ours.poll(generation) {
                    Some(value) => break value,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(value, u64::from(generation) * 10);
            assert!(ours.is_free() && ours.poll(generation).is_none());
            assert!(generation == 2 || ours.alloc(2));
        }
        writer.join().unwrap();
    });
}

/// The published word: with no order of its own, so that only the protocol brings it across.
#[derive(Clone)]
struct Published(Arc<AtomicU64>);

impl Published {
    fn new() -> Published {
        Published(Arc::new(AtomicU64::new(0)))
    }

    fn publish(&self) {
        self.0.store(1, Ordering::Relaxed);
    }

    fn is_there(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 1
    }
}

#[test]
fn a_sleeper_misses_nothing_that_was_published() {
    check(None, None, |order| {
        let words: Words<AtomicU32> = order.words(2);
        let (ours, theirs) = (HostCondition::over(words.clone()), HostCondition::over(words));
        let published = Published::new();
        let publisher = {
            let published = published.clone();
            thread::spawn(move || {
                published.publish();
                theirs.signal_if_asleep();
            })
        };
        // Ends, or loom finds that everyone sleeps.
        while !published.is_there() {
            let seen = ours.value();
            ours.wait_unless(seen, None, || published.is_there());
        }
        publisher.join().unwrap();
        assert!(!ours.has_sleepers());
    });
}

#[test]
fn every_sleeper_is_woken_by_a_signal() {
    check(Some(3), Some(2), |order| {
        let words: Words<AtomicU32> = order.words(2);
        let sleepers: Vec<_> = (0..2)
            .map(|_| {
                let condition = HostCondition::over(words.clone());
                thread::spawn(move || {
                    while condition.value() == 0 {
                        condition.wait_unless(0, None, || condition.value() != 0);
                    }
                })
            })
            .collect();
        HostCondition::over(words).signal();
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
    });
}

/// An edge of the doorbell, or a byte in the wake pipe, for the waiter.
#[derive(Clone)]
struct Doorbell(Arc<(Mutex<bool>, Condvar)>);

impl Doorbell {
    fn new() -> Doorbell {
        Doorbell(Arc::new((Mutex::new(false), Condvar::new())))
    }

    fn ring(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_one();
    }

    fn await_ring(&self) {
        let mut rung = self.0.0.lock().unwrap();
        while !*rung {
            rung = self.0.1.wait(rung).unwrap();
        }
        *rung = false;
    }
}

/// The core's way to sleep, until all of `work` was published.
fn core_sleeps_until(work: &[Published], page: &DoorbellPage, doorbell: &Doorbell) {
    let mut seen = vec![false; work.len()];
    let look = |seen: &mut Vec<bool>| {
        let before = seen.clone();
        for (seen, work) in seen.iter_mut().zip(work) {
            *seen |= work.is_there();
        }
        *seen != before
    };
    while seen.contains(&false) {
        page.before_sleep();
        if !look(&mut seen) {
            doorbell.await_ring();
        }
        page.after_sleep();
        look(&mut seen);
    }
}

#[test]
fn the_core_hears_of_each_thing_published_by_two_clients() {
    check(Some(3), Some(3), |order| {
        let (words, doorbell) = (order.words(1), Doorbell::new());
        let work = [Published::new(), Published::new()];
        let clients: Vec<_> = (0..2)
            .map(|at| {
                let (bell, doorbell, work) = (CoreBell::over(words.clone()), doorbell.clone(), work[at].clone());
                thread::spawn(move || {
                    work.publish();
                    if bell.must_ring(&mut 0) {
                        doorbell.ring();
                    }
                })
            })
            .collect();
        core_sleeps_until(&work, &DoorbellPage::over(words), &doorbell);
        for client in clients {
            client.join().unwrap();
        }
    });
}

#[test]
fn the_core_hears_of_what_follows_a_ring() {
    check(None, Some(3), |order| {
        let (words, doorbell) = (order.words(1), Doorbell::new());
        let work = [Published::new(), Published::new()];
        let client = {
            let (bell, doorbell, work) = (CoreBell::over(words.clone()), doorbell.clone(), work.clone());
            thread::spawn(move || {
                let mut rung = 0;
                for work in work {
                    work.publish();
                    if bell.must_ring(&mut rung) {
                        doorbell.ring();
                    }
                }
            })
        };
        core_sleeps_until(&work, &DoorbellPage::over(words), &doorbell);
        client.join().unwrap();
    });
}

#[test]
fn an_armed_client_finds_a_byte() {
    check(Some(4), Some(4), |order| {
        let (words, pipe) = (order.words(1), Doorbell::new());
        let work = [Published::new(), Published::new()];
        let core = {
            let (flag, pipe, work) = (ArmedFlag::over(words.clone()), pipe.clone(), work.clone());
            thread::spawn(move || {
                for work in work {
                    work.publish();
                    fence(Ordering::SeqCst);
                    if flag.take() {
                        pipe.ring();
                    }
                }
            })
        };
        let flag = ArmedFlag::over(words);
        for work in work {
            while !work.is_there() {
                flag.arm();
                if work.is_there() {
                    break;
                }
                pipe.await_ring();
            }
        }
        core.join().unwrap();
    });
}

/// An entry of a port whose every part says which it is.
fn passed(port: u16, number: u64) -> Passed {
    let head = Descriptor { offset: number as u32, slot: port, ..Descriptor::default() };
    Passed { signal: Signal { head, a: number << 8 | u64::from(port), b: !number }, port, after: number as u32 }
}

/// A client's thread that owns a port: takes what is passed to it, whole, and passes `count` entries.
fn use_lane(lane: &ClientLane, port: u16, count: u64) -> u64 {
    let (mut sent, mut taken) = (0, 0);
    for _ in 0..3 {
        if let Some(offer) = lane.peek()
            && offer.passed.port == port
        {
            assert_eq!(offer.passed, passed(port, offer.passed.after.into()));
            lane.accept(&offer);
            taken += 1;
        }
        if sent < count && lane.pass(&passed(port, sent)) {
            sent += 1;
        }
        thread::yield_now();
    }
    sent << 32 | taken
}

#[test]
fn a_lane_entry_is_taken_whole_and_by_its_port() {
    check(Some(2), Some(1), |order| {
        let words: Words = order.words(8);
        let client = Arc::new(ClientLane::over(words.clone()));
        let mut core = CoreLane::over(words);
        let threads: Vec<_> = [1, 2]
            .map(|port| {
                let client = client.clone();
                thread::spawn(move || use_lane(&client, port, 2))
            })
            .into();
        let (mut got, mut given) = (0, 0);
        for turn in 0..3 {
            if let Some(entry) = core.peek() {
                assert_eq!(entry, passed(entry.port, entry.after.into()));
                core.accept();
                got += 1;
            }
            if core.is_ours() {
                // To the other thread, and to the same one again.
                assert!(core.pass(&passed(1 + turn % 2, u64::from(turn))));
                given += 1;
            }
            thread::yield_now();
        }
        let ends = threads.into_iter().map(|thread| thread.join().unwrap()).fold(0, |a, b| a + b);
        let (sent, taken) = (ends >> 32, ends & 0xffff_ffff);
        got += u64::from(core.peek().is_some());
        assert_eq!(sent, got, "every entry comes, once");
        assert!(taken <= given && given - taken <= 1, "and back");
    });
}

#[test]
fn the_lane_and_a_ring_are_one_queue() {
    check(Some(3), Some(2), |order| {
        let words: Words = order.words(8);
        let (client, mut core) = (ClientLane::over(words.clone()), CoreLane::over(words));
        let (mut up, mut up_end) = ring(order, 4);
        let writer = thread::spawn(move || {
            let entry = |offset| Descriptor { offset, ..Descriptor::default() };
            up.push(entry(0));
            let signal = Signal { head: entry(1), ..Signal::default() };
            assert!(client.pass(&Passed { signal, port: 7, after: up.position() as u32 }));
            up.push(entry(2));
        });
        for number in 0..3 {
            let entry = loop {
                // As the core does: the ring first, then the lane.
                let is_ready = up_end.is_ready();
                match core.peek() {
                    Some(passed) if passed.after == up_end.position() as u32 => {
                        core.accept();
                        break passed.signal.head;
                    }
                    Some(_) => break up_end.pop().unwrap(),
                    None if is_ready => break up_end.pop().unwrap(),
                    None => thread::yield_now(),
                }
            };
            assert_eq!(entry.offset, number);
        }
        writer.join().unwrap();
    });
}

/// The entries of a port that the core takes as a task's: one as it comes, and those behind it as one burst.
fn take_with_burst(core: &mut CoreLane, up: &mut RingReader<Descriptor>, mut take: impl FnMut(Descriptor)) {
    // As the core does: the ring first, then the lane.
    let is_ready = up.is_ready();
    match core.peek() {
        Some(passed) if passed.after == up.position() as u32 => {
            core.accept();
            return take(passed.signal.head);
        }
        None if !is_ready => return thread::yield_now(),
        Some(_) | None => take(up.pop().unwrap()),
    }
    for _ in 0..core.ready_before(7, up, 3) {
        take(up.pop().unwrap());
    }
}

/// A burst ends at what was passed over the lane, for puts that come meanwhile too; each entry comes with its buffer.
#[test]
fn a_burst_keeps_to_the_order_of_the_ring_and_the_lane() {
    const MESSAGES: u32 = 4;
    check(Some(3), Some(2), |order| {
        let words: Words = order.words(8);
        let (client, mut core) = (ClientLane::over(words.clone()), CoreLane::over(words));
        let (mut up, mut up_end) = ring(order, 4);
        let buffers: Arc<Vec<Buffer>> = Arc::new((0..MESSAGES).map(|_| Buffer(UnsafeCell::new(0))).collect());
        let theirs = buffers.clone();
        let writer = thread::spawn(move || {
            for number in 0..MESSAGES {
                theirs[number as usize].set(number + 7);
                let head = Descriptor { offset: number, ..Descriptor::default() };
                let signal = Signal { head, ..Signal::default() };
                let over_lane = Passed { signal, port: 7, after: up.position() as u32 };
                if number != 2 || !client.pass(&over_lane) {
                    up.push(head);
                }
            }
        });
        let mut came = Vec::new();
        while came.len() < MESSAGES as usize {
            take_with_burst(&mut core, &mut up_end, |entry| {
                assert_eq!(buffers[entry.offset as usize].get(), entry.offset + 7);
                came.push(entry.offset);
            });
        }
        assert_eq!(came, [0, 1, 2, 3]);
        writer.join().unwrap();
    });
}

/// The slots of a burst are given back together, while the client puts the next one over the lane and in the ring.
#[test]
fn slots_of_a_burst_are_used_again_while_the_next_one_is_taken() {
    const MESSAGES: u32 = 5;
    check(Some(2), Some(2), |order| {
        let words: Words = order.words(8);
        let (client, mut core) = (ClientLane::over(words.clone()), CoreLane::over(words));
        let (mut up, mut up_end) = ring(order, 4);
        let (mut down, mut down_end) = ring(order, 4);
        let buffers: Arc<Vec<Buffer>> = Arc::new((0..2).map(|_| Buffer(UnsafeCell::new(0))).collect());
        let theirs = buffers.clone();
        let writer = thread::spawn(move || {
            for number in 0..MESSAGES {
                let slot = match number {
                    0 | 1 => number as u16,
                    _ => next(&mut down_end).slot,
                };
                theirs[usize::from(slot)].set(number);
                let head = Descriptor { slot, offset: number, ..Descriptor::default() };
                let signal = Signal { head, ..Signal::default() };
                if !client.pass(&Passed { signal, port: 7, after: up.position() as u32 }) {
                    up.push(head);
                }
            }
        });
        let mut burst = Vec::new();
        let mut came = 0;
        while came < MESSAGES {
            take_with_burst(&mut core, &mut up_end, |entry| burst.push(entry));
            for entry in &burst {
                assert_eq!((entry.offset, buffers[usize::from(entry.slot)].get()), (came, came), "in order, and whole");
                came += 1;
            }
            burst.drain(..).for_each(|entry| down.push(entry));
        }
        writer.join().unwrap();
    });
}

/// A writer that no slot bounds, and a reader that says how much it took once for several: no entry is written over.
#[test]
fn one_count_for_several_entries_keeps_the_writer_off_those_that_are_not_taken() {
    const ENTRIES: u64 = 2;
    const MESSAGES: u32 = 3;
    check(Some(2), Some(2), |order| {
        let (mut up, mut up_end) = ring(order, ENTRIES as usize);
        let words: Words = order.words(1);
        let (ours, theirs) = (TakenCount::over(words.clone()), TakenCount::over(words));
        let writer = thread::spawn(move || {
            for number in 0..MESSAGES {
                while up.position() - theirs.load() >= ENTRIES {
                    thread::yield_now();
                }
                up.push(Descriptor { offset: number, len: number + 7, ..Descriptor::default() });
            }
        });
        let mut came = 0;
        while came < MESSAGES {
            for _ in 0..up_end.ready(ENTRIES as usize) {
                let entry = up_end.pop().unwrap();
                assert_eq!((entry.offset, entry.len), (came, came + 7), "in order, whole");
                came += 1;
            }
            ours.store(up_end.position());
            thread::yield_now();
        }
        writer.join().unwrap();
    });
}

/// A side of direct rings that sleeps until the other has published all of `work`; the core wakes it when it is asked to.
#[test]
fn a_side_of_direct_rings_that_sleeps_misses_nothing() {
    check(Some(3), Some(2), |order| {
        let words: Words = order.words(2);
        let condition: Words<AtomicU32> = order.words(2);
        let (asked, work) = (Doorbell::new(), [Published::new(), Published::new()]);
        let core = {
            // Asked once for each sleep; the last time by the end of the model.
            let (asked, condition) = (asked.clone(), HostCondition::over(condition.clone()));
            thread::spawn(move || {
                asked.await_ring();
                condition.signal_if_asleep();
            })
        };
        let publisher = {
            let (flag, asked, work) = (SleepFlag::over(words.clone()), asked.clone(), work.clone());
            let condition = HostCondition::over(condition.clone());
            thread::spawn(move || {
                let mut wakes = 0;
                for work in work {
                    work.publish();
                    if flag.wants() && flag.take() {
                        // The first by the core, for whom it is a thread of its own; later ones as if it was at once.
                        match wakes {
                            0 => asked.ring(),
                            _ => drop(condition.signal_if_asleep()),
                        }
                        wakes += 1;
                    }
                }
                if wakes == 0 {
                    asked.ring();
                }
            })
        };
        let (flag, condition) = (SleepFlag::over(words), HostCondition::over(condition));
        for work in work {
            while !work.is_there() {
                let seen = condition.value();
                SleepFlag::fall_asleep([&flag].into_iter());
                condition.wait_unless(seen, None, || work.is_there() || flag.is_called());
                flag.wake_up();
            }
        }
        publisher.join().unwrap();
        core.join().unwrap();
    });
}

/// Calls of two threads of a client, one of them for two ports: the core takes each once, with what was done before.
#[test]
fn calls_to_the_core_are_taken_with_what_was_done_before() {
    check(Some(3), Some(2), |order| {
        let words: Words = order.words(8);
        let lane = Arc::new(ClientLane::over(words.clone()));
        let mut core = CoreLane::over(words);
        let work = [Published::new(), Published::new()];
        let other = {
            let (lane, work) = (lane.clone(), work[1].clone());
            thread::spawn(move || {
                work.publish();
                lane.call(Call::Wake, 7);
            })
        };
        let client = {
            let work = work[0].clone();
            thread::spawn(move || {
                work.publish();
                lane.call(Call::Wake, 2);
                lane.call(Call::Done, 2);
            })
        };
        let mut calls = Calls { wakes: 0, dones: 0 };
        while calls != (Calls { wakes: 1 << 2 | 1 << 7, dones: 1 << 2 }) {
            let Some(taken) = core.take_calls() else {
                thread::yield_now();
                continue;
            };
            assert_eq!((calls.wakes & taken.wakes, calls.dones & taken.dones), (0, 0));
            (calls.wakes, calls.dones) = (calls.wakes | taken.wakes, calls.dones | taken.dones);
            assert!((calls.wakes | calls.dones) & 1 << 2 == 0 || work[0].is_there());
            assert!(calls.wakes & 1 << 7 == 0 || work[1].is_there());
        }
        client.join().unwrap();
        other.join().unwrap();
    });
}

/// The entries that the core, in place of a reader that left, finds in the ring before it and after the writer has
/// learnt that it is wanted back: each message once, in order, and none stays where nobody looks.
#[test]
fn a_writer_that_is_wanted_back_leaves_nothing_behind() {
    check(None, Some(3), |order| {
        let words: Words = order.words(2);
        let (mut forward, mut arrived) = ring(order, 4);
        let (mut up, mut up_end) = ring(order, 4);
        let entry = |offset| Descriptor { offset, ..Descriptor::default() };
        let writer = {
            let flag = SleepFlag::over(words.clone());
            thread::spawn(move || {
                let mut is_direct = true;
                for number in 0..2 {
                    if is_direct && flag.is_recalled() {
                        up.push(Descriptor { op: super::up::DIRECT_END, ..Descriptor::default() });
                        is_direct = false;
                    }
                    if !is_direct {
                        up.push(entry(number));
                        continue;
                    }
                    forward.push(entry(number));
                    if flag.wants() {
                        up.push(Descriptor { op: super::up::DIRECT_END, ..Descriptor::default() });
                        is_direct = false;
                    }
                }
                // It does nothing more, whether it saw it or not.
                is_direct
            })
        };
        let flag = SleepFlag::over(words);
        flag.recall();
        fence(Ordering::SeqCst);
        let mut came = Vec::new();
        while let Some(entry) = arrived.pop() {
            came.push(entry.offset);
        }
        let is_unaware = writer.join().unwrap();
        while let Some(entry) = up_end.pop() {
            match entry.op {
                super::up::DIRECT_END => came.extend(std::iter::from_fn(|| arrived.pop()).map(|entry| entry.offset)),
                _ => came.push(entry.offset),
            }
        }
        assert_eq!(came, [0, 1], "unaware: {is_unaware}");
    });
}

/// To direct rings: what was put over the core comes before. And back: what was put over them comes before what follows.
#[test]
fn a_reader_that_goes_to_direct_rings_and_back_keeps_the_order() {
    check(Some(3), Some(2), |order| {
        let (mut forward, mut arrived) = ring(order, 4);
        let (mut up, mut up_end) = ring(order, 4);
        let (mut down, mut down_end) = ring(order, 4);
        let entry = |offset| Descriptor { offset, ..Descriptor::default() };
        let marker = |op| Descriptor { op, ..Descriptor::default() };
        let writer = thread::spawn(move || {
            up.push(entry(0));
            up.push(marker(super::up::DIRECT));
            forward.push(entry(1));
            up.push(marker(super::up::DIRECT_END));
            up.push(entry(2));
        });
        let (mut came, mut is_direct) = (Vec::new(), false);
        while came.len() < 3 {
            // The core's part, whenever it comes to it.
            if let Some(entry) = up_end.pop() {
                down.push(entry);
            }
            if is_direct && let Some(entry) = arrived.pop() {
                came.push(entry.offset);
            } else if let Some(entry) = down_end.pop() {
                match entry.op {
                    super::up::DIRECT => is_direct = true,
                    // An entry that is there is visible now.
                    super::up::DIRECT_END => {
                        came.extend(std::iter::from_fn(|| arrived.pop()).map(|entry| entry.offset))
                    }
                    _ => came.push(entry.offset),
                }
            } else {
                thread::yield_now();
            }
        }
        assert_eq!(came, [0, 1, 2]);
        writer.join().unwrap();
    });
}
