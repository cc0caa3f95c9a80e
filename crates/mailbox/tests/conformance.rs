//! The behaviour of mailboxes, said once and held against both implementations, within one protection domain and across
//! two, with the reader in the writer's process and in one of its own, over the daemon and over direct rings.

#![cfg(not(any(loom, miri)))]
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod daemon;

use crossdock_mailbox::host::{HostConfig, Implementation};
use daemon::agent::{self, Agent, mark_of};
use daemon::{AHEAD, Core, Daemon, Upcall};
use std::collections::{HashMap, HashSet};

/// The process that the other tests start; by itself it does nothing.
#[test]
fn a_process_of_its_own() {
    if let Some((address, input)) = agent::started() {
        agent::serve(&address, input.into());
    }
}

/// Where a behaviour is looked at.
#[derive(Clone, Copy, Debug)]
struct Setting {
    implementation: Implementation,
    /// Writer and reader are of two domains.
    is_across: bool,
    /// The reader is a process of its own.
    is_elsewhere: bool,
    /// Messages pass without the daemon, where they can.
    is_direct: bool,
}

/// The bound of mailbox `m` in messages.
const BOUND: u32 = 6;

/// A daemon, a mailbox `m`, and an agent for each of its sides.
struct Pair {
    setting: Setting,
    daemon: Daemon,
    writer: Agent,
    reader: Agent,
}

impl Pair {
    fn new(setting: Setting) -> Pair {
        Pair::with(setting, &HostConfig::default())
    }

    fn with(setting: Setting, config: &HostConfig) -> Pair {
        let daemon = Daemon::new(HostConfig { direct_rings: setting.is_direct, ..config.clone() }, 2);
        daemon.create("m", setting.implementation, BOUND);
        let (writer, reader) = (Pair::agent(&daemon, 0, false), Pair::reading(&daemon, setting));
        let mut pair = Pair { setting, daemon, writer, reader };
        pair.writer.does("write m");
        pair.reader.does("read m");
        if setting.is_direct {
            pair.go_direct();
        }
        pair
    }

    /// Puts messages until the writer has learnt that it may put them directly, and all of them came.
    fn go_direct(&mut self) {
        while !self.daemon.mailbox("m").is_direct {
            self.writer.does("put m 0 1");
            assert_eq!(self.reader.does("get m 0 block"), mark_of(0, 0, 1));
            self.reader.does("end-get m 0");
        }
    }

    fn agent(daemon: &Daemon, domain: usize, is_elsewhere: bool) -> Agent {
        let address = daemon.address(domain).to_string();
        if is_elsewhere { Agent::elsewhere(&address) } else { Agent::here(&address) }
    }

    fn reading(daemon: &Daemon, setting: Setting) -> Agent {
        Pair::agent(daemon, usize::from(setting.is_across), setting.is_elsewhere)
    }

    /// One more agent where the reader is.
    fn other(&self) -> Agent {
        Pair::reading(&self.daemon, self.setting)
    }

    fn create(&self, name: &str) {
        self.daemon.create(name, self.setting.implementation, BOUND);
    }

    /// Fills mailbox `m` by its writer; see [`fill_up`].
    fn fill_up(&mut self) -> u64 {
        fill_up(&self.daemon, &mut self.writer, "m", self.setting.implementation)
    }
}

/// Puts messages of 10 bytes with contents 0, 1, 2 ... into a mailbox that nobody reads until it takes no more: how many it took.
fn fill_up(daemon: &Daemon, writer: &mut Agent, name: &str, implementation: Implementation) -> u64 {
    let (waits, mut count) = (daemon.mailbox(name).waits, 0);
    loop {
        if writer.does(&format!("try-put {name} 0 10")) != "none" {
            writer.does(&format!("fill 0 {count}"));
            writer.does(&format!("end-put {name} 0"));
            count += 1;
        } else if implementation == Implementation::SignalQueue || daemon.mailbox(name).waits > waits {
            break;
        }
    }
    // In rings come on top those that were granted ahead when there was room for one more.
    let most = if implementation == Implementation::Rings { BOUND - 1 + AHEAD } else { BOUND };
    assert!((BOUND..=most).contains(&(count as u32)), "{count} in a mailbox of {BOUND}");
    assert_eq!(u64::from(daemon.mailbox(name).depth), count);
    count
}

