//! CSV: what is written reads back, what is read is what other readers read, and what is wrong is named and skipped.

use std::io::{BufRead, BufReader, Read};

use crate::arbitrary::{Owned, format, payload, rows};
use crossdock_format::csv::{CsvDecoder, CsvEncoder, CsvError, CsvOptions};
use crossdock_format::{Format, Record, Value};
use proptest::collection::vec;
use proptest::prelude::*;

/// The first flights of 2013 from New York (nycflights13, CC0), and one that was cancelled.
const FLIGHTS: &str = "\
year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour
2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z
2013,1,1,544,545,-1,1004,1022,-18,B6,725,N804JB,JFK,BQN,183,1576,5,45,2013-01-01T10:00:00Z
2013,1,1,NA,1630,NA,NA,1815,NA,EV,4308,N18120,EWR,RDU,NA,416,16,30,2013-01-01T21:00:00Z
2013,1,2,NA,600,NA,NA,901,NA,B6,125,NA,JFK,FLL,NA,1069,6,0,2013-01-02T11:00:00Z
";

const FLIGHT_SCHEMA: &str = "
year i16
month u8
day u8
dep_time u16 null
sched_dep_time u16
dep_delay i32 null
arr_time u16 null
sched_arr_time u16
arr_delay i32 null
carrier char[2]
flight u16
tailnum string null
origin char[3]
dest char[3]
air_time f32 null
distance i64
hour u8
minute u8
time_hour timestamp
";

/// All records, back to back, and the errors in words.
fn decode(format: &Format, input: &mut impl BufRead, options: &CsvOptions) -> Result<(Vec<u8>, Vec<String>), CsvError> {
    let mut decoder = CsvDecoder::from_header(format, input, options)?;
    let (mut payload, mut errors) = (Vec::new(), Vec::new());
    loop {
        match decoder.next_record(input) {
            Ok(Some(record)) => payload.extend_from_slice(record),
            Ok(None) => return Ok((payload, errors)),
            Err(error) if error.is_row() => errors.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
}

fn encode(format: &Format, payload: &[u8], options: &CsvOptions) -> Vec<u8> {
    let encoder = CsvEncoder::new(format, options).expect("sound options");
    let mut text = Vec::new();
    encoder.header(&mut text);
    let records = format.check_records(payload, |start, len| {
        let record = &payload[start as usize..(start + len) as usize];
        encoder.record(&Record::assume_checked(format, record), &mut text);
    });
    records.expect("sound records");
    text
}

fn some_options() -> impl Strategy<Value = CsvOptions> {
    let words = prop_oneof![
        Just(vec![]),
        Just(vec![""]),
        Just(vec!["NA"]),
        Just(vec!["", "NA"]),
        Just(vec!["NA", "", "null", "1", "a b"])
    ];
    (prop_oneof![Just(b','), Just(b';'), Just(b'\t'), Just(b'|'), Just(b'a'), Just(0)], words).prop_map(
        |(delimiter, words)| {
            let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
            words.retain(|word| !word.bytes().any(|byte| byte == delimiter));
            CsvOptions { delimiter, null_words: words, ..CsvOptions::default() }
        },
    )
}

/// A field of every type that plain rows have.
const ANY_TYPE: &str = "a i8 null\nb u16\nc i64 null\nd u64 null\ne f32 null\nf f64\ng bool null\nh char[3] null\n\
    i string null\nj timestamp null";

/// Anything that a field may hold, and much that none does.
fn any_field() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?[0-9]{1,3}",
        "-?[0-9]{1,20}",
        "-?[0-9]{1,9}\\.[0-9]{1,9}",
        "[+-]?[0-9]{0,20}(\\.[0-9]{0,20})?([eE][+-]?[0-9]{0,3})?",
        "NA|true|f|inf|NaN| 7|7 |2013-01-01T10:00:00(\\.[0-9]{1,9})?(Z|z|\\+00:00| )",
        "[ -~&&[^\",;]]{0,20}",
        "[a-zé\u{0}]{0,4}",
        Just(String::new()),
    ]
}

