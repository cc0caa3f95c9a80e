//! Twice as much is asked for as fits; and then twice as much comes as was said when it was let in.

use crate::cores::Cores;
use crate::cpu::Error;
use crate::inside::{self, Shared, pinned};
use crate::report::{Table, quantile};
use crossdock_runtime::{ChangeRequest, ContextHandle, HandlerSpec};
use std::time::Duration;

/// Records published at a time, and the time between: 25,000 records a second.
const AT_A_TIME: u64 = 2;
const EVERY_US: u64 = 80;
/// The computing time of each handler for a record, in ns: 25 ms a second.
const WORK_NS: u64 = 1000;
/// Handlers that allow it are sampled down to one record in `MAX_SAMPLING`.
const MAX_SAMPLING: u32 = 16;
/// The stream whose latency is taken, and the handler that makes it.
const PROBE: &str = "probe";

fn spec(name: &str, ns: u64, rate: u64) -> HandlerSpec {
    HandlerSpec {
        name: name.to_owned(),
        native: Some("work".to_owned()),
        input_streams: vec!["s".to_owned()],
        parameters: [("ns".to_owned(), ns.to_string())].into(),
        place: Some("c-core-0".to_owned()),
        peak_msgs_per_s: Some(rate),
        ..HandlerSpec::default()
    }
}

/// The handlers that were let in, and their losses.
struct Outcome {
    offered_share: f64,
    admitted_share: f64,
    refused: f64,
    lost: u64,
    sampled: u64,
}

fn run(context: &ContextHandle, shared: &Shared, latency: Duration) -> Result<Outcome, Error> {
    let rate = shared.rate();
    let time = || {
        shared.time(true);
        std::thread::sleep(latency);
        shared.time(false);
        // A pass that writes latencies down has seen that by then.
        std::thread::sleep(Duration::from_millis(100));
    };
    // The subscriber has the stream by then.
    std::thread::sleep(Duration::from_millis(500));
    time();
    // The time that handlers may have: without the margin and what system work takes.
    let capacity = |context: &ContextHandle| {
        let contexts = context.manager().contexts().map_err(|_| "the managers have stopped")?;
        let io_context = contexts.iter().find(|context| context.name == "c-core-0").ok_or("no context c-core-0")?;
        Ok::<f64, Error>(io_context.headroom_ns_per_s as f64)
    };
    let capacity = capacity(context)?;
    let load = (WORK_NS * rate) as f64;
    let offered = (2.0 * capacity / load).ceil() as usize;
    let mut refused = 0;
    for at in 0..offered {
        let mut spec = spec(&format!("h{at}"), WORK_NS, rate);
        spec.max_sampling = Some(MAX_SAMPLING);
        if let Err(why) = inside::change(context, ChangeRequest::Deploy(spec))? {
            if refused == 0 {
                eprintln!("the first that was refused: {why}");
            }
            refused += 1;
        }
    }
    std::thread::sleep(Duration::from_millis(1200));
    time();
    let infos = |context: &ContextHandle| context.manager().handlers().map_err(|_| "the managers have stopped");
    let admitted: u64 = infos(context)?.iter().map(|info| info.measured.time_ns_per_s).sum();
    shared.set_at_a_time(2 * AT_A_TIME);
    std::thread::sleep(Duration::from_millis(1200));
    time();
    let dropped = |is_sampled: bool| {
        let all = infos(context)?.into_iter().flat_map(|info| info.dropped);
        Ok::<u64, Error>(all.filter(|(why, _)| (why == "sampled") == is_sampled).map(|(_, records)| records).sum())
    };
    Ok(Outcome {
        offered_share: offered as f64 * load / capacity,
        admitted_share: admitted as f64 / capacity,
        refused: f64::from(refused),
        // Records without a subscriber are no loss.
        lost: dropped(false)?,
        sampled: dropped(true)?,
    })
}

pub(super) fn round(table: &mut Table, cores: Cores, latency_ms: u64) -> Result<(), Error> {
    let (context, addr) = inside::daemon(cores)?;
    let shared = Shared::new(AT_A_TIME, EVERY_US);
    let words = |error: Error| error.to_string();
    let (outcome, runs) = std::thread::scope(|scope| {
        let publisher = scope.spawn(|| pinned(cores.client).and_then(|()| shared.publish(&addr, "s")).map_err(words));
        std::thread::sleep(Duration::from_millis(300));
        let deployed = inside::deploy(&context, spec(PROBE, 0, shared.rate())).map_err(words);
        let subscriber =
            scope.spawn(|| pinned(cores.client).and_then(|()| shared.subscribe(&addr, PROBE)).map_err(words));
        let ran = deployed.and_then(|()| run(&context, &shared, Duration::from_millis(latency_ms)).map_err(words));
        shared.end();
        let published = publisher.join().map_err(|_| "the publisher panicked".to_owned()).and_then(|done| done);
        let outcome = published.and(ran)?;
        let runs = subscriber.join().map_err(|_| "the subscriber panicked".to_owned())??;
        Ok::<_, String>((outcome, runs))
    })?;
    context.stop()?;
    let runs = <[Vec<u64>; 3]>::try_from(runs).map_err(|runs| format!("{} runs were timed, not 3", runs.len()))?;
    let [unloaded, loaded, surge] = runs.map(|mut run| quantile(&mut run, 0.99) as f64 / 1e3);
    eprintln!(
        "admitted {:.2} of what was free; {} records sampled, {} lost; p99 {unloaded:.0} us unloaded, {loaded:.0} loaded, {surge:.0} in a \
         surge",
        outcome.admitted_share, outcome.sampled, outcome.lost
    );
    table.push("overload", "admitted_share", outcome.admitted_share, None);
    table.push("overload", "admitted_lost", outcome.lost as f64, None);
    table.push("overload", "admitted_sampled", outcome.sampled as f64, None);
    table.push("overload", "refused", outcome.refused, None);
    table.push("overload", "offered_share", outcome.offered_share, None);
    table.push("overload", "p99_ratio", loaded.max(surge) / unloaded, None);
    table.push("overload", "latency_us_p99", loaded, Some(unloaded));
    table.push("overload", "surge_latency_us_p99", surge, Some(unloaded));
    Ok(())
}
