//! A caller as its service knows it: its two mailboxes, and the calls that wait for their turn.

use super::super::{Message, Reader, Writer};
use super::counts::Counts;
use super::header::{HEADER_BYTES, Header, MessageKind, encode_lengths};
use super::{MOST_CALLS, MOST_TEXT_BYTES, OwnMailbox, too_long};
use crate::error::Error;
use crate::shared::Inner;
use crossdock_mailbox::client::Wait;
use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Messages of a caller that are taken before it is another one's turn.
const BURST: usize = 64;
/// The longest that a result waits for room, whenever its caller would give up.
const MOST_OWED: Duration = Duration::from_secs(600);

/// A caller's two mailboxes and calls.
pub(super) struct Caller {
    /// By which it said hello.
    number: u64,
    requests: Reader,
    replies: Writer,
    calls: VecDeque<Waiting>,
    /// The number of the last call that came.
    last: u64,
    owed: Option<Owed>,
    is_gone: bool,
    /// Of the requests; it goes after its reader.
    _mailbox: OwnMailbox,
}

/// A call that waits for its turn.
struct Waiting {
    number: u64,
    /// Without its header.
    request: Message,
    /// When its caller gives up; never, if that cannot be said.
    until: Option<Instant>,
}

/// A result for which its caller's mailbox had no room.
struct Owed {
    header: Header,
    body: Vec<u8>,
    /// When it is dropped.
    until: Instant,
}

