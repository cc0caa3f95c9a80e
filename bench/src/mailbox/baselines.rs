//! The baselines' processes, started and listened to.

#[cfg(feature = "iceoryx2")]
use super::iceoryx2;
use super::{Bench, Measured};
use crate::cpu::Error;
use crate::process::Process;
use serde_json::Value;

/// A role of this benchmark with its arguments.
pub(super) fn role(args: &[&str]) -> Result<Process, Error> {
    let args: Vec<String> = ["mailbox"].iter().chain(args).map(|&arg| arg.to_owned()).collect();
    Process::role(&args)
}

/// The figures of a role, by metric.
pub(super) fn measured(report: &Value) -> Measured {
    let figures = report.as_object().into_iter().flatten();
    figures.filter_map(|(metric, value)| Some((metric.clone(), value.as_f64()?))).collect()
}

/// Both sides of a baseline, the one that waits first.
fn pair(waits: &[&str], goes: &[&str]) -> Result<Measured, Error> {
    let mut waiting = role(waits)?;
    waiting.next_report()?;
    let mut going = role(goes)?;
    let report = going.next_report()?;
    going.end()?;
    waiting.end()?;
    Ok(measured(&report))
}

/// The floor of messages of 64 bytes that are filled and read both ways.
pub(super) fn payload_floor(bench: &Bench) -> Result<Measured, Error> {
    let mut floor = role(&["payload-floor", &bench.client_cpu(), &bench.daemon_cpu()])?;
    let report = floor.next_report()?;
    floor.end()?;
    Ok(measured(&report))
}

/// Round trips over a Unix stream.
pub(super) fn unix_stream(bench: &Bench, bytes: usize, waiting: &str) -> Result<Measured, Error> {
    let (name, bytes) = (bench.name("unix"), bytes.to_string());
    pair(
        &["unix-echo", &name, &bytes, waiting, &bench.daemon_cpu()],
        &["unix-ping", &name, &bytes, waiting, &bench.client_cpu()],
    )
}

/// One way over a Unix stream.
pub(super) fn unix_one_way(bench: &Bench) -> Result<Measured, Error> {
    let name = bench.name("unix");
    pair(&["unix-sink", &name, &bench.daemon_cpu()], &["unix-source", &name, &bench.client_cpu()])
}

/// Round trips over iceoryx2.
#[cfg(feature = "iceoryx2")]
pub(super) fn iceoryx2(bench: &Bench) -> Result<Measured, Error> {
    /// Clears away also when a side failed.
    struct Clear(String);
    impl Drop for Clear {
        fn drop(&mut self) {
            iceoryx2::clear(&self.0);
        }
    }
    let clear = Clear(bench.name("iceoryx2"));
    let name = &clear.0;
    pair(&["iceoryx2-echo", name, &bench.daemon_cpu()], &["iceoryx2-ping", name, &bench.client_cpu()])
}
