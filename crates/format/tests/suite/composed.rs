//! Any format with nested records, lists and unions, and any records of it: written, checked, read back, copied, as text and
//! as JSON; and hostile bytes for all of them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::any;
use std::fmt::Write as _;

use crossdock_format::json::{JsonDecoder, JsonEncoder, JsonOptions};
use crossdock_format::{
    Element, ElementKind, Field, FieldSpec, FieldType, Format, Member, Record, RecordBuilder, TypeSpec, Value,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Names, some of them no plain words.
fn name(index: usize) -> String {
    if index % 3 == 2 { format!("a field \"{index}\"") } else { format!("f{index}") }
}

fn format() -> impl Strategy<Value = Format> {
    any::format_named(name)
}

/// Bytes that decide what is written; zeros once they are used up.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }
}

/// Fills the innermost open record; gives what was written as text.
fn write(row: &mut RecordBuilder, members: &[Member], choices: &mut Choices<'_>, text: &mut String) {
    for member in members {
        match member {
            Member::Leaf(leaf) => write_leaf(row, *leaf, choices, text),
            Member::Group(group) if group.nullable && choices.next().is_multiple_of(3) => {
                row.set_group_null(group).unwrap();
                text.push_str("null,");
            }
            Member::Group(group) if group.union.is_some() => {
                let which = usize::from(choices.next()) % group.members.len();
                let _ = write!(text, "{which}:");
                match &group.members[which] {
                    Member::Leaf(leaf) => write_value(row, *leaf, choices, text),
                    Member::Group(variant) => {
                        row.set_group_present(variant);
                        write(row, &variant.members, choices, text);
                    }
                }
            }
            Member::Group(group) => {
                row.set_group_present(group);
                text.push('{');
                write(row, &group.members, choices, text);
                text.push('}');
            }
        }
    }
}

fn write_leaf(row: &mut RecordBuilder, leaf: usize, choices: &mut Choices<'_>, text: &mut String) {
    let format = row.format().clone();
    let nullable = is_nullable(&format, leaf);
    if nullable && choices.next().is_multiple_of(3) {
        row.set_null(leaf).unwrap();
        text.push_str("null,");
        return;
    }
    write_value(row, leaf, choices, text);
}

/// Whether the field is nullable itself.
fn is_nullable(format: &Format, leaf: usize) -> bool {
    fn find(specs: &[FieldSpec], at: &mut usize, leaf: usize) -> Option<bool> {
        specs.iter().find_map(|spec| match &spec.ty {
            TypeSpec::Record(fields) | TypeSpec::Union(fields) => find(fields, at, leaf),
            _ => {
                *at += 1;
                (*at - 1 == leaf).then_some(spec.nullable)
            }
        })
    }
    find(&format.specs(), &mut 0, leaf).unwrap()
}

fn write_value(row: &mut RecordBuilder, leaf: usize, choices: &mut Choices<'_>, text: &mut String) {
    let field = row.format().fields()[leaf].clone();
    let Some(element) = field.element() else {
        let bytes = [choices.next(), b'x', b'"'];
        let word = format!("{}é", choices.next());
        row.set(leaf, value(&field, &bytes, &word)).unwrap();
        let _ = write!(text, "{:?},", shown(value(&field, &bytes, &word)));
        return;
    };
    row.begin_list(leaf).unwrap();
    let count = match element.count {
        crossdock_format::Count::Fixed(count) => count,
        crossdock_format::Count::Slot => u32::from(choices.next()) % 4,
    };
    text.push('[');
    for _ in 0..count {
        write_element(row, element, choices, text);
    }
    text.push(']');
    row.end_list().unwrap();
}

fn write_element(row: &mut RecordBuilder, element: &Element, choices: &mut Choices<'_>, text: &mut String) {
    match element.kind() {
        ElementKind::Record(format) => {
            row.begin_element().unwrap();
            text.push('{');
            write(row, format.clone().tree(), choices, text);
            text.push('}');
            row.end_element().unwrap();
        }
        ElementKind::Scalar(field) => match field.element() {
            Some(inner) => {
                row.begin_list(0).unwrap();
                text.push('[');
                let count = match inner.count {
                    crossdock_format::Count::Fixed(count) => count,
                    crossdock_format::Count::Slot => u32::from(choices.next()) % 4,
                };
                (0..count).for_each(|_| write_element(row, inner, choices, text));
                text.push(']');
                row.end_list().unwrap();
            }
            None => {
                let bytes = [choices.next(), b'x', b'"'];
                let word = format!("{}é", choices.next());
                row.push(value(field, &bytes, &word)).unwrap();
                let _ = write!(text, "{:?},", shown(value(field, &bytes, &word)));
            }
        },
    }
}

fn value<'a>(field: &'a Field, bytes: &'a [u8; 3], word: &'a str) -> Value<'a> {
    let number = i64::from(bytes[0] as i8);
    match field.ty {
        FieldType::Bool => Value::Bool(number > 0),
        FieldType::U8 | FieldType::U16 | FieldType::U32 | FieldType::U64 => Value::Uint(bytes[0].into()),
        FieldType::F32 | FieldType::F64 => Value::Float(number as f64 / 4.0),
        FieldType::Timestamp => Value::Timestamp(number << 40),
        FieldType::Char(_) => Value::Text(if number > 0 { b"a" } else { b"" }),
        FieldType::String => Value::Text(word.as_bytes()),
        FieldType::Bytes => Value::Bytes(bytes),
        FieldType::Decimal { scale, .. } => Value::Decimal { unscaled: number.into(), scale },
        FieldType::Enum { .. } => {
            let symbols = field.enumeration().map_or(&[][..], |enumeration| enumeration.symbols());
            match symbols.get(usize::from(bytes[0] % 4)) {
                Some((symbol, number)) => Value::Enum { number: *number, symbol: Some(symbol) },
                None => {
                    let symbol = field.enumeration().and_then(|enumeration| enumeration.symbol(number));
                    Value::Enum { number, symbol }
                }
            }
        }
        _ => Value::Int(number),
    }
}

