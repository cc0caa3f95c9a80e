//! The Debian packages: what policy asks for beside the files themselves.

use std::path::Path;

use super::archive;
use super::layout::{CONFIGURATION, Item, UNITS};
use super::release::{NAME, Release};
use super::tool::{Scratch, at, text, tool, write};

/// How often this version was packaged.
const REVISION: u32 = 1;

/// Where the scripts are that run when the package is installed or removed.
const SCRIPTS: &str = "packaging/debian";

/// The package's description: a line, then paragraphs of indented lines.
const DESCRIPTION: &str = "processes typed messages while they are in transit
 Publishers send typed records. Each subscriber says in SQL which of them it
 wants and in what shape, and Crossdock selects and reshapes them between the
 two, next to the network. Handlers, written as queries or as programs, and
 conversions between formats are deployed and replaced while records flow.
 .
 This package has the daemon and the command line, which are one program, with
 its systemd units, an example configuration and man pages.";

/// A Debian package to be written.
pub(crate) struct Package<'a> {
    /// The package's name.
    pub(crate) name: String,
    /// Its files.
    pub(crate) items: &'a [Item],
    /// The fields of its control file that are its own, in order.
    pub(crate) fields: Vec<(&'static str, String)>,
    /// Its scripts, by name.
    pub(crate) scripts: Vec<(&'static str, String)>,
}

/// The package with the program.
pub(crate) fn product<'a>(repository: &Path, items: &'a [Item], depends: String) -> Result<Package<'a>, String> {
    let fields = vec![
        ("Depends", depends),
        // They make the daemon's user and run it; in a container there is neither.
        ("Recommends", "systemd | systemd-standalone-sysusers".to_owned()),
        ("Section", "net".to_owned()),
        ("Priority", "optional".to_owned()),
        ("Description", DESCRIPTION.to_owned()),
    ];
    let mut scripts = Vec::new();
    for name in ["postinst", "postrm", "prerm"] {
        let path = repository.join(SCRIPTS).join(name);
        let template = std::fs::read_to_string(&path).map_err(at(&path))?;
        scripts.push((name, filled(&template, items).map_err(|why| format!("{}: {why}", path.display()))?));
    }
    Ok(Package { name: NAME.to_owned(), items, fields, scripts })
}

/// The package with the debug information of the program with this build id.
pub(crate) fn debug<'a>(release: &Release, items: &'a [Item], build_id: &str) -> Package<'a> {
    let fields = vec![
        ("Auto-Built-Package", "debug-symbols".to_owned()),
        ("Depends", format!("{NAME} (= {})", version(release))),
        ("Section", "debug".to_owned()),
        ("Priority", "optional".to_owned()),
        ("Description", format!("debug symbols for {NAME}")),
        ("Build-Ids", build_id.to_owned()),
    ];
    Package { name: format!("{NAME}-dbgsym"), items, fields, scripts: Vec::new() }
}

impl Package<'_> {
    /// The name of the package's file.
    pub(crate) fn file_name(&self, release: &Release) -> Result<String, String> {
        Ok(format!("{}_{}_{}.deb", self.name, version(release), architecture(&release.target)?))
    }

    /// Writes the package to a file, using an empty folder.
    pub(crate) fn write(&self, release: &Release, to: &Path, scratch: &Scratch) -> Result<(), String> {
        let [data, control] = ["data", "control"].map(|name| scratch.path().join(name));
        archive::lay_out(self.items, &data)?;
        for folder in [&data, &control] {
            std::fs::create_dir_all(folder).map_err(at(folder))?;
        }
        let mut members = vec![
            ("control", 0o644, self.control(release, installed_kib(&data)?)?),
            ("md5sums", 0o644, self.md5sums(&data)?),
        ];
        if self.items.iter().any(|item| item.to == CONFIGURATION) {
            members.push(("conffiles", 0o644, format!("/{CONFIGURATION}\n")));
        }
        members.extend(self.scripts.iter().map(|(name, script)| (*name, 0o755, script.clone())));
        let mut items = Vec::new();
        for (name, mode, content) in members {
            let from = scratch.path().join("members").join(name);
            write(&from, content)?;
            items.push(Item { to: name.to_owned(), from, link: false, mode, compressed: false });
        }
        archive::lay_out(&items, &control)?;
        archive::tar_gz(&control, ".", release.epoch_s, &scratch.path().join("control.tar.gz"))?;
        archive::tar_gz(&data, ".", release.epoch_s, &scratch.path().join("data.tar.gz"))?;
        write(&scratch.path().join("debian-binary"), "2.0\n")?;
        archive::ar(scratch.path(), &["debian-binary", "control.tar.gz", "data.tar.gz"], to)
    }

    fn control(&self, release: &Release, installed_kib: u64) -> Result<String, String> {
        let mut text = format!(
            "Package: {}\nVersion: {}\nArchitecture: {}\nMaintainer: {}\nInstalled-Size: {installed_kib}\n",
            self.name,
            version(release),
            architecture(&release.target)?,
            release.maintainer,
        );
        for (name, value) in &self.fields {
            text += &format!("{name}: {value}\n");
        }
        Ok(text)
    }

    /// The checksums of all files but the configuration, which may change.
    fn md5sums(&self, data: &Path) -> Result<String, String> {
        let files = self.items.iter().filter(|item| !item.link && item.to != CONFIGURATION);
        let names = files.map(|item| &item.to);
        Ok(text(tool("md5sum").arg("--").args(names).current_dir(data))? + "\n")
    }
}

