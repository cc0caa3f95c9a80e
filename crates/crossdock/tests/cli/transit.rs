//! Records through the daemon: publish on one side, subscribe on the other.

use crate::place::{FLIGHTS_CSV, Sandbox, TRANSPORTS, gzip};
use rustix::process::Signal;

#[test]
fn csv_goes_in_and_the_selected_rows_come_out_as_csv() {
    for way in TRANSPORTS {
        let (place, _daemon) = Sandbox::with_daemon();
        let place = place.by(way);
        place.write("flights.csv", FLIGHTS_CSV);
        let sql = "SELECT carrier, flight, dest, dep_delay, note FROM A WHERE origin = 'JFK'";
        let subscriber = place.spawn(["subscribe", sql, "--output", "csv", "--limit", "3"]);
        place.wait_for_subscriptions(1);

        let published = place.run(["publish", "A", "flights.csv", "--schema", "a.schema"]).with_code(0);
        assert!(published.stderr.starts_with("published 4 records ("), "{}", published.stderr);
        let received = subscriber.end().with_code(0).saying(&["3 records ("]);
        assert_eq!(
            received.stdout,
            "carrier,flight,dest,dep_delay,note\nAA,1141,MIA,-5,late crew\nB6,725,BQN,,cancelled\n\
             DL,120,LAX,21,\"fog, then rain\"\n"
        );
    }
}

#[test]
fn json_goes_in_from_standard_input_and_comes_out_the_same() {
    for way in TRANSPORTS {
        let (place, _daemon) = Sandbox::with_daemon();
        let place = place.by(way);
        let lines = concat!(
            r#"{"carrier":"UA","flight":1545,"origin":"EWR","dest":"IAH","dep_delay":2,"note":null}"#,
            "\n",
            r#"{"carrier":"B6","flight":725,"origin":"JFK","dest":"BQN","dep_delay":null,"note":"\"so\", he said: é"}"#,
            "\n",
        );
        let subscriber = place.spawn(["subscribe", "SELECT * FROM A", "--until-end", "--wait"]);
        place.wait_for_subscriptions(1);
        let mut publisher = place.spawn_fed(["publish", "A", "-", "--schema", "a.schema", "--json"]);
        publisher.feed(lines);
        let published = publisher.end().with_code(0).json();
        assert_eq!((&published[0]["records"], &published[0]["skipped"]), (&2.into(), &0.into()));
        assert_eq!(published[0]["acknowledged"], true);
        assert_eq!(subscriber.end().with_code(0).stdout, lines);
    }
}

#[test]
fn without_a_schema_one_is_inferred_and_shown_from_a_gzip_file_too() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("flights.csv.gz", gzip(FLIGHTS_CSV));
    place.run(["publish", "B", "flights.csv.gz"]).with_code(0).saying(&[
        "schema inferred",
        "  carrier string null\n",
        "  flight i64 null\n",
        "published 4 records",
    ]);
    let streams = place.run(["streams", "--json"]).with_code(0).json();
    let stream = streams.iter().find(|stream| stream["name"] == "B").unwrap();
    assert_eq!((&stream["records_in"], &stream["publishers"]), (&4.into(), &0.into()));

    // The format that standard input gives is the same: it does not depend on where the rows come from.
    let mut publisher = place.spawn_fed(["publish", "B"]);
    publisher.feed(FLIGHTS_CSV);
    publisher.end().with_code(0);
    let formats = place.list("formats");
    assert_eq!(formats.iter().filter(|format| format["streams"][0] == "B").count(), 1, "{formats:?}");
}

#[test]
fn a_subscriber_may_wait_for_its_stream() {
    for way in TRANSPORTS {
        let (place, _daemon) = Sandbox::with_daemon();
        let place = place.by(way);
        let subscriber = place.spawn(["subscribe", "SELECT flight FROM B", "--wait", "--limit", "1"]);
        // The publisher keeps its stream open until the subscriber is there.
        let mut publisher = place.spawn_fed(["publish", "B", "--schema", "a.schema", "--input", "csv"]);
        publisher.feed("carrier,flight,origin,dest,dep_delay,note\n");
        place.wait_for_subscriptions(1);
        publisher.feed("UA,1545,EWR,IAH,2,\n");
        assert_eq!(subscriber.end().with_code(0).stdout, "{\"flight\":1545}\n");
        publisher.end().with_code(0);
    }
}

