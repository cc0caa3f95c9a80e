//! Secure sessions from the command line: keys, the daemon that has them, and those who have none.

use crate::place::{Daemon, FLIGHTS_CSV, FLIGHTS_SCHEMA, Sandbox, argument, with_io_contexts};
use crate::trace::QlogTrace;
use std::os::unix::fs::PermissionsExt;

/// Makes a key, and gives its public key.
fn keygen(place: &Sandbox, name: &str) -> String {
    place.run(["keygen", "--output", name]).with_code(0).stdout.trim().to_owned()
}

#[test]
fn a_key_is_made_once_and_for_its_user_only() {
    let place = Sandbox::new();
    let public = keygen(&place, "a.key");
    assert!(public.len() == 64 && public.bytes().all(|digit| digit.is_ascii_hexdigit()), "{public}");
    let path = place.path("a.key");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(place.run(["keys", "show", "a.key"]).with_code(0).stdout.trim(), public);
    place.run(["keygen", "--output", "a.key"]).with_code(2).saying(&["there is a file a.key already"]);
    assert_eq!(place.run(["keys", "show", "a.key"]).with_code(0).stdout.trim(), public, "it is kept");
    assert_ne!(keygen(&place, "b.key"), public);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o604)).unwrap();
    place.run(["keys", "show", "a.key"]).with_code(2).saying(&["every user", "chmod 600 a.key"]);
    place.write("c.key", "no key\n");
    std::fs::set_permissions(place.path("c.key"), std::fs::Permissions::from_mode(0o600)).unwrap();
    place.run(["keys", "show", "c.key"]).with_code(2).saying(&["c.key", "64 hexadecimal digits"]);
}

#[test]
fn authorised_keys_are_added_listed_and_removed() {
    let place = Sandbox::new();
    let [daemon, desk, shop] = ["daemon.key", "desk.key", "shop.key"].map(|name| keygen(&place, name));
    let config = format!(
        "[security]\nkey = \"daemon.key\"\nauthorized_file = \"clients.keys\"\nauthorized = [\"{shop} shop\"]\n"
    );
    place.write("crossdock.toml", config);
    place.run(["keys", "--config", "crossdock.toml"]).with_code(2).saying(&["clients.keys", "crossdock keys add"]);
    place.write("clients.keys", "# those in Oslo");
    place.run(["keys", "add", &desk, "desk", "--config", "crossdock.toml"]).with_code(0);
    place.run(["keys", "add", &desk, "--file", "clients.keys"]).with_code(2).saying(&["already"]);
    place.run(["keys", "add", "abc", "--file", "clients.keys"]).with_code(2).saying(&["64 hexadecimal digits"]);
    let listed = place.run(["keys", "--config", "crossdock.toml", "--json"]).with_code(0).json();
    let mut listed: Vec<(String, String, String)> = listed
        .iter()
        .map(|key| ["role", "key", "name"].map(|field| key[field].as_str().unwrap().to_owned()).into())
        .collect();
    listed.sort();
    let mut wanted = [("client", &desk, "desk"), ("client", &shop, "shop"), ("daemon", &daemon, "")]
        .map(|(role, key, name)| (role.to_owned(), key.clone(), name.to_owned()));
    wanted.sort();
    assert_eq!(listed, wanted);
    place.run(["keys", "rm", "shop", "--file", "clients.keys"]).with_code(2).saying(&["no client"]);
    // A key may have two lines, and another in the configuration.
    let lines = place.path("clients.keys");
    let text = std::fs::read_to_string(&lines).unwrap();
    std::fs::write(&lines, format!("{text}{desk} spare\n{shop} shop\n")).unwrap();
    place.run(["keys", "rm", "spare", "--file", "clients.keys"]).with_code(0).saying(&["still authorised", "keys rm"]);
    place.run(["keys", "rm", "shop", "--config", "crossdock.toml"]).with_code(0).saying(&["in the configuration"]);
    place.run(["keys", "rm", "desk", "--file", "clients.keys"]).with_code(0);
    assert_eq!(std::fs::read_to_string(place.path("clients.keys")).unwrap(), "# those in Oslo\n");
    place.run(["keys"]).with_code(2).saying(&["--file", "--config"]);
}

