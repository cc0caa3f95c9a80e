//! Avro in and out: datums, object container files, and formats out of schemas.
//!
//! [`AvroSchema`] is a schema: read from its JSON, or made for a format. [`AvroDecoder`] and [`AvroEncoder`] are
//! compiled for a schema and a format, for datums behind each other with nothing in between; [`AvroFileDecoder`] and
//! [`AvroFileEncoder`] are for object container files, which have their schema in them.
//!
//! The decoder is Crossdock's own, because it writes records at once. `arrow-avro` makes columns, and records would have to be
//! made: the columns alone take 2.5 times as long in batches of 1024 data, and 40 times as long for a single datum.
//!
//! # Which field is which
//!
//! A field of the schema and one of the format are the same if they have the same name. The format of a schema
//! ([`AvroSchema::format`]) has a field for each:
//!
//! | schema | format |
//! |---|---|
//! | `boolean`, `int`, `long`, `float`, `double` | `bool`, `i32`, `i64`, `f32`, `f64` |
//! | `string`; `bytes`, `fixed` | `string`; `bytes` |
//! | `timestamp-millis`, `-micros`, `-nanos` | `timestamp` |
//! | `decimal` of up to 9, 18, 38 digits | `decimal` of 4, 8, 16 bytes and the same scale |
//! | `enum` | `enum i32` with the symbols' indices |
//! | `record`, `array` | a nested record, a list |
//! | `map` | a list of records of `key` and `value` |
//! | a union of null and one type | that type, nullable |
//! | a union of several types | a union whose variants have the names of the types, nullable if null is one of them |
//! | an array of a union | a list of records whose only field is `value` |
//!
//! Other logical types (dates, times of day, UUIDs) are the types that they are written as. A format of one's own may
//! have other integer types (each value is checked), `char[N]` for `string`, `f64` for `float`.
//!
//! The schema that stands for a format ([`AvroSchema::of`]): `int` for integers of up to 31 bits, `long` for the others
//! and for `u64` (what is beyond a `long` is an error of the record), `timestamp-nanos`, `string` for `char[N]`, `bytes`
//! for decimals, and a record for each variant of a union. A property that a schema cannot say (that an `int` is a
//! `u16`, a name with a blank) stands in an attribute of the field, `"crossdock": "flight u16"`, which
//! [`AvroSchema::format`] reads back: so nothing is lost.
//!
//! # Values
//!
//! | what | reading | writing |
//! |---|---|---|
//! | null where the other side has none | an error | an error |
//! | a field that the format lacks | refused beforehand, or passed over ([`EncodingOptions::ignore_unknown`](super::EncodingOptions::ignore_unknown)) | null where it may be, else refused beforehand |
//! | an integer, decimal or time beyond the field | an error | an error, also for times that the schema's unit would round |
//! | a symbol, or a number without one, that the other side lacks | an error | an error |
//! | text that is no UTF-8 | an error, or repaired where [`Loss::InvalidText`](super::Loss::InvalidText) is allowed | the same |
//! | NaN and the infinities | unchanged, to the bit | the same |
//!
//! An error in a value is of one record, with the field's path; reading goes on behind it. Bytes that are none of the
//! schema (a branch that a union does not have, an `int` of 40 bits) end it: what follows cannot be found.
//!
//! # Why the code is ours
//!
//! Neither library for it gives what is asked here. `arrow-avro` decodes into batches of columns: its error is one of the
//! call and names no field, an element that is wrong ends the batch that it is in, and a message in a field would be a
//! batch of one row, with its allocations, to be copied into a record after that. `apache-avro` builds a tree of values,
//! which takes three times as long (`cargo xtask bench formats`, case `avro_decode`). Tests hold ours against
//! `apache-avro`, both ways.

mod decode;
mod defaults;
mod encode;
mod file;
mod make;
mod plan;
mod schema;

pub use decode::AvroDecoder;
pub use encode::AvroEncoder;
pub use file::{AvroCodec, AvroFileDecoder, AvroFileEncoder};
pub use schema::AvroSchema;

/// The error of a datum without bytes: data behind each other have no ends, and no count.
#[cold]
fn no_bytes() -> super::EncodingError {
    super::EncodingError::schema(
        "data of this schema have no bytes (all that it has is null or fixed types of size 0), so their number is lost; \
         use avro-file, which counts them, or add a field",
    )
}
