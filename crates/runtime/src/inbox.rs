//! A context's inbox: what the rest of the daemon has it do between two batches, and what is to be done there once something
//! else is.

use crate::catalog::thread::CatalogHandle;
use crate::catalog::{Catalog, Snapshot};
use crate::context::Context;
use crate::io::IoPlace;
use crate::refusal::Stopped;
use crossdock_device::Doorbell;
use crossdock_format::FormatId;
use crossdock_mailbox::host::{ClientKey, Prepared};
use crossdock_transport::control::Refusal;
use oneshot::RecvTimeoutError;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Commands that may wait for the context while a caller waits for a place.
const COMMANDS: usize = 64;
/// Commands that may wait for it in all. A sender that cannot wait comes behind callers, with answers to what the
/// context itself has asked for, and with what happens at other contexts: far more than that means that the context
/// takes none.
const MOST_COMMANDS: usize = 1 << 16;
/// How long a context may take nothing out of its inbox before its callers get an error.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long most answers take at most.
const BRIEF: Duration = Duration::from_millis(20);

/// Something that a context is to do.
pub(crate) enum Command {
    /// Something short.
    Run(Box<dyn FnOnce(&mut Context) + Send>),
    /// To take in a snapshot of the catalog, in which the streams of these numbers have changed.
    Snapshot(Arc<Snapshot>, Arc<[u32]>),
    /// From the attach thread: a process that may attach.
    Attach(Box<Prepared>, oneshot::Sender<Result<ClientKey, String>>),
    /// From the attach thread: a client that was taken in and could not be notified.
    Detach(ClientKey),
    Stop,
}

/// The commands that wait for a context.
#[derive(Default)]
struct Waiting {
    commands: VecDeque<Command>,
    is_closed: bool,
}

impl Waiting {
    /// Puts a command in. Of snapshots between which nothing else comes, the context needs the last.
    fn push(&mut self, command: Command) {
        match (self.commands.back_mut(), command) {
            (Some(Command::Snapshot(last, changed)), Command::Snapshot(next, more)) => {
                *last = next;
                *changed = changed.iter().chain(&*more).copied().collect::<BTreeSet<u32>>().into_iter().collect();
            }
            (_, command) => self.commands.push_back(command),
        }
    }
}

/// The state that an inbox's two ends share.
#[derive(Default)]
struct Queue {
    /// The context's name.
    context: String,
    waiting: Mutex<Waiting>,
    has_place: Condvar,
    /// How many commands wait: without a lock it is known that there is none.
    count: AtomicUsize,
    /// How often the context has looked for commands.
    looks: AtomicU64,
    /// Whether the context has ended.
    ended: Arc<AtomicBool>,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a command in.
    ///
    /// # Errors
    /// The context has stopped, or `most` commands wait for it.
    fn push(&self, mut waiting: MutexGuard<'_, Waiting>, command: Command, most: usize) -> Result<(), Stopped> {
        let refused = match &mut *waiting {
            Waiting { is_closed: true, .. } => Stopped::default(),
            Waiting { commands, .. } if commands.len() >= most => self.unanswered(),
            open => {
                open.push(command);
                self.count.store(open.commands.len(), Ordering::Release);
                return Ok(());
            }
        };
        // Before the command: what goes with it may post something itself.
        drop(waiting);
        Err(refused)
    }

    fn unanswered(&self) -> Stopped {
        Stopped::unanswered(&self.context)
    }
}

/// The way into a context's inbox. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Inbox {
    queue: Arc<Queue>,
    doorbell: Doorbell,
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").field("context", &self.queue.context).finish_non_exhaustive()
    }
}

/// The context's end of its inbox. A command that is sent to it is refused once this is gone.
pub(crate) struct Commands(Arc<Queue>);

impl Commands {
    /// The next command, if there is one.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Command> {
        let queue = &*self.0;
        // It alone writes this.
        queue.looks.store(queue.looks.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
        if queue.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut waiting = queue.waiting();
        let next = waiting.commands.pop_front();
        queue.count.store(waiting.commands.len(), Ordering::Release);
        if waiting.commands.len() == COMMANDS - 1 {
            queue.has_place.notify_all();
        }
        next
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        let left = {
            let mut waiting = self.0.waiting();
            waiting.is_closed = true;
            self.0.ended.store(true, Ordering::Release);
            std::mem::take(&mut waiting.commands)
        };
        // With them, who waits for their answers gets an error.
        drop(left);
        self.0.has_place.notify_all();
    }
}

impl Inbox {
    /// The inbox of a context of this name, and the context's end of it; `doorbell` wakes the context.
    pub(crate) fn new(context: &str, doorbell: Doorbell) -> (Inbox, Commands) {
        let queue = Arc::new(Queue { context: context.to_owned(), ..Queue::default() });
        (Inbox { queue: Arc::clone(&queue), doorbell }, Commands(queue))
    }

