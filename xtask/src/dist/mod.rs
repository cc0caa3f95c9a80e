//! `cargo xtask dist`: a release's packages. The same commit gives the same bytes in every folder and for every user, with the
//! same toolchain: rustc, linker, libc, gzip.

mod archive;
mod build;
mod compare;
mod debian;
mod layout;
mod libraries;
mod needs;
mod release;
mod tool;

#[cfg(test)]
mod image;

use std::ffi::OsString;
use std::path::Path;

use lexopt::prelude::*;

use crate::Ended;
use crate::place::CargoWorkspace;
pub(crate) use build::PROFILE;
use build::{Build, Made};
use layout::{Package, Roots};
use release::Release;
use tool::{Scratch, at, output, tool, write};

/// The file with the packages' checksums.
const SUMS: &str = "SHA256SUMS";

/// `cargo xtask dist [--out DIR] [--check]`.
pub(crate) fn run(place: &CargoWorkspace, args: Vec<OsString>) -> Result<Ended, String> {
    let default = place.target.join("packages");
    let mut out = default.clone();
    let mut check = false;
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next().map_err(|e| e.to_string())? {
        match arg {
            Long("check") => check = true,
            Long("out") => match parser.value() {
                Ok(folder) => out = folder.into(),
                Err(why) => return Ok(Ended::Usage(format!("dist: {why}"))),
            },
            other => return Ok(Ended::Usage(format!("dist: {}", other.unexpected()))),
        }
    }
    let out = std::path::absolute(&out).map_err(at(&out))?;
    tool::all_present()?;
    let release = Release::read(place)?;
    if release.is_modified() {
        if check {
            return Err("dist: --check compares with a clone of HEAD, and the working tree has other changes; commit \
                or stash them"
                .into());
        }
        eprintln!("xtask: dist: the working tree differs from its commit: these packages are not to be published");
    }
    if out == default && out.exists() {
        // Each commit's package has a name of its own: without this, `apt install` would be given those of former commits too.
        std::fs::remove_dir_all(&out).map_err(at(&out))?;
    }
    let names = make(&Build::here(place)?, &release, &place.target.join("xtask/dist"), &out)?;
    for name in &names {
        let path = out.join(name);
        let bytes = std::fs::metadata(&path).map_err(at(&path))?.len();
        println!("{:>12}  {}", bytes, place.short(&path));
    }
    if check { build_again(place, &release, &names, &out) } else { Ok(Ended::Well) }
}

/// Builds once more elsewhere, with other folders for everything, and compares.
fn build_again(place: &CargoWorkspace, release: &Release, names: &[String], out: &Path) -> Result<Ended, String> {
    let name = format!("crossdock-dist-{}-in-a-folder-with-a-longer-name", std::process::id());
    let elsewhere = Scratch::new(std::env::temp_dir().join(name))?;
    let [clone, home, second, scratch] =
        ["sources", "cargo-home", "packages", "made"].map(|name| elsewhere.path().join(name));
    let here = Build::here(place)?;
    output(release::git(&place.root).args(["clone", "--quiet", "--no-hardlinks", "."]).arg(&clone))?;
    // Other packages' sources under another path, without fetching them again.
    std::fs::create_dir_all(&home).map_err(at(&home))?;
    for part in ["config.toml", "git", "registry"] {
        let from = here.cargo_home.join(part);
        if from.exists() {
            std::os::unix::fs::symlink(&from, home.join(part)).map_err(at(&from))?;
        }
    }
    let build = Build { root: clone, target: elsewhere.path().join("compiled"), cargo_home: home };
    let again = make(&build, release, &scratch, &second)?;
    let difference = if again == names {
        compare::first_difference(out, &second, names)?
    } else {
        Some(format!("the packages' names: {} and {}", names.join(" "), again.join(" ")))
    };
    match difference {
        None => {
            println!("the same bytes from a second build, of a clone in {}", elsewhere.path().display());
            Ok(Ended::Well)
        }
        Some(what) => {
            println!("FAILED  a second build, of a clone in {}, differs: {what}", elsewhere.path().display());
            Ok(Ended::Failed)
        }
    }
}

/// Builds everything and writes the packages to a folder. Returns their files' names.
fn make(build: &Build, release: &Release, scratch: &Path, out: &Path) -> Result<Vec<String>, String> {
    let binary = build.compile(release)?;
    let folder = Scratch::new(scratch.to_owned())?;
    let made = build::split(&binary, folder.path())?;
    build::describe(&made, release)?;
    write(&made.folder.join("LIBRARIES"), libraries::page(build, release)?)?;
    write(&made.folder.join("changelog.Debian"), debian::changelog(release)?)?;
    write_packages(release, &Roots { repository: &build.root, made: &made.folder }, &made, out)
}

