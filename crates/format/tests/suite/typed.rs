//! Rust types as records: the format that follows from a type, values there and back, and errors that name the field.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use crossdock_format::typed::{RecordReader, RecordWriter};
use crossdock_format::view::Nanoseconds;
use crossdock_format::{Format, Record, RecordBuilder, Value};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::num::NonZeroU32;

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Default)]
enum State {
    #[default]
    Scheduled,
    #[serde(rename = "en route")]
    EnRoute,
    Landed,
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
struct Leg {
    to: String,
    km: Option<u16>,
    via: Vec<String>,
}

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
struct Tail(String);

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
struct Everything {
    on_time: bool,
    a: i8,
    b: i16,
    c: i32,
    d: i64,
    e: u8,
    f: u16,
    g: u32,
    h: u64,
    single: f32,
    double: f64,
    #[serde(rename = "name of it")]
    name: String,
    letter: char,
    tail: Tail,
    #[serde(with = "serde_bytes")]
    raw: Vec<u8>,
    at: Nanoseconds,
    state: State,
    gate: Option<String>,
    late: Option<State>,
    first: Leg,
    last: Option<Leg>,
    legs: Vec<Leg>,
    grid: Vec<Vec<i32>>,
    corners: [f32; 4],
    address: Ipv4Addr,
    crew: NonZeroU32,
    #[serde(skip)]
    unseen: u8,
}

fn everything() -> Everything {
    let leg = Leg { to: "LAX".to_owned(), km: Some(3983), via: vec!["DEN".to_owned(), "é".to_owned()] };
    Everything {
        on_time: true,
        a: i8::MIN,
        b: i16::MIN,
        c: i32::MIN,
        d: i64::MIN,
        e: u8::MAX,
        f: u16::MAX,
        g: u32::MAX,
        h: u64::MAX,
        single: 0.1,
        double: -0.1,
        name: "B6 23".to_owned(),
        letter: 'é',
        tail: Tail("N14228".to_owned()),
        raw: vec![0, 255, 7],
        at: Nanoseconds(1_357_034_400_000_000_000),
        state: State::EnRoute,
        gate: None,
        late: Some(State::Landed),
        first: leg.clone(),
        last: None,
        legs: vec![leg.clone(), Leg { km: None, via: Vec::new(), ..leg }],
        grid: vec![vec![1, 2], Vec::new(), vec![3]],
        corners: [1.0, 2.0, 3.0, 4.5],
        address: Ipv4Addr::LOCALHOST,
        crew: NonZeroU32::MIN,
        unseen: 0,
    }
}

/// The value that comes back of one that becomes a record of a format.
fn carried<T: Serialize, U: DeserializeOwned>(format: &Format, value: &T) -> Result<U, String> {
    let mut writer = RecordWriter::new(format);
    let bytes = writer.write(value).map_err(|error| format!("written: {error}"))?.to_vec();
    let record = Record::check(format, &bytes).unwrap();
    RecordReader::new(format).read(&record).map_err(|error| error.to_string())
}

#[test]
fn a_format_follows_from_a_type_and_values_come_back() {
    let format = Format::of::<Everything>().unwrap();
    let schema = "on_time bool\na i8\nb i16\nc i32\nd i64\ne u8\nf u16\ng u32\nh u64\nsingle f32\ndouble f64\n\
        \"name of it\" string\nletter string\ntail string\nraw bytes\nat timestamp\n\
        state enum { Scheduled = 0; \"en route\" = 1; Landed = 2 }\ngate string null\n\
        late enum { Scheduled = 0; \"en route\" = 1; Landed = 2 } null\n\
        first record { to string; km u16 null; via string[] }\nlast record { to string; km u16 null; via string[] } null\n\
        legs record { to string; km u16 null; via string[] }[]\ngrid i32[][]\ncorners f32[4]\naddress string\ncrew u32";
    assert_eq!(format, Format::parse_schema(schema).unwrap(), "{}", format.schema());
    let value = everything();
    assert_eq!(carried::<_, Everything>(&format, &value), Ok(value.clone()));
    // One writer and one reader for many, and nothing of a record is left in the next.
    let (mut writer, reader) = (RecordWriter::new(&format), RecordReader::new(&format));
    for last in [Some(Leg::default()), None, value.legs.first().cloned()] {
        let value = Everything { last, ..value.clone() };
        let record = Record::check(&format, writer.write(&value).unwrap()).unwrap();
        assert_eq!(reader.read::<Everything>(&record).unwrap(), value);
    }
}

#[test]
fn a_nested_record_of_nothing_but_nulls_is_there() {
    #[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
    struct Inner {
        a: Option<i32>,
    }
    #[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
    struct Outer {
        inner: Option<Inner>,
    }
    let format = Format::of::<Outer>().unwrap();
    for inner in [None, Some(Inner { a: None }), Some(Inner { a: Some(1) })] {
        let value = Outer { inner };
        assert_eq!(carried::<_, Outer>(&format, &value), Ok(value));
    }
}

#[test]
fn text_is_borrowed_from_the_record() {
    #[derive(Serialize, Deserialize, Debug, PartialEq)]
    struct Borrowed<'a> {
        carrier: &'a str,
        #[serde(borrow, with = "serde_bytes")]
        raw: &'a [u8],
    }
    let format = Format::of::<Borrowed<'static>>().unwrap();
    let (mut writer, reader) = (RecordWriter::new(&format), RecordReader::new(&format));
    let bytes = writer.write(&Borrowed { carrier: "UA", raw: b"\xff" }).unwrap();
    let record = Record::check(&format, bytes).unwrap();
    let value: Borrowed<'_> = reader.read(&record).unwrap();
    assert_eq!(value, Borrowed { carrier: "UA", raw: b"\xff" });
    assert!(record.bytes().as_ptr_range().contains(&value.carrier.as_ptr()));
}

