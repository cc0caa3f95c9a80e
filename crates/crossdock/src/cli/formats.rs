//! `formats` and `conversions`.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueHint};
use crossdock_format::convert::MESSAGE_FIELD;
use crossdock_format::encoding::{Encoding, Framing, Loss, SchemaNotation};
use crossdock_format::registry::Policy;

use super::data::{ProtoPath, parse_encoding, parse_framing, parse_loss, parse_notation};
use super::handlers::How;
use super::{Answer, Control, List};
use crate::quantity::{parse_age, parse_bytes, parse_number};

pub(super) const FORMATS: &str = "\
Examples:
  crossdock formats
  crossdock formats --json | jq -r .description
  crossdock formats show A:v1
  crossdock formats diff A:v1 A:v2
  crossdock formats policy A backward
  crossdock formats check A next.schema
  crossdock formats check A next.schema --json | jq .compatible
  crossdock formats rm A:v2
  crossdock formats show sample.csv > A.schema
  crossdock formats export A:v2 --notation proto > A.proto

A format is named by its stream and version, by its id, or by a schema file. A data
file is a schema file too: .parquet, .arrow and .avro have a schema, and one is
inferred from .csv and .jsonl.
A policy is none, backward (readers of a new version can read records of the one
before), forward (readers of the one before can read new records) or full (both);
backward_transitive, forward_transitive and full_transitive look at all earlier
versions. Conversions that the daemon keeps count. What a policy says is readable
is converted for subscribers that accept one version only.
--help describes the notation for the layouts of other programs.";

/// The notation of foreign layouts, shortened to a page; the documentation of `notation` describes all of it.
pub(super) const LAYOUTS: &str = "\
Layouts of other programs, in a schema file:
  layout foreign big packed size variant    # byte order; where fields go; length
  type   char[1]
  flags  u8
  time   timestamp size 6 unit ns
  venue  u16 null unless bit 0 of flags
  msg    union on type {
    'A' => add record { ref u64; shares u32; stock char[8] pad space }
    'D' 'X' => delete record { ref u64 }
  }

