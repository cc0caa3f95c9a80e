//! Values out of files that are read again while the daemon runs, once the files have changed.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossdock_runtime::FileState;

use crate::failure::Outcome;

/// A value out of files.
pub(crate) struct Watched<T> {
    /// The value, in words: `certificate`.
    what: &'static str,
    paths: Vec<PathBuf>,
    read: Box<dyn Fn() -> Outcome<T> + Send + Sync>,
    in_force: Mutex<InForce<T>>,
}

/// The value as it was read last.
struct InForce<T> {
    value: T,
    states: Vec<Option<FileState>>,
    /// Why files that have changed were not taken, as it was reported.
    reported: Option<String>,
}

impl<T> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("what", &self.what).field("paths", &self.paths).finish_non_exhaustive()
    }
}

impl<T: Clone> Watched<T> {
    /// Reads the value by `read`, out of these files. `what`: the value, in words.
    ///
    /// # Errors
    /// Those of `read`.
    pub(crate) fn read(
        what: &'static str,
        paths: Vec<PathBuf>,
        read: impl Fn() -> Outcome<T> + Send + Sync + 'static,
    ) -> Outcome<Watched<T>> {
        // First: a change while they are read is one.
        let states = states_of(&paths);
        let in_force = Mutex::new(InForce { value: read()?, states, reported: None });
        Ok(Watched { what, paths, read: Box::new(read), in_force })
    }

    fn in_force(&self) -> MutexGuard<'_, InForce<T>> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value in force.
    pub(crate) fn value(&self) -> T {
        self.in_force().value.clone()
    }

    /// Reads the files again if one has changed. Files that do not fit are reported once, tried again each time, and the last value
    /// stays in force: a certificate and its key are seldom replaced in the same moment.
    pub(crate) fn look(&self) {
        let states = states_of(&self.paths);
        let mut in_force = self.in_force();
        if states == in_force.states {
            return;
        }
        match (self.read)() {
            Ok(value) => {
                *in_force = InForce { value, states, reported: None };
                tracing::info!("the control API has another {}", self.what);
            }
            Err(failure) => {
                let why = format!("{}; the last {} stays in force", failure.message(), self.what);
                if in_force.reported.as_ref() != Some(&why) {
                    tracing::warn!("{why}");
                    in_force.reported = Some(why);
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
impl<T> Watched<T> {
    /// Why files that have changed were not taken.
    pub(crate) fn reported(&self) -> Option<String> {
        self.in_force.lock().unwrap().reported.clone()
    }
}

fn states_of(paths: &[PathBuf]) -> Vec<Option<FileState>> {
    paths.iter().map(|path| FileState::of(path)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;
    use crate::failure::Failure;

    #[test]
    fn a_changed_file_is_read_again_and_one_that_does_not_fit_is_tried_again() {
        let directory = tempfile::tempdir().unwrap();
        let paths = ["one", "other"].map(|name| directory.path().join(name));
        paths.iter().for_each(|path| std::fs::write(path, "1").unwrap());
        let read_paths = paths.clone();
        let watched = Watched::read("sum", paths.to_vec(), move || {
            read_paths.iter().try_fold(0, |sum, path| {
                let text = std::fs::read_to_string(path).map_err(Failure::failed)?;
                text.parse::<u64>().map(|number| sum + number).map_err(Failure::failed)
            })
        })
        .unwrap();
        assert_eq!(watched.value(), 2);
        for (path, text, value) in [(0, "20", 21), (1, "none", 21), (0, "300", 21), (1, "4000", 4300)] {
            std::fs::write(&paths[path], text).unwrap();
            watched.look();
            assert_eq!(watched.value(), value, "{text}");
            assert_eq!(watched.reported().is_some(), value == 21 && text != "20", "{text}");
        }
        std::fs::remove_file(&paths[0]).unwrap();
        watched.look();
        assert_eq!(watched.value(), 4300);
        assert!(Watched::read("sum", Vec::new(), || Err::<u64, _>(Failure::usage("none"))).is_err());
    }
}
