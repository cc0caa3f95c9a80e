//! Avro schemas: read from JSON, and what formats they are.

use std::collections::HashMap;

use serde_json::{Map, Value as Json};

use crate::encoding::EncodingError;
use crate::field::FieldType;
use crate::format::Format;
use crate::natural::MAX_ALIASES;
use crate::nesting::{self, MAX_NESTING};
use crate::spec::{FieldSpec, TypeSpec};
use crate::text;

/// The attribute that says of a generated field or variant what Avro's own types cannot.
pub(super) const NOTE: &str = "crossdock";
/// The name of the only field of a record that stands for a single value.
pub(super) use crate::element::VALUE;
/// Most bytes that a schema may have.
const MAX_BYTES: usize = 4 << 20;
/// Most types that a schema may have.
const MAX_TYPES: usize = 1 << 16;
/// Most symbols that an enumeration may have, and most branches of a union.
const MAX_BRANCHES: usize = 1 << 16;

/// An Avro schema of records, read from its JSON or made for a format.
#[derive(Clone, PartialEq, Debug)]
pub struct AvroSchema {
    pub(super) types: Vec<Type>,
    /// Which of them the records are of.
    pub(super) root: usize,
    json: String,
}

/// A type of a schema; others are named by their index.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Type {
    pub(super) kind: AvroType,
    pub(super) logical: Logical,
    /// The full name, of records, enumerations and fixed types.
    pub(super) name: String,
    /// The value of our attribute.
    pub(super) note: Option<String>,
    /// Of an enumeration: the symbol for those that a reader lacks.
    pub(super) default: Option<String>,
    /// Names that a named type had, without namespaces.
    aliases: Vec<String>,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum AvroType {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Fixed(usize),
    Enum(Vec<String>),
    Array(usize),
    Map(usize),
    Union(Vec<usize>),
    Record(Vec<AvroField>),
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct AvroField {
    pub(super) name: String,
    pub(super) ty: usize,
    pub(super) note: Option<String>,
    /// The value of a reader where a writer has no such field.
    pub(super) default: Option<Json>,
    /// Names that it had.
    pub(super) aliases: Vec<String>,
}

/// The meaning of a type's values, where that is something else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Logical {
    None,
    /// A time since 1970, in units of this many nanoseconds.
    Timestamp(i64),
    Decimal {
        precision: u32,
        scale: u8,
    },
}

impl AvroType {
    /// The word that schemas have for it.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Int => "int",
            Self::Long => "long",
            Self::Float => "float",
            Self::Double => "double",
            Self::Bytes => "bytes",
            Self::String => "string",
            Self::Fixed(_) => "fixed",
            Self::Enum(_) => "enum",
            Self::Array(_) => "array",
            Self::Map(_) => "map",
            Self::Union(_) => "union",
            Self::Record(_) => "record",
        }
    }

    fn primitive(word: &str) -> Option<Self> {
        [Self::Null, Self::Boolean, Self::Int, Self::Long, Self::Float, Self::Double, Self::Bytes, Self::String]
            .into_iter()
            .find(|kind| kind.word() == word)
    }
}

impl AvroSchema {
    /// Reads a schema from its JSON, as in `.avsc` files.
    ///
    /// # Errors
    /// It is no JSON, no schema, or none of records.
    pub fn parse(json: &str) -> Result<Self, EncodingError> {
        if json.len() > MAX_BYTES {
            let message = format!("the schema has {} bytes, expected at most {MAX_BYTES}", json.len());
            return Err(EncodingError::schema(message));
        }
        nesting::check_json(json).map_err(|why| EncodingError::schema(format!("the schema, {why}")))?;
        let tree: Json = serde_json::from_str(json)
            .map_err(|error| EncodingError::schema(format!("the schema is no JSON: {error}")))?;
        let mut parser = Parser::default();
        let root = parser.ty(&tree, "", "", 0)?;
        if !matches!(parser.types.get(root).map(|ty| &ty.kind), Some(AvroType::Record(_))) {
            let message = "the schema's own type is no record, which alone is a format".to_owned();
            return Err(EncodingError::schema(message));
        }
        Ok(Self { types: parser.types, root, json: tree.to_string() })
    }

    /// The schema as JSON, without blanks.
    #[must_use]
    pub fn to_json(&self) -> &str {
        &self.json
    }

