//! The results of the native handlers, each by itself, and what they refuse.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod support;

use std::collections::HashMap;

use crossdock_engine::{
    Form, Handler, HandlerProgram, Made, MakeError, NativeKind, Natives, Parameter, ParameterKind, Verdict,
};
use crossdock_format::{Format, Record, RecordBuilder, Value};
use crossdock_mailbox::Selection;
use proptest::prelude::*;
use support::batch;

fn format() -> Format {
    Format::parse_schema("key string\nn i64 null\nx f32").unwrap()
}

fn record(key: &str, n: Option<i64>) -> Vec<u8> {
    let mut builder = RecordBuilder::new(&format());
    builder.set_text(0, key).unwrap();
    if let Some(n) = n {
        builder.set_i64(1, n).unwrap();
    }
    builder.set_f64(2, 0.5).unwrap();
    builder.finish().unwrap().to_vec()
}

fn make(program: &HandlerProgram) -> Made {
    program.make(&Natives::built_in(), &format()).unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(program: &HandlerProgram) -> String {
    program.make(&Natives::built_in(), &format()).unwrap_err().to_string()
}

fn run(handler: &mut dyn Handler, records: &[Vec<u8>]) -> (Verdict, Vec<usize>, Vec<Vec<u8>>) {
    let (mut selection, mut out) = (Selection::all(records.len()), Vec::new());
    let verdict = handler.process(&batch(records), &mut selection, &mut out);
    (verdict, selection.iter().collect(), out)
}

fn native(name: &str) -> HandlerProgram {
    HandlerProgram::native(name)
}

#[test]
fn pass_and_work_hand_everything_on() {
    let records: Vec<Vec<u8>> = (0..5).map(|n| record("a", Some(n))).collect();
    for program in [native("pass"), native("work").with("ns", "10"), native("work").with("ns", "0").with("every", "3")]
    {
        let Made { mut handler, output, is_metered, form, .. } = make(&program);
        assert_eq!(run(&mut *handler, &records), (Verdict::Forward, vec![0, 1, 2, 3, 4], vec![]));
        assert_eq!(output, format());
        assert!(is_metered);
        assert_eq!(form.to_string(), "native");
        assert_eq!(form.steps[0].form, Form::Native);
    }
}

#[test]
fn sample_hands_on_the_first_of_n_records() {
    let records: Vec<Vec<u8>> = (0..7).map(|n| record("a", Some(n))).collect();
    let Made { mut handler, .. } = make(&native("sample").with("every", "3"));
    assert_eq!(run(&mut *handler, &records).1, [0, 3, 6]);
    assert_eq!(run(&mut *handler, &records).1, [2, 5]);
    let Made { mut handler, .. } = make(&native("sample"));
    assert_eq!(run(&mut *handler, &records).1, [0]);
}

#[test]
fn numbers_are_of_what_is_selected() {
    let Made { mut handler, output, .. } = make(&native("number").with("field", "no."));
    let records: Vec<Vec<u8>> = (0..5).map(|n| record("a", Some(n))).collect();
    let (mut selection, mut out) = (Selection::all(5), Vec::new());
    selection.narrow(|index| index != 1);
    for _ in 0..2 {
        assert_eq!(handler.process(&batch(&records), &mut selection, &mut out), Verdict::Emit(4));
    }
    let field = output.field("no.").unwrap();
    let found: Vec<Value<'_>> = out.iter().map(|row| Record::check(&output, row).unwrap().get(field)).collect();
    assert_eq!(found, (1..=8).map(Value::Uint).collect::<Vec<_>>());
    // And what was there is as it was.
    for (row, of) in out.iter().zip([0, 2, 3, 4, 0, 2, 3, 4]) {
        let (row, of) = (Record::check(&output, row).unwrap(), Record::assume_checked(row_format(), &records[of]));
        for index in 0..3 {
            assert_eq!(row.get(index), of.get(index));
        }
    }
}

fn row_format() -> &'static Format {
    static FORMAT: std::sync::OnceLock<Format> = std::sync::OnceLock::new();
    FORMAT.get_or_init(format)
}

