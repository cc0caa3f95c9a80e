//! Builds the binary so that its bytes do not depend on the folder and the user, takes its debug information out, and lets
//! it write its completions and man pages.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::release::{NAME, Release};
use super::tool::{at, make_parent, output, text, tool, write};
use crate::place::CargoWorkspace;
use crate::steps::in_words;

/// The profile of the root Cargo.toml that packages are built with.
pub(crate) const PROFILE: &str = "dist";

/// Where a build reads and writes. Two builds differ in nothing else.
pub(crate) struct Build {
    /// The sources.
    pub(crate) root: PathBuf,
    /// Where Cargo puts what it compiles.
    pub(crate) target: PathBuf,
    /// Where Cargo keeps the sources of other packages.
    pub(crate) cargo_home: PathBuf,
}

impl Build {
    /// The build in the working tree, in a target folder of its own: the flags are not those of other builds.
    pub(crate) fn here(place: &CargoWorkspace) -> Result<Build, String> {
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
        let cargo_home = home.ok_or("dist: neither CARGO_HOME nor HOME is set; set one of them")?;
        Ok(Build { root: place.root.clone(), target: place.target.join("dist-build"), cargo_home })
    }

    /// Compiles the binary and returns its path. The output of Cargo goes to standard error as it comes.
    pub(crate) fn compile(&self, release: &Release) -> Result<PathBuf, String> {
        let mut cargo = self.cargo(release)?;
        let status = cargo.status().map_err(|e| format!("{}: {e}", in_words(&cargo)))?;
        if !status.success() {
            return Err(format!("{} failed; correct what the compiler reports above", in_words(&cargo)));
        }
        Ok(self.target.join(&release.target).join(PROFILE).join(NAME))
    }

    fn cargo(&self, release: &Release) -> Result<Command, String> {
        let sysroot = text(tool("rustc").args(["--print", "sysroot"]).current_dir(&self.root))?;
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--locked", "--profile", PROFILE, "--package", NAME, "--target", &release.target]);
        cargo.arg("--target-dir").arg(&self.target).current_dir(&self.root);
        // A caller's settings would change the bytes. Cargo takes these flags in place of all that a configuration has.
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_setting(name)) {
            cargo.env_remove(name);
        }
        cargo.env("CARGO_ENCODED_RUSTFLAGS", self.flags(release, Path::new(&sysroot)));
        cargo.env("CARGO_HOME", &self.cargo_home).env("CARGO_INCREMENTAL", "0");
        cargo.env("CROSSDOCK_COMMIT", &release.commit).env("CROSSDOCK_COMMIT_DATE", &release.commit_date);
        cargo.env("SOURCE_DATE_EPOCH", release.epoch_s.to_string());
        cargo.stdin(Stdio::null()).stdout(Stdio::from(std::io::stderr()));
        Ok(cargo)
    }

    /// The compiler's flags, as Cargo wants them: a unit separator between two.
    fn flags(&self, release: &Release, sysroot: &Path) -> OsString {
        let sources = format!("/usr/src/{}", release.stem());
        let mut renamed = vec![
            // With the component rust-src the compiler names the standard library's files where they lie, else like this.
            (sysroot.join("lib/rustlib/src/rust"), format!("/rustc/{}", release.rustc_commit)),
            (self.cargo_home.clone(), "/usr/src/cargo".to_owned()),
            (self.root.clone(), sources.clone()),
            (self.target.clone(), format!("{sources}/target")),
        ];
        // The compiler knows the folder that it works in without symbolic links, and files as it is given them.
        let parts = ["git", "registry"].map(|part| (self.cargo_home.join(part), format!("/usr/src/cargo/{part}")));
        for (from, to) in [renamed.as_slice(), &parts].concat() {
            renamed.extend(from.canonicalize().ok().filter(|real| *real != from).map(|real| (real, to)));
        }
        // Of several that fit, the compiler takes the last: that must be the folder that lies deepest.
        renamed.sort_by_key(|(from, _)| from.as_os_str().len());
        // gcc asks for a build id on some systems and not on others; a debugger finds the debug information by it.
        let mut flags = OsString::from("-Clink-arg=-Wl,--build-id=sha1");
        for (from, to) in renamed {
            flags.push("\u{1f}--remap-path-prefix=");
            flags.push(from);
            flags.push("=");
            flags.push(to);
        }
        flags
    }
}

