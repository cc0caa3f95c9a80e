//! CBOR against ciborium and MessagePack against rmpv, in both directions; what is documented of values; hostile bytes.

use crate::any;
use crossdock_format::encoding::cbor::{CborDecoder, CborEncoder};
use crossdock_format::encoding::msgpack::{MessagePackDecoder, MessagePackEncoder};
use crossdock_format::encoding::{Decoder, Encoder, EncodingError, EncodingOptions, EncodingProblem, Loss};
use crossdock_format::{FieldSpec, FieldType, Format, Member, Record, RecordBuilder, TypeSpec, Value};
use proptest::prelude::*;

/// A record as both libraries have it.
#[derive(Clone, Debug, PartialEq)]
enum Tree {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64, bool),
    Text(String),
    Bytes(Vec<u8>),
    Time(i64),
    Decimal(i128, u8),
    Array(Vec<Tree>),
    Map(Vec<(String, Tree)>),
}

fn tree(record: &Record<'_>, members: &[Member], specs: &[FieldSpec], is_union: bool) -> Tree {
    let named = members.iter().zip(specs).filter_map(|(member, spec)| {
        let value = match (member, &spec.ty) {
            (Member::Leaf(index), ty) => value(record.get(*index), ty),
            (Member::Group(group), _) if record.group_is_null(group) => Tree::Null,
            (Member::Group(group), TypeSpec::Record(specs) | TypeSpec::Union(specs)) => {
                tree(record, &group.members, specs, group.union.is_some())
            }
            _ => unreachable!("tree and specs are of one shape"),
        };
        (!is_union || value != Tree::Null).then(|| (spec.name.clone(), value))
    });
    Tree::Map(named.collect())
}

fn value(value: Value<'_>, ty: &TypeSpec) -> Tree {
    match (value, ty) {
        (Value::Null, _) => Tree::Null,
        (Value::Bool(value), _) => Tree::Bool(value),
        (Value::Int(value), _) => Tree::Int(value.into()),
        (Value::Uint(value), _) => Tree::Int(value.into()),
        (Value::Float(value), ty) => Tree::Float(value, *ty == FieldType::F32),
        (Value::Timestamp(value), _) => Tree::Time(value),
        (Value::Text(value), _) => Tree::Text(String::from_utf8(value.to_vec()).expect("made of text")),
        (Value::Bytes(value), _) => Tree::Bytes(value.to_vec()),
        (Value::Decimal { unscaled, scale }, _) => Tree::Decimal(unscaled, scale),
        (Value::Enum { symbol: Some(symbol), .. }, _) => Tree::Text(symbol.to_owned()),
        (Value::Enum { number, symbol: None }, _) => Tree::Int(number.into()),
        (Value::List(list), TypeSpec::List { element, .. }) => {
            let item = |item: Value<'_>| match (item, &**element) {
                (Value::Record(record), TypeSpec::Record(specs)) => tree(&record, record.format().tree(), specs, false),
                (item, ty) => self::value(item, ty),
            };
            Tree::Array(list.iter().map(item).collect())
        }
        (value, ty) => unreachable!("{value:?} is no {ty:?}"),
    }
}

/// RFC 3339, as the library that we write it with has it.
fn rfc3339(nanoseconds: i64) -> String {
    jiff::Timestamp::from_nanosecond(nanoseconds.into()).expect("a time").to_string()
}

