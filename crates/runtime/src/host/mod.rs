//! The host side of a context. [`Host`] owns the host interface with the attached clients and the mailboxes, the tasks that
//! read these, the services that tasks ask, and the sides of mailboxes that sessions over packets have open. An event
//! that concerns a peer comes back as a result; nothing here knows the context.

mod remote;
pub(crate) mod services;
mod sides;
pub mod tasks;
#[cfg(test)]
mod tests;

pub(crate) use sides::{MessagePut, implementation_of};

use crossdock_mailbox::Pool;
use crossdock_mailbox::host::{HostError, HostInterface, MailboxKey, MailboxOptions, Message, Owner};
use crossdock_transport::Notice;
use remote::Remote;
use services::Services;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use tasks::{TaskError, TaskFactory, Tasks};

/// The attached clients, the mailboxes and what reads and writes them.
pub(crate) struct Host {
    interface: HostInterface,
    tasks: Tasks,
    services: Services,
    remote: Remote,
    /// Mailboxes that are gone, and may have sides open.
    gone: Vec<MailboxKey>,
    /// Credit that writers over packets get back: their peers, and the notices to them.
    replenished: VecDeque<(usize, Notice)>,
    /// Kept for its memory.
    again: Vec<usize>,
    /// When writers may be notified of losses again, in ns.
    next_losses_ns: u64,
}

impl Host {
    /// A host side without clients and mailboxes.
    pub(crate) fn new(interface: HostInterface, services: Services) -> Host {
        Host {
            interface,
            tasks: Tasks::new(),
            services,
            remote: Remote::default(),
            gone: Vec::new(),
            replenished: VecDeque::new(),
            again: Vec::new(),
            next_losses_ns: 0,
        }
    }

    /// The clients' rings, messages and mailboxes.
    #[inline]
    pub(crate) fn interface(&self) -> &HostInterface {
        &self.interface
    }

    /// The same, to change.
    #[inline]
    pub(crate) fn interface_mut(&mut self) -> &mut HostInterface {
        &mut self.interface
    }

    /// Ends a turn: reclaims the messages that others have dropped, and wakes the clients that have something to take.
    pub(crate) fn end_turn(&mut self) {
        self.interface.collect_dropped();
        self.interface.end_turn();
    }

    /// Makes a mailbox.
    ///
    /// # Errors
    /// As [`HostInterface::create`].
    pub(crate) fn create_mailbox(
        &mut self,
        owner: Owner,
        name: &str,
        options: MailboxOptions,
    ) -> Result<(), HostError> {
        self.interface.create(owner, name, options).map(drop)
    }

    /// Deletes a mailbox, and ends its task.
    ///
    /// # Errors
    /// As [`HostInterface::delete`].
    pub(crate) fn delete_mailbox(&mut self, owner: Owner, name: &str) -> Result<(), HostError> {
        self.interface.delete(owner, name)?;
        self.prune();
        Ok(())
    }

    /// An owner has gone, and its mailboxes with it.
    pub(crate) fn disown(&mut self, owner: Owner) {
        self.interface.disown(owner);
        self.prune();
    }

    /// Ends the tasks whose mailboxes are gone.
    pub(crate) fn prune(&mut self) {
        self.tasks.prune(&self.interface);
    }

    /// Makes a kind of task known, under this name.
    pub(crate) fn register_task(&mut self, name: &str, factory: TaskFactory) {
        self.tasks.register(name, factory);
    }

    /// Starts a task that reads a mailbox of the owner's.
    ///
    /// # Errors
    /// There is no such task or mailbox, or as the task has it.
    pub(crate) fn create_task(
        &mut self,
        owner: Owner,
        task: &str,
        mailbox: &str,
        arguments: &BTreeMap<String, String>,
    ) -> Result<(), TaskError> {
        let key = self.interface.find_owned(owner, mailbox).map_err(TaskError::Mailbox)?;
        self.tasks.start(&mut self.interface, task, key, arguments, owner)
    }

    /// Ends the task that reads a mailbox of the owner's; false if none does.
    ///
    /// # Errors
    /// There is no such mailbox.
    pub(crate) fn end_task(&mut self, owner: Owner, mailbox: &str) -> Result<bool, HostError> {
        let key = self.interface.find_owned(owner, mailbox)?;
        Ok(self.tasks.end(&mut self.interface, key))
    }

    /// The name of the task behind an upcall's number.
    pub(crate) fn task_name(&self, upcall: u32) -> Option<&str> {
        self.tasks.name(upcall)
    }

    /// Runs a mailbox's task for one message.
    #[inline]
    pub(crate) fn run_task(&mut self, pool: &mut Pool, mailbox: MailboxKey, upcall: u32, message: Message) {
        let Host { interface, tasks, services, .. } = self;
        match tasks.running((interface, pool), services, (mailbox, upcall)) {
            Some((task, mut core)) => task.upcall(&mut core, message),
            None => interface.free(message),
        }
    }

    /// Runs a mailbox's task for the messages of an [`Arrival::Upcalls`](crossdock_mailbox::host::Arrival::Upcalls): how many
    /// there were.
    #[inline]
    pub(crate) fn run_task_for_burst(&mut self, pool: &mut Pool, mailbox: MailboxKey, upcall: u32) -> u32 {
        let Host { interface, tasks, services, .. } = self;
        let mut burst = interface.take_burst();
        let count = burst.len() as u32;
        let mut panicked = None;
        if let Some((task, mut core)) = tasks.running((interface, pool), services, (mailbox, upcall)) {
            let run = AssertUnwindSafe(|| task.upcall_batch(&mut core, &mut burst));
            panicked = catch_unwind(run).err();
        }
        // Also of a panic: those that were not taken would keep their buffers.
        interface.keep_burst(burst);
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
        count
    }

    /// A client's procedure has returned to the task that called it, or never will (`None`).
    pub(crate) fn take_returned(&mut self, ticket: u64, value: Option<u64>) {
        self.tasks.take_returned(&mut self.interface, ticket, value);
    }

    /// Puts the answers of services that came where they were asked for.
    pub(crate) fn take_answers(&mut self) {
        self.services.take_answers(&mut self.interface);
    }
}
