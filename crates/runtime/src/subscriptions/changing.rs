//! Another query of a subscription that runs.

use super::{Planned, Subscription};
use crate::elsewhere::Elsewhere;
use crossdock_query::{QueryError, Select};
use std::sync::Arc;

impl Planned {
    /// Why the query does not fit the format, if it does not.
    pub(crate) fn misfit(&self) -> Option<&QueryError> {
        self.outcome.as_ref().err()
    }
}

impl Subscription {
    /// Its query is admitted for this load.
    pub(crate) fn count_load(&mut self, load_ns_per_s: u64) {
        self.load_ns_per_s = load_ns_per_s;
    }

    /// It has another query from now on, planned for all that it has to be. Of a query of a state, its use of that is `elsewhere`; that
    /// of the query before comes back.
    pub(crate) fn exchange_query(
        &mut self,
        select: Select,
        planned: Vec<Planned>,
        elsewhere: Option<Elsewhere>,
    ) -> Option<Elsewhere> {
        self.select = Arc::new(select);
        let former = std::mem::replace(&mut self.elsewhere, elsewhere);
        if let (Some(next), Some(former)) = (&mut self.elsewhere, &former) {
            next.follow(former);
        }
        self.entries.clear();
        self.instances.clear();
        self.reducers.clear();
        // Records of an older format that it does not fit are counted as unreadable.
        planned.into_iter().for_each(|planned| drop(self.add_planned(planned)));
        former
    }
}
