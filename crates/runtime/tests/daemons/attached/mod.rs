//! A context and processes that attach to it by shared memory: mailboxes, tasks, streams, and the ends of clients.

mod child;
mod ends;
mod limits;
mod mailboxes;
mod session;
mod streams;
