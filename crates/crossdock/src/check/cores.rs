//! Cores: how many there are for the contexts, whether others disturb those that contexts are tied to, and the clock.

use std::collections::BTreeMap;

use super::finding::Finding;
use super::machine::Machine;
use super::memory::TMPFILES;
use super::wanted::Wanted;

const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0";
/// Where Debian and those like it keep the kernel's parameters.
const GRUB_FILE: &str = "/etc/default/grub.d/60-crossdock.cfg";
/// Clocks that are read without a system call.
const FAST_CLOCKS: [&str; 5] =
    ["tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page", "riscv_clocksource"];

/// The findings.
pub(super) fn findings(machine: &Machine, wanted: &Wanted) -> Vec<Finding> {
    let pinned = wanted.pinned();
    let mut findings = vec![cores(machine, wanted.threads())];
    if !pinned.is_empty() {
        findings.push(usable(machine.cpus.as_deref(), &pinned));
        findings.push(isolated(machine.setting("/sys/devices/system/cpu/isolated"), &pinned));
        findings.push(siblings(&machine.siblings, &pinned));
    }
    findings.push(governor(machine));
    findings.push(clock(machine));
    findings
}

/// A list of the kernel's, such as `0-2,7`.
fn list(text: &str) -> Vec<usize> {
    let ranges = text.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    // No machine has more; what is beyond is a mistake of the text.
    ranges.flat_map(|range: std::ops::RangeInclusive<usize>| range.take(8192)).collect()
}

