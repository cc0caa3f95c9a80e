//! `crossdock.toml`: every key, its default, and errors that say where and what was meant.

mod access;
mod complaint;
mod handler;
mod host;
mod security;
mod table;
mod values;

use std::collections::BTreeSet;
use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crossdock_runtime::settings::off_or_path;
use crossdock_runtime::{
    AttachConfig, ContextConfig, HandlerSpec, MorphConfig, PlatformConfig, ServicesConfig, StateSpec,
};
use serde::Deserialize;

use self::access::AccessSection;
pub(crate) use self::handler::HandlerSection;
use self::host::PeerSection;
pub(crate) use self::host::{HostSection, MailboxSection, NodeSection, TaskSection};
pub(crate) use self::security::SecuritySection;
pub(crate) use self::table::TableSection;
use self::values::{auto_or_path, in_words, off_or_address};
use crate::failure::{Failure, Outcome};
use crate::http::tls::{self, TlsFiles};
use crate::http::token::TokenFiles;
use crate::quantity::{parse_age, parse_bytes, parse_number};

/// The example, which documents every key; its defaults are the program's, which a test sees to.
pub(crate) const EXAMPLE: &str = include_str!("../../crossdock.example.toml");

/// The sections that stand once.
const SECTIONS: [&str; 10] =
    ["context", "security", "host", "attach", "node", "services", "morph", "platform", "control", "log"];

/// The daemon's configuration.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The execution context.
    pub(crate) context: ContextConfig,
    /// The daemon's key, and the clients that may connect.
    pub(crate) security: SecuritySection,
    /// The bounds of what attached processes use.
    pub(crate) host: HostSection,
    /// The users that may attach by shared memory.
    pub(crate) attach: AttachConfig,
    /// This node's name, and other nodes.
    pub(crate) node: NodeSection,
    /// The services of the host for tasks.
    pub(crate) services: ServicesConfig,
    /// How records are converted, and what is kept.
    pub(crate) morph: MorphConfig,
    /// The further contexts, and how handlers are run there.
    pub(crate) platform: PlatformConfig,
    /// The HTTP API.
    pub(crate) control: ControlSection,
    /// The log.
    pub(crate) log: LogSection,
    /// Streams that are there from the start.
    pub(crate) stream: Vec<StreamSection>,
    /// Reference tables, in which queries look rows up.
    pub(crate) table: Vec<TableSection>,
    /// Mailboxes that are there from the start.
    pub(crate) mailbox: Vec<MailboxSection>,
    /// Tasks that run from the start.
    pub(crate) task: Vec<TaskSection>,
    /// Handlers that run from the start.
    pub(crate) handler: Vec<HandlerSection>,
    /// The rights of each identity; without a section everybody may do everything.
    pub(crate) access: Vec<AccessSection>,
}

/// `[control]`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ControlSection {
    /// The Unix socket of the HTTP API; the usual place when absent.
    #[serde(deserialize_with = "auto_or_path")]
    pub(crate) socket: Option<PathBuf>,
    /// The TCP address of the HTTP API, if it has one.
    #[serde(deserialize_with = "off_or_address")]
    pub(crate) http: Option<SocketAddr>,
    /// The file with the token for changes over TCP, if these may be; relative to the configuration's directory.
    #[serde(deserialize_with = "off_or_path")]
    pub(crate) token_file: Option<PathBuf>,
    /// The file with the certificate for TLS over TCP, in PEM form; relative to the configuration's directory.
    #[serde(deserialize_with = "off_or_path")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The file with its private key.
    #[serde(deserialize_with = "off_or_path")]
    pub(crate) tls_key: Option<PathBuf>,
}

impl ControlSection {
    /// The certificate for TLS, if there is one.
    ///
    /// # Errors
    /// A file cannot be read, is not kept secret, or does not fit the other.
    pub(crate) fn tls(&self, directory: &Path) -> Outcome<Option<TlsFiles>> {
        let files = self.tls_cert.as_ref().zip(self.tls_key.as_ref());
        files.map(|(cert, key)| tls::read(directory.join(cert), directory.join(key))).transpose()
    }

