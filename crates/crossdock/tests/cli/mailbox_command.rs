//! `crossdock mailbox`, as a user tries a mailbox without a program.

use crate::place::{Sandbox, TRANSPORTS};
use rustix::process::Signal;
use std::fs;

/// A daemon with the mailboxes `requests` and `replies`.
fn with_mailboxes() -> (Sandbox, crate::place::Daemon) {
    let (place, daemon) = Sandbox::with_daemon();
    for name in ["requests", "replies"] {
        place.run(["mailbox", "create", name]).with_code(0);
    }
    (place, daemon)
}

#[test]
fn messages_that_a_reader_of_rings_did_not_take_are_there_for_the_next_one() {
    let (place, _daemon) = with_mailboxes();
    place.run(["mailbox", "create", "ring", "--implementation", "rings"]).with_code(0);
    let mut put = place.spawn_fed(["mailbox", "put", "ring"]);
    put.feed("1\n2\n3\n4\n5\n");
    put.end().with_code(0);
    for expected in ["1\n", "2\n", "3\n"] {
        assert_eq!(place.run(["mailbox", "get", "ring"]).with_code(0).stdout, expected);
    }
    assert_eq!(place.run(["mailbox", "get", "ring", "--limit", "2"]).with_code(0).stdout, "4\n5\n");
    // The daemon counts what a client of rings has taken when it looks at them.
    let is_counted = |ring: &serde_json::Value| ring["gets"] == 5 && ring["dropped"] == serde_json::json!([]);
    place.wait_for("mailboxes", |all| all.iter().any(|mailbox| mailbox["name"] == "ring" && is_counted(mailbox)));
}

#[test]
fn messages_that_a_reader_over_packets_did_not_take_are_there_for_the_next_one() {
    for implementation in ["rings", "signal_queue"] {
        let (place, _daemon) = Sandbox::with_daemon();
        place.run(["mailbox", "create", "m", "--implementation", implementation]).with_code(0);
        let mut put = place.spawn_fed(["mailbox", "put", "m"]);
        put.feed("1\n2\n3\n4\n5\n");
        put.end().with_code(0);
        for expected in ["1\n", "2\n", "3\n"] {
            assert_eq!(place.run(["mailbox", "get", "m", "--transport", "udp"]).with_code(0).stdout, expected);
        }
        assert_eq!(place.run(["mailbox", "get", "m", "--limit", "2"]).with_code(0).stdout, "4\n5\n");
        let mailbox = place.list("mailboxes").remove(0);
        assert_eq!((&mailbox["gets"], &mailbox["dropped"]), (&5.into(), &serde_json::json!([])));
    }
}

#[test]
fn messages_that_a_killed_reader_over_packets_had_not_ended_are_there_for_the_next_one() {
    let (place, _daemon) = Sandbox::with_configured_daemon("idle_timeout_ms = 1000\n");
    place.run(["mailbox", "create", "m"]).with_code(0);
    let reader = place.spawn(["mailbox", "tail", "m", "--transport", "udp"]);
    place.wait_for("mailboxes", |all| all[0]["readers"] == 1);
    reader.signal(Signal::STOP);
    let mut put = place.spawn_fed(["mailbox", "put", "m"]);
    put.feed("1\n2\n3\n");
    put.end().with_code(0);
    // The daemon has them, so the first is on its way to the reader.
    reader.signal(Signal::KILL);
    place.wait_for("mailboxes", |all| all[0]["readers"] == 0);
    for expected in ["1\n", "2\n", "3\n"] {
        assert_eq!(place.run(["mailbox", "get", "m", "--transport", "udp"]).with_code(0).stdout, expected);
    }
    let mailbox = place.list("mailboxes").remove(0);
    assert_eq!((&mailbox["gets"], &mailbox["dropped"]), (&3.into(), &serde_json::json!([])));
}

