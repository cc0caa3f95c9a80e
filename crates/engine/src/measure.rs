//! What a handler costs, measured on a sample of the records that it is to work on.
//!
//! A batch of `n` records takes `ns_per_batch + n * mean_ns`: a line through what batches of two sizes take. The rounds of
//! both sizes alternate, and go over the same records; of what the same few records took in each of them the mean
//! counts, without the least and the most, and without those at which others had the processor, so that what interrupted some
//! does not. The tail is measured one record at a time.
//!
//! These rounds find the processor warm: it has just run the same. At work it comes from elsewhere, from the network or from
//! other handlers, to each batch. What that costs is a part of `ns_per_batch`, and is seen by batches before each of which
//! something else is done.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crossdock_format::Format;
use crossdock_mailbox::{Batch, Buffer, Pool, PoolConfig, Selection, Slice, Span};

use crate::handler::{Handler, Sink, Verdict};

/// What a handler costs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    /// What a batch costs beside its records, in ns, where something else was run before it.
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
    /// What [`Workplace::elsewhere`] took, in ns; 0 where it was not run.
    pub elsewhere_ns: f64,
}

impl Measured {
    /// The cost of a batch of `records` records, in ns.
    pub fn ns_of_batch(&self, records: f64) -> f64 {
        self.ns_per_batch + self.mean_ns * records
    }
}

/// Bytes of a batch's records: what a super-packet holds.
const BUFFER_BYTES: usize = 63_000;
/// How much is done to find out.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Bytes of all records that it is run over.
    sample_bytes: usize,
    /// What it may take to see how long a record takes.
    probe: Duration,
    /// Rounds of each size that are wanted.
    rounds: usize,
    /// What one round of one size may take.
    round_ns: f64,
    /// Rounds one record at a time.
    tail_rounds: usize,
    /// What takes longer than this between two looks at the clock, in ns, is likely to be interrupted where others want the
    /// processor: the time that the thread has had counts. Asking for that costs a third of all where little is measured.
    long_ns: f64,
    /// No round begins when so much of the processor's time was had.
    longest: Duration,
}

impl Effort {
    /// 10 to 20 ms of the processor, and at most 80 ms as long as the handler takes no more than a few ms for a record; and 2 MiB. A
    /// context has just checked the records that a handler gets, so they lie in its second-level cache, which is as large or
    /// larger than this, and not in the first; and the processor should not know by heart which of them pass.
    pub const FULL: Effort = Effort {
        sample_bytes: 1 << 20,
        probe: Duration::from_millis(3),
        rounds: 11,
        round_ns: 0.25e6,
        tail_rounds: 5,
        long_ns: 0.0,
        longest: Duration::from_millis(16),
    };
    /// A quarter of that, with less certainty.
    pub const SHORT: Effort = Effort {
        sample_bytes: 256 << 10,
        probe: Duration::from_millis(1),
        rounds: 5,
        round_ns: 0.1e6,
        tail_rounds: 3,
        long_ns: LONG_NS,
        longest: Duration::from_millis(4),
    };
    /// About a millisecond, for one that many others wait behind. Without a tail, for which the mean stands.
    pub const BRIEF: Effort = Effort {
        sample_bytes: 128 << 10,
        probe: Duration::from_micros(100),
        rounds: 5,
        round_ns: 0.05e6,
        tail_rounds: 0,
        long_ns: LONG_NS,
        longest: Duration::from_micros(600),
    };
}

