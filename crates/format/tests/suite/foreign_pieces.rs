//! Foreign layouts with fields of variable length, and fields behind them: read in place, written, and refused.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crossdock_format::convert::{Plan, Rules};
use crossdock_format::encoding::{self, Encoding, EncodingOptions};
use crossdock_format::json::JsonEncoder;
use crossdock_format::{Format, ReadCost, Record, RecordBuilder};

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
    }
    format
}

/// A line of JSON as a record of the layout.
fn write(format: &Format, line: &str) -> Vec<u8> {
    let mut decoder = encoding::decoder(Encoding::Json, format, None, &EncodingOptions::default()).unwrap();
    decoder.next_record(&mut line.as_bytes()).unwrap().unwrap().to_vec()
}

/// Reads as the line, and the line is written as these bytes; whatever is cut off is no record, and the stream's reader
/// waits for it.
fn both_ways(format: &Format, bytes: &[u8], line: &str) {
    assert_eq!(json(format, bytes), format!("{line}\n"));
    assert_eq!(write(format, &format!("{line}\n")), bytes);
    for len in 0..bytes.len() {
        assert!(Record::check(format, &bytes[..len]).is_err(), "{len} bytes of {}", bytes.len());
    }
    let twice = [bytes, bytes].concat();
    let mut starts = Vec::new();
    assert_eq!(format.check_records(&twice, |start, len| starts.push((start, len as usize))), Ok(2));
    assert_eq!(starts, [(0, bytes.len()), (bytes.len() as u32, bytes.len())]);
    // A few bytes at a time: the end of the record is found once it is there.
    let mut decoder = encoding::decoder(Encoding::Binary, format, None, &EncodingOptions::default()).unwrap();
    let mut input = std::io::BufReader::with_capacity(3, &twice[..]);
    for _ in 0..2 {
        assert_eq!(decoder.next_record(&mut input).unwrap().unwrap(), bytes);
    }
    assert!(decoder.next_record(&mut input).unwrap().is_none());
}

#[test]
fn fields_behind_one_another_are_read_and_written() {
    let format = parse(
        "layout foreign big packed
kind u8
name string inline u8
note string until nul
size u16
many u32 varint
few i16 zigzag null if = -1
at timestamp varint unit ms
data bytes inline varint
list u16[] inline u16 le
price decimal(4, scale 2)
symbol char[4] pad space null if = \"NONE\"
",
    );
    let bytes = [
        &b"\x07\x03abcxyz\0\x01\x02\xac\x02\x03\xe8\x07\x02\x00\xff"[..],
        &[2, 0, 1, 0, 2, 0],
        &12345_i32.to_be_bytes(),
        b"AB  ",
    ]
    .concat();
    let line = "{\"kind\":7,\"name\":\"abc\",\"note\":\"xyz\",\"size\":258,\"many\":300,\"few\":-2,\
                \"at\":\"1970-01-01T00:00:01Z\",\"data\":\"00ff\",\"list\":[1,2],\"price\":123.45,\"symbol\":\"AB\"}";
    let found = json(&format, &bytes);
    let data = found.split("\"data\":").nth(1).unwrap().split(',').next().unwrap();
    both_ways(&format, &bytes, &line.replace("\"00ff\"", data));
    let costs =
        ["kind", "name", "note", "size", "symbol"].map(|name| format.fields()[format.field(name).unwrap()].read_cost());
    let walked = ReadCost::Walked;
    assert_eq!(costs, [ReadCost::Load, ReadCost::Converted, walked, walked, walked]);
    let empty = [&b"\x07\x00\x00\x01\x02\x00\x01\x00\x00"[..], &[0, 0], &0_i32.to_be_bytes(), b"NONE"].concat();
    let record = Record::check(&format, &empty).unwrap();
    assert!(record.is_null(format.field("few").unwrap()) && record.is_null(format.field("symbol").unwrap()));
    let mut row = RecordBuilder::new(&format);
    row.copy(&record).unwrap();
    assert_eq!(row.finish().unwrap(), empty);
}

/// A message as in SBE: a block of a stated length, two groups, each with its block length, data of stated length.
const GROUPS: &str = "layout foreign little packed
block u16
template u16
msg union on template {
    1 => order record {
        root record { id u32; side char[1] } length block
        legs record { px i32; qty u16 null if = 65535 }[] group u16 u8
        fills record { id u64 }[] group u16 u8 head 8
        text string inline u16
        crc u32
    }
    2 => ping u8
    3 => note string until nul
}
";

