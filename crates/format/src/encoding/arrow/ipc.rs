//! The messages of Arrow IPC: a schema, dictionaries, batches.

use std::collections::HashMap;
use std::io::{BufRead, Read};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::{read_dictionary, read_record_batch};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_ipc::{Message, MessageHeader, root_as_message_with_opts};
use arrow_schema::{DataType, SchemaRef};
use flatbuffers::{InvalidFlatbuffer, VerifierOptions};

use super::unpacked::{self, is_zstandard};
use super::{BatchReader, BatchWriter, MAX_ROWS, import};
use crate::encoding::guard::guarded;
use crate::encoding::{Decoder, Encoder, EncodingError, EncodingOptions, EncodingProblem};
use crate::format::Format;
use crate::nesting::{MAX_NESTING, TOO_DEEP};
use crate::record::Record;

/// The start of a message, in all but the oldest streams.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// The start of a file, with its padding.
const MAGIC: [u8; 8] = *b"ARROW1\0\0";
/// Where the first message of a file begins at the latest, in bytes: more than the widest alignment of any writer.
const MAX_PADDING: u64 = 1024;

/// Reads records of one format from an Arrow IPC stream or file, whichever it is.
pub struct ArrowDecoder {
    format: Format,
    options: EncodingOptions,
    messages: Messages,
    /// There once the schema has been read.
    rows: Option<BatchReader>,
}

/// An input as messages.
struct Messages {
    max_block_bytes: usize,
    max_message_bytes: usize,
    schema: Option<SchemaRef>,
    dictionaries: HashMap<i64, ArrayRef>,
    /// How long the dictionaries were in the input.
    dictionary_bytes: HashMap<i64, usize>,
    /// Bytes read.
    at: u64,
    ended: bool,
}

impl ArrowDecoder {
    /// A decoder to records of this format, which the columns go into by their names.
    #[must_use]
    pub fn new(format: &Format, options: &EncodingOptions) -> Self {
        Self { format: format.clone(), options: options.clone(), messages: Messages::new(options), rows: None }
    }

    /// A decoder to records of the format that the input's schema says.
    ///
    /// # Errors
    /// The input is no Arrow IPC, or a column is of a type that no field has.
    pub fn open(input: &mut dyn BufRead, options: &EncodingOptions) -> Result<(Format, Self), EncodingError> {
        let mut messages = Messages::new(options);
        let schema = messages.read_schema(input)?;
        let format = import(&schema, options)?;
        let rows = BatchReader::new(&format, &schema, options)?;
        Ok((format.clone(), Self { format, options: options.clone(), messages, rows: Some(rows) }))
    }
}

impl Decoder for ArrowDecoder {
    fn start(&mut self, input: &mut dyn BufRead) -> Result<(), EncodingError> {
        if self.rows.is_none() {
            let schema = self.messages.read_schema(input)?;
            self.rows = Some(BatchReader::new(&self.format, &schema, &self.options)?);
        }
        Ok(())
    }

    fn next_record(&mut self, input: &mut dyn BufRead) -> Result<Option<&[u8]>, EncodingError> {
        self.start(input)?;
        let Some(rows) = &mut self.rows else { return Ok(None) };
        while !rows.has_rows() {
            match self.messages.next_batch(input, rows.projection())? {
                Some(batch) => rows.load(&batch)?,
                None => return Ok(None),
            }
        }
        rows.next_record().transpose()
    }

    fn restart(&mut self) {
        self.messages = Messages::new(&self.options);
        self.rows = None;
    }
}

impl Messages {
    fn new(options: &EncodingOptions) -> Self {
        Self {
            max_block_bytes: options.max_block_bytes,
            max_message_bytes: options.max_item_bytes,
            schema: None,
            dictionaries: HashMap::new(),
            dictionary_bytes: HashMap::new(),
            at: 0,
            ended: false,
        }
    }

