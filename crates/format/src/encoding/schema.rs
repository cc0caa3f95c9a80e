//! Schemas of other systems.

use super::EncodingError;
use crate::format::Format;

/// The language of a schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum SchemaLanguage {
    /// Crossdock's own notation, `name type [null]` a line.
    Crossdock,
    /// A `.proto` file.
    Protobuf,
    /// An Avro schema, in JSON.
    Avro,
    /// A JSON Schema.
    JsonSchema,
}

impl SchemaLanguage {
    /// The language that a file's name indicates by its ending: Crossdock's own unless it is known to be another.
    #[must_use]
    pub fn of_name(name: &str) -> Self {
        match name.rsplit_once('.').map(|(_, ending)| ending) {
            Some("proto") => Self::Protobuf,
            Some("avsc") => Self::Avro,
            Some("json") => Self::JsonSchema,
            _ => Self::Crossdock,
        }
    }
}

/// A schema as text, which formats are imported from and by which encodings are read and written.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct Schema {
    /// The language that it is in.
    pub language: SchemaLanguage,
    /// Its file's name, for messages and for imports by name.
    pub name: String,
    /// The text.
    pub text: String,
    /// The message or record that is meant, where the text has several.
    pub message: Option<String>,
    /// Other texts by the names under which they are imported.
    pub imports: Vec<(String, String)>,
}

impl Schema {
    /// A schema that imports nothing, in the language that its name indicates.
    #[must_use]
    pub fn new(name: impl Into<String>, text: impl Into<String>, message: Option<String>) -> Self {
        let name = name.into();
        Self { language: SchemaLanguage::of_name(&name), name, text: text.into(), message, imports: Vec::new() }
    }

    /// The format of the records that it describes.
    ///
    /// # Errors
    /// It cannot be read, has no such message, or describes what no format can hold.
    pub fn format(&self) -> Result<Format, EncodingError> {
        match self.language {
            SchemaLanguage::Crossdock => {
                Format::parse_schema(&self.text).map_err(|error| EncodingError::schema(error.to_string()))
            }
            #[cfg(feature = "protobuf")]
            SchemaLanguage::Protobuf => self.protobuf()?.format(),
            #[cfg(not(feature = "protobuf"))]
            SchemaLanguage::Protobuf => Err(absent("a .proto file", "protobuf")),
            #[cfg(feature = "avro")]
            SchemaLanguage::Avro => {
                let schema = super::avro::AvroSchema::parse(&self.text)?;
                self.check_record(schema.name())?;
                schema.format()
            }
            #[cfg(not(feature = "avro"))]
            SchemaLanguage::Avro => Err(absent("an Avro schema", "avro")),
            SchemaLanguage::JsonSchema => {
                crate::json::import_json_schema(&self.text).map_err(|error| EncodingError::schema(error.to_string()))
            }
        }
    }

    /// The parts of the schema that its format does not have, though the rules of its language say what it means; each
    /// as a phrase. Only Avro schemas have such parts.
    #[must_use]
    pub fn ignored(&self) -> Vec<String> {
        match self.language {
            #[cfg(feature = "avro")]
            SchemaLanguage::Avro => {
                super::avro::AvroSchema::parse(&self.text).map(|schema| schema.ignored()).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    /// Refuses the name of another record than the one that an Avro schema has.
    #[cfg(feature = "avro")]
    fn check_record(&self, name: &str) -> Result<(), EncodingError> {
        let last = name.rsplit('.').next().unwrap_or_default();
        match self.message.as_deref() {
            Some(message) if message != name && message != last => {
                let message = crate::text::shorten(message.as_bytes());
                Err(EncodingError::schema(format!("there is no record `{message}`; there is: {name}")))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(feature = "protobuf")]
impl Schema {
    /// The message type of a `.proto`.
    pub(super) fn protobuf(&self) -> Result<super::protobuf::ProtobufSchema, EncodingError> {
        super::protobuf::ProtobufSchema::import(&self.files(), self.message.as_deref())
    }

    /// The message types that a `.proto` declares.
    pub(super) fn protobuf_messages(&self) -> Result<Vec<super::protobuf::DeclaredMessage>, EncodingError> {
        super::protobuf::ProtobufSchema::declared(&self.files())
    }

    fn files(&self) -> Vec<(&str, &str)> {
        let own = (self.name.as_str(), self.text.as_str());
        let imports = self.imports.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        std::iter::once(own).chain(imports).collect()
    }
}

/// The feature that this build was made without.
pub(super) fn absent(what: &str, feature: &str) -> EncodingError {
    EncodingError::schema(format!("this build cannot read {what}: build crossdock-format with its feature `{feature}`"))
}