impl Caller {
    pub(super) fn new(number: u64, mailbox: OwnMailbox, requests: Reader, replies: Writer) -> Caller {
        let calls = VecDeque::with_capacity(MOST_CALLS);
        Caller { number, requests, replies, calls, last: 0, owed: None, is_gone: false, _mailbox: mailbox }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whether it needs no service any more: it is gone, or its mailboxes are.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Until when a result waits for room.
    pub(super) fn owes_until(&self) -> Option<Instant> {
        self.owed.as_ref().map(|owed| owed.until)
    }

    /// Takes what has come, and puts what is owed if there is room by now; whether that was anything.
    pub(super) fn take_in(&mut self, counts: &Counts) -> bool {
        let mut any = false;
        for _ in 0..BURST {
            if self.calls.len() >= MOST_CALLS {
                break;
            }
            match self.requests.try_begin_get() {
                Ok(Some(message)) => self.sort(message, counts),
                Ok(None) => break,
                Err(_) => {
                    self.is_gone = true;
                    break;
                }
            }
            any = true;
        }
        // First: `check` takes in a refusal that the result may wait for.
        let owed = self.owed.is_some() && !self.owes(counts);
        // It closes with its caller.
        self.is_gone |= self.replies.check().is_err();
        any | owed | self.is_gone
    }

    /// Over packets: whether there is anything to take.
    pub(super) fn is_due(&self, inner: &mut Inner) -> bool {
        (self.calls.len() < MOST_CALLS && self.requests.has_message(inner))
            || self.replies.is_gone(inner)
            || (self.owed.is_some() && self.replies.has_room(inner))
    }

    fn sort(&mut self, mut message: Message, counts: &Counts) {
        let Some(header) = Header::parse(&message) else {
            counts.malformed.add();
            return self.requests.end_get(message);
        };
        match header.kind {
            // Over packets a reader may be given a message again.
            MessageKind::Request if header.number <= self.last => {
                counts.repeated.add();
                self.requests.end_get(message);
            }
            MessageKind::Request if message.adjust(HEADER_BYTES, 0).is_ok() => {
                self.last = header.number;
                let until = Instant::now().checked_add(Duration::from_micros(header.deadline_us));
                self.calls.push_back(Waiting { number: header.number, request: message, until });
            }
            MessageKind::Cancel => {
                self.requests.end_get(message);
                let before = self.calls.len();
                self.calls.retain(|call| call.number != header.number);
                counts.skipped.add_many(before - self.calls.len());
            }
            _ => {
                counts.malformed.add();
                self.requests.end_get(message);
            }
        }
    }

    /// Carries out the next call, unless a result waits for room; whether there was one.
    pub(super) fn serve_next(
        &mut self,
        procedure: &mut impl FnMut(&[u8], &mut Vec<u8>) -> Result<(), String>,
        reply: &mut Vec<u8>,
        counts: &Counts,
    ) -> bool {
        if self.owed.is_some() {
            return false;
        }
        let Some(Waiting { number, request, until }) = self.calls.pop_front() else { return false };
        if until.is_some_and(|until| until <= Instant::now()) {
            counts.skipped.add();
            self.requests.end_get(request);
            return true;
        }
        reply.clear();
        let outcome = catch_unwind(AssertUnwindSafe(|| procedure(&request, reply)));
        self.requests.end_get(request);
        counts.calls.add();
        match outcome {
            Ok(Ok(())) => self.reply(MessageKind::Reply, number, until, reply),
            Ok(Err(text)) => {
                counts.failed.add();
                self.reply(MessageKind::Failed, number, until, shortened(&text).as_bytes());
            }
            Err(panic) => {
                counts.failed.add();
                self.reply(MessageKind::Panicked, number, until, shortened(words(&*panic)).as_bytes());
            }
        }
        true
    }

    fn reply(&mut self, kind: MessageKind, number: u64, until: Option<Instant>, body: &[u8]) {
        let header = Header::new(kind, number);
        match put_at_once(&mut self.replies, header, body) {
            Ok(true) => {}
            Ok(false) => {
                let until = owed_until(until, Instant::now());
                self.owed = Some(Owed { header, body: body.to_vec(), until });
            }
            Err(error) => self.not_put(&error, header, until),
        }
    }

    /// Whether a result still waits for room.
    fn owes(&mut self, counts: &Counts) -> bool {
        let Some(owed) = &self.owed else { return false };
        let (header, until) = (owed.header, owed.until);
        match put_at_once(&mut self.replies, header, &owed.body) {
            Ok(true) => self.owed = None,
            Ok(false) if until > Instant::now() => return true,
            Ok(false) => {
                counts.lost_replies.add();
                self.owed = None;
                // The memory for it would be this caller's as long as it takes nothing.
                self.replies.withdraw();
            }
            Err(error) => {
                self.owed = None;
                self.not_put(&error, header, Some(until));
            }
        }
        self.owed.is_some()
    }

    /// A result that can never be put: its caller learns why, or is gone.
    fn not_put(&mut self, error: &Error, header: Header, until: Option<Instant>) {
        match too_long(error) {
            Some((bytes, most)) if header.kind != MessageKind::TooLong => {
                let body = encode_lengths(bytes, most).to_vec();
                let header = Header::new(MessageKind::TooLong, header.number);
                self.owed = Some(Owed { header, body, until: owed_until(until, Instant::now()) });
            }
            _ => self.is_gone = true,
        }
    }
}

/// Until when a result waits for room from `now` on, for a caller that gives up at `until`.
fn owed_until(until: Option<Instant>, now: Instant) -> Instant {
    let most = now + MOST_OWED;
    until.map_or(most, |until| until.min(most))
}

/// Puts a message if there is room now, or asks for it; whether it was put.
fn put_at_once(to: &mut Writer, header: Header, body: &[u8]) -> Result<bool, Error> {
    let now = Wait::Until(Instant::now());
    let Some(mut put) = to.begin_put_by(HEADER_BYTES + body.len(), now)? else { return Ok(false) };
    fill(&mut put, header, body);
    to.end_put(put)?;
    Ok(true)
}

/// Writes a message into its place.
pub(super) fn fill(place: &mut [u8], header: Header, body: &[u8]) {
    if let Some((first, rest)) = place.split_first_chunk_mut::<HEADER_BYTES>() {
        *first = header.encode();
        rest.copy_from_slice(body);
    }
}

/// As much of a text as an error has.
fn shortened(text: &str) -> &str {
    let most = text.len().min(MOST_TEXT_BYTES);
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end));
    end.and_then(|end| text.get(..end)).unwrap_or_default()
}

/// The message of a procedure's panic.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("with a value of another type than text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_waits_for_room_until_its_caller_gives_up_but_not_forever() {
        let now = Instant::now();
        let soon = now + Duration::from_secs(1);
        assert_eq!(owed_until(Some(soon), now), soon);
        assert_eq!(owed_until(now.checked_add(MOST_OWED * 2), now), now + MOST_OWED);
        assert_eq!(owed_until(None, now), now + MOST_OWED);
    }
}
