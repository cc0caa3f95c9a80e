//! Where a subscriber's rows go: standard output, or a file that gets its name when it is complete.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::failure::{Failure, Outcome};
use crate::out;
use crate::signals::Interrupt;

/// The destination of rows.
pub(crate) enum OutputTarget {
    /// Standard output.
    Stdout,
    /// A file, which is written under another name.
    File(Incomplete),
}

/// A file that is not complete yet.
pub(crate) struct Incomplete {
    file: File,
    /// Its name until then.
    part: PathBuf,
    /// Its name once it is complete.
    path: PathBuf,
}

impl OutputTarget {
    /// Standard output, or the file of this path.
    ///
    /// # Errors
    /// The file cannot be made, another command writes it, or it is to be compressed.
    pub(crate) fn new(path: Option<&Path>) -> Outcome<OutputTarget> {
        let Some(path) = path else { return Ok(OutputTarget::Stdout) };
        if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz")) {
            return Err(Failure::usage("--to writes no gzip").hint("leave it out, and add: | gzip > FILE"));
        }
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = open_alone(&part)?;
        Ok(OutputTarget::File(Incomplete { file, part, path: path.to_owned() }))
    }

    /// Writes text, until a signal comes. Gives how many bytes were written, and whether writing failed behind them.
    pub(crate) fn write(&self, text: &[u8], interrupt: &Interrupt) -> (usize, Outcome) {
        match self {
            OutputTarget::Stdout => out::print_until(text, interrupt),
            OutputTarget::File(Incomplete { file, part, .. }) => {
                out::write_until(file.as_fd(), text, interrupt, |error| unwritten(part, &error))
            }
        }
    }

    /// Whether nobody reads it any more.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self, OutputTarget::Stdout) && out::is_closed()
    }

    /// All of it is written: the file gets its name, in place of one that has had it.
    ///
    /// # Errors
    /// The system's; the file keeps the other name.
    pub(crate) fn complete(&self) -> Outcome {
        let OutputTarget::File(Incomplete { file, part, path }) = self else { return Ok(()) };
        file.sync_all().and_then(|()| fs::rename(part, path)).map_err(|error| unwritten(path, &error))
    }

    /// Nothing is to be written: no file of either name is made or changed.
    pub(crate) fn discard(&self) {
        if let OutputTarget::File(Incomplete { part, .. }) = self {
            // A user that cannot remove it finds it empty.
            let _ = fs::remove_file(part);
        }
    }

    /// It ends before its end; reports the name of the part.
    pub(crate) fn leave(&self) {
        if let OutputTarget::File(Incomplete { part, path, .. }) = self {
            out::say(format_args!("the output is incomplete: it is in {}, not in {}", part.display(), path.display()));
        }
    }
}

/// Opens a file to write it from its beginning, unless another process writes it.
fn open_alone(part: &Path) -> Outcome<File> {
    let failed = |error: io::Error| Failure::usage(format!("cannot write to {}: {error}", part.display()));
    loop {
        let file = File::options().create(true).truncate(false).write(true).open(part).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let text = format!("another command writes {}", part.display());
                return Err(Failure::usage(text).hint("wait for its end, or name another file"));
            }
            // A file system without locks.
            Err(Errno::NOTSUP | Errno::NOSYS) => {}
            Err(error) => return Err(failed(error.into())),
        }
        // Its writer may have given it its name in the meantime.
        let own = file.metadata().map_err(failed)?.ino();
        if fs::metadata(part).is_ok_and(|there| there.ino() == own) {
            file.set_len(0).map_err(failed)?;
            return Ok(file);
        }
    }
}

/// A file that cannot be written to.
fn unwritten(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot write to {}: {error}", path.display()))
}