proptest! {
    #[test]
    fn plain_rows_are_read_as_field_by_field(
        fields in vec(any_field(), 10),
        sound in any::<u16>(),
        semicolons in any::<bool>(),
        cut in prop::option::weighted(0.1, 0_usize..60),
    ) {
        let delimiter = if semicolons { ';' } else { ',' };
        let likely = ["5", "0517", "-3", "18446744073709551615", "1.5", "-20.25", "t", "EWR", "N14228", "2013-01-01T10:00:00Z"];
        let fields = fields.iter().zip(likely).enumerate();
        let fields: Vec<&str> = fields.map(|(at, (any, likely))| if sound >> at & 1 == 1 { likely } else { any }).collect();
        let mut row = fields.join(&delimiter.to_string());
        while cut.is_some_and(|cut| row.len() > cut) {
            row.pop();
        }
        let options = CsvOptions { delimiter: delimiter as u8, ..CsvOptions::default() };
        let names = || ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        let read = |schema: &str, names: &[&str], row: &str| {
            let format = Format::parse_schema(schema).unwrap();
            let mut decoder = CsvDecoder::new(&format, names, &options).unwrap();
            // As text, since a negative zero is another text.
            let values = |bytes: &[u8]| {
                let record = Record::check(&format, bytes).unwrap();
                (0..10).map(|field| format!("{:?}", record.get(field))).collect::<Vec<_>>()
            };
            let mut input = row.as_bytes();
            let record = decoder.next_record(&mut input);
            record.map(|record| record.map(values)).map_err(|error| error.column)
        };
        let plain = read(ANY_TYPE, &names(), &format!("{row}\n"));
        // Bytes make each row be read field by field.
        let names: Vec<&str> = names().into_iter().chain(["bytes"]).collect();
        let slow = read(&format!("{ANY_TYPE}\nbytes bytes null"), &names, &format!("{row}{delimiter}\n"));
        if row.is_empty() {
            prop_assert_eq!(plain, Ok(None));
        } else {
            prop_assert_eq!(plain, slow, "{}", row);
        }
    }
}

/// Whether some null would be lost: there is no null word at all, or none that one column alone could show.
fn loses_nulls(format: &Format, options: &CsvOptions) -> bool {
    match format.fields() {
        [only] => only.nullable && options.null_words.iter().all(String::is_empty),
        fields => options.null_words.is_empty() && fields.iter().any(|field| field.nullable),
    }
}

/// A value as other programs write it.
fn shown(value: &Owned, null: &str) -> String {
    use base64::{display::Base64Display, prelude::BASE64_STANDARD};
    match value {
        Owned::Null => null.to_owned(),
        Owned::Bool(value) => value.to_string(),
        Owned::Int(value) => value.to_string(),
        Owned::Uint(value) => value.to_string(),
        Owned::Float(value) => value.to_string(),
        Owned::Timestamp(value) => jiff::Timestamp::from_nanosecond((*value).into()).expect("64 bits").to_string(),
        Owned::Text(value) => value.clone(),
        Owned::Bytes(value) => Base64Display::new(value, &BASE64_STANDARD).to_string(),
    }
}

