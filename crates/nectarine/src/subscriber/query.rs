//! A subscriber's subscription as the daemon has it: its number, and another query while it runs.

use super::{SUBSCRIPTION, Subscriber};
use crate::error::Error;
use crossdock_transport::Request;

impl Subscriber {
    /// The number of the subscription in the daemon's list (`crossdock subscriptions`), which no other there has or had; another one
    /// after [`Event::Reconnected`](crate::Event::Reconnected). `None` for daemons that did not say it yet.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        self.number
    }

    /// Gives the subscription another query, over the same stream, while records flow; waits until it is at work. Each record is seen by
    /// the query before or by this one, and none is lost: records by the query before may still be on their way, and come first. Records
    /// in another format follow [`Event::Format`](crate::Event::Format).
    ///
    /// A query with `SNAPSHOT THEN CHANGES` takes the place of another such one with the same columns: the difference comes as records
    /// whose `_change` is `enter`, `leave` or `update`, and then the changes by this query.
    ///
    /// # Errors
    /// The daemon refuses the query, and the one before stays; no session stands, or it is lost before the answer comes.
    pub fn set_query(&mut self, sql: impl Into<String>) -> Result<(), Error> {
        let query = sql.into();
        loop {
            let sql = query.clone();
            let set = |id| Request::SetQuery { id, subscription: SUBSCRIPTION, sql };
            let (_, session) = self.client.ask(|_, id| set(id))?;
            if self.keep_query(&query, session) {
                return Ok(());
            }
        }
    }

    /// The daemon has taken a query in this session: those that follow begin with it. Whether the session stands; one that has begun since
    /// the answer came began with the query before.
    pub(super) fn keep_query(&mut self, query: &str, session: u64) -> bool {
        let mut inner = self.client.shared.lock();
        inner.link.change_again(|request| {
            if let Request::Subscribe { sql, .. } = request {
                query.clone_into(sql);
            }
        });
        let stands = inner.link.session() == session;
        if stands {
            // It may get fewer records than its stream has.
            self.account.forget_numbers();
        }
        stands
    }
}
