//! Durations and rates as people write them; counts, sizes and ways as people read them.

use std::time::Duration;

use crossdock_nectarine::Transport;

/// Reads `10s`, `500ms`, `1m30s`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wanted = "a duration is numbers with units, such as 10s, 500ms or 1m30s";
    if text.parse::<f64>().is_ok() {
        return Err(format!("a unit is missing: {wanted} (did you mean `{text}s`?)"));
    }
    let duration: jiff::SignedDuration = text.parse().map_err(|_| wanted.to_owned())?;
    let duration = Duration::try_from(duration).map_err(|_| format!("it is negative; {wanted}"))?;
    if duration > MAX_DURATION {
        return Err("longer than a year".to_owned());
    }
    Ok(duration)
}

/// Longest duration that is taken: sums of it with a clock's reading cannot overflow.
const MAX_DURATION: Duration = Duration::from_secs(366 * 24 * 3600);

/// Records a second: `1000`, `2.5k`, `1M`.
pub(crate) fn parse_rate(text: &str) -> Result<f64, String> {
    let wanted = "a rate is records per second, such as 1000, 2.5k or 1M";
    let number = text.strip_suffix("/s").unwrap_or(text);
    let (number, unit) = match number.char_indices().last() {
        Some((at, 'k')) => (&number[..at], 1e3),
        Some((at, 'M')) => (&number[..at], 1e6),
        _ => (number, 1.0),
    };
    let rate = number.parse::<f64>().map_err(|_| wanted.to_owned())? * unit;
    if !(1e-3..=1e9).contains(&rate) {
        return Err(format!("{wanted}; it is from 0.001 to 1000M"));
    }
    Ok(rate)
}

/// The most records a second that come: as [`parse_rate`], whole.
pub(crate) fn parse_peak(text: &str) -> Result<u64, String> {
    parse_rate(text).map(|rate| rate.ceil() as u64)
}

/// A number: `1000`, `64k`, `1M`.
pub(crate) fn parse_number(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k')) => (&text[..at], 1_000),
        Some((at, 'M')) => (&text[..at], 1_000_000),
        _ => (text, 1),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).filter(|number| *number > 0);
    number.ok_or_else(|| "a number is 1 or more, such as 1000, 64k or 1M".to_owned())
}

/// Memory, in bytes: `65536`, `64M`, `1G`.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let wanted = "memory is bytes, such as 65536, 64M or 1G";
    let text = text.strip_suffix("iB").or_else(|| text.strip_suffix('B')).unwrap_or(text);
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'M')) => (&text[..at], 20),
        Some((at, 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    number.filter(|bytes| *bytes > 0).ok_or_else(|| wanted.to_owned())
}

/// The age of a record, in ms: `500ms`, `90s`, `24h`.
pub(crate) fn parse_age(text: &str) -> Result<u64, String> {
    let age = parse_duration(text)?;
    match u64::try_from(age.as_millis()) {
        Ok(ms @ 1..) => Ok(ms),
        _ => Err("an age is 1ms or more, such as 90s or 24h".to_owned()),
    }
}

/// Time for a record, in ns: `5us`, `800ns`.
pub(crate) fn parse_budget(text: &str) -> Result<u64, String> {
    let wanted = "a budget is a time per record, such as 800ns, 5us or 1ms";
    let budget = parse_duration(text).map_err(|_| wanted.to_owned())?;
    match u64::try_from(budget.as_nanos()) {
        Ok(ns @ 1..=10_000_000_000) => Ok(ns),
        _ => Err(format!("{wanted}; it is from 1ns to 10s")),
    }
}

/// Time without progress, in ms: `500ms`, `10s`, `5m`.
pub(crate) fn parse_stuck_after(text: &str) -> Result<u64, String> {
    let wanted = "it is a time, such as 500ms, 10s or 5m";
    let time = parse_duration(text).map_err(|_| wanted.to_owned())?;
    match u64::try_from(time.as_millis()) {
        Ok(ms @ 10..=86_400_000) => Ok(ms),
        _ => Err(format!("{wanted}; from 10ms to 24h")),
    }
}

/// The load that is kept for a handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reserve {
    /// Time of a core, in ns a second.
    pub(crate) ns_per_s: Option<u64>,
    pub(crate) buffers: Option<u64>,
    pub(crate) bytes_per_s: Option<u64>,
}

