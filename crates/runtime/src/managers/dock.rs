//! The managers' channel to the context that has the device: short queries and changes, carried out between two
//! batches.

use crate::announcing::Plans;
use crate::context::Context;
use crate::handle::{Command, Stopped};
use crossdock_device::Doorbell;
use crossdock_format::Format;
use std::sync::mpsc::SyncSender;

/// The managers' access to the context with the device.
#[derive(Debug)]
pub(crate) struct IoContext {
    commands: SyncSender<Command>,
    doorbell: Doorbell,
}

impl IoContext {
    pub(crate) fn new(commands: SyncSender<Command>, doorbell: Doorbell) -> IoContext {
        IoContext { commands, doorbell }
    }

    /// Runs a function in the context, and waits for its result.
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

    /// Plans the queries that read a stream, on this thread, for formats that the stream is to have.
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