/// A list has no place that a load and a store copy: the record is then made field by field.
#[test]
fn any_record_gets_a_number() {
    let format = Format::parse_schema("legs record { to string; km u16 }[]\nprice decimal(8, scale 2)").unwrap();
    let mut builder = RecordBuilder::new(&format);
    let legs = format.field("legs").unwrap();
    builder.begin_list(legs).unwrap();
    builder.begin_element().unwrap();
    builder.set_text(0, "JFK").unwrap();
    builder.set_u64(1, 100).unwrap();
    builder.end_element().unwrap();
    builder.end_list().unwrap();
    builder.set(format.field("price").unwrap(), Value::Decimal { unscaled: 1234, scale: 2 }).unwrap();
    let records = [builder.finish().unwrap().to_vec()];
    let Made { mut handler, output, .. } = native("number").make(&Natives::built_in(), &format).unwrap();
    let (verdict, _, out) = run(&mut *handler, &records);
    assert_eq!(verdict, Verdict::Emit(1));
    let row = Record::check(&output, &out[0]).unwrap();
    assert_eq!(row.get(output.field("number").unwrap()), Value::Uint(1));
    let Value::List(list) = row.get(output.field("legs").unwrap()) else { panic!("no list") };
    assert_eq!(list.record(0).unwrap().get(0), Value::Text(b"JFK"));
}

proptest! {
    /// Held to a map and a list of what came when.
    #[test]
    fn tally_counts_and_forgets_what_did_not_come_for_the_longest(
        rows in prop::collection::vec((0..9u8, prop::option::of(-5..5i64)), 0..120),
        max_keys in 1..12usize,
        other_max_keys in 1..12usize,
        hand_over_at in 0..120usize,
    ) {
        let program = |max_keys: usize| {
            native("tally").with("key", "key").with("sum", "n").with("max_keys", max_keys.to_string())
        };
        let Made { mut handler, output, .. } = make(&program(max_keys));
        let [count, sum] = ["count", "sum"].map(|name| output.field(name).unwrap());
        let mut kept: HashMap<u8, (u64, i64)> = HashMap::new();
        let (mut order, mut room): (Vec<u8>, usize) = (Vec::new(), max_keys);
        let (mut forgotten, mut by_handler) = (0, 0);
        for (at, (key, n)) in rows.into_iter().enumerate() {
            if at == hand_over_at {
                let mut next = make(&program(other_max_keys)).handler;
                next.take_over(handler.hand_over().unwrap()).unwrap();
                by_handler += handler.counters().forgotten;
                (handler, room) = (next, other_max_keys);
            }
            // A lower bound is come down to step by step.
            for _ in 0..2 {
                if order.len() > room {
                    forgotten += 1;
                    kept.remove(&order.remove(0));
                }
            }
            let surplus = order.len().saturating_sub(room);
            order.retain(|other| *other != key);
            order.push(key);
            if order.len() > room + surplus {
                forgotten += 1;
                kept.remove(&order.remove(0));
            }
            let counted = kept.entry(key).or_default();
            counted.0 += 1;
            counted.1 += n.unwrap_or(0);
            let (_, _, out) = run(&mut *handler, &[record(&"k".repeat(key.into()), n)]);
            let row = Record::check(&output, &out[0]).unwrap();
            prop_assert_eq!((row.get(count), row.get(sum)), (Value::Uint(counted.0), Value::Int(counted.1)));
        }
        prop_assert_eq!(by_handler + handler.counters().forgotten, forgotten);
    }

    #[test]
    fn changes_are_from_the_last_record_of_the_key(rows in prop::collection::vec((0..4u8, 0..3i64), 0..60)) {
        let records: Vec<Vec<u8>> = rows.iter().map(|(key, n)| record(&key.to_string(), Some(*n))).collect();
        let mut handler = make(&native("changes").with("fields", "n").with("key", "key")).handler;
        let mut last: HashMap<u8, i64> = HashMap::new();
        let differs = |index: &usize| {
            let (key, n) = rows[*index];
            last.insert(key, n) != Some(n)
        };
        let expected: Vec<usize> = (0..rows.len()).filter(differs).collect();
        prop_assert_eq!(run(&mut *handler, &records).1, expected);
    }
}

#[test]
fn a_sum_that_does_not_fit_is_a_row_error_and_is_not_counted() {
    let Made { mut handler, output, .. } = make(&native("tally").with("key", "key").with("sum", "n"));
    let rows: Vec<Vec<u8>> = [i64::MAX, 1, -1].map(|n| record("a", Some(n))).to_vec();
    let (verdict, _, out) = run(&mut *handler, &rows);
    assert_eq!((verdict, handler.counters().row_errors), (Verdict::Emit(2), 1));
    let last = Record::check(&output, &out[1]).unwrap();
    assert_eq!(last.get(output.field("count").unwrap()), Value::Uint(2));
    assert_eq!(last.get(output.field("sum").unwrap()), Value::Int(i64::MAX - 1));
}

