//! Direct rings, with the other end played by the test: every slot in the open, and whatever a hostile one can write.

use super::*;
use crate::client::{Reader, Writer};
use crate::shared::{Calls, DirectBlock, DirectLayout, Reason, Regrants, SIGNAL_ENTRIES, SLOTS, SleepFlag, up};
use proptest::prelude::*;

/// Where the block lies: behind the buffers.
const BLOCK: u32 = 512 << 10;

fn offer(most: u32) -> Descriptor {
    Descriptor { op: down::DIRECT, target: 1, offset: BLOCK, len: most, ..Descriptor::default() }
}

fn block(fake: &Fake) -> DirectBlock<'_> {
    DirectBlock::new(fake.domain.shared(), BLOCK, true).unwrap()
}

/// A writer with two buffers that puts over direct rings.
fn writer(attachment: &Attachment, fake: &Fake) -> (Writer, FakePort) {
    let (writer, mut port) = (attachment.writer(9, Some(2)).unwrap(), fake.port(2));
    for slot in 0..2 {
        port.send(grant(slot, 4096 * u32::from(slot), 4096));
    }
    port.send(offer(2));
    (writer, port)
}

fn reader(attachment: &Attachment, fake: &Fake) -> (Reader, FakePort) {
    let (reader, mut port) = (attachment.reader(8, Some(3)).unwrap(), fake.port(3));
    port.send(offer(0));
    (reader, port)
}

fn put(writer: &mut Writer, text: &[u8]) {
    let mut put = writer.begin_put(text.len(), now()).unwrap();
    put.copy_from_slice(text);
    writer.end_put(put).unwrap();
}

#[test]
fn a_writer_puts_slots_directly_and_takes_them_back_whole() {
    let (attachment, fake) = attach();
    let (mut writer, mut port) = writer(&attachment, &fake);
    let (mut forward, mut back) = block(&fake).for_reader().unwrap();
    put(&mut writer, b"one");
    assert_eq!(port.next().op, up::DIRECT);
    for turn in 0..3 {
        let entry = forward.pop().unwrap();
        assert_eq!((entry.op, entry.len, entry.generation), (down::MESSAGE, 3, entry.slot + 100));
        assert_eq!(fake.bytes_at(entry.offset, 3), b"one");
        put(&mut writer, b"one");
        assert_eq!(writer.begin_put(1, now()).unwrap_err(), MailboxError::TimedOut, "both are with the reader: {turn}");
        back.push(Descriptor { op: up::FREE, ..entry });
        let mut whole = writer.begin_put(4096, now()).unwrap();
        whole[..3].copy_from_slice(b"one");
        whole.adjust(0, 4093).unwrap();
        let entry = forward.pop().unwrap();
        back.push(Descriptor { op: up::FREE, ..entry });
        writer.end_put(whole).unwrap();
    }
    assert!(port.pop().is_none());
}

#[test]
fn a_writer_reclaims_what_the_core_returns_from_the_reader() {
    let (attachment, fake) = attach();
    let (mut writer, _port) = writer(&attachment, &fake);
    let (mut forward, _) = block(&fake).for_reader().unwrap();
    let mut returned = block(&fake).for_returns().unwrap();
    put(&mut writer, b"one");
    put(&mut writer, b"two");
    assert_eq!(writer.begin_put(1, now()).unwrap_err(), MailboxError::TimedOut);
    let entry = forward.pop().unwrap();
    returned.push(Descriptor { op: up::FREE, ..entry });
    put(&mut writer, b"three");
    // Once: what is not with the reader cannot come back.
    let again = forward.pop().into_iter().chain(forward.pop()).last().unwrap();
    assert_eq!((again.slot, again.len), (entry.slot, 5));
    returned.push(Descriptor { op: up::FREE, ..entry });
    returned.push(Descriptor { op: up::FREE, ..entry });
    assert_eq!(writer.begin_put(1, now()).unwrap_err(), MailboxError::Closed { reason: Reason::Violation });
}

/// The daemon takes nothing: the other end is woken by it some time, and nobody waits for that.
#[test]
fn a_put_to_a_reader_that_sleeps_waits_for_no_daemon() {
    let (attachment, fake) = attach();
    let (mut writer, _port) = writer(&attachment, &fake);
    let (mut forward, mut back) = block(&fake).for_reader().unwrap();
    let [reader, _] = block(&fake).flags().unwrap();
    for _ in 0..2 * SIGNAL_ENTRIES {
        SleepFlag::fall_asleep([&reader].into_iter());
        put(&mut writer, b"one");
        assert!(reader.is_called());
        back.push(Descriptor { op: up::FREE, ..forward.pop().unwrap() });
    }
    let calls = Calls { wakes: 1 << 2, dones: 0 };
    assert_eq!(fake.lane.lock().unwrap().take_calls(), Some(calls));
}

