//! Queries with state against computations over the whole history.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod stateful_support;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crossdock_engine::{Handler, StatefulHandler};
use crossdock_format::{FieldType, Format};
use crossdock_query::{Aggregate, AggregateFunction as F, Aggregation, Operator, StatefulProgram, Window};
use proptest::prelude::*;
use stateful_support::{Event, QueryRun, events, flush, one_stage, shuffled};

/// Every aggregate but the estimates, over `events`.
fn aggregates() -> Vec<Aggregate> {
    let of = |function, arguments: &[usize], ty| Aggregate {
        function,
        arguments: arguments.to_vec(),
        distinct: false,
        filter: None,
        ty,
    };
    let decimal = FieldType::Decimal { bytes: 16, scale: 16 };
    vec![
        of(F::Count, &[], FieldType::I64),
        of(F::Count, &[2], FieldType::I64),
        of(F::Sum, &[2], FieldType::I64),
        of(F::Avg, &[2], decimal),
        of(F::Min, &[2], FieldType::I64),
        of(F::Max, &[3], FieldType::String),
        of(F::First, &[3], FieldType::String),
        of(F::Last, &[2], FieldType::I64),
        of(F::ArgMax, &[3, 2], FieldType::String),
        of(F::ArgMin, &[2, 3], FieldType::I64),
        Aggregate { distinct: true, ..of(F::Count, &[3], FieldType::I64) },
        Aggregate { distinct: true, ..of(F::Sum, &[2], FieldType::I64) },
        Aggregate { filter: Some(4), ..of(F::Count, &[], FieldType::I64) },
        of(F::BoolAnd, &[4], FieldType::Bool),
        of(F::BoolOr, &[4], FieldType::Bool),
        of(F::StringAgg, &[3], FieldType::String),
    ]
}

const COLUMNS: &str = "n i64\nnv i64\nsum i64 null\navg decimal(16, scale 16) null\nleast i64 null\nmost string null\n\
    first string null\nlast i64 null\nargmax string null\nargmin i64 null\nnd i64\nsumd i64 null\nnf i64\nall bool null\n\
    any bool null\ntexts string null\n";

fn windowed(window: Window, lateness_ns: u64) -> StatefulProgram {
    let windows = if window == Window::Running { "" } else { "window_start timestamp\nwindow_end timestamp\n" };
    let rows = Format::parse_schema(&format!("k string null\n{windows}{COLUMNS}")).unwrap();
    let (corrects, gives_changes) = (false, false);
    let aggregation = Aggregation { keys: vec![1], window, aggregates: aggregates(), corrects, gives_changes };
    one_stage(Operator::Aggregate(aggregation), rows, lateness_ns)
}

/// The aggregates of some rows, as a row shows them.
fn computed(rows: &[&Event]) -> String {
    let values: Vec<i64> = rows.iter().filter_map(|row| row.v).collect();
    let mut in_time: Vec<&&Event> = rows.iter().collect();
    in_time.sort_by(|a, b| (a.ts, &a.s).cmp(&(b.ts, &b.s)));
    let texts: Vec<&str> = in_time.iter().map(|row| row.s.as_str()).collect();
    let last = rows.iter().filter(|row| row.v.is_some()).max_by_key(|row| (row.ts, row.v)).and_then(|row| row.v);
    let best = |sign: i64| {
        rows.iter().filter(|row| row.v.is_some()).max_by(|a, b| {
            let key = |row: &Event| row.v.unwrap() * sign;
            key(a).cmp(&key(b)).then_with(|| (b.ts, &b.s).cmp(&(a.ts, &a.s)))
        })
    };
    let argmin = rows.iter().filter(|row| row.v.is_some()).min_by_key(|row| (&row.s, row.ts, row.v));
    let mut distinct = values.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let mut different = texts.clone();
    different.sort_unstable();
    different.dedup();
    let opt = |value: Option<String>| value.unwrap_or("null".to_owned());
    let sum: i64 = values.iter().sum();
    let mean = (!values.is_empty()).then(|| {
        let scaled = i128::from(sum) * 10i128.pow(16);
        let n = values.len() as i128;
        let (q, r) = (scaled / n, scaled % n);
        (q + if 2 * r.abs() >= n { r.signum() } else { 0 }).to_string()
    });
    let flags: Vec<bool> = rows.iter().filter_map(|row| row.b).collect();
    [
        rows.len().to_string(),
        values.len().to_string(),
        opt((!values.is_empty()).then(|| sum.to_string())),
        opt(mean),
        opt(values.iter().min().map(ToString::to_string)),
        opt(different.last().map(ToString::to_string)),
        opt(texts.first().map(ToString::to_string)),
        opt(last.map(|v| v.to_string())),
        opt(best(1).map(|row| row.s.clone())),
        opt(argmin.map(|row| row.v.unwrap().to_string())),
        different.len().to_string(),
        opt((!distinct.is_empty()).then(|| distinct.iter().sum::<i64>().to_string())),
        rows.iter().filter(|row| row.b == Some(true)).count().to_string(),
        opt((!flags.is_empty()).then(|| flags.iter().all(|b| *b).to_string())),
        opt((!flags.is_empty()).then(|| flags.iter().any(|b| *b).to_string())),
        texts.concat(),
    ]
    .join("|")
}