fn content_of_every_size_comes_whole_and_in_order(pair: &mut Pair) {
    let sizes = [0, 1, 7, 63, 64, 65, 4095, 4096, 4097, 65_535, 65_536, 65_537, 1 << 20, (4 << 20) + 1, 16 << 20];
    for (seed, len) in sizes.into_iter().enumerate() {
        pair.writer.does(&format!("put m {seed} {len}"));
        let how = if seed % 2 == 0 { "block" } else { "poll" };
        assert_eq!(pair.reader.does(&format!("get m 0 {how}")), mark_of(seed as u64, 0, len));
        pair.reader.does("end-get m 0");
    }
    for turn in 0..20 {
        for seed in 0..5 {
            pair.writer.does(&format!("put m {seed} {}", turn * 300 + seed));
        }
        for seed in 0..5 {
            let seen = pair.reader.does("get m 0 block");
            assert_eq!(seen, mark_of(seed, 0, (turn * 300 + seed) as usize));
            pair.reader.does("end-get m 0");
        }
    }
}

fn many_messages_of_one_call_come_whole_and_in_order(pair: &mut Pair) {
    // Shorter and longer than what is granted ahead, and more of them than the mailbox holds.
    for (seed, count, len) in [(0, 1, 8), (1, 40, 64), (41, 7, 0), (48, 20, 5000), (68, 100, 4096)] {
        pair.writer.order(&format!("put-many m {seed} {count} {len}"));
        let mut seen = Vec::new();
        while seen.len() < count {
            let marks = pair.reader.does("get-many m 5");
            let marks: Vec<String> = marks.split(' ').map(str::to_owned).collect();
            assert!((1..=5).contains(&marks.len()), "{marks:?}");
            seen.extend(marks);
        }
        pair.writer.answer().unwrap();
        let expected: Vec<String> = (seed..seed + count as u64).map(|seed| mark_of(seed, 0, len)).collect();
        assert_eq!(seen, expected);
    }
    assert_eq!(pair.reader.does("try-get m 0"), "none");
    // None wanted, none taken; and a call that runs out of time takes none either.
    pair.writer.does("put-many m 1 2 10");
    assert_eq!(pair.reader.does("get-many m 0"), "");
    assert_eq!(pair.reader.does("get m 0 block"), mark_of(1, 0, 10));
    assert_eq!(pair.reader.does("get m 1 block"), mark_of(2, 0, 10));
}

fn puts_may_be_ended_in_any_order_which_is_theirs(pair: &mut Pair) {
    for seed in 0..AHEAD {
        pair.writer.does(&format!("begin-put m {seed} {} block", 10 + seed * 3000));
        pair.writer.does(&format!("fill {seed} {seed}"));
    }
    let order = [2, 0, 3, 1];
    for seed in order {
        pair.writer.does(&format!("end-put m {seed}"));
    }
    for seed in order {
        assert_eq!(pair.reader.does("get m 0 block"), mark_of(seed, 0, 10 + seed as usize * 3000));
        pair.reader.does("end-get m 0");
    }
}

fn messages_stay_unchanged_until_they_are_ended_in_any_order(pair: &mut Pair) {
    for turn in 0..6 {
        for seed in 0..5 {
            pair.writer.does(&format!("put m {} 100", turn * 5 + seed));
        }
        for id in 0..5 {
            assert_eq!(pair.reader.does(&format!("get m {id} block")), mark_of(turn * 5 + id, 0, 100));
        }
        for id in [3, 0, 4, 1, 2] {
            assert_eq!(pair.reader.does(&format!("look {id}")), mark_of(turn * 5 + id, 0, 100));
            pair.reader.does(&format!("end-get m {id}"));
        }
    }
    assert_eq!(pair.reader.does("try-get m 0"), "none");
}

