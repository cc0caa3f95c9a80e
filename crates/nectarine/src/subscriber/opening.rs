//! The request by which a subscription begins, and begins again.

use super::{SUBSCRIPTION, Subscriber, SubscriberBuilder};
use crate::client::Client;
use crate::conversions::FormatRef;
use crate::error::Error;
use crate::settings::Settings;
use crossdock_transport::Request;

impl SubscriberBuilder {
    /// Makes a client, and has it subscribe in each session, the first one included.
    pub(super) fn open(
        &self,
        sql: &str,
        connect: impl FnOnce(Settings) -> Result<Client, Error>,
    ) -> Result<Subscriber, Error> {
        let client = connect(self.settings.clone())?;
        {
            let mut inner = client.shared.lock();
            let id = inner.link.request_id();
            let subscribe = |wait| {
                let (sql, overflow, unreadable) = (sql.to_owned(), self.overflow, self.unreadable);
                let (row_errors, positions) = (self.row_errors, self.settings.reconnect);
                let accept = self.accept.iter().map(FormatRef::name).collect();
                Request::Subscribe {
                    id,
                    subscription: SUBSCRIPTION,
                    sql,
                    overflow,
                    wait,
                    accept,
                    unreadable,
                    row_errors,
                    positions,
                    one_format: self.one_format,
                }
            };
            // A daemon that has been restarted may not know the stream yet: then it is always waited for.
            inner.link.open_with(subscribe(self.wait_for_stream.is_some()), subscribe(true));
        }
        Ok(Subscriber::new(client))
    }
}
