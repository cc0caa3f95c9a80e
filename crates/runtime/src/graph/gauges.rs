//! The gauges of nodes and contexts, read by the resource monitor. Each has one writer, the context that has it now,
//! except losses; any thread may read.

use crate::info::{BucketInfo, HistogramInfo};
use crossdock_engine::{Handler, HandlerCounters, OperatorCounters, RowError, RowErrorCounts};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Buckets of a histogram of times: four for each range of 2^n up to 2^(n+1) ns.
const BUCKETS: usize = 4 * 40;

/// A number that one thread writes and any reads. Adding takes no locked instruction.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// One less, if there is one.
    #[cfg(test)]
    pub(crate) fn takes_one(&self) -> bool {
        let has_one = self.get() > 0;
        self.set(self.get() - u64::from(has_one));
        has_one
    }
}

/// Ranges of a histogram of times that is exposed: up to 2^`FIRST_POWER` ns (1 µs), each twice as long, up to 2^33 ns (8.6 s).
const RANGES: usize = 24;
const FIRST_POWER: u32 = 10;

/// Times by their lengths, which one thread writes and any reads.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// The last has what is longer than all ranges.
    counts: [Gauge; RANGES + 1],
    sum_ns: Gauge,
}

impl Histogram {
    /// Notes that something took `ns`, for each of `number` things.
    #[inline]
    pub(crate) fn note(&self, ns: u64, number: u64) {
        let power = ns.max(2).saturating_sub(1).ilog2() + 1;
        let at = (power.saturating_sub(FIRST_POWER) as usize).min(RANGES);
        if let Some(count) = self.counts.get(at) {
            count.add(number);
        }
        self.sum_ns.add(ns.saturating_mul(number));
    }

    /// It as it is reported.
    pub(crate) fn info(&self) -> HistogramInfo {
        let bucket =
            |(at, count): (usize, &Gauge)| BucketInfo { up_to_ns: 1 << (at as u32 + FIRST_POWER), count: count.get() };
        let (ranges, above) = self.counts.split_at(RANGES);
        HistogramInfo {
            buckets: ranges.iter().enumerate().map(bucket).collect(),
            above: above.iter().map(Gauge::get).sum(),
            sum_ns: self.sum_ns.get(),
        }
    }
}

/// Why a node dropped records, beside row errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Loss {
    /// Its program does not fit their format.
    Unreadable,
    /// Its input queue was full, and its policy is to drop.
    QueueFull,
    /// It has failed, or failed at this batch.
    Failed,
    /// The core is near its limit, and the handler's policy samples its records; or a subscriber is slow, and its policy does.
    Sampled,
    /// There was no buffer for its output.
    NoBuffer,
    /// Its output is longer than a packet can be.
    TooLong,
    /// It was removed.
    Removed,
    /// No node and no subscription takes its output.
    Unclaimed,
    /// A conversion could not make them.
    NotConvertible,
    /// Too much waited for a conversion.
    HoldFull,
    /// No conversion came in time.
    HoldExpired,
    /// A later record of its key took its place, while its subscriber was slow or its rate was used up.
    Conflated,
    /// Its subscriber was slow, and the record does not meet the condition of those that are kept then.
    NotKept,
    /// It is above the rate of its subscription.
    OverRate,
}

/// The losses' names, in the order of [`Loss`].
pub(crate) const LOSSES: [&str; 14] = [
    "unreadable",
    "queue_full",
    "failed",
    "sampled",
    "no_buffer",
    "too_long",
    "removed",
    "unclaimed",
    "not_convertible",
    "hold_full",
    "hold_expired",
    "conflated",
    "not_kept",
    "over_rate",
];

/// The operators of one query whose counts are reported; any more are not.
const MOST_OPERATORS: usize = 40;
/// The counts of each.
const OPERATOR_COUNTS: usize = 6;

/// The counts of the operators of a query with state, as of its last run.
#[derive(Debug, Default)]
pub(crate) struct OperatorGauges(OnceLock<Box<[[Gauge; OPERATOR_COUNTS]]>>);