#[test]
fn groups_and_what_follows_them_are_read_with_the_lengths_that_they_state() {
    let format = parse(GROUPS);
    let order = |longer: usize| {
        let more = vec![0xee; longer];
        let mut bytes = [&(5 + longer as u16).to_le_bytes()[..], &[1, 0], &7_u32.to_le_bytes(), b"B", &more].concat();
        bytes.extend_from_slice(&(6 + longer as u16).to_le_bytes());
        bytes.push(2);
        for (px, qty) in [(-5_i32, 9_u16), (6, u16::MAX)] {
            bytes.extend([&px.to_le_bytes()[..], &qty.to_le_bytes(), &more].concat());
        }
        bytes.extend_from_slice(&(8 + longer as u16).to_le_bytes());
        bytes.extend_from_slice(&[0, 0, 0, 0, 0, 1]);
        bytes.extend([&1_u64.to_le_bytes()[..], &more, &[2, 0], b"ok", &9_u32.to_le_bytes()].concat());
        bytes
    };
    let line = "{\"block\":5,\"template\":1,\"msg\":{\"order\":{\"root\":{\"id\":7,\"side\":\"B\"},\
                \"legs\":[{\"px\":-5,\"qty\":9},{\"px\":6,\"qty\":null}],\"fills\":[{\"id\":1}],\"text\":\"ok\",\"crc\":9}}}";
    both_ways(&format, &order(0), line);
    // A value that follows from other fields need not be said.
    assert_eq!(write(&format, &format!("{}\n", line.replace("\"block\":5,\"template\":1,", ""))), order(0));
    // A newer version of the message, whose blocks have more fields than are known.
    assert_eq!(json(&format, &order(3)), format!("{}\n", line.replace("\"block\":5", "\"block\":8")));
    both_ways(&format, &[0, 0, 2, 0, 4], "{\"block\":0,\"template\":2,\"msg\":{\"ping\":4}}");
    both_ways(&format, b"\0\0\x03\0hi\0", "{\"block\":0,\"template\":3,\"msg\":{\"note\":\"hi\"}}");
    // The fields that a query selects are copied into records of the natural layout.
    let natural = Format::natural(format.specs()).unwrap();
    let mut row = RecordBuilder::new(&natural);
    let longer = order(3);
    let plan = Plan::by_name(&format, &natural, &Rules::none()).unwrap();
    let mut converted = Vec::new();
    plan.run(&longer, &mut converted).unwrap();
    assert_eq!(json(&natural, &converted), json(&format, &longer));
    row.copy(&Record::check(&format, &longer).unwrap()).unwrap();
    assert_eq!(json(&natural, row.finish().unwrap()), json(&format, &longer));
}

/// The block of a group may be shorter than its fields and what aligns them take in memory: the last element then ends where the
/// record does.
#[test]
fn conversions_take_elements_that_end_with_the_record() {
    let from = parse("layout foreign little aligned\nk u64\nl record { o u64; p u32 }[] group u16 u16\n");
    let to = Format::parse_schema("k u64\nl record { p u32; o u64 }[]").unwrap();
    let plan = Plan::by_name(&from, &to, &Rules::default()).unwrap();
    for block in [12_u16, 16] {
        let mut record = [&7_u64.to_le_bytes()[..], &block.to_le_bytes(), &2_u16.to_le_bytes()].concat();
        for (o, p) in [(100_u64, 10_u32), (200, 20)] {
            let start = record.len();
            record.extend_from_slice(&o.to_le_bytes());
            record.extend_from_slice(&p.to_le_bytes());
            record.resize(start + usize::from(block), 0);
        }
        Record::check(&from, &record).unwrap();
        let mut out = Vec::new();
        plan.run(&record, &mut out).unwrap();
        assert_eq!(json(&to, &out), "{\"k\":7,\"l\":[{\"p\":10,\"o\":100},{\"p\":20,\"o\":200}]}\n", "{block}");
    }
}

#[test]
fn wrong_lengths_are_refused_with_the_path() {
    let format = parse(GROUPS);
    let start = [&[5, 0, 1, 0][..], &7_u32.to_le_bytes(), b"B"].concat();
    let legs = |block: u8, count: u8, bytes: usize| [&[block, 0, count][..], &vec![0; bytes]].concat();
    let cases = [
        ([&[4, 0, 1, 0], &[0; 40][..]].concat(), "record_block", Some("msg.order.root.id")),
        ([&[255, 255, 1, 0], &[0; 40][..]].concat(), "record_no_end", Some("msg.order.root.id")),
        ([&start[..], &legs(5, 1, 60)].concat(), "record_block", Some("msg.order.legs")),
        ([&start[..], &legs(0, 255, 60)].concat(), "record_block", Some("msg.order.legs")),
        ([&start[..], &legs(6, 100, 60)].concat(), "record_no_end", Some("msg.order.legs")),
        ([&start[..], &legs(0, 0, 3)].concat(), "record_no_end", Some("msg.order.fills")),
        (vec![0, 0, 4, 0, 4], "record_length", None),
    ];
    for (bytes, reason, path) in cases {
        let error = Record::check(&format, &bytes).unwrap_err();
        assert_eq!((error.problem.reason(), error.field_path(&format).as_deref()), (reason, path), "{error}");
    }
    let format =
        parse("layout foreign little packed length len\nlen u8\na u16 varint\nb string inline u8\nc string until nul");
    let cases = [
        (&[7, 0x80, 0x80, 4, 1, b'x', 0][..], "record_varint", "a"),
        (&[7, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], "record_no_end", "a"),
        (&[13, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], "record_no_end", "a"),
        (&[5, 1, 3, b'x', 0, 0, 0], "record_no_end", "b"),
        (&[5, 1, 1, b'x', b'y', 0], "record_no_end", "c"),
    ];
    for (bytes, reason, path) in cases {
        let error = Record::check(&format, bytes).unwrap_err();
        assert_eq!((error.problem.reason(), error.field_path(&format).as_deref()), (reason, Some(path)), "{error}");
    }
}

