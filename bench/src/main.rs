//! Crossdock's own benchmarks and their baselines.

fn main() {}
