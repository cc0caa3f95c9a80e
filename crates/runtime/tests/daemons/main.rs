//! The tests of contexts and their clients over the real wire, in one program: it is linked once.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod access;
mod asynchronous;
mod attached;
mod contexts;
mod counters;
mod datagrams;
mod durable;
mod end_to_end;
mod handlers;
mod hostile;
mod iteration;
mod keeping;
mod library;
mod long;
mod losses;
mod morph;
mod packets;
mod pieces;
mod procedures;
mod reconnecting;
mod refusals;
mod routes;
mod secure;
mod sending;
mod slow;
mod subscribing;
