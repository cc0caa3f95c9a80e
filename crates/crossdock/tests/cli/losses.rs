//! What does not reach a subscriber is said: to it, in lists and in events, with the cause that counted.

use crate::place::{Place, WAYS};
use rustix::process::Signal;

const PAIRS: &str = "a,b\n6,3\n1,0\n8,2\n5,0\n";
const PAIRS_SCHEMA: &str = "a i32\nb i32\n";

/// A place with a daemon, and rows of which a query has to divide by zero.
fn with_pairs(way: &'static str) -> (Place, crate::place::Daemon) {
    let (place, daemon) = Place::with_daemon();
    place.write("r.csv", PAIRS);
    place.write("r.schema", PAIRS_SCHEMA);
    (place.by(way), daemon)
}

const PUBLISH: [&str; 5] = ["publish", "R", "r.csv", "--schema", "r.schema"];
const QUERY: &str = "SELECT a / b AS x FROM R";

#[test]
fn rows_that_a_query_cannot_compute_are_counted_by_cause_and_shown() {
    for way in WAYS {
        let (place, _daemon) = with_pairs(way);
        let subscriber = place.spawn(["subscribe", QUERY, "--wait", "--until-end"]);
        let other = place.spawn(["subscribe", QUERY, "--wait"]);
        place.wait_for_subscriptions(2);
        place.run(PUBLISH).with_code(0);
        let ended = subscriber.end_by_itself().with_code(0).saying(&[
            "2 records dropped by the daemon: division by zero, first in `a / b` (a = 1, b = 0)",
            "2 records dropped (division by zero: 2)",
        ]);
        assert_eq!(ended.stdout, "{\"x\":2}\n{\"x\":4}\n");
        place.wait_for("subscriptions", |list| list.len() == 1 && list[0]["row_errors"] == 2);
        let subscription = &place.list("subscriptions")[0];
        assert_eq!(subscription["dropped_by"], serde_json::json!([["division_by_zero", 2]]));
        assert_eq!(subscription["first_row_error"], "division by zero in `a / b` (a = 1, b = 0)");
        other.signal(Signal::INT);
        other.end_by_itself().with_code(0);
        place.wait_for("events", |list| list.iter().filter(|event| event["kind"] == "dropped").count() > 0);
        let events = place.run(["events"]).with_code(0);
        assert!(events.stdout.contains("because division by zero, first in `a / b`"), "{}", events.stdout);
    }
}

#[test]
fn a_row_error_can_be_null_or_the_end() {
    for way in WAYS {
        let (place, _daemon) = with_pairs(way);
        let query = "SELECT a / b AS x, a FROM R WHERE a < 8 OR 10 / b > 3";
        let of = |policy| place.spawn(["subscribe", query, "--wait", "--until-end", "--on-row-error", policy]);
        let (null, stop) = (of("null"), of("stop"));
        place.wait_for_subscriptions(2);
        place.run(PUBLISH).with_code(0);
        let ended = null.end_by_itself().with_code(0);
        let rows = ["{\"x\":2,\"a\":6}", "{\"x\":null,\"a\":1}", "{\"x\":4,\"a\":8}", "{\"x\":null,\"a\":5}"];
        assert_eq!(ended.stdout.lines().collect::<Vec<_>>(), rows);
        stop.end_by_itself()
            .with_code(1)
            .saying(&["error: the query cannot compute 2 records: division by zero, first in", "hint: --on-row-error"]);
    }
}

#[test]
fn an_end_that_no_publisher_has_said_is_another_end() {
    for way in WAYS {
        let (place, _daemon) = with_pairs(way);
        let follow = ["subscribe", "SELECT * FROM R", "--wait", "--until-end"];
        let subscriber = place.spawn(follow);
        let patient = place.spawn(follow.iter().copied().chain(["--reconnect"]));
        let derived = place.spawn(["subscribe", "SELECT * FROM sums", "--wait", "--until-end"]);
        let sums = "SELECT a + b AS x FROM R";
        place.run(["handler", "deploy", "sums", sums]).with_code(0);
        let mut publisher = place.spawn_fed(["publish", "R", "--schema", "r.schema"]);
        publisher.feed("a,b\n1,2\n");
        place.wait_for("subscriptions", |list| list.len() == 3 && list.iter().all(|of| of["records_out"] == 1));
        publisher.signal(Signal::KILL);
        let said = "a publisher has gone without finishing";
        let ended =
            subscriber.end_by_itself().with_code(1).saying(&["error: ", said, "hint: --reconnect", "1 record "]);
        assert_eq!(ended.stdout.lines().count(), 1);
        derived.end_by_itself().with_code(1).saying(&["error: ", said]);
        patient.stderr_line(|line| line.contains(said));
        place.run(PUBLISH).with_code(0);
        let ended = patient.end_by_itself().with_code(0);
        assert_eq!(ended.stdout.lines().count(), 5);
    }
}

#[test]
fn a_stream_that_nobody_publishes_is_not_waited_for_unless_that_is_asked_for() {
    for way in WAYS {
        let (place, _daemon) = with_pairs(way);
        place.run(PUBLISH).with_code(0);
        let query = "SELECT * FROM R";
        let ended = place.run(["subscribe", query, "--until-end"]).with_code(0);
        ended.saying(&["nobody publishes the stream", "4 records passed, the latest ", "--wait waits", "0 records"]);
        let subscriber = place.spawn(["subscribe", query, "--until-end", "--wait"]);
        place.wait_for_subscriptions(1);
        place.run(PUBLISH).with_code(0);
        assert_eq!(subscriber.end_by_itself().with_code(0).stdout.lines().count(), 4);
    }
}
