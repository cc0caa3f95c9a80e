//! Passes over the flights, timed in turn: one of the baseline, one of ours, one of the baseline …

use std::hint::black_box;
use std::time::{Duration, Instant};

/// A pass over all records; what it gives is only there so that nothing is left out.
pub(super) type Pass<'a> = Box<dyn FnMut() -> u64 + 'a>;

/// How long the passes of one round take, each side: many passes; the middle one counts.
const ROUND: Duration = Duration::from_millis(40);

/// The median time of a pass of each, in ns. They take turns, so that whatever else the machine does is shared.
pub(super) fn in_turn(passes: &mut [&mut Pass<'_>]) -> Vec<f64> {
    for pass in &mut *passes {
        black_box(pass());
    }
    let mut times: Vec<Vec<u64>> = vec![Vec::new(); passes.len()];
    let all = ROUND * passes.len() as u32;
    let begin = Instant::now();
    while begin.elapsed() < all {
        for (pass, times) in passes.iter_mut().zip(&mut times) {
            let start = Instant::now();
            black_box(pass());
            times.push(start.elapsed().as_nanos() as u64);
        }
    }
    let middle = |mut times: Vec<u64>| {
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or(0) as f64
    };
    times.into_iter().map(middle).collect()
}
