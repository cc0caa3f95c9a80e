//! The properties of every handler, whatever it does: one suite, run over each of them.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod support;

use std::collections::BTreeMap;

use crossdock_engine::{
    DecodeHandler, EncodeHandler, Handler, HandlerProgram, HandlerState, Made, Messages, Natives, ParameterValues,
    Sink, Verdict,
};
use crossdock_format::convert::{Codec, MESSAGE_FIELD};
use crossdock_format::encoding::Encoding;
use crossdock_format::{Format, Record, RecordBuilder};
use crossdock_mailbox::{Batch, Selection};
use proptest::prelude::*;
use support::batch;

const SCHEMA: &str = "n i32\nm f64 null\nname string null\nc char[3]\nu u64\nbody bytes";

/// A handler under test.
struct Case {
    name: String,
    make: Box<dyn Fn() -> Box<dyn Handler>>,
    output: Format,
    /// Whether each record that comes in is counted once when it goes out: not so where one makes several.
    is_one_to_one: bool,
}

fn format() -> Format {
    Format::parse_schema(SCHEMA).unwrap()
}

/// Programs whose handlers are tested: each native with other parameters, queries of each form.
fn programs() -> Vec<HandlerProgram> {
    let native = HandlerProgram::native;
    vec![
        native("pass"),
        native("work").with("ns", "20"),
        native("work").with("ns", "50").with("every", "3"),
        native("sample").with("every", "3"),
        native("number"),
        native("tally").with("key", "c"),
        native("tally").with("key", "c,name").with("sum", "n").with("max_keys", "3"),
        native("tally").with("key", "n").with("sum", "m").with("max_keys", "2").with("count_as", "the count"),
        native("changes").with("fields", "c"),
        native("changes").with("fields", "m,name").with("key", "c, n").with("max_keys", "4"),
        native("convert").with("to", "u u64\nc string\nname string null"),
        native("convert").with("to", "u u8\nn i32"),
        HandlerProgram::sql("SELECT * FROM a WHERE n > 2 AND name LIKE 'a%'"),
        HandlerProgram::sql("SELECT n, c, name FROM a WHERE m IS NOT NULL"),
        HandlerProgram::sql("SELECT n / (n - 3) AS x, name || c AS y FROM a WHERE u < 5"),
        HandlerProgram::sql("SELECT n + $1 AS x, name FROM a WHERE c = $c").with("1", "7").with("c", "JFK"),
    ]
}

fn made(program: &HandlerProgram) -> Made {
    program.make(&Natives::built_in(), &format()).unwrap_or_else(|error| panic!("{error}"))
}

fn case(program: HandlerProgram) -> Case {
    let (name, output) = (format!("{program:?}"), made(&program).output);
    Case { name, output, make: Box::new(move || made(&program).handler), is_one_to_one: true }
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = programs().into_iter().map(case).collect();
    let decoded = Format::parse_schema("id u32\nname string null").unwrap();
    let output = decoded.clone();
    let codec = Codec { field: "body".to_owned(), ..Codec::new(Encoding::Json) };
    let decode = move || DecodeHandler::new(&format(), &codec, &decoded).unwrap();
    let make: Box<dyn Fn() -> Box<dyn Handler>> = Box::new(move || Box::new(decode()));
    cases.push(Case { name: "decode".to_owned(), make, output, is_one_to_one: false });
    for messages in [Messages::EachRecord, Messages::EachBatch] {
        let encode = move || EncodeHandler::new(&format(), &Codec::new(Encoding::Json), messages).unwrap();
        let output = encode().output().clone();
        assert_eq!(output.fields()[0].name, MESSAGE_FIELD);
        let make: Box<dyn Fn() -> Box<dyn Handler>> = Box::new(move || Box::new(encode()));
        cases.push(Case { name: format!("encode {messages:?}"), make, output, is_one_to_one: true });
    }
    cases
}

type Row = (i32, Option<f64>, Option<String>, String, u64, String);

