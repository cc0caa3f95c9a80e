//! Bytes from a reader, with a byte order mark at their start taken away, and with some of them put back when a row
//! turns out not to have been one.

use std::io::{self, BufRead, ErrorKind};

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[derive(Debug, Default)]
pub(crate) struct Input {
    /// Bytes to be read before those of the reader.
    again: Vec<u8>,
    /// How many of them have been.
    at: usize,
    started: bool,
}

impl Input {
    /// Some of the bytes to come; none at the end. Not all that there are: whoever needs more consumes these first.
    #[inline]
    pub(crate) fn fill<'a, R: BufRead + ?Sized>(&'a mut self, reader: &'a mut R) -> io::Result<&'a [u8]> {
        if !self.started {
            self.skip_mark(reader)?;
        }
        if self.at < self.again.len() {
            return Ok(&self.again[self.at..]);
        }
        fill(reader)
    }

    /// These many of the bytes that [`Input::fill`] gave have been read.
    #[inline]
    pub(crate) fn consume<R: BufRead + ?Sized>(&mut self, reader: &mut R, bytes: usize) {
        if self.at < self.again.len() {
            self.at += bytes;
        } else {
            reader.consume(bytes);
        }
    }

    /// These bytes come next, before all that has not been read.
    pub(crate) fn put_back(&mut self, bytes: &[u8]) {
        self.again.drain(..self.at);
        self.at = 0;
        self.again.splice(..0, bytes.iter().copied());
    }

    #[cold]
    fn skip_mark<R: BufRead + ?Sized>(&mut self, reader: &mut R) -> io::Result<()> {
        while self.again.len() < BYTE_ORDER_MARK.len() {
            let chunk = fill(reader)?;
            let take = chunk.len().min(BYTE_ORDER_MARK.len() - self.again.len());
            if take == 0 {
                break;
            }
            self.again.extend_from_slice(&chunk[..take]);
            reader.consume(take);
            if !BYTE_ORDER_MARK.starts_with(&self.again) {
                break;
            }
        }
        if self.again == BYTE_ORDER_MARK {
            self.again.clear();
        }
        self.started = true;
        Ok(())
    }
}

/// `fill_buf`, again where a signal came in between.
#[inline]
fn fill<R: BufRead + ?Sized>(reader: &mut R) -> io::Result<&[u8]> {
    loop {
        match reader.fill_buf() {
            Ok([]) => return Ok(&[]),
            // Asked once more, because the borrow of the first answer cannot leave a loop; it is the same answer.
            Ok(_) => return reader.fill_buf(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