/// Whether a variable of the caller's would change how Cargo or the compiler works.
fn is_setting(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    let whole = ["RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER"];
    let starts = ["CARGO_PROFILE_", "CARGO_TARGET_", "CARGO_BUILD_"];
    // How many jobs run at once changes nothing.
    name != "CARGO_BUILD_JOBS" && (whole.contains(&&*name) || starts.iter().any(|start| name.starts_with(start)))
}

/// The source of packages, beside files of the repository: a folder with `bin/crossdock`, `debug/`, `completions/`
/// and `man/`.
pub(crate) struct Made {
    /// The folder.
    pub(crate) folder: PathBuf,
    /// The binary's build id, in hexadecimal.
    pub(crate) build_id: String,
}

/// Splits a binary into what runs and what debuggers read.
pub(crate) fn split(binary: &Path, folder: &Path) -> Result<Made, String> {
    let notes = text(tool("readelf").args(["--wide", "--notes"]).arg(binary))?;
    let build_id = build_id(&notes).ok_or_else(|| format!("{}: it has no build id", binary.display()))?;
    let debug = folder.join("debug").join(debug_path(&build_id));
    make_parent(&debug)?;
    let keep = ["--only-keep-debug", "--compress-debug-sections=zlib"];
    output(tool("objcopy").args(keep).arg(binary).arg(&debug))?;
    let stripped = folder.join("bin").join(NAME);
    make_parent(&stripped)?;
    let mut link = OsString::from("--add-gnu-debuglink=");
    link.push(&debug);
    output(tool("objcopy").args(["--strip-all", "--remove-section=.comment"]).arg(link).arg(binary).arg(&stripped))?;
    Ok(Made { folder: folder.to_owned(), build_id })
}

/// The build id in what `readelf --notes` prints.
fn build_id(notes: &str) -> Option<String> {
    let id = notes.lines().find_map(|line| line.split_once("Build ID:"))?.1.trim();
    (id.len() > 2 && id.bytes().all(|digit| digit.is_ascii_hexdigit())).then(|| id.to_owned())
}

/// Where below `usr/lib/debug` a debugger looks for a build id.
fn debug_path(build_id: &str) -> String {
    let (first, rest) = build_id.split_at(2);
    format!(".build-id/{first}/{rest}.debug")
}

/// Lets the binary write its completions and man pages into the folder.
pub(crate) fn describe(made: &Made, release: &Release) -> Result<(), String> {
    let binary = made.folder.join("bin").join(NAME);
    for shell in ["bash", "zsh", "fish"] {
        let script = output(own(&binary, release).args(["completions", shell]))?;
        write(&made.folder.join("completions").join(shell), script)?;
    }
    let man = made.folder.join("man");
    std::fs::create_dir_all(&man).map_err(at(&man))?;
    output(own(&binary, release).args(["man", "--directory"]).arg(&man))?;
    Ok(())
}

