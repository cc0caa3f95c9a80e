//! CPU time, of a process and of the machine, as the kernel accounts it.

use std::fs;

/// An error, in words.
pub(crate) type Error = Box<dyn std::error::Error>;

/// CPU time of all threads of a process so far, in ns: the scheduler's own exact sum, which holds the time that the
/// process spent in softirqs on its way through loopback.
pub(crate) fn process_ns(pid: u32) -> Result<u64, Error> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        sum += text.split(' ').next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(sum)
}

/// CPU time that the machine spent so far on anything but idling, in ns (resolution 10 ms).
pub(crate) fn machine_ns() -> Result<u64, Error> {
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().ok_or("/proc/stat is empty")?;
    let ticks: Vec<u64> = line.split_whitespace().skip(1).map(|t| t.parse().unwrap_or(0)).collect();
    // user, nice, system, irq, softirq; idle, iowait and the hypervisor's steal are nobody's work here.
    let busy: u64 = [0, 1, 2, 5, 6].iter().filter_map(|&i| ticks.get(i)).sum();
    Ok(busy * 10_000_000)
}

/// Resident memory of a process at its largest, in bytes.
pub(crate) fn peak_memory_bytes(pid: u32) -> Result<u64, Error> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find(|l| l.starts_with("VmHWM:")).ok_or("no VmHWM in /proc/PID/status")?;
    let kib: u64 = line.split_whitespace().nth(1).ok_or("no figure in VmHWM")?.parse()?;
    Ok(kib << 10)
}

/// The machine in a few words.
pub(crate) fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or("unknown CPU");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cpus} x {}, Linux {}", model.trim_start_matches([' ', '\t', ':']), kernel.trim())
}
