//! A client that writes anything at all.

use super::*;
use proptest::prelude::*;

fn hostile_entry() -> impl Strategy<Value = RawDescriptor> {
    (0u8..32, 0u16..260, 0u16..4, 0u16..4, any::<u32>(), 0u32..100_000)
}

proptest! {
    /// A client that writes anything at all: nothing panics, an honest neighbour's messages stay whole and in order, and
    /// when both are gone every buffer is accounted for.
    #[test]
    fn a_hostile_client_harms_only_itself(
        steps in prop::collection::vec((0u8..5, 0u16..6, hostile_entry(), any::<u64>(), any::<u64>()), 1..120),
    ) {
        let mut world = World::new(1);
        let (mut honest, honest_key) = world.attach(0);
        world.create("honest", Implementation::Rings, 64);
        world.create("open to all", Implementation::SignalQueue, 64);
        let (_, put_port) = world.open(&mut honest, honest_key, "honest", Side::Write);
        let (_, get_port) = world.open(&mut honest, honest_key, "honest", Side::Read);
        let (mut hostile, mut key) = world.attach(0);
        let mut sent = 0u64;
        let mut seen = 0u64;
        let mut free: Vec<RawDescriptor> = Vec::new();
        for (step, port, entry, a, b) in steps {
            if world.host.client_info(key).is_none() {
                (hostile, key) = world.attach(0);
            }
            match step {
                0 => hostile.push(port, entry),
                1 => hostile.push_signal(entry, a, b),
                2 => hostile.scribble(a as usize, &b.to_le_bytes()),
                3 => { let _ = world.host.open(key, "open to all", if a & 1 == 0 { Side::Read } else { Side::Write }, PortOptions::default()); }
                _ => {
                    // A message that it was given, given back in some wrong or right way.
                    if let Some(given) = hostile.pop(port) {
                        hostile.push(port, (entry.0 % 5, given.1, given.2, entry.3, given.4, given.5));
                    }
                }
            }
            free.extend(std::iter::from_fn(|| honest.pop(put_port)).filter(|e| e.0 == GRANT));
            if let Some(grant) = free.pop() {
                put(&mut honest, put_port, grant, &sent.to_le_bytes());
                sent += 1;
            }
            for arrival in world.turn() {
                match arrival {
                    Arrival::Session { message, .. } | Arrival::Upcall { message, .. } => world.host.free(message),
                    Arrival::Upcalls { .. } => {
                        let burst = world.host.take_burst();
                        world.host.keep_burst(burst);
                    }
                    Arrival::Violation { client, .. } => prop_assert_eq!(client, key),
                    Arrival::Call { result, .. } => world.host.write_sync(result, 0),
                    Arrival::Returned { .. } => {}
                }
            }
            while let Some(message) = honest.pop(get_port) {
                // The hostile one is of the same domain but was granted none of these bytes.
                prop_assert_eq!(text(&honest, message), seen.to_le_bytes().to_vec());
                seen += 1;
                honest.push(get_port, (FREE, message.1, message.2, 0, 0, 0));
            }
        }
        prop_assert_eq!(sent, seen);
        world.host.detach(key);
        world.host.detach(honest_key);
        for name in ["honest", "open to all"] {
            world.host.delete(Owner::Daemon, name).unwrap();
        }
        world.turn();
        prop_assert_eq!(world.in_use(), (0, 0));
    }
}
