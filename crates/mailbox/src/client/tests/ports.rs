//! Writers and readers over rings.

use super::*;
use crate::client::{Reader, Writer};
use crate::shared::{ArmedFlag, Regrants, up};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, shutdown};

fn writer(attachment: &Attachment, fake: &Fake) -> (Writer, FakePort) {
    (attachment.writer(9, Some(2)).unwrap(), fake.port(2))
}

fn reader(attachment: &Attachment, fake: &Fake) -> (Reader, FakePort) {
    (attachment.reader(8, Some(3)).unwrap(), fake.port(3))
}

#[test]
fn a_put_goes_into_the_granted_bytes_and_names_its_slot() {
    let (attachment, fake) = attach();
    let (mut writer, mut port) = writer(&attachment, &fake);
    assert!(writer.try_begin_put(4).unwrap().is_none());
    for slot in 0..3 {
        port.send(grant(slot, 4096 * u32::from(slot), 4096));
    }
    let mut puts: Vec<_> = (0..3).map(|_| writer.begin_put(8, now()).unwrap()).collect();
    assert_eq!(writer.begin_put(8, now()).unwrap_err(), MailboxError::TimedOut);
    for (put, text) in puts.iter_mut().zip([b"first..1", b"second.2", b"third..3"]) {
        put.copy_from_slice(text);
    }
    // Ended in another order than begun: that is the order of the mailbox.
    let mut second = puts.remove(1);
    second.adjust(0, 2).unwrap();
    second.adjust(1, 0).unwrap();
    writer.end_put(second).unwrap();
    let entry = port.next();
    assert_eq!((entry.op, entry.len, entry.generation), (up::PUT, 5, entry.slot + 100));
    assert_eq!(entry.offset, 4096 * u32::from(entry.slot) + 1);
    assert_eq!(fake.bytes_at(entry.offset, 5), b"econd");
    writer.enqueue(puts.pop().unwrap(), 44).unwrap();
    let entry = port.next();
    assert_eq!((entry.op, entry.target, entry.len), (up::ENQUEUE, 44, 8));
    assert_eq!(fake.bytes_at(entry.offset, 8), b"third..3");
    assert!(port.pop().is_none());
}

#[test]
fn a_larger_put_is_asked_for_once_and_what_comes_late_is_used() {
    let (attachment, fake) = attach();
    let (mut writer, mut port) = writer(&attachment, &fake);
    // The number of buffers granted ahead is not known before the first grant: nothing is asked for.
    assert_eq!(writer.begin_put(10_000, now()).unwrap_err(), MailboxError::TimedOut);
    assert!(port.pop().is_none());
    port.send(grant(0, 0, 4096));
    assert_eq!(writer.begin_put(10_000, now()).unwrap_err(), MailboxError::TimedOut);
    let request = Descriptor { op: up::REQUEST, len: 10_000, ..Descriptor::default() };
    assert_eq!(port.next(), request);
    // Asked for already.
    assert_eq!(writer.begin_put(9000, now()).unwrap_err(), MailboxError::TimedOut);
    assert!(writer.try_begin_put(10_000).unwrap().is_none());
    assert!(port.pop().is_none());
    port.send(grant(1, 65_536, 12_288));
    let put = writer.begin_put(9000, now()).unwrap();
    assert_eq!(put.len(), 9000);
    writer.end_put(put).unwrap();
    assert_eq!((port.next().offset, port.pop()), (65_536, None));
    // One that comes when a small one is wanted goes home.
    assert_eq!(writer.begin_put(10_000, now()).unwrap_err(), MailboxError::TimedOut);
    assert_eq!(port.next(), request);
    let small = writer.begin_put(1, now()).unwrap();
    port.send(grant(2, 65_536, 12_288));
    assert_eq!(writer.begin_put(1, now()).unwrap_err(), MailboxError::TimedOut);
    let freed = port.next();
    assert_eq!((freed.op, freed.slot), (up::FREE, 2));
    // One that is too small for what is wanted now goes home, and another one is asked for.
    assert_eq!(writer.begin_put(10_000, now()).unwrap_err(), MailboxError::TimedOut);
    assert_eq!(port.next(), request);
    port.send(grant(3, 65_536, 12_288));
    assert_eq!(writer.begin_put(20_000, now()).unwrap_err(), MailboxError::TimedOut);
    assert_eq!((port.next().slot, port.next()), (3, Descriptor { len: 20_000, ..request }));
    writer.end_put(small).unwrap();
    assert_eq!(port.next().op, up::PUT);
}

