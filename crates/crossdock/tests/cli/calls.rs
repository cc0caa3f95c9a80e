//! Commands about sessions over packets: `sessions`, `ping`, `publish --class`; and `call`.

use crate::place::{Process, Sandbox, TRANSPORTS};
use crossdock_nectarine::{Node, Transport};
use rustix::process::Signal;

#[test]
fn a_session_over_packets_is_listed_with_its_path_and_bytes() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("flights.csv", crate::place::FLIGHTS_CSV);
    place.run(["sessions"]).with_code(0).saying(&["no sessions over packets"]);
    let subscriber = place.spawn(["subscribe", "SELECT carrier FROM A", "--transport", "udp"]);
    place.wait_for_subscriptions(1);
    place.run(["publish", "A", "flights.csv", "--schema", "a.schema", "--transport", "udp"]).with_code(0);
    subscriber.stdout_line(|line| line.contains("DL"));
    place.wait_for("sessions", |list| list.len() == 1 && list[0]["flight_bytes"] == 0);
    let session = &place.list("sessions")[0];
    assert!(session["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{session}");
    assert_eq!((&session["subscriptions"], &session["packets_resent"]), (&1.into(), &0.into()), "{session}");
    assert_eq!((&session["security"], session.get("key")), (&"none".into(), None), "{session}");
    for field in ["rtt_ns", "window_bytes", "receive_window_bytes", "packets_out", "bytes_out", "bytes_in"] {
        assert!(session[field].as_u64().is_some_and(|value| value > 0), "{field}: {session}");
    }
    let mut command = place.command(["sessions"]);
    let table = Process::spawn(command.env("COLUMNS", "80")).end().with_code(0).stdout;
    assert!(table.contains("subscription") && table.lines().all(|line| line.chars().count() <= 80), "{table}");
    subscriber.signal(Signal::INT);
    subscriber.end_by_itself().with_code(0);
    place.wait_for("sessions", <[serde_json::Value]>::is_empty);
}

#[test]
fn pings_are_answered_and_summed_up() {
    let (place, _daemon) = Sandbox::with_daemon();
    let ended = place.run(["ping", "--count", "3", "--interval", "1ms"]).with_code(0);
    assert_eq!(ended.stdout.lines().filter(|line| line.starts_with(place.address())).count(), 3, "{}", ended.stdout);
    ended.saying(&["3 round trips, 0 lost; least ", "median "]);
    let report = &place.run(["ping", "--count", "2", "--interval", "1ms", "--json"]).with_code(0).json()[0];
    assert_eq!((&report["sent"], &report["lost"]), (&2.into(), &0.into()), "{report}");
    let us = |field: &str| report[field].as_f64().unwrap();
    assert!(us("min_us") > 0.0 && us("min_us") <= us("median_us") && us("median_us") <= us("max_us"), "{report}");
    Sandbox::new().run(["ping", "--count", "1"]).with_code(1).saying(&["no daemon at 127.0.0.1:"]);
    place.run(["ping", "--address", "unix:@here"]).with_code(2).saying(&["host:port"]);
}

#[test]
fn a_procedure_of_a_program_is_called_with_an_argument_or_standard_input() {
    for way in TRANSPORTS {
        let (place, _daemon) = Sandbox::with_configured_daemon("[node]\nname = \"here\"\n");
        let place = place.by(way);
        let node = Node::builder(place.address()).transport(Transport::Udp).connect().unwrap();
        let _service = node
            .serve("reverse", |request: &[u8], reply: &mut Vec<u8>| {
                reply.extend(request.iter().rev());
                if request.is_empty() { Err("nothing to reverse".to_owned()) } else { Ok(()) }
            })
            .unwrap();
        assert_eq!(place.run(["call", "reverse", "desserts"]).with_code(0).stdout, "stressed\n");
        let mut fed = place.spawn_fed(["call", "here/reverse", "--deadline", "60s"]);
        fed.feed("abc");
        assert_eq!(fed.end().with_code(0).stdout, "cba\n");
        place.run(["call", "reverse", ""]).with_code(1).saying(&["nothing to reverse"]);
        place.run(["call", "turn", "x"]).with_code(1).saying(&["no program serves procedure `turn`"]);
    }
}

#[test]
fn rows_are_published_as_datagrams() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("flights.csv", crate::place::FLIGHTS_CSV);
    let subscriber = place.spawn(["subscribe", "SELECT carrier FROM A", "--until-end", "--wait"]);
    place.wait_for_subscriptions(1);
    let publish = ["publish", "A", "flights.csv", "--schema", "a.schema", "--transport", "udp", "--class", "datagram"];
    let report = &place.run([&publish[..], &["--json"]].concat()).with_code(0).json()[0];
    assert_eq!((&report["records"], &report["dropped_records"]), (&4.into(), &0.into()), "{report}");
    assert_eq!(subscriber.end_by_itself().with_code(0).stdout.lines().count(), 4);
    assert_eq!(place.list("contexts")[0]["datagrams_in"], 1);
    place.run(["publish", "A", "flights.csv", "--class", "fast"]).with_code(2).saying(&["reliable, datagram"]);
}
