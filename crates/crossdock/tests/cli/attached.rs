//! Processes that exchange messages with the daemon by shared memory: who is, who may, what is left of them.

use std::path::Path;

use serde_json::Value;

use crate::place::{Daemon, FLIGHTS_SCHEMA, Place};

/// A daemon that knows stream A, with these sections in its configuration.
fn with_sections(sections: &str) -> (Place, Daemon) {
    Place::with_configured_daemon(&format!("\n{sections}"))
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn configured_mailboxes_and_tasks_are_there_from_the_start() {
    let sections = "[node]\nname = \"west\"\n\
                    [[mailbox]]\nname = \"requests\"\nbound_messages = 7\n\
                    [[mailbox]]\nname = \"replies\"\nimplementation = \"signal_queue\"\n\
                    [[task]]\ntask = \"echo\"\nmailbox = \"requests\"\narguments = { to = \"replies\" }\n";
    let (place, daemon) = with_sections(sections);
    assert!(daemon.line.contains("mailboxes=2 tasks=1"), "{}", daemon.line);
    let mailboxes = place.run(["mailboxes", "--json"]).with_code(0).json();
    let [replies, requests] = &mailboxes[..] else { panic!("{mailboxes:?}") };
    assert_eq!((&requests["address"], &requests["owner"]), (&"west/requests".into(), &"daemon".into()));
    assert_eq!((&requests["upcall"], &requests["bound_messages"]), (&"echo".into(), &7.into()));
    assert_eq!((&requests["implementation"], &replies["implementation"]), (&"rings".into(), &"signal_queue".into()));
    assert_eq!((&replies["upcall"], &replies["bound_messages"]), (&Value::Null, &1024.into()));
    for key in ["depth", "bytes", "bound_bytes", "waits", "puts", "gets", "readers", "writers"] {
        assert!(requests[key].is_u64(), "{key}: {requests}");
    }
    assert!(requests["dropped"].is_array());
    let table = place.run(["mailboxes"]).with_code(0).stdout;
    assert!(table.contains("west/requests") && table.contains("task echo") && table.contains("0 of 7"), "{table}");
}

#[test]
fn what_is_configured_and_cannot_be_is_said_at_the_start() {
    let place = Place::new();
    let mailbox = "[[mailbox]]\nname = \"requests\"\n";
    for (sections, told) in [
        (
            format!("{mailbox}[[task]]\ntask = \"ecko\"\nmailbox = \"requests\"\n"),
            &["task `ecko`", "requests", "echo"][..],
        ),
        (format!("{mailbox}[[task]]\ntask = \"echo\"\nmailbox = \"requests\"\n"), &["task `echo`", "`to`"]),
        (
            format!("{mailbox}[host]\nmax_mailboxes = 1\n{}", mailbox.replace("requests", "more")),
            &["mailbox `more`", "max_mailboxes"],
        ),
        ("[attach]\nadress = \"auto\"\n".to_owned(), &["bad.toml:2:1", "did you mean `address`?"]),
        ("[services]\nfile = \"off\"\n".to_owned(), &["bad.toml:2:1", "did you mean `files`?"]),
    ] {
        place.write("bad.toml", &sections);
        place.run(["serve", "--config", "bad.toml", "--listen", "127.0.0.1:0"]).with_code(2).saying(told);
    }
    place.write("a.schema", FLIGHTS_SCHEMA);
    for (sections, told) in [
        ("[services]\nfiles = \"nowhere\"\n", &["[services]", "nowhere"][..]),
        ("[attach]\naddress = \"unix:a.schema\"\n", &["unix:a.schema", "something else than a socket"]),
    ] {
        place.write("bad.toml", sections);
        place.run(["serve", "--config", "bad.toml", "--listen", "127.0.0.1:0"]).with_code(1).saying(told);
    }
    assert_eq!(names_in(place.path(".").as_path()), ["a.schema", "bad.toml"]);
}
