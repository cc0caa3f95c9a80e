//! The system's figures for this process.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};

/// CPU time, memory, threads and descriptors of this process; zero where the system does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Process {
    /// CPU time of its own code, in s.
    pub(super) user_s: f64,
    /// CPU time of the system for it, in s.
    pub(super) system_s: f64,
    /// Memory in RAM, in bytes.
    pub(super) resident_bytes: u64,
    /// Addresses, in bytes.
    pub(super) virtual_bytes: u64,
    /// Threads.
    pub(super) threads: u64,
    /// Open descriptors.
    pub(super) descriptors: u64,
}

impl Process {
    /// As it is now.
    pub(super) fn read() -> Process {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let descriptors = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        Process { descriptors: descriptors as u64, ..Process::of(&stat, clock_ticks_per_second(), page_size() as u64) }
    }

    /// Out of `/proc/self/stat`, whose fields proc(5) numbers.
    fn of(stat: &str, ticks_per_s: u64, page_bytes: u64) -> Process {
        // The second field is the program's name in brackets, which may have anything in it.
        let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields: Vec<&str> = behind_name.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        let seconds = |number| field(number) as f64 / ticks_per_s.max(1) as f64;
        Process {
            user_s: seconds(14),
            system_s: seconds(15),
            resident_bytes: field(24) * page_bytes,
            virtual_bytes: field(23),
            threads: field(20),
            descriptors: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_whatever_the_program_is_called() {
        let stat = "7 (a) b) S 1 7 7 0 -1 0 0 0 0 0 250 150 0 0 20 0 3 0 99 4096 5 1";
        let process = Process::of(stat, 100, 4096);
        assert_eq!((process.user_s, process.system_s, process.threads), (2.5, 1.5, 3));
        assert_eq!((process.virtual_bytes, process.resident_bytes), (4096, 20_480));
        assert_eq!(Process::of("", 100, 4096), Process::default());
        assert!(Process::read().threads > 0 && Process::read().descriptors > 0);
    }
}
