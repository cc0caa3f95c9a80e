//! Queries with state over random rows, against DuckDB: windows, joins, groups.
//!
//! `CROSSDOCK_DUCKDB_PYTHON` names a Python that has the module `duckdb` (`cargo xtask test` makes one); without it the test says so
//! and passes. `CROSSDOCK_DUCKDB_SEED` asks for other rows.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test that fails may panic, and prints its seed

mod stateful_support;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

use crossdock_format::FieldType;
use fastrand::Rng;
use stateful_support::sql::SqlRun;

const STREAMS: [(&str, &str); 2] = [
    (
        "s",
        "ts timestamp\nk string null\nv i64 null\nf f64 null\nt string null\nb bool null\ng f64 null\nd decimal(8, scale 2) null\n",
    ),
    ("q", "ts timestamp\nk string\nw i64\n"),
];

/// Reads the tables `s.csv` and `q.csv` and the queries of `queries.sql`, one a line; writes the rows of each, and a line `--`.
const SCRIPT: &str = r#"
import decimal, duckdb, sys
folder = sys.argv[1]
db = duckdb.connect()
db.execute("SET threads=1")
tables = {"s": {"ts": "BIGINT", "k": "VARCHAR", "v": "BIGINT", "f": "DOUBLE", "t": "VARCHAR", "b": "BOOLEAN", "g": "DOUBLE", "d": "DECIMAL(18,2)"},
          "q": {"ts": "BIGINT", "k": "VARCHAR", "w": "BIGINT"}}
for name, columns in tables.items():
    db.execute(f"CREATE TABLE {name} AS SELECT * FROM read_csv(?, header=false, columns=?, nullstr='null', quote='', escape='', "
               "delim='|', auto_detect=false)", [f"{folder}/{name}.csv", columns])
def shown(value):
    if value is None: return "null"
    if isinstance(value, bool): return "true" if value else "false"
    if isinstance(value, decimal.Decimal): return format(value, "f")
    return str(value)
for query in open(f"{folder}/queries.sql"):
    for row in db.execute(query).fetchall():
        print("|".join(shown(value) for value in row))
    print("--")
"#;

/// Ours, and DuckDB's where it is another. Rows have their keys first, and floats behind them.
const AGGREGATES: &[(&str, &str)] = &[
    ("count(*)", ""),
    ("count(v)", ""),
    ("sum(v)", ""),
    ("avg(v)", ""),
    ("min(v)", ""),
    ("max(v)", ""),
    ("min(t)", ""),
    ("max(t)", ""),
    ("min(f)", ""),
    ("max(d)", ""),
    ("sum(d)", ""),
    ("avg(d)", ""),
    ("sum(f)", ""),
    ("avg(f)", ""),
    ("stddev(f)", ""),
    ("stddev_pop(f)", ""),
    ("var_samp(v)", ""),
    ("var_pop(d)", ""),
    ("first(v)", "arg_min(v, ts) FILTER (WHERE v IS NOT NULL)"),
    ("last(t)", "arg_max(t, ts) FILTER (WHERE t IS NOT NULL)"),
    ("any_value(b)", "arg_min(b, ts) FILTER (WHERE b IS NOT NULL)"),
    ("arg_max(t, f)", "arg_max(t, f) FILTER (WHERE t IS NOT NULL)"),
    ("arg_min(v, f)", "arg_min(v, f) FILTER (WHERE v IS NOT NULL)"),
    ("bool_and(b)", ""),
    ("bool_or(b)", ""),
    ("string_agg(t, ';')", "string_agg(t, ';' ORDER BY ts)"),
    ("string_agg(DISTINCT t, ';')", "string_agg(DISTINCT t, ';' ORDER BY t)"),
    ("count(DISTINCT v)", ""),
    ("sum(DISTINCT v)", ""),
    ("avg(DISTINCT d)", ""),
    ("stddev_pop(DISTINCT v)", ""),
    ("count(*) FILTER (WHERE v > 0)", ""),
    ("sum(v) FILTER (WHERE b)", ""),
    ("max(v + 1)", ""),
];

/// A query, and which of our rows count.
struct Case {
    ours: String,
    theirs: String,
    /// Of the rows with equal first columns, the last one: each row brings its group's.
    of_last: bool,
    /// Rows count in the order in which they come, so that no other is tried.
    by_arrival: bool,
}

/// The lateness of all queries, in seconds, and how far rows may be out of order.
const LATENESS: i64 = 20;

