//! Functions of times. A timestamp is nanoseconds since 1970 in UTC; there is no time zone and no date without a time.

use crossdock_format::FieldType;
use jiff::civil::{Date, DateTime};
use jiff::{Timestamp, tz};

use super::{Answer, Arguments, Body, Function, Gives, Kind, Prepared, Scratch, known_text, time_text};
use crate::decimal::Decimal;
use crate::expr::Expr;
use crate::interpret::EvalError;

const TIME: Gives = Gives::Type(FieldType::Timestamp);
const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400 * SECOND;

const FIELDS: &str = "there are century, day, decade, dow, doy, epoch, hour, isodow, isoyear, microseconds, millennium, \
                      milliseconds, minute, month, quarter, second, week, year";
const NANOSECONDS: &str = "seconds have 9 digits behind the point, not 6: timestamps count nanoseconds";

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(
        ("+", &[Kind::Timestamp, Kind::Interval], TIME),
        "the time so much later; a month later is the same day, or the month's last",
        ("TIMESTAMP '2013-01-31' + INTERVAL '1 month 2 hours'", "2013-02-28T02:00:00Z"),
        Body::Values(|arguments, _| moved(arguments, false)),
    )
    .but("an interval is written, not computed: there is no type of intervals, and no `timestamp - timestamp`, no `age`")
    .prepared(|arguments| interval_at(arguments, 1)),
    Function::new(
        ("-", &[Kind::Timestamp, Kind::Interval], TIME),
        "the time so much earlier",
        ("TIMESTAMP '2013-03-31' - INTERVAL '00:00:01.5'", "2013-03-30T23:59:58.5Z"),
        Body::Values(|arguments, _| moved(arguments, true)),
    )
    .prepared(|arguments| interval_at(arguments, 1)),
    Function::new(
        ("date_trunc", &[Kind::Word, Kind::Timestamp], TIME),
        "the start of the second, minute, hour, day, week, month, quarter, year, … that the time lies in",
        ("date_trunc('hour', TIMESTAMP '2013-01-31 17:05:09')", "2013-01-31T17:00:00Z"),
        Body::Values(|arguments, _| start_of(unit(arguments)?, arguments.time(1)?).map(Answer::Timestamp)),
    )
    .but("in UTC; a start before 1677-09-21, where timestamps begin, is a row error")
    .prepared(|arguments| unit_at(arguments, Unit::can_truncate)),
    Function::new(
        ("date_bin", &[Kind::Interval, Kind::Timestamp, Kind::Timestamp], TIME),
        "the start of the interval that the time lies in, where one begins at the third argument",
        ("date_bin(INTERVAL '15 minutes', TIMESTAMP '2013-01-31 17:05:09', TIMESTAMP '2013-01-01')", "2013-01-31T17:00:00Z"),
        Body::Values(bin),
    )
    .prepared(fixed_interval),
    Function::new(
        ("extract", &[Kind::Word, Kind::Timestamp], Gives::Decimal(extract_scale)),
        "a field of the time, exactly, as in `EXTRACT(hour FROM time)`: century, day, decade, dow, doy, epoch, hour, isodow, \
         isoyear, microseconds, millennium, milliseconds, minute, month, quarter, second, week, year",
        ("EXTRACT(epoch FROM TIMESTAMP '1970-01-02 00:00:00.5')", "86400.500000000"),
        Body::Values(|arguments, _| Ok(Answer::Decimal(field(unit(arguments)?, arguments.time(1)?)))),
    )
    .but(NANOSECONDS)
    .sure()
    .prepared(|arguments| unit_at(arguments, |_| true)),
    Function::new(
        ("date_part", &[Kind::Word, Kind::Timestamp], Gives::Type(FieldType::F64)),
        "the same as a float",
        ("date_part('dow', TIMESTAMP '2013-01-31')", "4"),
        Body::Values(|arguments, _| Ok(Answer::Float(field(unit(arguments)?, arguments.time(1)?).to_f64()))),
    )
    .sure()
    .prepared(|arguments| unit_at(arguments, |_| true)),
    Function::new(
        ("to_timestamp", &[Kind::Decimal], TIME),
        "the time `n` seconds after 1970",
        ("to_timestamp(1.5)", "1970-01-01T00:00:01.5Z"),
        Body::Values(|arguments, _| {
            let nanoseconds = arguments.decimal(0)?.rescaled(9).and_then(|time| i64::try_from(time.unscaled).ok());
            nanoseconds.map(Answer::Timestamp).ok_or(EvalError::OutOfRange)
        }),
    ),
    Function::new(
        ("to_timestamp", &[Kind::Float], TIME),
        "",
        ("to_timestamp(86400::float8)", "1970-01-02T00:00:00Z"),
        Body::Values(|arguments, _| {
            let nanoseconds = (arguments.float(0)? * 1e9).round_ties_even();
            // The first float above what 64 bits hold.
            let fits = nanoseconds.abs() < 9_223_372_036_854_775_808.0;
            if fits { Ok(Answer::Timestamp(nanoseconds as i64)) } else { Err(EvalError::OutOfRange) }
        }),
    ),
    Function::new(
        (
            "make_timestamp",
            &[Kind::Integer, Kind::Integer, Kind::Integer, Kind::Integer, Kind::Integer, Kind::Decimal],
            TIME,
        ),
        "the time of a year, month, day, hour, minute and second",
        ("make_timestamp(2013, 7, 15, 8, 15, 23.5)", "2013-07-15T08:15:23.5Z"),
        Body::Values(make),
    ),
    Function::new(
        ("to_char", &[Kind::Timestamp, Kind::Word], Gives::Type(FieldType::String)),
        "the time as text, by a template of `YYYY MM DD HH24 HH12 MI SS MS US AM Mon Month Dy Day DDD D ID IW Q …`",
        ("to_char(TIMESTAMP '2013-01-31 17:05:09', 'Dy, DD Mon YYYY HH12:MI AM')", "Thu, 31 Jan 2013 05:05 PM"),
        Body::Values(time_text::print),
    )
    .but("of times only, with English names; other patterns of PostgreSQL than those listed, `FM`, `WW`, `CC`, `YY`, `IYYY`, \
          `SSSS`, `TZ`, `OF` and texts in double quotes are refused; `\\` does not quote")
    .prepared(time_text::template),
];

