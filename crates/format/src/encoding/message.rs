//! Messages: inputs that are one message each and nothing else, as a field of a record has them.

use std::fmt;
use std::io::{BufRead, Read};
use std::str::FromStr;

use super::confluent::ConfluentDecoder;
#[cfg(feature = "protobuf")]
use super::foreign::ForeignDecoder;
#[cfg(feature = "protobuf")]
use super::protobuf::{ProtobufDecoder, ProtobufEncoder, ProtobufSchema};
use super::{Decoder, Encoder, Encoding, EncodingError, EncodingOptions, EncodingProblem, RegisteredSchema, Schema};
use crate::format::Format;
#[cfg(feature = "protobuf")]
use crate::record::Record;

/// The bytes in front of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub enum Framing {
    /// Nothing: the field holds the message.
    #[default]
    None,
    /// Its length, as a varint: Protobuf's own way to have several messages one after the other.
    Length,
    /// A zero byte and the number of its schema in a schema registry, as Confluent's serializers write it; of Protobuf, then
    /// which of the schema's messages it is.
    Confluent,
}

impl Framing {
    /// All of them.
    pub const ALL: [Framing; 3] = [Self::None, Self::Length, Self::Confluent];

    /// The name that the command line and conversions use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Length => "length",
            Self::Confluent => "confluent",
        }
    }
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that names no framing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{found}` names no framing; known: none, length, confluent")]
pub struct FramingNameError {
    /// The word that was found.
    pub found: String,
}

impl FromStr for Framing {
    type Err = FramingNameError;

    fn from_str(word: &str) -> Result<Self, FramingNameError> {
        let found = Self::ALL.into_iter().find(|framing| framing.name() == word);
        found.ok_or_else(|| FramingNameError { found: word.chars().take(40).collect() })
    }
}

/// How messages are written down: all but the options that their encoding has for inputs too.
#[derive(Clone, Copy, Debug)]
pub struct MessageForm<'a> {
    /// Their encoding.
    pub encoding: Encoding,
    /// The bytes in front of them.
    pub framing: Framing,
    /// The schema that they are written by, where the encoding needs to know one.
    pub schema: Option<&'a Schema>,
    /// The schemas that [`Framing::Confluent`] names by their numbers.
    pub registered: &'a [RegisteredSchema],
}

/// A decoder whose inputs are messages, to records of this format. A message that is not framed is one Protobuf message, or
/// what an input of another encoding is: one item or several.
///
/// # Errors
/// The refusals of [`decoder`](super::decoder); an encoding of files; a framing that the encoding does not have, or
/// that lacks its schemas.
pub fn message_decoder(
    form: MessageForm<'_>,
    format: &Format,
    options: &EncodingOptions,
) -> Result<Box<dyn Decoder>, EncodingError> {
    let MessageForm { encoding, framing, schema, registered } = form;
    refuse_files(encoding)?;
    if framing != Framing::Confluent && !registered.is_empty() {
        let message = format!("schemas with numbers are for messages framed as `{}`", Framing::Confluent);
        return Err(EncodingError::schema(message));
    }
    match (framing, encoding) {
        (Framing::Confluent, _) => {
            if schema.is_some() {
                let message = "messages that name their schemas by numbers need no other: leave `schema` out";
                return Err(EncodingError::schema(message));
            }
            Ok(Box::new(ConfluentDecoder::new(encoding, format, registered, options)?))
        }
        #[cfg(feature = "protobuf")]
        (Framing::None, Encoding::Protobuf) => bare_protobuf(format, schema, options),
        (Framing::Length, Encoding::Protobuf) | (Framing::None, _) => super::decoder(encoding, format, schema, options),
        (Framing::Length, _) => Err(no_lengths(encoding)),
    }
}

/// An encoder whose outputs are messages, of records of this format.
///
/// # Errors
/// The refusals of [`encoder`](super::encoder); an encoding of files; a framing that the encoding does not have, or
/// that is only read.
pub fn message_encoder(
    form: MessageForm<'_>,
    format: &Format,
    options: &EncodingOptions,
) -> Result<Box<dyn Encoder>, EncodingError> {
    let MessageForm { encoding, framing, schema, registered } = form;
    refuse_files(encoding)?;
    if framing == Framing::Confluent || !registered.is_empty() {
        let message = "messages are not written with the numbers of their schemas: they are only read so. Leave out the \
                       framing, or name another";
        return Err(EncodingError::schema(message));
    }
    match (framing, encoding) {
        #[cfg(feature = "protobuf")]
        (Framing::None, Encoding::Protobuf) => {
            let schema = super::dispatch::protobuf_schema(schema)?;
            Ok(Box::new(BareEncoder(ProtobufEncoder::new(format, options, schema.as_ref())?)))
        }
        (Framing::Length, encoding) if encoding != Encoding::Protobuf => Err(no_lengths(encoding)),
        _ => super::encoder(encoding, format, schema, options),
    }
}

fn no_lengths(encoding: Encoding) -> EncodingError {
    EncodingError::schema(format!(
        "messages in {encoding} have no length in front of them: the framing `{}` is for {}",
        Framing::Length,
        Encoding::Protobuf
    ))
}

/// A message has no room for what stands around the records of a file.
fn refuse_files(encoding: Encoding) -> Result<(), EncodingError> {
    match encoding.carries_schema() {
        false => Ok(()),
        true => Err(EncodingError::schema(format!(
            "{encoding} is an encoding of files: a message cannot contain a file's header and footer"
        ))),
    }
}

/// A decoder of messages of Protobuf, each being all of its input.
#[cfg(feature = "protobuf")]
fn bare_protobuf(
    format: &Format,
    schema: Option<&Schema>,
    options: &EncodingOptions,
) -> Result<Box<dyn Decoder>, EncodingError> {
    let schema = super::dispatch::protobuf_schema(schema)?;
    bare_protobuf_of(format, &schema.unwrap_or_else(|| ProtobufSchema::of(format)), options)
}

/// The same, of messages of this type.
#[cfg(feature = "protobuf")]
pub(super) fn bare_protobuf_of(
    format: &Format,
    schema: &ProtobufSchema,
    options: &EncodingOptions,
) -> Result<Box<dyn Decoder>, EncodingError> {
    let natural = if format.is_foreign() { format.natural_format() } else { format };
    let decoder = ProtobufDecoder::new(natural, options, Some(schema))?;
    let bare = Bare { decoder, message: Vec::new(), is_read: false, most: options.max_item_bytes };
    Ok(match format.is_foreign() {
        true => Box::new(ForeignDecoder::new(format, Box::new(bare))),
        false => Box::new(bare),
    })
}

/// Messages that are all of their inputs, also where these are empty.
#[cfg(feature = "protobuf")]
struct Bare {
    decoder: ProtobufDecoder,
    message: Vec<u8>,
    is_read: bool,
    most: usize,
}

#[cfg(feature = "protobuf")]
impl Decoder for Bare {
    fn next_record(&mut self, input: &mut dyn BufRead) -> Result<Option<&[u8]>, EncodingError> {
        if std::mem::replace(&mut self.is_read, true) {
            return Ok(None);
        }
        read_message(input, self.most, &mut self.message)?;
        self.decoder.decode(&self.message).map(Some)
    }

    fn restart(&mut self) {
        self.is_read = false;
    }
}

/// Writes messages with nothing in front of them.
#[cfg(feature = "protobuf")]
struct BareEncoder(ProtobufEncoder);

#[cfg(feature = "protobuf")]
impl Encoder for BareEncoder {
    fn record(&mut self, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        self.0.message(record, out)
    }
}

/// Reads all that there is, as one message.
pub(super) fn read_message(input: &mut dyn BufRead, most: usize, message: &mut Vec<u8>) -> Result<(), EncodingError> {
    message.clear();
    input.take((most as u64).saturating_add(1)).read_to_end(message)?;
    if message.len() > most {
        return Err(EncodingError::new(EncodingProblem::TooLong { found: message.len() as u64, most }));
    }
    Ok(())
}
