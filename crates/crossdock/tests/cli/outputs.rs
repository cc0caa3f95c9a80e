//! The output of `subscribe`: outputs of one format, and outputs that cannot be written whole.

use std::fs::File;
use std::process::{Command, Stdio};

use crate::place::{FLIGHTS_CSV, Process, Sandbox, argument};
use rustix::process::Signal;

const HEADER: &str = "carrier,flight,origin,dest,dep_delay,note\n";
const ALL: &str = "SELECT * FROM A";

/// A place with flights in `flights.csv`, further ones with another field in `more.csv`, and ones that lack nullable fields in
/// `less.csv`; each with its schema.
fn place() -> (Sandbox, crate::place::Daemon) {
    let (place, daemon) = Sandbox::with_daemon();
    place.write("flights.csv", FLIGHTS_CSV);
    place.write("more.schema", "carrier char[2]\nflight i16\norigin char[3]\ndest char[3]\ngate string\n");
    place.write("more.csv", "carrier,flight,origin,dest,gate\nUA,1,EWR,IAH,C7\n");
    place.write("less.schema", "carrier char[2]\nflight i8\norigin char[3]\ndest char[3]\n");
    place.write("less.csv", "carrier,flight,origin,dest\nUA,7,EWR,IAH\n");
    (place, daemon)
}

#[track_caller]
fn publish(place: &Sandbox, stream: &str, name: &str, schema: &str) {
    place.run(["publish", stream, &format!("{name}.csv"), "--schema", &format!("{schema}.schema")]).with_code(0);
}

#[test]
fn an_output_with_one_header_refuses_records_that_do_not_fit_it() {
    let (place, _daemon) = place();
    for encoding in ["csv", "parquet", "arrow"] {
        let file = format!("out.{encoding}");
        let subscriber = place.spawn_into(&file, ["subscribe", ALL, "--output", encoding, "--limit", "9"]);
        place.wait_for_subscriptions(1);
        publish(&place, "A", "flights", "a");
        place.wait_for("subscriptions", |list| list[0]["records_out"] == 4);
        publish(&place, "A", "more", "more");
        let one = format!("{encoding} output has one format");
        let ended = subscriber.end().with_code(1).saying(&[&one, "no field `gate`", "--accept", "4 records ("]);
        assert!(ended.stderr.contains("the output so far is complete"), "{}", ended.stderr);
        let ended = place.run(["publish", "Again", &file, "--input", encoding]).with_code(0);
        assert!(ended.stderr.contains("published 4 records"), "{encoding}: {}", ended.stderr);
    }
    let text = std::fs::read_to_string(place.path("out.csv")).unwrap();
    assert_eq!((text.matches("carrier").count(), text.lines().count()), (1, 5), "{text}");
}

#[test]
fn an_output_with_one_header_takes_records_that_lose_nothing() {
    let (place, _daemon) = place();
    let subscriber = place.spawn(["subscribe", ALL, "--output", "csv", "--limit", "5"]);
    place.wait_for_subscriptions(1);
    publish(&place, "A", "flights", "a");
    publish(&place, "A", "less", "less");
    let text = subscriber.end().with_code(0).stdout;
    assert!(text.starts_with(HEADER) && text.ends_with("\nUA,7,EWR,IAH,,\n") && text.lines().count() == 6, "{text}");
    // JSON has no header: each record is as it came.
    let subscriber = place.spawn(["subscribe", ALL, "--limit", "5"]);
    place.wait_for_subscriptions(1);
    publish(&place, "A", "flights", "a");
    publish(&place, "A", "more", "more");
    assert!(subscriber.end().with_code(0).stdout.contains("\"gate\":\"C7\""));
}

/// Stream A has flights, ones whose delay is in seconds, and ones that have a gate; `seconds.csv` and so on.
fn place_with_conversions() -> (Sandbox, crate::place::Daemon) {
    let (place, daemon) = place();
    place.write("seconds.schema", "carrier string\nflight i32\ndelay_s i64 null\n");
    place.write("seconds.csv", "carrier,flight,delay_s\nUA,1,60\n");
    place.write("short.schema", "carrier string\nflight i16\n");
    place.write("short.csv", "carrier,flight\nWN,3\n");
    publish(&place, "A", "seconds", "seconds");
    publish(&place, "A", "more", "more");
    let to_seconds = "SELECT carrier, flight, dep_delay * 60 AS delay_s FROM x";
    place.run(["conversions", "add", "A", "v1", "v2", "--sql", to_seconds]).with_code(0);
    (place, daemon)
}

