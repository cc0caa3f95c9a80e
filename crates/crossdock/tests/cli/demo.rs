//! The demo, whole.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::process::Command;

use crate::place::{Daemon, Sandbox, with_io_contexts};

#[test]
fn every_subscriber_gets_exactly_its_rows() {
    let lines = Sandbox::new().run(["demo", "airline", "--json"]).with_code(0).json();
    let of_kind = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).collect::<Vec<_>>();
    let records: Vec<u64> = of_kind("stream").iter().filter_map(|line| line["records"].as_u64()).collect();
    assert_eq!(records, [336_776, 26_115]);
    // Counted with awk over the same files, those of joins and windows with DuckDB; the last is a table of ten rows.
    let expected = [2096, 1782, 120_835, 111_279, 104_662, 385, 336_776, 19_486, 10];
    let subscribers = of_kind("subscriber");
    assert_eq!(subscribers.len(), expected.len());
    for (line, expected) in subscribers.iter().zip(expected) {
        assert_eq!((&line["records"], &line["same"]), (&expected.into(), &true.into()), "{line}");
        assert_eq!(line["checksum"], line["expected_checksum"]);
    }
    let summary = of_kind("summary")[0];
    assert_eq!((&summary["records_in"], &summary["same"]), (&362_891.into(), &true.into()));
    // Passengers and meals are made up, and not in the data.
    let queries = subscribers.iter().filter_map(|line| Some((line["sql"].as_str()?, line["records"].as_u64()?)));
    compare_with_duckdb(&queries.filter(|(sql, _)| !sql.contains("passenger_list")).collect::<Vec<_>>());
}

/// The handler that the demo deploys, and its query for DuckDB: the last day of each carrier.
const CARRIERS: &str = "SELECT carrier, window_start AS day, count(*) AS flights, count(*) FILTER (WHERE dep_delay > 15) AS late \
     FROM A GROUP BY carrier, TUMBLE(time_hour, INTERVAL '1 day') LATENESS INTERVAL '1 day'";
const CARRIERS_IN_DUCKDB: &str = "SELECT * FROM (SELECT carrier, time_bucket(INTERVAL '1 day', time_hour) AS day, \
     count(*) AS flights, count(*) FILTER (WHERE dep_delay > 15) AS late FROM A GROUP BY ALL) \
     QUALIFY day = max(day) OVER (PARTITION BY carrier)";

/// Compares the rows of each query, in a file `N.csv` of a folder, with those of the query that a line of `queries.sql` has for it.
const SCRIPT: &str = r#"
import duckdb, sys
data, folder = sys.argv[1:]
db = duckdb.connect()
for name, file in (("A", "flights"), ("B", "weather")):
    db.execute(f"CREATE TABLE {name} AS SELECT * FROM read_csv('{data}/{file}.csv.gz', nullstr='NA')")
for number, query in enumerate(open(f"{folder}/queries.sql")):
    db.execute(f"CREATE OR REPLACE TABLE theirs AS {query}")
    db.execute(f"CREATE OR REPLACE TABLE ours AS SELECT * FROM theirs LIMIT 0")
    db.execute(f"INSERT INTO ours SELECT * FROM read_csv('{folder}/{number}.csv', all_varchar=true)")
    count = lambda one, other: db.execute(f"SELECT count(*) FROM (FROM {one} EXCEPT ALL FROM {other})").fetchone()[0]
    print(db.execute("SELECT count(*) FROM ours").fetchone()[0], count("ours", "theirs"), count("theirs", "ours"))
"#;

/// A query of the demo for DuckDB: a window of an hour is the hour that a flight has.
fn in_duckdb(sql: &str) -> String {
    if sql.contains("SNAPSHOT") {
        // Rows with equal values are in order of the key.
        let order = sql.replace("carriers SNAPSHOT THEN CHANGES", &format!("({CARRIERS_IN_DUCKDB})"));
        return order.replace("late DESC", "late DESC, carrier");
    }
    let sql = sql.split(" LATENESS").next().unwrap_or(sql).replace("origin, window_start", "origin, time_hour");
    sql.replace("TUMBLE(time_hour, INTERVAL '1 hour')", "time_hour")
}

/// Waits until the state of the carriers has the flights of all days.
fn wait_for_carriers(place: &Sandbox) {
    let flights = std::fs::read_to_string(place.path("flights.csv")).unwrap();
    let day = |row: &str| Some((row.split(',').nth(9)?.to_owned(), row.rsplit(',').next()?.get(..10)?.to_owned()));
    let days: BTreeSet<_> = flights.lines().skip(1).map(|row| day(row).unwrap()).collect();
    let has_all =
        |handler: &serde_json::Value| handler["name"] == "state of carriers" && handler["taken"] == days.len();
    place.wait_for("handlers", |list| list.iter().any(has_all));
}

