//! Items out of a reader's buffer, in place where the buffer has them whole.

use std::io::{BufRead, ErrorKind};

use super::{EncodingError, EncodingProblem};

/// Bytes that are handed in piece by piece, and items that are of any size.
///
/// An item that the reader's buffer holds whole is read there. Any other item is gathered: its bytes so far are kept,
/// and more are added until it is whole.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// The start of an item that the reader's buffer did not hold whole; taken from the reader.
    carried: Vec<u8>,
    /// Bytes of the items before.
    at: u64,
    /// Items that there were, with the one that is read.
    item: u64,
    /// Bytes of the item that was read last.
    last: u64,
}

/// Bytes that an item may have beyond the bound: its length in front of it is not counted.
const ROOM_BEYOND: usize = 16;

/// The result of trying to read an item.
pub(crate) enum Attempt<T> {
    /// The item was read whole.
    Done {
        /// Its length.
        bytes: usize,
        /// The read value.
        value: T,
    },
    /// There are not enough bytes; the item needs at least `at_least`, as far as that is known.
    Short {
        /// The whole item's length, or 0.
        at_least: usize,
    },
}

impl Window {
    /// The next item, as `read` makes it of the bytes from its start on; `None` at the input's end. `read` may be
    /// called several times for an item, each time with all the bytes of the last call and more.
    ///
    /// # Errors
    /// The error of `read`; an item that is longer than `most`; an input that ends within one, or cannot be read.
    #[inline]
    pub(crate) fn next<T>(
        &mut self,
        input: &mut dyn BufRead,
        most: usize,
        mut read: impl FnMut(&[u8]) -> Result<Attempt<T>, EncodingError>,
    ) -> Result<Option<T>, EncodingError> {
        self.at += self.last;
        self.last = 0;
        self.item += 1;
        let chunk = fill(input).map_err(|error| self.place(error))?;
        if chunk.is_empty() {
            return Ok(None);
        }
        let attempt = read(chunk);
        match attempt.map_err(|error| self.place(error))? {
            Attempt::Done { bytes, .. } if bytes > most.saturating_add(ROOM_BEYOND) => {
                let problem = EncodingProblem::TooLong { found: bytes as u64, most };
                Err(self.place(EncodingError::new(problem)))
            }
            Attempt::Done { bytes, value } => {
                input.consume(bytes);
                self.last = bytes as u64;
                Ok(Some(value))
            }
            Attempt::Short { at_least } => self.gather(input, most, at_least, read),
        }
    }

    /// An error with the place of the item that was read last.
    #[cold]
    pub(crate) fn place(&self, error: EncodingError) -> EncodingError {
        EncodingError { item: self.item, at: Some(self.at), ..error }
    }

    /// An item that goes on beyond the reader's buffer.
    #[cold]
    fn gather<T>(
        &mut self,
        input: &mut dyn BufRead,
        most: usize,
        at_least: usize,
        mut read: impl FnMut(&[u8]) -> Result<Attempt<T>, EncodingError>,
    ) -> Result<Option<T>, EncodingError> {
        self.carried.clear();
        let mut enough = at_least;
        let room = most.saturating_add(ROOM_BEYOND);
        loop {
            if enough > room {
                let problem = EncodingProblem::TooLong { found: enough as u64, most };
                return Err(self.place(EncodingError::new(problem)));
            }
            let chunk = fill(input).map_err(|error| self.place(error))?;
            if chunk.is_empty() {
                return Err(self.place(EncodingError::new(EncodingProblem::Cut)));
            }
            let kept = self.carried.len();
            let take = chunk.len().min(room.saturating_sub(kept));
            if take == 0 {
                let problem = EncodingProblem::TooLong { found: kept as u64, most };
                return Err(self.place(EncodingError::new(problem)));
            }
            self.carried.extend_from_slice(&chunk[..take]);
            if self.carried.len() < enough {
                input.consume(take);
                continue;
            }
            let attempt = read(&self.carried);
            match attempt.map_err(|error| self.place(error))? {
                Attempt::Done { bytes, value } => {
                    input.consume(bytes.saturating_sub(kept));
                    self.last = bytes as u64;
                    return Ok(Some(value));
                }
                Attempt::Short { at_least } => {
                    input.consume(take);
                    enough = at_least;
                }
            }
        }
    }
}

/// `fill_buf`, again where a signal came in between.
#[inline]
fn fill(input: &mut dyn BufRead) -> Result<&[u8], EncodingError> {
    loop {
        match input.fill_buf() {
            Ok([]) => return Ok(&[]),
            // Asked once more, because the borrow of the first answer cannot leave a loop; it is the same answer.
            Ok(_) => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(EncodingError::new(EncodingProblem::Io(error))),
        }
    }
    input.fill_buf().map_err(|error| EncodingError::new(EncodingProblem::Io(error)))
}