#[test]
fn a_writer_asks_for_more_up_to_the_bound_and_once_at_a_time() {
    let (attachment, fake) = attach();
    let (mut writer, mut port) = (attachment.writer(9, Some(2)).unwrap(), fake.port(2));
    port.send(grant(0, 0, 4096));
    port.send(offer(2));
    let (mut forward, mut back) = block(&fake).for_reader().unwrap();
    for _ in 0..3 {
        put(&mut writer, b"one");
        assert_eq!(writer.begin_put(1, now()).unwrap_err(), MailboxError::TimedOut);
        back.push(Descriptor { op: up::FREE, ..forward.pop().unwrap() });
    }
    assert_eq!([port.next().op, port.next().op], [up::DIRECT, up::MORE]);
    assert!(port.pop().is_none());
    port.send(grant(1, 4096, 4096));
    port.send(Descriptor { op: down::DIRECT_MORE, ..Descriptor::default() });
    // The request in vain meanwhile.
    put(&mut writer, b"one");
    put(&mut writer, b"one");
    assert_eq!(port.next().op, up::MORE);
    port.send(Descriptor { op: down::DIRECT_MORE, ..Descriptor::default() });
    assert_eq!(writer.begin_put(1, now()).unwrap_err(), MailboxError::TimedOut);
    assert!(port.pop().is_none(), "it has as many as it may");
}

#[test]
fn a_writer_that_is_wanted_back_names_what_the_reader_has() {
    let (attachment, fake) = attach();
    let (mut writer, mut port) = writer(&attachment, &fake);
    let (mut forward, _) = block(&fake).for_reader().unwrap();
    put(&mut writer, b"one");
    assert_eq!(port.next().op, up::DIRECT);
    block(&fake).flags().unwrap()[0].recall();
    let first = forward.pop().unwrap();
    put(&mut writer, b"two");
    assert_eq!(port.next().op, up::DIRECT_END);
    let left = port.next();
    assert_eq!((left.op, left.slot, left.generation), (up::LEFT, first.slot, first.generation));
    let entry = port.next();
    assert_eq!((entry.op, entry.len), (up::PUT, 3));
    assert!(forward.pop().is_none());
}

#[test]
fn a_writer_that_is_wanted_back_gives_back_what_it_had_for_the_bound() {
    let (attachment, fake) = attach();
    let (mut writer, mut port) = (attachment.writer(9, Some(2)).unwrap(), fake.port(2));
    for slot in 0..5 {
        port.send(grant(slot, 4096 * u32::from(slot), 4096));
    }
    port.send(Descriptor { slot: 2, ..offer(5) });
    put(&mut writer, b"one");
    assert_eq!(port.next().op, up::DIRECT);
    block(&fake).flags().unwrap()[0].recall();
    put(&mut writer, b"two");
    let ops: Vec<u8> = std::iter::from_fn(|| port.pop()).map(|entry| entry.op).collect();
    // Two are ahead of it still.
    assert_eq!(ops, [up::DIRECT_END, up::LEFT, up::FREE, up::PUT]);
}

/// A long one's buffer would come back only when the writer looks, who may wait for something else by then.
#[test]
fn long_messages_go_over_the_core_in_their_order() {
    let (attachment, fake) = attach();
    let (mut writer, mut port) = (attachment.writer(9, Some(2)).unwrap(), fake.port(2));
    for slot in 0..4 {
        port.send(grant(slot, 4096 * u32::from(slot), 4096));
    }
    port.send(Descriptor { slot: 4, ..offer(4) });
    put(&mut writer, b"one");
    for slot in 4..6 {
        assert_eq!(writer.begin_put(5000, now()).unwrap_err(), MailboxError::TimedOut);
        port.send(grant(slot, 1 << 18, 5000));
        put(&mut writer, &[1; 5000]);
        if slot == 4 {
            // Nothing of the others is in use any more.
            port.send(Descriptor { slot: 4, ..offer(4) });
        }
        writer.check().unwrap();
    }
    put(&mut writer, b"two");
    writer.check().unwrap();
    put(&mut writer, b"three");
    let ops: Vec<u8> = std::iter::from_fn(|| port.pop()).map(|entry| entry.op).collect();
    let due = [up::DIRECT, up::REQUEST, up::DIRECT_END, up::LEFT, up::PUT, up::REQUEST, up::PUT, up::PUT, up::DIRECT];
    assert_eq!(ops, due);
}

