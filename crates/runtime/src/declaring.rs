//! Declarations of streams' states: by requests of the rest of the daemon, and by publishers.

use crate::access::{Access, denied};
use crate::announcing::Announcement;
use crate::catalog::Snapshot;
use crate::context::Context;
use crate::handle::ContextHandle;
use crate::managers::request::{ChangeRequest, ControlRequest, KeyDeclaration};
use crate::managers::spec::HandlerSpec;
use crate::managers::state_spec::{StateSpec, WITHOUT, no_state, state_name};
use crate::net::Net;
use crate::pending::Pending;
use crate::publications::Taken;
use crate::refusal::{Stopped, refuse};
use crossdock_format::Format;
use crossdock_query::{QueryError, Select, Snapshot as SnapshotKind};
use crossdock_transport::control::{Refusal, RefusalCode};

impl Context {
    /// Has the managers declare the key that an announcement names, before its first record, and goes on with it then. A key that the stream
    /// has already takes no right.
    pub(crate) fn declare_key(
        &mut self,
        pending: Pending,
        announcement: Announcement,
        taken: (Format, Option<Taken>),
        stream: usize,
    ) {
        let name = self.streams.get(stream).map(|stream| stream.name().to_owned());
        let (Some(name), false) = (name, announcement.key.is_empty()) else {
            return self.lead_announced(pending, announcement, taken, stream);
        };
        let published = (stream, taken.0.id());
        let state = StateSpec { key: announcement.key.clone(), ..StateSpec::default() };
        let snapshot = self.streams.snapshot();
        let is_there = snapshot.find(&state_name(&name)).is_some();
        let admitted =
            if is_there { Ok(()) } else { self.access.admit_state((&self.net, &pending), &name, state, snapshot) };
        if let Err(refusal) = admitted {
            return self.refuse_announced(&pending, published, refusal);
        }
        let (own, inbox, key) = (pending.clone(), self.inbox.own().clone(), announcement.key.clone());
        let then = Box::new(move |declared: Result<(), String>| {
            // The context may have stopped.
            let _ = inbox.post(move |context| match declared {
                Ok(()) => context.lead_announced(pending, announcement, taken, stream),
                Err(why) => context.refuse_announced(&pending, published, refuse(RefusalCode::State, why)),
            });
        });
        let declaration = KeyDeclaration { stream: name, key, may_declare: !is_there, then };
        let sent = self.to_managers.send(ControlRequest::DeclareKey(Box::new(declaration)));
        sent.unwrap_or_else(|why| {
            self.refuse_announced(&own, published, refuse(RefusalCode::Limit, why.to_string()));
        });
    }
}

impl Access {
    /// Checks that a publisher may declare the state of its stream: that takes what `crossdock streams set` does.
    fn admit_state(
        &self,
        (net, pending): (&Net, &Pending),
        stream: &str,
        state: StateSpec,
        snapshot: &Snapshot,
    ) -> Result<(), Refusal> {
        state.check().map_err(|why| refuse(RefusalCode::State, why))?;
        // One that has gone is found to be so later.
        let Some(key) = net.still_there(pending.peer()) else { return Ok(()) };
        let change = ChangeRequest::Deploy(HandlerSpec::of_state(stream, state));
        self.admit_change(&self.caller_at(net, key), (&change, None), snapshot).map_err(denied)
    }
}

impl ContextHandle {
    /// The change that declares this state of a stream, whether it has one or not, or withdraws it.
    ///
    /// # Errors
    /// [`Stopped`]; within, that it is not clear which stream is meant, or that there is none to withdraw.
    pub fn state_change(
        &self,
        stream: &str,
        state: Option<StateSpec>,
    ) -> Result<Result<ChangeRequest, String>, Stopped> {
        let stream = match self.shared.catalog.snapshot()?.meant(stream) {
            Ok(stream) => stream,
            Err(refusal) => return Ok(Err(refusal.message)),
        };
        let before = self.manager().specs()?.into_iter().find(|spec| spec.name == state_name(&stream));
        Ok(match (state, before) {
            (None, None) => Err(format!("stream `{stream}` has no key")),
            (None, Some(before)) => Ok(ChangeRequest::Remove { handler: before.name }),
            // Its place and all else that was set of it stay.
            (Some(state), Some(before)) => Ok(ChangeRequest::Swap(HandlerSpec { state: Some(state), ..before })),
            (Some(state), None) => Ok(ChangeRequest::Deploy(HandlerSpec::of_state(&stream, state))),
        })
    }

    /// The state that a query with `SNAPSHOT` reads, in words.
    ///
    /// # Errors
    /// [`Stopped`]; within, that its stream has none.
    pub(crate) fn explain_state(&self, select: &Select) -> Result<Result<String, QueryError>, Stopped> {
        let stream = select.stream();
        let specs = self.manager().specs()?;
        let spec = specs.iter().find(|spec| spec.name == state_name(stream));
        let Some(state) = spec.and_then(|spec| spec.state.as_ref()).map(|state| state.of(stream)) else {
            return Ok(Err(select.snapshot_error(no_state(stream), WITHOUT)));
        };
        let (text, keys, bytes) = (state.text(), state.max_keys, state.max_bytes);
        let age = state.max_age_ns.map(|ns| format!(", each for {} ms", ns / 1_000_000)).unwrap_or_default();
        let changes = match select.snapshot() {
            Some(SnapshotKind::ThenChanges) => "all that is there, then each change, with `_change`",
            Some(SnapshotKind::ThenDeltas) => {
                "all that is there, then the columns that change, with `_change` and `_changed`"
            }
            _ => "all that is there",
        };
        let mut explained =
            format!("state    {text}: at most {keys} keys and {bytes} bytes{age}\ngives    {changes}\n");
        if let Some(top) = select.top_n() {
            let (limit, most) = (top.limit, top.most_bytes(bytes));
            let kept = if top.follows { "all rows for which the condition holds" } else { "these rows" };
            explained += &format!("order    the first {limit} of that; {kept} are kept, in at most {most} bytes\n");
        }
        Ok(Ok(explained))
    }
}
