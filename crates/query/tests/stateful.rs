//! Queries with state, with their plans or refusals beside them: `tests/stateful/plans.txt`.
//! `CROSSDOCK_UPDATE_CASES=1 cargo test -p crossdock-query --test stateful` writes what they give into the file; read the
//! difference before you keep it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::path::Path;

use crossdock_format::Format;
use crossdock_query::{Query, StageOutput, StatefulProgram, StatefulQuery, parse_query};

const FLIGHTS: &str = "carrier char[2]\nflight i32\norigin string\ndest string null\ndep_delay f64 null\ndistance i32\n\
                       time_hour timestamp\n";
const WEATHER: &str = "origin string\ntime_hour timestamp null\ntemp f64 null\nwind_speed f32\n";
const EVENTS: &str =
    "id i64\nkind enum u8 { a = 1, b = 2 }\namount decimal(8, scale 2)\nsize u64 null\nat timestamp\ntags string[]\n";

fn formats() -> [(&'static str, Format); 3] {
    [("flights", FLIGHTS), ("weather", WEATHER), ("events", EVENTS)]
        .map(|(name, schema)| (name, Format::parse_schema(schema).unwrap_or_else(|error| panic!("{name}: {error}"))))
}

fn stateful(sql: &str) -> StatefulQuery {
    match parse_query(sql) {
        Ok(Query::Stateful(query)) => query,
        Ok(Query::Select(_)) => panic!("{sql} has no state"),
        Err(error) => panic!("{error}"),
    }
}

fn planned(sql: &str) -> Result<StatefulProgram, String> {
    let formats = formats();
    let formats: Vec<(&str, &Format)> = formats.iter().map(|(name, format)| (*name, format)).collect();
    let query = match parse_query(sql) {
        Ok(Query::Stateful(query)) => query,
        Ok(Query::Select(_)) => return Err("it has no state".to_owned()),
        Err(error) => return Err(error.to_string()),
    };
    let program = query.plan(&formats, &BTreeMap::new()).map_err(|error| error.to_string())?;
    check(&query, &program, &formats);
    Ok(program)
}

/// The rules that hold for every plan.
fn check(query: &StatefulQuery, program: &StatefulProgram, formats: &[(&str, &Format)]) {
    let outputs = program.stages.iter().enumerate().flat_map(|(index, stage)| {
        assert!(!stage.outputs.is_empty());
        stage.outputs.iter().map(move |output| (index, stage, output))
    });
    let mut between = 0;
    for (index, stage, StageOutput { then, to }) in outputs {
        assert_eq!(then.input.id(), stage.rows.id());
        match *to {
            None => assert_eq!((index, stage.outputs.len()), (program.stages.len() - 1, 1)),
            Some(port) => {
                between += 1;
                assert!(port.stage > index);
                assert_eq!(then.output.id(), program.stages[port.stage].inputs[port.input].row.id());
            }
        }
    }
    let mut ports = 0;
    for stream in query.streams() {
        let (_, format) = formats.iter().find(|(name, _)| *name == stream).unwrap();
        for (port, reader) in query.readers(program, stream, format, &BTreeMap::new()).unwrap() {
            assert_eq!(reader.output.id(), program.stages[port.stage].inputs[port.input].row.id());
            assert_eq!(reader.input.id(), format.id());
            ports += 1;
        }
    }
    let inputs: usize = program.stages.iter().map(|stage| stage.inputs.len()).sum();
    assert_eq!(inputs, ports + between, "each input has rows from one place");
}

fn shown(sql: &str) -> String {
    match planned(sql) {
        Ok(program) => {
            let fields = program.output().fields().iter();
            let fields: Vec<String> = fields
                .map(|field| format!("{} {}{}", field.name, field.ty, if field.nullable { " null" } else { "" }))
                .collect();
            format!("{program}gives {}\n", fields.join(", "))
        }
        Err(error) => format!("{error}\n"),
    }
}

#[test]
fn plans_and_refusals() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stateful/plans.txt");
    let before = std::fs::read_to_string(&path).unwrap();
    let mut after = String::new();
    for line in before.lines() {
        if line.starts_with('#') {
            after.push_str(&format!("{line}\n\n"));
        } else if let Some(sql) = line.strip_prefix("> ") {
            after.push_str(&format!("{line}\n{}\n", shown(sql)));
        }
    }
    if std::env::var_os("CROSSDOCK_UPDATE_CASES").is_some() {
        std::fs::write(&path, after).unwrap();
    } else if let Some((expected, found)) = before.lines().zip(after.lines()).find(|(before, after)| before != after) {
        panic!("CROSSDOCK_UPDATE_CASES=1 accepts this: {expected}\nfound {found}");
    } else {
        assert_eq!(before.len(), after.len());
    }
}

