//! A loss of a subscriber is reported: to it, in lists and in events, with the cause that counted.

use crate::place::{Process, Sandbox, TRANSPORTS, io_count};
use crate::top::Terminal;
use rustix::process::Signal;

const PAIRS: &str = "a,b\n6,3\n1,0\n8,2\n5,0\n";
const PAIRS_SCHEMA: &str = "a i32\nb i32\n";

/// A place with a daemon, and rows where a query has to divide by zero.
fn with_pairs(way: &'static str) -> (Sandbox, crate::place::Daemon) {
    let (place, daemon) = Sandbox::with_daemon();
    place.write("r.csv", PAIRS);
    place.write("r.schema", PAIRS_SCHEMA);
    (place.by(way), daemon)
}

const PUBLISH: [&str; 5] = ["publish", "R", "r.csv", "--schema", "r.schema"];
const QUERY: &str = "SELECT a / b AS x FROM R";

/// The words of an output: lines are as wide as a terminal, so words may stand on the next one.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A part of a client's name in events.
fn peer_name(way: &str, client: &Process) -> String {
    if way == "shm" { format!("(pid {} crossdock)", client.pid()) } else { "127.0.0.1:".to_owned() }
}

#[test]
fn rows_that_a_query_cannot_compute_are_counted_by_cause_and_shown() {
    for way in TRANSPORTS {
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
        let cause = "division_by_zero 2; first division by zero in `a / b`";
        let doctor = place.run(["doctor"]).with_code(0);
        let words = words(&doctor.stdout);
        assert!(words.starts_with("warning: subscription ") && words.contains(cause), "{}", doctor.stdout);
        other.signal(Signal::INT);
        other.end_by_itself().with_code(0);
        place.run(["doctor"]).with_code(0);
        place.wait_for("events", |list| list.iter().filter(|event| event["kind"] == "dropped").count() > 0);
        let events = place.run(["events"]).with_code(0);
        assert!(events.stdout.contains("because division by zero, first in `a / b`"), "{}", events.stdout);
    }
}

#[test]
fn rows_that_a_handler_cannot_compute_are_named_with_their_cause() {
    let (place, daemon) = with_pairs("udp");
    place.run(PUBLISH).with_code(0);
    place.run(["handler", "deploy", "quotients", "SELECT a / b AS x FROM R"]).with_code(0);
    place.run(PUBLISH).with_code(0);
    place.wait_for("handlers", |list| list[0]["row_errors"] == 2);
    let handler = &place.list("handlers")[0];
    assert_eq!(handler["row_errors_by"], serde_json::json!([["division_by_zero", 2]]));
    let first = "division by zero in `a / b` (a = 1, b = 0)";
    assert_eq!(handler["first_row_error"], first);
    let detail = words(&place.run(["handlers", "quotients"]).with_code(0).stdout);
    assert!(detail.contains("division_by_zero 2") && detail.contains(first), "{detail}");
    let doctor = words(&place.run(["doctor"]).with_code(0).stdout);
    assert!(
        doctor.contains(&format!("handler `quotients` lost 2 records: division_by_zero 2; first {first}")),
        "{doctor}"
    );
    place.wait_for("events", |list| list.iter().any(|of| of["kind"] == "dropped" && of["handler"] == "quotients"));
    let said = "lost 2 records: 2 because division by zero, first in `a / b` (a = 1, b = 0)";
    let events = place.run(["events"]).with_code(0).stdout;
    assert!(events.contains(said), "{events}");
    daemon.process.stderr_line(|line| line.contains(said));
}

