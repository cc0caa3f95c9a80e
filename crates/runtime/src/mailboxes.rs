//! Mailboxes and tasks as sessions ask for them, over packets and over shared memory alike.

use crate::access::Access;
use crate::config::{ContextConfig, NodeAddress};
use crate::counters::DropReason;
use crate::handle::ContextHandle;
use crate::host::tasks::{TaskError, TaskFactory};
use crate::host::{Host, MessagePut, implementation_of};
use crate::info::MailboxInfo;
use crate::io::IoPlace;
use crate::net::Net;
use crate::principal::{Bound, Principal};
use crate::refusal::{Stopped, refuse};
use crossdock_mailbox::host::{self, HostError, Losses, MailboxOptions, MailboxStatus, Owner, PortOptions};
use crossdock_transport::control::{Implementation, Refusal, RefusalCode, Side};
use crossdock_transport::handshake::Close;
use crossdock_transport::secure::PrivateKey;
use crossdock_transport::{ControlMessage, Notice, Reply, Request};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Control messages that a writer has not taken, in bytes, beyond which it is not notified of dropped messages.
const MAX_UNTAKEN_BYTES: u64 = 64 << 10;

/// The refusal for what the host interface would not do.
fn refusal(error: &HostError) -> Refusal {
    let code = match error {
        HostError::Limit { .. } | HostError::NoBuffers { .. } => RefusalCode::Limit,
        HostError::Unknown(_) => RefusalCode::UnknownMailbox,
        HostError::Exists(_) => RefusalCode::Exists,
        HostError::Busy { .. } | HostError::HasReader(_) => RefusalCode::Busy,
        HostError::Name | HostError::NotOwner(_) | HostError::TooLong { .. } | HostError::Gone => RefusalCode::State,
    };
    refuse(code, error.to_string())
}

/// As the host interface names an implementation.
fn implementation(of: Implementation) -> host::Implementation {
    match of {
        Implementation::Rings => host::Implementation::Rings,
        Implementation::SignalQueue => host::Implementation::SignalQueue,
    }
}

/// As the host interface names a side.
fn side_of(side: Side) -> host::Side {
    match side {
        Side::Write => host::Side::Write,
        Side::Read => host::Side::Read,
    }
}

/// Numbers of dropped messages by reason, in name order.
fn dropped(losses: &Losses) -> Vec<(String, u64)> {
    let mut dropped: Vec<_> = losses.iter().map(|(reason, messages)| (reason.name().to_owned(), messages)).collect();
    dropped.sort();
    dropped
}

impl Host {
    /// Carries out a request of a peer at a context about mailboxes, tasks or nodes: the reply.
    pub(crate) fn carry_out(
        &mut self,
        key: usize,
        request: Request,
        net: &mut Net,
        (place, config, access): (IoPlace, &ContextConfig, &Access),
    ) -> Option<ControlMessage> {
        if !place.is_home() && !matches!(request, Request::FindNode { .. }) {
            // One made here would be another mailbox than that of its name at the home.
            let message = "this session's request to attach, or its hello, does not say that it uses mailboxes: say so";
            let refusal = refuse(RefusalCode::State, message.to_owned());
            return request.id().map(|id| Reply::Refused { id, refusal }.into());
        }
        let (id, outcome) = match request {
            Request::CreateMailbox { id, name, implementation: of, bound_messages, bound_bytes } => {
                let options = MailboxOptions { implementation: implementation(of), bound_messages, bound_bytes };
                let limits = (&*net, config, access);
                let made = net.owner_of(key);
                (id, made.and_then(|owner| self.create_mailbox_of(owner, &name, options, limits)))
            }
            Request::DeleteMailbox { id, name } => {
                let owner = net.owner_of(key);
                (id, owner.and_then(|owner| self.delete_mailbox_of(owner, &name, net)))
            }
            Request::OpenMailbox { id, name, side, message_bytes, ahead } => {
                let options = PortOptions { message_bytes, ahead };
                return Some(match self.open_mailbox((key, id), &name, side, options, net) {
                    Ok(reply) => reply.into(),
                    Err(refusal) => Reply::Refused { id, refusal }.into(),
                });
            }
            Request::CloseMailbox { id, number } => (id, self.close_mailbox(key, number, net)),
            Request::CreateTask { id, task, mailbox, arguments } => {
                let owner = net.owner_of(key);
                (id, owner.and_then(|owner| self.begin_task(owner, &task, &mailbox, &arguments)))
            }
            Request::EndTask { id, mailbox } => {
                (id, net.owner_of(key).and_then(|owner| self.end_task_of(owner, &mailbox)))
            }
            Request::FindNode { id, name } => {
                return Some(match config.find_node(&name, net.local_addr()) {
                    Ok(NodeAddress { name, address, key }) => {
                        let (address, key) = (address.to_string(), key.map(|key| key.to_string()));
                        Reply::Node { id, address, name, key }.into()
                    }
                    Err(refusal) => Reply::Refused { id, refusal }.into(),
                });
            }
            Request::GetMessages { number, messages, held } => {
                self.get_messages(key, number, messages, &held);
                return None;
            }
            _ => return None,
        };
        Some(match outcome {
            Ok(()) => Reply::Done { id }.into(),
            Err(refusal) => Reply::Refused { id, refusal }.into(),
        })
    }
}