fn bytes_that_adjust_removed_are_gone_for_later_readers(pair: &mut Pair) {
    pair.create("next");
    pair.reader.does("write next");
    let mut last = pair.other();
    last.does("read next");
    for len in [100, 5000] {
        pair.writer.does(&format!("begin-put m 0 {len} block"));
        pair.writer.does("fill 0 7");
        assert_eq!(pair.writer.try_to(&format!("cut-put 0 {len} 1")), Err(format!("TooShort {{ bytes: {len} }}")));
        pair.writer.does("cut-put 0 3 2");
        pair.writer.does("end-put m 0");
        assert_eq!(pair.reader.does("get m 0 block"), mark_of(7, 3, len - 2));
        pair.reader.does("cut 0 10 20");
        assert_eq!(pair.reader.does("look 0"), mark_of(7, 13, len - 22));
        pair.reader.does("move m 0 next");
        assert_eq!(last.does("get next 0 block"), mark_of(7, 13, len - 22));
        last.does(&format!("cut 0 {} 0", len - 35));
        assert_eq!(last.does("look 0"), mark_of(0, 0, 0));
        last.does("end-get next 0");
    }
}

fn a_message_lies_still_within_a_domain_and_is_copied_once_on_its_way_to_another(pair: &mut Pair) {
    pair.create("next");
    pair.reader.does("write next");
    let mut last = pair.other();
    last.does("read next");
    // Straight away, and by way of a put that goes elsewhere than it was begun for.
    for (at, begun_for) in ["m", "aside"].into_iter().enumerate() {
        if begun_for == "aside" {
            pair.create("aside");
            pair.writer.does("write aside");
        }
        let crossed = pair.daemon.crossed();
        pair.writer.does(&format!("begin-put {begun_for} 0 200 block"));
        pair.writer.does("fill 0 9");
        let written = pair.writer.does("place-of-put 0");
        pair.writer.does(if at == 0 { "end-put m 0" } else { "move-put aside 0 m" });
        assert_eq!(pair.reader.does("get m 0 block"), mark_of(9, 0, 200));
        let read = pair.reader.does("place 0");
        pair.reader.does("cut 0 8 0");
        pair.reader.does("move m 0 next");
        assert_eq!(last.does("get next 0 block"), mark_of(9, 8, 200));
        let (file, byte) = read.rsplit_once(' ').unwrap().0.rsplit_once(' ').unwrap();
        let moved = format!("{file} {} {}", byte.parse::<u64>().unwrap() + 8, read.rsplit_once(' ').unwrap().1);
        assert_eq!(last.does("place 0"), moved, "the second hop is within one domain in any case");
        if pair.setting.is_across {
            assert_eq!(pair.daemon.crossed(), crossed + 1);
            assert!(written.ends_with(" rw-s") && read.ends_with(" r--s"), "{written}, {read}");
        } else {
            assert_eq!((pair.daemon.crossed(), read), (crossed, written));
        }
        last.does("end-get next 0");
    }
}

fn a_full_mailbox_holds_its_writer_up_until_messages_are_ended(pair: &mut Pair) {
    let count = pair.fill_up();
    assert_eq!(pair.writer.does("try-put m 0 10"), "none");
    assert_eq!(pair.writer.does("try-put m 0 100000"), "none", "nor a long one");
    assert_eq!(pair.writer.try_to("begin-put m 0 10 now"), Err("TimedOut".to_owned()));
    assert!(pair.daemon.mailbox("m").waits >= 1);
    pair.writer.order(&format!("put m {count} 10"));
    for seed in 0..count {
        assert_eq!(pair.reader.does(&format!("get m {seed} block")), mark_of(seed, 0, 10));
    }
    // Those that were only begun are in the mailbox still.
    for ended in 0..=count - u64::from(BOUND) {
        let depth = u64::from(pair.daemon.mailbox("m").depth);
        assert!(depth == count - ended && pair.writer.is_busy(), "{depth} after {ended}");
        pair.reader.does(&format!("end-get m {ended}"));
    }
    pair.writer.answer().unwrap();
    assert_eq!(pair.reader.does("get m 0 block"), mark_of(count, 0, 10));
    assert_eq!(pair.reader.does("try-get m 1"), "none");
}

