//! Traces: the events of sessions over packets, written to a file in the format of qlog.
//!
//! A session hands its events to a queue, and a thread of the trace writes them: so neither JSON nor the file costs a session time,
//! unless more events come than the thread writes.

mod qlog;
#[cfg(test)]
mod tests;

use crossdock_transport::secure::KeyPhases;
use crossdock_transport::trace::{SessionObserver, TraceEvent};
use qlog::QlogWriter;
use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

/// Events that wait to be written before a session waits as well.
const QUEUE_EVENTS: usize = 4096;

/// A file that gets the events of sessions over packets in the format of qlog, as JSON text sequences: connections, packets sent,
/// received and lost, congestion control, timers and keys. Each builder takes one (`trace`); several sessions may share it, and each
/// is a group of events then.
///
/// The file is complete when [`Trace::finish`] returns, or the last clone and the last session that has it are gone.
///
/// # Examples
/// ```no_run
/// use crossdock_nectarine::{Subscriber, Trace};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let trace = Trace::create("flights.sqlog", "my program", |error| eprintln!("the trace is incomplete: {error}"))?;
/// let builder = Subscriber::builder("10.0.0.1:7440").sql("SELECT * FROM flights");
/// for record in &mut builder.trace(&trace).connect()? {
///     println!("{:?}", record?.get(0));
/// }
/// trace.finish();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Trace {
    shared: Arc<TraceShared>,
}

struct TraceShared {
    entries: SyncSender<Entry>,
    thread: Mutex<Option<JoinHandle<()>>>,
    started: Instant,
    /// Sessions so far.
    sessions: AtomicU64,
}

/// A message to the thread that writes.
enum Entry {
    Event {
        /// The session's number in the trace.
        session: u64,
        /// By the session's clock, and by how much the trace's is ahead of it, in ns.
        now_ns: u64,
        ahead_ns: i64,
        event: SessionEvent,
    },
    End,
}

/// An event of a session.
#[derive(Debug)]
pub(crate) enum SessionEvent {
    /// The session stands.
    Started(Started),
    /// It is over, or was never granted.
    Closed {
        /// Whether this side has ended it.
        is_own: bool,
        reason: String,
    },
    /// Another key seals what this side sends, or opens what the other side sends.
    Key {
        is_own: bool,
        phase: u8,
        /// Whether it is the first one of a handshake.
        is_first: bool,
    },
    /// An event of the transport.
    Transport(TraceEvent),
}

/// The beginning of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    /// The numbers of the session: this side's, and the daemon's.
    pub(crate) numbers: (u32, u32),
    /// The packet size, and the windows of this side and the daemon, in bytes.
    pub(crate) packet_bytes: u32,
    pub(crate) windows_bytes: (u32, u32),
}

impl Trace {
    /// Begins a trace in a file, in place of what is in it; `title` names the program. `on_failure` is called if the file cannot be
    /// written to its end, once and in another thread: the rest of the trace is left out then, and sessions go on.
    ///
    /// # Errors
    /// The file cannot be made or written, or the system has no thread.
    pub fn create(
        path: impl AsRef<Path>,
        title: &str,
        on_failure: impl FnOnce(io::Error) + Send + 'static,
    ) -> io::Result<Trace> {
        Trace::over(File::create(path)?, title, on_failure)
    }

    fn over(
        to: impl Write + Send + 'static,
        title: &str,
        on_failure: impl FnOnce(io::Error) + Send + 'static,
    ) -> io::Result<Trace> {
        let mut writer = QlogWriter::begin(to, title, SystemTime::now())?;
        let started = Instant::now();
        let (entries, queue) = sync_channel(QUEUE_EVENTS);
        let run = move || {
            if let Err(error) = write(&queue, &mut writer) {
                on_failure(error);
                // Sessions are not to wait for what is not written.
                while matches!(queue.recv(), Ok(Entry::Event { .. })) {}
            }
        };
        let thread = std::thread::Builder::new().name("nectarine-trace".to_owned()).spawn(run)?;
        let thread = Mutex::new(Some(thread));
        Ok(Trace { shared: Arc::new(TraceShared { entries, thread, started, sessions: AtomicU64::new(0) }) })
    }

