#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]

use super::thread::{CatalogHandle, CatalogThread};
use super::*;
use crate::morph::compile::Compiled;
use crossdock_format::Format;
use crossdock_format::registry::Policy;
use std::sync::Mutex;
use std::time::{Duration, Instant};

fn format(schema: &str) -> Format {
    Format::parse_schema(schema).unwrap()
}

fn ids(entry: &StreamEntry) -> Vec<FormatId> {
    entry.formats().iter().map(Format::id).collect()
}

/// A context: its latest snapshot of the catalog, and the numbers that it got for streams.
type Latest = Arc<Mutex<Arc<Snapshot>>>;

#[test]
fn contexts_that_announce_the_same_streams_at_once_agree_on_their_numbers_and_versions() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let formats = [format("a u32"), format("b u32"), format("c string")];
    for round in 0..100 {
        let (handle, requests) = CatalogHandle::new();
        let mut catalog = Catalog::new(16, 16);
        let latest: [Latest; 3] = std::array::from_fn(|_| Latest::default());
        for latest in latest.clone() {
            catalog.watch(Box::new(move |snapshot, _| {
                *latest.lock().unwrap() = Arc::clone(snapshot);
                true
            }));
        }
        let thread = CatalogThread::start(catalog, &handle, requests).unwrap();
        let announce = |context: usize| {
            let mut rng = fastrand::Rng::with_seed(seed.wrapping_add(round * 3 + context as u64));
            let mut streams: Vec<String> = (0..8).map(|stream| format!("stream {stream}")).collect();
            rng.shuffle(&mut streams);
            let (handle, latest, format) = (handle.clone(), Arc::clone(&latest[context]), formats[context].clone());
            let announced = format.id();
            move || {
                let publish = |name: &String| {
                    let (asked, format) = (name.clone(), format.clone());
                    let number = handle.run(move |catalog| catalog.publish(&asked, &format)).unwrap().unwrap();
                    // The context has the snapshot that contains the answer already.
                    let snapshot = Arc::clone(&latest.lock().unwrap());
                    let entry = snapshot.get(number).unwrap();
                    assert_eq!((entry.name(), snapshot.find(name).unwrap().number()), (&**name, number));
                    assert!(ids(entry).contains(&announced));
                    (name.clone(), number)
                };
                streams.iter().map(publish).collect::<BTreeMap<String, u32>>()
            }
        };
        let numbers: Vec<BTreeMap<String, u32>> = std::thread::scope(|scope| {
            let contexts: Vec<_> = (0..3).map(|context| scope.spawn(announce(context))).collect();
            contexts.into_iter().map(|context| context.join().unwrap()).collect()
        });
        assert!(numbers.iter().all(|other| *other == numbers[0]), "{numbers:?}");
        assert_eq!(numbers[0].values().collect::<BTreeSet<_>>().len(), 8, "a number each");
        drop(thread);
        let last = latest.map(|latest| Arc::clone(&latest.lock().unwrap()));
        for number in numbers[0].values() {
            let versions = last.each_ref().map(|snapshot| ids(snapshot.get(*number).unwrap()));
            assert!(versions[0].len() == 3 && versions.iter().all(|other| *other == versions[0]), "{versions:?}");
        }
    }
}

#[test]
fn a_snapshot_stays_as_it_is_and_shares_what_has_not_changed() {
    let mut catalog = Catalog::new(16, 16);
    let (one, other) = (format("a u32"), format("b u32"));
    let changing = catalog.declare("changing", &one).unwrap();
    let same = catalog.declare("same", &one).unwrap();
    let before = catalog.snapshot();
    assert_eq!(catalog.declare("changing", &other), Ok(changing));
    let new = catalog.declare("new", &one).unwrap();
    let after = catalog.snapshot();
    assert_eq!(ids(before.get(changing).unwrap()), [one.id()]);
    assert_eq!(ids(after.get(changing).unwrap()), [one.id(), other.id()]);
    assert!(Arc::ptr_eq(before.get(same).unwrap(), after.get(same).unwrap()));
    assert!(before.get(new).is_none() && before.find("new").is_none());
    // It is freed where snapshots are made.
    assert_eq!(catalog.retired.len(), 1);
    drop(before);
    catalog.publish_snapshot();
    assert_eq!(catalog.retired.len(), 0);
}

