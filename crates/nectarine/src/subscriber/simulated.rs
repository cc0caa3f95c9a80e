//! A subscriber that a simulation drives.

use super::{SUBSCRIPTION, Subscriber, SubscriberBuilder};
use crate::client::Client;
use crate::error::Error;
use crate::simulated::go_on;
use crossdock_transport::Request;
use std::time::Duration;

/// Another query that a subscriber has asked for: the request, its session, and the text.
#[derive(Debug)]
pub struct AskedQuery {
    id: u32,
    session: u64,
    sql: String,
}

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

    /// Begins [`Subscriber::set_query`], without a wait.
    ///
    /// # Errors
    /// No session stands.
    pub fn begin_query(&mut self, sql: impl Into<String>) -> Result<AskedQuery, Error> {
        let mut inner = self.client.shared.lock();
        inner.link.check_up()?;
        let (id, session, sql) = (inner.link.request_id(), inner.link.session(), sql.into());
        inner.link.ask(Request::SetQuery { id, subscription: SUBSCRIPTION, sql: sql.clone() });
        inner.link.set_asking(true);
        Ok(AskedQuery { id, session, sql })
    }

    /// Whether the daemon has given the subscription this query; not to be asked again after that, or after an error.
    ///
    /// # Errors
    /// The daemon refuses it, or the session is lost.
    pub fn has_query(&mut self, asked: &AskedQuery) -> Result<bool, Error> {
        let mut inner = self.client.shared.lock();
        let answer = inner.link.answer(asked.id);
        if answer.is_none() && inner.link.is_up() && inner.link.session() == asked.session {
            return Ok(false);
        }
        inner.link.set_asking(false);
        let lost = inner.link.lost();
        drop(inner);
        match answer {
            Some(answer) => answer.and_then(|_| self.keep_query(&asked.sql, asked.session).then_some(true).ok_or(lost)),
            None => Err(lost),
        }
    }

    /// Does all that is due now; returns in how many ns something is due next.
    pub fn go_on(&self) -> u64 {
        go_on(&self.client)
    }
}
