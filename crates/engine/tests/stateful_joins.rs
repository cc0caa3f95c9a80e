//! Joins by time against all pairs of the whole history, and queries of several stages.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod stateful_support;
mod support;

use std::sync::Arc;

use crossdock_engine::{Handler, StatefulHandler};
use crossdock_format::{FieldType, Format, RecordBuilder};
use crossdock_mailbox::Selection;
use crossdock_query::{
    Aggregate, AggregateFunction as F, Aggregation, AsofJoin, DerivedTime, IntervalJoin, JoinKind, Operator, Port,
    RowTime, Stage, StageInput, StageOutput, StatefulProgram, Window, parse,
};
use proptest::prelude::*;
use stateful_support::{Event, QueryRun, events, flush, input, of_stages, one_stage, shuffled};

/// The only output of a last stage.
fn output(sql: &str, rows: &Format) -> Vec<StageOutput> {
    vec![StageOutput { then: parse(sql).unwrap().plan(rows).unwrap(), to: None }]
}

fn pair_format() -> Format {
    let side =
        |n: char| format!("ts{n} timestamp null\nk{n} string null\nv{n} i64 null\ns{n} string null\nb{n} bool null\n");
    Format::parse_schema(&(side('l') + &side('r'))).unwrap()
}

fn interval(kind: JoinKind, within_ns: (i64, i64), lateness: u64, with_condition: bool) -> StatefulProgram {
    let rows = pair_format();
    let condition = with_condition.then(|| parse("SELECT * FROM r WHERE vl <= vr").unwrap().plan(&rows).unwrap());
    one_stage(Operator::Join(IntervalJoin { kind, keys: vec![(1, 1)], within_ns, condition }), rows, lateness)
}

const NOBODY: &str = "null|null|null|null|null";

/// The pairs of the whole history, and the rows without one.
fn joined(kind: JoinKind, within: (i64, i64), with_condition: bool, left: &[Event], right: &[Event]) -> Vec<String> {
    let mut rows = Vec::new();
    let mut has_partner = vec![false; right.len()];
    for one in left {
        let mut found = false;
        for (at, other) in right.iter().enumerate() {
            let distance = other.ts - one.ts;
            let is_pair = one.k.is_some() && one.k == other.k && within.0 <= distance && distance <= within.1;
            let holds = !with_condition || matches!((one.v, other.v), (Some(one), Some(other)) if one <= other);
            if is_pair && holds {
                rows.push(format!("{}|{}", one.shown(), other.shown()));
                (found, has_partner[at]) = (true, true);
            }
        }
        if !found && kind != JoinKind::Inner {
            rows.push(format!("{}|{NOBODY}", one.shown()));
        }
    }
    let alone = right.iter().zip(has_partner).filter(|(_, found)| !found && kind == JoinKind::Full);
    rows.extend(alone.map(|(other, _)| format!("{NOBODY}|{}", other.shown())));
    rows.sort();
    rows
}

/// The rows of two inputs in turns, in pieces, as a seed has it; then one that closes what is open.
fn feed_both(run: &mut QueryRun, left: &[Event], right: &[Event], seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut rest = [left, right];
    while rest.iter().any(|rest| !rest.is_empty()) {
        let side = usize::from(rest[0].is_empty() || (!rest[1].is_empty() && random.bool()));
        let (now, then) = rest[side].split_at(random.usize(1..=rest[side].len().min(6)));
        run.feed(side, now);
        rest[side] = then;
    }
    run.feed(0, &[flush()]);
    run.feed(1, &[flush()]);
}

fn without_flush(run: &QueryRun) -> Vec<String> {
    let mut rows: Vec<String> = run.rows.iter().filter(|row| !row.contains("flush")).cloned().collect();
    rows.sort();
    rows
}

fn kinds() -> impl Strategy<Value = JoinKind> {
    prop::sample::select(vec![JoinKind::Inner, JoinKind::Left, JoinKind::Full])
}

/// The latest right row for each left one.
fn latest(is_left: bool, is_strict: bool, left: &[Event], right: &[Event]) -> Vec<String> {
    let mut rows = Vec::new();
    for one in left {
        let fits = |other: &&Event| other.ts < one.ts || (other.ts == one.ts && !is_strict);
        let of_key = right.iter().filter(|other| one.k.is_some() && one.k == other.k);
        let best = of_key.filter(fits).max_by_key(|other| other.ts);
        match best {
            Some(other) => rows.push(format!("{}|{}", one.shown(), other.shown())),
            None if is_left => rows.push(format!("{}|{NOBODY}", one.shown())),
            None => {}
        }
    }
    rows.sort();
    rows
}

