//! Admission of subscriptions' own queries at the I/O contexts, where they run. The measured cost of
//! a query at the stream's peak rate is compared with the time that is left there.
//!
//! The managers report the time that is left once a second, and after every change. The load of queries that are
//! admitted in between is subtracted from it. Queries together may always take half of the core ([`ALWAYS_PERCENT`]). A
//! core is mostly busy because of publishers that send as fast as their credit allows, and that a query only makes a
//! little slower; without this share no query could join beside them.

use crate::estimate::estimate;
use crossdock_control::figures::{Rate, Time};
use crossdock_control::load::Cost;
use crossdock_engine::{Handler, SelectHandler};
use crossdock_query::Program;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Share of a core that queries together may always take, in percent, however busy it is.
pub(crate) const ALWAYS_PERCENT: u64 = 50;
/// Queries whose cost is remembered at most.
const MAX_REMEMBERED: usize = 4096;
/// How long it counts.
const FRESH: Duration = Duration::from_secs(60);
/// A query that differs from a remembered one in its constants only may cost up to this many times as much, since more
/// records may pass it. It is measured itself where that matters.
const LIKE: u64 = 4;

/// The books on the time that queries may take.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    room: Option<Room>,
    /// The estimated load of the present queries, in ns per s.
    committed_ns_per_s: u64,
    /// The same of all that were ever let in, now and a second ago.
    admitted_ns_per_s: u64,
    admitted_before: u64,
    /// Queries that were refused.
    pub(crate) refused: u64,
}

/// A context's time, as the managers report it, in ns per s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoomReport {
    /// The time left beside handlers and what was measured, less the margin.
    pub(crate) left: u64,
    /// The time that all but handlers took in the last second, queries included.
    pub(crate) measured: u64,
    /// The time that queries together may take in any case.
    pub(crate) always: u64,
    /// Whether it is the report at the end of a second.
    pub(crate) is_second: bool,
}

/// The time of a context for queries, in ns per s.
#[derive(Clone, Copy, Debug)]
struct Room {
    left: u64,
    always: u64,
    /// The total load of all queries ever admitted, when this was found.
    admitted: u64,
}

impl Admission {
    /// The time that is free for a query now, in ns per s; all, before the managers have looked for the first time.
    pub(crate) fn has_ns_per_s(&self) -> u64 {
        let Some(Room { left, always, admitted }) = self.room else { return u64::MAX };
        let since = self.admitted_ns_per_s.saturating_sub(admitted);
        left.saturating_sub(since).max(always.saturating_sub(self.committed_ns_per_s))
    }

    /// Admits a query.
    ///
    /// # Errors
    /// It does not fit; the figures, in words.
    pub(crate) fn admit(&mut self, needs_ns_per_s: u64, rate_msgs_per_s: u64, context: &str) -> Result<(), String> {
        let has = self.has_ns_per_s();
        if needs_ns_per_s > has {
            let (needs, rate, has) = (Time(needs_ns_per_s), Rate(rate_msgs_per_s), Time(has));
            return Err(format!("the query needs {needs} at {rate}, {context} has {has}"));
        }
        self.committed_ns_per_s = self.committed_ns_per_s.saturating_add(needs_ns_per_s);
        self.admitted_ns_per_s = self.admitted_ns_per_s.saturating_add(needs_ns_per_s);
        Ok(())
    }

    /// A query that was let in has gone.
    pub(crate) fn release(&mut self, needs_ns_per_s: u64) {
        self.committed_ns_per_s = self.committed_ns_per_s.saturating_sub(needs_ns_per_s);
    }

