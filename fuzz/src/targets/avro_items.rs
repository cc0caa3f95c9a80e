//! Avro datums by an Avro schema, both from anywhere.

use crate::{by_schema, small_stack};
use crossdock_format::encoding::Encoding;

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    small_stack::run(|| by_schema::examine(Encoding::Avro, "a.avsc", input));
}
