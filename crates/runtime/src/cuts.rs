//! Consistent cuts on disk: the states of all handlers and the positions of all that comes from outside, as they were at one moment of the
//! whole graph.
//!
//! A cut is a file for each state, whose name no other cut has, and a manifest, which names these files with their checksums and has the
//! positions. The manifest takes its place as a whole once all that it names is on disk. There are two places, which are used in turn: a
//! manifest whose files are missing or damaged is passed over for the one before.

use crate::catalog::durable::Positions;
use crate::checkpoints::{Checkpoint, MOST_FILE_BYTES, head, parsed, path_of};
use crate::failpoint::failpoint;
use crate::worker::WorkerThread;
use crossdock_engine::seal_state;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};

/// The directory in that for what is kept.
const DIRECTORY: &str = "cuts";
/// The places of manifests.
const MANIFESTS: [&str; 2] = ["manifest.0", "manifest.1"];
/// How the name of a manifest ends that is being written.
const NEW_ENDING: &str = "new";
/// How the name of a state ends.
const STATE_ENDING: &str = ".state";

/// A state of a cut on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StateFile {
    /// The name of its file.
    pub(crate) file: String,
    pub(crate) bytes: u64,
    pub(crate) checksum: u32,
}

/// The parts of a cut.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// Counted over all daemons; those that were put off count too.
    pub(crate) cut: u64,
    /// When it was made, in ms since 1970.
    pub(crate) at_ms: u64,
    /// By handler.
    pub(crate) states: BTreeMap<String, StateFile>,
    pub(crate) positions: Positions,
}

impl Manifest {
    /// The bytes of its file: a checksum, a space, and JSON.
    fn encoded(&self) -> Vec<u8> {
        seal_cut_manifest(&serde_json::to_string(self).unwrap_or_default())
    }

    /// The manifest that these bytes are.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Manifest> {
        let (checksum, json) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
        let is_whole = checksum.len() == 8 && u32::from_str_radix(checksum, 16) == Ok(crc32fast::hash(json.as_bytes()));
        serde_json::from_str(json).ok().filter(|_| is_whole)
    }
}

/// Whether bytes are the manifest of a cut; what is read makes the same manifest again. For the fuzz target.
#[must_use]
pub fn reads_cut_manifest(bytes: &[u8]) -> bool {
    let Some(manifest) = Manifest::parse(bytes) else { return false };
    assert_eq!(Manifest::parse(&manifest.encoded()).as_ref(), Some(&manifest), "a manifest reads as it was written");
    true
}

/// The manifest whose JSON this is, as bytes with their checksum. For the fuzz target.
#[must_use]
pub fn seal_cut_manifest(json: &str) -> Vec<u8> {
    format!("{:08x} {json}", crc32fast::hash(json.as_bytes())).into_bytes()
}

/// The cut with which a daemon begins.
#[derive(Debug, Default)]
pub(crate) struct LoadedCut {
    /// The last whole cut, if there is one.
    pub(crate) manifest: Option<Manifest>,
    /// The states of its handlers.
    pub(crate) states: BTreeMap<String, Checkpoint>,
    /// Later cuts that are not whole, in words.
    pub(crate) complaints: Vec<String>,
    /// The manifests in both places.
    places: [Option<Manifest>; 2],
    /// The place of the next one.
    next: usize,
}

