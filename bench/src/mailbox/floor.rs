//! The floor: one atomic word bounced between the two cores. What a round trip costs beyond it is the mailboxes' own.
//!
//! Two threads of one process do it: a cache line goes from core to core the same way, whosoever page table it is in.

use super::measure::{BATCH, round_trips};
use crate::cpu::Error;
use crossdock_device::pin_to_cpu;
use std::sync::atomic::{AtomicU64, Ordering};

/// A word with a cache line (and the one that is fetched beside it) to itself.
#[repr(align(128))]
struct Alone(AtomicU64);

/// Set by the pinging side when it is done; no round trip reaches it.
const END: u64 = u64::MAX;

/// Bounces the word and tells how long a round trip takes.
pub(super) fn run(client_cpu: usize, daemon_cpu: usize) -> Result<(), Error> {
    let word = Alone(AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (say_pinned, pinned) = std::sync::mpsc::channel();
        let word = &word;
        scope.spawn(move || {
            let ready = pin_to_cpu(daemon_cpu);
            let failed = ready.is_err();
            if say_pinned.send(ready).is_ok() && !failed {
                echo(&word.0);
            }
        });
        pinned.recv()??;
        let told = pin_to_cpu(client_cpu).map_err(Error::from).and_then(|()| {
            let mut number = 0;
            round_trips(BATCH, || {
                word.0.store(number + 1, Ordering::Release);
                number += 2;
                while word.0.load(Ordering::Acquire) != number {}
                Ok(())
            })
        });
        word.0.store(END, Ordering::Release);
        told
    })
}

/// Odd numbers are for this side, even ones for the other.
fn echo(word: &AtomicU64) {
    loop {
        match word.load(Ordering::Acquire) {
            END => break,
            odd if odd % 2 == 1 => word.store(odd + 1, Ordering::Release),
            _ => {}
        }
    }
}
