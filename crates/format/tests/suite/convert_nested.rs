//! Plans between formats of nested records, unions, lists, enumerations and decimals, and from foreign layouts: what they
//! do is what the naive conversion does, alone and composed, and no bytes make one panic.

use crate::any;
use crate::conversions::{Conversion, conversion, naive};
use crossdock_format::convert::{Plan, Rules};
use crossdock_format::json::{JsonDecoder, JsonEncoder, JsonOptions};
use crossdock_format::{Format, Record, Value};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use std::fmt::Debug;

fn checked<'a>(format: &'a Format, bytes: &'a [u8]) -> Result<Record<'a>, TestCaseError> {
    Record::check(format, bytes)
        .map_err(|error| TestCaseError::fail(format!("{error}: {:?} of {}", error.field_path(format), format.schema())))
}

fn plan(from: &Format, conversion: &Conversion) -> Result<Plan, TestCaseError> {
    let about = || format!("\n{}\n{}\n{}", from.schema(), conversion.to.schema(), conversion.rules);
    Plan::by_name(from, &conversion.to, &conversion.rules)
        .map_err(|error| TestCaseError::fail(format!("{error}{}", about())))
}

/// Holds a plan against the naive conversion; whether the record was refused.
fn hold(plan: &Plan, conversion: &Conversion, record: &Record<'_>, out: &mut Vec<u8>) -> Result<bool, TestCaseError> {
    out.clear();
    let outcome = plan.run(record.bytes(), out);
    let wanted = naive::convert(conversion, record);
    let about =
        || format!("\n{record:?}\n{}\n{}\n{}", record.format().schema(), conversion.to.schema(), conversion.rules);
    match (&outcome, &wanted) {
        (Ok(()), Some(wanted)) => {
            let (found, wanted) = (checked(&conversion.to, out)?, checked(&conversion.to, wanted)?);
            prop_assert!(is_same(&found, &wanted), "{found:?}\n{wanted:?}{}", about());
            prop_assert!(naive::is_canonical(&found, conversion.to.tree()), "{found:?}{}", about());
            prop_assert_eq!(found.bytes().len(), out.len());
        }
        (Err(error), None) => {
            prop_assert!(out.is_empty() && plan.may_refuse());
            prop_assert!(error.path().is_some() && !error.to_string().is_empty(), "{error}{}", about());
        }
        (Ok(()), None) => prop_assert!(false, "not refused: {:?}{}", Record::check(&conversion.to, out), about()),
        (Err(error), Some(_)) => prop_assert!(false, "refused: {error}{}", about()),
    }
    Ok(outcome.is_err())
}

/// The plan that leaves out fields.
fn whole_from(from: &Format, less: &Format) -> Plan {
    Plan::by_name(from, less, &Rules::none()).unwrap_or_else(|error| panic!("{error}"))
}

/// Whether one record has what another has, as far as it goes.
fn same_fields(less: &Record<'_>, more: &Record<'_>) -> Result<(), TestCaseError> {
    for (index, field) in less.format().fields().iter().enumerate() {
        let other = more.format().field(&field.name).expect("it has that too");
        let (less, more) = (less.get(index), more.get(other));
        prop_assert!(is_same(&less, &more), "{}: {less:?} {more:?}", field.name);
    }
    Ok(())
}

/// Whether two are equal; a NaN is the same as a NaN.
fn is_same<T: PartialEq + Debug>(one: &T, other: &T) -> bool {
    one == other || format!("{one:?}") == format!("{other:?}")
}

/// Holds running many records at a time against running each.
fn hold_many(plan: &Plan, payload: &[u8], records: &[&[u8]]) -> Result<(), TestCaseError> {
    let (mut wanted, mut refused) = (Vec::new(), Vec::new());
    for (index, record) in records.iter().enumerate() {
        if plan.run(record, &mut wanted).is_err() {
            refused.push(index);
        }
    }
    let (mut out, mut reported) = (Vec::new(), Vec::new());
    plan.run_all(records.iter().copied(), &mut out, |index, _| reported.push(index));
    prop_assert_eq!((&out, &reported), (&wanted, &refused));
    let (mut out, mut reported) = (Vec::new(), Vec::new());
    plan.run_payload(payload, &mut out, |index, _| reported.push(index));
    prop_assert_eq!((&out, &reported), (&wanted, &refused));
    prop_assert!(!plan.is_fixed() || wanted.len() == (records.len() - refused.len()) * plan.to().fixed_bytes());
    Ok(())
}