    /// Values that do not go together, each key being right for itself.
    fn contradiction(&self) -> Option<String> {
        let (there, missing) = match (&self.tls_cert, &self.tls_key) {
            (Some(_), None) => ("tls_cert", "tls_key"),
            (None, Some(_)) => ("tls_key", "tls_cert"),
            _ => return None,
        };
        Some(format!("[control]: `{there}` needs `{missing}` beside it: TLS takes a certificate and its private key"))
    }
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
    /// The file with its fields; relative to the configuration's directory. Without one its first publisher says them.
    #[serde(default)]
    pub(crate) schema: Option<PathBuf>,
    /// The columns of its key, whose last record is kept by key, if it has one.
    #[serde(default)]
    key: Vec<String>,
    #[serde(default, deserialize_with = "keys")]
    max_keys: Option<u64>,
    #[serde(default, deserialize_with = "memory")]
    max_bytes: Option<u64>,
    #[serde(default, deserialize_with = "age")]
    max_age: Option<u64>,
}

fn keys<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    in_words(deserializer, parse_number).map(Some)
}

fn memory<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    in_words(deserializer, parse_bytes).map(Some)
}

fn age<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    in_words(deserializer, parse_age).map(Some)
}

impl StreamSection {
    /// The handler that keeps its state, if it has a key.
    fn state(&self) -> Option<HandlerSpec> {
        let StreamSection { name, key, max_keys, max_bytes, max_age, .. } = self;
        let state = StateSpec { key: key.clone(), max_keys: *max_keys, max_bytes: *max_bytes, max_age_ms: *max_age };
        (!key.is_empty()).then(|| HandlerSpec::of_state(name, state))
    }

