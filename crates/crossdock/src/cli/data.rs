//! `publish`, `subscribe` and `why`, and their common options.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum, ValueHint};
use crossdock_format::csv::CsvOptions;
use crossdock_format::encoding::{Encoding, EncodingOptions, Framing, Loss, SchemaNotation};
use crossdock_nectarine::{DeliveryClass, Transport};
use crossdock_runtime::{Overflow, Unreadable};

use super::mailbox::Link;
use super::{Control, Keys, Tracing};
use crate::quantity::{parse_bytes, parse_duration, parse_rate};

/// The daemon's address, and the transport to it.
#[derive(Debug, Args)]
pub(crate) struct Daemon {
    /// The daemon's address; unix:PATH or unix:@NAME is its attach socket, for shared memory only
    #[arg(long, value_name = "HOST:PORT", env = "CROSSDOCK_ADDRESS", default_value = "127.0.0.1:7440")]
    pub(crate) address: String,
    /// Transport of records: shared memory (shm), packets (udp), or auto: shared memory if the daemon is on the same
    /// machine and accepts the attachment, else packets
    #[arg(long, value_name = "TRANSPORT", env = "CROSSDOCK_TRANSPORT", default_value = "auto",
        value_parser = PossibleValuesParser::new(["auto", "shm", "udp"]).try_map(|word| word.parse::<Transport>()))]
    pub(crate) transport: Transport,
    /// Reconnect when the daemon has stopped and is started again, instead of failing; also wait for a daemon that is not
    /// there yet
    #[arg(long)]
    pub(crate) reconnect: bool,
    #[command(flatten)]
    pub(crate) keys: Keys,
}

#[derive(Debug, Args)]
pub(crate) struct Publish {
    /// The stream's name
    pub(crate) stream: String,
    /// The file, plain or gzip; standard input if it is `-` or not given
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// Encoding of the input [default: by the file's name, else by its first bytes]
    #[arg(long, value_name = "ENCODING", value_parser = parse_encoding())]
    pub(crate) input: Option<Encoding>,
    #[command(flatten)]
    pub(crate) coding: Coding,
    /// Ignore fields of the input that the schema does not have, instead of failing
    #[arg(long)]
    pub(crate) ignore_unknown: bool,
    /// Publish at most N records per second, such as 1000, 2.5k or 1M [default: no limit]
    #[arg(long, value_name = "N", value_parser = parse_rate)]
    pub(crate) rate: Option<f64>,
    /// Action for a row that does not match the schema
    #[arg(long, value_name = "POLICY", default_value = "stop")]
    pub(crate) on_error: OnError,
    /// CSV values that mean null in every nullable field, comma-separated, in addition to the empty value [default: NA, and
    /// only in fields of numbers, bool and times]
    #[arg(long, value_name = "WORD", value_delimiter = ',')]
    pub(crate) null_words: Option<Vec<String>>,
    #[command(flatten)]
    pub(crate) csv: CsvCoding,
    /// Columns of the stream's key, with commas in between: the daemon keeps the last record of each key for queries with SNAPSHOT,
    /// as after `crossdock streams set`. A stream that has another key refuses the publisher
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    pub(crate) stream_key: Vec<String>,
    /// Longest time that a record waits for other records to share its packet
    #[arg(long, value_name = "DURATION", default_value = "1ms", value_parser = parse_duration)]
    pub(crate) linger: Duration,
    /// Delivery of records that go in packets: each once, in order, and waiting while the daemon takes no more (reliable), or
    /// each sent once, without waiting, and dropped where there is no room (datagram)
    #[arg(long, value_name = "CLASS", default_value = "reliable",
        value_parser = PossibleValuesParser::new(["reliable", "datagram"]).try_map(|word| word.parse::<DeliveryClass>()))]
    pub(crate) class: DeliveryClass,
    /// Have the daemon reserve BYTES of buffers and credit for this publisher while it is connected, so that other traffic does not
    /// take them, such as 4M. Refused where the daemon has no room (`max_circuit_bytes` in its configuration)
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) circuit: Option<u64>,
    /// With --reconnect: after the connection was lost, send no records before the stream has as many subscribers again as
    /// before, or DURATION has passed; with --min-subscribers also at the start
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) await_subscribers: Option<Duration>,
    /// With --await-subscribers: wait for at least N subscribers, also at the start
    #[arg(long, value_name = "N", default_value_t = 0, requires = "await_subscribers")]
    pub(crate) min_subscribers: u32,
    /// Print the result as a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) tracing: Tracing,
    #[command(flatten)]
    pub(crate) daemon: Daemon,
}

