//! Formats with everything in them, and records of them from a seed.

use crossdock_format::{
    Count, Element, ElementKind, FieldSpec, FieldType, Format, Group, Member, Record, RecordBuilder, TypeSpec, Value,
};
use proptest::prelude::*;

fn scalar() -> impl Strategy<Value = TypeSpec> {
    prop_oneof![
        6 => super::field_type().prop_map(TypeSpec::Scalar),
        1 => (prop_oneof![Just(4_u8), Just(8), Just(16)], 0_u8..12)
            .prop_map(|(bytes, scale)| TypeSpec::Scalar(FieldType::Decimal { bytes, scale })),
        1 => (prop_oneof![Just((1_u8, true)), Just((1, false)), Just((2, false)), Just((4, true)), Just((8, true))])
            .prop_map(|(bytes, signed)| TypeSpec::Enum {
                bytes,
                signed,
                symbols: vec![("BUY".to_owned(), 66), ("SELL".to_owned(), 83), ("NONE".to_owned(), 0)],
            }),
    ]
}

fn specs(of: impl Strategy<Value = TypeSpec>, range: std::ops::Range<usize>) -> impl Strategy<Value = Vec<FieldSpec>> {
    proptest::collection::vec((of, any::<bool>()), range).prop_map(|fields| {
        let named = fields.into_iter().enumerate();
        named.map(|(index, (ty, nullable))| FieldSpec { name: format!("f{index}"), ty, nullable }).collect()
    })
}

fn variants(specs: Vec<FieldSpec>) -> Vec<FieldSpec> {
    specs.into_iter().map(|spec| FieldSpec { nullable: false, ..spec }).collect()
}

fn ty() -> impl Strategy<Value = TypeSpec> {
    scalar().boxed().prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            2 => specs(inner.clone(), 1..4).prop_map(TypeSpec::Record),
            1 => specs(inner.clone(), 1..4).prop_map(|specs| TypeSpec::Union(variants(specs))),
            2 => inner.clone().prop_filter("a union is no element", |ty| !matches!(ty, TypeSpec::Union(_)))
                .prop_map(TypeSpec::list),
            1 => (inner.prop_filter("a union is no element", |ty| !matches!(ty, TypeSpec::Union(_))), 1_u32..4)
                .prop_map(|(ty, count)| TypeSpec::array(ty, count)),
        ]
    })
}

/// A format of nested records, lists, unions, enumerations and decimals.
pub fn format() -> impl Strategy<Value = Format> {
    specs(ty(), 1..6).prop_filter_map("too large", |specs| Format::natural(specs).ok())
}

/// A format, and records of it, back to back.
pub fn payload() -> impl Strategy<Value = (Format, Vec<u8>)> {
    (format(), any::<u64>(), 0_usize..5).prop_map(|(format, seed, records)| {
        let mut random = Random(seed | 1);
        let mut builder = RecordBuilder::new(&format);
        let mut payload = Vec::new();
        for _ in 0..records {
            builder.clear();
            members(&mut builder, &format, format.tree(), &mut random);
            payload.extend_from_slice(builder.finish().expect("every field was set"));
        }
        (format, payload)
    })
}

/// The records of a payload.
pub fn records<'a>(format: &'a Format, mut payload: &'a [u8]) -> Vec<Record<'a>> {
    let mut records = Vec::new();
    while !payload.is_empty() {
        let record = Record::check(format, payload).expect("a sound record");
        payload = &payload[record.bytes().len()..];
        records.push(record);
    }
    records
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 8) % bound
    }
}

fn members(builder: &mut RecordBuilder, format: &Format, places: &[Member], random: &mut Random) {
    for place in places {
        match place {
            Member::Leaf(field) => leaf(builder, format, *field, random, false),
            Member::Group(of) => group(builder, format, of, random, false),
        }
    }
}

fn group(builder: &mut RecordBuilder, format: &Format, group: &Group, random: &mut Random, must: bool) {
    if group.nullable && !must && random.below(3) == 0 {
        return;
    }
    if group.union.is_none() {
        builder.set_group_present(group);
        members(builder, format, &group.members, random);
        return;
    }
    let variant = random.below(group.members.len() as u64) as usize;
    match &group.members[variant] {
        Member::Leaf(field) => leaf(builder, format, *field, random, true),
        Member::Group(of) => self::group(builder, format, of, random, true),
    }
}

fn leaf(builder: &mut RecordBuilder, format: &Format, index: usize, random: &mut Random, must: bool) {
    let field = &format.fields()[index];
    // A field of a nested record that may be null is nullable too; whether it may be null in one that is there, the
    // builder says.
    if field.nullable && !must && random.below(3) == 0 && builder.set_null(index).is_ok() {
        return;
    }
    match field.element() {
        Some(element) => list(builder, index, element, random),
        None => value(field.ty, random, |value| builder.set(index, value).expect("made for the field")),
    }
}

fn list(builder: &mut RecordBuilder, field: usize, element: &Element, random: &mut Random) {
    let count = match element.count {
        Count::Fixed(count) => count.into(),
        _ => random.below(4),
    };
    builder.begin_list(field).expect("a list");
    for _ in 0..count {
        match element.kind() {
            ElementKind::Scalar(of) => match of.element() {
                Some(inner) => list(builder, 0, inner, random),
                None => value(of.ty, random, |value| builder.push(value).expect("made for the element")),
            },
            ElementKind::Record(format) => {
                builder.begin_element().expect("an element");
                members(builder, format, format.tree(), random);
                builder.end_element().expect("every field was set");
            }
        }
    }
    builder.end_list().expect("a whole list");
}

fn value(ty: FieldType, random: &mut Random, set: impl FnOnce(Value<'_>)) {
    let number = random.next();
    match ty {
        FieldType::Bool => set(Value::Bool(number.is_multiple_of(2))),
        FieldType::F32 => set(Value::Float(f64::from(number as u16) / 8.0)),
        FieldType::F64 => set(Value::Float(number as f64 / 1e9)),
        FieldType::Timestamp => set(Value::Timestamp(number as i64 / 4)),
        FieldType::Char(room) => set(Value::Text(&b"ab<&>c d"[..usize::from(room).min(random.below(8) as usize)])),
        FieldType::String => {
            set(Value::Text(["", "x", " a & b ", "\u{e9}\u{1F600}", "true"][random.below(5) as usize].as_bytes()));
        }
        FieldType::Bytes => set(Value::Bytes(&number.to_le_bytes()[..random.below(8) as usize])),
        FieldType::Decimal { bytes, scale } => {
            let unscaled = match bytes {
                4 => i128::from(number as i32),
                8 => i128::from(number as i64),
                _ => i128::from(number as i64) * 1_000_003,
            };
            set(Value::Decimal { unscaled, scale });
        }
        // Some that have a symbol, some that have none.
        FieldType::Enum { .. } => set(Value::Int([66, 83, 0, 5][random.below(4) as usize])),
        ty => {
            let (least, greatest) = ty.integer_range().expect("an integer");
            let range = greatest - least + 1;
            let value = least + i128::from(number) % range;
            match u64::try_from(value) {
                Ok(value) => set(Value::Uint(value)),
                Err(_) => set(Value::Int(value as i64)),
            }
        }
    }
}
