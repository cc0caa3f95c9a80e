//! The registry: what it refuses, what a reader would see, and that its log brings it back whatever became of its end.

use crate::arbitrary::format;
use crossdock_format::convert::{Conversion, Plan, Rules};
use crossdock_format::registry::{
    Diff, Entry, MAX_BYTES, MAX_ENTRY_BYTES, MAX_VERSIONS, Policy, Registry, RegistryError, Seen, replay,
};
use crossdock_format::{FieldSpec, FieldType, Format, MAX_DESCRIPTION_BYTES};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Something done to a registry.
#[derive(Clone, Debug)]
enum Deed {
    Announce(usize, usize),
    Policy(usize, Policy),
    Keep(usize, usize, String),
    Forget(usize, usize),
    Guard(usize, usize),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        4 => (0_usize..3, 0_usize..6).prop_map(|(stream, format)| Deed::Announce(stream, format)),
        1 => (0_usize..3, select(&Policy::ALL[..])).prop_map(|(stream, policy)| Deed::Policy(stream, policy)),
        2 => (0_usize..6, 0_usize..6, select(&["", "drop a", "SELECT a FROM x\nWHERE a > 1"][..]))
            .prop_map(|(from, to, text)| Deed::Keep(from, to, text.to_owned())),
        1 => (0_usize..6, 0_usize..6).prop_map(|(from, to)| Deed::Forget(from, to)),
        1 => (0_usize..3, 0_usize..6).prop_map(|(stream, format)| Deed::Guard(stream, format)),
    ]
}

const STREAMS: [&str; 3] = ["flights", "a stream's name with blanks", "é"];

/// Does them all; what changed, entry by entry.
fn done(deeds: &[Deed], formats: &[Format]) -> (Registry, Vec<Entry>) {
    let mut registry = Registry::default();
    let mut entries = Vec::new();
    let at = |index: &usize| &formats[index % formats.len()];
    for deed in deeds {
        match deed {
            Deed::Announce(stream, format) => {
                let checked = registry.check(STREAMS[*stream], at(format));
                let before = registry.clone();
                match registry.announce(STREAMS[*stream], at(format)) {
                    Ok(announced) => {
                        assert_eq!(checked, Ok(()));
                        let stream = registry.stream(STREAMS[*stream]).expect("was announced");
                        assert_eq!(stream.version(at(format).id()), Some(announced.version));
                        entries.extend(announced.entries);
                    }
                    Err(error) => {
                        assert_eq!(checked.as_ref(), Err(&error));
                        assert_eq!(registry, before);
                        assert!(!error.to_string().is_empty());
                    }
                }
            }
            Deed::Policy(stream, policy) => {
                entries.push(registry.set_policy(STREAMS[*stream], *policy).expect("a sound name"));
            }
            Deed::Keep(from, to, text) => {
                let conversion: Conversion = text.parse().expect("a sound one");
                entries.extend(registry.keep(STREAMS[from % 3], at(from), at(to), &conversion).expect("a sound one"));
            }
            Deed::Forget(from, to) => {
                entries.extend(registry.forget(STREAMS[from % 3], at(from).id(), at(to).id()));
            }
            Deed::Guard(stream, format) => {
                let (stream, format) = (STREAMS[*stream], at(format).id());
                let is_version = registry.stream(stream).is_some_and(|stream| stream.version(format).is_some());
                match registry.guard(stream, format) {
                    Ok(entry) => entries.extend(entry),
                    Err(error) => assert_eq!(error, RegistryError::UnknownFormat { id: format }),
                }
                assert_eq!(registry.guarded(stream).any(|id| id == format), is_version);
            }
        }
    }
    (registry, entries)
}

fn log(entries: impl IntoIterator<Item = Entry>) -> Vec<u8> {
    let mut log = Vec::new();
    entries.into_iter().for_each(|entry| entry.write(&mut log));
    log
}

