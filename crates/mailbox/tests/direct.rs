//! Direct rings: mailboxes whose messages pass from one client to another without the core, on their way there and back, and when
//! one of the two leaves or dies at any step.

#![cfg(not(any(loom, miri)))]
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod daemon;

use crossdock_mailbox::client::{Reader, Writer};
use crossdock_mailbox::failpoint::FAILPOINTS;
use crossdock_mailbox::host::{HostConfig, Implementation, MailboxStatus, MessageLoss, Owner};
use daemon::agent::{self, Agent, mark_of};
use daemon::client::{Client, soon};
use daemon::{Core, Daemon, How, InUse, Upcall};

/// The process that the other tests start; by itself it does nothing.
#[test]
fn a_process_of_its_own() {
    if let Some((address, input)) = agent::started() {
        agent::serve(&address, input.into());
    }
}

const BOUND: u32 = 6;

fn daemon() -> Daemon {
    let daemon = Daemon::new(HostConfig { direct_rings: true, ..HostConfig::default() }, 1);
    daemon.create("m", Implementation::Rings, BOUND);
    daemon
}

fn here(daemon: &Daemon) -> Agent {
    Agent::here(&daemon.address(0).to_string())
}

fn elsewhere(daemon: &Daemon) -> Agent {
    Agent::elsewhere(&daemon.address(0).to_string())
}

/// A writer and a reader of `m`, which is direct.
fn direct_pair(daemon: &Daemon, mut writer: Agent, mut reader: Agent) -> (Agent, Agent) {
    writer.does("write m");
    reader.does("read m");
    while !daemon.mailbox("m").is_direct {
        pass_one(&mut writer, &mut reader);
    }
    pass_one(&mut writer, &mut reader);
    (writer, reader)
}

fn pass_one(writer: &mut Agent, reader: &mut Agent) {
    writer.does("put m 9 1");
    assert_eq!(reader.does("get m 99 block"), mark_of(9, 0, 1));
    reader.does("end-get m 99");
}

fn watch(daemon: &Daemon, is_watched: bool) {
    daemon.ask(move |core| {
        let mailbox = core.host.find("m").unwrap();
        core.host.watch(mailbox, is_watched);
    });
}

/// Waits until mailbox `m` is so. The core is asked: it may have no turn while messages pass without it.
fn await_mailbox(daemon: &Daemon, is_so: impl Fn(&MailboxStatus) -> bool) {
    while !is_so(&daemon.mailbox("m")) {
        std::thread::yield_now();
    }
}

/// That these are the numbers of one stream from some number up to `end`, with none missing.
#[track_caller]
fn assert_stream(messages: &str, end: u32) -> u32 {
    let numbers: Vec<u32> = messages.split_whitespace().map(|text| text[2..].parse().unwrap()).collect();
    let first = numbers.first().copied().unwrap_or(end);
    assert!(numbers.iter().copied().eq(first..end), "{numbers:?} up to {end}");
    first
}

/// All have left, and so has everything.
fn assert_empty(daemon: &Daemon) {
    daemon.ask(|core| drop(core.host.delete(Owner::Daemon, "m")));
    daemon.until("nothing is in use", |core| core.in_use() == InUse::default() && core.host.attached() == 0);
    daemon.ask(|core| {
        assert!(!core.ended.iter().any(|ended| matches!(ended.how, How::ProtocolViolation(_))), "{:?}", core.ended);
    });
}

#[test]
fn two_clients_of_a_domain_pass_messages_without_the_core() {
    let daemon = daemon();
    let (mut writer, mut reader) = direct_pair(&daemon, here(&daemon), elsewhere(&daemon));
    let taken = daemon.ask(|core| core.host.taken());
    for seed in 0..20 {
        writer.does(&format!("put m {seed} 100"));
        assert_eq!(reader.does("get m 0 poll"), mark_of(seed, 0, 100));
        reader.does("end-get m 0");
    }
    assert_eq!(daemon.ask(|core| core.host.taken()), taken, "the core saw none of it");
    let mailbox = daemon.mailbox("m");
    assert!(mailbox.is_direct && mailbox.depth == 0 && mailbox.bytes == 0 && mailbox.puts == mailbox.gets);
    writer.does("put m 0 100");
    let mailbox = daemon.mailbox("m");
    assert_eq!((mailbox.depth, mailbox.bytes, mailbox.puts - mailbox.gets), (1, 100, 1));
    let clients = daemon.ask(|core| core.host.clients());
    assert!(clients[0].messages_in >= 21 && clients[1].messages_out >= 20, "{clients:#?}");
    drop((writer, reader));
    assert_empty(&daemon);
}