#[test]
fn only_clients_with_authorised_keys_publish_and_subscribe() {
    let mut place = Sandbox::new();
    let [public, desk] = ["daemon.key", "desk.key"].map(|name| keygen(&place, name));
    keygen(&place, "stranger.key");
    place.run(["keys", "add", &desk, "desk", "--file", "clients.keys"]).with_code(0);
    place.write("a.schema", FLIGHTS_SCHEMA);
    place.write("flights.csv", FLIGHTS_CSV);
    let config = "[[stream]]\nname = \"A\"\nschema = \"a.schema\"\n[context]\nlisten = \"127.0.0.1:0\"\n\
                  [security]\nkey = \"daemon.key\"\nauthorized_file = \"clients.keys\"\ntrusted = []\n";
    let config = place.write("crossdock.toml", with_io_contexts(config));
    let daemon = Daemon::start(place.command(["serve", "--config"]).arg(config));
    place.uses(&daemon.address);
    let place = place.by("udp");
    let keys = |name: &'static str| ["--key", name, "--daemon-key", &public];
    let query = ["subscribe", "SELECT carrier, flight FROM A", "--output", "csv", "--limit", "4"];
    let subscriber = place.spawn(query.into_iter().chain(keys("desk.key")));
    place.wait_for_subscriptions(1);
    let session = place.list("sessions")[0].clone();
    assert_eq!((&session["security"], &session["key"]), (&"keys".into(), &desk.as_str().into()), "{session}");
    let ping = ["ping", "--count", "1", "--trace", "ping.sqlog"];
    place.run(ping.into_iter().chain(keys("desk.key"))).with_code(0).saying(&["1 round trip, 0 lost"]);
    let trace = QlogTrace::open(&place, "ping.sqlog", "ping");
    let changes = trace.of("key_updated").into_iter().map(|data| [&data["key_type"], &data["trigger"]]);
    let changes: Vec<_> = changes.map(|names| names.map(|name| name.as_str().unwrap())).collect();
    assert_eq!(changes, [["client_secret", "handshake"], ["server_secret", "handshake"]]);
    let publish = ["publish", "A", "flights.csv", "--schema", "a.schema"];
    place.run(publish).with_code(1).saying(&["only in secure sessions", "crossdock keygen"]);
    place.run(publish.into_iter().chain(keys("stranger.key"))).with_code(1).saying(&["has not authorised this client"]);
    place.run(publish.into_iter().chain(["--key", "desk.key"])).with_code(2).saying(&["--daemon-key"]);
    place.run(publish.into_iter().chain(keys("desk.key"))).with_code(0).saying(&["published 4 records"]);
    assert_eq!(subscriber.end().with_code(0).stdout.lines().count(), 5);
    let dropped = place.list("contexts")[0]["dropped"].clone();
    let names: Vec<&str> = dropped.as_array().unwrap().iter().map(|pair| pair[0].as_str().unwrap()).collect();
    assert_eq!(names, ["handshake_unknown_key", "packet_unprotected"], "{dropped}");
    let (_, metrics) = place.http_text(&crate::place::get("/metrics"));
    assert!(metrics.contains("reason=\"handshake_unknown_key\""), "{metrics}");
}

#[test]
fn a_daemon_that_would_listen_to_the_network_without_keys_does_not_start() {
    let place = Sandbox::new();
    let texts = ["beyond this machine", "crossdock keygen", "`trusted`"];
    place.run(["serve", "--listen", "0.0.0.0:0"]).with_code(1).saying(&texts);
    assert!(!place.socket().exists());
    place.write(
        "trusting.toml",
        with_io_contexts("[context]\nlisten = \"0.0.0.0:0\"\n[security]\ntrusted = [\"10.0.0.0/8\"]\n"),
    );
    let config = place.path("trusting.toml");
    drop(Daemon::start(&mut place.command(["serve", "--config", argument(&config)])));
}
