//! Plans: whatever the formats and the records, a plan does what reading every field, converting its value and setting
//! it would do; two plans composed do what one and then the other do; and no bytes make one panic.

use crate::arbitrary::{Owned, field_type, format, payload, rows, value};
use crossdock_format::convert::{ConvertError, Plan, PlanProblem, Rule, Rules, TimeUnit};
use crossdock_format::{FieldSpec, FieldType, Format, Record, RecordBuilder, Value};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// A conversion from one format to another, drawn for a source: what becomes of each field, and what is new.
#[derive(Clone, Debug)]
struct Conversion {
    to: Format,
    rules: Rules,
}

/// Types that a value of this one becomes by name.
fn targets(from: FieldType) -> Vec<FieldType> {
    use FieldType as T;
    let integers = [T::I8, T::I16, T::I32, T::I64, T::U8, T::U16, T::U32, T::U64];
    let mut targets = vec![from];
    match from {
        T::Bool => targets.extend(integers),
        T::Timestamp => targets.extend(integers),
        T::Char(_) | T::String | T::Bytes => {
            targets.extend([T::String, T::Bytes, T::Char(1), T::Char(3), T::Char(8), T::Char(40)]);
        }
        T::F32 | T::F64 => targets.extend(integers.into_iter().chain([T::F32, T::F64])),
        _ => targets.extend(integers.into_iter().chain([T::F32, T::F64, T::Bool, T::Timestamp])),
    }
    targets
}

fn unit() -> impl Strategy<Value = TimeUnit> {
    select(&[TimeUnit::Seconds, TimeUnit::Milliseconds, TimeUnit::Microseconds, TimeUnit::Nanoseconds][..])
}

/// The text of a value in a `default` rule.
fn default_text(ty: FieldType, value: &Owned) -> String {
    match (ty, value) {
        (_, Owned::Bool(value)) => value.to_string(),
        (_, Owned::Int(value)) => value.to_string(),
        (_, Owned::Uint(value)) => value.to_string(),
        (FieldType::F32, Owned::Float(value)) => (*value as f32).to_string(),
        (_, Owned::Float(value)) => value.to_string(),
        (_, Owned::Timestamp(_)) => "2013-01-01T05:00:00.25Z".to_owned(),
        (_, Owned::Text(value)) => value.clone(),
        (_, Owned::Bytes(_)) => "AQID".to_owned(),
        (_, Owned::Null) => unreachable!("values are not null"),
    }
}

/// The draw for one field of the source: its end, target's type and name, whether that is nullable, a unit, and a
/// default.
type FieldCompat = (u8, Index, bool, TimeUnit, Option<Index>);

