//! The bounds of control groups: the tightest of its group and of those above it.

use std::path::{Path, PathBuf};

/// Where the unified hierarchy is, and the parts of the older one.
const ROOT: &str = "/sys/fs/cgroup";

/// Reads a file; none if it is not there.
pub(crate) trait Read: Fn(PathBuf) -> Option<String> {}

impl<F: Fn(PathBuf) -> Option<String>> Read for F {}

/// Cores' worth of time in each second, if that is bounded. `group` is `/proc/self/cgroup`.
pub(crate) fn quota(group: &str, read: impl Read) -> Option<f64> {
    let unified = folders(group, "").filter_map(|folder| cpu_max(&read(folder.join("cpu.max"))?));
    let older = folders(group, "cpu").filter_map(|folder| {
        let number = |file: &str| read(folder.join(file))?.trim().parse::<f64>().ok();
        let (quota, period) = (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?);
        (quota > 0.0 && period > 0.0).then(|| quota / period)
    });
    unified.chain(older).min_by(f64::total_cmp)
}

/// Bytes that may still be used, if that is bounded. The page cache counts as used, so it is rather too few.
pub(crate) fn room_bytes(group: &str, read: impl Read) -> Option<u64> {
    let room = |folder: &Path, most: &str, now: &str| {
        let number = |file: &str| read(folder.join(file))?.trim().parse::<u64>().ok();
        // The older hierarchy says that there is no bound by one that no machine has.
        let most = number(most).filter(|most| *most < 1 << 60)?;
        Some(most.saturating_sub(number(now).unwrap_or(0)))
    };
    let unified = folders(group, "").filter_map(|folder| room(&folder, "memory.max", "memory.current"));
    let older =
        folders(group, "memory").filter_map(|folder| room(&folder, "memory.limit_in_bytes", "memory.usage_in_bytes"));
    unified.chain(older).min()
}

/// The folders of this process's group and of those above it, for one controller of the older hierarchy or (`""`) the unified one.
fn folders(group: &str, controller: &str) -> impl Iterator<Item = PathBuf> {
    let path = group.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        controllers.split(',').any(|name| name == controller).then(|| path.trim_start_matches('/').to_owned())
    });
    let root = Path::new(ROOT).join(controller);
    let own = path.map(|path| root.join(path));
    own.into_iter().flat_map(move |own| {
        let above = own.ancestors().take_while(|folder| folder.starts_with(&root)).map(Path::to_owned);
        above.collect::<Vec<_>>()
    })
}

/// `max 100000`, or the time and the period that it is of, in µs.
fn cpu_max(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period) = (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?);
    (period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files<'a>(files: &'a [(&'a str, &'a str)]) -> impl Read + use<'a> {
        move |path| {
            let found = files.iter().find(|(name, _)| Path::new(ROOT).join(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        }
    }

    #[test]
    fn the_tightest_bound_of_the_groups_counts() {
        let group = "0::/system.slice/crossdock.service\n";
        let read = [
            ("cpu.max", "max 100000\n"),
            ("system.slice/cpu.max", "150000 100000\n"),
            ("system.slice/crossdock.service/cpu.max", "400000 100000\n"),
            ("system.slice/memory.max", "max\n"),
            ("system.slice/crossdock.service/memory.max", "1000\n"),
            ("system.slice/crossdock.service/memory.current", "400\n"),
        ];
        assert_eq!(quota(group, files(&read)), Some(1.5));
        assert_eq!(room_bytes(group, files(&read)), Some(600));
    }

    #[test]
    fn a_container_sees_its_group_as_the_root() {
        assert_eq!(quota("0::/\n", files(&[("cpu.max", "50000 100000")])), Some(0.5));
        assert_eq!(room_bytes("0::/\n", files(&[("memory.max", "4096"), ("memory.current", "5000")])), Some(0));
    }

    #[test]
    fn the_older_hierarchy_has_a_folder_for_each_controller() {
        let group = "4:cpu,cpuacct:/a\n3:memory:/a\n0::/\n";
        let read = [
            ("cpu/a/cpu.cfs_quota_us", "-1"),
            ("cpu/a/cpu.cfs_period_us", "100000"),
            ("cpu/cpu.cfs_quota_us", "200000"),
            ("cpu/cpu.cfs_period_us", "100000"),
            ("memory/a/memory.limit_in_bytes", "9223372036854771712"),
            ("memory/memory.limit_in_bytes", "8192"),
        ];
        assert_eq!(quota(group, files(&read)), Some(2.0));
        assert_eq!(room_bytes(group, files(&read)), Some(8192));
    }

    #[test]
    fn a_limit_that_is_unbounded_or_unreadable_is_no_bound() {
        for group in ["", "0::/\n", "garbage", "0::", "1:name=systemd:/x\n"] {
            assert_eq!(quota(group, files(&[("cpu.max", "max 100000")])), None, "{group}");
            assert_eq!(room_bytes(group, files(&[("memory.max", "max")])), None, "{group}");
        }
        assert_eq!(quota("0::/\n", files(&[("cpu.max", "100 0")])), None);
    }
}
