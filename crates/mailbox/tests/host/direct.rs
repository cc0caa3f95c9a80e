//! Direct rings, by raw clients: what they may say, and that nothing they say or write there hurts others.

use super::*;
use proptest::prelude::*;

const DIRECT: u8 = 5;
const DIRECT_END: u8 = 6;
const LEFT: u8 = 7;
const MORE: u8 = 8;
const FREE_OF_PORT: u8 = 28;
/// Slots of a port: a reader names the writer's by numbers from here on.
const SLOTS: u16 = 256;
/// Where the ring from the writer to the reader begins in a block.
const FORWARD: u32 = 512;
/// Where the numbers lie that its reader counts.
const GOT: u32 = 384;
/// Where the ring from the core to the writer begins.
const RETURNED: u32 = 8960;
/// A block's length in bytes.
const BLOCK_BYTES: usize = 13056;

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
        Two::before(|_, _, _, _| {})
    }

    fn with(config: &HostConfig) -> Two {
        Two::of(config, |_, _, _, _| {})
    }

    /// After something that the writer did with its first buffer.
    fn before(first: impl FnOnce(&mut World, &mut RawClient, u16, RawDescriptor)) -> Two {
        Two::of(&config(), first)
    }

    /// With these bounds besides.
    fn of(config: &HostConfig, first: impl FnOnce(&mut World, &mut RawClient, u16, RawDescriptor)) -> Two {
        let bound = config.bound_messages;
        let mut world = World::with(HostConfig { direct_rings: true, max_clients: 5, ..config.clone() }, 1);
        let ((mut writer, writes), (mut reader, reads)) = (world.attach(0), world.attach(0));
        world.create("m", Implementation::Rings, bound);
        let (to, put_port) = world.open(&mut writer, writes, "m", Side::Write);
        let (from, get_port) = world.open(&mut reader, reads, "m", Side::Read);
        world.quiet_turn();
        let entries: Vec<_> = std::iter::from_fn(|| writer.pop(put_port)).collect();
        let (notified, granted): (Vec<_>, Vec<_>) = entries.into_iter().partition(|entry| entry.0 == DIRECT);
        let [(_, _, _, _, block, _)] = notified[..] else { panic!("{notified:?}") };
        first(&mut world, &mut writer, put_port, granted[0]);
        writer.push(put_port, (DIRECT, 0, 0, 0, 0, 0));
        world.quiet_turn();
        let notified = std::iter::from_fn(|| reader.pop(get_port)).find(|entry| entry.0 == DIRECT);
        assert_eq!(notified.map(|entry| entry.4), Some(block));
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

/// Where a slot's buffer begins, for slots whose messages begin there.
fn places(entries: &[RawDescriptor]) -> Vec<u32> {
    entries.iter().filter(|entry| entry.0 == GRANT).map(|entry| entry.4).collect()
}

/// The slots that the writer has been granted since: no buffer that it has already.
#[track_caller]
fn assert_granted_apart(two: &mut Two) {
    let had = places(&two.granted);
    let came: Vec<_> = std::iter::from_fn(|| two.writer.pop(two.ports[0])).collect();
    let twice: Vec<_> = places(&came).into_iter().filter(|place| had.contains(place)).collect();
    assert!(twice.is_empty(), "{twice:?} of {came:?} are granted twice");
}

/// How often a writer whose direct rings ended was offered others, after a further writer came and went, and before that a message of a
/// task, if there is one.
fn offers_after_a_further_writer(task: Option<&[u8]>) -> usize {
    let mut two = Two::new();
    let mailbox = two.world.host.find("m").unwrap();
    task.into_iter().for_each(|bytes| two.world.host.put_bytes(mailbox, bytes).unwrap());
    let (number, _) = two.world.open(&mut two.writer, two.keys[0], "m", Side::Write);
    two.world.quiet_turn();
    two.world.host.close(two.keys[0], number).unwrap();
    two.writer.push(two.ports[0], (DIRECT_END, 0, 0, 0, 0, 0));
    two.world.quiet_turn();
    two.reader.call(two.ports[1], true);
    two.world.quiet_turn();
    let offers = std::iter::from_fn(|| two.writer.pop(two.ports[0])).filter(|entry| entry.0 == DIRECT).count();
    two.end();
    offers
}

#[test]
fn a_mailbox_that_others_put_into_stays_with_the_core_when_a_further_writer_comes_and_goes() {
    assert_eq!(offers_after_a_further_writer(None), 1);
    assert_eq!(offers_after_a_further_writer(Some(b"a task's")), 0);
}

#[test]
fn writers_of_one_mailbox_have_a_bound() {
    let mut world = World::new(1);
    let (mut client, key) = world.attach(0);
    world.create("m", Implementation::Rings, 8);
    let numbers: Vec<u16> = (0..17).map(|_| world.open(&mut client, key, "m", Side::Write).0).collect();
    let open = |world: &mut World| world.host.open(key, "m", Side::Write, PortOptions::default());
    assert!(matches!(open(&mut world), Err(HostError::Limit { bound: 17, .. })));
    world.host.close(key, numbers[0]).unwrap();
    open(&mut world).unwrap();
}

#[test]
fn slots_in_the_writer_s_hand_are_granted_to_nobody_whatever_the_reader_says() {
    // It drops what was never put.
    let mut two = Two::new();
    let of = two.granted[0];
    two.reader.push_signal((FREE_OF_PORT, of.1 + SLOTS, of.2, two.ports[1], 0, 0), 0, 0);
    two.world.quiet_turn();
    assert_granted_apart(&mut two);
    two.end();
    // It moves that on, to a mailbox that it reads.
    let mut two = Two::new();
    two.world.create("next", Implementation::Rings, 8);
    let (to, _) = two.world.open(&mut two.reader, two.keys[1], "next", Side::Write);
    let (_, back) = two.world.open(&mut two.reader, two.keys[1], "next", Side::Read);
    for _ in 0..2 {
        two.reader.push(two.ports[1], (ENQUEUE, of.1 + SLOTS, of.2, to, of.4, 8));
        two.world.quiet_turn();
        while let Some(came) = two.reader.pop(back) {
            two.reader.push(back, (FREE, came.1, came.2, 0, 0, 0));
        }
        two.world.quiet_turn();
        assert_granted_apart(&mut two);
    }
    two.world.host.delete(Owner::Daemon, "next").unwrap();
    two.end();
    // It writes it to the ring as if it had been put, and leaves.
    let mut two = Two::new();
    two.put(of, b"forged");
    two.world.host.close(two.keys[1], two.numbers[1]).unwrap();
    let (number, port) = two.world.open(&mut two.reader, two.keys[1], "m", Side::Read);
    (two.numbers[1], two.ports[1]) = (number, port);
    two.world.quiet_turn();
    while let Some(came) = two.reader.pop(port) {
        two.reader.push(port, (FREE, came.1, came.2, 0, 0, 0));
        two.world.quiet_turn();
    }
    assert_granted_apart(&mut two);
    two.end();
}

/// Of messages that the core brings, in order; each is ended.
fn read_all(two: &mut Two) -> Vec<Vec<u8>> {
    let (mut came, port) = (Vec::new(), two.ports[1]);
    while let Some(entry) = two.reader.pop(port) {
        if entry.0 == MESSAGE {
            came.push(text(&two.reader, entry));
            two.reader.push(port, (FREE, entry.1, entry.2, 0, 0, 0));
            two.world.quiet_turn();
        }
    }
    came
}

#[test]
fn messages_that_a_leaving_reader_had_not_read_come_where_they_belong() {
    for (is_ended, is_killed) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut two = Two::new();
        let granted = two.granted.clone();
        two.put(granted[0], b"direct 1");
        two.put(granted[1], b"direct 2");
        let mailbox = two.world.host.find("m").unwrap();
        two.world.host.put_bytes(mailbox, b"task 1").unwrap();
        two.world.host.put_bytes(mailbox, b"task 2").unwrap();
        two.world.quiet_turn();
        if is_ended {
            two.writer.push(two.ports[0], (DIRECT_END, 0, 0, 0, 0, 0));
            for of in &granted[..2] {
                two.writer.push(two.ports[0], (LEFT, of.1, of.2, 0, 0, 0));
            }
            put(&mut two.writer, two.ports[0], granted[2], b"last");
            two.world.quiet_turn();
        }
        let mut due = vec![b"direct 1".to_vec(), b"direct 2".to_vec(), b"task 1".to_vec(), b"task 2".to_vec()];
        if is_killed {
            // The messages that it was handed died with it; a fifth comes behind.
            two.world.host.detach(two.keys[1]);
            two.world.host.put_bytes(mailbox, b"task 3").unwrap();
            due.truncate(2);
            due.push(b"task 3".to_vec());
            (two.reader, two.keys[1]) = two.world.attach(0);
        } else {
            two.world.host.close(two.keys[1], two.numbers[1]).unwrap();
            due.extend(is_ended.then(|| b"last".to_vec()));
        }
        let (number, port) = two.world.open(&mut two.reader, two.keys[1], "m", Side::Read);
        (two.numbers[1], two.ports[1]) = (number, port);
        two.world.quiet_turn();
        if !is_ended {
            two.writer.push(two.ports[0], (DIRECT_END, 0, 0, 0, 0, 0));
            for of in &granted[..2] {
                two.writer.push(two.ports[0], (LEFT, of.1, of.2, 0, 0, 0));
            }
            put(&mut two.writer, two.ports[0], granted[2], b"last");
            two.world.quiet_turn();
            due.push(b"last".to_vec());
        }
        // The writer has named the slots of the first two as left, and they are in the mailbox still.
        two.granted.truncate(2);
        assert_granted_apart(&mut two);
        assert_eq!(read_all(&mut two), due, "{is_ended} {is_killed}");
        two.end();
    }
}

