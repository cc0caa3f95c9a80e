//! Checkpoints: the states of handlers on disk, and how many records each handler had taken.
//!
//! A checkpoint is a file of its own, which is written beside the one before and takes its place as a whole: a daemon that is killed
//! between any two steps leaves the one or the other. No embedded store has them: ARCHITECTURE.md (Persistence, Checkpoints) has the
//! measurement.
//!
//! How many records a handler has taken is noted ten times a second, without a wait for the disk: the system keeps what was written when
//! the daemon is killed. So the next daemon knows how many of them came after the checkpoint.

use crate::failpoint::failpoint;
use crate::graph::gauges::NodeGauges;
use crate::worker::WorkerThread;
use crossdock_engine::seal_state;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// The directory in that for what is kept.
const DIRECTORY: &str = "checkpoints";
/// How the name of a checkpoint ends, and that of one that is being written.
const ENDING: &str = ".state";
const NEW_ENDING: &str = ".new";
/// The files of the counts, which are written in turn, so that one of them is whole.
const COUNTS: [&str; 2] = ["counts.0", "counts.1"];
/// The first bytes of a checkpoint; the last byte is the version of its head.
const MAGIC: [u8; 8] = *b"cdcheck\x01";
/// The part of a handler's name that the name of its file has.
const MOST_NAME_BYTES: usize = 70;
/// The longest file that is read.
pub(crate) const MOST_FILE_BYTES: u64 = 1 << 36;

/// A handler's state as it was.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// How many records its handler had taken, over all daemons.
    pub(crate) records: u64,
    /// When that was, in ms since 1970.
    pub(crate) at_ms: u64,
    /// The state, as the handler saved it.
    pub(crate) state: Vec<u8>,
}

/// The directory of the checkpoints, in that for what is kept.
///
/// # Errors
/// The system's.
pub(crate) fn open_directory(state_dir: &Path) -> io::Result<PathBuf> {
    let directory = state_dir.join(DIRECTORY);
    std::fs::create_dir_all(&directory)?;
    Ok(directory)
}

/// The file of a handler's checkpoint. Characters that a file's name may not have are written as numbers; the checksum keeps long names
/// apart.
pub(crate) fn path_of(directory: &Path, handler: &str) -> PathBuf {
    let mut name = String::new();
    for byte in handler.bytes().take(MOST_NAME_BYTES) {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(byte.into()),
            // Writing to a text does not fail.
            _ => drop(write!(name, "%{byte:02x}")),
        }
    }
    directory.join(format!("{name}-{:08x}{ENDING}", crc32fast::hash(handler.as_bytes())))
}

/// The head of a state: a checksum of what follows it, the handler's name, the records and the time.
pub(crate) fn head(handler: &str, records: u64, at_ms: u64) -> Vec<u8> {
    let mut rest = Vec::with_capacity(handler.len() + 20);
    rest.extend_from_slice(&(handler.len() as u32).to_le_bytes());
    rest.extend_from_slice(handler.as_bytes());
    rest.extend_from_slice(&records.to_le_bytes());
    rest.extend_from_slice(&at_ms.to_le_bytes());
    [&MAGIC[..], &crc32fast::hash(&rest).to_le_bytes(), &rest].concat()
}

/// The checkpoint of a handler that these bytes are.
pub(crate) fn parsed(handler: &str, bytes: &[u8]) -> Option<Checkpoint> {
    // The numbers behind the name, in the place that it says.
    let at = MAGIC.len() + 8 + handler.len();
    let number = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let (records, at_ms) = (number(at)?, number(at + 8)?);
    let state = bytes.strip_prefix(&head(handler, records, at_ms)[..])?;
    Some(Checkpoint { records, at_ms, state: state.to_vec() })
}

/// The checkpoint of a handler, if there is one.
///
/// # Errors
/// It cannot be read; where, and why.
pub(crate) fn read(directory: &Path, handler: &str) -> Result<Option<Checkpoint>, String> {
    let path = path_of(directory, handler);
    let said = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let length = match std::fs::metadata(&path) {
        Ok(of) => of.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(said(&error)),
    };
    if length > MOST_FILE_BYTES {
        return Err(said(&format!("it has more than {MOST_FILE_BYTES} bytes, the bound of a checkpoint")));
    }
    let bytes = std::fs::read(&path).map_err(|error| said(&error))?;
    parsed(handler, &bytes).map(Some).ok_or_else(|| said(&"it is damaged, or of another release"))
}