    /// Takes what the managers have found.
    pub(crate) fn take_room(&mut self, report: RoomReport) {
        let RoomReport { left, measured, always, is_second } = report;
        // The measurement of the last second contains the queries admitted in it only in part; and a query admitted for a
        // peak may have less load now.
        let recent = self.admitted_ns_per_s.saturating_sub(self.admitted_before);
        let more = measured.saturating_add(recent).max(self.committed_ns_per_s).saturating_sub(measured);
        self.room = Some(Room { left: left.saturating_sub(more), always, admitted: self.admitted_ns_per_s });
        if is_second {
            self.admitted_before = self.admitted_ns_per_s;
        }
    }
}

/// The sample that a query's cost is measured on, and compared with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Records of the stream, by format.
    pub(crate) samples: Vec<(u64, Arc<[u8]>)>,
    /// The highest rate of the last minute, in records a second.
    pub(crate) peak_msgs_per_s: u64,
    pub(crate) records_per_batch: f64,
    /// The time that the context had left when this was asked for, in ns per s.
    pub(crate) has_ns_per_s: u64,
}

/// Measures queries, and remembers what came of it: thousands of subscriptions that differ in a constant are measured
/// once.
#[derive(Debug, Default)]
pub(crate) struct QueryCostModel {
    /// By the query without its constants, and the format's id.
    remembered: Mutex<HashMap<(String, u64), Remembered>>,
}

#[derive(Debug)]
struct Remembered {
    sql: String,
    cost: Cost,
    at: Instant,
}

impl QueryCostModel {
    /// The cost of a query on its stream's records; unknown without records.
    pub(crate) fn measure(&self, sql: &str, program: &Program, facts: &Facts) -> Option<Cost> {
        let format = program.input.id().0;
        let (_, sample) = facts.samples.iter().find(|(id, sample)| *id == format && !sample.is_empty())?;
        let key = (without_constants(sql), format);
        if let Some(known) = self.lock().get(&key).filter(|known| crossdock_device::elapsed(known.at) < FRESH)
            && (known.sql == sql || may_stand_in(&known.cost, facts.peak_msgs_per_s, facts.has_ns_per_s))
        {
            return Some(known.cost);
        }
        let mut make = || -> Box<dyn Handler> { Box::new(SelectHandler::new(program.clone())) };
        let cost = estimate(&mut make, &program.input, sample, facts.records_per_batch)?.with_margin();
        let mut remembered = self.lock();
        if remembered.len() >= MAX_REMEMBERED {
            remembered.retain(|_, known| crossdock_device::elapsed(known.at) < FRESH);
        }
        if remembered.len() < MAX_REMEMBERED {
            remembered.insert(key, Remembered { sql: sql.to_owned(), cost, at: crossdock_device::now() });
        }
        Some(cost)
    }

    /// The cost of a query, or of one that differs from it in its constants only, if one was measured lately.
    pub(crate) fn remembered(&self, sql: &str, program: &Program) -> Option<Cost> {
        let key = (without_constants(sql), program.input.id().0);
        self.lock().get(&key).filter(|known| crossdock_device::elapsed(known.at) < FRESH).map(|known| known.cost)
    }