/// It waits at one port, while a thread of its own may poll the other.
#[test]
fn a_thread_that_waits_for_several_ports_sleeps_only_at_those_that_it_looks_at() {
    let (attachment, fake) = attach();
    let (mut reader, _port) = reader(&attachment, &fake);
    let mut other_port = fake.port(4);
    let mut other = attachment.reader(7, Some(4)).unwrap();
    other_port.send(Descriptor { offset: BLOCK + (16 << 10), ..offer(0) });
    let other_block = DirectBlock::new(fake.domain.shared(), BLOCK + (16 << 10), true).unwrap();
    let polls = std::thread::spawn(move || {
        assert!(other.try_begin_get().unwrap().is_none());
        other
    });
    let _other = polls.join().unwrap();
    assert!(reader.try_begin_get().unwrap().is_none());
    let [own, others] = [block(&fake), other_block].map(|block| block.flags().unwrap());
    own[0].wake_up();
    others[0].wake_up();
    let seen = attachment.wait_until(Wait::Block, || {
        assert!(reader.try_begin_get().unwrap().is_none());
        own[0].wants().then(|| others[0].wants())
    });
    assert_eq!(seen, Ok(false));
}

#[test]
fn a_reader_reads_what_was_put_before_it_is_notified_of_the_end() {
    let (attachment, mut fake) = attach();
    let (mut reader, mut port) = reader(&attachment, &fake);
    assert!(reader.try_begin_get().unwrap().is_none());
    let (mut forward, mut back) = block(&fake).for_writer().unwrap();
    fake.fill(false, 64, b"first second");
    forward.push(message(0, 64, 5, 0));
    port.send(Descriptor { op: down::DIRECT_PAUSE, ..Descriptor::default() });
    port.send(message(0, 70, 6, 0));
    let first = reader.begin_get(now()).unwrap();
    assert_eq!(*first, *b"first");
    assert_eq!(*reader.begin_get(now()).unwrap(), *b"second");
    // Behind what the core sent, until that is over.
    forward.push(message(1, 64, 5, 0));
    assert!(reader.try_begin_get().unwrap().is_none());
    port.send(Descriptor { op: down::DIRECT_END, ..Descriptor::default() });
    let last = reader.begin_get(now()).unwrap();
    reader.end_get(first);
    assert_eq!(back.pop().map(|entry| (entry.op, entry.slot, entry.generation)), Some((up::FREE, 0, 100)));
    assert!(reader.try_begin_get().unwrap().is_none());
    // One was dropped; only now is nothing of it in hand.
    while fake.pop().is_some() {}
    assert_eq!(fake.lane.lock().unwrap().take_calls(), None);
    drop(last);
    let dropped = fake.next_signal().head;
    assert_eq!((dropped.op, dropped.slot), (up::FREE_OF_PORT, 1 + SLOTS as u16));
    assert!(reader.try_begin_get().unwrap().is_none());
    let calls = Calls { wakes: 0, dones: 1 << 3 };
    assert_eq!(fake.lane.lock().unwrap().take_calls(), Some(calls));
}

/// Gives slots back, by one entry.
fn free_many(slots: &[u16]) -> Descriptor {
    let mut freed = Regrants::default();
    slots.iter().for_each(|&slot| freed.add(slot));
    freed.entry(up::FREE_MANY)
}

#[test]
fn messages_of_a_burst_go_back_together_and_are_the_writers_again() {
    let (attachment, fake) = attach();
    let (mut reader, _read_port) = reader(&attachment, &fake);
    assert!(reader.try_begin_get().unwrap().is_none());
    let (mut forward, mut back) = block(&fake).for_writer().unwrap();
    for _ in 0..2 {
        (0..20).for_each(|slot| forward.push(message(slot, 64 * u32::from(slot), 8, 0)));
        assert_eq!(reader.get_many(32, now()).unwrap().len(), 20);
        let slots: Vec<u16> = (0..20).collect();
        assert_eq!([back.pop(), back.pop()], [&slots[..13], &slots[13..]].map(|slots| Some(free_many(slots))));
        assert!(back.pop().is_none());
    }
    let (attachment, fake) = attach();
    let (mut writer, _write_port) = writer(&attachment, &fake);
    let (mut forward, mut back) = block(&fake).for_reader().unwrap();
    for _ in 0..3 {
        put(&mut writer, b"one");
        put(&mut writer, b"two");
        let slots = [forward.pop().unwrap().slot, forward.pop().unwrap().slot];
        assert_eq!(writer.begin_put(1, now()).unwrap_err(), MailboxError::TimedOut);
        back.push(free_many(&slots));
    }
}