/// Where the files are that a `.proto` imports.
#[derive(Debug, Args)]
pub(crate) struct ProtoPath {
    /// Directory with the files that a .proto imports, beside its own directory; may be given several times
    #[arg(long = "proto-path", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directories: Vec<PathBuf>,
}

/// Options of an encoding.
#[derive(Debug, Args)]
pub(crate) struct Coding {
    /// File with the schema: .proto, .avsc, .json (JSON Schema), a line `name type [null]` for each field, or a file of
    /// data that has a schema (.parquet, .arrow, .avro) or from which one is inferred (.csv, .jsonl). If a file has
    /// several messages, name the message after a colon
    #[arg(long, value_name = "FILE[:MESSAGE]", value_hint = ValueHint::FilePath)]
    pub(crate) schema: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) proto_path: ProtoPath,
    /// Losses that the encoding may cause, by name, comma-separated; any other loss is an error that names the loss
    #[arg(long, value_name = "LOSS", value_delimiter = ',', value_parser = parse_loss())]
    pub(crate) allow: Vec<Loss>,
    /// Name of the XML elements that are records [default: for input all children of the root, for output `record`]
    #[arg(long, alias = "root", value_name = "NAME")]
    pub(crate) element: Option<String>,
}

impl Coding {
    /// The encodings' options: those given here, and the defaults.
    pub(crate) fn options(&self) -> EncodingOptions {
        EncodingOptions { allow: self.allow.clone(), xml_element: self.element.clone(), ..EncodingOptions::default() }
    }
}

/// How CSV is written down.
#[derive(Debug, Args)]
pub(crate) struct CsvCoding {
    /// Separator of CSV values, or `tab` [default: a comma, and a tab for files that end in .tsv]
    #[arg(long, value_name = "CHARACTER", value_parser = parse_delimiter)]
    pub(crate) delimiter: Option<u8>,
    /// CSV has no header row: its columns are the schema's fields, in their order
    #[arg(long)]
    pub(crate) no_header: bool,
    /// CSV has a header row with the names of the columns, which is the default
    #[arg(long, overrides_with = "no_header")]
    pub(crate) header: bool,
}