fn conversion(from: &Format) -> impl Strategy<Value = Conversion> + use<> {
    let names: Vec<(String, FieldType)> = from.fields().iter().map(|field| (field.name.clone(), field.ty)).collect();
    let fates = vec((0_u8..10, any::<Index>(), any::<bool>(), unit(), any::<Option<Index>>()), names.len());
    let new = vec((field_type().prop_flat_map(|ty| (Just(ty), value(ty))), any::<bool>(), any::<bool>()), 1..4);
    let defaults: Vec<BoxedStrategy<Owned>> = names.iter().flat_map(|(_, ty)| targets(*ty)).map(value).collect();
    (fates, new, defaults, any::<u64>()).prop_map(move |(fates, new, defaults, order)| {
        let mut specs: Vec<FieldSpec> = Vec::new();
        let mut rules = Rules::none();
        let add = |rules: &mut Rules, rule| *rules = std::mem::take(rules).with(rule).expect("one rule a field");
        let mut defaults = defaults.into_iter();
        for ((name, ty), (compat, target, nullable, unit, default)) in names.iter().zip::<Vec<FieldCompat>>(fates) {
            let targets = targets(*ty);
            let mut own_defaults = defaults.by_ref().take(targets.len()).collect::<Vec<_>>();
            let at = if compat < 4 { 0 } else { target.index(targets.len()) };
            let (target, default_value) = (targets[at], own_defaults.swap_remove(at));
            let mut to = name.clone();
            match compat {
                9 => continue,
                8 => {
                    add(&mut rules, Rule::Drop { field: name.clone() });
                    // Somebody else's field of that name, which the source's has no part in.
                    let value = default_text(target, &default_value);
                    add(&mut rules, Rule::Default { field: to.clone(), value });
                    specs.push(FieldSpec { nullable, ..FieldSpec::new(to, target) });
                    continue;
                }
                3 | 7 => {
                    to = format!("{name} renamed");
                    while names.iter().any(|(name, _)| *name == to) {
                        to.push('_');
                    }
                    add(&mut rules, Rule::Rename { from: name.clone(), to: to.clone() });
                }
                _ => {}
            }
            if (*ty == FieldType::Timestamp) != (target == FieldType::Timestamp) {
                add(&mut rules, Rule::Unit { field: to.clone(), unit });
            }
            if default.is_some() {
                let value = default_text(target, &default_value);
                add(&mut rules, Rule::Default { field: to.clone(), value });
            }
            specs.push(FieldSpec { nullable, ..FieldSpec::new(to, target) });
        }
        for (index, ((ty, value), nullable, has_default)) in new.into_iter().enumerate() {
            let mut name = format!("new {index}");
            while names.iter().any(|(other, _)| *other == name) || specs.iter().any(|spec| spec.name == name) {
                name.push('_');
            }
            if has_default || !nullable {
                let value = default_text(ty, &value);
                add(&mut rules, Rule::Default { field: name.clone(), value });
            }
            specs.push(FieldSpec { nullable, ..FieldSpec::new(name, ty) });
        }
        let turn = order as usize % specs.len();
        specs.rotate_left(turn);
        // As text and back, which every rule must survive.
        let rules = rules.to_string().parse().expect("what rules print, they read");
        Conversion { to: Format::natural(specs).expect("names differ"), rules }
    })
}

/// Two in three rows have small values, which have room in most types.
fn tame(rows: Vec<Vec<Owned>>) -> Vec<Vec<Owned>> {
    let tame = |value| match value {
        Owned::Int(value) => Owned::Int(value % 128),
        Owned::Uint(value) => Owned::Uint(value % 2),
        Owned::Float(value) => Owned::Float(if value.abs() < 1e30 { value } else { 12.5 }),
        Owned::Timestamp(value) => Owned::Timestamp(value % 100_000_000_000),
        Owned::Text(text) => Owned::Text(text.chars().filter(char::is_ascii).take(3).collect()),
        Owned::Bytes(bytes) => Owned::Bytes(bytes.into_iter().filter(|byte| (1..128).contains(byte)).take(3).collect()),
        other => other,
    };
    let each = rows.into_iter().enumerate();
    each.map(|(index, row)| if index % 3 == 0 { row } else { row.into_iter().map(tame).collect() }).collect()
}

