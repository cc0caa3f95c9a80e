//! `sample`: hands on one of `every` records.

use std::sync::Arc;

use crossdock_mailbox::{Batch, Selection};

use super::{Arguments, NativeKind, Parameter, ParameterKind};
use crate::handler::{Handler, HandlerCounters, HandlerState, ParameterValues, Sink, Verdict};

/// The state: how many records came since the last one that was handed on, that one included; 0 if none was yet.
const STATE: &str = "sample/1";

pub(super) fn kind() -> NativeKind {
    let every = Parameter {
        name: "every",
        about: "N: the first of every N records is handed on",
        kind: ParameterKind::Whole { least: 1, most: u64::from(u32::MAX) },
        default: Some("10"),
        is_tunable: true,
    };
    NativeKind::new("sample", "hands on one of every N records", &[every], |input, arguments| {
        let state = STATE.into();
        let counters = HandlerCounters::default();
        Ok((Box::new(Sample { arguments: arguments.clone(), position: 0, state, counters }), input.clone()))
    })
    .metered()
}

struct Sample {
    arguments: Arguments,
    position: u64,
    state: Arc<str>,
    counters: HandlerCounters,
}

impl Handler for Sample {
    fn process(&mut self, _batch: &Batch, selection: &mut Selection, _out: &mut dyn Sink) -> Verdict {
        let every = self.arguments.whole("every");
        self.counters.records_in += selection.len() as u64;
        let mut position = self.position;
        selection.narrow(|_| {
            // It was set below the position, perhaps.
            if position >= every {
                position = 0;
            }
            position += 1;
            position == 1
        });
        self.position = position;
        self.counters.passed += selection.len() as u64;
        Verdict::forward(selection)
    }

    fn counters(&self) -> HandlerCounters {
        self.counters
    }

    fn state_kind(&self) -> Option<&str> {
        Some(&self.state)
    }

    fn hand_over(&mut self) -> Option<HandlerState> {
        Some(HandlerState::new(self.state.clone(), Box::new(std::mem::take(&mut self.position))))
    }

    fn take_over(&mut self, state: HandlerState) -> Result<(), HandlerState> {
        self.position = *state.of_kind(&self.state)?;
        Ok(())
    }

    fn set_parameters(&mut self, values: &mut ParameterValues) -> bool {
        self.arguments.exchange(values)
    }
}