#[test]
fn a_larger_put_that_is_withdrawn_is_given_back_when_it_is_there() {
    let (attachment, fake) = attach();
    let (mut writer, mut port) = writer(&attachment, &fake);
    port.send(grant(0, 0, 4096));
    // It came before.
    assert_eq!(writer.begin_put(10_000, now()).unwrap_err(), MailboxError::TimedOut);
    assert_eq!(port.next().op, up::REQUEST);
    port.send(grant(1, 8192, 10_000));
    writer.check().unwrap();
    writer.withdraw();
    assert_eq!((port.next().op, port.pop()), (up::FREE, None));
    // It comes after, while the usual ones do too.
    assert_eq!(writer.begin_put(10_000, now()).unwrap_err(), MailboxError::TimedOut);
    assert_eq!(port.next().op, up::REQUEST);
    writer.withdraw();
    writer.withdraw();
    assert_eq!((port.next().op, port.pop()), (up::WITHDRAW, None));
    port.send(grant(2, 4096, 4096));
    port.send(grant(3, 8192, 10_000));
    writer.check().unwrap();
    let entry = port.next();
    assert_eq!((entry.op, entry.slot, port.pop()), (up::FREE, 3, None));
    // Or it is wanted again before it is known to be given up.
    assert_eq!(writer.begin_put(10_000, now()).unwrap_err(), MailboxError::TimedOut);
    assert_eq!(port.next().op, up::REQUEST);
    writer.withdraw();
    assert_eq!(port.next().op, up::WITHDRAW);
    assert_eq!(writer.begin_put(9000, now()).unwrap_err(), MailboxError::TimedOut);
    assert!(port.pop().is_none());
    port.send(refused(Reason::Cancelled));
    assert_eq!(writer.begin_put(9000, now()).unwrap_err(), MailboxError::TimedOut);
    assert_eq!((port.next().len, port.pop()), (9000, None));
    port.send(grant(1, 8192, 10_000));
    assert_eq!(writer.begin_put(9000, now()).unwrap().len(), 9000);
    writer.withdraw();
    assert_eq!(writer.begin_put(4096, now()).unwrap().len(), 4096);
}

#[test]
fn the_refusal_of_a_try_that_was_withdrawn_is_not_that_of_a_put_that_waits() {
    let (attachment, fake) = attach();
    let (mut writer, mut port) = writer(&attachment, &fake);
    port.send(grant(0, 0, 64));
    writer.interrupter().interrupt();
    assert_eq!(writer.try_begin_put(10_000).unwrap_err(), MailboxError::Interrupted);
    assert_eq!((port.next().target, port.pop()), (1, None));
    writer.withdraw();
    assert_eq!(writer.begin_put(10_000, now()).unwrap_err(), MailboxError::TimedOut);
    port.send(refused(Reason::Full));
    assert_eq!(writer.begin_put(10_000, now()).unwrap_err(), MailboxError::TimedOut);
    let request = port.next();
    assert_eq!((request.op, request.target), (up::REQUEST, 0));
    port.send(grant(1, 8192, 10_000));
    assert_eq!(writer.begin_put(10_000, now()).unwrap().len(), 10_000);
}

