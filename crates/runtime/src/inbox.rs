//! A context's inbox: what the rest of the daemon has it do between two batches.

use crate::context::Context;
use crate::refusal::Stopped;
use crossdock_device::Doorbell;
use crossdock_mailbox::host::{ClientKey, Prepared};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

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
}
