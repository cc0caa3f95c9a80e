//! Columns of columns as the libraries of others write them, in Arrow IPC and in Parquet: read with their nulls.
#![cfg(feature = "arrow")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use arrow_array::builder::{
    GenericListViewBuilder, Int32Builder, ListBuilder, MapBuilder, PrimitiveRunBuilder, StringBuilder, UnionBuilder,
};
use arrow_array::types::{Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt16Type};
use arrow_array::{
    Array, ArrayRef, Decimal256Array, DictionaryArray, FixedSizeListArray, Int32Array, Int64Array, LargeListArray,
    LargeStringArray, ListArray, OffsetSizeTrait, RecordBatch, RunArray, StringArray, StructArray, UnionArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, i256};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Fields, Schema, UnionFields, UnionMode};
use crossdock_format::encoding::arrow::import;
use crossdock_format::encoding::{self, Encoding, EncodingError, EncodingOptions};
use crossdock_format::json::JsonEncoder;
use crossdock_format::{Format, Record};
use parquet::arrow::ArrowWriter;

fn arrow(batch: &RecordBatch) -> Vec<u8> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    // A second batch, which starts in the middle of the arrays.
    writer.write(&batch.slice(1, batch.num_rows() - 1)).unwrap();
    writer.into_inner().unwrap()
}

fn parquet(batch: &RecordBatch) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(batch).unwrap();
    writer.write(&batch.slice(1, batch.num_rows() - 1)).unwrap();
    writer.close().unwrap();
    bytes
}

/// The format that the input says, and its records as JSON; errors as reported.
fn show(encoding: Encoding, mut bytes: &[u8]) -> Result<(Format, Vec<String>), EncodingError> {
    let (format, mut decoder) = encoding::open(encoding, &mut bytes, &EncodingOptions::default())?;
    let encoder = JsonEncoder::new(&format);
    let mut lines = Vec::new();
    loop {
        let mut line = Vec::new();
        match decoder.next_record(&mut bytes) {
            Ok(Some(record)) => encoder.record(&Record::check(&format, record).unwrap(), &mut line),
            Ok(None) => return Ok((format, lines)),
            Err(error) if error.is_item() => line.extend_from_slice(error.to_string().as_bytes()),
            Err(error) => return Err(error),
        }
        lines.push(String::from_utf8(line).unwrap().trim_end().to_owned());
    }
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

/// The rows, and again those behind the first.
fn twice(rows: &[&str]) -> Vec<String> {
    rows.iter().chain(&rows[1..]).map(|row| (*row).to_owned()).collect()
}

fn legs() -> StructArray {
    let fields = Fields::from(vec![
        Field::new("to", DataType::Utf8, true),
        Field::new("km", DataType::Int32, false),
        Field::new("tags", DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))), true),
    ]);
    let mut tags = ListBuilder::new(StringBuilder::new());
    tags.append_value([Some("a"), Some("b")]);
    tags.append_null();
    tags.append_value([Option::<&str>::None; 0]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec![Some("JFK"), None, Some("LAX")])),
        Arc::new(Int32Array::from(vec![1, 2, 3])),
        Arc::new(tags.finish()),
    ];
    StructArray::new(fields, columns, None)
}

fn list_of<O: OffsetSizeTrait>(ends: &[usize], nulls: &[bool], of: ArrayRef) -> arrow_array::GenericListArray<O> {
    let field = Arc::new(Field::new_list_field(of.data_type().clone(), true));
    let lengths = ends.windows(2).map(|two| two[1] - two[0]);
    arrow_array::GenericListArray::new(
        field,
        OffsetBuffer::from_lengths(lengths),
        of,
        Some(NullBuffer::from(nulls.to_vec())),
    )
}