#[test]
fn a_query_without_state_stays_a_select() {
    for sql in [
        "SELECT carrier FROM flights",
        "SELECT * FROM flights f WHERE extract(hour FROM time_hour) > 3 ON SLOW CONFLATE BY (carrier, dest)",
        "SELECT a, b FROM flights MAX RATE 3 PER SECOND BY a, b",
        "SELECT dep_time IS NOT DISTINCT FROM arr_time AS same, carrier, dest FROM flights",
        "SELECT \"group\", \"join\" FROM flights;",
    ] {
        assert!(matches!(parse_query(sql), Ok(Query::Select(_))), "{sql}");
    }
    let _ = stateful("SELECT count(*) FROM flights");
}

/// On a stack as the threads of a daemon have it.
fn on_a_small_stack(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(2 << 20).spawn_scoped(scope, work);
        thread.unwrap().join().unwrap();
    });
}

#[test]
fn queries_that_grow_without_bound_are_refused() {
    let doubled: Vec<String> =
        (1..64).map(|at| format!("a{at} AS (SELECT * FROM a{0} UNION ALL SELECT * FROM a{0})", at - 1)).collect();
    let chained: Vec<String> = (1..400).map(|at| format!("a{at} AS (SELECT flight FROM a{})", at - 1)).collect();
    let nested = |inner: &str, depth: usize| {
        let ends: String = (0..depth).map(|at| format!(") q{at}")).collect();
        format!("SELECT flight FROM {}flights{ends}", format!("(SELECT {inner} AS flight FROM ").repeat(depth))
    };
    let cases = [
        (
            format!("WITH a0 AS (SELECT flight FROM flights), {} SELECT * FROM a63", doubled.join(", ")),
            "more than 48 selects",
        ),
        (
            format!("WITH a0 AS (SELECT flight FROM flights), {} SELECT * FROM a399", chained.join(", ")),
            "more than 48 selects",
        ),
        (nested("flight + flight", 16), "more than 20000 operations"),
        (nested(&vec!["flight"; 40].join(" + "), 8), "within each other"),
        (nested("flight", 600), "more than 16 queries within each other"),
        (
            format!("SELECT count(*) FROM flights WHERE {}1 IN (SELECT 1)", "(".repeat(60)),
            "nests deeper than 48 levels",
        ),
        (
            format!("SELECT 1 FROM flights f0{}", (1..9).map(|at| format!(", flights f{at}")).collect::<String>()),
            "more than 8 streams",
        ),
    ];
    for (sql, expected) in &cases {
        on_a_small_stack(|| {
            let why = planned(sql).map(|_| ()).unwrap_err();
            assert!(why.contains(expected), "{}: {why}", &sql[..60]);
        });
    }
}

/// Any part of a query, and any query with a part missing, is refused in words or planned.
#[test]
fn parts_of_queries_are_refused_in_words() {
    let text = include_str!("stateful/plans.txt");
    let mut count = 0;
    for sql in text.lines().filter_map(|line| line.strip_prefix("> ")) {
        let words: Vec<&str> = sql.split_inclusive(' ').collect();
        for from in 0..words.len() {
            for part in
                [words[..from].concat(), words[from..].concat(), [&words[..from], &words[from + 1..]].concat().concat()]
            {
                count += 1;
                if let Err(why) = planned(&part) {
                    assert!(!why.is_empty());
                }
            }
        }
    }
    assert!(count > 3000, "{count}");
}

