//! Formats, conversions and paths on the command line, and what a daemon that was killed still has.

use crate::place::{Daemon, FLIGHTS_CSV, Sandbox, get, post, with_io_contexts};
use rustix::process::Signal;

/// The flights' next version: the note is gone, the delay is in seconds.
const NEXT_SCHEMA: &str = "carrier string\nflight i32\ndelay_s i64 null\n";
const NEXT_CSV: &str = "carrier,flight,delay_s\nUA,1,60\n";
const TO_NEXT: &str = "SELECT carrier, flight, dep_delay * 60 AS delay_s FROM x";

/// A place whose daemon keeps what is to be kept, with stream A in two versions.
fn place_with_versions() -> (Sandbox, Daemon) {
    let (place, daemon) = Sandbox::with_configured_daemon("[morph]\nstate_dir = \"state\"\n");
    place.write("next.schema", NEXT_SCHEMA);
    place.write("next.csv", NEXT_CSV);
    place.write("flights.csv", FLIGHTS_CSV);
    place.run(["publish", "A", "next.csv", "--schema", "next.schema"]).with_code(0);
    (place, daemon)
}

#[test]
fn a_subscriber_waits_for_a_conversion_and_gets_what_came_before_it() {
    let (place, _daemon) = place_with_versions();
    let subscriber = place.spawn(["subscribe", "SELECT * FROM A", "--accept", "v2", "--limit", "4", "--output", "csv"]);
    place.wait_for_subscriptions(1);
    place.run(["publish", "A", "flights.csv", "--schema", "a.schema"]).with_code(0);
    subscriber.stderr_line(|line| line.contains("records wait in the daemon: no conversion"));
    let paths = place.run(["paths", "--json"]).with_code(0).json();
    assert_eq!((&paths[0]["is_missing"], &paths[0]["waiting"]), (&true.into(), &4.into()), "{paths:?}");
    assert_eq!(place.list("subscriptions")[0]["held_records"], 4);

    place.run(["conversions", "add", "A", "v1", "v2", "--sql", TO_NEXT]).with_code(0);
    let received = subscriber.end().with_code(0).saying(&["are delivered from now on", "4 records waited"]);
    assert_eq!(received.stdout, "carrier,flight,delay_s\nUA,1545,120\nAA,1141,-300\nB6,725,\nDL,120,1260\n");

    let conversions = place.run(["conversions"]).with_code(0).stdout;
    assert!(conversions.contains("v1") && conversions.contains("kept") && conversions.contains("dep_delay * 60"));
    let plan = place.run(["explain", "SELECT * FROM A", "--accept", "v2"]).with_code(0).stdout;
    assert!(plan.contains("paths\n  v1: v2; ") && plan.contains("measured on the latest 4"), "{plan}");
    assert!(plan.contains("computed: carrier") && plan.contains("v2: unchanged"), "{plan}");
    place.run(["conversions", "remove", "A", "v1", "v2"]).with_code(0);
    place.run(["conversions"]).with_code(0).saying(&["no conversions"]);
}

#[test]
fn kept_state_survives_a_killed_daemon() {
    let (place, daemon) = place_with_versions();
    place.run(["conversions", "add", "A", "v1", "v2", "--sql", TO_NEXT]).with_code(0);
    let before = (place.list("formats"), place.list("conversions"), place.list("streams")[0]["formats"].clone());
    assert_eq!((before.0.len(), before.1.len()), (2, 1));
    daemon.process.signal(Signal::KILL);
    assert_eq!(daemon.process.end().code, None);

    // The stream is not in this configuration: it is known from before.
    let config = with_io_contexts("[context]\nlisten = \"127.0.0.1:0\"\n[morph]\nstate_dir = \"state\"\n");
    let config = place.write("again.toml", config);
    let daemon = Daemon::start(place.command(["serve", "--config"]).arg(&config));
    assert!(daemon.line.contains("kept="), "{}", daemon.line);
    let after = (place.list("formats"), place.list("conversions"), place.list("streams")[0]["formats"].clone());
    assert_eq!(before, after);
    // A second daemon cannot have the same directory.
    let second = place.run(["serve", "--config", "again.toml", "--socket", "other.sock"]).with_code(1);
    second.saying(&["state_dir", "another daemon"]);
}

