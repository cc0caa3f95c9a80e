//! Records into values of Rust types.

use serde::de::value::{SeqDeserializer, StrDeserializer};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};

use super::error::TypedError;
use super::members::{Elements, Leaf, Member, MemberKind, Members};
use crate::format::Format;
use crate::record::{List, Record, Value};
use crate::text;

/// Makes values of Rust types from the records of one format. The needed parts of the format are worked out once:
/// reading a record allocates only what the value itself does, and nothing for a type that borrows its text.
#[derive(Clone, Debug)]
pub struct RecordReader {
    format: Format,
    members: Members,
}

impl RecordReader {
    /// A reader of the records of this format. It is best kept to one type: what that takes of a record is worked out with
    /// the first record, and another type is read with more look-ups. A type must name every field that it takes when it asks serde
    /// for a struct, as derived types do; one that names none is given all.
    #[must_use]
    pub fn new(format: &Format) -> RecordReader {
        RecordReader { format: format.clone(), members: Members::of(format) }
    }

    /// The records' format.
    #[must_use]
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// The value that a record holds.
    ///
    /// # Errors
    /// The record lacks a field that the type needs, has one of another type or range, or null where the type takes none; it is of
    /// another format than the reader.
    pub fn read<'r, T: Deserialize<'r>>(&self, record: &Record<'r>) -> Result<T, TypedError> {
        if *record.format() != self.format {
            return Err(TypedError::new("the record is of another format than its reader"));
        }
        T::deserialize(Node::Record(*record, &self.members))
    }
}

/// Something in a record that becomes a value.
#[derive(Clone, Copy)]
enum Node<'a, 'r> {
    Null,
    Value(Value<'r>),
    List(List<'r>, &'a Elements),
    /// A record, or the nested record in it that has these members.
    Record(Record<'r>, &'a Members),
}

impl<'a, 'r> Node<'a, 'r> {
    fn of_member(record: Record<'r>, member: &'a Member) -> Self {
        match &member.kind {
            MemberKind::Leaf(leaf) => Node::of_leaf(record, leaf),
            MemberKind::Group(group, _) if record.group_is_null(group) => Node::Null,
            MemberKind::Group(_, members) => Node::Record(record, members),
        }
    }

    fn of_leaf(record: Record<'r>, leaf: &'a Leaf) -> Self {
        match (record.get(leaf.field), &leaf.elements) {
            (Value::Null, _) => Node::Null,
            (Value::List(list), Some(elements)) => Node::List(list, elements),
            (value, _) => Node::Value(value),
        }
    }

    /// The node, for a type that takes no null.
    fn present(self) -> Result<Self, TypedError> {
        match self {
            Node::Null => {
                Err(TypedError::new("found null, expected a value: a field that may be null goes into an Option"))
            }
            present => Ok(present),
        }
    }
}

/// Text of a record, which its writer has promised to be UTF-8.
fn utf8(bytes: &[u8]) -> Result<&str, TypedError> {
    std::str::from_utf8(bytes).map_err(|_| TypedError::new("found text that is not UTF-8"))
}

/// The output of an encoding.
fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut text = Vec::new();
    write(&mut text);
    // It is ASCII.
    String::from_utf8(text).unwrap_or_default()
}

/// Methods that take no null, and any other value.
macro_rules! present {
    ($($method:ident)+) => {$(
        fn $method<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, TypedError> {
            self.present()?.deserialize_any(visitor)
        }
    )+};
}

/// Methods that take the number of an enumeration.
macro_rules! integers {
    ($($method:ident)+) => {$(
        fn $method<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, TypedError> {
            match self.present()? {
                Node::Value(Value::Enum { number, .. }) => visitor.visit_i64(number),
                other => other.deserialize_any(visitor),
            }
        }
    )+};
}

