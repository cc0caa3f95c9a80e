//! How many I/O contexts the daemons of tests have: one, or as many as `CROSSDOCK_TEST_IO_CONTEXTS` says. All tests pass with
//! any number, so `cargo xtask test` runs them with one and with three.

use crossdock_runtime::{ContextKind, ContextSpec};

/// The I/O contexts beside the home context.
pub(crate) fn further() -> impl Iterator<Item = ContextSpec> {
    let count = std::env::var("CROSSDOCK_TEST_IO_CONTEXTS").ok().map(|count| count.parse::<usize>().unwrap());
    let io = ContextSpec { io: true, ..ContextSpec::new(ContextKind::CCore) };
    std::iter::repeat_n(io, count.unwrap_or(1) - 1)
}
