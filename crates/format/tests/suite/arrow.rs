//! Arrow IPC: the library reads what we write, we read what it writes, and what is wrong is named.
#![cfg(feature = "arrow")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufReader, Cursor};
use std::sync::Arc;

use crate::any::{payload as any_payload, records as any_records};
use crate::arbitrary::{Owned, payload, rows};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampNanosecondType, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Date64Array, DictionaryArray, FixedSizeBinaryArray,
    Float16Array, Float64Array, Int32Array, Int64Array, LargeBinaryArray, LargeStringArray, NullArray, RecordBatch,
    StringArray, StringViewArray, Time64MicrosecondArray, TimestampMillisecondArray, TimestampSecondArray, UInt8Array,
};
use arrow_ipc::CompressionType;
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use crossdock_format::encoding::arrow::{ArrowDecoder, ArrowEncoder, BATCH_ROWS, export, import};
use crossdock_format::encoding::{Decoder, Encoder, EncodingError, EncodingOptions, EncodingProblem, Loss};
use crossdock_format::{Format, Record, RecordBuilder, Value};
use proptest::prelude::*;

fn options() -> EncodingOptions {
    EncodingOptions::default()
}

fn records<'a>(format: &'a Format, mut payload: &'a [u8]) -> Vec<Record<'a>> {
    let mut records = Vec::new();
    while let Ok(record) = Record::check(format, payload) {
        payload = &payload[record.bytes().len()..];
        records.push(record);
    }
    assert!(payload.is_empty());
    records
}

fn encode(format: &Format, payload: &[u8], file: bool) -> Vec<u8> {
    let mut encoder = ArrowEncoder::new(format, file, &options()).unwrap();
    let mut out = Vec::new();
    encoder.start(&mut out);
    for record in records(format, payload) {
        encoder.record(&record, &mut out).unwrap();
    }
    encoder.finish(&mut out).unwrap();
    out
}

fn read_all(decoder: &mut dyn Decoder, bytes: &[u8], buffer_bytes: usize) -> (Vec<u8>, Vec<EncodingError>) {
    let mut input = BufReader::with_capacity(buffer_bytes, bytes);
    let (mut payload, mut errors) = (Vec::new(), Vec::new());
    loop {
        match decoder.next_record(&mut input) {
            Ok(Some(record)) => payload.extend_from_slice(record),
            Ok(None) => return (payload, errors),
            Err(error) => {
                let goes_on = error.is_item();
                errors.push(error);
                if !goes_on {
                    return (payload, errors);
                }
            }
        }
    }
}

fn decode(format: &Format, bytes: &[u8], buffer_bytes: usize) -> (Vec<u8>, Vec<EncodingError>) {
    read_all(&mut ArrowDecoder::new(format, &options()), bytes, buffer_bytes)
}

/// The format that an input says, and its records.
fn open(mut bytes: &[u8], options: &EncodingOptions) -> Result<(Format, Vec<u8>), EncodingError> {
    let (format, mut decoder) = ArrowDecoder::open(&mut bytes, options)?;
    let (payload, mut errors) = read_all(&mut decoder, bytes, 100);
    if errors.is_empty() { Ok((format, payload)) } else { Err(errors.remove(0)) }
}