fn shown(value: Value<'_>) -> String {
    format!("{value:?}")
}

/// The content of a record, as [`write`] puts it.
fn read(record: &Record<'_>, members: &[Member], text: &mut String) {
    for member in members {
        match member {
            Member::Leaf(leaf) => read_value(record.get(*leaf), text),
            Member::Group(group) if record.group_is_null(group) => {
                text.push_str("null,");
            }
            Member::Group(group) if group.union.is_some() => {
                let variant = record.variant(group).unwrap();
                let which = group.members.iter().position(|member| std::ptr::eq(member, variant)).unwrap();
                let _ = write!(text, "{which}:");
                match variant {
                    Member::Leaf(leaf) => read_value(record.get(*leaf), text),
                    Member::Group(variant) => read(record, &variant.members, text),
                }
            }
            Member::Group(group) => {
                text.push('{');
                read(record, &group.members, text);
                text.push('}');
            }
        }
    }
}

fn read_value(value: Value<'_>, text: &mut String) {
    match value {
        Value::Null => text.push_str("null,"),
        Value::List(list) => {
            text.push('[');
            list.iter().for_each(|value| read_value(value, text));
            text.push(']');
        }
        Value::Record(record) => {
            text.push('{');
            read(&record, record.format().tree(), text);
            text.push('}');
        }
        value => {
            let _ = write!(text, "{:?},", shown(value));
        }
    }
}

/// Whether all that is in a group without a value has none: so it is where a builder wrote it, not in any bytes.
fn nulls_agree(record: &Record<'_>, members: &[Member]) -> bool {
    members.iter().all(|member| match member {
        Member::Leaf(_) => true,
        Member::Group(group) if record.group_is_null(group) => group.leaves.clone().all(|leaf| record.is_null(leaf)),
        Member::Group(group) => nulls_agree(record, &group.members),
    })
}

fn text_of(record: &Record<'_>) -> String {
    let mut text = String::new();
    read(record, record.format().tree(), &mut text);
    text
}

/// Some record of the format, and what it holds as text.
fn record(row: &mut RecordBuilder, choices: &[u8]) -> (Vec<u8>, String) {
    let mut text = String::new();
    let format = row.format().clone();
    row.clear();
    write(row, format.tree(), &mut Choices(choices), &mut text);
    (row.finish().unwrap().to_vec(), text)
}

proptest! {
    #[test]
    fn formats_are_their_texts(format in format()) {
        let description = format.describe();
        let back = Format::parse(&description).map_err(|error| TestCaseError::fail(format!("{error}\n{description}")))?;
        prop_assert_eq!((back.fields(), back.tree(), back.id()), (format.fields(), format.tree(), format.id()));
        let back = Format::parse_schema(&format.schema()).unwrap();
        prop_assert_eq!((back.fields(), back.tree(), back.id()), (format.fields(), format.tree(), format.id()));
        prop_assert_eq!(Format::natural(format.specs()).unwrap().describe(), description);
    }

    #[test]
    fn records_hold_what_was_written(format in format(), choices in vec(vec(any::<u8>(), 0..120), 1..4)) {
        let mut row = RecordBuilder::new(&format);
        let mut again = RecordBuilder::new(&format);
        let encoder = JsonEncoder::new(&format);
        let mut decoder = JsonDecoder::new(&format, &JsonOptions::default());
        for choices in choices {
            let (bytes, text) = record(&mut row, &choices);
            let checked = Record::check(&format, &bytes)
                .map_err(|error| TestCaseError::fail(format!("{error}: {:?}", error.field_path(&format))))?;
            prop_assert_eq!(text_of(&checked), text.clone());
            prop_assert!(nulls_agree(&checked, format.tree()));
            // Over the record before: nothing of it stays behind.
            again.copy(&checked).unwrap();
            let copied = again.finish().unwrap().to_vec();
            let copy = Record::check(&format, &copied).unwrap();
            prop_assert_eq!(text_of(&copy), text.clone());
            prop_assert!(copy == checked);
            // Nothing stays behind but what the order of the values leaves empty between them.
            prop_assert!(copied.len() <= 2 * bytes.len(), "{} > {}", copied.len(), bytes.len());
            let mut line = Vec::new();
            encoder.record(&checked, &mut line);
            let decoded = decoder.decode(&line).map_err(|error| {
                TestCaseError::fail(format!("{error}: {}", String::from_utf8_lossy(&line)))
            })?;
            prop_assert_eq!(text_of(&Record::check(&format, decoded).unwrap()), text);
        }
    }

    #[test]
    fn hostile_bytes_never_panic(
        format in format(),
        choices in vec(any::<u8>(), 0..120),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut row = RecordBuilder::new(&format);
        let (mut bytes, _) = record(&mut row, &choices);
        for (at, with) in changes {
            let at = at.index(bytes.len());
            bytes[at] = with;
        }
        row.clear();
        match Record::check(&format, &bytes) {
            Ok(record) => {
                text_of(&record);
                // A list whose elements are shared would make a longer record.
                if row.copy(&record).is_ok() {
                    let copied = row.finish().map_or(0, <[u8]>::len);
                    prop_assert!(copied <= record.bytes().len() + 8 * format.fields().len() * record.bytes().len());
                }
            }
            Err(error) => {
                let _ = error.field_path(&format);
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }
}