proptest! {
    #[test]
    fn records_read_back((format, rows) in rows(), options in some_options(), buffer_bytes in 1_usize..200) {
        let mut options = options;
        // A null word that is a number is that number's end, and where there is none there is no null: ask for it and
        // get it.
        options.null_words.retain(|word| word != "1");
        if loses_nulls(&format, &options) {
            options.null_words.push("NA".to_owned());
        }
        let payload = payload(&format, &rows);
        let text = encode(&format, &payload, &options);
        let mut input = BufReader::with_capacity(buffer_bytes, &text[..]);
        let (back, errors) = decode(&format, &mut input, &options).unwrap();
        prop_assert!(errors.is_empty(), "{errors:?} in {}", String::from_utf8_lossy(&text));
        prop_assert_eq!(back, payload);
    }

    #[test]
    fn the_csv_crate_reads_what_is_written((format, rows) in rows(), options in some_options()) {
        let payload = payload(&format, &rows);
        let text = encode(&format, &payload, &options);
        let mut reader = csv::ReaderBuilder::new().delimiter(options.delimiter).from_reader(&text[..]);
        let names: Vec<Vec<u8>> = reader.byte_headers().unwrap().iter().map(<[u8]>::to_vec).collect();
        let expected: Vec<Vec<u8>> = format.fields().iter().map(|field| field.name.clone().into_bytes()).collect();
        prop_assert_eq!(names, expected);
        let found: Vec<csv::ByteRecord> = reader.byte_records().map(Result::unwrap).collect();
        prop_assert_eq!(found.len(), rows.len());
        for (found, row) in found.iter().zip(&rows) {
            prop_assert_eq!(found.len(), row.len());
            for (found, value) in found.iter().zip(row) {
                let found = str::from_utf8(found).unwrap();
                match value {
                    Owned::Null => prop_assert!(found.is_empty() || options.null_words.iter().any(|word| word == found)),
                    Owned::Bool(value) => prop_assert_eq!(found, value.to_string()),
                    Owned::Int(value) => prop_assert_eq!(found, value.to_string()),
                    Owned::Uint(value) => prop_assert_eq!(found, value.to_string()),
                    Owned::Float(value) => {
                        let read: f64 = found.parse().unwrap();
                        prop_assert!(read == *value || f64::from(found.parse::<f32>().unwrap()) == *value, "{found} {value}");
                    }
                    Owned::Timestamp(value) => {
                        let read: jiff::Timestamp = found.parse().unwrap();
                        prop_assert_eq!(read.as_nanosecond(), i128::from(*value));
                    }
                    Owned::Text(value) => prop_assert_eq!(found, value),
                    Owned::Bytes(value) => {
                        use base64::Engine as _;
                        let mut bytes = [0; 64];
                        let len = base64::prelude::BASE64_STANDARD.decode_slice(found, &mut bytes).unwrap();
                        prop_assert_eq!(&bytes[..len], value);
                    }
                }
            }
        }
    }

    #[test]
    fn text_of_the_csv_crate_is_read(
        (format, rows) in rows(),
        delimiter in prop_oneof![Just(b','), Just(b';'), Just(b'\t'), Just(b'|')],
        (quotes_all, crlf) in any::<(bool, bool)>(),
        buffer_bytes in 1_usize..200,
    ) {
        // Blanks around a name do not count, but in quotes.
        prop_assume!(quotes_all || format.fields().iter().all(|field| field.name.trim() == field.name));
        // A word that no value is; in quotes it is one in the end, for texts that are null.
        let null = "(null)";
        let options = CsvOptions { delimiter, null_words: vec![null.to_owned()], quoted_nulls: true, ..CsvOptions::default() };
        let mut writer = csv::WriterBuilder::new()
            .delimiter(delimiter)
            .quote_style(if quotes_all { csv::QuoteStyle::Always } else { csv::QuoteStyle::Necessary })
            .terminator(if crlf { csv::Terminator::CRLF } else { csv::Terminator::Any(b'\n') })
            .from_writer(Vec::new());
        writer.write_record(format.fields().iter().map(|field| &*field.name)).unwrap();
        for row in &rows {
            writer.write_record(row.iter().map(|value| shown(value, null))).unwrap();
        }
        let text = writer.into_inner().unwrap();
        let mut input = BufReader::with_capacity(buffer_bytes, &text[..]);
        let (back, errors) = decode(&format, &mut input, &options).unwrap();
        prop_assert!(errors.is_empty(), "{errors:?} in {}", String::from_utf8_lossy(&text));
        prop_assert_eq!(back, payload(&format, &rows), "{}", String::from_utf8_lossy(&text));
    }

    #[test]
    fn arbitrary_bytes_never_panic(format in format(), bytes in vec(any::<u8>(), 0..200), buffer_bytes in 1_usize..50) {
        let options = CsvOptions { max_row_bytes: 64, ..CsvOptions::default() };
        let header: Vec<&str> = format.fields().iter().map(|field| field.name.as_str()).collect();
        let mut decoder = CsvDecoder::new(&format, &header, &options).unwrap();
        let mut input = BufReader::with_capacity(buffer_bytes, &bytes[..]);
        loop {
            match decoder.next_record(&mut input) {
                Ok(Some(record)) => prop_assert!(Record::check(&format, record).is_ok()),
                Ok(None) => break,
                Err(error) => prop_assert!(error.is_row(), "{error}"),
            }
        }
    }

    #[test]
    fn a_flaw_costs_no_other_row(at in 0_usize..400, with in any::<u8>(), buffer_bytes in 1_usize..300) {
        let format = Format::parse_schema(FLIGHT_SCHEMA).unwrap();
        let (sound, _) = decode(&format, &mut FLIGHTS.as_bytes(), &CsvOptions::default()).unwrap();
        let body = FLIGHTS.find('\n').unwrap() + 1;
        let mut text = FLIGHTS.as_bytes().to_vec();
        let at = body + at % (text.len() - body);
        text[at] = with;
        let mut input = BufReader::with_capacity(buffer_bytes, &text[..]);
        let (payload, errors) = decode(&format, &mut input, &CsvOptions::default()).unwrap();
        let mut rows = 0;
        format.check_records(&payload, |start, len| {
            // At most the row that was changed, and the one behind it, if what parted them is gone.
            rows += usize::from(sound.windows(len as usize).any(|row| row == &payload[start as usize..(start + len) as usize]));
        }).unwrap();
        prop_assert!(rows >= 2, "{rows} rows, {errors:?}");
    }
}