/// Puts a checkpoint in the place of the one that is there, if one is.
fn replace(directory: &Path, handler: &str, head: &[u8], state: &[u8]) -> io::Result<()> {
    let path = path_of(directory, handler);
    let new_path = path.with_extension(NEW_ENDING.trim_start_matches('.'));
    failpoint!("checkpoint.begun");
    let mut file = File::create(&new_path)?;
    failpoint!("checkpoint.created");
    file.write_all(head)?;
    file.write_all(state)?;
    failpoint!("checkpoint.written");
    file.sync_all()?;
    failpoint!("checkpoint.synced");
    std::fs::rename(&new_path, &path)?;
    failpoint!("checkpoint.renamed");
    File::open(directory)?.sync_all()?;
    failpoint!("checkpoint.done");
    Ok(())
}

/// Lets the checkpoints go that belong to none of these handlers, and what was left of one that was being written.
pub(crate) fn remove_others<'a>(directory: &Path, handlers: impl Iterator<Item = &'a str>) {
    let kept: BTreeSet<PathBuf> = handlers.map(|name| path_of(directory, name)).collect();
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let ends = |ending: &str| path.to_str().is_some_and(|name| name.ends_with(ending));
        if ends(NEW_ENDING) || (ends(ENDING) && !kept.contains(&path)) {
            // A file that cannot be removed is looked at again at the next start.
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Work for the thread that writes.
enum Work {
    Write { handler: String, records: u64, at_ms: u64, state: Vec<u8> },
    Remove { handler: String },
}

/// The outcome of a checkpoint.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) handler: String,
    /// The bytes that it has on disk, and when its state was copied, in ms since 1970; or why it was not written.
    pub(crate) outcome: Result<(u64, u64), String>,
    /// The memory of the state, for the next one.
    pub(crate) spare: Vec<u8>,
}

/// The thread that writes checkpoints, away from the cores. When this is dropped, all that was given is on disk.
#[derive(Debug)]
pub(crate) struct CheckpointWriter {
    works: Sender<Work>,
    written: Receiver<Written>,
    /// Dropped after the sender, which ends it.
    _thread: WorkerThread,
}

impl CheckpointWriter {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start(directory: &Path) -> io::Result<CheckpointWriter> {
        let ((works, given), (done, written)) = (channel(), channel());
        let directory = directory.to_owned();
        let work = move |work: Work, _: &Receiver<Work>| carry_out(&directory, work, &done);
        Ok(CheckpointWriter { works, written, _thread: WorkerThread::start("checkpoints", given, work)? })
    }

    /// Has a state written, as the handler saved it.
    pub(crate) fn write(&self, handler: String, (records, at_ms): (u64, u64), state: Vec<u8>) {
        self.give(Work::Write { handler, records, at_ms, state });
    }

    /// Has a handler's checkpoint removed: its state is gone for good.
    pub(crate) fn remove(&self, handler: &str) {
        self.give(Work::Remove { handler: handler.to_owned() });
    }

    fn give(&self, work: Work) {
        // The thread ends after this, unless it has panicked: then nothing is written any more.
        let _ = self.works.send(work);
    }

    /// The outcomes of those that were given.
    pub(crate) fn written(&self) -> impl Iterator<Item = Written> {
        self.written.try_iter()
    }
}

fn carry_out(directory: &Path, work: Work, done: &Sender<Written>) {
    match work {
        Work::Write { handler, records, at_ms, mut state } => {
            seal_state(&mut state);
            let head = head(&handler, records, at_ms);
            let bytes = (head.len() + state.len()) as u64;
            let replaced = replace(directory, &handler, &head, &state);
            let outcome = match replaced {
                Ok(()) => Ok((bytes, at_ms)),
                Err(error) => Err(format!("{}: {error}", path_of(directory, &handler).display())),
            };
            state.clear();
            // The managers may have ended before.
            let _ = done.send(Written { handler, outcome, spare: state });
        }
        // One that is not there, or stays, belongs to no handler: the next start removes it.
        Work::Remove { handler } => drop(std::fs::remove_file(path_of(directory, &handler))),
    }
}

/// How many records handlers have taken, as it is on disk.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct CountsFile {
    /// How often they were written.
    turn: u64,
    /// By handler, over all daemons.
    records: BTreeMap<String, u64>,
}