const SECONDS: &str = "UA,1545,120\nAA,1141,-300\nB6,725,\nDL,120,1260\n";

/// Whichever format comes first.
#[test]
fn an_output_with_one_header_takes_what_registered_conversions_lead_to_it() {
    let (place, _daemon) = place_with_conversions();
    for names in [["flights", "seconds"], ["seconds", "flights"]] {
        let subscriber = place.spawn(["subscribe", ALL, "--output", "csv", "--limit", "6"]);
        place.wait_for_subscriptions(1);
        for name in names {
            publish(&place, "A", name, if name == "flights" { "a" } else { name });
        }
        // A format that no conversion leads from is converted by the names of its fields, if it loses nothing.
        publish(&place, "A", "short", "short");
        let ended = subscriber.end().with_code(0);
        let rows = names.map(|name| if name == "flights" { SECONDS } else { "UA,1,60\n" }).concat();
        assert_eq!(ended.stdout, format!("carrier,flight,delay_s\n{rows}WN,3,\n"), "{}", ended.stderr);
        place.wait_for_subscriptions(0);
    }
    // Through two conversions.
    place
        .run(["conversions", "add", "A", "v3", "v1", "--rule", "default dep_delay 1", "--rule", "default note x"])
        .with_code(0);
    let subscriber = place.spawn_into("out.parquet", ["subscribe", ALL, "--output", "parquet", "--limit", "6"]);
    place.wait_for_subscriptions(1);
    publish(&place, "A", "seconds", "seconds");
    publish(&place, "A", "more", "more");
    publish(&place, "A", "flights", "a");
    subscriber.end().with_code(0).saying(&["6 records ("]);
    let ended = place.run(["publish", "Again", "out.parquet"]).with_code(0);
    assert!(ended.stderr.contains("published 6 records"), "{}", ended.stderr);
}

#[test]
fn formats_that_no_conversion_leads_to_an_output_are_refused_as_without_conversions() {
    let (place, _daemon) = place_with_conversions();
    let subscriber = place.spawn(["subscribe", ALL, "--output", "csv", "--limit", "9"]);
    place.wait_for_subscriptions(1);
    publish(&place, "A", "flights", "a");
    place.wait_for("subscriptions", |list| list[0]["records_out"] == 4);
    publish(&place, "A", "more", "more");
    let ended =
        subscriber.end().with_code(1).saying(&["csv output has one format", "no field `origin`", "4 records ("]);
    assert_eq!(ended.stdout, format!("carrier,flight,delay_s\n{SECONDS}"));
    // JSON has no header, so nothing is converted that need not be.
    let subscriber = place.spawn(["subscribe", ALL, "--limit", "5"]);
    place.wait_for_subscriptions(1);
    publish(&place, "A", "flights", "a");
    publish(&place, "A", "seconds", "seconds");
    let text = subscriber.end().with_code(0).stdout;
    assert!(text.contains("\"dep_delay\"") && text.contains("\"delay_s\":60"), "{text}");
}

/// The format that a conversion reads comes after the subscription.
#[test]
fn a_conversion_from_a_format_that_is_new_is_used() {
    let (place, _daemon) = place();
    place.run(["conversions", "add", "A", "more.schema", "v1", "--rule", "default dep_delay 1"]).with_code(0);
    let subscriber = place.spawn(["subscribe", "SELECT carrier, dep_delay FROM A", "--output", "csv", "--limit", "5"]);
    place.wait_for_subscriptions(1);
    publish(&place, "A", "flights", "a");
    publish(&place, "A", "more", "more");
    let text = subscriber.end().with_code(0).stdout;
    assert!(text.starts_with("carrier,dep_delay\nUA,2\n") && text.ends_with("\nUA,1\n"), "{text}");
}

