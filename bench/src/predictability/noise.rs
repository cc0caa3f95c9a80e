//! The machine's other work, in a process of its own: threads that do what compilers do to a machine: allocate, hash, sort, and
//! go through memory.

use crate::cpu::Error;
use crate::process::say;
use serde_json::json;
use std::collections::HashMap;
use std::hint::black_box;

/// Bytes that each thread goes through: more than caches hold.
const MEMORY: usize = 32 << 20;
/// Names that are put into a table at a time.
const NAMES: u64 = 20_000;

/// Works with this number of threads until the process is ended.
pub(super) fn run(threads: u64) -> Result<(), Error> {
    let started: Vec<_> = (0..threads).map(|at| std::thread::spawn(move || work(at))).collect();
    say(&json!({"ready": true}));
    started.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread of other work panicked".into()))
}

fn work(seed: u64) {
    let (mut memory, mut sum) = (vec![seed as u8; MEMORY], seed);
    loop {
        let mut table = HashMap::new();
        for name in 0..NAMES {
            *table.entry(format!("name{}", (name * 7919 + sum) % NAMES)).or_insert(0u64) += name;
        }
        let mut sorted: Vec<(String, u64)> = table.into_iter().collect();
        sorted.sort_unstable();
        let (from, to) = memory.split_at_mut(MEMORY / 2);
        to.copy_from_slice(from);
        from.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(sum as u8));
        sum = black_box(sum.wrapping_add(sorted.len() as u64 + u64::from(to[sum as usize % to.len()])));
    }
}
