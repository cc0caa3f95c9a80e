//! Functions of lists, which are read where they lie in the record.

use std::cmp::Ordering;

use crossdock_format::{ElementKind, FieldType};

use super::{Answer, Arguments, Body, Function, Gives, Kind, Scratch};
use crate::interpret::{Datum, EvalError, compare, print};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(
        ("[]", &[Kind::Values, Kind::Integer], Gives::Element),
        "the element of this number, from 1; null if there is none",
        ("stops[2]", "ORD"),
        Body::Values(element),
    )
    .nullable()
    .sure()
    .but("no slices `list[1:2]`: expressions make no lists"),
    Function::new(
        ("cardinality", &[Kind::List], Gives::Type(FieldType::I64)),
        "the number of elements",
        ("cardinality(stops)", "2"),
        Body::Values(|arguments, _| Ok(Answer::Int(arguments.list(0)?.len() as i128))),
    )
    .sure()
    .but("of a list of lists the lists in it count, not their elements: they may be of different lengths"),
    Function::new(
        ("array_length", &[Kind::List, Kind::Integer], Gives::Type(FieldType::I64)),
        "the number of elements, with 1 as the second argument; null if there is none, and with another number",
        ("array_length(stops, 1)", "2"),
        Body::Values(length),
    )
    .nullable()
    .sure()
    .but("a list of lists has one dimension too"),
    Function::new(
        ("array_position", &[Kind::Values, Kind::Element, Kind::Integer], Gives::Type(FieldType::I64)),
        "the number of the first element that is equal, from that of the third argument on (1 if left out); null if there is none",
        ("array_position(stops, 'ORD')", "2"),
        Body::Values(position),
    )
    .optional(1)
    .nullable()
    .sure()
    .but("null for a null, which is not looked for: a list has none"),
    Function::new(
        ("array_to_string", &[Kind::Values, Kind::Text], Gives::Type(FieldType::String)),
        "the elements as texts, with the second argument in between",
        ("array_to_string(stops, ' > ')", "DEN > ORD"),
        Body::Values(joined),
    )
    .but("the texts are those of `CAST`, such as `true`; no text for nulls: a list has none"),
];

fn element(arguments: &Arguments<'_, '_>, _: &mut Scratch) -> Result<Answer, EvalError> {
    // A number beyond the end gives null.
    let index = usize::try_from(arguments.int(1)? - 1);
    Ok(index.map_or(Answer::Null, |index| Answer::Element { argument: 0, index }))
}

fn length(arguments: &Arguments<'_, '_>, _: &mut Scratch) -> Result<Answer, EvalError> {
    let length = arguments.list(0)?.len();
    Ok(if length > 0 && arguments.int(1)? == 1 { Answer::Int(length as i128) } else { Answer::Null })
}

fn position(arguments: &Arguments<'_, '_>, _: &mut Scratch) -> Result<Answer, EvalError> {
    let wanted = arguments.values.get(1).copied().unwrap_or(Datum::Null);
    let first = if arguments.count() > 2 { arguments.int(2)? } else { 1 };
    for (number, value) in (1..).zip(arguments.list(0)?.iter()) {
        if number >= first && compare(value.into(), wanted, arguments.made)? == Some(Ordering::Equal) {
            return Ok(Answer::Int(number));
        }
    }
    Ok(Answer::Null)
}

fn joined(arguments: &Arguments<'_, '_>, scratch: &mut Scratch) -> Result<Answer, EvalError> {
    let (list, between) = (arguments.list(0)?, arguments.bytes(1)?);
    let ElementKind::Scalar(field) = list.element().kind() else { return Err(EvalError::IllTyped) };
    let mut is_first = true;
    // A number of an enumeration without a symbol is null.
    for value in list.iter().map(Datum::from).filter(|value| !matches!(value, Datum::Null)) {
        scratch.push(if is_first { b"" } else { between })?;
        is_first = false;
        match value {
            Datum::Text(text) => scratch.push(text.bytes(&[]))?,
            Datum::Bytes(bytes) => {
                scratch.push(b"\\x")?;
                for byte in bytes.bytes(&[]) {
                    let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or('0') as u8;
                    scratch.push(&[digit(byte >> 4), digit(byte & 15)])?;
                }
            }
            value => _ = print(value, field.ty, &mut scratch.text)?,
        }
    }
    Ok(Answer::Made)
}
