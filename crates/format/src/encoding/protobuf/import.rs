//! `.proto` files to message types.

use std::collections::{HashMap, HashSet};

use prost_reflect::{
    Cardinality, DescriptorPool, EnumDescriptor, FieldDescriptor, FileDescriptor, Kind as Reflected, MessageDescriptor,
    OneofDescriptor,
};
use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

use super::nesting;
use super::schema::{Enumerated, Message, NOTE, OneOf, Presence, ProtoField, ProtoType, ProtobufSchema};
use crate::encoding::EncodingError;
use crate::encoding::guard::guarded;
use crate::format::Format;
use crate::spec::FieldSpec;
use crate::text;

/// Most bytes that `.proto` files may have together.
const MAX_SOURCE_BYTES: usize = 4 << 20;
/// Most `.proto` files that are compiled together: the compiler recurses along their imports.
const MAX_FILES: usize = 256;
/// Most message types that one may be made of.
const MAX_MESSAGES: usize = 1 << 12;
/// Most message types that a file may declare where each may be the one that is read.
pub const MAX_DECLARED: usize = 256;
const TIMESTAMP: &str = "google.protobuf.Timestamp";

/// The files as they were handed in.
struct Sources(Vec<(String, String)>);

impl FileResolver for Sources {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match self.0.iter().find(|(known, _)| known == name) {
            Some((_, source)) => File::from_source(name, source),
            None => Err(protox::Error::file_not_found(name)),
        }
    }
}

/// A message type of a file.
#[derive(Debug)]
pub struct DeclaredMessage {
    /// Its index among the file's types; of a type in another one, the index of that one first.
    pub indexes: Vec<u32>,
    /// The type, or why it cannot be read.
    pub schema: Result<ProtobufSchema, EncodingError>,
}

impl ProtobufSchema {
    /// Compiles `.proto` files, each with the name by which others import it, and takes one of their message types.
    /// Without a name, that is the only one of the first file that no other type is made of. Protobuf's own files
    /// (`google/protobuf/timestamp.proto` and so on) need not be among them.
    ///
    /// # Errors
    /// The files do not compile; there is no such message type, or more than one to choose from; it has what a format
    /// has not.
    pub fn import(files: &[(&str, &str)], message: Option<&str>) -> Result<Self, EncodingError> {
        let (pool, first) = compile(files)?;
        Importer::import(&choose(&pool, first, message)?)
    }

    /// The message types that the first of these files declares, unless they are entries of maps: by which indexes each
    /// is found, among those of the file and of the types that it lies in, and the type, or why it cannot be read.
    ///
    /// # Errors
    /// The files do not compile; there are more than [`MAX_DECLARED`] types.
    pub fn declared(files: &[(&str, &str)]) -> Result<Vec<DeclaredMessage>, EncodingError> {
        let (pool, first) = compile(files)?;
        let all = pool.all_messages().filter(|message| message.parent_file().name() == first);
        let messages: Vec<MessageDescriptor> = all.filter(|message| !message.is_map_entry()).collect();
        if messages.len() > MAX_DECLARED {
            let found = messages.len();
            return Err(refusal(format!("the file declares {found} messages, expected at most {MAX_DECLARED}")));
        }
        let declared = messages.iter().map(|message| {
            // A path alternates between the number of a field of the descriptor and an index in it.
            let indexes = message.path().iter().skip(1).step_by(2).map(|index| index.unsigned_abs());
            DeclaredMessage { indexes: indexes.collect(), schema: Importer::import(message) }
        });
        Ok(declared.collect())
    }

    /// Takes a message type from a compiled set of files (`protoc --include_imports -o FILE`).
    ///
    /// # Errors
    /// The bytes are no such set, or longer than what [`ProtobufSchema::import`] compiles; otherwise the same as there.
    pub fn from_descriptor_set(bytes: &[u8], message: Option<&str>) -> Result<Self, EncodingError> {
        if bytes.len() > MAX_SOURCE_BYTES {
            let bytes = bytes.len();
            return Err(refusal(format!("the set has {bytes} bytes, expected at most {MAX_SOURCE_BYTES}")));
        }
        nesting::check_set(bytes).map_err(refusal)?;
        let pool = guarded(refusal, || DescriptorPool::decode(bytes))?;
        let last = pool.files().last().map(|file| file.name().to_owned()).unwrap_or_default();
        Importer::import(&choose(&pool, &last, message)?)
    }
}

/// Compiles files; the name of the first of them.
fn compile<'f>(files: &[(&'f str, &str)]) -> Result<(DescriptorPool, &'f str), EncodingError> {
    let bytes: usize = files.iter().map(|(_, source)| source.len()).sum();
    if bytes > MAX_SOURCE_BYTES {
        return Err(refusal(format!("the files have {bytes} bytes, expected at most {MAX_SOURCE_BYTES}")));
    }
    let Some((first, _)) = files.first() else {
        return Err(refusal("there is no `.proto` file".to_owned()));
    };
    if files.len() > MAX_FILES {
        return Err(refusal(format!("there are {} files, expected at most {MAX_FILES}", files.len())));
    }
    for (name, source) in files {
        nesting::check(source).map_err(|why| refusal(format!("{name}: {why}")))?;
    }
    let mut resolver = ChainFileResolver::new();
    let owned = files.iter().map(|(name, source)| ((*name).to_owned(), (*source).to_owned()));
    resolver.add(Sources(owned.collect()));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).include_source_info(true);
    guarded(refusal, || compiler.open_file(first).map(|_| ()).map_err(|error| format!("{error:?}")))?;
    Ok((compiler.descriptor_pool(), first))
}

