//! How many I/O contexts the daemons of tests have: one, or as many as `CROSSDOCK_TEST_IO_CONTEXTS` says. All tests pass with
//! any number, so `cargo xtask test` runs them with one and with three. And how much tests of random changes try.

use crossdock_runtime::{ContextKind, ContextSpec};

/// The I/O contexts beside the home context.
pub(crate) fn further() -> impl Iterator<Item = ContextSpec> {
    let count = std::env::var("CROSSDOCK_TEST_IO_CONTEXTS").ok().map(|count| count.parse::<usize>().unwrap());
    let io = ContextSpec { io: true, ..ContextSpec::new(ContextKind::CCore) };
    std::iter::repeat_n(io, count.unwrap_or(1) - 1)
}

/// How many of something random are tried: in the whole run `all`, and a quarter of them once more with further I/O contexts; `some`
/// where somebody waits for the answer.
pub(crate) fn tries(all: u32, some: u32) -> u32 {
    match std::env::var_os("CROSSDOCK_THOROUGH") {
        Some(_) if further().next().is_some() => all / 4,
        Some(_) => all,
        None => some,
    }
}
