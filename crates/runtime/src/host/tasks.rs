//! Tasks on the core: what runs in the context when a message is put into a mailbox, in place of waking a reader
//! (Nectar paper, sections 3.3 and 3.5: "reader upcall").
//!
//! A task cannot hold the core: an upcall takes one message and does a bounded amount of work for it. Work that may wait (a
//! line of a log, a file) is asked of the host by [`Core::ask`], and its answer comes as a message.

mod builtin;

use crate::host::services::{Service, Services};
use crossdock_mailbox::host::{ClientKey, Draft, HostError, HostInterface, MailboxKey, Message, MessageLoss, Owner};
use crossdock_mailbox::{ConditionAddress, Pool, Reason, SyncAddress};
use slab::Slab;
use std::collections::{BTreeMap, HashMap};

/// The longest message whose bytes a task touches in one step, in bytes: a tenth of a millisecond of copying.
pub const MAX_STEP_BYTES: usize = 1 << 20;
/// Upcalls into clients whose results tasks may await at a time.
const MAX_AWAITED: usize = 1024;

/// A task that runs in the context for each message of a mailbox.
pub trait Task {
    /// Takes a message: puts it on, or frees it ([`Core::put`], [`Core::free`]). It must not wait, and its work is
    /// bounded.
    fn upcall(&mut self, core: &mut Core<'_>, message: Message);

    /// Takes messages that came together, in their order; those that it leaves are freed. For tasks whose work a message is
    /// small against the call.
    fn upcall_batch(&mut self, core: &mut Core<'_>, messages: &mut Vec<Message>) {
        messages.reverse();
        while let Some(message) = messages.pop() {
            self.upcall(core, message);
        }
    }
}

/// Makes a task of a kind for a mailbox.
pub type TaskFactory = Box<dyn Fn(&TaskSetup<'_>) -> Result<Box<dyn Task>, String> + Send>;

/// The setup from which a task is made.
pub struct TaskSetup<'a> {
    arguments: &'a BTreeMap<String, String>,
    host: &'a HostInterface,
    own: MailboxKey,
    client: Option<ClientKey>,
}

impl TaskSetup<'_> {
    /// An argument by name.
    #[must_use]
    pub fn argument(&self, name: &str) -> Option<&str> {
        self.arguments.get(name).map(String::as_str)
    }

    /// The mailbox that an argument names.
    ///
    /// # Errors
    /// The argument is missing, or there is no such mailbox.
    pub fn mailbox(&self, argument: &str) -> Result<MailboxKey, String> {
        let name =
            self.argument(argument).ok_or_else(|| format!("the argument `{argument}` is missing: a mailbox's name"))?;
        self.host.find(name).map_err(|error| error.to_string())
    }

    /// The mailbox that an argument names, other than the task's own: the task would receive its own messages
    /// indefinitely.
    ///
    /// # Errors
    /// As [`TaskSetup::mailbox`], or it is the task's own.
    pub fn other_mailbox(&self, argument: &str) -> Result<MailboxKey, String> {
        let other = self.mailbox(argument)?;
        if other == self.own {
            return Err(format!("the argument `{argument}` names the task's own mailbox: name another"));
        }
        Ok(other)
    }

    /// The attached client that asked for the task, if it was one.
    #[must_use]
    pub fn client(&self) -> Option<ClientKey> {
        self.client
    }

    /// Refuses arguments that the task does not know.
    ///
    /// # Errors
    /// The first of them, with those that it knows.
    pub fn only(&self, known: &[&str]) -> Result<(), String> {
        match self.arguments.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) if known.is_empty() => Err(format!("unknown argument `{name}`: this task takes none")),
            Some(name) => Err(format!("unknown argument `{name}`: this task takes {}", known.join(", "))),
        }
    }
}

/// The part of the core that an upcall may use.
pub struct Core<'a> {
    host: &'a mut HostInterface,
    pool: &'a mut Pool,
    services: &'a mut Services,
    awaited: &'a mut Slab<Awaited>,
    mailbox: MailboxKey,
    client: Option<ClientKey>,
}

