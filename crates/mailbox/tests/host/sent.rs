//! Messages that a client sends to a stream of its session: the context gets them in place, and frees them.

use super::*;
use crossdock_mailbox::host::Message;

/// In the target of a move: the other bits are a stream's number.
const TO_STREAM: u16 = 1 << 15;

/// A client with a mailbox `m` open for both sides: the ports to write and to read.
fn with_mailbox(world: &mut World) -> (RawClient, ClientKey, u16, u16) {
    let (mut client, key) = world.attach(0);
    let (_, write) = world.open(&mut client, key, "m", Side::Write);
    let (_, read) = world.open(&mut client, key, "m", Side::Read);
    (client, key, write, read)
}

/// The arrivals at the context: the sender, the stream's number, the bytes and the message.
fn taken(world: &World, arrivals: Vec<Arrival>) -> Vec<(ClientKey, Option<u32>, Vec<u8>, Message)> {
    let taken = arrivals.into_iter().map(|arrival| {
        let Arrival::Session { client, message } = arrival else { panic!("{arrival:?}") };
        let mut bytes = vec![0; message.len()];
        assert!(world.host.read(&message, 0, &mut bytes));
        (client, message.sent_to(), bytes, message)
    });
    taken.collect()
}

#[test]
fn a_message_that_is_sent_is_the_contexts_in_place_and_freed_once() {
    let mut world = World::new(1);
    world.create("m", Implementation::Rings, 8);
    let (mut client, key, write, read) = with_mailbox(&mut world);
    for round in 0..100u16 {
        let grant = grants(&mut client, write)[0];
        put(&mut client, write, grant, b"header:payload");
        world.quiet_turn();
        let (_, slot, generation, _, offset, len) = client.pop(read).unwrap();
        client.push(read, (ENQUEUE, slot, generation, TO_STREAM | round, offset + 7, len - 7));
        let arrivals = world.turn();
        for (who, number, bytes, message) in taken(&world, arrivals) {
            assert_eq!((who, number, &bytes[..]), (key, Some(round.into()), &b"payload"[..]));
            // The mailbox has room again before the context has done with it.
            assert_eq!(world.host.mailboxes()[0].depth, 0);
            world.host.free(message);
        }
    }
    world.host.detach(key);
    assert_eq!(world.in_use(), (0, 0));
}

#[test]
fn a_message_that_is_not_held_is_not_sent() {
    for (slot, generation, reason) in [(999, 1, "slot 999"), (0, 1, "not the client's")] {
        let mut world = World::new(1);
        world.create("m", Implementation::Rings, 8);
        let (mut client, key, _, read) = with_mailbox(&mut world);
        client.push(read, (ENQUEUE, slot, generation, TO_STREAM | 1, 0, 1));
        let arrivals = world.turn();
        let [Arrival::Violation { client: who, reason: why }] = &arrivals[..] else { panic!("{arrivals:?}") };
        assert!(*who == key && why.contains(reason), "{why}");
        assert_eq!(world.in_use(), (0, 0));
    }
}

/// A second time the slot is not the client's any more.
#[test]
fn a_message_is_sent_once() {
    let mut world = World::new(1);
    world.create("m", Implementation::Rings, 8);
    let (mut client, key, write, read) = with_mailbox(&mut world);
    let (_witness, witness) = world.attach(0);
    let grant = grants(&mut client, write)[0];
    put(&mut client, write, grant, b"once");
    world.quiet_turn();
    let (_, slot, generation, _, offset, len) = client.pop(read).unwrap();
    for _ in 0..2 {
        client.push(read, (ENQUEUE, slot, generation, TO_STREAM | 1, offset, len));
    }
    let mut arrivals = world.turn();
    assert!(matches!(arrivals.pop(), Some(Arrival::Violation { client, .. }) if client == key));
    let (_, _, bytes, message) = taken(&world, arrivals).pop().unwrap();
    assert_eq!(bytes, b"once");
    // It outlives its sender.
    world.host.free(message);
    world.host.detach(witness);
    assert_eq!(world.in_use(), (0, 0));
}

#[test]
fn messages_sent_before_the_end_of_their_client_are_the_contexts() {
    for implementation in [Implementation::Rings, Implementation::SignalQueue] {
        let mut world = World::new(1);
        world.create("m", implementation, 8);
        let (mut client, key) = world.attach(0);
        let (number, write) = world.open(&mut client, key, "m", Side::Write);
        let (_, read) = world.open(&mut client, key, "m", Side::Read);
        if implementation == Implementation::Rings {
            let grant = grants(&mut client, write)[0];
            put(&mut client, write, grant, b"last words");
            world.quiet_turn();
            let (_, slot, generation, _, offset, len) = client.pop(read).unwrap();
            client.push(read, (ENQUEUE, slot, generation, TO_STREAM | 3, offset, len));
        } else {
            client.push_signal((ALLOC, 0, 0, number, 0, 10), 1, 0);
            world.quiet_turn();
            let ((_, slot, generation, _, offset, _), _, _) = client.pop_signal().unwrap();
            assert!(client.write(offset, b"last words"));
            client.push_signal((SIGNAL_ENQUEUE, slot, generation, TO_STREAM | 3, offset, 10), 0, 0);
        }
        let sent = world.host.last_sent(key);
        let [message] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!((message.sent_to(), message.len()), (Some(3), 10));
        world.host.detach(key);
        sent.into_iter().for_each(|message| world.host.free(message));
        assert_eq!(world.in_use(), (0, 0));
    }
}
