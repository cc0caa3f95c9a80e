//! Figures as people read them, in the texts of what is refused or moved.

use std::fmt;

/// Time of a core, in ns per s: `310 ms/s`.
#[derive(Clone, Copy, Debug)]
pub struct Time(pub u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, &[(1_000_000, "ms/s"), (1_000, "µs/s"), (1, "ns/s")])
    }
}

/// A span of time: `200 µs`.
pub(crate) struct Span(pub(crate) u64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, &[(1_000_000, "ms"), (1_000, "µs"), (1, "ns")])
    }
}

/// Messages per second: `2.1 M msgs/s`.
#[derive(Clone, Copy, Debug)]
pub struct Rate(pub u64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, &[(1_000_000, "M msgs/s"), (1_000, "k msgs/s"), (1, "msgs/s")])
    }
}

/// Bytes per second: `1.2 GB/s`.
pub(crate) struct Bandwidth(pub(crate) u64);

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        scaled(f, self.0, &[(1_000_000_000, "GB/s"), (1_000_000, "MB/s"), (1_000, "kB/s"), (1, "B/s")])
    }
}

/// Two digits at least: one behind the point below 10, none from there on.
fn scaled(f: &mut fmt::Formatter<'_>, value: u64, units: &[(u64, &str)]) -> fmt::Result {
    let unit = units.iter().find(|(size, _)| value >= *size).or(units.last());
    let Some(&(size, name)) = unit else { return write!(f, "{value}") };
    let tenths = u128::from(value) * 10 / u128::from(size);
    match tenths {
        _ if tenths < 100 && tenths % 10 != 0 => write!(f, "{}.{} {name}", tenths / 10, tenths % 10),
        _ => write!(f, "{} {name}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(Time(310_400_000).to_string(), "310 ms/s");
        assert_eq!(Time(3_000_000).to_string(), "3 ms/s");
        assert_eq!(Time(999).to_string(), "999 ns/s");
        assert_eq!(Time(0).to_string(), "0 ns/s");
        assert_eq!(Rate(2_100_000).to_string(), "2.1 M msgs/s");
        assert_eq!(Rate(950).to_string(), "950 msgs/s");
        assert_eq!(Span(200_000).to_string(), "200 µs");
        assert_eq!(Bandwidth(1_250_000_000).to_string(), "1.2 GB/s");
        assert_eq!(Time(u64::MAX).to_string(), "18446744073709 ms/s");
    }
}
