//! The format that follows from a Rust type: its `Deserialize` is run on sample values, and what it asks for is noted.
//!
//! One run sees every field once. A run that fails where another sample may do, or that has seen only one variant of an enum or one
//! name of a field with several, is followed by another one that knows more; each adds something to [`Known`], so they end.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::value::{I64Deserializer, StrDeserializer};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor};

use super::NANOSECONDS;
use super::error::TypedError;
use crate::MAX_DEPTH;
use crate::field::FieldType;
use crate::format::Format;
use crate::spec::{FieldSpec, TypeSpec};

/// Texts; at least one is accepted by types that are written as text: any, a number, a time, a day, an address, an id, a URL.
const TEXTS: [&str; 8] = [
    "",
    "0",
    "1970-01-01T00:00:00Z",
    "1970-01-01",
    "127.0.0.1",
    "127.0.0.1:1",
    "00000000-0000-0000-0000-000000000000",
    "http://localhost/",
];

impl Format {
    /// The format of records that hold a type: see the [table](crate::typed).
    ///
    /// # Errors
    /// The type is not a struct with named fields, or has a field of a type that has no format; the error names the field. Such a
    /// format is written as a schema instead ([`Format::parse_schema`]).
    pub fn of<T: Deserialize<'static>>() -> Result<Format, TypedError> {
        let mut known = Known::default();
        loop {
            let run = TraceRun { known: &known, noted: RefCell::default() };
            let mut traced = Traced::default();
            let outcome = T::deserialize(Tracer { run: &run, traced: &mut traced, depth: 0 });
            let noted = run.noted.into_inner();
            let is_complete = match outcome {
                Ok(_) => !known.next_variant(&noted),
                Err(flaw) => {
                    known.learn(&flaw, &noted).map_err(|message| TypedError::at(noted.path(), message))?;
                    false
                }
            };
            if is_complete {
                let Traced { ty: Some(TypeSpec::Record(fields)), is_nullable: false } = traced else {
                    return Err(TypedError::new("a type of records is a struct with named fields, and this is none"));
                };
                return Format::natural(fields).map_err(|error| TypedError::new(error.to_string()));
            }
        }
    }
}

/// The findings of earlier runs, by the fields' paths.
#[derive(Default)]
struct Known {
    /// Which sample is tried; the first unless given.
    samples: BTreeMap<String, usize>,
    /// Which variant of an enum is tried; the first unless given.
    variants: BTreeMap<String, usize>,
    /// Names that a struct's fields have, and that must come before their other names.
    own_names: BTreeMap<String, Vec<&'static str>>,
    /// Other names that a struct's fields have (`alias`).
    aliases: BTreeMap<String, BTreeSet<&'static str>>,
}

impl Known {
    /// Has the next run try what this one did not; gives the reason if there is no more to be tried.
    fn learn(&mut self, flaw: &Flaw, noted: &Noted) -> Result<(), String> {
        match (flaw, &noted.key, &noted.leaf) {
            (Flaw::Unknown(message), ..) => Err(message.clone()),
            (Flaw::Duplicate(own), Some((path, key)), _) if own == key => {
                let own_names = self.own_names.entry(path.clone()).or_default();
                if own_names.contains(own) {
                    return Err(flaw.to_string());
                }
                own_names.push(own);
                Ok(())
            }
            (Flaw::Duplicate(_), Some((path, key)), _) => {
                let is_new = self.aliases.entry(path.clone()).or_default().insert(key);
                if is_new { Ok(()) } else { Err(flaw.to_string()) }
            }
            (_, _, Some(leaf)) => {
                let sample = self.samples.entry(leaf.path.clone()).or_default();
                *sample += 1;
                if *sample < leaf.samples {
                    return Ok(());
                }
                let ty = leaf.ty;
                Err(format!(
                    "the type refuses every {ty} that was tried ({flaw}): write the format as a schema instead"
                ))
            }
            (_, _, None) => Err(flaw.to_string()),
        }
    }

    /// Has the next run try another variant, if there is one that was not.
    fn next_variant(&mut self, noted: &Noted) -> bool {
        noted.enums.iter().any(|(path, count)| {
            let variant = self.variants.entry(path.clone()).or_default();
            let has_more = *variant + 1 < *count;
            *variant += usize::from(has_more);
            has_more
        })
    }
}

/// One run.
struct TraceRun<'k> {
    known: &'k Known,
    noted: RefCell<Noted>,
}

/// The findings of a run.
#[derive(Default)]
struct Noted {
    /// The names on the way to what is being made.
    path: Vec<String>,
    /// The struct and the name of the field whose value is not being made yet.
    key: Option<(String, &'static str)>,
    /// The last sample that was given.
    leaf: Option<Leaf>,
    /// Enums, and how many variants they have.
    enums: BTreeMap<String, usize>,
}

struct Leaf {
    path: String,
    ty: FieldType,
    samples: usize,
}

impl Noted {
    fn path(&self) -> String {
        let mut path = String::new();
        for part in &self.path {
            let dot = if path.is_empty() || part.starts_with('[') { "" } else { "." };
            path += dot;
            path += part;
        }
        path
    }
}

/// Why a run ended early.
#[derive(Debug)]
enum Flaw {
    /// A type without a format.
    Unknown(String),
    /// A second name of a field; its own one.
    Duplicate(&'static str),
    /// The error of the type itself.
    Refused(String),
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::Unknown(message) | Flaw::Refused(message) => f.write_str(message),
            Flaw::Duplicate(name) => write!(f, "two fields have the name `{name}`"),
        }
    }
}