#[test]
fn a_thread_that_waits_for_several_mailboxes_at_once_is_woken() {
    let daemon = daemon();
    for reader in [here(&daemon), elsewhere(&daemon)] {
        let (mut writer, mut reader) = direct_pair(&daemon, here(&daemon), reader);
        for seed in 0..50 {
            reader.order("get-any m 0");
            // Awake, about to sleep, or asleep.
            (0..seed * 4_000).for_each(|_| std::hint::spin_loop());
            writer.does(&format!("put m {seed} 100"));
            assert_eq!(reader.answer(), Ok(mark_of(seed, 0, 100)));
            reader.does("end-get m 0");
        }
        writer.does("close-writer m");
        reader.does("close-reader m");
    }
}

#[test]
fn messages_keep_their_order_to_direct_rings_and_back() {
    const COUNT: u32 = 20_000;
    let daemon = daemon();
    let (mut writer, mut reader) = direct_pair(&daemon, here(&daemon), here(&daemon));
    writer.order(&format!("pour m 0 {COUNT}"));
    reader.order("drain m");
    let mut turns = 0;
    while writer.is_busy() {
        watch(&daemon, turns % 2 == 0);
        turns += 1;
        let goal = (daemon.mailbox("m").puts + 20).min(u64::from(COUNT));
        await_mailbox(&daemon, |mailbox| mailbox.puts >= goal);
    }
    writer.answer().unwrap();
    writer.does("put m 0 0");
    assert_eq!(assert_stream(&reader.answer().unwrap(), COUNT), 0);
    let mailbox = daemon.mailbox("m");
    assert_eq!((mailbox.depth, mailbox.puts), (0, mailbox.gets));
    assert!(turns > 0);
    drop((writer, reader));
    assert_empty(&daemon);
}

#[test]
fn messages_that_come_otherwise_keep_their_place_and_bring_the_mailbox_back_to_the_core() {
    for is_moved in [false, true] {
        let daemon = daemon();
        daemon.create("n", Implementation::Rings, BOUND);
        let (mut writer, mut reader) = direct_pair(&daemon, here(&daemon), here(&daemon));
        writer.does("write n");
        if is_moved {
            writer.does("read n");
        } else {
            daemon.attach_upcall("n", Upcall::Echo, "m");
        }
        for turn in 0..3 {
            writer.does(&format!("put m {turn} 20"));
            writer.does(&format!("put n {turn} 10"));
            if is_moved {
                assert_eq!(writer.does("get n 0 block"), mark_of(turn, 0, 10));
                writer.does("move n 0 m");
            }
            // The core has seen to it.
            assert!(!daemon.mailbox("m").is_direct);
            writer.does(&format!("put m {turn} 30"));
            for len in [20, 10, 30] {
                assert_eq!(reader.does("get m 0 block"), mark_of(turn, 0, len), "{turn} {is_moved}");
                reader.does("end-get m 0");
            }
        }
        // Until it is opened anew.
        reader.does("close-reader m");
        reader.does("read m");
        while !daemon.mailbox("m").is_direct {
            pass_one(&mut writer, &mut reader);
        }
    }
}

/// Each message says whose it is and its number.
fn pour(writer: &mut Writer, whose: u32, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let mut put = writer.begin_put(8, soon()).unwrap();
        put[..4].copy_from_slice(&whose.to_le_bytes());
        put[4..].copy_from_slice(&number.to_le_bytes());
        writer.end_put(put).unwrap();
    }
}

/// Takes `count` messages of [`pour`]: those of each writer come in their order, from `next` on.
fn drain(reader: &mut Reader, count: u32, next: &mut [u32; 2]) {
    for _ in 0..count {
        let message = reader.begin_get(soon()).unwrap();
        let [whose, number] = [0, 4].map(|at| u32::from_le_bytes(message[at..at + 4].try_into().unwrap()));
        assert_eq!(number, next[whose as usize], "writer {whose}");
        next[whose as usize] += 1;
        reader.end_get(message);
    }
}

