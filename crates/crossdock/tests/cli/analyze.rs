//! `crossdock explain analyze`: the counts of the steps of subscriptions, handlers and queries that are run for it.

use crate::place::{Sandbox, TRANSPORTS};
use serde_json::Value;

/// A step of a report by the beginning of its text.
fn step<'r>(report: &'r Value, text: &str) -> &'r Value {
    let steps = report["operators"].as_array().unwrap();
    let found = steps.iter().find(|step| step["text"].as_str().is_some_and(|found| found.starts_with(text)));
    found.unwrap_or_else(|| panic!("no `{text}` in {report:#}"))
}

fn counts(step: &Value) -> (Option<u64>, Option<u64>) {
    (step["records_in"].as_u64(), step["records_out"].as_u64())
}

fn rows() -> String {
    let row = |n: u32| format!("{},{n},EWR,IAH,2,note\n", if n.is_multiple_of(4) { "UA" } else { "AA" });
    "carrier,flight,origin,dest,dep_delay,note\n".to_owned() + &(0..100).map(row).collect::<String>()
}

#[test]
fn the_steps_of_a_running_subscription_are_shown_with_their_counts() {
    for way in TRANSPORTS {
        let (of_daemon, _daemon) = Sandbox::with_daemon();
        let place = of_daemon.by(way);
        place.write("rows.csv", rows());
        let sql = "SELECT flight, origin FROM A WHERE carrier = 'UA'";
        let process = place.spawn(["subscribe", sql, "--limit", "26"]);
        let grouped = "SELECT carrier, COUNT(*) AS n FROM A WHERE flight < 50 GROUP BY carrier";
        let of_groups = place.spawn(["subscribe", grouped, "--limit", "51"]);
        place.wait_for("subscriptions", |subscriptions| subscriptions.len() == 2);
        place.run(["publish", "A", "rows.csv"]).with_code(0);
        place.wait_for("subscriptions", |subscriptions| {
            subscriptions.iter().all(|known| known["records_out"].as_u64().is_some_and(|sent| sent == 25 || sent == 50))
        });
        let id = |sql: &str| {
            let subscriptions = place.list("subscriptions");
            let found = subscriptions.iter().find(|known| known["sql"] == sql);
            found.unwrap()["id"].to_string()
        };
        let analyze = |sql: &str| {
            let id = id(sql);
            let arguments = ["explain", "analyze", "--subscription", &id, "--for", "1ms"];
            let text = place.run(arguments).with_code(0).stdout;
            assert_eq!(text.lines().find(|line| line.chars().count() > 80), None, "{text}");
            assert!(text.starts_with("subscription ") && text.contains("-> "), "{text}");
            place.run(arguments.iter().chain(&["--json"])).with_code(0).json().remove(0)
        };
        let report = analyze(sql);
        assert_eq!(counts(step(&report, "session ")), (Some(25), Some(25)));
        assert_eq!(counts(step(&report, "project flight, origin")), (Some(25), Some(25)));
        assert_eq!(counts(step(&report, "filter carrier = 'UA'")), (Some(100), Some(25)));
        assert_eq!(counts(step(&report, "stream A")), (None, Some(100)));
        assert!(step(&report, "project ")["ns_per_record"].is_number(), "{report:#}");

        let report = analyze(grouped);
        let handler = step(&report, "handler subscription-");
        assert_eq!(handler["records_out"], 50);
        assert!(handler["context"].is_string() && handler["kept_bytes_bound"].is_number(), "{report:#}");
        let group = step(&report, "group by carrier");
        assert_eq!((counts(group), group["kept_rows"].as_u64()), ((Some(50), Some(50)), Some(2)), "{report:#}");
        assert!(group["kept_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{report:#}");
        drop((process, of_groups));
    }
}

#[test]
fn a_query_is_run_for_its_analysis_and_is_gone_afterwards() {
    let (place, _daemon) = Sandbox::with_daemon();
    let sql = "SELECT flight FROM A WHERE dest = 'LAX'";
    let report = place.run(["explain", "analyze", sql, "--for", "100ms", "--json"]).with_code(0).json().remove(0);
    assert_eq!(report["sql"], sql);
    assert_eq!(step(&report, "filter dest = 'LAX'")["depth"], 2, "{report:#}");
    place.wait_for_subscriptions(0);
    // Beside another subscription with the same text it is its own that is shown.
    let other = place.spawn(["subscribe", sql, "--limit", "1"]);
    place.wait_for_subscriptions(1);
    let id = place.list("subscriptions")[0]["id"].as_u64().unwrap();
    let report = place.run(["explain", "analyze", sql, "--for", "1ms", "--json"]).with_code(0).json().remove(0);
    let of = report["of"].as_str().and_then(|of| of.strip_prefix("subscription "));
    assert!(of.is_some_and(|of| of.parse::<u64>().unwrap() != id), "{report:#}");
    let id = id.to_string();
    let report = place.run(["explain", "analyze", "--subscription", &id, "--for", "1ms", "--json"]).with_code(0).json();
    assert_eq!(report[0]["of"], format!("subscription {id}"));
    drop(other);
    place.run(["explain", "analyze", "SELECT nothing FROM A", "--for", "1ms"]).with_code(2).saying(&["`nothing`"]);
}

#[test]
fn a_handler_is_analyzed_by_its_name_and_unknown_ones_are_refused() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.run(["handler", "deploy", "late", "SELECT flight FROM A WHERE dest = 'LAX'"]).with_code(0);
    let report = place.run(["explain", "analyze", "--handler", "late", "--for", "1ms", "--json"]).with_code(0).json();
    let handler = step(&report[0], "handler late");
    assert!(handler["form"].is_string() && handler["share"].is_number(), "{report:#?}");
    assert_eq!(step(&report[0], "stream A")["depth"], 3);
    for (arguments, code, says) in [
        (&["--handler", "later"][..], 1, "there is no handler `later`"),
        (&["--subscription", "77"], 1, "there is no subscription 77"),
        (&[], 2, "SQL"),
        (&["SELECT * FROM A", "--handler", "late"], 2, "cannot be used with"),
    ] {
        place.run(["explain", "analyze"].iter().chain(arguments)).with_code(code).saying(&[says]);
    }
}