impl std::error::Error for Flaw {}

impl serde::de::Error for Flaw {
    fn custom<T: fmt::Display>(message: T) -> Flaw {
        Flaw::Refused(message.to_string())
    }

    fn duplicate_field(field: &'static str) -> Flaw {
        Flaw::Duplicate(field)
    }
}

/// The findings on a value's type after a run.
#[derive(Default)]
struct Traced {
    ty: Option<TypeSpec>,
    is_nullable: bool,
}

/// Gives samples, and notes the type that is asked for.
struct Tracer<'t> {
    run: &'t TraceRun<'t>,
    traced: &'t mut Traced,
    depth: usize,
}

impl<'t> Tracer<'t> {
    /// Notes a type of single values; which of `samples` samples to give.
    fn leaf(&mut self, ty: FieldType, samples: usize) -> usize {
        self.traced.ty = Some(ty.into());
        let mut noted = self.run.noted.borrow_mut();
        let path = noted.path();
        let sample = self.run.known.samples.get(&path).copied().unwrap_or(0);
        noted.leaf = Some(Leaf { path, ty, samples });
        sample
    }

    fn text(&mut self) -> &'static str {
        let sample = self.leaf(FieldType::String, TEXTS.len());
        TEXTS.get(sample).copied().unwrap_or_default()
    }

    /// Makes the value inside, under this name.
    fn inside<'de, S: DeserializeSeed<'de>>(
        run: &TraceRun<'_>,
        name: &str,
        depth: usize,
        seed: S,
    ) -> Result<(S::Value, Traced), Flaw> {
        if depth > MAX_DEPTH {
            return Err(Flaw::Unknown(format!(
                "the type lies deeper than {MAX_DEPTH} levels; one that contains itself has no format"
            )));
        }
        run.noted.borrow_mut().path.push(name.to_owned());
        let mut traced = Traced::default();
        let value = seed.deserialize(Tracer { run, traced: &mut traced, depth })?;
        run.noted.borrow_mut().path.pop();
        Ok((value, traced))
    }

    /// Elements of one type; `count` of them, or a list of any length.
    fn elements<'de, V: Visitor<'de>>(self, visitor: V, count: Option<usize>) -> Result<V::Value, Flaw> {
        let mut types = Vec::new();
        let left = count.unwrap_or(1);
        let value = visitor.visit_seq(Elements { run: self.run, depth: self.depth + 1, left, types: &mut types })?;
        let mut types = types.into_iter();
        let Some(element) = types.next() else {
            return Err(Flaw::Unknown("a list without elements has no format".to_owned()));
        };
        if types.any(|other| other != element) {
            return Err(Flaw::Unknown("a tuple of several types has no format: use a struct".to_owned()));
        }
        self.traced.ty = Some(match count {
            Some(count) => TypeSpec::array(element, u32::try_from(count).unwrap_or(u32::MAX)),
            None => TypeSpec::list(element),
        });
        Ok(value)
    }
}

fn no_format<T>(what: &str) -> Result<T, Flaw> {
    Err(Flaw::Unknown(format!("{what} has no format")))
}

/// Methods for numbers.
macro_rules! numbers {
    ($($method:ident $ty:ident $visit:ident;)+) => {$(
        fn $method<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Flaw> {
            // 0, and 1 for those that may not be zero.
            let sample = self.leaf(FieldType::$ty, 2) > 0;
            visitor.$visit(sample.into())
        }
    )+};
}

/// Methods for what has no format.
macro_rules! unknown {
    ($($method:ident $what:literal;)+) => {$(
        fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Flaw> {
            no_format($what)
        }
    )+};
}

