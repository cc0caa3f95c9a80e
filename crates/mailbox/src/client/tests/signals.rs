//! The messages over the signal queues.

use super::*;
use crate::shared::{ConditionAddress, SIGNAL_SLOTS, SYNCS, SyncPool, up};

/// The next signal, which has to be of `op`.
fn expect(fake: &mut Fake, op: u8) -> Signal {
    let signal = fake.next_signal();
    assert_eq!(signal.head.op, op, "{signal:?}");
    signal
}

#[test]
fn each_operation_is_asked_for_and_answered_by_its_tag() {
    let (attachment, mut fake) = attach();
    let core = std::thread::spawn(move || {
        let ask = expect(&mut fake, up::ALLOC);
        assert_eq!((ask.head.target, ask.head.len, ask.b), (6, 10, 0));
        fake.answer(ask.a, grant(0, 512, 64));
        let put = expect(&mut fake, up::SIGNAL_PUT).head;
        assert_eq!((put.slot, put.generation, put.target, put.offset, put.len), (0, 100, 6, 513, 9));
        assert_eq!(fake.bytes_at(513, 9), [1; 9]);
        let ask = expect(&mut fake, up::GET);
        assert_eq!((ask.head.target, ask.b), (7, 0));
        fake.answer(ask.a, message(1, 512, 10, 0));
        assert_eq!(expect(&mut fake, up::SIGNAL_FREE).head.slot, 1);
        let ask = expect(&mut fake, up::GET);
        assert_eq!(ask.b, 1);
        fake.answer(ask.a, refused(Reason::Empty));
        let ask = expect(&mut fake, up::GET);
        fake.answer(ask.a, message(2, 512, 10, 0));
        let moved = expect(&mut fake, up::SIGNAL_ENQUEUE).head;
        assert_eq!((moved.slot, moved.target, moved.offset, moved.len), (2, 99, 514, 8));
        let ask = expect(&mut fake, up::ALLOC);
        assert_eq!(ask.b, 1);
        fake.answer(ask.a, refused(Reason::Full));
        for reason in [Reason::NoBuffers, Reason::Quota, Reason::UnknownMailbox, Reason::Closed] {
            let ask = expect(&mut fake, up::ALLOC);
            fake.answer(ask.a, refused(reason));
        }
    });
    let (mut writer, mut reader) = (attachment.writer(6, None).unwrap(), attachment.reader(7, None).unwrap());
    let mut put = writer.begin_put(10, Wait::Block).unwrap();
    put.fill(1);
    put.adjust(1, 0).unwrap();
    writer.end_put(put).unwrap();
    let message = reader.begin_get(Wait::Block).unwrap();
    assert_eq!(message.len(), 10);
    reader.end_get(message);
    assert!(reader.try_begin_get().unwrap().is_none());
    let mut message = reader.begin_get(Wait::Poll).unwrap();
    message.adjust(2, 0).unwrap();
    reader.enqueue(message, 99).unwrap();
    assert!(writer.try_begin_put(10).unwrap().is_none());
    for expected in [
        MailboxError::NoBuffers,
        MailboxError::Quota,
        MailboxError::UnknownMailbox,
        MailboxError::Closed { reason: Reason::Closed },
    ] {
        assert_eq!(writer.try_begin_put(10).unwrap_err(), expected);
    }
    core.join().unwrap();
}

