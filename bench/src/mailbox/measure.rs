//! Round trips: how they are timed, and what fills and reads the messages.

use super::floor::Floor;
use crate::cpu::Error;
use crate::process::say;
use crate::report::quantile;
use serde_json::json;
use std::time::{Duration, Instant};

/// Round trips between two looks at the clock, where one takes well under a microsecond: a look costs about 25 ns, which
/// would be a fifth of the floor.
pub(super) const BATCH: u32 = 64;
/// For round trips of several microseconds each: every one is timed.
pub(super) const SINGLE: u32 = 1;

/// Turns of a case and the floor, and how long each has: a part of it before anything is counted, since both sides' threads have to
/// wake first. The distance of two virtual cores changes within seconds, so both are measured within a few hundredths of one.
const TURNS: usize = 15;
const TURN: Duration = Duration::from_millis(25);
const TURN_WARM_UP: Duration = Duration::from_millis(5);

/// Before anything is counted: caches, page tables and the cores' clocks settle.
const WARM_UP: Duration = Duration::from_millis(100);
/// How long round trips are made for the middle one.
const MEASURED: Duration = Duration::from_millis(300);
/// How long single ones are timed for the slow ones.
const SINGLES: Duration = Duration::from_millis(200);

/// Times round trips and reports to the benchmark: `rtt_ns_p50` is the middle of the means over `batch` round trips each,
/// `rtt_ns_p99` of single ones, so that it holds one look at the clock.
pub(super) fn round_trips(batch: u32, mut trip: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
    timed(WARM_UP, batch, &mut trip)?;
    let mut means_ns = timed(MEASURED, batch, &mut trip)?;
    let mut singles_ns = timed(SINGLES, SINGLE, &mut trip)?;
    // Thousandths, since a mean of a hundred nanoseconds has a fraction that matters.
    let p50 = quantile(&mut means_ns, 0.5) as f64 / 1e3;
    let p99 = quantile(&mut singles_ns, 0.99) as f64 / 1e3;
    say(&json!({"rtt_ns_p50": p50, "rtt_ns_p99": p99}));
    Ok(())
}

/// The same in turn with the floor between the same cores. Also reported: `floor_ns_p50`, `floor_ns_p99`, and `to_floor`, the middle
/// of the turns' ratios.
pub(super) fn round_trips_and_floor(
    floor: &mut Floor,
    batch: u32,
    mut trip: impl FnMut() -> Result<(), Error>,
) -> Result<(), Error> {
    timed(WARM_UP, batch, &mut trip)?;
    let (mut ours, mut floors, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let floor = floor.turn(|floor| middle(BATCH, &mut || floor.trip()))?;
        let case = middle(batch, &mut trip)?;
        ours.push(case);
        floors.push(floor);
        ratios.push(case * 1000 / floor.max(1));
    }
    let mut singles = timed(SINGLES, SINGLE, &mut trip)?;
    let mut floor_singles = floor.turn(|floor| timed(SINGLES, SINGLE, &mut || floor.trip()))?;
    let [p50, floor_p50, to_floor] = [&mut ours, &mut floors, &mut ratios].map(|values| quantile(values, 0.5));
    let [p99, floor_p99] = [&mut singles, &mut floor_singles].map(|values| quantile(values, 0.99));
    let [p50, p99, floor_p50, floor_p99, to_floor] = [p50, p99, floor_p50, floor_p99, to_floor].map(|n| n as f64 / 1e3);
    say(&json!({
        "rtt_ns_p50": p50, "rtt_ns_p99": p99, "floor_ns_p50": floor_p50, "floor_ns_p99": floor_p99, "to_floor": to_floor,
    }));
    Ok(())
}

/// The middle of a turn's means, in thousandths of a nanosecond.
fn middle(batch: u32, trip: &mut impl FnMut() -> Result<(), Error>) -> Result<u64, Error> {
    timed(TURN_WARM_UP, batch, trip)?;
    Ok(quantile(&mut timed(TURN, batch, trip)?, 0.5))
}

/// Times batches for so long; a batch's mean in thousandths of a nanosecond.
fn timed(time: Duration, batch: u32, trip: &mut impl FnMut() -> Result<(), Error>) -> Result<Vec<u64>, Error> {
    let mut means = Vec::with_capacity(1 << 16);
    let begin = Instant::now();
    let mut start = begin;
    while start - begin < time {
        for _ in 0..batch {
            trip()?;
        }
        let now = Instant::now();
        means.push((now - start).as_nanos() as u64 * 1000 / u64::from(batch));
        start = now;
    }
    Ok(means)
}

/// Length of the messages of a one-way run.
pub(super) const ONE_WAY_BYTES: usize = 64;
/// How long they are sent.
const ONE_WAY: Duration = Duration::from_millis(700);

/// Sends messages for a while, numbered from 0: `send` is given the first number and how many; how many it was in all.
pub(super) fn for_a_while(mut send: impl FnMut(u64, usize) -> Result<(), Error>) -> Result<u64, Error> {
    /// Messages between two looks at the clock.
    const BURST: usize = 1024;
    let start = Instant::now();
    let mut number = 0;
    while start.elapsed() < ONE_WAY {
        send(number, BURST)?;
        number += BURST as u64;
    }
    Ok(number)
}

/// Writes every byte of a message.
#[inline]
pub(super) fn fill(message: &mut [u8], number: u64) {
    message.fill(number as u8);
}

/// Reads every byte of a message: the sum of its words of 8 bytes (its length is a multiple of that).
#[inline]
pub(super) fn read(message: &[u8]) -> u64 {
    let words = message.as_chunks::<8>().0;
    words.iter().fold(0, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
}

/// Reads every byte of a message that came back, and holds it against what [`fill`] wrote.
#[inline]
pub(super) fn check(message: &[u8], bytes: usize, number: u64) -> Result<(), Error> {
    let word = u64::from(number as u8) * 0x0101_0101_0101_0101;
    if message.len() == bytes && read(message) == word.wrapping_mul(bytes as u64 / 8) {
        return Ok(());
    }
    Err(format!("message {number} of {bytes} bytes came back as another").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_is_seen() {
        let mut message = [0; 64];
        for number in [0, 1, 255, 256, 1_000_003] {
            fill(&mut message, number);
            assert!(check(&message, 64, number).is_ok(), "{number}");
            assert!(check(&message, 64, number + 1).is_err() && check(&message[..56], 64, number).is_err());
            message[63] ^= 1;
            assert!(check(&message, 64, number).is_err());
        }
    }
}
