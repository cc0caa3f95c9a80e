//! A client must not keep the core from the others: each gets its answer within a bounded number of looks.

use super::*;

/// Polls until every client has been answered.
const LOOKS: u32 = 20_000;

/// Sends a call over the signal queue; where its result goes.
fn call(client: &mut RawClient, key: ClientKey, generation: u16) -> u64 {
    let sync = client.alloc_sync(key, 0, generation).unwrap();
    client.push_signal((CALL, 0, 0, 0, 0, 0), sync, 0);
    sync
}

/// Lets the core look until `client` was called for, answering whatever else comes by `other`. The number of looks.
fn looks_until_called(
    world: &mut World,
    client: ClientKey,
    all: bool,
    mut other: impl FnMut(&mut World, Arrival),
) -> u32 {
    for look in 0..LOOKS {
        let arrival = if all { world.host.poll() } else { world.host.poll_active() };
        match arrival {
            Some(Arrival::Call { client: who, .. }) if who == client => return look,
            Some(arrival) => other(world, arrival),
            None => {
                world.host.end_look();
            }
        }
    }
    panic!("it was not answered in {LOOKS} looks")
}

#[test]
fn a_client_that_was_silent_is_heard_beside_two_that_never_pause() {
    for all in [false, true] {
        let mut world = World::new(1);
        let (mut silent, silent_key) = world.attach(0);
        let mut busy = [world.attach(0), world.attach(0)];
        // Long enough for its rings to be set aside.
        (0..10_000).for_each(|_| assert!(world.host.poll_active().is_none()));
        let syncs = busy.each_mut().map(|(client, key)| {
            let sync = call(client, *key, 1);
            (0..20).for_each(|_| client.push_signal((CALL, 0, 0, 0, 0, 0), sync, 0));
            sync
        });
        call(&mut silent, silent_key, 1);
        let looks = looks_until_called(&mut world, silent_key, all, |_, arrival| {
            let Arrival::Call { client, .. } = arrival else { panic!("{arrival:?}") };
            let at = busy.iter().position(|(_, key)| *key == client).unwrap();
            busy[at].0.push_signal((CALL, 0, 0, 0, 0, 0), syncs[at], 0);
        });
        assert!(looks < 500, "{looks} looks, all: {all}");
    }
}

#[test]
fn upcalls_that_put_to_one_another_indefinitely_do_not_keep_the_core_from_the_rings() {
    let mut world = World::new(1);
    let (mut client, key) = world.attach(0);
    for (name, upcall) in [("a", 0), ("b", 1)] {
        world.create(name, Implementation::Rings, 8);
        world.host.attach_upcall(world.host.find(name).unwrap(), upcall).unwrap();
    }
    let other = [world.host.find("b").unwrap(), world.host.find("a").unwrap()];
    world.host.put_bytes(other[0], b"round and round").unwrap();
    call(&mut client, key, 1);
    let looks = looks_until_called(&mut world, key, true, |world, arrival| {
        let Arrival::Upcall { upcall, message, .. } = arrival else { panic!("{arrival:?}") };
        world.host.put(other[upcall as usize], message);
    });
    assert!(looks < 10, "{looks}");
}

#[test]
fn messages_enqueued_before_a_mailbox_is_closed_are_in_it() {
    let mut world = World::new(1);
    let (mut client, key) = world.attach(0);
    let (mut reader, reader_key) = world.attach(0);
    world.create("from", Implementation::Rings, 8);
    world.create("to", Implementation::Rings, 8);
    let (_, out) = world.open(&mut client, key, "from", Side::Write);
    let (number, _) = world.open(&mut client, key, "to", Side::Write);
    let (_, get) = world.open(&mut reader, reader_key, "to", Side::Read);
    let granted = grants(&mut client, out);
    for &(_, slot, generation, _, offset, _) in &granted[..3] {
        client.push(out, (ENQUEUE, slot, generation, number, offset, 5));
    }
    // The request to close goes another way, and is seen first.
    world.host.close(key, number).unwrap();
    world.quiet_turn();
    assert_eq!(std::iter::from_fn(|| reader.next(get)).count(), 3);
    assert!(world.host.client_info(key).is_some(), "nothing was broken");
    // After the closing there is no such mailbox.
    let (_, slot, generation, _, offset, _) = granted[3];
    client.push(out, (ENQUEUE, slot, generation, number, offset, 5));
    assert!(matches!(&world.turn()[..], [Arrival::Violation { .. }]));
}

