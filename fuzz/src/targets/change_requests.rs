//! The bodies of requests to the control API that change what runs: whatever they say, they are read or refused, what is read is
//! written and read again as the same, and what is wanted of handlers is checked without harm.

use crate::specs;
use crossdock_runtime::{ChangeRequest, HandlerSpec};

/// Longest body that is looked at, in bytes: what is in it counts, not how much.
const MOST_BYTES: usize = 1 << 14;

/// Takes one input.
pub fn fuzz(input: &[u8]) {
    let input = &input[..input.len().min(MOST_BYTES)];
    if let Ok(spec) = serde_json::from_slice::<HandlerSpec>(input) {
        let written = serde_json::to_vec(&spec).expect("what was read");
        assert_eq!(serde_json::from_slice::<HandlerSpec>(&written).expect("what was written"), spec);
        specs::examine(&spec);
    }
    let Ok(request) = serde_json::from_slice::<ChangeRequest>(input) else { return };
    let written = serde_json::to_vec(&request).expect("what was read");
    assert_eq!(serde_json::from_slice::<ChangeRequest>(&written).expect("what was written"), request);
    match &request {
        ChangeRequest::Deploy(spec) | ChangeRequest::Swap(spec) => specs::examine(spec),
        ChangeRequest::All(all) | ChangeRequest::Parts(all) => all.iter().for_each(specs::examine),
        ChangeRequest::SetParameters { .. } | ChangeRequest::Move { .. } | ChangeRequest::Remove { .. } => {}
    }
}
