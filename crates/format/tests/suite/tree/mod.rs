//! The content of a record as a tree of named values, which libraries write, and with whose trees it is compared.

use base64::display::Base64Display;
use base64::prelude::BASE64_STANDARD;
use crossdock_format::{FieldSpec, Member, Record, TypeSpec, Value};
use serde::ser::{Error as _, Serialize, Serializer};
use serde_json::value::RawValue;

/// A value, or several under names.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tree {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    /// A decimal, digit by digit.
    Decimal(String),
    Text(String),
    /// A list, and whether it may be null.
    List(Vec<Tree>, bool),
    Object(Vec<(String, Tree)>),
}

impl Tree {
    /// All that a record holds.
    pub(crate) fn of(record: &Record<'_>) -> Tree {
        let format = record.format();
        members(record, format.tree(), &format.specs(), false)
    }
}

fn members(record: &Record<'_>, places: &[Member], specs: &[FieldSpec], are_variants: bool) -> Tree {
    let member = |(place, spec): (&Member, &FieldSpec)| {
        let tree = match (place, &spec.ty) {
            (Member::Leaf(leaf), _) => value(record.get(*leaf), spec.nullable || are_variants),
            (Member::Group(group), _) if record.group_is_null(group) => Tree::Null,
            (Member::Group(group), TypeSpec::Record(inner)) => members(record, &group.members, inner, false),
            (Member::Group(group), TypeSpec::Union(inner)) => members(record, &group.members, inner, true),
            _ => unreachable!("specs and tree are of one shape"),
        };
        (spec.name.clone(), tree)
    };
    let all = places.iter().zip(specs).map(member);
    Tree::Object(all.filter(|(_, tree)| !are_variants || *tree != Tree::Null).collect())
}

fn value(value: Value<'_>, nullable: bool) -> Tree {
    let text = |bytes: &[u8]| Tree::Text(str::from_utf8(bytes).expect("made as text").to_owned());
    match value {
        Value::Null => Tree::Null,
        Value::Bool(value) => Tree::Bool(value),
        Value::Int(value) => Tree::Int(value.into()),
        Value::Uint(value) => Tree::Int(value.into()),
        Value::Float(value) => Tree::Float(value),
        Value::Timestamp(value) => {
            let at = jiff::Timestamp::from_nanosecond(value.into()).expect("64 bits of nanoseconds");
            Tree::Text(at.to_string())
        }
        Value::Text(value) => text(value),
        Value::Bytes(value) => Tree::Text(Base64Display::new(value, &BASE64_STANDARD).to_string()),
        Value::Decimal { unscaled, scale } => Tree::Decimal(decimal(unscaled, scale.into())),
        Value::Enum { symbol: Some(symbol), .. } => text(symbol.as_bytes()),
        Value::Enum { number, symbol: None } => Tree::Int(number.into()),
        Value::List(list) => Tree::List(list.iter().map(|element| self::value(element, false)).collect(), nullable),
        Value::Record(record) => Tree::of(&record),
    }
}

fn decimal(unscaled: i128, scale: usize) -> String {
    let sign = if unscaled < 0 { "-" } else { "" };
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

impl Serialize for Tree {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_none(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Int(value) => serializer.serialize_i128(*value),
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Decimal(digits) => {
                RawValue::from_string(digits.clone()).map_err(S::Error::custom)?.serialize(serializer)
            }
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(elements, _) => serializer.collect_seq(elements),
            Self::Object(members) => serializer.collect_map(members.iter().map(|(name, member)| (name, member))),
        }
    }
}