#[test]
fn a_format_without_records_does_not_count() {
    let (place, _daemon) = place();
    for (stream, encoding) in [("A", "parquet"), ("New", "parquet"), ("A", "csv"), ("New", "arrow-file")] {
        let mut bad = place.spawn_fed(["publish", stream, "--schema", "more.schema"]);
        bad.feed("carrier,flight,origin,dest,gate\nUA,no number,EWR,IAH,C7\n");
        bad.end().with_code(1);
        let (file, sql) = (format!("{stream}.{encoding}"), format!("SELECT * FROM {stream}"));
        let subscriber = place.spawn_into(&file, ["subscribe", &sql, "--output", encoding, "--until-end", "--wait"]);
        place.wait_for_subscriptions(1);
        publish(&place, stream, "flights", "a");
        subscriber.end().with_code(0).saying(&["4 records ("]);
        let ended = place.run(["publish", "Again", &file, "--input", encoding]).with_code(0);
        assert!(ended.stderr.contains("published 4 records"), "{stream} {encoding}: {}", ended.stderr);
    }
}

#[test]
fn a_file_whose_first_row_is_wrong_announces_nothing() {
    let (place, _daemon) = place();
    place.write("bad.csv", "carrier,flight,origin,dest,gate\nUA,no number,EWR,IAH,C7\nUA,1,EWR,IAH,C7\n");
    let bad = ["publish", "New", "bad.csv", "--schema", "more.schema"];
    place.run(bad).with_code(1).saying(&["bad.csv: line 2, column `flight`", "--on-error skip"]);
    assert_eq!(place.list("streams").len(), 1);
    place
        .run([&bad[..], &["--on-error", "skip"]].concat())
        .with_code(0)
        .saying(&["skipped: line 2", "published 1 record"]);
    assert_eq!(place.list("streams").len(), 2);
    // A file without a row is a whole one. Its stream is forgotten, as it has had no record.
    place.write("none.csv", "n,m\n");
    place.write("n.schema", "n i64\nm i64\n");
    place.run(["publish", "None", "none.csv", "--schema", "n.schema"]).with_code(0).saying(&["published 0 records"]);
    place.wait_for("streams", |list| list.len() == 2);
}

#[test]
fn a_format_that_a_pipe_announced_is_forgotten_if_no_record_came() {
    let (place, _daemon) = place();
    publish(&place, "A", "flights", "a");
    let versions = |list: &[serde_json::Value], stream: &str| {
        let of = |format: &&serde_json::Value| format["streams"].as_array().unwrap().contains(&stream.into());
        list.iter().filter(of).count()
    };
    for stream in ["A", "New"] {
        let before = versions(&place.list("formats"), stream);
        let mut early = place.spawn_fed(["publish", stream, "--schema", "more.schema"]);
        place.wait_for("formats", |list| versions(list, stream) == before + 1);
        early.feed("carrier,flight,origin,dest,gate\nUA,no number,EWR,IAH,C7\n");
        early.end().with_code(1);
        place.wait_for("formats", |list| versions(list, stream) == before);
    }
    assert_eq!(place.list("streams").len(), 1);
    // The counts of the stream stay.
    assert_eq!(place.list("streams")[0]["records_in"], 4);
    // A record later, the format stays.
    publish(&place, "A", "more", "more");
    assert_eq!(versions(&place.list("formats"), "A"), 2);
}

#[test]
fn an_output_without_records_has_its_header() {
    let (place, _daemon) = place();
    let empty = ["subscribe", ALL, "--output", "csv", "--limit", "0"];
    assert_eq!(place.run(empty).with_code(0).stdout, HEADER);
}

