//! Connects `publish` and `subscribe` to their daemon, which with `--reconnect` need not be there yet.

use crossdock_nectarine::{Error, NodeRoute, PrivateKey, PublicKey};

use crate::cli::{Daemon, Keys};
use crate::failure::{Failure, Outcome};
use crate::keyfile;

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

/// The client's key and the daemon's, if a command is given them.
///
/// # Errors
/// The file with the client's cannot be used.
pub(crate) fn keys(keys: &Keys) -> Outcome<Option<(PrivateKey, PublicKey)>> {
    let (Some(path), Some(daemon)) = (&keys.key, keys.daemon_key) else { return Ok(None) };
    Ok(Some((keyfile::read_private(path)?, daemon)))
}

/// The source route, if a command is given one.
///
/// # Errors
/// It is none.
pub(crate) fn route(keys: &Keys) -> Outcome<Option<NodeRoute>> {
    let route = keys.route_key.map(|last| NodeRoute::new(keys.route.iter().cloned(), last));
    route.transpose().map_err(link_failure)
}
