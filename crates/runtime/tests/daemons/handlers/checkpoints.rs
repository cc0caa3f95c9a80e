//! Checkpoints of handlers' states: what a daemon begins with after a stop, and after it was killed.

use super::stateful::{publish_timed, publisher_of, rows, timed};
use super::states::{STATE, state_of};
use super::*;
use crossdock_runtime::info::EventInfo;
use std::path::{Path, PathBuf};

const COUNT: &str = "SELECT count(*) AS n FROM A";
const WINDOW: &str =
    "SELECT k, window_start, count(*) AS n, sum(number) AS s FROM A GROUP BY k, TUMBLE(at, INTERVAL '70' SECOND)";
const JOIN: &str = "SELECT a.number AS n, b.number AS m FROM A a JOIN A b ON a.k = b.k AND b.at BETWEEN \
    a.at - INTERVAL '14' SECOND AND a.at";

/// A query's handler that is admitted also on a machine with much other work.
fn deployed(name: &str, query: &str) -> HandlerSpec {
    HandlerSpec { peak_msgs_per_s: Some(100), ..sql(name, query) }
}

fn start_in(directory: &Path, interval_ms: u32) -> (ContextHandle, String) {
    start(|config| {
        config.morph.state_dir = Some(directory.to_owned());
        config.morph.checkpoint_interval_ms = interval_ms;
    })
}

fn events_of(context: &ContextHandle, kind: &str) -> Vec<EventInfo> {
    let events = context.manager().events(0).unwrap();
    events.into_iter().filter(|event| event.kind == kind).collect()
}

/// The checkpoints' directory.
fn checkpoints(directory: &Path) -> PathBuf {
    directory.join("checkpoints")
}

/// The only checkpoint that there is.
fn checkpoint(directory: &Path) -> PathBuf {
    let files = std::fs::read_dir(checkpoints(directory)).unwrap().map(|entry| entry.unwrap().path());
    let mut states: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "state")).collect();
    assert_eq!(states.len(), 1, "{states:?}");
    states.remove(0)
}

