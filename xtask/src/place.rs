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

    /// The names of a package's integration tests.
    pub(crate) fn test_targets<'a>(&'a self, package: &'a str) -> impl Iterator<Item = &'a str> {
        let packages = self.metadata["packages"].as_array().into_iter().flatten();
        let targets =
            packages.filter(move |known| known["name"] == package).flat_map(|known| known["targets"].as_array());
        let tests = targets.flatten().filter(|target| target["kind"][0] == "test");
        tests.filter_map(|target| target["name"].as_str())
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
