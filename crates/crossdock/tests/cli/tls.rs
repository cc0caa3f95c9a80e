//! The control API over TLS: what commands trust, what they refuse and say, tokens, and clients that do not go on.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use crate::place::{Daemon, FLIGHTS_SCHEMA, Sandbox, exchange, get, with_io_contexts, word_after};

/// A file of `tests/tls`, which its script makes.
fn file(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/tls/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// A place with a daemon that has this certificate, and further sections; and its port.
fn with_tls(certificate: &str, rules: &str) -> (Sandbox, Daemon, String) {
    let place = Sandbox::new();
    place.write("daemon.pem", file(certificate));
    place.write("ca.pem", file("ca.pem"));
    place.write("stranger.pem", file("stranger.pem"));
    place.write("a.schema", FLIGHTS_SCHEMA);
    std::fs::set_permissions(place.write("daemon.key", file("daemon.key")), Permissions::from_mode(0o600)).unwrap();
    for token in ["reader", "desk", "ops", "unknown"] {
        place.run(["keygen", "--token", "--output", token]).with_code(0);
    }
    let config = format!(
        "[context]\nlisten = \"127.0.0.1:0\"\n[control]\nhttp = \"127.0.0.1:0\"\ntls_cert = \"daemon.pem\"\n\
         tls_key = \"daemon.key\"\n[[stream]]\nname = \"A\"\nschema = \"a.schema\"\n{rules}"
    );
    place.write("crossdock.toml", with_io_contexts(&config));
    let daemon = Daemon::start(&mut place.command(["serve", "--config", "crossdock.toml"]));
    let port = word_after(&daemon.line, "http=").rsplit_once(':').unwrap().1.to_owned();
    (place, daemon, port)
}

#[test]
fn commands_trust_an_authority_or_a_pin_and_nothing_else() {
    let (place, _daemon, port) = with_tls("daemon.pem", "");
    let at = |host: &str| format!("https://{host}:{port}");
    let (by_ip, by_name) = (at("127.0.0.1"), at("localhost"));
    let streams = |address: &str, trust: &[&str]| place.run([&["streams", "--http", address][..], trust].concat());
    for address in [&by_ip, &by_name] {
        let listed = streams(address, &["--ca", "ca.pem", "--json"]).with_code(0).json();
        assert_eq!(listed[0]["name"], "A", "{address}");
    }
    streams(&by_ip, &[]).with_code(2).saying(&["https:// needs --ca or --pin", "/etc/ssl/certs"]);
    streams(&by_ip, &["--ca", "a.schema"]).with_code(2).saying(&["a.schema: it has no certificate"]);
    let stranger = ["--ca", "stranger.pem"];
    streams(&by_ip, &stranger).with_code(1).saying(&["no authority in the file that --ca names", "--pin"]);
    let wrong = "00".repeat(32);
    let said = streams(&by_ip, &["--pin", &wrong]).with_code(1).saying(&["another one than --pin names"]).stderr;
    let pin = said.split("its SHA-256 is ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    streams(&by_ip, &["--pin", pin]).with_code(0);
    streams(&by_ip, &["--pin", "12"]).with_code(2).saying(&["64 hexadecimal digits"]);
    // Over TLS, without a token, as over loopback without it.
    let deploy = ["handler", "deploy", "h", "SELECT * FROM A", "--http", &by_ip, "--ca", "ca.pem"];
    place.run(deploy).with_code(1).saying(&["no token is configured"]);
    let follow = place.spawn(["events", "--follow", "--json", "--http", &by_ip, "--ca", "ca.pem"]);
    place.run(["handler", "deploy", "h", "SELECT * FROM A"]).with_code(0);
    follow.stdout_line(|line| line.contains("deployed"));
}

#[test]
fn a_certificate_that_does_not_fit_is_refused_with_the_reason() {
    for (certificate, host, ca, texts) in [
        ("elsewhere.pem", "127.0.0.1", "ca.pem", ["not for `127.0.0.1`", "subjectAltName"]),
        ("expired.pem", "localhost", "ca.pem", ["has expired", "renew it"]),
    ] {
        let (place, _daemon, port) = with_tls(certificate, "");
        let address = format!("https://{host}:{port}");
        place.run(["streams", "--http", &address, "--ca", ca]).with_code(1).saying(&texts);
    }
    let (place, _daemon, port) = with_tls("selfsigned.pem", "");
    place.run(["streams", "--http", &format!("https://localhost:{port}"), "--ca", "daemon.pem"]).with_code(0);
}

#[test]
fn a_replaced_certificate_is_taken_without_a_restart() {
    let (place, daemon, port) = with_tls("daemon.pem", "");
    let streams = ["streams", "--http", &format!("https://localhost:{port}"), "--ca", "ca.pem"];
    place.run(streams).with_code(0);
    place.write("daemon.pem", "");
    daemon.process.stderr_line(|line| line.contains("it has no certificate") && line.contains("stays in force"));
    place.run(streams).with_code(0);
    place.write("next.pem", file("expired.pem"));
    std::fs::rename(place.path("next.pem"), place.path("daemon.pem")).unwrap();
    daemon.process.stderr_line(|line| line.contains("has another certificate"));
    place.run(streams).with_code(1).saying(&["has expired"]);
}

#[test]
fn a_replaced_token_is_taken_without_a_restart() {
    let (place, daemon, port) =
        with_tls("daemon.pem", "[[access]]\ntoken = \"ops\"\ntoken_file = \"ops\"\nadministration = \"read\"\n");
    let address = format!("https://localhost:{port}");
    let streams = |token: &str| place.run(["streams", "--http", &address, "--ca", "ca.pem", "--token-file", token]);
    std::fs::copy(place.path("ops"), place.path("before")).unwrap();
    streams("before").with_code(0);
    place.write("ops", "short");
    daemon.process.stderr_line(|line| line.contains("16 or more") && line.contains("stays in force"));
    streams("before").with_code(0);
    std::fs::rename(place.path("desk"), place.path("ops")).unwrap();
    daemon.process.stderr_line(|line| line.contains("another list of tokens"));
    streams("before").with_code(1).saying(&["the request's token is not the daemon's"]);
    streams("ops").with_code(0);
}

#[test]
fn handshakes_that_fail_are_counted() {
    let (place, _daemon, port) = with_tls("daemon.pem", "");
    let failures = || {
        let (_, metrics) = place.http_text(&get("/metrics"));
        let line = metrics.lines().find(|line| line.starts_with("crossdock_control_tls_failures_total"));
        line.and_then(|line| line.rsplit_once(' ')).map(|(_, count)| count.parse::<u64>().unwrap())
    };
    place.run(["streams", "--http", &format!("https://localhost:{port}"), "--ca", "ca.pem"]).with_code(0);
    let mut probe = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    probe.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(probe.read(&mut [0; 16]).unwrap_or(0), 0, "one that begins no handshake is closed");
    assert_eq!(failures(), Some(0));
    for count in 1..=3 {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        stream.write_all(b"\x16\x03\x01\x00\x04none").unwrap();
        // To its end; there may be an alert before.
        let _ = stream.read_to_end(&mut Vec::new());
        assert_eq!(failures(), Some(count));
    }
}

#[test]
fn plain_http_to_a_tls_port_and_tls_to_a_plain_one_are_named() {
    let (place, _daemon, port) = with_tls("daemon.pem", "");
    place.run(["streams", "--http", &format!("127.0.0.1:{port}")]).with_code(2).saying(&["speaks TLS", "https://"]);
    let (status, body) = exchange(&mut TcpStream::connect(format!("127.0.0.1:{port}")).unwrap(), &get("/v1/streams"));
    assert!(status == 400 && body["error"]["message"].as_str().is_some_and(|text| text.contains("TLS")), "{body}");

    place.write(
        "plain.toml",
        with_io_contexts("[context]\nlisten = \"127.0.0.1:0\"\n[control]\nhttp = \"127.0.0.1:0\"\n"),
    );
    let mut serve = place.command(["serve", "--config", "plain.toml", "--socket", "plain.sock"]);
    let plain = Daemon::start(&mut serve);
    let address = format!("https://{}", word_after(&plain.line, "http="));
    place.run(["streams", "--http", &address, "--ca", "ca.pem"]).with_code(1).saying(&["does not use TLS", "http://"]);
}

#[test]
fn handshakes_that_do_not_go_on_shut_nobody_out() {
    let (place, _daemon, port) = with_tls("daemon.pem", "");
    // Nothing; the head of a record without its content; what is no handshake behind such a head.
    let halves: [&[u8]; 3] = [b"", b"\x16\x03\x01\x02\x00\x01", b"\x16\x03\x01\x00\x04none"];
    let mut silent: Vec<TcpStream> = Vec::new();
    for number in 0..70 {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        stream.write_all(halves[number % halves.len()]).unwrap();
        silent.push(stream);
    }
    place.run(["streams", "--http", &format!("https://127.0.0.1:{port}"), "--ca", "ca.pem"]).with_code(0);
    place.run(["streams"]).with_code(0);
    assert_eq!(silent.len(), 70, "they are still open here");
}

#[test]
fn each_command_is_checked_by_the_rule_of_its_token() {
    let rules = "[[access]]\ntoken = \"reader\"\ntoken_file = \"reader\"\nadministration = \"read\"\nsubscribe = [\"A\"]\n\
                 [[access]]\ntoken = \"desk\"\ntoken_file = \"desk\"\nhandlers = [\"desk-*\"]\nsubscribe = [\"A\"]\n\
                 publish = [\"desk-*\"]\nmailboxes = [\"desk-*\"]\n\
                 [[access]]\ntoken = \"ops\"\ntoken_file = \"ops\"\nadministration = \"change\"\nsubscribe = [\"*\"]\n";
    let user = format!("[[access]]\nuid = {}\nadministration = \"read\"\n", rustix::process::getuid().as_raw());
    let (place, _daemon, port) = with_tls("daemon.pem", &format!("{rules}{user}"));
    let address = format!("https://localhost:{port}");
    let run = |token: &str, command: &[&str]| {
        let by = ["--http", &address, "--ca", "ca.pem", "--token-file", token];
        place.run([command, &by].concat())
    };
    // First: at most ten refusals a second are events.
    run("unknown", &["streams"]).with_code(1).saying(&["the request's token is not the daemon's", "--token-file"]);
    let deploy = |name: &'static str| ["handler", "deploy", name, "SELECT * FROM A"];
    for (command, allowed) in [
        (&["streams"][..], &["reader", "ops"][..]),
        (&["tables"], &["reader", "ops"]),
        (&["subscriptions"], &["reader", "ops"]),
        (&["contexts"], &["reader", "ops"]),
        (&["explain", "SELECT * FROM A"], &["reader", "ops"]),
        (&["access", "list"], &["reader", "ops"]),
        (&deploy("desk-late"), &["desk"]),
        (&["handler", "remove", "desk-late"], &["desk"]),
        (&deploy("late"), &["ops"]),
        (&["handler", "remove", "late"], &["ops"]),
        (&["mailbox", "create", "desk-in"], &["desk"]),
        (&["mailbox", "create", "in"], &["ops"]),
        (&["streams", "rm", "A"], &["ops"]),
    ] {
        // The refused first: what is allowed changes what is there.
        for token in ["reader", "desk"].iter().filter(|token| !allowed.contains(token)) {
            run(token, command).with_code(1).saying(&[&format!("token {token} may not"), "[[access]]"]);
        }
        for token in allowed {
            run(token, command).with_code(0);
        }
    }
    let events = run("ops", &["events", "--json"]).with_code(0).stdout;
    assert!(events.contains("had a token that is none of the daemon's"), "{events}");
    let (_, metrics) = place.http_text(&get("/metrics"));
    assert!(metrics.contains("crossdock_access_refused_total{action=\"token\"} 1"), "{metrics}");
}

#[test]
fn an_api_beyond_the_machine_needs_tls_or_a_trusted_network() {
    let place = Sandbox::new();
    let config = |rest: &str| {
        with_io_contexts(&format!("[context]\nlisten = \"127.0.0.1:0\"\n[control]\nhttp = \"0.0.0.0:0\"\n{rest}"))
    };
    let serve = ["serve", "--config", "crossdock.toml"];
    let texts = ["beyond this machine", "`tls_cert` and `tls_key`", "`trusted`", "127.0.0.1"];
    for open in ["", "[security]\ntrusted = [\"127.0.0.0/8\"]\n", "token_file = \"ops\"\n"] {
        if !place.path("ops").exists() {
            place.run(["keygen", "--token", "--output", "ops"]).with_code(0);
        }
        place.write("crossdock.toml", config(open));
        place.run(serve).with_code(2).saying(&texts);
        assert!(!place.socket().exists());
    }
    place.write("crossdock.toml", config("tls_cert = \"no.pem\"\ntls_key = \"no.key\"\n"));
    place.run(serve).with_code(2).saying(&["no.pem"]);
    place.write("crossdock.toml", config("token_file = \"ops\"\n[security]\ntrusted = [\"10.0.0.0/8\"]\n"));
    let daemon = Daemon::start(&mut place.command(serve));
    let address = word_after(&daemon.line, "http=").replace("0.0.0.0", "127.0.0.1");
    place.run(["streams", "--http", &address]).with_code(0);
    let by_token = ["--http", &format!("http://{address}"), "--token-file", "ops"];
    place.run(["mailbox", "create", "in"].into_iter().chain(by_token)).with_code(0);
}