/// Batches that are run as at work after each round, and the part of them that counts: where what is done before them took the
/// least time, since in others the thread was interrupted.
const COLD_BATCHES: usize = 6;
const CALM_PART: f64 = 0.6;
/// What a batch takes at most that is run, in ns, and one that is run as at work: what is longer takes as much more as it is longer.
const LONGEST_BATCH_NS: f64 = 1e6;
const LONGEST_COLD_NS: f64 = 1e5;
/// Records of a round one record at a time, and what one may take.
const TAIL_RECORDS: usize = 1000;
/// Such rounds that are run however late it is: what interrupted one is not in all.
const LEAST_TAIL_ROUNDS: usize = 3;
const TAIL_ROUND_NS: f64 = 0.25e6;
/// The time that reading the clock takes is measured once per this many records.
const CLOCK_EVERY: usize = 8;
/// Records of the small batches that are run between two looks at the clock, and what they may take, in ns, where they are more
/// than a batch: little beside the time between two interruptions, and much beside a look at the clock.
const GROUP_RECORDS: usize = 64;
const GROUP_NS: f64 = 5000.0;
/// [`Effort::long_ns`] where little is measured: less is seldom interrupted.
const LONG_NS: f64 = 2.0 * GROUP_NS;
/// How many times longer than [`Effort::longest`] it may take until it has had that of the processor.
const SHARED_TIMES: u32 = 4;
/// Where this much more time has passed than the thread has had, in ns, others had the processor: more than the two clocks differ.
const AWAY_NS: f64 = 1000.0;
/// What a record of a handler costs that is not run in larger batches: a batch's own share does not matter there.
const SLOW_NS: f64 = 20_000.0;

/// Where a handler works, as far as it makes a difference: what its processor comes from, and where its rows go.
pub trait Workplace: Sink {
    /// Does what is done there between two batches, which is the same work each time: how long it takes tells how fast the
    /// processor is.
    fn elsewhere(&mut self);

    /// Brings the batch that comes next, which has these bytes.
    fn bring(&mut self, next: &[u8]);

    /// Lets some time pass between two rounds: who shares the processor's execution units, of another process or on the same host,
    /// may slow down all that is measured by half for some tens of ms.
    fn pause(&mut self) {}
}

/// Measures what the handlers that `make` makes cost on `sample`: whole records of this format, back to back, which may
/// have come from anywhere. At work a batch has `records_per_batch` records; batches of an eighth of that are measured
/// too, so what is said of smaller ones holds. Some are run as at the `workplace`; without one, what it costs to come to a
/// batch from elsewhere is not in the outcome.
///
/// `None` if there is no record in the sample, or no memory.
pub fn measure(
    effort: Effort,
    make: &mut dyn FnMut() -> Box<dyn Handler>,
    workplace: Option<&mut dyn Workplace>,
    format: &Format,
    sample: &[u8],
    records_per_batch: usize,
) -> Option<Measured> {
    let mut limit = Limit::begin(effort.longest);
    let mut handler = make();
    let mut run = Run::over(Records::of(format, sample, effort.sample_bytes)?, effort.long_ns);
    // How long a record takes, to see how many can be run; and to warm up.
    let probe_ns = run.probe(&mut *handler, effort.probe);
    let fitting = |ns: f64| (ns / probe_ns.max(1.0)) as usize;
    run.probe_ns = probe_ns;
    run.in_group = fitting(GROUP_NS).clamp(1, GROUP_RECORDS);
    let mut large = records_per_batch.clamp(1, run.records.in_buffer.min(fitting(LONGEST_BATCH_NS).max(1)));
    let mut small = (large / 8).max(1);
    if large == 1 {
        large = run.records.in_buffer.min(4);
    }
    if probe_ns > SLOW_NS {
        (small, large) = (1, 1);
        // It may be so by sleeping, in which no time of the processor is had.
        limit.latest = limit.longest;
    }
    let most = fitting(effort.round_ns).clamp(large, run.records.places.len().max(large));
    let cold = large.min(fitting(LONGEST_COLD_NS).max(1));
    // A slow one runs for so long that it does not matter where the processor comes from.
    let mut workplace = workplace.filter(|_| probe_ns <= SLOW_NS);
    let mut rounds = [Rounds::default(), Rounds::default()];
    let (mut cold_batches, mut elsewhere) = (Vec::new(), Vec::new());
    for _ in 0..effort.rounds {
        for (size, rounds) in [small, large].into_iter().zip(&mut rounds) {
            run.next = 0;
            run.round(&mut *handler, size, most);
            rounds.add(&run.groups);
        }
        if let Some(workplace) = &mut workplace {
            run.cold(&mut *handler, &mut **workplace, cold, (&mut cold_batches, &mut elsewhere));
            limit.rest(|| workplace.pause());
        }
        if limit.is_over() {
            break;
        }
    }
    let [ns_of_small, ns_of_large] = rounds.map(|rounds| rounds.ns());
    let warm_ns_per_batch = match small < large {
        true => ((ns_of_small - ns_of_large) / (1.0 / small as f64 - 1.0 / large as f64)).max(0.0),
        false => 0.0,
    };
    let mean_ns = (ns_of_large - warm_ns_per_batch / large as f64).max(0.0);
    let (records_in, out) = run.outcome(&mut *handler, large, most);
    let ns_per_batch = warm_ns_per_batch.max(of_calm(cold_batches) - mean_ns * cold as f64);
    let tail_ns = match effort.tail_rounds {
        0 => mean_ns,
        rounds => run.tail(make, fitting(TAIL_ROUND_NS).clamp(1, TAIL_RECORDS), rounds, &limit) - warm_ns_per_batch,
    };
    Some(Measured {
        ns_per_batch,
        mean_ns,
        tail_ns: tail_ns.max(mean_ns),
        out_records_per_record: out.records as f64 / records_in as f64,
        out_bytes_per_record: out.bytes as f64 / records_in as f64,
        records: run.records.in_sample,
        batches: run.batches,
        elsewhere_ns: undisturbed(&elsewhere, false).unwrap_or(0.0),
    })
}

