//! Messages that a task of the core takes together, and where their buffers go.

use super::*;
use crossdock_mailbox::host::Message;

/// A client that writes to a mailbox whose messages go to upcall 1; the port, and what is granted ahead.
pub(super) fn writes_to_upcall(world: &mut World) -> (RawClient, ClientKey, u16, Vec<RawDescriptor>) {
    let (mut client, key) = world.attach(0);
    world.create("requests", Implementation::Rings, 8);
    world.host.attach_upcall(world.host.find("requests").unwrap(), 1).unwrap();
    let (_, port) = world.open(&mut client, key, "requests", Side::Write);
    let granted = grants(&mut client, port);
    (client, key, port, granted)
}

/// What the messages of an [`Arrival::Upcalls`] say.
pub(super) fn burst_texts(world: &World, burst: &[Message]) -> Vec<String> {
    let text = |message: &Message| {
        let mut bytes = vec![0; message.len()];
        assert!(world.host.read(message, 0, &mut bytes));
        String::from_utf8(bytes).unwrap()
    };
    burst.iter().map(text).collect()
}

#[test]
fn an_upcall_gets_what_was_put_together_and_its_buffers_go_back_to_their_port() {
    let mut world = World::new(1);
    let (mut client, key, port, granted) = writes_to_upcall(&mut world);
    let (in_use, places) = (world.in_use(), granted.iter().map(|grant| grant.4).collect::<Vec<_>>());
    let (mut free, mut sent) = (granted, 0);
    for count in [40, 10, 33, 2] {
        for _ in 0..count {
            put(&mut client, port, free.pop().unwrap(), format!("{sent}").as_bytes());
            sent += 1;
        }
        let mut seen = Vec::new();
        while let Some(arrival) = world.host.poll() {
            let burst = match arrival {
                Arrival::Upcall { upcall: 1, message, .. } => vec![message],
                Arrival::Upcalls { upcall: 1, .. } => world.host.take_burst(),
                other => panic!("{other:?}"),
            };
            seen.extend(burst_texts(&world, &burst));
            world.host.keep_burst(burst);
        }
        assert_eq!(seen, (sent - count..sent).map(|number| number.to_string()).collect::<Vec<_>>());
        let back = grants(&mut client, port);
        assert_eq!((back.len() as i32, world.in_use()), (count, in_use), "the heap was not asked");
        assert!(back.iter().all(|grant| places.contains(&grant.4) && grant.5 == 4096), "{back:?}");
        free.extend(back);
    }
    let requests = &world.host.mailboxes()[0];
    assert_eq!((requests.puts, requests.gets, requests.depth), (85, 85, 0));
    world.host.detach(key);
    assert_eq!(world.in_use(), (0, 0));
}

#[test]
fn what_was_put_before_an_entry_that_breaks_the_protocol_is_carried_out() {
    let mut world = World::new(1);
    let (mut client, key, port, mut granted) = writes_to_upcall(&mut world);
    for number in 0..9 {
        put(&mut client, port, granted.pop().unwrap(), format!("{number}").as_bytes());
    }
    let (_, slot, generation, _, offset, len) = granted[0];
    client.push(port, (PUT, slot, generation, 0, offset, len + 1));
    put(&mut client, port, granted.pop().unwrap(), b"after");
    let Some(Arrival::Upcalls { upcall: 1, .. }) = world.host.poll() else { panic!() };
    let burst = world.host.take_burst();
    assert_eq!(burst_texts(&world, &burst), ["0", "1", "2", "3", "4", "5", "6", "7", "8"]);
    let Some(Arrival::Violation { client: who, .. }) = world.host.poll() else { panic!() };
    assert_eq!(who, key);
    world.host.keep_burst(burst);
    assert!(world.host.poll().is_none());
    assert_eq!(world.in_use(), (0, 0));
}
