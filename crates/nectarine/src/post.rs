//! The mailboxes that a session over packets has open: what has come for them, and the credit of each.

use crate::error::Error;
use crate::incoming::{Incoming, Opened};
use crate::link::Link;
use crossdock_transport::Notice;
use std::collections::{HashMap, VecDeque};

/// Messages that a reader takes ahead, unless it says otherwise.
pub(crate) const AHEAD: u32 = 16;

/// One open side of a mailbox.
#[derive(Debug, Default)]
pub(crate) struct Side {
    /// Messages that have come and were not got yet.
    queue: VecDeque<Vec<u8>>,
    /// How many more the daemon may send.
    credit: u64,
    /// Messages that were ended and not yet asked for anew.
    ended: u32,
    /// Number that is requested anew at once.
    refill: u32,
    /// How many messages may be put; none: as many as the session takes.
    may_put: Option<u64>,
    /// Why the mailbox is gone, if it is.
    closed: Option<String>,
    /// Of a writer: messages that were dropped, by reason; the daemon has few reasons.
    dropped: VecDeque<DroppedMessages>,
}

/// Messages of a mailbox that no reader gets, whoever put them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DroppedMessages {
    /// How many.
    pub messages: u64,
    /// Why, and in parentheses the name under which `crossdock mailboxes` counts them.
    pub reason: String,
}

/// Reasons that are kept apart until the application takes them.
const MAX_REASONS: usize = 16;

impl Side {
    /// Why the mailbox is gone, if it is.
    pub(crate) fn closed(&self) -> Option<&String> {
        self.closed.as_ref()
    }

    /// The next message that has come.
    pub(crate) fn get(&mut self) -> Option<Vec<u8>> {
        self.queue.pop_front()
    }

    /// A message was ended: how many are to be asked for anew, which is not done for each alone.
    pub(crate) fn ended(&mut self) -> Option<u32> {
        self.ended += 1;
        if self.ended < self.refill {
            return None;
        }
        let messages = std::mem::take(&mut self.ended);
        self.credit += u64::from(messages);
        Some(messages)
    }

    /// A reader is closed: how many messages it has ended and not yet asked for anew, so that the daemon does not count them as
    /// lost.
    pub(crate) fn take_ended(&mut self) -> u32 {
        std::mem::take(&mut self.ended)
    }

    /// What was dropped since it was last asked, for one reason.
    pub(crate) fn take_dropped(&mut self) -> Option<DroppedMessages> {
        self.dropped.pop_front()
    }

    fn note_dropped(&mut self, messages: u64, reason: String) {
        if let Some(dropped) = self.dropped.iter_mut().find(|dropped| dropped.reason == reason) {
            dropped.messages = dropped.messages.saturating_add(messages);
        } else if self.dropped.len() < MAX_REASONS {
            self.dropped.push_back(DroppedMessages { messages, reason });
        }
    }

    /// Whether a message may be put: then it is counted.
    pub(crate) fn may_put(&mut self) -> bool {
        match &mut self.may_put {
            Some(0) => false,
            Some(more) => {
                *more -= 1;
                true
            }
            None => true,
        }
    }

    /// A message that was counted is not put after all.
    pub(crate) fn not_put(&mut self) {
        if let Some(more) = &mut self.may_put {
            *more += 1;
        }
    }
}

/// All open sides of the session that stands, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Post {
    sides: HashMap<u16, Side>,
    /// How many messages ahead were asked for with each request for a reader that is not answered yet.
    asked: HashMap<u32, u32>,
}

impl Post {
    /// Gives what has arrived to whom it is for.
    pub(crate) fn sort(&mut self, link: &mut Link) {
        while let Some(incoming) = link.inbox.pop_front() {
            match incoming {
                Incoming::Opened(opened) => self.open(&opened),
                Incoming::Message { number, bytes } => {
                    if !self.take(number, bytes) {
                        link.fail(Error::Malformed("more messages of a mailbox than were requested".to_owned()));
                        return;
                    }
                }
                Incoming::Notice(Notice::MailboxClosed { number, reason }) => {
                    if let Some(side) = self.sides.get_mut(&number) {
                        side.closed = Some(reason);
                    }
                }
                Incoming::Notice(Notice::MessagesDropped { number, messages, reason }) => {
                    if let Some(side) = self.sides.get_mut(&number) {
                        side.note_dropped(messages, reason);
                    }
                }
                Incoming::Notice(Notice::MayPut { number, messages }) => {
                    if let Some(may_put) = self.sides.get_mut(&number).and_then(|side| side.may_put.as_mut()) {
                        *may_put = may_put.saturating_add(messages.into());
                    }
                }
                Incoming::Reconnected => {
                    self.sides.clear();
                    self.asked.clear();
                }
                // A node neither publishes nor subscribes.
                Incoming::Notice(_) | Incoming::Records(_) | Incoming::Subscribed { .. } => {}
            }
        }
    }

    /// Notes that a reader was asked for that takes `ahead` messages ahead.
    pub(crate) fn expect(&mut self, id: u32, ahead: u32) {
        self.asked.insert(id, ahead);
    }

    /// An open side, by its number.
    pub(crate) fn side(&mut self, number: u16) -> Option<&mut Side> {
        self.sides.get_mut(&number)
    }

    /// Forgets a side; whether it was open.
    pub(crate) fn close(&mut self, number: u16) -> bool {
        self.sides.remove(&number).is_some()
    }

    fn open(&mut self, opened: &Opened) {
        let ahead = self.asked.remove(&opened.id).unwrap_or(0);
        let may_put = opened.ahead.map(u64::from);
        let side = Side { credit: ahead.into(), refill: ahead.div_ceil(2), may_put, ..Side::default() };
        self.sides.insert(opened.number, side);
    }

    /// Keeps a message for its reader. `false` if it was not asked for; what is for nobody any more is dropped.
    fn take(&mut self, number: u32, bytes: Vec<u8>) -> bool {
        let Some(side) = u16::try_from(number).ok().and_then(|number| self.sides.get_mut(&number)) else {
            return true;
        };
        let asked_for = side.credit > 0;
        if asked_for {
            side.credit -= 1;
            side.queue.push_back(bytes);
        }
        asked_for
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock_transport::Implementation;

    fn opened(id: u32, number: u16, ahead: Option<u32>) -> Opened {
        Opened { id, number, port: None, implementation: Implementation::Rings, ahead }
    }

    #[test]
    fn a_reader_is_sent_no_more_than_it_asked_for() {
        let mut post = Post::default();
        post.expect(7, 2);
        post.open(&opened(7, 3, None));
        assert!(post.take(3, vec![1]) && post.take(3, vec![2]));
        assert!(!post.take(3, vec![3]), "beyond what was asked for");
        assert!(post.take(4, vec![1]) && post.take(70_000, vec![1]), "for nobody any more");
        assert_eq!(post.sides[&3].queue, [[1], [2]]);
        assert!(!post.sides.contains_key(&4));
    }

    #[test]
    fn a_writer_keeps_to_what_it_was_allowed() {
        let mut post = Post::default();
        post.open(&opened(1, 1, Some(4)));
        post.open(&opened(2, 2, None));
        assert_eq!((post.sides[&1].may_put, post.sides[&2].may_put), (Some(4), None));
        assert!(!post.take(1, vec![1]), "nothing is read from it");
    }
}