#[test]
fn many_threads_wait_at_once_and_each_gets_its_own() {
    let (attachment, mut fake) = attach();
    let waiting: Vec<_> = (0..8u16)
        .map(|number| {
            let mut reader = attachment.reader(number, None).unwrap();
            std::thread::spawn(move || {
                (0..20).for_each(|_| {
                    let message = reader.begin_get(Wait::Block).unwrap();
                    assert_eq!(message[..], number.to_le_bytes());
                });
            })
        })
        .collect();
    for number in 0..8u16 {
        fake.fill(false, u32::from(number) * 64, &number.to_le_bytes());
    }
    for round in 0..20 {
        // All have asked; the last is answered first.
        let mut asks = Vec::new();
        while asks.len() < 8 {
            let signal = fake.next_signal();
            match signal.head.op {
                up::GET => asks.push(signal),
                op => assert_eq!(op, up::SIGNAL_FREE),
            }
        }
        if round % 2 == 0 {
            eventually(|| fake.arrivals.has_sleepers().then_some(()));
        }
        for ask in asks.iter().rev() {
            let number = ask.head.target;
            fake.answer(ask.a, message(number, u32::from(number) * 64, 2, 0));
        }
    }
    waiting.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_get_that_ran_out_of_time_takes_the_message_that_came_before_it_was_cancelled() {
    let (attachment, mut fake) = attach();
    let mut reader = attachment.reader(7, None).unwrap();
    let core = std::thread::spawn(move || {
        let ask = expect(&mut fake, up::GET);
        let cancel = expect(&mut fake, up::CANCEL);
        assert_eq!(cancel.a, ask.a);
        fake.answer(ask.a, message(1, 0, 1, 0));
        expect(&mut fake, up::SIGNAL_FREE);
        let ask = expect(&mut fake, up::GET);
        expect(&mut fake, up::CANCEL);
        fake.answer(ask.a, refused(Reason::Cancelled));
        fake
    });
    drop(reader.begin_get(now()).unwrap());
    assert_eq!(reader.begin_get(now()).unwrap_err(), MailboxError::TimedOut);
    let mut fake = core.join().unwrap();
    assert!(fake.pop().is_none());
    // The place of the ask is free again: the same with all there are.
    let asks = std::thread::spawn(move || {
        for _ in 0..2 * SIGNAL_SLOTS {
            let ask = expect(&mut fake, up::GET);
            fake.answer(ask.a, refused(Reason::Empty));
        }
    });
    for _ in 0..2 * SIGNAL_SLOTS {
        assert!(reader.try_begin_get().unwrap().is_none());
    }
    asks.join().unwrap();
}

#[test]
fn a_late_reply_of_a_stopped_daemon_is_not_lost() {
    let (attachment, mut fake) = attach();
    let mut reader = attachment.reader(7, None).unwrap();
    // Nobody answers; the call returns all the same.
    assert_eq!(reader.begin_get(now()).unwrap_err(), MailboxError::TimedOut);
    let ask = expect(&mut fake, up::GET);
    expect(&mut fake, up::CANCEL);
    assert!(reader.try_begin_get().unwrap().is_none(), "still the same request");
    assert!(fake.pop().is_none());
    fake.answer(ask.a, message(1, 0, 1, 0));
    let late = reader.begin_get(now()).unwrap();
    reader.end_get(late);
    expect(&mut fake, up::SIGNAL_FREE);
    // Cancelled late: the next call asks anew.
    assert_eq!(reader.begin_get(now()).unwrap_err(), MailboxError::TimedOut);
    let ask = expect(&mut fake, up::GET);
    expect(&mut fake, up::CANCEL);
    fake.answer(ask.a, refused(Reason::Cancelled));
    let get = std::thread::spawn(move || reader.begin_get(Wait::Block).map(|message| (reader, message.len())));
    let ask = expect(&mut fake, up::GET);
    fake.answer(ask.a, message(2, 0, 5, 0));
    let (mut reader, len) = get.join().unwrap().unwrap();
    assert_eq!(len, 5);
    expect(&mut fake, up::SIGNAL_FREE);
    // Nobody is left to take it: back to the mailbox, which is not closed before.
    let unused = Arc::new(AtomicU32::new(0));
    let noted = unused.clone();
    attachment.on_unused(move |number| noted.store(number.into(), Ordering::Relaxed));
    assert_eq!(reader.begin_get(now()).unwrap_err(), MailboxError::TimedOut);
    drop(reader);
    assert_eq!(unused.load(Ordering::Relaxed), 0);
    let ask = expect(&mut fake, up::GET);
    expect(&mut fake, up::CANCEL);
    fake.answer(ask.a, message(3, 0, 5, 0));
    attachment.errors();
    let back = expect(&mut fake, up::SIGNAL_ENQUEUE).head;
    assert_eq!((back.slot, back.target, back.len), (3, 7, 5));
    assert_eq!(unused.load(Ordering::Relaxed), 7);
    // The same for a buffer.
    let mut writer = attachment.writer(6, None).unwrap();
    assert_eq!(writer.begin_put(100, now()).unwrap_err(), MailboxError::TimedOut);
    let ask = expect(&mut fake, up::ALLOC);
    expect(&mut fake, up::CANCEL);
    fake.answer(ask.a, grant(4, 0, 100));
    drop(writer);
    let freed = expect(&mut fake, up::SIGNAL_FREE).head;
    assert_eq!(freed.slot, 4);
}

#[test]
fn no_more_is_asked_for_than_there_are_slots() {
    let (attachment, mut fake) = attach();
    let mut reader = attachment.reader(7, None).unwrap();
    let core = std::thread::spawn(move || {
        for slot in 0..SIGNAL_SLOTS as u16 {
            let ask = expect(&mut fake, up::GET);
            fake.answer(ask.a, message(slot, 0, 1, 0));
        }
        fake
    });
    let mut held: Vec<_> = (0..SIGNAL_SLOTS).map(|_| reader.begin_get(Wait::Block).unwrap()).collect();
    let mut fake = core.join().unwrap();
    let most = SIGNAL_SLOTS;
    assert_eq!(reader.begin_get(now()).unwrap_err(), MailboxError::TooManyHeld { most });
    assert_eq!(reader.try_begin_get().unwrap_err(), MailboxError::TooManyHeld { most });
    assert_eq!(attachment.writer(6, None).unwrap().try_begin_put(1).unwrap_err(), MailboxError::TooManyHeld { most });
    assert!(fake.pop().is_none());
    // A thread that waits for a slot is woken by the drop of a message on another thread.
    let last = held.pop();
    let waits = std::thread::spawn(move || reader.begin_get(Wait::Block).map(|message| message.len()));
    eventually(|| fake.arrivals.has_sleepers().then_some(()));
    drop(last);
    let freed = expect(&mut fake, up::SIGNAL_FREE).head.slot;
    let ask = expect(&mut fake, up::GET);
    fake.answer(ask.a, message(freed, 0, 3, 0));
    assert_eq!(waits.join().unwrap().unwrap(), 3);
}

#[test]
fn the_queue_is_never_written_over() {
    let (attachment, mut fake) = attach();
    let address = attachment.alloc_sync().unwrap().address();
    fake.next_signal_count();
    let write = std::thread::spawn(move || {
        for value in 0..5 * SIGNAL_ENTRIES as u64 {
            attachment.write_sync(address, value).unwrap();
        }
        attachment
    });
    // Let it run into the end of the room, and look only then.
    for value in 0..5 * SIGNAL_ENTRIES as u64 {
        let signal = eventually(|| fake.pop());
        assert_eq!((signal.head.op, signal.b), (up::SYNC_WRITE, value));
        if value % 300 == 299 {
            fake.taken.store(fake.signal_up.position());
        }
    }
    write.join().unwrap();
}

impl Fake {
    /// Says that all was taken, so that a test starts with an empty queue.
    fn next_signal_count(&mut self) {
        self.taken.store(self.signal_up.position());
    }
}

#[test]
fn syncs_are_read_once_and_used_again() {
    let (attachment, mut fake) = attach();
    let mut sync = attachment.alloc_sync().unwrap();
    let address = sync.address();
    assert_eq!((address.client, address.pool), (attachment.client_number(), SyncPool::Client));
    assert_eq!(SyncAddress::from_word(address.to_word()), Some(address));
    assert_eq!(sync.try_read(), Ok(None));
    assert_eq!(sync.read(now()), Err(MailboxError::TimedOut));
    let read = std::thread::spawn(move || (sync.read(Wait::Block), sync.try_read(), sync.read(Wait::Poll)));
    eventually(|| fake.arrivals.has_sleepers().then_some(()));
    fake.write_sync(address, 42);
    assert_eq!(read.join().unwrap(), (Ok(42), Err(MailboxError::SyncRead), Err(MailboxError::SyncRead)));
    // Stale: an earlier life of the place.
    let all: Vec<_> = (0..SYNCS).map(|_| attachment.alloc_sync().unwrap()).collect();
    assert_eq!(attachment.alloc_sync().unwrap_err(), MailboxError::NoSyncs { most: SYNCS });
    fake.write_sync(address, 43);
    let mut addresses: Vec<_> = all.iter().map(|sync| sync.address().to_word()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), SYNCS);
    let addresses: Vec<_> = all.iter().map(super::super::SyncWord::address).collect();
    assert!(all.into_iter().all(|mut sync| sync.try_read() == Ok(None)), "dropped: cancelled");
    // Cancelled ones come back when they are written, not before.
    assert!(attachment.alloc_sync().is_err());
    fake.write_sync(addresses[10], 1);
    let again = attachment.alloc_sync().unwrap();
    assert_eq!(again.address().index, addresses[10].index);
    assert_ne!(again.address().generation, addresses[10].generation);
    assert!(attachment.alloc_sync().is_err());
    // Written and then cancelled: free at once.
    fake.write_sync(again.address(), 2);
    again.cancel();
    assert!(attachment.alloc_sync().is_ok());
    attachment.write_sync(address, 77).unwrap();
    let signal = expect(&mut fake, up::SYNC_WRITE);
    assert_eq!((signal.a, signal.b), (address.to_word(), 77));
}

