//! The outcome of rows in the queries, as this test computes it, and ranges of counts.

use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
use crossdock_nectarine::DropCause;
use crossdock_runtime::info::SubscriptionInfo;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::ops::{Add, AddAssign};

/// The longest name of most rows.
const NAME_BYTES: usize = 300;

/// The least and the most that a counter may say: the same, unless the test cannot know it exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) least: u64,
    pub(crate) most: u64,
}

impl Range {
    pub(crate) fn new(least: u64, most: u64) -> Range {
        Range { least, most: most.max(least) }
    }

    pub(crate) fn at_least(least: u64) -> Range {
        Range { least, most: u64::MAX }
    }

    pub(crate) fn has(&self, value: f64) -> bool {
        self.least as f64 <= value && value <= self.most as f64
    }
}

impl From<u64> for Range {
    fn from(exact: u64) -> Range {
        Range { least: exact, most: exact }
    }
}

impl Add for Range {
    type Output = Range;

    fn add(self, other: Range) -> Range {
        Range { least: self.least + other.least, most: self.most.saturating_add(other.most) }
    }
}

impl AddAssign for Range {
    fn add_assign(&mut self, other: Range) {
        *self = *self + other;
    }
}

impl std::iter::Sum for Range {
    fn sum<I: Iterator<Item = Range>>(ranges: I) -> Range {
        ranges.fold(Range::default(), Range::add)
    }
}

/// The format of what is published.
pub(crate) fn format() -> Format {
    let fields = [("n", FieldType::U64), ("d", FieldType::I32), ("big", FieldType::I64), ("name", FieldType::String)];
    Format::natural(fields.map(|(name, ty)| FieldSpec::new(name, ty))).unwrap()
}

/// A row that was published.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) d: i32,
    /// Whether its `big` fits 16 bits.
    pub(crate) is_small: bool,
    /// Whether its `name` is a number.
    pub(crate) is_number: bool,
    pub(crate) bytes: u64,
}

impl Row {
    /// Whether its record may be longer than a packet.
    pub(crate) fn is_long(&self) -> bool {
        self.bytes > 2 * NAME_BYTES as u64
    }
}

/// Makes the next row of a stream.
pub(crate) fn row(builder: &mut RecordBuilder, n: u64, rng: &mut Rng) -> Row {
    let (d, is_small, is_number) = (rng.i32(0..5), rng.u8(0..8) > 0, rng.bool());
    let len = if rng.u8(0..100) == 0 { 100_000 } else { rng.usize(1..NAME_BYTES) };
    let name = if is_number { "7".repeat(len.min(15)) } else { "x".repeat(len) };
    builder.clear();
    builder.set(0, Value::Uint(n)).unwrap();
    builder.set(1, Value::Int(d.into())).unwrap();
    builder.set(2, Value::Int(if is_small { 7 } else { 100_000 })).unwrap();
    builder.set(3, Value::Text(name.as_bytes())).unwrap();
    Row { d, is_small, is_number, bytes: builder.finish().unwrap().len() as u64 }
}

/// A query of this test, by what is around its stream's name.
#[derive(Debug)]
pub(crate) struct Query {
    select: &'static str,
    condition: &'static str,
    /// The outcome of a row: it passes, it does not, or it has a row error.
    pub(crate) of: fn(&Row) -> Result<bool, DropCause>,
}

pub(crate) const QUERIES: [Query; 6] = [
    Query { select: "*", condition: "", of: |_| Ok(true) },
    Query { select: "*", condition: "WHERE d < 2", of: |row| Ok(row.d < 2) },
    Query {
        select: "n, 10 / d AS q",
        condition: "",
        of: |row| if row.d == 0 { Err(DropCause::DivisionByZero) } else { Ok(true) },
    },
    Query {
        select: "n, CAST(big AS smallint) AS small",
        condition: "WHERE d > 0",
        of: |row| if row.d > 0 && !row.is_small { Err(DropCause::OutOfRange) } else { Ok(row.d > 0) },
    },
    Query {
        select: "CAST(name AS bigint) AS number",
        condition: "",
        of: |row| if row.is_number { Ok(true) } else { Err(DropCause::NotAValue) },
    },
    Query { select: "n || name AS text", condition: "WHERE d = 3", of: |row| Ok(row.d == 3) },
];

impl Query {
    pub(crate) fn sql(&self, stream: &str) -> String {
        format!("SELECT {} FROM {stream} {}", self.select, self.condition).trim().to_owned()
    }

    /// Whether each row passes, unchanged.
    pub(crate) fn takes_all(&self) -> bool {
        self.select == "*" && self.condition.is_empty()
    }

    /// Records that a subscription's query passed and that were dropped from its queue, once nothing is on its way.
    pub(crate) fn unsent(&self, info: &SubscriptionInfo) -> Range {
        match self.takes_all() {
            true => (info.records_in - info.records_out).into(),
            false => Range::new(0, info.dropped),
        }
    }

    /// The outcome of rows.
    pub(crate) fn outcome<'a>(&self, rows: impl IntoIterator<Item = &'a Row>) -> Outcome {
        let mut outcome = Outcome::default();
        for row in rows {
            outcome.rows += 1;
            outcome.bytes += row.bytes;
            match (self.of)(row) {
                Ok(true) => {
                    outcome.passed += 1;
                    outcome.passed_bytes += row.bytes;
                }
                Ok(false) => {}
                Err(cause) => *outcome.errors.entry(cause).or_default() += 1,
            }
        }
        outcome
    }
}

/// The outcome of some rows.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) passed: u64,
    /// Of the rows that passed, as they came.
    pub(crate) passed_bytes: u64,
    pub(crate) errors: BTreeMap<DropCause, u64>,
}

impl Outcome {
    pub(crate) fn all_errors(&self) -> u64 {
        self.errors.values().sum()
    }
}
