//! Records to files.

use std::sync::Arc;

use arrow_schema::Schema as ArrowSchema;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::{GROUP_BYTES, GROUP_ROWS};
use crate::encoding::arrow::BatchWriter;
use crate::encoding::{Encoder, EncodingError, EncodingOptions};
use crate::format::Format;
use crate::record::Record;

/// Writes records of one format as a Parquet file. A row group leaves when it is whole, the rest at the end.
pub struct ParquetEncoder {
    batches: BatchWriter,
    /// There while a file is being written.
    writer: Option<ArrowWriter<Vec<u8>>>,
}

impl ParquetEncoder {
    /// An encoder of records of this format.
    ///
    /// # Errors
    /// Parquet cannot hold the format.
    pub fn new(format: &Format, options: &EncodingOptions) -> Result<Self, EncodingError> {
        let batches = BatchWriter::new(format, options);
        // Tried now, while an error can be reported to the caller.
        begin(batches.schema())?;
        Ok(Self { batches, writer: None })
    }

    fn write(&mut self, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => self.writer.insert(begin(self.batches.schema())?),
        };
        if let Some(batch) = self.batches.take()? {
            writer.write(&batch).map_err(|error| refused(&error))?;
        }
        out.append(writer.inner_mut());
        Ok(())
    }
}

fn begin(schema: &ArrowSchema) -> Result<ArrowWriter<Vec<u8>>, EncodingError> {
    let properties = WriterProperties::builder()
        .set_created_by("crossdock".to_owned())
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_max_row_group_bytes(Some(GROUP_BYTES))
        .build();
    ArrowWriter::try_new(Vec::new(), Arc::new(schema.clone()), Some(properties)).map_err(|error| refused(&error))
}

fn refused(error: &ParquetError) -> EncodingError {
    EncodingError::schema(error.to_string())
}

impl Encoder for ParquetEncoder {
    fn start(&mut self, out: &mut Vec<u8>) {
        self.batches.clear();
        self.writer = begin(self.batches.schema()).ok();
        if let Some(writer) = &mut self.writer {
            out.append(writer.inner_mut());
        }
    }

    fn record(&mut self, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        self.batches.push(record)?;
        if self.batches.is_full() { self.write(out) } else { Ok(()) }
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        self.write(out)?;
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let mut rest = writer.into_inner().map_err(|error| refused(&error))?;
        out.append(&mut rest);
        Ok(())
    }
}
