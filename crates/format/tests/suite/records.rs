//! Records: what a builder writes passes the check and reads back, and no bytes whatever make a check or a read panic.

use crate::arbitrary::{Owned, format, payload, row, rows};
use crossdock_format::{
    FieldSpec, FieldType, Format, Record, RecordBuilder, RecordProblem, Value, ValueProblem, record_len,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Reads every field, and one that is not there.
fn read_all(record: &Record<'_>) {
    for field in 0..=record.format().fields().len() {
        assert_eq!(record.is_null(field), record.get(field).is_null());
    }
    let _ = format!("{record:?}");
}

proptest! {
    #[test]
    fn records_read_back((format, rows) in rows()) {
        let payload = payload(&format, &rows);
        let mut spans = Vec::new();
        let records = format.check_records(&payload, |start, len| spans.push((start as usize, len as usize)));
        prop_assert_eq!(records, Ok(rows.len()));
        prop_assert_eq!(spans.len(), rows.len());
        let mut end = 0;
        for ((start, len), row) in spans.into_iter().zip(&rows) {
            prop_assert_eq!(start, end);
            end = start + len;
            prop_assert_eq!(record_len(&payload[start..]), Some(len));
            let record = Record::check(&format, &payload[start..]).unwrap();
            prop_assert_eq!(record.bytes(), &payload[start..end]);
            for (field, value) in row.iter().enumerate() {
                prop_assert_eq!(record.get(field), value.value());
            }
            read_all(&record);
        }
        prop_assert_eq!(end, payload.len());
    }

    #[test]
    fn a_value_that_is_set_again_leaves_nothing_behind((format, rows) in rows()) {
        let fresh: Vec<u8> = payload(&format, rows.get(..1).unwrap_or_default());
        let mut builder = RecordBuilder::new(&format);
        // All rows over one another, the first last; fields in the same order, so the bytes are the same.
        for row in rows.iter().rev() {
            for (field, value) in row.iter().enumerate() {
                builder.set(field, value.value()).unwrap();
            }
        }
        if !rows.is_empty() {
            prop_assert_eq!(builder.finish().unwrap(), fresh);
        }
    }

    #[test]
    fn a_record_is_its_values_whatever_stood_there_before(
        (format, first, second) in format().prop_flat_map(|format| (Just(format.clone()), row(&format), row(&format)))
    ) {
        let mut builder = RecordBuilder::new(&format);
        for (field, value) in first.iter().enumerate() {
            builder.set(field, value.value()).unwrap();
        }
        let _ = builder.finish().unwrap();
        for (field, value) in second.iter().enumerate().rev() {
            builder.set(field, value.value()).unwrap();
        }
        let record = Record::check(&format, builder.finish().unwrap()).unwrap();
        for (field, value) in second.iter().enumerate() {
            prop_assert_eq!(record.get(field), value.value());
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(format in format(), bytes in vec(any::<u8>(), 0..400)) {
        let _ = format.check_records(&bytes, |_, _| {});
        let _ = Record::check(&format, &bytes);
        read_all(&Record::assume_checked(&format, &bytes));
    }

    #[test]
    fn mutated_records_never_panic(
        (format, rows) in rows(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut payload = payload(&format, &rows);
        if payload.is_empty() {
            return Ok(());
        }
        for (at, byte) in changes {
            let at = at.index(payload.len());
            payload[at] ^= byte;
        }
        for bytes in [&payload[..], &payload[..cut.index(payload.len())]] {
            let mut end = 0;
            let outcome = format.check_records(bytes, |start, len| {
                assert_eq!(start as usize, end);
                end += len as usize;
                let record = Record::check(&format, &bytes[start as usize..end]).expect("was just checked");
                assert_eq!(record.bytes().len(), len as usize);
                read_all(&record);
            });
            match outcome {
                Ok(_) => prop_assert_eq!(end, bytes.len()),
                Err(error) => {
                    prop_assert_eq!(error.at, end);
                    prop_assert_eq!(Record::check(&format, &bytes[end..]).unwrap_err().problem, error.problem);
                    prop_assert!(!error.to_string().is_empty());
                }
            }
            read_all(&Record::assume_checked(&format, bytes));
        }
    }
}

fn flight() -> Format {
    Format::parse_schema(
        "carrier char[2]\nflight u16\ndep_delay i32 null\ndiverted bool\ntailnum string null\nnote bytes",
    )
    .expect("a sound schema")
}

#[test]
fn layout_is_as_documented() {
    let format = flight();
    let mut builder = RecordBuilder::new(&format);
    builder.set_text(0, "U").unwrap();
    builder.set_u64(1, 0x1234).unwrap();
    builder.set_i64(2, -2).unwrap();
    builder.set_bool(3, true).unwrap();
    builder.set_text(4, "N14228").unwrap();
    builder.set_bytes(5, &[0xff; 3]).unwrap();
    #[rustfmt::skip]
    let expected = [
        56, 0, 0, 0, // length
        0, // null bitmap: dep_delay, tailnum
        b'U', 0, // carrier
        0, 0x34, 0x12, // padding, flight
        0, 0, 0xfe, 0xff, 0xff, 0xff, // padding, dep_delay
        1, 0, 0, 0, // diverted, padding
        40, 0, 0, 0, 6, 0, 0, 0, // tailnum
        46, 0, 0, 0, 3, 0, 0, 0, // note
        0, 0, 0, 0, // fixed part to 40
        b'N', b'1', b'4', b'2', b'2', b'8', 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(format.fixed_bytes(), 40);
    assert_eq!(builder.finish().unwrap(), expected);

    builder.set_null(2).unwrap();
    builder.set_null(4).unwrap();
    let record = builder.finish().unwrap().to_vec();
    assert_eq!(record[4], 0b11);
    assert_eq!(record[12..16], [0; 4]);
    assert_eq!(record[20..28], [0; 8]);
    assert_eq!(record[28..36], [40, 0, 0, 0, 3, 0, 0, 0]);
}

#[test]
fn unset_fields_are_null_or_missed() {
    let format = flight();
    let mut builder = RecordBuilder::new(&format);
    for (field, value) in [(0, Value::Text(b"UA")), (1, Value::Int(7)), (3, Value::Bool(false))] {
        builder.set(field, value).unwrap();
    }
    let error = builder.finish().unwrap_err();
    assert_eq!((error.field, &error.problem), (5, &ValueProblem::NotSet));
    assert_eq!(error.to_string(), "field `note`: has no value, and is not nullable");
    builder.set(5, Value::Bytes(b"")).unwrap();
    let record = Record::check(&format, builder.finish().unwrap()).unwrap();
    assert!(record.is_null(2) && record.is_null(4) && !record.is_null(5));
    builder.clear();
    assert_eq!(builder.finish().unwrap_err().field, 0);
}

#[test]
fn values_that_do_not_fit_are_named() {
    let format = flight();
    let mut builder = RecordBuilder::new(&format);
    let cases = [
        (0, Value::Text(b"UAL"), "field `carrier`: found a text of 3 bytes, expected at most 2 for char[2]"),
        (
            0,
            Value::Text(b"U\0"),
            "field `carrier`: found a text that ends in NUL, which char[N] cannot distinguish from padding; use string",
        ),
        (0, Value::Null, "field `carrier`: found null, and the field is not nullable"),
        (1, Value::Int(-1), "field `flight`: found -1, expected u16 (0 to 65535)"),
        (1, Value::Uint(u64::MAX), "field `flight`: found 18446744073709551615, expected u16 (0 to 65535)"),
        (1, Value::Float(1.0), "field `flight`: found float, expected u16"),
        (2, Value::Int(1 << 31), "field `dep_delay`: found 2147483648, expected i32 (-2147483648 to 2147483647)"),
        (4, Value::Bytes(b"x"), "field `tailnum`: found bytes, expected string"),
        (6, Value::Null, "field 7: the format has 6 fields"),
    ];
    for (field, value, message) in cases {
        assert_eq!(builder.set(field, value).unwrap_err().to_string(), message);
    }
    let floats = Format::natural([FieldSpec::new("x", FieldType::F32)]).unwrap();
    let mut builder = RecordBuilder::new(&floats);
    assert!(builder.set_f64(0, 1e300).unwrap_err().to_string().contains("found 1e300, expected f32"));
    builder.set_f64(0, f64::INFINITY).unwrap();
}

#[test]
fn integers_fit_exactly_their_range() {
    let types = [
        FieldType::I8,
        FieldType::I16,
        FieldType::I32,
        FieldType::I64,
        FieldType::U8,
        FieldType::U16,
        FieldType::U32,
        FieldType::U64,
    ];
    for ty in types {
        let format = Format::natural([FieldSpec::new("x", ty)]).unwrap();
        let mut builder = RecordBuilder::new(&format);
        let (least, greatest) = ty.integer_range().unwrap();
        for found in [least - 1, least, -1, 0, 1, greatest, greatest + 1] {
            let value = match (i64::try_from(found), u64::try_from(found)) {
                (Ok(value), _) => Value::Int(value),
                (_, Ok(value)) => Value::Uint(value),
                _ => continue,
            };
            let outcome = builder.set(0, value);
            if (least..=greatest).contains(&found) {
                outcome.unwrap();
                let read = match Record::check(&format, builder.finish().unwrap()).unwrap().get(0) {
                    Value::Int(value) => i128::from(value),
                    Value::Uint(value) => i128::from(value),
                    other => panic!("{other:?}"),
                };
                assert_eq!(read, found);
            } else {
                assert_eq!(outcome.unwrap_err().problem, ValueProblem::IntegerRange { found, ty });
            }
        }
    }
}

#[test]
fn unsound_records_are_refused_with_the_reason() {
    let format = Format::parse_schema("a string\nok bool\nb bytes").unwrap();
    let mut builder = RecordBuilder::new(&format);
    for (field, value) in [(0, Value::Text(b"12345678")), (1, Value::Bool(true)), (2, Value::Bytes(b"12345678"))] {
        builder.set(field, value).unwrap();
    }
    let sound = builder.finish().unwrap().to_vec();
    // Length 0..4, slot of `a` 4..12, `ok` 12, slot of `b` 16..24, variable part 24..40.
    assert_eq!(sound.len(), 40);
    type Change = (usize, u8);
    let cases: &[(&[Change], RecordProblem)] = &[
        (&[(0, 41)], RecordProblem::Length { stated: Some(41), available: 40, fixed: 24 }),
        (&[(0, 48)], RecordProblem::Length { stated: Some(48), available: 40, fixed: 24 }),
        (&[(0, 16)], RecordProblem::Length { stated: Some(16), available: 40, fixed: 24 }),
        (&[(0, 0)], RecordProblem::Length { stated: Some(0), available: 40, fixed: 24 }),
        (&[(4, 33)], RecordProblem::Slot { field: 0, start: 33, len: 8 }),
        (&[(4, 23)], RecordProblem::Slot { field: 0, start: 23, len: 8 }),
        (&[(8, 17)], RecordProblem::Slot { field: 0, start: 24, len: 17 }),
        (&[(19, 255), (23, 255)], RecordProblem::Slot { field: 2, start: 0xff00_0020, len: 0xff00_0008 }),
        (&[(8, 9)], RecordProblem::SharedBytes { claimed: 17, available: 16 }),
        (&[(12, 2)], RecordProblem::Bool { field: 1, found: 2 }),
    ];
    for (changes, problem) in cases {
        let mut bytes = sound.clone();
        for (at, byte) in *changes {
            bytes[*at] = *byte;
        }
        assert_eq!(Record::check(&format, &bytes).unwrap_err().problem, *problem);
        let mut payload = sound.clone();
        payload.extend_from_slice(&bytes);
        let mut seen = 0;
        let error = format.check_records(&payload, |_, _| seen += 1).unwrap_err();
        assert_eq!((error.at, seen), (40, 1), "{error}");
    }
    for cut in 0..sound.len() {
        assert_eq!(Record::check(&format, &sound[..cut]).unwrap_err().problem.reason(), "record_length");
    }
    assert_eq!(format.check_records(&[], |_, _| {}), Ok(0));
}

#[test]
fn a_record_stops_growing_at_its_bound() {
    let format = Format::parse_schema("a bytes\nb bytes null").unwrap();
    let mut builder = RecordBuilder::new(&format);
    let big = vec![7; crossdock_format::MAX_RECORD_BYTES];
    assert!(matches!(builder.set_bytes(0, &big).unwrap_err().problem, ValueProblem::RecordTooLong { .. }));
    let half = &big[..big.len() / 2 + 1];
    builder.set_bytes(0, half).unwrap();
    assert!(matches!(builder.set_bytes(1, half).unwrap_err().problem, ValueProblem::RecordTooLong { .. }));
    // Setting it again takes the room of what it was.
    builder.set_bytes(0, half).unwrap();
    let record = Record::check(&format, builder.finish().unwrap()).unwrap();
    assert_eq!(record.get(0), Value::Bytes(half));
    assert!(record.is_null(1));
}

#[test]
fn owned_values_are_complete() {
    // `Owned` stands for `Value` in these tests: it must not lose the difference between text and bytes.
    assert_ne!(Owned::Text("a".into()).value(), Owned::Bytes(b"a".to_vec()).value());
}

#[test]
fn text_is_shown_as_text_and_fields_are_found_by_name() {
    let format =
        Format::parse_schema("carrier char[2]\nname string\nraw bytes\npos record { x i32 }\ntags string[]").unwrap();
    let mut builder = RecordBuilder::new(&format);
    builder.set_text(0, "UA").unwrap();
    builder.set_text(1, b"a\xff").unwrap();
    builder.set_bytes(2, b"UA").unwrap();
    builder.set_i64(3, -1).unwrap();
    builder.begin_list(4).unwrap();
    builder.push(Value::Text("é".as_bytes())).unwrap();
    builder.end_list().unwrap();
    let record = Record::check(&format, builder.finish().unwrap()).unwrap();
    assert_eq!(
        format!("{record:?}"),
        "{\"carrier\": Text(\"UA\"), \"name\": Text([97, 255]), \"raw\": Bytes([85, 65]), \"pos.x\": Int(-1), \
         \"tags\": List([Text(\"é\")])}"
    );
    assert_eq!(record.field("carrier"), Some(Value::Text(b"UA")));
    assert_eq!(record.field("pos.x"), Some(Value::Int(-1)));
    assert_eq!(record.field("origin"), None);
}
