//! `--trace`, of the commands that have a session.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// The trace of a command's session.
#[derive(Debug, Args)]
pub(crate) struct Tracing {
    /// Write all packets of the session, and the state of its path, to FILE in the format of qlog (.sqlog); the session then goes
    /// by packets, also on one machine
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) trace: Option<PathBuf>,
}