#[test]
fn conditions_are_signalled_here_and_elsewhere() {
    let (attachment, mut fake) = attach();
    let condition = attachment.condition().unwrap();
    let address = condition.address();
    assert!(usize::from(address.index) >= 2, "the first two are the library's own");
    let seen = condition.value();
    assert_eq!(condition.wait(seen, now()), Err(MailboxError::TimedOut));
    let waiter = std::thread::spawn(move || (condition.wait(seen, Wait::Block), condition));
    let own = HostCondition::new(&fake.prepared.control, ControlLayout::condition(address.index.into())).unwrap();
    eventually(|| own.has_sleepers().then_some(()));
    own.signal();
    let (woken, condition) = waiter.join().unwrap();
    assert_eq!(woken, Ok(seen.wrapping_add(1)));
    condition.signal();
    attachment.signal(address).unwrap();
    assert_eq!(condition.value(), seen.wrapping_add(3));
    attachment.signal(ConditionAddress { client: 99, index: 4 }).unwrap();
    assert_eq!(expect(&mut fake, up::SIGNAL).a, 99 | 4 << 32);
    let all: Vec<_> = (0..29).map(|_| attachment.condition().unwrap()).collect();
    assert_eq!(attachment.condition().unwrap_err(), MailboxError::NoConditions { most: 30 });
    drop(all);
    assert!(attachment.condition().is_ok());
}

