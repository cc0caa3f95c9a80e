//! How commands end that have not come to their own end: signals, and readers who have enough.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Stdio};

use crate::place::{Process, Sandbox, TRANSPORTS};
use rustix::process::{Pid, Signal, kill_process};

const HEADER: &str = "carrier,flight,origin,dest,dep_delay,note\n";

#[test]
fn a_daemon_says_goodbye_and_takes_its_socket_away() {
    for signal in [Signal::INT, Signal::TERM] {
        let (place, daemon) = Sandbox::with_daemon();
        let subscriber = place.spawn(["subscribe", "SELECT * FROM A"]);
        place.wait_for_subscriptions(1);
        assert!(place.socket().exists());
        daemon.process.signal(signal);
        daemon.process.end().with_code(0).saying(&["goodbye"]);
        assert!(!place.socket().exists());
        // Its sessions were notified, so nobody waits for what will never come.
        subscriber.end().with_code(1).saying(&["error: "]);
    }
}

#[test]
fn an_interrupted_publisher_hands_over_what_it_has() {
    for way in TRANSPORTS {
        let (place, _daemon) = Sandbox::with_daemon();
        let place = place.by(way);
        let subscriber = place.spawn(["subscribe", "SELECT flight FROM A", "--until-end", "--wait"]);
        place.wait_for_subscriptions(1);
        let mut publisher = place.spawn_fed(["publish", "A", "--schema", "a.schema", "--linger", "1h", "--json"]);
        publisher.feed(HEADER);
        place.wait_for("streams", |list| list[0]["publishers"] == 1);
        publisher.feed(&("UA,1,EWR,IAH,2,\n".repeat(5000) + "UA,3,EWR"));
        // The stream was announced before the header was read: only records in the daemon show that rows were.
        place.wait_for("streams", |list| list[0]["records_in"].as_u64() > Some(0));
        // The last of the whole rows linger in the publisher. How many it has read cannot be seen from here, so that any number is
        // right, as long as it is the same on both sides. The row that is cut off is no row.
        publisher.signal(Signal::INT);
        let ended = publisher.end_by_itself().with_code(130).saying(&["published "]);
        let published = ended.json()[0]["records"].as_u64().unwrap();
        assert!((1..=5000).contains(&published) && ended.json()[0]["acknowledged"] == true, "{}", ended.stdout);
        assert_eq!(subscriber.end().with_code(0).stdout.lines().count() as u64, published);
    }
}

#[test]
fn a_publisher_that_ends_before_its_first_row_reports_its_end() {
    for way in TRANSPORTS {
        let (place, _daemon) = Sandbox::with_daemon();
        let place = place.by(way);
        for input in [None, Some("no,such,columns\n")] {
            let mut publisher = place.spawn_fed(["publish", "Early", "--schema", "a.schema"]);
            place.wait_for("streams", |list| list.iter().any(|it| it["name"] == "Early" && it["publishers"] == 1));
            let subscriber = place.spawn(["subscribe", "SELECT * FROM Early", "--wait", "--until-end"]);
            place.wait_for_subscriptions(1);
            match input {
                Some(input) => {
                    publisher.feed(input);
                    publisher.end().with_code(1).saying(&["column `no`"]);
                }
                None => {
                    publisher.signal(Signal::INT);
                    publisher.end_by_itself().with_code(130);
                }
            }
            let ended = subscriber.end_by_itself().with_code(0);
            assert!(!ended.stderr.contains("without finishing"), "{}", ended.stderr);
            place.wait_for_subscriptions(0);
        }
    }
}

#[test]
fn a_publisher_that_is_held_back_can_be_interrupted_and_a_second_time_at_once() {
    for way in TRANSPORTS {
        // A subscriber that is stopped says nothing: it must not be given up as gone, which would let the publisher go on.
        let config = "queue_bytes = 65536\nwindow_bytes = 131072\nidle_timeout_ms = 600000\n";
        let (place, daemon) = Sandbox::with_configured_daemon(config);
        let place = place.by(way);
        let subscriber = place.spawn(["subscribe", "SELECT * FROM A"]);
        place.wait_for_subscriptions(1);
        subscriber.signal(Signal::STOP);
        // More than all queues on the way hold, that between two I/O contexts included.
        place.write("many.csv", HEADER.to_owned() + &"UA,1,EWR,IAH,2,a note of some length\n".repeat(500_000));
        let publisher = place.spawn(["publish", "A", "many.csv", "--schema", "a.schema"]);
        // Held back for good, not for the moment in which a queue on the way is emptied into the next: nothing more comes in.
        let (records_in, same) = (Cell::new(0), Cell::new(0));
        place.wait_for("streams", |list| {
            let now = list[0]["records_in"].as_u64().unwrap();
            let stays = list[0]["blocked"] == 1 && records_in.replace(now) == now;
            same.set(if stays { same.get() + 1 } else { 0 });
            same.get() == 100
        });
        // The sent records may all be acknowledged: from here on nothing is, so it waits when it is interrupted.
        daemon.process.signal(Signal::STOP);
        publisher.signal(Signal::INT);
        publisher.stderr_line(|line| line.starts_with("interrupted; waiting"));
        publisher.signal(Signal::INT);
        let ended = publisher.end_by_itself().with_code(130);
        assert_eq!(ended.stderr, "", "it did not wait to sum up");
        daemon.process.signal(Signal::CONT);
        subscriber.signal(Signal::CONT);
    }
}