/// The log of changes that policy asks for: with the places of the package's sources.
pub(crate) fn changelog(release: &Release) -> Result<String, String> {
    let date = text(tool("date").args(["-u", "-R", "-d", &format!("@{}", release.epoch_s)]))?;
    Ok(format!(
        "{NAME} ({}) unstable; urgency=medium\n\n  * Crossdock {} of commit {}.\n\n -- {}  {date}\n",
        version(release),
        release.version,
        release.commit,
        release.maintainer,
    ))
}

/// The version of the tagged commit, or one with the commit's time and hash, so that apt takes a later commit for a later
/// version.
fn version(release: &Release) -> String {
    // A pre-release comes before its release: Cargo's `-` is Debian's `~`.
    let version = release.version.replacen('-', "~", 1);
    if release.is_tagged {
        return format!("{version}-{REVISION}");
    }
    let day = release.commit_date.replace('-', "");
    let second = release.epoch_s % 86_400;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    // Debian's last `-` begins the revision.
    let commit = release.commit.replace('-', "+").replace(|c: char| !c.is_ascii_alphanumeric() && c != '+', ".");
    format!("{version}~git{day}{hour:02}{minute:02}{second:02}.{commit}-{REVISION}")
}

/// Debian's name of a target.
fn architecture(target: &str) -> Result<&'static str, String> {
    Ok(match target.split_once("-unknown-linux-gnu") {
        Some(("x86_64", "")) => "amd64",
        Some(("aarch64", "")) => "arm64",
        Some(("riscv64gc", "")) => "riscv64",
        Some(("powerpc64le", "")) => "ppc64el",
        Some(("s390x", "")) => "s390x",
        Some(("loongarch64", "")) => "loong64",
        _ => return Err(format!("dist: no Debian architecture is known for the target {target}; add it in debian.rs")),
    })
}

/// Fills in the names of the units and of the files for systemd.
fn filled(template: &str, items: &[Item]) -> Result<String, String> {
    let names = |folder: &str, ending: &str| {
        let below = items.iter().filter_map(|item| item.to.strip_prefix(folder));
        below.filter(|name| name.ends_with(ending)).collect::<Vec<_>>().join(" ")
    };
    let text = template
        .replace("@SOCKETS@", &names(UNITS, ".socket"))
        .replace("@SERVICES@", &names(UNITS, ".service"))
        .replace("@SYSUSERS@", &names("usr/lib/sysusers.d/", ".conf"))
        .replace("@SYSCTL@", &names("usr/lib/sysctl.d/", ".conf"));
    match text.split('@').nth(1) {
        Some(word) if word.chars().all(|c| c.is_ascii_uppercase()) => Err(format!("@{word}@ is not known")),
        _ => Ok(text),
    }
}