fn windows() -> Vec<Case> {
    let ours: Vec<&str> = AGGREGATES.iter().map(|(ours, _)| *ours).collect();
    let theirs = AGGREGATES.iter().map(|(ours, theirs)| if theirs.is_empty() { *ours } else { *theirs });
    let (ours, theirs) = (ours.join(", "), theirs.collect::<Vec<_>>().join(", "));
    let mut cases = Vec::new();
    let mut case = |window: String, rows: String, start: &str, length: &str| {
        for (key, by) in [("k, ", "k, "), ("", "")] {
            let ours = format!("SELECT {key}window_start, window_end, {ours} FROM s GROUP BY {by}{window}");
            let theirs = format!(
                "SELECT {key}{start} AS ws, {length} AS we, {theirs} FROM {} GROUP BY {by}{}",
                rows.replace("KEY", if key.is_empty() { "" } else { "PARTITION BY k" }),
                if rows.contains("session") { "session" } else { "ws" },
            );
            cases.push(Case { ours, theirs, of_last: false, by_arrival: false });
        }
    };
    for size in [1, 7] {
        let ns = size * 1_000_000_000_i64;
        let start = format!("(ts // {ns}) * {ns}");
        case(format!("TUMBLE(ts, INTERVAL '{size} seconds')"), "s".to_owned(), &start, &format!("{start} + {ns}"));
    }
    for (slide, size) in [(2, 6), (5, 10), (1, 9)] {
        let (step, ns) = (slide * 1_000_000_000_i64, size * 1_000_000_000_i64);
        let starts = format!("(SELECT unnest(generate_series(-{ns}, 400000000000, {step})) AS ws)");
        case(
            format!("HOP(ts, INTERVAL '{slide} seconds', INTERVAL '{size} seconds')"),
            format!("s JOIN {starts} ON ts >= ws AND ts < ws + {ns}"),
            "ws",
            &format!("ws + {ns}"),
        );
    }
    for gap in [1, 4] {
        let ns = gap * 1_000_000_000_i64;
        let marked = format!("(SELECT *, ts - lag(ts) OVER (KEY ORDER BY ts) >= {ns} AS is_first FROM s)");
        case(
            format!("SESSION(ts, INTERVAL '{gap} seconds')"),
            format!("(SELECT *, count(*) FILTER (WHERE is_first) OVER (KEY ORDER BY ts) AS session FROM {marked})"),
            "min(ts)",
            &format!("max(ts) + {ns}"),
        );
    }
    cases
}

fn joins() -> Vec<Case> {
    let second = "INTERVAL '1 second'";
    let mut cases = Vec::new();
    for kind in ["", "LEFT ", "FULL "] {
        for (low, high, keys, more) in [
            ("-3", "2", "s.k = q.k AND ", ""),
            ("0", "0", "s.k = q.k AND ", ""),
            ("1", "4", "s.k = q.k AND ", " AND s.v < q.w"),
            ("-1", "1", "s.v = q.w AND s.k = q.k AND ", ""),
            ("-2", "0", "", ""),
        ] {
            // DuckDB has no FULL JOIN without equal columns.
            let keys = if keys.is_empty() { if kind == "FULL " { "1 = 1 AND " } else { "" } } else { keys };
            let select = format!("SELECT s.ts, q.ts, s.k, q.k, s.v, q.w FROM s {kind}JOIN q ON {keys}");
            let ours_keys = select.replace("1 = 1 AND ", "");
            let ours = format!("{ours_keys}q.ts BETWEEN s.ts + {low} * {second} AND s.ts + {high} * {second}{more}");
            let ours = ours.replace(&format!("{low} * {second}"), &format!("INTERVAL '{low} seconds'"));
            let ours = ours.replace(&format!("{high} * {second}"), &format!("INTERVAL '{high} seconds'"));
            let theirs = format!("{select}q.ts BETWEEN s.ts + {low}000000000 AND s.ts + {high}000000000{more}");
            cases.push(Case { ours, theirs, of_last: false, by_arrival: false });
        }
    }
    for kind in ["", "LEFT "] {
        for op in [">=", ">"] {
            let sql =
                format!("SELECT s.ts, q.ts, s.k, s.v, q.w FROM s ASOF {kind}JOIN q ON s.k = q.k AND s.ts {op} q.ts");
            cases.push(Case { ours: sql.clone(), theirs: sql, of_last: false, by_arrival: false });
        }
    }
    cases
}

