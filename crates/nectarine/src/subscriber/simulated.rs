//! A subscriber that a simulation drives.

use super::{Subscriber, SubscriberBuilder};
use crate::client::Client;
use crate::error::Error;
use crate::simulated::go_on;
use std::time::Duration;

impl SubscriberBuilder {
    /// As [`SubscriberBuilder::connect`] with [`SubscriberBuilder::wait_for_stream`], without a wait: the subscriber connects while
    /// [`Subscriber::go_on`] is called.
    ///
    /// # Errors
    /// The query is missing.
    pub fn begin(self) -> Result<Subscriber, Error> {
        let sql = self.sql.clone().ok_or(Error::Incomplete("a subscriber needs a query"))?;
        self.open(&sql, Client::new)
    }
}

impl Subscriber {
    /// Whether the daemon has confirmed the subscription; to be asked before the first event is taken.
    ///
    /// # Errors
    /// The daemon refuses the query, or the link has ended.
    pub fn is_subscribed(&mut self) -> Result<bool, Error> {
        self.await_subscription(Some(Duration::ZERO))
    }

    /// Does all that is due now; returns in how many ns something is due next.
    pub fn go_on(&self) -> u64 {
        go_on(&self.client)
    }
}