impl CsvCoding {
    /// The encodings' options with these, for an input or output of this name.
    pub(crate) fn apply(&self, name: &str, options: EncodingOptions) -> EncodingOptions {
        let delimiter = self.delimiter.unwrap_or_else(|| CsvOptions::of_name(name).delimiter);
        let csv_header = !self.no_header || self.header;
        EncodingOptions { csv: CsvOptions { delimiter, ..options.csv }, csv_header, ..options }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnError {
    /// Report it and exit with 1; those before it have been published or printed
    Stop,
    /// Skip it; the first ten are reported, and all are counted
    Skip,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnRowError {
    /// Leave the record out; it is counted and reported, with its first example
    Skip,
    /// Make the expression null; a condition that is null does not hold
    Null,
    /// Report it and exit with 1
    Stop,
}

#[derive(Debug, Args)]
pub(crate) struct Subscribe {
    /// The query: SELECT … FROM stream WHERE …, and what it gets while it is slow: ON SLOW …, MAX RATE …
    #[arg(value_name = "SQL")]
    pub(crate) sql: String,
    /// Encoding of the records [default: the one that the ending of --to names, else json]
    #[arg(long, value_name = "ENCODING", value_parser = parse_encoding())]
    pub(crate) output: Option<Encoding>,
    /// Write to FILE instead of standard output; until it is complete its name is FILE.part
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) coding: Coding,
    #[command(flatten)]
    pub(crate) csv: CsvCoding,
    /// End after N records
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// End after this time, such as 10s
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// End when the stream's last publisher has finished, or at once if there is none and --wait is not given; with
    /// status 1 if a publisher has gone that had not finished, unless --reconnect is given
    #[arg(long)]
    pub(crate) until_end: bool,
    /// Wait until the stream exists, at most for DURATION if given (--wait=30s); with --until-end, wait for a publisher
    /// too. No record of a stream that was waited for is missed
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, num_args = 0..=1, require_equals = true,
        default_missing_value = "8760h")]
    pub(crate) wait: Option<Duration>,
    /// Action for a record that the encoding cannot hold, such as text that is not UTF-8
    #[arg(long, value_name = "POLICY", default_value = "skip")]
    pub(crate) on_error: OnError,
    /// Action for a record that the query cannot compute: a division by zero, an overflow, an impossible CAST
    #[arg(long, value_name = "POLICY", default_value = "skip")]
    pub(crate) on_row_error: OnRowError,
    /// Action of the daemon when this subscriber is too slow: block the publisher, drop_oldest, or disconnect; the query can
    /// say the same and more (ON SLOW …) [default: the daemon's configuration]
    #[arg(long, value_name = "POLICY")]
    pub(crate) on_overflow: Option<Overflow>,
    /// Delivery of records that come in packets: each once and in order (reliable), or each sent once, in any order, and dropped and
    /// counted where there is no room, without holding the publisher back (datagram)
    #[arg(long, value_name = "CLASS", default_value = "reliable",
        value_parser = PossibleValuesParser::new(["reliable", "datagram"]).try_map(|word| word.parse::<DeliveryClass>()))]
    pub(crate) class: DeliveryClass,
    /// Formats that are accepted, comma-separated: a version of the stream (v3), a format's id, or a schema file.
    /// Records in other formats are converted if `crossdock conversions` has a route to an accepted format. An output that
    /// has one format, such as CSV, needs no --accept for that: the version to which conversions lead is accepted
    #[arg(long, value_name = "FORMAT", value_delimiter = ',')]
    pub(crate) accept: Vec<String>,
    /// With --accept, what happens to records that no conversion reaches: hold them for a while, until a conversion is
    /// registered, or drop and count them [default: the daemon's configuration]
    #[arg(long, value_name = "POLICY", requires = "accept")]
    pub(crate) unreadable: Option<Unreadable>,
    #[command(flatten)]
    pub(crate) tracing: Tracing,
    #[command(flatten)]
    pub(crate) daemon: Daemon,
}

pub(super) fn parse_encoding() -> impl TypedValueParser<Value = Encoding> {
    PossibleValuesParser::new(Encoding::ALL.map(Encoding::name)).try_map(|word| word.parse::<Encoding>())
}

pub(super) fn parse_framing() -> impl TypedValueParser<Value = Framing> {
    PossibleValuesParser::new(Framing::ALL.map(Framing::name)).try_map(|word| word.parse::<Framing>())
}

pub(super) fn parse_loss() -> impl TypedValueParser<Value = Loss> {
    PossibleValuesParser::new(Loss::ALL.map(Loss::name)).try_map(|word| word.parse::<Loss>())
}

pub(super) fn parse_notation() -> impl TypedValueParser<Value = SchemaNotation> {
    PossibleValuesParser::new(SchemaNotation::ALL.map(SchemaNotation::name))
        .try_map(|word| word.parse::<SchemaNotation>())
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match (text, text.as_bytes()) {
        ("\\t" | "tab", _) => Ok(b'\t'),
        (_, [byte]) if byte.is_ascii() && !b"\"\r\n".contains(byte) => Ok(*byte),
        _ => Err("a delimiter is one ASCII character that is no quote and no line end, or `tab`".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct Why {
    /// The stream's name
    pub(crate) stream: String,
    /// The records in question, as a condition of SQL: flight = 1545
    #[arg(value_name = "CONDITION")]
    pub(crate) condition: String,
    /// The subscription, by its number in `crossdock subscriptions`
    #[arg(long, value_name = "N")]
    pub(crate) subscription: u64,
    /// Judge the records that come from now on, until Ctrl-C, instead of those that the state of the stream keeps
    #[arg(long)]
    pub(crate) trace: bool,
    /// End after N records
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
    /// End after this time, such as 10s
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// Print JSON: an object for each record, and one with the sums
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) daemon: Link,
    #[command(flatten)]
    pub(crate) control: Control,
}