fn others() -> Vec<Case> {
    let alike = |sql: &str| Case { ours: sql.to_owned(), theirs: sql.to_owned(), of_last: false, by_arrival: false };
    let tumbled = "FROM s GROUP BY k, TUMBLE(ts, INTERVAL '3 seconds')";
    let bucket = |column: &str, ns: i64| format!("({column} // {ns}) * {ns}");
    let inner =
        format!("(SELECT k, {} AS ws, count(*) AS n, sum(v) AS sv FROM s GROUP BY k, ws)", bucket("ts", 3_000_000_000));
    let joined = "FROM s JOIN q ON s.k = q.k AND q.ts BETWEEN s.ts - INTERVAL '2 seconds' AND s.ts";
    let their_join = "FROM s JOIN q ON s.k = q.k AND q.ts BETWEEN s.ts - 2000000000 AND s.ts";
    let asof = "FROM s ASOF LEFT JOIN q ON s.k = q.k AND s.ts >= q.ts";
    let case = |ours: String, theirs: String| Case { ours, theirs, of_last: false, by_arrival: false };
    let mut cases = vec![
        alike("SELECT DISTINCT k, v FROM s"),
        alike("SELECT DISTINCT t, b, d FROM s WHERE v > 0"),
        alike("SELECT DISTINCT coalesce(k, 'x'), v % 3 FROM s"),
        alike("SELECT ts, k, v FROM s WHERE v > 0 UNION ALL SELECT ts, k, w FROM q"),
        Case {
            of_last: true,
            ..alike("SELECT k, count(*), sum(v), min(f), max(t), avg(d), count(DISTINCT v) FROM s GROUP BY k")
        },
        Case { of_last: true, ..alike("SELECT b, v - 1, count(*), stddev(f) FROM s GROUP BY b, v - 1") },
        case(
            format!("SELECT k, window_start, count(*) {tumbled} HAVING count(*) > 1 AND sum(v) > 0"),
            format!(
                "SELECT k, {} AS ws, count(*) FROM s GROUP BY k, ws HAVING count(*) > 1 AND sum(v) > 0",
                bucket("ts", 3_000_000_000)
            ),
        ),
    ];
    for (joined, theirs, time) in [
        (joined, their_join, "s.ts"),
        (joined, their_join, "q.ts"),
        (asof, asof, "s.ts"),
        ("FROM s FULL JOIN q ON s.k = q.k AND s.ts = q.ts", "FROM s FULL JOIN q ON s.k = q.k AND s.ts = q.ts", "q.ts"),
    ] {
        cases.push(case(
            format!(
                "SELECT window_start, count(*), sum(w), max(s.v) {joined} GROUP BY TUMBLE({time}, INTERVAL '5 seconds')"
            ),
            format!(
                "SELECT {} AS ws, count(*), sum(w), max(s.v) {theirs} WHERE {time} IS NOT NULL GROUP BY ws",
                bucket(time, 5_000_000_000)
            ),
        ));
    }
    for (time, at) in [("x.window_start", "ws"), ("x.window_end", "ws + 3000000000"), ("x.most", "ws + 3000000000")] {
        let most = if time == "x.most" { "window_end - INTERVAL '0 seconds'" } else { "max(ts)" };
        cases.push(case(
            format!(
                "SELECT window_start, count(*), sum(n), sum(sv) FROM (SELECT k, window_start, window_end, {most} AS most, count(*) AS \
                 n, sum(v) AS sv {tumbled} LATE) x GROUP BY TUMBLE({time}, INTERVAL '9 seconds')"
            ),
            format!("SELECT {} AS o, count(*), sum(n), sum(sv) FROM {inner} GROUP BY o", bucket(&format!("({at})"), 9_000_000_000)),
        ));
    }
    cases
}