impl Net {
    /// Whom the mailboxes that a peer makes go with.
    fn owner_of(&self, key: usize) -> Result<Owner, Refusal> {
        let owner = self.peer(key).map(|peer| peer.carrier().owner(key));
        owner.ok_or_else(|| refuse(RefusalCode::State, "the session has ended"))
    }

    /// The origin of a peer; `None` if it is gone.
    pub(crate) fn principal(&self, key: usize) -> Option<Principal> {
        self.peer(key).map(|peer| peer.carrier().principal())
    }

    /// The origin of the owner of a mailbox; `None` for the daemon.
    fn principal_of(&self, owner: Owner) -> Option<Principal> {
        match owner {
            Owner::Daemon => None,
            Owner::Client(number) => self.principal(self.of_client(number)?),
            Owner::Session(key) => self.principal(key as usize),
        }
    }

    /// Notifies sessions of the mailboxes that are gone.
    pub(crate) fn report_closed_sides(&mut self, host: &mut Host) {
        while let Some((peer, notice)) = host.next_closed_side() {
            self.send(peer, &notice.into(), host.interface_mut());
        }
    }

    /// A message of a session over packets, for the mailbox that it has open for writing under `number`.
    ///
    /// # Errors
    /// The session is to end: it is beyond its credit.
    pub(crate) fn put_message(
        &mut self,
        peer: usize,
        number: u32,
        payload: &[u8],
        host: &mut Host,
    ) -> Result<(), Close> {
        match host.put_message(peer, number, payload) {
            MessagePut::Done => self.replenish_writers(host),
            MessagePut::NotOpen => self.count_drop(DropReason::NotOpen, 1),
            MessagePut::BeyondCredit => {
                self.count_drop(DropReason::BeyondCredit, 1);
                let reason = format!("more was put into mailbox number {number} than its credit allows");
                return Err(Close { again: false, reason });
            }
        }
        Ok(())
    }

    /// Sends readers what has come for them, and lets writers put more where there is room.
    pub(crate) fn serve_remote(&mut self, host: &mut Host) {
        if host.has_no_sides() {
            return;
        }
        self.report_closed_sides(host);
        host.serve_sides(|side, host| self.send_messages(side, host));
        self.replenish_writers(host);
    }

    /// Notifies the writers of mailboxes that lost messages. A peer that leaves its control messages untaken is passed over.
    pub(crate) fn report_losses(&mut self, host: &mut Host) {
        for (mailbox, losses) in host.take_losses(self.now_ns()) {
            let local = host.interface().writers_of(mailbox).into_iter();
            let local = local.filter_map(|(client, number)| Some((self.of_client(client.number())?, number)));
            let writers: Vec<(usize, u16)> = local.chain(host.remote_writers(mailbox)).collect();
            for (peer, number) in writers {
                if self.untaken_control_bytes(peer, host.interface()) > MAX_UNTAKEN_BYTES {
                    continue;
                }
                for (reason, messages) in losses.iter() {
                    let reason = format!("{} ({})", reason.words(), reason.name());
                    let notice = Notice::MessagesDropped { number, messages, reason };
                    self.send(peer, &notice.into(), host.interface_mut());
                }
            }
        }
    }

    /// Writers whose mailbox has room get back the credit that they used.
    fn replenish_writers(&mut self, host: &mut Host) {
        while let Some((peer, notice)) = host.next_replenished() {
            self.send(peer, &notice.into(), host.interface_mut());
        }
    }
}