/// With null for row errors, times and keys that may fail are still seen as such.
#[test]
fn queries_with_null_for_errors_plan_as_others_do() {
    let formats = formats();
    let formats: Vec<(&str, &Format)> = formats.iter().map(|(name, format)| (*name, format)).collect();
    let over = "SELECT flight, distance / flight AS q, lag(distance / flight, 2, 7 / flight) OVER (PARTITION BY CAST(dest AS i64)) + 1 AS l, \
                max(distance / flight) FILTER (WHERE 1 / flight = 0) OVER (ROWS 3 PRECEDING) AS m FROM flights";
    let sums = "SELECT window_end, count(*) AS n FROM flights GROUP BY TUMBLE(time_hour, INTERVAL '1 hour')";
    for sql in [
        over,
        "SELECT f.flight FROM flights f JOIN weather w ON f.origin = w.origin AND w.time_hour BETWEEN f.time_hour - INTERVAL '1 hour' AND f.time_hour",
        "SELECT f.flight FROM flights f, weather w WHERE f.distance / f.flight = 3 AND f.flight = CAST(w.origin AS i64) AND w.time_hour = f.time_hour + INTERVAL '1 hour'",
        "SELECT f.flight FROM flights f LEFT JOIN weather w ON w.time_hour = f.time_hour - INTERVAL '1 hour' AND f.distance / f.flight > 3",
        "SELECT f.flight FROM flights f ASOF JOIN weather w ON w.time_hour <= f.time_hour - INTERVAL '1 hour' AND f.flight = CAST(w.origin AS i64)",
        &format!(
            "SELECT sum(x.n) FROM ({sums}) x GROUP BY TUMBLE(x.window_end - INTERVAL '1 second', INTERVAL '1 day')"
        ),
        &format!(
            "SELECT sum(x.n) FROM (SELECT window_end - INTERVAL '1 second' AS t, n FROM ({sums}) y) x GROUP BY TUMBLE(t, INTERVAL '1 day')"
        ),
    ] {
        let plan = |query: StatefulQuery| {
            query.plan(&formats, &BTreeMap::new()).unwrap_or_else(|error| panic!("{sql}: {error}"))
        };
        let (with_errors, with_nulls) = (plan(stateful(sql)), plan(stateful(sql).with_null_for_errors()));
        for (one, other) in with_errors.stages.iter().zip(&with_nulls.stages) {
            for (one, other) in one.inputs.iter().zip(&other.inputs) {
                assert_eq!((one.time, one.derived), (other.time, other.derived), "{sql}");
            }
        }
        for source in &with_nulls.sources {
            assert!(!source.program.is_fallible(), "{sql}: {}", source.program.to_sql());
        }
        let mut outputs = with_nulls.stages.iter().flat_map(|stage| &stage.outputs);
        assert!(outputs.all(|output| !output.then.is_fallible()), "{sql}");
    }
}

/// The rows of a window are as late behind a stage that lets rows pass as before it.
#[test]
fn times_behind_stages_that_pass_rows_on_need_a_lateness_where_the_rows_do() {
    let max = "SELECT origin, max(time_hour) AS t FROM flights GROUP BY origin, TUMBLE(time_hour, INTERVAL '1 hour')";
    let end = "SELECT origin, window_end AS t FROM flights GROUP BY origin, TUMBLE(time_hour, INTERVAL '1 hour')";
    let stream = "SELECT origin, time_hour AS t FROM flights";
    let asof = |left: &str| {
        format!(
            "SELECT l.origin, l.t FROM ({left}) l ASOF JOIN weather w ON l.origin = w.origin AND l.t >= w.time_hour"
        )
    };
    for (rows, is_in_order) in [
        (format!("{stream} UNION ALL {stream}"), true),
        (format!("SELECT DISTINCT origin, t FROM ({stream} UNION ALL {stream}) u"), true),
        (format!("{max} UNION ALL {stream}"), false),
        (format!("{stream} UNION ALL {end}"), false),
        (format!("SELECT DISTINCT origin, t FROM ({max}) m"), false),
        (format!("SELECT DISTINCT origin, t FROM (SELECT * FROM ({max}) m UNION ALL {stream}) u"), false),
        (asof(stream), true),
    ] {
        let sql = format!("SELECT count(*) FROM ({rows}) r GROUP BY TUMBLE(t, INTERVAL '1 hour')");
        match planned(&sql) {
            Ok(_) => assert!(is_in_order, "{sql}"),
            Err(error) => assert!(!is_in_order && error.contains("do not come in order"), "{sql}: {error}"),
        }
        planned(&format!("{sql} LATENESS INTERVAL '1 hour'")).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

/// Clauses for a slow subscriber are not the query's own; they may be on a further line, behind characters of several bytes, and on
/// both sides of MAX STATE.
#[test]
fn the_own_text_of_a_query_lacks_the_clauses_of_its_subscription() {
    const OWN: &str = "SELECT k, count(*) AS \"Zahl der Flüge\" FROM A -- ✈\n GROUP BY k";
    for (clauses, behind) in [
        ("", ""),
        (" ON SLOW DROP OLDEST", ""),
        ("\n\tMAX RATE 9 PER SECOND\nON SLOW SAMPLE 8;", ""),
        (" MAX STATE 2 KB", " MAX STATE 2 KB"),
        (" MAX STATE 2 KB ON SLOW BLOCK", " MAX STATE 2 KB"),
        (" ON SLOW BLOCK MAX STATE 2 KB MAX RATE 9 PER SECOND", " MAX STATE 2048 BYTES"),
    ] {
        let Query::Stateful(query) = parse_query(&format!("{OWN}{clauses}")).unwrap() else { panic!("{clauses}") };
        let own = query.own_sql();
        assert_eq!(own, format!("{OWN}{behind}"));
        let Query::Stateful(again) = parse_query(&own).unwrap() else { panic!("{own}") };
        assert_eq!((again.max_state_bytes(), again.has_clauses()), (query.max_state_bytes(), false));
    }
}