#[test]
fn nested_columns_of_others_are_records_and_lists() {
    let legs: ArrayRef = Arc::new(legs());
    let pos = StructArray::new(
        Fields::from(vec![Field::new("x", DataType::Float64, true)]),
        vec![Arc::new(arrow_array::PrimitiveArray::<Float64Type>::from(vec![Some(0.5), None, Some(2.0)]))],
        Some(NullBuffer::from(vec![true, true, false])),
    );
    let list: ListArray = list_of(&[0, 2, 2, 3], &[true, false, true], Arc::clone(&legs));
    let large: LargeListArray = list_of(&[0, 0, 1, 3], &[true, true, true], Arc::new(Int64Array::from(vec![7, 8, 9])));
    let inner: ListArray = list_of(&[0, 1, 1, 3], &[true, true, true], Arc::new(Int32Array::from(vec![1, 2, 3])));
    let nested: ListArray = list_of(&[0, 1, 3, 3], &[true, true, true], Arc::new(inner));
    let fixed = FixedSizeListArray::from_iter_primitive::<Int16Type, _, _>(
        vec![Some(vec![Some(1), Some(2)]), None, Some(vec![Some(3), Some(4)])],
        2,
    );
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    map.keys().append_value("k");
    map.values().append_value(5);
    map.append(true).unwrap();
    map.append(false).unwrap();
    map.append(true).unwrap();
    let words: DictionaryArray<Int8Type> = [Some("x"), None, Some("y")].into_iter().collect();
    let wide: DictionaryArray<UInt16Type> =
        DictionaryArray::new(vec![1_u16, 0, 1].into(), Arc::new(LargeStringArray::from(vec!["p", "q"])));
    let batch = batch(vec![
        ("pos", Arc::new(pos)),
        ("legs", Arc::new(list)),
        ("large", Arc::new(large)),
        ("nested", Arc::new(nested)),
        ("fixed", Arc::new(fixed)),
        ("map", Arc::new(map.finish())),
        ("words", Arc::new(words)),
        ("wide", Arc::new(wide)),
    ]);
    let rows = twice(&[
        r#"{"pos":{"x":0.5},"legs":[{"to":"JFK","km":1,"tags":["a","b"]},{"to":null,"km":2,"tags":null}],"large":[],"nested":[[1]],"fixed":[1,2],"map":[{"key":"k","value":5}],"words":"x","wide":"q"}"#,
        r#"{"pos":{"x":null},"legs":null,"large":[7],"nested":[[],[2,3]],"fixed":null,"map":null,"words":null,"wide":"p"}"#,
        r#"{"pos":null,"legs":[{"to":"LAX","km":3,"tags":[]}],"large":[8,9],"nested":[],"fixed":[3,4],"map":[],"words":"y","wide":"q"}"#,
    ]);
    let (format, found) = show(Encoding::ArrowStream, &arrow(&batch)).unwrap();
    assert_eq!(found, rows);
    assert_eq!(
        format.schema(),
        "pos record {\n    x f64 null\n} null\nlegs record {\n    to string null\n    km i32\n    tags string[] null\n}[] null\n\
         large i64[] null\nnested i32[][] null\nfixed i16[2] null\nmap record {\n    key string\n    value i32 null\n}[] \
         null\nwords string null\nwide string null\n"
    );
    let (_, found) = show(Encoding::Parquet, &parquet(&batch)).unwrap();
    assert_eq!(found, rows);
}

