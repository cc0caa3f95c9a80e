//! Requests of the rest of the daemon about the states of streams.

use crate::handle::ContextHandle;
use crate::managers::request::ChangeRequest;
use crate::managers::spec::HandlerSpec;
use crate::managers::state_spec::{StateSpec, WITHOUT, no_state, state_name};
use crate::refusal::Stopped;
use crossdock_query::{QueryError, Select, Snapshot};

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
            Some(Snapshot::ThenChanges) => "all that is there, then each change, with `_change`",
            Some(Snapshot::ThenDeltas) => {
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