/// One zero, one NaN, texts whatever field they stand in: what is equal has one key.
#[test]
fn state_goes_over_to_another_format_of_the_same_fields() {
    let program = native("tally").with("key", "key,n");
    let wider = Format::parse_schema("x f64\nn i32\nkey char[8]").unwrap();
    let Made { mut handler, .. } = make(&program);
    run(&mut *handler, &[record("a", Some(7)), record("a", Some(8))]);
    let Made { handler: mut next, output, .. } = program.make(&Natives::built_in(), &wider).unwrap();
    next.take_over(handler.hand_over().unwrap()).unwrap();
    let mut builder = RecordBuilder::new(&wider);
    builder.set_f64(0, 1.0).unwrap();
    builder.set_i64(1, 7).unwrap();
    builder.set_text(2, "a").unwrap();
    let (_, _, out) = run(&mut *next, &[builder.finish().unwrap().to_vec()]);
    let row = Record::check(&output, &out[0]).unwrap();
    assert_eq!(row.get(output.field("count").unwrap()), Value::Uint(2));
}

#[test]
fn impossible_parameters_are_refused_by_name() {
    for (program, expected) in [
        (native("psas"), "no native handler `psas`; there are: changes, "),
        (native("pass").with("x", "1"), "parameter `x` of pass: there is no such parameter; there are: none"),
        (
            native("sample").with("evry", "1"),
            "parameter `evry` of sample: there is no such parameter; there are: every",
        ),
        (native("sample").with("every", "0"), "parameter `every` of sample: `0` is not a whole number from 1 to "),
        (native("work").with("ns", "a"), "parameter `ns` of work: `a` is not a whole number from 0 to 1000000"),
        (native("tally"), "parameter `key` of tally: its value is missing: names of fields"),
        (native("tally").with("key", " , "), "parameter `key` of tally: it names no field"),
        (native("tally").with("key", "kee"), "parameter `key` of tally: no field `kee` in format "),
        (native("tally").with("key", "n").with("sum", "key"), "parameter `sum` of tally: `key` is string; "),
        (native("tally").with("key", "n").with("sum", "n,x"), "parameter `sum` of tally: one field is added up"),
        (native("number").with("field", "n"), "parameter `field` of number: the records have a field `n` already"),
        (native("convert"), "parameter `to` of convert: the format of what is made is missing"),
        (native("convert").with("to", "n"), "parameter `to` of convert: "),
        (native("convert").with("to", "q i8"), "parameter `by` of convert: "),
        (native("convert").with("by", "SELECT n FROM a"), "parameter `by` of convert: a query is a handler by itself"),
        (native("convert").with("by", "encode morse"), "parameter `by` of convert: "),
        (
            native("convert").with("by", "encode json x"),
            "parameter `by` of convert: messages are made in a field `message`",
        ),
        (native("changes").with("fields", "zz"), "parameter `fields` of changes: no field `zz`"),
        (HandlerProgram::sql("SELECT * FROM a WHERE q = 1"), "line 1, column 23: stream a has no column `q`"),
        (HandlerProgram::sql("SELECT * FROM a").with("b", "1"), "the query has no parameter `b`"),
        (HandlerProgram::sql("SELECT * FROM a WHERE n > $b"), "line 1, column 27: the parameter $b has no value"),
    ] {
        let found = refusal(&program);
        assert!(found.starts_with(expected), "{found}\nexpected {expected}");
        let is_known_early = program.check(&Natives::built_in()).is_err();
        let needs_format = ["no field", "already", "string;", "several", "it names no", "no column", "of convert"];
        assert_eq!(is_known_early, !needs_format.iter().any(|word| found.contains(word)), "{found}");
    }
}