/// Calls with OVER. `WINDOW` stands for the rest of the window, in DuckDB with the order of arrival in it.
const OVER: &[&str] = &[
    "count(*) OVER (WINDOW)",
    "count(v) OVER (WINDOW)",
    "sum(v) OVER (WINDOW)",
    "avg(v) OVER (WINDOW)",
    "min(v) OVER (WINDOW)",
    "max(v) OVER (WINDOW)",
    "min(t) OVER (WINDOW)",
    "max(t) OVER (WINDOW)",
    "min(f) OVER (WINDOW)",
    "max(d) OVER (WINDOW)",
    "sum(d) OVER (WINDOW)",
    "avg(d) OVER (WINDOW)",
    "sum(f) OVER (WINDOW)",
    "avg(f) OVER (WINDOW)",
    "stddev(f) OVER (WINDOW)",
    "stddev_pop(f) OVER (WINDOW)",
    "var_samp(v) OVER (WINDOW)",
    "var_pop(d) OVER (WINDOW)",
    "sum(g) OVER (WINDOW)",
    "avg(g) OVER (WINDOW)",
    "min(g) OVER (WINDOW)",
    "max(g) OVER (WINDOW)",
    "bool_and(b) OVER (WINDOW)",
    "bool_or(b) OVER (WINDOW)",
    "max(v + 1) OVER (WINDOW) - v",
    "count(*) FILTER (WHERE v > 0) OVER (WINDOW)",
    "sum(v) FILTER (WHERE b) OVER (WINDOW)",
    "sum(f) FILTER (WHERE b) OVER (WINDOW)",
    "arg_max(t, f) FILTER (WHERE t IS NOT NULL) OVER (WINDOW)",
    "arg_min(v, f) FILTER (WHERE v IS NOT NULL) OVER (WINDOW)",
    "first_value(v) OVER (WINDOW)",
    "first_value(t) OVER (WINDOW)",
    "last_value(t) OVER (WINDOW)",
    "last_value(d) OVER (WINDOW)",
];

/// Those whose window has no frame.
const WITHOUT_FRAME: &str = "row_number() OVER (WINDOW), lag(v) OVER (WINDOW), lag(t, 2) OVER (WINDOW), lag(f, 3, 0.5) OVER (WINDOW), \
     lag(k, 2, 'none') OVER (WINDOW), lag(d, 1, 1.5) OVER (WINDOW), lag(v, 7, v) OVER (WINDOW), lag(g, 0) OVER (WINDOW), \
     v - lag(v, 1, 0) OVER (WINDOW), lag(t) OVER (PARTITION BY b, v % 3 ORDER)";

fn over() -> Vec<Case> {
    let by_arrival = |sql: &str, order: &str| {
        let ours = sql.replace(" ORDER", "").replace("ORDER", "");
        Case { ours, theirs: sql.replace("ORDER", &format!("ORDER BY {order}")), of_last: false, by_arrival: true }
    };
    let mut cases = Vec::new();
    for partition in ["PARTITION BY k", "PARTITION BY b, v % 3", ""] {
        let window = format!("{partition} ORDER");
        cases.push(by_arrival(&format!("SELECT ts, k, {} FROM s", WITHOUT_FRAME.replace("WINDOW", &window)), "ts"));
        for frame in [
            "ROWS 3 PRECEDING",
            "ROWS BETWEEN 5 PRECEDING AND 2 PRECEDING",
            "ROWS BETWEEN 1 PRECEDING AND 1 PRECEDING",
            "ROWS UNBOUNDED PRECEDING",
            "ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING",
            "ROWS 0 PRECEDING",
            "ROWS BETWEEN 40 PRECEDING AND CURRENT ROW",
        ] {
            let calls = OVER.join(", ").replace("WINDOW", &format!("{window} {frame}"));
            cases.push(by_arrival(&format!("SELECT ts, {calls} FROM s WHERE v IS NULL OR v <> 2"), "ts"));
        }
    }
    cases.extend(
        [
            "SELECT ts, k, string_agg(t, ';') OVER w, count(*) OVER w, sum(v) OVER all_rows, lag(k) OVER w FROM s \
             WINDOW w AS (PARTITION BY k ORDER ROWS 4 PRECEDING), all_rows AS (ORDER ROWS 9 PRECEDING)",
            "SELECT * FROM (SELECT ts, k, v - lag(v) OVER (PARTITION BY k ORDER) AS d FROM s) x WHERE d > 0",
        ]
        .map(|sql| by_arrival(sql, "ts")),
    );
    cases.push(by_arrival(
        "SELECT s.ts, q.ts, s.k, sum(w) OVER (PARTITION BY s.k ORDER ROWS 4 PRECEDING), lag(s.v + w) OVER (ORDER) \
         FROM s ASOF LEFT JOIN q ON s.k = q.k AND s.ts >= q.ts",
        "s.ts",
    ));
    let ns = 3_000_000_000_i64;
    let change = "n - lag(n) OVER (PARTITION BY k ORDER), avg(n) OVER (PARTITION BY k ORDER ROWS 2 PRECEDING)";
    cases.push(Case {
        ours: format!(
            "SELECT k, window_start, n, {} FROM (SELECT k, window_start, count(*) AS n FROM s GROUP BY k, \
             TUMBLE(ts, INTERVAL '3 seconds') LATE) x",
            change.replace(" ORDER", "")
        ),
        theirs: format!(
            "SELECT k, ws, n, {} FROM (SELECT k, (ts // {ns}) * {ns} AS ws, count(*) AS n FROM s GROUP BY k, ws)",
            change.replace("ORDER", "ORDER BY ws")
        ),
        of_last: false,
        by_arrival: false,
    });
    cases
}

