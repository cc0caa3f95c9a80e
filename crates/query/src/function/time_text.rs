//! `to_char`: a time as text, by a template that is read when the query is planned.

use std::io::Write as _;

use jiff::civil::DateTime;

use super::time::civil;
use super::{Answer, Arguments, Prepared, Scratch, known_text};
use crate::expr::Expr;
use crate::interpret::EvalError;

/// A piece of a template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Piece {
    Text(String),
    Field { field: Field, case: Case, is_filled: bool },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Field {
    Year,
    ShortYear,
    IsoYear,
    Century,
    Month,
    MonthName,
    MonthShort,
    Day,
    DayOfYear,
    DayName,
    DayShort,
    DayOfWeek,
    IsoDayOfWeek,
    Week,
    IsoWeek,
    Quarter,
    Hour24,
    Hour12,
    Minute,
    Second,
    Milliseconds,
    Microseconds,
    SecondOfDay,
    HalfDay,
    Zone,
    Offset,
}

/// How the letters of a name are written: as the pattern's are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Case {
    Upper,
    Capital,
    Lower,
}

/// The patterns, a longer one before those that it begins with.
const PATTERNS: &[(&str, Field)] = &[
    ("YYYY", Field::Year),
    ("YY", Field::ShortYear),
    ("IYYY", Field::IsoYear),
    ("IW", Field::IsoWeek),
    ("ID", Field::IsoDayOfWeek),
    ("CC", Field::Century),
    ("MONTH", Field::MonthName),
    ("MON", Field::MonthShort),
    ("MM", Field::Month),
    ("MI", Field::Minute),
    ("MS", Field::Milliseconds),
    ("US", Field::Microseconds),
    ("DDD", Field::DayOfYear),
    ("DD", Field::Day),
    ("DAY", Field::DayName),
    ("DY", Field::DayShort),
    ("D", Field::DayOfWeek),
    ("WW", Field::Week),
    ("Q", Field::Quarter),
    ("HH24", Field::Hour24),
    ("HH12", Field::Hour12),
    ("HH", Field::Hour12),
    ("SSSSS", Field::SecondOfDay),
    ("SSSS", Field::SecondOfDay),
    ("SS", Field::Second),
    ("AM", Field::HalfDay),
    ("PM", Field::HalfDay),
    ("TZ", Field::Zone),
    ("OF", Field::Offset),
];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Reads the template, which is the second argument.
pub(super) fn template(arguments: &[Expr]) -> Result<Prepared, (usize, String)> {
    let Some(text) = known_text(arguments, 1)? else { return Ok(Prepared::None) };
    pieces(text).map(|pieces| Prepared::Template(pieces.into())).map_err(|problem| (1, problem))
}

