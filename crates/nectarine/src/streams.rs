//! A subscriber as a stream of asynchronous Rust. It ends when the subscriber's stream does, and runs on any executor: the keeper
//! wakes the task that waits.

use crate::error::Error;
use crate::iteration::Readers;
use crate::records::{ReceivedRecord, Records};
use crate::subscriber::Subscriber;
use futures_core::Stream;
use serde::de::DeserializeOwned;
use std::borrow::BorrowMut;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The records, one by one: as a loop over the subscriber gives them ([`Subscriber::next_record`]). An error that ends it is its last
/// item.
impl Stream for Subscriber {
    type Item = Result<ReceivedRecord, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        poll_item(&mut self, |subscriber| subscriber.poll_record(context.waker()))
    }
}

/// The records of a subscriber as they arrived together, as a stream; see [`Subscriber::batches`].
#[derive(Debug)]
pub struct BatchStream<S>(S);

impl<S: BorrowMut<Subscriber>> BatchStream<S> {
    /// The batches of a subscriber, or of a borrowed one (`&mut subscriber`).
    pub fn new(mut subscriber: S) -> BatchStream<S> {
        subscriber.borrow_mut().forget_failure();
        BatchStream(subscriber)
    }
}

impl<S: BorrowMut<Subscriber> + Unpin> Stream for BatchStream<S> {
    type Item = Result<Records, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        poll_item(self.0.borrow_mut(), |subscriber| subscriber.poll_batch(context.waker()))
    }
}

/// The values that a subscriber's records hold, as a stream; see [`Subscriber::typed`].
#[derive(Debug)]
pub struct TypedStream<T, S> {
    subscriber: S,
    readers: Readers,
    of: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned, S: BorrowMut<Subscriber>> TypedStream<T, S> {
    /// The values of a subscriber, or of a borrowed one (`&mut subscriber`).
    pub fn new(mut subscriber: S) -> TypedStream<T, S> {
        subscriber.borrow_mut().forget_failure();
        TypedStream { subscriber, readers: Readers::default(), of: PhantomData }
    }
}

impl<T: DeserializeOwned, S: BorrowMut<Subscriber> + Unpin> Stream for TypedStream<T, S> {
    type Item = Result<T, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let TypedStream { subscriber, readers, .. } = self.get_mut();
        let record = ready!(poll_item(subscriber.borrow_mut(), |of| of.poll_record(context.waker())));
        Poll::Ready(record.map(|record| record.and_then(|record| readers.read(&record))))
    }
}

/// The next item of a stream; none after an error.
fn poll_item<T>(
    subscriber: &mut Subscriber,
    poll: impl FnOnce(&mut Subscriber) -> Poll<Result<Option<T>, Error>>,
) -> Poll<Option<Result<T, Error>>> {
    let mut is_pending = false;
    let item = subscriber.until_failure(|subscriber| match poll(subscriber) {
        Poll::Ready(item) => item,
        Poll::Pending => {
            is_pending = true;
            Ok(None)
        }
    });
    if is_pending { Poll::Pending } else { Poll::Ready(item) }
}
