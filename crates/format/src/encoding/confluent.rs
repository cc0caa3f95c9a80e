//! Messages as Confluent's serializers frame them: a zero byte, the number of the schema in four bytes, and then the message.
//! Of Protobuf there stands between the two which of the schema's messages it is: the number of indexes and the indexes, as
//! zigzag varints, or a zero for the first message.

use std::collections::{BTreeMap, HashMap};
use std::io::BufRead;

use serde::Deserialize;

#[cfg(feature = "protobuf")]
use super::message::bare_protobuf_of;
use super::message::{Framing, MessageForm, message_decoder, read_message};
#[cfg(feature = "protobuf")]
use super::protobuf::DeclaredMessage;
use super::reader::{Reader, unzigzag};
use super::{Decoder, Encoding, EncodingError, EncodingOptions, Schema, SchemaLanguage};
use crate::format::Format;

/// Most schemas that messages of one field may be written by.
const MAX_SCHEMAS: usize = 256;
/// Most indexes that lead to a Protobuf message: how deep message types lie in each other.
const MAX_INDEXES: i64 = 32;
/// Numbers of schemas that an error lists.
const SHOWN_IDS: usize = 20;

/// A schema under its number in a schema registry.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct RegisteredSchema {
    /// The number.
    pub id: u32,
    /// The schema.
    pub schema: Schema,
}

/// A schema as a registry's `/schemas` lists it.
#[derive(Deserialize)]
struct Listed {
    id: u32,
    #[serde(default)]
    subject: String,
    #[serde(default)]
    version: u32,
    #[serde(default, rename = "schemaType")]
    language: Option<String>,
    schema: String,
    #[serde(default)]
    references: Vec<Reference>,
}

#[derive(Deserialize)]
struct Reference {
    name: String,
    subject: String,
    version: u32,
}

impl RegisteredSchema {
    /// Reads what a schema registry answers to `GET /schemas`: a JSON array of objects with `id`, `schema`, `schemaType`
    /// (`AVRO`, where there is none, `PROTOBUF` or `JSON`), and, for schemas that refer to others, `subject`, `version` and
    /// `references`. Each number is taken once, and only those of this encoding. One such object alone is read too, as the answer
    /// to `GET /subjects/NAME/versions/N` is.
    ///
    /// # Errors
    /// It is no such array; one number has two schemas; a reference leads nowhere; none is of the encoding.
    pub fn read_list(text: &str, encoding: Encoding) -> Result<Vec<Self>, EncodingError> {
        let is_object = text.trim_start().starts_with('{');
        let listed =
            if is_object { serde_json::from_str(text).map(|one| vec![one]) } else { serde_json::from_str(text) };
        let listed: Vec<Listed> = listed.map_err(|error| {
            EncodingError::schema(format!(
                "expected a JSON array of objects with `id`, `schema` and `schemaType`, as a registry's /schemas answers, or \
                 one such object: {error}"
            ))
        })?;
        let by_version: HashMap<(&str, u32), &Listed> =
            listed.iter().map(|listed| ((listed.subject.as_str(), listed.version), listed)).collect();
        let mut found: BTreeMap<u32, Schema> = BTreeMap::new();
        for listed in listed.iter().filter(|listed| listed.is_of(encoding)) {
            let schema = listed.schema(&by_version)?;
            match found.get(&listed.id) {
                Some(known) if known.text != schema.text => {
                    let message = format!("there are two schemas with the id {}", listed.id);
                    return Err(EncodingError::schema(message));
                }
                _ => found.insert(listed.id, schema),
            };
        }
        if found.is_empty() {
            let known: Vec<String> = listed.iter().map(|listed| format!("{} ({})", listed.id, listed.word())).collect();
            let message = format!("no schema is of {encoding}; there are: {}", shown(known.into_iter()));
            return Err(EncodingError::schema(message));
        }
        Ok(found.into_iter().map(|(id, schema)| Self { id, schema }).collect())
    }
}

impl Listed {
    fn word(&self) -> &str {
        self.language.as_deref().unwrap_or("AVRO")
    }

    fn is_of(&self, encoding: Encoding) -> bool {
        match self.word() {
            "AVRO" => encoding == Encoding::Avro,
            "PROTOBUF" => encoding == Encoding::Protobuf,
            "JSON" => encoding == Encoding::Json,
            _ => false,
        }
    }

    fn schema(&self, by_version: &HashMap<(&str, u32), &Listed>) -> Result<Schema, EncodingError> {
        let (language, ending) = match self.word() {
            "PROTOBUF" => (SchemaLanguage::Protobuf, "proto"),
            "JSON" => (SchemaLanguage::JsonSchema, "json"),
            _ => (SchemaLanguage::Avro, "avsc"),
        };
        let mut imports: Vec<(String, String)> = Vec::new();
        let mut wanted: Vec<&Reference> = self.references.iter().collect();
        while let Some(Reference { name, subject, version }) = wanted.pop() {
            if imports.iter().any(|(known, _)| known == name) {
                continue;
            }
            let Some(found) = by_version.get(&(subject.as_str(), *version)) else {
                let id = self.id;
                let message =
                    format!("schema {id} refers to `{name}`, version {version} of {subject}, which is not in the list");
                return Err(EncodingError::schema(message));
            };
            imports.push((name.clone(), found.schema.clone()));
            wanted.extend(&found.references);
        }
        let name = format!("{}.{ending}", self.id);
        Ok(Schema { language, name, text: self.schema.clone(), message: None, imports })
    }
}

/// The first few of some words, with commas in between.
fn shown(words: impl ExactSizeIterator<Item = String>) -> String {
    let more = if words.len() > SHOWN_IDS { ", …" } else { "" };
    words.take(SHOWN_IDS).collect::<Vec<_>>().join(", ") + more
}