/// Delivered over the core before the direct rings, and not read either.
#[test]
fn messages_from_before_direct_rings_stay_before_those_that_came_over_them() {
    let mut two = Two::before(|world, writer, port, grant| {
        put(writer, port, grant, b"first");
        world.quiet_turn();
    });
    let granted = two.granted.clone();
    two.put(granted[1], b"direct");
    let mailbox = two.world.host.find("m").unwrap();
    two.world.host.put_bytes(mailbox, b"task").unwrap();
    two.world.quiet_turn();
    two.world.host.close(two.keys[1], two.numbers[1]).unwrap();
    (two.numbers[1], two.ports[1]) = two.world.open(&mut two.reader, two.keys[1], "m", Side::Read);
    two.world.quiet_turn();
    assert_eq!(read_all(&mut two), [b"first".to_vec(), b"direct".to_vec(), b"task".to_vec()]);
    two.end();
}

#[test]
fn messages_with_a_leaving_reader_are_counted_at_once() {
    let mut two = Two::new();
    let granted = two.granted.clone();
    for grant in &granted[..3] {
        two.put(*grant, b"direct");
    }
    // It took two, and ended one of them.
    two.reader.write(two.block + GOT, &[1u64, 6, 2].map(u64::to_le_bytes).concat());
    two.world.host.detach(two.keys[1]);
    two.world.quiet_turn();
    let status = two.world.host.mailboxes().into_iter().find(|mailbox| mailbox.name == "m").unwrap();
    let lost = status.losses.of(MessageLoss::ReaderGone);
    assert_eq!((status.depth, status.bytes, status.puts, status.gets, lost), (1, 6, 3, 2, 1));
    // The writer's words add nothing to that.
    two.writer.push(two.ports[0], (DIRECT_END, 0, 0, 0, 0, 0));
    two.world.quiet_turn();
    let status = two.world.host.mailboxes().into_iter().find(|mailbox| mailbox.name == "m").unwrap();
    let lost = status.losses.of(MessageLoss::ReaderGone);
    assert_eq!((status.depth, status.bytes, status.puts, status.gets, lost), (1, 6, 3, 2, 1));
    two.end();
}

