//! State that is kept across restarts: the registry's log on disk, and the thread that writes it. The catalog never
//! waits for a disk; it hands entries over, and is notified when they are written.

use crate::worker::WorkerThread;
use crossdock_format::registry::{Entry, MAX_BYTES as REGISTRY_BYTES, MAX_ENTRY_BYTES, Registry, replay};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// The log's name in its directory.
const LOG: &str = "registry.log";
/// Its name while it is rewritten.
const NEW_LOG: &str = "registry.log.new";
/// The name to which a log is moved that could not be read to its end.
const UNREAD_LOG: &str = "registry.log.unread";
/// The file by which a daemon has the directory to itself.
const LOCK: &str = "lock";
/// Entries on their way to the thread at most.
const ENTRIES: usize = 1024;
/// Entries written with one `fsync`.
const BATCH: usize = 128;
/// Growth of the log, in bytes, from which on it is rewritten once it is also four times as long as necessary.
const GROWN_BYTES: u64 = 4 << 20;
/// The longest log that is read: more than any that was written.
const MAX_BYTES: u64 = 1 << 30;
const _: () = assert!(GROWN_BYTES + 4 * REGISTRY_BYTES as u64 + (BATCH * MAX_ENTRY_BYTES) as u64 <= MAX_BYTES);

/// The catalog's side.
pub(crate) struct StateSide {
    entries: SyncSender<Entry>,
    /// Entries that the thread had no room for.
    unsent: VecDeque<Entry>,
    /// Entries given so far, unsent ones included.
    given: u64,
    progress: Arc<Progress>,
}

/// The progress of the thread.
#[derive(Default)]
struct Progress {
    /// Entries that it is done with: on disk, or failed.
    done: AtomicU64,
    /// Of the entries up to this number some could not be written, for this reason.
    failed: Mutex<(u64, String)>,
}

impl StateSide {
    /// Hands an entry over for writing; returns its number, for [`StateSide::outcome`].
    pub(crate) fn write(&mut self, entry: Entry) -> u64 {
        self.given += 1;
        self.unsent.push_back(entry);
        self.hand_over();
        self.given
    }

    /// Whether the disk keeps up, so that clients may have more written.
    pub(crate) fn has_room(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Gives the thread what it has room for.
    pub(crate) fn hand_over(&mut self) {
        while let Some(entry) = self.unsent.pop_front() {
            match self.entries.try_send(entry) {
                Ok(()) => {}
                Err(TrySendError::Full(entry) | TrySendError::Disconnected(entry)) => {
                    self.unsent.push_front(entry);
                    return;
                }
            }
        }
    }

    /// The outcome of the entry of this number: none yet, on disk, or the error.
    pub(crate) fn outcome(&self, number: u64) -> Option<Result<(), String>> {
        if self.progress.done.load(Ordering::Acquire) < number {
            return None;
        }
        let failed = self.progress.failed.lock().unwrap_or_else(PoisonError::into_inner);
        Some(if number <= failed.0 { Err(failed.1.clone()) } else { Ok(()) })
    }
}

impl Drop for StateSide {
    /// Late entries are still handed over: the thread takes them before it ends.
    fn drop(&mut self) {
        self.unsent.drain(..).for_each(|entry| drop(self.entries.send(entry)));
    }
}

/// The restored registry, and the thread that keeps it from here on.
pub(crate) struct Started {
    pub(crate) registry: Registry,
    pub(crate) side: StateSide,
    /// It ends with the catalog.
    pub(crate) thread: WorkerThread,
    /// Parts that could not be read, in words.
    pub(crate) complaints: Vec<String>,
}

/// Reads what is kept in a directory, which is made if it is not there, and starts the thread that keeps it from here
/// on. `notify` is called whenever something more is on disk.
///
/// # Errors
/// The directory cannot be used, or another daemon uses it.
pub(crate) fn start(directory: &Path, notify: impl Fn() + Send + 'static) -> io::Result<Started> {
    std::fs::create_dir_all(directory).map_err(at(directory))?;
    let lock_path = directory.join(LOCK);
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path).map_err(at(&lock_path))?;
    lock.try_lock().map_err(|error| {
        let error = io::Error::from(error);
        let message = format!("{}: {error} (does another daemon use this state_dir?)", lock_path.display());
        io::Error::new(error.kind(), message)
    })?;
    let mut log =
        Log { directory: directory.to_owned(), file: None, bytes: 0, short_bytes: 0, registry: Registry::default() };
    let complaints = log.read()?;
    log.compact()?;
    let registry = log.registry.clone();
    let (entries, given) = sync_channel(ENTRIES);
    let progress = Arc::new(Progress::default());
    let done = Arc::clone(&progress);
    let write = move |first: Entry, given: &Receiver<Entry>| {
        // Another daemon may have the directory once the thread has ended.
        let _ = &lock;
        log.write(first, given, &done);
        notify();
    };
    let thread = WorkerThread::start("g-core-state", given, write)?;
    let side = StateSide { entries, unsent: VecDeque::new(), given: 0, progress };
    Ok(Started { registry, side, thread, complaints })
}

