//! Files as other programs leave them: JSON arrays, tabs, no header, words for null, dates.

use crate::place::{Daemon, Place};

/// What a subscriber of all records of `A` gets of what these arguments publish.
fn published(place: &Place, arguments: &[&str], input: Option<&str>) -> String {
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
fn place_of(schema: &str) -> (Place, Daemon) {
    let (place, daemon) = Place::with_configured_daemon("");
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
