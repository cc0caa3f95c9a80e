//! The HTTP API, as any HTTP client meets it.

use std::net::TcpStream;

use crate::place::{Daemon, Place, exchange, get, post, word_after};

#[test]
fn every_list_is_there_as_json() {
    let (place, daemon) = Place::with_daemon();
    let (status, health) = place.http(&get("/v1/health"));
    assert_eq!((status, &health["status"], &health["address"]), (200, &"ok".into(), &daemon.address.as_str().into()));
    assert_eq!(place.list("streams")[0]["name"], "A");
    assert_eq!(place.list("formats")[0]["fields"][5]["name"], "note");
    assert_eq!(place.list("contexts")[0]["address"], daemon.address.as_str());
    assert!(place.list("subscriptions").is_empty());

    let _subscriber = place.spawn(["subscribe", "SELECT flight FROM A", "--on-overflow", "drop_oldest"]);
    place.wait_for_subscriptions(1);
    let subscription = &place.list("subscriptions")[0];
    assert_eq!(subscription["sql"], "SELECT flight FROM A");
    assert_eq!(subscription["overflow"], "drop_oldest");
}

#[test]
fn lists_print_as_tables_and_as_json() {
    let (place, _daemon) = Place::with_configured_daemon("[[mailbox]]\nname = \"requests\"\n");
    let _subscriber =
        place.spawn(["subscribe", "SELECT carrier, flight, dest FROM A WHERE origin = 'JFK' AND dest = 'LAX'"]);
    place.wait_for_subscriptions(1);
    for list in ["streams", "subscriptions", "formats", "contexts", "clients", "mailboxes"] {
        let objects = place.run([list, "--json"]).with_code(0).json();
        assert!(!objects.is_empty() && objects.iter().all(serde_json::Value::is_object), "{list}");
        let mut command = place.command([list]);
        let table = crate::place::Process::spawn(command.env("COLUMNS", "80")).end().with_code(0).stdout;
        assert_eq!(table.lines().find(|line| line.chars().count() > 80), None, "{list}\n{table}");
    }
}

#[test]
fn what_goes_wrong_is_json_too() {
    let (place, _daemon) = Place::with_daemon();
    for (request, status, words) in [
        (get("/v1/nothing"), 404, "/v1/streams"),
        (get("/"), 404, "known"),
        (post("/v1/streams", ""), 405, "GET"),
        (get("/v1/explain"), 405, "POST"),
        (post("/v1/explain", "sql"), 400, "SELECT"),
        (post("/v1/explain", r#"{"query":"SELECT * FROM A"}"#), 400, "sql"),
        (post("/v1/explain", r#"{"sql":"SELECT nothing FROM A"}"#), 400, "carrier"),
        (post("/v1/explain", &"x".repeat(300_000)), 413, "POST"),
    ] {
        let (found, body) = place.http(&request);
        let error = &body["error"];
        assert_eq!(found, status, "{body}");
        let hint = error["hint"].as_str().unwrap_or_default();
        assert!(error["message"].is_string() && hint.contains(words), "{body}");
    }
}

#[test]
fn over_tcp_only_loopback_by_its_own_name_is_answered() {
    let place = Place::new();
    let config = "[context]\nlisten = \"127.0.0.1:0\"\n[control]\nhttp = \"127.0.0.1:0\"\n";
    place.write("crossdock.toml", config);
    let daemon = Daemon::start(&mut place.command(["serve", "--config", "crossdock.toml"]));
    let address = word_after(&daemon.line, "http=").to_owned();
    let ask = |request: &str| exchange(&mut TcpStream::connect(&address).unwrap(), request);
    assert_eq!(ask(&get("/v1/health")).0, 200);
    let foreign = get("/v1/streams").replace("Host: localhost", "Host: pages.example");
    let (status, body) = ask(&foreign);
    assert_eq!((status, body["error"]["message"].as_str().map(|m| m.contains("pages.example"))), (403, Some(true)));
    // A page of elsewhere may send to loopback by its own name, and then says where it is from.
    let request = post("/v1/plan", r#"{"all":[]}"#);
    let from = |origin: &str| request.replace("Connection:", &format!("Origin: {origin}\r\nConnection:"));
    for (origin, wanted) in [("http://localhost:3000", 200), ("https://pages.example", 403), ("null", 403)] {
        assert_eq!(ask(&from(origin)).0, wanted, "{origin}");
    }
}