    /// The full name of the records' type.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.ty(self.root).name
    }

    /// The format of the schema's records: a field for each of its fields, in their order.
    ///
    /// # Errors
    /// No format is like that: records that lie in themselves, a field that is always null, too many fields.
    pub fn format(&self) -> Result<Format, EncodingError> {
        self.measure(self.root, "", &mut Vec::new(), &mut HashMap::new())?;
        let specs = self.record_specs(self.root, "", 0)?;
        Format::natural(specs).map_err(|error| EncodingError::schema(format!("record {}: {error}", self.name())))
    }

    /// The type of the only field of the records, of a schema that is made for one field.
    pub(super) fn root_field(&self) -> Option<usize> {
        match &self.ty(self.root).kind {
            AvroType::Record(fields) => fields.first().map(|field| field.ty),
            _ => None,
        }
    }

    /// The type of this index.
    pub(super) fn ty(&self, index: usize) -> &Type {
        // Indices come from the parser, which gave out no others.
        &self.types[index]
    }

    /// How many fields a type comes to with those in it, each type looked at once: records that lie in several others
    /// may come to more than there is memory for. `open` are the records on the way, `known` those that were counted.
    fn measure(
        &self,
        ty: usize,
        path: &str,
        open: &mut Vec<usize>,
        known: &mut HashMap<usize, usize>,
    ) -> Result<usize, EncodingError> {
        let fields = match &self.ty(ty).kind {
            AvroType::Array(of) | AvroType::Map(of) => return self.measure(*of, path, open, known),
            AvroType::Union(branches) => {
                let mut sum = branches.len();
                for branch in branches {
                    sum = sum.saturating_add(self.measure(*branch, path, open, known)?);
                }
                return Ok(sum);
            }
            AvroType::Record(fields) => fields,
            _ => return Ok(0),
        };
        if let Some(fields) = known.get(&ty) {
            return Ok(*fields);
        }
        if open.contains(&ty) {
            let why = format!("the record `{}` lies in itself, which no format can", self.ty(ty).name);
            return Err(EncodingError::schema(why).in_field(path));
        }
        if open.len() > crate::MAX_DEPTH {
            return Err(too_deep(path));
        }
        open.push(ty);
        let mut sum = fields.len();
        for field in fields.iter().filter(|field| field.note.is_none()) {
            let path = if path.is_empty() { field.name.clone() } else { format!("{path}.{}", field.name) };
            sum = sum.saturating_add(self.measure(field.ty, &path, open, known)?);
        }
        open.pop();
        // The sum includes some that are no fields of the format; making the format checks the exact bound.
        if sum > 4 * crate::MAX_FIELDS {
            let name = &self.ty(ty).name;
            let why = format!("`{name}` has {sum} fields with those in it, expected at most {}", crate::MAX_FIELDS);
            return Err(EncodingError::schema(why));
        }
        known.insert(ty, sum);
        Ok(sum)
    }

    fn record_specs(&self, record: usize, path: &str, depth: usize) -> Result<Vec<FieldSpec>, EncodingError> {
        let AvroType::Record(fields) = &self.ty(record).kind else {
            return Ok(Vec::new());
        };
        fields.iter().map(|field| self.field_spec(field, path, depth)).collect()
    }

    fn field_spec(&self, field: &AvroField, path: &str, depth: usize) -> Result<FieldSpec, EncodingError> {
        let path = if path.is_empty() { field.name.clone() } else { format!("{path}.{}", field.name) };
        match &field.note {
            Some(note) => noted(note, &path),
            None => {
                let mut spec = self.spec(&field.name, field.ty, &path, depth)?;
                if let Some(default) = &field.default {
                    spec = self.with_default(spec, field.ty, default, (&path, &mut Vec::new()));
                }
                Ok(with_aliases(spec, &field.aliases))
            }
        }
    }

    /// The field of a format that values of this type are, with no regard to notes.
    pub(super) fn spec(&self, name: &str, ty: usize, path: &str, depth: usize) -> Result<FieldSpec, EncodingError> {
        if depth > crate::MAX_DEPTH {
            return Err(too_deep(path));
        }
        let spec = |ty: TypeSpec| FieldSpec::new(name, ty);
        let scalar = |ty: FieldType| Ok(FieldSpec::new(name, ty));
        let found = self.ty(ty);
        match (&found.kind, found.logical) {
            (_, Logical::Timestamp(_)) => scalar(FieldType::Timestamp),
            (_, Logical::Decimal { precision, scale }) => scalar(decimal_of(precision, scale)),
            (AvroType::Boolean, _) => scalar(FieldType::Bool),
            (AvroType::Int, _) => scalar(FieldType::I32),
            (AvroType::Long, _) => scalar(FieldType::I64),
            (AvroType::Float, _) => scalar(FieldType::F32),
            (AvroType::Double, _) => scalar(FieldType::F64),
            (AvroType::Bytes | AvroType::Fixed(_), _) => scalar(FieldType::Bytes),
            (AvroType::String, _) => scalar(FieldType::String),
            (AvroType::Enum(symbols), _) => {
                let spec = spec(TypeSpec::enumeration(symbols.iter().cloned().zip(0..)));
                let unknown = found.default.as_ref().filter(|default| symbols.contains(default));
                Ok(unknown.into_iter().fold(spec, FieldSpec::with_unknown))
            }
            (AvroType::Array(element), _) => Ok(spec(TypeSpec::list(self.element(*element, path, depth + 1)?))),
            (AvroType::Map(element), _) => {
                let value = self.spec(VALUE, *element, path, depth + 2)?;
                Ok(spec(TypeSpec::list(TypeSpec::Record(vec![FieldSpec::new("key", FieldType::String), value]))))
            }
            (AvroType::Record(_), _) => Ok(spec(TypeSpec::Record(self.record_specs(ty, path, depth + 1)?))),
            (AvroType::Union(branches), _) => self.union(name, branches, path, depth),
            (AvroType::Null, _) => {
                Err(EncodingError::schema("it is always null: a format has no such fields").in_field(path))
            }
        }
    }

    /// Elements are never null: those that are become records of one field that may be.
    fn element(&self, ty: usize, path: &str, depth: usize) -> Result<TypeSpec, EncodingError> {
        let spec = self.spec(VALUE, ty, path, depth)?;
        let is_union = matches!(self.ty(ty).kind, AvroType::Union(_));
        Ok(if is_union { TypeSpec::Record(vec![spec]) } else { spec.ty })
    }

    fn union(&self, name: &str, branches: &[usize], path: &str, depth: usize) -> Result<FieldSpec, EncodingError> {
        let is_null = |branch: &usize| self.ty(*branch).kind == AvroType::Null;
        let nullable = branches.iter().any(is_null);
        let others: Vec<usize> = branches.iter().copied().filter(|branch| !is_null(branch)).collect();
        match &others[..] {
            [] => Err(EncodingError::schema("it is always null: a format has no such fields").in_field(path)),
            [one] => Ok(FieldSpec { nullable, ..self.spec(name, *one, path, depth)? }),
            many => {
                let variants: Result<Vec<FieldSpec>, EncodingError> =
                    many.iter().map(|branch| self.variant(*branch, path, depth + 1)).collect();
                Ok(FieldSpec { nullable, ..FieldSpec::new(name, TypeSpec::Union(variants?)) })
            }
        }
    }

    fn variant(&self, branch: usize, path: &str, depth: usize) -> Result<FieldSpec, EncodingError> {
        let name = self.variant_name(branch);
        let spec = match (self.wrapped(branch), &self.ty(branch).note) {
            // A record made for a variant that is a single value.
            (Some(inner), Some(_)) => self.spec(&name, inner, path, depth),
            _ => self.spec(&name, branch, path, depth),
        };
        Ok(with_aliases(spec?, &self.ty(branch).aliases))
    }

    /// The name of the variant that a branch of a union is.
    pub(super) fn variant_name(&self, branch: usize) -> String {
        let ty = self.ty(branch);
        match &ty.note {
            Some(note) => note.clone(),
            None if ty.name.is_empty() => ty.kind.word().to_owned(),
            None => last_part(&ty.name).to_owned(),
        }
    }

    /// The type of the value that a record stands for: one whose only field is called so.
    pub(super) fn wrapped(&self, ty: usize) -> Option<usize> {
        match &self.ty(ty).kind {
            AvroType::Record(fields) => match &fields[..] {
                [field] if field.name == VALUE => Some(field.ty),
                _ => None,
            },
            _ => None,
        }
    }
}

