//! `chain`: what handlers one behind the other cost (data-compatibility-2005, section 5.1): dummy handlers in one context and
//! in several (its table 1), and two real ones in either order (its figure 3).

mod orders;
mod stages;

use crate::cores::{self, Cores};
use crate::cpu::{self, Error};
use crate::report::{self, Figure, Samples};
use clap::Args;

/// How the benchmark is run.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// Rounds; each runs every case
    #[arg(long, default_value_t = 9)]
    rounds: u32,
    /// Thousands of messages that each case handles in a round
    #[arg(long, default_value_t = 2000)]
    thousands: u64,
}

/// Runs the benchmark and prints its figures.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    let machine = cpu::machine();
    let (cpus, cores) = match Cores::choose(None, None) {
        Ok(cores) => ((cores.client, cores.daemon), cores.relation()),
        Err(_) => ((0, 0), "one core, shared by all contexts".to_owned()),
    };
    let cores = format!(
        "same_context: a thread on CPU {}; across_contexts: contexts in turn on CPU {} and CPU {}, {cores}; batches of {} \
         records of 304 bytes, one packet each, or of one",
        cpus.0,
        cpus.0,
        cpus.1,
        stages::AT_A_TIME,
    );
    eprintln!("{machine}\n{cores}");
    crossdock_device::pin_to_cpu(cpus.0)?;
    // Further threads get both from this one.
    cores::raise_priority();
    let messages = options.thousands * 1000;
    let mut stages = stages::Cases::new(cpus.1)?;
    let mut orders = orders::Cases::new()?;
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        stages.round(messages)?;
        orders.round(messages / 4)?;
    }
    let mut figures = stages.figures();
    figures.extend(orders.figures());
    report::print(&figures, options.json, &machine, Some(&cores));
    Ok(())
}

/// A figure of this benchmark.
fn figure(case: String, metric: &'static str, unit: &'static str, samples: Samples) -> Figure {
    Figure { bench: "chain", case, metric, unit, samples, baseline: None, ratios: None }
}