impl<'de> Deserializer<'de> for Tracer<'_> {
    type Error = Flaw;

    numbers! {
        deserialize_i8 I8 visit_i8; deserialize_i16 I16 visit_i16; deserialize_i32 I32 visit_i32;
        deserialize_i64 I64 visit_i64; deserialize_u8 U8 visit_u8; deserialize_u16 U16 visit_u16;
        deserialize_u32 U32 visit_u32; deserialize_u64 U64 visit_u64; deserialize_f32 F32 visit_f32;
        deserialize_f64 F64 visit_f64;
    }

    unknown! {
        deserialize_any "a type that takes whatever comes (an untagged or tagged enum, a JSON value)";
        deserialize_i128 "i128"; deserialize_u128 "u128"; deserialize_unit "the unit type";
        deserialize_map "a map (or a struct with `flatten`)"; deserialize_identifier "a name";
        deserialize_ignored_any "a value that is passed over";
    }

    fn deserialize_bool<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Flaw> {
        visitor.visit_bool(self.leaf(FieldType::Bool, 2) > 0)
    }

    fn deserialize_char<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Flaw> {
        self.leaf(FieldType::String, 1);
        visitor.visit_char('0')
    }

    fn deserialize_str<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Flaw> {
        visitor.visit_borrowed_str(self.text())
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Flaw> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Flaw> {
        self.leaf(FieldType::Bytes, 1);
        visitor.visit_borrowed_bytes(b"")
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Flaw> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Flaw> {
        if std::mem::replace(&mut self.traced.is_nullable, true) {
            return no_format("an Option of an Option");
        }
        visitor.visit_some(self)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, _: V) -> Result<V::Value, Flaw> {
        no_format(&format!("`{name}`, a struct without fields,"))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(mut self, name: &'static str, visitor: V) -> Result<V::Value, Flaw> {
        if name == NANOSECONDS {
            self.leaf(FieldType::Timestamp, 1);
            return visitor.visit_newtype_struct(I64Deserializer::new(0));
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Flaw> {
        self.elements(visitor, None)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value, Flaw> {
        self.elements(visitor, Some(count))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, Flaw> {
        self.elements(visitor, Some(count))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Flaw> {
        let (run, path) = (self.run, self.run.noted.borrow().path());
        let own_names = run.known.own_names.get(&path).map_or(&[][..], Vec::as_slice);
        let is_alias = |name: &&str| run.known.aliases.get(&path).is_some_and(|aliases| aliases.contains(name));
        let others = names.iter().filter(|name| !own_names.contains(name) && !is_alias(name));
        let order: Vec<&'static str> = own_names.iter().chain(others).copied().collect();
        let mut fields = Fields { run, path, depth: self.depth + 1, order, next: 0, specs: Vec::new() };
        let value = visitor.visit_map(&mut fields)?;
        let mut specs = fields.specs;
        specs.sort_by_key(|spec| names.iter().position(|name| *name == spec.name));
        self.traced.ty = Some(TypeSpec::Record(specs));
        Ok(value)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Flaw> {
        let mut noted = self.run.noted.borrow_mut();
        let path = noted.path();
        let variant = self.run.known.variants.get(&path).copied().unwrap_or(0);
        noted.enums.insert(path, variants.len());
        drop(noted);
        let Some(variant) = variants.get(variant) else {
            return no_format(&format!("`{name}`, an enum without variants,"));
        };
        let value = visitor.visit_enum(Variant { variant })?;
        self.traced.ty = Some(TypeSpec::enumeration(variants.iter().copied().zip(0..)));
        Ok(value)
    }
}

/// The fields of a struct.
struct Fields<'t> {
    run: &'t TraceRun<'t>,
    /// The struct's path.
    path: String,
    depth: usize,
    order: Vec<&'static str>,
    next: usize,
    specs: Vec<FieldSpec>,
}

impl<'de> MapAccess<'de> for &mut Fields<'_> {
    type Error = Flaw;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Flaw> {
        let Some(name) = self.order.get(self.next) else { return Ok(None) };
        self.run.noted.borrow_mut().key = Some((self.path.clone(), name));
        seed.deserialize(StrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Flaw> {
        let Some(name) = self.order.get(self.next).copied() else { return no_format("a value without a name") };
        self.next += 1;
        self.run.noted.borrow_mut().key = None;
        let (value, Traced { ty, is_nullable }) = Tracer::inside(self.run, name, self.depth, seed)?;
        let Some(ty) = ty else { return no_format(&format!("field `{name}`, whose type asks for nothing,")) };
        self.specs.push(FieldSpec { nullable: is_nullable, ..FieldSpec::new(name, ty) });
        Ok(value)
    }
}

/// The elements of a list or tuple.
struct Elements<'t> {
    run: &'t TraceRun<'t>,
    depth: usize,
    left: usize,
    types: &'t mut Vec<TypeSpec>,
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = Flaw;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Flaw> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let (value, Traced { ty, is_nullable }) = Tracer::inside(self.run, "[]", self.depth, seed)?;
        match ty {
            Some(_) if is_nullable => {
                no_format("an Option in a list (elements are never null; a struct with such a field may be one)")
            }
            Some(ty) => {
                self.types.push(ty);
                Ok(Some(value))
            }
            None => no_format("an element whose type asks for nothing"),
        }
    }
}

/// A variant of an enum.
struct Variant {
    variant: &'static str,
}

impl<'de> EnumAccess<'de> for Variant {
    type Error = Flaw;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Flaw> {
        Ok((seed.deserialize(StrDeserializer::new(self.variant))?, self))
    }
}

impl Variant {
    fn has_data<T>(&self) -> Result<T, Flaw> {
        no_format(&format!("`{}`, a variant with data,", self.variant))
    }
}

impl<'de> VariantAccess<'de> for Variant {
    type Error = Flaw;

    fn unit_variant(self) -> Result<(), Flaw> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Flaw> {
        self.has_data()
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Flaw> {
        self.has_data()
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, Flaw> {
        self.has_data()
    }
}
