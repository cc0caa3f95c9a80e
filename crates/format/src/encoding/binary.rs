//! Records as they lie in memory, back to back with nothing in between: in the natural layout, or in a foreign one.
//!
//! Nothing is decoded, so nothing is lost: each record is checked ([`Record::check`]) and handed on as it is. One
//! that is not sound is one error, with its number, its place and the path of the field, and reading goes on behind it:
//! its length gives its end. If the length is unknown (with `size variant`: no variant of the layout is there; a length
//! that no record has), the input ends with an error. In a layout with `length FIELD`, a message of another type has an end,
//! too: it is a record without a variant.

use std::io::BufRead;

use super::window::{Attempt, Window};
use super::{Decoder, Encoder, EncodingError, EncodingOptions, EncodingProblem};
use crate::format::{Extent, Format};
use crate::record::Record;

/// Reads records of one format.
#[derive(Debug)]
pub struct BinaryDecoder {
    format: Format,
    window: Window,
    most: usize,
    record: Vec<u8>,
}

impl BinaryDecoder {
    /// A decoder of records of this format.
    #[must_use]
    pub fn new(format: &Format, options: &EncodingOptions) -> Self {
        let window = Window::default();
        Self { format: format.clone(), window, most: options.max_item_bytes, record: Vec::new() }
    }
}

impl Decoder for BinaryDecoder {
    fn next_record(&mut self, input: &mut dyn BufRead) -> Result<Option<&[u8]>, EncodingError> {
        let (format, out) = (&self.format, &mut self.record);
        out.clear();
        let sound = self.window.next(input, self.most, |bytes| match format.extent(bytes) {
            Extent::Whole(len) => {
                let record = bytes.get(..len).unwrap_or_default();
                let value = Record::check(format, record).map(|record| out.extend_from_slice(record.bytes()));
                Ok(Attempt::Done { bytes: len, value })
            }
            Extent::Short { at_least } => Ok(Attempt::Short { at_least }),
            Extent::Unknown => Err(EncodingError::syntax(
                "the record's length cannot be read from its bytes, so what follows cannot be found: is it of this format? \
                 Messages of types that the layout does not list have an end if it has `length FIELD`",
            )),
        })?;
        match sound {
            None => Ok(None),
            Some(Ok(())) => Ok(Some(&self.record)),
            Some(Err(error)) => {
                let field = error.field_path(&self.format);
                let problem = EncodingProblem::Record { problem: error.problem };
                Err(self.window.place(EncodingError { field, ..EncodingError::new(problem) }))
            }
        }
    }

    fn restart(&mut self) {
        self.window = Window::default();
    }
}

/// Writes records unchanged.
#[derive(Debug, Default)]
pub struct BinaryEncoder;

impl Encoder for BinaryEncoder {
    #[inline]
    fn record(&mut self, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        out.extend_from_slice(record.bytes());
        Ok(())
    }
}