#[test]
fn fields_go_by_their_names_and_what_is_missing_has_its_default() {
    #[derive(Deserialize, Debug, PartialEq)]
    struct Departure {
        dep_delay: Option<f64>,
        carrier: String,
        missing: Option<u8>,
        #[serde(default)]
        defaulted: u8,
        #[serde(alias = "aaa", alias = "flight")]
        number: u32,
    }
    let format = Format::parse_schema("flight u16\nunread string\ncarrier char[2]\ndep_delay i32 null").unwrap();
    let reader = RecordReader::new(&format);
    let mut builder = RecordBuilder::new(&format);
    for delay in [None, Some(-3)] {
        builder.clear();
        builder.set_u64(0, 1545).unwrap();
        builder.set_text(1, "x").unwrap();
        builder.set_text(2, "UA").unwrap();
        if let Some(delay) = delay {
            builder.set_i64(3, delay).unwrap();
        }
        let record = Record::check(&format, builder.finish().unwrap()).unwrap();
        let expected = Departure {
            dep_delay: delay.map(|delay| delay as f64),
            carrier: "UA".to_owned(),
            missing: None,
            defaulted: 0,
            number: 1545,
        };
        assert_eq!(reader.read::<Departure>(&record), Ok(expected));
        let names: HashMap<String, serde::de::IgnoredAny> = reader.read(&record).unwrap();
        assert_eq!(names.len(), 4);
    }
    // Of a field's names its own is the one in the format.
    let names = Format::of::<Departure>().unwrap();
    assert_eq!(names.schema(), "dep_delay f64 null\ncarrier string\nmissing u8 null\ndefaulted u8\nnumber u32\n");
}

#[test]
fn a_type_that_refuses_unknown_fields_does_so_for_every_record() {
    #[derive(Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    struct Strict {
        #[expect(dead_code, reason = "only read")]
        a: i32,
    }
    let format = Format::parse_schema("a i32\nb i32").unwrap();
    let reader = RecordReader::new(&format);
    let mut builder = RecordBuilder::new(&format);
    builder.set_i64(0, 1).unwrap();
    builder.set_i64(1, 1).unwrap();
    let record = Record::check(&format, builder.finish().unwrap()).unwrap();
    for _ in 0..2 {
        let error = reader.read::<Strict>(&record).unwrap_err().to_string();
        assert!(error.contains("unknown field `b`"), "{error}");
    }
}

#[test]
fn other_types_of_fields_are_read_and_written_where_nothing_is_lost() {
    #[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
    struct Loose {
        at: String,
        price: String,
        state: String,
        raw: Vec<u8>,
    }
    #[derive(Deserialize, Debug, PartialEq)]
    struct Numbers {
        at: i64,
        price: f64,
        state: u8,
    }
    #[derive(Deserialize, Debug, PartialEq)]
    struct Variants {
        state: State,
    }
    let schema = "at timestamp\nprice decimal(8, scale 2)\nstate enum { Scheduled = 0; Landed = 7 }\nraw u8[]";
    let format = Format::parse_schema(schema).unwrap();
    let value = Loose {
        at: "2013-01-01T10:00:00Z".to_owned(),
        price: "-12.50".to_owned(),
        state: "Landed".to_owned(),
        raw: vec![1, 2],
    };
    assert_eq!(carried::<_, Loose>(&format, &value), Ok(value.clone()));
    let numbers = Numbers { at: 1_357_034_400_000_000_000, price: -12.5, state: 7 };
    assert_eq!(carried(&format, &value), Ok(numbers));
    assert_eq!(carried(&format, &value), Ok(Variants { state: State::Landed }));
    // Bytes are a sequence of numbers too.
    let format = Format::parse_schema("raw bytes").unwrap();
    let mut builder = RecordBuilder::new(&format);
    builder.set_bytes(0, &[1, 2]).unwrap();
    let record = Record::check(&format, builder.finish().unwrap()).unwrap();
    #[derive(Deserialize, Debug, PartialEq)]
    struct Raw {
        raw: Vec<u8>,
    }
    assert_eq!(RecordReader::new(&format).read(&record), Ok(Raw { raw: vec![1, 2] }));
}

