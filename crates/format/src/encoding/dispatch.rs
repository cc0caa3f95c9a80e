//! From an encoding's name to what reads and writes it.

use std::io::BufRead;

use super::binary::{BinaryDecoder, BinaryEncoder};
use super::foreign::ForeignDecoder;
use super::schema::absent;
use super::text::{CsvInput, CsvOutput, JsonOutput, json_options};
use super::{Decoder, Encoder, Encoding, EncodingError, EncodingOptions, Schema};
use crate::format::Format;
use crate::json::JsonDecoder;

/// A decoder of inputs in this encoding to records of this format. `schema` is the one that the input was written by,
/// where the encoding needs to know (Protobuf, Avro); without it, it is the one that [`encoder`] makes up for the format.
///
/// # Errors
/// The schema does not go with the format, or the build was made without the encoding.
pub fn decoder(
    encoding: Encoding,
    format: &Format,
    schema: Option<&Schema>,
    options: &EncodingOptions,
) -> Result<Box<dyn Decoder>, EncodingError> {
    if encoding == Encoding::Binary || !format.is_foreign() {
        return natural_decoder(encoding, format, format, schema, options);
    }
    let natural_format = natural_decoder(encoding, format.natural_format(), format, schema, options)?;
    Ok(Box::new(ForeignDecoder::new(format, natural_format)))
}

/// A decoder to records of `format`, of inputs as written of records of `declared`.
fn natural_decoder(
    encoding: Encoding,
    format: &Format,
    declared: &Format,
    schema: Option<&Schema>,
    options: &EncodingOptions,
) -> Result<Box<dyn Decoder>, EncodingError> {
    let _ = (schema, declared);
    Ok(match encoding {
        Encoding::Binary => Box::new(BinaryDecoder::new(format, options)),
        Encoding::Json => Box::new(JsonDecoder::new(format, &json_options(options))),
        Encoding::Csv => Box::new(CsvInput::new(format, options)),
        Encoding::Cbor => Box::new(super::cbor::CborDecoder::new(format, options)),
        Encoding::MessagePack => Box::new(super::msgpack::MessagePackDecoder::new(format, options)),
        #[cfg(feature = "avro")]
        Encoding::Avro => {
            let schema = avro_schema(schema)?.map_or_else(|| super::avro::AvroSchema::of(declared), Ok)?;
            Box::new(super::avro::AvroDecoder::new(format, options, Some(&schema))?)
        }
        #[cfg(feature = "avro")]
        Encoding::AvroFile => Box::new(super::avro::AvroFileDecoder::new(format, options)),
        #[cfg(feature = "protobuf")]
        Encoding::Protobuf => {
            let schema = protobuf_schema(schema)?;
            let schema = schema.unwrap_or_else(|| super::protobuf::ProtobufSchema::of(declared));
            Box::new(super::protobuf::ProtobufDecoder::new(format, options, Some(&schema))?)
        }
        #[cfg(feature = "xml")]
        Encoding::Xml => Box::new(super::xml::XmlDecoder::new(format, options)),
        #[cfg(feature = "arrow")]
        Encoding::ArrowStream | Encoding::ArrowFile => Box::new(super::arrow::ArrowDecoder::new(format, options)),
        #[cfg(feature = "arrow")]
        Encoding::Parquet => Box::new(super::parquet::ParquetDecoder::new(format, options)),
        #[allow(unreachable_patterns, reason = "none is left where all features are on")]
        other => return Err(absent_encoding(other)),
    })
}