/// The last whole cut in the directory for what is kept.
///
/// # Errors
/// The system's.
pub(crate) fn load(state_dir: &Path) -> io::Result<(PathBuf, LoadedCut)> {
    let directory = state_dir.join(DIRECTORY);
    std::fs::create_dir_all(&directory)?;
    let mut loaded = LoadedCut::default();
    for (place, name) in MANIFESTS.iter().enumerate() {
        let path = directory.join(name);
        match std::fs::read(&path) {
            Ok(bytes) => {
                loaded.places[place] = Manifest::parse(&bytes);
                if loaded.places[place].is_none() {
                    loaded.complaints.push(format!("{}: it is damaged, or of another release", path.display()));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => loaded.complaints.push(format!("{}: {error}", path.display())),
        }
    }
    let number = |place: &usize| loaded.places.get(*place).and_then(Option::as_ref).map(|manifest| manifest.cut);
    let mut order = [0, 1];
    order.sort_by_key(|place| std::cmp::Reverse(number(place)));
    for place in order {
        let Some(manifest) = loaded.places.get(place).cloned().flatten() else { continue };
        match states_of(&directory, &manifest) {
            Ok(states) => {
                (loaded.manifest, loaded.states, loaded.next) = (Some(manifest), states, 1 - place);
                break;
            }
            Err(why) => loaded.complaints.push(why),
        }
    }
    Ok((directory, loaded))
}

/// The states that a manifest names.
///
/// # Errors
/// The file that is not what the manifest says, in words.
fn states_of(directory: &Path, manifest: &Manifest) -> Result<BTreeMap<String, Checkpoint>, String> {
    let mut states = BTreeMap::new();
    for (handler, StateFile { file, bytes, checksum }) in &manifest.states {
        let path = directory.join(file);
        let said = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let is_name = Path::new(file).components().count() == 1 && path.parent() == Some(directory);
        if !is_name || *bytes > MOST_FILE_BYTES {
            return Err(said(&"the manifest names a file that is none of its own"));
        }
        let found = std::fs::read(&path).map_err(|error| said(&error))?;
        let is_whole = found.len() as u64 == *bytes && crc32fast::hash(&found) == *checksum;
        let checkpoint = parsed(handler, &found).filter(|_| is_whole).ok_or_else(|| said(&"it is damaged"))?;
        states.insert(handler.clone(), checkpoint);
    }
    Ok(states)
}

/// A handler's state in a cut.
#[derive(Debug)]
pub(crate) struct CutState {
    pub(crate) handler: String,
    /// How many records its handler had taken, over all daemons.
    pub(crate) records: u64,
    /// The state, as the handler saved it.
    pub(crate) state: Vec<u8>,
}

/// A cut that is to be written.
#[derive(Debug)]
pub(crate) struct Cut {
    pub(crate) number: u64,
    pub(crate) at_ms: u64,
    pub(crate) states: Vec<CutState>,
    pub(crate) positions: Positions,
}

/// The outcome of a cut.
#[derive(Debug)]
pub(crate) struct WrittenCut {
    pub(crate) number: u64,
    /// The manifest that is on disk, or why none is.
    pub(crate) outcome: Result<Manifest, String>,
    /// The memory of the states, for the next ones.
    pub(crate) spare: Vec<Vec<u8>>,
}

/// The thread that writes cuts, away from the cores. When this is dropped, all that was given is on disk.
#[derive(Debug)]
pub(crate) struct CutWriter {
    cuts: Sender<Cut>,
    written: Receiver<WrittenCut>,
    /// Dropped after the sender, which ends it.
    _thread: WorkerThread,
}

impl CutWriter {
    /// Starts the thread, which writes beside what was loaded.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn start(directory: PathBuf, loaded: &LoadedCut) -> io::Result<CutWriter> {
        let ((cuts, given), (done, written)) = (channel(), channel());
        let mut files = CutFiles { directory, places: loaded.places.clone(), next: loaded.next };
        let write = move |cut: Cut, _: &Receiver<Cut>| {
            // The managers may have ended before.
            let _ = done.send(files.write(cut));
        };
        Ok(CutWriter { cuts, written, _thread: WorkerThread::start("cuts", given, write)? })
    }

    /// Has a cut written.
    pub(crate) fn write(&self, cut: Cut) {
        // The thread ends after this, unless it has panicked: then nothing is written any more.
        let _ = self.cuts.send(cut);
    }

    /// The outcome of the oldest that was given, if it is there.
    pub(crate) fn written(&self) -> Option<WrittenCut> {
        self.written.try_recv().ok()
    }
}

/// The files of cuts.
#[derive(Debug)]
struct CutFiles {
    directory: PathBuf,
    places: [Option<Manifest>; 2],
    next: usize,
}

impl CutFiles {
    fn write(&mut self, mut cut: Cut) -> WrittenCut {
        let number = cut.number;
        let outcome = self.put(&mut cut).map_err(|error| format!("{}: {error}", self.directory.display()));
        let spare = cut.states.into_iter().map(|state| state.state).collect();
        WrittenCut { number, outcome, spare }
    }

    /// Puts a cut on disk.
    fn put(&mut self, cut: &mut Cut) -> io::Result<Manifest> {
        let mut states = BTreeMap::new();
        for CutState { handler, records, state } in &mut cut.states {
            seal_state(state);
            let head = head(handler, *records, cut.at_ms);
            let path = path_of(&self.directory, handler).with_extension(format!("{}{STATE_ENDING}", cut.number));
            let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            write_synced(&path, &[&head, state])?;
            failpoint!("cut.state_written");
            let mut checksum = crc32fast::Hasher::new();
            checksum.update(&head);
            checksum.update(state);
            let bytes = (head.len() + state.len()) as u64;
            states.insert(handler.clone(), StateFile { file, bytes, checksum: checksum.finalize() });
        }
        let directory = File::open(&self.directory)?;
        directory.sync_all()?;
        failpoint!("cut.states_synced");
        let positions = std::mem::take(&mut cut.positions);
        let manifest = Manifest { cut: cut.number, at_ms: cut.at_ms, states, positions };
        let path = self.directory.join(MANIFESTS[self.next]);
        let new_path = path.with_extension(NEW_ENDING);
        write_synced(&new_path, &[&manifest.encoded()])?;
        failpoint!("cut.manifest_synced");
        std::fs::rename(&new_path, &path)?;
        failpoint!("cut.manifest_renamed");
        directory.sync_all()?;
        failpoint!("cut.done");
        self.places[self.next] = Some(manifest.clone());
        self.next = 1 - self.next;
        self.tidy();
        failpoint!("cut.tidied");
        Ok(manifest)
    }

    /// Removes the states that neither manifest names.
    fn tidy(&self) {
        let named = self.places.iter().flatten().flat_map(|manifest| manifest.states.values());
        let named: BTreeSet<&str> = named.map(|state| state.file.as_str()).collect();
        let Ok(entries) = std::fs::read_dir(&self.directory) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let is_unnamed = |name: &str| name.ends_with(STATE_ENDING) && !named.contains(name);
            if name.to_str().is_some_and(is_unnamed) {
                // One that stays is tried again behind the next cut.
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// Writes a file, and waits until it is on disk.
fn write_synced(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut file = File::create(path)?;
    parts.iter().try_for_each(|part| file.write_all(part))?;
    failpoint!("cut.file_written");
    file.sync_all()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;
    use crate::publications::PublicationPosition;
    use crossdock_transport::control::PublisherId;

    fn positions(records: u64) -> Positions {
        let publication = PublicationPosition { publisher: PublisherId(7), stream: "A".to_owned(), records };
        Positions {
            publications: vec![publication],
            numbers: [("A".to_owned(), records)].into(),
            ..Positions::default()
        }
    }

    fn cut(number: u64) -> Cut {
        let state = |handler: &str| CutState { handler: handler.to_owned(), records: number, state: vec![7; 40] };
        Cut { number, at_ms: 3, states: vec![state("late"), state("a/b")], positions: positions(10 * number) }
    }

    /// Writes cuts with these numbers into a new directory.
    fn written(numbers: &[u64]) -> (tempfile::TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let (directory, loaded) = load(place.path()).unwrap();
        let mut files = CutFiles { directory: directory.clone(), places: loaded.places.clone(), next: loaded.next };
        for number in numbers {
            files.write(cut(*number)).outcome.unwrap();
        }
        (place, directory)
    }

    /// The number of the cut that a daemon begins with, and how many complaints there are.
    fn begins_with(place: &tempfile::TempDir) -> (Option<u64>, usize) {
        let loaded = load(place.path()).unwrap().1;
        if let Some(manifest) = &loaded.manifest {
            assert_eq!(manifest.positions, positions(10 * manifest.cut));
            let records: Vec<u64> = loaded.states.values().map(|state| state.records).collect();
            assert_eq!(records, [manifest.cut; 2]);
        }
        (loaded.manifest.map(|manifest| manifest.cut), loaded.complaints.len())
    }

    #[test]
    fn a_daemon_begins_with_the_last_cut() {
        for numbers in [&[][..], &[1], &[1, 2], &[1, 2, 3], &[1, 4, 6, 8]] {
            let (place, directory) = written(numbers);
            assert_eq!(begins_with(&place), (numbers.last().copied(), 0));
            // The states of two cuts are there, and the manifests.
            let kept = 3 * numbers.len().min(2);
            assert_eq!(std::fs::read_dir(&directory).unwrap().count(), kept, "{numbers:?}");
        }
    }

    #[test]
    fn a_cut_that_is_not_whole_is_passed_over_for_the_one_before() {
        let (place, directory) = written(&[1, 2]);
        let files: Vec<PathBuf> = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        for path in files {
            let whole = std::fs::read(&path).unwrap();
            let is_later = path.ends_with("manifest.1") || path.to_str().unwrap().contains(".2.state");
            let expected = if is_later { (Some(1), 1) } else { (Some(2), usize::from(path.ends_with("manifest.0"))) };
            std::fs::remove_file(&path).unwrap();
            let of_missing = if path.ends_with("manifest.1") { (Some(1), 0) } else { expected };
            assert_eq!(begins_with(&place), if path.ends_with("manifest.0") { (Some(2), 0) } else { of_missing });
            for length in 0..whole.len() {
                std::fs::write(&path, &whole[..length]).unwrap();
                assert_eq!(begins_with(&place), expected, "{}: {length}", path.display());
            }
            for at in 0..whole.len() {
                let mut damaged = whole.clone();
                damaged[at] ^= 0x01;
                std::fs::write(&path, &damaged).unwrap();
                assert_eq!(begins_with(&place), expected, "{}: {at}", path.display());
            }
            std::fs::write(&path, &whole).unwrap();
        }
        assert_eq!(begins_with(&place), (Some(2), 0));
    }

    #[test]
    fn files_of_a_daemon_that_was_killed_are_no_cut() {
        let (place, directory) = written(&[1]);
        std::fs::write(path_of(&directory, "late").with_extension("2.state"), b"a part").unwrap();
        std::fs::write(directory.join("manifest.new"), b"a part").unwrap();
        assert_eq!(begins_with(&place), (Some(1), 0));
    }

    #[test]
    fn a_manifest_names_no_file_elsewhere() {
        let (place, directory) = written(&[1]);
        let path = directory.join(MANIFESTS[0]);
        let manifest = Manifest::parse(&std::fs::read(&path).unwrap()).unwrap();
        for name in ["../late", "/etc/passwd", "a/b", "", "."] {
            let mut other = manifest.clone();
            other.states.get_mut("late").unwrap().file = name.to_owned();
            std::fs::write(&path, other.encoded()).unwrap();
            assert_eq!(begins_with(&place), (None, 1), "{name}");
        }
    }

    #[test]
    fn the_writer_has_written_all_when_it_has_gone() {
        let place = tempfile::tempdir().unwrap();
        let (directory, loaded) = load(place.path()).unwrap();
        let writer = CutWriter::start(directory, &loaded).unwrap();
        (1..6).for_each(|number| writer.write(cut(number)));
        drop(writer);
        assert_eq!(begins_with(&place), (Some(5), 0));
    }
}