/// A format, records of it back to back, and where each ends.
fn payload(format: &Format, seeds: &[u64]) -> (Vec<u8>, Vec<usize>) {
    let (mut payload, mut ends) = (Vec::new(), Vec::new());
    for seed in seeds {
        payload.extend(any::record(format, *seed));
        ends.push(payload.len());
    }
    (payload, ends)
}

fn records<'a>(payload: &'a [u8], ends: &[usize]) -> Vec<&'a [u8]> {
    let starts = [0].into_iter().chain(ends.iter().copied());
    starts.zip(ends).map(|(start, end)| &payload[start..*end]).collect()
}

/// Layouts of other programs, with all that there is to reading them.
const FOREIGN: [&str; 6] = [
    "layout foreign big packed length n\nn u8\nk char[1]\na string slot u8 u8\nb u16[] slot u8 u8\n\
     u union on k { 'A' => x record { y u24; z f32 null if = nan }; 'B' => w string slot u8 u8 }",
    "layout foreign little packed size variant\nk u8 bits 0..4\nl u8 bits 4..8\n\
     u union on k { 1 => a u32; 2 => b record { m u8; n bool null unless bit 1 of m; t timestamp size 6 unit ms } }",
    "layout foreign little aligned length n +1\nn u16 be\nm u8\nc record { o u8; p u16 }[] count m",
    "layout foreign big packed\na u8\nb i16",
    "layout foreign little packed\na u16\nb enum u8 { A = 1, B = 7 }\nc decimal(4, scale 2) be\nd i32\ne f64 be\nf u64",
    "layout foreign big aligned\nf u8\ng record { x i32; y char[3] pad space } null bit 0 of f\nh i24 null if = -1",
];