/// The binary, without the caller's settings for it.
fn own(binary: &Path, release: &Release) -> Command {
    let mut command = tool(&binary.to_string_lossy());
    command.env("SOURCE_DATE_EPOCH", release.epoch_s.to_string()).env_remove("CROSSDOCK_CONFIG");
    command.env_remove("CROSSDOCK_SOCKET").env_remove("COLUMNS");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_built_for_size_by_a_first_build_are_built_for_speed_by_dist() {
        let manifest = include_str!("../../../Cargo.toml");
        let sections = manifest.split("\n[").filter_map(|section| section.split_once("]\n"));
        let with = |section: &str, levels: &[&str]| {
            sections.clone().any(|(name, settings)| {
                let level = settings.lines().find_map(|line| line.strip_prefix("opt-level = "));
                name == section && level.is_some_and(|level| levels.contains(&level))
            })
        };
        assert!(with("profile.dist", &["3"]));
        let packages = sections.clone().filter_map(|(name, _)| name.strip_prefix("profile.release.package."));
        let for_size: Vec<_> =
            packages.filter(|of| with(&format!("profile.release.package.{of}"), &["\"s\"", "\"z\""])).collect();
        assert!(for_size.contains(&"crossdock-runtime"));
        for package in for_size {
            let section = format!("profile.dist.package.{package}");
            assert!(with(&section, &["3"]), "[{section}] takes over the level of [profile.release.package.{package}]");
        }
    }

    #[test]
    fn the_deepest_folder_is_renamed_last() {
        let release = super::super::tests::release();
        let build = Build { root: "/a/b".into(), target: "/a/b/target".into(), cargo_home: "/a".into() };
        let flags = build.flags(&release, Path::new("/a/b/target/rust"));
        let flags = flags.to_string_lossy().into_owned();
        let flags: Vec<&str> = flags.split('\u{1f}').collect();
        assert_eq!(
            flags,
            [
                "-Clink-arg=-Wl,--build-id=sha1",
                "--remap-path-prefix=/a=/usr/src/cargo",
                "--remap-path-prefix=/a/b=/usr/src/crossdock-1.2.3",
                "--remap-path-prefix=/a/b/target=/usr/src/crossdock-1.2.3/target",
                "--remap-path-prefix=/a/b/target/rust/lib/rustlib/src/rust=/rustc/c0ffee",
            ]
        );
    }

    #[test]
    fn a_folder_behind_a_symbolic_link_is_renamed_by_both_names() {
        let folder = std::env::temp_dir().join(format!("crossdock-dist-test-{}-links", std::process::id()));
        let folder = super::super::tool::Scratch::new(folder).unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let [home, registry] = ["home", "elsewhere"].map(|name| folder.join(name));
        for path in [&home, &registry] {
            std::fs::create_dir(path).unwrap();
        }
        std::os::unix::fs::symlink(&registry, home.join("registry")).unwrap();
        let build = Build { root: "/a/b".into(), target: "/a/b/target".into(), cargo_home: home.clone() };
        let flags = build.flags(&super::super::tests::release(), Path::new("/rust"));
        let flags = flags.to_string_lossy();
        for (from, to) in [(home, "/usr/src/cargo"), (registry, "/usr/src/cargo/registry")] {
            let flag = format!("--remap-path-prefix={}={to}", from.display());
            assert!(flags.split('\u{1f}').any(|known| known == flag), "{flag} in {flags}");
        }
    }

    #[test]
    fn a_callers_settings_for_cargo_do_not_reach_the_build() {
        for name in ["RUSTFLAGS", "CARGO_PROFILE_DIST_LTO", "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER"] {
            assert!(is_setting(OsStr::new(name)), "{name}");
        }
        for name in ["CARGO", "CARGO_HOME", "CARGO_BUILD_JOBS", "CARGO_NET_OFFLINE", "PATH"] {
            assert!(!is_setting(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn a_build_id_says_where_debuggers_look() {
        let notes = "Displaying notes found in: .note.gnu.build-id\n  Owner                Data size \tDescription\n  \
            GNU                  0x00000014\tNT_GNU_BUILD_ID (unique build ID bitstring)\t    Build ID: 0a1b2c3d\n";
        assert_eq!(build_id(notes).as_deref(), Some("0a1b2c3d"));
        assert_eq!(debug_path("0a1b2c3d"), ".build-id/0a/1b2c3d.debug");
        assert_eq!(build_id("    Build ID: ../../etc\n"), None);
        assert_eq!(build_id("no notes"), None);
    }
}