/// The text of a list.
fn joined(cpus: impl IntoIterator<Item = usize>) -> String {
    let mut cpus: Vec<usize> = cpus.into_iter().collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn cores(machine: &Machine, threads: usize) -> Finding {
    let Some(cpus) = &machine.cpus else {
        return Finding::unknown("cores", threads, "the kernel does not say which CPUs may be used");
    };
    let quota = machine.quota.filter(|quota| *quota < cpus.len() as f64);
    let found = match quota {
        Some(quota) => format!("{} ({quota} by quota)", cpus.len()),
        None => cpus.len().to_string(),
    };
    let finding = Finding::ok("cores", found, format_args!("{threads} contexts"));
    match quota {
        Some(quota) if quota < threads as f64 => finding
            .advice("the control group stops all contexts at times, for up to 0.1 s: they look overloaded then")
            .command(format_args!("sudo systemctl set-property crossdock.service CPUQuota={}%", threads * 100))
            .lasting("crossdock.service", format_args!("CPUQuota={}%", threads * 100)),
        _ if cpus.len() < threads => finding
            .advice("contexts share cores, so each waits while another works")
            .lasting("crossdock.toml", "fewer [[platform.context]] sections, or a larger machine"),
        _ => finding,
    }
}

/// Whether the contexts can be tied to their CPUs; the daemon does not start where they cannot.
fn usable(cpus: Option<&[usize]>, pinned: &[(String, usize)]) -> Finding {
    let (item, wanted) = ("CPUs of contexts", joined(pinned.iter().map(|(_, cpu)| *cpu)));
    let Some(cpus) = cpus else {
        return Finding::unknown(item, wanted, "the kernel does not say which CPUs may be used");
    };
    let finding = Finding::ok(item, joined(cpus.iter().copied()), wanted);
    match pinned.iter().find(|(_, cpu)| !cpus.contains(cpu)) {
        Some((name, cpu)) => finding
            .problem(format_args!("{name} is tied to CPU {cpu}, which does not exist or may not be used"))
            .command("taskset -pc $$")
            .lasting("crossdock.toml", format_args!("another `cpu` or `pin_cpu` for {name}, or \"none\"")),
        None => finding,
    }
}

fn isolated(setting: Option<&str>, pinned: &[(String, usize)]) -> Finding {
    let wanted = joined(pinned.iter().map(|(_, cpu)| *cpu));
    let Some(setting) = setting else {
        return Finding::unknown("isolated cores", wanted, "/sys/devices/system/cpu/isolated cannot be read");
    };
    let isolated = list(setting);
    let found = if isolated.is_empty() { "none".to_owned() } else { joined(isolated.iter().copied()) };
    let finding = Finding::ok("isolated cores", found, &wanted);
    if pinned.iter().all(|(_, cpu)| isolated.contains(cpu)) {
        return finding;
    }
    let line = format!("GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX isolcpus={wanted}\"");
    finding
        .advice(
            "other programs run on the contexts' cores too, and delay them; the command takes effect after a reboot",
        )
        .command(format_args!("echo '{line}' | sudo tee -a {GRUB_FILE} && sudo update-grub"))
        .lasting(GRUB_FILE, line)
}

/// Contexts that share a physical core share its units too.
fn siblings(lists: &BTreeMap<usize, String>, pinned: &[(String, usize)]) -> Finding {
    let (item, wanted) = ("SMT siblings", "one context a core");
    if lists.is_empty() {
        return Finding::unknown(item, wanted, "/sys/devices/system/cpu/cpu0/topology cannot be read");
    }
    let groups: BTreeMap<usize, Vec<usize>> = lists.iter().map(|(cpu, text)| (*cpu, list(text))).collect();
    let shares = |a: usize, b: usize| a != b && groups.get(&a).is_some_and(|group| group.contains(&b));
    let pairs = pinned.iter().enumerate().flat_map(|(at, a)| pinned[at + 1..].iter().map(move |b| (a, b)));
    let Some(((a, cpu), (b, other))) = pairs.into_iter().find(|((_, a), (_, b))| shares(*a, *b)) else {
        return Finding::ok(item, "not shared", wanted);
    };
    let taken = |cpu: usize| pinned.iter().any(|(_, pinned)| *pinned == cpu || shares(*pinned, cpu));
    let finding = Finding::ok(item, format_args!("CPU {cpu} and {other}"), wanted)
        .advice(format_args!("{a} and {b} are tied to two halves of one core, and slow each other down"))
        .command("lscpu --extended=CPU,CORE");
    match groups.keys().find(|cpu| !taken(**cpu)) {
        Some(free) => finding.lasting("crossdock.toml", format_args!("cpu = {free} for {b}")),
        None => finding.lasting("crossdock.toml", format_args!("cpu = {cpu} for {b}, so that one thread serves both")),
    }
}

fn governor(machine: &Machine) -> Finding {
    let (item, wanted) = ("frequency governor", "performance");
    if machine.governors.is_empty() {
        // Where the folder of the CPUs can be read, the machine has no such control: a virtual one, most likely.
        return match machine.setting("/sys/devices/system/cpu/online") {
            Some(_) => Finding::ok(item, "no control", wanted),
            None => Finding::unknown(item, wanted, "/sys/devices/system/cpu cannot be read"),
        };
    }
    let mut names: Vec<&str> = machine.governors.values().map(|name| name.trim()).collect();
    names.sort_unstable();
    names.dedup();
    let finding = Finding::ok(item, names.join(" "), wanted);
    if names == [wanted] {
        return finding;
    }
    let path = "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor";
    finding
        .advice("a core that was idle starts slowly, so single messages take longer; `performance` uses more power")
        .command(format_args!("echo performance | sudo tee {path}"))
        .lasting(TMPFILES, format_args!("w {path} - - - - performance"))
}

fn clock(machine: &Machine) -> Finding {
    let (item, wanted) = ("clock source", "tsc");
    let Some(found) = machine.setting(&format!("{CLOCK}/current_clocksource")) else {
        return Finding::unknown(item, wanted, format_args!("{CLOCK} cannot be read"));
    };
    let finding = Finding::ok(item, found, wanted);
    if FAST_CLOCKS.contains(&found) {
        return finding;
    }
    let finding = finding.advice("reading the clock takes a system call, about 1 us each time");
    let available = machine.setting(&format!("{CLOCK}/available_clocksource")).unwrap_or_default();
    let Some(fast) = available.split_whitespace().find(|name| FAST_CLOCKS.contains(name)) else {
        return finding.lasting(GRUB_FILE, "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX tsc=reliable\"");
    };
    let line = format!("GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX clocksource={fast}\"");
    finding.command(format_args!("echo {fast} | sudo tee {CLOCK}/current_clocksource")).lasting(GRUB_FILE, line)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Verdict;
    use super::super::tests::machine;
    use super::*;

    fn pinned(cpus: &[usize]) -> Vec<(String, usize)> {
        cpus.iter().enumerate().map(|(at, cpu)| (format!("c-core-{at}"), *cpu)).collect()
    }

    #[test]
    fn lists_of_the_kernel_are_read() {
        for (text, cpus) in
            [("0-2,7\n", vec![0, 1, 2, 7]), ("3", vec![3]), ("\n", vec![]), ("x,2-,5", vec![5]), ("4-2", vec![])]
        {
            assert_eq!(list(text), cpus, "{text:?}");
        }
        assert_eq!(list("0-18446744073709551615").len(), 8192);
    }

    #[test]
    fn too_few_cores_and_a_quota_are_advised() {
        for (cpus, quota, threads, verdict) in [
            (4, None, 2, Verdict::Ok),
            (4, Some(8.0), 4, Verdict::Ok),
            (4, Some(2.0), 2, Verdict::Ok),
            (4, Some(1.5), 2, Verdict::Advice),
            (1, None, 2, Verdict::Advice),
        ] {
            let machine = Machine { cpus: Some((0..cpus).collect()), quota, ..machine() };
            assert_eq!(cores(&machine, threads).verdict, verdict, "{cpus} {quota:?} {threads}");
        }
        assert_eq!(cores(&Machine { cpus: None, ..machine() }, 2).verdict, Verdict::Unknown);
        let machine = Machine { cpus: Some(vec![0, 1]), quota: Some(0.5), ..machine() };
        let finding = cores(&machine, 2);
        assert_eq!(finding.found, "2 (0.5 by quota)");
        assert!(finding.command.is_some_and(|command| command.ends_with("CPUQuota=200%")));
    }

    #[test]
    fn a_cpu_that_may_not_be_used_is_a_problem() {
        assert_eq!(usable(Some(&[0, 1]), &pinned(&[1])).verdict, Verdict::Ok);
        assert_eq!(usable(None, &pinned(&[1])).verdict, Verdict::Unknown);
        let finding = usable(Some(&[0, 1]), &pinned(&[1, 5]));
        assert_eq!(finding.verdict, Verdict::Problem);
        assert!(finding.why.starts_with("c-core-1 is tied to CPU 5"), "{}", finding.why);
    }

    #[test]
    fn cores_of_contexts_are_to_be_isolated() {
        assert_eq!(isolated(Some("1-3"), &pinned(&[1, 2])).verdict, Verdict::Ok);
        assert_eq!(isolated(None, &pinned(&[1])).verdict, Verdict::Unknown);
        let finding = isolated(Some(""), &pinned(&[2, 1]));
        assert_eq!((finding.verdict, finding.found.as_str()), (Verdict::Advice, "none"));
        assert!(finding.command.is_some_and(|command| command.contains("isolcpus=1,2\"' | sudo tee -a")));
    }

    #[test]
    fn contexts_on_two_halves_of_a_core_are_advised_of_a_free_one() {
        let lists = |lists: &[&str]| lists.iter().enumerate().map(|(cpu, list)| (cpu, (*list).to_owned())).collect();
        let four = lists(&["0,2", "1,3", "0,2", "1,3"]);
        assert_eq!(siblings(&four, &pinned(&[0, 1])).verdict, Verdict::Ok);
        assert_eq!(siblings(&four, &pinned(&[0, 0])).verdict, Verdict::Ok, "they share a thread");
        assert_eq!(siblings(&BTreeMap::new(), &pinned(&[0, 1])).verdict, Verdict::Unknown);
        let finding = siblings(&four, &pinned(&[0, 2]));
        assert_eq!(finding.verdict, Verdict::Advice);
        assert_eq!(finding.lasting.as_deref(), Some("crossdock.toml: cpu = 1 for c-core-1"));
        let two = lists(&["0-1", "0-1"]);
        let lasting = siblings(&two, &pinned(&[0, 1])).lasting;
        assert!(lasting.is_some_and(|lasting| lasting.contains("cpu = 0 for c-core-1")));
    }

    #[test]
    fn governor_and_clock_are_advised_where_they_cost_time() {
        let with = |governors: &[&str], clock: &'static str| {
            let governors = governors.iter().enumerate().map(|(cpu, name)| (cpu, format!("{name}\n"))).collect();
            let mut machine = Machine { governors, ..machine() };
            machine
                .settings
                .insert("/sys/devices/system/clocksource/clocksource0/current_clocksource", clock.to_owned());
            let available = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
            machine.settings.insert(available, "tsc hpet acpi_pm \n".to_owned());
            machine
        };
        assert_eq!(governor(&with(&["performance", "performance"], "tsc")).verdict, Verdict::Ok);
        assert_eq!(governor(&with(&["performance", "powersave"], "tsc")).verdict, Verdict::Advice);
        assert_eq!(governor(&with(&[], "tsc")).verdict, Verdict::Unknown);
        assert_eq!(clock(&with(&[], "kvm-clock\n")).verdict, Verdict::Ok);
        let finding = clock(&with(&[], "hpet\n"));
        assert!(finding.command.is_some_and(|command| command.starts_with("echo tsc | sudo tee")));
        assert_eq!(clock(&machine()).verdict, Verdict::Unknown);
    }
}
