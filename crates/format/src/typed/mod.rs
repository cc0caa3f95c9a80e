//! Records as Rust types, by serde: a format follows from a type, values of a type become records, and records become values.
//!
//! ```
//! use crossdock_format::typed::{RecordReader, RecordWriter};
//! use crossdock_format::{Format, Record};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize, Debug, PartialEq)]
//! struct Flight {
//!     carrier: String,
//!     flight: u16,
//!     #[serde(rename = "dep_delay")]
//!     delay: Option<f64>,
//! }
//!
//! let format = Format::of::<Flight>()?;
//! assert_eq!(format.schema(), "carrier string\nflight u16\ndep_delay f64 null\n");
//! let flight = Flight { carrier: "UA".to_owned(), flight: 1545, delay: None };
//! let mut writer = RecordWriter::new(&format);
//! let record = Record::check(&format, writer.write(&flight)?)?;
//! assert_eq!(RecordReader::new(&format).read::<Flight>(&record)?, flight);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Fields go by their names, as serde has them (`rename` included):
//!
//! | in the type | in the format that follows from it | also read from | also written to |
//! |---|---|---|---|
//! | `bool`, `i8` … `u64`, `f32`, `f64` | the same | integers: integers in range, timestamps (ns), enumerations; floats: any number | integers: integers in range, timestamps, decimals; `f64`: `f32` |
//! | `String`, `&str`, `char` | `string` | `char[N]`, enumerations, timestamps (RFC 3339), decimals | the same |
//! | bytes, as `serde_bytes` has them | `bytes` | text | – |
//! | an enum whose variants have no data | an enumeration of 4 bytes, numbered in their order | text | text |
//! | a struct | a nested record | unions: each variant is an `Option` | – |
//! | `Option` of these | the same, nullable | fields that are missing are `None` | – |
//! | `Vec` and other sequences | a list | `bytes`, for `u8` | lists of a fixed length |
//! | an array, or a tuple of one type | a list of a fixed length | lists | lists |
//! | [`Nanoseconds`] | `timestamp` | `i64` | `i64` |
//!
//! A field that the type has and the record has not is `None` for an `Option`, and its default where serde has one
//! (`#[serde(default)]`). Fields that the type does not have are passed over. A list or bytes of another length than an array or a
//! tuple has is an error.
//!
//! An alias of an enum's variant (`#[serde(alias = "…")]`) is a further symbol of the enumeration, and shifts the numbers of the
//! symbols behind it: serde lists a variant's name and its aliases in alphabetical order, and does not distinguish them. A number
//! that has no symbol in the record's format goes into the variant with `#[serde(other)]`, and is an error if there is none.
//!
//! Maps, enums with data, `flatten` and 128-bit
//! integers have no format; a type that has them can still be read, where a record goes with it.

mod error;
mod members;
mod read;
mod trace;
mod write;

pub use error::TypedError;
pub use read::RecordReader;
pub use write::RecordWriter;

use crate::view::Nanoseconds;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// By this name serde is given a number that is a timestamp; other encodings see the number.
const NANOSECONDS: &str = "crossdock::Nanoseconds";

impl Serialize for Nanoseconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(NANOSECONDS, &self.0)
    }
}

impl<'de> Deserialize<'de> for Nanoseconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Nanoseconds, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Nanoseconds;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("nanoseconds since 1970")
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<Nanoseconds, D::Error> {
                i64::deserialize(inner).map(Nanoseconds)
            }

            fn visit_i64<E: serde::de::Error>(self, nanoseconds: i64) -> Result<Nanoseconds, E> {
                Ok(Nanoseconds(nanoseconds))
            }
        }

        deserializer.deserialize_newtype_struct(NANOSECONDS, Visitor)
    }
}
