//! Every encoding out of `subscribe` and back into `publish`.

use crossdock_format::encoding::Encoding;

use crate::place::{FLIGHTS_CSV, Sandbox};

/// The rows of [`FLIGHTS_CSV`] as `subscribe --output csv` writes them.
fn flights() -> String {
    FLIGHTS_CSV.replace(",NA,", ",,")
}

/// Publishes the flights, and keeps what a subscriber writes of them in a file.
fn save(place: &Sandbox, file: &str, options: &[&str]) {
    let subscriber =
        place.spawn_into(file, [&["subscribe", "SELECT * FROM A", "--until-end", "--wait"], options].concat());
    place.wait_for_subscriptions(1);
    place.run(["publish", "A", "flights.csv", "--schema", "a.schema"]).with_code(0);
    subscriber.end().with_code(0).saying(&["4 records ("]);
    place.wait_for_subscriptions(0);
}

/// Publishes a file, and gives what a subscriber sees of it.
fn show(place: &Sandbox, file: &str, options: &[&str]) -> String {
    let sql = "SELECT carrier, flight, origin, dest, dep_delay, note FROM A";
    let subscriber = place.spawn(["subscribe", sql, "--until-end", "--wait", "--output", "csv"]);
    place.wait_for_subscriptions(1);
    place.run([&["publish", "A", file], options].concat()).with_code(0).saying(&["published 4 records"]);
    let shown = subscriber.end().with_code(0).stdout;
    place.wait_for_subscriptions(0);
    shown
}

fn with_flights() -> (Sandbox, crate::place::Daemon) {
    let (place, daemon) = Sandbox::with_daemon();
    place.write("flights.csv", FLIGHTS_CSV);
    (place, daemon)
}

#[test]
fn every_encoding_comes_back_as_the_same_rows() {
    for encoding in Encoding::ALL {
        let (place, _daemon) = with_flights();
        let file = format!("saved.{}", encoding.endings().first().unwrap_or(&"bin"));
        save(&place, &file, &["--output", encoding.name()]);
        let named = ["--input", encoding.name()];
        let schema = ["--schema", "a.schema"];
        // By its ending where it has one, and by the schema that it carries where it does.
        let mut options = Vec::new();
        if encoding.endings().is_empty() {
            options.extend(named);
        }
        if !encoding.carries_schema() {
            options.extend(schema);
        }
        assert_eq!(show(&place, &file, &options), flights(), "{encoding}");
        if encoding.carries_schema() {
            // The same into a format that is given.
            assert_eq!(show(&place, &file, &schema), flights(), "{encoding}");
        }
    }
}

#[test]
fn inputs_without_a_name_are_known_by_how_they_start() {
    for encoding in [Encoding::Xml, Encoding::ArrowStream, Encoding::ArrowFile, Encoding::Parquet] {
        let (place, _daemon) = with_flights();
        save(&place, "saved", &["--output", encoding.name()]);
        let schema: &[&str] = if encoding == Encoding::Xml { &["--schema", "a.schema"] } else { &[] };
        assert_eq!(show(&place, "saved", schema), flights(), "{encoding}");
    }
}

#[test]
fn packed_files_and_pipes_are_read_in_every_encoding() {
    use std::io::Write;
    for encoding in [Encoding::Xml, Encoding::Parquet] {
        let (place, _daemon) = with_flights();
        save(&place, "saved", &["--output", encoding.name()]);
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packer.write_all(&std::fs::read(place.path("saved")).unwrap()).unwrap();
        let packed = format!("saved.{}.gz", encoding.endings()[0]);
        std::fs::write(place.path(&packed), packer.finish().unwrap()).unwrap();
        assert_eq!(show(&place, &packed, &["--schema", "a.schema"]), flights(), "{encoding}");
    }
}

#[test]
fn xml_records_may_have_any_name() {
    let (place, _daemon) = with_flights();
    save(&place, "saved.xml", &["--output", "xml", "--element", "flight-plan"]);
    let text = std::fs::read_to_string(place.path("saved.xml")).unwrap();
    assert!(text.contains("<flight-plan><carrier>UA</carrier>"), "{text}");
    let wrapped = text.replace("<flight-plan>", "<day><flight-plan>").replace("</flight-plan>", "</flight-plan></day>");
    place.write("days.xml", wrapped);
    assert_eq!(show(&place, "days.xml", &["--schema", "a.schema", "--element", "flight-plan"]), flights());
}

#[test]
fn unknown_fields_are_refused_or_passed_over() {
    let (place, _daemon) = with_flights();
    place.write("more.xml", "<fs><f carrier='UA' flight='1' origin='EWR' dest='IAH' gate='7'/></fs>");
    let arguments = ["publish", "A", "more.xml", "--schema", "a.schema"];
    place.run(arguments).with_code(1).saying(&["more.xml: item 1", "field `gate`: the format has no such field"]);
    let lenient = arguments.into_iter().chain(["--ignore-unknown"]);
    place.run(lenient).with_code(0).saying(&["published 1 record "]);
}

#[test]
fn files_that_are_not_in_their_encoding_are_said_to_be_none() {
    let (place, _daemon) = with_flights();
    for ending in ["parquet", "arrow", "arrows", "xml"] {
        let file = format!("flights.{ending}");
        place.write(&file, FLIGHTS_CSV);
        let schema: &[&str] = if ending == "xml" { &["--schema", "a.schema"] } else { &[] };
        place.run([&["publish", "B", &file], schema].concat()).with_code(1).saying(&[&format!("{file}: ")]);
    }
    place.write("a.xml", "<a/>");
    place.run(["publish", "B", "a.xml"]).with_code(2).saying(&["a.xml: xml needs a schema", "--schema"]);
    place.run(["publish", "B", "a.xml", "--input", "yaml"]).with_code(2).saying(&["parquet", "xml"]);
    place.run(["subscribe", "SELECT * FROM A", "--output", "yaml"]).with_code(2).saying(&["parquet", "xml"]);
    place.run(["subscribe", "SELECT * FROM A", "--allow", "honour"]).with_code(2).saying(&["invalid-text"]);
}

#[test]
fn values_that_an_encoding_cannot_hold_are_refused_with_a_remedy() {
    let (place, _daemon) = with_flights();
    let sql = "SELECT flight AS \"flight number\" FROM A";
    place.run(["subscribe", sql, "--output", "xml"]).with_code(2).saying(&["field `flight number`", "give it another"]);
}

#[test]
fn an_interrupted_file_is_whole() {
    let (place, _daemon) = with_flights();
    let subscriber = place.spawn_into("saved.parquet", ["subscribe", "SELECT * FROM A", "--output", "parquet"]);
    place.wait_for_subscriptions(1);
    place.run(["publish", "A", "flights.csv", "--schema", "a.schema"]).with_code(0);
    place.wait_for("subscriptions", |list| list.iter().any(|one| one["records_out"] == 4));
    subscriber.signal(rustix::process::Signal::INT);
    let ended = subscriber.end().with_code(0);
    let received: usize = ended.stderr.split(' ').next().unwrap().parse().unwrap();
    let shown = place.run(["publish", "B", "saved.parquet", "--json"]).with_code(0).json();
    assert_eq!(shown[0]["records"], received);
}
