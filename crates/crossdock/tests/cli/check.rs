//! `crossdock check`: what it finds of sockets and folders of a test's own, and how it says so.

use std::net::UdpSocket;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::place::{Daemon, Ended, Process, Sandbox, argument, io_count, with_io_contexts, word_after};

/// A configuration with everything in the test's folder, and the address.
fn config(place: &Sandbox, listen: &str, more: &str) -> String {
    let socket = place.socket();
    let socket = argument(&socket);
    let text = format!("[context]\nlisten = \"{listen}\"\n[control]\nsocket = \"{socket}\"\n{more}");
    argument(&place.write("check.toml", with_io_contexts(&text))).to_owned()
}

/// The finding for an item.
fn found(ended: &Ended, item: &str) -> Value {
    let findings = ended.json();
    findings
        .into_iter()
        .find(|finding| finding["item"] == item)
        .unwrap_or_else(|| panic!("no {item}: {}", ended.stdout))
}

#[test]
fn every_finding_is_an_object_and_a_problem_decides_the_exit_status() {
    let place = Sandbox::new();
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
fn reference_tables_are_read_and_a_wrong_one_is_a_problem_with_its_line() {
    let place = Sandbox::new();
    let airports = "[[table]]\nname = \"airports\"\npath = \"airports.csv\"\nkey = \"code\"\n";
    let carriers = airports.replace("airports", "carriers") + "schema = \"carriers.schema\"\n";
    place.write("carriers.schema", "code string\nname string\n");
    let file = config(&place, "127.0.0.1:0", &format!("{airports}{carriers}"));
    let tables = || {
        let ended = place.run(["check", "--config", &file, "--json"]);
        let found = ended.json().into_iter().filter(|finding| finding["item"] == "table");
        let found: Vec<(Value, String)> =
            found.map(|finding| (finding["verdict"].clone(), finding["why"].as_str().unwrap().to_owned())).collect();
        let is_wrong = found.iter().any(|(verdict, _)| verdict == "problem");
        assert!(found.len() == 2 && (!is_wrong || ended.code == Some(1)), "{found:?} {}", ended.stderr);
        found
    };
    place.write("airports.csv", "code,city\nEWR,Newark\nJFK,New York\n");
    let found = tables();
    assert!(found[0].0 == "ok" && found[1].0 == "problem", "{found:?}");
    assert!(found[1].1.contains("`carriers`: ") && found[1].1.contains("carriers.csv: cannot be read"), "{found:?}");
    place.write("carriers.csv", "code,name\nUA,United\nAA\n");
    assert!(tables()[1].1.contains("carriers.csv: line 3"), "{:?}", tables());
    place.write("carriers.csv", "code,name\nUA,United\n");
    assert!(tables().iter().all(|(verdict, _)| verdict == "ok"), "{:?}", tables());
    place.write("airports.csv", "iata,city\nEWR,Newark\n");
    assert!(tables()[0].1.contains("`code` is not there; the columns are iata, city"), "{:?}", tables());
}

#[test]
fn an_address_that_another_has_is_a_problem_and_the_daemons_own_is_not() {
    let place = Sandbox::new();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let file = config(&place, &taken.local_addr().unwrap().to_string(), "");
    let ended = place.run(["check", "--config", &file, "--json"]).with_code(1).saying(&["UDP address", "hint: "]);
    let finding = found(&ended, "UDP address");
    assert_eq!((&finding["verdict"], &finding["found"]), (&"problem".into(), &"in use".into()));
    assert!(finding["command"].as_str().unwrap().starts_with("sudo ss -lunp"), "{finding}");

    let (place, daemon) = Sandbox::with_daemon();
    let file = config(&place, &daemon.address, "");
    let ended = place.run(["check", "--config", &file, "--json"]);
    for item in ["UDP address", "control socket", "attach socket"] {
        let finding = found(&ended, item);
        assert_eq!((&finding["verdict"], &finding["found"]), (&"ok".into(), &"used by the daemon".into()));
    }
    assert_eq!(place.list("streams").len(), 1, "the daemon goes on");
}

/// The command that starts a daemon with these limits of open files, as `ulimit` has them.
fn limited(place: &Sandbox, limits: &str) -> Command {
    let serve = place.serve();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{limits}; exec \"$0\" \"$@\"")]).arg(serve.get_program()).args(serve.get_args());
    command.current_dir(place.path(".")).stdin(Stdio::null());
    for (name, value) in serve.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

fn open_files(daemon: &Process) -> u64 {
    std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count() as u64
}

#[test]
fn a_daemon_raises_its_limit_of_open_files_as_far_as_it_may() {
    let place = Sandbox::new();
    let daemon = Daemon::start(&mut limited(&place, "ulimit -S -n 100"));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.process.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let [soft, hard] = line.split_whitespace().skip(3).take(2).collect::<Vec<_>>()[..] else { panic!("{line}") };
    assert!(soft == hard && soft != "100", "{line}");
}

#[test]
fn the_clients_that_a_limit_of_open_files_lets_attach_are_those_that_there_is_room_for() {
    let mut place = Sandbox::new();
    let limit = 200;
    let daemon = Process::spawn(&mut limited(&place, &format!("ulimit -n {limit}")));
    let warning = daemon.stderr_line(|line| line.contains("the limit of open files"));
    place.uses(word_after(&daemon.stderr_line(|line| line.contains(" serving ")), "address="));
    let said: u64 = warning.split("about ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    place.run(["mailbox", "create", "m"]).with_code(0);
    let tail = || place.spawn(["mailbox", "tail", "m", "--transport", "shm"]);
    let attached = |number: u64| place.wait_for("mailboxes", |all| all[0]["readers"] == number);
    // The first one brings the segments of its protection domain.
    let _first = tail();
    attached(1);
    let before = open_files(&daemon);
    let further = 6;
    let _further: Vec<Process> = (0..further).map(|_| tail()).collect();
    attached(1 + further);
    // The HTTP connection that asks for the mailboxes is counted or is not, before and after.
    let each = (open_files(&daemon) - before + further / 2) / further;
    let counted = 1 + (limit - before) / each;
    assert!(
        said.abs_diff(counted) <= 1 + io_count() as u64,
        "said {said}, counted {counted}, {each} each, {before} before"
    );
}

#[test]
fn places_that_cannot_be_had_are_problems() {
    let place = Sandbox::new();
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
    let place = Sandbox::new();
    let file = config(&place, "127.0.0.1:0", "");
    let mut command = place.command(["check", "--config", &file]);
    let text = Process::spawn(command.env("COLUMNS", "80")).end().stdout;
    assert!(text.starts_with("item "), "{text}");
    assert_eq!(text.lines().find(|line| !line.starts_with(' ') && line.chars().count() > 80), None, "{text}");
    place.write("bad.toml", "[contxt]\n");
    place.run(["check", "--config", "bad.toml"]).with_code(2).saying(&["bad.toml:1:", "unknown key `contxt`"]);
    place.run(["check", "--config", "none.toml"]).with_code(2).saying(&["none.toml"]);
}