impl OperatorGauges {
    /// Takes over the counts of a handler, if it has any. The first call of one that has makes the gauges.
    #[inline]
    pub(crate) fn note(&self, handler: &dyn Handler) {
        handler.operator_counters(&mut |place, counts| {
            let all = self.0.get_or_init(|| (0..MOST_OPERATORS).map(|_| Default::default()).collect());
            let OperatorCounters { rows_in, rows_out, late, forgotten, kept_rows, kept_bytes } = counts;
            let counts = [rows_in, rows_out, late, forgotten, kept_rows, kept_bytes];
            let gauges = all.get(place).into_iter().flatten();
            gauges.zip(counts).for_each(|(gauge, count)| gauge.set(count));
        });
    }

    /// The counts of the operator at a place.
    pub(crate) fn get(&self, place: usize) -> Option<OperatorCounters> {
        let [rows_in, rows_out, late, forgotten, kept_rows, kept_bytes] = self.0.get()?.get(place)?;
        Some(OperatorCounters {
            rows_in: rows_in.get(),
            rows_out: rows_out.get(),
            late: late.get(),
            forgotten: forgotten.get(),
            kept_rows: kept_rows.get(),
            kept_bytes: kept_bytes.get(),
        })
    }
}

/// The gauges of a node.
#[derive(Debug)]
pub(crate) struct NodeGauges {
    /// Records that came for a subscription, whatever became of them.
    pub(crate) published: Gauge,
    /// Those for which its query's condition did not hold.
    pub(crate) filtered: Gauge,
    pub(crate) records_in: Gauge,
    pub(crate) records_out: Gauge,
    pub(crate) batches_in: Gauge,
    pub(crate) bytes_in: Gauge,
    pub(crate) bytes_out: Gauge,
    pub(crate) row_errors: Gauge,
    /// Records that its handler took into state, and those that came too late for it.
    pub(crate) taken: Gauge,
    pub(crate) late: Gauge,
    /// Keys, groups and rows that its handler had to forget for want of room.
    pub(crate) forgotten: Gauge,
    /// Rows between the stages of its query that could not be computed further.
    pub(crate) stage_errors: Gauge,
    /// The bytes that its state takes.
    pub(crate) state_bytes: Gauge,
    /// The counts of the operators of its query, where it keeps state.
    pub(crate) operators: OperatorGauges,
    /// Of the batches whose processor time was measured: records, number, and ns.
    pub(crate) timed_records: Gauge,
    pub(crate) timed_batches: Gauge,
    pub(crate) timed_ns: Gauge,
    /// Time of all batches, in ns: measured, or else estimated.
    pub(crate) busy_ns: Gauge,
    /// Batches that took longer than the budget.
    pub(crate) overruns: Gauge,
    /// Panics, and batches from which it did not return.
    pub(crate) faults: Gauge,
    /// Batches whose records were left out, since the context was behind.
    pub(crate) batches_shed: Gauge,
    /// It processes one record in this number, as of its last batch.
    pub(crate) one_in: Gauge,
    /// Batches that wait for it.
    pub(crate) queued: Gauge,
    dropped: [Gauge; LOSSES.len()],
    /// The row errors that its handler has a reason for, by that.
    row_errors_by: [Gauge; RowError::ALL.len()],
    /// The first row error, in words.
    first_row_error: OnceLock<String>,
    /// The records that a conversion before it could not make because an expression failed, by that; they are among its losses.
    conversion_errors_by: [Gauge; RowError::ALL.len()],
    /// The first of these, in words.
    first_conversion_error: OnceLock<String>,
    times: [Gauge; BUCKETS],
}

