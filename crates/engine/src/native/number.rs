//! `number`: records with a running number.

use std::sync::Arc;

use crossdock_format::FieldType;
use crossdock_mailbox::{Batch, Selection};

use super::append::Append;
use super::{NativeKind, Parameter, ParameterKind};
use crate::handler::{Handler, HandlerCounters, HandlerState, Sink, Verdict};
use crate::kernel::Records;

/// The state: how many numbers were given.
const STATE: &str = "number/1";

pub(super) fn kind() -> NativeKind {
    let field = Parameter {
        name: "field",
        about: "the name of the new field, a u64; the first record has 1",
        kind: ParameterKind::Text,
        default: Some("number"),
        is_tunable: false,
    };
    NativeKind::new("number", "puts a running number behind each record", &[field], |input, arguments| {
        let append = Append::new(input, &[(arguments.text("field"), FieldType::U64)]);
        let append = append.map_err(|problem| arguments.refuse("field", problem))?;
        let output = append.output().clone();
        let number = Number { append, count: 0, state: STATE.into(), counters: HandlerCounters::default() };
        Ok((Box::new(number), output))
    })
    .metered()
}

struct Number {
    append: Append,
    count: u64,
    state: Arc<str>,
    counters: HandlerCounters,
}

impl Handler for Number {
    fn process(&mut self, batch: &Batch, selection: &mut Selection, out: &mut dyn Sink) -> Verdict {
        self.counters.records_in += selection.len() as u64;
        let mut made = 0;
        let mut records = Records::of(batch);
        for index in &*selection {
            // A record that grew too long has a number all the same: what is missing can be seen.
            self.count += 1;
            match self.append.make(records.record(index), &[self.count.to_le_bytes()]) {
                Ok(row) => {
                    out.push(row);
                    made += 1;
                }
                Err(_) => self.counters.row_errors += 1,
            }
        }
        self.counters.passed += made as u64;
        Verdict::emit(made)
    }

    fn counters(&self) -> HandlerCounters {
        self.counters
    }

    fn state_kind(&self) -> Option<&str> {
        Some(&self.state)
    }

    fn hand_over(&mut self) -> Option<HandlerState> {
        Some(HandlerState::new(self.state.clone(), Box::new(std::mem::take(&mut self.count))))
    }

    fn take_over(&mut self, state: HandlerState) -> Result<(), HandlerState> {
        self.count = *state.of_kind(&self.state)?;
        Ok(())
    }
}