#[test]
fn rows_that_a_conversion_cannot_compute_are_named_with_their_cause() {
    for way in TRANSPORTS {
        let (place, _daemon) = with_pairs(way);
        place.write("old.csv", "c,s,d\n1,6,3\n2,1,0\n3,8,2\n");
        place.write("old.schema", "c i32\ns i32\nd i32\n");
        place.write("new.csv", "c,q\n0,0\n");
        place.write("new.schema", "c i32\nq i64\n");
        for format in ["old", "new"] {
            let (rows, schema) = (format!("{format}.csv"), format!("{format}.schema"));
            place.run(["publish", "C", &rows, "--schema", &schema]).with_code(0);
        }
        place.run(["conversions", "add", "C", "v1", "v2", "--sql", "SELECT c, s / d AS q FROM x"]).with_code(0);
        let subscriber = place.spawn(["subscribe", "SELECT * FROM C", "--accept", "v2", "--wait", "--until-end"]);
        let other = place.spawn(["subscribe", "SELECT * FROM C", "--accept", "v2", "--wait"]);
        place.wait_for_subscriptions(2);
        place.run(["publish", "C", "old.csv", "--schema", "old.schema"]).with_code(0);
        let cause = "division by zero in a conversion, in `s / d` (s = 1, d = 0)";
        let ended = subscriber.end_by_itself().with_code(0).saying(&["1 record dropped by the daemon: ", cause]);
        assert_eq!(ended.stdout, "{\"c\":1,\"q\":2}\n{\"c\":3,\"q\":4}\n");
        let subscription = &place.list("subscriptions")[0];
        assert_eq!((&subscription["dropped"], &subscription["row_errors"]), (&1.into(), &0.into()));
        assert_eq!(subscription["dropped_by"], serde_json::json!([["division_by_zero", 1]]));
        assert_eq!(subscription["first_conversion_error"], "division by zero in `s / d` (s = 1, d = 0)");
        let doctor = words(&place.run(["doctor"]).with_code(0).stdout);
        let first = "division_by_zero 1; first in a conversion: division by zero in `s / d`";
        assert!(doctor.contains(first), "{doctor}");
        other.signal(Signal::INT);
        other.end_by_itself();
        place.wait_for("events", |list| list.iter().any(|of| of["text"].as_str().is_some_and(|of| of.contains(cause))));
    }
}