fn a_client_that_stops_waiting_loses_nothing(pair: &mut Pair) {
    let timed_out = Err("TimedOut".to_owned());
    assert_eq!(pair.reader.try_to("get m 0 now"), timed_out);
    assert_eq!(pair.reader.does("try-get m 0"), "none");
    for seed in 0..50 {
        pair.writer.does(&format!("put m {seed} 50"));
        let seen = loop {
            let seen = pair.reader.try_to("get m 0 now");
            if seen != timed_out {
                break seen;
            }
        };
        assert_eq!(seen, Ok(mark_of(seed, 0, 50)));
        pair.reader.does("end-get m 0");
        assert_eq!(pair.reader.try_to("get m 0 now"), timed_out);
    }
    let count = pair.fill_up();
    for _ in 0..3 {
        assert_eq!(pair.writer.try_to("begin-put m 0 10 now"), timed_out);
        assert_eq!(pair.writer.try_to("begin-put m 0 100000 now"), timed_out);
    }
    pair.writer.order(&format!("put m {count} 200000"));
    for seed in 0..=count {
        let len = if seed == count { 200_000 } else { 10 };
        assert_eq!(pair.reader.does("get m 0 block"), mark_of(seed, 0, len));
        pair.reader.does("end-get m 0");
    }
    pair.writer.answer().unwrap();
    pair.writer.does("put m 1 10");
    assert_eq!(pair.reader.does("get m 0 block"), mark_of(1, 0, 10));
    assert_eq!(pair.reader.does("try-get m 1"), "none");
}

fn messages_dropped_by_any_thread_come_home(pair: &mut Pair) {
    let in_use = pair.daemon.in_use();
    // More often than there are slots.
    for turn in 0..300 {
        let len = [10, 4096, 5000, 70_000][turn % 4];
        pair.writer.does(&format!("begin-put m 0 {len} block"));
        pair.writer.does("drop 0");
        pair.writer.does(&format!("put m {turn} {len}"));
        assert_eq!(pair.reader.does("get m 0 block"), mark_of(turn as u64, 0, len));
        pair.reader.does("drop 0");
    }
    if pair.setting.is_direct {
        // A slot that came back to the writer itself is found when it next needs one.
        pair.writer.does("begin-put m 0 70000 block");
        pair.writer.does("drop 0");
    }
    pair.daemon.until("all buffers are home", move |core| core.in_use() == in_use);
    assert_eq!(pair.daemon.mailbox("m").depth, 0);
}

