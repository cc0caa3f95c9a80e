//! A publisher that a simulation drives.

use super::{Publisher, PublisherBuilder};
use crate::client::Client;
use crate::error::Error;
use crate::simulated::go_on;
use std::task::{Poll, Waker};

/// The request by which a publisher announced its stream first.
#[derive(Debug)]
pub struct Announcement(u32);

impl PublisherBuilder {
    /// As [`PublisherBuilder::connect`], without a wait: the publisher connects while [`Publisher::go_on`] is called.
    ///
    /// # Errors
    /// The stream or the format is missing.
    pub fn begin(self) -> Result<(Publisher, Announcement), Error> {
        let (client, id, (stream, format, class)) = self.open(Client::new)?;
        Ok((Publisher::new(client, stream, format, class), Announcement(id)))
    }
}

impl Publisher {
    /// Whether the daemon has taken the announcement.
    ///
    /// # Errors
    /// The daemon refuses the stream or format, or the link has ended.
    pub fn is_announced(&self, announcement: &Announcement) -> Result<bool, Error> {
        let mut inner = self.client.shared.lock();
        if let Some(answer) = inner.link.answer(announcement.0) {
            return answer.map(|_| true);
        }
        inner.link.fault().map_or(Ok(false), Err)
    }

    /// Does all that is due now; returns in how many ns something is due next.
    pub fn go_on(&self) -> u64 {
        go_on(&self.client)
    }

    /// Whether the daemon has acknowledged all that was taken; what is packed is sent.
    ///
    /// # Errors
    /// The link has ended.
    pub fn is_settled(&mut self) -> Result<bool, Error> {
        match self.poll_settled(Waker::noop()) {
            Poll::Ready(settled) => settled.map(|()| true),
            Poll::Pending => Ok(false),
        }
    }

    /// Goes on with [`Publisher::finish`]; whether it is done.
    ///
    /// # Errors
    /// Those of [`Publisher::finish`].
    pub fn try_finish(&mut self) -> Result<bool, Error> {
        match self.poll_finish(Waker::noop()) {
            Poll::Ready(finished) => finished.map(|()| true),
            Poll::Pending => Ok(false),
        }
    }
}
