//! Files as other programs leave them: JSON arrays, tabs, no header, words for null, dates.

use crate::place::{Daemon, Process, Sandbox};

/// The records that a subscriber of all records of `A` gets of those that these arguments publish.
fn published(place: &Sandbox, arguments: &[&str], input: Option<&str>) -> String {
    let subscriber = place.spawn(["subscribe", "SELECT * FROM A", "--wait", "--until-end"]);
    place.wait_for_subscriptions(1);
    let arguments = [&["publish", "A"], arguments].concat();
    match input {
        Some(input) => {
            let mut publisher = place.spawn_fed(arguments);
            publisher.feed(input);
            publisher.end().with_code(0);
        }
        None => {
            place.run(arguments).with_code(0);
        }
    }
    subscriber.end().with_code(0).stdout
}

/// A daemon whose stream `A` has this schema.
fn place_of(schema: &str) -> (Sandbox, Daemon) {
    let (place, daemon) = Sandbox::with_configured_daemon("");
    place.write("s.schema", schema);
    (place, daemon)
}

#[test]
fn a_json_array_is_records_from_a_file_and_from_a_pipe() {
    let (place, _daemon) = place_of("z i64\na string null\n");
    let pretty = "[\n  {\n    \"z\": 1,\n    \"a\": \"x\"\n  },\n  {\n    \"z\": 2\n  }\n]\n";
    let expected = "{\"z\":1,\"a\":\"x\"}\n{\"z\":2,\"a\":null}\n";
    place.write("a.json", pretty);
    place.write("a.txt", "[{\"z\":1,\"a\":\"x\"},{\"z\":2}]");
    for arguments in [&["a.json"][..], &["a.txt"], &["a.txt", "--schema", "s.schema"]] {
        assert_eq!(published(&place, arguments, None), expected, "{arguments:?}");
    }
    assert_eq!(published(&place, &[], Some(pretty)), expected);
    assert_eq!(published(&place, &["--schema", "s.schema"], Some("[{\"z\":1,\"a\":\"x\"}, {\"z\":2}]")), expected);
}

#[test]
fn a_column_in_brackets_is_no_array() {
    let (place, _daemon) = place_of("");
    assert_eq!(published(&place, &[], Some("[a],b\n1,2\n")), "{\"[a]\":1,\"b\":2}\n");
}

#[test]
fn tsv_has_tabs_and_csv_need_not_have_a_header() {
    let (place, _daemon) = place_of("a i64\nb string\n");
    let expected = "{\"a\":1,\"b\":\"x,y\"}\n";
    place.write("a.tsv", "a\tb\n1\tx,y\n");
    place.write("bare.tsv", "1\tx,y\n");
    assert_eq!(published(&place, &["a.tsv"], None), expected);
    assert_eq!(published(&place, &["a.tsv", "--header"], None), expected);
    assert_eq!(published(&place, &["bare.tsv", "--no-header", "--schema", "s.schema"], None), expected);
    assert_eq!(published(&place, &["bare.tsv", "--no-header", "--schema", "a.tsv"], None), expected);
    let numbered = "{\"column_1\":1,\"column_2\":\"x,y\"}\n";
    assert_eq!(published(&place, &["bare.tsv", "--no-header"], None), numbered);
    assert_eq!(published(&place, &["--no-header", "--delimiter", ";"], Some("1;x,y\n")), numbered);

    let arguments = ["subscribe", "SELECT * FROM A", "--wait", "--until-end", "--output", "csv", "--no-header"];
    let subscriber = place.spawn([&arguments[..], &["--delimiter", "tab"]].concat());
    place.wait_for_subscriptions(1);
    place.run(["publish", "A", "a.tsv"]).with_code(0);
    assert_eq!(subscriber.end().with_code(0).stdout, "1\tx,y\n");
}

