//! The gap: numbered messages through two handlers in one context as fast as it goes, while these are swapped in turn.

use super::CASE;
use crate::cores::{self, Cores as Cpus};
use crate::cpu::Error;
use crate::flights;
use crate::load;
use crate::report::{Table, quantile};
use crossdock_format::{FieldSpec, FieldType, Format, RecordBuilder, Value};
use crossdock_mailbox::{Batch, Pool, PoolConfig, Slice, Span};
use crossdock_runtime::rig::{self, BatchSource, Cores, Entry, Rig};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Messages of a batch.
const AT_A_TIME: u64 = 1;
/// Batches of a window: the one at the swap, and those behind it, for which memory may be cold still.
const WINDOW: u32 = 12;
/// Batches after a window that count for none.
const APART: u32 = 64;
/// Number of keys that are counted by, large enough that the state is worth handing over.
const KEYS: u64 = 1000;
/// Between two swaps, longer than two windows.
const PAUSE: Duration = Duration::from_micros(100);
/// Numbers that are remembered as missing at most.
const MAX_MISSING: usize = 1 << 16;

/// The two versions of the first handler: both make the same records of flights, for conditions that all of them meet.
const SELECTS: [&str; 2] = [
    "SELECT number, key, carrier, flight, tailnum, origin, dest, dep_delay, arr_delay, distance, time_hour FROM s \
     WHERE number >= 0 AND origin IN ('EWR', 'JFK', 'LGA') AND distance BETWEEN 1 AND 10000",
    "SELECT number, key, carrier, flight, tailnum, origin, dest, dep_delay, arr_delay, distance, time_hour FROM s \
     WHERE key < 1000000 AND carrier <> 'XX' AND dep_delay > -600",
];
/// The two versions of the second: running counts by key, under another name.
const COUNTS: [&str; 2] = ["count", "seen"];

/// The records that came out.
#[derive(Default)]
struct Seen {
    next: u64,
    missing: BTreeSet<u64>,
    lost: u64,
    duplicated: u64,
    reordered: u64,
    state_lost: u64,
}

impl Seen {
    /// A message came out, with how often its key was counted.
    #[inline]
    fn take(&mut self, number: u64, count: u64) {
        self.state_lost += u64::from(count != number / KEYS + 1);
        if number == self.next {
            self.next += 1;
        } else {
            self.take_other(number);
        }
    }

    #[cold]
    fn take_other(&mut self, number: u64) {
        if number > self.next {
            let room = MAX_MISSING - self.missing.len().min(MAX_MISSING);
            self.missing.extend((self.next..number).take(room));
            self.lost += number - self.next;
            self.next = number + 1;
        } else if self.missing.remove(&number) {
            self.lost -= 1;
            self.reordered += 1;
        } else {
            self.duplicated += 1;
        }
    }
}

/// The longest gaps of windows.
#[derive(Default)]
struct Windows {
    at_swaps: Vec<u64>,
    without: Vec<u64>,
}

/// The state of the window now open.
#[derive(Clone, Copy, PartialEq)]
enum Open {
    AtSwap,
    Without,
    CachePadded,
}

/// The context under load.
struct Line {
    cores: Cores,
    format: u64,
    pool: Pool,
    template: Vec<u8>,
    batch: Batch,
    sent: u64,
    seen: Seen,
    /// Where the number and the key are in what comes in.
    written: [usize; 2],
    /// Where the number and the count are in what comes out.
    places: [usize; 2],
    since: Instant,
    last_ns: u64,
    open: Open,
    left: u32,
    longest: u64,
    windows: Windows,
}

/// Versions of both handlers, made anew each time.
struct Versions {
    input: Format,
    counted: Format,
}

impl Versions {
    /// The next version of one of them: parsed, checked and compiled here.
    fn make(&self, swap: u32) -> Result<Entry, Error> {
        let version = (swap / 2) as usize % 2;
        Ok(match swap % 2 {
            0 => load::sql(SELECTS[version], &self.input)?.0,
            _ => load::native("tally", &[("key", "key"), ("count_as", COUNTS[version])], &self.counted)?.0,
        })
    }
}

/// Where a field is in a record, in bytes.
fn of(format: &Format, name: &str) -> Result<usize, Error> {
    let field = format.field(name).ok_or_else(|| format!("no field {name}"))?;
    Ok(format.fields()[field].offset as usize)
}

/// The format of what comes in: flights with a number and a key; and one of them.
fn flight() -> Result<(Format, Vec<u8>), Error> {
    let fields = flights::FIELDS.map(|(name, ty)| FieldSpec::nullable(name, ty));
    let added = [("number", FieldType::U64), ("key", FieldType::U32)].map(|(name, ty)| FieldSpec::new(name, ty));
    let format = Format::natural(fields.into_iter().chain(added))?;
    let mut row = RecordBuilder::new(&format);
    flights::fill(&mut row, flights::lines(1)?.first().ok_or("there are no flights")?)?;
    row.set_text(flights::REMARKS, "")?;
    for name in ["number", "key"] {
        row.set(format.field(name).ok_or("no number")?, Value::Uint(0))?;
    }
    let record = row.finish()?.to_vec();
    Ok((format, record))
}