#[test]
fn slots_that_the_reader_drops_go_back_to_the_writer() {
    let mut two = Two::new();
    let of = two.granted[0];
    let dropped = two.put(of, b"dropped");
    two.reader.write(two.block + GOT + 16, &1u64.to_le_bytes());
    two.reader.push_signal((FREE_OF_PORT, dropped.1, dropped.2, two.ports[1], 0, dropped.5), 0, 0);
    two.world.quiet_turn();
    let returned = text(&two.writer, (MESSAGE, 0, 0, 0, two.block + RETURNED, 8));
    let entry = u64::from_le_bytes(returned.try_into().unwrap());
    assert_eq!(entry, 1 | u64::from(FREE) << 8 | u64::from(of.1) << 16 | u64::from(of.2) << 32);
    assert_granted_apart(&mut two);
    let status = two.world.host.mailboxes().into_iter().find(|mailbox| mailbox.name == "m").unwrap();
    assert_eq!((status.depth, status.bytes, status.puts, status.gets), (0, 0, 1, 1));
    two.end();
}

/// As messages in a mailbox that the core has: a slow reader of one keeps its writer from no other.
#[test]
fn slots_for_the_bound_of_direct_rings_leave_the_writer_its_quota() {
    // The session's buffers, those of two mailboxes, and not all that the bound of the one needs.
    let mut two = Two::with(&HostConfig { client_bytes: 1280 << 10, bound_messages: 1000, ..config() });
    let (mut granted, mut all) = (two.granted.clone(), 0);
    while !granted.is_empty() {
        for grant in std::mem::take(&mut granted) {
            two.put(grant, b"short");
            all += 1;
        }
        two.writer.push(two.ports[0], (MORE, 0, 0, 0, 0, 0));
        two.world.quiet_turn();
        granted.extend(std::iter::from_fn(|| two.writer.pop(two.ports[0])).filter(|entry| entry.0 == GRANT));
    }
    assert_eq!(all, 192);
    two.world.create("next", Implementation::Rings, 8);
    let (_, port) = two.world.open(&mut two.writer, two.keys[0], "next", Side::Write);
    two.world.quiet_turn();
    assert_eq!(grants(&mut two.writer, port).len(), 64);
    two.world.host.delete(Owner::Daemon, "next").unwrap();
    two.end();
}