#[test]
fn an_interrupted_subscriber_prints_its_tally() {
    for way in TRANSPORTS {
        let (place, _daemon) = Sandbox::with_daemon();
        let place = place.by(way);
        let endless = place.spawn(["subscribe", "SELECT * FROM A"]);
        let limited = place.spawn(["subscribe", "SELECT * FROM A", "--limit", "5"]);
        let terminated = place.spawn(["subscribe", "SELECT * FROM A", "--for", "1h"]);
        place.wait_for_subscriptions(3);
        place.write("one.csv", HEADER.to_owned() + "UA,1,EWR,IAH,2,\n");
        place.run(["publish", "A", "one.csv", "--schema", "a.schema"]).with_code(0);
        for subscriber in [&endless, &limited, &terminated] {
            subscriber.stdout_line(|line| line.contains("\"flight\":1"));
        }
        endless.signal(Signal::INT);
        limited.signal(Signal::INT);
        terminated.signal(Signal::TERM);
        // A signal is how the first one ends; the others had not come to their ends.
        endless.end().with_code(0).saying(&["1 record ("]);
        limited.end().with_code(130).saying(&["1 record ("]);
        terminated.end().with_code(143).saying(&["1 record ("]);
        place.wait_for_subscriptions(0);
    }
}

#[test]
fn a_subscriber_whose_output_nobody_reads_can_be_interrupted() {
    let (place, _daemon) = Sandbox::with_daemon();
    let (mut child, stdout) = read_one_line(&place, &["subscribe", "SELECT * FROM A"]);
    place.wait_for_subscriptions(1);
    // Far more than a pipe holds, but less than what the daemon queues.
    place.write("many.csv", HEADER.to_owned() + &"UA,1,EWR,IAH,2,a note of some length\n".repeat(20_000));
    place.run(["publish", "A", "many.csv", "--schema", "a.schema"]).with_code(0);
    place.wait_for("subscriptions", |list| list[0]["records_out"] == 20_000);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{stderr}");
    assert!(stderr.contains("were not read"), "{stderr}");
    drop(stdout);
}

#[test]
fn a_time_limit_is_an_end() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.run(["subscribe", "SELECT * FROM A", "--for", "50ms"]).with_code(0).saying(&["0 records"]);
    place.run(["subscribe", "SELECT * FROM A", "--limit", "0"]).with_code(0).saying(&["0 records"]);
}

/// Starts a command whose standard output is read no further than its first line.
fn read_one_line(place: &Sandbox, arguments: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let mut child = place.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    (child, stdout)
}

#[test]
fn a_reader_that_has_enough_ends_a_subscriber_quietly() {
    let (place, _daemon) = Sandbox::with_daemon();
    let (mut child, mut stdout) = read_one_line(&place, &["subscribe", "SELECT flight FROM A"]);
    place.wait_for_subscriptions(1);
    place.write("one.csv", HEADER.to_owned() + "UA,1,EWR,IAH,2,\n");
    place.run(["publish", "A", "one.csv", "--schema", "a.schema"]).with_code(0);
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "{\"flight\":1}\n");
    // As `| head -n 1` does. Nothing more is published: it must see by itself that nobody reads it.
    drop(stdout);
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""));
    place.wait_for_subscriptions(0);
}

#[test]
fn a_reader_that_is_gone_ends_any_command_quietly() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("one.csv", HEADER.to_owned() + "UA,1,EWR,IAH,2,\n");
    let commands: [&[&str]; 6] = [
        &["streams"],
        &["formats", "--json"],
        &["explain", "SELECT * FROM A"],
        &["completions", "bash"],
        &["serve", "--print-config"],
        &["publish", "A", "one.csv", "--schema", "a.schema", "--json"],
    ];
    for arguments in commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = place.command(arguments).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("error") && !stderr.contains("panic"), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_demo_can_be_interrupted() {
    let place = Sandbox::new();
    let demo = Process::spawn(&mut place.command(["demo", "airline"]));
    demo.stdout_line(|line| line.contains("made up"));
    demo.signal(Signal::INT);
    let ended = demo.end();
    assert_eq!(ended.code, Some(130), "{}{}", ended.stdout, ended.stderr);
}