/// The meaning of a conversion, as its page says it: `None` where the record is refused.
fn naive_value<'a>(value: Value<'a>, to: FieldType, unit: TimeUnit) -> Option<Value<'a>> {
    use FieldType as T;
    let integer = |number: i128| match to {
        T::I8 => i8::try_from(number).ok().map(|value| Value::Int(value.into())),
        T::I16 => i16::try_from(number).ok().map(|value| Value::Int(value.into())),
        T::I32 => i32::try_from(number).ok().map(|value| Value::Int(value.into())),
        T::I64 => i64::try_from(number).ok().map(Value::Int),
        T::U8 => u8::try_from(number).ok().map(|value| Value::Uint(value.into())),
        T::U16 => u16::try_from(number).ok().map(|value| Value::Uint(value.into())),
        T::U32 => u32::try_from(number).ok().map(|value| Value::Uint(value.into())),
        T::U64 => u64::try_from(number).ok().map(Value::Uint),
        T::F32 => Some(Value::Float((number as f32).into())),
        T::F64 => Some(Value::Float(number as f64)),
        T::Bool if number == 0 || number == 1 => Some(Value::Bool(number == 1)),
        T::Timestamp => i64::try_from(number * i128::from(unit.nanoseconds())).ok().map(Value::Timestamp),
        _ => None,
    };
    match value {
        Value::Null => Some(Value::Null),
        Value::Bool(_) if to == T::Bool => Some(value),
        Value::Bool(value) => integer(value.into()),
        Value::Timestamp(_) if to == T::Timestamp => Some(value),
        Value::Timestamp(value) => integer((i128::from(value)).div_euclid(unit.nanoseconds().into())),
        Value::Int(value) => integer(value.into()),
        Value::Uint(value) => integer(value.into()),
        Value::Float(value) if to == T::F32 && value.is_finite() && (value as f32).is_infinite() => None,
        Value::Float(value) if to == T::F32 => Some(Value::Float((value as f32).into())),
        Value::Float(value) if to == T::F64 => Some(Value::Float(value)),
        Value::Float(value) if value.is_finite() && value.abs() < 1e30 => integer(value.round_ties_even() as i128),
        Value::Float(_) => None,
        Value::Text(bytes) | Value::Bytes(bytes) => match to {
            T::Bytes => Some(Value::Bytes(bytes)),
            _ if matches!(value, Value::Bytes(_)) && std::str::from_utf8(bytes).is_err() => None,
            T::Char(room) if bytes.len() > room.into() || bytes.ends_with(b"\0") => None,
            _ => Some(Value::Text(bytes)),
        },
        _ => unreachable!("formats here are flat"),
    }
}

/// The new record, field by field; `None` where it is refused.
fn naive(from: &Format, to: &Format, rules: &Rules, bytes: &[u8]) -> Option<Vec<u8>> {
    let record = Record::check(from, bytes).expect("a sound record");
    let mut builder = RecordBuilder::new(to);
    for (index, field) in to.fields().iter().enumerate() {
        let rule = |wanted: fn(&Rule, &str) -> bool| rules.rules().iter().find(|rule| wanted(rule, &field.name));
        let renamed = rule(|rule, name| matches!(rule, Rule::Rename { to, .. } if to == name));
        let taken = rule(|rule, name| match rule {
            Rule::Rename { from, .. } | Rule::Drop { field: from } => from == name,
            _ => false,
        });
        let source = match (renamed, taken) {
            (Some(Rule::Rename { from: old, .. }), _) => from.field(old),
            (_, Some(_)) => None,
            _ => from.field(&field.name),
        };
        let unit = rule(|rule, name| matches!(rule, Rule::Unit { field, .. } if field == name));
        let unit = unit.map_or(TimeUnit::Nanoseconds, |rule| match rule {
            Rule::Unit { unit, .. } => *unit,
            _ => unreachable!(),
        });
        let default = rule(|rule, name| matches!(rule, Rule::Default { field, .. } if field == name));
        let default = default.map(|rule| match rule {
            Rule::Default { value, .. } => value.clone(),
            _ => unreachable!(),
        });
        let found = source.map(|source| record.get(source));
        let value = match found {
            Some(Value::Null) if field.nullable => Value::Null,
            None | Some(Value::Null) if default.is_some() => {
                set_default(&mut builder, index, field.ty, &default.expect("a sound one"));
                continue;
            }
            None => Value::Null,
            Some(value) => naive_value(value, field.ty, unit)?,
        };
        builder.set(index, value).ok()?;
    }
    Some(builder.finish().expect("every field was set").to_vec())
}