#[test]
fn a_union_is_a_struct_of_options_and_a_foreign_layout_is_written() {
    #[derive(Serialize, Deserialize, Debug, PartialEq, Clone, Default)]
    struct Point {
        x: i32,
    }
    #[derive(Serialize, Deserialize, Debug, PartialEq, Clone, Default)]
    struct Either {
        text: Option<String>,
        point: Option<Point>,
    }
    #[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
    struct Message {
        body: Either,
    }
    let format = Format::parse_schema("body union { text string; point record { x i32 } }").unwrap();
    let text = Either { text: Some("a".to_owned()), point: None };
    let point = Either { text: None, point: Some(Point { x: -1 }) };
    for body in [text, point] {
        let value = Message { body };
        assert_eq!(carried::<_, Message>(&format, &value), Ok(value));
    }
    let format = Format::parse_schema("layout foreign big packed\nx i32").unwrap();
    assert_eq!(carried(&format, &Point { x: 258 }), Ok(Point { x: 258 }));
}

#[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
struct Narrow {
    legs: Vec<NarrowLeg>,
}

#[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
struct NarrowLeg {
    km: u8,
}

#[test]
fn mismatches_are_reported_with_the_fields_path() {
    #[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
    struct Wide {
        legs: Vec<WideLeg>,
    }
    #[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
    struct WideLeg {
        km: Option<u16>,
    }
    #[derive(Serialize, Deserialize, Debug)]
    struct Texts {
        legs: Vec<String>,
    }
    #[derive(Serialize, Deserialize, Debug)]
    struct Other {
        legs: Vec<OtherLeg>,
    }
    #[derive(Serialize, Deserialize, Debug)]
    struct OtherLeg {
        miles: u16,
    }
    let wide = |km: Option<u16>| Wide { legs: vec![WideLeg { km: Some(1) }, WideLeg { km }] };
    let (narrow_format, wide_format) = (Format::of::<Narrow>().unwrap(), Format::of::<Wide>().unwrap());
    let read = |km| carried::<_, Narrow>(&wide_format, &wide(km)).unwrap_err();
    assert_eq!(read(Some(300)), "field `legs[1].km`: invalid value: integer `300`, expected u8");
    assert!(read(None).starts_with("field `legs[1].km`: found null, expected a value"), "{}", read(None));
    let texts = carried::<_, Texts>(&wide_format, &wide(None)).unwrap_err();
    assert_eq!(texts, "field `legs[0]`: invalid type: map, expected a string");
    let missing = carried::<_, Other>(&wide_format, &wide(None)).unwrap_err();
    assert_eq!(missing, "field `legs[0].miles`: the record has no such field, and the type has no default for it");

    let write = |km| carried::<_, Wide>(&narrow_format, &wide(km)).unwrap_err();
    assert_eq!(write(Some(300)), "written: field `legs[1].km`: found 300, expected u8 (0 to 255)");
    assert_eq!(write(None), "written: field `legs[1].km`: found null, and the field is not nullable");
    let other = carried::<_, Narrow>(&narrow_format, &Other { legs: vec![OtherLeg { miles: 1 }] }).unwrap_err();
    assert_eq!(other, "written: field `legs[0].miles`: the format has no such field");
    let texts = carried::<_, Narrow>(&narrow_format, &Texts { legs: vec!["a".to_owned()] }).unwrap_err();
    assert_eq!(texts, "written: field `legs[0]`: found text, expected a struct");
    let none: Vec<u8> = vec![1];
    assert!(carried::<_, Narrow>(&narrow_format, &none).unwrap_err().contains("expected a struct"));
    assert!(carried::<_, Narrow>(&narrow_format, &7).unwrap_err().contains("a record is a struct"));
    #[derive(Serialize)]
    struct Empty {}
    let unset = carried::<_, Narrow>(&narrow_format, &Empty {}).unwrap_err();
    assert_eq!(unset, "written: field `legs`: has no value, and is not nullable");
    // A writer goes on after an error.
    let mut writer = RecordWriter::new(&narrow_format);
    writer.write(&wide(Some(300))).unwrap_err();
    let value = Narrow { legs: vec![NarrowLeg { km: 2 }] };
    let record = Record::check(&narrow_format, writer.write(&value).unwrap()).unwrap();
    assert_eq!(RecordReader::new(&narrow_format).read(&record), Ok(value));
    assert!(RecordReader::new(&wide_format).read::<Wide>(&record).unwrap_err().to_string().contains("another format"));
    // Text that is not UTF-8, whose writer has broken its promise.
    let format = Format::parse_schema("name string").unwrap();
    let mut builder = RecordBuilder::new(&format);
    builder.set(0, Value::Text(b"\xff")).unwrap();
    let record = Record::check(&format, builder.finish().unwrap()).unwrap();
    let error = RecordReader::new(&format).read::<HashMap<String, String>>(&record).unwrap_err();
    assert_eq!(error.to_string(), "field `name`: found text that is not UTF-8");
}

