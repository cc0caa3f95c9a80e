//! The mailboxes that a session over packets has open: what has come for them, and the credit of each.

use crate::error::Error;
use crate::incoming::{Incoming, Opened};
use crate::link::Link;
use crossdock_transport::Notice;
use std::collections::{HashMap, VecDeque};

/// Messages that a reader takes ahead, unless it says otherwise.
pub(crate) const AHEAD: u32 = 16;

/// Ended messages of this number of bytes are reported, however few they are: the daemon keeps each until then.
const REPORT_BYTES: u64 = 256 << 10;
/// Bytes that a message counts for beside its own.
const BYTES_BESIDE: u64 = 64;
/// Held messages that a report of later ones names at most; beyond that the oldest count as ended.
const MAX_HELD: usize = 256;

/// A message that has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// By which it is ended.
    pub(crate) number: u64,
    pub(crate) bytes: Vec<u8>,
}

/// A message that was got, and whose end the daemon does not know of.
#[derive(Debug)]
struct Begun {
    number: u64,
    bytes: usize,
    is_ended: bool,
}

/// Messages that were ended, for [`crossdock_transport::Request::GetMessages`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) messages: u32,
    /// Those before the last of them that are held still.
    pub(crate) held: Vec<u32>,
}

/// One open side of a mailbox.
#[derive(Debug, Default)]
pub(crate) struct Side {
    /// Messages that have come and were not got yet.
    queue: VecDeque<Arrived>,
    /// Messages that were got, by their numbers, until they are reported as ended.
    begun: VecDeque<Begun>,
    /// How many more the daemon may send.
    credit: u64,
    /// Messages that were ended and not reported yet.
    ended: u32,
    /// Their bytes.
    ended_bytes: u64,
    /// Number of them that is reported at once.
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
    pub(crate) fn get(&mut self) -> Option<Arrived> {
        let message = self.queue.pop_front()?;
        self.begun.push_back(Begun { number: message.number, bytes: message.bytes.len(), is_ended: false });
        Some(message)
    }

    /// Whether a message has come that was not got.
    pub(crate) fn has_message(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether a message may be put.
    pub(crate) fn has_credit(&self) -> bool {
        self.may_put != Some(0)
    }

    /// A message was ended: what is to be reported, which is not done for each alone.
    pub(crate) fn ended(&mut self, number: u64) -> Option<Ended> {
        // One of an earlier side of that number is of no interest any more.
        let at = self.begun.binary_search_by_key(&number, |begun| begun.number).ok()?;
        let begun = self.begun.get_mut(at).filter(|begun| !begun.is_ended)?;
        begun.is_ended = true;
        self.ended += 1;
        self.ended_bytes += begun.bytes as u64 + BYTES_BESIDE;
        (self.ended >= self.refill || self.ended_bytes >= REPORT_BYTES).then(|| self.take_ended()).flatten()
    }

    /// The messages that were ended and are not reported yet.
    pub(crate) fn take_ended(&mut self) -> Option<Ended> {
        let messages = std::mem::take(&mut self.ended);
        self.ended_bytes = 0;
        self.credit += u64::from(messages);
        let last = self.begun.iter().rposition(|begun| begun.is_ended)?;
        let before = (0..).zip(self.begun.range(..last));
        let held = before.filter(|(_, begun)| !begun.is_ended).map(|(at, _)| at).take(MAX_HELD).collect();
        self.begun.retain(|begun| !begun.is_ended);
        Some(Ended { messages, held })
    }

    /// The drops since it was last asked, for one reason.
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
    /// Messages that have come so far.
    arrived: u64,
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
        self.arrived += 1;
        let asked_for = side.credit > 0;
        if asked_for {
            side.credit -= 1;
            side.queue.push_back(Arrived { number: self.arrived, bytes });
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
        let queued: Vec<_> = post.sides[&3].queue.iter().map(|message| &message.bytes[..]).collect();
        assert_eq!(queued, [[1], [2]]);
        assert!(!post.sides.contains_key(&4));
    }

    #[test]
    fn a_reader_reports_what_it_has_ended_and_what_it_holds_before_that() {
        let mut post = Post::default();
        post.expect(7, 8);
        post.open(&opened(7, 3, None));
        (0..8).for_each(|byte| assert!(post.take(3, vec![byte])));
        let side = post.side(3).unwrap();
        let numbers: Vec<u64> = std::iter::from_fn(|| side.get()).map(|message| message.number).collect();
        // Half of what it takes ahead is reported at once.
        let ended: Vec<_> = [1, 3, 4].iter().map(|at| side.ended(numbers[*at])).collect();
        assert_eq!(ended, [None, None, None]);
        assert_eq!(side.ended(numbers[3]), None, "it was ended before");
        assert_eq!(side.ended(numbers[5]), Some(Ended { messages: 4, held: vec![0, 2] }));
        // 0, 2, 6 and 7 are left.
        assert_eq!((side.ended(numbers[0]), side.ended(numbers[6])), (None, None));
        assert_eq!(side.take_ended(), Some(Ended { messages: 2, held: vec![1] }));
        assert_eq!((side.take_ended(), side.credit), (None, 6));
        assert_eq!(side.ended(numbers[0]), None, "it was reported");
    }

    #[test]
    fn long_messages_are_reported_when_they_are_ended() {
        let mut post = Post::default();
        post.expect(7, 8);
        post.open(&opened(7, 3, None));
        assert!(post.take(3, vec![0; 1 << 20]));
        let side = post.side(3).unwrap();
        let number = side.get().unwrap().number;
        assert_eq!(side.ended(number), Some(Ended { messages: 1, held: Vec::new() }));
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