#[test]
fn a_reader_of_a_mailbox_cannot_enqueue_to_it() {
    let mut world = World::new(1);
    let (mut client, key) = world.attach(0);
    world.create("mine", Implementation::Rings, 8);
    world.create("read", Implementation::Rings, 8);
    let (_, out) = world.open(&mut client, key, "mine", Side::Write);
    let (number, _) = world.open(&mut client, key, "read", Side::Read);
    let (_, slot, generation, _, offset, _) = grants(&mut client, out)[0];
    client.push(out, (ENQUEUE, slot, generation, number, offset, 5));
    let arrivals = world.turn();
    let [Arrival::Violation { reason, .. }] = &arrivals[..] else { panic!("{arrivals:?}") };
    assert!(reason.contains("not open"), "{reason}");
}

#[test]
fn cancelling_over_and_over_costs_no_more_than_what_waits() {
    let mut world = World::new(1);
    let (mut client, key) = world.attach(0);
    world.create("queue", Implementation::SignalQueue, 8);
    let numbers: Vec<u16> = (0..1024)
        .map_while(|_| {
            world.host.open(key, "queue", Side::Read, PortOptions::default()).ok().map(|opened| opened.number)
        })
        .collect();
    assert!(numbers.len() > 1000);
    for tag in 0..256 {
        client.push_signal((GET, 0, 0, numbers[0], 0, 0), tag, 0);
    }
    world.quiet_turn();
    for round in 0..200 {
        (0..500).for_each(|_| client.push_signal((CANCEL, 0, 0, 0, 0, 0), 1 << 40, 0));
        world.quiet_turn();
        if round % 10 == 0 {
            client.push_signal((CANCEL, 0, 0, 0, 0, 0), round, 0);
            world.quiet_turn();
            let (head, tag, _) = client.pop_signal().unwrap();
            assert_eq!((head.0, tag), (REFUSED, round));
        }
    }
}

#[test]
fn writers_that_wait_get_their_buffers_however_many_they_are() {
    let mut world = World::new(1);
    let config = HostConfig { max_mailboxes: 64, ..config() };
    world.host = HostInterface::new(config, DoorbellPage::new().unwrap()).unwrap();
    let (mut client, key) = world.attach(0);
    let (mut reader, reader_key) = world.attach(0);
    let mut ports = Vec::new();
    for number in 0..40 {
        let name = format!("mailbox {number}");
        world.create(&name, Implementation::Rings, 1);
        let options = PortOptions { message_bytes: Some(64), ahead: Some(4) };
        let out = world.host.open(key, &name, Side::Write, options).unwrap().port.unwrap();
        client.begin_port(out);
        let (_, get) = world.open(&mut reader, reader_key, &name, Side::Read);
        // All that was granted ahead is put: from now on it waits for its reader.
        for grant in grants(&mut client, out) {
            put(&mut client, out, grant, b"full");
        }
        ports.push((out, get));
    }
    world.quiet_turn();
    assert!(ports.iter().all(|&(out, _)| grants(&mut client, out).is_empty()));
    for &(_, get) in &ports {
        while let Some((_, slot, generation, ..)) = reader.next(get) {
            reader.push(get, (FREE, slot, generation, 0, 0, 0));
        }
    }
    world.quiet_turn();
    world.host.before_sleep();
    world.host.after_sleep();
    assert!(
        ports.iter().all(|&(out, _)| !grants(&mut client, out).is_empty()),
        "before the core sleeps all have theirs"
    );
}

#[test]
fn a_client_that_pretends_to_sleep_costs_one_wake_up_for_many_polls() {
    let mut world = World::new(1);
    let (mut client, key) = world.attach(0);
    world.create("to", Implementation::Rings, 100);
    world.open(&mut client, key, "to", Side::Read);
    let to = world.host.find("to").unwrap();
    world.quiet_turn();
    let wakes = |world: &World| world.host.client_info(key).unwrap().sleeps_woken;
    let before = wakes(&world);
    for _ in 0..20 {
        // The word by which it asks for a byte in its wake pipe, again and again.
        client.scribble(0, &1u64.to_le_bytes());
        world.host.put_bytes(to, b"for a sleeper").unwrap();
        world.host.end_look();
    }
    assert_eq!(wakes(&world), before + 1);
    client.scribble(0, &1u64.to_le_bytes());
    world.host.end_turn();
    assert_eq!(wakes(&world), before + 2, "and is woken at the end of a turn, if it sleeps by then");
}

