//! The expected cost of a handler, from a few short runs over a sample of the records that it is to work on.
//!
//! A batch of `n` records takes `ns_per_batch + n * mean_ns`: a line through what batches of two sizes take. Before each
//! run other memory is gone through, since at work a handler's batch comes behind other work, which has taken its place
//! in the processor's first-level cache. The measure is the time of the processor that the thread had; of the runs of a
//! size the median counts.
//!
//! A processor that others use too is slower for a while, where their threads share its core by half: far longer than an estimate
//! takes, and far shorter than a handler works. So what the passes through the other memory took, always the same work, is
//! held against what they took in the latest estimates, and the estimate is that of a processor of the usual speed.
//!
//! The real cost of the handler is measured where it runs.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::{Mutex, PoisonError};

use crossdock_format::Format;
use crossdock_mailbox::{Batch, Buffer, Pool, PoolConfig, Selection, Slice, Span};

use crate::handler::{Handler, Sink, Verdict};

/// The expected cost of a handler.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    /// The cost of a batch beside its records, in ns, where other work came before it.
    pub ns_per_batch: f64,
    /// The cost of a record, on average, in ns.
    pub mean_ns: f64,
    /// The most that 99 of 100 records cost, in ns, and at least the mean.
    pub tail_ns: f64,
    /// Records that leave for each one that comes in.
    pub out_records_per_record: f64,
    /// Bytes of records that leave for each record that comes in.
    pub out_bytes_per_record: f64,
    /// Records in the sample.
    pub records: u64,
    /// Batches that were run.
    pub batches: u64,
}

impl Measured {
    /// The cost of a batch of `records` records, in ns.
    pub fn ns_of_batch(&self, records: f64) -> f64 {
        self.ns_per_batch + self.mean_ns * records
    }
}

/// Runs of each size, and how many a slow handler is to have at least. The more there are, the better the processor knows the
/// handler's branches, as it does at work.
const RUNS: usize = 200;
const LEAST_RUNS: usize = 15;
/// The time of the processor after which no further run begins, in ns; as much again may go into what leaves, and into the
/// tail.
const LONGEST_NS: f64 = 6e6;
/// Bytes of other memory that is gone through before each run: some times a first-level cache.
const OTHER_BYTES: usize = 128 << 10;
/// Records that are run one by one, for the tail, and how often: what is slow in one round only was interrupted.
const TAIL_RECORDS: usize = 256;
const TAIL_ROUNDS: usize = 3;
/// Bytes of a batch's records at most: what a super-packet holds.
const BUFFER_BYTES: usize = 63_000;

/// Estimates what the handlers that `make` makes cost on `sample`: whole records of this format, back to back, which may
/// have come from anywhere. At work a batch has `records_per_batch` records; batches of an eighth of that are run too,
/// so what is said of smaller ones holds. It takes some ms, and longer only where a few batches do.
///
/// `None` if there is no record in the sample, or no memory.
pub fn measure(
    make: &mut dyn FnMut() -> Box<dyn Handler>,
    format: &Format,
    sample: &[u8],
    records_per_batch: usize,
) -> Option<Measured> {
    let mut run = SampleRun::over(Records::of(format, sample)?);
    let mut handler = make();
    let began = processor_ns();
    // One record first, also to warm up: a slow handler is run on small batches only, or not again.
    let first_ns = run.timed(&mut *handler, 1);
    let fitting = (LONGEST_NS / LEAST_RUNS as f64 / first_ns.max(1.0)) as usize;
    let large = records_per_batch.clamp(1, run.records.places.len().min(fitting.max(1)));
    let small = (large / 8).max(1);
    let mut runs = [Vec::with_capacity(RUNS), Vec::with_capacity(RUNS)];
    for _ in 0..RUNS {
        if processor_ns() - began > LONGEST_NS {
            break;
        }
        for (size, ns) in [small, large].into_iter().zip(&mut runs) {
            ns.push(run.timed(&mut *handler, size));
        }
    }
    let speed = LATEST.lock().unwrap_or_else(PoisonError::into_inner).speed(quantile(&mut run.passes_ns, 0.5));
    let [ns_of_small, ns_of_large] = runs
        .map(|mut ns| if ns.is_empty() { first_ns * large as f64 } else { quantile(&mut ns, 0.5) })
        .map(|ns| ns * speed);
    let ns_per_record = match small < large {
        true => ((ns_of_large - ns_of_small) / (large - small) as f64).max(0.0),
        // Where there is but one size, all of it is the records'.
        false => ns_of_large / large as f64,
    };
    let mean_ns = ns_per_record.min(ns_of_large / large as f64);
    let ns_per_batch = (ns_of_large - mean_ns * large as f64).max(0.0);
    let out = run.outcome(&mut *handler, large, began + 2.0 * LONGEST_NS);
    let tail_ns = run.tail(make, began + 3.0 * LONGEST_NS) * speed - ns_per_batch;
    Some(Measured {
        ns_per_batch,
        mean_ns,
        tail_ns: tail_ns.max(mean_ns),
        out_records_per_record: out.records as f64 / out.records_in as f64,
        out_bytes_per_record: out.bytes as f64 / out.records_in as f64,
        records: run.records.in_sample,
        batches: run.batches,
    })
}

