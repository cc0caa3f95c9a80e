//! A procedure as its caller sees it.

use super::super::{MailboxOptions, Message, Node, Put, Reader, ReaderOptions, Writer};
use super::caller::fill;
use super::header::{HEADER_BYTES, Header, MessageKind, parse_lengths};
use super::waiting::{Awaited, Waiting};
use super::{
    CallError, MOST_CALLS, OwnMailbox, check_name, micros, reply_mailbox, request_mailbox, service_mailbox, too_long,
};
use crate::error::Error;
use crate::shared::Inner;
use crossdock_mailbox::client::Wait;
use std::cell::RefCell;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Results that are taken between two looks at the clock.
const BURST: usize = 64;
/// Results that are kept where they came, at most; others come meanwhile in what is left of the mailbox's memory.
const MOST_IN_PLACE: usize = 32;
/// The longest of them, in bytes with their header: all together leave room for a result of any length.
const MOST_IN_PLACE_BYTES: usize = 16 << 10;

/// A procedure that some program serves ([`Node::procedure`]), for calls by one thread.
///
/// When its service is gone, so is it ([`CallError::Gone`]): no call is ever carried out by another service than the one that it was
/// sent to. [`Node::procedure`] finds the next one.
pub struct Procedure {
    name: String,
    line: RefCell<Line>,
}

/// A result. Dropping it gives its memory back; [`Procedure::end_reply`] does so quicker. A short one is read where it came, in the
/// mailbox of the caller's results; a long one, and one more than 32 that are kept there, is a copy.
pub struct Reply(Bytes);

/// Where a result is.
enum Bytes {
    /// That of the call that was waited for; those that are kept are counted by their references.
    InPlace { message: Message, _counted: Arc<()> },
    /// One that would else keep others from coming.
    Copied(Vec<u8>),
}

/// A call that waits for its result. Dropping it gives the call up; it may be carried out nevertheless.
#[must_use = "a call that is dropped is given up"]
pub struct Call<'p> {
    procedure: &'p Procedure,
    number: u64,
    until: Option<Instant>,
    is_over: bool,
}

impl Procedure {
    pub(super) fn find(node: &Node, name: &str) -> Result<Procedure, CallError> {
        check_name(name)?;
        let session = &node.session;
        let mut service = node.writer(&service_mailbox(name)).map_err(|error| match error {
            Error::UnknownMailbox(_) => CallError::NoProcedure(name.to_owned()),
            other => other.into(),
        })?;
        let caller = fastrand::u64(..);
        let mailbox = OwnMailbox::create(session, reply_mailbox(name, caller), MailboxOptions::default())?;
        // Over packets, as many results come ahead of those that were taken.
        let ahead = Some(MOST_CALLS as u32);
        let mut replies = node.reader_with(&mailbox.name, ReaderOptions { ahead })?;
        let wait = Wait::at_most(session.settings.connect_timeout);
        let mut hello = service.begin_put_by(HEADER_BYTES, wait)?.ok_or(CallError::DeadlinePassed)?;
        fill(&mut hello, Header::new(MessageKind::Hello, caller), &[]);
        service.end_put(hello)?;
        let answer = replies.begin_get_by(wait)?.ok_or(CallError::DeadlinePassed)?;
        match Header::parse(&answer) {
            Some(header) if header == Header::new(MessageKind::Welcome, caller) => {}
            Some(Header { kind: MessageKind::Full, .. }) => {
                return Err(CallError::TooManyCallers { name: name.to_owned() });
            }
            _ => return Err(Error::Malformed("the service's answer is none".to_owned()).into()),
        }
        replies.end_get(answer);
        let gone = |error: Error| CallError::Gone { name: name.to_owned(), reason: error.to_string() };
        let requests = node.writer(&request_mailbox(name, caller)).map_err(gone)?;
        let (calls, in_place) = (Vec::new(), Arc::new(()));
        let inbox = Inbox { requests, replies, calls, wanted: 0, in_place, gone: None, _mailbox: mailbox };
        let line = RefCell::new(Line { inbox, waiting: Waiting::new(session)?, last: 0 });
        Ok(Procedure { name: name.to_owned(), line })
    }

    /// The procedure's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Calls it, and waits for the result for as long as `deadline`. A service does not begin a call whose deadline it knows to
    /// have passed.
    ///
    /// # Errors
    /// Whatever [`CallError`] says.
    #[inline]
    pub fn call(&self, request: &[u8], deadline: Duration) -> Result<Reply, CallError> {
        self.begin_call(request, deadline)?.wait()
    }

