//! Any format with nested records, lists, enumerations, decimals and unions, and any records of it.

use crossdock_format::{
    Count, ElementKind, Field, FieldSpec, FieldType, Format, Member, Record, RecordBuilder, TypeSpec, Value,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Numbers out of a seed.
#[derive(Clone, Debug)]
pub(crate) struct RandomWords(pub(crate) u64);

impl RandomWords {
    pub(crate) fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Small as often as not, and of any size.
    fn number(&mut self) -> u64 {
        let shift = self.below(64);
        let word = self.next() >> shift;
        if self.below(3) == 0 { word.wrapping_neg() } else { word }
    }
}

fn scalar() -> impl Strategy<Value = TypeSpec> {
    let decimal = (prop_oneof![Just(4_u8), Just(8), Just(16)], 0_u8..9)
        .prop_map(|(bytes, scale)| TypeSpec::Scalar(FieldType::Decimal { bytes, scale }));
    let symbols = vec(-200_i64..200, 0..5);
    let enumeration = (prop_oneof![Just(2_u8), Just(4), Just(8)], symbols).prop_map(|(bytes, numbers)| {
        let mut symbols: Vec<(String, i64)> = Vec::new();
        for number in numbers {
            if symbols.iter().all(|(_, known)| *known != number) {
                symbols.push((format!("S{}", symbols.len()), number));
            }
        }
        TypeSpec::Enum { bytes, signed: true, symbols }
    });
    let plain = prop_oneof![
        Just(FieldType::Bool),
        Just(FieldType::I8),
        Just(FieldType::I16),
        Just(FieldType::I32),
        Just(FieldType::I64),
        Just(FieldType::U8),
        Just(FieldType::U16),
        Just(FieldType::U32),
        Just(FieldType::U64),
        Just(FieldType::F32),
        Just(FieldType::F64),
        Just(FieldType::Timestamp),
        (1_u16..12).prop_map(FieldType::Char),
        Just(FieldType::String),
        Just(FieldType::Bytes),
    ];
    prop_oneof![6 => plain.prop_map(TypeSpec::Scalar), 1 => decimal, 1 => enumeration]
}

/// Values out of a seed.
struct Values {
    source: RandomWords,
    /// Whether enumerations have numbers without a symbol.
    has_unknown: bool,
}

/// The name of the field at a place.
type Name = fn(usize) -> String;

fn fields(ty: impl Strategy<Value = TypeSpec>, most: usize, name: Name) -> impl Strategy<Value = Vec<FieldSpec>> {
    vec((ty, any::<bool>()), 1..most).prop_map(move |types| {
        let field = |(index, (ty, nullable)): (usize, (TypeSpec, bool))| FieldSpec {
            nullable,
            ..FieldSpec::new(name(index), ty)
        };
        types.into_iter().enumerate().map(field).collect()
    })
}

fn ty(name: Name) -> impl Strategy<Value = TypeSpec> {
    scalar().prop_recursive(3, 16, 4, move |inner| {
        let list = (inner.clone(), proptest::option::weighted(0.2, 1_u32..4))
            .prop_map(|(element, count)| TypeSpec::List { element: Box::new(element), count });
        let not_union = |ty: &TypeSpec| !matches!(ty, TypeSpec::Union(_));
        prop_oneof![
            list.prop_filter("no list of unions", move |ty| match ty {
                TypeSpec::List { element, .. } => not_union(element),
                _ => true,
            }),
            fields(inner.clone(), 4, name).prop_map(TypeSpec::Record),
            fields(inner, 4, name).prop_map(|mut variants| {
                for variant in &mut variants {
                    variant.nullable = false;
                    // A union in a union would leave open which of them is null.
                    if matches!(variant.ty, TypeSpec::Union(_)) {
                        variant.ty = TypeSpec::Scalar(FieldType::I32);
                    }
                }
                TypeSpec::Union(variants)
            }),
        ]
    })
}

/// Any format of a few fields.
pub(crate) fn format() -> impl Strategy<Value = Format> {
    format_named(|index| format!("f{index}"))
}

/// The same with other names.
pub(crate) fn format_named(name: Name) -> impl Strategy<Value = Format> {
    fields(ty(name), 8, name).prop_map(|specs| Format::natural(specs).expect("names differ"))
}

/// A format, and records of it, back to back; enumerations have numbers without a symbol as well.
pub(crate) fn payload() -> impl Strategy<Value = (Format, Vec<u8>)> {
    (format(), vec(any::<u64>(), 0..5)).prop_map(|(format, seeds)| {
        let record = |seed| made(&format, seed, true);
        let payload = seeds.into_iter().flat_map(record).collect();
        (format, payload)
    })
}

/// The records of a payload.
pub(crate) fn records<'a>(format: &'a Format, mut payload: &'a [u8]) -> Vec<Record<'a>> {
    let mut records = Vec::new();
    while !payload.is_empty() {
        let record = Record::check(format, payload).expect("a sound record");
        payload = &payload[record.bytes().len()..];
        records.push(record);
    }
    records
}

/// A record of the format, made from a seed.
pub(crate) fn record(format: &Format, seed: u64) -> Vec<u8> {
    made(format, seed, false)
}

fn made(format: &Format, seed: u64, has_unknown: bool) -> Vec<u8> {
    let mut values = Values { source: RandomWords(seed), has_unknown };
    let mut builder = RecordBuilder::new(format);
    fill(&mut builder, format, format.tree(), &format.specs(), &mut values);
    builder.finish().expect("all was set").to_vec()
}

fn fill(builder: &mut RecordBuilder, format: &Format, tree: &[Member], specs: &[FieldSpec], values: &mut Values) {
    for (member, spec) in tree.iter().zip(specs) {
        if spec.nullable && values.source.below(3) == 0 {
            continue;
        }
        fill_member(builder, format, member, spec, values);
    }
}

fn fill_member(builder: &mut RecordBuilder, format: &Format, member: &Member, spec: &FieldSpec, values: &mut Values) {
    match (member, &spec.ty) {
        (Member::Leaf(index), TypeSpec::List { .. }) => fill_list(builder, &format.fields()[*index], *index, values),
        (Member::Leaf(index), _) => {
            with_value(&format.fields()[*index], values, |value| {
                builder.set(*index, value).expect("made for the field");
            });
        }
        (Member::Group(group), TypeSpec::Union(variants)) => {
            let chosen = values.source.below(variants.len() as u64) as usize;
            fill_member(builder, format, &group.members[chosen], &variants[chosen], values);
        }
        (Member::Group(group), TypeSpec::Record(fields)) => {
            builder.set_group_present(group);
            fill(builder, format, &group.members, fields, values);
        }
        _ => unreachable!("specs and tree are of one shape"),
    }
}

fn fill_list(builder: &mut RecordBuilder, field: &Field, index: usize, values: &mut Values) {
    let element = field.element().expect("a list has elements").clone();
    builder.begin_list(index).expect("a list");
    let count = match element.count {
        Count::Fixed(count) => u64::from(count),
        _ => values.source.below(4),
    };
    for _ in 0..count {
        match element.kind() {
            ElementKind::Scalar(field) if field.ty == FieldType::List => fill_list(builder, field, 0, values),
            ElementKind::Scalar(field) => with_value(field, values, |value| {
                builder.push(value).expect("made for the element");
            }),
            ElementKind::Record(format) => {
                builder.begin_element().expect("a list of records");
                fill(builder, format, format.tree(), &format.specs(), values);
                builder.end_element().expect("all was set");
            }
        }
    }
    builder.end_list().expect("as many as there are");
}

fn with_value(field: &Field, values: &mut Values, put: impl FnOnce(Value<'_>)) {
    const LONG: &str = "a rather long text that no short path takes";
    const TEXTS: [&str; 7] = ["", "a", "JFK", "naïve", "\u{1F6EB} gate", LONG, " a & <b> "];
    let number = values.source.number();
    let text = TEXTS[values.source.below(TEXTS.len() as u64) as usize];
    put(match field.ty {
        FieldType::Bool => Value::Bool(number & 1 == 1),
        FieldType::I8 => Value::Int((number as i8).into()),
        FieldType::I16 => Value::Int((number as i16).into()),
        FieldType::I32 => Value::Int((number as i32).into()),
        FieldType::I64 => Value::Int(number as i64),
        FieldType::U8 => Value::Uint((number as u8).into()),
        FieldType::U16 => Value::Uint((number as u16).into()),
        FieldType::U32 => Value::Uint((number as u32).into()),
        // Avro has no greater ones.
        FieldType::U64 => Value::Uint(number >> 1),
        FieldType::F32 => Value::Float((f32::from(number as i16) / 8.0).into()),
        FieldType::F64 => Value::Float(number as i64 as f64 / 1024.0),
        FieldType::Timestamp => Value::Timestamp(number as i64),
        FieldType::Char(room) => {
            let mut end = text.len().min(room.into());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            Value::Text(&text.as_bytes()[..end])
        }
        FieldType::String => Value::Text(text.as_bytes()),
        FieldType::Bytes => Value::Bytes(text.as_bytes()),
        FieldType::Decimal { bytes, scale } => {
            let unscaled = match bytes {
                4 => i128::from(number as i32),
                8 => i128::from(number as i64),
                _ => i128::from(number as i64) << 30,
            };
            Value::Decimal { unscaled, scale }
        }
        FieldType::Enum { bytes, .. } => {
            let symbols = field.enumeration().map_or(&[][..], |enumeration| enumeration.symbols());
            let is_known = !values.has_unknown || !number.is_multiple_of(4);
            let known = symbols.get(number as usize % symbols.len().max(1)).filter(|_| is_known);
            let number = match known {
                Some((_, number)) => *number,
                None if bytes == 2 => (number as i16).into(),
                None => (number as i32).into(),
            };
            Value::Enum { number, symbol: None }
        }
        other => unreachable!("{other} is no single value"),
    });
}
