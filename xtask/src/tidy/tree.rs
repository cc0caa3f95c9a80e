//! The workspace's own files, read once for all the rules.

use std::path::Path;

use walkdir::{DirEntry, WalkDir};

use super::tokens::{Token, tokens};
use crate::place::{self, CargoWorkspace};

/// The folders that hold Rust code of ours.
const CODE: [&str; 5] = ["crates", "bindings", "bench", "fuzz", "xtask"];

/// Everything that the rules look at.
pub(crate) struct Tree {
    /// Every Rust file of ours.
    pub(crate) sources: Vec<RustFile>,
    /// Every Markdown file.
    pub(crate) pages: Vec<Text>,
    /// Every Cargo.toml.
    pub(crate) manifests: Vec<Text>,
    /// The functions and files that may be long, and why.
    pub(crate) allowed: Text,
    /// `cargo metadata`, with the graph of all packages.
    pub(crate) metadata: serde_json::Value,
    /// The root folder, to see whether a link's target exists.
    pub(crate) root: std::path::PathBuf,
}

/// A text file, by its path from the root with `/` between folders.
pub(crate) struct Text {
    /// The path from the root.
    pub(crate) path: String,
    /// The content.
    pub(crate) text: String,
}

/// A Rust file.
pub(crate) struct RustFile {
    /// The path from the root.
    pub(crate) path: String,
    /// The content.
    pub(crate) text: String,
    /// Its tokens: code without comments, strings kept whole.
    pub(crate) tokens: Vec<Token>,
}

/// Where the list of long files and functions is.
pub(crate) const ALLOWED: &str = "xtask/allowed-lengths.txt";

impl RustFile {
    /// Takes a file's text apart.
    pub(crate) fn new(path: &str, text: &str) -> Result<RustFile, String> {
        let tokens = tokens(text).map_err(|(line, why)| format!("{path}:{line}: this is not Rust: {why}"))?;
        Ok(RustFile { path: path.into(), text: text.into(), tokens })
    }

    /// The short name of the room that the file is in: `query` for `crates/query/src/lib.rs`, `bench`, `xtask`.
    pub(crate) fn room(&self) -> &str {
        let mut parts = self.path.split('/');
        match parts.next() {
            Some("crates" | "bindings") => parts.next().unwrap_or_default(),
            first => first.unwrap_or_default(),
        }
    }

    /// Whether it is in a package's `src` (and not in its `tests`, `benches` or `examples`).
    pub(crate) fn is_src(&self) -> bool {
        self.path.contains("/src/")
    }
}

impl Tree {
    /// Reads the tree from the disk.
    pub(crate) fn read(place: &CargoWorkspace) -> Result<Tree, String> {
        let mut tree = Tree {
            sources: Vec::new(),
            pages: Vec::new(),
            manifests: Vec::new(),
            allowed: read(&place.root, &place.root.join(ALLOWED))?,
            metadata: place::metadata(&place.root.join("Cargo.toml"), &[])?,
            root: place.root.clone(),
        };
        for entry in WalkDir::new(&place.root).sort_by_file_name().into_iter().filter_entry(is_ours) {
            let entry = entry.map_err(|e| e.to_string())?;
            if !entry.file_type().is_file() {
                continue;
            }
            let name = entry.file_name().to_string_lossy();
            if name.ends_with(".md") {
                tree.pages.push(read(&place.root, entry.path())?);
            } else if name == "Cargo.toml" {
                tree.manifests.push(read(&place.root, entry.path())?);
            } else if name.ends_with(".rs") {
                let file = read(&place.root, entry.path())?;
                if CODE.iter().any(|folder| file.path.starts_with(&format!("{folder}/"))) {
                    tree.sources.push(RustFile::new(&file.path, &file.text)?);
                }
            }
        }
        Ok(tree)
    }
}

/// Not what Cargo, git or an editor keeps.
fn is_ours(entry: &DirEntry) -> bool {
    let name = entry.file_name().to_string_lossy();
    let hidden = name.starts_with('.') && entry.depth() > 0;
    let made = entry.file_type().is_dir() && matches!(&*name, "target" | "corpus" | "artifacts");
    !hidden && !made
}

fn read(root: &Path, path: &Path) -> Result<Text, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let path = path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/");
    Ok(Text { path, text })
}
