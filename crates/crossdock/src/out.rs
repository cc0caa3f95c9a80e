//! Standard output: written whole, errors told apart. Standard error: a line at a time, come what may.

use std::fmt::Display;
use std::io::{self, Write};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use crate::failure::{Failure, Outcome};

/// Writes text and makes sure that it has left.
pub(crate) fn print(text: impl AsRef<[u8]>) -> Outcome {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_ref()).and_then(|()| stdout.flush()).map_err(Failure::output)
}

/// Says something on standard error, on a line of its own. That nobody can hear it stops nothing.
pub(crate) fn say(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Writes one object on one line.
pub(crate) fn print_json(value: &impl Serialize) -> Outcome {
    let mut line = serde_json::to_vec(value).map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))?;
    line.push(b'\n');
    print(line)
}

/// Whether whoever read standard output has gone. Writing would tell too, but only when there is something to write.
pub(crate) fn is_closed() -> bool {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut fds, Some(&at_once)), Ok(1..)) && fds[0].revents().contains(PollFlags::ERR)
}