#[test]
fn namibia_is_no_null() {
    let (place, _daemon) = place_of("");
    place.write("na.csv", "code,name,rank\nNA,Namibia,NA\n-,,-\n");
    let default = published(&place, &["na.csv", "--null-words", "-"], None);
    assert_eq!(
        default,
        "{\"code\":\"NA\",\"name\":\"Namibia\",\"rank\":\"NA\"}\n{\"code\":null,\"name\":null,\"rank\":null}\n"
    );
    place.write("na.csv", "code,name,rank\nNA,Namibia,NA\nDE,,1\n");
    assert_eq!(
        published(&place, &["na.csv"], None),
        "{\"code\":\"NA\",\"name\":\"Namibia\",\"rank\":null}\n{\"code\":\"DE\",\"name\":null,\"rank\":1}\n"
    );
    assert!(published(&place, &["na.csv", "--null-words", "NA"], None).starts_with("{\"code\":null,"));
}

#[test]
fn an_integer_is_rounded_only_where_that_is_allowed() {
    let (place, _daemon) = place_of("x f64\n");
    place.write("a.jsonl", "{\"x\":9007199254740993}\n");
    place
        .run(["publish", "A", "a.jsonl", "--schema", "s.schema"])
        .with_code(1)
        .saying(&["line 1, field `x`", "--allow rounding"]);
    let allowing = ["a.jsonl", "--schema", "s.schema", "--allow", "rounding"];
    assert_eq!(published(&place, &allowing, None), "{\"x\":9007199254740992.0}\n");
    assert_eq!(published(&place, &["a.jsonl"], None), "{\"x\":9007199254740993}\n");
}

#[test]
fn dates_are_of_utc() {
    let (place, _daemon) = place_of("t timestamp\n");
    place.write("a.csv", "t\n2013-01-01\n2013-01-01 05:00:00\n");
    assert_eq!(
        published(&place, &["a.csv", "--schema", "s.schema"], None),
        "{\"t\":\"2013-01-01T00:00:00Z\"}\n{\"t\":\"2013-01-01T05:00:00Z\"}\n"
    );
}

#[test]
fn other_separators_are_found_in_the_header() {
    let (place, _daemon) = place_of("id i64\nv string\n");
    let expected = "{\"id\":1,\"v\":\"x,y\"}\n";
    for (delimiter, shown) in [(";", "`;`"), ("\t", "a tab"), ("|", "`|`")] {
        let rows = format!("id{delimiter}v\n1{delimiter}\"x,y\"\n");
        place.write("a.csv", &rows);
        assert_eq!(published(&place, &["a.csv"], None), expected, "{rows}");
        assert_eq!(published(&place, &["--schema", "s.schema"], Some(&rows)), expected, "{rows}");
        place.run(["publish", "B", "a.csv"]).with_code(0).saying(&[shown, "--delimiter"]);
        let schema = place.run(["formats", "show", "a.csv"]).with_code(0).stdout;
        assert!(schema.contains("id i64"), "{schema}");
    }
    // A given option goes before a guess, and a comma in quotes separates nothing.
    place.write("a.csv", "id;v\n1;2\n");
    assert_eq!(published(&place, &["a.csv", "--delimiter", ","], None), "{\"id;v\":\"1;2\"}\n");
    place.write("a.csv", "\"a,b\";v\n1;2\n");
    assert_eq!(published(&place, &["a.csv"], None), "{\"a,b\":1,\"v\":2}\n");
    place.write("a.csv", "a,\"b;c\"\n1,2\n");
    assert_eq!(published(&place, &["a.csv"], None), "{\"a\":1,\"b;c\":2}\n");
    // The header ends at a carriage return too, and not at a line feed in quotes.
    place.write("a.csv", "id\r1|2\r3\r");
    assert_eq!(published(&place, &["a.csv"], None), "{\"id\":\"1|2\"}\n{\"id\":\"3\"}\n");
    place.write("a.csv", "\"a\nb\";c\n1;2\n");
    let said = ["values are separated by `;`", "the name of field 1 has control characters"];
    place.run(["publish", "B", "a.csv"]).with_code(1).saying(&said);
    place.write("one.csv", "name\na;b\n");
    assert_eq!(published(&place, &["one.csv"], None), "{\"name\":\"a;b\"}\n");
}

