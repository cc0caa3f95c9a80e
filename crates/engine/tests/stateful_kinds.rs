//! The queries that go on with another query's state.
#![allow(clippy::unwrap_used)] // a test that fails may panic

use std::collections::BTreeMap;
use std::sync::Arc;

use crossdock_engine::{Handler, StatefulHandler};
use crossdock_format::Format;
use crossdock_query::{Query, parse_query};

/// The kind of the state of a query over `a`, `b` and `c`, which have equal columns.
fn kind(sql: &str, values: &[(&str, &str)]) -> String {
    let format = Format::parse_schema("ts timestamp\nk string\nv i64\nw i64\n").unwrap();
    let formats = ["a", "b", "c"].map(|name| (name, &format));
    let values: BTreeMap<String, String> =
        values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let Ok(Query::Stateful(query)) = parse_query(sql) else { panic!("{sql} is no query with state") };
    let program = Arc::new(query.plan(&formats, &values).unwrap_or_else(|error| panic!("{error}")));
    let of_stream = |stream: &str| {
        let readers = query.readers(&program, stream, &format, &values).unwrap();
        StatefulHandler::new(Arc::clone(&program), readers).unwrap().state_kind().unwrap().to_owned()
    };
    let kinds: Vec<String> = query.streams().into_iter().map(of_stream).collect();
    assert!(kinds.iter().all(|kind| *kind == kinds[0]), "one kind for all streams: {sql}");
    kinds[0].clone()
}

const TUMBLE: &str = "GROUP BY k, TUMBLE(ts, INTERVAL '1 second')";

#[test]
fn a_state_is_of_one_kind_as_long_as_its_values_mean_the_same() {
    let over = |columns: &str, rest: &str| kind(&format!("SELECT {columns} FROM a {rest} {TUMBLE}"), &[]);
    let sum = over("sum(v)", "");
    assert_eq!(over("k, sum(v) + 1 AS s", "WHERE w > 3"), sum, "conditions and the output may change");
    for (columns, rest) in [("sum(v * 60)", ""), ("sum(w)", ""), ("sum(v) FILTER (WHERE w > 3)", "")] {
        assert_ne!(over(columns, rest), sum, "{columns}");
    }
    assert_ne!(over("sum(v) FILTER (WHERE w > 3)", ""), over("sum(v) FILTER (WHERE w > 5)", ""));
    let kinds = [
        "SELECT count(*) FROM a GROUP BY k, TUMBLE(ts, INTERVAL '1 second')",
        "SELECT count(*) FROM a GROUP BY upper(k), TUMBLE(ts, INTERVAL '1 second')",
        "SELECT count(*) FROM a GROUP BY lower(k), TUMBLE(ts, INTERVAL '1 second')",
        "SELECT count(*) FROM a GROUP BY k, TUMBLE(ts + INTERVAL '1 second', INTERVAL '1 second')",
        "SELECT count(*) FROM b GROUP BY k, TUMBLE(ts, INTERVAL '1 second')",
    ]
    .map(|sql| kind(sql, &[]));
    for (number, one) in kinds.iter().enumerate() {
        assert!(kinds[number + 1..].iter().all(|other| one != other), "{one}");
    }
    let second = |column: &str| {
        let inner = format!("SELECT k, sum(v) AS x, sum(w) AS y FROM a {TUMBLE}");
        kind(&format!("SELECT k, last({column}) FROM ({inner}) q GROUP BY k"), &[])
    };
    assert_ne!(second("x"), second("y"), "of the rows between two stages");
    assert_ne!(second("x"), second("x + y"), "of the rows between two stages");
}

#[test]
fn a_parameter_counts_where_its_value_goes_into_the_state() {
    let kinds = |sql: &str| [("1", "1"), ("1", "2")].map(|(x, y)| [kind(sql, &[("p", x)]), kind(sql, &[("p", y)])]);
    let join = "SELECT a.v FROM a LEFT JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '1 second'";
    for (sql, is_same) in [
        (format!("{join} AND a.v + b.v > $p"), false),
        (format!("{join} AND b.v > $p"), true),
        (format!("SELECT sum(v * $p) FROM a {TUMBLE}"), false),
        (format!("SELECT sum(v) FROM a WHERE v > $p {TUMBLE}"), true),
        (format!("SELECT sum(v) FROM a {TUMBLE} HAVING sum(v) > $p"), true),
    ] {
        let [[one, same], [_, other]] = kinds(&sql);
        assert_eq!(one, same, "{sql}");
        assert_eq!(one == other, is_same, "{sql}");
    }
}
