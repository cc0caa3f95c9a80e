//! `SNAPSHOT`, where it stands, and the places of its errors.
#![allow(clippy::unwrap_used)] // a test that fails may panic

use crossdock_format::Format;
use crossdock_query::{KeyedState, Query, Snapshot, StatefulQuery, parse, parse_query, parse_subscription};
use std::collections::BTreeMap;

#[test]
fn snapshot_stands_in_front_of_where_or_behind_it() {
    for (sql, snapshot, has_condition) in [
        ("SELECT * FROM s", None, false),
        ("SELECT * FROM s SNAPSHOT", Some(Snapshot::Once), false),
        ("SELECT * FROM s snapshot;", Some(Snapshot::Once), false),
        ("SELECT * FROM s SNAPSHOT WHERE a > 1", Some(Snapshot::Once), true),
        ("SELECT * FROM s WHERE a > 1 SNAPSHOT", Some(Snapshot::Once), true),
        ("SELECT * FROM s f SNAPSHOT THEN CHANGES WHERE f.a > 1", Some(Snapshot::ThenChanges), true),
        ("SELECT * FROM s AS snapshot SNAPSHOT then changes", Some(Snapshot::ThenChanges), false),
        ("SELECT snapshot FROM snapshot SNAPSHOT ON SLOW BLOCK", Some(Snapshot::Once), false),
        ("SELECT * FROM s ON SLOW BLOCK SNAPSHOT THEN CHANGES", Some(Snapshot::ThenChanges), false),
        ("SELECT * FROM s SNAPSHOT THEN CHANGES DELTA WHERE a > 1", Some(Snapshot::ThenDeltas), true),
        ("SELECT * FROM s \"snapshot\"", None, false),
    ] {
        let select = parse_subscription(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(select.snapshot(), snapshot, "{sql}");
        let format = Format::parse_schema("a i64\nsnapshot i64").unwrap();
        assert_eq!(!select.plan(&format).unwrap().filter.is_empty(), has_condition, "{sql}");
        assert!(matches!(parse_query(sql).unwrap(), Query::Select(_)), "{sql}");
    }
}

#[test]
fn an_error_says_where_and_what_is_possible() {
    for (sql, at, message) in [
        ("SELECT * FROM s SNAPSHOT CHANGES", (1, 26), "expected THEN CHANGES, found CHANGES"),
        ("SELECT * FROM s SNAPSHOT DELTA", (1, 26), "expected the end of the query, found DELTA"),
        ("SELECT * FROM s SNAPSHOT THEN", (1, 30), "expected CHANGES, but the query ends"),
        ("SELECT * FROM s SNAPSHOT THEN WHERE a > 1", (1, 31), "expected CHANGES, found WHERE"),
        ("SELECT * FROM s SNAPSHOT WHERE a > 1 SNAPSHOT", (1, 38), "SNAPSHOT comes once"),
        ("SELECT * FROM s SNAPSHOT ON SLOW DROP OLDEST", (1, 26), "SNAPSHOT gives every record"),
        ("SELECT * FROM s SNAPSHOT MAX RATE 3 PER SECOND", (1, 26), "SNAPSHOT gives every record"),
        ("SELECT a, count(*) AS n FROM s GROUP BY a SNAPSHOT", (1, 43), "SNAPSHOT is of one stream's own records"),
        ("SELECT * FROM s SNAPSHOT, t", (1, 17), "SNAPSHOT is of one stream's own records"),
    ] {
        let Err(error) = parse_query(sql) else { panic!("{sql}") };
        let found = error.position.map(|position| (position.line, position.column));
        assert_eq!(found, Some(at), "{sql}: {error}");
        assert!(error.message.starts_with(message) && error.hint.is_some(), "{sql}: {error}");
    }
    let error = parse("SELECT * FROM s SNAPSHOT").unwrap_err();
    assert!(error.message.contains("belongs to a subscription"), "{error}");
}

fn planned(key: &[&str]) -> Result<String, String> {
    let state = KeyedState {
        stream: "s".into(),
        key: key.iter().map(|&column| column.to_owned()).collect(),
        max_keys: 10,
        max_bytes: 1 << 20,
        max_age_ns: Some(90_000_000_000),
    };
    let format = Format::parse_schema("Flight u32\nday u16\nparts u8[]\n_step u8").unwrap();
    let query = StatefulQuery::of_state(state);
    assert_eq!(query.streams(), ["s"]);
    let program = query.plan(&[("s", &format)], &BTreeMap::new()).map_err(|error| error.to_string())?;
    assert_eq!(program.output().fields().last().unwrap().name, "_step_2", "a column of the stream is in its way");
    Ok(program.to_string())
}

#[test]
fn the_plan_of_a_state_shows_its_key_and_its_bounds() {
    let plan = planned(&["flight", "day"]).unwrap();
    for part in ["state    at most 1 MiB", "the last record by Flight, day, 10 keys at most, for 90 s", "stream s"] {
        assert!(plan.contains(part), "{part}: {plan}");
    }
}

#[test]
fn a_key_has_columns_of_the_stream() {
    for (key, message) in [
        (&["flihgt"][..], "did you mean `Flight`? known: Flight, day"),
        (&["parts"], "is a list"),
        (&["day", "day"], "is in the key twice"),
        (&[], "has no column"),
    ] {
        let error = planned(key).unwrap_err();
        assert!(error.contains(message), "{key:?}: {error}");
    }
}
