//! Joins with reference tables: which rows are found, by keys of all types, and how a table is exchanged for newer rows.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod stateful_support;
mod support;

use crossdock_engine::{TableOrder, TableRows, Tables};
use stateful_support::sql::{SqlRun, records, table};

const FLIGHTS: (&str, &str) = ("f", "origin string null\nflight i32\nat timestamp\nfare decimal(8, scale 2) null\n");
const AIRPORTS: &str = "code char[3] null\ncity string null\nrunways u8\n";
const ROWS: [&str; 5] = ["JFK|New York|4", "EWR|Newark|3", "JFK|Queens|4", "null|Nowhere|1", "LGA|null|2"];

fn airports(rows: &[&str]) -> Tables {
    Tables::new(vec![table("airports", AIRPORTS, &["code"], &records(AIRPORTS, rows))])
}

/// The rows that these flights make.
fn run(sql: &str, tables: &Tables, flights: &[&str]) -> Vec<String> {
    let mut run = SqlRun::with_tables(sql, &[FLIGHTS], tables);
    run.feed("f", flights);
    assert_eq!(run.handler().state_bytes(), 0, "nothing is kept");
    run.rows
}

#[test]
fn every_row_of_a_key_is_joined_and_left_keeps_records_without_one() {
    let flights = ["JFK|1|0|null", "LGA|2|0|null", "SFO|3|0|null", "null|4|0|null", "EWR|5|0|null"];
    let inner = "SELECT f.flight, a.city FROM f JOIN airports a ON f.origin = a.code";
    let found = ["1|New York", "1|Queens", "2|null", "5|Newark"];
    assert_eq!(run(inner, &airports(&ROWS), &flights), found);
    let left = inner.replace("JOIN", "LEFT JOIN");
    let all = ["1|New York", "1|Queens", "2|null", "3|null", "4|null", "5|Newark"];
    assert_eq!(run(&left, &airports(&ROWS), &flights), all);
    assert_eq!(run(inner, &airports(&[]), &flights), [""; 0]);
    // A row of the table for which a condition of ON does not hold is none.
    let bounded = format!("{left} AND a.city <> 'Queens' AND f.flight < 5");
    let some = ["1|New York", "2|null", "3|null", "4|null", "5|null"];
    assert_eq!(run(&bounded, &airports(&ROWS), &flights), some);
    // WHERE sees what comes out of the join.
    let without = format!("{left} WHERE a.code IS NULL");
    assert_eq!(run(&without, &airports(&ROWS), &flights), ["3|null", "4|null"]);
    let inner_where = format!("{inner} WHERE a.runways > 3 AND a.city LIKE 'Q%'");
    assert_eq!(run(&inner_where, &airports(&ROWS), &flights), ["1|Queens"]);
}

#[test]
fn keys_of_all_types_are_found_also_by_values_of_others() {
    let check = |schema: &str, rows: &[&str], on: &str, wanted: &[&str]| {
        let tables = Tables::new(vec![table("t", schema, &["k"], &records(schema, rows))]);
        let sql = format!("SELECT f.flight, t.v FROM f LEFT JOIN t ON {on}");
        let flights = ["a|7|100|725", "ab|-7|200|null", "null|8|300|120"];
        assert_eq!(run(&sql, &tables, &flights), wanted, "{schema} {on}");
    };
    check("k string\nv i64", &["a|1", "ab|2", "b|3"], "f.origin = t.k", &["7|1", "-7|2", "8|null"]);
    check("k char[2]\nv i64", &["a|1", "ab|2"], "t.k = f.origin", &["7|1", "-7|2", "8|null"]);
    check("k i8\nv i64", &["7|1", "-7|2"], "f.flight = t.k", &["7|1", "-7|2", "8|null"]);
    // No number below zero is without a sign.
    check("k u64\nv i64", &["7|1", "8|2"], "f.flight = t.k", &["7|1", "-7|null", "8|2"]);
    check("k f64\nv i64", &["7|1", "8.5|2"], "f.flight = t.k", &["7|1", "-7|null", "8|null"]);
    check("k timestamp\nv i64", &["100|1", "300|2"], "f.at = t.k", &["7|1", "-7|null", "8|2"]);
    check("k decimal(4, scale 2)\nv i64", &["725|1", "120|2"], "f.fare = t.k", &["7|1", "-7|null", "8|2"]);
    check("k decimal(8, scale 4)\nv i64", &["72500|1", "12001|2"], "f.fare = t.k", &["7|1", "-7|null", "8|null"]);
    check("k decimal(8, scale 1)\nv i64", &["70|1", "81|2"], "f.flight = t.k", &["7|1", "-7|null", "8|null"]);
    check("k bool\nv i64", &["true|1"], "(f.flight > 7) = t.k", &["7|null", "-7|null", "8|1"]);
}