/// Reads framed messages into records of one format.
pub(super) struct ConfluentDecoder {
    encoding: Encoding,
    written: BTreeMap<u32, Vec<Written>>,
    message: Vec<u8>,
    most: usize,
    is_read: bool,
}

/// A writer by a schema, or by one of its messages.
struct Written {
    /// The indexes that lead to the message; none where the encoding has none.
    indexes: Vec<u32>,
    /// The decoder, or why that does not go into the format.
    decoder: Result<Box<dyn Decoder>, String>,
}

impl ConfluentDecoder {
    /// A decoder of messages that are written by these schemas.
    ///
    /// # Errors
    /// There is none, or too many; a schema cannot be read, or nothing that is written by it goes into the format.
    pub(super) fn new(
        encoding: Encoding,
        format: &Format,
        registered: &[RegisteredSchema],
        options: &EncodingOptions,
    ) -> Result<Self, EncodingError> {
        if registered.is_empty() || registered.len() > MAX_SCHEMAS {
            let message = format!(
                "messages that name their schemas by numbers need 1 to {MAX_SCHEMAS} schemas with these, not {}",
                registered.len()
            );
            return Err(EncodingError::schema(message));
        }
        let mut written = BTreeMap::new();
        for RegisteredSchema { id, schema } in registered {
            let of = Written::all(encoding, format, schema, options)
                .map_err(|error| EncodingError::schema(format!("schema {id}: {error}")))?;
            // Of several messages, those that are for other formats are refused when they come.
            let is_for_format = of.iter().any(|written| written.decoder.is_ok());
            if let (false, Some(Written { decoder: Err(why), .. })) = (is_for_format, of.first()) {
                return Err(EncodingError::schema(format!("schema {id}: {why}")));
            }
            written.insert(*id, of);
        }
        Ok(Self { encoding, written, message: Vec::new(), most: options.max_item_bytes, is_read: false })
    }
}

impl Written {
    /// All that may be written by a schema.
    fn all(
        encoding: Encoding,
        format: &Format,
        schema: &Schema,
        options: &EncodingOptions,
    ) -> Result<Vec<Self>, EncodingError> {
        #[cfg(feature = "protobuf")]
        if encoding == Encoding::Protobuf {
            let written = schema.protobuf_messages()?.into_iter().map(|DeclaredMessage { indexes, schema }| {
                let decoder = schema.and_then(|schema| bare_protobuf_of(format, &schema, options));
                Self { indexes, decoder: decoder.map_err(|error| error.to_string()) }
            });
            return Ok(written.collect());
        }
        // JSON is read by the format alone.
        let schema = Some(schema).filter(|schema| schema.language != SchemaLanguage::JsonSchema);
        let form = MessageForm { encoding, framing: Framing::None, schema, registered: &[] };
        let decoder = message_decoder(form, format, options).map_err(|error| error.to_string());
        Ok(vec![Self { indexes: Vec::new(), decoder }])
    }
}

impl Decoder for ConfluentDecoder {
    fn next_record(&mut self, input: &mut dyn BufRead) -> Result<Option<&[u8]>, EncodingError> {
        if std::mem::replace(&mut self.is_read, true) {
            return Ok(None);
        }
        read_message(input, self.most, &mut self.message)?;
        let Some((&[0, a, b, c, d], body)) = self.message.split_first_chunk() else {
            let found = format!("{} bytes that begin with {:02x?}", self.message.len(), self.message.first());
            return Err(EncodingError::value(found, "a zero byte and the id of a schema in four bytes"));
        };
        let id = u32::from_be_bytes([a, b, c, d]);
        if !self.written.contains_key(&id) {
            let known = shown(self.written.keys().map(u32::to_string));
            return Err(EncodingError::value(format!("the schema id {id}"), format!("one that is known: {known}")));
        }
        let written = self.written.get_mut(&id).map(Vec::as_mut_slice).unwrap_or_default();
        let mut reader = Reader::new(body);
        let indexes = match self.encoding {
            Encoding::Protobuf => read_indexes(&mut reader).ok_or_else(|| {
                EncodingError::value(format!("schema id {id} without a message's index"), "zigzag varints")
            })?,
            _ => Vec::new(),
        };
        let Some(written) = written.iter_mut().find(|written| written.indexes == indexes) else {
            return Err(EncodingError::value(format!("message {indexes:?} of schema {id}"), "one that the schema has"));
        };
        let mut body = reader.rest();
        let of_schema = |error: EncodingError| EncodingError::syntax(format!("by schema {id}: {error}"));
        match &mut written.decoder {
            Ok(decoder) => {
                decoder.restart();
                let record = decoder.next_record(&mut body).map_err(of_schema)?;
                if !body.trim_ascii().is_empty() {
                    let left = body.len();
                    return Err(EncodingError::syntax(format!(
                        "by schema {id}: found {left} bytes behind the message"
                    )));
                }
                match record {
                    Some(record) => Ok(Some(record)),
                    None => Err(EncodingError::syntax(format!("by schema {id}: found no message behind the id"))),
                }
            }
            Err(why) => {
                let why = why.clone();
                Err(EncodingError::syntax(format!("message {indexes:?} of schema {id} is not for this format: {why}")))
            }
        }
    }

    fn restart(&mut self) {
        self.is_read = false;
    }
}

/// The indexes in front of a Protobuf message.
fn read_indexes(reader: &mut Reader<'_>) -> Option<Vec<u32>> {
    let count = unzigzag(reader.varint().ok()?);
    match count {
        0 => Some(vec![0]),
        1..=MAX_INDEXES => (0..count).map(|_| u32::try_from(unzigzag(reader.varint().ok()?)).ok()).collect(),
        _ => None,
    }
}