#[test]
fn refusals_of_larger_puts_say_why() {
    let (attachment, fake) = attach();
    let (mut writer, mut port) = writer(&attachment, &fake);
    port.send(grant(0, 0, 64));
    assert!(matches!(writer.begin_put(usize::MAX, Wait::Block), Err(MailboxError::TooLong { most: 16_777_216, .. })));
    for (reason, expected) in [
        (Reason::Full, None),
        (Reason::Quota, Some(MailboxError::Quota)),
        (Reason::NoBuffers, Some(MailboxError::NoBuffers)),
    ] {
        let answer = std::thread::spawn(move || {
            assert_eq!(port.next().target, 1, "rather refused than left waiting");
            port.send(refused(reason));
            port
        });
        assert_eq!(writer.try_begin_put(65).err(), expected);
        port = answer.join().unwrap();
    }
    let answer = std::thread::spawn(move || {
        assert_eq!(port.next().target, 0);
        port.send(Descriptor { len: 1000, ..refused(Reason::TooLong) });
    });
    assert_eq!(writer.begin_put(1001, Wait::Block).unwrap_err(), MailboxError::TooLong { bytes: 1001, most: 1000 });
    answer.join().unwrap();
    // The small one is still there.
    assert_eq!(writer.begin_put(64, now()).unwrap().len(), 64);
}

#[test]
fn messages_are_read_where_they_lie_and_ended_once() {
    let (attachment, fake) = attach();
    let (mut reader, mut port) = reader(&attachment, &fake);
    fake.fill(false, 100, b"in the domain");
    fake.fill(true, 100, b"from elsewhere");
    port.send(message(0, 100, 13, 0));
    port.send(message(1, 100, 14, 1 | 77 << 1));
    let first = reader.begin_get(now()).unwrap();
    let mut second = reader.try_begin_get().unwrap().unwrap();
    assert_eq!((&first[..], first.label()), (&b"in the domain"[..], 0));
    assert_eq!((&second[..], second.label()), (&b"from elsewhere"[..], 77));
    assert!(reader.try_begin_get().unwrap().is_none());
    second.adjust(5, 0).unwrap();
    reader.enqueue(second, 3).unwrap();
    let entry = port.next();
    assert_eq!((entry.op, entry.slot, entry.target, entry.offset, entry.len), (up::ENQUEUE, 1, 3, 105, 9));
    reader.end_get(first);
    let entry = port.next();
    assert_eq!((entry.op, entry.slot, entry.generation), (up::FREE, 0, 100));
    assert!(port.pop().is_none());
}

#[test]
fn dropping_from_any_thread_goes_over_the_signal_queue() {
    let (attachment, mut fake) = attach();
    let ((mut writer, mut write_port), (mut reader, mut read_port)) =
        (writer(&attachment, &fake), reader(&attachment, &fake));
    write_port.send(grant(5, 0, 64));
    read_port.send(message(6, 0, 64, 0));
    let put = writer.begin_put(64, now()).unwrap();
    let message = reader.begin_get(now()).unwrap();
    std::thread::spawn(move || drop((put, message))).join().unwrap();
    for (slot, port) in [(5, 2), (6, 3)] {
        let head = fake.next_signal().head;
        assert_eq!((head.op, head.slot, head.generation, head.target), (up::FREE_OF_PORT, slot, slot + 100, port));
    }
    assert!(write_port.pop().is_none() && read_port.pop().is_none());
    // So does a message that is ended by another reader than its own.
    read_port.send(super::message(7, 0, 64, 0));
    let message = reader.begin_get(now()).unwrap();
    attachment.reader(5, Some(5)).unwrap().end_get(message);
    assert_eq!(fake.next_signal().head.slot, 7);
}

#[test]
fn a_sleeper_wakes_for_a_grant_and_for_a_message() {
    let (attachment, fake) = attach();
    let ((mut writer, mut write_port), (mut reader, mut read_port)) =
        (writer(&attachment, &fake), reader(&attachment, &fake));
    for round in 0..50 {
        let write = std::thread::spawn(move || {
            let put = writer.begin_put(1, Wait::Block).unwrap();
            writer.end_put(put).unwrap();
            writer
        });
        let read = std::thread::spawn(move || {
            let message = reader.begin_get(Wait::Until(Instant::now() + Duration::from_secs(3600))).unwrap();
            reader.end_get(message);
            reader
        });
        // Both asleep, or not yet: it must not matter.
        if round % 2 == 0 {
            eventually(|| fake.arrivals.has_sleepers().then_some(()));
        }
        write_port.send(grant(round, 0, 64));
        read_port.send(message(round, 0, 64, 0));
        (writer, reader) = (write.join().unwrap(), read.join().unwrap());
        assert_eq!((write_port.next().slot, read_port.next().slot), (round, round));
    }
}

