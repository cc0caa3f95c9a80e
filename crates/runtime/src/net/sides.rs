//! The sides of mailboxes that sessions over packets have open.

use crossdock_mailbox::host::{HostError, HostInterface, MailboxKey, Message, MessageLoss};
use crossdock_transport::control::Side;
use std::collections::VecDeque;

/// The most that a reader may be sent and not have ended, in bytes, as [`cost`] counts them (one message in any case):
/// no more than an attached one is handed ahead.
const UNENDED_BYTES: u64 = 4 << 20;

/// The cost of a message: its bytes, and what is kept beside them.
fn cost(message: &Message) -> u64 {
    message.len() as u64 + 64
}

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
    /// The credit that it began with: of a writer the most that it may put ahead.
    ahead: u64,
    /// Of a writer: what was put, while there is no memory to put it into the mailbox. Of a reader: what was got, while
    /// there is no buffer to send it in.
    pub(crate) waiting: VecDeque<Waiting>,
    /// Of a reader: what it was sent and has not reported as ended, in order.
    unended: VecDeque<Message>,
    /// Their cost.
    unended_bytes: u64,
}

/// A message that waits for memory.
pub(crate) enum Waiting {
    Put(Box<[u8]>),
    Got(Message),
}

impl RemoteSide {
    /// A side with this credit.
    pub(crate) fn new(peer: usize, number: u16, mailbox: MailboxKey, side: Side, ahead: u32) -> RemoteSide {
        let (waiting, unended) = (VecDeque::new(), VecDeque::new());
        let credit = ahead.into();
        RemoteSide { peer, number, mailbox, side, credit, ahead: credit, waiting, unended, unended_bytes: 0 }
    }

    /// Whether a reader may be sent a message now. If not, it may be once it has ended some.
    pub(crate) fn takes_messages(&self) -> bool {
        self.credit > 0 && self.unended_bytes < UNENDED_BYTES
    }

    /// A reader was sent a message, which is kept until it reports it as ended.
    pub(crate) fn sent(&mut self, message: Message) {
        self.credit -= 1;
        self.unended_bytes += cost(&message);
        self.unended.push_back(message);
    }

    /// A reader has ended `messages` messages, and takes the same number again. They are the oldest of those that it was sent, except
    /// the ones that it still holds: `held` has their positions, in ascending order.
    pub(crate) fn ended(&mut self, messages: u32, held: &[u32], host: &mut HostInterface) {
        self.credit = self.credit.saturating_add(messages.into());
        let (mut left, mut held, mut kept) = (messages, held.iter().peekable(), Vec::new());
        for position in 0.. {
            if left == 0 {
                break;
            }
            let Some(message) = self.unended.pop_front() else { break };
            if held.next_if_eq(&&position).is_some() {
                kept.push(message);
            } else {
                self.unended_bytes -= cost(&message);
                host.free(message);
                left -= 1;
            }
        }
        kept.into_iter().rev().for_each(|message| self.unended.push_front(message));
    }

    /// Of a writer: how much of its credit is to be given back, once its mailbox has room. A notice for every message would double
    /// the packets.
    pub(crate) fn due_credit(&self) -> Option<u64> {
        let used = self.ahead.saturating_sub(self.credit);
        let is_due = self.side == Side::Write && used > 0 && used >= self.ahead / 2 && self.waiting.is_empty();
        is_due.then_some(used)
    }

    /// Gives a writer all of its credit back.
    pub(crate) fn replenish(&mut self) {
        self.credit = self.ahead;
    }

    /// Ends it. A message that a reader was sent and has not reported as ended is the first in the mailbox again, for
    /// the next reader. A message that a writer has put and there was no memory for is lost. Of a mailbox that is
    /// deleted the reader stays, and has what it was sent.
    pub(crate) fn end(self, host: &mut HostInterface) {
        let is_deleted = host.name_of(self.mailbox).is_none();
        if is_deleted || self.side == Side::Write {
            let reason = if is_deleted { MessageLoss::Undeliverable } else { MessageLoss::WriterGone };
            host.count_loss(self.mailbox, reason, self.waiting.len() as u64);
        }
        let waiting = self.waiting.into_iter().filter_map(|waiting| match waiting {
            Waiting::Got(message) => Some(message),
            Waiting::Put(_) => None,
        });
        host.put_back_got(self.mailbox, self.unended.into_iter().chain(waiting));
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
