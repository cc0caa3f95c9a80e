//! `crossdock ping`: round trips to the daemon over packets.

use std::time::{Duration, Instant};

use crossdock_nectarine::Pinger;
use serde::Serialize;

use crate::cli::Ping;
use crate::connecting::{self, link_failure};
use crate::failure::{Failure, Outcome};
use crate::out;
use crate::quantity::counted;
use crate::signals::Interrupt;
use crate::trace::TraceOutput;

/// How long the daemon may take to grant a session.
const CONNECT: Duration = Duration::from_secs(3);
/// How often a pause looks whether a signal has come.
const LOOK: Duration = Duration::from_millis(100);

/// The report in standard output with `--json`.
#[derive(Debug, PartialEq, Serialize)]
struct Report<'a> {
    address: &'a str,
    sent: u64,
    lost: u64,
    min_us: Option<f64>,
    median_us: Option<f64>,
    max_us: Option<f64>,
}

impl<'a> Report<'a> {
    fn of(address: &'a str, sent: u64, times: &mut [Duration]) -> Report<'a> {
        times.sort_unstable();
        let us = |time: Option<&Duration>| time.map(|time| time.as_nanos() as f64 / 1e3);
        let middle = times.len().checked_sub(1).map(|last| last / 2);
        Report {
            address,
            sent,
            lost: sent - times.len() as u64,
            min_us: us(times.first()),
            median_us: us(middle.and_then(|middle| times.get(middle))),
            max_us: us(times.last()),
        }
    }

    fn words(&self) -> String {
        let mut words = format!("{}, {} lost", counted(self.sent, "round trip"), self.lost);
        if let (Some(min), Some(median), Some(max)) = (self.min_us, self.median_us, self.max_us) {
            words += &format!("; least {}, median {}, most {}", micros(min), micros(median), micros(max));
        }
        words
    }
}

/// A time as people read it.
fn micros(us: f64) -> String {
    match us {
        _ if us >= 1e6 => format!("{:.2} s", us / 1e6),
        _ if us >= 1e3 => format!("{:.2} ms", us / 1e3),
        _ => format!("{us:.1} us"),
    }
}

/// `crossdock ping`.
pub(crate) fn run(arguments: &Ping) -> Outcome {
    let Ping { count, interval, timeout, json, address, tracing, keys } = arguments;
    if *count == 0 {
        return Err(Failure::usage("--count is at least 1"));
    }
    let trace = TraceOutput::begin(tracing, "ping")?;
    let interrupt = Interrupt::install()?;
    interrupt.arm();
    let over = (connecting::keys(keys)?, connecting::route(keys)?);
    let mut pinger = Pinger::connect_over(address, over, CONNECT, trace.get()).map_err(link_failure)?;
    let (mut times, mut sent) = (Vec::new(), 0);
    let mut one = |pinger: &mut Pinger| {
        let next = Instant::now() + *interval;
        sent += 1;
        let time = pinger.ping(*timeout).map_err(link_failure)?;
        times.extend(time);
        if !json {
            let shown = time.map_or_else(|| "no answer".to_owned(), |time| micros(time.as_nanos() as f64 / 1e3));
            out::print(format!("{address}: {shown}\n"))?;
        }
        let is_last = sent >= *count;
        while !is_last && interrupt.caught().is_none() {
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            pinger.pause(left.min(LOOK)).map_err(link_failure)?;
        }
        Ok(!is_last && interrupt.caught().is_none())
    };
    // A session that ends has its round trips reported too.
    let ended: Outcome<()> = loop {
        match one(&mut pinger) {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(failure) => break Err(failure),
        }
    };
    let report = Report::of(address, sent, &mut times);
    if *json {
        out::print_json(&report)?;
    } else {
        out::say(report.words());
    }
    ended?;
    match interrupt.caught() {
        Some(signal) => Err(Failure::Interrupted(signal)),
        None if times.is_empty() => Err(Failure::failed(format!("no answer came from {address}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_the_least_the_middle_and_the_most() {
        let mut times = [900, 100, 1_500_000].map(Duration::from_micros);
        let report = Report::of("here:1", 4, &mut times);
        let us = (report.min_us, report.median_us, report.max_us);
        assert_eq!((report.lost, us), (1, (Some(100.0), Some(900.0), Some(1_500_000.0))));
        assert_eq!(report.words(), "4 round trips, 1 lost; least 100.0 us, median 900.0 us, most 1.50 s");
        let none = Report::of("here:1", 1, &mut []);
        assert_eq!((none.words().as_str(), none.min_us), ("1 round trip, 1 lost", None));
    }
}