fn stream_of(batch: &RecordBatch, options: IpcWriteOptions) -> Vec<u8> {
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

/// The value in an array of one of the types that we write.
fn value_of(array: &dyn Array, row: usize) -> Owned {
    if array.is_null(row) {
        return Owned::Null;
    }
    match array.data_type() {
        DataType::Boolean => Owned::Bool(array.as_boolean().value(row)),
        DataType::Int8 => Owned::Int(array.as_primitive::<Int8Type>().value(row).into()),
        DataType::Int16 => Owned::Int(array.as_primitive::<Int16Type>().value(row).into()),
        DataType::Int32 => Owned::Int(array.as_primitive::<Int32Type>().value(row).into()),
        DataType::Int64 => Owned::Int(array.as_primitive::<Int64Type>().value(row)),
        DataType::UInt8 => Owned::Uint(array.as_primitive::<UInt8Type>().value(row).into()),
        DataType::UInt16 => Owned::Uint(array.as_primitive::<UInt16Type>().value(row).into()),
        DataType::UInt32 => Owned::Uint(array.as_primitive::<UInt32Type>().value(row).into()),
        DataType::UInt64 => Owned::Uint(array.as_primitive::<UInt64Type>().value(row)),
        DataType::Float32 => Owned::Float(array.as_primitive::<Float32Type>().value(row).into()),
        DataType::Float64 => Owned::Float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Timestamp(..) => Owned::Timestamp(array.as_primitive::<TimestampNanosecondType>().value(row)),
        DataType::Utf8 => Owned::Text(array.as_string::<i32>().value(row).to_owned()),
        DataType::Binary => Owned::Bytes(array.as_binary::<i32>().value(row).to_owned()),
        other => panic!("we do not write {other}"),
    }
}

proptest! {
    #[test]
    fn records_read_back((format, rows) in rows(), file in any::<bool>(), buffer_bytes in 1_usize..300) {
        let payload = payload(&format, &rows);
        let bytes = encode(&format, &payload, file);
        let (back, errors) = decode(&format, &bytes, buffer_bytes);
        prop_assert!(errors.is_empty(), "{errors:?}");
        prop_assert_eq!(&back, &payload);
        // The very same format, with what Arrow's types do not say.
        let (found, back) = open(&bytes, &options()).unwrap();
        prop_assert_eq!((found.describe(), back), (format.describe(), payload));
    }

    #[test]
    fn nested_records_lists_and_unions_read_back(
        (format, payload) in any_payload(), file in any::<bool>(), symbols in any::<bool>(),
    ) {
        let allow = if symbols { vec![Loss::Enum] } else { vec![] };
        let mut encoder = ArrowEncoder::new(&format, file, &EncodingOptions { allow, ..options() }).unwrap();
        let mut bytes = Vec::new();
        encoder.start(&mut bytes);
        for record in any_records(&format, &payload) {
            encoder.record(&record, &mut bytes).unwrap();
        }
        encoder.finish(&mut bytes).unwrap();
        // The library finds it sound.
        if !file {
            StreamReader::try_new(&bytes[..], None).unwrap().for_each(|batch| drop(batch.unwrap()));
        }
        let (found, back) = open(&bytes, &options()).unwrap();
        prop_assert_eq!(found.describe(), format.describe());
        prop_assert_eq!(any_records(&format, &back), any_records(&format, &payload));
        let (back, errors) = decode(&format, &bytes, 100);
        prop_assert!(errors.is_empty(), "{errors:?}");
        prop_assert_eq!(any_records(&format, &back), any_records(&format, &payload));
    }

    #[test]
    fn the_library_reads_what_is_written((format, rows) in rows()) {
        let payload = payload(&format, &rows);
        let stream = encode(&format, &payload, false);
        let file = encode(&format, &payload, true);
        let mut batches: Vec<RecordBatch> = StreamReader::try_new(&stream[..], None).unwrap().map(Result::unwrap).collect();
        batches.extend(FileReader::try_new(Cursor::new(file), None).unwrap().map(Result::unwrap));
        let mut expected = rows.iter().chain(&rows);
        for batch in batches {
            for row in 0..batch.num_rows() {
                let found: Vec<Owned> = batch.columns().iter().map(|column| value_of(column, row)).collect();
                prop_assert_eq!(&found, expected.next().unwrap());
            }
        }
        prop_assert!(expected.next().is_none());
    }

    #[test]
    fn batches_of_the_library_are_read((format, rows) in rows(), packed in any::<bool>(), file in any::<bool>()) {
        // The library's batches, out of what it read of ours.
        let payload = payload(&format, &rows);
        let bytes = encode(&format, &payload, false);
        let reader = StreamReader::try_new(&bytes[..], None).unwrap();
        let packing = packed.then_some(CompressionType::LZ4_FRAME);
        let write = IpcWriteOptions::try_new(8, false, arrow_ipc::MetadataVersion::V5).unwrap();
        let write = write.try_with_compression(packing).unwrap();
        let schema = reader.schema();
        let bytes = if file {
            let mut writer = FileWriter::try_new_with_options(Vec::new(), &schema, write).unwrap();
            reader.for_each(|batch| writer.write(&batch.unwrap()).unwrap());
            writer.into_inner().unwrap()
        } else {
            let mut writer = StreamWriter::try_new_with_options(Vec::new(), &schema, write).unwrap();
            reader.for_each(|batch| writer.write(&batch.unwrap()).unwrap());
            writer.into_inner().unwrap()
        };
        let (back, errors) = decode(&format, &bytes, 50);
        prop_assert!(errors.is_empty(), "{errors:?}");
        prop_assert_eq!(back, payload);
    }

    #[test]
    fn bytes_that_were_changed_end_in_errors_and_not_in_panics(
        (format, rows) in rows(), packed in any::<bool>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), cut in any::<prop::sample::Index>(),
    ) {
        let payload = payload(&format, &rows);
        let mut bytes = encode(&format, &payload, false);
        if packed {
            let reader = StreamReader::try_new(&bytes[..], None).unwrap();
            let write = IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME)).unwrap();
            let mut writer = StreamWriter::try_new_with_options(Vec::new(), &reader.schema(), write).unwrap();
            reader.for_each(|batch| writer.write(&batch.unwrap()).unwrap());
            bytes = writer.into_inner().unwrap();
        }
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        let (back, _) = decode(&format, &bytes, 64);
        let sound = format.check_records(&back, |_, _| {}).is_ok();
        prop_assert!(sound);
        let _ = open(&bytes, &options());
    }
}