#[test]
fn writers_of_two_threads_of_a_process_pass_over_the_core_and_each_alone_directly() {
    const COUNT: u32 = 3000;
    let daemon = daemon();
    let address = daemon.address(0);
    let (mut writes, mut reads) = (Client::attach(address), Client::attach(address));
    let (mut reader, _) = reads.reader("m").unwrap();
    let (mut first, first_number) = writes.writer("m").unwrap();
    let mut next = [0; 2];
    let alone = |writer: &mut Writer, whose: usize, reader: &mut Reader, next: &mut [u32; 2]| {
        while !daemon.mailbox("m").is_direct {
            pour(writer, whose as u32, next[whose]..next[whose] + 1);
            drain(reader, 1, next);
        }
    };
    alone(&mut first, 0, &mut reader, &mut next);
    for round in 0..3 {
        // Left in the direct rings.
        pour(&mut first, 0, next[0]..next[0] + 3);
        let (mut second, second_number) = writes.writer("m").unwrap();
        let mailbox = daemon.mailbox("m");
        assert!(!mailbox.is_direct && mailbox.writers == 2, "{round}: {mailbox:?}");
        let [from, other] = [next[0] + 3, next[1]];
        std::thread::scope(|scope| {
            scope.spawn(|| pour(&mut first, 0, from..from + COUNT));
            scope.spawn(|| pour(&mut second, 1, other..other + COUNT));
            drain(&mut reader, 3 + 2 * COUNT, &mut next);
        });
        assert!(!daemon.mailbox("m").is_direct);
        // Another client has no part in it.
        assert!(Client::attach(address).writer("m").unwrap_err().contains("is taken by another client"));
        drop(second);
        writes.close(second_number);
        alone(&mut first, 0, &mut reader, &mut next);
    }
    // The one that stays may be the second.
    let (mut second, _) = writes.writer("m").unwrap();
    pour(&mut first, 0, next[0]..next[0] + 3);
    drop(first);
    writes.close(first_number);
    drain(&mut reader, 3, &mut next);
    alone(&mut second, 1, &mut reader, &mut next);
    pour(&mut second, 1, next[1]..next[1] + 3);
    drop((second, writes));
    drain(&mut reader, 3, &mut next);
    while daemon.mailbox("m").writers > 0 {
        std::thread::yield_now();
    }
    drop((reader, reads));
    assert_empty(&daemon);
}

#[test]
fn all_writers_of_a_process_learn_that_their_mailbox_is_gone() {
    let daemon = daemon();
    let mut writes = Client::attach(daemon.address(0));
    let mut writers: Vec<Writer> = (0..3).map(|_| writes.writer("m").unwrap().0).collect();
    pour(&mut writers[2], 0, 0..1);
    while daemon.mailbox("m").depth == 0 {
        std::thread::yield_now();
    }
    daemon.ask(|core| core.host.delete(Owner::Daemon, "m").unwrap());
    for writer in &mut writers {
        while writer.check().is_ok() {
            std::thread::yield_now();
        }
    }
    drop((writers, writes));
    assert_empty(&daemon);
}

/// The writer does nothing more: what comes otherwise comes all the same.
#[test]
fn messages_that_come_otherwise_do_not_wait_for_the_writer() {
    let daemon = daemon();
    let (mut writer, mut reader) = direct_pair(&daemon, here(&daemon), here(&daemon));
    writer.does("put m 1 20");
    daemon.ask(|core| {
        let mailbox = core.host.find("m").unwrap();
        core.host.put_bytes(mailbox, b"from the core").unwrap();
    });
    assert_eq!(reader.does("get m 0 block"), mark_of(1, 0, 20));
    assert_eq!(reader.does("get-text m"), "from the core");
    writer.does("put m 2 20");
    assert_eq!(reader.does("get m 1 block"), mark_of(2, 0, 20));
}

#[test]
fn a_put_that_is_enqueued_to_its_own_mailbox_keeps_its_place() {
    let daemon = daemon();
    let (mut writer, mut reader) = direct_pair(&daemon, here(&daemon), here(&daemon));
    for turn in 0..3 {
        writer.does(&format!("put m {turn} 10"));
        writer.does("begin-put m 0 11 block");
        writer.does("fill 0 7");
        writer.does("move-put m 0 m");
        writer.does(&format!("put m {turn} 12"));
        for (seed, len) in [(turn, 10), (7, 11), (turn, 12)] {
            assert_eq!(reader.does("get m 0 block"), mark_of(seed, 0, len));
            reader.does("end-get m 0");
        }
    }
}

