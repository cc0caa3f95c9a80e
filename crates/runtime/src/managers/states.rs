//! The states of streams: each is a handler that keeps the last record by key, declared for its stream, and whose rows subscriptions
//! with `SNAPSHOT` take. The handler has orders: how many there are, and to walk over its rows for each that comes.

use crate::elsewhere::Elsewhere;
use crate::handle::ContextHandle;
use crate::managers::Managers;
use crate::managers::deployed::{Decided, Deployed, Status};
use crate::managers::request::{ChangeRequest, ControlRequest, StateRead};
use crate::managers::spec::HandlerSpec;
use crate::refusal::Stopped;
use crossdock_engine::StateOrder;
use crossdock_query::{KeyedState, MAX_STATE_BYTES, QueryError, Select, Snapshot};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

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
    /// The columns of the key, of which the last record is kept.
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

/// The subscriptions that take a state.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StateReaders {
    there: u32,
    /// How many have begun.
    walks: u64,
    /// The order that the handler has, and which of its instances.
    given: Option<(StateOrder, InstancesOf)>,
}

/// The instances of a handler: its version, and the number of formats that it takes.
type InstancesOf = (u32, usize);

impl Managers {
    /// A subscription is to read the state of a stream.
    pub(super) fn read_state(&mut self, read: StateRead) {
        let StateRead { stream, then } = read;
        let name = state_name(&stream);
        let made = match self.handlers.get(&name).map(|there| (&there.status, Arc::clone(&there.gauges))) {
            None => Err(no_state(&stream)),
            Some((Status::Failed(why), _)) => Err(format!("the state of stream `{stream}` has failed: {why}")),
            Some((Status::Running | Status::Waiting(_), gauges)) => {
                self.states.entry(name.clone()).or_default().there += 1;
                let key = self.handlers.get(&name).and_then(|there| there.spec.state.as_ref());
                let key = key.map(|state| state.key.clone()).unwrap_or_default();
                let managers = Arc::clone(&self.requests);
                let end = move |handler| {
                    // The managers may have ended before.
                    let _ = managers.send(ControlRequest::RemoveQuery { handler, uses: 1 });
                };
                Ok((key, Elsewhere::new(name, gauges, end)))
            }
        };
        then(made);
    }

    /// A subscription that reads a state is in its place: it begins with all that is there.
    pub(super) fn walk_state(&mut self, handler: &str) {
        if let Some(readers) = self.states.get_mut(handler) {
            readers.walks += 1;
            self.order_state(handler);
        }
    }

    /// `uses` subscriptions that read a state have gone; whether there is such a state.
    pub(super) fn end_reads(&mut self, handler: &str, uses: u32) -> bool {
        let Some(readers) = self.states.get_mut(handler) else { return false };
        readers.there = readers.there.saturating_sub(uses);
        self.order_state(handler);
        true
    }

    /// Has the handlers of states know what they are to do, also those that have begun anew or for another format meanwhile.
    pub(super) fn order_states(&mut self) {
        let read: Vec<String> =
            self.states.iter().filter(|(_, of)| of.there > 0).map(|(name, _)| name.clone()).collect();
        read.iter().for_each(|name| self.order_state(name));
    }

    /// A handler begins anew after a fault: that of a state has no order yet.
    pub(super) fn order_restarted(&mut self, name: &str) {
        if let Some(readers) = self.states.get_mut(name) {
            readers.given = None;
            self.order_state(name);
        }
    }

    fn order_state(&mut self, name: &str) {
        let (Some(readers), Some(there)) = (self.states.get(name), self.handlers.get(name)) else { return };
        let order = StateOrder { readers: readers.there, walks: readers.walks };
        let given = Some((order, (there.version, there.entries.len())));
        if readers.given == given {
            return;
        }
        let fitting = there.entries.iter().filter(|entry| entry.output.is_some());
        let values = fitting.map(|entry| (entry.place(&there.reads), order.into_values())).collect();
        let node = there.node;
        // If there is no place for it now, it is given later.
        let is_given = self.order(|overlay| overlay.set_parameters(node, values)).is_ok();
        self.states.get_mut(name).into_iter().for_each(|readers| readers.given = given.filter(|_| is_given));
    }

