//! The state of a file, by which a change of it is noticed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The difference between two states of a file: when it was written and changed, in s and ns, which file it is, its length, and who
/// may read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    written: (i64, i64),
    changed: (i64, i64),
    file: (u64, u64),
    bytes: u64,
    access: (u32, u32, u32),
}

impl FileState {
    /// The present state of a file; `None` where there is none, or it is not to be seen.
    #[must_use]
    pub fn of(path: &Path) -> Option<FileState> {
        let there = std::fs::metadata(path).ok()?;
        Some(FileState {
            written: (there.mtime(), there.mtime_nsec()),
            changed: (there.ctime(), there.ctime_nsec()),
            file: (there.dev(), there.ino()),
            bytes: there.size(),
            access: (there.mode(), there.uid(), there.gid()),
        })
    }
}