/// The windows of all rows, by end and key, with the rows in them.
fn windows(window: Window, rows: &[Event]) -> Vec<String> {
    let mut groups: BTreeMap<(i64, Option<String>, i64), Vec<&Event>> = BTreeMap::new();
    match window {
        Window::Running => {}
        Window::Tumble { size_ns } | Window::Hop { size_ns, .. } => {
            let size = size_ns as i64;
            let slide = if let Window::Hop { slide_ns, .. } = window { slide_ns as i64 } else { size };
            for row in rows {
                let mut start = row.ts.div_euclid(slide) * slide;
                while start + size > row.ts {
                    groups.entry((start + size, row.k.clone(), start)).or_default().push(row);
                    start -= slide;
                }
            }
        }
        Window::Session { gap_ns } => {
            let gap = gap_ns as i64;
            let mut by_key: BTreeMap<Option<String>, Vec<&Event>> = BTreeMap::new();
            rows.iter().for_each(|row| by_key.entry(row.k.clone()).or_default().push(row));
            for (key, mut rows) in by_key {
                rows.sort_by_key(|row| row.ts);
                let mut session: Vec<&Event> = Vec::new();
                for row in rows {
                    if session.last().is_some_and(|last| last.ts + gap <= row.ts) {
                        groups.insert(
                            (session.last().unwrap().ts + gap, key.clone(), session[0].ts),
                            session.split_off(0),
                        );
                    }
                    session.push(row);
                }
                groups.insert((session.last().unwrap().ts + gap, key, session[0].ts), session);
            }
        }
    }
    let line = |((end, key, start), rows): (&(i64, Option<String>, i64), &Vec<&Event>)| {
        format!("{}|{start}|{end}|{}", key.clone().unwrap_or("null".to_owned()), computed(rows))
    };
    groups.iter().map(line).collect()
}

