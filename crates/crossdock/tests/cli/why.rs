//! `crossdock why`: the judgement of single records in a subscription.

use crate::place::{FLIGHTS_CSV, Sandbox, TRANSPORTS};

#[test]
fn kept_records_are_judged_by_the_subscriptions_query() {
    for way in TRANSPORTS {
        let (place, _daemon) = Sandbox::with_daemon();
        let place = place.by(way);
        place.write("flights.csv", FLIGHTS_CSV);
        place.run(["publish", "A", "flights.csv"]).with_code(0);
        let watcher = place.spawn(["subscribe", "SELECT carrier FROM A WHERE dep_delay > 0 AND dest = 'LAX'"]);
        place.wait_for("subscriptions", |subscriptions| subscriptions.len() == 1);
        let found = place.run(["subscriptions", "--json"]).with_code(0).json();
        let id = found[0]["id"].to_string();
        let why = |stream: &str, condition: &str, more: &[&str]| {
            place.run([&["why", stream, condition, "--subscription", &id], more].concat())
        };
        // Nothing keeps its records.
        why("A", "flight = 1545", &[]).with_code(2).saying(&["no key", "--trace"]);
        place.run(["streams", "set", "A", "--key", "flight"]).with_code(0);
        why("A", "flight = 1545", &[]).with_code(1).saying(&["cannot be known", "a later one of its key"]);
        place.run(["publish", "A", "flights.csv"]).with_code(0);
        place.wait_for("handlers", |handlers| handlers[0]["taken"] == 4);
        let judged = why("A", "flight = 1545", &[]).with_code(0).stdout;
        assert!(judged.contains("\"flight\":1545") && judged.contains("filtered: dest = 'LAX' is false"), "{judged}");
        let sums = why("A", "TRUE", &["--json"]).with_code(0).json();
        let sum = sums.last().unwrap();
        assert_eq!((sums.len(), sum["filtered"].as_u64(), sum["meets"].as_u64()), (5, Some(3), Some(1)), "{sums:?}");
        assert!(sum["conclusion"].as_str().unwrap().contains("nothing was left out"), "{sum}");
        why("A", "flight = 'x'", &[]).with_code(2).saying(&["flight"]);
        why("B", "flight = 1", &[]).with_code(2).saying(&["does not read `B`"]);
        place.run(["why", "A", "TRUE", "--subscription", "999"]).with_code(2).saying(&["no subscription 999"]);
        drop(watcher);
    }
}

#[test]
fn records_are_judged_as_they_come() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("flights.csv", FLIGHTS_CSV);
    place.run(["publish", "A", "flights.csv"]).with_code(0);
    let _grouped = place.spawn(["subscribe", "SELECT dest, count(*) FROM A WHERE dep_delay > 0 GROUP BY dest"]);
    place.wait_for("subscriptions", |subscriptions| subscriptions.len() == 1);
    let found = place.run(["subscriptions", "--json"]).with_code(0).json();
    let id = found[0]["id"].to_string();
    let trace = place.spawn(["why", "A", "flight > 0", "--subscription", &id, "--trace", "--limit", "4"]);
    place.wait_for("subscriptions", |subscriptions| subscriptions.len() == 2);
    place.run(["publish", "A", "flights.csv"]).with_code(0);
    let said = trace.end_by_itself().with_code(0).stdout;
    assert!(said.contains("goes into the query's state") && said.contains("4 records: "), "{said}");
    assert!(said.contains("not followed further"), "{said}");
}
