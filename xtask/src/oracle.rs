//! DuckDB in a virtual environment of our own, which the tests hold the interpreter's answers against.

use std::path::PathBuf;
use std::process::Command;

use crate::steps::{Outcome, Steps};

/// The version that the tests' expectations were read from. A new one is taken by hand, with the tests run.
const VERSION: &str = "2.0.0";

/// The variable by which the tests find a Python that can `import duckdb`. Without it they leave the comparison out.
pub(crate) const VARIABLE: &str = "CROSSDOCK_DUCKDB_PYTHON";

/// A Python that can import DuckDB: the one that the variable names already, or one of ours, made on first use.
pub(crate) fn step(steps: &mut Steps<'_>) -> Option<PathBuf> {
    let mut found = None;
    steps.step("DuckDB to compare with", |steps| match python(steps) {
        Ok(python) => {
            let note = format!("{VARIABLE}={}", steps.place.short(&python));
            found = Some(python);
            Outcome::Passed(note)
        }
        Err(why) => Outcome::Skipped(format!("{why}; the comparison with DuckDB is left out")),
    });
    found
}

/// A Python that can import DuckDB: the one that [`VARIABLE`] names, or one of ours, made on first use.
///
/// # Errors
/// There is none, and none can be made.
pub(crate) fn python(steps: &Steps<'_>) -> Result<PathBuf, String> {
    if let Some(given) = std::env::var_os(VARIABLE).map(PathBuf::from) {
        let ready = imports(&given).is_some_and(|version| !version.is_empty());
        return if ready { Ok(given) } else { Err(format!("{VARIABLE} names a Python that cannot import duckdb")) };
    }
    let folder = steps.place.target.join(format!("duckdb-{VERSION}"));
    let python = folder.join("bin/python");
    if imports(&python).as_deref() == Some(VERSION) {
        return Ok(python);
    }
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv", "--clear"]).arg(&folder);
    steps.call_or_say("python3 -m venv", venv, "install python3 and python3-venv")?;
    let mut pip = Command::new(&python);
    // A wheel or nothing: building DuckDB from its source would take half an hour.
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
    pip.arg(format!("duckdb=={VERSION}"));
    steps.call_or_say("pip install duckdb", pip, "it needs PyPI once")?;
    Ok(python)
}

/// The version of DuckDB that a Python imports.
fn imports(python: &PathBuf) -> Option<String> {
    let out = Command::new(python).args(["-c", "import duckdb; print(duckdb.__version__)"]).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}