First line: little or big; packed, aligned (as C compilers do) or explicit (each
field has `at N`); then, optionally, `size N`, `size variant` (the record ends
with its variants) or `length FIELD +N` (a field holds the record's length).
Types: those of other schemas, and integers of any number of bytes (u24, i48).
After a type:
  at N, be, le, bits A..B          offset, byte order, a range of bits
  null if = VALUE                  a value that means null
  null [unless] bit B of FIELD     a bit of another field that means null
  pad space                        char[N] padded with blanks
  unit s|ms|us|ns, size N          unit of timestamps, and their size in bytes
  slot u16 u16, base N             string, bytes and lists: offset and length
  count FIELD, stride N            lists in place: number of elements, distance
  overlay                          shares its bytes with other fields
  inline u16, inline varint        string, bytes, lists: length in front
  until nul                        string that ends with a NUL byte
  varint, zigzag                   LEB128, unsigned and signed
  group u16 u8, head N             SBE's lists: block length and count in front
  length FIELD +N                  record of as many bytes as FIELD says
  after FIELD                      `at N` counts from that field's end
Fields that describe others (type, flags and lengths here) are computed when a
record is written, unless they are set. `crossdock explain` shows what it costs to
read each field in place.";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Formats {
    #[command(subcommand)]
    pub(crate) command: Option<FormatsCommand>,
    #[command(flatten)]
    pub(crate) list: List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FormatsCommand {
    /// Shows a format's fields
    Show(ShowFormat),
    /// Writes the schema by which output in other encodings is written
    Export(ExportFormat),
    /// Shows what a reader of one format sees of records in another
    Diff(DiffFormats),
    /// Checks whether a schema can be a stream's next version under the stream's policy; exits with 1 if it cannot, and
    /// with 2 if there is no such stream
    Check(CheckFormat),
    /// Sets how a stream's format may change from its next version on
    Policy(SetPolicy),
    /// Removes the newest version of an unused stream
    #[command(visible_alias = "remove")]
    Rm(RemoveVersion),
}

#[derive(Debug, Args)]
pub(crate) struct RemoveVersion {
    /// The version: STREAM:v2
    #[arg(value_name = "STREAM:vN", value_parser = parse_version)]
    pub(crate) version: (String, u32),
    #[command(flatten)]
    pub(crate) answer: Answer,
}

fn parse_version(text: &str) -> Result<(String, u32), String> {
    let version = text.rsplit_once(":v").and_then(|(stream, number)| Some((stream.to_owned(), number.parse().ok()?)));
    version
        .filter(|(stream, number)| !stream.is_empty() && *number > 0)
        .ok_or_else(|| "give a version of a stream, such as A:v2; `crossdock formats` lists them".to_owned())
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Streams {
    #[command(subcommand)]
    pub(crate) command: Option<StreamsCommand>,
    #[command(flatten)]
    pub(crate) list: List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StreamsCommand {
    /// Removes an unused stream, with its versions, its policy and its kept conversions
    #[command(visible_alias = "remove")]
    Rm(RemoveStream),
    /// Declares a stream's key, whose last record is kept by key for queries with SNAPSHOT
    #[command(after_help = "\
Examples:
  crossdock streams set A --key flight_id
  crossdock subscribe 'SELECT * FROM A SNAPSHOT'
  crossdock streams set A --key flight_id --max-keys 2M --max-bytes 1G --max-age 24h
  crossdock streams set A --no-key

Past a bound the key goes that had no record for the longest, and is counted
(`forgotten` of the handler `state of A` in `crossdock handlers --json`). Other
bounds keep what is there; another key begins anew: --discard-state says so.")]
    Set(SetStream),
}

#[derive(Debug, Args)]
pub(crate) struct SetStream {
    /// The stream
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) stream: String,
    /// Columns of the key, with commas in between
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',', required_unless_present = "no_key",
        conflicts_with = "no_key", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) key: Vec<String>,
    /// Take the key back: the stream's records are not kept any more
    #[arg(long)]
    pub(crate) no_key: bool,
    /// Most keys that are kept, such as 500k or 2M [default: 1M]
    #[arg(long, value_name = "N", conflicts_with = "no_key", value_parser = parse_number)]
    pub(crate) max_keys: Option<u64>,
    /// Most memory for them, such as 64M or 1G [default: 256M]
    #[arg(long, value_name = "BYTES", conflicts_with = "no_key", value_parser = parse_bytes)]
    pub(crate) max_bytes: Option<u64>,
    /// How long a key is kept without a record, such as 90s or 24h; as long as there is room if left out
    #[arg(long, value_name = "TIME", conflicts_with = "no_key", value_parser = parse_age)]
    pub(crate) max_age: Option<u64>,
    #[command(flatten)]
    pub(crate) how: How,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveStream {
    /// The stream
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    pub(crate) stream: String,
    #[command(flatten)]
    pub(crate) answer: Answer,
}

#[derive(Debug, Args)]
pub(crate) struct ShowFormat {
    /// The format: STREAM:v1, an id, or a schema file
    pub(crate) format: String,
    #[command(flatten)]
    pub(crate) proto_path: ProtoPath,
    #[command(flatten)]
    pub(crate) list: List,
}

#[derive(Debug, Args)]
pub(crate) struct ExportFormat {
    /// The format: STREAM:v1, an id, or a schema file
    pub(crate) format: String,
    /// Notation: proto, avsc, json-schema, or arrow (an Arrow file without records)
    #[arg(long, value_name = "NOTATION", value_parser = parse_notation())]
    pub(crate) notation: SchemaNotation,
    #[command(flatten)]
    pub(crate) proto_path: ProtoPath,
    #[command(flatten)]
    pub(crate) control: Control,
}

#[derive(Debug, Args)]
pub(crate) struct DiffFormats {
    /// The reader's format: STREAM:v1, an id, or a schema file
    pub(crate) reader: String,
    /// The format of the records, named in the same way
    pub(crate) written: String,
    #[command(flatten)]
    pub(crate) proto_path: ProtoPath,
    #[command(flatten)]
    pub(crate) list: List,
}

#[derive(Debug, Args)]
pub(crate) struct CheckFormat {
    /// The stream
    pub(crate) stream: String,
    /// The schema file
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) proto_path: ProtoPath,
    #[command(flatten)]
    pub(crate) answer: Answer,
}

#[derive(Debug, Args)]
pub(crate) struct SetPolicy {
    /// The stream
    pub(crate) stream: String,
    /// none, backward, forward, full, or one of these with `_transitive`
    #[arg(value_parser = parse_policy)]
    pub(crate) policy: Policy,
    #[command(flatten)]
    pub(crate) answer: Answer,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Conversions {
    #[command(subcommand)]
    pub(crate) command: Option<ConversionsCommand>,
    #[command(flatten)]
    pub(crate) list: List,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConversionsCommand {
    /// Adds a conversion, in place of the one that the daemon keeps between the same formats
    Add(Box<AddConversion>),
    /// Removes a conversion that the daemon keeps
    Remove(Box<RemoveConversion>),
}

#[derive(Debug, Args)]
pub(crate) struct AddConversion {
    /// The stream
    pub(crate) stream: String,
    /// The source format: a version of the stream (v1), a format's id, or a schema file
    pub(crate) from: String,
    /// The target format, named in the same way
    pub(crate) to: String,
    /// A query whose select list computes the target format's fields from the source format's fields
    #[arg(long, value_name = "SELECT", group = "how")]
    pub(crate) sql: Option<String>,
    /// A rule for a conversion by field names; may be given several times
    #[arg(long, value_name = "RULE", group = "how")]
    pub(crate) rule: Vec<String>,
    /// A file with the query or the rules
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, group = "how")]
    pub(crate) file: Option<PathBuf>,
    /// Decode messages in this encoding: --field of the source format holds a message, which becomes the target record
    #[arg(long, value_name = "ENCODING", value_parser = parse_encoding(), group = "how")]
    pub(crate) decode: Option<Encoding>,
    /// Encode each source record as a message in this encoding, in --field of the target format
    #[arg(long, value_name = "ENCODING", value_parser = parse_encoding(), group = "how")]
    pub(crate) encode: Option<Encoding>,
    #[command(flatten)]
    pub(crate) message: MessageCoding,
    #[command(flatten)]
    pub(crate) answer: Answer,
}

/// The field and the schema of messages.
#[derive(Debug, Args)]
pub(crate) struct MessageCoding {
    /// Field that holds the messages
    #[arg(long, value_name = "NAME", default_value = MESSAGE_FIELD)]
    pub(crate) field: String,
    /// Bytes before each message in its field: none; length, the message's length (Protobuf); or confluent, the id of its
    /// schema in a schema registry (with --decode only)
    #[arg(long, value_name = "FRAMING", default_value = "none", value_parser = parse_framing())]
    pub(crate) framing: Framing,
    /// With --decode, fields beside the message, comma-separated, that the target's records have too, such as topic,key
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    pub(crate) keep: Vec<String>,
    /// File with the messages' schema (.proto, .avsc), for encodings that need one
    #[arg(long, value_name = "FILE[:MESSAGE]", value_hint = ValueHint::FilePath)]
    pub(crate) schema: Option<PathBuf>,
    /// With --framing confluent, JSON file with the schemas by their ids: as a registry answers `GET /schemas`, or with a
    /// schema file for each id, such as {"7": "quote.proto"}
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) schemas: Option<PathBuf>,
    /// Losses that the encoding may cause, by name, comma-separated
    #[arg(long, value_name = "LOSS", value_delimiter = ',', value_parser = parse_loss())]
    pub(crate) allow: Vec<Loss>,
    /// Ignore fields of a message that the format does not have
    #[arg(long)]
    pub(crate) ignore_unknown: bool,
    #[command(flatten)]
    pub(crate) proto_path: ProtoPath,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveConversion {
    /// The stream
    pub(crate) stream: String,
    /// The source format: a version of the stream (v1), a format's id, or a schema file
    pub(crate) from: String,
    /// The target format, named in the same way
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) proto_path: ProtoPath,
    #[command(flatten)]
    pub(crate) answer: Answer,
}

/// Reads a policy's word.
fn parse_policy(text: &str) -> Result<Policy, String> {
    text.parse().map_err(|error: crossdock_format::registry::PolicyError| error.to_string())
}