fn every_message_goes_to_one_reader_and_a_writers_own_stay_in_order(pair: &mut Pair) {
    const EACH: u32 = 300;
    let (mut writers, mut readers) = (Vec::new(), Vec::new());
    for domain in [0, 1] {
        let (mut writer, mut reader) = (Pair::agent(&pair.daemon, domain, false), pair.other());
        match pair.setting.implementation {
            Implementation::SignalQueue => {
                writer.does("write m");
                reader.does("read m");
                writers.push(writer);
                readers.push(reader);
            }
            Implementation::Rings => {
                let refused = writer.try_to("write m").unwrap_err();
                assert!(refused.contains("write side") && refused.contains("signal_queue"), "{refused}");
                let refused = reader.try_to("read m").unwrap_err();
                assert!(refused.contains("read side"), "{refused}");
            }
        }
    }
    let (count, mut seen) = (writers.len() + 1, HashSet::new());
    for (from, writer) in writers.iter_mut().chain([&mut pair.writer]).enumerate() {
        writer.order(&format!("pour m {from} {EACH}"));
    }
    readers.iter_mut().chain([&mut pair.reader]).for_each(|reader| reader.order("drain m"));
    writers.iter_mut().chain([&mut pair.writer]).for_each(|writer| drop(writer.answer().unwrap()));
    for _ in 0..count {
        pair.writer.does("put m 0 0"); // an empty one ends a reader's drain
    }
    for reader in readers.iter_mut().chain([&mut pair.reader]) {
        let mut last = HashMap::new();
        for message in reader.answer().unwrap().split_whitespace() {
            let (from, at) = message.split_once(':').unwrap();
            let (from, at): (u32, u32) = (from.parse().unwrap(), at.parse().unwrap());
            assert!(seen.insert((from, at)), "{message} came twice");
            assert!(last.insert(from, at).is_none_or(|before| before < at), "{message} came late");
        }
    }
    assert_eq!(seen.len(), EACH as usize * count);
}

fn a_deleted_mailbox_wakes_all_who_wait_for_it(pair: &mut Pair) {
    let closed = Err("Closed { reason: Closed }".to_owned());
    pair.create("full");
    let mut writer = pair.other();
    writer.does("write full");
    fill_up(&pair.daemon, &mut writer, "full", pair.setting.implementation);
    let waits = pair.daemon.mailbox("full").waits;
    pair.reader.order("get m 0 block");
    writer.order("put full 0 10");
    if pair.setting.implementation == Implementation::SignalQueue {
        let waits_more = move |core: &Core| core.mailbox("full").is_some_and(|mailbox| mailbox.waits > waits);
        pair.daemon.until("the writer waits", waits_more);
    }
    pair.daemon.delete("m");
    pair.daemon.delete("full");
    assert_eq!(pair.reader.answer(), closed);
    assert_eq!(writer.answer(), closed);
    for order in ["get m 0 block", "get m 0 now", "try-get m 0"] {
        assert_eq!(pair.reader.try_to(order), closed, "{order}");
    }
    if pair.setting.is_direct {
        // A buffer that it was granted and has not used is taken first.
        let refused = (0..).find(|id| pair.writer.try_to(&format!("try-put m {id} 10")).is_err()).unwrap();
        (0..refused).for_each(|id| drop(pair.writer.does(&format!("drop {id}"))));
    }
    for order in ["begin-put m 0 10 block", "begin-put m 0 10 now", "try-put m 0 10", "begin-put m 0 100000 block"] {
        assert_eq!(pair.writer.try_to(order), closed, "{order}");
    }
    // Its name and the sides are free again.
    pair.writer.does("close-writer m");
    pair.reader.does("close-reader m");
    pair.create("m");
    pair.writer.does("write m");
    pair.reader.does("read m");
    pair.writer.does("put m 5 10");
    assert_eq!(pair.reader.does("get m 0 block"), mark_of(5, 0, 10));
}

/// Bounds that are soon reached. Each client's session has 512 KiB granted ahead.
fn tight() -> HostConfig {
    HostConfig {
        shared_bytes: 6 << 20,
        inbox_bytes: 4 << 20,
        client_bytes: 4 << 20,
        max_message_bytes: 3 << 20,
        ..HostConfig::default()
    }
}