#[test]
fn a_stream_goes_with_its_last_user_unless_it_is_kept() {
    let mut catalog = Catalog::new(2, 2);
    let is_there = |catalog: &Catalog, name: &str| catalog.snapshot().find(name).is_some();
    assert_eq!(catalog.enter("waits", false), Ok(None), "nobody has brought a format of it");
    let waits = catalog.enter("waits", true).unwrap().unwrap();
    let derived = catalog.derive("derived", "h", &[format("a u32")]).unwrap();
    assert_eq!(catalog.enter("more", true).unwrap_err().code, RefusalCode::Limit);
    assert_eq!(catalog.enter("derived", false), Ok(Some(derived)));
    catalog.leave(waits);
    assert!(!is_there(&catalog, "waits"));
    catalog.underive(derived);
    assert!(is_there(&catalog, "derived"), "a subscription is left");
    catalog.leave(derived);
    assert!(!is_there(&catalog, "derived"));
    let kept = catalog.publish("kept", &format("a u32")).unwrap();
    catalog.end_publishing(kept);
    assert!(is_there(&catalog, "kept"));
    // One that is refused leaves nothing behind.
    let too_long = "n".repeat(MAX_NAME_BYTES + 1);
    assert_eq!(catalog.publish(&too_long, &format("a u32")).unwrap_err().code, RefusalCode::State);
    assert_eq!(catalog.snapshot().iter().count(), 1);
    assert_eq!(catalog.uses.len(), 0, "{:?}", catalog.uses);
}

#[test]
fn a_stream_is_removed_when_nobody_uses_it() {
    let mut catalog = Catalog::new(4, 4);
    let refused = |catalog: &mut Catalog| catalog.remove_stream("s").unwrap_err().message;
    assert!(refused(&mut catalog).contains("no stream `s`"));
    let (one, other) = (format("a u32"), format("b u32"));
    let number = catalog.publish("s", &one).unwrap();
    assert!(refused(&mut catalog).contains("publishers"));
    catalog.enter("s", false).unwrap();
    catalog.end_publishing(number);
    assert!(refused(&mut catalog).contains("subscribers"));
    catalog.claim("s").unwrap();
    catalog.leave(number);
    assert!(refused(&mut catalog).contains("a handler reads it"));
    catalog.disclaim(number);
    let compiled = || Compiled::new(&one, &other, "rename a b").unwrap();
    catalog.register(Owner::Session(7), "s", compiled()).unwrap();
    assert!(refused(&mut catalog).contains("a session"));
    catalog.end_owner(7);
    catalog.register(Owner::Kept, "s", compiled()).unwrap();
    assert_eq!(catalog.remove_stream("s"), Ok(()));
    assert_eq!((catalog.snapshot().len(), catalog.conversions, &catalog.registry), (0, 0, &Registry::default()));
    // It may come again, also one that has a policy only.
    catalog.set_policy("s", "backward".parse().unwrap()).unwrap();
    assert_eq!(catalog.remove_stream("s"), Ok(()));
    assert!(catalog.publish("s", &other).is_ok());
}

