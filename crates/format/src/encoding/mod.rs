//! Encodings: records from and to the bytes that other programs write and read, behind one face.
//!
//! A [`Decoder`] reads from any [`BufRead`] and gives records of one format; an item that is wrong is one error, with
//! its place and the field, after which the next one can be read. An [`Encoder`] appends to a buffer. Both stream: they
//! hold one record, or one block where the encoding has blocks, and never the whole input.
//!
//! A mapping that would lose something is refused when the encoder is made, with the field and the name of the
//! [`Loss`]; who names the loss in [`EncodingOptions::allow`] has it.
//!
//! # Values without an exact form
//!
//! | | an enumeration's number without a symbol | NaN, the infinities | text that is no UTF-8, written | text that is no UTF-8, read | a number beyond its field, read |
//! |---|---|---|---|---|---|
//! | JSON | the number | `"NaN"`, `"inf"`, `"-inf"` | refused, or repaired | an error, or repaired | an error |
//! | CSV | the number | `NaN`, `inf`, `-inf` | refused, or repaired | an error | an error |
//! | XML | the number | `NaN`, `INF`, `-INF` | refused, or repaired | ends the input | an error |
//! | CBOR, MessagePack | the number | unchanged | refused, or repaired | an error, or repaired | an error |
//! | Avro | an error | unchanged | refused, or repaired | an error, or repaired | an error |
//! | Protobuf | the number | unchanged | refused, or repaired | an error, or repaired | an error; its own `int32` and the like are cut |
//! | Arrow, Parquet | the number | unchanged | refused, or repaired | an error | an error |
//! | binary | the number | unchanged | as it is | as it is | an error: a foreign layout's time beyond the years 1677 to 2262 |
//!
//! *Repaired*: its wrong bytes are replaced by U+FFFD, where [`Loss::InvalidText`] is allowed. *An error* is one of the
//! item, which names the field; what follows is read or written. A symbol that is unknown is an error everywhere, and so
//! is an element of a list that is null, except where the elements are declared as `record { value TYPE null }`, records of
//! one nullable field of that name: JSON, CBOR, MessagePack, Avro, Arrow and Parquet are read so that the field is the
//! element itself, or null.
//!
//! [`decoder`] and [`encoder`] make one for an [`Encoding`] and a format, [`message_decoder`] and [`message_encoder`] for
//! messages that lie in a field each; [`open`] does for an input that carries its own
//! schema. [`Schema`] holds the schemas of other systems, which formats are imported from.
//!
//! ```
//! use crossdock_format::encoding::{self, Encoding, EncodingOptions};
//! use crossdock_format::{Format, Record};
//!
//! let format = Format::parse_schema("carrier char[2]\ndep_delay i32 null")?;
//! let options = EncodingOptions::default();
//! let mut input = "{\"carrier\":\"UA\",\"dep_delay\":2}\n{\"carrier\":\"B6\"}\n".as_bytes();
//! let mut decoder = encoding::decoder(Encoding::Json, &format, None, &options)?;
//! let mut encoder = encoding::encoder(Encoding::Csv, &format, None, &options)?;
//! let mut rows = Vec::new();
//! encoder.start(&mut rows);
//! while let Some(bytes) = decoder.next_record(&mut input)? {
//!     encoder.record(&Record::check(&format, bytes)?, &mut rows)?;
//! }
//! encoder.finish(&mut rows)?;
//! assert_eq!(rows, b"carrier,dep_delay\nUA,2\nB6,\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "arrow")]
pub mod arrow;
pub mod binary;
mod confluent;
mod dispatch;
mod error;
mod export;
mod foreign;
mod message;
mod schema;
mod text;
#[cfg(feature = "xml")]
pub mod xml;

#[cfg(feature = "avro")]
pub mod avro;
pub mod cbor;
#[cfg(any(feature = "arrow", feature = "avro", feature = "protobuf"))]
mod guard;
#[cfg(any(feature = "avro", feature = "protobuf"))]
mod identifiers;
mod items;
pub mod msgpack;
#[cfg(feature = "arrow")]
pub mod parquet;
#[cfg(feature = "protobuf")]
pub mod protobuf;
pub(crate) mod reader;
mod window;
#[cfg(any(feature = "arrow", feature = "avro"))]
mod zstandard;

use std::fmt;
use std::io::BufRead;
use std::str::FromStr;

use crate::csv::CsvOptions;
use crate::record::Record;

pub use confluent::RegisteredSchema;
pub use dispatch::{decoder, encoder, open};
pub use error::{EncodingError, EncodingProblem};
pub use export::SchemaNotation;
pub use message::{Framing, FramingNameError, MessageForm, message_decoder, message_encoder};
pub use schema::{Schema, SchemaLanguage};

