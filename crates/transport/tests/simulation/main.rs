//! Whole sessions in virtual time, over paths that lose, double, mix up, spoil and hold what they carry.
//!
//! Each test runs under many seeds; a failure prints the seed and the command that repeats it.

#![allow(clippy::unwrap_used, reason = "a test may panic; the lint spares test functions only, not what they call")]
#![allow(clippy::single_range_in_vec_init, reason = "a list of stalls, or of an ack's ranges, may have one")]

mod congestion;
mod datagrams;
mod delivery;
mod ecn;
mod efficiency;
mod hostility;
mod life;
mod mtu;
mod routes;
mod trace;

mod host;
mod traffic;
mod world;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
