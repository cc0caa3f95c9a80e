//! Records of foreign layouts, written: held against what they were made of, and against bytes made by hand.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crate::any::RandomWords;
use crate::foreign_any::{Layout, layout};
use crossdock_format::encoding::{self, Encoding, EncodingOptions, Loss};
use crossdock_format::json::JsonEncoder;
use crossdock_format::{Format, Member, Record, RecordBuilder, Value};
use proptest::prelude::*;

/// Whether the two have the same values, but for those that `wanted` leaves to the layout.
fn same(members: &[Member], found: &Record<'_>, wanted: &Record<'_>) -> Result<(), String> {
    members.iter().try_for_each(|member| match member {
        Member::Leaf(field) => {
            let name = &found.format().fields()[*field].name;
            let derived = ["len", "flags", "kind", "n"];
            if wanted.is_null(*field) && derived.contains(&name.rsplit('.').next().unwrap_or(name)) {
                return Ok(());
            }
            same_values(found.get(*field), wanted.get(*field)).map_err(|flaw| format!("{name}: {flaw}"))
        }
        Member::Group(group) if found.group_is_null(group) != wanted.group_is_null(group) => {
            Err(format!("{} is null: {}", group.path, found.group_is_null(group)))
        }
        Member::Group(group) if found.group_is_null(group) => Ok(()),
        Member::Group(group) => same(&group.members, found, wanted),
    })
}

fn same_values(found: Value<'_>, wanted: Value<'_>) -> Result<(), String> {
    let differ = || Err(format!("found {found:?}, wanted {wanted:?}"));
    match (found, wanted) {
        (Value::List(found), Value::List(wanted)) if found.len() == wanted.len() => {
            found.iter().zip(wanted.iter()).try_for_each(|(found, wanted)| same_values(found, wanted))
        }
        (Value::Record(found), Value::Record(wanted)) => same(found.format().tree(), &found, &wanted),
        _ if found == wanted => Ok(()),
        _ => differ(),
    }
}

/// The trees of a foreign format and of its natural format are one, but for the discriminators.
fn same_tree(foreign: &[Member], natural_format: &[Member]) -> bool {
    foreign.len() == natural_format.len()
        && foreign.iter().zip(natural_format).all(|two| match two {
            (Member::Leaf(one), Member::Leaf(other)) => one == other,
            (Member::Group(one), Member::Group(other)) => {
                (&one.path, &one.leaves, one.nullable, one.optional, one.union.is_some())
                    == (&other.path, &other.leaves, other.nullable, other.optional, other.union.is_some())
                    && same_tree(&one.members, &other.members)
            }
            _ => false,
        })
}