impl Core<'_> {
    /// The mailbox that the message came from.
    #[must_use]
    pub fn mailbox(&self) -> MailboxKey {
        self.mailbox
    }

    /// Puts a message into a mailbox without copying it (the paper's enqueue). One that is gone by now frees it.
    #[inline]
    pub fn put(&mut self, to: MailboxKey, message: Message) {
        self.host.put(to, message);
    }

    /// Gives a message's buffer back.
    #[inline]
    pub fn free(&mut self, message: Message) {
        self.host.free(message);
    }

    /// Gives the buffers of all of these messages back.
    #[inline]
    pub fn free_all(&mut self, messages: &mut Vec<Message>) {
        self.host.free_all(messages);
    }

    /// Copies a message's bytes from `offset` on; false if it is not that long. The message may be changed by its
    /// writer's domain at any time: check the copy, and use that.
    #[inline]
    pub fn read(&self, message: &Message, offset: usize, into: &mut [u8]) -> bool {
        self.host.read(message, offset, into)
    }

    /// A new message of `bytes` bytes for a mailbox.
    ///
    /// # Errors
    /// It is too long, or there is no memory for it now.
    #[inline]
    pub fn begin_put(&mut self, to: MailboxKey, bytes: usize) -> Result<Draft, HostError> {
        self.host.begin_put(to, bytes)
    }

    /// Puts a new message of these bytes into a mailbox: quicker than [`Core::begin_put`].
    ///
    /// # Errors
    /// It is too long, or there is no memory for it now.
    #[inline]
    pub fn put_bytes(&mut self, to: MailboxKey, bytes: &[u8]) -> Result<(), HostError> {
        self.host.put_bytes(to, bytes)
    }

    /// Puts a copy of a message into a mailbox, each byte read once.
    ///
    /// # Errors
    /// It is too long, or there is no memory for it now.
    #[inline]
    pub fn put_copy(&mut self, to: MailboxKey, message: &Message) -> Result<(), HostError> {
        self.host.put_copy(to, message)
    }

    /// Whether there is room in a mailbox. A put is taken all the same; a task looks here before.
    #[must_use]
    #[inline]
    pub fn has_room(&mut self, mailbox: MailboxKey) -> bool {
        self.host.has_room(mailbox)
    }

    /// Drops a message that is longer than the task can take. The drop is counted and reported to the client that made
    /// the task.
    pub fn drop_too_long(&mut self, message: Message) {
        self.report_error(Reason::TooLong, message.len() as u64);
        self.host.lose(self.mailbox, message, MessageLoss::TooLong);
    }

    /// The same for a message whose target mailbox is at its bound: the reader of that mailbox is too slow.
    pub fn drop_for_bound(&mut self, message: Message) {
        self.report_error(Reason::Full, message.len() as u64);
        self.host.lose(self.mailbox, message, MessageLoss::Full);
    }

    /// The same for one that nothing could be made of for want of memory.
    pub fn drop_for_memory(&mut self, message: Message) {
        self.report_error(Reason::NoBuffers, message.len() as u64);
        self.host.lose(self.mailbox, message, MessageLoss::NoMemory);
    }

    /// Reports to the client that made the task, if it was one, an error that no call of its own would find.
    pub fn report_error(&mut self, reason: Reason, detail: u64) {
        if let Some(client) = self.client {
            self.host.report_error(client, reason, detail);
        }
    }

    /// Writes a client's sync (paper, section 3.4).
    #[inline]
    pub fn write_sync(&mut self, sync: SyncAddress, value: u64) {
        self.host.write_sync(sync, value);
    }

    /// Signals a client's condition (paper, section 3.2).
    pub fn signal(&mut self, condition: ConditionAddress) {
        self.host.signal(condition);
    }

    /// Asks a service of the host, with the first bytes of the message as its argument; the answer comes to the mailbox
    /// `reply`, where there is one. False if the host has more to do than may wait for it.
    pub fn ask(&mut self, service: Service, message: &Message, reply: Option<MailboxKey>) -> bool {
        let asked = self.services.ask(self.host, self.pool, service, message, reply);
        if !asked {
            self.host.count_loss(self.mailbox, MessageLoss::ServiceBusy, 1);
            self.report_error(Reason::Full, message.len() as u64);
        }
        asked
    }

    /// Requests an attached client to run a procedure of its own (an upcall into the host); its result comes to the
    /// mailbox `reply` as a message of 8 bytes, little-endian. False if the client has gone, or takes no more upcalls
    /// now.
    pub fn call(&mut self, client: ClientKey, procedure: u16, argument: u64, reply: Option<MailboxKey>) -> bool {
        if self.awaited.len() >= MAX_AWAITED {
            self.host.count_loss(self.mailbox, MessageLoss::UpcallRefused, 1);
            return false;
        }
        let ticket = self.awaited.insert(Awaited { reply });
        let called = self.host.upcall(client, procedure, argument, ticket as u64);
        if !called {
            self.awaited.remove(ticket);
            self.host.count_loss(self.mailbox, MessageLoss::UpcallRefused, 1);
        }
        called
    }
}

/// An upcall into a client that has not returned.
struct Awaited {
    reply: Option<MailboxKey>,
}

/// A task that runs.
struct Running {
    name: String,
    mailbox: MailboxKey,
    /// The attached client that made it, if one did.
    client: Option<ClientKey>,
    task: Box<dyn Task>,
}