/// Each entry that is taken of a reader's ring so that there may be room counts as one of the core's look.
#[test]
fn a_look_for_room_takes_a_bounded_number_of_the_readers_entries() {
    const ENTRIES: u64 = 1000;
    let mut world = World::new(1);
    let (mut reader, key) = world.attach(0);
    world.create("m", Implementation::SignalQueue, 1);
    world.open(&mut reader, key, "m", Side::Read);
    world.quiet_turn();
    let mailbox = world.host.find("m").unwrap();
    assert!(world.host.has_room(mailbox));
    world.host.put_bytes(mailbox, b"full").unwrap();
    (0..ENTRIES).for_each(|_| reader.push_signal((SIGNAL, 0, 0, 0, 0, 0), u64::from(key.number()) | 5 << 32, 0));
    let mut before = world.host.taken();
    let first = before;
    while world.host.taken() < first + ENTRIES {
        assert!(!world.host.has_room(mailbox));
        let taken = world.host.taken() - before;
        assert!((1..=256).contains(&taken), "{taken}");
        before += taken;
    }
    world.quiet_turn();
    assert_eq!(world.host.taken(), before, "nothing was left");
}

/// Buffers that were granted ahead come on top of the bound, so more than a burst of messages may have to leave before there is room.
#[test]
fn a_mailbox_that_its_reader_has_emptied_has_room_however_much_was_in_it() {
    let mut world = World::new(1);
    let (mut reader, key) = world.attach(0);
    for (name, messages, bytes) in [("messages", 4, 1 << 20), ("bytes", 1000, 1000)] {
        world.create(name, Implementation::Rings, messages);
        let mailbox = world.host.find(name).unwrap();
        let (_, port) = world.open(&mut reader, key, name, Side::Read);
        (0..63).for_each(|_| world.host.put_bytes(mailbox, b"short").unwrap());
        world.host.put_bytes(mailbox, &vec![7; bytes]).unwrap();
        world.quiet_turn();
        let all: Vec<_> = std::iter::from_fn(|| reader.next(port)).collect();
        assert_eq!(all.len(), 64);
        all.iter().for_each(|&(_, slot, generation, ..)| reader.push(port, (FREE, slot, generation, 0, 0, 0)));
        assert!(world.host.has_room(mailbox), "{name}");
        world.quiet_turn();
    }
}

#[test]
fn a_mailbox_has_room_once_its_reader_has_ended_the_message_behind_other_signals() {
    let mut world = World::new(1);
    let (mut reader, key) = world.attach(0);
    world.create("m", Implementation::SignalQueue, 1);
    let (number, _) = world.open(&mut reader, key, "m", Side::Read);
    let mailbox = world.host.find("m").unwrap();
    reader.push_signal((GET, 0, 0, number, 0, 0), 1, 0);
    world.host.put_bytes(mailbox, b"full").unwrap();
    world.quiet_turn();
    let (head, ..) = reader.pop_signal().unwrap();
    (0..40).for_each(|_| reader.push_signal((SIGNAL, 0, 0, 0, 0, 0), u64::from(key.number()) | 5 << 32, 0));
    assert!(!world.host.is_quiet());
    reader.push_signal((SIGNAL_FREE, head.1, head.2, 0, 0, 0), 0, 0);
    assert!(world.host.has_room(mailbox));
    world.quiet_turn();
}

/// As many as it takes to have room, and what is behind waits for its turn.
#[test]
fn a_look_for_room_ends_with_the_first_message_that_was_given_back() {
    let mut world = World::new(1);
    let (mut reader, key) = world.attach(0);
    world.create("m", Implementation::Rings, 2);
    let (_, port) = world.open(&mut reader, key, "m", Side::Read);
    let mailbox = world.host.find("m").unwrap();
    (0..2).for_each(|_| world.host.put_bytes(mailbox, b"full").unwrap());
    world.quiet_turn();
    let messages: Vec<_> = std::iter::from_fn(|| reader.next(port)).collect();
    assert_eq!(messages.len(), 2);
    messages.iter().for_each(|&(_, slot, generation, ..)| reader.push(port, (FREE, slot, generation, 0, 0, 0)));
    let before = world.host.taken();
    assert!(world.host.has_room(mailbox) && world.host.has_room(mailbox));
    assert_eq!(world.host.taken(), before + 1);
    world.host.put_bytes(mailbox, b"again").unwrap();
    assert!(world.host.has_room(mailbox));
    assert_eq!(world.host.taken(), before + 2);
    world.quiet_turn();
}

