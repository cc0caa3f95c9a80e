//! Random rows of two streams with a time each, in a random order of arrival, and what DuckDB has to know of their times.

use std::collections::BTreeSet;

use crossdock_query::Decimal;
use fastrand::Rng;

use crate::case::{Case, Stream, Values};

pub(crate) const SECOND: i64 = 1_000_000_000;

/// The latest time that a row may have: 100 days before the times end, as docs/sql.md says. A later one counts as none.
const LATEST: i64 = i64::MAX - 100 * 86_400 * SECOND;

/// The rows of both streams, and what queries over them may rely on.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    pub(crate) case: Case,
    /// By how much rows may be older than the newest before them, but for [the latest](Events::rows), in seconds. 0: in order.
    pub(crate) disorder_s: i64,
    /// No nulls and no extremes among the times and the whole numbers, and in order.
    pub(crate) is_tame: bool,
    /// No two rows of `q` have the same time.
    pub(crate) is_unique: bool,
}

impl Events {
    /// Rows of this seed. The columns of both streams have random types of their class.
    pub(crate) fn new(seed: u64) -> Events {
        let mut random = Rng::with_seed(seed);
        let is_tame = random.u8(0..5) == 0;
        let disorder_s = if is_tame { 0 } else { [0, 5, 5, 20][random.usize(0..4)] };
        let is_unique = random.bool();
        let streams = vec![
            Stream::new("s", columns(&S_COLUMNS, is_tame, &mut random)),
            Stream::new("q", columns(&Q_COLUMNS, is_tame, &mut random)),
        ];
        let case = Case { streams, rows: Vec::new(), query: String::new(), rules: Vec::new(), last_of: 0 };
        let mut events = Events { case, disorder_s, is_tame, is_unique };
        events.rows(&mut random);
        events
    }

    /// Rows in order of arrival: by their time and a random delay of up to the disorder; those without a time anywhere. The latest are older
    /// than all others by 10,000 s and more, and from each other, so that they are late wherever they come but as the first.
    fn rows(&mut self, random: &mut Rng) {
        let count = [6, 25, 60][random.usize(0..3)];
        let mut arrivals: Vec<(i128, usize, Values)> = Vec::new();
        let mut taken = BTreeSet::new();
        let mut id = 0;
        for (stream, most) in [(0, count), (1, count / 2)] {
            for _ in 0..most {
                let mut time = self.time(random);
                while stream == 1 && self.is_unique && time.is_some_and(|time| !taken.insert(time)) {
                    time = Some(random.i64(0..90 * SECOND));
                }
                id += 1;
                let delay = if self.disorder_s == 0 { 0 } else { random.i64(0..self.disorder_s * SECOND) };
                let is_extreme = time.is_none_or(|time| !(-SECOND..=100 * SECOND).contains(&time));
                let at = match time {
                    // In order where the batch is, the extremes too; else at any place.
                    Some(time) if self.disorder_s == 0 || !is_extreme => i128::from(time) + i128::from(delay),
                    _ => random.i64(0..100 * SECOND).into(),
                };
                arrivals.push((at, stream, self.values(stream, time, id, random)));
            }
        }
        if self.disorder_s > 0 {
            for number in 1..=random.i64(0..3) {
                id += 1;
                let time = -10_000 * SECOND * number;
                let stream = random.usize(0..2);
                if stream == 0 || taken.insert(time) {
                    let values = self.values(stream, Some(time), id, random);
                    arrivals.push((random.i64(0..100 * SECOND).into(), stream, values));
                }
            }
        }
        // Of one time, rows of `q` come first: what an ASOF join without LATENESS finds.
        arrivals.sort_by_key(|(at, stream, _)| (*at, 1 - *stream));
        self.case.rows = arrivals.into_iter().map(|(_, stream, values)| (stream, values)).collect();
    }

    /// A time within 90 s, many of them at whole seconds: at the ends of windows, and at the times of others.
    fn time(&self, random: &mut Rng) -> Option<i64> {
        let second = random.i64(0..90) * SECOND;
        let extremes = [i64::MIN, i64::MIN + 1, i64::MAX, LATEST + 1];
        match random.u8(0..40) {
            0 if !self.is_tame => None,
            1 if !self.is_tame => Some(extremes[random.usize(0..4)]),
            // The newest that counts: every row that comes behind it is late.
            2 if !self.is_tame && self.disorder_s == 0 => Some(LATEST),
            3..20 => Some(second),
            _ => Some(second + random.i64(0..SECOND)),
        }
    }

    fn values(&self, stream: usize, time: Option<i64>, id: i64, random: &mut Rng) -> Values {
        let table: &[Column] = if stream == 0 { &S_COLUMNS } else { &Q_COLUMNS };
        let chosen = &self.case.streams[stream].columns;
        let value = |(column, line): (&Column, &String), random: &mut Rng| {
            let is_null = line.ends_with(" null") && random.u8(0..7) == 0;
            match column.name {
                "ts" => time.map(|time| time.to_string()),
                "id" => Some(id.to_string()),
                _ if is_null => None,
                _ => Some(column.value(line, self.is_tame, random)),
            }
        };
        table.iter().zip(chosen).map(|column| value(column, random)).collect()
    }
}

/// A column, and the types that it may have.
struct Column {
    name: &'static str,
    types: &'static [&'static str],
    /// Whether a query may rely on it being there: then it has no nulls.
    is_sure: bool,
}