/// The load that is kept for a handler, one, two or all three of: `50ms/s`, `64 buffers`, `12MB/s`, with commas in between.
pub(crate) fn parse_reserve(text: &str) -> Result<Reserve, String> {
    let wanted = "a reservation is core time, buffers or bandwidth, such as `50ms/s` or `50ms/s, 64 buffers, 12MB/s`";
    let mut reserve = Reserve::default();
    for part in text.split(',').map(str::trim) {
        let (place, value) = if let Some(buffers) = part.strip_suffix("buffers") {
            let buffers = buffers.trim_end().parse().ok().filter(|buffers| (1..=1 << 32).contains(buffers));
            (&mut reserve.buffers, buffers.ok_or_else(|| format!("{wanted}; buffers are 1 to {}", 1u64 << 32))?)
        } else if let Some(bytes) = part.strip_suffix("B/s") {
            let bytes = match bytes.strip_suffix('G') {
                Some(number) => number.parse::<f64>().ok().map(|number| number * 1e9),
                None => parse_rate(bytes).ok(),
            };
            let bytes = bytes.filter(|bytes| (1.0..=1e12).contains(bytes)).map(|bytes| bytes.ceil() as u64);
            (&mut reserve.bytes_per_s, bytes.ok_or_else(|| format!("{wanted}; bandwidth is 1B/s to 1000GB/s"))?)
        } else {
            let time = part.strip_suffix("/s").and_then(|time| parse_duration(time).ok());
            let ns = time.ok_or_else(|| wanted.to_owned())?.as_nanos();
            let ns = u64::try_from(ns).ok().filter(|ns| (1..=1_000_000_000).contains(ns));
            let most = "core time is 1ns/s to 1s/s, which is a whole core";
            (&mut reserve.ns_per_s, ns.ok_or_else(|| format!("{wanted}; {most}"))?)
        };
        if place.replace(value).is_some() {
            return Err(format!("{wanted}: each once"));
        }
    }
    Ok(reserve)
}

/// `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// `1 record`, `2 records`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {noun}{s}", count(number))
}

/// `1.5 MiB`.
pub(crate) fn bytes(number: u64) -> String {
    indicatif::BinaryBytes(number).to_string()
}

/// Bytes a second, as bandwidth is given: `80 MB/s`.
pub(crate) fn bandwidth(bytes_per_s: u64) -> String {
    match bytes_per_s as f64 {
        bytes @ 9.95e8.. => format!("{:.1} GB/s", bytes / 1e9),
        bytes @ 9.95e5.. => format!("{:.1} MB/s", bytes / 1e6),
        bytes @ 9.95e2.. => format!("{:.1} kB/s", bytes / 1e3),
        bytes => format!("{bytes} B/s"),
    }
}

/// A count a second; `-` where there was no time to speak of.
pub(crate) fn rate(number: u64, time: Duration) -> String {
    if time < Duration::from_micros(1) {
        return "-".to_owned();
    }
    let rate = number as f64 / time.as_secs_f64();
    match rate {
        1e6.. => format!("{:.2} M/s", rate / 1e6),
        1e4.. => format!("{:.0} k/s", rate / 1e3),
        _ => format!("{} /s", count(rate.round() as u64)),
    }
}

/// `0.12 s`, `3.4 s`, `2 min 5 s`.
pub(crate) fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{:.2} s", time.as_secs_f64()),
        1..60 => format!("{:.1} s", time.as_secs_f64()),
        whole => format!("{} min {} s", whole / 60, whole % 60),
    }
}

/// The way that records went.
pub(crate) fn way(transport: Transport) -> &'static str {
    match transport {
        Transport::Shm => "by shared memory",
        Transport::Udp => "by UDP",
        Transport::Auto => "over no transport yet",
    }
}

