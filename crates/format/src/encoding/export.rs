//! Formats as schemas of other systems: what is read with what Crossdock writes.

use std::str::FromStr;

use super::dispatch::encoder;
use super::{Encoding, EncodingError, EncodingOptions};
use crate::format::Format;

/// The notations in which the schema of what is written can be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum SchemaNotation {
    /// A `.proto` file: of [`Encoding::Protobuf`].
    Proto,
    /// An Avro schema, in JSON: of [`Encoding::Avro`] and [`Encoding::AvroFile`].
    Avsc,
    /// A JSON Schema: of [`Encoding::Json`].
    JsonSchema,
    /// An Arrow IPC file without records: of Arrow and Parquet.
    Arrow,
}

impl SchemaNotation {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Proto, Self::Avsc, Self::JsonSchema, Self::Arrow];

    /// The name that the command line uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Proto => "proto",
            Self::Avsc => "avsc",
            Self::JsonSchema => "json-schema",
            Self::Arrow => "arrow",
        }
    }

    /// The schema by which records of a format are written where nobody names another.
    ///
    /// # Errors
    /// The notation has no equivalent of the format, or the build was made without the encoding.
    pub fn export(self, format: &Format, options: &EncodingOptions) -> Result<Vec<u8>, EncodingError> {
        match self {
            #[cfg(feature = "protobuf")]
            Self::Proto => Ok(super::protobuf::ProtobufSchema::of(format).to_proto().into_bytes()),
            #[cfg(not(feature = "protobuf"))]
            Self::Proto => Err(super::schema::absent("a .proto file", "protobuf")),
            #[cfg(feature = "avro")]
            Self::Avsc => {
                let schema = super::avro::AvroSchema::of(format)?;
                let tree: serde_json::Value =
                    serde_json::from_str(schema.to_json()).map_err(|error| EncodingError::schema(error.to_string()))?;
                Ok(format!("{tree:#}\n").into_bytes())
            }
            #[cfg(not(feature = "avro"))]
            Self::Avsc => Err(super::schema::absent("an Avro schema", "avro")),
            Self::JsonSchema => Ok(crate::json::export_json_schema(format).into_bytes()),
            Self::Arrow => {
                let mut encoder = encoder(Encoding::ArrowFile, format, None, options)?;
                let mut file = Vec::new();
                encoder.start(&mut file);
                encoder.finish(&mut file).map(|()| file)
            }
        }
    }
}

impl FromStr for SchemaNotation {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|notation| notation.name() == word);
        known.ok_or_else(|| format!("a notation is {}", Self::ALL.map(Self::name).join(", ")))
    }
}
