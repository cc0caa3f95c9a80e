//! The process's limits and capabilities.

use super::finding::{Finding, size};
use super::machine::{Limit, Machine};
use super::wanted::Wanted;

/// Numbers of capabilities, from capabilities(7).
pub(super) const CAP_NET_ADMIN: u32 = 12;
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_NICE: u32 = 23;
const CAP_BPF: u32 = 39;

/// The daemon does not start with fewer descriptors.
const LEAST_FILES: u64 = 64;
/// Where limits of users are kept.
const LIMITS_FILE: &str = "/etc/security/limits.d/60-crossdock.conf";

/// The findings.
pub(super) fn findings(machine: &Machine, wanted: &Wanted) -> Vec<Finding> {
    vec![
        open_files(machine.files, wanted.files()),
        locked_memory(machine.locked, wanted.context.buffer_bytes, machine.may(CAP_IPC_LOCK)),
        priority(machine.nice, wanted.highest_nice(), machine.may(CAP_SYS_NICE)),
        capabilities(machine),
    ]
}

fn shown(limit: u64, show: impl Fn(u64) -> String) -> String {
    if limit == u64::MAX { "unlimited".to_owned() } else { show(limit) }
}

fn open_files(limit: Limit, wanted: u64) -> Finding {
    let finding = Finding::ok("open files", shown(limit.soft, |files| files.to_string()), wanted);
    if limit.soft >= wanted {
        return finding;
    }
    let finding = match limit.soft {
        0..LEAST_FILES => finding.problem("the daemon cannot open its sockets and segments"),
        _ => finding.advice(
            "clients are refused at this limit, before `max_clients` in [host] is reached; a lower `max_clients` \
             needs fewer",
        ),
    };
    let command = match limit.hard >= wanted {
        true => format!("ulimit -n {wanted}"),
        false => format!("sudo prlimit --pid $$ --nofile={wanted}"),
    };
    finding.command(command).lasting(LIMITS_FILE, format_args!("* - nofile {wanted}"))
}

fn locked_memory(limit: Limit, wanted: u64, may_lock: bool) -> Finding {
    let found = if may_lock { "CAP_IPC_LOCK".to_owned() } else { shown(limit.soft, size) };
    let finding = Finding::ok("locked memory", found, size(wanted));
    if may_lock || limit.soft >= wanted {
        return finding;
    }
    let kib = wanted.div_ceil(1024);
    let command = match limit.hard >= wanted {
        true => format!("ulimit -l {kib}"),
        false => format!("sudo prlimit --pid $$ --memlock={wanted}"),
    };
    finding
        .advice("buffers that a network interface writes into (AF_XDP) count against this limit; UDP does not need it")
        .command(command)
        .lasting(LIMITS_FILE, format_args!("* - memlock {kib}"))
}

fn priority(limit: Limit, wanted: Option<i32>, may_raise: bool) -> Finding {
    // The limit is 20 less the highest priority.
    let highest = 20 - i64::try_from(limit.soft).unwrap_or(40).min(40);
    let found = if may_raise { "CAP_SYS_NICE".to_owned() } else { format!("nice {highest}") };
    let Some(nice) = wanted else { return Finding::ok("priority", found, "not raised") };
    let finding = Finding::ok("priority", found, format_args!("nice {nice}"));
    if may_raise || highest <= i64::from(nice) {
        return finding;
    }
    finding
        .advice("contexts with `nice` in the configuration keep the daemon's own priority")
        .command(format_args!("sudo prlimit --pid $$ --nice={}", 20 - nice))
        .lasting(LIMITS_FILE, format_args!("* - nice {nice}"))
}

/// No capability is needed; the finding lists those that are effective.
fn capabilities(machine: &Machine) -> Finding {
    let wanted = "none needed";
    if machine.status.is_none() {
        return Finding::unknown("capabilities", wanted, "/proc/self/status cannot be read");
    }
    let names =
        [(CAP_NET_ADMIN, "NET_ADMIN"), (CAP_BPF, "BPF"), (CAP_SYS_NICE, "SYS_NICE"), (CAP_IPC_LOCK, "IPC_LOCK")];
    let had: Vec<&str> = names.iter().filter(|(number, _)| machine.may(*number)).map(|(_, name)| *name).collect();
    let found = if had.is_empty() { "none".to_owned() } else { had.join(" ") };
    Finding::ok("capabilities", found, wanted)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::*;

    const NONE: u64 = u64::MAX;

    #[test]
    fn open_files_are_raised_by_the_user_as_far_as_the_hard_limit() {
        for (soft, hard, verdict, command) in [
            (NONE, NONE, Verdict::Ok, None),
            (7360, 7360, Verdict::Ok, None),
            (1024, 524_288, Verdict::Advice, Some("ulimit -n 7360")),
            (1024, 4096, Verdict::Advice, Some("sudo prlimit --pid $$ --nofile=7360")),
            (20, 4096, Verdict::Problem, Some("sudo prlimit --pid $$ --nofile=7360")),
        ] {
            let finding = open_files(Limit { soft, hard }, 7360);
            assert_eq!((finding.verdict, finding.command.as_deref()), (verdict, command), "{soft} {hard}");
            assert_eq!(finding.lasting.is_some(), command.is_some());
        }
    }

    #[test]
    fn locked_memory_is_advised_without_the_capability_only() {
        let limit = |soft| Limit { soft, hard: soft };
        assert_eq!(locked_memory(limit(8 << 20), 128 << 20, true).verdict, Verdict::Ok);
        assert_eq!(locked_memory(limit(NONE), 128 << 20, false).found, "unlimited");
        let finding = locked_memory(limit(8 << 20), 128 << 20, false);
        assert_eq!((finding.verdict, finding.found.as_str()), (Verdict::Advice, "8 MiB"));
        assert_eq!(finding.command.as_deref(), Some("sudo prlimit --pid $$ --memlock=134217728"));
        assert!(finding.lasting.is_some_and(|lasting| lasting.ends_with("memlock 131072")));
    }

    #[test]
    fn a_priority_matters_where_the_configuration_raises_one() {
        for (soft, wanted, may, verdict) in [
            (0, None, false, Verdict::Ok),
            (0, Some(-10), true, Verdict::Ok),
            (30, Some(-10), false, Verdict::Ok),
            (NONE, Some(-20), false, Verdict::Ok),
            (29, Some(-10), false, Verdict::Advice),
            (0, Some(-1), false, Verdict::Advice),
        ] {
            let finding = priority(Limit { soft, hard: soft }, wanted, may);
            assert_eq!(finding.verdict, verdict, "{soft} {wanted:?} {may}");
        }
        let finding = priority(Limit { soft: 0, hard: 0 }, Some(-10), false);
        assert_eq!(finding.command.as_deref(), Some("sudo prlimit --pid $$ --nice=30"));
        assert_eq!(finding.found, "nice 20");
    }
}