/// Waits until it is on disk that a handler has taken that many records.
fn until_counted(directory: &Path, handler: &str, records: u64) {
    let (text, began) = (format!("\"{handler}\":{records}}}"), Instant::now());
    let is_there = || {
        let all = ["counts.0", "counts.1"].map(|name| std::fs::read_to_string(checkpoints(directory).join(name)));
        all.iter().flatten().any(|found| found.contains(&text))
    };
    while !is_there() {
        assert!(began.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
}

/// Copies what a daemon that was killed now would leave; of what is not to be copied, an earlier copy stays.
fn copy(from: &Path, to: &Path, is_copied: impl Fn(&str) -> bool + Copy) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if path.is_dir() {
            copy(&path, &to.join(name), is_copied);
        } else if is_copied(&name) {
            std::fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

/// The rows that a handler makes of these numbers, which are the last.
fn made(addr: &str, handler: &str, numbers: std::ops::Range<u64>) -> Vec<Vec<u64>> {
    let subscribe = Subscriber::builder(addr).sql(format!("SELECT * FROM {handler}")).wait_for_stream(PATIENCE);
    let mut publisher = publisher_of(addr, "A", &timed(), Transport::Udp);
    let mut subscriber = subscribe.connect().unwrap();
    publish_timed(&mut publisher, numbers);
    publisher.finish().unwrap();
    rows(&mut subscriber)
}

#[test]
fn a_daemon_that_was_stopped_goes_on_where_it_was() {
    for query in [COUNT, WINDOW, JOIN] {
        let directory = tempfile::tempdir().unwrap();
        // Only when the daemon stops.
        let (context, addr) = start_in(directory.path(), 0);
        change(&context, ChangeRequest::Deploy(deployed("kept", query)));
        let mut publisher = publisher_of(&addr, "A", &timed(), Transport::Udp);
        let subscribe = Subscriber::builder(&addr).sql("SELECT * FROM kept").wait_for_stream(PATIENCE);
        let mut subscriber = subscribe.connect().unwrap();
        publish_timed(&mut publisher, 0..100);
        publisher.flush().unwrap();
        until(&context, "kept", |info| info.taken >= 100 && info.checkpoints == 0);
        context.stop().unwrap();
        // All that was made before has come, and no end of a stream.
        let mut before = Vec::new();
        while let Ok(Some(event)) = subscriber.next_event(Some(Duration::ZERO)) {
            if let Event::Records(records) = event {
                before.push(records.iter().count());
            }
        }
        // They go on dialling their daemon's port, which the next daemon may get.
        drop((publisher, subscriber));
        let (context, addr) = start_in(directory.path(), 0);
        let info = until(&context, "kept", |info| info.status == "running");
        assert_eq!((info.gap_records, info.checkpoint_failures), (0, 0), "{query}: {info:#?}");
        assert!(info.state_bytes > 0, "{query}: {info:#?}");
        assert_eq!(events_of(&context, "restored").len(), 1, "{query}");
        let after = made(&addr, "kept", 100..200);
        context.stop().unwrap();

        let (whole, addr) = start(|_| {});
        change(&whole, ChangeRequest::Deploy(deployed("kept", query)));
        let all = made(&addr, "kept", 0..200);
        whole.stop().unwrap();
        let first = all.len() - after.len();
        assert!(first > 0 && before.iter().sum::<usize>() <= first, "{query}: {first}, {before:?}");
        let sorted = |mut rows: Vec<Vec<u64>>| {
            rows.sort();
            rows
        };
        assert_eq!(sorted(after), sorted(all[first..].to_vec()), "{query}");
    }
}

#[test]
fn a_daemon_that_was_killed_comes_back_with_its_last_checkpoint_and_counts_the_gap() {
    let (directory, left) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (context, addr) = start_in(directory.path(), 50);
    change(&context, ChangeRequest::Deploy(deployed("counted", COUNT)));
    let mut publisher = publisher_of(&addr, "A", &timed(), Transport::Udp);
    publish_timed(&mut publisher, 0..50);
    publisher.flush().unwrap();
    let info = until(&context, "counted", |info| info.checkpoints > 0);
    assert!(info.checkpoint_bytes > 0 && info.checkpoint_at_ms > 0, "{info:#?}");
    copy(directory.path(), left.path(), |name| !name.ends_with(".new"));
    publish_timed(&mut publisher, 50..80);
    publisher.flush().unwrap();
    until_counted(directory.path(), "counted", 80);
    // The last checkpoint is older than the counts.
    copy(directory.path(), left.path(), |name| name.starts_with("counts"));
    context.stop().unwrap();
    // It goes on dialling its daemon's port, which the next daemon may get.
    drop(publisher);

    let (context, addr) = start_in(left.path(), 0);
    let info = until(&context, "counted", |info| info.status == "running");
    let restored = events_of(&context, "restored");
    assert!(restored[0].text.contains(&format!("at least {} records", info.gap_records)), "{restored:#?}");
    assert!(info.gap_records >= 30, "{info:#?}");
    let counts: Vec<u64> = made(&addr, "counted", 0..10).into_iter().map(|row| row[0]).collect();
    let known = 80 - info.gap_records;
    assert_eq!(counts, (known + 1..=known + 10).collect::<Vec<u64>>());
    context.stop().unwrap();
    // Those that were missing stay so, and no more are.
    let (context, addr) = start_in(left.path(), 0);
    assert_eq!(until(&context, "counted", |info| info.status == "running").gap_records, 0);
    let counts: Vec<u64> = made(&addr, "counted", 0..1).into_iter().map(|row| row[0]).collect();
    assert_eq!(counts, [known + 11]);
    context.stop().unwrap();
}

#[test]
fn a_damaged_checkpoint_and_that_of_another_query_are_reported_and_the_handler_begins_anew() {
    let directory = tempfile::tempdir().unwrap();
    let begin = || start_in(directory.path(), 0);
    let (context, addr) = begin();
    change(&context, ChangeRequest::Deploy(deployed("counted", COUNT)));
    made(&addr, "counted", 0..20);
    context.stop().unwrap();
    let whole = std::fs::read(checkpoint(directory.path())).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() - 1] ^= 1;
    let cut = whole[..whole.len() / 2].to_vec();
    for (number, bytes) in [damaged, cut, Vec::new()].into_iter().enumerate() {
        std::fs::write(checkpoint(directory.path()), &bytes).unwrap();
        let (context, addr) = begin();
        let info = until(&context, "counted", |info| info.status == "running");
        assert_eq!((info.checkpoint_failures, info.gap_records), (1, 20 + number as u64), "{info:#?}");
        let events = events_of(&context, "state_not_restored");
        assert!(events[0].text.contains("damaged"), "{events:#?}");
        assert_eq!(made(&addr, "counted", 0..1), [[1]]);
        context.stop().unwrap();
    }
    // The state of another query, under the same name.
    let handlers = directory.path().join("handlers.json");
    let text = std::fs::read_to_string(&handlers).unwrap();
    std::fs::write(&handlers, text.replace("count(*) AS n", "max(number) AS n")).unwrap();
    let (context, _) = begin();
    until(&context, "counted", |info| info.status == "running");
    let events = events_of(&context, "state_not_restored");
    assert!(events[0].text.contains("another query"), "{events:#?}");
    context.stop().unwrap();
}

#[test]
fn the_checkpoint_of_a_handler_that_is_removed_or_begins_anew_goes() {
    let directory = tempfile::tempdir().unwrap();
    let begin = |interval_ms| start_in(directory.path(), interval_ms);
    let (context, addr) = begin(20);
    change(&context, ChangeRequest::Deploy(deployed("counted", COUNT)));
    made(&addr, "counted", 0..20);
    until(&context, "counted", |info| info.checkpoints > 0);
    change(&context, ChangeRequest::Remove { handler: "counted".into() });
    change(&context, ChangeRequest::Deploy(deployed("counted", COUNT)));
    assert_eq!(made(&addr, "counted", 0..1), [[1]]);
    context.stop().unwrap();
    // One that is left over belongs to no handler.
    std::fs::copy(checkpoint(directory.path()), checkpoints(directory.path()).join("other-00000000.state")).unwrap();
    let (context, _) = begin(0);
    checkpoint(directory.path());
    until(&context, "counted", |info| info.status == "running");
    assert_eq!(events_of(&context, "restored").len(), 1);
    change(&context, ChangeRequest::Remove { handler: "counted".into() });
    context.stop().unwrap();
    let mut names = std::fs::read_dir(checkpoints(directory.path())).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.all(|name| name.to_string_lossy().starts_with("counts")));
}

#[test]
fn a_state_that_is_too_large_for_a_checkpoint_is_reported_once() {
    let directory = tempfile::tempdir().unwrap();
    let (context, addr) = start(|config| {
        config.morph.state_dir = Some(directory.path().to_owned());
        (config.morph.checkpoint_interval_ms, config.morph.checkpoint_max_bytes) = (10, 0);
    });
    change(&context, ChangeRequest::Deploy(deployed("counted", COUNT)));
    let mut publisher = publisher_of(&addr, "A", &timed(), Transport::Udp);
    for round in 0.. {
        publish_timed(&mut publisher, round..round + 1);
        publisher.flush().unwrap();
        if until(&context, "counted", |info| info.taken > round).checkpoint_failures > 1 {
            break;
        }
    }
    let events = events_of(&context, "checkpoint_failed");
    assert!(events.len() == 1 && events[0].text.contains("checkpoint_max_bytes"), "{events:#?}");
    assert_eq!(until(&context, "counted", |_| true).checkpoints, 0);
    context.stop().unwrap();
}

#[test]
fn the_state_of_a_stream_outlives_the_daemon() {
    let directory = tempfile::tempdir().unwrap();
    let (context, addr) = start_in(directory.path(), 20);
    change(&context, ChangeRequest::Deploy(state_of("N", "grp")));
    let mut publisher = Publisher::builder(&addr).stream("N").format(&numbers()).connect().unwrap();
    publish(&mut publisher, 0, 1005);
    publisher.finish().unwrap();
    until(&context, STATE, |info| info.taken == 1005 && info.checkpoints > 0);
    context.stop().unwrap();
    let (context, addr) = start_in(directory.path(), 0);
    until(&context, STATE, |info| info.status == "running");
    let mut subscriber = Subscriber::builder(&addr).sql("SELECT * FROM N SNAPSHOT").connect().unwrap();
    assert_eq!(super::states::table(&mut subscriber).numbers, super::states::last(1005, u64::MAX));
    context.stop().unwrap();
}