/// Reads records of one format from an input.
pub trait Decoder: Send {
    /// Reads what stands before the first record (a header, a schema), if that was not done: so that what is wrong with it
    /// is known early. [`Decoder::next_record`] does it too. Nothing by default.
    ///
    /// # Errors
    /// It cannot be read, or does not go together with the format.
    fn start(&mut self, input: &mut dyn BufRead) -> Result<(), EncodingError> {
        let _ = input;
        Ok(())
    }

    /// The next record's bytes, in the decoder's format; `None` at the input's end.
    ///
    /// # Errors
    /// An item that cannot be read. While [`EncodingError::is_item`] says so, the next call goes on behind the item.
    fn next_record(&mut self, input: &mut dyn BufRead) -> Result<Option<&[u8]>, EncodingError>;

    /// Forgets the input: the next call is given the start of another. Nothing by default, for those who keep nothing.
    fn restart(&mut self) {}
}

/// Writes records of one format to a buffer.
pub trait Encoder: Send {
    /// The bytes before the first record (a header, a magic number); appended to `out`. The state of an output
    /// that was not finished is forgotten. Nothing by default.
    fn start(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// Appends one record. Encodings with blocks may keep it until a block is full.
    ///
    /// # Errors
    /// A value that the encoding has no way to write; nothing was appended, and the next record can be written.
    fn record(&mut self, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), EncodingError>;

    /// The bytes behind the last record, and what was kept; appended to `out`. Nothing by default.
    ///
    /// # Errors
    /// The kept records cannot be written.
    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        let _ = out;
        Ok(())
    }
}

/// The encodings that Crossdock reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Encoding {
    /// JSON: an object a line, or an array of objects.
    Json,
    /// Comma-separated values with a header.
    Csv,
    /// CBOR (RFC 8949), a map a record, one after the other (RFC 8742).
    Cbor,
    /// MessagePack, a map a record, one after the other.
    MessagePack,
    /// Avro's binary encoding, a datum after the other, with no header.
    Avro,
    /// An Avro object container file.
    AvroFile,
    /// Protobuf messages, each behind its length as a varint.
    Protobuf,
    /// XML, an element a record inside of one root.
    Xml,
    /// An Arrow IPC stream.
    ArrowStream,
    /// An Arrow IPC file (Feather).
    ArrowFile,
    /// A Parquet file.
    Parquet,
    /// Records as they lie in memory, in the layout of their format.
    Binary,
}

impl Encoding {
    /// All of them, in the order in which they are listed to people.
    pub const ALL: [Encoding; 12] = [
        Self::Json,
        Self::Csv,
        Self::Cbor,
        Self::MessagePack,
        Self::Avro,
        Self::AvroFile,
        Self::Protobuf,
        Self::Xml,
        Self::ArrowStream,
        Self::ArrowFile,
        Self::Parquet,
        Self::Binary,
    ];

    /// The name that the command line and configurations use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Cbor => "cbor",
            Self::MessagePack => "msgpack",
            Self::Avro => "avro-binary",
            Self::AvroFile => "avro",
            Self::Protobuf => "protobuf",
            Self::Xml => "xml",
            Self::ArrowStream => "arrow",
            Self::ArrowFile => "arrow-file",
            Self::Parquet => "parquet",
            Self::Binary => "binary",
        }
    }

    /// Endings of file names that indicate it, without the dot.
    #[must_use]
    pub const fn endings(self) -> &'static [&'static str] {
        match self {
            Self::Json => &["json", "jsonl", "ndjson"],
            Self::Csv => &["csv", "tsv"],
            Self::Cbor => &["cbor"],
            Self::MessagePack => &["msgpack", "mp"],
            Self::Avro => &[],
            Self::AvroFile => &["avro"],
            Self::Protobuf => &["pb", "protobuf"],
            Self::Xml => &["xml"],
            Self::ArrowStream => &["arrows"],
            Self::ArrowFile => &["arrow", "feather"],
            Self::Parquet => &["parquet"],
            Self::Binary => &["bin"],
        }
    }
}

