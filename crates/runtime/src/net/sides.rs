//! The sides of mailboxes that sessions over packets have open.

use crossdock_mailbox::host::{HostError, HostInterface, MailboxKey, Message, MessageLoss};
use crossdock_transport::control::Side;
use std::collections::VecDeque;

/// One side of a mailbox that a session over packets has open.
pub(crate) struct RemoteSide {
    /// Key of its peer.
    pub(crate) peer: usize,
    /// The session's number for it.
    pub(crate) number: u16,
    pub(crate) mailbox: MailboxKey,
    pub(crate) side: Side,
    /// Of a writer: messages that it may put. Of a reader: messages that it takes, however many it says.
    pub(crate) credit: u64,
    /// The credit that it began with: of a writer the most that it may put ahead, of a reader the messages that it takes before it has
    /// ended one.
    pub(crate) ahead: u64,
    /// Of a writer: what was put, while there is no memory to put it into the mailbox. Of a reader: what was got, while
    /// there is no buffer to send it in.
    pub(crate) waiting: VecDeque<Waiting>,
}

/// A message that waits for memory.
pub(crate) enum Waiting {
    Put(Box<[u8]>),
    Got(Message),
}

impl RemoteSide {
    /// Of a writer: how much of its credit is to be given back, once its mailbox has room. A notice for every message would double
    /// the packets.
    pub(crate) fn due_credit(&self) -> Option<u64> {
        let used = self.ahead.saturating_sub(self.credit);
        let is_due = self.side == Side::Write && used > 0 && used >= self.ahead / 2 && self.waiting.is_empty();
        is_due.then_some(used)
    }

    /// Ends it. What waits for memory is lost, and so is what a reader that goes was sent and has not reported as ended. Of a
    /// mailbox that is deleted the reader stays, and has what it was sent.
    pub(crate) fn end(self, host: &mut HostInterface) {
        let mut lost = self.waiting.len() as u64;
        let reason = match self.side {
            _ if host.name_of(self.mailbox).is_none() => MessageLoss::Undeliverable,
            Side::Read => {
                lost += self.ahead.saturating_sub(self.credit);
                MessageLoss::ReaderGone
            }
            Side::Write => MessageLoss::WriterGone,
        };
        host.count_loss(self.mailbox, reason, lost);
        for waiting in self.waiting {
            if let Waiting::Got(message) = waiting {
                host.free(message);
            }
        }
    }

    /// Puts what waits into the mailbox, as far as there is memory for it.
    pub(crate) fn serve_writer(&mut self, host: &mut HostInterface) {
        while let Some(Waiting::Put(bytes)) = self.waiting.front() {
            let mut draft = match host.begin_put(self.mailbox, bytes.len()) {
                Ok(draft) => draft,
                Err(HostError::TooLong { .. }) => {
                    self.waiting.pop_front();
                    host.count_loss(self.mailbox, MessageLoss::TooLong, 1);
                    continue;
                }
                // There is no memory now, or the mailbox has gone.
                Err(_) => return,
            };
            draft.copy_from_slice(bytes);
            let len = bytes.len();
            self.waiting.pop_front();
            host.put(self.mailbox, draft.finish(len));
        }
    }
}