#[test]
fn messages_put_before_a_mailbox_ends_are_still_read() {
    let (attachment, fake) = attach();
    let ((mut writer, mut write_port), (mut reader, mut read_port)) =
        (writer(&attachment, &fake), reader(&attachment, &fake));
    let closed = Descriptor { op: down::CLOSED, target: Reason::Closed.code(), ..Descriptor::default() };
    read_port.send(message(0, 0, 1, 0));
    read_port.send(closed);
    write_port.send(grant(0, 0, 64));
    let put = writer.begin_put(1, now()).unwrap();
    write_port.send(grant(1, 64, 64));
    write_port.send(closed);
    let message = reader.begin_get(Wait::Block).unwrap();
    let is_closed = |error| error == MailboxError::Closed { reason: Reason::Closed };
    for _ in 0..2 {
        assert!(is_closed(reader.begin_get(Wait::Block).unwrap_err()));
        assert!(is_closed(reader.try_begin_get().unwrap_err()));
        assert!(is_closed(writer.begin_put(1, Wait::Block).unwrap_err()));
        assert!(is_closed(writer.try_begin_put(1).unwrap_err()));
    }
    assert!(is_closed(writer.end_put(put).unwrap_err()));
    reader.end_get(message);
    assert_eq!(read_port.next().op, up::FREE);
}

#[test]
fn garbage_from_the_daemon_ends_the_attachment_and_nothing_else() {
    let outside = [(0, SEGMENT_BYTES + 1), (SEGMENT_BYTES, 1), (u32::MAX, u32::MAX), (1, SEGMENT_BYTES)];
    let ranges = |op| outside.map(|(offset, len)| Descriptor { op, offset, len, ..Descriptor::default() });
    let mut wrong: Vec<Descriptor> = ranges(down::GRANT).to_vec();
    wrong.extend(ranges(down::MESSAGE));
    wrong.extend(ranges(down::MESSAGE).map(|entry| Descriptor { target: 1, ..entry }));
    wrong.extend([0, down::DIRECT_END, 26, 27, 255].map(|op| Descriptor { op, ..Descriptor::default() }));
    // Direct rings that do not lie in the segment, or not as words do.
    wrong.extend([SEGMENT_BYTES - 64, u32::MAX, 4].map(|offset| Descriptor {
        op: down::DIRECT,
        offset,
        ..Descriptor::default()
    }));
    // Slots that there are not.
    for op in [down::GRANT, down::MESSAGE] {
        wrong.extend([256, u16::MAX].map(|slot| Descriptor { op, slot, len: 1, ..Descriptor::default() }));
    }
    // Answers to what was not asked.
    wrong.push(refused(Reason::Full));
    for entry in wrong {
        let (attachment, fake) = attach();
        let ((mut writer, mut write_port), (mut reader, mut read_port)) =
            (writer(&attachment, &fake), reader(&attachment, &fake));
        if entry.op != down::MESSAGE {
            write_port.send(entry);
            let error = writer.begin_put(1, Wait::Block).unwrap_err();
            assert!(is_gone(&error, "broke the protocol"), "{entry:?}: {error}");
        }
        if entry.op != down::GRANT {
            read_port.send(entry);
            let error = reader.begin_get(Wait::Block).unwrap_err();
            assert!(is_gone(&error, "broke the protocol"), "{entry:?}: {error}");
        }
        assert!(attachment.is_gone());
        assert!(is_gone(&writer.try_begin_put(1).unwrap_err(), "protocol"));
        assert!(is_gone(&attachment.alloc_sync().unwrap().read(Wait::Block).unwrap_err(), "protocol"));
    }
}

