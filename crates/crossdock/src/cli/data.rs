//! `publish`, `subscribe` and `explain`, and what they share.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum, ValueHint};
use crossdock_format::encoding::{Encoding, EncodingOptions, Loss};
use crossdock_nectarine::Transport;
use crossdock_runtime::{Overflow, Unreadable};

use super::Control;
use crate::quantity::{parse_duration, parse_rate};

/// Where the daemon's data traffic goes, and by which way.
#[derive(Debug, Args)]
pub(crate) struct Daemon {
    /// The daemon's address; unix:PATH or unix:@NAME is its attach socket, for shared memory only
    #[arg(long, value_name = "HOST:PORT", env = "CROSSDOCK_ADDRESS", default_value = "127.0.0.1:7440")]
    pub(crate) address: String,
    /// How records travel: by shared memory (shm), in packets (udp), or auto: by shared memory if the daemon is on this
    /// machine and lets us attach, else in packets
    #[arg(long, value_name = "WAY", env = "CROSSDOCK_TRANSPORT", default_value = "auto",
        value_parser = PossibleValuesParser::new(["auto", "shm", "udp"]).try_map(|word| word.parse::<Transport>()))]
    pub(crate) transport: Transport,
    /// Come back when the daemon has gone and is there again, instead of failing
    #[arg(long)]
    pub(crate) reconnect: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Publish {
    /// The stream's name
    pub(crate) stream: String,
    /// The file, plain or gzip; standard input if it is `-` or left out
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// How the input is written; by default what the file's name says, else what its first bytes look like
    #[arg(long, value_name = "ENCODING", value_parser = parse_encoding())]
    pub(crate) input: Option<Encoding>,
    #[command(flatten)]
    pub(crate) coding: Coding,
    /// Pass over what the input has and the schema has no field for, instead of failing
    #[arg(long)]
    pub(crate) ignore_unknown: bool,
    /// At most N records a second, such as 1000, 2.5k or 1M
    #[arg(long, value_name = "N", value_parser = parse_rate)]
    pub(crate) rate: Option<f64>,
    /// What to do about a row that is not as the schema says: stop there, or skip it and count
    #[arg(long, value_name = "WHAT", default_value = "stop")]
    pub(crate) on_error: OnError,
    /// CSV values that mean null, comma-separated, besides the empty value
    #[arg(long, value_name = "WORDS", value_delimiter = ',', default_value = "NA")]
    pub(crate) null_words: Vec<String>,
    /// What separates CSV values
    #[arg(long, value_name = "CHARACTER", default_value = ",", value_parser = parse_delimiter)]
    pub(crate) delimiter: u8,
    /// How long a record may wait for others to share its packet
    #[arg(long, value_name = "DURATION", default_value = "1ms", value_parser = parse_duration)]
    pub(crate) linger: Duration,
    /// Print what was published as a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) daemon: Daemon,
}

/// What an encoding needs to know.
#[derive(Debug, Args)]
pub(crate) struct Coding {
    /// A file with the schema: .proto, .avsc, .json (JSON Schema), `name type [null]` a line, or data that says its fields
    /// (.parquet, .arrow, .avro) or shows them (.csv, .jsonl). Where it has several messages, the one that is meant stands
    /// behind a colon
    #[arg(long, value_name = "FILE[:MESSAGE]", value_hint = ValueHint::FilePath)]
    pub(crate) schema: Option<PathBuf>,
    /// What may be lost on the way, by name, comma-separated; what would be lost is refused with its name otherwise
    #[arg(long, value_name = "LOSS", value_delimiter = ',', value_parser = parse_loss())]
    pub(crate) allow: Vec<Loss>,
    /// Name of the XML elements that are records [default: on input all children of the root, on output `record`]
    #[arg(long, alias = "root", value_name = "NAME")]
    pub(crate) element: Option<String>,
}

impl Coding {
    /// The encodings' options, as far as these say them.
    pub(crate) fn options(&self) -> EncodingOptions {
        EncodingOptions { allow: self.allow.clone(), xml_element: self.element.clone(), ..EncodingOptions::default() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnError {
    /// Say what is wrong with it, and exit with 1; the rows before it have been published
    Stop,
    /// Leave it out; the first ten are shown, and all are counted
    Skip,
}

#[derive(Debug, Args)]
pub(crate) struct Subscribe {
    /// The query: SELECT … FROM stream WHERE …
    #[arg(value_name = "SQL")]
    pub(crate) sql: String,
    /// How to print records
    #[arg(long, value_name = "ENCODING", default_value = "json", value_parser = parse_encoding())]
    pub(crate) output: Encoding,
    #[command(flatten)]
    pub(crate) coding: Coding,
    /// End after N records
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<u64>,
    /// End after so long, such as 10s
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// End when the stream's last publisher has finished
    #[arg(long)]
    pub(crate) until_end: bool,
    /// Wait until the stream is there, if it is not; at most so long if given (--wait=30s). Nothing of a stream that was
    /// waited for is missed
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, num_args = 0..=1, require_equals = true,
        default_missing_value = "8760h")]
    pub(crate) wait: Option<Duration>,
    /// What the daemon does when this subscriber is too slow: block the publisher, drop_oldest, or disconnect
    /// [default: as the daemon is configured]
    #[arg(long, value_name = "WHAT")]
    pub(crate) overflow: Option<Overflow>,
    /// A format that is accepted: a version of the stream (v3), a format's id, or a schema file; several,
    /// comma-separated. Records in others are converted where `crossdock conversions` lead there
    #[arg(long, value_name = "FORMAT", value_delimiter = ',')]
    pub(crate) accept: Vec<String>,
    /// With --accept, what happens to records that nothing converts: hold them for a while, until a conversion comes, or
    /// drop and count them [default: as the daemon is configured]
    #[arg(long, value_name = "WHAT", requires = "accept")]
    pub(crate) unreadable: Option<Unreadable>,
    #[command(flatten)]
    pub(crate) daemon: Daemon,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The query: SELECT … FROM stream WHERE …
    #[arg(value_name = "SQL")]
    pub(crate) sql: String,
    /// A format that the subscriber would accept, as of `subscribe --accept`; several, comma-separated
    #[arg(long, value_name = "FORMAT", value_delimiter = ',')]
    pub(crate) accept: Vec<String>,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) control: Control,
}

pub(super) fn parse_encoding() -> impl TypedValueParser<Value = Encoding> {
    PossibleValuesParser::new(Encoding::ALL.map(Encoding::name)).try_map(|word| word.parse::<Encoding>())
}

pub(super) fn parse_loss() -> impl TypedValueParser<Value = Loss> {
    PossibleValuesParser::new(Loss::ALL.map(Loss::name)).try_map(|word| word.parse::<Loss>())
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match (text, text.as_bytes()) {
        ("\\t" | "tab", _) => Ok(b'\t'),
        (_, [byte]) if byte.is_ascii() && !b"\"\r\n".contains(byte) => Ok(*byte),
        _ => Err("a delimiter is one ASCII character that is no quote and no line end, or `tab`".to_owned()),
    }
}