impl Default for NodeGauges {
    fn default() -> NodeGauges {
        NodeGauges {
            published: Gauge::default(),
            filtered: Gauge::default(),
            records_in: Gauge::default(),
            records_out: Gauge::default(),
            batches_in: Gauge::default(),
            bytes_in: Gauge::default(),
            bytes_out: Gauge::default(),
            row_errors: Gauge::default(),
            taken: Gauge::default(),
            late: Gauge::default(),
            forgotten: Gauge::default(),
            stage_errors: Gauge::default(),
            state_bytes: Gauge::default(),
            operators: OperatorGauges::default(),
            timed_records: Gauge::default(),
            timed_batches: Gauge::default(),
            timed_ns: Gauge::default(),
            busy_ns: Gauge::default(),
            overruns: Gauge::default(),
            faults: Gauge::default(),
            batches_shed: Gauge::default(),
            one_in: Gauge::default(),
            queued: Gauge::default(),
            dropped: std::array::from_fn(|_| Gauge::default()),
            row_errors_by: std::array::from_fn(|_| Gauge::default()),
            first_row_error: OnceLock::new(),
            conversion_errors_by: std::array::from_fn(|_| Gauge::default()),
            first_conversion_error: OnceLock::new(),
            times: std::array::from_fn(|_| Gauge::default()),
        }
    }
}

impl NodeGauges {
    #[inline]
    pub(crate) fn lose(&self, why: Loss, records: u64) {
        // The contexts that feed it also count here the records that it has no room for.
        self.dropped[why as usize].0.fetch_add(records, Ordering::Relaxed);
    }

    /// Records lost for one reason.
    pub(crate) fn lost(&self, why: Loss) -> u64 {
        self.dropped[why as usize].get()
    }

    /// Records lost for any reason but row errors.
    #[inline]
    pub(crate) fn lost_in_all(&self) -> u64 {
        self.dropped.iter().map(Gauge::get).sum()
    }

    /// The sum of what a handler's node has lost for the subscriptions that it works for: all but the rows that none of them took.
    #[inline]
    pub(crate) fn lost_at_handler(&self) -> u64 {
        let dropped = self.dropped.iter().enumerate().filter(|(why, _)| *why != Loss::Unclaimed as usize);
        dropped.map(|(_, gauge)| gauge).chain(&self.row_errors_by).map(Gauge::get).sum()
    }

    /// Takes over what a handler has counted of its state.
    #[inline]
    pub(crate) fn note_state(&self, handler: &dyn Handler) {
        self.state_bytes.set(handler.state_bytes() as u64);
        self.operators.note(handler);
    }

    /// Counts what a run has filtered out, taken into state, found too late and forgotten; its row errors, which are yet to be counted.
    #[inline]
    pub(crate) fn note_counts(&self, before: &HandlerCounters, after: &HandlerCounters) -> u64 {
        self.filtered.add(after.filtered_since(before));
        // In the account of a subscription each record that was sent is one that came.
        self.published.add(after.surplus.wrapping_sub(before.surplus));
        self.taken.add(after.taken.wrapping_sub(before.taken));
        self.late.add(after.late.wrapping_sub(before.late));
        self.forgotten.add(after.forgotten.wrapping_sub(before.forgotten));
        self.stage_errors.add(after.stage_errors.wrapping_sub(before.stage_errors));
        after.row_errors.wrapping_sub(before.row_errors)
    }

    /// Counts the row errors of a run.
    #[cold]
    pub(crate) fn note_row_errors(&self, records: u64, handler: &mut dyn Handler) {
        self.row_errors.add(records);
        let mut counts = handler.take_row_errors();
        let known: u64 = counts.iter().sum();
        counts[RowError::Other as usize] += records.saturating_sub(known);
        self.row_errors_by.iter().zip(counts).for_each(|(gauge, more)| gauge.add(more));
        if self.first_row_error.get().is_none()
            && let Some(text) = handler.refusal()
        {
            let _ = self.first_row_error.set(text);
        }
    }

    /// Row errors of one kind.
    pub(crate) fn row_errors_of(&self, error: RowError) -> u64 {
        self.row_errors_by[error as usize].get()
    }

