//! Inputs in any encoding to records of a foreign layout: records of its natural twin are read, and written anew.

use std::io::BufRead;

use super::{Decoder, EncodingError};
use crate::format::Format;
use crate::record::Record;

/// A decoder for a foreign layout around one for its twin.
pub(super) struct ForeignDecoder {
    format: Format,
    twin: Box<dyn Decoder>,
    /// Items that there were, with the one that is read.
    item: u64,
    record: Vec<u8>,
}

impl ForeignDecoder {
    pub(super) fn new(format: &Format, twin: Box<dyn Decoder>) -> Self {
        Self { format: format.clone(), twin, item: 0, record: Vec::new() }
    }
}

impl Decoder for ForeignDecoder {
    fn start(&mut self, input: &mut dyn BufRead) -> Result<(), EncodingError> {
        self.twin.start(input)
    }

    fn next_record(&mut self, input: &mut dyn BufRead) -> Result<Option<&[u8]>, EncodingError> {
        self.item += 1;
        let Some(bytes) = self.twin.next_record(input)? else { return Ok(None) };
        self.record.clear();
        let record = Record::assume_checked(self.format.twin(), bytes);
        crate::foreign::write(&self.format, &record, &mut self.record)
            .map_err(|error| EncodingError::from(error).of_item(self.item))?;
        Ok(Some(&self.record))
    }

    fn restart(&mut self) {
        self.item = 0;
        self.twin.restart();
    }
}
