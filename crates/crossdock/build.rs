//! Records in the binary the commit and the settings of the build. Nothing here depends on the time or place of the build, so the
//! same sources give the same binary.
//!
//! The commit is that of `CROSSDOCK_COMMIT` (set where there is no checkout, as in a package's build, with its date in
//! `CROSSDOCK_COMMIT_DATE`), else that of the Git checkout, else `unknown`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Digits of the commit's hash that are shown.
const COMMIT_CHARS: usize = 12;

/// The first version of the GNU C library whose loader reads packed relative relocations (`DT_RELR`).
const RELR_SINCE: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CROSSDOCK_COMMIT");
    println!("cargo::rerun-if-env-changed=CROSSDOCK_COMMIT_DATE");
    let (commit, date) = commit();
    write("COMMIT", &commit);
    write("COMMIT_DATE", &date);
    write("FEATURES", &features());
    write("TARGET", &variable("TARGET"));
    write("PROFILE", &profile());
    if profile() != "debug" && variable("TARGET") == "x86_64-unknown-linux-gnu" {
        // Functions with the same code are there once, which makes the binary smaller by a fiftieth. Rust's linker for this target
        // (LLD, as of Rust 1.90) knows the option; those of other targets may not.
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
        // Addresses that the loader sets take a bit each instead of 24 bytes: another twentieth. A loader older than that of this
        // machine may not know how to read it, so packages and builds for another kind of machine do without.
        let is_for_here = variable("HOST") == variable("TARGET");
        if profile() == "release" && is_for_here && libc_version() >= RELR_SINCE {
            println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        }
    }
    let rustc = Command::new(variable("RUSTC")).arg("--version").output();
    let rustc = rustc.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    write("RUSTC", &rustc);
}

/// Passes a value to the program; `unknown` where there is none.
fn write(name: &str, value: &str) {
    let value = if value.is_empty() { "unknown" } else { value };
    println!("cargo::rustc-env=CROSSDOCK_BUILT_{name}={}", value.replace(char::is_control, " "));
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default().trim().to_owned()
}

/// The version of this machine's GNU C library; 0.0 where it is another one or does not say.
fn libc_version() -> (u32, u32) {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let text = output.map_or(String::new(), |output| String::from_utf8_lossy(&output.stdout).into_owned());
    let version = text.split_whitespace().nth(1).and_then(|version| version.split_once('.'));
    version.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?))).unwrap_or_default()
}

/// The profile's name. `PROFILE` is `debug` or `release`, also for profiles that inherit from those; `OUT_DIR` is
/// `…/NAME/build/…`.
fn profile() -> String {
    let folder = PathBuf::from(variable("OUT_DIR"));
    let names: Vec<_> = folder.iter().filter_map(|name| name.to_str()).collect();
    let build = names.iter().rposition(|name| *name == "build").filter(|at| *at > 0);
    build.map_or_else(|| variable("PROFILE"), |at| names[at - 1].to_owned())
}

/// The optional features that are turned on, from the variables that Cargo sets.
fn features() -> String {
    let mut features: Vec<String> = env::vars()
        .filter_map(|(name, _)| name.strip_prefix("CARGO_FEATURE_").map(|name| name.to_lowercase().replace('_', "-")))
        .filter(|name| name != "default")
        .collect();
    features.sort();
    if features.is_empty() { "none".to_owned() } else { features.join(" ") }
}

/// The commit, and the day on which it was made.
fn commit() -> (String, String) {
    let given = variable("CROSSDOCK_COMMIT");
    if !given.is_empty() {
        // The text behind the number (`-modified`) stays.
        let (number, rest) =
            given.split_once('-').map_or((&*given, ""), |(number, _)| (number, &given[number.len()..]));
        let number: String = number.chars().take(COMMIT_CHARS).collect();
        return (number + rest, variable("CROSSDOCK_COMMIT_DATE"));
    }
    checkout().unwrap_or_default()
}

/// The commit and date of the Git checkout of these sources, if there is one.
fn checkout() -> Option<(String, String)> {
    let root = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../..").canonicalize().ok()?;
    // Sources unpacked inside another repository do not belong to its commits.
    if Path::new(&git(&root, &["rev-parse", "--show-toplevel"])?).canonicalize().ok()? != root {
        return None;
    }
    let commit = git(&root, &["rev-parse", &format!("--short={COMMIT_CHARS}"), "HEAD"])?;
    watch_head(&root);
    let sources = sources(&root);
    sources.iter().for_each(|path| watch(path));
    let mut status = vec!["status".to_owned(), "--porcelain".to_owned(), "--".to_owned()];
    status.extend(sources.iter().map(|path| path.display().to_string()));
    let changes = git(&root, &status)?;
    let modified = if changes.is_empty() { "" } else { "-modified" };
    let date = git(&root, &["show", "--no-patch", "--no-show-signature", "--format=%cs", "HEAD"]).unwrap_or_default();
    Some((commit.chars().take(COMMIT_CHARS).collect::<String>() + modified, date))
}

/// Reruns this script after a commit or a checkout.
fn watch_head(root: &Path) {
    let place = |name: &str| git(root, &["rev-parse", "--git-path", name]).map(|path| root.join(path));
    place("HEAD").iter().for_each(|head| watch(head));
    if let Some(branch) = git(root, &["symbolic-ref", "--quiet", "HEAD"]) {
        // A branch is a file of its own, or a line in `packed-refs` until its next commit makes that file.
        let file = place(&branch);
        let nearest = file.iter().flat_map(|file| file.ancestors()).find(|path| path.exists()).map(Path::to_owned);
        nearest.iter().chain(&place("packed-refs")).for_each(|path| watch(path));
    }
}

/// The sources of the binary: a difference from the commit is marked `-modified`.
fn sources(root: &Path) -> Vec<PathBuf> {
    let mut sources = vec![root.join("Cargo.toml"), root.join("Cargo.lock")];
    let crates = std::fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    // `sim` is for tests only.
    for folder in crates.map(|entry| entry.path()).filter(|folder| !folder.ends_with("sim")) {
        sources.extend([folder.join("Cargo.toml"), folder.join("src")]);
    }
    sources.push(root.join("crates/crossdock/build.rs"));
    sources.push(root.join("crates/crossdock/crossdock.example.toml"));
    sources.retain(|path| path.exists());
    sources.sort();
    sources
}

/// Reruns this script when the path changes. Cargo would rerun it every time for a path that does not exist.
fn watch(path: &Path) {
    if path.exists() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// The output of a Git command; `None` if it fails or Git is missing.
fn git<S: AsRef<std::ffi::OsStr>>(root: &Path, arguments: &[S]) -> Option<String> {
    // Without locks, so that a build does not block a commit.
    let output = Command::new("git").arg("--no-optional-locks").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
