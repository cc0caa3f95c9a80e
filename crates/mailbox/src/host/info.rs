//! The host interface's reports of itself: the facts behind `crossdock clients` and `crossdock mailboxes`.

use super::client::{Client, ClientKey};
use super::direct::passed_of;
use super::losses::{Losses, MessageLoss};
use super::mailbox::{CoreReader, Implementation, Mailbox, MailboxKey, Owner, PortKey, Side};
use super::{Area, HostInterface, Message};
use crate::segment::HugePages;
use std::collections::{BTreeMap, VecDeque};

/// The counts since the start, besides what clients and mailboxes count for themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounters {
    /// Clients that were admitted.
    pub attached: u64,
    /// Clients that are gone, for whatever reason.
    pub detached: u64,
    /// Of these, those that broke the protocol.
    pub violations: u64,
    /// Messages that were copied because they came from another domain.
    pub crossed: u64,
    /// Times that such a copy had to wait because the reader's inbox was full.
    pub inbox_full: u64,
    /// Messages of mailboxes with a name that were dropped.
    pub losses: Losses,
    /// Syncs and conditions of other domains that a client meant to write or signal.
    pub foreign: u64,
    /// Slots that a client gave back after their port was closed: no violation.
    pub late: u64,
    /// Errors that were not reported to a client because it asked for none.
    pub unreported: u64,
}

/// One attached client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientStatus {
    /// Its key.
    pub key: ClientKey,
    /// Its process.
    pub pid: u32,
    /// The process' name.
    pub process: String,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its protection domain.
    pub domain: String,
    /// When it was admitted, in ns of the caller's clock.
    pub attached_ns: u64,
    /// Sides of mailboxes that it has open, its session's apart.
    pub mailboxes: u32,
    /// Messages that it put.
    pub messages_in: u64,
    /// Messages that were delivered to it.
    pub messages_out: u64,
    /// Bytes of the messages that it put.
    pub bytes_in: u64,
    /// Bytes of the messages that were delivered to it.
    pub bytes_out: u64,
    /// Bytes of the buffers that it holds.
    pub bytes_held: u64,
    /// Those of them that count to its quota: in which it writes, and that it took over the signal queue.
    pub quota_used_bytes: u64,
    /// Its quota.
    pub quota_bytes: u64,
    /// Buffers that it holds.
    pub buffers_held: u32,
    /// Times that it was left waiting for a buffer.
    pub waits: u64,
    /// Times that it slept and was woken.
    pub sleeps_woken: u64,
    /// Whether its domain's messages lie in huge pages.
    pub huge_pages: bool,
}

/// One mailbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailboxStatus {
    /// Its key.
    pub key: MailboxKey,
    /// Its name.
    pub name: String,
    /// How clients' operations on it are carried out.
    pub implementation: Implementation,
    /// Its owner.
    pub owner: Owner,
    /// The number of the upcall that its messages go to.
    pub upcall: Option<u32>,
    /// Attached clients that have it open for writing.
    pub writers: u32,
    /// And for reading.
    pub readers: u32,
    /// Messages in it: put, and not yet ended by a reader.
    pub depth: u32,
    /// The bound on them.
    pub bound_messages: u32,
    /// Their bytes.
    pub bytes: u64,
    /// The bound on them.
    pub bound_bytes: u64,
    /// Messages put into it.
    pub puts: u64,
    /// Messages that left it.
    pub gets: u64,
    /// Times that a writer was left waiting because it was full.
    pub waits: u64,
    /// Messages dropped: of this mailbox, and of deleted ones of its name as far as remembered.
    pub losses: Losses,
    /// Whether its messages pass from its writer to its reader without the core now.
    pub is_direct: bool,
}

/// The memory of one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainStatus {
    /// Its name.
    pub name: String,
    /// Clients in it.
    pub clients: u32,
    /// Buffers in use in its shared segment, and their bytes.
    pub shared: (u32, u64),
    /// The same of its inbox.
    pub inbox: (u32, u64),
}

/// Deleted mailboxes whose losses are remembered; the oldest are forgotten first.
const MOST_DELETED: usize = 64;

/// The losses of deleted mailboxes, and which mailboxes have losses that their writers do not know of.
#[derive(Default)]
pub(super) struct LossTable {
    pub(super) deleted: VecDeque<DeletedMailbox>,
    unreported: Vec<MailboxKey>,
}

