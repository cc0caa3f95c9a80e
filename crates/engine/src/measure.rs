//! What a handler costs, measured on a sample of the records that it is to work on.
//!
//! A batch of `n` records takes `ns_per_batch + n * mean_ns`: a line through what batches of two sizes take. Time that
//! something else took is in some rounds and not in others, so the rounds of both sizes alternate, and of each size the
//! lower quartile counts. The tail is measured one record at a time.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crossdock_format::Format;
use crossdock_mailbox::{Batch, Buffer, Pool, PoolConfig, Selection, Slice, Span};

use crate::handler::{Handler, Sink, Verdict};

/// What a handler costs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    /// What a batch costs beside its records, in ns.
    pub ns_per_batch: f64,
    /// What a record costs, on average, in ns.
    pub mean_ns: f64,
    /// What 99 of 100 records cost at most, in ns, and at least the mean.
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
    /// What a batch of so many records costs, in ns.
    pub fn ns_of_batch(&self, records: f64) -> f64 {
        self.ns_per_batch + self.mean_ns * records
    }
}

/// Bytes of a batch's records: what a super-packet holds.
const BUFFER_BYTES: usize = 63_000;
/// Bytes of all records that it is run over. A context has just checked the records that a handler gets, so they lie in
/// its second-level cache, which is as large or larger, and not in the first; and the processor should not know by heart
/// which of them pass.
const SAMPLE_BYTES: usize = 1 << 20;
/// Rounds of each size.
const ROUNDS: usize = 9;
/// What one round of one size may take; all of them, 18 ms.
const ROUND_NS: f64 = 1e6;
/// Rounds one record at a time, of so many records, and what one may take.
const TAIL_ROUNDS: usize = 5;
const TAIL_RECORDS: usize = 1000;
const TAIL_ROUND_NS: f64 = 0.5e6;
/// What a record of a handler costs that is not run in larger batches: a batch's own share does not matter there.
const SLOW_NS: f64 = 20_000.0;
/// No round begins later.
const LONGEST: Duration = Duration::from_millis(60);

/// Measures what the handlers that `make` makes cost on `sample`: whole records of this format, back to back, which may
/// have come from anywhere. At work a batch has `records_per_batch` records; batches of an eighth of that are measured
/// too, so what is said of smaller ones holds.
///
/// Takes some 20 ms, and at most 100 ms as long as the handler takes no more than a few ms for a record; and 2 MiB. `None`
/// if there is no record in the sample, or no memory.
pub fn measure(
    make: &mut dyn FnMut() -> Box<dyn Handler>,
    format: &Format,
    sample: &[u8],
    records_per_batch: usize,
) -> Option<Measured> {
    let began = Instant::now();
    let mut handler = make();
    let records = Records::of(format, sample)?;
    let mut run = Run { selection: Selection::default(), out: Buffered::default(), batches: 0 };
    let singles = records.batches(1, TAIL_RECORDS);

    // How long a record takes, to see how many can be run; and to warm up.
    let probe_ns = run.probe(&mut *handler, &singles);
    let fitting = |ns: f64| (ns / probe_ns.max(1.0)) as usize;
    let mut large = records_per_batch.clamp(1, records.in_buffer);
    let mut small = (large / 8).max(1);
    if large == 1 {
        large = records.in_buffer.min(4);
    }
    if probe_ns > SLOW_NS {
        (small, large) = (1, 1);
    }
    let most = fitting(ROUND_NS).max(large);
    let sizes = [small, large].map(|size| records.batches(size, most));
    let mut rounds = [[0.0; ROUNDS]; 2];
    let mut done = 0;
    while done < ROUNDS && (done == 0 || began.elapsed() < LONGEST) {
        for (batches, rounds) in sizes.iter().zip(&mut rounds) {
            rounds[done] = run.round(&mut *handler, batches);
        }
        done += 1;
    }
    let [ns_of_small, ns_of_large] = rounds.map(|mut rounds| quantile(&mut rounds[..done], 0.25));
    let ns_per_batch = match small < large {
        true => ((ns_of_small - ns_of_large) / (1.0 / small as f64 - 1.0 / large as f64)).max(0.0),
        false => 0.0,
    };
    let mean_ns = (ns_of_large - ns_per_batch / large as f64).max(0.0);
    let (records_in, out) = (sizes[1].iter().map(Batch::len).sum::<usize>(), run.outcome(&mut *handler, &sizes[1]));
    let singles = &singles[..singles.len().min(fitting(TAIL_ROUND_NS).max(1))];
    let tail_ns = run.tail(make, singles, began) - ns_per_batch;
    Some(Measured {
        ns_per_batch,
        mean_ns,
        tail_ns: tail_ns.max(mean_ns),
        out_records_per_record: out.records as f64 / records_in as f64,
        out_bytes_per_record: out.bytes as f64 / records_in as f64,
        records: records.in_sample,
        batches: run.batches,
    })
}