#[test]
fn messages_that_were_dropped_are_reported_to_the_command_that_put_them() {
    for way in TRANSPORTS {
        let (place, _daemon) = Sandbox::with_daemon();
        place.run(["mailbox", "create", "src"]).with_code(0);
        place.run(["mailbox", "create", "full", "--bound-messages", "1"]).with_code(0);
        place.run(["mailbox", "task", "src", "echo", "to=full"]).with_code(0);
        let place = place.by(way);
        let put = ["mailbox", "put", "src", "--count", "7"];
        place.run(put).with_code(1).saying(&[
            "6 messages of src dropped: the mailbox that the task writes into was full (full)",
            "put into src: 7 messages",
            "error: 6 messages of mailbox src were dropped",
        ]);
        let ended = place.run(put.into_iter().chain(["--json"])).with_code(1);
        let report = &ended.json()[0];
        assert_eq!((&report["messages"], &report["dropped"]), (&7.into(), &serde_json::json!([["full", 7]])));
        place.run(["mailbox", "rm", "full"]).with_code(0);
        place.run(["mailbox", "task", "src", "--end"]).with_code(0);
        place.run(["mailbox", "task", "src", "discard"]).with_code(0);
        let ended = place.run(put.into_iter().chain(["--json"])).with_code(0);
        assert_eq!(ended.json()[0]["dropped"], serde_json::json!([]));
    }
}

#[test]
fn lines_go_in_and_come_out_in_order_one_by_one() {
    let (place, _daemon) = with_mailboxes();
    let mut put = place.spawn_fed(["mailbox", "put", "requests"]);
    put.feed("one\n\nthree");
    put.end().with_code(0).saying(&["put into requests: 3 messages (8 B)"]);
    assert_eq!(place.run(["mailbox", "get", "requests"]).with_code(0).stdout, "one\n");
    // The messages that are not taken stay for the next reader.
    let rest = place.run(["mailbox", "get", "requests", "--limit", "2", "--output", "json"]).with_code(0);
    assert_eq!(rest.stdout, "{\"bytes\":0,\"text\":\"\"}\n{\"bytes\":5,\"text\":\"three\"}\n");
    let none = place.run(["mailbox", "get", "requests", "--for", "50ms"]).with_code(0);
    assert_eq!(none.saying(&["0 messages"]).stdout, "");
}

#[test]
fn a_whole_file_is_one_message_by_either_way() {
    let (place, _daemon) = with_mailboxes();
    let bytes: Vec<u8> = (0..60_000_u32).map(|at| ((at * 31) >> 3) as u8).collect();
    fs::write(place.path("image"), &bytes).unwrap();
    for way in TRANSPORTS {
        let image = place.path("image");
        let put = ["mailbox", "put", "requests", image.to_str().unwrap(), "--whole", "--transport", way];
        place.run(put).with_code(0);
        let got = place.run(["mailbox", "get", "requests", "--output", "hex", "--transport", way]).with_code(0);
        let expected: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(got.stdout.trim_end() == expected, "other bytes came out by {way}");
    }
}

#[test]
fn a_task_answers_and_ends() {
    let (place, _daemon) = with_mailboxes();
    place.run(["mailbox", "task", "requests", "echo", "to=replies"]).with_code(0);
    let put = ["mailbox", "put", "requests", "--count", "3", "--size", "12", "--json"];
    let report: serde_json::Value = serde_json::from_str(&place.run(put).with_code(0).stdout).unwrap();
    assert_eq!((&report["messages"], &report["bytes"]), (&3.into(), &36.into()));
    let got = place.run(["mailbox", "get", "replies", "--limit", "3", "--output", "hex"]).with_code(0);
    assert_eq!(got.stdout, "000000000000000000000000\n010000000000000000000000\n020000000000000000000000\n");
    place.run(["mailbox", "task", "requests", "--end"]).with_code(0);
    let again = place.run(["mailbox", "task", "requests", "--end"]).with_code(2);
    again.saying(&["no task reads mailbox `requests`"]);
}

