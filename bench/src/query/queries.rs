//! The queries that are measured, in our SQL and in DuckDB's.
//!
//! Of Nexmark's, q0 to q8. q3, q4 and q6 join without bounds of time; q4 and q6 correct what they have given, so of their results the last by
//! key is compared.

use super::nexmark::{self, EVERY_NS};
use super::through::Query;
use super::{flights_weather, readings};

/// Time before the last event in which windows may still be open, in seconds.
const OPEN_S: u64 = 40;

pub(super) const QUERIES: [Query; 10] = [
    // All bids.
    Query {
        case: "nexmark_q0",
        data: nexmark::events,
        streams: &["bid"],
        sql: "SELECT auction, bidder, price, date_time FROM bid",
        duckdb: "SELECT auction, bidder, price, date_time FROM bid",
        keys: 0,
        until,
    },
    // Prices in another currency.
    Query {
        case: "nexmark_q1",
        data: nexmark::events,
        streams: &["bid"],
        sql: "SELECT auction, bidder, 0.908 * price AS price, date_time FROM bid",
        duckdb: "SELECT auction, bidder, 0.908 * price AS price, date_time FROM bid",
        keys: 0,
        until,
    },
    // Bids for certain auctions.
    Query {
        case: "nexmark_q2",
        data: nexmark::events,
        streams: &["bid"],
        sql: "SELECT auction, price FROM bid WHERE auction % 123 = 0",
        duckdb: "SELECT auction, price FROM bid WHERE auction % 123 = 0",
        keys: 0,
        until,
    },
    // Persons of certain states who sell in one category.
    Query {
        case: "nexmark_q3",
        data: nexmark::events,
        streams: &["person", "auction"],
        sql: "SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
              WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
        duckdb: "SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
                 WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
        keys: 0,
        until,
    },
    // The average winning price of each category.
    Query {
        case: "nexmark_q4",
        data: nexmark::events,
        streams: &["auction", "bid"],
        sql: "SELECT category, avg(final) AS average FROM (
                  SELECT max(b.price) AS final, a.category FROM auction a JOIN bid b
                  ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
                  GROUP BY a.id, a.category) q
              GROUP BY category",
        duckdb: "SELECT category, avg(final) AS average FROM (
                     SELECT max(b.price) AS final, a.category FROM auction a JOIN bid b
                     ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
                     GROUP BY a.id, a.category) q
                 GROUP BY category",
        keys: 1,
        until,
    },
    // The average winning price of each seller's last ten auctions, in the order of their first bids.
    Query {
        case: "nexmark_q6",
        data: nexmark::events,
        streams: &["auction", "bid"],
        sql: "SELECT seller, id, avg(final) OVER (PARTITION BY seller ROWS 9 PRECEDING) AS average FROM (
                  SELECT max(b.price) AS final, a.id, a.seller FROM auction a JOIN bid b
                  ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
                  GROUP BY a.id, a.seller) q",
        // Of a seller the row of the newest auction: those that are no longer among the last ten are not corrected any more.
        duckdb: "SELECT seller, id, average FROM (
                     SELECT seller, id, avg(final) OVER (PARTITION BY seller ORDER BY opened ROWS 9 PRECEDING) AS average,
                            row_number() OVER (PARTITION BY seller ORDER BY opened DESC) AS back FROM (
                         SELECT max(b.price) AS final, min(b.date_time) AS opened, a.id, a.seller FROM auction a JOIN bid b
                         ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
                         GROUP BY a.id, a.seller))
                 WHERE back = 1",
        keys: 2,
        until,
    },
    // The auctions with the most bids of the last 10 seconds, every 2 seconds.
    Query {
        case: "nexmark_q5",
        data: nexmark::events,
        streams: &["bid"],
        sql: "WITH counts AS (SELECT auction, window_start AS starts, count(*) AS bids FROM bid
                             GROUP BY auction, HOP(date_time, INTERVAL '2 seconds', INTERVAL '10 seconds')),
                   most AS (SELECT window_start AS starts, max(bids) AS bids FROM counts
                            GROUP BY TUMBLE(starts, INTERVAL '2 seconds'))
              SELECT c.auction, c.starts, c.bids FROM counts c JOIN most m ON c.bids = m.bids AND c.starts = m.starts
              WHERE c.starts < TIMESTAMP '{until}'",
        duckdb: "WITH counts AS (SELECT auction, time_bucket(INTERVAL 2 SECOND, date_time) - back * INTERVAL 2 SECOND AS starts,
                                        count(*) AS bids FROM bid, range(5) AS steps(back) GROUP BY 1, 2),
                      most AS (SELECT starts, max(bids) AS bids FROM counts GROUP BY starts)
                 SELECT c.auction, c.starts, c.bids FROM counts c JOIN most m ON c.bids = m.bids AND c.starts = m.starts
                 WHERE c.starts < TIMESTAMP '{until}'",
        keys: 0,
        until,
    },
    // The highest bids of each 10 seconds.
    Query {
        case: "nexmark_q7",
        data: nexmark::events,
        streams: &["bid"],
        sql: "WITH most AS (SELECT window_end AS ends, max(price) AS price FROM bid
                            GROUP BY TUMBLE(date_time, INTERVAL '10 seconds'))
              SELECT b.auction, b.bidder, b.price, b.date_time FROM bid b JOIN most m
              ON b.price = m.price AND b.date_time >= m.ends - INTERVAL '10 seconds' AND b.date_time < m.ends
              WHERE m.ends < TIMESTAMP '{until}'",
        duckdb: "WITH most AS (SELECT time_bucket(INTERVAL 10 SECOND, date_time) + INTERVAL 10 SECOND AS ends, max(price) AS price
                               FROM bid GROUP BY 1)
                 SELECT b.auction, b.bidder, b.price, b.date_time FROM bid b JOIN most m
                 ON b.price = m.price AND b.date_time >= m.ends - INTERVAL 10 SECOND AND b.date_time < m.ends
                 WHERE m.ends < TIMESTAMP '{until}'",
        keys: 0,
        until,
    },
    // Persons who came and opened auctions within the same 10 seconds.
    Query {
        case: "nexmark_q8",
        data: nexmark::events,
        streams: &["person", "auction"],
        sql: "WITH came AS (SELECT id, name, window_start AS starts FROM person
                            GROUP BY id, name, TUMBLE(date_time, INTERVAL '10 seconds')),
                   opened AS (SELECT seller, window_start AS starts FROM auction
                              GROUP BY seller, TUMBLE(date_time, INTERVAL '10 seconds'))
              SELECT c.id, c.name, c.starts FROM came c JOIN opened o ON c.id = o.seller AND c.starts = o.starts
              WHERE c.starts < TIMESTAMP '{until}'",
        duckdb: "WITH came AS (SELECT DISTINCT id, name, time_bucket(INTERVAL 10 SECOND, date_time) AS starts FROM person),
                      opened AS (SELECT DISTINCT seller, time_bucket(INTERVAL 10 SECOND, date_time) AS starts FROM auction)
                 SELECT c.id, c.name, c.starts FROM came c JOIN opened o ON c.id = o.seller AND c.starts = o.starts
                 WHERE c.starts < TIMESTAMP '{until}'",
        keys: 0,
        until,
    },
    // The readings of 100,000 sensors over the last minute, every 20 seconds.
    Query {
        case: "window_hop",
        data: readings::readings,
        streams: &["reading"],
        sql: "SELECT sensor, window_start, count(*) AS readings, sum(value) AS total FROM reading
              GROUP BY sensor, HOP(ts, INTERVAL '20 seconds', INTERVAL '60 seconds')
              HAVING window_start < TIMESTAMP '{until}' - INTERVAL '60 seconds'",
        duckdb: "SELECT sensor, time_bucket(INTERVAL 20 SECOND, ts) - back * INTERVAL 20 SECOND AS starts, count(*) AS readings,
                        sum(value) AS total FROM reading, range(3) AS steps(back) GROUP BY 1, 2
                 HAVING starts < TIMESTAMP '{until}' - INTERVAL 60 SECOND",
        keys: 0,
        until,
    },
];