/// A field with those of its aliases that fields have.
fn with_aliases(mut spec: FieldSpec, aliases: &[String]) -> FieldSpec {
    let mut known = vec![spec.name.clone()];
    for alias in aliases {
        let is_name = (1..=crate::MAX_NAME_BYTES).contains(&alias.len()) && !alias.chars().any(char::is_control);
        if known.len() > MAX_ALIASES {
            break;
        }
        if is_name && !known.contains(alias) {
            known.push(alias.clone());
            spec = spec.with_alias(alias);
        }
    }
    spec
}

/// The field of a note in our notation.
fn noted(note: &str, path: &str) -> Result<FieldSpec, EncodingError> {
    let format = Format::parse_schema(note)
        .map_err(|error| EncodingError::schema(format!("its attribute `{NOTE}`: {error}")).in_field(path))?;
    let mut specs = format.specs().into_iter();
    match (specs.next(), specs.next()) {
        (Some(spec), None) => Ok(spec),
        _ => Err(EncodingError::schema(format!("its attribute `{NOTE}` has several fields")).in_field(path)),
    }
}

/// The decimal that has room for `precision` digits.
pub(super) fn decimal_of(precision: u32, scale: u8) -> FieldType {
    let bytes = match precision {
        0..=9 => 4,
        10..=18 => 8,
        _ => 16,
    };
    FieldType::Decimal { bytes, scale }
}

