//! Loads, admission, placement, plans and balance, each against what it claims.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod admission;
mod balance;
mod load;
mod placement;
mod plan;
mod plans;
mod random;
mod scopes;
mod work;
