//! The floor: one atomic word bounced between the two cores. The rest of a round trip is the mailboxes' own cost.
//!
//! Two threads of one process do it: a cache line goes from core to core the same way, whosoever page table it is in. It is measured
//! in turn with each case, by the case's own client.

use super::measure::{BATCH, round_trips};
use crate::cpu::Error;
use crossdock_device::pin_to_cpu;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// A word with a cache line (and the one that is fetched beside it) to itself.
#[repr(align(128))]
struct Alone(AtomicU64);

/// Set by the pinging side when it is done; no round trip reaches it.
const END: u64 = u64::MAX;
/// Set between two turns of the floor: the echoing thread sleeps.
const REST: u64 = u64::MAX - 1;

/// The pinging side of a word that is bounced in turns, between which the other core is left to others.
pub(super) struct Floor {
    word: Arc<Alone>,
    number: u64,
    echo: Option<JoinHandle<()>>,
}

impl Floor {
    /// Starts the echoing thread, which sleeps at first.
    pub(super) fn start(daemon_cpu: usize) -> Result<Floor, Error> {
        let word = Arc::new(Alone(AtomicU64::new(REST)));
        let echoed = word.clone();
        let (say_pinned, pinned) = std::sync::mpsc::channel();
        let echo = std::thread::spawn(move || {
            let ready = pin_to_cpu(daemon_cpu);
            let failed = ready.is_err();
            if say_pinned.send(ready).is_ok() && !failed {
                echo(&echoed.0);
            }
        });
        let floor = Floor { word, number: 0, echo: Some(echo) };
        pinned.recv()??;
        Ok(floor)
    }

    /// One turn, in which [`Floor::trip`] may be called.
    pub(super) fn turn<T>(&mut self, turn: impl FnOnce(&mut Floor) -> Result<T, Error>) -> Result<T, Error> {
        self.wake(self.number);
        let outcome = turn(self);
        self.word.0.store(REST, Ordering::Release);
        outcome
    }

    /// One round trip.
    #[inline]
    pub(super) fn trip(&mut self) -> Result<(), Error> {
        self.word.0.store(self.number + 1, Ordering::Release);
        self.number += 2;
        while self.word.0.load(Ordering::Acquire) != self.number {}
        Ok(())
    }

    fn wake(&self, number: u64) {
        self.word.0.store(number, Ordering::Release);
        if let Some(echo) = &self.echo {
            echo.thread().unpark();
        }
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        self.wake(END);
        if let Some(echo) = self.echo.take() {
            let _ended = echo.join();
        }
    }
}

/// Bytes of a message that go along.
const MESSAGE_WORDS: usize = 8;
/// Messages that take turns, each on lines of its own: as many as a mailbox has under way.
const MESSAGES: usize = 8;

/// A message's cache line.
struct Line([AtomicU64; MESSAGE_WORDS]);

#[repr(align(4096))]
struct Lines([[Line; 3]; MESSAGES]);

impl Lines {
    fn new() -> Lines {
        Lines(std::array::from_fn(|_| std::array::from_fn(|_| Line(std::array::from_fn(|_| AtomicU64::new(0))))))
    }

    #[inline]
    fn fill(&self, number: u64) {
        let [line, ..] = &self.0[number as usize % MESSAGES];
        line.0.iter().for_each(|word| word.store(number, Ordering::Relaxed));
    }

    #[inline]
    fn read(&self, number: u64) -> u64 {
        let [line, ..] = &self.0[number as usize % MESSAGES];
        line.0.iter().map(|word| word.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }
}

/// The floor of a message of 64 bytes that is filled and read both ways: the same word, and a line of bytes beside it that the
/// one side fills before it writes the word and the other reads before it answers.
pub(super) fn run_with_bytes(client_cpu: usize, daemon_cpu: usize) -> Result<(), Error> {
    let (word, there, back) = (Alone(AtomicU64::new(0)), Lines::new(), Lines::new());
    std::thread::scope(|scope| {
        let (say_pinned, pinned) = std::sync::mpsc::channel();
        let (word, there, back) = (&word.0, &there, &back);
        scope.spawn(move || {
            let ready = pin_to_cpu(daemon_cpu);
            let failed = ready.is_err();
            if say_pinned.send(ready).is_err() || failed {
                return;
            }
            loop {
                match word.load(Ordering::Acquire) {
                    END => break,
                    odd if odd % 2 == 1 => {
                        back.fill(there.read(odd / 2) / MESSAGE_WORDS as u64);
                        word.store(odd + 1, Ordering::Release);
                    }
                    _ => {}
                }
            }
        });
        pinned.recv()??;
        let outcome = pin_to_cpu(client_cpu).map_err(Error::from).and_then(|()| {
            let mut number = 0;
            round_trips(BATCH, || {
                there.fill(number / 2);
                word.store(number + 1, Ordering::Release);
                number += 2;
                while word.load(Ordering::Acquire) != number {}
                let read = back.read(number / 2 - 1);
                if read == (number / 2 - 1) * MESSAGE_WORDS as u64 {
                    Ok(())
                } else {
                    Err("other bytes came back".into())
                }
            })
        });
        word.store(END, Ordering::Release);
        outcome
    })
}

/// Odd numbers are for this side, even ones for the other.
fn echo(word: &AtomicU64) {
    loop {
        match word.load(Ordering::Acquire) {
            END => break,
            REST => std::thread::park(),
            odd if odd % 2 == 1 => word.store(odd + 1, Ordering::Release),
            _ => {}
        }
    }
}
