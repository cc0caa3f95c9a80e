//! Memory: how much there is, huge pages, and shared memory without a file.

use crossdock_mailbox::HugePages;

use super::finding::{Finding, size};
use super::machine::{Machine, Tried};
use super::network::SYSCTL_FILE;
use super::wanted::Wanted;

const SHMEM: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
const FREE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
/// Where settings of `/sys` are kept.
pub(super) const TMPFILES: &str = "/etc/tmpfiles.d/60-crossdock.conf";
/// A huge page, in bytes.
const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// The findings.
pub(super) fn findings(machine: &Machine, wanted: &Wanted) -> Vec<Finding> {
    let mut findings = vec![memory(machine, wanted), shared_memory(&machine.memfd), unasked(machine.setting(ENABLED))];
    if wanted.attach.is_some() {
        let kind = wanted.context.attach.huge_pages;
        findings.push(transparent(kind, machine.setting(SHMEM)));
        if kind == HugePages::Reserved {
            let number = |path| machine.setting(path).and_then(|text| text.parse().ok());
            let pages = wanted.domains() * wanted.domain_bytes().div_ceil(HUGE_PAGE_BYTES);
            findings.push(reserved(pages, number(FREE_PAGES), number("/proc/sys/vm/nr_hugepages")));
        }
    }
    findings
}