#[test]
fn batches_are_bounded() {
    let format = Format::parse_schema("id u32\nname string").unwrap();
    let mut builder = RecordBuilder::new(&format);
    let mut encoder = ArrowEncoder::new(&format, false, &options()).unwrap();
    let mut out = Vec::new();
    encoder.start(&mut out);
    for id in 0..10_000_u32 {
        builder.clear();
        builder.set_u64(0, id.into()).unwrap();
        builder.set_text(1, if id < 100 { "x".repeat(50_000) } else { String::new() }).unwrap();
        encoder.record(&Record::check(&format, builder.finish().unwrap()).unwrap(), &mut out).unwrap();
    }
    encoder.finish(&mut out).unwrap();
    let rows: Vec<usize> =
        StreamReader::try_new(&out[..], None).unwrap().map(|batch| batch.unwrap().num_rows()).collect();
    assert_eq!(rows.iter().sum::<usize>(), 10_000);
    assert!(rows.len() > 6 && rows.iter().all(|rows| *rows <= BATCH_ROWS), "{rows:?}");
    let (back, errors) = decode(&format, &out, 1 << 16);
    assert!(errors.is_empty());
    assert_eq!(records(&format, &back).len(), 10_000);
    // An encoder begins anew, and forgets what was not finished.
    let mut again = Vec::new();
    encoder.start(&mut again);
    encoder.record(&Record::check(&format, builder.finish().unwrap()).unwrap(), &mut again).unwrap();
    again.clear();
    encoder.start(&mut again);
    encoder.finish(&mut again).unwrap();
    let (back, errors) = decode(&format, &again, 100);
    assert!(back.is_empty() && errors.is_empty(), "{errors:?}");
}