proptest! {
    #[test]
    fn a_log_brings_the_registry_back(formats in vec(format(), 1..6), deeds in vec(deed(), 0..30), cut in any::<Index>()) {
        let (registry, entries) = done(&deeds, &formats);
        let whole = log(entries.clone());
        let replayed = replay(&whole);
        prop_assert!(replayed.passed_over.is_empty(), "{:?}", replayed.passed_over);
        prop_assert_eq!((&replayed.registry, replayed.whole_bytes), (&registry, whole.len()));
        // In the fewest entries.
        let short = log(registry.entries());
        prop_assert!(registry.entries().count() <= entries.len());
        prop_assert_eq!(&replay(&short).registry, &registry);
        // Torn anywhere: all that was whole before is there, and appending goes on from there.
        let cut = cut.index(whole.len() + 1);
        let torn = replay(&whole[..cut]);
        prop_assert!(torn.whole_bytes <= cut && torn.passed_over.is_empty());
        prop_assert_eq!(replay(&whole[..torn.whole_bytes]).registry, torn.registry);
        prop_assert_eq!(replay(&whole[..torn.whole_bytes]).whole_bytes, torn.whole_bytes);
        let rest = replay(&[&whole[..torn.whole_bytes], &whole[torn.whole_bytes..]].concat());
        prop_assert_eq!(rest.registry, registry);
    }

    #[test]
    fn hostile_logs_make_nothing_panic(
        formats in vec(format(), 1..4),
        deeds in vec(deed(), 1..10),
        changes in vec((any::<Index>(), any::<u8>()), 1..6),
        noise in vec(any::<u8>(), 0..200),
    ) {
        let (_, entries) = done(&deeds, &formats);
        let mut log = log(entries);
        for (at, byte) in changes {
            if !log.is_empty() {
                let at = at.index(log.len());
                log[at] ^= byte;
            }
        }
        for log in [log, noise] {
            let replayed = replay(&log);
            prop_assert!(replayed.whole_bytes <= log.len());
            prop_assert_eq!(replay(&log[..replayed.whole_bytes]).registry, replayed.registry);
        }
    }

    #[test]
    fn a_diff_says_what_a_plan_does(reader in format(), written in format()) {
        let diff = Diff::of(&reader, &written);
        let plan = Plan::by_name(&written, &reader, &Rules::none());
        prop_assert_eq!(diff.is_readable(), plan.is_ok());
        prop_assert_eq!(diff.fields.len(), reader.fields().len());
        prop_assert_eq!(diff.is_compatible(), plan.is_ok_and(|plan| !plan.may_refuse()));
        let same = Diff::of(&reader, &reader);
        prop_assert!(same.is_compatible() && same.lost.is_empty());
    }
}