#[test]
fn entries_that_the_other_end_cannot_have_end_the_mailbox_and_nothing_else() {
    let wrong = [
        Descriptor { op: up::FREE, slot: 0, generation: 99, ..Descriptor::default() },
        Descriptor { op: up::FREE, slot: 7, generation: 107, ..Descriptor::default() },
        Descriptor { op: up::FREE, slot: u16::MAX, ..Descriptor::default() },
        Descriptor { op: up::ENQUEUE, slot: 1, generation: 101, ..Descriptor::default() },
        // Of several slots, where slot 1 is with the reader: ones that never were, none, and more than an entry holds.
        free_many(&[5]),
        free_many(&[7, 1]),
        free_many(&[]),
        Descriptor { slot: 14, ..free_many(&[1]) },
    ];
    let spoilt = MailboxError::Closed { reason: Reason::Violation };
    for entry in wrong {
        let (attachment, fake) = attach();
        let (mut writer, _port) = writer(&attachment, &fake);
        put(&mut writer, b"one");
        let (mut forward, mut back) = block(&fake).for_reader().unwrap();
        assert_eq!(forward.pop().unwrap().slot, 1);
        back.push(entry);
        let refused = (0..3).find_map(|_| match writer.begin_put(1, now()) {
            Ok(put) => writer.end_put(put).err(),
            Err(error) => Some(error),
        });
        assert_eq!(refused, Some(spoilt.clone()), "{entry:?}");
        assert!(!attachment.is_gone());
    }
    let wrong = [
        message(0, SEGMENT_BYTES, 1, 0),
        message(0, u32::MAX, u32::MAX, 0),
        message(SLOTS as u16, 0, 1, 0),
        Descriptor { op: down::GRANT, ..message(0, 0, 1, 0) },
    ];
    for entry in wrong {
        let (attachment, fake) = attach();
        let (mut reader, _port) = reader(&attachment, &fake);
        let (mut forward, _) = block(&fake).for_writer().unwrap();
        forward.push(entry);
        assert_eq!(reader.begin_get(now()).unwrap_err(), spoilt, "{entry:?}");
        assert!(!attachment.is_gone());
    }
    // One that is in hand.
    let (attachment, fake) = attach();
    let (mut reader, _port) = reader(&attachment, &fake);
    let (mut forward, _) = block(&fake).for_writer().unwrap();
    forward.push(message(0, 0, 8, 0));
    forward.push(message(0, 64, 8, 0));
    let held = reader.begin_get(now()).unwrap();
    assert_eq!(reader.begin_get(now()).unwrap_err(), spoilt);
    assert_eq!(held.len(), 8);
    assert!(!attachment.is_gone());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the other end writes into the block, at any time: what is in hand stays inside the segment and apart from what
    /// else this side has to write, and the attachment lives.
    #[test]
    fn garbage_in_the_block_ends_the_mailbox_at_worst(
        steps in prop::collection::vec((0u8..6, 0usize..DirectLayout::BYTES / 8, any::<u64>(), 0u8..3), 1..120),
    ) {
        let (attachment, fake) = attach();
        let (mut writer, _write_port) = writer(&attachment, &fake);
        let (mut reader, _read_port) = reader(&attachment, &fake);
        let (mut puts, mut messages) = (Vec::new(), Vec::new());
        for (step, word, value, likely) in steps {
            match step {
                0 => if let Ok(put) = writer.begin_put(16, now()) { puts.push(put); },
                1 => if let Some(put) = puts.pop() { let _ended = writer.end_put(put); },
                2 => if let Ok(message) = reader.begin_get(now()) { messages.push(message); },
                3 => if let Some(message) = messages.pop() { reader.end_get(message); },
                _ => {
                    // Words that pass for entries of the first lap, now and then.
                    let value = match likely {
                        0 => value,
                        1 => 1 | u64::from(up::FREE) << 8 | (value & 1) << 16 | (100 + (value & 1)) << 32,
                        _ => 1 | u64::from(down::MESSAGE) << 8 | (value & 3) << 16 | (value & 0xffff) << 32,
                    };
                    fake.fill(false, BLOCK + 8 * word as u32, &value.to_le_bytes());
                }
            }
            prop_assert!(puts.len() <= 2);
            prop_assert!(messages.iter().all(|message| message.len() <= SEGMENT_BYTES as usize));
            let read: u64 = messages.iter().flat_map(|message| message.first()).map(|byte| u64::from(*byte)).sum();
            std::hint::black_box(read);
            puts.iter_mut().for_each(|put| put.fill(7));
            prop_assert!(!attachment.is_gone());
        }
    }
}