#[test]
fn the_newest_version_of_a_stream_is_removed_when_nobody_uses_it() {
    let mut catalog = Catalog::new(4, 4);
    let seen: Arc<Mutex<Vec<usize>>> = Arc::default();
    let see = Arc::clone(&seen);
    catalog.watch(Box::new(move |snapshot, _| {
        see.lock().unwrap().push(snapshot.find("s").map_or(0, |entry| entry.formats().len()));
        true
    }));
    let [one, two, three] = [format("a u32"), format("b u32"), format("c u32")];
    for format in [&one, &two] {
        catalog.declare("s", format).unwrap();
    }
    catalog.register(Owner::Session(7), "s", Compiled::new(&two, &one, "rename b a").unwrap()).unwrap();
    catalog.end_owner(7);
    catalog.publish_snapshot();
    seen.lock().unwrap().clear();
    let is_guarded =
        |catalog: &Catalog| catalog.snapshot().find("s").unwrap().conversions().graph().is_guarded(two.id());
    assert!(is_guarded(&catalog));
    let mut remove = |version, refused: &str| {
        let removed = catalog.remove_version("s", version);
        match refused {
            "" => assert_eq!(removed, Ok(())),
            _ => assert!(removed.as_ref().unwrap_err().message.contains(refused), "{removed:?}"),
        }
        catalog.publish_snapshot();
    };
    remove(3, "v1 to v2");
    remove(1, "remove v2 first");
    remove(2, "");
    remove(1, "the only version");
    assert_eq!(*seen.lock().unwrap(), [1]);
    assert!(!is_guarded(&catalog), "as after a restart");
    let number = catalog.publish("s", &three).unwrap();
    assert_eq!(ids(catalog.snapshot().get(number).unwrap()), [one.id(), three.id()]);
    assert!(catalog.remove_version("s", 2).unwrap_err().message.contains("publishers"));
    catalog.end_publishing(number);
    catalog.register(Owner::Kept, "s", Compiled::new(&three, &one, "rename c a").unwrap()).unwrap();
    assert!(catalog.remove_version("s", 2).unwrap_err().message.contains("remove it first"));
}

#[test]
fn a_format_without_a_record_is_forgotten_with_its_last_publication() {
    let mut catalog = Catalog::new(4, 4);
    let [one, two, three] = [format("a u32"), format("b u32"), format("c u32")];
    let begin = |catalog: &mut Catalog, name: &str, format: &Format| catalog.publish(name, format).unwrap();
    let end = |catalog: &mut Catalog, number: u32, format: &Format| {
        catalog.end_format(number, format.id());
        catalog.end_publishing(number);
    };
    let has = |catalog: &Catalog, name: &str| catalog.snapshot().find(name).map(ids);
    let number = begin(&mut catalog, "s", &one);
    catalog.note_record(number, one.id());
    end(&mut catalog, number, &one);
    assert_eq!(has(&catalog, "s"), Some(vec![one.id()]));
    // As long as a session publishes it, or somebody may be planned for it.
    begin(&mut catalog, "s", &two);
    begin(&mut catalog, "s", &two);
    end(&mut catalog, number, &two);
    assert_eq!(has(&catalog, "s"), Some(vec![one.id(), two.id()]));
    catalog.enter("s", false).unwrap();
    end(&mut catalog, number, &two);
    assert_eq!(has(&catalog, "s"), Some(vec![one.id(), two.id()]));
    begin(&mut catalog, "s", &three);
    end(&mut catalog, number, &three);
    catalog.leave(number);
    assert_eq!(has(&catalog, "s"), Some(vec![one.id()]));
    assert_eq!(catalog.registry.stream("s").unwrap().versions(), [one.id()]);
    // One that is announced again counts from then on, and one that is declared stays.
    begin(&mut catalog, "s", &two);
    catalog.declare("s", &two).unwrap();
    end(&mut catalog, number, &two);
    assert_eq!(has(&catalog, "s"), Some(vec![one.id(), two.id()]));
    // With the only one the stream goes, but for a policy that was set.
    let number = begin(&mut catalog, "new", &one);
    end(&mut catalog, number, &one);
    catalog.set_policy("strict", Policy::Full).unwrap();
    let number = begin(&mut catalog, "strict", &one);
    end(&mut catalog, number, &one);
    assert_eq!((has(&catalog, "new"), has(&catalog, "strict")), (None, None));
    assert!(catalog.registry.stream("new").is_none());
    assert_eq!(
        catalog.registry.stream("strict").map(|stream| (stream.policy(), stream.versions().len())),
        Some((Policy::Full, 0))
    );
    // A format that a kept conversion reads stays.
    let number = begin(&mut catalog, "kept", &two);
    catalog.register(Owner::Kept, "kept", Compiled::new(&two, &one, "rename b a").unwrap()).unwrap();
    end(&mut catalog, number, &two);
    assert_eq!(has(&catalog, "kept"), Some(vec![two.id()]));
    assert!(catalog.unproven.iter().all(|(of, _)| *of == number), "{:?}", catalog.unproven);
}