fn set_default(builder: &mut RecordBuilder, index: usize, ty: FieldType, text: &str) {
    match ty {
        FieldType::Bool => builder.set_bool(index, text == "true"),
        FieldType::F32 => builder.set_f64(index, text.parse::<f32>().expect("a sound one").into()),
        FieldType::F64 => builder.set_f64(index, text.parse().expect("a sound one")),
        FieldType::Timestamp => builder.set_timestamp(index, 1_357_016_400_250_000_000),
        FieldType::Char(_) | FieldType::String => builder.set_text(index, text),
        FieldType::Bytes => builder.set_bytes(index, &[1, 2, 3]),
        FieldType::U64 => builder.set_u64(index, text.parse().expect("a sound one")),
        _ => builder.set_i64(index, text.parse().expect("a sound one")),
    }
    .expect("a value of the type");
}

fn rows_and_conversion() -> impl Strategy<Value = (Format, Vec<Vec<Owned>>, Conversion)> {
    rows().prop_flat_map(|(format, rows)| {
        let conversion = conversion(&format);
        (Just(format), Just(tame(rows)), conversion)
    })
}

fn records<'a>(format: &Format, payload: &'a [u8]) -> Vec<&'a [u8]> {
    let mut records = Vec::new();
    format
        .check_records(payload, |start, len| records.push(&payload[start as usize..(start + len) as usize]))
        .expect("a builder made them");
    records
}