    /// The bytes that the states of all streams may take, but for those of one.
    pub(super) fn state_bytes_but(&self, but: &str) -> u64 {
        let others = self.handlers.iter().filter(|(name, _)| *name != but);
        others.filter_map(|(_, there)| there.spec.state.as_ref()).map(StateSpec::bytes).sum()
    }

    /// The bytes that the queries of subscriptions may take, all together.
    pub(super) fn query_bytes(&self) -> u64 {
        let there = self.queries.values().filter(|placement| placement.keeps_state()).count();
        (there as u64).saturating_mul(MAX_STATE_BYTES as u64)
    }

    /// Why a state finds no room beside the others and the queries with state, if it finds none.
    pub(super) fn refused_state(&self, spec: &HandlerSpec) -> Option<String> {
        let (wanted, most) = (spec.state.as_ref()?.bytes(), self.config.max_query_state_bytes);
        let taken = self.state_bytes_but(&spec.name).saturating_add(self.query_bytes());
        (taken.saturating_add(wanted) > most).then(|| {
            format!(
                "it may take {wanted} bytes, other states and the queries with state of subscriptions {taken}, and all together no more \
                 than {most}: declare it with fewer (`max_bytes`), or raise `max_query_state_bytes` under [platform]"
            )
        })
    }
}

impl Deployed {
    /// The formats that have decided the rows of a stream's state, which stay with its key: other bounds must not lose it.
    pub(super) fn kept_formats(&self, spec: &HandlerSpec) -> Option<Decided> {
        let (before, after) = (self.spec.state.as_ref()?, spec.state.as_ref()?);
        let decided = self.entries.iter().find_map(|entry| entry.decided.clone());
        decided.filter(|_| before.key == after.key)
    }
}

impl ContextHandle {
    /// The change that declares this state of a stream, whether it has one or not, or withdraws it.
    ///
    /// # Errors
    /// [`Stopped`]; within, that it is not clear which stream is meant, or that there is none to withdraw.
    pub fn state_change(
        &self,
        stream: &str,
        state: Option<StateSpec>,
    ) -> Result<Result<ChangeRequest, String>, Stopped> {
        let stream = match self.shared.catalog.snapshot()?.meant(stream) {
            Ok(stream) => stream,
            Err(refusal) => return Ok(Err(refusal.message)),
        };
        let before = self.manager().specs()?.into_iter().find(|spec| spec.name == state_name(&stream));
        Ok(match (state, before) {
            (None, None) => Err(format!("stream `{stream}` has no key")),
            (None, Some(before)) => Ok(ChangeRequest::Remove { handler: before.name }),
            // Its place and all else that was set of it stay.
            (Some(state), Some(before)) => Ok(ChangeRequest::Swap(HandlerSpec { state: Some(state), ..before })),
            (Some(state), None) => Ok(ChangeRequest::Deploy(HandlerSpec::of_state(&stream, state))),
        })
    }

    /// The state that a query with `SNAPSHOT` reads, in words.
    ///
    /// # Errors
    /// [`Stopped`]; within, that its stream has none.
    pub(crate) fn explain_state(&self, select: &Select) -> Result<Result<String, QueryError>, Stopped> {
        let stream = select.stream();
        let specs = self.manager().specs()?;
        let spec = specs.iter().find(|spec| spec.name == state_name(stream));
        let Some(state) = spec.and_then(|spec| spec.state.as_ref()).map(|state| state.of(stream)) else {
            return Ok(Err(select.snapshot_error(no_state(stream), WITHOUT)));
        };
        let (text, keys, bytes) = (state.text(), state.max_keys, state.max_bytes);
        let age = state.max_age_ns.map(|ns| format!(", each for {} ms", ns / 1_000_000)).unwrap_or_default();
        let changes = match select.snapshot() {
            Some(Snapshot::ThenChanges) => "all that is there, then each change, with `_change`",
            Some(Snapshot::ThenDeltas) => {
                "all that is there, then the columns that change, with `_change` and `_changed`"
            }
            _ => "all that is there",
        };
        Ok(Ok(format!("state    {text}: at most {keys} keys and {bytes} bytes{age}\ngives    {changes}\n")))
    }
}

/// Why a query with `SNAPSHOT` has nothing to read.
fn no_state(stream: &str) -> String {
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