/// Methods that take numbers as floats.
macro_rules! floats {
    ($($method:ident)+) => {$(
        fn $method<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, TypedError> {
            match self.present()? {
                Node::Value(Value::Decimal { unscaled, scale }) => {
                    let text = written(|out| text::push_decimal(out, unscaled, scale));
                    visitor.visit_f64(text.parse().map_err(|_| TypedError::new("found a decimal beyond all floats"))?)
                }
                other => other.deserialize_any(visitor),
            }
        }
    )+};
}

/// Methods that take text.
macro_rules! texts {
    ($($method:ident)+) => {$(
        fn $method<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, TypedError> {
            match self.present()? {
                Node::Value(Value::Decimal { unscaled, scale }) => {
                    visitor.visit_string(written(|out| text::push_decimal(out, unscaled, scale)))
                }
                Node::Value(Value::Timestamp(nanoseconds)) => {
                    visitor.visit_string(written(|out| text::push_timestamp(out, nanoseconds)))
                }
                other => other.deserialize_any(visitor),
            }
        }
    )+};
}

/// Methods that take bytes.
macro_rules! bytes {
    ($($method:ident)+) => {$(
        fn $method<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, TypedError> {
            match self.present()? {
                Node::Value(Value::Text(bytes)) => visitor.visit_borrowed_bytes(bytes),
                other => other.deserialize_any(visitor),
            }
        }
    )+};
}

impl<'r> Deserializer<'r> for Node<'_, 'r> {
    type Error = TypedError;