#[test]
fn a_slot_that_is_in_hand_is_not_handed_over_again() {
    for op in [down::GRANT, down::MESSAGE] {
        let (attachment, fake) = attach();
        let entry = Descriptor { op, slot: 9, len: 64, ..Descriptor::default() };
        let ((mut writer, mut write_port), (mut reader, mut read_port)) =
            (writer(&attachment, &fake), reader(&attachment, &fake));
        let port = if op == down::GRANT { &mut write_port } else { &mut read_port };
        port.send(entry);
        port.send(entry);
        let error = match op {
            down::GRANT => writer.begin_put(1, Wait::Block).map(drop).unwrap_err(),
            _ => {
                let _held = reader.begin_get(Wait::Block).unwrap();
                reader.begin_get(Wait::Block).map(drop).unwrap_err()
            }
        };
        assert!(is_gone(&error, "broke the protocol"), "{error}");
    }
}

/// Grants slots again, by one entry.
fn regrant(slots: &[u16]) -> Descriptor {
    let mut regrants = Regrants::default();
    slots.iter().for_each(|&slot| regrants.add(slot));
    regrants.entry(down::REGRANT)
}

#[test]
fn a_slot_that_is_granted_again_has_its_last_buffer() {
    let (attachment, fake) = attach();
    let (mut writer, mut port) = writer(&attachment, &fake);
    for slot in 0..16 {
        port.send(grant(slot, u32::from(slot) * 64, 64));
    }
    for life in 0..3 {
        let mut puts: Vec<_> = (0..16).map(|_| writer.begin_put(64, now()).unwrap()).collect();
        // Neither what is left out nor what is put shorter is missing later.
        puts.iter_mut().for_each(|put| put.adjust(5, 7).unwrap());
        let mut slots = Vec::new();
        for put in puts {
            writer.end_put(put).unwrap();
            let entry = port.next();
            assert_eq!((entry.op, entry.len, entry.offset), (up::PUT, 52, u32::from(entry.slot) * 64 + 5));
            assert_eq!(entry.generation, entry.slot + 100 + life, "each is one life later");
            slots.push(entry.slot);
        }
        port.send(regrant(&slots[..13]));
        port.send(regrant(&slots[13..]));
    }
}

#[test]
fn no_slot_is_granted_again_that_is_in_hand_or_never_was() {
    let full = regrant(&[0; 13]);
    let entries = [regrant(&[1]), regrant(&[0]), regrant(&[2, 2]), Descriptor { slot: full.slot + 1, ..full }];
    for (case, entry) in entries.into_iter().enumerate() {
        let (attachment, fake) = attach();
        let (mut writer, mut port) = writer(&attachment, &fake);
        port.send(grant(1, 0, 64));
        port.send(grant(2, 64, 64));
        // The first is in hand, the second is put.
        let second = writer.begin_put(1, now()).unwrap();
        writer.end_put(second).unwrap();
        let _first = writer.begin_put(1, now()).unwrap();
        port.send(entry);
        let error = writer.begin_put(1, Wait::Block).map(drop).unwrap_err();
        assert!(is_gone(&error, "broke the protocol"), "{case}: {error}");
    }
}

#[test]
fn a_hang_up_wakes_everyone_with_the_daemons_reason() {
    for farewell in [true, false] {
        let (attachment, fake) = attach();
        let ((mut writer, _), (mut reader, _)) = (writer(&attachment, &fake), reader(&attachment, &fake));
        let (sync, condition) = (attachment.alloc_sync().unwrap(), attachment.condition().unwrap());
        let caller = attachment.clone();
        let seen = condition.value();
        let mut asleep = vec![
            std::thread::spawn(move || writer.begin_put(1, Wait::Block).map(drop)),
            std::thread::spawn(move || reader.begin_get(Wait::Poll).map(drop)),
            std::thread::spawn(move || condition.wait(seen, Wait::Block).map(drop)),
            std::thread::spawn(move || caller.call(1, 2, Wait::Block).map(drop)),
        ];
        let mut sync = sync;
        asleep.push(std::thread::spawn(move || sync.read(Wait::Block).map(drop)));
        eventually(|| fake.arrivals.has_sleepers().then_some(()));
        if farewell {
            let farewell = crate::attach::Farewell { again: false, reason: "you are too loud".to_owned() };
            farewell.say(std::os::fd::AsFd::as_fd(&fake.prepared.socket));
        }
        shutdown(&fake.prepared.socket, Shutdown::Both).unwrap();
        for asleep in asleep {
            let error = asleep.join().unwrap().unwrap_err();
            assert!(is_gone(&error, if farewell { "too loud" } else { "ended without a word" }), "{error}");
            assert!(matches!(error, MailboxError::Gone { again, .. } if again != farewell));
        }
        assert!(attachment.is_gone() && attachment.gone().is_some());
        assert!(attachment.write_sync(attachment.alloc_sync().unwrap().address(), 1).is_err());
    }
}