fn row() -> impl Strategy<Value = Row> {
    let pick = |texts: &[&str]| prop::sample::select(texts.iter().map(ToString::to_string).collect::<Vec<_>>());
    let body = pick(&["{\"id\":1}", "{\"id\":2,\"name\":\"x\"} {\"id\":3}", "{", "", "{\"id\":\"x\"}\n{\"id\":4}"]);
    let m = prop::option::of(prop::sample::select(vec![0.0, -0.0, 1.5, f64::NAN, 1e308]));
    let texts = prop::option::of(pick(&["", "a", "ab", "another one that is long"]));
    (-3..6, m, texts, pick(&["JFK", "LAX", "a"]), prop_oneof![0u64..6, Just(u64::MAX)], body)
}

fn record((n, m, name, c, u, body): &Row) -> Vec<u8> {
    let mut builder = RecordBuilder::new(&format());
    builder.set_i64(0, (*n).into()).unwrap();
    if let Some(m) = m {
        builder.set_f64(1, *m).unwrap();
    }
    if let Some(name) = name {
        builder.set_text(2, name).unwrap();
    }
    builder.set_text(3, c).unwrap();
    builder.set_u64(4, *u).unwrap();
    builder.set_bytes(5, body.as_bytes()).unwrap();
    builder.finish().unwrap().to_vec()
}

/// Records, and a flag for each: whether it is selected.
fn rows() -> impl Strategy<Value = (Vec<Vec<u8>>, Vec<bool>)> {
    prop::collection::vec((row(), prop::bool::weighted(0.8)), 0..40)
        .prop_map(|rows| rows.iter().map(|(row, is_selected)| (record(row), *is_selected)).unzip())
}

/// Runs one batch and checks what holds of every batch; gives what left, be it new or as it came.
fn run(case: &Case, handler: &mut dyn Handler, records: &[Vec<u8>], selected: &[bool]) -> Vec<Vec<u8>> {
    let batch = batch(records);
    let mut selection = Selection::all(records.len());
    selection.narrow(|index| selected[index]);
    let (before, count) = (handler.counters(), selection.len() as u64);
    let mut out: Vec<Vec<u8>> = Vec::new();
    let verdict = handler.process(&batch, &mut selection, &mut out);
    let after = handler.counters();
    let name = &case.name;
    assert_eq!(after.records_in - before.records_in, count, "{name}");
    assert!(selection.iter().all(|index| selected[index]), "{name}: the selection grew");
    let (passed, errors) = (after.passed - before.passed, after.row_errors - before.row_errors);
    if case.is_one_to_one {
        assert!(passed + errors <= count, "{name}: {passed} and {errors} of {count}");
    }
    let left = match verdict {
        Verdict::Forward => {
            assert!(out.is_empty() && !selection.is_empty(), "{name}");
            assert_eq!(passed, selection.len() as u64, "{name}");
            selection.iter().map(|index| records[index].clone()).collect()
        }
        Verdict::Emit(made) => {
            assert!(made > 0 && made == out.len(), "{name}");
            assert!(passed >= made as u64, "{name}");
            out
        }
        Verdict::Drop => {
            assert!(out.is_empty() && passed == 0, "{name}");
            out
        }
        other => panic!("{name}: {other:?}"),
    };
    for record in &left {
        assert!(Record::check(&case.output, record).is_ok(), "{name}: not of its output's format");
    }
    left
}

