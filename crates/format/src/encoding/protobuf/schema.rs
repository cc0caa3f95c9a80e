//! The content of a message type: fields with numbers and kinds, and what format it is.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::encoding::EncodingError;
use crate::field::FieldType;
use crate::format::Format;
use crate::spec::{FieldSpec, TypeSpec};

/// The start of a comment behind a field of a generated `.proto`, in front of the field in our notation.
pub(super) const NOTE: &str = "crossdock:";
/// The name of the only field of a message that stands for a list, where a list itself cannot stand.
pub(super) use crate::element::VALUE;

/// A Protobuf message type, imported from `.proto` files or made for a format.
#[derive(Clone, PartialEq, Debug)]
pub struct ProtobufSchema {
    /// The type of the records first, then those that it is made of.
    pub(super) messages: Vec<Message>,
    pub(super) enums: Vec<Enumerated>,
}

/// A message type.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Message {
    /// Its full name.
    pub(super) name: String,
    pub(super) fields: Vec<ProtoField>,
    pub(super) oneofs: Vec<OneOf>,
}

/// Fields, one of them there.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct OneOf {
    pub(super) name: String,
    pub(super) note: Option<FieldSpec>,
}

/// An enumeration.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Enumerated {
    /// Its full name.
    pub(super) name: String,
    pub(super) symbols: Vec<(String, i64)>,
}

/// A field of a message type.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ProtoField {
    pub(super) number: u32,
    /// As the `.proto` has it.
    pub(super) name: String,
    pub(super) kind: ProtoType,
    pub(super) presence: Presence,
    /// The group of fields that it is one of.
    pub(super) oneof: Option<usize>,
    /// The value that one which is not there has (proto2), as the format's field has defaults.
    pub(super) default: Option<String>,
    /// The format's field in a comment.
    pub(super) note: Option<FieldSpec>,
}

/// How often a field may be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Presence {
    /// A default value is left out (proto3 without a label).
    Implicit,
    /// There or not.
    Optional,
    /// Always there (proto2).
    Required,
    /// Any number of times; `packed` where all are written behind one length.
    Repeated { packed: bool },
}

/// The kinds of values that Protobuf has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProtoType {
    Double,
    Float,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Sint64,
    Fixed32,
    Fixed64,
    Sfixed32,
    Sfixed64,
    Bool,
    String,
    Bytes,
    /// `google.protobuf.Timestamp`.
    Timestamp,
    /// The enumeration of this index.
    Enum(usize),
    /// The message type of this index.
    Message(usize),
    /// As above, between tags instead of behind a length (proto2).
    Group(usize),
}

impl ProtoType {
    /// The word that `.proto` files have for it, of those that have one.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Double => "double",
            Self::Float => "float",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Uint32 => "uint32",
            Self::Uint64 => "uint64",
            Self::Sint32 => "sint32",
            Self::Sint64 => "sint64",
            Self::Fixed32 => "fixed32",
            Self::Fixed64 => "fixed64",
            Self::Sfixed32 => "sfixed32",
            Self::Sfixed64 => "sfixed64",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Timestamp => "google.protobuf.Timestamp",
            Self::Enum(_) => "an enumeration",
            Self::Message(_) => "a message",
            Self::Group(_) => "a group",
        }
    }

    /// Whether several values may be written behind one length.
    pub(super) fn is_packable(self) -> bool {
        !matches!(self, Self::String | Self::Bytes | Self::Timestamp | Self::Message(_) | Self::Group(_))
    }

    /// The type of the field that a field of this kind becomes; `None` for those that are no single value.
    pub(super) fn field_type(self) -> Option<FieldType> {
        Some(match self {
            Self::Double => FieldType::F64,
            Self::Float => FieldType::F32,
            Self::Int32 | Self::Sint32 | Self::Sfixed32 => FieldType::I32,
            Self::Int64 | Self::Sint64 | Self::Sfixed64 => FieldType::I64,
            Self::Uint32 | Self::Fixed32 => FieldType::U32,
            Self::Uint64 | Self::Fixed64 => FieldType::U64,
            Self::Bool => FieldType::Bool,
            Self::String => FieldType::String,
            Self::Bytes => FieldType::Bytes,
            Self::Timestamp => FieldType::Timestamp,
            Self::Enum(_) => FieldType::Enum { bytes: 4, signed: true },
            Self::Message(_) | Self::Group(_) => return None,
        })
    }
}

