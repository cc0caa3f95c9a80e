//! A packet's payload: the check never lets through what reading could trip over, and reading trips over nothing.
use std::sync::LazyLock;

use crossdock_format::{Format, Record, RecordBuilder, record_len};

static FORMATS: LazyLock<Vec<Format>> = LazyLock::new(|| {
    [
        "a i8",
        "a string",
        "a bool null\nb char[3]\nc i16 null\nd string null\ne f64\nf bytes\ng timestamp null\nh u32\ni f32 null\nj u64",
        "a bytes\nb string\nc string\nd bool",
    ]
    .map(|schema| Format::parse_schema(schema).expect("a sound schema"))
    .into()
});

/// Takes one input.
pub fn fuzz(payload: &[u8]) {
    let _ = record_len(payload);
    for format in FORMATS.iter() {
        let mut builder = RecordBuilder::new(format);
        let mut end = 0;
        let outcome = format.check_records(payload, |start, len| {
            assert_eq!(start as usize, end);
            end += len as usize;
            let record = Record::check(format, &payload[start as usize..end]).expect("was checked");
            assert_eq!(record.bytes().len(), len as usize);
            copy(&record, &mut builder);
            // A copy out of a record is never longer than the record.
            let copied = builder.finish().expect("every field was set").len();
            assert!(copied <= record.bytes().len());
        });
        assert_eq!(outcome.is_ok(), end == payload.len());
        copy(&Record::assume_checked(format, payload), &mut builder);
    }
}

/// Reads every field and one beyond.
fn copy(record: &Record<'_>, builder: &mut RecordBuilder) {
    builder.clear();
    let fields = record.format().fields().len();
    for field in 0..fields {
        builder.set(field, record.get(field)).expect("a value of the field's own type");
    }
    assert!(record.is_null(fields) && record.get(fields).is_null());
}