#[test]
fn one_origin_cannot_bring_all_formats_of_a_stream() {
    let mut catalog = Catalog::new(4, 4);
    let [one, other] = [1, 2].map(Principal::User);
    let formats: Vec<Format> = (0..64).map(|at| format(&format!("f{at} u32"))).collect();
    let first: Vec<bool> =
        formats[..49].iter().map(|format| catalog.publish_as((one, None), "s", format).is_ok()).collect();
    assert_eq!((first.iter().filter(|was_taken| **was_taken).count(), first.last()), (48, Some(&false)));
    let refusal = catalog.publish_as((one, None), "s", &formats[49]).unwrap_err();
    assert!(refusal.message.contains("user 1 has brought 48 formats of stream `s`"), "{}", refusal.message);
    // A version that is there already may be published all the same, as may another stream's.
    catalog.publish_as((one, None), "s", &formats[0]).unwrap();
    catalog.publish_as((one, None), "t", &formats[49]).unwrap();
    assert!(formats[48..].iter().all(|format| catalog.publish_as((other, None), "s", format).is_ok()));
}

#[test]
fn versions_keep_their_numbers_when_a_format_without_a_record_is_forgotten() {
    let mut catalog = Catalog::new(4, 4);
    let formats = ["a", "b", "c", "d", "e"].map(|field| format(&format!("{field} u32")));
    let number = formats.iter().map(|format| catalog.publish("s", format).unwrap()).last().unwrap();
    for proven in [0, 2] {
        catalog.note_record(number, formats[proven].id());
    }
    for format in &formats {
        catalog.end_format(number, format.id());
        catalog.end_publishing(number);
    }
    // The second one had no record either, and is not the newest.
    let first = [0, 1, 2].map(|at: usize| formats[at].id());
    assert_eq!(ids(catalog.snapshot().get(number).unwrap()), first);
    assert_eq!(catalog.registry.stream("s").unwrap().versions(), first);
}

#[test]
fn the_kept_conversions_of_a_stream_outlive_its_last_format() {
    let mut catalog = Catalog::new(4, 4);
    let [one, two, three] = [format("a u32"), format("b u32"), format("c u32")];
    catalog.register(Owner::Kept, "s", Compiled::new(&two, &three, "rename b c").unwrap()).unwrap();
    let number = catalog.publish("s", &one).unwrap();
    catalog.end_format(number, one.id());
    catalog.end_publishing(number);
    assert_eq!(catalog.snapshot().find("s").map(ids), Some(vec![]));
    assert_eq!((catalog.conversions, catalog.registry.conversions().count()), (1, 1));
    let mut again = Catalog::new(4, 4);
    assert_eq!(again.restore(&catalog.registry, None), [""; 0]);
    assert_eq!(again.conversions, 1);
}

#[test]
fn a_stream_is_published_or_made_by_a_handler() {
    let mut catalog = Catalog::new(16, 16);
    let one = format("a u32");
    let published = catalog.publish("published", &one).unwrap();
    assert!(catalog.derive("published", "h", std::slice::from_ref(&one)).unwrap_err().message.contains("1 sessions"));
    let derived = catalog.derive("derived", "h", std::slice::from_ref(&one)).unwrap();
    assert!(catalog.publish("derived", &one).unwrap_err().message.contains("produced by handler `h`"));
    catalog.end_publishing(published);
    catalog.underive(derived);
    assert_eq!(catalog.derive("published", "h", std::slice::from_ref(&one)), Ok(published));
    assert!(catalog.publish("derived", &one).is_ok());
}