impl CountsFile {
    fn of(directory: &Path, name: &str) -> Option<CountsFile> {
        let text = std::fs::read_to_string(directory.join(name)).ok()?;
        let (checksum, json) = text.split_once(' ')?;
        let is_whole = u32::from_str_radix(checksum, 16).ok() == Some(crc32fast::hash(json.as_bytes()));
        serde_json::from_str(json).ok().filter(|_| is_whole)
    }

    fn latest(directory: &Path) -> CountsFile {
        let found = COUNTS.iter().filter_map(|name| CountsFile::of(directory, name));
        found.max_by_key(|counts| counts.turn).unwrap_or_default()
    }
}

/// Notes how many records handlers have taken. Anyone may note it: the managers do, and whoever stops the daemon, once its contexts have
/// ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordCounts(Option<Arc<(PathBuf, Mutex<Counted>)>>);

#[derive(Debug, Default)]
struct Counted {
    /// The counts of each handler's node, once it has one, and what it had taken before.
    of: BTreeMap<String, (Option<Arc<NodeGauges>>, u64)>,
    noted: CountsFile,
}

impl RecordCounts {
    /// The counts in the directory of the checkpoints, and those that the daemon before has left there.
    pub(crate) fn open(directory: &Path) -> (RecordCounts, BTreeMap<String, u64>) {
        let noted = CountsFile::latest(directory);
        let former = noted.records.clone();
        let counted = Mutex::new(Counted { of: BTreeMap::new(), noted });
        (RecordCounts(Some(Arc::new((directory.to_owned(), counted)))), former)
    }

    /// Counts the records of a handler from now on, which had taken some before.
    pub(crate) fn set(&self, handler: &str, of: Option<Arc<NodeGauges>>, before: u64) {
        self.with(|counted, _| drop(counted.of.insert(handler.to_owned(), (of, before))));
    }

    /// There is no handler of this name any more.
    pub(crate) fn remove(&self, handler: &str) {
        self.with(|counted, _| drop(counted.of.remove(handler)));
    }

    fn with(&self, work: impl FnOnce(&mut Counted, &Path)) {
        let Some(counts) = &self.0 else { return };
        let (directory, counted) = &**counts;
        work(&mut counted.lock().unwrap_or_else(PoisonError::into_inner), directory);
    }

    /// Notes the counts, if they have changed.
    pub(crate) fn note(&self) {
        self.with(Counted::note);
    }
}

impl Counted {
    fn note(&mut self, directory: &Path) {
        let count = |gauges: &Option<Arc<NodeGauges>>| gauges.as_ref().map_or(0, |gauges| gauges.records_in.get());
        let all = self.of.iter().map(|(name, (gauges, before))| (name.clone(), before + count(gauges)));
        let records: BTreeMap<String, u64> = all.collect();
        if records == self.noted.records {
            return;
        }
        let turn = self.noted.turn + 1;
        self.noted = CountsFile { turn, records };
        let Ok(json) = serde_json::to_string(&self.noted) else { return };
        let text = format!("{:08x} {json}", crc32fast::hash(json.as_bytes()));
        let name = COUNTS[(turn % 2) as usize];
        // Where it fails, the next daemon knows of fewer records than there were.
        let _ = std::fs::write(directory.join(name), text);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    fn write(directory: &Path, handler: &str, records: u64, state: &[u8]) {
        replace(directory, handler, &head(handler, records, 7), state).unwrap();
    }

    #[test]
    fn a_checkpoint_is_whole_or_the_one_before_wherever_the_writer_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        assert_eq!(read(directory, "late"), Ok(None));
        write(directory, "late", 12, b"the state of before");
        let before = Checkpoint { records: 12, at_ms: 7, state: b"the state of before".to_vec() };
        assert_eq!(read(directory, "late"), Ok(Some(before)));
        // A part of the next one, of any length, lies beside it until it is renamed.
        let next = [head("late", 30, 7), b"another state".to_vec()].concat();
        let new_path = path_of(directory, "late").with_extension("new");
        for length in 0..=next.len() {
            std::fs::write(&new_path, &next[..length]).unwrap();
            assert_eq!(read(directory, "late").unwrap().unwrap().records, 12);
        }
        std::fs::rename(&new_path, path_of(directory, "late")).unwrap();
        assert_eq!(read(directory, "late").unwrap().unwrap().state, b"another state");
    }

