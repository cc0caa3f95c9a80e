//! Services of the host for tasks on the core (Nectar paper, section 3.4): a line of the log, a file, a breakpoint
//! dump.
//!
//! Each of them may wait for a disk, which the core must not. So a task's request goes through a bounded ring to a thread
//! on a g-core, and what comes of it comes back through another, as a message for a mailbox. The thread sleeps while
//! there is nothing to do.

mod files;

use crossdock_device::Doorbell;
use crossdock_mailbox::host::{HostInterface, MailboxKey, Message, MessageLoss};
use crossdock_mailbox::ring::{Consumer, Producer, ring};
use crossdock_mailbox::{Buffer, BufferMut, Pool};
use files::Files;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Requests that may wait for the thread.
const REQUESTS: usize = 256;
/// The longest line of the log, and the longest name of a file, in bytes.
const MAX_TEXT_BYTES: usize = 4096;
/// Room for an answer, and the longest dump, in bytes: a buffer of the largest class.
const ROOM_BYTES: usize = 64 << 10;
/// An answer begins with 8 bytes, little-endian: 0, or this when what follows says what went wrong.
const FAILED: u64 = 1;

/// A request of a task to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The message is a line of the log. No answer.
    Log,
    /// The message names a file below the configured directory; after a zero byte may follow where to begin, in bytes,
    /// as decimal digits. The answer: 8 bytes of zeros and what is in the file, as far as it fits into a message of 64
    /// KiB; or 8 bytes with the value 1, little-endian, and the reason as text.
    ReadFile,
    /// The message becomes a file in the configured directory, its first 64 KiB. The answer: 8 bytes of zeros and the
    /// file's name, or as for a file what went wrong.
    Dump,
}

/// Takes the lines of the log.
pub(crate) type LogSink = Box<dyn FnMut(&str) + Send>;

/// A task's request.
struct ServiceRequest {
    service: Service,
    argument: Buffer,
    len: usize,
    /// The mailbox for the answer, and a buffer for it.
    reply: Option<(MailboxKey, BufferMut)>,
}

/// The result of a request.
struct Answer {
    to: MailboxKey,
    bytes: Buffer,
    len: usize,
}

/// The core's side.
pub(crate) struct Services {
    requests: Producer<ServiceRequest>,
    answers: Consumer<Answer>,
    thread: std::thread::Thread,
    /// Something was asked since the thread was last woken.
    asked: bool,
}

/// The handle to wait for the thread's end.
pub(crate) struct ServiceThread {
    thread: Option<JoinHandle<()>>,
    log: Arc<Mutex<LogSink>>,
}

impl std::fmt::Debug for ServiceThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceThread").field("thread", &self.thread).finish_non_exhaustive()
    }
}

impl std::ops::Drop for ServiceThread {
    fn drop(&mut self) {
        self.join();
    }
}

impl Services {
    /// For a context without tasks: nothing is ever asked of them.
    pub(crate) fn absent() -> Services {
        let ((requests, _), (_, answers)) = (ring(1), ring(1));
        Services { requests, answers, thread: std::thread::current(), asked: false }
    }
}

impl ServiceThread {
    /// From now on the log's lines go there.
    pub(crate) fn log_to(&self, sink: LogSink) {
        *self.log.lock().unwrap_or_else(PoisonError::into_inner) = sink;
    }

