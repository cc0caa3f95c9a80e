//! The meaning of a conversion, value by value, with a builder: nothing of it is shared with plans.

use super::{Conversion, Node, Shape};
use crossdock_format::convert::TimeUnit;
use crossdock_format::{
    Element, ElementKind, Field, FieldType, Format, Group, Member, Record, RecordBuilder, TypeSpec, Value,
};

/// The new record; `None` where it is refused.
pub(crate) fn convert(conversion: &Conversion, record: &Record<'_>) -> Option<Vec<u8>> {
    let mut builder = RecordBuilder::new(&conversion.to);
    members(&mut builder, &conversion.to, conversion.to.tree(), &conversion.nodes, record)?;
    Some(builder.finish().expect("every field was set").to_vec())
}

fn members(
    builder: &mut RecordBuilder,
    to: &Format,
    places: &[Member],
    nodes: &[Node],
    record: &Record<'_>,
) -> Option<()> {
    for (place, node) in places.iter().zip(nodes) {
        member(builder, to, place, node, record, false)?;
    }
    Some(())
}

/// Whether there is a value, or a nested record.
fn member(
    builder: &mut RecordBuilder,
    to: &Format,
    place: &Member,
    node: &Node,
    record: &Record<'_>,
    is_variant: bool,
) -> Option<bool> {
    match (place, &node.shape) {
        (Member::Leaf(index), _) => leaf(builder, &to.fields()[*index], *index, node, record, is_variant),
        (Member::Group(group), Shape::Record(nodes)) => {
            if (node.nullable || is_variant) && !is_there(node, nodes, record) {
                return Some(false);
            }
            builder.set_group_present(group);
            members(builder, to, &group.members, nodes, record)?;
            Some(true)
        }
        (Member::Group(group), Shape::Union(nodes, lost)) => {
            let mut found = 0;
            for (place, node) in group.members.iter().zip(nodes) {
                found += usize::from(member(builder, to, place, node, record, true)?);
            }
            let is_lost = lost.iter().any(|path| has_value(record, path));
            (found <= 1 && !is_lost && (found == 1 || node.nullable)).then_some(found == 1)
        }
        _ => unreachable!("nodes and tree are of one shape"),
    }
}

/// Whether a nested record that may be null is there.
fn is_there(node: &Node, nodes: &[Node], record: &Record<'_>) -> bool {
    match &node.from {
        Some(path) => group_is_there(record, path),
        None => {
            nodes.iter().any(|node| node.has_default || node.from.as_ref().is_some_and(|path| has_value(record, path)))
        }
    }
}

/// Whether a nested record and all that it lies in are there.
fn group_is_there(record: &Record<'_>, path: &str) -> bool {
    fn look(record: &Record<'_>, members: &[Member], path: &str) -> Option<bool> {
        members.iter().find_map(|member| match member {
            Member::Group(group) if group.path == path => Some(!record.group_is_null(group)),
            Member::Group(group) => {
                look(record, &group.members, path).map(|found| found && !record.group_is_null(group))
            }
            Member::Leaf(_) => None,
        })
    }
    look(record, record.format().tree(), path).expect("a nested record")
}

fn has_value(record: &Record<'_>, path: &str) -> bool {
    match record.format().field(path) {
        Some(field) => !record.is_null(field),
        None => group_is_there(record, path),
    }
}

fn leaf(
    builder: &mut RecordBuilder,
    field: &Field,
    index: usize,
    node: &Node,
    record: &Record<'_>,
    is_variant: bool,
) -> Option<bool> {
    let from = node.from.as_ref().map(|path| record.format().field(path).expect("a field"));
    match from.map(|from| (from, record.get(from))) {
        Some((_, Value::Null)) if node.nullable || is_variant => return Some(false),
        None | Some((_, Value::Null)) if node.has_default => with_default(builder, field, index),
        None => return (node.nullable || is_variant).then_some(false),
        Some((_, Value::Null)) => return None,
        Some((from, value)) => {
            put(builder, field, index, &record.format().fields()[from], &node.shape, node.unit, value)?;
        }
    }
    Some(true)
}

