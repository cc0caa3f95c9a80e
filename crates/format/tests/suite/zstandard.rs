//! Files that other programs packed with Zstandard: pyarrow's Parquet, Feather and Arrow stream, fastavro's Avro. Each has
//! 2000 records, in two groups or batches.
#![cfg(all(feature = "arrow", feature = "avro"))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use crossdock_format::encoding::{self, Encoding, EncodingError, EncodingOptions, EncodingProblem};
use crossdock_format::json::JsonEncoder;
use crossdock_format::{Format, Record};

const FILES: [(Encoding, &[u8]); 5] = [
    (Encoding::Parquet, include_bytes!("files/zstd_v1.parquet")),
    // Pages of version 2, whose levels are not packed, with coded lengths of texts.
    (Encoding::Parquet, include_bytes!("files/zstd_v2.parquet")),
    (Encoding::ArrowFile, include_bytes!("files/zstd.feather")),
    (Encoding::ArrowStream, include_bytes!("files/zstd.arrows")),
    (Encoding::AvroFile, include_bytes!("files/zstd.avro")),
];

fn read(
    encoding: Encoding,
    schema: Option<&str>,
    mut bytes: &[u8],
    options: &EncodingOptions,
) -> Result<Vec<String>, EncodingError> {
    let (format, mut decoder) = match schema {
        None => encoding::open(encoding, &mut bytes, options)?,
        Some(schema) => {
            let format = Format::parse_schema(schema).unwrap();
            let decoder = encoding::decoder(encoding, &format, None, options)?;
            (format, decoder)
        }
    };
    let encoder = JsonEncoder::new(&format);
    let mut lines = Vec::new();
    while let Some(record) = decoder.next_record(&mut bytes)? {
        let mut line = Vec::new();
        encoder.record(&Record::check(&format, record).unwrap(), &mut line);
        lines.push(String::from_utf8(line).unwrap().trim_end().to_owned());
    }
    Ok(lines)
}

#[test]
fn files_packed_with_zstandard_are_read() {
    for (encoding, bytes) in FILES {
        let found = read(encoding, None, bytes, &EncodingOptions::default()).unwrap();
        let expected = |id: usize| match encoding {
            Encoding::AvroFile => format!("{{\"id\":{id},\"text\":\"text number {}\"}}", id / 7),
            _ => {
                let word = ["\"tick\"", "\"tock\"", "null"][id % 3];
                let list: Vec<String> = (0..id % 4).map(|number| number.to_string()).collect();
                format!(
                    "{{\"id\":{id},\"word\":{word},\"text\":\"text number {}\",\"list\":[{}]}}",
                    id / 7,
                    list.join(",")
                )
            }
        };
        assert_eq!(found.len(), 2000, "{encoding}");
        for (id, found) in found.iter().enumerate() {
            assert_eq!(*found, expected(id), "{encoding}");
        }
        let lenient = EncodingOptions { ignore_unknown: true, ..EncodingOptions::default() };
        let some = read(encoding, Some("text string null"), bytes, &lenient).unwrap();
        assert_eq!((some.len(), some[1999].as_str()), (2000, "{\"text\":\"text number 285\"}"), "{encoding}");
    }
}

#[test]
fn unpacked_bytes_have_a_bound() {
    for (encoding, bytes) in FILES {
        let options = EncodingOptions { max_block_bytes: 1000, ..EncodingOptions::default() };
        let options = match encoding {
            Encoding::AvroFile => EncodingOptions { max_item_bytes: 9000, ..options },
            _ => options,
        };
        let error = read(encoding, None, bytes, &options).unwrap_err();
        assert!(matches!(error.problem, EncodingProblem::TooLong { .. }), "{encoding}: {error}");
    }
}

#[test]
fn damaged_files_are_errors() {
    for (encoding, bytes) in FILES {
        for at in (0..bytes.len()).step_by(bytes.len() / 150 + 1) {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 0x5a;
            // An error, or other values: but no panic that gets out.
            let _ = read(encoding, None, &damaged, &EncodingOptions::default());
        }
        assert!(read(encoding, None, &bytes[..bytes.len() / 2], &EncodingOptions::default()).is_err(), "{encoding}");
    }
}
