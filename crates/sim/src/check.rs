//! A test under many seeds, and how to repeat the one that failed.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The environment variable with the one seed to run: decimal, or hexadecimal behind `0x`.
const SEED: &str = "CROSSDOCK_SEED";
/// The environment variable that multiplies the number of runs, and starts from a fresh seed: for a long search.
const SEARCH: &str = "CROSSDOCK_SEARCH";

/// Runs `test` with `runs` seeds. When it panics, prints the seed and the command that repeats it, and fails.
///
/// The seeds follow from `name` (which should be the test function's), so a change that breaks a test is what broke it,
/// not chance. `CROSSDOCK_SEED=0x2a` runs that seed alone. `CROSSDOCK_SEARCH=100` runs a hundred times as many, from a
/// start that is new each time.
pub fn check(name: &str, runs: u32, test: impl FnMut(u64)) {
    let one = std::env::var(SEED).ok();
    let search = std::env::var(SEARCH).ok();
    let seeds = seeds(name, runs, one.as_deref(), search.as_deref());
    run(name, seeds, test);
}

fn run(name: &str, seeds: impl Iterator<Item = u64>, mut test: impl FnMut(u64)) {
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            eprintln!("{}", command(name, seed));
            resume_unwind(panic);
        }
    }
}

/// The seeds that [`check()`] runs: `one` if given, else `runs` from `name`, or `search` times as many from anywhere.
///
/// # Panics
/// When `one` or `search` is not a number.
fn seeds(name: &str, runs: u32, one: Option<&str>, search: Option<&str>) -> impl Iterator<Item = u64> + use<> {
    let (first, runs) = match (one, search) {
        (Some(text), _) => (number(SEED, text), 1),
        (None, Some(text)) => (fastrand::u64(..), u64::from(runs).saturating_mul(number(SEARCH, text))),
        (None, None) => {
            let fold = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            // 32 bits are short to type and many enough.
            (name.bytes().fold(0xcbf2_9ce4_8422_2325, fold) >> 32, runs.into())
        }
    };
    (0..runs).map(move |index| first.wrapping_add(index))
}

fn number(variable: &str, text: &str) -> u64 {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("{variable} is `{text}`: a number is wanted, like 42 or 0x2a"))
}

fn command(name: &str, seed: u64) -> String {
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "PACKAGE".into());
    format!(
        "\n`{name}` failed with seed {seed:#x}. To repeat it:\n    {SEED}={seed:#x} cargo test -p {package} {name}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_the_same_each_time_and_one_can_be_asked_for() {
        let of = |name, one, search| seeds(name, 3, one, search).collect::<Vec<_>>();
        assert_eq!(of("a", None, None), of("a", None, None));
        assert_ne!(of("a", None, None), of("b", None, None));
        assert_eq!(of("a", Some("0x2a"), Some("9")), [42]);
        assert_eq!(of("a", Some("42"), None), [42]);
        assert_eq!(of("a", None, Some("5")).len(), 15);
    }

    #[test]
    #[should_panic(expected = "CROSSDOCK_SEED is `x`")]
    fn a_seed_that_is_none_is_named() {
        let _ = seeds("a", 1, Some("x"), None);
    }

    #[test]
    fn a_failure_names_its_seed_and_stops() {
        let mut tried = Vec::new();
        let failed = catch_unwind(AssertUnwindSafe(|| {
            run("a_name", 10..20, |seed| {
                tried.push(seed);
                assert!(tried.len() < 3, "the third");
            });
        }));
        assert!(failed.is_err());
        assert_eq!(tried, [10, 11, 12]);
        assert!(command("a_name", tried[2]).contains(&format!("CROSSDOCK_SEED={:#x} cargo test -p", tried[2])));
    }
}
