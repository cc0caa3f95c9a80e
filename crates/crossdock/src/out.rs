//! Standard output: written whole, with distinct errors. Standard error: a line at a time; errors are ignored.

use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::pipe::PIPE_BUF;
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::signals::Interrupt;

/// Writes text and makes sure that it has left.
pub(crate) fn print(text: impl AsRef<[u8]>) -> Outcome {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_ref()).and_then(|()| stdout.flush()).map_err(Failure::output)
}

/// Writes text to a reader who may be slow (`| less`), and gives up when a signal comes. Gives how many bytes were written, and
/// whether writing failed behind them.
pub(crate) fn print_until(text: &[u8], interrupt: &Interrupt) -> (usize, Outcome) {
    write_until(io::stdout().as_fd(), text, interrupt, Failure::output)
}

/// Writes text to `to`, and gives up when a signal comes. Gives how many bytes were written, and whether writing `failed` behind
/// them.
pub(crate) fn write_until(
    to: BorrowedFd<'_>,
    text: &[u8],
    interrupt: &Interrupt,
    failed: impl Fn(io::Error) -> Failure,
) -> (usize, Outcome) {
    let mut left = text;
    let outcome = write_left(to, &mut left, interrupt).map_err(failed);
    (text.len() - left.len(), outcome)
}

/// Writes until nothing is left, or a signal comes.
fn write_left(to: BorrowedFd<'_>, left: &mut &[u8], interrupt: &Interrupt) -> io::Result<()> {
    let is_pipe = fstat(to).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
    // A pipe that can be written to takes so much at once; whatever else there is does not let its writer wait for long.
    let chunk_bytes = if is_pipe { PIPE_BUF } else { usize::MAX };
    while !left.is_empty() {
        let mut fds =
            [PollFd::from_borrowed_fd(to, PollFlags::OUT), PollFd::from_borrowed_fd(interrupt.fd(), PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // A reader that is ready for more is given all of it, signal or not.
        if !fds[0].revents().is_empty() {
            // Straight to the file: the library's buffer would cut the chunks otherwise.
            match rustix::io::write(to, &left[..left.len().min(chunk_bytes)]) {
                Ok(written) => *left = &left[written..],
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        } else if interrupt.caught().is_some() {
            return Ok(());
        }
    }
    Ok(())
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

/// Whether whoever read standard output has gone. Writing would show it too, but only when there is something to write.
pub(crate) fn is_closed() -> bool {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut fds, Some(&at_once)), Ok(1..)) && fds[0].revents().contains(PollFlags::ERR)
}
