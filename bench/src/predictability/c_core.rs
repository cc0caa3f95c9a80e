//! The job in the daemon, a process of its own: the handlers are deployed at the context that has the socket, which runs each batch
//! to completion.

use super::{BATCH_EVERY_US, JOB, RECORDS_A_BATCH, STREAM, TALLY, measured};
use crate::cores::{Cores, short_turns};
use crate::cpu::Error;
use crate::daemon::Daemon;
use crate::inside::pinned;
use crate::process::Process;

/// Deploys a handler at the context that has the socket.
fn deploy(daemon: &Daemon, args: &[&str]) -> Result<(), Error> {
    // The rate of the input is known, and a burst after a pause is not to be taken for it.
    let peak = (RECORDS_A_BATCH * 1_000_000 / BATCH_EVERY_US).to_string();
    let before = ["handler", "deploy"];
    let after = ["--place", "c-core-0", "--peak", &peak, "--socket", &daemon.socket];
    let args: Vec<String> = before.iter().chain(args).chain(&after).map(|arg| (*arg).to_owned()).collect();
    Process::crossdock(&args)?.end()
}

/// Latencies of the records that come out, in ns; with the context's thread at a priority above that of others, or at
/// theirs.
pub(super) fn run(cores: Cores, goes_first: bool, run_ms: u64) -> Result<Vec<u64>, Error> {
    let priority = if goes_first { "nice = -20\n" } else { "" };
    let daemon = Daemon::start(&format!("[context]\npin_cpu = {}\n{priority}", cores.daemon))?;
    let (name, key) = TALLY;
    measured(
        run_ms,
        |shared| {
            pinned(cores.client)?;
            short_turns();
            shared.publish(&daemon.addr, STREAM)
        },
        || {
            for (name, sql) in JOB {
                deploy(&daemon, &[name, sql])?;
            }
            let (input, _) = JOB[JOB.len() - 1];
            deploy(&daemon, &[name, "--native", "tally", "--input-stream", input, "--param", &format!("key={key}")])
        },
        |shared| {
            pinned(cores.client)?;
            short_turns();
            shared.subscribe(&daemon.addr, name)
        },
    )
}