#[test]
fn a_reader_that_leaves_leaves_what_it_has_not_read_to_the_next() {
    for is_idle in [true, false] {
        let daemon = daemon();
        let (mut writer, mut reader) = direct_pair(&daemon, here(&daemon), here(&daemon));
        for seed in 0..4 {
            writer.does(&format!("put m {seed} 10"));
        }
        assert_eq!(reader.does("get m 0 block"), mark_of(0, 0, 10));
        reader.does("end-get m 0");
        reader.does("close-reader m");
        if !is_idle {
            writer.does("put m 4 10");
        }
        let mut next = here(&daemon);
        next.does("read m");
        for seed in 1..if is_idle { 4 } else { 5 } {
            assert_eq!(next.does("get m 0 block"), mark_of(seed, 0, 10), "{is_idle}");
            next.does("end-get m 0");
        }
        let (writer, next) = {
            while !daemon.mailbox("m").is_direct {
                pass_one(&mut writer, &mut next);
            }
            (writer, next)
        };
        let mailbox = daemon.mailbox("m");
        assert_eq!((mailbox.depth, mailbox.puts, mailbox.losses.iter().count()), (0, mailbox.gets, 0));
        drop((reader, writer, next));
        assert_empty(&daemon);
    }
}

#[test]
fn a_reader_that_dies_loses_what_was_in_its_hands_and_no_more() {
    let daemon = daemon();
    let (mut writer, mut reader) = direct_pair(&daemon, here(&daemon), elsewhere(&daemon));
    for seed in 0..4 {
        writer.does(&format!("put m {seed} 10"));
    }
    assert_eq!(reader.does("get m 0 block"), mark_of(0, 0, 10));
    assert_eq!(reader.does("get m 1 block"), mark_of(1, 0, 10));
    reader.does("end-get m 1");
    reader.end();
    daemon.until("its death is known", |core| core.host.attached() == 1);
    let mut next = here(&daemon);
    next.does("read m");
    writer.does("put m 4 10");
    for seed in 2..5 {
        assert_eq!(next.does("get m 0 block"), mark_of(seed, 0, 10));
        next.does("end-get m 0");
    }
    let mailbox = daemon.mailbox("m");
    assert_eq!((mailbox.depth, mailbox.puts, mailbox.losses.of(MessageLoss::ReaderGone)), (0, mailbox.gets, 1));
    drop((writer, next));
    assert_empty(&daemon);
}

/// A writer that waits for a buffer that the dead one had gets on.
#[test]
fn a_writer_that_waits_for_a_dead_reader_is_woken() {
    let daemon = daemon();
    let (mut writer, reader) = direct_pair(&daemon, here(&daemon), elsewhere(&daemon));
    writer.order("pour m 0 500");
    await_mailbox(&daemon, |mailbox| mailbox.depth >= BOUND);
    reader.end();
    let mut next = here(&daemon);
    daemon.until("its death is known", |core| core.ended.len() == 1);
    next.does("read m");
    next.order("drain m");
    writer.answer().unwrap();
    writer.does("put m 0 0");
    assert_eq!(assert_stream(&next.answer().unwrap(), 500), 0);
}

#[test]
fn messages_of_a_writer_that_dies_arrive_and_its_buffers_are_kept_until_then() {
    let daemon = daemon();
    let (mut writer, mut reader) = direct_pair(&daemon, elsewhere(&daemon), here(&daemon));
    for seed in 0..3 {
        writer.does(&format!("put m {seed} 10"));
    }
    assert_eq!(reader.does("get m 0 block"), mark_of(0, 0, 10));
    writer.end();
    daemon.until("its death is known", |core| core.host.attached() == 1);
    let mut next = here(&daemon);
    next.does("write m");
    next.does("put m 3 10");
    for seed in 1..4 {
        assert_eq!(reader.does(&format!("get m {seed} block")), mark_of(seed, 0, 10));
    }
    for seed in 0..4 {
        assert_eq!(reader.does(&format!("look {seed}")), mark_of(seed, 0, 10));
        reader.does(&format!("end-get m {seed}"));
    }
    // It is over now with the dead one's, so those of the next writer may begin.
    while !daemon.mailbox("m").is_direct {
        pass_one(&mut next, &mut reader);
    }
    drop((next, reader));
    assert_empty(&daemon);
}