/// Of what publishers have announced when the daemon is killed.
#[test]
fn a_killed_daemon_has_kept_the_formats_that_had_a_record() {
    let (place, daemon) = place_with_versions();
    place.write("other.schema", "b u64\n");
    let announced = ["A", "S"].map(|stream| place.spawn_fed(["publish", stream, "-", "--schema", "other.schema"]));
    place.wait_for("streams", |list| list.iter().map(|of| of["formats"].as_array().unwrap().len()).sum::<usize>() == 4);
    // Answered when it is on disk, with what came before.
    place.run(["formats", "policy", "L", "full"]).with_code(0);
    daemon.process.signal(Signal::KILL);
    daemon.process.end();
    announced.into_iter().for_each(|publisher| drop(publisher.end().with_code(1)));

    let config = with_io_contexts("[context]\nlisten = \"127.0.0.1:0\"\n[morph]\nstate_dir = \"state\"\n");
    let config = place.write("again.toml", config);
    let _daemon = Daemon::start(place.command(["serve", "--config"]).arg(&config));
    let kept = place.list("streams");
    let kept: Vec<_> =
        kept.iter().map(|of| (of["name"].as_str().unwrap(), of["formats"].as_array().unwrap().len())).collect();
    assert_eq!(kept, [("A", 2)]);
}

#[test]
fn without_a_directory_what_is_kept_is_said_to_last_as_long_as_the_daemon() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("next.schema", NEXT_SCHEMA);
    let added = place.run(["conversions", "add", "A", "v1", "next.schema", "--sql", TO_NEXT]).with_code(0);
    added.saying(&["as long as this daemon", "state_dir"]);
    let conversions = place.list("conversions");
    assert_eq!((&conversions[0]["from_version"], &conversions[0]["to_version"]), (&1.into(), &serde_json::Value::Null));
}

#[test]
fn impossible_requests_are_refused_with_a_remedy() {
    let (place, _daemon) = place_with_versions();
    for (arguments, texts) in [
        (&["conversions", "add", "A", "v2", "v1"][..], &["field `origin`", "rename OLD origin"][..]),
        (&["conversions", "add", "A", "v1", "v9"], &["stream `A` has no format v9: it has v1 to v2"]),
        (&["conversions", "add", "B", "v1", "v2"], &["stream `B` has no format v1", "first publisher"]),
        (&["conversions", "add", "A", "v1", "nothing"], &["names no format", "schema file"]),
        (&["conversions", "add", "A", "v1", "v2", "--rule", "swap a b"], &["line 1", "rename OLD NEW"]),
        (&["conversions", "add", "A", "v1", "v2", "--sql", "SELECT x FROM A"], &["no column `x`"]),
        (&["conversions", "add", "A", "v1", "v2", "--file", "none.rules"], &["none.rules", "one per line"]),
        (&["conversions", "remove", "A", "v1", "v2"], &["no conversion from", "kept"]),
        (&["subscribe", "SELECT * FROM A", "--accept", "v7"], &["stream `A` has no format v7", "v1 to v2"]),
        (&["subscribe", "SELECT note FROM A", "--accept", "v2"], &["does not fit the accepted format", "note"]),
        (&["explain", "SELECT * FROM A", "--accept", "v7"], &["stream `A` has no format v7"]),
        (&["subscribe", "SELECT * FROM A", "--unreadable", "drop"], &["--accept"]),
    ] {
        place.run(arguments).with_code(2).saying(texts);
    }
    assert!(place.list("conversions").is_empty(), "and nothing has changed");
}

#[test]
fn the_api_takes_conversions_and_lists_paths() {
    let (place, _daemon) = place_with_versions();
    let body = r#"{"stream":"A","from":{"version":2},"to":{"version":1},"conversion":"rename delay_s dep_delay"}"#;
    let (status, answer) = place.http(&post("/v1/conversions", body));
    assert_eq!(status, 400, "{answer}");
    assert!(answer["error"]["message"].as_str().is_some_and(|why| why.contains("field `origin`")), "{answer}");
    let body = body.replace("dep_delay", "dep_delay\\ndefault origin ???\\ndefault dest ???");
    assert_eq!(place.http(&post("/v1/conversions", &body)).0, 200);
    let remove = post("/v1/conversions", &body).replacen("POST", "DELETE", 1);
    assert_eq!((place.list("conversions").len(), place.http(&remove).0, place.list("conversions").len()), (1, 200, 0));
    assert_eq!(place.http(&remove).0, 400);
    assert_eq!(place.http(&post("/v1/conversions", "{}")).0, 400);
    assert!(place.list("paths").is_empty());
    assert_eq!(place.http(&get("/v1/paths")).0, 200);
}