/// Writes the packages from what was built, and their checksums.
fn write_packages(release: &Release, roots: &Roots<'_>, made: &Made, out: &Path) -> Result<Vec<String>, String> {
    let scratch = |name: &str| Scratch::new(out.join(format!(".{name}")));
    std::fs::create_dir_all(out).map_err(at(out))?;
    let mut names = Vec::new();
    for (table, ending) in [(&layout::PRODUCT[..], "tar.gz"), (&layout::DEBUG[..], "debug.tar.gz")] {
        let name = format!("{}-{}.{ending}", release.stem(), release.target);
        let folder = scratch(&name)?;
        archive::lay_out(&layout::items(table, Package::Tarball, roots)?, &folder.path().join(release.stem()))?;
        archive::tar_gz(folder.path(), &release.stem(), release.epoch_s, &out.join(&name))?;
        names.push(name);
    }
    let items = layout::items(&layout::PRODUCT, Package::Debian, roots)?;
    let depends = needs::depends(&made.folder.join("bin").join(release::NAME))?;
    let debug_items = layout::items(&layout::DEBUG, Package::Debian, roots)?;
    for package in
        [debian::product(roots.repository, &items, depends)?, debian::debug(release, &debug_items, &made.build_id)]
    {
        let name = package.file_name(release)?;
        package.write(release, &out.join(&name), &scratch(&name)?)?;
        names.push(name);
    }
    let sums = output(tool("sha256sum").arg("--").args(&names).current_dir(out))?;
    write(&out.join(SUMS), sums)?;
    names.push(SUMS.to_owned());
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;
    use tool::text;

    /// A release of no real commit.
    pub(crate) fn release() -> Release {
        Release {
            version: "1.2.3".into(),
            target: "x86_64-unknown-linux-gnu".into(),
            rustc_commit: "c0ffee".into(),
            commit: "0123456789ab".into(),
            commit_date: "2023-11-14".into(),
            is_tagged: true,
            maintainer: "Crossdock developers <crossdock@localhost>".into(),
            epoch_s: 1_700_000_000,
        }
    }

    /// A small repository and what its build made, with a real if small binary, so that a package takes no release build.
    pub(crate) struct Fake {
        folder: Scratch,
        repository: PathBuf,
        /// The build's results.
        pub(crate) made: Made,
    }

    impl Fake {
        /// Makes both in a folder that has the test's name in its own.
        pub(crate) fn new(test: &str) -> Fake {
            let folder = format!("crossdock-dist-test-{}-{test}", std::process::id());
            let folder = Scratch::new(std::env::temp_dir().join(folder)).unwrap();
            let repository = folder.path().join("repository");
            let files = [
                ("README.md", "# A page\n"),
                ("LICENSE-APACHE", "Apache\n"),
                ("LICENSE-MIT", "MIT\n"),
                ("crates/crossdock/crossdock.example.toml", "#a = 1\n"),
                ("docs/sql.md", "# A page\n"),
                ("packaging/INSTALL", "usr\n"),
                ("packaging/crossdock.toml", "[log]\n"),
                ("packaging/systemd/crossdock.service", "[Service]\nExecStart=/usr/bin/crossdock\n"),
                ("packaging/systemd/crossdock.socket", "[Socket]\n"),
                ("packaging/sysctl/60-crossdock.conf", "net.core.rmem_max = 1\n"),
                ("packaging/sysusers.d/crossdock.conf", "u crossdock -\n"),
            ];
            for (name, text) in files {
                write(&repository.join(name), text).unwrap();
            }
            let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/debian");
            for name in ["copyright", "postinst", "postrm", "prerm"] {
                write(&repository.join("packaging/debian").join(name), std::fs::read(real.join(name)).unwrap())
                    .unwrap();
            }
            let source = folder.path().join("main.rs");
            write(&source, "fn main() {}\n").unwrap();
            let binary = folder.path().join("binary");
            let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
            let flags = ["-Cdebuginfo=line-tables-only", "-Clink-arg=-Wl,--build-id=sha1", "-o"];
            output(Command::new(compiler).args(flags).arg(&binary).arg(&source)).unwrap();
            let made = build::split(&binary, &folder.path().join("made")).unwrap();
            let files = ["completions/bash", "completions/zsh", "completions/fish", "LIBRARIES", "changelog.Debian"];
            let pages = ["man/crossdock.1", "man/crossdock-serve.1", "man/crossdock.toml.5"];
            for name in files.into_iter().chain(pages) {
                write(&made.folder.join(name), name).unwrap();
            }
            Fake { folder, repository, made }
        }

        /// The whole folder.
        pub(crate) fn path(&self) -> &Path {
            self.folder.path()
        }

        /// The repository.
        pub(crate) fn repository(&self) -> &Path {
            &self.repository
        }

        /// Where the table's paths start.
        pub(crate) fn roots(&self) -> Roots<'_> {
            Roots { repository: &self.repository, made: &self.made.folder }
        }
    }

    #[test]
    fn a_whole_set_of_packages() {
        let fake = Fake::new("whole");
        let out = fake.path().join("out");
        let names = write_packages(&release(), &fake.roots(), &fake.made, &out).unwrap();
        let expected = [
            "crossdock-1.2.3-x86_64-unknown-linux-gnu.tar.gz",
            "crossdock-1.2.3-x86_64-unknown-linux-gnu.debug.tar.gz",
            "crossdock_1.2.3-1_amd64.deb",
            "crossdock-dbgsym_1.2.3-1_amd64.deb",
            "SHA256SUMS",
        ];
        assert_eq!(names, expected);
        let mut left: Vec<_> = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        let mut sorted = expected;
        sorted.sort_unstable();
        assert_eq!(left, sorted, "nothing but the packages is left");
        output(tool("sha256sum").args(["--check", "--strict", SUMS]).current_dir(&out)).unwrap();

        let listed =
            |name: &str| text(tool("tar").args(["--numeric-owner", "--full-time", "-tvzf", name]).current_dir(&out));
        let tarball = listed(expected[0]).unwrap();
        assert!(
            tarball.starts_with("drwxr-xr-x 0/0               0 2023-11-14 22:13:20 crossdock-1.2.3/\n"),
            "{tarball}"
        );
        assert!(
            tarball.lines().all(|line| line.contains(" 0/0 ") && line.contains(" 2023-11-14 22:13:20 ")),
            "{tarball}"
        );
        assert!(
            tarball.contains("-rwxr-xr-x") && tarball.contains(" crossdock-1.2.3/usr/bin/crossdock\n"),
            "{tarball}"
        );

        output(tool("ar").args(["x", expected[2]]).current_dir(&out)).unwrap();
        let members = text(tool("ar").args(["t", expected[2]]).current_dir(&out)).unwrap();
        assert_eq!(members, "debian-binary\ncontrol.tar.gz\ndata.tar.gz", "in the order that dpkg wants");
        let control = |name: &str| text(tool("tar").args(["-xzOf", "control.tar.gz", name]).current_dir(&out)).unwrap();
        assert_eq!(control("./conffiles"), "/etc/crossdock/crossdock.toml");
        assert!(control("./control").contains("\nDepends: libc6 (>= 2."), "{}", control("./control"));
        assert!(control("./postinst").contains("crossdock.socket"));
        output(tool("tar").args(["-xzf", "data.tar.gz"]).current_dir(&out)).unwrap();
        write(&out.join("md5sums"), control("./md5sums") + "\n").unwrap();
        output(tool("md5sum").args(["--check", "--strict", "md5sums"]).current_dir(&out)).unwrap();
        output(&mut Command::new(out.join("usr/bin/crossdock"))).unwrap();
        let pages = tool("gzip").args(["-dc", "usr/share/man/man1/crossdock.1.gz"]).current_dir(&out).output().unwrap();
        assert_eq!(pages.stdout, b"man/crossdock.1");

        output(tool("ar").args(["x", expected[3]]).current_dir(&out)).unwrap();
        let debug = listed("data.tar.gz").unwrap();
        assert!(debug.contains("/.build-id/") && debug.ends_with("doc/crossdock-dbgsym -> crossdock"), "{debug}");
    }

    #[test]
    fn installing_raises_settings_and_lowers_none() {
        let fake = Fake::new("settings");
        let script = std::fs::read_to_string(fake.repository().join("packaging/debian/postinst")).unwrap();
        let function = script.split_once("\nraise_settings() {").unwrap().1.split_once("\n}\n").unwrap().0;
        let [settings, present] = ["settings.conf", "present"].map(|name| fake.path().join(name));
        write(&settings, "# a = 1\n\nnet.core.rmem_max = 200\nnet.core.wmem_max=200\nnet.core.absent = 200\n").unwrap();
        for (rmem, wmem, expected) in [("100", "300", ["200", "300"]), ("200", "100", ["200", "200"])] {
            let files = ["rmem_max", "wmem_max"].map(|name| present.join("net/core").join(name));
            for (file, value) in files.iter().zip([rmem, wmem]) {
                write(file, format!("{value}\n")).unwrap();
            }
            let mut shell = Command::new("/bin/sh");
            shell.arg("-euc").arg(format!("f() {{{function}\n}}\nf \"$@\"")).arg("sh").arg(&settings).arg(&present);
            assert_eq!(text(&mut shell), Ok(String::new()));
            assert_eq!(files.map(|file| std::fs::read_to_string(file).unwrap().trim().to_owned()), expected);
        }
    }

    #[test]
    fn the_scripts_are_shell_and_end_well_without_systemd() {
        let fake = Fake::new("scripts");
        let items = layout::items(&layout::PRODUCT, Package::Debian, &fake.roots()).unwrap();
        let package = debian::product(fake.repository(), &items, "libc6".into()).unwrap();
        assert_eq!(package.scripts.len(), 3);
        let nowhere = fake.path().join("no-programs");
        std::fs::create_dir_all(&nowhere).unwrap();
        for (name, script) in &package.scripts {
            let path = fake.path().join(name);
            write(&path, script).unwrap();
            for action in ["configure", "remove", "upgrade", "abort-remove"] {
                // Neither systemd's programs nor Debian's are on this PATH, and nothing is outside of DPKG_ROOT.
                let mut shell = Command::new("/bin/sh");
                shell.arg("-eu").arg(&path).arg(action).env("PATH", &nowhere).env("DPKG_ROOT", fake.path());
                assert_eq!(text(&mut shell), Ok(String::new()), "{name} {action}");
            }
        }
    }
}