impl ContextConfig {
    /// A node's name, address and key. This daemon's own address is `local`.
    fn find_node(&self, name: &str, local: SocketAddr) -> Result<NodeAddress, Refusal> {
        if name.is_empty() || name == self.node {
            let key = self.security.key.as_ref().map(PrivateKey::public);
            return Ok(NodeAddress { name: self.node.clone(), address: local, key });
        }
        let nodes = &self.nodes;
        if let Some(node) = nodes.iter().find(|known| known.name == name) {
            return Ok(node.clone());
        }
        let known = nodes.iter().map(|known| known.name.as_str()).chain([self.node.as_str()]);
        let known = known.collect::<Vec<_>>().join(", ");
        let what =
            format!("node `{name}` is unknown; the known nodes are {known} (add it to the daemon's configuration)");
        Err(refuse(RefusalCode::UnknownNode, what))
    }
}

impl Host {
    /// Makes a mailbox, unless its owner's origin has as many as it may.
    fn create_mailbox_of(
        &mut self,
        owner: Owner,
        name: &str,
        options: MailboxOptions,
        limits: (&Net, &ContextConfig, &Access),
    ) -> Result<(), Refusal> {
        self.bound_mailboxes(owner, limits)?;
        self.create_mailbox(owner, name, options).map_err(|error| refusal(&error))
    }

    /// Refuses a mailbox of an owner whose origin has as many as it may.
    ///
    /// # Errors
    /// That it has.
    pub(crate) fn bound_mailboxes(
        &self,
        owner: Owner,
        (net, config, access): (&Net, &ContextConfig, &Access),
    ) -> Result<(), Refusal> {
        // The daemon's own have no bound, and one that is gone gets none.
        let Some(principal) = net.principal_of(owner) else { return Ok(()) };
        let bound = Bound::new(config.max_mailboxes_per_peer, "max_mailboxes_per_peer");
        let bound = access.bound(principal, |quotas| quotas.mailboxes, bound);
        let of_it = self.interface().owners().filter(|owner| net.principal_of(*owner) == Some(principal));
        if of_it.count() >= bound.most as usize {
            return Err(principal.refuse_more("mailboxes", bound));
        }
        Ok(())
    }

    /// Deletes a mailbox, and notifies the sessions that have it open.
    fn delete_mailbox_of(&mut self, owner: Owner, name: &str, net: &mut Net) -> Result<(), Refusal> {
        self.delete_mailbox(owner, name).map_err(|error| refusal(&error))?;
        net.report_closed_sides(self);
        Ok(())
    }

    fn open_mailbox(
        &mut self,
        (key, id): (usize, u32),
        name: &str,
        side: Side,
        options: PortOptions,
        net: &mut Net,
    ) -> Result<Reply, Refusal> {
        if side == Side::Read {
            self.refuse_second_reader(name)?;
        }
        let ahead = options.ahead;
        let Some((carrier, mut wire)) = net.carrier(key, self.interface_mut()) else {
            return Err(refusal(&HostError::Gone));
        };
        // A session over packets has no ports.
        let Some(opened) = carrier.open_port(&mut wire, name, side_of(side), options) else {
            return self.open_remote(key, id, name, side, ahead);
        };
        let opened = opened.map_err(|error| refusal(&error))?;
        let implementation = implementation_of(opened.implementation);
        Ok(Reply::MailboxOpened { id, number: opened.number, port: opened.port, implementation, ahead: None })
    }

    fn close_mailbox(&mut self, key: usize, number: u16, net: &mut Net) -> Result<(), Refusal> {
        let not_open = || refuse(RefusalCode::State, format!("this session has no mailbox open under number {number}"));
        let closed = net.carrier(key, self.interface_mut());
        let closed = match closed.and_then(|(carrier, mut wire)| carrier.close_port(&mut wire, number)) {
            Some(closed) => closed,
            None => self.close_remote(key, number),
        };
        if closed { Ok(()) } else { Err(not_open()) }
    }

    /// Starts a task for a caller.
    fn begin_task(
        &mut self,
        owner: Owner,
        task: &str,
        mailbox: &str,
        arguments: &BTreeMap<String, String>,
    ) -> Result<(), Refusal> {
        self.refuse_second_reader(mailbox)?;
        self.create_task(owner, task, mailbox, arguments).map_err(|error| match error {
            TaskError::Unknown(what) => refuse(RefusalCode::UnknownTask, what),
            TaskError::Arguments(what) => refuse(RefusalCode::State, format!("task `{task}`: {what}")),
            TaskError::Mailbox(error) => refusal(&error),
        })
    }

    /// Ends a task for a caller.
    fn end_task_of(&mut self, owner: Owner, mailbox: &str) -> Result<(), Refusal> {
        if self.end_task(owner, mailbox).map_err(|error| refusal(&error))? {
            return Ok(());
        }
        Err(refuse(RefusalCode::UnknownTask, format!("no task reads mailbox `{mailbox}`")))
    }

