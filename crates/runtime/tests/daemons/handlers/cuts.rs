//! Queries with state that are cut: a reduction of each stream runs as a handler of its own, in front of the one that keeps the state.

use super::stateful::{publish_timed, publisher_of, rows, timed};
use super::*;
use crate::hostile::await_that;
use crossdock_runtime::QueryCuts;
use std::collections::BTreeSet;

/// Of 7 keys two pass.
const JOIN: &str = "SELECT a.number AS n, b.number AS m FROM A a JOIN B b \
    ON a.k = b.k AND b.at BETWEEN a.at - INTERVAL '14' SECOND AND a.at WHERE a.k < 2 AND b.k < 2";
const COUNT: &str =
    "SELECT k, window_start, count(*) AS n FROM A WHERE number < 300 GROUP BY k, TUMBLE(at, INTERVAL '70' SECOND)";

fn names(context: &ContextHandle) -> Vec<String> {
    context.manager().handlers().unwrap().into_iter().map(|handler| handler.name).collect()
}

/// Publishes both streams, and takes the rows of both queries up to the end.
fn results(cuts: QueryCuts, way: Transport) -> [BTreeSet<Vec<u64>>; 2] {
    let (context, addr) = start(|config| config.platform.query_cuts = cuts);
    let mut publishers = ["A", "B"].map(|stream| publisher_of(&addr, stream, &timed(), way));
    let readers = [JOIN, COUNT].map(|query| {
        let mut subscriber = Subscriber::builder(&addr).transport(way).sql(query).connect().unwrap();
        std::thread::spawn(move || rows(&mut subscriber))
    });
    let reductions = names(&context).iter().filter(|name| name.contains("-input-")).count();
    assert_eq!(reductions, if cuts == QueryCuts::Always { 3 } else { 0 });
    for from in (0..1000).step_by(100) {
        publishers.iter_mut().for_each(|publisher| publish_timed(publisher, from..from + 100));
    }
    for publisher in publishers {
        publisher.finish().unwrap();
    }
    let rows = readers.map(|reader| reader.join().unwrap());
    // With the subscriptions all of it goes.
    await_that("the handlers have gone", || names(&context).is_empty());
    rows.map(|rows| {
        let count = rows.len();
        let rows = BTreeSet::from_iter(rows);
        assert_eq!(count, rows.len(), "each comes once");
        rows
    })
}

#[test]
fn a_query_gives_the_same_rows_with_each_cut() {
    for way in TRANSPORTS {
        let whole = results(QueryCuts::Never, way);
        assert!(whole.iter().all(|rows| !rows.is_empty()));
        assert_eq!(results(QueryCuts::Always, way), whole, "{way:?}");
        assert_eq!(results(QueryCuts::Auto, way), whole, "{way:?}");
    }
}

#[test]
fn equal_reductions_run_once_and_go_with_the_last_query_that_reads_them() {
    let (context, addr) = start(|config| config.platform.query_cuts = QueryCuts::Always);
    let _publisher = publisher_of(&addr, "A", &timed(), TRANSPORTS[0]);
    let of_group = |of: &str| format!("SELECT k, {of} AS n FROM A WHERE k > 1 AND number < 9 GROUP BY k");
    let connect = |sql: String| Subscriber::builder(&addr).sql(sql).connect().unwrap();
    let (counts, sums) = (connect(of_group("count(number)")), connect(of_group("sum(number)")));
    let reductions = |context: &ContextHandle| names(context).iter().filter(|name| name.contains("-input-")).count();
    assert_eq!((names(&context).len(), reductions(&context)), (3, 1), "{:?}", names(&context));
    // Another one has a condition more.
    let other = connect("SELECT k, sum(number) AS n FROM A WHERE k > 1 GROUP BY k".to_owned());
    assert_eq!((names(&context).len(), reductions(&context)), (5, 2), "{:?}", names(&context));
    drop(counts);
    await_that("one query has gone", || names(&context).len() == 4);
    assert_eq!(reductions(&context), 2, "the other query reads it still");
    drop((sums, other));
    await_that("all have gone", || names(&context).is_empty());
}

#[test]
fn only_reduced_records_go_to_another_context() {
    let (context, addr) = {
        let mut config = ContextConfig { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ..Default::default() };
        let io = ContextSpec { io: true, ..ContextSpec::new(ContextKind::CCore) };
        config.platform.contexts = vec![ContextSpec::new(ContextKind::GCore), io];
        config.platform.query_cuts = QueryCuts::Always;
        let handle = ContextHandle::start(config).unwrap();
        let addr = handle.local_addr().to_string();
        (handle, addr)
    };
    // Programs attach to the context with fewer of them.
    let mut publishers = ["A", "B"].map(|stream| publisher_of(&addr, stream, &timed(), Transport::Shm));
    publishers.iter_mut().for_each(|publisher| publish_timed(publisher, 0..700));
    publishers.iter_mut().for_each(|publisher| publisher.flush().unwrap());
    let records = |stream: &str| {
        let streams = context.streams().unwrap();
        streams.iter().find(|known| known.name == stream).map_or(0, |known| known.records_in)
    };
    await_that("the context has seen all", || records("A") == 700 && records("B") == 700);
    context.manager().contexts().unwrap();
    let mut subscriber = Subscriber::builder(&addr).sql(JOIN).connect().unwrap();
    publishers.iter_mut().for_each(|publisher| publish_timed(publisher, 700..1400));
    for publisher in publishers {
        publisher.finish().unwrap();
    }
    assert!(!rows(&mut subscriber).is_empty());

    let handlers = context.manager().handlers().unwrap();
    let of = |name: &str| handlers.iter().find(|handler| handler.name.ends_with(name)).unwrap();
    let (first, second) = (of("-input-1"), of("-input-2"));
    let state = handlers.iter().find(|handler| !handler.name.contains("-input-")).unwrap();
    assert_eq!([first, second].map(|part| (part.records_in, part.records_out)), [(700, 200); 2]);
    assert_eq!((state.records_in, state.bytes_in), (400, first.bytes_out + second.bytes_out), "{state:#?}");
    // Each reduction is where its stream comes in, so that none of its records crosses before.
    assert_ne!(first.context, second.context, "{handlers:#?}");
    let analyzed = context.analyze_handler(&state.name).unwrap().unwrap();
    let streams = analyzed.operators.iter().filter(|operator| operator.text.starts_with("handler "));
    assert_eq!(streams.count(), 3, "{analyzed:#?}");
}
