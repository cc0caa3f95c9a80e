//! Reference tables: declared in the configuration, looked up by queries, listed.

use crate::place::{FLIGHTS_CSV, Sandbox, TRANSPORTS};
use serde_json::json;

const AIRPORTS: &str = "code,city,runways\nEWR,Newark,3\nJFK,New York,4\nJFK,Queens,4\n,Nowhere,0\n";

/// A folder with the tables' files, and the sections that declare them.
fn sections(place: &Sandbox) -> String {
    place.write("airports.csv", AIRPORTS);
    place.write("airports.schema", "code char[3] null\ncity string\n");
    place.write("carriers.txt", "carrier,name\nUA,United\nAA,American\n");
    let table =
        "[[table]]\nname = \"airports\"\npath = \"airports.csv\"\nkey = \"code\"\nschema = \"airports.schema\"\n";
    format!("{table}[[table]]\nname = \"carriers\"\npath = \"carriers.txt\"\nformat = \"csv\"\nkey = [\"carrier\"]\n")
}

#[test]
fn a_table_is_declared_looked_up_and_listed() {
    let place = Sandbox::new();
    let files = sections(&place);
    for way in TRANSPORTS {
        let (of_daemon, _daemon) = Sandbox::with_configured_daemon_and(&files, |daemons| drop(sections(daemons)));
        let place = of_daemon.by(way);
        place.write("flights.csv", FLIGHTS_CSV);
        let sql = "SELECT f.flight, a.city, c.name FROM A f JOIN airports a ON f.origin = a.code LEFT JOIN carriers c ON c.carrier = f.carrier";
        let explained = place.run(["explain", sql]).with_code(0).stdout;
        for part in
            ["join with table airports by origin = code", "table    airports: 4 rows by code, ", "carriers: 2 rows"]
        {
            assert!(explained.contains(part), "{explained}");
        }
        let process = place.spawn(["subscribe", sql, "--limit", "7"]);
        place.wait_for("subscriptions", |subscriptions| subscriptions.len() == 1);
        place.run(["publish", "A", "flights.csv"]).with_code(0);
        let rows = process.end_by_itself().with_code(0).json();
        let row = |flight: u16, city: &str, name: Option<&str>| json!({ "flight": flight, "city": city, "name": name });
        let mut wanted = vec![row(1545, "Newark", Some("United"))];
        for (flight, name) in [(1141, Some("American")), (725, None), (120, None)] {
            wanted.extend(["New York", "Queens"].map(|city| row(flight, city, name)));
        }
        assert_eq!(rows, wanted);
        let tables = place.run(["tables", "--json"]).with_code(0).json();
        assert_eq!(
            (&tables[0]["name"], &tables[0]["rows"], &tables[0]["keys"]),
            (&json!("airports"), &json!(4), &json!(2))
        );
        assert_eq!((&tables[0]["rows_without_key"], &tables[1]["key"]), (&json!(1), &json!(["carrier"])));
        let listed = place.run(["tables"]).with_code(0).stdout;
        assert!(listed.contains("airports") && listed.contains("carriers"), "{listed}");
        place.run(["subscribe", "SELECT * FROM airports"]).with_code(2).saying(&[
            "column 15",
            "`airports` is a reference table, and no stream",
            "[LEFT] JOIN airports t ON s.column = t.code",
        ]);
        place.run(["publish", "airports", "flights.csv"]).with_code(1).saying(&["is a reference table"]);
    }
}

#[test]
fn a_table_of_parquet_has_the_columns_that_its_file_says() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("flights.csv", FLIGHTS_CSV);
    let reads = place.spawn(["subscribe", "SELECT * FROM A", "--to", "legs.parquet", "--limit", "4"]);
    place.wait_for("subscriptions", |subscriptions| subscriptions.len() == 1);
    place.run(["publish", "A", "flights.csv"]).with_code(0);
    reads.end_by_itself().with_code(0);
    let parquet = std::fs::read(place.path("legs.parquet")).unwrap();
    let section = "[[table]]\nname = \"legs\"\npath = \"legs.parquet\"\nkey = [\"carrier\", \"flight\"]\n";
    let (place, _daemon) = Sandbox::with_configured_daemon_and(section, |place| {
        place.write("legs.parquet", &parquet);
    });
    place.write("flights.csv", FLIGHTS_CSV);
    let sql = "SELECT f.flight, l.dest, l.note FROM A f JOIN legs l ON l.carrier = f.carrier AND l.flight = f.flight AND l.dest <> 'LAX'";
    let process = place.spawn(["subscribe", sql, "--limit", "3"]);
    place.wait_for("subscriptions", |subscriptions| subscriptions.len() == 1);
    place.run(["publish", "A", "flights.csv"]).with_code(0);
    let row = |flight: u16, dest: &str, note: Option<&str>| json!({ "flight": flight, "dest": dest, "note": note });
    let wanted = [row(1545, "IAH", None), row(1141, "MIA", Some("late crew")), row(725, "BQN", Some("cancelled"))];
    assert_eq!(process.end_by_itself().with_code(0).json(), wanted);
}

#[test]
fn a_wrong_table_is_refused_at_the_start() {
    let place = Sandbox::new();
    let sections = sections(&place);
    let starts = |sections: &str| {
        let config = place.write("crossdock.toml", format!("[context]\nlisten = \"127.0.0.1:0\"\n{sections}"));
        place.run([std::ffi::OsStr::new("serve"), "--config".as_ref(), config.as_os_str()])
    };
    let with_stream = format!("{sections}[[stream]]\nname = \"Airports\"\nschema = \"airports.schema\"\n");
    starts(&with_stream).with_code(2).saying(&["[[table]] `airports` has the name of a [[stream]]"]);
    let with_handler = format!("{sections}[[handler]]\nname = \"airports\"\nsql = \"SELECT * FROM A\"\n");
    starts(&with_handler).with_code(2).saying(&["output stream of [[handler]] `airports`"]);
    let without = sections.replace("format = \"csv\"\n", "");
    starts(&without).with_code(2).saying(&[
        "`carriers`",
        "carriers.txt says neither CSV nor Parquet",
        "format = \"csv\"",
    ]);
    let twice = format!("{sections}{}", sections.replace("carriers", "others"));
    starts(&twice).with_code(2).saying(&["two tables are called `airports`"]);
    starts(&sections.replace("\"code\"", "[]")).with_code(2).saying(&["the key is the name of a column"]);
    place.write("airports.csv", "code,city\nJFK,New York\nEWR\n");
    starts(&sections).with_code(1).saying(&["table `airports`", "airports.csv: line 3", "column"]);
    place.write("airports.csv", AIRPORTS);
    starts(&sections.replace("\"code\"", "\"iata\""))
        .with_code(1)
        .saying(&["`iata` is not there; the columns are code, city"]);
}
