//! Crossdock's own processes, started and listened to.

use super::baselines::{measured, role};
use super::{Bench, Measured};
use crate::broker;
use crate::cpu::{self, Error};
use crate::daemon::Daemon;
use crossdock_nectarine::Transport;
use std::time::Duration;

/// A daemon whose context has its core for itself. `more` are further settings of its `[context]`.
fn daemon(bench: &Bench, more: &str) -> Result<Daemon, Error> {
    Daemon::start(&format!("[context]\npin_cpu = {}\n{more}", bench.cores.daemon))
}

/// Round trips through two mailboxes and a task.
pub(super) fn round_trips(bench: &Bench, how: &[&str], more: &str) -> Result<Measured, Error> {
    let daemon = daemon(bench, more)?;
    let cpu = bench.client_cpu();
    let mut client = role(&[&["ping", &daemon.addr, &cpu], how].concat())?;
    let report = client.next_report()?;
    client.end()?;
    Ok(measured(&report))
}

/// The same, polling, in turn with the floor.
pub(super) fn round_trips_and_floor(bench: &Bench, work: &str, bytes: &str) -> Result<Measured, Error> {
    round_trips(bench, &[work, bytes, "polling", "--floor-cpu", &bench.daemon_cpu()], "")
}

/// Round trips by syncs, in turn with the floor.
pub(super) fn sync(bench: &Bench) -> Result<Measured, Error> {
    let daemon = daemon(bench, "")?;
    let mut client = role(&["sync", &daemon.addr, &bench.client_cpu(), &bench.daemon_cpu()])?;
    let report = client.next_report()?;
    client.end()?;
    Ok(measured(&report))
}

/// Round trips that a thread of another process answers, on the core where else the daemon's context would have done it.
pub(super) fn reader_thread(bench: &Bench) -> Result<Measured, Error> {
    let daemon = daemon(bench, "")?;
    let cpu = bench.client_cpu();
    let mut client = role(&["ping", &daemon.addr, &cpu, "enqueue", "64", "blocking", "--no-task"])?;
    client.next_report()?;
    let mut thread = role(&["answer", &daemon.addr, &bench.daemon_cpu()])?;
    thread.next_report()?;
    client.go()?;
    let report = client.next_report()?;
    client.end()?;
    thread.end()?;
    Ok(measured(&report))
}

/// Calls of a procedure that another process serves, on the core of the daemon's context.
pub(super) fn rpc(bench: &Bench) -> Result<Measured, Error> {
    let daemon = daemon(bench, "")?;
    let mut service = role(&["serve", &daemon.addr, &bench.daemon_cpu()])?;
    service.next_report()?;
    let mut client = role(&["call", &daemon.addr, &bench.client_cpu()])?;
    let report = client.next_report()?;
    client.end()?;
    service.go()?;
    service.end()?;
    Ok(measured(&report))
}

/// One way, into a task that takes each message; all have arrived, by the daemon's own account.
pub(super) fn one_way(bench: &Bench, how: &[&str]) -> Result<Measured, Error> {
    let daemon = daemon(bench, "")?;
    let mut client = role(&[&["one-way", &daemon.addr, &bench.client_cpu()], how].concat())?;
    let report = client.next_report()?;
    let sent = report["messages"].as_u64();
    let mut taken = None;
    const TRIES: u32 = 100;
    for _ in 0..TRIES {
        taken = daemon.list("mailboxes")?.first().and_then(|mailbox| mailbox["gets"].as_u64());
        if taken >= sent {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    if taken != sent {
        return Err(format!("{sent:?} messages should have arrived, {taken:?} did").into());
    }
    client.go()?;
    client.end()?;
    Ok(measured(&report))
}

/// One way, from one client to another of its domain, over direct rings by the daemon's own account.
pub(super) fn one_way_clients(bench: &Bench) -> Result<Measured, Error> {
    let daemon = daemon(bench, "")?;
    let mut source = role(&["source", &daemon.addr, &bench.client_cpu()])?;
    source.next_report()?;
    let mut sink = role(&["sink", &daemon.addr, &bench.daemon_cpu()])?;
    sink.next_report()?;
    source.go()?;
    let (sent, taken) = (source.next_report()?, sink.next_report()?);
    if sent["messages"] != taken["messages"] {
        return Err(format!("{} messages should have arrived, {} did", sent["messages"], taken["messages"]).into());
    }
    if daemon.list("mailboxes")?.first().is_none_or(|mailbox| mailbox["direct"] != true) {
        return Err("the messages should have passed directly, and came over the daemon".into());
    }
    for mut end in [source, sink] {
        end.go()?;
        end.end()?;
    }
    Ok(measured(&sent))
}

/// CPU of a client that waits for a message, and of the daemon beside it.
pub(super) fn idle_client(bench: &Bench) -> Result<Measured, Error> {
    const WATCH: Duration = Duration::from_secs(2);
    /// A waiting process looks about for a moment before it sleeps.
    const SETTLE: Duration = Duration::from_millis(200);
    let daemon = daemon(bench, "")?;
    let mut client = role(&["idle", &daemon.addr])?;
    client.next_report()?;
    std::thread::sleep(SETTLE);
    let before = (cpu::process_ns(client.pid())?, daemon.cpu_ns()?);
    std::thread::sleep(WATCH);
    let percent = |before: u64, after: u64| (after - before) as f64 / WATCH.as_nanos() as f64 * 100.0;
    let client_percent = percent(before.0, cpu::process_ns(client.pid())?);
    let daemon_percent = percent(before.1, daemon.cpu_ns()?);
    let figures = [("cpu_percent", client_percent), ("daemon_cpu_percent", daemon_percent)];
    Ok(figures.map(|(metric, value)| (metric.to_owned(), value)).into())
}

/// The broker's job, `SELECT * FROM A` over flights.
pub(super) fn broker(bench: &Bench, transport: Transport) -> Result<Measured, Error> {
    let daemon = Daemon::start("")?;
    let figures = broker::throughput("forward", "SELECT * FROM A", bench.millions, transport, &daemon)?;
    Ok(figures.map(|(metric, value)| (metric.to_owned(), value)).into())
}
