//! Mailboxes and tasks as sessions ask for them, over packets and over shared memory alike.

use crate::config::NodeAddress;
use crate::context::Context;
use crate::counters::DropReason;
use crate::host::tasks::TaskError;
use crate::host::{MessagePut, implementation_of};
use crate::info::MailboxInfo;
use crate::principal::{Bound, Principal};
use crate::refusal::refuse;
use crossdock_mailbox::host::{self, HostError, Losses, MailboxOptions, MailboxStatus, Owner, PortOptions};
use crossdock_transport::control::{Implementation, Refusal, RefusalCode, Side};
use crossdock_transport::handshake::Close;
use crossdock_transport::secure::PrivateKey;
use crossdock_transport::{ControlMessage, Notice, Reply, Request};
use std::collections::BTreeMap;

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

impl Context {
    /// Carries out a request about mailboxes, tasks or nodes: the reply.
    pub(crate) fn carry_out_mailbox(&mut self, key: usize, request: Request) -> Option<ControlMessage> {
        if !self.place.is_home() && !matches!(request, Request::FindNode { .. }) {
            // One made here would be another mailbox than that of its name at the home.
            let message = "this session's request to attach, or its hello, does not say that it uses mailboxes: say so";
            let refusal = refuse(RefusalCode::State, message.to_owned());
            return request.id().map(|id| Reply::Refused { id, refusal }.into());
        }
        let (id, outcome) = match request {
            Request::CreateMailbox { id, name, implementation: of, bound_messages, bound_bytes } => {
                let options = MailboxOptions { implementation: implementation(of), bound_messages, bound_bytes };
                (id, self.owner_of(key).and_then(|owner| self.create_mailbox(owner, &name, options)))
            }
            Request::DeleteMailbox { id, name } => {
                (id, self.owner_of(key).and_then(|owner| self.delete_mailbox(owner, &name)))
            }
            Request::OpenMailbox { id, name, side, message_bytes, ahead } => {
                let options = PortOptions { message_bytes, ahead };
                return Some(match self.open_mailbox(key, id, &name, side, options) {
                    Ok(reply) => reply.into(),
                    Err(refusal) => Reply::Refused { id, refusal }.into(),
                });
            }
            Request::CloseMailbox { id, number } => (id, self.close_mailbox(key, number)),
            Request::CreateTask { id, task, mailbox, arguments } => {
                (id, self.owner_of(key).and_then(|owner| self.create_task(owner, &task, &mailbox, &arguments)))
            }
            Request::EndTask { id, mailbox } => {
                (id, self.owner_of(key).and_then(|owner| self.end_task(owner, &mailbox)))
            }
            Request::FindNode { id, name } => {
                return Some(match self.find_node(&name) {
                    Ok(NodeAddress { name, address, key }) => {
                        let (address, key) = (address.to_string(), key.map(|key| key.to_string()));
                        Reply::Node { id, address, name, key }.into()
                    }
                    Err(refusal) => Reply::Refused { id, refusal }.into(),
                });
            }
            Request::GetMessages { number, messages, held } => {
                self.host.get_messages(key, number, messages, &held);
                return None;
            }
            _ => return None,
        };
        Some(match outcome {
            Ok(()) => Reply::Done { id }.into(),
            Err(refusal) => Reply::Refused { id, refusal }.into(),
        })
    }

    /// Whom the mailboxes that a peer makes go with.
    fn owner_of(&self, key: usize) -> Result<Owner, Refusal> {
        let owner = self.net.peer(key).map(|peer| peer.carrier().owner(key));
        owner.ok_or_else(|| refuse(RefusalCode::State, "the session has ended"))
    }

    fn create_mailbox(&mut self, owner: Owner, name: &str, options: MailboxOptions) -> Result<(), Refusal> {
        self.bound_mailboxes(owner)?;
        self.host.create_mailbox(owner, name, options).map_err(|error| refusal(&error))
    }

    /// The origin of a peer; `None` if it is gone.
    pub(crate) fn principal(&self, key: usize) -> Option<Principal> {
        self.net.peer(key).map(|peer| peer.carrier().principal())
    }

