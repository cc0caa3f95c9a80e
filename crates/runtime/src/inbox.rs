//! A context's inbox: what the rest of the daemon has it do between two batches, and what is to be done there once something
//! else is.

use crate::catalog::Catalog;
use crate::catalog::thread::CatalogHandle;
use crate::context::Context;
use crate::refusal::Stopped;
use crossdock_device::Doorbell;
use crossdock_format::FormatId;
use crossdock_mailbox::host::{ClientKey, Prepared};
use crossdock_transport::control::Refusal;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

/// Most commands that wait for the context; further callers block.
const COMMANDS: usize = 64;

/// Something that a context is to do.
pub(crate) enum Command {
    /// Something short.
    Run(Box<dyn FnOnce(&mut Context) + Send>),
    /// From the attach thread: a process that may attach.
    Attach(Box<Prepared>, oneshot::Sender<Result<ClientKey, String>>),
    /// From the attach thread: a client that was taken in and could not be notified.
    Detach(ClientKey),
    Stop,
}

/// The way into a context's inbox. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    commands: SyncSender<Command>,
    doorbell: Doorbell,
}

impl Inbox {
    /// An inbox, and the context's end of it; `doorbell` wakes the context.
    pub(crate) fn new(doorbell: Doorbell) -> (Inbox, Receiver<Command>) {
        let (commands, receiver) = sync_channel(COMMANDS);
        (Inbox { commands, doorbell }, receiver)
    }

    /// Gives the context something to do; waits while its inbox is full.
    ///
    /// # Errors
    /// The context has stopped.
    pub(crate) fn send(&self, command: Command) -> Result<(), Stopped> {
        self.commands.send(command).map_err(|_| Stopped)?;
        self.doorbell.ring();
        Ok(())
    }

    /// Has the context run a function.
    ///
    /// # Errors
    /// The context has stopped.
    pub(crate) fn post(&self, work: impl FnOnce(&mut Context) + Send + 'static) -> Result<(), Stopped> {
        self.send(Command::Run(Box::new(work)))
    }

    /// Has the context run a function, and waits for its result.
    ///
    /// # Errors
    /// The context has stopped.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Context) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        let (answer, wait) = oneshot::channel();
        // The caller may have gone.
        self.post(move |context| drop(answer.send(work(context))))?;
        wait.recv().map_err(|_| Stopped)
    }

    /// Has each context run a function, all at once, and waits for their results, in the order of the inboxes.
    ///
    /// # Errors
    /// A context has stopped; the others have run it.
    pub(crate) fn run_at_all<'a, T: Send + 'static>(
        inboxes: impl Iterator<Item = &'a Inbox>,
        work: impl FnOnce(&mut Context) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, Stopped> {
        let post = |inbox: &Inbox| {
            let ((answer, wait), work) = (oneshot::channel(), work.clone());
            // The caller may have gone.
            inbox.post(move |context| drop(answer.send(work(context)))).map(|()| wait)
        };
        let waits: Vec<_> = inboxes.map(post).collect();
        // All are waited for, also behind one that has stopped.
        let answers: Vec<_> = waits.into_iter().map(|wait| wait?.recv().map_err(|_| Stopped)).collect();
        answers.into_iter().collect()
    }

    /// Makes a request to the catalog, and then has the context run a function with the answer. What the request changed
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
    /// What is to be done.
    pub(crate) then: Box<dyn FnOnce(&mut Context)>,
}

/// What goes on with the outcome of a request.
pub(crate) type Then = Box<dyn FnOnce(&mut Context, Result<(), Refusal>) + Send>;

/// Something to be done once all that is published of a stream comes to this context, or is refused.
pub(crate) struct AwaitedDelivery {
    /// The stream's key.
    pub(crate) stream: usize,
    /// What is to be done.
    pub(crate) then: Then,
}

/// A context's end of its inbox, and what waits there.
pub(crate) struct ContextInbox {
    own: Inbox,
    all: Arc<[Inbox]>,
    commands: Receiver<Command>,
    /// Whether it takes packets and clients: not before the kept handlers are restored.
    is_open: bool,
    /// Clients that came before that.
    early: Vec<Command>,
    awaited_formats: Vec<AwaitedFormats>,
    awaited_deliveries: Vec<AwaitedDelivery>,
}

impl ContextInbox {
    /// The end of `own` that gets `commands`; `all` are those of all I/O contexts.
    pub(crate) fn new(own: Inbox, commands: Receiver<Command>, all: Arc<[Inbox]>) -> ContextInbox {
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

    /// The next command, if there is one. Clients wait until it is open.
    ///
    /// # Errors
    /// The context should stop.
    pub(crate) fn next(&mut self) -> Result<Option<Command>, Stopped> {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return Err(Stopped),
                // There is one at most: the thread by which processes attach waits for the answer.
                Ok(command @ Command::Attach(..)) if !self.is_open => self.early.push(command),
                Ok(command) => return Ok(Some(command)),
                Err(TryRecvError::Empty) => return Ok(None),
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

    /// What is to be done now that a stream has formats here, taken out.
    pub(crate) fn take_formats(&mut self, is_due: impl FnMut(&mut AwaitedFormats) -> bool) -> Vec<AwaitedFormats> {
        self.awaited_formats.extract_if(.., is_due).collect()
    }

    /// Something is to be done once a stream is delivered here, or refused.
    pub(crate) fn await_delivery(&mut self, awaited: AwaitedDelivery) {
        self.awaited_deliveries.push(awaited);
    }

    /// What is to be done now that a stream is delivered here, or refused, taken out.
    pub(crate) fn take_deliveries(&mut self, stream: usize) -> Vec<AwaitedDelivery> {
        self.awaited_deliveries.extract_if(.., |awaited| awaited.stream == stream).collect()
    }
}
