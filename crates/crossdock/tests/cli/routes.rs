//! Source routes from the command line, over three daemons.

use crate::place::{Daemon, FLIGHTS_CSV, FLIGHTS_SCHEMA, Sandbox, argument, with_io_contexts};
use std::fmt::Write;

const NODES: [&str; 3] = ["west", "middle", "east"];

/// Three daemons in a line, each in a place of its own, and a client's key in the first one's.
struct Line {
    places: [Sandbox; 3],
    publics: [String; 3],
    _daemons: Vec<Daemon>,
}

impl Line {
    /// `rules`: the access rules of each.
    fn start(rules: [&str; 3]) -> Line {
        let places = NODES.map(|_| Sandbox::new());
        let key =
            |place: &Sandbox, name: &str| place.run(["keygen", "--output", name]).with_code(0).stdout.trim().to_owned();
        let publics = [0, 1, 2].map(|at| key(&places[at], "daemon.key"));
        let desk = key(&places[0], "desk.key");
        let mut daemons = Vec::new();
        for (at, place) in places.iter().enumerate() {
            let mut config = format!(
                "[context]\nlisten = \"{}\"\n[security]\nkey = \"daemon.key\"\ntrusted = []\n\
                 authorized = [\"{desk} desk\", \"{} west\", \"{} middle\", \"{} east\"]\n[node]\nname = \"{}\"\n",
                place.address(),
                publics[0],
                publics[1],
                publics[2],
                NODES[at],
            );
            for other in (0..NODES.len()).filter(|other| other.abs_diff(at) == 1) {
                let (name, address, key) = (NODES[other], places[other].address(), &publics[other]);
                write!(config, "[[node.peer]]\nname = \"{name}\"\naddress = \"{address}\"\n").unwrap();
                writeln!(config, "key = \"{key}\"\nroute = true").unwrap();
            }
            config += "[[stream]]\nname = \"A\"\nschema = \"a.schema\"\n";
            config += rules[at];
            place.write("a.schema", FLIGHTS_SCHEMA);
            place.write("flights.csv", FLIGHTS_CSV);
            let config = place.write("crossdock.toml", with_io_contexts(&config));
            daemons.push(Daemon::start(&mut place.command(["serve", "--config", argument(&config)])));
        }
        Line { places, publics, _daemons: daemons }
    }

    /// The options of a client that sends over all three.
    fn options(&self) -> [&str; 8] {
        let [west, _, east] = &self.publics;
        ["--key", "desk.key", "--daemon-key", west, "--route", "west,middle,east", "--route-key", east]
    }
}

/// The count of packets that a daemon dropped for a reason.
fn dropped(place: &Sandbox, reason: &str) -> u64 {
    let contexts = place.list("contexts");
    let all = contexts.iter().flat_map(|context| context["dropped"].as_array().unwrap());
    all.filter(|pair| pair[0] == reason).map(|pair| pair[1].as_u64().unwrap()).sum()
}

#[test]
fn records_go_over_two_daemons_to_the_third() {
    let line = Line::start([""; 3]);
    let [west, middle, east] = &line.places;
    let query = ["subscribe", "SELECT carrier, flight FROM A", "--output", "csv", "--limit", "4"];
    let subscriber = west.spawn(query.into_iter().chain(line.options()));
    east.wait_for_subscriptions(1);
    let sessions = east.run(["sessions"]).with_code(0).stdout;
    assert!(sessions.contains("over west,middle,east") || sessions.contains(",middle,east"), "{sessions}");
    west.run(["ping", "--count", "2"].into_iter().chain(line.options()))
        .with_code(0)
        .saying(&["2 round trips, 0 lost"]);
    let publish = ["publish", "A", "flights.csv", "--schema", "a.schema"];
    west.run(publish.into_iter().chain(line.options())).with_code(0).saying(&["published 4 records"]);
    assert_eq!(subscriber.end().with_code(0).stdout.lines().count(), 5);
    for place in [west, middle] {
        let routed: u64 =
            place.list("contexts").iter().map(|context| context["packets_routed"].as_u64().unwrap()).sum();
        assert!(routed > 0 && place.list("sessions").is_empty());
    }
    let (_, metrics) = middle.http_text(&crate::place::get("/metrics"));
    assert!(metrics.contains("crossdock_io_packets_routed_total"), "{metrics}");
}

#[test]
fn rules_on_the_way_and_at_the_end_are_checked() {
    let admin = format!("[[access]]\nuid = {}\nadministration = \"change\"\n", rustix::process::getuid().as_raw());
    let rules = [
        format!("{admin}[[access]]\nkey = \"desk\"\nroute = [\"middle\"]\n"),
        format!("{admin}[[access]]\nkey = \"west\"\nroute = [\"east\"]\n"),
        format!("{admin}[[access]]\nkey = \"desk\"\nsubscribe = [\"A\"]\n"),
    ];
    let line = Line::start(rules.each_ref().map(String::as_str));
    let west = &line.places[0];
    let route = ["access", "check", "desk", "--route", "west,middle,east"];
    for (place, rule) in line.places.iter().zip(["key:desk", "key:west", "key:desk"]) {
        let said = place.run(route).with_code(0).stdout;
        assert!(said.starts_with("allowed") && said.contains(&format!("rule     {rule}\n")), "{said}");
    }
    west.run(["access", "check", "desk", "--route", "middle,east"]).with_code(2).saying(&["not in the route"]);
    let publish = ["publish", "A", "flights.csv", "--schema", "a.schema"];
    let refused = west.run(publish.into_iter().chain(line.options())).with_code(1);
    refused.saying(&["key desk may not publish stream `A`"]);
    west.run(["ping", "--count", "1"].into_iter().chain(line.options())).with_code(0);
    // The one in the middle does not let the first one through.
    let none = format!("{admin}[[access]]\nkey = \"west\"\nroute = [\"south\"]\n");
    let line = Line::start([&rules[0], &none, &rules[2]]);
    let [west, middle, _] = &line.places;
    let said = middle.run(route).with_code(1).stdout;
    assert!(said.contains("refused  key west") && said.contains("route = [\"east\"]"), "{said}");
    let refused = west.run(["ping", "--count", "1"].into_iter().chain(line.options())).with_code(1);
    refused.saying(&["node `middle` does not let node `west` send to `east`", "route = [\"east\"]"]);
    assert!(dropped(middle, "route_forbidden") > 0);
    let events = middle.run(["events"]).with_code(0).stdout;
    assert!(events.contains("may not send packets to node `east`"), "{events}");
    let (_, metrics) = middle.http_text(&crate::place::get("/metrics"));
    assert!(metrics.contains("crossdock_access_refused_total{action=\"route\"}"), "{metrics}");
    assert!(metrics.contains("reason=\"route_forbidden\""), "{metrics}");
}

#[test]
fn a_route_that_is_none_is_refused_at_once() {
    let place = Sandbox::new();
    place.run(["keygen", "--output", "desk.key"]).with_code(0);
    let public = "07".repeat(32);
    let ping = |route: &'static str| {
        let keys = ["--key", "desk.key", "--daemon-key", &public, "--route-key", &public];
        place.run(["ping", "--count", "1", "--route", route].into_iter().chain(keys))
    };
    ping("west").with_code(2).saying(&["2 to 8 nodes"]);
    ping("west,east,west").with_code(2).saying(&["a loop", "node 3"]);
    place.run(["ping", "--route", "west,east"]).with_code(2).saying(&["--route-key"]);
}
