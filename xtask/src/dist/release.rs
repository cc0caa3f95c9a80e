//! The identity of a release: version, target, and the commit with its date, which is the date of every packaged file.

use std::path::Path;
use std::process::Command;

use super::tool::{text, tool};
use crate::place::CargoWorkspace;

/// The package's name, which is the binary's too.
pub(crate) const NAME: &str = "crossdock";

/// The packages' maintainer where Cargo.toml names no author.
const MAINTAINER: &str = "Crossdock developers <crossdock@localhost>";

/// As much of a commit's hash as the binary shows.
const COMMIT_CHARS: usize = 12;

/// The facts of a set of packages.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    /// The version of Cargo.toml.
    pub(crate) version: String,
    /// The target triple, which is this machine's.
    pub(crate) target: String,
    /// The hash of the compiler's own commit, under which it names the standard library's sources.
    pub(crate) rustc_commit: String,
    /// The start of the commit's hash, with `-modified` where the working tree differs from the commit.
    pub(crate) commit: String,
    /// The day of the commit, as `2026-01-31`.
    pub(crate) commit_date: String,
    /// Whether the commit has the tag of the version, such as `v0.1.0`, and the working tree does not differ from it.
    pub(crate) is_tagged: bool,
    /// The first of the package's `authors` in Cargo.toml, who answers for the packages.
    pub(crate) maintainer: String,
    /// The commit's time in seconds since 1970, or what `SOURCE_DATE_EPOCH` says.
    pub(crate) epoch_s: u64,
}

impl Release {
    /// Reads Cargo's, the compiler's and Git's account of the sources.
    pub(crate) fn read(place: &CargoWorkspace) -> Result<Release, String> {
        let mut packages = place.metadata["packages"].as_array().into_iter().flatten();
        let package = packages.find(|package| package["name"] == NAME);
        let version = package.and_then(|package| package["version"].as_str());
        let version = version.ok_or("dist: the workspace has no package `crossdock`")?.to_owned();
        let maintainer = package.and_then(|package| package["authors"][0].as_str()).unwrap_or(MAINTAINER);
        let commit = commit(&place.root)?;
        let compiler = text(tool("rustc").arg("-vV").current_dir(&place.root))?;
        let field = |name: &str| {
            let line = compiler.lines().find_map(|line| line.strip_prefix(name));
            line.map(|rest| rest.trim().to_owned()).ok_or_else(|| format!("dist: `rustc -vV` has no line `{name}`"))
        };
        let epoch_s = epoch_s(&place.root)?;
        Ok(Release {
            is_tagged: is_tagged(&place.root, &version, &commit),
            version,
            maintainer: maintainer.to_owned(),
            target: field("host:")?,
            rustc_commit: field("commit-hash:")?,
            commit,
            commit_date: text(tool("date").args(["-u", "+%F", "-d", &format!("@{epoch_s}")]))?,
            epoch_s,
        })
    }

    /// Whether the working tree differs from the commit.
    pub(crate) fn is_modified(&self) -> bool {
        self.commit.ends_with("-modified")
    }

    /// The name that archives and their top folder begin with: `crossdock-0.1.0`.
    pub(crate) fn stem(&self) -> String {
        format!("{NAME}-{}", self.version)
    }
}

/// `CROSSDOCK_COMMIT` where it is set, as for sources without Git; else Git's answer.
fn commit(root: &Path) -> Result<String, String> {
    if let Some(given) = variable("CROSSDOCK_COMMIT") {
        return Ok(given);
    }
    let remedy = "set CROSSDOCK_COMMIT and SOURCE_DATE_EPOCH where the sources are not a Git checkout";
    let head = text(git(root).args(["rev-parse", "HEAD"])).map_err(|why| format!("{why}\nremedy: {remedy}"))?;
    let changes = text(git(root).args(["status", "--porcelain", "--untracked-files=no"]))?;
    Ok(shown(&head, !changes.is_empty()))
}

/// Whether the commit has the version's tag, or `CROSSDOCK_COMMIT` is that tag.
fn is_tagged(root: &Path, version: &str, commit: &str) -> bool {
    let tag = format!("v{version}");
    if variable("CROSSDOCK_COMMIT").is_some() {
        return commit == tag;
    }
    let tags = text(git(root).args(["tag", "--points-at", "HEAD"])).unwrap_or_default();
    tags.lines().any(|line| line == tag) && !commit.ends_with("-modified")
}

fn shown(head: &str, modified: bool) -> String {
    let short: String = head.chars().take(COMMIT_CHARS).collect();
    if modified { short + "-modified" } else { short }
}

fn epoch_s(root: &Path) -> Result<u64, String> {
    let (from, text) = match variable("SOURCE_DATE_EPOCH") {
        Some(given) => ("SOURCE_DATE_EPOCH", given),
        None => ("`git log --format=%ct`", text(git(root).args(["log", "-1", "--format=%ct"]))?),
    };
    text.parse().map_err(|_| format!("dist: {from} is `{text}`, not a number of seconds since 1970"))
}

/// Git in a folder, without what a hook or a caller set for another repository.
pub(crate) fn git(root: &Path) -> Command {
    let mut git = tool("git");
    git.current_dir(root).env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").env_remove("GIT_INDEX_FILE");
    git
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_tree_is_not_taken_for_its_commit() {
        let head = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(shown(head, false), "0123456789ab");
        assert_eq!(shown(head, true), "0123456789ab-modified");
    }
}
