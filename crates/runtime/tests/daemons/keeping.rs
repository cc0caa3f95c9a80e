//! The state that is kept across restarts, and what is not.

use crossdock_format::registry::{Policy, replay};
use crossdock_format::{Format, FormatId, RecordBuilder, Value};
use crossdock_nectarine::{Conversion, Converter, Event, FormatRef, Publisher, Subscriber};
use crossdock_runtime::{ByName, ContextConfig, ContextHandle};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

fn config(directory: &Path) -> ContextConfig {
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    config.morph.state_dir = Some(directory.to_owned());
    config.platform.contexts.extend(crate::contexts::further());
    config
}

fn start(directory: &Path) -> (ContextHandle, String) {
    let handle = ContextHandle::start(config(directory)).unwrap();
    assert_eq!(handle.not_restored(), &[] as &[String]);
    let addr = handle.local_addr().to_string();
    (handle, addr)
}

fn format(schema: &str) -> Format {
    Format::parse_schema(schema).unwrap()
}

fn v1() -> Format {
    format("number u32\nsecret string")
}

fn v2() -> Format {
    format("number u64")
}

fn by_name() -> Conversion {
    "".parse().unwrap()
}

#[test]
fn versions_and_kept_conversions_outlive_the_daemon_and_a_sessions_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let (context, addr) = start(directory.path());
    let old = Publisher::builder(&addr).stream("K").format(&v1()).connect().unwrap();
    let new = Publisher::builder(&addr).stream("K").format(&v2()).connect().unwrap();
    let mut converter = Converter::builder(&addr).stream("K").connect().unwrap();
    converter.keep(FormatRef::Version(1), FormatRef::Version(2), &by_name()).unwrap();
    converter.register(v2(), format("number u64\nx i8 null"), &by_name()).unwrap();
    converter.keep(v2(), format("number i64"), &by_name()).unwrap();
    converter.discard(v2(), format("number i64")).unwrap();
    drop((old, new, converter));
    context.stop().unwrap();

    let (context, addr) = start(directory.path());
    let streams = context.streams().unwrap();
    assert_eq!((streams[0].name.as_str(), streams[0].publishers), ("K", 0));
    assert_eq!(streams[0].formats, [v1().id().to_string(), v2().id().to_string()]);
    let conversions = context.conversions().unwrap();
    assert_eq!(conversions.len(), 1, "{conversions:?}");
    assert_eq!((conversions[0].from_version, conversions[0].to_version, conversions[0].kept), (Some(1), Some(2), true));
    // And it is used.
    let mut subscriber =
        Subscriber::builder(&addr).sql("SELECT * FROM K").accept(FormatRef::Version(2)).connect().unwrap();
    let mut publisher = Publisher::builder(&addr).stream("K").format(&v1()).connect().unwrap();
    let mut row = RecordBuilder::new(&v1());
    row.set(0, Value::Uint(7)).unwrap();
    row.set(1, Value::Text(b"hush")).unwrap();
    publisher.publish(row.finish().unwrap()).unwrap();
    publisher.finish().unwrap();
    let Some(Event::Records(records)) = subscriber.next_event(Some(Duration::from_secs(20))).unwrap() else {
        panic!("no records")
    };
    assert_eq!((records.format(), records.iter().next().unwrap().get(0)), (&v2(), Value::Uint(7)));
    context.stop().unwrap();
}

fn announcing(addr: &str, format: &Format) -> Publisher {
    Publisher::builder(addr).stream("K").format(format).connect().unwrap()
}

/// A publisher that has brought a record, which has arrived.
fn publishing(addr: &str, format: &Format) -> Publisher {
    let mut publisher = announcing(addr, format);
    let mut subscriber = Subscriber::builder(addr).sql("SELECT * FROM K").connect().unwrap();
    let mut row = RecordBuilder::new(format);
    row.set(0, Value::Uint(7)).unwrap();
    if format.fields().len() > 1 {
        row.set(1, Value::Text(b"hush")).unwrap();
    }
    publisher.publish(row.finish().unwrap()).unwrap();
    publisher.flush().unwrap();
    while !matches!(subscriber.next_event(Some(Duration::from_secs(20))).unwrap(), Some(Event::Records(_))) {}
    publisher
}

/// The versions of `K` that a next daemon would have if this one were killed now.
fn versions_after_a_kill(context: &ContextHandle, directory: &Path) -> Vec<FormatId> {
    // On disk when it is answered, after all that came before.
    context.set_policy("L", Policy::Full).unwrap().unwrap();
    let replayed = replay(&std::fs::read(directory.join("registry.log")).unwrap());
    assert_eq!(replayed.passed_over, []);
    replayed.registry.stream("K").map(|stream| stream.versions().to_owned()).unwrap_or_default()
}