fn check(Layout { text, format, .. }: &Layout, written: &[u8], natural_format: &[u8]) -> Result<(), TestCaseError> {
    let found = Record::check(format, written).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
    prop_assert_eq!(found.bytes().len(), written.len());
    let wanted = Record::check(format.natural_format(), natural_format).unwrap();
    same(format.tree(), &found, &wanted).map_err(|flaw| TestCaseError::fail(format!("{flaw}\n{text}")))?;
    // With all that the layout says set to what it says: the same bytes.
    let mut row = RecordBuilder::new(format);
    row.copy(&found).map_err(|error| TestCaseError::fail(format!("copy: {error}\n{text}")))?;
    let again = row.finish().map_err(|error| TestCaseError::fail(format!("again: {error}\n{text}")))?;
    prop_assert_eq!(again, written, "{}", text);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn any_layout_reads_back_what_was_written(seed in any::<u64>(), values in any::<u64>()) {
        let layout = layout(seed);
        let format = &layout.format;
        prop_assert_eq!(&Format::parse(&format.describe()).unwrap(), format);
        prop_assert!(same_tree(format.tree(), format.natural_format().tree()), "{}", layout.text);
        let mut row = RecordBuilder::new(format);
        let mut natural_format = RecordBuilder::new(format.natural_format());
        let mut payload = Vec::new();
        let mut source = RandomWords(values);
        for _ in 0..4 {
            let mut again = source.clone();
            row.clear();
            layout.fill(&mut row, &mut source);
            natural_format.clear();
            layout.fill(&mut natural_format, &mut again);
            let text = &layout.text;
            let written = row.finish().map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
            check(&layout, written, natural_format.finish().unwrap())?;
            payload.extend_from_slice(written);
        }
        let mut records = 0;
        prop_assert_eq!(format.check_records(&payload, |_, _| records += 1), Ok(4), "{}", layout.text);

        // By way of text, and as bytes.
        let mut lines = Vec::new();
        let encoder = JsonEncoder::new(format);
        let mut rest = &payload[..];
        while !rest.is_empty() {
            let record = Record::check(format, rest).unwrap();
            encoder.record(&record, &mut lines);
            rest = &rest[record.bytes().len()..];
        }
        for (encoding, input) in [(Encoding::Json, &lines), (Encoding::Binary, &payload)] {
            let mut decoder = encoding::decoder(encoding, format, None, &EncodingOptions::default()).unwrap();
            let (mut input, mut back) = (&input[..], Vec::new());
            loop {
                let next = decoder.next_record(&mut input);
                match next.map_err(|error| TestCaseError::fail(format!("{encoding}: {error}\n{}", layout.text)))? {
                    Some(record) => back.extend_from_slice(record),
                    None => break,
                }
            }
            prop_assert_eq!(&back, &payload, "{}", encoding);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_encoding_takes_and_gives_any_layout(seed in any::<u64>(), values in any::<u64>()) {
        let layout = layout(seed);
        let format = &layout.format;
        let mut row = RecordBuilder::new(format);
        layout.fill(&mut row, &mut RandomWords(values));
        let bytes = row.finish().map_err(|error| TestCaseError::fail(error.to_string()))?;
        let record = Record::check(format, bytes).unwrap();
        for encoding in Encoding::ALL {
            // A null that CSV loses does not come back.
            let null = (encoding != Encoding::Csv).then_some(Loss::Null);
            let allow = [Loss::Decimal, Loss::ListAsJson].into_iter().chain(null).collect();
            let options = EncodingOptions { allow, ..EncodingOptions::default() };
            let wrong = |error| TestCaseError::fail(format!("{encoding}: {error}\n{}", layout.text));
            let mut encoder = encoding::encoder(encoding, format, None, &options).map_err(wrong)?;
            let mut out = Vec::new();
            encoder.start(&mut out);
            // XML has not all characters, Avro no numbers without a symbol, and CSV no nested record with nothing in it.
            if encoder.record(&record, &mut out).is_err() {
                let may_refuse =
                    matches!(encoding, Encoding::Xml | Encoding::Avro | Encoding::AvroFile | Encoding::Csv);
                prop_assert!(may_refuse, "{encoding}");
                continue;
            }
            encoder.finish(&mut out).map_err(wrong)?;
            let mut decoder = encoding::decoder(encoding, format, None, &options).map_err(wrong)?;
            let back = decoder.next_record(&mut &out[..]).map_err(wrong)?;
            prop_assert_eq!(back, Some(bytes), "{}: {}", encoding, layout.text);
        }
    }
}

#[test]
fn the_layouts_have_all_that_a_layout_may_have() {
    let texts: String = (0..300).map(|seed| layout(seed).text).collect();
    let words =
        ["slot", "count n", "inline u", "inline varint", "group", "head 8", "until nul", " varint", "zigzag", "union"];
    assert_eq!(words.map(|word| texts.contains(word)), [true; 10]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// A record that the check lets through is read without a panic, and what is copied out of it is bounded by its bytes.
    #[test]
    fn any_bytes_are_refused_or_read(seed in any::<u64>(), values in any::<u64>(), changes in any::<[(u16, u8); 3]>()) {
        let layout = layout(seed);
        let format = &layout.format;
        let mut row = RecordBuilder::new(format);
        layout.fill(&mut row, &mut RandomWords(values));
        let mut bytes = row.finish().map_err(|error| TestCaseError::fail(error.to_string()))?.to_vec();
        for (at, value) in changes {
            let at = usize::from(at) % bytes.len();
            bytes[at] = value;
            match Record::check(format, &bytes) {
                Ok(record) => {
                    JsonEncoder::new(format).record(&record, &mut Vec::new());
                    let mut copy = RecordBuilder::new(format.natural_format());
                    if copy.copy(&record).is_ok() && let Ok(copied) = copy.finish() {
                        prop_assert!(copied.len() <= format.natural_format().fixed_bytes() + 64 * (bytes.len() + 1));
                    }
                }
                Err(error) => drop((error.to_string(), error.field_path(format))),
            }
            // Of bytes that were not checked, too, reading makes values of some kind.
            JsonEncoder::new(format).record(&Record::assume_checked(format, &bytes), &mut Vec::new());
        }
    }
}

/// A line of JSON as a record of the layout.
fn write(layout: &str, line: &str) -> Result<Vec<u8>, String> {
    let format = Format::parse_schema(layout).unwrap_or_else(|error| panic!("{error}\n{layout}"));
    let mut decoder = encoding::decoder(Encoding::Json, &format, None, &EncodingOptions::default()).unwrap();
    match decoder.next_record(&mut line.as_bytes()) {
        Ok(record) => Ok(record.unwrap().to_vec()),
        Err(error) => {
            assert!(error.is_item(), "{error}");
            Err(error.to_string())
        }
    }
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

#[test]
fn a_feed_is_written_as_the_exchange_does() {
    let head = |kind: u8| [&[kind, 0, 7][..], &[0, 0, 0, 0, 1, 2]].concat();
    let add = [
        &head(b'A')[..],
        &1_u64.to_be_bytes(),
        b"S",
        &300_u32.to_be_bytes(),
        b"ACME    ",
        &1_234_500_i32.to_be_bytes(),
    ];
    let time = "\"locate\":7,\"time\":\"1970-01-01T00:00:00.000000258Z\"";
    let message = "\"msg\":{\"add\":{\"ref\":1,\"side\":\"SELL\",\"shares\":300,\"stock\":\"ACME\",\"price\":123.45}}";
    // The type may be said; it follows from the message all the same.
    assert_eq!(write(FEED, &format!("{{\"type\":\"A\",{time},{message}}}\n")).unwrap(), add.concat());
    assert_eq!(write(FEED, &format!("{{{time},{message}}}\n")).unwrap(), add.concat());
    let del = |kind: &str| write(FEED, &format!("{{{kind}{time},\"msg\":{{\"del\":{{\"ref\":2}}}}}}\n"));
    assert_eq!(del("").unwrap(), [&head(b'D')[..], &2_u64.to_be_bytes()].concat());
    assert_eq!(del("\"type\":\"X\",").unwrap(), [&head(b'X')[..], &2_u64.to_be_bytes()].concat());
    let error = del("\"type\":\"A\",").unwrap_err();
    assert!(error.contains("field `type`: found a value that speaks of another variant"), "{error}");
    let error = write(FEED, &format!("{{\"type\":\"A\",{time}}}\n")).unwrap_err();
    assert!(error.contains("field `type`: found a value that speaks of another variant"), "{error}");
    let error = write(FEED, &format!("{{{time}}}\n")).unwrap_err();
    assert!(error.contains("found no variant, expected one"), "{error}");
}

#[test]
fn a_c_struct_is_written_with_its_padding() {
    // struct { char id; int x; short s; double d; struct { char c; int n; } in[2]; float f; }
    let layout = "layout foreign little aligned\nid i8\nx i32\ns i16\nd f64\nin record { c i8; n i32 }[2]\nf f32";
    let line = "{\"id\":-1,\"x\":-5,\"s\":9,\"d\":0.5,\"in\":[{\"c\":1,\"n\":2},{\"c\":3,\"n\":4}],\"f\":0.25}\n";
    let mut bytes = [0; 48];
    bytes[0] = 0xff;
    bytes[4..8].copy_from_slice(&(-5_i32).to_le_bytes());
    bytes[8] = 9;
    bytes[16..24].copy_from_slice(&0.5_f64.to_le_bytes());
    [bytes[24], bytes[28], bytes[32], bytes[36]] = [1, 2, 3, 4];
    bytes[40..44].copy_from_slice(&0.25_f32.to_le_bytes());
    assert_eq!(write(layout, line).unwrap(), bytes);
}

#[test]
fn fields_that_describe_others_are_computed() {
    let layout = "layout foreign little packed length len +2
len u16 be
flags u8 bits 0..3
ok bool bits 3..4
level i8 bits 4..8
a u24 null if = 0
b i24 be null unless bit 1 of flags
name string slot u8 u8 base 2
pair record { x u8; y u8 } null bit 0 of flags
n u8
rest u16[] count n
";
    let bytes =
        [&[0, 25, 0b1110_1010, 1, 0, 1, 0xff, 0xff, 0xfe][..], &[20 - 2 + 4, 3, 2, 9, 2, 1, 0, 2, 0], &[0; 4], b"xyz"];
    let mut bytes = bytes.concat();
    // After the two elements of `rest` comes the name.
    bytes.drain(18..22);
    bytes[9] = 18 - 2;
    bytes[1] = (bytes.len() - 2) as u8;
    let line =
        "{\"ok\":true,\"level\":-2,\"a\":65537,\"b\":-2,\"name\":\"xyz\",\"pair\":{\"x\":2,\"y\":9},\"rest\":[1,2]}\n";
    assert_eq!(write(layout, line).unwrap(), bytes);
    // A record may be longer than what is known of it, as it says itself; the rest is zero.
    let longer = line.replace('{', "{\"len\":30,").replacen("{\"len\":30,\"x\"", "{\"x\"", 1);
    let written = write(layout, &longer).unwrap();
    assert_eq!((written.len(), &written[2..bytes.len()]), (32, &bytes[2..]));
    assert!(written[bytes.len()..].iter().all(|byte| *byte == 0));
    let null = write(layout, "{\"ok\":false,\"level\":7,\"name\":\"\",\"rest\":[]}\n").unwrap();
    assert_eq!(null, [0, 12, 0b0111_0001, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn values_that_the_layout_cannot_hold_are_refused_with_the_path() {
    let cases = [
        (
            "little packed\na u8 bits 0..3",
            "{\"a\":8}",
            "field `a`: found 8, expected a number of 3 bits without a sign",
        ),
        ("little packed\na u24", "{\"a\":16777216}", "field `a`: found 16777216, expected a number of 24 bits"),
        ("little packed\na u8 null if = 7", "{\"a\":7}", "field `a`: found the value that stands for null"),
        ("little packed\na f32 null if = nan", "{\"a\":1}", ""),
        (
            "little packed\na char[4] null if = \"-\"",
            "{\"a\":\"-\"}",
            "field `a`: found the value that stands for null",
        ),
        ("little packed\na char[4] pad space", "{\"a\":\"b \"}", "field `a`: found a text that ends in a blank"),
        (
            "little packed\nt timestamp unit ms",
            "{\"t\":\"1970-01-01T00:00:00.000001Z\"}",
            "field `t`: found a timestamp of 1000 ns, expected a multiple of 1000000 ns",
        ),
        (
            "little packed\nt timestamp size 4 unit s",
            "{\"t\":\"2200-01-01T00:00:00Z\"}",
            "field `t`: found 7258118400, expected a number of 32 bits",
        ),
        (
            "big packed\nl record { a u8; b record { c u8 bits 0..2 }[2] }[2]",
            "{\"l\":[{\"a\":1,\"b\":[{\"c\":1},{\"c\":1}]},{\"a\":1,\"b\":[{\"c\":1},{\"c\":4}]}]}",
            "field `l[1].b[1].c`: found 4, expected a number of 2 bits",
        ),
        ("big packed\nl u24[2]", "{\"l\":[1,16777216]}", "field `l[1]`: found 16777216"),
        ("little packed\nn u8\nl u8[] count n", "{\"l\":[1]}", ""),
        (
            "little packed size 1\nn u8\nl u8[] count n",
            "{\"l\":[1]}",
            "field `l`: found what would end at byte 2, expected at most byte 1",
        ),
        (
            "little packed length len +0\nlen u8\nn u8\nl u8[] count n",
            "{\"n\":3,\"l\":[1]}",
            "field `n`: found 3, expected 1, as many elements as there are",
        ),
        (
            "little packed length len +0\nlen u8\nl u8[] slot u8 u8",
            "{\"len\":3,\"l\":[1]}",
            "field `len`: found a length that ends the record at byte 3, expected at least byte 4",
        ),
        (
            "little packed length len +0\nlen u16\na string slot u8 u8\nb string slot u8 u8",
            &format!("{{\"a\":\"{}\",\"b\":\"x\"}}", "y".repeat(255)),
            "field `b`: found an offset or count of 261, expected one of 8 bits",
        ),
        (
            "little packed length len +0\nlen u8\na string slot u8 u8",
            &format!("{{\"a\":\"{}\"}}", "y".repeat(255)),
            "field `len`: found 258, expected a number of 8 bits",
        ),
        ("little packed size 6\na string slot u8 u8", "{\"a\":\"wide\"}", ""),
        (
            "little packed size 6\na string slot u8 u8",
            "{\"a\":\"wider\"}",
            "field `a`: found what would end at byte 7, expected at most byte 6",
        ),
        (
            "little packed\nf u8\na u8 null bit 0 of f",
            "{\"f\":1,\"a\":3}",
            "field `a`: found a null bit that says otherwise",
        ),
        (
            "little packed\nf u8\na u8 null bit 0 of f\nb u8 null bit 0 of f",
            "{\"a\":3}",
            "field `a`: found a value that would read back otherwise",
        ),
        ("little packed\na u16\nb u8 at 0 overlay", "{\"a\":258}", ""),
        ("little packed\na u16\nb u8 at 0 overlay", "{\"a\":258,\"b\":2}", ""),
        (
            "little packed\na u16\nb u8 at 0 overlay",
            "{\"a\":258,\"b\":3}",
            "field `a`: found a value that would read back otherwise",
        ),
        (
            "little packed\nk u8 bits 0..1\nm union on k { 0 => a u8; 1 => b u8 }",
            "{}",
            "field `m.a`: found no variant, expected one",
        ),
        ("little packed\nk u8\nm union on k { 0 => a u8; 1 => b u8 }", "{}", ""),
        ("little packed\na u16", "{}", "field `a`: the object lacks this member"),
    ];
    assert_refused(&cases);
}

#[test]
fn values_of_variable_length_that_the_layout_cannot_hold_are_refused_with_the_path() {
    let many = format!("{{\"a\":[{}0]}}", "0,".repeat(255));
    let cases = [
        ("little packed\na string until nul", "{\"a\":\"b\\u0000\"}", "field `a`: found a text with a NUL in it"),
        ("little packed\na u8 varint", "{\"a\":256}", "field `a`"),
        ("little packed\na u8[] inline u8", &many, "field `a`: found 256, expected"),
        (
            "little packed\nk u8 varint\nm union on k { 1 => a u8; 2 => b u8 }",
            "{\"m\":{\"a\":1}}",
            "field `k`: found a varint that is left out",
        ),
        ("little packed\nk u8 varint\nm union on k { 1 => a u8; 2 => b u8 }", "{\"k\":1,\"m\":{\"a\":1}}", ""),
        (
            "little packed\nn u8\nb record { c u16 } length n\nd u8",
            "{\"n\":1,\"b\":{\"c\":1},\"d\":1}",
            "field `n`: found a length that ends the record at byte 1, expected at least byte 2",
        ),
    ];
    assert_refused(&cases);
}

/// Each record is refused with a message that contains this one; an empty one means that it can be written.
fn assert_refused(cases: &[(&str, &str, &str)]) {
    for (layout, line, message) in cases {
        match write(&format!("layout foreign {layout}"), &format!("{line}\n")) {
            Ok(_) => assert_eq!(*message, "", "{layout}: {line}"),
            Err(error) => assert!(!message.is_empty() && error.contains(message), "{layout}: {line}: {error}"),
        }
    }
}

#[test]
fn a_natural_format_that_cannot_be_is_refused_with_the_layout() {
    // In the natural layout each of these takes four bytes.
    let error = Format::parse_schema("# wide\nlayout foreign big packed\na u24[300000]").unwrap_err().to_string();
    assert!(error.starts_with("line 2: field `a` makes the fixed part longer than 1 MiB"), "{error}");
}