#[test]
fn flights_are_read() {
    let format = Format::parse_schema(FLIGHT_SCHEMA).unwrap();
    let crlf = FLIGHTS.replace('\n', "\r\n");
    let marked = format!("\u{feff}{crlf}");
    let quoted = FLIGHTS.replace(",JFK,", ",\"JFK\",");
    // R writes nothing else for a tail number that is not known.
    let options = CsvOptions { null_words: vec!["NA".to_owned()], ..CsvOptions::default() };
    let mut payloads = Vec::new();
    for text in [FLIGHTS, &crlf, &marked, &quoted, FLIGHTS.trim_end()] {
        let mut input = BufReader::with_capacity(100, text.as_bytes());
        let (payload, errors) = decode(&format, &mut input, &options).unwrap();
        assert!(errors.is_empty(), "{errors:?}");
        payloads.push(payload);
    }
    payloads.dedup();
    assert_eq!(payloads.len(), 1);
    let payload = &payloads[0];
    let mut values = Vec::new();
    let records = format.check_records(payload, |start, len| {
        let record = Record::check(&format, &payload[start as usize..(start + len) as usize]).unwrap();
        for name in ["dep_delay", "carrier", "tailnum", "air_time", "time_hour"] {
            values.push(record.get(format.field(name).unwrap()));
        }
    });
    assert_eq!(records, Ok(4));
    let hour = 3_600_000_000_000;
    #[rustfmt::skip]
    let expected = [
        Value::Int(2), Value::Text(b"UA"), Value::Text(b"N14228"), Value::Float(227.0), Value::Timestamp(376_954 * hour),
        Value::Int(-1), Value::Text(b"B6"), Value::Text(b"N804JB"), Value::Float(183.0), Value::Timestamp(376_954 * hour),
        Value::Null, Value::Text(b"EV"), Value::Text(b"N18120"), Value::Null, Value::Timestamp(376_965 * hour),
        Value::Null, Value::Text(b"B6"), Value::Null, Value::Null, Value::Timestamp(376_979 * hour),
    ];
    assert_eq!(values, expected);

    let text = String::from_utf8(encode(&format, payload, &options)).unwrap();
    // Floats are written as such, and nothing else differs.
    assert_eq!(text.replace(",227.0,", ",227,").replace(",183.0,", ",183,"), FLIGHTS);
}