#[test]
fn the_formats_of_connected_publishers_outlive_a_daemon_that_is_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let (context, addr) = start(directory.path());
    let publishers = [v1(), v2()].map(|format| publishing(&addr, &format));
    context.stop().unwrap();
    drop(publishers);
    let (context, _) = start(directory.path());
    let formats = [v1().id().to_string(), v2().id().to_string()];
    assert_eq!(context.streams().unwrap().first().map(|stream| &stream.formats[..]), Some(&formats[..]));
    context.stop().unwrap();
}

#[test]
fn a_format_outlives_a_killed_daemon_from_its_first_record_on() {
    let directory = tempfile::tempdir().unwrap();
    let (context, addr) = start(directory.path());
    let kept = || versions_after_a_kill(&context, directory.path());
    let v3 = format("number i64");
    let first = announcing(&addr, &v1());
    assert_eq!(kept(), []);
    let second = publishing(&addr, &v2());
    assert_eq!(kept(), [v2().id()]);
    let third = announcing(&addr, &v3);
    assert_eq!(context.streams().unwrap()[0].formats.len(), 3);
    assert_eq!(kept(), [v2().id()]);
    // Each is kept with the number that it has, in whatever order their records come.
    let again = publishing(&addr, &v1());
    assert_eq!(kept(), [v1().id(), v2().id()]);
    drop((first, second, third, again));
    context.stop().unwrap();
    let (context, _) = start(directory.path());
    assert_eq!(context.streams().unwrap()[0].formats, [v1().id().to_string(), v2().id().to_string()]);
    context.stop().unwrap();
}

#[test]
fn a_kept_conversion_that_needs_a_format_keeps_the_format() {
    let directory = tempfile::tempdir().unwrap();
    let (context, addr) = start(directory.path());
    let announced = [v1(), v2()].map(|format| announcing(&addr, &format));
    // Known as a version that is not kept, and declared for another stream.
    context.declare_stream("M", &v1()).unwrap().unwrap();
    let log = || replay(&std::fs::read(directory.path().join("registry.log")).unwrap()).registry;
    assert_eq!((versions_after_a_kill(&context, directory.path()), log().format(v1().id())), (vec![], Some(&v1())));
    let mut converter = Converter::builder(&addr).stream("K").connect().unwrap();
    converter.keep(FormatRef::Version(1), FormatRef::Version(2), &by_name()).unwrap();
    assert_eq!(versions_after_a_kill(&context, directory.path()), [v1().id(), v2().id()]);
    assert_eq!((log().conversions().count(), log().guarded("K").count()), (1, 1));
    drop((announced, converter));
    context.stop().unwrap();
}

#[test]
fn that_a_format_was_ever_left_by_a_conversion_is_remembered_too() {
    let directory = tempfile::tempdir().unwrap();
    let (context, addr) = start(directory.path());
    let old = Publisher::builder(&addr).stream("K").format(&v1()).connect().unwrap();
    context.declare_stream("K", &format("number u64\nsecret string")).unwrap().unwrap();
    let mut converter = Converter::builder(&addr).stream("K").connect().unwrap();
    converter.register(v1(), v2(), &by_name()).unwrap();
    drop((old, converter));
    context.stop().unwrap();
    let mut config = config(directory.path());
    config.morph.by_name = ByName::VersionsOfStream;
    let context = ContextHandle::start(config).unwrap();
    let accept = [crossdock_runtime::FormatName::Version(2)];
    let plan = context.explain("SELECT number FROM K", &accept).unwrap().unwrap();
    let missing: Vec<bool> = plan.paths.iter().map(|path| path.is_missing).collect();
    assert_eq!(missing, [true, false], "the session's strip is gone, and must not be gone round: {:?}", plan.paths);
    context.stop().unwrap();
}

/// The registry's log as the next daemon finds it: each one writes it as short as it can be.
fn log_bytes(directory: &Path) -> Vec<u8> {
    start(directory).0.stop().unwrap();
    std::fs::read(directory.join("registry.log")).unwrap()
}

#[test]
fn conversions_of_sessions_leave_nothing_but_a_mark_on_versions() {
    let directory = tempfile::tempdir().unwrap();
    let (context, addr) = start(directory.path());
    context.declare_stream("K", &v1()).unwrap().unwrap();
    context.stop().unwrap();
    let before = log_bytes(directory.path());
    let (context, addr) = {
        drop(addr);
        start(directory.path())
    };
    let mut converter = Converter::builder(&addr).stream("K").connect().unwrap();
    for round in 0..50 {
        let [from, to] = [format(&format!("a{round} u8")), format(&format!("a{round} u16"))];
        converter.register(from.clone(), to.clone(), &by_name()).unwrap();
        converter.unregister(from, to).unwrap();
        let stream = format!("L{round}");
        let mut elsewhere = Converter::builder(&addr).stream(&stream).connect().unwrap();
        elsewhere.register(v1(), v2(), &by_name()).unwrap();
    }
    // Kept ones go without a trace too.
    converter.keep(v2(), format("number i64"), &by_name()).unwrap();
    converter.discard(v2(), format("number i64")).unwrap();
    drop(converter);
    context.stop().unwrap();
    assert_eq!(log_bytes(directory.path()), before);
    let (context, addr) = start(directory.path());
    let mut converter = Converter::builder(&addr).stream("K").connect().unwrap();
    converter.register(v1(), v2(), &by_name()).unwrap();
    drop(converter);
    context.stop().unwrap();
    let text = String::from_utf8_lossy(&log_bytes(directory.path())).into_owned();
    assert!(text.contains(&format!("guarded {}\nK", v1().id())), "{text}");
    assert!(!text.contains(&v2().describe()), "{text}");
}

