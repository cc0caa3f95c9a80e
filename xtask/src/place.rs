//! Where the workspace is and what is in it, as `cargo metadata` reports.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The workspace: its root, where builds go, and what Cargo says of its packages.
pub(crate) struct CargoWorkspace {
    /// The folder of the workspace's Cargo.toml.
    pub(crate) root: PathBuf,
    /// Where builds go: `target`, or what CARGO_TARGET_DIR says.
    pub(crate) target: PathBuf,
    /// `cargo metadata --no-deps` of the workspace.
    pub(crate) metadata: Value,
}

/// A program of integration tests.
pub(crate) struct TestProgram {
    /// The target's name, `daemons` say.
    pub(crate) name: String,
    /// Runs it in its package's folder.
    pub(crate) command: Command,
}

impl CargoWorkspace {
    /// Finds the workspace that this program was built in.
    pub(crate) fn find() -> Result<CargoWorkspace, String> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = here.parent().ok_or("xtask's folder has no parent")?.to_owned();
        let metadata = metadata(&root.join("Cargo.toml"), &["--no-deps"])?;
        let target = metadata["target_directory"].as_str().ok_or("cargo metadata names no target_directory")?;
        Ok(CargoWorkspace { target: target.into(), root, metadata })
    }

    /// A `cargo` command in the root.
    pub(crate) fn cargo(&self, args: &[&str]) -> Command {
        let mut command = Command::new(cargo());
        command.current_dir(&self.root).args(args);
        command
    }

    /// The names of the workspace's packages.
    pub(crate) fn packages(&self) -> impl Iterator<Item = &str> {
        self.metadata["packages"].as_array().into_iter().flatten().filter_map(|package| package["name"].as_str())
    }

    /// The package that a person means by a short or full name: `query` is `crossdock-query`.
    pub(crate) fn package(&self, name: &str) -> Option<&str> {
        let long = format!("crossdock-{name}");
        self.packages().find(|known| *known == name).or_else(|| self.packages().find(|known| *known == long))
    }

    /// The programs of a package's integration tests among those that `cargo test --no-run --message-format json` has named in
    /// `messages`, each to be run where and as `cargo test` does it.
    pub(crate) fn integration_tests(&self, package: &str, messages: &str) -> Result<Vec<TestProgram>, String> {
        let packages = self.metadata["packages"].as_array().into_iter().flatten();
        let manifest =
            packages.filter(|known| known["name"] == package).find_map(|known| known["manifest_path"].as_str());
        let manifest = manifest.ok_or_else(|| format!("the workspace has no package `{package}`"))?;
        let folder = Path::new(manifest).parent().ok_or_else(|| format!("{manifest} is in no folder"))?;
        let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let tests = artifacts.filter(|made| made["manifest_path"] == manifest && made["target"]["kind"][0] == "test");
        let programs: Vec<TestProgram> = tests
            .filter_map(|made| {
                let mut command = Command::new(made["executable"].as_str()?);
                command.current_dir(folder).env("CARGO_MANIFEST_DIR", folder).env("CARGO_PKG_NAME", package);
                Some(TestProgram { name: made["target"]["name"].as_str()?.to_owned(), command })
            })
            .collect();
        if programs.is_empty() { Err(format!("cargo named no test program of `{package}`")) } else { Ok(programs) }
    }

    /// A path as it reads from the root, for messages.
    pub(crate) fn short<'a>(&self, path: &'a Path) -> std::path::Display<'a> {
        path.strip_prefix(&self.root).unwrap_or(path).display()
    }
}

/// The metadata that `cargo metadata` has of a manifest.
pub(crate) fn metadata(manifest: &Path, more: &[&str]) -> Result<Value, String> {
    let mut command = Command::new(cargo());
    command.args(["metadata", "--format-version", "1", "--manifest-path"]).arg(manifest).args(more);
    let out = command.output().map_err(|e| format!("cargo metadata did not start: {e}"))?;
    if !out.status.success() {
        let why = String::from_utf8_lossy(&out.stderr);
        return Err(format!("cargo metadata of {} failed: {}", manifest.display(), why.trim()));
    }
    serde_json::from_slice(&out.stdout).map_err(|e| format!("cargo metadata printed what is not JSON: {e}"))
}

/// This machine's target triple.
pub(crate) fn host() -> Result<String, String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let out = Command::new(rustc).arg("-vV").output().map_err(|e| format!("rustc -vV: {e}"))?;
    let text = String::from_utf8_lossy(&out.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc -vV names no host".into())
}

/// The cargo that runs this program, so that toolchain overrides hold.
fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