#[test]
fn other_peoples_types_are_imported_with_their_values() {
    let array: Vec<(&str, ArrayRef, &str, Value<'_>)> = vec![
        ("a", Arc::new(LargeStringArray::from(vec!["x", "y"])), "string", Value::Text(b"y")),
        (
            "b",
            Arc::new(StringViewArray::from(vec!["x", "a longer text than views hold"])),
            "string",
            Value::Text(b"a longer text than views hold"),
        ),
        ("c", Arc::new(DictionaryArray::<Int8Type>::from_iter(["x", "y"])), "string", Value::Text(b"y")),
        ("d", Arc::new(LargeBinaryArray::from_vec(vec![b"x", b"y"])), "bytes", Value::Bytes(b"y")),
        (
            "e",
            Arc::new(FixedSizeBinaryArray::try_from_iter([[1_u8, 2], [3, 4]].into_iter()).unwrap()),
            "bytes",
            Value::Bytes(&[3, 4]),
        ),
        ("f", Arc::new(Date32Array::from(vec![0, -1])), "timestamp", Value::Timestamp(-86_400_000_000_000)),
        ("g", Arc::new(Date64Array::from(vec![0, 5])), "timestamp", Value::Timestamp(5_000_000)),
        (
            "h",
            Arc::new(TimestampSecondArray::from(vec![0, 7]).with_timezone("+02:00")),
            "timestamp",
            Value::Timestamp(7_000_000_000),
        ),
        ("i", Arc::new(TimestampMillisecondArray::from(vec![0, -7])), "timestamp", Value::Timestamp(-7_000_000)),
        ("j", Arc::new(Float16Array::from(vec![half::f16::ZERO, half::f16::from_f32(1.5)])), "f32", Value::Float(1.5)),
        ("k", Arc::new(NullArray::new(2)), "string", Value::Null),
        ("l", Arc::new(BooleanArray::from(vec![None, Some(true)])), "bool", Value::Bool(true)),
        ("m", Arc::new(UInt8Array::from(vec![Some(1), None])), "u8", Value::Null),
    ];
    let batch = batch(array.iter().map(|(name, array, ..)| (*name, Arc::clone(array))).collect());
    for packing in [None, Some(CompressionType::LZ4_FRAME)] {
        let write = IpcWriteOptions::default().try_with_compression(packing).unwrap();
        let (format, payload) = open(&stream_of(&batch, write), &options()).unwrap();
        let records = records(&format, &payload);
        assert_eq!(records.len(), 2);
        for (index, (name, _, ty, value)) in array.iter().enumerate() {
            let field = &format.fields()[index];
            assert_eq!((field.name.as_str(), field.ty.to_string().as_str(), field.nullable), (*name, *ty, true));
            assert_eq!(records[1].get(index), *value, "{name}");
        }
    }
}

#[test]
fn columns_that_no_field_can_be_are_refused_by_name() {
    let time: ArrayRef = Arc::new(Time64MicrosecondArray::from(vec![5]));
    let bytes =
        stream_of(&batch(vec![("a", Arc::new(Int32Array::from(vec![1]))), ("t", time)]), IpcWriteOptions::default());
    let error = open(&bytes, &options()).unwrap_err();
    assert_eq!(error.field.as_deref(), Some("t"));
    assert!(!error.is_item() && error.to_string().contains("--allow integer-type"), "{error}");
    let allowing = EncodingOptions { allow: vec![Loss::IntegerType], ..options() };
    let (format, payload) = open(&bytes, &allowing).unwrap();
    assert_eq!(records(&format, &payload)[0].get(1), Value::Int(5));
    for (ty, said) in [
        (DataType::Interval(arrow_schema::IntervalUnit::DayTime), "Interval"),
        (DataType::Decimal256(50, 40), "Decimal256(50, 40), and a decimal field has 0 to 38 digits"),
        (DataType::Decimal128(20, -2), "Decimal128(20, -2), and a decimal field has 0 to 38 digits"),
        (
            DataType::Dictionary(
                Box::new(DataType::Int8),
                Box::new(DataType::List(Arc::new(Field::new("item", DataType::Int8, true)))),
            ),
            "have it written as another type",
        ),
    ] {
        let error = import(&Schema::new(vec![Field::new("x", ty, true)]), &allowing).unwrap_err();
        assert!(error.to_string().starts_with("field `x`: ") && error.to_string().contains(said), "{error}");
    }
}