fn with_default(builder: &mut RecordBuilder, field: &Field, index: usize) {
    match field.ty {
        FieldType::Bool => builder.set_bool(index, true),
        FieldType::F32 | FieldType::F64 => builder.set_f64(index, 1.5),
        FieldType::Timestamp => builder.set_timestamp(index, 1_357_016_400_250_000_000),
        FieldType::Char(_) | FieldType::String => builder.set_text(index, "a"),
        FieldType::Bytes => builder.set_bytes(index, &[1, 2, 3]),
        FieldType::List => builder.begin_list(index).and_then(|()| builder.end_list()),
        _ => builder.set_i64(index, 1),
    }
    .expect("a value of the type");
}

fn put(
    builder: &mut RecordBuilder,
    field: &Field,
    index: usize,
    source: &Field,
    shape: &Shape,
    unit: TimeUnit,
    value: Value<'_>,
) -> Option<()> {
    let Value::List(list) = value else {
        return builder.set(index, single(value, &source.type_spec(), &field.type_spec(), unit)?).ok();
    };
    let (Shape::List(inner, _), Some(element)) = (shape, field.element()) else { unreachable!("lists become lists") };
    // One more list in a list whose count is reached is refused.
    builder.begin_list(index).ok()?;
    for value in list.iter() {
        one(builder, element, list.element(), inner, unit, value)?;
    }
    builder.end_list().ok()
}

/// One element of the list that is open.
fn one(
    builder: &mut RecordBuilder,
    element: &Element,
    source: &Element,
    shape: &Shape,
    unit: TimeUnit,
    value: Value<'_>,
) -> Option<()> {
    match (element.kind(), source.kind()) {
        (ElementKind::Record(format), _) => {
            let (Value::Record(record), Shape::Record(nodes)) = (value, shape) else {
                unreachable!("a list of records")
            };
            builder.begin_element().ok()?;
            members(builder, format, format.tree(), nodes, &record)?;
            builder.end_element().expect("every field was set");
            Some(())
        }
        (ElementKind::Scalar(field), ElementKind::Scalar(source)) => match value {
            Value::List(_) => put(builder, field, 0, source, shape, unit, value),
            value => builder.push(single(value, &source.type_spec(), &field.type_spec(), unit)?).ok(),
        },
        _ => unreachable!("values become values"),
    }
}

/// The meaning of a conversion, as its page says it: `None` where the record is refused.
fn single<'a>(value: Value<'a>, from: &TypeSpec, ty: &TypeSpec, unit: TimeUnit) -> Option<Value<'a>> {
    use FieldType as T;
    let to = match ty {
        TypeSpec::Scalar(ty) => *ty,
        TypeSpec::Enum { bytes, signed, .. } => T::Enum { bytes: *bytes, signed: *signed },
        _ => unreachable!("a single value"),
    };
    let symbols = |ty: &TypeSpec| match ty {
        TypeSpec::Enum { symbols, .. } => symbols.clone(),
        _ => Vec::new(),
    };
    match value {
        Value::Bool(_) if to == T::Bool => Some(value),
        Value::Bool(value) => whole(value.into(), to, unit),
        Value::Timestamp(_) if to == T::Timestamp => Some(value),
        Value::Timestamp(value) => whole((i128::from(value)).div_euclid(unit.nanoseconds().into()), to, unit),
        Value::Int(value) => whole(value.into(), to, unit),
        Value::Uint(value) => whole(value.into(), to, unit),
        Value::Float(value) => float(value, to),
        Value::Enum { number, .. } if matches!(to, T::Enum { .. }) && symbols(from) == symbols(ty) => {
            whole(number.into(), to, unit)
        }
        Value::Enum { symbol, .. } if matches!(to, T::Enum { .. }) => {
            let symbol = symbol?;
            symbols(ty).iter().find(|(known, _)| known == symbol).map(|(_, number)| Value::Int(*number))
        }
        Value::Enum { symbol, .. } if to.is_text() => text(symbol?.as_bytes(), to),
        Value::Enum { number, .. } => whole(number.into(), to, unit),
        Value::Text(text) if matches!(to, T::Enum { .. }) => {
            let known = |symbol: &str| symbol.as_bytes() == text;
            symbols(ty).iter().find(|(symbol, _)| known(symbol)).map(|(_, number)| Value::Int(*number))
        }
        Value::Decimal { unscaled, scale } => decimal(unscaled, scale, to),
        Value::Text(bytes) | Value::Bytes(bytes) => match to {
            T::Bytes => Some(Value::Bytes(bytes)),
            _ if matches!(value, Value::Bytes(_)) && std::str::from_utf8(bytes).is_err() => None,
            to => text(bytes, to),
        },
        Value::Null | Value::List(_) | Value::Record(_) => unreachable!("a single value"),
    }
}

