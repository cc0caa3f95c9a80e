//! A subscriber's records as iterators that end when the stream does.

use crate::error::Error;
use crate::records::{ReceivedRecord, Records};
use crate::subscriber::Subscriber;
use std::borrow::BorrowMut;

/// The records of a subscriber, one by one. It ends when the stream does; an error that ends it is its last item.
#[derive(Debug)]
pub struct RecordIter<S> {
    subscriber: S,
    has_failed: bool,
}

impl<S: BorrowMut<Subscriber>> Iterator for RecordIter<S> {
    type Item = Result<ReceivedRecord, Error>;

    fn next(&mut self) -> Option<Result<ReceivedRecord, Error>> {
        until_failure(&mut self.has_failed, || self.subscriber.borrow_mut().next_record())
    }
}

/// The records of a subscriber, as they arrived together. It ends when the stream does; an error that ends it is its last item.
#[derive(Debug)]
pub struct Batches<'s> {
    subscriber: &'s mut Subscriber,
    has_failed: bool,
}

impl Iterator for Batches<'_> {
    type Item = Result<Records, Error>;

    fn next(&mut self) -> Option<Result<Records, Error>> {
        until_failure(&mut self.has_failed, || self.subscriber.next_batch())
    }
}

/// The next item; none after the first error, so that a loop that skips errors ends too.
fn until_failure<T>(
    has_failed: &mut bool,
    next: impl FnOnce() -> Result<Option<T>, Error>,
) -> Option<Result<T, Error>> {
    if *has_failed {
        return None;
    }
    let item = next().transpose();
    *has_failed = matches!(item, Some(Err(_)));
    item
}

/// The records, up to the stream's end: see [`Subscriber::next_record`].
impl IntoIterator for Subscriber {
    type Item = Result<ReceivedRecord, Error>;
    type IntoIter = RecordIter<Subscriber>;

    fn into_iter(self) -> RecordIter<Subscriber> {
        RecordIter { subscriber: self, has_failed: false }
    }
}

/// The records, up to the stream's end: see [`Subscriber::next_record`]. What the loop leaves is there for the next one.
impl<'s> IntoIterator for &'s mut Subscriber {
    type Item = Result<ReceivedRecord, Error>;
    type IntoIter = RecordIter<&'s mut Subscriber>;

    fn into_iter(self) -> RecordIter<&'s mut Subscriber> {
        RecordIter { subscriber: self, has_failed: false }
    }
}

impl Subscriber {
    /// The records as they arrived together, up to the stream's end: see [`Subscriber::next_batch`].
    pub fn batches(&mut self) -> Batches<'_> {
        Batches { subscriber: self, has_failed: false }
    }
}