#[test]
fn records_are_converted_encoded_and_decoded() {
    let records: Vec<Vec<u8>> = (0..200).map(|n| record("k", (n % 3 > 0).then_some(n))).collect();
    let convert = |by: &str, to: &Format| native("convert").with("by", by).with("to", to.describe());
    let to = Format::parse_schema("n i64 null\nkey string").unwrap();
    let Made { mut handler, output, .. } = make(&convert("", &to));
    let (verdict, _, converted) = run(&mut *handler, &records);
    assert_eq!((verdict, output), (Verdict::Emit(200), to.clone()));
    for (record, n) in converted.iter().zip(0..) {
        let n = if n % 3 > 0 { Value::Int(n) } else { Value::Null };
        let record = Record::check(&to, record).unwrap();
        assert_eq!((record.get(0), record.get(1)), (n, Value::Text(b"k")));
    }
    let Made { mut handler, output, .. } = make(&native("convert").with("by", "encode json"));
    let (_, _, encoded) = run(&mut *handler, &records);
    let decode = convert("decode json\nignore-unknown", &to);
    let Made { mut handler, .. } = decode.make(&Natives::built_in(), &output).unwrap();
    assert_eq!(run(&mut *handler, &encoded).2, converted);
}

#[test]
fn a_parameter_that_makes_another_handler_is_reported() {
    let Made { parameters, .. } = make(&native("tally").with("key", "key"));
    let given = |key: &str| parameters.prepare(&native("tally").with("key", key).parameters);
    assert!(given("key").is_ok());
    assert!(matches!(given("n"), Err(MakeError::Fixed { parameter }) if parameter == "key"));
    assert!(matches!(given("n "), Err(MakeError::Fixed { .. })));
}

#[test]
fn a_value_that_makes_another_query_differs_from_one_that_is_wrong() {
    let program = |x: &str, y: &str| {
        HandlerProgram::sql("SELECT key, $x AS x, n + $x AS m FROM a WHERE n > $y").with("x", x).with("y", y)
    };
    let Made { parameters, .. } = make(&program("1", "1"));
    let prepared = |x: &str, y: &str| parameters.prepare(&program(x, y).parameters).map(drop);
    assert_eq!(prepared("2", "3"), Ok(()));
    assert_eq!(prepared("2.5", "3"), Err(MakeError::Fixed { parameter: "x".to_owned() }));
    assert!(matches!(prepared("2", "2.5"), Err(MakeError::Query(_))));
    assert!(matches!(prepared("JFK", "2"), Err(MakeError::Query(_))));
}

#[test]
fn queries_name_their_stream_and_their_forms() {
    let program = HandlerProgram::sql("SELECT key FROM flights WHERE n > 1 AND n + 1 > 3");
    assert_eq!(program.reads().unwrap(), ["flights"]);
    assert!(native("pass").reads().unwrap().is_empty());
    let made = make(&program);
    assert_eq!(made.form.to_string(), "kernel, interpreted");
    assert_eq!(make(&HandlerProgram::sql("SELECT * FROM a")).form.to_string(), "unchanged");
    assert_eq!(make(&HandlerProgram::sql("SELECT * FROM a")).output, format());
    assert!(made.is_metered);
}

#[test]
fn others_may_add_their_own() {
    let every =
        Parameter { name: "to", about: "a text", kind: ParameterKind::Text, default: Some("x"), is_tunable: false };
    let mut natives = Natives::built_in();
    let pass =
        |input: &Format| native("pass").make(&Natives::built_in(), input).map(|made| (made.handler, made.output));
    let kind =
        NativeKind::new("mine", "does something", &[every], move |input, arguments| match arguments.text("to") {
            "x" if input.field("key").is_none() => {
                Err(MakeError::Input { handler: "mine".to_owned(), problem: "records without a key".to_owned() })
            }
            "x" => pass(input),
            other => Err(arguments.refuse("to", format!("`{other}` is not x"))),
        });
    natives.add(kind.clone());
    assert!(!native("mine").make(&natives, &format()).unwrap().is_metered);
    let refused = native("mine").with("to", "y").make(&natives, &format()).unwrap_err().to_string();
    assert_eq!(refused, "parameter `to` of mine: `y` is not x");
    let keyless = Format::parse_schema("n i64").unwrap();
    let refused = native("mine").make(&natives, &keyless).unwrap_err().to_string();
    assert_eq!(refused, "mine: records without a key");
    natives.add(kind.metered());
    assert!(native("mine").make(&natives, &format()).unwrap().is_metered);
    let names: Vec<&str> = natives.iter().map(NativeKind::name).collect();
    assert_eq!(names, ["changes", "convert", "mine", "number", "pass", "sample", "tally", "work"]);
}
