//! The face of all encodings: names, dispatch, errors, one input after the other.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::BufRead;

use crossdock_format::encoding::{
    self, Decoder, Encoding, EncodingOptions, EncodingProblem, Loss, Schema, SchemaNotation,
};
use crossdock_format::{Format, Record, RecordBuilder, Value};

fn format() -> Format {
    Format::parse_schema("carrier char[2]\nflight u16\ndep_delay i32 null").unwrap()
}

fn read_all(decoder: &mut dyn Decoder, mut input: &[u8]) -> (usize, Vec<String>) {
    let input: &mut dyn BufRead = &mut input;
    let (mut records, mut errors) = (0, Vec::new());
    loop {
        match decoder.next_record(input) {
            Ok(Some(_)) => records += 1,
            Ok(None) => return (records, errors),
            Err(error) => {
                let goes_on = error.is_item();
                errors.push(error.to_string());
                if !goes_on {
                    return (records, errors);
                }
            }
        }
    }
}

#[test]
fn names_read_back_and_endings_are_nobody_elses() {
    for encoding in Encoding::ALL {
        assert_eq!(encoding.name().parse::<Encoding>().unwrap(), encoding);
        for ending in encoding.endings() {
            assert_eq!(Encoding::of_name(&format!("a.b.{ending}")), Some(encoding));
            assert_eq!(Encoding::of_name(&format!("dir/A.{}.GZ", ending.to_uppercase())), Some(encoding));
        }
    }
    assert_eq!(Encoding::of_name("json"), None);
    assert_eq!(Encoding::of_name("a.txt"), None);
    for loss in Loss::ALL {
        assert_eq!(loss.name().parse::<Loss>().unwrap(), loss);
    }
    let said = "xslt".parse::<Encoding>().unwrap_err().to_string();
    assert!(Encoding::ALL.iter().all(|encoding| said.contains(encoding.name())), "{said}");
    let said = "face".parse::<Loss>().unwrap_err().to_string();
    assert!(Loss::ALL.iter().all(|loss| said.contains(loss.name())), "{said}");
}

#[test]
fn errors_of_json_and_csv_name_their_lines_once() {
    let options = EncodingOptions::default();
    let mut json = encoding::decoder(Encoding::Json, &format(), None, &options).unwrap();
    let lines =
        b"{\"carrier\":\"UA\",\"flight\":1}\n{\"carrier\":\"UA\"}\n{oh\n{\"carrier\":\"UA\",\"flight\":2,\"x\":0}\n";
    let (records, errors) = read_all(&mut *json, lines);
    assert_eq!((records, errors.len()), (1, 3), "{errors:?}");
    assert!(errors[0].starts_with("line 2, field `flight`: the object lacks"), "{errors:?}");
    assert!(errors[2].starts_with("line 4, field `x`: "), "{errors:?}");

    let mut csv = encoding::decoder(Encoding::Csv, &format(), None, &options).unwrap();
    let mut rows: &[u8] = b"carrier,flight\nUA,x\n";
    csv.start(&mut rows).unwrap();
    let error = csv.next_record(&mut rows).unwrap_err();
    assert_eq!(error.field.as_deref(), Some("flight"));
    assert!(error.is_item() && matches!(error.problem, EncodingProblem::Csv(_)));
    assert!(error.to_string().starts_with("line 2, column `flight`: found `x`"), "{error}");
    let mut other: &[u8] = b"carrier,speed\n";
    csv.restart();
    assert!(!csv.start(&mut other).unwrap_err().is_item());
}

#[test]
fn unknown_members_are_passed_over_where_that_is_asked_for() {
    let options = EncodingOptions { ignore_unknown: true, ..EncodingOptions::default() };
    for (encoding, text) in [
        (Encoding::Json, "{\"carrier\":\"UA\",\"flight\":1,\"x\":[1]}\n"),
        (Encoding::Csv, "carrier,x,flight\nUA,?,1\n"),
    ] {
        let mut decoder = encoding::decoder(encoding, &format(), None, &options).unwrap();
        assert_eq!(read_all(&mut *decoder, text.as_bytes()), (1, vec![]), "{encoding}");
    }
}

#[test]
fn a_decoder_takes_one_input_after_the_other() {
    let headless = EncodingOptions { csv_header: false, ..EncodingOptions::default() };
    let mut csv = encoding::decoder(Encoding::Csv, &format(), None, &headless).unwrap();
    let mut json = encoding::decoder(Encoding::Json, &format(), None, &EncodingOptions::default()).unwrap();
    for _ in 0..3 {
        assert_eq!(read_all(&mut *csv, b"\xef\xbb\xbfUA,1,\nB6,2,3"), (2, vec![]));
        csv.restart();
        // An input that breaks off leaves nothing behind for the next.
        let (records, errors) = read_all(&mut *json, b"\xef\xbb\xbf{\"carrier\":\"UA\",\"flight\":1}\n{\"carrier\"");
        assert_eq!((records, errors.len()), (1, 1));
        assert!(errors[0].starts_with("line 2"), "{errors:?}");
        json.restart();
    }
}

