//! A context and processes that attach to it by shared memory: mailboxes, tasks, streams, and the ends of clients.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod child;
#[path = "../contexts/mod.rs"]
mod contexts;
mod ends;
mod limits;
mod mailboxes;
mod session;
mod streams;