fn schema(text: &str) -> Format {
    Format::parse_schema(text).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_reader_s_view() {
    let reader = schema("a i32\nb i64\nc i16\nd string null\ne u8\nf i32\ng string");
    let written = schema("a i32\nb i32\nc i64\ne u8 null\nf bytes\nx u8");
    let diff = Diff::of(&reader, &written);
    let text = diff.to_string();
    assert_eq!(
        text,
        "a: same\nb: converted, i32 to i64\nc: converted, i64 to i16; values with no room there are refused\n\
         d: null: there is no such field\ne: same; null is refused\n\
         f: unreadable: bytes does not become i32 by name; write the conversion as SQL, with what is meant\n\
         g: unreadable: the source has no such field; add `default g VALUE`, or `rename OLD g`, or make it nullable\n\
         x: lost\n"
    );
    assert!(matches!(diff.fields[3].seen, Seen::Null) && !diff.is_readable() && !diff.is_compatible());
}

#[test]
fn a_reader_s_view_of_nested_fields() {
    let reader = schema(
        "a record { b i64; c i32 null } null\nd union { e i32; f string }\ng enum u8 { A = 1; B = 2 }\n\
         h record { i i32; j u8 }[]\nk i16[]\nl record { m i32 } null\nn i32[2]",
    );
    let written = schema(
        "a record { b i32; c i32 null } null\nd union { e i32; f string; x bool }\ng enum u8 { A = 2 }\n\
         h record { i i32; o u8 }[]\nk i32[]\nn i32[]",
    );
    let diff = Diff::of(&reader, &written);
    assert_eq!(
        diff.to_string(),
        "a.b: converted, i32 to i64\na.c: same\nd.e: same\nd.f: same\n\
         g: converted, enum u8 { A = 2 } to enum u8 { A = 1, B = 2 }\n\
         h: converted, record { i i32; o u8 }[] to record { i i32; j u8 }[]\n\
         k: converted, i32[] to i16[]; values with no room there are refused\nl.m: null: there is no such field\n\
         n: converted, i32[] to i32[2]; values with no room there are refused\n\
         d: converted, union to union; values with no room there are refused\n\
         h[].j: unreadable: the source has no such field; add `default h[].j VALUE`, or `rename OLD h[].j`, or make it \
         nullable\nd.x: lost\nh[].o: lost\n"
    );
    assert!(!diff.is_readable());
    // A symbol more is no harm to who reads it.
    let [old, new] = [schema("a enum u8 { A = 1 }"), schema("a enum u8 { A = 1; B = 2 }")];
    assert!(Diff::of(&new, &old).is_compatible() && !Diff::of(&old, &new).is_compatible());
}

#[test]
fn fields_read_by_an_alias_are_not_lost() {
    let format = |schema: &str| Format::parse_schema(schema).unwrap();
    let written = format("a i64\nr record { b u8; gone u8 }\nlegs record { km u16 }[]");
    let reader =
        format("n i64 alias a\ns record { c u8 alias b } alias r\nways record { distance u16 alias km }[] alias legs");
    assert_eq!(Diff::of(&reader, &written).lost, ["r.gone"]);
    assert_eq!(Diff::of(&written, &reader).lost.len(), 3, "aliases are those of the reader");
}

#[test]
fn losses_in_lists_have_their_path() {
    let reader = schema("a record { b record { c u8; d u8[] }[] }[]\ne u8[]\nf u8[]\ng u8");
    let written = schema(
        "x u8[]\na record { b record { c u8; d u8[]; h record { i u8; j u8[] } }[]; k record { l u8 }[] }[]\ne u8[]\n\
         f record { m u8 }[]\ng record { n u8 }[]",
    );
    assert_eq!(
        Diff::of(&reader, &written).lost,
        ["x", "a[].b[].h.i", "a[].b[].h.j", "a[].k"],
        "and what cannot be read at all is not said to be lost"
    );
    assert_eq!(Diff::of(&written, &reader).lost, [] as [&str; 0]);
}

#[test]
fn policies_look_the_way_they_say() {
    let old = schema("a i32\nb i32");
    let more = schema("a i32\nb i32\nc i32");
    let fewer = schema("a i32");
    let nullable = schema("a i32\nb i32\nc i32 null");
    let wider = schema("a i64\nb i32");
    for (policy, allowed) in [
        (Policy::None, [true, true, true, true]),
        // The new reader lacks c in old records; everything else it can read.
        (Policy::Backward, [false, true, true, true]),
        // The old reader lacks b in records of fewer fields, and may have no room for a wider one.
        (Policy::Forward, [true, false, true, false]),
        (Policy::Full, [false, false, true, false]),
    ] {
        for (new, allowed) in [&more, &fewer, &nullable, &wider].into_iter().zip(allowed) {
            let mut registry = Registry::default();
            registry.announce("s", &old).unwrap();
            registry.set_policy("s", policy).unwrap();
            let outcome = registry.announce("s", new);
            assert_eq!(outcome.is_ok(), allowed, "{policy}: {new:?}");
            if let Err(error) = outcome {
                assert!(matches!(error, RegistryError::Incompatible { .. }));
                assert!(
                    error
                        .to_string()
                        .contains("change the format, keep a conversion between the two, or set another policy"),
                    "{error}"
                );
                assert!(registry.format(new.id()).is_none());
            }
            // A format that was announced before may be announced again, whatever the policy.
            assert_eq!(registry.announce("s", &old).unwrap().version, 1);
        }
    }
}

#[test]
fn transitive_policies_look_at_all_versions() {
    let [first, second] = [schema("a i32\nb i32"), schema("a i32\nb i32 null")];
    // A reader of it could read records of the second version, and not all of the first; and the other way round.
    let third = schema("a i32\nb i32 null\nc i32 null");
    for (policy, new, allowed) in [
        (Policy::Backward, &third, true),
        (Policy::BackwardTransitive, &third, true),
        (Policy::Forward, &third, true),
        (Policy::ForwardTransitive, &third, false),
        (Policy::Full, &third, true),
        (Policy::FullTransitive, &third, false),
    ] {
        let mut registry = Registry::default();
        registry.announce("s", &first).unwrap();
        registry.announce("s", &second).unwrap();
        registry.set_policy("s", policy).unwrap();
        let outcome = registry.check("s", new);
        assert_eq!(outcome.is_ok(), allowed, "{policy}");
        if let Err(error) = outcome {
            let text = error.to_string();
            assert!(
                text.contains("new records, as readers of v1 would see them, field `b`: same; null is refused"),
                "{text}"
            );
        }
    }
    for policy in Policy::ALL {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
}

#[test]
fn conversions_that_are_kept_count_where_a_policy_is_checked() {
    let mut registry = Registry::default();
    let [old, renamed, wider] = [schema("a i32"), schema("b i32"), schema("b i64")];
    registry.announce("s", &old).unwrap();
    registry.set_policy("s", Policy::BackwardTransitive).unwrap();
    assert!(registry.check("s", &renamed).is_err());
    registry.keep("t", &old, &renamed, &"rename a b".parse().unwrap()).unwrap();
    assert!(registry.check("s", &renamed).is_err(), "that is another stream's");
    registry.keep("s", &old, &renamed, &"rename a b".parse().unwrap()).unwrap();
    assert_eq!(registry.announce("s", &renamed).unwrap().version, 2);
    // Through the one that is kept, and then by name.
    assert_eq!(registry.announce("s", &wider).unwrap().version, 3);
    registry.forget("s", old.id(), renamed.id()).unwrap();
    assert!(registry.check("s", &schema("b i64\nc i8 null")).is_err());
    // A format that a conversion was registered from is not converted by name, however well it would fit.
    let mut registry = Registry::default();
    registry.announce("s", &old).unwrap();
    registry.guard("s", old.id()).unwrap();
    registry.set_policy("s", Policy::Backward).unwrap();
    let why = registry.check("s", &schema("a i64")).unwrap_err().to_string();
    assert!(why.contains("records of v1") && why.contains("a conversion was registered from their format"), "{why}");
}

#[test]
fn two_formats_of_one_id_are_distinguished_by_their_digests() {
    let known = schema("a i32");
    let other = schema("b i32").with_id(known.id()).unwrap();
    assert!(known.id() == other.id() && known != other && known.digest() != other.digest());
    let mut registry = Registry::default();
    registry.announce("s", &known).unwrap();
    let before = registry.clone();
    let conversion: Conversion = "rename a b".parse().unwrap();
    let collision = Err(RegistryError::Collision { id: known.id() });
    // Also on the stream whose version it seems to be.
    for stream in ["s", "t"] {
        assert_eq!(registry.check(stream, &other), collision);
        assert_eq!(registry.announce(stream, &other).map(drop), collision);
        assert_eq!(registry.keep(stream, &schema("c i32"), &other, &conversion).map(drop), collision);
    }
    assert_eq!(registry.apply(&Entry::Format(other)), collision);
    assert_eq!(registry, before);
}

#[test]
fn conversions_bring_their_formats_and_take_them_along() {
    let mut registry = Registry::default();
    let [a, b, c] = [schema("a i32"), schema("b i32"), schema("c i32")];
    let conversion: Conversion = "rename a b".parse().unwrap();
    registry.announce("s", &a).unwrap();
    let known = registry.clone();
    let kept = registry.keep("s", &a, &b, &conversion).unwrap();
    assert!(matches!(&kept[..], [Entry::Format(format), Entry::Conversion { .. }] if *format == b), "{kept:?}");
    let alone = Registry::default().apply(&kept[1]);
    assert!(matches!(alone, Err(RegistryError::UnknownFormat { .. })), "{alone:?}");
    // Another one in its place, and a second one to the same format.
    assert_eq!(registry.keep("s", &a, &b, &"default b 1\ndrop a".parse().unwrap()).unwrap().len(), 1);
    registry.keep("t", &c, &b, &conversion).unwrap();
    assert_eq!((registry.conversions().count(), registry.formats().count()), (2, 3));
    assert!(registry.forget("s", a.id(), b.id()).is_some() && registry.forget("s", a.id(), b.id()).is_none());
    assert_eq!(registry.formats().count(), 3, "the second one is from c to b");
    registry.forget("t", c.id(), b.id()).unwrap();
    assert_eq!(registry, known, "a is a version, the others are gone with their conversions");
    // An entry that was to be kept and could not be is gone too.
    let long = Conversion::Sql("x".repeat(1 << 17));
    let refused = registry.keep("s", &a, &b, &long).unwrap_err();
    assert!(refused.to_string().contains("131072 bytes as text, expected at most 65536"), "{refused}");
    assert_eq!(registry, known);
    // And in a log that was cut between a format and its conversion.
    let cut = replay(&log([Entry::Format(b.clone())]));
    assert!(cut.passed_over.is_empty() && cut.registry == Registry::default());
}

#[test]
fn removed_entries_leave_nothing_behind_and_may_come_again() {
    let mut registry = Registry::default();
    let [a, b, c] = [schema("a i32"), schema("b i32"), schema("c i32")];
    let mut entries = registry.announce("other", &a).unwrap().entries;
    let others = registry.clone();
    let fill = |registry: &mut Registry| {
        let mut entries = registry.announce("s", &a).unwrap().entries;
        entries.extend(registry.announce("s", &b).unwrap().entries);
        entries.extend(registry.guard("s", b.id()).unwrap());
        entries.push(registry.set_policy("s", Policy::Backward).unwrap());
        entries.extend(registry.keep("s", &a, &c, &"rename a c".parse().unwrap()).unwrap());
        entries
    };
    entries.extend(fill(&mut registry));
    let full = registry.clone();
    // The second version goes, with its guard; the first one is the newest then.
    entries.extend(registry.remove_version("s", b.id()));
    assert_eq!(registry.remove_version("s", b.id()), None);
    assert_eq!(registry.stream("s").unwrap().versions(), [a.id()]);
    assert!(registry.format(b.id()).is_none() && registry.guarded("s").next().is_none());
    assert_eq!(replay(&log(entries.clone())).registry, registry);
    // All goes, but for what another stream has too.
    entries.extend(registry.remove_stream("s"));
    assert_eq!(registry.remove_stream("s"), None);
    assert_eq!(registry, others);
    assert_eq!(replay(&log(entries.clone())).registry, others);
    entries.extend(fill(&mut registry));
    assert_eq!(registry, full);
    let replayed = replay(&log(entries));
    assert!(replayed.passed_over.is_empty() && replayed.registry == full, "{:?}", replayed.passed_over);
    // A stream that has a conversion and nothing else.
    let mut registry = Registry::default();
    registry.keep("t", &a, &b, &"rename a b".parse().unwrap()).unwrap();
    assert!(registry.remove_stream("t").is_some());
    assert_eq!(registry, Registry::default());
}

#[test]
fn conversions_of_too_many_bytes_are_refused_and_the_log_stays_readable() {
    let formats: Vec<Format> = (0..64).map(|index| schema(&format!("a{index} i32"))).collect();
    let mut registry = Registry::default();
    let conversion = |text: &str| Conversion::Sql(format!("SELECT {}", text.repeat(60_000)));
    let pairs = || formats.iter().flat_map(|from| formats.iter().map(move |to| (from, to)));
    let mut kept = 0;
    let (refused, (from, to)) = pairs()
        .find_map(|(from, to)| match registry.keep("s", from, to, &conversion("x")) {
            Ok(_) => {
                kept += 1;
                None
            }
            Err(error) => Some((error, (from, to))),
        })
        .expect("not all of these have room");
    assert!(matches!(refused, RegistryError::Full { most: MAX_BYTES, .. }), "{refused}");
    assert!(refused.to_string().contains("at most 67108864 bytes"), "{refused}");
    assert_eq!(registry.conversions().count(), kept);
    let full = registry.clone();
    assert!(registry.keep("s", from, to, &conversion("y")).is_err() && registry == full);
    // One in the place of another has room.
    registry.keep("s", &formats[0], &formats[0], &conversion("y")).unwrap();
    let whole = log(registry.entries());
    assert!(whole.len() <= MAX_BYTES);
    let replayed = replay(&whole);
    assert!(replayed.passed_over.is_empty() && replayed.registry == registry);
    // And so has one more once another is gone.
    registry.forget("s", formats[1].id(), formats[1].id()).unwrap();
    registry.keep("s", from, to, &conversion("y")).unwrap();
}

#[test]
fn a_description_longer_than_a_log_takes_is_refused() {
    let symbols = |most: usize| -> String { (0..most).map(|n| format!("A{n:0>249} = {n}; ")).collect() };
    let long = |most| Format::parse_schema(&format!("a enum u16 {{ {} }}", symbols(most)));
    let refused = long(14_000).unwrap_err();
    assert!(refused.to_string().contains("the format's description takes") && refused.to_string().contains("3 MiB"));
    let format = long(7000).unwrap();
    assert!(format.describe().len() > 1 << 20 && format.describe().len() <= MAX_DESCRIPTION_BYTES);
    let mut registry = Registry::default();
    let entries = registry.announce("s", &format).unwrap().entries;
    assert!(entries.iter().all(|entry| entry.bytes() < MAX_ENTRY_BYTES));
    assert_eq!(replay(&log(entries)).registry, registry);
    // The most fields there can be, with the longest names, which need quotes throughout.
    let fields = (0..4096).map(|n| FieldSpec::nullable(format!("{n:\"<255}"), FieldType::U8));
    assert!(Format::natural(fields).is_ok());
}

#[test]
fn versions_keep_their_numbers_when_one_between_them_is_removed() {
    let formats = ["a i32", "b i32", "c i32", "d i32"].map(schema);
    let (mut registry, mut entries) = (Registry::default(), Vec::new());
    let numbers = |registry: &Registry| {
        let stream = registry.stream("s").unwrap();
        [0, 1, 2, 3].map(|at: usize| stream.version(formats[at].id()).unwrap_or(0))
    };
    for format in &formats {
        entries.extend(registry.announce("s", format).unwrap().entries);
    }
    entries.extend([0, 2].map(|at: usize| registry.remove_version("s", formats[at].id()).unwrap()));
    assert_eq!(numbers(&registry), [0, 2, 0, 4]);
    // One that comes again is the newest version.
    entries.extend(registry.announce("s", &formats[0]).unwrap().entries);
    assert_eq!(numbers(&registry), [5, 2, 0, 4]);
    for log in [log(entries), log(registry.entries())] {
        let replayed = replay(&log);
        assert!(replayed.passed_over.is_empty(), "{:?}", replayed.passed_over);
        assert_eq!(replayed.registry, registry);
    }
    registry.remove_stream("s");
    assert_eq!(registry, Registry::default());
    assert_eq!(registry.announce("s", &formats[3]).unwrap().version, 1);
}

#[test]
fn a_full_stream_keeps_its_policy_and_guards() {
    let formats: Vec<Format> = (0..=MAX_VERSIONS).map(|index| schema(&format!("a{index} i32 null"))).collect();
    let (last, all) = formats.split_last().unwrap();
    let mut registry = Registry::default();
    let mut entries = Vec::new();
    for format in all {
        entries.extend(registry.announce("s", format).unwrap().entries);
    }
    let full = RegistryError::Full { what: "versions of a stream", most: MAX_VERSIONS };
    assert_eq!(registry.announce("s", last), Err(full));
    assert!(registry.format(last.id()).is_none(), "and nothing of it stays");
    entries.push(registry.set_policy("s", Policy::Full).unwrap());
    for format in all {
        entries.extend(registry.guard("s", format.id()).unwrap());
    }
    assert_eq!(registry.guard("s", all[0].id()), Ok(None));
    assert_eq!(registry.guard("s", last.id()), Err(RegistryError::UnknownFormat { id: last.id() }));
    assert_eq!(registry.announce("s", &all[7]).unwrap().version, 8);
    // A known version again, as a log that was written twice has it.
    entries.push(Entry::Version { stream: "s".to_owned(), format: all[7].id(), number: None });
    for log in [log(entries), log(registry.entries())] {
        let replayed = replay(&log);
        assert!(replayed.passed_over.is_empty(), "{:?}", replayed.passed_over);
        assert_eq!(replayed.registry, registry);
        assert_eq!(replayed.registry.stream("s").unwrap().policy(), Policy::Full);
        assert_eq!(replayed.registry.guarded("s").count(), MAX_VERSIONS);
    }
}

#[test]
fn names_that_are_none_are_refused() {
    let mut registry = Registry::default();
    for name in ["", "a\nb", &"x".repeat(256)] {
        assert!(matches!(registry.announce(name, &schema("a i32")), Err(RegistryError::Name { .. })));
        assert!(matches!(registry.set_policy(name, Policy::Full), Err(RegistryError::Name { .. })));
    }
    assert_eq!(registry, Registry::default());
}

#[test]
fn entries_of_a_later_release_are_passed_over() {
    let version = |text: &str| {
        let format = schema(text);
        [Entry::Format(format.clone()), Entry::Version { stream: "s".to_owned(), format: format.id(), number: None }]
    };
    let mut bytes = log(version("a i32"));
    let known = bytes.len();
    // A frame as a later release might write it, with its checksum.
    let text = b"a-word-to-come 1\nx";
    let mut frame = (text.len() as u32).to_le_bytes().to_vec();
    frame.extend([0; 4]);
    frame.extend(text);
    let checksum = sha(text);
    frame[4..8].copy_from_slice(&checksum);
    bytes.extend(frame);
    bytes.extend(log(version("b i32")));
    let replayed = replay(&bytes);
    assert_eq!(replayed.passed_over, [(known, None)]);
    assert_eq!((replayed.registry.formats().count(), replayed.whole_bytes), (2, bytes.len()));
}

fn sha(text: &[u8]) -> [u8; 4] {
    use sha2::{Digest, Sha256};
    *Sha256::digest(text).first_chunk().expect("32 bytes")
}
