//! The managers' way to the context that has the device: short questions and changes, carried out between two batches.

use crate::context::Context;
use crate::handle::{Command, Stopped};
use crossdock_device::Doorbell;
use std::sync::mpsc::{SyncSender, sync_channel};

/// Where the managers ask the context with the device.
#[derive(Debug)]
pub(crate) struct Dock {
    commands: SyncSender<Command>,
    doorbell: Doorbell,
}

impl Dock {
    pub(crate) fn new(commands: SyncSender<Command>, doorbell: Doorbell) -> Dock {
        Dock { commands, doorbell }
    }

    /// Has the context do something, and waits for what comes of it.
    ///
    /// # Errors
    /// The context has stopped.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Context) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        let (answer, wait) = sync_channel(1);
        let work = move |context: &mut Context| drop(answer.send(work(context)));
        self.commands.send(Command::Run(Box::new(work))).map_err(|_| Stopped)?;
        self.doorbell.ring();
        wait.recv().map_err(|_| Stopped)
    }
}
