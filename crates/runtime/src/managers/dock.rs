//! The managers' way to the context that has the device: short questions and changes, carried out between two batches.

use crate::announcing::Plans;
use crate::context::Context;
use crate::handle::{Command, Stopped};
use crossdock_device::Doorbell;
use crossdock_format::Format;
use std::sync::mpsc::SyncSender;

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
        let (answer, wait) = oneshot::channel();
        let work = move |context: &mut Context| drop(answer.send(work(context)));
        self.commands.send(Command::Run(Box::new(work))).map_err(|_| Stopped)?;
        self.doorbell.ring();
        wait.recv().map_err(|_| Stopped)
    }

    /// What reads a stream, planned on this thread for formats that it is to have.
    ///
    /// # Errors
    /// The context has stopped.
    pub(crate) fn plans(&self, stream: &str, formats: &[Format]) -> Result<Plans, Stopped> {
        let (name, formats) = (stream.to_owned(), formats.to_vec());
        let mut plans = Plans::default();
        plans.add(self.run(move |context| context.unplanned(&name, &formats, &Plans::default()))?);
        Ok(plans)
    }
}