#[test]
fn messages_that_cannot_be_written_stay_in_the_mailbox() {
    let (place, _daemon) = with_mailboxes();
    place.run(["mailbox", "put", "requests", "--count", "1000", "--size", "100"]).with_code(0);
    // A reader that has gone before the first message.
    let mut get = place.command(["mailbox", "get", "requests", "--limit", "1000"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert!(get.stdout(writer).status().unwrap().success());
    let mailbox = place.list("mailboxes").into_iter().find(|mailbox| mailbox["name"] == "requests").unwrap();
    assert_eq!(mailbox["depth"], 1000);
}

#[test]
fn an_input_that_waits_is_ended_by_a_signal() {
    let (place, _daemon) = with_mailboxes();
    let mut put = place.spawn_fed(["mailbox", "put", "requests"]);
    put.feed("one\n");
    place.wait_for("mailboxes", |all| all.iter().any(|mailbox| mailbox["depth"] == 1));
    put.signal(Signal::INT);
    put.end_by_itself().with_code(130).saying(&["put into requests: 1 message (3 B)"]);
}

#[test]
fn a_sync_is_written_by_another_command() {
    let (place, _daemon) = with_mailboxes();
    let waits = place.spawn(["mailbox", "sync"]);
    let address = waits.stdout_line(|line| line.starts_with("0x"));
    place.run(["mailbox", "sync", address.as_str(), "18446744073709551615"]).with_code(0);
    assert_eq!(waits.end().with_code(0).stdout, "18446744073709551615\n");
    place.run(["mailbox", "sync", "--for", "20ms"]).with_code(1);
}

#[test]
fn errors_are_named_with_their_remedy() {
    let (place, _daemon) = with_mailboxes();
    let cases: [(&[&str], i32, &str); 8] = [
        (&["mailbox", "get", "nothing"], 2, "`crossdock mailbox create NAME` creates one"),
        (&["mailbox", "create", "requests"], 2, "there is a mailbox `requests` already"),
        (&["mailbox", "create", "a/b"], 2, "name"),
        (&["mailbox", "rm", "nothing"], 2, "nothing"),
        (&["mailbox", "task", "requests", "nonsense"], 2, "nonsense"),
        (&["mailbox", "task", "requests", "echo", "to"], 2, "NAME=VALUE"),
        (&["mailbox", "sync", "12", "1"], 2, "0x"),
        (&["mailbox", "put", "requests", "/"], 2, "it is a directory"),
    ];
    for (arguments, status, what) in cases {
        place.run(arguments).with_code(status).saying(&[what]);
    }
    place.run(["mailbox", "rm", "requests"]).with_code(0);
    place.run(["mailbox", "put", "requests", "--count", "1"]).with_code(2);
}

#[test]
fn the_mailboxes_of_a_running_daemon_are_measured() {
    let (place, _daemon) = Sandbox::with_daemon();
    for transport in ["shm", "udp"] {
        let measured =
            place.run(["bench", "mailbox", "--for", "20ms", "--json", "--transport", transport]).with_code(0);
        let lines: Vec<serde_json::Value> =
            measured.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let cases: Vec<&str> = lines.iter().map(|line| line["case"].as_str().unwrap()).collect();
        assert_eq!(cases, ["enqueue", "put_get", "one_way", "one_way_single"]);
        for line in &lines {
            assert!(line["messages"].as_u64().unwrap() > 0 && line["bytes"] == 64, "{line}");
            let is_round_trip = line["case"] == "enqueue" || line["case"] == "put_get";
            assert_eq!(line["rtt_ns_p50"].is_u64() && line["rtt_ns_p99"].is_u64(), is_round_trip, "{line}");
        }
    }
    let shown = place.run(["bench", "mailbox", "--for", "20ms", "--size", "1k"]).with_code(0);
    assert!(shown.stdout.contains("put_get") && shown.stderr.contains("1000 B"), "{shown:?}");
    let refused = place.run(["bench", "mailbox", "--size", "7"]).with_code(2);
    assert!(refused.stderr.contains("--size is 8 bytes to 16 MiB"), "{}", refused.stderr);
}
