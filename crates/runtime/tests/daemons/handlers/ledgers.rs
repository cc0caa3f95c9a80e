//! The ledgers of subscriptions whose queries run as handlers: in records of the streams that the query reads, and rows of its state.

use super::stateful::{publish_timed, publisher_of, timed};
use super::*;
use crate::hostile::await_that;
use crate::slow::balanced;
use crossdock_nectarine::DropCause;
use crossdock_runtime::QueryCuts;
use crossdock_runtime::info::{EventInfo, SubscriptionInfo};

/// Of 7 keys two pass, and record 0 of A has a row error.
const JOIN: &str = "SELECT a.number AS n, a.at AS n_at, b.number AS m, b.at AS m_at, a.k + b.k AS ks FROM A a JOIN B b \
    ON a.k = b.k AND b.at BETWEEN a.at - INTERVAL '14' SECOND AND a.at WHERE a.k < 2 AND b.k < 2 AND 60 / a.number >= 0";
const WINDOW: &str =
    "SELECT k, window_start, count(*) AS n FROM A WHERE k < 5 GROUP BY k, TUMBLE(at, INTERVAL '7' SECOND)";
const COUNT: u64 = 70_000;
/// Records that come behind all others and are from before them.
const LATE: u64 = 70;

/// The records that a subscriber got up to the end, and its losses as reported to it.
fn take_all(subscriber: &mut Subscriber) -> (u64, BTreeMap<DropCause, u64>) {
    let (mut records, mut dropped) = (0, BTreeMap::new());
    loop {
        match subscriber.next_event(Some(PATIENCE)).unwrap().expect("something comes") {
            Event::Records(more) => records += more.len() as u64,
            Event::Dropped { records, cause, .. } => *dropped.entry(cause).or_default() += records,
            Event::StreamEnded { publishers_left: 0, .. } => return (records, dropped),
            _ => {}
        }
    }
}

/// The subscription that came first, or after that; its ledger balances as all others do.
fn subscription(context: &ContextHandle, at: usize) -> SubscriptionInfo {
    let mut infos = balanced(context);
    infos.sort_by_key(|info| info.id);
    infos.swap_remove(at)
}

/// The sums of all streams balance too, those of subscriptions that have ended included.
fn streams_balance(context: &ContextHandle) {
    for of in context.streams().unwrap() {
        let gone = of.records_filtered + of.records_taken + of.records_conflated + of.records_sampled;
        let lost = of.records_dropped + of.row_errors;
        assert_eq!(of.records_offered + of.rows_made, of.records_out + gone + lost + of.records_in_flight, "{of:?}");
    }
}

/// Publishes records that are late behind all others, once those are in the state.
fn publish_late(context: &ContextHandle, publishers: &mut [Publisher]) {
    publishers.iter_mut().for_each(|publisher| publisher.flush().unwrap());
    let all = COUNT * publishers.len() as u64;
    await_that("all are in the state", || {
        let of = subscription(context, 0);
        of.published == all && of.in_flight == 0
    });
    publishers.iter_mut().for_each(|publisher| publish_timed(publisher, 7..7 + LATE));
}

fn a_join_accounts_for_the_records_of_both_streams(cuts: QueryCuts) {
    let sql = format!("{JOIN} ON SLOW DROP OLDEST");
    let (context, addr) = start(|config| {
        config.queue_bytes = 256 << 10;
        config.platform.query_cuts = cuts;
    });
    let mut publishers = ["A", "B"].map(|stream| publisher_of(&addr, stream, &timed(), Transport::Udp));
    let mut subscriber = Subscriber::builder(&addr).transport(Transport::Shm).sql(&*sql).connect().unwrap();
    for from in (0..COUNT).step_by(1000) {
        publishers.iter_mut().for_each(|publisher| publish_timed(publisher, from..from + 1000));
        // At any time, whatever the handlers are at.
        subscription(&context, 0);
    }
    publish_late(&context, &mut publishers);
    for publisher in publishers {
        publisher.finish().unwrap();
    }
    let (records, dropped) = take_all(&mut subscriber);

    let passes = |number: &u64| number % 7 < 2;
    let (passing, late) = ((0..COUNT).filter(passes).count() as u64, (7..7 + LATE).filter(passes).count() as u64);
    let pairs = |n: u64| [0, 7, 14].into_iter().filter(|less| *less <= n).count() as u64;
    let rows: u64 = (1..COUNT).filter(passes).map(pairs).sum();
    let of = subscription(&context, 0);
    let published = 2 * (COUNT + LATE);
    assert_eq!((of.published, of.rows_made, of.in_flight), (published, rows, 0), "{of:#?}");
    assert_eq!((of.taken, of.row_errors), (2 * (passing + late) - 1, 1), "{of:#?}");
    assert_eq!(of.filtered, published - 2 * (passing + late), "{of:#?}");
    assert!(of.dropped > 0 && of.records_out + of.dropped == rows, "{of:#?}");
    let reported: u64 = dropped.values().sum();
    assert_eq!((of.records_out, of.dropped + of.row_errors), (records, reported), "{of:#?} {dropped:?}");
    // The subscriber's own handlers, which nobody shared.
    let handlers = context.manager().handlers().unwrap();
    assert_eq!(handlers.len(), if cuts == QueryCuts::Always { 3 } else { 1 });
    assert_eq!(handlers.iter().map(|handler| handler.filtered).sum::<u64>(), of.filtered, "{handlers:#?}");
    assert_eq!(handlers.iter().map(|handler| handler.late).sum::<u64>(), 2 * late, "{handlers:#?}");
    streams_balance(&context);
    drop(subscriber);
    await_that("the subscription has gone", || context.subscriptions().unwrap().is_empty());
    streams_balance(&context);
}