/// How long measuring goes on.
struct Limit {
    began: Instant,
    /// The time of the processor that the thread had had then.
    had: Duration,
    /// So much of that is wanted, and it may take so long.
    longest: Duration,
    latest: Duration,
}

impl Limit {
    fn begin(longest: Duration) -> Limit {
        Limit { began: Instant::now(), had: processor_time(), longest, latest: longest * SHARED_TIMES }
    }

    /// Does something that does not count.
    fn rest(&mut self, rest: impl FnOnce()) {
        let start = Instant::now();
        rest();
        self.began += start.elapsed();
    }

    fn is_over(&self) -> bool {
        let passed = self.began.elapsed();
        passed > self.latest || (passed > self.longest && had_since(self.had) > self.longest.as_nanos() as f64)
    }
}

/// What something took.
#[derive(Clone, Copy, Debug)]
struct Took {
    ns: f64,
    /// Whether others had the processor meanwhile: coming back is in what it took then.
    was_away: bool,
}

/// What is run, and where it leaves its records.
struct Run {
    records: Records,
    /// The place that comes next.
    next: usize,
    /// Batches that are filled again and again, as at work, where they lie in the first-level cache.
    group: Vec<Batch>,
    selection: Selection,
    out: Buffered,
    batches: u64,
    clock_ns: f64,
    processor_clock_ns: f64,
    long_ns: f64,
    /// About what a record takes, in ns, once that is known; and how many are run between two looks at the clock.
    probe_ns: f64,
    in_group: usize,
    /// The groups of batches that the last round ran between two looks at the clock: what they took, in ns, and their records.
    groups: Vec<(Took, usize)>,
}

impl Run {
    fn over(records: Records, long_ns: f64) -> Run {
        let (selection, out) = (Selection::default(), Buffered::default());
        Run {
            records,
            next: 0,
            group: Vec::new(),
            selection,
            out,
            batches: 0,
            clock_ns: clock_ns(),
            processor_clock_ns: processor_clock_ns(),
            long_ns,
            probe_ns: 0.0,
            in_group: GROUP_RECORDS,
            groups: Vec::new(),
        }
    }