/// What is run, and where it leaves its records.
struct Run {
    selection: Selection,
    out: Buffered,
    batches: u64,
}

impl Run {
    fn process(&mut self, handler: &mut dyn Handler, batch: &Batch) -> Verdict {
        self.selection.select_all(batch.len());
        self.batches += 1;
        black_box(handler.process(black_box(batch), &mut self.selection, &mut self.out))
    }

    /// What a record costs, in ns, after some hundred records or some milliseconds.
    fn probe(&mut self, handler: &mut dyn Handler, singles: &[Batch]) -> f64 {
        let began = Instant::now();
        let mut fastest = f64::INFINITY;
        for piece in singles.chunks(16).take(32) {
            fastest = fastest.min(self.round(handler, piece));
            if began.elapsed() > Duration::from_millis(3) {
                break;
            }
        }
        fastest
    }

    /// What a record costs, in ns, when it comes in these batches.
    fn round(&mut self, handler: &mut dyn Handler, batches: &[Batch]) -> f64 {
        let began = Instant::now();
        for batch in batches {
            self.process(handler, batch);
        }
        let records: usize = batches.iter().map(Batch::len).sum();
        began.elapsed().as_nanos() as f64 / records as f64
    }

    /// What leaves for these batches.
    fn outcome(&mut self, handler: &mut dyn Handler, batches: &[Batch]) -> Buffered {
        let before = std::mem::take(&mut self.out);
        for batch in batches {
            if self.process(handler, batch) == Verdict::Forward {
                for index in &self.selection {
                    self.out.records += 1;
                    self.out.bytes += u64::from(batch.records[index].len);
                }
            }
        }
        std::mem::replace(&mut self.out, before)
    }

    /// What 99 of 100 records cost at most, in ns. Handlers of the same beginning go over the same records, and of each
    /// record the fastest time counts: what is slow in one round only was interrupted.
    fn tail(&mut self, make: &mut dyn FnMut() -> Box<dyn Handler>, singles: &[Batch], began: Instant) -> f64 {
        let mut fastest = vec![f64::INFINITY; singles.len()];
        for round in 0..TAIL_ROUNDS {
            if round > 0 && began.elapsed() > LONGEST {
                break;
            }
            let mut handler = make();
            // To warm up; the same for each.
            for batch in singles.iter().take(singles.len() / 10) {
                self.process(&mut *handler, batch);
            }
            for (batch, fastest) in singles.iter().zip(&mut fastest) {
                let start = Instant::now();
                self.process(&mut *handler, batch);
                *fastest = fastest.min(start.elapsed().as_nanos() as f64);
            }
        }
        (quantile(&mut fastest, 0.99) - clock_ns()).max(0.0)
    }
}

/// What asking for the time twice takes.
fn clock_ns() -> f64 {
    let mut samples = [0.0; 64];
    for sample in &mut samples {
        let start = Instant::now();
        *sample = black_box(start.elapsed().as_nanos() as f64);
    }
    quantile(&mut samples, 0.5)
}