    fn read_schema(&mut self, input: &mut dyn BufRead) -> Result<SchemaRef, EncodingError> {
        let Some(message) = self.read_message(input)? else {
            return Err(self.error(EncodingError::syntax("found nothing, expected an Arrow schema")));
        };
        let schema = as_message(&message).and_then(|message| {
            let found = message.header_type().variant_name().unwrap_or("something unknown");
            let schema = message.header_as_schema().ok_or_else(|| {
                EncodingError::syntax(format!("found {found}, expected an Arrow schema at the start"))
            })?;
            let length = body_length(&message)?;
            let schema = guarded(EncodingError::syntax, || try_fb_to_schema(schema))?;
            Ok((length, schema))
        });
        let (length, schema) = schema.map_err(|error| self.error(error))?;
        self.read(input, length, self.max_block_bytes)?;
        if let Some(field) = schema.fields().iter().find(|field| !is_read(field.data_type())) {
            let found = field.data_type();
            let message = format!("the column is a {found}, which is not read: have it written as another type");
            return Err(EncodingError::schema(message).in_field(field.name()));
        }
        let schema = Arc::new(schema);
        self.schema = Some(Arc::clone(&schema));
        Ok(schema)
    }

    /// The next batch, with these columns only; `None` at the end.
    fn next_batch(&mut self, input: &mut dyn BufRead, columns: &[usize]) -> Result<Option<RecordBatch>, EncodingError> {
        while let Some(metadata) = self.read_message(input)? {
            let message = as_message(&metadata).map_err(|error| self.error(error))?;
            let length = body_length(&message).map_err(|error| self.error(error))?;
            let body = Buffer::from_vec(self.read(input, length, self.max_block_bytes)?);
            match self.take(&message, &body, columns) {
                Ok(Some(batch)) => return Ok(Some(batch)),
                Ok(None) => {}
                Err(error) => return Err(self.error(error)),
            }
        }
        Ok(None)
    }

    /// Takes a message with its body: a batch is what it gives, a dictionary is kept.
    fn take(
        &mut self,
        message: &Message<'_>,
        body: &Buffer,
        columns: &[usize],
    ) -> Result<Option<RecordBatch>, EncodingError> {
        let Some(schema) = &self.schema else { return Ok(None) };
        match message.header_type() {
            MessageHeader::RecordBatch => {
                let Some(batch) = message.header_as_record_batch() else { return Err(broken()) };
                check_batch(&batch, body, self.max_block_bytes)?;
                let (schema, version) = (Arc::clone(schema), message.version());
                let dictionaries = &self.dictionaries;
                let unpacked = if is_zstandard(&batch) { Some(unpacked::batch(&batch, body)?) } else { None };
                let (batch, body) = match &unpacked {
                    Some((batch, body)) => (read_root(batch)?, body),
                    None => (batch, body),
                };
                let read = || read_record_batch(body, batch, schema, dictionaries, Some(columns), &version);
                guarded(EncodingError::syntax, read).map(Some)
            }
            MessageHeader::DictionaryBatch => {
                let Some(dictionary) = message.header_as_dictionary_batch() else { return Err(broken()) };
                let Some(data) = dictionary.data() else { return Err(broken()) };
                check_batch(&data, body, self.max_block_bytes)?;
                let own = self.dictionary_bytes.entry(dictionary.id()).or_default();
                *own = if dictionary.isDelta() { own.saturating_add(body.len()) } else { body.len() };
                let all = self.dictionary_bytes.values().fold(0_usize, |all, bytes| all.saturating_add(*bytes));
                if all > self.max_block_bytes {
                    let problem = EncodingProblem::TooLong { found: all as u64, most: self.max_block_bytes };
                    return Err(EncodingError::new(problem));
                }
                let version = message.version();
                let dictionaries = &mut self.dictionaries;
                let unpacked = if is_zstandard(&data) { Some(unpacked::dictionary(&dictionary, body)?) } else { None };
                let (dictionary, body) = match &unpacked {
                    Some((dictionary, body)) => (read_root(dictionary)?, body),
                    None => (dictionary, body),
                };
                let read = || read_dictionary(body, dictionary, schema, dictionaries, &version);
                guarded(EncodingError::syntax, read).map(|()| None)
            }
            MessageHeader::NONE => Ok(None),
            other => {
                let found = other.variant_name().unwrap_or("something unknown");
                Err(EncodingError::syntax(format!("found a message of {found}, expected a batch")))
            }
        }
    }