#[test]
fn columns_go_into_the_fields_of_a_given_format_as_far_as_they_fit() {
    let batch = batch(vec![
        ("n", Arc::new(Int64Array::from(vec![1, 300, 3]))),
        ("t", Arc::new(BinaryArray::from_vec(vec![b"ab", b"c", b"\xff"]))),
        ("f", Arc::new(Int32Array::from(vec![1, 2, 3]))),
        ("g", Arc::new(Float64Array::from(vec![0.5, 0.5, 0.5]))),
        ("x", Arc::new(StringArray::from(vec!["?", "?", "?"]))),
    ]);
    let bytes = stream_of(&batch, IpcWriteOptions::default());
    let format = Format::parse_schema("t char[2]\nn u8\nf f64\ng f32\nz i32 null").unwrap();
    let (_, errors) = decode(&format, &bytes, 100);
    assert_eq!(errors[0].field.as_deref(), Some("x"));
    assert!(!errors[0].is_item() && errors[0].to_string().contains("it has: t, n, f, g, z"), "{}", errors[0]);
    let lenient = EncodingOptions { ignore_unknown: true, ..options() };
    let (payload, errors) = read_all(&mut ArrowDecoder::new(&format, &lenient), &bytes, 100);
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(
        errors[0].is_item() && errors[0].to_string().starts_with("item 2, field `n`: found 300, expected u8"),
        "{}",
        errors[0]
    );
    assert!(errors[1].to_string().starts_with("item 3, field `t`: found `") && errors[1].to_string().contains("UTF-8"));
    let records = records(&format, &payload);
    let found: Vec<Value<'_>> = (0..5).map(|field| records[0].get(field)).collect();
    let expected = [Value::Text(b"ab"), Value::Uint(1), Value::Float(1.0), Value::Float(0.5), Value::Null];
    assert_eq!(found, expected);
    for (schema, said) in [
        ("n string\nt char[2]\nf f64\ng f32\nx string", "field `n`: the column is a Int64, and the field string"),
        ("n u8\nt char[2]\nf f64\ng i32\nx string", "field `g`: the column is a Float64, and the field i32"),
        ("n u8\nt char[2]\nf f64\ng f32\nx string\nz i32", "field `z`: there is no column of this name"),
    ] {
        let (_, errors) = decode(&Format::parse_schema(schema).unwrap(), &bytes, 100);
        assert!(errors[0].to_string().contains(said), "{}", errors[0]);
    }
}

#[test]
fn times_out_of_range_and_missing_values_are_wrong_items() {
    let times: ArrayRef = Arc::new(TimestampSecondArray::from(vec![Some(i64::MAX / 2), None, Some(1)]));
    let bytes = stream_of(&batch(vec![("t", times)]), IpcWriteOptions::default());
    let (payload, errors) = decode(&Format::parse_schema("t timestamp").unwrap(), &bytes, 100);
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert!(errors[0].starts_with("item 1, field `t`: found a time outside of 64 bits of nanoseconds"), "{errors:?}");
    assert!(errors[1].starts_with("item 2, field `t`: it is missing"), "{errors:?}");
    assert_eq!((errors.len(), payload.len()), (2, 16));
}

