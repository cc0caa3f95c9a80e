//! The disk that all tests together take, and whether there is so much: a run that fills it fails late, and at random.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use walkdir::WalkDir;

use crate::place::CargoWorkspace;

/// The space that all builds and logs of `cargo xtask test` take in the target folder from nothing, in GB: 10 were measured.
const NEEDED_GB: u64 = 11;

/// The same with incremental builds, cargo's default in the profiles of tests: 28 were measured.
const NEEDED_INCREMENTAL_GB: u64 = 30;

/// The files that the target folder has from an earlier run are not needed again, but what has changed since is written anew.
const AT_LEAST_GB: u64 = 2;

const GB: u64 = 1_000_000_000;

/// The folders of the target folder that the tests' builds fill.
const FOLDERS: [&str; 5] = ["debug", "release", "loom", "miri", "fuzz"];

/// Whether there is room for all tests: what they need and what is free, as a note.
///
/// # Errors
/// There is too little room; what to do, in one line.
pub(crate) fn check(place: &CargoWorkspace) -> Result<String, String> {
    let incremental = std::env::var_os("CARGO_INCREMENTAL").is_none_or(|value| value != "0");
    let kept = FOLDERS.iter().map(|folder| used_bytes(&place.target.join(folder))).sum();
    let needed = needed_bytes(incremental, kept);
    match free_bytes(&place.target) {
        Some(free) if free < needed => Err(format!(
            "the tests need {} of free disk for {}, and {} are free: free some, name another folder in \
             CARGO_TARGET_DIR{}",
            in_gb(needed),
            place.target.display(),
            in_gb(free),
            if incremental { ", or set CARGO_INCREMENTAL=0, with which they need less than half" } else { "" },
        )),
        Some(free) => Ok(format!("{} needed, {} free", in_gb(needed), in_gb(free))),
        None => Ok(format!("{} needed; `df` does not say how much is free", in_gb(needed))),
    }
}

fn needed_bytes(incremental: bool, kept: u64) -> u64 {
    let all = if incremental { NEEDED_INCREMENTAL_GB } else { NEEDED_GB } * GB;
    all.saturating_sub(kept).max(AT_LEAST_GB * GB)
}

fn in_gb(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / GB as f64)
}

/// The space that a folder's files take on the disk; a file with several names counts once. A file that cannot be read
/// counts nothing.
fn used_bytes(folder: &Path) -> u64 {
    let mut seen = BTreeSet::new();
    let files = WalkDir::new(folder).into_iter().filter_map(|entry| entry.ok()?.metadata().ok());
    let once = files.filter(|file| file.nlink() == 1 || file.is_dir() || seen.insert((file.dev(), file.ino())));
    once.map(|file| file.blocks() * 512).sum()
}

/// The free space on the disk of a folder, for this user; none where the system does not say.
fn free_bytes(folder: &Path) -> Option<u64> {
    // The folder may not be there yet: what is above it is on the same disk, unless somebody mounts one there.
    let there = folder.ancestors().find(|folder| folder.exists())?;
    let out = Command::new("df").args(["-P", "-k"]).arg(there).output().ok().filter(|out| out.status.success())?;
    free_in(&String::from_utf8_lossy(&out.stdout))
}

/// The fourth column of the last line of `df -P -k`, which counts in KiB; the first may hold anything, and the sixth too.
fn free_in(said: &str) -> Option<u64> {
    let line = said.lines().skip(1).last()?;
    let columns: Vec<&str> = line.split_whitespace().collect();
    let percent =
        columns.iter().position(|column| column.strip_suffix('%').is_some_and(|n| n.parse::<u8>().is_ok()))?;
    columns.get(percent.checked_sub(1)?)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_an_earlier_run_are_not_needed_again() {
        assert_eq!(needed_bytes(false, 0), 11 * GB);
        assert_eq!(needed_bytes(true, 0), 30 * GB);
        assert_eq!(needed_bytes(true, 4 * GB), 26 * GB);
        assert_eq!(needed_bytes(false, 40 * GB), 2 * GB);
    }

    #[test]
    fn output_of_df_is_read() {
        let head = "Filesystem     1024-blocks     Used Available Capacity Mounted on\n";
        let said = |line: &str| free_in(&format!("{head}{line}\n"));
        assert_eq!(said("/dev/vda         264229840 19922944  76546048      21% /"), Some(76_546_048 * 1024));
        assert_eq!(said("my server:/a b   100 40 60 40% /mnt/a b"), Some(60 * 1024));
        assert_eq!(said("none"), None);
        assert_eq!(free_in(""), None);
    }

    #[test]
    fn a_file_with_two_names_counts_once() {
        let folder = std::env::temp_dir().join(format!("crossdock-disk-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("one"), vec![1; 1 << 20]).unwrap();
        let once = used_bytes(&folder);
        std::fs::hard_link(folder.join("one"), folder.join("two")).unwrap();
        assert_eq!(used_bytes(&folder), once);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(free_bytes(&folder).is_some_and(|free| free > 0));
    }
}