impl Encoding {
    /// The encoding that a file's name indicates by its ending, behind which there may be a `.gz`.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let (_, ending) = name.strip_suffix(".gz").unwrap_or(&name).rsplit_once('.')?;
        Self::ALL.into_iter().find(|encoding| encoding.endings().contains(&ending))
    }

    /// Whether it is binary data.
    #[must_use]
    pub const fn is_binary(self) -> bool {
        !matches!(self, Self::Json | Self::Csv | Self::Xml)
    }

    /// Whether an input says itself which fields it has, and their types: [`open`] reads it without a format.
    #[must_use]
    pub const fn carries_schema(self) -> bool {
        matches!(self, Self::AvroFile | Self::ArrowStream | Self::ArrowFile | Self::Parquet)
    }

    /// Whether records of another format may follow in the same output. A table has one header.
    #[must_use]
    pub const fn takes_any_format(self) -> bool {
        matches!(self, Self::Json | Self::Cbor | Self::MessagePack)
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that is no encoding.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{found}` is no encoding; known: json, csv, cbor, msgpack, avro-binary, avro, protobuf, xml, arrow, arrow-file, \
     parquet, binary"
)]
pub struct EncodingNameError {
    /// The word that was found.
    pub found: String,
}

impl FromStr for Encoding {
    type Err = EncodingNameError;

    fn from_str(word: &str) -> Result<Self, EncodingNameError> {
        let found = Self::ALL.into_iter().find(|encoding| encoding.name() == word);
        found.ok_or_else(|| EncodingNameError { found: word.chars().take(40).collect() })
    }
}

/// The losses of a mapping to an encoding, and which encodings do; refused unless it is asked for by name. An encoding to
/// which a loss does not happen has no use for its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Loss {
    /// Times of day and durations become plain integers. Arrow and Parquet, read without a format.
    IntegerType,
    /// Decimals become text. MessagePack, written.
    Decimal,
    /// A null becomes the type's default value. Protobuf, written. A nested record with nothing in it becomes null. CSV, written.
    Null,
    /// An enumeration becomes the text of its symbol, so that what reads it back has another type. Arrow and Parquet,
    /// written.
    Enum,
    /// Lists become JSON inside of a text, which is a list again only for a reader with the schema. CSV, written.
    ListAsJson,
    /// Integers become the nearest float, where a field of floats has none equal to them. All that are read by a format
    /// with such a field, except Avro and Protobuf, which have no integers for it.
    Rounding,
    /// Text that is no UTF-8, or has characters that the encoding lacks, has these replaced by U+FFFD. All that write text
    /// or read it, as [the table](self#what-is-hard-to-say) says; `binary` has bytes unchanged.
    InvalidText,
}

impl Loss {
    /// All of them.
    pub const ALL: [Loss; 7] =
        [Self::IntegerType, Self::Decimal, Self::Null, Self::Enum, Self::ListAsJson, Self::Rounding, Self::InvalidText];

    /// The name that allows it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::IntegerType => "integer-type",
            Self::Decimal => "decimal",
            Self::Null => "null",
            Self::Enum => "enum",
            Self::ListAsJson => "list-as-json",
            Self::Rounding => "rounding",
            Self::InvalidText => "invalid-text",
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that names no loss.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{found}` names no loss; known: integer-type, decimal, null, enum, list-as-json, rounding, invalid-text")]
pub struct LossNameError {
    /// The word that was found.
    pub found: String,
}

impl FromStr for Loss {
    type Err = LossNameError;

    fn from_str(word: &str) -> Result<Self, LossNameError> {
        let found = Self::ALL.into_iter().find(|loss| loss.name() == word);
        found.ok_or_else(|| LossNameError { found: word.chars().take(40).collect() })
    }
}

/// How an encoding is read and written, where there is a choice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EncodingOptions {
    /// Losses that are fine.
    pub allow: Vec<Loss>,
    /// Whether what the format has no field for is passed over; by default it is an error.
    pub ignore_unknown: bool,
    /// Most bytes that one item (a row, a message, a block) may take, so that a wrong length ends in an error and not
    /// in all memory; 16 MiB by default.
    pub max_item_bytes: usize,
    /// Most bytes that a block of many records may take once it is unpacked (an Arrow batch, a Parquet page): what a decoder
    /// holds at once; 256 MiB by default.
    pub max_block_bytes: usize,
    /// Name of the XML elements that are records. By default an input's are the children of its root, whatever they are
    /// called, and an output's are `record`.
    pub xml_element: Option<String>,
    /// How CSV is written down. Of its bound on rows and that on items the lesser holds.
    pub csv: CsvOptions,
    /// Whether CSV starts with a row of the columns' names; by default it does. Else its columns are the fields, in order.
    pub csv_header: bool,
}

impl Default for EncodingOptions {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            ignore_unknown: false,
            max_item_bytes: 16 << 20,
            max_block_bytes: 256 << 20,
            xml_element: None,
            csv: CsvOptions::default(),
            csv_header: true,
        }
    }
}

impl EncodingOptions {
    /// Whether this loss is fine.
    #[must_use]
    pub fn allows(&self, loss: Loss) -> bool {
        self.allow.contains(&loss)
    }
}