    /// Fills batches of `size` records, or the rest of a buffer's, with the records that come next: several while they are
    /// small and there are not as many as are wanted. How many batches, and records.
    fn fill(&mut self, size: usize, wanted: usize) -> (usize, usize) {
        let (mut batches, mut records) = (0, 0);
        while records == 0 || (records < wanted && records + size <= self.in_group) {
            if self.group.len() == batches {
                self.group.push(Batch::new());
            }
            let filled = self.records.fill(&mut self.group[batches], &mut self.next, size);
            (batches, records) = (batches + 1, records + filled);
        }
        (batches, records)
    }

    fn process(&mut self, handler: &mut dyn Handler, number: usize) -> Verdict {
        let batch = &self.group[number];
        self.selection.select_all(batch.len());
        self.batches += 1;
        process(handler, batch, &mut self.selection, &mut self.out)
    }

    /// What a record costs, in ns, after some hundred records or some milliseconds.
    fn probe(&mut self, handler: &mut dyn Handler, longest: Duration) -> f64 {
        let began = Instant::now();
        let mut fastest = f64::INFINITY;
        for _ in 0..32 {
            let records = if fastest > SLOW_NS { 1 } else { GROUP_RECORDS };
            self.round(handler, 1, records);
            fastest = self.groups.iter().map(|(took, records)| took.ns / *records as f64).fold(fastest, f64::min);
            if began.elapsed() > longest {
                break;
            }
        }
        fastest
    }

    /// Runs at least `most` records, in batches of `size`.
    fn round(&mut self, handler: &mut dyn Handler, size: usize, most: usize) {
        let mut done = 0;
        self.groups.clear();
        while done < most {
            let (batches, records) = self.fill(size, most - done);
            let had = (self.probe_ns * records as f64 > self.long_ns).then(processor_time);
            let start = Instant::now();
            for number in 0..batches {
                self.process(handler, number);
            }
            self.groups.push((self.ns_since(start, had), records));
            done += records;
        }
    }

    /// What was done since then took, in ns: of the processor's time, if that was asked for.
    fn ns_since(&self, start: Instant, had: Option<Duration>) -> Took {
        let wall_ns = start.elapsed().as_nanos() as f64 - self.clock_ns;
        let had_ns = had.map_or(wall_ns, |had| had_since(had) - self.processor_clock_ns);
        Took { ns: had_ns.min(wall_ns).max(0.0), was_away: wall_ns - had_ns > AWAY_NS }
    }

    /// How many records came in, and what leaves for them.
    fn outcome(&mut self, handler: &mut dyn Handler, size: usize, most: usize) -> (usize, Buffered) {
        let before = std::mem::take(&mut self.out);
        self.next = 0;
        let mut done = 0;
        while done < most {
            let (batches, records) = self.fill(size, most - done);
            for number in 0..batches {
                let verdict = self.process(handler, number);
                if matches!(verdict, Verdict::Forward | Verdict::HandOn) && self.selection.is_all() {
                    let batch = &self.group[number];
                    self.out.records += batch.len() as u64;
                    self.out.bytes += batch.payload_bytes() as u64;
                }
            }
            done += records;
        }
        (done, std::mem::replace(&mut self.out, before))
    }

    /// Some batches of `size` records at the workplace: how long what is done before one took, and what it costs, in ns; and how
    /// long elsewhere.
    fn cold(
        &mut self,
        handler: &mut dyn Handler,
        workplace: &mut dyn Workplace,
        size: usize,
        (all, elsewhere): (&mut Vec<(Duration, f64)>, &mut Vec<Took>),
    ) {
        for _ in 0..COLD_BATCHES {
            let (_, records) = self.fill(size, 1);
            let batch = &self.group[0];
            let (had, began) = (processor_time(), Instant::now());
            workplace.elsewhere();
            elsewhere.push(self.ns_since(began, Some(had)));
            workplace.bring(batch.slice(0));
            let between = began.elapsed();
            // The context has looked through them before.
            black_box(batch.selected().flatten().fold(0u8, |all, byte| all ^ byte));
            self.batches += 1;
            let (had, start) = (processor_time(), Instant::now());
            self.selection.select_all(batch.len());
            process(handler, batch, &mut self.selection, workplace);
            // The last ones of a buffer may be fewer.
            let took = self.ns_since(start, Some(had));
            all.push((if took.was_away { Duration::MAX } else { between }, took.ns * size as f64 / records as f64));
        }
    }

