//! Access rules over the real wire: what is admitted, what is refused, and what a reader sees of a stream.

mod schedules;
mod stateful;
mod states;
mod tables;

use crossdock_format::{Format, RecordBuilder, Value};
use crossdock_nectarine::{
    Converter, Error, Event, MailboxOptions, Node, PrivateKey, Publisher, Subscriber, SubscriberBuilder, Transport,
};
use crossdock_runtime::access::{Action, Administration, Caller, Identity, Question, Quotas, Rule, Rules};
use crossdock_runtime::{ChangeRequest, ContextConfig, ContextHandle, HandlerSpec, SecurityConfig};
use crossdock_transport::secure::{Authorized, KEY_BYTES};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
const DAEMON: u8 = 1;
/// The key of a client that may do everything.
const ADMIN: u8 = 2;
/// The key of a client with a rule of its own.
const DESK: u8 = 3;

fn private(first: u8) -> PrivateKey {
    PrivateKey::from_random([first; KEY_BYTES])
}

fn all<T: std::str::FromStr<Err: std::fmt::Debug>>(texts: &[&str]) -> Vec<T> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// A rule that allows everything.
fn admin() -> Rule {
    Rule {
        publish: all(&["*"]),
        subscribe: all(&["*"]),
        administration: Administration::Change,
        ..Rule::new(Identity::Key("admin".into()))
    }
}

/// A rule of the desk.
fn desk(publish: &[&str], subscribe: &[&str]) -> Rule {
    Rule { publish: all(publish), subscribe: all(subscribe), ..Rule::new(Identity::Key("desk".into())) }
}

/// A daemon with these rules, and a stream `A`.
fn start(rules: Vec<Rule>) -> (ContextHandle, String) {
    start_changed(rules, |_| {})
}

/// The same with a changed configuration.
fn start_changed(rules: Vec<Rule>, change: impl FnOnce(&mut ContextConfig)) -> (ContextHandle, String) {
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    config.platform.contexts.extend(crate::contexts::further());
    let named = |(key, name): (u8, &str)| Authorized { key: private(key).public(), name: name.into() };
    let authorized = Arc::new([(ADMIN, "admin"), (DESK, "desk")].map(named).into_iter().collect());
    let trusted = crossdock_runtime::Network::loopback();
    config.security = SecurityConfig { key: Some(private(DAEMON)), authorized, trusted };
    config.access = Some(Arc::new(Rules::new(rules).unwrap()));
    change(&mut config);
    let context = ContextHandle::start(config).unwrap();
    context.declare_stream("A", &flights()).unwrap().unwrap();
    let addr = context.local_addr().to_string();
    (context, addr)
}

/// Flights, whose crew is nobody's business.
fn flights() -> Format {
    Format::parse_schema("flight u64\ncarrier string\nlate i64\ncrew string").unwrap()
}

fn publisher(addr: &str, key: u8, stream: &str, format: &Format) -> Result<Publisher, Error> {
    let builder = Publisher::builder(addr).transport(Transport::Udp).keys(private(key), private(DAEMON).public());
    builder.stream(stream).format(format).connect()
}

fn reader(addr: &str, key: u8, sql: &str) -> SubscriberBuilder {
    let builder = Subscriber::builder(addr).transport(Transport::Udp).keys(private(key), private(DAEMON).public());
    builder.sql(sql)
}

fn node(addr: &str, key: u8) -> Node {
    let builder = Node::builder(addr).transport(Transport::Udp).keys(private(key), private(DAEMON).public());
    builder.connect().unwrap()
}

/// The bytes of a flight.
fn flight(row: &mut RecordBuilder, number: u64) -> Vec<u8> {
    row.clear();
    let carrier = ["UA", "AA", "DL"][(number % 3) as usize];
    let crew = format!("crew of {number}");
    let late = (number % 50) as i64 - 10;
    let values = [Value::Uint(number), Value::Text(carrier.as_bytes()), Value::Int(late), Value::Text(crew.as_bytes())];
    for (at, value) in values.into_iter().enumerate() {
        row.set(at, value).unwrap();
    }
    row.finish().unwrap().to_vec()
}

fn publish(publisher: &mut Publisher, numbers: std::ops::Range<u64>) -> Vec<Vec<u8>> {
    let mut row = RecordBuilder::new(&flights());
    let records: Vec<Vec<u8>> = numbers.map(|number| flight(&mut row, number)).collect();
    records.iter().for_each(|record| publisher.publish(record).unwrap());
    publisher.flush().unwrap();
    records
}

