//! The real binary, run as a user runs it: what it prints, where, and with which exit status.
//!
//! No test sleeps to let things happen: each waits for a line of output, for a process's end, or for a state of the daemon
//! that its HTTP API shows.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod access;
mod analyze;
mod attached;
mod bad_input;
mod binary;
mod calls;
mod check;
mod demo;
mod encodings;
mod endings;
mod files;
mod http;
mod json;
mod killed;
mod layouts;
mod losses;
mod mailbox;
mod mailbox_command;
mod manual;
mod messages;
mod morph;
mod names;
mod outputs;
mod place;
mod platform;
mod readme;
mod reconnecting;
mod routes;
mod schemas;
mod secure;
mod setup;
mod start;
mod states;
mod systemd;
mod tables;
mod tls;
mod top;
mod trace;
mod transit;
mod why;
