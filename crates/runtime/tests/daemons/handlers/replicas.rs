//! Handlers with a replica at each I/O context: what they make of many publishers' records, and what becomes of them in changes.

use super::*;
use std::path::Path;
use std::thread::JoinHandle;

/// The position of a publisher's number in the numbers of its records.
const SOURCE: u32 = 40;
const PUBLISHERS: u64 = 9;

/// A daemon with this many I/O contexts and a g-core, which keeps its handlers in a directory.
fn start_io(count: usize, directory: &Path) -> (ContextHandle, String) {
    let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..ContextConfig::default() };
    let io = ContextSpec { io: true, ..ContextSpec::new(ContextKind::CCore) };
    config.platform.contexts = vec![ContextSpec::new(ContextKind::GCore)];
    config.platform.contexts.extend(std::iter::repeat_n(io, count - 1));
    config.morph.state_dir = Some(directory.to_owned());
    let handle = ContextHandle::start(config).unwrap();
    let addr = handle.local_addr().to_string();
    (handle, addr)
}

fn replicated(name: &str, text: &str) -> HandlerSpec {
    HandlerSpec { replicas: true, ..sql(name, text) }
}

/// The names of the handlers, and their contexts.
fn placed(context: &ContextHandle) -> Vec<(String, String)> {
    let handlers = context.manager().handlers().unwrap();
    handlers.into_iter().map(|handler| (handler.name, handler.context.unwrap())).collect()
}

/// Publishers of `N` over packets and shared memory: of the latter each I/O context has the same number.
fn publishers(addr: &str) -> Vec<Publisher> {
    let connect = |number: u64| {
        let way = TRANSPORTS[number as usize % 2];
        Publisher::builder(addr).transport(way).stream("N").format(&numbers()).connect().unwrap()
    };
    (0..PUBLISHERS).map(connect).collect()
}

/// Each publisher publishes as many records as are wanted by now, and stops after `all`.
fn publish_all(publishers: Vec<Publisher>, wanted: &Arc<AtomicU64>, all: u64) -> Vec<JoinHandle<()>> {
    let start = |(source, mut publisher): (u64, Publisher)| {
        let wanted = Arc::clone(wanted);
        std::thread::spawn(move || {
            let mut next = 0;
            while next < all {
                let to = wanted.load(Ordering::Acquire).min(next + 100);
                publish(&mut publisher, source << SOURCE | next, source << SOURCE | to);
                next = to;
                std::thread::yield_now();
            }
            publisher.finish().unwrap();
        })
    };
    (0..).zip(publishers).map(start).collect()
}

/// Takes all of a stream up to its end: of each publisher the next that comes, in its order.
fn take_all(addr: &str, way: Transport, stream: &str) -> JoinHandle<Vec<u64>> {
    let query = format!("SELECT number FROM {stream}");
    let mut subscriber = Subscriber::builder(addr).transport(way).sql(query).connect().unwrap();
    std::thread::spawn(move || {
        let mut next = vec![0; PUBLISHERS as usize];
        follow(&mut subscriber, |number| {
            let next = &mut next[(number >> SOURCE) as usize];
            assert_eq!(number & ((1 << SOURCE) - 1), *next, "of publisher {}", number >> SOURCE);
            *next += 1;
        });
        next
    })
}

#[test]
fn replicas_are_swapped_under_traffic_and_each_publishers_records_come_once_and_in_order() {
    // Changes of each handler, and the records of each publisher for each.
    let (rounds, records) = (u64::from(tries(16, 8)), 1000);
    for contexts in [1, 3] {
        let directory = tempfile::tempdir().unwrap();
        let (context, addr) = start_io(contexts, directory.path());
        let publishers = publishers(&addr);
        let version = |round: u64| format!("SELECT * FROM N WHERE number >= -{round}");
        change(&context, ChangeRequest::Deploy(replicated("clean", &version(0))));
        change(&context, ChangeRequest::Deploy(replicated("behind", "SELECT * FROM clean")));
        let place = Some("g-core-0".to_owned());
        change(&context, ChangeRequest::Deploy(HandlerSpec { place, ..sql("all", "SELECT * FROM behind") }));
        let readers: Vec<_> = ["clean", "behind", "all"]
            .iter()
            .flat_map(|stream| TRANSPORTS.map(|way| take_all(&addr, way, stream)))
            .collect();
        let wanted = Arc::new(AtomicU64::new(0));
        let publishing = publish_all(publishers, &wanted, rounds * records);
        for round in 1..=rounds {
            wanted.fetch_add(records, Ordering::AcqRel);
            let behind = HandlerSpec { replicas: round % 2 == 0, ..sql("behind", "SELECT * FROM clean") };
            change(&context, ChangeRequest::Swap(behind));
            change(&context, ChangeRequest::Swap(replicated("clean", &version(round))));
        }
        publishing.into_iter().for_each(|publisher| publisher.join().unwrap());
        for reader in readers {
            assert_eq!(
                reader.join().unwrap(),
                [rounds * records; PUBLISHERS as usize],
                "{:#?}",
                context.manager().handlers()
            );
        }
        let handlers = context.manager().handlers().unwrap();
        assert!(handlers.iter().all(|handler| handler.dropped.is_empty() && handler.faults == 0), "{handlers:#?}");
        context.stop().unwrap();
    }
}