/// Disk space as Debian counts it: files in whole KiB, and one for each folder.
fn installed_kib(data: &Path) -> Result<u64, String> {
    let mut kib = 0;
    for entry in walkdir::WalkDir::new(data).min_depth(1) {
        let entry = entry.map_err(|why| format!("dist: {why}"))?;
        let metadata = entry.metadata().map_err(|why| format!("dist: {why}"))?;
        kib += if metadata.is_file() { metadata.len().div_ceil(1024) } else { 1 };
    }
    Ok(kib)
}

#[cfg(test)]
mod tests {
    use super::super::tests::release;
    use super::*;

    fn item(to: &str) -> Item {
        Item { to: to.into(), from: "x".into(), link: false, mode: 0o644, compressed: false }
    }

    #[test]
    fn the_control_file_has_what_policy_asks_for() {
        let items = [item("usr/bin/crossdock")];
        let fields = vec![("Depends", "libc6 (>= 2.34)".to_owned()), ("Section", "net".to_owned())];
        let package = Package { name: "crossdock".into(), items: &items, fields, scripts: Vec::new() };
        assert_eq!(
            package.control(&release(), 17).unwrap(),
            "Package: crossdock\nVersion: 1.2.3-1\nArchitecture: amd64\n\
             Maintainer: Crossdock developers <crossdock@localhost>\nInstalled-Size: 17\n\
             Depends: libc6 (>= 2.34)\nSection: net\n"
        );
        assert_eq!(package.file_name(&release()).unwrap(), "crossdock_1.2.3-1_amd64.deb");
        for line in DESCRIPTION.lines().skip(1) {
            assert!(line.starts_with(' ') && line.len() <= 80, "{line}");
        }
        assert!(DESCRIPTION.lines().next().is_some_and(|line| line.len() < 80 && !line.ends_with('.')));
    }

    #[test]
    fn the_debug_package_goes_with_one_build() {
        let items = [item("usr/lib/debug/.build-id/ab/cd.debug")];
        let package = debug(&release(), &items, "abcd");
        assert_eq!(package.file_name(&release()).unwrap(), "crossdock-dbgsym_1.2.3-1_amd64.deb");
        assert!(package.fields.contains(&("Depends", "crossdock (= 1.2.3-1)".to_owned())));
        assert!(package.fields.contains(&("Build-Ids", "abcd".to_owned())));
    }

    #[test]
    fn a_pre_release_comes_before_its_release() {
        let release = Release { version: "1.2.3-rc.1".into(), ..release() };
        assert_eq!(version(&release), "1.2.3~rc.1-1");
    }

    #[test]
    fn a_commit_without_a_tag_has_a_version_of_its_own() {
        let release = Release { is_tagged: false, ..release() };
        assert_eq!(version(&release), "1.2.3~git20231114221320.0123456789ab-1");
        let modified = Release { commit: "0123456789ab-modified".into(), epoch_s: 1_699_920_001, ..release };
        assert_eq!(version(&modified), "1.2.3~git20231114000001.0123456789ab+modified-1");
    }

    #[test]
    fn only_targets_that_debian_has_are_packaged() {
        assert_eq!(architecture("aarch64-unknown-linux-gnu"), Ok("arm64"));
        for target in ["x86_64-unknown-linux-musl", "x86_64-unknown-linux-gnux32", "x86_64-apple-darwin"] {
            assert!(architecture(target).unwrap_err().contains(target));
        }
    }

    #[test]
    fn scripts_name_the_units_of_the_package() {
        let items = ["crossdock.service", "a.socket", "b.socket"].map(|unit| item(&format!("{UNITS}{unit}")));
        let text = filled("start @SOCKETS@; restart '@SERVICES@'; [@SYSCTL@] \"$@\"", &items).unwrap();
        assert_eq!(text, "start a.socket b.socket; restart 'crossdock.service'; [] \"$@\"");
        assert_eq!(filled("@SERVICE@", &items).unwrap_err(), "@SERVICE@ is not known");
    }

    #[test]
    fn the_changelog_has_the_commits_time_and_no_other() {
        let text = changelog(&release()).unwrap();
        assert!(text.starts_with("crossdock (1.2.3-1) unstable; urgency=medium\n\n  * "), "{text}");
        assert!(text.ends_with(">  Tue, 14 Nov 2023 22:13:20 +0000\n"), "{text}");
    }
}