#[test]
fn that_a_conversion_left_a_format_before_it_was_a_version_is_remembered() {
    let directory = tempfile::tempdir().unwrap();
    let (context, addr) = start(directory.path());
    let mut converter = Converter::builder(&addr).stream("K").connect().unwrap();
    converter.register(v1(), v2(), &by_name()).unwrap();
    let publisher = Publisher::builder(&addr).stream("K").format(&v1()).connect().unwrap();
    drop((publisher, converter));
    context.declare_stream("K", &v2()).unwrap().unwrap();
    context.stop().unwrap();
    let text = String::from_utf8_lossy(&log_bytes(directory.path())).into_owned();
    assert!(text.contains(&format!("guarded {}\nK", v1().id())), "{text}");
    assert!(!text.contains(&format!("guarded {}\nK", v2().id())), "{text}");
}

#[test]
fn a_directory_has_one_daemon_and_what_is_torn_is_said_to_be() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/state");
    let (context, _) = start(&path);
    context.declare_stream("K", &v1()).unwrap().unwrap();
    context.declare_stream("K", &v2()).unwrap().unwrap();
    let second = ContextHandle::start(config(&path)).unwrap_err();
    assert!(second.to_string().contains("another daemon"), "{second}");
    context.stop().unwrap();

    let log = path.join("registry.log");
    let whole = std::fs::read(&log).unwrap();
    // Torn: the complete entries are restored, the torn one is reported, and the file is kept.
    std::fs::write(&log, &whole[..whole.len() - 5]).unwrap();
    let context = ContextHandle::start(config(&path)).unwrap();
    let complaints = context.not_restored().join("\n");
    assert!(
        complaints.contains("registry.log: its last ") && complaints.contains("registry.log.unread"),
        "{complaints}"
    );
    assert_eq!(context.streams().unwrap()[0].formats, [v1().id().to_string()]);
    context.stop().unwrap();
    assert_eq!(std::fs::read(path.join("registry.log.unread")).unwrap(), whole[..whole.len() - 5]);
    // The log is whole again.
    let (context, _) = start(&path);
    assert_eq!(context.streams().unwrap()[0].formats, [v1().id().to_string()]);
    context.stop().unwrap();
}

#[test]
fn a_policy_is_kept_and_holds_for_whoever_announces() {
    let directory = tempfile::tempdir().unwrap();
    let (context, addr) = start(directory.path());
    context.declare_stream("K", &v1()).unwrap().unwrap();
    context.set_policy("K", Policy::Backward).unwrap().unwrap();
    context.stop().unwrap();
    let (context, addr) = {
        drop(addr);
        start(directory.path())
    };
    assert_eq!(context.streams().unwrap()[0].policy, "backward");
    // A reader of this could not read what came before: the new field is never null.
    let breaking = format("number u32\nsecret string\ngate u8");
    let refused = context.check_format("K", &breaking).unwrap().unwrap_err().to_string();
    assert!(refused.contains("policy of stream `K` is backward") && refused.contains("`gate`"), "{refused}");
    let error = Publisher::builder(&addr).stream("K").format(&breaking).connect().unwrap_err();
    assert!(error.to_string().contains("`gate`"), "{error}");
    assert_eq!(context.streams().unwrap()[0].formats.len(), 1, "and nothing has changed");
    let fitting = format("number u64\nsecret string\ngate u8 null");
    context.check_format("K", &fitting).unwrap().unwrap();
    let publisher = Publisher::builder(&addr).stream("K").format(&fitting).connect().unwrap();
    assert_eq!(context.streams().unwrap()[0].formats.len(), 2);
    drop(publisher);
    context.stop().unwrap();
}

#[test]
fn state_that_no_longer_fits_is_reported_and_the_rest_is_restored() {
    let directory = tempfile::tempdir().unwrap();
    let (context, _) = start(directory.path());
    context.declare_stream("K", &v1()).unwrap().unwrap();
    context.declare_stream("L", &v1()).unwrap().unwrap();
    context.stop().unwrap();
    let config = ContextConfig { max_streams: 1, ..config(directory.path()) };
    let context = ContextHandle::start(config).unwrap();
    assert_eq!(context.streams().unwrap().len(), 1);
    let complaints = context.not_restored();
    assert!(matches!(complaints, [one] if one.contains("stream `L` is not restored")), "{complaints:?}");
    context.stop().unwrap();
}
