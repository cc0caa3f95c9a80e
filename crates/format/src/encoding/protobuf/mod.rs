//! Protobuf messages in and out, and formats out of `.proto` files.
//!
//! [`ProtobufSchema`] is a message type: imported from `.proto` files, or made for a format. [`ProtobufDecoder`] and
//! [`ProtobufEncoder`] are compiled for a message type and a format. In a stream, each message stands behind its length
//! as a varint (`writeDelimitedTo` and `parseDelimitedFrom` of other libraries).
//!
//! # Which field is which
//!
//! A field of the message and one of the format are the same if they have the same name. The format of an imported
//! message type ([`ProtobufSchema::format`]) has a field for each:
//!
//! | `.proto` | format |
//! |---|---|
//! | `bool`, `string`, `bytes`, `float`, `double` | `bool`, `string`, `bytes`, `f32`, `f64` |
//! | `int32`, `sint32`, `sfixed32`; those of 64 bits | `i32`; `i64` |
//! | `uint32`, `fixed32`; those of 64 bits | `u32`; `u64` |
//! | `google.protobuf.Timestamp` | `timestamp` |
//! | an enumeration | `enum i32` with its symbols |
//! | a message; a group (proto2) | a nested record, nullable |
//! | `repeated` | a list |
//! | `map` | a list of records of `key` and `value` |
//! | `oneof` | a union, nullable |
//! | `optional` (both syntaxes) | nullable |
//! | no label (proto3), `required` (proto2) | not nullable |
//!
//! A format of one's own may have other integer types (each value is checked), `char[N]` and decimals for `string`,
//! `f64` for `float`, lists of a fixed number of elements, and its own mind about what is nullable.
//!
//! The message type that stands for a format ([`ProtobufSchema::of`], printed by [`ProtobufSchema::to_proto`]) numbers
//! the fields from 1 in their order, leaving out 19000 to 19999: `sint32` for `i8` to `i32`, `sint64`, `uint32` for
//! `u8` to `u32`, `uint64`, `string` for `char[N]` and for decimals; `optional` where the field is nullable. A list that
//! may be null, or lies in a list or a union, is a message whose only field is `repeated`. A property that a `.proto`
//! cannot say (that a `uint32` is a `u16`, a name with a blank) stands in a comment, `// crossdock: flight u16`, which
//! the import reads back: so nothing is lost.
//!
//! # Values
//!
//! | what | reading | writing |
//! |---|---|---|
//! | a field that is not there | null; zero or empty where it has no label (proto3) or is `repeated`; else an error | null is left out; so is zero where it has no label |
//! | a null where the message has no label, or `repeated` | – | refused, unless [`Loss::Null`](super::Loss::Null) is allowed: then it is left out |
//! | a field twice, or two of a `oneof` | the last one counts; the parts of a message are joined | – |
//! | elements packed or not, together or not | as one list in their order | as the `.proto` says |
//! | a number that no symbol has | kept | kept |
//! | a number that the message type lacks | passed over, groups too | – |
//! | another wire type than the field's | an error | – |
//! | an integer beyond the field | an error; `int32`, `uint32` and `sint32` themselves are cut to 32 bits, as everywhere | an error |
//! | text that is no UTF-8 | an error, or repaired where [`Loss::InvalidText`](super::Loss::InvalidText) is allowed | the same |
//! | NaN and the infinities | unchanged, to the bit | the same |
//! | a time beyond the years 1678 to 2261, or with nanoseconds beyond a second | an error | all can be written |
//!
//! An error is of one message, with the field's name; reading goes on behind it. Only a length that is none, or beyond
//! [`EncodingOptions::max_item_bytes`](super::EncodingOptions::max_item_bytes), ends it.

mod decode;
mod encode;
mod import;
mod make;
mod nested;
mod nesting;
mod plan;
mod schema;
mod wire;

pub use decode::ProtobufDecoder;
pub use encode::ProtobufEncoder;
pub use import::{DeclaredMessage, MAX_DECLARED};
pub use schema::ProtobufSchema;