fn window() -> impl Strategy<Value = Window> {
    prop_oneof![
        (1..30u64).prop_map(|size_ns| Window::Tumble { size_ns }),
        (1..12u64, 1..6u64).prop_map(|(slide_ns, times)| Window::Hop { size_ns: slide_ns * times, slide_ns }),
        (1..12u64).prop_map(|gap_ns| Window::Session { gap_ns }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// In any order within the lateness, in any batches, through any number of handlers: the windows over the whole history, in
    /// order of their ends.
    #[test]
    fn windows_are_those_of_the_whole_history(
        window in window(), rows in events(60), seed in any::<u64>(), cut in 1..20usize,
    ) {
        let lateness = 25;
        let program = Arc::new(windowed(window, lateness));
        let mut rows_in = shuffled(&rows, lateness as i64, seed);
        rows_in.push(flush());
        let wanted = windows(window, &rows);
        for (handlers, cut) in [(1, usize::MAX), (3, cut)] {
            let mut run = QueryRun::new(&program, handlers);
            rows_in.chunks(cut.min(rows_in.len())).for_each(|rows| run.feed(0, rows));
            prop_assert_eq!(run.counters().late, 0);
            prop_assert_eq!(run.counters().taken, rows_in.len() as u64);
            let made: Vec<String> = run.rows.iter().filter(|row| !row.starts_with("flush")).cloned().collect();
            let end = |row: &String| row.split('|').nth(2).map(|end| end.parse::<i64>().unwrap());
            prop_assert!(made.iter().is_sorted_by_key(end), "{:?}", made);
            let sorted = |rows: &[String]| rows.iter().cloned().collect::<BTreeSet<String>>();
            prop_assert_eq!((sorted(&made), made.len()), (sorted(&wanted), wanted.len()));
        }
    }

    /// Each row brings its group's present row.
    #[test]
    fn running_groups_are_those_of_the_rows_so_far(rows in events(40)) {
        let mut run = QueryRun::new(&Arc::new(windowed(Window::Running, 0)), 1);
        // By arrival, so the times are made to rise with it.
        let rows: Vec<Event> = rows.into_iter().enumerate().map(|(at, row)| Event { ts: at as i64, ..row }).collect();
        for (at, row) in rows.iter().enumerate() {
            run.feed(0, std::slice::from_ref(row));
            let group: Vec<&Event> = rows[..=at].iter().filter(|other| other.k == row.k).collect();
            let wanted = format!("{}|{}", row.k.clone().unwrap_or("null".to_owned()), computed(&group));
            prop_assert_eq!(run.rows.last(), Some(&wanted));
        }
    }

    /// Whatever goes, the state is never more than its bound, and what is still there is right as far as it goes.
    #[test]
    fn the_bound_is_never_passed(window in window(), rows in events(200), bound in 0..6000usize, is_running in any::<bool>()) {
        let window = if is_running { Window::Running } else { window };
        let program = StatefulProgram { max_state_bytes: bound, ..windowed(window, 40) };
        let mut run = QueryRun::new(&Arc::new(program), 1);
        for row in &rows {
            run.feed(0, std::slice::from_ref(row));
            prop_assert!(run.state_bytes() <= bound, "{} of {bound}", run.state_bytes());
        }
        run.feed(0, &[flush()]);
        prop_assert!(run.state_bytes() <= bound);
        let mut all = QueryRun::new(&Arc::new(windowed(window, 40)), 1);
        rows.iter().for_each(|row| all.feed(0, std::slice::from_ref(row)));
        all.feed(0, &[flush()]);
        if run.counters().forgotten == 0 {
            prop_assert_eq!(&run.rows, &all.rows);
        }
        prop_assert_eq!(all.counters().forgotten, 0);
    }
}

#[test]
fn late_rows_are_counted_and_change_nothing() {
    let mut run = QueryRun::new(&Arc::new(windowed(Window::Tumble { size_ns: 10 }, 5)), 1);
    let at = |ts| Event { ts, k: Some("a".to_owned()), v: Some(ts), s: "x".to_owned(), b: None };
    run.feed(0, &[at(3), at(14), at(9), at(15), at(9), at(14)]);
    assert_eq!(run.counters().late, 1, "the second 9 comes when 10 is past");
    assert_eq!(run.rows.len(), 1);
    assert!(run.rows[0].starts_with("a|0|10|2|2|12|"), "{}", run.rows[0]);
    let counters = run.counters();
    assert_eq!((counters.records_in, counters.taken, counters.passed), (6, 6, 0));
    assert_eq!(counters.filtered_since(&crossdock_engine::HandlerCounters::default()), 0);
}

#[test]
fn windows_of_arrival_close_by_the_clock() {
    let mut program = windowed(Window::Hop { size_ns: 20, slide_ns: 10 }, 0);
    program.stages[0].inputs[0].time = None;
    let mut run = QueryRun::new(&Arc::new(program), 1);
    assert!(run.handler().wants_time() && run.handler().due_ns().is_none());
    let row = |s: &str| Event { ts: -7, k: Some("a".to_owned()), v: Some(1), s: s.to_owned(), b: None };
    assert_eq!(run.advance(5), 0);
    run.feed(0, &[row("x")]);
    assert_eq!(run.handler().due_ns(), Some(10));
    assert_eq!(run.advance(9), 0);
    run.feed(0, &[row("b")]);
    assert_eq!((run.advance(12), run.handler().due_ns()), (1, Some(20)));
    run.feed(0, &[row("c")]);
    // A clock that goes back stands still.
    assert_eq!(run.advance(3), 0);
    run.feed(0, &[row("a")]);
    assert_eq!((run.advance(1000), run.handler().due_ns()), (2, None));
    let starts: Vec<String> = run.rows.iter().map(|row| row.split('|').take(4).collect::<Vec<_>>().join("|")).collect();
    assert_eq!(starts, ["a|-10|10|2", "a|0|20|4", "a|10|30|2"]);
    assert!(run.rows[1].ends_with("|xbca"), "in order of arrival: {}", run.rows[1]);
    assert_eq!(run.state_bytes(), 0);
}

#[test]
fn a_state_goes_to_handlers_of_its_kind_only() {
    let make = |window| {
        let program = Arc::new(windowed(window, 0));
        let readers = QueryRun::readers(&program, 0);
        StatefulHandler::new(program, readers).unwrap()
    };
    let (mut one, mut other) = (make(Window::Tumble { size_ns: 10 }), make(Window::Tumble { size_ns: 20 }));
    assert!(one.shares_state());
    let state = one.hand_over().unwrap();
    assert!(one.hand_over().is_none(), "it has none until it runs");
    let state = other.take_over(state).unwrap_err();
    make(Window::Tumble { size_ns: 10 }).take_over(state).unwrap();
}
