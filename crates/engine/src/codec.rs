//! Encodings as handlers: messages in some encoding to records, and records to such messages.
//!
//! A message travels as a record with a `bytes` (or text) field: that is what a publisher sends that has nothing but
//! encoded messages, and what a subscriber gets who wants them so. Of the format's other fields those are kept that the
//! codec names.

use crossdock_format::convert::{Codec, MESSAGE_FIELD};
use crossdock_format::encoding::{self, Decoder, Encoder, Encoding, EncodingError, Framing};
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
    /// There if fields beside the message are kept.
    kept: Option<Kept>,
    refusal: Option<EncodingError>,
    counters: HandlerCounters,
}

/// Fields beside the message, for the records that are made of it.
struct Kept {
    /// The format of what the message alone makes.
    of_message: Format,
    /// The members of a record that come from the message: their indices in the record, and in what the message makes.
    from_message: Vec<(usize, usize)>,
    /// Those that come from beside it, in the same way.
    from_beside: Vec<(usize, usize)>,
    builder: RecordBuilder,
}

impl DecodeHandler {
    /// A handler of records of format `input`, which have messages as `codec` says; it makes records of format `output`.
    ///
    /// # Errors
    /// There is no field of that name, or it is neither `bytes` nor text; a field that is kept is not in both formats; what
    /// [`encoding::message_decoder`] refuses.
    pub fn new(input: &Format, codec: &Codec, output: &Format) -> Result<DecodeHandler, EncodingError> {
        let field = codec.field.as_str();
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
        let kept = if codec.keep.is_empty() { None } else { Some(Kept::new(input, &codec.keep, output)?) };
        let of_message = kept.as_ref().map_or(output, |kept| &kept.of_message);
        let decoder = encoding::message_decoder(codec.form(), of_message, &codec.options())?;
        let (input, output, counters) = (input.clone(), output.clone(), HandlerCounters::default());
        Ok(DecodeHandler { input, field: index, output, decoder, kept, refusal: None, counters })
    }

    /// The format of the records that it makes.
    pub fn output(&self) -> &Format {
        &self.output
    }

    /// Gives the sink what is in a message; how many records that were.
    fn message(&mut self, around: &Record<'_>, mut message: &[u8], out: &mut dyn Sink) -> usize {
        let DecodeHandler { decoder, kept, refusal, counters, .. } = self;
        let mut refuse = |error| {
            counters.row_errors += 1;
            *refusal = Some(error);
        };
        decoder.restart();
        let mut made = 0;
        for _ in 0..MAX_RECORDS_PER_MESSAGE {
            let record = match (decoder.next_record(&mut message), &mut *kept) {
                (Ok(None), _) => return made,
                (Ok(Some(record)), None) => Ok(record),
                (Ok(Some(record)), Some(kept)) => kept.join(record, around),
                (Err(error), _) => Err(error),
            };
            match record {
                Ok(record) => {
                    out.push(record);
                    made += 1;
                }
                Err(error) => {
                    let goes_on = error.is_item();
                    refuse(error);
                    if !goes_on {
                        return made;
                    }
                }
            }
        }
        // Whatever is left of it, if anything is.
        if !matches!(decoder.next_record(&mut message), Ok(None)) {
            refuse(EncodingError::syntax(format!("a message has more than {MAX_RECORDS_PER_MESSAGE} records")));
        }
        made
    }
}

impl Kept {
    fn new(input: &Format, keep: &[String], output: &Format) -> Result<Kept, EncodingError> {
        let (inputs, outputs) = (input.specs(), output.specs());
        let mut from_beside = Vec::with_capacity(keep.len());
        for name in keep {
            let refuse = |message: String| Err(EncodingError::schema(message).in_field(name));
            let place = |specs: &[FieldSpec]| specs.iter().position(|spec| spec.name == *name);
            let Some((from, beside)) = place(&inputs).and_then(|at| Some((at, inputs.get(at)?))) else {
                let known: Vec<&str> = inputs.iter().map(|spec| spec.name.as_str()).collect();
                return refuse(format!(
                    "it is to be kept, and the messages' format lacks it; it has: {}",
                    known.join(", ")
                ));
            };
            let line = notation(beside);
            let Some((to, own)) = place(&outputs).and_then(|at| Some((at, outputs.get(at)?))) else {
                return refuse(format!(
                    "it is to be kept, and the target format lacks it: add the line `{line}` to it"
                ));
            };
            if own.ty != beside.ty || (beside.nullable && !own.nullable) {
                let own = notation(own);
                return refuse(format!(
                    "it is to be kept, and is `{line}` beside the message, but `{own}` in the target"
                ));
            }
            from_beside.push((to, from));
        }
        let is_kept = |at: usize| from_beside.iter().any(|(to, _)| *to == at);
        let rest = outputs.iter().enumerate().filter(|(at, _)| !is_kept(*at)).map(|(_, spec)| spec.clone());
        let of_message = Format::natural(rest).map_err(|error| EncodingError::schema(error.to_string()))?;
        let from_message = (0..outputs.len()).filter(|at| !is_kept(*at)).zip(0..).collect();
        Ok(Kept { of_message, from_message, from_beside, builder: RecordBuilder::new(output) })
    }

    /// A record of what a message made and of what lies beside it.
    fn join(&mut self, made: &[u8], around: &Record<'_>) -> Result<&[u8], EncodingError> {
        self.builder.clear();
        let made = Record::assume_checked(&self.of_message, made);
        self.builder.copy_some(&made, &self.from_message)?;
        self.builder.copy_some(around, &self.from_beside)?;
        Ok(self.builder.finish()?)
    }
}

/// A field as a schema has it.
fn notation(spec: &FieldSpec) -> String {
    let schema = Format::natural([spec.clone()]).map(|format| format.schema());
    schema.map_or_else(|_| spec.name.clone(), |schema| schema.split_whitespace().collect::<Vec<_>>().join(" "))
}

impl Handler for DecodeHandler {
    fn process(&mut self, batch: &Batch, selection: &mut Selection, out: &mut dyn Sink) -> Verdict {
        self.counters.records_in += selection.len() as u64;
        let mut made = 0;
        let mut records = Records::of(batch);
        let input = self.input.clone();
        for index in &*selection {
            let record = Record::assume_checked(&input, records.record(index));
            match record.get(self.field) {
                Value::Bytes(message) | Value::Text(message) => made += self.message(&record, message, out),
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

    fn refusal(&self) -> Option<String> {
        self.refusal.as_ref().map(ToString::to_string)
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
    /// A handler of records of format `input`, which makes messages as `codec` says; its field is that of the codec's caller.
    ///
    /// # Errors
    /// Fields beside the messages are to be kept; messages of several records, which their framing cannot distinguish; what
    /// [`encoding::message_encoder`] refuses.
    pub fn new(input: &Format, codec: &Codec, messages: Messages) -> Result<EncodeHandler, EncodingError> {
        if let Some(field) = codec.keep.first() {
            let message = "fields are kept where messages are decoded: a message that is made stands alone";
            return Err(EncodingError::schema(message).in_field(field));
        }
        if messages == Messages::EachBatch && codec.encoding == Encoding::Protobuf && codec.framing == Framing::None {
            let message = format!("a message of several records needs the framing `{}`", Framing::Length);
            return Err(EncodingError::schema(message));
        }
        let output = Format::natural([FieldSpec::new(MESSAGE_FIELD, FieldType::Bytes)]);
        let output = output.map_err(|error| EncodingError::schema(error.to_string()))?;
        Ok(EncodeHandler {
            input: input.clone(),
            encoder: encoding::message_encoder(codec.form(), input, &codec.options())?,
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