    /// Values that do not go together, each key being right for itself.
    fn contradiction(&self) -> Option<String> {
        let has_bound = self.max_keys.or(self.max_bytes).or(self.max_age).is_some();
        let why = match (self.key.is_empty(), &self.schema) {
            (true, None) => "has neither `schema`, the file with its fields, nor `key`, the columns of its key",
            (true, Some(_)) if has_bound => {
                "has a bound of its state, and no `key`: name its columns, such as key = [\"flight_id\"]"
            }
            _ => return None,
        };
        Some(format!("[[stream]] `{}` {why}", self.name))
    }
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
        let config: Config = toml::from_str(text).map_err(|error| complaint::complaint(&error, text, path))?;
        match config.contradiction() {
            Some(why) => Err(Failure::usage(format!("{}: {why}", path.display()))),
            None => Ok(config),
        }
    }

    /// The context's settings. Paths are relative to `directory`, the one where the file is.
    pub(crate) fn of_context(&self, directory: &Path) -> ContextConfig {
        let place = |path: &Option<PathBuf>| path.as_ref().map(|path| directory.join(path));
        let Config { attach, services, morph, .. } = self;
        ContextConfig {
            node: self.node.name.clone(),
            nodes: self.node.peer.iter().map(PeerSection::node).collect(),
            neighbours: self.node.neighbours().map(PeerSection::node).collect(),
            attach: AttachConfig { huge_pages: self.host.huge_pages, ..attach.clone() },
            host: self.host.bounds(),
            services: ServicesConfig { files: place(&services.files), dumps: place(&services.dumps) },
            morph: MorphConfig { state_dir: place(&morph.state_dir), ..morph.clone() },
            platform: self.platform.clone(),
            // Checked when the file was read.
            access: access::rules(&self.access).unwrap_or_default(),
            ..self.context.clone()
        }
    }

    /// The handlers that run from the start: those of its sections, and what keeps the states of streams with a key.
    pub(crate) fn handlers(&self) -> Vec<HandlerSpec> {
        let states = self.stream.iter().filter_map(StreamSection::state);
        self.handler.iter().map(HandlerSection::spec).chain(states).collect()
    }

    /// The tokens of callers of the HTTP API.
    ///
    /// # Errors
    /// A file of them cannot be read, or is not kept secret; or two names have the same token.
    pub(crate) fn tokens(&self, directory: &Path) -> Outcome<TokenFiles> {
        access::tokens(&self.access, self.control.token_file.as_deref(), directory)
    }

    /// Whether the HTTP API at this address could be read on its way, or used, by a network that nobody has said to be trusted,
    /// so that the daemon does not start.
    pub(crate) fn is_open_at(&self, http: SocketAddr) -> bool {
        self.control.tls_cert.is_none() && SecuritySection { key: None, ..self.security.clone() }.is_open(http)
    }

    /// A table that is wrong for itself, or whose name is another table's or a stream's.
    fn contradicting_table(&self) -> Option<String> {
        let mut named: BTreeSet<String> = BTreeSet::new();
        let streams = || self.stream.iter().map(|stream| &stream.name);
        let outputs = self.handlers();
        self.table.iter().find_map(|table| {
            let (name, lower) = (&table.name, table.name.to_lowercase());
            if streams().any(|stream| stream.to_lowercase() == lower) {
                return Some(format!(
                    "[[table]] `{name}` has the name of a [[stream]]: a name in a query means one of them"
                ));
            }
            if let Some(handler) = outputs.iter().find(|handler| handler.derived().to_lowercase() == lower) {
                let handler = &handler.name;
                return Some(format!(
                    "[[table]] `{name}` has the name of the output stream of [[handler]] `{handler}`"
                ));
            }
            match named.insert(lower) {
                false => Some(format!("[[table]]: two tables are called `{name}`, or differ in case alone")),
                true => table.contradiction(),
            }
        })
    }

    /// Values that do not go together, each key being right for itself.
    fn contradiction(&self) -> Option<String> {
        let mut nodes: BTreeSet<&str> = self.node.peer.iter().map(|peer| peer.name.as_str()).collect();
        if nodes.len() < self.node.peer.len() || !nodes.insert(&self.node.name) {
            return Some("[node]: two nodes have the same name, so that it stands for neither".to_owned());
        }
        let named: BTreeSet<&str> = self.mailbox.iter().map(|mailbox| mailbox.name.as_str()).collect();
        if named.len() < self.mailbox.len() {
            return Some("[[mailbox]]: two mailboxes have the same name".to_owned());
        }
        if let Some(task) = self.task.iter().find(|task| !named.contains(task.mailbox.as_str())) {
            return Some(format!(
                "[[task]]: `{}` takes its messages from mailbox `{}`, and no [[mailbox]] has that name",
                task.task, task.mailbox
            ));
        }
        let handlers: BTreeSet<&str> = self.handler.iter().map(|handler| handler.name.as_str()).collect();
        if handlers.len() < self.handler.len() {
            return Some("[[handler]]: two handlers have the same name".to_owned());
        }
        let stream = self.stream.iter().find_map(StreamSection::contradiction).or_else(|| self.contradicting_table());
        let handler = stream.or_else(|| self.handler.iter().find_map(HandlerSection::contradiction));
        let contexts =
            || self.of_context(Path::new("")).contexts().err().map(|why| format!("[[platform.context]]: {why}"));
        let node = || self.node.contradiction(self.security.key.is_some());
        let access = || access::rules(&self.access).err().or_else(|| self.control.contradiction()).or_else(node);
        let durable = || self.morph.check_durable().err().map(str::to_owned);
        handler.or_else(contexts).or_else(|| self.host.contradiction()).or_else(access).or_else(durable)
    }
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
    use super::complaint::keys_of;
    use super::*;
    use crossdock_runtime::{
        Allowed, ByName, ContextKind, HandlerSpec, OnFault, OverBudget, Overflow, Unreadable, WhenFull,
    };

    fn refused(text: &str) -> String {
        match Config::parse(text, Path::new("crossdock.toml")) {
            Ok(config) => panic!("{text} was taken as {config:?}"),
            Err(failure) => failure.text(),
        }
    }

    #[test]
    fn the_container_trusts_nobody_beyond_itself() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/container.toml");
        let text = std::fs::read_to_string(path).unwrap();
        let config = Config::parse(&text, Path::new("container.toml")).unwrap_or_else(|why| panic!("{}", why.text()));
        assert!(config.security.is_open(config.context.listen), "so it does not start without keys");
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
    fn an_http_address_beyond_the_machine_is_open_without_tls_or_a_trusted_network() {
        let tls = "[control]\ntls_cert = \"a\"\ntls_key = \"b\"\n";
        for (text, address, is_open) in [
            ("", "127.0.0.1:1", false),
            ("", "0.0.0.0:1", true),
            ("", "[::]:1", true),
            ("[security]\nkey = \"daemon.key\"\n", "10.0.0.1:1", true),
            ("[security]\ntrusted = []\n", "127.0.0.1:1", false),
            ("[security]\ntrusted = [\"10.0.0.0/8\"]\n", "10.0.0.1:1", false),
            (tls, "0.0.0.0:1", false),
        ] {
            let config = Config::parse(text, Path::new("c")).unwrap_or_default();
            assert_eq!(config.is_open_at(address.parse().unwrap()), is_open, "{text} {address}");
        }
    }

    #[test]
    fn an_empty_file_and_the_example_give_the_defaults() {
        let defaults = Config::default();
        for text in ["", EXAMPLE, &uncommented()] {
            let config =
                Config::parse(text, Path::new("example")).unwrap_or_else(|failure| panic!("{}", failure.text()));
            assert_eq!(config, defaults);
        }
        assert_eq!(defaults.of_context(Path::new("")), ContextConfig::default());
    }

    #[test]
    fn the_example_has_every_key() {
        let text = uncommented();
        let example: toml::Table = text.parse().unwrap();
        for section in SECTIONS {
            let keys = keys_of(section);
            assert!(!keys.is_empty(), "{section}");
            let shown = example[section].as_table().unwrap();
            let is_shown =
                |key: &String| shown.contains_key(key) || EXAMPLE.contains(&format!("# [[{section}.{key}]]\n"));
            assert!(keys.iter().all(is_shown), "[{section}] has {keys:?}, the example {shown:?}");
        }
        for section in ["stream", "table", "mailbox", "task", "handler", "node.peer", "platform.context", "access"] {
            let keys = keys_of(&format!("[{section}]"));
            assert!(!keys.is_empty(), "{section}");
            let (_, shown) = EXAMPLE.split_once(&format!("# [[{section}]]\n")).unwrap();
            let shown: Vec<&str> = shown.lines().take_while(|line| line.starts_with("# ")).collect();
            for key in keys {
                assert!(shown.iter().any(|line| line.starts_with(&format!("# {key} = "))), "{section} {key}");
            }
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
    fn a_key_in_the_wrong_section_is_answered_with_its_own() {
        let text = refused("listen = \"127.0.0.1:1\"\n");
        assert!(text.starts_with("crossdock.toml:1:1: unknown key `listen`"), "{text}");
        assert!(text.ends_with("hint: `listen` belongs into [context]"), "{text}");
    }

    #[test]
    fn wrong_values_are_answered_with_what_is_right() {
        for (text, place, expected) in [
            ("[context]\noverflow = \"blok\"", ":2:12: ", "did you mean `block`?"),
            ("[context]\nqueue_bytes = 1", ":2:15: ", "from 65536 to"),
            ("[context]\nqueue_bytes = \"1 MiB\"", ":2:15: ", "expected an integer"),
            ("[context]\nmax_sessions = -1", ":2:16: ", "expected an integer from 1"),
            ("[context]\npin_cpu = \"all\"", ":2:11: ", "\"none\""),
            ("[context]\npacket_bytes = 9", ":2:16: ", "\"auto\""),
            ("[context]\nlisten = \"localhost\"", ":2:10: ", "socket address"),
            ("[context]\ngso = 1", ":2:7: ", "bool"),
            ("[control]\nhttp = \"there\"", ":2:8: ", "127.0.0.1:7441"),
            ("[control]\ntls_cert = \"\"", ":2:12: ", "\"off\" or a path"),
            ("[control]\nsocket = \"\"", ":2:10: ", "path"),
            ("[control]\ntoken_file = \"\"", ":2:14: ", "\"off\" or a path"),
            ("[[handler]]\nname = \"a\"\nstuck_after = \"2\"", ":3:15: ", "500ms"),
            ("[security]\nkey = \"\"", ":2:7: ", "\"off\" or a path"),
            ("[security]\nauthorized = [\"me\"]", ":2:14: ", "64 hexadecimal digits"),
            ("[security]\ntrusted = [\"10.0.0.0/40\"]", ":2:11: ", "is no network"),
            ("[host]\nmax_clients = 5000", ":2:15: ", "from 1 to 4096"),
            ("[host]\nshared_bytes = 5_000_000_000", ":2:16: ", "from 1048576 to 4292870144"),
            ("[host]\nmax_message_bytes = 33554432", ":2:21: ", "to 16777216"),
            ("[host]\nhuge_pages = \"reservd\"", ":2:14: ", "did you mean `reserved`?"),
            ("[host]\nmax_clinets = 1", ":2:1: ", "did you mean `max_clients`?"),
            ("[context]\nmax_clients = 1", ":2:1: ", "`max_clients` belongs into [host]"),
            ("[attach]\nenabled = \"yes\"", ":2:11: ", "bool"),
            ("[attach]\naddress = \"here\"", ":2:11: ", "unix:PATH or unix:@NAME"),
            ("[attach]\nadress = \"auto\"", ":2:1: ", "did you mean `address`?"),
            ("[attach]\nuids = \"all\"", ":2:8: ", "\"any\" or a list of numeric ids"),
            ("[attach]\nuids = [\"root\"]", ":2:9: ", "u32"),
            ("[attach]\ngids = [-1]", ":2:9: ", "u32"),
            ("[attach]\ndomains = { a = [1], b = [2, 1] }", ":2:11: ", "user 1 is listed twice"),
            ("[attach.domains]\ndesks = 7", ":2:9: ", "sequence"),
            ("[node]\nname = \"a/b\"", ":2:8: ", "no `/`"),
            ("[services]\nfiles = \"\"", ":2:9: ", "\"off\" or a path"),
            ("[morph]\nunreadable = \"held\"", ":2:14: ", "did you mean `hold`?"),
            ("[morph]\nhold_bytes = 0", ":2:14: ", "from 4096 to"),
            ("[morph]\nby_name = \"on\"", ":2:11: ", "versions_of_stream"),
            ("[morph]\nstate_dir = \"\"", ":2:13: ", "\"off\" or a path"),
            ("[morph]\ncheckpoint_interval_ms = -1", ":2:26: ", "an integer from 0 to 86400000"),
            ("[morph]\ncheckpoint_pause_ms = 0", ":2:23: ", "an integer from 1 to 60000"),
            ("[platform]\nmargin_percent = 95", ":2:18: ", "from 0 to 90"),
            ("[platform]\nslice = 5", ":2:1: ", "known: margin_percent, slice_us"),
            ("[[platform.context]]\nkind = \"g-kore\"", ":2:8: ", "did you mean `g-core`?"),
            ("[[platform.context]]\nkind = \"c-core\"\ncpu = \"one\"", ":3:7: ", "\"none\""),
            ("[[handler]]\nname = \"a\"\nsqll = \"SELECT * FROM A\"", ":3:1: ", "did you mean `sql`?"),
            ("[[handler]]\nname = \"a\"\nbudget = \"5\"", ":3:10: ", "5us"),
            ("[platform]\nbandwidth_mbit_per_s = 0", ":2:24: ", "\"none\" or an integer"),
            ("[[platform.context]]\nkind = \"c-core\"\nnice = 20", ":3:8: ", "from -20"),
            ("[[handler]]\nname = \"a\"\nbudget = 5", ":3:10: ", "string"),
            ("[[handler]]\nname = \"a\"\nreserve = \"2s\"", ":3:11: ", "50ms/s"),
            ("[[handler]]\nname = \"a\"\npeak = \"many\"", ":3:8: ", "2.5k"),
            ("[[handler]]\nname = \"a\"\nwhen_full = \"wait\"", ":3:13: ", "known: block, drop"),
            ("[[handler]]\nname = \"a\"\nparameters = { a = [1] }", ":3:20: ", "a text, a number, true or false"),
            ("[[mailbox]]\nname = \"\"", ":2:8: ", "1 to 255 bytes"),
            ("[[mailbox]]\nname = \"a\"\nimplementation = \"ring\"", ":3:18: ", "did you mean `rings`?"),
            ("[[mailbox]]\nname = \"a\"\nbound_messages = 0", ":3:18: ", "from 1 to"),
            ("[[mailbox]]\nname = \"a\"\nbound = 4", ":3:1: ", "known: name, implementation, bound_messages"),
            ("[[task]]\ntask = \"echo\"", ":1:1: ", "mailbox"),
            ("[context]\nwindow_packets = 9", ":2:1: ", "`window_bytes` replaces it"),
            ("[log]\nlevel = \"loud\"", ":2:9: ", "known: error, warn, info, debug"),
            ("[[stream]]\nname = \"A\"", "[[stream]] `A` has neither", "`schema`"),
            ("[[access]]\nuid = 1\npublish = [\"\"]", ":3:11: ", "a pattern has 1 to 255 bytes"),
            ("[[access]]\nuid = 1\nsubscribe = [\"SELECT a + 1 FROM A\"]", ":3:13: ", "columns only"),
            ("[[access]]\nuid = 1\nadministration = \"all\"", ":3:18: ", "known: none, read, change"),
            ("[context\n", ":1:9: ", ""),
            ("a = 1\na = 2\n", ":2:1: ", "duplicate"),
        ] {
            let found = refused(text);
            assert!(found.contains(place) && found.contains(expected), "{text} gave {found}");
        }
    }

    #[test]
    fn wrong_values_of_other_nodes_are_refused() {
        for (values, place, expected) in [
            ("address = \"east:7440\"", ":3:11: ", "socket address"),
            ("address = \"10.0.0.1:7440\"\nkey = \"07\"", ":4:7: ", "64 hexadecimal"),
            ("key = 7", ":3:7: ", "string"),
        ] {
            let found = refused(&format!("[[node.peer]]\nname = \"east\"\n{values}"));
            assert!(found.contains(place) && found.contains(expected), "{values} gave {found}");
        }
    }

    #[test]
    fn configured_values_reach_the_context() {
        let text = "[context]\nlisten = \"[::1]:9\"\npacket_bytes = 1400\npin_cpu = 1\noverflow = \"disconnect\"\n";
        let config = Config::parse(text, Path::new("c")).unwrap_or_default();
        let context = config.of_context(Path::new(""));
        assert_eq!((context.packet_bytes, context.pin_cpu), (Some(1400), Some(1)));
        assert_eq!((context.listen, context.overflow), ("[::1]:9".parse().unwrap(), Overflow::Disconnect));
    }

    #[test]
    fn contradictions_are_reported() {
        for (text, expected) in [
            ("[host]\nclient_bytes = 1_048_576", "`client_bytes` is 1048576, and could never hold a message"),
            ("[[handler]]\nname = \"a\"\n", "[[handler]] `a` has neither `sql`"),
            ("[[handler]]\nname = \"a\"\nsql = \"x\"\nnative = \"y\"", "`a` has both `sql` and `native`"),
            ("[[handler]]\nname = \"a\"\nnative = \"y\"", "input_streams = [\"A\"]"),
            (
                "[[handler]]\nname = \"a\"\nsql = \"x\"\n[[handler]]\nname = \"a\"\nsql = \"x\"",
                "two handlers have the same name",
            ),
            ("[[platform.context]]\nkind = \"c-core\"\nname = \"c-core-0\"", "two contexts are named `c-core-0`"),
            ("[[mailbox]]\nname = \"a\"\n[[mailbox]]\nname = \"a\"", "two mailboxes have the same name"),
            ("[[access]]\nuid = 1\n[[access]]\nuid = 1", "[[access]]: two rules are for uid:1"),
            ("[[access]]\npublish = [\"A\"]", "[[access]], section 1: a section has an identity"),
            ("[[access]]\nuid = 1\nkey = \"desk\"", "a section has one identity, not key:desk and uid:1"),
            ("[control]\ntls_cert = \"a.pem\"", "[control]: `tls_cert` needs `tls_key`"),
            ("[control]\ntls_key = \"a.key\"", "[control]: `tls_key` needs `tls_cert`"),
            ("[morph]\ndurable = true", "set `state_dir` in [morph]"),
            ("[[access]]\ntoken = \"ops\"", "`token_file` is the file with the token `ops`, and is missing"),
            ("[[access]]\ntoken = \"control\"\ntoken_file = \"t\"", "`token_file` in [control] names"),
            (
                "[[access]]\nuid = 1\nsubscribe = [\"A\", \"SELECT a FROM A\"]",
                "two entries of `subscribe` are for stream `A`",
            ),
            ("[[task]]\ntask = \"echo\"\nmailbox = \"a\"", "takes its messages from mailbox `a`, and no [[mailbox]]"),
            (
                "[node]\nname = \"a\"\n[[node.peer]]\nname = \"a\"\naddress = \"10.0.0.1:7440\"",
                "two nodes have the same name",
            ),
            (
                "[[node.peer]]\nname = \"a\"\naddress = \"10.0.0.1:7440\"\nroute = true",
                "`a` has `route = true` and no `key`",
            ),
            (
                "[[node.peer]]\nname = \"a\"\naddress = \"10.0.0.1:7440\"\nroute = true\n\
                 key = \"0707070707070707070707070707070707070707070707070707070707070707\"",
                "`a` has `route = true`, and this daemon has no key",
            ),
        ] {
            let found = refused(text);
            assert!(found.starts_with("crossdock.toml: [") && found.contains(expected), "{text} gave {found}");
        }
    }

    #[test]
    fn attach_settings_reach_the_context() {
        let text = "[host]\nmax_clients = 3\nhuge_pages = \"none\"\n[attach]\naddress = \"unix:@there\"\nuids = [0, 7]\n\
                    gids = \"own\"\ndomains = { desks = [7, 8] }\n[node]\nname = \"west\"\n\
                    [[node.peer]]\nname = \"east\"\naddress = \"10.0.0.2:7440\"\n\
                    key = \"0707070707070707070707070707070707070707070707070707070707070707\"\n\
                    [services]\nfiles = \"files\"\ndumps = \"/dumps\"\n\
                    [morph]\nhold_ms = 5\nunreadable = \"drop\"\nby_name = \"versions_of_stream\"\nstate_dir = \"kept\"\n";
        let config = Config::parse(text, Path::new("c")).unwrap_or_else(|failure| panic!("{}", failure.text()));
        let context = config.of_context(Path::new("/etc/crossdock"));
        assert_eq!((context.host.max_clients, context.attach.huge_pages), (3, crossdock_mailbox::HugePages::None));
        assert_eq!((context.attach.uids, context.attach.gids), (Allowed::List(vec![0, 7]), Allowed::Own));
        assert_eq!(context.attach.domains, [("desks".to_owned(), vec![7, 8])]);
        assert_eq!(context.attach.address.map(|address| address.to_string()).as_deref(), Some("unix:@there"));
        assert_eq!((context.node.as_str(), context.nodes.len()), ("west", 1));
        assert_eq!(context.nodes[0].key.map(|key| key.to_string()), Some("07".repeat(32)));
        assert_eq!(context.services.files, Some("/etc/crossdock/files".into()));
        assert_eq!(context.services.dumps, Some("/dumps".into()));
        assert_eq!((context.morph.hold_ms, context.morph.unreadable), (5, Unreadable::Drop));
        assert_eq!(
            (context.morph.by_name, context.morph.state_dir),
            (ByName::VersionsOfStream, Some("/etc/crossdock/kept".into()))
        );
    }

    #[test]
    fn mailboxes_and_tasks_are_read_with_their_arguments() {
        let text = "[[mailbox]]\nname = \"in\"\nimplementation = \"signal_queue\"\nbound_messages = 5\n\
                    [[mailbox]]\nname = \"out\"\n\
                    [[task]]\ntask = \"echo\"\nmailbox = \"in\"\narguments = { to = \"out\" }\n";
        let config = Config::parse(text, Path::new("c")).unwrap_or_else(|failure| panic!("{}", failure.text()));
        let options = config.mailbox[0].options();
        assert_eq!((options.implementation.name(), options.bound_messages), ("signal_queue", Some(5)));
        assert_eq!(config.mailbox[1].options(), crossdock_mailbox::host::MailboxOptions::default());
        assert_eq!(config.task[0].arguments["to"], "out");
    }
    #[test]
    fn contexts_and_handlers_are_read() {
        let text = "[platform]\nmargin_percent = 30\nqueue_batches = 64\nbandwidth_mbit_per_s = 800\n\
                    [[platform.context]]\nkind = \"c-core\"\ncpu = 1\nbandwidth_mbit_per_s = 8\nnice = -3\n\
                    [[platform.context]]\nkind = \"g-core\"\nname = \"slow\"\n\
                    [[handler]]\nname = \"late\"\nsql = \"SELECT * FROM A WHERE dep_delay > $limit\"\noutput_stream = \"A.late\"\n\
                    parameters = { limit = 15, word = \"x\", share = 0.5, on = true }\nplace = \"slow\"\npeak = \"2M\"\n\
                    reserve = \"50ms/s, 8 buffers\"\nreserve_path_rate = \"1k\"\noverload_parameters = { limit = 60 }\nweight = 2\nwhen_full = \"drop\"\nmax_sampling = 8\nbudget = \"5us\"\nstuck_after = \"1m\"\n\
                    over_budget = \"stop\"\non_fault = \"stop\"\n[[handler]]\nname = \"n\"\nnative = \"count\"\ninput_streams = [\"A\"]\n";
        let config = Config::parse(text, Path::new("c")).unwrap_or_else(|failure| panic!("{}", failure.text()));
        let context = config.of_context(Path::new(""));
        let (all, platform) = (context.contexts().unwrap(), context.platform);
        assert_eq!((platform.margin_percent, platform.queue_batches, platform.slice_us), (30, 64, 200));
        assert_eq!(all.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["c-core-0", "c-core-1", "slow"]);
        assert_eq!((platform.contexts[0].kind, platform.contexts[0].cpu), (ContextKind::CCore, Some(1)));
        assert_eq!((platform.contexts[0].nice, platform.contexts[1].nice), (Some(-3), None));
        let bandwidths = platform.contexts.iter().map(|context| platform.bandwidth_bytes_per_s(context));
        assert_eq!(bandwidths.collect::<Vec<_>>(), [Some(1_000_000), Some(100_000_000)]);
        let spec = config.handler[0].spec();
        assert_eq!((spec.derived(), spec.place.as_deref()), ("A.late", Some("slow")));
        let parameters: Vec<(&str, &str)> = spec.parameters.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(parameters, [("limit", "15"), ("on", "true"), ("share", "0.5"), ("word", "x")]);
        assert_eq!((spec.peak_msgs_per_s, spec.reserve_ns_per_s), (Some(2_000_000), Some(50_000_000)));
        assert_eq!((spec.reserve_buffers, spec.reserve_path_msgs_per_s), (Some(8), Some(1000)));
        assert_eq!(&*spec.overload_parameters["limit"], "60");
        assert_eq!((spec.weight, spec.max_sampling, spec.budget_ns), (Some(2), Some(8), Some(5000)));
        assert_eq!(spec.stuck_after_ms, Some(60_000));
        assert_eq!(
            (spec.when_full, spec.over_budget, spec.on_fault),
            (WhenFull::Drop, OverBudget::Stop, OnFault::Stop)
        );
        let native = HandlerSpec {
            name: "n".into(),
            native: Some("count".into()),
            input_streams: vec!["A".into()],
            ..HandlerSpec::default()
        };
        assert_eq!(config.handler[1].spec(), native);
    }
}