fn every_bound_has_an_error_of_its_own(pair: &mut Pair) {
    *pair = Pair::with(pair.setting, &tight());
    let too_long = Err(format!("TooLong {{ bytes: {}, most: {} }}", (3 << 20) + 1, 3 << 20));
    for order in ["try-put m 0 3145729", "begin-put m 0 3145729 block"] {
        assert_eq!(pair.writer.try_to(order), too_long);
    }
    // A writer that gives up before it is refused does not leave the refusal to a later put.
    for id in 0..AHEAD {
        pair.writer.does(&format!("begin-put m {id} 10 block"));
    }
    assert!(
        matches!(pair.writer.try_to("begin-put m 9 3145729 now"), Err(why) if why == "TimedOut" || Err(&why) == too_long.as_ref())
    );
    pair.daemon.ask(|_| ());
    assert_ne!(pair.writer.try_to("begin-put m 9 10 now"), too_long);
    for id in 0..AHEAD {
        pair.writer.does(&format!("drop {id}"));
    }
    // All of the quota but what is less than another 1 MiB.
    pair.writer.does("begin-put m 0 3145728 block");
    assert_eq!(pair.writer.try_to("try-put m 1 1048576"), Err("Quota".to_owned()));
    // Another one has its quota, but the heap has no such buffer.
    pair.create("n");
    let mut neighbour = Pair::agent(&pair.daemon, 0, false);
    neighbour.does("write n");
    assert_eq!(neighbour.try_to("try-put n 0 3145728"), Err("NoBuffers".to_owned()));
    // Both wait for what another thread gives back, and that is enough.
    neighbour.order("put n 0 3145728");
    pair.daemon.until("it waits", |core| core.host.clients().iter().any(|client| client.waits > 0));
    assert!(neighbour.is_busy());
    pair.writer.does("drop 0");
    neighbour.answer().unwrap();
    assert_eq!(pair.writer.try_to("try-put m 1 3145728"), Err("NoBuffers".to_owned()));
    pair.writer.does("put m 1 1048576");
    assert_eq!(pair.reader.does("get m 0 block"), mark_of(1, 0, 1 << 20));
    pair.reader.does("end-get m 0");
    // Full is none of these.
    pair.fill_up();
    assert_eq!(pair.writer.does("try-put m 0 100000"), "none");
}

fn the_core_may_read_in_place_of_a_client(pair: &mut Pair) {
    for (name, does) in
        [("echoed", Upcall::Echo as fn(_) -> _), ("copied", Upcall::Copy), ("dropped", |_| Upcall::Discard)]
    {
        pair.create(name);
        pair.daemon.attach_upcall(name, does, "m");
        let refused = pair.reader.try_to(&format!("read {name}")).unwrap_err();
        assert!(refused.contains("a task or a reader reads mailbox"), "{refused}");
        pair.writer.does(&format!("write {name}"));
    }
    let crossed = pair.daemon.crossed();
    for seed in 0..60 {
        let (name, len) = if seed % 2 == 0 { ("echoed", 3000 * seed) } else { ("copied", seed) };
        pair.writer.does(&format!("put {name} {seed} {len}"));
        pair.writer.does("put dropped 1 10");
        assert_eq!(pair.reader.does("get m 0 block"), mark_of(seed, 0, len as usize));
        pair.reader.does("end-get m 0");
    }
    // A message that the core copies itself lies in the reader's domain already.
    assert_eq!(pair.daemon.crossed() - crossed, if pair.setting.is_across { 30 } else { 0 });
    assert_eq!(pair.reader.does("try-get m 0"), "none");
    let dropped = pair.daemon.mailbox("dropped");
    assert_eq!((dropped.puts, dropped.gets, dropped.depth), (60, 60, 0));
}

fn a_side_that_was_closed_can_be_opened_again_and_nothing_put_is_lost(pair: &mut Pair) {
    let mut others = [pair.other(), pair.other()];
    for turn in 0..20 {
        for seed in 0..3 {
            pair.writer.does(&format!("put m {} 10", turn + seed));
        }
        // At once: what lies in the rings still is carried out first.
        pair.writer.does("close-writer m");
        for seed in 0..3 {
            assert_eq!(pair.reader.does("get m 0 block"), mark_of(turn + seed, 0, 10));
            pair.reader.does("end-get m 0");
        }
        pair.reader.does("close-reader m");
        let [writer, reader] = &mut others;
        writer.does("write m");
        writer.does(&format!("put m {turn} 5000"));
        reader.does("read m");
        assert_eq!(reader.does("get m 0 block"), mark_of(turn, 0, 5000));
        reader.does("end-get m 0");
        writer.does("close-writer m");
        reader.does("close-reader m");
        assert_eq!(pair.daemon.mailbox("m").depth, 0);
        pair.writer.does("write m");
        pair.reader.does("read m");
    }
}

