//! An open side of a mailbox over packets: a number in one session.

use crate::error::Error;
use crate::link::NOBODY;
use crate::post::{Arrived, DroppedMessages, Ended, Side};
use crate::shared::Inner;
use crossdock_transport::Request;

/// An open side of a mailbox, as its writer or reader knows it.
#[derive(Clone, Debug)]
pub(super) struct OpenSide {
    /// The session in which it is open.
    pub(super) session: u64,
    /// Its number there.
    pub(super) number: u16,
    /// The mailbox's name, for errors.
    pub(super) mailbox: String,
}

impl OpenSide {
    /// Whether both are the same side.
    pub(super) fn is_same(&self, other: &OpenSide) -> bool {
        (self.session, self.number) == (other.session, other.number)
    }

    /// The side, while it is there.
    fn side<'a>(&self, inner: &'a mut Inner) -> Option<&'a mut Side> {
        if self.session != inner.link.session() {
            return None;
        }
        inner.post.as_mut()?.side(self.number)
    }

    /// Why nothing more comes from it and goes into it; `None` as long as something may.
    fn end(&self, inner: &mut Inner) -> Option<Error> {
        if let Err(error) = inner.link.check_up() {
            return Some(error);
        }
        if self.session != inner.link.session() {
            return Some(inner.link.lost());
        }
        let closed = |reason: String| Some(Error::MailboxClosed { mailbox: self.mailbox.clone(), reason });
        match self.side(inner) {
            Some(side) => side.closed().cloned().and_then(closed),
            None => closed("it was closed".to_owned()),
        }
    }

    /// The next message, if one has come; an error if none will.
    pub(super) fn get(&self, inner: &mut Inner) -> Option<Result<Arrived, Error>> {
        if let Some(message) = self.side(inner).and_then(Side::get) {
            return Some(Ok(message));
        }
        self.end(inner).map(Err)
    }

    /// Whether [`OpenSide::get`] has something.
    pub(super) fn has_message(&self, inner: &mut Inner) -> bool {
        self.side(inner).is_some_and(|side| side.has_message()) || self.end(inner).is_some()
    }

    /// Whether [`OpenSide::may_put`] has something.
    pub(super) fn has_room(&self, inner: &mut Inner) -> bool {
        let has_credit = self.side(inner).is_some_and(|side| side.has_credit());
        (has_credit && inner.link.has_room()) || self.end(inner).is_some()
    }

    /// The drops that the daemon has reported; an error if it will report nothing more.
    pub(super) fn dropped(&self, inner: &mut Inner) -> Option<Result<DroppedMessages, Error>> {
        if let Some(dropped) = self.side(inner).and_then(Side::take_dropped) {
            return Some(Ok(dropped));
        }
        self.end(inner).map(Err)
    }

    /// A message was ended: that is reported, not for each message alone.
    pub(super) fn ended(&self, inner: &mut Inner, message: u64) {
        let Some(ended) = self.side(inner).and_then(|side| side.ended(message)) else { return };
        self.report(inner, ended);
        inner.link.transmit();
    }

    fn report(&self, inner: &mut Inner, ended: Ended) {
        let Ended { messages, held } = ended;
        inner.link.ask(Request::GetMessages { number: self.number, messages, held });
    }

    /// Whether a message may be put: then it is counted. An error if none ever may again.
    pub(super) fn may_put(&self, inner: &mut Inner) -> Option<Result<(), Error>> {
        if let Some(error) = self.end(inner) {
            return Some(Err(error));
        }
        if !inner.link.has_room() {
            return None;
        }
        let side = self.side(inner);
        debug_assert!(side.is_some(), "a side that has not ended is there");
        side?.may_put().then_some(Ok(()))
    }

    /// A message that was counted is not put after all.
    pub(super) fn not_put(&self, inner: &mut Inner) {
        if let Some(side) = self.side(inner) {
            side.not_put();
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
        if let Some(ended) = self.side(inner).and_then(Side::take_ended) {
            self.report(inner, ended);
        }
        if inner.post.as_mut().is_some_and(|post| post.close(self.number)) {
            inner.link.ask(Request::CloseMailbox { id: NOBODY, number: self.number });
            inner.link.transmit();
        }
    }
}