#[test]
fn flaws_are_named_and_skipped() {
    let format = Format::parse_schema(
        "code char[3]\ndelay i16 null\nok bool\nat timestamp null\nratio f32\nnote string\nraw bytes null\nbig u64 null",
    )
    .unwrap();
    let header = "code,delay,ok,at,ratio,note,raw,big\n";
    let cases: &[(&[u8], &str)] = &[
        (b"JFK,1,true\n", "line 2: found 3 columns, expected 8"),
        (b"JFK,x,1,,1,n,,,9,9\n", "line 2: found 10 columns, expected 8"),
        (b"JFKX,1,1,,1,n,,\n", "line 2, column `code`: found `JFKX`, expected char[3] (UTF-8 text of at most 3 bytes)"),
        (
            b"JF\0,1,1,,1,n,,\n",
            "line 2, column `code`: found `JF\\0`, expected char[3] (UTF-8 text of at most 3 bytes)",
        ),
        (
            b"JFK,1x,1,,1,n,,\n",
            "line 2, column `delay`: found `1x`, expected i16 (-32768 to 32767), or nothing or NA for null",
        ),
        (
            b"JFK,40000,1,,1,n,,\n",
            "line 2, column `delay`: found `40000`, expected i16 (-32768 to 32767), or nothing or NA for null",
        ),
        (b"JFK,1,yes,,1,n,,\n", "line 2, column `ok`: found `yes`, expected bool (true or false)"),
        (
            b"JFK,1,NA,,1,n,,\n",
            "line 2, column `ok`: found `NA`, expected bool (true or false); the field is not nullable",
        ),
        (
            b"JFK,1,1,2013-1-1,1,n,,\n",
            "line 2, column `at`: found `2013-1-1`, expected timestamp (RFC 3339, such as 2013-01-01T10:00:00Z, in the \
             years 1678 to 2261), or nothing or NA for null",
        ),
        (
            b"JFK,1,1,2300-01-01T00:00:00Z,1,n,,\n",
            "line 2, column `at`: found `2300-01-01T00:00:00Z`, expected timestamp (RFC 3339, such as \
             2013-01-01T10:00:00Z, in the years 1678 to 2261), or nothing or NA for null",
        ),
        (
            b"JFK,1,1,,1e39,n,,\n",
            "line 2, column `ratio`: found `1e39`, expected f32 (a number, up to 3.4e38 either way)",
        ),
        (b"JFK,1,1,,1,\xff\xfe,,\n", "line 2, column `note`: found `\u{fffd}\u{fffd}`, expected string (UTF-8 text)"),
        (b"JFK,1,1,,1,n,a,\n", "line 2, column `raw`: found `a`, expected bytes (base64), or nothing for null"),
        (
            b"JFK,1,1,,1,n,,-1\n",
            "line 2, column `big`: found `-1`, expected u64 (0 to 18446744073709551615), or nothing or NA for null",
        ),
        (b"JFK,1,1,,1,\"n,,\n", "line 2: found a double quote that is not closed within 36 bytes"),
    ];
    for (row, message) in cases {
        let text = [header.as_bytes(), row, b"LAX,1,f,,1,n,AAEC,2\n"].concat();
        let (payload, errors) = decode(&format, &mut &text[..], &CsvOptions::default()).unwrap();
        assert_eq!(errors, [*message], "{}", String::from_utf8_lossy(row));
        let record = Record::check(&format, &payload).unwrap();
        assert_eq!(record.bytes().len(), payload.len(), "one record");
        assert_eq!((record.get(0), record.get(6)), (Value::Text(b"LAX"), Value::Bytes(&[0, 1, 2])));
    }
    let sound = format!("{header}LAX, -7 ,f,2013-01-01T10:00:00+01:00,inf,,AAEC,18446744073709551615\n");
    let (payload, errors) = decode(&format, &mut sound.as_bytes(), &CsvOptions::default()).unwrap();
    assert!(errors.is_empty(), "{errors:?}");
    let record = Record::check(&format, &payload).unwrap();
    assert_eq!(record.get(1), Value::Int(-7));
    assert_eq!(record.get(3), Value::Timestamp(376_953 * 3_600_000_000_000));
    assert_eq!(record.get(4), Value::Float(f64::INFINITY));
    assert_eq!(record.get(7), Value::Uint(u64::MAX));
}

