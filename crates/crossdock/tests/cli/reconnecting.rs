//! `--reconnect`: what follows when the daemon is killed and started again, or is not there yet.

use crate::place::{Daemon, Process, Sandbox, TRANSPORTS};
use rustix::process::Signal;
use std::time::{Duration, Instant};

const SCHEMA: &str = "a u64\n";

/// Within this time of its daemon a client is back, by far: 1 s is meant, and a test's machine may be busy.
const SOON: Duration = Duration::from_secs(4);

/// A place whose daemon can be started again at the same address.
fn with_daemon(way: &'static str) -> (Sandbox, Daemon) {
    let (place, daemon) = Sandbox::with_daemon();
    place.write("r.schema", SCHEMA);
    (place.by(way), daemon)
}

/// A daemon at the address that the place's commands use.
fn start(place: &Sandbox) -> Daemon {
    let address = place.address().to_owned();
    Daemon::start(&mut place.command(["serve", "--config", "crossdock.toml", "--listen", &address]))
}

fn kill(daemon: Daemon) {
    daemon.process.signal(Signal::KILL);
    daemon.process.end();
}

const PUBLISH: [&str; 7] = ["publish", "R", "-", "--schema", "r.schema", "--reconnect", "--no-header"];
const SUBSCRIBE: [&str; 4] = ["subscribe", "SELECT * FROM R", "--reconnect", "--wait"];

/// The first daemon knows a publisher and a subscriber that are quiet when it is killed. The second is there before either has
/// asked for the first.
#[test]
fn a_quiet_client_is_back_soon_after_a_kill() {
    for way in TRANSPORTS {
        let (place, daemon) = with_daemon(way);
        let subscriber = place.spawn(SUBSCRIBE);
        place.wait_for_subscriptions(1);
        let mut publisher = place.spawn_fed(PUBLISH);
        publisher.feed("1\n");
        subscriber.stdout_line(|line| line == "{\"a\":1}");
        kill(daemon);
        let _second = start(&place);
        let started = Instant::now();
        subscriber.stderr_line(|line| line.contains("is restored"));
        place.wait_for_subscriptions(1);
        place.wait_for("streams", |list| list.iter().any(|of| of["name"] == "R" && of["publishers"] == 1));
        let took = started.elapsed();
        println!("{way}: back after {took:?}");
        assert!(took < SOON, "{way}: {took:?}");
        publisher.feed("2\n");
        subscriber.stdout_line(|line| line == "{\"a\":2}");
        publisher.end().with_code(0);
    }
}

#[test]
fn a_daemon_that_is_not_there_yet_is_waited_for() {
    for way in TRANSPORTS.into_iter().chain(["auto"]) {
        let place = Sandbox::new().by(way);
        place.write("a.schema", crate::place::FLIGHTS_SCHEMA);
        place.write("r.schema", SCHEMA);
        place.write("crossdock.toml", crate::place::with_io_contexts("[context]\nlisten = \"127.0.0.1:0\"\n"));
        // Without the option, it is an error as before.
        let failed = place.run(["subscribe", "SELECT * FROM R"]).with_code(1);
        assert!(!failed.stderr.contains("waiting"), "{}", failed.stderr);
        let waits = format!("waiting for a daemon at {}", place.address());
        let subscriber = place.spawn(SUBSCRIBE);
        let mut publisher = place.spawn_fed(PUBLISH);
        let (ended, idle) = (place.spawn(SUBSCRIBE), place.spawn_fed(PUBLISH));
        for process in [&subscriber, &publisher, &ended, &idle] {
            process.stderr_line(|line| line.contains(&waits));
        }
        for process in [ended, idle] {
            process.signal(Signal::INT);
            let ended = process.end_by_itself().with_code(130);
            assert!(!ended.stderr.contains("waiting"), "it is said once: {}", ended.stderr);
        }
        let _daemon = start(&place);
        place.wait_for_subscriptions(1);
        publisher.feed("1\n");
        subscriber.stdout_line(|line| line == "{\"a\":1}");
        publisher.end().with_code(0);
    }
}

/// Arguments of a publisher that waits for its subscribers, fed by standard input.
fn awaiting<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&PUBLISH[..], &["--await-subscribers"], more].concat()
}

const TO_THE_END: [&str; 5] = ["subscribe", "SELECT * FROM R", "--reconnect", "--wait", "--until-end"];