/// Where each message has its length, one of another type is read without a variant, or skipped if it is not sound.
#[test]
fn a_message_of_another_type_does_not_end_the_input_where_lengths_are_stated() {
    let format = parse(
        "layout foreign big packed length len +2\nlen u16\nkind char[1]\n\
         msg union on kind { 'A' => a u16; 'B' => b string inline u8 }",
    );
    let input = b"\0\x03A\0\x01\0\x05?what\0\x03B\x05x\0\x04B\x02xy";
    let mut decoder = encoding::decoder(Encoding::Binary, &format, None, &EncodingOptions::default()).unwrap();
    let mut input = &input[..];
    let mut next = || decoder.next_record(&mut input).map(|record| record.map(|bytes| json(&format, bytes)));
    assert_eq!(next().unwrap().unwrap(), "{\"len\":3,\"kind\":\"A\",\"msg\":{\"a\":1}}\n");
    assert_eq!(next().unwrap().unwrap(), "{\"len\":5,\"kind\":\"?\",\"msg\":null}\n");
    let error = next().unwrap_err();
    assert!(error.is_item() && error.to_string().contains("item 3, byte 12, field `msg.b`"), "{error}");
    assert_eq!(next().unwrap().unwrap(), "{\"len\":4,\"kind\":\"B\",\"msg\":{\"b\":\"xy\"}}\n");
    assert!(next().unwrap().is_none());
}

#[test]
fn fields_in_front_of_those_of_variable_length_are_read_as_ever() {
    let format = parse(
        "layout foreign little packed length size
size u16
block u16
root record { time timestamp; flags u8 } length block
prices record { px i64; qty i32 null if = 2147483647 }[] group u16 u8
orders record { id u64 }[] group u16 u8 head 8
note string inline u16
crc u32
",
    );
    let cost = |name: &str| format.fields()[format.field(name).unwrap()].read_cost();
    assert_eq!(["size", "root.time", "root.flags"].map(cost), [ReadCost::Load; 3]);
    assert_eq!(["prices", "orders", "note", "crc"].map(cost), [ReadCost::Walked; 4]);
    assert!(ReadCost::Walked.describe().contains("about 10 ns a value"));
    // The same, with each place stated.
    let stated = parse(
        "layout foreign little explicit length size
size u16 at 0
block u16 at 2
root record { time timestamp at 4; flags u8 at 12 } at 4 length block
prices record { px i64 at 0; qty i32 at 8 null if = 2147483647 }[] after root group u16 u8
orders record { id u64 at 0 }[] after prices group u16 u8 head 8
note string after orders inline u16
crc u32 after note
",
    );
    assert_eq!(stated.id(), format.id());
}

/// Where messages do not state their lengths, one of another type has no end: the error says what would help.
#[test]
fn a_message_without_an_end_ends_the_input_with_the_remedy() {
    let format = parse("layout foreign big packed size variant\nkind char[1]\nmsg union on kind { 'A' => a u16 }");
    let mut decoder = encoding::decoder(Encoding::Binary, &format, None, &EncodingOptions::default()).unwrap();
    let mut input = &b"A\0\x01?what"[..];
    assert!(decoder.next_record(&mut input).unwrap().is_some());
    let error = decoder.next_record(&mut input).unwrap_err();
    assert!(!error.is_item() && error.to_string().contains("have an end if it has `length FIELD`"), "{error}");
}

/// Fuzzing starts from inputs that reach what these layouts have; `composed_records` has the same layouts.
#[test]
fn the_fuzz_seeds_are_records() {
    let target = include_str!("../../../../fuzz/src/targets/composed_records.rs");
    let texts = target.split('"').filter(|text| text.starts_with("layout foreign"));
    let formats: Vec<Format> = texts
        .map(|text| {
            let text = text.replace("\\n\\\n", "\\n").replace("\\\n", "").replace("\\n", "\n");
            Format::parse_schema(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
        })
        .collect();
    let seeds = [
        (&include_bytes!("../../../../fuzz/seeds/composed_records/sbe_groups")[..], 2),
        (&include_bytes!("../../../../fuzz/seeds/composed_records/pieces_in_sequence")[..], 1),
    ];
    for (seed, records) in seeds {
        assert!(formats.iter().any(|format| format.check_records(seed, |_, _| {}) == Ok(records)), "{records}");
    }
}
