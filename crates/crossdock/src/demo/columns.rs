//! Columns of the bundled flights that follow from others, such as the hour of a time: they are left out of most rows, which makes
//! the program 1.7 MB smaller, and filled in when the flights are unpacked.

use std::borrow::Cow;
use std::collections::HashMap;

/// A row's values; an empty one is left out.
type Row<'a> = Vec<Cow<'a, str>>;

/// The value of a column that is left out.
#[derive(Clone, Copy)]
enum Follows {
    /// That of the row before.
    Last,
    /// The hour of the time in a column, and its minute.
    Hour(usize),
    Minute(usize),
    /// The time in the first column, later by the minutes in the second.
    Later(usize, usize),
    /// That of the last row with the same values in these columns.
    Same(&'static [usize]),
}

/// The columns that may be left out, each behind those that it follows from.
const FOLLOWS: [(usize, Follows); 10] = [
    (YEAR, Follows::Last),
    (MONTH, Follows::Last),
    (DAY, Follows::Last),
    (HOUR, Follows::Hour(SCHED_DEP_TIME)),
    (MINUTE, Follows::Minute(SCHED_DEP_TIME)),
    (SCHED_ARR_TIME, Follows::Same(&[CARRIER, FLIGHT, DEST, SCHED_DEP_TIME])),
    (DEP_TIME, Follows::Later(SCHED_DEP_TIME, DEP_DELAY)),
    (ARR_TIME, Follows::Later(SCHED_ARR_TIME, ARR_DELAY)),
    (DISTANCE, Follows::Same(&[ORIGIN, DEST])),
    (TIME_HOUR, Follows::Same(&[MONTH, DAY, HOUR])),
];

const YEAR: usize = 0;
const MONTH: usize = 1;
const DAY: usize = 2;
const DEP_TIME: usize = 3;
const SCHED_DEP_TIME: usize = 4;
const DEP_DELAY: usize = 5;
const ARR_TIME: usize = 6;
const SCHED_ARR_TIME: usize = 7;
const ARR_DELAY: usize = 8;
const CARRIER: usize = 9;
const FLIGHT: usize = 10;
const ORIGIN: usize = 12;
const DEST: usize = 13;
const DISTANCE: usize = 15;
const HOUR: usize = 16;
const MINUTE: usize = 17;
const TIME_HOUR: usize = 18;

/// The rows before one.
#[derive(Default)]
struct Before<'a> {
    last: Row<'a>,
    /// The last value of a column, by the values that it follows from.
    same: HashMap<(usize, String), Cow<'a, str>>,
}

impl<'a> Before<'a> {
    fn expected(&self, column: usize, follows: Follows, row: &Row<'a>) -> Cow<'a, str> {
        let number = |column: usize| row.get(column).and_then(|text| text.parse::<i32>().ok());
        let part = |time: usize, of: fn(i32) -> i32| number(time).map(|time| of(time).to_string().into());
        let found = match follows {
            Follows::Last => self.last.get(column).cloned(),
            Follows::Hour(time) => part(time, |time| time / 100),
            Follows::Minute(time) => part(time, |time| time % 100),
            Follows::Later(time, minutes) => Some(number(time).zip(number(minutes)).map_or("NA".into(), later)),
            Follows::Same(columns) => self.same.get(&(column, key(row, columns))).cloned(),
        };
        found.unwrap_or_default()
    }

    fn note(&mut self, row: Row<'a>) {
        for (column, follows) in FOLLOWS {
            if let Follows::Same(columns) = follows
                && let Some(value) = row.get(column)
            {
                self.same.insert((column, key(&row, columns)), value.clone());
            }
        }
        self.last = row;
    }
}

/// A time of day in hours and minutes, such as 517, later by some minutes; midnight is 2400.
fn later((time, minutes): (i32, i32)) -> Cow<'static, str> {
    let at = (time / 100 * 60 + time % 100 + minutes).rem_euclid(24 * 60);
    let at = if at == 0 { 2400 } else { at / 60 * 100 + at % 60 };
    at.to_string().into()
}

fn key(row: &Row<'_>, columns: &[usize]) -> String {
    columns.iter().filter_map(|column| row.get(*column)).flat_map(|text| [text.as_ref(), ","]).collect()
}

/// Fills in what is left out of a CSV.
pub(super) fn fill_in(csv: &str) -> String {
    let mut out = String::with_capacity(csv.len() * 2);
    let mut before = Before::default();
    for line in csv.lines() {
        let mut row: Row<'_> = line.split(',').map(Cow::Borrowed).collect();
        for (column, follows) in FOLLOWS {
            if row.get(column).is_some_and(|text| text.is_empty()) {
                row[column] = before.expected(column, follows, &row);
            }
        }
        write(&mut out, &row);
        before.note(row);
    }
    out
}

fn write(out: &mut String, row: &Row<'_>) {
    for (at, text) in row.iter().enumerate() {
        out.push_str(if at == 0 { "" } else { "," });
        out.push_str(text);
    }
    out.push('\n');
}

/// Leaves out of a CSV what [`fill_in`] fills in. The result, packed, is the bundled file.
#[cfg(test)]
pub(super) fn leave_out(csv: &str) -> String {
    let mut out = String::new();
    let mut before = Before::default();
    for line in csv.lines() {
        let row: Row<'_> = line.split(',').map(Cow::Borrowed).collect();
        let mut short = row.clone();
        for (column, follows) in FOLLOWS {
            if row[column] == before.expected(column, follows, &row) {
                short[column] = Cow::Borrowed("");
            }
        }
        write(&mut out, &short);
        before.note(row);
    }
    out
}