#[test]
fn a_key_of_several_columns_and_several_tables() {
    let routes = "carrier string\nflight u16\nmeal string\n";
    let routes = table("routes", routes, &["carrier", "flight"], &records(routes, &["a|1|x", "a|2|y", "ab|1|z"]));
    let airports = table("airports", AIRPORTS, &["code"], &records(AIRPORTS, &ROWS));
    let tables = Tables::new(vec![routes, airports]);
    let sql = "SELECT f.flight, r.meal, a.city, b.city FROM f JOIN routes r ON r.flight = f.flight AND r.carrier = f.origin \
               LEFT JOIN airports a ON a.code = upper(f.origin) || 'WR' JOIN airports b ON b.code = 'LGA'";
    assert_eq!(
        run(sql, &tables, &["ab|1|0|null", "a|1|0|null", "a|2|0|null", "b|1|0|null"]),
        ["1|z|null|null", "1|x|null|null", "2|y|null|null"]
    );
    let sql = "SELECT a.city, count(*) FROM f JOIN airports a ON a.code = f.origin GROUP BY a.city";
    let mut counted = SqlRun::with_tables(sql, &[FLIGHTS], &tables);
    counted.feed("f", &["EWR|1|0|null", "JFK|1|0|null", "EWR|1|0|null"]);
    assert_eq!(counted.rows, ["Newark|1", "New York|1", "Queens|1", "Newark|2"]);
}

#[test]
fn a_handler_goes_on_with_newer_rows_between_two_batches_and_gives_the_former_back() {
    let tables = airports(&["JFK|New York|4"]);
    let (shared, sql) =
        (tables.get("airports").unwrap(), "SELECT f.flight, a.city FROM f JOIN airports a ON f.origin = a.code");
    let twice = format!("{sql} JOIN airports b ON f.origin = b.code");
    for sql in [sql, twice.as_str()] {
        let mut run = SqlRun::with_tables(sql, &[FLIGHTS], &tables);
        let first = shared.rows();
        run.feed("f", &["JFK|1|0|null", "EWR|2|0|null"]);
        let rows = records(AIRPORTS, &["EWR|Newark|3", "JFK|Idlewild|4"]).concat();
        shared.set_rows(TableRows::new(shared.table(), rows, 0).unwrap());
        run.feed("f", &["JFK|3|0|null"]);
        run.exchange(shared);
        run.feed("f", &["JFK|4|0|null", "EWR|5|0|null"]);
        assert_eq!(run.rows, ["1|New York", "3|New York", "4|Idlewild", "5|Newark"]);
        // Nobody has the former ones but this test.
        assert_eq!(std::sync::Arc::strong_count(&first), 1);
        let rows = records(AIRPORTS, &["JFK|New York|4"]).concat();
        shared.set_rows(TableRows::new(shared.table(), rows, 0).unwrap());
    }
    assert_eq!((shared.loads(), shared.rows().len()), (5, 1));
    // One that looks nothing up there takes no such order.
    let other = Tables::new(vec![table("others", AIRPORTS, &["code"], &[])]);
    let mut run = SqlRun::with_tables(sql, &[FLIGHTS], &tables);
    run.feed("f", &["JFK|1|0|null"]);
    let order = TableOrder::of(other.get("others").unwrap());
    assert!(!run.takes(order.into_values()));
}

#[test]
fn a_query_that_goes_to_another_handler_goes_on_with_that_ones_rows() {
    let tables = airports(&["JFK|New York|4"]);
    let sql = "SELECT a.city, count(*) FROM f JOIN airports a ON f.origin = a.code GROUP BY a.city";
    let mut before = SqlRun::with_tables(sql, &[FLIGHTS], &tables);
    before.feed("f", &["JFK|1|0|null"]);
    let shared = tables.get("airports").unwrap();
    let rows = records(AIRPORTS, &["JFK|New York|4", "EWR|Newark|3"]).concat();
    shared.set_rows(TableRows::new(shared.table(), rows, 0).unwrap());
    let mut after = SqlRun::with_tables(sql, &[FLIGHTS], &tables);
    after.take_over(&mut before);
    after.feed("f", &["JFK|1|0|null", "EWR|1|0|null"]);
    assert_eq!(after.rows, ["New York|2", "Newark|1"]);
}