/// Cuts records and flags into batches of this length.
fn in_batches(
    (records, selected): &(Vec<Vec<u8>>, Vec<bool>),
    size: usize,
) -> impl Iterator<Item = (&[Vec<u8>], &[bool])> {
    records.chunks(size).zip(selected.chunks(size))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn counters_verdicts_and_selections_agree(rows in rows(), size in 1..12usize) {
        for case in cases() {
            let mut handler = (case.make)();
            for (records, selected) in in_batches(&rows, size) {
                run(&case, &mut *handler, records, selected);
            }
        }
    }

    /// The output does not depend on how the records are cut into batches; but where all of a batch make one message.
    #[test]
    fn batches_are_only_a_way_of_carrying(rows in rows(), size in 1..12usize) {
        for case in cases().into_iter().filter(|case| case.name != "encode EachBatch") {
            let mut handler = (case.make)();
            let whole = run(&case, &mut *handler, &rows.0, &rows.1);
            let mut handler = (case.make)();
            let cut: Vec<Vec<u8>> = in_batches(&rows, size)
                .flat_map(|(records, selected)| run(&case, &mut *handler, records, selected))
                .collect();
            prop_assert_eq!(whole, cut, "{}", case.name);
        }
    }

    /// A handler that takes over the state of the one before it goes on as that would have.
    #[test]
    fn state_that_is_handed_over_goes_on(rows in rows(), size in 1..6usize, hand_over_at in 0..8usize) {
        for case in cases() {
            let (mut stays, mut changes) = ((case.make)(), (case.make)());
            for (at, (records, selected)) in in_batches(&rows, size).enumerate() {
                if at == hand_over_at {
                    let mut next = (case.make)();
                    prop_assert_eq!(changes.state_kind(), next.state_kind());
                    if let Some(state) = changes.hand_over() {
                        prop_assert_eq!(Some(state.kind()), next.state_kind());
                        prop_assert!(next.takes_state(state.kind()));
                        prop_assert!(next.take_over(state).is_ok());
                        changes = next;
                    }
                }
                let expected = run(&case, &mut *stays, records, selected);
                prop_assert_eq!(run(&case, &mut *changes, records, selected), expected, "{}", case.name);
            }
        }
    }
}

#[test]
fn nothing_comes_of_nothing() {
    for case in cases() {
        let mut handler = (case.make)();
        let mut out: Vec<Vec<u8>> = Vec::new();
        assert_eq!(handler.process(&Batch::new(), &mut Selection::default(), &mut out), Verdict::Drop, "{}", case.name);
        let records = [record(&(1, None, None, "a".to_owned(), 1, "{}".to_owned()))];
        assert!(run(&case, &mut *handler, &records, &[false]).is_empty());
        assert_eq!(handler.counters(), crossdock_engine::HandlerCounters::default(), "{}", case.name);
    }
}

#[test]
fn state_of_another_kind_is_given_back() {
    for case in cases() {
        let mut handler = (case.make)();
        assert!(!handler.takes_state("something else"));
        let foreign = HandlerState::new("something else".into(), Box::new(7u8));
        assert_eq!(handler.take_over(foreign).unwrap_err().kind(), "something else", "{}", case.name);
        // Of the right name, but no such state.
        if let Some(kind) = handler.state_kind().map(ToOwned::to_owned) {
            let wrong = HandlerState::new(kind.as_str().into(), Box::new("no state"));
            assert_eq!(handler.take_over(wrong).unwrap_err().kind(), kind);
        }
    }
}

/// Between two batches nothing large is made or freed: what the new handler had is freed with it, off the core.
#[test]
fn state_changes_hands_in_place() {
    let records: Vec<Vec<u8>> = (0..20).map(|n| record(&(n, None, None, "a".to_owned(), 1, String::new()))).collect();
    for program in programs() {
        let (mut before, mut after) = (made(&program).handler, made(&program).handler);
        run(&case(program.clone()), &mut *before, &records, &[true; 20]);
        let allocated = allocation_counter::measure(|| {
            if let Some(state) = before.hand_over() {
                assert!(after.take_over(state).is_ok());
            }
        });
        assert!(allocated.bytes_total <= 16 && allocated.bytes_current == 0, "{program:?}: {allocated:?}");
    }
}