    /// Calls it, and leaves the result for [`Call::wait`], so that several calls can be on their way. The deadline counts from now.
    /// Waits only while the service has no room for the request.
    ///
    /// # Errors
    /// [`CallError::TooManyCalls`], [`CallError::TooLong`], [`CallError::Gone`], and [`CallError::DeadlinePassed`] without the call
    /// having been sent.
    pub fn begin_call(&self, request: &[u8], deadline: Duration) -> Result<Call<'_>, CallError> {
        let now = Instant::now();
        let number = self.line.borrow_mut().begin(&self.name, request, now, deadline)?;
        Ok(Call { procedure: self, number, until: now.checked_add(deadline), is_over: false })
    }

    /// Ends a result: its memory is given back. The same as dropping it, but quicker.
    #[inline]
    pub fn end_reply(&self, reply: Reply) {
        if let Bytes::InPlace { message, .. } = reply.0 {
            self.line.borrow_mut().inbox.replies.end_get(message);
        }
    }
}

impl std::fmt::Debug for Procedure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Procedure").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Call<'_> {
    /// Waits for the result, until the call's deadline. Results may be waited for in any order.
    ///
    /// # Errors
    /// Whatever [`CallError`] says.
    #[inline]
    pub fn wait(mut self) -> Result<Reply, CallError> {
        let result = self.procedure.line.borrow_mut().wait(&self.procedure.name, self.number, self.until);
        self.is_over = true;
        result
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.procedure.line.borrow_mut().give_up(self.number);
        }
    }
}

impl std::fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call")
            .field("procedure", &self.procedure.name)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl Deref for Reply {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::InPlace { message, .. } => message,
            Bytes::Copied(bytes) => bytes,
        }
    }
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply").field("bytes", &self.len()).finish_non_exhaustive()
    }
}

/// The caller's two mailboxes, and how it waits for them.
struct Line {
    inbox: Inbox,
    waiting: Waiting,
    /// The number of the last call.
    last: u64,
}

/// The caller's two mailboxes, and its calls.
struct Inbox {
    requests: Writer,
    replies: Reader,
    /// Calls that are not given up, with their results; few, so a search costs nothing.
    calls: Vec<(u64, Option<Result<Reply, CallError>>)>,
    /// The call that is waited for.
    wanted: u64,
    /// Referred to by each result that is kept in its place.
    in_place: Arc<()>,
    /// Why nothing more comes, if that is so.
    gone: Option<String>,
    /// Of the replies; it goes after its reader.
    _mailbox: OwnMailbox,
}

impl Line {
    fn begin(&mut self, name: &str, request: &[u8], now: Instant, deadline: Duration) -> Result<u64, CallError> {
        if self.inbox.calls.len() >= MOST_CALLS {
            return Err(CallError::TooManyCalls { most: MOST_CALLS });
        }
        let number = self.last + 1;
        let bytes = HEADER_BYTES + request.len();
        let mut placing = Placing { inbox: &mut self.inbox, bytes, now, put: None };
        let waited = self.waiting.wait(now.checked_add(deadline), &mut placing).map(drop);
        let put = waited.and_then(|()| placing.put.transpose());
        let sent = put.and_then(|put| {
            let Some(mut put) = put else { return Ok(false) };
            // The rest of it: there may have been no room for a while.
            let left = deadline.saturating_sub(now.elapsed());
            let header = Header { kind: MessageKind::Request, number, deadline_us: micros(left) };
            fill(&mut put, header, request);
            self.inbox.requests.end_put(put).map(|()| true)
        });
        match sent {
            Ok(true) => {}
            Ok(false) => {
                let gone = self.inbox.gone.clone().map(|reason| CallError::Gone { name: name.to_owned(), reason });
                return Err(gone.unwrap_or(CallError::DeadlinePassed));
            }
            Err(error) => {
                return Err(match too_long(&error) {
                    Some((bytes, most)) => CallError::TooLong { bytes, most },
                    None => CallError::Gone { name: name.to_owned(), reason: error.to_string() },
                });
            }
        }
        self.last = number;
        self.inbox.calls.push((number, None));
        Ok(number)
    }

    fn wait(&mut self, name: &str, number: u64, until: Option<Instant>) -> Result<Reply, CallError> {
        let Line { inbox, waiting, .. } = self;
        inbox.wanted = number;
        let waited = waiting.wait(until, inbox);
        if let Some(result) = inbox.take(number) {
            return result;
        }
        let reason = match waited {
            Err(error) => Some(error.to_string()),
            Ok(_) => inbox.gone.clone(),
        };
        self.give_up(number);
        Err(reason.map_or(CallError::DeadlinePassed, |reason| CallError::Gone { name: name.to_owned(), reason }))
    }