/// Runs the queries of the demo, each with the number of its rows, over the published files, and compares the rows with DuckDB's.
#[expect(clippy::print_stdout, reason = "a test that is skipped says why")]
fn compare_with_duckdb(queries: &[(&str, u64)]) {
    let Ok(python) = std::env::var("CROSSDOCK_DUCKDB_PYTHON") else {
        println!("skipped: CROSSDOCK_DUCKDB_PYTHON does not name a Python with the module duckdb");
        return;
    };
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data");
    let mut place = Sandbox::new();
    // The streams are declared, so that the queries are at work before the first record.
    let schema = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/demo").join(name);
        let text = std::fs::read_to_string(path).unwrap();
        let is_made_up = |line: &&str| line.starts_with("passenger_list") || line.starts_with("meal_preference");
        place.write(
            name,
            text.lines().filter(|line| !is_made_up(line)).map(|line| format!("{line}\n")).collect::<String>(),
        );
        format!("schema = \"{name}\"\n")
    };
    let streams = [("A", schema("flights.schema")), ("B", schema("weather.schema"))];
    let streams = streams.map(|(name, schema)| format!("[[stream]]\nname = \"{name}\"\n{schema}"));
    let carriers = format!(
        "[[stream]]\nname = \"carriers\"\nkey = [\"carrier\"]\n[[handler]]\nname = \"carriers\"\nsql = \"{CARRIERS}\"\n"
    );
    let config = format!("{}{carriers}[context]\nlisten = \"127.0.0.1:0\"\n", streams.concat());
    let config = place.write("crossdock.toml", with_io_contexts(&config));
    let daemon = Daemon::start(place.command(["serve", "--config"]).arg(config));
    place.uses(&daemon.address);
    place.spawn_into("flights.csv", ["demo", "flights"]).end().with_code(0);
    let mut weather = String::new();
    let file = std::fs::File::open(data.join("weather.csv.gz")).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut weather).unwrap();
    let (header, rows) = weather.split_once('\n').unwrap();
    let mut rows: Vec<&str> = rows.lines().collect();
    rows.sort_by_key(|row| row.rsplit(',').next());
    place.write("weather.csv", format!("{header}\n{}\n", rows.join("\n")));
    place.write("queries.sql", queries.iter().map(|(sql, _)| in_duckdb(sql) + "\n").collect::<String>());
    let subscribe = |(number, (sql, records)): (usize, &(&str, u64))| {
        place.spawn(["subscribe", sql, "--limit", &records.to_string(), "--to", &format!("{number}.csv")])
    };
    // The state is read in the end.
    let in_the_end = |sql: &str| sql.contains("SNAPSHOT");
    let subscribers = queries.iter().enumerate().filter(|(_, (sql, _))| !in_the_end(sql));
    let subscribers: Vec<_> = subscribers.map(subscribe).collect();
    place.wait_for_subscriptions(subscribers.len());
    place.wait_for("handlers", |list| list.len() == 4 && list.iter().all(|handler| handler["status"] == "running"));
    for (stream, name) in [("B", "weather"), ("A", "flights")] {
        let (file, schema) = (format!("{name}.csv"), format!("{name}.schema"));
        place.run(["publish", stream, &file, "--schema", &schema, "--null-words", "NA"]).with_code(0);
    }
    for subscriber in subscribers {
        subscriber.end_by_itself().with_code(0);
    }
    wait_for_carriers(&place);
    for (number, (sql, _)) in queries.iter().enumerate().filter(|(_, (sql, _))| in_the_end(sql)) {
        let sql = sql.replace(" THEN CHANGES", "");
        place.run(["subscribe", &sql, "--to", &format!("{number}.csv")]).with_code(0);
    }
    let output = Command::new(python).args(["-c", SCRIPT]).arg(&data).arg(place.path("")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), queries.len());
    for (line, (sql, _)) in text.lines().zip(queries) {
        let counts: Vec<u64> = line.split(' ').map(|count| count.parse().unwrap()).collect();
        assert!(counts[0] > 0 && counts[1..] == [0, 0], "{sql}: {line}");
    }
}

#[test]
fn a_converter_that_comes_late_loses_nothing_and_lets_no_name_through() {
    let lines = Sandbox::new().run(["demo", "morph", "--json"]).with_code(0).json();
    let of_kind = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).collect::<Vec<_>>();
    let subscribers = of_kind("subscriber");
    let records: Vec<u64> = subscribers.iter().filter_map(|line| line["records"].as_u64()).collect();
    // Counted with awk over the same file.
    assert_eq!(records, [336_776, 9723]);
    for line in subscribers {
        assert_eq!((&line["same"], &line["dropped"]), (&true.into(), &0.into()), "{line}");
        assert!(line["waited"].as_u64() > Some(0), "{line}");
    }
    // The first step leaves the names out, and what nobody reads of the rest.
    let [path] = of_kind("path")[..] else { panic!("{lines:?}") };
    let steps = path["path"]["steps"].as_array().map_or(0, Vec::len);
    assert_eq!((steps, &path["path"]["refused"]), (2, &0.into()), "{path}");
    assert!(path["path"]["parts"][0].as_str().is_some_and(|part| part.ends_with(" of 21 fields")), "{path}");
    assert_eq!(of_kind("summary")[0]["same"], true);
}