fn quantile(samples: &mut [f64], share: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let at = (samples.len().saturating_sub(1) as f64 * share).round() as usize;
    samples.get(at).copied().unwrap_or_default()
}

/// Takes rows as an output would: into one buffer, again and again.
#[derive(Default)]
struct Buffered {
    rows: Vec<u8>,
    records: u64,
    bytes: u64,
}

impl Sink for Buffered {
    fn push(&mut self, record: &[u8]) {
        if self.rows.len() + record.len() > BUFFER_BYTES {
            self.rows.clear();
        }
        self.rows.extend_from_slice(record);
        self.records += 1;
        self.bytes += record.len() as u64;
    }
}

/// The sample, several times, in as many buffers as it takes to fill [`SAMPLE_BYTES`], in another order each time.
struct Records {
    buffers: Vec<Buffer>,
    /// Every record: the buffer that it is in, and its place there.
    places: Vec<(usize, Span)>,
    /// Records in the sample itself.
    in_sample: u64,
    /// Records in the fullest buffer.
    in_buffer: usize,
    format: u64,
}

impl Records {
    fn of(format: &Format, sample: &[u8]) -> Option<Records> {
        let mut spans: Vec<(u32, u32)> = Vec::new();
        // What stands before a record that is wrong is good.
        let _ = format.check_records(sample, |start, len| spans.push((start, len)));
        let in_sample = spans.len() as u64;
        let longest = spans.iter().map(|(_, len)| *len as usize).max()?;
        let room = BUFFER_BYTES.max(longest);
        let count = SAMPLE_BYTES.div_ceil(room);
        let mut pool = Pool::new(PoolConfig { classes: vec![(room, count)] }).ok()?;
        let (mut buffers, mut places, mut in_buffer) = (Vec::new(), Vec::new(), 0);
        let (mut order, mut next) = (Shuffled::default(), 0);
        for number in 0..count {
            let (mut buffer, mut end, first) = (pool.alloc(room)?, 0, places.len());
            loop {
                if next % spans.len() == 0 {
                    order.shuffle(&mut spans);
                }
                let (start, len) = spans[next % spans.len()];
                let (start, len) = (start as usize, len as usize);
                if end + len > room {
                    break;
                }
                buffer[end..end + len].copy_from_slice(&sample[start..start + len]);
                places.push((number, Span { slice: 0, start: end as u32, len: len as u32 }));
                end += len;
                next += 1;
            }
            in_buffer = in_buffer.max(places.len() - first);
            buffers.push(buffer.freeze());
        }
        Some(Records { buffers, places, in_sample, in_buffer, format: format.id().0 })
    }

    /// Batches of `size` records, or the rest of a buffer's, up to some `most` records in all.
    fn batches(&self, size: usize, most: usize) -> Vec<Batch> {
        let mut batches: Vec<Batch> = Vec::new();
        let mut records = 0;
        for in_buffer in self.places.chunk_by(|(one, _), (other, _)| one == other) {
            for piece in in_buffer.chunks(size) {
                if records >= most {
                    return batches;
                }
                let mut batch = Batch::new();
                batch.format = self.format;
                batch.records = piece.iter().map(|(_, span)| *span).collect();
                let (Some((number, first)), Some((_, last))) = (piece.first(), piece.last()) else { continue };
                let len = last.start + last.len - first.start;
                let slice = Slice { buffer: 0, start: first.start, len, records: piece.len() as u32 };
                if batch.push_buffer(self.buffers[*number].clone()).is_ok() && batch.push_slice(slice).is_ok() {
                    batch.select_all();
                    records += piece.len();
                    batches.push(batch);
                }
            }
        }
        batches
    }
}

/// Brings things into one order after another, the same ones each time.
#[derive(Default)]
struct Shuffled(u64);

impl Shuffled {
    fn shuffle<T>(&mut self, things: &mut [T]) {
        for left in (1..things.len()).rev() {
            // Knuth's linear congruential generator; its upper bits are good enough.
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            things.swap(left, (self.0 >> 33) as usize % (left + 1));
        }
    }
}