    /// Waits until all events so far are in the file, and ends the trace: sessions that go on are not written any further.
    pub fn finish(&self) {
        self.shared.finish();
    }

    /// The trace of a session that is about to begin, whose clock says `now_ns`.
    pub(crate) fn session(&self, now_ns: u64) -> SessionTrace {
        let ahead_ns = self.shared.now_ns().cast_signed().saturating_sub(now_ns.cast_signed());
        let mut session =
            SessionTrace { trace: self.clone(), session: 0, ahead_ns, now_ns, keys: None, is_open: false };
        session.begin();
        session
    }
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Trace")
    }
}

impl TraceShared {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn finish(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A thread that is gone has nothing left to write.
            let _ = self.entries.send(Entry::End);
            let _ = thread.join();
        }
    }
}

impl Drop for TraceShared {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Writes what comes, up to the end. Whenever nothing waits, all of it is in the file.
fn write(queue: &Receiver<Entry>, writer: &mut QlogWriter<impl Write>) -> io::Result<()> {
    loop {
        let next = match queue.try_recv() {
            Err(TryRecvError::Empty) => {
                writer.flush()?;
                queue.recv().ok()
            }
            next => next.ok(),
        };
        match next {
            Some(Entry::Event { session, now_ns, ahead_ns, event }) => {
                writer.write(session, (now_ns, ahead_ns), event)?;
            }
            Some(Entry::End) | None => return writer.flush(),
        }
    }
}

/// The trace of one session after the other, as their carrier has it.
#[derive(Clone)]
pub(crate) struct SessionTrace {
    trace: Trace,
    /// The number of the session in the trace.
    session: u64,
    /// By how much the trace's clock is ahead of the sessions', in ns.
    ahead_ns: i64,
    /// The latest time, for what has none of its own, in ns.
    now_ns: u64,
    /// The keys that were reported.
    keys: Option<KeyPhases>,
    /// Whether the session has not been reported as closed.
    is_open: bool,
}

impl SessionTrace {
    /// Another session begins.
    pub(crate) fn begin(&mut self) {
        self.session = 1 + self.trace.shared.sessions.fetch_add(1, Ordering::Relaxed);
        (self.keys, self.is_open) = (None, true);
    }

    /// Reports an event at that time of the session's clock, in ns.
    pub(crate) fn note(&self, now_ns: u64, event: SessionEvent) {
        let SessionTrace { session, ahead_ns, .. } = *self;
        // A trace that has ended takes no more.
        let _ = self.trace.shared.entries.send(Entry::Event { session, now_ns, ahead_ns, event });
    }

    /// Reports that a packet leaves which is in no unit of the transport.
    pub(crate) fn note_sent(&self, now_ns: u64, kind: crossdock_transport::PacketKind, number: u64, bytes: usize) {
        self.note(now_ns, SessionEvent::Transport(TraceEvent::sent(kind, number, bytes)));
    }

    /// Reports the end of the session, if it was not.
    pub(crate) fn note_closed(&mut self, now_ns: u64, is_own: bool, reason: &str) {
        if std::mem::take(&mut self.is_open) {
            self.note(now_ns, SessionEvent::Closed { is_own, reason: reason.to_owned() });
        }
    }

    /// Reports the keys that are in use, if they have changed.
    pub(crate) fn note_keys(&mut self, now_ns: u64, keys: Option<KeyPhases>) {
        let Some(keys) = keys.filter(|keys| self.keys != Some(*keys)) else { return };
        let before = self.keys.replace(keys).filter(|before| before.index == keys.index);
        let phases = [
            (true, keys.sealing, before.map(|keys| keys.sealing)),
            (false, keys.opening, before.map(|keys| keys.opening)),
        ];
        for (is_own, phase, before) in phases {
            if before != Some(phase) {
                self.note(now_ns, SessionEvent::Key { is_own, phase, is_first: before.is_none() });
            }
        }
    }

    /// The latest time of the sessions' clock, in ns.
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Notes the time of the sessions' clock, in ns.
    pub(crate) fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }
}

impl SessionObserver for SessionTrace {
    fn event(&mut self, now_ns: u64, event: TraceEvent) {
        self.note(now_ns, SessionEvent::Transport(event));
    }
}
