//! A daemon that is killed in the middle of a change comes back with the old state or the new one.

use crate::place::{Daemon, Place, with_body};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::net::UnixStream;

const CONFIG: &str = "[context]\nlisten = \"127.0.0.1:0\"\n[morph]\nstate_dir = \"kept\"\n";

/// Three handlers of a state, each of which tells by its parameter and by what it reads which state that is.
fn state(number: u32) -> Value {
    let handler = |name: &str, native: &str, on: &str| {
        json!({ "name": format!("{name}{}", number % 2), "native": native, "input_streams": [on],
            "output_stream": name, "parameters": { "every": number.to_string() } })
    };
    json!([handler("first", "sample", "A"), handler("second", "sample", "first"), handler("third", "sample", "second")])
}

/// What is wanted, as the daemon tells it: the names and parameters.
fn wanted(place: &Place) -> Vec<(Value, Value)> {
    let (status, answer) = place.http("GET /v1/wanted HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!(status, 200, "{answer}");
    let all = answer["handlers"].as_array().cloned().unwrap_or_default();
    all.iter().map(|spec| (spec["name"].clone(), spec["parameters"]["every"].clone())).collect()
}

fn parameters_of(number: u32) -> Vec<(Value, Value)> {
    let specs = state(number);
    specs.as_array().unwrap().iter().map(|s| (s["name"].clone(), s["parameters"]["every"].clone())).collect()
}

#[test]
fn a_change_that_was_cut_short_by_a_kill_is_whole_or_was_not() {
    let place = Place::new();
    place.write("crossdock.toml", CONFIG);
    let start = || Daemon::start(&mut place.command(["serve", "--config", "crossdock.toml"]));
    let mut daemon = start();
    let put = |number: u32| with_body("PUT", "/v1/wanted", &json!({ "handlers": state(number) }).to_string());
    let (status, answer) = place.http(&put(1));
    assert_eq!(status, 200, "{answer}");
    let mut before = 1;
    let (mut old, mut new) = (0, 0);
    // How many other requests are answered before the kill: few leave the old state, many the new one. What is
    // between is halved each time, so that most kills fall into the change.
    let (mut few, mut many) = (0u32, None);
    for round in 0..24u32 {
        let next = 2 + round;
        let mut stream = UnixStream::connect(place.socket()).unwrap();
        stream.write_all(put(next).as_bytes()).unwrap();
        let requests = many.map_or(2 * few, |many: u32| (few + many) / 2);
        for _ in 0..requests {
            place.http("GET /v1/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        }
        daemon.process.signal(Signal::KILL);
        daemon.process.end();
        daemon = start();
        let found = wanted(&place);
        if found == parameters_of(before) {
            old += 1;
            few = requests.max(1);
            many = many.map(|many| many.max(few + 1));
        } else {
            assert_eq!(found, parameters_of(next), "neither the state before (every = {before}) nor the next");
            (before, new) = (next, new + 1);
            many = Some(requests);
            few = few.min(requests.saturating_sub(1));
        }
        assert_eq!(place.list("handlers").len(), 3);
    }
    println!("{old} times the old state, {new} times the new one, at the end with {few} to {many:?} requests between");
    assert!(old > 0 && new > 0, "{old} times the old state, {new} times the new one");
}
