//! Encodings as handlers: messages in some encoding to records, and records to such messages.
//!
//! A message travels as a record with a `bytes` (or text) field: that is what a publisher sends who has nothing but
//! encoded messages, and what a subscriber gets who wants them so. The format's other fields are not looked at.

use crossdock_format::convert::MESSAGE_FIELD;
use crossdock_format::encoding::{self, Decoder, Encoder, Encoding, EncodingError, EncodingOptions, Schema};
use crossdock_format::{FieldSpec, FieldType, Format, Record, RecordBuilder, Value};
use crossdock_mailbox::{Batch, Selection};

use crate::handler::{Handler, HandlerCounters, Sink, Verdict};
use crate::kernel::Records;

/// Most records, with those that are wrong, that are looked for in one message: a few bytes of a packed encoding may stand for any number.
pub const MAX_RECORDS_PER_MESSAGE: usize = 1 << 16;

/// Makes records of encoded messages.
///
/// Each selected record's message is an input of its own: one item or several, with a header where the encoding has one.
/// An item that is wrong is dropped and counted as a row error; where reading cannot go on behind it, so is what is left
/// of its message. The records that come of messages are the handler's [`HandlerCounters::passed`].
///
/// Verdicts: [`Verdict::Emit`], or [`Verdict::Drop`] if nothing came of the batch.
pub struct DecodeHandler {
    input: Format,
    /// Index of the field with the message.
    field: usize,
    output: Format,
    decoder: Box<dyn Decoder>,
    counters: HandlerCounters,
}

impl DecodeHandler {
    /// A handler of records of format `input`, whose field of this name holds messages; it makes records of format
    /// `output`. The other arguments are those of [`encoding::decoder`].
    ///
    /// # Errors
    /// There is no such field, or it is neither `bytes` nor text; what [`encoding::decoder`] refuses.
    pub fn new(
        input: &Format,
        field: &str,
        encoding: Encoding,
        output: &Format,
        schema: Option<&Schema>,
        options: &EncodingOptions,
    ) -> Result<DecodeHandler, EncodingError> {
        let Some(index) = input.field(field) else {
            let known: Vec<&str> = input.fields().iter().map(|field| field.name.as_str()).collect();
            let message = format!("the messages' format has no such field; it has: {}", known.join(", "));
            return Err(EncodingError::schema(message).in_field(field));
        };
        let ty = input.fields()[index].ty;
        if !matches!(ty, FieldType::Bytes | FieldType::String | FieldType::Char(_)) {
            let message = format!("messages are in a field of bytes or text, and this one is {ty}");
            return Err(EncodingError::schema(message).in_field(field));
        }
        let decoder = encoding::decoder(encoding, output, schema, options)?;
        let (input, output) = (input.clone(), output.clone());
        Ok(DecodeHandler { input, field: index, output, decoder, counters: HandlerCounters::default() })
    }

    /// The format of the records that it makes.
    pub fn output(&self) -> &Format {
        &self.output
    }

    /// Gives the sink what is in a message; how many records that were.
    fn message(&mut self, mut message: &[u8], out: &mut dyn Sink) -> usize {
        self.decoder.restart();
        let mut made = 0;
        for _ in 0..MAX_RECORDS_PER_MESSAGE {
            match self.decoder.next_record(&mut message) {
                Ok(Some(record)) => {
                    out.push(record);
                    made += 1;
                }
                Ok(None) => return made,
                Err(error) => {
                    self.counters.row_errors += 1;
                    if !error.is_item() {
                        return made;
                    }
                }
            }
        }
        // Whatever is left of it, if anything is.
        self.counters.row_errors += u64::from(!matches!(self.decoder.next_record(&mut message), Ok(None)));
        made
    }
}

