//! Parquet: the library reads what we write, we read what it writes, and what is wrong is named.
#![cfg(feature = "arrow")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use crate::any::{payload as any_payload, records as any_records};
use crate::arbitrary::{payload, rows};
use arrow_array::{
    ArrayRef, Date32Array, DictionaryArray, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray,
};
use arrow_ipc::reader::StreamReader;
use bytes::Bytes;
use crossdock_format::encoding::arrow::ArrowEncoder;
use crossdock_format::encoding::parquet::{GROUP_ROWS, ParquetDecoder, ParquetEncoder};
use crossdock_format::encoding::{Decoder, Encoder, EncodingError, EncodingOptions, EncodingProblem};
use crossdock_format::{Format, Record, RecordBuilder, Value};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::properties::{WriterProperties, WriterVersion};
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

fn encode(encoder: &mut dyn Encoder, format: &Format, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encoder.start(&mut out);
    for record in records(format, payload) {
        encoder.record(&record, &mut out).unwrap();
    }
    encoder.finish(&mut out).unwrap();
    out
}

fn parquet(format: &Format, payload: &[u8]) -> Vec<u8> {
    encode(&mut ParquetEncoder::new(format, &options()).unwrap(), format, payload)
}

fn read_all(decoder: &mut dyn Decoder, mut input: &[u8]) -> (Vec<u8>, Vec<EncodingError>) {
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

/// The format that a file says, and its records.
fn open(bytes: &[u8], options: &EncodingOptions) -> Result<(Format, Vec<u8>), EncodingError> {
    let (format, mut decoder) = ParquetDecoder::open(Arc::new(bytes.to_vec()), None, options)?;
    let (payload, mut errors) = read_all(&mut decoder, &[]);
    if errors.is_empty() { Ok((format, payload)) } else { Err(errors.remove(0)) }
}

/// The rows as the library has them.
fn batch(format: &Format, payload: &[u8]) -> RecordBatch {
    let stream = encode(&mut ArrowEncoder::new(format, false, &options()).unwrap(), format, payload);
    let mut reader = StreamReader::try_new(&stream[..], None).unwrap();
    let schema = reader.schema();
    reader.next().map_or_else(|| RecordBatch::new_empty(schema), Result::unwrap)
}

fn write(batch: &RecordBatch, properties: WriterProperties) -> Vec<u8> {
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn records_read_back((format, rows) in rows()) {
        let payload = payload(&format, &rows);
        let bytes = parquet(&format, &payload);
        let (back, errors) = read_all(&mut ParquetDecoder::new(&format, &options()), &bytes);
        prop_assert!(errors.is_empty(), "{errors:?}");
        prop_assert_eq!(&back, &payload);
        let (found, back) = open(&bytes, &options()).unwrap();
        prop_assert_eq!((found.describe(), back), (format.describe(), payload));
    }

    #[test]
    fn nested_records_lists_and_unions_read_back((format, payload) in any_payload()) {
        let (found, back) = open(&parquet(&format, &payload), &options()).unwrap();
        prop_assert_eq!(found.describe(), format.describe());
        prop_assert_eq!(any_records(&format, &back), any_records(&format, &payload));
    }

    #[test]
    fn the_library_reads_what_is_written((format, rows) in rows()) {
        let payload = payload(&format, &rows);
        let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(parquet(&format, &payload))).unwrap();
        let found = reader.build().unwrap().next();
        let expected = batch(&format, &payload);
        let found = found.map_or_else(|| expected.slice(0, 0), Result::unwrap);
        prop_assert_eq!(found.columns(), expected.columns());
    }

    #[test]
    fn files_of_the_library_are_read((format, rows) in rows(), way in 0_usize..5, second in any::<bool>()) {
        let payload = payload(&format, &rows);
        let packing = [
            Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::LZ4_RAW, Compression::LZ4,
            Compression::GZIP(parquet::basic::GzipLevel::default()),
        ];
        let version = if second { WriterVersion::PARQUET_2_0 } else { WriterVersion::PARQUET_1_0 };
        let properties = WriterProperties::builder().set_compression(packing[way]).set_writer_version(version);
        let bytes = write(&batch(&format, &payload), properties.set_dictionary_enabled(!second).build());
        let (found, back) = open(&bytes, &options()).unwrap();
        prop_assert_eq!((found.describe(), back), (format.describe(), payload));
    }

    /// Pages of version 2, whose texts have their lengths coded as differences, behind levels of all kinds.
    #[test]
    fn nested_texts_with_coded_lengths_are_read((format, payload) in any_payload()) {
        let properties = WriterProperties::builder().set_writer_version(WriterVersion::PARQUET_2_0);
        let bytes = write(&batch(&format, &payload), properties.set_dictionary_enabled(false).build());
        let (found, back) = open(&bytes, &options()).unwrap();
        prop_assert_eq!((found.describe(), back), (format.describe(), payload));
    }

    #[test]
    fn bytes_that_were_changed_end_in_errors(
        (format, rows) in rows(), changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = parquet(&format, &payload(&format, &rows));
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let small = EncodingOptions { max_block_bytes: 1 << 20, ..options() };
        if let Ok((format, payload)) = open(&bytes, &small) {
            let sound = format.check_records(&payload, |_, _| {}).is_ok();
            prop_assert!(sound);
        }
    }
}