    /// The description of the next message, without its body; `None` at the end.
    fn read_message(&mut self, input: &mut dyn BufRead) -> Result<Option<Vec<u8>>, EncodingError> {
        if self.ended || input.fill_buf()?.is_empty() {
            self.ended = true;
            return Ok(None);
        }
        let mut word = self.read_word(input)?;
        if self.at == 4 && MAGIC.starts_with(&word) {
            let rest = self.read_word(input)?;
            if !MAGIC.ends_with(&rest) {
                return Err(self.error(EncodingError::syntax("found something else than the start of an Arrow file")));
            }
            // Zeros up to where the writer has its first message begin.
            word = [0; 4];
            while word == [0; 4] && self.at < MAX_PADDING {
                word = self.read_word(input)?;
            }
        }
        if word == CONTINUATION {
            word = self.read_word(input)?;
        }
        let length = u32::from_le_bytes(word) as usize;
        if length == 0 {
            self.ended = true;
            return Ok(None);
        }
        self.read(input, length, self.max_message_bytes).map(Some)
    }

    fn read_word(&mut self, input: &mut dyn BufRead) -> Result<[u8; 4], EncodingError> {
        let bytes = self.read(input, 4, 4)?;
        bytes.first_chunk().copied().ok_or_else(|| EncodingError::new(EncodingProblem::Cut))
    }

    /// Reads `length` bytes; room is made for them as they come, and not for as many as are said to.
    fn read(&mut self, input: &mut dyn BufRead, length: usize, most: usize) -> Result<Vec<u8>, EncodingError> {
        if length > most {
            return Err(self.error(EncodingError::new(EncodingProblem::TooLong { found: length as u64, most })));
        }
        let mut bytes = Vec::with_capacity(length.min(1 << 16));
        input.take(length as u64).read_to_end(&mut bytes)?;
        self.at += bytes.len() as u64;
        if bytes.len() < length {
            return Err(self.error(EncodingError::new(EncodingProblem::Cut)));
        }
        Ok(bytes)
    }

    fn error(&self, error: EncodingError) -> EncodingError {
        EncodingError { at: Some(self.at), ..error }
    }
}

fn as_message(bytes: &[u8]) -> Result<Message<'_>, EncodingError> {
    // The message and the schema lie around its fields.
    let bounds = VerifierOptions { max_depth: MAX_NESTING + 2, ..VerifierOptions::default() };
    root_as_message_with_opts(&bounds, bytes).map_err(|error| match error {
        InvalidFlatbuffer::DepthLimitReached => EncodingError::syntax(format!("found {TOO_DEEP}")),
        error => EncodingError::syntax(format!("found no Arrow message: {error}")),
    })
}

/// A table that was built here.
fn read_root<'b, T: flatbuffers::Follow<'b, Inner = T> + flatbuffers::Verifiable + 'b>(
    bytes: &'b [u8],
) -> Result<T, EncodingError> {
    flatbuffers::root::<T>(bytes).map_err(|_| broken())
}

fn body_length(message: &Message<'_>) -> Result<usize, EncodingError> {
    usize::try_from(message.bodyLength()).map_err(|_| broken())
}

pub(super) fn broken() -> EncodingError {
    EncodingError::syntax("found an Arrow message that does not say what it must")
}

/// Whether the library reads columns of such a type without fail, whatever their bytes are.
fn is_read(found: &DataType) -> bool {
    match found {
        DataType::Union(variants, _) => variants.iter().all(|(id, variant)| id >= 0 && is_read(variant.data_type())),
        DataType::List(of)
        | DataType::LargeList(of)
        | DataType::ListView(of)
        | DataType::LargeListView(of)
        | DataType::Map(of, _) => is_read(of.data_type()),
        DataType::RunEndEncoded(_, values) => {
            let values = values.data_type();
            let is_plain = !values.is_nested() && !matches!(values, DataType::Dictionary(..));
            is_plain && !matches!(values, DataType::RunEndEncoded(..)) && is_read(values)
        }
        DataType::FixedSizeList(of, length) => *length >= 0 && is_read(of.data_type()),
        DataType::FixedSizeBinary(length) => *length >= 0,
        DataType::Struct(fields) => fields.iter().all(|field| is_read(field.data_type())),
        DataType::Dictionary(_, values) => {
            !values.is_nested() && !matches!(**values, DataType::Dictionary(..)) && is_read(values)
        }
        _ => true,
    }
}