#[test]
fn nulls_and_the_words_for_them_differ() {
    let format = Format::parse_schema("n i8 null\nt string null\nm string").unwrap();
    let read = |options: &CsvOptions, row: &str| {
        let text = format!("n,t,m\n{row}\n");
        let (payload, errors) = decode(&format, &mut text.as_bytes(), options).unwrap();
        assert!(errors.is_empty(), "{errors:?}");
        let record = Record::check(&format, &payload).unwrap();
        [0, 1, 2].map(|field| format!("{:?}", record.get(field)))
    };
    let text = |text: &str| format!("{:?}", Value::Text(text.as_bytes()));
    let null = format!("{:?}", Value::Null);
    let plain = CsvOptions::default();
    // Namibia's code is a text like any other.
    assert_eq!(read(&plain, "NA,NA,NA"), [null.clone(), text("NA"), text("NA")]);
    assert_eq!(read(&plain, ",,"), [null.clone(), null.clone(), text("")]);
    assert_eq!(read(&plain, "\"NA\",\"NA\",\"\""), [null.clone(), text("NA"), text("")]);
    let given = CsvOptions { null_words: vec![String::new(), "NA".to_owned()], ..CsvOptions::default() };
    assert_eq!(read(&given, "NA,NA,NA"), [null.clone(), null.clone(), text("NA")]);
    let quoting = CsvOptions { quoted_nulls: true, ..given };
    assert_eq!(read(&quoting, "\"\",\"NA\",\"NA\""), [null.clone(), null.clone(), text("NA")]);
    let none = CsvOptions { null_words: vec![], value_null_words: vec![], ..CsvOptions::default() };
    assert_eq!(read(&none, " 5 ,,NA"), ["Int(5)".to_owned(), text(""), text("NA")]);
}

#[test]
fn headers_are_mapped_by_name() {
    let format = Format::parse_schema("a i8\nb i8 null\nc i8").unwrap();
    let message = |header: &str, options: &CsvOptions| {
        let text = format!("{header}\n3,1\n");
        decode(&format, &mut text.as_bytes(), options).map(|(payload, _)| payload).map_err(|error| error.to_string())
    };
    let options = CsvOptions::default();
    let payload = message(" c , a", &options).unwrap();
    let record = Record::check(&format, &payload).unwrap();
    assert_eq!([0, 1, 2].map(|field| record.get(field)), [Value::Int(1), Value::Null, Value::Int(3)]);
    let cases = [
        ("c,b", "column `a`: the header lacks this column, and its field is not nullable"),
        ("a,a", "column `a`: the header has this column twice"),
        ("a,x", "column `x`: the format has no field of this name; it has: a, b, c"),
        ("a,\" c\"", "column ` c`: the format has no field of this name; it has: a, b, c"),
        (",c", "column `column_1`: the format has no field of this name; it has: a, b, c"),
    ];
    for (header, expected) in cases {
        assert_eq!(message(header, &options).unwrap_err(), expected);
    }
    let ignoring = CsvOptions { ignore_extra_columns: true, ..CsvOptions::default() };
    assert!(message("x,y,a,c", &ignoring).is_ok());
    let empty = decode(&format, &mut &b"\n\n"[..], &options).unwrap_err();
    assert_eq!(empty.to_string(), "found nothing, expected a header row with the names of the columns");
    assert!(!empty.is_row());
    let binary = decode(&format, &mut &b"a,\xff\n"[..], &options).unwrap_err();
    assert_eq!(binary.to_string(), "line 1: found `\u{fffd}` in the header, which is not UTF-8");
    for options in [
        CsvOptions { delimiter: b'"', ..CsvOptions::default() },
        CsvOptions { null_words: vec!["a,b".to_owned()], ..CsvOptions::default() },
    ] {
        assert!(CsvEncoder::new(&format, &options).is_err());
        assert!(CsvDecoder::new(&format, &["a", "c"], &options).is_err());
    }
}