/// Random rows of both streams, by time; times within a stream differ.
fn rows(random: &mut Rng, count: usize) -> [BTreeMap<i64, String>; 2] {
    let mut times = |most: usize| {
        let mut times = BTreeSet::new();
        while times.len() < most {
            // Many at whole seconds: at the ends of windows, and at the times of the other stream.
            let second = random.i64(0..150) * 1_000_000_000;
            times.insert(if random.bool() { second } else { second + random.i64(0..1_000_000_000) });
        }
        times
    };
    let (s, q) = (times(count), times(count / 2));
    let mut or_null =
        |value: &dyn Fn(&mut Rng) -> String| if random.u8(0..6) == 0 { "null".to_owned() } else { value(random) };
    let key = |random: &mut Rng| ["a", "b", "a key beyond sixteen bytes", "x y"][random.usize(0..4)].to_owned();
    let s = s.into_iter().map(|ts| {
        let k = or_null(&key);
        let v = or_null(&|random| random.i64(-5..9).to_string());
        let f = or_null(&|random| format!("{:?}", (random.f64() - 0.5) * 10f64.powi(random.i32(-3..6))));
        let t = or_null(&|random| ["x", "yy", "zebra", "y", "ab", ""][random.usize(0..6)].to_owned());
        let b = or_null(&|random| random.bool().to_string());
        let g = or_null(&|random| ["nan", "inf", "-0.0", "0.0", "1.5", "-2.25"][random.usize(0..6)].to_owned());
        let d = or_null(&|random| random.i64(-9999..9999).to_string());
        (ts, format!("{ts}|{k}|{v}|{f}|{t}|{b}|{g}|{d}"))
    });
    let s = s.collect();
    let q = q.into_iter().map(|ts| (ts, format!("{ts}|{}|{}", key(random), random.i64(-5..9)))).collect();
    [s, q]
}

/// The rows of a query of ours over both streams, which run beside each other; out of order by less than the lateness if there is one.
fn ours(sql: &str, [s, q]: &[BTreeMap<i64, String>; 2], random: Option<&mut Rng>) -> Vec<String> {
    let mut run = SqlRun::new(sql, &STREAMS);
    let all = s.iter().map(|(ts, row)| (*ts, "s", row)).chain(q.iter().map(|(ts, row)| (*ts, "q", row)));
    let mut all: Vec<(i64, &str, &String)> = all.collect();
    if let Some(random) = random {
        all.iter_mut().for_each(|(at, ..)| *at += random.i64(0..LATENESS * 1_000_000_000));
    }
    all.sort();
    let is_read = |stream: &str| sql.contains(&format!("FROM {stream}")) || sql.contains(&format!("JOIN {stream}"));
    all.iter().filter(|(_, stream, _)| is_read(stream)).for_each(|(_, stream, row)| run.feed(stream, &[row]));
    for at in [10_000_000_000_000_i64, 20_000_000_000_000] {
        for (stream, rest) in [("s", "flush|9000000000001|0|flush|true|0|0"), ("q", "flush|0")] {
            if is_read(stream) {
                run.feed(stream, &[format!("{at}|{rest}")]);
            }
        }
    }
    run.finish();
    assert_eq!((run.counters().late, run.counters().stage_errors, run.counters().row_errors), (0, 0, 0), "{sql}");
    let types: Vec<FieldType> = run.output().fields().iter().map(|field| field.ty).collect();
    let shown = |row: &String| {
        let columns = row.split('|').zip(&types).map(|(column, ty)| match ty {
            FieldType::Decimal { scale, .. } if column != "null" => {
                (column.parse::<i128>().unwrap() as f64 / 10f64.powi((*scale).into())).to_string()
            }
            _ => column.to_owned(),
        });
        columns.collect::<Vec<_>>().join("|")
    };
    let is_flush = |row: &&String| {
        let mut first = row.split('|').take(3).filter_map(|column| column.parse::<i64>().ok());
        row.contains("flush") || first.any(|time| time >= 9_000_000_000_000)
    };
    run.rows.iter().filter(|row| !is_flush(row)).map(shown).collect()
}

