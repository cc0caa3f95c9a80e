//! The system's tools that make the packages: whether they are there, and what one that failed said.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::steps::in_words;

/// Each tool with the Debian package that brings it.
const TOOLS: [(&str, &str); 9] = [
    ("ar", "binutils"),
    ("date", "coreutils"),
    ("gzip", "gzip"),
    ("md5sum", "coreutils"),
    ("objcopy", "binutils"),
    ("readelf", "binutils"),
    ("rustc", "rustc"),
    ("sha256sum", "coreutils"),
    ("tar", "tar"),
];

/// Fails with one line that names every missing tool and its package.
pub(crate) fn all_present() -> Result<(), String> {
    let missing: Vec<_> = TOOLS.iter().filter(|(name, _)| !starts(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = missing.iter().map(|(name, package)| format!("{name} (package {package})")).collect();
    Err(format!("dist: not found on PATH: {}; install what is missing", names.join(", ")))
}

fn starts(name: &str) -> bool {
    tool(name).arg("--version").stdin(Stdio::null()).output().is_ok()
}

/// A tool whose output does not depend on the user's language or time zone.
pub(crate) fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    command.env("LC_ALL", "C").env("TZ", "UTC").env_remove("TAR_OPTIONS").env_remove("GZIP");
    command
}

/// Runs a command without input and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>, String> {
    let out = command.stdin(Stdio::null()).output().map_err(|e| format!("{}: {e}", in_words(command)))?;
    if out.status.success() {
        return Ok(out.stdout);
    }
    let said = String::from_utf8_lossy(&out.stderr);
    Err(format!("{} failed ({}): {}", in_words(command), out.status, said.trim()))
}

/// Like [`output`], as text without the line feed at its end.
pub(crate) fn text(command: &mut Command) -> Result<String, String> {
    let bytes = output(command)?;
    let text = String::from_utf8(bytes).map_err(|_| format!("{} printed text that is not UTF-8", in_words(command)))?;
    Ok(text.trim_end_matches('\n').to_owned())
}

/// A new, empty folder, removed with its contents when the value is dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes the folder, in place of one that a run which was killed left behind.
    pub(crate) fn new(path: PathBuf) -> Result<Scratch, String> {
        if path.exists() {
            std::fs::remove_dir_all(&path).map_err(at(&path))?;
        }
        std::fs::create_dir_all(&path).map_err(at(&path))?;
        Ok(Scratch(path))
    }

    /// The folder's path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(why) = std::fs::remove_dir_all(&self.0) {
            eprintln!("xtask: dist: {} could not be removed: {why}", self.0.display());
        }
    }
}

/// Puts the path in front of an input or output error.
pub(crate) fn at(path: &Path) -> impl Fn(std::io::Error) -> String + '_ {
    move |why| format!("{}: {why}", path.display())
}

/// Writes a file, and the folders above it.
pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), String> {
    make_parent(path)?;
    std::fs::write(path, bytes).map_err(at(path))
}

/// Makes the folders above a file.
pub(crate) fn make_parent(path: &Path) -> Result<(), String> {
    path.parent().map_or(Ok(()), |folder| std::fs::create_dir_all(folder).map_err(at(folder)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_tool_is_named_with_what_it_said() {
        let why = text(tool("ar").args(["t", "/nowhere.a"])).unwrap_err();
        assert!(why.contains("ar t /nowhere.a failed") && why.contains("nowhere.a"), "{why}");
        let why = text(&mut tool("no-such-tool-of-ours")).unwrap_err();
        assert!(why.contains("no-such-tool-of-ours: "), "{why}");
    }
}
