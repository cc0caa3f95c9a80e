//! Direct rings, by raw clients: what they may say, and that nothing they say or write there hurts others.

use super::*;
use proptest::prelude::*;

const DIRECT: u8 = 5;
const DIRECT_END: u8 = 6;
const LEFT: u8 = 7;
const FREE_OF_PORT: u8 = 28;
const DIRECT_DONE: u8 = 31;
/// Slots of a port: a reader names the writer's by numbers from here on.
const SLOTS: u16 = 256;
/// Where the ring from the writer to the reader begins in a block.
const FORWARD: u32 = 512;
/// A block's length in bytes.
const BLOCK_BYTES: usize = 8832;

/// A mailbox between two clients of one domain, both notified of direct rings.
struct Two {
    world: World,
    writer: RawClient,
    reader: RawClient,
    keys: [ClientKey; 2],
    ports: [u16; 2],
    numbers: [u16; 2],
    granted: Vec<RawDescriptor>,
    block: u32,
    put: u32,
}

impl Two {
    fn new() -> Two {
        let mut world = World::with(HostConfig { direct_rings: true, max_clients: 5, ..config() }, 1);
        let ((mut writer, writes), (mut reader, reads)) = (world.attach(0), world.attach(0));
        world.create("m", Implementation::Rings, 8);
        let (to, put_port) = world.open(&mut writer, writes, "m", Side::Write);
        let (from, get_port) = world.open(&mut reader, reads, "m", Side::Read);
        world.quiet_turn();
        let entries: Vec<_> = std::iter::from_fn(|| writer.pop(put_port)).collect();
        let (notified, granted): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.0 == DIRECT);
        let [(_, _, _, _, block, _)] = notified[..] else { panic!("{notified:?}") };
        writer.push(put_port, (DIRECT, 0, 0, 0, 0, 0));
        world.quiet_turn();
        assert_eq!(reader.pop(get_port).map(|entry| (entry.0, entry.4)), Some((DIRECT, block)));
        let (keys, ports, numbers) = ([writes, reads], [put_port, get_port], [to, from]);
        Two { world, writer, reader, keys, ports, numbers, granted, block, put: 0 }
    }

    /// Puts a slot's first bytes over the direct ring; the entry as the reader names it.
    fn put(&mut self, grant: RawDescriptor, text: &[u8]) -> RawDescriptor {
        let (_, slot, generation, _, offset, _) = grant;
        assert!(self.writer.write(offset, text));
        let len = text.len() as u32;
        let head = 1 | u64::from(MESSAGE) << 8 | u64::from(slot) << 16 | u64::from(generation) << 32;
        let at = self.block + FORWARD + 16 * self.put;
        self.writer.write(at + 8, &(u64::from(offset) | u64::from(len) << 32).to_le_bytes());
        self.writer.write(at, &head.to_le_bytes());
        self.put += 1;
        self.writer.write(self.block + 256, &u64::from(self.put).to_le_bytes());
        (MESSAGE, slot + SLOTS, generation, 0, offset, len)
    }

    fn end(mut self) {
        for key in self.keys {
            self.world.host.detach(key);
        }
        self.world.host.delete(Owner::Daemon, "m").unwrap();
        assert_eq!(self.world.in_use(), (0, 0));
    }
}