#[test]
fn text_that_is_no_utf8_is_refused_or_replaced_where_that_is_allowed() {
    let format = Format::parse_schema("id u32\nname string").unwrap();
    let mut builder = RecordBuilder::new(&format);
    builder.set_u64(0, 1).unwrap();
    builder.set_text(1, b"a\xff").unwrap();
    let payload = builder.finish().unwrap().to_vec();
    let record = Record::check(&format, &payload).unwrap();
    let mut encoder = ArrowEncoder::new(&format, false, &options()).unwrap();
    let mut out = Vec::new();
    encoder.start(&mut out);
    let error = encoder.record(&record, &mut out).unwrap_err();
    assert!(error.is_item() && error.to_string().contains("--allow invalid-text"), "{error}");
    encoder.finish(&mut out).unwrap();
    assert!(decode(&format, &out, 10).0.is_empty(), "a refused record leaves nothing behind");
    let allowing = EncodingOptions { allow: vec![Loss::InvalidText], ..options() };
    let mut encoder = ArrowEncoder::new(&format, false, &allowing).unwrap();
    out.clear();
    encoder.start(&mut out);
    encoder.record(&record, &mut out).unwrap();
    encoder.finish(&mut out).unwrap();
    let (back, _) = decode(&format, &out, 10);
    assert_eq!(records(&format, &back)[0].get(1), Value::Text("a\u{fffd}".as_bytes()));
}

#[test]
fn floats_that_are_no_numbers_are_floats() {
    let format = Format::parse_schema("a f32\nb f64").unwrap();
    let mut builder = RecordBuilder::new(&format);
    builder.set_f64(0, f64::NAN).unwrap();
    builder.set_f64(1, f64::NAN).unwrap();
    let payload = builder.finish().unwrap().to_vec();
    assert_eq!(decode(&format, &encode(&format, &payload, true), 10).0, payload);
}

#[test]
fn bytes_that_are_no_arrow_are_reported_as_none() {
    let format = Format::parse_schema("id u32").unwrap();
    let whole = encode(&format, &[], false);
    for (bytes, said) in [
        (&b""[..], "found nothing, expected an Arrow schema"),
        (b"PAR1....", "expected at most"),
        (b"\xff\xff\xff\xff\x04\0\0\0abcd", "found no Arrow message"),
        (b"ARROW2\0\0", "found something else than the start of an Arrow file"),
        (&whole[..50], "the input ends in the middle of it"),
        (&whole[..6], "the input ends in the middle of it"),
    ] {
        let (_, errors) = decode(&format, bytes, 10);
        assert!(!errors[0].is_item() && errors[0].to_string().contains(said), "{}", errors[0]);
    }
    let small = EncodingOptions { max_block_bytes: 1000, ..options() };
    let rows: ArrayRef = Arc::new(Int64Array::from(vec![1; 1000]));
    for packing in [None, Some(CompressionType::LZ4_FRAME)] {
        let write = IpcWriteOptions::default().try_with_compression(packing).unwrap();
        let error = open(&stream_of(&batch(vec![("n", Arc::clone(&rows))]), write), &small).unwrap_err();
        assert!(matches!(error.problem, EncodingProblem::TooLong { most: 1000, .. }), "{error}");
    }
}

#[test]
fn input_that_the_library_panics_at_is_an_error() {
    let damaged = include_bytes!("../../../../fuzz/seeds/arrow_ipc/offsets_cut_short");
    let (format, mut decoder) = ArrowDecoder::open(&mut &damaged[..], &options()).unwrap();
    let (records, errors) = read_all(&mut decoder, damaged, 64);
    assert!(format.check_records(&records, |_, _| {}).is_ok());
    assert!(!errors.is_empty());
}

#[test]
fn schemas_are_exported_with_the_format_in_them() {
    let format = Format::parse_schema("carrier char[2]\ntime timestamp null").unwrap();
    let schema = export(&format, &options());
    assert_eq!(schema.field(0).data_type(), &DataType::Utf8);
    assert_eq!(schema.field(1).data_type(), &DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())));
    assert_eq!(import(&schema, &options()).unwrap(), format);
    // Without the metadata, or when the columns are others now, they are what Arrow says.
    let bare = Schema::new(schema.fields().clone());
    assert_eq!(import(&bare, &options()).unwrap().schema(), "carrier string\ntime timestamp null\n");
    let fewer = Schema::new_with_metadata(schema.fields()[..1].to_vec(), schema.metadata().clone());
    assert_eq!(import(&fewer, &options()).unwrap().schema(), "carrier string\n");
}