#[derive(Default)]
struct Parser {
    types: Vec<Type>,
    names: HashMap<String, usize>,
}

impl Parser {
    /// Reads a type, and those that it is made of. `path` is for messages.
    fn ty(&mut self, json: &Json, namespace: &str, path: &str, depth: usize) -> Result<usize, EncodingError> {
        let refuse = |message: String| Err(EncodingError::schema(message).in_field(path));
        if depth > MAX_NESTING {
            return refuse(format!("types nest more than {MAX_NESTING} levels deep"));
        }
        if self.types.len() >= MAX_TYPES {
            return refuse(format!("the schema has more than {MAX_TYPES} types"));
        }
        match json {
            Json::String(word) => self.named(word, namespace, path),
            Json::Array(branches) => self.union(branches, namespace, path, depth),
            Json::Object(object) => self.object(object, namespace, path, depth),
            _ => refuse(format!("found {}, expected a type", shorten(json))),
        }
    }

    fn add(&mut self, kind: AvroType) -> usize {
        let (name, aliases) = (String::new(), Vec::new());
        self.types.push(Type { kind, logical: Logical::None, name, note: None, default: None, aliases });
        self.types.len() - 1
    }

    fn named(&mut self, word: &str, namespace: &str, path: &str) -> Result<usize, EncodingError> {
        if let Some(kind) = AvroType::primitive(word) {
            return Ok(self.add(kind));
        }
        let full = full_name(word, namespace);
        match self.names.get(&full).or_else(|| self.names.get(word)) {
            Some(index) => Ok(*index),
            None => {
                let message = format!("there is no type `{}`", text::shorten(word.as_bytes()));
                Err(EncodingError::schema(message).in_field(path))
            }
        }
    }

    fn union(&mut self, branches: &[Json], namespace: &str, path: &str, depth: usize) -> Result<usize, EncodingError> {
        if branches.len() > MAX_BRANCHES {
            return Err(EncodingError::schema("a union has too many branches").in_field(path));
        }
        let mut types = Vec::with_capacity(branches.len());
        for branch in branches {
            let ty = self.ty(branch, namespace, path, depth + 1)?;
            if matches!(self.types[ty].kind, AvroType::Union(_)) {
                return Err(EncodingError::schema("a union lies in a union, which Avro does not have").in_field(path));
            }
            types.push(ty);
        }
        Ok(self.add(AvroType::Union(types)))
    }

    fn object(
        &mut self,
        object: &Map<String, Json>,
        namespace: &str,
        path: &str,
        depth: usize,
    ) -> Result<usize, EncodingError> {
        let refuse = |message: String| EncodingError::schema(message).in_field(path);
        let attribute = |name: &str| object.get(name).ok_or_else(|| refuse(format!("a type lacks `{name}`")));
        let word = match attribute("type")? {
            Json::String(word) => word.as_str(),
            inner => return self.ty(inner, namespace, path, depth + 1),
        };
        let index = match word {
            "array" => {
                let element = self.ty(attribute("items")?, namespace, path, depth + 1)?;
                self.add(AvroType::Array(element))
            }
            "map" => {
                let element = self.ty(attribute("values")?, namespace, path, depth + 1)?;
                self.add(AvroType::Map(element))
            }
            "record" | "error" => return self.record(object, namespace, path, depth),
            "enum" => {
                let symbols = attribute("symbols")?.as_array().ok_or_else(|| refuse("symbols are no list".into()))?;
                let symbols = symbols.iter().take(MAX_BRANCHES).filter_map(Json::as_str).map(str::to_owned).collect();
                let index = self.add(AvroType::Enum(symbols));
                self.name(index, object, namespace, path)?;
                self.types[index].default = object.get("default").and_then(Json::as_str).map(str::to_owned);
                index
            }
            "fixed" => {
                let size = attribute("size")?.as_u64().filter(|size| *size <= crate::MAX_RECORD_BYTES as u64);
                let size = size.ok_or_else(|| refuse("a fixed type has no size that it can have".into()))?;
                let index = self.add(AvroType::Fixed(size as usize));
                self.name(index, object, namespace, path)?;
                index
            }
            word => match AvroType::primitive(word) {
                Some(kind) => self.add(kind),
                None => return self.named(word, namespace, path),
            },
        };
        self.types[index].logical = logical(object, &self.types[index].kind);
        Ok(index)
    }