/// A subscriber that ends when this record has passed. How many records pass is not known: one whose acknowledgement was lost with
/// the daemon before comes again.
fn passes(place: &Sandbox, number: u64) -> Process {
    let query = format!("SELECT * FROM R WHERE a = {number}");
    let before = place.list("subscriptions").len();
    let process = place.spawn(["subscribe", &query, "--wait", "--limit", "1"]);
    place.wait_for_subscriptions(before + 1);
    process
}

/// Waits until the daemon has taken this number of records of the stream.
fn taken(place: &Sandbox, records: u64) {
    place.wait_for("streams", |list| list.iter().any(|of| of["name"] == "R" && of["records_in"] == records));
}

/// The subscriber does not run when the daemon is killed, and comes back when records have passed at the next one.
#[test]
fn records_that_pass_while_a_subscriber_is_away_are_counted_and_reported() {
    for way in TRANSPORTS {
        let (place, daemon) = with_daemon(way);
        let subscriber = place.spawn(TO_THE_END);
        let filtered = ["subscribe", "SELECT a FROM R WHERE a < 100", "--reconnect", "--wait", "--until-end"];
        let filtered = place.spawn(filtered);
        let other = place.spawn(["subscribe", "SELECT * FROM R", "--wait"]);
        place.wait_for_subscriptions(3);
        let mut publisher = place.spawn_fed(PUBLISH);
        publisher.feed("1\n");
        for subscriber in [&subscriber, &filtered, &other] {
            subscriber.stdout_line(|line| line == "{\"a\":1}");
        }
        subscriber.signal(Signal::STOP);
        filtered.signal(Signal::STOP);
        kill(daemon);
        other.end_by_itself().with_code(1);
        let _second = start(&place);
        let passed = passes(&place, 4);
        publisher.feed("2\n300\n4\n");
        passed.end_by_itself().with_code(0);
        subscriber.signal(Signal::CONT);
        filtered.signal(Signal::CONT);
        place.wait_for_subscriptions(2);
        subscriber.stderr_line(|line| {
            line == "3 records of the stream passed while the connection was lost, and did not arrive"
        });
        filtered.stderr_line(|line| line.starts_with("up to 3 records of the stream passed"));
        place.wait_for("events", |list| list.iter().filter(|event| event["kind"] == "missed").count() == 2);
        let events = place.run(["events"]).with_code(0).stdout;
        assert!(events.contains("missed 3 records of `R` while its connection was lost"), "{events}");
        publisher.feed("5\n");
        publisher.end().with_code(0);
        let ended = subscriber.end_by_itself().with_code(0).saying(&["2 records, 3 missed"]);
        assert_eq!(ended.stdout, "{\"a\":5}\n");
        filtered.end_by_itself().with_code(0).saying(&["2 records, up to 3 missed"]);
    }
}

#[test]
fn a_publisher_that_does_not_come_back_is_not_counted_and_a_new_one_is() {
    let (place, daemon) = with_daemon("udp");
    let subscriber = place.spawn(TO_THE_END);
    place.wait_for_subscriptions(1);
    let (mut stays, mut goes) =
        (place.spawn_fed(PUBLISH), place.spawn_fed(["publish", "R", "-", "--schema", "r.schema", "--no-header"]));
    for (publisher, row) in [(&mut stays, "1\n"), (&mut goes, "2\n")] {
        publisher.feed(row);
        subscriber.stdout_line(|line| line.starts_with("{\"a\""));
    }
    // A third that comes and finishes: the daemon says again how far the stream has come.
    place.write("row.csv", "7\n");
    place.run(["publish", "R", "row.csv", "--schema", "r.schema", "--no-header"]).with_code(0);
    subscriber.stdout_line(|line| line == "{\"a\":7}");
    subscriber.signal(Signal::STOP);
    kill(daemon);
    goes.end().with_code(1);
    let _second = start(&place);
    let mut new = place.spawn_fed(PUBLISH);
    let passed = [passes(&place, 4), passes(&place, 5)];
    new.feed("3\n4\n");
    stays.feed("5\n");
    passed.into_iter().for_each(|passed| drop(passed.end_by_itself().with_code(0)));
    subscriber.signal(Signal::CONT);
    subscriber.stderr_line(|line| line.starts_with("3 records of the stream passed"));
    new.end().with_code(0);
    stays.end().with_code(0);
    let not_counted = "; records of 1 publisher that has not come back are not counted as missed";
    subscriber.end_by_itself().with_code(0).saying(&["3 records, 3 missed", not_counted]);
}

