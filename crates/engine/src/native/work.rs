//! `work`: computes for a while; what a load is made of in tests and benchmarks.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

use crossdock_mailbox::{Batch, Selection};

use super::{Arguments, NativeKind, Parameter, ParameterKind};
use crate::handler::{Handler, HandlerCounters, ParameterValues, Sink, Verdict};

/// The longest that `work` computes for one record, in nanoseconds.
pub const MAX_WORK_NS: u64 = 1_000_000;

pub(super) fn kind() -> NativeKind {
    let ns = Parameter {
        name: "ns",
        about: "how long it computes, in nanoseconds, on a processor that does nothing else",
        kind: ParameterKind::Whole { least: 0, most: MAX_WORK_NS },
        default: Some("100"),
        is_tunable: true,
    };
    let every = Parameter {
        name: "every",
        about: "N: the work is done for the last of every N records; the others cost nothing",
        kind: ParameterKind::Whole { least: 1, most: u64::from(u32::MAX) },
        default: Some("1"),
        is_tunable: true,
    };
    NativeKind::new("work", "hands every record on after computing for a while", &[ns, every], |input, arguments| {
        let (arguments, steps_per_us) = (arguments.clone(), steps_per_us());
        let counters = HandlerCounters::default();
        Ok((Box::new(Work { arguments, steps_per_us, position: 0, counters }), input.clone()))
    })
    .metered()
}

struct Work {
    arguments: Arguments,
    steps_per_us: u64,
    /// Records since the last one that it computed for.
    position: u64,
    counters: HandlerCounters,
}

impl Handler for Work {
    fn process(&mut self, _batch: &Batch, selection: &mut Selection, _out: &mut dyn Sink) -> Verdict {
        let (ns, every) = (self.arguments.whole("ns"), self.arguments.whole("every"));
        let steps = ns * self.steps_per_us / 1000;
        for _ in &*selection {
            self.position += 1;
            if self.position >= every {
                self.position = 0;
                compute(steps);
            }
        }
        self.counters.records_in += selection.len() as u64;
        self.counters.passed += selection.len() as u64;
        Verdict::forward(selection)
    }

    fn counters(&self) -> HandlerCounters {
        self.counters
    }

    fn set_parameters(&mut self, values: &mut ParameterValues) -> bool {
        self.arguments.exchange(values)
    }
}

/// Multiplications that wait for one another: they take the same time whatever runs beside them on the core.
#[inline(never)]
fn compute(steps: u64) {
    let mut value = black_box(1u64);
    for _ in 0..steps {
        value = black_box(value.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
}

/// How many steps a microsecond has. Measured once, off the core; no time is asked for while handlers run.
fn steps_per_us() -> u64 {
    const STEPS: u64 = 20_000;
    static MEASURED: OnceLock<u64> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        let round = || {
            let start = Instant::now();
            compute(STEPS);
            start.elapsed().as_nanos() as u64
        };
        // A round that is longer than the shortest was interrupted.
        let shortest_ns = (0..20).map(|_| round()).min().unwrap_or(0);
        (STEPS * 1000 / shortest_ns.max(1)).max(1)
    })
}