/// The value of a line of `/proc/meminfo`, in bytes.
fn meminfo(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

fn memory(machine: &Machine, wanted: &Wanted) -> Finding {
    let available = machine.meminfo.as_deref().and_then(|text| meminfo(text, "MemAvailable"));
    let (all, buffers) = (wanted.memory_bytes(), wanted.context.buffer_bytes);
    let Some(found) = available.into_iter().chain(machine.room_bytes).min() else {
        return Finding::unknown("memory", size(all), "/proc/meminfo cannot be read");
    };
    let finding = Finding::ok("memory", size(found), size(all));
    if found >= all {
        return finding;
    }
    let finding = match found < buffers {
        true => finding.problem(
            "the buffers alone may need more than is free: the kernel then ends the daemon; lower `buffer_bytes`",
        ),
        false => finding.advice(
            "buffers and segments need more than is free when all are in use; lower `buffer_bytes` or `shared_bytes`",
        ),
    };
    if machine.room_bytes == Some(found) {
        // The control group is what binds.
        let most = all + all / 2;
        return finding
            .command(format_args!("sudo systemctl set-property crossdock.service MemoryMax={most}"))
            .lasting("crossdock.service", format_args!("MemoryMax={most}"));
    }
    finding
        .command("ps -eo rss,pid,comm --sort=-rss | head")
        .lasting("crossdock.toml", format_args!("buffer_bytes = {} under [context]", (found / 4).max(4 << 20)))
}

fn shared_memory(tried: &Tried) -> Finding {
    match tried {
        Ok(()) => Finding::ok("shared memory", "memfd", "memfd"),
        Err((_, why)) => Finding::ok("shared memory", "refused", "memfd")
            .problem(format_args!("memfd_create is refused ({why}): all buffers are in such memory"))
            .command("grep -i seccomp /proc/self/status"),
    }
}

/// The word in brackets, which is the one that holds.
fn chosen(setting: &str) -> &str {
    setting.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(setting, |(word, _)| word)
}

fn transparent(kind: HugePages, setting: Option<&str>) -> Finding {
    let item = "huge pages (shmem)";
    if kind == HugePages::None {
        return Finding::ok(item, setting.map_or("unknown", chosen), "any (`huge_pages`)");
    }
    let Some(setting) = setting else {
        return Finding::unknown(item, "advise", format_args!("{SHMEM} cannot be read"));
    };
    let word = chosen(setting);
    let finding = Finding::ok(item, word, "advise");
    if ["advise", "always", "within_size", "force"].contains(&word) {
        return finding;
    }
    finding
        .advice("segments of attached processes are on small pages, which slows their memory accesses")
        .command(format_args!("echo advise | sudo tee {SHMEM}"))
        .lasting(TMPFILES, format_args!("w {SHMEM} - - - - advise"))
}

/// Transparent huge pages of memory other than segments.
fn unasked(setting: Option<&str>) -> Finding {
    let item = "huge pages (thp)";
    let Some(setting) = setting else {
        return Finding::unknown(item, "madvise", format_args!("{ENABLED} cannot be read"));
    };
    let finding = Finding::ok(item, chosen(setting), "madvise");
    if chosen(setting) != "always" {
        return finding;
    }
    finding
        .advice("the kernel looks for huge pages while a context waits for memory, which delays it at times")
        .command(format_args!("echo madvise | sudo tee {ENABLED}"))
        .lasting(TMPFILES, format_args!("w {ENABLED} - - - - madvise"))
}

fn reserved(wanted: u64, free: Option<u64>, all: Option<u64>) -> Finding {
    let item = "huge pages (reserved)";
    let Some(free) = free else {
        return Finding::unknown(item, format_args!("{wanted} free"), format_args!("{FREE_PAGES} cannot be read"));
    };
    let finding = Finding::ok(item, format_args!("{free} free"), format_args!("{wanted} free"));
    if free >= wanted {
        return finding;
    }
    let number = all.unwrap_or(free) + (wanted - free);
    finding
        .advice("a protection domain's segments do not fit, so they are on other pages")
        .command(format_args!("sudo sysctl -w vm.nr_hugepages={number}"))
        .lasting(SYSCTL_FILE, format_args!("vm.nr_hugepages = {number}"))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::super::tests::{machine, wanted};
    use super::*;

    #[test]
    fn memory_is_held_against_what_is_free_and_what_the_group_leaves() {
        let kib = |mib: u64| Some(format!("MemTotal: 9 kB\nMemAvailable:   {} kB\n", mib * 1024));
        for (available, room_mib, verdict, found) in [
            (kib(4096), None, Verdict::Ok, "4 GiB"),
            (kib(4096), Some(300), Verdict::Advice, "300 MiB"),
            (kib(300), Some(4096), Verdict::Advice, "300 MiB"),
            (kib(4096), Some(100), Verdict::Problem, "100 MiB"),
            (None, Some(1024), Verdict::Ok, "1 GiB"),
            (None, None, Verdict::Unknown, "unknown"),
            (Some("garbage".to_owned()), None, Verdict::Unknown, "unknown"),
        ] {
            let machine = super::Machine { meminfo: available, room_bytes: room_mib.map(|mib| mib << 20), ..machine() };
            let finding = memory(&machine, &wanted());
            assert_eq!((finding.verdict, finding.found.as_str()), (verdict, found));
            assert_eq!(finding.command.is_some(), verdict >= Verdict::Advice);
        }
    }

    #[test]
    fn the_setting_for_transparent_pages_is_the_word_in_brackets() {
        for (setting, verdict) in [
            (Some("always within_size [advise] never deny force"), Verdict::Ok),
            (Some("[always] within_size advise never deny force"), Verdict::Ok),
            (Some("always within_size advise [never] deny force"), Verdict::Advice),
            (Some("always within_size advise never [deny] force"), Verdict::Advice),
            (None, Verdict::Unknown),
        ] {
            assert_eq!(transparent(HugePages::Transparent, setting).verdict, verdict, "{setting:?}");
            assert_eq!(transparent(HugePages::None, setting).verdict, Verdict::Ok);
        }
    }

    #[test]
    fn pages_that_nobody_asked_for_are_advised_against() {
        for (setting, verdict) in [
            (Some("[always] madvise never"), Verdict::Advice),
            (Some("always [madvise] never"), Verdict::Ok),
            (Some("always madvise [never]"), Verdict::Ok),
            (None, Verdict::Unknown),
        ] {
            assert_eq!(unasked(setting).verdict, verdict, "{setting:?}");
        }
    }

    #[test]
    fn missing_pages_come_on_top_of_those_that_are_there() {
        assert_eq!(reserved(192, Some(192), Some(200)).verdict, Verdict::Ok);
        assert_eq!(reserved(192, None, None).verdict, Verdict::Unknown);
        let finding = reserved(192, Some(2), Some(10));
        assert_eq!(finding.command.as_deref(), Some("sudo sysctl -w vm.nr_hugepages=200"));
        assert_eq!(finding.verdict, Verdict::Advice);
    }
}