#[test]
fn the_reader_may_move_on_or_drop_the_writers_slots() {
    let mut two = Two::new();
    two.world.create("next", Implementation::Rings, 8);
    let (to, _) = two.world.open(&mut two.reader, two.keys[1], "next", Side::Write);
    let (_, back) = two.world.open(&mut two.reader, two.keys[1], "next", Side::Read);
    let granted = two.granted.clone();
    let moved = two.put(granted[0], b"moved on");
    let dropped = two.put(granted[1], b"dropped");
    two.reader.push(two.ports[1], (ENQUEUE, moved.1, moved.2, to, moved.4 + 6, 2));
    two.reader.push_signal((FREE_OF_PORT, dropped.1, dropped.2, two.ports[1], 0, dropped.5), 0, 0);
    two.world.quiet_turn();
    let came = two.reader.pop(back).unwrap();
    assert_eq!((text(&two.reader, came), came.4), (b"on".to_vec(), moved.4 + 6));
    // The writer is granted others for them: one at once, and the other when that is ended.
    assert_eq!(grants(&mut two.writer, two.ports[0]).len(), 2);
    two.reader.push(back, (FREE, came.1, came.2, 0, 0, 0));
    two.world.quiet_turn();
    assert_eq!(two.world.host.counters().violations, 0);
    two.world.host.delete(Owner::Daemon, "next").unwrap();
    two.end();
}

#[test]
fn entries_that_one_end_cannot_have_end_the_mailbox_for_it_and_nobody_is_detached() {
    // An area that the reader was never given.
    let mut two = Two::new();
    let of = two.granted[0];
    two.reader.push(two.ports[1], (FREE, of.1 + SLOTS, of.2 + 1, 0, 0, 0));
    two.world.quiet_turn();
    let notified = two.reader.pop(two.ports[1]).unwrap();
    assert_eq!((notified.0, notified.3), (CLOSED, Reason::Violation.code()));
    two.end();
    // A slot that the reader gave up, and the writer puts all the same.
    let mut two = Two::new();
    two.reader.push(two.ports[1], (FREE, of.1 + SLOTS, of.2, 0, 0, 0));
    two.world.quiet_turn();
    two.writer.push(two.ports[0], (PUT, of.1, of.2, 0, of.4, 1));
    two.world.quiet_turn();
    let notified: Vec<_> =
        std::iter::from_fn(|| two.writer.pop(two.ports[0])).filter(|entry| entry.0 != GRANT).collect();
    assert_eq!(
        notified.iter().map(|entry| (entry.0, entry.3)).collect::<Vec<_>>(),
        [(CLOSED, Reason::Violation.code())]
    );
    assert_eq!((two.world.host.counters().violations, two.world.host.attached()), (0, 2));
    two.end();
}

#[test]
fn the_end_is_said_behind_what_was_put_and_slots_are_kept_until_the_reader_is_done() {
    let mut two = Two::new();
    let granted = two.granted.clone();
    let held = two.put(granted[0], b"held");
    two.writer.push(two.ports[0], (DIRECT_END, 0, 0, 0, 0, 0));
    two.writer.push(two.ports[0], (LEFT, granted[0].1, granted[0].2, 0, 0, 0));
    put(&mut two.writer, two.ports[0], granted[1], b"behind");
    two.world.quiet_turn();
    assert_eq!(two.reader.pop(two.ports[1]).unwrap().0, DIRECT_END);
    let behind = two.reader.pop(two.ports[1]).unwrap();
    assert_eq!(text(&two.reader, behind), b"behind");
    let in_use = two.world.in_use();
    assert!(!std::iter::from_fn(|| two.writer.pop(two.ports[0])).any(|entry| entry.4 == held.4));
    two.reader.push_signal((DIRECT_DONE, 0, 0, two.ports[1], 0, 0), 0, 0);
    two.world.quiet_turn();
    let notified: Vec<_> = std::iter::from_fn(|| two.writer.pop(two.ports[0])).collect();
    assert!(notified.iter().any(|entry| entry.0 == DIRECT), "others may begin: {notified:?}");
    assert!(two.world.in_use().0 <= in_use.0 + 1);
    two.end();
}

#[test]
fn markers_out_of_turn_end_their_client() {
    for op in [DIRECT, DIRECT_END] {
        let mut two = Two::new();
        let wrong = if op == DIRECT { 0 } else { 1 };
        let client = if wrong == 0 { &mut two.writer } else { &mut two.reader };
        client.push(two.ports[wrong], (op, 0, 0, 0, 0, 0));
        let arrivals = two.world.turn();
        assert!(
            matches!(&arrivals[..], [Arrival::Violation { client, .. }] if *client == two.keys[wrong]),
            "{arrivals:?}"
        );
        two.end();
    }
}