#[test]
fn a_format_with_the_id_of_another_is_refused_wherever_they_meet() {
    let mut catalog = Catalog::new(16, 16);
    let (known, made) = (format("a u32"), format("m u32"));
    catalog.declare("s", &known).unwrap();
    catalog.derive("derived", "h", std::slice::from_ref(&made)).unwrap();
    for (of, name) in [(&known, "a"), (&made, "m")] {
        let other = || format("b u32").with_id(of.id()).unwrap();
        let refused = |outcome: Result<(), Refusal>| outcome.unwrap_err().message.contains("another format has the id");
        for stream in ["s", "another"] {
            assert!(refused(catalog.publish(stream, &other()).map(drop)), "{name} {stream}");
            let rule = "default b 1";
            let to = Compiled { to: other(), ..Compiled::new(&format("x u32"), &format("b u32"), rule).unwrap() };
            assert!(refused(catalog.register(Owner::Session(1), stream, to)), "{name} {stream}");
        }
        assert!(refused(catalog.derive("more", "h", &[other()]).map(drop)), "{name}");
        assert!(refused(catalog.snapshot().check_id(&other())), "{name}");
    }
    assert_eq!(catalog.snapshot().iter().map(|entry| ids(entry).len()).sum::<usize>(), 2);
}

#[test]
fn the_conversions_of_a_session_go_with_it_and_uncover_kept_ones() {
    let mut catalog = Catalog::new(16, 16);
    let (from, to) = (format("a u32\nb u32"), format("a u32"));
    catalog.declare("s", &from).unwrap();
    let compiled = || Compiled::new(&from, &to, "").unwrap();
    catalog.register(Owner::Kept, "s", compiled()).unwrap();
    catalog.register(Owner::Session(7), "s", compiled()).unwrap();
    catalog.register(Owner::Session(8), "another", compiled()).unwrap();
    let before = catalog.snapshot();
    let chain = |snapshot: &Snapshot| {
        let entry = snapshot.find("s").unwrap();
        let chain = entry.conversions().graph().chain(from.id(), &[to.id()], &|_, _| None).unwrap();
        chain.steps[0].conversion.filter(|number| entry.conversions().compiled(*number).is_some())
    };
    assert_eq!(chain(&before), Some(2));
    catalog.end_owner(7);
    assert_eq!((chain(&catalog.snapshot()), chain(&before)), (Some(1), Some(2)));
    catalog.end_owner(8);
    assert!(catalog.snapshot().find("another").is_none());
    assert!(catalog.unregister(Owner::Session(7), "s", from.id(), to.id()).is_err());
    assert_eq!(catalog.unregister(Owner::Kept, "s", from.id(), to.id()), Ok(()));
    assert_eq!(catalog.conversions, 0);
}