/// The same fields in two foreign layouts, and those of them that are not the same in both: sizes, and bits that mark nulls.
const RELAID: [(&str, &str, &[&str]); 4] = [
    (
        FOREIGN[0],
        "layout foreign little packed length n +2\nk char[1]\nn u16\nu union on k { 'B' => w string slot u16 u16; \
         'A' => x record { z f32 null if = nan; y u32 } }\nb u32[] slot u16 u16\na string slot u16 u16",
        &["n"],
    ),
    (FOREIGN[2], "layout foreign big packed length n\nn u32\nm u16\nc record { p u32; o u16 }[] count m", &["n", "m"]),
    (
        FOREIGN[5],
        "layout foreign little packed\ne u8\nh i32 null if = 99999999\ng record { y char[4]; x i64 } null bit 3 of e\nf u8",
        &["e"],
    ),
    (
        "layout foreign little packed\nk u8\na string until nul\nb u32 varint\nl record { o u8; p u16 }[] group u8 u8\nc i16 zigzag",
        "layout foreign big packed length n\nn u16\nl record { p u16; o u8 }[] inline varint\na string inline u16\nk u8\nc i16\nb u32",
        &[],
    ),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(768))]

    #[test]
    fn a_plan_is_the_naive_conversion(from in any::format(), seed in any::<u64>(), seeds in vec(any::<u64>(), 1..8)) {
        let conversion = conversion(&from, seed, 'n');
        let plan = plan(&from, &conversion)?;
        let (payload, ends) = payload(&from, &seeds);
        let records = records(&payload, &ends);
        let mut out = Vec::new();
        for record in &records {
            hold(&plan, &conversion, &checked(&from, record)?, &mut out)?;
        }
        hold_many(&plan, &payload, &records)?;
    }

    #[test]
    fn composed_plans_are_one_after_the_other(from in any::format(), seeds in any::<(u64, u64)>(), rows in vec(any::<u64>(), 1..6)) {
        let first = conversion(&from, seeds.0, 'n');
        let second = conversion(&first.to, seeds.1, 'm');
        let plans = (plan(&from, &first)?, plan(&first.to, &second)?);
        let Some(composed) = plans.0.compose(&plans.1) else { return Ok(()) };
        for seed in rows {
            let record = any::record(&from, seed);
            let (mut between, mut wanted, mut out) = (Vec::new(), Vec::new(), Vec::new());
            let outcome = plans.0.run(&record, &mut between).and_then(|()| plans.1.run(&between, &mut wanted));
            let found = composed.run(&record, &mut out);
            let about = || format!("{found:?} {outcome:?}\n{}\n{}\n{}\n{}\n{}", from.schema(), first.rules, first.to.schema(),
                second.rules, second.to.schema());
            prop_assert_eq!(found.is_ok(), outcome.is_ok(), "{}", about());
            if outcome.is_ok() {
                let (found, wanted) = (checked(&second.to, &out)?, checked(&second.to, &wanted)?);
                prop_assert!(found == wanted, "{found:?}\n{wanted:?}\n{}", about());
            }
        }
    }

    #[test]
    fn in_place_is_as_elsewhere(from in any::format(), seeds in any::<(u64, u64)>(), changes in vec((any::<Index>(), any::<u8>()), 0..3)) {
        let conversion = conversion(&from, seeds.0, 'n');
        let Some(plan) = plan(&from, &conversion)?.in_place() else { return Ok(()) };
        let mut bytes = any::record(&from, seeds.1);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] ^= byte;
        }
        let mut wanted = Vec::new();
        let before = bytes.clone();
        let outcome = plan.plan().run(&bytes, &mut wanted);
        let found = plan.run(&mut bytes);
        prop_assert_eq!(found.is_ok(), outcome.is_ok());
        let Ok(length) = found else {
            prop_assert_eq!(&bytes, &before);
            return Ok(());
        };
        prop_assert!(length <= bytes.len());
        if Record::check(&from, &before).is_ok_and(|record| record.bytes().len() == before.len()) {
            let (found, wanted) = (checked(&conversion.to, &bytes[..length])?, checked(&conversion.to, &wanted)?);
            prop_assert_eq!(found.bytes().len(), length);
            prop_assert!(found == wanted, "{found:?}\n{wanted:?}");
        }
    }

    #[test]
    fn a_narrowed_plan_makes_the_same_for_less(from in any::format(), seeds in any::<(u64, u64)>(), rows in vec(any::<u64>(), 1..6)) {
        let conversion = conversion(&from, seeds.0, 'n');
        let plan = plan(&from, &conversion)?;
        let mut random = any::RandomWords(seeds.1);
        let dependencies = plan.dependencies();
        // A field that may refuse a record is made in any case.
        let members = conversion.to.members();
        let mut makes = vec![false; members.len()];
        for (field, (_, may_refuse)) in dependencies.iter().take(members.len()).enumerate() {
            let is_wanted = *may_refuse || random.below(3) == 0;
            members.iter().zip(&mut makes).filter(|(member, _)| **member == members[field]).for_each(|(_, makes)| *makes |= is_wanted);
        }
        let mut reads = vec![false; from.fields().len()];
        for (fields, _) in dependencies.iter().zip(&makes).filter(|(_, makes)| **makes).map(|(making, _)| making) {
            fields.iter().for_each(|field| reads[*field] = true);
        }
        let Some(whole) = plan.narrowed(&from, &makes) else {
            prop_assert!(!makes.contains(&true));
            return Ok(());
        };
        let less = from.narrowed(&reads);
        let narrowed = less.as_ref().map(|less| (less, whole_from(&from, less), plan.narrowed(less, &makes).expect("it is all there")));
        for seed in rows {
            let record = any::record(&from, seed);
            let (mut out, mut all) = (Vec::new(), Vec::new());
            let outcome = plan.run(&record, &mut all);
            prop_assert_eq!(whole.run(&record, &mut out).is_ok(), outcome.is_ok());
            if outcome.is_ok() {
                same_fields(&checked(whole.to(), &out)?, &checked(&conversion.to, &all)?)?;
            }
            if let Some((_, shorten, narrowed)) = &narrowed {
                let (mut short, mut made) = (Vec::new(), Vec::new());
                shorten.run(&record, &mut short).expect("the same fields");
                prop_assert_eq!(narrowed.run(&short, &mut made).is_ok(), outcome.is_ok());
                prop_assert_eq!(&made, &out);
            }
        }
    }

    #[test]
    fn hostile_records_make_nothing_panic(
        from in any::format(),
        seeds in any::<(u64, u64)>(),
        changes in vec((any::<Index>(), any::<u8>()), 0..8),
        noise in vec(any::<u8>(), 0..300),
    ) {
        let conversion = conversion(&from, seeds.0, 'n');
        let plan = plan(&from, &conversion)?;
        let mut bytes = any::record(&from, seeds.1);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] ^= byte;
        }
        for bytes in [&bytes[..], &noise] {
            let mut out = Vec::new();
            let _ = plan.run(bytes, &mut out);
            let _ = plan.run_payload(bytes, &mut out, |_, error| assert!(!error.to_string().is_empty()));
            // A record that passes the check gives one that does.
            if let Ok(record) = Record::check(&from, bytes) {
                let mut out = Vec::new();
                if plan.run(record.bytes(), &mut out).is_ok() {
                    prop_assert_eq!(checked(&conversion.to, &out)?.bytes().len(), out.len());
                }
            }
        }
    }

    #[test]
    fn foreign_records_are_read_in_place(
        schema in prop::sample::select(&FOREIGN[..]),
        seed in any::<u64>(),
        bytes in vec(prop_oneof![0_u8..24, any::<u8>(), 65_u8..67], 0..160),
    ) {
        let from = Format::parse_schema(schema).expect("a sound one");
        let conversion = conversion(&from, seed, 'n');
        let plan = plan(&from, &conversion)?;
        let (mut rest, mut found, mut out) = (&bytes[..], Vec::new(), Vec::new());
        while let Ok(record) = Record::check(&from, rest) {
            hold(&plan, &conversion, &record, &mut out)?;
            found.push(record.bytes());
            rest = &rest[record.bytes().len()..];
        }
        hold_many(&plan, &bytes[..bytes.len() - rest.len()], &found)?;
        let _ = plan.run_payload(&bytes, &mut out, |_, _| {});
        let _ = plan.run(&bytes, &mut out);
    }

    #[test]
    fn records_of_one_foreign_layout_become_those_of_another(
        (one, other, differ) in prop::sample::select(&RELAID[..]),
        bytes in vec(prop_oneof![0_u8..24, any::<u8>(), 65_u8..67], 0..160),
    ) {
        let (from, to) = (schema(one), schema(other));
        let there = Plan::by_name(&from, &to, &Rules::none()).expect("the same fields");
        let back = Plan::by_name(&to, &from, &Rules::none()).expect("the same fields");
        let (mut rest, mut found) = (&bytes[..], Vec::new());
        while let Ok(record) = Record::check(&from, rest) {
            rest = &rest[record.bytes().len()..];
            found.push(record.bytes());
            let (mut out, mut again) = (Vec::new(), Vec::new());
            if let Err(error) = there.run(record.bytes(), &mut out) {
                prop_assert!(out.is_empty() && error.path().is_some(), "{error}");
                continue;
            }
            let made = checked(&to, &out)?;
            prop_assert_eq!(made.bytes().len(), out.len());
            for (index, field) in from.fields().iter().enumerate().filter(|(_, field)| !differ.contains(&&*field.name)) {
                let other = made.get(to.field(&field.name).expect("the same fields"));
                // Elements of two layouts are never equal, but their values are.
                match (record.get(index), other) {
                    (Value::List(one), Value::List(other)) => prop_assert_eq!(one.len(), other.len()),
                    (one, other) => prop_assert_eq!(one, other, "{}", field.name),
                }
            }
            // A part that was out of place in bytes that nobody wrote is in its place after one turn.
            prop_assert!(back.run(&out, &mut again).is_ok());
            let (mut twice, mut third) = (Vec::new(), Vec::new());
            prop_assert!(there.run(&again, &mut twice).is_ok() && back.run(&twice, &mut third).is_ok());
            prop_assert_eq!((&twice, &third), (&out, &again));
        }
        hold_many(&there, &bytes[..bytes.len() - rest.len()], &found)?;
        let _ = there.run_payload(&bytes, &mut Vec::new(), |_, _| {});
    }

    #[test]
    fn any_two_formats_have_a_plan_or_reasons(from in any::format(), to in any::format()) {
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

fn by_name(from: &str, to: &str, rules: &str) -> Plan {
    let rules: Rules = rules.parse().expect("sound ones");
    Plan::by_name(&schema(from), &schema(to), &rules).unwrap_or_else(|error| panic!("{error}"))
}

/// A record from its JSON.
fn from_json(format: &Format, text: &str) -> Vec<u8> {
    JsonDecoder::new(format, &JsonOptions::default()).decode(text.as_bytes()).expect("a record").to_vec()
}

/// The conversion of a record, as JSON; or why it is refused.
fn made(plan: &Plan, text: &str) -> Result<String, String> {
    let mut out = Vec::new();
    plan.run(&from_json(plan.from(), text), &mut out).map_err(|error| error.to_string())?;
    let mut line = Vec::new();
    JsonEncoder::new(plan.to()).record(&Record::check(plan.to(), &out).expect("a sound one"), &mut line);
    Ok(String::from_utf8(line).expect("text").trim_end().to_owned())
}

#[test]
fn rules_name_what_lies_in_records_and_lists() {
    let from = "pos record { x f32; y f32 }\nlegs record { carrier char[2]; at i64[]; note string }[]\nsize i32";
    let to = "place record { x f64; up f64 }\nflights record { airline string; at timestamp[]; km u16 }[]\n\
              extra record { size i32 } null";
    let rules = "rename pos place\nrename pos.y place.up\nrename legs flights\nrename legs[].carrier flights[].airline\n\
                 unit flights[].at[] s\ndefault flights[].km 7\nrename size extra.size";
    assert_eq!(
        made(
            &by_name(from, to, rules),
            r#"{"pos":{"x":1.5,"y":2},"legs":[{"carrier":"UA","at":[1,2],"note":"n"},{"carrier":"B6","at":[],"note":""}],"size":3}"#
        )
        .unwrap(),
        "{\"place\":{\"x\":1.5,\"up\":2.0},\"flights\":[{\"airline\":\"UA\",\"at\":[\"1970-01-01T00:00:01Z\",\
         \"1970-01-01T00:00:02Z\"],\"km\":7},{\"airline\":\"B6\",\"at\":[],\"km\":7}],\"extra\":{\"size\":3}}"
    );
}

#[test]
fn a_refused_plan_names_the_field() {
    let from =
        schema("a record { b i32 }\nc i32[]\nd union { e i32; f string }\ng i32[3]\nh record { i u8 }[]\nj u8[]");
    let to = schema(
        "a i32\nc record { e i32 }[]\nd record { e i32 }\ng i32[2]\nh record { i bytes; k u8; l u8 }[]\nm union { n u8 }",
    );
    let rules: Rules = "rename j[] h[].l\ndrop h[].nothing\ndefault a.b 1\nunit c ms".parse().unwrap();
    let text = Plan::by_name(&from, &to, &rules).unwrap_err().to_string();
    for words in [
        "field `a`: it is a nested record in the source and a single value in the target",
        "field `c`: `unit` is for an integer",
        "field `d`: it is a union in the source and a nested record in the target",
        "field `g`: the source has always 3 elements, the target 2",
        "field `h[].i`: u8 does not become bytes by name",
        "field `h[].k`: the source has no such field; add `default h[].k VALUE`",
        "field `h[].l`: `j[]` is not in the list that this one is made from",
        "field `m`: no variant of it is in the source",
        "`drop h[].nothing` speaks of a field that the source does not have",
        "`default a.b 1` speaks of a field that the target does not have",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn a_refused_record_says_where() {
    let plan = by_name(
        "a record { b i32 null } null\nc record { d i32[] }[]\ne union { f i32; g string; h u8 }\ni enum u8 { A = 1; B = 2 }\n\
         j decimal(8, scale 2)\nk u8[]\nm i32[][]",
        "a record { b i32 } null\nc record { d i8[] }[]\ne union { f i32; g string } null\ni enum u8 { B = 1 }\n\
         j i32\nk u8[2]\nm u8[][]",
        "",
    );
    let record = |change: &str, to: &str| {
        r#"{"a":{"b":1},"c":[{"d":[1]},{"d":[2,3]}],"e":{"f":1},"i":"B","j":7,"k":[1,2],"m":[[],[1,2]]}"#
            .replace(change, to)
    };
    let sound = r#"{"a":{"b":1},"c":[{"d":[1]},{"d":[2,3]}],"e":{"f":1},"i":"B","j":7,"k":[1,2],"m":[[],[1,2]]}"#;
    assert_eq!(made(&plan, sound).unwrap(), sound);
    assert!(made(&plan, &record(r#"{"b":1}"#, "null")).unwrap().starts_with(r#"{"a":null,"#));
    for (change, to, words) in [
        (r#"{"b":1}"#, r#"{"b":null}"#, "field `a.b`: found null"),
        ("[2,3]", "[2,300]", "field `c[1].d[1]`: found 300, which i8 has no room for"),
        (r#"{"f":1}"#, r#"{"h":1}"#, "field `e`: found a variant that the target's union does not have"),
        (r#""B""#, r#""A""#, "field `i`: found the symbol of number 1, which the target's enumeration does not have"),
        (r#""B""#, "9", "field `i`: found the number 9, which has no symbol"),
        (r#""j":7"#, r#""j":7.5"#, "field `j`: found 750 at scale 2, which i32 does not hold exactly"),
        ("\"k\":[1,2]", "\"k\":[1]", "field `k`: found 1 elements, expected 2"),
        ("[],[1,2]", "[],[1,-2]", "field `m[1][1]`: found -2, which u8 has no room for"),
    ] {
        let error = made(&plan, &record(change, to)).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn steps_over_nested_formats_fuse() {
    let one = "id u32\npos record { x f32; y f32 null } null\nlegs record { km i16; to string }[]\nu union { a i8; b string }";
    let two = "id u64\npos record { x f64; y f64 null } null\nlegs record { km i32; to string }[]\nu union { a i16; b string }";
    let three = "id u64\nplace record { y f64; x f64 } null\nlegs record { miles i64; to string }[]\nu union { a i32; c string }";
    let rules = "rename pos place\ndefault place.y 0\nrename legs[].km legs[].miles\nrename u.b u.c";
    let (first, second) = (by_name(one, two, ""), by_name(two, three, rules));
    let fused = first.compose(&second).expect("nothing is in the way");
    assert!(!first.may_refuse() && !fused.may_refuse());
    for (text, wanted) in [
        (
            r#"{"id":1,"pos":{"x":1,"y":null},"legs":[{"km":5,"to":"JFK"}],"u":{"b":"t"}}"#,
            r#"{"id":1,"place":{"y":0.0,"x":1.0},"legs":[{"miles":5,"to":"JFK"}],"u":{"c":"t"}}"#,
        ),
        (r#"{"id":1,"pos":null,"legs":[],"u":{"a":-3}}"#, r#"{"id":1,"place":null,"legs":[],"u":{"a":-3}}"#),
    ] {
        assert_eq!(made(&fused, text).as_deref(), Ok(wanted));
    }
    assert!(first.cost().ns_per_record + second.cost().ns_per_record > fused.cost().ns_per_record);
    // The first of these refuses a variant: one plan of both would not see it.
    let narrow = by_name(two, "u union { a i16 }", "");
    assert!(narrow.compose(&by_name("u union { a i16 }", "u union { a i32 }", "")).is_none());
}

#[test]
fn names_alone_cost_nothing() {
    let from = "a record { b i32 null } null\nc record { d string }[]\ne union { f i32; g string }";
    let to = "h record { i i32 null } null\nj record { k string }[]\nl union { m i32; n string }";
    let rules =
        "rename a h\nrename a.b h.i\nrename c j\nrename c[].d j[].k\nrename e l\nrename e.f l.m\nrename e.g l.n";
    assert!(by_name(from, to, rules).is_identity());
    assert!(!by_name("a union { b i32; c u8 } null", "a union { b i32; c u8 }", "").is_identity());
    assert!(
        !by_name("a union { b i32; c i32 }", "a union { b i32; c i32 }", "rename a.b a.c\nrename a.c a.b")
            .is_identity()
    );
}

#[test]
fn a_feed_of_big_endian_messages_is_made() {
    let from =
        "kind char[1]\nqty u32\nprice decimal(8, scale 4)\nsymbol string\nlevels record { px decimal(8, scale 4) }[]";
    let to = "layout foreign big packed length size\nsize u16\nkind char[1]\nqty u24\nprice decimal(4, scale 2)\n\
              symbol char[4] pad space\nn u8\nlevels record { px decimal(4, scale 4) }[] count n";
    let plan = by_name(from, to, "");
    let mut out = Vec::new();
    let text = r#"{"kind":"A","qty":259,"price":1.5,"symbol":"AB","levels":[{"px":0.0001},{"px":0.5}]}"#;
    plan.run(&from_json(plan.from(), text), &mut out).unwrap();
    assert_eq!(out, b"\0\x17A\0\x01\x03\0\0\0\x96AB  \x02\0\0\0\x01\0\0\x13\x88");
    for (change, to, words) in [
        ("259", "16777216", "field `qty`: found 16777216, expected a number of 24 bits without a sign"),
        ("1.5", "1.555", "field `price`: found 15550 at scale 4"),
        ("0.5", "3000000", "field `levels[1].px`: found 30000000000 at scale 4"),
    ] {
        let error = made(&plan, &text.replace(change, to)).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
    assert!(plan.compose(&by_name(to, from, "")).is_none());
    assert!(
        by_name("kind char[1]\nqty u8", "kind char[1]\nqty u32", "")
            .compose(&by_name("kind char[1]\nqty u32", "layout foreign big packed\nkind char[1]\nqty u24", ""))
            .is_some()
    );
}

#[test]
fn fitting_values_are_made_in_place() {
    let in_place = |from: &str, to: &str, rules: &str| by_name(from, to, rules).in_place();
    let plan =
        in_place("a i64\nsecret i32\nb string null\nc f64", "c f32\nb string null\na i16", "drop secret").unwrap();
    let mut record = from_json(plan.plan().from(), r#"{"a":300,"secret":1234567890,"b":"text","c":0.5}"#);
    let length = plan.run(&mut record).unwrap();
    assert_eq!(length, record.len());
    assert!(!record.windows(4).any(|word| word == 1_234_567_890_i32.to_le_bytes()), "it is gone from the bytes");
    let made = Record::check(plan.plan().to(), &record).unwrap();
    assert_eq!((made.get(0), made.get(1), made.get(2)), (Value::Float(0.5), Value::Text(b"text"), Value::Int(300)));
    // Without a variable part the record is shorter, and what was there is no part of it.
    let plan = in_place("a i64\nb string", "a i32", "").unwrap();
    let mut record = from_json(plan.plan().from(), r#"{"a":7,"b":"gone"}"#);
    assert_eq!(plan.run(&mut record), Ok(8));
    assert_eq!(record[..8], [8, 0, 0, 0, 7, 0, 0, 0]);
    let mut record = from_json(plan.plan().from(), r#"{"a":5000000000,"b":"kept"}"#);
    let before = record.clone();
    assert_eq!(plan.run(&mut record).unwrap_err().path().as_deref(), Some("a"));
    assert_eq!(record, before);
    for (from, to) in [
        ("a i32", "a i64\nb i64 null"),
        ("a string\nb string", "a string"),
        ("a i32[]\nb i8", "a i64[]"),
        ("a string", "a char[4]"),
    ] {
        let is_there = in_place(from, to, "").is_some();
        assert_eq!(is_there, to == "a char[4]", "{from}: {to}");
    }
}

#[test]
fn a_bounded_plan_makes_no_longer_records() {
    let plan = by_name("a record { b u8 }[]", "a record { b u8; c char[1000] }[]", "default a[].c x").within(4000);
    let text = |count: usize| format!("{{\"a\":[{}]}}", vec!["{\"b\":1}"; count].join(","));
    assert!(made(&plan, &text(3)).is_ok());
    let error = made(&plan, &text(4)).unwrap_err();
    assert!(error.contains("the new record would be longer"), "{error}");
}