impl Line {
    fn new() -> Result<(Line, Rig, Versions, [u32; 2]), Error> {
        let (input, template) = flight()?;
        let (mut cores, mut rig) = rig::start(&[None], 1)?;
        let wait = &mut || {
            cores.turn();
            true
        };
        let (select, counted) = load::sql(SELECTS[1], &input)?;
        let (count, output) = load::native("tally", &[("key", "key"), ("count_as", COUNTS[1])], &counted)?;
        let first = rig.put(vec![select], 0, BatchSource::Stream(0), 1, wait)?;
        let second = rig.put(vec![count], 0, BatchSource::Node(first), 2, wait)?;
        rig.deliver(BatchSource::Node(second), wait)?;
        let line = Line {
            cores,
            pool: Pool::new(PoolConfig { classes: vec![(4096, 1024)] })?,
            template,
            batch: Batch::new(),
            sent: 0,
            seen: Seen::default(),
            places: [of(&output, "number")?, of(&output, COUNTS[1])?],
            since: Instant::now(),
            last_ns: 0,
            open: Open::CachePadded,
            left: APART,
            longest: 0,
            windows: Windows::default(),
            written: [of(&input, "number")?, of(&input, "key")?],
            format: input.id().0,
        };
        Ok((line, rig, Versions { input, counted }, [first, second]))
    }

    /// Writes the next messages.
    fn fill(&mut self) -> Result<(), Error> {
        let length = self.template.len();
        let [number, key] = self.written;
        let mut buffer = self.pool.alloc(length * AT_A_TIME as usize).ok_or("no buffer is free")?;
        self.batch.clear();
        self.batch.format = self.format;
        for at in 0..AT_A_TIME as usize {
            let record = &mut buffer[at * length..(at + 1) * length];
            record.copy_from_slice(&self.template);
            record[number..number + 8].copy_from_slice(&self.sent.to_le_bytes());
            record[key..key + 4].copy_from_slice(&((self.sent % KEYS) as u32).to_le_bytes());
            self.batch.records.push(Span { slice: 0, start: (at * length) as u32, len: length as u32 });
            self.sent += 1;
        }
        self.batch.push_buffer(buffer.freeze())?;
        let len = (length * AT_A_TIME as usize) as u32;
        self.batch.push_slice(Slice { buffer: 0, start: 0, len, records: AT_A_TIME as u32 })?;
        self.batch.select_all();
        Ok(())
    }

    /// Some messages more come in, are handled, and come out.
    fn step(&mut self) -> Result<(), Error> {
        self.fill()?;
        self.cores.offer(0, &self.batch);
        self.turn();
        Ok(())
    }

    /// The records that are there are handled, and comes out.
    fn turn(&mut self) {
        let began_ns = self.since.elapsed().as_nanos() as u64;
        let changed = self.cores.turn();
        self.note(changed, began_ns);
    }

    /// Takes what came out, and the time since the last came.
    fn note(&mut self, changed: bool, began_ns: u64) {
        let Line { cores, seen, places: [number, count], .. } = self;
        let word = |record: &[u8], at: usize| {
            record.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(u64::MAX, u64::from_le_bytes)
        };
        let mut any = false;
        cores.delivered(|batch| {
            any = true;
            batch.selected().for_each(|record| seen.take(word(record, *number), word(record, *count)));
        });
        if !any {
            return;
        }
        let now_ns = self.since.elapsed().as_nanos() as u64;
        let gap = now_ns - self.last_ns;
        self.last_ns = now_ns;
        // A change is taken in steps: the window opens with the first. It does with the turn, not with the message before it: a
        // change often comes while this thread is interrupted, and that is not its doing. Other windows open likewise.
        let mut gap = gap;
        if changed && self.open != Open::AtSwap {
            (self.open, self.left, self.longest) = (Open::AtSwap, WINDOW, 0);
            gap = now_ns - began_ns;
        } else if self.open == Open::Without && self.left == WINDOW {
            gap = now_ns - began_ns;
        }
        self.longest = self.longest.max(gap);
        self.left -= 1;
        if self.left > 0 {
            return;
        }
        match self.open {
            Open::AtSwap => self.windows.at_swaps.push(self.longest),
            Open::Without => self.windows.without.push(self.longest),
            Open::CachePadded => {}
        }
        let after = if self.open == Open::CachePadded { (Open::Without, WINDOW) } else { (Open::CachePadded, APART) };
        (self.open, self.left, self.longest) = (after.0, after.1, 0);
    }
}

/// The gaps' quantiles of a run: at swaps, without, and the one less the other, for p50 and p99.
struct Gaps {
    p99: u64,
    without_p99: u64,
    added_p50: f64,
    added_p99: f64,
}