fn too_deep(path: impl Into<String>) -> EncodingError {
    let why = format!("it lies more than {} deep, and a format goes no deeper: {REMEDY}", crate::MAX_DEPTH);
    EncodingError::schema(why).in_field(path)
}

/// The remedy for a message that no format can have.
const REMEDY: &str =
    "in the `.proto`, declare it as `bytes`, which keeps it as it is written, or leave it out, and it is passed over";

impl ProtobufSchema {
    /// The format of the message type's records: a field for each of its fields, in the order of the `.proto`.
    ///
    /// # Errors
    /// No format is like that: a message without fields, one that lies in itself, two fields of one name, too many.
    pub fn format(&self) -> Result<Format, EncodingError> {
        self.measure(0, "", &mut Vec::new(), &mut HashMap::new())?;
        let specs = self.specs(0, "", 0)?;
        Format::natural(specs).map_err(|error| EncodingError::schema(format!("message {}: {error}", self.root().name)))
    }

    /// The full name of the message type.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.root().name
    }

    /// The message type as a `.proto` file.
    #[must_use]
    pub fn to_proto(&self) -> String {
        let mut text = "syntax = \"proto3\";\n".to_owned();
        let mut fields = self.messages.iter().flat_map(|message| &message.fields);
        if fields.any(|field| field.kind == ProtoType::Timestamp) {
            text.push_str("\nimport \"google/protobuf/timestamp.proto\";\n");
        }
        for message in &self.messages {
            // Writing to a string cannot fail, here and below.
            let _ = write!(text, "\nmessage {} {{\n", last_part(&message.name));
            let mut open = None;
            for field in &message.fields {
                if open.is_some() && field.oneof != open {
                    text.push_str("  }\n");
                }
                if let Some(oneof) = field.oneof.filter(|_| field.oneof != open) {
                    let _ = writeln!(
                        text,
                        "  oneof {} {{{}",
                        message.oneofs[oneof].name,
                        note(message.oneofs[oneof].note.as_ref())
                    );
                }
                open = field.oneof;
                self.print(field, &mut text);
            }
            text.push_str(if open.is_some() { "  }\n}\n" } else { "}\n" });
        }
        for enumerated in &self.enums {
            let _ = write!(text, "\nenum {} {{\n", last_part(&enumerated.name));
            for (symbol, number) in &enumerated.symbols {
                let _ = writeln!(text, "  {symbol} = {number};");
            }
            text.push_str("}\n");
        }
        text
    }

    fn print(&self, field: &ProtoField, text: &mut String) {
        let is_message = matches!(field.kind, ProtoType::Message(_) | ProtoType::Timestamp);
        text.push_str(if field.oneof.is_some() { "    " } else { "  " });
        text.push_str(match field.presence {
            Presence::Repeated { .. } => "repeated ",
            Presence::Optional if field.oneof.is_none() && !is_message => "optional ",
            _ => "",
        });
        let word = match field.kind {
            ProtoType::Message(message) | ProtoType::Group(message) => last_part(&self.messages[message].name),
            ProtoType::Enum(index) => last_part(&self.enums[index].name),
            kind => kind.word(),
        };
        let _ = writeln!(text, "{word} {} = {};{}", field.name, field.number, note(field.note.as_ref()));
    }

    pub(super) fn root(&self) -> &Message {
        // Whoever makes one makes it with its first message.
        &self.messages[0]
    }

    /// How many fields a message has with those in it, each type looked at once: types that lie in several others may
    /// come to more than there is memory for. `open` are the types on the way, `known` those that were counted.
    fn measure(
        &self,
        message: usize,
        path: &str,
        open: &mut Vec<usize>,
        known: &mut HashMap<usize, usize>,
    ) -> Result<usize, EncodingError> {
        if let Some(fields) = known.get(&message) {
            return Ok(*fields);
        }
        open.push(message);
        let mut fields: usize = 0;
        for field in &self.messages[message].fields {
            fields += 1;
            let (ProtoType::Message(inner) | ProtoType::Group(inner), None) = (field.kind, &field.note) else {
                continue;
            };
            let path = if path.is_empty() { field.name.clone() } else { format!("{path}.{}", field.name) };
            if open.contains(&inner) {
                let name = &self.messages[inner].name;
                let why = format!("its message type `{name}` lies in itself, which no format can: {REMEDY}");
                return Err(EncodingError::schema(why).in_field(path));
            }
            if open.len() > crate::MAX_DEPTH {
                return Err(too_deep(path));
            }
            fields = fields.saturating_add(self.measure(inner, &path, open, known)?);
        }
        if fields > crate::MAX_FIELDS {
            let name = &self.messages[message].name;
            let why = format!("`{name}` has {fields} fields with those in it, expected at most {}", crate::MAX_FIELDS);
            return Err(EncodingError::schema(why));
        }
        open.pop();
        known.insert(message, fields);
        Ok(fields)
    }

    /// The fields of a format that a message's are.
    pub(super) fn specs(&self, message: usize, path: &str, depth: usize) -> Result<Vec<FieldSpec>, EncodingError> {
        if depth > crate::MAX_DEPTH {
            return Err(too_deep(path));
        }
        let message = &self.messages[message];
        if message.fields.is_empty() && depth > 0 {
            let why =
                format!("its message type `{}` has no fields, and a record has at least one: {REMEDY}", message.name);
            return Err(EncodingError::schema(why).in_field(path));
        }
        let mut specs = Vec::new();
        let mut unions: Vec<Option<usize>> = vec![None; message.oneofs.len()];
        for field in &message.fields {
            let Some(oneof) = field.oneof else {
                specs.push(self.spec(field, path, depth)?);
                continue;
            };
            let known = &message.oneofs[oneof];
            if let Some(noted) = &known.note {
                if unions[oneof].is_none() {
                    unions[oneof] = Some(specs.len());
                    specs.push(noted.clone());
                }
                continue;
            }
            let variant = FieldSpec { nullable: false, ..self.spec(field, path, depth + 1)? };
            match unions[oneof].and_then(|index| specs.get_mut(index)) {
                Some(FieldSpec { ty: TypeSpec::Union(variants), .. }) => variants.push(variant),
                _ => {
                    unions[oneof] = Some(specs.len());
                    specs.push(FieldSpec::nullable(&known.name, TypeSpec::Union(vec![variant])));
                }
            }
        }
        Ok(specs)
    }

    fn spec(&self, field: &ProtoField, path: &str, depth: usize) -> Result<FieldSpec, EncodingError> {
        match &field.note {
            Some(note) => Ok(note.clone()),
            None => self.plain_spec(field, path, depth),
        }
    }

    /// The field of a format that a field is, with no regard to what its comment says.
    pub(super) fn plain_spec(&self, field: &ProtoField, path: &str, depth: usize) -> Result<FieldSpec, EncodingError> {
        let path = if path.is_empty() { field.name.clone() } else { format!("{path}.{}", field.name) };
        let ty = match field.kind {
            ProtoType::Message(message) | ProtoType::Group(message) => {
                TypeSpec::Record(self.specs(message, &path, depth + 1)?)
            }
            ProtoType::Enum(index) => TypeSpec::enumeration(self.enums[index].symbols.iter().cloned()),
            kind => kind.field_type().map_or_else(|| TypeSpec::Record(Vec::new()), TypeSpec::Scalar),
        };
        Ok(match field.presence {
            Presence::Repeated { .. } => FieldSpec::new(&field.name, TypeSpec::list(ty)),
            presence => {
                let spec = FieldSpec::new(&field.name, ty);
                let default = field.default.as_ref().filter(|_| field.oneof.is_none());
                let with = default.map(|default| spec.clone().with_default(default));
                // One that a format cannot say: the field is null then.
                match with.filter(|with| Format::natural([with.clone()]).is_ok()) {
                    Some(with) => with,
                    None => FieldSpec { nullable: presence == Presence::Optional, ..spec },
                }
            }
        })
    }

    /// The field of a message whose only one it is and which stands for a list.
    pub(super) fn wrapped(&self, message: usize) -> Option<&ProtoField> {
        match &self.messages.get(message)?.fields[..] {
            [field] if field.name == VALUE && matches!(field.presence, Presence::Repeated { .. }) => Some(field),
            _ => None,
        }
    }
}

impl ProtoField {
    /// The name of the format's field that it is.
    pub(super) fn own_name(&self) -> &str {
        self.note.as_ref().map_or(&self.name, |note| &note.name)
    }
}

impl OneOf {
    /// The name of the format's union that it is.
    pub(super) fn own_name(&self) -> &str {
        self.note.as_ref().map_or(&self.name, |note| &note.name)
    }
}

fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or_default()
}

/// The comment that says a field in our notation.
fn note(spec: Option<&FieldSpec>) -> String {
    let Some(spec) = spec else {
        return String::new();
    };
    format!(" // {NOTE} {}", crate::notation::field_line(spec))
}
