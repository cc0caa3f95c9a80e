//! The records that were published, and the judge of what a subscription gets of them.
//!
//! A publisher numbers its records, and all their fields follow from its own number and the record's. So nothing has to be
//! remembered but how many were handed over and how many of those were acknowledged.

use super::durable::{Derived, Rows};
use super::tables::{Table, TableQuery};
use crossdock_format::{Format, RecordBuilder, Value};
use std::collections::BTreeMap;

/// The length of the windows of [`Query::Windows`] in records of one publisher.
pub(super) const WINDOW_RECORDS: u64 = 100;
/// The time between two records of a publisher, in ns, by their field `at`.
pub(super) const RECORD_NS: u64 = 10_000_000;

/// The format of all records.
pub(super) fn format() -> Format {
    Format::parse_schema("publisher u32\nnumber u64\nvalue i64\nat timestamp\npad string").expect("a schema")
}

/// The name of a stream.
pub(super) fn stream_name(stream: usize) -> String {
    format!("s{stream}")
}

/// The field `value` of a record, from 0 to 999.
pub(super) fn value_of(publisher: usize, number: u64) -> i64 {
    let mixed = (number ^ ((publisher as u64) << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed >> 33) % 1000) as i64
}

/// The length of the field `pad` of a record with this value, in bytes.
pub(super) fn pad_bytes(value: i64) -> usize {
    [0, 10, 60, 400][value as usize % 4]
}

/// Makes a record.
pub(super) fn record(row: &mut RecordBuilder, publisher: usize, number: u64) -> Vec<u8> {
    let value = value_of(publisher, number);
    let pad = vec![b'x'; pad_bytes(value)];
    row.clear();
    let values = [
        Value::Uint(publisher as u64),
        Value::Uint(number),
        Value::Int(value),
        Value::Timestamp((number * RECORD_NS) as i64),
        Value::Text(&pad),
    ];
    for (field, value) in values.into_iter().enumerate() {
        row.set(field, value).expect("the format has it");
    }
    row.finish().expect("all fields are set").to_vec()
}

/// A publisher, as the judges know it.
#[derive(Clone, Debug)]
pub(super) struct Published {
    pub(super) stream: usize,
    /// Records that it has handed over to be sent.
    pub(super) handed: u64,
    /// The first of them that were acknowledged.
    pub(super) settled: u64,
    /// Whether it goes on, or has finished: then all that was handed over is delivered; of one that crashed, what was acknowledged.
    pub(super) is_sound: bool,
    /// Since a crash of the daemon: the first record that may be sent again.
    pub(super) repeats_from: Option<u64>,
    /// When each record was handed over, in ns.
    pub(super) times_ns: Vec<u64>,
}

impl Published {
    /// Records that have to be delivered.
    fn required(&self) -> u64 {
        if self.is_sound { self.handed } else { self.settled }
    }
}

/// All publishers, by their numbers, and the time.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) publishers: Vec<Published>,
    pub(super) now_ns: u64,
    /// Whether the daemon is `durable`: then it loses nothing by a crash.
    pub(super) is_durable: bool,
}

impl Model {
    /// The daemon has crashed: what is not acknowledged is sent again, though it may have been delivered.
    pub(super) fn crash(&mut self) {
        self.publishers.iter_mut().for_each(|of| of.repeats_from = of.repeats_from.or(Some(of.settled)));
    }

    /// All is acknowledged and delivered: nothing of it is sent again.
    pub(super) fn settle(&mut self) {
        self.publishers.iter_mut().for_each(|of| of.repeats_from = None);
    }

    /// The publishers of a stream.
    pub(super) fn of(&self, stream: usize) -> impl Iterator<Item = (usize, &Published)> {
        self.publishers.iter().enumerate().filter(move |(_, publisher)| publisher.stream == stream)
    }
}

/// The number of records of a stream and the sum of their values, by windows.
pub(super) fn windows_sql(stream: &str) -> String {
    format!(
        "SELECT window_start, count(*) AS n, sum(value) AS total FROM {stream} GROUP BY TUMBLE(at, INTERVAL '1' SECOND)"
    )
}