fn decimal_text(unscaled: i128, scale: u8) -> String {
    let digits = format!("{:0width$}", unscaled.unsigned_abs(), width = usize::from(scale) + 1);
    let (whole, fraction) = digits.split_at(digits.len() - usize::from(scale));
    let sign = if unscaled < 0 { "-" } else { "" };
    if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

fn cbor(tree: &Tree) -> ciborium::Value {
    use ciborium::Value as Cbor;
    match tree {
        Tree::Null => Cbor::Null,
        Tree::Bool(value) => Cbor::Bool(*value),
        Tree::Int(value) => Cbor::Integer((*value).try_into().expect("of 64 bits")),
        Tree::Float(value, _) => Cbor::Float(*value),
        Tree::Text(value) => Cbor::Text(value.clone()),
        Tree::Bytes(value) => Cbor::Bytes(value.clone()),
        Tree::Time(value) => Cbor::Tag(0, Box::new(Cbor::Text(rfc3339(*value)))),
        Tree::Decimal(unscaled, scale) => {
            let digits = match ciborium::value::Integer::try_from(*unscaled) {
                Ok(small) => Cbor::Integer(small),
                Err(_) => {
                    let (tag, number) = match u128::try_from(*unscaled) {
                        Ok(number) => (2, number),
                        Err(_) => (3, !*unscaled as u128),
                    };
                    let bytes: Vec<u8> = number.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
                    Cbor::Tag(tag, Box::new(Cbor::Bytes(bytes)))
                }
            };
            Cbor::Tag(4, Box::new(Cbor::Array(vec![Cbor::Integer((-i64::from(*scale)).into()), digits])))
        }
        Tree::Array(items) => Cbor::Array(items.iter().map(cbor).collect()),
        Tree::Map(members) => {
            Cbor::Map(members.iter().map(|(name, value)| (Cbor::Text(name.clone()), cbor(value))).collect())
        }
    }
}

fn message_pack(tree: &Tree) -> rmpv::Value {
    use rmpv::Value as Pack;
    match tree {
        Tree::Null => Pack::Nil,
        Tree::Bool(value) => Pack::Boolean(*value),
        Tree::Int(value) => match i64::try_from(*value) {
            Ok(value) => value.into(),
            Err(_) => (*value as u64).into(),
        },
        Tree::Float(value, true) => Pack::F32(*value as f32),
        Tree::Float(value, false) => Pack::F64(*value),
        Tree::Text(value) => value.as_str().into(),
        Tree::Bytes(value) => Pack::Binary(value.clone()),
        Tree::Time(value) => {
            let (seconds, rest) = (value.div_euclid(1_000_000_000), value.rem_euclid(1_000_000_000));
            let data = match (u32::try_from(seconds), seconds >> 34) {
                (Ok(seconds), _) if rest == 0 => seconds.to_be_bytes().to_vec(),
                (_, 0) => ((rest as u64) << 34 | seconds as u64).to_be_bytes().to_vec(),
                _ => [&(rest as u32).to_be_bytes()[..], &seconds.to_be_bytes()].concat(),
            };
            Pack::Ext(-1, data)
        }
        Tree::Decimal(unscaled, scale) => decimal_text(*unscaled, *scale).into(),
        Tree::Array(items) => Pack::Array(items.iter().map(message_pack).collect()),
        Tree::Map(members) => {
            Pack::Map(members.iter().map(|(name, value)| (name.as_str().into(), message_pack(value))).collect())
        }
    }
}

fn allowing() -> EncodingOptions {
    EncodingOptions { allow: vec![Loss::Decimal], ..EncodingOptions::default() }
}

/// Both, by turns.
fn coders(format: &Format, options: &EncodingOptions) -> [(Box<dyn Encoder>, Box<dyn Decoder>); 2] {
    [
        (
            Box::new(CborEncoder::new(format, options).expect("it holds all")),
            Box::new(CborDecoder::new(format, options)),
        ),
        (
            Box::new(MessagePackEncoder::new(format, options).expect("losses are allowed")),
            Box::new(MessagePackDecoder::new(format, options)),
        ),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn the_libraries_and_we_read_each_other(format in any::format(), seeds in proptest::collection::vec(any::<u64>(), 1..5)) {
        for (is_cbor, (mut encoder, mut decoder)) in [true, false].into_iter().zip(coders(&format, &allowing())) {
            let mut stream = Vec::new();
            let mut records = Vec::new();
            for seed in &seeds {
                let bytes = any::record(&format, *seed);
                let record = Record::check(&format, &bytes).unwrap();
                let expected = tree(&record, format.tree(), &format.specs(), false);
                let mut item = Vec::new();
                encoder.record(&record, &mut item).unwrap();
                let mut written = Vec::new();
                if is_cbor {
                    let read: ciborium::Value = ciborium::from_reader(&item[..]).unwrap();
                    prop_assert_eq!(&read, &cbor(&expected));
                    ciborium::into_writer(&read, &mut written).unwrap();
                } else {
                    let read = rmpv::decode::read_value(&mut &item[..]).unwrap();
                    prop_assert_eq!(&read, &message_pack(&expected));
                    rmpv::encode::write_value(&mut written, &read).unwrap();
                }
                let mut input = &written[..];
                let decoded = decoder.next_record(&mut input).unwrap().unwrap();
                prop_assert_eq!(&Record::check(&format, decoded).unwrap(), &record);
                prop_assert!(input.is_empty());
                stream.extend_from_slice(&item);
                records.push(bytes);
            }
            for chunk in [1, 7, 64, 1 << 20] {
                decoder.restart();
                let mut input = std::io::BufReader::with_capacity(chunk, &stream[..]);
                for bytes in &records {
                    let decoded = decoder.next_record(&mut input).unwrap().unwrap();
                    prop_assert_eq!(Record::check(&format, decoded).unwrap(), Record::check(&format, bytes).unwrap());
                }
                prop_assert!(decoder.next_record(&mut input).unwrap().is_none());
            }
        }
    }

    #[test]
    fn hostile_bytes_are_an_error_and_no_more(
        format in any::format(),
        seeds in proptest::collection::vec(any::<u64>(), 1..4),
        noise in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let options = EncodingOptions { max_item_bytes: 1 << 16, ..allowing() };
        for (mut encoder, mut decoder) in coders(&format, &options) {
            let mut stream = Vec::new();
            for seed in &seeds {
                let bytes = any::record(&format, *seed);
                encoder.record(&Record::check(&format, &bytes).unwrap(), &mut stream).unwrap();
            }
            for (at, byte) in &noise {
                let at = at.index(stream.len());
                stream[at] ^= byte;
            }
            stream.truncate(cut.index(stream.len() + 1));
            let mut input = std::io::BufReader::with_capacity(16, &stream[..]);
            loop {
                match decoder.next_record(&mut input) {
                    Ok(Some(record)) => prop_assert!(Record::check(&format, record).is_ok()),
                    Ok(None) => break,
                    Err(error) if error.is_item() => prop_assert!(error.item > 0 && error.at.is_some()),
                    Err(_) => break,
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_an_error_and_no_more(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let format = Format::parse_schema("a i32 null\nb string null\nc record { d f64[] } null").unwrap();
        let options = EncodingOptions { ignore_unknown: true, ..EncodingOptions::default() };
        for (_, mut decoder) in coders(&format, &options) {
            let mut input = &bytes[..];
            while let Ok(Some(_)) | Err(EncodingError { problem: EncodingProblem::Value { .. }, .. }) =
                decoder.next_record(&mut input)
            {}
        }
    }
}

fn read_cbor(schema: &str, options: &EncodingOptions, item: &[u8]) -> Result<String, EncodingError> {
    let format = Format::parse_schema(schema).expect("a format");
    let mut decoder = CborDecoder::new(&format, options);
    let record = decoder.decode(item)?;
    Ok(format!("{:?}", Record::check(&format, record).expect("a record")))
}

fn read_pack(schema: &str, options: &EncodingOptions, item: &[u8]) -> Result<String, EncodingError> {
    let format = Format::parse_schema(schema).expect("a format");
    let mut decoder = MessagePackDecoder::new(&format, options);
    let record = decoder.decode(item)?;
    Ok(format!("{:?}", Record::check(&format, record).expect("a record")))
}

/// A map of one member `a`, whose value these bytes are.
fn cbor_a(value: &[u8]) -> Vec<u8> {
    [&[0xa1, 0x61, b'a'], value].concat()
}

fn pack_a(value: &[u8]) -> Vec<u8> {
    [&[0x81, 0xa1, b'a'], value].concat()
}

#[test]
fn values_with_many_forms_in_cbor() {
    let read = |ty: &str, value: &[u8]| {
        read_cbor(&format!("a {ty}"), &EncodingOptions::default(), &cbor_a(value))
            .unwrap_or_else(|error| error.to_string())
    };
    // Halves, from RFC 8949's appendix A.
    for (half, float) in
        [(0x3c00_u16, 1.0), (0x3e00, 1.5), (0x7bff, 65504.0), (0x0001, 5.960_464_477_539_063e-8), (0xc400, -4.0)]
    {
        let [a, b] = half.to_be_bytes();
        assert_eq!(read("f64", &[0xf9, a, b]), format!("{{\"a\": Float({float:?})}}"));
    }
    assert_eq!(read("f64", &[0xf9, 0x7e, 0]), "{\"a\": Float(NaN)}");
    assert_eq!(read("f32", &[0xf9, 0xfc, 0]), "{\"a\": Float(-inf)}");
    assert_eq!(read("f64", &[0x18, 200]), "{\"a\": Float(200.0)}");
    assert!(read("f32", &[0x1a, 1, 0, 0, 1]).contains("found 16777217"));
    // Text and arrays in pieces, tags that are passed over, undefined.
    assert_eq!(
        read("char[3]", &[0x7f, 0x61, b'x', 0x62, b'y', b'z', 0xff]),
        read("char[3]", &[0x63, b'x', b'y', b'z'])
    );
    assert_eq!(read("u8[]", &[0x9f, 1, 0xc1, 2, 0xff]), "{\"a\": List([Uint(1), Uint(2)])}");
    assert_eq!(read("i32 null", &[0xd9, 0xd9, 0xf7, 0xf7]), "{\"a\": Null}");
    // Big integers and times.
    assert_eq!(read("u64", &[0xc2, 0x41, 5]), "{\"a\": Uint(5)}");
    assert_eq!(read("i64", &[0xc3, 0x41, 5]), "{\"a\": Int(-6)}");
    assert!(read("u8", &[0xc2, 0x42, 1, 0]).contains("found 256"));
    assert_eq!(read("timestamp", &[0xc1, 0x1a, 0x51, 0x4b, 0x67, 0xb0]), "{\"a\": Timestamp(1363896240000000000)}");
    assert_eq!(
        read("timestamp", &[0xc1, 0xfb, 0x41, 0xd4, 0x52, 0xd9, 0xec, 0x20, 0, 0]),
        "{\"a\": Timestamp(1363896240500000000)}"
    );
    assert!(read("timestamp", &[0x05]).contains("found 5, expected timestamp"));
    // Decimals: 273.15, 5 * 10^2, an integer, text.
    assert_eq!(
        read("decimal(4, scale 2)", &[0xc4, 0x82, 0x21, 0x19, 0x6a, 0xb3]),
        "{\"a\": Decimal { unscaled: 27315, scale: 2 }}"
    );
    assert_eq!(read("decimal(4, scale 0)", &[0xc4, 0x82, 0x02, 5]), "{\"a\": Decimal { unscaled: 500, scale: 0 }}");
    assert_eq!(
        read("decimal(4, scale 0)", &[0xc4, 0x9f, 0x02, 5, 0xff]),
        read("decimal(4, scale 0)", &[0x19, 1, 0xf4])
    );
    assert_eq!(read("decimal(8, scale 1)", &[0x07]), "{\"a\": Decimal { unscaled: 70, scale: 1 }}");
    assert_eq!(read("decimal(8, scale 1)", &[0x63, b'1', b'.', b'5']), "{\"a\": Decimal { unscaled: 15, scale: 1 }}");
}

#[test]
fn values_that_do_not_fit() {
    let options = EncodingOptions::default();
    let cbor =
        |ty: &str, value: &[u8]| read_cbor(&format!("a {ty}"), &options, &cbor_a(value)).unwrap_err().to_string();
    let pack =
        |ty: &str, value: &[u8]| read_pack(&format!("a {ty}"), &options, &pack_a(value)).unwrap_err().to_string();
    for (wrong, expected) in [
        (cbor("i8", &[0x18, 128]), "field `a`: found 128, expected i8 (-128 to 127)"),
        (pack("i8", &[0xcc, 128]), "field `a`: found 128, expected i8 (-128 to 127)"),
        (cbor("i8", &[0xf6]), "field `a`: found null"),
        (pack("i8", &[0xc0]), "field `a`: found null"),
        (cbor("string", &[0x62, b'a', 0xff]), "field `a`: found text that is no UTF-8, "),
        (pack("string", &[0xa2, b'a', 0xff]), "field `a`: found text that is no UTF-8, "),
        (cbor("char[1]", &[0x62, b'a', b'b']), "field `a`: found \"ab\", expected char[1]"),
        (cbor("bool", &[1]), "field `a`: found 1, expected bool"),
        (pack("bytes", &[0xa1, b'x']), "field `a`: found \"x\", expected bytes"),
        (cbor("i32[]", &[1]), "field `a`: found 1, expected an array"),
        (cbor("i32[]", &[0x82, 1, 0x61, b'x']), "field `a[1]`: found \"x\", expected i32"),
        (pack("record { b i32 }", &[0x90]), "field `a`: found an array, expected a map"),
        (pack("record { b i32 }", &[0x80]), "field `a.b`: it is missing"),
        (cbor("f32", &[0xfb, 0x7f, 0xef, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), "field `a`: found 1.797"),
        (pack("timestamp", &[0xd4, 5, 0]), "field `a`: found an extension that is no time"),
        (cbor("enum u8 { X = 1 }", &[0x61, b'Y']), "field `a`: found \"Y\", expected enum u8 (a number, or one of X)"),
        (pack("enum u8 { X = 1 }", &[0xcd, 1, 0]), "field `a`: found 256"),
    ] {
        assert!(wrong.starts_with(expected), "{wrong}: not {expected}");
    }
    // Numbers that have no symbol are kept.
    assert!(read_cbor("a enum u8 { X = 1 }", &options, &cbor_a(&[7])).unwrap().contains("number: 7, symbol: None"));
    let repairs = EncodingOptions { allow: vec![Loss::InvalidText], ..options };
    assert!(read_cbor("a string", &repairs, &cbor_a(&[0x62, b'a', 0xff])).is_ok());
}

#[test]
fn members_that_are_not_as_they_should_be() {
    let options = EncodingOptions::default();
    let twice = read_cbor("a i32", &options, &[0xa2, 0x61, b'a', 1, 0x61, b'a', 2]).unwrap_err();
    assert_eq!(twice.to_string(), "field `a`: it is there twice");
    let unknown = read_pack("a i32", &options, &[0x82, 0xa1, b'x', 1, 0xa1, b'a', 2]).unwrap_err();
    assert_eq!(unknown.to_string(), "field `x`: the format has no such field; it has: a");
    let lenient = EncodingOptions { ignore_unknown: true, ..options.clone() };
    assert!(read_pack("a i32", &lenient, &[0x82, 0xa1, b'x', 0x91, 0x81, 1, 2, 0xa1, b'a', 2]).is_ok());
    assert_eq!(
        read_cbor("a i32", &options, &[0xa0]).unwrap_err().to_string(),
        "field `a`: it is missing, and the field is not nullable"
    );
    assert!(read_cbor("a i32 null", &options, &[0xa0]).is_ok());
    assert!(read_cbor("a i32", &options, &[0xa1, 1, 1]).unwrap_err().to_string().contains("found 1, expected a name"));
    assert!(read_cbor("a i32", &options, &[5]).unwrap_err().to_string().contains("found 5, expected a map"));
    let deep = [&[0xa1, 0x61, b'x'][..], &[0x81; 100], &[0]].concat();
    assert!(!read_cbor("a i32 null", &lenient, &deep).unwrap_err().is_item());
    assert!(!read_cbor("a i32", &options, &[0xa1, 0x61, b'a', 0x1c]).unwrap_err().is_item());
    assert!(!read_pack("a i32", &options, &[0x81, 0xa1, b'a', 0xc1]).unwrap_err().is_item());
}

/// 48 arrays and maps, those around the unknown member counted, whether all of the item is there at once or a byte at a time.
#[test]
fn how_deep_an_unknown_member_may_go_is_the_same_whatever_the_buffer() {
    let format = Format::parse_schema("a i8 null").unwrap();
    let options = EncodingOptions { ignore_unknown: true, ..EncodingOptions::default() };
    for arrays in 44..54 {
        let cbor = [&[0xa1, 0x61, b'x'], &vec![0x81; arrays][..], &[0]].concat();
        let pack = [&[0x81, 0xa1, b'x'], &vec![0x91; arrays][..], &[0]].concat();
        for chunk in [1, 7, 1000] {
            let mut input = std::io::BufReader::with_capacity(chunk, &cbor[..]);
            let outcome = CborDecoder::new(&format, &options).next_record(&mut input).map(|_| ());
            assert_eq!(outcome.is_ok(), arrays < crossdock_format::MAX_NESTING, "{arrays} {chunk}");
            let mut input = std::io::BufReader::with_capacity(chunk, &pack[..]);
            let outcome = MessagePackDecoder::new(&format, &options).next_record(&mut input).map(|_| ());
            assert_eq!(outcome.is_ok(), arrays < crossdock_format::MAX_NESTING, "{arrays} {chunk}");
        }
    }
}

/// Whether an item is sound does not depend on how much of it is there at once, also in what is passed over.
#[test]
fn an_end_of_nothing_is_none_whatever_the_buffer() {
    let format = Format::parse_schema("a i32 null").unwrap();
    let options = EncodingOptions { ignore_unknown: true, ..EncodingOptions::default() };
    let text_at = |arrays: usize| [&[0xa2, 0x61, b'x'], &vec![0x81; arrays][..], b"\x7f\x61q\xff\x61a\x01"].concat();
    let empty_at = |arrays: usize| [&[0xa2, 0x61, b'x'], &vec![0x81; arrays][..], b"\x80\x61a\x01"].concat();
    for (item, is_sound) in [
        (b"\xa2\x61x\x81\xff\x61a\x01".to_vec(), false),
        (b"\xa1\x61x\xff".to_vec(), false),
        (b"\xbf\x61x\xff\x61a\x01\xff".to_vec(), false),
        (b"\xa1\x61a\xff".to_vec(), false),
        (b"\xbf\x61x\x9f\xff\x61a\x01\xff".to_vec(), true),
        (b"\xbf\x61a\x01\x61x\xff".to_vec(), false),
        (b"\xa2\x61x\xbf\x61y\xff\x61a\x01".to_vec(), false),
        (b"\xa2\x61x\xbf\x61y\x81\x02\xff\x61a\x01".to_vec(), true),
        (b"\xa2\x61x\xbf\x81\x02\xff\x61a\x01".to_vec(), false),
        (text_at(47), true),
        ([&[0xa2, 0x61, b'x'], &[0x81; 46][..], b"\xc4\x82\x21\x05\x61a\x01"].concat(), true),
        ([&[0xa2, 0x61, b'x'], &[0x81; 47][..], b"\xc4\x82\x21\x05\x61a\x01"].concat(), false),
        (text_at(48), false),
        (empty_at(47), true),
        (empty_at(48), false),
    ] {
        for chunk in [1, 3, 1000] {
            let mut input = std::io::BufReader::with_capacity(chunk, &item[..]);
            let outcome = CborDecoder::new(&format, &options).next_record(&mut input).map(|_| ());
            assert_eq!(outcome.is_ok(), is_sound, "{item:02x?} {chunk}: {outcome:?}");
        }
    }
}

/// A name that is not text makes the item wrong, and the next one is read.
#[test]
fn names_that_are_not_text_cost_their_item() {
    let format = Format::parse_schema("a record { value record { s string } null }[] null").unwrap();
    let options = EncodingOptions { ignore_unknown: true, ..EncodingOptions::default() };
    let bytes = b"\xa1\x61a\x81\xa1\x9f\xff\x01\xa1\x61a\x80";
    let mut decoder = CborDecoder::new(&format, &options);
    let mut input = &bytes[..];
    let error = decoder.next_record(&mut input).unwrap_err();
    assert!(error.is_item() && error.to_string().contains("found an array, expected a name"), "{error}");
    assert!(decoder.next_record(&mut input).unwrap().is_some());
}

#[test]
fn bytes_and_decimals_keep_what_tags_say_of_them() {
    let read = |schema: &str, value: &[u8]| read_cbor(schema, &EncodingOptions::default(), &cbor_a(value));
    assert_eq!(read("a bytes", &[0xc2, 0x42, 1, 2]).unwrap(), "{\"a\": Bytes([1, 2])}");
    assert_eq!(read("a u16", &[0xc2, 0x42, 1, 2]).unwrap(), "{\"a\": Uint(258)}");
    assert_eq!(read("a u16", &[0xc2, 0x5f, 0x41, 1, 0x41, 2, 0xff]).unwrap(), "{\"a\": Uint(258)}");
    let decimal = read("a decimal(4, scale 2)", &[0xc4, 0x82, 0x21, 0xd9, 0xd9, 0xf7, 5]).unwrap();
    assert_eq!(decimal, "{\"a\": Decimal { unscaled: 5, scale: 2 }}");
    let error = read("a bytes", &[5]).unwrap_err().to_string();
    assert_eq!(error, "field `a`: found 5, expected bytes");
}

#[test]
fn an_item_that_is_wrong_is_passed_over() {
    let format = Format::parse_schema("a i8\nb record { c string[] } null").unwrap();
    let [(mut encoder, _), _] = coders(&format, &EncodingOptions::default());
    let (mut good, mut stream) = (Vec::new(), Vec::new());
    let bytes = any::record(&format, 3);
    encoder.record(&Record::check(&format, &bytes).unwrap(), &mut good).unwrap();
    stream.extend_from_slice(&good);
    let bad = [
        &[0xbf, 0x61, b'a', 0x19, 1, 0, 0x61, b'b', 0xa1, 0x61, b'c', 0x9f][..],
        &[0x61, b'x'].repeat(40),
        &[0xff, 0xff],
    ]
    .concat();
    stream.extend_from_slice(&bad);
    stream.extend_from_slice(&good);
    for chunk in [1, 5, 1000] {
        let mut input = std::io::BufReader::with_capacity(chunk, &stream[..]);
        let mut decoder = CborDecoder::new(&format, &EncodingOptions::default());
        assert_eq!(decoder.next_record(&mut input).unwrap().unwrap(), bytes);
        let error = decoder.next_record(&mut input).unwrap_err();
        assert!(error.is_item() && error.item == 2 && error.at == Some(good.len() as u64), "{error}");
        assert_eq!(error.field.as_deref(), Some("a"));
        assert_eq!(decoder.next_record(&mut input).unwrap().unwrap(), bytes);
        assert!(decoder.next_record(&mut input).unwrap().is_none());
    }
}

#[test]
fn a_decimal_that_is_no_pair_is_wrong_and_passed_over() {
    let format = Format::parse_schema("a decimal(4, scale 1)\nb u8 null").unwrap();
    let good = cbor_a(&[0xc4, 0x82, 0x20, 5]);
    for array in [
        &[0x80][..],
        &[0x81, 0x20],
        &[0x83, 0x20, 0x05, 0x07],
        &[0x9f, 0xff],
        &[0x9f, 0x20, 0xff],
        &[0x9f, 0x20, 0x05, 0x07, 0xff],
        &[0x82, 0x61, b'x', 0x05],
    ] {
        let bad = [&[0xa2, 0x61, b'a', 0xc4], array, &[0x61, b'b', 0x07]].concat();
        let error = read_cbor("a decimal(4, scale 1)\nb u8 null", &EncodingOptions::default(), &bad).unwrap_err();
        assert!(error.to_string().starts_with("field `a`: found an array, expected decimal"), "{array:x?}: {error}");
        let stream = [&good[..], &bad, &good].concat();
        for chunk in [1, 1000] {
            let mut input = std::io::BufReader::with_capacity(chunk, &stream[..]);
            let mut decoder = CborDecoder::new(&format, &EncodingOptions::default());
            assert!(decoder.next_record(&mut input).unwrap().is_some());
            let error = decoder.next_record(&mut input).unwrap_err();
            assert!(error.is_item() && error.item == 2, "{array:x?}: {error}");
            assert!(decoder.next_record(&mut input).unwrap().is_some(), "{array:x?}");
            assert!(decoder.next_record(&mut input).unwrap().is_none(), "{array:x?}");
        }
    }
}

#[test]
fn losses_are_refused_unless_they_are_allowed() {
    let format = Format::parse_schema("a i32\nb record { c decimal(8, scale 2)[] }").unwrap();
    let error = MessagePackEncoder::new(&format, &EncodingOptions::default()).unwrap_err();
    assert!(error.to_string().starts_with("field `b.c[]`: msgpack has no decimals"), "{error}");
    assert!(error.to_string().contains("--allow decimal"));
    assert!(MessagePackEncoder::new(&format, &allowing()).is_ok());
    assert!(CborEncoder::new(&format, &EncodingOptions::default()).is_ok());
    let format = Format::parse_schema("a string").unwrap();
    let mut builder = RecordBuilder::new(&format);
    builder.set_text(0, b"x\xff").unwrap();
    let bytes = builder.finish().unwrap();
    let record = Record::check(&format, bytes).unwrap();
    let repairs = EncodingOptions { allow: vec![Loss::InvalidText], ..EncodingOptions::default() };
    for (strict, lenient) in coders(&format, &EncodingOptions::default()).into_iter().zip(coders(&format, &repairs)) {
        let (mut strict, mut lenient, mut out) = (strict.0, lenient.0, Vec::new());
        let error = strict.record(&record, &mut out).unwrap_err();
        assert!(error.is_item() && out.is_empty() && error.field.as_deref() == Some("a"), "{error}");
        lenient.record(&record, &mut out).unwrap();
        assert!(String::from_utf8_lossy(&out).contains("x\u{fffd}"));
    }
}

#[test]
fn floats_that_are_no_numbers_are_kept() {
    let format = Format::parse_schema("a f32\nb f64").unwrap();
    for bits in [0x7fc0_0001_u32, 0xffc1_2345, 0x7f80_0000, 0x8000_0000] {
        let mut builder = RecordBuilder::new(&format);
        builder.set_f64(0, f32::from_bits(bits).into()).unwrap();
        builder.set_f64(1, f64::from_bits(u64::from(bits) << 32 | 1)).unwrap();
        let record = builder.finish().unwrap();
        for (mut encoder, mut decoder) in coders(&format, &EncodingOptions::default()) {
            let mut out = Vec::new();
            encoder.record(&Record::check(&format, record).unwrap(), &mut out).unwrap();
            assert_eq!(decoder.next_record(&mut &out[..]).unwrap().unwrap(), record);
        }
    }
}

#[test]
fn nothing_is_allocated_once_buffers_are_warm() {
    let format = Format::parse_schema(
        "carrier char[2]\nflight u16\ndep_delay i32 null\nair_time f64 null\ntailnum string null\ntime_hour timestamp\n\
         ok bool\nnote bytes null\nlegs record { to string; km u16 }[]",
    )
    .unwrap();
    let bytes = any::record(&format, 5);
    let record = Record::check(&format, &bytes).unwrap();
    for (mut encoder, mut decoder) in coders(&format, &EncodingOptions::default()) {
        let mut out = Vec::new();
        (0..100).for_each(|_| encoder.record(&record, &mut out).unwrap());
        let stream = out.clone();
        let mut input = &stream[..];
        decoder.next_record(&mut input).unwrap();
        let counts = allocation_counter::measure(|| {
            for _ in 0..99 {
                assert!(decoder.next_record(&mut input).unwrap().is_some());
                out.clear();
                encoder.record(&record, &mut out).unwrap();
            }
        });
        assert_eq!(counts.count_total, 0);
    }
}
