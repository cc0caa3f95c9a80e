//! The estimates of the core's time for generated handlers, from a sample, against the processor time that they take
//! where they run, the context's own work for their batches included.

use super::handlers::{Dice, next};
use crate::cores::Cores;
use crate::cpu::Error;
use crate::inside::{self, Shared, pinned};
use crate::report::Table;
use crossdock_runtime::info::HandlerInfo;
use crossdock_runtime::{ChangeRequest, ContextHandle};
use std::time::Duration;

/// Records published at a time, and the time between: one full packet, 100,000 records a second.
const AT_A_TIME: u64 = 26;
const EVERY_US: u64 = 260;
/// Handlers that share the core.
const SHARING: usize = 5;

/// Relative errors of a group of handlers that run at the same time.
fn errors(
    context: &ContextHandle,
    dice: &mut Dice,
    count: usize,
    rate: u64,
    measure: Duration,
) -> Result<Vec<f64>, Error> {
    let names: Vec<String> = (0..count).map(|at| format!("h{at}")).collect();
    for name in &names {
        let mut spec = next(dice, name);
        spec.peak_msgs_per_s = Some(rate);
        inside::deploy(context, spec)?;
    }
    // Each report is of the last second.
    let mut seconds = Vec::new();
    for _ in 0..measure.as_secs().max(1) {
        std::thread::sleep(measure.min(Duration::from_secs(1)));
        seconds.push(context.manager().handlers().map_err(|_| "the managers have stopped")?);
    }
    let mean = |at: usize, of: fn(&HandlerInfo) -> u64| {
        seconds.iter().filter_map(|infos| infos.get(at)).map(|info| of(info) as f64).sum::<f64>() / seconds.len() as f64
    };
    let mut errors = Vec::new();
    for (at, info) in seconds.last().into_iter().flatten().enumerate() {
        // The rate that really came.
        let came = mean(at, |info| info.rate_msgs_per_s);
        // The estimate, which admission adds a margin to.
        let margin = 1.0 + f64::from(crossdock_runtime::ESTIMATE_MARGIN_PERCENT) / 100.0;
        let predicted = info.predicted.time_ns_per_s as f64 / margin * came / rate as f64;
        let measured = mean(at, |info| info.measured.time_ns_per_s);
        eprintln!(
            "{:>6.2} predicted {predicted:>10.0} ns/s, measured {measured:>10.0}, at {came:.0} msgs/s: {} {:?}",
            predicted / measured,
            info.program,
            info.parameters
        );
        errors.push((predicted - measured).abs() / measured.max(1.0));
    }
    for name in names {
        inside::change(context, ChangeRequest::Remove { handler: name })??;
    }
    Ok(errors)
}

fn quantile(errors: &[f64], part: f64) -> f64 {
    let mut sorted = errors.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = ((sorted.len() as f64 - 1.0) * part).round();
    sorted.get(rank as usize).copied().unwrap_or(f64::NAN)
}

pub(super) fn round(table: &mut Table, cores: Cores, seed: u64, handlers: u32, measure_ms: u64) -> Result<(), Error> {
    let (context, addr) = inside::daemon(cores)?;
    let shared = Shared::new(AT_A_TIME, EVERY_US);
    let measure = Duration::from_millis(measure_ms);
    let (alone, sharing) = std::thread::scope(|scope| {
        let publisher = scope.spawn(|| {
            pinned(cores.client).and_then(|()| shared.publish(&addr, "s")).map_err(|error| error.to_string())
        });
        let measured = (|| {
            // Before the first is measured there is a sample of the stream.
            std::thread::sleep(Duration::from_millis(300));
            let (mut alone, mut sharing) = (Vec::new(), Vec::new());
            let mut dice = Dice::new(seed);
            for _ in 0..handlers {
                alone.extend(errors(&context, &mut dice, 1, shared.rate(), measure)?);
            }
            // The same handlers again.
            let mut dice = Dice::new(seed);
            for _ in 0..(handlers as usize).div_ceil(SHARING) {
                sharing.extend(errors(&context, &mut dice, SHARING, shared.rate(), measure)?);
            }
            Ok::<_, Error>((alone, sharing))
        })();
        shared.end();
        publisher.join().map_err(|_| "the publisher panicked")??;
        measured
    })?;
    context.stop()?;
    let all: Vec<f64> = alone.iter().chain(&sharing).copied().collect();
    for (metric, errors, part) in [
        ("relative_error_p90", &all, 0.9),
        ("relative_error_p50", &all, 0.5),
        ("relative_error_p90_alone", &alone, 0.9),
        ("relative_error_p90_sharing", &sharing, 0.9),
    ] {
        table.push("prediction_error", metric, quantile(errors, part), None);
    }
    Ok(())
}
