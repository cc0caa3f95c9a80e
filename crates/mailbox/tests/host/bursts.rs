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

/// The texts of the messages of an [`Arrival::Upcalls`].
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
fn buffers_that_go_back_into_their_slots_share_entries() {
    const REGRANT: u8 = 9;
    let mut world = World::new(1);
    let (mut client, key, port, mut free) = writes_to_upcall(&mut world);
    for round in 0..3 {
        for _ in 0..32 {
            put(&mut client, port, free.pop().unwrap(), b"one of many");
        }
        let Some(Arrival::Upcalls { upcall: 1, .. }) = world.host.poll() else { panic!() };
        let mut burst = world.host.take_burst();
        assert_eq!(burst.len(), 32);
        // One that its task keeps: its slot is not among those of the entries, and has no other buffer meanwhile.
        let kept = (round == 1).then(|| burst.pop().unwrap());
        world.host.keep_burst(burst);
        if round < 2 {
            free.extend(grants(&mut client, port));
            assert_eq!(free.len(), 64 - kept.iter().count());
            kept.into_iter().for_each(|message| world.host.free(message));
            free.extend(grants(&mut client, port));
            continue;
        }
        let entries: Vec<_> = std::iter::from_fn(|| client.pop_packed(port)).collect();
        assert_eq!(
            entries.iter().map(|entry| (entry.0, entry.1 as u8)).collect::<Vec<_>>(),
            [(REGRANT, 13), (REGRANT, 13), (REGRANT, 6)]
        );
    }
    world.host.detach(key);
    assert_eq!(world.in_use(), (0, 0));
}

#[test]
fn puts_before_an_entry_that_breaks_the_protocol_are_carried_out() {
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

#[test]
fn a_writer_that_holds_much_of_what_it_was_granted_gets_more_while_others_keep_the_core_busy() {
    let mut world = World::new(1);
    let (mut client, key, port, mut granted) = writes_to_upcall(&mut world);
    // All but those that it keeps are put, and their messages stay with the core.
    let kept = granted.split_off(granted.len() - 17);
    for grant in granted.drain(..) {
        put(&mut client, port, grant, b"kept by the task");
    }
    let mut taken = Vec::new();
    let mut turns = 0;
    let more = loop {
        while let Some(arrival) = world.host.poll() {
            match arrival {
                Arrival::Upcall { message, .. } => taken.push(message),
                Arrival::Upcalls { .. } => taken.append(&mut world.host.take_burst()),
                other => panic!("{other:?}"),
            }
        }
        // It never sleeps.
        world.host.end_turn();
        turns += 1;
        let more = grants(&mut client, port);
        if !more.is_empty() {
            break more;
        }
        assert!(turns < 1000, "its writer waits for as long as the core is awake");
    };
    assert_eq!(more.len(), 64 - kept.len());
    world.host.free_all(&mut taken);
    world.host.detach(key);
    assert_eq!(world.in_use(), (0, 0));
}

#[test]
fn a_writer_to_a_full_mailbox_does_not_send_the_buffers_of_others_to_the_heap() {
    let mut world = World::new(1);
    let (mut other, other_key) = world.attach(0);
    world.create("full", Implementation::Rings, 1);
    let (_, full) = world.open(&mut other, other_key, "full", Side::Write);
    for grant in grants(&mut other, full) {
        put(&mut other, full, grant, b"nobody reads it");
    }
    world.quiet_turn();
    assert!(grants(&mut other, full).is_empty(), "it waits");
    let (mut client, _, port, mut granted) = writes_to_upcall(&mut world);
    for _ in 0..200 {
        let used = granted.pop().unwrap();
        put(&mut client, port, used, b"message");
        let Some(Arrival::Upcall { message, .. }) = world.host.poll() else { panic!() };
        world.host.free(message);
        let [back] = grants(&mut client, port)[..] else { panic!("a buffer comes back for each that was used") };
        assert_eq!(back.4, used.4, "the same one");
        granted.push(back);
    }
}

#[test]
fn where_memory_is_short_what_is_freed_is_for_whoever_waits_for_it() {
    let config = HostConfig { max_mailboxes: 64, ..config() };
    let host = HostInterface::new(config, DoorbellPage::new().unwrap()).unwrap();
    let mut world = World { host, ..World::new(1) };
    let (mut client, key, port, mut granted) = writes_to_upcall(&mut world);
    put(&mut client, port, granted.pop().unwrap(), b"message");
    let Some(Arrival::Upcall { message, .. }) = world.host.poll() else { panic!() };
    // Others use up the domain's memory, until one has to wait.
    let (mut others, mut hungry) = (Vec::new(), None);
    for number in 0.. {
        let name = format!("other {number}");
        if number % 8 == 0 {
            others.push(world.attach(0));
        }
        let (other, other_key) = others.last_mut().unwrap();
        world.create(&name, Implementation::Rings, 8);
        let opened = world.host.open(
            *other_key,
            &name,
            Side::Write,
            PortOptions { message_bytes: Some(128 << 10), ahead: Some(5) },
        );
        let opened = opened.unwrap().port.unwrap();
        other.begin_port(opened);
        if grants(other, opened).len() < 5 {
            hungry = Some((others.len() - 1, opened));
            break;
        }
    }
    let (at, opened) = hungry.unwrap();
    let before = grants(&mut client, port).len();
    world.host.free(message);
    world.quiet_turn();
    assert_eq!((before, grants(&mut client, port).len()), (0, 0), "it went to the heap");
    // Those of a whole client are enough for who waits.
    world.host.detach(others[(at + 1) % others.len()].1);
    world.quiet_turn();
    if others.len() > 1 {
        assert!(!grants(&mut others[at].0, opened).is_empty());
    }
    world.host.detach(key);
}
