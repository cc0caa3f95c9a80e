//! Subscribers whose records come as datagrams.

use super::{Subscriber, SubscriberBuilder};
use crate::settings::DeliveryClass;

impl SubscriberBuilder {
    /// Whether records are delivered reliably or as datagrams, where they come in packets; [`DeliveryClass::Reliable`] unless set. A
    /// subscriber of datagrams holds no publisher back: each record is sent once, those for which the path has no room are dropped
    /// and reported as [`Event::Dropped`](crate::Event::Dropped), and those that the network loses are missing. They come in any order,
    /// and the last ones perhaps after the stream's end.
    #[must_use]
    pub fn class(mut self, class: DeliveryClass) -> Self {
        self.settings.takes_datagrams = class == DeliveryClass::Datagram;
        self
    }
}

impl Subscriber {
    /// Records that came as datagrams, and were dropped here because the application took none meanwhile.
    #[must_use]
    pub fn unread_datagrams(&self) -> u64 {
        self.client.shared.lock().link.datagrams().dropped_records
    }
}