/// The new records, one behind the other, and the numbers of those that were refused.
fn run_each(plan: &Plan, records: &[&[u8]]) -> (Vec<u8>, Vec<usize>) {
    let (mut out, mut refused) = (Vec::new(), Vec::new());
    for (index, record) in records.iter().enumerate() {
        let before = out.len();
        if let Err(error) = plan.run(record, &mut out) {
            assert_eq!(out.len(), before, "{error}");
            refused.push(index);
        }
    }
    (out, refused)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_plan_is_the_naive_conversion((from, rows, Conversion { to, rules }) in rows_and_conversion()) {
        let plan = Plan::by_name(&from, &to, &rules).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let payload = payload(&from, &rows);
        let records = records(&from, &payload);
        let mut expected = Vec::new();
        let mut refused = Vec::new();
        for (index, record) in records.iter().enumerate() {
            match naive(&from, &to, &rules, record) {
                Some(record) => expected.extend(record),
                None => refused.push(index),
            }
        }
        prop_assert_eq!(run_each(&plan, &records), (expected.clone(), refused.clone()));
        prop_assert!(plan.may_refuse() || refused.is_empty());
        let mut reported: Vec<usize> = Vec::new();
        let mut out = b"before".to_vec();
        let appended = plan.run_all(records.iter().copied(), &mut out, |index, error| {
            assert!(!error.to_string().is_empty() && error.name().is_some());
            reported.push(index);
        });
        prop_assert_eq!((&out[6..], &reported, appended), (&expected[..], &refused, records.len() - refused.len()));
        let (mut out, mut reported) = (Vec::new(), Vec::new());
        plan.run_payload(&payload, &mut out, |index, _| reported.push(index));
        prop_assert_eq!((out, reported), (expected, refused));
    }

    #[test]
    fn many_records_are_as_few(
        (from, rows, Conversion { to, rules }) in rows_and_conversion(),
        times in 1_usize..300,
        short in vec((any::<Index>(), any::<Index>()), 0..4),
    ) {
        // Chunks end in the middle, lengths differ, and some records are refused.
        let plan = Plan::by_name(&from, &to, &rules).unwrap();
        let payload = payload(&from, &rows).repeat(times);
        let mut records: Vec<Vec<u8>> = records(&from, &payload).into_iter().map(<[u8]>::to_vec).collect();
        for (at, length) in short {
            let words = 1 + length.index(from.fixed_bytes() / 8);
            let mut record = vec![0xff; 8 * words];
            record[..4].copy_from_slice(&(8 * words as u32).to_le_bytes());
            if record.len() < from.fixed_bytes() {
                records.insert(at.index(records.len() + 1), record);
            }
        }
        let payload = records.concat();
        let records: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let expected = run_each(&plan, &records);
        let (mut out, mut refused) = (Vec::new(), Vec::new());
        plan.run_all(records.iter().copied(), &mut out, |index, _| refused.push(index));
        prop_assert_eq!(&(out, refused), &expected);
        let (mut out, mut refused) = (Vec::new(), Vec::new());
        plan.run_payload(&payload, &mut out, |index, _| refused.push(index));
        prop_assert_eq!((out, refused), expected);
    }

    #[test]
    fn composed_plans_are_one_after_the_other(
        (from, rows, first, second) in rows_and_conversion().prop_flat_map(|(format, rows, first)| {
            let second = conversion(&first.to);
            (Just(format), Just(rows), Just(first), second)
        })
    ) {
        let payload = payload(&from, &rows);
        let plans = (
            Plan::by_name(&from, &first.to, &first.rules).unwrap(),
            Plan::by_name(&first.to, &second.to, &second.rules).unwrap(),
        );
        prop_assert_eq!(plans.1.compose(&plans.0).is_some(), second.to == from);
        let composed = plans.0.compose(&plans.1);
        for record in records(&from, &payload) {
            let (mut between, mut expected, mut out) = (Vec::new(), Vec::new(), Vec::new());
            let outcome = plans.0.run(record, &mut between).and_then(|()| plans.1.run(&between, &mut expected));
            match &composed {
                Some(composed) => {
                    prop_assert_eq!(composed.run(record, &mut out).is_ok(), outcome.is_ok());
                    prop_assert_eq!(out, expected);
                }
                None => prop_assert!(outcome.is_err()),
            }
        }
    }

    #[test]
    fn hostile_records_make_nothing_panic(
        (from, rows, Conversion { to, rules }) in rows_and_conversion(),
        changes in vec((any::<Index>(), any::<u8>()), 0..8),
        cut in any::<Index>(),
        noise in vec(any::<u8>(), 0..300),
    ) {
        let plan = Plan::by_name(&from, &to, &rules).unwrap();
        let mut payload = payload(&from, &rows);
        for (at, byte) in changes {
            if !payload.is_empty() {
                let at = at.index(payload.len());
                payload[at] ^= byte;
            }
        }
        payload.truncate(cut.index(payload.len() + 1));
        for bytes in [&payload[..], &noise] {
            let mut out = Vec::new();
            let _ = plan.run(bytes, &mut out);
            let _ = plan.run_payload(bytes, &mut out, |_, _| {});
            // A record that passes the check gives one that does.
            if let Ok(record) = Record::check(&from, bytes) {
                let mut out = Vec::new();
                if plan.run(record.bytes(), &mut out).is_ok() {
                    prop_assert_eq!(Record::check(&to, &out).unwrap().bytes().len(), out.len());
                }
            }
        }
    }

    #[test]
    fn any_two_formats_have_a_plan_or_reasons(from in format(), to in format()) {
        match Plan::by_name(&from, &to, &Rules::none()) {
            Ok(plan) => prop_assert!(plan.cost().ns_per_record > 0),
            Err(error) => prop_assert!(!error.flaws.is_empty() && !error.to_string().is_empty()),
        }
        prop_assert!(Plan::by_name(&from, &from, &Rules::none()).unwrap().is_identity());
    }
}

fn schema(text: &str) -> Format {
    Format::parse_schema(text).expect("a sound one")
}

fn plan(from: &str, to: &str, rules: &str) -> Plan {
    Plan::by_name(&schema(from), &schema(to), &rules.parse().expect("a sound one")).expect("a sound one")
}