proptest! {
    /// Two clients that say and write anything at all, in their rings and in the block: nothing panics, an honest pair's messages
    /// of the same domain stay whole and in order, and when all are gone every buffer is accounted for.
    #[test]
    fn hostile_ends_harm_only_their_mailbox(
        steps in prop::collection::vec(
            (0u8..9, any::<bool>(), (0u8..10, 0u16..520, 0u16..8, 0u16..4, any::<u32>(), 0u32..10_000), 0u32..BLOCK_BYTES as u32 / 8, any::<u64>()),
            1..80,
        ),
    ) {
        let mut two = Two::new();
        let (mut honest, honest_key) = two.world.attach(0);
        two.world.create("honest", Implementation::Rings, 64);
        let (_, put_port) = two.world.open(&mut honest, honest_key, "honest", Side::Write);
        let (_, get_port) = two.world.open(&mut honest, honest_key, "honest", Side::Read);
        let (mut sent, mut seen, mut free) = (0u64, 0u64, Vec::new());
        let generation = two.granted[0].2;
        for (step, is_writer, entry, word, value) in steps {
            let at = usize::from(!is_writer);
            let (port, key, number, block) = (two.ports[at], two.keys[at], two.numbers[at], two.block);
            let entry = (entry.0, entry.1, generation.wrapping_add(entry.2).wrapping_sub(2), entry.3, entry.4, entry.5);
            let client = if is_writer { &mut two.writer } else { &mut two.reader };
            match step {
                0 | 1 => client.push(port, entry),
                2 => client.push_signal((28 + entry.0 % 4, entry.1, entry.2, port, entry.4, entry.5), value, 0),
                3 => { client.write(block + 8 * word, &value.to_le_bytes()); }
                4 => { client.write(block + 8 * word, &(1 | u64::from(entry.0) << 8 | (value & 7) << 16 | u64::from(entry.2) << 32).to_le_bytes()); }
                5 => {
                    let mailbox = two.world.host.find("m").unwrap();
                    two.world.host.watch(mailbox, value & 1 == 0);
                }
                6 => { let _closed = two.world.host.close(key, number); }
                7 => {
                    let side = if is_writer { Side::Write } else { Side::Read };
                    let _opened = two.world.host.open(key, "m", side, PortOptions::default());
                }
                _ => if let Some(given) = client.pop(port) {
                    client.push(port, (entry.0, given.1, given.2, entry.3, given.4, given.5));
                },
            }
            free.extend(std::iter::from_fn(|| honest.pop(put_port)).filter(|entry| entry.0 == GRANT));
            if let Some(grant) = free.pop() {
                put(&mut honest, put_port, grant, &sent.to_le_bytes());
                sent += 1;
            }
            for arrival in two.world.turn() {
                match arrival {
                    Arrival::Session { message, .. } | Arrival::Upcall { message, .. } => two.world.host.free(message),
                    Arrival::Violation { client, .. } => prop_assert!(client != honest_key),
                    _ => {}
                }
            }
            while let Some(message) = honest.pop(get_port) {
                prop_assert_eq!(text(&honest, message), seen.to_le_bytes().to_vec());
                seen += 1;
                honest.push(get_port, (FREE, message.1, message.2, 0, 0, 0));
            }
            let _lists = (two.world.host.mailboxes(), two.world.host.clients());
        }
        prop_assert_eq!(sent, seen);
        two.world.host.detach(honest_key);
        two.world.host.delete(Owner::Daemon, "honest").unwrap();
        for key in two.keys {
            two.world.host.detach(key);
        }
        two.world.host.delete(Owner::Daemon, "m").unwrap();
        two.world.turn();
        prop_assert_eq!(two.world.in_use(), (0, 0));
    }
}