/// The time of a pass through the other memory in the latest estimates of the process.
static LATEST: Mutex<Latest> = Mutex::new(Latest(VecDeque::new()));

/// The passes of some estimates, in ns, the latest last.
struct Latest(VecDeque<f64>);

impl Latest {
    /// Estimates that are remembered.
    const MOST: usize = 31;

    /// How fast the processor is now, when a pass takes this long, as a share of its usual speed: that of the quarter of the
    /// estimates for which it was fastest, since it is slow for many in a row.
    fn speed(&mut self, pass_ns: f64) -> f64 {
        if self.0.len() == Self::MOST {
            self.0.pop_front();
        }
        self.0.push_back(pass_ns);
        let mut latest: Vec<f64> = self.0.iter().copied().collect();
        (quantile(&mut latest, 0.25) / pass_ns.max(1.0)).clamp(0.5, 2.0)
    }
}

/// A handler that is run, and where it leaves its records.
struct SampleRun {
    records: Records,
    /// The place that comes next.
    next: usize,
    batch: Batch,
    selection: Selection,
    out: Output,
    other: Vec<u8>,
    /// The time of each pass through that, in ns.
    passes_ns: Vec<f64>,
    batches: u64,
    /// The time of it that reading the processor's time takes.
    clock_ns: f64,
}

impl SampleRun {
    fn over(records: Records) -> SampleRun {
        let mut reads = [0.0; 64];
        reads.fill_with(|| -(processor_ns() - processor_ns()));
        SampleRun {
            records,
            next: 0,
            batch: Batch::new(),
            selection: Selection::default(),
            out: Output::default(),
            other: vec![1; OTHER_BYTES],
            passes_ns: Vec::with_capacity(2 * RUNS + 1),
            batches: 0,
            clock_ns: quantile(&mut reads, 0.5),
        }
    }

    /// The time of a batch of `size` records behind other work, in ns.
    fn timed(&mut self, handler: &mut dyn Handler, size: usize) -> f64 {
        let start = processor_ns();
        self.other.iter_mut().step_by(64).for_each(|byte| *byte = black_box(byte.wrapping_add(1)));
        self.passes_ns.push(processor_ns() - start);
        self.records.fill(&mut self.batch, &mut self.next, size);
        // A context has just checked them.
        black_box(self.batch.selected().flatten().fold(0u8, |all, byte| all ^ byte));
        let (ns, records) = (self.process(handler).0, self.batch.len());
        // The last ones of the sample may be fewer.
        ns * size as f64 / records.max(1) as f64
    }

    fn process(&mut self, handler: &mut dyn Handler) -> (f64, Verdict) {
        self.batches += 1;
        self.selection.select_all(self.batch.len());
        let start = processor_ns();
        let verdict = handler.process(black_box(&self.batch), &mut self.selection, &mut self.out);
        // A batch that the handler lets through in part is copied, as at work.
        if matches!(verdict, Verdict::Forward | Verdict::HandOn) && !self.selection.is_all() {
            self.selection.iter().for_each(|index| self.out.push(self.batch.record(index)));
        }
        let ns = (processor_ns() - start - self.clock_ns).max(0.0);
        (ns, black_box(verdict))
    }

    /// The output for the sample, or for as much of it as is run until then.
    fn outcome(&mut self, handler: &mut dyn Handler, size: usize, until: f64) -> Output {
        self.out = Output::default();
        self.next = 0;
        let (mut records_in, wanted) = (0, self.records.in_sample as usize);
        while records_in < wanted && (records_in == 0 || processor_ns() < until) {
            self.records.fill(&mut self.batch, &mut self.next, size.min(wanted - records_in));
            let (_, verdict) = self.process(handler);
            if matches!(verdict, Verdict::Forward | Verdict::HandOn) && self.selection.is_all() {
                self.out.records += self.batch.len() as u64;
                self.out.bytes += self.batch.payload_bytes() as u64;
            }
            records_in += self.batch.len();
        }
        Output { records_in: records_in as u64, ..std::mem::take(&mut self.out) }
    }