    /// The first row error, in words.
    pub(crate) fn first_row_error(&self) -> Option<&str> {
        self.first_row_error.get().map(String::as_str)
    }

    /// Row errors of each kind.
    pub(crate) fn row_errors_by(&self) -> RowErrorCounts {
        std::array::from_fn(|at| self.row_errors_by[at].get())
    }

    /// Counts the records that a conversion before it could not make because an expression failed; `first` is the first of them, in
    /// words. Those of no known kind are not counted here.
    #[cold]
    pub(crate) fn note_conversion_errors(&self, counts: &RowErrorCounts, first: Option<&str>) {
        let known = RowError::ALL.into_iter().filter(|error| *error != RowError::Other);
        known.for_each(|error| self.conversion_errors_by[error as usize].add(counts[error as usize]));
        if let Some(first) = first {
            self.first_conversion_error.get_or_init(|| first.to_owned());
        }
    }

    /// Records that a conversion before it could not make, by the kind of the expression's error.
    pub(crate) fn conversion_errors_of(&self, error: RowError) -> u64 {
        self.conversion_errors_by[error as usize].get()
    }

    /// The first of these, in words.
    pub(crate) fn first_conversion_error(&self) -> Option<&str> {
        self.first_conversion_error.get().map(String::as_str)
    }

    /// The reasons that occurred.
    pub(crate) fn losses(&self) -> Vec<(String, u64)> {
        let mut losses: Vec<(String, u64)> = LOSSES
            .iter()
            .zip(&self.dropped)
            .map(|(name, gauge)| ((*name).to_owned(), gauge.get()))
            .filter(|(_, records)| *records > 0)
            .collect();
        losses.sort();
        losses
    }

    /// Notes that a batch of `records` records took `ns`.
    #[inline]
    pub(crate) fn time(&self, records: u64, ns: u64) {
        self.timed_records.add(records);
        self.timed_batches.add(1);
        self.timed_ns.add(ns);
        if let Some(gauge) = self.times.get(bucket(ns / records.max(1))) {
            gauge.add(records);
        }
    }

    /// The time that this part (0 to 1) of the records whose time was taken stay below, in ns; to a quarter of a power
    /// of two.
    pub(crate) fn quantile_ns(&self, part: f64) -> u64 {
        let counts: Vec<u64> = self.times.iter().map(Gauge::get).collect();
        let all: u64 = counts.iter().sum();
        let mut left = (all as f64 * part).ceil() as u64;
        for (bucket, count) in counts.iter().enumerate() {
            if left <= *count && *count > 0 {
                return upper_end_ns(bucket);
            }
            left = left.saturating_sub(*count);
        }
        0
    }
}

/// The bucket of a time.
fn bucket(ns: u64) -> usize {
    let ns = ns.max(1);
    let power = ns.ilog2() as usize;
    let quarter = if power >= 2 { (ns >> (power - 2)) as usize & 3 } else { 0 };
    (4 * power + quarter).min(BUCKETS - 1)
}

/// The upper bound of a bucket's times.
fn upper_end_ns(bucket: usize) -> u64 {
    let (power, quarter) = (bucket / 4, bucket as u64 % 4);
    if power >= 2 { (1 << power) + ((quarter + 1) << (power - 2)) } else { 2 << power }
}

