//! Inputs in any encoding to records of a foreign layout: records of its natural format are read, and written anew.

use std::io::BufRead;

use super::{Decoder, EncodingError};
use crate::format::Format;
use crate::record::Record;

/// A decoder for a foreign layout around one for its natural format.
pub(super) struct ForeignDecoder {
    format: Format,
    natural_format: Box<dyn Decoder>,
    /// Items that there were, with the one that is read.
    item: u64,
    record: Vec<u8>,
}

impl ForeignDecoder {
    pub(super) fn new(format: &Format, natural_format: Box<dyn Decoder>) -> Self {
        Self { format: format.clone(), natural_format, item: 0, record: Vec::new() }
    }
}

impl Decoder for ForeignDecoder {
    fn start(&mut self, input: &mut dyn BufRead) -> Result<(), EncodingError> {
        self.natural_format.start(input)
    }

    fn next_record(&mut self, input: &mut dyn BufRead) -> Result<Option<&[u8]>, EncodingError> {
        self.item += 1;
        let Some(bytes) = self.natural_format.next_record(input)? else { return Ok(None) };
        self.record.clear();
        let record = Record::assume_checked(self.format.natural_format(), bytes);
        crate::foreign::write(&self.format, &record, &mut self.record)
            .map_err(|error| EncodingError::from(error).of_item(self.item))?;
        Ok(Some(&self.record))
    }

    fn restart(&mut self) {
        self.item = 0;
        self.natural_format.restart();
    }
}