#[test]
fn formats_are_compared_and_held_to_their_streams_policy() {
    let (place, _daemon) = place_with_versions();
    let listed = place.run(["formats"]).with_code(0).stdout;
    assert!(listed.contains("A:v1") && listed.contains("A:v2"), "{listed}");
    let shown = place.run(["formats", "show", "A:v2"]).with_code(0).stdout;
    assert!(shown.contains("delay_s i64 null"), "{shown}");
    let id = place.list("formats")[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(place.run(["formats", "show", &id, "--json"]).with_code(0).json()[0]["id"], id.as_str());
    let diff = place.run(["formats", "diff", "A:v2", "A:v1"]).with_code(0).stdout;
    assert!(diff.contains("delay_s: null: there is no such field") && diff.contains("note: lost"), "{diff}");
    assert_eq!(diff, place.run(["formats", "diff", "next.schema", "A:v1"]).with_code(0).stdout);
    let lines = place.run(["formats", "diff", "A:v1", "A:v2", "--json"]).with_code(0).json();
    assert!(lines.iter().any(|line| line["field"] == "origin" && line["compatible"] == false), "{lines:?}");

    // The schema of what is written is one that is read.
    for (notation, file) in [("proto", "a.proto"), ("avsc", "a.avsc"), ("json-schema", "a.json")] {
        let exported = place.run(["formats", "export", "A:v2", "--notation", notation]).with_code(0).stdout;
        place.write(file, exported);
        let read = place.run(["formats", "show", file]).with_code(0).stdout;
        assert!(read.contains("delay_s i64 null"), "{read}");
    }
    place.spawn_into("a.arrow", ["formats", "export", "next.schema", "--notation", "arrow"]).end().with_code(0);
    let read = place.run(["formats", "show", "a.arrow"]).with_code(0).stdout;
    assert_eq!(read, place.run(["formats", "show", "next.schema"]).with_code(0).stdout);

    place.write("breaking.schema", "carrier string\nflight i32\ndelay_s i64 null\ngate string\n");
    place.run(["formats", "check", "A", "breaking.schema"]).with_code(0);
    place.run(["formats", "policy", "A", "backward"]).with_code(0);
    assert_eq!(place.list("streams")[0]["policy"], "backward");
    let refused = place.run(["formats", "check", "A", "breaking.schema"]).with_code(1);
    refused.saying(&["policy of stream `A` is backward", "`gate`"]);
    place.write("breaking.csv", "carrier,flight,delay_s,gate\nUA,1,2,B7\n");
    place.run(["publish", "A", "breaking.csv", "--schema", "breaking.schema"]).with_code(1).saying(&["`gate`"]);
    for (arguments, texts) in [
        (&["formats", "show", "A:v9"][..], &["no format A:v9", "STREAM:v1"][..]),
        (&["formats", "show", "nothing"], &["`nothing` names no format"]),
        (&["formats", "policy", "A", "strict"], &["none", "backward", "full"]),
        (&["formats", "check", "A", "none.schema"], &["none.schema"]),
        (&["formats", "rm", "A"], &["such as A:v2"]),
    ] {
        place.run(arguments).with_code(2).saying(texts);
    }

    // A version without users can be removed.
    place.run(["formats", "rm", "A:v1"]).with_code(2).saying(&["remove v2 first"]);
    place.run(["formats", "rm", "A:v2"]).with_code(0);
    place.run(["formats", "rm", "A:v1"]).with_code(2).saying(&["remove the stream"]);
    assert_eq!(place.list("formats").len(), 1);
    let subscriber = place.spawn(["subscribe", "SELECT flight FROM A"]);
    place.wait_for_subscriptions(1);
    place.run(["streams", "rm", "A"]).with_code(2).saying(&["subscribers"]);
    subscriber.signal(Signal::INT);
    subscriber.end().with_code(0);
    place.wait_for_subscriptions(0);
    place.run(["streams", "rm", "A"]).with_code(0);
    place.run(["streams", "rm", "A"]).with_code(2).saying(&["no stream `A`"]);
    place.run(["publish", "a/b c", "breaking.csv", "--schema", "breaking.schema"]).with_code(0);
    place.run(["streams", "rm", "a/b c"]).with_code(0);
    assert!(place.list("streams").is_empty() && place.list("formats").is_empty());
}