/// The gauges of a context.
#[derive(Debug, Default)]
pub(crate) struct ContextGauges {
    pub(crate) turns: Gauge,
    pub(crate) sleeps: Gauge,
    /// Processor time in which it worked, in ns.
    pub(crate) busy_ns: Gauge,
    /// The part of it that went into handlers, as far as it was measured or can be estimated from that, in ns.
    pub(crate) handler_ns: Gauge,
    /// Batches that its nodes took.
    pub(crate) batches: Gauge,
    /// Batches that had waited for it too long.
    pub(crate) delayed: Gauge,
    pub(crate) records_in: Gauge,
    pub(crate) bytes_in: Gauge,
    pub(crate) bytes_out: Gauge,
    /// Bytes that the device received and sent, at the context that has it.
    pub(crate) network_bytes: Gauge,
    /// Time from a batch's arrival until its handler was done with it.
    pub(crate) batch_latency: Histogram,
    /// Time that a batch waited in a queue.
    pub(crate) batch_wait: Histogram,
    pub(crate) queued: Gauge,
    pub(crate) buffers_in_use: Gauge,
    pub(crate) replaced: Gauge,
    /// Panics of its thread outside of handlers.
    pub(crate) panics: Gauge,
    /// One more than the node whose handler runs now; 0: none.
    pub(crate) running: Gauge,
    /// How long that node's handler may be without progress, in ns; 0: as long as any.
    pub(crate) stuck_after_ns: Gauge,
    /// Its thread, as the system numbers it.
    pub(crate) thread: Gauge,
    /// 1 while its thread sleeps until something comes.
    pub(crate) asleep: Gauge,
    /// Clients that are attached to it.
    pub(crate) clients: Gauge,
    /// How many of its next turns are to panic, for tests.
    #[cfg(test)]
    pub(crate) wanted_panics: Gauge,
    /// How many of its next recoveries from a panic are to panic, for tests.
    #[cfg(test)]
    pub(crate) wanted_bad_recoveries: Gauge,
    /// How many of its next streams are to panic as their planning is resumed, for tests.
    #[cfg(test)]
    pub(crate) wanted_bad_resumptions: Gauge,
    /// How many next threads of it the system is to refuse, for tests.
    #[cfg(test)]
    pub(crate) wanted_refusals: Gauge,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_below_their_buckets_upper_ends() {
        for ns in (0..5000).chain([1 << 20, (1 << 30) + 12_345, u64::MAX]) {
            let bucket = bucket(ns);
            assert!(bucket < BUCKETS);
            if bucket < BUCKETS - 1 {
                assert!(ns < upper_end_ns(bucket), "{ns}");
                assert!(bucket == 0 || ns >= upper_end_ns(bucket - 1) || ns < 4, "{ns}");
            }
        }
    }

    #[test]
    fn a_histogram_has_every_time_in_one_range() {
        let times = [0, 1, 1023, 1024, 1025, 2048, 2049, 1 << 33, (1 << 33) + 1, u64::MAX];
        for ns in times {
            let histogram = Histogram::default();
            histogram.note(ns, 3);
            let info = histogram.info();
            assert_eq!((info.count(), info.above), (3, if ns > 1 << 33 { 3 } else { 0 }), "{ns}");
            if let Some(at) = info.buckets.iter().position(|bucket| bucket.count > 0) {
                assert!(ns <= info.buckets[at].up_to_ns && (at == 0 || ns > info.buckets[at - 1].up_to_ns), "{ns}");
            }
        }
        let histogram = Histogram::default();
        assert_eq!(histogram.info().quantile_ns(0.5), None);
        for (ns, number) in [(1000, 98), (5000, 1), (u64::MAX / 2, 1)] {
            histogram.note(ns, number);
        }
        let info = histogram.info();
        assert_eq!([0.5, 0.99, 1.0].map(|part| info.quantile_ns(part)), [Some(1024), Some(8192), None]);
        assert_eq!(info.sum_ns, u64::MAX / 2 + 103_000);
    }

    #[test]
    fn quantiles_are_read_off_the_histogram() {
        let gauges = NodeGauges::default();
        assert_eq!(gauges.quantile_ns(0.99), 0);
        (0..99).for_each(|_| gauges.time(10, 1000));
        gauges.time(10, 1_000_000);
        assert!((100..=128).contains(&gauges.quantile_ns(0.5)), "{}", gauges.quantile_ns(0.5));
        assert!(gauges.quantile_ns(0.999) > 100_000);
        assert_eq!((gauges.timed_records.get(), gauges.timed_batches.get()), (1000, 100));
    }
}