/// A handler that gave its state up and is run all the same works as if it were new.
#[test]
fn without_its_state_it_starts_anew() {
    let records: Vec<Vec<u8>> =
        (0..9).map(|n| record(&(n % 3, Some(0.5), None, "a".to_owned(), 1, "{\"id\":1}".to_owned()))).collect();
    for case in cases() {
        let mut handler = (case.make)();
        let first = run(&case, &mut *handler, &records, &[true; 9]);
        let had = handler.hand_over();
        assert_eq!(had.is_some(), handler.state_kind().is_some(), "{}", case.name);
        if had.is_some() {
            assert_eq!(run(&case, &mut *handler, &records, &[true; 9]), first, "{}", case.name);
        }
    }
}

/// Counts rows and keeps none.
struct Counted(usize);

impl Sink for Counted {
    fn push(&mut self, _record: &[u8]) {
        self.0 += 1;
    }
}

#[test]
fn warm_handlers_allocate_nothing() {
    let records: Vec<Vec<u8>> = (0..50)
        .map(|n| record(&(n % 7, Some(f64::from(n)), Some("x".repeat(n as usize)), "JFK".to_owned(), 1, String::new())))
        .collect();
    let batch = batch(&records);
    // Encodings' libraries have their own ways.
    for program in programs() {
        let mut handler = made(&program).handler;
        let (mut selection, mut sink) = (Selection::default(), Counted(0));
        let mut round = || {
            selection.select_all(batch.len());
            let _ = handler.process(&batch, &mut selection, &mut sink);
        };
        round();
        assert_eq!(allocation_counter::measure(round).count_total, 0, "{program:?}");
    }
}

/// Programs, and other values of parameters that they can be given while they run.
fn tunable() -> Vec<(HandlerProgram, HandlerProgram)> {
    let native = HandlerProgram::native;
    let sql = |x: &str, least: &str| {
        let sql =
            "SELECT n + $x AS x, name || $x AS y FROM a WHERE n > $least AND (name LIKE $like OR n IN ($x, $least))";
        HandlerProgram::sql(sql).with("x", x).with("least", least).with("like", format!("%{x}%"))
    };
    vec![
        (sql("3", "5"), sql("17", "9")),
        (native("sample").with("every", "2"), native("sample").with("every", "5")),
        (native("sample").with("every", "7"), native("sample").with("every", "1")),
        (native("work").with("ns", "1"), native("work").with("ns", "2").with("every", "9")),
    ]
}

#[test]
fn parameters_change_what_comes_after_and_can_be_changed_back() {
    let records: Vec<Vec<u8>> =
        (0..30).map(|n| record(&(n, None, Some(format!("a{n}")), "a".to_owned(), 1, String::new()))).collect();
    for (program, other) in tunable() {
        let (one, two) = (case(program.clone()), case(other.clone()));
        let Made { mut handler, parameters, .. } = made(&program);
        let before = run(&one, &mut *handler, &records, &[true; 30]);
        assert_eq!(before, run(&one, &mut *(one.make)(), &records, &[true; 30]));
        drop(handler.hand_over());

        let mut values = parameters.prepare(&other.parameters).unwrap();
        let allocations = allocation_counter::measure(|| assert!(handler.set_parameters(&mut values))).count_total;
        assert_eq!(allocations, 0);
        assert_eq!(
            run(&two, &mut *handler, &records, &[true; 30]),
            run(&two, &mut *(two.make)(), &records, &[true; 30])
        );
        drop(handler.hand_over());

        assert!(handler.set_parameters(&mut values));
        assert_eq!(run(&one, &mut *handler, &records, &[true; 30]), before);
    }
}

#[test]
fn values_of_other_parameters_are_not_taken() {
    let natives = Natives::built_in();
    let sample = HandlerProgram::native("sample").make(&natives, &format()).unwrap();
    for case in cases().iter().filter(|case| !case.name.contains("sample")) {
        let mut handler = (case.make)();
        let mut values = sample.parameters.prepare(&BTreeMap::new()).unwrap();
        assert!(!handler.set_parameters(&mut values), "{}", case.name);
        assert!(!handler.set_parameters(&mut ParameterValues::new(0u8)), "{}", case.name);
    }
}