/// The counts that are kept of a deleted mailbox.
pub(super) struct DeletedMailbox {
    key: MailboxKey,
    pub(super) name: String,
    pub(super) losses: Losses,
}

impl LossTable {
    /// Remembers a deleted mailbox with its losses.
    pub(super) fn bury(&mut self, key: MailboxKey, name: String, losses: Losses) {
        if self.deleted.len() == MOST_DELETED {
            self.deleted.pop_front();
        }
        self.deleted.push_back(DeletedMailbox { key, name, losses });
    }
}

impl HostInterface {
    /// The counts.
    pub fn counters(&self) -> HostCounters {
        self.counters
    }

    /// Attached clients now.
    pub fn attached(&self) -> u32 {
        self.attached
    }

    /// Mailboxes with a name now.
    pub fn mailbox_count(&self) -> u32 {
        self.names.len() as u32
    }

    /// All attached clients, in the order of their places.
    pub fn clients(&self) -> Vec<ClientStatus> {
        self.clients.iter().map(|client| self.client_status(client)).collect()
    }

    /// One client; none if it has gone.
    pub fn client_info(&self, key: ClientKey) -> Option<ClientStatus> {
        self.client(key).map(|client| self.client_status(client))
    }

    /// The owners of all mailboxes with a name, one for each mailbox.
    pub fn owners(&self) -> impl Iterator<Item = Owner> {
        self.mailboxes.iter().filter(|(_, mailbox)| !mailbox.name.is_empty()).map(|(_, mailbox)| mailbox.owner)
    }

    fn client_status(&self, client: &Client) -> ClientStatus {
        let domain = self.domains.of(client.domain);
        let [put, got] = self.passed_by(client);
        ClientStatus {
            key: client.key,
            pid: client.peer.pid,
            process: client.peer.process.clone(),
            uid: client.peer.uid,
            gid: client.peer.gid,
            domain: domain.map_or_else(String::new, |domain| domain.name.clone()),
            attached_ns: client.attached_ns,
            mailboxes: client.open.iter().flatten().count() as u32,
            messages_in: client.messages_in.wrapping_add(put.puts),
            messages_out: client.messages_out.wrapping_add(got.handed),
            bytes_in: client.bytes_in.wrapping_add(put.put_bytes),
            bytes_out: client.bytes_out.wrapping_add(got.got_bytes),
            bytes_held: client.held_bytes(),
            quota_used_bytes: client.quota_used(),
            quota_bytes: client.quota_bytes,
            buffers_held: client.held_buffers(),
            waits: client.waits.wrapping_add(put.waits),
            sleeps_woken: client.wakes,
            huge_pages: domain.is_some_and(|d| d.heaps[Area::Shared as usize].segment.huge_pages() != HugePages::None),
        }
    }