/// In the middle of traffic: what came and what is said to be missed are all, whatever was within the daemon.
#[test]
fn a_kill_under_load_loses_what_was_within_the_daemon_and_this_is_counted() {
    const RECORDS: usize = 400_000;
    for way in TRANSPORTS {
        let (place, daemon) = with_daemon(way);
        let rows: String = (0..RECORDS).map(|number| format!("{number}\n")).collect();
        place.write("rows.csv", rows);
        let subscriber = place.spawn(TO_THE_END);
        place.wait_for_subscriptions(1);
        let publish =
            ["publish", "R", "rows.csv", "--schema", "r.schema", "--no-header", "--reconnect", "--rate", "400k"];
        let publisher = place.spawn([&publish[..], &["--await-subscribers", "1m"]].concat());
        place.wait_for("streams", |list| list.iter().any(|of| of["records_in"].as_u64() > Some(20_000)));
        kill(daemon);
        let _second = start(&place);
        publisher.end_by_itself().with_code(0).saying(&["published 400,000 records"]);
        let ended = subscriber.end_by_itself().with_code(0);
        let came = ended.stdout.lines().count();
        let tally = ended.stderr.lines().last().unwrap_or_default();
        println!("{way}: {tally}");
        // A record that came twice, since its acknowledgement was lost, counts against what was missed.
        let missed = RECORDS.saturating_sub(came);
        let said = tally.split_once(" missed").and_then(|(text, _)| text.rsplit(", ").next());
        let said = said.map_or(0, |text| text.replace(',', "").parse().unwrap());
        assert_eq!(said, missed, "{came} came; {}", ended.stderr);
    }
}

#[test]
fn a_publisher_waits_for_the_subscribers_that_were_there() {
    for way in TRANSPORTS {
        let (place, daemon) = with_daemon(way);
        let subscriber = place.spawn(TO_THE_END);
        place.wait_for_subscriptions(1);
        let mut publisher = place.spawn_fed(awaiting(&["2m"]));
        publisher.feed("1\n");
        subscriber.stdout_line(|line| line == "{\"a\":1}");
        subscriber.signal(Signal::STOP);
        kill(daemon);
        let _second = start(&place);
        publisher.feed("2\n");
        publisher.stderr_line(|line| line == "waiting for subscribers of R, at most 2 min 0 s: there are 0 of 1");
        taken(&place, 0);
        subscriber.signal(Signal::CONT);
        publisher.stderr_line(|line| line == "publishing goes on, with 1 subscriber");
        subscriber.stdout_line(|line| line == "{\"a\":2}");
        publisher.end().with_code(0);
        let ended = subscriber.end_by_itself().with_code(0);
        assert!(!ended.stderr.contains("missed"), "{}", ended.stderr);
    }
}

#[test]
fn a_publisher_waits_for_subscribers_for_a_time_only() {
    for way in TRANSPORTS {
        let (place, daemon) = with_daemon(way);
        let subscriber = place.spawn(TO_THE_END);
        place.wait_for_subscriptions(1);
        let mut publisher = place.spawn_fed(awaiting(&["300ms"]));
        publisher.feed("1\n");
        subscriber.stdout_line(|line| line == "{\"a\":1}");
        subscriber.signal(Signal::STOP);
        kill(daemon);
        let _second = start(&place);
        publisher.feed("2\n");
        publisher.stderr_line(|line| line == "publishing goes on after 0.30 s, with 0 of 1 subscribers");
        publisher.end().with_code(0);
    }
}

#[test]
fn a_publisher_may_wait_for_subscribers_at_its_start() {
    for way in TRANSPORTS {
        let (place, _daemon) = with_daemon(way);
        let mut publisher = place.spawn_fed(awaiting(&["2m", "--min-subscribers", "2"]));
        publisher.feed("1\n");
        publisher
            .stderr_line(|line| line.starts_with("waiting for subscribers of R") && line.ends_with("there are 0 of 2"));
        let subscribers = [place.spawn(TO_THE_END), place.spawn(TO_THE_END)];
        publisher.stderr_line(|line| line == "publishing goes on, with 2 subscribers");
        publisher.end().with_code(0);
        for subscriber in subscribers {
            assert_eq!(subscriber.end_by_itself().with_code(0).stdout, "{\"a\":1}\n");
        }
    }
}