/// An input that breaks off.
struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::Error::other("the cable is out"))
    }
}

#[test]
fn an_input_that_breaks_off_is_no_bad_row() {
    let format = Format::parse_schema("a i8").unwrap();
    let mut input = BufReader::with_capacity(4, b"a\n1\n\"2".chain(Broken));
    let mut decoder = CsvDecoder::from_header(&format, &mut input, &CsvOptions::default()).unwrap();
    assert!(decoder.next_record(&mut input).unwrap().is_some());
    let error = decoder.next_record(&mut input).unwrap_err();
    assert_eq!(error.to_string(), "line 3: cannot read: the cable is out");
    assert!(!error.is_row());
}

#[test]
fn rows_that_make_no_record_are_named_and_the_next_one_is_read() {
    let format =
        Format::parse_schema("n u8\nat record { x i32; y i32 null } null\nu union { a i32; b string }").unwrap();
    let text = "n,at.x,at.y,u.a,u.b\n1,5,NA,7,NA\n2,5,NA,7,x\n3,NA,6,7,NA\n4,NA,NA,NA,NA\n5,NA,NA,NA,y\n";
    let options = CsvOptions { null_words: vec!["NA".to_owned()], ..CsvOptions::default() };
    let (payload, errors) = decode(&format, &mut text.as_bytes(), &options).unwrap();
    assert_eq!(format.check_records(&payload, |_, _| {}), Ok(2), "{errors:?}");
    let said = ["line 3, column `u", "line 4, column `at.x`", "line 5, column `u"];
    assert_eq!(errors.len(), 3, "{errors:?}");
    assert!(errors.iter().zip(said).all(|(error, said)| error.starts_with(said)), "{errors:?}");
}

/// Each column is read with a bounded part of what follows: a row of many zeros costs what its length costs.
#[test]
fn columns_do_not_run_into_each_other() {
    let schema: String = (0..2000).map(|column| format!("c{column} i32\n")).collect();
    let format = Format::parse_schema(&format!("{schema}s string")).unwrap();
    let row = format!("{}\"{}\"\n", "\"0\",".repeat(2000), "0".repeat(900_000));
    let names: Vec<&str> = format.fields().iter().map(|field| field.name.as_str()).collect();
    let mut decoder = CsvDecoder::new(&format, &names, &CsvOptions::default()).unwrap();
    // Two thousand columns of 900,000 zeros each would take a minute here.
    let record = decoder.next_record(&mut row.as_bytes()).unwrap().unwrap();
    assert_eq!(Record::check(&format, record).unwrap().get(0), Value::Int(0));
    let format = Format::parse_schema("a i32\nb f64\nc string").unwrap();
    let mut decoder = CsvDecoder::new(&format, &["a", "b", "c"], &CsvOptions::default()).unwrap();
    for row in ["\"1\",\"2\",\"e5\"\n", "1,2,e5\n", "\"1\",2,\".5\"\n"] {
        let record = decoder.next_record(&mut row.as_bytes()).unwrap().unwrap();
        let record = Record::check(&format, record).unwrap();
        assert_eq!((record.get(0), record.get(1)), (Value::Int(1), Value::Float(2.0)), "{row}");
    }
}
