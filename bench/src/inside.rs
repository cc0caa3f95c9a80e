//! A publisher of flights whose rate can be changed, and subscribers that take latencies; and the daemon in this process.

use crate::cores::Cores;
use crate::cpu::Error;
use crate::flights::{self, RECORD_BYTES};
use crossdock_format::Format;
use crossdock_nectarine::{Event, Publisher, Subscriber, Transport};
use crossdock_runtime::{ChangeRequest, ContextConfig, ContextHandle, HandlerSpec};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Flights that are published again and again.
const FLIGHTS: usize = 2000;
/// How long a subscriber waits for its stream.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the context polls before it sleeps, in us: longer than the time between any two packets.
const SPIN_US: u32 = 1000;

/// The state that a benchmark's threads share.
pub(crate) struct Shared {
    since: Instant,
    /// Records that are published at a time, and the time between, in us.
    at_a_time: AtomicU64,
    every_us: u64,
    is_timing: AtomicBool,
    has_ended: AtomicBool,
}

impl Shared {
    pub(crate) fn new(at_a_time: u64, every_us: u64) -> Shared {
        Shared {
            since: Instant::now(),
            at_a_time: AtomicU64::new(at_a_time),
            every_us,
            is_timing: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        }
    }

    /// Records a second that are published now.
    pub(crate) fn rate(&self) -> u64 {
        self.at_a_time.load(Ordering::Relaxed) * 1_000_000 / self.every_us
    }

    /// Sets the number of records that are published at a time from now on.
    pub(crate) fn set_at_a_time(&self, records: u64) {
        self.at_a_time.store(records, Ordering::Relaxed);
    }

    /// Whether subscribers write latencies down, each time as one run more.
    pub(crate) fn time(&self, is_timing: bool) {
        self.is_timing.store(is_timing, Ordering::Release);
    }

    /// Has the publishers end.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    fn now_ns(&self) -> u64 {
        self.since.elapsed().as_nanos() as u64
    }

    /// Gives flights, each stamped with the time, to `send` at their rate until it is stopped: records of [`RECORD_BYTES`],
    /// one behind the other.
    ///
    /// # Errors
    /// There are no flights, or `send` fails.
    pub(crate) fn pace(&self, send: impl FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        let format = flights::format()?;
        let sent_at = flights::sent_offset(&format);
        self.pace_records(&mut flights::records(&format, FLIGHTS)?, (RECORD_BYTES, sent_at), send)
    }

    /// The same with these records, each of `record_bytes` bytes, with the stamp at `sent_at`.
    ///
    /// # Errors
    /// `send` fails.
    pub(crate) fn pace_records(
        &self,
        records: &mut [u8],
        (record_bytes, sent_at): (usize, usize),
        mut send: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let all = records.len() / record_bytes;
        let mut due_ns = self.now_ns();
        let mut next = 0;
        while !self.has_ended.load(Ordering::Acquire) {
            due_ns += self.every_us * 1000;
            let early_ns = due_ns.saturating_sub(self.now_ns());
            if early_ns > 0 {
                crossdock_device::nap(Duration::from_nanos(early_ns));
            }
            let count = (self.at_a_time.load(Ordering::Relaxed) as usize).min(all);
            next = if next + count > all { 0 } else { next };
            let due = &mut records[next * record_bytes..(next + count) * record_bytes];
            for record in due.chunks_mut(record_bytes) {
                record[sent_at..sent_at + 8].copy_from_slice(&self.now_ns().to_le_bytes());
            }
            send(due)?;
            next += count;
            // A publisher that was delayed does not make up for it: the rate is what is wanted, not a number of records.
            due_ns = due_ns.max(self.now_ns().saturating_sub(self.every_us * 1000));
        }
        Ok(())
    }

    /// Publishes flights, each stamped, until it is stopped.
    pub(crate) fn publish(&self, addr: &str, stream: &str) -> Result<(), Error> {
        let format = flights::format()?;
        let mut publisher =
            Publisher::builder(addr).transport(Transport::Udp).stream(stream).format(&format).connect()?;
        self.pace(|records| {
            publisher.publish_all(records.chunks(RECORD_BYTES))?;
            Ok(publisher.flush()?)
        })?;
        publisher.finish()?;
        Ok(())
    }

    /// Takes a stream until it ends; the latencies of each run in which they were to be taken, in ns.
    pub(crate) fn subscribe(&self, addr: &str, stream: &str) -> Result<Vec<Vec<u64>>, Error> {
        let builder = Subscriber::builder(addr).transport(Transport::Udp).sql(format!("SELECT * FROM {stream}"));
        let mut subscriber = builder.wait_for_stream(PATIENCE).connect()?;
        let mut runs = Runs::new(self);
        loop {
            match subscriber.next_event(None)? {
                Some(Event::Records(records)) => runs.take(stamp_offset(records.format())?, records.bytes()),
                Some(Event::StreamEnded { publishers_left: 0, .. }) => return Ok(runs.taken),
                Some(Event::Dropped { records, .. }) => return Err(format!("{records} records were dropped").into()),
                _ => {}
            }
        }
    }
}