    #[test]
    fn a_damaged_head_and_that_of_another_handler_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        write(directory, "state of A", 12, b"state");
        let path = path_of(directory, "state of A");
        let whole = std::fs::read(&path).unwrap();
        let head_bytes = whole.len() - b"state".len();
        for at in 0..head_bytes {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x40;
            std::fs::write(&path, &damaged).unwrap();
            let refused = read(directory, "state of A").unwrap_err();
            assert!(refused.contains("damaged"), "{at}: {refused}");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert!(read(directory, "state of A").is_err(), "{at}");
        }
        std::fs::copy(path_of(directory, "state of A"), path_of(directory, "other")).unwrap();
        assert!(read(directory, "other").is_err());
    }

    #[test]
    fn handlers_have_files_of_their_own_whatever_their_names() {
        let long = "x".repeat(300);
        let names = ["late", "Late", "a/b", "a%2fb", "../late", "", &long, &format!("{long}y"), "späte"];
        let paths: BTreeSet<PathBuf> = names.iter().map(|name| path_of(Path::new("/state"), name)).collect();
        assert_eq!(paths.len(), names.len());
        for path in &paths {
            assert_eq!(path.parent(), Some(Path::new("/state")));
            assert!(path.file_name().unwrap().len() < 250);
        }
    }

    #[test]
    fn those_of_handlers_that_are_gone_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        for name in ["a", "b"] {
            write(directory, name, 1, b"state");
        }
        std::fs::write(path_of(directory, "c").with_extension("new"), b"a part").unwrap();
        std::fs::write(directory.join(COUNTS[0]), b"").unwrap();
        remove_others(directory, ["b"].into_iter());
        assert_eq!((read(directory, "a"), read(directory, "b").unwrap().is_some()), (Ok(None), true));
        assert_eq!(std::fs::read_dir(directory).unwrap().count(), 2);
    }

    #[test]
    fn the_writer_has_written_all_when_it_has_gone() {
        let directory = tempfile::tempdir().unwrap();
        let writer = CheckpointWriter::start(directory.path()).unwrap();
        for records in 0..20 {
            writer.write("a".to_owned(), (records, 7), vec![0; 40]);
            writer.write("b".to_owned(), (records, 7), vec![0; 40]);
        }
        writer.remove("b");
        drop(writer);
        assert_eq!(read(directory.path(), "a").unwrap().unwrap().records, 19);
        assert_eq!(read(directory.path(), "b"), Ok(None));
    }

    #[test]
    fn counts_outlive_the_daemon_also_where_the_last_file_is_torn() {
        let directory = tempfile::tempdir().unwrap();
        let gauges = Arc::new(NodeGauges::default());
        let open = || RecordCounts::open(directory.path());
        let (counts, former) = open();
        assert_eq!(former, BTreeMap::new());
        counts.set("a", Some(Arc::clone(&gauges)), 100);
        counts.set("later", None, 5);
        for _ in 0..5 {
            gauges.records_in.add(10);
            counts.note();
            counts.note();
        }
        assert_eq!(open().1, BTreeMap::from([("a".to_owned(), 150), ("later".to_owned(), 5)]));
        // The fifth was written to the second file.
        let last = directory.path().join(COUNTS[1]);
        let whole = std::fs::read(&last).unwrap();
        std::fs::write(&last, &whole[..whole.len() - 2]).unwrap();
        assert_eq!(open().1.get("a"), Some(&140));
        counts.remove("a");
        counts.note();
        assert_eq!(open().1, BTreeMap::from([("later".to_owned(), 5)]));
        RecordCounts::default().note();
    }
}
