//! Foreign layouts: described, checked and read in place.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crossdock_format::json::JsonEncoder;
use crossdock_format::{Field, Format, ReadCost, Record, RecordBuilder, Value};

fn json(format: &Format, bytes: &[u8]) -> String {
    let mut line = Vec::new();
    JsonEncoder::new(format).record(&Record::check(format, bytes).unwrap(), &mut line);
    String::from_utf8(line).unwrap()
}

/// Reads back as text in both notations, and is the same format.
fn parse(text: &str) -> Format {
    let format = Format::parse_schema(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    for back in [Format::parse(&format.describe()), Format::parse_schema(&format.schema())] {
        let back = back.unwrap_or_else(|error| panic!("{error}\n{}", format.describe()));
        assert_eq!((back.fields(), back.tree()), (format.fields(), format.tree()), "{}", format.describe());
        assert_eq!(back.describe(), format.describe());
        assert_eq!(back.id(), format.id());
    }
    format
}

/// Messages as an exchange sends them: big-endian, packed, as long as their type needs.
const FEED: &str = "layout foreign big packed size variant
type char[1]
locate u16
time timestamp size 6 unit ns
msg union on type {
    'A' => add record { ref u64; side enum u8 { BUY = 'B', SELL = 'S' }; shares u32; stock char[8] pad space; price decimal(4, scale 4) }
    'D' 'X' => del record { ref u64 }
    'S' => event char[1]
}
";

fn head(kind: u8) -> Vec<u8> {
    let mut bytes = vec![kind, 0, 7];
    bytes.extend_from_slice(&[0, 0, 0, 0, 1, 2]);
    bytes
}

#[test]
fn a_feed_is_read_in_place() {
    let format = parse(FEED);
    let mut add = head(b'A');
    add.extend_from_slice(&1_u64.to_be_bytes());
    add.push(b'S');
    add.extend_from_slice(&300_u32.to_be_bytes());
    add.extend_from_slice(b"ACME    ");
    add.extend_from_slice(&1_234_500_i32.to_be_bytes());
    let mut del = head(b'X');
    del.extend_from_slice(&2_u64.to_be_bytes());
    let mut event = head(b'S');
    event.push(b'O');
    let payload = [&add[..], &del, &event].concat();
    let mut starts = Vec::new();
    assert_eq!(format.check_records(&payload, |start, len| starts.push((start, len))), Ok(3));
    assert_eq!(starts, [(0, 34), (34, 17), (51, 10)]);
    assert_eq!(format.record_len(&payload), Some(34));
    assert_eq!(
        json(&format, &add),
        "{\"type\":\"A\",\"locate\":7,\"time\":\"1970-01-01T00:00:00.000000258Z\",\"msg\":{\"add\":{\"ref\":1,\
         \"side\":\"SELL\",\"shares\":300,\"stock\":\"ACME\",\"price\":123.4500}}}\n"
    );
    assert!(json(&format, &del).ends_with("\"msg\":{\"del\":{\"ref\":2}}}\n"));
    assert!(json(&format, &event).ends_with("\"msg\":{\"event\":\"O\"}}\n"));
    let record = Record::check(&format, &del).unwrap();
    assert_eq!(record.get(format.field("msg.add.ref").unwrap()), Value::Null);
    assert_eq!(record.get(format.field("msg.del.ref").unwrap()), Value::Uint(2));
    // Cut short, or of a type that nobody knows: no record.
    assert!(Record::check(&format, &add[..33]).is_err());
    let error = Record::check(&format, &head(b'?')).unwrap_err();
    assert!(error.to_string().contains("its length is unknown"), "{error}");
}

#[test]
fn a_c_struct_is_read_in_place() {
    // struct { char id; int x; short s; double d; struct { char c; int n; } in[2]; float f; }
    let format =
        parse("layout foreign little aligned\nid i8\nx i32\ns i16\nd f64\nin record { c i8; n i32 }[2]\nf f32");
    assert_eq!(format.fixed_bytes(), 48);
    let offsets: Vec<u32> = format.fields().iter().map(|field| field.offset).collect();
    assert_eq!(offsets, [0, 4, 8, 16, 24, 40]);
    assert!(format.fields().iter().filter(|field| field.element().is_none()).all(Field::is_plain));
    let mut bytes = vec![0; 48];
    bytes[0] = 0xff;
    bytes[4..8].copy_from_slice(&(-5_i32).to_le_bytes());
    bytes[16..24].copy_from_slice(&0.5_f64.to_le_bytes());
    bytes[24] = 1;
    bytes[28] = 2;
    bytes[32] = 3;
    bytes[36] = 4;
    assert_eq!(
        json(&format, &bytes),
        "{\"id\":-1,\"x\":-5,\"s\":0,\"d\":0.5,\"in\":[{\"c\":1,\"n\":2},{\"c\":3,\"n\":4}],\"f\":0.0}\n"
    );
}

#[test]
fn odd_numbers_bits_nulls_and_slots() {
    let format = parse(
        "layout foreign little packed length len +2
len u16 be
flags u8 bits 0..3
ok bool bits 3..4
level i8 bits 4..8
a u24 null if = 0
b i24 be null unless bit 1 of flags
c f32 null if = nan
d char[4] null if = \"NONE\"
when timestamp size 4 unit s be null if = 0
name string slot u8 u8 base 2
list u16[] slot u16 u8 be
pair record { x u8; y u8 } null bit 0 of flags
rest u16[] count pair.x
",
    );
    let names = ["a", "b", "c", "d", "when"];
    let field = |name: &str| format.field(name).unwrap();
    let fixed = format.fixed_bytes();
    let mut bytes = vec![0; fixed];
    bytes[2] = 0b1110_1010;
    bytes[3..6].copy_from_slice(&[1, 0, 1]);
    bytes[6..9].copy_from_slice(&[0xff, 0xff, 0xfe]);
    bytes[9..13].copy_from_slice(&1.5_f32.to_le_bytes());
    bytes[13..17].copy_from_slice(b"ab\0\0");
    bytes[17..21].copy_from_slice(&5_u32.to_be_bytes());
    let end = fixed as u8;
    bytes[21..23].copy_from_slice(&[end + 4 - 2, 3]);
    bytes[23..26].copy_from_slice(&[0, end + 7, 2]);
    bytes[26..28].copy_from_slice(&[2, 9]);
    bytes.extend_from_slice(&[1, 0, 2, 0]);
    bytes.extend_from_slice(b"xyz");
    bytes.extend_from_slice(&[0, 3, 0, 4]);
    let len = bytes.len() as u16 - 2;
    bytes[..2].copy_from_slice(&len.to_be_bytes());
    assert_eq!(
        json(&format, &bytes),
        format!(
            "{{\"len\":{len},\"flags\":2,\"ok\":true,\"level\":-2,\"a\":65537,\"b\":-2,\"c\":1.5,\"d\":\"ab\",\
             \"when\":\"1970-01-01T00:00:05Z\",\"name\":\"xyz\",\"list\":[3,4],\"pair\":{{\"x\":2,\"y\":9}},\
             \"rest\":[1,2]}}\n"
        )
    );
    bytes[2] = 0b0000_0001;
    bytes[3..6].fill(0);
    bytes[9..13].copy_from_slice(&(-f32::NAN).to_le_bytes());
    bytes[13..17].copy_from_slice(b"NONE");
    bytes[17..21].fill(0);
    let record = Record::check(&format, &bytes).unwrap();
    assert!(names.iter().all(|name| record.is_null(field(name))), "{record:?}");
    assert!(record.is_null(field("pair.x")) && record.group_is_null(format.group("pair").unwrap()));
    // A slot that ends beyond the record, and one list that says it is endless.
    let mut bad = bytes.clone();
    bad[22] = 200;
    let error = Record::check(&format, &bad).unwrap_err();
    assert_eq!(error.field_path(&format).as_deref(), Some("name"));
    bytes[26] = 255;
    let error = Record::check(&format, &bytes).unwrap_err();
    assert_eq!(error.field_path(&format).as_deref(), Some("rest"));
    for len in 0..bytes.len() {
        assert!(Record::check(&format, &bytes[..len]).is_err());
    }
}

#[test]
fn impossible_fields_are_refused_with_the_line_and_the_field() {
    let cases = [
        ("layout foreign\na u8", "line 1: found ``, expected `layout foreign little|big"),
        (
            "# x\nlayout foreign big packed size 1\na u16",
            "line 2: field `layout`: a size of 1 bytes, expected at least 2",
        ),
        ("layout foreign big explicit\na u16", "line 2: field `a`: it needs its place: `at N`"),
        ("layout foreign big packed\na u16 at 1048575", "line 2: field `a`: it ends beyond the first MiB"),
        (
            "layout foreign big packed\na u16 at 4294967295",
            "line 2: found `a u16 at 4294967295`, expected `at` otherwise",
        ),
        ("layout foreign big packed\na u16\nb u8 at 1", "line 3: field `b`: it shares bytes with `a`"),
        ("layout foreign big packed\na u8 bits 0..4\nb u8 bits 3..8 at 0", "line 3: field `b`: it shares bytes"),
        ("layout foreign big packed\na string", "line 2: field `a`: it lies behind a slot"),
        ("layout foreign big packed\na u8[]", "line 2: field `a`: how many elements it has is said once"),
        ("layout foreign big packed\na u8[] count b\nb u8", "line 2: field `a`: `b` is no number or short text"),
        ("layout foreign big packed\na u8[] count a", "line 2: field `a`: `a` is no number or short text"),
        ("layout foreign big packed\na union { b u8 }", "line 2: field `a`: a union of a foreign layout names"),
        (
            "layout foreign big packed\nt u8\na union on t { 256 => b u8 }",
            "line 3: field `a`: `256` is no value of `t`",
        ),
        (
            "layout foreign big packed\nt u8\na union on t { 1 => b u8; 1 => c u8 }",
            "line 3: field `a`: `1` is no value",
        ),
        ("layout foreign big packed\nt u8 null bit 9 of u\n", "line 2: field `t`: `u` is no number"),
        ("layout foreign big packed\nt u8\nu u8 null bit 9 of t\n", "line 3: field `u`: `t` has 8 bits"),
        ("layout foreign big packed\nt f32 bits 0..3", "line 2: field `t`: `bits` is for whole numbers"),
        ("layout foreign big packed\nt u8 bits 4..9", "line 2: field `t`: `bits` goes beyond the number's bytes"),
        ("layout foreign big packed length t\nt f32", "line 1: field `layout`: `t` is no whole number"),
        ("layout foreign big packed\nt u8 be be", "line 2: found `t u8 be be`, expected `be` otherwise"),
        (
            "layout foreign big packed\nr record { x u8; x u8 }",
            "line 2: field `r.x`: there are two fields of this name",
        ),
        ("layout foreign big packed\nr u8[1000][2000]", "line 2: field `r`: it ends beyond the first MiB"),
        ("layout foreign big packed\nn u8\nr u8[] count n\ns u8 at 3", "line 4: field `s`: it shares bytes with `r`"),
        ("a u24", "line 1: `u24` is no field type"),
        ("a union on b { 1 => c u8 }", "line 1: found `a union on b { 1 => c u8 }`, expected a variant without values"),
    ];
    assert_refused(&cases);
}

#[test]
fn impossible_fields_of_variable_length_are_refused_with_the_line_and_the_field() {
    let many: String = (0..65).map(|n| format!("a{n} u8 varint\n")).collect();
    let many = format!("layout foreign big packed\n{many}");
    let cases = [
        ("layout foreign big packed\na u8\nb u8 after a", "line 3: field `b`: `a` is no field of variable length"),
        ("layout foreign big packed\na i8 varint", "line 2: field `a`: a number without a sign is a `varint`"),
        ("layout foreign big packed\na u8 varint bits 0..3", "line 2: field `a`: a varint has as many bytes"),
        ("layout foreign big packed\na f32 zigzag", "line 2: field `a`: `varint` and `zigzag` are for numbers"),
        ("layout foreign big packed\na bytes until nul", "line 2: field `a`: it lies behind a slot"),
        ("layout foreign big packed\na u8 inline u8", "line 2: field `a`: `inline` is for string"),
        ("layout foreign big packed\na u8[] inline u8 group u8 u8", "line 2: field `a`: how many elements it has"),
        ("layout foreign big packed\na u8[] group u8 u8 head 1", "line 2: found `a u8[] group u8 u8 head 1`"),
        (
            "layout foreign big packed\na record { b string inline u8 }[2]",
            "line 2: field `a[].b`: in an element of a list",
        ),
        (
            "layout foreign big packed\nf u8\na record { b string inline u8 } null bit 0 of f",
            "line 3: field `a.b`: in an element of a list, and in a record that may be null",
        ),
        ("layout foreign big packed\nf u8 varint\na u8 null bit 0 of f", "line 3: field `a`: `f` has 8 bits"),
        (
            "layout foreign big packed\nk u8\nu union on k { 1 => a string until nul; 2 => b u8 }\nc u8",
            "line 4: field `c`: nothing lies behind a union whose variants have no constant length",
        ),
        (
            "layout foreign little aligned\na string until nul\nb u32",
            "line 3: field `b`: behind a field of variable length there is no alignment",
        ),
        (
            "layout foreign big packed\na string until nul\nb string slot u8 u8",
            "line 1: field `layout`: slots, and fields of variable length",
        ),
        (
            "layout foreign big packed\nn u8\na record { b string inline u8 } length n",
            "line 3: field `a`: in a record with a `length`, fields have constant lengths",
        ),
        (&many, "line 66: field `a64`: a layout has at most 64 fields of variable length"),
    ];
    assert_refused(&cases);
}

/// Each text is refused, with a message that begins so.
fn assert_refused(cases: &[(&str, &str)]) {
    for (text, message) in cases {
        let error = Format::parse_schema(text).unwrap_err().to_string();
        assert!(error.starts_with(message), "{text:?}: {error}");
    }
}

#[test]
fn costs_are_reported_and_selections_are_natural() {
    let format = parse(FEED);
    let cost = |name: &str| format.fields()[format.field(name).unwrap()].read_cost();
    assert_eq!(cost("type"), ReadCost::Load);
    assert_eq!(cost("locate"), ReadCost::Converted);
    assert_eq!(cost("msg.add.ref"), ReadCost::Guarded);
    assert!(format.is_foreign());
    // The fields that a query selects go into records of the natural layout.
    let natural = Format::natural(format.specs()).unwrap();
    let mut row = RecordBuilder::new(&natural);
    let mut del = head(b'D');
    del.extend_from_slice(&2_u64.to_be_bytes());
    row.copy(&Record::check(&format, &del).unwrap()).unwrap();
    let copied = row.finish().unwrap().to_vec();
    assert_eq!(json(&natural, &copied), json(&format, &del));
}

#[test]
fn times_that_no_timestamp_holds_are_refused() {
    let layout = "layout foreign little packed\nn u8\nat timestamp size 8 unit s null if = -1\n\
                  legs record { end timestamp size 6 unit ms be }[2]\nshort timestamp size 4 unit s";
    let format = parse(layout);
    let most = i64::MAX / 1_000_000_000;
    let bytes = |seconds: i64, millis: u64| {
        let mut bytes = vec![7];
        bytes.extend_from_slice(&seconds.to_le_bytes());
        bytes.extend_from_slice(&[0; 6]);
        bytes.extend_from_slice(&millis.to_be_bytes()[2..]);
        bytes.extend_from_slice(&u32::MAX.to_le_bytes());
        bytes
    };
    let at = format.field("at").unwrap();
    for seconds in [most, -most, 0] {
        let bytes = bytes(seconds, 1 << 42);
        let record = Record::check(&format, &bytes).unwrap();
        assert_eq!(record.get(at), Value::Timestamp(seconds * 1_000_000_000));
    }
    assert_eq!(Record::check(&format, &bytes(-1, 0)).unwrap().get(at), Value::Null);
    for (seconds, millis, path) in
        [(most + 1, 0, "at"), (-most - 1, 0, "at"), (i64::MIN, 0, "at"), (1, 1 << 47, "legs[1].end")]
    {
        let bytes = bytes(seconds, millis);
        let error = Record::check(&format, &bytes).unwrap_err();
        assert_eq!((error.problem.reason(), error.field_path(&format).as_deref()), ("record_timestamp", Some(path)));
        assert!(error.to_string().contains("is no timestamp"), "{error}");
        assert!(format.check_records(&bytes, |_, _| {}).is_err());
    }
}

/// A short text that selects a variant is described with all that reading the description does not add again.
#[test]
fn a_variant_may_be_selected_by_a_space() {
    for (kind, tags) in [("char[1]", "' ' 'D'"), ("char[2]", "\"x \" x"), ("char[2] pad space", "\"\" xy")] {
        parse(&format!(
            "layout foreign big packed\nkind {kind}\nmsg union on kind {{ 'A' => add u8; {tags} => del u16 }}\n"
        ));
    }
}
