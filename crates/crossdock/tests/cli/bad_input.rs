//! Errors are reported with their place and their remedy, and the right exit status.

use crate::place::{FLIGHTS_CSV, Sandbox};

const BAD_CSV: &str = "\
carrier,flight,origin,dest,dep_delay,note
UA,1545,EWR,IAH,2,
AA,many,JFK,MIA,-5,
B6,725,JFK,BQN
DL,120,JFK,LAX,21,
";

#[test]
fn a_misspelt_column_is_shown_with_a_caret_and_a_suggestion() {
    let (place, _daemon) = Sandbox::with_daemon();
    let sql = "SELECT carrier FROM A WHERE dset = 'LAX'";
    for command in ["subscribe", "explain"] {
        let ended = place.run([command, sql]).with_code(2).saying(&["line 1, column 29", "did you mean `dest`?"]);
        let lines: Vec<&str> = ended.stderr.lines().collect();
        let caret = lines.iter().position(|line| line.trim() == "^").unwrap();
        assert_eq!(lines[caret].find('^'), lines[caret - 1].find("dset"), "{}", ended.stderr);
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn an_unknown_stream_is_answered_with_the_known_ones() {
    let (place, _daemon) = Sandbox::with_daemon();
    let sql = "SELECT * FROM Flights";
    place.run(["subscribe", sql]).with_code(2).saying(&["`Flights`", "known: A", "add --wait"]);
    place.run(["explain", sql]).with_code(2).saying(&["`Flights`", "known: A"]);
    place.run(["subscribe", sql, "--wait=10ms"]).with_code(2).saying(&["known: A"]);
}

#[test]
fn an_invalid_query_is_refused_with_its_place() {
    let (place, _daemon) = Sandbox::with_daemon();
    for sql in
        ["", "SELECT", "DELETE FROM A", "SELECT * FROM A ORDER BY flight", "SELECT flight FROM A WHERE carrier > 5"]
    {
        for command in ["subscribe", "explain"] {
            let ended = place.run([command, sql]).with_code(2);
            assert!(ended.stderr.starts_with("error: "), "{sql}: {}", ended.stderr);
            assert_eq!(ended.stdout, "", "{sql}");
        }
    }
}

#[test]
fn a_bad_row_stops_with_its_line_column_and_what_was_expected() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("bad.csv", BAD_CSV);
    let subscriber = place.spawn(["subscribe", "SELECT flight FROM A", "--until-end", "--wait"]);
    place.wait_for_subscriptions(1);
    let texts =
        ["bad.csv: line 3, column `flight`: found `many`, expected i16", "published 1 record ", "--on-error skip"];
    place.run(["publish", "A", "bad.csv", "--schema", "a.schema"]).with_code(1).saying(&texts);
    // The input before it is not lost.
    assert_eq!(subscriber.end().with_code(0).stdout, "{\"flight\":1545}\n");
}

#[test]
fn bad_rows_are_skipped_counted_and_the_first_ten_shown() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("bad.csv", BAD_CSV);
    let arguments = ["publish", "A", "bad.csv", "--schema", "a.schema", "--on-error", "skip", "--json"];
    let ended = place.run(arguments).with_code(0).saying(&[
        "skipped: line 3, column `flight`",
        "skipped: line 4: found 4 columns, expected 6",
        "published 2 records",
        "skipped 2 rows",
    ]);
    assert_eq!(ended.json()[0]["skipped"], 2);

    let many: String = FLIGHTS_CSV.to_owned() + &"UA,x,EWR,IAH,2,\n".repeat(25);
    place.write("many.csv", many);
    let ended = place.run(["publish", "A", "many.csv", "--schema", "a.schema", "--on-error", "skip"]).with_code(0);
    let shown = ended.stderr.lines().filter(|line| line.starts_with("skipped: line")).count();
    assert_eq!(shown, 10, "{}", ended.stderr);
    assert!(ended.stderr.contains("skipped 25 rows"), "{}", ended.stderr);
}

#[test]
fn a_bad_line_of_json_names_its_field() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("bad.jsonl", "{\"carrier\":\"UA\",\"flight\":\"x\",\"origin\":\"EWR\",\"dest\":\"IAH\"}\n{oh\n");
    let arguments = ["publish", "A", "bad.jsonl", "--schema", "a.schema"];
    place.run(arguments).with_code(1).saying(&["bad.jsonl: line 1, field `flight`", "expected i16"]);
    let skipping = arguments.into_iter().chain(["--on-error", "skip"]);
    place.run(skipping).with_code(0).saying(&["skipped: line 2", "skipped 2 rows"]);
    // Without a schema, one is inferred from what the lines before have.
    place.run(["publish", "B", "bad.jsonl"]).with_code(1).saying(&["schema inferred", "bad.jsonl: line 2", "--schema"]);
}