/// A subscription's query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Query {
    /// All records.
    All,
    /// Those of a value or above, and some of their fields.
    AtLeast(i64),
    /// Those of an even value below another one, and some of their fields.
    EvenBelow(i64),
    /// The number of records and the sum of their values, by windows: a query with state.
    Windows,
    /// The stream that a handler makes.
    Of(Derived),
    /// The state of the stream by value, and its changes.
    Table(TableQuery),
}

impl Query {
    /// Its text.
    pub(super) fn sql(self, stream: usize) -> String {
        let stream = stream_name(stream);
        match self {
            Query::All => format!("SELECT * FROM {stream}"),
            Query::Of(derived) => derived.sql(),
            Query::AtLeast(least) => format!("SELECT number, publisher, value FROM {stream} WHERE value >= {least}"),
            Query::EvenBelow(bound) => {
                format!("SELECT publisher, value, number FROM {stream} WHERE value < {bound} AND value % 2 = 0")
            }
            Query::Windows => windows_sql(&stream),
            Query::Table(table) => table.sql(&stream),
        }
    }

    /// Whether it selects a record.
    pub(super) fn selects(self, publisher: usize, number: u64) -> bool {
        let value = value_of(publisher, number);
        match self {
            Query::All | Query::Windows | Query::Of(_) => true,
            Query::AtLeast(least) => value >= least,
            Query::EvenBelow(bound) => value < bound && value % 2 == 0,
            Query::Table(table) => table.selects(number),
        }
    }
}

/// The state of a subscription towards one publisher.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Records below this one need not come any more: they came, or were not selected, or passed before.
    next: u64,
    /// Whether one has come, since the last time that records could pass unseen.
    has_begun: bool,
    /// Whether records may have passed that nobody brings any more: the subscription's session was lost.
    may_miss: bool,
    /// Whether the next record may be one that is sent again.
    may_repeat: bool,
    /// One more than the greatest number that has come.
    came_to: u64,
}

/// The judge of one subscription.
#[derive(Debug)]
pub(super) struct Judge {
    stream: usize,
    query: Query,
    seen: BTreeMap<usize, Seen>,
    /// Records that came, and those that passed unseen.
    pub(super) delivered: u64,
    pub(super) missed: u64,
    /// The subscription was confirmed, and its session was never lost.
    is_subscribed: bool,
    was_lost: bool,
    /// Of [`Query::Windows`]: it began before the first record.
    is_whole: bool,
    last_window: Option<u64>,
    counted: u64,
    /// Of [`Query::Of`]: the rows that came.
    rows: Rows,
    /// Of [`Query::Table`].
    pub(super) table: Table,
    /// How long each record was on its way, in ns.
    pub(super) delays_ns: Vec<u64>,
}

impl Judge {
    pub(super) fn new(stream: usize, query: Query) -> Judge {
        let mut judge = Judge {
            stream,
            query,
            seen: BTreeMap::new(),
            delivered: 0,
            missed: 0,
            is_subscribed: false,
            was_lost: false,
            is_whole: false,
            last_window: None,
            counted: 0,
            rows: Rows::default(),
            table: Table::default(),
            delays_ns: Vec::new(),
        };
        judge.expect_query(query);
        judge
    }

    /// The subscription is to get another query: from now on what comes may be of that one.
    pub(super) fn expect_query(&mut self, query: Query) {
        if let Query::Table(query) = query {
            self.table.expect(query);
        }
    }

    /// The subscription is confirmed: what is handed over from now on comes.
    pub(super) fn begin(&mut self, model: &Model) {
        self.is_subscribed = true;
        self.is_whole = model.of(self.stream).all(|(_, publisher)| publisher.handed == 0);
        self.seen = model.of(self.stream).map(|(id, of)| (id, Seen { next: of.handed, ..Seen::default() })).collect();
    }

    /// The subscription has another query from now on, or had it before some of what came.
    pub(super) fn change_query(&mut self, query: Query) {
        self.query = query;
    }

