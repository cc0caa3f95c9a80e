//! A daemon that is killed in the middle of a change comes back with the old state or the new one.

use crate::place::{Daemon, Sandbox, io_count, with_body, with_io_contexts};
use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value as FieldValue};
use crossdock_nectarine::{Error, Event, Publisher, Subscriber, Transport};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::Write;
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const CONFIG: &str = "[context]\nlisten = \"127.0.0.1:0\"\n[morph]\nstate_dir = \"kept\"\n";

/// Publishes until the daemon is gone, or enough has come; the records that were acknowledged, if all were.
fn publish_while_there(mut publisher: Publisher, is_over: &AtomicBool, flushed: &AtomicU64) -> u64 {
    let mut row = RecordBuilder::new(publisher.format());
    let mut round = || -> Result<(), Error> {
        for number in 0..500 {
            row.clear();
            row.set(0, FieldValue::Uint(number)).unwrap();
            publisher.publish(row.finish().unwrap())?;
        }
        publisher.flush()
    };
    while !is_over.load(Ordering::Acquire) && round().is_ok() {
        flushed.fetch_add(500, Ordering::AcqRel);
    }
    publisher.finish().map_or(0, |summary| summary.records)
}

/// Says that it is over when it goes.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A publisher's records after the kill are taken once the handlers are there to read them.
#[test]
fn after_a_kill_every_acknowledged_record_reaches_the_kept_handlers() {
    let place = Sandbox::new();
    // The same address again, for the publisher to come back to.
    let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    place.write("crossdock.toml", with_io_contexts(&CONFIG.replace("127.0.0.1:0", &address)));
    let start = || Daemon::start(&mut place.command(["serve", "--config", "crossdock.toml"]));
    let first = start();
    let format = Format::natural([FieldSpec::new("number", FieldType::U64)]).unwrap();
    let (is_killed, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (flushed, acknowledged) = (AtomicU64::new(0), AtomicU64::new(0));
    let publish = |transport: Transport, is_over: &AtomicBool| {
        while !is_over.load(Ordering::Acquire) {
            // One that comes back by itself would wait for the next daemon.
            let publisher = Publisher::builder(&address).transport(transport).reconnect(false);
            let Ok(publisher) = publisher.stream("A").format(&format).connect() else { continue };
            acknowledged.fetch_add(publish_while_there(publisher, is_over, &flushed), Ordering::AcqRel);
        }
    };
    let wait_for = |more: u64| {
        let wanted = flushed.load(Ordering::Acquire) + more;
        while flushed.load(Ordering::Acquire) < wanted {
            std::thread::yield_now();
        }
    };
    // Attached clients are placed where the load is least, sessions over UDP where the kernel's hash says.
    let transports: Vec<Transport> = [vec![Transport::Udp; 2], vec![Transport::Shm; io_count()]].concat();
    let _second = std::thread::scope(|scope| {
        // A failure here is to end the publishers, too.
        let _ends = [Ends(&is_killed), Ends(&is_over)];
        let publish = &publish;
        let publishers = |is_over| -> Vec<_> {
            transports.iter().map(|&transport| scope.spawn(move || publish(transport, is_over))).collect()
        };
        let before = publishers(&is_killed);
        wait_for(500);
        let handlers = (0..12).map(|number| {
            json!({ "name": format!("h{number}"), "peak_msgs_per_s": 1000,
            "sql": format!("SELECT * FROM A WHERE number > {number}") })
        });
        let wanted = json!({ "handlers": handlers.collect::<Vec<_>>() });
        let (status, answer) = place.http(&with_body("PUT", "/v1/wanted", &wanted.to_string()));
        assert_eq!(status, 200, "{answer}");
        wait_for(5000);
        first.process.signal(Signal::KILL);
        first.process.end();
        is_killed.store(true, Ordering::Release);
        before.into_iter().for_each(|publisher| publisher.join().unwrap());
        acknowledged.store(0, Ordering::Release);
        // They ask again and again while the daemon starts.
        let after = publishers(&is_over);
        let second = start();
        wait_for(50_000);
        is_over.store(true, Ordering::Release);
        after.into_iter().for_each(|publisher| publisher.join().unwrap());
        second
    });
    let stream = place.list("streams").remove(0);
    assert_eq!(stream["records_unclaimed"], 0, "{stream}");
    let acknowledged = acknowledged.into_inner();
    assert!(acknowledged > 0 && stream["records_in"].as_u64() >= Some(acknowledged), "{acknowledged}: {stream}");
    // Those that were acknowledged are on their way.
    place.wait_for("handlers", |handlers| {
        handlers.len() == 12 && handlers.iter().all(|handler| handler["records_in"] == stream["records_in"])
    });
}

/// Whatever it was doing when it was killed, its state is that of a whole checkpoint, and it says how many records are missing at least.
#[test]
fn a_daemon_that_is_killed_under_traffic_has_the_state_of_a_checkpoint() {
    let place = Sandbox::new();
    let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let config = format!("{}checkpoint_interval_ms = 5\n", CONFIG.replace("127.0.0.1:0", &address));
    place.write("crossdock.toml", with_io_contexts(&config));
    let start = || Daemon::start(&mut place.command(["serve", "--config", "crossdock.toml"]));
    let format = Format::natural([FieldSpec::new("number", FieldType::U64)]).unwrap();
    let connect = || Publisher::builder(&address).reconnect(false).stream("A").format(&format).connect();
    let (given, mut known) = (AtomicU64::new(0), 0);
    let mut daemon = start();
    let sql = json!({ "name": "counted", "sql": "SELECT count(*) AS n FROM A" });
    let (status, answer) = place.http(&with_body("PUT", "/v1/wanted", &json!({ "handlers": [sql] }).to_string()));
    assert_eq!(status, 200, "{answer}");
    for round in 0..8u64 {
        std::thread::scope(|scope| {
            let publish = || {
                let mut publisher = connect().unwrap();
                let mut row = RecordBuilder::new(&format);
                row.set(0, FieldValue::Uint(round)).unwrap();
                let record = row.finish().unwrap().to_vec();
                while publisher.publish(&record).and_then(|()| publisher.flush()).is_ok() {
                    given.fetch_add(1, Ordering::AcqRel);
                }
                // The last may have been taken.
                given.fetch_add(1, Ordering::AcqRel);
            };
            let publisher = scope.spawn(publish);
            place.wait_for("handlers", |handlers| handlers[0]["checkpoints"].as_u64() > Some(0));
            let wanted = given.load(Ordering::Acquire) + 13 * round;
            while given.load(Ordering::Acquire) < wanted {
                std::thread::yield_now();
            }
            daemon.process.signal(Signal::KILL);
            daemon.process.end();
            publisher.join().unwrap();
        });
        daemon = start();
        place.wait_for("handlers", |handlers| handlers[0]["status"] == "running");
        let handlers = place.list("handlers");
        assert_eq!(handlers[0]["checkpoint_failures"], 0, "{handlers:?}");
        let missing = handlers[0]["gap_records"].as_u64().unwrap();
        // The next record's count is one more than the state's.
        let mut subscriber = Subscriber::builder(&address).sql("SELECT n FROM counted").connect().unwrap();
        let mut publisher = connect().unwrap();
        let mut row = RecordBuilder::new(&format);
        row.set(0, FieldValue::Uint(round)).unwrap();
        publisher.publish(row.finish().unwrap()).unwrap();
        publisher.flush().unwrap();
        let found = loop {
            if let Some(Event::Records(records)) = subscriber.next_event(Some(Duration::from_secs(60))).unwrap() {
                match records.iter().next().unwrap().get(0) {
                    FieldValue::Int(found) => break found as u64 - 1,
                    other => panic!("{other:?}"),
                }
            }
        };
        // At least the state with which the daemon before began.
        assert!(found >= known && found + missing <= given.load(Ordering::Acquire), "{known} {found} {missing}");
        // A record that is missing stays missing.
        known = found;
        given.store(found + 1, Ordering::Release);
    }
}

/// Three handlers of a state; each says by its parameter and by what it reads which state that is.
fn state(number: u32) -> Value {
    let handler = |name: &str, native: &str, on: &str| {
        json!({ "name": format!("{name}{}", number % 2), "native": native, "input_streams": [on],
            "output_stream": name, "parameters": { "every": number.to_string() } })
    };
    json!([handler("first", "sample", "A"), handler("second", "sample", "first"), handler("third", "sample", "second")])
}

/// The wanted handlers, as the daemon reports it: the names and parameters.
fn wanted(place: &Sandbox) -> Vec<(Value, Value)> {
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
    let place = Sandbox::new();
    place.write("crossdock.toml", with_io_contexts(CONFIG));
    let start = || Daemon::start(&mut place.command(["serve", "--config", "crossdock.toml"]));
    let mut daemon = start();
    let put = |number: u32| with_body("PUT", "/v1/wanted", &json!({ "handlers": state(number) }).to_string());
    let (status, answer) = place.http(&put(1));
    assert_eq!(status, 200, "{answer}");
    let mut before = 1;
    let (mut old, mut new) = (0, 0);
    // How many other requests are answered before the kill: few leave the old state, many the new one. The range
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
