//! The library's example, against a daemon as users run it.

use crate::place::{Place, TRANSPORTS};

#[path = "../../../nectarine/examples/mailbox.rs"]
#[allow(dead_code, reason = "its `main` is for users")]
mod example;

#[test]
fn the_example_with_mailboxes_does_what_it_says() {
    let (place, daemon) = Place::with_configured_daemon("[node]\nname = \"west\"\n");
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
