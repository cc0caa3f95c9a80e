//! `--json`, which every list and report has.

use crate::place::{FLIGHTS_CSV, Sandbox};

#[test]
fn every_command_that_prints_a_list_or_a_report_prints_json() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("flights.csv", FLIGHTS_CSV);
    place.write("next.schema", "carrier string\n");
    place.run(["publish", "A", "flights.csv", "--schema", "a.schema"]).with_code(0);
    let sql = "SELECT * FROM A";
    let commands: [&[&str]; 22] = [
        &["streams"],
        &["tables"],
        &["subscriptions"],
        &["formats"],
        &["formats", "show", "A:v1"],
        &["formats", "diff", "A:v1", "next.schema"],
        &["formats", "check", "A", "next.schema"],
        &["formats", "policy", "A", "none"],
        &["conversions"],
        &["conversions", "add", "A", "v1", "next.schema"],
        &["conversions", "remove", "A", "v1", "next.schema"],
        &["contexts"],
        &["sessions"],
        &["clients"],
        &["mailboxes"],
        &["paths"],
        &["handlers"],
        &["handler", "builtins"],
        &["events"],
        &["explain", sql],
        &["explain", "analyze", sql, "--for", "1ms"],
        &["top", "--once"],
    ];
    for command in commands {
        let objects = place.run(command.iter().chain(&["--json"])).with_code(0).json();
        assert!(objects.iter().all(serde_json::Value::is_object), "{command:?}: {objects:?}");
    }
    let builtins = place.run(["handler", "builtins", "--json"]).with_code(0).json();
    assert!(builtins.iter().any(|kind| kind["name"] == "tally" && kind["parameters"][0]["name"] == "key"));
    let [top] = &place.run(["top", "--once", "--json"]).with_code(0).json()[..] else { panic!() };
    assert_eq!((&top["streams"][0]["name"], top["contexts"][0]["name"].as_str()), (&"A".into(), Some("c-core-0")));
}

#[test]
fn a_format_that_a_policy_refuses_is_an_object_and_a_failure() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("next.schema", "carrier i64\n");
    place.run(["formats", "policy", "A", "backward"]).with_code(0);
    let check = ["formats", "check", "A", "next.schema"];
    let refused = place.run(check).with_code(1);
    assert_eq!(refused.stdout, "");
    let objects = place.run([&check[..], &["--json"]].concat()).with_code(1).json();
    assert_eq!((&objects[0]["stream"], &objects[0]["compatible"]), (&"A".into(), &false.into()), "{objects:?}");
    assert!(objects[0]["note"].as_str().is_some_and(|note| note.contains("carrier")), "{objects:?}");
    place.write("next.schema", "carrier string\n");
    let objects = place.run([&check[..], &["--json"]].concat()).with_code(0).json();
    assert_eq!((&objects[0]["compatible"], &objects[0]["note"]), (&true.into(), &serde_json::Value::Null));
}

#[test]
fn a_check_against_a_stream_that_is_not_there_is_a_failure() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("next.schema", "carrier string\n");
    let check = |stream| ["formats", "check", stream, "next.schema", "--json"];
    let said = ["no stream `flights`", "streams: A"];
    assert_eq!(place.run(check("flights")).with_code(2).saying(&said).stdout, "");
    place.write("flights.csv", FLIGHTS_CSV);
    place.run(["publish", "Flights", "flights.csv"]).with_code(0);
    place.run(check("Flight")).with_code(2).saying(&["no stream `Flight`", "did you mean `Flights`"]);
    // A policy may precede the first version.
    place.run(["formats", "policy", "Delays", "backward"]).with_code(0);
    let objects = place.run(check("Delays")).with_code(0).json();
    assert_eq!(objects[0]["compatible"], true);
    assert!(objects[0]["note"].as_str().is_some_and(|note| note.contains("no version yet")), "{objects:?}");
    place.run(&check("Delays")[..4]).with_code(0).saying(&["stream `Delays` has no version yet"]);
}

#[test]
fn piped_output_is_as_wide_as_it_needs() {
    let (place, _daemon) = Sandbox::with_daemon();
    let name = "a_stream_with_a_name_that_is_so_long_that_a_terminal_of_80_columns_has_no_room_for_it";
    place.write("flights.csv", FLIGHTS_CSV);
    place.run(["publish", name, "flights.csv"]).with_code(0);
    let sql = format!("SELECT * FROM {name} WHERE flight > 0 AND carrier <> 'a literal that makes the query longer'");
    place.run(["handler", "deploy", "late", &sql, "--output-stream", "late_flights_of_it"]).with_code(0);
    for (command, wanted) in [(&["streams"][..], name), (&["handlers"], name), (&["formats"], name), (&["paths"], name)]
    {
        let text = place.run(command).with_code(0).stdout;
        assert!(text.lines().any(|line| line.contains(wanted) && line.chars().count() > 80), "{command:?}: {text}");
    }
    let text = place.run(["top", "--once"]).with_code(0).stdout;
    assert!(text.contains(&format!("{name}→late_flights_of_it")), "{text}");
}
