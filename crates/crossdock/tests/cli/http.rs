//! The HTTP API, as any HTTP client meets it.

use std::fs::Permissions;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use crate::place::{Daemon, FLIGHTS_CSV, Sandbox, exchange, get, post, with_io_contexts, word_after};

#[test]
fn every_list_is_there_as_json() {
    let (place, daemon) = Sandbox::with_daemon();
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
    let (place, _daemon) = Sandbox::with_configured_daemon("[[mailbox]]\nname = \"requests\"\n");
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
fn errors_are_json_too() {
    let (place, _daemon) = Sandbox::with_daemon();
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

/// A place with a daemon that serves TCP too, perhaps with a token in the file `token`; and the TCP address.
fn with_tcp(token: Option<&str>) -> (Sandbox, Daemon, String) {
    let place = Sandbox::new();
    let mut config = "[context]\nlisten = \"127.0.0.1:0\"\n[control]\nhttp = \"127.0.0.1:0\"\n".to_owned();
    if let Some(token) = token {
        std::fs::set_permissions(place.write("token", token), Permissions::from_mode(0o600)).unwrap();
        config += "token_file = \"token\"\n";
    }
    place.write("crossdock.toml", with_io_contexts(&config));
    let daemon = Daemon::start(&mut place.command(["serve", "--config", "crossdock.toml"]));
    let address = word_after(&daemon.line, "http=").to_owned();
    (place, daemon, address)
}

/// A request with one more header.
fn with_header(request: &str, header: &str) -> String {
    request.replace("Connection:", &format!("{header}\r\nConnection:"))
}

const TOKEN: &str = "a-token-of-these-tests";

#[test]
fn over_tcp_only_loopback_by_its_own_name_is_answered() {
    let (_place, _daemon, address) = with_tcp(Some(TOKEN));
    let ask = |request: &str| exchange(&mut TcpStream::connect(&address).unwrap(), request);
    assert_eq!(ask(&get("/v1/health")).0, 200);
    let foreign = get("/v1/streams").replace("Host: localhost", "Host: pages.example");
    let (status, body) = ask(&foreign);
    assert_eq!((status, body["error"]["message"].as_str().map(|m| m.contains("pages.example"))), (403, Some(true)));
    // A page of elsewhere may send to loopback by its own name, and then says where it is from.
    let request = with_header(&post("/v1/plan", r#"{"all":[]}"#), &format!("Authorization: Bearer {TOKEN}"));
    for (origin, wanted) in [("http://localhost:3000", 200), ("https://pages.example", 403), ("null", 403)] {
        assert_eq!(ask(&with_header(&request, &format!("Origin: {origin}"))).0, wanted, "{origin}");
    }
}

#[test]
fn over_tcp_a_change_takes_the_token() {
    let change = post("/v1/plan", r#"{"all":[]}"#);
    let ask = |address: &str, request: &str| {
        let (status, body) = exchange(&mut TcpStream::connect(address).unwrap(), request);
        (status, body["error"]["hint"].as_str().unwrap_or_default().to_owned())
    };
    let (place, _daemon, address) = with_tcp(None);
    assert_eq!(ask(&address, &get("/v1/streams")).0, 200);
    let said = format!("Authorization: Bearer {TOKEN}");
    for request in [&change, &with_header(&change, &said)] {
        let (status, hint) = ask(&address, request);
        assert!(status == 403 && hint.contains("set `token_file` under [control]"), "{status} {hint}");
    }
    assert_eq!(place.http(&change).0, 200, "the socket's mode guards it");
    place.run(["handlers", "--http", &address]).with_code(0);
    let deploy = ["handler", "deploy", "h", "SELECT * FROM A", "--http", &address];
    place.run(deploy).with_code(1).saying(&["token_file"]);

    let (place, _daemon, address) = with_tcp(Some(TOKEN));
    let deploy = ["handler", "deploy", "h", "SELECT * FROM A", "--http", &address];
    assert_eq!(ask(&address, &get("/v1/events")).0, 200);
    for request in [&change, &with_header(&change, "Authorization: Bearer another-token-than-that")] {
        let (status, hint) = ask(&address, request);
        assert!(status == 401 && hint.contains("--token-file"), "{status} {hint}");
    }
    assert_eq!(ask(&address, &with_header(&change, &said)).0, 200);
    place.run(deploy).with_code(1).saying(&["needs a token", "--token-file"]);
    place.run(deploy.into_iter().chain(["--token-file", "token"])).with_code(0);
    assert_eq!(place.list("handlers").len(), 1);
}

#[test]
fn a_token_that_everybody_may_read_is_refused() {
    let place = Sandbox::new();
    std::fs::set_permissions(place.write("token", TOKEN), Permissions::from_mode(0o644)).unwrap();
    place.write("crossdock.toml", "[control]\ntoken_file = \"token\"\n");
    let said = ["every user of this machine", "chmod 600 token"];
    place.run(["serve", "--config", "crossdock.toml", "--listen", "127.0.0.1:0"]).with_code(2).saying(&said);
    let asked = ["handlers", "--http", "127.0.0.1:1", "--token-file", "token"];
    place.run(asked).with_code(2).saying(&said);
    place.run(["handlers", "--http", "10.0.0.1:7441"]).with_code(2).saying(&["https://HOST:PORT", "loopback"]);
}

#[test]
fn silent_connections_shut_nobody_out() {
    let (place, _daemon, address) = with_tcp(None);
    // Clients that say nothing, half of a head, or half of a body.
    let halves =
        ["", "GET /v1/health HTTP/1.1\r\nHost: loc", "POST /v1/plan HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{"];
    let mut over_unix: Vec<UnixStream> = Vec::new();
    let mut over_tcp: Vec<TcpStream> = Vec::new();
    for number in 0..70 {
        over_unix.push(UnixStream::connect(place.socket()).unwrap());
        over_tcp.push(TcpStream::connect(&address).unwrap());
        let half = halves[number % halves.len()].as_bytes();
        over_unix[number].write_all(half).unwrap();
        over_tcp[number].write_all(half).unwrap();
    }
    place.run(["streams"]).with_code(0);
    place.run(["streams", "--http", &address]).with_code(0);
    assert_eq!((over_unix.len(), over_tcp.len()), (70, 70), "they are still open here");
}

#[test]
fn the_metrics_of_contexts_count_sleeps_and_buffers() {
    let (place, _daemon) = Sandbox::with_daemon();
    place.write("flights.csv", FLIGHTS_CSV);
    place.run(["publish", "A", "flights.csv", "--schema", "a.schema"]).with_code(0);
    let (status, text) = place.http_text(&get("/metrics"));
    assert_eq!(status, 200, "{text}");
    let sum = |name: &str| -> f64 {
        let of_name = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        of_name.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    assert!(sum("crossdock_context_sleeps_total") > 0.0, "{text}");
    assert!(sum("crossdock_context_buffers") > 0.0, "{text}");
}