    /// The origin of the owner of a mailbox; `None` for the daemon.
    fn principal_of(&self, owner: Owner) -> Option<Principal> {
        match owner {
            Owner::Daemon => None,
            Owner::Client(number) => self.principal(self.net.of_client(number)?),
            Owner::Session(key) => self.principal(key as usize),
        }
    }

    /// Refuses a mailbox of an owner whose origin has as many as it may.
    ///
    /// # Errors
    /// That it has.
    pub(crate) fn bound_mailboxes(&self, owner: Owner) -> Result<(), Refusal> {
        // The daemon's own have no bound, and one that is gone gets none.
        let Some(principal) = self.principal_of(owner) else { return Ok(()) };
        let bound = Bound::new(self.config.max_mailboxes_per_peer, "max_mailboxes_per_peer");
        let bound = self.access.bound(principal, |quotas| quotas.mailboxes, bound);
        let of_it = self.host.interface().owners().filter(|owner| self.principal_of(*owner) == Some(principal));
        if of_it.count() >= bound.most as usize {
            return Err(principal.refuse_more("mailboxes", bound));
        }
        Ok(())
    }

    pub(crate) fn delete_mailbox(&mut self, owner: Owner, name: &str) -> Result<(), Refusal> {
        self.host.delete_mailbox(owner, name).map_err(|error| refusal(&error))?;
        self.report_closed_sides();
        Ok(())
    }

    fn open_mailbox(
        &mut self,
        key: usize,
        id: u32,
        name: &str,
        side: Side,
        options: PortOptions,
    ) -> Result<Reply, Refusal> {
        if side == Side::Read {
            self.host.refuse_second_reader(name)?;
        }
        let ahead = options.ahead;
        let Some((carrier, mut wire)) = self.net.carrier(key, self.host.interface_mut()) else {
            return Err(refusal(&HostError::Gone));
        };
        // A session over packets has no ports.
        let Some(opened) = carrier.open_port(&mut wire, name, side_of(side), options) else {
            return self.host.open_remote(key, id, name, side, ahead);
        };
        let opened = opened.map_err(|error| refusal(&error))?;
        let implementation = implementation_of(opened.implementation);
        Ok(Reply::MailboxOpened { id, number: opened.number, port: opened.port, implementation, ahead: None })
    }

    fn close_mailbox(&mut self, key: usize, number: u16) -> Result<(), Refusal> {
        let not_open = || refuse(RefusalCode::State, format!("this session has no mailbox open under number {number}"));
        let closed = self.net.carrier(key, self.host.interface_mut());
        let closed = match closed.and_then(|(carrier, mut wire)| carrier.close_port(&mut wire, number)) {
            Some(closed) => closed,
            None => self.host.close_remote(key, number),
        };
        if closed { Ok(()) } else { Err(not_open()) }
    }

    pub(crate) fn create_task(
        &mut self,
        owner: Owner,
        task: &str,
        mailbox: &str,
        arguments: &BTreeMap<String, String>,
    ) -> Result<(), Refusal> {
        self.host.refuse_second_reader(mailbox)?;
        self.host.create_task(owner, task, mailbox, arguments).map_err(|error| match error {
            TaskError::Unknown(what) => refuse(RefusalCode::UnknownTask, what),
            TaskError::Arguments(what) => refuse(RefusalCode::State, format!("task `{task}`: {what}")),
            TaskError::Mailbox(error) => refusal(&error),
        })
    }

    pub(crate) fn end_task(&mut self, owner: Owner, mailbox: &str) -> Result<(), Refusal> {
        if self.host.end_task(owner, mailbox).map_err(|error| refusal(&error))? {
            return Ok(());
        }
        Err(refuse(RefusalCode::UnknownTask, format!("no task reads mailbox `{mailbox}`")))
    }

    /// Notifies sessions of the mailboxes that are gone.
    pub(crate) fn report_closed_sides(&mut self) {
        while let Some((peer, notice)) = self.host.next_closed_side() {
            self.send_control(peer, &notice.into());
        }
    }

