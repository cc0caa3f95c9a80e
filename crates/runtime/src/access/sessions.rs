//! The requests of sessions, checked where they come in, and the readers of streams that have become derived ones.

use super::{Action, Caller, denied};
use crate::context::Context;
use crate::principal::{Bound, Principal};
use crate::refusal::refuse;
use crate::subscriptions::Subscription;
use crossdock_query::Select;
use crossdock_transport::Request;
use crossdock_transport::control::{Refusal, RefusalCode};
use crossdock_transport::handshake::Close;
use std::collections::BTreeSet;

impl Context {
    /// The caller of a peer's requests.
    pub(crate) fn caller(&self, key: usize) -> Caller {
        self.principal(key).map_or(Caller::Unknown, |origin| self.access.caller(origin))
    }

    /// The bound on the sessions or clients of an origin.
    pub(crate) fn most_sessions(&self, origin: Principal) -> Bound {
        let bound = Bound::new(self.config.max_sessions_per_peer, "max_sessions_per_peer");
        self.access.bound(origin, |quotas| quotas.sessions, bound)
    }

    /// Checks a request of a peer, but for a subscription and its query, whose stream is found first.
    ///
    /// # Errors
    /// The rules refuse it.
    pub(crate) fn admit_request(&self, key: usize, request: &Request) -> Result<(), Refusal> {
        if self.access.rules().is_none() {
            return Ok(());
        }
        let action = match request {
            Request::Announce { name, .. } => Action::Publish(name),
            Request::RegisterConversion { stream, .. }
            | Request::UnregisterConversion { stream, .. }
            | Request::ListenForConverters { stream, .. } => Action::Convert(stream),
            Request::CreateMailbox { name, .. }
            | Request::DeleteMailbox { name, .. }
            | Request::OpenMailbox { name, .. } => Action::Mailbox(name),
            Request::CreateTask { .. } | Request::EndTask { .. } => Action::Task,
            Request::Subscribe { .. }
            | Request::SetQuery { .. }
            | Request::Unsubscribe { .. }
            | Request::Finish { .. }
            | Request::OpenCircuit { .. }
            | Request::UseDatagrams { .. }
            | Request::ReportMalformed { .. }
            | Request::ReportMissed { .. }
            | Request::CountSubscriptions { .. }
            | Request::CloseMailbox { .. }
            | Request::GetMessages { .. }
            | Request::FindNode { .. }
            | Request::Terminate => return Ok(()),
        };
        self.access.admit(&self.caller(key), action).map(drop).map_err(denied)
    }

    /// The refusal of a query on a stream that is not there, which names only streams that the subscriber may read.
    pub(crate) fn unknown_stream(&self, key: usize, select: &Select) -> Refusal {
        let (snapshot, caller) = (self.streams.snapshot(), self.caller(key));
        let known: Vec<&str> = self.access.known_to(&caller, snapshot).collect();
        refuse(RefusalCode::UnknownStream, select.unknown_stream(&known).to_string())
    }

    /// Checks once more whether a peer may read a stream, which may have become a derived one since its request came.
    ///
    /// # Errors
    /// It may not.
    pub(crate) fn check_reader(&self, key: usize, stream: &str) -> Result<(), Refusal> {
        if self.access.rules().is_none() {
            return Ok(());
        }
        let is_derived = self.streams.snapshot().find(stream).is_some_and(|entry| entry.made_by().is_some());
        let action = Action::Subscribe { stream, is_derived };
        self.access.admit(&self.caller(key), action).map(drop).map_err(denied)
    }

    /// A stream has become a derived one: the sessions end whose subscriptions to it the rules refuse now. There is no other way to
    /// end a subscription that stands.
    pub(crate) fn check_readers(&mut self, stream: &str) {
        if self.access.rules().is_none() {
            return;
        }
        // The query may run elsewhere, over a stream of its own.
        let all = self.subscriptions.iter().map(|(_, subscription)| subscription);
        let reads = all.filter(|subscription| subscription.streams().any(|read| read == stream));
        let readers: BTreeSet<usize> = reads.map(Subscription::peer).collect();
        for peer in readers {
            if let Err(Refusal { message, .. }) = self.check_reader(peer, stream) {
                self.remove_peer(peer, "access", Some(Close { again: false, reason: message }));
            }
        }
    }
}
