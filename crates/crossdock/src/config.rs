//! `crossdock.toml`: every key, its default, and errors that say where and what was meant.

use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crossdock_runtime::ContextConfig;
use crossdock_runtime::Overflow;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use crate::failure::{Failure, Outcome};

/// The example, which documents every key; its defaults are the program's, which a test sees to.
pub(crate) const EXAMPLE: &str = include_str!("../crossdock.example.toml");

/// The daemon's configuration.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The execution context.
    pub(crate) context: ContextSection,
    /// The HTTP API.
    pub(crate) control: ControlSection,
    /// What is logged.
    pub(crate) log: LogSection,
    /// Streams that are there from the start.
    pub(crate) stream: Vec<StreamSection>,
}

/// `[context]`: the settings of [`ContextConfig`], under the same names.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ContextSection {
    listen: SocketAddr,
    overflow: Overflow,
    #[serde(deserialize_with = "within::<_, u64, 65_536, 1_099_511_627_776>")]
    queue_bytes: u64,
    #[serde(deserialize_with = "within::<_, u32, 2, 65_536>")]
    window_packets: u32,
    #[serde(deserialize_with = "within::<_, u32, 1, 65_536>")]
    max_sessions: u32,
    #[serde(deserialize_with = "within::<_, u32, 1, 1_048_576>")]
    max_streams: u32,
    #[serde(deserialize_with = "within::<_, u32, 1, 1_048_576>")]
    max_subscriptions: u32,
    #[serde(deserialize_with = "within::<_, u32, 0, 1_000_000>")]
    linger_us: u32,
    spin_us: u32,
    #[serde(deserialize_with = "within::<_, u32, 100, 86_400_000>")]
    idle_timeout_ms: u32,
    #[serde(deserialize_with = "auto_or_packet")]
    packet_bytes: Option<u32>,
    #[serde(deserialize_with = "within::<_, u32, 512, 65_000>")]
    loopback_packet_bytes: u32,
    gso: bool,
    #[serde(deserialize_with = "none_or_cpu")]
    pin_cpu: Option<usize>,
    #[serde(deserialize_with = "within::<_, u32, 65_536, 1_073_741_824>")]
    socket_buffer_bytes: u32,
    #[serde(deserialize_with = "within::<_, u64, 4_194_304, 1_099_511_627_776>")]
    buffer_bytes: u64,
}

impl Default for ContextSection {
    fn default() -> ContextSection {
        let defaults = ContextConfig::default();
        ContextSection {
            listen: defaults.listen,
            overflow: defaults.overflow,
            queue_bytes: defaults.queue_bytes,
            window_packets: defaults.window_packets,
            max_sessions: defaults.max_sessions,
            max_streams: defaults.max_streams,
            max_subscriptions: defaults.max_subscriptions,
            linger_us: defaults.linger_us,
            spin_us: defaults.spin_us,
            idle_timeout_ms: defaults.idle_timeout_ms,
            packet_bytes: defaults.packet_bytes,
            loopback_packet_bytes: defaults.loopback_packet_bytes,
            gso: defaults.gso,
            pin_cpu: defaults.pin_cpu,
            socket_buffer_bytes: defaults.socket_buffer_bytes,
            buffer_bytes: defaults.buffer_bytes,
        }
    }
}

impl From<&ContextSection> for ContextConfig {
    fn from(section: &ContextSection) -> ContextConfig {
        ContextConfig {
            listen: section.listen,
            overflow: section.overflow,
            queue_bytes: section.queue_bytes,
            window_packets: section.window_packets,
            max_sessions: section.max_sessions,
            max_streams: section.max_streams,
            max_subscriptions: section.max_subscriptions,
            linger_us: section.linger_us,
            spin_us: section.spin_us,
            idle_timeout_ms: section.idle_timeout_ms,
            packet_bytes: section.packet_bytes,
            loopback_packet_bytes: section.loopback_packet_bytes,
            gso: section.gso,
            pin_cpu: section.pin_cpu,
            socket_buffer_bytes: section.socket_buffer_bytes,
            buffer_bytes: section.buffer_bytes,
            ..ContextConfig::default()
        }
    }
}

impl ContextSection {
    /// Receives somewhere else.
    pub(crate) fn set_listen(&mut self, listen: SocketAddr) {
        self.listen = listen;
    }
}

/// `[control]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ControlSection {
    /// The Unix socket of the HTTP API; the usual place when absent.
    #[serde(deserialize_with = "auto_or_path")]
    pub(crate) socket: Option<PathBuf>,
    /// The loopback TCP address of the HTTP API, if it has one.
    #[serde(deserialize_with = "off_or_loopback")]
    pub(crate) http: Option<SocketAddr>,
}

/// `[log]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogSection {
    /// The least that is logged.
    pub(crate) level: Level,
}

/// A level of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    /// Only what stops something from working.
    Error,
    /// Also what should not be.
    Warn,
    /// Also starts, stops and addresses.
    #[default]
    Info,
    /// Also every request to the HTTP API.
    Debug,
}