/// A field of a time, or what a time is cut to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unit {
    Microseconds,
    Milliseconds,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    DayOfWeek,
    IsoDayOfWeek,
    DayOfYear,
    IsoYear,
    Epoch,
}

const UNITS: &[(&str, Unit)] = &[
    ("microsecond", Unit::Microseconds),
    ("millisecond", Unit::Milliseconds),
    ("second", Unit::Second),
    ("minute", Unit::Minute),
    ("hour", Unit::Hour),
    ("day", Unit::Day),
    ("week", Unit::Week),
    ("month", Unit::Month),
    ("quarter", Unit::Quarter),
    ("year", Unit::Year),
    ("decade", Unit::Decade),
    ("century", Unit::Century),
    ("centurie", Unit::Century),
    ("millennium", Unit::Millennium),
    ("dow", Unit::DayOfWeek),
    ("isodow", Unit::IsoDayOfWeek),
    ("doy", Unit::DayOfYear),
    ("isoyear", Unit::IsoYear),
    ("epoch", Unit::Epoch),
];

impl Unit {
    fn named(name: &str) -> Option<Unit> {
        let name = name.to_ascii_lowercase();
        let singular = name.strip_suffix('s').unwrap_or(&name);
        UNITS.iter().find(|(known, _)| *known == singular || *known == name).map(|(_, unit)| *unit)
    }

    fn can_truncate(self) -> bool {
        !matches!(self, Unit::DayOfWeek | Unit::IsoDayOfWeek | Unit::DayOfYear | Unit::IsoYear | Unit::Epoch)
    }

    /// Digits behind the point of the field.
    fn scale(self) -> u8 {
        match self {
            Unit::Second | Unit::Epoch => 9,
            Unit::Milliseconds => 6,
            Unit::Microseconds => 3,
            _ => 0,
        }
    }
}

/// The unit that the first argument names.
fn unit_at(arguments: &[Expr], fits: fn(Unit) -> bool) -> Result<Prepared, (usize, String)> {
    let Some(name) = known_text(arguments, 0)? else { return Ok(Prepared::None) };
    match Unit::named(name).filter(|unit| fits(*unit)) {
        Some(unit) => Ok(Prepared::Unit(unit)),
        None => Err((0, format!("there is no field '{name}' of a time here; {FIELDS}"))),
    }
}

fn extract_scale(arguments: &[Expr]) -> u8 {
    known_text(arguments, 0).ok().flatten().and_then(Unit::named).map_or(0, Unit::scale)
}

fn unit(arguments: &Arguments<'_, '_>) -> Result<Unit, EvalError> {
    match arguments.prepared {
        Prepared::Unit(unit) => Ok(*unit),
        _ => Err(EvalError::IllTyped),
    }
}

