//! Any format with nested records, lists and unions, and any records of it: written, checked, read back, copied, as text and
//! as JSON; and hostile bytes for all of them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fmt::Write as _;

use crossdock_format::json::{JsonDecoder, JsonEncoder, JsonOptions};
use crossdock_format::{
    Element, ElementKind, FieldSpec, FieldType, Format, Member, Record, RecordBuilder, TypeSpec, Value,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn scalar() -> impl Strategy<Value = TypeSpec> {
    let plain = [
        FieldType::Bool,
        FieldType::I8,
        FieldType::U16,
        FieldType::I32,
        FieldType::U64,
        FieldType::F32,
        FieldType::F64,
        FieldType::Timestamp,
        FieldType::Char(3),
        FieldType::String,
        FieldType::Bytes,
        FieldType::Decimal { bytes: 4, scale: 2 },
        FieldType::Decimal { bytes: 16, scale: 38 },
    ];
    let symbols = vec![("A".to_owned(), 1), ("B b".to_owned(), 7), ("one".to_owned(), 1)];
    prop_oneof![
        4 => prop::sample::select(plain.to_vec()).prop_map(TypeSpec::from),
        1 => (prop::sample::select(vec![1_u8, 2, 4, 8]), any::<bool>()).prop_map(move |(bytes, signed)| {
            TypeSpec::Enum { bytes, signed: signed || bytes == 8, symbols: symbols.clone() }
        }),
    ]
}

fn named(fields: Vec<(TypeSpec, bool)>) -> Vec<FieldSpec> {
    let name = |index| if index % 3 == 2 { format!("a field \"{index}\"") } else { format!("f{index}") };
    fields
        .into_iter()
        .enumerate()
        .map(|(index, (ty, nullable))| FieldSpec { name: name(index), ty, nullable })
        .collect()
}

fn type_spec() -> impl Strategy<Value = TypeSpec> {
    scalar().prop_recursive(3, 24, 4, |inner| {
        let fields = vec((inner.clone(), any::<bool>()), 1..4).prop_map(named);
        let is_union = |ty: &TypeSpec| matches!(ty, TypeSpec::Union(_));
        let variants =
            vec((inner.clone().prop_filter("no union in a union", move |ty| !is_union(ty)), Just(false)), 1..4);
        prop_oneof![
            fields.clone().prop_map(TypeSpec::Record),
            variants.prop_map(named).prop_map(TypeSpec::Union),
            (inner, prop::option::of(1_u32..4)).prop_map(|(element, count)| {
                // A union is no element, but may be a field of one.
                let element = match element {
                    TypeSpec::Union(_) => TypeSpec::Record(vec![FieldSpec::new("u", element)]),
                    element => element,
                };
                TypeSpec::List { element: Box::new(element), count }
            }),
        ]
    })
}

fn format() -> impl Strategy<Value = Format> {
    vec((type_spec(), any::<bool>()), 1..5).prop_map(|fields| Format::natural(named(fields)).unwrap())
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
        row.set(leaf, value(field.ty, &bytes, &word)).unwrap();
        let _ = write!(text, "{:?},", shown(value(field.ty, &bytes, &word)));
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
                row.push(value(field.ty, &bytes, &word)).unwrap();
                let _ = write!(text, "{:?},", shown(value(field.ty, &bytes, &word)));
            }
        },
    }
}

fn value<'a>(ty: FieldType, bytes: &'a [u8; 3], word: &'a str) -> Value<'a> {
    let number = i64::from(bytes[0] as i8);
    match ty {
        FieldType::Bool => Value::Bool(number > 0),
        FieldType::U16 | FieldType::U64 => Value::Uint(bytes[0].into()),
        FieldType::F32 | FieldType::F64 => Value::Float(number as f64 / 4.0),
        FieldType::Timestamp => Value::Timestamp(number << 40),
        FieldType::Char(_) => Value::Text(if number > 0 { b"ab" } else { b"" }),
        FieldType::String => Value::Text(word.as_bytes()),
        FieldType::Bytes => Value::Bytes(bytes),
        FieldType::Decimal { scale, .. } => Value::Decimal { unscaled: number.into(), scale },
        FieldType::Enum { .. } => match bytes[0] % 3 {
            0 => Value::Enum { number: 1, symbol: Some("A") },
            1 => Value::Enum { number: 7, symbol: Some("B b") },
            _ => Value::Enum { number: 9, symbol: None },
        },
        _ => Value::Int(number),
    }
}

fn shown(value: Value<'_>) -> String {
    format!("{value:?}")
}

/// What a record holds, as [`write`] puts it.
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
            // Over the record before, of which nothing stays behind.
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