/// `[[stream]]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamSection {
    /// The stream's name.
    pub(crate) name: String,
    /// The file with its fields; relative to the configuration's directory.
    pub(crate) schema: PathBuf,
}

impl Config {
    /// Reads the file.
    pub(crate) fn read(path: &Path) -> Outcome<Config> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::usage(format!("cannot read the configuration {}: {error}", path.display()))
                .hint("`crossdock serve --print-config > crossdock.toml` makes one to start from")
        })?;
        Config::parse(&text, path)
    }

    /// Reads the text of the file at `path`.
    fn parse(text: &str, path: &Path) -> Outcome<Config> {
        toml::from_str(text).map_err(|error| complaint(&error, text, path))
    }
}

/// An integer in bounds, both included.
fn within<'de, D, T, const LEAST: u64, const MOST: u64>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    let number = match Scalar::deserialize(deserializer)? {
        Scalar::Number(number) => u64::try_from(number).ok(),
        Scalar::Word(_) => None,
    };
    let number = number.filter(|number| (LEAST..=MOST).contains(number));
    let number = number.and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| de::Error::custom(format!("expected an integer from {LEAST} to {MOST}")))
}

fn auto_or_packet<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    match Scalar::deserialize(deserializer)? {
        Scalar::Word(word) if word == "auto" => Ok(None),
        Scalar::Number(bytes @ 512..=65_000) => Ok(u32::try_from(bytes).ok()),
        _ => Err(de::Error::custom("expected \"auto\" or an integer from 512 to 65000")),
    }
}

fn none_or_cpu<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    match Scalar::deserialize(deserializer)? {
        Scalar::Word(word) if word == "none" => Ok(None),
        Scalar::Number(cpu @ 0..1024) => Ok(usize::try_from(cpu).ok()),
        _ => Err(de::Error::custom("expected \"none\" or the number of a CPU, from 0")),
    }
}

fn auto_or_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    let path = String::deserialize(deserializer)?;
    if path.is_empty() {
        return Err(de::Error::custom("expected \"auto\" or a path"));
    }
    Ok((path != "auto").then(|| PathBuf::from(path)))
}

fn off_or_loopback<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let address = String::deserialize(deserializer)?;
    if address == "off" {
        return Ok(None);
    }
    let address: SocketAddr = address.parse().map_err(|_| {
        de::Error::custom("expected \"off\" or a loopback address with a port, such as \"127.0.0.1:7441\"")
    })?;
    if !address.ip().is_loopback() {
        return Err(de::Error::custom(format!(
            "{} is not a loopback address: whoever can connect may read, so the API is not offered to the network",
            address.ip()
        )));
    }
    Ok(Some(address))
}