    /// What 99 of 100 records cost at most, in ns. Handlers of the same beginning go over the same records, and of each
    /// record the fastest time counts: what is slow in one round only was interrupted.
    fn tail(
        &mut self,
        make: &mut dyn FnMut() -> Box<dyn Handler>,
        records: usize,
        rounds: usize,
        limit: &Limit,
    ) -> f64 {
        self.in_group = GROUP_RECORDS;
        let mut fastest = vec![f64::INFINITY; records];
        let mut clock = vec![f64::INFINITY; records.div_ceil(CLOCK_EVERY)];
        // What others had the processor for is not in all rounds, but where a record takes long.
        let is_long = self.probe_ns > LONG_NS;
        let begin = || (is_long.then(processor_time), Instant::now());
        for round in 0..rounds {
            if round >= LEAST_TAIL_ROUNDS && limit.is_over() {
                break;
            }
            let mut handler = make();
            self.next = 0;
            // To warm up; the same for each.
            self.round(&mut *handler, 1, records / 10);
            for (piece, clock) in fastest.chunks_mut(GROUP_RECORDS).zip(clock.chunks_mut(GROUP_RECORDS / CLOCK_EVERY)) {
                self.fill(1, piece.len());
                for fastest in clock {
                    *fastest = fastest.min(since(black_box(begin())));
                }
                for (number, fastest) in piece.iter_mut().enumerate() {
                    let begun = begin();
                    self.process(&mut *handler, number);
                    *fastest = fastest.min(since(begun));
                }
            }
        }
        // What looking at the clock takes varies, too.
        (quantile(&mut fastest, 0.99) - quantile(&mut clock, 0.99)).max(0.0)
    }
}

/// Runs a batch. What the handler lets through in part is copied, as at work.
fn process(handler: &mut dyn Handler, batch: &Batch, selection: &mut Selection, out: &mut dyn Sink) -> Verdict {
    let verdict = handler.process(black_box(batch), selection, out);
    if matches!(verdict, Verdict::Forward | Verdict::HandOn) && !selection.is_all() {
        selection.iter().for_each(|index| out.push(batch.record(index)));
    }
    black_box(verdict)
}

/// What a batch costs before which nothing was interrupted, in ns; 0 without any.
fn of_calm(mut batches: Vec<(Duration, f64)>) -> f64 {
    batches.sort_by_key(|(between, _)| *between);
    let calm = batches.iter().take((batches.len() as f64 * CALM_PART) as usize);
    middle(&mut calm.map(|(_, ns)| *ns).collect::<Vec<_>>())
}

/// Rounds over the same records: what each group of them took in each round, in ns, and how many records it has.
#[derive(Default)]
struct Rounds(Vec<(Vec<Took>, usize)>);

impl Rounds {
    fn add(&mut self, groups: &[(Took, usize)]) {
        self.0.resize_with(groups.len(), Default::default);
        for ((all, of), (took, records)) in self.0.iter_mut().zip(groups) {
            all.push(*took);
            *of = *records;
        }
    }

    /// What a record cost, in ns: of those groups while at which nobody else had the processor in any round, if there are such.
    fn ns(&self) -> f64 {
        let of = |away: bool| {
            let known = self.0.iter().filter_map(|(took, records)| Some((undisturbed(took, away)?, *records)));
            known.fold((0.0, 0), |(ns, all), (took, records)| (ns + took, all + records))
        };
        let (ns, records) = Some(of(false)).filter(|(_, records)| *records > 0).unwrap_or_else(|| of(true));
        ns / records.max(1) as f64
    }
}

/// The processor time that this thread has had.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// The processor time that this thread has had since then, in ns.
fn had_since(had: Duration) -> f64 {
    processor_time().saturating_sub(had).as_nanos() as f64
}

