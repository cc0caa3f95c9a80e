//! The clauses of a subscription, and the places of their errors.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crossdock_format::Format;
use crossdock_query::{QueryError, Select, SlowPolicy, parse, parse_subscription};
use proptest::prelude::*;

fn format() -> Format {
    Format::parse_schema("flight u32\ncarrier char[2]\nseverity i32\nparts u8[]").unwrap()
}

/// The clauses of a query, as lists show them.
fn clauses(sql: &str) -> (String, String) {
    let select = parse_subscription(sql).unwrap_or_else(|error| panic!("{error}"));
    let slow = select.on_slow().map(|policy| policy.to_string()).unwrap_or_default();
    (slow, select.max_rate().map(|rate| rate.to_string()).unwrap_or_default())
}

#[test]
fn clauses_are_read_behind_where_in_either_order() {
    for (clause, slow, rate) in [
        ("", "", ""),
        ("ON SLOW BLOCK", "block", ""),
        ("on slow drop oldest", "drop_oldest", ""),
        ("ON SLOW DISCONNECT;", "disconnect", ""),
        ("ON SLOW CONFLATE BY (flight)", "conflate by (flight)", ""),
        ("ON SLOW CONFLATE BY (f.flight, \"carrier\")", "conflate by (f.flight, \"carrier\")", ""),
        ("ON SLOW SAMPLE 8", "sample 8", ""),
        (
            "ON SLOW KEEP WHERE severity >= 3 AND NOT carrier = 'AA'",
            "keep where severity >= 3 AND NOT carrier = 'AA'",
            "",
        ),
        ("MAX RATE 100 PER SECOND", "", "100 per second"),
        ("MAX RATE 100 PER SECOND BY flight, carrier", "", "100 per second by flight, carrier"),
        ("MAX RATE 1 PER SECOND BY flight ON SLOW DROP OLDEST", "drop_oldest", "1 per second by flight"),
        ("ON SLOW KEEP WHERE severity > 1 MAX RATE 9 PER SECOND", "keep where severity > 1", "9 per second"),
        (
            "ON SLOW CONFLATE BY (flight) MAX RATE 9 PER SECOND BY flight",
            "conflate by (flight)",
            "9 per second by flight",
        ),
    ] {
        for query in ["SELECT * FROM s AS f", "SELECT flight FROM s f WHERE severity > 0"] {
            assert_eq!(clauses(&format!("{query} {clause}")), (slow.to_owned(), rate.to_owned()), "{query} {clause}");
        }
    }
    // The words are names wherever a name may stand.
    let select =
        parse_subscription("SELECT max, slow AS rate FROM conflate max WHERE sample = 1 ON SLOW SAMPLE 2").unwrap();
    assert_eq!(select.stream(), "conflate");
    assert_eq!(parse_subscription("SELECT * FROM s MAX RATE 3 PER SECOND").unwrap().stream(), "s");
}

#[test]
fn an_error_says_where_and_what_is_possible() {
    for (clause, place, message) in [
        ("ON", "end", "expected SLOW, but the query ends"),
        ("ON FAST", "FAST", "expected SLOW, found FAST"),
        ("ON SLOW", "end", "expected what a slow subscriber gets, but the query ends"),
        ("ON SLOW DROP NEWEST", "DROP", "expected what a slow subscriber gets, found DROP"),
        ("ON SLOW CONFLATE BY flight", "flight", "expected `(` and the columns of the key, found flight"),
        ("ON SLOW CONFLATE BY ()", ")", "expected the name of a column, found )"),
        ("ON SLOW CONFLATE BY (flight + 1)", "flight", "a key is made of columns, not of expressions"),
        ("ON SLOW CONFLATE BY (flight", "end", "expected `,` and another column, or `)`, but the query ends"),
        ("ON SLOW SAMPLE 0", "0", "expected one record in how many is kept, 1 to 4294967295, found 0"),
        ("ON SLOW SAMPLE x", "x", "expected one record in how many is kept, found x"),
        ("ON SLOW SAMPLE 1.5", "1.5", "expected one record in how many is kept, 1 to 4294967295, found 1.5"),
        ("ON SLOW BLOCK ON SLOW BLOCK", "ON SLOW BLOCK", "ON SLOW comes once"),
        ("ON SLOW BLOCK LIMIT 3", "LIMIT", "LIMIT is not possible"),
        ("MAX RATE 3", "end", "expected PER SECOND, but the query ends"),
        ("MAX RATE 3 PER HOUR", "PER", "expected PER SECOND, found PER"),
        ("MAX RATE 3 PER SECOND BY", "end", "expected the name of a column, but the query ends"),
        ("MAX RATE 3 PER SECOND MAX RATE 3 PER SECOND", "MAX", "MAX RATE comes once"),
        (
            "ON SLOW CONFLATE BY (a) MAX RATE 1 PER SECOND BY b",
            "b",
            "MAX RATE has the key (b), and CONFLATE the key (a)",
        ),
    ] {
        let sql = format!("SELECT * FROM s {clause}");
        let error = parse_subscription(&sql).unwrap_err();
        let column = if place == "end" { sql.len() } else { sql.rfind(place).unwrap() } + 1;
        assert!(error.message.starts_with(message), "{error}");
        assert_eq!(error.position.map(|at| (at.line, at.column as usize)), Some((1, column)), "{error}");
        assert!(error.hint.is_some_and(|hint| hint.contains("possible")), "{clause}");
    }
}