#[test]
fn a_refused_plan_lists_all_obstacles() {
    let from = schema("a i32\nb string\nc timestamp");
    let to = schema("a bytes\nb i32\nc i64\nd u8\ne u8 null\nf i8\ng timestamp");
    let rules: Rules = "rename x g\ndefault f 300\ndrop y\nunit e ms\ndefault z 1".parse().unwrap();
    let error = Plan::by_name(&from, &to, &rules).unwrap_err();
    let flaws: Vec<(&str, bool)> = error
        .flaws
        .iter()
        .map(|flaw| (flaw.field.as_str(), matches!(flaw.problem, PlanProblem::NoConversion { .. })))
        .collect();
    assert_eq!(
        flaws,
        [
            ("a", true),
            ("b", true),
            ("c", false),
            ("d", false),
            ("f", false),
            ("g", false),
            ("x", false),
            ("y", false),
            ("z", false)
        ]
    );
    let text = error.to_string();
    for words in [
        "field `a`: i32 does not become bytes by name; write the conversion as SQL",
        "add `unit c ns`",
        "add `default d VALUE`",
        "the default `300` is no value of it; expected i8 (-128 to 127)",
        "`drop y` speaks of a field that the source does not have",
        "`default z 1` speaks of a field that the target does not have",
    ] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn names_alone_cost_nothing() {
    let same = plan("a i32\nb string null", "x i32\ny string null", "rename a x\nrename b y");
    assert!(same.is_identity() && !same.may_refuse());
    assert!(!plan("a i32\nb i32", "b i32\na i32", "").is_identity());
    assert!(!plan("a i32\nb i32", "a i32", "").is_identity());
    assert!(!plan("a i32 null", "a i32", "").is_identity());
}

#[test]
fn a_refused_record_says_which_field() {
    let plan = plan("a i64\nb f64 null\nc string", "a i16\nb f32\nc char[2]", "");
    let mut builder = RecordBuilder::new(plan.from());
    let mut refused = |a, b, c: &str| -> ConvertError {
        builder.set_i64(0, a).unwrap();
        builder.set(1, b).unwrap();
        builder.set_text(2, c).unwrap();
        plan.run(builder.finish().unwrap(), &mut Vec::new()).unwrap_err()
    };
    for (error, name, words) in [
        (refused(40_000, Value::Float(0.0), ""), Some("a"), "field `a`: found 40000, which i16 has no room for"),
        (refused(0, Value::Null, ""), Some("b"), "field `b`: found null, and the target's field is not nullable"),
        (refused(0, Value::Float(1e300), ""), Some("b"), "field `b`: found 1e300, which f32 has no room for"),
        (refused(0, Value::Float(0.0), "abc"), Some("c"), "a text of 3 bytes, expected at most 2"),
        (refused(0, Value::Float(0.0), "a\0"), Some("c"), "ends in NUL"),
        (plan.run(&[8, 0, 0, 0], &mut Vec::new()).unwrap_err(), None, "a record of 4 bytes, expected at least"),
    ] {
        assert_eq!(error.name(), name);
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.problem.reason().starts_with("convert_"));
    }
}

#[test]
fn values_that_a_step_refuses_are_refused_by_its_fused_form() {
    // The second step leaves out the field that the first one refuses.
    let first = plan("a i64\nb i32", "a i8\nb i64", "");
    let second = plan("a i8\nb i64", "b i64", "");
    let fused = first.compose(&second).unwrap();
    let mut builder = RecordBuilder::new(first.from());
    builder.set_i64(0, 1000).unwrap();
    builder.set_i64(1, 1).unwrap();
    let error = fused.run(builder.finish().unwrap(), &mut Vec::new()).unwrap_err();
    assert_eq!(error.name(), Some("a"));
    builder.set_i64(0, 100).unwrap();
    fused.run(builder.finish().unwrap(), &mut Vec::new()).unwrap();
}

#[test]
fn costs_grow_with_what_is_done() {
    let cost = |plan: Plan| plan.cost().ns_per_record;
    let few = cost(plan("a i32\nb i32\nc i32", "a i32", ""));
    let more = cost(plan("a i32\nb i32\nc string", "a i64\nb i64\nc string", ""));
    assert!(cost(plan("a i32", "b i32", "rename a b")) <= few && few < more);
    let cost = plan("a string\nb i64", "b i64", "").cost();
    assert_eq!((cost.bytes_in, cost.bytes_out), (24 + 16, 16));
}
