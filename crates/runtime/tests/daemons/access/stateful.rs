//! Queries with joins and windows under access rules.

use super::*;
use std::collections::BTreeMap;

/// The latest count of each carrier up to the stream's end.
fn counts(subscriber: &mut Subscriber) -> BTreeMap<String, String> {
    rows(subscriber).into_iter().map(|mut row| (row.remove(0), row.remove(0))).collect()
}

#[test]
fn a_query_with_state_sees_of_each_stream_what_its_subscriber_may() {
    let view = "SELECT flight, carrier FROM A WHERE carrier = 'UA' AND late > 0";
    let (context, addr) = start(vec![admin(), desk(&[], &[view])]);
    context.declare_stream("B", &flights()).unwrap().unwrap();
    let mut publisher = publisher(&addr, ADMIN, "A", &flights()).unwrap();
    let query = "SELECT carrier, count(*) AS n FROM A GROUP BY carrier";
    let mut of_desk = reader(&addr, DESK, query).connect().unwrap();
    let mut of_admin = reader(&addr, ADMIN, query).connect().unwrap();
    let handlers = context.manager().handlers().unwrap();
    assert_eq!(handlers.len(), 2, "what they may see differs: {handlers:#?}");
    // Neither a hidden field, nor a stream that is not its own, whether it is there or not.
    let refusal = |query: &str| reader(&addr, DESK, query).connect().unwrap_err().to_string();
    for query in [
        "SELECT crew, count(*) AS n FROM A GROUP BY crew",
        "SELECT flight, lag(crew) OVER (PARTITION BY carrier) AS before FROM A",
        "SELECT flight, row_number() OVER (PARTITION BY crew) AS n FROM A",
    ] {
        let hidden = refusal(query);
        assert!(hidden.contains("no column `crew`") || hidden.contains("unknown column"), "{hidden}");
    }
    for other in ["B", "C"] {
        let joined =
            format!("SELECT a.flight FROM A a ASOF JOIN {other} b ON a.carrier = b.carrier AND a.flight >= b.flight");
        let denied = refusal(&joined);
        assert!(denied.contains(&format!("`{other}`")), "{denied}");
    }
    assert!(context.manager().handlers().unwrap().len() == 2);
    // Nobody takes the rules from it.
    let of_subscribers: Vec<String> = handlers.into_iter().map(|info| info.name).collect();
    for name in &of_subscribers {
        let spec = HandlerSpec { name: name.clone(), sql: Some(query.into()), ..HandlerSpec::default() };
        let (handler, parameters) = (name.clone(), BTreeMap::from([("least".to_owned(), "1".to_owned())]));
        let changes = [
            ChangeRequest::Swap(spec.clone()),
            ChangeRequest::Deploy(HandlerSpec { weight: Some(2), ..spec }),
            ChangeRequest::SetParameters { handler: handler.clone(), parameters },
            ChangeRequest::Remove { handler },
        ];
        for change in changes {
            let plan = context.manager().plan(change.clone(), true).unwrap();
            let refused = context.manager().change(change.clone(), true).unwrap().unwrap_err();
            assert!(!plan.refusals.is_empty() && refused.refusals == plan.refusals, "{change:?}: {plan:?}");
            assert!(plan.refusals[0].contains(&format!("`{name}`")), "{plan:?}");
        }
    }
    // A handler of the rest leaves them too.
    context.manager().change(ChangeRequest::All(Vec::new()), true).unwrap().unwrap();
    publish(&mut publisher, 0..300);
    publisher.finish().unwrap();
    let shown = (0..300u64).filter(|n| n % 3 == 0 && n % 50 > 10).count();
    let of = |carrier: &str, n: usize| {
        (format!("carrier: {:?}", Value::Text(carrier.as_bytes())), format!("n: {:?}", Value::Int(n as i64)))
    };
    assert_eq!(counts(&mut of_desk), BTreeMap::from([of("UA", shown)]));
    assert_eq!(counts(&mut of_admin), BTreeMap::from([of("UA", 100), of("AA", 100), of("DL", 100)]));
    context.stop().unwrap();
}

/// A name that differs in case from that of a stream which its subscriber may not read stays the name of a stream to come.
#[test]
fn a_waiting_query_with_state_never_means_a_stream_that_its_subscriber_may_not_read() {
    let view = "SELECT flight, carrier FROM A WHERE carrier = 'UA'";
    let (context, addr) = start(vec![admin(), desk(&[], &["*", view])]);
    let sql = Some("SELECT flight, carrier, late FROM A".to_owned());
    let spec = HandlerSpec { name: "counted".into(), sql, ..HandlerSpec::default() };
    context.manager().change(ChangeRequest::Deploy(spec), true).unwrap().unwrap();
    let counts = |stream: &str| format!("SELECT carrier, count(*) AS n FROM {stream} GROUP BY carrier");
    let denied = reader(&addr, DESK, &counts("counted")).wait_for_stream(PATIENCE).connect().unwrap_err().to_string();
    assert!(denied.contains("`counted`"), "{denied}");
    let waits = reader(&addr, DESK, &counts("Counted")).wait_for_stream(PATIENCE);
    let waiting = std::thread::spawn(move || waits.connect().map(drop));
    let reads = loop {
        let handlers = context.manager().handlers().unwrap();
        match handlers.into_iter().find(|info| info.name.starts_with("subscription-")) {
            Some(info) => break info.reads,
            None => std::thread::yield_now(),
        }
    };
    assert_eq!(reads, ["Counted"]);
    context.stop().unwrap();
    assert!(waiting.join().unwrap().is_err());
}

/// A handler reads all of its inputs whole, so that its owner must be allowed to read each.
#[test]
fn a_handler_of_a_query_with_state_needs_the_right_to_each_of_its_streams() {
    let mut rule = desk(&["*"], &["A"]);
    rule.handlers = all(&["*"]);
    let (context, _) = start(vec![admin(), rule]);
    context.declare_stream("B", &flights()).unwrap().unwrap();
    let desk = Caller::Key { key: private(DESK).public().to_string(), name: "desk".into() };
    let deploys = |sql: &str| {
        let spec = HandlerSpec { name: "h".into(), sql: Some(sql.into()), ..HandlerSpec::default() };
        context.admit_change(&desk, &ChangeRequest::Deploy(spec)).unwrap().map_err(|denial| denial.0)
    };
    assert_eq!(deploys("SELECT count(*) AS n FROM A"), Ok(()));
    let both = "SELECT a.flight FROM A a ASOF JOIN B b ON a.carrier = b.carrier AND a.flight >= b.flight";
    assert!(deploys(both).is_err_and(|why| why.contains('B')));
    assert!(deploys("SELECT flight FROM A UNION ALL SELECT flight FROM B").is_err_and(|why| why.contains('B')));
    context.stop().unwrap();
}
