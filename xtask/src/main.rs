//! The project's chores: test, tidy, bench, fuzz.

fn main() {}