/// Checks what the library takes for granted: that the buffers lie in the body, and that they are not to be unpacked to
/// any length.
fn check_batch(batch: &arrow_ipc::RecordBatch<'_>, body: &[u8], most: usize) -> Result<(), EncodingError> {
    let rows = usize::try_from(batch.length()).map_err(|_| broken())?;
    if rows > MAX_ROWS {
        return Err(EncodingError::syntax(format!("found a batch of {rows} rows, expected at most {MAX_ROWS}")));
    }
    let bound = (most as u64).saturating_mul(8);
    for node in batch.nodes().into_iter().flatten() {
        let (length, nulls) = (node.length(), node.null_count());
        if nulls < 0 || nulls > length || u64::try_from(length).is_err() || length as u64 > bound {
            return Err(broken());
        }
    }
    let buffers = batch.buffers().map_or(0, |buffers| buffers.len());
    if batch.variadicBufferCounts().into_iter().flatten().any(|count| count < 0 || count > buffers as i64) {
        return Err(broken());
    }
    let mut unpacked = 0_u64;
    for buffer in batch.buffers().into_iter().flatten() {
        let start = usize::try_from(buffer.offset()).map_err(|_| broken())?;
        let length = usize::try_from(buffer.length()).map_err(|_| broken())?;
        let bytes = start.checked_add(length).and_then(|end| body.get(start..end)).ok_or_else(broken)?;
        if batch.compression().is_some() && !bytes.is_empty() {
            let stated = i64::from_le_bytes(*bytes.first_chunk().ok_or_else(broken)?);
            // -1 is for a buffer that is not packed.
            unpacked = unpacked.saturating_add(u64::try_from(stated).unwrap_or(0));
        }
    }
    if unpacked > most as u64 {
        return Err(EncodingError::new(EncodingProblem::TooLong { found: unpacked, most }));
    }
    Ok(())
}

/// Writes records of one format as an Arrow IPC stream or file, batch by batch.
pub struct ArrowEncoder {
    batches: BatchWriter,
    file: bool,
    /// There while an output is being written.
    writer: Option<Writer>,
}

enum Writer {
    Stream(StreamWriter<Vec<u8>>),
    File(FileWriter<Vec<u8>>),
}

impl ArrowEncoder {
    /// An encoder of a stream, or of a file.
    ///
    /// # Errors
    /// The schema cannot be written.
    pub fn new(format: &Format, file: bool, options: &EncodingOptions) -> Result<Self, EncodingError> {
        let batches = BatchWriter::new(format, options);
        // Tried now, while an error can be reported to the caller.
        Writer::new(&batches, file)?;
        Ok(Self { batches, file, writer: None })
    }

    fn write(&mut self, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        if self.writer.is_none() {
            self.writer = Some(Writer::new(&self.batches, self.file)?);
        }
        let Some(writer) = &mut self.writer else { return Ok(()) };
        if let Some(batch) = self.batches.take()? {
            let outcome = match writer {
                Writer::Stream(writer) => writer.write(&batch),
                Writer::File(writer) => writer.write(&batch),
            };
            outcome.map_err(|error| EncodingError::schema(error.to_string()))?;
        }
        writer.take(out);
        Ok(())
    }
}

impl Writer {
    fn new(batches: &BatchWriter, file: bool) -> Result<Self, EncodingError> {
        let writer = match file {
            true => FileWriter::try_new(Vec::new(), batches.schema()).map(Self::File),
            false => StreamWriter::try_new(Vec::new(), batches.schema()).map(Self::Stream),
        };
        writer.map_err(|error| EncodingError::schema(error.to_string()))
    }

    /// Moves what was written.
    fn take(&mut self, out: &mut Vec<u8>) {
        out.append(match self {
            Self::Stream(writer) => writer.get_mut(),
            Self::File(writer) => writer.get_mut(),
        });
    }
}

impl Encoder for ArrowEncoder {
    fn start(&mut self, out: &mut Vec<u8>) {
        self.batches.clear();
        self.writer = Writer::new(&self.batches, self.file).ok();
        if let Some(writer) = &mut self.writer {
            writer.take(out);
        }
    }

    fn record(&mut self, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        self.batches.push(record)?;
        if self.batches.is_full() { self.write(out) } else { Ok(()) }
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        self.write(out)?;
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        let outcome = match &mut writer {
            Writer::Stream(writer) => writer.finish(),
            Writer::File(writer) => writer.finish(),
        };
        writer.take(out);
        outcome.map_err(|error| EncodingError::schema(error.to_string()))
    }
}
