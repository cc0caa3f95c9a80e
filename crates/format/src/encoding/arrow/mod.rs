//! Arrow's columns in and out: IPC streams and files. Parquet files go through the same columns.
//!
//! | field | Arrow | read from, besides |
//! |---|---|---|
//! | `bool`, integers, `f32`, `f64` | the same | half floats; for a given format, any number that fits |
//! | `timestamp` | Timestamp, nanoseconds, UTC | other units if they fit 64 bits of nanoseconds; dates, as midnight |
//! | `char[N]`, `string` | Utf8 | large, views, dictionaries; for a given format, binary that is UTF-8 |
//! | `bytes` | Binary | large, views, dictionaries, fixed sizes |
//! | `decimal` | Decimal128 | of 32, 64 and 256 bits, as far as 128 bits hold the number |
//! | enumerations | the number, or the symbol as Utf8 with [`Loss::Enum`] | any number that fits, text |
//! | a nested record | Struct | – |
//! | a union | Struct of its variants, one not null | Union, dense and sparse; a null in it is no variant |
//! | a list | List, FixedSizeList | large, views, Map as a list of `key` and `value`; a null element is an error of the row |
//!
//! Run-end encoded columns are read as their values are. Intervals, and decimals with a negative scale or more than 38
//! digits behind the point, are refused, with the column's path; so are unions in lists and in unions, which are to be
//! put into a struct.
//!
//! A property of a format beyond Arrow's types (a `char[N]`'s room) stands in the schema's metadata under
//! [`METADATA_KEY`], from which [`import`] has the very same format back; others see Arrow's types. Times of day and
//! durations have no field type: their numbers are read if [`Loss::IntegerType`] is allowed. Text that is no UTF-8 is
//! refused when it is written, or has its wrong bytes replaced with [`Loss::InvalidText`]. NaN is a float like others.
//!
//! A file is read from its front, as the stream that it is, and needs no seeking; what stands behind the end of the
//! stream is not looked at. Buffers may be packed with LZ4 or Zstandard.
//!
//! Batches are written every [`BATCH_ROWS`] records, or every [`BATCH_BYTES`] of them, and at the end.

mod columns;
mod ipc;
mod read;
mod schema;
mod unpacked;
mod write;

#[cfg(doc)]
use super::Loss;

pub use ipc::{ArrowDecoder, ArrowEncoder};
pub(super) use read::BatchReader;
pub use schema::{METADATA_KEY, export, import};
pub(super) use write::BatchWriter;

/// Most records in a batch that is written.
pub const BATCH_ROWS: usize = 4096;
/// Bytes of records after which a batch is written.
pub const BATCH_BYTES: usize = 1 << 20;
/// Most rows that a batch may have where it is read: more than any that holds a value a row within the bounds on bytes.
pub(super) const MAX_ROWS: usize = 1 << 26;
