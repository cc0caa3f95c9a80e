//! The place and cost of queries with state, before they run.

use super::stateful::{publish_timed, publisher_of, timed};
use super::*;
use crossdock_runtime::QueryCuts;
use crossdock_runtime::info::{ExplainInfo, ExplainInputInfo, InputStep};

const JOIN: &str = "SELECT a.number AS n, b.number AS m FROM A a JOIN B b \
    ON a.k = b.k AND b.at BETWEEN a.at - INTERVAL '14' SECOND AND a.at WHERE a.k < 2";

fn explained(context: &ContextHandle, sql: &str) -> ExplainInfo {
    let plan = context.explain(sql, &[]).unwrap().unwrap();
    assert!(plan.is_stateful && plan.ns_per_record.is_none() && plan.selectivity.is_none(), "{plan:#?}");
    plan
}

fn steps(plan: &ExplainInfo) -> Vec<(&str, InputStep)> {
    plan.inputs.iter().map(|input| (&*input.stream, input.step)).collect()
}

/// Its cost is known, and so is its load at the rate that its stream has had.
fn is_measured(input: &ExplainInputInfo) -> bool {
    input.sample_records > 0 && input.ns_per_record > Some(0.0) && input.load_ns_per_s.is_some()
}

#[test]
fn a_query_with_state_is_measured_on_each_of_its_streams_that_has_had_records() {
    let (context, addr) = start(|config| config.platform.query_cuts = QueryCuts::Never);
    let mut publishers = ["A", "B"].map(|stream| publisher_of(&addr, stream, &timed(), Transport::Udp));
    let names: Vec<String> = context.manager().contexts().unwrap().into_iter().map(|context| context.name).collect();

    let plan = explained(&context, JOIN);
    assert_eq!(steps(&plan), [("A", InputStep::State), ("B", InputStep::State)]);
    assert!(
        plan.inputs.iter().all(|input| input.ns_per_record.is_none() && input.load_ns_per_s.is_none()),
        "{plan:#?}"
    );
    assert_eq!((plan.sample_records, plan.load_ns_per_s), (0, None), "{plan:#?}");
    assert!(names.iter().any(|name| plan.place.starts_with(&format!("{name}: a handler of its own"))), "{plan:#?}");
    assert!(plan.headroom_ns_per_s.is_some(), "{plan:#?}");

    let [a, _] = &mut publishers;
    publish_timed(a, 0..700);
    a.flush().unwrap();
    let records = |stream: &str| {
        let streams = context.streams().unwrap();
        streams.iter().find(|known| known.name == stream).map_or(0, |known| known.records_in)
    };
    crate::hostile::await_that("the context has seen all", || records("A") == 700);
    let plan = explained(&context, JOIN);
    let [a, b] = &plan.inputs[..] else { panic!("{plan:#?}") };
    assert!([a, b].iter().all(|input| ["kernel", "interpreted", "unchanged"].contains(&&*input.form)), "{plan:#?}");
    assert!(is_measured(a) && !is_measured(b) && a.rate_msgs_per_s >= 700, "{plan:#?}");
    // Of the whole only the sum of what is known of all would be one.
    assert_eq!((plan.sample_records, plan.load_ns_per_s), (a.sample_records, None), "{plan:#?}");
    let plan = explained(&context, "SELECT k, count(*) AS n FROM A GROUP BY k");
    let [a] = &plan.inputs[..] else { panic!("{plan:#?}") };
    assert!(is_measured(a), "{plan:#?}");
    assert_eq!((plan.load_ns_per_s, plan.rate_msgs_per_s), (a.load_ns_per_s, a.rate_msgs_per_s), "{plan:#?}");
    // Nothing was deployed.
    assert!(context.manager().handlers().unwrap().is_empty());

    let _subscriber = Subscriber::builder(&addr).sql(JOIN).connect().unwrap();
    let handler = &context.manager().handlers().unwrap()[0];
    let plan = explained(&context, &JOIN.replace(' ', "\n "));
    let place = format!(
        "{}: handler {} runs it for other subscribers already",
        handler.context.as_deref().unwrap(),
        handler.name
    );
    assert_eq!((&plan.place, steps(&plan)), (&place, vec![("A", InputStep::State), ("B", InputStep::State)]));
    assert!(is_measured(&plan.inputs[0]), "{plan:#?}");
}

#[test]
fn a_query_that_is_cut_shows_its_reductions_too() {
    let (context, addr) = start(|config| config.platform.query_cuts = QueryCuts::Always);
    let _publishers = ["A", "B"].map(|stream| publisher_of(&addr, stream, &timed(), Transport::Udp));
    // All records of B, and all of their fields, go into the state.
    let wanted = vec![("A", InputStep::Reduced), ("A", InputStep::Reduction), ("B", InputStep::State)];
    assert_eq!(steps(&explained(&context, JOIN)), wanted);
    let _subscriber = Subscriber::builder(&addr).sql(JOIN).connect().unwrap();
    let plan = explained(&context, JOIN);
    assert_eq!(steps(&plan), wanted, "{plan:#?}");
    // Another query uses the reductions that are there.
    let before = context.manager().handlers().unwrap().len();
    let other = explained(&context, &JOIN.replace("AS n", "AS o"));
    assert!(other.place.contains("a handler of its own") && steps(&other) == wanted, "{other:#?}");
    assert_eq!(context.manager().handlers().unwrap().len(), before);
}

#[test]
fn a_query_without_room_for_its_state_says_so() {
    let (context, addr) = start(|config| config.platform.max_query_state_bytes = 1 << 20);
    let _publishers = ["A", "B"].map(|stream| publisher_of(&addr, stream, &timed(), Transport::Udp));
    let plan = explained(&context, JOIN);
    assert!(
        plan.place.starts_with("it would be refused: ") && plan.place.contains("max_query_state_bytes"),
        "{plan:#?}"
    );
    assert_eq!((plan.inputs.len(), plan.headroom_ns_per_s), (0, None));
}