/// The calendar's date and time of day in UTC.
pub(super) fn civil(time: i64) -> DateTime {
    // Every number of nanoseconds of 64 bits is a time that the library has.
    Timestamp::from_nanosecond(time.into()).map_or(DateTime::MIN, |time| tz::Offset::UTC.to_datetime(time))
}

/// A date and time of day in UTC as nanoseconds since 1970.
fn nanoseconds(time: DateTime) -> Result<i64, EvalError> {
    let time = tz::Offset::UTC.to_timestamp(time).map_err(|_| EvalError::OutOfRange)?;
    i64::try_from(time.as_nanosecond()).map_err(|_| EvalError::OutOfRange)
}

fn start_of(unit: Unit, time: i64) -> Result<i64, EvalError> {
    let floor = |step: i64| time.div_euclid(step).checked_mul(step).ok_or(EvalError::OutOfRange);
    let date = civil(time).date();
    let year = date.year();
    let (year, month) = match unit {
        Unit::Microseconds => return floor(SECOND / 1_000_000),
        Unit::Milliseconds => return floor(SECOND / 1000),
        Unit::Second => return floor(SECOND),
        Unit::Minute => return floor(60 * SECOND),
        Unit::Hour => return floor(3600 * SECOND),
        Unit::Day => return floor(DAY),
        Unit::Week => {
            let back = i64::from(date.weekday().to_monday_zero_offset());
            return floor(DAY)?.checked_sub(back * DAY).ok_or(EvalError::OutOfRange);
        }
        Unit::Month => (year, date.month()),
        Unit::Quarter => (year, (date.month() - 1) / 3 * 3 + 1),
        Unit::Year => (year, 1),
        Unit::Decade => (year / 10 * 10, 1),
        Unit::Century => ((year - 1) / 100 * 100 + 1, 1),
        Unit::Millennium => ((year - 1) / 1000 * 1000 + 1, 1),
        _ => return Err(EvalError::IllTyped),
    };
    let start = Date::new(year, month, 1).map_err(|_| EvalError::OutOfRange)?;
    nanoseconds(start.to_datetime(jiff::civil::Time::midnight()))
}

fn field(unit: Unit, time: i64) -> Decimal {
    let moment = civil(time);
    let (date, year) = (moment.date(), i128::from(moment.year()));
    // From the start of the minute.
    let nanoseconds = i128::from(time.rem_euclid(60 * SECOND));
    let value = match unit {
        Unit::Microseconds | Unit::Milliseconds | Unit::Second => nanoseconds,
        Unit::Epoch => time.into(),
        Unit::Minute => moment.minute().into(),
        Unit::Hour => moment.hour().into(),
        Unit::Day => moment.day().into(),
        Unit::Week => date.iso_week_date().week().into(),
        Unit::Month => moment.month().into(),
        Unit::Quarter => ((moment.month() - 1) / 3 + 1).into(),
        Unit::Year => year,
        Unit::Decade => year / 10,
        Unit::Century => (year - 1) / 100 + 1,
        Unit::Millennium => (year - 1) / 1000 + 1,
        Unit::DayOfWeek => date.weekday().to_sunday_zero_offset().into(),
        Unit::IsoDayOfWeek => date.weekday().to_monday_one_offset().into(),
        Unit::DayOfYear => date.day_of_year().into(),
        Unit::IsoYear => date.iso_week_date().year().into(),
    };
    Decimal::new(value, unit.scale())
}

/// A length of time as PostgreSQL has it: months and days are of different lengths.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Interval {
    months: i64,
    days: i64,
    nanoseconds: i64,
}

/// How an interval is written.
const INTERVAL_FORM: &str = "an interval is written as in '1 year 2 months 3 days 04:05:06.5' or '90 seconds'";

impl Interval {
    /// Reads `1 day 2 hours`, `-3 weeks`, `01:30:00.5`, `1 day ago`.
    pub(crate) fn parse(text: &str) -> Result<Interval, String> {
        let wrong = || format!("'{text}' is not an interval: {INTERVAL_FORM}");
        let mut interval = Interval::default();
        // `5seconds` is `5 seconds`.
        let mut spaced = String::with_capacity(text.len());
        for char in text.chars() {
            if char.is_alphabetic() && spaced.ends_with(|before: char| before.is_ascii_digit()) {
                spaced.push(' ');
            }
            spaced.extend(char.to_lowercase());
        }
        let mut words = spaced.split_whitespace().filter(|word| *word != "@").peekable();
        let mut is_empty = true;
        while let Some(word) = words.next() {
            if word == "ago" && !is_empty && words.peek().is_none() {
                return interval.negated().ok_or_else(wrong);
            }
            is_empty = false;
            if word.contains(':') {
                interval.nanoseconds =
                    time_of_day(word).and_then(|time| interval.nanoseconds.checked_add(time)).ok_or_else(wrong)?;
                continue;
            }
            // A number by itself is seconds.
            let unit = words.next_if(|word| *word != "ago" && !word.contains(':')).unwrap_or("seconds");
            interval.add(word, unit).ok_or_else(wrong)?;
        }
        if is_empty { Err(wrong()) } else { Ok(interval) }
    }