#[test]
fn calls_go_both_ways() {
    let (attachment, mut fake) = attach();
    let caller = attachment.clone();
    let call = std::thread::spawn(move || caller.call(12, 34, Wait::Block));
    let signal = expect(&mut fake, up::CALL);
    assert_eq!((signal.head.target, signal.b), (12, 34));
    fake.write_sync(SyncAddress::from_word(signal.a).unwrap(), 56);
    assert_eq!(call.join().unwrap(), Ok(56));
    assert_eq!(attachment.call(12, 34, now()), Err(MailboxError::TimedOut));
    expect(&mut fake, up::CALL);

    let upcall = |procedure, argument, b| Signal {
        head: Descriptor { op: down::UPCALL, target: procedure, ..Descriptor::default() },
        a: argument,
        b,
    };
    // Nobody serves them yet: whoever looks next says so.
    fake.send(upcall(1, 2, 3));
    attachment.errors();
    let signal = expect(&mut fake, up::SYNC_WRITE);
    assert_eq!((signal.a, signal.b), (3, u64::MAX));
    attachment.on_upcall(|procedure, argument| u64::from(procedure) * 1000 + argument).unwrap();
    assert_eq!(attachment.on_upcall(|_, _| 0), Err(MailboxError::UpcallsServed));
    for _ in 0..16 {
        assert_eq!(expect(&mut fake, up::LISTEN).b, up::LISTEN_UPCALLS);
    }
    for round in 0..20 {
        if round % 2 == 0 {
            eventually(|| fake.upcalled.has_sleepers().then_some(()));
        }
        fake.signal_down.push(upcall(7, round, round + 100));
        fake.upcalled.signal_if_asleep();
        let signal = expect(&mut fake, up::SYNC_WRITE);
        assert_eq!((signal.a, signal.b), (round + 100, 7000 + round));
        expect(&mut fake, up::LISTEN);
    }
    // One that is found by a thread that looks for something else is passed on.
    fake.signal_down.push(upcall(7, 1, 5));
    attachment.errors();
    assert_eq!(expect(&mut fake, up::SYNC_WRITE).b, 7001);
}

