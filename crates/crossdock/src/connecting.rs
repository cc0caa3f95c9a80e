//! Connects `publish` and `subscribe` to their daemon, which with `--reconnect` need not be there yet.

use crossdock_nectarine::Error;

use crate::cli::Daemon;
use crate::failure::Failure;

/// Connects; `connect` is given whether to wait for a daemon that is not there yet, and `say` a line for the user. With
/// `--reconnect` such a daemon is waited for, until Ctrl-C ends the process.
///
/// # Errors
/// Those of `connect`.
pub(crate) fn connect<T>(
    daemon: &Daemon,
    say: impl FnOnce(String),
    connect: impl Fn(bool) -> Result<T, Error>,
) -> Result<T, Error> {
    match connect(false) {
        Err(error) if daemon.reconnect && error.is_no_daemon() => {
            say(format!("waiting for a daemon at {} (`crossdock serve` starts one); Ctrl-C ends", daemon.address));
            connect(true)
        }
        connected => connected,
    }
}

/// An error of the library, as that of a command.
pub(crate) fn link_failure(error: Error) -> Failure {
    if error.is_usage() { Failure::usage(error) } else { Failure::failed(error) }
}
