//! Whether two sets of packages are the same, and where the first difference is.

use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use super::tool::{Scratch, at, output, text, tool};

/// The first difference between two folders with packages of these names, or nothing.
pub(crate) fn first_difference(one: &Path, other: &Path, names: &[String]) -> Result<Option<String>, String> {
    for name in names {
        let [a, b] = [one.join(name), other.join(name)];
        if let Some(what) = file_difference(&a, &b)? {
            return inside(&a, &b).map(|below| Some(format!("{name}: {}", below.unwrap_or(what))));
        }
    }
    Ok(None)
}

/// The difference within two packages that differ: a member's content, or how the archive lists it.
fn inside(a: &Path, b: &Path) -> Result<Option<String>, String> {
    let name = a.file_name().unwrap_or_default().to_string_lossy();
    if !name.ends_with(".deb") && !name.ends_with(".tar.gz") {
        return Ok(None);
    }
    let beside = |package: &Path| Scratch::new(package.with_file_name(format!(".{name}-unpacked")));
    let [left, right] = [beside(a)?, beside(b)?];
    for (package, folder) in [(a, &left), (b, &right)] {
        let package = std::path::absolute(package).map_err(at(package))?;
        let mut unpack = if name.ends_with(".deb") { tool("ar") } else { tool("tar") };
        unpack.arg(if name.ends_with(".deb") { "x" } else { "-xzf" }).arg(package);
        output(unpack.current_dir(folder.path()))?;
    }
    let [ours, theirs] = [files(left.path())?, files(right.path())?];
    for path in ours.iter().chain(&theirs) {
        if !(ours.contains(path) && theirs.contains(path)) {
            let side = if ours.contains(path) { "first" } else { "second" };
            return Ok(Some(format!("only the {side} has {}", path.display())));
        }
        let [p, q] = [left.path().join(path), right.path().join(path)];
        if let Some(what) = file_difference(&p, &q)? {
            let below = inside(&p, &q)?.unwrap_or(what);
            return Ok(Some(format!("{}: {below}", path.display())));
        }
    }
    if name.ends_with(".tar.gz") { listings(a, b) } else { Ok(None) }
}

/// The first entry whose permissions, owner or time differ.
fn listings(a: &Path, b: &Path) -> Result<Option<String>, String> {
    let list = |path: &Path| text(tool("tar").args(["--full-time", "--numeric-owner", "-tvzf"]).arg(path));
    let [ours, theirs] = [list(a)?, list(b)?];
    let differs = ours.lines().zip(theirs.lines()).find(|(p, q)| p != q);
    Ok(differs.map(|(p, q)| format!("listed as `{p}` and `{q}`")))
}

/// Where two files differ, or nothing.
fn file_difference(a: &Path, b: &Path) -> Result<Option<String>, String> {
    let [p, q] = [std::fs::read(a).map_err(at(a))?, std::fs::read(b).map_err(at(b))?];
    if p == q {
        return Ok(None);
    }
    let at = p.iter().zip(&q).position(|(x, y)| x != y).unwrap_or(p.len().min(q.len()));
    Ok(Some(format!("byte {at} differs; {} and {} bytes", p.len(), q.len())))
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for entry in WalkDir::new(folder).sort_by_file_name() {
        let entry = entry.map_err(|why| format!("dist: {why}"))?;
        if entry.file_type().is_file() {
            files.push(entry.path().strip_prefix(folder).unwrap_or(entry.path()).to_owned());
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Fake, release};
    use super::super::write_packages;
    use super::*;

    #[test]
    fn two_runs_make_the_same_bytes_and_a_changed_file_is_named() {
        let fake = Fake::new("compare");
        let [one, other] = ["one", "other"].map(|name| fake.path().join(name));
        let names = write_packages(&release(), &fake.roots(), &fake.made, &one).unwrap();
        // The differences between two machines that must not show: times, and permissions that a umask leaves.
        let readme = fake.repository().join("README.md");
        std::fs::write(&readme, std::fs::read(&readme).unwrap()).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&readme, private).unwrap();
        assert_eq!(write_packages(&release(), &fake.roots(), &fake.made, &other).unwrap(), names);
        assert_eq!(first_difference(&one, &other, &names), Ok(None));

        let unit = fake.repository().join("packaging/systemd/crossdock.service");
        std::fs::write(&unit, "[Service]\nExecStart=/usr/bin/crossdoch\n").unwrap();
        write_packages(&release(), &fake.roots(), &fake.made, &other).unwrap();
        let of = |ending: &str| {
            let names: Vec<_> = names.iter().filter(|name| name.ends_with(ending)).cloned().collect();
            first_difference(&one, &other, &names).unwrap().unwrap()
        };
        let place = "usr/lib/systemd/system/crossdock.service: byte 37 differs; 39 and 39 bytes";
        assert!(of("gnu.tar.gz").ends_with(&format!("gnu.tar.gz: crossdock-1.2.3/{place}")), "{}", of("gnu.tar.gz"));
        assert!(of("3-1_amd64.deb").contains("control.tar.gz: md5sums: byte"), "{}", of("3-1_amd64.deb"));
    }

    #[test]
    fn another_time_of_an_entry_is_a_difference() {
        let fake = Fake::new("compare-time");
        let later = super::super::release::Release { epoch_s: release().epoch_s + 1, ..release() };
        let [one, other] = ["one", "other"].map(|name| fake.path().join(name));
        let names = write_packages(&release(), &fake.roots(), &fake.made, &one).unwrap();
        write_packages(&later, &fake.roots(), &fake.made, &other).unwrap();
        let what = first_difference(&one, &other, &names[..1]).unwrap().unwrap();
        assert!(what.contains("22:13:20") && what.contains("22:13:21"), "{what}");
    }
}
