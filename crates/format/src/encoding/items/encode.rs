//! Records to items.

use std::marker::PhantomData;

use super::Dialect;
use super::shape::{Element, Entry, MemberShape, Members};
use crate::encoding::{EncodingError, EncodingOptions, EncodingProblem, Loss};
use crate::field::{Field, FieldType};
use crate::format::Format;
use crate::record::{Record, Value};
use crate::text;

/// Writes records of one format, each as a map.
#[derive(Debug)]
pub(in crate::encoding) struct ItemEncoder<D> {
    members: Members,
    repairs_text: bool,
    dialect: PhantomData<fn() -> D>,
}

impl<D: Dialect> ItemEncoder<D> {
    pub(in crate::encoding) fn new(format: &Format, options: &EncodingOptions) -> Result<Self, EncodingError> {
        let members = Members::of(format);
        if !D::HAS_DECIMALS
            && !options.allows(Loss::Decimal)
            && let Some(path) = decimal_in(&members)
        {
            let why = "has no decimals: they become text".to_owned();
            let problem = EncodingProblem::Lossy { encoding: D::ENCODING, why, loss: Loss::Decimal };
            return Err(EncodingError::new(problem).in_field(path));
        }
        Ok(Self { members, repairs_text: options.allows(Loss::InvalidText), dialect: PhantomData })
    }

    /// Appends a record; nothing, if it is refused.
    pub(in crate::encoding) fn record(&self, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        let start = out.len();
        self.members(&self.members, false, record, out).inspect_err(|_| out.truncate(start))
    }

    fn members(
        &self,
        members: &Members,
        is_union: bool,
        record: &Record<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodingError> {
        // Of a union, only the variant that is there.
        let is_shown = |entry: &&Entry| !is_union || !is_null(&entry.target, record);
        D::push_map(out, members.entries.iter().filter(is_shown).count());
        for entry in members.entries.iter().filter(is_shown) {
            D::push_text(out, &entry.name);
            self.entry(entry, record, out)?;
        }
        Ok(())
    }

    fn entry(&self, entry: &Entry, record: &Record<'_>, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        match &entry.target {
            target if is_null(target, record) => D::push_null(out),
            MemberShape::Leaf(index, field) => return self.leaf(entry, field, record.get(*index), out),
            MemberShape::Group(group, members) => return self.members(members, group.union.is_some(), record, out),
            MemberShape::List(index, element) => {
                let Value::List(list) = record.get(*index) else {
                    return Ok(());
                };
                D::push_array(out, list.len());
                for at in 0..list.len() {
                    match (list.record(at), &**element) {
                        (Some(item), Element::Scalar(entry)) => self.entry(entry, &item, out)?,
                        (Some(item), Element::Record(members)) => self.members(members, false, &item, out)?,
                        (None, _) => D::push_null(out),
                    }
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn leaf(&self, entry: &Entry, field: &Field, value: Value<'_>, out: &mut Vec<u8>) -> Result<(), EncodingError> {
        match value {
            Value::Bool(value) => D::push_bool(out, value),
            Value::Int(value) => D::push_int(out, value),
            Value::Uint(value) => D::push_uint(out, value),
            Value::Float(value) if field.ty == FieldType::F32 => D::push_f32(out, value as f32),
            Value::Float(value) => D::push_f64(out, value),
            Value::Timestamp(value) => D::push_time(out, value),
            Value::Text(value) if str::from_utf8(value).is_ok() => D::push_text(out, value),
            Value::Text(value) if self.repairs_text => D::push_text(out, String::from_utf8_lossy(value).as_bytes()),
            Value::Text(value) => {
                let expected = "UTF-8; --allow invalid-text has the wrong bytes replaced";
                return Err(EncodingError::value(text::shorten(value), expected).in_field(&entry.path));
            }
            Value::Bytes(value) => D::push_bytes(out, value),
            Value::Decimal { unscaled, scale } => D::push_decimal(out, unscaled, scale),
            Value::Enum { symbol: Some(symbol), .. } => D::push_text(out, symbol.as_bytes()),
            Value::Enum { number, symbol: None } => D::push_int(out, number),
            Value::Null | Value::List(_) | Value::Record(_) => D::push_null(out),
        }
        Ok(())
    }
}

fn is_null(target: &MemberShape, record: &Record<'_>) -> bool {
    match target {
        MemberShape::Leaf(index, _) | MemberShape::List(index, _) => record.is_null(*index),
        MemberShape::Group(group, _) => record.group_is_null(group),
    }
}

/// The path of a decimal.
fn decimal_in(members: &Members) -> Option<&str> {
    members.entries.iter().find_map(decimal_in_entry)
}

fn decimal_in_entry(entry: &Entry) -> Option<&str> {
    match &entry.target {
        MemberShape::Leaf(_, field) => matches!(field.ty, FieldType::Decimal { .. }).then_some(entry.path.as_str()),
        MemberShape::Group(_, members) => decimal_in(members),
        MemberShape::List(_, element) => match &**element {
            Element::Scalar(entry) => decimal_in_entry(entry),
            Element::Record(members) => decimal_in(members),
        },
    }
}