    /// Gives the context something to do; a caller that may wait does while many commands wait.
    ///
    /// # Errors
    /// The context has stopped, or takes nothing out.
    pub(crate) fn send(&self, command: Command) -> Result<(), Stopped> {
        let mut looks = self.look_again();
        let mut waiting = self.queue.waiting();
        let is_full = |waiting: &mut Waiting| !waiting.is_closed && waiting.commands.len() >= COMMANDS;
        loop {
            let (now, waited) = self
                .queue
                .has_place
                .wait_timeout_while(waiting, PATIENCE, is_full)
                .unwrap_or_else(PoisonError::into_inner);
            if !waited.timed_out() {
                self.queue.push(now, command, MOST_COMMANDS)?;
                break;
            }
            drop(now);
            looks = self.is_alive_since(looks)?;
            waiting = self.queue.waiting();
        }
        self.doorbell.ring();
        Ok(())
    }

    /// Has the context run a function. Nobody waits for it, here or for its place.
    ///
    /// # Errors
    /// The context has stopped, or has taken nothing out for very long.
    pub(crate) fn post(&self, work: impl FnOnce(&mut Context) + Send + 'static) -> Result<(), Stopped> {
        self.post_command(Command::Run(Box::new(work)), MOST_COMMANDS)
    }

    /// Has the context take in a snapshot of the catalog, as [`Inbox::post`].
    ///
    /// # Errors
    /// The context has stopped.
    pub(crate) fn post_snapshot(&self, snapshot: &Arc<Snapshot>, changed: &Arc<[u32]>) -> Result<(), Stopped> {
        // Always taken: those in a row become one, so other commands bound their number.
        self.post_command(Command::Snapshot(Arc::clone(snapshot), Arc::clone(changed)), usize::MAX)
    }

    /// Has the context stop, after what waits for it. One that has stopped by itself does not notice.
    pub(crate) fn stop(&self) {
        let _ = self.post_command(Command::Stop, usize::MAX);
    }

    fn post_command(&self, command: Command, most: usize) -> Result<(), Stopped> {
        self.queue.push(self.queue.waiting(), command, most)?;
        self.doorbell.ring();
        Ok(())
    }

    /// Has the context run a function; its answer comes.
    ///
    /// # Errors
    /// As [`Inbox::send`].
    pub(crate) fn request<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Context) -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, Stopped> {
        let (answer, wait) = oneshot::channel();
        // The caller may have gone.
        self.send(Command::Run(Box::new(move |context| drop(answer.send(work(context))))))?;
        Ok(wait)
    }

    /// Has the context run a function, and waits for its result.
    ///
    /// # Errors
    /// As [`Inbox::wait`].
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Context) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        self.wait(&self.request(work)?)
    }

    /// Has each context run a function, all at once, and waits for their results, in the order of the inboxes.
    ///
    /// # Errors
    /// A context has stopped or does not answer; the others have run it.
    pub(crate) fn run_at_all<'a, T: Send + 'static>(
        inboxes: impl Iterator<Item = &'a Inbox>,
        work: impl FnOnce(&mut Context) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, Stopped> {
        let waits: Vec<_> = inboxes.map(|inbox| (inbox, inbox.request(work.clone()))).collect();
        // All are waited for, also behind one that has stopped.
        let answers: Vec<_> = waits.into_iter().map(|(inbox, wait)| inbox.wait(&wait?)).collect();
        answers.into_iter().collect()
    }

    /// Waits for an answer of the context, as long as it goes on with its turns.
    ///
    /// # Errors
    /// The context has stopped, or does not answer.
    pub(crate) fn wait<T>(&self, answer: &oneshot::Receiver<T>) -> Result<T, Stopped> {
        let mut longest = BRIEF;
        let mut looks = None;
        loop {
            match answer.recv_timeout(longest) {
                Ok(answer) => return Ok(answer),
                // It has stopped, or failed on what it was to do.
                Err(RecvTimeoutError::Disconnected) if self.is_closed() => return Err(Stopped::default()),
                Err(RecvTimeoutError::Disconnected) => return Err(self.queue.unanswered()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            looks = Some(match looks {
                Some(looks) => self.is_alive_since(looks)?,
                None => self.look_again(),
            });
            longest = PATIENCE;
        }
    }

    /// Waits until the context has ended, as long as it goes on with its turns.
    ///
    /// # Errors
    /// It does not.
    pub(crate) fn wait_for_end(&self) -> Result<(), Stopped> {
        let mut looks = self.look_again();
        loop {
            let runs = |waiting: &mut Waiting| !waiting.is_closed;
            let waited = self.queue.has_place.wait_timeout_while(self.queue.waiting(), PATIENCE, runs);
            if !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
                return Ok(());
            }
            looks = self.is_alive_since(looks)?;
        }
    }

    /// Has the context look for commands; how often it has before.
    fn look_again(&self) -> u64 {
        let looks = self.queue.looks.load(Ordering::Acquire);
        self.doorbell.ring();
        looks
    }

    /// Whether the context has looked for commands since it was to; it is to again.
    ///
    /// # Errors
    /// It has not.
    fn is_alive_since(&self, looks: u64) -> Result<u64, Stopped> {
        match self.queue.looks.load(Ordering::Acquire) == looks {
            true => Err(self.queue.unanswered()),
            false => Ok(self.look_again()),
        }
    }

    /// Whether the context has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.queue.ended.load(Ordering::Acquire)
    }

    /// The same, for who knows no inbox.
    pub(crate) fn ended(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.queue.ended)
    }

    /// Makes a request to the catalog, and then has the context run a function with the answer. Each change of the request
    /// is taken in there before.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        catalog: &CatalogHandle,
        request: impl FnOnce(&mut Catalog) -> T + Send + 'static,
        then: impl FnOnce(&mut Context, T) + Send + 'static,
    ) {
        let inbox = self.clone();
        catalog.post(move |catalog| {
            let answer = request(catalog);
            catalog.publish_snapshot();
            // The context may have stopped.
            let _ = inbox.post(move |context| then(context, answer));
        });
    }
}

