//! `SNAPSHOT`, where it stands, and the places of its errors.
#![allow(clippy::unwrap_used)] // a test that fails may panic

use crossdock_format::Format;
use crossdock_query::{
    KeyedState, Query, Snapshot, SortDirection, StatefulQuery, TopN, parse, parse_query, parse_subscription,
};
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
        ("SELECT * FROM s SNAPSHOT THEN CHANGES ON SLOW DISCONNECT", Some(Snapshot::ThenChanges), false),
        ("SELECT * FROM s ON SLOW CONFLATE BY (a) SNAPSHOT", Some(Snapshot::Once), false),
        ("SELECT * FROM s MAX RATE 3 PER SECOND BY a SNAPSHOT ON SLOW CONFLATE BY (a)", Some(Snapshot::Once), false),
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
        ("SELECT * FROM s SNAPSHOT ON SLOW SAMPLE 3", (1, 26), "SNAPSHOT gives every record"),
        ("SELECT * FROM s SNAPSHOT ON SLOW KEEP WHERE a > 1", (1, 26), "SNAPSHOT gives every record"),
        ("SELECT * FROM s SNAPSHOT MAX RATE 3 PER SECOND", (1, 26), "SNAPSHOT gives every record"),
        ("SELECT * FROM s SNAPSHOT MAX RATE 3 PER SECOND BY a", (1, 26), "SNAPSHOT gives every record"),
        ("SELECT * FROM s MAX RATE 3 PER SECOND SNAPSHOT ON SLOW DISCONNECT", (1, 17), "SNAPSHOT gives every record"),
        (
            "SELECT * FROM s SNAPSHOT ON SLOW CONFLATE BY (a) MAX RATE 3 PER SECOND BY b",
            (1, 75),
            "MAX RATE has the key (b)",
        ),
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

