//! Events through the daemon, by one publisher process and one subscriber process, and the same query by DuckDB.

use super::duckdb::{Duckdb, TempFile};
use super::queries;
use super::rows::Rows;
use crate::broker::number;
use crate::cpu::Error;
use crate::daemon::Daemon;
use crate::process::{Process, end_with_parent, say, wait_for_go};
use crossdock_nectarine::{Event, Publisher, Subscriber, Transport};
use serde_json::json;
use std::time::Duration;

/// Events that are published of each stream before the next stream's turn.
const AT_A_TIME: u64 = 5000;
/// How long a subscriber waits for its stream, and for its next record.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A query over a benchmark's rows.
pub(super) struct Query {
    pub(super) case: &'static str,
    /// Makes the streams, with at least this number of rows together; also as CSV, if that is wanted.
    pub(super) data: fn(u64, bool) -> Result<Vec<Rows>, Error>,
    /// The streams that it reads.
    pub(super) streams: &'static [&'static str],
    /// `{until}` stands for a time, or a number, before which all results leave by the end of the events.
    pub(super) sql: &'static str,
    /// The same for DuckDB.
    pub(super) duckdb: &'static str,
    /// The number of first columns that are the key of a result that is corrected: of each key the last row is compared. 0: each row is one
    /// of the result, and their number is compared.
    pub(super) keys: usize,
    /// The text for `{until}`, by the count of events.
    pub(super) until: fn(u64) -> String,
}

impl Query {
    fn data(&self, count: u64, with_csv: bool) -> Result<Vec<Rows>, Error> {
        let mut rows = (self.data)(count, with_csv)?;
        rows.retain(|of| self.streams.contains(&of.name));
        Ok(rows)
    }

    /// Loads its streams as tables, each once.
    fn load(&self, count: u64, duckdb: &mut Duckdb) -> Result<(), Error> {
        if self.streams.iter().all(|name| duckdb.has(name)) {
            return Ok(());
        }
        let rows = self.data(count, true)?;
        rows.iter().try_for_each(|rows| if duckdb.has(rows.name) { Ok(()) } else { duckdb.load(rows) })
    }
}

/// Publishes the streams that a query reads, in the order of their events.
pub(super) fn publish(addr: &str, count: u64, case: &str) -> Result<(), Error> {
    end_with_parent()?;
    let query = queries::find(case).ok_or_else(|| format!("there is no query `{case}`"))?;
    let rows = query.data(count, false)?;
    let events = rows.iter().map(Rows::behind).max().unwrap_or(0);
    let mut publishers = Vec::new();
    for of in &rows {
        let publisher = Publisher::builder(addr).transport(Transport::Udp).stream(of.name).format(&of.format);
        publishers.push(publisher.connect()?);
    }
    say(&json!({"records": rows.iter().map(Rows::len).sum::<usize>()}));
    wait_for_go()?;
    for from in (0..events).step_by(AT_A_TIME as usize) {
        for (publisher, rows) in publishers.iter_mut().zip(&rows) {
            publisher.publish_all(rows.of_events(from, from + AT_A_TIME))?;
            // Where results are corrected, the order in which groups begin counts, also across streams.
            if query.keys > 0 {
                publisher.flush()?;
            }
        }
    }
    for publisher in publishers {
        publisher.finish()?;
    }
    say(&json!({"ended": true}));
    // A stream's end is not what is measured: it stands until the subscriber has all.
    wait_for_go()
}

/// Takes what a query makes until as many records have come as there should be.
pub(super) fn subscribe(addr: &str, sql: &str, expected: u64) -> Result<(), Error> {
    end_with_parent()?;
    let builder = Subscriber::builder(addr).transport(Transport::Udp).sql(sql);
    let mut subscriber = builder.wait_for_stream(PATIENCE).connect()?;
    say(&json!({"ready": true}));
    let mut count = 0;
    while count < expected {
        match subscriber.next_event(Some(PATIENCE))? {
            None => return Err(format!("nothing came for 30 s after {count} records of {expected}").into()),
            Some(Event::Records(records)) => count += records.len() as u64,
            Some(Event::Dropped { records, reason, .. }) => return Err(format!("{records} dropped: {reason}").into()),
            Some(_) => {}
        }
    }
    say(&json!({"records": count}));
    Ok(())
}

/// Runs a query through a daemon, and by DuckDB: events for each second of processor time, of both. All that DuckDB makes has to
/// come.
pub(super) fn compare(query: &Query, events: u64, duckdb: &mut Duckdb) -> Result<[f64; 2], Error> {
    query.load(events, duckdb)?;
    let [ours, its] = [query.sql, query.duckdb].map(|sql| sql.replace("{until}", &(query.until)(events)));
    let answer = duckdb.run(&its, query.keys > 0)?;
    let daemon = Daemon::start("")?;
    let args = ["query", "publish", &daemon.addr, &events.to_string(), query.case];
    let mut publisher = Process::role(&args.map(str::to_owned))?;
    let published = number(&publisher.next_report()?, "records")?;
    let last = TempFile::write(&format!("{}.json", query.case), &answer.all.to_string())?;
    let mut subscriber = match query.keys {
        0 => Process::role(&["query", "subscribe", &daemon.addr, &ours, &answer.rows.to_string()].map(str::to_owned))?,
        keys => {
            let (keys, path) = (keys.to_string(), last.0.to_string_lossy());
            Process::role(&["query", "subscribe-last", &daemon.addr, &ours, &keys, &path].map(str::to_owned))?
        }
    };
    subscriber.next_report()?;
    let before_ns = daemon.cpu_ns()?;
    publisher.go()?;
    publisher.next_report()?;
    let came = number(&subscriber.next_report()?, "records")?;
    let took_s = (daemon.cpu_ns()? - before_ns) as f64 / 1e9;
    if came != answer.rows {
        return Err(format!("{}: DuckDB makes {} records, {came} came", query.case, answer.rows).into());
    }
    publisher.go()?;
    publisher.end()?;
    subscriber.end()?;
    Ok([published as f64 / took_s, published as f64 / answer.took_s])
}