    /// Forgets a call; the service does not begin it any more, if it learns this in time.
    fn give_up(&mut self, number: u64) {
        let calls = &mut self.inbox.calls;
        let Some(at) = calls.iter().position(|(call, _)| *call == number) else { return };
        if calls.swap_remove(at).1.is_none() {
            // Without room, or a service, it has its deadline.
            let requests = &mut self.inbox.requests;
            if let Ok(Some(mut put)) = requests.begin_put_by(HEADER_BYTES, Wait::Until(Instant::now())) {
                fill(&mut put, Header::new(MessageKind::Cancel, number), &[]);
                let _sent = requests.end_put(put);
            }
        }
    }
}

/// A call that waits for room for its request. Results are taken meanwhile: their service may wait for room too.
struct Placing<'a> {
    inbox: &'a mut Inbox,
    bytes: usize,
    /// When that began: a time that has passed.
    now: Instant,
    put: Option<Result<Put, Error>>,
}

impl Awaited for Placing<'_> {
    fn take_in(&mut self) -> bool {
        let Placing { inbox, bytes, now, put } = self;
        *put = inbox.requests.begin_put_by(*bytes, Wait::Until(*now)).transpose();
        if put.is_none() {
            inbox.wanted = 0;
            inbox.take_in();
        }
        put.is_some() || self.inbox.gone.is_some()
    }

    fn is_due(&self, inner: &mut Inner) -> bool {
        self.inbox.is_due(inner) || self.inbox.requests.has_room(inner)
    }
}

impl Inbox {
    /// A call's result, if it has one.
    fn take(&mut self, number: u64) -> Option<Result<Reply, CallError>> {
        let at = self.calls.iter().position(|(call, result)| *call == number && result.is_some())?;
        self.calls.swap_remove(at).1
    }

    fn has_wanted(&self) -> bool {
        self.calls.iter().any(|(call, result)| *call == self.wanted && result.is_some())
    }

    /// Takes the results that have come, up to that of the wanted call; an error if none will.
    fn take_replies(&mut self) -> Result<(), Error> {
        for _ in 0..BURST {
            if self.has_wanted() {
                break;
            }
            match self.replies.try_begin_get()? {
                Some(message) => self.sort(message),
                None => break,
            }
        }
        Ok(())
    }

    /// Gives a result to its call; that of a call that was given up is dropped, and so is what is none.
    fn sort(&mut self, mut message: Message) {
        let stays = message.len() <= MOST_IN_PLACE_BYTES && Arc::strong_count(&self.in_place) <= MOST_IN_PLACE;
        let header = Header::parse(&message).filter(|_| message.adjust(HEADER_BYTES, 0).is_ok());
        let call = header.and_then(|header| {
            let call = self.calls.iter_mut().find(|(number, result)| *number == header.number && result.is_none());
            Some((header, &mut call?.1))
        });
        let Some((header, place)) = call else { return self.replies.end_get(message) };
        let text = || String::from_utf8_lossy(&message).into_owned();
        *place = match header.kind {
            MessageKind::Reply if header.number == self.wanted && stays => {
                let _counted = Arc::clone(&self.in_place);
                *place = Some(Ok(Reply(Bytes::InPlace { message, _counted })));
                return;
            }
            MessageKind::Reply => Some(Ok(Reply(Bytes::Copied(message.to_vec())))),
            MessageKind::Failed => Some(Err(CallError::Failed(text()))),
            MessageKind::Panicked => Some(Err(CallError::Panicked(text()))),
            MessageKind::TooLong => {
                parse_lengths(&message).map(|(bytes, most)| Err(CallError::ReplyTooLong { bytes, most }))
            }
            MessageKind::Hello
            | MessageKind::Welcome
            | MessageKind::Full
            | MessageKind::Request
            | MessageKind::Cancel => None,
        };
        self.replies.end_get(message);
    }
}

impl Awaited for Inbox {
    #[inline]
    fn take_in(&mut self) -> bool {
        let mut state = self.take_replies();
        if self.has_wanted() {
            return true;
        }
        if let (Ok(()), Err(error)) = (&state, self.requests.check()) {
            // A reply that was put before the service went has come by now.
            state = self.take_replies().and(Err(error));
        }
        if let Err(error) = state {
            self.gone.get_or_insert_with(|| error.to_string());
        }
        self.gone.is_some() || self.has_wanted()
    }

    fn is_due(&self, inner: &mut Inner) -> bool {
        self.replies.has_message(inner) || self.requests.is_gone(inner)
    }
}
