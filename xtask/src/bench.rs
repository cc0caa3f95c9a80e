//! Builds the product and the benchmarks as packages are built, then becomes the benchmark.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use crate::Ended;
use crate::dist::PROFILE;
use crate::oracle;
use crate::place::CargoWorkspace;
use crate::steps::{Steps, in_words};

/// Benchmarks whose peers take long to build, each with the feature of `crossdock-bench` that brings them.
const PEERS: [(&str, &str); 2] = [("mailbox", "iceoryx2"), ("formats", "formats")];

/// Benchmarks with DuckDB as a baseline.
const WITH_DUCKDB: [&str; 2] = ["join", "query"];

/// `cargo xtask bench NAME [ARGUMENTS…]`. Standard output is the benchmark's alone.
pub(crate) fn run(place: &CargoWorkspace, args: Vec<OsString>) -> Result<Ended, String> {
    let name = match args.first().map(|name| name.to_string_lossy()) {
        Some(name) if !name.starts_with('-') => name.into_owned(),
        _ => {
            return Ok(Ended::Usage("bench: which one? `cargo xtask bench NAME --json`".into()));
        }
    };
    // Not in release mode, whose libraries beside the data path are built for size: some of them are what we compare with.
    // One build each, so that features which a peer asks of a shared dependency stay out of the product.
    for package in ["crossdock", "crossdock-bench"] {
        let mut build = place.cargo(&["build", "--profile", PROFILE, "--package", package]);
        if let (Some((_, peer)), "crossdock-bench") = (PEERS.iter().find(|(bench, _)| *bench == name), package) {
            build.args(["--features", *peer]);
        }
        build.stdin(Stdio::null()).stdout(std::io::stderr());
        let status = build.status().map_err(|e| format!("{}: {e}", in_words(&build)))?;
        if !status.success() {
            return Err(format!("{} failed; correct what the compiler reports above", in_words(&build)));
        }
    }
    let built = place.target.join(PROFILE);
    let mut bench = Command::new(built.join("crossdock-bench"));
    bench.args(args).current_dir(&place.root).env("CROSSDOCK_BIN", built.join("crossdock"));
    if WITH_DUCKDB.contains(&name.as_str()) {
        match oracle::python(&Steps::new(place, false)) {
            Ok(python) => drop(bench.env(oracle::VARIABLE, python)),
            Err(why) => eprintln!("{why}; the comparison with DuckDB is left out"),
        }
    }
    let status = bench.status().map_err(|e| format!("{}: {e}", in_words(&bench)))?;
    // As a shell reports it: 128 and the signal's number where a signal ended it.
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok(Ended::Status(u8::try_from(code).unwrap_or(1)))
}