    present! { deserialize_bool deserialize_map }
    integers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
    }
    floats! { deserialize_f32 deserialize_f64 }
    texts! { deserialize_char deserialize_str deserialize_string deserialize_identifier }
    bytes! { deserialize_bytes deserialize_byte_buf }

    fn deserialize_any<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, TypedError> {
        let value = match self {
            Node::Null => return visitor.visit_unit(),
            Node::List(list, elements) => return visitor.visit_seq(ListElements { list, elements, next: 0 }),
            Node::Record(record, members) => return visitor.visit_map(Entries::new(record, members, None)),
            Node::Value(value) => value,
        };
        match value {
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Int(value) | Value::Timestamp(value) => visitor.visit_i64(value),
            Value::Uint(value) => visitor.visit_u64(value),
            Value::Float(value) => visitor.visit_f64(value),
            Value::Text(bytes) => visitor.visit_borrowed_str(utf8(bytes)?),
            Value::Bytes(bytes) => visitor.visit_borrowed_bytes(bytes),
            Value::Decimal { unscaled, scale: 0 } => match (i64::try_from(unscaled), u64::try_from(unscaled)) {
                (Ok(value), _) => visitor.visit_i64(value),
                (_, Ok(value)) => visitor.visit_u64(value),
                _ => visitor.visit_i128(unscaled),
            },
            Value::Decimal { unscaled, scale } => {
                visitor.visit_string(written(|out| text::push_decimal(out, unscaled, scale)))
            }
            Value::Enum { symbol: Some(symbol), .. } => visitor.visit_borrowed_str(symbol),
            Value::Enum { number, symbol: None } => visitor.visit_i64(number),
            // These three are nodes of their own.
            Value::Null | Value::List(_) | Value::Record(_) => visitor.visit_unit(),
        }
    }

    fn deserialize_option<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, TypedError> {
        match self {
            Node::Null => visitor.visit_none(),
            present => visitor.visit_some(present),
        }
    }

    fn deserialize_unit<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, TypedError> {
        self.deserialize_any(visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'r>>(self, _: &'static str, visitor: V) -> Result<V::Value, TypedError> {
        self.deserialize_any(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'r>>(self, _: &'static str, visitor: V) -> Result<V::Value, TypedError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, TypedError> {
        match self.present()? {
            Node::Value(Value::Bytes(bytes)) => visitor.visit_seq(SeqDeserializer::new(bytes.iter().copied())),
            other => other.deserialize_any(visitor),
        }
    }

    fn deserialize_tuple<V: Visitor<'r>>(self, len: usize, visitor: V) -> Result<V::Value, TypedError> {
        let found = match &self {
            Node::Value(Value::Bytes(bytes)) => bytes.len(),
            Node::List(list, _) => list.iter().len(),
            _ => return self.deserialize_seq(visitor),
        };
        if found != len {
            let elements = if found == 1 { "element" } else { "elements" };
            return Err(TypedError::new(format!("found {found} {elements}, expected {len}")));
        }
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'r>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, TypedError> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_struct<V: Visitor<'r>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TypedError> {
        let Node::Record(record, members) = self.present()? else { return self.deserialize_any(visitor) };
        let chosen = members.chosen(names);
        let value = visitor.visit_map(Entries::new(record, members, chosen))?;
        if chosen.is_none() {
            // The type has seen all members, and does not refuse those that it does not know.
            members.choose(names);
        }
        Ok(value)
    }

    fn deserialize_enum<V: Visitor<'r>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TypedError> {
        match self.present()? {
            Node::Value(Value::Text(bytes)) => visitor.visit_enum(utf8(bytes)?.into_deserializer()),
            Node::Value(Value::Enum { symbol: Some(symbol), .. }) => visitor.visit_enum(symbol.into_deserializer()),
            // Only a variant for all others (`#[serde(other)]`) takes it.
            Node::Value(Value::Enum { number, symbol: None }) => {
                visitor.visit_enum(number.to_string().into_deserializer()).map_err(|_: TypedError| {
                    TypedError::new(format!("found {number}, which has no symbol in the record's format"))
                })
            }
            other => other.deserialize_any(visitor),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, TypedError> {
        visitor.visit_unit()
    }
}

/// The members of a record with their names.
struct Entries<'a, 'r> {
    record: Record<'r>,
    members: &'a Members,
    /// The indices of those that are read; all if not given.
    chosen: Option<&'a [usize]>,
    next: usize,
    member: Option<&'a Member>,
}

impl<'a, 'r> Entries<'a, 'r> {
    fn new(record: Record<'r>, members: &'a Members, chosen: Option<&'a [usize]>) -> Self {
        Entries { record, members, chosen, next: 0, member: None }
    }
}

impl<'r> MapAccess<'r> for Entries<'_, 'r> {
    type Error = TypedError;

    fn next_key_seed<K: DeserializeSeed<'r>>(&mut self, seed: K) -> Result<Option<K::Value>, TypedError> {
        let index = match self.chosen {
            Some(chosen) => chosen.get(self.next).copied(),
            None => Some(self.next),
        };
        self.next += 1;
        self.member = index.and_then(|index| self.members.all.get(index));
        let Some(member) = self.member else { return Ok(None) };
        seed.deserialize(StrDeserializer::new(&member.name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'r>>(&mut self, seed: V) -> Result<V::Value, TypedError> {
        let Some(member) = self.member.take() else { return Err(TypedError::new("a value without its name")) };
        seed.deserialize(Node::of_member(self.record, member)).map_err(|error| error.in_field(&member.name))
    }
}

/// The elements of a list.
struct ListElements<'a, 'r> {
    list: List<'r>,
    elements: &'a Elements,
    next: usize,
}

impl<'r> SeqAccess<'r> for ListElements<'_, 'r> {
    type Error = TypedError;

    fn next_element_seed<T: DeserializeSeed<'r>>(&mut self, seed: T) -> Result<Option<T::Value>, TypedError> {
        let Some(record) = self.list.record(self.next) else { return Ok(None) };
        let node = match self.elements {
            Elements::Value(leaf) => Node::of_leaf(record, leaf),
            Elements::Record(members) => Node::Record(record, members),
        };
        self.next += 1;
        seed.deserialize(node).map(Some).map_err(|error| error.in_element(self.next - 1))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.list.iter().len().saturating_sub(self.next))
    }
}