#[test]
fn other_delimiters_and_null_words_are_read() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("t.tsv", "carrier\tflight\torigin\tdest\tdep_delay\tnote\nUA\t1\tEWR\tIAH\tunknown\tNA\n");
    let subscriber = place.spawn(["subscribe", "SELECT dep_delay, note FROM A", "--limit", "1"]);
    place.wait_for_subscriptions(1);
    let arguments = ["publish", "A", "t.tsv", "--schema", "a.schema", "--delimiter", "tab", "--null-words", "unknown"];
    place.run(arguments).with_code(0);
    assert_eq!(subscriber.end().stdout, "{\"dep_delay\":null,\"note\":\"NA\"}\n");
}

#[test]
fn a_stream_without_records_ends_like_any_other() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("empty.csv", FLIGHTS_CSV.lines().next().unwrap());
    let subscriber = place.spawn(["subscribe", "SELECT flight FROM A", "--output", "csv", "--until-end", "--wait"]);
    place.wait_for_subscriptions(1);
    place.run(["publish", "A", "empty.csv", "--schema", "a.schema"]).with_code(0).saying(&["published 0 records"]);
    let received = subscriber.end().with_code(0).saying(&["0 records"]);
    assert_eq!(received.stdout, "flight\n", "the header of an empty result is a result");
}

#[test]
fn a_rate_is_kept_to_and_loses_nothing() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("flights.csv", FLIGHTS_CSV);
    let subscriber = place.spawn(["subscribe", "SELECT flight FROM A", "--until-end", "--wait"]);
    place.wait_for_subscriptions(1);
    place.run(["publish", "A", "flights.csv", "--schema", "a.schema", "--rate", "100"]).with_code(0);
    assert_eq!(subscriber.end().with_code(0).stdout.lines().count(), 4);
}

#[test]
fn a_subscriber_that_is_killed_costs_the_others_nothing() {
    for way in TRANSPORTS {
        // Small bounds, so that the client that is gone would delay the stream if nothing were done about it.
        let (place, _daemon) = Sandbox::with_configured_daemon("queue_bytes = 65536\nidle_timeout_ms = 500\n");
        let place = place.by(way);
        let survivor = place.spawn(["subscribe", "SELECT flight, note FROM A", "--until-end", "--wait"]);
        let victim = place.spawn(["subscribe", "SELECT * FROM A"]);
        place.wait_for_subscriptions(2);
        let mut publisher = place.spawn_fed(["publish", "A", "--schema", "a.schema"]);
        publisher.feed("carrier,flight,origin,dest,dep_delay,note\n");
        let rows = |from: u32, to: u32| -> String {
            (from..to).map(|n| format!("UA,{},EWR,IAH,2,note {n}\n", n % 30_000)).collect()
        };
        publisher.feed(&rows(0, 10_000));
        victim.stdout_line(|line| line.contains("note 5"));
        victim.signal(Signal::KILL);
        publisher.feed(&rows(10_000, 40_000));
        publisher.end().with_code(0).saying(&["published 40,000 records"]);

        let expected: String =
            (0..40_000).map(|n| format!("{{\"flight\":{},\"note\":\"note {n}\"}}\n", n % 30_000)).collect();
        let received = survivor.end().with_code(0).stdout;
        assert!(received == expected, "{} of 40000 lines, or in another order", received.lines().count());
        place.wait_for_subscriptions(0);
    }
}

#[test]
fn a_plan_is_explained_without_a_record() {
    let (place, _daemon) = Sandbox::with_daemon();
    let plan = place.run(["explain", "SELECT flight + 1 AS next FROM A WHERE origin = 'JFK'"]).with_code(0).stdout;
    assert!(plan.starts_with("stream A in format ") && plan.contains("next"), "{plan}");
    let plan = place.run(["explain", "SELECT flight FROM A", "--json"]).with_code(0).json();
    assert_eq!(plan[0]["stream"], "A");
}