/// A value that is an integer or a word.
enum Scalar {
    Number(i64),
    Word(String),
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Scalar, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer or a word in quotes")
            }

            fn visit_i64<E>(self, number: i64) -> Result<Scalar, E> {
                Ok(Scalar::Number(number))
            }

            fn visit_str<E>(self, word: &str) -> Result<Scalar, E> {
                Ok(Scalar::Word(word.to_owned()))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// What is wrong with the file, where, and what was perhaps meant.
fn complaint(error: &toml::de::Error, text: &str, path: &Path) -> Failure {
    let start = error.span().map_or(0, |span| span.start).min(text.len());
    let before = text.get(..start).unwrap_or("");
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |start| start.chars().count()) + 1;
    let excerpt = text.lines().nth(line - 1).unwrap_or("").replace(char::is_control, " ");
    let (message, hint) = reworded(error.message());
    let failure =
        Failure::usage(format!("{}:{line}:{column}: {message}\n  {excerpt}\n  {:>column$}", path.display(), "^"));
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// serde's words for an unknown key or word, as a sentence, and as a hint what is known.
fn reworded(message: &str) -> (String, Option<String>) {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let (Some((found, known)), Some(rest)) = (quoted.split_first(), message.strip_prefix("unknown ")) else {
        return (message.trim_end().to_owned(), None);
    };
    let what = match rest.split(' ').next() {
        Some("field") => "key",
        _ => "value",
    };
    let elsewhere = || {
        let mut sections = ["context", "control", "log"].into_iter();
        sections.find(|section| keys_of(section).iter().any(|key| key == found))
    };
    let nearest = known.iter().map(|key| (strsim::damerau_levenshtein(key, found), key)).min();
    let hint = match (nearest, elsewhere()) {
        (Some((0..=2, key)), _) => format!("did you mean `{key}`? known: {}", known.join(", ")),
        (_, Some(section)) if what == "key" => format!("`{found}` belongs into [{section}]"),
        _ => format!("known: {}", known.join(", ")),
    };
    (format!("unknown {what} `{found}`"), Some(hint))
}

/// The keys that a section may have, as serde lists them when it meets another.
fn keys_of(section: &str) -> Vec<String> {
    let probe = toml::from_str::<Config>(&format!("[{section}]\n\"\" = 0\n"));
    let message = probe.err().map_or(String::new(), |error| error.message().to_owned());
    message.split('`').skip(1).step_by(2).skip(1).map(str::to_owned).collect()
}

impl Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        match Config::parse(text, Path::new("crossdock.toml")) {
            Ok(config) => panic!("{text} was taken as {config:?}"),
            Err(failure) => failure.text(),
        }
    }

    /// The example with its keys no longer commented out: `#key = value` and `#[section]`, without a space behind `#`.
    fn uncommented() -> String {
        let bare = |line: &str| match line.strip_prefix('#') {
            Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '[') => rest.to_owned() + "\n",
            _ => line.to_owned() + "\n",
        };
        EXAMPLE.lines().map(bare).collect()
    }

    #[test]
    fn an_empty_file_and_the_example_give_the_defaults() {
        let defaults = Config::default();
        for text in ["", EXAMPLE, &uncommented()] {
            let config =
                Config::parse(text, Path::new("example")).unwrap_or_else(|failure| panic!("{}", failure.text()));
            assert_eq!(config, defaults);
        }
        assert_eq!(ContextConfig::from(&defaults.context), ContextConfig::default());
    }

    #[test]
    fn the_example_has_every_key() {
        let text = uncommented();
        let example: toml::Table = text.parse().unwrap();
        for section in ["context", "control", "log"] {
            let keys = keys_of(section);
            assert!(!keys.is_empty(), "{section}");
            let shown = example[section].as_table().unwrap();
            assert!(keys.iter().all(|key| shown.contains_key(key)), "[{section}] has {keys:?}, the example {shown:?}");
        }
        for key in ["# [[stream]]", "# name = ", "# schema = "] {
            assert!(EXAMPLE.contains(key), "{key}");
        }
    }

    #[test]
    fn every_line_of_the_example_fits_a_screen() {
        assert_eq!(EXAMPLE.lines().find(|line| line.chars().count() > 100), None);
    }

    #[test]
    fn a_misspelt_key_is_named_with_its_place_and_the_one_that_was_meant() {
        let text = refused("# mine\n[context]\nlisten = \"127.0.0.1:1\"\n  overfow = \"block\"\n");
        assert!(
            text.starts_with("crossdock.toml:4:3: unknown key `overfow`\n    overfow = \"block\"\n    ^\n"),
            "{text}"
        );
        assert!(text.contains("hint: did you mean `overflow`? known: listen, "), "{text}");
    }

    #[test]
    fn a_key_in_the_wrong_section_is_told_where_it_belongs() {
        let text = refused("listen = \"127.0.0.1:1\"\n");
        assert!(text.starts_with("crossdock.toml:1:1: unknown key `listen`"), "{text}");
        assert!(text.ends_with("hint: `listen` belongs into [context]"), "{text}");
    }

    #[test]
    fn wrong_values_are_told_what_is_right() {
        for (text, place, told) in [
            ("[context]\noverflow = \"blok\"", ":2:12: ", "did you mean `block`?"),
            ("[context]\nqueue_bytes = 1", ":2:15: ", "from 65536 to"),
            ("[context]\nqueue_bytes = \"1 MiB\"", ":2:15: ", "expected an integer"),
            ("[context]\nmax_sessions = -1", ":2:16: ", "expected an integer from 1"),
            ("[context]\npin_cpu = \"all\"", ":2:11: ", "\"none\""),
            ("[context]\npacket_bytes = 9", ":2:16: ", "\"auto\""),
            ("[context]\nlisten = \"localhost\"", ":2:10: ", "socket address"),
            ("[context]\ngso = 1", ":2:7: ", "bool"),
            ("[control]\nhttp = \"0.0.0.0:80\"", ":2:8: ", "loopback"),
            ("[control]\nhttp = \"there\"", ":2:8: ", "127.0.0.1:7441"),
            ("[control]\nsocket = \"\"", ":2:10: ", "path"),
            ("[log]\nlevel = \"loud\"", ":2:9: ", "known: error, warn, info, debug"),
            ("[[stream]]\nname = \"A\"", ":1:1: ", "schema"),
            ("[context\n", ":1:9: ", ""),
            ("a = 1\na = 2\n", ":2:1: ", "duplicate"),
        ] {
            let found = refused(text);
            assert!(found.contains(place) && found.contains(told), "{text} gave {found}");
        }
    }

    #[test]
    fn what_is_configured_reaches_the_context() {
        let text = "[context]\nlisten = \"[::1]:9\"\npacket_bytes = 1400\npin_cpu = 1\noverflow = \"disconnect\"\n";
        let config = Config::parse(text, Path::new("c")).unwrap_or_default();
        let context = ContextConfig::from(&config.context);
        assert_eq!((context.packet_bytes, context.pin_cpu), (Some(1400), Some(1)));
        assert_eq!((context.listen, context.overflow), ("[::1]:9".parse().unwrap(), Overflow::Disconnect));
    }
}