#[test]
fn unused_streams_are_removed_by_age() {
    let removed: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut catalog = Catalog::new(16, 16);
    for name in ["published", "subscribed", "claimed", "policed", "left", "again", "old"] {
        catalog.declare(name, &format("a u32")).unwrap();
    }
    let (start, hour) = (Instant::now(), Duration::from_secs(3600));
    let report = Arc::clone(&removed);
    catalog.expire_unused(24 * hour, start, move |name, _| report.lock().unwrap().push(name.to_owned()));
    let published = catalog.publish("published", &format("a u32")).unwrap();
    let subscribed = catalog.enter("subscribed", true).unwrap().unwrap();
    let left = catalog.enter("left", false).unwrap().unwrap();
    catalog.claim("claimed").unwrap();
    catalog.set_policy("policed", Policy::Backward).unwrap();
    let due = catalog.expiry_due().unwrap();
    assert!(due > start && due <= start + Duration::from_secs(60));

    // Somebody leaves, and somebody comes and goes between two looks.
    catalog.leave(left);
    catalog.expire(start + 23 * hour);
    let again = catalog.enter("again", false).unwrap().unwrap();
    catalog.leave(again);
    catalog.expire(start + 25 * hour);
    assert_eq!(removed.lock().unwrap().drain(..).collect::<Vec<_>>(), ["old"]);
    catalog.expire(start + 46 * hour);
    assert!(removed.lock().unwrap().is_empty());
    catalog.expire(start + 48 * hour);
    assert_eq!(removed.lock().unwrap().drain(..).collect::<Vec<_>>(), ["left"]);
    catalog.expire(start + 49 * hour);
    assert_eq!(removed.lock().unwrap().drain(..).collect::<Vec<_>>(), ["again"]);

    catalog.end_publishing(published);
    catalog.leave(subscribed);
    catalog.expire(start + 50 * hour);
    catalog.expire(start + 74 * hour);
    removed.lock().unwrap().sort_unstable();
    assert_eq!(*removed.lock().unwrap(), ["published", "subscribed"]);
    let left: Vec<String> = catalog.snapshot().iter().map(|entry| entry.name().to_owned()).collect();
    assert_eq!(left, ["claimed", "policed"]);
}

/// A catalog that removes what was unused for a day, and what it has removed: names and versions, sorted.
fn with_expiry(start: Instant) -> (Catalog, impl FnMut() -> Vec<String>) {
    let removed: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut catalog = Catalog::new(16, 16);
    let report = Arc::clone(&removed);
    catalog.expire_unused(Duration::from_secs(24 * 3600), start, move |name, version| {
        let version = version.map(|version| format!(":v{version}")).unwrap_or_default();
        report.lock().unwrap().push(format!("{name}{version}"));
    });
    (catalog, move || {
        let mut removed = std::mem::take(&mut *removed.lock().unwrap());
        removed.sort_unstable();
        removed
    })
}

#[test]
fn unused_versions_of_a_stream_in_use_are_removed_by_age_and_the_others_keep_their_numbers() {
    let (start, hour) = (Instant::now(), Duration::from_secs(3600));
    let (mut catalog, mut removed) = with_expiry(start);
    let formats = ["a", "b", "c", "d", "e", "f"].map(|field| format(&format!("{field} u32")));
    let [one, two, three, four, five, six] = &formats;
    let end = |catalog: &mut Catalog, number: u32, format: &Format| {
        catalog.end_format(number, format.id());
        catalog.end_publishing(number);
    };
    let versions = |catalog: &Catalog| {
        let snapshot = catalog.snapshot();
        let of_entry = formats.each_ref().map(|format| snapshot.find("s").unwrap().version(format.id()).unwrap_or(0));
        let kept = catalog.registry.stream("s").unwrap();
        let of_registry = formats.each_ref().map(|format| kept.version(format.id()).unwrap_or(0) as u32);
        assert_eq!(of_entry, of_registry);
        of_entry
    };
    let number = formats[..5].iter().map(|format| catalog.publish("s", format).unwrap()).last().unwrap();
    formats[..5].iter().for_each(|format| catalog.note_record(number, format.id()));
    catalog.enter("s", false).unwrap();
    // The second one has a publisher all the time, the fourth one again between two looks.
    [one, three, four, five].into_iter().for_each(|format| end(&mut catalog, number, format));
    catalog.expire(start + hour);
    catalog.expire(start + 20 * hour);
    catalog.publish("s", four).unwrap();
    end(&mut catalog, number, four);
    catalog.expire(start + 24 * hour);
    assert!(removed().is_empty());
    catalog.expire(start + 25 * hour);
    assert_eq!(removed(), ["s:v1", "s:v3"]);
    assert_eq!(versions(&catalog), [0, 2, 0, 4, 5, 0]);
    let refused = catalog.snapshot().format_known("s", &FormatName::Version(3)).unwrap_err().message;
    assert!(refused.contains("it has v2, v4, v5"), "{refused}");
    assert_eq!(catalog.snapshot().format_known("s", &FormatName::Version(4)).unwrap(), *four);

    // The newest one stays, and one that comes again is a new version.
    end(&mut catalog, number, two);
    catalog.publish("s", one).unwrap();
    assert_eq!(versions(&catalog), [6, 2, 0, 4, 5, 0]);
    catalog.expire(start + 26 * hour);
    catalog.expire(start + 48 * hour);
    assert_eq!(removed(), ["s:v4"]);
    catalog.expire(start + 50 * hour);
    assert_eq!(removed(), ["s:v2", "s:v5"]);
    end(&mut catalog, number, one);
    catalog.expire(start + 100 * hour);
    assert_eq!((removed(), versions(&catalog)), (vec![], [6, 0, 0, 0, 0, 0]));
    // As it was kept.
    let mut again = Catalog::new(16, 16);
    assert_eq!(again.restore(&catalog.registry, None), [""; 0]);
    again.declare("s", six).unwrap();
    assert_eq!(versions(&again), [6, 0, 0, 0, 0, 7]);
}

