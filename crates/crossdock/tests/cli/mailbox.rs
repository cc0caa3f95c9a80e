//! The library's examples, against a daemon as users run it.

use crate::place::{Sandbox, TRANSPORTS};

#[path = "../../../nectarine/examples/mailbox.rs"]
#[allow(dead_code, reason = "its `main` is for users")]
mod example;
#[path = "../../../nectarine/examples/rpc.rs"]
#[allow(dead_code, reason = "its `main` is for users")]
mod procedures;

#[test]
fn the_example_with_mailboxes_does_what_it_says() {
    let (place, daemon) = Sandbox::with_configured_daemon("[node]\nname = \"west\"\n");
    for way in TRANSPORTS {
        // By packets where that is requested, else by shared memory.
        let address = if way == "udp" { format!("udp://{}", daemon.address) } else { daemon.address.clone() };
        let seen = example::run(&address).unwrap();
        let node = format!("node west, by {way}");
        assert_eq!(seen, [node.as_str(), "reply: good day", "reply: and well", "archived: 16 bytes"]);
        // All of it goes with the program.
        place.wait_for("mailboxes", <[serde_json::Value]>::is_empty);
        place.wait_for("clients", <[serde_json::Value]>::is_empty);
    }
}

#[test]
fn the_example_with_procedures_does_what_it_says() {
    let (place, daemon) = Sandbox::with_daemon();
    for way in TRANSPORTS {
        let address = if way == "udp" { format!("udp://{}", daemon.address) } else { daemon.address.clone() };
        let seen = procedures::run(&address).unwrap();
        assert_eq!(
            seen,
            ["84 / 2 = 42", "84 / 0: nothing is divided by 0", "12 / 4, 3, 2, 1 = [3, 4, 6, 12]"],
            "{way}"
        );
        place.wait_for("mailboxes", <[serde_json::Value]>::is_empty);
    }
}