    /// Rows of `crossdock mailboxes`.
    pub(crate) fn mailbox_infos(&self, node: &str, net: &Net) -> Vec<MailboxInfo> {
        let there = self.interface().mailboxes().into_iter().map(|status| self.mailbox_info(status, node, net));
        let deleted = self.interface().deleted_mailboxes().into_iter().map(|(name, losses)| MailboxInfo {
            address: format!("{node}/{name}"),
            owner: "deleted".to_owned(),
            dropped: dropped(&losses),
            name,
            ..MailboxInfo::default()
        });
        there.chain(deleted).collect()
    }

    fn mailbox_info(&self, status: MailboxStatus, node: &str, net: &Net) -> MailboxInfo {
        let owner = match status.owner {
            Owner::Daemon => "daemon".to_owned(),
            Owner::Client(number) => match net.of_client(number).and_then(|key| net.peer(key)) {
                Some(peer) => peer.to_string(),
                None => format!("client {number}"),
            },
            Owner::Session(key) => match net.peer(key as usize) {
                Some(peer) => format!("session {peer}"),
                None => "session".to_owned(),
            },
        };
        let (remote_writers, remote_readers) = self.remote_sides(status.key);
        MailboxInfo {
            address: format!("{node}/{}", status.name),
            implementation: status.implementation.name().to_owned(),
            owner,
            upcall: status.upcall.and_then(|upcall| self.task_name(upcall)).map(str::to_owned),
            writers: status.writers + remote_writers,
            readers: status.readers + remote_readers,
            direct: status.is_direct,
            depth: status.depth,
            bound_messages: status.bound_messages,
            bytes: status.bytes,
            bound_bytes: status.bound_bytes,
            puts: status.puts,
            gets: status.gets,
            waits: status.waits,
            dropped: dropped(&status.losses),
            name: status.name,
        }
    }
}

impl ContextHandle {
    /// All mailboxes, in the order of their names.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn mailboxes(&self) -> Result<Vec<MailboxInfo>, Stopped> {
        self.ask(|context| context.host.mailbox_infos(&context.config.node, &context.net))
    }

    /// Makes a mailbox of the daemon's own, which stays until it is deleted.
    ///
    /// # Errors
    /// [`Stopped`]; within, why the mailbox is refused.
    pub fn create_mailbox(&self, name: &str, options: MailboxOptions) -> Result<Result<(), String>, Stopped> {
        let name = name.to_owned();
        self.ask(move |context| {
            let made = context.host.create_mailbox(Owner::Daemon, &name, options);
            made.map_err(|error| error.to_string())
        })
    }

    /// Deletes a mailbox, whoever created it, with the messages in it.
    ///
    /// # Errors
    /// [`Stopped`]; within, why it is not deleted.
    pub fn delete_mailbox(&self, name: &str) -> Result<Result<(), String>, Stopped> {
        let name = name.to_owned();
        self.ask(move |context| {
            let deleted = context.host.delete_mailbox_of(Owner::Daemon, &name, &mut context.net);
            deleted.map_err(|refusal| refusal.message)
        })
    }

    /// Makes a kind of task known: from now on sessions can have it read mailboxes, under this name. A kind of the same
    /// name is replaced; tasks that run go on unchanged.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn register_task(&self, name: &str, factory: TaskFactory) -> Result<(), Stopped> {
        let name = name.to_owned();
        self.ask(move |context| context.host.register_task(&name, factory))
    }

    /// Starts a task that reads a mailbox.
    ///
    /// # Errors
    /// [`Stopped`]; within, why the task is refused.
    pub fn create_task(
        &self,
        task: &str,
        mailbox: &str,
        arguments: &BTreeMap<String, String>,
    ) -> Result<Result<(), String>, Stopped> {
        let (task, mailbox, arguments) = (task.to_owned(), mailbox.to_owned(), arguments.clone());
        self.ask(move |context| {
            let made = context.host.begin_task(Owner::Daemon, &task, &mailbox, &arguments);
            made.map_err(|refusal| refusal.message)
        })
    }

    /// Ends the task that reads a mailbox.
    ///
    /// # Errors
    /// [`Stopped`]; within, that there is none.
    pub fn end_task(&self, mailbox: &str) -> Result<Result<(), String>, Stopped> {
        let mailbox = mailbox.to_owned();
        self.ask(move |context| {
            let ended = context.host.end_task_of(Owner::Daemon, &mailbox);
            ended.map_err(|refusal| refusal.message)
        })
    }
}