#[test]
fn order_by_and_limit_stand_behind_a_snapshot() {
    for (sql, limit, follows) in [
        ("SELECT * FROM s SNAPSHOT", None, false),
        ("SELECT * FROM s SNAPSHOT ORDER BY a LIMIT 1", Some(1), false),
        ("SELECT * FROM s WHERE a > 1 SNAPSHOT THEN CHANGES ORDER BY s.a, abs(b) DESC LIMIT 1000;", Some(1000), true),
        ("SELECT * FROM s SNAPSHOT THEN CHANGES DELTA LIMIT 3 ORDER BY a NULLS FIRST ON SLOW BLOCK", Some(3), true),
        ("SELECT \"order\" AS \"limit\" FROM s SNAPSHOT order by \"limit\" limit 2", Some(2), false),
    ] {
        let select = parse_subscription(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(select.top_n(), limit.map(|limit| TopN { limit, follows }), "{sql}");
        select.check_order(&Format::parse_schema("a i64\nb i64\norder i64").unwrap()).unwrap();
    }
    let (once, follows) = (TopN { limit: 10, follows: false }, TopN { limit: 10, follows: true });
    assert_eq!((once.most_bytes(1 << 30), once.most_bytes(9), follows.most_bytes(1 << 30)), (180_224, 9, 1 << 30));
}

#[test]
fn an_error_of_an_order_says_where_and_what_is_possible() {
    for (sql, at, message) in [
        ("SELECT * FROM s ORDER BY a LIMIT 3", (1, 17), "ORDER BY is not possible without SNAPSHOT"),
        ("SELECT * FROM s LIMIT 3", (1, 17), "LIMIT is not possible without SNAPSHOT"),
        ("SELECT * FROM s SNAPSHOT ORDER BY a", (1, 26), "ORDER BY has no LIMIT"),
        ("SELECT * FROM s SNAPSHOT LIMIT 3", (1, 26), "LIMIT has no ORDER BY"),
        ("SELECT * FROM s SNAPSHOT ORDER a LIMIT 3", (1, 32), "expected BY, found a"),
        ("SELECT * FROM s SNAPSHOT ORDER BY LIMIT 3", (1, 35), "expected an expression, found LIMIT"),
        ("SELECT * FROM s SNAPSHOT ORDER BY a NULLS LIMIT 3", (1, 43), "expected FIRST or LAST, found LIMIT"),
        ("SELECT * FROM s SNAPSHOT ORDER BY a LIMIT 0", (1, 43), "expected the number of rows, 1 to 1000, found 0"),
        (
            "SELECT * FROM s SNAPSHOT ORDER BY a LIMIT 1001",
            (1, 43),
            "expected the number of rows, 1 to 1000, found 1001",
        ),
        ("SELECT * FROM s SNAPSHOT ORDER BY a LIMIT ALL", (1, 43), "expected the number of rows, found ALL"),
        ("SELECT * FROM s SNAPSHOT ORDER BY a LIMIT 3 OFFSET 1", (1, 45), "OFFSET and FETCH are not possible"),
        ("SELECT * FROM s SNAPSHOT ORDER BY a ORDER BY b LIMIT 3", (1, 37), "ORDER BY comes once"),
        ("SELECT * FROM s SNAPSHOT ORDER BY a LIMIT 3 LIMIT 3", (1, 45), "LIMIT comes once"),
        ("SELECT * FROM s SNAPSHOT ORDER BY a LIMIT 3 MAX RATE 3 PER SECOND", (1, 45), "SNAPSHOT gives every record"),
    ] {
        let Err(error) = parse_query(sql) else { panic!("{sql}") };
        let found = error.position.map(|position| (position.line, position.column));
        assert_eq!(found, Some(at), "{sql}: {error}");
        let hint = error.hint.as_ref().is_some_and(|hint| hint.contains("SNAPSHOT"));
        assert!(error.message.starts_with(message) && hint, "{sql}: {error}");
    }
    let format = Format::parse_schema("a i64\nb string\nparts u8[]").unwrap();
    for (order, column, message) in [
        ("c", 36, "no column `c`"),
        ("b + 1", 36, ""),
        ("a, parts", 39, "ORDER BY has a list"),
        ("'a'", 36, "ORDER BY has a constant"),
        ("3", 36, "ORDER BY 3 is no place of the select list, which has 2"),
        ("0", 36, "ORDER BY 0 is no place"),
    ] {
        let sql = format!("SELECT a, b FROM s SNAPSHOT ORDER BY {order} LIMIT 3");
        let error = parse_subscription(&sql).unwrap().check_order(&format).unwrap_err();
        assert!(error.position.is_some_and(|at| at.column >= column), "{sql}: {error}");
        assert!(error.message.contains(message), "{sql}: {error}");
    }
    let behind = parse_subscription("SELECT a, * FROM s SNAPSHOT ORDER BY 2 LIMIT 3").unwrap();
    assert!(behind.check_order(&format).unwrap_err().message.contains("behind `*`"));
}

#[test]
fn an_order_is_planned_for_what_is_kept_of_the_rows() {
    let state =
        |max_bytes| KeyedState { stream: "s".into(), key: vec!["K".into()], max_keys: 10, max_bytes, max_age_ns: None };
    let rows = Format::parse_schema("a i64\nk string\nb i64 null\nc f64\n_step u8").unwrap();
    let plan = |sql: &str| parse_subscription(sql).unwrap().of_state("state of s", state(99)).plan_snapshot(&rows);
    let sql =
        "SELECT a + 1 AS c, a AS x FROM s SNAPSHOT THEN CHANGES WHERE c > 0 ORDER BY c DESC, 2, b NULLS FIRST LIMIT 5";
    let program = plan(sql).unwrap();
    let top = program.top.as_ref().unwrap();
    let names = |format: &Format| format.fields().iter().map(|field| field.name.clone()).collect::<Vec<_>>().join(" ");
    // The columns that the list reads, and the key; `c` is that of the list.
    assert_eq!(
        (names(&top.keep.output), &*names(&program.enter.input), top.keep.filter.len()),
        ("a k".into(), "a k", 1)
    );
    let order = top.order.explain();
    let from: Vec<_> = order.output.iter().filter_map(|field| field.from.as_deref()).collect();
    assert_eq!((from, order.filter.len()), (vec!["a + 1", "a", "b"], 0));
    let direction = |descending, nulls_first| SortDirection { descending, nulls_first };
    assert_eq!(top.directions, [direction(true, true), direction(false, false), direction(false, true)]);
    assert_eq!((&*top.key, top.limit, top.max_bytes, program.enter.filter.len()), (&[1][..], 5, 99, 0));
    assert_eq!(names(program.output()), "c x _change");
    let long = Format::parse_schema("k string\nlong char[9000]\n_step u8").unwrap();
    let select = parse_subscription("SELECT * FROM s SNAPSHOT ORDER BY k LIMIT 1").unwrap();
    let error = select.of_state("state of s", state(99)).plan_snapshot(&long).unwrap_err();
    assert!(error.message.contains("longer than the 8192 bytes"), "{error}");
}

#[test]
fn a_query_that_cannot_take_the_place_of_another_is_refused_at_its_place() {
    let format = Format::parse_schema("k string\nv i64\nw i64 null\n_step u8").unwrap();
    let read = |sql: &str| parse_subscription(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let of_state = |sql: &str| {
        let (max_keys, max_bytes, max_age_ns) = (10, 1 << 20, None);
        let state = KeyedState { stream: "s".into(), key: vec!["K".into()], max_keys, max_bytes, max_age_ns };
        read(sql).of_state("state of s", state)
    };
    let changed = |before: &str, sql: &str| {
        read(sql).check_change(&of_state(before), "s")?;
        let (now, was) = (of_state(sql), of_state(before));
        match now.snapshot() {
            Some(_) => now.check_columns(&now.plan_snapshot(&format)?, &was.plan_snapshot(&format)?),
            None => Ok(()),
        }
    };
    let follows = |list: &str, behind: &str| format!("SELECT {list} FROM s SNAPSHOT THEN CHANGES {behind}");
    for (before, sql) in [
        ("SELECT k FROM s".to_owned(), "SELECT v, w FROM s WHERE v > 3".to_owned()),
        ("SELECT k FROM s ON SLOW SAMPLE 3".to_owned(), "SELECT v FROM s  on slow sample 3".to_owned()),
        (follows("k, v", ""), follows("k, v + 1 AS v", "WHERE w = 3")),
        (
            follows("k, w", "").replace("CHANGES", "CHANGES DELTA"),
            follows("k, w + 1 AS w", "").replace("CHANGES", "CHANGES DELTA"),
        ),
        (follows("v, k, w", "ORDER BY v LIMIT 3"), follows("v, k, w", "WHERE v > 1 ORDER BY w DESC LIMIT 10")),
        (
            follows("*", "").replace("CHANGES", "CHANGES DELTA"),
            follows("*", "WHERE v > 3").replace("CHANGES", "CHANGES DELTA"),
        ),
    ] {
        changed(&before, &sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let state = follows("k, v", "");
    let deltas = |list: &str| follows(list, "").replace("CHANGES", "CHANGES DELTA");
    let of_deltas = deltas("k, w");
    for (before, sql, at, message) in [
        ("SELECT k FROM s", "SELECT k FROM other".to_owned(), Some((1, 15)), "the subscription is one to stream `s`"),
        ("SELECT k FROM s", state.clone(), Some((1, 20)), "the query before is one without SNAPSHOT"),
        ("SELECT k FROM s SNAPSHOT", state.clone(), Some((1, 20)), "the query before is one with SNAPSHOT alone"),
        (&state, follows("k, v", "ORDER BY v LIMIT 3"), Some((1, 20)), "ORDER BY"),
        ("SELECT k FROM s", "SELECT k FROM s ON SLOW SAMPLE 3".to_owned(), Some((1, 17)), "the clause ON SLOW stays"),
        ("SELECT k FROM s MAX RATE 3 PER SECOND", "SELECT k FROM s".to_owned(), None, "the clause MAX RATE stays"),
        (&state, follows("k, w AS v", ""), Some((1, 11)), "a query with SNAPSHOT THEN CHANGES keeps its columns"),
        (
            &of_deltas,
            deltas("k, coalesce(w, 0) AS w"),
            Some((1, 11)),
            "a query with SNAPSHOT THEN CHANGES keeps its columns",
        ),
        (&state, follows("k", ""), Some((1, 8)), "a query with SNAPSHOT THEN CHANGES keeps its columns"),
        (&state, follows("k || 'x' AS k, v", ""), Some((1, 8)), "a column of the stream's key"),
    ] {
        let error = changed(before, &sql).expect_err(&sql);
        let found = error.position.map(|position| (position.line, position.column));
        assert_eq!(found, at, "{sql}: {error}");
        assert!(error.message.starts_with(message), "{sql}: {error}");
        assert!(error.hint.as_ref().is_some_and(|hint| hint.contains("subscribe anew")), "{error}");
    }
}