fn asof(kind: JoinKind, is_strict: bool, waits: bool, lateness: u64) -> StatefulProgram {
    one_stage(Operator::Asof(AsofJoin { kind, keys: vec![(1, 1)], is_strict, waits }), pair_format(), lateness)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// However the two streams run beside each other.
    #[test]
    fn pairs_are_those_of_the_whole_history(
        kind in kinds(), low in -15..15i64, width in 0..20i64, left in events(40), right in events(40),
        (seed, with_condition) in any::<(u64, bool)>(), handlers in 1..3usize,
    ) {
        let within = (low, low + width);
        let program = Arc::new(interval(kind, within, 25, with_condition));
        let mut run = QueryRun::new(&program, handlers);
        feed_both(&mut run, &shuffled(&left, 25, seed), &shuffled(&right, 25, seed ^ 1), seed);
        prop_assert_eq!(run.counters().late, 0);
        prop_assert_eq!(without_flush(&run), joined(kind, within, with_condition, &left, &right));
        run.feed(0, &[Event { ts: 3_000_000, ..flush() }]);
        run.feed(1, &[Event { ts: 3_000_000, ..flush() }]);
        prop_assert!(run.state_bytes() < 1000, "only the last rows: {}", run.state_bytes());
    }

    /// With waiting, nothing depends on what comes first.
    #[test]
    fn each_row_waits_for_the_latest_of_the_whole_history(
        is_left in any::<bool>(), is_strict in any::<bool>(), left in events(40), right in events(40), seed in any::<u64>(),
    ) {
        // Of right rows of one key and time, all but one go: which one counts is no matter of this test.
        let mut right = right;
        right.sort_by_key(|row| (row.ts, row.k.clone()));
        right.dedup_by_key(|row| (row.ts, row.k.clone()));
        let kind = if is_left { JoinKind::Left } else { JoinKind::Inner };
        let mut run = QueryRun::new(&Arc::new(asof(kind, is_strict, true, 25)), 2);
        feed_both(&mut run, &shuffled(&left, 25, seed), &shuffled(&right, 25, seed ^ 1), seed);
        prop_assert_eq!(run.counters().late, 0);
        prop_assert_eq!(without_flush(&run), latest(is_left, is_strict, &left, &right));
    }

    /// Without waiting, each left row has the latest right one among those that have come.
    #[test]
    fn each_row_is_joined_with_what_has_come(
        is_left in any::<bool>(), is_strict in any::<bool>(), left in events(40), right in events(40), seed in any::<u64>(),
    ) {
        let kind = if is_left { JoinKind::Left } else { JoinKind::Inner };
        let mut run = QueryRun::new(&Arc::new(asof(kind, is_strict, false, 25)), 1);
        let (left, right) = (shuffled(&left, 25, seed), shuffled(&right, 25, seed ^ 1));
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut come, mut wanted) = (0, Vec::new());
        for one in &left {
            while come < right.len() && random.bool() {
                run.feed(1, &right[come..=come]);
                come += 1;
            }
            run.feed(0, std::slice::from_ref(one));
            wanted.extend(latest(is_left, is_strict, std::slice::from_ref(one), &right[..come]));
        }
        prop_assert_eq!(&run.rows, &wanted);
    }

    /// Whatever goes, the state is never more than its bound.
    #[test]
    fn the_bound_of_joins_is_never_passed(
        kind in kinds(), left in events(80), right in events(80), bound in 0..5000usize, which in 0..3u8,
    ) {
        let program = match which {
            0 => interval(kind, (-20, 20), 40, false),
            1 => asof(JoinKind::Left, false, true, 40),
            _ => asof(JoinKind::Left, false, false, 40),
        };
        let mut run = QueryRun::new(&Arc::new(StatefulProgram { max_state_bytes: bound, ..program }), 1);
        for (one, other) in left.iter().zip(&right) {
            run.feed(0, std::slice::from_ref(one));
            prop_assert!(run.state_bytes() <= bound);
            run.feed(1, std::slice::from_ref(other));
            prop_assert!(run.state_bytes() <= bound, "{} of {bound}", run.state_bytes());
        }
        run.feed(0, &[flush()]);
        run.feed(1, &[flush()]);
        prop_assert!(run.state_bytes() <= bound);
    }
}

