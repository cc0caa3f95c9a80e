//! Protobuf messages by a `.proto` file, both from anywhere.

use crate::{by_schema, guarded, small_stack};
use crossdock_format::encoding::Encoding;

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    guarded::panics_may_be_caught();
    small_stack::run(|| by_schema::examine(Encoding::Protobuf, "a.proto", input));
}