    /// Waits for the thread's end, which follows the context's.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Starts the thread. `doorbell` is the context's: it rings for answers.
///
/// # Errors
/// The system's: a configured directory that cannot be opened, or no thread.
pub(crate) fn start(config: &crate::ServicesConfig, doorbell: Doorbell) -> std::io::Result<(ServiceThread, Services)> {
    let files = Files::open(config)?;
    let (requests, mut incoming) = ring(REQUESTS);
    // Every request has its place among the answers, so that none has to wait.
    let (mut answer, answers) = ring(2 * REQUESTS);
    let print: LogSink = Box::new(|line| eprintln!("{line}"));
    let log = Arc::new(Mutex::new(print));
    let sink = log.clone();
    let run = move || {
        let mut files = files;
        loop {
            let closed = incoming.is_closed();
            while let Some(request) = incoming.pop() {
                if let Some(answered) = carry_out(request, &mut files, &sink) {
                    // If there is no room, the core is gone, and the answer is not awaited.
                    let _ = answer.push(answered);
                    doorbell.ring();
                }
            }
            if closed {
                return;
            }
            std::thread::park();
        }
    };
    let thread = std::thread::Builder::new().name("g-core-services".into()).spawn(run)?;
    let services = Services { requests, answers, thread: thread.thread().clone(), asked: false };
    Ok((ServiceThread { thread: Some(thread), log }, services))
}

/// Does what was asked, on the thread.
fn carry_out(request: ServiceRequest, files: &mut Files, log: &Mutex<LogSink>) -> Option<Answer> {
    let ServiceRequest { service, argument, len, reply } = request;
    let argument = &argument[..len];
    let mut room = reply;
    let space = room.as_mut().map(|(_, room)| &mut room[size_of::<u64>()..]);
    let outcome = match service {
        Service::Log => {
            let line: String = String::from_utf8_lossy(argument).chars().flat_map(printable).collect();
            (*log.lock().unwrap_or_else(PoisonError::into_inner))(&line);
            Ok(0)
        }
        Service::ReadFile => files.read(argument, space.unwrap_or_default()),
        Service::Dump => files.dump(argument, space.unwrap_or_default()),
    };
    let (to, mut room) = room?;
    let (status, len) = match outcome {
        Ok(len) => (0, len),
        Err(what) => {
            let text = &mut room[size_of::<u64>()..];
            let len = what.len().min(text.len());
            text[..len].copy_from_slice(&what.as_bytes()[..len]);
            (FAILED, len)
        }
    };
    room[..size_of::<u64>()].copy_from_slice(&status.to_le_bytes());
    Some(Answer { to, bytes: room.freeze(), len: size_of::<u64>() + len })
}

/// A character of a line as it may stand in a log: a client must not write lines of its own there.
fn printable(c: char) -> impl Iterator<Item = char> {
    let plain = (!c.is_control()).then_some(c);
    let escaped = c.is_control().then(|| c.escape_default()).into_iter().flatten();
    plain.into_iter().chain(escaped)
}

impl Services {
    /// Asks for a service with a message's bytes; false if as much waits as may.
    pub(crate) fn ask(
        &mut self,
        host: &HostInterface,
        pool: &mut Pool,
        service: Service,
        message: &Message,
        reply: Option<MailboxKey>,
    ) -> bool {
        if self.requests.free() == 0 {
            return false;
        }
        let most = if service == Service::Dump { ROOM_BYTES } else { MAX_TEXT_BYTES };
        let len = message.len().min(most);
        // The context has no buffers now.
        let Some(mut argument) = pool.alloc(len) else { return false };
        let reply = match reply {
            None => None,
            Some(to) => match pool.alloc(ROOM_BYTES) {
                Some(room) => Some((to, room)),
                None => return false,
            },
        };
        host.read(message, 0, &mut argument[..len]);
        self.asked = true;
        self.requests.push(ServiceRequest { service, argument: argument.freeze(), len, reply }).is_ok()
    }

    /// Wakes the thread if something was asked of it.
    #[inline]
    fn end_turn(&mut self) {
        if std::mem::take(&mut self.asked) {
            self.thread.unpark();
        }
    }

    /// Puts the answers that came where they were asked for.
    pub(crate) fn take_answers(&mut self, host: &mut HostInterface) {
        self.end_turn();
        while let Some(Answer { to, bytes, len }) = self.answers.pop() {
            match host.begin_put(to, len) {
                Ok(mut draft) => {
                    draft.copy_from_slice(&bytes[..len]);
                    host.put(to, draft.finish(len));
                }
                Err(_) => host.count_loss(to, MessageLoss::NoMemory, 1),
            }
        }
    }
}
