//! The requests of sessions, checked where they come in, and the readers of streams that have become derived ones.

use super::{Access, Action, Caller, denied};
use crate::catalog::Snapshot;
use crate::config::ContextConfig;
use crate::net::Net;
use crate::principal::{Bound, Principal};
use crate::refusal::refuse;
use crate::subscriptions::{Subscription, Subscriptions};
use crossdock_query::Select;
use crossdock_transport::Request;
use crossdock_transport::control::{Refusal, RefusalCode};
use std::collections::BTreeSet;

impl Access {
    /// The caller of a peer's requests.
    pub(crate) fn caller_at(&self, net: &Net, key: usize) -> Caller {
        net.principal(key).map_or(Caller::Unknown, |origin| self.caller(origin))
    }

    /// The bound on the sessions or clients of an origin.
    pub(crate) fn most_sessions(&self, origin: Principal, config: &ContextConfig) -> Bound {
        let bound = Bound::new(config.max_sessions_per_peer, "max_sessions_per_peer");
        self.bound(origin, |quotas| quotas.sessions, bound)
    }

    /// Checks a request of a peer, but for a subscription and its query, whose stream is found first.
    ///
    /// # Errors
    /// The rules refuse it.
    pub(crate) fn admit_request(&self, net: &Net, key: usize, request: &Request) -> Result<(), Refusal> {
        if self.rules().is_none() {
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
        self.admit(&self.caller_at(net, key), action).map(drop).map_err(denied)
    }

    /// The refusal of a query on a stream that is not there, which names only streams that the subscriber may read.
    pub(crate) fn unknown_stream(&self, (net, key): (&Net, usize), snapshot: &Snapshot, select: &Select) -> Refusal {
        let caller = self.caller_at(net, key);
        let known: Vec<&str> = self.known_to(&caller, snapshot).collect();
        refuse(RefusalCode::UnknownStream, select.unknown_stream(&known).to_string())
    }

    /// Checks once more whether a peer may read a stream, which may have become a derived one since its request came.
    ///
    /// # Errors
    /// It may not.
    pub(crate) fn check_reader(
        &self,
        (net, key): (&Net, usize),
        snapshot: &Snapshot,
        stream: &str,
    ) -> Result<(), Refusal> {
        if self.rules().is_none() {
            return Ok(());
        }
        let is_derived = snapshot.find(stream).is_some_and(|entry| entry.made_by().is_some());
        let action = Action::Subscribe { stream, is_derived };
        self.admit(&self.caller_at(net, key), action).map(drop).map_err(denied)
    }

    /// A stream has become a derived one: the peers whose subscriptions to it the rules refuse now, and why. Their sessions are to
    /// end; there is no other way to end a subscription that stands.
    pub(crate) fn refused_readers(
        &self,
        net: &Net,
        snapshot: &Snapshot,
        subscriptions: &Subscriptions,
        stream: &str,
    ) -> Vec<(usize, Refusal)> {
        if self.rules().is_none() {
            return Vec::new();
        }
        // The query may run elsewhere, over a stream of its own.
        let all = subscriptions.iter().map(|(_, subscription)| subscription);
        let reads = all.filter(|subscription| subscription.streams().any(|read| read == stream));
        let readers: BTreeSet<usize> = reads.map(Subscription::peer).collect();
        let refused = |peer: usize| Some((peer, self.check_reader((net, peer), snapshot, stream).err()?));
        readers.into_iter().filter_map(refused).collect()
    }
}