#[test]
fn each_replica_works_on_what_is_published_at_its_context_and_all_change_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (context, addr) = start_io(3, directory.path());
    let of_publishers = publishers(&addr);
    let late = |minutes: &str| HandlerSpec {
        parameters: BTreeMap::from([("n".to_owned(), minutes.to_owned())]),
        ..replicated("late", "SELECT * FROM N WHERE grp >= $n")
    };
    change(&context, ChangeRequest::Deploy(late("0")));
    let places = ["c-core-0", "c-core-1", "c-core-2"];
    let rows =
        |count: usize| places[..count].iter().map(|at| (format!("late@{at}"), (*at).to_owned())).collect::<Vec<_>>();
    assert_eq!(placed(&context), rows(3));
    assert_eq!(context.manager().specs().unwrap(), [late("0")]);
    let reader = take_all(&addr, Transport::Udp, "late");
    let all = Arc::new(AtomicU64::new(1000));
    publish_all(of_publishers, &all, 1000).into_iter().for_each(|publisher| publisher.join().unwrap());
    assert_eq!(reader.join().unwrap(), [1000; PUBLISHERS as usize]);
    let handlers = context.manager().handlers().unwrap();
    assert_eq!(handlers.iter().map(|handler| handler.records_in).sum::<u64>(), PUBLISHERS * 1000);
    assert!(handlers.iter().all(|handler| handler.records_in > 0 && handler.is_fixed), "{handlers:#?}");
    let streams = context.streams().unwrap();
    assert!(streams.iter().any(|stream| stream.name == "late" && stream.made_by.as_deref() == Some("late")));
    // The same again is no change; other values are set at all.
    let applied = context.manager().change(ChangeRequest::Deploy(late("0")), false).unwrap().unwrap();
    assert_eq!(applied.plan.changes, []);
    let parameters = BTreeMap::from([("n".to_owned(), "5".to_owned())]);
    let set = ChangeRequest::SetParameters { handler: "late".into(), parameters };
    let applied = context.manager().change(set, false).unwrap().unwrap();
    assert_eq!(applied.plan.changes.len(), 3, "{applied:?}");
    context.stop().unwrap();
    // Another number of contexts has as many replicas of what is kept.
    let (context, addr) = start_io(2, directory.path());
    assert_eq!(placed(&context), rows(2));
    assert_eq!(context.manager().specs().unwrap(), [late("5")]);
    let mut subscriber = Subscriber::builder(&addr).sql("SELECT number FROM late").connect().unwrap();
    change(&context, ChangeRequest::Remove { handler: "late".into() });
    assert_eq!((collect(&mut subscriber), placed(&context)), (vec![], vec![]));
    context.stop().unwrap();
}

#[test]
fn impossible_replicas_are_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let (context, addr) = start_io(2, directory.path());
    let _publishers = publishers(&addr);
    let refused = |change: ChangeRequest| {
        let plan = context.manager().change(change, false).unwrap().unwrap_err();
        assert_eq!(plan.refusals.len(), 1, "{plan:?}");
        plan.refusals[0].clone()
    };
    let counted = native("counted", "number", "N", &[("field", "n1")]);
    let why = refused(ChangeRequest::Deploy(HandlerSpec { replicas: true, ..counted.clone() }));
    assert!(why.starts_with("handler `counted`: ") && why.contains("each replica would have a part"), "{why}");
    let place = Some("c-core-0".to_owned());
    let why = refused(ChangeRequest::Deploy(HandlerSpec { place, ..replicated("clean", "SELECT * FROM N") }));
    assert!(why.contains("give it one of the two"), "{why}");
    let why = refused(ChangeRequest::Deploy(sql("clean@c-core-0", "SELECT * FROM N")));
    assert!(why.contains("no `@`"), "{why}");
    change(&context, ChangeRequest::Deploy(counted));
    let why = refused(ChangeRequest::Deploy(replicated("clean", "SELECT * FROM counted")));
    assert!(why.contains("clean has replicas, and counted makes the stream counted"), "{why}");
    let why =
        refused(ChangeRequest::Swap(HandlerSpec { output_stream: None, ..replicated("counted", "SELECT * FROM N") }));
    assert!(why.contains("keeps state `number/1`, which replicas cannot take"), "{why}");
    change(&context, ChangeRequest::Deploy(replicated("clean", "SELECT * FROM N")));
    let why = refused(ChangeRequest::Move { handler: "clean".into(), place: None });
    assert!(why.contains("none moves"), "{why}");
    let why = refused(ChangeRequest::Remove { handler: "clean@c-core-0".into() });
    assert!(why.contains("there is no handler `clean@c-core-0`; deployed are: clean, counted"), "{why}");
    let numbered = native("clean", "number", "N", &[("field", "n1")]);
    let why = refused(ChangeRequest::Swap(HandlerSpec { replicas: true, ..numbered }));
    assert!(why.starts_with("handler `clean`: ") && why.contains("each replica would have a part"), "{why}");
    assert_eq!(placed(&context).len(), 3);
    context.stop().unwrap();
}