#[test]
fn a_row_error_can_be_null_or_the_end() {
    for way in TRANSPORTS {
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
    for way in TRANSPORTS {
        let (place, daemon) = with_pairs(way);
        let follow = ["subscribe", "SELECT * FROM R", "--wait", "--until-end"];
        let subscriber = place.spawn(follow);
        let patient = place.spawn(follow.iter().copied().chain(["--reconnect"]));
        let derived = place.spawn(["subscribe", "SELECT * FROM sums", "--wait", "--until-end"]);
        let sums = "SELECT a + b AS x FROM R";
        place.run(["handler", "deploy", "sums", sums]).with_code(0);
        let mut publisher = place.spawn_fed(["publish", "R", "--schema", "r.schema"]);
        publisher.feed("a,b\n");
        // A subscriber that comes later gets nothing of the record.
        place.wait_for_subscriptions(3);
        publisher.feed("1,2\n");
        place.wait_for("subscriptions", |list| list.iter().all(|of| of["records_out"] == 1));
        publisher.signal(Signal::KILL);
        let said = "a publisher has gone without finishing";
        let ended =
            subscriber.end_by_itself().with_code(1).saying(&["error: ", said, "hint: --reconnect", "1 record "]);
        assert_eq!(ended.stdout.lines().count(), 1);
        derived.end_by_itself().with_code(1).saying(&["error: ", said]);
        patient.stderr_line(|line| line.contains(said));
        let gone = |wanted: &str| {
            let is_it = |text: &str| text.contains(&peer_name(way, &publisher)) && text.contains(wanted);
            place.wait_for("events", |list| {
                list.iter().any(|of| of["kind"] == "gone" && of["text"].as_str().is_some_and(is_it))
            });
        };
        gone("it published `R` without finishing");
        daemon.process.stderr_line(|line| line.contains("kind=\"gone\"") && line.contains("published `R`"));
        let doctor = words(&place.run(["doctor"]).with_code(0).stdout);
        assert!(doctor.contains("warning: 1 event `gone`") && doctor.contains("published `R`"), "{doctor}");
        place.run(PUBLISH).with_code(0);
        let ended = patient.end_by_itself().with_code(0);
        assert_eq!(ended.stdout.lines().count(), 5);
    }
}

#[test]
fn a_subscriber_that_is_killed_is_an_event_and_one_that_ends_is_none() {
    for way in TRANSPORTS {
        let (place, _daemon) = with_pairs(way);
        place.run(PUBLISH).with_code(0);
        let subscribe = ["subscribe", "SELECT * FROM R", "--wait"];
        let (killed, ended) = (place.spawn(subscribe), place.spawn(subscribe));
        place.wait_for_subscriptions(2);
        place.run(PUBLISH).with_code(0);
        // It is at work, and takes the signal as a request.
        ended.stdout_line(|line| line.contains("\"a\":5"));
        ended.signal(Signal::INT);
        ended.end_by_itself().with_code(0);
        place.wait_for_subscriptions(1);
        assert_eq!(place.list("events"), Vec::<serde_json::Value>::new());
        killed.signal(Signal::KILL);
        place.wait_for("events", |list| !list.is_empty());
        let events = place.list("events");
        let text = events[0]["text"].as_str().unwrap();
        assert!(events.len() == 1 && events[0]["kind"] == "gone", "{events:?}");
        assert!(text.contains("without ending its subscription to `R`"), "{text}");
    }
}

#[test]
fn an_earlier_loss_concerns_nobody_who_comes_later() {
    let (place, _daemon) = with_pairs("udp");
    let publisher = || {
        let mut publisher = place.spawn_fed(["publish", "R", "--schema", "r.schema"]);
        publisher.feed("a,b\n1,2\n");
        publisher
    };
    let (stays, lost) = (publisher(), publisher());
    place.wait_for("streams", |list| list.iter().any(|stream| stream["name"] == "R" && stream["publishers"] == 2));
    let before = place.spawn(["subscribe", "SELECT * FROM R", "--until-end", "--reconnect"]);
    place.wait_for_subscriptions(1);
    lost.signal(Signal::KILL);
    before.stderr_line(|line| {
        line.contains("a publisher has gone without finishing") && line.contains("1 publisher left")
    });
    let after = place.spawn(["subscribe", "SELECT * FROM R", "--until-end"]);
    place.wait_for_subscriptions(2);
    stays.end().with_code(0);
    after.end_by_itself().with_code(0);
    // The one that is there has finished, so there is nobody to wait for.
    before.end_by_itself().with_code(0);
}

#[test]
fn a_stream_that_nobody_publishes_is_not_waited_for_unless_that_is_asked_for() {
    for way in TRANSPORTS {
        let (place, _daemon) = with_pairs(way);
        place.run(PUBLISH).with_code(0);
        let query = "SELECT * FROM R";
        let ended = place.run(["subscribe", query, "--until-end"]).with_code(0);
        ended.saying(&["nobody publishes the stream", "4 records passed, the latest ", "--wait waits", "0 records"]);
        let subscriber = place.spawn(["subscribe", query, "--until-end", "--wait"]);
        place.wait_for_subscriptions(1);
        place.run(PUBLISH).with_code(0);
        assert_eq!(subscriber.end_by_itself().with_code(0).stdout.lines().count(), 4);
        // The time of --wait bounds the wait for a publisher as it does that for the stream.
        let ended = place.run(["subscribe", query, "--until-end", "--wait=1s"]).with_code(2);
        ended.saying(&["nobody has published `R` within the time of --wait"]);
        // A publisher that has no record yet is one.
        let subscriber = place.spawn(["subscribe", query, "--until-end", "--wait=5s", "--for", "6s"]);
        place.wait_for_subscriptions(1);
        let publisher = place.spawn_fed(["publish", "R", "--schema", "r.schema"]);
        subscriber.end_by_itself().with_code(0).saying(&["0 records"]);
        publisher.end();
    }
}

#[test]
fn in_a_terminal_it_says_what_it_waits_for() {
    let (place, _daemon) = with_pairs("shm");
    let mut waits = Terminal::run(&place.command(["subscribe", "SELECT * FROM R", "--wait"]));
    waits.wait_for(|text| text.contains("waiting for `R`: nobody has published it yet; Ctrl-C ends"));
    place.run(PUBLISH).with_code(0);
    waits.wait_for(|text| text.contains("\"b\":"));
    let mut waits = Terminal::run(&place.command(["subscribe", "SELECT * FROM R", "--wait", "--until-end"]));
    waits.wait_for(|text| text.contains("waiting for a publisher of `R`: streams keep no records (4 records passed"));
}

#[test]
fn a_subscriber_that_stops_at_a_row_error_prints_all_rows_before_it() {
    for way in TRANSPORTS {
        let (place, _daemon) = with_pairs(way);
        // Two rows, and more than a packet and a batch hold.
        for before in [1, 50_000] {
            let query = "SELECT a / b AS x FROM R";
            let subscriber = place.spawn(["subscribe", query, "--wait", "--on-row-error", "stop", "--output", "csv"]);
            place.wait_for_subscriptions(1);
            let rows = |count: usize| "6,3\n".repeat(count);
            place.write("many.csv", "a,b\n".to_owned() + &rows(before) + "1,0\n" + &rows(before));
            place.run(["publish", "R", "many.csv", "--schema", "r.schema"]).with_code(0);
            let ended = subscriber.end_by_itself().with_code(1).saying(&["division by zero"]);
            assert!(ended.stdout.lines().count() > before, "{} of {before}", ended.stdout.lines().count() - 1);
            assert!(ended.stdout.lines().skip(1).all(|line| line == "2"));
            place.wait_for_subscriptions(0);
        }
    }
}

#[test]
fn a_stopped_subscriber_holds_publishers_back_for_a_time_only_and_is_named() {
    for way in TRANSPORTS {
        let config = "queue_bytes = 65536\nwindow_bytes = 131072\nidle_timeout_ms = 3000\n";
        let (place, _daemon) = Sandbox::with_configured_daemon(config);
        let place = place.by(way);
        let subscriber = place.spawn(["subscribe", "SELECT * FROM R", "--wait"]);
        let other = place.spawn(["subscribe", "SELECT a FROM R WHERE b = 7", "--wait", "--until-end"]);
        place.wait_for_subscriptions(2);
        subscriber.signal(Signal::STOP);
        let rows = "a,b\n".to_owned() + &"123456789,987654321\n".repeat(300_000) + "1,7\n";
        place.write("many.csv", rows);
        place.write("r.schema", PAIRS_SCHEMA);
        place.run(["publish", "R", "many.csv", "--schema", "r.schema"]).with_code(0);
        assert_eq!(other.end_by_itself().with_code(0).stdout, "{\"a\":1}\n");
        place.wait_for("events", |list| list.iter().any(|event| event["kind"] == "disconnected"));
        let events = place.list("events");
        let text_of = |kind: &str| {
            let event = events.iter().find(|event| event["kind"] == kind);
            event.and_then(|event| event["text"].as_str()).unwrap_or_default().to_owned()
        };
        let name = peer_name(way, &subscriber);
        let (blocked, disconnected) = (text_of("blocked"), text_of("disconnected"));
        assert!(blocked.contains(&name) && blocked.contains("holds back the publishers of `R`"), "{blocked}");
        assert!(disconnected.contains(&name) && disconnected.contains("was disconnected: "), "{disconnected}");
        subscriber.signal(Signal::CONT);
        subscriber.end_by_itself().with_code(1);
    }
}

#[test]
fn a_slow_subscriber_sees_its_records_and_its_drops() {
    for way in TRANSPORTS {
        let (place, _daemon) = Sandbox::with_configured_daemon("queue_bytes = 65536\nwindow_bytes = 131072\n");
        let place = place.by(way);
        let subscriber = place.spawn([
            "subscribe",
            "SELECT * FROM R",
            "--wait",
            "--on-overflow",
            "drop_oldest",
            "--limit",
            "1000000",
        ]);
        place.wait_for_subscriptions(1);
        subscriber.signal(Signal::STOP);
        place.write("many.csv", "a,b\n".to_owned() + &"123456789,987654321\n".repeat(200_000));
        place.write("r.schema", PAIRS_SCHEMA);
        place.run(["publish", "R", "many.csv", "--schema", "r.schema"]).with_code(0);
        subscriber.signal(Signal::CONT);
        let of = |list: &[serde_json::Value], key: &str| list[0][key].as_u64().unwrap();
        place.wait_for("subscriptions", |list| {
            of(list, "records_out") + of(list, "dropped") == 200_000 && list[0]["backlog_bytes"] == 0
        });
        let list = place.list("subscriptions");
        let (sent, dropped) = (of(&list, "records_out"), of(&list, "dropped"));
        assert!(dropped > 0, "the queue was never full");
        // The records that its query has seen were sent, or dropped from the queue behind it; the rest in front of it.
        assert!((sent..=200_000).contains(&of(&list, "records_in")));
        // Records that have come may wait to be shown when the signal does.
        (0..sent).for_each(|_| drop(subscriber.stdout_line(|_| true)));
        subscriber.signal(Signal::INT);
        let ended = subscriber.end_by_itself().with_code(130).saying(&["its policy is drop_oldest"]);
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn a_stopped_subscriber_gets_the_daemon_s_reason_when_it_goes_on() {
    // Longer than a client waits for a packet.
    let (place, _daemon) = Sandbox::with_configured_daemon("idle_timeout_ms = 6000\n");
    let place = place.by("udp");
    let subscriber = place.spawn(["subscribe", "SELECT * FROM R", "--wait"]);
    place.wait_for_subscriptions(1);
    subscriber.signal(Signal::STOP);
    place.wait_for("events", |list| list.iter().any(|event| event["kind"] == "disconnected"));
    subscriber.signal(Signal::CONT);
    subscriber.end_by_itself().with_code(1).saying(&["no packet arrived for 6000 ms"]);
}

#[test]
fn repeated_losses_of_a_subscription_are_few_events_that_have_all_of_them() {
    let (place, _daemon) = with_pairs("udp");
    let began = std::time::Instant::now();
    let subscriber = place.spawn(["subscribe", QUERY, "--wait"]);
    place.wait_for_subscriptions(1);
    for _ in 0..20 {
        place.run(PUBLISH).with_code(0);
    }
    place.wait_for("subscriptions", |list| list[0]["row_errors"] == 40);
    subscriber.signal(Signal::INT);
    subscriber.end_by_itself().with_code(0);
    let lost = |event: &serde_json::Value| {
        let text = event["text"].as_str().filter(|_| event["kind"] == "dropped").unwrap_or_default();
        text.split("did not get ").nth(1).map_or(0, |rest| rest.split(' ').next().unwrap().parse().unwrap())
    };
    place.wait_for("events", |list| list.iter().map(lost).sum::<u64>() == 40);
    let events = place.list("events").iter().filter(|event| event["kind"] == "dropped").count() as u64;
    // One at first, one in ten seconds, and one at the end.
    assert!(events <= 2 + began.elapsed().as_secs() / 10, "{events}");
}

#[test]
fn the_list_of_subscriptions_has_the_main_cause_of_what_they_lost() {
    let (place, _daemon) = with_pairs("udp");
    let _subscriber = place.spawn(["subscribe", QUERY, "--wait"]);
    place.wait_for_subscriptions(1);
    place.run(PUBLISH).with_code(0);
    place.wait_for("subscriptions", |list| list[0]["row_errors"] == 2);
    let list = place.run(["subscriptions"]).with_code(0).stdout;
    assert!(list.contains("2 division_by_zero"), "{list}");
}

#[test]
fn doctor_names_slow_and_delayed_clients_and_which_bound_is_near() {
    let bounds = "queue_bytes = 65536\nwindow_bytes = 131072\nidle_timeout_ms = 60000\nmax_sessions = 2\n";
    let (place, _daemon) = Sandbox::with_configured_daemon(bounds);
    let place = place.by("udp");
    let subscriber = place.spawn(["subscribe", "SELECT * FROM R", "--wait"]);
    place.wait_for_subscriptions(1);
    subscriber.signal(Signal::STOP);
    // More than all queues on the way hold, that between two I/O contexts included.
    place.write("many.csv", "a,b\n".to_owned() + &"123456789,987654321\n".repeat(2_000_000));
    place.write("r.schema", PAIRS_SCHEMA);
    let _publisher = place.spawn(["publish", "R", "many.csv", "--schema", "r.schema"]);
    place.wait_for("streams", |list| list.iter().any(|stream| stream["blocked"] == 1));
    // One that still takes something is slow, and no problem yet.
    let (taken, looks) = (std::cell::RefCell::default(), std::cell::Cell::new(0));
    place.wait_for("subscriptions", |list| {
        let is_same = taken.replace(list[0]["records_out"].clone()) == list[0]["records_out"];
        looks.set(if is_same { looks.get() + 1 } else { 0 });
        looks.get() == 10
    });
    let doctor = place.run(["doctor"]).with_code(1).saying(&["2 problems"]);
    let lines: Vec<&str> = doctor.stdout.lines().collect();
    assert!(lines.iter().all(|line| line.starts_with("problem: ") || line.starts_with("warning: ")), "{lines:#?}");
    let has = |severity: &str, text: &str| lines.iter().any(|line| line.starts_with(severity) && line.contains(text));
    assert!(has("problem: ", "to `R` is slow: ") && has("problem: ", "1 publisher of `R` is held back"), "{lines:#?}");
    if io_count() == 1 {
        assert!(has("warning: ", "2 of 2 sessions of "), "{lines:#?}");
    }
}

#[test]
fn doctor_has_one_line_for_the_same_loss_of_many_subscriptions() {
    let (place, _daemon) = with_pairs("udp");
    let _subscribers: Vec<_> = (0..12).map(|_| place.spawn(["subscribe", QUERY, "--wait"])).collect();
    place.wait_for_subscriptions(12);
    place.run(PUBLISH).with_code(0);
    place.wait_for("subscriptions", |list| list.iter().all(|of| of["row_errors"] == 2));
    let doctor = place.run(["doctor"]).with_code(0).stdout;
    let lines: Vec<&str> =
        doctor.lines().filter(|line| line.contains("did not get 2 records: division_by_zero 2;")).collect();
    let [line] = lines[..] else { panic!("{doctor}") };
    assert!(line.contains("; the same for 11 more subscriptions"), "{line}");
    assert!(doctor.lines().count() <= 10, "{doctor}");
    assert!(place.run(["doctor", "--json"]).with_code(0).json().len() > 11);
}