    /// All mailboxes with a name, in the order of their names.
    pub fn mailboxes(&self) -> Vec<MailboxStatus> {
        let named = self.mailboxes.iter().filter(|(_, mailbox)| !mailbox.name.is_empty());
        let mut all: Vec<MailboxStatus> = named.map(|(index, mailbox)| self.mailbox_status(index, mailbox)).collect();
        for buried in &self.losses.deleted {
            if let Some(status) = all.iter_mut().find(|status| status.name == buried.name) {
                status.losses.add_all(&buried.losses);
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    fn mailbox_status(&self, index: usize, mailbox: &Mailbox) -> MailboxStatus {
        let passed = passed_of(&self.directs, mailbox);
        let key = MailboxKey { index: index as u32, generation: mailbox.generation };
        MailboxStatus {
            key,
            name: mailbox.name.clone(),
            implementation: mailbox.implementation,
            owner: mailbox.owner,
            upcall: match mailbox.core_reader {
                CoreReader::Upcall(upcall) => Some(upcall),
                CoreReader::None | CoreReader::Session(_) => None,
            },
            writers: mailbox.writers + u32::from(mailbox.writer.is_some()) + mailbox.more_writers.len() as u32,
            readers: mailbox.readers + u32::from(mailbox.reader.is_some()),
            depth: mailbox.depth.saturating_add(passed.depth),
            bound_messages: mailbox.bound_messages,
            bytes: mailbox.bytes.saturating_add(passed.bytes),
            bound_bytes: mailbox.bound_bytes,
            puts: mailbox.counters.puts.wrapping_add(passed.puts),
            gets: mailbox.counters.gets.wrapping_add(passed.gets),
            waits: mailbox.counters.waits.wrapping_add(passed.waits),
            losses: mailbox.counters.losses,
            is_direct: self.is_direct(key),
        }
    }

    /// The names of deleted mailboxes that lost messages, with the losses, in the order of the names: the latest deleted ones,
    /// without one of the same name now.
    pub fn deleted_mailboxes(&self) -> Vec<(String, Losses)> {
        let mut all = BTreeMap::<&str, Losses>::new();
        for buried in self.losses.deleted.iter().filter(|buried| !self.names.contains_key(&buried.name)) {
            all.entry(&buried.name).or_default().add_all(&buried.losses);
        }
        let lossy = all.into_iter().filter(|(_, losses)| losses.iter().next().is_some());
        lossy.map(|(name, losses)| (name.to_owned(), losses)).collect()
    }

    /// The memory of every domain; the first is the core's own.
    pub fn domains(&self) -> Vec<DomainStatus> {
        let held = |heap: &super::Heap| (heap.in_use(), heap.bytes_in_use());
        let status = |domain: &super::Domain| DomainStatus {
            name: domain.name.clone(),
            clients: domain.clients,
            shared: held(&domain.heaps[Area::Shared as usize]),
            inbox: held(&domain.heaps[Area::Inbox as usize]),
        };
        self.domains.iter().map(status).collect()
    }
}

impl HostInterface {
    /// Counts messages of a mailbox that were dropped, also when the mailbox is deleted by now. Its writers are to be notified
    /// ([`HostInterface::take_unreported`]).
    pub fn count_loss(&mut self, mailbox: MailboxKey, reason: MessageLoss, messages: u64) {
        if messages == 0 {
            return;
        }
        if let Some(entry) = self.mailbox_mut(mailbox) {
            if entry.name.is_empty() {
                // Packets of a session that has ended.
                return;
            }
            entry.counters.losses.add(reason, messages);
            let was_reported = entry.counters.unreported.iter().next().is_none();
            entry.counters.unreported.add(reason, messages);
            if was_reported {
                self.losses.unreported.push(mailbox);
            }
            self.counters.losses.add(reason, messages);
            return;
        }
        self.counters.losses.add(reason, messages);
        if let Some(buried) = self.losses.deleted.iter_mut().find(|buried| buried.key == mailbox) {
            buried.losses.add(reason, messages);
        }
    }

    /// Drops a message of a mailbox.
    pub fn lose(&mut self, mailbox: MailboxKey, message: Message, reason: MessageLoss) {
        self.free(message);
        self.count_loss(mailbox, reason, 1);
    }

    /// Whether mailboxes have losses that their writers do not know of.
    #[inline]
    pub fn has_unreported(&self) -> bool {
        !self.losses.unreported.is_empty()
    }

    /// The mailboxes whose writers are to be notified, with their losses since the last time.
    pub fn take_unreported(&mut self) -> Vec<(MailboxKey, Losses)> {
        let unreported = std::mem::take(&mut self.losses.unreported);
        let take = |key| Some((key, std::mem::take(&mut self.mailbox_mut(key)?.counters.unreported)));
        unreported.into_iter().filter_map(take).collect()
    }

    /// The attached clients that have a mailbox open for writing, each with its number for it.
    pub fn writers_of(&self, mailbox: MailboxKey) -> Vec<(ClientKey, u16)> {
        let Some(entry) = self.mailbox(mailbox) else { return Vec::new() };
        if entry.writer.is_none() && entry.writers == 0 {
            return Vec::new();
        }
        let writes = |open: &super::client::Open| open.mailbox == mailbox && open.side == Side::Write;
        let numbers = |client: &super::Client| -> Vec<(ClientKey, u16)> {
            let sides = (0..).zip(&client.open).filter(|(_, open)| open.as_ref().is_some_and(writes));
            sides.map(|(number, _)| (client.key, number)).collect()
        };
        match entry.writer {
            Some(PortKey { client, .. }) => self.clients.at(client).map(numbers).unwrap_or_default(),
            None => self.clients.iter().flat_map(numbers).collect(),
        }
    }
}