    fn record(
        &mut self,
        object: &Map<String, Json>,
        namespace: &str,
        path: &str,
        depth: usize,
    ) -> Result<usize, EncodingError> {
        let refuse = |message: String| EncodingError::schema(message).in_field(path);
        let index = self.add(AvroType::Record(Vec::new()));
        // Before its fields, which may speak of it.
        self.name(index, object, namespace, path)?;
        self.types[index].note = object.get(NOTE).and_then(Json::as_str).map(str::to_owned);
        let namespace = self.types[index].name.rsplit_once('.').map_or("", |(namespace, _)| namespace).to_owned();
        let found =
            object.get("fields").and_then(Json::as_array).ok_or_else(|| refuse("a record lacks `fields`".into()))?;
        let mut fields: Vec<AvroField> = Vec::with_capacity(found.len().min(crate::MAX_FIELDS));
        for field in found {
            let name = field.get("name").and_then(Json::as_str).ok_or_else(|| refuse("a field lacks `name`".into()))?;
            let inner = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            let ty = field.get("type").ok_or_else(|| EncodingError::schema("it lacks `type`").in_field(&inner))?;
            if fields.len() >= crate::MAX_FIELDS {
                let record = &self.types[index].name;
                return Err(refuse(format!("the record `{record}` has more than {} fields", crate::MAX_FIELDS)));
            }
            let ty = self.ty(ty, &namespace, &inner, depth + 1)?;
            let note = field.get(NOTE).and_then(Json::as_str).map(str::to_owned);
            let default = field.get("default").filter(|default| !default.is_null()).cloned();
            let aliases = field.get("aliases").and_then(Json::as_array).into_iter().flatten();
            let aliases = aliases.filter_map(Json::as_str).map(str::to_owned).collect();
            fields.push(AvroField { name: name.to_owned(), ty, note, default, aliases });
        }
        self.types[index].kind = AvroType::Record(fields);
        Ok(index)
    }

    /// Gives a type the name that it declares.
    fn name(
        &mut self,
        index: usize,
        object: &Map<String, Json>,
        namespace: &str,
        path: &str,
    ) -> Result<(), EncodingError> {
        let Some(name) = object.get("name").and_then(Json::as_str) else {
            return Err(EncodingError::schema("a type lacks `name`").in_field(path));
        };
        let namespace = object.get("namespace").and_then(Json::as_str).unwrap_or(namespace);
        let full = full_name(name, namespace);
        if self.names.insert(full.clone(), index).is_some() {
            let message = format!("there are two types of the name `{}`", text::shorten(full.as_bytes()));
            return Err(EncodingError::schema(message).in_field(path));
        }
        self.types[index].name = full;
        let aliases = object.get("aliases").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
        self.types[index].aliases = aliases.take(MAX_ALIASES).map(|alias| last_part(alias).to_owned()).collect();
        Ok(())
    }
}

/// A name without its namespace.
fn last_part(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or_default()
}

fn full_name(name: &str, namespace: &str) -> String {
    if name.contains('.') || namespace.is_empty() { name.to_owned() } else { format!("{namespace}.{name}") }
}

/// A logical type that we know, on a type that it goes with; others are as if they were not there, as Avro has it.
fn logical(object: &Map<String, Json>, kind: &AvroType) -> Logical {
    let number = |name: &str| object.get(name).and_then(Json::as_u64);
    match (object.get("logicalType").and_then(Json::as_str).unwrap_or_default(), kind) {
        ("timestamp-millis", AvroType::Long) => Logical::Timestamp(1_000_000),
        ("timestamp-micros", AvroType::Long) => Logical::Timestamp(1_000),
        ("timestamp-nanos", AvroType::Long) => Logical::Timestamp(1),
        ("decimal", AvroType::Bytes | AvroType::Fixed(_)) => {
            let scale = number("scale").unwrap_or(0);
            match (number("precision"), u8::try_from(scale)) {
                (Some(precision @ 1..=38), Ok(scale)) if u64::from(scale) <= precision => {
                    Logical::Decimal { precision: precision as u32, scale }
                }
                _ => Logical::None,
            }
        }
        _ => Logical::None,
    }
}

fn shorten(json: &Json) -> String {
    text::shorten(json.to_string().as_bytes())
}

fn too_deep(path: &str) -> EncodingError {
    let why = format!("it lies more than {} deep, and a format goes no deeper", crate::MAX_DEPTH);
    EncodingError::schema(why).in_field(path)
}