#[test]
fn a_type_without_a_format_is_refused_with_the_fields_path() {
    #[derive(Deserialize, Debug)]
    #[expect(dead_code, reason = "only its type is looked at")]
    struct In<T> {
        x: Vec<T>,
    }
    #[derive(Deserialize, Debug)]
    #[expect(dead_code, reason = "only its type is looked at")]
    enum Data {
        Plain,
        With(u8),
    }
    #[derive(Deserialize, Debug)]
    #[expect(dead_code, reason = "only its type is looked at")]
    struct Endless {
        inner: Vec<Endless>,
    }
    #[derive(Deserialize, Debug)]
    struct Unit;
    #[derive(Deserialize, Debug)]
    #[serde(try_from = "u8")]
    struct Choosy;
    impl TryFrom<u8> for Choosy {
        type Error = String;

        fn try_from(_: u8) -> Result<Choosy, String> {
            Err("not today".to_owned())
        }
    }
    fn refused<T: DeserializeOwned>() -> String {
        Format::of::<In<T>>().unwrap_err().to_string()
    }
    for (error, words) in [
        (refused::<HashMap<String, i32>>(), "a map"),
        (refused::<Data>(), "`With`, a variant with data"),
        (refused::<Option<i32>>(), "an Option in a list"),
        (refused::<(i32, String)>(), "a tuple of several types"),
        (refused::<u128>(), "u128"),
        (refused::<()>(), "the unit type"),
        (refused::<Unit>(), "`Unit`"),
        (refused::<Choosy>(), "refuses every u8 that was tried (not today)"),
    ] {
        assert!(error.starts_with("field `x") && error.contains(words), "{error}");
    }
    let error = Format::of::<Endless>().unwrap_err().to_string();
    assert!(error.starts_with("field `inner[].inner[]") && error.contains("contains itself"), "{error}");
    for error in [Format::of::<i32>(), Format::of::<Option<Narrow>>(), Format::of::<Vec<Narrow>>()] {
        assert!(error.unwrap_err().to_string().contains("a struct with named fields"));
    }
}

/// A value of a record that has one field.
fn read_of<T: DeserializeOwned>(schema: &str, value: Value<'_>) -> Result<T, String> {
    let format = Format::parse_schema(schema).unwrap();
    let mut builder = RecordBuilder::new(&format);
    builder.set(0, value).unwrap();
    let record = Record::check(&format, builder.finish().unwrap()).unwrap();
    RecordReader::new(&format).read(&record).map_err(|error| error.to_string())
}

#[test]
fn an_array_or_a_tuple_takes_no_other_number_of_elements() {
    #[derive(Serialize, Deserialize, Debug, PartialEq)]
    struct Of<T> {
        raw: T,
    }
    #[derive(Serialize, Deserialize, Debug, PartialEq)]
    struct Pair(i32, i32);
    let format = Format::parse_schema("raw i32[]").unwrap();
    let list = |numbers: &[i32]| Of { raw: numbers.to_vec() };
    assert_eq!(carried(&format, &list(&[1, 2])), Ok(Of { raw: [1, 2] }));
    assert_eq!(carried(&format, &list(&[1, 2])), Ok(Of { raw: (1, 2) }));
    assert_eq!(carried(&format, &list(&[1, 2])), Ok(Of { raw: Pair(1, 2) }));
    let refused = |found: &str| Err::<(), _>(format!("field `raw`: found {found}, expected 2"));
    for (numbers, found) in [(&[1, 2, 3][..], "3 elements"), (&[1], "1 element"), (&[], "0 elements")] {
        assert_eq!(carried::<_, Of<[i32; 2]>>(&format, &list(numbers)).map(drop), refused(found));
        assert_eq!(carried::<_, Of<(i32, i32)>>(&format, &list(numbers)).map(drop), refused(found));
        assert_eq!(carried::<_, Of<Pair>>(&format, &list(numbers)).map(drop), refused(found));
    }
    assert_eq!(read_of::<Of<[u8; 2]>>("raw bytes", Value::Bytes(&[1, 2])), Ok(Of { raw: [1, 2] }));
    assert_eq!(read_of::<Of<[u8; 2]>>("raw bytes", Value::Bytes(&[1, 2, 3])).map(drop), refused("3 elements"));
}