    /// Whether a change may come in place of earlier ones.
    pub(super) fn conflates(&self) -> bool {
        matches!(self.query, Query::Table(table) if table.conflates)
    }

    /// The subscription's session was lost, and another one stands.
    pub(super) fn reconnect(&mut self, model: &Model) {
        self.was_lost = true;
        self.table.clear();
        for (publisher, _) in model.of(self.stream) {
            let seen = self.seen.entry(publisher).or_default();
            (seen.may_miss, seen.may_repeat) = (!model.is_durable, true);
        }
    }

    /// A record has come; `is_repeated`: the library says that it has come before.
    pub(super) fn take(
        &mut self,
        model: &Model,
        is_repeated: bool,
        field: impl Fn(&str) -> Option<i64>,
    ) -> Result<(), String> {
        self.delivered += 1;
        if let Query::Of(derived) = self.query {
            return self.rows.take(derived, model, is_repeated, field);
        }
        if self.query == Query::Windows {
            return self.take_window(model, field);
        }
        if let Query::Table(query) = self.query {
            return self.table.take((self.stream, query), model, field);
        }
        let whole = |name: &str| field(name).ok_or_else(|| format!("a record without `{name}`"));
        let (publisher, number) = (whole("publisher")? as usize, whole("number")? as u64);
        let of = model
            .publishers
            .get(publisher)
            .ok_or_else(|| format!("a record of publisher {publisher}, which is none"))?;
        let what = format!("record {number} of publisher {publisher}");
        if of.stream != self.stream || number >= of.handed {
            return Err(format!("{what} came and was never sent: {} were, on stream {}", of.handed, of.stream));
        }
        if whole("value")? != value_of(publisher, number) || !self.query.selects(publisher, number) {
            return Err(format!("{what} has value {} and is not selected, or changed", whole("value")?));
        }
        if let Some(bytes) = field("pad")
            && bytes as usize != pad_bytes(value_of(publisher, number))
        {
            return Err(format!("{what} has a pad of {bytes} bytes"));
        }
        let (query, seen) = (self.query, self.seen.entry(publisher).or_default());
        let may_repeat = seen.may_repeat && of.repeats_from.is_some_and(|from| number >= from);
        if number < seen.next && seen.has_begun && !may_repeat {
            return Err(format!("{what} came again, or after {}", seen.next - 1));
        }
        let passed = (seen.next..number).filter(|passed| query.selects(publisher, *passed)).count() as u64;
        if passed > 0 && !seen.may_miss {
            return Err(format!("{what} came, and {passed} of {}..{number} did not", seen.next));
        }
        self.missed += passed;
        self.delays_ns.extend(of.times_ns.get(number as usize).map(|sent_ns| model.now_ns - sent_ns));
        let came_to = seen.came_to.max(number + 1);
        if model.is_durable && is_repeated != (number < seen.came_to) {
            return Err(format!(
                "{what} is said to be repeated: {is_repeated}; {} is the last that came",
                seen.came_to
            ));
        }
        *seen = Seen { next: number + 1, has_begun: true, may_miss: false, may_repeat: false, came_to };
        Ok(())
    }

    /// A row of windows has come.
    fn take_window(&mut self, model: &Model, field: impl Fn(&str) -> Option<i64>) -> Result<(), String> {
        let whole = |name: &str| field(name).ok_or_else(|| format!("a row without `{name}`"));
        let (window, n, total) =
            (whole("window_start")? as u64 / (WINDOW_RECORDS * RECORD_NS), whole("n")? as u64, whole("total")?);
        let Some((publisher, of)) = model.of(self.stream).next() else {
            return Err("a row of no publisher".to_owned());
        };
        let numbers = window * WINDOW_RECORDS..of.handed.min((window + 1) * WINDOW_RECORDS);
        let most = numbers.end.saturating_sub(numbers.start);
        if n == 0 || n > most {
            return Err(format!("window {window} counts {n} records, and {most} were sent"));
        }
        if self.is_whole && !self.was_lost {
            let sum: i64 = numbers.map(|number| value_of(publisher, number)).sum();
            if (n, total) != (most, sum) {
                return Err(format!(
                    "window {window} is {n} records with a sum of {total}, and {most} with {sum} were sent"
                ));
            }
            let next = self.last_window.map_or(0, |last| last + 1);
            if window != next {
                return Err(format!("window {window} came, and {next} is the next"));
            }
        }
        (self.last_window, self.counted) = (Some(window), self.counted + n);
        if self.counted > of.handed && of.repeats_from.is_none() && !self.was_lost {
            return Err(format!("windows count {} records, and {} were sent", self.counted, of.handed));
        }
        Ok(())
    }