#[test]
fn a_join_accounts_for_the_records_of_both_streams_in_one_handler() {
    a_join_accounts_for_the_records_of_both_streams(QueryCuts::Never);
}

#[test]
fn a_join_accounts_for_the_records_of_both_streams_with_reductions_apart() {
    a_join_accounts_for_the_records_of_both_streams(QueryCuts::Always);
}

/// Two subscribers share the handler; the second begins when half of the records are in its windows.
#[test]
fn a_window_accounts_for_the_records_of_its_subscriber() {
    let (context, addr) = start(|_| {});
    let mut publisher = publisher_of(&addr, "A", &timed(), Transport::Udp);
    let sql = format!("{WINDOW} MAX RATE 1000 PER SECOND");
    let mut first = Subscriber::builder(&addr).sql(&*sql).connect().unwrap();
    publish_timed(&mut publisher, 0..COUNT / 2);
    publisher.flush().unwrap();
    await_that("half is in the state", || subscription(&context, 0).taken == COUNT / 2 / 7 * 5);
    let mut second = Subscriber::builder(&addr).sql(&*sql).connect().unwrap();
    assert_eq!(context.manager().handlers().unwrap().len(), 1);
    let reading = std::thread::spawn(move || (take_all(&mut second), second));
    for from in (COUNT / 2..COUNT).step_by(1000) {
        publish_timed(&mut publisher, from..from + 1000);
        balanced(&context);
    }
    let mut publishers = [publisher];
    publish_late(&context, &mut publishers);
    let [publisher] = publishers;
    publisher.finish().unwrap();
    let (records, dropped) = take_all(&mut first);
    let ((others, lost), _second) = reading.join().unwrap();

    let rows = COUNT / 7 * 5;
    let of = subscription(&context, 0);
    assert_eq!((of.published, of.filtered, of.taken), (COUNT + LATE, (COUNT + LATE) / 7 * 2, (COUNT + LATE) / 7 * 5));
    assert_eq!((of.rows_made, of.records_out + of.dropped, of.in_flight), (rows, rows, 0), "{of:#?}");
    assert_eq!((of.records_out, Some(&of.dropped)), (records, dropped.get(&DropCause::OverRate)), "{of:#?}");
    let of = subscription(&context, 1);
    let half = COUNT / 2 + LATE;
    assert_eq!((of.published, of.filtered, of.taken), (half, half / 7 * 2, half / 7 * 5), "{of:#?}");
    assert_eq!((of.rows_made, of.in_flight), (of.records_out + of.dropped, 0), "{of:#?}");
    assert_eq!((of.records_out, Some(&of.dropped)), (others, lost.get(&DropCause::OverRate)), "{of:#?}");
    // The windows that were open when it began are its own too: one of each of the five keys.
    assert!((rows / 2..=rows / 2 + 5).contains(&of.rows_made), "{of:#?}");
    let handler = &context.manager().handlers().unwrap()[0];
    assert_eq!((handler.filtered, handler.late), ((COUNT + LATE) / 7 * 2, LATE / 7 * 5), "{handler:#?}");
    streams_balance(&context);
}

/// While it waits for B, its handler's queue loses records of A. That queue is not the subscriber's.
#[test]
fn a_join_that_waits_for_a_stream_keeps_the_session_that_goes_when_it_is_slow() {
    let (context, addr) = start(|config| config.platform.queue_batches = 16);
    let mut first = publisher_of(&addr, "A", &timed(), Transport::Udp);
    let builder = Subscriber::builder(&addr).sql(format!("{JOIN} ON SLOW DISCONNECT")).wait_for_stream(PATIENCE);
    let reading = std::thread::spawn(move || take_all(&mut builder.connect().unwrap()));
    await_that("the subscription is there", || !context.subscriptions().unwrap().is_empty());
    for from in 0..400 {
        publish_timed(&mut first, from * 20..(from + 1) * 20);
        first.flush().unwrap();
    }
    let wanted = "because the queue of a handler that works for the query was full";
    let is_noted = |event: &EventInfo| event.kind == "dropped" && event.text.ends_with(wanted);
    await_that("it is noted", || context.manager().events(0).unwrap().iter().any(is_noted));
    let of = subscription(&context, 0);
    let all = vec![("handler_full".to_owned(), of.dropped)];
    assert!(of.dropped > 0 && of.dropped_by == all && of.published == of.dropped, "{of:#?}");
    let counted = context.context().unwrap().dropped;
    assert!(counted.iter().all(|(reason, records)| reason != "record_queue_full" || *records == 0), "{counted:?}");
    let mut second = publisher_of(&addr, "B", &timed(), Transport::Udp);
    publish_timed(&mut second, 0..8000);
    first.finish().unwrap();
    second.finish().unwrap();
    let (_, dropped) = reading.join().unwrap();
    // Record 0 waited in the queue, and has a row error.
    assert_eq!(
        dropped.keys().collect::<Vec<_>>(),
        [&DropCause::HandlerFull, &DropCause::DivisionByZero],
        "{dropped:?}"
    );
}