/// Something to be done once a stream has formats at this context.
pub(crate) struct AwaitedFormats {
    /// The stream's key.
    pub(crate) stream: usize,
    /// The formats.
    pub(crate) formats: Vec<FormatId>,
    /// Whether its routes are to be planned, too.
    pub(crate) routes: bool,
    /// The work.
    pub(crate) then: Box<dyn FnOnce(&mut Context)>,
}

/// The continuation with the outcome of a request.
pub(crate) type Then = Box<dyn FnOnce(&mut Context, Result<(), Refusal>) + Send>;

/// Something to be done once all that is published of a stream comes to this context, or is refused.
pub(crate) struct AwaitedDelivery {
    /// The stream's key.
    pub(crate) stream: usize,
    /// The work.
    pub(crate) then: Then,
}

/// A context's end of its inbox, and what waits there.
pub(crate) struct ContextInbox {
    own: Inbox,
    all: Arc<[Inbox]>,
    commands: Commands,
    /// Whether it takes packets and clients: not before the kept handlers are restored.
    is_open: bool,
    /// Clients that came before that.
    early: Vec<Command>,
    awaited_formats: Vec<AwaitedFormats>,
    awaited_deliveries: Vec<AwaitedDelivery>,
}

impl ContextInbox {
    /// The end of `own` that gets `commands`; `all` are those of all I/O contexts.
    pub(crate) fn new(own: Inbox, commands: Commands, all: Arc<[Inbox]>) -> ContextInbox {
        ContextInbox {
            own,
            all,
            commands,
            is_open: false,
            early: Vec::new(),
            awaited_formats: Vec::new(),
            awaited_deliveries: Vec::new(),
        }
    }

    /// The way into it.
    pub(crate) fn own(&self) -> &Inbox {
        &self.own
    }

    /// The ways into the inboxes of all I/O contexts, in the order of their places.
    pub(crate) fn all(&self) -> &Arc<[Inbox]> {
        &self.all
    }

    /// Has all other I/O contexts do something. It goes through the control thread, since contexts do not wait for each other.
    pub(crate) fn at_others(
        &self,
        place: IoPlace,
        catalog: &CatalogHandle,
        work: impl Fn(&mut Context) + Clone + Send + 'static,
    ) {
        let inboxes = Arc::clone(&self.all);
        catalog.post(move |_| {
            for (_, inbox) in inboxes.iter().enumerate().filter(|(at, _)| *at != place.index) {
                let work = work.clone();
                // It may have stopped.
                let _ = inbox.post(move |context| work(context));
            }
        });
    }

    /// The next command, if there is one. Clients wait until it is open.
    ///
    /// # Errors
    /// The context should stop.
    pub(crate) fn next(&mut self) -> Result<Option<Command>, Stopped> {
        loop {
            match self.commands.next() {
                Some(Command::Stop) => return Err(Stopped::default()),
                // There is one at most: the thread by which processes attach waits for the answer.
                Some(command @ Command::Attach(..)) if !self.is_open => self.early.push(command),
                next => return Ok(next),
            }
        }
    }

    /// Whether packets and clients are taken.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Takes packets and clients from now on: the clients that came before.
    pub(crate) fn open(&mut self) -> Vec<Command> {
        self.is_open = true;
        std::mem::take(&mut self.early)
    }

    /// Something is to be done once a stream has formats here.
    pub(crate) fn await_formats(&mut self, awaited: AwaitedFormats) {
        self.awaited_formats.push(awaited);
    }

    /// The work now that a stream has formats here, taken out.
    pub(crate) fn take_formats(&mut self, is_due: impl FnMut(&mut AwaitedFormats) -> bool) -> Vec<AwaitedFormats> {
        self.awaited_formats.extract_if(.., is_due).collect()
    }

    /// Something is to be done once a stream is delivered here, or refused.
    pub(crate) fn await_delivery(&mut self, awaited: AwaitedDelivery) {
        self.awaited_deliveries.push(awaited);
    }

    /// The work now that a stream is delivered here, or refused, taken out.
    pub(crate) fn take_deliveries(&mut self, stream: usize) -> Vec<AwaitedDelivery> {
        self.awaited_deliveries.extract_if(.., |awaited| awaited.stream == stream).collect()
    }
}
