//! Records of subscriptions that come as datagrams.

use super::{Link, NOBODY};
use crate::incoming::{Arrived, Incoming};
use crossdock_transport::{PieceError, Request};

/// Arrivals that wait for the application before datagrams are dropped: they have no credit, and each holds a buffer.
const MOST_WAITING: usize = 256;

impl Link {
    /// Every session begins with the class of its subscriptions' records, if it is another than the usual one.
    pub(super) fn begin_class(&mut self) {
        if self.settings.takes_datagrams {
            self.opening.push(Request::UseDatagrams { id: NOBODY });
        }
    }

    /// Datagrams have come: they are for the application, unless too much waits for it.
    pub(super) fn take_datagrams(&mut self, arrived: Arrived) -> Result<(), PieceError> {
        if self.inbox.len() < MOST_WAITING {
            self.inbox.push_back(Incoming::Records(arrived));
        } else {
            self.dropped_records += arrived.spans.iter().map(|span| u64::from(span.records)).sum::<u64>();
        }
        Ok(())
    }
}
