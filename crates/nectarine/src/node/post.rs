//! The mailboxes that a session over packets has open: what has come for them, and the credit of each.

use crate::error::Error;
use crate::incoming::{Incoming, Opened};
use crate::link::{Link, NOBODY};
use crate::shared::Inner;
use crossdock_transport::{Notice, Request};
use std::collections::{HashMap, VecDeque};

/// Messages that a reader takes ahead, unless it says otherwise.
pub(super) const AHEAD: u32 = 16;

/// One open side of a mailbox.
#[derive(Debug, Default)]
struct Side {
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
                        link.fail(Error::Malformed("more messages of a mailbox than were asked for".to_owned()));
                        return;
                    }
                }
                Incoming::Notice(Notice::MailboxClosed { number, reason }) => {
                    if let Some(side) = self.sides.get_mut(&number) {
                        side.closed = Some(reason);
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
    pub(super) fn expect(&mut self, id: u32, ahead: u32) {
        self.asked.insert(id, ahead);
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

/// An open side, as who uses it knows it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The session in which it is open.
    pub(super) session: u64,
    /// Its number there.
    pub(super) number: u16,
    /// The mailbox's name, for errors.
    pub(super) mailbox: String,
}

impl Place {
    /// Whether both are the same side.
    pub(super) fn is_same(&self, other: &Place) -> bool {
        (self.session, self.number) == (other.session, other.number)
    }

    /// The side, while it is there.
    fn side<'a>(&self, inner: &'a mut Inner) -> Option<&'a mut Side> {
        if self.session != inner.link.session() {
            return None;
        }
        inner.post.as_mut()?.sides.get_mut(&self.number)
    }

    /// Why nothing more comes from it and goes into it; `None` as long as something may.
    fn end(&self, inner: &mut Inner) -> Option<Error> {
        if let Some(fault) = inner.link.fault() {
            return Some(fault);
        }
        if !inner.link.is_up() || self.session != inner.link.session() {
            return Some(inner.link.lost());
        }
        let closed = |reason: String| Some(Error::MailboxClosed { mailbox: self.mailbox.clone(), reason });
        match self.side(inner) {
            Some(side) => side.closed.clone().and_then(closed),
            None => closed("it was closed".to_owned()),
        }
    }

    /// The next message, if one has come; an error if none will.
    pub(super) fn get(&self, inner: &mut Inner) -> Option<Result<Vec<u8>, Error>> {
        if let Some(message) = self.side(inner).and_then(|side| side.queue.pop_front()) {
            return Some(Ok(message));
        }
        self.end(inner).map(Err)
    }

    /// A message was ended: its place is asked for anew, not for each message alone.
    pub(super) fn ended(&self, inner: &mut Inner) {
        let Some(side) = self.side(inner) else { return };
        side.ended += 1;
        if side.ended < side.refill {
            return;
        }
        let messages = std::mem::take(&mut side.ended);
        side.credit += u64::from(messages);
        inner.link.ask(Request::GetMessages { number: self.number, messages });
        inner.link.transmit();
    }

    /// Whether a message may be put: then it is counted. An error if none ever may again.
    pub(super) fn may_put(&self, inner: &mut Inner) -> Option<Result<(), Error>> {
        if let Some(error) = self.end(inner) {
            return Some(Err(error));
        }
        if !inner.link.has_room() {
            return None;
        }
        match &mut self.side(inner)?.may_put {
            Some(0) => None,
            Some(more) => {
                *more -= 1;
                Some(Ok(()))
            }
            None => Some(Ok(())),
        }
    }

    /// A message that was counted is not put after all.
    pub(super) fn not_put(&self, inner: &mut Inner) {
        if let Some(Side { may_put: Some(more), .. }) = self.side(inner) {
            *more += 1;
        }
    }

    /// Whether a message can still be put.
    ///
    /// # Errors
    /// The mailbox or the session is gone.
    pub(super) fn check(&self, inner: &mut Inner) -> Result<(), Error> {
        self.end(inner).map_or(Ok(()), Err)
    }

    /// Closes the side.
    pub(super) fn close(&self, inner: &mut Inner) {
        if self.session != inner.link.session() {
            return;
        }
        if let Some(post) = &mut inner.post
            && post.sides.remove(&self.number).is_some()
        {
            inner.link.ask(Request::CloseMailbox { id: NOBODY, number: self.number });
            inner.link.transmit();
        }
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
