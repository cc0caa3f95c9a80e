//! Mailboxes: two programs' worth of readers and writers, and a task in the daemon between them.
//!
//! ```sh
//! crossdock serve &
//! cargo run --example mailbox -- 127.0.0.1:7440
//! ```

#![allow(clippy::print_stdout, reason = "it is run to be read")]

use std::error::Error;
use std::time::Duration;

use crossdock_nectarine::{Implementation, MailboxOptions, Node};

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7440".to_owned());
    for line in run(&address)? {
        println!("{line}");
    }
    Ok(())
}

/// Everything once; returns the output.
pub(crate) fn run(address: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let mut seen = Vec::new();
    let node = Node::connect(address)?;
    seen.push(format!("node {}, by {}", node.name()?, node.transport()));

    // One writer, one reader: descriptors pass through rings of their own, and nobody is asked.
    node.create_mailbox("requests", MailboxOptions::default())?;
    // Any number of both; a writer waits when 100 messages are in it.
    let many =
        MailboxOptions { implementation: Implementation::SignalQueue, bound_messages: Some(100), ..Default::default() };
    node.create_mailbox("replies", many)?;
    node.create_mailbox("archive", MailboxOptions::default())?;
    // From now on each message of `requests` is moved to `replies` by the daemon itself: nobody needs to be woken for it.
    node.create_task("echo", "requests", [("to", "replies")])?;

    let mut requests = node.writer("requests")?;
    // More than one may be begun at a time, and they may be ended in any order.
    let mut first = requests.begin_put(16)?;
    let mut second = requests.begin_put(16)?;
    first.copy_from_slice(b"header: good day");
    second.copy_from_slice(b"header: and well");
    requests.end_put(first)?;
    requests.end_put(second)?;

    let mut replies = node.reader("replies")?;
    let mut archive = node.writer("archive")?;
    for _ in 0..2 {
        let mut reply = replies.begin_get()?;
        // A header can be taken off where it stands.
        reply.adjust(b"header: ".len(), 0)?;
        seen.push(format!("reply: {}", String::from_utf8_lossy(&reply)));
        // To another mailbox as it is now, without a copy.
        replies.enqueue(reply, &mut archive)?;
    }

    let mut archived = node.reader("archive")?;
    let mut bytes = 0;
    while let Some(message) = archived.begin_get_timeout(Duration::from_millis(200))? {
        bytes += message.len();
        archived.end_get(message);
        if bytes == 16 {
            break;
        }
    }
    seen.push(format!("archived: {bytes} bytes"));

    // Nothing is there now, and that is no error.
    assert!(archived.try_begin_get()?.is_none());
    for mailbox in ["requests", "replies", "archive"] {
        node.delete_mailbox(mailbox)?;
    }
    Ok(seen)
}