    /// Whether the subscription's session was lost.
    pub(super) fn was_lost(&self) -> bool {
        self.was_lost
    }

    /// The missing part, if something has not come that must have.
    pub(super) fn missing(&self, model: &Model, is_over: bool) -> Option<String> {
        if !self.is_subscribed {
            return Some("it is not confirmed".to_owned());
        }
        if let Query::Of(derived) = self.query {
            return self.rows.missing(derived, model);
        }
        if let Query::Table(query) = self.query {
            return self.table.missing(self.stream, query, model);
        }
        if self.query == Query::Windows {
            let (_, of) = model.of(self.stream).next()?;
            let is_exact = is_over && self.is_whole && !self.was_lost && of.is_sound;
            return (is_exact && self.counted != of.handed)
                .then(|| format!("its windows count {} of {} records", self.counted, of.handed));
        }
        model.of(self.stream).find_map(|(publisher, of)| {
            let seen = self.seen.get(&publisher).copied().unwrap_or_default();
            let missing = (seen.next..of.required()).find(|number| self.query.selects(publisher, *number));
            let missing = missing.filter(|_| !seen.may_miss);
            missing.map(|number| format!("record {number} of publisher {publisher} has not come"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(
        query: Query,
        handed: u64,
        numbers: &[u64],
        lost_before: Option<usize>,
    ) -> Result<Option<String>, String> {
        let publisher =
            Published { stream: 0, handed: 0, settled: 0, is_sound: true, repeats_from: None, times_ns: Vec::new() };
        let mut model = Model { publishers: vec![publisher], ..Model::default() };
        let mut judge = Judge::new(0, query);
        judge.begin(&model);
        model.publishers[0].handed = handed;
        for (at, number) in numbers.iter().enumerate() {
            if lost_before == Some(at) {
                judge.reconnect(&model);
            }
            let fields = |name: &str| match name {
                "number" => Some(*number as i64),
                "value" => Some(value_of(0, *number)),
                "publisher" => Some(0),
                _ => None,
            };
            judge.take(&model, false, fields)?;
        }
        Ok(judge.missing(&model, true))
    }

    #[test]
    fn the_judge_finds_what_is_lost_doubled_invented_or_out_of_order() {
        assert_eq!(judged(Query::All, 3, &[0, 1, 2], None), Ok(None));
        assert!(judged(Query::All, 3, &[0, 1], None).unwrap().is_some_and(|why| why.contains("record 2")));
        for (numbers, why) in
            [(&[0, 2][..], "did not"), (&[0, 0], "again"), (&[1], "did not"), (&[0, 1, 2, 3], "never sent")]
        {
            assert!(judged(Query::All, 3, numbers, None).unwrap_err().contains(why), "{numbers:?}");
        }
        // Records that pass while the session is lost are missed, and no others.
        assert_eq!(judged(Query::All, 6, &[0, 3, 4, 5], Some(1)), Ok(None));
        assert!(judged(Query::All, 6, &[0, 3, 5], Some(1)).unwrap_err().contains("did not"));
        assert!(judged(Query::All, 6, &[0, 3, 2], Some(1)).unwrap_err().contains("again"));
        let selected: Vec<u64> = (0..50).filter(|number| value_of(0, *number) >= 500).collect();
        assert_eq!(judged(Query::AtLeast(500), 50, &selected, None), Ok(None));
        assert!(judged(Query::AtLeast(500), 50, &[(0..50).find(|n| value_of(0, *n) < 500).unwrap()], None).is_err());
    }
}