#[test]
fn the_session_is_given_out_once_and_ports_to_one_owner() {
    let (attachment, fake) = attach();
    let (mut writer, mut reader) = attachment.session().unwrap();
    assert!(attachment.session().is_none());
    let (mut out, mut into) = (fake.port(0), fake.port(1));
    out.send(grant(0, 0, 64));
    into.send(message(0, 64, 1, 1 | 5 << 1));
    let put = writer.begin_put(1, now()).unwrap();
    writer.end_put(put).unwrap();
    assert_eq!(out.next().op, up::PUT);
    assert_eq!(reader.begin_get(now()).unwrap().label(), 5);
    drop((writer, reader));
    assert!(attachment.session().is_none(), "the session has one life");
    let first = attachment.writer(1, Some(4)).unwrap();
    assert_eq!(attachment.reader(2, Some(4)).unwrap_err(), MailboxError::PortTaken { port: 4 });
    assert_eq!(attachment.writer(2, Some(64)).unwrap_err(), MailboxError::PortTaken { port: 64 });
    assert_eq!(attachment.writer(2, Some(u16::MAX)).unwrap_err(), MailboxError::PortTaken { port: u16::MAX });
    drop(first);
    assert!(attachment.reader(2, Some(4)).is_ok());
}

#[test]
fn an_event_loop_is_woken_once_for_each_time_it_asks() {
    let (attachment, fake) = attach();
    let (mut reader, mut port) = reader(&attachment, &fake);
    let armed = ArmedFlag::new(&fake.prepared.control).unwrap();
    let is_readable = |wait: bool| {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut polled = [PollFd::new(&attachment, PollFlags::IN)];
        poll(&mut polled, if wait { None } else { Some(&zero) }).unwrap() > 0
    };
    let wake = |fake: &Fake| {
        if armed.take() {
            fake.prepared.wake.wake();
        }
    };
    port.send(message(0, 0, 1, 0));
    wake(&fake);
    assert!(!is_readable(false), "nobody asked");
    attachment.arm();
    assert!(reader.try_begin_get().unwrap().is_some(), "what came before is found by trying once more");
    for slot in 1..4 {
        port.send(message(slot, 0, 1, 0));
        wake(&fake);
    }
    assert!(is_readable(true));
    attachment.arm();
    assert!(!is_readable(false), "arming clears what was there");
    while reader.try_begin_get().unwrap().is_some() {}
    drop(fake);
    assert!(is_readable(true), "the daemon is gone");
}

#[test]
fn a_side_is_unused_once_all_of_it_is_dropped() {
    let (attachment, fake) = attach();
    let unused = Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = unused.clone();
    attachment.on_unused(move |number| noted.lock().unwrap().push(number));
    let (mut reader, mut port) = reader(&attachment, &fake);
    for slot in 0..3 {
        port.send(message(slot, 0, 1, 0));
    }
    let messages: Vec<_> = (0..3).map(|_| reader.begin_get(now()).unwrap()).collect();
    drop(reader);
    let mut messages = messages.into_iter();
    drop(messages.next());
    std::thread::spawn(move || {
        drop(messages.next());
        messages.next()
    })
    .join()
    .map(|last| {
        assert!(unused.lock().unwrap().is_empty());
        drop(last);
    })
    .unwrap();
    assert_eq!(*unused.lock().unwrap(), [8]);
    drop(attachment.session());
    drop(attachment.writer(11, None).unwrap());
    assert_eq!(*unused.lock().unwrap(), [8, 11], "a session's sides end with the attachment");
}
