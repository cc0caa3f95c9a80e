//! `pass`: hands everything on.

use crossdock_mailbox::{Batch, Selection};

use super::NativeKind;
use crate::handler::{Handler, HandlerCounters, Sink, Verdict};

pub(super) fn kind() -> NativeKind {
    NativeKind::new("pass", "hands every record on as it is", &[], |input, _| {
        Ok((Box::new(Pass::default()), input.clone()))
    })
    .metered()
}

#[derive(Default)]
struct Pass {
    counters: HandlerCounters,
}

impl Handler for Pass {
    fn process(&mut self, _batch: &Batch, selection: &mut Selection, _out: &mut dyn Sink) -> Verdict {
        self.counters.records_in += selection.len() as u64;
        self.counters.passed += selection.len() as u64;
        Verdict::forward(selection)
    }

    fn counters(&self) -> HandlerCounters {
        self.counters
    }
}