fn text(text: &[u8], to: FieldType) -> Option<Value<'_>> {
    match to {
        FieldType::Char(room) if text.len() > room.into() || text.ends_with(b"\0") => None,
        _ => Some(Value::Text(text)),
    }
}

fn whole<'a>(number: i128, to: FieldType, unit: TimeUnit) -> Option<Value<'a>> {
    use FieldType as T;
    match to {
        T::I8 => i8::try_from(number).ok().map(|value| Value::Int(value.into())),
        T::I16 => i16::try_from(number).ok().map(|value| Value::Int(value.into())),
        T::I32 => i32::try_from(number).ok().map(|value| Value::Int(value.into())),
        T::I64 => i64::try_from(number).ok().map(Value::Int),
        T::U8 => u8::try_from(number).ok().map(|value| Value::Uint(value.into())),
        T::U16 => u16::try_from(number).ok().map(|value| Value::Uint(value.into())),
        T::U32 => u32::try_from(number).ok().map(|value| Value::Uint(value.into())),
        T::U64 => u64::try_from(number).ok().map(Value::Uint),
        T::F32 => Some(Value::Float((number as f32).into())),
        T::F64 => Some(Value::Float(number as f64)),
        T::Bool if number == 0 || number == 1 => Some(Value::Bool(number == 1)),
        T::Timestamp => i64::try_from(number * i128::from(unit.nanoseconds())).ok().map(Value::Timestamp),
        // The builder refuses what has no room.
        T::Decimal { .. } => Some(Value::Decimal { unscaled: number, scale: 0 }),
        T::Enum { .. } => i64::try_from(number).ok().map(Value::Int),
        _ => None,
    }
}

fn float<'a>(value: f64, to: FieldType) -> Option<Value<'a>> {
    use FieldType as T;
    match to {
        T::F32 if value.is_finite() && (value as f32).is_infinite() => None,
        T::F32 => Some(Value::Float((value as f32).into())),
        T::F64 => Some(Value::Float(value)),
        T::Decimal { scale, .. } => {
            let digits = format!("{value:.*}", usize::from(scale)).replace('.', "");
            Some(Value::Decimal { unscaled: digits.parse().ok()?, scale })
        }
        _ if value.is_finite() && value.abs() < 1e30 => whole(value.round_ties_even() as i128, to, TimeUnit::Seconds),
        _ => None,
    }
}

fn decimal<'a>(unscaled: i128, scale: u8, to: FieldType) -> Option<Value<'a>> {
    match to {
        FieldType::F32 => format!("{unscaled}e-{scale}").parse::<f32>().ok().map(|value| Value::Float(value.into())),
        FieldType::F64 => format!("{unscaled}e-{scale}").parse::<f64>().ok().map(Value::Float),
        FieldType::Decimal { .. } => Some(Value::Decimal { unscaled, scale }),
        _ => {
            let unit = 10_i128.checked_pow(scale.into())?;
            (unscaled % unit == 0).then(|| whole(unscaled / unit, to, TimeUnit::Seconds))?
        }
    }
}

/// Whether all that lies in a nested record which is null is null: so it is where a builder wrote it, not in any bytes.
pub(crate) fn is_canonical(record: &Record<'_>, members: &[Member]) -> bool {
    let leaf_is = |field: usize| match record.get(field) {
        Value::List(list) => list.iter().all(|value| match value {
            Value::Record(record) => is_canonical(&record, record.format().tree()),
            _ => true,
        }),
        _ => true,
    };
    let group_is = |group: &Group| match record.group_is_null(group) {
        true => group.leaves.clone().all(|leaf| record.is_null(leaf)),
        false => is_canonical(record, &group.members),
    };
    members.iter().all(|member| match member {
        Member::Leaf(field) => leaf_is(*field),
        Member::Group(group) => group_is(group),
    })
}