#[test]
fn errors_are_kept_and_bounded() {
    let (attachment, mut fake) = attach();
    for detail in 0..20 {
        let head = Descriptor { op: down::ERROR, target: if detail == 19 { 999 } else { 6 }, ..Descriptor::default() };
        fake.send(Signal { head, a: detail, b: 0 });
    }
    let errors = attachment.errors();
    assert_eq!(errors.iter().map(|error| error.detail).collect::<Vec<_>>(), (4..20).collect::<Vec<_>>());
    assert_eq!((errors[0].reason, errors[15].reason), (Some(Reason::Closed), None));
    assert!(attachment.errors().is_empty());
    for _ in 0..20 {
        assert_eq!(expect(&mut fake, up::LISTEN).b, up::LISTEN_ERRORS);
    }
}

#[test]
fn garbage_on_the_signal_queue_ends_the_attachment() {
    let tags = [0, 1, 2 << 16, u64::MAX, 300];
    let heads = [grant(0, 0, 64), message(0, 0, 64, 0), refused(Reason::Empty)];
    let mut wrong: Vec<Signal> = tags.iter().flat_map(|&a| heads.map(|head| Signal { head, a, b: 0 })).collect();
    wrong.extend([0, 4, 5, 255].map(|op| Signal { head: Descriptor { op, ..Descriptor::default() }, a: 0, b: 0 }));
    for signal in wrong {
        let (attachment, mut fake) = attach();
        fake.send(signal);
        let error = attachment.reader(1, None).unwrap().begin_get(Wait::Block).unwrap_err();
        assert!(is_gone(&error, "broke the protocol"), "{signal:?}: {error}");
    }
    // The right tag with a wrong answer.
    for head in [
        grant(0, 0, 64),
        message(0, SEGMENT_BYTES, 1, 0),
        message(0, 0, SEGMENT_BYTES + 1, 1),
        message(0, u32::MAX, u32::MAX, 0),
        message(SIGNAL_SLOTS as u16, 0, 1, 0),
    ] {
        let (attachment, mut fake) = attach();
        let get = std::thread::spawn(move || attachment.reader(1, None).unwrap().begin_get(Wait::Block).unwrap_err());
        let ask = expect(&mut fake, up::GET);
        fake.answer(ask.a, head);
        let error = get.join().unwrap();
        assert!(is_gone(&error, "broke the protocol"), "{head:?}: {error}");
    }
}

#[test]
fn after_a_farewell_the_memory_stays_in_use_until_the_last_message_is_dropped() {
    let (attachment, fake) = attach();
    let (mut reader, mut port) = (attachment.reader(8, Some(3)).unwrap(), fake.port(3));
    fake.fill(false, 64, b"held");
    port.send(message(0, 64, 4, 0));
    let held = reader.begin_get(Wait::Block).unwrap();
    let farewell = crate::attach::Farewell { again: true, reason: "restarting".to_owned() };
    farewell.say(std::os::fd::AsFd::as_fd(&fake.prepared.socket));
    assert!(is_gone(&reader.begin_get(Wait::Block).unwrap_err(), "restarting"));
    drop((reader, attachment));
    let mut byte = [0];
    let mut heard = || rustix::net::recv(&fake.prepared.socket, &mut byte, rustix::net::RecvFlags::DONTWAIT);
    assert_eq!(heard(), Err(rustix::io::Errno::AGAIN), "still attached");
    assert_eq!(held[..], *b"held");
    drop(held);
    assert_eq!(eventually(|| heard().ok()).1, 0);
}

#[test]
fn an_attachment_ends_with_the_last_of_its_parts() {
    let (attachment, mut fake) = attach();
    attachment.on_upcall(|_, _| 0).unwrap();
    let mut reader = attachment.reader(7, None).unwrap();
    drop(attachment);
    let get = std::thread::spawn(move || reader.begin_get(Wait::Block).unwrap());
    let ask = eventually(|| Some(fake.next_signal()).filter(|signal| signal.head.op == up::GET));
    fake.answer(ask.a, message(1, 0, 5, 0));
    let message = get.join().unwrap();
    assert_eq!(message.len(), 5, "the message alone keeps it");
    let mut byte = [0];
    assert!(rustix::net::recv(&fake.prepared.socket, &mut byte, rustix::net::RecvFlags::DONTWAIT).is_err());
    drop(message);
    let hung_up =
        eventually(|| rustix::net::recv(&fake.prepared.socket, &mut byte, rustix::net::RecvFlags::DONTWAIT).ok());
    assert_eq!(hung_up.1, 0);
}
