//! The declaration of a stream's state, and the names of what keeps it.

use crate::managers::spec::HandlerSpec;
use crossdock_query::{KeyedState, MAX_STATE_BYTES};
use serde::{Deserialize, Serialize};

/// The first words of the name of a state's handler, and of the stream that it makes; those of the stream follow.
const NAME: &str = "state of ";
/// The most keys, where nothing else is declared.
const MAX_KEYS: u64 = 1_000_000;
/// The bounds of what may be declared.
const MOST_KEYS: u64 = 1 << 31;
const MOST_BYTES: u64 = 64 << 30;
const MOST_AGE_MS: u64 = 366 * 86_400_000;
/// The query that would be accepted, in place of one with `SNAPSHOT`.
pub(crate) const WITHOUT: &str = "without SNAPSHOT a query gets the records that come";
/// Columns of a key.
const MOST_COLUMNS: usize = 16;

/// The declaration of a stream's state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct StateSpec {
    /// The columns of the key, whose last record is kept.
    pub key: Vec<String>,
    /// The most keys, 1000000 when absent; past that the one goes that had no record for the longest, and is counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_keys: Option<u64>,
    /// The most bytes of memory, 268435456 when absent; past that the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// How long a key is kept without a record, in ms; as long as there is room when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age_ms: Option<u64>,
}

impl StateSpec {
    /// The most bytes that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.max_bytes.unwrap_or(MAX_STATE_BYTES as u64)
    }

    /// Checks that it has a key, and that its bounds are within theirs.
    ///
    /// # Errors
    /// The impossible value, and its bounds.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.key.is_empty() || self.key.len() > MOST_COLUMNS || self.key.iter().any(String::is_empty) {
            return Err(format!("a stream's key has 1 to {MOST_COLUMNS} columns"));
        }
        let bounds = [
            ("max_keys", self.max_keys, MOST_KEYS),
            ("max_bytes", self.max_bytes, MOST_BYTES),
            ("max_age_ms", self.max_age_ms, MOST_AGE_MS),
        ];
        for (name, value, most) in bounds {
            if let Some(value) = value.filter(|value| *value < 1 || *value > most) {
                return Err(format!("its {name} is {value}: the range is 1 to {most}"));
            }
        }
        Ok(())
    }

    /// The state of this stream.
    pub(crate) fn of(&self, stream: &str) -> KeyedState {
        KeyedState {
            stream: stream.to_owned(),
            key: self.key.clone(),
            max_keys: self.max_keys.unwrap_or(MAX_KEYS),
            max_bytes: self.bytes(),
            max_age_ns: self.max_age_ms.map(|ms| ms.saturating_mul(1_000_000)),
        }
    }
}

/// The name of the handler that keeps the state of a stream, and of the stream that it makes.
#[must_use]
pub fn state_name(stream: &str) -> String {
    format!("{NAME}{stream}")
}

/// The stream whose state is made under this name, if it is such a name.
#[must_use]
pub fn stream_of_state(name: &str) -> Option<&str> {
    name.strip_prefix(NAME)
}

/// Why a query with `SNAPSHOT` has nothing to read.
pub(crate) fn no_state(stream: &str) -> String {
    format!("stream `{stream}` has no key, and so no state: `crossdock streams set {stream} --key COLUMN` declares one")
}

impl HandlerSpec {
    /// The handler that keeps the state of a stream.
    #[must_use]
    pub fn of_state(stream: &str, state: StateSpec) -> HandlerSpec {
        let (name, input_streams) = (state_name(stream), vec![stream.to_owned()]);
        HandlerSpec { name, input_streams, state: Some(state), ..HandlerSpec::default() }
    }

    /// Checks that it is a state's if it has the name of one, and only then.
    ///
    /// # Errors
    /// In words.
    pub(super) fn check_state(&self) -> Result<(), String> {
        let of = stream_of_state(self.asked_name());
        match (&self.state, of) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err(format!("names that begin with `{NAME}` are those of streams' states")),
            (Some(state), Some(stream)) if self.input_streams == [stream] && self.derived() == self.name => {
                if self.sql.is_some() || self.native.is_some() || self.replicas {
                    return Err("a state has no query, no built-in handler and no replicas".to_owned());
                }
                state.check()
            }
            (Some(_), _) => Err(format!("the state of stream `A` is named `{NAME}A`, and reads that stream alone")),
        }
    }
}

/// The refusal of another reader of a state's stream: it has all columns of its stream, whatever its readers may see of that.
pub(crate) fn refused_reader(name: &str) -> Option<String> {
    let stream = stream_of_state(name)?;
    Some(format!("`{name}` is read by `SELECT … FROM \"{stream}\" SNAPSHOT [THEN CHANGES]` alone"))
}

/// A state in words, as a list of handlers has it.
pub(super) fn state_text(spec: &HandlerSpec) -> String {
    match (&spec.state, &spec.input_streams[..]) {
        (Some(state), [stream]) => state.of(stream).text(),
        _ => String::new(),
    }
}