/// A reader with more before it than its quota: others put it there, and it writes on.
#[test]
fn messages_for_a_client_to_read_leave_it_its_quota_to_write() {
    let mut world = World::with(HostConfig { client_bytes: 1280 << 10, bound_messages: 1000, ..config() }, 2);
    let (mut client, key) = world.attach(0);
    world.create("in", Implementation::Rings, 1000);
    let (_, get_port) = world.open(&mut client, key, "in", Side::Read);
    let into = world.host.find("in").unwrap();
    (0..3).for_each(|_| world.host.put_bytes(into, &[7; 700 << 10]).unwrap());
    world.quiet_turn();
    let before = world.host.client_info(key).unwrap();
    assert!(before.bytes_held > before.quota_bytes, "{before:?}");
    world.create("out", Implementation::Rings, 1000);
    let (_, put_port) = world.open(&mut client, key, "out", Side::Write);
    world.quiet_turn();
    assert_eq!(grants(&mut client, put_port).len(), 64);
    // A longer one that is asked for, over the ring and over the signal queue.
    client.push(put_port, (REQUEST, 0, 0, 0, 0, 100 << 10));
    world.quiet_turn();
    assert_eq!(grants(&mut client, put_port).len(), 1);
    // More than its quota to write is not to be had still.
    client.push(put_port, (REQUEST, 0, 0, 1, 0, 900 << 10));
    world.quiet_turn();
    let refused = client.next(put_port).unwrap();
    assert_eq!((refused.0, refused.3), (REFUSED, Reason::Quota as u16));
    assert_eq!(std::iter::from_fn(|| client.next(get_port)).count(), 3);
}

/// The longer buffer that a writer waits for comes before those that are granted ahead.
#[test]
fn a_writer_that_gives_up_a_longer_buffer_gets_the_usual_ones_again() {
    let mut world = World::with(HostConfig { client_bytes: 1280 << 10, ..config() }, 1);
    let (mut client, key) = world.attach(0);
    world.create("m", Implementation::Rings, 1000);
    let options = PortOptions { ahead: Some(4), ..PortOptions::default() };
    let port = world.host.open(key, "m", Side::Write, options).unwrap().port.unwrap();
    client.begin_port(port);
    world.quiet_turn();
    let mut kept = Vec::new();
    client.push(port, (REQUEST, 0, 0, 0, 0, 400 << 10));
    world.quiet_turn();
    for grant in grants(&mut client, port) {
        match grant.5 {
            4096 => put(&mut client, port, grant, b"short"),
            _ => kept.push(grant),
        }
    }
    assert_eq!(kept.len(), 1);
    // It never gives that one back.
    client.push(port, (REQUEST, 0, 0, 0, 0, 400 << 10));
    world.quiet_turn();
    world.host.before_sleep();
    assert!(client.next(port).is_none());
    client.push(port, (WITHDRAW, 0, 0, 0, 0, 0));
    world.quiet_turn();
    let answer = client.next(port).unwrap();
    assert_eq!((answer.0, answer.3), (REFUSED, Reason::Cancelled as u16));
    assert_eq!(grants(&mut client, port).len(), 3, "beside the one that it keeps");
    // Nothing is left to be given up.
    client.push(port, (WITHDRAW, 0, 0, 0, 0, 0));
    world.quiet_turn();
    assert!(client.next(port).is_none());
}

/// Up to a quarter of what a reader may have before it leaves room for a message of any length.
#[test]
fn short_messages_that_a_reader_keeps_do_not_hold_back_a_long_one() {
    for (kept, comes) in [(1 << 19, true), (1 << 20, false)] {
        let config = HostConfig { max_message_bytes: 8 << 20, inbox_bytes: 64 << 20, ..config() };
        let mut world = World::with(config, 0);
        let large = DomainSegments::new("large", SHARED_BYTES, 64 << 20, HugePages::None).unwrap();
        world.domains.push(Arc::new(large));
        let (mut reader, key) = world.attach(0);
        world.create("m", Implementation::Rings, 8);
        let (_, port) = world.open(&mut reader, key, "m", Side::Read);
        let mailbox = world.host.find("m").unwrap();
        for bytes in [10, kept, 7 << 20, 10] {
            world.host.put_bytes(mailbox, &vec![1; bytes as usize]).unwrap();
        }
        world.quiet_turn();
        let lengths: Vec<u32> = std::iter::from_fn(|| reader.next(port)).map(|message| message.5).collect();
        assert_eq!(lengths, [10, kept, 7 << 20][..2 + usize::from(comes)]);
    }
}