#[test]
fn only_a_subscription_has_these_clauses() {
    let error = parse("SELECT * FROM s WHERE severity > 1 ON SLOW BLOCK").unwrap_err();
    assert!(error.message.contains("belong to a subscription"), "{error}");
    assert_eq!(error.position.map(|at| at.column), Some(36));
    assert!(parse("SELECT * FROM s MAX RATE 1 PER SECOND").is_err());
}

#[test]
fn a_part_that_reads_records_is_planned_like_a_query() {
    let planned = |select: &Select| select.plan(&format()).map_err(|error: QueryError| error.to_string());
    let key = |sql: &str| match parse_subscription(sql).unwrap().on_slow() {
        Some(SlowPolicy::Conflate(key)) => planned(&key.select),
        other => panic!("{other:?}"),
    };
    let reads =
        key("SELECT carrier FROM s AS f WHERE severity > 1 ON SLOW CONFLATE BY (FLIGHT, f.carrier)").unwrap().reads;
    assert_eq!(reads, [0, 1]);
    let error = key("SELECT carrier FROM s ON SLOW CONFLATE BY (flihgt)").unwrap_err();
    assert!(error.contains("line 1, column 44") && error.contains("did you mean `flight`?"), "{error}");
    let select = parse_subscription("SELECT carrier FROM s WHERE severity > 1 ON SLOW KEEP WHERE flight").unwrap();
    let Some(SlowPolicy::Keep(condition)) = select.on_slow() else { panic!("{:?}", select.on_slow()) };
    let error = planned(&condition.select).unwrap_err();
    assert!(error.contains("WHERE needs a condition"), "{error}");
    let selected = planned(&select.selected()).unwrap();
    assert_eq!((selected.filter.len(), selected.output.id()), (1, format().id()));
}

proptest! {
    /// Whatever words are put together, the answer is a query or an error with its place.
    #[test]
    fn words_in_any_order_are_read_or_refused(words in proptest::collection::vec(0..22_usize, 0..14)) {
        const WORDS: [&str; 22] = [
            "ON", "SLOW", "BLOCK", "DROP", "OLDEST", "CONFLATE", "BY", "(", ")", ",", "flight", "SAMPLE", "8", "KEEP", "WHERE",
            "severity >= 3", "DISCONNECT", "MAX", "RATE", "PER", "SECOND", "$p",
        ];
        let words: Vec<&str> = words.into_iter().map(|at| WORDS[at]).collect();
        let sql = format!("SELECT * FROM s {}", words.join(" "));
        match parse_subscription(&sql) {
            Ok(select) => {
                let _ = (select.on_slow().map(|policy| policy.to_string()), select.max_rate(), select.selected());
                let parts = select.on_slow().and_then(|policy| policy.reads().cloned());
                let _ = parts.map(|part| part.plan(&format()).map(|program| program.explain().to_string()));
            }
            Err(error) => prop_assert!(error.position.is_some(), "{}", error),
        }
    }
}