/// The note that a command shows once if its records go by UDP although shared memory was tried.
pub(crate) fn slower_way(not_attached: &str) -> String {
    format!("records go by UDP, which takes more processor time than shared memory: {not_attached}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_write_them() {
        assert_eq!(parse_duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
    }

    #[test]
    fn a_wrong_duration_says_what_is_right() {
        for text in ["", "x", "s", "10 parsecs", "-5s", "10", "99999999h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert!(parse_duration("10").is_err_and(|why| why.contains("`10s`")));
    }

    #[test]
    fn numbers_read_as_people_write_them() {
        for (text, number) in [("1", 1), ("1000", 1000), ("64k", 64_000), ("2M", 2_000_000)] {
            assert_eq!(parse_number(text), Ok(number), "{text}");
        }
        for text in ["", "0", "k", "-1", "1.5k", "1K", "99999999999999999999", "18446744073709551615k"] {
            assert!(parse_number(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_read_as_people_write_them() {
        for (text, rate) in [("1000", 1e3), ("2.5k", 2.5e3), ("1M", 1e6), ("10k/s", 1e4), ("0.5", 0.5)] {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
        for text in ["", "k", "0", "-1", "NaN", "inf", "1e99", "ten", "10 k ", "1K"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn needs_of_a_handler_read_as_people_write_them() {
        assert_eq!([parse_peak("2.5M"), parse_peak("0.5")], [Ok(2_500_000), Ok(1)]);
        assert_eq!([parse_stuck_after("500ms"), parse_stuck_after("1m30s")], [Ok(500), Ok(90_000)]);
        for text in ["5", "1ms", "25h", "-1s", ""] {
            assert!(parse_stuck_after(text).is_err_and(|why| why.contains("10s")), "{text}");
        }
        assert_eq!([parse_budget("800ns"), parse_budget("5us"), parse_budget("5µs")], [Ok(800), Ok(5000), Ok(5000)]);
        for text in ["5", "", "0ns", "11s", "us"] {
            assert!(parse_budget(text).is_err_and(|why| why.contains("5us")), "{text}");
        }
        let time = |ns| Ok(Reserve { ns_per_s: Some(ns), ..Reserve::default() });
        assert_eq!([parse_reserve("50ms/s"), parse_reserve("1s/s")], [time(50_000_000), time(1_000_000_000)]);
        let all = Reserve { ns_per_s: Some(1_000_000), buffers: Some(64), bytes_per_s: Some(12_500_000) };
        assert_eq!(
            [parse_reserve("12.5MB/s,64 buffers , 1ms/s"), parse_reserve("1ms/s,64buffers,12.5MB/s")].map(Result::ok),
            [Some(all); 2]
        );
        for text in
            ["50ms", "2s/s", "/s", "0s/s", "50/s", "", "50ms/s,", "1ms/s, 2ms/s", "0 buffers", "x buffers", "xB/s"]
        {
            assert!(parse_reserve(text).is_err_and(|why| why.contains("50ms/s")), "{text}");
        }
    }

    #[test]
    fn counts_and_rates_show_as_people_read_them() {
        assert_eq!([0, 999, 1000, 336_776].map(count), ["0", "999", "1,000", "336,776"]);
        assert_eq!(counted(1, "record"), "1 record");
        assert_eq!(counted(0, "record"), "0 records");
        assert_eq!([0, 80_000_000, 2_500_000_000].map(bandwidth), ["0 B/s", "80.0 MB/s", "2.5 GB/s"]);
        assert_eq!(rate(500, Duration::from_secs(1)), "500 /s");
        assert_eq!(rate(3_000_000, Duration::from_secs(2)), "1.50 M/s");
        assert_eq!(rate(9_999, Duration::from_secs(1)), "9,999 /s");
        assert_eq!(rate(3, Duration::ZERO), "-");
        assert_eq!(seconds(Duration::from_millis(1234)), "1.2 s");
        assert_eq!(seconds(Duration::from_secs(125)), "2 min 5 s");
    }
}