    /// The most that 99 of 100 records cost, in ns; 0 if there is no time left to find out. Handlers of the same beginning
    /// go over the same records, and of each record the fastest time counts.
    fn tail(&mut self, make: &mut dyn FnMut() -> Box<dyn Handler>, until: f64) -> f64 {
        let mut fastest = vec![f64::INFINITY; TAIL_RECORDS.min(self.records.places.len())];
        for _ in 0..TAIL_ROUNDS {
            let mut handler = make();
            self.next = 0;
            for fastest in &mut fastest {
                if processor_ns() > until {
                    break;
                }
                self.records.fill(&mut self.batch, &mut self.next, 1);
                *fastest = fastest.min(self.process(&mut *handler).0);
            }
        }
        fastest.retain(|ns| ns.is_finite());
        quantile(&mut fastest, 0.99)
    }
}

/// The processor time that this thread has had, in ns.
fn processor_ns() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn quantile(samples: &mut [f64], share: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let at = (samples.len().saturating_sub(1) as f64 * share).round() as usize;
    samples.get(at).copied().unwrap_or_default()
}

/// Takes rows as an output would: into one buffer, again and again.
#[derive(Default)]
struct Output {
    rows: Vec<u8>,
    records: u64,
    bytes: u64,
    /// Records that came in for these.
    records_in: u64,
}

impl Sink for Output {
    fn push(&mut self, record: &[u8]) {
        if self.rows.len() + record.len() > BUFFER_BYTES {
            self.rows.clear();
        }
        self.rows.extend_from_slice(record);
        self.records += 1;
        self.bytes += record.len() as u64;
    }
}

/// The sample in one buffer, several times where it is small.
struct Records {
    buffer: Buffer,
    /// Every record's place there.
    places: Vec<Span>,
    /// Records in the sample itself.
    in_sample: u64,
    format: u64,
}

impl Records {
    fn of(format: &Format, sample: &[u8]) -> Option<Records> {
        let mut spans: Vec<(u32, u32)> = Vec::new();
        // The part before a record that is wrong is good.
        let _ = format.check_records(sample, |start, len| spans.push((start, len)));
        let end = spans.last().map(|(start, len)| (start + len) as usize)?;
        let times = (BUFFER_BYTES / end.max(1)).max(1);
        let mut pool = Pool::new(PoolConfig { classes: vec![(times * end, 1)] }).ok()?;
        let mut buffer = pool.alloc(times * end)?;
        let mut places = Vec::with_capacity(times * spans.len());
        for (number, piece) in buffer.get_mut(..times * end)?.chunks_exact_mut(end).enumerate() {
            piece.copy_from_slice(sample.get(..end)?);
            let shift = (number * end) as u32;
            places.extend(spans.iter().map(|(start, len)| Span { slice: 0, start: start + shift, len: *len }));
        }
        let in_sample = spans.len() as u64;
        Some(Records { buffer: buffer.freeze(), places, in_sample, format: format.id().0 })
    }

    /// Fills a batch with up to `size` records, from a place on; after the last record the first comes again.
    fn fill(&self, batch: &mut Batch, next: &mut usize, size: usize) {
        batch.clear();
        batch.format = self.format;
        if *next >= self.places.len() {
            *next = 0;
        }
        batch.records.extend(self.places.iter().skip(*next).take(size));
        let (start, end) = match &batch.records[..] {
            [first, .., last] => (first.start, last.start + last.len),
            [only] => (only.start, only.start + only.len),
            [] => (0, 0),
        };
        let slice = Slice { buffer: 0, start, len: end - start, records: batch.records.len() as u32 };
        let pushed = batch.push_buffer(self.buffer.clone()).and_then(|_| batch.push_slice(slice));
        debug_assert!(pushed.is_ok(), "one buffer and one slice fit, and lie where they were put");
        batch.select_all();
        *next += batch.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_from_a_slow_moment_is_that_of_the_usual_speed() {
        let mut latest = Latest(VecDeque::new());
        assert_eq!([1000.0; 9].map(|pass_ns| latest.speed(pass_ns)), [1.0; 9]);
        assert_eq!([2000.0, 1000.0, 10_000.0].map(|pass_ns| latest.speed(pass_ns)), [0.5, 1.0, 0.5]);
        // A lasting speed is usual.
        let speeds: Vec<f64> = (0..=Latest::MOST).map(|_| latest.speed(2000.0)).collect();
        assert_eq!((speeds.last(), latest.0.len()), (Some(&1.0), Latest::MOST));
    }
}