fn refusal(message: String) -> EncodingError {
    EncodingError::schema(message)
}

/// The message type of this name, or the only one that there can be meant.
fn choose(pool: &DescriptorPool, file: &str, message: Option<&str>) -> Result<MessageDescriptor, EncodingError> {
    if let Some(name) = message {
        let by_last_part = || {
            let mut found = pool.all_messages().filter(|message| message.name() == name);
            found.next().filter(|_| found.next().is_none())
        };
        return pool.get_message_by_name(name).or_else(by_last_part).ok_or_else(|| {
            let name = text::shorten(name.as_bytes());
            refusal(format!("there is no message `{name}`; there are: {}", names(pool, file)))
        });
    }
    let used: HashSet<String> = pool
        .all_messages()
        .flat_map(|message| {
            let inner = message.fields().filter_map(|field| field.kind().as_message().cloned());
            inner.filter(|inner| *inner != message).map(|inner| inner.full_name().to_owned()).collect::<Vec<_>>()
        })
        .collect();
    let mut roots = pool
        .all_messages()
        .filter(|message| message.parent_file().name() == file && message.parent_message().is_none())
        .filter(|message| !used.contains(message.full_name()));
    match (roots.next(), roots.next()) {
        (Some(root), None) => Ok(root),
        _ => Err(refusal(format!("the files have several messages, say which: {}", names(pool, file)))),
    }
}

fn names(pool: &DescriptorPool, file: &str) -> String {
    let of_file = pool.all_messages().filter(|message| message.parent_file().name() == file && !message.is_map_entry());
    let mut names: Vec<String> = of_file.take(31).map(|message| message.full_name().to_owned()).collect();
    if names.len() > 30 {
        names[30] = "…".to_owned();
    }
    names.join(", ")
}

/// Takes each type once.
struct Importer {
    schema: ProtobufSchema,
    messages: HashMap<String, usize>,
    enums: HashMap<String, usize>,
    /// The text of comments, by file and place in it.
    notes: HashMap<(String, Vec<i32>), String>,
    noted_files: Vec<String>,
    /// Types whose fields are being taken, each because of a field of the one before it. A list instead of recursion, for
    /// chains of types of any length.
    open: Vec<Open>,
}

/// A type whose fields are being taken.
struct Open {
    index: usize,
    is_map_entry: bool,
    oneofs: Vec<OneofDescriptor>,
    /// Those that are left.
    fields: std::vec::IntoIter<FieldDescriptor>,
}

impl Importer {
    fn import(root: &MessageDescriptor) -> Result<ProtobufSchema, EncodingError> {
        let schema = ProtobufSchema { messages: Vec::new(), enums: Vec::new() };
        let (messages, enums, notes) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut importer = Self { schema, messages, enums, notes, noted_files: Vec::new(), open: Vec::new() };
        importer.message(root)?;
        while let Some(open) = importer.open.last_mut() {
            let Some(field) = open.fields.next() else {
                importer.open.pop();
                continue;
            };
            let (index, is_map_entry) = (open.index, open.is_map_entry);
            let oneof = field.containing_oneof().and_then(|own| open.oneofs.iter().position(|oneof| *oneof == own));
            let field = importer.field(&field, oneof, is_map_entry)?;
            importer.schema.messages[index].fields.push(field);
        }
        Ok(importer.schema)
    }

    /// The index of a type, whose fields are taken later.
    fn message(&mut self, descriptor: &MessageDescriptor) -> Result<usize, EncodingError> {
        let name = descriptor.full_name().to_owned();
        if let Some(index) = self.messages.get(&name) {
            return Ok(*index);
        }
        let index = self.schema.messages.len();
        if index >= MAX_MESSAGES {
            return Err(refusal(format!("it is made of more than {MAX_MESSAGES} message types")));
        }
        self.messages.insert(name.clone(), index);
        self.schema.messages.push(Message { name, fields: Vec::new(), oneofs: Vec::new() });
        self.open(index, descriptor)?;
        Ok(index)
    }

    /// Takes a type without its fields, which come next.
    fn open(&mut self, index: usize, descriptor: &MessageDescriptor) -> Result<(), EncodingError> {
        self.read_notes(&descriptor.parent_file());
        let oneofs: Vec<OneofDescriptor> = descriptor.oneofs().filter(|oneof| !oneof.is_synthetic()).collect();
        for oneof in &oneofs {
            let note = self.note(&oneof.parent_message().parent_file(), oneof.path(), oneof.full_name())?;
            self.schema.messages[index].oneofs.push(OneOf { name: oneof.name().to_owned(), note });
        }
        // As the file has them, which the numbers need not follow.
        let mut fields: Vec<FieldDescriptor> = descriptor.fields().collect();
        fields.sort_by_key(|field| field.path().last().copied());
        let (fields, is_map_entry) = (fields.into_iter(), descriptor.is_map_entry());
        self.open.push(Open { index, is_map_entry, oneofs, fields });
        Ok(())
    }