fn messages_put_before_their_writer_left_arrive(pair: &mut Pair) {
    pair.create("next");
    pair.writer.does("read next");
    for seed in 0..3 {
        let mut leaving = pair.other();
        leaving.does("write next");
        for id in 0..3 {
            leaving.does(&format!("begin-put next {id} 100 block"));
            leaving.does(&format!("fill {id} {}", seed + id));
        }
        // The last one is begun only.
        pair.daemon.paused(|| {
            leaving.does("end-put next 0");
            leaving.does("end-put next 1");
            leaving.end();
        });
        for id in 0..2 {
            assert_eq!(pair.writer.does("get next 0 block"), mark_of(seed + id, 0, 100));
            pair.writer.does("end-get next 0");
        }
        assert_eq!(pair.writer.does("try-get next 0"), "none");
    }
}

/// A test of a behaviour in one setting.
macro_rules! test_in {
    ($behaviour:ident: $name:ident, $implementation:ident, $is_across:literal, $is_elsewhere:literal) => {
        test_in!($behaviour: $name, $implementation, $is_across, $is_elsewhere, false);
    };
    ($behaviour:ident: $name:ident, $implementation:ident, $is_across:literal, $is_elsewhere:literal, $is_direct:literal) => {
        #[test]
        fn $name() {
            let implementation = crossdock_mailbox::host::Implementation::$implementation;
            let (is_across, is_elsewhere, is_direct) = ($is_across, $is_elsewhere, $is_direct);
            let setting = super::Setting { implementation, is_across, is_elsewhere, is_direct };
            super::$behaviour(&mut super::Pair::new(setting));
        }
    };
}

/// A test for each behaviour in each setting.
macro_rules! behaviours {
    ($($behaviour:ident)*) => { $(mod $behaviour {
        test_in!($behaviour: rings, Rings, false, false);
        test_in!($behaviour: rings_between_processes, Rings, false, true);
        test_in!($behaviour: direct_rings, Rings, false, false, true);
        test_in!($behaviour: direct_rings_between_processes, Rings, false, true, true);
        test_in!($behaviour: rings_across_domains, Rings, true, false);
        test_in!($behaviour: rings_across_domains_between_processes, Rings, true, true);
        test_in!($behaviour: signal_queue, SignalQueue, false, false);
        test_in!($behaviour: signal_queue_between_processes, SignalQueue, false, true);
        test_in!($behaviour: signal_queue_across_domains, SignalQueue, true, false);
        test_in!($behaviour: signal_queue_across_domains_between_processes, SignalQueue, true, true);
    })* };
}

behaviours! {
    content_of_every_size_comes_whole_and_in_order
    many_messages_of_one_call_come_whole_and_in_order
    puts_may_be_ended_in_any_order_which_is_theirs
    messages_stay_unchanged_until_they_are_ended_in_any_order
    bytes_that_adjust_removed_are_gone_for_later_readers
    a_message_lies_still_within_a_domain_and_is_copied_once_on_its_way_to_another
    a_full_mailbox_holds_its_writer_up_until_messages_are_ended
    a_client_that_stops_waiting_loses_nothing
    messages_dropped_by_any_thread_come_home
    every_message_goes_to_one_reader_and_a_writers_own_stay_in_order
    a_deleted_mailbox_wakes_all_who_wait_for_it
    every_bound_has_an_error_of_its_own
    the_core_may_read_in_place_of_a_client
    a_side_that_was_closed_can_be_opened_again_and_nothing_put_is_lost
    messages_put_before_their_writer_left_arrive
}