/// Flights with the latest weather of their airports.
pub(super) const JOINS: [Query; 1] = [Query {
    case: "flights_weather",
    data: flights_weather::rows,
    streams: &["flights", "weather"],
    sql: "SELECT f.carrier, f.flight, f.origin, f.dest, f.time_hour, f.dep_delay, w.temp, w.wind_speed, w.visib
          FROM flights f ASOF JOIN weather w ON f.origin = w.origin AND f.time_hour >= w.time_hour
          WHERE f.year < {until} LATENESS INTERVAL '0 seconds'",
    duckdb: "SELECT f.carrier, f.flight, f.origin, f.dest, f.time_hour, f.dep_delay, w.temp, w.wind_speed, w.visib
             FROM flights f ASOF JOIN weather w ON f.origin = w.origin AND f.time_hour >= w.time_hour
             WHERE f.year < {until}",
    keys: 0,
    until: |count| (flights_weather::years(count) - 1).to_string(),
}];

/// A query by its case.
pub(super) fn find(case: &str) -> Option<&'static Query> {
    QUERIES.iter().chain(&JOINS).find(|query| query.case == case)
}

/// A time at which all windows that began before it are closed by the last of these events, which began at midnight.
fn until(count: u64) -> String {
    let seconds = (count * EVERY_NS as u64 / 1_000_000_000).saturating_sub(OPEN_S);
    format!("2026-01-01 {:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
