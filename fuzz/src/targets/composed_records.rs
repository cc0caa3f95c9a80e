//! Records with nested fields, lists and unions, and records of foreign layouts: the check never lets through what reading
//! could trip over, and what is copied out of a record is bounded by it.
use std::sync::LazyLock;

use crossdock_format::json::JsonEncoder;
use crossdock_format::{Format, Record, RecordBuilder};

static FORMATS: LazyLock<Vec<Format>> = LazyLock::new(|| {
    [
        "a record { b string null; c bool[2] } null\nd string[]\ne record { f u8[]; g bool }[]\nh u16[2][]",
        "a union { b record { c i32; d string null }; e string }\nf enum u8 { A = 1 } null\ng decimal(16, scale 3)",
        "layout foreign big packed length n\nn u8\nk char[1]\na string slot u8 u8\nb u16[] slot u8 u8\n\
         u union on k { 'A' => x record { y u24; z f32 null if = nan }; 'B' => w string slot u8 u8 }",
        "layout foreign little packed size variant\nk u8 bits 0..4\nl u8 bits 4..8\n\
         u union on k { 1 => a u32; 2 => b record { m u8; n bool null unless bit 1 of m; t timestamp size 6 unit ms } }",
        "layout foreign little packed\nb u16\nk u8\nu union on k { 1 => g record { r record { i u16 } length b\n\
         x record { p i32; q u8[2] }[] group u16 u8\ny record { o u64 }[] group u16 u8 head 8\nt string inline u16\nc u32 }\n\
         2 => s string until nul }",
        "layout foreign big packed length n\nn u8\na u32 varint\nb i16 zigzag null if = -1\nc string inline varint\n\
         d string until nul\nf u24[] count a\ne timestamp varint unit ms\nl u16[] inline u8\ng char[2]",
        "layout foreign little aligned length n +1\nn u16 be\nm u8\nc record { o u8; p u16 }[] count m",
    ]
    .map(|schema| Format::parse_schema(schema).expect("a sound schema"))
    .into()
});

/// Takes one input.
pub fn fuzz(payload: &[u8]) {
    for format in FORMATS.iter() {
        let natural = Format::natural(format.specs()).expect("as it was declared");
        let mut builder = RecordBuilder::new(&natural);
        let encoder = JsonEncoder::new(format);
        let mut end = 0;
        let outcome = format.check_records(payload, |start, len| {
            assert_eq!(start as usize, end);
            assert_eq!(format.record_len(&payload[end..]), Some(len as usize));
            end += len as usize;
            let record = Record::check(format, &payload[start as usize..end]).expect("was checked");
            let mut line = Vec::new();
            encoder.record(&record, &mut line);
            builder.clear();
            if builder.copy(&record).is_ok()
                && let Ok(copied) = builder.finish()
            {
                let copied = Record::check(&natural, copied).expect("what a builder makes is sound");
                // A null is written wide, and elements at multiples of 8.
                assert!(copied.bytes().len() <= natural.fixed_bytes() + 64 * (record.bytes().len() + 1));
            }
        });
        match outcome {
            Ok(_) => assert_eq!(end, payload.len()),
            Err(error) => drop((error.to_string(), error.field_path(format))),
        }
    }
}