/// A join, then hourly counts of its rows: the watermark of the join closes the windows.
#[test]
fn stages_pass_their_watermarks_on() {
    let mut program = interval(JoinKind::Left, (-5, 5), 0, false);
    let join_rows = program.stages[0].rows.clone();
    let rows = Format::parse_schema("window_start timestamp\nwindow_end timestamp\nn i64\n").unwrap();
    let count = Aggregate { function: F::Count, arguments: vec![], distinct: false, filter: None, ty: FieldType::I64 };
    let (window, corrects, gives_changes) = (Window::Tumble { size_ns: 10 }, false, false);
    let aggregation = Aggregation { keys: vec![], window, aggregates: vec![count], corrects, gives_changes };
    program.stages[0].outputs[0].to = Some(Port { stage: 1, input: 0 });
    program.stages.push(Stage {
        inputs: vec![StageInput {
            row: join_rows,
            time: Some(0),
            lateness_ns: 0,
            derived: Some(DerivedTime { of: RowTime::Left, plus_ns: 0 }),
        }],
        operator: Operator::Aggregate(aggregation),
        outputs: output("SELECT n, window_start FROM r WHERE n > 1", &rows),
        rows,
    });
    let mut run = QueryRun::new(&Arc::new(program), 2);
    let at = |ts| Event { ts, k: Some("a".to_owned()), v: None, s: String::new(), b: None };
    run.feed(0, &[at(1), at(9), at(12), at(40)]);
    assert_eq!(run.rows, [""; 0], "the right stream may still bring partners");
    run.feed(1, &[at(7), at(14)]);
    // Right: 14, so left rows up to 9 are done, and windows up to then: none.
    assert_eq!(run.rows, [""; 0]);
    run.feed(1, &[at(18)]);
    assert_eq!(run.rows, ["3|0"], "1 alone, 9 with 7 and with 14; 12 with both is in the next window");
    run.feed(1, &[at(99)]);
    run.feed(0, &[at(99)]);
    assert_eq!(run.rows[1..], ["2|10"]);
    assert_eq!(run.counters().late, 0);
}

#[test]
fn a_stream_that_is_joined_with_itself_goes_to_both_sides_row_by_row() {
    let program = Arc::new(asof(JoinKind::Inner, false, false, 0));
    let mut readers = QueryRun::readers(&program, 1);
    readers.extend(QueryRun::readers(&program, 0));
    readers[0].1 =
        parse("SELECT ts, k, v, s, b FROM s WHERE v > 0").unwrap().plan(&stateful_support::format()).unwrap();
    readers[1].1 =
        parse("SELECT ts, k, v, s, b FROM s WHERE 6 / v < 0").unwrap().plan(&stateful_support::format()).unwrap();
    let mut handler = StatefulHandler::new(program, readers).unwrap();
    let mut row = RecordBuilder::new(&stateful_support::format());
    let records: Vec<Vec<u8>> = [(1, -1), (2, 5), (3, -2), (4, 0), (5, 7), (6, -3)]
        .into_iter()
        .map(|(ts, v)| {
            row.clear();
            row.set_timestamp(0, ts).unwrap();
            row.set_text(1, "a").unwrap();
            row.set_i64(2, v).unwrap();
            row.set_text(3, "").unwrap();
            row.finish().unwrap().to_vec()
        })
        .collect();
    let batch = support::batch(&records);
    let mut out: Vec<Vec<u8>> = Vec::new();
    let _ = handler.process(&batch, &mut Selection::all(batch.len()), &mut out);
    assert_eq!(out.len(), 2, "3 with 2, 6 with 5; 1 comes before all");
    let counters = handler.counters();
    assert_eq!((counters.taken, counters.row_errors), (5, 1), "0 is divided by, and taken by nobody");
    assert_eq!(handler.take_row_errors().iter().sum::<u64>(), 1);
}

#[test]
fn rows_of_several_inputs_are_united() {
    let rows = stateful_support::format();
    let stage = Stage {
        inputs: vec![input(0), input(0)],
        operator: Operator::Union,
        outputs: output("SELECT k, v FROM r WHERE v > 1", &rows),
        rows,
    };
    let mut run = QueryRun::new(&Arc::new(of_stages(vec![stage])), 1);
    let of = |v| Event { ts: 0, k: None, v: Some(v), s: String::new(), b: None };
    run.feed(0, &[of(1), of(2)]);
    run.feed(1, &[of(3)]);
    assert_eq!(run.rows, ["null|2", "null|3"]);
}