/// What has been done since then took, in ns: of the processor's time, if that was asked for.
fn since((had, start): (Option<Duration>, Instant)) -> f64 {
    had.map_or_else(|| start.elapsed().as_nanos() as f64, had_since)
}

/// What asking for the time twice takes.
fn clock_ns() -> f64 {
    typical_ns(|| Instant::now().elapsed())
}

/// What asking for the processor time twice takes, of it.
fn processor_clock_ns() -> f64 {
    typical_ns(|| {
        let had = processor_time();
        processor_time().saturating_sub(had)
    })
}

fn typical_ns(take: impl Fn() -> Duration) -> f64 {
    let mut samples = [0.0; 64];
    samples.fill_with(|| black_box(take()).as_nanos() as f64);
    quantile(&mut samples, 0.5)
}

/// What something took that was done again and again: in the middle of the times at which others had the processor meanwhile, or
/// had not; none if there are no such.
fn undisturbed(all: &[Took], was_away: bool) -> Option<f64> {
    let mut ns: Vec<f64> = all.iter().filter(|took| took.was_away == was_away).map(|took| took.ns).collect();
    (!ns.is_empty()).then(|| middle(&mut ns))
}

/// The mean without a fifth of the samples at either end. Where the processor is slow for half of the time the median would be one
/// or the other.
fn middle(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    let end = samples.len() / 5;
    let middle = &samples[end..samples.len() - end];
    middle.iter().sum::<f64>() / middle.len().max(1) as f64
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

/// The sample, several times, in as many buffers as it takes to fill `bytes` bytes, in another order each time.
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
    fn of(format: &Format, sample: &[u8], bytes: usize) -> Option<Records> {
        let mut spans: Vec<(u32, u32)> = Vec::new();
        // What stands before a record that is wrong is good.
        let _ = format.check_records(sample, |start, len| spans.push((start, len)));
        let in_sample = spans.len() as u64;
        let longest = spans.iter().map(|(_, len)| *len as usize).max()?;
        let room = BUFFER_BYTES.max(longest);
        let count = bytes.div_ceil(room);
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

    /// Fills a batch with up to `size` records of one buffer, from a place on, behind the last of which the first comes
    /// again; how many those are.
    fn fill(&self, batch: &mut Batch, next: &mut usize, size: usize) -> usize {
        batch.clear();
        batch.format = self.format;
        if *next >= self.places.len() {
            *next = 0;
        }
        let number = self.places[*next].0;
        let places = self.places[*next..].iter().take(size).take_while(|(other, _)| *other == number);
        batch.records.extend(places.map(|(_, span)| *span));
        let (start, end) = match &batch.records[..] {
            [first, .., last] => (first.start, last.start + last.len),
            [only] => (only.start, only.start + only.len),
            [] => (0, 0),
        };
        let slice = Slice { buffer: 0, start, len: end - start, records: batch.records.len() as u32 };
        // One buffer and one slice always fit, and lie where they were put.
        let _ = batch.push_buffer(self.buffers[number].clone()).and_then(|_| batch.push_slice(slice));
        batch.select_all();
        *next += batch.len();
        batch.len()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_had_the_processor_for_is_not_what_records_cost() {
        let took = |ns| Took { ns, was_away: false };
        let away = |ns| Took { ns, was_away: true };
        let mut rounds = Rounds::default();
        // One group is undisturbed in one round only, the other in none.
        rounds.add(&[(took(400.0), 4), (away(70_000.0), 4)]);
        rounds.add(&[(away(90_000.0), 4), (away(80_000.0), 4)]);
        assert_eq!(rounds.ns(), 100.0);
        let mut all_away = Rounds::default();
        all_away.add(&[(away(8000.0), 4)]);
        assert_eq!(all_away.ns(), 2000.0, "all that is known");
        assert_eq!(Rounds::default().ns(), 0.0);
    }
}