#[test]
fn an_inferred_schema_that_does_not_hold_says_so() {
    let (place, _daemon) = Sandbox::with_daemon();
    let rows: String = "n\n".to_owned() + &"1\n".repeat(1000) + "1.5\n";
    place.write("n.csv", rows);
    place.run(["publish", "N", "n.csv"]).with_code(1).saying(&["line 1002, column `n`: found `1.5`", "--schema"]);
}

#[test]
fn files_that_are_empty_missing_or_no_files_are_said_to_be() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("empty.csv", "");
    place.run(["publish", "A", "empty.csv"]).with_code(1).saying(&["empty.csv: ", "expected a header row"]);
    place.run(["publish", "A"]).with_code(1).saying(&["standard input: ", "expected a header row"]);
    place.run(["publish", "A", "none.csv"]).with_code(1).saying(&["cannot read none.csv: No such file"]);
    place.run(["publish", "A", "."]).with_code(1).saying(&["cannot read .: it is a directory"]);
    place.write("cut.csv.gz", &crate::place::gzip(&FLIGHTS_CSV.repeat(100))[..60]);
    place.run(["publish", "A", "cut.csv.gz", "--schema", "a.schema"]).with_code(1).saying(&["cut.csv.gz: "]);
}

#[test]
fn a_header_that_does_not_fit_the_schema_is_compared_with_it() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("other.csv", "carrier,speed\nUA,5\n");
    let arguments = ["publish", "A", "other.csv", "--schema", "a.schema"];
    place.run(arguments).with_code(1).saying(&["other.csv: column `speed`", "it has: carrier, flight"]);
}

#[test]
fn a_bad_schema_is_named_with_its_line() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("flights.csv", FLIGHTS_CSV);
    place.write("bad.schema", "carrier char[2]\nflight integer\n");
    let arguments = ["publish", "A", "flights.csv", "--schema", "bad.schema"];
    place.run(arguments).with_code(2).saying(&["bad.schema:2: ", "integer"]);
    let arguments = ["publish", "A", "flights.csv", "--schema", "none.schema"];
    place.run(arguments).with_code(2).saying(&["cannot read the schema none.schema"]);
}

#[test]
fn wrong_options_are_answered_with_what_is_right() {
    let place = Sandbox::new();
    for (arguments, words) in [
        (&["publish", "A", "--rate", "fast"][..], "a rate is records per second"),
        (&["publish", "A", "--linger", "1"], "did you mean `1s`?"),
        (&["publish", "A", "--delimiter", ",,"], "one ASCII character"),
        (&["publish", "A", "--on-error", "cry"], "stop"),
        (&["subscribe", "SELECT * FROM A", "--for", "10"], "did you mean `10s`?"),
        (&["subscribe", "SELECT * FROM A", "--for", "10 parsecs"], "10s, 500ms or 1m30s"),
        (&["subscribe", "SELECT * FROM A", "--on-overflow", "explode"], "block, drop_oldest"),
        (&["subscribe", "SELECT * FROM A", "--limit", "few"], "invalid"),
        (&["subscribe"], "<SQL>"),
        (&["dance"], "unrecognized subcommand"),
        (&["serve", "--listen", "here"], "invalid socket address"),
    ] {
        place.run(arguments).with_code(2).saying(&[words]);
    }
}

#[test]
fn a_daemon_that_is_not_there_is_named() {
    let place = Sandbox::new();
    place.write("flights.csv", FLIGHTS_CSV);
    let start = "crossdock serve";
    place.run(["publish", "A", "flights.csv"]).with_code(1).saying(&["no daemon at 127.0.0.1:", start]);
    place.run(["subscribe", "SELECT * FROM A"]).with_code(1).saying(&["no daemon at 127.0.0.1:", start]);
    for list in ["streams", "subscriptions", "formats", "contexts", "sessions", "clients", "mailboxes"] {
        place.run([list]).with_code(1).saying(&["no daemon is running at ", "crossdock.sock", start]);
    }
    place.run(["explain", "SELECT * FROM A"]).with_code(1).saying(&["no daemon is running at ", start]);
    place.run(["subscribe", "SELECT * FROM A", "--address", "nowhere"]).with_code(2).saying(&["host:port"]);
}

#[test]
fn a_schema_that_nests_too_deep_is_refused() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("deep.proto", format!("syntax = \"proto3\"; {}", "message A{".repeat(6000)));
    place.write("deep.avsc", r#"{"fields":[{"type":"#.repeat(6000));
    place.write("body.schema", "body bytes\n");
    for (file, says) in
        [("deep.proto:A", "6000 levels deep, and at most 48"), ("deep.avsc", "12000 levels deep, and at most 48")]
    {
        place.run(["formats", "show", file]).with_code(2).saying(&[says]);
        let add = ["conversions", "add", "A", "body.schema", "a.schema", "--decode"];
        let encoding = if file == "deep.avsc" { "avro-binary" } else { "protobuf" };
        place.run([&add[..], &[encoding, "--field", "body", "--schema", file]].concat()).with_code(2).saying(&[says]);
    }
}
