//! The job in a c-core: its loop looks whether a batch is due, as it would look at its device, and runs it to completion.

use super::{Schedule, feed, job};
use crate::cores;
use crate::cpu::Error;
use crossdock_runtime::rig::{self, Source};

/// Latencies of all batches, in ns; with the c-core before other threads of its CPU, or as one of them.
pub(super) fn run(cpu: usize, goes_first: bool, run_ms: u64) -> Result<Vec<u64>, Error> {
    let run = || in_place(cpu, goes_first, run_ms).map_err(|error| error.to_string());
    let ran = std::thread::scope(|scope| scope.spawn(run).join());
    Ok(ran.map_err(|_| "the c-core panicked")??)
}

fn in_place(cpu: usize, goes_first: bool, run_ms: u64) -> Result<Vec<u64>, Error> {
    crossdock_device::pin_to_cpu(cpu)?;
    if goes_first {
        cores::raise_priority();
    }
    let (mut cores, mut rig) = rig::start(&[None], 1)?;
    let mut from = Source::Stream(0);
    let wait = &mut || {
        cores.turn();
        true
    };
    for (number, step) in (1..).zip(job()?) {
        from = Source::Node(rig.put(vec![step.entry], 0, from, number, wait)?);
    }
    rig.deliver(from, wait)?;
    let mut feed = feed()?;
    let schedule = Schedule::begin(run_ms);
    let mut latencies = Vec::with_capacity(schedule.batches as usize);
    for batch in 0..schedule.batches {
        let due_ns = Schedule::due_ns(batch);
        while schedule.now_ns() < due_ns {
            cores.turn();
        }
        cores.offer(0, feed.next());
        cores.turn();
        let mut records = 0;
        cores.delivered(|made| records += made.len());
        // Nothing comes of a batch without late flights.
        if records > 0 {
            latencies.push(schedule.now_ns().saturating_sub(due_ns));
        }
    }
    Ok(latencies)
}