    fn field(
        &mut self,
        field: &FieldDescriptor,
        oneof: Option<usize>,
        is_in_map: bool,
    ) -> Result<ProtoField, EncodingError> {
        let kind = self.kind(field)?;
        let presence = match field.cardinality() {
            Cardinality::Required => Presence::Required,
            Cardinality::Repeated => Presence::Repeated { packed: field.is_packed() },
            // A field that is not there in a map is the default.
            Cardinality::Optional if is_in_map && kind.field_type().is_some() => Presence::Implicit,
            Cardinality::Optional if field.supports_presence() => Presence::Optional,
            Cardinality::Optional => Presence::Implicit,
        };
        let note = self.note(&field.parent_file(), field.path(), field.full_name())?;
        let (number, name) = (field.number(), field.name().to_owned());
        let default = default_text(field);
        Ok(ProtoField { number, name, kind, presence, oneof, default, note })
    }

    fn kind(&mut self, field: &FieldDescriptor) -> Result<ProtoType, EncodingError> {
        Ok(match field.kind() {
            Reflected::Double => ProtoType::Double,
            Reflected::Float => ProtoType::Float,
            Reflected::Int32 => ProtoType::Int32,
            Reflected::Int64 => ProtoType::Int64,
            Reflected::Uint32 => ProtoType::Uint32,
            Reflected::Uint64 => ProtoType::Uint64,
            Reflected::Sint32 => ProtoType::Sint32,
            Reflected::Sint64 => ProtoType::Sint64,
            Reflected::Fixed32 => ProtoType::Fixed32,
            Reflected::Fixed64 => ProtoType::Fixed64,
            Reflected::Sfixed32 => ProtoType::Sfixed32,
            Reflected::Sfixed64 => ProtoType::Sfixed64,
            Reflected::Bool => ProtoType::Bool,
            Reflected::String => ProtoType::String,
            Reflected::Bytes => ProtoType::Bytes,
            Reflected::Message(message) if message.full_name() == TIMESTAMP => ProtoType::Timestamp,
            Reflected::Message(message) if field.is_group() => ProtoType::Group(self.message(&message)?),
            Reflected::Message(message) => ProtoType::Message(self.message(&message)?),
            Reflected::Enum(enumeration) => ProtoType::Enum(self.enumeration(&enumeration)),
        })
    }

    fn enumeration(&mut self, descriptor: &EnumDescriptor) -> usize {
        let name = descriptor.full_name().to_owned();
        if let Some(index) = self.enums.get(&name) {
            return *index;
        }
        let mut values: Vec<_> = descriptor.values().collect();
        values.sort_by_key(|value| value.path().last().copied());
        let symbols = values.iter().map(|value| (value.name().to_owned(), value.number().into())).collect();
        self.enums.insert(name.clone(), self.schema.enums.len());
        self.schema.enums.push(Enumerated { name, symbols });
        self.schema.enums.len() - 1
    }

    /// Gathers the comments of a file that are notes.
    fn read_notes(&mut self, file: &FileDescriptor) {
        let name = file.name().to_owned();
        if self.noted_files.contains(&name) {
            return;
        }
        self.noted_files.push(name.clone());
        let Some(info) = &file.file_descriptor_proto().source_code_info else {
            return;
        };
        for location in &info.location {
            if let Some(note) = location.trailing_comments().trim().strip_prefix(NOTE) {
                self.notes.insert((name.clone(), location.path.clone()), note.to_owned());
            }
        }
    }

    /// A generated file's note on the field of the format behind something.
    fn note(&self, file: &FileDescriptor, path: &[i32], name: &str) -> Result<Option<FieldSpec>, EncodingError> {
        let Some(note) = self.notes.get(&(file.name().to_owned(), path.to_vec())) else {
            return Ok(None);
        };
        let format = Format::parse_schema(note)
            .map_err(|error| refusal(format!("in the comment `{NOTE}`: {error}")).in_field(name))?;
        let mut specs = format.specs().into_iter();
        match (specs.next(), specs.next()) {
            (Some(spec), None) => Ok(Some(spec)),
            _ => Err(refusal(format!("the comment `{NOTE}` has several fields")).in_field(name)),
        }
    }
}

/// The default that a `.proto` of proto2 gives a field, as fields of formats have theirs.
fn default_text(field: &FieldDescriptor) -> Option<String> {
    let declared = field.field_descriptor_proto().default_value.clone()?;
    match field.default_value() {
        // Declared with escapes, as in C.
        prost_reflect::Value::Bytes(bytes) => Some(text::base64(&bytes)),
        _ => Some(declared),
    }
}
