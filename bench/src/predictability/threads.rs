//! The job in an ordinary program: a thread for each handler, channels between.

use super::{Schedule, Step, feed, job};
use crate::cores;
use crate::cpu::Error;
use crossdock_engine::{Handler, Sink, Verdict};
use crossdock_mailbox::{Batch, Pool, PoolConfig, Selection, Slice, Span};
use std::sync::mpsc::{Receiver, Sender, channel};

/// A batch, and when it was due.
type Message = (Batch, u64);

/// What a handler makes of a batch.
#[derive(Default)]
struct Rows {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl Sink for Rows {
    fn push(&mut self, record: &[u8]) {
        let (start, len) = (self.bytes.len() as u32, record.len() as u32);
        self.spans.push(Span { slice: 0, start, len });
        self.bytes.extend_from_slice(record);
    }
}

impl Rows {
    /// The batch of them; none if there are none.
    fn batch(&mut self, pool: &mut Pool, format: u64) -> Result<Option<Batch>, Error> {
        if self.spans.is_empty() {
            return Ok(None);
        }
        let mut buffer = pool.alloc(self.bytes.len()).ok_or("no buffer is free")?;
        buffer[..self.bytes.len()].copy_from_slice(&self.bytes);
        let mut batch = Batch::new();
        batch.format = format;
        batch.push_buffer(buffer.freeze())?;
        let (len, records) = (self.bytes.len() as u32, self.spans.len() as u32);
        batch.push_slice(Slice { buffer: 0, start: 0, len, records })?;
        batch.records.append(&mut self.spans);
        batch.select_all();
        self.bytes.clear();
        Ok(Some(batch))
    }
}

/// One handler's thread: batch after batch, until who feeds it has gone.
fn work(step: Step, input: &Receiver<Message>, output: &Sender<Message>) -> Result<(), Error> {
    let mut handler: Box<dyn Handler> = step.entry.handler;
    let mut pool = Pool::new(PoolConfig { classes: vec![(16 << 10, 1024)] })?;
    let (mut selection, mut rows) = (Selection::default(), Rows::default());
    while let Ok((batch, due_ns)) = input.recv() {
        selection.select_all(batch.len());
        if handler.process(&batch, &mut selection, &mut rows) == Verdict::Forward {
            selection.iter().for_each(|index| rows.push(batch.record(index)));
        }
        if let Some(made) = rows.batch(&mut pool, step.output.id().0)?
            && output.send((made, due_ns)).is_err()
        {
            break;
        }
    }
    Ok(())
}

/// Sends each batch when it is due.
fn send(cpu: usize, schedule: Schedule, output: &Sender<Message>) -> Result<(), Error> {
    crossdock_device::pin_to_cpu(cpu)?;
    // It stands for the network, which comes when it comes.
    cores::raise_priority();
    let mut feed = feed()?;
    for batch in 0..schedule.batches {
        let due_ns = Schedule::due_ns(batch);
        let early_ns = due_ns.saturating_sub(schedule.now_ns());
        if early_ns > 0 {
            crossdock_device::nap(std::time::Duration::from_nanos(early_ns));
        }
        if output.send((feed.next().clone(), due_ns)).is_err() {
            break;
        }
    }
    Ok(())
}

/// Latencies of all batches, in ns.
pub(super) fn run(cpu: usize, run_ms: u64) -> Result<Vec<u64>, Error> {
    let steps = job()?;
    let schedule = Schedule::begin(run_ms);
    let words = |error: Error| error.to_string();
    let latencies = std::thread::scope(|scope| {
        let (first, mut from) = channel();
        let mut threads = vec![scope.spawn(move || send(cpu, schedule, &first).map_err(words))];
        for step in steps {
            let (output, next) = channel();
            let input = std::mem::replace(&mut from, next);
            threads.push(scope.spawn(move || work(step, &input, &output).map_err(words)));
        }
        let mut latencies = Vec::with_capacity(schedule.batches as usize);
        while let Ok((_, due_ns)) = from.recv() {
            latencies.push(schedule.now_ns().saturating_sub(due_ns));
        }
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked".to_owned())??;
        }
        Ok::<_, String>(latencies)
    })?;
    Ok(latencies)
}