impl Handler for DecodeHandler {
    fn process(&mut self, batch: &Batch, selection: &mut Selection, out: &mut dyn Sink) -> Verdict {
        self.counters.records_in += selection.len() as u64;
        let mut made = 0;
        let mut records = Records::of(batch);
        let input = self.input.clone();
        for index in &*selection {
            match Record::assume_checked(&input, records.record(index)).get(self.field) {
                Value::Bytes(message) | Value::Text(message) => made += self.message(message, out),
                // No message: nothing to be made, and nothing wrong.
                _ => {}
            }
        }
        self.counters.passed += made as u64;
        Verdict::emit(made)
    }

    fn counters(&self) -> HandlerCounters {
        self.counters
    }
}

/// How many records go into one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Messages {
    /// One: each message is an output of its own, with a header and an end where the encoding has those.
    EachRecord,
    /// All that a batch has selected: what costs a header pays for it once.
    EachBatch,
}

/// Makes encoded messages of records: records of a format with one field, [`MESSAGE_FIELD`], of bytes.
///
/// A record that cannot be encoded, and a message that is too long for a record, is dropped and counted as a row error.
///
/// Verdicts: [`Verdict::Emit`], or [`Verdict::Drop`] if nothing came of the batch.
pub struct EncodeHandler {
    input: Format,
    output: Format,
    encoder: Box<dyn Encoder>,
    messages: Messages,
    builder: RecordBuilder,
    message: Vec<u8>,
    counters: HandlerCounters,
}

impl EncodeHandler {
    /// A handler of records of format `input`. The other arguments are those of [`encoding::encoder`].
    ///
    /// # Errors
    /// What [`encoding::encoder`] refuses.
    pub fn new(
        input: &Format,
        encoding: Encoding,
        messages: Messages,
        schema: Option<&Schema>,
        options: &EncodingOptions,
    ) -> Result<EncodeHandler, EncodingError> {
        let output = Format::natural([FieldSpec::new(MESSAGE_FIELD, FieldType::Bytes)]);
        let output = output.map_err(|error| EncodingError::schema(error.to_string()))?;
        Ok(EncodeHandler {
            input: input.clone(),
            encoder: encoding::encoder(encoding, input, schema, options)?,
            messages,
            builder: RecordBuilder::new(&output),
            message: Vec::new(),
            output,
            counters: HandlerCounters::default(),
        })
    }

    /// The format of the records that it makes.
    pub fn output(&self) -> &Format {
        &self.output
    }

    fn begin(&mut self) {
        self.message.clear();
        self.encoder.start(&mut self.message);
    }

    /// Puts a record into the message; whether that could be done.
    fn put(&mut self, record: &Record<'_>) -> bool {
        let done = self.encoder.record(record, &mut self.message).is_ok();
        self.counters.row_errors += u64::from(!done);
        done
    }

    /// Ends the message, which has `records` records, and sends it; how many messages that were.
    fn end(&mut self, records: u64, out: &mut dyn Sink) -> usize {
        if records == 0 {
            return 0;
        }
        let finished = self.encoder.finish(&mut self.message);
        let set = finished.is_ok() && self.builder.set_bytes(0, &self.message).is_ok();
        match self.builder.finish() {
            Ok(record) if set => {
                out.push(record);
                self.counters.passed += records;
                1
            }
            _ => {
                self.counters.row_errors += records;
                0
            }
        }
    }
}

impl Handler for EncodeHandler {
    fn process(&mut self, batch: &Batch, selection: &mut Selection, out: &mut dyn Sink) -> Verdict {
        self.counters.records_in += selection.len() as u64;
        let mut records = Records::of(batch);
        let input = self.input.clone();
        let (mut made, mut in_message) = (0, 0);
        self.begin();
        for index in &*selection {
            in_message += u64::from(self.put(&Record::assume_checked(&input, records.record(index))));
            if self.messages == Messages::EachRecord {
                made += self.end(std::mem::take(&mut in_message), out);
                self.begin();
            }
        }
        made += self.end(in_message, out);
        Verdict::emit(made)
    }

    fn counters(&self) -> HandlerCounters {
        self.counters
    }
}
