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

/// The values that a subscriber's records hold. It ends when the stream does. A record that does not go with the type is an item of
/// its own ([`Error::Typed`]), and the next record follows it; an error that ends the link is the last item.
#[derive(Debug)]
pub struct Typed<'s, T> {
    subscriber: &'s mut Subscriber,
    /// What reads the formats that have come so far; the last one first.
    readers: Vec<RecordReader>,
    has_failed: bool,
    of: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Iterator for Typed<'_, T> {
    type Item = Result<T, Error>;

    fn next(&mut self) -> Option<Result<T, Error>> {
        let record = match until_failure(&mut self.has_failed, || self.subscriber.next_record())? {
            Ok(record) => record,
            Err(error) => return Some(Err(error)),
        };
        Some(read(&mut self.readers, &record))
    }
}

/// Formats for which [`read`] keeps a reader: more than a stream is likely to have at a time.
const MOST_READERS: usize = 8;

/// The value that a record holds; the reader of its format is the first afterwards.
fn read<T: DeserializeOwned>(readers: &mut Vec<RecordReader>, record: &ReceivedRecord) -> Result<T, Error> {
    let format = record.format();
    if readers.first().is_none_or(|reader| reader.format() != format) {
        match readers.iter().position(|reader| reader.format() == format) {
            Some(known) => readers.swap(0, known),
            None => {
                readers.truncate(MOST_READERS - 1);
                readers.insert(0, RecordReader::new(format));
            }
        }
    }
    match readers.first() {
        Some(reader) => Ok(reader.read(&record.record())?),
        None => Err(Error::Malformed("a record without a format".to_owned())),
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

    /// The records as values of a type, their fields by their names, up to the stream's end: see [`Subscriber::next_record`].
    pub fn typed<T: DeserializeOwned>(&mut self) -> Typed<'_, T> {
        Typed { subscriber: self, readers: Vec::new(), has_failed: false, of: PhantomData }
    }
}