#[test]
fn slots_of_a_writer_that_left_in_direct_rings_count_to_the_reader() {
    let mut two = Two::new();
    let granted = two.granted.clone();
    two.put(granted[0], b"left");
    let held = |two: &Two| two.world.host.client_info(two.keys[1]).unwrap().bytes_held;
    let before = held(&two);
    two.world.host.detach(two.keys[0]);
    two.world.quiet_turn();
    assert!(held(&two) >= before + 4096 * granted.len() as u64);
    two.reader.call(two.ports[1], true);
    two.world.quiet_turn();
    assert_eq!(held(&two), before);
    two.end();
}

/// The mailbox goes back to the core, so that the writer gives the buffer up.
#[test]
fn messages_that_the_reader_moves_on_keep_their_bytes_until_all_have_given_them_up() {
    let mut two = Two::new();
    two.world.create("next", Implementation::Rings, 8);
    let (to, _) = two.world.open(&mut two.reader, two.keys[1], "next", Side::Write);
    let (_, back) = two.world.open(&mut two.reader, two.keys[1], "next", Side::Read);
    let of = two.granted[0];
    let moved = two.put(of, b"moved on");
    two.reader.push(two.ports[1], (ENQUEUE, moved.1, moved.2, to, moved.4 + 6, 2));
    two.world.quiet_turn();
    let came = two.reader.pop(back).unwrap();
    assert_eq!((text(&two.reader, came), came.4), (b"on".to_vec(), moved.4 + 6));
    let mailbox = two.world.host.find("m").unwrap();
    assert!(!two.world.host.is_direct(mailbox));
    two.writer.push(two.ports[0], (DIRECT_END, 0, 0, 0, 0, 0));
    two.writer.push(two.ports[0], (LEFT, of.1, of.2, 0, 0, 0));
    two.world.quiet_turn();
    two.reader.call(two.ports[1], true);
    two.world.quiet_turn();
    assert_granted_apart(&mut two);
    // Once more: it has been.
    two.reader.push(back, (ENQUEUE, came.1, came.2, to, came.4, came.5));
    two.world.quiet_turn();
    let came = two.reader.pop(back).unwrap();
    assert_eq!(text(&two.reader, came), b"on");
    let (buffers, _) = two.world.in_use();
    two.reader.push(back, (FREE, came.1, came.2, 0, 0, 0));
    two.world.quiet_turn();
    assert_eq!(two.world.in_use().0, buffers - 1);
    assert_eq!(two.world.host.counters().violations, 0);
    two.world.host.delete(Owner::Daemon, "next").unwrap();
    two.end();
}

