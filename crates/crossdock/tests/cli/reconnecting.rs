//! `--reconnect`: what follows when the daemon is killed and started again, or is not there yet.

use crate::place::{Daemon, Place, WAYS};
use rustix::process::Signal;
use std::time::{Duration, Instant};

const SCHEMA: &str = "a u64\n";

/// Within this time of its daemon a client is back, by far: 1 s is meant, and a test's machine may be busy.
const SOON: Duration = Duration::from_secs(4);

/// A place whose daemon can be started again at the same address.
fn with_daemon(way: &'static str) -> (Place, Daemon) {
    let (place, daemon) = Place::with_daemon();
    place.write("r.schema", SCHEMA);
    (place.by(way), daemon)
}

/// A daemon at the address that the place's commands use.
fn start(place: &Place) -> Daemon {
    let address = place.address().to_owned();
    Daemon::start(&mut place.command(["serve", "--config", "crossdock.toml", "--listen", &address]))
}

fn kill(daemon: Daemon) {
    daemon.process.signal(Signal::KILL);
    daemon.process.end();
}

const PUBLISH: [&str; 7] = ["publish", "R", "-", "--schema", "r.schema", "--reconnect", "--no-header"];
const SUBSCRIBE: [&str; 4] = ["subscribe", "SELECT * FROM R", "--reconnect", "--wait"];

/// The first daemon knows a publisher and a subscriber that are quiet when it is killed. The second is there before either has
/// asked for the first.
#[test]
fn who_is_quiet_is_back_soon_after_a_kill() {
    for way in WAYS {
        let (place, daemon) = with_daemon(way);
        let subscriber = place.spawn(SUBSCRIBE);
        place.wait_for_subscriptions(1);
        let mut publisher = place.spawn_fed(PUBLISH);
        publisher.feed("1\n");
        subscriber.stdout_line(|line| line == "{\"a\":1}");
        kill(daemon);
        let _second = start(&place);
        let started = Instant::now();
        subscriber.stderr_line(|line| line.contains("is restored"));
        place.wait_for_subscriptions(1);
        place.wait_for("streams", |list| list.iter().any(|of| of["name"] == "R" && of["publishers"] == 1));
        let took = started.elapsed();
        println!("{way}: back after {took:?}");
        assert!(took < SOON, "{way}: {took:?}");
        publisher.feed("2\n");
        subscriber.stdout_line(|line| line == "{\"a\":2}");
        publisher.end().with_code(0);
    }
}

#[test]
fn a_daemon_that_is_not_there_yet_is_waited_for() {
    for way in WAYS.into_iter().chain(["auto"]) {
        let place = Place::new().by(way);
        place.write("a.schema", crate::place::FLIGHTS_SCHEMA);
        place.write("r.schema", SCHEMA);
        place.write("crossdock.toml", crate::place::with_io_contexts("[context]\nlisten = \"127.0.0.1:0\"\n"));
        // Without the option, it is an error as before.
        let failed = place.run(["subscribe", "SELECT * FROM R"]).with_code(1);
        assert!(!failed.stderr.contains("waiting"), "{}", failed.stderr);
        let waits = format!("waiting for a daemon at {}", place.address());
        let subscriber = place.spawn(SUBSCRIBE);
        let mut publisher = place.spawn_fed(PUBLISH);
        let (ended, idle) = (place.spawn(SUBSCRIBE), place.spawn_fed(PUBLISH));
        for process in [&subscriber, &publisher, &ended, &idle] {
            process.stderr_line(|line| line.contains(&waits));
        }
        for process in [ended, idle] {
            process.signal(Signal::INT);
            let ended = process.end_by_itself().with_code(130);
            assert!(!ended.stderr.contains("waiting"), "it is said once: {}", ended.stderr);
        }
        let _daemon = start(&place);
        place.wait_for_subscriptions(1);
        publisher.feed("1\n");
        subscriber.stdout_line(|line| line == "{\"a\":1}");
        publisher.end().with_code(0);
    }
}