/// The tasks that there are, and those that run.
pub(crate) struct Tasks {
    factories: HashMap<String, TaskFactory>,
    /// By the upcall's number.
    running: Slab<Running>,
    awaited: Slab<Awaited>,
}

/// Why a task was not made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TaskError {
    /// No task of that name.
    Unknown(String),
    /// Its arguments are not right.
    Arguments(String),
    /// The mailbox is gone, or has a reader.
    Mailbox(HostError),
}

impl Tasks {
    pub(crate) fn new() -> Tasks {
        Tasks { factories: builtin::factories(), running: Slab::new(), awaited: Slab::new() }
    }

    pub(crate) fn register(&mut self, name: &str, factory: TaskFactory) {
        self.factories.insert(name.to_owned(), factory);
    }

    /// The name of the task behind an upcall's number.
    pub(crate) fn name(&self, upcall: u32) -> Option<&str> {
        self.running.get(upcall as usize).map(|running| running.name.as_str())
    }

    /// Starts a task on a mailbox; what waits in that goes to it first.
    pub(crate) fn start(
        &mut self,
        host: &mut HostInterface,
        name: &str,
        mailbox: MailboxKey,
        arguments: &BTreeMap<String, String>,
        by: Owner,
    ) -> Result<(), TaskError> {
        let Some(factory) = self.factories.get(name) else {
            let mut known: Vec<&str> = self.factories.keys().map(String::as_str).collect();
            known.sort_unstable();
            return Err(TaskError::Unknown(format!("there is no task `{name}`; there are {}", known.join(", "))));
        };
        let client = host.clients().into_iter().map(|c| c.key).find(|key| by == Owner::Client(key.number()));
        let task = factory(&TaskSetup { arguments, host, own: mailbox, client }).map_err(TaskError::Arguments)?;
        let upcall = self.running.insert(Running { name: name.to_owned(), mailbox, client, task });
        host.attach_upcall(mailbox, upcall as u32).map_err(|error| {
            self.running.remove(upcall);
            TaskError::Mailbox(error)
        })
    }

    /// Ends the task of a mailbox; false if it has none.
    pub(crate) fn end(&mut self, host: &mut HostInterface, mailbox: MailboxKey) -> bool {
        match host.detach_upcall(mailbox) {
            Some(upcall) => self.running.try_remove(upcall as usize).is_some(),
            None => false,
        }
    }

    /// Ends the tasks whose mailboxes are gone.
    pub(crate) fn prune(&mut self, host: &HostInterface) {
        self.running.retain(|_, running| host.name_of(running.mailbox).is_some());
    }

    /// The task behind an upcall of a mailbox, and what it may use; `None` if it has ended since the message arrived.
    #[inline]
    pub(crate) fn running<'a>(
        &'a mut self,
        (host, pool): (&'a mut HostInterface, &'a mut Pool),
        services: &'a mut Services,
        (mailbox, upcall): (MailboxKey, u32),
    ) -> Option<(&'a mut dyn Task, Core<'a>)> {
        let Tasks { running, awaited, .. } = self;
        let running = running.get_mut(upcall as usize)?;
        let core = Core { host, pool, services, awaited, mailbox, client: running.client };
        Some((running.task.as_mut(), core))
    }

    /// A client's procedure has returned, or never will (`None`).
    pub(crate) fn take_returned(&mut self, host: &mut HostInterface, ticket: u64, value: Option<u64>) {
        let awaited = self.awaited.try_remove(ticket as usize);
        debug_assert!(awaited.is_some(), "call {ticket} is awaited");
        let Some(awaited) = awaited else { return };
        // Nobody wants the value, or there is none.
        let (Some(reply), Some(value)) = (awaited.reply, value) else { return };
        match host.begin_put(reply, size_of::<u64>()) {
            Ok(mut draft) => {
                draft.copy_from_slice(&value.to_le_bytes());
                host.put(reply, draft.finish(size_of::<u64>()));
            }
            Err(_) => host.count_loss(reply, MessageLoss::NoMemory, 1),
        }
    }
}

/// Answers a small remote call of a client.
pub(crate) fn answer_call(client: ClientKey, procedure: u16, argument: u64, now_ns: u64) -> u64 {
    match procedure {
        procedure::ECHO => argument,
        procedure::OWN_NUMBER => client.number().into(),
        procedure::UPTIME_NS => now_ns,
        _ => procedure::UNKNOWN,
    }
}

/// Procedures of the core that an attached client may call (paper, section 3.4: the small remote call).
pub mod procedure {
    /// Gives the argument back.
    pub const ECHO: u16 = 0;
    /// The caller's number in the daemon.
    pub const OWN_NUMBER: u16 = 1;
    /// How long the context has run, in ns.
    pub const UPTIME_NS: u16 = 2;
    /// The result of an unknown procedure.
    pub const UNKNOWN: u64 = u64::MAX;
}