    fn add(&mut self, number: &str, unit: &str) -> Option<()> {
        let value = Decimal::parse(number, Some(9)).ok()?;
        let (months, days, nanoseconds) = length_of(unit)?;
        if months != 0 {
            // Months and years are whole; a part of a day is a time.
            let whole = i64::try_from(value.rescaled_exactly(0)?.unscaled).ok()?;
            self.months = self.months.checked_add(whole.checked_mul(months)?)?;
        }
        let billionths = value.unscaled.checked_mul(days.into())?;
        self.days = self.days.checked_add(i64::try_from(billionths / 1_000_000_000).ok()?)?;
        let rest = (billionths % 1_000_000_000).checked_mul((DAY / SECOND).into())?;
        let time = value.unscaled.checked_mul(nanoseconds.into())? / 1_000_000_000 + rest;
        self.nanoseconds = self.nanoseconds.checked_add(i64::try_from(time).ok()?)?;
        Some(())
    }

    fn negated(self) -> Option<Interval> {
        let Interval { months, days, nanoseconds } = self;
        Some(Interval {
            months: months.checked_neg()?,
            days: days.checked_neg()?,
            nanoseconds: nanoseconds.checked_neg()?,
        })
    }

    /// Its nanoseconds, if it is as long at any time: it has no months.
    pub(crate) fn fixed(self) -> Option<i64> {
        let days = self.days.checked_mul(DAY).filter(|_| self.months == 0)?;
        days.checked_add(self.nanoseconds)
    }

    /// The time later by this: first the months, then the days, then the rest.
    fn after(self, time: i64) -> Option<i64> {
        let mut time = time;
        if self.months != 0 {
            let moment = civil(time);
            let month = i64::from(moment.year()) * 12 + i64::from(moment.month()) - 1;
            let month = month.checked_add(self.months)?;
            let (year, month) = (i16::try_from(month.div_euclid(12)).ok()?, month.rem_euclid(12) as i8 + 1);
            let last = Date::new(year, month, 1).ok()?.days_in_month();
            let date = Date::new(year, month, moment.day().min(last)).ok()?;
            time = nanoseconds(date.to_datetime(moment.time())).ok()?;
        }
        time.checked_add(self.days.checked_mul(DAY)?)?.checked_add(self.nanoseconds)
    }
}

/// The months, days and nanoseconds of a unit.
fn length_of(unit: &str) -> Option<(i64, i64, i64)> {
    Some(match unit {
        "ns" | "nanosecond" | "nanoseconds" => (0, 0, 1),
        "us" | "usec" | "usecs" | "microsecond" | "microseconds" => (0, 0, 1000),
        "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => (0, 0, 1_000_000),
        "s" | "sec" | "secs" | "second" | "seconds" => (0, 0, SECOND),
        "m" | "min" | "mins" | "minute" | "minutes" => (0, 0, 60 * SECOND),
        "h" | "hr" | "hrs" | "hour" | "hours" => (0, 0, 3600 * SECOND),
        "d" | "day" | "days" => (0, 1, 0),
        "w" | "week" | "weeks" => (0, 7, 0),
        "mon" | "mons" | "month" | "months" => (1, 0, 0),
        "quarter" | "quarters" => (3, 0, 0),
        "y" | "yr" | "yrs" | "year" | "years" => (12, 0, 0),
        _ => return None,
    })
}

/// `04:05`, `04:05:06.5`, with a sign perhaps, as nanoseconds.
fn time_of_day(text: &str) -> Option<i64> {
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut parts = text.split(':');
    let whole = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<i64>().ok()).flatten();
    let (hours, minutes) = (whole(parts.next()?)?, whole(parts.next()?)?);
    let seconds = parts.next().map_or(Ok(Decimal::new(0, 9)), |text| Decimal::parse(text, Some(9))).ok()?;
    if parts.next().is_some() || minutes > 59 || !(0..=60 * i128::from(SECOND)).contains(&seconds.unscaled) {
        return None;
    }
    let minutes = hours.checked_mul(60)?.checked_add(minutes)?;
    let time = minutes.checked_mul(60 * SECOND)?.checked_add(i64::try_from(seconds.unscaled).ok()?)?;
    Some(if is_negative { -time } else { time })
}