#[test]
fn own_schemas_are_formats_and_wrong_ones_are_refused() {
    let schema = Schema::new("a.schema", format().schema(), None);
    assert_eq!(schema.format().unwrap(), format());
    let error = Schema::new("a.schema", "carrier char[2]\nflight integer", None).format().unwrap_err();
    assert!(error.to_string().contains("line 2"), "{error}");
}

#[test]
fn csv_has_lists_only_as_json_and_only_where_that_is_allowed() {
    let format =
        Format::parse_schema("id u8\npos record { x i32 } null\ntags string[]\nlegs record { km u16 }[] null").unwrap();
    let mut json = encoding::decoder(Encoding::Json, &format, None, &EncodingOptions::default()).unwrap();
    let mut lines: &[u8] =
        b"{\"id\":1,\"pos\":{\"x\":2},\"tags\":[\"a\",\"b\"],\"legs\":[{\"km\":3}]}\n{\"id\":2,\"tags\":[]}\n";
    let refused = encoding::encoder(Encoding::Csv, &format, None, &EncodingOptions::default()).err().unwrap();
    assert_eq!(refused.field.as_deref(), Some("tags"));
    assert!(refused.to_string().contains("csv has no lists; --allow list-as-json"), "{refused}");
    let allowing = EncodingOptions { allow: vec![Loss::ListAsJson], ..EncodingOptions::default() };
    let mut csv = encoding::encoder(Encoding::Csv, &format, None, &allowing).unwrap();
    let mut rows = Vec::new();
    csv.start(&mut rows);
    while let Some(bytes) = json.next_record(&mut lines).unwrap() {
        csv.record(&Record::check(&format, bytes).unwrap(), &mut rows).unwrap();
    }
    let expected = "id,pos.x,tags,legs\n1,2,\"[\"\"a\"\",\"\"b\"\"]\",\"[{\"\"km\"\":3}]\"\n2,,[],\n";
    assert_eq!(str::from_utf8(&rows).unwrap(), expected);
    // Whoever has the schema reads the lists back.
    let mut csv = encoding::decoder(Encoding::Csv, &format, None, &EncodingOptions::default()).unwrap();
    let (mut rows, mut lines) = (&rows[..], Vec::new());
    while let Some(bytes) = csv.next_record(&mut rows).unwrap() {
        crossdock_format::json::JsonEncoder::new(&format).record(&Record::check(&format, bytes).unwrap(), &mut lines);
    }
    let expected = "{\"id\":1,\"pos\":{\"x\":2},\"tags\":[\"a\",\"b\"],\"legs\":[{\"km\":3}]}\n\
                    {\"id\":2,\"pos\":null,\"tags\":[],\"legs\":null}\n";
    assert_eq!(String::from_utf8(lines).unwrap(), expected);
    for (cell, flaw) in [
        (
            "x",
            "found `x`, expected a list of record { km u16 }[], as a JSON array (column 1: found `x`, expected a value)",
        ),
        ("[{\"\"km\"\":70000}]", "as a JSON array ([0].km: found 70000, expected u16 (0 to 65535))"),
        ("[1", "as a JSON array ([0]: found 1, expected an object)"),
        ("[{\"\"km\"\":1},", "as a JSON array (column 11: found the end of the text, expected a value)"),
        ("[\n{\"\"km\"\":x}]", "as a JSON array (its line 2, column 7: found `x`, expected a value)"),
        ("[{}]", "as a JSON array ([0].km: the object lacks this member"),
        ("[]}", "as a JSON array (column 3: found `}`, expected nothing more)"),
        ("[],\"\"list\"\":[]", "as a JSON array (column 3: found `,`, expected nothing more"),
    ] {
        csv.restart();
        let rows = format!("id,pos.x,tags,legs\n1,,[],\"{cell}\"\n2,,[],[]\n");
        let (records, errors) = read_all(&mut *csv, rows.as_bytes());
        assert_eq!((records, errors.len()), (1, 1), "{errors:?}");
        assert!(errors[0].starts_with("line 2, column `legs`: ") && errors[0].contains(flaw), "{}", errors[0]);
    }
}

/// The values of a record of `from` in an encoding that is read as one of `to`: the values, or why there is none.
fn carried(encoding: Encoding, from: &Format, to: &Format, bytes: &[u8], allow: &[Loss]) -> Result<String, String> {
    let options = EncodingOptions { allow: allow.to_vec(), ..EncodingOptions::default() };
    let mut encoder = encoding::encoder(encoding, from, None, &options).map_err(|error| format!("format: {error}"))?;
    let mut out = Vec::new();
    encoder.start(&mut out);
    encoder.record(&Record::check(from, bytes).unwrap(), &mut out).map_err(|error| format!("written: {error}"))?;
    encoder.finish(&mut out).unwrap();
    let mut decoder = encoding::decoder(encoding, to, None, &options).map_err(|error| format!("format: {error}"))?;
    let record = decoder.next_record(&mut &out[..]).map_err(|error| {
        assert!(error.is_item(), "{encoding}: {error}");
        format!("read: {error}")
    })?;
    Ok(format!("{:?}", Record::check(to, record.unwrap()).unwrap().get(0)))
}