fn pieces(template: &str) -> Result<Vec<Piece>, String> {
    let (mut pieces, mut text, mut rest, mut is_filled) = (Vec::new(), String::new(), template, true);
    while let Some(first) = rest.chars().next() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (inside, behind) = quoted.split_once('"').ok_or("a text in double quotes does not end")?;
            text.push_str(inside);
            rest = behind;
            continue;
        }
        let begins = |pattern: &str| rest.get(..pattern.len()).filter(|start| start.eq_ignore_ascii_case(pattern));
        if begins("FM").is_some() {
            (is_filled, rest) = (false, &rest[2..]);
            continue;
        }
        let found = PATTERNS.iter().find_map(|(pattern, field)| Some((begins(pattern)?, *field)));
        match found {
            Some((word, field)) => {
                if !text.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut text)));
                }
                pieces.push(Piece::Field { field, case: case_of(word), is_filled });
                (is_filled, rest) = (true, &rest[word.len()..]);
            }
            None if first.is_ascii_alphabetic() => {
                let hint = "other letters are written in double quotes";
                return Err(format!("the template has no pattern at '{rest}'; {hint}"));
            }
            None => {
                text.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

fn case_of(word: &str) -> Case {
    let mut letters = word.chars();
    match (letters.next(), letters.next()) {
        (Some(first), _) if first.is_ascii_lowercase() => Case::Lower,
        (_, Some(second)) if second.is_ascii_lowercase() => Case::Capital,
        _ => Case::Upper,
    }
}

/// The first argument as text, by the template.
pub(super) fn print(arguments: &Arguments<'_, '_>, out: &mut Scratch) -> Result<Answer, EvalError> {
    let Prepared::Template(pieces) = arguments.prepared else { return Err(EvalError::IllTyped) };
    let time = civil(arguments.time(0)?);
    for piece in pieces.iter() {
        match piece {
            Piece::Text(text) => out.push(text.as_bytes())?,
            Piece::Field { field, case, is_filled } => match name(*field, time) {
                Some((name, width)) => push_name(out, name, *case, if *is_filled { width } else { 0 })?,
                None => push_number(out, *field, time, *is_filled)?,
            },
        }
    }
    Ok(Answer::Made)
}

/// The field as a name, and to how many characters it is filled with blanks.
fn name(field: Field, time: DateTime) -> Option<(&'static str, usize)> {
    let short = |name: &'static str| name.get(..3).unwrap_or(name);
    let month = MONTHS[(time.month() - 1) as usize % 12];
    let day = DAYS[time.weekday().to_sunday_zero_offset() as usize % 7];
    Some(match field {
        Field::MonthName => (month, 9),
        Field::MonthShort => (short(month), 0),
        Field::DayName => (day, 9),
        Field::DayShort => (short(day), 0),
        Field::HalfDay => (if time.hour() < 12 { "Am" } else { "Pm" }, 0),
        Field::Zone => ("Utc", 0),
        Field::Offset => ("+00", 0),
        _ => return None,
    })
}

fn push_name(out: &mut Scratch, name: &str, case: Case, width: usize) -> Result<(), EvalError> {
    for (index, char) in name.chars().enumerate() {
        let is_upper = case == Case::Upper || (case == Case::Capital && index == 0);
        out.push_char(if is_upper { char.to_ascii_uppercase() } else { char.to_ascii_lowercase() })?;
    }
    (name.len()..width).try_for_each(|_| out.push(b" "))
}

fn push_number(out: &mut Scratch, field: Field, time: DateTime, is_filled: bool) -> Result<(), EvalError> {
    let date = time.date();
    let second_of_day = (i64::from(time.hour()) * 60 + i64::from(time.minute())) * 60 + i64::from(time.second());
    let (value, width): (i64, usize) = match field {
        Field::Year => (time.year().into(), 4),
        Field::ShortYear => (i64::from(time.year()) % 100, 2),
        Field::IsoYear => (date.iso_week_date().year().into(), 4),
        Field::Century => ((i64::from(time.year()) - 1) / 100 + 1, 2),
        Field::Month => (time.month().into(), 2),
        Field::Day => (time.day().into(), 2),
        Field::DayOfYear => (date.day_of_year().into(), 3),
        Field::DayOfWeek => (i64::from(date.weekday().to_sunday_zero_offset()) + 1, 1),
        Field::IsoDayOfWeek => (date.weekday().to_monday_one_offset().into(), 1),
        Field::Week => ((i64::from(date.day_of_year()) - 1) / 7 + 1, 2),
        Field::IsoWeek => (date.iso_week_date().week().into(), 2),
        Field::Quarter => ((i64::from(time.month()) - 1) / 3 + 1, 1),
        Field::Hour24 => (time.hour().into(), 2),
        Field::Hour12 => ((i64::from(time.hour()) + 11) % 12 + 1, 2),
        Field::Minute => (time.minute().into(), 2),
        Field::Second => (time.second().into(), 2),
        Field::Milliseconds => (i64::from(time.subsec_nanosecond()) / 1_000_000, 3),
        Field::Microseconds => (i64::from(time.subsec_nanosecond()) / 1000, 6),
        Field::SecondOfDay => (second_of_day, 1),
        _ => return Err(EvalError::IllTyped),
    };
    let width = if is_filled { width } else { 0 };
    write!(out.text, "{value:0width$}").map_err(|_| EvalError::TextTooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(time: &str, template: &str) -> String {
        let mut out = Scratch::default();
        let prepared = Prepared::Template(pieces(template).unwrap().into());
        let time = crate::interpret::parse_timestamp(time).unwrap();
        let values = [crate::interpret::Datum::Timestamp(time)];
        let ty = crossdock_format::FieldType::String;
        print(&Arguments { values: &values, made: &[], prepared: &prepared, ty, record: None }, &mut out).unwrap();
        String::from_utf8(out.text).unwrap()
    }

    #[test]
    fn templates_give_what_postgresql_gives() {
        let time = "2013-02-03 00:04:05.006007";
        for (template, shown) in [
            ("YYYY-MM-DD HH24:MI:SS.US", "2013-02-03 00:04:05.006007"),
            ("YYYY-MM-DD\"T\"HH24:MI:SS.MS", "2013-02-03T00:04:05.006"),
            ("HH12:MI am", "12:04 am"),
            ("FMDD FMMonth YYYY", "3 February 2013"),
            ("Month|DAY|dy", "February |SUNDAY   |sun"),
            ("DDD D ID IW IYYY Q WW CC YY SSSS", "034 1 7 05 2013 1 05 21 13 245"),
            ("TZ OF", "UTC +00"),
        ] {
            assert_eq!(printed(time, template), shown, "{template}");
        }
        for template in ["YYYY x", "\"open"] {
            assert!(pieces(template).is_err(), "{template}");
        }
    }
}
