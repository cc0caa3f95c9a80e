//! Values of Rust types into records.

use serde::ser::{
    Impossible, Serialize, SerializeSeq, SerializeStruct, SerializeTuple, SerializeTupleStruct, Serializer,
};

use super::error::TypedError;
use super::members::{Elements, Leaf, Member, MemberKind, Members};
use crate::builder::{RecordBuilder, ValueError};
use crate::field::FieldType;
use crate::format::Format;
use crate::record::Value;
use crate::text;

/// Makes records of one format from values of Rust types, one after the other, without allocating once its buffer has grown to
/// their size.
#[derive(Clone, Debug)]
pub struct RecordWriter {
    builder: RecordBuilder,
    members: Members,
}

impl RecordWriter {
    /// A writer of records of this format.
    #[must_use]
    pub fn new(format: &Format) -> RecordWriter {
        let builder = RecordBuilder::new(format);
        RecordWriter { members: Members::of(builder.format()), builder }
    }

    /// The record that holds the value. Nullable fields that the value does not have are null.
    ///
    /// # Errors
    /// The value has a field that the format does not have, or lacks one that may not be null; a field's value does not fit its
    /// type; the value is not a struct.
    pub fn write<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<&[u8], TypedError> {
        self.builder.clear();
        value.serialize(Put { builder: &mut self.builder, place: PutTarget::Record(&self.members) })?;
        self.builder
            .finish()
            .map_err(|error| TypedError::at(error.path().unwrap_or_default(), error.problem.to_string()))
    }
}

/// Where a value goes.
#[derive(Clone, Copy)]
enum PutTarget<'a> {
    /// The record itself.
    Record(&'a Members),
    /// A member of the record, or of the element, that is open.
    Member(&'a Member),
    /// The next element of the list that is open.
    Element(&'a Elements),
}

/// Puts one value into its place.
struct Put<'a> {
    builder: &'a mut RecordBuilder,
    place: PutTarget<'a>,
}

/// The form of a value in a field of this type, where serde has no type of its own for that.
fn converted(value: Value<'_>, ty: FieldType) -> Value<'_> {
    match (ty, value) {
        (FieldType::Timestamp, Value::Int(nanoseconds)) => Value::Timestamp(nanoseconds),
        (FieldType::Timestamp, Value::Text(text)) => text::parse_timestamp(text).map_or(value, Value::Timestamp),
        (FieldType::Decimal { .. }, Value::Text(text)) => {
            text::parse_decimal(text).map_or(value, |(unscaled, scale)| Value::Decimal { unscaled, scale })
        }
        _ => value,
    }
}

impl<'a> Put<'a> {
    /// Puts a single value.
    fn value(self, value: Value<'_>) -> Result<(), TypedError> {
        let outcome = match self.place {
            PutTarget::Member(Member { kind: MemberKind::Leaf(leaf), .. }) => {
                self.builder.set(leaf.field, converted(value, leaf.ty))
            }
            PutTarget::Element(Elements::Value(leaf)) => self.builder.push(converted(value, leaf.ty)),
            PutTarget::Member(_) | PutTarget::Element(_) => {
                return Err(TypedError::new(format!("found {}, expected a struct", value.kind())));
            }
            PutTarget::Record(_) => {
                return Err(TypedError::new(format!("found {}: a record is a struct with named fields", value.kind())));
            }
        };
        outcome.map_err(|error| TypedError::refused(&error))
    }

    fn null(self) -> Result<(), TypedError> {
        let outcome = match self.place {
            PutTarget::Member(Member { kind: MemberKind::Leaf(leaf), .. }) => self.builder.set_null(leaf.field),
            PutTarget::Member(Member { kind: MemberKind::Group(group, _), .. }) => self.builder.set_group_null(group),
            PutTarget::Element(_) => return Err(TypedError::new("found null, and elements of lists are never null")),
            PutTarget::Record(_) => return Err(TypedError::new("found null: a record is a struct with named fields")),
        };
        outcome.map_err(|error| TypedError::refused(&error))
    }

    /// Begins a list.
    fn list(self) -> Result<PutList<'a>, TypedError> {
        let leaf: Option<&Leaf> = match self.place {
            PutTarget::Member(Member { kind: MemberKind::Leaf(leaf), .. })
            | PutTarget::Element(Elements::Value(leaf)) => Some(leaf),
            _ => None,
        };
        let Some((leaf, elements)) = leaf.and_then(|leaf| Some((leaf, leaf.elements.as_deref()?))) else {
            let expected = leaf.map_or("a struct".to_owned(), |leaf| leaf.ty.to_string());
            return Err(TypedError::new(format!("found a list, expected {expected}")));
        };
        self.builder.begin_list(leaf.field).map_err(|error| TypedError::refused(&error))?;
        Ok(PutList { builder: self.builder, elements, next: 0 })
    }

    /// Begins a struct.
    fn fields(self) -> Result<PutFields<'a>, TypedError> {
        let (members, is_element) = match self.place {
            PutTarget::Record(members) => (members, false),
            PutTarget::Member(Member { kind: MemberKind::Group(group, members), .. }) => {
                if group.union.is_none() {
                    self.builder.set_group_present(group);
                }
                (members, false)
            }
            PutTarget::Element(Elements::Record(members)) => {
                self.builder.begin_element().map_err(|error| TypedError::refused(&error))?;
                (members, true)
            }
            PutTarget::Member(Member { kind: MemberKind::Leaf(leaf), .. })
            | PutTarget::Element(Elements::Value(leaf)) => {
                return Err(TypedError::new(format!("found a struct, expected {}", leaf.ty)));
            }
        };
        Ok(PutFields { builder: self.builder, members, is_element, next: 0 })
    }
}