/// The table in the documentation of `encoding`.
#[test]
fn values_without_an_exact_form_are_kept_or_refused_by_every_encoding() {
    let one = |schema: &str, value: Value<'_>| {
        let format = Format::parse_schema(schema).unwrap();
        let mut row = RecordBuilder::new(&format);
        row.set(0, value).unwrap();
        let bytes = row.finish().unwrap().to_vec();
        (format, bytes)
    };
    for encoding in Encoding::ALL {
        let kept = |schema: &str, value: Value<'_>| {
            let (format, bytes) = one(schema, value);
            carried(encoding, &format, &format, &bytes, &[])
        };
        // A number of an enumeration that has no symbol.
        let number = kept("e enum i8 { A = 1 }", Value::Int(5));
        match encoding {
            Encoding::Avro | Encoding::AvroFile => assert!(number.unwrap_err().starts_with("written: "), "{encoding}"),
            _ => assert_eq!(number.unwrap(), "Enum { number: 5, symbol: None }", "{encoding}"),
        }
        // Floats that are no number, of both sizes.
        for (value, shown) in [(f64::NAN, "NaN"), (f64::INFINITY, "inf"), (f64::NEG_INFINITY, "-inf"), (-0.0, "-0.0")] {
            for schema in ["f f64", "f f32"] {
                assert_eq!(kept(schema, Value::Float(value)).unwrap(), format!("Float({shown})"), "{encoding}");
            }
        }
        // Text that is no UTF-8.
        let (format, bytes) = one("t string", Value::Text(b"a\xff"));
        let refused = carried(encoding, &format, &format, &bytes, &[]);
        let repaired = carried(encoding, &format, &format, &bytes, &[Loss::InvalidText]).unwrap();
        if encoding == Encoding::Binary {
            assert_eq!((refused.unwrap(), repaired), ("Text([97, 255])".to_owned(), "Text([97, 255])".to_owned()));
        } else {
            let refused = refused.unwrap_err();
            assert!(refused.starts_with("written: ") && refused.contains("field `t`"), "{encoding}: {refused}");
            assert_eq!(repaired, "Text(\"a\u{fffd}\")", "{encoding}");
        }
        // Numbers beyond the field that they are read into.
        if encoding != Encoding::Binary {
            for (wide, narrow, value) in [("n i64", "n i8", 300), ("n i64", "n i16", -40_000)] {
                let (format, bytes) = one(wide, Value::Int(value));
                let narrow = Format::parse_schema(narrow).unwrap();
                let refused = carried(encoding, &format, &narrow, &bytes, &[]).unwrap_err();
                assert!(refused.starts_with("read: ") && refused.contains('n'), "{encoding}: {refused}");
            }
        }
    }
}

/// A message by the default schema is read by the one that is exported, and that is the same format as far as the notation
/// distinguishes types.
#[test]
fn the_schema_of_what_is_written_can_be_had() {
    let schema = "a i16 null\nb string null\nc record { d bool; e timestamp null } null\nf f32 null\ng bytes\n\
        h record { i u8; j string[] null }[]\nk u8[2][] null\nl union { m i32; n record { o char[2] } } null\n\
        p enum u8 { X = 1 } null\nq decimal(8, scale 2) null\nr u64";
    let format = Format::parse_schema(schema).unwrap();
    let export = |notation: SchemaNotation| notation.export(&format, &EncodingOptions::default()).unwrap();
    for (notation, name) in [(SchemaNotation::Proto, "a.proto"), (SchemaNotation::Avsc, "a.avsc")] {
        let text = String::from_utf8(export(notation)).unwrap();
        assert_eq!(Schema::new(name, text, None).format().unwrap(), format, "{name}");
    }
    let arrow = export(SchemaNotation::Arrow);
    assert_eq!(encoding::open(Encoding::ArrowFile, &mut &arrow[..], &EncodingOptions::default()).unwrap().0, format);
    let json = String::from_utf8(export(SchemaNotation::JsonSchema)).unwrap();
    let wide = "a i64 null\nb string null\nc record { d bool; e timestamp null } null\nf f64 null\ng bytes\n\
        h record { i i64; j string[] null }[]\nk i64[2][] null\nl record { m i64 null; n record { o string } null } null\n\
        p enum { X = 0 } null\nq f64 null\nr u64";
    assert_eq!(
        Schema::new("a.json", json, None).format().unwrap().schema(),
        Format::parse_schema(wide).unwrap().schema()
    );
    for notation in SchemaNotation::ALL {
        assert_eq!(notation.name().parse(), Ok(notation));
    }
}