#[test]
fn entries_that_one_end_cannot_have_end_the_mailbox_for_it_and_nobody_is_detached() {
    // An area that the reader was never given, as it may have been named by the writer.
    for wrong in [(0, 1, 0, 1), (0, 0, 0, 5000), (9, 0, 0, 1)] {
        let mut two = Two::new();
        two.world.create("next", Implementation::Rings, 8);
        let (to, _) = two.world.open(&mut two.reader, two.keys[1], "next", Side::Write);
        let (of, (slot, generation, offset, len)) = (two.granted[0], wrong);
        let entry = (ENQUEUE, of.1 + SLOTS + slot, of.2 + generation, to, of.4 + offset, len);
        two.reader.push(two.ports[1], entry);
        two.world.quiet_turn();
        let notified = two.reader.pop(two.ports[1]).unwrap();
        assert_eq!((notified.0, notified.3), (CLOSED, Reason::Violation.code()));
        assert_eq!((two.world.host.counters().violations, two.world.host.attached()), (0, 2));
        two.world.host.delete(Owner::Daemon, "next").unwrap();
        two.end();
    }
}

/// Nobody but its process can be the cause of that.
#[test]
fn the_reader_gives_no_slot_of_the_writers_back_over_its_ring_to_the_core() {
    let mut two = Two::new();
    let of = two.granted[0];
    two.reader.push(two.ports[1], (FREE, of.1 + SLOTS, of.2, 0, 0, 0));
    let arrivals = two.world.turn();
    assert!(matches!(&arrivals[..], [Arrival::Violation { client, .. }] if *client == two.keys[1]), "{arrivals:?}");
    assert_granted_apart(&mut two);
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
    two.reader.call(two.ports[1], true);
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

/// A writer that keeps the rules, step by step, and what it has.
struct HonestWriter {
    /// The slots that it was granted and has not given up.
    held: Vec<RawDescriptor>,
    /// The slots that it put over the direct rings: the core's once it is named as left.
    lent: Vec<RawDescriptor>,
    is_direct: bool,
}

impl HonestWriter {
    /// Takes what the core sent. A buffer that it is granted is one that it does not have.
    fn look(&mut self, two: &mut Two) -> Result<(), TestCaseError> {
        while let Some(entry) = two.writer.pop(two.ports[0]) {
            match entry.0 {
                GRANT => {
                    let mut had = self.held.iter().chain(&self.lent);
                    prop_assert!(had.all(|other| other.4 != entry.4), "{entry:?} is granted twice");
                    self.held.push(entry);
                }
                DIRECT => {
                    (two.block, two.put, self.is_direct) = (entry.4, 0, true);
                    two.writer.push(two.ports[0], (DIRECT, 0, 0, 0, 0, 0));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn step(&mut self, two: &mut Two, which: u8) {
        match which {
            0 | 1 => {
                let Some(grant) = self.held.pop() else { return };
                if self.is_direct && two.put < 256 {
                    two.put(grant, b"honest");
                    self.lent.push(grant);
                } else if !self.is_direct {
                    put(&mut two.writer, two.ports[0], grant, b"honest");
                } else {
                    self.held.push(grant);
                }
            }
            2 => {
                let Some(grant) = self.held.pop() else { return };
                two.writer.push(two.ports[0], (FREE, grant.1, grant.2, 0, 0, 0));
            }
            _ if std::mem::replace(&mut self.is_direct, false) => {
                two.writer.push(two.ports[0], (DIRECT_END, 0, 0, 0, 0, 0));
                for of in self.lent.drain(..) {
                    two.writer.push(two.ports[0], (LEFT, of.1, of.2, 0, 0, 0));
                }
            }
            _ => {}
        }
    }
}

proptest! {
    /// Whatever the reader says, and whatever stands in the block: a buffer that an honest writer has is granted to nobody, and the
    /// writer stays attached.
    #[test]
    fn a_hostile_reader_has_nothing_granted_that_the_writer_has(
        steps in prop::collection::vec((0u8..12, (any::<bool>(), 0u16..12, 0u16..3, 0u32..8192), any::<u64>()), 1..150),
    ) {
        let mut two = Two::new();
        two.world.create("next", Implementation::Rings, 8);
        let (to, _) = two.world.open(&mut two.reader, two.keys[1], "next", Side::Write);
        let (_, next) = two.world.open(&mut two.reader, two.keys[1], "next", Side::Read);
        let mut writer = HonestWriter { held: two.granted.clone(), lent: Vec::new(), is_direct: true };
        for (step, (is_lent, slot, life, len), value) in steps {
            let of = if is_lent { writer.lent.last() } else { writer.held.get(usize::from(slot)) };
            let of = of.copied().unwrap_or(two.granted[0]);
            let (of_peer, generation) = (of.1 + SLOTS, of.2.wrapping_add(life.saturating_sub(1)));
            let (port, key, number) = (two.ports[1], two.keys[1], two.numbers[1]);
            match step {
                0..4 => writer.step(&mut two, step),
                4 => two.reader.push(port, (ENQUEUE, of_peer, generation, to, of.4, len)),
                5 => two.reader.push_signal((FREE_OF_PORT, of_peer, generation, port, of.4, len), 0, 0),
                6 => two.reader.call(port, value & 1 == 0),
                7 => {
                    let head = 1 | u64::from(MESSAGE) << 8 | u64::from(of.1) << 16 | u64::from(generation) << 32;
                    let at = two.block + FORWARD + 16 * u32::from(slot);
                    two.reader.write(at + 8, &(u64::from(of.4) | u64::from(len) << 32).to_le_bytes());
                    two.reader.write(at, &head.to_le_bytes());
                }
                8 => { two.reader.write(two.block + GOT + 16, &(value % 12).to_le_bytes()); }
                9 => {
                    if two.world.host.close(key, number).is_ok() {
                        (two.numbers[1], two.ports[1]) = two.world.open(&mut two.reader, key, "m", Side::Read);
                    }
                }
                10 => {
                    let mailbox = two.world.host.find("m").unwrap();
                    two.world.host.watch(mailbox, value & 1 == 0);
                }
                _ => for from in [port, next] {
                    while let Some(came) = two.reader.pop(from) {
                        if came.0 == MESSAGE {
                            two.reader.push(from, (FREE, came.1, came.2, 0, 0, 0));
                        }
                    }
                },
            }
            let mut is_over = false;
            for arrival in two.world.turn() {
                let Arrival::Violation { client, .. } = arrival else { continue };
                prop_assert_eq!(client, two.keys[1]);
                is_over = true;
            }
            writer.look(&mut two)?;
            if is_over {
                break;
            }
        }
        two.world.host.delete(Owner::Daemon, "next").unwrap();
        two.end();
    }

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
                2 if value & 3 == 0 => client.call(port, value & 4 == 0),
                2 => client.push_signal((FREE_OF_PORT, entry.1, entry.2, port, entry.4, entry.5), value, 0),
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

/// Its reader ends them without a word to the core, which would leave the next writer waiting.
#[test]
fn messages_of_a_writer_that_left_keep_no_other_from_writing() {
    let mut two = Two::with(&HostConfig { bound_messages: 2, ..config() });
    for (of, text) in two.granted.clone().into_iter().zip([b"one", b"two"]) {
        two.put(of, text);
    }
    assert_eq!(two.put, 2);
    two.world.host.close(two.keys[0], two.numbers[0]).unwrap();
    let (mut next, key) = two.world.attach(0);
    let (_, port) = two.world.open(&mut next, key, "m", Side::Write);
    two.world.quiet_turn();
    let came = next.pop(port).map(|entry| entry.0);
    assert_eq!(came, Some(GRANT));
    two.world.host.detach(key);
    two.end();
}