/// The rows that come until the stream's last publisher has finished, each as its values by name; or until the session ends.
fn rows(subscriber: &mut Subscriber) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    loop {
        match subscriber.next_event(Some(PATIENCE)) {
            Ok(Some(Event::Records(records))) => {
                rows.extend(records.iter().map(|record| {
                    let fields = record.format().fields().iter().enumerate();
                    fields.map(|(at, field)| format!("{}: {:?}", field.name, record.get(at))).collect::<Vec<_>>()
                }));
            }
            Ok(Some(Event::StreamEnded { publishers_left: 0, .. })) | Err(_) => return rows,
            Ok(Some(_)) => {}
            Ok(None) => panic!("nothing for 20 s after {} rows", rows.len()),
        }
    }
}

fn refused<T: std::fmt::Debug>(outcome: Result<T, Error>) -> String {
    outcome.unwrap_err().to_string()
}

fn refusals(context: &ContextHandle, action: &str) -> u64 {
    let refused = context.manager().control().access_refused;
    refused.iter().find(|(of, _)| of == action).map_or(0, |(_, count)| *count)
}

fn deploy(context: &ContextHandle, name: &str, sql: &str) {
    let spec = HandlerSpec { name: name.into(), sql: Some(sql.into()), ..HandlerSpec::default() };
    context.manager().change(ChangeRequest::Deploy(spec), true).unwrap().unwrap();
}

