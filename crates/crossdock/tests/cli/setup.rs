//! Starting a daemon: configuration, ports, sockets. And what the program says of itself.

use crate::place::{Daemon, Sandbox, argument, with_io_contexts};
use rustix::process::Signal;

#[test]
fn a_misspelt_key_is_named_with_file_line_and_column() {
    let place = Sandbox::new();
    place.write("bad.toml", "[context]\nlisten = \"127.0.0.1:0\"\nmax_sesions = 5\n");
    let texts = ["bad.toml:3:1: unknown key `max_sesions`", "did you mean `max_sessions`?"];
    place.run(["serve", "--config", "bad.toml"]).with_code(2).saying(&texts);
    place.run(["serve", "--config", "none.toml"]).with_code(2).saying(&["none.toml", "--print-config"]);
    place.write("stream.toml", "[[stream]]\nname = \"A\"\nschema = \"none.schema\"\n");
    place.run(["serve", "--config", "stream.toml"]).with_code(2).saying(&["none.schema"]);
    assert!(!place.socket().exists());
}

#[test]
fn the_printed_configuration_can_be_served() {
    let place = Sandbox::new();
    let printed = place.run(["serve", "--print-config"]).with_code(0).stdout;
    place.write("crossdock.toml", with_io_contexts(&printed));
    let daemon = Daemon::start(&mut place.command(["serve", "--config", "crossdock.toml", "--listen", "127.0.0.1:0"]));
    assert!(daemon.line.contains("gso=") && daemon.line.contains("buffers="), "{}", daemon.line);
    assert!(daemon.line.contains(argument(&place.socket())), "{}", daemon.line);
}

#[test]
fn a_daemon_heeds_the_address_that_its_clients_heed() {
    let place = Sandbox::new();
    let (mut serve, config) = (place.command(["serve"]), with_io_contexts("[context]\nlisten = \"127.0.0.1:1\"\n"));
    serve.args(["--config", argument(&place.write("contexts.toml", config))]).env("CROSSDOCK_ADDRESS", place.address());
    let daemon = Daemon::start(&mut serve);
    assert_eq!(daemon.address, place.address());
    place.write("flights.csv", crate::place::FLIGHTS_CSV);
    place.run(["publish", "A", "flights.csv"]).with_code(0);
    drop(daemon);
    let attach = format!("unix:{}", argument(&place.path("attach.sock")));
    let daemon = Daemon::start(place.serve().env("CROSSDOCK_ADDRESS", &attach));
    assert!(!daemon.line.contains(&attach), "an option goes before it: {}", daemon.line);
    drop(daemon);
    let config = place.write("free.toml", with_io_contexts("[context]\nlisten = \"127.0.0.1:0\"\n"));
    let mut serve = place.command(["serve", "--config", argument(&config)]);
    let daemon = Daemon::start(serve.env("CROSSDOCK_ADDRESS", &attach));
    assert!(daemon.line.contains(&attach), "{}", daemon.line);
    place.run(["publish", "A", "flights.csv", "--address", &attach]).with_code(0).saying(&["by shared memory"]);
    let wrong = place.command(["serve"]).env("CROSSDOCK_ADDRESS", "nowhere").output().unwrap();
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert!(wrong.status.code() == Some(2) && said.contains("nowhere") && said.contains("127.0.0.1:7440"), "{said}");
}

#[test]
fn a_port_that_is_taken_is_said_to_be() {
    let (place, daemon) = Sandbox::with_daemon();
    let other = place.path("other.sock");
    let arguments = ["serve", "--listen", &daemon.address, "--socket", argument(&other)];
    place.run(arguments).with_code(1).saying(&[&daemon.address, "in use", "another daemon"]);
    assert!(!other.exists());
    assert_eq!(place.list("streams").len(), 1, "the first one goes on");
}

#[test]
fn a_socket_that_is_taken_is_said_to_be() {
    let (place, _daemon) = Sandbox::with_daemon();
    let texts = ["already listening", "crossdock.sock"];
    place.run(["serve", "--listen", "127.0.0.1:0"]).with_code(1).saying(&texts);
    assert_eq!(place.list("streams").len(), 1, "the first one goes on");
}

#[test]
fn a_killed_daemons_socket_is_no_obstacle() {
    let (place, daemon) = Sandbox::with_daemon();
    daemon.process.signal(Signal::KILL);
    assert_eq!(daemon.process.end().code, None);
    assert!(place.socket().exists());
    place.run(["streams"]).with_code(1).saying(&["no daemon is running"]);
    let _second = Daemon::start(&mut place.serve());
    place.run(["streams"]).with_code(0).saying(&["no streams"]);
}

#[test]
fn completions_are_there_for_every_shell() {
    let place = Sandbox::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.run(["completions", shell]).with_code(0).stdout;
        assert!(script.contains("subscribe") && script.contains("until-end"), "{shell}");
    }
}

#[test]
fn the_version_is_a_line_or_all_that_there_is_to_know() {
    let place = Sandbox::new();
    let short = place.run(["-V"]).with_code(0).stdout;
    let version = env!("CARGO_PKG_VERSION");
    assert!(short.starts_with(&format!("crossdock {version} (")) && short.ends_with(")\n"), "{short}");
    assert_eq!(short.lines().count(), 1, "{short}");
    let long = place.run(["--version"]).with_code(0).stdout;
    assert!(long.starts_with(&format!("crossdock {version}\n")), "{long}");
    for key in ["commit:", "features:", "encodings: json csv", "target:", "profile:", "compiler:  rustc "] {
        assert!(long.lines().any(|line| line.starts_with(key)), "{key} in {long}");
    }
    let commit = short.split(['(', ')']).nth(1).unwrap();
    assert!(long.contains(&format!("commit:    {commit}")), "{long}{short}");
}

#[test]
fn the_version_is_an_object_for_scripts() {
    let place = Sandbox::new();
    let long = place.run(["--version"]).with_code(0).stdout;
    assert_eq!(place.run(["version"]).with_code(0).stdout, long);
    let [version] = &place.run(["version", "--json"]).with_code(0).json()[..] else { panic!() };
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert!(long.contains(version["commit"].as_str().unwrap()), "{version}");
    assert_eq!(version["encodings"][0], "json");
}

#[test]
fn help_has_an_example_for_every_command() {
    let place = Sandbox::new();
    let commands = [
        "tour",
        "demo",
        "serve",
        "publish",
        "subscribe",
        "explain",
        "formats",
        "conversions",
        "paths",
        "streams",
        "subscriptions",
        "contexts",
        "handler",
        "handlers",
        "plan",
        "apply",
        "events",
        "top",
        "clients",
        "mailboxes",
        "check",
        "version",
        "man",
        "completions",
    ];
    let overview = place.run(["--help"]).with_code(0).stdout;
    for command in commands {
        assert!(overview.contains(&format!("\n  {command} ")), "{overview}");
        let help = place.run([command, "--help"]).with_code(0).stdout;
        assert!(help.contains("\n\nExit status: 0 "), "{help}");
        assert!(help.contains("Example") && help.contains(&format!("crossdock {command}")), "{help}");
    }
}
