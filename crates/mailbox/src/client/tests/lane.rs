//! The lane: what the core passes is taken in the order in which it was written, by whom it is for, and once.

use super::*;
use crate::shared::up;

/// Has the fake pass an entry of a port, which it may.
fn pass(fake: &Fake, port: u16, after: u64, head: Descriptor) {
    let passed = Passed { signal: Signal { head, ..Signal::default() }, port, after: after as u32 };
    assert!(fake.lane.lock().unwrap().pass(&passed));
    fake.arrivals.signal_if_asleep();
}

/// Gives the lane to the fake, by a put.
fn give_lane(writer: &mut super::super::Writer, port: &mut FakePort, slot: u16) {
    port.send(grant(slot, 0, 64));
    let put = writer.begin_put(8, Wait::Block).unwrap();
    writer.end_put(put).unwrap();
    assert_eq!(port.next().op, up::PUT);
    assert!(port.lane.lock().unwrap().is_ours());
}

#[test]
fn messages_come_in_order_by_either_way() {
    let (attachment, fake) = attach();
    let (mut writer, mut out) = (attachment.writer(3, Some(2)).unwrap(), fake.port(2));
    let (mut reader, mut port) = (attachment.reader(4, Some(3)).unwrap(), fake.port(3));
    let mut numbers = 0..;
    let mut sent = 0;
    for round in 0..300u16 {
        give_lane(&mut writer, &mut out, round % 256);
        let (before, behind) = (round % 3, round % 5);
        let next = |len: u32| message(len as u16 % 256, 0, len % 1000, 0);
        for _ in 0..before {
            port.send(next(sent));
            sent += 1;
        }
        pass(&fake, 3, port.down.position(), next(sent));
        sent += 1;
        for _ in 0..behind {
            port.send(next(sent));
            sent += 1;
        }
        for number in numbers.by_ref().take((before + 1 + behind).into()) {
            let message = reader.begin_get(Wait::Block).unwrap();
            assert_eq!(message.len() as u32, number % 1000);
            reader.end_get(message);
            assert_eq!(port.next().op, up::FREE);
        }
        assert!(reader.try_begin_get().unwrap().is_none());
    }
}

#[test]
fn the_side_that_took_the_last_lane_entry_passes_the_next() {
    let (attachment, fake) = attach();
    let (mut writer, mut out) = (attachment.writer(3, Some(2)).unwrap(), fake.port(2));
    let (mut reader, port) = (attachment.reader(4, Some(3)).unwrap(), fake.port(3));
    give_lane(&mut writer, &mut out, 0);
    // The lane is the core's: a ring takes it.
    out.send(grant(1, 0, 64));
    let put = writer.begin_put(8, Wait::Block).unwrap();
    writer.end_put(put).unwrap();
    assert!(out.up.is_ready() && out.lane.lock().unwrap().is_ours());
    assert_eq!(out.next().slot, 1);
    pass(&fake, 3, 0, message(0, 0, 5, 0));
    // Another thread takes what was passed; this one has no lane from then on.
    let (reader, message) = std::thread::spawn(move || {
        let message = reader.begin_get(Wait::Block).unwrap();
        (reader, message)
    })
    .join()
    .unwrap();
    out.send(grant(2, 0, 64));
    let put = writer.begin_put(8, Wait::Block).unwrap();
    writer.end_put(put).unwrap();
    assert!(out.up.is_ready());
    assert_eq!(out.next().slot, 2);
    drop((reader, message, port));
}

#[test]
fn a_sync_is_written_over_the_lane_once_and_also_if_it_was_cancelled() {
    let (attachment, mut fake) = attach();
    for round in 0..600u64 {
        let mut sync = attachment.alloc_sync().unwrap();
        attachment.write_sync(sync.address(), round).unwrap();
        let asked = fake.next_signal();
        assert_eq!((asked.head.op, asked.a, asked.b), (up::SYNC_WRITE, sync.address().to_word(), round));
        let head = Descriptor { op: down::SYNC, ..Descriptor::default() };
        let signal = Signal { head, a: sync.address().to_word(), b: round };
        if round % 3 == 0 {
            sync.cancel();
            assert!(fake.lane.lock().unwrap().pass(&Passed { signal, port: u16::MAX, after: 0 }));
            continue;
        }
        assert_eq!(sync.try_read(), Ok(None));
        assert!(fake.lane.lock().unwrap().pass(&Passed { signal, port: u16::MAX, after: 0 }));
        assert_eq!(sync.try_read(), Ok(Some(round)));
        assert_eq!(sync.try_read().unwrap_err(), MailboxError::SyncRead);
    }
}

#[test]
fn messages_for_a_closed_port_are_released() {
    let (attachment, fake) = attach();
    let (mut writer, mut out) = (attachment.writer(3, Some(2)).unwrap(), fake.port(2));
    let reader = attachment.reader(4, Some(3)).unwrap();
    give_lane(&mut writer, &mut out, 0);
    pass(&fake, 3, 0, message(0, 0, 5, 0));
    drop(reader);
    fake.lane.lock().unwrap().void(3);
    let mut reader = attachment.reader(5, Some(3)).unwrap();
    assert!(reader.try_begin_get().unwrap().is_none());
    give_lane(&mut writer, &mut out, 1);
    pass(&fake, 3, 0, message(1, 0, 6, 0));
    assert_eq!(reader.begin_get(Wait::Block).unwrap().len(), 6);
}