fn await_that(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn requests_are_refused_with_the_line_that_would_allow_them_and_are_counted() {
    let (context, addr) = start(vec![admin(), desk(&["orders.*"], &["B"])]);
    let why = refused(publisher(&addr, DESK, "A", &flights()));
    assert!(why.contains("`publish = [\"A\"]` in the [[access]] section of key:desk would allow it"), "{why}");
    publisher(&addr, DESK, "orders.eu", &flights()).unwrap().finish().unwrap();
    let why = refused(reader(&addr, DESK, "SELECT * FROM a").connect());
    // By the name as it was written: that there is a stream `A` is not for it.
    assert!(why.contains("may not read stream `a`") && why.contains("subscribe = [\"a\"]"), "{why}");
    // Streams that it may not read are not listed either.
    let why = refused(reader(&addr, DESK, "SELECT * FROM B").connect());
    assert!(why.contains("no stream `B`") && !why.contains("orders"), "{why}");
    let node = node(&addr, DESK);
    let why = refused(node.create_mailbox("m", MailboxOptions::default()));
    assert!(why.contains("may not use mailbox `m`"), "{why}");
    // A session without keys is nobody that a rule is for.
    let anonymous = Subscriber::builder(&addr).transport(Transport::Udp).sql("SELECT * FROM A").connect();
    let why = refused(anonymous);
    assert!(why.contains("it has no access rule") && why.contains("everybody = true"), "{why}");
    assert_eq!(["publish", "subscribe", "mailbox", "convert"].map(|of| refusals(&context, of)), [1, 2, 1, 0]);
    let events = context.manager().events(0).unwrap();
    assert_eq!(events.iter().filter(|event| event.kind == "access_refused").count(), 4);
}

#[test]
fn a_reader_sees_the_rows_and_fields_of_its_rule() {
    let view = "SELECT flight, carrier FROM A WHERE carrier = 'UA' AND late > 0";
    let (context, addr) = start(vec![admin(), desk(&[], &[view])]);
    let why = refused(reader(&addr, DESK, "SELECT crew FROM A").connect());
    assert!(why.contains("no column `crew`") && why.ends_with("known: flight, carrier"), "{why}");
    let why = refused(reader(&addr, DESK, "SELECT * FROM A").accept(flights()).connect());
    assert!(why.contains("such records are not converted"), "{why}");
    let mut seen = reader(&addr, DESK, "SELECT * FROM A").one_format(true).connect().unwrap();
    let mut few = reader(&addr, DESK, "SELECT carrier, flight + 1 AS n FROM A WHERE flight < 100").connect().unwrap();
    let mut whole = reader(&addr, ADMIN, "SELECT * FROM A").connect().unwrap();
    let mut publisher = publisher(&addr, ADMIN, "A", &flights()).unwrap();
    publish(&mut publisher, 0..1000);
    publisher.finish().unwrap();
    let shown: Vec<u64> = (0..1000).filter(|number| number % 3 == 0 && number % 50 > 10).collect();
    let row = |number: &u64| vec![format!("flight: Uint({number})"), format!("carrier: {:?}", Value::Text(b"UA"))];
    assert_eq!(rows(&mut seen), shown.iter().map(row).collect::<Vec<_>>());
    assert_eq!(rows(&mut few).len(), shown.iter().filter(|number| **number < 100).count());
    assert_eq!(rows(&mut whole).len(), 1000);
    // The same without a trace.
    let desk: Identity = "desk".parse().unwrap();
    let check = |sql: &str| context.check_access(&desk, &Question::Subscribe(sql.into())).unwrap().unwrap();
    let info = check("SELECT * FROM A WHERE flight > 7");
    assert!(info.allowed && info.rule.as_deref() == Some("key:desk"), "{info:?}");
    let composed = "SELECT flight, carrier FROM A WHERE carrier = 'UA' AND late > 0 AND flight > 7";
    assert_eq!((info.view.as_deref(), info.query.as_deref()), (Some(view), Some(composed)));
    assert!(!check("SELECT crew FROM A").allowed && !check("SELECT * FROM B").allowed);
    for clause in ["ON SLOW KEEP WHERE crew = 'x'", "ON SLOW CONFLATE BY (crew)", "MAX RATE 9 PER SECOND BY crew"] {
        let info = check(&format!("SELECT flight FROM A {clause}"));
        assert!(info.refusal.as_ref().is_some_and(|why| why.contains("no column `crew`")), "{clause}: {info:?}");
    }
    assert!(check("SELECT flight FROM A MAX RATE 9 PER SECOND BY flight").allowed);
    let may = context.check_access(&desk, &Question::Publish("A".into())).unwrap().unwrap();
    assert!(!may.allowed && may.refusal.is_some_and(|why| why.contains("publish = [\"A\"]")));
    assert_eq!(refusals(&context, "subscribe"), 0);
    assert!(context.check_access(&"nobody".parse().unwrap(), &Question::Publish("A".into())).unwrap().is_err());
}

#[test]
fn a_query_is_explained_as_its_caller_would_have_it() {
    let (context, addr) = start(vec![admin(), desk(&[], &["SELECT flight FROM A WHERE late > 0"])]);
    let mut publisher = publisher(&addr, ADMIN, "A", &flights()).unwrap();
    publish(&mut publisher, 0..1000);
    publisher.finish().unwrap();
    let desk = Caller::Key { key: private(DESK).public().to_string(), name: "desk".into() };
    let explain = |sql: &str| context.explain_for(&desk, sql, &[]).unwrap();
    let seen = explain("SELECT * FROM a").unwrap();
    assert!(seen.plan.contains("late") && !seen.output.contains("crew"), "{seen:?}");
    let why = explain("SELECT flight FROM A WHERE crew LIKE 'crew of 1%'").unwrap_err().to_string();
    assert!(why.contains("no column `crew`"), "{why}");
    let named = [crossdock_runtime::FormatName::Version(1)];
    assert!(context.explain_for(&desk, "SELECT * FROM A", &named).unwrap().is_err());
    let nobody = context.explain_for(&Caller::Unknown, "SELECT * FROM a", &[]).unwrap().unwrap_err().to_string();
    assert!(nobody.contains("may not read stream `a`"), "{nobody}");
    // The daemon's own questions see all.
    assert!(context.explain("SELECT crew FROM A", &[]).unwrap().is_ok());
}

#[test]
fn a_list_has_no_values_of_records_where_there_are_rules() {
    let (context, addr) = start(vec![admin()]);
    let mut reader = reader(&addr, ADMIN, "SELECT late / (late - late) AS n FROM A").connect().unwrap();
    let mut publisher = publisher(&addr, ADMIN, "A", &flights()).unwrap();
    publish(&mut publisher, 0..10);
    await_that("the errors are counted", || context.subscriptions().unwrap().iter().any(|of| of.row_errors == 10));
    let listed = context.subscriptions().unwrap();
    assert!(listed.iter().all(|of| of.first_row_error.is_none()), "{listed:?}");
    publisher.finish().unwrap();
    rows(&mut reader);
}

#[test]
fn a_stream_that_becomes_a_derived_one_is_lost_to_those_that_a_pattern_let_in() {
    let named = |name: &str| desk(&[], &["SELECT flight FROM A", "other*", name]);
    let (context, addr) = start(vec![admin(), named("mine")]);
    let wait = |stream: &str| {
        let sql = format!("SELECT * FROM {stream}");
        let builder = reader(&addr, DESK, &sql).wait_for_stream(PATIENCE);
        std::thread::spawn(move || builder.connect().map(|mut subscriber| rows(&mut subscriber)))
    };
    let (other, mine) = (wait("other"), wait("mine"));
    await_that("both wait", || context.subscriptions().unwrap().len() == 2);
    deploy(&context, "other", "SELECT * FROM A");
    deploy(&context, "mine", "SELECT flight, crew FROM A WHERE flight < 3");
    let mut publisher = publisher(&addr, ADMIN, "A", &flights()).unwrap();
    publish(&mut publisher, 0..100);
    publisher.finish().unwrap();
    let why = refused(other.join().unwrap());
    assert!(why.contains("which a handler produces"), "{why}");
    assert_eq!(mine.join().unwrap().unwrap().len(), 3, "the administrator named it");
    let why = refused(reader(&addr, DESK, "SELECT * FROM other").connect());
    assert!(why.contains("a rule has to have its exact name"), "{why}");
}

#[test]
fn a_handler_is_deployed_by_those_that_may_read_its_inputs_whole() {
    let mut rule = desk(&["mine*"], &["SELECT flight FROM A", "B"]);
    rule.handlers = all(&["mine*"]);
    let (context, _) = start(vec![admin(), rule]);
    context.declare_stream("B", &flights()).unwrap().unwrap();
    let desk = Caller::Key { key: private(DESK).public().to_string(), name: "desk".into() };
    let spec = |name: &str, sql: &str, output: Option<&str>| HandlerSpec {
        name: name.into(),
        sql: Some(sql.into()),
        output_stream: output.map(str::to_owned),
        ..HandlerSpec::default()
    };
    let may = |change: &ChangeRequest| context.admit_change(&desk, change).unwrap().map_err(|denial| denial.0);
    let deploy = |name: &str, sql: &str, output| may(&ChangeRequest::Deploy(spec(name, sql, output)));
    assert_eq!(deploy("mine", "SELECT * FROM b", None), Ok(()));
    for (outcome, why) in [
        (deploy("mine", "SELECT flight FROM A", None), "have a handler read stream `A`"),
        (deploy("mine", "SELECT flight FROM a", None), "have a handler read stream `A`"),
        (deploy("other", "SELECT * FROM B", None), "deploy or change handler `other`"),
        (deploy("mine", "SELECT * FROM B", Some("A")), "publish stream `A`"),
        (may(&ChangeRequest::All(Vec::new())), "change the daemon"),
        (may(&ChangeRequest::Remove { handler: "other".into() }), "deploy or change handler `other`"),
    ] {
        assert!(outcome.as_ref().is_err_and(|said| said.contains(why)), "{outcome:?} for {why}");
    }
    assert_eq!(may(&ChangeRequest::Remove { handler: "mine".into() }), Ok(()));
    // One that an administrator deployed may read more than this identity: its parameters are not for it.
    let set = ChangeRequest::SetParameters { handler: "mine".into(), parameters: std::collections::BTreeMap::new() };
    assert_eq!(may(&set), Ok(()), "there is none yet");
    context.manager().change(ChangeRequest::Deploy(spec("mine", "SELECT flight FROM A", None)), true).unwrap().unwrap();
    assert!(may(&set).is_err_and(|said| said.contains("have a handler read stream `A`")));
}

#[test]
fn rules_that_do_not_fit_the_daemon_are_found() {
    for (rules, why) in [
        (vec![desk(&[], &["SELECT flight FROM A"])], None),
        (vec![desk(&[], &["SELECT captain FROM A"])], Some("stream A has no column `captain`")),
        (vec![desk(&[], &["SELECT flight FROM A WHERE late"])], Some("WHERE needs a condition")),
        (vec![desk(&[], &["SELECT * FROM Flights"])], Some("no stream `Flights`")),
        (vec![Rule::new(Identity::Key("shop".into()))], Some("no authorised key has the name `shop`")),
        (
            vec![desk(&[], &[]), Rule::new(Identity::Key(private(DESK).public().to_string().into()))],
            Some("two rules are for the same key"),
        ),
        (
            vec![Rule::new(Identity::Key(private(9).public().to_string().into()))],
            Some("lists no such key as authorised"),
        ),
    ] {
        let (context, _) = start(rules);
        let found = context.check_access_rules().unwrap();
        match why {
            None => assert_eq!(found, Ok(())),
            Some(why) => assert!(found.as_ref().is_err_and(|said| said.contains(why)), "{found:?} for {why}"),
        }
    }
}

#[test]
fn a_rule_has_quotas_in_place_of_the_daemons_bounds() {
    let mut rule = desk(&["*"], &["A"]);
    rule.mailboxes = all(&["*"]);
    rule.quotas = Quotas { streams: Some(2), mailboxes: Some(1), subscriptions: Some(1), sessions: Some(4) };
    let (_context, addr) = start(vec![admin(), rule]);
    let stream = |name: &str| publisher(&addr, DESK, name, &flights());
    let _both = [stream("one").unwrap(), stream("two").unwrap()];
    let why = refused(stream("three"));
    assert!(why.contains("has made 2 streams, its quota (`max_streams` in its [[access]] section"), "{why}");
    let node = node(&addr, DESK);
    node.create_mailbox("one", MailboxOptions::default()).unwrap();
    let why = refused(node.create_mailbox("two", MailboxOptions::default()));
    assert!(why.contains("has made 1 mailboxes, its quota"), "{why}");
    // Others are not held to them.
    publisher(&addr, ADMIN, "three", &flights()).unwrap();
}
