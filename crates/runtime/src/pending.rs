//! A request that waits for its answer.

use crate::net::peers::PeerRef;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request for which its peer is paused. Whatever becomes of it, the peer goes on: if the last clone of this is dropped before an
/// answer, as by a panic on any thread, the request is refused.
#[derive(Clone)]
pub(crate) struct Pending(Arc<Unanswered>);

/// Has the peer go on, with the request's number if it has no answer.
type GoOn = Box<dyn FnOnce(Option<u32>) + Send + Sync>;

struct Unanswered {
    peer: PeerRef,
    id: u32,
    /// Taken when it is dropped.
    go_on: Option<GoOn>,
    /// Whether it has its answer, or gets it from something else.
    is_answered: AtomicBool,
    /// Whether its peer has gone on as well.
    is_over: AtomicBool,
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Pending").field(&self.0.peer).field(&self.0.id).finish()
    }
}

impl Pending {
    /// A request with this number. If it is lost, `go_on` has its peer go on, and gets the number if it has no answer.
    pub(crate) fn new(peer: PeerRef, id: u32, go_on: impl FnOnce(Option<u32>) + Send + Sync + 'static) -> Pending {
        let (is_answered, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        Pending(Arc::new(Unanswered { peer, id, go_on: Some(Box::new(go_on)), is_answered, is_over }))
    }

    /// Its peer.
    pub(crate) fn peer(&self) -> PeerRef {
        self.0.peer
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.0.id
    }

    /// It has its answer, or gets it from something else. Its peer is still paused.
    pub(crate) fn note_answered(&self) {
        self.0.is_answered.store(true, Ordering::Relaxed);
    }

    /// It is over, and its peer goes on.
    pub(crate) fn settle(&self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if !*self.is_over.get_mut() {
            let unanswered = (!*self.is_answered.get_mut()).then_some(self.id);
            self.go_on.take().into_iter().for_each(|go_on| go_on(unanswered));
        }
    }
}
