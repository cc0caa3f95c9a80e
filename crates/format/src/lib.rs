//! Formats, format ids, records read in place, and their encodings.
//!
//! A [`Format`] is a list of fields with names, types and places in a record's bytes. A [`Record`] is a checked view of
//! such bytes: every length and offset in them is checked once ([`Record::check`], [`Format::check_records`]), after
//! which reading a field is one load and cannot fail. A [`RecordBuilder`] writes records in the *natural layout*:
//!
//! | bytes | what |
//! |---|---|
//! | `0..4` | the record's length in bytes, `u32`: the whole record with its padding, a multiple of 8 |
//! | `4..4 + ceil(n / 8)` | null bitmap of the `n` nullable fields in declared order; a set bit means null |
//! | then | the fields in declared order, each at its natural alignment |
//! | then | zeros up to a multiple of 8: the end of the fixed part ([`Format::fixed_bytes`]) |
//! | then | the variable part: the bytes of `string` and `bytes` fields |
//! | then | zeros up to a multiple of 8 |
//!
//! All numbers are little-endian. A `char[N]` is its text, padded with NUL bytes. A `string` or `bytes` field is a
//! slot of two `u32`: the offset of its bytes from the start of the record, and their number. The slot of a null field
//! is zero.
//!
//! The fields of a nested record lie among the others, in declared order. One that may be null has a bit in the null
//! bitmap, before those of its fields; it describes its fields too, but for those that are nullable themselves, which have
//! their own, set when the record is null. A union's variants lie side by side, and each has a bit. A list is a slot:
//! the offset of its first element, a multiple of 8, and the number of elements; where that is fixed, the elements lie
//! in the fixed part themselves. An element is laid out like a record with no length in front, at a distance
//! from the next that is a multiple of its alignment, and its slots count from the start of the whole record.
//!
//! ```
//! use crossdock_format::csv::{CsvDecoder, CsvOptions};
//! use crossdock_format::json::JsonEncoder;
//! use crossdock_format::{Format, Record, Value};
//!
//! let format = Format::parse_schema("carrier char[2]\nflight u16\ndep_delay i32 null")?;
//! let mut input = "carrier,flight,dep_delay\nUA,1545,2\nB6,725,NA\n".as_bytes();
//! let mut decoder = CsvDecoder::from_header(&format, &mut input, &CsvOptions::default())?;
//! let encoder = JsonEncoder::new(&format);
//! let mut lines = Vec::new();
//! while let Some(bytes) = decoder.next_record(&mut input)? {
//!     let record = Record::check(&format, bytes)?;
//!     assert!(matches!(record.get(1), Value::Uint(1545 | 725)));
//!     encoder.record(&record, &mut lines);
//! }
//! assert_eq!(lines,
//! b"{\"carrier\":\"UA\",\"flight\":1545,\"dep_delay\":2}\n{\"carrier\":\"B6\",\"flight\":725,\"dep_delay\":null}\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Records of other programs' layouts (C structs, big-endian feeds) are described by the
//! [notation](crate::notation#layouts-of-other-programs), read where they lie, and written through
//! [`Format::natural_format`]; [`Field::read_cost`] says what reading takes.
//!
//! There is no clock, socket, file or thread in this crate; readers and writers are handed in by the caller.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(all(feature = "avro", feature = "protobuf", feature = "xml", feature = "arrow")),
    allow(dead_code, reason = "pieces that several encodings share have no user where these are left out")
)]

mod builder;
mod check;
pub mod convert;
pub mod csv;
mod description;
mod element;
pub mod encoding;
mod field;
mod foreign;
mod format;
mod id;
mod input;
pub mod json;
mod natural;
mod nesting;
pub mod notation;
mod problem;
mod record;
pub mod registry;
mod scan;
mod shape;
mod spec;
mod text;
mod tokens;
pub mod typed;
pub mod view;

pub use builder::{RecordBuilder, ValueError, ValueProblem};
pub use check::{ElementPath, RecordError, RecordProblem};
pub use element::{Count, Element, ElementKind, Enumeration, Group, Member, Tag};
pub use field::{ByteOrder, Detail, Field, FieldType};
pub use foreign::{Access, ReadCost};
pub use format::Format;
pub use id::{FormatDigest, FormatId, FormatIdError};
pub use nesting::MAX_NESTING;
pub use problem::{FieldTypeError, FormatError, FormatProblem};
pub use record::{List, Record, Value, record_len};
pub use spec::{Evolution, FieldSpec, TypeSpec};
pub use text::NotText;
pub use view::View;

/// Most fields a format may have: more than any table known to us, few enough that field sets stay small bitmaps.
pub const MAX_FIELDS: usize = 4096;
/// How deep records and lists may lie in each other: more than any message known to us, few enough for the stack.
pub const MAX_DEPTH: usize = 16;
/// Longest field name, in bytes.
pub const MAX_NAME_BYTES: usize = 255;
/// Longest fixed part of a record, in bytes.
pub const MAX_FIXED_BYTES: usize = 1 << 20;
/// Longest canonical description of a format, in bytes: [`MAX_FIELDS`] of the longest names fit, and symbols of enumerations
/// as many as anybody could name.
pub const MAX_DESCRIPTION_BYTES: usize = 3 << 20;
/// Longest record that a [`RecordBuilder`] makes, in bytes.
pub const MAX_RECORD_BYTES: usize = 64 << 20;