#[test]
fn every_cut_of_a_file_is_an_error() {
    let format = Format::parse_schema("id u32\nname string null").unwrap();
    let mut builder = RecordBuilder::new(&format);
    builder.set_u64(0, 7).unwrap();
    builder.set_text(1, "seven").unwrap();
    let payload = builder.finish().unwrap().to_vec();
    let bytes = parquet(&format, &payload);
    for cut in 0..bytes.len() {
        let error = open(&bytes[..cut], &options()).unwrap_err();
        assert!(!error.is_item(), "{error}");
    }
    assert_eq!(open(&bytes, &options()).unwrap().1, payload);
}

#[test]
fn groups_are_bounded_and_leave_when_they_are_whole() {
    let format = Format::parse_schema("id u32\nname string").unwrap();
    let mut builder = RecordBuilder::new(&format);
    let mut encoder = ParquetEncoder::new(&format, &options()).unwrap();
    let (mut out, mut before_the_end) = (Vec::new(), 0);
    encoder.start(&mut out);
    let number = GROUP_ROWS as u32 * 2 + 10;
    for id in 0..number {
        builder.clear();
        builder.set_u64(0, id.into()).unwrap();
        builder.set_text(1, if id % 2 == 0 { "even" } else { "odd" }).unwrap();
        encoder.record(&Record::check(&format, builder.finish().unwrap()).unwrap(), &mut out).unwrap();
        before_the_end = out.len();
    }
    encoder.finish(&mut out).unwrap();
    assert!(before_the_end > out.len() / 2, "{before_the_end} of {}", out.len());
    let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(out.clone())).unwrap();
    let rows: Vec<i64> = reader.metadata().row_groups().iter().map(RowGroupMetaData::num_rows).collect();
    assert_eq!(rows, [GROUP_ROWS as i64, GROUP_ROWS as i64, 10]);
    let (format, payload) = open(&out, &options()).unwrap();
    for (id, record) in records(&format, &payload).iter().enumerate() {
        assert_eq!(record.get(0), Value::Uint(id as u64));
        assert_eq!(record.get(1), Value::Text(if id % 2 == 0 { b"even" } else { b"odd" }));
    }
    assert_eq!(format.check_records(&payload, |_, _| {}).unwrap(), number as usize);
    // An encoder begins anew.
    let mut again = Vec::new();
    encoder.start(&mut again);
    encoder.finish(&mut again).unwrap();
    assert!(open(&again, &options()).unwrap().1.is_empty());
}

#[test]
fn other_peoples_columns_are_imported_or_go_into_a_given_format() {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("day", Arc::new(Date32Array::from(vec![0, 1]))),
        ("at", Arc::new(TimestampMillisecondArray::from(vec![Some(5), None]))),
        ("word", Arc::new(DictionaryArray::<arrow_array::types::Int32Type>::from_iter(["x", "y"]))),
        ("n", Arc::new(Int64Array::from(vec![1, 300]))),
        ("more", Arc::new(StringArray::from(vec!["?", "?"]))),
    ];
    let batch = RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)));
    let bytes = write(&batch.unwrap(), WriterProperties::default());
    let (format, payload) = open(&bytes, &options()).unwrap();
    let schema = "day timestamp null\nat timestamp null\nword string null\nn i64 null\nmore string null\n";
    assert_eq!(format.schema(), schema);
    let found = records(&format, &payload);
    assert_eq!(found[1].get(0), Value::Timestamp(86_400_000_000_000));
    assert_eq!((found[0].get(1), found[1].get(1)), (Value::Timestamp(5_000_000), Value::Null));
    assert_eq!(found[1].get(2), Value::Text(b"y"));

    let own = Format::parse_schema("n u8\nword char[1]").unwrap();
    let (_, errors) = read_all(&mut ParquetDecoder::new(&own, &options()), &bytes);
    assert_eq!(errors[0].field.as_deref(), Some("day"), "{}", errors[0]);
    let lenient = EncodingOptions { ignore_unknown: true, ..options() };
    let (payload, errors) = read_all(&mut ParquetDecoder::new(&own, &lenient), &bytes);
    assert_eq!(errors.len(), 1);
    assert!(errors[0].to_string().starts_with("item 2, field `n`: found 300, expected u8"), "{}", errors[0]);
    let record = &records(&own, &payload)[0];
    assert_eq!((record.get(0), record.get(1)), (Value::Uint(1), Value::Text(b"x")));
}

#[test]
fn pages_that_would_take_too_much_are_refused_before_they_are_unpacked() {
    let long: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(100_000)]));
    let batch = RecordBatch::try_from_iter([("text", long)]).unwrap();
    let bytes = write(&batch, WriterProperties::builder().set_compression(Compression::SNAPPY).build());
    assert!(bytes.len() < 50_000, "{}", bytes.len());
    let small = EncodingOptions { max_block_bytes: 10_000, ..options() };
    let error = open(&bytes, &small).unwrap_err();
    assert_eq!(error.field.as_deref(), Some("text"));
    assert!(matches!(error.problem, EncodingProblem::TooLong { most: 10_000, .. }), "{error}");
    assert_eq!(open(&bytes, &options()).unwrap().1.len(), 100_016);
}

#[test]
fn bytes_that_are_no_parquet_are_reported_as_none() {
    for bytes in [&b""[..], b"PAR1", b"PAR1\0\0\0\0PAR1", b"id,name\n1,2\n", b"\xff\xff\xff\x7fPAR1"] {
        let error = open(bytes, &options()).unwrap_err();
        assert!(!error.is_item(), "{error}");
    }
}
