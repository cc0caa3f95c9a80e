//! A publisher as a sink of asynchronous Rust. It runs on any executor: the keeper wakes the task that waits.

use crate::error::Error;
use crate::publisher::Publisher;
use futures_sink::Sink;
use serde::Serialize;
use std::borrow::BorrowMut;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Takes records (what a `RecordBuilder` of the format gives). It is ready while the daemon gives credit; flushed when the daemon
/// has acknowledged what was taken (over shared memory: can take it); and closing it is [`Publisher::finish`].
/// After that it refuses records, and flushing it ([`Error::Finished`]).
impl<R: AsRef<[u8]>> Sink<R> for Publisher {
    type Error = Error;

    fn poll_ready(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.poll_room(context.waker())
    }

    fn start_send(mut self: Pin<&mut Self>, record: R) -> Result<(), Error> {
        self.start(record.as_ref())
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.poll_settled(context.waker())
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.poll_finish(context.waker())
    }
}

/// A publisher as a sink of values; each becomes a record as with [`Publisher::send`].
#[derive(Debug)]
pub struct TypedSink<T, P> {
    publisher: P,
    of: PhantomData<fn(T)>,
}

impl<T: Serialize, P: BorrowMut<Publisher>> TypedSink<T, P> {
    /// A sink of a publisher, or of a borrowed one (`&mut publisher`).
    pub fn new(publisher: P) -> TypedSink<T, P> {
        TypedSink { publisher, of: PhantomData }
    }
}

impl<T: Serialize, P: BorrowMut<Publisher> + Unpin> Sink<T> for TypedSink<T, P> {
    type Error = Error;

    fn poll_ready(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.publisher.borrow_mut().poll_room(context.waker())
    }

    fn start_send(mut self: Pin<&mut Self>, value: T) -> Result<(), Error> {
        self.publisher.borrow_mut().start_value(&value)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.publisher.borrow_mut().poll_settled(context.waker())
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.publisher.borrow_mut().poll_finish(context.waker())
    }
}
