//! The platform: the execution contexts and their threads, and the overlay that says which node is at which of them
//! (data-compatibility 4.2).

pub(crate) mod context;
pub(crate) mod overlay;
#[cfg(any(test, feature = "bench"))]
pub mod rig;
pub(crate) mod start;
