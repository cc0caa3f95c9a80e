//! Lays files out in a folder and packs it: the same files give the same bytes.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use walkdir::WalkDir;

use super::layout::Item;
use super::tool::{at, make_parent, output, tool, write};

/// Lays a package's files out below a folder, with their permissions.
pub(crate) fn lay_out(items: &[Item], folder: &Path) -> Result<(), String> {
    for item in items {
        let to = folder.join(&item.to);
        if item.link {
            make_parent(&to)?;
            std::os::unix::fs::symlink(&item.from, &to).map_err(at(&to))?;
            continue;
        }
        if item.compressed {
            write(&to, output(tool("gzip").args(["-n", "-9", "-c"]).arg(&item.from))?)?;
        } else {
            make_parent(&to)?;
            std::fs::copy(&item.from, &to).map_err(at(&item.from))?;
        }
        std::fs::set_permissions(&to, Permissions::from_mode(item.mode)).map_err(at(&to))?;
    }
    // Folders as well: the caller's umask must not show in the package.
    for entry in WalkDir::new(folder) {
        let entry = entry.map_err(|why| format!("dist: {why}"))?;
        if entry.file_type().is_dir() {
            std::fs::set_permissions(entry.path(), Permissions::from_mode(0o755)).map_err(at(entry.path()))?;
        }
    }
    Ok(())
}

/// Packs what lies at `name` in a folder as `.tar.gz`: sorted, of one time, owned by root, without the packer's name.
pub(crate) fn tar_gz(folder: &Path, name: &str, epoch_s: u64, to: &Path) -> Result<(), String> {
    let tar = to.with_extension("");
    let mut pack = tool("tar");
    pack.args(["--create", "--sort=name", "--format=gnu", "--owner=0", "--group=0", "--numeric-owner"]);
    pack.arg(format!("--mtime=@{epoch_s}")).arg("--file").arg(&tar).arg("--directory").arg(folder).arg(name);
    output(&mut pack)?;
    let packed = output(tool("gzip").args(["-n", "-9", "-c"]).arg(&tar))?;
    std::fs::remove_file(&tar).map_err(at(&tar))?;
    write(to, packed)
}

/// Packs files of a folder as an `ar` archive, in the order given, without their times and owners.
pub(crate) fn ar(folder: &Path, names: &[&str], to: &Path) -> Result<(), String> {
    if to.exists() {
        // `ar` would add to it.
        std::fs::remove_file(to).map_err(at(to))?;
    }
    output(tool("ar").arg("rcSD").arg(to).args(names).current_dir(folder)).map(|_| ())
}