/// A type without an equivalent in records.
fn unknown(what: &str) -> TypedError {
    TypedError::new(format!("{what} has no equivalent in records"))
}

/// Methods for numbers.
macro_rules! numbers {
    ($($method:ident $number:ty => $value:ident;)+) => {$(
        fn $method(self, value: $number) -> Result<(), TypedError> {
            self.value(Value::$value(value.into()))
        }
    )+};
}

impl<'a> Serializer for Put<'a> {
    type Ok = ();
    type Error = TypedError;
    type SerializeSeq = PutList<'a>;
    type SerializeTuple = PutList<'a>;
    type SerializeTupleStruct = PutList<'a>;
    type SerializeTupleVariant = Impossible<(), TypedError>;
    type SerializeMap = Impossible<(), TypedError>;
    type SerializeStruct = PutFields<'a>;
    type SerializeStructVariant = Impossible<(), TypedError>;

    numbers! {
        serialize_bool bool => Bool;
        serialize_i8 i8 => Int; serialize_i16 i16 => Int; serialize_i32 i32 => Int; serialize_i64 i64 => Int;
        serialize_u8 u8 => Uint; serialize_u16 u16 => Uint; serialize_u32 u32 => Uint; serialize_u64 u64 => Uint;
        serialize_f32 f32 => Float; serialize_f64 f64 => Float;
    }

    fn serialize_char(self, value: char) -> Result<(), TypedError> {
        self.value(Value::Text(value.encode_utf8(&mut [0; 4]).as_bytes()))
    }

    fn serialize_str(self, value: &str) -> Result<(), TypedError> {
        self.value(Value::Text(value.as_bytes()))
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), TypedError> {
        self.value(Value::Bytes(value))
    }

    fn serialize_none(self) -> Result<(), TypedError> {
        self.null()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), TypedError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), TypedError> {
        self.null()
    }

    fn serialize_unit_struct(self, name: &'static str) -> Result<(), TypedError> {
        Err(unknown(&format!("`{name}`, a struct without fields,")))
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<(), TypedError> {
        self.value(Value::Text(variant.as_bytes()))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), TypedError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: &T,
    ) -> Result<(), TypedError> {
        Err(unknown(&format!("`{variant}`, a variant with data,")))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<PutList<'a>, TypedError> {
        self.list()
    }

    fn serialize_tuple(self, _: usize) -> Result<PutList<'a>, TypedError> {
        self.list()
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<PutList<'a>, TypedError> {
        self.list()
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Impossible<(), TypedError>, TypedError> {
        Err(unknown(&format!("`{variant}`, a variant with data,")))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Impossible<(), TypedError>, TypedError> {
        Err(unknown("a map (or a struct with `flatten`)"))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<PutFields<'a>, TypedError> {
        self.fields()
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Impossible<(), TypedError>, TypedError> {
        Err(unknown(&format!("`{variant}`, a variant with data,")))
    }
}

/// A list that is open.
struct PutList<'a> {
    builder: &'a mut RecordBuilder,
    elements: &'a Elements,
    next: usize,
}

impl PutList<'_> {
    fn put<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), TypedError> {
        let put = Put { builder: &mut *self.builder, place: PutTarget::Element(self.elements) };
        value.serialize(put).map_err(|error| error.in_element(self.next))?;
        self.next += 1;
        Ok(())
    }

    fn finish(self) -> Result<(), TypedError> {
        self.builder.end_list().map_err(|error| TypedError::refused(&error))
    }
}

impl SerializeSeq for PutList<'_> {
    type Ok = ();
    type Error = TypedError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), TypedError> {
        self.put(value)
    }

    fn end(self) -> Result<(), TypedError> {
        self.finish()
    }
}

impl SerializeTuple for PutList<'_> {
    type Ok = ();
    type Error = TypedError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), TypedError> {
        self.put(value)
    }

    fn end(self) -> Result<(), TypedError> {
        self.finish()
    }
}

impl SerializeTupleStruct for PutList<'_> {
    type Ok = ();
    type Error = TypedError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), TypedError> {
        self.put(value)
    }

    fn end(self) -> Result<(), TypedError> {
        self.finish()
    }
}

/// A record, nested record or element that is open.
struct PutFields<'a> {
    builder: &'a mut RecordBuilder,
    members: &'a Members,
    is_element: bool,
    /// The index of the member that most likely comes next.
    next: usize,
}

impl SerializeStruct for PutFields<'_> {
    type Ok = ();
    type Error = TypedError;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), TypedError> {
        let Some(member) = self.members.find(name, &mut self.next) else {
            return Err(TypedError::at(name, "the format has no such field"));
        };
        let put = Put { builder: &mut *self.builder, place: PutTarget::Member(member) };
        value.serialize(put).map_err(|error| error.in_field(name))
    }

    fn end(self) -> Result<(), TypedError> {
        if !self.is_element {
            return Ok(());
        }
        let unset = |error: ValueError| TypedError::at(error.name().unwrap_or_default(), error.problem.to_string());
        self.builder.end_element().map_err(unset)
    }
}