#[test]
fn a_number_without_a_symbol_goes_into_the_variant_for_all_others() {
    #[derive(Deserialize, Debug, PartialEq)]
    enum Open {
        Landed,
        #[serde(other)]
        Unknown,
    }
    #[derive(Deserialize, Debug, PartialEq)]
    struct Of<T> {
        state: T,
    }
    let schema = "state enum { Landed = 7 }";
    let of = |number| Value::Enum { number, symbol: None };
    assert_eq!(read_of(schema, of(7)), Ok(Of { state: Open::Landed }));
    assert_eq!(read_of(schema, of(8)), Ok(Of { state: Open::Unknown }));
    let refused = read_of::<Of<State>>(schema, of(8)).unwrap_err();
    assert_eq!(refused, "field `state`: found 8, which has no symbol in the record's format");
}

#[test]
fn an_alias_of_a_variant_is_a_further_symbol() {
    #[derive(Serialize, Deserialize, Debug, PartialEq)]
    enum Aliased {
        Scheduled,
        #[serde(alias = "Arrived", alias = "Parked")]
        Landed,
        Cancelled,
    }
    #[derive(Serialize, Deserialize, Debug, PartialEq)]
    struct Of {
        state: Aliased,
    }
    let format = Format::of::<Of>().unwrap();
    let schema = "state enum i32 { Scheduled = 0, Arrived = 1, Landed = 2, Parked = 3, Cancelled = 4 }\n";
    assert_eq!(format.schema(), schema);
    for state in [Aliased::Scheduled, Aliased::Landed, Aliased::Cancelled] {
        let value = Of { state };
        assert_eq!(carried::<_, Of>(&format, &value), Ok(value));
    }
    assert_eq!(read_of(schema, Value::Enum { number: 3, symbol: None }), Ok(Of { state: Aliased::Landed }));
}

#[test]
fn a_decimal_without_places_is_an_integer_up_to_64_bits() {
    #[derive(Deserialize, Debug, PartialEq)]
    struct Of<T> {
        n: T,
    }
    let of = |unscaled| Value::Decimal { unscaled, scale: 0 };
    let schema = "n decimal(16, scale 0)";
    assert_eq!(read_of(schema, of(u64::MAX.into())), Ok(Of { n: u64::MAX }));
    assert_eq!(read_of(schema, of(i64::MIN.into())), Ok(Of { n: i64::MIN }));
    assert_eq!(read_of(schema, of(1 << 70)), Ok(Of { n: 1_i128 << 70 }));
    let json: Of<serde_json::Value> = read_of(schema, of(u64::MAX.into())).unwrap();
    assert_eq!(json.n, serde_json::Value::from(u64::MAX));
}

#[test]
fn a_type_that_names_no_fields_is_given_all_every_time() {
    #[derive(Debug, PartialEq)]
    struct Any(HashMap<String, i64>);

    impl<'de> Deserialize<'de> for Any {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Any, D::Error> {
            struct Visitor;

            impl<'de> serde::de::Visitor<'de> for Visitor {
                type Value = Any;

                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("a record")
                }

                fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<Any, A::Error> {
                    HashMap::deserialize(serde::de::value::MapAccessDeserializer::new(map)).map(Any)
                }
            }

            deserializer.deserialize_struct("Any", &[], Visitor)
        }
    }

    let format = Format::parse_schema("a i64\nb i64").unwrap();
    let mut builder = RecordBuilder::new(&format);
    builder.set(0, Value::Int(1)).unwrap();
    builder.set(1, Value::Int(2)).unwrap();
    let record = Record::check(&format, builder.finish().unwrap()).unwrap();
    let reader = RecordReader::new(&format);
    let all = Any([("a".to_owned(), 1), ("b".to_owned(), 2)].into());
    for _ in 0..3 {
        assert_eq!(reader.read::<Any>(&record).as_ref(), Ok(&all));
    }
}