const fn column(name: &'static str, types: &'static [&'static str]) -> Column {
    Column { name, types, is_sure: false }
}

const S_COLUMNS: [Column; 13] = [
    column("ts", &["timestamp"]),
    // Another number in each row, by which a result shows which rows it has.
    Column { name: "id", types: &["i64", "i32", "u32"], is_sure: true },
    column("k", &["string", "string", "char[30]"]),
    column("j", &["i32", "u8", "i64"]),
    column("v", &["i64", "i64", "i32"]),
    // Any float.
    column("x", &["f64", "f64", "f32"]),
    // Floats whose sums are exact in any order.
    column("y", &["f64", "f32"]),
    column("t", &["string", "char[8]"]),
    column("b", &["bool"]),
    column("d", &["decimal(8, scale 2)", "decimal(4, scale 2)", "decimal(16, scale 2)"]),
    column("h", &["bytes"]),
    column("nums", &["i64[]", "i32[]", "i16[]"]),
    column("tags", &["string[]", "char[30][]"]),
];

const Q_COLUMNS: [Column; 8] = [
    column("ts", &["timestamp"]),
    Column { name: "id", types: &["i64"], is_sure: true },
    column("k", &["string", "char[30]"]),
    column("j", &["i64", "i16"]),
    column("w", &["i64", "i32"]),
    column("x", &["f64"]),
    column("nums", &["i64[]", "i16[]"]),
    column("tags", &["string[]", "char[30][]"]),
];

fn columns(table: &[Column], is_tame: bool, random: &mut Rng) -> Vec<String> {
    let line = |column: &Column, random: &mut Rng| {
        let ty = column.types[random.usize(0..column.types.len())];
        let nullable = match column.name {
            "ts" => !is_tame,
            _ => !column.is_sure && random.u8(0..4) > 0,
        };
        format!("{} {ty}{}", column.name, if nullable { " null" } else { "" })
    };
    table.iter().map(|column| line(column, random)).collect()
}

const KEYS: [&str; 6] = ["a", "b", "a key beyond sixteen bytes", "x y", "", "é"];
const TEXTS: [&str; 8] = ["x", "yy", "zebra", "y", "ab", "", "日本", "Äp;f"];

impl Column {
    fn value(&self, line: &str, is_tame: bool, random: &mut Rng) -> String {
        let is_odd = !is_tame && random.u8(0..12) == 0;
        let odd_float = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, f64::MAX, 5e-324, 0.1];
        let single = |value: f64| if line.contains("f32") { f64::from(value as f32) } else { value };
        match self.name {
            "k" => KEYS[random.usize(0..KEYS.len())].to_owned(),
            "j" => random.i64(0..3).to_string(),
            "v" | "w" if is_odd && line.contains("i64") => {
                [i64::MIN, i64::MAX, i64::MAX - 1][random.usize(0..3)].to_string()
            }
            "v" | "w" if is_odd => [i32::MIN, i32::MAX][random.usize(0..2)].to_string(),
            "v" | "w" => random.i64(-5..9).to_string(),
            "x" if is_odd || random.u8(0..6) == 0 => format!("{:?}", single(odd_float[random.usize(0..7)])),
            "x" => format!("{:?}", single((random.f64() - 0.5) * 10f64.powi(random.i32(-3..6)))),
            "y" if is_odd => format!("{:?}", odd_float[random.usize(0..4)]),
            "y" => format!("{:?}", f64::from(random.i32(-400..400)) / 8.0),
            "t" => TEXTS[random.usize(0..TEXTS.len())].to_owned(),
            "b" => random.bool().to_string(),
            "d" => {
                let unscaled =
                    if is_odd { [999_999_999, -999_999_999][random.usize(0..2)] } else { random.i32(-9999..9999) };
                Decimal { unscaled: unscaled.into(), scale: 2 }.to_string()
            }
            "nums" => {
                let extremes =
                    if line.contains("i64") { [i64::MIN, i64::MAX] } else { [i16::MIN.into(), i16::MAX.into()] };
                let count = random.usize(0..5);
                let element = |_| match is_odd && random.bool() {
                    true => extremes[random.usize(0..2)],
                    false => random.i64(-2..5),
                };
                let elements: Vec<String> = (0..count).map(element).map(|one| one.to_string()).collect();
                format!("[{}]", elements.join(", "))
            }
            "tags" => {
                let elements: Vec<&str> = (0..random.usize(0..4)).map(|_| KEYS[random.usize(0..KEYS.len())]).collect();
                serde_json::to_string(&elements).unwrap()
            }
            _ => ["\\x", "\\x00", "\\x00ff", "\\x61", "\\xffff"][random.usize(0..5)].to_owned(),
        }
    }
}

/// Rows of a stream as DuckDB gets them: with `tm`, the time that counts, and `mark`, the watermark before the row. Only rows that pass the
/// condition come to a step, so only they make its watermark.
pub(crate) fn with_marks(stream: &str, condition: Option<&str>, lateness_s: i64) -> String {
    let condition = condition.map_or(String::new(), |condition| format!(" WHERE {condition}"));
    format!(
        "(SELECT *, max(tm) OVER (ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) - {lateness}::HUGEINT AS mark \
         FROM (SELECT *, CASE WHEN ts <= {LATEST} THEN ts::HUGEINT END AS tm FROM {stream}{condition}))",
        lateness = lateness_s * SECOND,
    )
}

/// The `LATENESS` of a query.
pub(crate) fn lateness(lateness_s: i64) -> String {
    if lateness_s == 0 { String::new() } else { format!(" LATENESS INTERVAL '{lateness_s} seconds'") }
}