#[test]
fn an_object_over_several_lines_is_a_record() {
    let (place, _daemon) = place_of("z i64\na string null\n");
    let expected = "{\"z\":1,\"a\":\"x\"}\n";
    for text in ["{\n  \"z\": 1,\n  \"a\": \"x\"\n}\n", "{ \"z\": 1,\n  \"a\": \"x\" }\n", "{\"z\":\n1,\"a\":\"x\"}"] {
        place.write("a.json", text);
        assert_eq!(published(&place, &["a.json"], None), expected, "{text}");
        assert_eq!(published(&place, &["a.json", "--schema", "s.schema"], None), expected, "{text}");
        assert_eq!(published(&place, &[], Some(text)), expected, "{text}");
    }
}

#[test]
fn a_line_that_is_too_long_is_measured() {
    let (place, _daemon) = place_of("a string\n");
    let long = "x".repeat(20_000_000);
    place.write("a.jsonl", format!("{{\"a\":\"{long}\"}}\n{{\"a\":\"y\"}}\n"));
    let said = ["a.jsonl: line 1", "20,000,008 bytes", "4,194,304", "16,777,216", "--schema"];
    place.run(["publish", "A", "a.jsonl"]).with_code(1).saying(&said);
    let said = ["a.jsonl: line 1", "20000008 bytes", "16777216", "several", "--on-error skip"];
    place.run(["publish", "A", "a.jsonl", "--schema", "s.schema"]).with_code(1).saying(&said);
    assert_eq!(published(&place, &["a.jsonl", "--schema", "s.schema", "--on-error", "skip"], None), "{\"a\":\"y\"}\n");
    place.write("a.json", format!("[{{\"a\":\"{long}\"}}]"));
    place.run(["publish", "A", "a.json"]).with_code(1).saying(&["no whole object in the first 4,194,304 bytes"]);
    place.write("a.csv", format!("a\n{long}\ny\n"));
    let said = ["a.csv: line 2", "20000000 bytes", "1048576", "several"];
    place.run(["publish", "A", "a.csv"]).with_code(1).saying(&said);
    // The first line of CSV is hinted at as such, and is not counted to the end of a disk.
    let file = std::fs::File::create(place.path("a.csv")).unwrap();
    file.set_len(70 << 20).unwrap();
    let said = ["a.csv: line 1 has more than 67,108,864 bytes", "1,048,576", "--delimiter"];
    let ended = place.run(["publish", "A", "a.csv"]).with_code(1).saying(&said);
    assert!(!ended.stderr.contains("JSON"), "{}", ended.stderr);
}

#[test]
fn a_stream_is_there_before_its_first_row_where_its_schema_is_given() {
    let (place, _daemon) = place_of("z i64\n");
    let mut publisher = place.spawn_fed(["publish", "Early", "--schema", "s.schema"]);
    place.wait_for("streams", |list| list.iter().any(|stream| stream["name"] == "Early" && stream["publishers"] == 1));
    let subscriber = place.spawn(["subscribe", "SELECT * FROM Early", "--until-end", "--wait"]);
    place.wait_for_subscriptions(1);
    publisher.feed("{\"z\":7}\n");
    publisher.end().with_code(0);
    assert_eq!(subscriber.end().with_code(0).stdout, "{\"z\":7}\n");
    let publisher = place.spawn_fed(["publish", "Early", "--schema", "s.schema"]);
    place.wait_for("streams", |list| list.iter().any(|stream| stream["name"] == "Early" && stream["publishers"] == 1));
    publisher.signal(rustix::process::Signal::INT);
    publisher.end_by_itself().with_code(130);
}

#[test]
fn a_file_as_standard_input_is_a_file() {
    let (place, _daemon) = place_of("z i64\n");
    let bad = place.write("bad.csv", "z\nx\n");
    let mut command = place.command(["publish", "Never", "--schema", "s.schema"]);
    command.stdin(std::fs::File::open(bad).unwrap());
    Process::spawn(&mut command).end_by_itself().with_code(1).saying(&["standard input: line 2, column `z`"]);
    // Nothing was announced for it.
    place.run(["subscribe", "SELECT * FROM Never"]).with_code(2).saying(&["`Never`"]);
}