/// An error with the path that it is about.
fn at(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The log, and what it comes to.
struct Log {
    directory: PathBuf,
    /// Open at its end; `None` after a failure that could not be repaired.
    file: Option<File>,
    /// Length of its whole lines.
    bytes: u64,
    /// Its length when it was last rewritten.
    short_bytes: u64,
    registry: Registry,
}

impl Log {
    fn path(&self) -> PathBuf {
        self.directory.join(LOG)
    }

    /// Reads what is there. A log with anything in it that is not understood stays beside the new one; what that was,
    /// in words.
    fn read(&mut self) -> io::Result<Vec<String>> {
        let path = self.path();
        let mut bytes = Vec::new();
        match File::open(&path) {
            Ok(file) => {
                file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(at(&path))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(at(&path)(error)),
        }
        if bytes.len() as u64 > MAX_BYTES {
            // Reading a part of it would forget the rest.
            let message = format!("{}: it has more than {MAX_BYTES} bytes, the bound of a log", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        let replayed = replay(&bytes);
        self.registry = replayed.registry;
        let mut complaints = Vec::new();
        for (place, error) in replayed.passed_over {
            let why = error.map_or_else(|| "it was written by another release".to_owned(), |error| error.to_string());
            complaints.push(format!("{}: the entry at byte {place} is skipped: {why}", path.display()));
        }
        let torn = bytes.len() - replayed.whole_bytes;
        if torn > 0 {
            complaints
                .push(format!("{}: its last {torn} bytes are incomplete or damaged, and are ignored", path.display()));
        }
        if !complaints.is_empty() {
            let unread = self.directory.join(UNREAD_LOG);
            std::fs::write(&unread, &bytes).map_err(at(&unread))?;
            complaints.push(format!("the unchanged log is kept in {}", unread.display()));
        }
        Ok(complaints)
    }

    /// Rewrites the log, as short as possible, beside the old one, and then replaces that.
    fn compact(&mut self) -> io::Result<()> {
        let mut lines = Vec::new();
        self.registry.entries().for_each(|entry| entry.write(&mut lines));
        let (path, new_path) = (self.path(), self.directory.join(NEW_LOG));
        let mut file = File::create(&new_path).map_err(at(&new_path))?;
        file.write_all(&lines).and_then(|()| file.sync_all()).map_err(at(&new_path))?;
        std::fs::rename(&new_path, &path).map_err(at(&path))?;
        File::open(&self.directory).and_then(|directory| directory.sync_all()).map_err(at(&self.directory))?;
        self.file = Some(file);
        self.bytes = lines.len() as u64;
        self.short_bytes = self.bytes;
        Ok(())
    }

    /// Writes an entry and those that wait behind it, many with one `fsync`.
    fn write(&mut self, first: Entry, given: &Receiver<Entry>, progress: &Progress) {
        let batch: Vec<Entry> = std::iter::once(first).chain(given.try_iter().take(BATCH - 1)).collect();
        let number = progress.done.load(Ordering::Acquire) + batch.len() as u64;
        if let Err(error) = self.append(batch) {
            *progress.failed.lock().unwrap_or_else(PoisonError::into_inner) = (number, error.to_string());
        }
        progress.done.store(number, Ordering::Release);
    }

    /// Appends entries; all of them, or none. Those that could not be written are written with the next ones.
    fn append(&mut self, batch: Vec<Entry>) -> io::Result<()> {
        let mut lines = Vec::new();
        for entry in batch {
            entry.write(&mut lines);
            // It was applied where it comes from, so it can be here.
            let _ = self.registry.apply(&entry);
        }
        let path = self.path();
        let Some(file) = &mut self.file else { return self.compact() };
        if let Err(error) = file.write_all(&lines).and_then(|()| file.sync_data()) {
            // A partly written entry must not precede the next one: the next entry begins a new file.
            self.file = None;
            return Err(at(&path)(error));
        }
        self.bytes += lines.len() as u64;
        if self.bytes > GROWN_BYTES + 4 * self.short_bytes {
            // If that fails, the long one goes on being right.
            let _ = self.compact();
        }
        Ok(())
    }
}