#[test]
fn both_may_die() {
    let daemon = daemon();
    let (mut writer, mut reader) = direct_pair(&daemon, elsewhere(&daemon), elsewhere(&daemon));
    for seed in 0..3 {
        writer.does(&format!("put m {seed} 10"));
    }
    assert_eq!(reader.does("get m 0 block"), mark_of(0, 0, 10));
    daemon.paused(|| {
        reader.end();
        writer.end();
    });
    let mut next = here(&daemon);
    next.does("read m");
    for seed in 1..3 {
        assert_eq!(next.does("get m 0 block"), mark_of(seed, 0, 10));
        next.does("end-get m 0");
    }
    assert_eq!(daemon.mailbox("m").losses.of(MessageLoss::ReaderGone), 1);
    drop(next);
    assert_empty(&daemon);
}

/// The moments at which a process dies: at first, and in the middle of its work.
fn kills(is_writer: bool) -> impl Iterator<Item = String> {
    let own: &[&str] = match is_writer {
        true => &["direct.writer.", "direct.put.", "direct.wake."],
        false => &["direct.reader.", "direct.get.", "direct.end_get.", "direct.done."],
    };
    let names = FAILPOINTS.iter().filter(move |name| own.iter().any(|own| name.starts_with(own)));
    names.flat_map(|name| [1, 3, 17].map(|pass| format!("{name}:{pass}")))
}

/// Lets direct rings end and begin until a process has died of it.
fn stir_until_dead(daemon: &Daemon, doomed: &mut Agent, what: &str) {
    let pid = doomed.pid();
    for turn in 0..200_000 {
        if doomed.is_dead() {
            daemon.until("its death is known", move |core: &Core| core.ended.iter().any(|ended| ended.pid == pid));
            return;
        }
        watch(daemon, turn % 2 == 0);
        std::thread::yield_now();
    }
    panic!("it never passed {what}");
}

#[test]
fn a_writer_killed_at_any_step_leaves_a_clear_end() {
    for failpoint in kills(true) {
        let daemon = daemon();
        let address = daemon.address(0).to_string();
        let (mut writer, mut reader) = (Agent::doomed(&address, &failpoint), here(&daemon));
        writer.does("write m");
        reader.does("read m");
        reader.order("drain m");
        writer.order("pour m 0 1000000");
        stir_until_dead(&daemon, &mut writer, &failpoint);
        watch(&daemon, false);
        let mut next = here(&daemon);
        next.does("write m");
        next.does("put m 0 0");
        let came = reader.answer().unwrap();
        let end = came.split_whitespace().next_back().map_or(0, |text| text[2..].parse::<u32>().unwrap() + 1);
        assert_eq!(assert_stream(&came, end), 0, "{failpoint}");
        while !daemon.mailbox("m").is_direct {
            pass_one(&mut next, &mut reader);
        }
        drop((writer, reader, next));
        assert_empty(&daemon);
    }
}

#[test]
fn a_reader_killed_at_any_step_leaves_a_clear_end() {
    const COUNT: u32 = 1000;
    for failpoint in kills(false) {
        let daemon = daemon();
        let address = daemon.address(0).to_string();
        let (mut writer, mut reader) = (here(&daemon), Agent::doomed(&address, &failpoint));
        writer.does("write m");
        reader.does("read m");
        reader.order("drain m");
        // More than it will read: the rest is the next one's.
        writer.order("pour m 0 1000000");
        stir_until_dead(&daemon, &mut reader, &failpoint);
        let puts = daemon.mailbox("m").puts;
        watch(&daemon, false);
        let mut next = here(&daemon);
        next.does("read m");
        let (mut last, mut missing) = (None, 0);
        for _ in 0..COUNT {
            let text = next.does("get-text m");
            let number: u32 = text[2..].parse().unwrap();
            assert!(last.is_none_or(|last| number > last), "{failpoint}: {number} after {last:?}");
            assert!(last.is_some() || u64::from(number) <= puts, "{failpoint}: {number} of {puts}");
            missing += last.map_or(0, |last| number - last - 1);
            last = Some(number);
        }
        // The messages on their way to the dead one over the core, between two times of direct rings.
        let lost = daemon.mailbox("m").losses.of(MessageLoss::ReaderGone);
        assert!(u64::from(missing) <= lost, "{failpoint}: {missing} missing, {lost} counted");
        drop((reader, next));
        daemon.delete("m");
        drop(writer.answer().unwrap_err());
        drop(writer);
        assert_empty(&daemon);
    }
}