#[test]
fn a_file_has_its_name_when_it_is_complete() {
    let (place, _daemon) = place();
    let exists = |name: &str| place.path(name).exists();
    // The ending names the encoding.
    let subscriber = place.spawn(["subscribe", ALL, "--to", "all.parquet", "--limit", "4"]);
    place.wait_for_subscriptions(1);
    assert!(exists("all.parquet.part") && !exists("all.parquet"));
    publish(&place, "A", "flights", "a");
    assert_eq!(subscriber.end().with_code(0).stdout, "");
    assert!(!exists("all.parquet.part"));
    place.run(["publish", "B", "all.parquet"]).with_code(0).saying(&["published 4 records"]);
    // One that ends before its end keeps the other name, and what had the name stays.
    place.write("few.csv", "old");
    let subscriber = place.spawn(["subscribe", ALL, "--to", "few.csv", "--limit", "100"]);
    place.wait_for_subscriptions(1);
    publish(&place, "A", "flights", "a");
    place.wait_for("subscriptions", |list| list[0]["records_out"] == 4);
    subscriber.signal(Signal::INT);
    let ended = subscriber.end_by_itself().with_code(130);
    ended.saying(&["the output is incomplete: it is in few.csv.part, not in few.csv"]);
    assert_eq!(std::fs::read_to_string(place.path("few.csv")).unwrap(), "old");
    assert_eq!(std::fs::read_to_string(place.path("few.csv.part")).unwrap().lines().count(), 5);
    // One without an end is ended by a signal.
    place.wait_for_subscriptions(0);
    let subscriber = place.spawn(["subscribe", ALL, "--to", "few.csv"]);
    place.wait_for_subscriptions(1);
    subscriber.signal(Signal::INT);
    subscriber.end_by_itself().with_code(0);
    assert_eq!(std::fs::read_to_string(place.path("few.csv")).unwrap(), HEADER);
    assert!(!exists("few.csv.part"));
    // One that is to come has its file from the start, and no other command writes it.
    let waits = place.spawn(["subscribe", "SELECT * FROM Later", "--wait", "--to", "later.csv"]);
    place.wait_for_subscriptions(1);
    let second = place.run(["subscribe", ALL, "--to", "later.csv"]).with_code(2);
    second.saying(&["another command writes later.csv.part"]);
    waits.signal(Signal::INT);
    waits.end_by_itself();
    // Where nobody publishes, the file that is there stays.
    publish(&place, "A", "flights", "a");
    let none = place.run(["subscribe", ALL, "--to", "few.csv", "--until-end"]).with_code(0);
    none.saying(&["nobody publishes the stream"]);
    assert_eq!(std::fs::read_to_string(place.path("few.csv")).unwrap(), HEADER);
    assert!(!exists("few.csv.part"));
    place.run(["subscribe", "SELECT * FROM None", "--to", "none.csv"]).with_code(2);
    assert!(!exists("none.csv.part"));
    place.run(["subscribe", ALL, "--to", "x.csv.gz"]).with_code(2).saying(&["--to writes no gzip"]);
    place.run(["subscribe", ALL, "--to", "none/x.csv"]).with_code(2).saying(&["cannot write to none/x.csv.part"]);
}

#[test]
fn a_full_disk_is_a_failure_that_says_how_much_was_written() {
    let (place, _daemon) = place();
    for encoding in ["json", "csv", "parquet"] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = place.command(["subscribe", ALL, "--output", encoding, "--limit", "4"]);
        let child = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        place.wait_for_subscriptions(1);
        publish(&place, "A", "flights", "a");
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{encoding}: {said}");
        assert!(said.contains("0 of 4 records written (") && said.contains("the output is incomplete"), "{said}");
        assert!(said.contains("error: cannot write to standard output: No space left"), "{said}");
        place.wait_for_subscriptions(0);
    }
}

#[test]
fn a_disk_that_fills_up_has_the_records_that_the_tally_says() {
    let (place, _daemon) = place();
    let rows: String = (0..1000).map(|number| format!("UA,{number},EWR,IAH,2,\n")).collect();
    place.write("many.csv", HEADER.to_owned() + &rows);
    // A file that may not grow is a disk that is full; the signal for that is ignored.
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" subscribe 'SELECT flight FROM A' --limit 1000 > part.jsonl";
    let with_address = place.command(["subscribe"]);
    let mut command = Command::new("sh");
    command.args(["-c", script, argument(env!("CARGO_BIN_EXE_crossdock").as_ref())]).current_dir(place.path("."));
    for (name, value) in with_address.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let subscriber = Process::spawn(&mut command);
    place.wait_for_subscriptions(1);
    publish(&place, "A", "many", "a");
    let ended = subscriber.end().with_code(1).saying(&["cannot write to standard output", "the output is incomplete"]);
    let text = std::fs::read_to_string(place.path("part.jsonl")).unwrap();
    let whole = text.matches('\n').count();
    assert!(whole > 100 && whole < 1000, "{whole}");
    let (written, rest) = ended.stderr.split_once(" of ").unwrap();
    assert_eq!(written.parse(), Ok(whole), "{}", ended.stderr);
    assert!(rest.contains("records written ("), "{}", ended.stderr);
}