fn interval_at(arguments: &[Expr], index: usize) -> Result<Prepared, (usize, String)> {
    let text = known_text(arguments, index)?.unwrap_or_default();
    Interval::parse(text).map(Prepared::Interval).map_err(|problem| (index, problem))
}

fn fixed_interval(arguments: &[Expr]) -> Result<Prepared, (usize, String)> {
    let prepared = interval_at(arguments, 0)?;
    match &prepared {
        Prepared::Interval(interval) if interval.months != 0 => {
            Err((0, "months are of different lengths: this takes an interval of days or less".to_owned()))
        }
        Prepared::Interval(interval) if interval.after(0).is_none_or(|length| length <= 0) => {
            Err((0, "this takes an interval that is longer than nothing".to_owned()))
        }
        _ => Ok(prepared),
    }
}

fn interval(arguments: &Arguments<'_, '_>) -> Result<Interval, EvalError> {
    match arguments.prepared {
        Prepared::Interval(interval) => Ok(*interval),
        _ => Err(EvalError::IllTyped),
    }
}

fn moved(arguments: &Arguments<'_, '_>, earlier: bool) -> Result<Answer, EvalError> {
    let interval = interval(arguments)?;
    let interval = if earlier { interval.negated() } else { Some(interval) };
    let time = interval.and_then(|interval| interval.after(arguments.time(0).ok()?));
    time.map(Answer::Timestamp).ok_or(EvalError::OutOfRange)
}

fn bin(arguments: &Arguments<'_, '_>, _: &mut Scratch) -> Result<Answer, EvalError> {
    let length = interval(arguments)?.after(0).ok_or(EvalError::OutOfRange)?;
    let (time, origin) = (i128::from(arguments.time(1)?), i128::from(arguments.time(2)?));
    let start = origin + (time - origin).div_euclid(length.into()) * i128::from(length);
    i64::try_from(start).map(Answer::Timestamp).map_err(|_| EvalError::OutOfRange)
}

fn make(arguments: &Arguments<'_, '_>, _: &mut Scratch) -> Result<Answer, EvalError> {
    let wrong = EvalError::Domain("no time has this year, month, day, hour, minute and second");
    let small = |index: usize| i8::try_from(arguments.int(index)?).map_err(|_| wrong);
    let year = i16::try_from(arguments.int(0)?).map_err(|_| wrong)?;
    let date = Date::new(year, small(1)?, small(2)?).map_err(|_| wrong)?;
    let (hour, minute) = (small(3)?, small(4)?);
    let seconds =
        arguments.decimal(5)?.rescaled(9).and_then(|value| i64::try_from(value.unscaled).ok()).ok_or(wrong)?;
    if !(0..24).contains(&hour) || !(0..60).contains(&minute) || !(0..=60 * SECOND).contains(&seconds) {
        return Err(wrong);
    }
    let midnight = nanoseconds(date.to_datetime(jiff::civil::Time::midnight()))?;
    let minutes = i64::from(hour) * 60 + i64::from(minute);
    let time = midnight.checked_add(minutes * 60 * SECOND).and_then(|time| time.checked_add(seconds));
    time.map(Answer::Timestamp).ok_or(EvalError::OutOfRange)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_as_postgresql_reads_them() {
        let of = |months, days, nanoseconds| Ok(Interval { months, days, nanoseconds });
        for (text, interval) in [
            ("1 day 2 hours", of(0, 1, 7200 * SECOND)),
            ("1 year 2 mons -3 days", of(14, -3, 0)),
            ("5", of(0, 0, 5 * SECOND)),
            ("5seconds", of(0, 0, 5 * SECOND)),
            ("1.5 days", of(0, 1, DAY / 2)),
            ("2 weeks 01:30", of(0, 14, 5400 * SECOND)),
            ("-01:00:00.5", of(0, 0, -3600 * SECOND - SECOND / 2)),
            ("1 month 1 sec ago", of(-1, 0, -SECOND)),
            ("250 ms", of(0, 0, SECOND / 4)),
        ] {
            assert_eq!(Interval::parse(text), interval, "{text}");
        }
        for text in [
            "",
            "ago",
            "day",
            "1 fortnight",
            "1.5 months",
            "1:2:3:4",
            "1:99",
            "9999999999999999999 days",
            "é",
            "1 day day",
        ] {
            assert!(Interval::parse(text).is_err(), "{text}");
        }
    }
}
