//! The lane, by raw clients.

use super::bursts::{burst_texts, writes_to_upcall};
use super::*;

/// A client with both sides of a mailbox, a grant of it, and the ports.
fn both_sides(world: &mut World) -> (RawClient, ClientKey, u16, u16) {
    let (mut client, key) = world.attach(0);
    world.create("both", Implementation::Rings, 100);
    let (_, out) = world.open(&mut client, key, "both", Side::Write);
    let (_, back) = world.open(&mut client, key, "both", Side::Read);
    (client, key, out, back)
}

#[test]
fn the_lane_and_the_rings_bring_entries_in_the_order_in_which_they_were_written() {
    let mut world = World::new(1);
    let (mut client, key, out, back) = both_sides(&mut world);
    let mut granted = grants(&mut client, out).into_iter();
    let mut put = |client: &mut RawClient, text: &[u8], passed: bool| {
        let (_, slot, generation, _, offset, _) = granted.next().unwrap();
        assert!(client.write(offset, text));
        let entry = (PUT, slot, generation, 0, offset, text.len() as u32);
        let after = client.pushed(out);
        match passed {
            true => assert!(client.pass(out, after, entry, 0, 0)),
            false => client.push(out, entry),
        }
    };
    put(&mut client, b"0", false);
    put(&mut client, b"1", true);
    assert!(!client.pass(out, 1, (PUT, 0, 0, 0, 0, 0), 0, 0), "the lane is the core's now");
    put(&mut client, b"2", false);
    world.quiet_turn();
    let entries: Vec<_> = std::iter::from_fn(|| client.next(back)).collect();
    let texts: Vec<_> = entries.into_iter().map(|entry| text(&client, entry)).collect();
    assert_eq!(texts, [b"0", b"1", b"2"]);
    // A message that was passed before the client is gone is carried out.
    put(&mut client, b"last", true);
    world.host.detach(key);
    let puts: Vec<u64> = world.host.mailboxes().iter().filter(|m| m.name == "both").map(|m| m.puts).collect();
    assert_eq!((puts, world.in_use()), (vec![4], (0, 0)));
    let lost: u64 = world.host.mailboxes().iter().map(|mailbox| mailbox.losses.of(MessageLoss::ReaderGone)).sum();
    assert_eq!(lost, 4, "its reader had them, and had ended none");
}

#[test]
fn puts_that_are_taken_together_keep_their_order_with_one_over_the_lane() {
    for before in 0..12 {
        let mut world = World::new(1);
        let (mut client, key, port, mut granted) = writes_to_upcall(&mut world);
        for number in 0..12 {
            let (_, slot, generation, _, offset, _) = granted.pop().unwrap();
            let text = number.to_string();
            assert!(client.write(offset, text.as_bytes()));
            let entry = (PUT, slot, generation, 0, offset, text.len() as u32);
            match number == before {
                true => assert!(client.pass(port, client.pushed(port), entry, 0, 0)),
                false => client.push(port, entry),
            }
        }
        let mut seen = Vec::new();
        while let Some(arrival) = world.host.poll() {
            let burst = match arrival {
                Arrival::Upcall { message, .. } => vec![message],
                Arrival::Upcalls { .. } => world.host.take_burst(),
                other => panic!("{other:?}"),
            };
            seen.extend(burst_texts(&world, &burst));
            world.host.keep_burst(burst);
        }
        assert_eq!(seen, (0..12).map(|number: i32| number.to_string()).collect::<Vec<_>>());
        world.host.detach(key);
    }
}

#[test]
fn entries_passed_out_of_order_or_for_no_port_end_the_client() {
    for (port, after, says) in
        [(None, 1, "not next in order"), (Some(40), 0, "not next in order"), (Some(u16::MAX), 9, "not next")]
    {
        let mut world = World::new(1);
        let (mut client, key, out, _) = both_sides(&mut world);
        let (_, slot, generation, _, offset, len) = grants(&mut client, out)[0];
        assert!(client.pass(port.unwrap_or(out), after, (PUT, slot, generation, 0, offset, len), 0, 0));
        let arrivals = world.turn();
        let [Arrival::Violation { client, reason }] = &arrivals[..] else { panic!("{arrivals:?}") };
        assert!(*client == key && reason.contains(says), "{reason}");
        assert_eq!(world.in_use(), (0, 0));
    }
}

#[test]
fn an_entry_passed_for_a_port_is_void_when_that_is_closed() {
    let mut world = World::new(1);
    let (mut client, key, out, back) = both_sides(&mut world);
    let granted = grants(&mut client, out);
    let (_, slot, generation, _, offset, _) = granted[0];
    assert!(client.pass(out, 0, (PUT, slot, generation, 0, offset, 4), 0, 0));
    world.quiet_turn();
    let number = (0..).find(|number| world.host.opened(key, *number).is_some_and(|(_, side)| side == Side::Read));
    world.host.close(key, number.unwrap()).unwrap();
    let (port, ..) = client.take_passed().unwrap();
    assert!(port != back && port > 64, "for nobody");
    let (_, slot, generation, _, offset, _) = granted[1];
    assert!(client.pass(out, 0, (PUT, slot, generation, 0, offset, 4), 0, 0), "the lane is there for others");
    world.quiet_turn();
}
