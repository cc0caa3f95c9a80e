//! A subscriber's records as iterators that end when the stream does.

use crate::error::Error;
use crate::records::{ReceivedRecord, Records};
use crate::subscriber::Subscriber;
use crossdock_format::typed::RecordReader;
use serde::de::DeserializeOwned;
use std::borrow::BorrowMut;
use std::marker::PhantomData;

/// The records of a subscriber, one by one. It ends when the stream does; an error that ends it is its last item.
#[derive(Debug)]
pub struct RecordIter<S> {
    subscriber: S,
}

impl<S: BorrowMut<Subscriber>> RecordIter<S> {
    fn new(mut subscriber: S) -> RecordIter<S> {
        subscriber.borrow_mut().forget_failure();
        RecordIter { subscriber }
    }
}

impl<S: BorrowMut<Subscriber>> Iterator for RecordIter<S> {
    type Item = Result<ReceivedRecord, Error>;

    fn next(&mut self) -> Option<Result<ReceivedRecord, Error>> {
        self.subscriber.borrow_mut().until_failure(Subscriber::next_record)
    }
}

/// The records of a subscriber, as they arrived together. It ends when the stream does; an error that ends it is its last item.
#[derive(Debug)]
pub struct Batches<'s> {
    subscriber: &'s mut Subscriber,
}

impl Iterator for Batches<'_> {
    type Item = Result<Records, Error>;

    fn next(&mut self) -> Option<Result<Records, Error>> {
        self.subscriber.until_failure(Subscriber::next_batch)
    }
}

/// The values that a subscriber's records hold. It ends when the stream does. A record that does not go with the type is an item of
/// its own ([`Error::Typed`]), and the next record follows it; an error that ends the link is the last item.
#[derive(Debug)]
pub struct Typed<'s, T> {
    subscriber: &'s mut Subscriber,
    readers: Readers,
    of: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Iterator for Typed<'_, T> {
    type Item = Result<T, Error>;

    fn next(&mut self) -> Option<Result<T, Error>> {
        let record = self.subscriber.until_failure(Subscriber::next_record)?;
        Some(record.and_then(|record| self.readers.read(&record)))
    }
}

/// The readers of the formats that have come so far; the last one first.
#[derive(Debug, Default)]
pub(crate) struct Readers(Vec<RecordReader>);

impl Readers {
    /// Formats that have a reader at a time: more than a stream is likely to have.
    const MOST: usize = 8;

    /// The value that a record holds.
    ///
    /// # Errors
    /// The record does not go with the type.
    pub(crate) fn read<T: DeserializeOwned>(&mut self, record: &ReceivedRecord) -> Result<T, Error> {
        let format = record.format();
        if let Some(known) = self.0.iter().position(|reader| reader.format() == format) {
            self.0.swap(0, known);
        } else {
            self.0.truncate(Readers::MOST - 1);
            self.0.insert(0, RecordReader::new(format));
        }
        Ok(self.0[0].read(&record.record())?)
    }
}

/// The records, up to the stream's end: see [`Subscriber::next_record`].
impl IntoIterator for Subscriber {
    type Item = Result<ReceivedRecord, Error>;
    type IntoIter = RecordIter<Subscriber>;

    fn into_iter(self) -> RecordIter<Subscriber> {
        RecordIter::new(self)
    }
}

/// The records, up to the stream's end: see [`Subscriber::next_record`]. The rest of the loop is there for the next one.
impl<'s> IntoIterator for &'s mut Subscriber {
    type Item = Result<ReceivedRecord, Error>;
    type IntoIter = RecordIter<&'s mut Subscriber>;

    fn into_iter(self) -> RecordIter<&'s mut Subscriber> {
        RecordIter::new(self)
    }
}

impl Subscriber {
    /// The records as they arrived together, up to the stream's end: see [`Subscriber::next_batch`].
    pub fn batches(&mut self) -> Batches<'_> {
        self.forget_failure();
        Batches { subscriber: self }
    }

    /// The records as values of a type, their fields by their names, up to the stream's end: see [`Subscriber::next_record`].
    pub fn typed<T: DeserializeOwned>(&mut self) -> Typed<'_, T> {
        self.forget_failure();
        Typed { subscriber: self, readers: Readers::default(), of: PhantomData }
    }
}
