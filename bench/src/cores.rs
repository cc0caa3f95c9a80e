//! The two cores: the client's and the daemon's, and how they are related.

use crate::cpu::Error;
use rustix::thread::{CpuSet, sched_getaffinity};
use std::fs;

/// Which core each side runs on, counted from 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores {
    /// The client process, and the pinging side of a baseline.
    pub(crate) client: usize,
    /// The daemon's context, and the echoing side of a baseline.
    pub(crate) daemon: usize,
}

impl Cores {
    /// The two asked for, or the first and the last that this process may use.
    pub(crate) fn choose(client: Option<usize>, daemon: Option<usize>) -> Result<Cores, Error> {
        let allowed = sched_getaffinity(None)?;
        let mut usable = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
        let first = usable.next().ok_or("this process may use no core")?;
        let (client, daemon) = (client.unwrap_or(first), daemon.or_else(|| usable.next_back()).unwrap_or(first));
        if client == daemon {
            return Err("this benchmark needs two cores, one for the client and one for the daemon".into());
        }
        Ok(Cores { client, daemon })
    }

    /// Which is which, and how they are related.
    pub(crate) fn words(&self) -> String {
        format!("client on CPU {}, daemon on CPU {}: {}", self.client, self.daemon, self.relation())
    }

    /// How they are related, in words, as the kernel knows it.
    pub(crate) fn relation(&self) -> String {
        let read = |cpu: usize, file: &str| {
            let text = fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/{file}")).ok()?;
            Some(text.trim().to_owned())
        };
        let relation = relation(read, self.client, self.daemon);
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let guest =
            info.lines().any(|line| line.starts_with("flags") && line.split(' ').any(|flag| flag == "hypervisor"));
        let source = if guest { ", as the hypervisor reports it" } else { "" };
        format!("{relation}{source}")
    }
}

/// Has this thread go before all others, so that what else runs on the machine is measured as little as can be.
pub(crate) fn raise_priority() {
    if let Err(error) = crossdock_device::raise_priority() {
        eprintln!("no higher priority ({error}): what else runs on this machine is measured too");
    }
}

/// Has this thread go on as soon as it wakes, at the priority that it has: for one that stands for the network.
pub(crate) fn short_turns() {
    if let Err(error) = crossdock_device::take_short_turns() {
        eprintln!("no short time slice ({error}): the benchmark's own waits are measured too");
    }
}

/// How two cores are related, from the files of their folders under /sys/devices/system/cpu.
fn relation(read: impl Fn(usize, &str) -> Option<String>, one: usize, other: usize) -> String {
    let shared = |file: &str| read(one, file).is_some_and(|list| lists(&list, other));
    if shared("topology/thread_siblings_list") {
        return "two threads of one core (SMT siblings)".into();
    }
    let same = |file: &str| read(one, file).is_some() && read(one, file) == read(other, file);
    // Absent on old kernels and on machines with a die a socket: then the socket says it.
    let place = match (same("topology/physical_package_id"), same("topology/die_id")) {
        (true, true) => "two cores of one socket and die",
        (true, false) => "two cores of one socket",
        (false, _) if read(one, "topology/physical_package_id").is_some() => "two cores of different sockets",
        _ => "two cores",
    };
    const MOST_CACHES: usize = 16;
    let caches = (0..MOST_CACHES).filter_map(|index| {
        let folder = format!("cache/index{index}");
        let level = read(one, &format!("{folder}/level"))?;
        shared(&format!("{folder}/shared_cpu_list")).then_some(level)
    });
    // The nearest one: through it the cores meet.
    match caches.min() {
        Some(level) => format!("{place} that share their L{level} cache"),
        None => format!("{place} that share no cache"),
    }
}

/// Whether a list such as `0-3,8` holds a number.
fn lists(list: &str, wanted: usize) -> bool {
    list.split(',').any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let bound = |text: &str| text.trim().parse::<usize>().ok();
        matches!((bound(first), bound(last)), (Some(first), Some(last)) if (first..=last).contains(&wanted))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of 2 sockets with 2 dies of 2 cores with 2 threads: CPU numbers count threads within cores.
    fn machine(cpu: usize, file: &str) -> Option<String> {
        let range = |size: usize| format!("{}-{}", cpu / size * size, cpu / size * size + size - 1);
        Some(match file {
            "topology/thread_siblings_list" | "cache/index0/shared_cpu_list" => range(2),
            "topology/physical_package_id" => (cpu / 8).to_string(),
            "topology/die_id" => (cpu / 4 % 2).to_string(),
            "cache/index0/level" => "1".into(),
            "cache/index1/level" => "3".into(),
            "cache/index1/shared_cpu_list" => range(4),
            _ => return None,
        })
    }

    #[test]
    fn relations_are_distinguished() {
        assert_eq!(relation(machine, 0, 1), "two threads of one core (SMT siblings)");
        assert_eq!(relation(machine, 0, 2), "two cores of one socket and die that share their L3 cache");
        assert_eq!(relation(machine, 0, 4), "two cores of one socket that share no cache");
        assert_eq!(relation(machine, 1, 15), "two cores of different sockets that share no cache");
        assert_eq!(relation(|_, _| None, 0, 1), "two cores that share no cache");
    }

    #[test]
    fn lists_of_cores_are_read() {
        assert!(lists("0-1", 1) && lists("0,2-3,8", 3) && lists("7", 7));
        assert!(!lists("0-1", 2) && !lists("", 0) && !lists("0,2-3", 1));
    }
}