#[test]
fn versions_that_a_policy_a_handler_a_conversion_or_a_subscription_refers_to_do_not_age() {
    let (start, hour) = (Instant::now(), Duration::from_secs(3600));
    let (mut catalog, mut removed) = with_expiry(start);
    let [one, two, three] = ["a", "b", "c"].map(|field| format(&format!("{field} u32")));
    for name in ["policy", "handler", "kept", "session", "accepting", "none"] {
        for format in [&one, &two, &three] {
            catalog.declare(name, format).unwrap();
        }
        catalog.enter(name, false).unwrap();
    }
    catalog.set_policy("policy", Policy::BackwardTransitive).unwrap();
    let claimed = catalog.claim("handler").unwrap();
    let compiled = || Compiled::new(&two, &one, "rename b a").unwrap();
    catalog.register(Owner::Kept, "kept", compiled()).unwrap();
    let to_third = Compiled::new(&two, &three, "rename b c").unwrap();
    catalog.register(Owner::Session(7), "session", to_third).unwrap();
    let accepting = catalog.snapshot();
    accepting.find("accepting").unwrap().activity().begin_subscription(true);
    catalog.expire(start + hour);
    catalog.expire(start + 25 * hour);
    assert_eq!(removed(), ["none:v1", "none:v2", "session:v1"]);

    // The objects that refer to them end. A version that a conversion left stays guarded.
    catalog.set_policy("policy", Policy::None).unwrap();
    catalog.disclaim(claimed);
    catalog.end_owner(7);
    catalog.unregister(Owner::Kept, "kept", two.id(), one.id()).unwrap();
    accepting.find("accepting").unwrap().activity().end_subscription(true);
    catalog.expire(start + 26 * hour);
    catalog.expire(start + 50 * hour);
    let all = ["accepting:v1", "accepting:v2", "handler:v1", "handler:v2", "kept:v1", "policy:v1", "policy:v2"];
    assert_eq!(removed(), all);
}

#[test]
fn the_number_of_a_removed_stream_is_not_given_to_the_next() {
    let mut catalog = Catalog::new(4, 4);
    let mut numbers = Vec::new();
    for round in 0..1000 {
        let name = format!("stream {round}");
        numbers.push(catalog.declare(&name, &format("a u32")).unwrap());
        assert_eq!(catalog.snapshot().find(&name).unwrap().number(), numbers[round]);
        catalog.remove_stream(&name).unwrap();
        assert!(catalog.snapshot().get(numbers[round]).is_none() && catalog.snapshot().iter().next().is_none());
    }
    let repeats = |window: &[u32]| window[1..].contains(&window[0]);
    assert!(!numbers.windows(200).any(repeats));
    assert!(numbers.iter().all(|number| *number < 300), "they come back in the end");
}
