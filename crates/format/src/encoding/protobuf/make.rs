//! The message type that stands for a format.

use super::schema::{Enumerated, Message, OneOf, Presence, ProtoField, ProtoType, ProtobufSchema, VALUE};
use crate::encoding::identifiers::Identifiers;
use crate::field::FieldType;
use crate::format::Format;
use crate::spec::{FieldSpec, TypeSpec};

/// Name of the message type that stands for a format.
const CANONICAL_NAME: &str = "Record";
/// Field numbers that Protobuf keeps for itself.
const RESERVED_NUMBERS: std::ops::RangeInclusive<u32> = 19_000..=19_999;

impl ProtobufSchema {
    /// The message type that stands for a format (see the module's page).
    #[must_use]
    pub fn of(format: &Format) -> Self {
        let schema = Self { messages: Vec::new(), enums: Vec::new() };
        let mut builder = SchemaBuilder { schema, names: Identifiers::default() };
        let name = builder.names.of(CANONICAL_NAME);
        builder.message(&name, &format.specs());
        builder.schema
    }
}

struct SchemaBuilder {
    schema: ProtobufSchema,
    /// Of messages, enumerations and symbols, which must differ in all of the file.
    names: Identifiers,
}

/// The fields of a message, while they are made.
struct Fields<'a> {
    message: usize,
    /// The message's name.
    path: &'a str,
    number: u32,
    names: Identifiers,
}

impl Fields<'_> {
    fn next_number(&mut self) -> u32 {
        self.number += 1;
        if RESERVED_NUMBERS.contains(&self.number) {
            self.number = RESERVED_NUMBERS.end() + 1;
        }
        self.number
    }
}

impl SchemaBuilder {
    /// Makes a message type; its index.
    fn message(&mut self, name: &str, specs: &[FieldSpec]) -> usize {
        let message = self.schema.messages.len();
        // Before those that it is made of, as imports have them.
        let empty = Message { name: name.to_owned(), fields: Vec::new(), oneofs: Vec::new() };
        self.schema.messages.push(empty);
        let mut fields = Fields { message, path: name, number: 0, names: Identifiers::default() };
        for spec in specs {
            match &spec.ty {
                TypeSpec::Union(variants) => self.union(&mut fields, spec, variants),
                _ => self.field(&mut fields, spec, None),
            }
        }
        message
    }

    fn union(&mut self, fields: &mut Fields<'_>, spec: &FieldSpec, variants: &[FieldSpec]) {
        let name = fields.names.of(&spec.name);
        let oneof = self.schema.messages[fields.message].oneofs.len();
        self.schema.messages[fields.message].oneofs.push(OneOf { name: name.clone(), note: None });
        let first = self.schema.messages[fields.message].fields.len();
        for variant in variants {
            let variant = FieldSpec { nullable: true, ..variant.clone() };
            self.field(fields, &variant, Some(oneof));
        }
        // The meaning of the file by itself: a union of this name, nullable, of such variants.
        let plain = self.schema.messages[fields.message].fields[first..].iter().map(|field| {
            let spec = field.note.clone().map_or_else(|| self.schema.plain_spec(field, "", 0), Ok);
            spec.map(|spec| FieldSpec { nullable: true, ..spec })
        });
        let plain: Result<Vec<FieldSpec>, _> = plain.collect();
        let own: Vec<FieldSpec> =
            variants.iter().map(|variant| FieldSpec { nullable: true, ..variant.clone() }).collect();
        if name != spec.name || !spec.nullable || plain.ok() != Some(own) {
            self.schema.messages[fields.message].oneofs[oneof].note = Some(spec.clone());
        }
    }

    fn field(&mut self, fields: &mut Fields<'_>, spec: &FieldSpec, oneof: Option<usize>) {
        let name = fields.names.of(&spec.name);
        let path = format!("{}_{name}", fields.path);
        let number = fields.next_number();
        let (kind, presence) = match &spec.ty {
            TypeSpec::List { element, .. } if oneof.is_none() && !spec.nullable => {
                let kind = self.kind(element, &path);
                (kind, Presence::Repeated { packed: kind.is_packable() })
            }
            ty => {
                let kind = self.kind(ty, &path);
                let is_message = matches!(kind, ProtoType::Message(_) | ProtoType::Timestamp);
                let has_presence = spec.nullable || is_message || oneof.is_some();
                (kind, if has_presence { Presence::Optional } else { Presence::Implicit })
            }
        };
        let mut field = ProtoField { number, name, kind, presence, oneof, default: None, note: None };
        let plain = self.schema.plain_spec(&field, "", 0);
        let plain = plain.map(|plain| FieldSpec { nullable: plain.nullable || oneof.is_some(), ..plain });
        if plain.as_ref().ok() != Some(spec) {
            field.note = Some(spec.clone());
        }
        self.schema.messages[fields.message].fields.push(field);
    }

    /// The kind of a value; of a list, a message that has it.
    fn kind(&mut self, ty: &TypeSpec, path: &str) -> ProtoType {
        match ty {
            TypeSpec::Scalar(ty) => scalar_kind(*ty),
            TypeSpec::Enum { symbols, .. } => self.enumeration(symbols, path),
            TypeSpec::Record(specs) => {
                let name = self.names.of(path);
                ProtoType::Message(self.message(&name, specs))
            }
            TypeSpec::Union(_) | TypeSpec::List { .. } => {
                let name = self.names.of(path);
                ProtoType::Message(self.message(&name, &[FieldSpec::new(VALUE, ty.clone())]))
            }
        }
    }

    fn enumeration(&mut self, symbols: &[(String, i64)], path: &str) -> ProtoType {
        let is_small = symbols.iter().all(|(_, number)| i32::try_from(*number).is_ok());
        if symbols.is_empty() || !is_small {
            return ProtoType::Sint64;
        }
        let name = self.names.of(path);
        let mut own: Vec<(String, i64)> = Vec::new();
        for (symbol, number) in symbols {
            // Of several symbols of a number, the one that is written.
            if own.iter().all(|(_, known)| known != number) {
                own.push((self.names.of(&format!("{name}_{symbol}")), *number));
            }
        }
        // The first must be zero.
        match own.iter().position(|(_, number)| *number == 0) {
            Some(zero) => own[..=zero].rotate_right(1),
            None => own.insert(0, (self.names.of(&format!("{name}_unspecified")), 0)),
        }
        self.schema.enums.push(Enumerated { name, symbols: own });
        ProtoType::Enum(self.schema.enums.len() - 1)
    }
}

fn scalar_kind(ty: FieldType) -> ProtoType {
    match ty {
        FieldType::Bool => ProtoType::Bool,
        FieldType::I8 | FieldType::I16 | FieldType::I32 => ProtoType::Sint32,
        FieldType::I64 | FieldType::Enum { .. } => ProtoType::Sint64,
        FieldType::U8 | FieldType::U16 | FieldType::U32 => ProtoType::Uint32,
        FieldType::U64 => ProtoType::Uint64,
        FieldType::F32 => ProtoType::Float,
        FieldType::F64 => ProtoType::Double,
        FieldType::Timestamp => ProtoType::Timestamp,
        // A decimal's digits.
        FieldType::Char(_) | FieldType::String | FieldType::Decimal { .. } => ProtoType::String,
        // A list always comes with what its elements are: see `TypeSpec::List`.
        FieldType::Bytes | FieldType::List => ProtoType::Bytes,
    }
}
