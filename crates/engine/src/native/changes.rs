//! `changes`: only what differs from the record before it.

use crossdock_format::{Format, Record};
use crossdock_mailbox::{Batch, Selection};

use super::table::Kept;
use super::tally::MAX_KEYS_PARAMETER;
use super::{Arguments, Native, NativeKind, Parameter, ParameterKind};
use crate::handler::{Handler, HandlerCounters, HandlerState, Sink, Verdict};
use crate::identity::{Key, compared};
use crate::kernel::Records;
use crate::program::MakeError;

pub(super) fn kind() -> NativeKind {
    let fields =
        |name, about, default| Parameter { name, about, kind: ParameterKind::Fields, default, is_tunable: false };
    let parameters = [
        fields("fields", "the fields where one has to differ from the last record with the same key", None),
        fields("key", "the fields that say which records belong together; none: all do", Some("")),
        MAX_KEYS_PARAMETER,
    ];
    NativeKind::new("changes", "hands on a record only if fields changed since the last", &parameters, make).metered()
}

fn make(input: &Format, arguments: &Arguments) -> Result<Native, MakeError> {
    let (fields, key) = (arguments.fields("fields", input)?, arguments.fields("key", input)?);
    if fields.is_empty() {
        return Err(arguments.refuse("fields", "it names no field"));
    }
    for (parameter, &field) in fields.iter().map(|field| ("fields", field)).chain(key.iter().map(|key| ("key", key))) {
        compared(input, field).map_err(|problem| arguments.refuse(parameter, problem))?;
    }
    let [of_fields, of_key] = ["fields", "key"].map(|name| arguments.names(name).join(","));
    let state = format!("changes/1 fields={of_fields} key={of_key}");
    let kept = Kept::new(&state, arguments.whole("max_keys") as usize);
    let counters = HandlerCounters::default();
    let changes = Changes { input: input.clone(), fields, key, kept, counters };
    Ok((Box::new(changes), input.clone()))
}

/// The papers' delta handler (overlay-network-processors-2003, section 3.2).
struct Changes {
    input: Format,
    fields: Vec<usize>,
    key: Vec<usize>,
    /// By key, what the fields held: known as a key is.
    kept: Kept<Key>,
    counters: HandlerCounters,
}

impl Handler for Changes {
    fn process(&mut self, batch: &Batch, selection: &mut Selection, _out: &mut dyn Sink) -> Verdict {
        let Changes { input, fields, key, kept, counters } = self;
        let table = kept.table();
        counters.records_in += selection.len() as u64;
        let mut records = Records::of(batch);
        selection.narrow(|index| {
            let record = Record::assume_checked(input, records.record(index));
            let (key, holds) = (table.key_of(&record, key), table.key_of(&record, fields));
            let (held, is_new) = table.entry(key);
            let differs = is_new || *held != holds;
            *held = holds;
            differs
        });
        counters.passed += selection.len() as u64;
        counters.forgotten += table.take_forgotten();
        Verdict::forward(selection)
    }

    fn counters(&self) -> HandlerCounters {
        self.counters
    }

    fn state_kind(&self) -> Option<&str> {
        Some(self.kept.kind())
    }

    fn hand_over(&mut self) -> Option<HandlerState> {
        self.kept.hand_over()
    }

    fn take_over(&mut self, state: HandlerState) -> Result<(), HandlerState> {
        self.kept.take_over(state)
    }
}
