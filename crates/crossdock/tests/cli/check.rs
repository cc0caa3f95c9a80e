//! `crossdock check`: what it finds of sockets and folders of a test's own, and how it says so.

use std::net::UdpSocket;

use serde_json::Value;

use crate::place::{Ended, Place, argument, with_io_contexts};

/// A configuration with everything in the test's folder, and the address.
fn config(place: &Place, listen: &str, more: &str) -> String {
    let socket = place.socket();
    let socket = argument(&socket);
    let text = format!("[context]\nlisten = \"{listen}\"\n[control]\nsocket = \"{socket}\"\n{more}");
    argument(&place.write("check.toml", with_io_contexts(&text))).to_owned()
}

/// What is found of an item.
fn found(ended: &Ended, item: &str) -> Value {
    let findings = ended.json();
    findings
        .into_iter()
        .find(|finding| finding["item"] == item)
        .unwrap_or_else(|| panic!("no {item}: {}", ended.stdout))
}

#[test]
fn every_finding_is_an_object_and_a_problem_decides_the_exit_status() {
    let place = Place::new();
    let file = config(&place, "127.0.0.1:0", "");
    let ended = place.run(["check", "--config", &file, "--json"]);
    let findings = ended.json();
    assert!(findings.len() > 12, "{}", ended.stdout);
    let mut has_problem = false;
    for finding in &findings {
        let verdict = finding["verdict"].as_str().unwrap();
        assert!(["ok", "advice", "unknown", "problem"].contains(&verdict), "{finding}");
        assert_eq!(finding["why"].as_str().unwrap().is_empty(), verdict == "ok", "{finding}");
        has_problem |= verdict == "problem";
    }
    assert_eq!(found(&ended, "UDP address")["verdict"], "ok");
    assert_eq!(found(&ended, "control socket")["found"], "free");
    assert_eq!(ended.code, Some(i32::from(has_problem)), "{}", ended.stderr);
    assert!(!place.socket().exists(), "nothing stays");
}

#[test]
fn an_address_that_another_has_is_a_problem_and_the_daemons_own_is_not() {
    let place = Place::new();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let file = config(&place, &taken.local_addr().unwrap().to_string(), "");
    let ended = place.run(["check", "--config", &file, "--json"]).with_code(1).saying(&["UDP address", "hint: "]);
    let finding = found(&ended, "UDP address");
    assert_eq!((&finding["verdict"], &finding["found"]), (&"problem".into(), &"in use".into()));
    assert!(finding["command"].as_str().unwrap().starts_with("sudo ss -lunp"), "{finding}");

    let (place, daemon) = Place::with_daemon();
    let file = config(&place, &daemon.address, "");
    let ended = place.run(["check", "--config", &file, "--json"]);
    for item in ["UDP address", "control socket", "attach socket"] {
        let finding = found(&ended, item);
        assert_eq!((&finding["verdict"], &finding["found"]), (&"ok".into(), &"used by the daemon".into()));
    }
    assert_eq!(place.list("streams").len(), 1, "the daemon goes on");
}

#[test]
fn places_that_cannot_be_had_are_problems() {
    let place = Place::new();
    let taken = place.write("taken", "text");
    let more = format!(
        "[morph]\nstate_dir = \"{}\"\n[attach]\naddress = \"unix:/proc/none/a.sock\"\n",
        argument(&taken.join("below"))
    );
    let file = config(&place, "127.0.0.1:0", &more);
    let ended = place.run(["check", "--config", &file, "--json"]).with_code(1).saying(&["attach socket", "state_dir"]);
    assert!(found(&ended, "attach socket")["command"].as_str().unwrap().contains("install -d"));
}

#[test]
fn the_table_fits_80_columns_and_wrong_files_are_the_users() {
    let place = Place::new();
    let file = config(&place, "127.0.0.1:0", "");
    let mut command = place.command(["check", "--config", &file]);
    let text = crate::place::Process::spawn(command.env("COLUMNS", "80")).end().stdout;
    assert!(text.starts_with("item "), "{text}");
    assert_eq!(text.lines().find(|line| !line.starts_with(' ') && line.chars().count() > 80), None, "{text}");
    place.write("bad.toml", "[contxt]\n");
    place.run(["check", "--config", "bad.toml"]).with_code(2).saying(&["bad.toml:1:", "unknown key `contxt`"]);
    place.run(["check", "--config", "none.toml"]).with_code(2).saying(&["none.toml"]);
}