    /// Nobody measures anything while this is held.
    fn lock(&self) -> MutexGuard<'_, HashMap<(String, u64), Remembered>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the cost of a query may stand for that of another one which differs in its constants only: up to [`LIKE`] times as
/// much would fit.
pub(crate) fn may_stand_in(cost: &Cost, rate_msgs_per_s: u64, has_ns_per_s: u64) -> bool {
    cost.load(rate_msgs_per_s).time_ns_per_s.saturating_mul(LIKE) <= has_ns_per_s
}

/// A query's text with `?` for each number and each text in it.
fn without_constants(sql: &str) -> String {
    let mut shape = String::with_capacity(sql.len());
    let mut rest = sql.chars().peekable();
    let mut in_name = false;
    while let Some(c) = rest.next() {
        match c {
            '\'' | '"' => {
                // A quote within is doubled, and makes two of one, which is as good.
                let inside: String = rest.by_ref().take_while(|inner| *inner != c).collect();
                match c {
                    '\'' => shape.push('?'),
                    _ => shape.extend([&*format!("\"{inside}\"")]),
                }
                in_name = false;
            }
            '0'..='9' if !in_name => {
                while rest.next_if(|next| next.is_ascii_alphanumeric() || *next == '.').is_some() {}
                shape.push('?');
            }
            _ => {
                in_name = c.is_alphanumeric() || c == '_';
                shape.push(c);
            }
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The report at the end of a second.
    fn second(left: u64, measured: u64, always: u64) -> RoomReport {
        RoomReport { left, measured, always, is_second: true }
    }

    #[test]
    fn an_admitted_query_reduces_the_remaining_time() {
        let mut admission = Admission::default();
        assert_eq!(admission.admit(5_000_000_000, 1, "c"), Ok(()), "nothing is known yet");
        admission.release(5_000_000_000);
        admission.take_room(second(300_000_000, 0, 0));
        assert_eq!(admission.has_ns_per_s(), 0, "a query of the last second is measured only in part");
        admission.take_room(second(300_000_000, 0, 0));
        assert_eq!(admission.admit(200_000_000, 1000, "c"), Ok(()));
        let refused = admission.admit(200_000_000, 2_100_000, "c-core-0").unwrap_err();
        assert_eq!(refused, "the query needs 200 ms/s at 2.1 M msgs/s, c-core-0 has 100 ms/s");
        // A load that has gone is seen when the managers look again, and not sooner.
        admission.release(200_000_000);
        assert_eq!(admission.has_ns_per_s(), 100_000_000);
        admission.take_room(RoomReport { is_second: false, ..second(300_000_000, 0, 0) });
        assert_eq!(admission.has_ns_per_s(), 100_000_000);
        (0..2).for_each(|_| admission.take_room(second(300_000_000, 0, 0)));
        assert_eq!(admission.has_ns_per_s(), 300_000_000);
        // One that is admitted for a peak counts with that, whatever was measured.
        assert_eq!(admission.admit(200_000_000, 1000, "c"), Ok(()));
        (0..2).for_each(|_| admission.take_room(second(250_000_000, 50_000_000, 0)));
        assert_eq!(admission.has_ns_per_s(), 100_000_000);
    }

    #[test]
    fn queries_may_always_take_their_share() {
        let mut admission = Admission::default();
        admission.take_room(second(0, 0, 200));
        assert_eq!(admission.admit(150, 1, "c"), Ok(()));
        assert!(admission.admit(60, 1, "c").is_err());
        assert_eq!(admission.admit(50, 1, "c"), Ok(()));
        assert!(admission.admit(1, 1, "c").is_err());
        assert_eq!(admission.admit(0, 1, "c"), Ok(()), "what costs nothing always fits");
        admission.release(150);
        assert_eq!(admission.has_ns_per_s(), 150);
    }

    #[test]
    fn queries_are_alike_that_differ_in_constants() {
        let same = [
            ("SELECT a1 FROM s WHERE b > 12", "SELECT a1 FROM s WHERE b > 7.5e3"),
            ("SELECT * FROM s WHERE c = 'it''s'", "SELECT * FROM s WHERE c = 'a''b'"),
            ("SELECT * FROM s WHERE c IN ('x', 'y')", "SELECT * FROM s WHERE c IN ('', '12')"),
        ];
        for (one, other) in same {
            assert_eq!(without_constants(one), without_constants(other));
        }
        let other = [
            ("SELECT a1 FROM s", "SELECT a2 FROM s"),
            ("SELECT \"1\" FROM s", "SELECT \"2\" FROM s"),
            ("SELECT a FROM s WHERE b > 1", "SELECT a FROM s WHERE b < 1"),
        ];
        for (one, other) in other {
            assert_ne!(without_constants(one), without_constants(other));
        }
        // Whatever it is, it ends.
        for text in ["'", "\"", "'a", "12", "", "\"a''", "1'1'1"] {
            without_constants(text);
        }
    }
}
