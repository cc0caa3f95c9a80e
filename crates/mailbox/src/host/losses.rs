//! Messages that no reader gets: counted for their mailbox by reason, and kept for a report to its writers.

use super::client::ClientKey;
use super::mailbox::{MailboxKey, PortKey, Side};
use super::{HostInterface, Message};
use std::collections::VecDeque;

/// Deleted mailboxes whose losses are remembered; the oldest are forgotten first.
const MOST_DELETED: usize = 64;

/// Why a message of a mailbox was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum MessageLoss {
    /// It was with a reader that closed, died or lost its session, and had not been ended.
    ReaderGone,
    /// Its writer's session ended before there was memory for it in the mailbox.
    WriterGone,
    /// It is longer than its remote reader, the mailbox's task or the daemon takes.
    TooLong,
    /// The mailbox that its task writes into was full.
    Full,
    /// There was no memory for it, or for what its task makes of it.
    NoMemory,
    /// Its task asked for a service of the host, which had no place for the request.
    ServiceBusy,
    /// Its task called a client that takes no calls now.
    UpcallRefused,
    /// The mailbox was deleted while the message was in it, or on its way to it.
    Undeliverable,
}

impl MessageLoss {
    const ALL: [MessageLoss; 8] = [
        MessageLoss::ReaderGone,
        MessageLoss::WriterGone,
        MessageLoss::TooLong,
        MessageLoss::Full,
        MessageLoss::NoMemory,
        MessageLoss::ServiceBusy,
        MessageLoss::UpcallRefused,
        MessageLoss::Undeliverable,
    ];

    /// Its name in lists and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            MessageLoss::ReaderGone => "reader_gone",
            MessageLoss::WriterGone => "writer_gone",
            MessageLoss::TooLong => "too_long",
            MessageLoss::Full => "full",
            MessageLoss::NoMemory => "no_memory",
            MessageLoss::ServiceBusy => "service_busy",
            MessageLoss::UpcallRefused => "upcall_refused",
            MessageLoss::Undeliverable => "undeliverable",
        }
    }

    /// The reason in words, for a mailbox's writers.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            MessageLoss::ReaderGone => "a reader had them and went without having ended them",
            MessageLoss::WriterGone => "a writer's session ended before there was memory for them",
            MessageLoss::TooLong => "they are longer than a remote reader, the mailbox's task or the daemon takes",
            MessageLoss::Full => "the mailbox that the task writes into was full",
            MessageLoss::NoMemory => "there was no memory for them",
            MessageLoss::ServiceBusy => "the host's services had no place for the task's request",
            MessageLoss::UpcallRefused => "the client that the task calls takes no calls now",
            MessageLoss::Undeliverable => "the mailbox was deleted",
        }
    }
}

/// Numbers of dropped messages, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses([u64; MessageLoss::ALL.len()]);

impl Losses {
    /// Messages dropped for a reason.
    #[must_use]
    pub fn of(&self, reason: MessageLoss) -> u64 {
        self.0[reason as usize]
    }

    /// The reasons that occurred, each with the number of messages.
    pub fn iter(&self) -> impl Iterator<Item = (MessageLoss, u64)> {
        MessageLoss::ALL.into_iter().zip(self.0).filter(|(_, messages)| *messages > 0)
    }

    pub(super) fn add(&mut self, reason: MessageLoss, messages: u64) {
        self.0[reason as usize] += messages;
    }

    pub(super) fn add_all(&mut self, other: &Losses) {
        self.0.iter_mut().zip(other.0).for_each(|(all, more)| *all += more);
    }
}

/// The losses of deleted mailboxes, and which mailboxes have losses that their writers do not know of.
#[derive(Default)]
pub(super) struct LossTable {
    pub(super) deleted: VecDeque<DeletedMailbox>,
    unreported: Vec<MailboxKey>,
}

/// What is remembered of a deleted mailbox.
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
