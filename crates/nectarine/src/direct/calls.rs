//! Request-response between two programs: protocol 0 of their session.

use crate::node::rpc::header::{HEADER_BYTES, Header as CallHeader, MessageKind};
use crate::protocol::{ArrivedData, DataPlace, HeaderTemplate, Protocol, StartOfData};
use crate::settings::DeliveryClass;
use crossdock_transport::MAX_MESSAGE_BYTES;
use std::collections::VecDeque;

/// The protocol's number.
pub(super) const CALLS: u16 = 0;

/// Requests that wait to be served, and replies that wait to be taken, at most; further ones are dropped, as if their deadline had
/// passed.
const MOST_CALLS: usize = 1024;
/// The most bytes of them: two of the longest messages. Their credit was returned when they arrived.
pub(super) const MOST_CALL_BYTES: usize = 2 * MAX_MESSAGE_BYTES;

/// A call that waits for its turn.
pub(super) struct Request {
    pub(super) number: u64,
    pub(super) body: Vec<u8>,
    pub(super) until_ns: u64,
}

/// The calls of both sides.
#[derive(Default)]
pub(super) struct Calls {
    /// The header of the message that is sent next.
    pub(super) outgoing: Option<CallHeader>,
    pub(super) requests: VecDeque<Request>,
    replies: VecDeque<(u64, Result<Vec<u8>, String>)>,
    /// Bytes of these requests and replies, as many as their messages had.
    pub(super) bytes: usize,
    /// The number of the last call of this side, and of the last one that came.
    called: u64,
    served: u64,
}

impl Calls {
    /// The number of one more call.
    pub(super) fn next_number(&mut self) -> u64 {
        self.called += 1;
        self.called
    }

    /// The next request to be served.
    pub(super) fn take_request(&mut self) -> Option<Request> {
        let request = self.requests.pop_front()?;
        self.bytes -= HEADER_BYTES + request.body.len();
        Some(request)
    }

    /// The next reply, with the number of its call.
    pub(super) fn take_reply(&mut self) -> Option<(u64, Result<Vec<u8>, String>)> {
        let (number, reply) = self.replies.pop_front()?;
        self.bytes -= reply.as_ref().map_or_else(String::len, Vec::len);
        Some((number, reply))
    }

    /// Replies that wait.
    #[cfg(test)]
    pub(super) fn replies(&self) -> usize {
        self.replies.len()
    }

    /// The header of a message that is taken: a request that did not come before, or a reply.
    fn taken(&self, start: &StartOfData<'_>) -> Option<CallHeader> {
        let header = CallHeader::parse(start.header)?;
        let has_room = self.bytes + HEADER_BYTES + start.data_bytes <= MOST_CALL_BYTES;
        let is_taken = match header.kind {
            MessageKind::Request => header.number > self.served && self.requests.len() < MOST_CALLS,
            MessageKind::Reply | MessageKind::Failed => self.replies.len() < MOST_CALLS,
            _ => false,
        };
        (has_room && is_taken).then_some(header)
    }

    fn take_in(&mut self, number: u64, reply: Result<Vec<u8>, String>) {
        self.bytes += reply.as_ref().map_or_else(String::len, Vec::len);
        self.replies.push_back((number, reply));
    }
}

impl Protocol for Calls {
    fn template(&self) -> HeaderTemplate {
        HeaderTemplate::new(DeliveryClass::Reliable, [0; HEADER_BYTES])
    }

    fn complete(&mut self, header: &mut [u8], _: &[u8]) {
        if let Some(outgoing) = self.outgoing.take() {
            header.copy_from_slice(&outgoing.encode());
        }
    }

    fn start_of_data(&mut self, start: &StartOfData<'_>) -> DataPlace {
        if self.taken(start).is_some() { DataPlace::Upcall } else { DataPlace::Refused }
    }

    fn end_of_data(&mut self, start: &StartOfData<'_>, data: ArrivedData<'_>) {
        // Nothing came between its start and its end: pieces of messages do not mix.
        let Some(CallHeader { kind, number, deadline_us }) = self.taken(start) else { return };
        let body = data.into_vec();
        match kind {
            MessageKind::Request => {
                self.served = number;
                self.bytes += HEADER_BYTES + body.len();
                let until_ns = start.now_ns.saturating_add(deadline_us.saturating_mul(1000));
                self.requests.push_back(Request { number, body, until_ns });
            }
            MessageKind::Reply => self.take_in(number, Ok(body)),
            _ => self.take_in(number, Err(String::from_utf8_lossy(&body).into_owned())),
        }
    }
}
