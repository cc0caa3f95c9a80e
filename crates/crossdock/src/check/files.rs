//! The daemon's limit of open files, raised at its start.

use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::wanted::Wanted;
use crate::config::Config;

/// Raises the limit of open files of a daemon of this configuration as far as its process may.
///
/// # Errors
/// In words, how many clients can attach, if they are fewer than the configuration allows.
pub(crate) fn raise_limit(config: &Config, directory: &Path) -> Result<(), String> {
    let hard = getrlimit(Resource::Nofile).maximum;
    // If it is refused, the limit stays, and is what counts.
    let _raised = setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard });
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    Wanted::of(config, directory).few_files(limit).map_or(Ok(()), Err)
}
