//! `formats` and `conversions`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use crossdock_format::convert::MESSAGE_FIELD;
use crossdock_format::encoding::{Encoding, Loss};
use crossdock_format::registry::Policy;

use super::data::{parse_encoding, parse_loss};
use super::{Control, List};
use crate::formats::parse_policy;

pub(super) const FORMATS: &str = "\
Examples:
  crossdock formats
  crossdock formats --json | jq -r .description
  crossdock formats show A:v1
  crossdock formats diff A:v1 A:v2
  crossdock formats policy A backward
  crossdock formats check A next.schema
  crossdock formats show sample.csv > A.schema

A format is named by its stream and version, by its id, or by a schema file, which
may be data too: .parquet, .arrow and .avro say their fields, .csv and .jsonl show them.
A policy is none, backward (who reads a new version can read old records),
forward (who reads an old version can read new ones) or full (both).
--help says how the layouts of other programs are written down.";

/// The notation of foreign layouts, as far as it fits a page; the whole is in the documentation of `notation`.
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
field says `at N`); then, if need be, `size N`, `size variant` (the record ends
with the variants that are there) or `length FIELD +N` (a field says its length).
Types: those of other schemas, and whole numbers of any bytes (u24, i48).
Behind a type:
  at N, be, le, bits A..B          place, byte order, some bits of it
  null if = VALUE                  a value that stands for null
  null [unless] bit B of FIELD     a bit of another field does
  pad space                        char[N] filled up with blanks
  unit s|ms|us|ns, size N          what timestamps count, and their bytes
  slot u16 u16, base N             string, bytes and lists behind offset and length
  count FIELD, stride N            lists in place: how many, how far apart
  overlay                          shares its bytes with other fields
Fields that tell of others (type, flags and lengths here) are worked out when a
record is written, unless they are set. `crossdock explain` says what it costs to
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
    /// Shows what a reader of one format would see of records of another
    Diff(DiffFormats),
    /// Says whether a schema could be a stream's next version, by the stream's policy
    Check(CheckFormat),
    /// Sets how a stream's format may change from its next version on
    Policy(SetPolicy),
}

#[derive(Debug, Args)]
pub(crate) struct ShowFormat {
    /// The format: STREAM:v1, an id, or a schema file
    pub(crate) format: String,
    #[command(flatten)]
    pub(crate) list: List,
}

#[derive(Debug, Args)]
pub(crate) struct DiffFormats {
    /// The format that is read: STREAM:v1, an id, or a schema file
    pub(crate) reader: String,
    /// The format that the records have
    pub(crate) written: String,
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
    pub(crate) control: Control,
}

#[derive(Debug, Args)]
pub(crate) struct SetPolicy {
    /// The stream
    pub(crate) stream: String,
    /// none, backward, forward or full
    #[arg(value_parser = parse_policy)]
    pub(crate) policy: Policy,
    #[command(flatten)]
    pub(crate) control: Control,
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
    /// Has the daemon keep a conversion, in place of the one that it keeps between the same formats
    Add(AddConversion),
    /// Takes out a conversion that the daemon keeps
    Remove(RemoveConversion),
}

#[derive(Debug, Args)]
pub(crate) struct AddConversion {
    /// The stream
    pub(crate) stream: String,
    /// The format that it reads: a version of the stream (v1), a format's id, or a schema file
    pub(crate) from: String,
    /// The format that it makes
    pub(crate) to: String,
    /// A query whose select list makes the one format's fields of the other's
    #[arg(long, value_name = "SELECT", group = "how")]
    pub(crate) sql: Option<String>,
    /// A rule for a conversion by the fields' names; may be given several times
    #[arg(long, value_name = "RULE", group = "how")]
    pub(crate) rule: Vec<String>,
    /// A file with the query or the rules
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, group = "how")]
    pub(crate) file: Option<PathBuf>,
    /// The records to be made are in messages of this encoding, in a field of those that are read
    #[arg(long, value_name = "ENCODING", value_parser = parse_encoding(), group = "how")]
    pub(crate) decode: Option<Encoding>,
    /// Each record becomes a message in this encoding, in the field of those that are made
    #[arg(long, value_name = "ENCODING", value_parser = parse_encoding(), group = "how")]
    pub(crate) encode: Option<Encoding>,
    #[command(flatten)]
    pub(crate) message: MessageCoding,
    #[command(flatten)]
    pub(crate) control: Control,
}

/// Where messages are, and how they are written.
#[derive(Debug, Args)]
pub(crate) struct MessageCoding {
    /// The field that the messages are in
    #[arg(long, value_name = "NAME", default_value = MESSAGE_FIELD)]
    pub(crate) field: String,
    /// A file with the messages' schema (.proto, .avsc), where the encoding goes by one
    #[arg(long, value_name = "FILE[:MESSAGE]", value_hint = ValueHint::FilePath)]
    pub(crate) schema: Option<PathBuf>,
    /// What may be lost on the way, by name, comma-separated
    #[arg(long, value_name = "LOSS", value_delimiter = ',', value_parser = parse_loss())]
    pub(crate) allow: Vec<Loss>,
    /// Pass over what a message has and the format has no field for
    #[arg(long)]
    pub(crate) ignore_unknown: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveConversion {
    /// The stream
    pub(crate) stream: String,
    /// The format that it reads: a version of the stream (v1), a format's id, or a schema file
    pub(crate) from: String,
    /// The format that it makes
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) control: Control,
}