    /// A message of a session over packets, for the mailbox that it has open for writing under `number`.
    pub(crate) fn take_message(&mut self, peer: usize, number: u32, payload: &[u8]) {
        match self.host.put_message(peer, number, payload) {
            MessagePut::Done => self.replenish_writers(),
            MessagePut::NotOpen => self.net.count_drop(DropReason::NotOpen, 1),
            MessagePut::BeyondCredit => {
                self.net.count_drop(DropReason::BeyondCredit, 1);
                let reason = format!("more was put into mailbox number {number} than its credit allows");
                self.remove_peer(peer, "beyond_credit", Some(Close { again: false, reason }));
            }
        }
    }

    /// Sends readers what has come for them, and lets writers put more where there is room.
    pub(crate) fn serve_remote(&mut self) {
        if self.host.has_no_sides() {
            return;
        }
        self.report_closed_sides();
        self.host.serve_sides(|side, host| self.net.send_messages(side, host));
        self.replenish_writers();
    }

    /// Notifies the writers of mailboxes that lost messages. A peer that leaves its control messages untaken is passed over.
    pub(crate) fn report_losses(&mut self) {
        for (mailbox, losses) in self.host.take_losses(self.net.now_ns()) {
            let local = self.host.interface().writers_of(mailbox).into_iter();
            let local = local.filter_map(|(client, number)| Some((self.net.of_client(client.number())?, number)));
            let writers: Vec<(usize, u16)> = local.chain(self.host.remote_writers(mailbox)).collect();
            for (peer, number) in writers {
                if self.net.untaken_control_bytes(peer, self.host.interface()) > MAX_UNTAKEN_BYTES {
                    continue;
                }
                for (reason, messages) in losses.iter() {
                    let reason = format!("{} ({})", reason.words(), reason.name());
                    self.send_control(peer, &Notice::MessagesDropped { number, messages, reason }.into());
                }
            }
        }
    }

    /// Writers whose mailbox has room get back the credit that they used.
    fn replenish_writers(&mut self) {
        while let Some((peer, notice)) = self.host.next_replenished() {
            self.send_control(peer, &notice.into());
        }
    }

    /// A node's name, address and key.
    fn find_node(&self, name: &str) -> Result<NodeAddress, Refusal> {
        if name.is_empty() || name == self.config.node {
            let key = self.config.security.key.as_ref().map(PrivateKey::public);
            return Ok(NodeAddress { name: self.config.node.clone(), address: self.net.local_addr(), key });
        }
        let nodes = &self.config.nodes;
        if let Some(node) = nodes.iter().find(|known| known.name == name) {
            return Ok(node.clone());
        }
        let known = nodes.iter().map(|known| known.name.as_str()).chain([self.config.node.as_str()]);
        let known = known.collect::<Vec<_>>().join(", ");
        let what =
            format!("node `{name}` is unknown; the known nodes are {known} (add it to the daemon's configuration)");
        Err(refuse(RefusalCode::UnknownNode, what))
    }

    /// Rows of `crossdock mailboxes`.
    pub(crate) fn mailbox_infos(&self) -> Vec<MailboxInfo> {
        let there = self.host.interface().mailboxes().into_iter().map(|status| self.mailbox_info(status));
        let deleted = self.host.interface().deleted_mailboxes().into_iter().map(|(name, losses)| MailboxInfo {
            address: format!("{}/{name}", self.config.node),
            owner: "deleted".to_owned(),
            dropped: dropped(&losses),
            name,
            ..MailboxInfo::default()
        });
        there.chain(deleted).collect()
    }

    fn mailbox_info(&self, status: MailboxStatus) -> MailboxInfo {
        let owner = match status.owner {
            Owner::Daemon => "daemon".to_owned(),
            Owner::Client(number) => match self.net.of_client(number).and_then(|key| self.net.peer(key)) {
                Some(peer) => peer.to_string(),
                None => format!("client {number}"),
            },
            Owner::Session(key) => match self.net.peer(key as usize) {
                Some(peer) => format!("session {peer}"),
                None => "session".to_owned(),
            },
        };
        let (remote_writers, remote_readers) = self.host.remote_sides(status.key);
        MailboxInfo {
            address: format!("{}/{}", self.config.node, status.name),
            implementation: status.implementation.name().to_owned(),
            owner,
            upcall: status.upcall.and_then(|upcall| self.host.task_name(upcall)).map(str::to_owned),
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