/// For each query, the rows that DuckDB gives.
fn theirs(python: &str, [s, q]: &[BTreeMap<i64, String>; 2], queries: &[&str], name: &str) -> Vec<Vec<String>> {
    let folder = std::env::temp_dir().join(format!("crossdock-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let decimals = |row: &String| {
        let (rest, d) = row.rsplit_once('|').unwrap();
        let d = d.parse::<i64>().map_or(d.to_owned(), |d| format!("{:.2}", d as f64 / 100.0));
        format!("{rest}|{d}\n")
    };
    std::fs::write(folder.join("s.csv"), s.values().map(decimals).collect::<String>()).unwrap();
    std::fs::write(folder.join("q.csv"), q.values().map(|row| format!("{row}\n")).collect::<String>()).unwrap();
    std::fs::write(folder.join("queries.sql"), queries.join("\n")).unwrap();
    let output = Command::new(python).args(["-c", SCRIPT]).arg(&folder).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "the script failed");
    std::fs::remove_dir_all(&folder).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut answers: Vec<Vec<String>> =
        text.split("--\n").map(|rows| rows.lines().map(str::to_owned).collect()).collect();
    answers.pop();
    assert_eq!(answers.len(), queries.len());
    answers
}

fn is_same(ours: &str, theirs: &str) -> bool {
    let mut columns = ours.split('|').zip(theirs.split('|'));
    ours.split('|').count() == theirs.split('|').count()
        && columns.all(|(ours, theirs)| {
            let near =
                |a: f64, b: f64| (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs()));
            ours == theirs || matches!((ours.parse(), theirs.parse()), (Ok(a), Ok(b)) if near(a, b))
        })
}

/// The last row for each value of the first `keys` columns.
fn last_of_each(rows: Vec<String>, keys: usize) -> Vec<String> {
    let key = |row: &String| row.split('|').take(keys).map(str::to_owned).collect::<Vec<_>>();
    rows.into_iter().map(|row| (key(&row), row)).collect::<BTreeMap<_, _>>().into_values().collect()
}

fn compare(name: &str, cases: &[Case]) {
    let Ok(python) = std::env::var("CROSSDOCK_DUCKDB_PYTHON") else {
        println!("skipped: CROSSDOCK_DUCKDB_PYTHON does not name a Python with the module duckdb");
        return;
    };
    let seed = std::env::var("CROSSDOCK_DUCKDB_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(2013);
    println!("CROSSDOCK_DUCKDB_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    for count in [12, 60, 400] {
        let data = rows(&mut random, count);
        let queries: Vec<&str> = cases.iter().map(|case| case.theirs.as_str()).collect();
        let answers = theirs(&python, &data, &queries, name);
        for (case, mut wanted) in cases.iter().zip(answers) {
            wanted.sort();
            let late = format!("LATENESS INTERVAL '{LATENESS} seconds'");
            let sql = case.ours.replace("LATE)", &format!("{late})"));
            let sql = if sql.contains("UNION") || sql.contains("DISTINCT k") || case.of_last || case.by_arrival {
                sql
            } else {
                format!("{sql} {late}")
            };
            let is_any_order = !case.of_last && !case.by_arrival;
            for is_shuffled in [false, true] {
                let mut found = ours(&sql, &data, (is_shuffled && is_any_order).then_some(&mut random));
                if case.of_last {
                    let keys = sql.split("GROUP BY").nth(1).unwrap().split(',').count();
                    found = last_of_each(found, keys);
                }
                found.sort();
                let differs = found.iter().zip(&wanted).find(|(ours, theirs)| !is_same(ours, theirs));
                assert!(
                    differs.is_none() && found.len() == wanted.len(),
                    "seed {seed}, {count} rows, shuffled: {is_shuffled}\n{sql}\n{}\n{} rows and {}: {differs:#?}",
                    case.theirs,
                    found.len(),
                    wanted.len()
                );
            }
        }
    }
}

#[test]
fn windows_give_what_duckdb_gives() {
    compare("windows", &windows());
}

#[test]
fn joins_give_what_duckdb_gives() {
    compare("joins", &joins());
}

#[test]
fn groups_and_steps_behind_each_other_give_what_duckdb_gives() {
    compare("groups", &others());
}

#[test]
fn rows_before_give_what_duckdb_gives() {
    compare("over", &over());
}