/// Where a format has the stamp of [`Shared::pace`], in bytes from a record's beginning.
///
/// # Errors
/// It has no field `sent`.
pub(crate) fn stamp_offset(format: &Format) -> Result<usize, Error> {
    let field = format.field("sent").ok_or("no field `sent`")?;
    Ok(format.fields()[field].offset as usize)
}

/// Latencies, written down while that is wanted: a list for each time that it was.
pub(crate) struct Runs<'a> {
    shared: &'a Shared,
    was_timing: bool,
    /// In ns.
    pub(crate) taken: Vec<Vec<u64>>,
}

impl Runs<'_> {
    pub(crate) fn new(shared: &Shared) -> Runs<'_> {
        Runs { shared, was_timing: false, taken: Vec::new() }
    }

    /// Records have come, stamped at `sent_at`.
    pub(crate) fn take<'a>(&mut self, sent_at: usize, records: impl Iterator<Item = &'a [u8]>) {
        let now_ns = self.shared.now_ns();
        let is_timing = self.shared.is_timing.load(Ordering::Acquire);
        if is_timing && !self.was_timing {
            self.taken.push(Vec::new());
        }
        self.was_timing = is_timing;
        let Some(run) = self.taken.last_mut().filter(|_| is_timing) else { return };
        let sent = |record: &[u8]| record.get(sent_at..sent_at + 8)?.try_into().ok().map(u64::from_le_bytes);
        run.extend(records.filter_map(sent).map(|sent_ns| now_ns.saturating_sub(sent_ns)));
    }
}

/// Starts a daemon whose context with the device is pinned and polled, as one is that has much to do.
pub(crate) fn daemon(cores: Cores) -> Result<(ContextHandle, String), Error> {
    let (listen, pin_cpu) = (SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), Some(cores.daemon));
    let context =
        ContextHandle::start(ContextConfig { listen, pin_cpu, spin_us: SPIN_US, ..ContextConfig::default() })?;
    let addr = context.local_addr().to_string();
    Ok((context, addr))
}

/// Ties this thread to a core, and those that it starts.
pub(crate) fn pinned(cpu: usize) -> Result<(), Error> {
    Ok(crossdock_device::pin_to_cpu(cpu)?)
}

/// Has the managers make a change; why it was refused, if it was.
pub(crate) fn change(context: &ContextHandle, request: ChangeRequest) -> Result<Result<(), String>, Error> {
    let applied = context.manager().change(request, false).map_err(|_| "the managers have stopped")?;
    Ok(applied.map(drop).map_err(|plan| plan.refusals.join("; ")))
}

/// Deploys a handler; it has to fit.
pub(crate) fn deploy(context: &ContextHandle, spec: HandlerSpec) -> Result<(), Error> {
    let name = spec.name.clone();
    change(context, ChangeRequest::Deploy(spec))?.map_err(|why| format!("{name} was refused: {why}").into())
}

/// A thread's result in words, which pass between threads.
pub(crate) type Said<T> = Result<T, String>;

/// A result as [`Said`].
pub(crate) fn in_words<T>(result: Result<T, Error>) -> Said<T> {
    result.map_err(|error| error.to_string())
}

/// The result of a thread.
pub(crate) fn joined<T>(thread: ScopedJoinHandle<'_, Said<T>>) -> Said<T> {
    thread.join().map_err(|_| "a thread panicked".to_owned()).and_then(|done| done)
}