fn gaps(windows: &mut Windows) -> Gaps {
    let Windows { at_swaps, without } = windows;
    let mut added = |part| quantile(at_swaps, part) as f64 - quantile(without, part) as f64;
    let (added_p50, added_p99) = (added(0.5), added(0.99));
    Gaps { p99: quantile(at_swaps, 0.99), without_p99: quantile(without, 0.99), added_p50, added_p99 }
}

/// Swaps under load from another thread; then the same on the context's own thread, with the handler stopped meanwhile.
pub(super) fn round(table: &mut Table, cpus: Cpus, swaps: u32, stops: u32) -> Result<(), Error> {
    // On a thread of its own, which is pinned: this one's affinity is what further threads get.
    let run = || in_place(cpus, swaps, stops).map_err(|error| error.to_string());
    let ran = std::thread::scope(|scope| scope.spawn(run).join());
    let (mut hot, mut stopped, seen, lost_states) = ran.map_err(|_| "the context panicked")??;
    let (count, hot, stopped) = (hot.at_swaps.len(), gaps(&mut hot), gaps(&mut stopped));
    table.push(CASE, "added_gap_ns_p99", hot.added_p99, Some(stopped.added_p99));
    table.push(CASE, "added_gap_ns_p50", hot.added_p50, Some(stopped.added_p50));
    table.push(CASE, "gap_ns_p99", hot.p99 as f64, Some(hot.without_p99 as f64));
    table.push(CASE, "lost", seen.lost as f64, None);
    table.push(CASE, "duplicated", seen.duplicated as f64, None);
    table.push(CASE, "reordered", seen.reordered as f64, None);
    table.push(CASE, "state_lost", (seen.state_lost + lost_states) as f64, None);
    table.push(CASE, "swaps", count as f64, None);
    Ok(())
}

fn in_place(cpus: Cpus, swaps: u32, stops: u32) -> Result<(Windows, Windows, Seen, u64), Error> {
    crossdock_device::pin_to_cpu(cpus.client)?;
    cores::raise_priority();
    let (mut line, rig, versions, stages) = Line::new()?;
    for _ in 0..10_000 {
        line.step()?;
    }
    line.windows = Windows::default();
    let has_ended = AtomicBool::new(false);
    let swapper = || {
        let swapped = swap_all(rig, &versions, stages, swaps, cpus.daemon).map_err(|error| error.to_string());
        has_ended.store(true, Ordering::Release);
        swapped
    };
    let (swapped, stepped) = std::thread::scope(|scope| {
        let thread = scope.spawn(swapper);
        let mut stepped = Ok(());
        while stepped.is_ok() && !has_ended.load(Ordering::Acquire) {
            stepped = line.step();
        }
        (thread.join(), stepped)
    });
    stepped?;
    let (mut rig, mut lost) = swapped.map_err(|_| "who swaps panicked")??;
    let hot = std::mem::take(&mut line.windows);
    for swap in 0..stops {
        for _ in 0..2 * (WINDOW + APART) {
            line.step()?;
        }
        let stage = stages[swap as usize % 2];
        let cores = &mut line.cores;
        let wait = &mut || {
            cores.turn();
            true
        };
        rig.hold(stage, true, wait)?;
        let entry = versions.make(swap)?;
        lost += u64::from(rig.swap(stage, vec![entry], wait)?);
        rig.hold(stage, false, wait)?;
        line.fill()?;
        line.cores.offer(0, &line.batch);
        line.cores.turn();
        // The stop began when the last message had come out.
        line.note(true, line.last_ns);
    }
    for _ in 0..WINDOW {
        line.step()?;
    }
    line.seen.lost += line.sent - line.seen.next;
    Ok((hot, line.windows, line.seen, lost))
}

/// Swaps both handlers in turn, each version made here; how many states were lost.
fn swap_all(mut rig: Rig, versions: &Versions, stages: [u32; 2], swaps: u32, cpu: usize) -> Result<(Rig, u64), Error> {
    crossdock_device::pin_to_cpu(cpu)?;
    cores::raise_priority();
    let mut lost = 0;
    for swap in 0..swaps {
        let entry = versions.make(swap)?;
        lost += u64::from(rig.swap(stages[swap as usize % 2], vec![entry], &mut || {
            std::thread::yield_now();
            true
        })?);
        crossdock_device::nap(PAUSE);
    }
    Ok((rig, lost))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_repeated_and_late_records_are_distinguished() {
        let mut seen = Seen::default();
        for number in [0, 1, 3, 3, 2, 6] {
            seen.take(number, 1);
        }
        // 3 came twice; 2 came late; 4 and 5 did not come.
        assert_eq!((seen.duplicated, seen.reordered, seen.lost, seen.state_lost), (1, 1, 2, 0));
        seen.take(7, 2);
        assert_eq!(seen.state_lost, 1);
    }
}