/// An encoder of records of this format, by this schema where the encoding has any and one is given.
///
/// # Errors
/// The encoding cannot hold the format without a loss that is not allowed, the schema does not go with it, or the build
/// was made without the encoding.
pub fn encoder(
    encoding: Encoding,
    format: &Format,
    schema: Option<&Schema>,
    options: &EncodingOptions,
) -> Result<Box<dyn Encoder>, EncodingError> {
    let _ = schema;
    Ok(match encoding {
        Encoding::Binary => Box::new(BinaryEncoder),
        Encoding::Json => Box::new(JsonOutput::new(format, options)),
        Encoding::Csv => Box::new(CsvOutput::new(format, options)?),
        Encoding::Cbor => Box::new(super::cbor::CborEncoder::new(format, options)?),
        Encoding::MessagePack => Box::new(super::msgpack::MessagePackEncoder::new(format, options)?),
        #[cfg(feature = "avro")]
        Encoding::Avro => Box::new(super::avro::AvroEncoder::new(format, options, avro_schema(schema)?.as_ref())?),
        #[cfg(feature = "avro")]
        Encoding::AvroFile => {
            Box::new(super::avro::AvroFileEncoder::new(format, options, avro_schema(schema)?.as_ref())?)
        }
        #[cfg(feature = "protobuf")]
        Encoding::Protobuf => {
            let schema = protobuf_schema(schema)?;
            Box::new(super::protobuf::ProtobufEncoder::new(format, options, schema.as_ref())?)
        }
        #[cfg(feature = "xml")]
        Encoding::Xml => Box::new(super::xml::XmlEncoder::new(format, options)?),
        #[cfg(feature = "arrow")]
        Encoding::ArrowStream => Box::new(super::arrow::ArrowEncoder::new(format, false, options)?),
        #[cfg(feature = "arrow")]
        Encoding::ArrowFile => Box::new(super::arrow::ArrowEncoder::new(format, true, options)?),
        #[cfg(feature = "arrow")]
        Encoding::Parquet => Box::new(super::parquet::ParquetEncoder::new(format, options)?),
        #[allow(unreachable_patterns, reason = "none is left where all features are on")]
        other => return Err(absent_encoding(other)),
    })
}

/// Reads the schema that an input carries: the format of its records, and a decoder that goes on behind it.
///
/// # Errors
/// The encoding carries no schema ([`Encoding::carries_schema`]), the input is not in it, or its schema is no format.
pub fn open(
    encoding: Encoding,
    input: &mut dyn BufRead,
    options: &EncodingOptions,
) -> Result<(Format, Box<dyn Decoder>), EncodingError> {
    let _ = (&input, options);
    match encoding {
        #[cfg(feature = "arrow")]
        Encoding::ArrowStream | Encoding::ArrowFile => {
            let (format, decoder) = super::arrow::ArrowDecoder::open(input, options)?;
            Ok((format, Box::new(decoder)))
        }
        #[cfg(feature = "avro")]
        Encoding::AvroFile => {
            let (format, decoder) = super::avro::AvroFileDecoder::open(input, options)?;
            Ok((format, Box::new(decoder)))
        }
        #[cfg(feature = "arrow")]
        Encoding::Parquet => {
            let (format, decoder) = super::parquet::ParquetDecoder::gather(input, None, options)?;
            Ok((format, Box::new(decoder)))
        }
        _ if encoding.carries_schema() => Err(absent_encoding(encoding)),
        _ => Err(EncodingError::schema(format!("{encoding} carries no schema: name one"))),
    }
}

/// The content of a schema, if it is one of Avro.
#[cfg(feature = "avro")]
fn avro_schema(schema: Option<&Schema>) -> Result<Option<super::avro::AvroSchema>, EncodingError> {
    let schema = schema.filter(|schema| schema.language == super::SchemaLanguage::Avro);
    schema.map(|schema| super::avro::AvroSchema::parse(&schema.text)).transpose()
}

/// The message type that a schema says, if it is one of Protobuf.
#[cfg(feature = "protobuf")]
pub(super) fn protobuf_schema(
    schema: Option<&Schema>,
) -> Result<Option<super::protobuf::ProtobufSchema>, EncodingError> {
    schema.filter(|schema| schema.language == super::SchemaLanguage::Protobuf).map(Schema::protobuf).transpose()
}

fn absent_encoding(encoding: Encoding) -> EncodingError {
    let feature = match encoding {
        Encoding::Avro | Encoding::AvroFile => "avro",
        Encoding::Protobuf => "protobuf",
        Encoding::Xml => "xml",
        _ => "arrow",
    };
    absent(encoding.name(), feature)
}