#[test]
fn elements_that_are_null_are_errors_of_their_row() {
    let mut list = ListBuilder::new(Int32Builder::new());
    list.append_value([Some(1)]);
    list.append_value([Some(1), None]);
    list.append_value([Some(2)]);
    let batch = batch(vec![("n", Arc::new(list.finish()))]);
    let null = "field `n[1]`: found null, expected an element; a schema takes null elements where it has \
                `record { value TYPE null }[]` for the list";
    for (encoding, bytes) in [(Encoding::ArrowStream, arrow(&batch)), (Encoding::Parquet, parquet(&batch))] {
        let (_, found) = show(encoding, &bytes).unwrap();
        let expected =
            [r#"{"n":[1]}"#, &format!("item 2, {null}"), r#"{"n":[2]}"#, &format!("item 4, {null}"), r#"{"n":[2]}"#];
        assert_eq!(found, expected, "{encoding}");
    }
}

#[test]
fn runs_views_and_wide_decimals_are_read_as_their_values() {
    let mut runs = PrimitiveRunBuilder::<Int32Type, Int64Type>::new();
    runs.extend([Some(5), Some(5), None, None, Some(6)]);
    let words: RunArray<Int16Type> = ["a", "a", "a", "b", "b"].into_iter().collect();
    let mut views = GenericListViewBuilder::<i32, _>::new(Int32Builder::new());
    let mut long = GenericListViewBuilder::<i64, _>::new(StringBuilder::new());
    for (index, count) in [2, 0, 1, 0, 3].into_iter().enumerate() {
        (0..count).for_each(|value| views.values().append_value(value));
        views.append(index != 3);
        (0..count).for_each(|value| long.values().append_value(value.to_string()));
        long.append(true);
    }
    let wide = Decimal256Array::from(vec![
        Some(i256::from_i128(12_345)),
        Some(i256::from_i128(-1)),
        None,
        Some(i256::from_i128(i128::MAX)),
        Some(i256::from_i128(0)),
    ]);
    let batch = batch(vec![
        ("runs", Arc::new(runs.finish())),
        ("words", Arc::new(words)),
        ("views", Arc::new(views.finish())),
        ("long", Arc::new(long.finish())),
        ("wide", Arc::new(wide.with_precision_and_scale(60, 2).unwrap())),
    ]);
    let rows = twice(&[
        r#"{"runs":5,"words":"a","views":[0,1],"long":["0","1"],"wide":123.45}"#,
        r#"{"runs":5,"words":"a","views":[],"long":[],"wide":-0.01}"#,
        r#"{"runs":null,"words":"a","views":[0],"long":["0"],"wide":null}"#,
        r#"{"runs":null,"words":"b","views":null,"long":[],"wide":1701411834604692317316873037158841057.27}"#,
        r#"{"runs":6,"words":"b","views":[0,1,2],"long":["0","1","2"],"wide":0.00}"#,
    ]);
    assert_eq!(show(Encoding::ArrowStream, &arrow(&batch)).unwrap().1, rows);
    // A number of more than 128 bits.
    let wide = Decimal256Array::from(vec![i256::MAX, i256::from_i128(1)]).with_precision_and_scale(76, 0).unwrap();
    let batch = self::batch(vec![("wide", Arc::new(wide))]);
    let (_, found) = show(Encoding::ArrowStream, &arrow(&batch)).unwrap();
    let error = "item 1, field `wide`: found a decimal of 256 bits, expected one of at most 128 bits";
    assert_eq!(found, [error, r#"{"wide":1}"#, r#"{"wide":1}"#]);
}

#[test]
fn unions_of_both_modes_are_unions() {
    for mut builder in [UnionBuilder::new_dense(), UnionBuilder::new_sparse()] {
        builder.append::<Int32Type>("n", 1).unwrap();
        builder.append::<Float64Type>("f", 0.5).unwrap();
        builder.append::<Int32Type>("n", 4).unwrap();
        let union = builder.build().unwrap();
        let (fields, ids, rows, mut children) = union.into_parts();
        let variants: Vec<Field> = fields.iter().map(|(_, field)| field.as_ref().clone().with_nullable(true)).collect();
        let text: ArrayRef = Arc::new(StringArray::from(vec![None, Some("x"), Some("y")]));
        // A third variant, one of them null.
        children.push(text);
        let names: Vec<(i8, Field)> = fields.iter().map(|(id, _)| id).zip(variants).collect();
        let all = names.into_iter().chain([(7, Field::new("t", DataType::Utf8, true))]);
        let fields: UnionFields = all.map(|(id, field)| (id, Arc::new(field))).collect();
        let ids = vec![ids[0], ids[1], 7];
        let rows = rows.map(|rows| vec![rows[0], rows[1], 0].into());
        let is_dense = rows.is_some();
        let union = UnionArray::try_new(fields, ids.into(), rows, children).unwrap();
        let one = RecordBatch::try_from_iter_with_nullable([("u", Arc::new(union) as ArrayRef, false)]).unwrap();
        let (format, found) = show(Encoding::ArrowStream, &arrow(&one)).unwrap();
        let last = if is_dense { r#"{"u":null}"# } else { r#"{"u":{"t":"y"}}"# };
        assert_eq!(found, twice(&[r#"{"u":{"n":1}}"#, r#"{"u":{"f":0.5}}"#, last]), "{}", format.schema());
    }
    let list =
        DataType::List(Arc::new(Field::new("item", DataType::Union(UnionFields::empty(), UnionMode::Dense), true)));
    let schema = Schema::new(vec![Field::new("l", list, true)]);
    assert!(import(&schema, &EncodingOptions::default()).is_err());
}
